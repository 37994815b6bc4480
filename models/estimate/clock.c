/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/clock.h"

#include <math.h>

/* What a micro-batch does on its way through all layers. */
typedef struct {
  double flops, bytes, seconds;
} Work;

static const SpPhase phases[] = { SP_PHASE_FORWARD, SP_PHASE_RECOMPUTE, SP_PHASE_BACKWARD };

static double
layers_of (const SpProgram *program, guint block)
{
  double n = block == 0 || block == program->n_blocks - 1;

  for (guint l = 0; l < program->n_layers; l++)
    n += program->layer_block[l] == block;
  return n;
}

static guint
runs_of (const SpBlock *block, const SpOp *op)
{
  const guint by_step = SP_GUARD_FIRST_STEP | SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP;
  gint32 steps = op->loop > 0 ? block->loops[op->loop - 1].steps : 1;
  guint runs = 0;

  for (gint32 step = 0; step < steps; step++)
    runs += sp_guard_holds (op->guard & by_step, 0, 1, step, steps) && sp_op_in_reach (op, step, steps);
  return runs;
}

static void
add_list (const SpProgram *program, const SpBlock *block, SpPhase phase, double times, Work *work)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);

  for (guint i = 0; i < n; i++) {
    if (sp_op_is_communication (ops[i].kind) || ops[i].flags & SP_OP_ON_HOST)
      continue;
    double runs = times * runs_of (block, &ops[i]);
    work->flops += runs * ops[i].flops;
    work->bytes += runs * (double) ops[i].bytes;
  }
}

/* At a clock; sets the prices of the blocks. */
static double
price_at (SpCost *cost, const SpProgram *program, gint32 variant, double clock, SpBlockWork *ret)
{
  double seconds = 0;

  cost->clock = clock;
  for (guint b = 0; b < program->n_blocks; b++) {
    sp_block_work (cost, program, &program->variants[variant].blocks[b], &ret[b]);
    seconds += layers_of (program, b) * (ret[b].forward.step + ret[b].recompute.step + ret[b].backward.step);
  }
  return seconds;
}

/* The clock at which as much work in so many seconds draws the limit; at most 1. */
static double
allowed (const SpCurve *power, const Work *work, double seconds)
{
  /* No card goes below: a third of the clock of an H200 is its 660 MHz. assumed */
  const double least = 1.0 / 3;
  double value[SP_CURVE_SLOTS];

  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    value[i] = power->value[i].value;
  double clock =
      sp_curve_power_clock (value, work->flops / seconds, work->bytes / seconds, power->value[SP_POWER_LIMIT].value);
  return CLAMP (clock, least, 1);
}

double
sp_clock_price (SpCost *cost, const SpProgram *program, gint32 variant, SpBlockWork *ret)
{
  enum { MOST_TURNS = 8 };
  const double before = cost->clock, close = 1e-4;
  Work work = { 0 };
  double high = 1, low, clock = 1;

  work.seconds = price_at (cost, program, variant, 1, ret);
  for (guint b = 0; cost->power != NULL && b < program->n_blocks; b++)
    for (guint p = 0; p < G_N_ELEMENTS (phases); p++)
      add_list (program, &program->variants[variant].blocks[b], phases[p], layers_of (program, b), &work);
  if (cost->power != NULL && work.flops > 0 && work.seconds > 0) {
    /* A lower clock takes longer, which allows a higher one: what is looked for lies between. */
    low = allowed (cost->power, &work, work.seconds);
    for (guint turn = 0; turn < MOST_TURNS && high - low > close; turn++) {
      clock = (low + high) / 2;
      double most = allowed (cost->power, &work, price_at (cost, program, variant, clock, ret));
      low = MAX (low, MIN (clock, most));
      high = MIN (high, MAX (clock, most));
    }
  }
  cost->clock = before;
  return clock;
}

double *
sp_clock_of_ops (const SpCost *cost, const SpProgram *program)
{
  double *clocks = g_new (double, MAX (program->n_ops, 1));

  for (guint i = 0; i < program->n_ops; i++)
    clocks[i] = 1;
  for (gint32 v = 0; v < program->n_variants; v++)
    for (guint b = 0; b < program->n_blocks; b++)
      for (guint p = 0; p < G_N_ELEMENTS (phases); p++) {
        guint n;
        const SpOp *ops = sp_program_segment (program, &program->variants[v].blocks[b], phases[p], &n);
        for (guint i = 0; i < n; i++)
          clocks[(ops - program->ops) + i] = sp_clock_of (cost, phases[p], v);
      }
  return clocks;
}
