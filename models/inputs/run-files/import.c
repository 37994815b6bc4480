/* SPDX-License-Identifier: Apache-2.0 */
/* A run file's facts, with what is given besides, as a scenario. */
#include <glib/gstdio.h>
#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/run-files/formats.h"

typedef struct {
  SpRunFile *file;
  const SpRunGiven *given;
  const char *path; /* of the scenario */
  SpRunPlace place;
  SpArchitecture *arch;
  char *model, *cluster; /* as the scenario names them; NULL: asked for */
  GString *own_model;    /* text of the model file that comes with it */
} Import;

/* --- what is given besides ---------------------------------------------------------------------------------------- */

/* "layout.tensor" of "tensor" and of itself; NULL if no scenario has it. */
static char *
scenario_key (const char *name, GPtrArray *names)
{
  const char *group, *key;
  for (guint i = 0; sp_scenario_key (i, &group, &key, NULL); i++) {
    g_autofree char *full = g_strconcat (group, ".", key, NULL);
    gboolean file =
        g_str_equal (full, "model.config") || g_str_equal (full, "cluster.file") || g_str_equal (group, "run-file");
    if (!file && (g_str_equal (name, key) || g_str_equal (name, full)))
      return g_steal_pointer (&full);
    if (!file)
      g_ptr_array_add (names, (gpointer) key);
  }
  gboolean model = g_str_has_prefix (name, "model.") && !g_str_equal (name, "model.config");
  return model ? g_strdup (name) : NULL;
}

static gboolean
apply_set (SpRunFile *file, const char *set, GError **error)
{
  g_autofree char *shown = sp_shown (set);
  const char *equals = strchr (set, '=');
  if (equals == NULL || equals == set)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "--set %s: expected key=value or group.key=value", shown);
  g_autofree char *name = g_strstrip (g_strndup (set, (gsize) (equals - set)));
  g_autofree char *value = g_strstrip (g_strdup (equals + 1));
  for (const char *c = value; *c != '\0'; c++)
    if (g_ascii_iscntrl (*c))
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "--set %s: control character 0x%02x", shown, (guchar) *c);
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  g_autofree char *key = scenario_key (name, names);
  if (key == NULL) {
    g_ptr_array_add (names, NULL);
    const char *near = sp_nearest (name, (const char *const *) names->pdata);
    return sp_input_fail (error, SP_INPUT_ERROR_KEY,
                          "--set %s: unknown key, expected one of [layout], [run], [cluster] or [model], such as "
                          "layout.data=8 or model.vocabulary=32000%s%s%s",
                          shown, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
  }
  g_hash_table_remove (file->automatic, key);
  g_autofree char *source = g_strconcat ("--set ", key, NULL);
  return sp_run_set (file, key, value, SP_FACT_GIVEN, source, error);
}

/* How the scenario names a file: a shipped one by its name, one beside it or below by the way to it, else whole. */
static char *
entry (const char *given, const char *found, const char *scenario_path)
{
  if (strchr (given, G_DIR_SEPARATOR) == NULL && !g_file_test (given, G_FILE_TEST_EXISTS))
    return g_strdup (given);
  g_autofree char *whole = g_canonicalize_filename (found, NULL);
  g_autofree char *scenario = g_canonicalize_filename (scenario_path, NULL);
  g_autofree char *folder = g_path_get_dirname (scenario);
  gsize length = strlen (folder);
  if (g_str_has_prefix (whole, folder) && whole[length] == G_DIR_SEPARATOR)
    return g_strdup (whole + length + 1);
  return g_strdup (whole);
}

/* [cluster], with what is given besides of its size or card. */
static void
write_cluster (const Import *import, GString *out)
{
  const char *group, *name;
  g_string_append_printf (out, "[cluster]\nfile = %s\n", import->cluster);
  for (guint i = 0; sp_scenario_key (i, &group, &name, NULL); i++) {
    g_autofree char *key = g_strconcat (group, ".", name, NULL);
    const char *value = g_str_equal (group, "cluster") ? sp_facts_get (import->file->facts, key) : NULL;
    if (value != NULL)
      g_string_append_printf (out, "%s = %s\n", name, value);
  }
}

/* Read as a scenario's, so that the rules are those of a scenario; its other groups are of no concern. */
static gboolean
take_cluster (Import *import, GError **error)
{
  if (import->given->cluster == NULL) {
    sp_run_ask (import->file, "the cluster: --cluster FILE");
    return TRUE;
  }
  g_autofree char *found = sp_find_cluster (import->given->cluster, error);
  if (found == NULL)
    return FALSE;
  import->cluster = entry (import->given->cluster, found, import->path);
  g_autoptr (GString) text = g_string_new ("[model]\nconfig = tiny\n[run]\nsequence = 1K\nprecision = fp16\n");
  write_cluster (import, text);
  g_autoptr (SpScenario) scenario = sp_scenario_parse (import->path, text->str, text->len, NULL, error);
  if (scenario == NULL)
    return FALSE;
  import->place.gpus = scenario->cluster->nodes * scenario->cluster->gpus_per_node;
  import->place.gpus_per_node = scenario->cluster->gpus_per_node;
  return TRUE;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

char *
sp_run_model_path (const char *path)
{
  g_autofree char *stem = g_strdup (path);
  if (g_str_has_suffix (stem, ".ini"))
    stem[strlen (stem) - strlen (".ini")] = '\0';
  return g_strconcat (stem, "-model.ini", NULL);
}

static gboolean
describes_model (const SpRunFile *file)
{
  const char *const keys[] = { "model.layers", "model.hidden", "model.heads" };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (sp_facts_get (file->facts, keys[i]) != NULL)
      return TRUE;
  return FALSE;
}

/* The file's own description as a model file. */
static gboolean
take_own_model (Import *import, GError **error)
{
  static const char *const needed[] = { "layers", "hidden", "heads", "ffn", "vocabulary" };
  SpRunFile *file = import->file;
  if (!file->format->resolve_model (file, error))
    return FALSE;
  gboolean whole = TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++) {
    g_autofree char *key = g_strconcat ("model.", needed[i], NULL);
    if (sp_facts_get (file->facts, key) != NULL)
      continue;
    sp_run_ask (file, "the model's %s, which the file does not say: --set %s=N", needed[i], key);
    whole = FALSE;
  }
  if (!whole)
    return TRUE;
  sp_facts_write_model (file->facts, import->own_model);
  import->arch = sp_architecture_parse_ini (file->name, import->own_model->str, import->own_model->len, error);
  if (import->arch == NULL)
    return FALSE;
  g_autofree char *path = sp_run_model_path (import->path);
  import->model = g_path_get_basename (path);
  return TRUE;
}

static gboolean
take_model (Import *import, GError **error)
{
  SpRunFile *file = import->file;
  gboolean own = file->format->resolve_model != NULL && describes_model (file);
  const char *named = file->format->model != NULL ? file->format->model (file) : NULL;
  const char *given = import->given->model != NULL ? import->given->model : named;
  if (own && given != NULL)
    sp_run_note (file, "note: the model is %s; what the file says of its shape is not used", given);
  if (given == NULL && own)
    return take_own_model (import, error);
  g_autofree const char **keys = sp_facts_keys (file->facts);
  for (guint i = 0; keys[i] != NULL; i++) {
    const SpFact *fact = g_hash_table_lookup (file->facts, keys[i]);
    if (g_str_has_prefix (keys[i], "model.") && fact->from == SP_FACT_GIVEN)
      return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: only a model that the run file describes can be changed so",
                            fact->source);
  }
  if (given == NULL) {
    const char *said = sp_facts_get (file->facts, "file.model"), *flavor = sp_facts_get (file->facts, "file.flavor");
    g_autofree char *shown = said != NULL ? sp_shown (said) : NULL;
    g_autofree char *kind = flavor != NULL ? sp_shown (flavor) : NULL;
    sp_run_ask (file, "the model%s%s%s%s%s: --model FILE", shown || kind ? ", which the file calls " : "",
                shown ? shown : "", shown && kind ? " " : "", kind ? kind : "",
                shown || kind ? " and which is not shipped under that name" : "");
    return TRUE;
  }
  g_autofree char *found = sp_find_model (given, error);
  import->arch = found != NULL ? sp_architecture_load (found, error) : NULL;
  if (import->arch == NULL)
    return FALSE;
  import->model = entry (given, found, import->path);
  return TRUE;
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

/* What nobody computed. */
static void
ask_automatic (SpRunFile *file)
{
  static const char *const groups[] = { "layout.", "run." };
  g_autofree const char **keys = (const char **) g_hash_table_get_keys_as_array (file->automatic, NULL);
  for (guint g = 0; g < G_N_ELEMENTS (groups); g++)
    for (guint i = 0; keys[i] != NULL; i++)
      if (g_str_has_prefix (keys[i], groups[g]) && sp_facts_get (file->facts, keys[i]) == NULL &&
          !g_str_has_suffix (keys[i], "-batch") && !g_str_equal (keys[i], "run.precision")) /* have their own */
        sp_run_ask (file, "%s = auto: --set %s=VALUE", (const char *) g_hash_table_lookup (file->automatic, keys[i]),
                    keys[i]);
}

static gboolean
check_asked (SpRunFile *file, GError **error)
{
  if (sp_facts_get (file->facts, "run.sequence") == NULL)
    sp_run_ask (file, "the tokens of a sequence, which the file does not say: --set run.sequence=N");
  ask_automatic (file);
  if (file->asked->len == 0)
    return TRUE;
  g_ptr_array_add (file->asked, NULL);
  g_autofree char *all = g_strjoinv ("; ", (char **) file->asked->pdata);
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: too little for a scenario (%s). Asked for: %s", file->name,
                        file->format->title, all);
}

/* --- the scenario ------------------------------------------------------------------------------------------------- */

static void
write_group (const SpFacts *facts, const char *group, GString *out)
{
  const char *own, *name;
  g_string_append_printf (out, "\n[%s]\n", group);
  for (guint i = 0; sp_scenario_key (i, &own, &name, NULL); i++) {
    g_autofree char *key = g_strconcat (own, ".", name, NULL);
    const char *value = g_str_equal (own, group) ? sp_facts_get (facts, key) : NULL;
    if (value != NULL)
      g_string_append_printf (out, "%s = %s\n", name, value);
  }
}

/* What an export of the scenario is to say again, but for a name that not every file could have. */
static void
write_origin (const SpRunFile *file, GString *out)
{
  static const struct {
    const char *fact, *key;
  } kept[] = { { "file.model", "hub-name" }, { "file.prompt", "prompt-tokens" }, { "file.answers", "answers" } };
  const char *head = "\n[run-file]\n";

  for (guint i = 0; i < G_N_ELEMENTS (kept); i++) {
    const char *value = sp_facts_get (file->facts, kept[i].fact);
    gboolean is_its = i > 0 || file->format->model == sp_run_hub_model;
    if (value == NULL || !is_its || !sp_run_is_hub_name (value) || g_str_equal (value, "0"))
      continue;
    g_string_append_printf (out, "%s%s = %s\n", head, kept[i].key, value);
    head = "";
  }
}

static void
write_scenario (const Import *import, const char *model, GString *out)
{
  g_string_append_printf (out, "[model]\nconfig = %s\n\n", model);
  write_cluster (import, out);
  write_group (import->file->facts, "layout", out);
  write_group (import->file->facts, "run", out);
  write_origin (import->file, out);
}

/* What is given besides the file, once more as a scenario's sets, so that one without effect is refused and not noted. */
static GStrv
given_sets (const SpFacts *facts)
{
  static const char *const groups[] = { "cluster.", "layout.", "run." };
  g_autofree const char **keys = sp_facts_keys (facts);
  GPtrArray *sets = g_ptr_array_new ();

  for (guint i = 0; keys[i] != NULL; i++) {
    const SpFact *fact = g_hash_table_lookup ((SpFacts *) facts, keys[i]);
    for (guint g = 0; g < G_N_ELEMENTS (groups) && fact->from == SP_FACT_GIVEN; g++)
      if (g_str_has_prefix (keys[i], groups[g]))
        g_ptr_array_add (sets, g_strconcat (keys[i], "=", sp_facts_get (facts, keys[i]), NULL));
  }
  g_ptr_array_add (sets, NULL);
  return (GStrv) g_ptr_array_free (sets, FALSE);
}

/* Whether one of them is more than an answer to what a run file leaves out. */
static gboolean
has_own_will (const char *const *sets)
{
  static const char *const answers[] = { "run.sequence=", "run.micro-batch=", "run.global-batch=" };

  for (guint i = 0; sets[i] != NULL; i++) {
    gboolean answer = FALSE;
    for (guint k = 0; k < G_N_ELEMENTS (answers); k++)
      answer |= g_str_has_prefix (sets[i], answers[k]);
    if (!answer)
      return TRUE;
  }
  return FALSE;
}

/* What is to be written, read. A model file that is to be written too stands in a folder of its own for that. */
static SpScenario *
load_scenario (const Import *import, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_autofree char *folder = import->own_model->len > 0 ? g_dir_make_tmp ("seqpar-import-XXXXXX", error) : NULL;
  g_autofree char *model = folder != NULL ? g_build_filename (folder, "model.ini", NULL) : NULL;
  if (import->own_model->len > 0 &&
      (model == NULL || !g_file_set_contents (model, import->own_model->str, (gssize) import->own_model->len, error)))
    return NULL;
  write_scenario (import, model != NULL ? model : import->model, text);
  g_auto (GStrv) sets = given_sets (import->file->facts);
  SpScenario *scenario = sp_scenario_parse (import->path, text->str, text->len, (const char *const *) sets, error);
  if (model != NULL) {
    g_remove (model);
    g_rmdir (folder);
  }
  return scenario;
}

/* A layout that is not legal: the file's own, or one that --set has made. */
static gboolean
check_scenario (const Import *import, const SpScenario *scenario, GError **error)
{
  g_autoptr (GError) illegal = NULL;
  if (sp_layout_check (&scenario->layout, scenario->arch, scenario->framework, &scenario->run, import->place.gpus,
                       &illegal))
    return TRUE;
  g_auto (GStrv) sets = given_sets (import->file->facts);
  if (has_own_will ((const char *const *) sets)) {
    g_autofree char *all = g_strjoinv (", ", sets);
    g_autofree char *shown = sp_shown (all);
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: the layout is not legal with --set %s: %s",
                          import->file->name, shown, illegal->message);
  }
  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: the layout is not legal: %s", import->file->name,
                        illegal->message);
}

static void
write_comments (const SpRunFile *file, GString *out)
{
  g_autofree char *name = g_path_get_basename (file->name);
  g_autofree char *shown = sp_shown (name);
  g_string_append_printf (out, "# Imported from %s (%s).\n", shown, file->format->title);
  for (guint i = 0; i < file->notes->len; i++)
    g_string_append_printf (out, "# %s\n", (const char *) file->notes->pdata[i]);
}

static void
import_clear (Import *import)
{
  sp_architecture_free (import->arch);
  g_free (import->model);
  g_free (import->cluster);
  g_string_free (import->own_model, TRUE);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Import, import_clear)

/* All facts, and the scenario that they make. */
static SpScenario *
resolve_import (Import *import, GError **error)
{
  SpRunFile *file = import->file;
  const char *const *sets = import->given->sets;
  for (guint i = 0; sets != NULL && sets[i] != NULL; i++)
    if (!apply_set (file, sets[i], error))
      return NULL;
  if (!take_cluster (import, error) || !take_model (import, error))
    return NULL;
  import->place.arch = import->arch;
  sp_run_note_launch (file, &import->place);
  if (!sp_run_resolve (file, &import->place, error) || !check_asked (file, error))
    return NULL;
  g_autoptr (SpScenario) scenario = load_scenario (import, error);
  if (scenario == NULL || !check_scenario (import, scenario, error))
    return NULL;
  return g_steal_pointer (&scenario);
}

SpScenario *
sp_run_file_load (SpRunFile *file, const SpRunGiven *given, GError **error)
{
  g_auto (Import) import = { .file = file, .given = given, .path = file->name, .own_model = g_string_new (NULL) };
  return resolve_import (&import, error);
}

gboolean
sp_run_file_import (SpRunFile *file, const SpRunGiven *given, const char *path, GString *ret_scenario,
                    GString *ret_model, GError **error)
{
  g_auto (Import) import = { .file = file, .given = given, .path = path, .own_model = g_string_new (NULL) };
  g_autoptr (SpScenario) scenario = resolve_import (&import, error);
  if (scenario == NULL)
    return FALSE;
  write_comments (file, ret_scenario);
  write_scenario (&import, import.model, ret_scenario);
  if (import.own_model->len > 0) {
    g_autofree char *name = g_path_get_basename (file->name);
    g_autofree char *shown = sp_shown (name);
    g_string_append_printf (ret_model, "# Imported from %s (%s).\n%s", shown, file->format->title,
                            import.own_model->str);
  }
  return TRUE;
}
