/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#include "models/writer.h"

#define LONGEST_TOKENS ((gint64) 1 << 30) /* as a scenario takes it */
#define K_TOKENS 1024
#define MISSES_IN_A_ROW 2
#define CHECKS 4
#define MOST_KNOWN 16

const char *const sp_sequence_limits[SP_N_LIMITS + 1] = { "memory", "tokens-per-s", "rules", "none", NULL };

typedef struct {
  SpEstimator *estimator;
  SpPlanQuestion question;
  double least_tokens_per_s;
  SpMaxSequence *max;
  gint64 step, last; /* lengths are 1 .. last steps */
  gint64 low, high;  /* the longest known to pass, 0: none; the shortest beyond it that does not */
  SpProgram *program;
  SpPlanEntry known[MOST_KNOWN]; /* layouts that answered another length: where one passes no search is needed */
  guint n_known;
  SpPlan *failed; /* of the last length that did not pass, for the answer; NULL: nothing is legal */
  gint64 failed_steps;
  gboolean any_legal;
  GError *refused; /* the first length's that has no legal layout */
} Search;

static void
search_clear (Search *s)
{
  sp_program_free (s->program);
  sp_plan_free (s->failed);
  g_clear_error (&s->refused);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Search, search_clear)

static gint64
greatest_divisor (gint64 a, gint64 b)
{
  return b == 0 ? a : greatest_divisor (b, a % b);
}

/* --- one length --------------------------------------------------------------------------------------------------- */

static void
remember (Search *s, const SpPlanEntry *entry)
{
  s->known[s->n_known++ % MOST_KNOWN] = *entry;
}

static void
note_rate (Search *s, const SpPlanEntry *entry)
{
  if (entry->estimate.tokens_per_s <= s->max->best_tokens_per_s)
    return;
  s->max->best_tokens_per_s = entry->estimate.tokens_per_s;
  s->max->best_sequence = entry->run.sequence;
}

static gboolean
is_enough (const Search *s, const SpPlanEntry *entry)
{
  return entry->estimate.fits && entry->estimate.tokens_per_s >= s->least_tokens_per_s;
}

static gboolean
known_passes (Search *s, gint64 tokens)
{
  for (guint i = 0; i < MIN (s->n_known, MOST_KNOWN); i++) {
    SpPlanEntry entry = s->known[i];
    entry.run.sequence = tokens;
    if (!sp_layout_check (&entry.layout, s->estimator->arch, s->estimator->framework, &entry.run, 0, NULL))
      continue;
    sp_estimate_layout (s->estimator, s->program, &entry.layout, &entry.run, &entry.estimate);
    if (!is_enough (s, &entry))
      continue;
    note_rate (s, &entry);
    return TRUE;
  }
  return FALSE;
}

/* NULL: nothing is legal. */
static SpPlan *
plan_at (Search *s, gint64 tokens, guint top)
{
  g_autoptr (GError) refused = NULL;
  SpPlanQuestion q = s->question;

  q.sequence = tokens;
  q.top = top;
  s->max->searches++;
  SpPlan *plan = sp_plan (s->estimator, &q, &refused);
  if (plan == NULL && s->refused == NULL)
    s->refused = g_steal_pointer (&refused);
  s->any_legal |= plan != NULL;
  return plan;
}

static SpSequenceLimit
limit_of (const Search *s, const SpPlan *plan)
{
  const SpPlanEntry *best = sp_plan_best (plan);

  return plan == NULL          ? SP_LIMIT_RULES
         : best == NULL        ? SP_LIMIT_MEMORY
         : is_enough (s, best) ? SP_LIMIT_NONE
                               : SP_LIMIT_RATE;
}

/* SP_LIMIT_NONE: it passes. */
static SpSequenceLimit
try_steps (Search *s, gint64 steps)
{
  gint64 tokens = steps * s->step;

  if (known_passes (s, tokens))
    return SP_LIMIT_NONE;
  g_autoptr (SpPlan) plan = plan_at (s, tokens, 1);
  const SpPlanEntry *best = sp_plan_best (plan);
  if (best != NULL) {
    remember (s, best);
    note_rate (s, best);
  }
  if (plan != NULL && plan->has_nearest)
    remember (s, &plan->nearest);
  SpSequenceLimit limit = limit_of (s, plan);
  if (limit != SP_LIMIT_NONE) {
    sp_plan_free (s->failed);
    s->failed = g_steal_pointer (&plan);
    s->failed_steps = steps;
  }
  return limit;
}

/* --- all lengths -------------------------------------------------------------------------------------------------- */

/* The longest that a layout answered before passes, from one that does, below one that need not: no search is needed. */
static gint64
stretch (Search *s, gint64 low, gint64 high)
{
  gint64 ahead = 1;

  while (low + ahead < high && known_passes (s, (low + ahead) * s->step)) {
    low += ahead;
    ahead *= 2;
  }
  for (high = MIN (high, low + ahead); high - low > 1;) {
    gint64 middle = low + (high - low) / 2;
    *(known_passes (s, middle * s->step) ? &low : &high) = middle;
  }
  return low;
}

/* Doubles from `from` on until some in a row are too long. Too slow counts once one was quick enough. */
static void
climb (Search *s, gint64 from)
{
  guint misses = 0;

  for (gint64 steps = from; steps <= s->last && misses < MISSES_IN_A_ROW; steps *= 2) {
    SpSequenceLimit limit = try_steps (s, steps);
    if (limit == SP_LIMIT_NONE) {
      s->max->is_monotonic &= misses == 0;
      steps = s->low = stretch (s, steps, s->last + 1);
      s->high = 0;
      misses = 0;
    } else if (limit != SP_LIMIT_RATE || s->low > 0) {
      s->high = s->high > 0 ? s->high : steps;
      misses++;
    }
  }
  if (s->low > 0 && s->high == 0) /* the last doubling passed: what is left up to the longest */
    s->high = s->last + 1;
}

/* What lacked least of a length that is too long is often the last that passes: the next step is asked first, and the
 * middle where that was not so. */
static void
halve (Search *s)
{
  gboolean next = TRUE;

  s->low = stretch (s, s->low, s->high);
  while (s->high - s->low > 1) {
    gint64 steps = next ? s->low + 1 : s->low + (s->high - s->low) / 2;
    next = !next;
    if (try_steps (s, steps) == SP_LIMIT_NONE)
      s->low = stretch (s, steps, s->high);
    else
      s->high = steps;
  }
}

/* A longer one that passes, against what was assumed; 0: none of the lengths looked at. */
static gint64
find_longer (Search *s)
{
  for (gint64 i = 1; i <= CHECKS; i++) {
    gint64 steps = s->low + s->low * i / (CHECKS + 1);
    if (steps > s->high && steps <= s->last && try_steps (s, steps) == SP_LIMIT_NONE)
      return steps;
  }
  return 0;
}

static void
find_longest (Search *s)
{
  gint64 longer = 1;

  climb (s, 1);
  while (longer > 0 && s->low > 0) {
    halve (s);
    longer = find_longer (s);
    if (longer > 0) {
      s->max->is_monotonic = FALSE;
      s->low = longer;
      s->high = 0;
      climb (s, 2 * longer);
    }
  }
}

/* What is right with the answer, and wrong with the next. */
static void
fill (Search *s)
{
  SpMaxSequence *max = s->max;

  max->sequence = s->low * s->step;
  max->next = s->low < s->last ? (s->low + 1) * s->step : 0;
  if (max->sequence > 0)
    max->plan = plan_at (s, max->sequence, MAX (s->question.top, 1));
  if (sp_plan_best (max->plan) != NULL)
    note_rate (s, sp_plan_best (max->plan));
  max->limit = SP_LIMIT_NONE;
  if (max->next > 0) {
    max->next_plan = s->failed_steps == s->low + 1 ? g_steal_pointer (&s->failed) : plan_at (s, max->next, 1);
    max->limit = limit_of (s, max->next_plan);
  }
}

SpMaxSequence *
sp_plan_max_sequence (SpEstimator *estimator, const SpPlanQuestion *question, double least_tokens_per_s, GError **error)
{
  g_autoptr (SpMaxSequence) max = g_new0 (SpMaxSequence, 1);
  gint32 gpus = question->gpus > 0 ? question->gpus : estimator->cluster->nodes * estimator->cluster->gpus_per_node;
  gint64 splits = 2 * (gint64) gpus;
  g_auto (Search) s = { .estimator = estimator,
                        .question = *question,
                        .least_tokens_per_s = least_tokens_per_s,
                        .max = max,
                        .step = splits / greatest_divisor (splits, K_TOKENS) * K_TOKENS,
                        .program = sp_program_new () };

  s.last = MAX (LONGEST_TOKENS / s.step, 1);
  max->step_tokens = s.step;
  max->is_monotonic = TRUE;
  find_longest (&s);
  if (!s.any_legal) {
    g_propagate_error (error, g_steal_pointer (&s.refused));
    return NULL;
  }
  fill (&s);
  return g_steal_pointer (&max);
}

void
sp_max_sequence_free (SpMaxSequence *max)
{
  if (max == NULL)
    return;
  sp_plan_free (max->plan);
  sp_plan_free (max->next_plan);
  g_free (max);
}
