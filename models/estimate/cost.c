/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"

#include <math.h>

/* --- kernels ------------------------------------------------------------------------------------------------------ */

typedef struct {
  gint32 log2_m, log2_n;
  double efficiency; /* of the large tile's rate; assumed: a smaller tile reads more per FLOP */
} Tile;

static const Tile tiles[] = { { 7, 8, 1.0 }, { 7, 7, 0.9 }, { 6, 6, 0.6 } };

/* A tile's prologue and epilogue take as long as this much of K: with it the largest error over the GEMMs above 100 us
 * that were measured on an H100 (cuBLAS, bf16) falls from 23 % to 14 %. */
#define PROLOGUE_K 256

/* K of one part when the library splits K to fill the SMs. */
#define SPLIT_K 512

static gint64
tiles_of (gint64 n, gint32 log2_tile)
{
  return (n + (G_GINT64_CONSTANT (1) << log2_tile) - 1) >> log2_tile;
}

/* Share of the SMs that `count` equal pieces keep busy, run in waves of one an SM. */
static double
wave_use (const SpCost *cost, gint64 count)
{
  gint64 waves = (count + cost->sms - 1) / cost->sms;

  return (double) count / (double) (waves * cost->sms);
}

double
sp_cost_gemm_use (const SpCost *cost, gint32 m, gint32 n, gint32 k)
{
  double best = 0;

  for (guint i = 0; i < G_N_ELEMENTS (tiles); i++) {
    gint64 count = tiles_of (m, tiles[i].log2_m) * tiles_of (n, tiles[i].log2_n), parts = 1;
    double covered = (double) (count << (tiles[i].log2_m + tiles[i].log2_n));
    if (count < cost->sms)
      parts = MIN (cost->sms / count, MAX (1, k / SPLIT_K));
    double depth = (double) k / parts;
    double use =
        (double) m * n / covered * wave_use (cost, count * parts) * tiles[i].efficiency * depth / (depth + PROLOGUE_K);
    best = MAX (best, use);
    /* A smaller tile cannot make up for its rate from here on. */
    if (i + 1 < G_N_ELEMENTS (tiles) && best >= tiles[i + 1].efficiency)
      break;
  }
  return best;
}

/* A kernel's blocks of 128 query rows a head fill the SMs in waves. */
static double
attention_use (const SpCost *cost, const SpOp *op)
{
  return wave_use (cost, tiles_of (op->m, 7) * op->heads * op->batch);
}

/* Share of its class' rate that the shape of the op reaches. */
static double
shape_use (const SpCost *cost, const SpOp *op)
{
  if (op->kind == SP_OP_GEMM)
    return sp_cost_gemm_use (cost, op->m, op->n, op->k);
  if (op->kind == SP_OP_ATTENTION || op->kind == SP_OP_ATTENTION_BWD)
    return attention_use (cost, op);
  return 1;
}

static double
kernel_seconds (const SpCost *cost, const SpOp *op)
{
  double memory = op->bytes * cost->s_per_byte, compute = op->flops * cost->s_per_flop[op->kind];

  if (compute > 0)
    compute /= shape_use (cost, op);
  return cost->launch_s + MAX (compute, memory);
}

/* --- communication ------------------------------------------------------------------------------------------------ */

typedef struct {
  double rate;                    /* of the wire that carries data */
  double link_step, network_step; /* latency of a step, relative to Simple */
} Protocol;

static const Protocol protocols[] = {
  { 1.0, 1.0, 1.0 },
  { 120.0 / 128.0, 1.9 / 3.4, 4.0 / 14.0 },
  { 0.5, 0.6 / 3.4, 2.7 / 14.0 },
};

/* `rounds` of the ring's P - 1 steps. */
static double
ring_seconds (const SpPath *path, double wire_bytes, double rounds)
{
  double best = INFINITY;

  for (guint i = 0; i < G_N_ELEMENTS (protocols); i++) {
    const Protocol *p = &protocols[i];
    double latency =
        rounds * (path->ring_latency_link_s * p->link_step + path->ring_latency_network_s * p->network_step);
    best = MIN (best, latency + wire_bytes / (path->ring_bytes_per_s * p->rate));
  }
  return best;
}

static double
tree_seconds (const SpPath *path, double payload_bytes)
{
  double best = INFINITY;

  for (guint i = 0; i < G_N_ELEMENTS (protocols); i++) {
    const Protocol *p = &protocols[i];
    double latency = 2 * (path->tree_latency_link_s * p->link_step + path->tree_latency_network_s * p->network_step);
    best = MIN (best, latency + 2 * payload_bytes / (path->ring_bytes_per_s * p->rate));
  }
  return best;
}

static double
all_to_all_seconds (const SpPath *path, double payload_bytes)
{
  double inside = payload_bytes * (path->per_node - 1) / path->size / path->link_bytes_per_s;
  double outside =
      path->network ? payload_bytes * (path->size - path->per_node) / path->size / path->network_bytes_per_s : 0;

  return path->hop_latency_s + MAX (inside, outside);
}

double
sp_cost_wire_bytes (const SpCost *cost, const SpOp *op)
{
  double part = (double) (cost->paths[op->group].size - 1) / cost->paths[op->group].size;

  switch (op->kind) {
  case SP_OP_ALL_GATHER:
  case SP_OP_REDUCE_SCATTER:
  case SP_OP_ALL_TO_ALL:
    return op->bytes * part;
  case SP_OP_ALL_REDUCE:
    return 2 * op->bytes * part;
  case SP_OP_SEND:
  case SP_OP_SEND_RECEIVE:
    return op->bytes;
  default:
    return 0;
  }
}

static double
communication_seconds (const SpCost *cost, const SpOp *op)
{
  const SpPath *path = &cost->paths[op->group];

  if (op->kind == SP_OP_RECEIVE || path->size == 1)
    return 0;
  switch (op->kind) {
  case SP_OP_ALL_GATHER:
  case SP_OP_REDUCE_SCATTER:
    return cost->launch_s + ring_seconds (path, sp_cost_wire_bytes (cost, op), 1);
  case SP_OP_ALL_REDUCE:
    return cost->launch_s +
           MIN (ring_seconds (path, sp_cost_wire_bytes (cost, op), 2), tree_seconds (path, (double) op->bytes));
  case SP_OP_ALL_TO_ALL:
    return cost->launch_s + all_to_all_seconds (path, (double) op->bytes);
  default:
    return cost->launch_s + path->hop_latency_s + op->bytes / path->send_bytes_per_s;
  }
}

double
sp_cost_chain (const SpCost *cost, const SpOp *op)
{
  const SpPath *path = &cost->paths[op->group];
  double link = cost->launch_s + path->link_hop_latency_s + op->bytes / path->link_bytes_per_s;

  return (path->nodes - 1) * communication_seconds (cost, op) + (path->size - path->nodes) * link;
}

double
sp_cost_op (const SpCost *cost, const SpOp *op)
{
  return sp_op_is_communication (op->kind) ? communication_seconds (cost, op) : kernel_seconds (cost, op);
}

/* --- set-up ------------------------------------------------------------------------------------------------------- */

/* Of the peak; 0 for kernels that memory alone bounds. */
static double
efficiency_of (const SpDevice *device, SpOpKind kind)
{
  switch (kind) {
  case SP_OP_GEMM:
  case SP_OP_SCORES:
  case SP_OP_SCORES_BWD:
  case SP_OP_CONTEXT:
  case SP_OP_CONTEXT_BWD:
    return device->gemm_efficiency.value;
  case SP_OP_ATTENTION:
    return device->attention_efficiency.value;
  case SP_OP_ATTENTION_BWD:
    return device->attention_backward_efficiency.value;
  case SP_OP_LINEAR_LOCAL:
  case SP_OP_LINEAR_LOCAL_BWD:
  case SP_OP_LINEAR_INTER:
  case SP_OP_LINEAR_INTER_BWD:
    return device->linear_efficiency.value;
  default:
    return 0;
  }
}

void
sp_cost_init (SpCost *cost, const SpCluster *cluster, const SpFramework *framework)
{
  const SpDevice *device = cluster->device;
  double peak = device->peak_bf16_flops_per_s.value;

  *cost = (SpCost){
    .launch_s = device->launch_s.value,
    .host_launch_s = framework->host_eager ? framework->host_launch_s.value : 0,
    .s_per_byte = 1 / (device->memory_bytes_per_s.value * device->memory_efficiency.value),
    .peak_flops_per_s = peak,
    .slowdown = device->overlap_slowdown.value,
    .sms = (gint32) device->sms.value,
  };
  for (guint kind = 0; kind < SP_N_OPS; kind++) {
    double efficiency = efficiency_of (device, kind);
    cost->s_per_flop[kind] = efficiency > 0 ? 1 / (peak * efficiency) : 0;
  }
}

/* Members of a group in one node. Ranks fill nodes in order, so a digit whose stride is below the node's size has
 * values inside; where node and digits do not line up the smallest count that a node can have is taken. */
static gint32
members_per_node (const SpProgram *program, const SpGroup *group, gint32 node)
{
  gint32 inside = 1;

  for (guint i = 0; i < group->n_digits; i++) {
    const SpDigit *digit = &program->digits[group->digits[i]];
    if (digit->stride < node && node % digit->stride == 0) {
      gint32 values = MIN (digit->size, node / digit->stride);
      inside *= digit->size % values == 0 ? values : 1;
    }
  }
  return MIN (inside, group->size);
}

/* Sends of one group that leave a node at once: one where the members of a node are neighbours in the ring. */
static void
set_send (SpPath *path, const SpCluster *cluster)
{
  double link = cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value;

  path->send_bytes_per_s = link;
  path->hop_latency_s = path->link_hop_latency_s = cluster->link_latency_s.value;
  if (!path->network)
    return;
  double flows = MAX (1, cluster->gpus_per_node / path->per_node);
  double nics = cluster->nics.value * cluster->nic_bytes_per_s.value;
  double rate = MIN (cluster->nic_bytes_per_s.value, nics / flows) * cluster->network_efficiency.value;
  path->send_bytes_per_s = MIN (link, rate);
  path->hop_latency_s = cluster->network_latency_s.value;
}

static void
set_path (SpPath *path, const SpCluster *cluster, const SpProgram *program, const SpGroup *group, gint32 size)
{
  gint32 node = cluster->gpus_per_node;

  path->size = size;
  path->per_node = size == group->size && program->world > node ? members_per_node (program, group, node) : size;
  if (program->world <= node)
    path->per_node = size;
  path->nodes = (size + path->per_node - 1) / path->per_node;
  path->network = path->nodes > 1;
  path->link_bytes_per_s = cluster->device->link_bytes_per_s.value * cluster->link_efficiency.value;
  path->network_bytes_per_s =
      path->network ? cluster->nics.value * cluster->nic_bytes_per_s.value * cluster->network_efficiency.value / node
                    : path->link_bytes_per_s;
  path->ring_bytes_per_s =
      path->network ? MIN (path->link_bytes_per_s, path->per_node * path->network_bytes_per_s) : path->link_bytes_per_s;
  gint32 network_steps = path->network ? path->nodes - 1 : 0;
  path->ring_latency_network_s = network_steps * cluster->network_latency_s.value;
  path->ring_latency_link_s = (size - 1 - network_steps) * cluster->link_latency_s.value;
  path->tree_latency_network_s = path->network ? ceil (log2 (path->nodes)) * cluster->network_latency_s.value : 0;
  path->tree_latency_link_s = (path->per_node - 1) * cluster->link_latency_s.value;
  set_send (path, cluster);
}

void
sp_cost_set_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  for (guint i = 0; i < SP_N_GROUPS; i++) {
    const SpGroup *group = &program->groups[i];
    if (group->size > 1)
      set_path (&cost->paths[i], cluster, program, group, group->size);
    else
      cost->paths[i] = (SpPath){ .size = 1,
                                 .per_node = 1,
                                 .nodes = 1,
                                 .ring_bytes_per_s = 1,
                                 .send_bytes_per_s = 1,
                                 .link_bytes_per_s = 1,
                                 .network_bytes_per_s = 1 };
  }
  /* The two ends of the pipeline are as far apart as its stages reach. */
  if (program->groups[SP_GROUP_TIE].size == 2) {
    const SpPath *pipeline = &cost->paths[SP_GROUP_PIPELINE];
    SpPath *tie = &cost->paths[SP_GROUP_TIE];
    *tie = *pipeline;
    tie->size = 2;
    tie->per_node = pipeline->network ? 1 : 2;
    tie->nodes = pipeline->network ? 2 : 1;
    tie->ring_bytes_per_s = pipeline->network ? MIN (pipeline->link_bytes_per_s, pipeline->network_bytes_per_s)
                                              : pipeline->link_bytes_per_s;
    tie->ring_latency_network_s = pipeline->network ? cluster->network_latency_s.value : 0;
    tie->ring_latency_link_s = pipeline->network ? 0 : cluster->link_latency_s.value;
    tie->tree_latency_network_s = tie->ring_latency_network_s;
    tie->tree_latency_link_s = tie->ring_latency_link_s;
  }
}

SpProvenance
sp_cost_provenance (const SpCluster *cluster, const SpFramework *framework, gboolean communicates)
{
  const SpDevice *d = cluster->device;
  const SpQuantity *kernel[] = { &d->peak_bf16_flops_per_s,
                                 &d->memory_bytes,
                                 &d->memory_bytes_per_s,
                                 &d->sms,
                                 &d->launch_s,
                                 &d->gemm_efficiency,
                                 &d->attention_efficiency,
                                 &d->attention_backward_efficiency,
                                 &d->memory_efficiency,
                                 &framework->reserved_bytes,
                                 &framework->allocator_slack };
  const SpQuantity *links[] = {
    &d->link_bytes_per_s, &d->overlap_slowdown,      &cluster->link_efficiency,    &cluster->link_latency_s,
    &cluster->nics,       &cluster->nic_bytes_per_s, &cluster->network_efficiency, &cluster->network_latency_s
  };
  SpProvenance worst = SP_MEASURED;

  for (guint i = 0; i < G_N_ELEMENTS (kernel); i++)
    worst = MAX (worst, kernel[i]->provenance);
  for (guint i = 0; communicates && i < G_N_ELEMENTS (links); i++)
    if (cluster->nodes > 1 || links[i] == &d->link_bytes_per_s || links[i] == &cluster->link_efficiency)
      worst = MAX (worst, links[i]->provenance);
  return worst;
}
