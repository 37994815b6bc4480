/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of sets as tables. */
#include <math.h>
#include <string.h>

#include "cli/validate.h"
#include "models/inputs/ini.h"

static const char *const claim_kinds[] = { "ratio", "value", "order", "best" };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static char *
score_text (SpScore score, double value)
{
  if (isnan (value))
    return g_strdup ("-");
  if (isinf (value))
    return g_strdup ("did not run");
  return sp_score_rows[score].is_number ? g_strdup_printf ("%.2f", value) : g_strdup_printf ("%.1f %%", 100 * value);
}

static guint
count_of (SpScore score, const SpScores *scores)
{
  if (score <= SP_SCORE_SPEED_WORST)
    return scores->n_times;
  if (score <= SP_SCORE_MEMORY_WORST)
    return scores->n_memories;
  if (score <= SP_SCORE_FALSE_FIT)
    return scores->n_outcomes;
  if (score == SP_SCORE_KENDALL)
    return scores->n_pairs;
  return score <= SP_SCORE_BEST ? scores->n_cells : scores->n_runs;
}

static const char *
unit_of (SpScore score)
{
  return score == SP_SCORE_KENDALL ? "pairs" : score >= SP_SCORE_REGRET_MEDIAN && score <= SP_SCORE_BEST ? "cells" : "";
}

/* What is bounded, claimed by others, or of interest where a set bounds nothing. */
static gboolean
is_shown (const SpScoredSet *scored, SpScore score)
{
  static const SpScore usual[] = { SP_SCORE_TIME_MEDIAN, SP_SCORE_TIME_P90, SP_SCORE_MEMORY_MEDIAN, SP_SCORE_ACCURACY,
                                   SP_SCORE_KENDALL };

  if (!isnan (scored->set->bounds[score].must))
    return TRUE;
  for (guint i = 0; i < scored->set->others->len; i++)
    if (g_array_index (scored->set->others, SpOthers, i).score == score)
      return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (usual); i++)
    if (usual[i] == score)
      return !isnan (scored->held_out.value[score]);
  return FALSE;
}

static char *
others_text (const SpValidation *set, SpScore score)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < set->others->len; i++) {
    const SpOthers *others = &g_array_index (set->others, SpOthers, i);
    g_autofree char *value = score_text (score, others->value);
    if (others->score == score)
      g_string_append_printf (text, "%s%s %s", text->len > 0 ? ", " : "", others->who, value);
  }
  return g_strdup (text->str);
}

/* --- rows of a table ---------------------------------------------------------------------------------------------- */

typedef struct {
  char *cells[7]; /* set, statistic, of, ours, must, goal, verdict; others in the verdict's */
} Line;

enum { SET, STATISTIC, OF, OURS, MUST, GOAL, VERDICT, N_CELLS };

static void
clear_line (gpointer data)
{
  for (guint i = 0; i < N_CELLS; i++)
    g_free (((Line *) data)->cells[i]);
}

static char *
verdict_text (SpVerdict verdict, const char *others)
{
  return g_strdup_printf ("%s%s%s%s", sp_verdict_names[verdict], *others != '\0' ? " (" : "", others,
                          *others != '\0' ? ")" : "");
}

static void
add_score (const SpScoredSet *scored, SpScore score, GArray *lines)
{
  const SpBound *bound = &scored->set->bounds[score];
  double value = scored->held_out.value[score];
  g_autofree char *others = others_text (scored->set, score);
  const char *unit = unit_of (score);
  Line line = { { g_strdup (scored->set->name), g_strdup (sp_score_rows[score].name),
                  g_strdup_printf ("%u%s%s", count_of (score, &scored->held_out), *unit != '\0' ? " " : "", unit),
                  score_text (score, value), score_text (score, bound->must), score_text (score, bound->goal),
                  verdict_text (sp_bound_judge (bound, value, sp_score_rows[score].more_is_better), others) } };

  g_array_append_val (lines, line);
}

static char *
claim_bound_text (const SpClaim *claim, double value)
{
  if (isnan (value))
    return g_strdup ("-");
  if (claim->in_doublings)
    return g_strdup_printf ("%.2g doubling%s", value, value == 1 ? "" : "s");
  return g_strdup_printf ("%.1f %%", 100 * value);
}

SpVerdict
sp_claim_judge (const SpClaim *claim)
{
  gboolean is_order = claim->kind == SP_CLAIM_ORDER || claim->kind == SP_CLAIM_BEST;

  return sp_bound_judge (&claim->bound, is_order ? claim->ours : claim->error, is_order);
}

static char *
ours_text (const SpClaim *claim)
{
  if (isnan (claim->ours))
    return g_strdup ("-");
  if (claim->kind == SP_CLAIM_ORDER || claim->kind == SP_CLAIM_BEST)
    return g_strdup_printf ("%.0f %% of pairs", 100 * claim->ours);
  g_autofree char *off = claim_bound_text (claim, claim->error);
  return g_strdup_printf ("%.4g (published %.4g, %s off)", claim->ours, claim->published, off);
}

static void
add_claim (const SpValidation *set, const SpClaim *claim, GArray *lines)
{
  Line line = { { g_strdup (set->name), g_strdup_printf ("%s %s", claim_kinds[claim->kind], claim->name), g_strdup (""),
                  ours_text (claim), claim_bound_text (claim, claim->bound.must),
                  claim_bound_text (claim, claim->bound.goal), g_strdup (sp_verdict_names[sp_claim_judge (claim)]) } };

  g_array_append_val (lines, line);
}

static GArray *
lines_of (const GPtrArray *sets)
{
  GArray *lines = g_array_new (FALSE, TRUE, sizeof (Line));

  g_array_set_clear_func (lines, clear_line);
  for (guint i = 0; i < sets->len; i++) {
    const SpScoredSet *scored = sets->pdata[i];
    for (guint s = 0; s < SP_N_SCORES; s++)
      if (is_shown (scored, (SpScore) s))
        add_score (scored, (SpScore) s, lines);
    for (guint c = 0; c < scored->set->claims->len; c++)
      add_claim (scored->set, scored->set->claims->pdata[c], lines);
  }
  return lines;
}

/* --- what stands below -------------------------------------------------------------------------------------------- */

/* Those that the model refuses are counted together. */
static void
add_refused (const SpValidation *set, GString *out)
{
  const char *first = NULL;
  guint n = 0;

  for (guint r = 0; r < set->runs->len; r++) {
    const SpMeasuredRun *run = set->runs->pdata[r];
    n += run->refused != NULL;
    first = first != NULL ? first : run->refused;
  }
  if (n > 0)
    g_string_append_printf (out, "  %u aside: refused, the first: %s\n", n, first);
}

static void
add_reasons (const SpValidation *set, GString *out)
{
  g_autoptr (GHashTable) counts = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, NULL);
  g_autoptr (GPtrArray) reasons = g_ptr_array_new ();

  for (guint r = 0; r < set->runs->len; r++) {
    const SpMeasuredRun *run = set->runs->pdata[r];
    const char *last = NULL;
    for (guint a = 0; a < SP_N_ASPECTS && run->refused == NULL; a++) {
      const char *reason = run->aside[a];
      if (reason == NULL || g_strcmp0 (reason, last) == 0)
        continue;
      last = reason;
      if (!g_hash_table_contains (counts, reason))
        g_ptr_array_add (reasons, (gpointer) reason);
      guint n = GPOINTER_TO_UINT (g_hash_table_lookup (counts, reason));
      g_hash_table_insert (counts, (gpointer) reason, GUINT_TO_POINTER (n + 1));
    }
  }
  for (guint i = 0; i < reasons->len; i++)
    g_string_append_printf (out, "  %u aside: %s\n", GPOINTER_TO_UINT (g_hash_table_lookup (counts, reasons->pdata[i])),
                            (const char *) reasons->pdata[i]);
}

/* Of a reason why runs miss: those that it holds for, and those of them that do. */
typedef struct {
  const char *text; /* borrowed of a run */
  guint holds, beyond;
} Why;

static void
count_why (GArray *whys, const char *text, gboolean is_beyond)
{
  guint i = 0;

  while (i < whys->len && !g_str_equal (g_array_index (whys, Why, i).text, text))
    i++;
  if (i == whys->len)
    g_array_append_val (whys, ((Why){ text, 0, 0 }));
  g_array_index (whys, Why, i).holds++;
  g_array_index (whys, Why, i).beyond += is_beyond;
}

/* Whether a run misses in some aspect, and whether each of those has a reason. */
static gboolean
is_beyond_twice (const SpValidation *set, const SpMeasuredRun *run, GArray *whys, gboolean *ret_explained)
{
  gboolean counts[SP_N_ASPECTS] = { FALSE }, beyond[SP_N_ASPECTS] = { FALSE }, any = FALSE;

  *ret_explained = TRUE;
  for (guint i = 0; i < SP_N_OBSERVED; i++) {
    SpAspect aspect = sp_observed_rows[i].aspect;
    counts[aspect] |= sp_run_counts (set, run, (SpObserved) i);
    beyond[aspect] |= sp_run_is_beyond (set, run, (SpObserved) i);
  }
  for (guint a = 0; a < SP_N_ASPECTS; a++) {
    any |= beyond[a];
    *ret_explained &= !beyond[a] || run->why[a] != NULL;
    if (counts[a] && run->why[a] != NULL)
      count_why (whys, run->why[a], beyond[a]);
  }
  return any;
}

static void
add_beyond (const SpValidation *set, GString *out)
{
  g_autoptr (GArray) whys = g_array_new (FALSE, FALSE, sizeof (Why));
  guint beyond = 0, explained = 0;

  for (guint r = 0; r < set->runs->len; r++) {
    const SpMeasuredRun *run = set->runs->pdata[r];
    gboolean is_explained;
    if (run->is_fitted || !is_beyond_twice (set, run, whys, &is_explained))
      continue;
    beyond++;
    explained += is_explained;
  }
  if (beyond > 0)
    g_string_append_printf (out, "  %u run%s beyond twice the bound, %u explained\n", beyond, sp_plural (beyond),
                            explained);
  for (guint i = 0; i < whys->len; i++) {
    const Why *why = &g_array_index (whys, Why, i);
    g_string_append_printf (out, "  why, of %u of the %u runs that it holds for: %s\n", why->beyond, why->holds,
                            why->text);
  }
}

static void
add_below (const SpScoredSet *scored, GString *out)
{
  const SpValidation *set = scored->set;

  g_string_append_printf (out, "\n%s: %s\n  %s\n", set->name, set->title, set->source);
  if (set->runs->len > 0)
    g_string_append_printf (out, "  %u run%s held out, %u fitted, of %u\n", scored->held_out.n_runs,
                            sp_plural (scored->held_out.n_runs), scored->fitted.n_runs, set->runs->len);
  add_reasons (set, out);
  add_refused (set, out);
  add_beyond (set, out);
  if (set->notes != NULL)
    g_string_append_printf (out, "  %s\n", set->notes);
  for (guint c = 0; c < set->claims->len; c++) {
    const SpClaim *claim = set->claims->pdata[c];
    g_string_append_printf (out, "  %s: %s\n", claim->name, claim->detail);
    if (claim->assumes != NULL)
      g_string_append_printf (out, "    assumes %s\n", claim->assumes);
  }
}

/* --- both forms --------------------------------------------------------------------------------------------------- */

void
sp_validate_text (const GPtrArray *sets, GString *out)
{
  static const char *const heads[N_CELLS] = { "set", "statistic", "of", "ours", "must", "goal", "verdict" };
  g_autoptr (SpTable) table = sp_table_new ("llrrrrl");
  g_autoptr (GArray) lines = lines_of (sets);

  for (guint i = 0; i < N_CELLS; i++)
    sp_table_cell (table, heads[i]);
  for (guint l = 0; l < lines->len; l++)
    for (guint i = 0; i < N_CELLS; i++)
      sp_table_cell (table, g_array_index (lines, Line, l).cells[i]);
  sp_table_print (table, 0, out);
  for (guint i = 0; i < sets->len; i++)
    add_below (sets->pdata[i], out);
}

void
sp_validate_markdown (const GPtrArray *sets, GString *out)
{
  g_autoptr (GArray) lines = lines_of (sets);

  g_string_append (out,
                   "| set | statistic | of | ours | must | goal | |\n| --- | --- | --- | --- | --- | --- | --- |\n");
  for (guint l = 0; l < lines->len; l++) {
    g_string_append_c (out, '|');
    for (guint i = 0; i < N_CELLS; i++) {
      const char *cell = g_array_index (lines, Line, l).cells[i];
      g_string_append_printf (out, "%s%s |", *cell != '\0' ? " " : "", cell);
    }
    g_string_append_c (out, '\n');
  }
}

static void
count_verdict (SpVerdict verdict, guint *missed, guint *unmeasured)
{
  *missed += verdict == SP_VERDICT_MISSED;
  *unmeasured += verdict == SP_VERDICT_UNMEASURED;
}

void
sp_validate_count (const GPtrArray *sets, guint *ret_missed, guint *ret_unmeasured)
{
  *ret_missed = *ret_unmeasured = 0;
  for (guint i = 0; i < sets->len; i++) {
    const SpScoredSet *scored = sets->pdata[i];
    const SpValidation *set = scored->set;
    for (guint s = 0; s < SP_N_SCORES; s++)
      count_verdict (sp_bound_judge (&set->bounds[s], scored->held_out.value[s], sp_score_rows[s].more_is_better),
                     ret_missed, ret_unmeasured);
    for (guint c = 0; c < set->claims->len; c++)
      count_verdict (sp_claim_judge (set->claims->pdata[c]), ret_missed, ret_unmeasured);
  }
}
