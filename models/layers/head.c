/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * Final norm, BERT's transform (a square matrix, gelu, a norm; on each tensor rank's own rows), output matrix and the
 * loss, split over tensor ranks by vocabulary: the softmax's maximum and sum are
 * reduced over the group (Megatron-LM's vocabulary-parallel cross entropy). Its gradient
 * takes the logits' place, or, as PyTorch's does, a copy of its own with another one beside it.
 */

typedef struct {
  SpNormSlots norm, norm2;
  SpWeightSlots matrix, bias, transform, transform_bias;
  guint8 transformed, act; /* before and after gelu */
  guint8 rows;             /* that the matrix reads, of this rank */
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
  guint8 values = tied_slot (w, flat->parameters), gradients = tied_slot (w, flat->gradients);

  h->matrix.value = sp_write_view (w, values, table->offset, table->elements);
  h->matrix.grad = sp_write_view (w, gradients, table->offset, table->elements);
  if (embedding->regather)
    *ret_tied = (SpTied){ .shard = tied_slot (w, flat->shard_parameters), .values = values };
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
  gint64 logits = (gint64) w->rows * w->vocabulary;
  gboolean copies = w->framework->fp32_logits;

  write_rows (w, h);
  guint8 whole = sp_tensor_enter (w, h->rows);
  h->logits = sp_write_buffer (w, SP_CLASS_LOGITS, w->dtype, copies ? SP_LIFE_SEGMENT : SP_LIFE_STASH, logits);
  sp_write_linear (w, w->rows, w->vocabulary, w->hidden, whole, h->matrix, h->bias.value, h->logits);
  if (copies) {
    guint8 wide = sp_write_buffer (w, SP_CLASS_LOGITS, SP_DTYPE_FP32, SP_LIFE_STASH, logits);
    sp_write_rows (w, SP_OP_COPY, w->rows, w->vocabulary, h->logits, 0, 0, wide, 0, 0);
    h->logits = wide;
  }
  h->maximum = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, w->rows);
  sp_write_rows (w, SP_OP_LOSS_MAX, w->rows, w->vocabulary, h->logits, 0, 0, h->maximum, 0, 0);
  sp_tensor_sum (w, h->maximum, SP_OP_MAX);
  h->sums = sp_write_stash_of (w, SP_TIER_KEEP, SP_DTYPE_FP32, 2 * (gint64) w->rows);
  sp_write_rows (w, SP_OP_LOSS_SUM, w->rows, w->vocabulary, h->logits, h->maximum, 0, h->sums, 0, 0);
  sp_tensor_sum (w, h->sums, 0);
}

static void
write_backward (SpWriter *w, Head *h)
{
  guint8 scratch = 0, wide = h->logits;
  if (w->framework->loss_copies) {
    SpDtype dtype = w->block->buffers[h->logits].dtype;
    wide = sp_write_buffer (w, SP_CLASS_LOGITS, dtype, SP_LIFE_SEGMENT, (gint64) w->rows * w->vocabulary);
    scratch = sp_write_buffer (w, SP_CLASS_LOGITS, dtype, SP_LIFE_SEGMENT, (gint64) w->rows * w->vocabulary);
  }
  sp_write_rows (w, SP_OP_LOSS, w->rows, w->vocabulary, h->logits, h->maximum, h->sums, wide, scratch, 0);
  guint8 d_logits = wide;
  if (w->framework->fp32_logits) {
    d_logits = sp_write_buffer (w, SP_CLASS_LOGITS, w->dtype, SP_LIFE_SEGMENT, (gint64) w->rows * w->vocabulary);
    sp_write_rows (w, SP_OP_COPY, w->rows, w->vocabulary, wide, 0, 0, d_logits, 0, 0);
  }
  guint8 d_rows = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear_dgrad (w, w->rows, w->vocabulary, w->hidden, d_logits, h->matrix, d_rows);
  sp_write_linear_wgrad (w, w->rows, w->vocabulary, w->hidden, d_logits, sp_tensor_regather (w, h->rows), h->matrix);
  sp_write_bias_grad (w, w->rows, w->vocabulary, d_logits, h->bias);
  write_rows_backward (w, h, sp_tensor_enter_backward (w, d_rows));
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
  else
    h.matrix = sp_write_weight (w, w->arch->tied ? "embedding" : "head", w->vocabulary, w->hidden, SP_SPLIT_VOCABULARY,
                                NULL, 0, FALSE);
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
  sp_write_end (w);
}
