/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/queue.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ALLOCATED 64
#define BEYOND (~(SpEventKey) 0) /* later than every event */

G_STATIC_ASSERT (sizeof (SpEventKey) == 16);
G_STATIC_ASSERT (8 + SP_QUEUE_SEQUENCE_BITS + SP_QUEUE_PAYLOAD_BITS == 64);
G_STATIC_ASSERT (SP_N_EVENT_CLASSES < 256);

/* The last event moves to the root. */
void
sp_queue_fill_root_ (SpQueue *queue)
{
  SpEventKey last = queue->heap[queue->n];

  queue->root_is_empty = FALSE;
  queue->heap[queue->n--] = BEYOND;
  if (queue->n > 0)
    sp_queue_sink_ (queue, last);
}

/* Aligned, so that two siblings lie in one cache line. */
void
sp_queue_grow_ (SpQueue *queue)
{
  guint32 allocated = queue->allocated > 0 ? 2 * queue->allocated : FIRST_ALLOCATED;
  gsize bytes = (gsize) allocated * sizeof (SpEventKey), used = (gsize) queue->allocated * sizeof (SpEventKey);

  if (queue->allocated >= SP_QUEUE_MAX_PENDING)
    g_error ("more than %u pending events", SP_QUEUE_MAX_PENDING);
  SpEventKey *heap = aligned_alloc (64, bytes);
  if (heap == NULL)
    g_error ("no memory for %u events", allocated);
  if (used > 0)
    memcpy (heap, queue->heap, used);
  memset ((char *) heap + used, 0xff, bytes - used); /* BEYOND */
  free (queue->heap);
  queue->heap = heap;
  queue->allocated = allocated;
}

static int
compare_keys (const void *a, const void *b)
{
  SpEventKey left = *(const SpEventKey *) a, right = *(const SpEventKey *) b;

  return (left > right) - (left < right);
}

/* Numbers the pending events from 0, in their order. A sorted array is a heap. */
void
sp_queue_number_anew_ (SpQueue *queue)
{
  if (queue->root_is_empty)
    sp_queue_fill_root_ (queue);
  if (queue->n > 0)
    qsort (queue->heap + 1, queue->n, sizeof (SpEventKey), compare_keys);
  for (guint32 i = 1; i <= queue->n; i++) {
    SpEvent event = sp_queue_event_ (queue->heap[i]);
    queue->heap[i] = sp_queue_key_ (event.time, event.class, i - 1, event.payload);
  }
  queue->next_sequence = queue->n;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

void
sp_queue_init (SpQueue *queue)
{
  *queue = (SpQueue){ 0 };
  sp_queue_grow_ (queue);
}

void
sp_queue_clear (SpQueue *queue)
{
  free (queue->heap);
  *queue = (SpQueue){ 0 };
}
