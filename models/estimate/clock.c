/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/clock.h"

#include <math.h>

#include "models/estimate/slowest.h"

/* What a micro-batch does on its way through all layers; of a card that draws more for it, so much more. */
typedef struct {
  double flops, bytes;
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

/* No card goes below: 660 of the 1,980 MHz of an H200. assumed */
#define LEAST (1.0 / 3)

/* The clock at which as much work in so many seconds draws the limit; at most 1. */
static double
allowed (const SpCurve *power, const Work *work, double seconds)
{
  double value[SP_CURVE_SLOTS];

  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    value[i] = power->value[i].value;
  return CLAMP (sp_curve_power_clock (value, work->flops / seconds, work->bytes / seconds, value[SP_POWER_LIMIT]),
                LEAST, 1);
}

/* A clock and what the work takes at it. */
typedef struct {
  double clock, seconds;
} At;

/* Where it meets the limit between two clocks, if seconds go with 1 / clock between them. */
static double
between (const SpCurve *power, const Work *work, At low, At high)
{
  enum { HALVINGS = 30 };
  double from = low.clock, to = high.clock;

  for (guint i = 0; i < HALVINGS; i++) {
    double clock = (from + to) / 2;
    double share = (1 / clock - 1 / high.clock) / (1 / low.clock - 1 / high.clock);
    double seconds = high.seconds + share * (low.seconds - high.seconds);
    *(allowed (power, work, seconds) < clock ? &to : &from) = clock;
  }
  return (from + to) / 2;
}

/* A lower clock takes longer, which allows a higher one: what is looked for lies between what the seconds at 1 allow and
 * 1. Prices are those of the clock that is returned. */
static double
look_for (SpCost *cost, const SpProgram *program, gint32 variant, const Work *work, double seconds, SpBlockWork *ret)
{
  enum { MOST_TURNS = 6 };
  const double close = 3e-4;
  At high = { 1, seconds }, low = { allowed (cost->power, work, seconds), 0 };
  double clock = low.clock;

  if (clock == 1)
    return 1;
  low.seconds = price_at (cost, program, variant, clock, ret);
  for (guint turn = 0; turn < MOST_TURNS && high.clock - low.clock > close; turn++) {
    clock = between (cost->power, work, low, high);
    double at_s = price_at (cost, program, variant, clock, ret), most = allowed (cost->power, work, at_s);
    if (fabs (most / clock - 1) < close)
      break;
    *(most < clock ? &high : &low) = (At){ clock, at_s };
  }
  return clock;
}

double
sp_clock_energy (const SpCurve *power, gint32 gpus)
{
  double spread = power->value[SP_POWER_SPREAD].value;

  return spread > 0 ? exp (spread * sp_slowest_of (gpus).mean) : 1;
}

/* Kept, as a search asks for the same number of cards again and again. */
static double
energy_of (SpCost *cost, const SpProgram *program)
{
  if (cost->gpus != program->world) {
    cost->gpus = program->world;
    cost->energy = sp_clock_energy (cost->power, program->world);
  }
  return cost->energy;
}

double
sp_clock_price (SpCost *cost, const SpProgram *program, gint32 variant, SpBlockWork *ret)
{
  const double before = cost->clock;
  double clock = 1, seconds = price_at (cost, program, variant, 1, ret);
  Work work = { 0 };

  for (guint b = 0; cost->power != NULL && b < program->n_blocks; b++)
    for (guint p = 0; p < G_N_ELEMENTS (phases); p++)
      add_list (program, &program->variants[variant].blocks[b], phases[p], layers_of (program, b), &work);
  if (work.flops > 0 && seconds > 0) {
    double energy = energy_of (cost, program);
    work.flops *= energy;
    work.bytes *= energy;
    clock = look_for (cost, program, variant, &work, seconds, ret);
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
