/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax models with experts: Mixtral, Qwen, DeepSeek and Kimi with latent attention, GPT-OSS. */
#include "models/inputs/config.h"

/* How many experts, and how many a token is sent to. */
static gboolean
read_experts (SpConfig *config, const char *key, GError **error)
{
  SpExpertShape *moe = &config->arch->moe;
  if (!sp_config_int (config, key, REQUIRED, 1, SP_MAX_EXPERTS, &moe->experts, error) ||
      !sp_config_int (config, "num_experts_per_tok", REQUIRED, 1, SP_MAX_EXPERTS, &moe->experts_per_token, error))
    return FALSE;
  if (moe->experts_per_token > moe->experts)
    return sp_config_refuse (config, "num_experts_per_tok", error, "expected at most %s = %d", key, moe->experts);
  return TRUE;
}

static void
experts_everywhere (SpArchitecture *arch)
{
  for (gint32 i = 0; i < arch->layers; i++)
    arch->layer_kind[i] |= SP_LAYER_EXPERTS;
}

static gboolean
mixtral (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (!sp_config_llama (config, error) || !read_experts (config, "num_local_experts", error) ||
      !sp_config_window (config, error))
    return FALSE;
  arch->moe.ffn = arch->ffn;
  experts_everywhere (arch);
  sp_config_window_everywhere (arch);
  return TRUE;
}

static gboolean
qwen_experts (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean window = FALSE;
  if (!sp_config_bool (config, "use_sliding_window", &window, error))
    return FALSE;
  if (window)
    return sp_config_refuse (config, "use_sliding_window", error,
                             "expected false; a window beside experts is not known");
  sp_config_member (config, "sliding_window"); /* off, whatever its size */
  return sp_config_llama (config, error) && read_experts (config, "num_experts", error) &&
         sp_config_int (config, "moe_intermediate_size", REQUIRED, 1, SP_MAX_FFN, &arch->moe.ffn, error) &&
         sp_config_sparse_layers (config, error);
}

static gboolean
qwen2_moe (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (!qwen_experts (config, error) ||
      !sp_config_int (config, "shared_expert_intermediate_size", OPTIONAL, 1, SP_MAX_FFN, &arch->moe.shared_ffn, error))
    return FALSE;
  arch->qkv_bias = TRUE;
  arch->projection_bias = FALSE;
  arch->moe.shared_gate = arch->moe.shared_ffn > 0;
  return TRUE;
}

static gboolean
qwen3_moe (SpConfig *config, GError **error)
{
  config->arch->qk_norm = TRUE;
  return qwen_experts (config, error);
}

/* --- latent attention --------------------------------------------------------------------------------------------- */

gboolean
sp_config_latent (SpConfig *config, GError **error)
{
  SpLatentShape *l = &config->arch->latent;
  return sp_config_int (config, "q_lora_rank", OPTIONAL, 1, SP_MAX_HIDDEN, &l->q_rank, error) &&
         sp_config_int (config, "kv_lora_rank", REQUIRED, 1, SP_MAX_HIDDEN, &l->kv_rank, error) &&
         sp_config_int (config, "qk_nope_head_dim", REQUIRED, 1, SP_MAX_HEAD_SIZE / 2, &l->nope_size, error) &&
         sp_config_int (config, "qk_rope_head_dim", REQUIRED, 2, SP_MAX_HEAD_SIZE / 2, &l->rope_size, error) &&
         sp_config_int (config, "v_head_dim", REQUIRED, 1, SP_MAX_HEAD_SIZE, &l->value_size, error);
}

/* The first layers are dense, then every moe_layer_freq-th has experts. */
gboolean
sp_config_deepseek_experts (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gint32 dense = 0, frequency = 1, shared = 0;
  const char *key = sp_config_member (config, "n_shared_experts") != NULL ? "n_shared_experts" : "num_shared_experts";
  const char *per_token =
      sp_config_member (config, "num_experts_per_tok") != NULL ? "num_experts_per_tok" : "num_experts_per_token";
  if (sp_config_member (config, "n_routed_experts") == NULL && sp_config_member (config, "num_experts") == NULL)
    return TRUE;
  const char *experts = sp_config_member (config, "n_routed_experts") != NULL ? "n_routed_experts" : "num_experts";
  if (!sp_config_int (config, experts, REQUIRED, 1, SP_MAX_EXPERTS, &arch->moe.experts, error) ||
      !sp_config_int (config, per_token, REQUIRED, 1, arch->moe.experts, &arch->moe.experts_per_token, error) ||
      !sp_config_int (config, "moe_intermediate_size", REQUIRED, 1, SP_MAX_FFN, &arch->moe.ffn, error) ||
      !sp_config_int (config, key, OPTIONAL, 0, SP_MAX_FFN / arch->moe.ffn, &shared, error) ||
      !sp_config_int (config, "first_k_dense_replace", OPTIONAL, 0, SP_MAX_LAYERS, &dense, error) ||
      !sp_config_int (config, "moe_layer_freq", OPTIONAL, 1, SP_MAX_LAYERS, &frequency, error))
    return FALSE;
  arch->moe.shared_ffn = shared * arch->moe.ffn;
  for (gint32 i = dense; i < arch->layers; i++)
    if (i % frequency == 0)
      arch->layer_kind[i] |= SP_LAYER_EXPERTS;
  return TRUE;
}

static gboolean
deepseek (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (!sp_config_latent (config, error))
    return FALSE;
  arch->head_size = arch->latent.nope_size + arch->latent.rope_size;
  arch->kv_heads = arch->heads; /* of the keys and values that come out of the latent */
  return sp_config_llama (config, error) && sp_config_deepseek_experts (config, error);
}

/* --- GPT-OSS ------------------------------------------------------------------------------------------------------ */

/* Biases everywhere, in the experts too; a learned logit a head; a window in the layers that layer_types says. */
static gboolean
gpt_oss (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean given;
  arch->qkv_bias = arch->sinks = arch->moe.bias = TRUE;
  if (sp_config_member (config, "num_experts_per_tok") == NULL &&
      sp_config_member (config, "experts_per_token") != NULL)
    json_object_set_member (config->object, "num_experts_per_tok",
                            json_node_copy (sp_config_member (config, "experts_per_token")));
  if (!sp_config_bool (config, "attention_bias", &arch->qkv_bias, error) || !sp_config_window (config, error))
    return FALSE;
  if (!sp_config_llama (config, error) || !read_experts (config, "num_local_experts", error) ||
      !sp_config_layer_types (config, &given, error))
    return FALSE;
  for (gint32 i = 0; !given && arch->window > 0 && i < arch->layers; i += 2)
    arch->layer_kind[i] |= SP_LAYER_WINDOW;
  arch->moe.ffn = arch->ffn;
  experts_everywhere (arch);
  return TRUE;
}

/* clang-format off */
const SpConfigFamily sp_config_experts[] = {
  { "mixtral", NULL, "MixtralForCausalLM", sp_config_llama_fields, mixtral },
  { "qwen2_moe", NULL, "Qwen2MoeForCausalLM", sp_config_llama_fields, qwen2_moe },
  { "qwen3_moe", "qwen3_vl_moe_text", "Qwen3MoeForCausalLM", sp_config_llama_fields, qwen3_moe },
  { "deepseek_v2", NULL, "DeepseekV2ForCausalLM", sp_config_llama_fields, deepseek },
  { "deepseek_v3", "kimi_k2", "DeepseekV3ForCausalLM", sp_config_llama_fields, deepseek },
  { "gpt_oss", NULL, "GptOssForCausalLM", sp_config_llama_fields, gpt_oss },
  { NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */
