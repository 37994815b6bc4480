/* SPDX-License-Identifier: Apache-2.0 */
/* A point of a sweep as a row of its CSV. */
#include <math.h>
#include <string.h>

#include "cli/sweep.h"
#include "models/estimate/interval.h"
#include "models/writer.h"
#include "models/inputs/csv.h"

const char *const sp_sweep_outcomes[] = { "fits", "out of memory", "out of host memory", "refused", "failed", NULL };

/* Figures of an estimate: `digits` significant ones, or whole numbers. */
typedef struct {
  const char *name;
  gsize offset;
  gboolean whole;
} Figure;

#define FIGURE(field) G_STRUCT_OFFSET (SpEstimate, field)
static const Figure figures[] = {
  { "step_time_s", FIGURE (step_time_s) },
  { "step_time_low_s", FIGURE (low_s) },
  { "step_time_serial_s", FIGURE (serial_s) },
  { "step_time_high_s", FIGURE (high_s) },
  { "interval_low_s", FIGURE (interval_s[0]) },
  { "interval_high_s", FIGURE (interval_s[1]) },
  { "tokens_per_s", FIGURE (tokens_per_s) },
  { "mfu", FIGURE (mfu) },
  { "mfu_causal", FIGURE (mfu_causal) },
  { "hfu", FIGURE (hfu) },
  { "compute_s", FIGURE (compute_s) },
  { "exposed_communication_s", FIGURE (exposed_communication_s) },
  { "bubble_s", FIGURE (bubble_s) },
  { "host_s", FIGURE (host_s) },
  { "idle_s", FIGURE (idle_s) },
  { "peak_bytes", FIGURE (memory.total_bytes), TRUE },
  { "capacity_bytes", FIGURE (capacity_bytes), TRUE },
  { "host_bytes", FIGURE (host_bytes), TRUE },
};
#undef FIGURE

/* Of an axis, behind its name. */
#define FIGURE(field) G_STRUCT_OFFSET (SpAxisCost, field)
static const Figure axis_figures[] = {
  { "payload_bytes_per_gpu", FIGURE (payload_bytes.max), TRUE },
  { "wire_bytes_per_gpu", FIGURE (wire_bytes.max), TRUE },
  { "time_s", FIGURE (time_s) },
  { "exposed_s", FIGURE (exposed_s) },
};
#undef FIGURE

static const char *const subjects[] = { "gpus",    "sequence_tokens", "global_batch", "model",
                                        "cluster", "device",          "framework",    "layout",
                                        "engine",  "provenance",      "scenario",     "inputs" };

/* What a key's column is called: with its unit, where its values have one. */
static const char *
column_of (const char *key)
{
  return g_str_equal (key, "sequence") || g_str_equal (key, "run.sequence") ? "sequence_tokens" : key;
}

static gboolean
is_swept (const SpSweep *sweep, const char *column)
{
  for (guint i = 0; i < sweep->axes->len; i++) {
    char **keys = ((const SpSweepAxis *) sweep->axes->pdata[i])->keys;
    for (guint k = 0; keys[k] != NULL; k++)
      if (g_str_equal (column_of (keys[k]), column))
        return TRUE;
  }
  return FALSE;
}

char *
sp_sweep_header (const SpSweep *sweep)
{
  GString *line = g_string_new (NULL);

  for (guint i = 0; i < sweep->axes->len; i++) {
    char **keys = ((const SpSweepAxis *) sweep->axes->pdata[i])->keys;
    for (guint k = 0; keys[k] != NULL; k++)
      sp_csv_append (line, column_of (keys[k]));
  }
  sp_csv_append (line, "outcome");
  sp_csv_append (line, "reason");
  for (guint i = 0; i < G_N_ELEMENTS (figures); i++)
    sp_csv_append (line, figures[i].name);
  for (guint c = 0; c < SP_N_CLASSES; c++) {
    g_autofree char *name = g_strconcat (sp_class_name ((SpClass) c), "_bytes", NULL);
    sp_csv_append (line, name);
  }
  for (guint a = 0; a < SP_N_AXES; a++)
    for (guint i = 0; i < G_N_ELEMENTS (axis_figures); i++) {
      g_autofree char *name = g_strconcat (sp_axis_name ((SpAxis) a), "_", axis_figures[i].name, NULL);
      sp_csv_append (line, name);
    }
  for (guint i = 0; i < G_N_ELEMENTS (subjects); i++)
    if (!is_swept (sweep, subjects[i]))
      sp_csv_append (line, subjects[i]);
  g_string_append_c (line, '\n');
  return g_string_free (line, FALSE);
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

static void
append_figure (GString *line, const Figure *figure, gconstpointer of)
{
  double value = of != NULL ? *(const double *) ((const char *) of + figure->offset) : 0;
  char digits[G_ASCII_DTOSTR_BUF_SIZE] = "";

  if (of != NULL && figure->whole)
    g_ascii_formatd (digits, sizeof digits, "%.0f", value);
  else if (of != NULL)
    g_ascii_formatd (digits, sizeof digits, "%.9g", value + 0.0);
  sp_csv_append (line, digits);
}

static gboolean
is_interval (const Figure *figure)
{
  return g_str_has_prefix (figure->name, "interval_");
}

static void
append_figures (GString *line, const SpEstimate *e)
{
  for (guint i = 0; i < G_N_ELEMENTS (figures); i++)
    append_figure (line, &figures[i], is_interval (&figures[i]) && e != NULL && e->interval_s[1] == 0 ? NULL : e);
  for (guint c = 0; c < SP_N_CLASSES; c++) {
    const Figure class = { NULL, c * sizeof (double), TRUE };
    append_figure (line, &class, e != NULL ? e->memory.by_class : NULL);
  }
  for (guint a = 0; a < SP_N_AXES; a++)
    for (guint i = 0; i < G_N_ELEMENTS (axis_figures); i++)
      append_figure (line, &axis_figures[i], e != NULL ? &e->axes[a] : NULL);
}

static void
append_subjects (const SpSweep *sweep, const SpScenario *s, const SpEstimate *e, GString *line)
{
  g_auto (GStrv) values = g_new0 (char *, G_N_ELEMENTS (subjects) + 1);
  g_autofree char *base = g_path_get_basename (sweep->path);
  guint n = 0;

  values[n++] = s != NULL ? g_strdup_printf ("%d", sp_cli_gpus (s->cluster)) : g_strdup ("");
  values[n++] = s != NULL ? g_strdup_printf ("%" G_GINT64_FORMAT, s->run.sequence) : g_strdup ("");
  values[n++] = s != NULL ? g_strdup_printf ("%d", s->run.global_batch) : g_strdup ("");
  values[n++] = g_strdup (s != NULL ? s->arch->name : "");
  values[n++] = g_strdup (s != NULL ? s->cluster->name : "");
  values[n++] = g_strdup (s != NULL ? s->cluster->device->name : "");
  values[n++] = g_strdup (s != NULL ? s->framework->name : "");
  values[n++] = s != NULL ? sp_layout_describe (&s->layout, s->arch) : g_strdup ("");
  values[n++] = g_strdup (sweep->simulates ? "simulate" : "estimate");
  values[n++] = g_strdup (e != NULL ? sp_provenance_name (e->provenance) : "");
  values[n++] = g_str_has_suffix (base, ".ini") ? g_strndup (base, strlen (base) - strlen (".ini")) : g_strdup (base);
  values[n++] = g_strdup (sweep->inputs);
  for (guint i = 0; i < n; i++)
    if (!is_swept (sweep, subjects[i]))
      sp_csv_append (line, values[i]);
}

char *
sp_sweep_cell (const char *key, const char *value)
{
  double tokens;
  gboolean number = !g_str_equal (column_of (key), key) && sp_parse_quantity (value, SP_UNIT_TOKENS, &tokens, NULL);

  return number ? g_strdup_printf ("%.0f", tokens) : g_strdup (value);
}

char **
sp_sweep_cells (const SpSweep *sweep, guint point)
{
  g_autoptr (GPtrArray) values = g_ptr_array_new ();
  guint at = 0;

  sp_sweep_values (sweep, point, values);
  char **cells = g_new0 (char *, values->len + 1);
  for (guint i = 0; i < sweep->axes->len; i++) {
    char **keys = ((const SpSweepAxis *) sweep->axes->pdata[i])->keys;
    for (guint k = 0; keys[k] != NULL; k++, at++)
      cells[at] = sp_sweep_cell (keys[k], values->pdata[at]);
  }
  return cells;
}

/* --- a point ------------------------------------------------------------------------------------------------------ */

static SpScenario *
load (const SpSweep *sweep, guint point, GError **error)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new_with_free_func (g_free), values = g_ptr_array_new ();
  guint at = 0;

  for (guint i = 0; sweep->sets != NULL && sweep->sets[i] != NULL; i++)
    g_ptr_array_add (sets, g_strdup (sweep->sets[i]));
  sp_sweep_values (sweep, point, values);
  for (guint i = 0; i < sweep->axes->len; i++) {
    char **keys = ((const SpSweepAxis *) sweep->axes->pdata[i])->keys;
    for (guint k = 0; keys[k] != NULL; k++)
      g_ptr_array_add (sets, g_strconcat (keys[k], "=", values->pdata[at++], NULL));
  }
  g_ptr_array_add (sets, NULL);
  return sp_scenario_load (sweep->path, (const char *const *) sets->pdata, error);
}

/* Rows of another question must not be taken for this one's. What the first point reads is what all do, but for files
 * that are swept, which were looked at before. */
void
sp_sweep_prepare (SpSweep *sweep)
{
  g_autoptr (SpScenario) first = load (sweep, 0, NULL);
  g_autofree char *files = sp_inputs_digest ();
  g_autofree char *sets = sweep->sets != NULL ? g_strjoinv ("\n", sweep->sets) : g_strdup ("");
  g_autofree char *all =
      g_strdup_printf ("%s\n%s\n%d %d %d", files, sets, sweep->simulates, sweep->intervals, (int) sweep->convention);
  g_autofree char *digest = g_compute_checksum_for_string (G_CHECKSUM_SHA256, all, -1);

  sweep->inputs = g_strndup (digest, 12);
}

gboolean
sp_sweep_may_have_intervals (const SpSweep *sweep)
{
  static const char *const bringing[] = { "profile", "cluster.profile", "file", "cluster.file", NULL };
  g_autoptr (SpScenario) first = load (sweep, 0, NULL);

  for (guint a = 0; a < sweep->axes->len; a++) {
    const SpSweepAxis *axis = sweep->axes->pdata[a];
    for (guint k = 0; axis->keys[k] != NULL; k++)
      if (g_strv_contains (bringing, axis->keys[k]))
        return TRUE;
  }
  return first == NULL || first->cluster->profile != NULL; /* a first point that is refused says nothing */
}

/* As `seqpar run` does. */
static SpOutcome
price (const SpSweep *sweep, SpScenario *s, SpProgram *program, SpEstimate *ret, GError **error)
{
  SpEstimator estimator;
  SpInterval interval;

  if (!sp_scenario_check_run (s, sweep->simulates, error))
    return SP_OUTCOME_REFUSED;
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, sweep->convention);
  if (!sp_scenario_price (s, &estimator, program, sweep->simulates, ret, error))
    return SP_OUTCOME_FAILED;
  if (sweep->intervals && sp_estimate_interval (&estimator, program, &s->run, &interval))
    sp_interval_apply (&interval, ret);
  if (ret->fits)
    return SP_OUTCOME_FITS;
  return ret->memory.total_bytes > ret->capacity_bytes ? SP_OUTCOME_MEMORY : SP_OUTCOME_HOST_MEMORY;
}

/* Without the scenario's path, so that rows are the same on every machine. */
static const char *
reason_of (const SpSweep *sweep, const char *message)
{
  gsize n = strlen (sweep->path);

  return g_str_has_prefix (message, sweep->path) && g_str_has_prefix (message + n, ": ") ? message + n + 2 : message;
}

static char *
lack_of (SpOutcome outcome, const SpEstimate *e)
{
  g_autofree char *lack = sp_text_bytes (e->memory.total_bytes - e->capacity_bytes);
  g_autofree char *host = sp_text_bytes (e->host_bytes);

  if (outcome == SP_OUTCOME_MEMORY)
    return g_strdup_printf ("lacks %s", lack);
  return g_strdup_printf ("%s of host memory a GPU is more than its node has", host);
}

char *
sp_sweep_row (const SpSweep *sweep, SpProgram *program, guint point, SpOutcome *ret)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) s = load (sweep, point, &error);
  GString *line = g_string_new (NULL);
  SpEstimate estimate;

  *ret = s != NULL ? price (sweep, s, program, &estimate, &error) : SP_OUTCOME_REFUSED;
  gboolean priced = *ret < SP_OUTCOME_REFUSED;
  g_autofree char *lack = priced && *ret != SP_OUTCOME_FITS ? lack_of (*ret, &estimate) : NULL;
  g_auto (GStrv) cells = sp_sweep_cells (sweep, point);
  for (guint i = 0; cells[i] != NULL; i++)
    sp_csv_append (line, cells[i]);
  sp_csv_append (line, sp_sweep_outcomes[*ret]);
  sp_csv_append (line, error != NULL ? reason_of (sweep, error->message) : lack != NULL ? lack : "");
  append_figures (line, priced ? &estimate : NULL);
  append_subjects (sweep, s, priced ? &estimate : NULL, line);
  g_string_append_c (line, '\n');
  return g_string_free (line, FALSE);
}
