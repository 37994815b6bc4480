/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The same patterns with the same costs as sim/loggp.h, run with an event queue: a second way to the result, for tests
 * and to compare. Each rank walks until it must wait; an event is a message that is there. */

#include "sim/loggp.h"
#include "sim/queue.h"

#include <string.h>

typedef struct {
  SpTime free_at, may_send_at, may_receive_at;
  guint32 step;
} EventRank;

typedef struct {
  guint32 to, step;
} EventMessage;

typedef struct {
  const SpLoggp *costs;
  const SpPattern *pattern;
  EventRank *ranks;
  guint8 *is_there; /* [ranks x steps]: messages that came before they were waited for */
  EventMessage *messages;
  guint32 *free_messages, n_free;
  SpQueue queue;
} EventRun;

static inline const SpPatternStep *
event_step (const EventRun *run, guint32 index)
{
  return &g_array_index (run->pattern->steps, SpPatternStep, index);
}

static inline guint8 *
event_flag (const EventRun *run, guint32 id, guint32 step)
{
  return &run->is_there[(gsize) id * run->pattern->steps->len + step];
}

static inline SpTime
event_bytes_time (const EventRun *run, const SpPatternStep *step)
{
  return step->bytes > 1 ? (SpTime) llrint ((double) (step->bytes - 1) * run->costs->gap_per_byte_ps) : 0;
}

static inline SpTime
event_times (SpTime time, double factor)
{
  return (SpTime) llrint ((double) time * factor);
}

static inline void
event_receive (EventRun *run, guint32 id)
{
  EventRank *rank = &run->ranks[id];
  const SpPatternStep *step = event_step (run, rank->step);
  double work = sp_loggp_factors (run->costs, id, rank->step).work;
  SpTime at = MAX (rank->free_at, rank->may_receive_at);

  rank->free_at = at + event_times (run->costs->overhead + step->compute, work);
  rank->may_receive_at = at + run->costs->gap + event_bytes_time (run, step);
  rank->step++;
}

static inline void
event_send (EventRun *run, guint32 id, guint32 to)
{
  EventRank *rank = &run->ranks[id];
  const SpPatternStep *step = event_step (run, rank->step);
  SpLoggpFactors factors = sp_loggp_factors (run->costs, id, rank->step);
  SpTime at = MAX (rank->free_at, rank->may_send_at), bytes_time = event_bytes_time (run, step);
  guint32 message = run->free_messages[--run->n_free];

  rank->free_at = at + event_times (run->costs->overhead, factors.work);
  rank->may_send_at = at + run->costs->gap + bytes_time;
  run->messages[message] = (EventMessage){ to, rank->step };
  sp_queue_push (&run->queue, rank->free_at + bytes_time + event_times (run->costs->latency, factors.flight),
                 SP_EVENT_ARRIVAL, message);
}

static inline void
event_walk (EventRun *run, guint32 id)
{
  EventRank *rank = &run->ranks[id];
  guint32 n_ranks = run->pattern->n_ranks;

  while (rank->step < run->pattern->steps->len) {
    const SpPatternStep *step = event_step (run, rank->step);
    guint32 to = sp_partner_of (&step->to, id, n_ranks), from = sp_partner_of (&step->from, id, n_ranks);
    if (to != SP_NO_RANK)
      event_send (run, id, to);
    if (from != SP_NO_RANK && !*event_flag (run, id, rank->step))
      return;
    if (from != SP_NO_RANK) {
      event_receive (run, id);
      continue;
    }
    if (step->from.rule == SP_PARTNER_NONE)
      rank->free_at += event_times (step->compute, sp_loggp_factors (run->costs, id, rank->step).work);
    rank->step++;
  }
}

/* At most `most_messages` are on their way at once. The pattern must come to an end. */
static inline void
event_run (const SpLoggp *costs, const SpPattern *pattern, guint32 most_messages, const SpTime *starts,
           SpTime *ret_finishes)
{
  guint32 n = pattern->n_ranks;
  EventRun run = { .costs = costs, .pattern = pattern, .n_free = most_messages };
  g_autofree EventRank *ranks = run.ranks = g_new0 (EventRank, n);
  g_autofree guint8 *is_there = run.is_there = g_new0 (guint8, (gsize) n * pattern->steps->len + 1);
  g_autofree EventMessage *messages = run.messages = g_new (EventMessage, most_messages);
  g_autofree guint32 *free_messages = run.free_messages = g_new (guint32, most_messages);

  for (guint32 i = 0; i < most_messages; i++)
    free_messages[i] = i;
  sp_queue_init (&run.queue);
  for (guint32 id = 0; id < n; id++) {
    ranks[id].free_at = starts != NULL ? starts[id] : 0;
    event_walk (&run, id);
  }
  while (sp_queue_length (&run.queue) > 0) {
    SpEvent event = sp_queue_pop (&run.queue);
    EventMessage message = messages[event.payload];
    EventRank *rank = &ranks[message.to];
    free_messages[run.n_free++] = event.payload;
    if (rank->step != message.step) {
      *event_flag (&run, message.to, message.step) = TRUE;
      continue;
    }
    rank->free_at = MAX (rank->free_at, event.time);
    event_receive (&run, message.to);
    event_walk (&run, message.to);
  }
  for (guint32 id = 0; id < n; id++) {
    g_assert_cmpuint (ranks[id].step, ==, pattern->steps->len);
    ret_finishes[id] = ranks[id].free_at;
  }
  sp_queue_clear (&run.queue);
}
