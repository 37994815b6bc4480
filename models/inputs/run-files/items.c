/* SPDX-License-Identifier: Apache-2.0 */
/* The list of items, and JSON in and out of it. */
#include "models/inputs/run-files/items.h"

#include <string.h>

#include "models/inputs/ini.h"
#include "models/inputs/json-text.h"

#define MAX_ITEMS 4096 /* each may be compared with every key that is known */

static void
item_free (gpointer data)
{
  SpRunItem *item = data;
  g_free (item->key);
  g_free (item->text);
  g_free (item);
}

SpRunItems *
sp_run_items_new (const char *name)
{
  SpRunItems *items = g_new0 (SpRunItems, 1);
  items->name = g_strdup (name);
  items->list = g_ptr_array_new_with_free_func (item_free);
  items->by_key = g_hash_table_new (g_str_hash, g_str_equal);
  return items;
}

void
sp_run_items_free (SpRunItems *items)
{
  if (items == NULL)
    return;
  g_hash_table_unref (items->by_key);
  g_ptr_array_unref (items->list);
  g_free (items->name);
  g_free (items->command);
  g_free (items);
}

const SpRunItem *
sp_run_items_get (const SpRunItems *items, const char *key)
{
  return g_hash_table_lookup (items->by_key, key);
}

gboolean
sp_run_items_runs (const SpRunItems *items, const char *command)
{
  return g_strcmp0 (items->command, command) == 0;
}

void
sp_run_items_undash (SpRunItems *items)
{
  g_hash_table_remove_all (items->by_key);
  for (guint i = 0; i < items->list->len; i++) {
    SpRunItem *item = items->list->pdata[i];
    char *key = g_strdup (item->key + strspn (item->key, "-"));
    g_free (item->key);
    item->key = key;
    item->type = item->type == SP_ITEM_FLAG ? SP_ITEM_BOOL : (guint8) sp_run_items_plain_type (item->text);
    if (item->type == SP_ITEM_BOOL) {
      char *lower = g_ascii_strdown (item->text, -1);
      g_free (item->text);
      item->text = lower;
    }
    g_hash_table_insert (items->by_key, item->key, item);
  }
}

char *
sp_run_item_place (const SpRunItems *items, const SpRunItem *item)
{
  g_autofree char *shown = sp_shown (item->key);
  return item->line > 0 ? g_strdup_printf ("%s:%u: %s", items->name, item->line, shown)
                        : g_strdup_printf ("%s: %s", items->name, shown);
}

gboolean
sp_run_items_add (SpRunItems *items, const char *key, SpItemType type, const char *text, guint line, GError **error)
{
  const SpRunItem *before = sp_run_items_get (items, key);
  if (items->list->len == MAX_ITEMS)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: more than %d keys, expected a run file", items->name,
                          MAX_ITEMS);
  SpRunItem *item = g_new0 (SpRunItem, 1);
  item->key = g_strdup (key);
  item->text = g_strdup (text);
  item->type = (guint8) type;
  item->line = line;
  g_ptr_array_add (items->list, item);
  if (before == NULL) {
    g_hash_table_insert (items->by_key, item->key, item);
    return TRUE;
  }
  g_autofree char *place = sp_run_item_place (items, item);
  return before->line > 0
             ? sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: stands twice, first in line %u", place, before->line)
             : sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s: stands twice", place);
}

/* --- JSON in ------------------------------------------------------------------------------------------------------ */

/* A leaf's type, and its text. */
static SpItemType
leaf (JsonNode *node, char **ret)
{
  if (JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING) {
    *ret = g_strdup (json_node_get_string (node));
    return SP_ITEM_WORD;
  }
  *ret = json_to_string (node, FALSE);
  if (JSON_NODE_HOLDS_NULL (node))
    return SP_ITEM_NULL;
  if (!JSON_NODE_HOLDS_VALUE (node))
    return SP_ITEM_LIST;
  GType type = json_node_get_value_type (node);
  return type == G_TYPE_BOOLEAN ? SP_ITEM_BOOL : type == G_TYPE_INT64 ? SP_ITEM_INT : SP_ITEM_FLOAT;
}

/* As deep as the text was allowed to nest. */
static gboolean
add_object (SpRunItems *items, const char *prefix, JsonObject *object, GError **error)
{
  g_autoptr (GList) members = json_object_get_members (object);
  for (GList *l = members; l != NULL; l = l->next) {
    JsonNode *node = json_object_get_member (object, l->data);
    g_autofree char *key = g_strconcat (prefix, l->data, NULL);
    if (JSON_NODE_HOLDS_OBJECT (node)) {
      g_autofree char *inside = g_strconcat (key, ".", NULL);
      if (!add_object (items, inside, json_node_get_object (node), error))
        return FALSE;
      continue;
    }
    g_autofree char *text = NULL;
    SpItemType type = leaf (node, &text);
    if (!sp_run_items_add (items, key, type, text, 0, error))
      return FALSE;
  }
  return TRUE;
}

SpRunItems *
sp_run_items_parse_json (const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr (JsonObject) object = sp_json_parse (name, text, length, error);
  if (object == NULL)
    return NULL;
  g_autoptr (SpRunItems) items = sp_run_items_new (name);
  return add_object (items, "", object, error) ? g_steal_pointer (&items) : NULL;
}

/* --- JSON out ----------------------------------------------------------------------------------------------------- */

static void
set_leaf (JsonObject *object, const char *name, const SpRunItem *item)
{
  switch (item->type) {
  case SP_ITEM_INT:
    json_object_set_int_member (object, name, g_ascii_strtoll (item->text, NULL, 10));
    break;
  case SP_ITEM_FLOAT:
    json_object_set_double_member (object, name, g_ascii_strtod (item->text, NULL));
    break;
  case SP_ITEM_BOOL:
  case SP_ITEM_FLAG:
    json_object_set_boolean_member (object, name, g_str_equal (item->text, "true"));
    break;
  default:
    json_object_set_string_member (object, name, item->text);
  }
}

void
sp_run_items_write_json (const SpRunItems *items, const GPtrArray *comments, GString *out)
{
  g_autoptr (JsonNode) root = json_node_new (JSON_NODE_OBJECT);
  json_node_take_object (root, json_object_new ());
  for (guint i = 0; i < items->list->len; i++) {
    const SpRunItem *item = items->list->pdata[i];
    JsonObject *object = json_node_get_object (root);
    g_auto (GStrv) parts = g_strsplit (item->key, ".", -1);
    guint last = 0;
    for (; parts[last + 1] != NULL; last++) {
      if (!json_object_has_member (object, parts[last]))
        json_object_set_object_member (object, parts[last], json_object_new ());
      object = json_object_get_object_member (object, parts[last]);
    }
    set_leaf (object, parts[last], item);
  }
  g_autoptr (JsonGenerator) generator = json_generator_new ();
  json_generator_set_root (generator, root);
  json_generator_set_pretty (generator, TRUE);
  g_autofree char *text = json_generator_to_data (generator, NULL);
  g_string_append_printf (out, "%s\n", text);
}
