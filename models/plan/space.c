/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"

#include <string.h>

/* The space below degrees and placement: a row a dimension. */

void
sp_plan_space_init (SpPlanSpace *space, const SpEstimator *estimator, const SpPlanQuestion *question)
{
  const SpArchitecture *arch = estimator->arch;

  *space = (SpPlanSpace){ .estimator = estimator,
                          .question = question,
                          .run = question->run,
                          .gpus = question->gpus,
                          .softmax = sp_architecture_has (arch, SP_LAYER_SOFTMAX),
                          .linear = sp_architecture_has (arch, SP_LAYER_LINEAR),
                          .experts = sp_architecture_has_bit (arch, SP_LAYER_EXPERTS) };
  if (space->gpus == 0)
    space->gpus = estimator->cluster->nodes * estimator->cluster->gpus_per_node;
  space->run.sequence = question->sequence;
  space->run.micro_batch = 1;
  space->run.global_batch = question->global_batch;
  space->run.causal = question->causal;
  if (estimator->cluster->device->no_bf16)
    space->run.precision = SP_DTYPE_FP16;
}

/* The i-th of `n` values into a field. */
#define SET(field, values)                                                                                             \
  do {                                                                                                                 \
    if (i >= G_N_ELEMENTS (values))                                                                                    \
      return FALSE;                                                                                                    \
    (field) = (values)[i];                                                                                             \
    return TRUE;                                                                                                       \
  } while (0)

static gint32
replicas_of (const SpPlanSpace *space, const SpPlanPoint *point)
{
  return sp_layout_replicas (&point->layout, space->estimator->arch);
}

/* --- the loss ------------------------------------------------------------------------------------------------------- */

/* In chunks: less memory for more calls, where the framework has it. */
static gboolean
set_loss (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  guint8 usual = space->question->base.loss;

  if (i > 0 && (i > 1 || !space->estimator->framework->chunks_loss || usual >= SP_LOSS_CHUNKED))
    return FALSE;
  point->layout.loss = i == 0 ? usual : SP_LOSS_CHUNKED;
  return TRUE;
}

/* --- what changes the blocks' work -------------------------------------------------------------------------------- */

/* Of a causal ring those that balance the mask first; linear layers want tokens in order. */
static gboolean
set_ring_split (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const guint8 values[] = { SP_TOKENS_ZIGZAG, SP_TOKENS_CONTIGUOUS, SP_TOKENS_STRIPED };
  const SpLayout usual = SP_LAYOUT_DEFAULT;
  gboolean is_ring = point->layout.ring > 1;

  if (is_ring && space->run.causal && !space->linear)
    SET (point->layout.token_split, values);
  point->layout.token_split = is_ring ? SP_TOKENS_CONTIGUOUS : usual.token_split;
  return i == 0;
}

/* An inner ring is a node's part of it. */
static gboolean
set_ring_kind (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const guint8 values[] = { SP_RING_P2P, SP_RING_ALL_GATHER, SP_RING_RSA, SP_RING_DOUBLE };
  static const guint8 fused[] = { SP_RING_P2P, SP_RING_ALL_GATHER, SP_RING_DOUBLE };
  SpLayout *l = &point->layout;

  l->ring_inner = 0;
  if (l->ring > 1) {
    gint32 inner = sp_layout_ring_in_node (l, space->estimator->arch, space->estimator->cluster->gpus_per_node);
    if (i < G_N_ELEMENTS (fused) && fused[i] == SP_RING_DOUBLE)
      l->ring_inner = inner;
    if (space->estimator->framework->fused_attention)
      SET (l->ring_kind, fused);
    SET (l->ring_kind, values);
  }
  l->ring_kind = SP_RING_P2P;
  return i == 0;
}

static gboolean
set_ring_keep (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  (void) space;
  point->layout.ring_keep = i == 1;
  return i == 0 || (i == 1 && point->layout.ring > 1 && point->layout.ring_kind == SP_RING_ALL_GATHER);
}

static gboolean
set_ring_backward (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const guint8 values[] = { SP_RING_BACKWARD_KV, SP_RING_BACKWARD_Q };
  const SpLayout *l = &point->layout;

  (void) space;
  if (l->ring > 1 && (l->ring_kind == SP_RING_P2P || l->ring_kind == SP_RING_DOUBLE))
    SET (point->layout.ring_backward, values);
  point->layout.ring_backward = SP_RING_BACKWARD_KV;
  return i == 0;
}

static gboolean
set_lasp_version (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const gint32 values[] = { 2, 1 };

  if (point->layout.lasp > 1)
    SET (point->layout.lasp_version, values);
  point->layout.lasp_version = space->question->base.lasp_version;
  return i == 0;
}

static gboolean
set_recompute (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const guint8 values[] = { SP_RECOMPUTE_NONE, SP_RECOMPUTE_SELECTIVE, SP_RECOMPUTE_FULL };

  (void) space;
  SET (point->layout.recompute, values);
}

#define MOST_EVERY 4

static gboolean
set_recompute_every (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  gint32 most = MIN (space->estimator->arch->layers, MOST_EVERY);

  point->layout.recompute_every = (gint32) i + 1;
  return i == 0 || (point->layout.recompute == SP_RECOMPUTE_FULL && (gint32) i < most);
}

/* --- schedules ---------------------------------------------------------------------------------------------------- */

/* Where there is no pipeline there is nothing to schedule, as in a scenario. */
static gboolean
set_schedule (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  const SpLayout usual = SP_LAYOUT_DEFAULT;

  (void) space;
  if (i > 0 && (point->layout.pipeline == 1 || i >= sp_schedule_count ()))
    return FALSE;
  point->layout.schedule = point->layout.pipeline > 1 ? (guint8) i : usual.schedule;
  return TRUE;
}

/* Two chunks, and then those that give each stage as many layers. */
static gboolean
set_virtual_stages (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  gint32 layers = space->estimator->arch->layers, stages = point->layout.pipeline;
  gint32 most = MIN (layers / stages, SP_MAX_CHUNKS);

  point->layout.virtual_stages = 1;
  if (stages == 1 || !sp_schedule_get (point->layout.schedule)->chunked || most < 2)
    return i == 0;
  for (gint32 chunks = 2; chunks <= most; chunks++)
    if ((chunks == 2 || layers % (stages * chunks) == 0) && i-- == 0) {
      point->layout.virtual_stages = chunks;
      return TRUE;
    }
  return FALSE;
}

/* As even as can be, the first ones taking the rest; or the last stage, or both ends, with fewer layers, because they have
 * the head and the embedding: then the stages between take the rest. */
static gboolean
set_stage_split (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  static const gint32 fewer[][2] = { { 0, 0 }, { 0, 1 }, { 1, 1 }, { 0, 2 } }; /* layers, at the first and the last */
  gint32 *split = point->layout.stage_split, stages = point->layout.pipeline, layers = space->estimator->arch->layers;
  const SpSchedule *schedule = sp_schedule_get (point->layout.schedule);

  memset (split, 0, sizeof point->layout.stage_split);
  if (i == 0)
    return TRUE;
  if (i >= G_N_ELEMENTS (fewer) || stages < 3 || stages > SP_MAX_STAGES || schedule->chunked || schedule->mirrored)
    return FALSE;
  gint32 all = layers + fewer[i][0] + fewer[i][1], each = all / stages, rest = all % stages;
  if (each - MAX (fewer[i][0], fewer[i][1]) < 1)
    return FALSE;
  for (gint32 s = 0; s < stages; s++)
    split[s] = each + (s >= 1 && s <= rest);
  if (rest == stages - 1)
    split[stages - 1] = each + 1;
  split[0] -= fewer[i][0];
  split[stages - 1] -= fewer[i][1];
  return TRUE;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

static gboolean
set_zero (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  if (i > 0 && (i > 3 || replicas_of (space, point) == 1))
    return FALSE;
  point->layout.zero = (gint32) i;
  return TRUE;
}

/* All; a node's; that times two, four ... */
static gboolean
set_zero_group (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  SpLayout *l = &point->layout;
  gint32 replicas = replicas_of (space, point);

  l->zero_group = 0;
  if (i == 0)
    return TRUE;
  if (l->zero == 0 || l->expert > 1)
    return FALSE;
  gint64 group = sp_layout_zero_in_node (l, space->estimator->arch, space->estimator->cluster->gpus_per_node);
  if (group == 1)
    return FALSE;
  group <<= MIN (i - 1, 31);
  if (group >= replicas || replicas % group != 0)
    return FALSE;
  l->zero_group = (gint32) group;
  return TRUE;
}

/* Where the cluster's file says what the host's links and memory reach. */
static gboolean
set_offload (const SpPlanSpace *space, guint i, SpPlanPoint *point)
{
  const SpCluster *cluster = space->estimator->cluster;
  static const guint8 values[] = { 0,
                                   SP_OFFLOAD_OPTIMIZER,
                                   SP_OFFLOAD_PARAMETERS,
                                   SP_OFFLOAD_OPTIMIZER | SP_OFFLOAD_PARAMETERS,
                                   SP_OFFLOAD_ACTIVATIONS,
                                   SP_OFFLOAD_ACTIVATIONS | SP_OFFLOAD_OPTIMIZER,
                                   SP_OFFLOAD_ACTIVATIONS | SP_OFFLOAD_PARAMETERS,
                                   SP_OFFLOAD_ALL };

  if (i > 0 && (cluster->host_bytes_per_s.value == 0 || cluster->host_memory_bytes_per_s.value == 0))
    return FALSE;
  SET (point->layout.offload, values);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define ROW(key, level, set, field, sampled, is_usual)                                                                 \
  {                                                                                                                    \
    key, level, set, G_STRUCT_OFFSET (SpLayout, field), sizeof ((SpLayout *) NULL)->field, sampled, is_usual           \
  }

const SpPlanDimension sp_plan_dimensions[SP_N_PLAN_DIMENSIONS] = {
  ROW ("ring-split", SP_PLAN_WORK, set_ring_split, token_split, 1, TRUE),
  ROW ("ring-kind", SP_PLAN_WORK, set_ring_kind, ring_kind, 1, FALSE),
  ROW ("ring-keep", SP_PLAN_WORK, set_ring_keep, ring_keep, 1, FALSE),
  ROW ("ring-backward", SP_PLAN_WORK, set_ring_backward, ring_backward, 1, FALSE),
  ROW ("lasp-version", SP_PLAN_WORK, set_lasp_version, lasp_version, 1, TRUE),
  ROW ("recompute", SP_PLAN_WORK, set_recompute, recompute, 3, TRUE),
  ROW ("recompute-every", SP_PLAN_WORK, set_recompute_every, recompute_every, 1, FALSE),
  ROW ("loss", SP_PLAN_LOSS, set_loss, loss, 2, TRUE),
  ROW ("schedule", SP_PLAN_SCHEDULE, set_schedule, schedule, 1, FALSE),
  ROW ("virtual-stages", SP_PLAN_SCHEDULE, set_virtual_stages, virtual_stages, 1, TRUE),
  ROW ("stage-split", SP_PLAN_SCHEDULE, set_stage_split, stage_split, 1, FALSE),
  ROW ("zero", SP_PLAN_STATE, set_zero, zero, 4, TRUE),
  ROW ("zero-group", SP_PLAN_STATE, set_zero_group, zero_group, 1, FALSE),
  ROW ("offload", SP_PLAN_STATE, set_offload, offload, 1, FALSE),
};

guint
sp_plan_dimension (const char *key)
{
  for (guint row = 0; row < SP_N_PLAN_DIMENSIONS; row++)
    if (g_str_equal (sp_plan_dimensions[row].key, key))
      return 1u << row;
  return 0;
}

guint
sp_plan_beyond_usual (void)
{
  guint bits = 0;

  for (guint row = 0; row < SP_N_PLAN_DIMENSIONS; row++)
    bits |= sp_plan_dimensions[row].is_usual ? 0 : 1u << row;
  return bits;
}

const char *
sp_plan_dimension_key (guint row)
{
  return row < SP_N_PLAN_DIMENSIONS ? sp_plan_dimensions[row].key : NULL;
}

gboolean
sp_plan_set (const SpPlanSpace *space, guint row, guint i, SpPlanPoint *point)
{
  const SpPlanDimension *dimension = &sp_plan_dimensions[row];

  if (!(space->question->fixed & 1u << row))
    return dimension->set (space, i, point);
  if (i > 0)
    return FALSE;
  /* What is fixed goes for layouts that have a use for it; the others have what they would have anyway. */
  gboolean has_use = dimension->set (space, 1, point);
  dimension->set (space, 0, point);
  if (has_use || dimension->set == set_offload)
    memcpy ((char *) &point->layout + dimension->offset, (const char *) &space->question->base + dimension->offset,
            dimension->size);
  return TRUE;
}

gboolean
sp_plan_set_chunks (const SpPlanSpace *space, SpPlanPoint *point)
{
  return sp_plan_set (space, sp_plan_next_row (SP_PLAN_LOSS, 0), 1, point);
}

gboolean
sp_plan_is_legal (const SpPlanSpace *space, const SpPlanPoint *point)
{
  const SpEstimator *e = space->estimator;

  return sp_layout_check (&point->layout, e->arch, e->framework, &point->run, space->gpus, NULL);
}

guint
sp_plan_next_row (SpPlanLevel level, guint row)
{
  while (row < SP_N_PLAN_DIMENSIONS && sp_plan_dimensions[row].level != level)
    row++;
  return row;
}

static gint64
count_from (const SpPlanSpace *space, SpPlanLevel level, guint row, SpPlanPoint *point)
{
  gint64 n = 0;

  row = sp_plan_next_row (level, row);
  if (row == SP_N_PLAN_DIMENSIONS)
    return 1;
  for (guint i = 0; sp_plan_set (space, row, i, point); i++)
    n += count_from (space, level, row + 1, point);
  return n;
}

gint64
sp_plan_count_rows (const SpPlanSpace *space, SpPlanLevel level, guint row, const SpPlanPoint *point)
{
  SpPlanPoint below = *point;

  return count_from (space, level, row, &below);
}

gint64
sp_plan_count (const SpPlanSpace *space, const SpPlanPoint *point)
{
  gint64 n = 1;

  for (SpPlanLevel level = 0; level < SP_N_PLAN_LEVELS; level++)
    n *= sp_plan_count_rows (space, level, 0, point);
  return n;
}
