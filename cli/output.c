/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, tables and JSON. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"

/* --- numbers for people ------------------------------------------------------------------------------------------- */

/* Four significant digits without an exponent. */
static char *
four_digits (double value, const char *unit)
{
  double size = fabs (value);
  int decimals = size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3;
  return g_strdup_printf ("%.*f%s%s", decimals, value, *unit != '\0' ? " " : "", unit);
}

char *
sp_text_bytes (double bytes)
{
  static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
  guint i = 0;
  for (; i + 1 < G_N_ELEMENTS (units) && fabs (bytes) >= 1024; i++)
    bytes /= 1024;
  return i == 0 ? g_strdup_printf ("%.0f B", bytes) : four_digits (bytes, units[i]);
}

char *
sp_text_gib (double bytes)
{
  return g_strdup_printf ("%.2f", bytes / 0x1p30);
}

char *
sp_text_seconds (double seconds)
{
  double size = fabs (seconds);
  if (size < 5e-10) /* 0.000 us */
    return g_strdup ("0 s");
  if (size >= 9999.5) {
    g_autofree char *count = sp_text_count (seconds);
    return g_strconcat (count, " s", NULL);
  }
  if (size >= 1)
    return four_digits (seconds, "s");
  return size >= 1e-3 ? four_digits (seconds * 1e3, "ms") : four_digits (seconds * 1e6, "us");
}

char *
sp_text_count (double count)
{
  g_autofree char *digits = g_strdup_printf ("%.0f", fabs (count));
  gsize n = strlen (digits);
  GString *text = g_string_new (count < 0 ? "-" : NULL);
  for (gsize i = 0; i < n; i++) {
    if (i > 0 && (n - i) % 3 == 0)
      g_string_append_c (text, ',');
    g_string_append_c (text, digits[i]);
  }
  return g_string_free (text, FALSE);
}

char *
sp_text_percent (double fraction)
{
  return g_strdup_printf ("%.1f %%", fraction * 100);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

struct _SpTable {
  char *columns;
  GPtrArray *cells; /* row by row */
};

SpTable *
sp_table_new (const char *columns)
{
  SpTable *table = g_new0 (SpTable, 1);
  table->columns = g_strdup (columns);
  table->cells = g_ptr_array_new_with_free_func (g_free);
  return table;
}

void
sp_table_take (SpTable *table, char *text)
{
  g_ptr_array_add (table->cells, text);
}

void
sp_table_cell (SpTable *table, const char *text)
{
  sp_table_take (table, g_strdup (text));
}

static guint
column_width (const SpTable *table, guint column)
{
  glong width = 0;
  for (guint i = column; i < table->cells->len; i += (guint) strlen (table->columns))
    width = MAX (width, g_utf8_strlen (table->cells->pdata[i], -1));
  return (guint) width;
}

static void
append_spaces (GString *out, glong n)
{
  for (glong i = 0; i < n; i++)
    g_string_append_c (out, ' ');
}

static void
trim_line (GString *out)
{
  gsize length = out->len;
  while (length > 0 && out->str[length - 1] == ' ')
    length--;
  g_string_truncate (out, length);
}

void
sp_table_print (const SpTable *table, guint indent, GString *out)
{
  guint n = (guint) strlen (table->columns);
  g_return_if_fail (table->cells->len % n == 0);
  for (guint i = 0; i < table->cells->len; i++) {
    const char *text = table->cells->pdata[i];
    glong gap = column_width (table, i % n) - g_utf8_strlen (text, -1);
    append_spaces (out, i % n == 0 ? indent : 2);
    if (table->columns[i % n] == 'r')
      append_spaces (out, gap);
    g_string_append (out, text);
    if (table->columns[i % n] == 'l')
      append_spaces (out, gap);
    if (i % n == n - 1) {
      trim_line (out);
      g_string_append_c (out, '\n');
    }
  }
}

void
sp_table_free (SpTable *table)
{
  if (table == NULL)
    return;
  g_free (table->columns);
  g_ptr_array_unref (table->cells);
  g_free (table);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_string (JsonBuilder *builder, const char *value)
{
  g_autofree char *valid = g_utf8_make_valid (value, -1);
  json_builder_add_string_value (builder, valid);
}

void
sp_json_string (JsonBuilder *builder, const char *name, const char *value)
{
  json_builder_set_member_name (builder, name);
  if (value != NULL)
    add_string (builder, value);
  else
    json_builder_add_null_value (builder);
}

void
sp_json_number (JsonBuilder *builder, const char *name, double value)
{
  json_builder_set_member_name (builder, name);
  json_builder_add_double_value (builder, value + 0.0); /* -0 becomes 0 */
}

void
sp_json_whole (JsonBuilder *builder, const char *name, double value)
{
  if (!(fabs (value) < 0x1p62)) {
    sp_json_number (builder, name, value);
    return;
  }
  json_builder_set_member_name (builder, name);
  json_builder_add_int_value (builder, (gint64) round (value));
}

void
sp_json_bool (JsonBuilder *builder, const char *name, gboolean value)
{
  json_builder_set_member_name (builder, name);
  json_builder_add_boolean_value (builder, value);
}

void
sp_json_strings (JsonBuilder *builder, const char *name, const GPtrArray *values)
{
  json_builder_set_member_name (builder, name);
  json_builder_begin_array (builder);
  for (guint i = 0; values != NULL && i < values->len; i++)
    add_string (builder, values->pdata[i]);
  json_builder_end_array (builder);
}

void
sp_json_object (JsonBuilder *builder, const char *name)
{
  json_builder_set_member_name (builder, name);
  json_builder_begin_object (builder);
}

static gboolean all_finite (const char *name, JsonNode *node, GError **error);

static gboolean
members_finite (JsonObject *object, GError **error)
{
  g_autoptr (GList) names = json_object_get_members (object);
  for (GList *l = names; l != NULL; l = l->next)
    if (!all_finite (l->data, json_object_get_member (object, l->data), error))
      return FALSE;
  return TRUE;
}

static gboolean
all_finite (const char *name, JsonNode *node, GError **error)
{
  if (JSON_NODE_HOLDS_OBJECT (node))
    return members_finite (json_node_get_object (node), error);
  if (JSON_NODE_HOLDS_ARRAY (node)) {
    JsonArray *array = json_node_get_array (node);
    for (guint i = 0; i < json_array_get_length (array); i++)
      if (!all_finite (name, json_array_get_element (array, i), error))
        return FALSE;
    return TRUE;
  }
  if (json_node_get_value_type (node) != G_TYPE_DOUBLE || isfinite (json_node_get_double (node)))
    return TRUE;
  return sp_cli_fail (error, SP_CLI_ERROR_INTERNAL, "internal failure: %s is not a finite number", name);
}

gboolean
sp_json_finish (JsonBuilder *builder, GString *out, GError **error)
{
  g_autoptr (JsonNode) root = json_builder_get_root (builder);
  if (!all_finite ("the result", root, error))
    return FALSE;
  g_autoptr (JsonGenerator) generator = json_generator_new ();
  json_generator_set_root (generator, root);
  json_generator_set_pretty (generator, TRUE);
  g_autofree char *text = json_generator_to_data (generator, NULL);
  g_string_append (out, text);
  g_string_append_c (out, '\n');
  return TRUE;
}
