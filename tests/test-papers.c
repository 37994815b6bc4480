/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"
#include "tests/count-volume.h"

#include <math.h>

/*
 * Tables of papers against one layer's program. Letters are each paper's own. Where one counts otherwise, the convention
 * is named and the factor, or the terms that it leaves out, are asserted; nothing is fitted to it.
 */

/* --- a layer ------------------------------------------------------------------------------------------------------ */

/* Heads x head size = hidden, an MLP of 4 x hidden without gate, no biases, no gains, no dropout: 12 hidden^2. */
typedef struct {
  gint32 heads, kv_heads, head_size, batch;
  gint64 tokens;
  gboolean unfused;
} Shape;

typedef struct {
  SpProgram *program;
  SpCost cost;
  const SpBlock *block;
} Layer;

static void
layer_init (Layer *layer, const Shape *shape, const SpLayout *layout)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = !shape->unfused };
  SpRun run = { shape->tokens, shape->batch, shape->batch * layout->data, SP_DTYPE_BF16, FALSE };

  arch->layers = 1;
  arch->heads = shape->heads;
  arch->kv_heads = shape->kv_heads;
  arch->head_size = shape->head_size;
  arch->hidden = shape->heads * shape->head_size;
  arch->ffn = 4 * arch->hidden;
  arch->vocabulary = 64;
  arch->norm = SP_NORM_RMS_NO_GAIN;
  arch->mlp = SP_MLP_GELU;
  g_assert_true (sp_layout_check (layout, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
  layer->program = sp_program_new ();
  sp_program_write (layer->program, arch, &framework, layout, &run);
  sp_cost_init (&layer->cost, &cluster, &framework);
  sp_cost_set_paths (&layer->cost, &cluster, layer->program);
  layer->block = &layer->program->variants[0].blocks[1];
}

static void
layer_clear (Layer *layer)
{
  sp_program_free (layer->program);
}

/* Rank 1 of a ring, exchange or split: none of these differ by place. */
static Count
sent (const Layer *layer, SpPhase phase, SpAxis axis)
{
  return count_on (layer->program, &layer->cost, layer->block, phase, axis, SP_N_DTYPES, 1, FALSE);
}

/* Elements of activations that the forward leaves for the backward, fp32 statistics apart. */
static double
kept (const Layer *layer)
{
  double sum = 0;

  for (guint slot = 1; slot < layer->block->n_buffers; slot++) {
    const SpBuffer *buffer = &layer->block->buffers[slot];
    if (buffer->life == SP_LIFE_STASH && buffer->alias == 0 && buffer->dtype != SP_DTYPE_FP32)
      sum += (double) buffer->elements;
  }
  return sum;
}

/* Of the forward's last op of a kind, at one step of its loop. */
static double
flops_of (const Layer *layer, SpOpKind kind)
{
  guint n;
  const SpOp *ops = sp_program_segment (layer->program, layer->block, SP_PHASE_FORWARD, &n);
  double flops = 0;

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == kind)
      flops = ops[i].flops;
  return flops;
}

/* Bytes that are always there. */
static double
state_bytes (const Layer *layer, SpClass class)
{
  double sum = 0;

  for (guint slot = 1; slot < layer->block->n_buffers; slot++) {
    const SpBuffer *buffer = &layer->block->buffers[slot];
    if (buffer->life == SP_LIFE_ALWAYS && buffer->alias == 0 && buffer->class == class)
      sum += (double) buffer->bytes;
  }
  return sum;
}

static void
assert_equal (const char *what, double got, double wanted)
{
  g_test_message ("%s: %.17g, expected %.17g", what, got, wanted);
  g_assert_true (got == wanted || fabs (got - wanted) <= 1e-12 * fabs (wanted));
}

/* --- Ring Attention (2310.01889) ---------------------------------------------------------------------------------- */

/* Section 3: a block of c tokens of d features takes 4 d c^2 FLOP and sends keys and values, 4 c d bytes, so that the
 * ring is hidden from c = FLOP rate / link rate on; six such blocks are the shortest sequence of a host. Table 2, in
 * thousands of tokens; where it has 24.5 the paper's own rates make 24.96. */
static void
test_ring_attention_blocks (void)
{
  static const struct {
    double tera_flops, giga_bytes, block, sequence; /* thousands of tokens, as printed */
  } hosts[] = {
    { 312, 300, 1.0, 6.2 }, { 312, 12.5, 24.5, 149.5 }, { 123, 112, 1.1, 6.6 },
    { 275, 268, 1.0, 6.2 }, { 196, 186, 1.1, 6.3 },
  };
  const Shape shape = { 8, 8, 64, 1, 4096, FALSE };
  const double c = 1024;
  SpLayout ring = SP_LAYOUT_DEFAULT;
  Layer layer;

  ring.ring = 4;
  ring.token_split = SP_TOKENS_CONTIGUOUS;
  layer_init (&layer, &shape, &ring);
  Count hops = sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING);
  double flops = flops_of (&layer, SP_OP_ATTENTION);
  assert_equal ("bytes of a hop", hops.bytes / (ring.ring - 1), 4 * c * 512);
  assert_equal ("FLOP of a block", flops, 4 * 512 * c * c);
  double flops_a_byte = flops / (hops.bytes / (ring.ring - 1)); /* of c tokens: c */
  for (guint i = 0; i < G_N_ELEMENTS (hosts); i++) {
    double block = c / flops_a_byte * hosts[i].tera_flops / hosts[i].giga_bytes;
    g_test_message ("%g TFLOP/s, %g GB/s: %.2f, %.1f thousand tokens", hosts[i].tera_flops, hosts[i].giga_bytes, block,
                    6 * block);
    g_assert_cmpfloat_with_epsilon (block, hosts[i].block, 0.05 + 0.02 * block);
    g_assert_cmpfloat_with_epsilon (6 * block, hosts[i].sequence, 0.05 + 0.01 * hosts[i].sequence);
  }
  layer_clear (&layer);
}

/* --- Ring Self-Attention (2105.13120) ----------------------------------------------------------------------------- */

/* Section 3.2, elements a rank sends for a layer, B sequences of L, Z heads of A, N ranks. A collective counts what a
 * ring algorithm puts on the wire: an all-reduce of B Z L A is 2 (N - 1) B Z (L / N) A.
 *   sequence parallel   forward 2 rings: 2 (N - 1) B Z (L / N) A; backward 2 rings and 2 all-reduces: 6; the MLP none
 *   Megatron            4 all-reduces of MLP and attention, 2 a direction: 4 (N - 1) B Z (L / N) A each way */
static void
test_rsa_communication (void)
{
  for (gint32 n = 2; n <= 8; n *= 2) {
    const Shape shape = { 8, 8, 64, 3, 512, TRUE };
    const double N = n, B = 3, Z = 8, A = 64, L = 512, unit = (N - 1) * B * Z * (L / N) * A;
    SpLayout rsa = SP_LAYOUT_DEFAULT, megatron = SP_LAYOUT_DEFAULT;
    Layer layer;

    rsa.ring = n;
    rsa.ring_kind = SP_RING_RSA;
    rsa.token_split = SP_TOKENS_CONTIGUOUS;
    layer_init (&layer, &shape, &rsa);
    assert_equal ("rsa forward", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING).wire, 2 * unit);
    assert_equal ("rsa backward", sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_RING).wire, 6 * unit);
    layer_clear (&layer);
    megatron.tensor = n;
    megatron.sequence_regions = FALSE;
    layer_init (&layer, &shape, &megatron);
    assert_equal ("megatron forward", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_TENSOR).wire, 4 * unit);
    assert_equal ("megatron backward", sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_TENSOR).wire, 4 * unit);
    layer_clear (&layer);
  }
}

/* Tables 1 and 2, elements of a GPU, H = Z A.
 *   weights      MLP 32 H^2, attention 16 A Z H (tensor parallel: / N): parameters, gradients and Adam's two moments, 4
 *                of each; ours besides, of mixed precision, the master weights: 5 of each
 *   activations  sequence parallel: MLP 5 B L H / N, attention 4 B Z L A / N + B Z L^2 / N + B L H / N
 *                tensor parallel: MLP 4 B L H / N + B L H, attention 4 B L Z A / N + B Z L^2 / N + B L H
 * They leave out the two norms' outputs (2 B L H) and count the MLP's inner activation once, where GELU has an input
 * and an output (4 B L H more). Linformer's row has no program. */
static void
test_rsa_memory (void)
{
  for (gint32 n = 2; n <= 8; n *= 2) {
    const Shape shape = { 8, 8, 64, 3, 512, TRUE };
    const double N = n, B = 3, Z = 8, A = 64, L = 512, H = Z * A;
    const double scores = B * Z * L * L / N, weights = 32 * H * H + 16 * A * Z * H;
    SpLayout rsa = SP_LAYOUT_DEFAULT, tensor = SP_LAYOUT_DEFAULT;
    Layer layer;

    rsa.ring = n;
    rsa.ring_kind = SP_RING_RSA;
    rsa.token_split = SP_TOKENS_CONTIGUOUS;
    rsa.zero = tensor.zero = 0;
    layer_init (&layer, &shape, &rsa);
    double theirs = 5 * B * L * H / N + 4 * B * Z * L * A / N + scores + B * L * H / N;
    assert_equal ("rsa activations", kept (&layer), theirs + 2 * B * L * H / N + 4 * B * L * H / N);
    double all = state_bytes (&layer, SP_CLASS_PARAMETERS) / 2 + state_bytes (&layer, SP_CLASS_GRADIENTS) / 4 +
                 state_bytes (&layer, SP_CLASS_OPTIMIZER) / 4;
    assert_equal ("rsa weights", all, weights * 5 / 4);
    layer_clear (&layer);

    tensor.tensor = n;
    tensor.sequence_regions = FALSE;
    layer_init (&layer, &shape, &tensor);
    theirs = 4 * B * L * H / N + B * L * H + 4 * B * L * Z * A / N + scores + B * L * H;
    assert_equal ("tensor activations", kept (&layer), theirs + 2 * B * L * H + 4 * B * L * H / N);
    assert_equal ("tensor parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, weights / 4 / N);
    layer_clear (&layer);
  }
}

/* --- BurstAttention (2403.09347) ---------------------------------------------------------------------------------- */

/* Table 1, elements a GPU sends for a layer, B sequences of N, Z heads of d, G GPUs, H = Z d; every row leaves out the
 * factor (G - 1) / G: what stays on a GPU is not sent.
 *   RingAttention (RSA)   2 B Z N d and 6 B Z N d        tensor parallel   4 B Z N d each way
 *   parameters            4 H Z d of attention (tensor parallel: / G)
 *   activations           4 B Z N d / G + B Z N^2 / G + B N H / G of attention, unfused: its Q, K, V and output, scores,
 *                         and input or output; tensor parallel B N H of the last
 * Its FlashAttention rows replace N^2 by the tiles of a kernel's local memory, N^2 / (M / 4 d)^2: no buffer of ours. */
static void
test_burst_baselines (void)
{
  for (gint32 g = 2; g <= 8; g *= 2) {
    const Shape shape = { 8, 8, 64, 2, 512, TRUE };
    const double G = g, B = 2, Z = 8, d = 64, N = 512, H = Z * d, sends = (G - 1) / G;
    SpLayout ring = SP_LAYOUT_DEFAULT, tensor = SP_LAYOUT_DEFAULT;
    Layer layer;

    ring.ring = g;
    ring.ring_kind = SP_RING_RSA;
    ring.zero = tensor.zero = 0;
    layer_init (&layer, &shape, &ring);
    assert_equal ("ring forward", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING).wire, sends * 2 * B * Z * N * d);
    assert_equal ("ring backward", sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_RING).wire, sends * 6 * B * Z * N * d);
    /* The MLP, 10 B N H / G of ours, and the attention's norm besides. */
    double attention = 4 * B * Z * N * d / G + B * Z * N * N / G + B * N * H / G;
    assert_equal ("ring activations", kept (&layer), attention + 10 * B * N * H / G + B * N * H / G);
    assert_equal ("ring parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, 4 * H * Z * d + 8 * H * H);
    layer_clear (&layer);

    tensor.tensor = g;
    tensor.sequence_regions = FALSE;
    layer_init (&layer, &shape, &tensor);
    assert_equal ("tensor forward", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_TENSOR).wire, sends * 4 * B * Z * N * d);
    assert_equal ("tensor backward", sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_TENSOR).wire, sends * 4 * B * Z * N * d);
    attention = 4 * B * Z * N * d / G + B * Z * N * N / G + B * N * H;
    assert_equal ("tensor activations", kept (&layer), attention + 8 * B * N * H / G + 2 * B * N * H + B * N * H);
    assert_equal ("tensor parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, (4 * H * Z * d + 8 * H * H) / G);
    layer_clear (&layer);
  }
}

/* BurstAttention's own row: forward 2 B Z N d, backward 3 B Z N d + 2 B Z N: Q, dO and dQ, and the rows delta and lse.
 * Ours lack the factor of all but dQ, which makes G hops and so ends at home. Activations 4 B Z N d / G + B N H / G and a
 * block of scores in the kernel. Its double ring sends what the ring does but for dQ, which makes one hop more a
 * round. */
static void
test_burst (void)
{
  for (gint32 g = 4; g <= 16; g *= 2)
    for (guint nested = 0; nested < 2; nested++) {
      const Shape shape = { 8, 8, 64, 2, 512, FALSE };
      const double G = g, B = 2, Z = 8, d = 64, N = 512, H = Z * d, sends = (G - 1) / G, rounds = nested ? G / 2 : 0;
      SpLayout burst = SP_LAYOUT_DEFAULT;
      Layer layer;

      burst.ring = g;
      burst.ring_kind = nested ? SP_RING_DOUBLE : SP_RING_P2P;
      burst.ring_inner = 2;
      burst.ring_backward = SP_RING_BACKWARD_Q;
      burst.zero = 0;
      layer_init (&layer, &shape, &burst);
      assert_equal ("burst forward", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING).wire, sends * 2 * B * Z * N * d);
      double own = (1 - sends) * (2 * B * Z * N * d + 2 * B * Z * N), more = rounds / G * B * Z * N * d;
      /* Rows are fp32, each message as wide as its first buffer says: counted in bytes. */
      double bytes = sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_RING).bytes;
      double theirs = 3 * B * Z * N * d + 2 * B * Z * N;
      assert_equal ("burst backward", sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_RING).payload, theirs - own + more);
      assert_equal ("burst backward, bytes", bytes,
                    sends * 2 * (2 * B * Z * N * d + 4 * B * Z * N) + 4 * (B * Z * N * d + more));
      assert_equal ("burst activations", kept (&layer), 4 * B * Z * N * d / G + B * N * H / G + 11 * B * N * H / G);
      assert_equal ("burst parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, 4 * H * Z * d + 8 * H * H);
      layer_clear (&layer);
    }
}

/* --- USP (2405.07719) --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  SpLayout layout;
  double reduced;                        /* theirs, in units of O(d^2) */
  double state, gradient, optimizer;     /* N-ths that are left: of P, G and 6 P */
  double least_activations, activations; /* N-ths of A */
} UspRow;

#define USP(...)                                                                                                       \
  {                                                                                                                    \
    SP_LAYOUT_DEFAULT_FIELDS, __VA_ARGS__                                                                              \
  }
#pragma GCC diagnostic ignored "-Woverride-init"

/* Table 2, one block of 12 d^2 parameters, N = 4, fp16 or bf16 parameters P and gradients G.
 *   parameters' communication   all-reduce 12 O(d^2), all-gather + reduce-scatter 12, 2 all-gathers + reduce-scatter 18:
 *                               6 for each gather or scatter of 12 d^2, so half of it, and without (N - 1) / N
 *   optimizer                   6 P: 12 bytes a parameter where P is 2
 *   activations                 A / N for what splits the sequence, alpha A with 0 < alpha < 1 for tensor parallelism.
 *                               Ours keep the attention's output before and after an exchange of heads: bs L d / N more */
static void
test_usp_memory (void)
{
  static const UspRow rows[] = {
    { "SP-Ulysses", USP (.ulysses = 4, .zero = 0), 12, 1, 1, 1, 4, 4 },
    { "SP-Ring", USP (.ring = 4, .zero = 0), 12, 1, 1, 1, 4, 4 },
    { "DP", USP (.data = 4, .zero = 0), 12, 1, 1, 1, 4, 4 },
    { "ZeRO1", USP (.data = 4, .zero = 1), 12, 1, 1, 4, 4, 4 },
    { "SP-Unified+ZeRO1", USP (.ulysses = 2, .ring = 2, .zero = 1), 12, 1, 1, 4, 4, 4 },
    { "SP-Unified+ZeRO2", USP (.ulysses = 2, .ring = 2, .zero = 2), 12, 1, 4, 4, 4, 4 },
    { "SP-Unified+ZeRO3", USP (.ulysses = 2, .ring = 2, .zero = 3), 18, 4, 4, 4, 4, 4 },
    { "TP", USP (.tensor = 4, .sequence_regions = FALSE, .zero = 0), 0, 4, 4, 4, 1, 4 },
    { "TP-sp", USP (.tensor = 4, .zero = 0), 0, 4, 4, 4, 4, 4 },
  };
  const Shape shape = { 8, 8, 64, 2, 512, FALSE };
  const double d = 512, N = 4, P = 2 * 12 * d * d;
  const SpLayout alone = USP (.zero = 0);
  Layer layer;

  layer_init (&layer, &shape, &alone);
  const double A = kept (&layer);
  layer_clear (&layer);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const UspRow *row = &rows[i];
    SpLayout layout = row->layout;
    /* Of data parallelism each rank has the shape's sequences. */
    const double all = layout.data > 1 ? N * A : A;
    layout.gradient_dtype = SP_DTYPE_BF16;
    g_test_message ("%s", row->name);
    layer_init (&layer, &shape, &layout);
    double moved = sent (&layer, SP_PHASE_GATHER, SP_AXIS_DATA).wire * (1 + layer.block->regather) +
                   sent (&layer, SP_PHASE_SYNC, SP_AXIS_DATA).wire +
                   sent (&layer, SP_PHASE_OPTIMIZER, SP_AXIS_DATA).wire;
    assert_equal ("parameters' communication", moved, row->reduced * d * d * 2 * (N - 1) / N);
    assert_equal ("parameters", state_bytes (&layer, SP_CLASS_PARAMETERS), P / row->state);
    assert_equal ("gradients", state_bytes (&layer, SP_CLASS_GRADIENTS), P / row->gradient);
    assert_equal ("optimizer", state_bytes (&layer, SP_CLASS_OPTIMIZER), 6 * P / row->optimizer);
    if (row->least_activations == row->activations)
      assert_equal ("activations", kept (&layer), all / N + (layout.ulysses > 1 ? 2 * 512 * d / N : 0));
    else
      g_assert_true (kept (&layer) > all / N && kept (&layer) < all);
    layer_clear (&layer);
  }
}

/* SP-Unified's activations: P2P + 8 all-to-alls, at most 4 O(bs L d). Ours of a ring counts the hops that are made, and
 * dK and dV once more round: (4 (1.5 - 1 / R)) / U and 8 / N of the exchange, below their bound from U = 2 on. */
static void
test_usp_unified (void)
{
  for (gint32 u = 2; u <= 8; u *= 2)
    for (gint32 r = 2; r <= 8; r *= 2) {
      const Shape shape = { 8, 8, 64, 2, 1024, FALSE };
      const double x = 2 * 1024.0 * 512, U = u, R = r;
      SpLayout layout = SP_LAYOUT_DEFAULT;
      Layer layer;

      layout.ulysses = u;
      layout.ring = r;
      layer_init (&layer, &shape, &layout);
      double ring = sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING).payload +
                    sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_RING).payload;
      double exchange = sent (&layer, SP_PHASE_FORWARD, SP_AXIS_ULYSSES).payload +
                        sent (&layer, SP_PHASE_BACKWARD, SP_AXIS_ULYSSES).payload;
      assert_equal ("ring", ring, 4 * (1.5 - 1 / R) / U * x);
      assert_equal ("exchange", exchange, 8 / (U * R) * x);
      g_assert_cmpfloat (ring + exchange, <=, 4 * x);
      layer_clear (&layer);
    }
}

/* --- xDiT (2411.01738) -------------------------------------------------------------------------------------------- */

/* Its cost table's rows of a transformer's parallelisms, elements a layer, forward alone: tensor 4 p hs, ring 2 p hs,
 * Ulysses 4 / N p hs, parameters P / N for tensor parallelism and P for the others. Tensor and ring leave out (N - 1) /
 * N; Ulysses counts what an all-to-all's send buffers have. DistriFusion and PipeFusion keep stale K and V of the step
 * before, of inference alone. */
static void
test_xdit (void)
{
  for (gint32 n = 2; n <= 8; n *= 2) {
    const Shape shape = { 8, 8, 64, 1, 1024, FALSE };
    const double N = n, p = 1024, hs = 512, P = 12 * hs * hs;
    SpLayout tensor = SP_LAYOUT_DEFAULT, ring = SP_LAYOUT_DEFAULT, ulysses = SP_LAYOUT_DEFAULT;
    Layer layer;

    tensor.tensor = ring.ring = ulysses.ulysses = n;
    tensor.sequence_regions = FALSE;
    tensor.zero = ring.zero = ulysses.zero = 0;
    layer_init (&layer, &shape, &tensor);
    assert_equal ("tensor", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_TENSOR).wire, 4 * p * hs * (N - 1) / N);
    assert_equal ("tensor parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, P / N);
    layer_clear (&layer);
    layer_init (&layer, &shape, &ring);
    assert_equal ("ring", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_RING).wire, 2 * p * hs * (N - 1) / N);
    assert_equal ("ring parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, P);
    layer_clear (&layer);
    layer_init (&layer, &shape, &ulysses);
    assert_equal ("ulysses", sent (&layer, SP_PHASE_FORWARD, SP_AXIS_ULYSSES).payload, 4 / N * p * hs);
    assert_equal ("ulysses parameters", state_bytes (&layer, SP_CLASS_PARAMETERS) / 2, P);
    layer_clear (&layer);
  }
}

/* --- ZeRO (1910.02054) -------------------------------------------------------------------------------------------- */

/* Model states, K = 12, fp16 gradients: 16 Psi; stage 1: 4 Psi + 12 Psi / N; 2: 2 Psi + 14 Psi / N; 3: 16 Psi / N. Of
 * 7.5 G parameters over 64 ranks (figure 1): 120, 31.4, 16.6 and 1.9 GB, GB = 10^9, as printed. Over one rank no stage
 * shards; two and three are refused there. */
static void
test_zero_states (void)
{
  static const double figure[] = { 120, 31.4, 16.6, 1.9 };
  const Shape shape = { 8, 8, 64, 1, 64, FALSE };
  const double Psi = 12.0 * 512 * 512; /* a multiple of 1024 */

  for (gint32 n = 4; n <= 1024; n *= 4)
    for (gint32 zero = 0; zero < 4; zero++) {
      const double N = n, whole[] = { 16, 4, 2, 0 }, shared[] = { 0, 12, 14, 16 };
      SpLayout layout = SP_LAYOUT_DEFAULT;
      Layer layer;

      layout.data = n;
      layout.zero = zero;
      layout.gradient_dtype = SP_DTYPE_BF16;
      layer_init (&layer, &shape, &layout);
      double bytes = state_bytes (&layer, SP_CLASS_PARAMETERS) + state_bytes (&layer, SP_CLASS_GRADIENTS) +
                     state_bytes (&layer, SP_CLASS_OPTIMIZER);
      assert_equal ("model states", bytes, Psi * (whole[zero] + shared[zero] / N));
      if (n == 64)
        g_assert_cmpfloat (fabs (bytes / Psi * 7.5 - figure[zero]), <=, 0.05);
      layer_clear (&layer);
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/papers/ring-attention/blocks", test_ring_attention_blocks);
  g_test_add_func ("/papers/rsa/communication", test_rsa_communication);
  g_test_add_func ("/papers/rsa/memory", test_rsa_memory);
  g_test_add_func ("/papers/burst/baselines", test_burst_baselines);
  g_test_add_func ("/papers/burst/burst", test_burst);
  g_test_add_func ("/papers/usp/memory", test_usp_memory);
  g_test_add_func ("/papers/usp/unified", test_usp_unified);
  g_test_add_func ("/papers/xdit", test_xdit);
  g_test_add_func ("/papers/zero-states", test_zero_states);
  return g_test_run ();
}
