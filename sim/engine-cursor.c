/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

/* A role's way through its step: items and ops. Every check of what it has to wait for is made anew when it goes on, so a
 * role that wakes too early just waits again. */

/* --- waits -------------------------------------------------------------------------------------------------------- */

static gboolean
waits_for (SpEngine *e, SpRole *role, guint stream, guint32 count)
{
  if (role->streams[stream].over >= count)
    return FALSE;
  role->state = SP_ROLE_WAITS;
  role->wait_stream = (guint8) stream;
  role->wait_count = count;
  role->wait_since = e->now;
  return TRUE;
}

/* What a loop's step posted. */
static gboolean
waits_for_step (SpEngine *e, SpRole *role)
{
  return waits_for (e, role, SP_STREAM_TENSOR, role->streams[SP_STREAM_TENSOR].posted) ||
         waits_for (e, role, SP_STREAM_SEQUENCE, role->streams[SP_STREAM_SEQUENCE].posted);
}

/* What was posted on the streams of the cursor's own list. */
static gboolean
waits_for_list (SpEngine *e, SpRole *role)
{
  return waits_for_step (e, role) || waits_for (e, role, SP_STREAM_OUTER, role->streams[SP_STREAM_OUTER].posted);
}

static gboolean
waits_for_all (SpEngine *e, SpRole *role)
{
  for (guint s = 0; s < SP_N_STREAMS; s++)
    if (waits_for (e, role, s, role->streams[s].posted))
      return TRUE;
  return FALSE;
}

static gboolean
waits_for_named (SpEngine *e, SpRole *role, const SpOp *op)
{
  for (guint i = 0; i < G_N_ELEMENTS (op->wait) && op->wait[i] != 0; i++)
    for (guint j = 0; j < role->n_async; j++)
      if (role->async[j].op == op->wait[i] - 1 && waits_for (e, role, role->async[j].stream, role->async[j].count))
        return TRUE;
  return FALSE;
}

void
sp_role_wake (SpEngine *e, SpRole *role, SpStream stream, const SpTransfer *transfer, SpPhase phase)
{
  SpRoleReport *report = role->report;
  SpTime waited = e->now - role->wait_since, own = MIN (waited, e->now - transfer->began);
  guint group = transfer->op->group;

  if (role->state != SP_ROLE_WAITS || role->wait_stream != stream || role->streams[stream].over < role->wait_count)
    return;
  if (transfer->kind == SP_TRANSFER_PIPE) {
    report->exposed[SP_AXIS_PIPELINE] += own;
    report->bubble += waited - own;
  } else {
    report->exposed[transfer->op->axis] += waited;
    if (sp_op_is_one_way (transfer->op->kind))
      report->late += waited - own;
    else
      e->stood[((guint) sp_role_number (e, role) * SP_N_GROUPS + group) * SP_N_PHASES + phase] += waited;
  }
  role->state = SP_ROLE_READY;
  sp_role_go (e, role);
}

/* --- items -------------------------------------------------------------------------------------------------------- */

/* Whether what the list of the item needs from the data stream is parameters, which its first reader waits for. */
static gboolean
gathered_before (const SpRole *role)
{
  guint phase = role->item.phase;

  return role->gathered[role->item.position] &&
         (phase == SP_PHASE_FORWARD || phase == SP_PHASE_RECOMPUTE || phase == SP_PHASE_BACKWARD);
}

static guint32
first_reader (const SpEngine *e, const SpRole *role)
{
  guint variant = (guint) sp_program_variant_of (e->program, role->item.micro_batch);
  guint block = (guint) (role->block - e->program->variants[variant].blocks);
  guint16 op = e->first_readers[(variant * e->program->n_blocks + block) * SP_N_PHASES + role->item.phase];

  return op == G_MAXUINT16 ? G_MAXUINT32 : op;
}

/* The block's list, or the one op that gathers a message. */
static void
enter_list (SpEngine *e, SpRole *role)
{
  const SpItem *item = &role->item;
  guint n_positions;
  const SpPosition *positions = sp_walk_positions (e->walks, role->report->stage, &n_positions);
  const SpVariant *variant = sp_walk_variant (e->program, item->micro_batch);

  role->block = &variant->blocks[positions[item->position].block];
  role->data_op = G_MAXUINT32;
  if (item->kind == SP_ITEM_GATHER) {
    role->ops = sp_program_pipe_gather (e->program, variant);
    role->n_ops = variant->pipe_gather.n;
  } else {
    role->ops = sp_program_segment (e->program, role->block, (SpPhase) item->phase, &role->n_ops);
    role->data_op = gathered_before (role) ? first_reader (e, role) : G_MAXUINT32;
  }
  role->prices = e->prices->ops + (role->ops - e->program->ops);
  role->op = 0;
  role->step = 0;
  role->at_step_end = FALSE;
  role->n_async = 0;
  role->list_begin = e->now;
  role->list_kernels = 0;
  role->list_held_up = 0;
  role->where = SP_ROLE_IN_LIST;
}

/* What the block's list needs from the data stream before it begins. */
static gboolean
waits_for_data (SpEngine *e, SpRole *role)
{
  if (gathered_before (role))
    return FALSE;
  switch ((SpPhase) role->item.phase) {
  case SP_PHASE_FORWARD:
  case SP_PHASE_RECOMPUTE:
  case SP_PHASE_BACKWARD:
  case SP_PHASE_OPTIMIZER:
    return waits_for (e, role, SP_STREAM_DATA, role->data_count[role->item.position]);
  default:
    return FALSE;
  }
}

/* Gradients that are held over end with a BACKWARD: SYNC must have done with them. */
static gboolean
waits_for_held (SpEngine *e, SpRole *role)
{
  return role->item.phase == SP_PHASE_BACKWARD && role->streams[SP_STREAM_DATA].over < role->held_count &&
         sp_block_sums (role->block) && waits_for (e, role, SP_STREAM_DATA, role->held_count);
}

static gboolean
reads_summed (const SpRole *role, const SpOp *op)
{
  const SpBuffer *buffers = role->block->buffers;
  gboolean reads = FALSE;

  for (guint i = 0; i < SP_MAX_IN; i++) {
    guint8 slot = op->in[i];
    while (buffers[slot].alias != 0)
      slot = buffers[slot].alias;
    reads |= buffers[slot].life == SP_LIFE_SUMMED;
  }
  return reads;
}

static void
note_memory (SpEngine *e, SpRole *role)
{
  guint op;

  if (e->program->scope != SP_SCOPE_STEP)
    return;
  if (e->options->trace != NULL && role->item.kind == SP_ITEM_LIST)
    sp_trace_memory (e->options->trace, role->report->rank, e->now, role->memory.live_by_class);
  if (sp_memory_item (e->memory, &role->memory, &role->item, &op)) {
    role->peak_op = op;
    sp_memory_peak_at (&role->memory, e->now);
  } else
    role->peak_op = G_MAXUINT32;
  if (e->options->trace != NULL)
    sp_trace_list_memory (e->options->trace, role->report->rank, e->now, role->memory.item_by_class);
}

/* FALSE: it waits before the item. */
static gboolean
enter_item (SpEngine *e, SpRole *role)
{
  const SpItem *item = &role->item;

  /* What a slot sent and gathered is over before the next one begins. */
  if (item->micro_batch >= 0 && role->walk.slot != role->slot) {
    if (waits_for (e, role, SP_STREAM_DATA, role->streams[SP_STREAM_DATA].posted))
      return FALSE;
    role->slot = role->walk.slot;
  }
  if (item->kind == SP_ITEM_LIST && (waits_for_data (e, role) || sp_role_host_begins_slot (e, role)))
    return FALSE;
  note_memory (e, role);
  if (item->kind == SP_ITEM_LIST || item->kind == SP_ITEM_GATHER) {
    enter_list (e, role);
    return TRUE;
  }
  role->where = SP_ROLE_BETWEEN;
  if (item->kind == SP_ITEM_SEND)
    sp_engine_pipe_send (e, role, item);
  else
    sp_engine_pipe_receive (e, role, item);
  return TRUE;
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

/* Moves past the op at the cursor. */
static void
pass (SpRole *role)
{
  const SpLoop *loop = sp_role_loop_of (role, &role->ops[role->op]);

  role->op++;
  role->at_step_end = loop != NULL && role->op == loop->end;
}

/* FALSE: it waits for what the step left running. */
static gboolean
end_step (SpEngine *e, SpRole *role)
{
  const SpLoop *loop = sp_role_loop_of (role, &role->ops[role->op - 1]);

  if (waits_for_step (e, role))
    return FALSE;
  role->at_step_end = FALSE;
  if (role->step + 1 < loop->steps) {
    role->step++;
    role->op = loop->first;
  } else
    role->step = 0;
  return TRUE;
}

static void
remember (SpRole *role, const SpOp *op, gboolean is_blocking)
{
  guint32 count = role->streams[op->stream].posted;

  if (is_blocking) {
    role->must_stream = op->stream;
    role->must_count = count;
  } else if (op->stream == SP_STREAM_DATA) {
    role->data_count[role->item.position] = count;
    role->gathered[role->item.position] = role->item.phase == SP_PHASE_GATHER;
    if (role->item.phase == SP_PHASE_SYNC && reads_summed (role, op))
      role->held_count = count;
  } else {
    /* What is over needs no place: so are those of a loop's earlier steps. */
    guint i = 0;
    while (i < role->n_async && role->async[i].op != role->op &&
           role->streams[role->async[i].stream].over < role->async[i].count)
      i++;
    g_assert (i < SP_MAX_ASYNC);
    role->async[i] = (SpAsync){ .op = (guint16) role->op, .stream = op->stream, .count = count };
    role->n_async = MAX (role->n_async, i + 1);
  }
}

/* FALSE: it waits, or runs kernels. */
static gboolean
run_op (SpEngine *e, SpRole *role)
{
  const SpOp *op = &role->ops[role->op];

  if (!sp_role_holds (e, role, op)) {
    pass (role);
    return TRUE;
  }
  if (waits_for_named (e, role, op) ||
      (role->op >= role->data_op && waits_for (e, role, SP_STREAM_DATA, role->data_count[role->item.position])))
    return FALSE;
  if (!sp_op_is_communication (op->kind)) {
    sp_role_begin_run (e, role);
    return FALSE;
  }
  if (role->op == role->peak_op) {
    sp_memory_peak_at (&role->memory, e->now);
    role->peak_op = G_MAXUINT32;
  }
  if (e->program->groups[op->group].size > 1 || sp_op_is_host_copy (op->kind)) {
    gboolean is_blocking = e->options->serial || !(op->flags & SP_OP_ASYNC);
    sp_engine_post (e, role, op, &role->prices[role->op]);
    remember (role, op, is_blocking);
  }
  pass (role);
  return TRUE;
}

static void
finish (SpEngine *e, SpRole *role)
{
  role->state = SP_ROLE_DONE;
  role->report->end = e->now;
  e->n_done++;
}

void
sp_role_go (SpEngine *e, SpRole *role)
{
  while (e->error == NULL) {
    if (role->must_stream != 0) {
      if (waits_for (e, role, role->must_stream, role->must_count))
        return;
      role->must_stream = 0;
    }
    switch (role->where) {
    case SP_ROLE_IN_LIST:
      if (role->at_step_end) {
        if (!end_step (e, role))
          return;
      } else if (role->op < role->n_ops) {
        if (!run_op (e, role))
          return;
      } else {
        if (waits_for_list (e, role) || sp_role_host_holds_up (e, role) || waits_for_held (e, role))
          return;
        role->where = SP_ROLE_BETWEEN;
      }
      break;
    case SP_ROLE_BETWEEN:
      if (sp_walk_next (&role->walk, &role->item)) {
        role->where = SP_ROLE_BEFORE_ITEM;
        break;
      }
      if (!waits_for_all (e, role))
        finish (e, role);
      return;
    case SP_ROLE_BEFORE_ITEM:
      if (!enter_item (e, role))
        return;
      break;
    default:
      g_assert_not_reached ();
    }
  }
}
