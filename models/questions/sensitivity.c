/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/questions.h"

#include "models/questions/what-if.h"
#include "models/writer.h"

#include <string.h>

/* --- what could be more ------------------------------------------------------------------------------------------- */

static void
scale_slot (SpCurve *curve, guint slot, double factor)
{
  if (slot < curve->n_slots)
    curve->value[slot].value *= factor;
}

static void
scale_flops (SpWhatIf *machine, double factor)
{
  machine->device.peak_bf16_flops_per_s.value *= factor;
  machine->device.peak_fp32_flops_per_s.value *= factor;
  machine->device.peak_fp8_flops_per_s.value *= factor;
  for (guint i = 0; i < (machine->curves ? machine->profile.curves->len : 0); i++) {
    SpCurve *curve = &machine->curves[i];
    if (curve->kind == SP_CURVE_GEMM)
      scale_slot (curve, SP_GEMM_RATE, factor);
    else if (curve->kind < SP_CURVE_KERNEL)
      scale_slot (curve, SP_CORE_RATE, factor);
    else if (curve->kind == SP_CURVE_KERNEL)
      scale_slot (curve, SP_KERNEL_RATE, factor);
  }
}

static void
scale_hbm (SpWhatIf *machine, double factor)
{
  machine->device.memory_bytes_per_s.value *= factor;
  for (guint i = 0; i < (machine->curves ? machine->profile.curves->len : 0); i++) {
    SpCurve *curve = &machine->curves[i];
    if (curve->kind == SP_CURVE_GEMM)
      scale_slot (curve, SP_GEMM_MEMORY_RATE, factor);
    else if (curve->kind == SP_CURVE_KERNEL)
      scale_slot (curve, SP_KERNEL_MEMORY_RATE, factor);
  }
}

static void
scale_memory (SpWhatIf *machine, double factor)
{
  machine->device.memory_bytes.value *= factor;
}

/* What transfers go over: links of groups in one node, the network of groups over more, a GPU's way to its host. */
typedef enum { LINKS, NETWORK, HOST } Way;

static Way
way_of (const SpCurve *curve)
{
  return curve->kind == SP_CURVE_COPY ? HOST : curve->nodes > 1 ? NETWORK : LINKS;
}

static void
scale_transfers (SpWhatIf *machine, Way way, double factor)
{
  for (guint i = 0; i < (machine->curves ? machine->profile.curves->len : 0); i++) {
    SpCurve *curve = &machine->curves[i];
    if (!sp_curve_is_transfer (curve->kind) || way_of (curve) != way)
      continue;
    for (guint slot = SP_PIECE_RATE; slot < curve->n_slots; slot += SP_PIECE_SLOTS)
      scale_slot (curve, slot, factor);
  }
}

static void
scale_link (SpWhatIf *machine, double factor)
{
  machine->device.link_bytes_per_s.value *= factor;
  machine->cluster.uplink_bytes_per_s.value *= factor;
  machine->cluster.socket_bytes_per_s.value *= factor;
  scale_transfers (machine, LINKS, factor);
}

static void
scale_network (SpWhatIf *machine, double factor)
{
  machine->cluster.nic_bytes_per_s.value *= factor;
  machine->cluster.router_bytes_per_s.value *= factor;
  machine->cluster.global_bytes_per_s.value *= factor;
  scale_transfers (machine, NETWORK, factor);
}

static void
scale_pcie (SpWhatIf *machine, double factor)
{
  machine->device.pcie_bytes_per_s.value *= factor;
  machine->cluster.host_bytes_per_s.value *= factor;
  scale_transfers (machine, HOST, factor);
}

static void
scale_host (SpWhatIf *machine, double factor)
{
  machine->framework.host_launch_s.value /= factor;
  machine->framework.host_gather_s.value /= factor;
  machine->cluster.host_memory_bytes_per_s.value *= factor;
}

static const struct {
  const char *name, *keys;
  void (*scale) (SpWhatIf *machine, double factor);
} resources[] = {
  { "FLOP rate", "peak-bf16, peak-fp8, peak-fp32", scale_flops },
  { "HBM rate", "memory-rate", scale_hbm },
  { "memory capacity", "memory", scale_memory },
  { "links inside a node", "link-rate, uplink-rate, socket-rate", scale_link },
  { "network", "nic-rate, router-rate, global-rate", scale_network },
  { "PCIe", "pcie-rate, host-rate", scale_pcie },
  { "host", "host-launch, host-gather, host-memory-rate", scale_host },
};

/* --- what it gives ------------------------------------------------------------------------------------------------ */

static gboolean
is_same (const SpPlanEntry *a, const SpPlanEntry *b)
{
  return a->run.micro_batch == b->run.micro_batch && memcmp (&a->layout, &b->layout, sizeof a->layout) == 0;
}

static gboolean
measure (const SpEstimator *estimator, const SpPlanQuestion *question, const SpPlanEntry *best, double factor,
         guint resource, SpSensitivity *ret, GError **error)
{
  g_auto (SpWhatIf) machine = { 0 };
  g_autoptr (SpProgram) program = sp_program_new ();
  SpPlanQuestion q = *question;
  double step_s = best->estimate.step_time_s;
  SpEstimate estimate;

  sp_what_if_init (&machine, estimator);
  resources[resource].scale (&machine, factor);
  sp_what_if_changed (&machine);
  sp_estimate_layout (&machine.estimator, program, &best->layout, &best->run, &estimate);
  q.top = 1;
  g_autoptr (SpPlan) plan = sp_plan (&machine.estimator, &q, error);
  if (plan == NULL)
    return FALSE;
  const SpPlanEntry *then = sp_plan_best (plan);
  *ret = (SpSensitivity){ .name = resources[resource].name,
                          .keys = resources[resource].keys,
                          .gain = 1 - estimate.step_time_s / step_s,
                          .planned_gain = 1 - then->estimate.step_time_s / step_s,
                          .changes = !is_same (then, best),
                          .best = *then };
  return TRUE;
}

/* Rows of the same gain stay in the order of the table. */
static void
rank_row (GArray *rows, const SpSensitivity *row)
{
  guint at = rows->len;

  while (at > 0 && g_array_index (rows, SpSensitivity, at - 1).planned_gain < row->planned_gain)
    at--;
  g_array_insert_val (rows, at, *row);
}

SpPlanSensitivity *
sp_plan_sensitivity (SpEstimator *estimator, const SpPlanQuestion *question, double share, GError **error)
{
  g_autoptr (SpPlanSensitivity) sensitivity = g_new0 (SpPlanSensitivity, 1);

  *sensitivity = (SpPlanSensitivity){ .share = share,
                                      .plan = sp_plan (estimator, question, error),
                                      .rows = g_array_new (FALSE, FALSE, sizeof (SpSensitivity)) };
  if (sensitivity->plan == NULL)
    return NULL;
  const SpPlanEntry *best = sp_plan_best (sensitivity->plan);
  for (guint i = 0; best != NULL && i < G_N_ELEMENTS (resources); i++) {
    SpSensitivity row;
    if (!measure (estimator, question, best, 1 + share, i, &row, error))
      return NULL;
    rank_row (sensitivity->rows, &row);
  }
  return g_steal_pointer (&sensitivity);
}

void
sp_plan_sensitivity_free (SpPlanSensitivity *sensitivity)
{
  if (sensitivity == NULL)
    return;
  sp_plan_free (sensitivity->plan);
  g_array_unref (sensitivity->rows);
  g_free (sensitivity);
}
