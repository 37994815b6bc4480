/* SPDX-License-Identifier: Apache-2.0 */
/* What the program answers: the fields of its JSON and what holds between them, illegal layouts, rehearsal. */
#include "sim/program.h"
#include "tests/cli-run.h"

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

/* Of a simulation `memory` is that of the fullest role, and what the framework reserves; under any scope a
 * step's. */
static void
test_simulated_memory (void)
{
  static const char *const scopes[] = { "scope=step", "scope=forward" };
  double peaks[2];

  for (guint i = 0; i < 2; i++) {
    g_auto (Run) run = run_cli ("run", "scenario.ini", "--engine", "simulate", "--set", "global-batch=64", "--set",
                                scopes[i], "--json");
    g_autoptr (JsonNode) root = parse_json (&run);
    JsonArray *roles = array (member (root, "simulation"), "roles");
    double fullest = 0, reserved = number (member (member (root, "memory"), "by_class"), "reserved");
    for (guint r = 0; r < json_array_get_length (roles); r++) {
      JsonNode *role = json_array_get_element (roles, r);
      fullest = MAX (fullest, number (role, "peak_bytes"));
      g_assert_cmpint (JSON_NODE_HOLDS_NULL (member (role, "peak_at_s")), ==, i == 1);
    }
    peaks[i] = number (member (root, "memory"), "peak_bytes");
    g_assert_cmpfloat (fabs (peaks[i] - fullest - reserved), <=, 1); /* each is rounded */
  }
  g_assert_cmpfloat (peaks[0], ==, peaks[1]);
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
    g_assert_cmpfloat (number (entry, "simulated_step_s"), >=, last); /* all four are among those simulated */
    last = number (entry, "simulated_step_s");
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

/* --- legality ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  guint layers, heads, kv_heads, gpus;
  const char *sequence;
  const char *layout[4]; /* keys set over ulysses = ring = 1 */
  const char *words[4];  /* on stderr; none: it is legal */
} LegalCase;

/* From users' reports. 28 query heads are no multiple of 8. Zigzag cuts a sequence in 2 x ring = 8 parts, so 2999
 * tokens become 3000. 30 layers on four stages are 8 + 8 + 7 + 7. */
/* clang-format off */
static const LegalCase legal_cases[] = {
  { "heads-28-4", 4, 28, 4, 8, "64K", { "ulysses=8" },
    { "[layout] rule ulysses-heads", "28 query heads", "1, 2, 4 or 28" } },
  { "heads-28-4-usp", 4, 28, 4, 8, "64K", { "ulysses=4", "ring=2" } },
  { "tokens-2999", 4, 8, 4, 4, "2999", { "ring=4", "ring-split=zigzag" }, { "zigzag", "8", "3000" } },
  { "tokens-3000", 4, 8, 4, 4, "3000", { "ring=4", "ring-split=zigzag" } },
  { "layers-30", 30, 8, 4, 4, "64K", { "pipeline=4" } },
  { "layers-30-split", 30, 8, 4, 4, "64K", { "pipeline=4", "stage-split=8,8,7,7" } },
  { "layers-28-of-30", 30, 8, 4, 4, "64K", { "pipeline=4", "stage-split=7,7,7,7" },
    { "rule pipeline-split", "30 layers", "8,8,7,7" } },
  { "stages-3-of-4", 30, 8, 4, 4, "64K", { "pipeline=4", "stage-split=10,10,10" },
    { "rule pipeline-split", "8,8,7,7" } },
  { "slices-interleaved", 8, 8, 4, 4, "64K", { "pipeline=4", "schedule=interleaved", "virtual-stages=2", "slices=4" },
    { "rule pipeline-schedule", "slices = 4", "use slices = 1, or schedule = 1f1b or gpipe with virtual-stages = 1" } },
  { "heads-40-8", 4, 40, 8, 8, "64K", { "ulysses=8" } },
  { "heads-40-8-usp", 4, 40, 8, 16, "64K", { "ulysses=8", "ring=2" } },
  { "heads-40-8-five", 4, 40, 8, 5, "65540", { "ulysses=5" }, { "rule ulysses-heads", "1, 2, 4, 8 or 40" } },
  { "gpus", 4, 8, 4, 6, "64K", { "ulysses=4" }, { "rule world", "4 GPUs", "has 6" } },
};
/* clang-format on */

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

/* 40 query and 8 key/value heads: 1, 2, 4, 8 and 40, which repeats each key/value head five times; 64K is no multiple
 * of 40, 65560 is. Whether the layout itself is legal, or is for the cluster, does not matter. */
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

/* --- plan --set --------------------------------------------------------------------------------------------------- */

/* Every layout of a plan with some keys set. */
static JsonNode *
plan_set (const char *first, const char *second)
{
  g_auto (Run) run = run_cli ("plan", "--model", "model.ini", "--cluster", "cluster.ini", "--sequence", "4K",
                              "--global-batch", "4", "--top", "1000", "--json", "--set", first, "--set", second);
  return parse_json (&run);
}

/* Four layers: two stages have two chunks each of a layer, four stages could have one. All four micro-batches of the one
 * replica are a multiple of the stages. A schedule of its own has no part in the layouts of one stage. */
static void
test_plan_chunks (void)
{
  write_good ();
  g_autoptr (JsonNode) found = plan_set ("schedule=interleaved", "overlap=true");
  g_autoptr (JsonNode) given = plan_set ("schedule=interleaved", "virtual-stages=2");
  JsonArray *layouts = array (found, "layouts"), *same = array (given, "layouts");
  guint chunked = 0, whole = 0;

  g_assert_cmpuint (json_array_get_length (layouts), ==, json_array_get_length (same));
  for (guint i = 0; i < json_array_get_length (layouts); i++) {
    JsonNode *layout = member (json_array_get_element (layouts, i), "layout");
    gboolean staged = number (layout, "pipeline") > 1;
    g_assert_cmpfloat (number (layout, "virtual-stages"), ==, staged ? 2 : 1);
    g_assert_cmpstr (json_node_get_string (member (layout, "schedule")), ==, staged ? "interleaved" : "1f1b");
    g_assert_cmpfloat (number (json_array_get_element (layouts, i), "step_time_s"), ==,
                       number (json_array_get_element (same, i), "step_time_s"));
    *(staged ? &chunked : &whole) += 1;
  }
  g_assert_cmpuint (chunked, >, 0);
  g_assert_cmpuint (whole, >, 0);
}

/* A layout of a plan as a scenario; `run` has keys of [run] besides. */
static void
write_planned (JsonNode *layout, const char *model, const char *cluster, const char *run)
{
  JsonObject *object = json_node_get_object (layout);
  g_autoptr (GList) names = json_object_get_members (object);
  g_autoptr (GString) text = g_string_new (NULL);
  g_string_append_printf (text, "[model]\nconfig = %s\n[cluster]\nfile = %s\n[layout]\n", model, cluster);
  for (GList *l = names; l != NULL; l = l->next) {
    JsonNode *value = json_object_get_member (object, l->data);
    GType type = json_node_get_value_type (value);
    if (g_str_equal (l->data, "micro-batch"))
      continue;
    g_string_append_printf (text, "%s = ", (char *) l->data);
    if (type == G_TYPE_STRING)
      g_string_append_printf (text, "%s\n", json_node_get_string (value));
    else if (type == G_TYPE_BOOLEAN)
      g_string_append_printf (text, "%s\n", json_node_get_boolean (value) ? "true" : "false");
    else
      g_string_append_printf (text, "%g\n", json_node_get_double (value));
  }
  g_string_append_printf (text, "[run]\nsequence = 4K\nglobal-batch = 8\nmicro-batch = %g\n%s\n",
                          number (layout, "micro-batch"), run);
  write_file ("planned.ini", text->str, -1);
}

/* Keys of [run] and of experts' layers are those of a scenario: a layout costs what `run` says, and other than without. */
static void
test_plan_run_keys (void)
{
  static const struct {
    const char *set, *run;
  } cases[] = { { "expert-imbalance=2", "expert-imbalance = 2" },
                { "expert-capacity=1.5", "" },
                { "precision=fp8", "precision = fp8" },
                { "offload=optimizer", "" } };

  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_auto (Run) run = run_cli ("plan", "--model", "mixtral-8x7b", "--cluster", "b200-1x8", "--sequence", "4K",
                                "--global-batch", "8", "--top", "1000", "--json", "--set", cases[i].set);
    g_autoptr (JsonNode) node = parse_json (&run);
    JsonArray *layouts = array (node, "layouts");
    guint at = 0;
    g_assert_cmpuint (json_array_get_length (layouts), >, 0);
    while (number (member (json_array_get_element (layouts, at), "layout"), "expert") == 1)
      at++;
    JsonNode *entry = json_array_get_element (layouts, at), *layout = member (entry, "layout");
    write_planned (layout, "mixtral-8x7b", "b200-1x8", cases[i].run);
    g_auto (Run) same = run_cli ("run", "planned.ini", "--json");
    g_autoptr (JsonNode) costs = parse_json (&same);
    g_assert_cmpfloat (number (costs, "step_time_s"), ==, number (entry, "step_time_s"));
    g_autofree char *usual = g_strdup_printf ("%.*s=%s", (int) strcspn (cases[i].set, "="), cases[i].set,
                                              g_str_has_prefix (cases[i].set, "expert-im")   ? "1"
                                              : g_str_has_prefix (cases[i].set, "precision") ? "bf16"
                                                                                             : "none");
    g_auto (Run) without = run_cli ("run", "planned.ini", "--json", "--set", usual);
    g_autoptr (JsonNode) other = parse_json (&without);
    g_assert_cmpfloat (number (costs, "step_time_s"), !=, number (other, "step_time_s"));
  }
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-result/run", test_run_json);
  g_test_add_func ("/cli-result/axes", test_axes);
  g_test_add_func ("/cli-result/why", test_why);
  g_test_add_func ("/cli-result/does-not-fit", test_does_not_fit);
  g_test_add_func ("/cli-result/model", test_model_json);
  g_test_add_func ("/cli-result/simulated-memory", test_simulated_memory);
  g_test_add_func ("/cli-result/show", test_show);
  g_test_add_func ("/cli-result/plan", test_plan_json);
  g_test_add_func ("/cli-result/plan-chunks", test_plan_chunks);
  g_test_add_func ("/cli-result/plan-run-keys", test_plan_run_keys);
  g_test_add_func ("/cli-result/plan-nothing-fits", test_plan_nothing_fits);
  g_test_add_func ("/cli-result/stages", test_stages);
  g_test_add_func ("/cli-result/degrees", test_degrees);
  g_test_add_func ("/cli-result/rehearse", test_rehearse);
  for (guint i = 0; i < G_N_ELEMENTS (legal_cases); i++) {
    g_autofree char *path = g_strconcat ("/cli-result/legal/", legal_cases[i].name, NULL);
    g_test_add_data_func (path, &legal_cases[i], test_legal);
  }
  int status = g_test_run ();
  remove_folder ();
  return status;
}
