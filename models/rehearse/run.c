/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include "sim/schedules.h"

#include <string.h>

/* Cursors: a rank stands at (item of its stage's agenda, op, loop step). Ranks run in turn, each until it waits. */

/* clang-format off */
G_DEFINE_QUARK (sp-rehearse-error-quark, sp_rehearse_error)
/* clang-format on */

/* More than this is no rehearsal: bytes of doubles that live from the start, and FLOP of all ranks. */
#define MOST_BYTES (G_GINT64_CONSTANT (4) << 30)
#define MOST_FLOPS 1e13

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
  if (item->kind != SP_ITEM_LIST)
    return NULL;
  return sp_program_segment (in->program, &variant->blocks[block], item->phase, ret_n);
}

/* The pipeline's op as it stands in the program, or turned round for the backward. */
static SpOp
pipe_op (const SpVariant *variant, const SpItem *item)
{
  SpOp op = item->kind == SP_ITEM_SEND ? variant->pipe_send : variant->pipe_receive;

  if (!item->backward)
    return op;
  op.flags |= SP_OP_REVERSE;
  if (item->kind == SP_ITEM_SEND)
    op.in[0] = SP_SLOT_DX;
  else
    op.out[0] = SP_SLOT_DY;
  return op;
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
  if (ops == NULL)
    ret->pipe = pipe_op (ret->variant, item);
  ret->op = ops != NULL ? &ops[rank->op] : &ret->pipe;
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
  SpCall call;
  char *where;

  if (rank->item >= rank->agenda->items->len)
    return g_strdup_printf ("rank %d, at the end of the step", rank->number);
  item = &g_array_index (rank->agenda->items, SpItem, rank->item);
  position = &rank->agenda->positions[item->position];
  sp_call_open ((SpInterpreter *) in, (SpRank *) rank, &call);
  where = g_strdup_printf ("rank %d, layer %d (%s), micro-batch %d, %s op %u, step %d: %s over %s", rank->number,
                           position->layer, sp_block_name (call.block->kind), item->micro_batch,
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
    if (sp_op_is_communication (call.op->kind))
      done = sp_call_communicate (&call);
    else
      sp_call_run (&call);
  }
  done = done && in->error == NULL;
  if (done)
    pass (&call);
  sp_call_close (&call);
  return done;
}

static gboolean
is_over (const SpRank *rank)
{
  return rank->item >= rank->agenda->items->len;
}

/* Runs a rank until it waits; TRUE if it came any further. */
static gboolean
run_rank (SpInterpreter *in, SpRank *rank)
{
  gboolean moved = FALSE;

  while (!is_over (rank)) {
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

static void
report_deadlock (SpInterpreter *in)
{
  g_autoptr (GString) text = g_string_new ("deadlock:");
  gint32 listed = 0, waiting = 0;

  for (gint32 i = 0; i < in->program->world; i++) {
    g_autofree char *where = NULL;

    if (is_over (&in->ranks[i]) && ++waiting)
      continue;
    if (++listed > 16)
      continue;
    where = sp_rank_where (in, &in->ranks[i]);
    g_string_append_printf (text, "\n  %s waits", where);
  }
  if (listed > 16)
    g_string_append_printf (text, "\n  and %d more", listed - 16);
  if (waiting > 0)
    g_string_append_printf (text, "\n  %d ranks are at the end of the step", waiting);
  g_set_error_literal (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_DEADLOCK, text->str);
}

static void
check_mail (SpInterpreter *in)
{
  GHashTableIter iter;
  gpointer key, queue;

  g_hash_table_iter_init (&iter, in->mail);
  while (g_hash_table_iter_next (&iter, &key, &queue)) {
    gint64 world = in->program->world, pair = *(gint64 *) key;

    if (g_queue_is_empty (queue) || in->error != NULL)
      continue;
    g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_MISMATCH,
                 "%u messages over %s from rank %d to rank %d are never received", g_queue_get_length (queue),
                 sp_group_name ((SpGroupId) (pair / world / world)), (gint) (pair / world % world),
                 (gint) (pair % world));
  }
}

static void
run_all (SpInterpreter *in)
{
  gboolean over = FALSE;

  while (!over && in->error == NULL) {
    gboolean moved = FALSE;

    over = TRUE;
    for (gint32 i = 0; i < in->program->world && in->error == NULL; i++) {
      moved |= run_rank (in, &in->ranks[i]);
      over &= is_over (&in->ranks[i]);
    }
    if (!over && !moved && in->error == NULL)
      report_deadlock (in);
  }
  if (in->error == NULL)
    check_mail (in);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static gboolean
check_size (SpInterpreter *in)
{
  const SpProgram *program = in->program;
  double bytes = 0, flops = 0;

  for (gint32 i = 0; i < program->world; i++)
    for (guint j = 0; j < in->ranks[i].agenda->n_positions; j++) {
      const SpBlock *block = sp_agenda_block (program, in->ranks[i].agenda, (gint32) j);

      for (guint slot = 1; slot < block->n_buffers; slot++)
        if (block->buffers[slot].alias == 0)
          bytes += (double) block->buffers[slot].elements * sizeof (double);
      for (SpPhase phase = 0; phase < SP_N_PHASES; phase++)
        for (guint op = 0; op < block->segments[phase].n; op++)
          flops += (double) program->ops[block->segments[phase].first + op].flops * program->micro_batches;
    }
  if (bytes <= MOST_BYTES && flops <= MOST_FLOPS)
    return TRUE;
  g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_TOO_LARGE,
               "too large to rehearse: %.3g bytes of buffers and %.3g FLOP, of at most %.3g and %.3g; take fewer "
               "layers, smaller ones and a shorter sequence",
               bytes, flops, (double) MOST_BYTES, (double) MOST_FLOPS);
  return FALSE;
}

static gboolean
check_numbers (const SpProgram *program, GError **error)
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
  if (program->schedule < sp_schedule_count () && program->numbers.vocabulary > 0)
    return TRUE;
  g_set_error (error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM, "no schedule %u, or no vocabulary (%d)",
               program->schedule, program->numbers.vocabulary);
  return FALSE;
}

static gboolean
check_program (SpInterpreter *in)
{
  const SpProgram *program = in->program;

  for (gint32 i = 1; i + 1 < sp_program_virtual_stages (program); i++)
    if (program->stage_first[i] == program->stage_first[i + 1]) {
      g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM, "virtual stage %d has no layers", i);
      return FALSE;
    }
  return check_size (in) && sp_memory_plan (in);
}

static void
make_ranks (SpInterpreter *in, SpRehearsal *rehearsal)
{
  const SpProgram *program = in->program;

  in->walks = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  in->agendas = g_new0 (SpAgenda, program->stages);
  for (gint32 stage = 0; stage < program->stages; stage++)
    sp_agenda_init (in->walks, stage, &in->agendas[stage]);
  in->ranks = g_new0 (SpRank, program->world);
  for (gint32 i = 0; i < program->world; i++) {
    SpRank *rank = &in->ranks[i];

    rank->number = i;
    rank->stage = sp_program_place (program, SP_GROUP_PIPELINE, i);
    rank->agenda = &in->agendas[rank->stage];
    rank->frames = g_new0 (SpFrame *, (1 + program->micro_batches) * rank->agenda->n_positions);
    rank->gradients = g_new0 (double *, SP_MAX_FLATS * rank->agenda->n_positions);
    rank->report = &rehearsal->ranks[i];
  }
}

static void
clear (SpInterpreter *in)
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
  sp_walk_plan_free (in->walks);
  g_hash_table_unref (in->mail);
}

SpRehearsal *
sp_rehearse (const SpProgram *program, guint64 seed, GError **error)
{
  return sp_rehearse_nudged (program, seed, NULL, error);
}

SpRehearsal *
sp_rehearse_nudged (const SpProgram *program, guint64 seed, const SpNudge *nudge, GError **error)
{
  g_autoptr (SpRehearsal) rehearsal = g_new0 (SpRehearsal, 1);
  g_autofree SpInterpreter *in = g_new0 (SpInterpreter, 1);

  rehearsal->world = program->world;
  rehearsal->ranks = g_new0 (SpRehearsedRank, program->world);
  rehearsal->tensors = g_array_new (FALSE, FALSE, sizeof (SpRehearsedTensor));
  in->program = program;
  in->seed = seed;
  in->nudge = nudge;
  if (!check_numbers (program, error))
    return NULL;
  in->mail = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, sp_mail_free);
  make_ranks (in, rehearsal);
  if (check_program (in))
    for (gint32 i = 0; i < program->world && in->error == NULL; i++)
      sp_state_start (in, &in->ranks[i]);
  if (in->error == NULL)
    run_all (in);
  if (in->error == NULL)
    sp_state_collect (in, rehearsal);
  for (gint32 i = 0; i < program->world; i++)
    rehearsal->loss += in->ranks[i].loss;
  clear (in);
  if (in->error != NULL) {
    g_propagate_error (error, in->error);
    return NULL;
  }
  return g_steal_pointer (&rehearsal);
}
