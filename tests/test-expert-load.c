/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"
#include "models/writer.h"

#include <math.h>
#include <string.h>

/* What uneven loads of experts and buffers with a capacity do to the estimate. */

/* Mixtral (8 experts, 2 a token) on 16 GPUs: 32K tokens over 4 ranks are 8192 on each, 2048 for each expert. */
#define MIXTRAL "ulysses=4", "ring=1", "data=4", "sequence=32K"

static SpScenario *
load (const char *expert, const char *imbalance, const char *capacity)
{
  g_autofree char *path = g_build_filename (g_getenv ("SEQPAR_DATA"), "llama-3.1-8b-208k.ini", NULL);
  g_autofree char *model = g_strconcat ("config=", g_getenv ("SEQPAR_DATA"), "/models/mixtral-8x7b.json", NULL);
  g_autofree char *ranks = g_strconcat ("expert=", expert, NULL);
  g_autofree char *rows = g_strconcat ("expert-capacity=", capacity, NULL);
  const char *const sets[] = { MIXTRAL, model, ranks, rows, NULL };
  g_autoptr (GError) error = NULL;
  SpScenario *scenario = sp_scenario_load (path, sets, &error);

  g_assert_no_error (error);
  scenario->run.expert_imbalance = g_ascii_strtod (imbalance, NULL); /* which --set refuses where it is nothing */
  sp_layout_check (&scenario->layout, scenario->arch, scenario->framework, &scenario->run, 16, &error);
  g_assert_no_error (error);
  return scenario;
}

/* Of P ranks one has I times the mean, each other one (P - I) / (P - 1); what is beyond the room is dropped.
 *    room 0.5, all alike                  0.5
 *    room 1.25, 4 ranks, 1.5              (1.5 - 1.25) / 4 = 0.0625
 *    room 0.5, 4 ranks, 1.5               (1 + 3 x (2.5 / 3 - 0.5)) / 4 = 0.5
 *    room 1, 4 ranks, all tokens to one   (4 - 1) / 4 = 0.75
 *    room 1.5, 1.5                        0
 *    room 1, 2 ranks, 4 is 2              (2 - 1) / 2 = 0.5
 *    room 1, all experts on each rank     0: it has its own tokens, whatever they ask for
 *    room 0.0002 is 0.41 of 2048 rows, so 1 row: 1 - 1 / 2048 */
static void
test_dropped (void)
{
  static const struct {
    const char *expert, *imbalance, *capacity;
    double dropped;
  } cases[] = {
    { "4", "1", "0.5", 0.5 }, { "4", "1.5", "1.25", 0.0625 }, { "4", "1.5", "0.5", 0.5 },
    { "4", "4", "1", 0.75 },  { "4", "1.5", "1.5", 0 },       { "2", "4", "1", 0.5 },
    { "1", "1.5", "1", 0 },   { "4", "1", "none", 0 },        { "4", "3", "none", 0 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpScenario) s = load (cases[i].expert, cases[i].imbalance, cases[i].capacity);
    double dropped = sp_layout_expert_dropped (&s->layout, s->arch, &s->run);
    g_test_message ("expert %s, imbalance %s, capacity %s: %.6f", cases[i].expert, cases[i].imbalance,
                    cases[i].capacity, dropped);
    g_assert_cmpfloat_with_epsilon (dropped, cases[i].dropped, 1e-12);
  }
  g_autoptr (SpScenario) s = load ("4", "1", "1");
  s->layout.expert_capacity = 0.0002;
  g_assert_cmpfloat_with_epsilon (sp_layout_expert_dropped (&s->layout, s->arch, &s->run), 1 - 1.0 / 2048, 1e-12);
}

static void
estimate (const SpScenario *s, SpMfuConvention convention, SpEstimate *ret, GPtrArray **ret_notes)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;

  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, convention);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, ret);
  *ret_notes = sp_estimate_notes (&estimator, &s->layout, &s->run);
}

static gboolean
has_note (const GPtrArray *notes, const char *words)
{
  for (guint i = 0; i < notes->len; i++)
    if (strstr (notes->pdata[i], words) != NULL)
      return TRUE;
  return FALSE;
}

/* MFU x step is the model FLOP: with half of the choices dropped it lacks 6 FLOP x 0.5 of the parameters of 2 experts of
 * 3 x 4096 x 14336, in 32 layers; Megatron-LM's convention counts them. A note says so, and none where all is kept. */
static void
test_mfu (void)
{
  g_autoptr (SpScenario) half = load ("4", "1", "0.5"), all = load ("4", "1", "1");
  g_autoptr (GPtrArray) half_notes = NULL, all_notes = NULL, megatron_notes = NULL;
  SpEstimate h, a, m;

  estimate (half, SP_MFU_SEQPAR, &h, &half_notes);
  estimate (all, SP_MFU_SEQPAR, &a, &all_notes);
  estimate (half, SP_MFU_MEGATRON, &m, &megatron_notes);
  double less = 6 * 0.5 * 2 * 3 * 4096.0 * 14336 * 32, full, causal;
  sp_model_flops (all->arch, &all->run, SP_MFU_SEQPAR, &full, &causal);
  g_assert_cmpfloat_with_epsilon (h.mfu * h.step_time_s / (a.mfu * a.step_time_s), 1 - less / full, 1e-12);
  g_assert_cmpfloat_with_epsilon (h.mfu_causal * h.step_time_s / (a.mfu_causal * a.step_time_s), 1 - less / causal,
                                  1e-12);
  g_assert_cmpfloat_with_epsilon (m.mfu * m.step_time_s / (a.mfu * a.step_time_s), 1, 1e-12);
  g_assert_true (has_note (half_notes, "50.0 % are dropped") && has_note (half_notes, "the others alone"));
  g_assert_true (has_note (megatron_notes, "50.0 % are dropped") && !has_note (megatron_notes, "the others alone"));
  g_assert_false (has_note (all_notes, "dropped"));
}

/* No bound falls as one rank gets more to do, and beyond all tokens there is nothing more: 2 ranks have at most 2 times
 * the mean, which a note says. */
static void
test_bounds (void)
{
  static const char *const experts[] = { "1", "2", "4", "8" };
  static const char *const loads[] = { "1", "1.1", "1.25", "1.5", "2", "3", "4" };

  for (guint i = 0; i < G_N_ELEMENTS (experts); i++) {
    SpEstimate before = { 0 };
    for (guint j = 0; j < G_N_ELEMENTS (loads); j++) {
      g_autoptr (SpScenario) s = load (experts[i], loads[j], "none");
      g_autoptr (GPtrArray) notes = NULL;
      SpEstimate e;
      estimate (s, SP_MFU_SEQPAR, &e, &notes);
      gboolean beyond = i < 2 && j > (i == 0 ? 0 : 4);
      g_test_message ("expert %s, imbalance %s: low %.4f, step %.4f, serial %.4f, high %.4f s", experts[i], loads[j],
                      e.low_s, e.step_time_s, e.serial_s, e.high_s);
      g_assert_true (e.low_s <= e.step_time_s && e.step_time_s <= e.high_s);
      if (beyond)
        g_assert_true (e.low_s == before.low_s && e.step_time_s == before.step_time_s &&
                       e.memory.total_bytes == before.memory.total_bytes);
      else if (j > 0)
        g_assert_true (e.low_s > before.low_s && e.step_time_s > before.step_time_s && e.high_s > before.high_s);
      g_assert_true (has_note (notes, "2 is taken") == (beyond && i == 1));
      before = e;
    }
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/expert-load/dropped", test_dropped);
  g_test_add_func ("/expert-load/mfu", test_mfu);
  g_test_add_func ("/expert-load/bounds", test_bounds);
  return g_test_run ();
}
