/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Models that a rehearsal can run, a layout written as overrides of the default, and a device and cluster of round numbers
 * for them. */

#include "models/estimate/estimate.h"
#include "models/layout.h"

#pragma GCC diagnostic ignored "-Woverride-init"

#define LAYOUT(...)                                                                                                    \
  {                                                                                                                    \
    SP_LAYOUT_DEFAULT_FIELDS, __VA_ARGS__                                                                              \
  }
#define CONTIGUOUS .token_split = SP_TOKENS_CONTIGUOUS

typedef enum {
  SMALL_SOFTMAX,
  SMALL_GQA,
  SMALL_MQA,
  SMALL_WINDOW,
  SMALL_SINKS,
  SMALL_GATED,
  SMALL_LATENT,
  SMALL_LATENT_PLAIN,
  SMALL_LATENT_EXPERTS,
  SMALL_PARALLEL,
  SMALL_PARALLEL_TWO,
  SMALL_SANDWICH,
  SMALL_BRANCH_NORM,
  SMALL_BERT,
  SMALL_OPT,
  SMALL_BARE,
  SMALL_LINEAR,
  SMALL_HYBRID,
  SMALL_EXPERTS,
  SMALL_EXPERT_BIAS,
  SMALL_SHARED,
  SMALL_LIGHTNING, /* linear layers of other families: from here on */
  SMALL_RETNET,
  SMALL_GLA,
  SMALL_SIMPLE_GLA,
  SMALL_MAMBA,
  SMALL_JAMBA, /* with norms of what the scan reads */
  SMALL_MAMBA2,
  SMALL_DELTA,
  SMALL_GATED_DELTA,
  SMALL_KDA,
  SMALL_RWKV7,
  SMALL_DELTA_HYBRID, /* to here; every second layer is softmax */
  SMALL_GPT,
  SMALL_TIED,
  N_SMALL
} SmallModel;

/* As public models have them, by the family that is most like it: Gemma 3, GPT-OSS, Qwen3-Next's softmax layers,
 * DeepSeek-V3 and V2-Lite, Falcon, Phi-2 with relu^2 and half of its layers without an MLP, Gemma 2, OLMo 2 without the
 * norms of heads, BERT, OPT, and one without a norm at its end. */
static inline void
small_softmax_family (SmallModel kind, SpArchitecture *arch)
{
  arch->kv_heads = 4;
  if (kind == SMALL_WINDOW || kind == SMALL_SINKS || kind == SMALL_SANDWICH) {
    arch->layer_kind[0] |= SP_LAYER_WINDOW;
    arch->window = kind == SMALL_SINKS ? 9 : 5;
  }
  arch->qk_norm = kind == SMALL_WINDOW || kind == SMALL_GATED;
  if (kind == SMALL_SINKS)
    arch->sinks = arch->qkv_bias = arch->projection_bias = TRUE;
  if (kind == SMALL_GATED) {
    arch->attention_gate = TRUE;
    arch->rotary_size = arch->kv_heads = 2;
  }
  if (kind == SMALL_LATENT || kind == SMALL_LATENT_PLAIN || kind == SMALL_LATENT_EXPERTS) {
    arch->kv_heads = 8;
    arch->latent = (SpLatentShape){
      .q_rank = kind == SMALL_LATENT_PLAIN ? 0 : 12, .kv_rank = 10, .nope_size = 4, .rope_size = 2, .value_size = 3
    };
    arch->head_size = 6;
  }
  if (kind == SMALL_LATENT_EXPERTS) {
    arch->moe = (SpExpertShape){ .experts = 4, .experts_per_token = 2, .ffn = 16, .shared_ffn = 24 };
    arch->layer_kind[1] |= SP_LAYER_EXPERTS;
  }
  if (kind == SMALL_PARALLEL) {
    arch->form = SP_FORM_PARALLEL;
    arch->norm = SP_NORM_LAYER;
    arch->mlp = SP_MLP_GELU;
    arch->kv_heads = 2;
  }
  if (kind == SMALL_PARALLEL_TWO) {
    arch->form = SP_FORM_PARALLEL_TWO;
    arch->norm = SP_NORM_LAYER;
    arch->mlp = SP_MLP_RELU2;
    arch->rotary_size = 2;
    arch->qkv_bias = arch->projection_bias = arch->mlp_bias = TRUE;
    arch->layer_kind[1] |= SP_LAYER_NO_MLP;
  }
  if (kind == SMALL_SANDWICH) {
    arch->form = SP_FORM_SANDWICH;
    arch->mlp = SP_MLP_GEGLU;
    arch->tied = TRUE;
  }
  if (kind == SMALL_BRANCH_NORM)
    arch->form = SP_FORM_BRANCH_NORM;
  if (kind == SMALL_BERT || kind == SMALL_OPT) {
    arch->kv_heads = 8;
    arch->norm = SP_NORM_LAYER;
    arch->mlp = kind == SMALL_BERT ? SP_MLP_GELU : SP_MLP_RELU;
    arch->rotary = FALSE;
    arch->qkv_bias = arch->projection_bias = arch->mlp_bias = arch->tied = TRUE;
    arch->positions = 64;
    arch->position_offset = kind == SMALL_BERT ? 0 : 2;
  }
  if (kind == SMALL_BERT) {
    arch->form = SP_FORM_POST_NORM;
    arch->bidirectional = arch->embedding_norm = arch->no_final_norm = arch->head_transform = arch->head_bias = TRUE;
    arch->token_types = 2;
    arch->dropout = 0.1;
  }
  if (kind == SMALL_BARE)
    arch->no_final_norm = arch->head_bias = arch->embedding_norm = TRUE;
}

/* clang-format off */
static const SpLinearShape small_shapes[] = {
  { .family = SP_LINEAR_LIGHTNING, .heads = 8, .key_heads = 8, .key_size = 4, .value_size = 4, .output_gate = TRUE },
  { .family = SP_LINEAR_RETNET, .heads = 8, .key_heads = 8, .key_size = 2, .value_size = 4, .output_gate = TRUE },
  { .family = SP_LINEAR_GLA, .heads = 8, .key_heads = 8, .key_size = 3, .value_size = 4, .gate_rank = 5, .output_gate = TRUE },
  { .family = SP_LINEAR_SIMPLE_GLA, .heads = 8, .key_heads = 8, .key_size = 4, .value_size = 2, .conv = 3, .output_gate = TRUE },
  { .family = SP_LINEAR_MAMBA, .heads = 16, .key_heads = 1, .key_size = 3, .value_size = 1, .conv = 4, .conv_bias = TRUE, .gate_rank = 2 },
  { .family = SP_LINEAR_MAMBA, .heads = 16, .key_heads = 1, .key_size = 3, .value_size = 1, .conv = 4, .conv_bias = TRUE, .gate_rank = 2, .output_gate = TRUE },
  { .family = SP_LINEAR_MAMBA2, .heads = 8, .key_heads = 4, .key_size = 4, .value_size = 3, .conv = 4, .conv_bias = TRUE, .output_gate = TRUE },
  { .family = SP_LINEAR_DELTA, .heads = 8, .key_heads = 8, .key_size = 4, .value_size = 3 },
  { .family = SP_LINEAR_GATED_DELTA, .heads = 8, .key_heads = 4, .key_size = 4, .value_size = 3, .conv = 4, .output_gate = TRUE },
  { .family = SP_LINEAR_KDA, .heads = 8, .key_heads = 8, .key_size = 3, .value_size = 2, .conv = 2, .gate_rank = 3, .output_gate = TRUE },
  { .family = SP_LINEAR_RWKV7, .heads = 8, .key_heads = 8, .key_size = 3, .value_size = 3, .gate_rank = 4, .output_gate = TRUE },
  { .family = SP_LINEAR_GATED_DELTA, .heads = 16, .key_heads = 8, .key_size = 2, .value_size = 3, .conv = 4, .output_gate = TRUE },
};
/* clang-format on */

/* Two layers, 8 heads of size 4, gradients that tell mistakes apart. */
static inline SpArchitecture *
small_model (SmallModel kind)
{
  SpArchitecture *arch = sp_architecture_new ();

  g_free (arch->name);
  arch->name = g_strdup ("small");
  arch->layers = 2;
  arch->hidden = 24;
  arch->heads = arch->kv_heads = 8;
  arch->head_size = 4;
  arch->ffn = 40;
  arch->vocabulary = 48;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  arch->rotary = TRUE;
  arch->rope_theta = 100;
  arch->norm_epsilon = 1e-5;
  if (kind == SMALL_GQA)
    arch->kv_heads = 4;
  if (kind == SMALL_MQA)
    arch->kv_heads = 2;
  if (kind >= SMALL_WINDOW && kind <= SMALL_BARE)
    small_softmax_family (kind, arch);
  if (kind == SMALL_LINEAR || kind == SMALL_HYBRID) {
    arch->layer_kind[0] = SP_LAYER_LINEAR;
    arch->layer_kind[1] = kind == SMALL_LINEAR ? SP_LAYER_LINEAR : SP_LAYER_SOFTMAX;
    arch->norm = kind == SMALL_LINEAR ? SP_NORM_RMS_NO_GAIN : SP_NORM_RMS;
    arch->mlp = SP_MLP_LINEAR_GLU;
  }
  /* A dense layer and one of 8 experts, plain or as GPT-OSS has them; experts beside a gated dense part in both. */
  if (kind == SMALL_EXPERTS || kind == SMALL_EXPERT_BIAS || kind == SMALL_SHARED) {
    arch->kv_heads = 4;
    arch->moe = (SpExpertShape){ .experts = 8, .experts_per_token = 2, .ffn = 16 };
    arch->layer_kind[1] |= SP_LAYER_EXPERTS;
  }
  if (kind == SMALL_EXPERT_BIAS) {
    arch->moe.bias = arch->sinks = arch->qkv_bias = arch->projection_bias = TRUE;
    arch->layer_kind[0] |= SP_LAYER_EXPERTS | SP_LAYER_WINDOW;
    arch->window = 9;
  }
  if (kind == SMALL_SHARED) {
    arch->layer_kind[0] |= SP_LAYER_EXPERTS;
    arch->moe.shared_ffn = 24;
    arch->moe.shared_gate = TRUE;
    arch->norm = SP_NORM_LAYER;
  }
  if (kind >= SMALL_LIGHTNING && kind <= SMALL_DELTA_HYBRID) {
    guint8 layer = SP_LAYER_LINEAR | (kind == SMALL_MAMBA2 || kind == SMALL_MAMBA ? SP_LAYER_NO_MLP : 0);
    arch->linear = small_shapes[kind - SMALL_LIGHTNING];
    arch->layer_kind[0] = layer;
    arch->layer_kind[1] = kind == SMALL_DELTA_HYBRID ? SP_LAYER_SOFTMAX : layer;
    arch->kv_heads = kind == SMALL_DELTA_HYBRID ? 4 : arch->kv_heads;
  }
  if (kind == SMALL_GPT || kind == SMALL_TIED) {
    arch->norm = SP_NORM_LAYER;
    arch->mlp = SP_MLP_GELU;
    arch->rotary = FALSE;
    arch->positions = 64;
    arch->qkv_bias = arch->projection_bias = arch->mlp_bias = TRUE;
    arch->tied = kind == SMALL_TIED;
    arch->dropout = 0.2;
  }
  return arch;
}

/* Rows of the schedule table. */
enum { ONE_F_ONE_B, GPIPE, INTERLEAVED, ZB_H1, DUALPIPE };

static inline SpFramework
small_framework (gboolean fused)
{
  SpFramework framework = { .name = (char *) "test",
                            .fused_attention = fused,
                            .selective_attention = !fused,
                            .recompute_whole = !fused,
                            .fp32_logits = fused,
                            .loss_copies = fused };

  return framework;
}

/* Round numbers of no card, so that a step has some of each term. */
static inline SpDevice
small_device (double memory_bytes)
{
  return (SpDevice){ .peak_bf16_flops_per_s = { 1e14 },
                     .memory_bytes = { memory_bytes },
                     .memory_bytes_per_s = { 1e12 },
                     .sms = { 100 },
                     .launch_s = { 1e-6 },
                     .gemm_efficiency = { 0.8 },
                     .attention_efficiency = { 0.7 },
                     .attention_backward_efficiency = { 0.6 },
                     .linear_efficiency = { 0.1 },
                     .memory_efficiency = { 0.9 },
                     .link_bytes_per_s = { 2e11 },
                     .overlap_slowdown = { 0.1 } };
}

static inline SpCluster
small_cluster (SpDevice *device, gint32 nodes, gint32 gpus_per_node)
{
  return (SpCluster){ .name = (char *) "test",
                      .device = device,
                      .nodes = nodes,
                      .gpus_per_node = gpus_per_node,
                      .link_efficiency = { 0.8 },
                      .link_latency_s = { 3e-6 },
                      .nics = { 1 },
                      .nic_bytes_per_s = { 1e10 },
                      .network_efficiency = { 0.8 },
                      .network_latency_s = { 2e-5 } };
}
