/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/step-time.h"
#include "models/writer.h"
#include "sim/schedules.h"
#include "tests/random-machines.h"
#include "tests/schedule-walk.h"
#include "tests/small-models.h"

#include <string.h>

/* A step over pipeline stages against the pass of its schedule, any of them, walked slot by slot. */

#define MOST_STAGES 8
#define MOST_PARTS 36

/* Of each virtual stage. */
typedef struct {
  double of[MOST_PARTS][2][SP_N_SLOT_KINDS];
  double tail[MOST_STAGES], before[MOST_STAGES];
  gint32 meets[MOST_STAGES]; /* the stage that it shares an op of its tail with, or itself */
} Parts;

/* A list's ops that are flagged WEIGHT, or those that are not. */
static double
part_seconds (const SpCost *cost, const SpProgram *program, const SpBlock *block, gboolean weight)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_BACKWARD, &n);
  double sum = 0;

  for (guint i = 0; i < n; i++)
    if (((ops[i].flags & SP_OP_WEIGHT) != 0) == weight)
      sum += (ops[i].loop ? block->loops[ops[i].loop - 1].steps : 1) * sp_cost_op (cost, &ops[i]);
  return sum;
}

static void
add_block (const SpCost *cost, const SpProgram *program, guint b, gint32 at, Parts *parts)
{
  for (gint32 v = 0; v < program->n_variants; v++) {
    const SpBlock *block = &program->variants[v].blocks[b];
    double *of = parts->of[at][v], recompute = list_seconds (cost, program, block, SP_PHASE_RECOMPUTE, FALSE, 0);
    of[SP_SLOT_FORWARD] += list_seconds (cost, program, block, SP_PHASE_FORWARD, FALSE, 0);
    of[SP_SLOT_BACKWARD] += recompute + list_seconds (cost, program, block, SP_PHASE_BACKWARD, FALSE, 0);
    of[SP_SLOT_BACKWARD_INPUT] += recompute + part_seconds (cost, program, block, FALSE);
    of[SP_SLOT_BACKWARD_WEIGHT] += part_seconds (cost, program, block, TRUE);
  }
}

/* Blocks of a virtual stage, in the order of the model. */
static guint
blocks_of (const SpProgram *program, gint32 at, guint8 *ret)
{
  guint n = 0;

  if (at == 0)
    ret[n++] = 0;
  for (gint32 l = program->stage_first[at]; l < program->stage_first[at + 1]; l++)
    ret[n++] = program->layer_block[l];
  if (at == sp_program_virtual_stages (program) - 1)
    ret[n++] = (guint8) (program->n_blocks - 1);
  return n;
}

/* The lists of a stage's tail: its reductions from the model's last layer to its first, the optimizer. What comes
 * before the first op that it shares with another stage is `before`. */
static void
add_tail (const SpCost *cost, const SpProgram *program, gint32 s, Parts *parts)
{
  gint32 last = sp_program_virtual_stages (program) - 1, p = program->stages;
  gboolean met = FALSE;

  parts->meets[s] = s;
  for (gint32 at = last; at >= 0; at--)
    for (gint32 c = 0; c < program->chunks; c++) {
      guint8 blocks[16];
      guint n = blocks_of (program, at, blocks);
      for (guint i = n; i-- > 0 && sp_program_virtual_stage (program, s, c) == at;) {
        const SpBlock *block = &program->variants[0].blocks[blocks[i]];
        guint n_ops;
        const SpOp *ops = sp_program_segment (program, block, SP_PHASE_SYNC, &n_ops);
        for (guint o = 0; o < n_ops; o++) {
          met |= ops[o].group == SP_GROUP_TIE || ops[o].group == SP_GROUP_MIRROR;
          parts->tail[s] += sp_cost_op (cost, &ops[o]);
          parts->before[s] += met ? 0 : sp_cost_op (cost, &ops[o]);
        }
        parts->tail[s] += list_seconds (cost, program, block, SP_PHASE_OPTIMIZER, FALSE, 0);
      }
    }
  if (met)
    parts->meets[s] = p - 1 - s;
}

/* Slots by the schedule's table, on the same terms as slots_of. */
static void
parts_of (const SpCost *cost, const SpProgram *program, Parts *ret)
{
  gint32 n = sp_program_virtual_stages (program);

  memset (ret, 0, sizeof *ret);
  g_assert_cmpint (n, <=, MOST_PARTS);
  for (gint32 at = 0; at < n; at++) {
    guint8 blocks[16];
    guint n_blocks = blocks_of (program, at, blocks);
    for (guint i = 0; i < n_blocks; i++)
      add_block (cost, program, blocks[i], at, ret);
    for (gint32 v = 0; v < program->n_variants; v++) {
      const SpOp *gather = sp_program_pipe_gather (program, &program->variants[v]);
      double pipe = sp_cost_op (cost, &program->variants[v].pipe_send);
      pipe += gather != NULL ? sp_cost_op (cost, gather) : 0;
      ret->of[at][v][SP_SLOT_FORWARD] += at > 0 ? pipe : 0;
      ret->of[at][v][SP_SLOT_BACKWARD] += at < n - 1 ? pipe : 0;
      ret->of[at][v][SP_SLOT_BACKWARD_INPUT] += at < n - 1 ? pipe : 0;
    }
  }
  for (gint32 s = 0; s < program->stages; s++)
    add_tail (cost, program, s, ret);
}

static double
step_by_slots (const SpProgram *program, const Parts *parts)
{
  const SpSchedule *schedule = sp_schedule_get (program->schedule);
  gint32 p = program->stages, m = program->micro_batches, n = sp_program_virtual_stages (program);
  const SpPipeline pipeline = { p, program->chunks, m, program->n_variants > 1 };
  g_autofree double *forwards = g_new (double, n *m), *backwards = g_new (double, n *m);
  double *const done[2] = { forwards, backwards };
  g_autofree SpSlot *slots = g_new (SpSlot, sp_schedule_most_slots (&pipeline));
  double free_at[MOST_STAGES] = { 0 }, last = 0;
  guint at[MOST_STAGES] = { 0 };
  gboolean moved = TRUE;

  for (gint32 i = 0; i < 2 * n * m; i++)
    done[i / (n * m)][i % (n * m)] = NAN;
  while (moved) {
    moved = FALSE;
    for (gint32 s = 0; s < p; s++) {
      guint n_slots = schedule->fill (&pipeline, s, slots);
      for (; at[s] < n_slots; at[s]++, moved = TRUE) {
        const SpSlot *slot = &slots[at[s]];
        gint32 part = sp_program_virtual_stage (program, s, slot->chunk), i = slot->micro_batch;
        gboolean turns = part == n - 1;
        double ready = slot->kind == SP_SLOT_FORWARD           ? (part == 0 ? 0 : done[0][(part - 1) * m + i])
                       : slot->kind == SP_SLOT_BACKWARD_WEIGHT ? 0
                       : turns                                 ? done[0][part * m + i]
                                                               : done[1][(part + 1) * m + i];
        if (isnan (ready))
          break;
        free_at[s] = MAX (free_at[s], ready) + parts->of[part][program->n_variants == 2 && i == m - 1][slot->kind];
        if (slot->kind != SP_SLOT_BACKWARD_WEIGHT)
          done[slot->kind != SP_SLOT_FORWARD][part * m + i] = free_at[s];
      }
    }
  }
  for (gint32 s = 0; s < p; s++) {
    gint32 other = parts->meets[s];
    double begin = MAX (free_at[s] + parts->before[s], free_at[other] + parts->before[other]) - parts->before[s];
    last = MAX (last, begin + parts->tail[s]);
  }
  return last;
}

/* Schedules drawn at random over uneven stages, by their slots: exact as far as the estimate walks, and within what is
 * said beyond. Micro-batches up to `most` times 6 p. */
static double
compare_any (gint32 most, double tolerance, guint *ret_above)
{
  static const DrawLimits limits = {
    DRAW_ANY, FALSE, { 1, 1 }, { 1, 2 }, { 2, 6 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, TRUE
  };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  double worst = 0;

  for (guint i = 0; i < DRAWS; i++) {
    Draw d;
    Machine m;
    SpEstimate e;
    SpCost cost;
    Parts parts;
    draw_legal (rand, &limits, &d);
    d.framework.host_eager = FALSE;
    gint32 p = d.layout.pipeline, period = 2 * p, limit = (d.layout.schedule == ONE_F_ONE_B ? 2 * p + 2 : 6 * p) * most;
    gint32 micro_batches = MAX (period, draw_int (rand, 1, limit / period) * period);
    gboolean smaller = d.layout.schedule != DUALPIPE && draw_int (rand, 0, 1);
    d.run.global_batch = MIN (micro_batches, limit) * d.run.micro_batch;
    if (smaller)
      d.run.global_batch -= draw_int (rand, 0, d.run.micro_batch - 1);
    if (!sp_layout_check (&d.layout, d.arch, &d.framework, &d.run, 0, NULL)) {
      draw_clear (&d);
      continue;
    }
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    estimate_on (&d, &m, program, &e);
    sp_cost_init (&cost, &m.cluster, &d.framework);
    sp_cost_set_paths (&cost, &m.cluster, program);
    parts_of (&cost, program, &parts);
    double expected = step_by_slots (program, &parts), error = fabs (e.step_time_s - expected) / expected;
    *ret_above += !(error <= tolerance);
    if (error > tolerance && error > worst) {
      draw_describe (&d);
      g_test_message ("%d micro-batches%s: %.9g, by the slots %.9g, %.4f %% more", program->micro_batches,
                      program->n_variants == 2 ? ", the last one smaller" : "", e.step_time_s, expected,
                      100 * (e.step_time_s / expected - 1));
    }
    worst = MAX (worst, error);
    draw_clear (&d);
  }
  g_rand_free (rand);
  return worst;
}

static void
test_any_walked (void)
{
  check_walked (compare_any);
}

static void
test_any_extended (void)
{
  check_extended (compare_any, 10);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/step-schedules/walked", test_any_walked);
  g_test_add_func ("/step-schedules/extended", test_any_extended);
  return g_test_run ();
}
