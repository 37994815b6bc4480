/* SPDX-License-Identifier: Apache-2.0 */
/* What is predicted of runs. */
#include <math.h>
#include <string.h>

#include "calibrate/validate/private.h"
#include "models/estimate/memory.h"
#include "models/writer.h"

#define MOST_DOUBLINGS 30
#define PARTS 32 /* of a length, where it is looked for between doublings */

/* --- columns ------------------------------------------------------------------------------------------------------ */

static double
layers_value (SpObserved observed, const SpProgram *program)
{
  double states, stash;

  sp_memory_layers (program, &states, &stash);
  return observed == SP_OBSERVED_LAYER_STATES ? states : stash;
}

static double
first_stage_pool (SpEstimator *estimator, const SpScenario *s, const SpProgram *program, const SpEstimate *e)
{
  SpMemory memory;

  sp_estimate_first_stage (estimator, program, &s->run, e, &memory);
  return memory.total_bytes - s->framework->reserved_bytes.value;
}

double
sp_observed_value (SpObserved observed, SpEstimator *estimator, const SpScenario *s, const SpProgram *program,
                   const SpEstimate *e)
{
  const double *class = e->memory.by_class;

  switch (observed) {
  case SP_OBSERVED_STEP_TIME:
  case SP_OBSERVED_UNDIVIDED:
    return e->step_time_s;
  case SP_OBSERVED_TOKENS:
    return e->tokens_per_s;
  case SP_OBSERVED_TOKENS_GPU:
    return e->tokens_per_s / (s->cluster->nodes * s->cluster->gpus_per_node);
  case SP_OBSERVED_MFU:
    return e->mfu;
  case SP_OBSERVED_MFU_CAUSAL:
    return e->mfu_causal;
  case SP_OBSERVED_HFU:
    return e->hfu;
  case SP_OBSERVED_PEAK:
    return e->memory.total_bytes;
  case SP_OBSERVED_POOL:
    return e->memory.total_bytes - s->framework->reserved_bytes.value;
  case SP_OBSERVED_POOL_FIRST:
    return first_stage_pool (estimator, s, program, e);
  case SP_OBSERVED_ALLOCATED:
    return e->memory.total_bytes - class[SP_CLASS_RESERVED];
  case SP_OBSERVED_STATES:
    return class[SP_CLASS_PARAMETERS] + class[SP_CLASS_GRADIENTS] + class[SP_CLASS_OPTIMIZER];
  case SP_OBSERVED_ACTIVATIONS:
    return class[SP_CLASS_ACTIVATIONS];
  case SP_OBSERVED_LAYER_STATES:
  case SP_OBSERVED_LAYER_ACTIVATIONS:
    return layers_value (observed, program);
  default:
    g_return_val_if_reached (NAN);
  }
}

/* --- longest ------------------------------------------------------------------------------------------------------ */

const char *const sp_search_names[SP_N_SEARCH_KEYS + 1] = { "sequence", "global-batch", "micro-batch", NULL };

typedef struct {
  SpScenario *scenario;
  SpProgram *program;
  SpEstimator estimator;
  SpRun base;
  guint keys;
} Search;

/* Of a fraction of a sequence, what every layout can split: a multiple of twice the GPUs. */
static gint64
whole_tokens (const Search *search, double tokens)
{
  gint64 step = 2 * search->scenario->cluster->nodes * search->scenario->cluster->gpus_per_node;

  return tokens == floor (tokens) || tokens < (double) step ? (gint64) tokens : (gint64) tokens / step * step;
}

static gboolean
fits (Search *search, double factor)
{
  SpScenario *s = search->scenario;
  SpEstimate estimate;

  s->run = search->base;
  if (search->keys & 1u << SP_SEARCH_SEQUENCE)
    s->run.sequence = whole_tokens (search, (double) s->run.sequence * factor);
  if (search->keys & 1u << SP_SEARCH_GLOBAL_BATCH)
    s->run.global_batch = (gint32) MIN (s->run.global_batch * factor, G_MAXINT32);
  if (search->keys & 1u << SP_SEARCH_MICRO_BATCH)
    s->run.micro_batch = (gint32) MIN (s->run.micro_batch * factor, G_MAXINT32);
  if (s->run.sequence < 1 || s->run.global_batch < 1 || s->run.micro_batch < 1 ||
      !sp_scenario_check_run (s, FALSE, NULL))
    return FALSE;
  sp_estimate_layout (&search->estimator, search->program, &s->layout, &s->run, &estimate);
  return estimate.fits;
}

double
sp_search_longest (SpScenario *s, guint keys, gboolean fine)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  Search search = { .scenario = s, .program = program, .base = s->run, .keys = keys };
  double factor = 1;

  sp_estimator_init (&search.estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  for (guint i = 0; i < MOST_DOUBLINGS && !fits (&search, factor); i++)
    factor /= 2;
  gboolean found = factor > ldexp (1, -MOST_DOUBLINGS);
  for (guint i = 0; found && i < MOST_DOUBLINGS && fits (&search, 2 * factor); i++)
    factor *= 2;
  guint low = 0, high = PARTS;
  while (found && fine && high - low > 1) {
    guint middle = (low + high) / 2;
    *(fits (&search, factor * (1 + middle / (double) PARTS)) ? &low : &high) = middle;
  }
  s->run = search.base;
  return found ? factor * (1 + low / (double) PARTS) : 0;
}

double
sp_search_value (const SpScenario *s, guint keys)
{
  if (keys & 1u << SP_SEARCH_SEQUENCE)
    return (double) s->run.sequence;
  return keys & 1u << SP_SEARCH_GLOBAL_BATCH ? s->run.global_batch : s->run.micro_batch;
}

/* From the length that was measured. */
static void
price_longest (const SpRunGroup *group, SpScenario *s, SpMeasuredRun *run)
{
  double measured = run->measured[SP_OBSERVED_LONGEST];
  SpRun base = s->run;

  s->run.sequence = (gint64) measured;
  run->predicted[SP_OBSERVED_LONGEST] = measured * sp_search_longest (s, 1u << SP_SEARCH_SEQUENCE, group->is_fine);
  s->run = base;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static gboolean
check_gpus (const SpScenario *s, const SpMeasuredRun *run, GError **error)
{
  gint32 gpus = s->cluster->nodes * s->cluster->gpus_per_node;

  return run->gpus == 0 || run->gpus == gpus ||
         sp_input_fail (error, SP_INPUT_ERROR_VALUE, "gpus = \"%d\": expected %d, as many as the cluster has",
                        run->gpus, gpus);
}

SpScenario *
sp_run_load (const SpValidation *v, const SpMeasuredRun *run, GError **ret_refusal, GError **error)
{
  const SpRunGroup *group = v->groups->pdata[run->group];
  g_autoptr (SpScenario) s = sp_scenario_load_as_written (run->scenario, (const char *const *) run->sets, error);

  if (s == NULL || !check_gpus (s, run, error))
    g_prefix_error (error, "%s: row %u: ", group->data_path, run->row + 1);
  else if (sp_scenario_check_run (s, v->simulates, ret_refusal))
    return g_steal_pointer (&s);
  return NULL;
}

/* What is refused is aside as a whole, with the reason; unless that is an error. */
static gboolean
take_refusal (const SpRunGroup *group, SpMeasuredRun *run, const GError *refusal, GError **error)
{
  const char *reason = strstr (refusal->message, "[layout] ");

  reason = reason != NULL ? reason + strlen ("[layout] ") : refusal->message;
  if (!group->takes_refused && !sp_run_is_aside (run))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: row %u: refused: %s (a group with refused = aside sets such rows aside)",
                          group->data_path, run->row + 1, reason);
  run->refused = g_strdup (reason);
  for (guint a = 0; a < SP_N_ASPECTS; a++)
    if (run->aside[a] == NULL)
      run->aside[a] = g_strdup_printf ("refused: %s", reason);
  return TRUE;
}

static gboolean
price_run (const SpValidation *v, SpMeasuredRun *run, SpProgram *program, GError **error)
{
  const SpRunGroup *group = v->groups->pdata[run->group];
  g_autoptr (GError) refusal = NULL;
  g_autoptr (SpScenario) s = sp_run_load (v, run, &refusal, error);
  SpEstimator estimator;
  SpEstimate estimate;

  if (s == NULL)
    return refusal != NULL && take_refusal (group, run, refusal, error);
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, v->convention);
  if (!sp_scenario_price (s, &estimator, program, v->simulates, &estimate, error)) {
    g_prefix_error (error, "%s: row %u: ", group->data_path, run->row + 1);
    return FALSE;
  }
  run->fits = estimate.fits;
  run->step_time_s = estimate.step_time_s;
  run->tokens = estimate.step_time_s * estimate.tokens_per_s;
  for (guint i = 0; i < SP_N_OBSERVED; i++)
    if (!isnan (run->measured[i]) && i != SP_OBSERVED_LONGEST)
      run->predicted[i] = sp_observed_value ((SpObserved) i, &estimator, s, program, &estimate);
  if (!isnan (run->measured[SP_OBSERVED_LONGEST]))
    price_longest (group, s, run);
  return TRUE;
}

gboolean
sp_validation_price (SpValidation *v, void (*progress) (guint done, guint all, gpointer data), gpointer data,
                     GError **error)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  guint all = v->runs->len + v->claims->len;

  for (guint i = 0; i < all; i++) {
    gboolean priced = i < v->runs->len ? price_run (v, v->runs->pdata[i], program, error)
                                       : sp_claim_price (v, v->claims->pdata[i - v->runs->len], error);
    if (!priced)
      return FALSE;
    if (progress != NULL)
      progress (i + 1, all, data);
  }
  return TRUE;
}
