/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/transfer-waits.h"

#include <math.h>
#include <stdlib.h>

/* --- ends --------------------------------------------------------------------------------------------------------- */

static gint
compare_keys (const SpTransferEnd *a, const SpTransferEnd *b)
{
  const gint64 x[] = { a->group, a->back, a->from, a->to, a->number };
  const gint64 y[] = { b->group, b->back, b->from, b->to, b->number };

  for (guint i = 0; i < G_N_ELEMENTS (x); i++)
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  return 0;
}

/* How many there were between the same ranks; one more from now on. `counts` has an end for each kind, by number. */
static guint32
next_number (GArray *counts, const SpTransferEnd *end)
{
  SpTransferEnd one = *end;

  for (guint i = 0; i < counts->len; i++) {
    SpTransferEnd *count = &g_array_index (counts, SpTransferEnd, i);
    one.number = count->number;
    if (compare_keys (count, &one) == 0)
      return count->number++;
  }
  one.number = 1;
  g_array_append_val (counts, one);
  return 0;
}

static void
add_end (GArray *ends, GArray *counts, SpTransferEnd end)
{
  end.number = next_number (counts, &end);
  g_array_append_val (ends, end);
}

static gboolean
moves (const SpCommand *command)
{
  return sp_op_is_communication (command->op.kind) && !sp_op_is_host_copy (command->op.kind) && command->size > 1;
}

GArray *
sp_transfer_ends_new (const SpProgram *program, const SpRecording *recording)
{
  GArray *ends = g_array_new (FALSE, TRUE, sizeof (SpTransferEnd));
  g_autoptr (GArray) counts = g_array_new (FALSE, FALSE, sizeof (SpTransferEnd));
  gint32 rank = recording->rank;

  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    SpTransferEnd end = { .rank = rank, .command = (gint32) i, .waited_s = -1, .took_s = -1, .to = -1 };
    gboolean message = command->to >= 0 || command->from >= 0;
    if (!moves (command))
      continue;
    end.group = command->op.group;
    end.back = command->queue == SP_QUEUE_PIPELINE_BACK;
    end.one_way = command->op.kind != SP_OP_SEND_RECEIVE && message;
    end.from = rank;
    end.to = command->to;
    if (command->to >= 0)
      add_end (ends, counts, end);
    end.from = command->from;
    end.to = rank;
    if (command->from >= 0)
      add_end (ends, counts, end);
    end.from = sp_program_member (program, command->op.group, rank, 0);
    end.to = -1;
    if (!message)
      add_end (ends, counts, end);
  }
  return ends;
}

/* --- the split ---------------------------------------------------------------------------------------------------- */

static int
compare_ends (const void *a, const void *b)
{
  const SpTransferEnd *x = *(const SpTransferEnd *const *) a, *y = *(const SpTransferEnd *const *) b;
  gint keys = compare_keys (x, y);

  return keys != 0 ? keys : (x > y) - (x < y);
}

/* Of one transfer. */
static void
split_transfer (SpTransferEnd **ends, guint n)
{
  double waited_s = INFINITY, took_s = INFINITY;

  for (guint i = 0; i < n; i++) {
    waited_s = MIN (waited_s, ends[i]->waited_s >= 0 ? ends[i]->waited_s : INFINITY);
    took_s = MIN (took_s, ends[i]->took_s >= 0 ? ends[i]->took_s : INFINITY);
  }
  for (guint i = 0; i < n; i++)
    ends[i]->own_s = MAX (MIN (ends[i]->waited_s, ends[i]->one_way ? took_s : waited_s), 0);
}

void
sp_transfer_ends_split (SpTransferEnd *ends, guint n)
{
  g_autofree SpTransferEnd **sorted = g_new (SpTransferEnd *, MAX (n, 1));

  for (guint i = 0; i < n; i++)
    sorted[i] = &ends[i];
  qsort (sorted, n, sizeof *sorted, compare_ends);
  for (guint i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && compare_keys (sorted[i], sorted[end]) == 0; end++)
      ;
    split_transfer (sorted + i, end - i);
  }
  for (guint i = 1; i < n; i++)
    if (ends[i].rank == ends[i - 1].rank && ends[i].command == ends[i - 1].command)
      ends[i].own_s = ends[i - 1].own_s = MIN (ends[i].own_s, ends[i - 1].own_s);
}
