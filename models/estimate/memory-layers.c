/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as papers count it: the layers alone. */
#include "models/estimate/memory.h"

#include "sim/walk.h"

/* Of the layers that chunk `chunk` of the first stage has: what one micro-batch stashes, and what they always hold. */
static void
add_chunk (const SpProgram *program, gint32 chunk, gint64 *ret_stash, gint64 *states)
{
  gint32 stage = sp_program_virtual_stage (program, 0, chunk);

  *ret_stash = 0;
  for (gint32 l = program->stage_first[stage]; l < program->stage_first[stage + 1]; l++) {
    const SpBlock *block = &program->variants[0].blocks[program->layer_block[l]];
    *ret_stash += sp_memory_block_stash (block);
    *states += sp_memory_block_always (program, block);
  }
}

void
sp_memory_layers (const SpProgram *program, double *ret_states_bytes, double *ret_stash_bytes)
{
  g_autoptr (SpWalkPlan) plan = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  g_autofree gint64 *stash = g_new (gint64, program->chunks);
  gint64 held = 0, most = 0, states = 0;
  guint n;
  const SpSlot *slots = sp_walk_slots (plan, 0, &n);

  for (gint32 c = 0; c < program->chunks; c++)
    add_chunk (program, c, &stash[c], &states);
  for (guint i = 0; i < n; i++) {
    if (slots[i].kind == SP_SLOT_FORWARD)
      held += stash[slots[i].chunk];
    else if (slots[i].kind != SP_SLOT_BACKWARD_INPUT) /* whose second part ends it */
      held -= stash[slots[i].chunk];
    most = MAX (most, held);
  }
  *ret_states_bytes = (double) states;
  *ret_stash_bytes = (double) most;
}
