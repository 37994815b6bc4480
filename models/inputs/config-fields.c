/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/config.h"

/* --- reading ------------------------------------------------------------------------------------------------------ */

JsonNode *
sp_config_member (const SpConfig *config, const char *key)
{
  JsonNode *node = json_object_get_member (config->object, key);
  g_hash_table_add (config->asked, (gpointer) key);
  return node == NULL || JSON_NODE_HOLDS_NULL (node) ? NULL : node;
}

/* The key with the objects that it is in: "text_config.attn.layers". */
static char *
place_of (const SpConfig *config, const char *key)
{
  char *place = g_strdup (key);
  for (const SpConfig *part = config; part != NULL && part->part != NULL; part = part->outer) {
    g_autofree char *inner = place;
    place = g_strconcat (part->part, ".", inner, NULL);
  }
  return place;
}

gboolean
sp_config_refuse (const SpConfig *config, const char *key, GError **error, const char *format, ...)
{
  JsonNode *node = json_object_get_member (config->object, key);
  g_autofree char *place = place_of (config, key);
  g_autofree char *value = node != NULL ? json_to_string (node, FALSE) : g_strdup ("missing");
  g_autofree char *shown = sp_shown (value);
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *expected = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  return sp_input_fail (error, node != NULL ? SP_INPUT_ERROR_VALUE : SP_INPUT_ERROR_KEY, "%s: %s: %s, %s", config->path,
                        place, shown, expected);
}

/* A key that must be there; the class's value, where there is one, is for the user to take. */
static gboolean
refuse_missing (const SpConfig *config, const char *key, double min, double max, GError **error)
{
  gint32 value;
  g_autofree char *known = config->type != NULL && sp_config_default (config->type, key, &value)
                               ? g_strdup_printf (" (the class has %d)", value)
                               : NULL;
  return sp_config_refuse (config, key, error, "expected a whole number from %.0f to %.0f; no default is assumed%s",
                           min, max, known != NULL ? known : "");
}

gboolean
sp_config_is_whole (JsonNode *node, gint64 *ret)
{
  GType type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_INVALID;
  if (type == G_TYPE_INT64)
    *ret = json_node_get_int (node);
  else if (type == G_TYPE_DOUBLE && fabs (json_node_get_double (node)) <= 0x1p53 &&
           json_node_get_double (node) == floor (json_node_get_double (node)))
    *ret = (gint64) json_node_get_double (node);
  else
    return FALSE;
  return TRUE;
}

static gboolean
read_number (const SpConfig *config, const SpConfigField *field, JsonNode *node, GError **error)
{
  gboolean whole = field->type == SP_CONFIG_INT;
  gint64 count;
  GType type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_INVALID;
  double value = type == G_TYPE_INT64 || type == G_TYPE_DOUBLE ? json_node_get_double (node) : 0;
  if ((type != G_TYPE_INT64 && type != G_TYPE_DOUBLE) || (whole && !sp_config_is_whole (node, &count)) ||
      !(value >= field->min && value <= field->max)) {
    g_autofree char *expected =
        sp_quantity_problem ("", whole ? SP_UNIT_COUNT : SP_UNIT_NUMBER, field->min, field->max, &value);
    return sp_config_refuse (config, field->key, error, "%s", expected);
  }
  if (whole)
    G_STRUCT_MEMBER (gint32, config->arch, field->offset) = (gint32) value;
  else
    G_STRUCT_MEMBER (double, config->arch, field->offset) = value;
  return TRUE;
}

gboolean
sp_config_bool (const SpConfig *config, const char *key, gboolean *ret, GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  if (node == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_BOOLEAN)
    return sp_config_refuse (config, key, error, "expected true or false");
  *ret = json_node_get_boolean (node);
  return TRUE;
}

gboolean
sp_config_fields (const SpConfig *config, const SpConfigField *fields, GError **error)
{
  for (const SpConfigField *field = fields; field->type != SP_CONFIG_END; field++) {
    JsonNode *node = sp_config_member (config, field->key);
    if (field->type == SP_CONFIG_BOOL) {
      if (!sp_config_bool (config, field->key, &G_STRUCT_MEMBER (gboolean, config->arch, field->offset), error))
        return FALSE;
    } else if (node != NULL ? !read_number (config, field, node, error) : field->need == REQUIRED) {
      if (node == NULL)
        refuse_missing (config, field->key, field->min, field->max, error);
      return FALSE;
    }
  }
  return TRUE;
}

gboolean
sp_config_one_of (const SpConfig *config, const char *key, const char *const *names, GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  if (node == NULL)
    return TRUE;
  if (JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING &&
      g_strv_contains (names, json_node_get_string (node)))
    return TRUE;
  g_autofree char *all = g_strjoinv (" or ", (char **) names);
  return sp_config_refuse (config, key, error, "expected %s; others are not available yet", all);
}

gboolean
sp_config_divide_heads (const SpConfig *config, const char *heads_key, const char *hidden_key, GError **error)
{
  SpArchitecture *arch = config->arch;
  if ((gint64) arch->heads * arch->head_size > SP_MAX_FFN)
    return sp_config_refuse (config, heads_key, error, "expected heads x head size of at most %d", SP_MAX_FFN);
  if (arch->head_size != 0)
    return TRUE;
  if (arch->hidden % arch->heads != 0)
    return sp_config_refuse (config, heads_key, error, "expected a divisor of %s = %d", hidden_key, arch->hidden);
  arch->head_size = arch->hidden / arch->heads;
  return TRUE;
}

/* --- single keys and lists ---------------------------------------------------------------------------------------- */

gboolean
sp_config_int (const SpConfig *config, const char *key, SpConfigNeed need, gint32 min, gint32 max, gint32 *ret,
               GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  gint64 value;
  if (node == NULL)
    return need == OPTIONAL || refuse_missing (config, key, min, max, error);
  if (!sp_config_is_whole (node, &value) || value < min || value > max)
    return sp_config_refuse (config, key, error, "expected a whole number from %d to %d", min, max);
  *ret = (gint32) value;
  return TRUE;
}

gboolean
sp_config_number (const SpConfig *config, const char *key, double min, double max, double *ret, GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  if (node == NULL)
    return TRUE;
  GType type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_INVALID;
  double value = type == G_TYPE_INT64 || type == G_TYPE_DOUBLE ? json_node_get_double (node) : NAN;
  if (!(value >= min && value <= max))
    return sp_config_refuse (config, key, error, "expected a number from %g to %g", min, max);
  *ret = value;
  return TRUE;
}

JsonArray *
sp_config_list (const SpConfig *config, const char *key, gint32 length, gboolean *failed, GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  if (node == NULL)
    return NULL;
  JsonArray *list = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (list != NULL && (length < 0 || json_array_get_length (list) == (guint) length))
    return list;
  *failed = TRUE;
  if (length < 0)
    sp_config_refuse (config, key, error, "expected a list");
  else
    sp_config_refuse (config, key, error, "expected a list of %d, one for each layer", length);
  return NULL;
}

gint64
sp_config_whole (JsonArray *list, guint i)
{
  gint64 value;
  return sp_config_is_whole (json_array_get_element (list, i), &value) ? value : -1;
}

gboolean
sp_config_enter (const SpConfig *config, const char *key, SpConfig *ret_part, GError **error)
{
  JsonNode *node = sp_config_member (config, key);
  if (node == NULL || !JSON_NODE_HOLDS_OBJECT (node))
    return sp_config_refuse (config, key, error, "expected an object");
  *ret_part = *config;
  ret_part->object = json_node_get_object (node);
  ret_part->part = key;
  ret_part->outer = config;
  return TRUE;
}

/* --- parts that families share ------------------------------------------------------------------------------------ */

gboolean
sp_config_kv_heads (const SpConfig *config, const char *key, const char *heads_key, gint32 otherwise, GError **error)
{
  SpArchitecture *arch = config->arch;
  if (arch->kv_heads == 0)
    arch->kv_heads = otherwise > 0 ? otherwise : arch->heads;
  if (arch->heads % arch->kv_heads == 0)
    return TRUE;
  return sp_config_refuse (config, key, error, "expected a divisor of %s = %d", heads_key, arch->heads);
}

gboolean
sp_config_rotary_factor (SpConfig *config, double otherwise, GError **error)
{
  static const char *const keys[] = { "partial_rotary_factor", "rotary_pct" };
  SpArchitecture *arch = config->arch;
  double factor = otherwise;
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (!sp_config_number (config, keys[i], 0, 1, &factor, error))
      return FALSE;
  arch->rotary_size = (gint32) (factor * arch->head_size);
  arch->rotary = arch->rotary_size > 1;
  arch->rotary_size &= ~1;
  if (arch->rotary_size == arch->head_size)
    arch->rotary_size = 0;
  return TRUE;
}

gboolean
sp_config_silu (const SpConfig *config, const char *key, GError **error)
{
  static const char *const activations[] = { "silu", "swish", NULL };
  return sp_config_one_of (config, key, activations, error);
}

gboolean
sp_config_window (SpConfig *config, GError **error)
{
  return sp_config_int (config, "sliding_window", OPTIONAL, 1, SP_MAX_POSITIONS, &config->arch->window, error);
}

void
sp_config_window_everywhere (SpArchitecture *arch)
{
  for (gint32 i = 0; arch->window > 0 && i < arch->layers; i++)
    arch->layer_kind[i] |= SP_LAYER_WINDOW;
}

/* One entry of layer_types; -1 unknown. */
static gint
layer_type (const SpArchitecture *arch, const char *word)
{
  if (g_strcmp0 (word, "full_attention") == 0 || g_strcmp0 (word, "attention") == 0)
    return SP_LAYER_SOFTMAX;
  if (g_strcmp0 (word, "sliding_attention") == 0)
    return arch->window > 0 ? SP_LAYER_SOFTMAX | SP_LAYER_WINDOW : -1;
  if (g_strcmp0 (word, "linear_attention") == 0)
    return arch->linear.heads > 0 ? SP_LAYER_LINEAR : -1;
  return -1;
}

gboolean
sp_config_layer_types (SpConfig *config, gboolean *ret_given, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean failed = FALSE;
  JsonArray *list = sp_config_list (config, "layer_types", arch->layers, &failed, error);
  *ret_given = list != NULL;
  for (guint i = 0; list != NULL && i < json_array_get_length (list); i++) {
    JsonNode *node = json_array_get_element (list, i);
    gboolean text = JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING;
    gint kind = text ? layer_type (arch, json_node_get_string (node)) : -1;
    if (kind < 0)
      return sp_config_refuse (config, "layer_types", error, "expected full_attention%s%s alone",
                               arch->window > 0 ? " or sliding_attention" : "",
                               arch->linear.heads > 0 ? " or linear_attention" : "");
    arch->layer_kind[i] = (guint8) kind;
  }
  return !failed;
}

gboolean
sp_config_listed_layers (const SpConfig *config, const char *key, gint32 first, guint mask, guint bits, GError **error)
{
  SpArchitecture *arch = config->arch;
  gboolean failed = FALSE;
  JsonArray *list = sp_config_list (config, key, -1, &failed, error);
  for (guint i = 0; list != NULL && i < json_array_get_length (list); i++) {
    gint64 layer = sp_config_whole (list, i);
    if (layer < first || layer >= first + arch->layers)
      return sp_config_refuse (config, key, error, "expected layers from %d to %d", first, first + arch->layers - 1);
    guint8 *kind = &arch->layer_kind[layer - first];
    *kind = (guint8) ((*kind & ~mask) | bits);
  }
  return !failed;
}

gboolean
sp_config_sparse_layers (SpConfig *config, GError **error)
{
  SpArchitecture *arch = config->arch;
  gint32 step = 1;
  if (!sp_config_int (config, "decoder_sparse_step", OPTIONAL, 1, SP_MAX_LAYERS, &step, error))
    return FALSE;
  for (gint32 i = 0; i < arch->layers; i++)
    if ((i + 1) % step == 0)
      arch->layer_kind[i] |= SP_LAYER_EXPERTS;
  return sp_config_listed_layers (config, "mlp_only_layers", 0, SP_LAYER_EXPERTS, 0, error);
}
