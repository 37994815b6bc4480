/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate check: how far off predictions were, as text or JSON. */
#include <math.h>

#include "cli/calibrate-check.h"

/* The worst run may be off three times as far as the middle one. */
#define WORST_FACTOR 3

static gint
compare_numbers (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static double
error_of (double predicted, double measured)
{
  return measured > 0 ? predicted / measured - 1 : 0;
}

typedef struct {
  double median, p90, worst;
} Spread;

static Spread
spread_of (const SpCheckedRun *all, guint n, gboolean memory)
{
  g_autofree double *errors = g_new (double, MAX (n, 1));

  for (guint i = 0; i < n; i++)
    errors[i] = fabs (memory ? error_of (all[i].predicted_memory_bytes, all[i].memory_bytes)
                             : error_of (all[i].predicted_s, all[i].step_s));
  qsort (errors, n, sizeof *errors, compare_numbers);
  return (Spread){ errors[n / 2], errors[(n - 1) * 9 / 10], errors[n - 1] };
}

static gboolean
is_inside (double seconds, const double interval_s[2])
{
  return interval_s[0] <= seconds && seconds <= interval_s[1];
}

/* Runs whose step lies in the interval of their prediction, or in that of curves alone. */
static guint
count_inside (const SpCheckedRun *all, guint n, gboolean of_curves)
{
  guint inside = 0;

  for (guint i = 0; i < n; i++)
    inside += is_inside (all[i].step_s, of_curves ? all[i].interval_curves_s : all[i].interval_s);
  return inside;
}

static void
add_signed_percent (SpTable *table, double fraction)
{
  sp_table_take (table, g_strdup_printf ("%+.1f %%", 100 * fraction));
}

static double
late_s (double waited_s, double own_s)
{
  return own_s >= 0 ? MAX (waited_s - own_s, 0) : -1;
}

static void
add_exposed (SpTable *table, const SpExposed *exposed, gboolean own)
{
  const double parts[] = { exposed->own_s, exposed->predicted_own_s, late_s (exposed->measured_s, exposed->own_s),
                           late_s (exposed->predicted_s, exposed->predicted_own_s) };
  const double whole[] = { exposed->measured_s, exposed->predicted_s, exposed->as_ran_s };

  for (guint i = 0; i < (own ? G_N_ELEMENTS (parts) : G_N_ELEMENTS (whole)); i++) {
    double value = own ? parts[i] : whole[i];
    sp_table_take (table, value >= 0 ? sp_text_seconds (value) : g_strdup ("not said"));
  }
}

/* Whether runs say the transfers' own part of waits. */
static gboolean
says_own (const SpCheckedRun *all, guint n)
{
  gboolean says = FALSE;

  for (guint i = 0; i < n; i++)
    says = says || all[i].exposed.own_s >= 0;
  return says;
}

static void
add_runs (const SpCheckedRun *all, guint n, GString *out)
{
  static const char *const before[] = { "program", "step", "predicted", "error" },
                           *const whole[] = { "exposed", "predicted", "as ran", NULL },
                           *const parts[] = { "exposed", "predicted", "late", "predicted", NULL },
                           *const behind[] = { "memory", "predicted", "error", "bytes" };
  gboolean own = says_own (all, n);
  g_autoptr (SpTable) table = sp_table_new (own ? "lrrrrrrrrrrl" : "lrrrrrrrrrl");

  for (guint i = 0; i < G_N_ELEMENTS (before); i++)
    sp_table_cell (table, before[i]);
  for (const char *const *head = own ? parts : whole; *head != NULL; head++)
    sp_table_cell (table, *head);
  for (guint i = 0; i < G_N_ELEMENTS (behind); i++)
    sp_table_cell (table, behind[i]);
  for (guint i = 0; i < n; i++) {
    const SpCheckedRun *c = &all[i];
    sp_table_cell (table, c->run->program);
    sp_table_take (table, sp_text_seconds (c->step_s));
    sp_table_take (table, sp_text_seconds (c->predicted_s));
    add_signed_percent (table, error_of (c->predicted_s, c->step_s));
    add_exposed (table, &c->exposed, own);
    sp_table_take (table, sp_text_bytes (c->memory_bytes));
    sp_table_take (table, sp_text_bytes (c->predicted_memory_bytes));
    add_signed_percent (table, error_of (c->predicted_memory_bytes, c->memory_bytes));
    sp_table_cell (table, c->bytes_agree ? "equal" : "DIFFER");
  }
  sp_table_print (table, 0, out);
}

static void
add_ops (const SpCheckedRun *all, guint n, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("lrrrr");
  static const char *const heads[] = { "op", "times", "measured", "predicted", "error" };

  for (guint i = 0; i < G_N_ELEMENTS (heads); i++)
    sp_table_cell (table, heads[i]);
  for (guint op = 0; op < SP_N_OPS; op++) {
    SpCheckedOps sum = { 0 };
    for (guint i = 0; i < n; i++) {
      sum.measured_s += all[i].ops[op].measured_s;
      sum.predicted_s += all[i].ops[op].predicted_s;
      sum.n += all[i].ops[op].n;
    }
    if (sum.n == 0)
      continue;
    sp_table_cell (table, sp_op_name (op));
    sp_table_take (table, g_strdup_printf ("%" G_GINT64_FORMAT, sum.n));
    sp_table_take (table, sp_text_seconds (sum.measured_s));
    sp_table_take (table, sp_text_seconds (sum.predicted_s));
    add_signed_percent (table, error_of (sum.predicted_s, sum.measured_s));
  }
  g_string_append (
      out, "\nops of rank 0, all runs together; communication as measured includes waits for the others, kernels as "
           "predicted run beside nothing\n");
  sp_table_print (table, 2, out);
}

static void
add_spread (const char *what, Spread s, GString *out)
{
  g_string_append_printf (out, "%s: median error %.1f %%, 90th percentile %.1f %%, worst %.1f %%\n", what,
                          100 * s.median, 100 * s.p90, 100 * s.worst);
}

static gboolean
communicates (const SpExposed *exposed)
{
  return exposed->measured_s >= 0 && (exposed->measured_s > 0 || exposed->predicted_s > 0);
}

/* Runs whose communication is as exposed as it should be. */
static void
add_agreeing (const SpCheckedRun *all, guint n, GString *out)
{
  guint said = 0, agree = 0;

  for (guint i = 0; i < n; i++) {
    said += communicates (&all[i].exposed);
    agree += communicates (&all[i].exposed) && all[i].exposed.agrees;
  }
  if (said > 0)
    g_string_append_printf (out,
                            "exposed communication, of a GPU in the mean%s: within %g %% or %g us in %u of %u runs\n",
                            says_own (all, n) ? "" : " and as the cards ran", 100 * SP_EXPOSED_SHARE,
                            1e6 * SP_EXPOSED_LEAST_S, agree, said);
}

/* What GPUs waited for others that came late, of the step; as measured, and as predicted of cards that are alike. */
static void
add_lateness (const SpCheckedRun *all, guint n, GString *out)
{
  g_autofree double *measured = g_new (double, MAX (n, 1)), *predicted = g_new (double, MAX (n, 1));
  guint said = 0;

  for (guint i = 0; i < n; i++) {
    const SpExposed *x = &all[i].exposed;
    if (!communicates (x) || x->own_s < 0)
      continue;
    measured[said] = late_s (x->measured_s, x->own_s) / all[i].step_s;
    predicted[said++] = late_s (x->predicted_s, x->predicted_own_s) / all[i].predicted_s;
  }
  if (said == 0)
    return;
  qsort (measured, said, sizeof *measured, compare_numbers);
  qsort (predicted, said, sizeof *predicted, compare_numbers);
  g_string_append_printf (out,
                          "waits for ranks that came late, of the step: median %.1f %%, worst %.1f %%; of cards that "
                          "are alike %.1f and %.1f %%\n",
                          100 * measured[said / 2], 100 * measured[said - 1], 100 * predicted[said / 2],
                          100 * predicted[said - 1]);
}

/* Where runs say at what clock they were, and the profile what clock power leaves. */
static void
add_clocks (const SpCheckedRun *all, guint n, GString *out)
{
  g_autofree double *errors = g_new (double, MAX (n, 1));
  gboolean held = FALSE;
  guint said = 0;

  for (guint i = 0; i < n; i++) {
    held = held || all[i].predicted_clock < 1;
    if (all[i].clock > 0)
      errors[said++] = error_of (all[i].predicted_clock, all[i].clock);
  }
  if (said == 0 || !held)
    return;
  qsort (errors, said, sizeof *errors, compare_numbers);
  g_string_append_printf (out, "clock: predicted %+.1f %% off in the middle, from %+.1f %% to %+.1f %%\n",
                          100 * errors[said / 2], 100 * errors[0], 100 * errors[said - 1]);
}

static void
add_json_ops (JsonBuilder *b, const SpCheckedOps *ops)
{
  json_builder_set_member_name (b, "ops");
  json_builder_begin_object (b);
  for (guint op = 0; op < SP_N_OPS; op++) {
    if (ops[op].n == 0)
      continue;
    json_builder_set_member_name (b, sp_op_name (op));
    json_builder_begin_object (b);
    sp_json_whole (b, "times", ops[op].n);
    sp_json_number (b, "measured_s", ops[op].measured_s);
    sp_json_number (b, "predicted_s", ops[op].predicted_s);
    json_builder_end_object (b);
  }
  json_builder_end_object (b);
}

static gboolean
add_json (const SpCheckedRun *all, guint n, Spread time, Spread memory, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) b = json_builder_new ();

  json_builder_begin_object (b);
  sp_json_number (b, "time_median_error", time.median);
  sp_json_number (b, "time_p90_error", time.p90);
  sp_json_number (b, "time_worst_error", time.worst);
  sp_json_number (b, "memory_median_error", memory.median);
  sp_json_number (b, "memory_worst_error", memory.worst);
  sp_json_whole (b, "inside_interval", count_inside (all, n, FALSE));
  sp_json_whole (b, "inside_interval_of_curves", count_inside (all, n, TRUE));
  json_builder_set_member_name (b, "runs");
  json_builder_begin_array (b);
  for (guint i = 0; i < n; i++) {
    json_builder_begin_object (b);
    sp_json_string (b, "program", all[i].run->program);
    sp_json_number (b, "step_time_s", all[i].step_s);
    sp_json_number (b, "predicted_step_time_s", all[i].predicted_s);
    sp_json_number (b, "exposed_s", all[i].exposed.measured_s);
    sp_json_number (b, "predicted_exposed_s", all[i].exposed.predicted_s);
    sp_json_number (b, "as_ran_exposed_s", all[i].exposed.as_ran_s);
    sp_json_number (b, "exposed_transfer_s", all[i].exposed.own_s);
    sp_json_number (b, "predicted_exposed_transfer_s", all[i].exposed.predicted_own_s);
    sp_json_bool (b, "exposed_agrees", all[i].exposed.agrees);
    sp_json_whole (b, "memory_bytes", all[i].memory_bytes);
    sp_json_whole (b, "predicted_memory_bytes", all[i].predicted_memory_bytes);
    sp_json_number (b, "clock", all[i].clock);
    sp_json_number (b, "predicted_clock", all[i].predicted_clock);
    sp_json_bool (b, "bytes_agree", all[i].bytes_agree);
    add_json_ops (b, all[i].ops);
    json_builder_end_object (b);
  }
  json_builder_end_array (b);
  json_builder_end_object (b);
  return sp_json_finish (b, out, error);
}

gboolean
sp_check_report (const SpCheckOptions *o, const SpCheckedRun *all, guint n, double tolerance, GString *out,
                 GError **error)
{
  Spread time = spread_of (all, n, FALSE), memory = spread_of (all, n, TRUE);
  gboolean bytes = TRUE;

  for (guint i = 0; i < n; i++)
    bytes &= all[i].bytes_agree;
  if (o->json) {
    if (!add_json (all, n, time, memory, out, error))
      return FALSE;
  } else {
    add_runs (all, n, out);
    if (o->ops)
      add_ops (all, n, out);
    g_string_append_c (out, '\n');
    add_spread ("step time", time, out);
    g_string_append_printf (
        out,
        "in the 95 %% interval of the profile, its curves and its cards, which knows no error of the "
        "model: %u of %u runs; of the curves alone %u\n",
        count_inside (all, n, FALSE), n, count_inside (all, n, TRUE));
    add_clocks (all, n, out);
    add_spread ("memory", memory, out);
    add_agreeing (all, n, out);
    add_lateness (all, n, out);
  }
  if (time.median <= tolerance && time.worst <= WORST_FACTOR * tolerance && bytes)
    return TRUE;
  g_set_error (error, SP_CLI_ERROR, SP_CLI_ERROR_BEYOND,
               "beyond the tolerance of %.3g %% (three times that for the worst run): median %.1f %%, worst %.1f %%%s",
               100 * tolerance, 100 * time.median, 100 * time.worst, bytes ? "" : "; bytes differ");
  return FALSE;
}
