/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

#include "sim/schedules.h"
#include "sim/words.h"

/* Pipeline parallelism (Narayanan et al., 2104.04473): stages of consecutive layers; a stage sends its output rows to
 * the next one, and their gradient comes back. Which slot runs when, and what a schedule asks for, is its own business
 * (sim/schedules.h).
 *
 * Scattered (section 4.1 there): without sequence regions tensor ranks have the same rows, so each sends its part alone,
 * over an adapter of its own, and those that receive gather the parts, inside the node. Known lie: the gather is in
 * place, where Megatron-LM receives a part beside the whole; that is 1 / tensor of the rows, gone before the first
 * kernel, and no peak. */

static gint64
row_elements (const SpWriter *w)
{
  return (gint64) w->region_rows * w->hidden;
}

/* What does not divide is sent whole, as Megatron-LM has it; by the hidden size, so that a smaller last micro-batch goes
 * as the others do. */
static gboolean
scatters (const SpWriter *w)
{
  return sp_layout_scatters (w->layout, w->framework) && w->hidden % w->layout->tensor == 0;
}

static SpOp
message (const SpWriter *w, SpOpKind kind, guint8 in, guint8 out)
{
  gboolean scattered = scatters (w);

  return (SpOp){
    .kind = kind,
    .stream = SP_STREAM_PIPELINE,
    .group = SP_GROUP_PIPELINE,
    .axis = SP_AXIS_PIPELINE,
    .flags = scattered ? SP_OP_OWN_PART : 0,
    .in = { in },
    .out = { out },
    .bytes = row_elements (w) * sp_dtype_bytes (w->dtype) / (scattered ? w->layout->tensor : 1),
  };
}

/* What the tensor ranks send each other is theirs. */
static void
write_gather (SpWriter *w)
{
  SpOp *op = sp_write_op (w, SP_OP_ALL_GATHER);

  op->stream = SP_STREAM_TENSOR;
  op->group = SP_GROUP_TENSOR;
  op->axis = SP_AXIS_TENSOR;
  op->flags = SP_OP_OWN_PART;
  op->in[0] = op->out[0] = SP_SLOT_X;
  op->bytes = row_elements (w) * sp_dtype_bytes (w->dtype);
  w->variant->pipe_gather = (SpSegment){ .first = w->program->n_ops - 1, .n = 1 };
}

void
sp_pipeline_write (SpWriter *w)
{
  w->variant->pipe_send = message (w, SP_OP_SEND, SP_SLOT_Y, 0);
  w->variant->pipe_receive = message (w, SP_OP_RECEIVE, 0, SP_SLOT_X);
  w->variant->pipe_gather = (SpSegment){ 0 };
  if (scatters (w))
    write_gather (w);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* Chunks of all stages together. */
static gint32
most_parts (const SpCase *c)
{
  return MIN (c->arch->layers, SP_MAX_VIRTUAL_STAGES);
}

static gboolean
layers_suffice (const SpCase *c)
{
  return c->layout->pipeline <= SP_MAX_STAGES && sp_layout_virtual_stages (c->layout) <= most_parts (c);
}

static void
explain_layers (const SpCase *c, GString *out)
{
  gint32 parts = sp_layout_virtual_stages (c->layout), chunks = MAX (parts / c->layout->pipeline, 1);

  g_string_append_printf (out, "pipeline = %d stages", c->layout->pipeline);
  if (parts > c->layout->pipeline)
    g_string_append_printf (out, " of virtual-stages = %d", chunks);
  g_string_append_printf (out, " for %d layer%s; at most %d", c->arch->layers, sp_plural (c->arch->layers),
                          MIN (most_parts (c) / chunks, SP_MAX_STAGES));
}

static gboolean
split_adds_up (const SpCase *c)
{
  guint n = (guint) sp_layout_virtual_stages (c->layout);
  gint64 sum = 0;

  if (c->layout->stage_split[0] == 0)
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (c->layout->stage_split); i++) {
    if ((c->layout->stage_split[i] > 0) != (i < n))
      return FALSE;
    sum += c->layout->stage_split[i];
  }
  return sum == c->arch->layers;
}

static void
explain_split (const SpCase *c, GString *out)
{
  gint32 n = sp_layout_virtual_stages (c->layout), each = c->arch->layers / n, rest = c->arch->layers % n;

  g_string_append_printf (
      out, "stage-split must give each of the %d %sstages at least one layer and add up to %d layer%s; e.g. ", n,
      n > c->layout->pipeline ? "virtual " : "", c->arch->layers, sp_plural (c->arch->layers));
  for (gint32 i = 0; i < n; i++)
    g_string_append_printf (out, "%s%d", i ? "," : "", each + (i < rest));
}

/* --- the schedule's own ------------------------------------------------------------------------------------------- */

static SpPipeline
pipeline_of (const SpCase *c)
{
  return (SpPipeline){ .stages = c->layout->pipeline,
                       .chunks = sp_layout_chunks (c->layout),
                       .micro_batches = sp_layout_micro_batches (c->layout, c->run),
                       .slices = c->layout->slices,
                       .uneven =
                           (c->run->global_batch + c->layout->data - 1) / c->layout->data % c->run->micro_batch != 0 };
}

static gboolean
schedule_is_ready (const SpCase *c)
{
  const SpPipeline pipeline = pipeline_of (c);

  return sp_schedule_broken_rule (sp_schedule_get (c->layout->schedule), &pipeline) == NULL;
}

static void
explain_schedule (const SpCase *c, GString *out)
{
  const SpSchedule *schedule = sp_schedule_get (c->layout->schedule);
  const SpPipeline pipeline = pipeline_of (c);

  g_string_append_printf (out, "schedule = %s: ", schedule->name);
  sp_schedule_broken_rule (schedule, &pipeline)->explain (&pipeline, out);
  /* Those that run slices have one chunk a stage. */
  if (c->layout->slices > 1 && !schedule->slices && c->layout->virtual_stages > 1)
    g_string_append (out, " with virtual-stages = 1");
}

/* Both ends of a mirrored pipeline hold both ends of the model. */
static gboolean
ends_are_apart (const SpCase *c)
{
  return !c->arch->tied || !sp_schedule_get (c->layout->schedule)->mirrored;
}

static void
explain_ends (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "schedule = %s puts the embedding and the output matrix on the same ranks, which are tied in "
                          "this model: not available yet; use schedule = 1f1b",
                          sp_schedule_get (c->layout->schedule)->name);
}

/* A layer by itself has no stages around it. */
static gboolean
scope_is_whole (const SpCase *c)
{
  return c->layout->pipeline == 1 || c->run->scope < SP_SCOPE_LAYER;
}

static void
explain_scope (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "scope = %s runs one layer on pipeline = %d stages; use pipeline = 1, or scope = forward or "
                          "step",
                          sp_scope_name ((SpScope) c->run->scope), c->layout->pipeline);
}

static const SpRule rules[] = {
  { "pipeline-layers", layers_suffice, explain_layers },        { "pipeline-split", split_adds_up, explain_split },
  { "pipeline-schedule", schedule_is_ready, explain_schedule }, { "pipeline-tied", ends_are_apart, explain_ends },
  { "pipeline-scope", scope_is_whole, explain_scope },
};

const SpStrategy sp_strategy_pipeline = {
  "pipeline", SP_AXIS_PIPELINE,     "stages of consecutive layers, micro-batches in flight by the schedule",
  rules,      G_N_ELEMENTS (rules), NULL,
};
