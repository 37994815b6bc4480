/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"

#include "models/estimate/cost-curves.h"
#include "models/estimate/paths.h"
#include "sim/op-place.h"

#include <math.h>

/* --- kernels ------------------------------------------------------------------------------------------------------ */

double
sp_cost_gemm_use (const SpCost *cost, gint32 batch, gint32 m, gint32 n, gint32 k)
{
  return sp_curve_gemm_use (&cost->gemm_shape, cost->sms, batch, m, n, k);
}

static gboolean
is_attention (const SpOp *op)
{
  return op->kind == SP_OP_ATTENTION || op->kind == SP_OP_ATTENTION_BWD;
}

/* published: blocks of FlashAttention-2's forward for heads up to 128, four warps each (its launch template). assumed: with
 * as many registers as a thread can have, of which an SM has enough for two. */
enum { QUERY_ROWS = 128, BLOCKS_AN_SM = 2 };

static gint64
query_blocks (gint64 rows)
{
  return (rows + QUERY_ROWS - 1) / QUERY_ROWS;
}

/* Blocks of each head from the shortest to the longest, which is twice the mean (cost.h). */
static double
ascending_use (gint32 sms, gint64 blocks, gint64 heads)
{
  double slots = (double) BLOCKS_AN_SM * sms, waves = blocks * heads / slots;
  double late = MIN (1 + slots / (3 * (slots + blocks)), waves);

  return waves < 0.5 ? waves : waves < 1 ? 0.5 : waves / (waves + late);
}

/* Of attention: whether later rows see more keys. */
static gboolean
is_masked (const SpOp *op)
{
  return op->flags & SP_OP_CAUSAL && !(op->flags & SP_OP_UNMASKED);
}

/* Of UNMASKED attention at the places where it is over the fewest rows: these see all keys, as many pairs in all as where
 * all rows see some. */
static gint64
fewest_rows (const SpOp *op)
{
  gint32 values = op->value_size > 0 ? op->value_size : op->k;
  double all_flops = 2.0 * op->m * op->n * op->heads * op->batch * (op->k + values);

  return (gint64) ceil (op->m * MIN (op->flops / all_flops, 1));
}

/* A kernel's blocks of query rows of each head fill the SMs in waves. */
static double
attention_use (const SpCost *cost, const SpOp *op)
{
  gint64 blocks = query_blocks (op->m), heads = (gint64) op->heads * op->batch;

  if (!cost->ascending || op->kind != SP_OP_ATTENTION)
    return sp_curve_wave_use (cost->sms, blocks * heads, 1);
  if (is_masked (op))
    return ascending_use (cost->sms, blocks, heads);
  double use = sp_curve_wave_use (BLOCKS_AN_SM * cost->sms, blocks * heads, 1);
  if (!(op->flags & SP_OP_UNMASKED))
    return use;
  return MIN (use, sp_curve_wave_use (BLOCKS_AN_SM * cost->sms, query_blocks (fewest_rows (op)) * heads, 1));
}

/* A whole matrix of ORTHOGONALIZE, the short side first. */
static void
matrix_sides (const SpOp *op, gint32 *ret_short, gint32 *ret_long)
{
  gint32 rows = op->m * (op->flags & SP_OP_TRANS_B ? 1 : op->kv_heads);
  gint32 cols = op->n * (op->flags & SP_OP_TRANS_B ? op->kv_heads : 1);

  *ret_short = MIN (rows, cols);
  *ret_long = MAX (rows, cols);
}

/* Of an iteration X X^T, A A and B X, of which the middle one has s / (2 l + s) of the FLOP. */
static double
orthogonal_use (const SpCost *cost, const SpOp *op)
{
  gint32 s, l;
  matrix_sides (op, &s, &l);
  double all = 4.0 * l + 2.0 * s;

  return all / (2.0 * l / sp_cost_gemm_use (cost, 1, s, s, l) + 2.0 * s / sp_cost_gemm_use (cost, 1, s, s, s) +
                2.0 * l / sp_cost_gemm_use (cost, 1, s, l, s));
}

/* As which kind of kernel a framework has an op: the first block that is merged is but copied. */
static SpOpKind
stack_kind (const SpOp *op)
{
  gboolean copies = op->kind == SP_OP_ATTENTION_MERGE && !(op->flags & SP_OP_ACCUMULATE);

  return copies ? SP_OP_COPY : (SpOpKind) op->kind;
}

/* Kernels that the op stands for: as many as the framework has for it; three GEMMs an iteration of each matrix that it has
 * FLOP of. */
static double
launches (const SpCost *cost, const SpOp *op)
{
  gint32 s, l;

  if (op->kind != SP_OP_ORTHOGONALIZE || op->flops == 0)
    return cost->kernels_of[stack_kind (op)];
  matrix_sides (op, &s, &l);
  return 3 * op->flops / (4.0 * s * s * l + 2.0 * s * s * s);
}

/* Fraction of its curve's rate that softmax attention's keys or linear attention's tokens, and the head size, reach. */
static double
core_use (const SpCost *cost, const SpOp *op)
{
  if (cost->half_tokens[op->kind] == 0 && cost->head_power[op->kind] == 0)
    return 1;
  gboolean softmax = is_attention (op);
  double tokens = softmax ? op->n : op->m;
  return sp_curve_core_use (cost->half_tokens[op->kind], cost->head_power[op->kind], MAX (tokens, 1), MAX (op->k, 1));
}

/* Unfused attention is products of a head and sequence each: with scores [m,n], of m queries and n keys over the head
 * size, or of tokens and the head size over the keys or queries. A backward has two of as many FLOP, or one of them. */
static double
scores_use (const SpCost *cost, const SpOp *op)
{
  gint32 batch = op->batch * op->heads;
  double scores = sp_cost_gemm_use (cost, batch, op->m, op->n, op->k);
  double of_queries = sp_cost_gemm_use (cost, batch, op->m, op->k, op->n);
  double of_keys = sp_cost_gemm_use (cost, batch, op->n, op->k, op->m);

  if (op->kind == SP_OP_SCORES)
    return scores;
  if (op->kind == SP_OP_CONTEXT)
    return of_queries;
  double first = op->kind == SP_OP_SCORES_BWD ? of_queries : scores, n = (op->out[0] != 0) + (op->out[1] != 0);
  return n / ((op->out[0] != 0) / first + (op->out[1] != 0) / of_keys);
}

/* Share of its class' rate that the shape of the op reaches. */
static double
shape_use (const SpCost *cost, const SpOp *op)
{
  if (op->kind == SP_OP_GEMM)
    return sp_cost_gemm_use (cost, op->batch, op->m, op->n, op->k);
  if (op->kind == SP_OP_SCORES || op->kind == SP_OP_SCORES_BWD || op->kind == SP_OP_CONTEXT ||
      op->kind == SP_OP_CONTEXT_BWD)
    return scores_use (cost, op);
  if (is_attention (op))
    return attention_use (cost, op) * core_use (cost, op);
  if (op->kind == SP_OP_ORTHOGONALIZE)
    return orthogonal_use (cost, op);
  return core_use (cost, op);
}

/* Rows of A, B and C in elements, whichever way they lie. */
static gboolean
is_aligned (const SpOp *op)
{
  gint32 a = op->flags & SP_OP_TRANS_A ? op->m : op->k, b = op->flags & SP_OP_TRANS_B ? op->k : op->n;
  gint32 elements = op->flags & SP_OP_FP8 ? 16 : 8;

  return a % elements == 0 && b % elements == 0 && op->n % elements == 0;
}

/* Of the head size that the kernel is made for, over the op's. */
static double
padding (const SpOp *op)
{
  gint32 size = 1;

  while (size < op->k)
    size *= 2;
  return (double) size / MAX (op->k, 1);
}

static double
kernel_seconds (const SpCost *cost, const SpOp *op)
{
  double stack = cost->stack_time[stack_kind (op)];

  if (op->kind == SP_OP_GEMM && cost->unaligned_time > 1 && !is_aligned (op))
    stack *= cost->unaligned_time;

  if (op->flags & SP_OP_ON_HOST)
    return op->bytes * cost->host_kernel_s_per_byte;
  if (is_attention (op) && is_masked (op))
    stack *= cost->causal_time;
  if (is_attention (op) && cost->padded)
    stack *= padding (op);
  if (cost->kernels[op->kind] != NULL)
    return stack * sp_cost_kernel_by_curve (cost, op);
  double s_per_byte = op->kind == SP_OP_GEMM ? cost->gemm_s_per_byte : cost->s_per_byte;
  double memory = op->bytes * s_per_byte;
  double compute = op->flops * cost->s_per_flop[op->kind] * cost->time_of_bf16 / cost->clock;

  if (op->flags & SP_OP_FP8)
    compute *= cost->fp8_of_bf16;
  if (compute > 0)
    compute /= shape_use (cost, op);
  return launches (cost, op) * cost->kernel_launch_s[op->kind] + stack * MAX (compute, memory);
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

/* Without launch. */
typedef struct {
  double total_s, latency_s;
  SpAlgorithm algorithm;
} Price;

static inline void
take_quicker (Price *best, double latency_s, double transfer_s, SpAlgorithm algorithm)
{
  double total_s = latency_s + transfer_s;

  if (total_s < best->total_s)
    *best = (Price){ total_s, latency_s, algorithm };
}

/* How many of them there are, Simple first. */
static guint
protocols_over (const SpCost *cost, const SpPath *path)
{
  return cost->simple_network && path->network ? 1 : G_N_ELEMENTS (protocols);
}

/* `rounds` of the ring's P - 1 steps. */
static void
price_ring (const SpPath *path, guint n_protocols, double wire_bytes, double rounds, SpAlgorithm algorithm, Price *best)
{
  for (guint i = 0; i < n_protocols; i++) {
    const Protocol *p = &protocols[i];
    double latency =
        rounds * (path->ring_latency_link_s * p->link_step + path->ring_latency_network_s * p->network_step);
    take_quicker (best, latency, wire_bytes / (path->ring_bytes_per_s * p->rate), algorithm);
  }
}

static void
price_tree (const SpPath *path, guint n_protocols, double payload_bytes, Price *best)
{
  for (guint i = 0; i < n_protocols; i++) {
    const Protocol *p = &protocols[i];
    double latency = 2 * (path->tree_latency_link_s * p->link_step + path->tree_latency_network_s * p->network_step);
    take_quicker (best, latency, 2 * payload_bytes / (path->tree_bytes_per_s * p->rate), SP_ALGORITHM_TREE);
  }
}

static void
price_nvls (const SpPath *path, double payload_bytes, guint what, Price *best)
{
  static const SpAlgorithm algorithms[] = { SP_ALGORITHM_NVLS, SP_ALGORITHM_NVLS_SCATTER, SP_ALGORITHM_NVLS_GATHER };

  if (path->nvls_s_per_byte[what] > 0)
    take_quicker (best, path->nvls_latency_s, payload_bytes * path->nvls_s_per_byte[what],
                  what == 0 && path->network ? SP_ALGORITHM_NVLS_TREE : algorithms[what]);
}

static void
price_all_to_all (const SpPath *path, double payload_bytes, Price *best)
{
  if (path->pairwise_s_per_byte != 0) {
    take_quicker (best, path->hop_latency_s, payload_bytes * sp_path_pairwise (path), SP_ALGORITHM_PAIRWISE);
    return;
  }
  double inside = payload_bytes * (path->per_node - 1) / path->size / path->link_bytes_per_s;
  double outside =
      path->network ? payload_bytes * (path->size - path->per_node) / path->size / path->network_bytes_per_s : 0;
  take_quicker (best, path->hop_latency_s, MAX (inside, outside), SP_ALGORITHM_PAIRWISE);
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
  case SP_OP_TO_HOST:
  case SP_OP_FROM_HOST:
    return op->bytes;
  default:
    return 0;
  }
}

/* --- communication by curves -------------------------------------------------------------------------------------- */

/* Of so many equal parts at once, which share links and what NCCL has for them: each takes as long as all the others. */
static double
curve_seconds (const SpCost *cost, const SpGroupCurve *c, double payload, guint parts, double *ret_fixed_s)
{
  double latency, all = sp_curve_transfer_s (c->curve, payload / parts * c->scale, &latency);
  double beyond = MAX (latency - cost->launch_s, 0);

  *ret_fixed_s = latency - beyond + parts * beyond * c->steps + 2 * c->hop_s;
  return *ret_fixed_s + parts * (all - latency);
}

/* Tensors of a message are messages of their own in one call: keys and values of a ring. */
static guint
parts_of (const SpOp *op)
{
  guint n = 0;

  for (guint i = 0; i < SP_MAX_IN; i++)
    n += op->in[i] != 0;
  return MAX (n, 1);
}

static SpGroupCurveId
curve_of (const SpOp *op)
{
  switch (op->kind) {
  case SP_OP_ALL_GATHER:
    return SP_CURVE_OF_ALL_GATHER;
  case SP_OP_REDUCE_SCATTER:
    return SP_CURVE_OF_REDUCE_SCATTER;
  case SP_OP_ALL_REDUCE:
    return op->in[0] == op->out[0] ? SP_CURVE_OF_ALL_REDUCE_IN_PLACE : SP_CURVE_OF_ALL_REDUCE;
  case SP_OP_ALL_TO_ALL:
    return SP_CURVE_OF_ALL_TO_ALL;
  case SP_OP_SEND_RECEIVE:
    return SP_CURVE_OF_SEND_RECEIVE;
  default:
    return SP_CURVE_OF_ONE_WAY;
  }
}

static SpGroupCurveId
curve_of_message (SpOpKind kind, gboolean same_node)
{
  if (kind == SP_OP_SEND_RECEIVE)
    return same_node ? SP_CURVE_OF_SEND_RECEIVE_NEAR : SP_CURVE_OF_SEND_RECEIVE;
  return same_node ? SP_CURVE_OF_ONE_WAY_NEAR : SP_CURVE_OF_ONE_WAY;
}

/* --- communication by formulas ------------------------------------------------------------------------------------ */

/* One of `calls` calls, each of an equal share of the bytes. */
static double
call_seconds (const SpCost *cost, const SpPath *path, const SpOp *op, guint calls, double *ret_fixed_s,
              SpAlgorithm *ret_algorithm)
{
  Price best = { .total_s = INFINITY };
  double payload = (double) op->bytes / calls;

  *ret_fixed_s = 0;
  *ret_algorithm = SP_ALGORITHM_NONE;
  if (sp_op_is_host_copy (op->kind)) {
    const SpCurve *copy = op->kind == SP_OP_TO_HOST ? cost->to_host : cost->from_host;
    if (copy != NULL)
      return sp_curve_transfer_s (copy, payload, ret_fixed_s);
    *ret_fixed_s = cost->launch_s;
    return cost->launch_s + payload * cost->host_s_per_byte;
  }
  if (op->kind == SP_OP_RECEIVE || path->size == 1)
    return 0;
  const SpGroupCurve *curve = &cost->curves[op->group][curve_of (op)];
  double wire = sp_cost_wire_bytes (cost, op) / calls;
  guint n_protocols = protocols_over (cost, path);
  switch (op->kind) {
  case SP_OP_ALL_GATHER:
  case SP_OP_REDUCE_SCATTER:
    price_ring (path, n_protocols, wire, 1, SP_ALGORITHM_RING, &best);
    price_nvls (path, payload, op->kind == SP_OP_ALL_GATHER ? 2 : 1, &best);
    break;
  case SP_OP_ALL_REDUCE:
    price_ring (path, n_protocols, wire, 2, SP_ALGORITHM_RING_ALL_REDUCE, &best);
    if (cost->ring_network && path->network)
      break;
    price_tree (path, n_protocols, payload, &best);
    price_nvls (path, payload, 0, &best);
    break;
  case SP_OP_ALL_TO_ALL:
    price_all_to_all (path, payload, &best);
    break;
  default:
    *ret_algorithm = SP_ALGORITHM_DIRECT;
    if (curve->curve != NULL)
      return curve_seconds (cost, curve, payload, parts_of (op), ret_fixed_s);
    *ret_fixed_s = cost->launch_s + path->hop_latency_s;
    return *ret_fixed_s + payload / path->send_bytes_per_s;
  }
  *ret_algorithm = best.algorithm; /* that of the formula, by which its bytes go over links */
  gboolean waited_for = !(op->flags & SP_OP_ASYNC) && op->stream != SP_STREAM_DATA;
  double late = (cost->rank_wait_s + (path->network ? cost->network_wait_s : 0)) * path->size;
  double wait = waited_for ? cost->collective_wait_s + late : 0, total = cost->launch_s + best.total_s;
  *ret_fixed_s = cost->launch_s + best.latency_s;
  if (curve->curve != NULL)
    total = curve_seconds (cost, curve, payload, 1, ret_fixed_s);
  if (sp_op_moves_shards (op))
    total = *ret_fixed_s + (total - *ret_fixed_s) * cost->shard_time;
  *ret_fixed_s += wait;
  return total + wait;
}

/* In as many calls as the op says. */
static double
communication_seconds (const SpCost *cost, const SpPath *path, const SpOp *op, double *ret_fixed_s,
                       SpAlgorithm *ret_algorithm)
{
  guint calls = (guint) MAX (op->batch, 1);
  double seconds = call_seconds (cost, path, op, calls, ret_fixed_s, ret_algorithm);

  *ret_fixed_s *= calls;
  return seconds * calls;
}

double
sp_cost_message (const SpCost *cost, const SpOp *op, gboolean same_node, gboolean alone, double *ret_fixed_s)
{
  const SpPath *path = alone ? &cost->alone[op->group] : &cost->paths[op->group];
  double fixed = cost->launch_s + (same_node ? path->link_hop_latency_s : path->hop_latency_s);

  const SpGroupCurve *curve = &cost->curves[op->group][curve_of_message (op->kind, same_node)];
  if (curve->curve != NULL && path->size > 1)
    return curve_seconds (cost, curve, op->bytes, parts_of (op), ret_fixed_s != NULL ? ret_fixed_s : &fixed);
  if (path->size == 1)
    fixed = 0;
  if (ret_fixed_s)
    *ret_fixed_s = fixed;
  return path->size == 1 ? 0 : fixed + op->bytes / (same_node ? path->near_bytes_per_s : path->send_bytes_per_s);
}

double
sp_cost_slowdown (const SpCost *cost, const SpOp *op)
{
  const double *value = cost->slowdown_of[op->kind];

  if (value[SP_SLOWDOWN_WAVE] == 0)
    return value[SP_SLOWDOWN_BASE];
  const SpKernelSizes sizes = sp_cost_kernel_sizes (cost, op);
  return sp_curve_slowdown (value, cost->sms, &sizes);
}

double
sp_cost_chain (const SpCost *cost, const SpOp *op)
{
  const SpPath *path = &cost->paths[op->group];
  double near = sp_cost_message (cost, op, TRUE, FALSE, NULL);

  return path->crossings * sp_cost_op (cost, op) + (path->size - 1 - path->crossings) * near;
}

static double
op_parts (const SpCost *cost, const SpPath *paths, const SpOp *op, double *ret_fixed_s, SpAlgorithm *ret_algorithm)
{
  double fixed_s = cost->launch_s;
  SpAlgorithm algorithm = SP_ALGORITHM_NONE;
  double seconds = sp_op_is_communication (op->kind)
                       ? communication_seconds (cost, &paths[op->group], op, &fixed_s, &algorithm)
                       : kernel_seconds (cost, op);

  if (ret_fixed_s)
    *ret_fixed_s = fixed_s;
  if (ret_algorithm)
    *ret_algorithm = algorithm;
  return seconds;
}

double
sp_cost_stretch (const SpCost *cost, const SpOp *op)
{
  if (!(op->flags & SP_OP_ASYNC))
    return 0;
  SpGroupCurveId id = curve_of (op);
  if (!(op->flags & SP_OP_AFTER_OPTIMIZER))
    return cost->stretch[id];
  /* Flows alone stretch, and have to make up for what all of it takes longer. */
  double fixed_s, alone_s = op_parts (cost, cost->paths, op, &fixed_s, NULL), flows_s = alone_s - fixed_s;
  return flows_s > 0 ? (cost->memory_stretch[id] * alone_s + cost->memory_wait_s[id]) / flows_s : 0;
}

double
sp_cost_op_parts (const SpCost *cost, const SpOp *op, double *ret_fixed_s, SpAlgorithm *ret_algorithm)
{
  return op_parts (cost, cost->paths, op, ret_fixed_s, ret_algorithm);
}

double
sp_cost_op_alone (const SpCost *cost, const SpOp *op, double *ret_fixed_s, SpAlgorithm *ret_algorithm)
{
  return op_parts (cost, cost->alone, op, ret_fixed_s, ret_algorithm);
}

double
sp_cost_op (const SpCost *cost, const SpOp *op)
{
  return op_parts (cost, cost->paths, op, NULL, NULL);
}

double
sp_cost_op_at (const SpCost *cost, const SpOp *op, gint32 place)
{
  gint32 size = cost->paths[op->group].size;

  if (op->flags & SP_OP_BY_PLACE && place > 0) {
    double first = sp_cost_op_at (cost, op, 0), last = sp_cost_op (cost, op);
    return first + (last - first) * place / MAX (size - 1, 1);
  }
  if (!(op->flags & SP_OP_BY_PLACE) && !sp_op_has_ends (op))
    return sp_cost_op (cost, op);
  SpOp at = sp_op_at (op, place, size);
  return sp_cost_op (cost, &at);
}

double
sp_cost_alone_ratio (const SpCost *cost, SpGroupId group)
{
  const SpPath *fair = &cost->paths[group], *alone = &cost->alone[group];

  /* Whether an all-to-all was priced before must make no difference, and adding one up takes a while. */
  if (fair->pairwise_s_per_byte == 0 ||
      (group != SP_GROUP_ULYSSES && group != SP_GROUP_ULYSSES_LINEAR && group != SP_GROUP_EXPERT))
    return fair->alone_ratio;
  return MIN (fair->alone_ratio, sp_path_pairwise (alone) / sp_path_pairwise (fair));
}
