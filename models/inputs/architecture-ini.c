/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own model files: one group, [model], with the fields of SpArchitecture. layers, hidden, heads, ffn and vocabulary
 * must stand in it; the rest defaults to a LLaMA-like block: rms norms, swiglu, no biases, rotary unless there are
 * learned positions, untied.
 */
#include "models/inputs/architecture.h"
#include "models/inputs/ini.h"
#include "sim/words.h"

#define GROUP "model"

typedef struct {
  const char *key;
  SpIniNeed need;
  gint32 min, max;
  gsize offset;
} IntKey;

#define FIELD(name) G_STRUCT_OFFSET (SpArchitecture, name)

static const IntKey int_keys[] = {
  { "layers", SP_INI_REQUIRED, 1, SP_MAX_LAYERS, FIELD (layers) },
  { "hidden", SP_INI_REQUIRED, 1, SP_MAX_HIDDEN, FIELD (hidden) },
  { "heads", SP_INI_REQUIRED, 1, SP_MAX_HEADS, FIELD (heads) },
  { "kv-heads", SP_INI_OPTIONAL, 1, SP_MAX_HEADS, FIELD (kv_heads) },
  { "head-size", SP_INI_OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (head_size) },
  { "ffn", SP_INI_REQUIRED, 1, SP_MAX_FFN, FIELD (ffn) },
  { "vocabulary", SP_INI_REQUIRED, 1, SP_MAX_VOCABULARY, FIELD (vocabulary) },
  { "rotary-size", SP_INI_OPTIONAL, 2, SP_MAX_HEAD_SIZE, FIELD (rotary_size) },
  { "window", SP_INI_OPTIONAL, 1, SP_MAX_POSITIONS, FIELD (window) },
  { "query-rank", SP_INI_OPTIONAL, 1, SP_MAX_HIDDEN, FIELD (latent.q_rank) },
  { "latent-rank", SP_INI_OPTIONAL, 1, SP_MAX_HIDDEN, FIELD (latent.kv_rank) },
  { "latent-plain-size", SP_INI_OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (latent.nope_size) },
  { "latent-rotary-size", SP_INI_OPTIONAL, 2, SP_MAX_HEAD_SIZE, FIELD (latent.rope_size) },
  { "latent-value-size", SP_INI_OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (latent.value_size) },
  { "experts", SP_INI_OPTIONAL, 1, SP_MAX_EXPERTS, FIELD (moe.experts) },
  { "experts-per-token", SP_INI_OPTIONAL, 1, SP_MAX_EXPERTS, FIELD (moe.experts_per_token) },
  { "expert-ffn", SP_INI_OPTIONAL, 1, SP_MAX_FFN, FIELD (moe.ffn) },
  { "shared-ffn", SP_INI_OPTIONAL, 1, SP_MAX_FFN, FIELD (moe.shared_ffn) },
  { "linear-heads", SP_INI_OPTIONAL, 1, SP_MAX_FFN, FIELD (linear.heads) },
  { "linear-key-heads", SP_INI_OPTIONAL, 1, SP_MAX_FFN, FIELD (linear.key_heads) },
  { "linear-key-size", SP_INI_OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (linear.key_size) },
  { "linear-value-size", SP_INI_OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (linear.value_size) },
  { "convolution", SP_INI_OPTIONAL, 1, 64, FIELD (linear.conv) },
  { "gate-rank", SP_INI_OPTIONAL, 1, SP_MAX_HIDDEN, FIELD (linear.gate_rank) },
};

static const struct {
  const char *key;
  gsize offset;
} bool_keys[] = {
  { "qkv-bias", FIELD (qkv_bias) },
  { "projection-bias", FIELD (projection_bias) },
  { "mlp-bias", FIELD (mlp_bias) },
  { "tied", FIELD (tied) },
  { "rotary", FIELD (rotary) },
  { "qk-norm", FIELD (qk_norm) },
  { "sinks", FIELD (sinks) },
  { "attention-gate", FIELD (attention_gate) },
  { "shared-gate", FIELD (moe.shared_gate) },
  { "output-gate", FIELD (linear.output_gate) },
};

static const char *const norms[] = { "rms", "layer", "rms-no-gain", NULL };
static const char *const mlps[] = { "swiglu", "linear-glu", "geglu", "gelu", "relu", "relu2", NULL };
static const char *const forms[] = { "pre-norm",  "parallel", "parallel-two-norms", "sandwich", "branch-norm",
                                     "post-norm", NULL };

static gboolean
read_ints (SpIni *ini, SpArchitecture *arch, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (int_keys); i++) {
    const IntKey *row = &int_keys[i];
    gint32 *field = G_STRUCT_MEMBER_P (arch, row->offset);
    if (!sp_ini_int (ini, GROUP, row->key, row->need, row->min, row->max, field, error))
      return FALSE;
  }
  if (arch->kv_heads == 0)
    arch->kv_heads = arch->heads;
  if (arch->heads % arch->kv_heads != 0)
    return sp_ini_refuse (ini, GROUP, "kv-heads", error, "expected a divisor of heads = %d", arch->heads);
  if (arch->head_size == 0 && arch->hidden % arch->heads != 0)
    return sp_ini_refuse (ini, GROUP, "heads", error, "expected a divisor of hidden = %d, or a head-size",
                          arch->hidden);
  if (arch->head_size == 0)
    arch->head_size = arch->hidden / arch->heads;

  gint64 positions = 0;
  if (!sp_ini_tokens (ini, GROUP, "positions", SP_INI_OPTIONAL, 0, SP_MAX_POSITIONS, &positions, error))
    return FALSE;
  gint64 trained = positions;
  if (!sp_ini_tokens (ini, GROUP, "trained-positions", SP_INI_OPTIONAL, 0, SP_MAX_POSITIONS, &trained, error))
    return FALSE;
  arch->positions = (gint32) positions;
  arch->trained_positions = (gint32) trained;
  return TRUE;
}

static gboolean
read_choices (SpIni *ini, SpArchitecture *arch, GError **error)
{
  guint8 norm = SP_NORM_RMS, mlp = SP_MLP_SWIGLU, form = SP_FORM_PRE_NORM;
  if (!sp_ini_choice (ini, GROUP, "norm", SP_INI_OPTIONAL, norms, &norm, error) ||
      !sp_ini_choice (ini, GROUP, "mlp", SP_INI_OPTIONAL, mlps, &mlp, error) ||
      !sp_ini_choice (ini, GROUP, "form", SP_INI_OPTIONAL, forms, &form, error) ||
      !sp_ini_choice (ini, GROUP, "linear-family", SP_INI_OPTIONAL, sp_linear_names, &arch->linear.family, error))
    return FALSE;
  arch->norm = norm;
  arch->mlp = mlp;
  arch->form = form;
  arch->rotary = arch->positions == 0 && sp_architecture_count (arch, SP_LAYER_SOFTMAX) > 0;
  for (guint i = 0; i < G_N_ELEMENTS (bool_keys); i++) {
    gboolean *field = G_STRUCT_MEMBER_P (arch, bool_keys[i].offset);
    if (!sp_ini_bool (ini, GROUP, bool_keys[i].key, SP_INI_OPTIONAL, field, error))
      return FALSE;
  }
  return sp_ini_quantity (ini, GROUP, "rope-theta", SP_INI_OPTIONAL, SP_UNIT_NUMBER, 1, 1e12, &arch->rope_theta,
                          error) &&
         sp_ini_quantity (ini, GROUP, "norm-epsilon", SP_INI_OPTIONAL, SP_UNIT_NUMBER, 0, 1, &arch->norm_epsilon,
                          error) &&
         sp_ini_quantity (ini, GROUP, "dropout", SP_INI_OPTIONAL, SP_UNIT_FRACTION, 0, 0.99, &arch->dropout, error);
}

/* A key that another one asks for. */
static gboolean
needs (SpIni *ini, const char *key, gint32 value, const char *asks, GError **error)
{
  return value > 0 || sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [" GROUP "] %s: missing, needed by %s",
                                     sp_ini_path (ini), key, asks);
}

/* Window, latent attention, experts and the linear layers' own shape: whole or not at all. */
static gboolean
check_parts (SpIni *ini, SpArchitecture *arch, GError **error)
{
  SpLinearShape *l = &arch->linear;
  if (sp_architecture_has_bit (arch, SP_LAYER_WINDOW) && !needs (ini, "window", arch->window, "layer-kinds", error))
    return FALSE;
  if (arch->latent.kv_rank > 0 && (!needs (ini, "latent-plain-size", arch->latent.nope_size, "latent-rank", error) ||
                                   !needs (ini, "latent-rotary-size", arch->latent.rope_size, "latent-rank", error) ||
                                   !needs (ini, "latent-value-size", arch->latent.value_size, "latent-rank", error)))
    return FALSE;
  if (sp_architecture_has_bit (arch, SP_LAYER_EXPERTS) &&
      (!needs (ini, "experts", arch->moe.experts, "layer-kinds", error) ||
       !needs (ini, "experts-per-token", arch->moe.experts_per_token, "layer-kinds", error) ||
       !needs (ini, "expert-ffn", arch->moe.ffn, "layer-kinds", error)))
    return FALSE;
  if (arch->moe.experts_per_token > arch->moe.experts)
    return sp_ini_refuse (ini, GROUP, "experts-per-token", error, "expected at most experts = %d", arch->moe.experts);
  if (l->heads == 0 && l->family != SP_LINEAR_TRANSNORMER)
    return needs (ini, "linear-heads", 0, "linear-family", error);
  if (l->heads == 0)
    return TRUE;
  l->key_heads = l->key_heads > 0 ? l->key_heads : l->heads;
  if (l->heads % l->key_heads != 0)
    return sp_ini_refuse (ini, GROUP, "linear-key-heads", error, "expected a divisor of linear-heads = %d", l->heads);
  return needs (ini, "linear-key-size", l->key_size, "linear-heads", error) &&
         needs (ini, "linear-value-size", l->value_size, "linear-heads", error);
}

char *
sp_architecture_problem (const SpArchitecture *arch)
{
  for (guint i = 0; i < G_N_ELEMENTS (int_keys); i++) {
    const IntKey *row = &int_keys[i];
    gint32 value = G_STRUCT_MEMBER (gint32, arch, row->offset);
    if (value != 0 && (value < row->min || value > row->max)) /* 0: it has none */
      return g_strdup_printf ("%s = %d, expected from %d to %d", row->key, value, row->min, row->max);
  }
  if ((gint64) arch->heads * arch->head_size > SP_MAX_FFN)
    return g_strdup_printf ("%d heads of %d, expected heads x head-size of at most %d", arch->heads, arch->head_size,
                            SP_MAX_FFN);
  if (arch->rotary && arch->head_size % 2 != 0 && sp_architecture_count (arch, SP_LAYER_SOFTMAX) > 0)
    return g_strdup_printf ("head size %d, expected an even one, for rotary embedding", arch->head_size);
  return NULL;
}

/* What must hold between the fields. */
static gboolean
check (SpIni *ini, SpArchitecture *arch, GError **error)
{
  gboolean linear = sp_architecture_count (arch, SP_LAYER_LINEAR) > 0;
  gboolean softmax = sp_architecture_count (arch, SP_LAYER_SOFTMAX) > 0;
  const char *size_key = sp_ini_has (ini, GROUP, "head-size") ? "head-size" : "heads";
  if ((gint64) arch->heads * arch->head_size > SP_MAX_FFN)
    return sp_ini_refuse (ini, GROUP, size_key, error, "expected heads x head-size of at most %d", SP_MAX_FFN);
  if (arch->rotary && softmax && arch->head_size % 2 != 0)
    return sp_ini_refuse (ini, GROUP, size_key, error, "expected an even head size, for rotary embedding");
  if (!check_parts (ini, arch, error))
    return FALSE;
  if (linear && arch->linear.heads == 0 && !softmax && arch->kv_heads != arch->heads)
    return sp_ini_refuse (ini, GROUP, "kv-heads", error, "expected heads = %d: linear layers have no grouped heads",
                          arch->heads);
  if (linear && arch->linear.heads == 0 && arch->qkv_bias)
    return sp_ini_refuse (ini, GROUP, "qkv-bias", error, "expected false: linear layers have no bias on q, k and v");
  return TRUE;
}

static const struct {
  const char *word;
  guint8 kind;
} words[] = {
  { "softmax", SP_LAYER_SOFTMAX }, { "linear", SP_LAYER_LINEAR }, { "experts", SP_LAYER_EXPERTS },
  { "window", SP_LAYER_WINDOW },   { "no-mlp", SP_LAYER_NO_MLP },
};

/* Words of a layer's kind, joined by '+': a mixer, and what else it has. */
static gboolean
layer_kind_of (char *text, guint8 *ret)
{
  g_auto (GStrv) parts = g_strsplit (text, "+", -1);
  *ret = 0;
  for (guint i = 0; parts[i] != NULL; i++) {
    const char *word = g_strstrip (parts[i]);
    guint w = 0;
    while (w < G_N_ELEMENTS (words) && !g_str_equal (words[w].word, word))
      w++;
    if (w == G_N_ELEMENTS (words) || (w < 2) != (i == 0))
      return FALSE;
    *ret |= words[w].kind;
  }
  return parts[0] != NULL;
}

/* `linear*3,softmax+experts`: a pattern that repeats through the model. */
static gboolean
read_layer_kinds (SpIni *ini, SpArchitecture *arch, GError **error)
{
  g_autofree char *value = g_strdup ("softmax");
  if (!sp_ini_string (ini, GROUP, "layer-kinds", SP_INI_OPTIONAL, &value, error))
    return FALSE;
  gint32 length = 0;
  g_auto (GStrv) parts = g_strsplit (value, ",", -1);
  for (guint i = 0; parts[i] != NULL; i++) {
    double repeat = 1;
    char *star = strchr (parts[i], '*');
    if (star != NULL) {
      *star = '\0';
      g_autofree char *problem = sp_quantity_problem (g_strstrip (star + 1), SP_UNIT_COUNT, 1, arch->layers, &repeat);
      if (problem != NULL)
        return sp_ini_refuse (ini, GROUP, "layer-kinds", error, "after *: %s", problem);
    }
    guint8 kind;
    if (!layer_kind_of (parts[i], &kind))
      return sp_ini_refuse (
          ini, GROUP, "layer-kinds", error,
          "expected softmax or linear, each with +window, +experts or +no-mlp where it has them, or a "
          "pattern such as linear*3,softmax+experts");
    for (gint32 j = 0; j < (gint32) repeat; j++, length++)
      if (length < SP_MAX_LAYERS)
        arch->layer_kind[length] = kind;
  }
  if (arch->layers % length != 0)
    return sp_ini_refuse (ini, GROUP, "layer-kinds", error, "a pattern of %d layer%s, expected a divisor of layers = %d",
                          length, sp_plural (length), arch->layers);
  for (gint32 i = length; i < arch->layers; i++)
    arch->layer_kind[i] = arch->layer_kind[i - length];
  return TRUE;
}

static SpArchitecture *
read_model (SpIni *ini, GError **error)
{
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  arch->family = g_strdup ("own");
  if (!sp_ini_string (ini, GROUP, "name", SP_INI_OPTIONAL, &arch->name, error) || !read_ints (ini, arch, error) ||
      !read_layer_kinds (ini, arch, error) || !read_choices (ini, arch, error) || !check (ini, arch, error) ||
      !sp_ini_finish (ini, error))
    return NULL;
  return g_steal_pointer (&arch);
}

SpArchitecture *
sp_architecture_parse_ini (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  return ini != NULL ? read_model (ini, error) : NULL;
}

gboolean
sp_architecture_has_key (const char *key)
{
  static const char *const others[] = { "positions",    "trained-positions", "norm",        "mlp",
                                        "form",         "linear-family",     "layer-kinds", "rope-theta",
                                        "norm-epsilon", "dropout",           NULL };
  for (guint i = 0; i < G_N_ELEMENTS (int_keys); i++)
    if (g_str_equal (int_keys[i].key, key))
      return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (bool_keys); i++)
    if (g_str_equal (bool_keys[i].key, key))
      return TRUE;
  return g_strv_contains (others, key);
}

/* --- written ------------------------------------------------------------------------------------------------------ */

static void
append_kind (guint kind, GString *out)
{
  g_string_append (out, words[sp_layer_mixer (kind)].word);
  for (guint i = 2; i < G_N_ELEMENTS (words); i++)
    if (kind & words[i].kind)
      g_string_append_printf (out, "+%s", words[i].word);
}

static gboolean
repeats (const SpArchitecture *arch, gint32 period)
{
  for (gint32 i = period; i < arch->layers; i++)
    if (arch->layer_kind[i] != arch->layer_kind[i - period])
      return FALSE;
  return arch->layers % period == 0;
}

/* The shortest pattern that repeats through the model, equal neighbours as kind*n. */
static void
write_kinds (const SpArchitecture *arch, GString *out)
{
  gint32 period = 1;
  while (!repeats (arch, period))
    period++;
  if (period == 1 && arch->layer_kind[0] == SP_LAYER_SOFTMAX)
    return;
  g_string_append (out, "layer-kinds = ");
  for (gint32 i = 0, next; i < period; i = next) {
    for (next = i + 1; next < period && arch->layer_kind[next] == arch->layer_kind[i];)
      next++;
    g_string_append (out, i > 0 ? "," : "");
    append_kind (arch->layer_kind[i], out);
    if (next > i + 1)
      g_string_append_printf (out, "*%d", next - i);
  }
  g_string_append_c (out, '\n');
}

/* What the INI has no key for. */
static void
write_lost (const SpArchitecture *arch, GPtrArray *lost)
{
  const struct {
    gboolean there;
    const char *what;
  } parts[] = {
    { arch->head_bias, "a bias of the output matrix" },
    { arch->embedding_norm, "a norm after the embedding" },
    { arch->no_final_norm, "no norm before the output matrix" },
    { arch->head_transform, "a transform before the output matrix" },
    { arch->bidirectional, "attention that is not causal" },
    { arch->position_offset > 0, "position rows before the first position" },
    { arch->token_types > 0, "a table of token types" },
    { arch->moe.bias, "biases of the experts and their router" },
    { arch->linear.conv_bias, "a bias of the short convolution" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].there)
      g_ptr_array_add (lost, g_strdup (parts[i].what));
}

static void
write_number (const char *key, double value, double missing, GString *out)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  if (value != missing)
    g_string_append_printf (out, "%s = %s\n", key, g_ascii_formatd (text, sizeof text, "%.9g", value));
}

void
sp_architecture_write_ini (const SpArchitecture *arch, GString *out, GPtrArray *lost)
{
  g_autoptr (SpArchitecture) plain = sp_architecture_new ();
  gboolean softmax = sp_architecture_count (arch, SP_LAYER_SOFTMAX) > 0;
  plain->kv_heads = arch->heads;
  plain->head_size = arch->heads > 0 && arch->hidden % arch->heads == 0 ? arch->hidden / arch->heads : 0;
  plain->rotary = arch->positions == 0 && softmax;
  g_string_append (out, "[" GROUP "]\n");
  if (arch->name != NULL)
    g_string_append_printf (out, "name = %s\n", arch->name);
  for (guint i = 0; i < G_N_ELEMENTS (int_keys); i++) {
    gint32 value = *(const gint32 *) G_STRUCT_MEMBER_P (arch, int_keys[i].offset);
    gint32 missing = *(gint32 *) G_STRUCT_MEMBER_P (plain, int_keys[i].offset);
    if (int_keys[i].need == SP_INI_REQUIRED || value != missing)
      g_string_append_printf (out, "%s = %d\n", int_keys[i].key, value);
  }
  write_kinds (arch, out);
  write_number ("positions", arch->positions, 0, out);
  write_number ("trained-positions", arch->trained_positions, arch->positions, out);
  if (arch->norm != SP_NORM_RMS)
    g_string_append_printf (out, "norm = %s\n", norms[arch->norm]);
  if (arch->mlp != SP_MLP_SWIGLU)
    g_string_append_printf (out, "mlp = %s\n", mlps[arch->mlp]);
  if (arch->form != SP_FORM_PRE_NORM)
    g_string_append_printf (out, "form = %s\n", forms[arch->form]);
  if (arch->linear.family != 0)
    g_string_append_printf (out, "linear-family = %s\n", sp_linear_names[arch->linear.family]);
  for (guint i = 0; i < G_N_ELEMENTS (bool_keys); i++) {
    gboolean value = *(const gboolean *) G_STRUCT_MEMBER_P (arch, bool_keys[i].offset);
    if (value != *(gboolean *) G_STRUCT_MEMBER_P (plain, bool_keys[i].offset))
      g_string_append_printf (out, "%s = %s\n", bool_keys[i].key, value ? "true" : "false");
  }
  write_number ("rope-theta", arch->rope_theta, plain->rope_theta, out);
  write_number ("norm-epsilon", arch->norm_epsilon, plain->norm_epsilon, out);
  write_number ("dropout", arch->dropout, 0, out);
  write_lost (arch, lost);
}
