/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files that read config.json share. A family is one row of a table in one of config-*.c: the keys that are
 * plain fields of SpArchitecture, and a function for what is not.
 */
#include <math.h>
#include <string.h>

#include "models/inputs/architecture.h"
#include "models/inputs/ini.h"
#include "models/inputs/json-text.h"

G_BEGIN_DECLS

typedef struct SpConfig SpConfig;

struct SpConfig {
  const char *path;
  JsonObject *object;    /* of the language model: in a model of several parts, the text part's */
  const char *part;      /* the key that the object is under, for messages; NULL: the file's own */
  const SpConfig *outer; /* what `part` is in; NULL: the file's own object */
  const char *type;      /* model_type, once the family is known */
  SpArchitecture *arch;
  GHashTable *asked; /* keys that sp_config_member was asked for */
};

typedef enum { SP_CONFIG_REQUIRED, SP_CONFIG_OPTIONAL } SpConfigNeed;
typedef enum { SP_CONFIG_END, SP_CONFIG_INT, SP_CONFIG_NUMBER, SP_CONFIG_BOOL } SpConfigType;

typedef struct {
  const char *key;
  SpConfigType type;
  SpConfigNeed need; /* an absent or null OPTIONAL key leaves the field at its default */
  double min, max;
  gsize offset;
} SpConfigField;

typedef struct {
  const char *type;       /* model_type, */
  const char *aliases;    /* and others of the same form, separated by spaces; NULL none */
  const char *class_name; /* in "architectures" */
  const SpConfigField *fields;
  gboolean (*finish) (SpConfig *config, GError **error);
} SpConfigFamily;

extern const SpConfigFamily sp_config_dense[], sp_config_early[], sp_config_experts[],
    sp_config_linear[]; /* end: type NULL */

/* NULL if the key is absent or null. */
JsonNode *sp_config_member (const SpConfig *config, const char *key);
/* "file: key: value, " and what is expected, the key with the objects that it is in; returns FALSE. */
gboolean sp_config_refuse (const SpConfig *config, const char *key, GError **error, const char *format, ...)
    G_GNUC_PRINTF (4, 5);
gboolean sp_config_fields (const SpConfig *config, const SpConfigField *fields, GError **error);
gboolean sp_config_bool (const SpConfig *config, const char *key, gboolean *ret, GError **error);
/* Whether a value is a whole number: also one that was written as 4.0, as Python does of a float. */
gboolean sp_config_is_whole (JsonNode *node, gint64 *ret);
/* One number of its own; *ret is the default. */
gboolean sp_config_int (const SpConfig *config, const char *key, SpConfigNeed need, gint32 min, gint32 max, gint32 *ret,
                        GError **error);
gboolean sp_config_number (const SpConfig *config, const char *key, double min, double max, double *ret,
                           GError **error);
/* The key is absent, or a string that is one of `names`. */
gboolean sp_config_one_of (const SpConfig *config, const char *key, const char *const *names, GError **error);
/* A list of whole numbers or of strings, one a layer: NULL where the key is absent; an error sets *failed. */
JsonArray *sp_config_list (const SpConfig *config, const char *key, gint32 length, gboolean *failed, GError **error);
/* An element of such a list; -1: no whole number. */
gint64 sp_config_whole (JsonArray *list, guint i);
/* The key is absent, or says silu by one of its names. */
gboolean sp_config_silu (const SpConfig *config, const char *key, GError **error);
/* A list of layers, numbered from `first`: their kinds get `bits` in place of `mask`'s. */
gboolean sp_config_listed_layers (const SpConfig *config, const char *key, gint32 first, guint mask, guint bits,
                                  GError **error);
/* `sliding_window`, if there is one; in all layers. */
gboolean sp_config_window (SpConfig *config, GError **error);
void sp_config_window_everywhere (SpArchitecture *arch);
/* The head size, unless it is given. */
gboolean sp_config_divide_heads (const SpConfig *config, const char *heads_key, const char *hidden_key, GError **error);
/* K/V heads that default to `otherwise` (0: heads), and that they divide the heads. */
gboolean sp_config_kv_heads (const SpConfig *config, const char *key, const char *heads_key, gint32 otherwise,
                             GError **error);

/* What the LLaMA-like families start from: norms, gated MLP, rotation, grouped heads. */
extern const SpConfigField sp_config_llama_fields[];
gboolean sp_config_llama (SpConfig *config, GError **error);
/* `layer_types`: full_attention, sliding_attention, linear_attention. Absent: TRUE and *ret_given FALSE. */
gboolean sp_config_layer_types (SpConfig *config, gboolean *ret_given, GError **error);
/* flash-linear-attention's defaults of the vocabulary and of the MLP's width: from `ratio`, of the whole hidden size or
 * of two thirds of it, up to a multiple. */
typedef struct {
  double ratio;
  gboolean whole;
  gint32 multiple;
} SpConfigWidth;
#define SP_CONFIG_GATED(r) ((SpConfigWidth){ (r), FALSE, 256 })
gboolean sp_config_fla_defaults (SpConfig *config, SpConfigWidth width, GError **error);
/* What a class of transformers has for its keys. Of a part, save_pretrained writes what differs from these alone, so
 * they are taken there for what is missing, in a note; of a whole file it writes all, so a missing key is asked for. */
gboolean sp_config_is_one (const char *names, const char *type); /* of names separated by spaces, NULL none */
gboolean sp_config_default (const char *type, const char *key, gint32 *ret);
void sp_config_take_defaults (SpConfig *config);
/* An object within: "attn" of flash-linear-attention, for one. NULL and an error if the key has something else. */
gboolean sp_config_enter (const SpConfig *config, const char *key, SpConfig *ret_part, GError **error);

/* Latent attention's sizes; experts as DeepSeek's files say them. */
gboolean sp_config_latent (SpConfig *config, GError **error);
gboolean sp_config_deepseek_experts (SpConfig *config, GError **error);
/* Experts in the layers that decoder_sparse_step and mlp_only_layers say. */
gboolean sp_config_sparse_layers (SpConfig *config, GError **error);
gboolean sp_config_rotary_factor (SpConfig *config, double otherwise, GError **error);

/* The words of the families' tables. What most families have under some key has its range here, once. */
/* clang-format off */
#define REQUIRED SP_CONFIG_REQUIRED
#define OPTIONAL SP_CONFIG_OPTIONAL
#define INT SP_CONFIG_INT
#define NUMBER SP_CONFIG_NUMBER
#define END SP_CONFIG_END
#define FIELD(name) G_STRUCT_OFFSET (SpArchitecture, name)
#define FLAG(key, name) { key, SP_CONFIG_BOOL, OPTIONAL, 0, 0, FIELD (name) }
#define LAYERS(key, need) { key, INT, need, 1, SP_MAX_LAYERS, FIELD (layers) }
#define HIDDEN(key, need) { key, INT, need, 1, SP_MAX_HIDDEN, FIELD (hidden) }
#define HEADS(key, need) { key, INT, need, 1, SP_MAX_HEADS, FIELD (heads) }
#define KV_HEADS(key) { key, INT, OPTIONAL, 1, SP_MAX_HEADS, FIELD (kv_heads) }
#define FFN(key, need) { key, INT, need, 1, SP_MAX_FFN, FIELD (ffn) }
#define VOCABULARY(key, need) { key, INT, need, 1, SP_MAX_VOCABULARY, FIELD (vocabulary) }
#define TRAINED(key) { key, INT, OPTIONAL, 1, SP_MAX_POSITIONS, FIELD (trained_positions) }
#define EPSILON(key) { key, NUMBER, OPTIONAL, 0, 1, FIELD (norm_epsilon) }
#define THETA(key) { key, NUMBER, OPTIONAL, 1, 1e12, FIELD (rope_theta) }
/* clang-format on */

G_END_DECLS
