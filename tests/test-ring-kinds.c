/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario.h"
#include "models/simulate/simulate.h"
#include "models/strategies/attention.h"
#include "models/writer.h"

#include <math.h>

/* What the kinds of a ring, and groups of a node, cost on a shipped cluster: two nodes of eight A800, Llama 3.1 8B, 208K
 * tokens. */

typedef struct {
  SpScenario *scenario;
  SpProgram *program;
  SpEstimate estimate;
  SpSimulated simulated;
} Case;

static void
case_clear (Case *c)
{
  sp_scenario_free (c->scenario);
  sp_program_free (c->program);
  sp_simulated_clear (&c->simulated);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static void
run_case (const char *const *sets, Case *ret)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (sp_data_dir (), "llama-3.1-8b-208k.ini", NULL);
  SpEstimator estimator;

  *ret = (Case){ .scenario = sp_scenario_load (path, sets, &error), .program = sp_program_new () };
  g_assert_no_error (error);
  const SpScenario *s = ret->scenario;
  sp_layout_check (&s->layout, s->arch, s->framework, &s->run, 16, &error);
  g_assert_no_error (error);
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_program_write (ret->program, s->arch, s->framework, &s->layout, &s->run);
  sp_estimate_program (&estimator, ret->program, &s->run, &ret->estimate);
  sp_estimate_refine (&estimator, ret->program, &ret->estimate);
  sp_simulate (&estimator, ret->program, &s->run, &s->variations, &(SpSimulateOptions){ .unfolded = FALSE },
               &ret->simulated, &error);
  g_assert_no_error (error);
}

/* --- where the order puts the sequence's axes --------------------------------------------------------------------- */

/* Ulysses inside a node and the ring between nodes, or the other way: the same bytes, on other links. Four of the
 * exchange's eight ranks, or all but one of the ring's hops, are then behind the network. */
static void
test_order (void)
{
  static const char *const inside[] = { "ulysses=8", "ring=2", "order=tensor,ulysses,ring,lasp,data,pipeline", NULL };
  static const char *const across[] = { "ulysses=8", "ring=2", "order=tensor,ring,ulysses,lasp,data,pipeline", NULL };
  g_auto (Case) near = { 0 }, far = { 0 };

  run_case (inside, &near);
  run_case (across, &far);
  for (guint a = 0; a < SP_N_AXES; a++) {
    g_assert_cmpfloat (near.estimate.axes[a].payload_bytes.mean, ==, far.estimate.axes[a].payload_bytes.mean);
    g_assert_cmpfloat (near.estimate.axes[a].wire_bytes.mean, ==, far.estimate.axes[a].wire_bytes.mean);
  }
  g_assert_cmpfloat (near.estimate.axes[SP_AXIS_ULYSSES].payload_bytes.mean, >, 0);
  g_test_message ("ulysses %.3f and %.3f s, ring %.3f and %.3f s, step %.3f and %.3f s, simulated %.3f and %.3f s",
                  near.estimate.axes[SP_AXIS_ULYSSES].time_s, far.estimate.axes[SP_AXIS_ULYSSES].time_s,
                  near.estimate.axes[SP_AXIS_RING].time_s, far.estimate.axes[SP_AXIS_RING].time_s,
                  near.estimate.step_time_s, far.estimate.step_time_s, near.simulated.result.step_time_s,
                  far.simulated.result.step_time_s);
  g_assert_cmpfloat (near.estimate.axes[SP_AXIS_ULYSSES].time_s, <, far.estimate.axes[SP_AXIS_ULYSSES].time_s);
  g_assert_cmpfloat (near.estimate.axes[SP_AXIS_RING].time_s, >, far.estimate.axes[SP_AXIS_RING].time_s);
  g_assert_cmpfloat (near.estimate.step_time_s, <, far.estimate.step_time_s);
  g_assert_cmpfloat (near.simulated.result.step_time_s, <, far.simulated.result.step_time_s);
}

/* --- double rings ------------------------------------------------------------------------------------------------- */

/* ring-inner = node, the default: the ring's ranks that follow each other in a node of eight. */
static void
test_inner (void)
{
  static const struct {
    const char *sets[6];
    gint32 inner;
  } cases[] = {
    { { "ring=16", "ulysses=1" }, 8 },
    { { "ring=8", "ulysses=2" }, 4 },
    { { "ring=8", "ulysses=2", "order=ring,ulysses,tensor,lasp,data,pipeline" }, 8 },
    { { "ring=4", "ulysses=4" }, 2 },
    { { "ring=8", "ulysses=1", "data=2", "order=data,ring,ulysses,tensor,lasp,pipeline" }, 4 },
    { { "ring=16", "ulysses=1", "ring-inner=4" }, 4 },
    { { "ring=16", "ulysses=1", "ring-inner=node" }, 8 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (sp_data_dir (), "llama-3.1-8b-208k.ini", NULL);
    const char *sets[8] = { "ring-kind=double" };
    for (guint j = 0; cases[i].sets[j] != NULL; j++)
      sets[j + 1] = cases[i].sets[j];
    g_autoptr (SpScenario) s = sp_scenario_load (path, sets, &error);
    g_assert_no_error (error);
    g_assert_cmpint (s->layout.ring_inner, ==, cases[i].inner);
  }
}

/* zero-group = node: the data x sequence ranks of a node, beside the tensor ranks that are nearer. Gathers stay inside;
 * an eighth of the fp32 gradients of 8.03e9 parameters, 4.02 GB, is all-reduced over the two nodes, 4.02 GB on each
 * GPU's share of the network. What that is worth is a matter of the network: in a ring of 16 over both nodes all eight
 * shares carry each byte, so where eight shares are as quick as NVLink (A800: 8 x 21.25 to 156.6 GB/s) the ring is bound
 * by NVLink either way, and the all-reduce's 4.02 / 21.25 = 0.19 s come on top of the shorter rings:
 * (2 x 16.06 + 32.12) GB x (7/8 - 15/16) / 156.6 = -0.03 s. With the network at half of NVLink (H100 with TCPX, 170 to
 * 360 GB/s) the rings inside gain more than the all-reduce costs. */
static void
test_zero_group (void)
{
  static const struct {
    const char *sets[6];
    gint32 ranks;
  } cases[] = {
    { { "ulysses=8", "ring=2" }, 8 },
    { { "ulysses=4", "ring=2", "tensor=2" }, 4 },
    { { "ulysses=2", "ring=4", "data=2", "order=data,ring,ulysses,tensor,lasp,pipeline" }, 8 },
    { { "ulysses=8", "ring=2", "zero-group=4" }, 4 },
    { { "ulysses=8", "ring=2", "zero-group=all" }, 0 },
  };
  static const char *const whole_sets[] = { "ulysses=8", "ring=2", NULL };
  static const char *const node_sets[] = { "ulysses=8", "ring=2", "zero-group=node", NULL };
  static const char *const slow_whole_sets[] = { "file=clusters/h100-2x8-tcpx.ini", "ulysses=8", "ring=2", NULL };
  static const char *const slow_node_sets[] = { "file=clusters/h100-2x8-tcpx.ini", "ulysses=8", "ring=2",
                                                "zero-group=node", NULL };
  g_auto (Case) whole = { 0 }, node = { 0 }, slow_whole = { 0 }, slow_node = { 0 };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (sp_data_dir (), "llama-3.1-8b-208k.ini", NULL);
    const char *sets[8] = { "zero-group=node" };
    for (guint j = 0; cases[i].sets[j] != NULL; j++)
      sets[j + 1] = cases[i].sets[j];
    g_autoptr (SpScenario) s = sp_scenario_load (path, sets, &error);
    g_assert_no_error (error);
    g_assert_cmpint (s->layout.zero_group, ==, cases[i].ranks);
  }
  run_case (whole_sets, &whole);
  run_case (node_sets, &node);
  g_test_message ("data %.3f and %.3f s, step %.3f and %.3f s, simulated %.3f and %.3f s, %.2f and %.2f GB",
                  whole.estimate.axes[SP_AXIS_DATA].time_s, node.estimate.axes[SP_AXIS_DATA].time_s,
                  whole.estimate.step_time_s, node.estimate.step_time_s, whole.simulated.result.step_time_s,
                  node.simulated.result.step_time_s, whole.estimate.memory.total_bytes / 1e9,
                  node.estimate.memory.total_bytes / 1e9);
  g_assert_cmpfloat (node.estimate.memory.total_bytes, >, whole.estimate.memory.total_bytes);
  double more_s = node.estimate.axes[SP_AXIS_DATA].time_s - whole.estimate.axes[SP_AXIS_DATA].time_s;
  g_assert_cmpfloat (fabs (more_s - (0.189 - 0.026)), <, 0.01); /* latencies of some 100 collectives aside */

  run_case (slow_whole_sets, &slow_whole);
  run_case (slow_node_sets, &slow_node);
  g_assert_cmpfloat (slow_node.estimate.axes[SP_AXIS_DATA].time_s, <, slow_whole.estimate.axes[SP_AXIS_DATA].time_s);
}

/* A plain ring of 16 over two nodes turns at the pace of one adapter: of each hop one message a node goes through the
 * network, and all wait for it. The double ring has all eight go there, once a round. The same bytes forward; the
 * gradients make 2 hops more than 16. A hop between nodes takes eight times as long as one inside, at least: so the
 * plain ring's time is that many times the other's inner hops', and the step is quicker where the hops show. */
static void
test_double (void)
{
  static const char *const plain_sets[] = { "ulysses=1", "ring=16", "sequence=64K", "recompute=none", NULL };
  static const char *const double_sets[] = { "ulysses=1",      "ring=16",          "sequence=64K",
                                             "recompute=none", "ring-kind=double", NULL };
  g_auto (Case) plain = { 0 }, nested = { 0 };

  run_case (plain_sets, &plain);
  run_case (double_sets, &nested);
  const SpAxisCost *a = &plain.estimate.axes[SP_AXIS_RING], *b = &nested.estimate.axes[SP_AXIS_RING];
  /* K and V 2 x 15 hops and their gradients, twice as wide, 16 or 18. */
  g_assert_true (fabs (b->payload_bytes.mean / a->payload_bytes.mean - (30 + 2 * 18) / (30 + 2 * 16.0)) <= 1e-12);
  g_test_message ("ring %.3f and %.3f s, step %.3f and %.3f s, simulated %.3f and %.3f s", a->time_s, b->time_s,
                  plain.estimate.step_time_s, nested.estimate.step_time_s, plain.simulated.result.step_time_s,
                  nested.simulated.result.step_time_s);
  g_assert_cmpfloat (b->time_s, <, a->time_s / 2);
  g_assert_cmpfloat (nested.estimate.step_time_s, <, plain.estimate.step_time_s);
  g_assert_cmpfloat (nested.simulated.result.step_time_s, <, plain.simulated.result.step_time_s);
}

/* --- gathered keys ------------------------------------------------------------------------------------------------ */

/* Contiguous, place p's kernel has p m m + m (m + 1) / 2 pairs: in proportion between the first and the last place,
 * whose time the estimate takes. Zigzag every place has the mean. m = 64K / 4; of attention kernels 14 FLOP a pair,
 * feature and head, forward and backward. */
static void
test_by_place (void)
{
  static const char *const contiguous[] = { "ulysses=1",
                                            "ring=4",
                                            "data=4",
                                            "global-batch=4",
                                            "sequence=64K",
                                            "recompute=none",
                                            "ring-kind=all-gather",
                                            "ring-split=contiguous",
                                            NULL };
  g_auto (Case) c = { 0 };
  const double m = 16384;
  double kernels[4] = { 0 };

  run_case (contiguous, &c);
  const SpArchitecture *arch = c.scenario->arch;
  const SpSimulation *run = c.simulated.run;
  for (gint32 i = 0; i < run->n_roles; i++)
    kernels[sp_program_place (c.program, SP_GROUP_RING, run->roles[i].rank)] = sp_time_to_s (run->roles[i].kernels);
  for (guint p = 1; p < 4; p++) {
    g_test_message ("place %u: %.6f s of kernels, %.6f more than the one before", p, kernels[p],
                    kernels[p] - kernels[p - 1]);
    g_assert_true (fabs ((kernels[p] - kernels[p - 1]) / (kernels[1] - kernels[0]) - 1) <= 1e-6);
  }
  /* A place more is m m pairs more. Kernels take between 1 and 2.5 times what the peak would. */
  double flops = 14 * m * m * arch->head_size * arch->heads * arch->layers;
  double least = flops / c.scenario->cluster->device->peak_bf16_flops_per_s.value;
  g_assert_cmpfloat (kernels[1] - kernels[0], >, least);
  g_assert_cmpfloat (kernels[1] - kernels[0], <, 2.5 * least);
  /* The last place is the busiest: the estimate's compute is its, and what communication slows it. */
  g_assert_cmpfloat (c.estimate.compute_s, >=, kernels[3]);
  g_assert_cmpfloat (c.estimate.compute_s, <, 1.01 * kernels[3]);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

static gint32
position (SpTokenSplit split, gint32 ring, gint32 place, gint32 tokens, gint32 row)
{
  gint32 half = tokens / 2;

  if (split == SP_TOKENS_STRIPED)
    return row * ring + place;
  if (split == SP_TOKENS_CONTIGUOUS || row < half)
    return (split == SP_TOKENS_CONTIGUOUS ? tokens : half) * place + row;
  return (2 * ring - 1 - place) * half + row - half;
}

/* Of every place at every step, counted one by one. */
static void
test_pairs (void)
{
  for (guint split = 0; split < SP_N_TOKEN_SPLITS; split++)
    for (gint32 ring = 1; ring <= 5; ring++)
      for (gint32 tokens = 2; tokens <= 8; tokens += 2)
        for (gint32 window = 0; window <= ring * tokens + 1; window++)
          for (gint32 at = 0; at < ring * ring; at++) {
            gint32 place = at / ring, step = at % ring, from = (place - step + ring) % ring, count = 0;
            for (gint32 pair = 0; pair < tokens * tokens; pair++) {
              gint32 back = position (split, ring, place, tokens, pair / tokens) -
                            position (split, ring, from, tokens, pair % tokens);
              count += back >= 0 && (window == 0 || back < window);
            }
            double said = sp_attention_pairs (split, ring, place, step, tokens, TRUE, window);
            if (said != count)
              g_error ("%s, place %d of %d, step %d, %d tokens, window %d: %g pairs, counted %d",
                       sp_token_split_name (split), place, ring, step, tokens, window, said, count);
          }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/ring-kinds/pairs", test_pairs);
  g_test_add_func ("/ring-kinds/order", test_order);
  g_test_add_func ("/ring-kinds/inner", test_inner);
  g_test_add_func ("/ring-kinds/double", test_double);
  g_test_add_func ("/ring-kinds/zero-group", test_zero_group);
  g_test_add_func ("/ring-kinds/by-place", test_by_place);
  return g_test_run ();
}
