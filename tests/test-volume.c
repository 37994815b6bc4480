/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layer-volume.h"

/* What ranks of a sequence, of a tensor split and of a pipeline send each other: activations, states and their gradients. */

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

static guint
count_kind (const SpProgram *program, const SpBlock *block, SpPhase phase, SpOpKind kind, SpDtype dtype)
{
  guint n, found = 0;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++)
    found += ops[i].kind == kind && ops[i].axis == SP_AXIS_TENSOR && block->buffers[ops[i].in[0]].dtype == dtype;
  return found;
}

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

/* Of the tensor axis what is no block's: a layout that does not scatter has that much less. */
static void
check_gathered (const Subject *s, double bytes)
{
  Draw draw = s->draw;
  SpEstimator estimator = s->estimator;
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimate e;

  draw.layout.pipeline_scatter = FALSE;
  sp_estimate_layout (&estimator, program, &draw.layout, &draw.run, &e);
  expect (&draw, "gathered in a step, mean", s->estimate.axes[SP_AXIS_TENSOR].payload_bytes.mean,
          e.axes[SP_AXIS_TENSOR].payload_bytes.mean + bytes);
}

/* B (N / S) H, over T with regions or where they are scattered, a boundary, micro-batch and direction. Scattered, what
 * came is gathered over the tensor ranks, once a message. A boundary between each two virtual stages,
 * each of whose two ends sends one way: without chunks the ends of the pipeline send half of what the others do. */
static void
test_pipeline (void)
{
  static const DrawLimits limits = {
    DRAW_ANY, FALSE, { 1, 2 }, { 1, 3 }, { 2, 6 }, { 1, 3 }, { 1, 3 }, { 1, 4 }, TRUE
  };
  GRand *rand = draw_rand_new ();
  guint n_scattered = 0;

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    double sum = 0, gathered = 0, p, parts;
    subject_init (&s, rand, &limits);
    for (gint32 v = 0; v < s.program->n_variants; v++) {
      Terms t = terms_of (&s.draw, s.program->variants[v].batch);
      double whole = t.B * (t.N / t.S) * t.H, size = sp_dtype_bytes (s.draw.run.precision);
      const SpOp *gather = sp_program_pipe_gather (s.program, &s.program->variants[v]);
      gboolean scattered = sp_layout_scatters (&s.draw.layout, &s.draw.framework) && fmod (t.H, t.T) == 0;
      double rows = s.draw.layout.sequence_regions || scattered ? whole / t.T : whole;
      g_assert_true ((gather != NULL) == scattered);
      n_scattered += scattered;
      if (scattered)
        expect (&s.draw, "gathered", gather->bytes / size, whole);
      double runs = s.program->n_variants == 1 ? s.program->micro_batches : v == 0 ? s.program->micro_batches - 1 : 1;
      expect (&s.draw, "sent to the next stage", s.program->variants[v].pipe_send.bytes / size, rows);
      expect (&s.draw, "received", s.program->variants[v].pipe_receive.bytes / size, rows);
      sum += runs * rows * size;
      gathered += scattered ? runs * whole * size : 0;
    }
    p = s.program->stages;
    parts = sp_program_virtual_stages (s.program);
    /* A tied matrix is summed over the two ends besides, once: V / T rows of H. */
    double V = ceil ((double) s.draw.arch->vocabulary / s.draw.layout.tensor);
    double tie = s.draw.arch->tied ? V * s.draw.arch->hidden * sp_dtype_bytes (s.draw.layout.gradient_dtype) : 0;
    expect (&s.draw, "bytes of a step, mean", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.mean,
            (2 * (parts - 1) * sum + 2 * tie + 2 * mirror_bytes (s.program)) / p);
    check_gathered (&s, 2 * (parts - 1) * gathered / p);
    if (p > 2 && tie == 0 && s.program->chunks == 1) {
      expect (&s.draw, "at an end", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.min, sum);
      expect (&s.draw, "in the middle", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.max, 2 * sum);
    }
    subject_clear (&s);
  }
  g_assert_cmpuint (n_scattered, >, 0);
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
  g_test_add_func ("/volume/pipeline", test_pipeline);
  return g_test_run ();
}
