/* SPDX-License-Identifier: Apache-2.0 */
/* The program as others script it: exit status, what goes to stdout and stderr, files that are broken. */
#include "sim/program.h"
#include "tests/cli-run.h"

/* --- exit status -------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  int status;
  const char *args[16];
  const char *words[4]; /* on stderr */
} StatusCase;

#define PLAN(sequence, ...)                                                                                            \
  {                                                                                                                    \
    "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", sequence, "--global-batch", "2",         \
        __VA_ARGS__                                                                                                    \
  }

static const StatusCase status_cases[] = {
  { "help", 0, { "--help" } },
  { "version", 0, { "--version" } },
  { "help-run", 0, { "help", "run" } },
  { "help-plan", 0, { "plan", "--help" } },
  { "run", 0, { "run", "scenario.ini" } },
  { "run-shipped", 0, { "run", "tnl-1b-lasp" } },
  { "run-mfu", 0, { "run", "scenario.ini", "--mfu-convention", "palm" } },
  { "plan", 0, PLAN ("64K", "--gpus", "2", "--set", "overlap=false") },
  { "plan-muon", 0, PLAN ("64K", "--gpus", "2", "--set", "optimizer=muon") },
  { "plan-no-effect",
    1,
    PLAN ("64K", "--set", "run.lora-targets=q_proj"),
    { "lora-targets=q_proj: has no effect", "lora-rank = 0" } },
  { "plan-rank", 0, PLAN ("64K", "--gpus", "2", "--set", "lora-rank=4", "--set", "lora-targets=q_proj") },
  { "plan-usual", 0, PLAN ("64K", "--gpus", "2", "--set", "lora-targets=all") },
  { "plan-elsewhere", 1, PLAN ("64K", "--set", "host-rate=1 GB/s"), { "host-rate", "a key of a cluster's file" } },
  { "plan-optimizer", 1, PLAN ("64K", "--set", "optimizer=moun"), { "optimizer=moun", "adamw, adamw-8bit, muon; did you mean muon?" } },
  { "help-calibrate", 0, { "calibrate", "--help" } },
  { "help-calibrate-import", 0, { "help", "calibrate", "import" } },
  { "no-part", 2, { "calibrate" }, { "import", "see seqpar help calibrate" } },
  { "unknown-part", 2, { "calibrate", "imprt" }, { "imprt", "did you mean import?" } },
  { "unknown-target", 2, { "calibrate", "h200x8" }, { "h200x8", "did you mean h200-1x8?" } },
  { "import-no-output", 2, { "calibrate", "import", "model.ini" }, { "-o CSV is missing", "help calibrate import" } },
  { "import-op", 2, { "calibrate", "import", "x", "-o", "y", "--op", "all-redce" }, { "did you mean all-reduce?" } },
  { "import-unknown", 1, { "calibrate", "import", "model.ini", "-o", "y.csv" }, { "model.ini", "nccl-tests" } },
  { "fit-nothing", 2, { "calibrate", "fit" }, { "MEASURED.csv is missing" } },
  { "fit-no-output", 2, { "calibrate", "fit", "model.ini" }, { "-o INI is missing", "--hold-out" } },
  { "fit-hold-out", 2, { "calibrate", "fit", "x", "--hold-out", "familes" }, { "did you mean families?" } },
  { "no-command", 2, { NULL }, { "no command" } },
  { "unknown-command", 2, { "paln" }, { "paln", "did you mean plan?" } },
  { "unknown-help", 2, { "help", "rnu" }, { "rnu", "did you mean run?" } },
  { "later-command", 2, { "sweep", "scenario.ini" }, { "sweep" } },
  { "no-scenario", 2, { "run" }, { "SCENARIO is missing" } },
  { "two-scenarios", 2, { "run", "scenario.ini", "more" }, { "more" } },
  { "unknown-option", 2, { "run", "scenario.ini", "--jsno" }, { "--jsno", "did you mean --json?" } },
  { "no-value", 2, { "run", "scenario.ini", "--set" }, { "--set" } },
  { "unknown-engine", 2, { "run", "scenario.ini", "--engine", "estimat" }, { "estimat", "did you mean estimate?" } },
  { "unknown-mfu", 2, { "run", "scenario.ini", "--mfu-convention", "x" }, { "llm-foundry" } },
  { "show-nothing", 2, { "show" }, { "WHAT is missing" } },
  { "show-unknown", 2, { "show", "modle", "x" }, { "did you mean model?" } },
  { "show-no-file", 2, { "show", "layout" }, { "FILE is missing" } },
  { "show-models", 0, { "show", "model" } },
  { "show-clusters-json", 0, { "show", "cluster", "--json" } },
  { "show-frameworks", 0, { "show", "framework" } },
  { "show-scenarios", 0, { "show", "scenario" } },
  { "help-too-many", 2, { "help", "plan", "x" }, { "\"x\" is one argument too many", "seqpar help plan" } },
  { "help-part-too-many", 2, { "help", "calibrate", "fit", "x" }, { "\"x\" is one argument too many" } },
  { "help-no-part", 2, { "help", "calibrate", "fti" }, { "did you mean fit?" } },
  { "show-set", 2, { "show", "model", "model.ini", "--set", "a=b" }, { "--set" } },
  { "plan-nothing", 2, { "plan" }, { "--model is missing" } },
  { "plan-argument", 2, PLAN ("64K", "more"), { "more" } },
  { "plan-unit", 2, PLAN ("64X"), { "--sequence", "64X" } },
  { "plan-top", 2, PLAN ("64K", "--top", "0"), { "--top" } },
  { "trace", 2, { "run", "scenario.ini", "--trace", "t.json" }, { "--trace", "--engine simulate", "estimate" } },
  { "samples", 2, { "run", "scenario.ini", "--engine", "simulate", "--samples", "-1" }, { "--samples -1", "10000" } },
  { "collectives",
    2,
    { "run", "scenario.ini", "--engine", "simulate", "--collectives", "fluit" },
    { "--collectives", "fluid" } },
  { "simulate-why", 2, { "run", "scenario.ini", "--engine", "simulate", "--why" }, { "--why", "estimate" } },
  { "version-more", 2, { "--version", "more" }, { "--version", "more" } },
  { "import-ranks", 2, { "calibrate", "import", "x", "-o", "y", "--ranks", "0" }, { "--ranks", "from 1 to" } },
  { "import-twice", 2, { "calibrate", "import", "x", "./x", "-o", "y" }, { "./x is there twice" } },
  { "fit-twice", 2, { "calibrate", "fit", "x", "x", "-o", "y" }, { "x is there twice" } },
  { "validate-twice", 2, { "validate", "lasp-2", "lasp-2" }, { "lasp-2 is there twice" } },
  { "validate-outputs", 2, { "validate", "lasp-2", "--csv", "x.svg", "--plot", "./x.svg" }, { "written twice" } },
  { "run-outputs",
    2,
    { "run", "scenario.ini", "--engine", "simulate", "--trace", "x", "--emit-program", "./x" },
    { "x is to be written twice" } },
  { "calibrate-dash", 2, { "calibrate", "h200-1x2", "--gpus", "2", "--dry-run", "-o", "-" }, { "\"-\" is no file" } },
  { "set-group", 1, { "run", "scenario.ini", "--set", "zero-group=nod" }, { "zero-group", "did you mean node?" } },
  { "set-parts", 1, { "run", "scenario.ini", "--set", "mlp-tiles=9999999" }, { "mlp-tiles", "from 1 to 1048576" } },
  { "set-parts-near", 1, { "run", "scenario.ini", "--set", "loss-chunks=aut" }, { "did you mean auto?" } },
  { "slow-rank",
    1,
    { "run", "scenario.ini", "--engine", "simulate", "--set", "slow-ranks=999 x 2" },
    { "scenario.ini (--set): [variation] slow-ranks = \"999 x 2\"", "no rank 999", "ranks 0 to" } },
  { "slow-rank-form",
    1,
    { "run", "scenario.ini", "--engine", "simulate", "--set", "slow-ranks=3" },
    { "slow-ranks", "3 x 1.2" } },
  { "failed-link",
    1,
    { "run", "scenario.ini", "--engine", "simulate", "--set", "failed-links=nodd0.gpu0>switch" },
    { "nodd0.gpu0>switch", "did you mean node0.gpu0>switch?" } },
  { "failed-link-estimated", 1, { "run", "scenario.ini", "--set", "failed-links=nonsense" }, { "failed-links", "no link nonsense" } },
  { "slow-rank-estimated", 1, { "run", "scenario.ini", "--set", "slow-ranks=4 x 2" }, { "rank 4", "ranks 0 to 3" } },
  { "noise-estimated",
    1,
    { "run", "scenario.ini", "--set", "kernel-noise=3%" },
    { "kernel-noise", "--engine simulate" } },
  { "rank-estimated",
    1,
    { "run", "scenario.ini", "--set", "slow-ranks=3 x 2" },
    { "has no effect", "--engine simulate" } },
  { "link-estimated",
    1,
    { "run", "scenario.ini", "--set", "slow-links=node0.gpu0>switch x 0.5" },
    { "slow-links", "has no effect", "--engine simulate" } },
  { "seed-estimated", 1, { "run", "scenario.ini", "--set", "variation.seed=2" }, { "seed", "--engine simulate" } },
  { "seed-usual", 0, { "run", "scenario.ini", "--set", "seed=1" }, { NULL } },
  { "seed-alone", 1, { "run", "scenario.ini", "--engine", "simulate", "--set", "seed=2" }, { "seed", "kernel-noise" } },
  { "seed",
    0,
    { "run", "scenario.ini", "--engine", "simulate", "--set", "seed=2", "--set", "network-noise=3%" },
    { NULL } },
  { "export", 2, PLAN ("64K", "--export", "megatorn"), { "--export", "did you mean megatron?" } },
  { "export-json", 2, PLAN ("64K", "--export", "megatron", "--json"), { "--export", "--json" } },
  { "export-nothing", 2, { "export", "scenario.ini" }, { "--format is missing" } },
  { "export-format", 2, { "export", "scenario.ini", "--format", "calculon" }, { "--format", "torchtitan" } },
  { "export-degrees", 1, { "export", "scenario.ini", "--format", "deepspeed" }, { "layout.ring = 2", "degrees" } },
  { "import-nothing", 2, { "import" }, { "RUNFILE is missing" } },
  { "import-output", 2, { "import", "scenario.ini" }, { "-o SCENARIO is missing" } },
  { "import-scenario", 1, { "import", "scenario.ini", "-o", "out.ini" }, { "scenario.ini", "a scenario already" } },
  { "import-no-file", 1, { "import", "no-such.args", "-o", "out.ini" }, { "no-such.args" } },
  { "set-unknown", 1, { "run", "scenario.ini", "--set", "rign=2" }, { "rign", "did you mean ring?" } },
  { "set-bad", 1, { "run", "scenario.ini", "--set", "ring=many" }, { "ring", "many" } },
  { "set-no-value", 1, { "run", "scenario.ini", "--set", "ring" }, { "key=value" } },
  { "plan-searched", 1, PLAN ("64K", "--set", "tensor=2"), { "tensor" } },
  { "plan-set", 1, PLAN ("64K", "--set", "overlap=maybe"), { "overlap", "false, true" } },
  { "plan-known", 1, PLAN ("64K", "--set", "zero-group=2"), { "plan does not take zero-group", "virtual-stages" } },
  { "plan-noise", 1, PLAN ("64K", "--set", "seed=2"), { "plan does not take seed" } },
  { "plan-unknown", 1, PLAN ("64K", "--set", "ovrlap=true"), { "unknown key", "did you mean overlap?" } },
  { "plan-chunks", 1, PLAN ("64K", "--set", "virtual-stages=2"), { "virtual-stages=2", "schedule=interleaved" } },
  { "plan-imbalance", 1, PLAN ("64K", "--set", "expert-imbalance=2"), { "small has none" } },
  { "plan-precision", 1, PLAN ("64K", "--set", "precision=fp4"), { "precision", "bf16, fp16, fp8" } },
  { "plan-gpus", 1, PLAN ("64K", "--gpus", "5"), { "5", "4" } },
  { "not-shipped", 1, { "run", "tnl-1b-lsap" }, { "tnl-1b-lsap", "did you mean tnl-1b-lasp?" } },
  { "no-model", 1, { "show", "model", "lama-3.1-8b" }, { "did you mean llama-3.1-8b?" } },
};

static void
test_status (gconstpointer data)
{
  const StatusCase *c = data;
  write_good ();
  g_auto (Run) run = run_args (c->args);
  if (c->status != 0) {
    assert_refused (&run, c->status, c->words);
    return;
  }
  g_assert_cmpint (run.status, ==, 0);
  g_assert_cmpstr (run.err, ==, "");
  g_assert_cmpstr (run.out, !=, "");
}

/* In the file a word instead: nothing of it counts in an estimate, and in a simulation all that varies. */
static void
test_variation_notes (void)
{
  static const char groups[] = "[variation]\nseed = 2\nkernel-noise = 3%\nslow-ranks = 1 x 2\n";
  static const char *const keys[] = { "seed = 2", "kernel-noise = 3%", "slow-ranks = 1 x 2" };
  g_autofree char *varied = g_strconcat (scenario_text, groups, NULL);
  g_autofree char *seeded = g_strconcat (scenario_text, "[variation]\nseed = 2\n", NULL);

  write_good ();
  g_auto (Run) plain = run_cli ("run", "scenario.ini", "--json");
  g_autoptr (JsonNode) before = parse_json (&plain);
  write_file ("scenario.ini", varied, -1);
  g_auto (Run) estimated = run_cli ("run", "scenario.ini", "--json");
  g_auto (Run) simulated = run_cli ("run", "scenario.ini", "--json", "--engine", "simulate");
  g_autoptr (JsonNode) noted = parse_json (&estimated);
  g_assert_cmpuint (json_array_get_length (array (noted, "notes")), ==,
                    json_array_get_length (array (before, "notes")) + G_N_ELEMENTS (keys));
  g_assert_cmpfloat (number (noted, "step_time_s"), ==, number (before, "step_time_s"));
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    g_autofree char *note = g_strdup_printf ("[variation] %s: has no effect: ", keys[i]);
    assert_contains (estimated.out, note);
  }
  g_assert_null (strstr (simulated.out, "[variation]"));
  g_assert_cmpint (simulated.status, ==, 0);
  write_file ("scenario.ini", seeded, -1);
  g_auto (Run) alone = run_cli ("run", "scenario.ini", "--engine", "simulate");
  g_assert_cmpint (alone.status, ==, 0);
  assert_contains (alone.out, "[variation] seed = 2: has no effect: nothing is random");
}

/* --- broken files ------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  const char *file;      /* one of the good ones */
  const char *from, *to; /* from NULL: `to` is the whole file */
  const char *words[4];
} BrokenCase;

static const BrokenCase broken_cases[] = {
  { "empty", "scenario.ini", NULL, "", { "scenario.ini", "empty" } },
  { "truncated", "scenario.ini", NULL, "[model]\nconfig = model.ini\n[clus", { "scenario.ini:3", "[group]" } },
  { "truncated-key", "scenario.ini", "global-batch = 2\n", "global-ba", { "scenario.ini:13", "key = value" } },
  { "no-sequence", "scenario.ini", "sequence = 64K\n", "", { "[run] sequence", "missing" } },
  { "unit", "scenario.ini", "64K", "64 GiB", { "[run] sequence", "64 GiB", "token count" } },
  { "negative", "scenario.ini", "ring = 2", "ring = -2", { "[layout] ring", "-2" } },
  { "fraction", "scenario.ini", "ring = 2", "ring = 1.5", { "[layout] ring", "1.5" } },
  { "huge", "scenario.ini", "64K", "99999999999999999999999999", { "[run] sequence", "expected" } },
  { "duplicate-key", "scenario.ini", "ring = 2", "ring = 2\nring = 2", { "scenario.ini:10", "twice", "line 9" } },
  { "duplicate-group", "scenario.ini", "[run]", "[layout]\n[run]", { "[layout]", "twice" } },
  { "unknown-key", "scenario.ini", "ulysses", "ulyses", { "ulyses", "did you mean ulysses?" } },
  { "unknown-group", "scenario.ini", "[layout]", "[layuot]", { "[layuot]", "did you mean [layout]?" } },
  { "no-such-model", "scenario.ini", "model.ini", "nosuch/model.ini", { "[model] config", "nosuch/model.ini" } },
  { "folder-as-model", "scenario.ini", "model.ini", "./", { "is a directory" } },
  { "binary", "scenario.ini", NULL, "[model]\nconfig = \001\n", { "scenario.ini:2", "control character" } },
  { "encoding", "scenario.ini", NULL, "[model]\nconfig = \xff\n", { "scenario.ini:2", "UTF-8" } },
  { "model-layers", "model.ini", "layers = 4", "layers = 999999999", { "[model] layers", "999999999" } },
  { "model-zero", "model.ini", "heads = 8", "heads = 0", { "[model] heads", "\"0\"" } },
  { "model-kv", "model.ini", "kv-heads = 4", "kv-heads = 3", { "kv-heads", "heads = 8" } },
  { "model-json", "model.ini", NULL, "{ \"model_type\": \"llama\", \"hidden_size\": 40", { "model.ini" } },
  { "model-type", "model.ini", NULL, "{ \"model_type\": \"lama\" }", { "model.ini", "lama" } },
  { "cluster-nan", "cluster.ini", "0.8", "nan", { "link-efficiency", "nan" } },
  { "cluster-infinite", "cluster.ini", "0.8", "1e999", { "link-efficiency", "1e999" } },
  { "cluster-unit", "cluster.ini", "3.4 us", "3.4 GB", { "link-latency", "3.4 GB" } },
  { "cluster-bare", "cluster.ini", "3.4 us", "3.4", { "link-latency", "a time" } },
  { "cluster-negative", "cluster.ini", "nodes = 1", "nodes = -1", { "[cluster] nodes", "-1" } },
  { "cluster-network", "cluster.ini", "nodes = 1", "nodes = 2", { "[cluster] nics", "missing" } },
};

static void
test_broken (gconstpointer data)
{
  const BrokenCase *c = data;
  g_autofree char *path = g_build_filename (folder, c->file, NULL);
  g_autofree char *good = NULL;
  write_good ();
  g_assert_true (g_file_get_contents (path, &good, NULL, NULL));
  g_autofree char *text = c->from != NULL ? replace (good, c->from, c->to) : g_strdup (c->to);
  write_file (c->file, text, -1);
  g_auto (Run) run = run_cli ("run", "scenario.ini", "--json", "--emit-program", "not-written");
  assert_refused (&run, 1, c->words);
  g_assert_false (is_there ("not-written"));
}

/* What is no file at all, for each command that reads one. */
static void
test_no_file (void)
{
  static const char *const commands[][3] = { { "run", NULL },       { "show", "model" },     { "show", "cluster" },
                                             { "show", "device" },  { "show", "framework" }, { "show", "layout" },
                                             { "show", "scenario" } };
  static const char *const none[] = { "no-such/file.ini", NULL };
  static const char *const directory[] = { "is a directory", NULL };
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    const char *what = commands[i][1];
    g_auto (Run) missing = run_args ((const char *const[]){ commands[i][0], what ? what : "no-such/file.ini",
                                                            what ? "no-such/file.ini" : NULL, NULL });
    assert_refused (&missing, 1, none);
    g_auto (Run) not_file =
        run_args ((const char *const[]){ commands[i][0], what ? what : folder, what ? folder : NULL, NULL });
    assert_refused (&not_file, 1, directory);
  }
}

/* --- output ------------------------------------------------------------------------------------------------------- */

/* The same bytes every time, in any locale. */
static void
test_same_output (void)
{
  static const char *const commands[][16] = {
    { "run", "scenario.ini", "--json" },
    { "run", "llama-3.1-8b-208k" },
    PLAN ("64K", "--json"),
    { "show", "layout", "tnl-1b-lasp" },
  };
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_auto (Run) first = run_args (commands[i]);
    g_setenv ("LC_ALL", "de_DE.UTF-8", TRUE);
    g_auto (Run) second = run_args (commands[i]);
    g_unsetenv ("LC_ALL");
    g_assert_cmpint (first.status, ==, 0);
    g_assert_cmpstr (first.out, ==, second.out);
  }
}

/* A program that is written can be read, and written again it is the same. */
static void
test_emit_program (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("run", "scenario.ini", "--emit-program", "emitted.txt");
  g_auto (Run) plain = run_cli ("run", "scenario.ini");
  g_assert_cmpint (run.status, ==, 0);
  g_assert_cmpstr (run.out, ==, plain.out);
  g_autofree char *path = g_build_filename (folder, "emitted.txt", NULL);
  g_autofree char *text = NULL;
  gsize length;
  g_autoptr (GError) error = NULL;
  g_assert_true (g_file_get_contents (path, &text, &length, NULL));
  g_autoptr (SpProgram) program = sp_program_read_text (text, length, path, &error);
  g_assert_no_error (error);
  g_assert_cmpint (program->world, ==, 4);
  g_autoptr (GString) again = g_string_new (NULL);
  sp_program_write_text (program, again);
  g_assert_cmpstr (again->str, ==, text);

  static const char *const no_folder[] = { "no-such/p.txt", "cannot be written", NULL };
  static const char *const is_folder[] = { "cannot be written", "not a regular file", NULL };
  g_auto (Run) missing = run_cli ("run", "scenario.ini", "--emit-program", "no-such/p.txt");
  assert_refused (&missing, 1, no_folder);
  g_auto (Run) directory = run_cli ("run", "scenario.ini", "--emit-program", folder);
  assert_refused (&directory, 1, is_folder);
}

/* A command that fails leaves none of its files, whichever of them is at fault. */
static void
test_none_written (void)
{
  static const char *const commands[][16] = {
    { "run", "scenario.ini", "--emit-program", "p.txt", "--engine", "simulate", "--trace", "no-such/t.json" },
    { "run", "scenario.ini", "--emit-program", "no-such/p.txt", "--engine", "simulate", "--trace", "t.json" },
    { "run", "llama-3.1-8b-208k", "--emit-program", "p.txt", "--engine", "rehearse" },
    { "run", "scenario.ini", "--emit-program", "p.txt", "--engine", "rehearse", "--set", "scope=layer" },
    { "validate", "lasp-2", "--csv", "v.csv", "--plot", "v.bmp" },
    { "validate", "lasp-2", "--csv", "v.csv", "--plot", "no-such/v.svg" },
    { "validate", "lasp-2", "--csv", "no-such/v.csv", "--plot", "v.svg" },
  };
  static const char *const files[] = { "p.txt", "t.json", "v.csv", "v.svg" };
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_auto (Run) run = run_args (commands[i]);
    assert_refused (&run, 1, (const char *const[]){ NULL });
    for (guint k = 0; k < G_N_ELEMENTS (files); k++)
      g_assert_false (is_there (files[k]));
  }
}

/* A full disk, a closed stdout. */
static void
test_stdout (void)
{
  static const char *const redirections[] = { "> /dev/full", ">&-" };
  if (!g_file_test ("/dev/full", G_FILE_TEST_EXISTS)) {
    g_test_skip ("no /dev/full here");
    return;
  }
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (redirections); i++) {
    g_autofree char *script = g_strdup_printf ("exec \"$0\" run scenario.ini %s", redirections[i]);
    const char *argv[] = { "/bin/sh", "-c", script, g_getenv ("SEQPAR_BIN"), NULL };
    g_autofree char *err = NULL;
    g_autoptr (GError) error = NULL;
    int status;
    g_spawn_sync (folder, (char **) argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err, &status, &error);
    g_assert_no_error (error);
    g_assert_true (WIFEXITED (status));
    g_assert_cmpint (WEXITSTATUS (status), ==, 1);
    assert_contains (err, "seqpar: stdout: cannot be written: ");
  }
}

/* --- table of cases ----------------------------------------------------------------------------------------------- */

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli/variation-notes", test_variation_notes);
  g_test_add_func ("/cli/no-file", test_no_file);
  g_test_add_func ("/cli/output/same", test_same_output);
  g_test_add_func ("/cli/output/emit-program", test_emit_program);
  g_test_add_func ("/cli/output/none-written", test_none_written);
  g_test_add_func ("/cli/output/stdout", test_stdout);
  for (guint i = 0; i < G_N_ELEMENTS (status_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli/status/", status_cases[i].name, NULL);
    g_test_add_data_func (path, &status_cases[i], test_status);
  }
  for (guint i = 0; i < G_N_ELEMENTS (broken_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli/broken/", broken_cases[i].name, NULL);
    g_test_add_data_func (path, &broken_cases[i], test_broken);
  }
  int status = g_test_run ();
  remove_folder ();
  return status;
}
