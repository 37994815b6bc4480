/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"

#include "models/layers/families.h"
#include "models/estimate/block-cache.h"
#include "models/estimate/clock.h"
#include "models/estimate/memory.h"
#include "models/estimate/serial.h"
#include "models/trained.h"
#include "models/writer.h"
#include "sim/walk.h"

#include <math.h>
#include <string.h>

/* --- model FLOP --------------------------------------------------------------------------------------------------- */

const char *const sp_mfu_names[SP_N_MFU + 1] = { "seqpar", "megatron", "palm", "llm-foundry", NULL };

/* What a token costs in a layer's mixer beside its matrices, both passes: softmax attention 6 (k + v) a head and key
 * that is counted (forward 2 k + 2 v, backward twice that), all keys or, causal, half of them (of a window: those that a
 * query sees on the average); linear attention 12 k v a head, recurrent (build and apply the state, twice 2 k v, and
 * their backward), a delta rule 18 k v (it reads what it replaces too). */
static void
mixer_flops (const SpArchitecture *arch, guint kind, double sequence, double *ret_full, double *ret_causal)
{
  if (sp_layer_mixer (kind) == SP_LAYER_LINEAR) {
    SpLinearShape l = sp_architecture_linear (arch);
    *ret_full = *ret_causal = (sp_family_rule (arch) & SP_OP_DELTA ? 18.0 : 12.0) * l.heads * l.key_size * l.value_size;
    return;
  }
  const SpLatentShape *latent = &arch->latent;
  double features =
      latent->kv_rank > 0 ? latent->nope_size + latent->rope_size + latent->value_size : 2 * arch->head_size;
  double keys = sequence, visible = sequence / 2;
  if (arch->bidirectional)
    visible = sequence;
  if (kind & SP_LAYER_WINDOW && arch->window < sequence) {
    keys = arch->window;
    visible = keys * (sequence - keys / 2) / sequence;
  }
  *ret_full = 6 * features * arch->heads * keys;
  *ret_causal = 6 * features * arch->heads * visible;
}

/* FLOP a parameter and token: forward, gradient of the input, gradient of the parameter, 2 each. */
static double
passes (SpFrozen frozen)
{
  return frozen == SP_FROZEN_NOT ? 6 : frozen == SP_FROZEN_PARAMETERS ? 4 : 2;
}

/* What `sp_model_flops` has too much where not all is trained. */
static double
frozen_flops (const SpArchitecture *arch, const SpRun *run, gboolean causal_half)
{
  double less = (6 - passes (sp_run_frozen_head (run))) * arch->vocabulary * arch->hidden;

  for (gint32 i = 0; i < arch->layers; i++) {
    SpFrozen frozen = sp_run_frozen_layer (run, i);
    double all, half;
    if (frozen == SP_FROZEN_NOT)
      continue;
    mixer_flops (arch, arch->layer_kind[i], sp_run_keys (run), &all, &half);
    less += (6 - passes (frozen)) * (double) sp_architecture_layer_matmul_parameters (arch, arch->layer_kind[i]);
    less += frozen == SP_FROZEN_FORWARD_ONLY ? (causal_half ? half : all) * 2 / 3 : 0;
    less -= 6.0 * (double) sp_run_lora_parameters (run, arch, arch->layer_kind[i]);
  }
  return less;
}

/* 6 FLOP a parameter and token, and the mixers'. seqpar and megatron (2205.05198, section 5) count matrices, the output
 * matrix once, no embedding; palm (2204.02311, appendix B) and llm-foundry count all parameters. Of routed experts those
 * that a token is sent to. Of what is frozen seqpar counts what has to be computed; the others' tools do not know of
 * it. */
void
sp_model_flops (const SpArchitecture *arch, const SpRun *run, SpMfuConvention convention, double *ret_full,
                double *ret_causal)
{
  gboolean matrices = convention == SP_MFU_SEQPAR || convention == SP_MFU_MEGATRON;
  double parameters =
      matrices ? (double) arch->vocabulary * arch->hidden : (double) sp_architecture_active_parameters (arch);
  gint32 counts[SP_N_LAYER_KINDS] = { 0 };
  double full = 0, causal = 0;

  for (gint32 i = 0; i < arch->layers; i++)
    counts[arch->layer_kind[i]]++;
  for (guint kind = 0; kind < SP_N_LAYER_KINDS; kind++)
    if (counts[kind] > 0) {
      double all, half;
      mixer_flops (arch, kind, sp_run_keys (run), &all, &half);
      full += counts[kind] * all;
      causal += counts[kind] * half;
      if (matrices)
        parameters += (double) counts[kind] * sp_architecture_layer_matmul_parameters (arch, kind);
    }
  *ret_full = 6 * parameters + full;
  *ret_causal = 6 * parameters + causal;
  if (convention == SP_MFU_SEQPAR && sp_run_freezes (run)) {
    *ret_full -= frozen_flops (arch, run, FALSE);
    *ret_causal -= frozen_flops (arch, run, TRUE);
  }
}

/* Of a layer, what the tokens ask of routed experts and these have no room for. */
static double
dropped_flops (const SpArchitecture *arch, const SpProgram *program, guint kind, double of)
{
  return of * program->numbers.expert_dropped * (double) sp_architecture_layer_routed_parameters (arch, kind);
}

/* The same of what the scope runs: a third of the step's, or of attention's, for a forward; for a layer its matrices,
 * and attention's part as above, which is all that is left of it for attention. seqpar does not count what experts drop. */
static void
all_scope_flops (const SpArchitecture *arch, const SpProgram *program, const SpRun *run, SpMfuConvention convention,
                 double *ret_full, double *ret_causal)
{
  guint kind = arch->layer_kind[0];

  if (!sp_program_is_one_layer (program)) {
    double part = program->scope == SP_SCOPE_FORWARD ? 1.0 / 3 : 1;
    SpRun all = *run; /* a forward is the same whatever is trained; adapters are left out */
    all.lora_rank = all.frozen = all.frozen_layers = 0;
    sp_model_flops (arch, program->scope == SP_SCOPE_FORWARD ? &all : run, convention, ret_full, ret_causal);
    *ret_full *= part;
    *ret_causal *= part;
    return;
  }
  mixer_flops (arch, kind, sp_run_keys (run), ret_full, ret_causal);
  if (program->scope == SP_SCOPE_ATTENTION_FORWARD) {
    *ret_full /= 3;
    *ret_causal /= 3;
  }
  if (program->scope == SP_SCOPE_LAYER) {
    double of = convention == SP_MFU_SEQPAR ? passes (sp_run_frozen_layer (run, 0)) : 6;
    double matrices = of * sp_architecture_layer_matmul_parameters (arch, kind);
    *ret_full += matrices;
    *ret_causal += matrices;
  }
}

void
sp_scope_flops (const SpArchitecture *arch, const SpProgram *program, const SpRun *run, SpMfuConvention convention,
                double *ret_full, double *ret_causal)
{
  gint32 layers = sp_program_is_one_layer (program) ? 1 : arch->layers;
  double less = 0;

  all_scope_flops (arch, program, run, convention, ret_full, ret_causal);
  if (convention != SP_MFU_SEQPAR || program->scope >= SP_SCOPE_ATTENTION)
    return;
  for (gint32 i = 0; i < layers; i++) {
    double of = program->scope == SP_SCOPE_FORWARD ? 2 : passes (sp_run_frozen_layer (run, i));
    less += dropped_flops (arch, program, arch->layer_kind[i], of);
  }
  *ret_full -= less;
  *ret_causal -= less;
}

/* Tokens that go through what is run. */
static double
scope_tokens (const SpProgram *program)
{
  double sequences = program->global_batch;

  if (sp_program_is_one_layer (program))
    sequences = (double) sp_walk_variant (program, 0)->batch * program->groups[SP_GROUP_DATA].size;
  return (double) program->sequence * sequences;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

gboolean
sp_estimate_fits (const SpCluster *cluster, const SpEstimate *e)
{
  double host = cluster->host_memory_bytes.value;

  return e->memory.total_bytes <= e->capacity_bytes && (host == 0 || e->host_bytes * cluster->gpus_per_node <= host);
}

/* The host waits for the allocator, and that for the GPU. */
static void
crowd (const SpFramework *framework, SpEstimate *ret)
{
  ret->crowding = ret->memory.is_crowded && framework->crowded_time.value > 0 ? framework->crowded_time.value : 1;
  ret->host_s += (ret->crowding - 1) * ret->step_time_s;
  ret->step_time_s *= ret->crowding;
  ret->serial_s *= ret->crowding;
  ret->high_s *= ret->crowding;
}

void
sp_estimate_finish (SpEstimator *estimator, const SpEstimateContext *e, const SpRun *run, SpEstimate *ret)
{
  const SpProgram *program = e->program;
  double full, causal, tokens = scope_tokens (program);

  memset (ret, 0, sizeof *ret);
  sp_estimate_time (e, ret);
  sp_estimate_volume (e, ret);
  sp_estimate_memory (e, estimator->framework, &ret->memory);
  ret->capacity_bytes = estimator->cluster->device->memory_bytes.value;
  sp_memory_add_run_ahead (sp_estimate_run_ahead (e, estimator->framework, ret->memory.stage, ret), ret->capacity_bytes,
                           &ret->memory);
  crowd (estimator->framework, ret);
  ret->host_bytes = ret->memory.host_bytes;
  ret->fits = sp_estimate_fits (estimator->cluster, ret);

  double peak = program->world * estimator->cost.peak_flops_per_s * ret->step_time_s;
  sp_scope_flops (estimator->arch, program, run, estimator->convention, &full, &causal);
  ret->tokens_per_s = tokens / ret->step_time_s;
  ret->mfu = full * tokens / peak;
  ret->mfu_causal = (run->causal ? causal : full) * tokens / peak;
  ret->hfu = sp_estimate_flops (e) / (estimator->cost.peak_flops_per_s * ret->step_time_s);
  ret->gpus = program->world;
  ret->peak_flops_per_s = estimator->cost.peak_flops_per_s;
  ret->provenance = sp_cost_provenance (estimator->cluster, estimator->framework, program->world > 1);
}

static void
price_state (const SpEstimator *estimator, const SpProgram *program, SpBlockState *ret)
{
  for (guint b = 0; b < program->n_blocks; b++)
    sp_block_state (&estimator->cost, program, &program->variants[0].blocks[b], &ret[b]);
}

static SpOp
pipe_gather_of (const SpProgram *program, gint32 variant)
{
  const SpOp *gather = sp_program_pipe_gather (program, &program->variants[variant]);

  return gather != NULL ? *gather : (SpOp){ .group = SP_GROUP_NONE };
}

/* Room for a program's blocks as they are priced; the stack's where it is small. */
static gsize
work_bytes (const SpProgram *program)
{
  return (gsize) program->n_variants * program->n_blocks * sizeof (SpBlockWork);
}

static void
price_program (SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpBlockWork *work,
               SpBlockState *state, SpEstimateContext *e)
{
  *e = (SpEstimateContext){ .cost = &estimator->cost, .program = program, .state = state };
  sp_cost_set_precision (&estimator->cost, estimator->cluster, run->precision);
  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  price_state (estimator, program, state);
  for (gint32 v = 0; v < program->n_variants; v++) {
    e->work[v] = work + (guint) v * program->n_blocks;
    estimator->cost.clocks[v] = sp_clock_price (&estimator->cost, program, v, work + (guint) v * program->n_blocks);
    e->pipe[v] = &program->variants[v].pipe_send;
    e->pipe_gather[v] = sp_program_pipe_gather (program, &program->variants[v]);
  }
}

void
sp_estimate_program (SpEstimator *estimator, const SpProgram *program, const SpRun *run, SpEstimate *ret)
{
  SpBlockState state[SP_MAX_BLOCKS];
  SpEstimateContext e;
  g_autofree gpointer memory = NULL;

  gsize bytes = work_bytes (program);
  SpBlockWork *work = bytes <= SP_ESTIMATE_MOST_STACK ? g_alloca (bytes) : (memory = g_malloc (bytes));
  price_program (estimator, program, run, work, state, &e);
  sp_estimate_finish (estimator, &e, run, ret);
}

void
sp_estimate_first_stage (SpEstimator *estimator, const SpProgram *program, const SpRun *run, const SpEstimate *times,
                         SpMemory *ret)
{
  g_autofree SpBlockWork *work = g_malloc (work_bytes (program));
  SpBlockState state[SP_MAX_BLOCKS];
  SpEstimateContext e;

  price_program (estimator, program, run, work, state, &e);
  sp_estimate_memory_of_first (&e, estimator->framework, ret);
  sp_memory_add_run_ahead (sp_estimate_run_ahead (&e, estimator->framework, 0, times), times->capacity_bytes, ret);
}

void
sp_estimator_init (SpEstimator *estimator, const SpArchitecture *arch, const SpCluster *cluster,
                   const SpFramework *framework, SpMfuConvention convention)
{
  *estimator = (SpEstimator){ .arch = arch, .cluster = cluster, .framework = framework, .convention = convention };
  sp_cost_init (&estimator->cost, cluster, framework);
}

/* Writes the program's blocks, or some of them, unless the cache holds them, and prices those. */
static void
price_missing (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
               SpEstimateContext *e, SpStateSet *state, gboolean state_hit)
{
  SpWorkSet *works[SP_MAX_VARIANTS];
  gboolean hit[2] = { FALSE, FALSE }, hits = TRUE;

  for (gint32 v = 0; v < program->n_variants && program->slices == 0; v++) {
    works[v] = sp_block_cache_work (estimator->cache, &estimator->cost, program, layout, run, v, &hit[v]);
    hits &= hit[v];
  }
  for (gint32 v = 0; v < program->n_variants && program->slices > 0; v++)
    works[v] = sp_block_cache_slice (estimator->cache, program, v);
  hits &= program->slices == 0;
  if (!hits)
    sp_program_write (program, estimator->arch, estimator->framework, layout, run);
  else if (!state_hit)
    sp_program_write_state (program, estimator->arch, estimator->framework, layout, run);
  if (!state_hit)
    price_state (estimator, program, state->blocks);
  for (gint32 v = 0; v < program->n_variants; v++) {
    if (program->slices > 0 || !hit[v]) {
      works[v]->clock = sp_clock_price (&estimator->cost, program, v, works[v]->blocks);
      works[v]->pipe = program->variants[v].pipe_send;
      works[v]->pipe_gather = pipe_gather_of (program, v);
    }
    estimator->cost.clocks[v] = works[v]->clock;
    e->work[v] = works[v]->blocks;
    e->pipe[v] = &works[v]->pipe;
    e->pipe_gather[v] = works[v]->pipe_gather.group != SP_GROUP_NONE ? &works[v]->pipe_gather : NULL;
  }
}

/* Room for variants is left as it is: a search begins one for each layout. */
static void
begin_context (const SpEstimator *estimator, const SpProgram *program, SpEstimateContext *ret)
{
  ret->cost = &estimator->cost;
  ret->program = program;
  ret->state = NULL;
}

void
sp_estimate_works (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                   SpEstimateContext *ret)
{
  g_return_if_fail (estimator->cache != NULL);

  begin_context (estimator, program, ret);
  sp_program_write_frame (program, estimator->arch, layout, run);
  sp_cost_set_precision (&estimator->cost, estimator->cluster, run->precision);
  sp_cost_set_work_paths (&estimator->cost, estimator->cluster, program);
  price_missing (estimator, program, layout, run, ret, NULL, TRUE);
}

/* The program's frame is written, and paths are set. */
static void
find_blocks (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
             SpEstimateContext *ret)
{
  gboolean hit;

  begin_context (estimator, program, ret);
  SpStateSet *state = sp_block_cache_state (estimator->cache, &estimator->cost, program, layout, run, &hit);
  price_missing (estimator, program, layout, run, ret, state, hit);
  ret->state = state->blocks;
}

void
sp_estimate_context (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                     SpEstimateContext *ret)
{
  g_return_if_fail (estimator->cache != NULL);

  sp_program_write_frame (program, estimator->arch, layout, run);
  sp_cost_set_precision (&estimator->cost, estimator->cluster, run->precision);
  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  find_blocks (estimator, program, layout, run, ret);
}

gint64
sp_estimate_state_bytes (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run)
{
  gint32 counts[SP_MAX_BLOCKS];
  gint64 most = 0;
  gboolean hit;

  g_return_val_if_fail (estimator->cache != NULL, 0);

  sp_program_write_frame (program, estimator->arch, layout, run);
  SpStateSet *state = sp_block_cache_state (estimator->cache, &estimator->cost, program, layout, run, &hit);
  if (!hit) {
    sp_program_write_state (program, estimator->arch, estimator->framework, layout, run);
    price_state (estimator, program, state->blocks);
  }
  for (gint32 s = 0; s < program->stages; s++) {
    gint64 bytes = 0;
    for (gint32 c = 0; c < program->chunks; c++) {
      sp_estimate_counts (program, sp_program_virtual_stage (program, s, c), counts);
      for (guint b = 0; b < program->n_blocks; b++)
        bytes += counts[b] * state->blocks[b].always_bytes;
    }
    most = s == 0 ? bytes : MIN (most, bytes);
  }
  return most;
}

void
sp_estimate_bytes (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run, SpMemory *ret)
{
  SpEstimateContext e;

  g_return_if_fail (estimator->cache != NULL);

  sp_program_write_frame (program, estimator->arch, layout, run);
  find_blocks (estimator, program, layout, run, &e);
  sp_estimate_memory (&e, estimator->framework, ret);
}

void
sp_estimate_layout (SpEstimator *estimator, SpProgram *program, const SpLayout *layout, const SpRun *run,
                    SpEstimate *ret)
{
  if (estimator->cache) {
    SpEstimateContext e; /* what the cache holds is neither written nor priced again */
    sp_estimate_context (estimator, program, layout, run, &e);
    sp_estimate_finish (estimator, &e, run, ret);
    return;
  }
  sp_program_write (program, estimator->arch, estimator->framework, layout, run);
  sp_estimate_program (estimator, program, run, ret);
}

/* --- refined ------------------------------------------------------------------------------------------------------ */

#define MOST_EVALUATIONS 3e7 /* a tenth of a second */

static double
take (double *from, double most)
{
  double taken = MIN (MAX (*from, 0), most);

  *from -= taken;
  return taken;
}

void
sp_estimate_refine (SpEstimator *estimator, const SpProgram *program, SpEstimate *e)
{
  sp_cost_set_paths (&estimator->cost, estimator->cluster, program);
  double exact = sp_estimate_serial (&estimator->cost, program, estimator->cluster->gpus_per_node, MOST_EVALUATIONS);

  if (isnan (exact))
    return;
  exact = e->crowding * (exact + sp_cost_beside_step (&estimator->cost, program));
  double excess = e->serial_s - exact, before = e->step_time_s;
  e->serial_s = exact;
  e->high_s += MAX (-excess, 0); /* but never less: skew and shared links add up in ways that it has to cover */
  e->high_s = MAX (e->high_s, e->step_time_s);
  if (excess <= 0)
    return;
  /* Chains are what the closed form overstates most, then pipelines. */
  double left = MIN (excess, e->step_time_s - e->low_s), chain = take (&e->axes[SP_AXIS_LASP].exposed_s, left);
  e->exposed_communication_s -= chain;
  left -= chain;
  e->step_time_s -= chain + take (&e->bubble_s, left);
  double ratio = before / e->step_time_s;
  e->tokens_per_s *= ratio;
  e->mfu *= ratio;
  e->mfu_causal *= ratio;
  e->hfu *= ratio;
}
