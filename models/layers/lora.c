/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * LoRA (Hu et al., 2106.09685): beside a frozen W[out,in] two trained matrices, y = x W^T + (x A^T) B^T. They attach to
 * a weight where it is declared; the three GEMMs of a linear layer (writer.c) then write theirs too, so a layer knows
 * nothing of them. Of a weight that holds several of the model's matrices (q, k, v; gate, up) each has its own pair, as
 * PEFT's have, and works on its columns of y.
 *
 * Over tensor ranks nothing more is sent. Where W is split by its outputs, A is whole on each rank and B split with W:
 * the gradient of x A^T is then a part of it, and so is A's. Where W is split by its inputs, A is split with it and B
 * whole: x A^T stays a part, its product with B goes into the reduction that y needs anyway, and B's gradient is a
 * part. Such parts are summed once, with the norms' (`partial`). (Megatron-Core's adapters of NeMo gather or reduce x
 * A^T instead, rank features a token.)
 *
 * Dropout before A is not there, as with PEFT's default; the factor alpha / rank is one of the GEMM's. Known lie: the
 * product with B is added in place, as a fused implementation does; PEFT's own code writes it, scales it and adds it,
 * in passes over y of their own.
 */

void
sp_lora_attach (SpWriter *w, SpWeightSlots *weight, const guint8 *targets)
{
  const SpWeight *of = &w->block->weights[w->block->n_weights - 1];
  guint wanted = sp_run_lora (w->run);
  SpLora lora = { .in = of->cols, .out = of->rows, .split = of->split };
  gint32 first = 0;

  for (guint i = 0; i < of->n_sections; i++) {
    SpLoraPart part = { .first = first, .out = of->sections[i] };
    part.name = of->n_sections > 1 ? sp_lora_target_name (g_bit_nth_lsf (targets[i], -1)) : of->name;
    if (wanted & targets[i])
      lora.parts[lora.n_parts++] = part;
    first += of->sections[i];
  }
  if (lora.n_parts == 0)
    return;
  g_assert (w->n_loras < SP_MAX_LORAS);
  w->loras[w->n_loras++] = lora;
  weight->lora = (guint8) w->n_loras;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void
write_matrix (SpWriter *w, const SpLora *l, SpLoraPart *part, gboolean is_b, gboolean partials)
{
  gboolean split = l->split == (is_b ? SP_SPLIT_ROWS : SP_SPLIT_COLS);
  gboolean partial = !split && (l->split == SP_SPLIT_NONE ? w->program->sequence_regions != 0 : w->layout->tensor > 1);
  char name[sizeof ((SpWeight *) NULL)->name];

  if (partial != partials)
    return;
  g_snprintf (name, sizeof name, "%s.%s", part->name, is_b ? "B" : "A");
  if (is_b)
    part->b = sp_write_weight (w, name, part->out, w->run->lora_rank, split ? SP_SPLIT_ROWS : SP_SPLIT_NONE, NULL, 0,
                               partial);
  else
    part->a =
        sp_write_weight (w, name, w->run->lora_rank, l->in, split ? SP_SPLIT_COLS : SP_SPLIT_NONE, NULL, 0, partial);
}

void
sp_lora_write_weights (SpWriter *w)
{
  if (w->n_loras == 0)
    return;
  sp_zero_open_flat (w, SP_GROUP_ZERO, FALSE);
  for (guint partials = 2; partials-- > 0;)
    for (guint i = 0; i < w->n_loras; i++)
      for (guint j = 0; j < w->loras[i].n_parts; j++)
        for (guint is_b = 0; is_b < 2; is_b++)
          write_matrix (w, &w->loras[i], &w->loras[i].parts[j], is_b, partials);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* The part's columns of y[m,out], and in *ret_stride how far its rows lie apart; 0: it is all of y. */
static guint8
columns_of (SpWriter *w, const SpLora *l, const SpLoraPart *part, gint32 m, guint8 y, gint32 *ret_stride)
{
  *ret_stride = part->out == l->out ? 0 : l->out;
  if (*ret_stride == 0)
    return y;
  g_assert (w->lacking > 0 || w->block->buffers[y].alias == 0);
  return sp_write_view (w, y, part->first, (gint64) (m - 1) * l->out + part->out);
}

/* c[m,n] (+)= a b, of which a or c may be columns of something wider. */
static void
product (SpWriter *w, gint32 m, gint32 n, gint32 k, guint8 a, gint32 a_stride, guint8 b, guint8 c, gint32 c_stride,
         guint flags)
{
  SpOp *op = sp_write_op (w, SP_OP_GEMM);
  const SpBuffer *buffers = w->block->buffers;

  op->m = m;
  op->n = n;
  op->k = k;
  op->batch = 1;
  op->heads = a_stride;
  op->kv_heads = c_stride;
  op->in[0] = a;
  op->in[1] = b;
  op->out[0] = c;
  op->flags = flags;
  op->flops = 2.0 * m * n * k;
  op->bytes = (gint64) m * k * sp_dtype_bytes (buffers[a].dtype) + (gint64) k * n * sp_dtype_bytes (buffers[b].dtype) +
              (gint64) m * n * sp_dtype_bytes (buffers[c].dtype) * (flags & SP_OP_ACCUMULATE ? 2 : 1);
  sp_write_op_done (w, op);
}

void
sp_lora_forward (SpWriter *w, guint lora, gint32 m, guint8 x, guint8 y)
{
  SpLora *l = &w->loras[lora - 1];
  gint32 rank = w->run->lora_rank, stride;

  sp_lora_narrow (w, lora, m, x);
  for (guint i = 0; i < l->n_parts; i++) {
    SpLoraPart *part = &l->parts[i];
    guint8 to = columns_of (w, l, part, m, y, &stride);
    product (w, m, part->out, rank, part->z, 0, part->b.value, to, stride, SP_OP_TRANS_B | SP_OP_ACCUMULATE);
  }
}

void
sp_lora_narrow (SpWriter *w, guint lora, gint32 m, guint8 x)
{
  SpLora *l = &w->loras[lora - 1];
  gint32 rank = w->run->lora_rank;
  gboolean kept = w->phase == SP_PHASE_FORWARD && w->loop == 0;

  for (guint i = 0; i < l->n_parts; i++) {
    SpLoraPart *part = &l->parts[i];
    gint64 elements = (gint64) m * rank;
    part->z = kept ? sp_write_stash (w, SP_TIER_KEEP, elements) : sp_write_temporary (w, elements);
    product (w, m, rank, l->in, x, 0, part->a.value, part->z, 0, SP_OP_TRANS_B);
  }
}

void
sp_lora_dgrad (SpWriter *w, guint lora, gint32 m, guint8 dy, guint8 dx)
{
  SpLora *l = &w->loras[lora - 1];
  gint32 rank = w->run->lora_rank, stride;

  for (guint i = 0; i < l->n_parts; i++) {
    SpLoraPart *part = &l->parts[i];
    guint8 from = columns_of (w, l, part, m, dy, &stride);
    part->dz = sp_write_temporary (w, (gint64) m * rank);
    product (w, m, rank, part->out, from, stride, part->b.value, part->dz, 0, 0);
    product (w, m, l->in, rank, part->dz, 0, part->a.value, dx, 0, SP_OP_ACCUMULATE);
  }
}

void
sp_lora_wgrad (SpWriter *w, guint lora, gint32 m, guint8 dy, guint8 x)
{
  const guint flags = SP_OP_TRANS_A | SP_OP_ACCUMULATE | SP_OP_WEIGHT;
  SpLora *l = &w->loras[lora - 1];
  gint32 rank = w->run->lora_rank, stride;

  for (guint i = 0; i < l->n_parts; i++) {
    SpLoraPart *part = &l->parts[i];
    guint8 from = columns_of (w, l, part, m, dy, &stride);
    product (w, part->out, rank, m, from, stride, part->z, part->b.grad, 0, flags);
    product (w, rank, l->in, m, part->dz, 0, x, part->a.grad, 0, flags);
  }
}
