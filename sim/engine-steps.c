/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

/*
 * A collective as its steps. A ring of P members takes P - 1 rounds (an all-reduce twice that); in each, a member sends
 * a P-th of the payload to the next one, as soon as its last round is sent and what it is to pass on has arrived: so a
 * slow hop holds up those behind it, round by round. Where members are on several nodes there is a channel for each
 * member of a node, with a share of the bytes: channel c runs through each node from its c-th member on, so that all
 * adapters are in use. A round takes its share of the latency, then its bytes flow. All-to-all: everyone sends to
 * everyone at once.
 *
 * Trees and NVLS are pipelines of small pieces, for which the fluid is the better picture: they stay fluids.
 */

typedef struct {
  guint32 sent, got; /* rounds */
  gboolean is_busy;
} Member;

/* Of an instance, made once and used again. */
struct _SpSteps {
  guint32 n, channels, rounds;
  gint32 *order;   /* [channels][n] ranks around each ring */
  Member *members; /* [channels][n] */
  guint32 left;    /* rounds of members that are not over */
};

/* --- the rings ---------------------------------------------------------------------------------------------------- */

/* Ring order is the order of places; members of a node follow each other in it where the layout is sensible. */
static void
set_order (const SpEngine *e, SpSteps *steps, const SpInstance *instance)
{
  const SpProgram *program = e->program;
  gint32 node = MAX (e->options->gpus_per_node, 1);
  gint32 *ring = g_new (gint32, steps->n);
  guint32 run = 1;

  for (guint32 p = 0; p < steps->n; p++)
    ring[p] = sp_program_member (program, instance->group, instance->rank, (gint32) p);
  while (run < steps->n && ring[run] / node == ring[0] / node)
    run++;
  gboolean even = steps->n % run == 0;
  for (guint32 p = 0; p < steps->n && even; p++)
    even = ring[p] / node == ring[p - p % run] / node;
  steps->channels = even && run < steps->n ? run : 1;
  steps->order = g_new (gint32, steps->channels * steps->n);
  for (guint32 c = 0; c < steps->channels; c++)
    for (guint32 p = 0; p < steps->n; p++)
      steps->order[c * steps->n + p] = steps->channels > 1 ? ring[p - p % run + (p + c) % run] : ring[p];
  g_free (ring);
}

static SpSteps *
steps_of (SpEngine *e, guint32 number)
{
  const SpInstance *instance = &e->roles->instances[number];

  if (e->steps == NULL)
    e->steps = g_new0 (SpSteps *, e->roles->n_instances);
  if (e->steps[number] == NULL) {
    SpSteps *steps = e->steps[number] = g_new0 (SpSteps, 1);
    steps->n = (guint32) e->program->groups[instance->group].size;
    set_order (e, steps, instance);
    steps->members = g_new (Member, steps->channels * steps->n);
  }
  return e->steps[number];
}

void
sp_engine_free_steps (SpEngine *e)
{
  for (guint i = 0; e->steps != NULL && i < e->roles->n_instances; i++)
    if (e->steps[i] != NULL) {
      g_free (e->steps[i]->order);
      g_free (e->steps[i]->members);
      g_free (e->steps[i]);
    }
  g_clear_pointer (&e->steps, g_free);
}

/* --- hops --------------------------------------------------------------------------------------------------------- */

static guint32
take_hop (SpEngine *e, guint32 transfer, guint32 channel, guint32 member)
{
  guint32 number = e->free_hop;

  if (number == 0) {
    g_array_set_size (e->hops, e->hops->len + 1);
    number = e->hops->len - 1;
  } else
    e->free_hop = g_array_index (e->hops, SpHop, number).next_free;
  g_array_index (e->hops, SpHop, number) = (SpHop){ .transfer = transfer, .channel = channel, .member = member };
  return number;
}

static void
add_flow (SpEngine *e, gint32 from, gint32 to, double bytes, double seconds, guint32 owner)
{
  guint32 links[SP_TOPOLOGY_MAX_ROUTE];
  guint n = sp_topology_route (e->options->network->topology, (guint32) from, (guint32) to, links);
  guint32 flow = sp_flows_add (e->flows, links, n, bytes, bytes / seconds, 1);

  sp_engine_own_flow (e, flow, owner);
}

/* The next round of a member, if it may. */
static void
try_round (SpEngine *e, guint32 number, guint32 channel, guint32 member)
{
  const SpTransfer *t = &g_array_index (e->transfers, SpTransfer, number);
  SpSteps *steps = e->steps[t->subject];
  Member *m = &steps->members[channel * steps->n + member];

  if (m->is_busy || m->sent == steps->rounds || m->got < m->sent)
    return;
  m->is_busy = TRUE;
  SpTime latency = t->fixed * (m->sent + 1) / steps->rounds - t->fixed * m->sent / steps->rounds;
  sp_queue_push (&e->queue, e->now + latency, SP_EVENT_TASK_START, take_hop (e, number, channel, member));
}

void
sp_engine_hop_starts (SpEngine *e, guint32 hop_number)
{
  const SpHop hop = g_array_index (e->hops, SpHop, hop_number);
  const SpTransfer *t = &g_array_index (e->transfers, SpTransfer, hop.transfer);
  const SpSteps *steps = e->steps[t->subject];
  const gint32 *order = steps->order + hop.channel * steps->n;
  double seconds = sp_time_to_s (t->total - t->fixed) / steps->rounds;
  double bytes = (double) t->op->bytes / steps->n / steps->channels;

  sp_engine_advance_flows (e);
  add_flow (e, order[hop.member], order[(hop.member + 1) % steps->n], bytes, seconds, hop_number | SP_FLOW_IS_HOP);
}

void
sp_engine_hop_over (SpEngine *e, guint32 hop_number)
{
  SpHop *at = &g_array_index (e->hops, SpHop, hop_number);
  const SpHop hop = *at;
  SpSteps *steps = e->steps[g_array_index (e->transfers, SpTransfer, hop.transfer).subject];
  Member *members = steps->members + hop.channel * steps->n;
  guint32 next = (hop.member + 1) % steps->n;

  at->next_free = e->free_hop;
  e->free_hop = hop_number;
  members[hop.member].is_busy = FALSE;
  members[hop.member].sent++;
  members[next].got++;
  if (--steps->left == 0) {
    sp_queue_push (&e->queue, e->now, SP_EVENT_ARRIVAL, hop.transfer);
    return;
  }
  try_round (e, hop.transfer, hop.channel, hop.member);
  try_round (e, hop.transfer, hop.channel, next);
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

gboolean
sp_engine_start_steps (SpEngine *e, guint32 number)
{
  SpTransfer *t = &g_array_index (e->transfers, SpTransfer, number);

  gboolean twice = t->price->algorithm == SP_ALGORITHM_RING_ALL_REDUCE;

  if (t->kind != SP_TRANSFER_COLLECTIVE || t->op->bytes == 0 || t->total <= t->fixed ||
      (t->price->algorithm != SP_ALGORITHM_RING && !twice))
    return FALSE;
  SpSteps *steps = steps_of (e, t->subject);
  steps->rounds = (steps->n - 1) * (twice ? 2 : 1);
  steps->left = steps->rounds * steps->n * steps->channels;
  memset (steps->members, 0, steps->channels * steps->n * sizeof *steps->members);
  t->flowing = TRUE;
  for (guint32 c = 0; c < steps->channels; c++)
    for (guint32 m = 0; m < steps->n; m++)
      try_round (e, number, c, m);
  return TRUE;
}

/* Every pair of members has a flow of its own. */
gboolean
sp_engine_start_pairs (SpEngine *e, guint32 number)
{
  SpTransfer *t = &g_array_index (e->transfers, SpTransfer, number);
  const SpInstance *instance = &e->roles->instances[t->subject];
  gint32 n = e->program->groups[instance->group].size;
  double seconds = sp_time_to_s (t->total - t->fixed), bytes = (double) t->op->bytes / n;

  if (t->kind != SP_TRANSFER_COLLECTIVE || t->price->algorithm != SP_ALGORITHM_PAIRWISE || t->op->bytes == 0 ||
      seconds <= 0)
    return FALSE;
  sp_engine_advance_flows (e);
  t->flows = (guint32) (n * (n - 1));
  for (gint32 shift = 1; shift < n; shift++)
    for (gint32 p = 0; p < n; p++)
      add_flow (e, sp_program_member (e->program, instance->group, instance->rank, p),
                sp_program_member (e->program, instance->group, instance->rank, (p + shift) % n), bytes, seconds,
                number);
  return TRUE;
}
