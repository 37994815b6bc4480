/* SPDX-License-Identifier: Apache-2.0 */
/* The executor's waits: steps that are timed where kernels wait for other queues. */
#include <stdlib.h>

#include "calibrate/execute-private.h"
#include "calibrate/transfer-waits.h"

/* What COMPUTE waited for others in a step that was timed there alone, and what of it was the transfers' own. */
typedef struct {
  double all_s, own_s, of_s[SP_N_OPS], own_of_s[SP_N_OPS];
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
      sp_execute_write_row (run, rank, "wait", sp_op_name (op), 0, waits->times[op], 0, 0, waits->own_of_s[op],
                            waits->of_s[op]);
}

/* Ends of all ranks, `most` of each, with the times of the last step. All ranks together. */
static SpTransferEnd *
gather_ends (SpExecuteRun *run, GArray *mine, gint64 most, GError **error)
{
  int size = sp_ranks_size (run->rank);
  const SpPlayerWait *waits = sp_player_waits (run->player);
  g_autofree SpTransferEnd *all = g_new0 (SpTransferEnd, most * size + 1), *own = g_new0 (SpTransferEnd, most + 1);

  for (guint i = 0; i < most; i++) {
    own[i] = (SpTransferEnd){ .rank = -1, .command = -1, .waited_s = -1, .took_s = -1 };
    if (i >= mine->len)
      continue;
    own[i] = g_array_index (mine, SpTransferEnd, i);
    own[i].waited_s = waits[own[i].command].times > 0 ? waits[own[i].command].waited_s : -1;
    own[i].took_s = waits[own[i].command].took_s;
  }
  if (!sp_ranks_gather (run->rank, own, (gsize) most * sizeof *own, all, error))
    return NULL;
  sp_transfer_ends_split (all, (guint) (most * size));
  return g_steal_pointer (&all);
}

/* Of the last step, on this rank. `ends` may lack commands that are no transfer between ranks: theirs is their own. */
static Waits
waits_of (const SpExecuteRun *run, const SpTransferEnd *ends, gint64 n)
{
  const SpPlayerWait *waits = sp_player_waits (run->player);
  guint n_commands = run->recording->commands->len;
  g_autofree double *own_s = g_new (double, n_commands + 1);
  Waits sum = { 0 };

  for (guint i = 0; i < n_commands; i++)
    own_s[i] = waits[i].waited_s;
  for (gint64 i = 0; i < n; i++)
    if (ends[i].command >= 0)
      own_s[ends[i].command] = ends[i].own_s;
  for (guint i = 0; i < n_commands; i++) {
    guint op = g_array_index (run->recording->commands, SpCommand, i).op.kind;
    sum.times[op] += waits[i].times;
    sum.of_s[op] += waits[i].waited_s;
    sum.own_of_s[op] += own_s[i];
    sum.all_s += waits[i].waited_s;
    sum.own_s += own_s[i];
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
time_waits (SpExecuteRun *run, GArray *ends, guint repeat, Waits *ret, GError **error)
{
  int size = sp_ranks_size (run->rank);
  gint64 n = ends->len, most = 0;
  g_autofree gint64 *counts = g_new (gint64, size);
  double step_s;

  if (!sp_ranks_gather (run->rank, &n, sizeof n, counts, error) ||
      !sp_player_step (run->player, SP_TIMING_WAITS, &step_s, error))
    return FALSE;
  for (int r = 0; r < size; r++)
    most = MAX (most, counts[r]);
  g_autofree SpTransferEnd *all = gather_ends (run, ends, most, error);
  if (all == NULL)
    return FALSE;
  *ret = waits_of (run, all + most * run->rank->rank, most);
  return !run->execution->commands || gather_each_wait (run, repeat, error);
}

/* The middle ones of some steps, on each rank. */
gboolean
sp_execute_gather_waits (SpExecuteRun *run, GError **error)
{
  enum { STEPS = 7 };
  int size = sp_ranks_size (run->rank);
  g_autoptr (GArray) ends = sp_transfer_ends_new (run->program, run->recording);
  g_autofree Waits *all = g_new (Waits, MAX (size, STEPS));
  Waits mine;

  for (guint i = 0; i < STEPS; i++)
    if (!time_waits (run, ends, i, &all[i], error))
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
