/* SPDX-License-Identifier: Apache-2.0 */
#include "models/trained.h"

guint
sp_run_lora (const SpRun *run)
{
  if (run->lora_rank == 0)
    return 0;
  return run->lora_targets ? run->lora_targets : SP_LORA_ALL;
}

SpFrozen
sp_run_frozen_embedding (const SpRun *run)
{
  return run->lora_rank > 0 || run->frozen & SP_FREEZE_EMBEDDING ? SP_FROZEN_FORWARD_ONLY : SP_FROZEN_NOT;
}

SpFrozen
sp_run_frozen_layer (const SpRun *run, gint32 layer)
{
  if (run->lora_rank > 0)
    return SP_FROZEN_PARAMETERS;
  if (layer >= run->frozen_layers)
    return SP_FROZEN_NOT;
  return run->frozen & SP_FREEZE_EMBEDDING ? SP_FROZEN_FORWARD_ONLY : SP_FROZEN_PARAMETERS;
}

SpFrozen
sp_run_frozen_head (const SpRun *run)
{
  return run->lora_rank > 0 || run->frozen & SP_FREEZE_HEAD ? SP_FROZEN_PARAMETERS : SP_FROZEN_NOT;
}

gboolean
sp_run_freezes (const SpRun *run)
{
  return run->lora_rank > 0 || run->frozen != 0 || run->frozen_layers > 0;
}

const char *
sp_lora_target_name (guint bit)
{
  static const char *const names[] = { "q", "k", "v", "o", "gate", "up", "down" };

  return bit < G_N_ELEMENTS (names) ? names[bit] : NULL;
}

char *
sp_run_describe_trained (const SpRun *run, const SpArchitecture *arch)
{
  g_autoptr (GPtrArray) parts = g_ptr_array_new_with_free_func (g_free);
  GString *text = g_string_new (NULL);

  if (run->lora_rank > 0) {
    guint targets = sp_run_lora (run) & (sp_mlp_is_gated (arch->mlp) ? SP_LORA_ALL : SP_LORA_ALL & ~SP_LORA_GATE);
    g_string_printf (text, "LoRA of rank %d on", run->lora_rank);
    for (guint bit = 0; sp_lora_target_name (bit) != NULL; bit++)
      if (targets & 1u << bit)
        g_string_append_printf (text, "%s %s", targets & ((1u << bit) - 1) ? "," : "", sp_lora_target_name (bit));
    return g_string_free (text, FALSE);
  }
  if (run->frozen & SP_FREEZE_EMBEDDING)
    g_ptr_array_add (parts, g_strdup ("embedding"));
  if (run->frozen_layers > 0)
    g_ptr_array_add (parts, run->frozen_layers == 1 ? g_strdup ("first layer")
                                                    : g_strdup_printf ("first %d layers", run->frozen_layers));
  if (run->frozen & SP_FREEZE_HEAD)
    g_ptr_array_add (parts, g_strdup ("head"));
  for (guint i = 0; i < parts->len; i++)
    g_string_append_printf (text, "%s%s", i == 0 ? "" : i + 1 == parts->len ? " and " : ", ", (char *) parts->pdata[i]);
  if (parts->len > 0)
    g_string_append (text, " frozen");
  return g_string_free (text, parts->len == 0);
}

/* --- counts ------------------------------------------------------------------------------------------------------- */

/* Inputs and outputs of a matrix together, if the target is one of those that have adapters. */
static gint64
pair (guint targets, guint target, gint64 in, gint64 out)
{
  return targets & target ? in + out : 0;
}

static gint64
attention_widths (guint targets, const SpArchitecture *arch)
{
  gint64 hidden = arch->hidden, heads = arch->heads, q = heads * arch->head_size,
         kv = (gint64) arch->kv_heads * arch->head_size;
  const SpLatentShape *l = &arch->latent;
  guint key_value = SP_LORA_K | SP_LORA_V;

  if (l->kv_rank == 0)
    return pair (targets, SP_LORA_Q, hidden, q) + pair (targets, SP_LORA_K, hidden, kv) +
           pair (targets, SP_LORA_V, hidden, kv) + pair (targets, SP_LORA_O, q, hidden);
  q = heads * (l->nope_size + l->rope_size);
  return (l->q_rank > 0 ? pair (targets, SP_LORA_Q, hidden, l->q_rank) + pair (targets, SP_LORA_Q, l->q_rank, q)
                        : pair (targets, SP_LORA_Q, hidden, q)) +
         pair (targets, key_value, hidden, l->kv_rank + l->rope_size) +
         pair (targets, key_value, l->kv_rank, heads * (l->nope_size + l->value_size)) +
         pair (targets, SP_LORA_O, heads * l->value_size, hidden);
}

gint64
sp_run_lora_parameters (const SpRun *run, const SpArchitecture *arch, guint kind)
{
  guint targets = sp_run_lora (run);
  gint64 hidden = arch->hidden, widths = attention_widths (targets, arch);

  if (!(kind & SP_LAYER_NO_MLP)) {
    widths += sp_mlp_is_gated (arch->mlp) ? pair (targets, SP_LORA_GATE, hidden, arch->ffn) : 0;
    widths += pair (targets, SP_LORA_UP, hidden, arch->ffn) + pair (targets, SP_LORA_DOWN, arch->ffn, hidden);
  }
  return run->lora_rank * widths;
}

gint64
sp_run_trained_parameters (const SpRun *run, const SpArchitecture *arch)
{
  gint64 hidden = arch->hidden, matrix = arch->vocabulary * hidden, count = 0;
  gint64 norm = arch->norm == SP_NORM_LAYER ? 2 * hidden : arch->norm == SP_NORM_RMS ? hidden : 0;

  for (gint32 i = 0; i < arch->layers && run->lora_rank > 0; i++)
    count += sp_run_lora_parameters (run, arch, arch->layer_kind[i]);
  if (run->lora_rank > 0)
    return count;
  count = sp_architecture_parameters (arch);
  for (gint32 i = 0; i < MIN (run->frozen_layers, arch->layers); i++)
    count -= sp_architecture_layer_parameters (arch, arch->layer_kind[i]);
  if (run->frozen & SP_FREEZE_EMBEDDING)
    count -= matrix + (arch->positions + arch->token_types) * hidden + (arch->embedding_norm ? norm : 0);
  if (run->frozen & SP_FREEZE_HEAD) {
    count -= (arch->tied ? 0 : matrix) + (arch->no_final_norm ? 0 : norm) + (arch->head_bias ? arch->vocabulary : 0);
    count -= arch->head_transform ? hidden * hidden + hidden + norm : 0;
  }
  return count;
}
