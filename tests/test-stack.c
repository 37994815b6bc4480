/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a framework or a precision changes of a cost: kernels of another library, a step's time beside its program, shards
 * that run free of a chain, whole checkpoints, fp32.
 */
#include "tests/stack-case.h"

#include <math.h>

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* Unfused attention, forward and backward, is a product for each head and sequence: as a batch of GEMMs of the same
 * shape, bytes apart. A backward that has one of its two operands takes its half of both. */
static void
test_unfused_attention (void)
{
  g_autoptr (SpCluster) cluster = load_cluster ("a100-1x8");
  g_autoptr (SpFramework) framework = load_framework ("megatron-2022");
  const gint32 queries = 2048, keys = 1024, size = 96, batch = 4, heads = 8;
  const struct {
    SpOpKind kind;
    guint8 out[2];
    gint32 m, n, k, m2, n2, k2; /* the second: 0 none */
  } rows[] = {
    { SP_OP_SCORES, { 1, 0 }, queries, keys, size, 0, 0, 0 },
    { SP_OP_CONTEXT, { 1, 0 }, queries, size, keys, 0, 0, 0 },
    { SP_OP_SCORES_BWD, { 1, 2 }, queries, size, keys, keys, size, queries },
    { SP_OP_SCORES_BWD, { 0, 2 }, keys, size, queries, 0, 0, 0 },
    { SP_OP_CONTEXT_BWD, { 1, 2 }, queries, keys, size, keys, size, queries },
    { SP_OP_CONTEXT_BWD, { 1, 0 }, queries, keys, size, 0, 0, 0 },
  };
  SpCost cost;

  sp_cost_init (&cost, cluster, framework);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    double product = 2.0 * batch * heads * queries * keys * size, seconds = 0;
    gboolean two = rows[i].m2 > 0;
    SpOp op = { .kind = (guint8) rows[i].kind, .m = queries, .n = keys, .k = size, .batch = batch, .heads = heads };
    memcpy (op.out, rows[i].out, sizeof rows[i].out);
    op.flops = product * (two ? 2 : 1);
    SpOp first = { .kind = SP_OP_GEMM, .batch = batch * heads, .flops = product };
    first.m = rows[i].m, first.n = rows[i].n, first.k = rows[i].k;
    seconds = sp_cost_op (&cost, &first);
    if (two) {
      first.m = rows[i].m2, first.n = rows[i].n2, first.k = rows[i].k2;
      seconds += sp_cost_op (&cost, &first) - cost.launch_s;
    }
    g_assert_cmpfloat (fabs (sp_cost_op (&cost, &op) / seconds - 1), <, 1e-9);
  }
}

/* Each key, of its kernels alone, beyond the launch. */
static void
test_kernels (void)
{
  g_auto (Case) c = { 0 };
  case_init (&c, "tnl-1b-lasp.ini", NULL);
  const struct {
    SpOpKind kind;
    guint flags;
    gint32 head_size;
    double factor;
  } rows[] = {
    { SP_OP_LINEAR_LOCAL, 0, 128, 2 },
    { SP_OP_LINEAR_INTER, 0, 128, 2 },
    { SP_OP_RECURRENT, 0, 128, 2 },
    { SP_OP_LINEAR_LOCAL_BWD, 0, 128, 5 },
    { SP_OP_STATE_OWN_BWD, 0, 128, 5 },
    { SP_OP_ATTENTION, 0, 128, 1 },
    { SP_OP_ATTENTION, 0, 32, 2 },
    { SP_OP_ATTENTION, SP_OP_CAUSAL, 128, 1.25 },
    { SP_OP_ATTENTION_BWD, SP_OP_CAUSAL, 32, 2.5 },
    { SP_OP_GEMM, 0, 128, 1 },
    { SP_OP_NORM, SP_OP_CAUSAL, 128, 1 },
    { SP_OP_ADAM, 0, 128, 1 },
  };
  SpFramework slow = c.framework;
  SpCost a, b;

  slow.linear_time.value = 2;
  slow.linear_backward_time.value = 5;
  slow.attention_head_power.value = 0.5; /* a quarter of 128: half of the rate */
  slow.attention_causal_time.value = 1.25;
  sp_cost_init (&a, c.scenario->cluster, &c.framework);
  sp_cost_init (&b, c.scenario->cluster, &slow);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpOp op = { .kind = rows[i].kind,
                      .m = 4096,
                      .n = 4096,
                      .k = rows[i].head_size,
                      .batch = 1,
                      .heads = 32,
                      .bytes = 1 << 20,
                      .flops = 1e12,
                      .flags = rows[i].flags };
    double launch = a.kernel_launch_s[op.kind], beyond = sp_cost_op (&a, &op) - launch;
    g_assert_cmpfloat (fabs ((sp_cost_op (&b, &op) - launch) / beyond - rows[i].factor), <, 1e-9);
  }
}

static guint
count_ops (const SpProgram *program, SpPhase phase, SpOpKind kind)
{
  guint n, found = 0;
  const SpOp *ops = sp_program_segment (program, &program->variants[0].blocks[1], phase, &n);

  for (guint i = 0; i < n; i++)
    found += ops[i].kind == kind;
  return found;
}

/* Megatron-LM's selective recomputation is a checkpoint around the core, which runs all of it again: the last product
 * too, though nobody reads that. One that rebuilds what is read alone does not. */
static void
test_selective_core (void)
{
  static const SpOpKind core[] = { SP_OP_SCORES, SP_OP_SOFTMAX, SP_OP_DROPOUT, SP_OP_CONTEXT };
  g_autoptr (SpArchitecture) arch = load_model ("megatron-22b");
  g_autoptr (SpFramework) framework = load_framework ("megatron-2022");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpRun run = { 2048, 4, 4, SP_DTYPE_FP16, TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;

  layout.tensor = 8;
  layout.recompute = SP_RECOMPUTE_SELECTIVE;
  for (guint whole = 0; whole < 2; whole++) {
    framework->recompute_whole = whole == 1;
    write_legal (program, arch, framework, &layout, &run);
    for (guint i = 0; i < G_N_ELEMENTS (core); i++)
      g_assert_cmpuint (count_ops (program, SP_PHASE_RECOMPUTE, core[i]), ==, core[i] != SP_OP_CONTEXT || whole);
    g_assert_cmpuint (count_ops (program, SP_PHASE_RECOMPUTE, SP_OP_GEMM), ==, 0);
  }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void
test_host_step (void)
{
  static const char *const sets[] = { "nodes=2", "lasp=16", "sequence=64K", NULL };
  g_auto (Case) c = { 0 };
  case_init (&c, "tnl-1b-lasp.ini", sets);
  SpEstimate before = estimate (&c);
  c.framework.host_step_s.value = 1.5;
  SpEstimate after = estimate (&c);

  g_assert_cmpfloat (fabs (after.step_time_s - before.step_time_s - 1.5), <, 1e-9);
  g_assert_cmpfloat (fabs (after.low_s - before.low_s - 1.5), <, 1e-9);
  g_assert_cmpfloat (fabs (after.serial_s - before.serial_s - 1.5), <, 1e-9);
  g_assert_cmpfloat (fabs (after.high_s - before.high_s - 1.5), <, 1e-9);
  g_assert_cmpfloat (fabs (after.host_s - before.host_s - 1.5), <, 1e-9);
  g_assert_cmpfloat (fabs (after.tokens_per_s * after.step_time_s / before.tokens_per_s / before.step_time_s - 1), <,
                     1e-9);
}

/* What is no whole step has none of it. */
static void
test_host_step_scope (void)
{
  static const char *const sets[] = { "scope=attention-forward", NULL };
  g_auto (Case) c = { 0 };
  case_init (&c, "papers/usp-attention.ini", sets);
  SpEstimate before = estimate (&c);
  c.framework.host_step_s.value = 1.5;
  SpEstimate after = estimate (&c);

  g_assert_cmpfloat (before.step_time_s, ==, after.step_time_s);
}

/* The simulator has it too, of each sample, and lies where it did between the estimate's figures. */
static void
test_host_step_simulated (void)
{
  static const char *const sets[] = { "nodes=2", "lasp=16", "sequence=64K", NULL };
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  const SpSimulateOptions options = { .samples = 1 };
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  double simulated_s[2];

  case_init (&c, "tnl-1b-lasp.ini", sets);
  for (guint i = 0; i < 2; i++) {
    g_auto (SpSimulated) simulated = { 0 };
    SpEstimator estimator;
    c.framework.host_step_s.value = 1.5 * i;
    SpEstimate e = estimate (&c);
    sp_estimator_init (&estimator, c.scenario->arch, c.scenario->cluster, &c.framework, SP_MFU_SEQPAR);
    g_assert_true (sp_simulate (&estimator, c.program, &c.scenario->run, &usual, &options, &simulated, &error));
    simulated_s[i] = simulated.result.step_time_s;
    g_assert_cmpfloat (simulated.sample_s[0], ==, simulated_s[i]);
    g_assert_cmpfloat (simulated_s[i], >=, e.low_s);
    g_assert_cmpfloat (simulated_s[i], <=, e.high_s);
  }
  g_assert_cmpfloat (fabs (simulated_s[1] - simulated_s[0] - 1.5), <, 1e-9);
}

/* A chain's skew is paid once a pass, not once a layer: with zero = 1, where nothing else spans it, nothing changes. */
static void
test_free_shards (void)
{
  static const char *const sharded[] = { "nodes=2", "lasp=16", "sequence=256K", "framework=lasp-authors", NULL };
  static const char *const whole[] = {
    "nodes=2", "lasp=16", "sequence=256K", "framework=lasp-authors", "zero=1", NULL
  };
  const char *const *sets[] = { sharded, whole };

  for (guint i = 0; i < 2; i++) {
    g_auto (Case) c = { 0 };
    case_init (&c, "tnl-1b-lasp.ini", sets[i]);
    SpEstimate ordered = estimate (&c);
    c.framework.shards_run_free = TRUE;
    SpEstimate free = estimate (&c);
    if (i == 1) {
      g_assert_cmpfloat (ordered.step_time_s, ==, free.step_time_s);
      continue;
    }
    double chain = ordered.step_time_s - free.step_time_s, once = chain / (c.scenario->arch->layers - 1);
    g_assert_cmpfloat (chain, >, 0);
    g_assert_cmpfloat (fabs (free.axes[SP_AXIS_LASP].exposed_s / once - 1), <, 0.2); /* which no send is in */
  }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void
test_state_dict (void)
{
  static const char *const small[] = { "nodes=2", "lasp=16", "sequence=2K", NULL };
  g_auto (Case) c = { 0 }, d = { 0 };
  case_init (&c, "tnl-1b-lasp.ini", small);
  case_init (&d, "tnl-1b-lasp.ini", NULL);
  double states = estimate (&c).memory.by_class[SP_CLASS_OPTIMIZER];
  c.framework.whole_state_dict = d.framework.whole_state_dict = TRUE;
  SpEstimate e = estimate (&c);
  double parameters = (double) sp_architecture_parameters (c.scenario->arch);

  g_assert_cmpstr (e.memory.moment, ==, "checkpoint, parameters whole in fp32");
  /* bf16 shards, fp32 masters and moments, fp32 gradients: 18 bytes over 16 ranks, rounded up a block */
  g_assert_cmpfloat (fabs (e.memory.total_bytes - c.framework.reserved_bytes.value - parameters * (4 + 18.0 / 16)), <,
                     1e4);
  g_assert_cmpfloat (e.memory.by_class[SP_CLASS_OPTIMIZER], ==, states);
  d.framework.whole_state_dict = FALSE;
  double step = estimate (&d).memory.total_bytes;
  d.framework.whole_state_dict = TRUE;
  g_assert_cmpfloat (estimate (&d).memory.total_bytes, ==, step); /* 64 GB of activations are more */
}

/* --- fp32 --------------------------------------------------------------------------------------------------------- */

/* 16 bytes a parameter and no copy of it; twice the bytes of messages; products at the other peak. */
static void
test_fp32 (void)
{
  static const char *const half[] = { "nodes=1", "ulysses=8",           "ring=1", "sequence=8K",
                                      "zero=0",  "gradient-dtype=fp32", NULL };
  static const char *const single[] = { "nodes=1", "ulysses=8",           "ring=1",         "sequence=8K",
                                        "zero=0",  "gradient-dtype=fp32", "precision=fp32", NULL };
  g_auto (Case) c = { 0 }, d = { 0 };
  case_init (&c, "llama-3.1-8b-208k.ini", half);
  case_init (&d, "llama-3.1-8b-208k.ini", single);
  SpEstimate bf16 = estimate (&c), fp32 = estimate (&d);
  double parameters = (double) sp_architecture_parameters (c.scenario->arch);
  const double *was = bf16.memory.by_class, *is = fp32.memory.by_class;
  const SpDevice *device = c.scenario->cluster->device;

  g_assert_cmpfloat (was[SP_CLASS_PARAMETERS] + was[SP_CLASS_GRADIENTS] + was[SP_CLASS_OPTIMIZER], ==, 18 * parameters);
  g_assert_cmpfloat (is[SP_CLASS_PARAMETERS] + is[SP_CLASS_GRADIENTS] + is[SP_CLASS_OPTIMIZER], ==, 16 * parameters);
  g_assert_cmpfloat (fp32.axes[SP_AXIS_ULYSSES].payload_bytes.mean, ==,
                     2 * bf16.axes[SP_AXIS_ULYSSES].payload_bytes.mean);
  double ratio = device->peak_bf16_flops_per_s.value / device->peak_fp32_flops_per_s.value;
  const SpOp op = { .kind = SP_OP_GEMM, .m = 8192, .n = 8192, .k = 8192, .batch = 1, .flops = 2.0 * (1ull << 39) };
  SpCost cost;
  sp_cost_init (&cost, c.scenario->cluster, &c.framework);
  double tensor_cores = sp_cost_op (&cost, &op) - cost.launch_s;
  sp_cost_set_precision (&cost, c.scenario->cluster, SP_DTYPE_FP32);
  g_assert_cmpfloat (fabs ((sp_cost_op (&cost, &op) - cost.launch_s) / tensor_cores / ratio - 1), <, 1e-9);
  g_assert_cmpfloat (fp32.compute_s, >, bf16.compute_s);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/stack/unfused-attention", test_unfused_attention);
  g_test_add_func ("/stack/kernels", test_kernels);
  g_test_add_func ("/stack/selective-core", test_selective_core);
  g_test_add_func ("/stack/host-step", test_host_step);
  g_test_add_func ("/stack/host-step/scope", test_host_step_scope);
  g_test_add_func ("/stack/host-step/simulated", test_host_step_simulated);
  g_test_add_func ("/stack/free-shards", test_free_shards);
  g_test_add_func ("/stack/state-dict", test_state_dict);
  g_test_add_func ("/stack/fp32", test_fp32);
  return g_test_run ();
}
