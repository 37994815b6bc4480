/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "sim/walk.h"

#include <string.h>

/* Memory of one block's op lists: how much lives at the fullest op, and of what classes. */

#define MAX_OPS 640 /* of a recompute and backward list together */

typedef struct {
  gint64 bytes;
  guint16 first[SP_N_LISTS], last[SP_N_LISTS]; /* in each list; first > last where it does not live there */
  guint8 class;
} Range;

/* Which parts of the backward use a slot, and the weights' first and last use. */
typedef struct {
  guint8 input[SP_MAX_SLOTS];
  guint16 first[SP_MAX_SLOTS], last[SP_MAX_SLOTS];
} Parts;

/* What slices add up and an earlier backward has left: it is first added to. */
static gboolean
is_there_already (const SpProgram *program, const SpBlock *block, guint slot)
{
  guint n, use = block->first_use[1][slot] - block->segments[SP_PHASE_RECOMPUTE].n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_BACKWARD, &n);

  return (ops[use - 1].flags & SP_OP_ACCUMULATE) != 0;
}

/* Ops [*first, *last] of the list in which a buffer is live; FALSE if it is not, or is a parameter or gradient. Op 0
 * stands for the time before the first op, n + 1 for the time after the last one. */
static gboolean
live_range (const SpProgram *program, const SpBlock *block, guint slot, guint list, guint n_ops, guint *ret_first,
            guint *ret_last)
{
  guint8 life = block->buffers[slot].life;
  guint first = block->first_use[list][slot], last = block->last_use[list][slot];

  if (life == SP_LIFE_STASH) {
    if (list == 1 || slot == SP_SLOT_X)
      first = 0;
    if (list == 0 || last == 0)
      last = n_ops + 1;
  } else if (first == 0)
    return FALSE;
  else if (life == SP_LIFE_HANDOFF) {
    if (slot == SP_SLOT_DY)
      first = 0;
    else if (list == 0 || slot != SP_SLOT_Y) /* a Y that is made again is nobody's */
      last = n_ops + 1;
  } else if (life == SP_LIFE_ACCUMULATED) {
    first = is_there_already (program, block, slot) ? 0 : first;
    last = n_ops + 1;
  } else if (life != SP_LIFE_SEGMENT && life != SP_LIFE_REBUILT)
    return FALSE;
  *ret_first = first;
  *ret_last = last;
  return TRUE;
}

static gint64
sum_classes (const gint64 *bytes)
{
  gint64 sum = 0;

  for (guint c = 0; c < SP_N_CLASSES; c++)
    sum += bytes[c];
  return sum;
}

/* The fullest op, and what lives there. */
static void
find_peak (const Range *ranges, guint n_ranges, guint list, guint n_ops, gint64 *delta, SpBlockWork *ret)
{
  gint64 live = 0, peak = 0;
  guint moment = 0;

  memset (delta, 0, (n_ops + 3) * sizeof *delta);
  for (guint i = 0; i < n_ranges; i++) {
    delta[ranges[i].first[list]] += ranges[i].bytes;
    delta[ranges[i].last[list] + 1] -= ranges[i].bytes;
  }
  for (guint i = 0; i <= n_ops + 1; i++) {
    live += delta[i];
    if (live > peak) {
      peak = live;
      moment = i;
    }
  }
  for (guint i = 0; i < n_ranges; i++)
    if (ranges[i].first[list] <= moment && moment <= ranges[i].last[list])
      ret->peak[list][ranges[i].class] += ranges[i].bytes;
  ret->peak_bytes[list] = peak;
}

static void
find_parts (const SpProgram *program, const SpBlock *block, Parts *parts)
{
  guint16 use = 0;

  memset (parts, 0, sizeof *parts);
  for (SpPhase phase = SP_PHASE_RECOMPUTE; phase <= SP_PHASE_BACKWARD; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);

    for (guint i = 0; i < n; i++) {
      guint beside = sp_block_last_beside (program, block, phase, i, SP_OP_WEIGHT, SP_OP_WEIGHT);
      use++;
      for (guint j = 0; j < SP_MAX_IN + SP_MAX_OUT; j++) {
        guint8 slot = j < SP_MAX_IN ? ops[i].in[j] : ops[i].out[j - SP_MAX_IN];
        guint8 root = block->buffers[slot].alias ? block->buffers[slot].alias : slot;
        if (!(ops[i].flags & SP_OP_WEIGHT))
          parts->input[root] = 1;
        else {
          parts->first[root] = parts->first[root] ? parts->first[root] : use;
          parts->last[root] = MAX (parts->last[root], use + (guint16) (beside - i));
        }
      }
    }
  }
}

/* The same as live_range of the backward's two parts: what the second uses stays until then, if the first has it. */
static gboolean
live_range_of_part (const SpProgram *program, const SpBlock *block, const Parts *parts, guint slot, guint list,
                    guint n_ops, guint *ret_first, guint *ret_last)
{
  guint8 life = block->buffers[slot].life;
  gboolean is_there = life == SP_LIFE_STASH || life == SP_LIFE_HANDOFF || parts->input[slot];
  gboolean here = live_range (program, block, slot, 1, n_ops, ret_first, ret_last);

  if (!here || parts->last[slot] == 0)
    return here && list == SP_LIST_INPUT;
  if (list == SP_LIST_INPUT) {
    *ret_last = n_ops + 1;
    return is_there;
  }
  *ret_first = is_there ? 0 : parts->first[slot];
  *ret_last = parts->last[slot];
  return TRUE;
}

static guint
collect_ranges (const SpProgram *program, const SpBlock *block, const guint *n_ops, const Parts *parts, Range *ranges,
                SpBlockWork *ret)
{
  guint n = 0, first, last, lists = parts ? SP_N_LISTS : 2;

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gboolean lives = FALSE;
    if (buffer->host && buffer->life == SP_LIFE_STASH)
      ret->host_stash += buffer->elements * sp_dtype_bytes (buffer->dtype);
    if (buffer->bytes == 0)
      continue;
    if (buffer->life == SP_LIFE_STASH)
      ret->stash[buffer->class] += buffer->bytes;
    if (buffer->life == SP_LIFE_ACCUMULATED)
      ret->accumulated += buffer->bytes;
    Range *range = &ranges[n];
    range->bytes = buffer->bytes;
    range->class = buffer->class;
    for (guint list = 0; list < lists; list++) {
      gboolean here = list < 2 ? live_range (program, block, slot, list, n_ops[list], &first, &last)
                               : live_range_of_part (program, block, parts, slot, list, n_ops[list], &first, &last);
      range->first[list] = (guint16) (here ? first : n_ops[list] + 2);
      range->last[list] = (guint16) (here ? last : n_ops[list] + 1);
      lives |= here;
      if (list == SP_LIST_WEIGHT && here && first == 0)
        ret->kept[buffer->class] += buffer->bytes;
    }
    n += lives;
  }
  return n;
}

/* A collective's stream is not the one that the allocator takes its input for: the host may free that, but nothing is put
 * there until the GPU is past the collective. Loops' buffers go around. */
static gint64
lent_bytes (const SpProgram *program, const SpBlock *block, SpPhase phase)
{
  gint64 bytes = 0;
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    const SpBuffer *read =
        &block->buffers[block->buffers[ops[i].in[0]].alias ? block->buffers[ops[i].in[0]].alias : ops[i].in[0]];
    if (ops[i].in[0] != 0 && ops[i].stream != SP_STREAM_COMPUTE && ops[i].group != SP_GROUP_NONE && ops[i].loop == 0 &&
        sp_op_is_communication (ops[i].kind) && read->life == SP_LIFE_SEGMENT)
      bytes += read->bytes;
  }
  return bytes;
}

static gint64
most_gathered (const SpProgram *program, const SpBlock *block)
{
  gint64 most = 0;

  for (SpPhase phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);
    for (guint i = 0; i < n; i++) {
      const SpBuffer *whole = &block->buffers[ops[i].out[0]];
      if (ops[i].kind == SP_OP_ALL_GATHER && ops[i].stream == SP_STREAM_TENSOR && whole->life == SP_LIFE_SEGMENT)
        most = MAX (most, whole->bytes);
    }
  }
  return most;
}

void
sp_block_work_memory (const SpProgram *program, const SpBlock *block, SpBlockWork *ret)
{
  gboolean splits = sp_estimate_schedule (program)->splits;
  guint backward = block->segments[SP_PHASE_RECOMPUTE].n + block->segments[SP_PHASE_BACKWARD].n;
  const guint n_ops[SP_N_LISTS] = { block->segments[SP_PHASE_FORWARD].n, backward, backward, backward };
  gint64 delta[MAX_OPS + 3];
  Range ranges[SP_MAX_SLOTS];
  Parts parts;

  g_assert (n_ops[0] <= MAX_OPS && n_ops[1] <= MAX_OPS);
  memset (ret->stash, 0, sizeof ret->stash);
  memset (ret->peak, 0, sizeof ret->peak);
  memset (ret->kept, 0, sizeof ret->kept);
  ret->host_stash = ret->accumulated = 0;
  if (splits)
    find_parts (program, block, &parts);
  guint n = collect_ranges (program, block, n_ops, splits ? &parts : NULL, ranges, ret);
  for (guint list = 0; list < (splits ? SP_N_LISTS : 2); list++)
    find_peak (ranges, n, list, n_ops[list], delta, ret);
  ret->lent_bytes[0] = lent_bytes (program, block, SP_PHASE_FORWARD);
  ret->lent_bytes[1] = lent_bytes (program, block, SP_PHASE_RECOMPUTE) + lent_bytes (program, block, SP_PHASE_BACKWARD);
  ret->gathered_bytes = most_gathered (program, block);
  ret->stash_bytes = sum_classes (ret->stash);
  ret->kept_bytes = sum_classes (ret->kept);
  ret->handed_bytes = block->first_use[1][SP_SLOT_DX] ? block->buffers[SP_SLOT_DX].bytes : 0;
}

/* All that ends with the list: it is kept until then. */
static gint64
optimizer_bytes (const SpProgram *program, const SpBlock *block)
{
  guint8 seen[SP_MAX_SLOTS] = { 0 };
  gint64 sum = 0;
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_OPTIMIZER, &n);

  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < SP_MAX_OUT; j++) {
      guint8 slot = ops[i].out[j], root = block->buffers[slot].alias ? block->buffers[slot].alias : slot;
      if (!seen[root] && block->buffers[root].life == SP_LIFE_SEGMENT)
        sum += block->buffers[root].bytes;
      seen[root] = 1;
    }
  return sum;
}

/* Whether GATHER writes the slot. */
static gboolean
is_gathered_here (const SpProgram *program, const SpBlock *block, guint slot)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_GATHER, &n);

  for (guint i = 0; i < n; i++)
    if (ops[i].out[0] == slot)
      return TRUE;
  return FALSE;
}

/* Whether SYNC leaves shards while other backwards still run. */
static gboolean
reduces_beside (const SpProgram *program, const SpBlock *block)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_SYNC, &n);

  for (guint i = 0; i < n; i++)
    if (ops[i].flags & SP_OP_PER_MICRO_BATCH)
      return TRUE;
  return sp_walk_list_moves (program, block, SP_PHASE_SYNC);
}

/* What is tied lives because of this block only where it does not live ALWAYS. */
void
sp_block_state_memory (const SpProgram *program, const SpBlock *block, SpBlockState *ret)
{
  guint n;
  const SpOp *gather = sp_program_segment (program, block, SP_PHASE_GATHER, &n);

  ret->regather = block->regather;
  ret->gathers_again = sp_block_gathers_again (block);
  ret->gathers_ahead = n > 0 && gather->flags & SP_OP_ASYNC;
  memset (ret->always, 0, sizeof ret->always);
  memset (ret->step_end, 0, sizeof ret->step_end);
  ret->host_bytes = 0;
  ret->optimizer_bytes = optimizer_bytes (program, block);
  ret->gathered = ret->summed = ret->held = ret->tied_gathered = ret->tied_summed = 0;
  ret->sums = sp_block_sums (block);
  ret->checkpoint_bytes = 0;
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gint64 tied = buffer->tied ? buffer->elements * sp_dtype_bytes (buffer->dtype) : 0;
    if (buffer->host && buffer->life == SP_LIFE_ALWAYS)
      ret->host_bytes += buffer->elements * sp_dtype_bytes (buffer->dtype);
    if (buffer->life == SP_LIFE_ALWAYS)
      ret->always[buffer->class] += buffer->bytes;
    else if (buffer->life == SP_LIFE_CHECKPOINT)
      ret->checkpoint_bytes += buffer->bytes;
    else if (buffer->life == SP_LIFE_STEP_END)
      ret->step_end[buffer->class] += buffer->bytes;
    else if (buffer->life == SP_LIFE_GATHERED) {
      ret->gathered += buffer->bytes;
      /* else what the embedding gathered is still there */
      ret->tied_gathered += tied > 0 && is_gathered_here (program, block, slot) ? tied : 0;
    } else if (buffer->life == SP_LIFE_SUMMED) {
      ret->summed += buffer->bytes;
      ret->held += sp_block_holds_over (program, block, slot) ? buffer->bytes : 0;
      ret->tied_summed += tied;
    }
  }
  ret->always_bytes = sum_classes (ret->always);
  ret->step_end_bytes = sum_classes (ret->step_end);
  ret->reduced = reduces_beside (program, block) ? ret->step_end[SP_CLASS_GRADIENTS] : 0;
}
