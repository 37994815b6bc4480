/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms-swift's arguments in a file: swift sft --config FILE.yaml. It makes flags of the file's keys and puts them behind those
 * of the command (swift/cli/main.py, prepare_config_args; 3.9), so that where both say something the file does. A key in
 * a group is that key: the groups' names are dropped. FILE is beside the run file, or where the command is started.
 */
#include "models/inputs/run-files/formats.h"

#include <string.h>

#include "models/inputs/ini.h"

static char *
flag_of (const char *key)
{
  const char *dot = strrchr (key, '.');

  return g_strconcat ("--", dot != NULL ? dot + 1 : key, NULL);
}

gboolean
sp_run_swift_is_config (const SpRunItems *items)
{
  static const char *const others[] = { "model_name_or_path", "finetuning_type", "cutoff_len" };
  static const char *const keys[] = { "train_type", "tuner_type", "max_length" };
  gboolean found = FALSE;

  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    if (sp_run_items_get (items, others[i]) != NULL)
      return FALSE;
  for (guint i = 0; i < items->list->len; i++) {
    g_autofree char *flag = flag_of (((const SpRunItem *) items->list->pdata[i])->key);
    for (guint k = 0; k < G_N_ELEMENTS (keys); k++)
      found |= g_str_equal (flag + 2, keys[k]);
  }
  return found;
}

/* One of the file's; a null is what the flag is without. */
static gboolean
add_item (SpRunItems *items, const SpRunItem *item, gboolean *ret_overrides, GError **error)
{
  g_autofree char *flag = flag_of (item->key);
  SpRunItem *before = g_hash_table_lookup (items->by_key, flag);

  if (item->type == SP_ITEM_NULL)
    return TRUE;
  guint8 type = item->type == SP_ITEM_LIST ? SP_ITEM_LIST : SP_ITEM_WORD;
  if (before == NULL)
    return sp_run_items_add (items, flag, (SpItemType) type, item->text, 0, error);
  *ret_overrides |= !g_str_equal (before->text, item->text);
  g_free (before->text);
  before->text = g_strdup (item->text);
  before->type = type;
  return TRUE;
}

SpRunItems *
sp_run_swift_flags (const SpRunItems *yaml, GError **error)
{
  g_autoptr (SpRunItems) items = sp_run_items_new (yaml->name);
  gboolean overrides = FALSE;

  for (guint i = 0; i < yaml->list->len; i++)
    if (!add_item (items, yaml->list->pdata[i], &overrides, error))
      return NULL;
  return g_steal_pointer (&items);
}

/* Beside the run file, or else as it stands. */
static char *
config_path (const char *run_path, const char *name)
{
  g_autofree char *folder = g_path_get_dirname (run_path);
  char *beside = g_path_is_absolute (name) ? g_strdup (name) : g_build_filename (folder, name, NULL);

  if (g_file_test (beside, G_FILE_TEST_EXISTS) || !g_file_test (name, G_FILE_TEST_EXISTS))
    return beside;
  g_free (beside);
  return g_strdup (name);
}

gboolean
sp_run_swift_add_config (SpRunItems *items, const char *run_path, gboolean *ret_overrides, GError **error)
{
  const SpRunItem *config = sp_run_items_get (items, "--config");
  gsize length;

  *ret_overrides = FALSE;
  if (config == NULL || config->type != SP_ITEM_WORD)
    return TRUE;
  g_autofree char *path = config_path (run_path, config->text);
  g_autofree char *text = sp_read_input (path, &length, error);
  g_autoptr (SpRunItems) yaml = text != NULL ? sp_run_items_parse_yaml (path, text, length, error) : NULL;
  if (yaml == NULL) {
    g_prefix_error (error, "%s: --config: ", items->name);
    return FALSE;
  }
  for (guint i = 0; i < yaml->list->len; i++)
    if (!add_item (items, yaml->list->pdata[i], ret_overrides, error))
      return FALSE;
  g_hash_table_remove (items->by_key, "--config");
  for (guint i = 0; i < items->list->len; i++)
    if (items->list->pdata[i] == config) {
      g_ptr_array_remove_index (items->list, i);
      break;
    }
  return TRUE;
}
