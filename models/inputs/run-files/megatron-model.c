/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that Megatron-LM's flags describe. Without a flag it has layer norm, learned positions, gelu, biases, tied
 * embeddings, dropout 0.1, ffn 4 x hidden (8/3 x hidden rounded down to 64 with --swiglu), and of experts two a token.
 */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"

/* --- the model ---------------------------------------------------------------------------------------------------- */

static gboolean
is_true (const SpFacts *facts, const char *key)
{
  return sp_facts_is (facts, key, "true");
}

/* [0]*3+[1]*58, in brackets or not: the pattern of dense and expert layers. FALSE if it is anything else. */
static gboolean
expand_pattern (const char *text, GString *bits)
{
  g_auto (GStrv) terms = g_strsplit (text, "+", -1);
  for (guint i = 0; terms[i] != NULL; i++) {
    const char *at = terms[i] + strspn (terms[i], " (");
    gsize inside = *at == '[' ? strcspn (at, "]") : 0;
    if (inside == 0 || at[inside] != ']')
      return FALSE;
    g_autofree char *list = g_strndup (at + 1, inside - 1);
    const char *star = at + inside + 1 + strspn (at + inside + 1, " ");
    gint64 times = *star == '*' ? g_ascii_strtoll (star + 1, NULL, 10) : 1;
    gsize first = bits->len;
    for (const char *c = list; *c != '\0'; c++)
      if (*c == '0' || *c == '1')
        g_string_append_c (bits, *c);
      else if (strchr (", ", *c) == NULL)
        return FALSE;
    g_autofree char *once = g_strdup (bits->str + first);
    if (*once == '\0' || times < 1 || sp_run_times (times, (gint64) strlen (once)) > SP_MAX_LAYERS ||
        bits->len > SP_MAX_LAYERS)
      return FALSE;
    for (gint64 j = 1; j < times; j++)
      g_string_append (bits, once);
  }
  return bits->len > 0;
}

/* Which layers have experts. */
static gboolean
resolve_expert_layers (SpRunFile *file, GError **error)
{
  const char *text = sp_facts_get (file->facts, "file.expert-layers");
  g_autoptr (GString) bits = g_string_new (NULL), kinds = g_string_new (NULL);
  gint64 every = text != NULL ? g_ascii_strtoll (text, NULL, 10) : 1;
  if (every > 0 && every <= SP_MAX_LAYERS)
    for (gint64 i = 0; i < every; i++)
      g_string_append_c (bits, i == 0 ? '1' : '0');
  else if (text == NULL || !expand_pattern (text, bits))
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE,
                          "%s: --moe-layer-freq = \"%s\": expected a number, or lists of 0 and 1 such as "
                          "([0]*3+[1]*58)",
                          file->name, text);
  for (gsize i = 0, next; i < bits->len; i = next) {
    for (next = i + 1; next < bits->len && bits->str[next] == bits->str[i];)
      next++;
    g_string_append_printf (kinds, "%ssoftmax%s", i > 0 ? "," : "", bits->str[i] == '1' ? "+experts" : "");
    if (next > i + 1)
      g_string_append_printf (kinds, "*%u", (guint) (next - i));
  }
  return sp_run_set (file, "model.layer-kinds", kinds->str, SP_FACT_RESOLVED, "--moe-layer-freq", error);
}

static void
remove_facts (SpFacts *facts, const char *const *keys)
{
  for (guint i = 0; keys[i] != NULL; i++)
    g_hash_table_remove (facts, keys[i]);
}

static gboolean
resolve_experts (SpRunFile *file, GError **error)
{
  static const char *const keys[] = { "model.experts-per-token", "model.expert-ffn", "model.shared-ffn",
                                      "model.shared-gate", NULL };
  if (sp_facts_get (file->facts, "model.experts") == NULL) {
    remove_facts (file->facts, keys);
    return TRUE;
  }
  return (sp_facts_get (file->facts, "model.expert-ffn") != NULL ||
          sp_run_set_int (file, "model.expert-ffn", sp_facts_int (file->facts, "model.ffn", 0), error)) &&
         resolve_expert_layers (file, error);
}

/* Without its flag the ranks say nothing; with it the rest has Megatron's sizes, and --qk-layernorm is that of the
 * ranks, which every latent layer has here, not of heads. */
static gboolean
resolve_latent (SpRunFile *file, GError **error)
{
  static const char *const keys[] = { "model.query-rank",         "model.latent-rank",       "model.latent-plain-size",
                                      "model.latent-rotary-size", "model.latent-value-size", NULL };
  static const gint64 missing[] = { 0, 32, 128, 64, 128 };
  if (!is_true (file->facts, "file.latent")) {
    remove_facts (file->facts, keys);
    return TRUE;
  }
  g_hash_table_remove (file->facts, "model.qk-norm");
  for (guint i = 0; keys[i] != NULL; i++)
    if (missing[i] > 0 && sp_facts_get (file->facts, keys[i]) == NULL &&
        !sp_run_set_int (file, keys[i], missing[i], error))
      return FALSE;
  return TRUE;
}

static gboolean
resolve_positions (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gboolean learned = sp_facts_is (facts, "file.positions", "learned_absolute");
  gboolean rope = sp_facts_is (facts, "file.positions", "rope");
  const char *most = sp_facts_get (facts, "file.max-positions");
  const char *percent = sp_facts_get (facts, "file.rotary-percent");
  if (learned && most == NULL && sp_facts_get (facts, "model.positions") == NULL)
    sp_run_ask (file, "the learned positions' count: --max-position-embeddings in the file, or --set "
                      "model.positions=N");
  if (most != NULL && !sp_run_set (file, learned ? "model.positions" : "model.trained-positions", most,
                                   SP_FACT_RESOLVED, "--max-position-embeddings", error))
    return FALSE;
  if (!rope && !sp_run_set (file, "model.rotary", "false", SP_FACT_RESOLVED, "--position-embedding-type", error))
    return FALSE;
  gint64 heads = sp_facts_int (facts, "model.heads", 1);
  gint64 size = sp_facts_int (facts, "model.head-size", sp_facts_int (facts, "model.hidden", 0) / MAX (heads, 1));
  double part = percent != NULL ? g_ascii_strtod (percent, NULL) : 1;
  return !rope || part >= 1 || part <= 0 || sp_run_set_int (file, "model.rotary-size", (gint64) (size * part), error);
}

gboolean
sp_run_megatron_resolve_model (SpRunFile *file, GError **error)
{
  const SpFacts *facts = file->facts;
  gboolean biased = !is_true (facts, "file.no-bias");
  gint64 hidden = sp_facts_int (facts, "model.hidden", 0);
  gboolean swiglu = sp_facts_is (facts, "model.mlp", "swiglu");
  const char *groups = sp_facts_get (facts, "file.groups");
  if (hidden > 0 && sp_facts_get (facts, "model.ffn") == NULL &&
      !sp_run_set_int (file, "model.ffn", swiglu ? hidden * 8 / 3 / 64 * 64 : 4 * hidden, error))
    return FALSE;
  if (sp_facts_get (facts, "model.mlp") == NULL &&
      !sp_run_set (file, "model.mlp", "gelu", SP_FACT_RESOLVED, "without --swiglu", error))
    return FALSE;
  if (groups != NULL && !is_true (facts, "file.grouped"))
    sp_run_note (file, "note: --num-query-groups says nothing without --group-query-attention");
  if (is_true (facts, "file.grouped") && !sp_run_set (file, "model.kv-heads", groups != NULL ? groups : "1",
                                                      SP_FACT_RESOLVED, "--num-query-groups", error))
    return FALSE;
  const char *const biases[] = { "model.projection-bias", "model.mlp-bias", "model.qkv-bias" };
  for (guint i = 0; i < G_N_ELEMENTS (biases); i++)
    if ((biased || (i == 2 && is_true (facts, "file.qkv-bias"))) &&
        !sp_run_set (file, biases[i], "true", SP_FACT_RESOLVED, "without --disable-bias-linear", error))
      return FALSE;
  if (!sp_facts_is (facts, "file.attention-dropout", sp_facts_get (facts, "model.dropout")))
    sp_run_note (file, "note: --attention-dropout and --hidden-dropout differ; seqpar has one dropout, the second");
  if (sp_facts_get (facts, "model.name") == NULL) {
    g_autofree char *stem = g_path_get_basename (file->name);
    char *dot = strrchr (stem, '.');
    if (dot != NULL && dot != stem)
      *dot = '\0';
    sp_facts_put (file->facts, "model.name", g_strcanon (stem, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "-._", '-'),
                  SP_FACT_RESOLVED, file->name);
  }
  return resolve_experts (file, error) && resolve_latent (file, error) && resolve_positions (file, error);
}

/* layer-kinds of softmax layers as the list of bits that Megatron reads. */
static void
prepare_expert_layers (SpFacts *facts)
{
  const char *kinds = sp_facts_get (facts, "model.layer-kinds");
  if (kinds == NULL || g_str_equal (kinds, "softmax+experts") || sp_facts_get (facts, "model.experts") == NULL)
    return;
  g_autoptr (GString) list = g_string_new (NULL);
  g_auto (GStrv) terms = g_strsplit (kinds, ",", -1);
  for (guint i = 0; terms[i] != NULL; i++) {
    const char *star = strchr (terms[i], '*');
    g_string_append_printf (list, "%s[%d]*%s", i > 0 ? "+" : "", strstr (terms[i], "+experts") != NULL,
                            star != NULL ? star + 1 : "1");
  }
  g_autofree char *whole = g_strdup_printf ("(%s)", list->str);
  /* The list is the whole model's, the pattern repeats. */
  g_autoptr (GString) bits = g_string_new (NULL);
  gint64 length = expand_pattern (whole, bits) ? (gint64) bits->len : 0;
  gint64 times = length > 0 ? sp_facts_int (facts, "model.layers", 0) / length : 0;
  g_autoptr (GString) text = g_string_new ("(");
  for (gint64 i = 0; i < times; i++)
    g_string_append_printf (text, "%s%s", i > 0 ? "+" : "", list->str);
  g_string_append_c (text, ')');
  sp_facts_put (facts, "file.expert-layers", text->str, SP_FACT_FILE, "");
}

/* What an INI leaves out is not what Megatron takes without a flag. */
static void
fill_model (SpFacts *facts)
{
  static const struct {
    const char *key, *value;
  } missing[] = {
    { "model.mlp", "swiglu" },
    { "model.norm", "rms" },
    { "model.tied", "false" },
    { "model.dropout", "0" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (missing); i++)
    if (sp_facts_get (facts, missing[i].key) == NULL)
      sp_facts_put (facts, missing[i].key, missing[i].value, SP_FACT_FILE, "");
  sp_facts_put (facts, "file.attention-dropout", sp_facts_get (facts, "model.dropout"), SP_FACT_FILE, "");
}

void
sp_run_megatron_prepare_model (SpFacts *facts)
{
  const char *const biases[] = { "model.projection-bias", "model.mlp-bias" };
  gboolean biased = is_true (facts, biases[0]) && is_true (facts, biases[1]) && is_true (facts, "model.qkv-bias");
  gboolean learned = sp_facts_int (facts, "model.positions", 0) > 0;
  const char *trained = sp_facts_get (facts, learned ? "model.positions" : "model.trained-positions");
  const char *kv_heads = sp_facts_get (facts, "model.kv-heads");
  gint64 heads = sp_facts_int (facts, "model.heads", 1), hidden = sp_facts_int (facts, "model.hidden", 0);
  gint64 size = sp_facts_int (facts, "model.head-size", hidden / MAX (heads, 1));
  if (!biased)
    sp_facts_put (facts, "file.no-bias", "true", SP_FACT_FILE, "");
  if (!biased && is_true (facts, "model.qkv-bias"))
    sp_facts_put (facts, "file.qkv-bias", "true", SP_FACT_FILE, "");
  if (kv_heads != NULL) {
    sp_facts_put (facts, "file.grouped", "true", SP_FACT_FILE, "");
    sp_facts_put (facts, "file.groups", kv_heads, SP_FACT_FILE, "");
  }
  if (trained != NULL)
    sp_facts_put (facts, "file.max-positions", trained, SP_FACT_FILE, "");
  sp_facts_put (facts, "file.positions",
                learned                                        ? "learned_absolute"
                : sp_facts_is (facts, "model.rotary", "false") ? "none"
                                                               : "rope",
                SP_FACT_FILE, "");
  if (sp_facts_get (facts, "model.rotary-size") != NULL && size > 0) {
    g_autofree char *part =
        g_strdup_printf ("%.9g", (double) sp_facts_int (facts, "model.rotary-size", 0) / (double) size);
    sp_facts_put (facts, "file.rotary-percent", part, SP_FACT_FILE, "");
  }
  if (sp_facts_get (facts, "model.latent-rank") != NULL) {
    sp_facts_put (facts, "file.latent", "true", SP_FACT_FILE, "");
    sp_facts_put (facts, "model.qk-norm", "true", SP_FACT_FILE, "");
  }
  prepare_expert_layers (facts);
  fill_model (facts);
}
