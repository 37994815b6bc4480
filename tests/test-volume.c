/* SPDX-License-Identifier: Apache-2.0 */
#include "models/scenario.h"
#include "models/writer.h"
#include "tests/random-layouts.h"

#include <math.h>

/*
 * What one layer sends, counted from the program's lists, against the formulas of the literature, for random legal shapes.
 * The letters, as in the formulas:
 *   B sequences of the micro-batch, N tokens of a sequence, H hidden, A and A_kv heads after the tensor split, D head size,
 *   S sequence ranks, U ulysses, R ring, T tensor, P the degree of the row.
 * Everything is in elements: payload is the buffer as nccl-tests counts it, wire what one GPU puts on links.
 */

#define DRAWS 200

/* --- counting --------------------------------------------------------------------------------------------------------- */

typedef struct {
  double payload, wire; /* elements */
  double bytes;         /* of payload */
  double messages;
} Count;

/* A cluster only for the sizes of groups. */
static SpDevice device = { .peak_bf16_flops_per_s = { 1e15 }, .memory_bytes_per_s = { 1e12 }, .sms = { 100 } };
static SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1 << 20 };

static gboolean
runs_on (const SpProgram *program, const SpOp *op, gint32 rank)
{
  gint32 place = sp_program_place (program, op->group, rank), size = program->groups[op->group].size;

  return !(op->guard & SP_GUARD_NOT_FIRST && place == 0) && !(op->guard & SP_GUARD_NOT_LAST && place == size - 1);
}

static double
steps_of (const SpBlock *block, const SpOp *op)
{
  if (op->loop == 0)
    return 1;
  double steps = block->loops[op->loop - 1].steps;
  return op->guard & SP_GUARD_FIRST_STEP                                    ? 1
         : op->guard & (SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP) ? steps - 1
                                                                          : steps;
}

/* What `rank` sends in a list under `axis`, in buffers of `dtype` (SP_N_DTYPES: of any). `receives`: what it receives by
 * messages instead. */
static Count
count_on (const SpProgram *program, const SpCost *cost, const SpBlock *block, SpPhase phase, SpAxis axis, SpDtype dtype,
          gint32 rank, gboolean receives)
{
  Count count = { 0 };
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    const SpOp *op = &ops[i];
    if (!sp_op_is_communication (op->kind) || op->axis != axis || (op->kind == SP_OP_RECEIVE) != receives ||
        !runs_on (program, op, rank))
      continue;
    SpDtype own = block->buffers[op->in[0] ? op->in[0] : op->out[0]].dtype;
    if (dtype != SP_N_DTYPES && dtype != own)
      continue;
    double times = steps_of (block, op), size = sp_dtype_bytes (own);
    count.bytes += times * op->bytes;
    count.payload += times * op->bytes / size;
    count.wire += times * sp_cost_wire_bytes (cost, op) / size;
    count.messages += times;
  }
  return count;
}

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

/* --- terms ------------------------------------------------------------------------------------------------------------ */

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

/* Checks the block kinds that are there at every batch size; then that the estimate's mean over GPUs and a step is the sum
 * over layers and micro-batches. */
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

/* --- LASP ------------------------------------------------------------------------------------------------------------- */

/* Heads of a rank in the core are A / (Ulysses of linear layers). */
static double
state_of (const Subject *s, const Terms *t)
{
  return t->B * t->A / (t->S / s->draw.layout.lasp) * t->D * t->D;
}

/* Every rank but the last sends its state of B A D D on, in fp32; the gradient's way is the same reversed. So 2 (P - 1) of
 * these a layer over the P ranks: mean 2 (P - 1) / P. N is in none of it. */
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
  static const DrawLimits limits = { .kinds = DRAW_LINEAR | DRAW_HYBRID,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 1, 2 },
                                     .ulysses = { 1, 4 },
                                     .ring = { 1, 4 },
                                     .lasp = { 2, 9 } };
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
  static const DrawLimits limits = { .kinds = DRAW_LINEAR | DRAW_HYBRID,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 1, 3 },
                                     .ulysses = { 1, 4 },
                                     .ring = { 1, 4 },
                                     .lasp = { 1, 9 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_LINEAR] = check_lasp2 };

  check_row ("lasp 1 and 2", &limits, SP_AXIS_LASP, check);
}

/* --- ring, Ulysses, USP ------------------------------------------------------------------------------------------------ */

/* K and V of a rank are B (N / R) heads D each, with heads = max (A_kv, U) / U after the exchange. R - 1 hops forward; in the
 * backward R - 1 again, and R for dK and dV, so that they end at home. */
static double
check_ring (const Subject *s, const SpBlock *block, const Terms *t)
{
  double kv = t->B * (t->N / t->R) * (MAX (t->A_kv, t->U) / t->U) * t->D;
  double activation = sp_dtype_bytes (s->draw.run.precision),
         gradient = sp_dtype_bytes (s->draw.layout.ring_gradient_dtype);
  Count f = count (s, block, SP_PHASE_FORWARD, SP_AXIS_RING, SP_N_DTYPES);
  Count b = count (s, block, SP_PHASE_BACKWARD, SP_AXIS_RING, SP_N_DTYPES);

  if (t->R == 1)
    return 0;
  expect (&s->draw, "ring forward", f.payload, (t->R - 1) * 2 * kv);
  expect (&s->draw, "ring forward wire", f.wire, f.payload);
  expect (&s->draw, "ring forward bytes", f.bytes, activation * (t->R - 1) * 2 * kv);
  expect (&s->draw, "ring hops forward", f.messages, t->R - 1);
  expect (&s->draw, "ring backward", b.payload, (t->R - 1) * 2 * kv + t->R * 2 * kv);
  expect (&s->draw, "ring backward wire", b.wire, b.payload);
  expect (&s->draw, "ring backward bytes", b.bytes, activation * (t->R - 1) * 2 * kv + gradient * t->R * 2 * kv);
  expect (&s->draw, "ring hops backward", b.messages, 2 * t->R - 1);
  return f.bytes + b.bytes;
}

static void
test_ring (void)
{
  static const DrawLimits limits = { .kinds = DRAW_SOFTMAX,
                                     .fused = TRUE,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 1, 2 },
                                     .ring = { 2, 9 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ring };

  check_row ("ring", &limits, SP_AXIS_RING, check);
}

/* Exchanges of Q and O: B (N / S) A D each; of K and V: B (N / S) max (A_kv, U) D, because a head that is rarer than the
 * ranks goes to several. The gradients come back the same way. The wire lacks the part that a rank keeps. */
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
  static const DrawLimits limits = { .kinds = DRAW_ANY,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 1, 2 },
                                     .ulysses = { 2, 12 },
                                     .lasp = { 1, 4 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ulysses_softmax,
                                                      [SP_BLOCK_LINEAR] = check_ulysses_linear };

  check_row ("ulysses", &limits, SP_AXIS_ULYSSES, check);
}

static const DrawLimits usp_limits = { .kinds = DRAW_SOFTMAX | DRAW_HYBRID,
                                       .fused = TRUE,
                                       .data = { 1, 2 },
                                       .tensor = { 1, 3 },
                                       .pipeline = { 1, 2 },
                                       .ulysses = { 2, 8 },
                                       .ring = { 2, 6 },
                                       .lasp = { 1, 12 } };

/* USP: B (N / (U R)) D (2 A + 2 max (A_kv, U)) exchanged, then (R - 1) 2 B (N / R) (max (A_kv, U) / U) D around the ring. */
static void
test_usp_exchange (void)
{
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ulysses_softmax,
                                                      [SP_BLOCK_LINEAR] = check_ulysses_linear };

  check_row ("usp, exchange", &usp_limits, SP_AXIS_ULYSSES, check);
}

static void
test_usp_ring (void)
{
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_ring };

  check_row ("usp, ring", &usp_limits, SP_AXIS_RING, check);
}

/* --- tensor ------------------------------------------------------------------------------------------------------------ */

/* A collective's rows are B N / S of H. Without regions: all-reduces after attention and MLP, and of their inputs' gradients:
 * 2 and 2, wire 2 (T - 1) / T of it. With regions: gathers before and scatters after, 2 + 2; backward the conjugates 2 + 2, and
 * the 2 inputs gathered again for the weight gradients: 4 + 2. */
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

/* What is small, listed apart. With regions a rank sees a part of the rows, so gradients of what is added or multiplied
 * there (gains and biases of 2 norms, biases of projection and down) are partial, H of each, in the gradient's dtype. */
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
  static const DrawLimits limits = { .kinds = DRAW_ANY,
                                     .data = { 1, 2 },
                                     .tensor = { 2, 8 },
                                     .pipeline = { 1, 2 },
                                     .ulysses = { 1, 3 },
                                     .ring = { 1, 3 },
                                     .lasp = { 1, 3 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_tensor_softmax,
                                                      [SP_BLOCK_LINEAR] = check_tensor_linear };

  check_row ("tensor", &limits, SP_N_AXES, check);
}

/* --- ZeRO -------------------------------------------------------------------------------------------------------------- */

/* Parameters of a tensor rank's layer. Split: q, k, v (of linear layers also u), their bias, projection, MLP, its first bias.
 * Whole: norms, the second biases. */
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

/* A step's payload for m micro-batches over G = data x sequence ranks, with the layer's Psi padded to a multiple of G: stage 0
 * an all-reduce of gradients; 1 a scatter of gradients and a gather of parameters; 2 a scatter each micro-batch; 3 a scatter
 * each micro-batch and gathers for forward and backward, for the forward alone without resharding. */
static double
check_zero (const Subject *s, const SpBlock *block, const Terms *t, gboolean linear)
{
  const SpLayout *l = &s->draw.layout;
  double G = l->data * t->S, m = s->program->micro_batches, Psi = layer_parameters (s->draw.arch, t, linear);
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
  static const DrawLimits limits = { .kinds = DRAW_ANY,
                                     .data = { 1, 6 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 1, 2 },
                                     .ulysses = { 1, 3 },
                                     .ring = { 1, 3 },
                                     .lasp = { 1, 4 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = { [SP_BLOCK_SOFTMAX] = check_zero_softmax,
                                                      [SP_BLOCK_LINEAR] = check_zero_linear };

  for (guint i = 0; i < 4; i++)
    check_row ("zero", &limits, SP_N_AXES, check);
}

/* --- pipeline ---------------------------------------------------------------------------------------------------------- */

/* B (N / S) H, over T with regions, a boundary, micro-batch and direction. p - 1 boundaries, each of whose two ends sends one
 * way: the ends of the pipeline send half of what the others do. */
static void
test_pipeline (void)
{
  static const DrawLimits limits = { .kinds = DRAW_ANY,
                                     .data = { 1, 2 },
                                     .tensor = { 1, 3 },
                                     .pipeline = { 2, 6 },
                                     .ulysses = { 1, 3 },
                                     .ring = { 1, 3 },
                                     .lasp = { 1, 4 } };
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    double sum = 0, p;
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
    /* A tied matrix is summed over the two ends besides, once: V / T rows of H. */
    double V = ceil ((double) s.draw.arch->vocabulary / s.draw.layout.tensor);
    double tie = s.draw.arch->tied ? V * s.draw.arch->hidden * sp_dtype_bytes (s.draw.layout.gradient_dtype) : 0;
    expect (&s.draw, "bytes of a step, mean", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.mean,
            (2 * (p - 1) * sum + 2 * tie) / p);
    if (p > 2 && tie == 0) {
      expect (&s.draw, "at an end", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.min, sum);
      expect (&s.draw, "in the middle", s.estimate.axes[SP_AXIS_PIPELINE].payload_bytes.max, 2 * sum);
    }
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* --- named models ------------------------------------------------------------------------------------------------------- */

/* One sequence of TNL-1B (16 layers, H = 2048, 16 heads of 128) over P ranks, 64K to 4096K tokens: a state is
 * 16 x 128 x 128 x 4 bytes = 1 MiB. The first and last rank send 16 of them a step, the others 32, whatever the length;
 * mean 32 (P - 1) / P. */
static void
test_lasp_lengths (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_model ("tnl-1b", &error);
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, &error);
  g_assert_no_error (error);
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  g_autoptr (SpProgram) program = sp_program_new ();
  const double MiB = 1 << 20;

  for (gint64 K = 64; K <= 4096; K *= 2)
    for (gint32 P = 8; P <= 128; P *= 2) {
      SpLayout layout = SP_LAYOUT_DEFAULT;
      SpRun run = { K * 1024, 1, 1, SP_DTYPE_BF16, TRUE };
      SpEstimator estimator;
      SpEstimate estimate;
      layout.lasp = P;
      layout.lasp_version = 1;
      g_assert_true (sp_layout_check (&layout, arch, &framework, &run, P, &error));
      sp_estimator_init (&estimator, arch, &cluster, &framework, SP_MFU_SEQPAR);
      sp_estimate_layout (&estimator, program, &layout, &run, &estimate);
      SpSpread bytes = estimate.axes[SP_AXIS_LASP].payload_bytes;
      g_assert_cmpfloat (bytes.min, ==, 16 * MiB);
      g_assert_cmpfloat (bytes.max, ==, 32 * MiB);
      g_assert_true (fabs (bytes.mean - 32 * MiB * (P - 1) / P) <= 1e-9 * bytes.mean);
      g_assert_cmpfloat (estimate.axes[SP_AXIS_LASP].wire_bytes.max, ==, bytes.max);
      g_assert_cmpfloat (estimate.axes[SP_AXIS_LASP].messages, ==, 32);
    }
}

/* One layer of a model with A D = H, alone on its axis: payload elements of forward and backward. */
typedef struct {
  gint32 heads, kv_heads, head_size;
  SpLayerKind kind;
  gint64 tokens;
  gint32 batch;
  SpLayout layout;
  SpAxis axis;
} Single;

static void
single (const Single *c, Count *forward, Count *backward)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpRun run = { c->tokens, c->batch, c->batch, SP_DTYPE_BF16, TRUE };
  SpCost cost;

  arch->layers = 1;
  arch->heads = c->heads;
  arch->kv_heads = c->kv_heads;
  arch->head_size = c->head_size;
  arch->hidden = c->heads * c->head_size;
  arch->ffn = 4 * arch->hidden;
  arch->vocabulary = 64;
  arch->layer_kind[0] = c->kind;
  g_assert_true (sp_layout_check (&c->layout, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, &framework, &c->layout, &run);
  sp_cost_init (&cost, &cluster, &framework);
  sp_cost_set_paths (&cost, &cluster, program);
  const SpBlock *block = &program->variants[0].blocks[1];
  /* Rank 1: neither end of a chain of three or more. */
  *forward = count_on (program, &cost, block, SP_PHASE_FORWARD, c->axis, SP_N_DTYPES, 1, FALSE);
  *backward = count_on (program, &cost, block, SP_PHASE_BACKWARD, c->axis, SP_N_DTYPES, 1, FALSE);
}

static SpLayout
layout_of (gint32 tensor, gint32 ulysses, gint32 ring, gint32 lasp, gint32 version, gboolean regions)
{
  SpLayout layout = SP_LAYOUT_DEFAULT;

  layout.tensor = tensor;
  layout.ulysses = ulysses;
  layout.ring = ring;
  layout.lasp = lasp;
  layout.lasp_version = version;
  layout.sequence_regions = regions;
  return layout;
}

/* LASP's own table (2404.02882), elements a layer, forward, h heads, d = hidden, T ranks:
 *   LASP         B d d / h               ours B h (d / h)^2: the same
 *   Ring         2 B N d / h             ours (T - 1) hops of 2 B (N / T) d: theirs times h (T - 1) / T
 *   Ulysses      4 B N d / T             ours the same, as payload
 *   Megatron-SP  2 B N d + 4 B N d / T   ours 4 B N d, the whole buffers of 2 gathers and 2 scatters, as Ulysses' paper
 *                                        (2309.14509) counts it: theirs times 4 / (2 + 4 / T) */
static void
test_lasp_convention (void)
{
  const double B = 2, N = 4096, d = 1024, h = 8, T = 8;
  Count f, b;

  single (&(Single){ 8, 8, 128, SP_LAYER_LINEAR, 4096, 2, layout_of (1, 1, 1, 8, 1, TRUE), SP_AXIS_LASP }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, B * d * d / h);
  g_assert_cmpfloat (b.payload, ==, B * d * d / h);
  single (&(Single){ 8, 8, 128, SP_LAYER_SOFTMAX, 4096, 2, layout_of (1, 1, 8, 1, 1, TRUE), SP_AXIS_RING }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 2 * B * N * d / h * (h * (T - 1) / T));
  single (&(Single){ 8, 8, 128, SP_LAYER_SOFTMAX, 4096, 2, layout_of (1, 8, 1, 1, 1, TRUE), SP_AXIS_ULYSSES }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 4 * B * N * d / T);
  single (&(Single){ 8, 8, 128, SP_LAYER_SOFTMAX, 4096, 2, layout_of (8, 1, 1, 1, 1, TRUE), SP_AXIS_TENSOR }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 4 * B * N * d);
  g_assert_cmpfloat (f.payload, ==, (2 * B * N * d + 4 * B * N * d / T) * (4 / (2 + 4 / T)));
}

/* LASP-2 (2502.07563) counts B H d d a step, d the hidden size: its example B = 16, H = 16, d = 2048 is 1.07 G. With d / H a
 * head, as the code sends it, that is H^2 less. And it counts one state a step where an all-gather's payload is W of them and
 * its wire W - 1. Over a layer and iteration LASP takes 2 (W - 1) steps, of which a rank between the ends sends 2. */
static void
test_lasp2_convention (void)
{
  const double B = 16, H = 16, d = 2048, W = 8, theirs = B * H * d * d;
  Count f, b;

  g_assert_cmpfloat (theirs, ==, 1073741824);
  single (&(Single){ 16, 16, 128, SP_LAYER_LINEAR, 2048, 16, layout_of (1, 1, 1, 8, 2, TRUE), SP_AXIS_LASP }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, theirs / (H * H) * W);
  g_assert_cmpfloat (f.wire, ==, theirs / (H * H) * (W - 1));
  g_assert_cmpfloat (f.messages + b.messages, ==, 2);
  single (&(Single){ 16, 16, 128, SP_LAYER_LINEAR, 2048, 16, layout_of (1, 1, 1, 8, 1, TRUE), SP_AXIS_LASP }, &f, &b);
  g_assert_cmpfloat (f.payload, ==, theirs / (H * H));
  g_assert_cmpfloat (f.messages + b.messages, ==, 2);
}

/* USP's table 2 (2405.07719), elements a block, forward and backward, x = bs L d, N ranks, G query heads a K/V head; an
 * all-reduce counts twice its buffer:
 *   SP-Ulysses  8 / N x, with groups 4 / N (1 + 1 / G) x    ours the same, as payload
 *   SP-Ring     4 x, with groups 4 / G x                    ours 2 (N - 1) / N x forward, that again and 2 x of dK and dV
 *                                                           backward: theirs times (4 (N - 1) / N + 2) / 4 = 3/2 - 1/N
 *   TP          8 x                                         ours 4 all-reduces of x
 *   TP-sp       10 x                                        ours 6 gathers and 4 scatters of x */
static void
test_usp_convention (void)
{
  for (gint32 G = 1; G <= 4; G *= 2) {
    const double N = 4, x = 2 * 4096.0 * 1024, g = G;
    Count f, b;
    single (&(Single){ 16, 16 / G, 64, SP_LAYER_SOFTMAX, 4096, 2, layout_of (1, 4, 1, 1, 1, TRUE), SP_AXIS_ULYSSES }, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 4 / N * (1 + 1 / g) * x);
    single (&(Single){ 16, 16 / G, 64, SP_LAYER_SOFTMAX, 4096, 2, layout_of (1, 1, 4, 1, 1, TRUE), SP_AXIS_RING }, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 4 / g * x * (1.5 - 1 / N));
    single (&(Single){ 16, 16 / G, 64, SP_LAYER_SOFTMAX, 4096, 2, layout_of (4, 1, 1, 1, 1, FALSE), SP_AXIS_TENSOR }, &f, &b);
    g_assert_cmpfloat (2 * (f.payload + b.payload), ==, 8 * x);
    single (&(Single){ 16, 16 / G, 64, SP_LAYER_SOFTMAX, 4096, 2, layout_of (4, 1, 1, 1, 1, TRUE), SP_AXIS_TENSOR }, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 10 * x);
  }
}

/* fla-org/flash-linear-attention PR 691: 64 heads of 128 over 4 ranks. A delta rule exchanges K (K + V) a head, 4 x 64 x 128 x
 * 256 in fp32 = 32 MiB in total; a decayed sum K V, half of it: 16 MiB, as payload, at any length. */
static void
test_state_exchange (void)
{
  for (gint64 tokens = 8192; tokens <= 131072; tokens *= 4) {
    Count f, b;
    single (&(Single){ 64, 64, 128, SP_LAYER_LINEAR, tokens, 1, layout_of (1, 1, 1, 4, 2, TRUE), SP_AXIS_LASP }, &f, &b);
    g_assert_cmpfloat (f.bytes, ==, 4.0 * 64 * 128 * 128 * 4);
    g_assert_cmpfloat (f.bytes, ==, 4.0 * 64 * 128 * (128 + 128) * 4 / 2);
    g_assert_cmpfloat (b.bytes, ==, f.bytes);
  }
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
  g_test_add_func ("/volume/pipeline", test_pipeline);
  g_test_add_func ("/volume/lasp-lengths", test_lasp_lengths);
  g_test_add_func ("/volume/convention/lasp", test_lasp_convention);
  g_test_add_func ("/volume/convention/lasp-2", test_lasp2_convention);
  g_test_add_func ("/volume/convention/usp", test_usp_convention);
  g_test_add_func ("/volume/state-exchange", test_state_exchange);
  return g_test_run ();
}
