/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/step-time.h"
#include "models/writer.h"
#include "sim/schedules.h"
#include "tests/random-machines.h"
#include "tests/schedule-walk.h"
#include "tests/small-models.h"

#include <string.h>

/* A step over pipeline stages against 1F1B's own pass, walked slot by slot, and by hand. Of other schedules:
 * tests/test-step-schedules.c. */

#define MOST_STAGES 8
#define MOST_MICRO_BATCHES 400

/* 1F1B by its definition: stage s runs p - 1 - s forwards ahead, then a forward and a backward in turn. A slot
 * starts when its stage is free and the neighbour's slot of that micro-batch is over. `small` slots are those of the
 * last micro-batch. When each stage is done: free_at. */
static void
one_f_one_b (gint32 p, gint32 m, double (*forward)[2], double (*backward)[2], gboolean small, double *free_at)
{
  static double f_end[MOST_STAGES][MOST_MICRO_BATCHES], b_end[MOST_STAGES][MOST_MICRO_BATCHES];
  gint32 f_next[MOST_STAGES] = { 0 }, b_next[MOST_STAGES] = { 0 };

  memset (free_at, 0, (gsize) p * sizeof *free_at);
  for (gint32 left = 2 * p * m; left > 0;) {
    gint32 before = left;
    for (gint32 s = 0; s < p; s++) {
      gint32 ahead = f_next[s] - b_next[s];
      gboolean runs_forward =
          f_next[s] < m && ahead < p - s && (ahead < p - 1 - s || f_next[s] == b_next[s] + p - 1 - s);
      gint32 i = runs_forward ? f_next[s] : b_next[s];
      gboolean ready = i < m && (runs_forward ? s == 0 || f_next[s - 1] > i
                                 : s == p - 1 ? f_next[s] > i
                                              : b_next[s + 1] > i);
      if (!ready)
        continue;
      double at = runs_forward ? (s == 0 ? 0 : f_end[s - 1][i]) : s == p - 1 ? f_end[s][i] : b_end[s + 1][i];
      gint32 v = small && i == m - 1;
      free_at[s] = MAX (free_at[s], at) + (runs_forward ? forward[s][v] : backward[s][v]);
      (runs_forward ? f_end : b_end)[s][i] = free_at[s];
      (*(runs_forward ? &f_next[s] : &b_next[s]))++;
      left--;
    }
    g_assert_cmpint (left, <, before);
  }
}

typedef struct {
  double forward[MOST_STAGES][2], backward[MOST_STAGES][2];
  double tail[MOST_STAGES];
  double tie;       /* the sum of the tied matrix's gradient over the two ends; 0: not tied */
  double before[2]; /* of the first and the last stage's tail, what comes before it */
} Slots;

/* Slots of a program whose stages are nothing but their layers and the message that they wait for: no data or sequence
 * ranks, no host. */
static void
slots_of (const SpCost *cost, const SpProgram *program, Slots *ret)
{
  memset (ret, 0, sizeof *ret);
  for (gint32 s = 0; s < program->stages; s++) {
    for (gint32 v = 0; v < program->n_variants; v++) {
      const SpOp *gather = sp_program_pipe_gather (program, &program->variants[v]);
      double pipe = sp_cost_op (cost, &program->variants[v].pipe_send);
      pipe += gather != NULL ? sp_cost_op (cost, gather) : 0;
      ret->forward[s][v] = s > 0 ? pipe : 0;
      ret->backward[s][v] = s < program->stages - 1 ? pipe : 0;
      for (guint b = 0; b < program->n_blocks; b++) {
        const SpBlock *block = &program->variants[v].blocks[b];
        double count = b == 0 ? s == 0 : b + 1 == program->n_blocks ? s == program->stages - 1 : 0;
        for (gint32 l = program->stage_first[s]; l < program->stage_first[s + 1]; l++)
          count += program->layer_block[l] == b;
        ret->forward[s][v] += count * list_seconds (cost, program, block, SP_PHASE_FORWARD, FALSE, 0);
        ret->backward[s][v] += count * (list_seconds (cost, program, block, SP_PHASE_RECOMPUTE, FALSE, 0) +
                                        list_seconds (cost, program, block, SP_PHASE_BACKWARD, FALSE, 0));
        if (v > 0)
          continue;
        double sync = list_seconds (cost, program, block, SP_PHASE_SYNC, FALSE, 0);
        ret->tail[s] += count * (sync + list_seconds (cost, program, block, SP_PHASE_OPTIMIZER, FALSE, 0));
        /* Last to first: the embedding's list comes last, the head's first. */
        if (s == 0)
          ret->before[0] += count * sync;
        else if (s == program->stages - 1 && b + 1 == program->n_blocks)
          ret->before[1] = sync;
        guint n;
        const SpOp *ops = sp_program_segment (program, block, SP_PHASE_SYNC, &n);
        for (guint i = 0; i < n; i++)
          if (ops[i].group == SP_GROUP_TIE)
            ret->tie = sp_cost_op (cost, &ops[i]);
      }
    }
  }
  /* It is the last op of both lists. */
  for (guint i = 0; i < 2; i++)
    ret->before[i] -= ret->tie;
}

/* Every stage goes on to its tail when it is done with its slots; the two ends of a tied model meet in it. */
static double
step_of (const SpProgram *program, Slots *slots)
{
  gint32 p = program->stages;
  double end[MOST_STAGES], last = 0;

  one_f_one_b (p, program->micro_batches, slots->forward, slots->backward, program->n_variants == 2, end);
  if (slots->tie > 0) {
    double met = MAX (end[0] + slots->before[0], end[p - 1] + slots->before[1]);
    end[0] = met - slots->before[0];
    end[p - 1] = met - slots->before[1];
  }
  for (gint32 s = 0; s < p; s++)
    last = MAX (last, end[s] + slots->tail[s]);
  return last;
}

/* Pipelines of uneven stages, up to `most` micro-batches for each 2 p + 2, against the schedule's own pass. */
static double
compare_schedules (gint32 most, double tolerance, guint *ret_above)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 1 }, { 1, 2 }, { 2, 6 }, { 1, 1 }, { 1, 1 }, { 1, 1 } };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  double worst = 0;

  for (guint i = 0; i < DRAWS; i++) {
    Draw d;
    Machine m;
    SpEstimate e;
    SpCost cost;
    Slots slots;
    draw_legal (rand, &limits, &d);
    d.framework.host_eager = FALSE;
    gint32 p = d.layout.pipeline, micro_batches = draw_int (rand, 1, most * (2 * p + 2));
    d.run.global_batch = micro_batches * d.run.micro_batch - draw_int (rand, 0, d.run.micro_batch - 1);
    if (d.run.micro_batch > d.run.global_batch)
      d.run.global_batch = d.run.micro_batch;
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    estimate_on (&d, &m, program, &e);
    sp_cost_init (&cost, &m.cluster, &d.framework);
    sp_cost_set_paths (&cost, &m.cluster, program);
    slots_of (&cost, program, &slots);
    double expected = step_of (program, &slots);
    double error = fabs (e.step_time_s - expected) / expected;
    *ret_above += !(error <= tolerance);
    if (error > tolerance && error > worst) {
      g_test_message ("%d stages, %d micro-batches%s: %.9g, by the schedule %.9g, %.4f %% more", p,
                      program->micro_batches, program->n_variants == 2 ? ", the last one smaller" : "", e.step_time_s,
                      expected, 100 * (e.step_time_s / expected - 1));
      for (gint32 s = 0; s < p; s++)
        g_test_message ("  stage %d: forward %.6g, backward %.6g, both %.6g", s, slots.forward[s][0],
                        slots.backward[s][0], slots.forward[s][0] + slots.backward[s][0]);
    }
    worst = MAX (worst, error);
    draw_clear (&d);
  }
  g_rand_free (rand);
  return worst;
}

static void
test_schedule_walked (void)
{
  check_walked (compare_schedules);
}

static void
test_schedule_extended (void)
{
  check_extended (compare_schedules, 20);
}

/* The first stage has the embedding and two layers, the last one a layer and the head, whose time grows with the
 * vocabulary: somewhere the last stage becomes the slowest, and near there it takes many micro-batches until the
 * slowest stage's period is that of the step. */
static void
test_schedule_crossing (void)
{
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  GRand *rand = g_rand_new_with_seed (1);
  SpEstimator estimator;
  SpCost cost;
  Machine m;
  double worst = 0;
  gboolean first_slower = FALSE, last_slower = FALSE;

  draw_machine (rand, 4, 0, &m);
  g_rand_free (rand);
  arch->layers = 5;
  arch->heads = arch->kv_heads = 8;
  arch->head_size = 64;
  arch->hidden = 512;
  arch->ffn = 2048;
  for (arch->vocabulary = 2000; arch->vocabulary <= 40000; arch->vocabulary += 250) {
    SpLayout layout = SP_LAYOUT_DEFAULT;
    SpRun run = { 4096, 1, MOST_MICRO_BATCHES, SP_DTYPE_BF16, TRUE };
    SpEstimate e;
    Slots slots;
    layout.pipeline = 4;
    g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 4, NULL));
    sp_estimator_init (&estimator, arch, &m.cluster, &framework, SP_MFU_SEQPAR);
    sp_estimate_layout (&estimator, program, &layout, &run, &e);
    sp_cost_init (&cost, &m.cluster, &framework);
    sp_cost_set_paths (&cost, &m.cluster, program);
    slots_of (&cost, program, &slots);
    double expected = step_of (program, &slots);
    double first = slots.forward[0][0] + slots.backward[0][0], last = slots.forward[3][0] + slots.backward[3][0];
    first_slower |= first > last;
    last_slower |= last > first;
    if (fabs (e.step_time_s / expected - 1) > worst) {
      worst = fabs (e.step_time_s / expected - 1);
      g_test_message ("vocabulary %d: first stage %.6g s, last %.6g; step %.9g, by the schedule %.9g, %.4f %% more",
                      arch->vocabulary, first, last, e.step_time_s, expected, 100 * (e.step_time_s / expected - 1));
    }
  }
  g_assert_true (first_slower && last_slower);
  g_assert_true (worst <= 1e-3);
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* Nothing takes time but FLOP and bytes on links. */
static SpDevice
device_of (double flops_per_s, double link_bytes_per_s)
{
  return (SpDevice){ .peak_bf16_flops_per_s = { flops_per_s },
                     .memory_bytes = { 80e9 },
                     .memory_bytes_per_s = { 1e20 },
                     .sms = { 100 },
                     .gemm_efficiency = { 1 },
                     .attention_efficiency = { 1 },
                     .attention_backward_efficiency = { 1 },
                     .linear_efficiency = { 1 },
                     .memory_efficiency = { 1 },
                     .link_bytes_per_s = { link_bytes_per_s } };
}

/* p equal stages of the work of layers alone (memory, links and launches free, a vocabulary of one word): a step is
 * m + p - 1 slots, the bubble (p - 1) / m of the busy time. From a micro-batch to the next it grows by one slot. */
static void
test_bubble (void)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpDevice device = device_of (1e14, 1e20);
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 8, .link_efficiency = { 1 } };
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  SpEstimator estimator;

  arch->layers = 24;
  arch->heads = arch->kv_heads = 16;
  arch->head_size = 128;
  arch->hidden = 2048;
  arch->ffn = 8192;
  arch->vocabulary = 1;
  sp_estimator_init (&estimator, arch, &cluster, &framework, SP_MFU_SEQPAR);
  for (gint32 p = 2; p <= 8; p *= 2) {
    double times[4], slot = 0;
    for (gint32 m = 1; m <= 64; m++) {
      SpLayout layout = SP_LAYOUT_DEFAULT;
      SpRun run = { 2048, 1, m, SP_DTYPE_BF16, TRUE };
      SpEstimate e;
      layout.pipeline = p;
      g_assert_true (sp_layout_check (&layout, arch, &framework, &run, p, NULL));
      sp_estimate_layout (&estimator, program, &layout, &run, &e);
      if (m == 1)
        slot = e.step_time_s / p;
      g_assert_true (is_equal (e.step_time_s, (m + p - 1) * slot, 0.01));
      double bubble = e.bubble_s / (e.step_time_s - e.bubble_s), expected = (p - 1.0) / m;
      g_assert_true (is_equal (bubble, expected, 0.02));
      const SpPipeline pipeline = { p, 1, m, FALSE };
      g_assert_cmpfloat (sp_schedule_get (layout.schedule)->bubble (&pipeline, 1, 1, 1), ==, expected);
      times[m % 4] = e.step_time_s;
      if (m > 2)
        g_assert_true (is_equal (times[m % 4] - times[(m - 1) % 4], times[(m - 1) % 4] - times[(m - 2) % 4], 0.01));
    }
  }
}

/* What a step's gradient reduction holds up: a stage of one layer, tensor 2, data 2, on links of 1 GB/s where nothing
 * else takes time. A: an all-reduce of s h values over two ranks, as long as the message of as many. Beside the last
 * backward of stage 1: all-reduces of D, the bytes of the layer's (4 + 8) h^2 / 2 gradients. They share links with two
 * all-reduces of the layer's backward, one of the head's and the message to stage 0, 4 A. So stage 0, and the step, may
 * be over min (D, 4 A) later than without overlap: in `high` alone. h = 1024: D = 12.58 ms, A = 2.048 us x s. */
static void
test_held_up (void)
{
  static const struct {
    gint64 sequence;
    double held_up_s;
  } cases[] = { { 256, 4 * 256 * 2.048e-6 }, { 8192, 12.583e-3 } };
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = { .name = (char *) "test", .fused_attention = TRUE };
  SpDevice device = device_of (1e22, 1e9);
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 8, .link_efficiency = { 1 } };
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  SpEstimator estimator;

  arch->layers = 2;
  arch->heads = arch->kv_heads = 8;
  arch->head_size = 128;
  arch->hidden = 1024;
  arch->ffn = 4096;
  arch->vocabulary = 2;
  arch->mlp = SP_MLP_GELU;
  sp_estimator_init (&estimator, arch, &cluster, &framework, SP_MFU_SEQPAR);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    SpRun run = { cases[i].sequence, 1, 2, SP_DTYPE_BF16, TRUE };
    SpEstimate of[2];
    for (guint overlap = 0; overlap < 2; overlap++) {
      SpLayout layout = LAYOUT (.data = 2, .tensor = 2, .pipeline = 2, .gradient_dtype = SP_DTYPE_BF16,
                                .sequence_regions = FALSE, .zero = 0, .overlap = overlap);
      g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 8, NULL));
      sp_estimate_layout (&estimator, program, &layout, &run, &of[overlap]);
    }
    g_test_message ("high %.6g, %.6g s without overlap", of[1].high_s, of[0].high_s);
    g_assert_true (is_equal (of[1].high_s - of[0].high_s, cases[i].held_up_s, 0.005));
    g_assert_true (is_equal (of[1].serial_s, of[0].serial_s, 1e-12));
    g_assert_true (of[1].step_time_s <= of[0].step_time_s);
  }
}

/*
 * Neighbours of unlike kinds: embedding, A B B A, head. Seconds:
 *               forward  backward  gather  scatter
 *   embedding      1        1         1       1
 *   A             10       20         1       2
 *   B              2        4         9       8
 *   head           3        6         2       3
 * Forward: the embedding's gather in the open, 1; then each block with the next one's gather beside it:
 *   1 | 1, 10 | 9, 2 | 9, 2 | 1, 10 | 2, 3                        28 s of kernels, 7 more for B beside B      36 in all
 * Backward: the head's gather, 2; each block with the gather of the one below and the scatter of the one above:
 *   6 | 1, 20 | 9 + 3, 4 | 9 + 2, 4 | 1 + 8, 20 | 1 + 8, 1 | 2   55, and 7, 5 and 1; the embedding's scatter, 1   71
 */
static void
test_unlike_neighbours (void)
{
  static const double forward[] = { 1, 10, 2, 3 }, backward[] = { 1, 20, 4, 6 }, gather[] = { 1, 1, 9, 2 },
                      scatter[] = { 1, 2, 8, 3 };
  guint8 layer_block[] = { 1, 2, 2, 1 };
  gint32 stage_first[] = { 0, 4 };
  g_autoptr (SpProgram) program = sp_program_new ();
  SpBlockWork *work = g_new0 (SpBlockWork, 4);
  SpBlockState *state = g_new0 (SpBlockState, 4);
  SpCost cost = { .slowdown = 0 };
  const SpEstimateContext e = { .cost = &cost, .program = program, .work = { work }, .state = state };
  SpSlotTime slots[2][SP_N_SLOT_KINDS];
  SpPartTime part = { .slots = slots };

  program->stages = program->chunks = program->micro_batches = program->n_variants = 1;
  program->n_blocks = 4;
  program->n_layers = 4;
  program->layer_block = g_memdup2 (layer_block, sizeof layer_block);
  program->stage_first = g_memdup2 (stage_first, sizeof stage_first);
  for (guint b = 0; b < 4; b++) {
    work[b].forward = (SpListTime){ .step = forward[b], .serial = forward[b] };
    work[b].backward = (SpListTime){ .step = backward[b], .serial = backward[b] };
    state[b].gather = (SpListTime){ .serial = gather[b], .data_async = gather[b] };
    state[b].sync_each = (SpListTime){ .serial = scatter[b], .data_async = scatter[b] };
    state[b].gathers_again = TRUE;
  }
  sp_part_estimate (&e, 0, &part);
  g_assert_cmpfloat (part.slots[0][SP_SLOT_FORWARD].step, ==, 36);
  g_assert_cmpfloat (part.slots[0][SP_SLOT_FORWARD].exposed[SP_AXIS_DATA], ==, 8);
  g_assert_cmpfloat (part.slots[0][SP_SLOT_BACKWARD].step, ==, 71);
  g_assert_cmpfloat (part.slots[0][SP_SLOT_BACKWARD].exposed[SP_AXIS_DATA], ==, 16);
  g_free (work);
  g_free (state);
}

/*
 * Embedding, A, A, head; no pipeline, and no slowdown. Seconds of each block: forward 1, backward 10, gradients'
 * scatter 6; once a step, as over the copies of a hybrid shard, 8 more, of the embedding 1.
 *   backward  40 of kernels with three scatters beside them, the embedding's in the open: 46, in which the stream that
 *             scatters works 24 and is idle 22
 *   once      24 beside the last backward, of which 22 find room; 2 and the embedding's 1 in the open
 * One micro-batch: 4 + 46 + 3. The stream alone has 24 + 25 to do.
 */
static void
test_reduction_beside_scatters (void)
{
  guint8 layer_block[] = { 1, 1 };
  gint32 stage_first[] = { 0, 2 };
  g_autoptr (SpProgram) program = sp_program_new ();
  SpBlockWork *work = g_new0 (SpBlockWork, 3);
  SpBlockState *state = g_new0 (SpBlockState, 3);
  SpCost cost = { .slowdown = 0 };
  const SpEstimateContext e = { .cost = &cost, .program = program, .work = { work }, .state = state };
  SpEstimate estimate = { 0 };

  program->stages = program->chunks = program->micro_batches = program->n_variants = 1;
  program->n_blocks = 3;
  program->n_layers = 2;
  program->layer_block = g_memdup2 (layer_block, sizeof layer_block);
  program->stage_first = g_memdup2 (stage_first, sizeof stage_first);
  for (guint b = 0; b < 3; b++) {
    double once = b == 0 ? 1 : 8;
    work[b].forward = (SpListTime){ .step = 1, .serial = 1 };
    work[b].backward = (SpListTime){ .step = 10, .serial = 10 };
    state[b].sync_each = (SpListTime){ .serial = 6, .data_async = 6, .axes = { [SP_AXIS_DATA] = 6 } };
    state[b].sync_once = (SpListTime){ .serial = once, .data_async = once, .axes = { [SP_AXIS_DATA] = once } };
  }
  sp_estimate_time (&e, &estimate);
  g_assert_cmpfloat (estimate.step_time_s, ==, 53);
  g_assert_cmpfloat (estimate.low_s, ==, 49);
  g_assert_cmpfloat (estimate.axes[SP_AXIS_DATA].exposed_s, ==, 9);
  g_free (work);
  g_free (state);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/step/walked", test_schedule_walked);
  g_test_add_func ("/step/extended", test_schedule_extended);
  g_test_add_func ("/step/crossing", test_schedule_crossing);
  g_test_add_func ("/step/bubble", test_bubble);
  g_test_add_func ("/step/held-up", test_held_up);
  g_test_add_func ("/step/reduction-beside-scatters", test_reduction_beside_scatters);
  g_test_add_func ("/step/unlike-neighbours", test_unlike_neighbours);
  return g_test_run ();
}
