/* SPDX-License-Identifier: Apache-2.0 */
/* Shipped sets that others have no test of: bounds that are kept, and reasons that are about little else than what they
 * explain. */
#include "calibrate/validate/validation.h"
#include "tests/cli-run.h"
#include "tests/shipped.h"

static void
test_within_bounds (gconstpointer set)
{
  g_auto (Run) run = run_cli ("validate", set, "--strict");

  g_test_message ("%s%s", run.out, run.err);
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, set);
}

/* --- reasons ------------------------------------------------------------------------------------------------------ */

#define LEAST 0.4 /* of the runs that a reason holds for, how many at least miss */

static SpValidation *
priced (const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_validation (name, &error);
  g_assert_no_error (error);
  SpValidation *v = sp_validation_load (path, &error);
  g_assert_no_error (error);
  g_assert_true (sp_validation_price (v, NULL, NULL, &error));
  g_assert_no_error (error);
  return v;
}

typedef struct {
  guint holds, beyond;
} Reason;

/* Each run that misses has a reason of its kind, and a reason is of few others. */
static void
test_reasons (gconstpointer name)
{
  g_autoptr (SpValidation) v = priced (name);
  g_autoptr (GHashTable) reasons = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, g_free);
  GHashTableIter iter;
  gpointer text, value;

  for (guint r = 0; r < v->runs->len; r++) {
    const SpMeasuredRun *run = v->runs->pdata[r];
    for (guint i = 0; i < SP_N_OBSERVED; i++) {
      const char *why = run->why[sp_observed_rows[i].aspect];
      gboolean beyond = sp_run_is_beyond (v, run, (SpObserved) i);
      if (run->is_fitted || !sp_run_counts (v, run, (SpObserved) i))
        continue;
      if (beyond && why == NULL)
        g_error ("%s: row %u misses in %s, and no reason holds for it", v->name, run->row + 1,
                 sp_observed_rows[i].name);
      if (why == NULL)
        continue;
      Reason *reason = g_hash_table_lookup (reasons, why);
      if (reason == NULL)
        g_hash_table_insert (reasons, (gpointer) why, reason = g_new0 (Reason, 1));
      reason->holds++;
      reason->beyond += beyond;
    }
  }
  g_hash_table_iter_init (&iter, reasons);
  while (g_hash_table_iter_next (&iter, &text, &value)) {
    const Reason *reason = value;
    g_test_message ("%u of %u: %s", reason->beyond, reason->holds, (const char *) text);
    g_assert_cmpfloat (reason->beyond, >=, LEAST * reason->holds);
  }
}

/* --- what is exchanged -------------------------------------------------------------------------------------------- */

/* flash-linear-attention's pull request 691: ranks x heads x K x (K + V), 4 x 64 x 128 x 256 in fp32, whatever the
 * length, in one gather. */
static void
test_states (void)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "papers", "fla-context.ini", NULL);
  static const char *const lengths[] = { "sequence=32K", "sequence=64K" };

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_auto (Run) run = run_cli ("run", path, "--set", "scope=attention-forward", "--set", lengths[i], "--json");
    g_autoptr (JsonNode) root = parse_json (&run);
    JsonNode *lasp = member (member (member (root, "communication"), "by_axis"), "lasp");
    g_assert_cmpfloat (number (member (lasp, "payload_bytes_per_gpu"), "max"), ==, 4.0 * 64 * 128 * 256 * 4);
    g_assert_cmpfloat (number (lasp, "messages"), ==, 1);
  }
}

int
main (int argc, char **argv)
{
  static const char *const kept[] = { "burst",         "fla-context",  "flux",     "fpdt",
                                      "l20-attention", "megatron-70b", "terapipe", "usp-bars" };
  static const char *const explained[] = { "burst",         "lasp-scalability", "llm-foundry",      "ptd-p",
                                           "terapipe",      "torchtitan",       "ulysses",          "vtrain",
                                           "xtuner",        "easycontext",      "megatron-sp-step", "flux",
                                           "l20-attention", "lasp-comparison",  "usp-attention",    "usp-bars" };

  if (!begin_cli (&argc, &argv))
    return 0;
  g_auto (Run) built = run_cli ("validate", "burst");
  if (built.status == 1 && strstr (built.err, "GSL") != NULL) {
    g_print ("1..0 # SKIP built without GSL\n");
    return 0;
  }
  for (guint i = 0; i < G_N_ELEMENTS (kept); i++) {
    g_autofree char *path = g_strconcat ("/validation-sets/kept/", kept[i], NULL);
    g_test_add_data_func (path, kept[i], test_within_bounds);
  }
  for (guint i = 0; i < G_N_ELEMENTS (explained); i++) {
    g_autofree char *path = g_strconcat ("/validation-sets/reasons/", explained[i], NULL);
    g_test_add_data_func (path, explained[i], test_reasons);
  }
  g_test_add_func ("/validation-sets/states", test_states);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
