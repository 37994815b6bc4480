/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The event queue: what happens next in simulated time.
 *
 * An event says when (picoseconds), of what CLASS it is and which thing it concerns: an index that the caller gives and
 * gets back. It is 16 bytes and holds no pointer and no callback: the class selects the code, the index the state.
 *
 *    high 64 bits  time, ps, 0 or more
 *    low  64 bits  class 8 | sequence 28 | payload 28
 *
 * Two events compare as these 128 bits read as one unsigned number. So events of one date come by class, and within a
 * class in the order in which they were pushed: the same input gives the same trace, byte for byte. The payload never
 * decides, because no two pending events share a sequence number. Sequence numbers run out every 268 M pushes; the
 * pending events are then numbered anew from 0 in their order, which no caller can see.
 *
 * Which queue, and why. A binary heap in one array, in which the root goes down without a branch that depends on the
 * data: the smaller child is picked by arithmetic, and the walk always reaches the bottom, exchanging minimum and
 * maximum on its way, because the walk that stops where the new event belongs mispredicts that stop once an operation.
 * A pop leaves the root empty and the next push fills it, so that the engine's usual "take an event, schedule its
 * successor" costs one walk down instead of two. Millions of such pairs a second (tests/bench-queue.c: uniform random
 * delays, one core of a 2-core AMD EPYC virtual machine, gcc 12 -O3, CPU time, best of 5), and what was rejected,
 * measured in the same manner:
 *
 *    pending                          64   1,024   4,096  16,384  65,536  262,144
 *    this heap                        66      37      29      22      15        8
 *    stops where the event belongs    43      35      28      22      16        8
 *    four children, branch-free       33      21      17      13      10        7
 *    pop, then push from the bottom   42      29      25      20      15        9
 *
 * An operation costs O(log n): 15 ns at 64 pending events and 4 to 5 ns for each doubling, until the array leaves the
 * cache. The length matters more than the structure, so keep ONE pending event a resource and let the rest wait in the
 * resource. There is no cancel: an event that may become void carries an index whose state says so.
 *
 * A queue is a value: init and clear it, or let it go with g_auto. Nothing is global. It grows and never shrinks, so a
 * steady state allocates nothing.
 *
 * Programmer errors, checked always: an event before the last one popped (the past), a negative date, a payload beyond
 * SP_QUEUE_MAX_PAYLOAD, looking into an empty queue. From SP_QUEUE_MAX_PENDING pending events on the run aborts.
 */

#include "sim/clock.h"

G_BEGIN_DECLS

#define SP_QUEUE_PAYLOAD_BITS 28
#define SP_QUEUE_SEQUENCE_BITS 28
#define SP_QUEUE_MAX_PAYLOAD ((1u << SP_QUEUE_PAYLOAD_BITS) - 1)
#define SP_QUEUE_MAX_PENDING (1u << (SP_QUEUE_SEQUENCE_BITS - 1))

/* At one date, in this order: first all that frees something, then what takes it, so that a resource that is freed and
 * wanted at the same instant is never seen busy. */
typedef enum {
  SP_EVENT_FAULT,       /* a link or rank changes its speed */
  SP_EVENT_FLOWS,       /* flows are through; payload: the network */
  SP_EVENT_ARRIVAL,     /* a message has crossed its latency; payload: the message */
  SP_EVENT_TASK_FINISH, /* payload: the stream, whose task is done */
  SP_EVENT_TASK_START,  /* payload: the stream, which may begin its next task */
  SP_EVENT_SAMPLE,      /* looks at the state, and changes nothing */
  SP_N_EVENT_CLASSES
} SpEventClass;

typedef struct {
  SpTime time;
  guint32 payload;
  SpEventClass class;
} SpEvent;

typedef unsigned __int128 SpEventKey;

/* Fields are the queue's own, but for tests. */
typedef struct {
  SpEventKey
      *heap; /* root at 1, children of i at 2i and 2i+1; beyond the last event all ones, to the end of the array */
  guint32 n; /* slots in use, the empty root too */
  guint32 allocated; /* slots */
  guint32 next_sequence;
  gboolean root_is_empty;
  SpTime now; /* of the last event popped */
} SpQueue;

void sp_queue_init (SpQueue *queue);
void sp_queue_clear (SpQueue *queue);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpQueue, sp_queue_clear)

/* For the inline functions below: what happens rarely. */
void sp_queue_fill_root_ (SpQueue *queue);   /* after a pop that no push has followed */
void sp_queue_grow_ (SpQueue *queue);        /* doubles the array, or aborts beyond SP_QUEUE_MAX_PENDING */
void sp_queue_number_anew_ (SpQueue *queue); /* sequence numbers have run out */

/* --- the heap ----------------------------------------------------------------------------------------------------- */

/* Writes `key` into the root and restores the order. Always walks to the bottom, with no branch but the loop's own:
 * once `key` has found its place, the exchange only puts each event of the path back where it was. A missing right
 * child is later than every event. */
static inline void
sp_queue_sink_ (SpQueue *queue, SpEventKey key)
{
  SpEventKey *heap = queue->heap;
  guint32 n = queue->n, at = 1, child;

  while ((child = 2 * at) <= n) {
    SpEventKey left = heap[child], right = heap[child + 1];
    gboolean is_right = right < left;
    SpEventKey smaller = is_right ? right : left;
    gboolean is_before = smaller < key;

    child += (guint32) is_right;
    heap[at] = is_before ? smaller : key;
    key = is_before ? key : smaller;
    at = child;
  }
  heap[at] = key;
}

static inline SpEventKey
sp_queue_key_ (SpTime time, SpEventClass class, guint32 sequence, guint32 payload)
{
  guint64 low = (guint64) class << (SP_QUEUE_SEQUENCE_BITS + SP_QUEUE_PAYLOAD_BITS) |
                (guint64) sequence << SP_QUEUE_PAYLOAD_BITS | payload;

  return (SpEventKey) (guint64) time << 64 | low;
}

static inline SpEventKey
sp_queue_next_key_ (SpQueue *queue, SpTime time, SpEventClass class, guint32 payload)
{
  if (G_UNLIKELY (queue->next_sequence >> SP_QUEUE_SEQUENCE_BITS))
    sp_queue_number_anew_ (queue);
  return sp_queue_key_ (time, class, queue->next_sequence++, payload);
}

static inline SpEvent
sp_queue_event_ (SpEventKey key)
{
  guint64 low = (guint64) key;

  return (SpEvent){ .time = (SpTime) (key >> 64),
                    .payload = low & SP_QUEUE_MAX_PAYLOAD,
                    .class = (SpEventClass) (low >> (SP_QUEUE_SEQUENCE_BITS + SP_QUEUE_PAYLOAD_BITS)) };
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

/* Events that are pending. */
static inline guint32
sp_queue_length (const SpQueue *queue)
{
  return queue->n - (guint32) queue->root_is_empty;
}

static inline void
sp_queue_push (SpQueue *queue, SpTime time, SpEventClass class, guint32 payload)
{
  g_return_if_fail (time >= queue->now && (guint) class < SP_N_EVENT_CLASSES && payload <= SP_QUEUE_MAX_PAYLOAD);

  SpEventKey key = sp_queue_next_key_ (queue, time, class, payload);
  if (queue->root_is_empty) {
    queue->root_is_empty = FALSE;
    sp_queue_sink_ (queue, key);
    return;
  }
  /* One slot beyond the last event stays free: the right child that is missing. */
  if (G_UNLIKELY (queue->n + 2 >= queue->allocated))
    sp_queue_grow_ (queue);
  SpEventKey *heap = queue->heap;
  guint32 at = ++queue->n;
  for (; at > 1 && key < heap[at / 2]; at /= 2)
    heap[at] = heap[at / 2];
  heap[at] = key;
}

/* The date of the first event, SP_TIME_NEVER if there is none. */
static inline SpTime
sp_queue_next_time (SpQueue *queue)
{
  if (queue->root_is_empty)
    sp_queue_fill_root_ (queue);
  return queue->n > 0 ? (SpTime) (queue->heap[1] >> 64) : SP_TIME_NEVER;
}

/* The first event, which stays. The queue is not empty. */
static inline SpEvent
sp_queue_peek (SpQueue *queue)
{
  if (queue->root_is_empty)
    sp_queue_fill_root_ (queue);
  g_return_val_if_fail (queue->n > 0, (SpEvent){ .time = SP_TIME_NEVER });
  return sp_queue_event_ (queue->heap[1]);
}

/* The first event, which is taken out. The queue is not empty. */
static inline SpEvent
sp_queue_pop (SpQueue *queue)
{
  if (queue->root_is_empty)
    sp_queue_fill_root_ (queue);
  g_return_val_if_fail (queue->n > 0, (SpEvent){ .time = SP_TIME_NEVER });
  SpEvent event = sp_queue_event_ (queue->heap[1]);
  queue->root_is_empty = TRUE;
  queue->now = event.time;
  return event;
}

/* Takes the first event out and puts another in: the same as sp_queue_pop() and then sp_queue_push(). */
static inline void
sp_queue_replace_top (SpQueue *queue, SpTime time, SpEventClass class, guint32 payload)
{
  sp_queue_pop (queue);
  sp_queue_push (queue, time, class, payload);
}

G_END_DECLS
