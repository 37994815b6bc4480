/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

#define MOST_LISTED 16

void
sp_engine_fail (SpEngine *e, SpEngineError code, const char *format, ...)
{
  va_list args;

  if (e->error != NULL)
    return;
  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (&e->error, SP_ENGINE_ERROR, (gint) code, text);
}

/* --- where a role stands ------------------------------------------------------------------------------------------ */

static void
append_item (const SpEngine *e, const SpRole *role, GString *out)
{
  const SpItem *item = &role->item;
  guint n;
  const SpPosition *positions = sp_walk_positions (e->walks, role->report->stage, &n);
  gint32 layer = positions[item->position].layer;

  if (layer >= 0)
    g_string_append_printf (out, ", layer %d", layer);
  else
    g_string_append (out, layer == SP_LAYER_HEAD ? ", head" : ", embedding");
  if (item->micro_batch >= 0) {
    g_string_append (out, ", ");
    sp_program_append_number (e->program, item->micro_batch, out);
  }
  if (item->kind == SP_ITEM_LIST)
    g_string_append_printf (out, ", %s op %u", sp_phase_name ((SpPhase) item->phase), role->op);
  else
    g_string_append_printf (out, ", %s of %s", sp_item_name ((SpItemKind) item->kind),
                            item->backward ? "gradients" : "activations");
}

char *
sp_role_where (const SpEngine *e, const SpRole *role)
{
  GString *out = g_string_new (NULL);

  g_string_append_printf (out, "rank %d (stage %d", role->report->rank, role->report->stage);
  if (role->report->count > 1)
    g_string_append_printf (out, ", and %d alike", role->report->count - 1);
  g_string_append_c (out, ')');
  if (role->where == SP_ROLE_BETWEEN && role->walk.slot <= 0 && role->ops == NULL)
    g_string_append (out, " at its start");
  else
    append_item (e, role, out);
  return g_string_free (out, FALSE);
}

/* What it waits for: the op at the head of the stream, and who is missing there. */
static void
append_wait (const SpEngine *e, const SpRole *role, GString *out)
{
  const SpRoleStream *s = &role->streams[role->wait_stream];
  const SpPosted *head = s->head != 0 ? &g_array_index (e->posted, SpPosted, s->head) : NULL;

  if (role->state != SP_ROLE_WAITS) {
    g_string_append (out, " stopped");
    return;
  }
  if (head == NULL) {
    g_string_append_printf (out, " waits for stage %d", role->item.peer);
    return;
  }
  const SpOp *op = head->op;
  g_string_append_printf (out, " waits for %s over %s", sp_op_name ((SpOpKind) op->kind),
                          sp_group_name ((SpGroupId) op->group));
  if (op->kind == SP_OP_SEND || op->kind == SP_OP_RECEIVE || op->kind == SP_OP_SEND_RECEIVE) {
    guint reverse = (op->flags & SP_OP_REVERSE) != 0, to = op->kind == SP_OP_RECEIVE ? !reverse : reverse;
    gint32 other = e->neighbour[op->group][to][sp_role_number (e, role)];
    g_string_append_printf (out, " with rank %d", e->roles->rank[other]);
  } else {
    gint32 number = e->roles->instance[op->group][sp_role_number (e, role)];
    g_string_append_printf (out, ", to which %u of %u have come", e->instance[number].arrived,
                            e->roles->instances[number].n_members);
  }
}

void
sp_engine_report_deadlock (SpEngine *e)
{
  g_autoptr (GString) text = g_string_new (NULL);
  gint32 left = e->roles->n - e->n_done, listed = 0;

  g_string_append_printf (text,
                          "the simulation stopped at %.9f s with %d of %d roles unfinished:", sp_time_to_s (e->now),
                          left, e->roles->n);
  for (gint32 r = 0; r < e->roles->n && listed < MOST_LISTED; r++) {
    if (e->role[r].state == SP_ROLE_DONE)
      continue;
    g_autofree char *where = sp_role_where (e, &e->role[r]);
    g_string_append_printf (text, "\n  %s", where);
    append_wait (e, &e->role[r], text);
    listed++;
  }
  if (listed < left)
    g_string_append_printf (text, "\n  and %d more", left - listed);
  sp_engine_fail (e, SP_ENGINE_ERROR_DEADLOCK, "%s", text->str);
}

/* --- the result --------------------------------------------------------------------------------------------------- */

static void
report_memory (const SpMemoryState *memory, SpRoleReport *report)
{
  report->peak_bytes = memory->peak_bytes;
  memcpy (report->peak_by_class, memory->peak_by_class, sizeof report->peak_by_class);
  report->peak_at = memory->peak_at;
  report->peak_item = memory->peak_item;
  report->peak_op = memory->peak_op;
}

/* A forward alone would keep every micro-batch's stash for a backward that never comes: memory is what a step holds,
 * which follows from the order of its lists without their dates. */
static void
report_step_memory (SpEngine *e)
{
  const SpProgram step = sp_program_of_step (e->program);
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (&step, e->options->serial ? SP_ORDER_PROGRAM : SP_ORDER_EAGER);
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (&step, walks, &e->error);

  for (gint32 r = 0; r < e->roles->n && plan != NULL; r++) {
    SpMemoryState memory = { 0 };
    SpWalk walk;
    SpItem item;
    guint op;
    sp_memory_start_rank (plan, e->result->roles[r].rank, &memory);
    sp_walk_init (&walk, walks, memory.stage);
    while (sp_walk_next (&walk, &item))
      sp_memory_item (plan, &memory, &item, &op);
    sp_memory_peak_at (&memory, SP_TIME_NEVER);
    report_memory (&memory, &e->result->roles[r]);
    sp_memory_state_clear (&memory);
  }
}

static const SpTime *
stood (const SpEngine *e, gint32 role, guint group)
{
  return e->stood + ((gsize) role * SP_N_GROUPS + group) * SP_N_PHASES;
}

/* Of what the role waited for a group, in each phase, beyond the member that waited least. */
static SpTime
lateness (const SpEngine *e, gint32 role, guint group)
{
  const SpInstance *instance = &e->roles->instances[e->roles->instance[group][role]];
  SpTime late = 0;

  for (guint phase = 0; phase < SP_N_PHASES; phase++) {
    SpTime mine = stood (e, role, group)[phase], least = mine;
    for (guint i = 0; mine > 0 && i < instance->n_members; i++)
      least = MIN (least, stood (e, (gint32) e->roles->members[instance->first + i], group)[phase]);
    late += mine - least;
  }
  return late;
}

void
sp_engine_report (SpEngine *e)
{
  SpSimulation *result = e->result;

  for (gint32 r = 0; r < e->roles->n; r++) {
    SpRoleReport *report = &result->roles[r];
    result->end = MAX (result->end, report->end);
    result->n_tasks += report->n_kernels + report->n_communications;
    report_memory (&e->role[r].memory, report);
    for (guint group = 0; group < SP_N_GROUPS; group++)
      if (e->roles->instance[group] != NULL)
        report->late += lateness (e, r, group);
  }
  if (e->program->scope != SP_SCOPE_STEP)
    report_step_memory (e);
  if (e->flows != NULL)
    result->n_solves = sp_flows_statistics (e->flows).solves;
}

/* --- trace -------------------------------------------------------------------------------------------------------- */

/* Sends of the pipeline run beside each other, one way and the other. */
enum { THREAD_SENDS = SP_N_STREAMS, THREAD_SENDS_BACK };

void
sp_engine_trace_begin (SpEngine *e)
{
  for (gint32 r = 0; r < e->roles->n; r++) {
    const SpRoleReport *report = e->role[r].report;
    sp_trace_role (e->options->trace, report->rank, report->stage, report->count - 1);
    if (e->program->stages == 1)
      continue;
    sp_trace_thread (e->options->trace, report->rank, THREAD_SENDS, THREAD_SENDS, "sends to the next stage");
    sp_trace_thread (e->options->trace, report->rank, THREAD_SENDS_BACK, THREAD_SENDS_BACK,
                     "sends to the stage before");
  }
}

/* Layer, phase, micro-batch and slice of an op: four at most. */
static guint
arguments (const SpEngine *e, const SpRole *role, gint32 position, guint phase, gint32 micro_batch, SpTraceArg *args)
{
  guint n_positions, n = 0;
  const SpPosition *positions = sp_walk_positions (e->walks, role->report->stage, &n_positions);
  gint32 layer = positions[position].layer;
  const char *name = layer == SP_LAYER_EMBEDDING ? "embedding" : layer == SP_LAYER_HEAD ? "head" : NULL;

  args[n++] = (SpTraceArg){ .name = "layer", .text = name, .number = layer };
  args[n++] = (SpTraceArg){ .name = "phase", .text = sp_phase_name ((SpPhase) phase) };
  if (micro_batch >= 0)
    args[n++] = (SpTraceArg){ .name = "micro-batch", .number = sp_program_micro_batch_of (e->program, micro_batch) };
  if (micro_batch >= 0 && e->program->slices > 0)
    args[n++] = (SpTraceArg){ .name = "slice", .number = sp_program_slice_of (e->program, micro_batch) };
  return n;
}

void
sp_engine_trace_kernel (SpEngine *e, const SpRole *role, const SpOp *op, SpTime from, SpTime to)
{
  SpTraceArg args[4]; /* as many as those */
  guint n = arguments (e, role, role->item.position, role->item.phase, role->item.micro_batch, args);

  sp_trace_slice (e->options->trace, role->report->rank, SP_STREAM_COMPUTE, from, to - from,
                  sp_phase_name ((SpPhase) role->item.phase), sp_op_name ((SpOpKind) op->kind), args, n);
}

/* From when the op was at the head of its stream: what waits for others shows as long, as NCCL's kernels do. */
void
sp_engine_trace_posted (SpEngine *e, const SpRole *role, const SpPosted *posted, const SpTransfer *t)
{
  const SpOp *op = posted->op;
  SpTrace *trace = e->options->trace;
  SpTraceArg args[6];
  guint n = arguments (e, role, posted->position, posted->phase, posted->micro_batch, args);
  gint32 rank = role->report->rank;

  args[n++] = (SpTraceArg){ .name = "bytes", .number = op->bytes };
  args[n++] = (SpTraceArg){ .name = "waited ps", .number = t->began - posted->at };
  sp_trace_slice (trace, rank, op->stream, posted->at, e->now - posted->at, sp_axis_name ((SpAxis) op->axis),
                  sp_op_name ((SpOpKind) op->kind), args, n);
}

/* The arrow of a message, and the slices of one between stages. */
void
sp_engine_trace_message (SpEngine *e, const SpTransfer *t)
{
  SpTrace *trace = e->options->trace;
  gint32 from = e->roles->rank[t->subject], to = e->roles->rank[t->receiver];
  const char *axis = sp_axis_name ((SpAxis) t->op->axis);
  gint32 thread = t->op->stream;

  if (e->now == t->began)
    return;
  if (t->kind == SP_TRANSFER_PIPE) {
    const SpTraceArg args[] = { { .name = "bytes", .number = t->op->bytes } };
    thread = t->direction ? THREAD_SENDS_BACK : THREAD_SENDS;
    sp_trace_slice (trace, from, thread, t->began, e->now - t->began, axis, "send", args, G_N_ELEMENTS (args));
    sp_trace_slice (trace, to, SP_STREAM_PIPELINE, t->began, e->now - t->began, axis, "receive", args,
                    G_N_ELEMENTS (args));
  }
  sp_trace_arrow_begin (trace, ++e->n_arrows, from, thread, t->began, axis, "message");
  sp_trace_arrow_end (trace, e->n_arrows, to, t->op->stream, e->now - 1, axis, "message");
}
