/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face config.json. A family is one row of `families`: the keys that are plain fields of SpArchitecture, and a
 * function for what is not. Keys that no cost depends on are passed over; keys that ask for what no program writes are
 * in `refused`, and an error when they are set.
 */
#include <math.h>
#include <string.h>

#include "models/inputs/architecture.h"
#include "models/inputs/ini.h"
#include "models/inputs/json-text.h"

typedef struct {
  const char *path;
  JsonObject *object;
  SpArchitecture *arch;
} Config;

typedef enum { REQUIRED, OPTIONAL } Need;
typedef enum { END, INT, NUMBER, BOOL } FieldType;

typedef struct {
  const char *key;
  FieldType type;
  Need need; /* an absent or null OPTIONAL key leaves the field at its default */
  double min, max;
  gsize offset;
} Field;

typedef struct {
  const char *type;       /* model_type */
  const char *class_name; /* in "architectures" */
  const Field *fields;
  gboolean (*finish) (Config *config, GError **error);
} Family;

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* NULL if the key is absent or null. */
static JsonNode *
member (const Config *config, const char *key)
{
  JsonNode *node = json_object_get_member (config->object, key);
  return node == NULL || JSON_NODE_HOLDS_NULL (node) ? NULL : node;
}

static gboolean refuse (const Config *config, const char *key, GError **error, const char *format, ...)
    G_GNUC_PRINTF (4, 5);

/* "file: key: value, " and what is expected. */
static gboolean
refuse (const Config *config, const char *key, GError **error, const char *format, ...)
{
  JsonNode *node = json_object_get_member (config->object, key);
  g_autofree char *value = node != NULL ? json_to_string (node, FALSE) : g_strdup ("missing");
  g_autofree char *shown = sp_shown (value);
  va_list arguments;
  va_start (arguments, format);
  g_autofree char *expected = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  return sp_input_fail (error, node != NULL ? SP_INPUT_ERROR_VALUE : SP_INPUT_ERROR_KEY, "%s: %s: %s, %s", config->path,
                        key, shown, expected);
}

static gboolean
read_number (const Config *config, const Field *field, JsonNode *node, GError **error)
{
  gboolean whole = field->type == INT;
  GType type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_INVALID;
  double value = type == G_TYPE_INT64 || type == G_TYPE_DOUBLE ? json_node_get_double (node) : 0;
  if ((type != G_TYPE_INT64 && (whole || type != G_TYPE_DOUBLE)) || !(value >= field->min && value <= field->max)) {
    g_autofree char *expected =
        sp_quantity_problem ("", whole ? SP_UNIT_COUNT : SP_UNIT_NUMBER, field->min, field->max, &value);
    return refuse (config, field->key, error, "%s", expected);
  }
  if (whole)
    G_STRUCT_MEMBER (gint32, config->arch, field->offset) = (gint32) value;
  else
    G_STRUCT_MEMBER (double, config->arch, field->offset) = value;
  return TRUE;
}

static gboolean
read_bool (const Config *config, const char *key, gboolean *ret, GError **error)
{
  JsonNode *node = member (config, key);
  if (node == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_BOOLEAN)
    return refuse (config, key, error, "expected true or false");
  *ret = json_node_get_boolean (node);
  return TRUE;
}

static gboolean
read_fields (const Config *config, const Field *fields, GError **error)
{
  for (const Field *field = fields; field->type != END; field++) {
    JsonNode *node = member (config, field->key);
    if (field->type == BOOL) {
      if (!read_bool (config, field->key, &G_STRUCT_MEMBER (gboolean, config->arch, field->offset), error))
        return FALSE;
    } else if (node != NULL ? !read_number (config, field, node, error) : field->need == REQUIRED) {
      if (node == NULL)
        refuse (config, field->key, error, "expected a whole number from %.0f to %.0f; no default is assumed",
                field->min, field->max);
      return FALSE;
    }
  }
  return TRUE;
}

/* The key is absent, or a string that is one of `names`. */
static gboolean
require_one_of (const Config *config, const char *key, const char *const *names, GError **error)
{
  JsonNode *node = member (config, key);
  if (node == NULL)
    return TRUE;
  if (JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING &&
      g_strv_contains (names, json_node_get_string (node)))
    return TRUE;
  g_autofree char *all = g_strjoinv (" or ", (char **) names);
  return refuse (config, key, error, "expected %s; others are not available yet", all);
}

/* The head size, unless it is given. */
static gboolean
divide_heads (const Config *config, const char *heads_key, const char *hidden_key, GError **error)
{
  SpArchitecture *arch = config->arch;
  if ((gint64) arch->heads * arch->head_size > SP_MAX_FFN)
    return refuse (config, heads_key, error, "expected heads x head size of at most %d", SP_MAX_FFN);
  if (arch->head_size != 0)
    return TRUE;
  if (arch->hidden % arch->heads != 0)
    return refuse (config, heads_key, error, "expected a divisor of %s = %d", hidden_key, arch->hidden);
  arch->head_size = arch->hidden / arch->heads;
  return TRUE;
}

/* --- families ----------------------------------------------------------------------------------------------------- */

#define FIELD(name) G_STRUCT_OFFSET (SpArchitecture, name)

static const Field llama_fields[] = {
  { "num_hidden_layers", INT, REQUIRED, 1, SP_MAX_LAYERS, FIELD (layers) },
  { "hidden_size", INT, REQUIRED, 1, SP_MAX_HIDDEN, FIELD (hidden) },
  { "num_attention_heads", INT, REQUIRED, 1, SP_MAX_HEADS, FIELD (heads) },
  { "num_key_value_heads", INT, OPTIONAL, 1, SP_MAX_HEADS, FIELD (kv_heads) },
  { "head_dim", INT, OPTIONAL, 1, SP_MAX_HEAD_SIZE, FIELD (head_size) },
  { "intermediate_size", INT, REQUIRED, 1, SP_MAX_FFN, FIELD (ffn) },
  { "vocab_size", INT, REQUIRED, 1, SP_MAX_VOCABULARY, FIELD (vocabulary) },
  { "max_position_embeddings", INT, OPTIONAL, 1, SP_MAX_POSITIONS, FIELD (trained_positions) },
  { "rms_norm_eps", NUMBER, OPTIONAL, 0, 1, FIELD (norm_epsilon) },
  { "rope_theta", NUMBER, OPTIONAL, 1, 1e12, FIELD (rope_theta) },
  { "attention_bias", BOOL, OPTIONAL, 0, 0, FIELD (qkv_bias) },
  { "mlp_bias", BOOL, OPTIONAL, 0, 0, FIELD (mlp_bias) },
  { "tie_word_embeddings", BOOL, OPTIONAL, 0, 0, FIELD (tied) },
  { NULL, END },
};

static gboolean
llama (Config *config, GError **error)
{
  static const char *const activations[] = { "silu", "swish", NULL };
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_RMS;
  arch->mlp = SP_MLP_SWIGLU;
  arch->rotary = TRUE;
  arch->projection_bias = arch->qkv_bias; /* one key for both */
  if (arch->kv_heads == 0)
    arch->kv_heads = arch->heads;
  if (arch->heads % arch->kv_heads != 0)
    return refuse (config, "num_key_value_heads", error, "expected a divisor of num_attention_heads = %d", arch->heads);
  if (!divide_heads (config, "num_attention_heads", "hidden_size", error))
    return FALSE;
  if (arch->head_size % 2 != 0)
    return refuse (config, member (config, "head_dim") != NULL ? "head_dim" : "num_attention_heads", error,
                   "expected an even head size, for rotary embedding");
  return require_one_of (config, "hidden_act", activations, error);
}

static const Field gpt2_fields[] = {
  { "n_layer", INT, REQUIRED, 1, SP_MAX_LAYERS, FIELD (layers) },
  { "n_embd", INT, REQUIRED, 1, SP_MAX_HIDDEN, FIELD (hidden) },
  { "n_head", INT, REQUIRED, 1, SP_MAX_HEADS, FIELD (heads) },
  { "n_inner", INT, OPTIONAL, 1, SP_MAX_FFN, FIELD (ffn) },
  { "n_positions", INT, REQUIRED, 1, SP_MAX_POSITIONS, FIELD (positions) },
  { "vocab_size", INT, REQUIRED, 1, SP_MAX_VOCABULARY, FIELD (vocabulary) },
  { "layer_norm_epsilon", NUMBER, OPTIONAL, 0, 1, FIELD (norm_epsilon) },
  { NULL, END },
};

/* One dropout stands for all three: that of the hidden state. */
static gboolean
gpt2_dropout (Config *config, GError **error)
{
  static const char *const keys[] = { "attn_pdrop", "embd_pdrop", "resid_pdrop" };
  SpArchitecture *arch = config->arch;
  gboolean differ = FALSE;
  double first = 0.1;
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    const Field field[] = { { keys[i], NUMBER, OPTIONAL, 0, 0.99, FIELD (dropout) }, { NULL, END } };
    arch->dropout = 0.1; /* the class's default */
    if (!read_fields (config, field, error))
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
gpt2 (Config *config, GError **error)
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
  return divide_heads (config, "n_head", "n_embd", error) &&
         read_bool (config, "tie_word_embeddings", &arch->tied, error) && gpt2_dropout (config, error) &&
         require_one_of (config, "activation_function", activations, error);
}

static const Field transnormer_fields[] = {
  { "decoder_layers", INT, REQUIRED, 1, SP_MAX_LAYERS, FIELD (layers) },
  { "decoder_embed_dim", INT, REQUIRED, 1, SP_MAX_HIDDEN, FIELD (hidden) },
  { "decoder_attention_heads", INT, REQUIRED, 1, SP_MAX_HEADS, FIELD (heads) },
  { "glu_dim", INT, REQUIRED, 1, SP_MAX_FFN, FIELD (ffn) },
  { "vocab_size", INT, REQUIRED, 1, SP_MAX_VOCABULARY, FIELD (vocabulary) },
  { "tie_word_embeddings", BOOL, OPTIONAL, 0, 0, FIELD (tied) },
  { NULL, END },
};

/* TransNormer's attention has an inner width of its own, and an optional rotation (LRPE) in listed layers. */
static gboolean
transnormer_attention (Config *config, GError **error)
{
  JsonNode *width = member (config, "hidden_dim");
  if (width != NULL && (!JSON_NODE_HOLDS_VALUE (width) || json_node_get_value_type (width) != G_TYPE_INT64 ||
                        json_node_get_int (width) != config->arch->hidden))
    return refuse (config, "hidden_dim", error, "expected decoder_embed_dim = %d; others are not available yet",
                   config->arch->hidden);
  JsonNode *rotated = member (config, "linear_use_lrpe_list");
  if (rotated == NULL)
    return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY (rotated))
    return refuse (config, "linear_use_lrpe_list", error, "expected a list of layers");
  if (json_array_get_length (json_node_get_array (rotated)) > 0)
    sp_architecture_note (config->arch, "linear_use_lrpe_list: the rotation in these layers is not counted");
  return TRUE;
}

static gboolean
transnormer (Config *config, GError **error)
{
  static const char *const norms[] = { "simplermsnorm", NULL };
  static const char *const activations[] = { "silu", "swish", NULL };
  static const char *const none[] = { "none", NULL };
  SpArchitecture *arch = config->arch;
  arch->norm = SP_NORM_RMS_NO_GAIN;
  arch->mlp = SP_MLP_LINEAR_GLU;
  arch->kv_heads = arch->heads;
  memset (arch->layer_kind, SP_LAYER_LINEAR, (gsize) arch->layers);
  if (member (config, "tie_word_embeddings") == NULL)
    sp_architecture_note (arch, "tie_word_embeddings is not given: untied, the class's default");
  gboolean bias = FALSE;
  if (!read_bool (config, "bias", &bias, error))
    return FALSE;
  if (bias)
    return refuse (config, "bias", error, "expected false; biases in linear layers are not available yet");
  return divide_heads (config, "decoder_attention_heads", "decoder_embed_dim", error) &&
         require_one_of (config, "norm_type", norms, error) &&
         require_one_of (config, "linear_act_fun", activations, error) &&
         require_one_of (config, "glu_act", none, error) && transnormer_attention (config, error);
}

static const Family families[] = {
  { "llama", "LlamaForCausalLM", llama_fields, llama },
  { "gpt2", "GPT2LMHeadModel", gpt2_fields, gpt2 },
  { "transnormer", "TransnormerForCausalLM", transnormer_fields, transnormer },
};

/* --- what is not available yet ------------------------------------------------------------------------------------ */

static const struct {
  const char *key, *what;
} refused[] = {
  { "text_config", "a model of several parts is not available yet (write its text_config to a file of its own)" },
  { "vision_config", "a model of several parts is not available yet" },
  { "quantization_config", "quantised weights are not available yet" },
  { "sliding_window", "window attention is not available yet" },
  { "num_local_experts", "a mixture of experts is not available yet" },
  { "num_experts", "a mixture of experts is not available yet" },
  { "n_routed_experts", "a mixture of experts is not available yet" },
  { "kv_lora_rank", "latent attention is not available yet" },
  { "add_cross_attention", "cross attention is not available yet" },
  { "is_encoder_decoder", "an encoder is not available yet" },
  { "attention_dropout", "attention dropout without hidden dropout is not available yet" },
};

/* null, false and 0 ask for nothing. */
static gboolean
asks_for_nothing (JsonNode *node)
{
  if (node == NULL || !JSON_NODE_HOLDS_VALUE (node))
    return node == NULL;
  GType type = json_node_get_value_type (node);
  return type == G_TYPE_BOOLEAN ? !json_node_get_boolean (node)
                                : type != G_TYPE_STRING && json_node_get_double (node) == 0;
}

static gboolean
check_refused (const Config *config, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++)
    if (!asks_for_nothing (member (config, refused[i].key)))
      return refuse (config, refused[i].key, error, "expected none; %s", refused[i].what);

  JsonNode *kinds = member (config, "layer_types");
  JsonArray *list = kinds != NULL && JSON_NODE_HOLDS_ARRAY (kinds) ? json_node_get_array (kinds) : NULL;
  for (guint i = 0; list != NULL && i < json_array_get_length (list); i++) {
    JsonNode *kind = json_array_get_element (list, i);
    if (!JSON_NODE_HOLDS_VALUE (kind) || g_strcmp0 (json_node_get_string (kind), "full_attention") != 0)
      return refuse (config, "layer_types", error, "expected full_attention alone; others are not available yet");
  }
  return TRUE;
}

static const Family *
find_family (const Config *config, GError **error)
{
  const char *names[G_N_ELEMENTS (families) + 1] = { NULL };
  for (guint i = 0; i < G_N_ELEMENTS (families); i++)
    names[i] = families[i].type;
  g_autofree char *all = g_strjoinv (", ", (char **) names);
  JsonNode *node = member (config, "model_type");
  const char *type = node != NULL && JSON_NODE_HOLDS_VALUE (node) ? json_node_get_string (node) : NULL;
  for (guint i = 0; type != NULL && i < G_N_ELEMENTS (families); i++)
    if (g_str_equal (families[i].type, type))
      return &families[i];
  const char *near = type != NULL ? sp_nearest (type, names) : NULL;
  refuse (config, "model_type", error, "expected one of %s%s%s", all, near ? "; the nearest is " : "",
          near ? near : "");
  return NULL;
}

/* A head other than the language model's is counted as if it were that. */
static void
note_class (const Config *config, const Family *family)
{
  JsonNode *node = member (config, "architectures");
  JsonArray *list = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  JsonNode *first = list != NULL && json_array_get_length (list) > 0 ? json_array_get_element (list, 0) : NULL;
  const char *name = first != NULL && JSON_NODE_HOLDS_VALUE (first) ? json_node_get_string (first) : NULL;
  if (name == NULL || g_str_equal (name, family->class_name))
    return;
  g_autofree char *shown = sp_shown (name);
  sp_architecture_note (config->arch, "architectures: %s is counted as %s", shown, family->class_name);
}

SpArchitecture *
sp_architecture_load_json (const char *path, GError **error)
{
  g_autoptr (JsonObject) object = sp_json_load (path, error);
  if (object == NULL)
    return NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_new ();
  Config config = { path, object, arch };
  if (member (&config, "text_config") != NULL && !check_refused (&config, error))
    return NULL; /* before model_type, which says nothing of use there */
  const Family *family = find_family (&config, error);
  if (family == NULL || !check_refused (&config, error) || !read_fields (&config, family->fields, error) ||
      !family->finish (&config, error))
    return NULL;
  arch->family = g_strdup (family->type);
  note_class (&config, family);
  return g_steal_pointer (&arch);
}
