/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate steps: its table, its JSON, and what it refuses. How far off it is: test-pytorch-steps.c. */
#include "tests/cli-run.h"

static char *csv, *scenarios;

static void
test_table (void)
{
  g_auto (Run) run = run_cli ("calibrate", "steps", csv, scenarios);
  g_assert_cmpint (run.status, ==, 0);
  g_assert_nonnull (strstr (run.out, "mode  tokens"));
  g_assert_nonnull (strstr (run.out, "\nfsdp  32768 x 1             out of memory"));
  g_assert_nonnull (strstr (run.out, "\ncp    32768 x 1, recompute        1.008 s"));
  g_assert_null (strstr (run.out, "fitted to"));
}

static void
test_held_out (void)
{
  g_auto (Run) run = run_cli ("calibrate", "steps", csv, scenarios, "--hold-out");
  if (run.status == 1 && strstr (run.err, "GSL") != NULL) {
    g_test_skip ("built without GSL");
    return;
  }
  g_assert_cmpint (run.status, ==, 0);
  g_assert_nonnull (strstr (run.out, "without fsdp, 10 steps  host-launch"));
  g_assert_nonnull (strstr (run.out, "without ddp, 17 steps"));
  g_assert_nonnull (strstr (run.out, "without cp, 15 steps"));
  g_assert_nonnull (strstr (run.out, "all 21 steps"));
  g_assert_null (strstr (run.out, "predicted device"));
  g_assert_null (strstr (run.out, "predicted host"));
  g_assert_null (strstr (run.out, "predicted to fit"));
}

static void
test_json (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (Run) run = run_cli ("calibrate", "steps", csv, scenarios, "--json", "--set", "ring-split=contiguous");
  g_assert_cmpint (run.status, ==, 1); /* of which two of three have no ring */
  g_assert_nonnull (strstr (run.err, "has no effect"));
  g_auto (Run) good = run_cli ("calibrate", "steps", csv, scenarios, "--json", "--set", "profile=h100-1x2");
  g_assert_cmpint (good.status, ==, 0);
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_assert_true (json_parser_load_from_data (parser, good.out, -1, &error));
  g_assert_no_error (error);
  JsonObject *root = json_node_get_object (json_parser_get_root (parser));
  g_assert_cmpuint (json_array_get_length (json_object_get_array_member (root, "fits")), ==, 0);
  JsonArray *steps = json_object_get_array_member (root, "steps");
  g_assert_cmpuint (json_array_get_length (steps), ==, 24);
  JsonObject *first = json_array_get_object_element (steps, 0);
  g_assert_cmpstr (json_object_get_string_member (first, "mode"), ==, "fsdp");
  g_assert_cmpfloat (json_object_get_double_member (first, "step_time_s"), ==, 0.15984);
  g_assert_cmpint (json_object_get_int_member (first, "allocated_bytes"), ==, (gint64) 15681 << 20);
  g_assert_true (json_object_get_boolean_member (first, "predicted_host_bound"));
}

/* A step's own JSON and text say what bounds it. */
static void
test_run (void)
{
  g_autofree char *scenario = g_build_filename (scenarios, "fsdp.ini", NULL);
  g_auto (Run) host = run_cli ("run", scenario, "--set", "sequence=2K");
  g_assert_cmpint (host.status, ==, 0);
  g_assert_nonnull (strstr (host.out, "bound by the host, which needs 156."));
  g_auto (Run) device = run_cli ("run", scenario, "--set", "sequence=16K");
  g_assert_null (strstr (device.out, "bound by the host"));
  g_auto (Run) json = run_cli ("run", scenario, "--json");
  g_assert_nonnull (strstr (json.out, "\"host_bound\" : false"));
  g_auto (Run) why = run_cli ("run", scenario, "--why");
  g_assert_nonnull (strstr (why.out, "elementwise time"));
  g_assert_nonnull (strstr (why.out, "bound by the GPUs"));
}

static void
test_refused (void)
{
  g_auto (Run) one = run_cli ("calibrate", "steps", csv);
  g_assert_cmpint (one.status, ==, 2);
  g_auto (Run) none = run_cli ("calibrate", "steps", "nowhere.csv", scenarios);
  g_assert_cmpint (none.status, ==, 1);
  g_assert_nonnull (strstr (none.err, "nowhere.csv"));
  g_auto (Run) nowhere = run_cli ("calibrate", "steps", csv, "nowhere");
  g_assert_cmpint (nowhere.status, ==, 1);
  g_assert_nonnull (strstr (nowhere.err, "h100x2-pytorch-steps.csv:7: "));
  g_assert_cmpstr (nowhere.out, ==, "");
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  csv = g_build_filename (g_getenv ("SEQPAR_DATA"), "measured", "h100x2-pytorch-steps.csv", NULL);
  scenarios = g_build_filename (g_getenv ("SEQPAR_DATA"), "pytorch", NULL);
  g_test_add_func ("/cli-steps/table", test_table);
  g_test_add_func ("/cli-steps/held-out", test_held_out);
  g_test_add_func ("/cli-steps/json", test_json);
  g_test_add_func ("/cli-steps/run", test_run);
  g_test_add_func ("/cli-steps/refused", test_refused);
  int status = g_test_run ();
  g_free (csv);
  g_free (scenarios);
  remove_folder ();
  return status;
}
