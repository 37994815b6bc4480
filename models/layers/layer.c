/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * A layer, in one of the forms that models put norms, branches and residuals together in. In turn (pre-norm, sandwich,
 * branch-norm, post-norm) each branch makes
 *     y = x + f (norm x),   x + norm (f (norm x)),   x + norm (f x),   norm (x + f x)
 * of the output of the one before it. Beside each other (parallel) both read the layer's input, through one norm or one
 * each, and are added to it at once; with dropout, whose masks differ, one after the other.
 */

typedef struct {
  const SpBranch *branch;
  gpointer self;
  const char *bias_name;
  gboolean has_bias;
  SpNormSlots before, after;
  SpResidualSlots residual;
  SpPort port;
} Part;

typedef struct {
  SpForm form;
  guint n_parts;
  Part parts[2];
} Layer;

/* --- weights ------------------------------------------------------------------------------------------------------ */

static gboolean
is_parallel (const Layer *layer)
{
  return layer->form == SP_FORM_PARALLEL || layer->form == SP_FORM_PARALLEL_TWO;
}

static gboolean
has_norm_before (const Layer *layer, guint part)
{
  return layer->form == SP_FORM_PRE_NORM || layer->form == SP_FORM_SANDWICH || layer->form == SP_FORM_PARALLEL_TWO ||
         (layer->form == SP_FORM_PARALLEL && part == 0);
}

static gboolean
has_norm_after (const Layer *layer)
{
  return layer->form == SP_FORM_SANDWICH || layer->form == SP_FORM_BRANCH_NORM || layer->form == SP_FORM_POST_NORM;
}

static void
write_outer_weights (SpWriter *w, Layer *layer)
{
  static const char *const before[] = { "norm1", "norm2" }, *const after[] = { "post1", "post2" };

  for (guint i = 0; i < layer->n_parts; i++) {
    Part *part = &layer->parts[i];
    if (has_norm_before (layer, i))
      sp_write_norm_weights (w, &part->before, before[i], w->hidden);
    if (has_norm_after (layer))
      sp_write_norm_weights (w, &part->after, after[i], w->hidden);
  }
  for (guint i = 0; i < layer->n_parts; i++)
    if (layer->parts[i].has_bias)
      layer->parts[i].residual.bias = sp_write_weight (w, layer->parts[i].bias_name, 1, w->hidden, SP_SPLIT_NONE, NULL,
                                                       0, w->program->sequence_regions);
}

static void
write_weights (SpWriter *w, Layer *layer)
{
  for (SpWeightPass pass = SP_WEIGHTS_PARTIAL; pass <= SP_WEIGHTS_OWN; pass++) {
    if (pass == SP_WEIGHTS_REGIONS)
      write_outer_weights (w, layer);
    for (guint i = 0; i < layer->n_parts; i++)
      layer->parts[i].branch->weights (w, layer->parts[i].self, pass);
  }
}

/* --- what a branch asks for, and what it gives ---------------------------------------------------------------------- */

guint8
sp_branch_whole (SpWriter *w, SpPort *port)
{
  if (port->whole)
    return port->whole;
  port->whole = sp_tensor_enter (w, port->rows);
  if (sp_tensor_keeps (w, port->rows, port->whole))
    port->again = port->whole;
  return port->whole;
}

guint8
sp_branch_again (SpWriter *w, SpPort *port)
{
  if (!port->again)
    port->again = sp_tensor_regather (w, port->rows);
  return port->again;
}

guint8
sp_branch_again_for (SpWriter *w, SpPort *port, SpWeightSlots weight)
{
  return sp_weight_learns (weight) ? sp_branch_again (w, port) : 0;
}

guint8
sp_branch_d_whole (SpWriter *w, SpPort *port)
{
  if (!port->d_whole)
    port->d_whole = sp_tensor_leave_backward (w, port->d_rows);
  return port->d_whole;
}

SpRows
sp_branch_input_backward (SpWriter *w, SpPort *port, gint32 width, guint8 d_out, SpWeightSlots weight,
                          SpWeightSlots bias)
{
  SpRows d_in = { sp_write_temporary (w, (gint64) w->rows * w->hidden), TRUE };

  if (sp_tensor_overlaps (w))
    sp_branch_again_for (w, port, weight);
  sp_write_linear_dgrad (w, w->rows, width, w->hidden, d_out, weight, d_in.slot);
  if (sp_tensor_overlaps (w) && port->is_alone)
    d_in = (SpRows){ sp_tensor_enter_backward (w, d_in.slot), FALSE };
  sp_write_linear_wgrad (w, w->rows, width, w->hidden, d_out, sp_branch_again_for (w, port, weight), weight);
  sp_write_bias_grad (w, w->rows, width, d_out, bias);
  return d_in;
}

static guint8
leave (SpWriter *w, SpRows out)
{
  return out.is_partial ? sp_tensor_leave (w, out.slot) : out.slot;
}

static guint8
enter_backward (SpWriter *w, SpRows d_in)
{
  return d_in.is_partial ? sp_tensor_enter_backward (w, d_in.slot) : d_in.slot;
}

static guint8
region_temporary (SpWriter *w)
{
  return sp_write_temporary (w, (gint64) w->region_rows * w->hidden);
}

static guint8
add (SpWriter *w, gint32 rows, guint8 a, guint8 b)
{
  guint8 sum = sp_write_temporary (w, (gint64) rows * w->hidden);

  sp_write_rows (w, SP_OP_ADD, rows, w->hidden, a, b, 0, sum, 0, 0);
  return sum;
}

/* --- in turn ------------------------------------------------------------------------------------------------------ */

/* Returns the slot of y: that of the layer's output for the last part, else a stash. */
static guint8
forward_in_turn (SpWriter *w, Layer *layer, guint index, guint8 x)
{
  Part *part = &layer->parts[index];
  gint64 elements = (gint64) w->region_rows * w->hidden;

  part->port.rows = x;
  part->port.is_alone = TRUE;
  if (has_norm_before (layer, index)) {
    sp_write_norm (w, &part->before, x, w->region_rows, w->hidden);
    part->port.rows = part->before.y;
  }
  guint8 out = leave (w, part->branch->forward (w, part->self, &part->port));
  guint8 y = SP_SLOT_Y;
  if (index + 1 < layer->n_parts)
    y = sp_write_stash_of (w, SP_TIER_KEEP, sp_residual_dtype (w), elements);
  if (layer->form == SP_FORM_POST_NORM) {
    guint8 sum = sp_write_stash (w, SP_TIER_KEEP, elements);
    sp_write_residual (w, &part->residual, x, out, sum);
    sp_write_norm_to (w, &part->after, sum, w->region_rows, w->hidden, y);
    return y;
  }
  if (has_norm_after (layer)) {
    sp_write_keep (w, out, SP_TIER_KEEP);
    sp_write_norm_to (w, &part->after, out, w->region_rows, w->hidden, region_temporary (w));
    out = part->after.y;
  }
  sp_write_residual (w, &part->residual, x, out, y);
  return y;
}

static void
backward_in_turn (SpWriter *w, Layer *layer, guint index, guint8 dy, guint8 dx)
{
  Part *part = &layer->parts[index];

  if (layer->form == SP_FORM_POST_NORM) {
    guint8 d_sum = region_temporary (w);
    sp_write_norm_backward (w, &part->after, dy, 0, d_sum);
    dy = d_sum;
  }
  part->port.d_rows = sp_write_residual_backward (w, &part->residual, dy);
  if (has_norm_after (layer) && layer->form != SP_FORM_POST_NORM) {
    guint8 d_out = region_temporary (w);
    sp_write_norm_backward (w, &part->after, part->port.d_rows, 0, d_out);
    part->port.d_rows = d_out;
  }
  guint8 d_in = enter_backward (w, part->branch->backward (w, part->self, &part->port));
  if (has_norm_before (layer, index))
    sp_write_norm_backward (w, &part->before, d_in, dy, dx);
  else
    sp_write_rows (w, SP_OP_ADD, w->region_rows, w->hidden, d_in, dy, 0, dx, 0, 0);
}

/* --- beside each other ---------------------------------------------------------------------------------------------- */

/* The parts' summands are added before the reduction where both have one and nothing comes between. */
static void
forward_parallel (SpWriter *w, Layer *layer)
{
  Part *a = &layer->parts[0], *b = &layer->parts[1];
  SpRows out[2];

  for (guint i = 0; i < 2; i++) {
    Part *part = &layer->parts[i];
    if (has_norm_before (layer, i)) {
      sp_write_norm (w, &part->before, SP_SLOT_X, w->region_rows, w->hidden);
      part->port.rows = part->before.y;
    } else
      part->port = a->port;
    out[i] = part->branch->forward (w, part->self, &part->port);
  }
  if (w->arch->dropout == 0 && out[0].is_partial && out[1].is_partial) {
    guint8 rows = sp_tensor_leave (w, add (w, w->rows, out[0].slot, out[1].slot));
    SpOp *op = sp_write_op (w, SP_OP_ADD);
    op->m = w->region_rows;
    op->n = w->hidden;
    op->in[0] = SP_SLOT_X;
    op->in[1] = rows;
    op->in[2] = a->residual.bias.value;
    op->in[3] = b->residual.bias.value;
    op->out[0] = SP_SLOT_Y;
    sp_write_op_done (w, op);
    return;
  }
  guint8 middle = region_temporary (w);
  sp_write_residual (w, &a->residual, SP_SLOT_X, leave (w, out[0]), middle);
  sp_write_residual (w, &b->residual, middle, leave (w, out[1]), SP_SLOT_Y);
}

static void
backward_parallel (SpWriter *w, Layer *layer)
{
  Part *a = &layer->parts[0], *b = &layer->parts[1];
  SpRows d_in[2];

  for (guint i = 2; i-- > 0;) {
    Part *part = &layer->parts[i];
    part->port.d_rows = sp_write_residual_backward (w, &part->residual, SP_SLOT_DY);
    if (i == 0 && part->port.d_rows == b->port.d_rows)
      part->port.d_whole = b->port.d_whole;
    if (i == 0 && !has_norm_before (layer, 1))
      part->port.again = b->port.again;
    d_in[i] = part->branch->backward (w, part->self, &part->port);
  }
  if (has_norm_before (layer, 1)) {
    guint8 d_past = region_temporary (w);
    sp_write_norm_backward (w, &b->before, enter_backward (w, d_in[1]), SP_SLOT_DY, d_past);
    sp_write_norm_backward (w, &a->before, enter_backward (w, d_in[0]), d_past, SP_SLOT_DX);
    return;
  }
  guint8 d_norm;
  if (d_in[0].is_partial && d_in[1].is_partial)
    d_norm = sp_tensor_enter_backward (w, add (w, w->rows, d_in[0].slot, d_in[1].slot));
  else
    d_norm = add (w, w->region_rows, enter_backward (w, d_in[0]), enter_backward (w, d_in[1]));
  sp_write_norm_backward (w, &a->before, d_norm, SP_SLOT_DY, SP_SLOT_DX);
}

/* --- a layer ------------------------------------------------------------------------------------------------------ */

static void
write_forward (SpWriter *w, Layer *layer)
{
  guint8 x = SP_SLOT_X;

  sp_write_begin (w, SP_PHASE_FORWARD);
  sp_offload_input (w);
  if (is_parallel (layer))
    forward_parallel (w, layer);
  else
    for (guint i = 0; i < layer->n_parts; i++)
      x = forward_in_turn (w, layer, i, x);
  sp_write_end (w);
}

static void
write_backward (SpWriter *w, Layer *layer)
{
  guint8 d = SP_SLOT_DY;

  sp_write_begin (w, SP_PHASE_BACKWARD);
  if (is_parallel (layer))
    backward_parallel (w, layer);
  else
    for (guint i = layer->n_parts; i-- > 0;) {
      guint8 dx = i > 0 ? region_temporary (w) : SP_SLOT_DX;
      backward_in_turn (w, layer, i, d, dx);
      d = dx;
    }
  sp_zero_write_copies (w);
  sp_write_end (w);
}

void
sp_write_layer (SpWriter *w, const SpBranch *mixer, gpointer self)
{
  gboolean experts = (w->traits & SP_LAYER_EXPERTS) != 0;
  SpMlp mlp = { 0 };
  SpExpertSlots slots = { 0 };
  Layer layer = { .form = w->arch->form, .n_parts = w->traits & SP_LAYER_NO_MLP ? 1 : 2 };

  layer.parts[0] = (Part){ .branch = mixer, .self = self, "proj.bias", w->arch->projection_bias };
  layer.parts[1] = experts ? (Part){ .branch = &sp_experts_branch, .self = &slots }
                           : (Part){ .branch = &sp_mlp_branch, .self = &mlp, "down.bias", w->arch->mlp_bias };
  if (layer.n_parts == 1 && is_parallel (&layer))
    layer.form = SP_FORM_PRE_NORM;
  write_weights (w, &layer);
  sp_lora_write_weights (w);
  sp_zero_end_weights (w, &(const SpTied){ 0 });
  if (w->state_only)
    return;
  write_forward (w, &layer);
  if (sp_block_has_backward (w->block))
    write_backward (w, &layer);
}
