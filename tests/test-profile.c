/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: read, refused, and what the cost model makes of their curves, by hand. */
#include "models/inputs/profile.h"

#include <math.h>
#include <string.h>

#include "models/estimate/cost.h"
#include "models/inputs/ini.h"
#include "models/layout.h"

#define ALL_GATHER                                                                                                     \
  "[all-gather.2x1]\nbegin-1 = 1024 B\nend-1 = 1 MiB\nlatency-1 = 10 us\nlatency-1.source = measured: x\n"             \
  "latency-1.error = 0.5 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\nrate-1.source = measured: x\nrate-1.error = 2 GB/s\n"
#define SECOND                                                                                                         \
  "begin-2 = 4 MiB\nend-2 = 1 GiB\nlatency-2 = 20 us\ngrowth-2 = 0.5\nrate-2 = 400 GB/s\ncorrelation = -0.5\n"
#define GEMM                                                                                                           \
  "[gemm]\nlaunch = 2 us\nrate = 500 TFLOP/s\nmemory-rate = 2000 GB/s\nprologue = 0\ntile-128 = 1\ntile-64 = 0.5\n"    \
  "tail = 0.5\n"
#define OURS "[kernel.attention.causal.7.3]\nlaunch = 10 us\nrate = 100 TFLOP/s\n"
#define CUDNN "[kernel.attention.causal.cudnn.7.3]\nlaunch = 30 us\nrate = 400 TFLOP/s\n"
#define POWER "[power]\nidle = 60 W\nflop = 1.5 pJ\nbyte = 90 pJ\nlimit = 0.7 kW\n"
#define HEAD "[profile]\nname = test\n"

static SpProfile *
parse (const char *text, GError **error)
{
  return sp_profile_parse ("p.ini", text, strlen (text), error);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void
test_read (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpProfile) profile =
      parse (HEAD ALL_GATHER SECOND GEMM "[all-gather.2x1.ring-ll]\nbegin-1 = 1 B\nend-1 = 2 B\n"
                                         "latency-1 = 1 us\ngrowth-1 = 0\nrate-1 = 1 GB/s\n" POWER,
             &error);
  g_assert_no_error (error);
  g_assert_cmpuint (profile->curves->len, ==, 4);
  const SpCurve *curve = sp_profile_find (profile, SP_CURVE_ALL_GATHER, NULL, 2, 1);
  g_assert_cmpuint (curve->n_slots, ==, 6);
  g_assert_cmpint (curve->value[0].provenance, ==, SP_MEASURED);
  g_assert_cmpint (curve->value[1].provenance, ==, SP_ASSUMED);
  g_assert_true (curve->end[0] == 0x1p20 && curve->begin[1] == 0x1p22);
  /* the two with an error: latency and rate of the first piece */
  g_assert_cmpfloat (fabs (curve->covariance[0][2] - -0.5 * 0.5e-6 * 2e9), <, 1e-9);
  g_assert_true (curve->covariance[0][2] == curve->covariance[2][0]);
  g_assert_nonnull (sp_profile_find (profile, SP_CURVE_ALL_GATHER, "ring-ll", 2, 1));
  g_autofree char *name = sp_curve_name (profile->curves->pdata[2]);
  g_assert_cmpstr (name, ==, "all-gather.2x1.ring-ll");
  const SpCurve *power = sp_profile_find (profile, SP_CURVE_POWER, NULL, 0, 0);
  g_assert_true (power->value[SP_POWER_IDLE].value == 60 && power->value[SP_POWER_FLOP].value == 1.5e-12);
  g_assert_true (power->value[SP_POWER_LIMIT].value == 700);
  g_autoptr (GString) out = g_string_new (NULL);
  g_autoptr (GString) again = g_string_new (NULL);
  sp_profile_write (profile, out);
  g_autoptr (SpProfile) read = parse (out->str, &error);
  g_assert_no_error (error);
  sp_profile_write (read, again);
  g_assert_cmpstr (again->str, ==, out->str);
}

#define BESIDE "wait = 80 us\nfactor = 1.2\n"

static const struct {
  const char *text, *words[3];
} refused[] = {
  { "[profile]\nname = x\n", { "p.ini", "no curve" } },
  { HEAD "[gem]\n", { "[gem]", "unknown group", "did you mean [gemm]?" } },
  { HEAD "[all-gather]\n", { "[all-gather]", "ranks and nodes", "[all-gather.8x1]" } },
  { HEAD "[all-gather.3x2]\n", { "[all-gather.3x2]", "ranks and nodes" } },
  { HEAD "[gemm]\nlaunch = 2\n", { "[gemm] launch = \"2\"", "expected a time", "us" } },
  { HEAD "[gemm]\nlaunch = 2 us\nrat = 5 TFLOP/s\n", { "[gemm] rate: missing", "is \"rat\" meant" } },
  { HEAD "[gemm]\nlaunch = 2 us\nlaunch.source = guess: x\n", { "launch.source = \"guess: x\"", "expected measured" } },
  { HEAD GEMM "launch.error = -1 us\n", { "launch.error = \"-1 us\"", "from 0 to 100 ms" } },
  { HEAD GEMM "tial = 1\n", { "tial", "unknown key", "did you mean tail?" } },
  { HEAD GEMM "to = 5\nfrom = 6\n", { "[gemm] to = \"5\"", "at least what from says" } },
  { HEAD "[power]\nidle = 60\n", { "[power] idle = \"60\"", "expected a power", "W" } },
  { HEAD "[power]\nidle = 60 W\nflop = 1 pj\n", { "[power] flop = \"1 pj\"", "expected an energy", "pJ" } },
  { HEAD ALL_GATHER "correlation = 2\n", { "correlation = \"2\"", "expected 1 numbers from -1 to 1" } },
  { HEAD ALL_GATHER "correlation = 0.1, 0.2\n", { "correlation", "of the 2 values" } },
  { HEAD "[all-gather.2x1]\nbegin-1 = 1024 B\nend-1 = 1 MiB\nlatency-1 = 10 us\nlatency-1.source = measured: x\n"
         "latency-1.error = 0.5 us\ngrowth-1 = 0\nrate-1 = 100 GB/s\nrate-1.source = measured: x\ncorrelation = 0.1\n",
    { "correlation = \"0.1\"", "of 2 values with an error, and 1 have one", "rate-1.error is missing" } },
  { HEAD ALL_GATHER "begin-2 = 1 MiB\n", { "begin-2 = \"1 MiB\"", "more than end-1" } },
  { HEAD "[all-gather.2x1]\nbegin-1 = 8 B\nend-1 = 4 B\n", { "end-1 = \"4 B\"", "from 8 B" } },
  { HEAD ALL_GATHER "begin-2 = 4 MiB\nend-2 = 1 GiB\n", { "latency-2: missing" } },
  { HEAD "[beside.2x1.all-gathr]\n" BESIDE, { "[beside.2x1.all-gathr]", "did you mean [beside.2x1.all-gather]?" } },
  { HEAD "[beside.4x2.all-gather-adamm]\n" BESIDE, { "did you mean [beside.4x2.all-gather-adam]?" } },
  { HEAD "[beside.2x.all-gather]\n" BESIDE, { "[beside.2x.all-gather]", "ranks and nodes" } },
  { HEAD "[beside.2x3.all-gather]\n" BESIDE, { "[beside.2x3.all-gather]", "ranks and nodes" } },
  { HEAD "[beside.all-gather]\n" BESIDE, { "[beside.all-gather]", "ranks and nodes" } },
  { HEAD "[beside.2x1]\n" BESIDE, { "[beside.2x1]", "a transfer and what it ran beside" } },
  { HEAD "[beside.2x1.gemm-all-gather]\n" BESIDE, { "[beside.2x1.gemm-all-gather]", "a transfer" } },
  { HEAD "[beside.2x1.norm]\n" BESIDE, { "[beside.2x1.norm]", "a transfer" } },
  { HEAD "[slowdown.2x1.acumulate]\nslowdown = 0.1\n", { "did you mean [slowdown.2x1.accumulate]?" } },
  { HEAD "[slowdown.2x1.all-gather-norm]\nslowdown = 0.1\n", { "[slowdown.2x1.all-gather-norm]", "an op" } },
};

static void
test_refused (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpProfile) profile = parse (refused[i].text, &error);
    g_assert_null (profile);
    g_assert_nonnull (error);
    g_assert_null (strchr (error->message, '\n'));
    for (guint w = 0; w < 3 && refused[i].words[w] != NULL; w++) {
      if (strstr (error->message, refused[i].words[w]) == NULL)
        g_test_message ("%u: \"%s\" lacks \"%s\"", i, error->message, refused[i].words[w]);
      g_assert_nonnull (strstr (error->message, refused[i].words[w]));
    }
  }
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

static void
assert_near (double value, double expected)
{
  g_assert_cmpfloat (fabs (value / expected - 1), <, 1e-12);
}

/* By hand. 64 KiB: 10 us + 65536 / 100 GB/s. 16 MiB: 20 us x 16^0.5 = 80 us, + 2^24 / 400 GB/s. Between 1 MiB (20.48576
 * us) and 4 MiB (40 + 10.48576 us), at 2 MiB, the quicker: 10 us + 20.97152 us, where the second says 20 sqrt (2) +
 * 5.24288 = 33.527 us; at 3 MiB 41.45728 us, where the second says 34.641 + 7.864 us. */
static void
test_pieces (void)
{
  g_autoptr (SpProfile) profile = parse (HEAD ALL_GATHER SECOND, NULL);
  const SpCurve *curve = profile->curves->pdata[0];
  double latency;

  assert_near (sp_curve_transfer_s (curve, 65536, &latency), 10e-6 + 65536 / 100e9);
  assert_near (latency, 10e-6);
  assert_near (sp_curve_transfer_s (curve, 0x1p24, &latency), 80e-6 + 0x1p24 / 400e9);
  assert_near (latency, 80e-6);
  assert_near (sp_curve_transfer_s (curve, 0x1p21, NULL), 30.97152e-6);
  assert_near (sp_curve_transfer_s (curve, 3 * 0x1p20, NULL), 10e-6 + 3 * 0x1p20 / 100e9);
  assert_near (sp_curve_transfer_s (curve, 0x1p20, NULL), 20.48576e-6);
  assert_near (sp_curve_transfer_s (curve, 0x1p22, NULL), 50.48576e-6);
}

/* From 2 ranks to 8 of a node: all-gather 7 steps for 1, and 7 / 8 of the payload on the wire for 1 / 2. Of another
 * number of nodes it says nothing. */
static void
test_reshape (void)
{
  g_autoptr (SpProfile) profile = parse (HEAD ALL_GATHER, NULL);
  SpCurve curve = *(const SpCurve *) profile->curves->pdata[0];
  double steps, scale;

  g_assert_true (sp_curve_reshape (&curve, 8, 1, &steps, &scale));
  assert_near (steps, 7);
  assert_near (scale, 1.75);
  g_assert_false (sp_curve_reshape (&curve, 16, 2, &steps, &scale));
  g_assert_false (sp_curve_reshape (&curve, 1, 1, &steps, &scale));
  curve.kind = SP_CURVE_ALL_TO_ALL;
  g_assert_true (sp_curve_reshape (&curve, 4, 1, &steps, &scale));
  assert_near (steps, 1);
  assert_near (scale, 1.5);
  curve.kind = SP_CURVE_SEND_RECEIVE;
  g_assert_true (sp_curve_reshape (&curve, 4, 1, &steps, &scale));
  assert_near (steps, 1);
  assert_near (scale, 1);
  curve.nodes = 2;
  curve.ranks = 16;
  g_assert_true (sp_curve_reshape (&curve, 64, 8, &steps, &scale));
  g_assert_false (sp_curve_reshape (&curve, 64, 16, &steps, &scale));
}

/* --- the cost model ----------------------------------------------------------------------------------------------- */

static void
set_cost_of (SpCost *cost, SpProfile *profile, gint32 nodes, const char *library)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE, .attention_library = (char *) library };
  SpDevice device = { .peak_bf16_flops_per_s = { 1e14 },
                      .memory_bytes_per_s = { 1e12 },
                      .memory_efficiency = { 1 },
                      .gemm_efficiency = { 1 },
                      .attention_efficiency = { 1 },
                      .linear_efficiency = { 1 },
                      .attention_backward_efficiency = { 1 },
                      .launch_s = { 3e-6 },
                      .sms = { 100 },
                      .link_bytes_per_s = { 200e9 } };
  SpCluster cluster = { .device = &device,
                        .nodes = nodes,
                        .gpus_per_node = 8 / nodes,
                        .link_efficiency = { 0.5 },
                        .link_latency_s = { 1e-6 },
                        .nics = { 4 },
                        .nic_bytes_per_s = { 25e9 },
                        .network_efficiency = { 0.8 },
                        .network_latency_s = { 4e-6 },
                        .profile = profile };
  SpLayout layout = SP_LAYOUT_DEFAULT;

  arch->layers = 2;
  arch->heads = arch->kv_heads = 8;
  layout.ulysses = 8;
  sp_layout_write_ranks (&layout, arch, program);
  sp_cost_init (cost, &cluster, &framework);
  sp_cost_set_paths (cost, &cluster, program);
}

static void
set_cost (SpCost *cost, SpProfile *profile, gint32 nodes)
{
  set_cost_of (cost, profile, nodes, NULL);
}

/* 256 KiB over 8: of the curve of 2 at 1.75 x 256 KiB = 448 KiB: latency 3 us of launch, and 7 x the 7 us beyond it;
 * bytes 458752 / 100 GB/s. An all-reduce has no curve: the formula, as without a profile. Over two nodes nothing is
 * said. */
static void
test_cost_transfers (void)
{
  g_autoptr (SpProfile) profile = parse (HEAD ALL_GATHER SECOND, NULL);
  SpCost with, without;
  SpOp op = { .kind = SP_OP_ALL_GATHER, .group = SP_GROUP_ULYSSES, .bytes = 256 << 10 };
  double fixed;
  SpAlgorithm algorithm;

  set_cost (&with, profile, 1);
  set_cost (&without, NULL, 1);
  assert_near (sp_cost_op_parts (&with, &op, &fixed, &algorithm), 3e-6 + 7 * 7e-6 + 458752 / 100e9);
  assert_near (fixed, 52e-6);
  g_assert_cmpint (algorithm, ==, SP_ALGORITHM_RING);
  g_assert_true (sp_cost_op (&with, &op) == sp_cost_op_alone (&with, &op, NULL, NULL));
  g_assert_true (sp_cost_op (&without, &op) != sp_cost_op (&with, &op));
  op.kind = SP_OP_ALL_REDUCE;
  g_assert_true (sp_cost_op (&without, &op) == sp_cost_op (&with, &op));
  op.kind = SP_OP_ALL_GATHER;
  set_cost (&with, profile, 2);
  set_cost (&without, NULL, 2);
  g_assert_true (sp_cost_op (&without, &op) == sp_cost_op (&with, &op));
}

/* 100 SMs. C of 1280 x 2560 is 10 x 10 tiles of 128 x 256, one full wave: 2 us + 2 x 1280 x 2560 x 4096 / 500
 * TFLOP/s. A row of tiles more, 110 of them: a second wave of 10, whose 90 idle SMs cost half: 110 / (110 + 0.5 x 90)
 * = 110 / 155; tiles of 128 x 128 are 220, waves of 100, 100 and 20: 220 / (220 + 0.5 x 80) = 220 / 260, which is
 * better. */
static void
test_cost_gemm (void)
{
  g_autoptr (SpProfile) profile = parse (HEAD GEMM, NULL);
  SpCost cost;
  SpOp op = { .kind = SP_OP_GEMM, .batch = 1, .m = 1280, .n = 2560, .k = 4096, .flops = 2.0 * 1280 * 2560 * 4096 };

  set_cost (&cost, profile, 1);
  assert_near (sp_cost_op (&cost, &op), 2e-6 + op.flops / 500e12);
  op.m = 1408;
  op.flops = 2.0 * 1408 * 2560 * 4096;
  assert_near (sp_cost_op (&cost, &op), 2e-6 + op.flops / 500e12 * 260 / 220);
  op.bytes = 1000000000; /* bound by memory: 1 GB at 2000 GB/s */
  assert_near (sp_cost_op (&cost, &op), 2e-6 + 500e-6);
}

/* 1 GFLOP: ours 10 us + 10 us, cuDNN's 30 us + 2.5 us; 10 GFLOP: 110 us and 55 us. The library that is named, or the
 * quicker at each size; with a window, which cuDNN does not have here, ours. */
static void
test_cost_libraries (void)
{
  static const struct {
    const char *library;
    double small_s, large_s;
  } rows[] = { { NULL, 20e-6, 55e-6 }, { "seqpar", 20e-6, 110e-6 }, { "cudnn", 32.5e-6, 55e-6 } };
  g_autoptr (SpProfile) both = parse (HEAD OURS CUDNN, NULL), one = parse (HEAD CUDNN, NULL);
  SpOp op = { .kind = SP_OP_ATTENTION,
              .m = 1024,
              .n = 1024,
              .k = 64,
              .heads = 8,
              .flags = SP_OP_CAUSAL,
              .in = { 1, 2, 3 },
              .out = { 4, 5 } };
  SpCost cost;

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    set_cost_of (&cost, both, 1, rows[i].library);
    op.flops = 1e9;
    assert_near (sp_cost_op (&cost, &op), rows[i].small_s);
    op.flops = 1e10;
    assert_near (sp_cost_op (&cost, &op), rows[i].large_s);
    op.window = 512;
    assert_near (sp_cost_op (&cost, &op), 110e-6);
    op.window = 0;
  }
  set_cost_of (&cost, one, 1, NULL);
  op.flops = 1e9;
  assert_near (sp_cost_op (&cost, &op), 32.5e-6);
}

static void
test_libraries (void)
{
  g_autoptr (SpProfile) both = parse (HEAD OURS CUDNN, NULL), gemm = parse (HEAD GEMM, NULL);
  g_autoptr (SpProfile) whole = parse (HEAD "[attention.flash-full]\nlaunch = 1 us\nrate = 1 TFLOP/s\nhalf-tokens = "
                                            "0\nhead-power = 0\n",
                                       NULL);
  g_autofree char *timed = NULL, *none = NULL;

  g_assert_true (sp_profile_has_library (both, "cudnn", NULL));
  g_assert_true (sp_profile_has_library (both, "seqpar", NULL));
  g_assert_false (sp_profile_has_library (both, "flash", &timed));
  g_assert_cmpstr (timed, ==, "seqpar or cudnn");
  g_assert_false (sp_profile_has_library (gemm, "cudnn", &none));
  g_assert_cmpstr (none, ==, "");
  g_assert_true (sp_profile_has_library (whole, "flash", NULL));
  g_assert_false (sp_profile_has_library (whole, "cudnn", NULL));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/profile/read", test_read);
  g_test_add_func ("/profile/refused", test_refused);
  g_test_add_func ("/profile/pieces", test_pieces);
  g_test_add_func ("/profile/reshape", test_reshape);
  g_test_add_func ("/profile/cost/transfers", test_cost_transfers);
  g_test_add_func ("/profile/cost/gemm", test_cost_gemm);
  g_test_add_func ("/profile/cost/libraries", test_cost_libraries);
  g_test_add_func ("/profile/libraries", test_libraries);
  return g_test_run ();
}
