/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as a graph of cuDNN's operations, which its fused kernels know by their order and the tensors between.
 *
 * Forward: scores = q keys^T, times the scale, masked; max and sum by row, p = exp (scores - max) / sum; o = p values;
 * lse = max + log (sum). Backward: delta = sum (d_o o); p = exp (masked (scores scale - lse)); dvalues = p^T d_o;
 * ds = p (d_o values^T - delta) scale; dkeys = ds^T q; dq = ds keys. Where heads share keys, gradients of keys are
 * made of each head and summed.
 *
 * All tensors have dimensions batch, heads, rows, features.
 */
#include "calibrate/cudnn-private.h"

#include <stdbool.h>

#define FLOAT CUDNN_DATA_FLOAT
#define HALF CUDNN_DATA_BFLOAT16
#define WHOLE CUDNN_DATA_INT32
#define TRUTH CUDNN_DATA_BOOLEAN

typedef cudnnBackendDescriptor_t Tensor;

typedef struct {
  gint64 size[4], stride[4];
} Form;

/* --- descriptors -------------------------------------------------------------------------------------------------- */

#define SET(descriptor, name, type, value)                                                                             \
  sp_cudnn_set (g, descriptor, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, &(value))
#define SET_DESCRIPTOR(descriptor, name, value) SET (descriptor, name, BACKEND_DESCRIPTOR, value)

static Tensor
tensor (SpCudnnGraph *g, cudnnDataType_t type, Form form, gint64 number, gboolean is_between, gboolean is_value)
{
  Tensor t = sp_cudnn_make (g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  gint64 alignment = 16;
  bool virtual = is_between, by_value = is_value;

  SET (t, TENSOR_DATA_TYPE, DATA_TYPE, type);
  sp_cudnn_set (g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, form.size);
  sp_cudnn_set (g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, form.stride);
  SET (t, TENSOR_UNIQUE_ID, INT64, number);
  SET (t, TENSOR_BYTE_ALIGNMENT, INT64, alignment);
  SET (t, TENSOR_IS_VIRTUAL, BOOLEAN, virtual);
  SET (t, TENSOR_IS_BY_VALUE, BOOLEAN, by_value);
  sp_cudnn_finalize (g, t);
  return t;
}

static Tensor
in_memory (SpCudnnGraph *g, cudnnDataType_t type, Form form, SpCudnnTensor number)
{
  return tensor (g, type, form, number, FALSE, FALSE);
}

static Tensor
between (SpCudnnGraph *g, cudnnDataType_t type, Form form)
{
  return tensor (g, type, form, g->next++, TRUE, FALSE);
}

static Tensor
value (SpCudnnGraph *g, cudnnDataType_t type, SpCudnnTensor number)
{
  return tensor (g, type, (Form){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, number, FALSE, TRUE);
}

/* As they lie in memory: [rows,batch,heads,features]. */
static Form
rows_first (gint64 batch, gint64 heads, gint64 rows, gint64 features)
{
  return (Form){ { batch, heads, rows, features }, { heads * features, features, batch * heads * features, 1 } };
}

static Form
packed (gint64 batch, gint64 heads, gint64 rows, gint64 features)
{
  return (Form){ { batch, heads, rows, features }, { heads * rows * features, rows * features, features, 1 } };
}

static Form
transposed (Form form)
{
  return (Form){ { form.size[0], form.size[1], form.size[3], form.size[2] },
                 { form.stride[0], form.stride[1], form.stride[3], form.stride[2] } };
}

static void
add (SpCudnnGraph *g, cudnnBackendDescriptor_t op)
{
  sp_cudnn_finalize (g, op);
  g_ptr_array_add (g->ops, op);
}

static void
matmul (SpCudnnGraph *g, Tensor a, Tensor b, Tensor c)
{
  cudnnBackendDescriptor_t how = sp_cudnn_make (g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  cudnnBackendDescriptor_t op = sp_cudnn_make (g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  cudnnDataType_t sums = FLOAT;

  SET (how, MATMUL_COMP_TYPE, DATA_TYPE, sums);
  sp_cudnn_finalize (g, how);
  SET_DESCRIPTOR (op, OPERATION_MATMUL_ADESC, a);
  SET_DESCRIPTOR (op, OPERATION_MATMUL_BDESC, b);
  SET_DESCRIPTOR (op, OPERATION_MATMUL_CDESC, c);
  SET_DESCRIPTOR (op, OPERATION_MATMUL_DESC, how);
  add (g, op);
}

static void
pointwise_of (SpCudnnGraph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type, gint64 axis, Tensor x, Tensor b,
              Tensor choice, Tensor y)
{
  cudnnBackendDescriptor_t how = sp_cudnn_make (g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  cudnnBackendDescriptor_t op = sp_cudnn_make (g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

  SET (how, POINTWISE_MODE, POINTWISE_MODE, mode);
  SET (how, POINTWISE_MATH_PREC, DATA_TYPE, type);
  if (axis >= 0)
    SET (how, POINTWISE_AXIS, INT64, axis);
  sp_cudnn_finalize (g, how);
  SET_DESCRIPTOR (op, OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  SET_DESCRIPTOR (op, OPERATION_POINTWISE_XDESC, x);
  if (b != NULL)
    SET_DESCRIPTOR (op, OPERATION_POINTWISE_BDESC, b);
  if (choice != NULL)
    SET_DESCRIPTOR (op, OPERATION_POINTWISE_TDESC, choice);
  SET_DESCRIPTOR (op, OPERATION_POINTWISE_YDESC, y);
  add (g, op);
}

static void
pointwise (SpCudnnGraph *g, cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y)
{
  pointwise_of (g, mode, FLOAT, -1, x, b, NULL, y);
}

static void
reduce (SpCudnnGraph *g, cudnnReduceTensorOp_t by, Tensor x, Tensor y)
{
  cudnnBackendDescriptor_t how = sp_cudnn_make (g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  cudnnBackendDescriptor_t op = sp_cudnn_make (g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  cudnnDataType_t sums = FLOAT;

  SET (how, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, by);
  SET (how, REDUCTION_COMP_TYPE, DATA_TYPE, sums);
  sp_cudnn_finalize (g, how);
  SET_DESCRIPTOR (op, OPERATION_REDUCTION_DESC, how);
  SET_DESCRIPTOR (op, OPERATION_REDUCTION_XDESC, x);
  SET_DESCRIPTOR (op, OPERATION_REDUCTION_YDESC, y);
  add (g, op);
}

static void
reshape (SpCudnnGraph *g, Tensor x, Tensor y)
{
  cudnnBackendDescriptor_t op = sp_cudnn_make (g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

  SET_DESCRIPTOR (op, OPERATION_RESHAPE_XDESC, x);
  SET_DESCRIPTOR (op, OPERATION_RESHAPE_YDESC, y);
  add (g, op);
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* Forms of what the graphs are of. */
typedef struct {
  Form q, keys, values, o, scores, rows;
  gint64 m, n; /* that are seen */
} Forms;

static Forms
forms_of (const SpCudnnShape *s)
{
  gint64 m = s->m - s->hidden, n = s->seen;

  return (Forms){ .q = rows_first (s->batch, s->heads, m, s->k),
                  .keys = rows_first (s->batch, s->kv_heads, n, s->k),
                  .values = rows_first (s->batch, s->kv_heads, n, s->v),
                  .o = rows_first (s->batch, s->heads, m, s->v),
                  .scores = packed (s->batch, s->heads, m, n),
                  .rows = packed (s->batch, s->heads, m, 1),
                  .m = m,
                  .n = n };
}

/* Scores where row >= column, -inf elsewhere; aligned at the end, row + keys - rows >= column. */
static Tensor
mask (SpCudnnGraph *g, const SpCudnnShape *s, const Forms *f, Tensor scores)
{
  if (!(s->flags & SP_CUDNN_CAUSAL))
    return scores;
  Tensor row = between (g, WHOLE, f->scores), column = between (g, WHOLE, f->scores);
  Tensor is_seen = between (g, TRUTH, f->scores), masked = between (g, FLOAT, f->scores);

  pointwise_of (g, CUDNN_POINTWISE_GEN_INDEX, FLOAT, 2, scores, NULL, NULL, row);
  pointwise_of (g, CUDNN_POINTWISE_GEN_INDEX, FLOAT, 3, scores, NULL, NULL, column);
  if (s->flags & SP_CUDNN_LAST) {
    Tensor more = between (g, WHOLE, f->scores), moved = between (g, WHOLE, f->scores);
    pointwise_of (g, CUDNN_POINTWISE_ADD, WHOLE, 3, row, value (g, WHOLE, SP_CUDNN_COLUMNS), NULL, more);
    pointwise_of (g, CUDNN_POINTWISE_SUB, WHOLE, 3, more, value (g, WHOLE, SP_CUDNN_ROWS), NULL, moved);
    row = moved;
  }
  pointwise_of (g, CUDNN_POINTWISE_CMP_GE, TRUTH, -1, row, column, NULL, is_seen);
  pointwise_of (g, CUDNN_POINTWISE_BINARY_SELECT, FLOAT, -1, scores, value (g, FLOAT, SP_CUDNN_HIDDEN), is_seen,
                masked);
  return masked;
}

static Tensor
scaled_scores (SpCudnnGraph *g, const Forms *f, Tensor q, Tensor keys, Tensor scale)
{
  Tensor scores = between (g, FLOAT, f->scores), scaled = between (g, FLOAT, f->scores);

  matmul (g, q, keys, scores);
  pointwise (g, CUDNN_POINTWISE_MUL, scores, scale, scaled);
  return scaled;
}

static void
write_forward (SpCudnnGraph *g, const SpCudnnShape *s)
{
  Forms f = forms_of (s);
  Tensor q = in_memory (g, HALF, f.q, SP_CUDNN_Q), keys = in_memory (g, HALF, transposed (f.keys), SP_CUDNN_KEYS);
  Tensor values = in_memory (g, HALF, f.values, SP_CUDNN_VALUES), o = in_memory (g, HALF, f.o, SP_CUDNN_O);
  Tensor lse = in_memory (g, FLOAT, f.rows, SP_CUDNN_LSE);
  Tensor most = between (g, FLOAT, f.rows), less = between (g, FLOAT, f.scores), exp = between (g, FLOAT, f.scores);
  Tensor sum = between (g, FLOAT, f.rows), log = between (g, FLOAT, f.rows), p = between (g, HALF, f.scores);

  Tensor scores = mask (g, s, &f, scaled_scores (g, &f, q, keys, value (g, FLOAT, SP_CUDNN_SCALE)));
  reduce (g, CUDNN_REDUCE_TENSOR_MAX, scores, most);
  pointwise (g, CUDNN_POINTWISE_SUB, scores, most, less);
  pointwise (g, CUDNN_POINTWISE_EXP, less, NULL, exp);
  reduce (g, CUDNN_REDUCE_TENSOR_ADD, exp, sum);
  pointwise (g, CUDNN_POINTWISE_LOG, sum, NULL, log);
  pointwise (g, CUDNN_POINTWISE_ADD, most, log, lse);
  pointwise (g, CUDNN_POINTWISE_DIV, exp, sum, p);
  matmul (g, p, values, o);
}

static Tensor
write_delta (SpCudnnGraph *g, const Forms *f, Tensor d_o)
{
  Tensor o = in_memory (g, HALF, f->o, SP_CUDNN_O), delta = in_memory (g, FLOAT, f->rows, SP_CUDNN_DELTA);
  Tensor product = between (g, FLOAT, packed (f->o.size[0], f->o.size[1], f->o.size[2], f->o.size[3]));
  Tensor sum = between (g, FLOAT, f->rows);

  pointwise (g, CUDNN_POINTWISE_MUL, d_o, o, product);
  reduce (g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
  pointwise (g, CUDNN_POINTWISE_MUL, sum, value (g, FLOAT, SP_CUDNN_ONE), delta);
  return delta;
}

/* out = x^T rows, of keys that heads may share. */
static void
write_key_gradient (SpCudnnGraph *g, const SpCudnnShape *s, const Forms *f, Tensor x, Tensor rows, gint64 features,
                    Tensor out)
{
  Tensor turned = between (g, HALF, transposed (f->scores));

  reshape (g, x, turned);
  if (s->heads == s->kv_heads) {
    matmul (g, turned, rows, out);
    return;
  }
  Tensor of_heads = between (g, HALF, packed (s->batch, s->heads, f->n, features));
  matmul (g, turned, rows, of_heads);
  reduce (g, CUDNN_REDUCE_TENSOR_ADD, of_heads, out);
}

static void
write_backward (SpCudnnGraph *g, const SpCudnnShape *s)
{
  Forms f = forms_of (s);
  Tensor q = in_memory (g, HALF, f.q, SP_CUDNN_Q), keys = in_memory (g, HALF, transposed (f.keys), SP_CUDNN_KEYS);
  Tensor values = in_memory (g, HALF, transposed (f.values), SP_CUDNN_VALUES);
  Tensor d_o = in_memory (g, HALF, f.o, SP_CUDNN_DO), lse = in_memory (g, FLOAT, f.rows, SP_CUDNN_LSE);
  Tensor dq = in_memory (g, HALF, f.q, SP_CUDNN_DQ), dkeys = in_memory (g, HALF, f.keys, SP_CUDNN_DKEYS);
  Tensor dvalues = in_memory (g, HALF, f.values, SP_CUDNN_DVALUES);
  Tensor dq_sum = in_memory (g, FLOAT, packed (s->batch, s->heads, f.m, s->k), SP_CUDNN_DQ_SUM);
  Tensor scale = value (g, FLOAT, SP_CUDNN_SCALE), less = between (g, FLOAT, f.scores);
  Tensor p = between (g, FLOAT, f.scores), dp = between (g, FLOAT, f.scores), off = between (g, FLOAT, f.scores);
  Tensor product = between (g, FLOAT, f.scores), ds = between (g, HALF, f.scores), by_row = between (g, HALF, f.keys);

  Tensor delta = write_delta (g, &f, d_o);
  pointwise (g, CUDNN_POINTWISE_SUB, scaled_scores (g, &f, q, keys, scale), lse, less);
  pointwise (g, CUDNN_POINTWISE_EXP, mask (g, s, &f, less), NULL, p);
  write_key_gradient (g, s, &f, p, d_o, s->v, dvalues);
  matmul (g, d_o, values, dp);
  pointwise (g, CUDNN_POINTWISE_SUB, dp, delta, off);
  pointwise (g, CUDNN_POINTWISE_MUL, off, p, product);
  pointwise (g, CUDNN_POINTWISE_MUL, product, scale, ds);
  write_key_gradient (g, s, &f, ds, q, s->k, dkeys);
  reshape (g, keys, by_row);
  matmul (g, ds, by_row, dq_sum);
  pointwise (g, CUDNN_POINTWISE_IDENTITY, dq_sum, NULL, dq);
}

void
sp_cudnn_write_graph (SpCudnnGraph *graph, const SpCudnnShape *shape)
{
  if (shape->flags & SP_CUDNN_BACKWARD)
    write_backward (graph, shape);
  else
    write_forward (graph, shape);
}
