/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels wait for communication, as measured and as predicted. */
#include <math.h>

#include "cli/calibrate.h"

/* What a GPU's kernels wait for others; less_late: for transfers alone. */
static double
waited_of_rank (const SpSimulated *simulated, guint rank, gboolean less_late)
{
  const SpRoleReport *role = &simulated->run->roles[simulated->roles->of_rank[rank]];
  SpTime waited = less_late ? -role->late : role->bubble;

  for (guint axis = 0; axis < SP_N_AXES; axis++)
    waited += role->exposed[axis];
  return sp_time_to_s (waited);
}

/* No two cards are equally fast, and no curve says by how much: how many times as long as on the quickest the kernels of
 * each rank took, over what they were simulated to. None where the file does not say it of all. */
static void
add_cards (const SpSimulated *simulated, const SpExecutedRun *run, guint world, SpVariations *variations)
{
  double least = G_MAXDOUBLE;

  for (guint r = 0; r < world; r++) {
    const SpRoleReport *role = &simulated->run->roles[simulated->roles->of_rank[r]];
    double simulated_s = sp_time_to_s (role->kernels + role->slowed), measured_s = 0;
    for (guint op = 0; op < SP_N_OPS; op++)
      measured_s += sp_op_is_communication (op) ? 0 : sp_executed_rank (run, r)->op_s[op];
    if (measured_s == 0 || simulated_s == 0) {
      g_array_set_size (variations->slow_ranks, 0);
      return;
    }
    SpSlowRank card = { (gint32) r, measured_s / simulated_s };
    least = MIN (least, card.factor);
    g_array_append_val (variations->slow_ranks, card);
  }
  for (guint r = 0; r < world; r++)
    g_array_index (variations->slow_ranks, SpSlowRank, r).factor /= least;
}

static gboolean
agrees (double predicted_s, double measured_s)
{
  return fabs (predicted_s - measured_s) <= MAX (SP_EXPOSED_SHARE * measured_s, SP_EXPOSED_LEAST_S);
}

static void
debug_rank (const SpExecutedRun *run, guint rank, const SpSimulated *simulated)
{
  g_debug ("%s rank %u: waited %.1f us, of it for transfers %.1f; predicted %.1f and %.1f", run->program, rank,
           1e6 * sp_executed_rank (run, rank)->exposed_s, 1e6 * sp_executed_rank (run, rank)->own_s,
           1e6 * waited_of_rank (simulated, rank, FALSE), 1e6 * waited_of_rank (simulated, rank, TRUE));
}

/* Means over the ranks that the file says something of. */
static void
sum_ranks (const SpExecutedRun *run, guint world, const SpSimulated *simulated, const SpSimulated *as_ran,
           SpExposed *ret)
{
  double *const sums[] = { &ret->measured_s, &ret->predicted_s, &ret->as_ran_s }, own_s = 0, predicted_own_s = 0;
  guint n = 0, n_own = 0;

  for (guint r = 0; r < world; r++) {
    const SpExecutedRank *rank = sp_executed_rank (run, r);
    double predicted_s = waited_of_rank (simulated, r, FALSE);
    /* 0 of older files is not said. */
    if (rank->exposed_s < 0 || (rank->exposed_s == 0 && predicted_s > 0 && rank->own_s < 0))
      continue;
    debug_rank (run, r, simulated);
    ret->measured_s += rank->exposed_s;
    ret->predicted_s += predicted_s;
    ret->as_ran_s += waited_of_rank (as_ran, r, FALSE);
    n++;
    if (rank->own_s < 0)
      continue;
    own_s += rank->own_s;
    predicted_own_s += waited_of_rank (simulated, r, TRUE);
    n_own++;
  }
  for (guint i = 0; i < G_N_ELEMENTS (sums); i++)
    *sums[i] = n > 0 ? *sums[i] / n : -1;
  ret->own_s = n_own > 0 ? own_s / n_own : -1;
  ret->predicted_own_s = n_own > 0 ? predicted_own_s / n_own : -1;
}

gboolean
sp_compare_exposed (SpEstimator *estimator, const SpProgram *program, const SpScenario *scenario,
                    const SpExecutedRun *run, const SpSimulated *simulated, SpExposed *ret, GError **error)
{
  g_autoptr (GArray) slow = g_array_new (FALSE, FALSE, sizeof (SpSlowRank));
  SpVariations variations = { .seed = scenario->variations.seed, .slow_ranks = slow };
  const SpSimulateOptions options = { .samples = 1 };
  g_auto (SpSimulated) as_ran = { 0 };

  add_cards (simulated, run, (guint) program->world, &variations);
  if (!sp_simulate (estimator, program, &scenario->run, &variations, &options, &as_ran, error))
    return FALSE;
  *ret = (SpExposed){ 0 };
  sum_ranks (run, (guint) program->world, simulated, &as_ran, ret);
  ret->agrees = ret->own_s >= 0 ? agrees (ret->predicted_own_s, ret->own_s) : agrees (ret->as_ran_s, ret->measured_s);
  return TRUE;
}
