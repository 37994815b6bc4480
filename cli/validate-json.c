/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of sets as JSON, and their runs as CSV. */
#include <math.h>
#include <string.h>

#include "cli/validate.h"

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* Of what no run says, and of a choice that did not run, null. */
static void
add_number (JsonBuilder *b, const char *name, double value)
{
  if (isfinite (value)) {
    sp_json_number (b, name, value);
    return;
  }
  json_builder_set_member_name (b, name);
  json_builder_add_null_value (b);
}

/* By the names that scripts read; of time-mean, time_mean_error. */
static char *
member_of (SpScore score)
{
  char *name = g_strdelimit (g_strdup (sp_score_rows[score].name), "-", '_');
  g_autofree char *plain = name;

  if (score <= SP_SCORE_MEMORY_WORST)
    return g_strconcat (name, "_error", NULL);
  return score == SP_SCORE_ACCURACY ? g_strconcat ("fit_", name, NULL) : g_steal_pointer (&plain);
}

static void
add_scores (JsonBuilder *b, const SpScores *scores)
{
  for (guint i = 0; i < SP_N_SCORES; i++) {
    g_autofree char *name = member_of ((SpScore) i);
    add_number (b, name, scores->value[i]);
  }
}

static void
add_claims (JsonBuilder *b, const SpValidation *set)
{
  json_builder_set_member_name (b, "claims");
  json_builder_begin_array (b);
  for (guint i = 0; i < set->claims->len; i++) {
    const SpClaim *claim = set->claims->pdata[i];
    json_builder_begin_object (b);
    sp_json_string (b, "name", claim->name);
    add_number (b, "ours", claim->ours);
    add_number (b, "published", claim->published);
    add_number (b, claim->in_doublings ? "doublings" : "error", claim->error);
    sp_json_string (b, "verdict", sp_verdict_names[sp_claim_judge (claim)]);
    sp_json_string (b, "detail", claim->detail);
    sp_json_string (b, "assumes", claim->assumes);
    sp_json_string (b, "source", claim->source);
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
}

static void
add_bounds (JsonBuilder *b, const SpScoredSet *scored)
{
  sp_json_object (b, "bounds");
  for (guint i = 0; i < SP_N_SCORES; i++) {
    const SpBound *bound = &scored->set->bounds[i];
    g_autofree char *name = member_of ((SpScore) i);
    if (isnan (bound->must))
      continue;
    sp_json_object (b, name);
    add_number (b, "must", bound->must);
    add_number (b, "goal", bound->goal);
    sp_json_string (
        b, "verdict",
        sp_verdict_names[sp_bound_judge (bound, scored->held_out.value[i], sp_score_rows[i].more_is_better)]);
    json_builder_end_object (b);
  }
  json_builder_end_object (b);
}

gboolean
sp_validate_json (const GPtrArray *sets, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();

  json_builder_begin_object (b);
  json_builder_set_member_name (b, "sets");
  json_builder_begin_array (b);
  for (guint i = 0; i < sets->len; i++) {
    const SpScoredSet *scored = sets->pdata[i];
    guint aside = scored->set->runs->len - scored->held_out.n_runs - scored->fitted.n_runs;
    json_builder_begin_object (b);
    sp_json_string (b, "name", scored->set->name);
    sp_json_string (b, "title", scored->set->title);
    sp_json_whole (b, "rows", scored->held_out.n_runs);
    sp_json_whole (b, "fitted_rows", scored->fitted.n_runs);
    sp_json_whole (b, "aside_rows", aside);
    add_scores (b, &scored->held_out);
    add_bounds (b, scored);
    sp_json_object (b, "fitted");
    add_scores (b, &scored->fitted);
    json_builder_end_object (b);
    add_claims (b, scored->set);
    sp_json_string (b, "source", scored->set->source);
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
  json_builder_end_object (b);
  return sp_json_finish (b, out, error);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static void
append_number (GString *line, double value)
{
  char digits[G_ASCII_DTOSTR_BUF_SIZE] = "";

  if (isfinite (value))
    g_ascii_formatd (digits, sizeof digits, "%.9g", value);
  sp_csv_append (line, digits);
}

enum { MEASURED, PREDICTED, ERROR, MEASURED_STEP, PREDICTED_STEP, N_FIGURES };

static void
append_row (const SpValidation *set, const SpMeasuredRun *run, SpAspect aspect, const char *column,
            const double *figures, GString *out)
{
  g_autoptr (GString) line = g_string_new (NULL);
  g_autofree char *number = g_strdup_printf ("%u", run->row + 1), *keys = g_strjoinv ("; ", run->sets);
  g_autofree char *scenario = g_path_get_basename (run->scenario);
  const char *const before[] = { set->name,
                                 ((const SpRunGroup *) set->groups->pdata[run->group])->name,
                                 number,
                                 run->is_fitted ? "fit" : "held-out",
                                 sp_aspect_names[aspect],
                                 column };
  const char *const after[] = { run->outcome < 0 ? ""
                                : run->outcome   ? "fits"
                                                 : "oom",
                                run->refused != NULL ? "refused"
                                : run->fits          ? "fits"
                                                     : "oom",
                                run->aside[aspect] != NULL ? run->aside[aspect] : "",
                                run->why[aspect] != NULL ? run->why[aspect] : "",
                                run->cell != NULL ? run->cell : "",
                                scenario,
                                keys };

  for (guint i = 0; i < G_N_ELEMENTS (before); i++)
    sp_csv_append (line, before[i]);
  for (guint i = 0; i < N_FIGURES; i++)
    append_number (line, figures[i]);
  for (guint i = 0; i < G_N_ELEMENTS (after); i++)
    sp_csv_append (line, after[i]);
  g_string_append_printf (out, "%s\n", line->str);
}

/* Of what counts as the run's time, the step besides: a speed as the step that it comes to. */
static void
append_figure (const SpValidation *set, const SpMeasuredRun *run, SpObserved observed, GString *out)
{
  const SpObservedRow *row = &sp_observed_rows[observed];
  double ratio = run->predicted[observed] / run->measured[observed];
  double figures[N_FIGURES] = { run->measured[observed], run->predicted[observed], ratio - 1, NAN, NAN };

  if (observed == sp_run_time_column (set, run) && isfinite (ratio)) {
    figures[MEASURED_STEP] = run->step_time_s * (row->is_speed ? ratio : 1 / ratio);
    figures[PREDICTED_STEP] = run->step_time_s;
  }
  append_row (set, run, row->aspect, row->name, figures, out);
}

void
sp_validate_csv (const GPtrArray *sets, GString *out)
{
  static const double none[N_FIGURES] = { NAN, NAN, NAN, NAN, NAN };

  g_string_append (out, "set,group,row,split,kind,column,measured,predicted,error,measured_step_s,predicted_step_s,"
                        "outcome,predicted_outcome,aside,why,cell,scenario,keys\n");
  for (guint s = 0; s < sets->len; s++) {
    const SpValidation *set = ((const SpScoredSet *) sets->pdata[s])->set;
    for (guint r = 0; r < set->runs->len; r++) {
      const SpMeasuredRun *run = set->runs->pdata[r];
      for (guint i = 0; i < SP_N_OBSERVED; i++)
        if (!isnan (run->measured[i]))
          append_figure (set, run, (SpObserved) i, out);
      if (run->outcome >= 0)
        append_row (set, run, SP_ASPECT_OUTCOME, "outcome", none, out);
    }
  }
}
