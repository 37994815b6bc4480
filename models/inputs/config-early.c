/* SPDX-License-Identifier: Apache-2.0 */
/* The families before LLaMA: layer norms, biases, an MLP of one matrix up. */
#include "models/inputs/config.h"

static const SpConfigField gpt2_fields[] = {
  LAYERS ("n_layer", REQUIRED),
  HIDDEN ("n_embd", REQUIRED),
  HEADS ("n_head", REQUIRED),
  FFN ("n_inner", OPTIONAL),
  { "n_positions", INT, REQUIRED, 1, SP_MAX_POSITIONS, FIELD (positions) },
  VOCABULARY ("vocab_size", REQUIRED),
  EPSILON ("layer_norm_epsilon"),
  { NULL, END },
};

/* One dropout stands for all three: that of the hidden state. */
static gboolean
gpt2_dropout (SpConfig *config, GError **error)
{
  static const char *const keys[] = { "attn_pdrop", "embd_pdrop", "resid_pdrop" };
  SpArchitecture *arch = config->arch;
  gboolean differ = FALSE;
  double first = 0.1;
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    const SpConfigField field[] = { { keys[i], NUMBER, OPTIONAL, 0, 0.99, FIELD (dropout) }, { NULL, END } };
    arch->dropout = 0.1; /* the class's default */
    if (!sp_config_fields (config, field, error))
      return FALSE;
    differ = differ || (i > 0 && arch->dropout != first);
    first = i == 0 ? arch->dropout : first;
  }
  if (differ)
    sp_architecture_note (arch, "attn_pdrop, embd_pdrop and resid_pdrop differ: resid_pdrop = %g stands for all",
                          arch->dropout);
  return TRUE;
}

static gboolean
gpt2 (SpConfig *config, GError **error)
{
  static const char *const activations[] = { "gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh", NULL };
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_LAYER;
  arch->mlp = SP_MLP_GELU;
  arch->qkv_bias = arch->projection_bias = arch->mlp_bias = TRUE;
  arch->tied = TRUE; /* unless the file says otherwise */
  arch->kv_heads = arch->heads;
  arch->trained_positions = arch->positions;
  if (arch->ffn == 0)
    arch->ffn = 4 * arch->hidden;
  return sp_config_divide_heads (config, "n_head", "n_embd", error) &&
         sp_config_bool (config, "tie_word_embeddings", &arch->tied, error) && gpt2_dropout (config, error) &&
         sp_config_one_of (config, "activation_function", activations, error);
}

/* --- GPT-NeoX, Phi ------------------------------------------------------------------------------------------------ */

static const SpConfigField neox_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_attention_heads", REQUIRED),
  KV_HEADS ("num_key_value_heads"),
  FFN ("intermediate_size", REQUIRED),
  VOCABULARY ("vocab_size", REQUIRED),
  TRAINED ("max_position_embeddings"),
  EPSILON ("layer_norm_eps"),
  THETA ("rotary_emb_base"),
  THETA ("rope_theta"),
  FLAG ("tie_word_embeddings", tied),
  { NULL, END },
};

static const char *const gelus[] = { "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", NULL };

static gboolean
layer_norm_block (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_LAYER;
  arch->mlp = SP_MLP_GELU;
  arch->qkv_bias = arch->projection_bias = arch->mlp_bias = TRUE;
  return sp_config_kv_heads (config, "num_key_value_heads", "num_attention_heads", 0, error) &&
         sp_config_divide_heads (config, "num_attention_heads", "hidden_size", error) &&
         sp_config_one_of (config, "hidden_act", gelus, error);
}

static gboolean
gpt_neox (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean parallel = TRUE, bias = TRUE;
  if (!sp_config_bool (config, "use_parallel_residual", &parallel, error) ||
      !sp_config_bool (config, "attention_bias", &bias, error) || !layer_norm_block (config, error) ||
      !sp_config_rotary_factor (config, 0.25, error))
    return FALSE;
  arch->form = parallel ? SP_FORM_PARALLEL_TWO : SP_FORM_PRE_NORM;
  arch->qkv_bias = arch->projection_bias = bias;
  return TRUE;
}

static gboolean
phi (SpConfig *config, GError **error)
{
  config->arch->form = SP_FORM_PARALLEL;
  config->arch->head_bias = TRUE;
  return layer_norm_block (config, error) && sp_config_rotary_factor (config, 0.5, error);
}

/* --- OPT ---------------------------------------------------------------------------------------------------------- */

static const SpConfigField opt_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_attention_heads", REQUIRED),
  FFN ("ffn_dim", REQUIRED),
  VOCABULARY ("vocab_size", REQUIRED),
  { "max_position_embeddings", INT, REQUIRED, 1, SP_MAX_POSITIONS - 2, FIELD (positions) },
  { "dropout", NUMBER, OPTIONAL, 0, 0.99, FIELD (dropout) },
  { NULL, END },
};

/* Its position table has two rows before the first position's. */
static gboolean
opt (SpConfig *config, GError **error)
{
  static const char *const activations[] = { "relu", NULL };
  SpArchitecture *arch = config->arch;
  gboolean before = TRUE, bias = TRUE;
  gint32 width = arch->hidden;
  arch->norm = SP_NORM_LAYER;
  arch->mlp = SP_MLP_RELU;
  arch->kv_heads = arch->heads;
  arch->tied = TRUE;
  arch->trained_positions = arch->positions;
  arch->position_offset = 2;
  arch->positions += 2;
  if (!sp_config_bool (config, "do_layer_norm_before", &before, error) ||
      !sp_config_bool (config, "enable_bias", &bias, error) ||
      !sp_config_bool (config, "tie_word_embeddings", &arch->tied, error) ||
      !sp_config_int (config, "word_embed_proj_dim", OPTIONAL, 1, SP_MAX_HIDDEN, &width, error) ||
      !sp_config_one_of (config, "activation_function", activations, error))
    return FALSE;
  if (!before)
    return sp_config_refuse (config, "do_layer_norm_before", error, "expected true; norms after are not available yet");
  if (width != arch->hidden)
    return sp_config_refuse (config, "word_embed_proj_dim", error,
                             "expected hidden_size = %d; others are not available yet", arch->hidden);
  arch->qkv_bias = arch->projection_bias = arch->mlp_bias = bias;
  return sp_config_divide_heads (config, "num_attention_heads", "hidden_size", error);
}

/* --- Falcon ------------------------------------------------------------------------------------------------------- */

/* The first files say n_layer and n_head, later ones as the others do. */
static const SpConfigField falcon_fields[] = {
  LAYERS ("n_layer", OPTIONAL),
  LAYERS ("num_hidden_layers", OPTIONAL),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("n_head", OPTIONAL),
  HEADS ("num_attention_heads", OPTIONAL),
  KV_HEADS ("n_head_kv"),
  KV_HEADS ("num_kv_heads"),
  FFN ("ffn_hidden_size", OPTIONAL),
  VOCABULARY ("vocab_size", REQUIRED),
  TRAINED ("max_position_embeddings"),
  EPSILON ("layer_norm_epsilon"),
  THETA ("rope_theta"),
  { NULL, END },
};

static gboolean
falcon (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  JsonNode *type = sp_config_member (config, "model_type");
  gboolean large = type != NULL && g_strcmp0 (json_node_get_string (type), "RefinedWeb") == 0; /* 40B's first name */
  gboolean grouped = large, parallel = TRUE, multi_query = TRUE, bias = FALSE, alibi = FALSE;
  arch->tied = TRUE;
  if (arch->layers == 0 || arch->heads == 0)
    return sp_config_refuse (config, arch->layers == 0 ? "num_hidden_layers" : "num_attention_heads", error,
                             "expected a whole number; no default is assumed");
  if (!sp_config_bool (config, "new_decoder_architecture", &grouped, error) ||
      !sp_config_bool (config, "parallel_attn", &parallel, error) ||
      !sp_config_bool (config, "multi_query", &multi_query, error) || !sp_config_bool (config, "bias", &bias, error) ||
      !sp_config_bool (config, "alibi", &alibi, error) ||
      !sp_config_bool (config, "tie_word_embeddings", &arch->tied, error))
    return FALSE;
  arch->norm = SP_NORM_LAYER;
  arch->mlp = SP_MLP_GELU;
  arch->form = grouped ? SP_FORM_PARALLEL_TWO : parallel ? SP_FORM_PARALLEL : SP_FORM_PRE_NORM;
  arch->qkv_bias = arch->projection_bias = arch->mlp_bias = bias;
  arch->rotary = !alibi;
  if (alibi)
    sp_architecture_note (arch, "alibi: the bias on attention logits costs nothing that is counted");
  if (!grouped)
    arch->kv_heads = multi_query ? 1 : arch->heads;
  if (arch->ffn == 0)
    arch->ffn = 4 * arch->hidden;
  return sp_config_kv_heads (config, "num_kv_heads", "num_attention_heads", 0, error) &&
         sp_config_divide_heads (config, "num_attention_heads", "hidden_size", error);
}

/* --- BERT --------------------------------------------------------------------------------------------------------- */

static const SpConfigField bert_fields[] = {
  LAYERS ("num_hidden_layers", REQUIRED),
  HIDDEN ("hidden_size", REQUIRED),
  HEADS ("num_attention_heads", REQUIRED),
  FFN ("intermediate_size", REQUIRED),
  VOCABULARY ("vocab_size", REQUIRED),
  { "max_position_embeddings", INT, REQUIRED, 1, SP_MAX_POSITIONS, FIELD (positions) },
  { "type_vocab_size", INT, OPTIONAL, 0, SP_MAX_POSITIONS, FIELD (token_types) },
  EPSILON ("layer_norm_eps"),
  { "hidden_dropout_prob", NUMBER, OPTIONAL, 0, 0.99, FIELD (dropout) },
  { NULL, END },
};

/* Counted with the masked language model's head: a matrix, gelu, a norm, and the embedding again with a bias. */
static gboolean
bert (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (sp_config_member (config, "type_vocab_size") == NULL)
    arch->token_types = 2;
  arch->form = SP_FORM_POST_NORM;
  arch->bidirectional = arch->embedding_norm = arch->no_final_norm = arch->head_transform = arch->head_bias = TRUE;
  arch->tied = TRUE;
  arch->trained_positions = arch->positions;
  sp_architecture_note (arch, "the pooler of the bare model is not counted; the masked language model's head is");
  return layer_norm_block (config, error);
}

/* clang-format off */
const SpConfigFamily sp_config_early[] = {
  { "gpt2", NULL, "GPT2LMHeadModel", gpt2_fields, gpt2 },
  { "gpt_neox", NULL, "GPTNeoXForCausalLM", neox_fields, gpt_neox },
  { "phi", NULL, "PhiForCausalLM", neox_fields, phi },
  { "opt", NULL, "OPTForCausalLM", opt_fields, opt },
  { "falcon", "RefinedWeb RefinedWebModel", "FalconForCausalLM", falcon_fields, falcon },
  { "bert", NULL, "BertForMaskedLM", bert_fields, bert },
  { NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */
