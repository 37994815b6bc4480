/* SPDX-License-Identifier: Apache-2.0 */
/* What figures with measurements are drawn from: points and curves, runs and predictions, kernels under a roof. */
#include <string.h>

#include "cli/calibrate.h"
#include "cli/plot.h"
#include "cli/validate.h"
#include "models/estimate/clock.h"
#include "models/inputs/ini.h"
#include "models/writer.h"
#include "models/inputs/csv.h"

/* --- points and curves -------------------------------------------------------------------------------------------- */

static const char *
class_of (SpCurveKind kind)
{
  return kind <= SP_CURVE_KERNEL ? "kernels" : kind == SP_CURVE_COPY ? "copies" : "transfers";
}

static void
append_names (GString *text, char **files)
{
  for (guint i = 0; files[i] != NULL; i++) {
    g_autofree char *base = g_path_get_basename (files[i]);
    g_string_append_printf (text, "%s%s", i > 0 ? " and " : "", base);
  }
}

/* INPUT and what follows it. */
static char **
files_of (const SpPlotQuestion *q)
{
  g_autoptr (GPtrArray) files = g_ptr_array_new ();

  g_ptr_array_add (files, (gpointer) q->input);
  for (guint i = 0; q->more != NULL && q->more[i] != NULL; i++)
    g_ptr_array_add (files, q->more[i]);
  g_ptr_array_add (files, NULL);
  return g_strdupv ((char **) files->pdata);
}

GString *
sp_plot_fit (const SpPlotQuestion *q, GError **error)
{
  g_auto (GStrv) files = files_of (q);
  g_auto (SpMeasuredSets) m = { NULL };
  g_autoptr (GString) names = g_string_new (NULL);

  if (!sp_fit_is_built (error) || !sp_calibrate_points (files, NULL, 0, &m, error))
    return NULL;
  append_names (names, files);
  g_autoptr (GArray) points = sp_fit_each (m.points, &m.given);
  GString *text = g_string_new ("curve,class,size,measured_s,fitted_s,held_out_s,device,source\n");
  for (guint i = 0; i < points->len; i++) {
    const SpFittedPoint *p = &g_array_index (points, SpFittedPoint, i);
    g_autoptr (GString) line = g_string_new (NULL);
    sp_csv_append (line, p->curve);
    g_string_append_printf (line, ",%s,%.9g,%.9g,%.9g,", class_of (p->kind), p->size, p->measured_s, p->fitted_s);
    if (p->held_out_s > 0)
      g_string_append_printf (line, "%.9g", p->held_out_s);
    sp_csv_append (line, i == 0 && m.card != NULL ? m.card : "");
    sp_csv_append (line, i == 0 ? names->str : "");
    g_string_append_printf (text, "%s\n", line->str);
  }
  return text;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

GString *
sp_plot_check (const SpPlotQuestion *q, GError **error)
{
  if (q->more == NULL || q->more[0] == NULL || q->more[1] != NULL) {
    sp_cli_usage (error, "accuracy takes a CSV that it wrote, or PROFILE EXECUTED.csv as calibrate check does");
    return NULL;
  }
  return sp_calibrate_check_rows (q->input, q->more[0], error);
}

GString *
sp_plot_validation (const SpPlotQuestion *q, GError **error)
{
  g_auto (GStrv) names = files_of (q);

  return sp_validate_rows (names, error);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static const char *
family_of (SpOpKind kind)
{
  const char *name = sp_op_name (kind);

  if (strstr (name, "gemm") != NULL)
    return "GEMM";
  if (strstr (name, "linear") != NULL || strstr (name, "state") != NULL || strstr (name, "recurrent") != NULL)
    return "linear attention";
  return strstr (name, "attention") != NULL ? "attention" : "other kernels";
}

static void
append_kernel (GString *text, const char *of, const char *name, double flops, double bytes, double seconds)
{
  g_string_append_printf (text, "%s,%s,%.9g,%.9g,%.9g", of, name, flops, bytes, seconds);
}

/* Of a program each kernel once, whatever runs it how often. */
static void
append_priced (const SpScenario *s, const SpEstimator *estimator, const SpProgram *program, GString *text,
               const char *rest, const char *subject)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autofree double *clocks = sp_clock_of_ops (&estimator->cost, program);
  SpCost at = estimator->cost;
  gboolean first = TRUE;

  for (guint i = 0; i < program->n_ops; i++) {
    const SpOp *op = &program->ops[i];
    at.clock = clocks[i];
    if (sp_op_is_communication (op->kind) || op->flops <= 0 || op->bytes <= 0)
      continue;
    char *key = g_strdup_printf ("%d %.0f %.0f", op->kind, (double) op->flops, (double) op->bytes);
    if (!g_hash_table_add (seen, key))
      continue;
    append_kernel (text, "priced", family_of (op->kind), (double) op->flops, (double) op->bytes, sp_cost_op (&at, op));
    g_string_append_printf (text, ",%.9g,%.9g%s\n", s->cluster->device->peak_bf16_flops_per_s.value,
                            s->cluster->device->memory_bytes_per_s.value, first ? subject : rest);
    first = FALSE;
  }
}

/* Of measured CSVs what says its FLOP and bytes: GEMMs, and kernels of programs. */
static gboolean
append_measured (const SpPlotQuestion *q, const SpScenario *s, GString *text, const char *rest, GError **error)
{
  g_auto (SpMeasuredSets) m = { NULL };

  if (q->more == NULL || q->more[0] == NULL)
    return TRUE;
  if (!sp_calibrate_points (q->more, NULL, 0, &m, error))
    return FALSE;
  for (guint i = 0; i < m.points->points->len; i++) {
    const SpPoint *p = &g_array_index (m.points->points, SpPoint, i);
    double batch = (double) MAX (p->batch, 1), mn = (double) p->m * (double) p->n, k = (double) p->k;
    double flops = p->flops, bytes = (double) p->bytes;
    if (p->beside != SP_MEASURED_NONE || (p->op != SP_MEASURED_GEMM && p->op != SP_MEASURED_KERNEL))
      continue;
    if (p->op == SP_MEASURED_GEMM) {
      flops = 2 * batch * mn * k;
      bytes = 2 * batch * (mn + k * (double) (p->m + p->n));
    }
    if (flops <= 0 || bytes <= 0)
      continue;
    g_autofree char *name = g_strdup_printf ("measured %s", p->op == SP_MEASURED_GEMM ? "GEMM" : family_of (p->kernel));
    append_kernel (text, "measured", name, flops, bytes, p->seconds);
    g_string_append_printf (text, ",%.9g,%.9g%s\n", s->cluster->device->peak_bf16_flops_per_s.value,
                            s->cluster->device->memory_bytes_per_s.value, rest);
  }
  return TRUE;
}

GString *
sp_plot_kernels (const SpPlotQuestion *q, GError **error)
{
  g_autoptr (SpScenario) s = sp_cli_load_scenario (q->input, q->sets, error);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpEstimator estimator;
  SpEstimate estimate;

  if (s == NULL || !sp_cli_check_layout (s, error))
    return NULL;
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&estimator, program, &s->layout, &s->run, &estimate);
  g_autofree char *base = g_path_get_basename (s->path), *layout = sp_layout_describe (&s->layout, s->arch);
  g_autoptr (GString) subject = g_string_new (" ");
  const char *words[] = { s->arch->name, s->cluster->device->name, layout, sp_provenance_name (estimate.provenance),
                          base };
  if (g_str_has_suffix (base, ".ini"))
    *strrchr (base, '.') = '\0';
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    sp_csv_append (subject, words[i]);
  GString *text = g_string_new ("of,name,flops,bytes,time_s,peak_flops_per_s,memory_bytes_per_s,model,device,layout,"
                                "provenance,scenario\n");
  append_priced (s, &estimator, program, text, ",,,,,", subject->str + 1);
  if (append_measured (q, s, text, ",,,,,", error))
    return text;
  g_string_free (text, TRUE);
  return NULL;
}
