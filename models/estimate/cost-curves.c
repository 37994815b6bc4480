/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost-curves.h"

#include <math.h>
#include <string.h>

/* --- kernels, copies and slowdown --------------------------------------------------------------------------------- */

/* Of the libraries that were timed the one that is asked for, else the quickest. */
static const SpCurve *
choose (const SpProfile *profile, SpCurveKind kind, const char *library)
{
  const SpCurve *best = NULL;

  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *curve = profile->curves->pdata[i];
    if (curve->kind == kind && sp_curve_is_of_library (curve, library))
      return curve;
    if (curve->kind == kind && (best == NULL || curve->value[SP_CORE_RATE].value > best->value[SP_CORE_RATE].value))
      best = curve;
  }
  return best;
}

static void
set_gemm (SpCost *cost, const SpProfile *profile)
{
  static const SpOpKind kinds[] = { SP_OP_GEMM,       SP_OP_ORTHOGONALIZE, SP_OP_SCORES,
                                    SP_OP_SCORES_BWD, SP_OP_CONTEXT,       SP_OP_CONTEXT_BWD };
  const SpCurve *curve = sp_profile_find (profile, SP_CURVE_GEMM, NULL, 0, 0);

  if (curve == NULL)
    return;
  const SpQuantity *value = curve->value;
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    cost->s_per_flop[kinds[i]] = 1 / value[SP_GEMM_RATE].value;
    cost->kernel_launch_s[kinds[i]] = value[SP_GEMM_LAUNCH].value;
  }
  cost->gemm_s_per_byte = 1 / value[SP_GEMM_MEMORY_RATE].value;
  cost->gemm_shape = (SpGemmShape){ value[SP_GEMM_PROLOGUE].value, value[SP_GEMM_TILE_128].value,
                                    value[SP_GEMM_TILE_64].value, value[SP_GEMM_TAIL].value };
}

/* Kernels that stand for all of the timed one have its launch, those that are a part of it the device's. */
static void
set_core (SpCost *cost, const SpProfile *profile, const char *library, SpCurveKind kind, SpOpKind whole,
          const SpOpKind *kinds, guint n)
{
  const SpCurve *curve = choose (profile, kind, library);

  if (curve == NULL)
    return;
  for (guint i = 0; i < n; i++) {
    cost->s_per_flop[kinds[i]] = 1 / curve->value[SP_CORE_RATE].value;
    cost->half_tokens[kinds[i]] = curve->value[SP_CORE_HALF_TOKENS].value;
    if (curve->value[SP_CORE_HEAD_POWER].value != 0) /* else one head size was measured */
      cost->head_power[kinds[i]] = curve->value[SP_CORE_HEAD_POWER].value;
    if (kinds[i] == whole && !(curve->variant != NULL && g_str_has_suffix (curve->variant, "with-forward")))
      cost->kernel_launch_s[kinds[i]] = curve->value[SP_CORE_LAUNCH].value;
  }
}

static void
set_kernels (SpCost *cost, const SpProfile *profile, const char *library)
{
  static const SpOpKind attention[] = { SP_OP_ATTENTION }, backward[] = { SP_OP_ATTENTION_BWD };
  static const SpOpKind linear[] = { SP_OP_LINEAR_LOCAL, SP_OP_LINEAR_INTER, SP_OP_STATE_OWN, SP_OP_RECURRENT };
  static const SpOpKind linear_backward[] = { SP_OP_LINEAR_LOCAL_BWD, SP_OP_LINEAR_INTER_BWD, SP_OP_STATE_OWN_BWD,
                                              SP_OP_RECURRENT_BWD };

  set_gemm (cost, profile);
  set_core (cost, profile, library, SP_CURVE_ATTENTION, SP_OP_ATTENTION, attention, 1);
  set_core (cost, profile, library, SP_CURVE_ATTENTION_BACKWARD, SP_OP_ATTENTION_BWD, backward, 1);
  set_core (cost, profile, NULL, SP_CURVE_LINEAR, SP_OP_LINEAR_LOCAL, linear, G_N_ELEMENTS (linear));
  set_core (cost, profile, NULL, SP_CURVE_LINEAR_BACKWARD, SP_OP_LINEAR_LOCAL_BWD, linear_backward,
            G_N_ELEMENTS (linear_backward));
}

/* Mean of slot `slot` of the curves of the kind with the kernel, and with the transfer unless that is SP_N_CURVES: beyond
 * `without`, each at least 0. `or_else` if there is none. */
static double
mean_of (const SpProfile *profile, SpCurveKind kind, const char *kernel, SpCurveKind transfer, guint slot,
         double without, double or_else)
{
  double sum = 0;
  guint n = 0;

  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *curve = profile->curves->pdata[i];
    SpCurveKind of;
    const char *beside;
    if (curve->kind != kind || !sp_curve_split (curve, &of, &beside) || !g_str_equal (beside, kernel) ||
        (transfer != SP_N_CURVES && of != transfer))
      continue;
    sum += MAX (curve->value[slot].value - without, 0);
    n++;
  }
  return n > 0 ? sum / n : or_else;
}

/* The curves' kinds of what goes over a group. */
static const SpCurveKind group_kinds[SP_N_GROUP_CURVES] = {
  [SP_CURVE_OF_ONE_WAY] = SP_CURVE_ONE_WAY,           [SP_CURVE_OF_ONE_WAY_NEAR] = SP_CURVE_ONE_WAY,
  [SP_CURVE_OF_SEND_RECEIVE] = SP_CURVE_SEND_RECEIVE, [SP_CURVE_OF_SEND_RECEIVE_NEAR] = SP_CURVE_SEND_RECEIVE,
  [SP_CURVE_OF_ALL_GATHER] = SP_CURVE_ALL_GATHER,     [SP_CURVE_OF_REDUCE_SCATTER] = SP_CURVE_REDUCE_SCATTER,
  [SP_CURVE_OF_ALL_REDUCE] = SP_CURVE_ALL_REDUCE,     [SP_CURVE_OF_ALL_REDUCE_IN_PLACE] = SP_CURVE_ALL_REDUCE,
  [SP_CURVE_OF_ALL_TO_ALL] = SP_CURVE_ALL_TO_ALL,
};

/* The one that says how long such a transfer waits, and how it stands kernels. */
static SpCurveKind
kind_of (const SpProfile *profile, guint id)
{
  gboolean one_way = group_kinds[id] == SP_CURVE_ONE_WAY;

  return one_way && sp_profile_find (profile, SP_CURVE_ONE_WAY, NULL, 0, 0) == NULL ? SP_CURVE_SEND_RECEIVE
                                                                                    : group_kinds[id];
}

/* From a stream to another for a transfer: its own, of a send that of both ways, or any kernel's. */
static double
hop_s (const SpProfile *profile, SpCurveKind kind)
{
  const char *names[] = { sp_curve_kind_name (kind), kind == SP_CURVE_ONE_WAY ? "send-receive" : NULL };
  const SpCurve *hop = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (names) && names[i] != NULL && hop == NULL; i++) {
    g_autofree char *own = g_strconcat ("hop-", names[i], NULL);
    hop = sp_profile_find (profile, SP_CURVE_LAUNCH, own, 0, 0);
  }
  if (hop == NULL)
    hop = sp_profile_find (profile, SP_CURVE_LAUNCH, "hop", 0, 0);
  return hop != NULL ? hop->value[0].value : 0;
}

static void
set_beside (SpCost *cost, const SpProfile *profile)
{
  const char *copy = "copy", *optimizer = sp_op_name (SP_OP_ADAM);
  double memory_slowdown, stretch, memory_stretch;

  cost->slowdown = mean_of (profile, SP_CURVE_SLOWDOWN, "", SP_N_CURVES, 0, 0, cost->slowdown);
  memory_slowdown = mean_of (profile, SP_CURVE_SLOWDOWN, copy, SP_N_CURVES, 0, 0, cost->slowdown);
  for (guint kind = 0; kind < SP_N_OPS; kind++) {
    const SpCurve *own = sp_profile_find (profile, SP_CURVE_SLOWDOWN, sp_op_name ((SpOpKind) kind), 0, 0);
    cost->slowdown_of[kind][SP_SLOWDOWN_BASE] = cost->s_per_flop[kind] > 0 ? cost->slowdown : memory_slowdown;
    for (guint i = 0; own != NULL && i < own->n_slots; i++)
      cost->slowdown_of[kind][i] = MAX (own->value[i].value, 0);
  }
  stretch = mean_of (profile, SP_CURVE_BESIDE, "", SP_N_CURVES, SP_BESIDE_FACTOR, 1, 0);
  memory_stretch = mean_of (profile, SP_CURVE_BESIDE, copy, SP_N_CURVES, SP_BESIDE_FACTOR, 1, stretch);
  for (guint i = 0; i < SP_N_GROUP_CURVES; i++) {
    SpCurveKind of = kind_of (profile, i);
    cost->hop_s[i] = hop_s (profile, of);
    cost->stretch[i] = mean_of (profile, SP_CURVE_BESIDE, "", of, SP_BESIDE_FACTOR, 1, stretch);
    double wait_s = mean_of (profile, SP_CURVE_BESIDE, copy, of, SP_BESIDE_WAIT, 0, 0);
    double factor = mean_of (profile, SP_CURVE_BESIDE, copy, of, SP_BESIDE_FACTOR, 1, memory_stretch);
    cost->memory_wait_s[i] = mean_of (profile, SP_CURVE_BESIDE, optimizer, of, SP_BESIDE_WAIT, 0, wait_s);
    cost->memory_stretch[i] = mean_of (profile, SP_CURVE_BESIDE, optimizer, of, SP_BESIDE_FACTOR, 1, factor);
  }
}

void
sp_cost_set_profile (SpCost *cost, const SpProfile *profile, const char *library)
{
  set_kernels (cost, profile, library);
  cost->attention_library = library;
  cost->power = sp_profile_find (profile, SP_CURVE_POWER, NULL, 0, 0);
  for (guint i = profile->curves->len; i-- > 0;) {
    const SpCurve *curve = profile->curves->pdata[i];
    if (curve->kind == SP_CURVE_KERNEL)
      cost->kernels[curve->op] = curve;
    cost->fitted = cost->fitted || (sp_curve_is_transfer (curve->kind) && curve->ranks > 0);
  }
  cost->to_host = sp_profile_find (profile, SP_CURVE_COPY, "device-to-host", 0, 0);
  cost->from_host = sp_profile_find (profile, SP_CURVE_COPY, "host-to-device", 0, 0);
  set_beside (cost, profile);
}

/* Fewest operands apart, of those with the fewest marks apart, of cuDNN's kernels or of all others. NULL: none. */
static const SpCurve *
nearest_form (const SpCurve *first, const SpOp *op, SpOpForm library)
{
  const SpOpForm form = sp_op_form (op) | library, operands = (1u << (SP_MAX_IN + SP_MAX_OUT)) - 1;
  const SpCurve *best = NULL;
  guint least = G_MAXUINT;

  for (const SpCurve *curve = first; curve != NULL && least > 0; curve = curve->next) {
    SpOpForm apart = curve->form ^ form;
    guint away = 32 * (guint) __builtin_popcount (apart & ~operands) + (guint) __builtin_popcount (apart & operands);
    if (away < least && (apart & SP_OP_FORM_CUDNN) == 0) {
      least = away;
      best = curve;
    }
  }
  return best;
}

SpKernelSizes
sp_cost_kernel_sizes (const SpCost *cost, const SpOp *op)
{
  gboolean gemm = op->kind == SP_OP_GEMM; /* whose heads are strides */

  return (SpKernelSizes){ op->kind,
                          op->m,
                          op->n,
                          op->k,
                          (gint64) MAX (op->batch, 1) * (gemm ? 1 : MAX (op->heads, 1)),
                          (double) op->bytes,
                          op->flops * (op->flags & SP_OP_FP8 ? cost->fp8_of_bf16 : 1),
                          cost->clock };
}

static double
curve_seconds (const SpCost *cost, const SpCurve *curve, const SpOp *op)
{
  const SpKernelSizes sizes = sp_cost_kernel_sizes (cost, op);
  double value[SP_CURVE_SLOTS];

  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    value[i] = curve->value[i].value;
  return sp_curve_kernel_s (value, cost->sms, &sizes);
}

double
sp_cost_kernel_by_curve (const SpCost *cost, const SpOp *op)
{
  const SpCurve *first = cost->kernels[op->kind];
  gboolean softmax = op->kind == SP_OP_ATTENTION || op->kind == SP_OP_ATTENTION_BWD;
  const SpCurve *own = first->next == NULL && !softmax ? first : nearest_form (first, op, 0);
  const SpCurve *cudnn = softmax && op->window == 0 ? nearest_form (first, op, SP_OP_FORM_CUDNN) : NULL;

  if (own == NULL || cudnn == NULL)
    return curve_seconds (cost, own != NULL ? own : cudnn != NULL ? cudnn : first, op);
  if (cost->attention_library != NULL)
    return curve_seconds (cost, g_str_equal (cost->attention_library, sp_op_form_library (cudnn->form)) ? cudnn : own,
                          op);
  return MIN (curve_seconds (cost, own, op), curve_seconds (cost, cudnn, op));
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpProfile *profile;
  gboolean exactly; /* collectives: no other size of group will do */
  gint32 ranks, nodes;
} Wanted;

/* The curve of the kind that is nearest to the group, of those that say something of it. */
static SpGroupCurve
nearest_curve (const Wanted *wanted, SpCurveKind kind, const char *variant)
{
  gboolean message = kind == SP_CURVE_ONE_WAY || kind == SP_CURVE_SEND_RECEIVE;
  SpGroupCurve best = { 0 };
  double least = INFINITY;

  for (guint i = 0; i < wanted->profile->curves->len; i++) {
    const SpCurve *curve = wanted->profile->curves->pdata[i];
    double steps, scale, away;
    if (curve->kind != kind || g_strcmp0 (curve->variant, variant) != 0 ||
        !sp_curve_reshape (curve, wanted->ranks, wanted->nodes, &steps, &scale))
      continue;
    away = fabs (log ((double) wanted->ranks / curve->ranks));
    if (away >= least || (wanted->exactly && away > 0 && !message))
      continue;
    least = away;
    best = (SpGroupCurve){ curve, steps, scale, 0 };
  }
  return best;
}

/* Its own, or of what is nearest in kind; in place only where no group out of place is nearer. */
static SpGroupCurve
group_curve (const Wanted *wanted, guint id)
{
  gboolean one_way = group_kinds[id] == SP_CURVE_ONE_WAY, in_place = id == SP_CURVE_OF_ALL_REDUCE_IN_PLACE;
  SpGroupCurve own = nearest_curve (wanted, group_kinds[id], in_place ? "in-place" : NULL);

  if (own.curve != NULL && !in_place)
    return own;
  SpGroupCurve other = nearest_curve (wanted, one_way ? SP_CURVE_SEND_RECEIVE : group_kinds[id], NULL);
  return own.curve != NULL && other.curve != NULL && own.curve->ranks == other.curve->ranks ? own : other;
}

static void
set_group_curves (SpCost *cost, const SpCluster *cluster, SpGroupId group)
{
  const SpPath *path = &cost->paths[group];
  gboolean even = path->per_node * path->nodes == path->size && (path->nodes == 1 || path->alone_ratio > 1 - 1e-9);
  gboolean exactly = cluster->node != SP_NODE_SWITCH;

  memset (cost->curves[group], 0, sizeof cost->curves[group]);
  if (path->size < 2)
    return;
  for (guint i = 0; i < SP_N_GROUP_CURVES; i++) {
    gboolean near = i == SP_CURVE_OF_ONE_WAY_NEAR || i == SP_CURVE_OF_SEND_RECEIVE_NEAR;
    const Wanted wanted = { cluster->profile, exactly, near ? 2 : path->size, near ? 1 : path->nodes };
    if (even || near)
      cost->curves[group][i] = group_curve (&wanted, i);
    cost->curves[group][i].hop_s = cost->hop_s[i];
  }
}

void
sp_cost_set_group_curves (SpCost *cost, const SpCluster *cluster)
{
  for (guint group = 0; cost->fitted && group < SP_N_GROUPS; group++)
    set_group_curves (cost, cluster, (SpGroupId) group);
}
