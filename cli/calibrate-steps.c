/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate steps STEPS.csv FOLDER: a framework's timed steps against what is predicted of them. */
#include <math.h>
#include <string.h>

#include "calibrate/steps.h"
#include "cli/cli.h"

typedef struct {
  char **rest, **sets;
  gboolean hold_out, json;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

/* Numbers of a fit without one mode, or (mode NULL) to all. */
typedef struct {
  const char *mode;
  SpStepsFit fit;
} Fitted;

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "hold-out", 0, 0, G_OPTION_ARG_NONE, &o->hold_out, "Fit without a mode what its rows are predicted with", NULL },
    { "set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o->sets, "A key of the scenarios, such as profile=FILE", "KEY=VALUE" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "STEPS.csv FOLDER" },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "Predicts each row of a CSV of steps that a framework was timed at (its columns are in\n"
      "calibrate/steps.h) by the scenario FOLDER/mode.ini, with the framework's own numbers. --hold-out\n"
      "fits four of them (host-launch, host-gather, elementwise-time, attention-time) again for each\n"
      "mode, to the rows of the other modes alone, and once more to all of them.\n",
      out, error);
}

/* --- fits --------------------------------------------------------------------------------------------------------- */

static const Fitted *
fit_of (const GArray *fits, const char *mode)
{
  for (guint i = 0; i < fits->len; i++) {
    const Fitted *fit = &g_array_index (fits, Fitted, i);
    if (g_strcmp0 (fit->mode, mode) == 0)
      return fit;
  }
  return NULL;
}

static gboolean
add_fit (const SpSteps *steps, const char *mode, GArray *fits, GError **error)
{
  Fitted fit = { .mode = mode };

  if (fit_of (fits, mode) != NULL)
    return TRUE;
  if (!sp_steps_fit (steps, mode, &fit.fit, error))
    return FALSE;
  g_array_append_val (fits, fit);
  return TRUE;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void
predict (const SpStepsRow *row, const GArray *fits, SpEstimate *ret)
{
  const Fitted *fit = fit_of (fits, row->mode);

  sp_steps_predict (row, fit != NULL ? fit->fit.value : NULL, ret);
}

static char *
bound_of (const SpStepsRow *row, const SpEstimate *e)
{
  const char *measured = sp_steps_is_host_bound (row) ? "host" : "device";
  const char *predicted = e->is_host_bound ? "host" : "device";

  return g_strdup_printf ("%s%s%s", measured, g_str_equal (measured, predicted) ? "" : ", predicted ",
                          g_str_equal (measured, predicted) ? "" : predicted);
}

static void
add_row (const SpStepsRow *row, const SpEstimate *e, SpTable *table)
{
  const SpRun *run = &row->scenario->run;
  double allocated = sp_steps_allocated_bytes (e);

  sp_table_cell (table, row->mode);
  sp_table_take (table, g_strdup_printf ("%" G_GINT64_FORMAT " x %d%s", run->sequence, run->micro_batch,
                                         row->scenario->layout.recompute == SP_RECOMPUTE_FULL ? ", recompute" : ""));
  sp_table_take (table, row->is_oom ? g_strdup ("out of memory") : sp_text_seconds (row->step_s));
  sp_table_take (table, sp_text_seconds (e->step_time_s));
  sp_table_take (table,
                 row->is_oom ? g_strdup ("") : g_strdup_printf ("%+.1f %%", 100 * (e->step_time_s / row->step_s - 1)));
  sp_table_take (table, row->is_oom ? g_strdup (e->fits ? "predicted to fit" : "does not fit") : bound_of (row, e));
  sp_table_take (table, row->is_oom ? g_strdup ("") : sp_text_bytes (row->allocated_bytes));
  sp_table_take (table, sp_text_bytes (allocated));
  sp_table_take (table, row->is_oom ? g_strdup ("")
                                    : g_strdup_printf ("%+.1f %%", 100 * (allocated / row->allocated_bytes - 1)));
}

static void
add_rows (const SpSteps *steps, const GArray *fits, GString *out)
{
  static const char *const heads[] = { "mode",     "tokens",    "step",      "predicted", "error",
                                       "bound by", "allocated", "predicted", "error" };
  g_autoptr (SpTable) table = sp_table_new ("llrrrlrrr");

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint i = 0; i < steps->rows->len; i++) {
    SpEstimate e;
    predict (steps->rows->pdata[i], fits, &e);
    add_row (steps->rows->pdata[i], &e, table);
  }
  sp_table_print (table, 0, out);
}

static char *
value_text (guint parameter, double value)
{
  return parameter == SP_STEPS_LAUNCH || parameter == SP_STEPS_GATHER ? sp_text_seconds (value)
                                                                      : g_strdup_printf ("%.4g", value);
}

static void
add_fits (const GArray *fits, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("llrr");
  static const char *const heads[] = { "fitted to", "number", "value", "standard error" };

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint i = 0; i < fits->len; i++) {
    const Fitted *fit = &g_array_index (fits, Fitted, i);
    for (guint p = 0; p < SP_STEPS_N_PARAMETERS; p++) {
      sp_table_take (table, p > 0               ? g_strdup ("")
                            : fit->mode == NULL ? g_strdup_printf ("all %u steps", fit->fit.n_rows)
                                                : g_strdup_printf ("without %s, %u steps", fit->mode, fit->fit.n_rows));
      sp_table_cell (table, sp_steps_parameters[p]);
      sp_table_take (table, value_text (p, fit->fit.value[p]));
      sp_table_take (table, fit->fit.fixed[p] ? g_strdup ("not identified") : value_text (p, fit->fit.error[p]));
    }
  }
  g_string_append_c (out, '\n');
  sp_table_print (table, 0, out);
}

static gboolean
add_json (const SpSteps *steps, const GArray *fits, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();

  json_builder_begin_object (b);
  json_builder_set_member_name (b, "fits");
  json_builder_begin_array (b);
  for (guint i = 0; i < fits->len; i++) {
    const Fitted *fit = &g_array_index (fits, Fitted, i);
    json_builder_begin_object (b);
    sp_json_string (b, "without", fit->mode);
    for (guint p = 0; p < SP_STEPS_N_PARAMETERS; p++)
      sp_json_number (b, sp_steps_parameters[p], fit->fit.value[p]);
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
  json_builder_set_member_name (b, "steps");
  json_builder_begin_array (b);
  for (guint i = 0; i < steps->rows->len; i++) {
    const SpStepsRow *row = steps->rows->pdata[i];
    SpEstimate e;
    predict (row, fits, &e);
    json_builder_begin_object (b);
    sp_json_string (b, "mode", row->mode);
    sp_json_whole (b, "sequence", (double) row->scenario->run.sequence);
    sp_json_whole (b, "micro_batch", row->scenario->run.micro_batch);
    sp_json_bool (b, "recompute", row->scenario->layout.recompute == SP_RECOMPUTE_FULL);
    sp_json_bool (b, "out_of_memory", row->is_oom);
    sp_json_bool (b, "predicted_fits", e.fits);
    sp_json_number (b, "step_time_s", row->step_s);
    sp_json_number (b, "predicted_step_time_s", e.step_time_s);
    sp_json_bool (b, "host_bound", sp_steps_is_host_bound (row));
    sp_json_bool (b, "predicted_host_bound", e.is_host_bound);
    sp_json_whole (b, "allocated_bytes", row->allocated_bytes);
    sp_json_whole (b, "predicted_allocated_bytes", sp_steps_allocated_bytes (&e));
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
  json_builder_end_object (b);
  return sp_json_finish (b, out, error);
}

gboolean
sp_calibrate_steps (char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "STEPS.csv", "FOLDER", NULL };
  g_auto (Options) o = { NULL };
  SpParsed parsed = parse (args, &o, out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (o.rest, positional, error))
    return FALSE;
  g_autoptr (SpSteps) steps = sp_steps_read (o.rest[0], o.rest[1], (const char *const *) o.sets, error);
  if (steps == NULL)
    return FALSE;
  g_autoptr (GArray) fits = g_array_new (FALSE, FALSE, sizeof (Fitted));
  for (guint i = 0; o.hold_out && i < steps->rows->len; i++)
    if (!add_fit (steps, ((const SpStepsRow *) steps->rows->pdata[i])->mode, fits, error))
      return FALSE;
  if (o.hold_out && !add_fit (steps, NULL, fits, error))
    return FALSE;
  if (o.json)
    return add_json (steps, fits, out, error);
  add_rows (steps, fits, out);
  if (o.hold_out)
    add_fits (fits, out);
  return TRUE;
}
