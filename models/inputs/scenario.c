/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table has every key of a scenario: it reads them, resolves a bare key of --set, and writes the scenario out. A
 * new key that is a plain field is one row.
 */
#include "models/inputs/scenario.h"

#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/topology-dump.h"
#include "sim/schedules.h"

typedef enum {
  KEY_INT,    /* gint32 */
  KEY_TOKENS, /* gint64 */
  KEY_BOOL,   /* gboolean */
  KEY_CHOICE, /* guint8: index in `names`, of which the first `available` can be chosen */
  KEY_ONLY,   /* names[0] and nothing else yet */
  KEY_WORD,   /* char*, a file */
  KEY_SPECIAL /* `read` and `write` */
} KeyType;

typedef struct {
  char *model, *cluster, *framework; /* as written in the file */
  char *packing;                     /* NULL: none */
  char *device;                      /* of a cluster that is a dump; NULL else */
  gint32 nodes, gpus_per_node;       /* 0: the file's own */
  SpLayout layout;
  SpRun run;
} Values;

/* Until the cluster is known. */
#define ZERO_GROUP_NODE -1

typedef struct Key Key;
struct Key {
  const char *group, *name;
  KeyType type;
  SpIniNeed need;
  gint64 min, max;
  gsize offset; /* in Values */
  const char *names[8];
  guint8 available;
  const guint8 *codes; /* what the field holds for each name, if it is not the index */
  gboolean (*read) (SpIni *ini, const Key *key, Values *values, GError **error);
  void (*write) (const Values *values, GString *out);
};

static gboolean read_order (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_order (const Values *values, GString *out);
static gboolean read_split (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_split (const Values *values, GString *out);
static gboolean read_capacity (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_capacity (const Values *values, GString *out);
static gboolean read_imbalance (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_imbalance (const Values *values, GString *out);
static gboolean read_precision (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_precision (const Values *values, GString *out);
static gboolean read_offload (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_offload (const Values *values, GString *out);
static gboolean read_chunks (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_chunks (const Values *values, GString *out);
static gboolean read_frozen (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_frozen (const Values *values, GString *out);
static gboolean read_targets (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_targets (const Values *values, GString *out);
static gboolean read_packing (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_packing (const Values *values, GString *out);
static gboolean read_tiles (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_tiles (const Values *values, GString *out);
static gboolean read_recompute (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_recompute (const Values *values, GString *out);
static gboolean read_schedule (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_schedule (const Values *values, GString *out);

static gboolean read_zero_group (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_zero_group (const Values *values, GString *out);
static gboolean read_inner (SpIni *ini, const Key *key, Values *values, GError **error);
static void write_inner (const Values *values, GString *out);

#define FIELD(name) .offset = G_STRUCT_OFFSET (Values, name)
/* clang-format off */
#define DEGREE(name) { "layout", #name, KEY_INT, .min = 1, .max = 1 << 20, FIELD (layout.name) }
#define FLAG(name, field) { "layout", name, KEY_BOOL, FIELD (layout.field) }
#define ONLY(group, name, value) { group, name, KEY_ONLY, .names = { value } }

static const guint8 gradient_codes[] = { SP_DTYPE_BF16, SP_DTYPE_FP32 };
#define GRADIENT(name, field)                                                                                          \
  { "layout", name, KEY_CHOICE, FIELD (layout.field), .names = { "bf16", "fp32" }, .available = 2,                     \
    .codes = gradient_codes }
/* clang-format on */

static const Key keys[] = {
  { "model", "config", KEY_WORD, SP_INI_REQUIRED, FIELD (model) },
  { "cluster", "file", KEY_WORD, SP_INI_REQUIRED, FIELD (cluster) },
  { "cluster", "device", KEY_WORD, FIELD (device) },
  { "cluster", "nodes", KEY_INT, .min = 1, .max = 1 << 16, FIELD (nodes) },
  { "cluster", "gpus-per-node", KEY_INT, .min = 1, .max = 1024, FIELD (gpus_per_node) },
  DEGREE (data),
  DEGREE (tensor),
  DEGREE (pipeline),
  DEGREE (ulysses),
  DEGREE (ring),
  DEGREE (lasp),
  DEGREE (expert),
  { "layout", "expert-capacity", KEY_SPECIAL, .read = read_capacity, .write = write_capacity },
  { "layout", "lasp-version", KEY_INT, .min = 1, .max = 2, FIELD (layout.lasp_version) },
  { "layout", "ring-kind", KEY_CHOICE, FIELD (layout.ring_kind), .names = { "p2p", "all-gather", "rsa", "double" },
    .available = SP_N_RING_KINDS },
  FLAG ("ring-keep", ring_keep),
  { "layout", "ring-backward", KEY_CHOICE, FIELD (layout.ring_backward), .names = { "kv", "q" },
    .available = SP_N_RING_BACKWARDS },
  { "layout", "ring-inner", KEY_SPECIAL, .read = read_inner, .write = write_inner },
  GRADIENT ("ring-gradient-dtype", ring_gradient_dtype),
  { "layout", "ring-split", KEY_CHOICE, FIELD (layout.token_split), .names = { "contiguous", "zigzag", "striped" },
    .available = SP_N_TOKEN_SPLITS },
  FLAG ("sequence-regions", sequence_regions),
  { "layout", "zero", KEY_INT, .min = 0, .max = 3, FIELD (layout.zero) },
  { "layout", "zero-group", KEY_SPECIAL, .read = read_zero_group, .write = write_zero_group },
  FLAG ("reshard", reshard),
  GRADIENT ("gradient-dtype", gradient_dtype),
  FLAG ("overlap", overlap),
  { "layout", "recompute", KEY_SPECIAL, .read = read_recompute, .write = write_recompute },
  { "layout", "offload", KEY_SPECIAL, .read = read_offload, .write = write_offload },
  { "layout", "loss", KEY_CHOICE, FIELD (layout.loss), .names = { "full", "vocab-parallel", "chunked", "fused" },
    .available = SP_N_LOSSES },
  { "layout", "loss-chunks", KEY_SPECIAL, .read = read_chunks, .write = write_chunks },
  { "layout", "mlp-tiles", KEY_SPECIAL, .read = read_tiles, .write = write_tiles },
  { "layout", "schedule", KEY_SPECIAL, .read = read_schedule, .write = write_schedule },
  { "layout", "virtual-stages", KEY_INT, .min = 1, .max = SP_MAX_CHUNKS, FIELD (layout.virtual_stages) },
  { "layout", "stage-split", KEY_SPECIAL, .read = read_split, .write = write_split },
  { "layout", "order", KEY_SPECIAL, .read = read_order, .write = write_order },
  { "run", "sequence", KEY_TOKENS, SP_INI_REQUIRED, 1, 1 << 30, FIELD (run.sequence) },
  { "run", "micro-batch", KEY_INT, .min = 1, .max = 1 << 16, FIELD (run.micro_batch) },
  { "run", "global-batch", KEY_INT, .min = 1, .max = 1 << 24, FIELD (run.global_batch) },
  { "run", "precision", KEY_SPECIAL, .read = read_precision, .write = write_precision },
  { "run", "causal", KEY_BOOL, FIELD (run.causal) },
  { "run", "framework", KEY_WORD, FIELD (framework) },
  { "run", "frozen", KEY_SPECIAL, .read = read_frozen, .write = write_frozen },
  { "run", "lora-rank", KEY_INT, .min = 0, .max = 4096, FIELD (run.lora_rank) },
  { "run", "lora-targets", KEY_SPECIAL, .read = read_targets, .write = write_targets },
  { "run", "packing", KEY_SPECIAL, .read = read_packing, .write = write_packing },
  { "run", "expert-imbalance", KEY_SPECIAL, .read = read_imbalance, .write = write_imbalance },
  { "run", "scope", KEY_CHOICE, FIELD (run.scope), .names = { "step", "forward", "layer", "attention" },
    .available = SP_N_SCOPES },
  { "run", "optimizer", KEY_CHOICE, FIELD (run.optimizer), .names = { "adamw", "adamw-8bit", "muon" },
    .available = SP_N_OPTIMIZERS },
};
G_STATIC_ASSERT (SP_DTYPE_BF16 == 0 && SP_DTYPE_FP16 == 1);
G_STATIC_ASSERT (SP_SCOPE_STEP == 0 && SP_SCOPE_FORWARD == 1 && SP_SCOPE_LAYER == 2 && SP_SCOPE_ATTENTION == 3);
G_STATIC_ASSERT (SP_TOKENS_CONTIGUOUS == 0 && SP_TOKENS_ZIGZAG == 1 && SP_TOKENS_STRIPED == 2);
G_STATIC_ASSERT (SP_RING_P2P == 0 && SP_RING_ALL_GATHER == 1 && SP_RING_RSA == 2 && SP_RING_DOUBLE == 3);
G_STATIC_ASSERT (SP_RING_BACKWARD_KV == 0 && SP_RING_BACKWARD_Q == 1);

/* --- special keys ------------------------------------------------------------------------------------------------- */

static gboolean
read_order (SpIni *ini, const Key *key, Values *values, GError **error)
{
  static const char *const names[] = { "tensor", "ulysses", "ring", "lasp", "data", "pipeline", "expert", NULL };
  static const char all[] =
      "tensor, ulysses, ring, lasp, data and pipeline, each once, nearest ranks first; and expert, "
      "before data where experts are spread over the nearest ranks";
  G_STATIC_ASSERT (SP_AXIS_TENSOR == 0 && SP_AXIS_ULYSSES == 1 && SP_AXIS_RING == 2 && SP_AXIS_LASP == 3 &&
                   SP_AXIS_DATA == 4 && SP_AXIS_PIPELINE == 5 && SP_AXIS_EXPERT == 6);
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  SpOrder order = { { 0 }, 0 };
  guint n = 0;
  gboolean seen[G_N_ELEMENTS (names)] = { FALSE };
  g_auto (GStrv) words = g_strsplit (text, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    guint axis = 0;
    while (names[axis] != NULL && !g_str_equal (names[axis], g_strstrip (words[i])))
      axis++;
    const char *near = names[axis] == NULL ? sp_nearest (words[i], names) : NULL;
    g_autofree char *shown = sp_shown (words[i]);
    if (names[axis] == NULL)
      return sp_ini_refuse (ini, key->group, key->name, error, "\"%s\" is no axis, expected %s%s%s%s", shown, all,
                            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    if (seen[axis])
      return sp_ini_refuse (ini, key->group, key->name, error, "%s stands twice, expected %s", names[axis], all);
    seen[axis] = TRUE;
    if (axis == SP_AXIS_EXPERT)
      order.experts_far = seen[SP_AXIS_DATA];
    else
      order.axis[n++] = (guint8) axis;
  }
  for (guint axis = 0; axis < SP_N_RANK_AXES; axis++)
    if (!seen[axis])
      return sp_ini_refuse (ini, key->group, key->name, error, "%s is missing, expected %s", names[axis], all);
  values->layout.order = order;
  return TRUE;
}

static void
write_order (const Values *values, GString *out)
{
  static const char *const names[] = { "tensor", "ulysses", "ring", "lasp", "data", "pipeline" };
  gboolean has_experts = values->layout.expert > 1;
  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    gboolean here = has_experts && values->layout.order.axis[i] == SP_AXIS_DATA;
    g_string_append_printf (
        out, "%s%s%s%s", i > 0 ? "," : "", here && !values->layout.order.experts_far ? "expert," : "",
        names[values->layout.order.axis[i]], here && values->layout.order.experts_far ? ",expert" : "");
  }
}

static gboolean
read_capacity (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL || g_str_equal (text, "none")) {
    values->layout.expert_capacity = text == NULL ? values->layout.expert_capacity : 0;
    return TRUE;
  }
  g_autofree char *problem =
      sp_quantity_problem (text, SP_UNIT_NUMBER, 0.01, SP_MAX_EXPERTS, &values->layout.expert_capacity);
  if (problem != NULL)
    return sp_ini_refuse (ini, key->group, key->name, error,
                          "expected none, or the rows of an expert's buffer over the mean, such as 1.25");
  return TRUE;
}

static void
write_capacity (const Values *values, GString *out)
{
  if (values->layout.expert_capacity > 0)
    g_string_append_printf (out, "%.9g", values->layout.expert_capacity);
  else
    g_string_append (out, "none");
}

static gboolean
read_imbalance (SpIni *ini, const Key *key, Values *values, GError **error)
{
  return sp_ini_quantity (ini, key->group, key->name, SP_INI_OPTIONAL, SP_UNIT_NUMBER, 1, 1000,
                          &values->run.expert_imbalance, error);
}

static void
write_imbalance (const Values *values, GString *out)
{
  g_string_append_printf (out, "%.9g", MAX (values->run.expert_imbalance, 1));
}

/* fp8 is bf16 with linear layers that multiply in fp8. */
static gboolean
read_precision (SpIni *ini, const Key *key, Values *values, GError **error)
{
  static const char *const names[] = { "bf16", "fp16", "fp8", NULL };
  guint8 index = G_MAXUINT8;
  if (!sp_ini_choice (ini, key->group, key->name, SP_INI_OPTIONAL, names, &index, error))
    return FALSE;
  if (index == G_MAXUINT8)
    return TRUE;
  values->run.precision = index == 1 ? SP_DTYPE_FP16 : SP_DTYPE_BF16;
  values->run.fp8 = index == 2;
  return TRUE;
}

static void
write_precision (const Values *values, GString *out)
{
  g_string_append (out, values->run.fp8 ? "fp8" : sp_dtype_name (values->run.precision));
}

static const char *const offload_names[] = { "optimizer", "parameters", "activations", NULL };
G_STATIC_ASSERT (SP_OFFLOAD_OPTIMIZER == 1 && SP_OFFLOAD_PARAMETERS == 2 && SP_OFFLOAD_ACTIVATIONS == 4);

/* none, or a list of what lies in host memory. */
static gboolean
read_offload (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  values->layout.offload = 0;
  if (g_str_equal (text, "none"))
    return TRUE;
  g_auto (GStrv) words = g_strsplit (text, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    guint bit = 0;
    while (offload_names[bit] != NULL && !g_str_equal (offload_names[bit], g_strstrip (words[i])))
      bit++;
    const char *near = offload_names[bit] == NULL ? sp_nearest (words[i], offload_names) : NULL;
    if (offload_names[bit] == NULL)
      return sp_ini_refuse (ini, key->group, key->name, error,
                            "expected none, or of optimizer, parameters and activations some, joined by commas%s%s%s",
                            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    values->layout.offload |= (guint8) (1 << bit);
  }
  return TRUE;
}

static void
write_offload (const Values *values, GString *out)
{
  gsize start = out->len;
  for (guint bit = 0; offload_names[bit] != NULL; bit++)
    if (values->layout.offload & 1 << bit)
      g_string_append_printf (out, "%s%s", out->len > start ? "," : "", offload_names[bit]);
  if (out->len == start)
    g_string_append (out, "none");
}

/* Layers of each virtual stage. Whether they are as many, and add up, is a matter of legality. */
static gboolean
read_split (SpIni *ini, const Key *key, Values *values, GError **error)
{
  const guint most = G_N_ELEMENTS (values->layout.stage_split);
  g_autofree char *text = g_strdup ("auto");
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  memset (values->layout.stage_split, 0, sizeof values->layout.stage_split);
  if (g_str_equal (text, "auto"))
    return TRUE;
  g_auto (GStrv) parts = g_strsplit (text, ",", -1);
  for (guint i = 0; parts[i] != NULL; i++) {
    double layers;
    g_autofree char *problem = sp_quantity_problem (g_strstrip (parts[i]), SP_UNIT_COUNT, 1, SP_MAX_LAYERS, &layers);
    if (problem != NULL || i == most)
      return sp_ini_refuse (ini, key->group, key->name, error,
                            "expected auto, or the layers of each of at most %u virtual stages, such as 8,8,7,7", most);
    values->layout.stage_split[i] = (gint32) layers;
  }
  return TRUE;
}

static void
write_split (const Values *values, GString *out)
{
  const gint32 *split = values->layout.stage_split;
  if (split[0] == 0)
    g_string_append (out, "auto");
  for (guint i = 0; i < G_N_ELEMENTS (values->layout.stage_split) && split[i] > 0; i++)
    g_string_append_printf (out, "%s%d", i > 0 ? "," : "", split[i]);
}

/* A number of parts, or `automatic`. */
static gboolean
read_parts (SpIni *ini, const Key *key, gint32 automatic, gint32 *ret, GError **error)
{
  g_autofree char *text = NULL;
  double parts = 0;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_autofree char *problem =
      g_str_equal (text, "auto") ? NULL : sp_quantity_problem (text, SP_UNIT_COUNT, 1, 1 << 20, &parts);
  if (problem != NULL)
    return sp_ini_refuse (ini, key->group, key->name, error, "expected auto, or a whole number of parts, such as 8");
  *ret = g_str_equal (text, "auto") ? automatic : (gint32) parts;
  return TRUE;
}

static void
write_parts (gint32 parts, gint32 automatic, GString *out)
{
  if (parts == automatic)
    g_string_append (out, "auto");
  else
    g_string_append_printf (out, "%d", parts);
}

static gboolean
read_chunks (SpIni *ini, const Key *key, Values *values, GError **error)
{
  return read_parts (ini, key, 0, &values->layout.loss_chunks, error);
}

static void
write_chunks (const Values *values, GString *out)
{
  write_parts (values->layout.loss_chunks, 0, out);
}

static gboolean
read_tiles (SpIni *ini, const Key *key, Values *values, GError **error)
{
  return read_parts (ini, key, SP_TILES_AUTO, &values->layout.mlp_tiles, error);
}

static void
write_tiles (const Values *values, GString *out)
{
  write_parts (values->layout.mlp_tiles, SP_TILES_AUTO, out);
}

/* Each word of a list that is one of `names` adds its bits. FALSE: what the word at *ret_word is, is not known. */
static gboolean
read_words (char **words, const char *const *names, const guint8 *bits, guint8 *field, const char **ret_word)
{
  for (guint i = 0; words[i] != NULL; i++) {
    guint at = 0;
    *ret_word = g_strstrip (words[i]);
    while (names[at] != NULL && !g_str_equal (names[at], words[i]))
      at++;
    if (names[at] == NULL)
      return FALSE;
    *field |= bits[at];
  }
  return TRUE;
}

static gboolean
refuse_word (SpIni *ini, const Key *key, const char *word, const char *const *names, const char *expected,
             GError **error)
{
  const char *near = sp_nearest (word, names);
  return sp_ini_refuse (ini, key->group, key->name, error, "%s%s%s%s", expected, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

/* none, or a list of what is not trained. */
static gboolean
read_frozen (SpIni *ini, const Key *key, Values *values, GError **error)
{
  static const char *const names[] = { "embedding", "head", NULL };
  static const guint8 bits[] = { SP_FREEZE_EMBEDDING, SP_FREEZE_HEAD };
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  values->run.frozen = 0;
  values->run.frozen_layers = 0;
  g_auto (GStrv) words = g_strsplit (g_str_equal (text, "none") ? "" : text, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    char *one[] = { words[i], NULL };
    const char *word;
    double layers = 0;
    if (read_words (one, names, bits, &values->run.frozen, &word))
      continue;
    gboolean first = g_str_has_prefix (word, "first-");
    const char *number = first ? word + strlen ("first-") : "";
    g_autofree char *problem = sp_quantity_problem (number, SP_UNIT_COUNT, 1, SP_MAX_LAYERS, &layers);
    if (problem != NULL || values->run.frozen_layers > 0)
      return refuse_word (ini, key, word, names,
                          "expected none, or of embedding, head and first-K (the first K layers) some, "
                          "joined by commas",
                          error);
    values->run.frozen_layers = (gint32) layers;
  }
  return TRUE;
}

static void
write_frozen (const Values *values, GString *out)
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

static const char *const target_names[] = { "q", "k", "v", "o", "gate", "up", "down", "attention", "mlp", "all", NULL };
static const guint8 target_bits[] = { SP_LORA_Q,  SP_LORA_K,    SP_LORA_V,         SP_LORA_O,   SP_LORA_GATE,
                                      SP_LORA_UP, SP_LORA_DOWN, SP_LORA_ATTENTION, SP_LORA_MLP, SP_LORA_ALL };

static gboolean
read_targets (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  const char *word = NULL;
  guint8 targets = 0;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_auto (GStrv) words = g_strsplit (text, ",", -1);
  if (!read_words (words, target_names, target_bits, &targets, &word))
    return refuse_word (ini, key, word, target_names,
                        "expected all, attention, mlp, or of q, k, v, o, gate, up and down some, joined by commas",
                        error);
  values->run.lora_targets = targets;
  return TRUE;
}

static void
write_targets (const Values *values, GString *out)
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

static gboolean
read_packing (SpIni *ini, const Key *key, Values *values, GError **error)
{
  return sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &values->packing, error);
}

static void
write_packing (const Values *values, GString *out)
{
  g_string_append (out, values->run.packing != NULL ? values->run.packing->path : "none");
}

/* A word, or every-K, first-K: all that the layout has to say of it. */
static gboolean
read_recompute (SpIni *ini, const Key *key, Values *values, GError **error)
{
  static const char *const names[] = { "none", "selective", "full", "every-K", "first-K", NULL };
  static const char *const prefixes[] = { "every-", "first-" };
  SpLayout *layout = &values->layout;
  g_autofree char *text = NULL;
  guint8 index = layout->recompute;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  layout->recompute_every = 1;
  layout->recompute_first = 0;
  for (guint i = 0; text != NULL && i < G_N_ELEMENTS (prefixes); i++) {
    double layers;
    if (!g_str_has_prefix (text, prefixes[i]))
      continue;
    g_autofree char *problem =
        sp_quantity_problem (text + strlen (prefixes[i]), SP_UNIT_COUNT, 1, SP_MAX_LAYERS, &layers);
    if (problem != NULL)
      return sp_ini_refuse (ini, key->group, key->name, error, "expected a whole number of layers, such as %s2",
                            prefixes[i]);
    layout->recompute = SP_RECOMPUTE_FULL;
    *(i == 0 ? &layout->recompute_every : &layout->recompute_first) = (gint32) layers;
    return TRUE;
  }
  if (!sp_ini_choice (ini, key->group, key->name, SP_INI_OPTIONAL, names, &index, error))
    return FALSE;
  layout->recompute = index;
  return TRUE;
}

static void
write_recompute (const Values *values, GString *out)
{
  static const char *const names[] = { "none", "selective", "full" };
  const SpLayout *layout = &values->layout;
  if (layout->recompute == SP_RECOMPUTE_FULL && layout->recompute_first > 0)
    g_string_append_printf (out, "first-%d", layout->recompute_first);
  else if (layout->recompute == SP_RECOMPUTE_FULL && layout->recompute_every > 1)
    g_string_append_printf (out, "every-%d", layout->recompute_every);
  else
    g_string_append (out, names[layout->recompute]);
}

/* Ranks that share one copy; all, or those of a node, which the cluster's file says. */
static gboolean
read_zero_group (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  double ranks = 0;

  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  gboolean node = g_str_equal (text, "node");
  g_autofree char *problem =
      node || g_str_equal (text, "all") ? NULL : sp_quantity_problem (text, SP_UNIT_COUNT, 1, 1 << 20, &ranks);
  if (problem != NULL)
    return sp_ini_refuse (ini, key->group, key->name, error, "expected all, node, or a number of ranks");
  values->layout.zero_group = node ? ZERO_GROUP_NODE : (gint32) ranks;
  return TRUE;
}

static void
write_zero_group (const Values *values, GString *out)
{
  if (values->layout.zero_group == 0)
    g_string_append (out, "all");
  else
    g_string_append_printf (out, "%d", values->layout.zero_group);
}

/* Ranks of a double ring's inner one; 0 for the ring's part of a node, which the cluster's file says. */
static gboolean
read_inner (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  double ranks = 0;

  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_autofree char *problem =
      g_str_equal (text, "node") ? NULL : sp_quantity_problem (text, SP_UNIT_COUNT, 1, 1 << 20, &ranks);
  if (problem != NULL)
    return sp_ini_refuse (ini, key->group, key->name, error, "expected node, or a number of ranks");
  values->layout.ring_inner = (gint32) ranks;
  return TRUE;
}

static void
write_inner (const Values *values, GString *out)
{
  if (values->layout.ring_inner == 0)
    g_string_append (out, "node");
  else
    g_string_append_printf (out, "%d", values->layout.ring_inner);
}

/* The row of the schedule table, which grows without this file. */
static gboolean
read_schedule (SpIni *ini, const Key *key, Values *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  gint row = text != NULL ? sp_schedule_find (text) : values->layout.schedule;
  if (row < 0) {
    g_autoptr (GString) all = g_string_new (NULL);
    for (guint i = 0; i < sp_schedule_count (); i++)
      g_string_append_printf (all, "%s%s", i > 0 ? ", " : "", sp_schedule_get (i)->name);
    return sp_ini_refuse (ini, key->group, key->name, error, "not available yet; choose %s", all->str);
  }
  values->layout.schedule = (guint8) row;
  return TRUE;
}

static void
write_schedule (const Values *values, GString *out)
{
  g_string_append (out, sp_schedule_get (values->layout.schedule)->name);
}

/* --- the table at work -------------------------------------------------------------------------------------------- */

static gboolean
read_choice (SpIni *ini, const Key *key, guint8 *field, GError **error)
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
read_only (SpIni *ini, const Key *key, GError **error)
{
  g_autofree char *value = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &value, error))
    return FALSE;
  if (value == NULL || g_str_equal (value, key->names[0]))
    return TRUE;
  return sp_ini_refuse (ini, key->group, key->name, error, "not available yet; choose %s", key->names[0]);
}

static gboolean
read_key (SpIni *ini, const Key *key, Values *values, GError **error)
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
write_value (const Key *key, const Values *values, GString *out)
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
is_unset (const Key *key, const Values *values)
{
  gconstpointer field = (const char *) values + key->offset;

  if (key->type == KEY_WORD)
    return *(char *const *) field == NULL;
  return key->type == KEY_INT && *(const gint32 *) field == 0 && key->min > 0;
}

static void
values_clear (Values *values)
{
  g_free (values->model);
  g_free (values->cluster);
  g_free (values->device);
  g_free (values->framework);
  g_free (values->packing);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Values, values_clear)

static Values
values_default (void)
{
  return (Values){
    .framework = g_strdup ("flash"),
    .layout = SP_LAYOUT_DEFAULT,
    .run = { .micro_batch = 1, .global_batch = 1, .precision = SP_DTYPE_BF16, .causal = TRUE },
  };
}

static gboolean
read_values (SpIni *ini, Values *values, SpVariations *variations, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (!read_key (ini, &keys[i], values, error))
      return FALSE;
  if (!sp_ini_has (ini, "run", "global-batch")) /* one micro-batch a replica */
    values->run.global_batch = (gint32) MIN ((gint64) values->layout.data * values->run.micro_batch, 1 << 24);
  return sp_variations_read (ini, variations, error) && sp_ini_finish (ini, error);
}

/* "key=value" or "group.key=value". */
static gboolean
apply_set (SpIni *ini, const char *set, GError **error)
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
  const char *near = sp_nearest (name, known);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "--set %s: unknown key%s%s%s", shown, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

/* --- scenario ----------------------------------------------------------------------------------------------------- */

/* A file that the scenario names: absolute, beside the scenario, or shipped. */
static char *
resolve (const SpIni *ini, const char *group, const char *key, const char *name, const char *folder, GError **error)
{
  gboolean bare = strchr (name, G_DIR_SEPARATOR) == NULL;
  g_autofree char *beside = g_path_get_dirname (sp_ini_path (ini));
  g_autofree char *path = g_path_is_absolute (name) ? g_strdup (name) : g_build_filename (beside, name, NULL);
  if (g_file_test (path, bare ? G_FILE_TEST_IS_REGULAR : G_FILE_TEST_EXISTS))
    return g_canonicalize_filename (path, NULL);
  g_autoptr (GError) cause = NULL;
  g_autofree char *shipped = bare ? sp_find_shipped (folder, name, &cause) : NULL;
  if (shipped != NULL)
    return g_canonicalize_filename (shipped, NULL);
  if (cause == NULL)
    sp_ini_refuse (ini, group, key, error, "expected a file; there is no %s", path);
  else
    sp_input_fail (error, SP_INPUT_ERROR_FILE, "%s: [%s] %s = %s", sp_ini_path (ini), group, key, cause->message);
  return NULL;
}

/* An INI says its device; nodes and GPUs of them can be fewer or more. */
static gboolean
load_cluster_ini (SpScenario *scenario, const SpIni *ini, const Values *values, GError **error)
{
  if (values->device != NULL)
    return sp_ini_refuse (ini, "cluster", "device", error,
                          "a key for the dump of a machine; %s is an INI with its own device", values->cluster);
  scenario->cluster = sp_cluster_load (scenario->cluster_path, error);
  if (scenario->cluster == NULL)
    return FALSE;
  g_autofree char *problem = sp_cluster_resize (scenario->cluster, values->nodes, values->gpus_per_node);
  const char *key = values->gpus_per_node > 0 ? "gpus-per-node" : "nodes";
  return problem == NULL || sp_ini_refuse (ini, "cluster", key, error, "%s", problem);
}

/* A dump of a machine names neither its card nor how many there are. */
static gboolean
load_cluster (SpScenario *scenario, const SpIni *ini, const Values *values, GError **error)
{
  g_autoptr (GError) problem = NULL;
  g_autoptr (SpTopologyDump) dump = sp_topology_dump_load (scenario->cluster_path, &problem);

  if (problem != NULL) {
    g_propagate_error (error, g_steal_pointer (&problem));
    return FALSE;
  }
  scenario->nodes = values->nodes;
  scenario->gpus_per_node = values->gpus_per_node;
  if (dump == NULL)
    return load_cluster_ini (scenario, ini, values, error);
  if (values->gpus_per_node > 0)
    return sp_ini_refuse (ini, "cluster", "gpus-per-node", error, "the dump has its own, %u: expected none",
                          dump->n_gpus);
  if (values->device == NULL)
    return sp_ini_refuse (ini, "cluster", "file", error,
                          "a dump of a machine's topology, which names no card: expected device = FILE beside it (and "
                          "nodes = N for more than one)");
  scenario->device_path = resolve (ini, "cluster", "device", values->device, "devices", error);
  SpDevice *device = scenario->device_path != NULL ? sp_device_load (scenario->device_path, error) : NULL;
  if (device != NULL)
    scenario->cluster = sp_topology_dump_cluster (dump, device, MAX (values->nodes, 1), error);
  return scenario->cluster != NULL;
}

/* Where the device has no bf16, fp16 has to be asked for: its loss scaling is another recipe. */
static gboolean
check_precision (const SpScenario *scenario, const SpIni *ini, const Values *values, GError **error)
{
  const SpDevice *device = scenario->cluster->device;

  if (values->run.fp8 && device->peak_fp8_flops_per_s.value == 0)
    return sp_ini_refuse (ini, "run", "precision", error, "%s has no peak-fp8, expected %s", device->name,
                          device->no_bf16 ? "fp16" : "bf16");
  if (values->run.precision != SP_DTYPE_BF16 || !device->no_bf16)
    return TRUE;
  return sp_ini_refuse (ini, "run", "precision", error, "%s has no bf16, expected fp16%s", device->name,
                        sp_ini_has (ini, "run", "precision") ? "" : " (bf16 is the default)");
}

/* Absolute, or beside the scenario. */
static gboolean
load_packing (SpScenario *scenario, const SpIni *ini, const char *name, GError **error)
{
  if (name == NULL || g_str_equal (name, "none"))
    return TRUE;
  g_autofree char *beside = g_path_get_dirname (sp_ini_path (ini));
  g_autofree char *joined = g_path_is_absolute (name) ? g_strdup (name) : g_build_filename (beside, name, NULL);
  g_autofree char *path = g_canonicalize_filename (joined, NULL);
  if (g_path_is_absolute (name) || g_file_test (path, G_FILE_TEST_EXISTS))
    scenario->packing = sp_packing_load (path, error);
  else
    return sp_ini_refuse (ini, "run", "packing", error,
                          "expected none, or a file of documents' lengths; there is no %s", path);
  return scenario->packing != NULL;
}

static gboolean
load_files (SpScenario *scenario, const SpIni *ini, const Values *values, GError **error)
{
  scenario->model_path = resolve (ini, "model", "config", values->model, "models", error);
  if (scenario->model_path == NULL)
    return FALSE;
  scenario->cluster_path = resolve (ini, "cluster", "file", values->cluster, "clusters", error);
  if (scenario->cluster_path == NULL)
    return FALSE;
  scenario->framework_path = resolve (ini, "run", "framework", values->framework, "frameworks", error);
  if (scenario->framework_path == NULL)
    return FALSE;
  scenario->arch = sp_architecture_load (scenario->model_path, error);
  if (scenario->arch == NULL)
    return FALSE;
  if (!load_cluster (scenario, ini, values, error) || !check_precision (scenario, ini, values, error))
    return FALSE;
  scenario->framework = sp_framework_load (scenario->framework_path, error);
  return scenario->framework != NULL && load_packing (scenario, ini, values->packing, error);
}

static SpScenario *
load (SpIni *ini, const char *const *sets, GError **error)
{
  for (guint i = 0; sets != NULL && sets[i] != NULL; i++)
    if (!apply_set (ini, sets[i], error))
      return NULL;
  g_auto (Values) values = values_default ();
  g_autoptr (SpScenario) scenario = g_new0 (SpScenario, 1);
  scenario->variations = (SpVariations) SP_VARIATIONS_DEFAULT;
  if (!read_values (ini, &values, &scenario->variations, error) || !load_files (scenario, ini, &values, error))
    return NULL;
  scenario->path = g_strdup (sp_ini_path (ini));
  scenario->layout = values.layout;
  if (scenario->layout.zero_group == ZERO_GROUP_NODE)
    scenario->layout.zero_group =
        sp_layout_zero_in_node (&scenario->layout, scenario->arch, scenario->cluster->gpus_per_node);
  if (scenario->layout.ring_kind == SP_RING_DOUBLE && scenario->layout.ring_inner == 0)
    scenario->layout.ring_inner =
        sp_layout_ring_in_node (&scenario->layout, scenario->arch, scenario->cluster->gpus_per_node);
  scenario->run = values.run;
  scenario->run.packing = scenario->packing;
  return g_steal_pointer (&scenario);
}

SpScenario *
sp_scenario_load (const char *path, const char *const *sets, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_load (path, error);
  return ini != NULL ? load (ini, sets, error) : NULL;
}

SpScenario *
sp_scenario_parse (const char *path, const char *text, gsize length, const char *const *sets, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  return ini != NULL ? load (ini, sets, error) : NULL;
}

void
sp_scenario_free (SpScenario *scenario)
{
  if (scenario == NULL)
    return;
  g_free (scenario->path);
  g_free (scenario->model_path);
  g_free (scenario->cluster_path);
  g_free (scenario->device_path);
  g_free (scenario->framework_path);
  sp_architecture_free (scenario->arch);
  sp_cluster_free (scenario->cluster);
  sp_framework_free (scenario->framework);
  sp_packing_free (scenario->packing);
  sp_variations_clear (&scenario->variations);
  g_free (scenario);
}

/* A shipped file by its bare name, so that what is printed is the same on every machine; others by their path. */
static char *
written_name (const char *path, const char *folder)
{
  g_autofree char *shipped = g_build_filename (sp_data_dir (), folder, NULL);
  g_autofree char *canonical = g_canonicalize_filename (shipped, NULL);
  g_autofree char *own = g_path_get_dirname (path);
  return g_str_equal (own, canonical) ? g_path_get_basename (path) : g_strdup (path);
}

void
sp_scenario_write (const SpScenario *scenario, GString *out)
{
  g_auto (Values) values = {
    .model = written_name (scenario->model_path, "models"),
    .cluster = written_name (scenario->cluster_path, "clusters"),
    .device = scenario->device_path != NULL ? written_name (scenario->device_path, "devices") : NULL,
    .nodes = scenario->nodes,
    .gpus_per_node = scenario->gpus_per_node,
    .framework = written_name (scenario->framework_path, "frameworks"),
    .layout = scenario->layout,
    .run = scenario->run,
  };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++) {
    if (i == 0 || !g_str_equal (keys[i].group, keys[i - 1].group))
      g_string_append_printf (out, "%s[%s]\n", i > 0 ? "\n" : "", keys[i].group);
    if (is_unset (&keys[i], &values))
      continue;
    g_string_append_printf (out, "%s = ", keys[i].name);
    write_value (&keys[i], &values, out);
    g_string_append_c (out, '\n');
  }
  sp_variations_write (&scenario->variations, out);
}

/* --- for who writes scenarios ------------------------------------------------------------------------------------- */

gboolean
sp_scenario_key (guint i, const char **ret_group, const char **ret_name, char **ret_default)
{
  if (i >= G_N_ELEMENTS (keys))
    return FALSE;
  g_auto (Values) values = values_default ();
  g_autoptr (GString) text = g_string_new (NULL);
  if (keys[i].type != KEY_WORD)
    write_value (&keys[i], &values, text);
  else
    g_string_append (text, keys[i].offset == G_STRUCT_OFFSET (Values, framework) ? values.framework : "");
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
  g_auto (Values) values = values_default ();
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
sp_scenario_set_run (const char *key, const char *value, SpRun *run, GError **error)
{
  static const char nothing[] = "[run]\n";
  g_autoptr (SpIni) ini = sp_ini_parse ("--set", nothing, strlen (nothing), NULL);
  g_auto (Values) values = values_default ();
  guint i = 0;
  while (i < G_N_ELEMENTS (keys) && !(g_str_equal (keys[i].group, "run") && g_str_equal (keys[i].name, key)))
    i++;
  g_return_val_if_fail (i < G_N_ELEMENTS (keys) && keys[i].type != KEY_WORD, FALSE);
  values.run = *run;
  sp_ini_set (ini, "run", key, value);
  if (!read_key (ini, &keys[i], &values, error))
    return FALSE;
  *run = values.run;
  return TRUE;
}
