/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What `seqpar plot` draws from where a scenario is given and no CSV: the text of the CSV that the figure's kind reads
 * (plots/kind.h), made of the runs that it needs.
 */

#include "cli/cli.h"
#include "plots/kind.h"

G_BEGIN_DECLS

typedef struct {
  const char *input;
  char **more; /* inputs behind it; NULL-terminated, or NULL */
  char **sets, **axes;
  gboolean simulates;
} SpPlotQuestion;

/* --- plot.c ------------------------------------------------------------------------------------------------------- */

/* A kind of a scenario at its usual size, as SVG behind what `out` has. SP_FIGURE_ERROR_DATA: it has nothing to show. */
gboolean sp_plot_svg (const char *kind, const SpPlotQuestion *question, GString *out, GError **error);

/* A kind of a CSV's text, as a file of its usual size; `name` is what messages call the text. */
gboolean sp_plot_file (const char *kind, const char *name, const GString *csv, const char *path, GError **error);

/* --- plot-sweep.c ------------------------------------------------------------------------------------------------- */

/* Without --sweep, of a kind's own axes: the sequence's length around the scenario's, and ways to cut it. */
GString *sp_plot_sweep (const SpPlotQuestion *question, const SpKind *kind, GError **error);

/* --- plot-simulated.c --------------------------------------------------------------------------------------------- */

GString *sp_plot_slices (const SpPlotQuestion *question, GError **error);
GString *sp_plot_memory (const SpPlotQuestion *question, GError **error);
GString *sp_plot_links (const SpPlotQuestion *question, GError **error);
GString *sp_plot_traffic (const SpPlotQuestion *question, GError **error);

/* --- plot-measured.c ---------------------------------------------------------------------------------------------- */

GString *sp_plot_fit (const SpPlotQuestion *question, GError **error);     /* of MEASURED.csv ... */
GString *sp_plot_check (const SpPlotQuestion *question, GError **error);   /* of PROFILE EXECUTED.csv */
GString *sp_plot_validation (const SpPlotQuestion *question, GError **error); /* of SET ... */
GString *sp_plot_kernels (const SpPlotQuestion *question, GError **error); /* of SCENARIO [MEASURED.csv ...] */

/* --- plot-plan.c -------------------------------------------------------------------------------------------------- */

GString *sp_plot_pareto (const SpPlotQuestion *question, GError **error);

G_END_DECLS
