/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"
#include "models/writer.h"
#include "tests/count-volume.h"

#include <math.h>

/*
 * Volumes as papers state them. Where one counts otherwise than the program, its convention is named and the factor
 * between the two asserted; nothing is fitted to it.
 */

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

/* One layer of a model with A D = H: what rank 1 sends, forward and backward. In a chain of three or more it is at
 * neither end. */
static void
single (SpLayerKind kind, gint32 heads, gint32 kv_heads, gint32 head_size, gint64 tokens, gint32 batch, SpLayout layout,
        SpAxis axis, Count *forward, Count *backward)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpRun run = { tokens, batch, batch, SP_DTYPE_BF16, TRUE };
  SpCost cost;

  arch->layers = 1;
  arch->heads = heads;
  arch->kv_heads = kv_heads;
  arch->head_size = head_size;
  arch->hidden = heads * head_size;
  arch->ffn = 4 * arch->hidden;
  arch->vocabulary = 64;
  arch->layer_kind[0] = kind;
  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, &framework, &layout, &run);
  sp_cost_init (&cost, &cluster, &framework);
  sp_cost_set_paths (&cost, &cluster, program);
  const SpBlock *block = &program->variants[0].blocks[1];
  *forward = count_on (program, &cost, block, SP_PHASE_FORWARD, axis, SP_N_DTYPES, 1, FALSE);
  *backward = count_on (program, &cost, block, SP_PHASE_BACKWARD, axis, SP_N_DTYPES, 1, FALSE);
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

  single (SP_LAYER_LINEAR, 8, 8, 128, 4096, 2, layout_of (1, 1, 1, 8, 1, TRUE), SP_AXIS_LASP, &f, &b);
  g_assert_cmpfloat (f.payload, ==, B * d * d / h);
  g_assert_cmpfloat (b.payload, ==, B * d * d / h);
  single (SP_LAYER_SOFTMAX, 8, 8, 128, 4096, 2, layout_of (1, 1, 8, 1, 1, TRUE), SP_AXIS_RING, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 2 * B * N * d / h * (h * (T - 1) / T));
  single (SP_LAYER_SOFTMAX, 8, 8, 128, 4096, 2, layout_of (1, 8, 1, 1, 1, TRUE), SP_AXIS_ULYSSES, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 4 * B * N * d / T);
  single (SP_LAYER_SOFTMAX, 8, 8, 128, 4096, 2, layout_of (8, 1, 1, 1, 1, TRUE), SP_AXIS_TENSOR, &f, &b);
  g_assert_cmpfloat (f.payload, ==, 4 * B * N * d);
  g_assert_cmpfloat (f.payload, ==, (2 * B * N * d + 4 * B * N * d / T) * (4 / (2 + 4 / T)));
}

/* LASP-2 (2502.07563) counts B H d d a step, d the hidden size: its example B = 16, H = 16, d = 2048 is 1.07 G. With
 * d / H a head, as the code sends it, that is H^2 less. And it counts one state a step where an all-gather's payload
 * is W of them and its wire W - 1. Over a layer and iteration LASP takes 2 (W - 1) steps, of which a rank between
 * the ends sends 2. */
static void
test_lasp2_convention (void)
{
  const double B = 16, H = 16, d = 2048, W = 8, theirs = B * H * d * d;
  Count f, b;

  g_assert_cmpfloat (theirs, ==, 1073741824);
  single (SP_LAYER_LINEAR, 16, 16, 128, 2048, 16, layout_of (1, 1, 1, 8, 2, TRUE), SP_AXIS_LASP, &f, &b);
  g_assert_cmpfloat (f.payload, ==, theirs / (H * H) * W);
  g_assert_cmpfloat (f.wire, ==, theirs / (H * H) * (W - 1));
  g_assert_cmpfloat (f.messages + b.messages, ==, 2);
  single (SP_LAYER_LINEAR, 16, 16, 128, 2048, 16, layout_of (1, 1, 1, 8, 1, TRUE), SP_AXIS_LASP, &f, &b);
  g_assert_cmpfloat (f.payload, ==, theirs / (H * H));
  g_assert_cmpfloat (f.messages + b.messages, ==, 2);
}

/* USP's table 2 (2405.07719), elements a block, forward and backward, x = bs L d, N ranks, G query heads a K/V head;
 * an all-reduce counts twice its buffer:
 *   SP-Ulysses  8 / N x, grouped 4 / N (1 + 1 / G) x   ours the same, as payload
 *   SP-Ring     4 x, grouped 4 / G x                   ours 2 (N - 1) / N x forward; backward that again and 2 x of
 *                                                      dK and dV: theirs times (4 (N - 1) / N + 2) / 4 = 3/2 - 1/N
 *   TP          8 x                                    ours 4 all-reduces of x
 *   TP-sp       10 x                                   ours 6 gathers and 4 scatters of x */
static void
test_usp_convention (void)
{
  for (gint32 G = 1; G <= 4; G *= 2) {
    const double N = 4, x = 2 * 4096.0 * 1024, g = G;
    Count f, b;
    single (SP_LAYER_SOFTMAX, 16, 16 / G, 64, 4096, 2, layout_of (1, 4, 1, 1, 1, TRUE), SP_AXIS_ULYSSES, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 4 / N * (1 + 1 / g) * x);
    single (SP_LAYER_SOFTMAX, 16, 16 / G, 64, 4096, 2, layout_of (1, 1, 4, 1, 1, TRUE), SP_AXIS_RING, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 4 / g * x * (1.5 - 1 / N));
    single (SP_LAYER_SOFTMAX, 16, 16 / G, 64, 4096, 2, layout_of (4, 1, 1, 1, 1, FALSE), SP_AXIS_TENSOR, &f, &b);
    g_assert_cmpfloat (2 * (f.payload + b.payload), ==, 8 * x);
    single (SP_LAYER_SOFTMAX, 16, 16 / G, 64, 4096, 2, layout_of (4, 1, 1, 1, 1, TRUE), SP_AXIS_TENSOR, &f, &b);
    g_assert_cmpfloat (f.payload + b.payload, ==, 10 * x);
  }
}

/* fla-org/flash-linear-attention PR 691: 64 heads of 128 over 4 ranks. A delta rule exchanges K (K + V) a head, 4 x
 * 64 x 128 x 256 in fp32 = 32 MiB in total; a decayed sum K V, half of it: 16 MiB, as payload, at any length. */
static void
test_state_exchange (void)
{
  for (gint64 tokens = 8192; tokens <= 131072; tokens *= 4) {
    Count f, b;
    single (SP_LAYER_LINEAR, 64, 64, 128, tokens, 1, layout_of (1, 1, 1, 4, 2, TRUE), SP_AXIS_LASP, &f, &b);
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
  g_test_add_func ("/volume-convention/lasp-lengths", test_lasp_lengths);
  g_test_add_func ("/volume-convention/lasp", test_lasp_convention);
  g_test_add_func ("/volume-convention/lasp-2", test_lasp2_convention);
  g_test_add_func ("/volume-convention/usp", test_usp_convention);
  g_test_add_func ("/volume-convention/state-exchange", test_state_exchange);
  return g_test_run ();
}
