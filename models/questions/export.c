/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#include "models/explain.h"
#include "models/inputs/run-files/run-file.h"

/* The best layout as a run file: search, write, read, price. */

#define MOST_TRIED 64 /* best layouts, of which parts are looked at where none comes back whole */
#define MOST_WHOLE 8  /* that do: keys that a search does not choose may put one before another */

typedef struct {
  SpEstimator *estimator;
  const SpScenario *scenario;
  const char *format;
  const SpLayout *base; /* the question's */
  SpProgram *program;
  SpPlanExport *best; /* NULL: none yet */
  gboolean misfits;   /* some come back, and do not fit then */
  GError *refused;    /* the first one's */
} Exporter;

void
sp_plan_export_free (SpPlanExport *export)
{
  if (export == NULL)
    return;
  g_string_free (export->text, TRUE);
  g_ptr_array_unref (export->lost);
  g_free (export);
}

/* --- what is wanted ----------------------------------------------------------------------------------------------- */

/* What no degree has a part in. */
static void
take_base (SpLayout *layout, const SpLayout *from)
{
  layout->gradient_dtype = from->gradient_dtype;
  layout->overlap = from->overlap;
  layout->reshard = from->reshard;
  layout->loss = from->loss;
  layout->loss_chunks = from->loss_chunks;
  layout->mlp_tiles = from->mlp_tiles;
  layout->offload = from->offload;
}

/* A layout whose base is read otherwise, because its degrees mean another backend, is wanted as it is read. */
static gboolean
wants (const SpLayout *layout, const SpRun *run, gboolean degrees_alone, gpointer data)
{
  const Exporter *x = data;
  SpLayout whole = *layout, read;
  const SpScenario scenario = sp_scenario_with (x->scenario, layout, run, 0);
  SpRunCarries carries = sp_run_file_carries (&scenario, x->format, &read, NULL);

  if (degrees_alone || carries != SP_RUN_CARRIES_PLACES)
    return carries >= (degrees_alone ? SP_RUN_CARRIES_PLACES : SP_RUN_CARRIES_ALL);
  take_base (&whole, &read);
  const SpScenario as_read = sp_scenario_with (x->scenario, &whole, run, 0);
  return sp_run_file_carries (&as_read, x->format, NULL, NULL) == SP_RUN_CARRIES_ALL;
}

/* That of the question, as the format's files are read, so that it is not lost of every layout. */
static SpLayout
base_of (const Exporter *x, const SpPlanQuestion *question, gint32 gpus)
{
  SpLayout base = question->base, plain = question->base, read;
  SpRun run = question->run;

  plain.data = gpus;
  plain.zero = 3; /* what is whole on each rank is another backend's in some */
  run.sequence = question->sequence;
  run.micro_batch = 1;
  run.global_batch = question->global_batch;
  const SpScenario scenario = sp_scenario_with (x->scenario, &plain, &run, 0);
  if (sp_run_file_carries (&scenario, x->format, &read, NULL) == SP_RUN_CARRIES_NOT)
    return base;
  take_base (&base, &read);
  return base;
}

/* --- candidates --------------------------------------------------------------------------------------------------- */

/* FALSE: it is no better than the one there is, or none at all. */
static gboolean
consider (Exporter *x, const SpLayout *layout, const SpRun *run)
{
  const SpScenario written = sp_scenario_with (x->scenario, layout, run, 0);
  const SpEstimator *e = x->estimator;
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  SpPlanEntry entry = { 0 };

  if (!sp_run_file_export (&written, x->format, text, lost, x->refused == NULL ? &x->refused : NULL) ||
      sp_run_file_carries (&written, x->format, &entry.layout, &entry.run) == SP_RUN_CARRIES_NOT ||
      !sp_layout_check (&entry.layout, e->arch, e->framework, &entry.run, sp_layout_world (layout, e->arch),
                        x->refused == NULL ? &x->refused : NULL))
    return FALSE;
  sp_estimate_layout (x->estimator, x->program, &entry.layout, &entry.run, &entry.estimate);
  x->misfits |= !entry.estimate.fits;
  if (!entry.estimate.fits || (x->best != NULL && x->best->entry.estimate.step_time_s <= entry.estimate.step_time_s))
    return FALSE;
  sp_plan_export_free (x->best);
  x->best = g_new0 (SpPlanExport, 1);
  *x->best = (SpPlanExport){ .entry = entry, .text = g_steal_pointer (&text), .lost = g_steal_pointer (&lost) };
  return TRUE;
}

/* With the question's own base, so that what of it the format cannot carry is said. */
static void
consider_all (Exporter *x, const SpPlan *plan)
{
  for (guint i = 0; plan != NULL && i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    SpLayout layout = entry->layout;
    take_base (&layout, x->base);
    consider (x, &layout, &entry->run);
  }
}

/* --- the export --------------------------------------------------------------------------------------------------- */

/* What is left of the best layouts. FALSE with an error: no layout is legal. */
static gboolean
consider_parts (Exporter *x, const SpPlanQuestion *question, GError **error)
{
  SpPlanQuestion any = *question;

  any.top = MOST_TRIED;
  any.simulate = 0;
  g_autoptr (SpPlan) plan = sp_plan (x->estimator, &any, error);
  if (plan == NULL)
    return FALSE;
  consider_all (x, plan);
  if (x->best != NULL)
    x->best->is_part = TRUE;
  return TRUE;
}

static void
refuse (Exporter *x, GError **error)
{
  const char *path = x->scenario->path != NULL ? x->scenario->path : "the plan";

  if (x->refused != NULL)
    g_propagate_error (error, g_steal_pointer (&x->refused));
  else
    g_set_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL, "%s: no layout fits%s, so there is none to export",
                 path, x->misfits ? " as it is read back" : "");
}

SpPlanExport *
sp_plan_export (SpEstimator *estimator, const SpScenario *scenario, const SpPlanQuestion *question, const char *format,
                gboolean own, GError **error)
{
  const SpCluster *cluster = estimator->cluster;
  gint32 gpus = question->gpus > 0 ? question->gpus : cluster->nodes * cluster->gpus_per_node;
  g_autoptr (SpProgram) program = sp_program_new ();
  Exporter x = {
    .estimator = estimator, .scenario = scenario, .format = format, .base = &question->base, .program = program
  };
  SpPlanQuestion whole = *question;

  whole.fixed |= sp_plan_dimension ("loss"); /* the format's */
  whole.base = base_of (&x, question, gpus);
  whole.top = MOST_WHOLE;
  whole.simulate = 0;
  whole.wants = wants;
  whole.wants_data = &x;
  g_autoptr (SpPlan) plan = sp_plan (estimator, &whole, NULL);
  consider_all (&x, plan);
  gboolean is_own = own && consider (&x, &scenario->layout, &scenario->run);
  if (x.best != NULL)
    x.best->is_own = is_own;
  else if (!consider_parts (&x, question, error)) {
    g_clear_error (&x.refused);
    return NULL;
  }
  if (x.best == NULL)
    refuse (&x, error);
  g_clear_error (&x.refused);
  return x.best;
}
