/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"

#include "models/estimate/cost-curves.h"
#include "models/estimate/paths.h"

/* What prices rest on: from the profiles once, and from the layout's groups. */

/* --- from profiles ------------------------------------------------------------------------------------------------ */

/* Of the peak; 0 for kernels that memory alone bounds. */
static double
efficiency_of (const SpDevice *device, const char *library, SpOpKind kind)
{
  gboolean flash = g_strcmp0 (library, "flash") == 0;

  switch (kind) {
  case SP_OP_GEMM:
  case SP_OP_ORTHOGONALIZE:
  case SP_OP_SCORES:
  case SP_OP_SCORES_BWD:
  case SP_OP_CONTEXT:
  case SP_OP_CONTEXT_BWD:
    return device->gemm_efficiency.value;
  case SP_OP_ATTENTION:
    return (flash && device->flash_efficiency.value > 0 ? device->flash_efficiency : device->attention_efficiency)
        .value;
  case SP_OP_ATTENTION_BWD:
    return (flash && device->flash_backward_efficiency.value > 0 ? device->flash_backward_efficiency
                                                                 : device->attention_backward_efficiency)
        .value;
  case SP_OP_LINEAR_LOCAL:
  case SP_OP_LINEAR_LOCAL_BWD:
  case SP_OP_LINEAR_INTER:
  case SP_OP_LINEAR_INTER_BWD:
  case SP_OP_STATE_OWN:
  case SP_OP_STATE_OWN_BWD:
  case SP_OP_RECURRENT:
  case SP_OP_RECURRENT_BWD:
    return device->linear_efficiency.value;
  default:
    return 0;
  }
}

/* What the framework says of the time of such kernels; NULL: nothing. */
static const SpQuantity *
stack_quantity (const SpFramework *framework, const SpDevice *device, SpOpKind kind)
{
  switch (kind) {
  case SP_OP_ATTENTION:
  case SP_OP_ATTENTION_BWD:
    return &framework->attention_time;
  case SP_OP_LINEAR_LOCAL:
  case SP_OP_LINEAR_INTER:
  case SP_OP_STATE_OWN:
  case SP_OP_RECURRENT:
    return &framework->linear_time;
  case SP_OP_LINEAR_LOCAL_BWD:
  case SP_OP_LINEAR_INTER_BWD:
  case SP_OP_STATE_OWN_BWD:
  case SP_OP_RECURRENT_BWD:
    return &framework->linear_backward_time;
  case SP_OP_GEMM:
  case SP_OP_ORTHOGONALIZE:
  case SP_OP_SCORES:
  case SP_OP_SCORES_BWD:
  case SP_OP_CONTEXT:
  case SP_OP_CONTEXT_BWD:
    return &framework->gemm_time;
  case SP_OP_ADAM:
  case SP_OP_MOMENTUM:
  case SP_OP_DESCEND:
    return &framework->optimizer_time;
  default:
    return efficiency_of (device, NULL, kind) == 0 ? &framework->elementwise_time : NULL;
  }
}

/* What the framework says of kernels that stand for several of its own. */
static const SpQuantity *
several_quantity (const SpFramework *framework, SpOpKind kind)
{
  switch (kind) {
  case SP_OP_ATTENTION_MERGE:
    return framework->merge_time.value > 0 ? &framework->merge_time : NULL;
  case SP_OP_SOFTMAX:
  case SP_OP_SOFTMAX_BWD:
    return framework->softmax_time.value > 0 ? &framework->softmax_time : NULL;
  case SP_OP_PACK:
  case SP_OP_UNPACK:
    return framework->pack_time.value > 0 ? &framework->pack_time : NULL;
  default:
    return NULL;
  }
}

/* Of a kernel of the framework, over the kind's own. */
static double
stack_time (const SpFramework *framework, const SpDevice *device, SpOpKind kind)
{
  const SpQuantity *several = several_quantity (framework, kind);

  /* The gradient of scores is of two tensors, which the kernels but one have one of. */
  if (several != NULL && kind == SP_OP_SOFTMAX_BWD)
    return (2 * several->value + 1) / 3;
  const SpQuantity *factor = several != NULL ? several : stack_quantity (framework, device, kind);

  return factor != NULL && factor->value > 0 ? factor->value : 1;
}

void
sp_cost_init (SpCost *cost, const SpCluster *cluster, const SpFramework *framework)
{
  const SpDevice *device = cluster->device;
  double peak = device->peak_bf16_flops_per_s.value;

  *cost = (SpCost){
    .launch_s = device->launch_s.value,
    .host_issue_s = framework->host_eager ? framework->host_launch_s.value : 0,
    .host_stall = framework->host_stall.value,
    .host_runs_ahead = framework->host_runs_ahead,
    .ascending = framework->attention_ascending,
    .padded = framework->attention_padded,
    .host_gather_s = framework->host_eager ? framework->host_gather_s.value : 0,
    .host_step_s = framework->host_step_s.value,
    .host_slot_s = framework->host_eager ? framework->host_slot_s.value : 0,
    .s_per_byte = 1 / (device->memory_bytes_per_s.value * device->memory_efficiency.value),
    .host_s_per_byte = 1 / cluster->host_bytes_per_s.value,
    .host_kernel_s_per_byte = cluster->gpus_per_node / cluster->host_memory_bytes_per_s.value,
    .collective_wait_s = framework->collective_wait_s.value,
    .rank_wait_s = framework->rank_wait_s.value,
    .network_wait_s = framework->network_wait_s.value,
    .shard_time = framework->shard_time.value > 0 ? framework->shard_time.value : 1,
    .unaligned_time = device->unaligned_efficiency.value > 0 ? 1 / device->unaligned_efficiency.value : 1,
    .fp8_of_bf16 = device->peak_fp8_flops_per_s.value > 0 ? peak / device->peak_fp8_flops_per_s.value : 1,
    .time_of_bf16 = 1,
    .clock = 1,
    .peak_flops_per_s = peak,
    .simple_network = cluster->simple_network,
    .ring_network = cluster->ring_network,
    .slowdown = device->overlap_slowdown.value,
    .sms = (gint32) device->sms.value,
    .gemm_shape = SP_GEMM_SHAPE_DEFAULT,
  };
  for (guint v = 0; v < SP_MAX_VARIANTS; v++)
    cost->clocks[v] = 1;
  cost->gemm_s_per_byte = cost->s_per_byte;
  cost->host_launch_s = cost->host_issue_s;
  for (guint kind = 0; kind < SP_N_OPS; kind++) {
    double efficiency = efficiency_of (device, framework->attention_library, kind);
    cost->s_per_flop[kind] = efficiency > 0 ? 1 / (peak * efficiency) : 0;
    cost->kernel_launch_s[kind] = cost->launch_s;
    cost->stack_time[kind] = stack_time (framework, device, kind);
    const SpQuantity *several = several_quantity (framework, kind);
    cost->kernels_of[kind] = several != NULL ? several->value : 1;
    cost->slowdown_of[kind][SP_SLOWDOWN_BASE] = cost->slowdown;
  }
  cost->causal_time = framework->attention_causal_time.value > 0 ? framework->attention_causal_time.value : 1;
  cost->head_power[SP_OP_ATTENTION] = cost->head_power[SP_OP_ATTENTION_BWD] = framework->attention_head_power.value;
  if (cluster->profile != NULL)
    sp_cost_set_profile (cost, cluster->profile, framework->attention_library);
  for (guint kind = 0; kind < SP_N_OPS; kind++)
    cost->most_slowdown = MAX (cost->most_slowdown,
                               cost->slowdown_of[kind][SP_SLOWDOWN_BASE] + cost->slowdown_of[kind][SP_SLOWDOWN_WAVE]);
}

void
sp_cost_set_precision (SpCost *cost, const SpCluster *cluster, SpDtype precision)
{
  const SpDevice *device = cluster->device;

  cost->time_of_bf16 =
      precision == SP_DTYPE_FP32 ? device->peak_bf16_flops_per_s.value / device->peak_fp32_flops_per_s.value : 1;
}

static void
set_host (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  const SpGroup *groups = program->groups;
  double stall = 0;

  if (cost->host_stall > 0 && sp_paths_leave_node (cluster, program, SP_GROUP_PIPELINE))
    stall = cost->host_stall * groups[SP_GROUP_TENSOR].size * groups[SP_GROUP_SEQUENCE].size;
  cost->host_launch_s = cost->host_issue_s * (1 + stall);
}

void
sp_cost_set_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  set_host (cost, cluster, program);
  sp_paths_set (cost, cluster, program);
  sp_cost_set_group_curves (cost, cluster);
}

void
sp_cost_set_work_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  set_host (cost, cluster, program);
  sp_paths_set_work (cost, cluster, program);
  sp_cost_set_group_curves (cost, cluster);
}

void
sp_cost_set_pipeline_path (SpCost *cost, const SpCluster *cluster, const SpProgram *program)
{
  sp_paths_set_pipeline (cost, cluster, program);
  sp_cost_set_group_curves (cost, cluster);
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
  /* those of some kinds of network: 0 where they are not used */
  const SpQuantity *kinds[] = {
    &d->pcie_bytes_per_s,       &cluster->uplink_bytes_per_s, &cluster->socket_bytes_per_s,
    &cluster->oversubscription, &cluster->router_bytes_per_s, &cluster->global_bytes_per_s
  };
  /* those that a framework may leave out */
  const SpQuantity *stack[] = { &framework->elementwise_time,
                                &framework->merge_time,
                                &framework->pack_time,
                                &framework->softmax_time,
                                &framework->attention_time,
                                &framework->gemm_time,
                                &framework->optimizer_time,
                                &framework->shard_copies,
                                &framework->collective_wait_s,
                                &framework->linear_time,
                                &framework->linear_backward_time,
                                &framework->attention_head_power,
                                &framework->attention_causal_time,
                                &framework->host_step_s,
                                &framework->host_slot_s,
                                &framework->host_stall,
                                &framework->rank_wait_s,
                                &framework->network_wait_s,
                                &framework->shard_time,
                                &framework->workspace_bytes,
                                &framework->run_ahead,
                                &framework->crowded_time };
  SpProvenance worst = SP_MEASURED;

  for (guint i = 0; i < G_N_ELEMENTS (kernel); i++)
    worst = MAX (worst, kernel[i]->provenance);
  for (guint i = 0; i < G_N_ELEMENTS (stack); i++)
    if (stack[i]->value != 0)
      worst = MAX (worst, stack[i]->provenance);
  for (guint i = 0; communicates && i < G_N_ELEMENTS (links); i++)
    if (cluster->nodes > 1 || links[i] == &d->link_bytes_per_s || links[i] == &cluster->link_efficiency)
      worst = MAX (worst, links[i]->provenance);
  for (guint i = 0; communicates && i < G_N_ELEMENTS (kinds); i++)
    if (kinds[i]->value != 0)
      worst = MAX (worst, kinds[i]->provenance);
  return worst;
}
