/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention and its relatives, and hybrids of them with softmax layers: TransNormer, flash-linear-attention's
 * families, Mamba, MiniMax-01, Jamba, Qwen3-Next, Kimi-Linear.
 */
#include "models/inputs/config.h"

static void
linear_everywhere (SpArchitecture *arch)
{
  memset (arch->layer_kind, SP_LAYER_LINEAR, (gsize) arch->layers);
}

static const SpConfigField transnormer_fields[] = {
  LAYERS ("decoder_layers", REQUIRED),
  HIDDEN ("decoder_embed_dim", REQUIRED),
  HEADS ("decoder_attention_heads", REQUIRED),
  FFN ("glu_dim", REQUIRED),
  VOCABULARY ("vocab_size", REQUIRED),
  FLAG ("tie_word_embeddings", tied),
  { NULL, END },
};

/* TransNormer's attention has an inner width of its own, and an optional rotation (LRPE) in listed layers. */
static gboolean
transnormer_attention (SpConfig *config, GError **error)
{
  JsonNode *width = sp_config_member (config, "hidden_dim");
  gint64 value;
  if (width != NULL && (!sp_config_is_whole (width, &value) || value != config->arch->hidden))
    return sp_config_refuse (config, "hidden_dim", error,
                             "expected decoder_embed_dim = %d; others are not available yet", config->arch->hidden);
  JsonNode *rotated = sp_config_member (config, "linear_use_lrpe_list");
  if (rotated == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY (rotated))
    return sp_config_refuse (config, "linear_use_lrpe_list", error, "expected a list of layers");
  if (json_array_get_length (json_node_get_array (rotated)) > 0)
    sp_architecture_note (config->arch, "linear_use_lrpe_list: the rotation in these layers is not counted");
  return TRUE;
}

static gboolean
transnormer (SpConfig *config, GError **error)
{
  static const char *const norms[] = { "simplermsnorm", NULL };
  static const char *const none[] = { "none", NULL };
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_RMS_NO_GAIN;
  arch->mlp = SP_MLP_LINEAR_GLU;
  arch->kv_heads = arch->heads;
  linear_everywhere (arch);
  if (sp_config_member (config, "tie_word_embeddings") == NULL)
    sp_architecture_note (arch, "tie_word_embeddings is not given: untied, the class's default");
  gboolean bias = FALSE;
  if (!sp_config_bool (config, "bias", &bias, error))
    return FALSE;
  if (bias)
    return sp_config_refuse (config, "bias", error, "expected false; biases in linear layers are not available yet");
  return sp_config_divide_heads (config, "decoder_attention_heads", "decoder_embed_dim", error) &&
         sp_config_one_of (config, "norm_type", norms, error) && sp_config_silu (config, "linear_act_fun", error) &&
         sp_config_one_of (config, "glu_act", none, error) && transnormer_attention (config, error);
}

/* --- flash-linear-attention --------------------------------------------------------------------------------------- */

static const SpConfigField fla_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_heads", OPTIONAL),
  FFN ("intermediate_size", OPTIONAL),
  VOCABULARY ("vocab_size", OPTIONAL),
  TRAINED ("max_position_embeddings"),
  EPSILON ("norm_eps"),
  FLAG ("tie_word_embeddings", tied),
  { NULL, END },
};

/* `attn`: softmax layers among the others, by their numbers, with heads of their own. */
static gboolean
fla_hybrid (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpConfig part;
  arch->kv_heads = arch->heads;
  if (sp_config_member (config, "attn") == NULL)
    return TRUE;
  if (!sp_config_enter (config, "attn", &part, error) ||
      !sp_config_int (&part, "num_heads", OPTIONAL, 1, SP_MAX_HEADS, &arch->heads, error))
    return FALSE;
  arch->kv_heads = arch->heads;
  arch->head_size = 0;
  arch->rotary = TRUE;
  if (!sp_config_int (&part, "num_kv_heads", OPTIONAL, 1, SP_MAX_HEADS, &arch->kv_heads, error) ||
      !sp_config_int (&part, "window_size", OPTIONAL, 1, SP_MAX_POSITIONS, &arch->window, error) ||
      !sp_config_bool (&part, "qkv_bias", &arch->qkv_bias, error) ||
      !sp_config_kv_heads (&part, "num_kv_heads", "num_heads", 0, error) ||
      !sp_config_divide_heads (&part, "num_heads", "hidden_size", error))
    return FALSE;
  return sp_config_listed_layers (&part, "layers", 0, SP_N_LAYER_KINDS - 1,
                                  SP_LAYER_SOFTMAX | (arch->window > 0 ? SP_LAYER_WINDOW : 0), error);
}

/* Heads of key and value size from expansions of the hidden size. */
static gboolean
fla_common (SpConfig *config, SpLinearFamily family, double expand_k, double expand_v, gint32 heads, double ratio,
            GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  l->family = family;
  l->output_gate = TRUE;
  arch->heads = arch->heads > 0 ? arch->heads : heads;
  if (!sp_config_number (config, "expand_k", 0.0625, 16, &expand_k, error) ||
      !sp_config_number (config, "expand_v", 0.0625, 16, &expand_v, error) ||
      !sp_config_bool (config, "use_output_gate", &l->output_gate, error) ||
      !sp_config_silu (config, "hidden_act", error) || !sp_config_fla_defaults (config, SP_CONFIG_GATED (ratio), error))
    return FALSE;
  l->heads = l->key_heads = arch->heads;
  l->key_size = (gint32) (arch->hidden * expand_k / arch->heads);
  l->value_size = (gint32) (arch->hidden * expand_v / arch->heads);
  if (l->key_size * arch->heads != (gint32) (arch->hidden * expand_k) ||
      l->value_size * arch->heads != (gint32) (arch->hidden * expand_v))
    return sp_config_refuse (config, "num_heads", error, "expected a divisor of hidden_size x expand_k and x expand_v");
  arch->head_size = l->key_size;
  linear_everywhere (arch);
  return fla_hybrid (config, error);
}

static gboolean
read_conv (SpConfig *config, gboolean used, GError **error)
{
  gint32 width = 4;
  if (!sp_config_bool (config, "use_short_conv", &used, error) ||
      !sp_config_int (config, "conv_size", OPTIONAL, 1, 64, &width, error))
    return FALSE;
  config->arch->linear.conv = used ? width : 0;
  return TRUE;
}

static gboolean
gla (SpConfig *config, GError **error)
{
  config->arch->linear.gate_rank = 16;
  return fla_common (config, SP_LINEAR_GLA, 0.5, 1, 4, 4, error) && read_conv (config, FALSE, error) &&
         sp_config_int (config, "gate_low_rank_dim", OPTIONAL, 1, SP_MAX_HIDDEN, &config->arch->linear.gate_rank,
                        error);
}

static gboolean
retnet (SpConfig *config, GError **error)
{
  config->arch->rotary = TRUE;
  return fla_common (config, SP_LINEAR_RETNET, 1, 2, 8, 2, error) && read_conv (config, FALSE, error);
}

static gboolean
delta_net (SpConfig *config, GError **error)
{
  if (!fla_common (config, SP_LINEAR_DELTA, 1, 1, 4, 4, error) || !read_conv (config, TRUE, error))
    return FALSE;
  if (sp_config_member (config, "use_output_gate") == NULL && sp_config_member (config, "use_gate") == NULL)
    config->arch->linear.output_gate = FALSE;
  return sp_config_bool (config, "use_gate", &config->arch->linear.output_gate, error);
}

/* Heads of head_dim, values expand_v times as wide. */
static gboolean
head_dim_common (SpConfig *config, SpLinearFamily family, gint32 head_dim, gint32 heads, double expand_v,
                 GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  if (!sp_config_int (config, "head_dim", OPTIONAL, 1, SP_MAX_HEAD_SIZE, &head_dim, error) ||
      !sp_config_number (config, "expand_v", 0.0625, 16, &expand_v, error) ||
      !sp_config_bool (config, "use_gate", &l->output_gate, error) || !sp_config_silu (config, "hidden_act", error) ||
      !sp_config_fla_defaults (config, SP_CONFIG_GATED (4), error) || !read_conv (config, TRUE, error))
    return FALSE;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  arch->heads = arch->heads > 0 ? arch->heads : heads;
  l->family = family;
  l->heads = l->key_heads = arch->heads;
  l->key_size = head_dim;
  l->value_size = (gint32) (head_dim * expand_v);
  if (!sp_config_int (config, "num_v_heads", OPTIONAL, 1, SP_MAX_HEADS, &l->heads, error))
    return FALSE;
  if (l->heads % l->key_heads != 0)
    return sp_config_refuse (config, "num_v_heads", error, "expected a multiple of num_heads = %d", l->key_heads);
  arch->head_size = head_dim;
  linear_everywhere (arch);
  return fla_hybrid (config, error);
}

static gboolean
gated_deltanet (SpConfig *config, GError **error)
{
  config->arch->linear.output_gate = TRUE;
  return head_dim_common (config, SP_LINEAR_GATED_DELTA, 256, 6, 2, error);
}

static gboolean
kda (SpConfig *config, GError **error)
{
  config->arch->linear.output_gate = TRUE;
  if (!head_dim_common (config, SP_LINEAR_KDA, 128, 16, 1, error))
    return FALSE;
  config->arch->linear.gate_rank = config->arch->linear.value_size;
  return TRUE;
}

/* --- RWKV --------------------------------------------------------------------------------------------------------- */

/* The ranks of all low-rank parts together; an MLP of `ratio` times the hidden size. */
static gboolean
rwkv (SpConfig *config, SpLinearFamily family, const char *const *ranks, const gint32 *defaults, double ratio,
      GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  gint32 head_dim = arch->heads > 0 ? arch->hidden / arch->heads : 64;
  if (!sp_config_int (config, "head_dim", OPTIONAL, 1, SP_MAX_HEAD_SIZE, &head_dim, error))
    return FALSE;
  if (head_dim == 0 || arch->hidden % head_dim != 0)
    return sp_config_refuse (config, "head_dim", error, "expected a divisor of hidden_size = %d", arch->hidden);
  for (guint i = 0; ranks[i] != NULL; i++) {
    gint32 rank = defaults[i];
    if (!sp_config_int (config, ranks[i], OPTIONAL, 1, SP_MAX_HIDDEN / 8, &rank, error))
      return FALSE;
    l->gate_rank += rank;
  }
  if (!sp_config_fla_defaults (config, (SpConfigWidth){ ratio, TRUE, 32 }, error))
    return FALSE;
  arch->norm = SP_NORM_LAYER;
  arch->mlp = SP_MLP_RELU2;
  arch->heads = arch->hidden / head_dim;
  arch->head_size = l->key_size = l->value_size = head_dim;
  l->family = family;
  l->heads = l->key_heads = arch->heads;
  linear_everywhere (arch);
  sp_architecture_note (arch, "the token shifts are not priced");
  return fla_hybrid (config, error);
}

static gboolean
rwkv6 (SpConfig *config, GError **error)
{
  static const char *const ranks[] = { "proj_low_rank_dim", "gate_low_rank_dim", NULL };
  static const gint32 defaults[] = { 160, 64 };
  config->arch->linear.output_gate = TRUE;
  return rwkv (config, SP_LINEAR_RWKV6, ranks, defaults, 3.5, error);
}

static gboolean
rwkv7 (SpConfig *config, GError **error)
{
  static const char *const ranks[] = { "decay_low_rank_dim", "gate_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim",
                                       NULL };
  static const gint32 defaults[] = { 64, 128, 64, 16 };
  return rwkv (config, SP_LINEAR_RWKV7, ranks, defaults, 4, error);
}

/* --- Mamba -------------------------------------------------------------------------------------------------------- */

static const SpConfigField mamba_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  { "hidden_size", INT, REQUIRED, 1, SP_MAX_HIDDEN / 16, FIELD (hidden) },
  VOCABULARY ("vocab_size", REQUIRED),
  { "conv_kernel", INT, OPTIONAL, 1, 64, FIELD (linear.conv) },
  { "state_size", INT, OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (linear.key_size) },
  { "num_heads", INT, OPTIONAL, 1, SP_MAX_HEADS, FIELD (linear.heads) },
  { "n_groups", INT, OPTIONAL, 1, SP_MAX_HEADS, FIELD (linear.key_heads) },
  { "head_dim", INT, OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (linear.value_size) },
  EPSILON ("norm_eps"),
  EPSILON ("layer_norm_epsilon"),
  FLAG ("use_conv_bias", linear.conv_bias),
  { NULL, END },
};

static gboolean
mamba_common (SpConfig *config, gint32 state, gint32 *ret_inner, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  gint32 expand = 2;
  gboolean bias = FALSE;
  if (!sp_config_int (config, "expand", OPTIONAL, 1, 16, &expand, error) ||
      !sp_config_bool (config, "use_bias", &bias, error) || !sp_config_silu (config, "hidden_act", error))
    return FALSE;
  if (bias)
    return sp_config_refuse (config, "use_bias", error,
                             "expected false; biases of the projections are not available yet");
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  l->conv = l->conv > 0 ? l->conv : 4;
  l->conv_bias |= sp_config_member (config, "use_conv_bias") == NULL;
  l->key_size = l->key_size > 0 ? l->key_size : state;
  *ret_inner = expand * arch->hidden;
  memset (arch->layer_kind, SP_LAYER_LINEAR | SP_LAYER_NO_MLP, (gsize) arch->layers);
  return TRUE;
}

static gboolean
mamba2 (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  gint32 inner = 0;
  if (!mamba_common (config, 128, &inner, error) || !sp_config_bool (config, "tie_word_embeddings", &arch->tied, error))
    return FALSE;
  l->family = SP_LINEAR_MAMBA2;
  l->output_gate = TRUE;
  l->value_size = l->value_size > 0 ? l->value_size : 64;
  l->key_heads = l->key_heads > 0 ? l->key_heads : 8;
  if (inner % l->value_size != 0 || (l->heads > 0 && l->heads * l->value_size != inner))
    return sp_config_refuse (config, "head_dim", error, "expected num_heads x head_dim = expand x hidden_size = %d",
                             inner);
  l->heads = inner / l->value_size;
  if (l->heads > SP_MAX_HEADS || l->heads % l->key_heads != 0)
    return sp_config_refuse (config, "n_groups", error, "expected a divisor of the %d heads", l->heads);
  arch->heads = arch->kv_heads = l->heads;
  arch->head_size = l->value_size;
  return TRUE;
}

/* One head a channel; keys and queries, of the state's size, are shared by all. */
static gboolean
scan (SpConfig *config, gint32 inner, const char *rank_key, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  JsonNode *rank = sp_config_member (config, rank_key);
  gboolean automatic =
      rank == NULL || (JSON_NODE_HOLDS_VALUE (rank) && json_node_get_value_type (rank) == G_TYPE_STRING &&
                       g_str_equal (json_node_get_string (rank), "auto"));
  l->family = SP_LINEAR_MAMBA;
  l->heads = inner;
  l->key_heads = l->value_size = 1;
  l->gate_rank = (arch->hidden + 15) / 16; /* the class's "auto" */
  return automatic || sp_config_int (config, rank_key, OPTIONAL, 1, SP_MAX_HIDDEN / 8, &l->gate_rank, error);
}

static gboolean
mamba (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gint32 inner = 0;
  arch->tied = TRUE;
  if (!mamba_common (config, 16, &inner, error) || !scan (config, inner, "time_step_rank", error) ||
      !sp_config_bool (config, "tie_word_embeddings", &arch->tied, error))
    return FALSE;
  arch->heads = arch->kv_heads = arch->head_size = 1; /* none of softmax */
  return TRUE;
}

/* --- hybrids ------------------------------------------------------------------------------------------------------ */

static gboolean
jamba (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  gint32 period = 8, offset = 4, expert_period = 2, expert_offset = 1, expand = 2;
  gboolean proj_bias = FALSE;
  l->conv = 4;
  l->key_size = 16;
  l->conv_bias = l->output_gate = TRUE;
  arch->moe.experts = 16;
  arch->moe.experts_per_token = 2;
  if (!sp_config_llama (config, error) ||
      !sp_config_int (config, "attn_layer_period", OPTIONAL, 1, SP_MAX_LAYERS, &period, error) ||
      !sp_config_int (config, "attn_layer_offset", OPTIONAL, 0, SP_MAX_LAYERS, &offset, error) ||
      !sp_config_int (config, "expert_layer_period", OPTIONAL, 1, SP_MAX_LAYERS, &expert_period, error) ||
      !sp_config_int (config, "expert_layer_offset", OPTIONAL, 0, SP_MAX_LAYERS, &expert_offset, error) ||
      !sp_config_int (config, "num_experts", OPTIONAL, 1, SP_MAX_EXPERTS, &arch->moe.experts, error) ||
      !sp_config_int (config, "num_experts_per_tok", OPTIONAL, 1, arch->moe.experts, &arch->moe.experts_per_token,
                      error) ||
      !sp_config_int (config, "mamba_d_state", OPTIONAL, 1, SP_MAX_HEAD_SIZE, &l->key_size, error) ||
      !sp_config_int (config, "mamba_d_conv", OPTIONAL, 1, 64, &l->conv, error) ||
      !sp_config_int (config, "mamba_expand", OPTIONAL, 1, 16, &expand, error) ||
      !sp_config_bool (config, "mamba_conv_bias", &l->conv_bias, error) ||
      !sp_config_bool (config, "mamba_proj_bias", &proj_bias, error))
    return FALSE;
  if (proj_bias)
    return sp_config_refuse (config, "mamba_proj_bias", error,
                             "expected false; biases of the projections are not available yet");
  arch->rotary = FALSE;
  arch->moe.ffn = arch->ffn;
  if (arch->moe.experts == 1)
    arch->moe.experts = arch->moe.experts_per_token = 0;
  for (gint32 i = 0; i < arch->layers; i++) {
    arch->layer_kind[i] = i % period == offset % period ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
    if (arch->moe.experts > 1 && i % expert_period == expert_offset % expert_period)
      arch->layer_kind[i] |= SP_LAYER_EXPERTS;
  }
  return scan (config, expand * arch->hidden, "mamba_dt_rank", error);
}

/* attn_type_list: 1 softmax, 0 linear. The residual is taken after the norm and scaled, which costs nothing. */
static gboolean
minimax (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean failed = FALSE, given;
  gint32 rotary = 0;
  arch->linear.heads = 1; /* so that layer_types may speak of linear layers */
  if (!sp_config_llama (config, error))
    return FALSE;
  arch->linear = (SpLinearShape){
    SP_LINEAR_LIGHTNING, arch->heads, arch->heads, arch->head_size, arch->head_size, 0, 0, FALSE, TRUE
  };
  if (!sp_config_int (config, "num_local_experts", REQUIRED, 1, SP_MAX_EXPERTS, &arch->moe.experts, error) ||
      !sp_config_int (config, "num_experts_per_tok", REQUIRED, 1, arch->moe.experts, &arch->moe.experts_per_token,
                      error) ||
      !sp_config_int (config, "shared_intermediate_size", OPTIONAL, 0, SP_MAX_FFN, &arch->moe.shared_ffn, error) ||
      !sp_config_int (config, "rotary_dim", OPTIONAL, 2, arch->head_size, &rotary, error) ||
      !sp_config_layer_types (config, &given, error))
    return FALSE;
  JsonArray *list = sp_config_list (config, "attn_type_list", arch->layers, &failed, error);
  if (failed)
    return FALSE;
  if (list == NULL && !given)
    return sp_config_refuse (config, "attn_type_list", error, "expected a list of 0 and 1; no default is assumed");
  arch->rotary_size = rotary < arch->head_size ? rotary : 0;
  arch->moe.ffn = arch->ffn;
  for (gint32 i = 0; i < arch->layers; i++) {
    gint64 softmax = list != NULL ? sp_config_whole (list, (guint) i) : 0;
    if (softmax < 0)
      return sp_config_refuse (config, "attn_type_list", error, "expected a list of 0 and 1");
    if (list != NULL)
      arch->layer_kind[i] = softmax > 0 ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
    arch->layer_kind[i] |= SP_LAYER_EXPERTS;
  }
  return TRUE;
}

static gboolean
qwen3_next (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  gint32 interval = 4;
  gboolean given;
  *l = (SpLinearShape){ SP_LINEAR_GATED_DELTA, 32, 16, 128, 128, 4, 0, FALSE, TRUE };
  arch->qk_norm = arch->attention_gate = TRUE;
  if (!sp_config_int (config, "linear_num_value_heads", OPTIONAL, 1, SP_MAX_HEADS, &l->heads, error) ||
      !sp_config_int (config, "linear_num_key_heads", OPTIONAL, 1, SP_MAX_HEADS, &l->key_heads, error) ||
      !sp_config_int (config, "linear_key_head_dim", OPTIONAL, 1, SP_MAX_HEAD_SIZE, &l->key_size, error) ||
      !sp_config_int (config, "linear_value_head_dim", OPTIONAL, 1, SP_MAX_HEAD_SIZE, &l->value_size, error) ||
      !sp_config_int (config, "linear_conv_kernel_dim", OPTIONAL, 1, 64, &l->conv, error) ||
      !sp_config_int (config, "full_attention_interval", OPTIONAL, 1, SP_MAX_LAYERS, &interval, error))
    return FALSE;
  if (l->heads % l->key_heads != 0)
    return sp_config_refuse (config, "linear_num_key_heads", error, "expected a divisor of linear_num_value_heads = %d",
                             l->heads);
  if (!sp_config_llama (config, error) || !sp_config_rotary_factor (config, 0.25, error) ||
      !sp_config_layer_types (config, &given, error))
    return FALSE;
  for (gint32 i = 0; !given && i < arch->layers; i++)
    arch->layer_kind[i] = (i + 1) % interval == 0 ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
  if (!sp_config_int (config, "num_experts", OPTIONAL, 0, SP_MAX_EXPERTS, &arch->moe.experts, error))
    return FALSE;
  if (arch->moe.experts == 0)
    return TRUE;
  arch->moe.shared_gate = TRUE;
  return sp_config_int (config, "num_experts_per_tok", REQUIRED, 1, arch->moe.experts, &arch->moe.experts_per_token,
                        error) &&
         sp_config_int (config, "moe_intermediate_size", REQUIRED, 1, SP_MAX_FFN, &arch->moe.ffn, error) &&
         sp_config_int (config, "shared_expert_intermediate_size", REQUIRED, 1, SP_MAX_FFN, &arch->moe.shared_ffn,
                        error) &&
         sp_config_sparse_layers (config, error);
}

/* KDA and latent attention, which has no rotation; layers are numbered from 1. */
static gboolean
kimi_linear (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  SpLinearShape *l = &arch->linear;
  SpConfig part;
  if (!sp_config_enter (config, "linear_attn_config", &part, error))
    return FALSE;
  *l = (SpLinearShape){ SP_LINEAR_KDA, 0, 0, 0, 0, 4, 0, FALSE, TRUE };
  if (!sp_config_int (&part, "num_heads", REQUIRED, 1, SP_MAX_HEADS, &l->heads, error) ||
      !sp_config_int (&part, "head_dim", REQUIRED, 1, SP_MAX_HEAD_SIZE, &l->key_size, error) ||
      !sp_config_int (&part, "short_conv_kernel_size", OPTIONAL, 1, 64, &l->conv, error))
    return FALSE;
  l->key_heads = l->heads;
  l->value_size = l->gate_rank = l->key_size;
  if (!sp_config_latent (config, error))
    return FALSE;
  arch->head_size = arch->latent.nope_size + arch->latent.rope_size;
  arch->kv_heads = arch->heads;
  if (!sp_config_llama (config, error))
    return FALSE;
  arch->rotary = FALSE;
  linear_everywhere (arch);
  return sp_config_listed_layers (&part, "full_attn_layers", 1, SP_N_LAYER_KINDS - 1, SP_LAYER_SOFTMAX, error) &&
         sp_config_deepseek_experts (config, error);
}

/* clang-format off */
const SpConfigFamily sp_config_linear[] = {
  { "transnormer", NULL, "TransnormerForCausalLM", transnormer_fields, transnormer },
  { "gla", NULL, "GLAForCausalLM", fla_fields, gla },
  { "retnet", NULL, "RetNetForCausalLM", fla_fields, retnet },
  { "delta_net", NULL, "DeltaNetForCausalLM", fla_fields, delta_net },
  { "gated_deltanet", NULL, "GatedDeltaNetForCausalLM", fla_fields, gated_deltanet },
  { "kda", NULL, "KDAForCausalLM", fla_fields, kda },
  { "rwkv6", NULL, "RWKV6ForCausalLM", fla_fields, rwkv6 },
  { "rwkv7", NULL, "RWKV7ForCausalLM", fla_fields, rwkv7 },
  { "mamba", NULL, "MambaForCausalLM", mamba_fields, mamba },
  { "mamba2", NULL, "Mamba2ForCausalLM", mamba_fields, mamba2 },
  { "jamba", NULL, "JambaForCausalLM", sp_config_llama_fields, jamba },
  { "minimax", "minimax_text_01", "MiniMaxText01ForCausalLM", sp_config_llama_fields, minimax },
  { "qwen3_next", NULL, "Qwen3NextForCausalLM", sp_config_llama_fields, qwen3_next },
  { "kimi_linear", NULL, "KimiLinearForCausalLM", sp_config_llama_fields, kimi_linear },
  { NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */
