/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate-private.h"

#include <math.h>
#include <string.h>

/*
 * Volume: bytes by axis, and FLOP. GPUs differ by stage and, along a chain, by place: the first and the last place send or
 * receive less. Everything is counted for three places (first, middle, last), and the mean is over all.
 */

enum { PLACE_FIRST, PLACE_MIDDLE, PLACE_LAST, N_PLACES };

typedef struct {
  double payload[SP_N_AXES][N_PLACES], wire[SP_N_AXES][N_PLACES], messages[SP_N_AXES];
  double chain_size[SP_N_AXES]; /* of the group whose places differ, 1 none */
} Volume;

/* Times an op runs in its list. */
static double
steps_of (const SpBlock *block, const SpOp *op)
{
  if (op->loop == 0)
    return 1;
  gint32 steps = block->loops[op->loop - 1].steps;
  if (op->guard & SP_GUARD_FIRST_STEP)
    return 1;
  return op->guard & (SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP) ? steps - 1 : steps;
}

static void
count_op (const SpEstimateContext *e, const SpOp *op, double times, Volume *v)
{
  if (op->kind == SP_OP_RECEIVE)
    return;
  double payload = times * op->bytes, wire = times * sp_cost_wire_bytes (e->cost, op);
  for (guint place = 0; place < N_PLACES; place++) {
    if (op->guard & SP_GUARD_NOT_FIRST && place == PLACE_FIRST)
      continue;
    if (op->guard & SP_GUARD_NOT_LAST && place == PLACE_LAST)
      continue;
    v->payload[op->axis][place] += payload;
    v->wire[op->axis][place] += wire;
  }
  if (op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST))
    v->chain_size[op->axis] = e->program->groups[op->group].size;
  v->messages[op->axis] += times;
}

static void
count_list (const SpEstimateContext *e, const SpBlock *block, SpPhase phase, double each, double once, Volume *v)
{
  guint n;
  const SpOp *ops = sp_program_segment (e->program, block, phase, &n);

  for (guint i = 0; i < n; i++)
    if (sp_op_is_communication (ops[i].kind)) {
      double times = phase == SP_PHASE_SYNC && !(ops[i].flags & SP_OP_PER_MICRO_BATCH) ? once : each;
      count_op (e, &ops[i], times * steps_of (block, &ops[i]), v);
    }
}

/* One layer of the block in a step. `m` runs of this variant; `once` where the once-a-step lists are counted. */
static void
count_block (const SpEstimateContext *e, const SpBlock *block, double m, double once, Volume *v)
{
  count_list (e, block, SP_PHASE_GATHER, m * (1 + block->regather), 0, v);
  count_list (e, block, SP_PHASE_FORWARD, m, 0, v);
  count_list (e, block, SP_PHASE_RECOMPUTE, m, 0, v);
  count_list (e, block, SP_PHASE_BACKWARD, m, 0, v);
  count_list (e, block, SP_PHASE_SYNC, m, once, v);
  count_list (e, block, SP_PHASE_OPTIMIZER, once, 0, v);
}

static double
runs (const SpProgram *program, gint32 variant)
{
  return program->n_variants == 1 ? program->micro_batches : variant == 0 ? program->micro_batches - 1 : 1;
}

static void
spread_add (SpSpread *spread, double value, double share, gboolean first)
{
  spread->min = first ? value : MIN (spread->min, value);
  spread->max = first ? value : MAX (spread->max, value);
  spread->mean += share * value;
}

static void
add_stage (SpEstimate *ret, const Volume *sum, double stages, gboolean first)
{
  for (guint a = 0; a < SP_N_AXES; a++) {
    double size = sum->chain_size[a];
    double share[N_PLACES] = { 1 / size, (size - 2) / size, 1 / size };
    if (size == 1)
      share[PLACE_FIRST] = share[PLACE_MIDDLE] = 0;
    for (guint place = 0; place < N_PLACES; place++) {
      if (share[place] <= 0)
        continue;
      gboolean fresh = first && (place == PLACE_FIRST || size == 1);
      spread_add (&ret->axes[a].payload_bytes, sum->payload[a][place], share[place] / stages, fresh);
      spread_add (&ret->axes[a].wire_bytes, sum->wire[a][place], share[place] / stages, fresh);
    }
    ret->axes[a].messages = MAX (ret->axes[a].messages, sum->messages[a]);
  }
}

static void
add_pipe (const SpEstimateContext *e, gint32 stage, Volume *sum)
{
  const SpProgram *program = e->program;

  for (gint32 v = 0; v < program->n_variants; v++) {
    double times = runs (program, v) * ((stage < program->stages - 1) + (stage > 0));
    double bytes = times * program->variants[v].pipe_send.bytes;
    for (guint place = 0; place < N_PLACES; place++) {
      sum->payload[SP_AXIS_PIPELINE][place] += bytes;
      sum->wire[SP_AXIS_PIPELINE][place] += bytes;
    }
    sum->messages[SP_AXIS_PIPELINE] += times;
  }
}

static void
sum_blocks (const Volume *blocks, const gint32 *counts, guint n, Volume *sum)
{
  memset (sum, 0, sizeof *sum);
  for (guint a = 0; a < SP_N_AXES; a++) {
    sum->chain_size[a] = 1;
    for (guint b = 0; b < n; b++) {
      if (counts[b] == 0 || blocks[b].messages[a] == 0)
        continue;
      for (guint place = 0; place < N_PLACES; place++) {
        sum->payload[a][place] += counts[b] * blocks[b].payload[a][place];
        sum->wire[a][place] += counts[b] * blocks[b].wire[a][place];
      }
      sum->messages[a] += counts[b] * blocks[b].messages[a];
      sum->chain_size[a] = MAX (sum->chain_size[a], blocks[b].chain_size[a]);
    }
  }
}

void
sp_estimate_volume (const SpEstimateContext *e, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  Volume blocks[SP_MAX_BLOCKS] = { 0 }, sum;

  for (guint b = 0; b < program->n_blocks; b++) {
    for (gint32 v = 0; v < program->n_variants; v++)
      count_block (e, &program->variants[v].blocks[b], runs (program, v), v == 0, &blocks[b]);
  }
  for (gint32 s = 0; s < program->stages; s++) {
    gint32 counts[SP_MAX_BLOCKS] = { 0 };
    for (gint32 l = program->stage_first[s]; l < program->stage_first[s + 1]; l++)
      counts[program->layer_block[l]]++;
    counts[0] = s == 0;
    counts[program->n_blocks - 1] = s == program->stages - 1;
    sum_blocks (blocks, counts, program->n_blocks, &sum);
    if (program->stages > 1)
      add_pipe (e, s, &sum);
    add_stage (ret, &sum, program->stages, s == 0);
  }
}

/* --- FLOP --------------------------------------------------------------------------------------------------------------- */

/* Mean runs over places: where keys in the future are skipped, place i runs i of the R - 1 steps. */
static double
mean_steps (const SpBlock *block, const SpOp *op)
{
  double steps = steps_of (block, op);

  return op->guard & SP_GUARD_VISIBLE ? steps / 2 : steps;
}

static double
block_flops (const SpProgram *program, const SpBlock *block)
{
  double sum = 0;

  for (guint phase = SP_PHASE_FORWARD; phase <= SP_PHASE_BACKWARD; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);
    for (guint i = 0; i < n; i++)
      sum += ops[i].flops * mean_steps (block, &ops[i]);
  }
  return sum;
}

double
sp_estimate_flops (const SpProgram *program)
{
  double sum = 0;

  for (gint32 v = 0; v < program->n_variants; v++) {
    const SpVariant *variant = &program->variants[v];
    double all =
        block_flops (program, &variant->blocks[0]) + block_flops (program, &variant->blocks[program->n_blocks - 1]);
    double each[SP_MAX_BLOCKS];
    for (guint b = 1; b + 1 < program->n_blocks; b++)
      each[b] = block_flops (program, &variant->blocks[b]);
    for (guint l = 0; l < program->n_layers; l++)
      all += each[program->layer_block[l]];
    sum += runs (program, v) * all;
  }
  return sum / program->stages;
}

/* --- model FLOP ----------------------------------------------------------------------------------------------------------- */

const char *const sp_mfu_names[SP_N_MFU + 1] = { "seqpar", "megatron", "palm", "llm-foundry", NULL };

/* 6 FLOP a parameter and token; attention 12 s h a softmax layer (forward 4 s h: two products over s keys; backward twice
 * that), half of it under the causal mask; linear attention 12 k n a head, recurrent (build and apply the state, twice 2 k n,
 * and their backward). seqpar and megatron (2205.05198, section 5) count matrices, the output matrix once, no embedding;
 * palm (2204.02311, appendix B) and llm-foundry count all parameters. */
void
sp_model_flops (const SpArchitecture *arch, gint64 sequence, SpMfuConvention convention, double *ret_full,
                double *ret_causal)
{
  double softmax = sp_architecture_count (arch, SP_LAYER_SOFTMAX),
         linear = sp_architecture_count (arch, SP_LAYER_LINEAR);
  double width = (double) arch->heads * arch->head_size, parameters;

  if (convention == SP_MFU_SEQPAR || convention == SP_MFU_MEGATRON)
    parameters = softmax * sp_architecture_layer_matmul_parameters (arch, SP_LAYER_SOFTMAX) +
                 linear * sp_architecture_layer_matmul_parameters (arch, SP_LAYER_LINEAR) +
                 (double) arch->vocabulary * arch->hidden;
  else
    parameters = (double) sp_architecture_parameters (arch);
  double others = 6 * parameters + 12 * linear * width * arch->head_size;
  double attention = 12 * softmax * width * sequence;
  *ret_full = others + attention;
  *ret_causal = others + attention / 2;
}
