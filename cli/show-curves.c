/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show profile, and what seqpar calibrate fit prints: the curves of a profile. */
#include "cli/cli.h"
#include "models/inputs/ini.h"
#include "models/inputs/profile.h"

/* --- for people --------------------------------------------------------------------------------------------------- */

char *
sp_text_error (double fraction)
{
  return g_strdup_printf (fraction >= 0.0995 ? "%.0f %%" : "%.1f %%", 100 * fraction);
}

static char *
range_text (const SpCurve *curve)
{
  if (curve->to <= 0)
    return g_strdup ("");
  if (curve->kind <= SP_CURVE_LINEAR_BACKWARD)
    return g_strdup_printf ("%.3g to %.3g GFLOP", curve->from / 1e9, curve->to / 1e9);
  SpUnit unit = curve->kind == SP_CURVE_POWER ? SP_UNIT_WATTS : SP_UNIT_BYTES;
  g_autofree char *from = sp_format_quantity (curve->from, unit), *to = sp_format_quantity (curve->to, unit);
  return g_strdup_printf ("%s to %s", from, to);
}

static void
add_cells (SpTable *table, const char *const *cells)
{
  for (guint i = 0; cells[i] != NULL; i++)
    sp_table_cell (table, cells[i]);
}

static void
add_curves (const SpProfile *profile, GString *out)
{
  static const char *const head[] = { "curve", "points", "left out", "chi2", "median", "p90", "worst", "range", NULL };
  g_autoptr (SpTable) table = sp_table_new ("lrrrrrrl");

  add_cells (table, head);
  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *c = profile->curves->pdata[i];
    sp_table_take (table, sp_curve_name (c));
    sp_table_take (table, g_strdup_printf ("%d", c->points));
    sp_table_take (table, g_strdup_printf ("%d", c->left_out));
    gboolean line = c->kind != SP_CURVE_LAUNCH && c->kind != SP_CURVE_MEMORY && c->kind != SP_CURVE_SLOWDOWN;
    sp_table_take (table, line ? g_strdup_printf ("%.3g", c->chi_square) : g_strdup (""));
    sp_table_take (table, line ? sp_text_error (c->median) : g_strdup (""));
    sp_table_take (table, line ? sp_text_error (c->p90) : g_strdup (""));
    sp_table_take (table, line ? sp_text_error (c->worst) : g_strdup (""));
    sp_table_take (table, range_text (c));
  }
  sp_table_print (table, 0, out);
}

static char *
remark (const SpCurve *c, guint slot, gboolean sources)
{
  const SpQuantity *q = &c->value[slot];
  gboolean piece = sp_curve_is_transfer (c->kind) && slot % SP_PIECE_SLOTS == 0;
  g_autofree char *from = piece ? sp_format_quantity (c->begin[slot / SP_PIECE_SLOTS], SP_UNIT_BYTES) : NULL;

  if (sources)
    return g_strdup_printf ("%s%s%s%s: %s", piece ? "from " : "", piece ? from : "", piece ? "; " : "",
                            sp_provenance_name (q->provenance), q->source != NULL ? q->source : "no source");
  if (c->error[slot] > 0)
    return piece ? g_strdup_printf ("from %s", from) : g_strdup ("");
  return g_strdup (q->provenance == SP_ASSUMED && q->source != NULL ? q->source : "");
}

static void
add_parameters (const SpProfile *profile, gboolean sources, GString *out)
{
  static const char *const head[] = { "curve", "parameter", "value", "standard error", "", NULL };
  g_autoptr (SpTable) table = sp_table_new ("llrrl");

  add_cells (table, head);
  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *c = profile->curves->pdata[i];
    for (guint slot = 0; slot < c->n_slots; slot++) {
      if (!sp_curve_has (c, slot))
        continue;
      sp_table_take (table, slot == 0 ? sp_curve_name (c) : g_strdup (""));
      g_autofree char *key = sp_curve_key (c, slot);
      sp_table_cell (table, key);
      sp_table_take (table, sp_curve_text (c, slot, c->value[slot].value, 4));
      sp_table_take (table, c->error[slot] > 0 ? sp_curve_text (c, slot, c->error[slot], 2) : g_strdup ("-"));
      sp_table_take (table, remark (c, slot, sources));
    }
  }
  sp_table_print (table, 0, out);
}

void
sp_show_curves (const SpProfile *profile, gboolean sources, GString *out)
{
  add_curves (profile, out);
  g_string_append_c (out, '\n');
  add_parameters (profile, sources, out);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_parameter_json (JsonBuilder *b, const SpCurve *curve, guint slot)
{
  g_autofree char *key = sp_curve_key (curve, slot);

  json_builder_begin_object (b);
  sp_json_string (b, "name", key);
  sp_json_number (b, "value", curve->value[slot].value);
  sp_json_number (b, "error", curve->error[slot]);
  sp_json_string (b, "provenance", sp_provenance_name (curve->value[slot].provenance));
  sp_json_string (b, "source", curve->value[slot].source);
  json_builder_end_object (b);
}

static void
add_curve_json (JsonBuilder *b, const SpCurve *curve)
{
  g_autofree char *name = sp_curve_name (curve);

  json_builder_begin_object (b);
  sp_json_string (b, "name", name);
  sp_json_whole (b, "points", curve->points);
  sp_json_number (b, "median_error", curve->median);
  sp_json_number (b, "p90_error", curve->p90);
  sp_json_number (b, "worst_error", curve->worst);
  json_builder_set_member_name (b, "parameters");
  json_builder_begin_array (b);
  for (guint slot = 0; slot < curve->n_slots; slot++)
    if (sp_curve_has (curve, slot))
      add_parameter_json (b, curve, slot);
  json_builder_end_array (b);
  json_builder_end_object (b);
}

static gboolean
add_json (const SpProfile *profile, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();

  json_builder_begin_object (b);
  sp_json_string (b, "name", profile->name);
  sp_json_string (b, "card", profile->card);
  sp_json_string (b, "provenance", sp_provenance_name (sp_profile_provenance (profile)));
  json_builder_set_member_name (b, "curves");
  json_builder_begin_array (b);
  for (guint i = 0; i < profile->curves->len; i++)
    add_curve_json (b, profile->curves->pdata[i]);
  json_builder_end_array (b);
  json_builder_end_object (b);
  return sp_json_finish (b, out, error);
}

gboolean
sp_show_profile (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = sp_find_profile (show->file, error);
  g_autoptr (SpProfile) profile = path != NULL ? sp_profile_load (path, error) : NULL;
  if (profile == NULL)
    return FALSE;
  if (show->json)
    return add_json (profile, out, error);
  g_string_append_printf (out, "%s%s%s, at worst %s\n\n", profile->name, profile->card != NULL ? ", of " : "",
                          profile->card != NULL ? profile->card : "",
                          sp_provenance_name (sp_profile_provenance (profile)));
  sp_show_curves (profile, TRUE, out);
  return TRUE;
}
