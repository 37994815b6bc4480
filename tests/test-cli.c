/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program as others script it: JSON fields, exit status, and what goes to stdout and stderr. Every case runs
 * $SEQPAR_BIN on files of its own folder; only the device and a few scenarios are shipped ones.
 */
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>

#include "sim/program.h"

static char *folder; /* of all files that are written here */

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct {
  int status; /* exit status, -1 if it was killed */
  char *out, *err;
} Run;

static void
run_clear (Run *run)
{
  g_free (run->out);
  g_free (run->err);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Run, run_clear)

/* `args` NULL-terminated, without the program. */
static Run
run_args (const char *const *args)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();
  Run run = { 0 };
  int status = 0;
  g_ptr_array_add (argv, (gpointer) g_getenv ("SEQPAR_BIN"));
  for (guint i = 0; args[i] != NULL; i++)
    g_ptr_array_add (argv, (gpointer) args[i]);
  g_ptr_array_add (argv, NULL);
  g_spawn_sync (folder, (char **) argv->pdata, NULL, G_SPAWN_DEFAULT, NULL, NULL, &run.out, &run.err, &status, &error);
  g_assert_no_error (error);
  run.status = WIFEXITED (status) ? WEXITSTATUS (status) : -1;
  g_autofree char *line = g_strjoinv (" ", (char **) args);
  g_test_message ("seqpar %s: %d %s", line, run.status, run.err);
  return run;
}
#define run_cli(...) run_args ((const char *const[]){ __VA_ARGS__, NULL })

static void
assert_contains (const char *text, const char *word)
{
  if (strstr (text, word) == NULL)
    g_error ("\"%s\" is not in \"%s\"", word, text);
}

/* Nothing on stdout, one line on stderr. */
static void
assert_refused (const Run *run, int status, const char *const *words)
{
  g_assert_cmpint (run->status, ==, status);
  g_assert_cmpstr (run->out, ==, "");
  g_assert_true (g_str_has_prefix (run->err, "seqpar: "));
  const char *end = strchr (run->err, '\n');
  g_assert_true (end != NULL && end[1] == '\0');
  for (guint i = 0; words[i] != NULL; i++)
    assert_contains (run->err, words[i]);
}

/* The result of a run that went well: valid JSON and nothing else said. */
static JsonNode *
parse_json (const Run *run)
{
  g_autoptr (GError) error = NULL;
  g_assert_cmpint (run->status, ==, 0);
  g_assert_cmpstr (run->err, ==, "");
  JsonNode *node = json_from_string (run->out, &error);
  g_assert_no_error (error);
  g_assert_nonnull (node);
  return node;
}

static JsonNode *
member (JsonNode *node, const char *name)
{
  g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
  JsonNode *found = json_object_get_member (json_node_get_object (node), name);
  if (found == NULL)
    g_error ("no member %s", name);
  return found;
}

static double
number (JsonNode *node, const char *name)
{
  JsonNode *found = member (node, name);
  GType type = json_node_get_value_type (found);
  if (type != G_TYPE_DOUBLE && type != G_TYPE_INT64)
    g_error ("%s is no number", name);
  double value = json_node_get_double (found);
  g_assert_true (isfinite (value));
  return value;
}

static JsonArray *
array (JsonNode *node, const char *name)
{
  JsonNode *found = member (node, name);
  g_assert_true (JSON_NODE_HOLDS_ARRAY (found));
  return json_node_get_array (found);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char model_text[] = "[model]\n"
                                 "name = small\n"
                                 "layers = 4\n"
                                 "hidden = 256\n"
                                 "heads = 8\n"
                                 "kv-heads = 4\n"
                                 "ffn = 512\n"
                                 "vocabulary = 1000\n";

static const char cluster_text[] = "[cluster]\n"
                                   "name = one node\n"
                                   "nodes = 1\n"
                                   "gpus-per-node = 4\n"
                                   "device = DEVICE\n"
                                   "link-efficiency = 0.8\n"
                                   "link-latency = 3.4 us\n";

static const char scenario_text[] = "[model]\n"
                                    "config = model.ini\n"
                                    "\n"
                                    "[cluster]\n"
                                    "file = cluster.ini\n"
                                    "\n"
                                    "[layout]\n"
                                    "ulysses = 2\n"
                                    "ring = 2\n"
                                    "\n"
                                    "[run]\n"
                                    "sequence = 64K\n"
                                    "global-batch = 2\n";

static char *
replace (const char *text, const char *from, const char *to)
{
  const char *at = strstr (text, from);
  g_assert_nonnull (at);
  g_autofree char *head = g_strndup (text, (gsize) (at - text));
  return g_strconcat (head, to, at + strlen (from), NULL);
}

static void
write_file (const char *name, const char *text, gssize length)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (folder, name, NULL);
  g_file_set_contents (path, text, length, &error);
  g_assert_no_error (error);
}

static gboolean
is_there (const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  return g_file_test (path, G_FILE_TEST_EXISTS);
}

/* The four files, as they are above. */
static void
write_good (void)
{
  g_autofree char *device = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", "h100.ini", NULL);
  g_autofree char *cluster = replace (cluster_text, "DEVICE", device);
  write_file ("model.ini", model_text, -1);
  write_file ("cluster.ini", cluster, -1);
  write_file ("scenario.ini", scenario_text, -1);
}

static void
write_gpus (guint gpus)
{
  g_autofree char *device = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", "h100.ini", NULL);
  g_autofree char *here = replace (cluster_text, "DEVICE", device);
  g_autofree char *count = g_strdup_printf ("gpus-per-node = %u", gpus);
  g_autofree char *cluster = replace (here, "gpus-per-node = 4", count);
  write_file ("cluster.ini", cluster, -1);
}

/* A model of another depth and other heads, of 32 features each. */
static void
write_model (guint layers, guint heads, guint kv_heads)
{
  g_autofree char *text = g_strdup_printf ("[model]\nlayers = %u\nhidden = %u\nheads = %u\nkv-heads = %u\nffn = 512\n"
                                           "vocabulary = 1000\n",
                                           layers, heads * 32, heads, kv_heads);
  write_file ("model.ini", text, -1);
}

static void
remove_folder (void)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
    g_autofree char *path = g_build_filename (folder, name, NULL);
    g_remove (path);
  }
  g_rmdir (folder);
  g_free (folder);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
check_spread (JsonNode *axis, const char *name)
{
  JsonNode *spread = member (axis, name);
  g_assert_cmpfloat (number (spread, "min"), <=, number (spread, "mean"));
  g_assert_cmpfloat (number (spread, "mean"), <=, number (spread, "max"));
  g_assert_cmpfloat (number (spread, "min"), >=, 0);
}

static void
check_communication (JsonNode *run)
{
  JsonNode *by_axis = member (member (run, "communication"), "by_axis");
  g_autoptr (GList) axes = json_object_get_members (json_node_get_object (by_axis));
  for (GList *l = axes; l != NULL; l = l->next) {
    JsonNode *axis = member (by_axis, l->data);
    check_spread (axis, "payload_bytes_per_gpu");
    check_spread (axis, "wire_bytes_per_gpu");
    g_assert_cmpfloat (number (axis, "messages"), >, 0);
    g_assert_cmpfloat (number (axis, "time_s"), >, 0);
    g_assert_cmpfloat (number (axis, "exposed_s"), >=, 0);
  }
}

/* All of `run --json`, and what must hold between the fields. */
static void
check_run (JsonNode *run)
{
  static const char *const classes[] = { "parameters", "gradients",     "optimizer", "activations",
                                         "logits",     "communication", "workspace", "reserved" };
  static const char *const parts[] = { "compute_s", "exposed_communication_s", "bubble_s", "host_s", "idle_s" };
  static const char *const shares[] = { "tokens_per_s", "mfu", "mfu_causal", "hfu" };
  double step = number (run, "step_time_s"), sum = 0;
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    sum += number (member (run, "time"), parts[i]);
  g_assert_cmpfloat (fabs (sum - step), <=, 1e-9 * step);
  g_assert_cmpfloat (number (run, "step_time_low_s"), <=, step);
  g_assert_cmpfloat (step, <=, number (run, "step_time_high_s"));
  g_assert_cmpfloat (number (run, "step_time_serial_s"), >, 0);
  g_assert_true (JSON_NODE_HOLDS_NULL (member (run, "interval_s")));
  for (guint i = 0; i < G_N_ELEMENTS (shares); i++)
    g_assert_cmpfloat (number (run, shares[i]), >, 0);

  JsonNode *memory = member (run, "memory");
  double peak = number (memory, "peak_bytes"), by_class = 0;
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++)
    by_class += number (member (memory, "by_class"), classes[i]);
  g_assert_cmpfloat (fabs (by_class - peak), <=, G_N_ELEMENTS (classes)); /* each is rounded */
  g_assert_cmpint (json_node_get_boolean (member (run, "fits")), ==, peak <= number (memory, "capacity_bytes"));
  g_assert_cmpfloat (number (memory, "host_bytes"), >=, 0);
  check_communication (run);
  g_assert_nonnull (json_node_get_string (member (run, "provenance")));
  array (run, "notes");
}

static void
test_run_json (void)
{
  static const char *const scenarios[] = { "scenario.ini", "tnl-1b-lasp", "llama-3.1-8b-208k.ini" };
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (scenarios); i++) {
    g_auto (Run) run = run_cli ("run", scenarios[i], "--json");
    g_autoptr (JsonNode) root = parse_json (&run);
    check_run (root);
  }
}

/* Axes that are 1 do not communicate, and are not there. */
static void
test_axes (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("run", "scenario.ini", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  JsonObject *axes = json_node_get_object (member (member (root, "communication"), "by_axis"));
  g_assert_cmpuint (json_object_get_size (axes), ==, 3);
  g_assert_true (json_object_has_member (axes, "ulysses"));
  g_assert_true (json_object_has_member (axes, "ring"));
  g_assert_true (json_object_has_member (axes, "data")); /* gradients, over sequence ranks too */
}

static void
test_why (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("run", "scenario.ini", "--why");
  g_auto (Run) plain = run_cli ("run", "scenario.ini");
  g_assert_cmpint (run.status, ==, 0);
  g_assert_true (g_str_has_prefix (run.out, plain.out));
  g_assert_cmpuint (strlen (run.out), >, strlen (plain.out));
}

static void
test_does_not_fit (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("run", "scenario.ini", "--set", "sequence=64M", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  check_run (root);
  g_assert_false (json_node_get_boolean (member (root, "fits")));
  g_auto (Run) text = run_cli ("run", "scenario.ini", "--set", "sequence=64M");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "lacks");
}

static void
test_model_json (void)
{
  g_auto (Run) run = run_cli ("show", "model", "llama-3.1-8b", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  g_assert_nonnull (json_node_get_string (member (root, "name")));
  g_assert_cmpfloat (number (root, "parameters"), ==, 8030261248.0);
  g_assert_cmpfloat (number (root, "active_parameters"), ==, 8030261248.0);
  g_assert_cmpfloat (number (root, "state_bytes_per_sequence"), ==, 0);
  array (root, "notes");
  JsonArray *layers = array (root, "layers");
  g_assert_cmpuint (json_array_get_length (layers), ==, 1);
  JsonNode *layer = json_array_get_element (layers, 0);
  g_assert_cmpstr (json_node_get_string (member (layer, "kind")), ==, "softmax");
  g_assert_cmpfloat (number (layer, "count"), ==, 32);
}

static void
test_show (void)
{
  static const char *const shown[][2] = { { "cluster", "a800-2x8" },         { "device", "h100" },
                                          { "framework", "flash" },          { "model", "tnl-1b" },
                                          { "scenario", "tnl-1b-lasp" },     { "layout", "tnl-1b-lasp" },
                                          { "layout", "llama-3.1-8b-208k" }, { "strategies", NULL } };
  for (guint i = 0; i < G_N_ELEMENTS (shown); i++) {
    g_auto (Run) text = run_args ((const char *const[]){ "show", shown[i][0], shown[i][1], NULL });
    g_assert_cmpint (text.status, ==, 0);
    g_assert_cmpstr (text.out, !=, "");
    g_auto (Run) json = run_args ((const char *const[]){ "show", "--json", shown[i][0], shown[i][1], NULL });
    g_autoptr (JsonNode) root = parse_json (&json);
    g_assert_true (JSON_NODE_HOLDS_OBJECT (root));
  }
  g_auto (Run) device = run_cli ("show", "device", "h100", "--json");
  g_autoptr (JsonNode) root = parse_json (&device);
  JsonNode *rate = member (member (root, "values"), "memory-rate");
  g_assert_cmpfloat (number (rate, "value"), >, 1e12);
  g_assert_cmpstr (json_node_get_string (member (rate, "unit")), ==, "bytes/s");
  g_assert_nonnull (json_node_get_string (member (rate, "provenance")));
  member (rate, "source");
}

/* --- plan --------------------------------------------------------------------------------------------------------- */

/* `scenario.ini` with every key of a planned layout set: the same step time must come out. */
static void
check_same_as_run (JsonNode *entry)
{
  g_autoptr (GPtrArray) args = g_ptr_array_new_with_free_func (g_free);
  JsonObject *layout = json_node_get_object (member (entry, "layout"));
  g_autoptr (GList) keys = json_object_get_members (layout);
  const char *const first[] = { "run", "scenario.ini", "--json" };
  for (guint i = 0; i < G_N_ELEMENTS (first); i++)
    g_ptr_array_add (args, g_strdup (first[i]));
  for (GList *l = keys; l != NULL; l = l->next) {
    g_autofree char *text = json_to_string (json_object_get_member (layout, l->data), FALSE);
    g_autofree char *plain = g_strdup (*text == '"' ? text + 1 : text);
    if (*text == '"')
      plain[strlen (plain) - 1] = '\0';
    g_ptr_array_add (args, g_strdup_printf ("--set=%s=%s", (char *) l->data, plain));
  }
  g_ptr_array_add (args, NULL);
  g_auto (Run) run = run_args ((const char *const *) args->pdata);
  g_autoptr (JsonNode) root = parse_json (&run);
  g_assert_cmpfloat (number (root, "step_time_s"), ==, number (entry, "step_time_s"));
  g_assert_cmpfloat (number (member (root, "memory"), "peak_bytes"), ==,
                     number (member (entry, "memory"), "peak_bytes"));
}

static void
test_plan_json (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K",
                              "--global-batch", "2", "--top", "4", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  g_assert_cmpfloat (number (root, "candidates"), >=, number (root, "legal"));
  g_assert_cmpfloat (number (root, "legal"), >=, number (root, "fitting"));
  member (root, "nearest_that_does_not_fit");
  JsonArray *layouts = array (root, "layouts");
  g_assert_cmpuint (json_array_get_length (layouts), ==, 4);
  double last = 0;
  for (guint i = 0; i < json_array_get_length (layouts); i++) {
    JsonNode *entry = json_array_get_element (layouts, i);
    check_run (entry);
    g_assert_true (json_node_get_boolean (member (entry, "fits")));
    g_assert_cmpfloat (number (entry, "step_time_s"), >=, last);
    last = number (entry, "step_time_s");
    check_same_as_run (entry);
  }
  g_auto (Run) text =
      run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "64K", "--global-batch", "2");
  g_assert_cmpint (text.status, ==, 0);
  g_assert_cmpstr (text.err, ==, "");
  assert_contains (text.out, "what bounds the best");
}

static void
test_plan_nothing_fits (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("plan", "--model", "llama-3.1-70b", "--cluster", "cluster.ini", "--sequence", "64K",
                              "--global-batch", "1", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  g_assert_cmpfloat (number (root, "fitting"), ==, 0);
  g_assert_cmpuint (json_array_get_length (array (root, "layouts")), ==, 0);
  JsonNode *nearest = member (root, "nearest_that_does_not_fit");
  check_run (nearest);
  JsonNode *memory = member (nearest, "memory");
  g_assert_cmpfloat (
      fabs (number (memory, "peak_bytes") - number (memory, "capacity_bytes") - number (nearest, "lacks_bytes")), <=,
      2);
  g_auto (Run) text = run_cli ("plan", "--model", "llama-3.1-70b", "--cluster", "cluster.ini", "--sequence", "64K",
                               "--global-batch", "1");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "NOTHING FITS");
  assert_contains (text.out, "lacks");
}

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
  { "show-no-file", 2, { "show", "model" }, { "FILE is missing" } },
  { "show-set", 2, { "show", "model", "model.ini", "--set", "a=b" }, { "--set" } },
  { "plan-nothing", 2, { "plan" }, { "--model is missing" } },
  { "plan-argument", 2, PLAN ("64K", "more"), { "more" } },
  { "plan-unit", 2, PLAN ("64X"), { "--sequence", "64X" } },
  { "plan-top", 2, PLAN ("64K", "--top", "0"), { "--top" } },
  { "simulate", 1, { "run", "scenario.ini", "--engine", "simulate" }, { "not available yet" } },
  { "trace", 1, { "run", "scenario.ini", "--trace", "t.json" }, { "not available yet" } },
  { "export", 1, PLAN ("64K", "--export", "megatron"), { "not available yet" } },
  { "set-unknown", 1, { "run", "scenario.ini", "--set", "rign=2" }, { "rign", "did you mean ring?" } },
  { "set-bad", 1, { "run", "scenario.ini", "--set", "ring=many" }, { "ring", "many" } },
  { "set-no-value", 1, { "run", "scenario.ini", "--set", "ring" }, { "key=value" } },
  { "plan-searched", 1, PLAN ("64K", "--set", "tensor=2"), { "tensor" } },
  { "plan-set", 1, PLAN ("64K", "--set", "overlap=maybe"), { "overlap", "false, true" } },
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

/* --- legality ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  guint layers, heads, kv_heads, gpus;
  const char *sequence;
  const char *layout[3]; /* keys set over ulysses = ring = 1 */
  const char *words[4];  /* on stderr; none: it is legal */
} LegalCase;

/* Real users' reports. 28 query heads are no multiple of 8. Zigzag cuts a sequence in 2 x ring = 8 parts, so 2999 tokens
 * become 3000. 30 layers on four stages are 8 + 8 + 7 + 7. */
static const LegalCase legal_cases[] = {
  { "heads-28-4",
    4,
    28,
    4,
    8,
    "64K",
    { "ulysses=8" },
    { "[layout] rule ulysses-heads", "28 query heads", "1, 2, 4 or 28" } },
  { "heads-28-4-usp", 4, 28, 4, 8, "64K", { "ulysses=4", "ring=2" } },
  { "tokens-2999", 4, 8, 4, 4, "2999", { "ring=4", "ring-split=zigzag" }, { "zigzag", "8", "3000" } },
  { "tokens-3000", 4, 8, 4, 4, "3000", { "ring=4", "ring-split=zigzag" } },
  { "layers-30", 30, 8, 4, 4, "64K", { "pipeline=4" } },
  { "layers-30-split", 30, 8, 4, 4, "64K", { "pipeline=4", "stage-split=8,8,7,7" } },
  { "layers-28-of-30",
    30,
    8,
    4,
    4,
    "64K",
    { "pipeline=4", "stage-split=7,7,7,7" },
    { "rule pipeline-split", "30 layers", "8,8,7,7" } },
  { "stages-3-of-4",
    30,
    8,
    4,
    4,
    "64K",
    { "pipeline=4", "stage-split=10,10,10" },
    { "rule pipeline-split", "8,8,7,7" } },
  { "heads-40-8", 4, 40, 8, 8, "64K", { "ulysses=8" } },
  { "heads-40-8-usp", 4, 40, 8, 16, "64K", { "ulysses=8", "ring=2" } },
  { "heads-40-8-five", 4, 40, 8, 5, "65540", { "ulysses=5" }, { "rule ulysses-heads", "1, 2, 4, 8 or 40" } },
  { "gpus", 4, 8, 4, 6, "64K", { "ulysses=4" }, { "rule world", "4 GPUs", "has 6" } },
};

static void
write_legal_case (const LegalCase *c)
{
  g_autofree char *plain = replace (scenario_text, "ulysses = 2\nring = 2\n", "");
  g_autofree char *tokens = g_strdup_printf ("sequence = %s", c->sequence);
  g_autofree char *scenario = replace (plain, "sequence = 64K", tokens);
  write_good ();
  write_model (c->layers, c->heads, c->kv_heads);
  write_gpus (c->gpus);
  write_file ("scenario.ini", scenario, -1);
}

static Run
run_legal_case (const LegalCase *c, const char *const *command)
{
  g_autoptr (GPtrArray) args = g_ptr_array_new ();
  for (guint i = 0; command[i] != NULL; i++)
    g_ptr_array_add (args, (gpointer) command[i]);
  for (guint i = 0; i < G_N_ELEMENTS (c->layout) && c->layout[i] != NULL; i++) {
    g_ptr_array_add (args, (gpointer) "--set");
    g_ptr_array_add (args, (gpointer) c->layout[i]);
  }
  g_ptr_array_add (args, NULL);
  write_legal_case (c);
  return run_args ((const char *const *) args->pdata);
}

static void
test_legal (gconstpointer data)
{
  const LegalCase *c = data;
  static const char *const command[] = { "run", "scenario.ini", "--json", NULL };
  g_auto (Run) run = run_legal_case (c, command);
  if (c->words[0] != NULL) {
    assert_refused (&run, 1, c->words);
    assert_contains (run.err, "scenario.ini: [layout] ");
    return;
  }
  g_autoptr (JsonNode) root = parse_json (&run);
  check_run (root);
}

/* No layer is dropped in silence: 0, 8, 16, 23, 30. */
static void
test_stages (void)
{
  const LegalCase c = {
    .layers = 30, .heads = 8, .kv_heads = 4, .gpus = 4, .sequence = "64K", .layout = { "pipeline=4" }
  };
  static const char *const command[] = { "run", "scenario.ini", "--emit-program", "program.txt", NULL };
  static const gint32 first[] = { 0, 8, 16, 23, 30 };
  g_auto (Run) run = run_legal_case (&c, command);
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *path = g_build_filename (folder, "program.txt", NULL);
  g_autofree char *text = NULL;
  gsize length;
  g_autoptr (GError) error = NULL;
  g_assert_true (g_file_get_contents (path, &text, &length, NULL));
  g_autoptr (SpProgram) program = sp_program_read_text (text, length, path, &error);
  g_assert_no_error (error);
  g_assert_cmpint (program->stages, ==, 4);
  for (guint i = 0; i < G_N_ELEMENTS (first); i++)
    g_assert_cmpint (program->stage_first[i], ==, first[i]);
}

static void
check_degrees (JsonNode *root, const char *axis, const gint64 *expected, guint n)
{
  JsonArray *legal = array (member (member (root, "axes"), axis), "legal");
  g_assert_cmpuint (json_array_get_length (legal), ==, n);
  for (guint i = 0; i < n; i++)
    g_assert_cmpint (json_array_get_int_element (legal, i), ==, expected[i]);
}

/* 40 query and 8 key/value heads: 1, 2, 4, 8 and 40, which repeats each key/value head five times; 64K is no multiple of
 * 40, 65560 is. Whether the layout itself is legal, or is for the cluster, does not matter. */
static void
test_degrees (void)
{
  static const gint64 expected[] = { 1, 2, 4, 8, 40 };
  static const char *const layouts[] = { "ulysses=8", "ulysses=1", "ulysses=16", "ulysses=3" };
  static const char *const text_command[] = { "show", "layout", "scenario.ini", NULL };
  static const char *const json_command[] = { "show", "layout", "scenario.ini", "--json", NULL };
  for (guint i = 0; i < G_N_ELEMENTS (layouts); i++) {
    const LegalCase c = {
      .layers = 4, .heads = 40, .kv_heads = 8, .gpus = 8, .sequence = "64K", .layout = { layouts[i] }
    };
    g_auto (Run) text = run_legal_case (&c, text_command);
    g_assert_cmpint (text.status, ==, 0);
    assert_contains (text.out, "1, 2, 4, 8, 40");
    assert_contains (text.out, i == 0 ? "\nlegal\n" : "ILLEGAL: ");
    g_auto (Run) json = run_legal_case (&c, json_command);
    g_autoptr (JsonNode) root = parse_json (&json);
    check_degrees (root, "ulysses", expected, G_N_ELEMENTS (expected));
    g_assert_cmpint (json_node_get_boolean (member (root, "legal")), ==, i == 0);
    JsonNode *padded = member (member (member (root, "axes"), "ulysses"), "pad_sequence_to");
    g_assert_cmpfloat (number (padded, "40"), ==, 65560);
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

/* --- rehearsal ---------------------------------------------------------------------------------------------------- */

static void
test_rehearse (void)
{
  write_good ();
  write_file ("model.ini", "[model]\nlayers = 2\nhidden = 16\nheads = 4\nkv-heads = 2\nffn = 12\nvocabulary = 11\n",
              -1);
  g_auto (Run) run =
      run_cli ("run", "scenario.ini", "--set", "sequence=16", "--set", "zero=3", "--engine", "rehearse", "--json");
  g_autoptr (JsonNode) root = parse_json (&run);
  double loss = number (root, "loss"), alone = number (root, "loss_one_rank");
  g_assert_cmpfloat (loss, >, 0);
  g_assert_cmpfloat (fabs (loss - alone), <=, 1e-12 * loss);
  g_assert_cmpfloat (number (root, "max_relative_difference"), <=, 1e-9);
  JsonNode *axes = member (member (root, "communication"), "by_axis");
  static const char *const names[] = { "ulysses", "ring", "data" };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    check_spread (member (axes, names[i]), "rehearsed_payload_bytes_per_gpu");
    check_spread (member (axes, names[i]), "payload_bytes_per_gpu");
  }

  static const char *const ranks[] = { "128 ranks", "at most 64", NULL };
  static const char *const elements[] = { "elements", "at most 2,000,000", NULL };
  g_auto (Run) many = run_cli ("run", "tnl-1b-lasp", "--engine", "rehearse");
  assert_refused (&many, 1, ranks);
  g_auto (Run) large = run_cli ("run", "llama-3.1-8b-208k", "--engine", "rehearse");
  assert_refused (&large, 1, elements);
}

/* --- table of cases ----------------------------------------------------------------------------------------------- */

static void
add_cases (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (status_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli/status/", status_cases[i].name, NULL);
    g_test_add_data_func (path, &status_cases[i], test_status);
  }
  for (guint i = 0; i < G_N_ELEMENTS (broken_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli/broken/", broken_cases[i].name, NULL);
    g_test_add_data_func (path, &broken_cases[i], test_broken);
  }
  for (guint i = 0; i < G_N_ELEMENTS (legal_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli/legal/", legal_cases[i].name, NULL);
    g_test_add_data_func (path, &legal_cases[i], test_legal);
  }
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  g_test_init (&argc, &argv, NULL);
  if (g_getenv ("SEQPAR_BIN") == NULL || g_getenv ("SEQPAR_DATA") == NULL) {
    g_print ("1..0 # SKIP SEQPAR_BIN and SEQPAR_DATA are not set; run meson test\n");
    return 0;
  }
  folder = g_dir_make_tmp ("seqpar-cli-XXXXXX", &error);
  g_assert_no_error (error);
  g_test_add_func ("/cli/json/run", test_run_json);
  g_test_add_func ("/cli/json/axes", test_axes);
  g_test_add_func ("/cli/json/does-not-fit", test_does_not_fit);
  g_test_add_func ("/cli/json/model", test_model_json);
  g_test_add_func ("/cli/json/plan", test_plan_json);
  g_test_add_func ("/cli/json/plan-nothing-fits", test_plan_nothing_fits);
  g_test_add_func ("/cli/why", test_why);
  g_test_add_func ("/cli/show", test_show);
  g_test_add_func ("/cli/no-file", test_no_file);
  g_test_add_func ("/cli/legal/stages", test_stages);
  g_test_add_func ("/cli/legal/degrees", test_degrees);
  g_test_add_func ("/cli/output/same", test_same_output);
  g_test_add_func ("/cli/output/emit-program", test_emit_program);
  g_test_add_func ("/cli/output/stdout", test_stdout);
  g_test_add_func ("/cli/rehearse", test_rehearse);
  add_cases ();
  int status = g_test_run ();
  remove_folder ();
  return status;
}
