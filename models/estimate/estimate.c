/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"

#include "models/estimate/block-cache.h"
#include "models/writer.h"

#include <string.h>

/* --- model FLOP --------------------------------------------------------------------------------------------------- */

const char *const sp_mfu_names[SP_N_MFU + 1] = { "seqpar", "megatron", "palm", "llm-foundry", NULL };

/* 6 FLOP a parameter and token; attention 12 s h a softmax layer (forward 4 s h: two products over s keys; backward
 * twice that), half of it under the causal mask; linear attention 12 k n a head, recurrent (build and apply the state,
 * twice 2 k n, and their backward). seqpar and megatron (2205.05198, section 5) count matrices, the output matrix once,
 * no embedding; palm (2204.02311, appendix B) and llm-foundry count all parameters. */
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

/* --- a step ------------------------------------------------------------------------------------------------------- */

static void
estimate (SpEstimator *estimator, const SpEstimateContext *e, const SpRun *run, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  double full, causal, tokens = (double) program->sequence * program->global_batch;

  memset (ret, 0, sizeof *ret);
  sp_estimate_time (e, ret);
  sp_estimate_volume (e, ret);
  sp_estimate_memory (e, estimator->framework, &ret->memory);
  ret->capacity_bytes = estimator->cluster->device->memory_bytes.value;
  ret->fits = ret->memory.total_bytes <= ret->capacity_bytes;

  double peak = program->world * estimator->cost.peak_flops_per_s * ret->step_time_s;
  sp_model_flops (estimator->arch, program->sequence, estimator->convention, &full, &causal);
  ret->tokens_per_s = tokens / ret->step_time_s;
  ret->mfu = full * tokens / peak;
  ret->mfu_causal = (run->causal ? causal : full) * tokens / peak;
  ret->hfu = sp_estimate_flops (e) / (estimator->cost.peak_flops_per_s * ret->step_time_s);
  ret->provenance = sp_cost_provenance (estimator->cluster, estimator->framework, program->world > 1);
}

static void
price_work (const SpEstimator *estimator, const SpProgram *program, gint32 variant, SpBlockWork *ret)
{
  for (guint b = 0; b < program->n_blocks; b++)
    sp_block_work (&estimator->cost, program, &program->variants[variant].blocks[b], &ret[b]);
}

static void
price_state (const SpEstimator *estimator, const SpProgram *program, SpBlockState *ret)
{
  for (guint b = 0; b < program->n_blocks; b++)
    sp_block_state (&estimator->cost, program, &program->variants[0].blocks[b], &ret[b]);
}

void
sp_estimate_program (SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpEstimate *ret)
{
  SpBlockWork work[2][SP_MAX_BLOCKS];
  SpBlockState state[SP_MAX_BLOCKS];
  SpEstimateContext e = { .cost = &estimator->cost, .program = program, .work = { work[0], work[1] }, .state = state };

  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  price_state (estimator, program, state);
  for (gint32 v = 0; v < program->n_variants; v++) {
    price_work (estimator, program, v, work[v]);
    e.pipe[v] = program->variants[v].pipe_send;
  }
  estimate (estimator, &e, run, ret);
}

void
sp_estimator_init (SpEstimator *estimator, const SpArchitecture *arch, const SpCluster *cluster,
                   const SpFramework *framework, SpMfuConvention convention)
{
  *estimator = (SpEstimator){ .arch = arch, .cluster = cluster, .framework = framework, .convention = convention };
  sp_cost_init (&estimator->cost, cluster, framework);
}

/* What the cache holds is neither written nor priced again. */
static void
estimate_cached (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run, SpEstimate *ret)
{
  SpEstimateContext e = { .cost = &estimator->cost, .program = program };
  SpWorkSet *works[2];
  gboolean work_hit[2] = { TRUE, TRUE }, state_hit;

  sp_program_write_frame (program, estimator->arch, layout, run);
  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  SpStateSet *state = sp_block_cache_state (estimator->cache, &estimator->cost, program, layout, run, &state_hit);
  for (gint32 v = 0; v < program->n_variants; v++)
    works[v] = sp_block_cache_work (estimator->cache, &estimator->cost, program, layout, run, v, &work_hit[v]);

  if (!work_hit[0] || !work_hit[1])
    sp_program_write (program, estimator->arch, estimator->framework, layout, run);
  else if (!state_hit)
    sp_program_write_state (program, estimator->arch, estimator->framework, layout, run);
  if (!state_hit)
    price_state (estimator, program, state->blocks);
  for (gint32 v = 0; v < program->n_variants; v++) {
    if (!work_hit[v]) {
      price_work (estimator, program, v, works[v]->blocks);
      works[v]->pipe = program->variants[v].pipe_send;
    }
    e.work[v] = works[v]->blocks;
    e.pipe[v] = works[v]->pipe;
  }
  e.state = state->blocks;
  estimate (estimator, &e, run, ret);
}

void
sp_estimate_layout (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                    SpEstimate *ret)
{
  if (estimator->cache) {
    estimate_cached (estimator, program, layout, run, ret);
    return;
  }
  sp_program_write (program, estimator->arch, estimator->framework, layout, run);
  sp_estimate_program (estimator, program, run, ret);
}
