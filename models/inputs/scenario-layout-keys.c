/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of [layout] that are no plain field. */
#include <string.h>

#include "models/inputs/scenario-keys.h"
#include "sim/schedules.h"

gboolean
sp_key_read_order (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
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
    g_autofree char *near = names[axis] == NULL ? sp_did_you_mean (words[i], names) : NULL;
    g_autofree char *shown = sp_shown (words[i]);
    if (names[axis] == NULL)
      return sp_ini_refuse (ini, key->group, key->name, error, "\"%s\" is no axis, expected %s%s", shown, all,
                            near);
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

void
sp_key_write_order (const SpValues *values, GString *out)
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

gboolean
sp_key_read_capacity (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
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

void
sp_key_write_capacity (const SpValues *values, GString *out)
{
  if (values->layout.expert_capacity > 0)
    g_string_append_printf (out, "%.9g", values->layout.expert_capacity);
  else
    g_string_append (out, "none");
}

static const char *const offload_names[] = { "optimizer", "parameters", "activations", NULL };
static const guint8 offload_bits[] = { SP_OFFLOAD_OPTIMIZER, SP_OFFLOAD_PARAMETERS, SP_OFFLOAD_ACTIVATIONS };

/* none, or a list of what lies in host memory. */
gboolean
sp_key_read_offload (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text != NULL && g_str_equal (text, "none"))
    values->layout.offload = 0;
  else if (text != NULL)
    return sp_key_read_words (ini, key, text, offload_names, offload_bits,
                              "expected none, or of optimizer, parameters and activations some, joined by commas",
                              &values->layout.offload, error);
  return TRUE;
}

void
sp_key_write_offload (const SpValues *values, GString *out)
{
  gsize start = out->len;
  for (guint bit = 0; offload_names[bit] != NULL; bit++)
    if (values->layout.offload & offload_bits[bit])
      g_string_append_printf (out, "%s%s", out->len > start ? "," : "", offload_names[bit]);
  if (out->len == start)
    g_string_append (out, "none");
}

/* Layers of each virtual stage. Whether they are as many, and add up, is a matter of legality. */
gboolean
sp_key_read_split (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
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

void
sp_key_write_split (const SpValues *values, GString *out)
{
  const gint32 *split = values->layout.stage_split;
  if (split[0] == 0)
    g_string_append (out, "auto");
  for (guint i = 0; i < G_N_ELEMENTS (values->layout.stage_split) && split[i] > 0; i++)
    g_string_append_printf (out, "%s%d", i > 0 ? "," : "", split[i]);
}

#define SLICES_EXPECTED "expected a number of slices from 1 to %d, or the tokens of each, such as 640,512,512,384 or 120*4,112*6"

/* Tokens, or tokens*times. */
static gboolean
read_slice_run (const char *text, gint32 *ret_tokens, gint32 *ret_times)
{
  g_auto (GStrv) parts = g_strsplit (text, "*", 2);
  double tokens, times = 1;
  if (parts[0] == NULL)
    return FALSE;
  g_autofree char *problem = sp_quantity_problem (g_strstrip (parts[0]), SP_UNIT_TOKENS, 1, 1 << 30, &tokens);
  g_autofree char *other =
      parts[1] != NULL ? sp_quantity_problem (g_strstrip (parts[1]), SP_UNIT_COUNT, 1, SP_MAX_SLICES, &times) : NULL;
  if (problem != NULL || other != NULL)
    return FALSE;
  *ret_tokens = (gint32) tokens;
  *ret_times = (gint32) times;
  return TRUE;
}

/* A number of slices, or their tokens. Whether they add up is a matter of legality. */
gboolean
sp_key_read_slices (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  SpLayout *layout = &values->layout;
  g_autofree char *text = NULL;
  double slices;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  memset (layout->slice_split, 0, sizeof layout->slice_split);
  if (strpbrk (text, ",*") == NULL) {
    g_autofree char *problem = sp_quantity_problem (text, SP_UNIT_COUNT, 1, SP_MAX_SLICES, &slices);
    if (problem != NULL)
      return sp_ini_refuse (ini, key->group, key->name, error, SLICES_EXPECTED, SP_MAX_SLICES);
    layout->slices = (gint32) slices;
    return TRUE;
  }
  g_auto (GStrv) runs = g_strsplit (text, ",", -1);
  layout->slices = 0;
  for (guint i = 0; runs[i] != NULL; i++) {
    gint32 tokens, times;
    if (!read_slice_run (runs[i], &tokens, &times) || layout->slices + times > SP_MAX_SLICES)
      return sp_ini_refuse (ini, key->group, key->name, error, SLICES_EXPECTED, SP_MAX_SLICES);
    while (times-- > 0)
      layout->slice_split[layout->slices++] = tokens;
  }
  return TRUE;
}

void
sp_key_write_slices (const SpValues *values, GString *out)
{
  const SpLayout *layout = &values->layout;
  if (layout->slice_split[0] == 0)
    g_string_append_printf (out, "%d", layout->slices);
  for (gint32 i = 0, times; i < layout->slices && layout->slice_split[0] > 0; i += times) {
    for (times = 1; i + times < layout->slices && layout->slice_split[i + times] == layout->slice_split[i];)
      times++;
    g_string_append_printf (out, "%s%d", i > 0 ? "," : "", layout->slice_split[i]);
    if (times > 1)
      g_string_append_printf (out, "*%d", times);
  }
}

/* Of a sequence's tokens: as many as a degree can be. */
#define MOST_PARTS (1 << 20)

/* A number of parts, or `automatic`. */
static gboolean
read_parts (SpIni *ini, const SpKey *key, gint32 automatic, gint32 *ret, GError **error)
{
  g_autofree char *text = NULL;
  double parts = 0;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_autofree char *problem =
      g_str_equal (text, "auto") ? NULL : sp_quantity_problem (text, SP_UNIT_COUNT, 1, MOST_PARTS, &parts);
  static const char *const words[] = { "auto", NULL };
  g_autofree char *near = sp_did_you_mean (text, words);
  if (problem != NULL)
    return sp_ini_refuse (ini, key->group, key->name, error, "expected auto, or a whole number of parts from 1 to %d%s",
                          MOST_PARTS, near);
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

gboolean
sp_key_read_chunks (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  return read_parts (ini, key, 0, &values->layout.loss_chunks, error);
}

void
sp_key_write_chunks (const SpValues *values, GString *out)
{
  write_parts (values->layout.loss_chunks, 0, out);
}

gboolean
sp_key_read_tiles (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  return read_parts (ini, key, SP_TILES_AUTO, &values->layout.mlp_tiles, error);
}

void
sp_key_write_tiles (const SpValues *values, GString *out)
{
  write_parts (values->layout.mlp_tiles, SP_TILES_AUTO, out);
}

/* A word, or every-K, first-K: all that the layout has to say of it. */
gboolean
sp_key_read_recompute (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
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

void
sp_key_write_recompute (const SpValues *values, GString *out)
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

/* One of `words`, which stand for `ranks`, or a number of ranks. */
static gboolean
read_ranks (SpIni *ini, const SpKey *key, const char *const *words, const gint32 *ranks, const char *expected,
            gint32 *field, GError **error)
{
  g_autofree char *text = NULL;
  double number = 0;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  for (guint i = 0; text != NULL && words[i] != NULL; i++)
    if (g_str_equal (text, words[i])) {
      *field = ranks[i];
      return TRUE;
    }
  g_autofree char *problem = text == NULL ? NULL : sp_quantity_problem (text, SP_UNIT_COUNT, 1, 1 << 20, &number);
  if (problem != NULL) {
    g_autofree char *near = sp_did_you_mean (text, words);
    return sp_ini_refuse (ini, key->group, key->name, error, "%s%s", expected, near);
  }
  if (text != NULL)
    *field = (gint32) number;
  return TRUE;
}

/* Ranks that share one copy; all, or those of a node, which the cluster's file says. */
gboolean
sp_key_read_zero_group (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  static const char *const words[] = { "all", "node", NULL };
  static const gint32 ranks[] = { 0, ZERO_GROUP_NODE };
  return read_ranks (ini, key, words, ranks, "expected all, node, or a number of ranks", &values->layout.zero_group,
                     error);
}

void
sp_key_write_zero_group (const SpValues *values, GString *out)
{
  if (values->layout.zero_group == 0)
    g_string_append (out, "all");
  else
    g_string_append_printf (out, "%d", values->layout.zero_group);
}

/* Ranks of a double ring's inner one; 0 for the ring's part of a node, which the cluster's file says. */
gboolean
sp_key_read_inner (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  static const char *const words[] = { "node", NULL };
  static const gint32 ranks[] = { 0 };
  return read_ranks (ini, key, words, ranks, "expected node, or a number of ranks", &values->layout.ring_inner, error);
}

void
sp_key_write_inner (const SpValues *values, GString *out)
{
  if (values->layout.ring_inner == 0)
    g_string_append (out, "node");
  else
    g_string_append_printf (out, "%d", values->layout.ring_inner);
}

/* The row of the schedule table, which grows without this file. */
gboolean
sp_key_read_schedule (SpIni *ini, const SpKey *key, SpValues *values, GError **error)
{
  g_autofree char *text = NULL;
  if (!sp_ini_string (ini, key->group, key->name, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  gint row = text != NULL ? sp_schedule_find (text) : values->layout.schedule;
  if (row < 0) {
    g_autoptr (GPtrArray) names = g_ptr_array_new ();
    for (guint i = 0; i <= sp_schedule_count (); i++)
      g_ptr_array_add (names, i < sp_schedule_count () ? (gpointer) sp_schedule_get (i)->name : NULL);
    g_autofree char *all = g_strjoinv (", ", (char **) names->pdata);
    g_autofree char *near = sp_did_you_mean (text, (const char *const *) names->pdata);
    return sp_ini_refuse (ini, key->group, key->name, error, "not available yet; choose %s%s", all, near);
  }
  values->layout.schedule = (guint8) row;
  return TRUE;
}

void
sp_key_write_schedule (const SpValues *values, GString *out)
{
  g_string_append (out, sp_schedule_get (values->layout.schedule)->name);
}
