/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

/* clang-format off */
G_DEFINE_QUARK (sp-engine-error-quark, sp_engine_error)
/* clang-format on */

/* --- set-up ------------------------------------------------------------------------------------------------------- */

/* Members meet in the order of one stream: a group whose ops are on two would mix them up. */
static gboolean
check_streams (SpEngine *e)
{
  gint stream_of[SP_N_GROUPS];

  for (guint g = 0; g < SP_N_GROUPS; g++)
    stream_of[g] = -1;
  for (guint i = 0; i < e->program->n_ops; i++) {
    const SpOp *op = &e->program->ops[i];
    if (!sp_op_is_communication (op->kind) || e->program->groups[op->group].size == 1)
      continue;
    if (stream_of[op->group] >= 0 && stream_of[op->group] != op->stream) {
      sp_engine_fail (e, SP_ENGINE_ERROR_PROGRAM, "op %u: group %s is used on the %s and the %s stream", i,
                      sp_group_name ((SpGroupId) op->group), sp_stream_name ((SpStream) stream_of[op->group]),
                      sp_stream_name ((SpStream) op->stream));
      return FALSE;
    }
    stream_of[op->group] = op->stream;
  }
  return TRUE;
}

static void
make_messages (SpEngine *e, guint group)
{
  gint32 n = e->roles->n, size = e->program->groups[group].size;

  for (guint d = 0; d < 2; d++) {
    e->message[group][d] = g_new0 (SpMeeting, n);
    if (e->options->serial && e->options->gpus_per_node > 0) {
      e->near_hops[group][d] = g_new (guint8, size);
      sp_program_near_hops (e->program, (SpGroupId) group, d == 1, e->options->gpus_per_node, e->near_hops[group][d]);
    }
    e->neighbour[group][d] = g_new (gint32, n);
    for (gint32 r = 0; r < n; r++) {
      gint32 rank = e->roles->rank[r], place = e->role[r].place[group];
      gint32 other = (place + (d == 0 ? 1 : size - 1)) % size;
      e->neighbour[group][d][r] = e->roles->of_rank[sp_program_member (e->program, group, rank, other)];
    }
  }
}

static void
make_roles (SpEngine *e)
{
  const SpProgram *program = e->program;
  gint32 n = e->roles->n;

  e->role = g_new0 (SpRole, n);
  e->stood = g_new0 (SpTime, (gsize) n * SP_N_GROUPS * SP_N_PHASES);
  e->mail_of = g_new0 (guint32, n);
  for (gint32 r = 0; r < n; r++) {
    SpRole *role = &e->role[r];
    SpRoleReport *report = role->report = &e->result->roles[r];
    guint n_positions;

    report->rank = e->roles->rank[r];
    report->count = e->roles->count[r];
    report->stage = sp_program_place (program, SP_GROUP_PIPELINE, report->rank);
    for (guint g = 0; g < SP_N_GROUPS; g++)
      role->place[g] = program->groups[g].size > 1 ? sp_program_place (program, g, report->rank) : 0;
    sp_walk_positions (e->walks, report->stage, &n_positions);
    role->data_count = g_new0 (guint32, n_positions);
    role->gathered = g_new0 (guint8, n_positions);
    sp_walk_init (&role->walk, e->walks, report->stage);
    role->slot = -1;
    role->pending = -1;
    role->left = -1;
    role->peak_op = G_MAXUINT32;
    role->where = SP_ROLE_BETWEEN;
    sp_memory_start_rank (e->memory, report->rank, &role->memory);
  }
}

static guint8
storage_of (const SpBlock *block, guint8 slot)
{
  while (block->buffers[slot].alias != 0)
    slot = block->buffers[slot].alias;
  return slot;
}

/* The first op of a list that reads what the block's GATHER writes. */
static guint16
first_reader (const SpProgram *program, const SpBlock *block, SpPhase phase)
{
  guint n, n_gathers;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  const SpOp *gathers = sp_program_segment (program, block, SP_PHASE_GATHER, &n_gathers);
  guint8 is_gathered[G_MAXUINT8 + 1] = { 0 };

  for (guint i = 0; i < n_gathers; i++)
    for (guint j = 0; j < SP_MAX_OUT; j++)
      is_gathered[storage_of (block, gathers[i].out[j])] = 1;
  is_gathered[0] = 0; /* no buffer */
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < SP_MAX_IN; j++)
      if (is_gathered[storage_of (block, ops[i].in[j])])
        return (guint16) i;
  return G_MAXUINT16;
}

static void
set_first_readers (SpEngine *e)
{
  const SpProgram *program = e->program;
  guint16 *at = e->first_readers = g_new (guint16, program->n_variants * program->n_blocks * SP_N_PHASES);

  for (gint32 v = 0; v < program->n_variants; v++)
    for (guint b = 0; b < program->n_blocks; b++)
      for (guint phase = 0; phase < SP_N_PHASES; phase++)
        *at++ = first_reader (program, &program->variants[v].blocks[b], (SpPhase) phase);
}

static void
set_factors (SpEngine *e)
{
  const SpVariation *variation = e->options->variation;

  if (!sp_variation_splits (variation))
    return;
  e->kernel_factor = g_new (double, e->roles->n);
  for (gint32 r = 0; r < e->roles->n; r++)
    e->kernel_factor[r] = 1;
  for (guint i = 0; i < variation->n_slow_ranks; i++)
    e->kernel_factor[e->roles->of_rank[variation->slow_ranks[i].rank]] *= variation->slow_ranks[i].factor;
}

static gboolean
engine_init (SpEngine *e)
{
  const SpProgram *program = e->program;
  const SpNetwork *network = e->options->network;

  e->result = g_new0 (SpSimulation, 1);
  e->result->n_roles = e->roles->n;
  e->result->roles = g_new0 (SpRoleReport, e->roles->n);
  sp_queue_init (&e->queue);
  e->posted = g_array_sized_new (FALSE, TRUE, sizeof (SpPosted), 256);
  e->mail = g_array_sized_new (FALSE, TRUE, sizeof (SpMail), 256);
  e->transfers = g_array_sized_new (FALSE, TRUE, sizeof (SpTransfer), 256);
  e->flow_owner = g_array_sized_new (FALSE, TRUE, sizeof (guint32), 256);
  e->hops = g_array_sized_new (FALSE, TRUE, sizeof (SpHop), 256);
  g_array_set_size (e->hops, 1);
  g_array_set_size (e->posted, 1);
  g_array_set_size (e->mail, 1);
  g_array_set_size (e->transfers, 1);
  if (!check_streams (e))
    return FALSE;

  e->host_launch = e->options->serial ? 0 : e->prices->host_launch;
  e->walks = sp_walk_plan_new (program, e->options->serial ? SP_ORDER_PROGRAM : SP_ORDER_EAGER);
  e->memory = sp_memory_plan_new (program, e->walks, &e->error);
  if (e->memory == NULL)
    return FALSE;
  make_roles (e);
  for (guint g = 1; g < SP_N_GROUPS; g++)
    if (program->groups[g].size > 1)
      make_messages (e, g);
  e->instance = g_new0 (SpMeeting, e->roles->n_instances);
  set_factors (e);
  set_first_readers (e);
  if (network != NULL && !e->options->serial)
    e->flows = sp_flows_new (network->n_links, network->capacity_bytes_per_s);
  return TRUE;
}

static void
engine_clear (SpEngine *e)
{
  for (gint32 r = 0; e->role != NULL && r < e->roles->n; r++) {
    g_free (e->role[r].data_count);
    g_free (e->role[r].gathered);
    sp_memory_state_clear (&e->role[r].memory);
  }
  g_free (e->role);
  g_free (e->stood);
  g_free (e->mail_of);
  g_free (e->instance);
  g_free (e->kernel_factor);
  g_free (e->first_readers);
  for (guint g = 0; g < SP_N_GROUPS; g++)
    for (guint d = 0; d < 2; d++) {
      g_free (e->message[g][d]);
      g_free (e->neighbour[g][d]);
      g_free (e->near_hops[g][d]);
    }
  g_clear_pointer (&e->posted, g_array_unref);
  g_clear_pointer (&e->mail, g_array_unref);
  g_clear_pointer (&e->transfers, g_array_unref);
  g_clear_pointer (&e->flow_owner, g_array_unref);
  g_clear_pointer (&e->hops, g_array_unref);
  sp_engine_free_steps (e);
  g_clear_pointer (&e->memory, sp_memory_plan_free);
  g_clear_pointer (&e->walks, sp_walk_plan_free);
  g_clear_pointer (&e->flows, sp_flows_free);
  sp_queue_clear (&e->queue);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void
take_event (SpEngine *e)
{
  SpEvent event = sp_queue_pop (&e->queue);

  e->now = event.time;
  e->result->n_events++;
  if (event.class == SP_EVENT_TASK_FINISH)
    sp_role_kernels_over (e, &e->role[event.payload]);
  else if (event.class == SP_EVENT_TASK_START)
    sp_engine_hop_starts (e, event.payload);
  else
    sp_engine_transfer_event (e, event.payload);
}

void
sp_engine_advance_flows (SpEngine *e)
{
  guint n;
  const guint32 *through = sp_flows_advance (e->flows, e->now, &n);

  e->result->n_events += n;
  for (guint i = 0; i < n && e->error == NULL; i++) {
    guint32 number = g_array_index (e->flow_owner, guint32, through[i]);
    if (number & SP_FLOW_IS_HOP)
      sp_engine_hop_over (e, number & ~SP_FLOW_IS_HOP);
    else if (--g_array_index (e->transfers, SpTransfer, number).flows == 0)
      sp_queue_push (&e->queue, e->now, SP_EVENT_ARRIVAL, number);
  }
}

/* All of one instant is done before the network is asked again: it solves once an instant. */
static void
run (SpEngine *e)
{
  if (e->options->trace != NULL)
    sp_engine_trace_begin (e);
  for (gint32 r = 0; r < e->roles->n && e->error == NULL; r++)
    sp_role_go (e, &e->role[r]);
  while (e->error == NULL) {
    while (sp_queue_next_time (&e->queue) == e->now && e->error == NULL)
      take_event (e);
    SpTime next = sp_queue_next_time (&e->queue), flows = e->flows ? sp_flows_next (e->flows) : SP_TIME_NEVER;
    if (e->error != NULL || (next == SP_TIME_NEVER && flows == SP_TIME_NEVER))
      return;
    if (flows <= next) {
      e->now = flows;
      sp_engine_advance_flows (e);
    } else
      take_event (e);
  }
}

SpSimulation *
sp_engine_run (const SpProgram *program, const SpRoles *roles, const SpPrices *prices, const SpEngineOptions *options,
               GError **error)
{
  SpEngine engine = { .program = program, .roles = roles, .prices = prices, .options = options }, *e = &engine;
  g_autoptr (SpSimulation) result = NULL;

  if (engine_init (e)) {
    run (e);
    if (e->error == NULL && e->n_done < roles->n)
      sp_engine_report_deadlock (e);
    if (e->error == NULL)
      sp_engine_report (e);
  }
  result = g_steal_pointer (&e->result);
  engine_clear (e);
  if (e->error != NULL) {
    g_propagate_error (error, e->error);
    return NULL;
  }
  return g_steal_pointer (&result);
}

void
sp_simulation_free (SpSimulation *simulation)
{
  if (simulation == NULL)
    return;
  g_free (simulation->roles);
  g_free (simulation);
}
