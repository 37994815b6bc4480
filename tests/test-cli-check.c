/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate fit, then check, on what two H200 gave: curves of sweeps and kernels alone, which are those shipped,
 * and 34 runs that they know nothing of. */
#include "tests/cli-run.h"

#include <math.h>

static char *
shipped (const char *folder_name, const char *name)
{
  return g_build_filename (g_getenv ("SEQPAR_DATA"), folder_name, name, NULL);
}

static double
number_of (JsonObject *object, const char *name)
{
  return json_object_get_double_member (object, name);
}

/* Fits `files` of measured/; what comes out, in `name`, is the shipped profile. FALSE, and skipped: without GSL. */
static gboolean
fit_as_shipped (const char *const *files, const char *title, const char *name, const char *profile)
{
  const char *const options[] = { "--name", title, "-o", name };
  g_autoptr (GPtrArray) args = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *path = shipped ("profiles", profile), *made = NULL, *expected = NULL;
  g_autofree char *written = g_build_filename (folder, name, NULL);

  g_ptr_array_add (args, g_strdup ("calibrate"));
  g_ptr_array_add (args, g_strdup ("fit"));
  for (guint i = 0; files[i] != NULL; i++)
    g_ptr_array_add (args, shipped ("measured", files[i]));
  for (guint i = 0; i < G_N_ELEMENTS (options); i++)
    g_ptr_array_add (args, g_strdup (options[i]));
  g_ptr_array_add (args, NULL);
  g_auto (Run) fit = run_args ((const char *const *) args->pdata);
  if (fit.status == 1 && strstr (fit.err, "GSL") != NULL) {
    g_test_skip ("built without GSL");
    return FALSE;
  }
  g_assert_cmpint (fit.status, ==, 0);
  g_assert_true (g_file_get_contents (written, &made, NULL, NULL));
  g_assert_true (g_file_get_contents (path, &expected, NULL, NULL));
  assert_same_profile (made, expected);
  return TRUE;
}

/* What is said of as many runs, within the tolerance (NULL: 5 % in the median, and three times that). The parser's. */
static JsonObject *
check_runs (JsonParser *parser, const char *profile, const char *executed, const char *tolerance, guint n)
{
  g_autofree char *path = shipped ("executed", executed);
  g_autoptr (GError) error = NULL;

  g_auto (Run) check =
      run_cli ("calibrate", "check", profile, path, "--json", tolerance != NULL ? "--tolerance" : NULL, tolerance);
  g_assert_cmpint (check.status, ==, 0);
  json_parser_load_from_data (parser, check.out, -1, &error);
  g_assert_no_error (error);
  JsonObject *all = json_node_get_object (json_parser_get_root (parser));
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (all, "runs")), ==, n);
  return all;
}

/* Bytes of each of them, and the memory of all to 2 %, as the project wants it. */
static void
assert_bytes_and_memory (JsonObject *all)
{
  JsonArray *runs = json_object_get_array_member (all, "runs");

  for (guint i = 0; i < json_array_get_length (runs); i++)
    g_assert_true (json_object_get_boolean_member (json_array_get_object_element (runs, i), "bytes_agree"));
  g_assert_cmpfloat (number_of (all, "memory_worst_error"), <=, 0.02);
}

/* What the project wants is 5 % in the median and 15 % at worst of the step, 2 % of memory. */
static void
test_chain (void)
{
  static const char *const files[] = { "h200x2-sweep.csv", "h200-kernels.csv",    "h200x2-steps.csv",
                                       "h200x2-hops.csv",  "h200x2-in-steps.csv", NULL };
  g_autofree char *executed = shipped ("executed", "h200x2.csv");
  g_autoptr (JsonParser) parser = json_parser_new ();
  guint agree = 0;

  if (!fit_as_shipped (files, "2 H200 of one node", "h200.ini", "h200-1x2.ini"))
    return;
  g_auto (Run) beyond = run_cli ("calibrate", "check", "h200-1x2", executed, "--tolerance", "1%");
  g_assert_cmpint (beyond.status, ==, 3);
  assert_contains (beyond.out, "step time: median error");
  assert_contains (beyond.err, "beyond the tolerance of 1 %");

  JsonObject *all = check_runs (parser, "h200.ini", "h200x2.csv", NULL, 34);
  JsonArray *runs = json_object_get_array_member (all, "runs");
  assert_bytes_and_memory (all);
  for (guint i = 0; i < json_array_get_length (runs); i++) {
    JsonObject *run = json_array_get_object_element (runs, i);
    /* Measured at 0.72 to 1 of the highest clock. */
    g_assert_cmpfloat (fabs (number_of (run, "predicted_clock") / number_of (run, "clock") - 1), <, 0.1);
  }
  g_test_message ("step %.1f %% in the median, %.1f %% at worst; memory %.1f %%, %.1f %%",
                  100 * number_of (all, "time_median_error"), 100 * number_of (all, "time_worst_error"),
                  100 * number_of (all, "memory_median_error"), 100 * number_of (all, "memory_worst_error"));
  g_assert_cmpfloat (number_of (all, "time_median_error"), <=, 0.05);
  g_assert_cmpfloat (number_of (all, "time_worst_error"), <=, 0.15);
  /* Cards of another machine ran at clocks 2 % lower in the middle, 8 % at most, which no curve knows, but the cards' part
   * does: 95 % are wanted, of 34 two or three may lie outside. */
  g_assert_cmpint (json_object_get_int_member (all, "inside_interval"), >=, 31);
  g_assert_cmpint (json_object_get_int_member (all, "inside_interval_of_curves"), >=, 12);
  /* Of the 30 that communicate; why not more: calibrate/README.md. */
  for (guint i = 0; i < json_array_get_length (runs); i++) {
    JsonObject *run = json_array_get_object_element (runs, i);
    agree +=
        json_object_get_double_member (run, "exposed_s") > 0 && json_object_get_boolean_member (run, "exposed_agrees");
  }
  g_test_message ("exposed communication agrees in %u", agree);
  g_assert_cmpuint (agree, >=, 22);
  g_assert_cmpint (json_object_get_int_member (all, "inside_interval"), <=, 34);

  /* A profile of another card is no error, but said. Its name is found from where the command runs. */
  g_autofree char *scenario = shipped ("executed", "s1b-8k-ulysses2-zero1.ini");
  g_auto (Run) said = run_cli ("run", scenario, "--set", "profile=h200.ini");
  g_assert_cmpint (said.status, ==, 0);
  assert_contains (said.out, "those of NVIDIA H200 (measured); the cluster's GPUs are H200 SXM 141GB");
}

/* The same programs on two other cards, which nothing was fitted to or chosen by: what is wanted of the step, and 95 % in
 * the interval, of 30 two may lie outside. */
static void
test_later (void)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *all = check_runs (parser, "h200-1x2", "h200x2-later.csv", NULL, 30);

  assert_bytes_and_memory (all);
  g_assert_cmpint (json_object_get_int_member (all, "inside_interval"), >=, 28);
}

/* And on two more, whose waits were split: of the 30 that communicate the transfers' own part is within a tenth or 50 us in
 * 27; what misses: calibrate/README.md. Where cards and work are alike, as in none of the pipelines and not in the contiguous
 * ring, lateness is a small part of the step. */
static void
test_apart (void)
{
  g_autofree char *executed = shipped ("executed", "h200x2-apart.csv");
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *all = check_runs (parser, "h200-1x2", "h200x2-apart.csv", NULL, 32);
  JsonArray *runs = json_object_get_array_member (all, "runs");
  guint agree = 0, said = 0;

  assert_bytes_and_memory (all);
  for (guint i = 0; i < json_array_get_length (runs); i++) {
    JsonObject *run = json_array_get_object_element (runs, i);
    const char *program = json_object_get_string_member (run, "program");
    double own_s = number_of (run, "exposed_transfer_s"), waited_s = number_of (run, "exposed_s");
    gboolean unequal = strstr (program, "pipeline") != NULL || strstr (program, "contiguous") != NULL;
    if (waited_s == 0)
      continue;
    g_assert_cmpfloat (own_s, >, 0);
    if (!unequal)
      g_assert_cmpfloat (waited_s - own_s, <, 0.02 * number_of (run, "step_time_s"));
    agree += json_object_get_boolean_member (run, "exposed_agrees");
    said++;
  }
  g_test_message ("own parts agree in %u of %u", agree, said);
  g_assert_cmpuint (said, ==, 30);
  g_assert_cmpuint (agree, >=, 27);
  g_assert_cmpint (json_object_get_int_member (all, "inside_interval"), >=, 30);
  g_auto (Run) text = run_cli ("calibrate", "check", "h200-1x2", executed);
  assert_contains (text.out, "exposed communication, of a GPU in the mean: within 10 % or 50 us in ");
  assert_contains (text.out, "waits for ranks that came late, of the step: median ");
}

/* Four H200 of another day: transfers of groups of two and four, kernels of the pair, and 29 runs of one axis and of
 * several. What is wanted is 5 % in the median of the step, 2 % of memory. */
static void
test_four (void)
{
  static const char *const files[] = { "h200x4.csv", "h200x2-kernels.csv", NULL };
  g_autoptr (JsonParser) parser = json_parser_new ();

  if (fit_as_shipped (files, "4 H200 of one node", "four.ini", "h200-1x4.ini"))
    assert_bytes_and_memory (check_runs (parser, "four.ini", "h200x4.csv", NULL, 29));
}

/* The pair's runs with transfers of another day, which no run was executed beside: how far a profile carries. */
static void
check_another_day (const char *profile)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *all = check_runs (parser, profile, "h200x2.csv", "5%", 34);

  g_assert_cmpfloat (number_of (all, "time_worst_error"), <=, 0.1);
}

/* One H200 by itself, 16 runs of another card and day: at clocks of 0.75 to 1 of the highest, 5 % at worst. */
static void
test_one (void)
{
  static const char *const files[] = { "h200x2.csv", "h200-kernels.csv", "h200x2-beside.csv", NULL };
  g_autoptr (JsonParser) parser = json_parser_new ();

  if (!fit_as_shipped (files, "H200, later kernels", "one.ini", "h200.ini"))
    return;
  JsonObject *all = check_runs (parser, "one.ini", "one/h200.csv", "4%", 16);
  g_assert_cmpfloat (number_of (all, "memory_worst_error"), <=, 0.02);
  g_assert_cmpfloat (number_of (all, "time_worst_error"), <=, 0.06);
  check_another_day ("one.ini");
}

/* The profile of four has seqpar's attention alone, so runs with another's are refused; where there is no attention in
 * them, they are not. */
static void
test_attention (void)
{
  static const char *const cudnn[] = { "softmax attention of its runs is cudnn",
                                       "the profile 4 H200 of one node has timed seqpar alone",
                                       "seqpar-measure kernels", NULL };
  static const char *const both[] = { "the quicker of seqpar and cudnn", "execute with --attention seqpar", NULL };
  g_autofree char *executed = shipped ("executed", "h200x4.csv"), *scenarios = shipped ("executed", "."), *text = NULL;
  g_autofree char *path = g_build_filename (folder, "other.csv", NULL);

  g_assert_true (g_file_get_contents (executed, &text, NULL, NULL));
  const char *behind = strchr (text, '\n') + 1;
  g_autofree char *of_cudnn = g_strconcat ("# seqpar-executed: 1\n# attention: cudnn\n", behind, NULL);
  g_assert_true (g_file_set_contents (path, of_cudnn, -1, NULL));
  g_auto (Run) other = run_cli ("calibrate", "check", "h200-1x4", path, "--scenarios", scenarios);
  assert_refused (&other, 1, cudnn);
  g_autofree char *quickest = g_strconcat ("# seqpar-executed: 1\n# attention: quickest\n", behind, NULL);
  g_assert_true (g_file_set_contents (path, quickest, -1, NULL));
  g_auto (Run) quick = run_cli ("calibrate", "check", "h200-1x4", path, "--scenarios", scenarios);
  assert_refused (&quick, 1, both);
  g_autoptr (GString) linear = g_string_new ("# seqpar-executed: 1\n# attention: cudnn\n");
  g_auto (GStrv) lines = g_strsplit (behind, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    if (g_str_has_prefix (lines[i], "program,") || g_str_has_prefix (lines[i], "l350m-16k-lasp4-v2-zero1"))
      g_string_append_printf (linear, "%s\n", lines[i]);
  g_assert_true (g_file_set_contents (path, linear->str, -1, NULL));
  g_auto (Run) without =
      run_cli ("calibrate", "check", "h200-1x4", path, "--scenarios", scenarios, "--tolerance", "50%");
  g_assert_cmpint (without.status, ==, 0);
}

/* One run of the pair whose waits were split, without the rows that have `without` in them, and with `more`. */
static Run
check_part (const char *without, const char *more, gboolean json)
{
  static const char program[] = "l350m-16k-lasp2-v1-zero1.prog,";
  g_autofree char *executed = shipped ("executed", "h200x2-apart.csv"), *scenarios = shipped ("executed", "."),
                  *all = NULL;
  g_autofree char *path = g_build_filename (folder, "part.csv", NULL);
  g_autoptr (GString) part = g_string_new (NULL);

  g_assert_true (g_file_get_contents (executed, &all, NULL, NULL));
  g_auto (GStrv) lines = g_strsplit (all, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    gboolean head = lines[i][0] == '#' || g_str_has_prefix (lines[i], "program,");
    if ((head || g_str_has_prefix (lines[i], program)) && (without == NULL || strstr (lines[i], without) == NULL))
      g_string_append_printf (part, "%s\n", lines[i]);
  }
  if (more != NULL)
    g_string_append_printf (part, "%s%s\n", program, more);
  g_assert_true (g_file_set_contents (path, part->str, -1, NULL));
  return run_cli ("calibrate", "check", "h200-1x2", path, "--scenarios", scenarios, "--tolerance", "50%",
                  json ? "--json" : "--ops");
}

/* What a file does not say of a run is null, and no number is made of it. */
static void
test_not_said (void)
{
  g_auto (Run) whole = check_part (NULL, NULL, FALSE), memory = check_part (",memory,", NULL, TRUE);
  g_auto (Run) text = check_part (",memory,", NULL, FALSE), waits = check_part (",exposed", NULL, TRUE);
  g_auto (Run) half = check_part (".prog,1,exposed-transfer,", NULL, TRUE);
  const Run *const all[] = { &whole, &memory, &text, &waits, &half };

  for (guint i = 0; i < G_N_ELEMENTS (all); i++)
    g_assert_cmpint (all[i]->status, ==, 0);
  assert_contains (whole.out, "memory: median error");
  assert_contains (whole.out, "waits for ranks that came late");
  assert_contains (memory.out, "\"memory_worst_error\" : null");
  assert_contains (memory.out, "\"memory_bytes\" : null");
  assert_contains (text.out, "not said");
  g_assert_null (strstr (text.out, "memory: median error"));
  assert_contains (waits.out, "\"exposed_s\" : null");
  assert_contains (waits.out, "\"exposed_agrees\" : null");
  assert_contains (half.out, "\"exposed_transfer_s\" : null"); /* a mean of one rank is none of both */
  g_assert_null (strstr (half.out, "\"exposed_s\" : null"));
}

static void
test_other_run (void)
{
  static const char *const few[] = { "l350m-16k-lasp2-v1-zero1.prog: rank 0 ran 0 times gemm, expected ", NULL };
  static const char *const more[] = { "has a rank 7, and its scenario 2 GPUs", NULL };

  g_auto (Run) no_ops = check_part (",op,", NULL, FALSE);
  assert_refused (&no_ops, 1, few);
  g_auto (Run) rank = check_part (NULL, "7,exposed,,,,0,,,0,,,,,,0,0,0,0.001,,,,", FALSE);
  assert_refused (&rank, 1, more);
}

static void
test_wrong (void)
{
  static const char *const no_file[] = { "nowhere.csv", NULL }, *const percent[] = { "--tolerance", "5%", NULL };
  static const char *const missing[] = { "EXECUTED.csv", NULL }, *const other[] = { "the first argument", NULL };
  g_autofree char *executed = shipped ("executed", "h200x2.csv");

  g_auto (Run) none = run_cli ("calibrate", "check", "h200.ini", "nowhere.csv");
  assert_refused (&none, 1, no_file);
  g_auto (Run) tolerance = run_cli ("calibrate", "check", "h200.ini", executed, "--tolerance", "5");
  assert_refused (&tolerance, 2, percent);
  g_auto (Run) two = run_cli ("calibrate", "check", "h200.ini", executed, "--set", "cluster.profile=h100-1x2");
  assert_refused (&two, 2, other);
  g_auto (Run) one = run_cli ("calibrate", "check", "h200.ini");
  assert_refused (&one, 2, missing);
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-check/later", test_later);
  g_test_add_func ("/cli-check/apart", test_apart);
  g_test_add_func ("/cli-check/four", test_four);
  g_test_add_func ("/cli-check/one", test_one);
  g_test_add_func ("/cli-check/chain", test_chain);
  g_test_add_func ("/cli-check/attention", test_attention);
  g_test_add_func ("/cli-check/not-said", test_not_said);
  g_test_add_func ("/cli-check/other-run", test_other_run);
  g_test_add_func ("/cli-check/wrong", test_wrong);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
