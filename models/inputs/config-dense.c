/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA and its relatives: pre-norm RMS blocks with a gated MLP, rotation and grouped heads. */
#include "models/inputs/config.h"

const SpConfigField sp_config_llama_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_attention_heads", REQUIRED),
  KV_HEADS ("num_key_value_heads"),
  { "head_dim", INT, OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (head_size) },
  FFN ("intermediate_size", REQUIRED),
  VOCABULARY ("vocab_size", REQUIRED),
  TRAINED ("max_position_embeddings"),
  EPSILON ("rms_norm_eps"),
  THETA ("rope_theta"),
  FLAG ("attention_bias", qkv_bias),
  FLAG ("mlp_bias", mlp_bias),
  FLAG ("tie_word_embeddings", tied),
  { NULL, END },
};

/* What all of them have, K/V heads defaulting to `kv`. */
static gboolean
common (SpConfig *config, gint32 kv, GError **error)
{
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  arch->rotary = TRUE;
  arch->projection_bias = arch->qkv_bias; /* one key for both */
  if (!sp_config_kv_heads (config, "num_key_value_heads", "num_attention_heads", kv, error) ||
      !sp_config_divide_heads (config, "num_attention_heads", "hidden_size", error) ||
      !sp_config_rotary_factor (config, 1, error))
    return FALSE;
  if (arch->head_size % 2 != 0)
    return sp_config_refuse (config, sp_config_member (config, "head_dim") != NULL ? "head_dim" : "num_attention_heads",
                             error, "expected an even head size, for rotary embedding");
  return TRUE;
}

gboolean
sp_config_llama (SpConfig *config, GError **error)
{
  gboolean given;
  return common (config, 0, error) && sp_config_silu (config, "hidden_act", error) &&
         sp_config_layer_types (config, &given, error);
}

/* In all layers, unless layer_types says otherwise. */
static gboolean
mistral (SpConfig *config, GError **error)
{
  gboolean given;
  if (!common (config, 8, error) || !sp_config_silu (config, "hidden_act", error) ||
      !sp_config_window (config, error) || !sp_config_layer_types (config, &given, error))
    return FALSE;
  if (!given)
    sp_config_window_everywhere (config->arch);
  return TRUE;
}

/* A window that use_sliding_window turns on, in layers from max_window_layers on. */
static gboolean
qwen_window (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean on = FALSE, given;
  gint32 full = 28;
  if (!sp_config_bool (config, "use_sliding_window", &on, error) ||
      !sp_config_int (config, "max_window_layers", OPTIONAL, 0, SP_MAX_LAYERS, &full, error))
    return FALSE;
  if (!sp_config_window (config, error))
    return FALSE;
  arch->window = on ? arch->window : 0;
  if (!sp_config_layer_types (config, &given, error))
    return FALSE;
  for (gint32 i = full; !given && arch->window > 0 && i < arch->layers; i++)
    arch->layer_kind[i] |= SP_LAYER_WINDOW;
  return TRUE;
}

/* Biases on q, k and v, whatever the file says. */
static gboolean
qwen2 (SpConfig *config, GError **error)
{
  config->arch->qkv_bias = TRUE;
  if (!common (config, 0, error) || !sp_config_silu (config, "hidden_act", error))
    return FALSE;
  config->arch->projection_bias = FALSE;
  return qwen_window (config, error);
}

static gboolean
qwen3 (SpConfig *config, GError **error)
{
  config->arch->qk_norm = TRUE;
  if (config->arch->head_size == 0)
    config->arch->head_size = 128; /* the class's default, not hidden / heads */
  return common (config, 0, error) && sp_config_silu (config, "hidden_act", error) && qwen_window (config, error);
}

static gboolean
phi3 (SpConfig *config, GError **error)
{
  return common (config, 0, error) && sp_config_silu (config, "hidden_act", error) &&
         sp_config_window (config, error) && (sp_config_window_everywhere (config->arch), TRUE);
}

/* --- Gemma -------------------------------------------------------------------------------------------------------- */

/* Tied unless the file says otherwise, heads of 256, gelu in the gate; embeddings are scaled, which costs nothing. */
static gboolean
gemma (SpConfig *config, GError **error)
{
  static const char *const activations[] = { "gelu", "gelu_pytorch_tanh", NULL };
  SpArchitecture *arch = config->arch;
  arch->tied = TRUE;
  if (arch->head_size == 0)
    arch->head_size = 256;
  if (!sp_config_bool (config, "tie_word_embeddings", &arch->tied, error) || !common (config, 0, error) ||
      !sp_config_one_of (config, "hidden_act", activations, error) ||
      !sp_config_one_of (config, "hidden_activation", activations, error))
    return FALSE;
  arch->mlp = SP_MLP_GEGLU;
  return TRUE;
}

/* Every `pattern`-th layer sees all keys, the others a window. */
static gboolean
gemma_windows (SpConfig *config, gint32 window, gint32 pattern, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean given;
  arch->form = SP_FORM_SANDWICH;
  arch->window = window;
  if (!sp_config_window (config, error) ||
      !sp_config_int (config, "sliding_window_pattern", OPTIONAL, 1, SP_MAX_LAYERS, &pattern, error) ||
      !sp_config_layer_types (config, &given, error))
    return FALSE;
  for (gint32 i = 0; !given && i < arch->layers; i++)
    if ((i + 1) % pattern != 0)
      arch->layer_kind[i] |= SP_LAYER_WINDOW;
  return TRUE;
}

static gboolean
gemma2 (SpConfig *config, GError **error)
{
  return gemma (config, error) && gemma_windows (config, 4096, 2, error);
}

static gboolean
gemma3 (SpConfig *config, GError **error)
{
  config->arch->qk_norm = TRUE;
  return gemma (config, error) && gemma_windows (config, 4096, 6, error);
}

/* --- flash-linear-attention's transformer ------------------------------------------------------------------------- */

static const SpConfigField fla_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_heads", REQUIRED),
  KV_HEADS ("num_kv_heads"),
  FFN ("intermediate_size", OPTIONAL),
  VOCABULARY ("vocab_size", OPTIONAL),
  TRAINED ("max_position_embeddings"),
  EPSILON ("norm_eps"),
  THETA ("rope_theta"),
  FLAG ("qkv_bias", qkv_bias),
  FLAG ("qk_norm", qk_norm),
  { "window_size", INT, OPTIONAL, 1, SP_MAX_POSITIONS, FIELD (window) },
  FLAG ("tie_word_embeddings", tied),
  { NULL, END },
};

static gboolean
fla_transformer (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  arch->rotary = TRUE;
  if (!sp_config_kv_heads (config, "num_kv_heads", "num_heads", 0, error) ||
      !sp_config_divide_heads (config, "num_heads", "hidden_size", error) ||
      !sp_config_silu (config, "hidden_act", error) || !sp_config_fla_defaults (config, SP_CONFIG_GATED (4), error))
    return FALSE;
  sp_config_window_everywhere (arch);
  return TRUE;
}

gboolean
sp_config_fla_defaults (SpConfig *config, SpConfigWidth width, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (!sp_config_number (config, "hidden_ratio", 0.0625, 64, &width.ratio, error))
    return FALSE;
  double features = width.whole ? arch->hidden * width.ratio : arch->hidden * width.ratio * 2 / 3;
  if (arch->ffn == 0)
    arch->ffn = ((gint32) features + width.multiple - 1) / width.multiple * width.multiple;
  if (arch->vocabulary == 0) {
    arch->vocabulary = 32000;
    sp_architecture_note (arch, "vocab_size is not given: 32000, the class's default");
  }
  if (arch->ffn > SP_MAX_FFN)
    return sp_config_refuse (config, "hidden_ratio", error, "expected an MLP of at most %d", SP_MAX_FFN);
  return TRUE;
}

/* clang-format off */
const SpConfigFamily sp_config_dense[] = {
  { "llama", NULL, "LlamaForCausalLM", sp_config_llama_fields, sp_config_llama },
  { "mistral", NULL, "MistralForCausalLM", sp_config_llama_fields, mistral },
  { "qwen2", "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text", "Qwen2ForCausalLM", sp_config_llama_fields, qwen2 },
  { "qwen3", "qwen3_vl_text", "Qwen3ForCausalLM", sp_config_llama_fields, qwen3 },
  { "phi3", NULL, "Phi3ForCausalLM", sp_config_llama_fields, phi3 },
  { "gemma", NULL, "GemmaForCausalLM", sp_config_llama_fields, gemma },
  { "gemma2", NULL, "Gemma2ForCausalLM", sp_config_llama_fields, gemma2 },
  { "gemma3_text", "gemma3", "Gemma3ForCausalLM", sp_config_llama_fields, gemma3 },
  { "transformer", NULL, "TransformerForCausalLM", fla_fields, fla_transformer },
  { NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */
