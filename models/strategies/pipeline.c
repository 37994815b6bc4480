/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

#include "models/schedules.h"

/* Pipeline parallelism (Narayanan et al., 2104.04473): stages of consecutive layers; a stage sends its output rows to
 * the next one, and their gradient comes back. Which slot runs when is the schedule's business. */

static SpOp
message (const SpWriter *w, SpOpKind kind, guint8 in, guint8 out, guint guard)
{
  return (SpOp){
    .kind = kind,
    .stream = SP_STREAM_PIPELINE,
    .group = SP_GROUP_PIPELINE,
    .axis = SP_AXIS_PIPELINE,
    .guard = guard,
    .in = { in },
    .out = { out },
    .bytes = (gint64) w->region_rows * w->hidden * sp_dtype_bytes (w->dtype),
  };
}

void
sp_pipeline_write (SpWriter *w)
{
  w->variant->pipe_send = message (w, SP_OP_SEND, SP_SLOT_Y, 0, SP_GUARD_NOT_LAST);
  w->variant->pipe_receive = message (w, SP_OP_RECEIVE, 0, SP_SLOT_X, SP_GUARD_NOT_FIRST);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gint32
most_stages (const SpCase *c)
{
  return MIN (c->arch->layers, (gint32) G_N_ELEMENTS (c->layout->stage_split));
}

static gboolean
layers_suffice (const SpCase *c)
{
  return c->layout->pipeline <= most_stages (c);
}

static void
explain_layers (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "pipeline = %d stages for %d layers; at most %d", c->layout->pipeline, c->arch->layers,
                          most_stages (c));
}

static gboolean
split_adds_up (const SpCase *c)
{
  gint64 sum = 0;

  if (c->layout->stage_split[0] == 0)
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (c->layout->stage_split); i++) {
    if ((c->layout->stage_split[i] > 0) != (i < (guint) c->layout->pipeline))
      return FALSE;
    sum += c->layout->stage_split[i];
  }
  return sum == c->arch->layers;
}

static void
explain_split (const SpCase *c, GString *out)
{
  gint32 p = c->layout->pipeline, each = c->arch->layers / p, rest = c->arch->layers % p;

  g_string_append_printf (
      out, "stage-split must give each of the %d stages at least one layer and add up to %d layers; e.g. ", p,
      c->arch->layers);
  for (gint32 i = 0; i < p; i++)
    g_string_append_printf (out, "%s%d", i ? "," : "", each + (i < rest));
}

static const SpRule rules[] = {
  { "pipeline-layers", layers_suffice, explain_layers },
  { "pipeline-split", split_adds_up, explain_split },
};

const SpStrategy sp_strategy_pipeline = {
  "pipeline", SP_AXIS_PIPELINE,     "stages of consecutive layers, micro-batches in flight by the schedule",
  rules,      G_N_ELEMENTS (rules), NULL,
};
