/* SPDX-License-Identifier: Apache-2.0 */
#include "plots/kind.h"

#include <string.h>

static const SpKind kinds[] = {
  { "scaling", "throughput and memory over the sequence's length, GPUs or another key", SP_SOURCE_SWEEP, TRUE, 920, 380,
    NULL, sp_kind_scaling },
  { "compare", "throughput and memory of layouts side by side", SP_SOURCE_STRATEGIES, TRUE, 920, 0, sp_bars_measure,
    sp_kind_compare },
  { "memory", "memory by class against what a GPU has", SP_SOURCE_SWEEP, TRUE, 920, 0, sp_bars_measure,
    sp_kind_memory },
  { "breakdown", "the step's time: compute, exposed communication by axis, bubble", SP_SOURCE_STRATEGIES, TRUE, 920, 0,
    sp_bars_measure, sp_kind_breakdown },
  { "memory-time", "memory by class over a simulated step, of the fullest GPU", SP_SOURCE_MEMORY, FALSE, 920, 380, NULL,
    sp_kind_memory_time },
  { "timeline", "what the streams of some ranks do over a simulated step", SP_SOURCE_SLICES, FALSE, 920, 0,
    sp_timeline_measure, sp_kind_timeline },
  { "volume", "bytes of a step by axis, and on the busiest link of each kind", SP_SOURCE_TRAFFIC, FALSE, 920, 0,
    sp_volume_measure, sp_kind_volume },
  { "topology", "the cluster's links and how busy they are", SP_SOURCE_LINKS, FALSE, 920, 480, NULL, sp_kind_topology },
  { "roofline", "kernels as priced, and as measured, under the card's peak", SP_SOURCE_KERNELS, FALSE, 760, 440, NULL,
    sp_kind_roofline },
  { "calibration", "measured points, the curves through them, and what was held out", SP_SOURCE_FIT, FALSE, 920, 400,
    NULL, sp_kind_calibration },
  { "accuracy", "runs as predicted and as executed", SP_SOURCE_CHECK, FALSE, 920, 420, NULL, sp_kind_accuracy },
  { "validation", "runs that others measured, and as predicted", SP_SOURCE_VALIDATION, FALSE, 920, 460, NULL,
    sp_kind_validation },
  { "pareto", "layouts that none beats: step time against memory of a GPU, by number of GPUs", SP_SOURCE_PARETO, FALSE,
    760, 420, NULL, sp_kind_pareto },
  { "heatmap", "MFU over two keys", SP_SOURCE_SWEEP, TRUE, 760, 480, NULL, sp_kind_heatmap },
};

const SpKind *
sp_kind_get (guint i)
{
  return i < G_N_ELEMENTS (kinds) ? &kinds[i] : NULL;
}

guint
sp_kind_class_style (const char *class)
{
  static const char *const classes[] = { "parameters", "gradients", "optimizer", "activations",
                                         "logits",     "reserved",  "workspace", "communication" };

  for (guint i = 0; i < G_N_ELEMENTS (classes); i++)
    if (g_str_equal (class, classes[i]))
      return i;
  return G_N_ELEMENTS (classes);
}

guint
sp_name_number (GPtrArray *names, GHashTable *numbers, char *name)
{
  gpointer found = g_hash_table_lookup (numbers, name);

  if (found != NULL) {
    g_free (name);
    return GPOINTER_TO_UINT (found) - 1;
  }
  g_ptr_array_add (names, name);
  g_hash_table_insert (numbers, name, GUINT_TO_POINTER (names->len));
  return names->len - 1;
}

/* What all rows that say something say; NULL: they differ, or none does. */
static char *
common (const SpCsv *csv, const char *column)
{
  gint at = sp_csv_find (csv, column);
  g_autofree char *first = NULL;

  for (guint row = 0; at >= 0 && row < csv->rows->len; row++) {
    g_autofree char *text = sp_csv_text (csv, row, at);
    if (*text == '\0')
      continue;
    if (first == NULL)
      first = g_steal_pointer (&text);
    else if (!g_str_equal (first, text))
      return NULL;
  }
  return g_steal_pointer (&first);
}

static const char *
worst_provenance (const SpCsv *csv)
{
  static const char *const names[] = { "measured", "published", "datasheet", "assumed" };
  gint at = sp_csv_find (csv, "provenance"), worst = -1;

  for (guint row = 0; at >= 0 && row < csv->rows->len; row++) {
    g_autofree char *text = sp_csv_text (csv, row, at);
    for (gint i = worst + 1; i < (gint) G_N_ELEMENTS (names); i++)
      worst = g_str_equal (text, names[i]) ? i : worst;
  }
  return worst >= 0 ? names[worst] : NULL;
}

static void
add_part (GString *text, const char *format, const char *value)
{
  if (value == NULL)
    return;
  g_string_append (text, text->len > 0 ? " | " : "");
  g_string_append_printf (text, format, value);
}

void
sp_kind_subject (SpFigure *figure, const SpCsv *csv, const char *what)
{
  g_autofree char *model = common (csv, "model"), *device = common (csv, "device"), *gpus = common (csv, "gpus");
  g_autofree char *scenario = common (csv, "scenario"), *cluster = common (csv, "cluster");
  g_autofree char *engine = common (csv, "engine"), *framework = common (csv, "framework");
  g_autofree char *source = common (csv, "source");
  g_autofree char *layout = common (csv, "layout"), *sequence = common (csv, "sequence_tokens");
  g_autofree char *tokens = sequence != NULL ? sp_tokens_text (g_ascii_strtod (sequence, NULL)) : NULL;
  const char *provenance = worst_provenance (csv);
  GString *title = g_string_new (what), *print = g_string_new (NULL);

  if (model != NULL)
    g_string_append_printf (title, "%s%s", *what != '\0' ? ": " : "", model);
  if (device != NULL)
    g_string_append_printf (title, " on %s%s%s", gpus != NULL ? gpus : "", gpus != NULL ? " x " : "", device);
  if (tokens != NULL)
    g_string_append_printf (title, ", %s tokens", tokens);
  add_part (print, "%s", source);
  add_part (print, "scenario %s", scenario);
  add_part (print, "rests on values that are at worst %s", provenance);
  add_part (print, "cluster %s", cluster);
  add_part (print, "%s", layout);
  add_part (print, "framework %s", framework);
  add_part (print, "seqpar %s", engine);
  figure->title = g_string_free (title, FALSE);
  figure->small_print = g_string_free (print, FALSE);
}

void
sp_kind_published (SpFigure *figure, const SpCsv *csv, const char *mark)
{
  g_autofree char *published = common (csv, "published"), *print = g_steal_pointer (&figure->small_print);

  if (published == NULL)
    figure->small_print = g_steal_pointer (&print);
  else
    figure->small_print = g_strdup_printf ("%s: %s%s%s", mark, published, *print != '\0' ? " | " : "", print);
}
