/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * Muon (Jordan et al., 2024) as Moonlight runs it (Liu et al., "Muon is Scalable for LLM Training", 2502.16982): of the
 * layers' weight matrices the update is the momentum made orthogonal by five Newton-Schulz iterations in bf16, scaled by
 * 0.2 sqrt (longer side) to AdamW's size. Matrices are those that a layer multiplies with, of fused ones q, k, v, gate and
 * up each, experts one by one; embedding, output matrix, norms, biases, convolutions and rates have AdamW. A parameter of
 * a matrix has 4 bytes of momentum beside the 4 of its master, where AdamW has 8.
 *
 * Matrices lie in flats of their own, which ZeRO shards like all others. Moonlight's algorithm 1, on a flat over P ranks:
 *    momentum on the own shard, fp32 -> Nesterov's update of it, bf16
 *    all-gather of that: payload 2 bytes a parameter (beside 4 to reduce-scatter fp32 gradients)
 *    each rank makes those matrices orthogonal that its shard has a part of, and keeps its part
 *    master and parameters step; with ZeRO-1 and 2 the parameters are gathered, as ever
 * A tensor rank has a slice of a matrix: before the third line the slices are gathered over the tensor ranks, each of
 * which computes the whole. Without shards every rank computes all matrices.
 *
 * An iteration on m x n (m <= n) is A = X X^T, B = b A + c A A, X = a X + B X: 4 m^2 n + 2 m^3 FLOP, priced as these three
 * GEMMs. With the step's 6 m n FLOP a token the overhead on B tokens is 5 (4 m^2 n + 2 m^3) / (6 m n B), at most 5 m / B,
 * times the ranks that compute the same. An op has the mean place's FLOP: places have one matrix more or less.
 *
 * Known lies. Nothing of it overlaps, and matrices and the rest are reduced and gathered apart: a collective a flat more
 * than frameworks that keep both in one buffer. The shards are of each layer, as FSDP2's and Megatron's buckets of about a
 * layer are, so with many ranks several compute the same matrix; those that deal whole matrices out instead (Megatron's
 * dist_muon, Dion's) compute each once. FSDP2 cuts each matrix by rows, so every rank would have a part of every matrix:
 * what is here is the shards in the order of parameters. Tensor ranks gather the slices of all matrices, those too that
 * their shard has no part of. Memory is that of a compiled iteration: two of X, A and B, beside what was gathered.
 */

#define ITERATIONS 5

gboolean
sp_muon_serves (const SpWriter *w)
{
  return w->run->optimizer == SP_OPTIMIZER_MUON &&
         (w->block->kind == SP_BLOCK_SOFTMAX || w->block->kind == SP_BLOCK_LINEAR);
}

gboolean
sp_muon_is_matrix (const char *name, gint32 rows, gint32 cols)
{
  static const char *const elementwise[] = { "conv", "log.rate" };

  for (guint i = 0; i < G_N_ELEMENTS (elementwise); i++)
    if (g_str_equal (name, elementwise[i]))
      return FALSE;
  return rows > 1 && cols > 1;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* What the list has while it runs; views of it serve one matrix after the other. */
typedef struct {
  guint8 whole;     /* the flat, bf16 */
  guint8 slices;    /* of a weight, of all tensor ranks; 0: no weight is cut */
  guint8 workspace; /* of an iteration */
} Muon;

typedef struct {
  gint64 rows, cols; /* of a whole matrix */
  gint64 first;      /* local row of an expert's */
} Matrix;

static gint32
parts_of (const SpWriter *w, const SpWeight *weight)
{
  return weight->split == SP_SPLIT_NONE ? 1 : w->layout->tensor;
}

static gint32
experts_of (const SpWeight *weight)
{
  return MAX (weight->experts, 1);
}

static Matrix
matrix_of (const SpWriter *w, const SpWeight *weight, guint section)
{
  gint32 parts = parts_of (w, weight);
  gboolean by_columns = weight->split == SP_SPLIT_COLS;
  Matrix m = { (gint64) weight->sections[section] * (by_columns ? 1 : parts),
               (gint64) weight->cols * (by_columns ? parts : 1), 0 };

  for (guint i = 0; i < section; i++)
    m.first += weight->sections[i];
  return m;
}

static gint64
workspace_of (Matrix m)
{
  gint64 small = MIN (m.rows, m.cols), large = MAX (m.rows, m.cols);

  return 2 * small * (large + small);
}

static guint8
temporary (SpWriter *w, gint64 elements)
{
  return sp_write_buffer (w, SP_CLASS_WORKSPACE, SP_DTYPE_BF16, SP_LIFE_SEGMENT, elements);
}

/* So many elements of it, as one view for all that ask: slots are few. */
static guint8
front_of (SpWriter *w, guint8 slot, gint64 elements)
{
  for (guint i = slot; i < w->block->n_buffers; i++) {
    const SpBuffer *buffer = &w->block->buffers[i];
    if ((i == slot || (buffer->alias == slot && buffer->offset == 0)) && buffer->elements == elements)
      return (guint8) i;
  }
  return sp_write_view (w, slot, 0, elements);
}

static Muon
make_memory (SpWriter *w, guint index)
{
  const SpBlock *block = w->block;
  gint64 slices = 0, workspace = 0;
  Muon muon = { temporary (w, block->buffers[block->flats[index].parameters].elements), 0, 0 };

  for (guint i = 0; i < block->n_weights; i++) {
    const SpWeight *weight = &block->weights[i];
    if (weight->flat != index)
      continue;
    if (parts_of (w, weight) > 1)
      slices = MAX (slices, (gint64) parts_of (w, weight) * weight->rows * weight->cols);
    for (guint s = 0; s < weight->n_sections; s++)
      workspace = MAX (workspace, workspace_of (matrix_of (w, weight, s)));
  }
  muon.slices = slices > 0 ? temporary (w, slices) : 0;
  muon.workspace = temporary (w, workspace);
  return muon;
}

/* --- a matrix ----------------------------------------------------------------------------------------------------- */

/* Of the places that the flat is cut over, times the experts, the part that has some of an expert's matrix. */
static double
share_of (const SpWriter *w, const SpFlat *flat, const SpWeight *weight, Matrix m, gint64 rows)
{
  gint64 offset = w->block->buffers[weight->slot].offset;
  gint64 shard = flat->shard_gradients ? w->block->buffers[flat->shard_gradients].elements : 0;
  gint64 places = 0;

  if (shard == 0)
    return 1;
  for (gint32 e = 0; e < experts_of (weight); e++) {
    gint64 begin = offset + (e * (weight->rows / experts_of (weight)) + m.first) * weight->cols;
    places += (begin + rows * weight->cols - 1) / shard - begin / shard + 1;
  }
  return (double) places / experts_of (weight) / w->program->groups[flat->group].size;
}

double
sp_muon_flops (gint64 rows, gint64 cols)
{
  double small = (double) MIN (rows, cols), large = (double) MAX (rows, cols);

  return ITERATIONS * (4 * small * small * large + 2 * small * small * small);
}

static void
write_orthogonal (SpWriter *w, const SpFlat *flat, const SpWeight *weight, guint section, guint8 from, guint8 lies,
                  guint8 workspace)
{
  Matrix m = matrix_of (w, weight, section);
  double share = share_of (w, flat, weight, m, weight->sections[section]), small = (double) MIN (m.rows, m.cols);
  SpOp *op = sp_write_op (w, SP_OP_ORTHOGONALIZE);

  op->m = weight->sections[section];
  op->n = weight->cols;
  op->k = weight->rows / experts_of (weight);
  op->batch = experts_of (weight);
  op->heads = (gint32) m.first;
  op->kv_heads = parts_of (w, weight);
  op->group = flat->shard_gradients ? flat->group : SP_GROUP_NONE;
  op->flags = weight->split == SP_SPLIT_COLS ? SP_OP_TRANS_B : 0;
  op->in[0] = from;
  op->in[1] = lies;
  op->out[0] = from;
  op->out[1] = front_of (w, workspace, workspace_of (m));
  op->flops = share * op->batch * sp_muon_flops (m.rows, m.cols);
  /* Operands of the three products; the last two add to one of theirs. */
  op->bytes =
      (gint64) (share * op->batch * ITERATIONS * 2 * (4.0 * (double) m.rows * (double) m.cols + 5 * small * small));
  sp_write_op_done (w, op);
}

static void
write_weight (SpWriter *w, const SpFlat *flat, const SpWeight *weight, const Muon *muon)
{
  gint64 elements = (gint64) weight->rows * weight->cols;
  guint8 own = sp_write_view (w, muon->whole, w->block->buffers[weight->slot].offset, elements), from = own;
  gint32 parts = parts_of (w, weight);

  if (parts > 1) {
    from = front_of (w, muon->slices, parts * elements);
    sp_write_collective (w, SP_OP_ALL_GATHER, SP_GROUP_TENSOR, SP_AXIS_TENSOR, SP_STREAM_TENSOR, own, from, 0);
  }
  for (guint s = 0; s < weight->n_sections; s++)
    write_orthogonal (w, flat, weight, s, from, own, muon->workspace);
  if (parts > 1) {
    SpOp *op = sp_write_op (w, SP_OP_COPY);
    op->m = weight->rows;
    op->n = weight->cols;
    op->group = SP_GROUP_TENSOR;
    op->in[0] = from;
    op->out[0] = own;
    op->bytes = 2 * elements * sp_dtype_bytes (SP_DTYPE_BF16);
    sp_write_op_done (w, op);
  }
}

/* --- a flat ------------------------------------------------------------------------------------------------------- */

void
sp_muon_write (SpWriter *w, guint index, guint8 gradients, guint8 updated)
{
  const SpFlat *flat = &w->block->flats[index];
  gint64 elements = w->block->buffers[gradients].elements;
  gboolean sharded = flat->shard_gradients != 0;
  Muon muon = make_memory (w, index);
  guint8 part = sharded ? temporary (w, elements) : muon.whole;

  SpOp *op = sp_write_op (w, SP_OP_MOMENTUM);
  op->m = 1;
  op->n = (gint32) elements;
  op->in[0] = gradients;
  op->out[0] = flat->moment1;
  op->out[1] = part;
  op->bytes = elements * (sp_dtype_bytes (w->block->buffers[gradients].dtype) + 8 + 2);
  sp_write_op_done (w, op);
  if (sharded)
    sp_write_collective (w, SP_OP_ALL_GATHER, flat->group, SP_AXIS_DATA, SP_STREAM_DATA, part, muon.whole, 0);
  for (guint i = 0; i < w->block->n_weights; i++)
    if (w->block->weights[i].flat == index)
      write_weight (w, flat, &w->block->weights[i], &muon);

  op = sp_write_op (w, SP_OP_DESCEND);
  op->m = 1;
  op->n = (gint32) elements;
  op->group = sharded ? flat->group : SP_GROUP_NONE;
  op->in[0] = muon.whole;
  op->out[0] = flat->master;
  op->out[1] = updated;
  op->bytes = elements * (2 + 8 + sp_dtype_bytes (w->dtype));
  sp_write_op_done (w, op);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
stays_on_gpu (const SpCase *c)
{
  return c->run->optimizer != SP_OPTIMIZER_MUON ||
         !(c->layout->offload & (SP_OFFLOAD_OPTIMIZER | SP_OFFLOAD_PARAMETERS));
}

static void
explain_offload (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "optimizer = muon multiplies matrices on the GPU, and offload = %s leaves them on the host; use "
      "offload = none or activations, or optimizer = adamw",
      c->layout->offload & SP_OFFLOAD_OPTIMIZER ? "optimizer" : "parameters");
}

static const SpRule rules[] = { { "muon-offload", stays_on_gpu, explain_offload } };

const SpStrategy sp_strategy_muon = {
  "muon",
  SP_AXIS_DATA,
  "matrices' momentum gathered, made orthogonal by Newton-Schulz on each rank that has a part",
  rules,
  G_N_ELEMENTS (rules),
  NULL,
};
