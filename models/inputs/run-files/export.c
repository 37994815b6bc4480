/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario as a run file. What it cannot carry is found by reading it back. */
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"
#include "sim/words.h"

static const char *const degrees[] = { "layout.data", "layout.tensor", "layout.pipeline", "layout.ulysses",
                                       "layout.ring", "layout.lasp",   "layout.expert",   NULL };

/* Keys that say nothing unless another has not this value. */
static const struct {
  const char *key, *other, *unless;
} relevance[] = {
  { "layout.lasp-version", "layout.lasp", "1" },
  { "layout.ring-kind", "layout.ring", "1" },
  { "layout.ring-keep", "layout.ring", "1" },
  { "layout.ring-backward", "layout.ring", "1" },
  { "layout.ring-inner", "layout.ring-kind", "p2p" },
  { "layout.ring-inner", "layout.ring-kind", "all-gather" },
  { "layout.ring-inner", "layout.ring-kind", "rsa" },
  { "layout.ring-gradient-dtype", "layout.ring", "1" },
  { "layout.ring-split", "layout.ring", "1" },
  { "layout.sequence-regions", "layout.tensor", "1" },
  { "layout.schedule", "layout.pipeline", "1" },
  { "layout.stage-split", "layout.pipeline", "1" },
  { "layout.virtual-stages", "layout.pipeline", "1" },
  { "layout.loss-chunks", "layout.loss", "full" },
  { "layout.loss-chunks", "layout.loss", "vocab-parallel" },
  { "layout.expert-capacity", "model.experts", NULL },
  { "run.expert-imbalance", "model.experts", NULL },
};

/* Data x sequence ranks. */
static gint64
count_replicas (const SpFacts *facts)
{
  static const char *const axes[] = { "layout.data", "layout.ulysses", "layout.ring", "layout.lasp" };
  gint64 product = 1;
  for (guint i = 0; i < G_N_ELEMENTS (axes); i++)
    product = sp_run_times (product, MAX (sp_facts_int (facts, axes[i], 1), 1));
  return product;
}

static gboolean
is_relevant (const SpFacts *facts, const char *key)
{
  gint64 replicas = count_replicas (facts);
  for (guint i = 0; i < G_N_ELEMENTS (relevance); i++)
    if (g_str_equal (relevance[i].key, key) && sp_facts_is (facts, relevance[i].other, relevance[i].unless))
      return FALSE;
  if (g_str_equal (key, "layout.loss") && sp_facts_int (facts, "layout.tensor", 1) == 1)
    return !sp_facts_is (facts, key, "full"); /* then it is that of a split vocabulary */
  if (g_str_equal (key, "layout.reshard"))
    return sp_facts_is (facts, "layout.zero", "3") && replicas > 1;
  if (g_str_equal (key, "layout.zero") || g_str_equal (key, "layout.zero-group"))
    return replicas > 1 && (g_str_equal (key, "layout.zero") || !sp_facts_is (facts, "layout.zero", "0"));
  if (g_str_equal (key, "layout.overlap"))
    return sp_facts_int (facts, "layout.tensor", 1) * replicas > 1;
  return !g_str_equal (key, "run.framework");
}

/* An order without the axes of degree 1, and with that of experts, which come before data unless they are said to come
 * after it; a group of all ranks as all; other values as they are. */
static char *
essence (const SpFacts *facts, const char *key, const char *value)
{
  gboolean all = g_str_equal (key, "layout.zero-group") && g_ascii_strtoll (value, NULL, 10) == count_replicas (facts);
  if (!g_str_equal (key, "layout.order"))
    return g_strdup (all ? "all" : value);
  g_autoptr (GString) out = g_string_new (NULL);
  g_auto (GStrv) axes = g_strsplit (value, ",", -1);
  gboolean experts = sp_facts_int (facts, "layout.expert", 1) > 1 && strstr (value, "expert") == NULL;
  for (guint i = 0; axes[i] != NULL; i++) {
    g_autofree char *degree = g_strconcat ("layout.", g_strstrip (axes[i]), NULL);
    if (experts && g_str_equal (axes[i], "data"))
      g_string_append (out, "expert,");
    if (sp_facts_int (facts, degree, 1) > 1)
      g_string_append_printf (out, "%s,", axes[i]);
  }
  return g_strdup (out->str);
}

/* --- what is lost ------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpFacts *there, *back; /* before, and read back */
  GPtrArray *lost;
  gboolean degree; /* one of them is a degree */
} Comparison;

static void
compare (Comparison *c, const char *key, const char *missing)
{
  const char *value = sp_facts_get (c->there, key), *again = sp_facts_get (c->back, key);
  g_autofree char *one = essence (c->there, key, value != NULL ? value : missing);
  g_autofree char *other = essence (c->there, key, again != NULL ? again : missing);
  if (g_str_equal (one, other) || !is_relevant (c->there, key))
    return;
  c->degree = c->degree || g_strv_contains (degrees, key);
  g_ptr_array_add (c->lost,
                   g_strdup_printf ("%s = %s (%s%s)", key, value != NULL ? value : missing,
                                    again != NULL ? "read back it is " : "left out", again != NULL ? again : ""));
}

static void
compare_scenario (Comparison *c)
{
  const char *group, *name;
  for (guint i = 0;; i++) {
    g_autofree char *missing = NULL;
    if (!sp_scenario_key (i, &group, &name, &missing))
      break;
    g_autofree char *key = g_strconcat (group, ".", name, NULL);
    if ((g_str_equal (group, "layout") || g_str_equal (group, "run")) && !g_str_equal (key, "layout.data"))
      compare (c, key, g_str_equal (key, "run.sequence") ? "" : missing);
  }
  if (!c->degree) /* another that is lost takes it along */
    compare (c, "layout.data", "1");
}

static void
compare_model (Comparison *c)
{
  g_autofree const char **keys = sp_facts_keys (c->there);
  g_autofree const char **again = sp_facts_keys (c->back);
  for (guint i = 0; keys[i] != NULL; i++)
    if (g_str_has_prefix (keys[i], "model.") && !g_str_equal (keys[i], "model.name"))
      compare (c, keys[i], "");
  for (guint i = 0; again[i] != NULL; i++)
    if (g_str_has_prefix (again[i], "model.") && sp_facts_get (c->there, again[i]) == NULL)
      compare (c, again[i], "");
}

/* The model's facts as its file has them when it is written again, so that what is its default is left out. */
static gboolean
settle_model (SpRunFile *file, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL), again = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  if (!file->format->resolve_model (file, error))
    return FALSE;
  sp_facts_write_model (file->facts, text);
  g_autoptr (SpArchitecture) arch = sp_architecture_parse_ini (file->name, text->str, text->len, error);
  if (arch == NULL)
    return FALSE;
  g_autofree const char **keys = sp_facts_keys (file->facts);
  for (guint i = 0; keys[i] != NULL; i++)
    if (g_str_has_prefix (keys[i], "model."))
      g_hash_table_remove (file->facts, keys[i]);
  sp_architecture_write_ini (arch, again, lost);
  sp_facts_add_model (file->facts, again->str);
  return TRUE;
}

/* --- export ------------------------------------------------------------------------------------------------------- */

static gboolean
read_back (const SpRunFormat *format, const GString *text, const SpRunPlace *place, Comparison *c, GError **error)
{
  g_autoptr (SpRunFile) file = sp_run_file_parse (format->name, text->str, text->len, error);
  if (file == NULL)
    return FALSE;
  g_return_val_if_fail (file->format == format, FALSE);
  file->quiet = TRUE;
  if (format->resolve_model != NULL && !settle_model (file, error))
    return FALSE;
  /* A layout whose degrees do not come back may not divide its own GPUs. */
  g_autoptr (GError) unresolved = NULL;
  format->resolve (file, place, &unresolved);
  c->back = file->facts;
  compare_scenario (c);
  if (format->resolve_model != NULL)
    compare_model (c);
  c->back = NULL;
  return TRUE;
}

gboolean
sp_run_file_export (const SpScenario *scenario, const char *name, GString *ret_text, GPtrArray *ret_lost,
                    GError **error)
{
  const SpRunFormat *format = sp_run_format_find (name);
  g_return_val_if_fail (format != NULL && format->write != NULL, FALSE);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GPtrArray) no_key = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GHashTable) there = sp_facts_of_scenario (scenario, format->resolve_model != NULL ? lost : no_key);
  g_autoptr (GHashTable) facts = sp_facts_of_scenario (scenario, NULL); /* that a format adds its own to */
  const SpRunPlace place = {
    .gpus = sp_layout_world (&scenario->layout, scenario->arch),
    .gpus_per_node = scenario->cluster != NULL ? scenario->cluster->gpus_per_node : 0,
    .arch = scenario->arch,
  };
  g_autofree char *model = g_path_get_basename (scenario->model_path);
  g_autofree char *shown = sp_shown (model);
  format->prepare (facts, &place, model);
  g_autoptr (SpRunItems) items = sp_run_write_rows (format, facts);
  g_autoptr (GString) text = g_string_new (NULL);
  format->write (items, NULL, text);

  if (format->resolve_model == NULL && sp_facts_get (facts, "file.model") == NULL)
    g_ptr_array_add (lost, g_strdup_printf ("the model, %s", shown));
  Comparison c = { .there = there, .lost = lost };
  if (!read_back (format, text, &place, &c, error))
    return FALSE;
  for (guint i = 0; i < lost->len; i++) {
    g_autofree char *line = g_strconcat ("not carried: ", lost->pdata[i], NULL);
    g_free (lost->pdata[i]);
    lost->pdata[i] = g_steal_pointer (&line);
  }
  if (c.degree) {
    g_ptr_array_add (lost, NULL);
    g_autofree char *all = g_strjoinv ("; ", (char **) lost->pdata);
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: %s has no words for the layout's degrees: %s",
                          scenario->path != NULL ? scenario->path : "the layout", format->title, all);
  }
  g_ptr_array_insert (lost, 0, g_strdup_printf ("written by seqpar for %d GPU%s, model %s", place.gpus,
                                                sp_plural (place.gpus), shown));
  format->write (items, lost, ret_text);
  for (guint i = 1; i < lost->len; i++)
    g_ptr_array_add (ret_lost, g_strdup (lost->pdata[i]));
  return TRUE;
}
