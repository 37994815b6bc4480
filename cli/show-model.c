/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show model FILE: what of a model a cost depends on. */
#include "cli/cli.h"
#include "models/inputs/ini.h"

static gboolean
add_json (const SpArchitecture *arch, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_string (builder, "name", arch->name);
  sp_json_whole (builder, "parameters", (double) sp_architecture_parameters (arch));
  sp_json_whole (builder, "active_parameters", (double) sp_architecture_active_parameters (arch));
  json_builder_set_member_name (builder, "layers");
  json_builder_begin_array (builder);
  for (guint i = 0; i < SP_N_LAYER_KINDS; i++) {
    if (sp_architecture_count_kind (arch, i) == 0)
      continue;
    g_autofree char *kind = sp_architecture_kind_text (arch, i);
    json_builder_begin_object (builder);
    sp_json_string (builder, "kind", kind);
    sp_json_whole (builder, "count", sp_architecture_count_kind (arch, i));
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
  sp_json_whole (builder, "state_bytes_per_sequence", (double) sp_architecture_state_bytes (arch));
  sp_json_strings (builder, "notes", arch->notes);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static char *
layers_text (const SpArchitecture *arch)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < SP_N_LAYER_KINDS; i++)
    if (sp_architecture_count_kind (arch, i) > 0) {
      g_autofree char *kind = sp_architecture_kind_text (arch, i);
      g_string_append_printf (text, "%s%d %s", text->len > 0 ? " + " : "", sp_architecture_count_kind (arch, i), kind);
    }
  return g_strdup (text->str);
}

/* Layers whose kind has, of the bits of `mask`, those of `bits`. */
static gint32
count_layers (const SpArchitecture *arch, guint mask, guint bits)
{
  gint32 n = 0;
  for (gint32 i = 0; i < arch->layers; i++)
    n += (arch->layer_kind[i] & mask) == bits;
  return n;
}

static void append (GString *text, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void
append (GString *text, const char *format, ...)
{
  va_list args;
  if (text->len > 0)
    g_string_append (text, ", ");
  va_start (args, format);
  g_string_append_vprintf (text, format, args);
  va_end (args);
}

static void
add_pair (SpTable *table, const char *name, char *value)
{
  sp_table_cell (table, name);
  sp_table_take (table, value);
}

static void
add_text_of (SpTable *table, const char *name, GString *text)
{
  add_pair (table, name, g_string_free (text, FALSE));
}

/* Heads of softmax layers, and what these have besides. */
static void
add_softmax (const SpArchitecture *arch, SpTable *table)
{
  const SpLatentShape *l = &arch->latent;
  g_autoptr (GString) besides = g_string_new (NULL);
  if (!sp_architecture_has (arch, SP_LAYER_SOFTMAX))
    return;
  if (l->kv_rank > 0) {
    GString *text = g_string_new (NULL);
    append (text, "%d of %d + %d features, values of %d", arch->heads, l->nope_size, l->rope_size, l->value_size);
    append (text, "keys and values from a latent of %d", l->kv_rank);
    if (l->q_rank > 0)
      append (text, "queries from one of %d", l->q_rank);
    add_text_of (table, "heads", text);
  } else {
    add_pair (table, "heads",
              g_strdup_printf ("%d query, %d key/value, of %d features", arch->heads, arch->kv_heads, arch->head_size));
  }
  if (sp_architecture_has_bit (arch, SP_LAYER_WINDOW))
    append (besides, "window of %d tokens in %d of %d softmax layers", arch->window,
            count_layers (arch, SP_LAYER_MIXER | SP_LAYER_WINDOW, SP_LAYER_SOFTMAX | SP_LAYER_WINDOW),
            sp_architecture_count (arch, SP_LAYER_SOFTMAX));
  if (arch->qk_norm)
    append (besides, "norms of query and key heads");
  if (arch->attention_gate)
    append (besides, "output gate");
  if (arch->sinks)
    append (besides, "sinks");
  if (arch->bidirectional)
    append (besides, "not causal");
  if (besides->len > 0)
    add_pair (table, "attention", g_strdup (besides->str));
}

static void
add_linear (const SpArchitecture *arch, SpTable *table)
{
  gint64 state = sp_architecture_state_bytes (arch);
  if (sp_architecture_has (arch, SP_LAYER_LINEAR)) {
    const SpLinearShape shape = sp_architecture_linear (arch), *l = &shape;
    GString *text = g_string_new (NULL);
    append (text, "%d heads of %d key x %d value features", l->heads, l->key_size, l->value_size);
    if (l->key_heads != l->heads)
      append (text, "%d key head%s", l->key_heads, l->key_heads == 1 ? "" : "s");
    if (l->conv > 0)
      append (text, "convolution of %d", l->conv);
    if (l->output_gate)
      append (text, "output gate");
    add_text_of (table, "recurrence", text);
  }
  add_pair (table, "recurrent state", state > 0 ? sp_text_bytes ((double) state) : g_strdup ("none"));
}

/* Dense MLPs and experts, of the layers that have them. */
static void
add_mlp (const SpArchitecture *arch, SpTable *table)
{
  static const char *const mlps[SP_N_MLP_KINDS] = { "swiglu", "linear GLU", "geglu", "gelu", "relu", "squared relu" };
  const SpExpertShape *moe = &arch->moe;
  gint32 dense = count_layers (arch, SP_LAYER_EXPERTS | SP_LAYER_NO_MLP, 0);
  gint32 sparse = count_layers (arch, SP_LAYER_EXPERTS, SP_LAYER_EXPERTS);
  if (dense > 0)
    add_pair (table, "MLP",
              dense == arch->layers ? g_strdup_printf ("%s, %d wide", mlps[arch->mlp], arch->ffn)
                                    : g_strdup_printf ("%s, %d wide, in %d layer%s", mlps[arch->mlp], arch->ffn, dense,
                                                       dense == 1 ? "" : "s"));
  else if (sparse == 0)
    add_pair (table, "MLP", g_strdup ("none"));
  if (sparse == 0)
    return;
  GString *text = g_string_new (NULL);
  append (text, "%d, %d a token, each %s, %d wide", moe->experts, moe->experts_per_token, mlps[arch->mlp], moe->ffn);
  if (sparse != arch->layers)
    append (text, "in %d layer%s", sparse, sparse == 1 ? "" : "s");
  add_text_of (table, "experts", text);
  if (moe->shared_ffn > 0)
    add_pair (table, "shared experts",
              g_strdup_printf ("%d wide together%s", moe->shared_ffn, moe->shared_gate ? ", with a gate" : ""));
}

static char *
positions_text (const SpArchitecture *arch)
{
  GString *text = g_string_new (NULL);
  if (arch->positions > 0)
    append (text, "%d learned rows", arch->positions);
  else
    append (text, "%s", arch->rotary ? "rotary" : "none");
  if (arch->rotary && arch->positions == 0) {
    if (arch->rotary_size > 0 && arch->latent.kv_rank == 0)
      append (text, "%d of %d features", arch->rotary_size, arch->head_size);
    append (text, "theta %g", arch->rope_theta);
  }
  if (arch->trained_positions > 0)
    append (text, "trained on %d tokens", arch->trained_positions);
  return g_string_free (text, FALSE);
}

static char *
biases_text (const SpArchitecture *arch)
{
  const struct {
    gboolean there;
    const char *name;
  } biases[] = {
    { arch->qkv_bias, "q k v" },
    { arch->projection_bias, "attention output" },
    { arch->mlp_bias && count_layers (arch, SP_LAYER_EXPERTS | SP_LAYER_NO_MLP, 0) > 0, "MLP" },
    { arch->moe.bias && sp_architecture_has_bit (arch, SP_LAYER_EXPERTS), "experts and router" },
    { arch->head_bias, "output matrix" },
  };
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (biases); i++)
    if (biases[i].there)
      append (text, "%s", biases[i].name);
  if (text->len == 0)
    g_string_append (text, "none");
  return g_string_free (text, FALSE);
}

static void
add_text (const SpArchitecture *arch, GString *out)
{
  static const char *const norms[SP_N_NORM_KINDS] = { "RMS", "layer", "RMS without gain" };
  g_autoptr (SpTable) table = sp_table_new ("ll");
  add_pair (table, "parameters", sp_text_count ((double) sp_architecture_parameters (arch)));
  if (arch->moe.experts > 0)
    add_pair (table, "of these active", sp_text_count ((double) sp_architecture_active_parameters (arch)));
  add_pair (table, "layers", layers_text (arch));
  add_pair (table, "hidden size", g_strdup_printf ("%d", arch->hidden));
  add_softmax (arch, table);
  add_mlp (arch, table);
  add_pair (table, "vocabulary",
            g_strdup_printf ("%d, input and output %s", arch->vocabulary, arch->tied ? "tied" : "apart"));
  add_pair (table, "norms", g_strdup_printf ("%s, epsilon %g", norms[arch->norm], arch->norm_epsilon));
  add_pair (table, "positions", positions_text (arch));
  add_pair (table, "biases", biases_text (arch));
  add_pair (table, "dropout", g_strdup_printf ("%g", arch->dropout));
  add_linear (arch, table);
  g_string_append_printf (out, "%s (%s)\n", arch->name, arch->family);
  sp_table_print (table, 2, out);
  if (arch->notes != NULL)
    sp_result_notes_text (arch->notes, out);
}

gboolean
sp_show_model (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = sp_find_model (show->file, error);
  g_autoptr (SpArchitecture) arch = path != NULL ? sp_architecture_load (path, error) : NULL;
  if (arch == NULL)
    return FALSE;
  if (show->json)
    return add_json (arch, out, error);
  add_text (arch, out);
  return TRUE;
}
