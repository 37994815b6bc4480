/* SPDX-License-Identifier: Apache-2.0 */
/* The executor's waits: steps that are timed where kernels wait for other queues. */
#include <stdlib.h>

#include "calibrate/execute-private.h"
#include "calibrate/transfer-waits.h"

/* What COMPUTE waited for others in a step that was timed there alone, and what of it was the transfers' own. */
typedef struct {
  double all_s, own_s, of_s[SP_N_OPS];
  gint64 times[SP_N_OPS];
} Waits;

static int
compare_waits (const void *a, const void *b)
{
  double x = ((const Waits *) a)->all_s, y = ((const Waits *) b)->all_s;

  return (x > y) - (x < y);
}

static int
compare_own (const void *a, const void *b)
{
  double x = ((const Waits *) a)->own_s, y = ((const Waits *) b)->own_s;

  return (x > y) - (x < y);
}

static void
write_waits (const SpExecuteRun *run, int rank, const Waits *waits)
{
  sp_execute_write_row (run, rank, "exposed", "", 0, 0, 0, 0, 0, waits->all_s);
  sp_execute_write_row (run, rank, "exposed-transfer", "", 0, 0, 0, 0, 0, waits->own_s);
  for (guint op = 0; op < SP_N_OPS; op++)
    if (waits->times[op] > 0)
      sp_execute_write_row (run, rank, "wait", sp_op_name (op), 0, waits->times[op], 0, 0, 0, waits->of_s[op]);
}

/* Of this rank's waits in the last step those for transfers between ranks; of the others, which are their own, the sum. */
static GArray *
transfer_waits (const SpExecuteRun *run, double *ret_other_s)
{
  const SpPlayerWait *waits = sp_player_waits (run->player);
  guint n = run->recording->commands->len;
  g_autofree double *waited_s = g_new (double, n + 1), *took_s = g_new (double, n + 1);

  *ret_other_s = 0;
  for (guint i = 0; i < n; i++) {
    waited_s[i] = waits[i].times > 0 ? waits[i].waited_s : -1;
    took_s[i] = waits[i].took_s;
    *ret_other_s += waits[i].waited_s;
  }
  GArray *all = sp_transfer_waits_new (run->program, run->recording, waited_s, took_s);
  for (guint i = 0; i < all->len; i++)
    *ret_other_s -= MAX (g_array_index (all, SpTransferWait, i).waited_s, 0);
  return all;
}

/* What of this rank's waits in the last step was the transfers' own. All ranks together. */
static gboolean
gather_own (SpExecuteRun *run, double *ret_s, GError **error)
{
  int size = sp_ranks_size (run->rank), rank = run->rank->rank;
  g_autoptr (GArray) mine = transfer_waits (run, ret_s);
  gint64 n = mine->len, most = 0;
  g_autofree gint64 *counts = g_new (gint64, size);

  if (!sp_ranks_gather (run->rank, &n, sizeof n, counts, error))
    return FALSE;
  for (int r = 0; r < size; r++)
    most = MAX (most, counts[r]);
  g_autofree SpTransferWait *all = g_new0 (SpTransferWait, most * size + 1);
  g_array_set_size (mine, (guint) most); /* of nobody, from there on */
  for (gint64 i = n; i < most; i++)
    g_array_index (mine, SpTransferWait, i).rank = -1;
  if (!sp_ranks_gather (run->rank, mine->data, (gsize) most * sizeof *all, all, error))
    return FALSE;
  sp_transfer_waits_split (all, (guint) (most * size));
  for (gint64 i = 0; i < n; i++)
    *ret_s += all[most * rank + i].own_s;
  return TRUE;
}

static Waits
waits_of (const SpExecuteRun *run)
{
  const SpPlayerWait *waits = sp_player_waits (run->player);
  Waits sum = { 0 };

  for (guint i = 0; i < run->recording->commands->len; i++) {
    guint op = g_array_index (run->recording->commands, SpCommand, i).op.kind;
    sum.times[op] += waits[i].times;
    sum.of_s[op] += waits[i].waited_s;
    sum.all_s += waits[i].waited_s;
  }
  return sum;
}

static gboolean
gather_each_wait (SpExecuteRun *run, guint repeat, GError **error)
{
  const SpPlayerWait *waits = sp_player_waits (run->player);
  g_autoptr (GArray) timed = g_array_new (FALSE, TRUE, sizeof (SpExecuteTimed));

  for (guint i = 0; i < run->recording->commands->len; i++) {
    SpExecuteTimed one = sp_execute_timed (run, i, MAX (waits[i].took_s, 0), waits[i].waited_s);
    if (waits[i].times > 0 || waits[i].took_s >= 0)
      g_array_append_val (timed, one);
  }
  return sp_execute_gather_timed (run, timed, "waited", repeat, error);
}

static gboolean
time_waits (SpExecuteRun *run, guint repeat, Waits *ret, GError **error)
{
  g_autofree double *all = g_new (double, sp_ranks_size (run->rank));
  double step_s = 0;

  if (!sp_ranks_gather (run->rank, &step_s, sizeof step_s, all, error) ||
      !sp_player_step (run->player, SP_TIMING_WAITS, &step_s, error))
    return FALSE;
  *ret = waits_of (run);
  return gather_own (run, &ret->own_s, error) && (!run->execution->commands || gather_each_wait (run, repeat, error));
}

/* The middle ones of some steps, on each rank. */
gboolean
sp_execute_gather_waits (SpExecuteRun *run, GError **error)
{
  enum { STEPS = 7 }; /* odd: one is the middle */
  int size = sp_ranks_size (run->rank);
  g_autofree Waits *all = g_new (Waits, MAX (size, STEPS));
  Waits mine;

  for (guint i = 0; i < STEPS; i++)
    if (!time_waits (run, i, &all[i], error))
      return FALSE;
  qsort (all, STEPS, sizeof *all, compare_own);
  double own_s = all[STEPS / 2].own_s;
  qsort (all, STEPS, sizeof *all, compare_waits);
  mine = all[STEPS / 2];
  mine.own_s = own_s;
  if (!sp_ranks_gather (run->rank, &mine, sizeof mine, all, error))
    return FALSE;
  for (int r = 0; run->out != NULL && r < size; r++)
    write_waits (run, r, &all[r]);
  return TRUE;
}
