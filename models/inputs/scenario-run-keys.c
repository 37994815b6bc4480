/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of [run] that are no plain field. */
#include <string.h>

#include "models/inputs/scenario-keys.h"

gboolean
sp_key_read_imbalance (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  return sp_ini_quantity (ini, key->group, key->name, SP_INI_OPTIONAL, SP_UNIT_NUMBER, 1, 1000,
                          &values->run.expert_imbalance, error);
}

void
sp_key_write_imbalance (const SpValues *values, GString *out)
{
  g_string_append_printf (out, "%.9g", MAX (values->run.expert_imbalance, 1));
}

/* fp8 is bf16 with linear layers that multiply in fp8. */
gboolean
sp_key_read_precision (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  static const char *const names[] = { "bf16", "fp16", "fp8", "fp32", NULL };
  static const SpDtype dtypes[] = { SP_DTYPE_BF16, SP_DTYPE_FP16, SP_DTYPE_BF16, SP_DTYPE_FP32 };
  guint8 index = G_MAXUINT8;
  if (!sp_ini_choice (ini, key->group, key->name, SP_INI_OPTIONAL, names, &index, error))
    return FALSE;
  if (index == G_MAXUINT8)
    return TRUE;
  values->run.precision = dtypes[index];
  values->run.fp8 = index == 2;
  return TRUE;
}

void
sp_key_write_precision (const SpValues *values, GString *out)
{
  g_string_append (out, values->run.fp8 ? "fp8" : sp_dtype_name (values->run.precision));
}

/* none, or a list of what is not trained. */
gboolean
sp_key_read_frozen (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  static const char *const names[] = { "embedding", "head", "first-K", NULL };
  static const guint8 bits[] = { SP_FREEZE_EMBEDDING, SP_FREEZE_HEAD, 0 };
  static const char expected[] =
      "expected none, or of embedding, head and first-K (the first K layers) some, joined by "
      "commas";
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  guint8 frozen = 0;
  double layers = 0;
  g_auto (GStrv) words = g_strsplit (g_str_equal (text, "none") ? "" : text, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    const char *word = g_strstrip (words[i]);
    gint at = sp_key_find_word (word, names);
    if (at >= 0 && bits[at] != 0) {
      if (!sp_key_add_bits (ini, key, word, bits[at], &frozen, error))
        return FALSE;
      continue;
    }
    if (layers > 0 && g_str_has_prefix (word, "first-"))
      return sp_ini_refuse (ini, key->group, key->name, error, "\"%s\" says again what is there already", word);
    const char *number = g_str_has_prefix (word, "first-") ? word + strlen ("first-") : "";
    g_autofree char *problem = sp_quantity_problem (number, SP_UNIT_COUNT, 1, SP_MAX_LAYERS, &layers);
    if (problem != NULL)
      return sp_key_refuse_word (ini, key, word, names, expected, error);
  }
  values->run.frozen = frozen;
  values->run.frozen_layers = (gint32) layers;
  return TRUE;
}

void
sp_key_write_frozen (const SpValues *values, GString *out)
{
  const SpRun *run = &values->run;
  gsize start = out->len;
  if (run->frozen & SP_FREEZE_EMBEDDING)
    g_string_append (out, "embedding");
  if (run->frozen & SP_FREEZE_HEAD)
    g_string_append (out, out->len > start ? ",head" : "head");
  if (run->frozen_layers > 0)
    g_string_append_printf (out, "%sfirst-%d", out->len > start ? "," : "", run->frozen_layers);
  if (out->len == start)
    g_string_append (out, "none");
}

/* Ours first, by which they are written; then the same as PEFT has them. */
static const char *const target_names[] = { "q",       "k",         "v",          "o",      "gate",
                                            "up",      "down",      "attention",  "mlp",    "all",
                                            "q_proj",  "k_proj",    "v_proj",     "o_proj", "gate_proj",
                                            "up_proj", "down_proj", "all-linear", NULL };
static const guint8 target_bits[] = { SP_LORA_Q,  SP_LORA_K,    SP_LORA_V,         SP_LORA_O,   SP_LORA_GATE,
                                      SP_LORA_UP, SP_LORA_DOWN, SP_LORA_ATTENTION, SP_LORA_MLP, SP_LORA_ALL,
                                      SP_LORA_Q,  SP_LORA_K,    SP_LORA_V,         SP_LORA_O,   SP_LORA_GATE,
                                      SP_LORA_UP, SP_LORA_DOWN, SP_LORA_ALL };
G_STATIC_ASSERT (G_N_ELEMENTS (target_names) == G_N_ELEMENTS (target_bits) + 1);

gboolean
sp_key_read_targets (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  return text == NULL ||
         sp_key_read_words (
             ini, key, text, target_names, target_bits,
             "expected all, attention, mlp, or of q, k, v, o, gate, up and down (or q_proj and so on) some, "
             "joined by commas",
             &values->run.lora_targets, error);
}

void
sp_key_write_targets (const SpValues *values, GString *out)
{
  guint targets = values->run.lora_targets, bit = 0;
  if (targets == 0 || targets == SP_LORA_ALL)
    g_string_append (out, "all");
  else if (targets == SP_LORA_ATTENTION || targets == SP_LORA_MLP)
    g_string_append (out, targets == SP_LORA_MLP ? "mlp" : "attention");
  else
    for (const char *separator = ""; bit < 7; bit++)
      if (targets & target_bits[bit]) {
        g_string_append_printf (out, "%s%s", separator, target_names[bit]);
        separator = ",";
      }
}

gboolean
sp_key_read_packing (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  return sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &values->packing, error);
}

void
sp_key_write_packing (const SpValues *values, GString *out)
{
  g_string_append (out, values->run.packing != NULL ? values->run.packing->path : "none");
}
