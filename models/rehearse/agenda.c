/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

/* An agenda: all that the ranks of a stage do, list by list (sim/walk.h). */

const SpBlock *
sp_agenda_block (const SpProgram *program, const SpAgenda *agenda, gint32 position)
{
  return &program->variants[0].blocks[agenda->positions[position].block];
}

void
sp_agenda_init (const SpWalkPlan *walks, gint32 stage, SpAgenda *agenda)
{
  SpWalk walk;
  SpItem item;

  agenda->positions = sp_walk_positions (walks, stage, &agenda->n_positions);
  agenda->items = g_array_new (FALSE, FALSE, sizeof (SpItem));
  sp_walk_init (&walk, walks, stage);
  while (sp_walk_next (&walk, &item))
    g_array_append_val (agenda->items, item);
}

void
sp_agenda_clear (SpAgenda *agenda)
{
  g_clear_pointer (&agenda->items, g_array_unref);
}
