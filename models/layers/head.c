/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * Final norm, BERT's transform (a square matrix, gelu, a norm; on each tensor rank's own rows), output matrix and the
 * loss. The matrix is split over tensor ranks by vocabulary, and so is the loss: the
 * softmax's maximum and sum are reduced over the group (Megatron-LM's vocabulary-parallel cross entropy); or the logits
 * are gathered and each rank computes all of it (frameworks without a parallel loss). Its gradient takes the logits'
 * place, or, as PyTorch's does, a copy of its own with another one beside it.
 *
 * In chunks of the tokens (SP_LOSS_CHUNKED, SP_LOSS_FUSED) only one chunk's logits live; the gradient of the matrix is
 * summed chunk by chunk. Frameworks do this within the forward, here it stands in BACKWARD, which follows: so a step is
 * the same, but FORWARD by itself lacks the output matrix and the loss.
 */

typedef struct {
  SpNormSlots norm, norm2;
  SpWeightSlots matrix, bias, transform, transform_bias;
  guint8 transformed, act; /* before and after gelu */
  guint8 rows;             /* that the matrix reads, of this rank */
  guint8 whole;            /* and of all, where that is kept */
  guint8 logits, maximum, sums;
} Head;

/* A buffer of the embedding, under a slot of this block. */
static guint8
tied_slot (SpWriter *w, guint8 slot)
{
  const SpBuffer *of = &w->variant->blocks[0].buffers[slot];
  guint8 own = sp_write_buffer (w, of->class, of->dtype, of->life, of->elements);

  w->block->buffers[own].bytes = 0;
  w->block->buffers[own].tied = 1;
  w->block->buffers[own].tied_slot = slot;
  return own;
}

/* The embedding's matrix is the output matrix: on one stage it is the same memory, over stages a copy of it. With
 * sharded parameters it has to be gathered for the head too, unless what the embedding's forward gathered is still
 * there. */
static void
tie (SpWriter *w, Head *h, SpTied *ret_tied)
{
  const SpBlock *embedding = &w->variant->blocks[0];
  const SpBuffer *table = &embedding->buffers[embedding->weights[embedding->n_weights - 1].slot];
  const SpFlat *flat = &embedding->flats[embedding->weights[embedding->n_weights - 1].flat];
  guint8 values = tied_slot (w, flat->parameters), gradients = flat->frozen ? 0 : tied_slot (w, flat->gradients);

  h->matrix.value = sp_write_view (w, values, table->offset, table->elements);
  h->matrix.grad = gradients ? sp_write_view (w, gradients, table->offset, table->elements) : 0;
  if (embedding->regather)
    *ret_tied = (SpTied){ .shard = tied_slot (w, flat->shard_parameters), .values = values };
}

/* The head, the loss and their backwards run over chunks of the tokens, all of it in BACKWARD: a chunk's logits do not
 * outlive it, so its gradient has to be taken at once. */
static gboolean
is_one_pass (const SpWriter *w)
{
  return w->layout->loss == SP_LOSS_CHUNKED || w->layout->loss == SP_LOSS_FUSED;
}

/* Each tensor rank computes the loss from all logits. */
static gboolean
is_gathered (const SpWriter *w)
{
  return w->layout->loss == SP_LOSS_FULL && w->layout->tensor > 1;
}

static gint32
columns (const SpWriter *w)
{
  return is_gathered (w) ? w->vocabulary * w->layout->tensor : w->vocabulary;
}

static gboolean
copies_logits (const SpWriter *w)
{
  return w->framework->fp32_logits && w->layout->loss != SP_LOSS_FUSED;
}

static guint8
logits_buffer (SpWriter *w, SpDtype dtype, SpLife life, gint32 rows, gint32 n)
{
  return sp_write_buffer (w, SP_CLASS_LOGITS, dtype, life, (gint64) rows * n);
}

/* From rows of the normed hidden state to what the loss and its gradient read. */
static void
write_logits (SpWriter *w, Head *h, gint32 rows, guint8 x)
{
  gboolean copies = copies_logits (w), gathered = is_gathered (w);
  SpLife life = is_one_pass (w) ? SP_LIFE_SEGMENT : SP_LIFE_STASH;
  gint32 n = columns (w);

  h->logits = logits_buffer (w, w->dtype, copies || gathered ? SP_LIFE_SEGMENT : life, rows, w->vocabulary);
  sp_write_linear (w, rows, w->vocabulary, w->hidden, x, h->matrix, h->bias.value, h->logits);
  if (gathered) {
    guint8 whole = logits_buffer (w, w->dtype, copies ? SP_LIFE_SEGMENT : life, rows, n);
    sp_tensor_gather_columns (w, rows, w->vocabulary, h->logits, whole);
    h->logits = whole;
  }
  if (copies) {
    guint8 wide = logits_buffer (w, SP_DTYPE_FP32, life, rows, n);
    sp_write_rows (w, SP_OP_COPY, rows, n, h->logits, 0, 0, wide, 0, 0);
    h->logits = wide;
  }
  h->maximum = sp_write_buffer (w, SP_CLASS_ACTIVATIONS, SP_DTYPE_FP32, life, rows);
  sp_write_rows (w, SP_OP_LOSS_MAX, rows, n, h->logits, 0, 0, h->maximum, 0, 0);
  if (!gathered)
    sp_tensor_sum (w, h->maximum, SP_OP_MAX);
  h->sums = sp_write_buffer (w, SP_CLASS_ACTIVATIONS, SP_DTYPE_FP32, life, 2 * (gint64) rows);
  sp_write_rows (w, SP_OP_LOSS_SUM, rows, n, h->logits, h->maximum, 0, h->sums, 0, 0);
  if (!gathered)
    sp_tensor_sum (w, h->sums, 0);
}

/* The loss and its gradient, in the columns that the output matrix has here. */
static guint8
write_loss (SpWriter *w, Head *h, gint32 rows)
{
  gint32 n = columns (w);
  guint8 scratch = 0, wide = h->logits;

  if (w->framework->loss_copies && w->layout->loss != SP_LOSS_FUSED) {
    SpDtype dtype = w->block->buffers[h->logits].dtype;
    wide = logits_buffer (w, dtype, SP_LIFE_SEGMENT, rows, n);
    scratch = logits_buffer (w, dtype, SP_LIFE_SEGMENT, rows, n);
  }
  sp_write_rows (w, SP_OP_LOSS, rows, n, h->logits, h->maximum, h->sums, wide, scratch, 0);
  guint8 d_logits = wide;
  if (copies_logits (w)) {
    d_logits = logits_buffer (w, w->dtype, SP_LIFE_SEGMENT, rows, n);
    sp_write_rows (w, SP_OP_COPY, rows, n, wide, 0, 0, d_logits, 0, 0);
  }
  if (!is_gathered (w))
    return d_logits;
  guint8 own = logits_buffer (w, w->dtype, SP_LIFE_SEGMENT, rows, w->vocabulary);
  sp_tensor_own_columns (w, rows, w->vocabulary, d_logits, own);
  return own;
}

static void
write_rows (SpWriter *w, Head *h)
{
  gint64 elements = (gint64) w->region_rows * w->hidden;

  h->rows = SP_SLOT_X;
  if (!w->arch->no_final_norm) {
    sp_write_norm (w, &h->norm, SP_SLOT_X, w->region_rows, w->hidden);
    h->rows = h->norm.y;
  }
  /* What a list gathers ends with it, so it may not be empty: a loss in one pass has nothing else here. */
  if (h->rows == SP_SLOT_X && !w->arch->head_transform && is_one_pass (w)) {
    h->rows = sp_write_stash (w, SP_TIER_KEEP, elements);
    sp_write_rows (w, SP_OP_COPY, w->region_rows, w->hidden, SP_SLOT_X, 0, 0, h->rows, 0, 0);
  }
  if (!w->arch->head_transform)
    return;
  h->transformed = sp_write_stash (w, SP_TIER_KEEP, elements);
  sp_write_linear (w, w->region_rows, w->hidden, w->hidden, h->rows, h->transform, h->transform_bias.value,
                   h->transformed);
  h->act = sp_write_stash (w, SP_TIER_KEEP, elements);
  sp_write_rows (w, SP_OP_GELU, w->region_rows, w->hidden, h->transformed, 0, 0, h->act, 0, 0);
  sp_write_norm (w, &h->norm2, h->act, w->region_rows, w->hidden);
  h->rows = h->norm2.y;
}

/* From the gradient of h->rows to SP_SLOT_DX. */
static void
write_rows_backward (SpWriter *w, Head *h, guint8 d)
{
  gint32 m = w->region_rows, n = w->hidden;

  if (w->arch->head_transform) {
    guint8 d_act = sp_write_temporary (w, (gint64) m * n), d_transformed = sp_write_temporary (w, (gint64) m * n);
    sp_write_norm_backward (w, &h->norm2, d, 0, d_act);
    sp_write_rows (w, SP_OP_GELU_BWD, m, n, d_act, h->transformed, 0, d_transformed, 0, 0);
    d = w->arch->no_final_norm ? SP_SLOT_DX : sp_write_temporary (w, (gint64) m * n);
    sp_write_linear_dgrad (w, m, n, n, d_transformed, h->transform, d);
    sp_write_linear_wgrad (w, m, n, n, d_transformed, w->arch->no_final_norm ? SP_SLOT_X : h->norm.y, h->transform);
    sp_write_bias_grad (w, m, n, d_transformed, h->transform_bias);
  }
  if (!w->arch->no_final_norm)
    sp_write_norm_backward (w, &h->norm, d, 0, SP_SLOT_DX);
  else if (d != SP_SLOT_DX)
    sp_write_rows (w, SP_OP_COPY, m, n, d, 0, 0, SP_SLOT_DX, 0, 0);
}

static void
write_forward (SpWriter *w, Head *h)
{
  write_rows (w, h);
  if (is_one_pass (w))
    return;
  guint8 whole = sp_tensor_enter (w, h->rows);
  h->whole = sp_tensor_keeps (w, h->rows, whole) ? whole : 0;
  write_logits (w, h, w->rows, whole);
}

static void
write_chunks (SpWriter *w, Head *h, guint8 d_rows)
{
  gint32 chunks = sp_layout_loss_chunks (w->layout, w->arch, w->run), rows = w->rows / chunks;
  guint8 whole = sp_tensor_enter (w, h->rows);
  SpLoop *loop = sp_write_tiles_begin (w, chunks);
  guint8 x = sp_write_tile (w, whole);

  write_logits (w, h, rows, x);
  guint8 d_logits = write_loss (w, h, rows);
  sp_write_linear_dgrad (w, rows, w->vocabulary, w->hidden, d_logits, h->matrix, sp_write_tile (w, d_rows));
  sp_write_linear_wgrad (w, rows, w->vocabulary, w->hidden, d_logits, x, h->matrix);
  sp_write_bias_grad (w, rows, w->vocabulary, d_logits, h->bias);
  sp_write_loop_end (w, loop);
}

/* The input of the output matrix for its gradient. */
static guint8
whole_again (SpWriter *w, const Head *h)
{
  return h->whole ? h->whole : sp_tensor_regather (w, h->rows);
}

static void
write_backward (SpWriter *w, Head *h)
{
  gboolean learns = sp_weight_learns (h->matrix);
  guint8 whole = 0;

  if (is_one_pass (w)) {
    guint8 d_rows = sp_write_temporary (w, (gint64) w->rows * w->hidden);
    write_chunks (w, h, d_rows);
    write_rows_backward (w, h, sp_tensor_enter_backward (w, d_rows));
    return;
  }
  guint8 d_logits = write_loss (w, h, w->rows);
  guint8 d_rows = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  if (learns && sp_tensor_overlaps (w))
    whole = whole_again (w, h);
  sp_write_linear_dgrad (w, w->rows, w->vocabulary, w->hidden, d_logits, h->matrix, d_rows);
  if (sp_tensor_overlaps (w))
    d_rows = sp_tensor_enter_backward (w, d_rows);
  if (learns)
    sp_write_linear_wgrad (w, w->rows, w->vocabulary, w->hidden, d_logits, whole ? whole : whole_again (w, h),
                           h->matrix);
  sp_write_bias_grad (w, w->rows, w->vocabulary, d_logits, h->bias);
  write_rows_backward (w, h, sp_tensor_overlaps (w) ? d_rows : sp_tensor_enter_backward (w, d_rows));
}

static void
write_row_weights (SpWriter *w, Head *h)
{
  gboolean partial = w->program->sequence_regions;

  if (!w->arch->no_final_norm)
    sp_write_norm_weights (w, &h->norm, "norm", w->hidden);
  if (w->arch->head_transform) {
    h->transform = sp_write_weight (w, "transform", w->hidden, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
    h->transform_bias = sp_write_weight (w, "trans.bias", 1, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
    sp_write_norm_weights (w, &h->norm2, "norm2", w->hidden);
  }
  if (w->arch->head_bias)
    h->bias = sp_write_weight (w, "head.bias", w->vocabulary, 1, SP_SPLIT_VOCABULARY, NULL, 0, FALSE);
}

void
sp_write_head (SpWriter *w)
{
  Head h = { 0 };
  SpTied tied = { 0 };

  write_row_weights (w, &h);
  if (w->arch->tied && w->layout->pipeline == 1)
    tie (w, &h, &tied);
  else {
    /* A copy of the embedding's is frozen with it. */
    if (w->arch->tied && !w->block->frozen && sp_run_frozen_embedding (w->run))
      sp_zero_open_flat (w, SP_GROUP_ZERO, TRUE);
    h.matrix = sp_write_weight (w, w->arch->tied ? "embedding" : "head", w->vocabulary, w->hidden, SP_SPLIT_VOCABULARY,
                                NULL, 0, FALSE);
  }
  if (w->arch->tied && w->layout->pipeline > 1)
    tied.copy_gradient = h.matrix.grad;
  sp_zero_end_weights (w, &tied);
  if (w->state_only)
    return;

  sp_write_begin (w, SP_PHASE_FORWARD);
  write_forward (w, &h);
  sp_write_end (w);

  sp_write_begin (w, SP_PHASE_BACKWARD);
  write_backward (w, &h);
  sp_zero_write_copies (w);
  sp_write_end (w);
}
