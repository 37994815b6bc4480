/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the configuration classes of transformers have for the keys that a cost depends on: src/transformers/models/
 * NAME/configuration_NAME.py of 4.50 to 5, of the types that models of several parts are made with. No key: none, or
 * what the families have without it.
 */
#include "models/inputs/config.h"

/* clang-format off */
static const struct {
  const char *types; /* model_type, separated by spaces; a whole model's name stands for its text part's */
  const char *values;
} classes[] = {
  { "deepseek_v3", "vocab_size=129280 hidden_size=7168 intermediate_size=18432 num_hidden_layers=61"
                   " num_attention_heads=128 num_key_value_heads=128 max_position_embeddings=4096 q_lora_rank=1536"
                   " kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 n_routed_experts=256"
                   " n_shared_experts=1 num_experts_per_tok=8 moe_intermediate_size=2048 first_k_dense_replace=3" },
  { "gemma", "vocab_size=256000 hidden_size=3072 intermediate_size=24576 num_hidden_layers=28 num_attention_heads=16"
             " num_key_value_heads=16 head_dim=256 max_position_embeddings=8192" },
  { "gemma2", "vocab_size=256000 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8"
              " num_key_value_heads=4 head_dim=256 max_position_embeddings=8192 sliding_window=4096" },
  { "gemma3_text gemma3", "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26"
                          " num_attention_heads=8 num_key_value_heads=4 head_dim=256 max_position_embeddings=131072"
                          " sliding_window=4096 sliding_window_pattern=6 rope_theta=1000000" },
  { "gpt_oss", "vocab_size=201088 hidden_size=2880 intermediate_size=2880 num_hidden_layers=36 num_attention_heads=64"
               " num_key_value_heads=8 head_dim=64 max_position_embeddings=131072 sliding_window=128"
               " num_local_experts=128 num_experts_per_tok=4 rope_theta=150000" },
  { "llama", "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32"
             " max_position_embeddings=2048" },
  { "mistral", "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32"
               " num_key_value_heads=8 max_position_embeddings=131072 sliding_window=4096" },
  { "mixtral", "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32"
               " num_key_value_heads=8 max_position_embeddings=131072 num_local_experts=8 num_experts_per_tok=2"
               " rope_theta=1000000" },
  { "opt", "vocab_size=50272 hidden_size=768 ffn_dim=3072 num_hidden_layers=12 num_attention_heads=12"
           " max_position_embeddings=2048" },
  { "phi", "vocab_size=51200 hidden_size=2048 intermediate_size=8192 num_hidden_layers=24 num_attention_heads=32"
           " max_position_embeddings=2048" },
  { "phi3", "vocab_size=32064 hidden_size=3072 intermediate_size=8192 num_hidden_layers=32 num_attention_heads=32"
            " max_position_embeddings=4096" },
  { "qwen2", "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32"
             " num_key_value_heads=32 max_position_embeddings=32768 sliding_window=4096 max_window_layers=28" },
  { "qwen2_5_vl_text qwen2_5_vl qwen2_vl_text qwen2_vl",
    "vocab_size=152064 hidden_size=8192 intermediate_size=29568 num_hidden_layers=80 num_attention_heads=64"
    " num_key_value_heads=8 max_position_embeddings=32768 sliding_window=4096 max_window_layers=80"
    " rope_theta=1000000" },
  { "qwen2_moe", "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24"
                 " num_attention_heads=16 num_key_value_heads=16 max_position_embeddings=32768 num_experts=60"
                 " num_experts_per_tok=4 moe_intermediate_size=1408 shared_expert_intermediate_size=5632"
                 " decoder_sparse_step=1" },
  { "qwen3", "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32"
             " num_key_value_heads=32 head_dim=128 max_position_embeddings=32768 sliding_window=4096"
             " max_window_layers=28" },
  { "qwen3_moe", "vocab_size=151936 hidden_size=2048 intermediate_size=6144 num_hidden_layers=24"
                 " num_attention_heads=32 num_key_value_heads=4 max_position_embeddings=32768 num_experts=128"
                 " num_experts_per_tok=8 moe_intermediate_size=768 decoder_sparse_step=1" },
  { "qwen3_vl_moe_text", "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24"
                         " num_attention_heads=16 num_key_value_heads=16 max_position_embeddings=128000"
                         " num_experts=60 num_experts_per_tok=4 moe_intermediate_size=1408 decoder_sparse_step=1"
                         " rope_theta=500000" },
  { "qwen3_vl_text", "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32"
                     " num_attention_heads=32 num_key_value_heads=32 head_dim=128 max_position_embeddings=128000"
                     " rope_theta=500000" },
};
/* clang-format on */

static char **
values_of (const char *type)
{
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++)
    if (sp_config_is_one (classes[i].types, type))
      return g_strsplit (classes[i].values, " ", -1);
  return NULL;
}

gboolean
sp_config_default (const char *type, const char *key, gint32 *ret)
{
  g_auto (GStrv) values = values_of (type);
  gsize length = strlen (key);
  for (guint i = 0; values != NULL && values[i] != NULL; i++)
    if (strncmp (values[i], key, length) == 0 && values[i][length] == '=') {
      *ret = (gint32) g_ascii_strtoll (values[i] + length + 1, NULL, 10);
      return TRUE;
    }
  return FALSE;
}

void
sp_config_take_defaults (SpConfig *config)
{
  g_auto (GStrv) values = values_of (config->type);
  g_autoptr (GString) taken = g_string_new (NULL);
  for (guint i = 0; values != NULL && values[i] != NULL; i++) {
    char *equals = strchr (values[i], '=');
    *equals = '\0';
    if (json_object_has_member (config->object, values[i])) /* null too: it says none */
      continue;
    json_object_set_int_member (config->object, values[i], g_ascii_strtoll (equals + 1, NULL, 10));
    g_string_append_printf (taken, "%s%s %s", taken->len > 0 ? ", " : "", values[i], equals + 1);
  }
  if (taken->len > 0)
    sp_architecture_note (config->arch, "%s leaves out what its class %s has: %s", config->part, config->type,
                          taken->str);
}
