/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar validate --fit: constants as lines of a profile. */
#include <math.h>

#include "cli/validate.h"
#include "models/inputs/ini.h"

static const char *const folders[] = { "framework", "device", "cluster" };

/* "set-a, set-b" */
static char *
names_of (const GPtrArray *sets)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();

  for (guint i = 0; i < sets->len; i++)
    g_ptr_array_add (names, ((const SpScoredSet *) sets->pdata[i])->set->name);
  g_ptr_array_add (names, NULL);
  return g_strjoinv (", ", (char **) names->pdata);
}

/* Four digits, of bytes whole MiB: no fit knows more. */
static char *
value_text (double value, SpUnit unit)
{
  g_autofree char *digits = g_strdup_printf ("%.4g", value);

  return sp_format_quantity (unit == SP_UNIT_BYTES ? round (value / 0x1p20) * 0x1p20 : g_ascii_strtod (digits, NULL),
                             unit);
}

static void
add_table (const SpValidationFit *fit, GString *out)
{
  static const char *const heads[] = { "of", "constant", "now", "fitted", "standard error" };
  g_autoptr (SpTable) table = sp_table_new ("llrrr");

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint i = 0; i < fit->constants->len; i++) {
    const SpFittedConstant *c = &g_array_index (fit->constants, SpFittedConstant, i);
    sp_table_take (table, g_strjoin (" ", folders[c->constant->of], c->constant->profile, NULL));
    sp_table_cell (table, c->constant->key);
    sp_table_take (table, value_text (c->start, c->constant->unit));
    sp_table_take (table, value_text (c->value, c->constant->unit));
    sp_table_take (table, c->is_fixed ? g_strdup ("not identified") : sp_text_percent (c->error / c->value));
  }
  sp_table_print (table, 0, out);
}

/* What is not identified has no line: the profile keeps what it has. */
static void
add_lines (const SpValidationFit *fit, const char *names, GString *out)
{
  for (guint i = 0; i < fit->constants->len; i++) {
    const SpFittedConstant *c = &g_array_index (fit->constants, SpFittedConstant, i);
    if (c->is_fixed)
      continue;
    g_autofree char *value = value_text (c->value, c->constant->unit);
    g_autofree char *error = sp_text_percent (c->error / c->value);
    g_string_append_printf (out, "%s = %s\n%s.source = measured: fitted to %u runs of %s; standard error %s\n",
                            c->constant->key, value, c->constant->key, fit->n_runs, names, error);
  }
}

gboolean
sp_validate_fit (const GPtrArray *sets, GString *out, GError **error)
{
  g_autofree SpValidation **all = g_new (SpValidation *, sets->len);
  g_autofree char *names = names_of (sets);

  for (guint i = 0; i < sets->len; i++)
    all[i] = ((const SpScoredSet *) sets->pdata[i])->set;
  g_autoptr (SpValidationFit) fit = sp_validation_fit (all, sets->len, error);
  if (fit == NULL)
    return FALSE;
  g_autofree char *before = sp_text_percent (fit->before), *after = sp_text_percent (fit->after);
  g_string_append_printf (out, "%u figures of %u fitted runs (%s): %s off in the median before, %s after\n\n",
                          fit->n_points, fit->n_runs, names, before, after);
  add_table (fit, out);
  g_string_append_c (out, '\n');
  add_lines (fit, names, out);
  return TRUE;
}
