/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/scenario-keys.h"

#include <string.h>

#define FIELD(name) .offset = G_STRUCT_OFFSET (SpValues, name)
/* clang-format off */
#define DEGREE(name) { "layout", #name, KEY_INT, .min = 1, .max = 1 << 20, FIELD (layout.name) }
#define FLAG(name, field) { "layout", name, KEY_BOOL, FIELD (layout.field) }
#define ONLY(group, name, value) { group, name, KEY_ONLY, .names = { value } }

static const guint8 gradient_codes[] = { SP_DTYPE_BF16, SP_DTYPE_FP32 };
#define GRADIENT(name, field)                                                                                          \
  { "layout", name, KEY_CHOICE, FIELD (layout.field), .names = { "bf16", "fp32" }, .available = 2,                     \
    .codes = gradient_codes }
/* clang-format on */

static const SpKey keys[] = {
  { "model", "config", KEY_WORD, SP_INI_REQUIRED, FIELD (model) },
  { "cluster", "file", KEY_WORD, SP_INI_REQUIRED, FIELD (cluster) },
  { "cluster", "device", KEY_WORD, FIELD (device) },
  { "cluster", "profile", KEY_WORD, FIELD (profile) },
  { "cluster", "nodes", KEY_INT, .min = 1, .max = 1 << 16, FIELD (nodes) },
  { "cluster", "gpus-per-node", KEY_INT, .min = 1, .max = 1024, FIELD (gpus_per_node) },
  DEGREE (data),
  DEGREE (tensor),
  DEGREE (pipeline),
  DEGREE (ulysses),
  DEGREE (ring),
  DEGREE (lasp),
  DEGREE (expert),
  { "layout", "expert-capacity", KEY_SPECIAL, .read = sp_key_read_capacity, .write = sp_key_write_capacity },
  { "layout", "lasp-version", KEY_INT, .min = 1, .max = 2, FIELD (layout.lasp_version) },
  { "layout", "ring-kind", KEY_CHOICE, FIELD (layout.ring_kind), .names = { "p2p", "all-gather", "rsa", "double" },
    .available = SP_N_RING_KINDS },
  FLAG ("ring-keep", ring_keep),
  { "layout", "ring-backward", KEY_CHOICE, FIELD (layout.ring_backward), .names = { "kv", "q" },
    .available = SP_N_RING_BACKWARDS },
  { "layout", "ring-inner", KEY_SPECIAL, .read = sp_key_read_inner, .write = sp_key_write_inner },
  GRADIENT ("ring-gradient-dtype", ring_gradient_dtype),
  { "layout", "ring-split", KEY_CHOICE, FIELD (layout.token_split), .names = { "contiguous", "zigzag", "striped" },
    .available = SP_N_TOKEN_SPLITS },
  FLAG ("sequence-regions", sequence_regions),
  FLAG ("pipeline-scatter", pipeline_scatter),
  { "layout", "zero", KEY_INT, .min = 0, .max = 3, FIELD (layout.zero) },
  { "layout", "zero-group", KEY_SPECIAL, .read = sp_key_read_zero_group, .write = sp_key_write_zero_group },
  FLAG ("reshard", reshard),
  GRADIENT ("gradient-dtype", gradient_dtype),
  FLAG ("overlap", overlap),
  { "layout", "recompute", KEY_SPECIAL, .read = sp_key_read_recompute, .write = sp_key_write_recompute },
  { "layout", "offload", KEY_SPECIAL, .read = sp_key_read_offload, .write = sp_key_write_offload },
  { "layout", "loss", KEY_CHOICE, FIELD (layout.loss), .names = { "full", "vocab-parallel", "chunked", "fused" },
    .available = SP_N_LOSSES },
  { "layout", "loss-chunks", KEY_SPECIAL, .read = sp_key_read_chunks, .write = sp_key_write_chunks },
  { "layout", "mlp-tiles", KEY_SPECIAL, .read = sp_key_read_tiles, .write = sp_key_write_tiles },
  { "layout", "schedule", KEY_SPECIAL, .read = sp_key_read_schedule, .write = sp_key_write_schedule },
  { "layout", "virtual-stages", KEY_INT, .min = 1, .max = SP_MAX_CHUNKS, FIELD (layout.virtual_stages) },
  { "layout", "stage-split", KEY_SPECIAL, .read = sp_key_read_split, .write = sp_key_write_split },
  { "layout", "slices", KEY_SPECIAL, .read = sp_key_read_slices, .write = sp_key_write_slices },
  { "layout", "order", KEY_SPECIAL, .read = sp_key_read_order, .write = sp_key_write_order },
  { "run", "sequence", KEY_TOKENS, SP_INI_REQUIRED, 1, 1 << 30, FIELD (run.sequence) },
  { "run", "micro-batch", KEY_INT, .min = 1, .max = 1 << 16, FIELD (run.micro_batch) },
  { "run", "global-batch", KEY_INT, .min = 1, .max = 1 << 24, FIELD (run.global_batch) },
  { "run", "precision", KEY_SPECIAL, .read = sp_key_read_precision, .write = sp_key_write_precision },
  { "run", "causal", KEY_BOOL, FIELD (run.causal) },
  { "run", "framework", KEY_WORD, FIELD (framework) },
  { "run", "frozen", KEY_SPECIAL, .read = sp_key_read_frozen, .write = sp_key_write_frozen },
  { "run", "lora-rank", KEY_INT, .min = 0, .max = 4096, FIELD (run.lora_rank) },
  { "run", "lora-targets", KEY_SPECIAL, .read = sp_key_read_targets, .write = sp_key_write_targets },
  { "run", "packing", KEY_SPECIAL, .read = sp_key_read_packing, .write = sp_key_write_packing },
  { "run", "expert-imbalance", KEY_SPECIAL, .read = sp_key_read_imbalance, .write = sp_key_write_imbalance },
  { "run", "scope", KEY_CHOICE, FIELD (run.scope),
    .names = { "step", "forward", "layer", "attention", "attention-forward" }, .available = SP_N_SCOPES },
  { "run", "optimizer", KEY_CHOICE, FIELD (run.optimizer), .names = { "adamw", "adamw-8bit", "muon" },
    .available = SP_N_OPTIMIZERS },
  { "run-file", "hub-name", KEY_WORD, FIELD (origin.hub_name) },
  { "run-file", "prompt-tokens", KEY_TOKENS, .min = 1, .max = 1 << 30, FIELD (origin.prompt_tokens) },
  { "run-file", "answers", KEY_INT, .min = 1, .max = 1 << 24, FIELD (origin.answers) },
};
G_STATIC_ASSERT (SP_DTYPE_BF16 == 0 && SP_DTYPE_FP16 == 1);
G_STATIC_ASSERT (SP_SCOPE_STEP == 0 && SP_SCOPE_FORWARD == 1 && SP_SCOPE_LAYER == 2 && SP_SCOPE_ATTENTION == 3);
G_STATIC_ASSERT (SP_SCOPE_ATTENTION_FORWARD == 4);
G_STATIC_ASSERT (SP_TOKENS_CONTIGUOUS == 0 && SP_TOKENS_ZIGZAG == 1 && SP_TOKENS_STRIPED == 2);
G_STATIC_ASSERT (SP_RING_P2P == 0 && SP_RING_ALL_GATHER == 1 && SP_RING_RSA == 2 && SP_RING_DOUBLE == 3);
G_STATIC_ASSERT (SP_RING_BACKWARD_KV == 0 && SP_RING_BACKWARD_Q == 1);

/* --- lists of words ----------------------------------------------------------------------------------------------- */

gint
sp_key_find_word (const char *word, const char *const *names)
{
  for (gint at = 0; names[at] != NULL; at++)
    if (g_str_equal (names[at], word))
      return at;
  return -1;
}

gboolean
sp_key_add_bits (SpIni *ini, const SpKey *key, const char *word, guint8 bits, guint8 *field, GError **error)
{
  g_autofree char *shown = sp_shown (word);
  if (*field & bits)
    return sp_ini_refuse (ini, key->group, key->name, error, "\"%s\" says again what is there already", shown);
  *field |= bits;
  return TRUE;
}

gboolean
sp_key_refuse_word (SpIni *ini, const SpKey *key, const char *word, const char *const *names, const char *expected,
                    GError **error)
{
  g_autofree char *near = sp_did_you_mean (word, names);
  g_autofree char *shown = sp_shown (word);
  return sp_ini_refuse (ini, key->group, key->name, error, "\"%s\" is none of them: %s%s", shown, expected, near);
}

gboolean
sp_key_read_words (SpIni *ini, const SpKey *key, const char *text, const char *const *names, const guint8 *bits,
                   const char *expected, guint8 *field, GError **error)
{
  g_auto (GStrv) words = g_strsplit (text, ",", -1);
  guint8 read = 0;
  for (guint i = 0; words[i] != NULL; i++) {
    gint at = sp_key_find_word (g_strstrip (words[i]), names);
    if (at < 0)
      return sp_key_refuse_word (ini, key, words[i], names, expected, error);
    if (!sp_key_add_bits (ini, key, words[i], bits[at], &read, error))
      return FALSE;
  }
  *field = read;
  return TRUE;
}

/* --- the table at work -------------------------------------------------------------------------------------------- */

static gboolean
read_choice (SpIni *ini, const SpKey *key, guint8 *field, GError **error)
{
  g_autofree char *value = NULL;
  guint8 index = G_MAXUINT8;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &value, error))
    return FALSE;
  if (!sp_ini_choice (ini, key->group, key->name, SP_INI_OPTIONAL, key->names, &index, error))
    return FALSE;
  if (index == G_MAXUINT8)
    return TRUE;
  if (index >= key->available)
    return sp_ini_refuse (ini, key->group, key->name, error, "not available yet; choose %s or %s", key->names[0],
                          key->names[1]);
  *field = key->codes != NULL ? key->codes[index] : index;
  return TRUE;
}

static gboolean
read_only (SpIni *ini, const SpKey *key, GError **error)
{
  g_autofree char *value = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &value, error))
    return FALSE;
  if (value == NULL || g_str_equal (value, key->names[0]))
    return TRUE;
  return sp_ini_refuse (ini, key->group, key->name, error, "not available yet; choose %s", key->names[0]);
}

static gboolean
read_key (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  gpointer field = G_STRUCT_MEMBER_P (values, key->offset);
  switch (key->type) {
  case KEY_INT:
    return sp_ini_int (ini, key->group, key->name, key->need, key->min, key->max, field, error);
  case KEY_TOKENS:
    return sp_ini_tokens (ini, key->group, key->name, key->need, key->min, key->max, field, error);
  case KEY_BOOL:
    return sp_ini_bool (ini, key->group, key->name, key->need, field, error);
  case KEY_CHOICE:
    return read_choice (ini, key, field, error);
  case KEY_ONLY:
    return read_only (ini, key, error);
  case KEY_WORD:
    return sp_ini_string (ini, key->group, key->name, key->need, field, error);
  case KEY_SPECIAL:
    return key->read (ini, key, values, error);
  }
  g_return_val_if_reached (FALSE);
}

static void
write_value (const SpKey *key, const SpValues *values, GString *out)
{
  gconstpointer field = (const char *) values + key->offset;
  g_autofree char *tokens = NULL;
  guint8 index = 0;
  switch (key->type) {
  case KEY_INT:
    g_string_append_printf (out, "%d", *(const gint32 *) field);
    break;
  case KEY_TOKENS:
    tokens = sp_format_quantity ((double) *(const gint64 *) field, SP_UNIT_TOKENS);
    g_string_append (out, tokens);
    break;
  case KEY_BOOL:
    g_string_append (out, *(const gboolean *) field ? "true" : "false");
    break;
  case KEY_CHOICE:
    while (index < key->available && (key->codes != NULL ? key->codes[index] : index) != *(const guint8 *) field)
      index++;
    G_GNUC_FALLTHROUGH;
  case KEY_ONLY:
    g_string_append (out, key->names[index]);
    break;
  case KEY_WORD:
    g_string_append (out, *(char *const *) field);
    break;
  case KEY_SPECIAL:
    key->write (values, out);
    break;
  }
}

/* Keys that have no value of their own where they do not apply. */
static gboolean
is_unset (const SpKey *key, const SpValues *values)
{
  gconstpointer field = (const char *) values + key->offset;

  if (key->type == KEY_WORD)
    return *(char *const *) field == NULL;
  if (key->type == KEY_TOKENS)
    return *(const gint64 *) field == 0 && key->min > 0;
  return key->type == KEY_INT && *(const gint32 *) field == 0 && key->min > 0;
}

void
sp_values_clear (SpValues *values)
{
  g_free (values->model);
  g_free (values->cluster);
  g_free (values->device);
  g_free (values->profile);
  g_free (values->framework);
  g_free (values->packing);
  g_free (values->origin.hub_name);
}

SpValues
sp_values_default (void)
{
  return (SpValues){
    .framework = g_strdup ("flash"),
    .layout = SP_LAYOUT_DEFAULT,
    .run = { .micro_batch = 1, .global_batch = 1, .precision = SP_DTYPE_BF16, .causal = TRUE },
  };
}

gboolean
sp_values_read (SpIni *ini, SpValues *values, SpVariations *variations, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (!read_key (ini, &keys[i], values, error))
      return FALSE;
  if (!sp_ini_has (ini, "run", "global-batch")) /* one micro-batch a replica */
    values->run.global_batch = (gint32) MIN ((gint64) values->layout.data * values->run.micro_batch, 1 << 24);
  sp_ini_set_elsewhere (ini, sp_scenario_key_elsewhere);
  return sp_variations_read (ini, variations, error) && sp_ini_finish (ini, error);
}

void
sp_values_write (const SpValues *values, GString *out)
{
  const char *group = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    if (is_unset (&keys[i], values))
      continue;
    if (group == NULL || !g_str_equal (keys[i].group, group))
      g_string_append_printf (out, "%s[%s]\n", group != NULL ? "\n" : "", keys[i].group);
    group = keys[i].group;
    g_string_append_printf (out, "%s = ", keys[i].name);
    write_value (&keys[i], values, out);
    g_string_append_c (out, '\n');
  }
}

gboolean
sp_values_is_usual (const SpValues *values, const char *group, const char *name)
{
  g_auto (SpValues) usual = sp_values_default ();
  g_autoptr (GString) mine = g_string_new (NULL), other = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (g_str_equal (keys[i].group, group) && g_str_equal (keys[i].name, name)) {
      write_value (&keys[i], values, mine);
      write_value (&keys[i], &usual, other);
    }
  return g_string_equal (mine, other);
}

gboolean
sp_values_reset (SpIni *ini, SpValues *values, const char *group, const char *name, GError **error)
{
  g_auto (SpValues) usual = sp_values_default ();
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (g_str_equal (keys[i].group, group) && g_str_equal (keys[i].name, name)) {
      write_value (&keys[i], &usual, text);
      sp_ini_set (ini, group, name, text->str);
      return read_key (ini, &keys[i], values, error);
    }
  g_return_val_if_reached (FALSE);
}

char *
sp_scenario_key_elsewhere (const char *name)
{
  static const struct {
    gboolean (*has) (const char *key);
    const char *what;
  } files[] = {
    { sp_cluster_has_key, "a cluster's file, which [cluster] file names" },
    { sp_device_has_key, "a device's file, which the cluster's names" },
    { sp_framework_has_key, "a framework's file, which [run] framework names" },
    { sp_architecture_has_key, "a model's own INI, which [model] config names" },
  };
  const char *dot = strchr (name, '.'), *key = dot != NULL ? dot + 1 : name;
  for (guint i = 0; i < G_N_ELEMENTS (files); i++)
    if (files[i].has (key))
      return g_strdup_printf ("; it is a key of %s: set it in a copy of that", files[i].what);
  return NULL;
}

/* "key=value" or "group.key=value". */
gboolean
sp_values_apply_set (SpIni *ini, const char *set, GError **error)
{
  g_autofree char *shown = sp_shown (set);
  const char *equals = strchr (set, '=');
  if (equals == NULL || equals == set)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "--set %s: expected key=value or group.key=value", shown);
  g_autofree char *name = g_strstrip (g_strndup (set, (gsize) (equals - set)));
  for (guint i = 0; sp_variation_keys[i] != NULL; i++) {
    g_autofree char *whole = g_strconcat (SP_VARIATION_GROUP ".", sp_variation_keys[i], NULL);
    if (g_str_equal (name, sp_variation_keys[i]) || g_str_equal (name, whole)) {
      sp_ini_set (ini, SP_VARIATION_GROUP, sp_variation_keys[i], equals + 1);
      return TRUE;
    }
  }
  const char *known[2 * G_N_ELEMENTS (keys) + 16] = { NULL };
  g_autoptr (GPtrArray) full = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    g_ptr_array_add (full, g_strconcat (keys[i].group, ".", keys[i].name, NULL));
    known[2 * i] = keys[i].name;
    known[2 * i + 1] = full->pdata[i];
    if (g_str_equal (name, keys[i].name) || g_str_equal (name, full->pdata[i])) {
      sp_ini_set (ini, keys[i].group, keys[i].name, equals + 1);
      return TRUE;
    }
  }
  for (guint i = 0; sp_variation_keys[i] != NULL && i < 15; i++)
    known[2 * G_N_ELEMENTS (keys) + i] = sp_variation_keys[i];
  g_autofree char *elsewhere = sp_scenario_key_elsewhere (name), *near = sp_did_you_mean (name, known);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "--set %s: unknown key%s", shown,
                        elsewhere != NULL ? elsewhere
                        : *near != '\0'   ? near
                                          : "; seqpar show scenario NAME lists them");
}

/* --- for who writes scenarios ------------------------------------------------------------------------------------- */

gboolean
sp_scenario_key (guint i, const char **ret_group, const char **ret_name, char **ret_default)
{
  if (i >= G_N_ELEMENTS (keys))
    return FALSE;
  g_auto (SpValues) values = sp_values_default ();
  g_autoptr (GString) text = g_string_new (NULL);
  if (keys[i].type != KEY_WORD)
    write_value (&keys[i], &values, text);
  else
    g_string_append (text, keys[i].offset == G_STRUCT_OFFSET (SpValues, framework) ? values.framework : "");
  *ret_group = keys[i].group;
  *ret_name = keys[i].name;
  if (ret_default != NULL)
    *ret_default = g_strdup (text->str);
  return TRUE;
}

SpValueVerdict
sp_scenario_takes (const char *group, const char *key, const char *value, char **ret_expected)
{
  static const char nothing[] = "[layout]\n";
  g_autoptr (SpIni) ini = sp_ini_parse ("", nothing, strlen (nothing), NULL);
  g_auto (SpValues) values = sp_values_default ();
  g_autoptr (GError) error = NULL;
  guint i = 0;
  while (i < G_N_ELEMENTS (keys) && !(g_str_equal (keys[i].group, group) && g_str_equal (keys[i].name, key)))
    i++;
  if (i == G_N_ELEMENTS (keys))
    return SP_VALUE_LATER;
  sp_ini_set (ini, group, key, value);
  if (read_key (ini, &keys[i], &values, &error))
    return SP_VALUE_TAKEN;
  if (strstr (error->message, "not available yet") != NULL)
    return SP_VALUE_LATER;
  const char *expected = strstr (error->message, "\": "); /* behind the value */
  *ret_expected = g_strdup (expected != NULL ? expected + strlen ("\": ") : error->message);
  return SP_VALUE_REFUSED;
}

gboolean
sp_scenario_set (const char *group, const char *key, const char *value, SpLayout *layout, SpRun *run, GError **error)
{
  static const char nothing[] = "[run]\n";
  g_autoptr (SpIni) ini = sp_ini_parse ("plan", nothing, strlen (nothing), NULL);
  g_auto (SpValues) values = sp_values_default ();
  guint i = 0;
  while (i < G_N_ELEMENTS (keys) && !(g_str_equal (keys[i].group, group) && g_str_equal (keys[i].name, key)))
    i++;
  g_return_val_if_fail (i < G_N_ELEMENTS (keys) && keys[i].type != KEY_WORD, FALSE);
  values.layout = *layout;
  values.run = *run;
  sp_ini_set (ini, group, key, value);
  if (!read_key (ini, &keys[i], &values, error))
    return FALSE;
  *layout = values.layout;
  *run = values.run;
  return TRUE;
}
