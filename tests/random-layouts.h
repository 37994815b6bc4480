/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random models and legal layouts of them: for tests of properties. What is drawn comes from g_test_rand, so --seed
 * repeats it. */

#include "models/estimate/estimate.h"
#include "models/layout.h"
#include "sim/schedules.h"

#include <math.h>

typedef struct {
  gint32 least, most;
} DrawRange;

enum { DRAW_SOFTMAX = 1, DRAW_LINEAR = 2, DRAW_HYBRID = 4, DRAW_ANY = 7 };

/* What may be drawn; a degree of { 0, 0 } is 1. */
typedef struct {
  guint kinds; /* of the above */
  gboolean fused;
  DrawRange data, tensor, pipeline, ulysses, ring, lasp;
  gboolean schedules; /* any, and uneven stages; else 1F1B */
  gboolean experts;   /* some layers have experts, spread over some ranks, as often as not */
  gboolean families;  /* what public models have beyond LLaMA and GPT-2, as often as not */
  gboolean eager;     /* what eager PyTorch does otherwise too, now and then */
  gboolean slices;    /* sequences through the stages in slices, as often as not where that is legal */
} DrawLimits;

typedef struct {
  SpArchitecture *arch;
  SpFramework framework;
  SpLayout layout;
  SpRun run;
} Draw;

/* Prints the seed; free with g_rand_free. */
static inline GRand *
draw_rand_new (void)
{
  guint32 seed = (guint32) g_test_rand_int ();

  g_test_message ("seed %u", seed);
  return g_rand_new_with_seed (seed);
}

/* From `least` to `most`, both included. */
static inline gint32
draw_int (GRand *rand, gint32 least, gint32 most)
{
  return g_rand_int_range (rand, least, most + 1);
}

/* Evenly in the logarithm. */
static inline double
draw_between (GRand *rand, double least, double most)
{
  return least * pow (most / least, g_rand_double (rand));
}

static inline gint32
draw_degree (GRand *rand, DrawRange range)
{
  return range.most == 0 ? 1 : draw_int (rand, range.least, range.most);
}

static inline void
draw_order (GRand *rand, SpOrder *order)
{
  for (guint i = SP_N_RANK_AXES - 1; i > 0; i--) {
    guint j = (guint) draw_int (rand, 0, (gint32) i);
    guint8 axis = order->axis[i];
    order->axis[i] = order->axis[j];
    order->axis[j] = axis;
  }
}

static inline void
draw_kinds (GRand *rand, guint kinds, SpArchitecture *arch)
{
  guint kind;

  do
    kind = 1u << draw_int (rand, 0, 2);
  while (!(kinds & kind) || (kind == DRAW_HYBRID && arch->layers < 2));
  for (gint32 l = 0; l < arch->layers; l++)
    arch->layer_kind[l] = kind == DRAW_SOFTMAX                         ? SP_LAYER_SOFTMAX
                          : kind == DRAW_LINEAR                        ? SP_LAYER_LINEAR
                          : l == 0 || (l > 1 && draw_int (rand, 0, 1)) ? SP_LAYER_LINEAR
                                                                       : SP_LAYER_SOFTMAX;
}

/* `tensor` divides the heads and the MLP's width. hidden is no multiple of heads x head size: so that formulas that
 * take one for the other fail. */
static inline SpArchitecture *
draw_model (GRand *rand, guint kinds, gint32 tensor, gint32 most_layers)
{
  SpArchitecture *arch = sp_architecture_new ();

  arch->name = g_strdup ("drawn");
  arch->layers = draw_int (rand, 1, most_layers);
  arch->kv_heads = tensor * draw_int (rand, 1, 6);
  arch->heads = arch->kv_heads * draw_int (rand, 1, 5);
  arch->head_size = 2 * draw_int (rand, 1, 40);
  arch->hidden = draw_int (rand, 1, 400);
  arch->ffn = tensor * draw_int (rand, 1, 200);
  arch->vocabulary = draw_int (rand, tensor, 2000);
  arch->norm = (SpNormKind) draw_int (rand, 0, 2);
  arch->mlp = (SpMlpKind) draw_int (rand, 0, 2);
  arch->qkv_bias = draw_int (rand, 0, 1);
  arch->projection_bias = draw_int (rand, 0, 1);
  arch->mlp_bias = draw_int (rand, 0, 1);
  arch->tied = draw_int (rand, 0, 3) == 0;
  arch->rotary = draw_int (rand, 0, 1);
  arch->positions = arch->rotary ? 0 : draw_int (rand, 0, 100);
  arch->dropout = draw_int (rand, 0, 3) == 0 ? 0.1 : 0;
  draw_kinds (rand, kinds, arch);
  return arch;
}

static inline void
draw_latent (GRand *rand, SpArchitecture *arch)
{
  arch->kv_heads = arch->heads;
  arch->latent = (SpLatentShape){ .q_rank = draw_int (rand, 0, 1) * draw_int (rand, 1, 60),
                                  .kv_rank = draw_int (rand, 1, 60),
                                  .nope_size = draw_int (rand, 1, 30),
                                  .rope_size = 2 * draw_int (rand, 1, 10),
                                  .value_size = draw_int (rand, 1, 40) };
  arch->head_size = arch->latent.nope_size + arch->latent.rope_size;
  arch->qk_norm = arch->attention_gate = arch->sinks = arch->qkv_bias = FALSE;
}

/* Some layers with a window, or some without an MLP. */
static inline void
draw_layer_bits (GRand *rand, SpArchitecture *arch)
{
  guint8 bit = draw_int (rand, 0, 2) ? SP_LAYER_WINDOW : SP_LAYER_NO_MLP;

  arch->window = draw_int (rand, 1, 200);
  for (gint32 l = 0; l < arch->layers; l++)
    if (draw_int (rand, 0, 1) && (bit == SP_LAYER_NO_MLP || sp_layer_mixer (arch->layer_kind[l]) == SP_LAYER_SOFTMAX))
      arch->layer_kind[l] |= bit;
  arch->bidirectional = bit == SP_LAYER_NO_MLP && draw_int (rand, 0, 1);
}

static inline void
draw_family (GRand *rand, SpArchitecture *arch)
{
  arch->mlp = (SpMlpKind) draw_int (rand, 0, SP_N_MLP_KINDS - 1);
  arch->form = (SpForm) draw_int (rand, 0, SP_N_FORMS - 1);
  if (arch->form == SP_FORM_SANDWICH || arch->form == SP_FORM_BRANCH_NORM) {
    arch->projection_bias = arch->mlp_bias = FALSE;
    arch->dropout = 0;
  }
  arch->qk_norm = draw_int (rand, 0, 1);
  arch->attention_gate = draw_int (rand, 0, 2) == 0;
  arch->sinks = draw_int (rand, 0, 2) == 0;
  if (draw_int (rand, 0, 2) == 0 && sp_architecture_count (arch, SP_LAYER_LINEAR) == 0)
    draw_latent (rand, arch);
  arch->rotary_size = draw_int (rand, 0, 1) ? 2 * draw_int (rand, 1, arch->head_size / 2) : 0;
  arch->position_offset = arch->positions > 2 ? draw_int (rand, 0, 2) : 0;
  arch->token_types = draw_int (rand, 0, 3);
  arch->embedding_norm = draw_int (rand, 0, 1);
  arch->no_final_norm = draw_int (rand, 0, 1);
  arch->head_transform = draw_int (rand, 0, 2) == 0;
  arch->head_bias = draw_int (rand, 0, 1);
  draw_layer_bits (rand, arch);
}

static inline void
draw_experts (GRand *rand, gint32 tensor, SpArchitecture *arch)
{
  arch->moe.experts = draw_int (rand, 1, 24);
  arch->moe.experts_per_token = draw_int (rand, 1, MIN (arch->moe.experts, 8));
  arch->moe.ffn = tensor * draw_int (rand, 1, 50);
  arch->moe.shared_ffn = draw_int (rand, 0, 1) ? tensor * draw_int (rand, 1, 50) : 0;
  arch->moe.shared_gate = arch->moe.shared_ffn > 0 && draw_int (rand, 0, 1);
  for (gint32 l = draw_int (rand, 0, 1); l < arch->layers; l++)
    arch->layer_kind[l] |= draw_int (rand, 0, 3) > 0 ? SP_LAYER_EXPERTS : 0;
}

/* As often as not, where parts are shared: a divisor of the ranks that share them. */
static inline void
draw_zero_group (GRand *rand, const SpArchitecture *arch, SpLayout *layout)
{
  gint32 ranks = layout->data * sp_layout_sequence_ranks (layout, arch);

  if (layout->zero == 0 || ranks == 1 || draw_int (rand, 0, 1))
    return;
  do
    layout->zero_group = draw_int (rand, 2, ranks);
  while (ranks % layout->zero_group != 0);
}

/* A divisor of the experts and of the ranks that they may be spread over. */
static inline void
draw_expert_degree (GRand *rand, const SpArchitecture *arch, SpLayout *layout)
{
  gint32 replicas = sp_layout_replicas (layout, arch);

  if (!sp_architecture_has_bit (arch, SP_LAYER_EXPERTS))
    return;
  do
    layout->expert = draw_int (rand, 1, MIN (replicas, arch->moe.experts));
  while (replicas % layout->expert != 0 || arch->moe.experts % layout->expert != 0);
  layout->order.experts_far = (guint8) draw_int (rand, 0, 1);
  layout->expert_capacity = draw_int (rand, 0, 2) > 0 ? 0 : draw_between (rand, 0.5, 4);
}

static inline void
draw_run (GRand *rand, const SpArchitecture *arch, const SpLayout *layout, gint32 most_micro_batches, SpRun *run)
{
  gint32 micro_batches = draw_int (rand, 1, most_micro_batches);
  gboolean zigzag = layout->ring > 1 && layout->token_split == SP_TOKENS_ZIGZAG;

  *run = (SpRun){ 0 };
  run->micro_batch = draw_int (rand, 1, 4);
  run->global_batch = micro_batches * layout->data * run->micro_batch;
  if (micro_batches > 1 && draw_int (rand, 0, 1)) /* a smaller last one */
    run->global_batch -= draw_int (rand, 0, layout->data * run->micro_batch - 1);
  run->sequence = (gint64) sp_layout_sequence_ranks (layout, arch) * (layout->sequence_regions ? layout->tensor : 1) *
                  (zigzag ? 2 : 1) * draw_int (rand, 1, 64);
  run->precision = draw_int (rand, 0, 1) ? SP_DTYPE_BF16 : SP_DTYPE_FP16;
  run->causal = draw_int (rand, 0, 3) > 0;
  run->scope = SP_SCOPE_STEP;
}

/* Any schedule, and more often than not a random number of layers for each virtual stage. */
static inline void
draw_schedule (GRand *rand, const SpArchitecture *arch, SpLayout *layout)
{
  layout->schedule = (guint8) draw_int (rand, 0, (gint32) sp_schedule_count () - 1);
  layout->virtual_stages = sp_schedule_get (layout->schedule)->chunked ? draw_int (rand, 2, 3) : 1;
  gint32 n = sp_layout_virtual_stages (layout), left = arch->layers;

  if (n > left || draw_int (rand, 0, 2) == 0)
    return;
  for (gint32 i = 0; i < n; i++) {
    layout->stage_split[i] = i == n - 1 ? left : draw_int (rand, 1, left - (n - 1 - i));
    left -= layout->stage_split[i];
  }
}

/* One that may not be legal. */
static inline void
draw_layout (GRand *rand, const DrawLimits *limits, const SpArchitecture *arch, gint32 tensor, SpLayout *layout)
{
  gboolean softmax = sp_architecture_count (arch, SP_LAYER_SOFTMAX) > 0,
           linear = sp_architecture_count (arch, SP_LAYER_LINEAR) > 0;

  *layout = (SpLayout) SP_LAYOUT_DEFAULT;
  layout->tensor = tensor;
  layout->data = draw_degree (rand, limits->data);
  layout->pipeline = draw_degree (rand, limits->pipeline);
  layout->ulysses = draw_degree (rand, limits->ulysses);
  layout->ring = softmax ? draw_degree (rand, limits->ring) : 1;
  layout->lasp = linear ? draw_degree (rand, limits->lasp) : 1;
  layout->lasp_version = draw_int (rand, 1, 2);
  layout->token_split = linear ? SP_TOKENS_CONTIGUOUS : (guint8) draw_int (rand, 0, SP_N_TOKEN_SPLITS - 1);
  layout->ring_kind = layout->ring > 1 ? (guint8) draw_int (rand, 0, SP_N_RING_KINDS - 1) : SP_RING_P2P;
  layout->ring_keep = layout->ring_kind == SP_RING_ALL_GATHER && draw_int (rand, 0, 1);
  gboolean rings = layout->ring_kind == SP_RING_P2P || layout->ring_kind == SP_RING_DOUBLE;
  layout->ring_backward = layout->ring > 1 && rings && draw_int (rand, 0, 1) ? SP_RING_BACKWARD_Q : SP_RING_BACKWARD_KV;
  layout->ring_inner = layout->ring > 3 ? draw_int (rand, 2, layout->ring / 2) : 1;
  layout->ring_gradient_dtype = draw_int (rand, 0, 1) ? SP_DTYPE_FP32 : SP_DTYPE_BF16;
  layout->gradient_dtype = draw_int (rand, 0, 1) ? SP_DTYPE_FP32 : SP_DTYPE_BF16;
  layout->sequence_regions = draw_int (rand, 0, 1);
  layout->pipeline_scatter = draw_int (rand, 0, 3) > 0;
  layout->zero = draw_int (rand, 0, 3);
  layout->reshard = draw_int (rand, 0, 1);
  layout->overlap = draw_int (rand, 0, 1);
  layout->recompute = (guint8) draw_int (rand, 0, SP_N_RECOMPUTES - 1);
  layout->recompute_every = draw_int (rand, 0, 2) ? 1 : draw_int (rand, 2, 4);
  layout->recompute_first = draw_int (rand, 0, 3) ? 0 : draw_int (rand, 1, 4);
  layout->mlp_tiles = draw_int (rand, 0, 2) ? 1 : SP_TILES_AUTO;
  layout->loss = (guint8) draw_int (rand, 0, SP_N_LOSSES - 1);
  draw_order (rand, &layout->order);
  if (limits->schedules)
    draw_schedule (rand, arch, layout);
}

/* As often as not, where it may be legal: slices that are alike, or of any length; and their sequence. */
static inline void
draw_slices (GRand *rand, const SpArchitecture *arch, SpLayout *layout, SpRun *run)
{
  gint32 parts = sp_layout_sequence_ranks (layout, arch) * (layout->sequence_regions ? layout->tensor : 1);

  if (!sp_schedule_get (layout->schedule)->slices || layout->ring > 1 || arch->bidirectional ||
      sp_architecture_has (arch, SP_LAYER_LINEAR) || draw_int (rand, 0, 1))
    return;
  layout->slices = draw_int (rand, 2, 6);
  layout->mlp_tiles = 1;
  run->causal = TRUE;
  run->sequence = (gint64) layout->slices * parts * draw_int (rand, 1, 12);
  if (draw_int (rand, 0, 1))
    return;
  run->sequence = 0;
  for (gint32 i = 0; i < layout->slices; i++) {
    layout->slice_split[i] = parts * draw_int (rand, 1, 12);
    run->sequence += layout->slice_split[i];
  }
}

/* A legal one within the limits. Free with draw_clear. */
static inline void
draw_legal (GRand *rand, const DrawLimits *limits, Draw *ret)
{
  for (guint tries = 0; tries < 100000; tries++) {
    gint32 tensor = draw_degree (rand, limits->tensor);
    gboolean fused = limits->fused || draw_int (rand, 0, 2) > 0;
    ret->framework = (SpFramework){ .name = (char *) "drawn",
                                    .fused_attention = fused,
                                    .selective_attention = draw_int (rand, 0, 1),
                                    .recompute_whole = draw_int (rand, 0, 1),
                                    .host_eager = draw_int (rand, 0, 1),
                                    .fp32_logits = draw_int (rand, 0, 1),
                                    .pipeline_scatter = draw_int (rand, 0, 1),
                                    .host_launch_s = { .value = 5e-6 } };
    if (limits->eager && draw_int (rand, 0, 2) == 0) {
      SpFramework *f = &ret->framework;
      gboolean *flags[] = { &f->glu_apart,       &f->attention_copied, &f->gathers_master,  &f->keeps_ends,
                            &f->frees_gradients, &f->autocast,         &f->gradient_copies, &f->keeps_whole,
                            &f->gradients_apart, &f->overlaps_tensor,  &f->tensor_calls,    &f->attention_ascending,
                            &f->attention_padded, &f->sums_alone };
      for (guint i = 0; i < G_N_ELEMENTS (flags); i++)
        *flags[i] = draw_int (rand, 0, 1);
      f->host_gather_s.value = 20e-6 * draw_int (rand, 0, 1);
      f->elementwise_time.value = 3 * draw_int (rand, 0, 1);
      f->merge_time.value = 3.8 * draw_int (rand, 0, 1);
      f->pack_time.value = 2 * draw_int (rand, 0, 1);
      f->softmax_time.value = 3 * draw_int (rand, 0, 1);
      f->host_stall.value = 0.5 * draw_int (rand, 0, 1);
      f->host_slot_s.value = 300e-6 * draw_int (rand, 0, 1);
    }
    ret->arch = draw_model (rand, limits->kinds, tensor, limits->schedules ? 12 : 6);
    if (limits->families && draw_int (rand, 0, 1))
      draw_family (rand, ret->arch);
    if (limits->experts && draw_int (rand, 0, 1))
      draw_experts (rand, tensor, ret->arch);
    draw_layout (rand, limits, ret->arch, tensor, &ret->layout);
    if (limits->experts)
      draw_expert_degree (rand, ret->arch, &ret->layout);
    else
      draw_zero_group (rand, ret->arch, &ret->layout);
    draw_run (rand, ret->arch, &ret->layout, limits->schedules ? 12 : 5, &ret->run);
    if (limits->slices)
      draw_slices (rand, ret->arch, &ret->layout, &ret->run);
    if (limits->experts && draw_int (rand, 0, 1))
      ret->run.expert_imbalance = draw_between (rand, 1, 3);
    if (sp_layout_check (&ret->layout, ret->arch, &ret->framework, &ret->run, 0, NULL))
      return;
    sp_architecture_free (ret->arch);
  }
  g_error ("no legal layout within the limits");
}

static inline void
draw_clear (Draw *draw)
{
  sp_architecture_free (draw->arch);
}

static inline void
draw_describe (const Draw *d)
{
  g_autofree char *layout = sp_layout_describe (&d->layout, d->arch);

  g_test_message (
      "%s, kept %d, backward %d, regions %d, scatter %d, reshard %d, overlap %d, gradients %s, ring gradients %s; "
      "heads %d/%d x "
      "%d, hidden %d, "
      "ffn %d, layers %d (%d linear), vocabulary %d, tied %d, norm %d, mlp %d, biases %d%d%d; sequence "
      "%" G_GINT64_FORMAT
      ", micro-batch %d of %d, %s, causal %d, fused %d, order %d%d%d%d%d%d; experts %d of %d, width %d, shared %d, "
      "imbalance %g",
      layout, d->layout.ring_keep, d->layout.ring_backward, d->layout.sequence_regions,
      sp_layout_scatters (&d->layout, &d->framework), d->layout.reshard, d->layout.overlap,
      sp_dtype_name (d->layout.gradient_dtype), sp_dtype_name (d->layout.ring_gradient_dtype), d->arch->heads,
      d->arch->kv_heads, d->arch->head_size, d->arch->hidden, d->arch->ffn, d->arch->layers,
      sp_architecture_count (d->arch, SP_LAYER_LINEAR), d->arch->vocabulary, d->arch->tied, d->arch->norm, d->arch->mlp,
      d->arch->qkv_bias, d->arch->projection_bias, d->arch->mlp_bias, d->run.sequence, d->run.micro_batch,
      d->run.global_batch, sp_dtype_name (d->run.precision), d->run.causal, d->framework.fused_attention,
      d->layout.order.axis[0], d->layout.order.axis[1], d->layout.order.axis[2], d->layout.order.axis[3],
      d->layout.order.axis[4], d->layout.order.axis[5], d->arch->moe.experts_per_token, d->arch->moe.experts,
      d->arch->moe.ffn, d->arch->moe.shared_ffn, d->run.expert_imbalance);
  for (gint32 l = 0; l < d->arch->layers; l++) {
    g_autofree char *kind = sp_architecture_kind_text (d->arch, d->arch->layer_kind[l]);
    g_test_message ("layer %d: %s", l, kind);
  }
  g_test_message ("form %d, norms of heads %d, gate %d, sinks %d, rotated %d, latent %d %d %d %d %d, bidirectional %d, "
                  "head %d%d%d, embedding %d, segments %d",
                  d->arch->form, d->arch->qk_norm, d->arch->attention_gate, d->arch->sinks, d->arch->rotary_size,
                  d->arch->latent.q_rank, d->arch->latent.kv_rank, d->arch->latent.nope_size, d->arch->latent.rope_size,
                  d->arch->latent.value_size, d->arch->bidirectional, d->arch->no_final_norm, d->arch->head_transform,
                  d->arch->head_bias, d->arch->embedding_norm, d->arch->token_types);
}
