/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory over the walk of a step, without an engine. */

#include "sim/memory.h"

/* Walks to the end; checks what holds at every item. */
static inline void
walk_step (SpMemoryPlan *plan, const SpWalkPlan *walks, SpMemoryState *state)
{
  SpWalk walk;
  SpItem item;
  guint op;

  sp_walk_init (&walk, walks, state->stage);
  while (sp_walk_next (&walk, &item)) {
    gint64 before = state->peak_bytes, sum = 0, item_sum = 0;
    gboolean is_peak = sp_memory_item (plan, state, &item, &op);

    g_assert_true (is_peak == (state->peak_bytes > before));
    g_assert_cmpint (state->peak_bytes, ==, MAX (before, state->item_bytes));
    g_assert_cmpint (state->item_bytes, >=, state->live_bytes);
    for (guint c = 0; c < SP_N_CLASSES; c++) {
      g_assert_cmpint (state->live_by_class[c], >=, 0);
      sum += state->live_by_class[c];
      item_sum += state->item_by_class[c];
    }
    g_assert_cmpint (state->live_bytes, ==, sum);
    g_assert_cmpint (state->item_bytes, ==, item_sum);
  }
}

/* What the peak is made of sums to it. */
static inline void
check_list (const SpProgram *program, SpMemoryPlan *plan, gint32 rank, const SpMemoryState *state)
{
  SpMemoryState end;
  g_autoptr (GArray) buffers = sp_memory_list_peak (plan, rank, &end), merged = sp_memory_merge (program, buffers);
  gint64 by_class[SP_N_CLASSES] = { 0 }, bytes = 0, merged_bytes = 0;

  for (guint i = 0; i < buffers->len; i++) {
    const SpLiveBuffer *b = &g_array_index (buffers, SpLiveBuffer, i);
    by_class[b->class] += b->bytes;
    bytes += b->bytes;
    g_assert_cmpint (b->count, >, 0);
    g_assert_true (i == 0 || b->bytes <= g_array_index (buffers, SpLiveBuffer, i - 1).bytes);
  }
  for (guint i = 0; i < merged->len; i++)
    merged_bytes += g_array_index (merged, SpLiveBuffer, i).bytes;
  g_assert_cmpint (bytes, ==, state->peak_bytes);
  g_assert_cmpint (merged_bytes, ==, bytes);
  g_assert_cmpmem (by_class, sizeof by_class, state->peak_by_class, sizeof state->peak_by_class);
  g_assert_cmpint (end.peak_bytes, ==, state->peak_bytes);
  g_assert_cmpuint (end.peak_index, ==, state->peak_index);
  sp_memory_state_clear (&end);
}

/* So does that of every moment; of a rank's step, each `stride`th item. */
static inline void
check_items (SpMemoryPlan *plan, const SpWalkPlan *walks, gint32 rank, guint32 stride)
{
  SpMemoryState state;
  SpWalk walk;
  SpItem item;
  guint op;

  sp_memory_start_rank (plan, rank, &state);
  sp_walk_init (&walk, walks, state.stage);
  while (sp_walk_next (&walk, &item)) {
    gint64 by_class[SP_N_CLASSES] = { 0 };
    guint32 index = state.n_items;
    sp_memory_item (plan, &state, &item, &op);
    if (index % stride != 0)
      continue;
    g_autoptr (GArray) buffers = sp_memory_list_item (plan, rank, index);
    for (guint i = 0; i < buffers->len; i++)
      by_class[g_array_index (buffers, SpLiveBuffer, i).class] += g_array_index (buffers, SpLiveBuffer, i).bytes;
    g_assert_cmpmem (by_class, sizeof by_class, state.item_by_class, sizeof state.item_by_class);
  }
  sp_memory_state_clear (&state);
}

/* The largest over stages, at the place where all guards hold. */
static inline gint64
largest_of_stages (const SpProgram *program, SpMemoryPlan *plan, const SpWalkPlan *walks)
{
  gint64 largest = 0;

  for (gint32 stage = 0; stage < program->stages; stage++) {
    SpMemoryState state;
    sp_memory_start (plan, stage, &state);
    walk_step (plan, walks, &state);
    largest = MAX (largest, state.peak_bytes);
    sp_memory_state_clear (&state);
  }
  return largest;
}
