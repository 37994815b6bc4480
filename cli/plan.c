/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar plan: the layouts that fit, best first. */
#include "cli/plan.h"
#include "cli/ranks.h"

#include <stdio.h>
#include <unistd.h>

#include "models/inputs/run-files/run-file.h"

/* --- as a run file ------------------------------------------------------------------------------------------------ */

static gboolean
export_entry (const SpPlanOptions *o, SpPlanInput *q, const SpPlanEntry *entry, GString *out, GPtrArray *lost,
              GError **error)
{
  g_autofree char *model = sp_find_model (o->model, error);
  char none[] = "none";
  if (model == NULL)
    return FALSE;
  const SpScenario scenario = {
    .model_path = model,
    .cluster_path = none,
    .framework_path = none,
    .arch = q->arch,
    .cluster = q->cluster,
    .framework = q->framework,
    .layout = entry->layout,
    .run = entry->run,
  };
  return sp_run_file_export (&scenario, o->export, out, lost, error);
}

/* The best of those listed whose degrees the format has words for. */
static gboolean
add_export (const SpPlanOptions *o, SpPlanInput *q, const SpPlan *plan, GString *out, GError **error)
{
  g_autoptr (GError) first = NULL;
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  if (plan->entries->len == 0)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "no layout fits, so there is none to export");
  for (guint i = 0; i < plan->entries->len; i++) {
    const SpPlanEntry *entry = &g_array_index (plan->entries, SpPlanEntry, i);
    g_autoptr (GError) cause = NULL;
    if (export_entry (o, q, entry, out, lost, &cause)) {
      if (i > 0)
        g_ptr_array_insert (
            lost, 0, g_strdup_printf ("note: layout %u of the plan; of the better ones, %s", i + 1, first->message));
      if (sp_ranks_is_first (q->question.ranks))
        sp_cli_notes (lost);
      return TRUE;
    }
    if (first == NULL)
      first = g_steal_pointer (&cause);
  }
  g_propagate_error (error, g_steal_pointer (&first));
  return FALSE;
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

#define MICROSECONDS 1000000

/* One line on a terminal, written over itself at most once a second; `data` is when it was last. */
static void
show_progress (gint64 done, gint64 all, gpointer data)
{
  gint64 now = g_get_monotonic_time (), *last = data;
  if (now < *last + MICROSECONDS)
    return;
  *last = now;
  g_autofree char *looked_at = sp_text_count ((double) done);
  g_autofree char *of = sp_text_count ((double) all);
  fprintf (stderr, "\rsearching: %s of %s layouts\033[K", looked_at, of);
}

static gboolean
plan_on (const SpPlanRanks *ranks, char **args, GString *out, GError **error)
{
  g_auto (SpPlanOptions) options = { NULL };
  g_auto (SpPlanInput) q = { NULL };
  SpParsed parsed = sp_plan_options_parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_plan_input_read (&options, &q, error))
    return FALSE;
  q.question.ranks = ranks;

  SpEstimator estimator;
  sp_estimator_init (&estimator, q.arch, q.cluster, q.framework, q.convention);
  gboolean terminal = isatty (STDERR_FILENO) && sp_ranks_is_first (ranks);
  gint64 last = 0;
  if (terminal) {
    q.question.progress = show_progress;
    q.question.progress_data = &last;
  }
  SpPlanAskFunc ask = sp_plan_ask_find (&options);
  if (ask != NULL) {
    const SpPlanAsked asked = { &options, &q, &estimator };
    gboolean answered = ask (&asked, out, error);
    if (terminal)
      fputs ("\r\033[K", stderr);
    return answered;
  }
  g_autoptr (SpPlan) plan = sp_plan (&estimator, &q.question, error);
  if (terminal)
    fputs ("\r\033[K", stderr);
  if (plan == NULL)
    return FALSE;
  if (options.json)
    return sp_plan_json (&estimator, plan, out, error);
  if (options.export != NULL)
    return add_export (&options, &q, plan, out, error);
  sp_plan_text (&q, &estimator, plan, out);
  return TRUE;
}

gboolean
sp_command_plan (char **args, GString *out, GError **error)
{
  return sp_cli_on_ranks (plan_on, args, out, error);
}
