/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention with a decay: chunks of 64 tokens, segments of several, and sizes around both. Few heads are cut in
 * many segments, many in few, and the steepest slopes forget what is a few hundred tokens away. */
#include "kernels/cases/case.h"

#include <math.h>

static SpDevDtype
any (void)
{
  return sp_case_below (2) == 0 ? SP_DEV_BF16 : SP_DEV_FP32;
}

static const SpRefShape shapes[] = {
  { .m = 1, .k = 8, .n = 8, .batch = 1, .heads = 1 },       { .m = 63, .k = 64, .n = 64, .batch = 1, .heads = 2 },
  { .m = 64, .k = 64, .n = 64, .batch = 2, .heads = 2 },    { .m = 65, .k = 64, .n = 128, .batch = 1, .heads = 2 },
  { .m = 200, .k = 128, .n = 128, .batch = 1, .heads = 3 }, { .m = 129, .k = 96, .n = 96, .batch = 2, .heads = 1 },
  { .m = 130, .k = 128, .n = 256, .batch = 1, .heads = 1 }, { .m = 100, .k = 256, .n = 72, .batch = 1, .heads = 2 },
  { .m = 1024, .k = 16, .n = 16, .batch = 1, .heads = 2 },  { .m = 1025, .k = 64, .n = 32, .batch = 1, .heads = 2 },
  { .m = 2500, .k = 32, .n = 64, .batch = 2, .heads = 2 },  { .m = 1100, .k = 128, .n = 128, .batch = 1, .heads = 1 },
  { .m = 2100, .k = 16, .n = 16, .batch = 2, .heads = 8 },  { .m = 8200, .k = 8, .n = 8, .batch = 1, .heads = 4 },
  { .m = 32800, .k = 8, .n = 8, .batch = 1, .heads = 1 },   { .m = 400, .k = 96, .n = 192, .batch = 1, .heads = 1 },
  { .m = 300, .k = 256, .n = 256, .batch = 1, .heads = 1 }, { .m = 1000, .k = 128, .n = 256, .batch = 1, .heads = 3 },
  { .m = 300, .k = 8, .n = 16, .batch = 2, .heads = 80 },
};

typedef struct {
  SpRefShape ref;
  SpDevShape dev;
  gint64 keys, values, state;
  const double *slopes;
  const float *dev_slopes;
} Shape;

/* Slopes as a model has them: from a decay of half in a token to one that is hardly any; of the last case some none. */
static Shape
shape_of (SpCase *c, guint i)
{
  SpRefShape r = shapes[i];
  Shape s = {
    .ref = r,
    .dev = { .m = r.m, .n = r.n, .k = r.k, .batch = r.batch, .heads = r.heads },
    .keys = r.m * r.batch * r.heads * r.k,
    .values = r.m * r.batch * r.heads * r.n,
    .state = r.batch * r.heads * r.k * r.n,
  };
  double *slopes = sp_case_numbers (c, r.heads);
  SpDevTensor t;

  for (gint64 h = 0; h < r.heads; h++)
    slopes[h] = h == 1 && i % 3 == 0 ? 0 : pow (2, -1.0 - 3 * h - i % 4);
  s.slopes = sp_case_in_values (c, "slopes", SP_DEV_FP32, r.heads, slopes, &t);
  s.dev_slopes = t.data;
  return s;
}

static SpCase *
linear_case (SpCaseSums sums, const char *kernel, guint i, int variant)
{
  SpRefShape s = shapes[i];

  return sp_case_new (sums, kernel, "m = %d, k = %d, n = %d, batch = %d, heads = %d, variant %d", (int) s.m, (int) s.k,
                      (int) s.n, (int) s.batch, (int) s.heads, variant);
}

/* Variant 1: the output alone, 2: the state alone, 3: both. */
static void
test_local (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 1; variant < 4; variant++) {
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-local", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor q, k, v, o, state;
      const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      const double *q_in = sp_case_in_absent (&q);
      double *o_out, *state_out = NULL;
      if (variant & 1) {
        q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
        o_out = sp_case_out (c, "o", any (), s.values, &o);
      } else {
        q_in = k_in;
        sp_case_in_absent (&o);
        o_out = sp_case_numbers (c, s.values);
      }
      sp_case_in_absent (&state);
      if (variant & 2)
        state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
      void *scratch = sp_case_scratch (c, sp_dev_linear_scratch_bytes (s.dev));
      sp_ref_linear_local (s.ref, s.slopes, q_in, k_in, v_in, o_out, state_out);
      SP_CASE_RUN (c, sp_dev_linear_local (s.dev, s.dev_slopes, q, k, v, o, state.data, scratch, NULL));
    }
}

/* Variant 3: output and state, misaligned; from a state, which is written over, 5: the output alone, 6: the state alone,
 * 7: both. */
static void
test_forward (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 3; variant < 8; variant++) {
      if (variant == 4)
        continue;
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-forward", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor q, k, v, o, state;
      const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
      const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      double *o_out, *own = sp_case_numbers (c, s.state), *before = NULL, *state_out = NULL;
      const float *in = NULL;
      if (variant == 3)
        sp_case_misalign (c); /* outputs alone may be */
      if (variant & 1)
        o_out = sp_case_out (c, "o", any (), s.values, &o);
      else {
        sp_case_in_absent (&o);
        o_out = sp_case_numbers (c, s.values);
      }
      sp_case_in_absent (&state);
      sp_ref_linear_local (s.ref, s.slopes, q_in, k_in, v_in, o_out, own);
      if (variant == 5) {
        before = (double *) sp_case_in (c, "state_in", SP_DEV_FP32, s.state, 4, &state);
        in = state.data;
        state.data = NULL;
      } else if (variant & 4) {
        before = state_out = sp_case_in_out (c, "state", SP_DEV_FP32, s.state, 4, &state);
        in = state.data;
      } else
        state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
      if (before != NULL)
        sp_ref_linear_inter (s.ref, s.slopes, q_in, before, o_out);
      if (state_out != NULL)
        sp_ref_state_update (s.ref, s.slopes, before, own, state_out);
      void *scratch = sp_case_scratch (c, sp_dev_linear_scratch_bytes (s.dev));
      SP_CASE_RUN (c, sp_dev_linear_forward (s.dev, s.dev_slopes, q, k, v, in, o, state.data, scratch, NULL));
    }
}

/* Twice in a graph, the second over what the first left. */
static cudaError_t
forward_captured (const Shape *s, const SpDevTensor in[3], SpDevTensor o, float *state, void *scratch)
{
  cudaStream_t stream;
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  cudaError_t error = cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking), ended;

  if (error != cudaSuccess)
    return error;
  error = cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < 2 && error == cudaSuccess; i++)
    error = sp_dev_linear_forward (s->dev, s->dev_slopes, in[0], in[1], in[2], NULL, o, state, scratch, stream);
  ended = cudaStreamEndCapture (stream, &graph);
  error = error == cudaSuccess ? ended : error;
  if (error == cudaSuccess)
    error = cudaGraphInstantiate (&exec, graph, 0);
  if (error == cudaSuccess)
    error = cudaGraphLaunch (exec, stream);
  if (error == cudaSuccess)
    error = cudaStreamSynchronize (stream);
  if (exec != NULL)
    cudaGraphExecDestroy (exec);
  if (graph != NULL)
    cudaGraphDestroy (graph);
  cudaStreamDestroy (stream);
  return error;
}

static void
test_forward_captured (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    SpCase *c = linear_case (SP_CASE_TENSOR, "linear-forward, captured", i, 0);
    Shape s = shape_of (c, i);
    SpDevTensor in[3], o, state;
    const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &in[0]);
    const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &in[1]);
    const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &in[2]);
    double *o_out = sp_case_out (c, "o", SP_DEV_BF16, s.values, &o);
    double *state_out = sp_case_out (c, "state", SP_DEV_FP32, s.state, &state);
    void *scratch = sp_case_scratch (c, sp_dev_linear_scratch_bytes (s.dev));
    sp_ref_linear_local (s.ref, s.slopes, q_in, k_in, v_in, o_out, state_out);
    SP_CASE_RUN (c, forward_captured (&s, in, o, state.data, scratch));
  }
}

typedef struct {
  SpDevTensor q, k, v, d, dq, dk, dv;
  const double *q_in, *k_in, *v_in, *d_in;
  double *dq_out, *dk_out, *dv_out;
} Gradients;

/* Outputs of bf16 have kernels of their own; of any dtype they may be mixed. */
static Gradients
gradients (SpCase *c, const Shape *s, gboolean are_bf16)
{
  Gradients g;

  g.q_in = sp_case_in (c, "q", SP_DEV_BF16, s->keys, 1, &g.q);
  g.k_in = sp_case_in (c, "keys", SP_DEV_BF16, s->keys, 1, &g.k);
  g.v_in = sp_case_in (c, "values", SP_DEV_BF16, s->values, 1, &g.v);
  g.d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s->values, 1, &g.d);
  g.dq_out = sp_case_out (c, "dq", are_bf16 ? SP_DEV_BF16 : any (), s->keys, &g.dq);
  g.dk_out = sp_case_out (c, "dkeys", are_bf16 ? SP_DEV_BF16 : any (), s->keys, &g.dk);
  g.dv_out = sp_case_out (c, "dvalues", are_bf16 ? SP_DEV_BF16 : any (), s->values, &g.dv);
  return g;
}

/* The gradient of the state alone. */
static Gradients
no_gradients (SpCase *c, const Shape *s)
{
  Gradients g;

  g.q_in = sp_case_in (c, "q", SP_DEV_BF16, s->keys, 1, &g.q);
  g.d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s->values, 1, &g.d);
  g.k_in = sp_case_numbers (c, s->keys);
  g.v_in = sp_case_numbers (c, s->values);
  g.dq_out = sp_case_numbers (c, s->keys);
  g.dk_out = sp_case_numbers (c, s->keys);
  g.dv_out = sp_case_numbers (c, s->values);
  sp_case_in_absent (&g.k);
  sp_case_in_absent (&g.v);
  sp_case_in_absent (&g.dq);
  sp_case_in_absent (&g.dk);
  sp_case_in_absent (&g.dv);
  return g;
}

/* Variant 1: the gradients alone, 2: that of the state alone, 3: both; 5 and 7: outputs of bf16. */
static void
test_local_bwd (void)
{
  static const int variants[] = { 1, 2, 3, 5, 7 };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (guint j = 0; j < G_N_ELEMENTS (variants); j++) {
      int variant = variants[j];
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-local-bwd", i, variant);
      Shape s = shape_of (c, i);
      Gradients g = variant & 1 ? gradients (c, &s, variant & 4) : no_gradients (c, &s);
      SpDevTensor dstate;
      double *dstate_out = NULL;
      sp_case_in_absent (&dstate);
      if (variant & 2)
        dstate_out = sp_case_out (c, "dstate", SP_DEV_FP32, s.state, &dstate);
      void *scratch = sp_case_scratch (c, sp_dev_linear_bwd_scratch_bytes (s.dev));
      sp_ref_linear_local_bwd (s.ref, s.slopes, g.q_in, g.k_in, g.v_in, g.d_in, g.dq_out, g.dk_out, g.dv_out,
                               dstate_out);
      SP_CASE_RUN (c, sp_dev_linear_local_bwd (s.dev, s.dev_slopes, g.q, g.k, g.v, g.d, g.dq, g.dk, g.dv, dstate.data,
                                               scratch, NULL));
    }
}

/* Local, inter and the chain at once. Variant 1: with the state before, 2: with the gradient after, 4: outputs of bf16,
 * 8: without those. The gradient of the state before is always wanted. */
static void
test_bwd (void)
{
  static const int variants[] = { 3, 5, 6, 7, 10 };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (guint j = 0; j < G_N_ELEMENTS (variants); j++) {
      int variant = variants[j];
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-bwd", i, variant);
      Shape s = shape_of (c, i);
      Gradients g = variant & 8 ? no_gradients (c, &s) : gradients (c, &s, variant & 4);
      SpDevTensor before, after, dstate;
      const double *b =
          variant & 1 ? sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &before) : sp_case_in_absent (&before);
      const double *a =
          variant & 2 ? sp_case_in (c, "dstate", SP_DEV_FP32, s.state, 1, &after) : sp_case_in_absent (&after);
      double *dstate_out = sp_case_out (c, "dstate-in", SP_DEV_FP32, s.state, &dstate);
      void *scratch = sp_case_scratch (c, sp_dev_linear_bwd_scratch_bytes (s.dev));
      sp_ref_linear_local_bwd (s.ref, s.slopes, g.q_in, g.k_in, g.v_in, g.d_in, g.dq_out, g.dk_out, g.dv_out,
                               dstate_out);
      sp_ref_linear_inter_bwd (s.ref, s.slopes, g.k_in, g.v_in, g.d_in, b, a, g.dq_out, g.dk_out, g.dv_out);
      sp_ref_state_update (s.ref, s.slopes, a, dstate_out, dstate_out);
      SP_CASE_RUN (c, sp_dev_linear_bwd (s.dev, s.dev_slopes, g.q, g.k, g.v, g.d, before.data, after.data, g.dq, g.dk,
                                         g.dv, dstate.data, scratch, NULL));
    }
}

static void
test_inter (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    SpCase *c = linear_case (SP_CASE_TENSOR, "linear-inter", i, 0);
    Shape s = shape_of (c, i);
    SpDevTensor q, state, o;
    const double *q_in = sp_case_in (c, "q", SP_DEV_BF16, s.keys, 1, &q);
    const double *state_in = sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &state);
    if (i % 2 == 1)
      sp_case_misalign (c);
    sp_ref_linear_inter (s.ref, s.slopes, q_in, state_in, sp_case_in_out (c, "o", any (), s.values, 1, &o));
    SP_CASE_RUN (c, sp_dev_linear_inter (s.dev, s.dev_slopes, q, state.data, o, NULL));
  }
}

/* Variant 1: no gradient after, 2: no state before, 3: both there. */
static void
test_inter_bwd (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    for (int variant = 1; variant < 4; variant++) {
      SpCase *c = linear_case (SP_CASE_TENSOR, "linear-inter-bwd", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor k, v, d, before, after, dq, dk, dv;
      const double *k_in = sp_case_in (c, "keys", SP_DEV_BF16, s.keys, 1, &k);
      const double *v_in = sp_case_in (c, "values", SP_DEV_BF16, s.values, 1, &v);
      const double *d_in = sp_case_in (c, "d_o", SP_DEV_BF16, s.values, 1, &d);
      const double *b =
          variant & 1 ? sp_case_in (c, "state", SP_DEV_FP32, s.state, 1, &before) : sp_case_in_absent (&before);
      const double *a =
          variant & 2 ? sp_case_in (c, "dstate", SP_DEV_FP32, s.state, 1, &after) : sp_case_in_absent (&after);
      double *dq_out = sp_case_in_out (c, "dq", any (), s.keys, 1, &dq);
      double *dk_out = sp_case_in_out (c, "dkeys", any (), s.keys, 1, &dk);
      sp_ref_linear_inter_bwd (s.ref, s.slopes, k_in, v_in, d_in, b, a, dq_out, dk_out,
                               sp_case_in_out (c, "dvalues", any (), s.values, 1, &dv));
      SP_CASE_RUN (c,
                   sp_dev_linear_inter_bwd (s.dev, s.dev_slopes, k, v, d, before.data, after.data, dq, dk, dv, NULL));
    }
}

/* lambda^m is a power of an fp32 number of up to a thousand: the exponent's rounding counts as that many. */
static void
test_chain (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    for (int variant = 0; variant < 2; variant++) {
      SpCase *c = linear_case (SP_CASE_PLAIN, "state-update", i, variant);
      Shape s = shape_of (c, i);
      SpDevTensor in, own, out;
      const double *before = variant ? sp_case_in (c, "in", SP_DEV_FP32, s.state, 1, &in) : sp_case_in_absent (&in);
      const double *mine = sp_case_in (c, "own", SP_DEV_FP32, s.state, 1, &own);
      sp_ref_state_update (s.ref, s.slopes, before, mine, sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
      SP_CASE_RUN (c, sp_dev_state_update (s.dev, s.dev_slopes, in.data, own.data, out.data, NULL));
    }
    for (gint64 place = 0; place < 4; place++)
      for (int reverse = 0; reverse < 2; reverse++) {
        SpCase *c = linear_case (SP_CASE_PLAIN, reverse ? "state-prefix, reverse" : "state-prefix", i, (int) place);
        Shape s = shape_of (c, i);
        SpDevTensor states, out;
        const double *all = sp_case_in (c, "states", SP_DEV_FP32, 4 * s.state, 1, &states);
        sp_ref_state_prefix (s.ref, s.slopes, 4, place, reverse, all,
                             sp_case_out (c, "out", SP_DEV_FP32, s.state, &out));
        SP_CASE_RUN (c, sp_dev_state_prefix (s.dev, s.dev_slopes, 4, place, reverse, states.data, out.data, NULL));
      }
  }
}

void
sp_add_linear_cases (void)
{
  sp_case_add ("linear-local", test_local);
  sp_case_add ("linear-forward", test_forward);
  sp_case_add ("linear-forward-captured", test_forward_captured);
  sp_case_add ("linear-local-bwd", test_local_bwd);
  sp_case_add ("linear-bwd", test_bwd);
  sp_case_add ("linear-inter", test_inter);
  sp_case_add ("linear-inter-bwd", test_inter_bwd);
  sp_case_add ("linear-chain", test_chain);
}
