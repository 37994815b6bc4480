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
  { "layout.pipeline-scatter", "layout.tensor", "1" },
  { "layout.pipeline-scatter", "layout.pipeline", "1" },
  { "layout.pipeline-scatter", "layout.sequence-regions", "true" },
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
  const SpRunFormat *format;
  SpFacts *there, *facts; /* of the scenario; and with those that the format adds */
  GString *text;          /* without comments */
  SpRunFile *back;        /* read again */
  GPtrArray *lost;        /* of char* */
  gboolean degree, order; /* one of them is a degree; the order */
  gboolean chosen;        /* one of them is what a search chooses: of [layout], or a batch */
} Written;

static gboolean
is_elsewhere (const SpRunFormat *format, const char *key)
{
  return format->elsewhere != NULL && g_strv_contains (format->elsewhere, key);
}

static void
compare (Written *c, const char *key, const char *missing)
{
  const char *value = sp_facts_get (c->there, key), *again = sp_facts_get (c->back->facts, key);
  gboolean elsewhere = again == NULL && is_elsewhere (c->format, key);
  g_autofree char *one = essence (c->there, key, value != NULL ? value : missing);
  g_autofree char *other = essence (c->there, key, again != NULL ? again : missing);
  if (g_str_equal (one, other) || !is_relevant (c->there, key))
    return;
  c->degree = c->degree || g_strv_contains (degrees, key);
  c->order = c->order || g_str_equal (key, "layout.order");
  c->chosen = c->chosen || (!elsewhere && (g_str_has_prefix (key, "layout.") || g_str_has_suffix (key, "-batch")));
  g_ptr_array_add (c->lost, g_strdup_printf ("%s = %s (%s%s)", key, value != NULL ? value : missing,
                                             elsewhere       ? "the program that reads the file says it"
                                             : again != NULL ? "read back it is "
                                                             : "left out",
                                             again != NULL ? again : ""));
}

static void
compare_scenario (Written *c)
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
compare_model (Written *c)
{
  g_autofree const char **keys = sp_facts_keys (c->there);
  g_autofree const char **again = sp_facts_keys (c->back->facts);
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

/* Facts that say nothing in this layout, for all formats. */
static void
drop_idle (SpFacts *facts)
{
  static const struct {
    const char *key, *other, *value;
  } idle[] = {
    { "layout.sequence-regions", "layout.tensor", "1" },
    { "layout.virtual-stages", "layout.virtual-stages", "1" },
    { "layout.expert-capacity", "layout.expert-capacity", "none" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (idle); i++)
    if (sp_facts_is (facts, idle[i].other, idle[i].value))
      g_hash_table_remove (facts, idle[i].key);
}

static void
written_clear (Written *w)
{
  g_clear_pointer (&w->there, g_hash_table_unref);
  g_clear_pointer (&w->facts, g_hash_table_unref);
  g_clear_pointer (&w->back, sp_run_file_free);
  g_ptr_array_unref (w->lost);
  g_string_free (w->text, TRUE);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Written, written_clear)

/* Its facts, as the format's reader makes them. */
static gboolean
read_back (Written *w, const SpRunPlace *place, GError **error)
{
  g_autoptr (SpRunFile) file = sp_run_file_parse (w->format->name, w->text->str, w->text->len, error);
  if (file == NULL)
    return FALSE;
  g_return_val_if_fail (file->format == w->format, FALSE);
  file->quiet = TRUE;
  if (w->format->resolve_model != NULL && !settle_model (file, error))
    return FALSE;
  /* A layout whose degrees do not come back may not divide its own GPUs. */
  g_autoptr (GError) unresolved = NULL;
  sp_run_resolve (file, place, &unresolved);
  w->back = g_steal_pointer (&file);
  return TRUE;
}

/* Writes it, reads it, and compares. */
static gboolean
write_and_read (const SpScenario *scenario, Written *w, SpRunItems **ret_items, GError **error)
{
  const SpRunFormat *format = w->format;
  gboolean has_model = format->resolve_model != NULL;
  const SpRunPlace place = {
    .gpus = sp_layout_world (&scenario->layout, scenario->arch),
    .gpus_per_node = scenario->cluster != NULL ? scenario->cluster->gpus_per_node : 0,
    .arch = scenario->arch,
  };
  g_autoptr (GPtrArray) no_key = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *model = g_path_get_basename (scenario->model_path);

  w->lost = g_ptr_array_new_with_free_func (g_free);
  w->text = g_string_new (NULL);
  w->there = sp_facts_of_scenario (scenario, has_model ? w->lost : no_key);
  w->facts = sp_facts_of_scenario (scenario, NULL);
  drop_idle (w->facts);
  if (format->model == sp_run_hub_model)
    sp_run_prepare_hub_model (w->facts, model);
  format->prepare (w->facts, &place, model);
  g_autoptr (SpRunItems) items = sp_run_write_rows (format, w->facts);
  format->write (items, NULL, w->text);
  if (!read_back (w, &place, error))
    return FALSE;
  compare_scenario (w);
  if (has_model)
    compare_model (w);
  if (ret_items != NULL)
    *ret_items = g_steal_pointer (&items);
  return TRUE;
}

static gboolean
refuse_degrees (const SpScenario *scenario, const Written *w, GError **error)
{
  g_ptr_array_add (w->lost, NULL);
  g_autofree char *all = g_strjoinv ("; ", (char **) w->lost->pdata);
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: there are no words for the layout's degrees in %s: %s",
                        scenario->path != NULL ? scenario->path : "the layout", w->format->title, all);
}

gboolean
sp_run_file_export (const SpScenario *scenario, const char *name, GString *ret_text, GPtrArray *ret_lost,
                    GError **error)
{
  const SpRunFormat *format = sp_run_format_find (name);
  g_return_val_if_fail (format != NULL && format->write != NULL, FALSE);
  g_auto (Written) w = { .format = format };
  g_autoptr (SpRunItems) items = NULL;
  gint32 gpus = sp_layout_world (&scenario->layout, scenario->arch);
  g_autofree char *model = g_path_get_basename (scenario->model_path);
  g_autofree char *shown = sp_shown (model);

  if (!write_and_read (scenario, &w, &items, error))
    return FALSE;
  if (format->resolve_model == NULL && sp_facts_get (w.facts, "file.model") == NULL)
    g_ptr_array_insert (w.lost, 0, g_strdup_printf ("the model, %s", shown));
  for (guint i = 0; i < w.lost->len; i++) {
    g_autofree char *line = g_strconcat ("not carried: ", w.lost->pdata[i], NULL);
    g_free (w.lost->pdata[i]);
    w.lost->pdata[i] = g_steal_pointer (&line);
  }
  if (w.degree)
    return refuse_degrees (scenario, &w, error);
  g_ptr_array_insert (w.lost, 0,
                      g_strdup_printf ("written by seqpar for %d GPU%s, model %s", gpus, sp_plural (gpus), shown));
  format->write (items, w.lost, ret_text);
  for (guint i = 1; i < w.lost->len; i++)
    g_ptr_array_add (ret_lost, g_strdup (w.lost->pdata[i]));
  return TRUE;
}

/* --- what it is then ---------------------------------------------------------------------------------------------- */

/* Of [layout] what the file says, and else the default; of [run] what it says. */
static gboolean
take_back (const Written *w, SpLayout *layout, SpRun *run, GError **error)
{
  const char *group, *name;

  for (guint i = 0; sp_scenario_key (i, &group, &name, NULL); i++) {
    g_autofree char *key = g_strconcat (group, ".", name, NULL);
    const SpFacts *from = is_elsewhere (w->format, key) ? w->there : w->back->facts;
    const char *value = sp_facts_get (from, key);
    gboolean file = g_str_equal (key, "run.framework") || g_str_equal (key, "run.packing");
    if (value != NULL && !file && (g_str_equal (group, "layout") || g_str_equal (group, "run")) &&
        !sp_scenario_set (group, name, value, layout, run, error))
      return FALSE;
  }
  return TRUE;
}

SpRunCarries
sp_run_file_carries (const SpScenario *scenario, const char *name, SpLayout *ret_layout, SpRun *ret_run)
{
  g_auto (Written) w = { .format = sp_run_format_find (name) };
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = scenario->run;

  if (!write_and_read (scenario, &w, NULL, NULL) || w.degree || !take_back (&w, &layout, &run, NULL))
    return SP_RUN_CARRIES_NOT;
  if (ret_layout != NULL)
    *ret_layout = layout;
  if (ret_run != NULL)
    *ret_run = run;
  return w.order ? SP_RUN_CARRIES_DEGREES : w.chosen ? SP_RUN_CARRIES_PLACES : SP_RUN_CARRIES_ALL;
}
