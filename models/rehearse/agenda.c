/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include "models/schedules.h"

/* An agenda: all that the ranks of a stage do, list by list, in the order that program.h lays down. */

static void
add_list (SpAgenda *agenda, SpPhase phase, gint32 position, gint32 micro_batch, gboolean per_micro_batch)
{
  SpItem item = { .kind = SP_ITEM_LIST,
                  .phase = phase,
                  .per_micro_batch = per_micro_batch,
                  .position = position,
                  .micro_batch = micro_batch };

  g_array_append_val (agenda->items, item);
}

static void
add_pipe (SpAgenda *agenda, SpItemKind kind, gboolean backward, gint32 micro_batch)
{
  gboolean at_start = (kind == SP_ITEM_RECEIVE) != backward;
  SpItem item = { .kind = kind,
                  .phase = backward ? SP_PHASE_BACKWARD : SP_PHASE_FORWARD,
                  .backward = backward,
                  .position = at_start ? 0 : (gint32) agenda->positions->len - 1,
                  .micro_batch = micro_batch };

  g_array_append_val (agenda->items, item);
}

const SpBlock *
sp_agenda_block (const SpProgram *program, const SpAgenda *agenda, gint32 position)
{
  return &program->variants[0].blocks[g_array_index (agenda->positions, SpPosition, position).block];
}

static void
add_slot (const SpProgram *program, SpAgenda *agenda, const SpSlot *slot)
{
  gint32 n = (gint32) agenda->positions->len, i = slot->micro_batch;

  if (program->stages > 1)
    add_pipe (agenda, SP_ITEM_RECEIVE, slot->backward, i);
  for (gint32 at = 0; at < n && !slot->backward; at++) {
    add_list (agenda, SP_PHASE_GATHER, at, i, FALSE);
    add_list (agenda, SP_PHASE_FORWARD, at, i, FALSE);
  }
  for (gint32 at = n - 1; at >= 0 && slot->backward; at--) {
    if (sp_agenda_block (program, agenda, at)->regather)
      add_list (agenda, SP_PHASE_GATHER, at, i, FALSE);
    add_list (agenda, SP_PHASE_RECOMPUTE, at, i, FALSE);
    add_list (agenda, SP_PHASE_BACKWARD, at, i, FALSE);
    add_list (agenda, SP_PHASE_SYNC, at, i, TRUE);
  }
  if (program->stages > 1)
    add_pipe (agenda, SP_ITEM_SEND, slot->backward, i);
}

static void
add_position (SpAgenda *agenda, gint32 layer, guint8 block)
{
  SpPosition position = { layer, block };

  g_array_append_val (agenda->positions, position);
}

void
sp_agenda_init (const SpProgram *program, gint32 stage, SpAgenda *agenda)
{
  SpSlot slot;

  agenda->positions = g_array_new (FALSE, FALSE, sizeof (SpPosition));
  agenda->items = g_array_new (FALSE, FALSE, sizeof (SpItem));
  if (stage == 0)
    add_position (agenda, SP_LAYER_EMBEDDING, 0);
  for (gint32 layer = program->stage_first[stage]; layer < program->stage_first[stage + 1]; layer++)
    add_position (agenda, layer, program->layer_block[layer]);
  if (stage == program->stages - 1)
    add_position (agenda, SP_LAYER_HEAD, (guint8) (program->n_blocks - 1));

  for (gint32 i = 0; sp_schedule_next (program->schedule, program->stages, stage, program->micro_batches, i, &slot);
       i++)
    add_slot (program, agenda, &slot);
  for (gint32 at = (gint32) agenda->positions->len - 1; at >= 0; at--)
    add_list (agenda, SP_PHASE_SYNC, at, -1, FALSE);
  for (gint32 at = 0; at < (gint32) agenda->positions->len; at++)
    add_list (agenda, SP_PHASE_OPTIMIZER, at, -1, FALSE);
}

void
sp_agenda_clear (SpAgenda *agenda)
{
  g_clear_pointer (&agenda->positions, g_array_unref);
  g_clear_pointer (&agenda->items, g_array_unref);
}
