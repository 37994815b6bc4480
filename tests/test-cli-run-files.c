/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar import and export: the files that are written, and that nothing is where something is wrong. */
#include <unistd.h>

#include "tests/cli-run.h"

static const char flags[] = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 4096 \\\n"
                            "  --position-embedding-type rope --bf16 --micro-batch-size 1 --global-batch-size 8 \\\n"
                            "  --tensor-model-parallel-size 2 --vocab-size 1000 --lr 1e-4 --xyzzy\n";

static char *
read_file (const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  char *text = NULL;
  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  return text;
}

static void
remove_file (const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  g_remove (path);
}

/* Two files; what is listed is on stderr and in the scenario; the scenario runs. */
static void
test_import (void)
{
  write_good ();
  write_file ("run.args", flags, -1);
  g_auto (Run) run = run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "imported.ini");
  g_assert_cmpint (run.status, ==, 0);
  g_assert_cmpstr (run.out, ==, "");
  assert_contains (run.err, "seqpar: unknown: --xyzzy\n");
  assert_contains (run.err, "seqpar: written: imported.ini, and the model that it describes: imported-model.ini\n");
  g_autofree char *scenario = read_file ("imported.ini");
  g_autofree char *model = read_file ("imported-model.ini");
  assert_contains (scenario, "# unknown: --xyzzy\n");
  assert_contains (scenario, "# ignored, no cost depends on them: --lr\n");
  assert_contains (scenario, "config = imported-model.ini\n");
  assert_contains (scenario, "file = cluster.ini\n");
  assert_contains (scenario, "data = 2\ntensor = 2\n");
  assert_contains (model, "vocabulary = 1000\n");
  g_auto (Run) shown = run_cli ("run", "imported.ini");
  g_assert_cmpint (shown.status, ==, 0);

  /* and back: the same file as of the run itself */
  g_auto (Run) out = run_cli ("export", "imported.ini", "--format", "megatron");
  g_auto (Run) file = run_cli ("export", "imported.ini", "--format", "megatron", "-o", "again.args");
  g_assert_cmpint (out.status, ==, 0);
  g_assert_cmpstr (out.err, ==, "");
  g_assert_cmpstr (file.out, ==, "");
  g_autofree char *again = read_file ("again.args");
  g_assert_cmpstr (again, ==, out.out);
  g_auto (Run) back = run_cli ("import", "again.args", "--cluster", "cluster.ini", "-o", "back.ini");
  g_assert_cmpint (back.status, ==, 0);
  g_autofree char *scenario_again = read_file ("back.ini");
  g_auto (GStrv) first = g_strsplit (scenario, "[layout]", 2), second = g_strsplit (scenario_again, "[layout]", 2);
  g_assert_cmpstr (second[1], ==, first[1]);
}

/* An import that fails leaves what was there, and nothing else. */
static void
test_nothing_written (void)
{
  static const struct {
    const char *text;
    const char *words[3];
  } cases[] = {
    { "--num-layers 4 --hidden-size", { "bad.args:1", "--hidden-size" } },
    { "--num-layers 4 --hidden-size 256 --num-attention-heads 7 --vocab-size 8 --bf16 --seq-length 64 "
      "--micro-batch-size 1 --position-embedding-type rope",
      { "[model] heads", "hidden = 256" } },
    { "--num-layers 4 --seq-length 64", { "Asked for", "--set model.hidden=N" } },
    { "{\"zero_optimization\": {\"stage\": 3}", { "bad.args", "ends inside" } },
    { "[training]\nseq_len = \n", { "bad.args:2", "training.seq_len" } },
  };
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    write_file ("bad.args", cases[i].text, -1);
    g_auto (Run) run = run_cli ("import", "bad.args", "--cluster", "cluster.ini", "-o", "not-written.ini");
    assert_refused (&run, 1, cases[i].words);
    g_assert_false (is_there ("not-written.ini"));
    g_assert_false (is_there ("not-written-model.ini"));
    g_auto (Run) over = run_cli ("import", "bad.args", "--cluster", "cluster.ini", "-o", "scenario.ini");
    assert_refused (&over, 1, cases[i].words);
    g_autofree char *kept = read_file ("scenario.ini");
    g_assert_cmpstr (kept, ==, scenario_text);
  }
}

/* A scenario that cannot be written takes its model along; a model that was there stays as it was. */
static void
test_not_writable (void)
{
  static const char *const words[] = { "taken.ini", "cannot be written", NULL };
  g_autofree char *taken = g_build_filename (folder, "taken.ini", NULL);
  write_good ();
  write_file ("run.args", flags, -1);
  g_assert_cmpint (g_mkdir (taken, 0755), ==, 0);
  g_auto (Run) run = run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "taken.ini");
  assert_refused (&run, 1, words);
  g_assert_false (is_there ("taken-model.ini"));
  write_file ("taken-model.ini", "before\n", -1);
  g_auto (Run) again = run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "taken.ini");
  assert_refused (&again, 1, words);
  g_autofree char *kept = read_file ("taken-model.ini");
  g_assert_cmpstr (kept, ==, "before\n");
  g_rmdir (taken);
  remove_file ("taken-model.ini");
}

/* What a format loses is said, in the file and on stderr; a lost degree is an error. */
static void
test_export_lost (void)
{
  static const char *const words[] = { "torchtitan TOML", "layout.ulysses = 2", NULL };
  write_good ();
  g_auto (Run) lost = run_cli ("export", "scenario.ini", "--format", "torchtitan", "--set", "ulysses=1", "--set",
                               "ring=4", "--set", "precision=fp16");
  g_assert_cmpint (lost.status, ==, 0);
  assert_contains (lost.err, "seqpar: not carried: run.precision = fp16 (read back it is bf16)\n");
  assert_contains (lost.out, "# not carried: run.precision = fp16 (read back it is bf16)\n");
  assert_contains (lost.out, "context_parallel_degree = 4\n");
  g_auto (Run) degree = run_cli ("export", "scenario.ini", "--format", "torchtitan", "-o", "not-written.toml");
  assert_refused (&degree, 1, words);
  g_assert_false (is_there ("not-written.toml"));
}

/* No command writes over a file that it reads, whatever name that is given: neither its argument, nor what a scenario
 * names. Nothing is written then, not even what has a name of its own. */
static void
test_over_input (void)
{
  static const char *const commands[][10] = {
    { "run", "scenario.ini", "--emit-program", "scenario.ini" },
    { "run", "scenario.ini", "--emit-program", "model.ini" },
    { "run", "scenario.ini", "--emit-program", "new.txt", "--engine", "simulate", "--trace", "scenario.ini" },
    { "run", "scenario.ini", "--engine", "simulate", "--trace", "soft.ini" },
    { "export", "scenario.ini", "--format", "megatron", "-o", "scenario.ini" },
    { "export", "scenario.ini", "--format", "megatron", "-o", "soft.ini" },
    { "export", "scenario.ini", "--format", "megatron", "-o", "hard.ini" },
    { "export", "scenario.ini", "--format", "megatron", "-o", "./cluster.ini" },
    { "import", "run.args", "--cluster", "cluster.ini", "-o", "run.args" },
    { "import", "run.args", "--cluster", "cluster.ini", "-o", "cluster.ini" },
    { "calibrate", "import", "timed.csv", "--op", "gemm", "-o", "timed.csv" },
  };
  static const char *const words[] = { "cannot be written: it is a file that this reads", NULL };
  static const char timed[] = "m,k,n,dtype,median_us\n4096,4096,4096,bf16,250\n";
  g_autofree char *soft = g_build_filename (folder, "soft.ini", NULL);
  g_autofree char *hard = g_build_filename (folder, "hard.ini", NULL);
  g_autofree char *scenario = g_build_filename (folder, "scenario.ini", NULL);
  write_good ();
  write_file ("run.args", flags, -1);
  write_file ("timed.csv", timed, -1);
  g_assert_cmpint (symlink ("scenario.ini", soft), ==, 0);
  g_assert_cmpint (link (scenario, hard), ==, 0);
  g_autofree char *cluster = read_file ("cluster.ini");
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_auto (Run) run = run_args (commands[i]);
    assert_refused (&run, 1, words);
    g_autofree char *scenario_after = read_file ("scenario.ini"), *model_after = read_file ("model.ini");
    g_autofree char *cluster_after = read_file ("cluster.ini"), *timed_after = read_file ("timed.csv");
    g_autofree char *args_after = read_file ("run.args");
    g_assert_cmpstr (scenario_after, ==, scenario_text);
    g_assert_cmpstr (model_after, ==, model_text);
    g_assert_cmpstr (cluster_after, ==, cluster);
    g_assert_cmpstr (timed_after, ==, timed);
    g_assert_cmpstr (args_after, ==, flags);
    g_assert_true (g_file_test (soft, G_FILE_TEST_IS_SYMLINK));
    g_assert_false (is_there ("new.txt"));
    g_assert_false (is_there ("run.args-model.ini"));
    g_assert_false (is_there ("cluster-model.ini"));
  }
  remove_file ("soft.ini");
  remove_file ("hard.ini");

  /* what only looks alike is written */
  g_auto (Run) other = run_cli ("export", "scenario.ini", "--format", "megatron", "--set", "ulysses=1", "--set",
                                "ring=4", "-o", "other.ini");
  g_assert_cmpint (other.status, ==, 0);
  g_auto (Run) again = run_cli ("export", "scenario.ini", "--format", "megatron", "--set", "ulysses=1", "--set",
                                "ring=4", "-o", "other.ini");
  g_assert_cmpint (again.status, ==, 0);
  g_auto (Run) measured = run_cli ("calibrate", "import", "timed.csv", "--op", "gemm", "-o", "measured.csv");
  g_assert_cmpint (measured.status, ==, 0);
}

/* A link around in a circle, or to nothing, stays what it is. */
static void
test_over_lost_link (void)
{
  static const char *const targets[] = { "loop.ini", "no-such.ini" };
  static const char *const words[] = { "loop.ini", "a link that leads to no file", NULL };
  g_autofree char *path = g_build_filename (folder, "loop.ini", NULL);
  write_good ();
  write_file ("run.args", flags, -1);
  for (guint i = 0; i < G_N_ELEMENTS (targets); i++) {
    g_assert_cmpint (symlink (targets[i], path), ==, 0);
    g_auto (Run) import = run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "loop.ini");
    assert_refused (&import, 1, words);
    g_auto (Run) emitted = run_cli ("run", "scenario.ini", "--emit-program", "loop.ini");
    assert_refused (&emitted, 1, words);
    g_auto (Run) traced = run_cli ("run", "scenario.ini", "--engine", "simulate", "--trace", "loop.ini");
    assert_refused (&traced, 1, words);
    g_assert_true (g_file_test (path, G_FILE_TEST_IS_SYMLINK));
    g_assert_false (is_there ("loop-model.ini"));
    g_assert_false (is_there ("no-such.ini"));
    remove_file ("loop.ini");
  }
}

/* What is set besides is held to what `run` holds it to: legal, and of some effect. */
static void
test_import_sets (void)
{
  static const struct {
    const char *set;
    const char *words[3];
  } cases[] = {
    { "ring-keep=true", { "ring-keep", "has no effect", "ring = 2" } },
    { "virtual-stages=2", { "virtual-stages", "has no effect", "pipeline = 2" } },
    { "stage-split=1,3", { "stage-split", "has no effect", "pipeline = 2" } },
    { "zero-group=3", { "zero-group" } },
    { "lasp-version=1", { "lasp-version", "has no effect" } },
    { "ring-inner=2", { "ring-inner", "has no effect" } },
    { "recompute=every-90", { "recompute", "has no effect", "every-4" } },
    { "expert-imbalance=4", { "expert-imbalance", "has no effect" } },
    { "tensor=3", { "run.args" } },
    { "order=tensor", { "order" } },
  };
  write_good ();
  write_file ("run.args", flags, -1);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_auto (Run) run =
        run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "not-written.ini", "--set", cases[i].set);
    const char *words[] = { cases[i].words[0], cases[i].words[1], cases[i].words[2], NULL };
    assert_refused (&run, 1, words);
    g_assert_false (is_there ("not-written.ini"));
    g_assert_false (is_there ("not-written-model.ini"));
  }
  g_auto (Run) run =
      run_cli ("import", "run.args", "--cluster", "cluster.ini", "-o", "set.ini", "--set", "recompute=every-2", "--set",
               "zero=1", "--set", "loss=chunked", "--set", "loss-chunks=2");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *scenario = read_file ("set.ini");
  assert_contains (scenario, "recompute = every-2\n");
  assert_contains (scenario, "loss-chunks = 2\n");
  g_auto (Run) shown = run_cli ("run", "set.ini");
  g_assert_cmpint (shown.status, ==, 0);
}

/* A layout that no rule allows is bad input, and what an import cannot say otherwise. */
static void
test_illegal (void)
{
  static const char verl[] = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B\n"
                             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1\n"
                             "actor_rollout_ref.actor.fsdp_config.fsdp_size=3\n";
  static const char *const words[] = { "verl.txt: the layout is not legal", "zero-group = 3", "legal: 2, 4, 8", NULL };
  write_file ("verl.txt", verl, -1);
  g_auto (Run) run = run_cli ("import", "verl.txt", "--cluster", "a800-1x8", "-o", "not-written.ini");
  assert_refused (&run, 1, words);
  g_assert_false (is_there ("not-written.ini"));
  g_auto (Run) explained = run_cli ("explain", "verl.txt", "--cluster", "a800-1x8");
  assert_refused (&explained, 1, words);
}

/* What a scenario keeps of its run file comes out again; a model's name only while it is that of the model. */
static void
test_kept (void)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "run-files", "qwen-verl.sh", NULL);
  g_auto (Run) run = run_cli ("import", path, "--cluster", "a800-1x8", "-o", "kept.ini");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *scenario = read_file ("kept.ini");
  assert_contains (scenario, "[run-file]\nhub-name = Qwen/Qwen2.5-7B-Instruct\nprompt-tokens = 4096\nanswers = 8\n");
  g_auto (Run) out = run_cli ("export", "kept.ini", "--format", "verl");
  assert_contains (out.out, "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n");
  assert_contains (out.out, "data.max_prompt_length=4096\ndata.max_response_length=28672\n");
  assert_contains (out.out, "ppo_mini_batch_size=64\n");
  assert_contains (out.out, "actor_rollout_ref.rollout.n=8\n");
  g_assert_cmpstr (out.err, ==, "");
  /* another sequence, batch and model */
  g_auto (Run) other = run_cli ("export", "kept.ini", "--format", "verl", "--set", "sequence=2K", "--set",
                                "global-batch=12", "--set", "config=qwen2.5-14b");
  assert_contains (other.out, "actor_rollout_ref.model.path=Qwen/Qwen2.5-14B\n");
  assert_contains (other.out, "data.max_prompt_length=1024\ndata.max_response_length=1024\n");
  assert_contains (other.out, "actor_rollout_ref.rollout.n=1\n");
  /* and a scenario that was never a run file */
  g_auto (Run) shipped =
      run_cli ("export", "llama-3.1-8b-208k", "--format", "swift", "--set", "ulysses=16", "--set", "ring=1");
  assert_contains (shipped.out, "--model meta-llama/Llama-3.1-8B\n");
  g_auto (Run) shown = run_cli ("run", "kept.ini", "--json");
  g_assert_cmpint (shown.status, ==, 0);
  /* a name that is none is not handed on */
  g_auto (GStrv) halves = g_strsplit (scenario, "Qwen/Qwen2.5-7B-Instruct", 2);
  g_autofree char *hostile = g_strconcat (halves[0], "a: b; touch x", halves[1], NULL);
  write_file ("hostile.ini", hostile, -1);
  g_auto (Run) not_on = run_cli ("export", "hostile.ini", "--format", "verl");
  g_assert_cmpint (not_on.status, ==, 0);
  assert_contains (not_on.out, "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B\n");
  g_assert_null (strstr (not_on.out, "touch"));
}

/* "-" is stdout where a result goes there anyway, and never the name of a file. */
static void
test_dash (void)
{
  static const char *const refused[][14] = {
    { "run", "scenario.ini", "--emit-program", "-" },
    { "run", "scenario.ini", "--engine", "simulate", "--trace", "-" },
    { "import", "run.args", "--cluster", "cluster.ini", "-o", "-" },
    { "report", "scenario.ini", "-o", "-", "--layouts", "0" },
    { "validate", "usp-attention", "--csv", "-" },
    { "calibrate", "import", "timed.csv", "--op", "gemm", "-o", "-" },
    { "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K", "--global-batch", "2",
      "--pareto", "--csv", "-" },
  };
  static const char *const words[] = { "\"-\" is no file's name here", NULL };
  write_good ();
  write_file ("run.args", flags, -1);
  write_file ("timed.csv", "m,k,n,dtype,median_us\n4096,4096,4096,bf16,250\n", -1);
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++) {
    g_auto (Run) run = run_args (refused[i]);
    assert_refused (&run, 2, words);
    g_assert_false (is_there ("-"));
  }
  g_auto (Run) plain = run_cli ("export", "scenario.ini", "--format", "megatron");
  g_auto (Run) dash = run_cli ("export", "scenario.ini", "--format", "megatron", "-o", "-");
  g_assert_cmpint (dash.status, ==, plain.status);
  g_assert_cmpstr (dash.out, ==, plain.out);
  g_auto (Run) rows = run_cli ("sweep", "scenario.ini", "--sweep", "zero=0,1");
  g_auto (Run) same = run_cli ("sweep", "scenario.ini", "--sweep", "zero=0,1", "--csv", "-");
  g_assert_cmpint (same.status, ==, 0);
  g_assert_cmpstr (same.out, ==, rows.out);
  g_assert_false (is_there ("-"));
}

/* The plan's best that the format has words for; the rest of the plan's text is not there. */
static void
test_plan_export (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K",
                              "--global-batch", "2", "--top", "50", "--export", "deepspeed");
  g_assert_cmpint (run.status, ==, 0);
  g_autoptr (GError) error = NULL;
  g_autoptr (JsonNode) node = json_from_string (run.out, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (number (node, "train_batch_size"), ==, 2);
  g_auto (Run) flame = run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K",
                                "--global-batch", "2", "--top", "50", "--export", "flame");
  g_assert_cmpint (flame.status, ==, 0);
  assert_contains (flame.out, "seq_len = 65536\n");
  assert_contains (flame.err, "seqpar: note: as it is read back it takes ");
}

/* Every shipped run file, as the README imports them. */
static void
test_shipped (void)
{
  static const char *const commands[][12] = {
    { "import", "mixtral-megatron.args", "--cluster", "a100-16x8", "-o", "s.ini" },
    { "import", "llama-deepspeed.json", "--model", "llama-3.1-8b", "--cluster", "h100-1x8", "--set", "sequence=32K",
      "-o", "s.ini" },
    { "import", "llama-torchtitan.toml", "--cluster", "h100-128x8", "-o", "s.ini" },
    { "import", "lasp-flame.toml", "--model", "tnl-1b", "--cluster", "a100-8x8", "-o", "s.ini" },
    { "import", "qwen-verl.sh", "--cluster", "a800-1x8", "-o", "s.ini" },
    { "import", "qwen-swift.sh", "--cluster", "a800-1x8", "-o", "s.ini" },
    { "import", "qwen-megatron-swift.sh", "--cluster", "a800-1x8", "-o", "s.ini" },
    { "import", "llama-llamafactory.yaml", "--cluster", "a800-2x8", "-o", "s.ini" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "run-files", commands[i][1], NULL);
    const char *args[12];
    memcpy (args, commands[i], sizeof args);
    args[1] = path;
    g_auto (Run) run = run_args (args);
    g_assert_cmpint (run.status, ==, 0);
    g_auto (Run) shown = run_cli ("run", "s.ini", "--json");
    g_assert_cmpint (shown.status, ==, 0);
  }
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-run-files/import", test_import);
  g_test_add_func ("/cli-run-files/nothing-written", test_nothing_written);
  g_test_add_func ("/cli-run-files/not-writable", test_not_writable);
  g_test_add_func ("/cli-run-files/export-lost", test_export_lost);
  g_test_add_func ("/cli-run-files/import-sets", test_import_sets);
  g_test_add_func ("/cli-run-files/over-input", test_over_input);
  g_test_add_func ("/cli-run-files/over-lost-link", test_over_lost_link);
  g_test_add_func ("/cli-run-files/illegal", test_illegal);
  g_test_add_func ("/cli-run-files/kept", test_kept);
  g_test_add_func ("/cli-run-files/dash", test_dash);
  g_test_add_func ("/cli-run-files/plan-export", test_plan_export);
  g_test_add_func ("/cli-run-files/shipped", test_shipped);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
