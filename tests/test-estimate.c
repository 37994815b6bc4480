/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cache.h"
#include "models/writer.h"
#include "tests/count-allocations.h"
#include "tests/random-machines.h"

#include <math.h>

/* Properties of the estimate on random layouts and clusters. */

#define DRAWS 400
#define ROUNDING 1e-12

static gboolean
is_at_most (double a, double b)
{
  return a <= b * (1 + ROUNDING);
}

static const DrawLimits any = {
  DRAW_ANY, FALSE,    { 1, 3 }, { 1, 3 }, { 1, 4 },      { 1, 4 },
  { 1, 4 }, { 1, 6 }, TRUE,     TRUE,     .eager = TRUE, .slices = TRUE,
};

/* --- bounds and sums ---------------------------------------------------------------------------------------------- */

static void
check_times (const SpEstimate *e)
{
  const double parts[] = { e->compute_s, e->exposed_communication_s, e->bubble_s, e->host_s, e->idle_s };
  double sum = 0;

  g_assert_true (isfinite (e->low_s) && isfinite (e->step_time_s) && isfinite (e->serial_s) && isfinite (e->high_s));
  g_assert_true (e->low_s > 0);
  g_assert_true (is_at_most (e->low_s, e->step_time_s));
  g_assert_true (is_at_most (e->step_time_s, e->high_s));
  g_assert_true (is_at_most (e->step_time_s, e->serial_s)); /* slowdowns here are at most 1 */
  g_assert_true (is_at_most (e->serial_s, e->high_s));
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++) {
    g_assert_true (parts[i] >= 0);
    sum += parts[i];
  }
  g_assert_true (is_equal (sum, e->step_time_s, 1e-9));
}

static void
check_spread (const SpSpread *s)
{
  g_assert_true (s->min >= 0 && isfinite (s->max));
  g_assert_true (is_at_most (s->min, s->mean) && is_at_most (s->mean, s->max));
}

static void
check_axes (const SpEstimate *e)
{
  double exposed = 0;

  for (guint a = 0; a < SP_N_AXES; a++) {
    const SpAxisCost *axis = &e->axes[a];
    check_spread (&axis->payload_bytes);
    check_spread (&axis->wire_bytes);
    g_assert_true (is_at_most (axis->wire_bytes.max, 2 * axis->payload_bytes.max));
    /* Exposed is summed from differences of clocks. */
    g_assert_true (axis->exposed_s >= 0 && axis->exposed_s <= axis->time_s * (1 + 1e-9) && isfinite (axis->time_s));
    g_assert_true ((axis->messages > 0) == (axis->payload_bytes.max > 0));
    exposed += axis->exposed_s;
  }
  g_assert_true (is_equal (exposed, e->exposed_communication_s, 1e-9));
}

static void
check_memory (const SpEstimate *e)
{
  double sum = 0;

  for (guint c = 0; c < SP_N_CLASSES; c++) {
    g_assert_true (e->memory.by_class[c] >= 0);
    sum += e->memory.by_class[c];
  }
  g_assert_true (is_equal (sum, e->memory.total_bytes, 1e-12));
  g_assert_true (e->memory.total_bytes > 0 && e->memory.moment != NULL);
  g_assert_cmpint (e->fits, ==, e->memory.total_bytes <= e->capacity_bytes);
}

static void
test_bounds (void)
{
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Draw d;
    Machine m;
    SpEstimate e;
    draw_legal (rand, &any, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    estimate_on (&d, &m, program, &e);
    check_times (&e);
    check_axes (&e);
    check_memory (&e);
    g_assert_true (e.mfu > 0 && e.mfu_causal > 0 && e.mfu_causal <= e.mfu && e.hfu > 0);
    g_assert_true (is_equal (e.tokens_per_s * e.step_time_s, (double) d.run.sequence * d.run.global_batch, 1e-12));
    estimate_report (&d, &m, &e);
    draw_clear (&d);
  }
  g_rand_free (rand);
}

/* Over all of the ranks that hold the same weights, one node's, or any part of them. */
static void
draw_shards (GRand *rand, const Machine *m, Draw *d)
{
  gint32 ranks = d->layout.data * sp_layout_sequence_ranks (&d->layout, d->arch), part = 0;

  d->layout.zero = draw_int (rand, 0, 3);
  d->layout.overlap = draw_int (rand, 0, 3) > 0;
  d->layout.zero_group = 0;
  if (d->layout.zero == 0 || ranks == 1)
    return;
  switch (draw_int (rand, 0, 3)) {
  case 0:
    break;
  case 1:
    part = ranks % m->cluster.gpus_per_node == 0 ? m->cluster.gpus_per_node : 0;
    break;
  default:
    do
      part = draw_int (rand, 2, ranks);
    while (ranks % part != 0);
  }
  d->layout.zero_group = part > 1 ? part : 0;
}

/* Weights that are dear to move, of layers unlike each other: what copies of them are shared by parts of the ranks,
 * they have to sum between the parts beside gathers and scatters of the same stream. */
static void
test_bounds_shared (void)
{
  static const DrawLimits shared = { DRAW_ANY, FALSE,    { 1, 8 },          { 1, 2 },        { 1, 3 },        { 1, 3 },
                                     { 1, 3 }, { 1, 4 }, .schedules = TRUE, .experts = TRUE, .families = TRUE };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  guint parts = 0;

  for (guint i = 0; i < 4 * DRAWS && !g_test_failed ();) {
    Draw d;
    Machine m;
    SpEstimate e;
    SpEstimator estimator;
    draw_legal (rand, &shared, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    draw_shards (rand, &m, &d);
    if (sp_layout_check (&d.layout, d.arch, &d.framework, &d.run, 0, NULL)) {
      m.device.link_bytes_per_s.value *= draw_between (rand, 1e-2, 1);
      m.cluster.nic_bytes_per_s.value *= draw_between (rand, 1e-2, 1);
      estimate_on (&d, &m, program, &e);
      check_times (&e);
      check_axes (&e);
      sp_estimator_init (&estimator, d.arch, &m.cluster, &d.framework, SP_MFU_SEQPAR);
      sp_estimate_refine (&estimator, program, &e);
      g_assert_true (is_at_most (e.low_s, e.step_time_s) && is_at_most (e.step_time_s, e.high_s));
      estimate_report (&d, &m, &e);
      parts += program->groups[SP_GROUP_REPLICA].size > 1;
      i++;
    }
    draw_clear (&d);
  }
  g_assert_cmpuint (parts, >, DRAWS / 2);
  g_rand_free (rand);
}

/* --- what must not matter, and what must matter one way ----------------------------------------------------------- */

/* Another value of one field, all else as it is: so that a key that forgets the field finds the wrong blocks. */
static void
change_field (GRand *rand, guint field, const SpLayout *other, Draw *d)
{
  SpLayout *l = &d->layout;

  switch (field) {
  case 0:
    l->lasp_version = 3 - l->lasp_version;
    break;
  case 1:
    l->token_split = (l->token_split + 1) % SP_N_TOKEN_SPLITS;
    break;
  case 2:
    l->sequence_regions = !l->sequence_regions;
    break;
  case 3:
    l->zero = (l->zero + draw_int (rand, 1, 3)) % 4;
    break;
  case 4:
    l->reshard = !l->reshard;
    break;
  case 5:
    l->ring_gradient_dtype = l->ring_gradient_dtype == SP_DTYPE_FP32 ? SP_DTYPE_BF16 : SP_DTYPE_FP32;
    break;
  case 6:
    l->gradient_dtype = l->gradient_dtype == SP_DTYPE_FP32 ? SP_DTYPE_BF16 : SP_DTYPE_FP32;
    break;
  case 7:
    l->overlap = !l->overlap;
    break;
  case 8:
    l->recompute = (guint8) ((l->recompute + draw_int (rand, 1, 2)) % SP_N_RECOMPUTES);
    break;
  case 9:
    draw_order (rand, &l->order);
    break;
  case 10:
    d->run.precision = d->run.precision == SP_DTYPE_BF16 ? SP_DTYPE_FP16 : SP_DTYPE_BF16;
    break;
  case 11:
    d->run.causal = !d->run.causal;
    break;
  case 12:
    d->run.micro_batch = draw_int (rand, 1, 4);
    break;
  case 13:
    d->run.sequence *= 2;
    break;
  case 14:
    l->data = other->data;
    break;
  case 15:
    l->pipeline = other->pipeline;
    break;
  case 16:
    l->lasp = other->lasp;
    break;
  case 17:
    l->ring_kind = (l->ring_kind + 1) % SP_N_RING_KINDS;
    l->ring_keep = FALSE;
    l->ring_backward = SP_RING_BACKWARD_KV;
    break;
  case 19:
    l->ring_backward = !l->ring_backward;
    break;
  case 20:
    l->ring_inner = other->ring_inner;
    break;
  case 21:
    l->zero_group = l->zero_group > 0 ? 0 : l->data;
    break;
  case 18:
    l->ring_keep = !l->ring_keep;
    break;
  default: /* the same ranks, cut otherwise */
    l->ring *= l->ulysses;
    l->ulysses = 1;
  }
}

#define N_FIELDS 23

/* A cache, large or so small that its entries push each other out, changes nothing; nor does what the program held
 * before. */
static void
test_cache (void)
{
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new (), scratch = sp_program_new ();
  g_autoptr (SpBlockCache) small = sp_block_cache_new (2), large = sp_block_cache_new (8);

  for (guint i = 0; i < 100 && !g_test_failed (); i++) {
    Draw base;
    Machine m;
    SpEstimator plain;
    draw_legal (rand, &any, &base);
    draw_machine (rand, 24, draw_slowdown (rand), &m);
    sp_estimator_init (&plain, base.arch, &m.cluster, &base.framework, SP_MFU_SEQPAR);
    sp_block_cache_clear (small);
    sp_block_cache_clear (large);
    for (guint j = 0; j < 4 * N_FIELDS && !g_test_failed (); j++) {
      Draw d = base;
      SpLayout other;
      SpEstimate expected, got;
      draw_layout (rand, &any, d.arch, d.layout.tensor, &other);
      if (j > 0)
        change_field (rand, j % N_FIELDS, &other, &d);
      if (!sp_layout_check (&d.layout, d.arch, &d.framework, &d.run, 0, NULL))
        continue;
      g_autoptr (SpProgram) fresh = sp_program_new ();
      sp_estimate_layout (&plain, fresh, &d.layout, &d.run, &expected);
      sp_estimate_layout (&plain, program, &d.layout, &d.run, &got);
      g_assert_cmpmem (&expected, sizeof expected, &got, sizeof got);
      for (guint again = 0; again < 4; again++) {
        SpEstimator cached = plain;
        cached.cache = again % 2 ? large : small;
        sp_estimate_layout (&cached, scratch, &d.layout, &d.run, &got);
        g_assert_cmpmem (&expected, sizeof expected, &got, sizeof got);
      }
      if (g_test_failed ())
        g_test_message ("field %u", j % N_FIELDS);
      estimate_report (&d, &m, &got);
      if (j % N_FIELDS == N_FIELDS - 1)
        base.layout = d.layout;
    }
    draw_clear (&base);
  }
  g_rand_free (rand);
}

static void
ratios_on (const Draw *d, const Machine *m, const SpProgram *program, double *ret)
{
  SpCost cost;

  sp_cost_init (&cost, &m->cluster, &d->framework);
  sp_cost_set_paths (&cost, &m->cluster, program);
  for (guint g = 0; g < SP_N_GROUPS; g++)
    ret[g] = program->groups[g].size > 1 ? sp_cost_alone_ratio (&cost, g) : 1;
}

static double
largest_rise (const double *before, const double *after)
{
  double rise = 1;

  for (guint g = 0; g < SP_N_GROUPS; g++)
    rise = MAX (rise, after[g] / before[g]);
  return rise;
}

/* Of a fast and a slow one of everything, the fast one is never slower. But the lower bound is what communication must
 * take beside nothing else, known as a group's price times its least fair rate / alone rate, latencies too. Where a GPU
 * gets more of what it shared (more NICs, or their rate beyond the port's, or latency that only some hops have), fair
 * and alone come closer: a tighter bound of a faster step. It rises by no more than that ratio does. */
static void
test_monotone (void)
{
  static const struct {
    const char *name;
    gsize offset;
    gboolean of_cluster, is_latency;
  } quantities[] = {
    { "link rate", G_STRUCT_OFFSET (SpDevice, link_bytes_per_s), FALSE, FALSE },
    { "memory rate", G_STRUCT_OFFSET (SpDevice, memory_bytes_per_s), FALSE, FALSE },
    { "peak", G_STRUCT_OFFSET (SpDevice, peak_bf16_flops_per_s), FALSE, FALSE },
    { "launch", G_STRUCT_OFFSET (SpDevice, launch_s), FALSE, TRUE },
    { "slowdown", G_STRUCT_OFFSET (SpDevice, overlap_slowdown), FALSE, TRUE },
    { "link efficiency", G_STRUCT_OFFSET (SpCluster, link_efficiency), TRUE, FALSE },
    { "link latency", G_STRUCT_OFFSET (SpCluster, link_latency_s), TRUE, TRUE },
    { "NIC rate", G_STRUCT_OFFSET (SpCluster, nic_bytes_per_s), TRUE, FALSE },
    { "NICs", G_STRUCT_OFFSET (SpCluster, nics), TRUE, FALSE },
    { "network latency", G_STRUCT_OFFSET (SpCluster, network_latency_s), TRUE, TRUE },
  };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Draw d;
    Machine m;
    SpEstimate before, after;
    double ratios[2][SP_N_GROUPS];
    draw_legal (rand, &any, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    estimate_on (&d, &m, program, &before);
    ratios_on (&d, &m, program, ratios[0]);
    for (guint q = 0; q < G_N_ELEMENTS (quantities); q++) {
      SpQuantity *quantity =
          G_STRUCT_MEMBER_P (quantities[q].of_cluster ? (gpointer) &m.cluster : &m.device, quantities[q].offset);
      double old = quantity->value;
      quantity->value = quantities[q].is_latency ? old / 2 : old * 2;
      estimate_on (&d, &m, program, &after);
      ratios_on (&d, &m, program, ratios[1]);
      quantity->value = old;
      /* The lower bound gives a slowdown away that it does not know the extent of: less of it is a tighter bound. */
      gboolean low = quantity == &m.device.overlap_slowdown ||
                     is_at_most (after.low_s, before.low_s * largest_rise (ratios[0], ratios[1]));
      /* `high` has been seen to rise by 0.3 % (R02S66eb0884fd43e33b0cde6a5deb971b0a): why is not known. Where the
       * backward is in two parts, what is hidden beside one of them may come into the open beside the other. */
      double room = sp_schedule_get (d.layout.schedule)->splits ? 1.005 : 1;
      if (low && is_at_most (after.step_time_s, before.step_time_s * room) &&
          is_at_most (after.high_s, before.high_s * 1.005) && is_at_most (after.serial_s, before.serial_s))
        continue;
      g_test_message ("%s: a step of %.9g (low %.9g, high %.9g, serial %.9g) took %.9g (%.9g, %.9g, %.9g)",
                      quantities[q].name, before.step_time_s, before.low_s, before.high_s, before.serial_s,
                      after.step_time_s, after.low_s, after.high_s, after.serial_s);
      g_test_fail ();
      estimate_report (&d, &m, &before);
    }
    draw_clear (&d);
  }
  g_rand_free (rand);
}

/* Where running beside something costs nothing, overlap never hurts; and without it a step is as long as serial. */
static void
test_overlap (void)
{
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Draw d;
    Machine m;
    SpEstimate with, without;
    draw_legal (rand, &any, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), 0, &m);
    d.layout.overlap = TRUE;
    estimate_on (&d, &m, program, &with);
    d.layout.overlap = FALSE;
    estimate_on (&d, &m, program, &without);
    g_assert_true (is_at_most (with.step_time_s, without.step_time_s));
    g_assert_true (is_at_most (without.step_time_s, without.serial_s));
    g_assert_true (is_equal (with.serial_s, without.serial_s, 1e-9));
    estimate_report (&d, &m, &without);
    draw_clear (&d);
  }
  g_rand_free (rand);
}

/* --- allocations -------------------------------------------------------------------------------------------------- */

/* Once the program has its size nothing is allocated, whatever layout comes, checked, written and priced. */
static void
test_allocations (void)
{
#if !COUNTS_ALLOCATIONS
  g_test_skip ("allocations cannot be counted with this C library");
#else
  enum { N = 200 };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autofree Draw *draws = g_new (Draw, N);
  g_autofree Machine *machines = g_new (Machine, N);

  for (guint i = 0; i < N; i++) {
    draw_legal (rand, &any, &draws[i]);
    draw_machine (rand, sp_layout_world (&draws[i].layout, draws[i].arch), 0.1, &machines[i]);
  }
  g_autofree char *warm = g_strdup ("counts");
  allocations = 0;
  counting_allocations = TRUE;
  g_autofree char *counted = g_strdup (warm);
  counting_allocations = FALSE;
  g_assert_cmpuint (allocations, >=, 1);
  for (guint pass = 0; pass < 2; pass++) {
    allocations = 0;
    counting_allocations = TRUE;
    for (guint i = 0; i < N; i++) {
      const Draw *d = &draws[i];
      SpEstimate e;
      if (!sp_layout_check (&d->layout, d->arch, &d->framework, &d->run, 0, NULL))
        g_assert_not_reached ();
      estimate_on (d, &machines[i], program, &e);
    }
    counting_allocations = FALSE;
    g_test_message ("pass %u: %" G_GUINT64_FORMAT " allocations in %d layouts", pass, allocations, N);
  }
  g_assert_cmpuint (allocations, ==, 0);
  for (guint i = 0; i < N; i++)
    draw_clear (&draws[i]);
  g_rand_free (rand);
#endif
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  count_allocations_init ();
  g_test_add_func ("/estimate/bounds", test_bounds);
  g_test_add_func ("/estimate/bounds/shared", test_bounds_shared);
  g_test_add_func ("/estimate/cache", test_cache);
  g_test_add_func ("/estimate/monotone", test_monotone);
  g_test_add_func ("/estimate/overlap", test_overlap);
  g_test_add_func ("/estimate/allocations", test_allocations);
  return g_test_run ();
}
