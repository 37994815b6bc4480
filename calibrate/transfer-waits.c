/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/transfer-waits.h"

#include <math.h>
#include <stdlib.h>

/* What the same transfers have in common on all their ranks. */
static gint
compare_keys (const SpTransferWait *a, const SpTransferWait *b)
{
  const gint64 x[] = { a->group, a->back, a->phase, a->from, a->to, a->number };
  const gint64 y[] = { b->group, b->back, b->phase, b->from, b->to, b->number };

  for (guint i = 0; i < G_N_ELEMENTS (x); i++)
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  return 0;
}

/* The one of the same group and phase, of this rank; NULL: none yet. */
static SpTransferWait *
find_group (GArray *waits, const SpTransferWait *like)
{
  for (guint i = 0; i < waits->len; i++) {
    SpTransferWait *wait = &g_array_index (waits, SpTransferWait, i);
    if (compare_keys (wait, like) == 0)
      return wait;
  }
  return NULL;
}

static void
add_group (const SpProgram *program, GArray *waits, SpTransferWait wait)
{
  wait.from = sp_program_member (program, wait.group, wait.rank, 0);
  wait.to = -1;
  SpTransferWait *sum = find_group (waits, &wait);
  if (sum == NULL)
    g_array_append_val (waits, wait);
  else
    sum->waited_s += wait.waited_s, sum->command = wait.command;
}

static void
add_message (GArray *waits, SpTransferWait wait, gint32 from, gint32 to)
{
  wait.from = from;
  wait.to = to;
  for (guint i = 0; i < waits->len; i++) {
    const SpTransferWait *before = &g_array_index (waits, SpTransferWait, i);
    wait.number += before->group == wait.group && before->back == wait.back && before->from == from && before->to == to;
  }
  g_array_append_val (waits, wait);
}

static gboolean
moves (const SpCommand *command)
{
  return sp_op_is_communication (command->op.kind) && !sp_op_is_host_copy (command->op.kind) && command->size > 1;
}

GArray *
sp_transfer_waits_new (const SpProgram *program, const SpRecording *recording, const double *waited_s,
                       const double *took_s)
{
  GArray *waits = g_array_new (FALSE, TRUE, sizeof (SpTransferWait));
  gint32 rank = recording->rank;

  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    SpTransferWait wait = { .rank = rank,
                            .command = (gint32) i,
                            .group = command->op.group,
                            .back = command->queue == SP_QUEUE_PIPELINE_BACK,
                            .phase = command->phase,
                            .size = command->size,
                            .waited_s = waited_s[i],
                            .took_s = took_s[i] };
    if (!moves (command))
      continue;
    if (!sp_op_is_one_way (command->op.kind)) {
      if (waited_s[i] >= 0)
        add_group (program, waits, wait);
    } else if (command->to >= 0)
      add_message (waits, wait, rank, command->to);
    else
      add_message (waits, wait, command->from, rank);
  }
  return waits;
}

/* --- the split ---------------------------------------------------------------------------------------------------- */

static int
compare_waits (const void *a, const void *b)
{
  const SpTransferWait *x = *(const SpTransferWait *const *) a, *y = *(const SpTransferWait *const *) b;
  gint keys = compare_keys (x, y);

  return keys != 0 ? keys : (x > y) - (x < y);
}

/* Of the same transfers. */
static void
split (SpTransferWait **waits, guint n)
{
  gboolean together = waits[0]->to < 0;
  double least_s = together && n < (guint) waits[0]->size ? 0 : INFINITY; /* who has no wait there stood for nothing */

  for (guint i = 0; i < n; i++)
    least_s = MIN (least_s, together ? waits[i]->waited_s : waits[i]->took_s);
  for (guint i = 0; i < n; i++)
    waits[i]->own_s = MAX (MIN (waits[i]->waited_s, least_s), 0);
}

void
sp_transfer_waits_split (SpTransferWait *waits, guint n)
{
  g_autofree SpTransferWait **sorted = g_new (SpTransferWait *, MAX (n, 1));

  for (guint i = 0; i < n; i++)
    sorted[i] = &waits[i];
  qsort (sorted, n, sizeof *sorted, compare_waits);
  for (guint i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && compare_keys (sorted[i], sorted[end]) == 0; end++)
      ;
    split (sorted + i, end - i);
  }
}
