/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of simulated steps and of measurements: that what they are drawn from says what other commands say. */
#include "models/inputs/csv.h"
#include "tests/cli-run.h"

static SpCsv *
read_csv (const char *name)
{
  g_autoptr (GError) error = NULL;
  gsize length;
  char *text = read_back (name, &length);
  SpCsv *csv = sp_csv_new (name, text, length, &error);
  g_assert_no_error (error);
  return csv;
}

static gint
column (const SpCsv *csv, const char *name)
{
  gint at = sp_csv_find (csv, name);
  g_assert_cmpint (at, >=, 0);
  return at;
}

static double
value (const SpCsv *csv, guint row, const char *name)
{
  double number = sp_csv_number (csv, row, column (csv, name));
  g_assert_true (isfinite (number));
  return number;
}

/* Draws a kind, and gives back what it was drawn from. */
static SpCsv *
draw (const char *kind, const char *const *inputs)
{
  const char *args[16] = { "plot", kind, "-o", "figure.svg", "--keep" };
  for (guint i = 0; inputs[i] != NULL; i++)
    args[5 + i] = inputs[i];
  g_auto (Run) run = run_args (args);
  g_assert_cmpstr (run.err, ==, "");
  g_assert_cmpint (run.status, ==, 0);
  return read_csv ("figure.csv");
}

static char *
shipped (const char *folder_name, const char *name)
{
  return g_build_filename (g_getenv ("SEQPAR_DATA"), folder_name, name, NULL);
}

/* --- simulated steps ---------------------------------------------------------------------------------------------- */

static const char small[] = "scenario.ini";

static double
simulated (const char *group, const char *name)
{
  g_auto (Run) run = run_cli ("run", small, "--engine", "simulate", "--json");
  g_autoptr (JsonNode) json = parse_json (&run);
  return number (group != NULL ? member (json, group) : json, name);
}

/* The highest level is the peak that the simulation reports; levels follow each other. */
static void
test_memory_time (void)
{
  static const char *const classes[] = { "parameters_bytes",  "gradients_bytes", "optimizer_bytes",
                                         "activations_bytes", "logits_bytes",    "communication_bytes",
                                         "workspace_bytes",   "reserved_bytes" };
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw ("memory-time", (const char *[]){ small, NULL });
  double most = 0, last = -1;
  g_assert_cmpuint (csv->rows->len, >, 10);
  for (guint row = 0; row < csv->rows->len; row++) {
    double sum = 0;
    for (guint c = 0; c < G_N_ELEMENTS (classes); c++)
      sum += value (csv, row, classes[c]);
    most = MAX (most, sum);
    g_assert_cmpfloat (value (csv, row, "begin_s"), >, last);
    last = value (csv, row, "begin_s");
  }
  g_assert_cmpfloat (fabs (most - simulated ("memory", "peak_bytes")), <=, 1);
  g_assert_cmpfloat (last, <, simulated (NULL, "step_time_s"));
}

/* Streams do one thing at a time, to the end of the step. */
static void
test_timeline (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw ("timeline", (const char *[]){ small, NULL });
  gboolean forward = FALSE, backward = FALSE, ulysses = FALSE;
  double end = 0;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *what = sp_csv_text (csv, row, column (csv, "what"));
    g_autofree char *stream = sp_csv_text (csv, row, column (csv, "stream"));
    g_autofree char *before = row > 0 ? sp_csv_text (csv, row - 1, column (csv, "stream")) : NULL;
    gboolean same = row > 0 && value (csv, row, "rank") == value (csv, row - 1, "rank") && g_str_equal (stream, before);
    if (same)
      g_assert_cmpfloat (value (csv, row, "begin_s"), >=, value (csv, row - 1, "end_s") * (1 - 1e-8));
    g_assert_cmpfloat (value (csv, row, "end_s"), >, value (csv, row, "begin_s"));
    end = MAX (end, value (csv, row, "end_s"));
    forward |= g_str_equal (what, "forward") && g_str_equal (stream, "compute");
    backward |= g_str_equal (what, "backward") && g_str_equal (stream, "compute");
    ulysses |= g_str_equal (what, "ulysses") && g_str_equal (stream, "sequence");
  }
  g_assert_true (forward && backward && ulysses);
  g_assert_cmpfloat (fabs (end - simulated (NULL, "step_time_s")), <=, 1e-8 * end);
}

/* In one node behind a switch, what goes on links is what each GPU's port carries: of each axis its wire bytes. */
static void
test_volume (void)
{
  static const char *const axes[] = { "ulysses", "ring", "data" };
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw ("volume", (const char *[]){ small, NULL });
  guint compared = 0;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *name = sp_csv_text (csv, row, column (csv, "name"));
    if (!g_str_equal (name, "GPU to NVSwitch"))
      continue;
    for (guint a = 0; a < G_N_ELEMENTS (axes); a++)
      for (guint other = 0; other < csv->rows->len; other++) {
        g_autofree char *axis = sp_csv_text (csv, other, column (csv, "name"));
        g_autofree char *bytes = g_strconcat (axes[a], "_bytes", NULL);
        if (!g_str_equal (axis, axes[a]))
          continue;
        double wire = value (csv, other, "wire_bytes_per_gpu");
        g_test_message ("%s: %.0f on the port, %.0f on the wire", axes[a], value (csv, row, bytes), wire);
        g_assert_cmpfloat (fabs (value (csv, row, bytes) - wire), <=, 1e-6 * wire);
        compared++;
      }
  }
  g_assert_cmpuint (compared, ==, G_N_ELEMENTS (axes));
}

/* Unfolded, each of the four ports carries the same as folded, each way; over two nodes adapters carry what leaves. */
static void
test_topology (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) volume = draw ("volume", (const char *[]){ small, NULL });
  g_autoptr (SpCsv) csv = draw ("topology", (const char *[]){ small, NULL });
  double port = 0;
  for (guint row = 0; row < volume->rows->len; row++) {
    g_autofree char *name = sp_csv_text (volume, row, column (volume, "name"));
    if (g_str_equal (name, "GPU to NVSwitch"))
      port = value (volume, row, "ulysses_bytes");
  }
  g_assert_cmpfloat (port, >, 0);
  g_assert_cmpuint (csv->rows->len, ==, 8);
  for (guint row = 0; row < csv->rows->len; row++)
    g_assert_cmpfloat (fabs (value (csv, row, "ulysses_bytes") - port), <=, 1e-6 * port);
}

static void
test_too_many_gpus (void)
{
  g_auto (Run) run = run_cli ("plot", "topology", "llama-405b-16k", "-o", "no.svg");
  assert_refused (&run, 1, (const char *[]){ "16384 GPUs", "at most 256", "plot volume", NULL });
}

/* One GPU sends nothing. */
static void
test_alone (void)
{
  write_good ();
  write_gpus (1);
  g_auto (Run) volume = run_cli ("plot", "volume", small, "-o", "no.svg", "--set", "ulysses=1", "--set", "ring=1");
  assert_refused (&volume, 1, (const char *[]){ "no GPU sends anything", NULL });
  if (!has_gnuplot ())
    return;
  g_auto (Run) compare = run_cli ("plot", "compare", small, "-o", "-", "--set", "ulysses=1", "--set", "ring=1");
  g_assert_cmpint (compare.status, ==, 0);
  assert_contains (compare.out, "recompute full");
}

/* A row is not named by how an axis works that it has not. */
static void
test_idle_keys (void)
{
  g_auto (Run) run =
      run_cli ("plot", "compare", "tnl-1b-lasp", "--set", "sequence=64K", "--sweep",
               "data:ulysses:lasp:lasp-version=8:16:1:2,8:1:16:2,8:1:16:1", "--set", "global-batch=8", "-o", "-");
  if (!has_gnuplot ())
    return;
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "lasp 16, version 2 ");
  g_assert_null (strstr (run.out, "ulysses 16, version"));
}

/* --- measurements ------------------------------------------------------------------------------------------------- */

static gint
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return x < y ? -1 : x > y;
}

/* Held out as `calibrate fit --hold-out interleaved` says, in the median of all transfers. */
static void
test_calibration (void)
{
  g_autofree char *measured = shipped ("measured", "h200x2.csv");
  if (!has_gnuplot ())
    return;
  g_auto (Run) fit = run_cli ("calibrate", "fit", measured, "--hold-out", "interleaved");
  if (fit.status == 1 && strstr (fit.err, "GSL") != NULL) {
    g_test_skip ("built without GSL");
    return;
  }
  const char *line = strstr (fit.out, "all transfers");
  g_assert_nonnull (line);
  g_auto (GStrv) words = g_regex_split_simple (" +", line, 0, 0); /* all transfers FITTED HELD MEDIAN % ... */
  g_autoptr (SpCsv) csv = draw ("calibration", (const char *[]){ measured, NULL });
  g_autoptr (GArray) errors = g_array_new (FALSE, FALSE, sizeof (double));
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *class = sp_csv_text (csv, row, column (csv, "class"));
    double held = sp_csv_number (csv, row, column (csv, "held_out_s"));
    double error = 100 * fabs (held / value (csv, row, "measured_s") - 1);
    if (g_str_equal (class, "transfers") && isfinite (held))
      g_array_append_val (errors, error);
  }
  g_array_sort (errors, compare_doubles);
  g_assert_cmpuint (errors->len, ==, (guint) atoi (words[3]));
  double low = g_array_index (errors, double, (errors->len - 1) / 2);
  double high = g_array_index (errors, double, errors->len / 2), median = g_ascii_strtod (words[4], NULL);
  g_test_message ("median %.2f to %.2f, said %.2f", low, high, median);
  g_assert_cmpfloat (median, >=, low - 0.051);
  g_assert_cmpfloat (median, <=, high + 0.051);
}

/* Runs as `calibrate check` compares them. */
static void
test_accuracy (void)
{
  g_autofree char *executed = shipped ("executed", "h200x2.csv");
  if (!has_gnuplot ())
    return;
  g_autoptr (SpCsv) csv = draw ("accuracy", (const char *[]){ "h200-1x2", executed, NULL });
  g_auto (Run) check = run_cli ("calibrate", "check", "h200-1x2", executed, "--tolerance", "100%", "--json");
  g_autoptr (JsonNode) json = parse_json (&check);
  JsonArray *runs = array (json, "runs");
  g_assert_cmpuint (csv->rows->len, ==, json_array_get_length (runs));
  for (guint i = 0; i < csv->rows->len; i++) {
    JsonNode *run = json_array_get_element (runs, i);
    double step = number (run, "predicted_step_time_s");
    g_assert_cmpfloat (fabs (value (csv, i, "predicted_step_time_s") - step), <=, 1e-8 * step);
    g_assert_cmpfloat (value (csv, i, "memory_bytes"), ==, number (run, "memory_bytes"));
  }
  g_auto (Run) alone = run_cli ("plot", "accuracy", "h200-1x2", "-o", "no.svg");
  assert_refused (&alone, 2, (const char *[]){ "PROFILE EXECUTED.csv", NULL });
}

/* No kernel is quicker than its card. */
static void
test_roofline (void)
{
  g_autofree char *measured = shipped ("measured", "h200x2.csv");
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw ("roofline", (const char *[]){ small, measured, NULL });
  guint priced = 0, timed = 0;
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *of = sp_csv_text (csv, row, column (csv, "of"));
    double rate = value (csv, row, "flops") / value (csv, row, "time_s");
    if (g_str_equal (of, "priced")) {
      g_assert_cmpfloat (rate, <=, value (csv, row, "peak_flops_per_s"));
      g_assert_cmpfloat (
          rate, <=, value (csv, row, "flops") / value (csv, row, "bytes") * value (csv, row, "memory_bytes_per_s"));
    }
    priced += g_str_equal (of, "priced");
    timed += g_str_equal (of, "measured");
  }
  g_assert_cmpuint (priced, >, 4);
  g_assert_cmpuint (timed, >, 20);
}

/* --- papers ------------------------------------------------------------------------------------------------------- */

#define RECOMPUTE "sequence-regions:recompute=false:none,true:none,false:selective,true:selective,false:full"
#define TWO "sequence-regions:recompute=true:selective,false:full"
#define RSA                                                                                                            \
  "nodes:tensor:ring:global-batch:micro-batch=16:2:1:128:16,32:4:1:256:32,16:1:2:128:16,32:1:4:256:32,64:1:8:512:64"

/* The figures that README shows, and how far ours is from theirs: `ours` over `theirs`, in all rows that are published,
 * between the two. Activations: ours are the whole model's at its peak, theirs the blocks' alone. */
static const struct {
  const char *name, *kind, *scenario, *published, *sweeps[3], *ours, *theirs;
  guint n;
  double least, most;
} papers[] = {
  /* clang-format off */
  { "megatron-sp-layer", "breakdown", "megatron-sp-22b.ini", "megatron-sp-22b-layer.csv", { "scope=layer", RECOMPUTE },
    "step_time_s", "undivided_s", 5, 0.99, 1.01 },
  { "megatron-sp-step", "breakdown", "megatron-sp-22b.ini", "megatron-sp-22b-step.csv", { TWO },
    "step_time_s", "undivided_s", 2, 0.97, 1 },
  { "megatron-sp-175b-step", "breakdown", "megatron-sp-175b.ini", "megatron-sp-175b-step.csv", { TWO },
    "step_time_s", "undivided_s", 2, 0.99, 1.02 },
  { "megatron-sp-memory", "memory", "megatron-sp-22b.ini", "megatron-sp-22b-memory.csv", { RECOMPUTE },
    "activations_bytes", "block_activations_bytes", 5, 0.995, 1.33 },
  { "megatron-sp-175b-memory", "memory", "megatron-sp-175b.ini", "megatron-sp-175b-memory.csv", { RECOMPUTE },
    "activations_bytes", "block_activations_bytes", 5, 0.995, 1.18 },
  { "usp-attention", "heatmap", "usp-attention.ini", "usp-attention.csv",
    { "ulysses:ring=8:1,4:2,2:4,1:8", "sequence=8K,32K,128K" }, "mfu_causal", "mfu_causal", 12, 1.4, 15 },
  { "rsa-scaling", "scaling", "rsa-scaling.ini", "rsa-scaling.csv", { RSA }, "peak_bytes", "peak_bytes", 5, 0.6, 0.75 },
  /* clang-format on */
};

/* The sweep's row that a row of others stands beside. */
static guint
row_beside (const SpCsv *csv, guint row)
{
  gint published = column (csv, "published"), n_keys = column (csv, "outcome");

  for (guint other = 0; other < csv->rows->len; other++) {
    g_autofree char *source = sp_csv_text (csv, other, published);
    gboolean same = *source == '\0';
    for (gint c = 0; same && c < n_keys; c++) {
      g_autofree char *theirs = sp_csv_text (csv, row, c), *ours = sp_csv_text (csv, other, c);
      same = g_str_equal (theirs, ours);
    }
    if (same)
      return other;
  }
  g_assert_not_reached ();
}

static void
test_paper (gconstpointer data)
{
  guint k = GPOINTER_TO_UINT (data), n = 0, compared = 0;
  g_autofree char *scenario = shipped ("papers", papers[k].scenario);
  g_autofree char *published = shipped ("papers", papers[k].published);
  const char *inputs[8] = { scenario, "--published", published };
  if (!has_gnuplot ())
    return;
  for (guint i = 0; papers[k].sweeps[i] != NULL; i++) {
    inputs[3 + n++] = "--sweep";
    inputs[3 + n++] = papers[k].sweeps[i];
  }
  g_autoptr (SpCsv) csv = draw (papers[k].kind, inputs);
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *source = sp_csv_text (csv, row, column (csv, "published"));
    if (*source == '\0')
      continue;
    double ratio = value (csv, row_beside (csv, row), papers[k].ours) / value (csv, row, papers[k].theirs);
    g_test_message ("row %u: %.4f", row, ratio);
    g_assert_cmpfloat (ratio, >=, papers[k].least);
    g_assert_cmpfloat (ratio, <=, papers[k].most);
    compared++;
  }
  g_assert_cmpuint (compared, ==, papers[k].n);
}

/* The longest sequence of each method that fits is the longest that is published of it. */
static void
test_lasp_comparison (void)
{
  static const char *const methods[] = { "lasp", "ulysses", "tensor" };
  g_autofree char *scenario = shipped ("papers", "lasp-comparison.ini");
  g_autofree char *published = shipped ("papers", "lasp-comparison.csv");
  if (!has_gnuplot ())
    return;
  g_autoptr (SpCsv) csv = draw ("scaling", (const char *[]){ scenario, "--published", published, "--sweep",
                                                             "lasp:ulysses:tensor:data=64:1:1:1,1:16:1:4,1:1:8:8",
                                                             "--sweep", "sequence=2K..4M*2", NULL });
  for (guint m = 0; m < G_N_ELEMENTS (methods); m++) {
    double longest[2] = { 0 };
    for (guint row = 0; row < csv->rows->len; row++) {
      g_autofree char *source = sp_csv_text (csv, row, column (csv, "published"));
      g_autofree char *outcome = sp_csv_text (csv, row, column (csv, "outcome"));
      double *most = &longest[*source != '\0'];
      if (g_str_equal (outcome, "fits") && value (csv, row, methods[m]) > 1)
        *most = MAX (*most, value (csv, row, "sequence_tokens"));
    }
    g_test_message ("%s: %.0f, published %.0f", methods[m], longest[0], longest[1]);
    g_assert_cmpfloat (longest[0], >, 0);
    g_assert_cmpfloat (longest[0], ==, longest[1]);
  }
}

/* --- what files say, and no rows ---------------------------------------------------------------------------------- */

static const struct {
  const char *kind, *scenario, *columns[3];
} drawn[] = {
  { "memory-time", small, { "model", "layout" } }, { "timeline", small, { "what", "stream", "model" } },
  { "volume", small, { "name", "model" } },        { "topology", small, { "from", "to", "model" } },
  { "roofline", small, { "name", "model" } },
};

static const char *const nasty[] = { "'; system('touch PWNED'); #", "`touch PWNED`", "\"; system(\"touch PWNED\"); #",
                                     "<script>alert(1)</script>", "{/Symbol a}_^%s%n\\n@a 100%" };

/* The CSV with other words in some columns. */
static void
write_nasty (const SpCsv *csv, const char *const *columns, const char *word)
{
  GString *all = g_string_new (NULL);
  g_autofree char *head = g_strjoinv (",", csv->columns);
  g_string_append_printf (all, "%s\n", head);
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autoptr (GString) line = g_string_new (NULL);
    for (guint c = 0; c < csv->n_columns; c++) {
      g_autofree char *cell = sp_csv_text (csv, row, (gint) c);
      gboolean changed = g_strv_contains (columns, csv->columns[c]) && *cell != '\0';
      sp_csv_append (line, changed ? word : cell);
    }
    g_string_append_printf (all, "%s\n", line->str);
  }
  write_file ("nasty.csv", all->str, (gssize) all->len);
  g_string_free (all, TRUE);
}

static void
test_injection (gconstpointer data)
{
  guint k = GPOINTER_TO_UINT (data);
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw (drawn[k].kind, (const char *[]){ drawn[k].scenario, NULL });
  const char *columns[4] = { drawn[k].columns[0], drawn[k].columns[1], drawn[k].columns[2], NULL };
  for (guint i = 0; i < G_N_ELEMENTS (nasty); i++) {
    write_nasty (csv, columns, nasty[i]);
    g_auto (Run) run = run_cli ("plot", drawn[k].kind, "nasty.csv", "-o", "nasty.svg");
    g_assert_cmpstr (run.err, ==, "");
    g_assert_cmpint (run.status, ==, 0);
    g_autofree char *svg = read_back ("nasty.svg", NULL);
    g_assert_null (strstr (svg, "<script"));
    g_assert_false (is_there ("PWNED"));
  }
}

static void
test_no_rows (gconstpointer data)
{
  guint k = GPOINTER_TO_UINT (data);
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autoptr (SpCsv) csv = draw (drawn[k].kind, (const char *[]){ drawn[k].scenario, NULL });
  g_autofree char *head = g_strjoinv (",", csv->columns), *line = g_strconcat (head, "\n", NULL);
  write_file ("head.csv", line, -1);
  g_auto (Run) none = run_cli ("plot", drawn[k].kind, "head.csv", "-o", "no.svg");
  assert_refused (&none, 1, (const char *[]){ "head.csv", NULL });
  write_file ("other.csv", "a,b\n1,2\n", -1);
  g_auto (Run) other = run_cli ("plot", drawn[k].kind, "other.csv", "-o", "no.svg");
  assert_refused (&other, 1, (const char *[]){ "other.csv", "has no column", NULL });
  g_auto (Run) text = run_cli ("plot", drawn[k].kind, "figure.csv", "-o", "-");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "small");
  g_assert_false (is_there ("no.svg"));
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/figures/memory-time", test_memory_time);
  g_test_add_func ("/figures/timeline", test_timeline);
  g_test_add_func ("/figures/volume", test_volume);
  g_test_add_func ("/figures/topology", test_topology);
  g_test_add_func ("/figures/too-many-gpus", test_too_many_gpus);
  g_test_add_func ("/figures/alone", test_alone);
  g_test_add_func ("/figures/calibration", test_calibration);
  g_test_add_func ("/figures/idle-keys", test_idle_keys);
  g_test_add_func ("/figures/accuracy", test_accuracy);
  g_test_add_func ("/figures/roofline", test_roofline);
  for (guint k = 0; k < G_N_ELEMENTS (papers); k++) {
    g_autofree char *name = g_strdup_printf ("/figures/papers/%s", papers[k].name);
    g_test_add_data_func (name, GUINT_TO_POINTER (k), test_paper);
  }
  g_test_add_func ("/figures/papers/lasp-comparison", test_lasp_comparison);
  for (guint k = 0; k < G_N_ELEMENTS (drawn); k++) {
    g_autofree char *injection = g_strdup_printf ("/figures/injection/%s", drawn[k].kind);
    g_autofree char *rows = g_strdup_printf ("/figures/no-rows/%s", drawn[k].kind);
    g_test_add_data_func (injection, GUINT_TO_POINTER (k), test_injection);
    g_test_add_data_func (rows, GUINT_TO_POINTER (k), test_no_rows);
  }
  int status = g_test_run ();
  remove_folder ();
  return status;
}
