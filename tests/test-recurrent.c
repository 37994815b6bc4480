/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/simulate/simulate.h"
#include "tests/shipped.h"
#include "tests/small-models.h"

#include <math.h>

/*
 * Recurrent mixers beside what was published and measured: what ranks exchange, element by element; FLOP of the
 * kernels; times of context parallelism by state passing and by all-to-all, as ratios; the kernel's own time.
 */

/* --- one layer's core --------------------------------------------------------------------------------------------- */

typedef struct {
  SpArchitecture *arch;
  SpFramework *framework;
  SpCluster *cluster;
  SpProgram *program;
  SpEstimator estimator;
  SpEstimate estimate;
  double simulated_s;
} Core;

/* One layer of `shape`, of which the core alone is run, forward and backward. */
static void
core_init (Core *c, SpLinearShape shape, gint32 hidden, gint64 sequence, gint32 batch, SpLayout layout)
{
  SpRun run = { sequence, batch, batch, SP_DTYPE_BF16, TRUE, SP_SCOPE_ATTENTION };

  c->arch = small_model (SMALL_GATED_DELTA);
  c->arch->linear = shape;
  c->arch->layers = 1;
  c->arch->hidden = hidden;
  c->framework = load_framework ("flash");
  c->program = sp_program_new ();
  write_legal (c->program, c->arch, c->framework, &layout, &run);
}

static void
core_time (Core *c, const SpRun *run, const char *cluster)
{
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) simulated = { 0 };
  SpVariations variations = { 0 };

  c->cluster = load_cluster (cluster);
  sp_estimator_init (&c->estimator, c->arch, c->cluster, c->framework, SP_MFU_SEQPAR);
  sp_estimate_program (&c->estimator, c->program, run, &c->estimate);
  sp_simulate (&c->estimator, c->program, run, &variations, &(SpSimulateOptions){ .steps = FALSE }, &simulated, &error);
  g_assert_no_error (error);
  c->simulated_s = simulated.result.step_time_s;
}

static void
core_clear (Core *c)
{
  sp_architecture_free (c->arch);
  sp_framework_free (c->framework);
  g_clear_pointer (&c->cluster, sp_cluster_free);
  sp_program_free (c->program);
}

static const SpOp *
find_op (const Core *c, SpPhase phase, SpOpKind kind)
{
  guint n;
  const SpOp *ops = sp_program_segment (c->program, &c->program->variants[0].blocks[1], phase, &n);

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == kind)
      return &ops[i];
  return NULL;
}

/* --- FLOP --------------------------------------------------------------------------------------------------------- */

/*
 * A token and head of size 128. Delta rule, C = 64: 2 C k = 2 C n = 16384, 2 k n = 2 k k = 32768.
 *     forward   K K^T, W, q k: 3 x 16384; U, times v: 2 x 16384; inverse 64^2 / 3 = 1365.33; 3 x 32768    = 181589.33
 *     backward  8 x 32768 + 10 x 16384 + 5 x 16384 + 2 x 2 x 64^2                                         = 524288
 *     own       2 x 32768 + 2 x 32768 = 131072,   backward 3 x 32768 + 2 x 32768                          = 163840
 * Simple GLA, C = 128: 2 C k = 2 k n = 32768: 4 of them forward, 2.5 x 2 + 5 backward; own 1, each way.
 * Mamba-2, k = 128, n = 64, 8 heads share q and k: 2 C k / 8 = 4096, 2 C n = 2 k n = 16384:
 *     forward 4096 + 3 x 16384 = 53248,   backward 2.5 x 20480 + 5 x 16384                                = 133120
 */
static void
test_flops (void)
{
  static const struct {
    const char *name;
    SpLinearShape shape;
    double forward, backward, own, own_backward;
  } rows[] = {
    { "gated-delta",
      { .family = SP_LINEAR_GATED_DELTA, .heads = 8, .key_heads = 4, .key_size = 128, .value_size = 128 },
      131072 + 49152 + 4096.0 / 3,
      524288,
      131072,
      163840 },
    { "simple-gla",
      { .family = SP_LINEAR_SIMPLE_GLA, .heads = 8, .key_heads = 8, .key_size = 128, .value_size = 128 },
      4 * 32768,
      10 * 32768,
      32768,
      32768 },
    { "mamba2",
      { .family = SP_LINEAR_MAMBA2,
        .heads = 8,
        .key_heads = 1,
        .key_size = 128,
        .value_size = 64,
        .output_gate = TRUE },
      53248,
      133120,
      16384,
      16384 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    Core c = { 0 };
    const double heads = 8 * 512;

    core_init (&c, rows[i].shape, 64, 2048, 1, (SpLayout) LAYOUT (.lasp = 4, .lasp_version = 2, .zero = 1));
    g_test_message ("%s", rows[i].name);
    g_assert_cmpfloat (fabs (find_op (&c, SP_PHASE_FORWARD, SP_OP_RECURRENT)->flops - heads * rows[i].forward), <, 1);
    g_assert_cmpfloat (fabs (find_op (&c, SP_PHASE_BACKWARD, SP_OP_RECURRENT_BWD)->flops - heads * rows[i].backward), <,
                       1);
    g_assert_cmpfloat (find_op (&c, SP_PHASE_FORWARD, SP_OP_STATE_OWN)->flops, ==, heads * rows[i].own);
    g_assert_cmpfloat (find_op (&c, SP_PHASE_BACKWARD, SP_OP_STATE_OWN_BWD)->flops, ==, heads * rows[i].own_backward);
    core_clear (&c);
  }
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* What the writers lay out is what the shape counts; of RWKV the program has the nearest form. */
static void
test_weights (void)
{
  const SpFramework framework = small_framework (TRUE);
  const SpLayout layout = LAYOUT (.zero = 0);
  const SpRun run = { 32, 1, 1, SP_DTYPE_BF16, TRUE };
  g_autoptr (SpProgram) program = sp_program_new ();

  for (SmallModel kind = SMALL_LIGHTNING; kind <= SMALL_DELTA_HYBRID; kind++) {
    g_autoptr (SpArchitecture) arch = small_model (kind);
    gint64 sum = 0;

    if (kind == SMALL_RWKV7)
      continue;
    sp_program_write_state (program, arch, &framework, &layout, &run);
    for (guint i = 0; i < program->n_layers + 2; i++) {
      guint b = i == 0 ? 0 : i <= program->n_layers ? program->layer_block[i - 1] : program->n_blocks - 1;
      const SpBlock *block = &program->variants[0].blocks[b];
      for (guint j = 0; j < block->n_weights; j++)
        sum += (gint64) block->weights[j].rows * block->weights[j].cols;
    }
    g_test_message ("model %d: %" G_GINT64_FORMAT " parameters", kind, sum);
    g_assert_cmpint (sum, ==, sp_architecture_parameters (arch));
  }
}

/* --- what is exchanged -------------------------------------------------------------------------------------------- */

/* Elements a head: LASP k n of any kind; LASP-2 P (k n + t). */
static void
test_exchange (void)
{
  static const struct {
    const char *name;
    SpLinearShape shape;
    gint64 transfer;
  } rows[] = {
    { "gla",
      { .family = SP_LINEAR_GLA, .heads = 4, .key_heads = 4, .key_size = 6, .value_size = 5, .gate_rank = 3 },
      6 },
    { "simple-gla", { .family = SP_LINEAR_SIMPLE_GLA, .heads = 4, .key_heads = 4, .key_size = 6, .value_size = 5 }, 1 },
    { "mamba2",
      { .family = SP_LINEAR_MAMBA2, .heads = 4, .key_heads = 2, .key_size = 6, .value_size = 5, .output_gate = TRUE },
      1 },
    { "delta", { .family = SP_LINEAR_DELTA, .heads = 4, .key_heads = 4, .key_size = 6, .value_size = 5 }, 36 },
    { "gated-delta",
      { .family = SP_LINEAR_GATED_DELTA, .heads = 4, .key_heads = 2, .key_size = 6, .value_size = 5 },
      36 },
    { "kda",
      { .family = SP_LINEAR_KDA, .heads = 4, .key_heads = 4, .key_size = 6, .value_size = 5, .gate_rank = 3 },
      36 },
    { "retnet", { .family = SP_LINEAR_RETNET, .heads = 4, .key_heads = 4, .key_size = 6, .value_size = 5 }, 0 },
  };
  enum { P = 4, B = 3 };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    for (gint64 sequence = 16; sequence <= 160; sequence *= 10)
      for (gint32 version = 1; version <= 2; version++) {
        Core c = { 0 };
        gint64 state = B * 4 * 6 * 5, gathered = P * (state + B * 4 * rows[i].transfer);

        core_init (&c, rows[i].shape, 24, sequence, B,
                   (SpLayout) LAYOUT (.lasp = P, .lasp_version = version, .zero = 1));
        g_test_message ("%s, %" G_GINT64_FORMAT " tokens, version %d", rows[i].name, sequence, version);
        for (SpPhase phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD;
             phase += SP_PHASE_BACKWARD - SP_PHASE_FORWARD) {
          const SpOp *op = find_op (&c, phase, version == 1 ? SP_OP_SEND : SP_OP_ALL_GATHER);
          g_assert_cmpint (op->bytes, ==, 4 * (version == 1 ? state : gathered));
        }
        core_clear (&c);
      }
}

/* --- flash-linear-attention PR 691 -------------------------------------------------------------------------------- */

/*
 * Gated delta net, 32K tokens, 64 heads of 128, forward and backward on H800s: 15.56 ms on one; on four 5.73 ms by
 * passing states, 10.59 ms by all-to-all. The states: CP x heads x K x (K + V) elements, whatever the length.
 */
static void
test_published (void)
{
  static const SpLinearShape shape = {
    .family = SP_LINEAR_GATED_DELTA, .heads = 64, .key_heads = 64, .key_size = 128, .value_size = 128
  };
  static const struct {
    const char *name;
    SpLayout layout;
    double published_s;
  } rows[] = {
    { "one GPU", LAYOUT (.zero = 0), 15.56e-3 },
    { "state passing", LAYOUT (.lasp = 4, .lasp_version = 2, .zero = 1), 5.73e-3 },
    { "all-to-all", LAYOUT (.ulysses = 4, .zero = 1), 10.59e-3 },
  };
  const SpRun run = { 32768, 1, 1, SP_DTYPE_BF16, TRUE, SP_SCOPE_ATTENTION };
  double alone[2] = { 0, 0 };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    Core c = { 0 };

    core_init (&c, shape, 64, run.sequence, 1, rows[i].layout);
    core_time (&c, &run, "h800-1x8");
    const double got[2] = { c.estimate.step_time_s, c.simulated_s };
    for (guint j = 0; j < 2; j++) {
      alone[j] = i == 0 ? got[j] : alone[j];
      double ratio = got[j] / alone[j], published = rows[i].published_s / rows[0].published_s;
      g_test_message ("%s, %s: %.3f ms (published %.2f), of one GPU %.3f (published %.3f, %+.1f %%)", rows[i].name,
                      j == 0 ? "estimated" : "simulated", 1e3 * got[j], 1e3 * rows[i].published_s, ratio, published,
                      100 * (ratio / published - 1));
      g_assert_cmpfloat (fabs (ratio / published - 1), <=, 0.25);
    }
    if (i == 1)
      g_assert_cmpint (find_op (&c, SP_PHASE_FORWARD, SP_OP_ALL_GATHER)->bytes, ==,
                       4 * G_GINT64_CONSTANT (4) * 64 * 128 * (128 + 128));
    core_clear (&c);
  }
}

/* --- measured: the kernel alone ----------------------------------------------------------------------------------- */

/* flash-linear-attention's simple_gla on one H100, bf16, head size 128, medians of forward and backward together, in
 * lengths that the host does not bound. */
static void
test_measured (void)
{
  static const struct {
    gint32 heads;
    gint64 tokens;
    double measured_s;
  } rows[] = { { 16, 32768, 2788.4e-6 }, { 16, 131072, 9926.6e-6 }, { 32, 32768, 4774.4e-6 } };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpLinearShape shape = { .family = SP_LINEAR_SIMPLE_GLA,
                                  .heads = rows[i].heads,
                                  .key_heads = rows[i].heads,
                                  .key_size = 128,
                                  .value_size = 128 };
    const SpRun run = { rows[i].tokens, 1, 1, SP_DTYPE_BF16, TRUE, SP_SCOPE_ATTENTION };
    Core c = { 0 };

    core_init (&c, shape, 64, run.sequence, 1, (SpLayout) LAYOUT (.zero = 0));
    core_time (&c, &run, "h100-1x8");
    double ratio = c.estimate.step_time_s / rows[i].measured_s;
    g_test_message ("%d heads, %" G_GINT64_FORMAT " tokens: %.3f ms, measured %.3f (%+.1f %%)", rows[i].heads,
                    rows[i].tokens, 1e3 * c.estimate.step_time_s, 1e3 * rows[i].measured_s, 100 * (ratio - 1));
    g_assert_cmpfloat (fabs (ratio - 1), <=, 0.15);
    core_clear (&c);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/recurrent/flops", test_flops);
  g_test_add_func ("/recurrent/weights", test_weights);
  g_test_add_func ("/recurrent/exchange", test_exchange);
  g_test_add_func ("/recurrent/published", test_published);
  g_test_add_func ("/recurrent/measured", test_measured);
  return g_test_run ();
}
