/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

#include "sim/schedules.h"
#include "sim/words.h"

/*
 * Token slices (TeraPipe, Li et al., 2102.07988; Seq1F1B, Sun et al., 2406.03488): a pipeline's stages work on parts of a
 * sequence, one after the other, each attending to itself and to those before it. What is of tokens alone is that of a
 * shorter sequence; of a softmax layer
 *    forward    keys and values of a slice are written into those of the sequence, which is there from its first slice on
 *    backward   the slices come last to first. Each one's attention has gradients of all keys so far, which are added to
 *               the sequence's; a slice's own are then complete, as all later ones have added theirs
 *
 * Memory. Keys and values of a whole sequence live from its first slice's FORWARD to that slice's BACKWARD, whatever is
 * recomputed: later slices read them. The sums of their gradients, in the dtype of activations as autograd adds them, live
 * while one sequence's backwards run.
 *
 * Known lies. A framework may let the keys grow slice by slice, where all of the sequence's are taken at once here. With a
 * window the kernel's HBM traffic is that of all keys so far.
 */

gboolean
sp_slices_are (const SpWriter *w)
{
  return w->variant->tokens > 0;
}

static gboolean
is_first (const SpWriter *w)
{
  return w->variant->first == 0;
}

static gboolean
is_last (const SpWriter *w)
{
  return w->variant->first + w->variant->tokens == w->program->sequence;
}

/* Of all the slice's tokens' elements, those of the tokens before it, with it, or of the sequence. */
static gint64
elements_of (const SpWriter *w, gint64 own, gint64 tokens)
{
  return own / w->variant->tokens * tokens;
}

/* A view of what the slice has of a sequence's, and of all so far. */
static guint8
own_part (SpWriter *w, guint8 whole, gint64 own)
{
  return sp_write_view (w, whole, elements_of (w, own, w->variant->first), own);
}

static guint8
part_so_far (SpWriter *w, guint8 whole, gint64 own)
{
  return sp_write_view (w, whole, 0, elements_of (w, own, w->variant->first + w->variant->tokens));
}

guint8
sp_slices_operand (SpWriter *w, guint which, gint64 own)
{
  guint8 whole = sp_write_buffer (w, SP_CLASS_ACTIVATIONS, w->dtype, is_first (w) ? SP_LIFE_STASH : SP_LIFE_SEQUENCE,
                                  elements_of (w, own, w->program->sequence));

  if (!is_first (w))
    w->block->buffers[whole].bytes = 0;
  w->slots.all[which] = part_so_far (w, whole, own);
  return own_part (w, whole, own);
}

guint8
sp_slices_gradient (SpWriter *w, SpSliceGradient *g, gint64 own)
{
  gint64 so_far = elements_of (w, own, w->variant->first + w->variant->tokens);

  g->sum = sp_write_buffer (w, SP_CLASS_ACTIVATIONS, w->dtype, SP_LIFE_ACCUMULATED,
                            elements_of (w, own, w->program->sequence));
  g->part = sp_write_temporary (w, is_last (w) ? 0 : so_far);
  g->sum_so_far = part_so_far (w, g->sum, own);
  g->own = own_part (w, g->sum, own);
  return is_last (w) ? g->sum_so_far : g->part;
}

guint8
sp_slices_add (SpWriter *w, const SpSliceGradient *g, gint32 features)
{
  gint64 elements = w->block->buffers[g->part].elements;

  if (is_last (w))
    return g->own;
  SpOp *op = sp_write_op (w, SP_OP_ACCUMULATE_INTO);
  op->m = (gint32) (elements / features);
  op->n = features;
  op->in[0] = g->part;
  op->out[0] = g->sum_so_far;
  op->flags = SP_OP_ACCUMULATE;
  sp_write_op_done (w, op);
  return g->own;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
is_sliced (const SpCase *c)
{
  return c->layout->slices > 1;
}

/* What a slice's tokens are split over. */
static gint64
token_parts (const SpCase *c)
{
  gint64 parts = sp_layout_sequence_ranks (c->layout, c->arch);

  return c->layout->sequence_regions ? parts * c->layout->tensor : parts;
}

static gboolean
divides (const SpCase *c, gint32 slices)
{
  return slices == 1 || c->run->sequence % (slices * token_parts (c)) == 0;
}

static gboolean
slices_add_up (const SpCase *c)
{
  gint64 sum = 0, parts = token_parts (c);

  if (!is_sliced (c) || c->layout->slice_split[0] == 0)
    return divides (c, c->layout->slices);
  for (gint32 i = 0; i < c->layout->slices; i++) {
    gint64 tokens = sp_layout_slice_tokens (c->layout, c->run, i);
    if (tokens < 1 || tokens % parts != 0)
      return FALSE;
    sum += tokens;
  }
  return sum == c->run->sequence;
}

static void
explain_sum (const SpCase *c, GString *out)
{
  gint64 parts = token_parts (c);
  gint32 below = c->layout->slices, above = c->layout->slices;

  if (c->layout->slice_split[0] > 0) {
    g_string_append_printf (
        out,
        "slices of a sequence must add up to its %" G_GINT64_FORMAT " tokens, each a multiple of the "
        "%" G_GINT64_FORMAT " part%s that it is cut in (sequence ranks%s); e.g. slices = %" G_GINT64_FORMAT
        ",%" G_GINT64_FORMAT,
        c->run->sequence, parts, sp_plural ((gint32) parts),
        c->layout->sequence_regions && c->layout->tensor > 1 ? " x tensor" : "",
        (c->run->sequence / parts + 1) / 2 * parts, c->run->sequence - (c->run->sequence / parts + 1) / 2 * parts);
    return;
  }
  while (below > 1 && !divides (c, below))
    below--;
  while (above < SP_MAX_SLICES && !divides (c, above))
    above++;
  g_string_append_printf (out,
                          "slices = %d do not cut %" G_GINT64_FORMAT
                          " tokens in equal parts of a multiple of %" G_GINT64_FORMAT "; use %d",
                          c->layout->slices, c->run->sequence, parts, below);
  if (divides (c, above))
    g_string_append_printf (out, " or %d", above);
  g_string_append (out, ", or give the tokens of each, such as 640,512,512,384");
}

static gboolean
ring_is_one (const SpCase *c)
{
  return !is_sliced (c) || c->layout->ring == 1;
}

/* The ring's ranks to Ulysses, as many as it can have, and the others to stages or replicas, where there are such. */
static gboolean
find_ringless (const SpCase *c, SpLayout *ret)
{
  gint32 ranks = c->layout->ring * c->layout->ulysses;

  for (gint32 ulysses = ranks; ulysses >= 1; ulysses--)
    for (guint to_data = 0; ranks % ulysses == 0 && to_data < 2; to_data++) {
      *ret = *c->layout;
      ret->ring = 1;
      ret->ring_kind = SP_RING_P2P;
      ret->ring_backward = SP_RING_BACKWARD_KV;
      ret->ring_keep = FALSE;
      ret->ulysses = ulysses;
      *(to_data ? &ret->data : &ret->pipeline) *= ranks / ulysses;
      if (sp_layout_check (ret, c->arch, c->framework, c->run, c->ranks, NULL))
        return TRUE;
    }
  return FALSE;
}

static void
explain_ring (const SpCase *c, GString *out)
{
  SpLayout near;

  g_string_append_printf (out,
                          "slices = %d with ring = %d: a ring's places would have parts of every slice, which is not "
                          "available yet; use ",
                          c->layout->slices, c->layout->ring);
  if (find_ringless (c, &near)) {
    g_string_append_printf (out, "ring = 1 with ulysses = %d", near.ulysses);
    if (near.pipeline > c->layout->pipeline)
      g_string_append_printf (out, " and pipeline = %d", near.pipeline);
    if (near.data > c->layout->data)
      g_string_append_printf (out, " and data = %d", near.data);
    g_string_append (out, ", or ");
  }
  g_string_append (out, "slices = 1");
}

static gboolean
is_softmax (const SpCase *c)
{
  return !is_sliced (c) || !sp_architecture_has (c->arch, SP_LAYER_LINEAR);
}

static void
explain_softmax (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "slices = %d: linear layers would hand their state from slice to slice, which is not available "
      "yet; use slices = 1",
      c->layout->slices);
}

static gboolean
is_causal (const SpCase *c)
{
  return !is_sliced (c) || (c->run->causal && !c->arch->bidirectional);
}

static void
explain_causal (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "slices = %d: a slice attends to those before it alone, and %s; use %sslices = 1",
                          c->layout->slices, c->arch->bidirectional ? "this model looks both ways" : "causal = false",
                          c->arch->bidirectional ? "" : "causal = true or ");
}

static gboolean
is_unpacked (const SpCase *c)
{
  return !is_sliced (c) || c->run->packing == NULL;
}

static void
explain_unpacked (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "slices = %d of packed documents are not available yet; use packing = none or slices = 1",
                          c->layout->slices);
}

static gboolean
layers_go_back (const SpCase *c)
{
  return !is_sliced (c) || c->run->frozen_layers == 0;
}

static void
explain_frozen (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "slices = %d with frozen layers, whose keys nothing would let go of: not available yet; freeze "
      "none or use slices = 1",
      c->layout->slices);
}

static gboolean
scope_is_whole (const SpCase *c)
{
  return !is_sliced (c) || c->run->scope < SP_SCOPE_LAYER;
}

static void
explain_scope (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "scope = %s runs one micro-batch of a layer, and slices = %d; use slices = 1, or scope = "
                          "forward or step",
                          sp_scope_name ((SpScope) c->run->scope), c->layout->slices);
}

static gboolean
inputs_stay (const SpCase *c)
{
  return !is_sliced (c) || !(c->layout->offload & SP_OFFLOAD_ACTIVATIONS);
}

static void
explain_inputs (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "slices = %d with offload = activations is not available yet; use one of them",
                          c->layout->slices);
}

/* Parts that the loss and the MLP cut a rank's tokens in. */
static gint32
tiles_of (const SpCase *c)
{
  gint32 chunks = sp_layout_loss_chunks (c->layout, c->arch, c->run),
         tiles = sp_layout_mlp_tiles (c->layout, c->arch, c->run);
  gint64 ranks = sp_layout_sequence_ranks (c->layout, c->arch);

  for (gint32 i = 0; i < c->layout->slices; i++) {
    gint64 tokens = sp_layout_slice_tokens (c->layout, c->run, i) / ranks;
    if (tokens % chunks != 0)
      return chunks;
    if (tokens % tiles != 0)
      return tiles;
  }
  return 1;
}

static gboolean
tiles_divide (const SpCase *c)
{
  return !is_sliced (c) || tiles_of (c) == 1;
}

static void
explain_tiles (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "loss-chunks and mlp-tiles must divide a rank's tokens of each of slices = %d, and %d do not; "
      "use fewer",
      c->layout->slices, tiles_of (c));
}

/* What no other layout of the model and run would change comes first: it is the reason that helps. */
static const SpRule rules[] = {
  { "slices-linear", is_softmax, explain_softmax },    { "slices-causal", is_causal, explain_causal },
  { "slices-packing", is_unpacked, explain_unpacked }, { "slices-tokens", slices_add_up, explain_sum },
  { "slices-ring", ring_is_one, explain_ring },        { "slices-frozen", layers_go_back, explain_frozen },
  { "slices-scope", scope_is_whole, explain_scope },   { "slices-offload", inputs_stay, explain_inputs },
  { "slices-tiles", tiles_divide, explain_tiles },
};

const SpStrategy sp_strategy_slices = {
  "slices",
  SP_AXIS_PIPELINE,
  "sequences through the stages in slices of tokens (slices = N), as TeraPipe and Seq1F1B do",
  rules,
  G_N_ELEMENTS (rules),
  NULL,
};
