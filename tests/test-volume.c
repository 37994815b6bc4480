/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"
#include "tests/count-volume.h"
#include "tests/random-layouts.h"

#include <math.h>

/*
 * What one layer sends, counted from the program's lists, against the formulas of the literature, for random legal
 * shapes. The letters, as in the formulas:
 *   B sequences of the micro-batch, N tokens of a sequence, H hidden, A and A_kv heads after the tensor split, D head
 *   size, S sequence ranks, U ulysses, R ring, T tensor, P the degree of the row.
 * Everything is in elements: payload is the buffer as nccl-tests counts it, wire what one GPU puts on links.
 */

#define DRAWS 200

/* A cluster only for the sizes of groups. */
static SpDevice device = { .peak_bf16_flops_per_s = { 1e15 }, .memory_bytes_per_s = { 1e12 }, .sms = { 100 } };
static SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1 << 20 };

/* --- counting ----------------------------------------------------------------------------------------------------- */

static guint
count_kind (const SpProgram *program, const SpBlock *block, SpPhase phase, SpOpKind kind, SpDtype dtype)
{
  guint n, found = 0;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++)
    found += ops[i].kind == kind && ops[i].axis == SP_AXIS_TENSOR && block->buffers[ops[i].in[0]].dtype == dtype;
  return found;
}

static const SpBlock *
find_block (const SpProgram *program, guint variant, SpBlockKind kind)
{
  for (guint b = 0; b < program->n_blocks; b++)
    if (program->variants[variant].blocks[b].kind == kind)
      return &program->variants[variant].blocks[b];
  return NULL;
}

/* --- terms -------------------------------------------------------------------------------------------------------- */

typedef struct {
  double B, N, H, A, A_kv, D, S, U, R, T;
} Terms;

static Terms
terms_of (const Draw *d, double batch)
{
  const SpLayout *l = &d->layout;

  return (Terms){ .B = batch,
                  .N = (double) d->run.sequence,
                  .H = d->arch->hidden,
                  .A = (double) d->arch->heads / l->tensor,
                  .A_kv = (double) d->arch->kv_heads / l->tensor,
                  .D = d->arch->head_size,
                  .S = sp_layout_sequence_ranks (l, d->arch),
                  .U = l->ulysses,
                  .R = l->ring,
                  .T = l->tensor };
}

/* Sequences that a replica runs in a step, padding of the last micro-batch counted. */
static double
sequences_of (const SpProgram *program)
{
  double sum = 0;

  for (gint32 i = 0; i < program->micro_batches; i++)
    sum += program->variants[program->n_variants == 2 && i == program->micro_batches - 1].batch;
  return sum;
}

static void
expect (const Draw *d, const char *what, double got, double wanted)
{
  if (got == wanted || fabs (got - wanted) <= 1e-12 * fabs (wanted))
    return;
  draw_describe (d);
  g_test_message ("%s: %.17g, not %.17g", what, got, wanted);
  g_test_fail ();
}

/* A drawn layout, its program, and a rank of it. */
typedef struct {
  Draw draw;
  SpProgram *program;
  SpEstimator estimator;
  SpEstimate estimate;
  gint32 rank;
} Subject;

static void
subject_init (Subject *s, GRand *rand, const DrawLimits *limits)
{
  draw_legal (rand, limits, &s->draw);
  s->program = sp_program_new ();
  sp_estimator_init (&s->estimator, s->draw.arch, &cluster, &s->draw.framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&s->estimator, s->program, &s->draw.layout, &s->draw.run, &s->estimate);
  s->rank = draw_int (rand, 0, s->program->world - 1);
}

static void
subject_clear (Subject *s)
{
  draw_clear (&s->draw);
  sp_program_free (s->program);
}

static Count
count (const Subject *s, const SpBlock *block, SpPhase phase, SpAxis axis, SpDtype dtype)
{
  return count_on (s->program, &s->estimator.cost, block, phase, axis, dtype, s->rank, FALSE);
}

/* A row: checks one block of one variant, and returns a layer's bytes of forward and backward, mean over GPUs. */
typedef double (*CheckBlock) (const Subject *s, const SpBlock *block, const Terms *t);

/* Checks the block kinds that are there at every batch size; then that the estimate's mean over GPUs and a step is
 * the sum over layers and micro-batches. */
static void
check_row (const char *name, const DrawLimits *limits, SpAxis axis, const CheckBlock check[SP_N_BLOCK_KINDS])
{
  GRand *rand = draw_rand_new ();
  guint steps = 0;

  for (guint i = 0; i < DRAWS; i++) {
    Subject s;
    double all = 0;
    subject_init (&s, rand, limits);
    for (gint32 v = 0; v < s.program->n_variants; v++)
      for (guint kind = SP_BLOCK_SOFTMAX; kind <= SP_BLOCK_LINEAR; kind++) {
        const SpBlock *block = find_block (s.program, v, kind);
        if (block == NULL || check[kind] == NULL)
          continue;
        Terms t = terms_of (&s.draw, s.program->variants[v].batch);
        double bytes = check[kind](&s, block, &t);
        SpLayerKind layer = kind == SP_BLOCK_LINEAR ? SP_LAYER_LINEAR : SP_LAYER_SOFTMAX;
        if (v == 0)
          all += sp_architecture_count (s.draw.arch, layer) * bytes / t.B;
      }
    /* A recomputed layer exchanges again; that is not a row of the table. */
    if (axis != SP_N_AXES && s.draw.layout.recompute == SP_RECOMPUTE_NONE) {
      expect (&s.draw, "bytes of a step, mean over GPUs", s.estimate.axes[axis].payload_bytes.mean,
              all * sequences_of (s.program) / s.program->stages);
      steps++;
    }
    subject_clear (&s);
    if (g_test_failed ())
      break;
  }
  g_test_message ("%s: %d layouts, %u whole steps", name, DRAWS, steps);
  g_rand_free (rand);
}

/* --- LASP --------------------------------------------------------------------------------------------------------- */

/* Heads of a rank in the core are A / (Ulysses of linear layers). */
static double
state_of (const Subject *s, const Terms *t)
{
  return t->B * t->A / (t->S / s->draw.layout.lasp) * t->D * t->D;
}

/* Every rank but the last sends its state of B A D D on, in fp32; the gradient's way is the same reversed. So 2 (P -
 * 1) of these a layer over the P ranks: mean 2 (P - 1) / P. N is in none of it. */
static double
check_lasp (const Subject *s, const SpBlock *block, const Terms *t)
{
  double state = state_of (s, t);
  gint32 P = s->draw.layout.lasp, place = sp_program_place (s->program, SP_GROUP_LASP, s->rank);
  gint32 version = s->draw.layout.lasp_version;
  const SpCost *cost = &s->estimator.cost;

  if (P == 1 || version == 2)
    return 0;
  for (guint backward = 0; backward < 2; backward++) {
    SpPhase phase = backward ? SP_PHASE_BACKWARD : SP_PHASE_FORWARD;
    double sends = backward ? place > 0 : place < P - 1, receives = backward ? place < P - 1 : place > 0;
    Count sent = count (s, block, phase, SP_AXIS_LASP, SP_N_DTYPES);
    Count received = count_on (s->program, cost, block, phase, SP_AXIS_LASP, SP_N_DTYPES, s->rank, TRUE);
    expect (&s->draw, "states sent", sent.payload, sends * state);
    expect (&s->draw, "wire of states sent", sent.wire, sends * state);
    expect (&s->draw, "fp32 states", sent.bytes, 4 * sends * state);
    expect (&s->draw, "messages", sent.messages, sends);
    expect (&s->draw, "states received", received.payload, receives * state);
  }
  return 4 * state * 2 * (P - 1) / P;
}

static void
test_lasp (void)
{
  static const DrawLimits limits = {
    DRAW_LINEAR | DRAW_HYBRID, FALSE, { 1, 2 }, { 1, 3 }, { 1, 2 }, { 1, 4 }, { 1, 4 }, { 2, 9 }
  };
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &limits);
    Terms t = terms_of (&s.draw, s.program->variants[0].batch);
    s.draw.layout.lasp_version = 1;
    sp_program_write (s.program, s.draw.arch, &s.draw.framework, &s.draw.layout, &s.draw.run);
    const SpBlock *block = find_block (s.program, 0, SP_BLOCK_LINEAR);
    for (s.rank = 0; s.rank < s.program->world; s.rank++)
      check_lasp (&s, block, &t);

    /* 64 times the tokens: the same messages. */
    s.draw.run.sequence *= 64;
    sp_program_write (s.program, s.draw.arch, &s.draw.framework, &s.draw.layout, &s.draw.run);
    s.rank = 0;
    check_lasp (&s, block, &t);
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* An all-gather of P states each way: payload P states, wire P - 1, and so much memory. */
static double
check_lasp2 (const Subject *s, const SpBlock *block, const Terms *t)
{
  double state = state_of (s, t), P = s->draw.layout.lasp;

  if (P == 1 || s->draw.layout.lasp_version == 1)
    return check_lasp (s, block, t);
  for (guint phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++) {
    if (phase == SP_PHASE_RECOMPUTE)
      continue;
    guint n;
    const SpOp *ops = sp_program_segment (s->program, block, phase, &n);
    Count c = count (s, block, phase, SP_AXIS_LASP, SP_N_DTYPES);
    expect (&s->draw, "gathered states", c.payload, P * state);
    expect (&s->draw, "wire of gathered states", c.wire, (P - 1) * state);
    expect (&s->draw, "fp32 gathered states", c.bytes, 4 * P * state);
    expect (&s->draw, "gathers", c.messages, 1);
    for (guint i = 0; i < n; i++)
      if (ops[i].kind == SP_OP_ALL_GATHER && ops[i].axis == SP_AXIS_LASP)
        expect (&s->draw, "memory of gathered states", (double) block->buffers[ops[i].out[0]].elements, P * state);
  }
  return 4 * state * 2 * P;
}

/* Both versions, over all of a step. */
static void
test_lasp2 (void)
{
  static const DrawLimits limits = {
    DRAW_LINEAR | DRAW_HYBRID, FALSE, { 1, 2 }, { 1, 3 }, { 1, 3 }, { 1, 4 }, { 1, 4 }, { 1, 9 }
  };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_LINEAR] = check_lasp2 };

  check_row ("lasp 1 and 2", &limits, SP_AXIS_LASP, check);
}

/* --- ring, Ulysses, USP ------------------------------------------------------------------------------------------- */

/* K and V of a rank are B (N / R) heads D each, with heads = max (A_kv, U) / U after the exchange. R - 1 hops
 * forward; in the backward R - 1 again, and R for dK and dV, so that they end at home. Of a double ring the gradients
 * make R hops inside and one more a round. With queries going around, of A / U heads: R - 1 hops of Q, dO and the two
 * rows lse and delta, in fp32, and those of dQ. */
static double
check_ring_hops (const Subject *s, const SpBlock *block, const Terms *t)
{
  const SpLayout *l = &s->draw.layout;
  double kv = t->B * (t->N / t->R) * (MAX (t->A_kv, t->U) / t->U) * t->D;
  double rows = t->B * (t->N / t->R) * t->A / t->U, q = rows * t->D;
  double home = t->R + (l->ring_kind == SP_RING_DOUBLE ? t->R / l->ring_inner : 0);
  double activation = sp_dtype_bytes (s->draw.run.precision),
         gradient = sp_dtype_bytes (s->draw.layout.ring_gradient_dtype);
  Count f = count (s, block, SP_PHASE_FORWARD, SP_AXIS_RING, SP_N_DTYPES);
  Count b = count (s, block, SP_PHASE_BACKWARD, SP_AXIS_RING, SP_N_DTYPES);

  expect (&s->draw, "ring forward", f.payload, (t->R - 1) * 2 * kv);
  expect (&s->draw, "ring forward wire", f.wire, f.payload);
  expect (&s->draw, "ring forward bytes", f.bytes, activation * (t->R - 1) * 2 * kv);
  expect (&s->draw, "ring hops forward", f.messages, t->R - 1);
  expect (&s->draw, "ring backward wire", b.wire, b.payload);
  if (l->ring_backward == SP_RING_BACKWARD_Q) {
    expect (&s->draw, "ring backward", b.payload, (t->R - 1) * 2 * (q + rows) + home * q);
    expect (&s->draw, "ring backward bytes", b.bytes,
            (t->R - 1) * 2 * (activation * q + 4 * rows) + gradient * home * q);
    expect (&s->draw, "ring hops backward", b.messages, 2 * (t->R - 1) + home);
  } else {
    expect (&s->draw, "ring backward", b.payload, (t->R - 1) * 2 * kv + home * 2 * kv);
    expect (&s->draw, "ring backward bytes", b.bytes, activation * (t->R - 1) * 2 * kv + gradient * home * 2 * kv);
    expect (&s->draw, "ring hops backward", b.messages, t->R - 1 + home);
  }
  return f.bytes + b.bytes;
}

/* Gathered over the ring: K and V of all places, B N heads D each. In the backward again unless kept, and the gradients
 * of all keys are scattered. The wire lacks the own part. */
static double
check_ring_gather (const Subject *s, const SpBlock *block, const Terms *t)
{
  double all = 2 * t->B * (t->N / t->R) * t->R * (MAX (t->A_kv, t->U) / t->U) * t->D, part = (t->R - 1) / t->R;
  double activation = sp_dtype_bytes (s->draw.run.precision),
         gradient = sp_dtype_bytes (s->draw.layout.ring_gradient_dtype);
  double gathers = s->draw.layout.ring_keep ? 0 : 1;
  Count f = count (s, block, SP_PHASE_FORWARD, SP_AXIS_RING, SP_N_DTYPES);
  Count b = count (s, block, SP_PHASE_BACKWARD, SP_AXIS_RING, SP_N_DTYPES);

  expect (&s->draw, "gathered forward", f.payload, all);
  expect (&s->draw, "gathered forward wire", f.wire, all * part);
  expect (&s->draw, "gathered forward bytes", f.bytes, activation * all);
  expect (&s->draw, "gathers forward", f.messages, 2);
  expect (&s->draw, "gathered and scattered", b.payload, (gathers + 1) * all);
  expect (&s->draw, "gathered and scattered wire", b.wire, (gathers + 1) * all * part);
  expect (&s->draw, "gathered and scattered bytes", b.bytes, (gathers * activation + gradient) * all);
  expect (&s->draw, "collectives backward", b.messages, 2 * (gathers + 1));
  return f.bytes + b.bytes;
}

/* Ring Self-Attention, with x = B (N / P) heads D: R - 1 hops of K, then of V, forward; backward the same again and two
 * all-reduces of the gradients of all keys, each R x as payload and 2 (R - 1) x on the wire: together 6 (R - 1) x. */
static double
check_rsa (const Subject *s, const SpBlock *block, const Terms *t)
{
  double x = t->B * (t->N / t->R) * (MAX (t->A_kv, t->U) / t->U) * t->D;
  double activation = sp_dtype_bytes (s->draw.run.precision),
         gradient = sp_dtype_bytes (s->draw.layout.ring_gradient_dtype);
  Count f = count (s, block, SP_PHASE_FORWARD, SP_AXIS_RING, SP_N_DTYPES);
  Count b = count (s, block, SP_PHASE_BACKWARD, SP_AXIS_RING, SP_N_DTYPES);

  expect (&s->draw, "rsa forward", f.payload, 2 * (t->R - 1) * x);
  expect (&s->draw, "rsa forward wire", f.wire, f.payload);
  expect (&s->draw, "rsa forward bytes", f.bytes, activation * f.payload);
  expect (&s->draw, "rsa hops forward", f.messages, 2 * (t->R - 1));
  expect (&s->draw, "rsa backward", b.payload, 2 * (t->R - 1) * x + 2 * t->R * x);
  expect (&s->draw, "rsa backward wire", b.wire, 6 * (t->R - 1) * x);
  expect (&s->draw, "rsa backward bytes", b.bytes, activation * 2 * (t->R - 1) * x + gradient * 2 * t->R * x);
  expect (&s->draw, "rsa hops and sums backward", b.messages, 2 * (t->R - 1) + 2);
  return f.bytes + b.bytes;
}

static double
check_ring (const Subject *s, const SpBlock *block, const Terms *t)
{
  static const CheckBlock check[SP_N_RING_KINDS] = { [SP_RING_P2P] = check_ring_hops,
                                                     [SP_RING_ALL_GATHER] = check_ring_gather,
                                                     [SP_RING_RSA] = check_rsa,
                                                     [SP_RING_DOUBLE] = check_ring_hops };

  return t->R == 1 ? 0 : check[s->draw.layout.ring_kind](s, block, t);
}

static void
test_ring (void)
{
  static const DrawLimits limits = { DRAW_SOFTMAX, TRUE, { 1, 2 }, { 1, 3 }, { 1, 2 }, { 1, 1 }, { 2, 9 }, { 1, 1 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ring };

  check_row ("ring", &limits, SP_AXIS_RING, check);
}

/* Exchanges of Q and O: B (N / S) A D each; of K and V: B (N / S) max (A_kv, U) D, because a head that is rarer than
 * the ranks goes to several. The gradients come back the same way. The wire lacks the part that a rank keeps. */
static double
check_exchange (const Subject *s, const SpBlock *block, const Terms *t, double U, double A_kv)
{
  double all = t->B * (t->N / t->S) * t->D * (2 * t->A + 2 * MAX (A_kv, U));

  if (U == 1)
    return 0;
  for (guint phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++) {
    if (phase == SP_PHASE_RECOMPUTE)
      continue;
    Count c = count (s, block, phase, SP_AXIS_ULYSSES, SP_N_DTYPES);
    expect (&s->draw, "exchanged", c.payload, all);
    expect (&s->draw, "exchanged wire", c.wire, all * (U - 1) / U);
    expect (&s->draw, "exchanges", c.messages, 4);
  }
  return 2 * all * sp_dtype_bytes (s->draw.run.precision);
}

static double
check_ulysses_softmax (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_exchange (s, block, t, t->U, t->A_kv);
}

/* Linear layers have A heads of each, and in a hybrid an exchange group of their own: S / lasp. */
static double
check_ulysses_linear (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_exchange (s, block, t, t->S / s->draw.layout.lasp, t->A);
}

static void
test_ulysses (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 2 }, { 1, 3 }, { 1, 2 }, { 2, 12 }, { 1, 1 }, { 1, 4 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = {
    [SP_BLOCK_SOFTMAX] = check_ulysses_softmax, [SP_BLOCK_LINEAR] = check_ulysses_linear
  };

  check_row ("ulysses", &limits, SP_AXIS_ULYSSES, check);
}

static const DrawLimits usp_limits = {
  DRAW_SOFTMAX | DRAW_HYBRID, TRUE, { 1, 2 }, { 1, 3 }, { 1, 2 }, { 2, 8 }, { 2, 6 }, { 1, 12 }
};

/* USP: B (N / (U R)) D (2 A + 2 max (A_kv, U)) exchanged, then (R - 1) 2 B (N / R) (max (A_kv, U) / U) D around the
 * ring. */
static void
test_usp_exchange (void)
{
  static const CheckBlock check[SP_N_BLOCK_KINDS] = {
    [SP_BLOCK_SOFTMAX] = check_ulysses_softmax, [SP_BLOCK_LINEAR] = check_ulysses_linear
  };

  check_row ("usp, exchange", &usp_limits, SP_AXIS_ULYSSES, check);
}

static void
test_usp_ring (void)
{
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ring };

  check_row ("usp, ring", &usp_limits, SP_AXIS_RING, check);
}

/* --- tensor ------------------------------------------------------------------------------------------------------- */

/* A collective's rows are B N / S of H. Without regions: all-reduces after attention and MLP, and of their inputs'
 * gradients: 2 and 2, wire 2 (T - 1) / T of it. With regions: gathers before and scatters after, 2 + 2; backward the
 * conjugates 2 + 2, and the 2 inputs gathered again for the weight gradients: 4 + 2. */
static void
check_tensor_rows (const Subject *s, const SpBlock *block, const Terms *t)
{
  double rows = t->B * t->N / t->S * t->H, part = (t->T - 1) / t->T;
  gboolean regions = s->draw.layout.sequence_regions;
  SpDtype dtype = s->draw.run.precision;
  Count f = count (s, block, SP_PHASE_FORWARD, SP_AXIS_TENSOR, dtype),
        b = count (s, block, SP_PHASE_BACKWARD, SP_AXIS_TENSOR, dtype);

  expect (&s->draw, "tensor forward", f.payload, (regions ? 4 : 2) * rows);
  expect (&s->draw, "tensor forward wire", f.wire, 4 * rows * part);
  expect (&s->draw, "tensor backward", b.payload, (regions ? 6 : 2) * rows);
  expect (&s->draw, "tensor backward wire", b.wire, (regions ? 6 : 4) * rows * part);
  const struct {
    SpOpKind kind;
    guint forward, backward;
  } kinds[] = {
    { SP_OP_ALL_REDUCE, regions ? 0 : 2, regions ? 0 : 2 },
    { SP_OP_ALL_GATHER, regions ? 2 : 0, regions ? 4 : 0 },
    { SP_OP_REDUCE_SCATTER, regions ? 2 : 0, regions ? 2 : 0 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    expect (&s->draw, sp_op_name (kinds[i].kind),
            count_kind (s->program, block, SP_PHASE_FORWARD, kinds[i].kind, dtype), kinds[i].forward);
    expect (&s->draw, sp_op_name (kinds[i].kind),
            count_kind (s->program, block, SP_PHASE_BACKWARD, kinds[i].kind, dtype), kinds[i].backward);
  }
}

/* What is small, listed apart. With regions a rank sees a part of the rows, so gradients of what is added or
 * multiplied there (gains and biases of 2 norms, biases of projection and down) are partial, H of each, in the
 * gradient's dtype. */
static void
check_tensor_gains (const Subject *s, const SpBlock *block, const Terms *t)
{
  const SpArchitecture *a = s->draw.arch;
  double norms = a->norm == SP_NORM_LAYER ? 4 : a->norm == SP_NORM_RMS ? 2 : 0;
  double partial = s->draw.layout.sequence_regions ? (norms + a->projection_bias + a->mlp_bias) * t->H : 0;
  Count c = count (s, block, SP_PHASE_SYNC, SP_AXIS_TENSOR, SP_N_DTYPES);

  expect (&s->draw, "partial gains and biases", c.payload, partial);
  expect (&s->draw, "their bytes", c.bytes, partial * sp_dtype_bytes (s->draw.layout.gradient_dtype));
}

static double
check_tensor_softmax (const Subject *s, const SpBlock *block, const Terms *t)
{
  check_tensor_rows (s, block, t);
  check_tensor_gains (s, block, t);
  for (guint phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++)
    expect (&s->draw, "fp32 sums", count (s, block, phase, SP_AXIS_TENSOR, SP_DTYPE_FP32).payload, 0);
  return 0;
}

/* A linear layer's output norm is over the whole row of A T D features: one fp32 sum a row each way. */
static double
check_tensor_linear (const Subject *s, const SpBlock *block, const Terms *t)
{
  check_tensor_rows (s, block, t);
  check_tensor_gains (s, block, t);
  expect (&s->draw, "fp32 sums forward", count (s, block, SP_PHASE_FORWARD, SP_AXIS_TENSOR, SP_DTYPE_FP32).payload,
          t->B * t->N / t->S);
  expect (&s->draw, "fp32 sums backward", count (s, block, SP_PHASE_BACKWARD, SP_AXIS_TENSOR, SP_DTYPE_FP32).payload,
          t->B * t->N / t->S);
  return 0;
}

static void
test_tensor (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 2 }, { 2, 8 }, { 1, 2 }, { 1, 3 }, { 1, 3 }, { 1, 3 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = {
    [SP_BLOCK_SOFTMAX] = check_tensor_softmax, [SP_BLOCK_LINEAR] = check_tensor_linear
  };

  check_row ("tensor", &limits, SP_N_AXES, check);
}

/* --- ZeRO --------------------------------------------------------------------------------------------------------- */

/* Parameters of a tensor rank's layer. Split: q, k, v (of linear layers also u), their bias, projection, MLP, its
 * first bias. Whole: norms, the second biases. */
static double
layer_parameters (const SpArchitecture *a, const Terms *t, gboolean linear)
{
  double in = (linear ? 4 * t->A : t->A + 2 * t->A_kv) * t->D, ffn = a->ffn / t->T, up = a->mlp == SP_MLP_GELU ? 1 : 2;
  double norms = a->norm == SP_NORM_LAYER ? 4 : a->norm == SP_NORM_RMS ? 2 : 0;
  double split = in * t->H + t->H * t->A * t->D + (up + 1) * ffn * t->H;

  if (a->qkv_bias && !linear)
    split += in;
  if (a->mlp_bias)
    split += up * ffn;
  return split + (norms + a->projection_bias + a->mlp_bias) * t->H;
}

/* Payload of ops over a group. */
static double
over_group (const SpProgram *program, const SpBlock *block, SpPhase phase, SpGroupId group)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  double sum = 0;

  for (guint i = 0; i < n; i++)
    if (sp_op_is_communication (ops[i].kind) && ops[i].group == group)
      sum += (double) ops[i].bytes;
  return sum;
}

/* A step's payload for m micro-batches over G = data x sequence ranks, with the layer's Psi padded to a multiple of
 * G: stage 0 an all-reduce of gradients; 1 a scatter of gradients and a gather of parameters; 2 a scatter each
 * micro-batch; 3 a scatter each micro-batch and gathers for forward and backward, for the forward alone without
 * resharding. Of a hybrid shard G are the ranks that share a copy, and each step Psi / G of gradients are all-reduced over
 * the others. */
static double
check_zero (const Subject *s, const SpBlock *block, const Terms *t, gboolean linear)
{
  const SpLayout *l = &s->draw.layout;
  double all = l->data * t->S, G = l->zero_group > 0 ? l->zero_group : all;
  double m = s->program->micro_batches, Psi = layer_parameters (s->draw.arch, t, linear);
  double gathers = l->zero == 0 ? 0 : l->zero < 3 ? 1 : l->reshard ? 2 * m : m, reductions = l->zero < 2 ? 1 : m;
  double part = (G - 1) / G;
  guint n;

  if (G == 1)
    return 0;
  if (l->zero > 0)
    Psi = ceil (Psi / G) * G;
  Count gather = count (s, block, SP_PHASE_GATHER, SP_AXIS_DATA, SP_N_DTYPES),
        sync = count (s, block, SP_PHASE_SYNC, SP_AXIS_DATA, SP_N_DTYPES),
        optimizer = count (s, block, SP_PHASE_OPTIMIZER, SP_AXIS_DATA, SP_N_DTYPES);
  double copies = over_group (s->program, block, SP_PHASE_SYNC, SP_GROUP_REPLICA);
  expect (&s->draw, "gradients' shards over the copies", copies / sp_dtype_bytes (l->gradient_dtype),
          G < all ? Psi / G : 0);
  sync.payload -= copies / sp_dtype_bytes (l->gradient_dtype);
  sync.wire -= 2 * (1 - G / all) * copies / sp_dtype_bytes (l->gradient_dtype);
  sync.bytes -= copies;
  const SpOp *ops = sp_program_segment (s->program, block, SP_PHASE_SYNC, &n);
  gboolean each = FALSE;
  for (guint i = 0; i < n; i++)
    each |= ops[i].axis == SP_AXIS_DATA && ops[i].flags & SP_OP_PER_MICRO_BATCH;
  double gather_times = m * (1 + block->regather), sync_times = each ? m : 1;
  expect (&s->draw, "gathered parameters", gather_times * gather.payload + optimizer.payload, gathers * Psi);
  expect (&s->draw, "gathered parameters, wire", gather_times * gather.wire + optimizer.wire, gathers * Psi * part);
  expect (&s->draw, "reduced gradients", sync_times * sync.payload, reductions * Psi);
  expect (&s->draw, "reduced gradients, wire", sync_times * sync.wire,
          (l->zero == 0 ? 2 : 1) * reductions * Psi * part);
  expect (&s->draw, "all of it", gather_times * gather.payload + optimizer.payload + sync_times * sync.payload,
          Psi * (l->zero == 0   ? 1
                 : l->zero == 1 ? 2
                 : l->zero == 2 ? m + 1
                 : l->reshard   ? 3 * m
                                : 2 * m));
  expect (&s->draw, "gradients' bytes", sync.bytes, sync.payload * sp_dtype_bytes (l->gradient_dtype));
  return 0;
}

static double
check_zero_softmax (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_zero (s, block, t, FALSE);
}

static double
check_zero_linear (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_zero (s, block, t, TRUE);
}

static void
test_zero (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 6 }, { 1, 3 }, { 1, 2 }, { 1, 3 }, { 1, 3 }, { 1, 4 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = {
    [SP_BLOCK_SOFTMAX] = check_zero_softmax, [SP_BLOCK_LINEAR] = check_zero_linear
  };

  for (guint i = 0; i < 4; i++)
    check_row ("zero", &limits, SP_N_AXES, check);
}

/* The same of all of a step and model on one stage: embedding (with positions, as many as tokens at least) and head
 * count as layers. A tied matrix is gathered for the head too, so it is left out. */
static void
test_zero_step (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 2, 6 }, { 1, 3 }, { 1, 1 }, { 1, 3 }, { 1, 3 }, { 1, 4 } };
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &limits);
    const SpArchitecture *a = s.draw.arch;
    const SpLayout *l = &s.draw.layout;
    Terms t = terms_of (&s.draw, 1);
    double all = l->data * t.S, G = l->zero_group > 0 ? l->zero_group : all;
    double m = s.program->micro_batches, V = ceil (a->vocabulary / t.T);
    double positions = a->positions ? MAX (a->positions, t.N) : 0;
    double norm = a->norm == SP_NORM_LAYER ? 2 : a->norm == SP_NORM_RMS ? 1 : 0;
    double sizes[] = { (V + positions) * t.H, (V + norm) * t.H, layer_parameters (a, &t, FALSE),
                       layer_parameters (a, &t, TRUE) };
    double counts[] = { 1, 1, sp_architecture_count (a, SP_LAYER_SOFTMAX), sp_architecture_count (a, SP_LAYER_LINEAR) };
    double Psi = 0;
    for (guint j = 0; j < G_N_ELEMENTS (sizes); j++)
      Psi += counts[j] * (l->zero ? ceil (sizes[j] / G) * G : sizes[j]);
    double gathers = l->zero == 0 ? 0 : l->zero < 3 ? 1 : l->reshard ? 2 * m : m, reductions = l->zero < 2 ? 1 : m;
    if (G < all)
      reductions += 1 / G;
    if (!a->tied)
      expect (&s.draw, "bytes of a step", s.estimate.axes[SP_AXIS_DATA].payload_bytes.mean,
              Psi *
                  (gathers * sp_dtype_bytes (s.draw.run.precision) + reductions * sp_dtype_bytes (l->gradient_dtype)));
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

static const DrawLimits expert_limits = { DRAW_ANY, FALSE, { 1, 6 }, { 1, 3 }, { 1, 2 }, { 1, 4 }, { 1, 4 }, { 1, 4 },
                                          .experts = TRUE };

/* Elements of each token's way there, and back: k H a token, in buffers of whole rows for each of E experts. With a
 * capacity f they have f times the mean, at most a row a token; else what the busiest rank has over it, of which the
 * mean rank sends 1 / imbalance. */
static double
expert_elements (const Draw *d, const Terms *t)
{
  double tokens = t->B * t->N / t->S, f = d->layout.expert_capacity, E = d->arch->moe.experts;
  double over = f > 0 ? f : MAX (d->run.expert_imbalance, 1);
  double rows = MIN (tokens, ceil (tokens * d->arch->moe.experts_per_token * over / E - 1e-9));

  return E * rows * t->H / (f > 0 ? 1 : over);
}

/* Two all-to-alls forward, two backward, over P = expert ranks: wire (P - 1) / P of it. A layer more where it is
 * recomputed in full; then the estimate's bytes of a step. */
static void
test_experts (void)
{
  GRand *rand = draw_rand_new ();
  guint found = 0;

  for (guint i = 0; i < 4 * DRAWS && !g_test_failed (); i++) {
    Subject s;
    double step = 0;
    subject_init (&s, rand, &expert_limits);
    const SpLayout *l = &s.draw.layout;
    double P = l->expert, size = sp_dtype_bytes (s.draw.run.precision);
    for (gint32 v = 0; v < s.program->n_variants; v++)
      for (guint b = 1; b + 1 < s.program->n_blocks; b++) {
        const SpBlock *block = &s.program->variants[v].blocks[b];
        Terms t = terms_of (&s.draw, s.program->variants[v].batch);
        double elements = block->traits & SP_LAYER_EXPERTS && P > 1 ? expert_elements (&s.draw, &t) : 0;
        double over = l->expert_capacity > 0 ? 1 : MAX (s.draw.run.expert_imbalance, 1), again;
        Count f = count (&s, block, SP_PHASE_FORWARD, SP_AXIS_EXPERT, SP_N_DTYPES),
              b2 = count (&s, block, SP_PHASE_BACKWARD, SP_AXIS_EXPERT, SP_N_DTYPES),
              r = count (&s, block, SP_PHASE_RECOMPUTE, SP_AXIS_EXPERT, SP_N_DTYPES);
        expect (&s.draw, "experts, forward", f.payload / over, 2 * elements);
        expect (&s.draw, "experts, forward wire", f.wire / over, 2 * elements * (P - 1) / P);
        expect (&s.draw, "experts, backward", b2.payload / over, 2 * elements);
        again = l->recompute == SP_RECOMPUTE_FULL && block->recomputes ? 2 * elements : 0;
        expect (&s.draw, "experts, recomputed", r.payload / over, again);
        double runs = s.program->n_variants == 1 ? s.program->micro_batches : v == 0 ? s.program->micro_batches - 1 : 1;
        for (guint layer = 0; layer < s.program->n_layers; layer++)
          step += s.program->layer_block[layer] == b ? runs * (4 * elements + again) * size : 0;
        found += elements > 0;
      }
    expect (&s.draw, "experts, bytes of a step", s.estimate.axes[SP_AXIS_EXPERT].payload_bytes.mean,
            step / s.program->stages);
    subject_clear (&s);
  }
  g_test_message ("%u layers", found);
  g_assert_cmpuint (found, >, DRAWS / 10);
  g_rand_free (rand);
}

/* ZeRO's row, experts apart: theirs are sharded over the G / P ranks that hold the same, the rest of the layer over all
 * G. A rank's experts: E / P of up and down, width over T. The rest: the layer without an MLP, router, shared ones. */
static void
test_zero_experts (void)
{
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < 2 * DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &expert_limits);
    const SpArchitecture *a = s.draw.arch;
    const SpLayout *l = &s.draw.layout;
    Terms t = terms_of (&s.draw, 1);
    double up = sp_mlp_is_gated (a->mlp) ? 2 : 1, m = s.program->micro_batches, G = l->data * t.S, P = l->expert;
    double ffn = a->ffn / t.T, dense = (up + 1) * ffn * t.H + (a->mlp_bias ? up * ffn + t.H : 0);
    for (guint b = 1; b + 1 < s.program->n_blocks; b++) {
      const SpBlock *block = &s.program->variants[0].blocks[b];
      if (!(block->traits & SP_LAYER_EXPERTS))
        continue;
      const double Psi[] = { layer_parameters (a, &t, block->kind == SP_BLOCK_LINEAR) - dense + a->moe.experts * t.H +
                                 (up + 1) * a->moe.shared_ffn / t.T * t.H + (a->moe.shared_gate ? t.H : 0),
                             a->moe.experts / P * (up + 1) * a->moe.ffn / t.T * t.H };
      for (guint f = 0; f < 2; f++) {
        SpGroupId group = f == 0 ? SP_GROUP_ZERO : SP_GROUP_EXPERT_DATA;
        double ranks = f == 0 ? G : G / P, part = l->zero > 0 ? ceil (Psi[f] / ranks) * ranks : Psi[f];
        gint32 zero = ranks > 1 ? l->zero : 0;
        double gathers = zero == 0 ? 0 : zero < 3 ? 1 : l->reshard ? 2 * m : m;
        double reductions = ranks == 1 ? 0 : zero < 2 ? 1 : m;
        double got = over_group (s.program, block, SP_PHASE_GATHER, group) * m * (1 + block->regather) +
                     over_group (s.program, block, SP_PHASE_OPTIMIZER, group);
        g_assert_cmpint (block->flats[f].group, ==, group);
        expect (&s.draw, "gathered, experts apart", got / sp_dtype_bytes (s.draw.run.precision), gathers * part);
        got = over_group (s.program, block, SP_PHASE_SYNC, group) * (zero >= 2 ? m : 1);
        expect (&s.draw, "reduced, experts apart", got / sp_dtype_bytes (l->gradient_dtype), reductions * part);
      }
    }
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* --- pipeline ----------------------------------------------------------------------------------------------------- */

/* Gradients that mirrored stages sum, of all blocks: whole, or shards of them. */
static double
mirror_bytes (const SpProgram *program)
{
  double sum = 0;

  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    guint8 slot = program->zero_stage >= 2 ? block->flats[0].shard_gradients : block->flats[0].gradients;
    double count = b == 0 || b + 1 == program->n_blocks;
    for (guint l = 0; l < program->n_layers; l++)
      count += program->layer_block[l] == b;
    sum += count * (double) block->buffers[slot].bytes;
  }
  return program->groups[SP_GROUP_MIRROR].size > 1 ? sum : 0;
}

/* B (N / S) H, over T with regions, a boundary, micro-batch and direction. A boundary between each two virtual stages,
 * each of whose two ends sends one way: without chunks the ends of the pipeline send half of what the others do. */
static void
test_pipeline (void)
{
  static const DrawLimits limits = {
    DRAW_ANY, FALSE, { 1, 2 }, { 1, 3 }, { 2, 6 }, { 1, 3 }, { 1, 3 }, { 1, 4 }, TRUE
  };
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    double sum = 0, p, parts;
    subject_init (&s, rand, &limits);
    for (gint32 v = 0; v < s.program->n_variants; v++) {
      Terms t = terms_of (&s.draw, s.program->variants[v].batch);
      double rows = t.B * (t.N / t.S) * t.H / (s.draw.layout.sequence_regions ? t.T : 1);
      double size = sp_dtype_bytes (s.draw.run.precision);
      double runs = s.program->n_variants == 1 ? s.program->micro_batches : v == 0 ? s.program->micro_batches - 1 : 1;
      expect (&s.draw, "sent to the next stage", s.program->variants[v].pipe_send.bytes / size, rows);
      expect (&s.draw, "received", s.program->variants[v].pipe_receive.bytes / size, rows);
      sum += runs * rows * size;
    }
    p = s.program->stages;
    parts = sp_program_virtual_stages (s.program);
    /* A tied matrix is summed over the two ends besides, once: V / T rows of H. */
    double V = ceil ((double) s.draw.arch->vocabulary / s.draw.layout.tensor);
    double tie = s.draw.arch->tied ? V * s.draw.arch->hidden * sp_dtype_bytes (s.draw.layout.gradient_dtype) : 0;
    expect (&s.draw, "bytes of a step, mean", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.mean,
            (2 * (parts - 1) * sum + 2 * tie + 2 * mirror_bytes (s.program)) / p);
    if (p > 2 && tie == 0 && s.program->chunks == 1) {
      expect (&s.draw, "at an end", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.min, sum);
      expect (&s.draw, "in the middle", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.max, 2 * sum);
    }
    subject_clear (&s);
  }
  g_rand_free (rand);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/volume/lasp", test_lasp);
  g_test_add_func ("/volume/lasp-2", test_lasp2);
  g_test_add_func ("/volume/ring", test_ring);
  g_test_add_func ("/volume/ulysses", test_ulysses);
  g_test_add_func ("/volume/usp-exchange", test_usp_exchange);
  g_test_add_func ("/volume/usp-ring", test_usp_ring);
  g_test_add_func ("/volume/tensor", test_tensor);
  g_test_add_func ("/volume/zero", test_zero);
  g_test_add_func ("/volume/zero-step", test_zero_step);
  g_test_add_func ("/volume/experts", test_experts);
  g_test_add_func ("/volume/zero-experts", test_zero_experts);
  g_test_add_func ("/volume/pipeline", test_pipeline);
  return g_test_run ();
}
