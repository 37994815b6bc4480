/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/steps.h"

#include "models/inputs/ini.h"
#include "models/writer.h"

#include <math.h>
#include <string.h>

#define HOST_BOUND_SPREAD 1.05

const char *const sp_steps_parameters[SP_STEPS_N_PARAMETERS + 1] = { "host-launch", "host-gather", "elementwise-time",
                                                                     "attention-time", NULL };

enum { MODE, SEQUENCE, BATCH, CHECKPOINT, STATUS, LEAST, MEDIAN, MOST, ALLOCATED, MODEL, N_COLUMNS };

static const char *const names[N_COLUMNS + 1] = {
  "mode",           "sequence",    "batch_per_dp_rank", "full_checkpoint", "status", "step_min_ms",
  "step_median_ms", "step_max_ms", "max_allocated_mib", "model",           NULL
};

typedef struct {
  const char *path, *folder;
  const char *const *sets;
  guint line;
  gint at[N_COLUMNS]; /* in the file; -1: it has none */
  SpSteps *into;
} Reader;

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void
row_free (gpointer data)
{
  SpStepsRow *row = data;

  g_clear_pointer (&row->scenario, sp_scenario_free);
  g_clear_pointer (&row->program, sp_program_free);
  g_free (row->mode);
  g_free (row);
}

void
sp_steps_free (SpSteps *steps)
{
  g_ptr_array_unref (steps->rows);
  g_free (steps->path);
  g_free (steps);
}

static gboolean
refuse (const Reader *r, guint column, const char *value, const char *expected, GError **error)
{
  g_autofree char *shown = sp_measured_shown (value);

  return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line, "%s = \"%s\": expected %s", names[column],
                           shown, expected);
}

static gboolean
read_head (Reader *r, char **cells, GError **error)
{
  for (guint c = 0; c < N_COLUMNS; c++) {
    r->at[c] = -1;
    for (guint i = 0; cells[i] != NULL; i++)
      if (g_str_equal (cells[i], names[c]))
        r->at[c] = (gint) i;
    if (r->at[c] < 0 && c != MODEL)
      return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, r->path, r->line, "no column %s", names[c]);
  }
  return TRUE;
}

static gboolean
read_number (const Reader *r, char **cells, guint column, double least, double most, double *ret, GError **error)
{
  const char *cell = cells[r->at[column]];

  return sp_measured_number (cell, least, most, ret) || refuse (r, column, cell, "a number", error);
}

/* The row's own keys after those that are given for all. */
static char **
sets_of (const Reader *r, char **cells, gint64 batch, gint32 data)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new ();
  gboolean whole = g_str_equal (cells[r->at[CHECKPOINT]], "1");

  for (guint i = 0; r->sets != NULL && r->sets[i] != NULL; i++)
    g_ptr_array_add (sets, g_strdup (r->sets[i]));
  g_ptr_array_add (sets, g_strconcat ("sequence=", cells[r->at[SEQUENCE]], NULL));
  g_ptr_array_add (sets, g_strdup_printf ("micro-batch=%" G_GINT64_FORMAT, batch));
  g_ptr_array_add (sets, g_strdup_printf ("global-batch=%" G_GINT64_FORMAT, batch * data));
  g_ptr_array_add (sets, g_strdup (whole ? "recompute=full" : "recompute=none"));
  g_ptr_array_add (sets, NULL);
  return (char **) g_ptr_array_free (g_steal_pointer (&sets), FALSE);
}

static gboolean
load (const Reader *r, char **cells, SpStepsRow *row, GError **error)
{
  g_autofree char *file = g_strconcat (row->mode, ".ini", NULL);
  g_autofree char *path = g_build_filename (r->folder, file, NULL);
  double batch;

  if (!read_number (r, cells, BATCH, 1, 1e6, &batch, error))
    return FALSE;
  if (batch != floor (batch))
    return refuse (r, BATCH, cells[r->at[BATCH]], "a whole number", error);
  g_autoptr (SpScenario) plain = sp_scenario_load (path, r->sets, error);
  if (plain == NULL)
    return FALSE;
  g_auto (GStrv) sets = sets_of (r, cells, (gint64) batch, plain->layout.data);
  SpScenario *s = row->scenario = sp_scenario_load (path, (const char *const *) sets, error);
  if (s == NULL)
    return FALSE;
  if (!sp_layout_check (&s->layout, s->arch, s->framework, &s->run, s->cluster->nodes * s->cluster->gpus_per_node,
                        error))
    return FALSE;
  if (r->at[MODEL] >= 0 && !g_str_equal (cells[r->at[MODEL]], s->arch->name))
    return refuse (r, MODEL, cells[r->at[MODEL]], s->arch->name, error);
  row->program = sp_program_new ();
  sp_program_write (row->program, s->arch, s->framework, &s->layout, &s->run);
  return TRUE;
}

static gboolean
read_times (const Reader *r, char **cells, SpStepsRow *row, GError **error)
{
  double least, median, most, allocated;

  if (!read_number (r, cells, LEAST, 1e-3, 1e9, &least, error) ||
      !read_number (r, cells, MEDIAN, 1e-3, 1e9, &median, error) ||
      !read_number (r, cells, MOST, 1e-3, 1e9, &most, error) ||
      !read_number (r, cells, ALLOCATED, 1, 1e9, &allocated, error))
    return FALSE;
  if (!(least <= median && median <= most))
    return refuse (r, MEDIAN, cells[r->at[MEDIAN]], "a time between the smallest and the largest", error);
  row->step_s = median * 1e-3;
  row->spread = most / least;
  row->allocated_bytes = allocated * 0x1p20;
  return TRUE;
}

static gboolean
read_row (const Reader *r, char **cells, GError **error)
{
  SpStepsRow *row = g_new0 (SpStepsRow, 1);
  const char *checkpoint = cells[r->at[CHECKPOINT]], *status = cells[r->at[STATUS]];

  g_ptr_array_add (r->into->rows, row);
  row->mode = g_strdup (cells[r->at[MODE]]);
  row->is_oom = g_str_equal (status, "oom");
  if (*row->mode == '\0' || strpbrk (row->mode, "/\\") != NULL)
    return refuse (r, MODE, row->mode, "a name without a slash", error);
  if (!g_str_equal (checkpoint, "0") && !g_str_equal (checkpoint, "1"))
    return refuse (r, CHECKPOINT, checkpoint, "0 or 1", error);
  if (!row->is_oom && !g_str_equal (status, "ok"))
    return refuse (r, STATUS, status, "ok or oom", error);
  return load (r, cells, row, error) && (row->is_oom || read_times (r, cells, row, error));
}

SpSteps *
sp_steps_read (const char *path, const char *folder, const char *const *sets, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);
  if (text == NULL)
    return NULL;
  g_autoptr (SpSteps) steps = g_new0 (SpSteps, 1);
  Reader r = { .path = path, .folder = folder, .sets = sets, .into = steps };
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  guint n_columns = 0;

  steps->path = g_strdup (path);
  steps->rows = g_ptr_array_new_with_free_func (row_free);
  for (guint i = 0; lines[i] != NULL; i++) {
    g_autofree char *line = g_strdup (g_strstrip (lines[i]));
    if (*line == '\0' || *line == '#')
      continue;
    r.line = i + 1;
    g_auto (GStrv) cells = g_strsplit (line, ",", -1);
    guint n = g_strv_length (cells);
    if (n_columns == 0) {
      n_columns = n;
      if (!read_head (&r, cells, error))
        return NULL;
      continue;
    }
    if (n != n_columns) {
      sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, path, r.line, "%u columns, expected %u", n, n_columns);
      return NULL;
    }
    if (!read_row (&r, cells, error)) {
      if (error != NULL && (*error)->domain != SP_MEASURED_ERROR)
        g_prefix_error (error, "%s:%u: ", path, r.line);
      return NULL;
    }
  }
  if (steps->rows->len == 0) {
    sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, path, 1, "no rows, expected steps by mode");
    return NULL;
  }
  return g_steal_pointer (&steps);
}

/* --- predicting --------------------------------------------------------------------------------------------------- */

gboolean
sp_steps_is_host_bound (const SpStepsRow *row)
{
  return row->spread > HOST_BOUND_SPREAD;
}

void
sp_steps_predict (const SpStepsRow *row, const double *values, SpEstimate *ret)
{
  SpFramework framework = *row->scenario->framework;
  SpEstimator estimator;

  if (values != NULL) {
    framework.host_launch_s.value = values[SP_STEPS_LAUNCH];
    framework.host_gather_s.value = values[SP_STEPS_GATHER];
    framework.elementwise_time.value = values[SP_STEPS_ELEMENTWISE];
    framework.attention_time.value = values[SP_STEPS_ATTENTION];
  }
  sp_estimator_init (&estimator, row->scenario->arch, row->scenario->cluster, &framework, SP_MFU_SEQPAR);
  sp_estimate_program (&estimator, row->program, &row->scenario->run, ret);
}

double
sp_steps_allocated_bytes (const SpEstimate *estimate)
{
  return estimate->memory.total_bytes - estimate->memory.by_class[SP_CLASS_RESERVED];
}
