/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/run-files/formats.h"

#include <string.h>

#include "models/inputs/ini.h"

static void
fact_free (gpointer data)
{
  SpFact *fact = data;
  g_free (fact->key);
  g_free (fact->value);
  g_free (fact->source);
  g_free (fact);
}

SpFacts *
sp_facts_new (void)
{
  return g_hash_table_new_full (g_str_hash, g_str_equal, NULL, fact_free);
}

const char *
sp_facts_get (const SpFacts *facts, const char *key)
{
  const SpFact *fact = g_hash_table_lookup ((GHashTable *) facts, key);
  return fact != NULL ? fact->value : NULL;
}

gboolean
sp_facts_is (const SpFacts *facts, const char *key, const char *value)
{
  return g_strcmp0 (sp_facts_get (facts, key), value) == 0;
}

gint64
sp_facts_int (const SpFacts *facts, const char *key, gint64 missing)
{
  const char *value = sp_facts_get (facts, key);
  double parsed;
  g_autofree char *problem =
      value != NULL ? sp_quantity_problem (value, SP_UNIT_TOKENS, 0, 0x1p62, &parsed) : g_strdup ("");
  return problem == NULL ? (gint64) parsed : missing;
}

void
sp_facts_put (SpFacts *facts, const char *key, const char *value, SpFactFrom from, const char *source)
{
  SpFact *fact = g_new0 (SpFact, 1);
  fact->key = g_strdup (key);
  fact->value = g_strdup (value);
  fact->source = g_strdup (source);
  fact->from = (guint8) from;
  g_hash_table_replace (facts, fact->key, fact);
}

void
sp_facts_put_int (SpFacts *facts, const char *key, gint64 value, SpFactFrom from, const char *source)
{
  g_autofree char *text = g_strdup_printf ("%" G_GINT64_FORMAT, value);
  sp_facts_put (facts, key, text, from, source);
}

static gint
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

const char **
sp_facts_keys (const SpFacts *facts)
{
  guint n;
  gpointer *keys = g_hash_table_get_keys_as_array ((GHashTable *) facts, &n);
  qsort (keys, n, sizeof *keys, compare_names);
  return (const char **) keys;
}

/* --- files in and out --------------------------------------------------------------------------------------------- */

static void
add_group (SpFacts *facts, GKeyFile *file, const char *group)
{
  g_auto (GStrv) keys = g_key_file_get_keys (file, group, NULL, NULL);
  for (guint i = 0; keys != NULL && keys[i] != NULL; i++) {
    g_autofree char *value = g_key_file_get_value (file, group, keys[i], NULL);
    g_autofree char *key = g_strconcat (group, ".", keys[i], NULL);
    sp_facts_put (facts, key, g_strstrip (value), SP_FACT_FILE, key);
  }
}

void
sp_facts_add_model (SpFacts *facts, const char *ini_text)
{
  g_autoptr (GKeyFile) file = g_key_file_new ();
  if (g_key_file_load_from_data (file, ini_text, strlen (ini_text), G_KEY_FILE_NONE, NULL))
    add_group (facts, file, "model");
}

SpFacts *
sp_facts_of_scenario (const SpScenario *scenario, GPtrArray *lost)
{
  SpFacts *facts = sp_facts_new ();
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GString) model = g_string_new (NULL);
  g_autoptr (GPtrArray) unused = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GKeyFile) file = g_key_file_new ();
  sp_scenario_write (scenario, text);
  if (g_key_file_load_from_data (file, text->str, text->len, G_KEY_FILE_NONE, NULL)) {
    add_group (facts, file, "layout");
    add_group (facts, file, "run");
    add_group (facts, file, "run-file");
  }
  sp_facts_put_int (facts, "run.sequence", scenario->run.sequence, SP_FACT_FILE, "run.sequence");
  sp_architecture_write_ini (scenario->arch, model, lost != NULL ? lost : unused);
  sp_facts_add_model (facts, model->str);
  return facts;
}

void
sp_facts_write_model (const SpFacts *facts, GString *out)
{
  g_autofree const char **keys = sp_facts_keys (facts);
  g_string_append (out, "[model]\n");
  for (guint i = 0; keys[i] != NULL; i++)
    if (g_str_has_prefix (keys[i], "model."))
      g_string_append_printf (out, "%s = %s\n", keys[i] + strlen ("model."), sp_facts_get (facts, keys[i]));
}
