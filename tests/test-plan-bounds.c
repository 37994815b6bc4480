/* SPDX-License-Identifier: Apache-2.0 */
#include "models/plan/plan-private.h"
#include "tests/small-models.h"

#include <math.h>
#include <string.h>

/* Branch and bound against brute force over the whole space of small random questions: every layout is estimated, every
 * bound above it is held to what it bounds, and the best of all are those of the search. */

#define SPACES 50
#define ROUNDING 1e-9

typedef struct {
  SpArchitecture *arch;
  SpDevice device;
  SpCluster cluster;
  SpFramework framework;
  SpEstimator estimator;
  SpPlanQuestion question;
} World;

static void
world_init (World *w, GRand *rand)
{
  static const SmallModel models[] = {
    SMALL_SOFTMAX, SMALL_GQA, SMALL_HYBRID, SMALL_LINEAR, SMALL_TIED, SMALL_EXPERTS
  };

  memset (w, 0, sizeof *w);
  w->arch = small_model (models[g_rand_int_range (rand, 0, G_N_ELEMENTS (models))]);
  w->framework = small_framework (TRUE);
  w->device = small_device (pow (10, g_rand_double_range (rand, 5.7, 8)));
  w->cluster = small_cluster (&w->device, g_rand_int_range (rand, 1, 3), 2);
  if (g_rand_boolean (rand)) {
    w->cluster.host_bytes_per_s.value = 2e10;
    w->cluster.host_memory_bytes_per_s.value = 1e11;
  }
  sp_estimator_init (&w->estimator, w->arch, &w->cluster, &w->framework, SP_MFU_SEQPAR);
  w->question = (SpPlanQuestion){ .sequence = 1024 << g_rand_int_range (rand, 0, 7),
                                  .global_batch = g_rand_int_range (rand, 1, 5),
                                  .top = 5,
                                  .causal = TRUE,
                                  .threads = 1,
                                  .figure = g_rand_int_range (rand, 0, 2),
                                  .base = SP_LAYOUT_DEFAULT };
  w->framework.chunks_loss = g_rand_boolean (rand);
}

typedef struct {
  World *w;
  const SpPlanSpace *space;
  SpPlanWorker *worker;
  const SpPlanUnit *unit;
  SpPlanPoint point;
  SpPlanBound work, bound;
  double micro_batch_s; /* of the work at hand on all stages; 0: not known */
  double headless_s;    /* with its loss whole, but for its head */
  double forward_share;
  guint placement;
  gint64 layouts, legal, chunked;
  SpPlanKept kept;
} Brute;

static void
hold (Brute *b, const char *what, double bound, double value)
{
  if (bound * (1 - ROUNDING) <= value)
    return;
  g_autofree char *text = sp_layout_describe (&b->point.layout, b->w->arch);
  g_test_message ("%s: %.12g is bounded by %.12g: %s, micro-batch %d", what, value, bound, text,
                  b->point.run.micro_batch);
  g_test_fail ();
}

/* With its loss whole, but for its head, no micro-batch takes longer; `share` of it some stage has. */
static void
hold_headless_work (Brute *b, double share, double seconds)
{
  if (b->point.layout.loss != b->w->question.base.loss)
    hold (b, "micro-batch but for the head", share * b->headless_s, seconds);
}

/* Bounds of a layout that know its states, and those of parts that its states are in. */
static void
hold_states (Brute *b, const SpPlanEntry *entry)
{
  SpEstimator *estimator = &b->worker->estimator;
  SpPlanFigure figure = b->w->question.figure;
  double seconds = sp_plan_entry_s (entry, figure), share;
  SpPlanEntry floor = *entry, plain = *entry;
  SpEstimateContext e;

  sp_estimate_context (estimator, b->worker->program, &entry->layout, &entry->run, &e);
  sp_estimate_time_floor (&e, &floor.estimate);
  hold (b, "floor", sp_plan_entry_s (&floor, figure), seconds);
  hold (b, "floor's low", floor.estimate.low_s, entry->estimate.low_s);
  share = sp_plan_least_stage (b->space, &b->unit->placements[b->placement], entry->run.micro_batch,
                               sp_schedule_get (entry->layout.schedule), b->forward_share);
  hold (b, "kind of schedule", share * b->micro_batch_s, seconds);
  hold_headless_work (b, share, seconds);
  plain.layout.zero = plain.layout.zero_group = plain.layout.offload = 0;
  sp_estimate_works (estimator, b->worker->program, &plain.layout, &plain.run, &e);
  sp_estimate_time_of_works (estimator, &e, &floor.estimate);
  hold (b, "schedule and messages", sp_plan_entry_s (&floor, figure), seconds);
  plain.layout = entry->layout;
  plain.layout.offload = 0;
  if (!sp_layout_check (&plain.layout, b->w->arch, &b->w->framework, &plain.run, b->space->gpus, NULL))
    return;
  sp_estimate_context (estimator, b->worker->program, &plain.layout, &plain.run, &e);
  sp_estimate_time_without_optimizer (&e, &floor.estimate);
  hold (b, "whatever is offloaded", sp_plan_entry_s (&floor, figure), seconds);
}

/* What the search takes for granted of a loss in chunks where a bound with the loss whole says that it is too slow: that no
 * other head takes more from that than the head's own time. */
static void
hold_headless (Brute *b, const SpPlanEntry *entry)
{
  SpEstimator *estimator = &b->worker->estimator;
  SpPlanFigure figure = b->w->question.figure;
  double seconds = sp_plan_entry_s (entry, figure);
  SpPlanPoint whole = { entry->layout, entry->run };
  SpPlanEntry floor;
  SpEstimateContext e;
  SpPlanBound bound;

  if (entry->layout.loss == b->w->question.base.loss)
    return;
  whole.layout.loss = b->w->question.base.loss;
  sp_estimate_context (estimator, b->worker->program, &whole.layout, &whole.run, &e);
  sp_plan_bound_work (&e, &b->w->framework, figure, &bound);
  hold (b, "schedule but for the head", bound.step_s - bound.head_s, seconds);
  gint32 micro_batches = entry->run.global_batch / entry->layout.data / entry->run.micro_batch;
  hold (b, "its kernels", bound.low_s - MAX (0, bound.head_low_s - micro_batches * b->unit->chunked_low_s),
        b->bound.low_s);
  sp_estimate_time_floor (&e, &floor.estimate);
  hold (b, "floor but for the head", sp_plan_entry_s (&floor, figure) - bound.head_s, seconds);
  whole.layout.offload = 0;
  if (sp_plan_is_legal (b->space, &whole)) {
    sp_estimate_context (estimator, b->worker->program, &whole.layout, &whole.run, &e);
    sp_estimate_time_without_optimizer (&e, &floor.estimate);
    hold (b, "whatever is offloaded but for the head", sp_plan_entry_s (&floor, figure) - bound.head_s, seconds);
  }
  whole.layout.zero = whole.layout.zero_group = 0;
  sp_estimate_works (estimator, b->worker->program, &whole.layout, &whole.run, &e);
  sp_estimate_time_of_works (estimator, &e, &floor.estimate);
  hold (b, "schedule and messages but for the head", sp_plan_entry_s (&floor, figure) - bound.head_s, seconds);
}

static void
hold_state_bytes (Brute *b, const SpPlanEntry *entry, double bytes)
{
  SpPlanPoint least = { entry->layout, entry->run };
  gboolean has_host = b->w->cluster.host_bytes_per_s.value > 0;
  guint8 most = (guint8) (SP_OFFLOAD_OPTIMIZER | (entry->layout.zero == 3 ? SP_OFFLOAD_PARAMETERS : 0));

  for (guint i = 0; i < 2; i++) {
    least.layout.offload = has_host ? most : 0;
    double state = (double) sp_estimate_state_bytes (&b->worker->bytes, b->worker->program, &least.layout, &least.run) *
                   (1 + b->w->framework.allocator_slack.value);
    hold (b, i == 0 ? "bytes of states off the GPU" : "and over all ranks", state, bytes);
    least.layout.zero_group = 0;
  }
}

/* A loss in chunks is a layout's that does not fit without. */
static gboolean
is_of_use (Brute *b, const SpPlanEntry *entry)
{
  SpPlanEntry whole = *entry;

  if (entry->layout.loss == b->w->question.base.loss)
    return TRUE;
  whole.layout.loss = b->w->question.base.loss;
  sp_estimate_layout (&b->worker->estimator, b->worker->program, &whole.layout, &whole.run, &whole.estimate);
  return sp_plan_entry_lacks (&whole) > 0;
}

static void
try_layout (Brute *b)
{
  SpPlanEntry entry = { .layout = b->point.layout, .run = b->point.run };
  SpEstimator *estimator = &b->worker->estimator;
  SpPlanFigure figure = b->w->question.figure;

  b->layouts++;
  if (!sp_plan_is_legal (b->space, &b->point))
    return;
  b->legal++;
  sp_estimate_layout (estimator, b->worker->program, &entry.layout, &entry.run, &entry.estimate);
  double seconds = sp_plan_entry_s (&entry, figure), bytes = entry.estimate.memory.total_bytes;
  hold (b, "unit", b->unit->step_s, seconds);
  hold (b, "work", b->work.step_s, seconds);
  hold (b, "schedule", b->bound.step_s, seconds);
  if (!(entry.layout.offload & SP_OFFLOAD_ACTIVATIONS)) {
    hold (b, "work's bytes", b->work.bytes, bytes);
    hold (b, "schedule's bytes", b->bound.bytes, bytes);
  }
  double state = (double) sp_estimate_state_bytes (&b->worker->bytes, b->worker->program, &entry.layout, &entry.run) *
                 (1 + b->w->framework.allocator_slack.value);
  hold (b, "states' bytes", entry.layout.offload & SP_OFFLOAD_ACTIVATIONS ? state : state + b->bound.bytes, bytes);
  hold_states (b, &entry);
  hold_headless (b, &entry);
  hold_state_bytes (b, &entry, bytes);
  SpMemory memory;
  sp_estimate_bytes (&b->worker->bytes, b->worker->program, &entry.layout, &entry.run, &memory);
  g_assert_cmpfloat (memory.total_bytes, ==, bytes);
  if (!is_of_use (b, &entry))
    return;
  b->chunked += entry.layout.loss == SP_LOSS_CHUNKED;
  if (entry.estimate.fits)
    sp_plan_kept_fits (&b->kept, &entry);
  else if (sp_plan_entry_lacks (&entry) > 0)
    sp_plan_kept_misses (&b->kept, &entry);
}

/* The bounds of a point, as far as it is legal there. */
static void
bound_point (Brute *b, SpPlanLevel level)
{
  SpPlanPoint plain = b->point;
  SpEstimateContext e;

  plain.layout.zero = plain.layout.zero_group = plain.layout.offload = 0;
  SpPlanBound *ret = level == SP_PLAN_WORK ? &b->work : &b->bound;
  *ret = (SpPlanBound){ 0 };
  if (level == SP_PLAN_WORK) {
    b->micro_batch_s = b->headless_s = 0;
    b->forward_share = 1;
    if (plain.layout.recompute_every > 1) /* no quicker than with none */
      plain.layout.recompute = SP_RECOMPUTE_NONE;
    plain.layout.recompute_every = 1;
  }
  if (level == SP_PLAN_WORK) {
    plain.layout.schedule = plain.layout.stage_split[0] = 0;
    plain.layout.virtual_stages = 1;
  }
  if (!sp_plan_is_legal (b->space, &plain))
    return;
  sp_estimate_works (&b->worker->estimator, b->worker->program, &plain.layout, &plain.run, &e);
  if (level == SP_PLAN_SCHEDULE) {
    sp_plan_bound_work (&e, &b->w->framework, b->w->question.figure, ret);
    return;
  }
  sp_plan_bound_micro_batch (&e, &b->w->framework, b->w->question.figure, b->unit->most_stages, ret);
  plain.layout.loss = b->w->question.base.loss;
  if (plain.layout.loss != b->point.layout.loss) {
    SpPlanBound whole;
    sp_estimate_works (&b->worker->estimator, b->worker->program, &plain.layout, &plain.run, &e);
    sp_plan_bound_micro_batch (&e, &b->w->framework, b->w->question.figure, b->unit->most_stages, &whole);
    b->headless_s = whole.step_s - whole.head_s;
  }
  b->micro_batch_s = ret->step_s;
  b->forward_share = ret->forward_share;
  ret->step_s *= b->unit->least_share;
  if (b->point.layout.recompute_every > 1)
    ret->bytes = 0;
}

static void
go_through (Brute *b, SpPlanLevel level, guint row)
{
  row = sp_plan_next_row (level, row);
  if (row < SP_N_PLAN_DIMENSIONS) {
    for (guint i = 0; sp_plan_set (b->space, row, i, &b->point); i++)
      go_through (b, level, row + 1);
    return;
  }
  if (level == SP_PLAN_STATE) {
    try_layout (b);
    return;
  }
  SpPlanPoint here = b->point;
  if (level != SP_PLAN_LOSS)
    bound_point (b, level);
  go_through (b, level + 1, 0);
  b->point = here;
}

static void
brute_force (Brute *b, const SpPlanUnits *units, double core_s)
{
  for (guint u = 0; u < units->units->len; u++) {
    SpPlanUnit *unit = &g_array_index (units->units, SpPlanUnit, u);
    sp_plan_unit_bound (&b->worker->estimator, b->worker->program, b->space, core_s, unit);
    b->unit = unit;
    for (guint p = 0; p < unit->n; p++) {
      b->point = unit->point;
      b->placement = p;
      sp_plan_place (unit, p, &b->point);
      go_through (b, SP_PLAN_LOSS, 0);
    }
  }
}

static void
compare (const Brute *b, const SpPlan *plan)
{
  SpPlanFigure figure = b->w->question.figure;
  const SpPlanEntry *nearest = sp_plan_kept_nearest (&b->kept);

  g_assert_cmpuint (plan->entries->len, ==, b->kept.best->len);
  for (guint i = 0; i < MIN (plan->entries->len, b->kept.best->len); i++)
    g_assert_cmpfloat (sp_plan_entry_s (&g_array_index (plan->entries, SpPlanEntry, i), figure), ==,
                       sp_plan_entry_s (&g_array_index (b->kept.best, SpPlanEntry, i), figure));
  g_assert_cmpint (plan->has_nearest, ==, nearest != NULL);
  if (nearest != NULL && plan->has_nearest)
    g_assert_cmpfloat (sp_plan_entry_lacks (&plan->nearest), ==, sp_plan_entry_lacks (nearest));
}

static void
test_space (gconstpointer data)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (GPOINTER_TO_UINT (data));
  g_autoptr (GError) error = NULL;
  SpPlanSpace space;
  SpPlanUnits units;
  World w;

  world_init (&w, rand);
  if (GPOINTER_TO_UINT (data) % 3 == 0)
    w.question.base.slices = 2 << GPOINTER_TO_UINT (data) / 3 % 3;
  sp_plan_space_init (&space, &w.estimator, &w.question);
  sp_plan_units_init (&units, &space);
  Brute b = { .w = &w, .space = &space, .worker = sp_plan_worker_new (&w.estimator) };
  sp_plan_kept_init (&b.kept, w.question.figure, w.question.top);
  double core_s = sp_plan_core_floor (&b.worker->estimator, b.worker->program, &space.run);
  brute_force (&b, &units, core_s);
  g_assert_cmpint (units.candidates - units.refused, ==, b.layouts);

  g_autoptr (SpPlan) plan = sp_plan (&w.estimator, &w.question, &error);
  if (plan != NULL) {
    g_test_message (
        "seed %u: %" G_GINT64_FORMAT " layouts, %" G_GINT64_FORMAT " legal, %" G_GINT64_FORMAT " fit, %" G_GINT64_FORMAT
        " of use have a loss in chunks; the search: %" G_GINT64_FORMAT " estimated, %" G_GINT64_FORMAT " pruned",
        GPOINTER_TO_UINT (data), plan->candidates, b.legal, b.kept.fitting, b.chunked, plan->estimated, plan->pruned);
    compare (&b, plan);
  } else
    g_assert_cmpint (b.legal, ==, 0);
  sp_plan_worker_free (b.worker);
  sp_plan_kept_clear (&b.kept);
  sp_plan_units_clear (&units);
  sp_architecture_free (w.arch);
}

/* Counts and layouts do not depend on how many threads there are. */
static void
test_threads (void)
{
  for (guint seed = 1; seed <= 5; seed++) {
    g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
    World w;
    world_init (&w, rand);
    g_autoptr (SpPlan) one = sp_plan (&w.estimator, &w.question, NULL);
    w.question.threads = 3;
    g_autoptr (SpPlan) three = sp_plan (&w.estimator, &w.question, NULL);
    g_assert_true ((one != NULL) == (three != NULL));
    if (one != NULL && three != NULL) {
      g_assert_cmpmem (one->entries->data, one->entries->len * sizeof (SpPlanEntry), three->entries->data,
                       three->entries->len * sizeof (SpPlanEntry));
      g_assert_cmpint (one->pruned, ==, three->pruned);
      g_assert_cmpint (one->estimated, ==, three->estimated);
      g_assert_cmpfloat (one->least_low_s, ==, three->least_low_s);
    }
    sp_architecture_free (w.arch);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint seed = 1; seed <= SPACES; seed++) {
    g_autofree char *path = g_strdup_printf ("/plan-bounds/seed-%u", seed);
    g_test_add_data_func (path, GUINT_TO_POINTER (seed), test_space);
  }
  g_test_add_func ("/plan-bounds/threads", test_threads);
  return g_test_run ();
}
