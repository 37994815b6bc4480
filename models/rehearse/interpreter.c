/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include "sim/op-place.h"
#include "sim/schedules.h"

/* Cursors: a rank stands at (item of its stage's agenda, op, loop step). */

/* --- calls -------------------------------------------------------------------------------------------------------- */

const SpVariant *
sp_item_variant (const SpInterpreter *in, const SpItem *item)
{
  return sp_walk_variant (in->program, item->micro_batch);
}

const SpOp *
sp_item_ops (const SpInterpreter *in, const SpRank *rank, const SpItem *item, guint *ret_n)
{
  const SpVariant *variant = sp_item_variant (in, item);
  guint8 block = rank->agenda->positions[item->position].block;

  *ret_n = 1;
  if (item->kind == SP_ITEM_GATHER)
    return sp_program_pipe_gather (in->program, variant);
  if (item->kind != SP_ITEM_LIST)
    return NULL;
  return sp_program_segment (in->program, &variant->blocks[block], item->phase, ret_n);
}

/* The pipeline's op as it stands in the program, or turned round for the backward. */
static SpOp
pipe_op (const SpProgram *program, const SpVariant *variant, const SpItem *item)
{
  SpOp op = item->kind == SP_ITEM_SEND      ? variant->pipe_send
            : item->kind == SP_ITEM_RECEIVE ? variant->pipe_receive
                                            : *sp_program_pipe_gather (program, variant);

  if (!item->backward)
    return op;
  if (item->kind == SP_ITEM_SEND)
    op.in[0] = SP_SLOT_DX;
  else
    op.out[0] = SP_SLOT_DY;
  if (item->kind == SP_ITEM_GATHER)
    op.in[0] = SP_SLOT_DY;
  else
    op.flags |= SP_OP_REVERSE;
  return op;
}

static SpOp
at_place (const SpInterpreter *in, const SpRank *rank, const SpOp *op)
{
  return sp_op_at (op, sp_program_place (in->program, op->group, rank->number), in->program->groups[op->group].size);
}

void
sp_call_open (SpInterpreter *in, SpRank *rank, SpCall *ret)
{
  const SpItem *item = &g_array_index (rank->agenda->items, SpItem, rank->item);
  const SpPosition *position = &rank->agenda->positions[item->position];
  guint n;
  const SpOp *ops = sp_item_ops (in, rank, item, &n);

  *ret = (SpCall){ .in = in, .rank = rank, .item = item, .position = position };
  ret->variant = sp_item_variant (in, item);
  ret->block = &ret->variant->blocks[position->block];
  ret->own =
      item->kind == SP_ITEM_LIST ? at_place (in, rank, &ops[rank->op]) : pipe_op (in->program, ret->variant, item);
  ret->op = &ret->own;
  ret->loop = ret->op->loop != 0 ? &ret->block->loops[ret->op->loop - 1] : NULL;
  ret->temporaries = g_ptr_array_new_with_free_func (g_free);
}

void
sp_call_close (SpCall *call)
{
  g_ptr_array_unref (call->temporaries);
}

char *
sp_rank_where (const SpInterpreter *in, const SpRank *rank)
{
  const SpItem *item;
  const SpPosition *position;
  g_autoptr (GString) number = g_string_new (NULL);
  SpCall call;
  char *where;

  if (rank->item >= rank->agenda->items->len)
    return g_strdup_printf ("rank %d, at the end of the step", rank->number);
  item = &g_array_index (rank->agenda->items, SpItem, rank->item);
  position = &rank->agenda->positions[item->position];
  sp_call_open ((SpInterpreter *) in, (SpRank *) rank, &call);
  sp_program_append_number (in->program, item->micro_batch, number);
  where = g_strdup_printf ("rank %d, layer %d (%s), %s, %s op %u, step %d: %s over %s", rank->number, position->layer,
                           sp_block_name (call.block->kind), number->str,
                           item->kind == SP_ITEM_LIST ? sp_phase_name (item->phase) : "pipeline", rank->op, rank->step,
                           sp_op_name (call.op->kind), sp_group_name (call.op->group));
  sp_call_close (&call);
  return where;
}

void
sp_call_fail (SpCall *call, SpRehearseError code, const char *format, ...)
{
  g_autofree char *where = NULL, *what = NULL;
  va_list args;

  call->failed = TRUE;
  if (call->in->error != NULL)
    return;
  va_start (args, format);
  what = g_strdup_vprintf (format, args);
  va_end (args);
  where = sp_rank_where (call->in, call->rank);
  g_set_error (&call->in->error, SP_REHEARSE_ERROR, (gint) code, "%s %s", where, what);
}

/* --- cursors ------------------------------------------------------------------------------------------------------ */

static gboolean
holds (const SpCall *call)
{
  const SpGroup *group = &call->in->program->groups[call->op->group];
  gint32 place = sp_program_place (call->in->program, call->op->group, call->rank->number), step = call->rank->step;
  gint32 steps = call->loop != NULL ? call->loop->steps : 1;

  if (call->item->kind == SP_ITEM_LIST && (call->op->flags & call->item->mask) != call->item->flags)
    return FALSE;
  return sp_op_holds (call->op, place, group->size, step, steps);
}

static void
begin (SpCall *call)
{
  SpRank *rank = call->rank;

  rank->begun = TRUE;
  if (call->loop != NULL && rank->op == call->loop->first)
    sp_loop_step_begin (call);
}

/* Moves the cursor past the op at it. */
static void
pass (SpCall *call)
{
  SpRank *rank = call->rank;
  gboolean at_end = call->loop != NULL && rank->op + 1 == call->loop->end;
  gboolean goes_on = call->loop != NULL && !(at_end && rank->step + 1 == call->loop->steps);

  if (at_end)
    sp_loop_step_end (call);
  rank->begun = FALSE;
  if (call->item->kind == SP_ITEM_LIST && (!goes_on || call->loop->group == SP_GROUP_NONE))
    sp_memory_release_used (call->in, rank, call->item, rank->op, goes_on ? call->loop : NULL);
  if (at_end && goes_on) {
    rank->step++;
    rank->op = call->loop->first;
    return;
  }
  if (at_end)
    rank->step = 0;
  rank->op++;
}

/* TRUE when the op at the cursor is done and passed. */
static gboolean
step (SpInterpreter *in, SpRank *rank)
{
  SpCall call;
  gboolean done = TRUE;

  sp_call_open (in, rank, &call);
  if (!rank->begun)
    begin (&call);
  if (!call.failed && holds (&call)) {
    if (rank->recording != NULL)
      sp_record_call (&call);
    else if (sp_op_is_communication (call.op->kind))
      done = sp_call_communicate (&call);
    else
      sp_call_run (&call);
    if (rank->recording == NULL && in->rounds && done && !call.failed)
      sp_call_round (&call);
  }
  done = done && in->error == NULL;
  if (done)
    pass (&call);
  sp_call_close (&call);
  return done;
}

gboolean
sp_rank_is_over (const SpRank *rank)
{
  return rank->item >= rank->agenda->items->len;
}

gboolean
sp_interpreter_run_rank (SpInterpreter *in, SpRank *rank)
{
  gboolean moved = FALSE;

  while (!sp_rank_is_over (rank)) {
    const SpItem *item = &g_array_index (rank->agenda->items, SpItem, rank->item);
    guint n;

    sp_item_ops (in, rank, item, &n);
    if (rank->op == 0 && !rank->begun && item->phase == SP_PHASE_OPTIMIZER)
      sp_state_keep_gradients (in, rank, item->position);
    if (rank->op == 0 && !rank->begun && item->kind == SP_ITEM_LIST && item->phase == SP_PHASE_BACKWARD)
      sp_memory_backward_begin (in, rank, item);
    while (rank->op < n) {
      if (!step (in, rank))
        return moved;
      moved = TRUE;
    }
    sp_memory_item_end (in, rank, item);
    rank->item++;
    rank->op = 0;
    moved = TRUE;
  }
  return moved;
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

gboolean
sp_interpreter_check (const SpProgram *program, GError **error)
{
  if (program->scope != SP_SCOPE_STEP) {
    g_set_error (error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM,
                 "scope = %s cannot be rehearsed, expected scope = step: gradients and loss are those of a whole step",
                 sp_scope_name ((SpScope) program->scope));
    return FALSE;
  }
  for (guint i = 1; program->packed && i < program->n_blocks; i++)
    if (program->n_documents == 0 || program->variants[0].blocks[i].kind == SP_BLOCK_LINEAR) {
      g_set_error (error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM,
                   "packed documents cannot be rehearsed %s; expected packing = none",
                   program->n_documents > 0 ? "with linear layers, whose states would have to start anew"
                                            : "where there are so many different ones");
      return FALSE;
    }
  for (gint32 i = 1; i + 1 < sp_program_virtual_stages (program); i++)
    if (program->stage_first[i] == program->stage_first[i + 1]) {
      g_set_error (error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM, "virtual stage %d has no layers", i);
      return FALSE;
    }
  if (program->schedule < sp_schedule_count () && program->numbers.vocabulary > 0)
    return TRUE;
  g_set_error (error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM, "no schedule %u, or no vocabulary (%d)",
               program->schedule, program->numbers.vocabulary);
  return FALSE;
}

void
sp_interpreter_init (SpInterpreter *in, const SpProgram *program, guint64 seed, SpWalkOrder order,
                     SpRehearsedRank *reports)
{
  *in = (SpInterpreter){ .program = program, .seed = seed };
  in->walks = sp_walk_plan_new (program, order);
  in->agendas = g_new0 (SpAgenda, program->stages);
  for (gint32 stage = 0; stage < program->stages; stage++)
    sp_agenda_init (in->walks, stage, &in->agendas[stage]);
  in->ranks = g_new0 (SpRank, program->world);
  for (gint32 i = 0; i < program->world; i++) {
    SpRank *rank = &in->ranks[i];

    rank->number = i;
    rank->stage = sp_program_place (program, SP_GROUP_PIPELINE, i);
    rank->agenda = &in->agendas[rank->stage];
    rank->frames = g_new0 (SpFrame *, (1 + sp_program_runs (program)) * rank->agenda->n_positions);
    rank->held = -1;
    rank->gradients = g_new0 (double *, SP_MAX_FLATS * rank->agenda->n_positions);
    rank->report = &reports[i];
  }
}

void
sp_interpreter_clear (SpInterpreter *in)
{
  for (gint32 i = 0; i < in->program->world; i++) {
    for (guint j = 0; j < SP_MAX_FLATS * in->ranks[i].agenda->n_positions; j++)
      g_free (in->ranks[i].gradients[j]);
    g_free (in->ranks[i].gradients);
    sp_memory_free_rank (in, &in->ranks[i]);
  }
  for (gint32 stage = 0; stage < in->program->stages; stage++)
    sp_agenda_clear (&in->agendas[stage]);
  g_free (in->ranks);
  g_free (in->agendas);
  g_free (in->uses);
  sp_walk_plan_free (in->walks);
  g_clear_pointer (&in->mail, g_hash_table_unref);
}
