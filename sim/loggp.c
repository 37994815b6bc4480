/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/loggp.h"

#include "sim/hash.h"

/* clang-format off */
G_DEFINE_QUARK (sp-loggp-error, sp_loggp_error)
/* clang-format on */

#define MOST_PS 0x1p62 /* of simulated time */
#define NAMED 8        /* ranks that an error names */

typedef struct {
  SpTime free_at; /* of its processor; SP_TIME_NEVER: it waits for a message that does not come */
  SpTime may_send_at, may_receive_at;
  SpTime arrival; /* of the message of the present step; SP_TIME_NEVER: none yet */
  double work;    /* jitter of the present step */
} Rank;

typedef struct {
  guint32 rank, step, partner;
} Wait;

typedef struct {
  const SpLoggp *costs;
  guint32 n_ranks;
  Rank *ranks;
  guint64 n_received;
  GArray *waiting; /* Wait: ranks for which nobody sends */
  GArray *strays;  /* Wait: messages for which nobody waits */
} Run;

/* --- jitter ------------------------------------------------------------------------------------------------------- */

/* Between 0 and 1, neither. */
static inline double
uniform (guint64 bits)
{
  return ((double) (bits >> 11) + 0.5) * 0x1p-53;
}

SpLoggpFactors
sp_loggp_factors (const SpLoggp *costs, guint32 rank, guint32 step)
{
  if (costs->jitter == SP_JITTER_NONE)
    return (SpLoggpFactors){ 1, 1 };
  guint64 base = sp_hash2 (costs->seed, (guint64) rank << 32 | step);
  double u = uniform (base), v = uniform (sp_hash (base)), spread = costs->spread;
  if (costs->jitter == SP_JITTER_UNIFORM)
    return (SpLoggpFactors){ 1 + spread * (2 * u - 1), 1 + spread * (2 * v - 1) };
  /* Box and Muller: two uniform numbers make two normal ones. */
  double radius = spread * sqrt (-2 * log (u)), angle = 2 * G_PI * v, mean = -spread * spread / 2;
  return (SpLoggpFactors){ exp (radius * cos (angle) + mean), exp (radius * sin (angle) + mean) };
}

/* The largest factor that can be drawn: 53 bits give no normal number beyond 9. */
static double
largest_factor (const SpLoggp *costs)
{
  if (costs->jitter == SP_JITTER_NONE)
    return 1;
  return costs->jitter == SP_JITTER_UNIFORM ? 1 + costs->spread : exp (9 * costs->spread);
}

static inline SpTime
times (SpTime time, double factor)
{
  return factor == 1 ? time : (SpTime) llrint ((double) time * factor);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* (k - 1) G. */
static double
bytes_time_ps (const SpLoggp *costs, const SpPatternStep *step)
{
  return step->bytes > 1 ? (double) (step->bytes - 1) * costs->gap_per_byte_ps : 0;
}

/* Sends, at the earliest. */
static inline void
send (Run *run, const SpPatternStep *step, guint32 index, guint32 id, guint32 to, double flight)
{
  const SpLoggp *costs = run->costs;
  Rank *rank = &run->ranks[id];
  SpTime bytes_time = (SpTime) llrint (bytes_time_ps (costs, step)), at = MAX (rank->free_at, rank->may_send_at);

  rank->free_at = at + times (costs->overhead, rank->work);
  rank->may_send_at = at + costs->gap + bytes_time;
  if (G_LIKELY (sp_partner_of (&step->from, to, run->n_ranks) == id))
    run->ranks[to].arrival = rank->free_at + bytes_time + times (costs->latency, flight);
  else
    g_array_append_val (run->strays, ((Wait){ id, index, to }));
}

/* All draw and send, those that wait in vain for an earlier step excepted. */
static void
send_all (Run *run, const SpPatternStep *step, guint32 index)
{
  gboolean all_compute = step->from.rule == SP_PARTNER_NONE && step->compute > 0;

  for (guint32 id = 0; id < run->n_ranks; id++) {
    guint32 to = sp_partner_of (&step->to, id, run->n_ranks), from = sp_partner_of (&step->from, id, run->n_ranks);
    if (run->ranks[id].free_at == SP_TIME_NEVER || (to == SP_NO_RANK && from == SP_NO_RANK && !all_compute))
      continue;
    SpLoggpFactors factors = sp_loggp_factors (run->costs, id, index);
    run->ranks[id].work = factors.work;
    if (to != SP_NO_RANK)
      send (run, step, index, id, to, factors.flight);
  }
}

/* All receive and compute. Who has no message waits for ever. */
static void
receive_all (Run *run, const SpPatternStep *step, guint32 index)
{
  const SpLoggp *costs = run->costs;
  SpTime gap = costs->gap + (SpTime) llrint (bytes_time_ps (costs, step)), busy = costs->overhead + step->compute;

  for (guint32 id = 0; id < run->n_ranks; id++) {
    Rank *rank = &run->ranks[id];
    guint32 from = sp_partner_of (&step->from, id, run->n_ranks);
    if (from == SP_NO_RANK || rank->free_at == SP_TIME_NEVER)
      continue;
    if (G_UNLIKELY (rank->arrival == SP_TIME_NEVER)) {
      g_array_append_val (run->waiting, ((Wait){ id, index, from }));
      rank->free_at = SP_TIME_NEVER;
      continue;
    }
    SpTime at = MAX (MAX (rank->free_at, rank->may_receive_at), rank->arrival);
    rank->free_at = at + times (busy, rank->work);
    rank->may_receive_at = at + gap;
    rank->arrival = SP_TIME_NEVER;
    run->n_received++;
  }
}

/* A step without messages: all compute. */
static void
compute_all (Run *run, const SpPatternStep *step)
{
  for (guint32 id = 0; id < run->n_ranks; id++) {
    Rank *rank = &run->ranks[id];
    if (rank->free_at < SP_TIME_NEVER)
      rank->free_at += times (step->compute, rank->work);
  }
}

static void
run_all (Run *run, const SpPattern *pattern, const SpTime *starts)
{
  for (guint32 id = 0; id < run->n_ranks; id++)
    run->ranks[id] = (Rank){ .free_at = starts != NULL ? starts[id] : 0, .arrival = SP_TIME_NEVER, .work = 1 };
  for (guint32 i = 0; i < pattern->steps->len; i++) {
    const SpPatternStep *step = &g_array_index (pattern->steps, SpPatternStep, i);
    send_all (run, step, i);
    if (step->from.rule != SP_PARTNER_NONE)
      receive_all (run, step, i);
    else if (step->compute > 0)
      compute_all (run, step);
  }
}

/* --- what can be wrong -------------------------------------------------------------------------------------------- */

static gboolean
check_costs (const SpLoggp *costs, GError **error)
{
  double most = costs->jitter == SP_JITTER_UNIFORM ? 1 : G_MAXDOUBLE;

  if (costs->latency >= 0 && costs->overhead >= 0 && costs->gap >= 0 && costs->gap_per_byte_ps >= 0 &&
      isfinite (costs->gap_per_byte_ps) && costs->spread >= 0 && costs->spread <= most)
    return TRUE;
  g_set_error (error, SP_LOGGP_ERROR, SP_LOGGP_ERROR_COSTS,
               "latency %" G_GINT64_FORMAT " ps, overhead %" G_GINT64_FORMAT " ps, gap %" G_GINT64_FORMAT
               " ps, gap per byte %g ps, spread %g: expected 0 or more, finite%s",
               costs->latency, costs->overhead, costs->gap, costs->gap_per_byte_ps, costs->spread,
               costs->jitter == SP_JITTER_UNIFORM ? ", and a uniform spread of 1 at most" : "");
  return FALSE;
}

/* A message of a step follows from those of earlier steps, so the longest chain has one of each. */
static gboolean
check_duration (const SpLoggp *costs, const SpPattern *pattern, const SpTime *starts, GError **error)
{
  double sum_ps = 0, start_ps = 0;

  for (guint32 i = 0; i < pattern->steps->len; i++) {
    const SpPatternStep *step = &g_array_index (pattern->steps, SpPatternStep, i);
    double work_ps = 2 * (double) costs->overhead + (double) costs->latency + (double) step->compute;
    sum_ps += work_ps * largest_factor (costs) + 2 * ((double) costs->gap + bytes_time_ps (costs, step));
  }
  for (guint32 id = 0; starts != NULL && id < pattern->n_ranks; id++) {
    g_return_val_if_fail (starts[id] >= 0, FALSE);
    start_ps = MAX (start_ps, (double) starts[id]);
  }
  if (sum_ps + start_ps < MOST_PS)
    return TRUE;
  g_set_error (error, SP_LOGGP_ERROR, SP_LOGGP_ERROR_COSTS, "%u steps may take %g s: expected less than %g s",
               pattern->steps->len, (sum_ps + start_ps) / SP_PS_PER_S, MOST_PS / SP_PS_PER_S);
  return FALSE;
}

static gboolean
check_end (const Run *run, GError **error)
{
  gboolean is_waiting = run->waiting->len > 0;
  const GArray *list = is_waiting ? run->waiting : run->strays;
  g_autoptr (GString) named = g_string_new (NULL);

  if (list->len == 0)
    return TRUE;
  for (guint i = 0; i < MIN (list->len, NAMED); i++) {
    const Wait *wait = &g_array_index (list, Wait, i);
    g_string_append_printf (named, "%srank %u in step %u %s rank %u", i > 0 ? ", " : "", wait->rank, wait->step,
                            is_waiting ? "for" : "to", wait->partner);
  }
  if (list->len > NAMED)
    g_string_append_printf (named, ", and %u more", list->len - NAMED);
  if (is_waiting)
    g_set_error (error, SP_LOGGP_ERROR, SP_LOGGP_ERROR_WAITING,
                 "%u of %u ranks wait for a message that does not come: %s", list->len, run->n_ranks, named->str);
  else
    g_set_error (error, SP_LOGGP_ERROR, SP_LOGGP_ERROR_WAITING, "nobody waits for %u messages: %s", list->len,
                 named->str);
  return FALSE;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

static void
report (const Run *run, SpTime *ret_finishes, SpLoggpResult *ret_result)
{
  *ret_result = (SpLoggpResult){ .messages = run->n_received };
  for (guint32 id = 0; id < run->n_ranks; id++) {
    ret_result->makespan = MAX (ret_result->makespan, run->ranks[id].free_at);
    if (ret_finishes != NULL)
      ret_finishes[id] = run->ranks[id].free_at;
  }
}

gboolean
sp_loggp_run (const SpLoggp *costs, const SpPattern *pattern, const SpTime *starts, SpTime *ret_finishes,
              SpLoggpResult *ret_result, GError **error)
{
  if (!check_costs (costs, error) || !check_duration (costs, pattern, starts, error))
    return FALSE;

  Run run = { .costs = costs, .n_ranks = pattern->n_ranks };
  run.ranks = g_new (Rank, run.n_ranks);
  run.waiting = g_array_new (FALSE, FALSE, sizeof (Wait));
  run.strays = g_array_new (FALSE, FALSE, sizeof (Wait));
  run_all (&run, pattern, starts);
  gboolean is_through = check_end (&run, error);
  if (is_through)
    report (&run, ret_finishes, ret_result);
  g_array_unref (run.waiting);
  g_array_unref (run.strays);
  g_free (run.ranks);
  return is_through;
}
