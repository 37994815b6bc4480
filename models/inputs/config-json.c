/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face config.json: which family a file is of, and what no family asks about. Keys that no cost depends on are
 * passed over; keys that ask for what no program writes are in `refused`, and an error when they are set. A model of
 * several parts is read as its text part.
 */
#include "models/inputs/config.h"

static const SpConfigFamily *const tables[] = { sp_config_dense, sp_config_early, sp_config_experts, sp_config_linear };

/* --- what is not available yet ------------------------------------------------------------------------------------ */

/* Refused unless the family asked for it: no class of it reads the key, and it would change a cost. */
static const struct {
  const char *key, *what;
} refused[] = {
  { "sliding_window", "window attention is not known in this family" },
  { "num_local_experts", "a mixture of experts is not known in this family" },
  { "num_experts", "a mixture of experts is not known in this family" },
  { "n_routed_experts", "a mixture of experts is not known in this family" },
  { "kv_lora_rank", "latent attention is not known in this family" },
  { "layer_types", "kinds of layers are not known in this family" },
  { "add_cross_attention", "cross attention is not available yet" },
  { "is_encoder_decoder", "an encoder with a decoder is not available yet" },
  { "attention_dropout", "attention dropout without hidden dropout is not available yet" },
};

/* What a model may have besides, that is not counted. */
static const struct {
  const char *key, *what;
} noted[] = {
  { "quantization_config", "the file is stored quantised; parameters are counted, and priced in the run's precision" },
  { "vision_config", "the vision part is not counted" },
  { "audio_config", "the audio part is not counted" },
  { "num_nextn_predict_layers", "the extra prediction layers are not counted" },
  { "attn_logit_softcapping", "the cap on attention logits costs nothing that is counted" },
  { "final_logit_softcapping", "the cap on the output logits is not counted" },
};

/* null, false and 0 ask for nothing. */
static gboolean
asks_for_nothing (JsonNode *node)
{
  if (node == NULL || !JSON_NODE_HOLDS_VALUE (node))
    return node == NULL || JSON_NODE_HOLDS_NULL (node);
  GType type = json_node_get_value_type (node);
  return type == G_TYPE_BOOLEAN ? !json_node_get_boolean (node)
                                : type != G_TYPE_STRING && json_node_get_double (node) == 0;
}

static gboolean
check_others (const SpConfig *config, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++)
    if (!g_hash_table_contains (config->asked, refused[i].key) &&
        !asks_for_nothing (json_object_get_member (config->object, refused[i].key)))
      return sp_config_refuse (config, refused[i].key, error, "expected none; %s", refused[i].what);
  for (guint i = 0; i < G_N_ELEMENTS (noted); i++)
    if (!asks_for_nothing (sp_config_member (config, noted[i].key)))
      sp_architecture_note (config->arch, "%s: %s", noted[i].key, noted[i].what);
  return TRUE;
}

/* --- the family --------------------------------------------------------------------------------------------------- */

gboolean
sp_config_is_one (const char *names, const char *type)
{
  g_auto (GStrv) list = g_strsplit (names != NULL ? names : "", " ", -1);
  return g_strv_contains ((const char *const *) list, type);
}

static const SpConfigFamily *
family_of (const char *type)
{
  for (guint t = 0; t < G_N_ELEMENTS (tables); t++)
    for (const SpConfigFamily *family = tables[t]; family->type != NULL; family++)
      if (g_str_equal (family->type, type) || sp_config_is_one (family->aliases, type))
        return family;
  return NULL;
}

/* BERT's first files have no model_type. The string is the object's. */
static const char *
type_of (const SpConfig *config)
{
  JsonNode *node = sp_config_member (config, "model_type");
  if (node != NULL)
    return JSON_NODE_HOLDS_VALUE (node) ? json_node_get_string (node) : NULL;
  return sp_config_member (config, "type_vocab_size") != NULL ? "bert" : NULL;
}

/* Models that are written in a form of their own: a key that tells it, and what to take instead. */
static const struct {
  const char *key, *expected;
} forms[] = {
  { "_class_name", "expected a language model; a diffusion transformer's own form is not available yet" },
  { "ssm_cfg", "expected the config.json of this model in transformers' form, with model_type mamba or mamba2: that of "
               "its repository whose name ends in -hf" },
};

/* Names of the families of one table, or of all (NULL). */
static GPtrArray *
names_of (const SpConfigFamily *table)
{
  GPtrArray *names = g_ptr_array_new ();
  for (guint t = 0; t < G_N_ELEMENTS (tables); t++)
    for (const SpConfigFamily *family = tables[t]; family->type != NULL; family++)
      if (table == NULL || table == tables[t])
        g_ptr_array_add (names, (gpointer) family->type);
  g_ptr_array_add (names, NULL);
  return names;
}

/* A name with "moe" in it is meant for a family with experts, however near a dense one is spelt. */
static const SpConfigFamily *
find_family (const SpConfig *config, GError **error)
{
  const char *type = type_of (config);
  const SpConfigFamily *family = type != NULL ? family_of (type) : NULL;
  if (family != NULL)
    return family;
  for (guint i = 0; i < G_N_ELEMENTS (forms); i++)
    if (sp_config_member (config, forms[i].key) != NULL) {
      sp_config_refuse (config, forms[i].key, error, "%s", forms[i].expected);
      return NULL;
    }
  g_autofree char *lower = type != NULL ? g_ascii_strdown (type, -1) : NULL;
  gboolean experts = lower != NULL && strstr (lower, "moe") != NULL;
  g_autoptr (GPtrArray) all = names_of (NULL), meant = names_of (experts ? sp_config_experts : NULL);
  g_autofree char *list = g_strjoinv (", ", (char **) all->pdata);
  g_autofree char *with_experts = experts ? g_strjoinv (", ", (char **) meant->pdata) : NULL;
  const char *near = type != NULL ? sp_nearest (type, (const char *const *) meant->pdata) : NULL;
  sp_config_refuse (config, "model_type", error, "expected one of %s%s%s%s%s", list,
                    experts ? "; of experts " : "", experts ? with_experts : "",
                    near != NULL ? "; the nearest is " : "", near != NULL ? near : "");
  return NULL;
}

/* A head other than the language model's is counted as if it were that. */
static void
note_class (const SpConfig *config, const SpConfigFamily *family)
{
  JsonNode *node = sp_config_member (config, "architectures");
  JsonArray *list = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  JsonNode *first = list != NULL && json_array_get_length (list) > 0 ? json_array_get_element (list, 0) : NULL;
  const char *name = first != NULL && JSON_NODE_HOLDS_VALUE (first) ? json_node_get_string (first) : NULL;
  if (name == NULL || g_str_equal (name, family->class_name))
    return;
  g_autofree char *shown = sp_shown (name);
  sp_architecture_note (config->arch, "architectures: %s is counted as %s", shown, family->class_name);
}

/* What a text part leaves to the whole: whether its embeddings are tied, and what it is of ("gemma3" has text parts of
 * "gemma3_text"). */
static void
inherit (JsonObject *whole, JsonObject *text)
{
  JsonNode *type = json_object_get_member (whole, "model_type");
  const char *name = type != NULL && JSON_NODE_HOLDS_VALUE (type) ? json_node_get_string (type) : NULL;
  g_autofree char *of_text = name != NULL ? g_strconcat (name, "_text", NULL) : NULL;
  if (name != NULL && !json_object_has_member (text, "model_type") &&
      (family_of (of_text) != NULL || family_of (name) != NULL))
    json_object_set_string_member (text, "model_type", family_of (of_text) != NULL ? of_text : name);
  if (json_object_has_member (whole, "tie_word_embeddings") && !json_object_has_member (text, "tie_word_embeddings"))
    json_object_set_member (text, "tie_word_embeddings",
                            json_node_copy (json_object_get_member (whole, "tie_word_embeddings")));
}

/* The part that is a language model, where there are several. */
static gboolean
enter_text_part (SpConfig *config, GError **error)
{
  static const char *const keys[] = { "text_config", "llm_config", "language_config" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    JsonNode *node = sp_config_member (config, keys[i]);
    if (node == NULL)
      continue;
    if (!JSON_NODE_HOLDS_OBJECT (node))
      return sp_config_refuse (config, keys[i], error, "expected an object");
    sp_architecture_note (config->arch, "%s alone is counted: the model's other parts are not", keys[i]);
    inherit (config->object, json_node_get_object (node));
    config->object = json_node_get_object (node);
    config->part = keys[i];
    return TRUE;
  }
  return TRUE;
}

/* transformers writes rope_theta and partial_rotary_factor into rope_parameters since version 5; where the layers'
 * kinds differ, into an object of each. */
static void
take_rope_parameters (const SpConfig *config)
{
  static const char *const keys[] = { "rope_theta", "partial_rotary_factor" };
  JsonNode *node = json_object_get_member (config->object, "rope_parameters");
  JsonObject *rope = node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
  JsonNode *full = rope != NULL ? json_object_get_member (rope, "full_attention") : NULL;
  if (full != NULL && JSON_NODE_HOLDS_OBJECT (full))
    rope = json_node_get_object (full);
  for (guint i = 0; rope != NULL && i < G_N_ELEMENTS (keys); i++)
    if (json_object_has_member (rope, keys[i]) && !json_object_has_member (config->object, keys[i]))
      json_object_set_member (config->object, keys[i], json_node_copy (json_object_get_member (rope, keys[i])));
}

/* What a family works out of its keys may be beyond what any model has. */
static gboolean
check_sizes (const SpConfig *config, GError **error)
{
  g_autofree char *problem = sp_architecture_problem (config->arch);
  return problem == NULL || sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: %s", config->path, problem);
}

/* What the writers' tables hold. */
static gboolean
check_kinds (const SpConfig *config, GError **error)
{
  guint kinds = 0;
  for (guint kind = 0; kind < SP_N_LAYER_KINDS; kind++)
    kinds += sp_architecture_count_kind (config->arch, kind) > 0;
  if (kinds <= SP_MAX_LAYER_KINDS)
    return TRUE;
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: %u kinds of layers, expected at most %d", config->path, kinds,
                        SP_MAX_LAYER_KINDS);
}

SpArchitecture *
sp_architecture_parse_json (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (JsonObject) object = sp_json_parse (path, text, length, error);
  if (object == NULL)
    return NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  g_autoptr (GHashTable) asked = g_hash_table_new (g_str_hash, g_str_equal);
  SpConfig config = { .path = path, .object = object, .arch = arch, .asked = asked };
  if (!enter_text_part (&config, error))
    return NULL;
  const SpConfigFamily *family = find_family (&config, error);
  if (family == NULL)
    return NULL;
  config.type = type_of (&config);
  take_rope_parameters (&config);
  if (config.part != NULL)
    sp_config_take_defaults (&config);
  if (!sp_config_fields (&config, family->fields, error) || !family->finish (&config, error) ||
      !check_others (&config, error) || !check_sizes (&config, error) || !check_kinds (&config, error))
    return NULL;
  arch->family = g_strdup (family->type);
  note_class (&config, family);
  return g_steal_pointer (&arch);
}
