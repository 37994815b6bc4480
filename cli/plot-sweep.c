/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep that a figure of a scenario needs: the one that is asked for, or its kind's own. */
#include <math.h>
#include <string.h>

#include "cli/plot.h"
#include "cli/sweep.h"
#include "models/inputs/ini.h"
#include "models/writer.h"
#include "models/inputs/csv.h"

#define MOST_STRATEGIES 6 /* as many curves as are read with ease */

/* From a sixteenth of the scenario's tokens to four times, in powers of two. */
static char *
sequence_axis (const SpScenario *s)
{
  double middle = log2 ((double) s->run.sequence);
  gint64 least = (gint64) 1 << (gint) MAX (floor (middle) - 4, 0),
         most = (gint64) 1 << (gint) MIN (ceil (middle) + 2, 30);

  return g_strdup_printf ("sequence=%" G_GINT64_FORMAT "..%" G_GINT64_FORMAT "*2", least, most);
}

/* Every two factors of the sequence ranks: softmax layers have a ring, linear ones a chain or gather. */
static char *
factor_axis (const SpScenario *s, gint32 ranks)
{
  SpLayout probe = SP_LAYOUT_DEFAULT;
  g_autoptr (GPtrArray) steps = g_ptr_array_new_with_free_func (g_free);

  probe.ring = 2;
  gboolean softmax = sp_layout_sequence_ranks (&probe, s->arch) == 2;
  for (gint32 u = 1; u <= ranks; u++) {
    if (ranks % u != 0)
      continue;
    for (gint version = 1; version <= (softmax || u == ranks ? 1 : 2); version++)
      g_ptr_array_add (
          steps, softmax ? g_strdup_printf ("%d:%d", u, ranks / u)
                         : g_strdup_printf ("%d:%d:%d", u, ranks / u, u == ranks ? s->layout.lasp_version : version));
  }
  g_ptr_array_add (steps, NULL);
  g_autofree char *list = g_strjoinv (",", (char **) steps->pdata);
  return g_strconcat (softmax ? "ulysses:ring=" : "ulysses:lasp:lasp-version=", list, NULL);
}

/* With one sequence rank there is nothing to cut: what is recomputed. */
static char *
strategy_axis (const SpScenario *s)
{
  gint32 ranks = sp_layout_sequence_ranks (&s->layout, s->arch);

  return ranks > 1 ? factor_axis (s, ranks) : g_strdup ("recompute=none,selective,full");
}

/* Illegal ones of the ways that nobody asked for are left out, and of the rest all but some: those that are quickest
 * where they fit. */
typedef struct {
  SpSweepAxis *axis;
  GArray *kept; /* Ranked */
} Choice;

typedef struct {
  guint step;
  gboolean fits;
  double tokens_per_s;
} Ranked;

static gint
compare_ranked (gconstpointer a, gconstpointer b)
{
  const Ranked *x = a, *y = b;

  if (x->fits != y->fits)
    return y->fits - x->fits;
  return x->tokens_per_s < y->tokens_per_s ? 1 : x->tokens_per_s > y->tokens_per_s ? -1 : (gint) (x->step - y->step);
}

static gint
compare_steps (gconstpointer a, gconstpointer b)
{
  return (gint) ((const Ranked *) a)->step - (gint) ((const Ranked *) b)->step;
}

/* The axis with the legal steps of it alone. */
static char *
legal_axis (const SpPlotQuestion *q, const char *text, guint most, GError **error)
{
  char *axes[] = { (char *) text, NULL };
  g_autoptr (SpSweep) sweep = sp_sweep_new (q->input, q->sets, axes, error);

  if (sweep == NULL)
    return NULL;
  sp_sweep_prepare (sweep);
  g_autoptr (GString) rows = sp_sweep_text (sweep, 0, error);
  if (rows == NULL)
    return NULL;
  g_autoptr (SpCsv) csv = sp_csv_new (q->input, g_strdup (rows->str), rows->len, error);
  g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (Ranked));
  gint outcome = sp_csv_find (csv, "outcome"), tokens = sp_csv_find (csv, "tokens_per_s");
  for (guint i = 0; i < csv->rows->len; i++) {
    g_autofree char *said = sp_csv_text (csv, i, outcome);
    const Ranked ranked = { i, g_str_equal (said, sp_sweep_outcomes[SP_OUTCOME_FITS]), sp_csv_number (csv, i, tokens) };
    if (!g_str_equal (said, sp_sweep_outcomes[SP_OUTCOME_REFUSED]))
      g_array_append_val (kept, ranked);
  }
  g_array_sort (kept, compare_ranked);
  g_array_set_size (kept, MIN (kept->len, most));
  g_array_sort (kept, compare_steps);
  const SpSweepAxis *axis = sweep->axes->pdata[0];
  g_autoptr (GString) list = g_string_new (NULL);
  for (guint i = 0; i < kept->len; i++) {
    g_autofree char *step = g_strjoinv (":", axis->steps->pdata[g_array_index (kept, Ranked, i).step]);
    g_string_append_printf (list, "%s%s", i > 0 ? "," : "", step);
  }
  g_autofree char *keys = g_strjoinv (":", axis->keys);
  return g_strdup_printf ("%s=%s", keys, list->str);
}

static char **
own_axes (const SpPlotQuestion *q, const SpKind *kind, GError **error)
{
  g_autofree char *path = sp_cli_find_scenario (q->input, error);
  g_autoptr (SpScenario) s = path != NULL ? sp_scenario_load (path, (const char *const *) q->sets, error) : NULL;

  if (s == NULL || !sp_cli_check_layout (s, error))
    return NULL;
  g_autofree char *ways = strategy_axis (s), *tokens = sequence_axis (s);
  gboolean all = kind->source == SP_SOURCE_STRATEGIES;
  g_autofree char *legal = legal_axis (q, ways, all ? G_MAXUINT : MOST_STRATEGIES, error);
  if (legal == NULL)
    return NULL;
  gboolean both = g_str_equal (kind->name, "scaling") || g_str_equal (kind->name, "heatmap");
  char *axes[] = { both ? legal : all ? legal : tokens, both ? tokens : NULL, NULL };
  return g_strdupv (axes);
}

GString *
sp_plot_sweep (const SpPlotQuestion *q, const SpKind *kind, GError **error)
{
  g_auto (GStrv) axes = q->axes != NULL ? g_strdupv (q->axes) : own_axes (q, kind, error);
  g_autoptr (SpSweep) sweep = axes != NULL ? sp_sweep_new (q->input, q->sets, axes, error) : NULL;

  if (sweep == NULL || (q->axes != NULL && !sp_sweep_check_sets (sweep, error)))
    return NULL;
  sweep->simulates = q->simulates;
  sp_sweep_prepare (sweep);
  return sp_sweep_text (sweep, 0, error);
}
