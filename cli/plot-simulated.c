/* SPDX-License-Identifier: Apache-2.0 */
/* What figures of one simulated step are drawn from: slices of time, memory over time, bytes on links. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plot.h"
#include "models/writer.h"
#include "models/inputs/csv.h"

#define MOST_RANKS 8
#define RESOLUTION 1200 /* of a step: what is shorter is one with its neighbour */
#define MOST_DRAWN_GPUS 256

/* A scenario, its program and its simulation. */
typedef struct {
  SpScenario *scenario;
  SpProgram *program;
  SpEstimator estimator;
  SpSimulated simulated;
} Step;

static void
step_clear (Step *step)
{
  sp_simulated_clear (&step->simulated);
  g_clear_pointer (&step->program, sp_program_free);
  g_clear_pointer (&step->scenario, sp_scenario_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Step, step_clear)

static gboolean
load (const SpPlotQuestion *q, Step *step, GError **error)
{
  step->scenario = sp_cli_load_scenario (q->input, q->sets, error);
  SpScenario *s = step->scenario;
  return s != NULL && sp_cli_check_layout (s, error) &&
         sp_simulate_check_variations (s->cluster, sp_cli_gpus (s->cluster), &s->variations, error) &&
         sp_scenario_check_variations (s, TRUE, error);
}

static gboolean
simulate (Step *step, const SpSimulateOptions *options, GError **error)
{
  SpScenario *s = step->scenario;
  SpEstimate estimate;

  step->program = sp_program_new ();
  sp_estimator_init (&step->estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&step->estimator, step->program, &s->layout, &s->run, &estimate);
  return sp_simulate (&step->estimator, step->program, &s->run, &s->variations, options, &step->simulated, error);
}

static const char subject_columns[] = ",model,device,gpus,cluster,framework,layout,engine,provenance,scenario,"
                                      "sequence_tokens,step_time_s\n";

/* Behind the cells of a row; in the first row what all are of, in the others nothing. */
static void
end_row (const Step *step, GString *line, GString *text, gboolean first)
{
  const SpScenario *s = step->scenario;
  g_autofree char *base = g_path_get_basename (s->path), *layout = sp_layout_describe (&s->layout, s->arch);
  g_autofree char *gpus = g_strdup_printf ("%d", sp_cli_gpus (s->cluster));
  g_autofree char *tokens = g_strdup_printf ("%" G_GINT64_FORMAT, s->run.sequence);
  g_autofree char *time = g_strdup_printf ("%.9g", step->simulated.result.step_time_s);
  char *dot = g_str_has_suffix (base, ".ini") ? strrchr (base, '.') : NULL;
  const char *values[] = { s->arch->name,
                           s->cluster->device->name,
                           gpus,
                           s->cluster->name,
                           s->framework->name,
                           layout,
                           "simulate",
                           sp_provenance_name (step->simulated.result.provenance),
                           base,
                           tokens,
                           time };

  if (dot != NULL)
    *dot = '\0';
  for (guint i = 0; i < G_N_ELEMENTS (values); i++)
    sp_csv_append (line, first ? values[i] : "");
  g_string_append_len (text, line->str, (gssize) line->len);
  g_string_append_c (text, '\n');
  g_string_truncate (line, 0);
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

typedef struct {
  gint32 rank, stage, alike;
} Role;

typedef struct {
  gint32 rank, thread;
  SpTime begin, end;
  const char *what; /* static: a phase, an axis */
} Slice;

typedef struct {
  GArray *roles, *slices;
  GHashTable *shown; /* ranks, once roles are known */
} Slices;

static void
note_role (gint32 rank, gint32 stage, gint32 n_alike, gpointer data)
{
  const Role role = { rank, stage, n_alike };

  g_array_append_val (((Slices *) data)->roles, role);
}

/* All roles, or of each stage the first; of too many of these, evenly some. */
static void
choose_ranks (Slices *slices)
{
  g_autoptr (GArray) ranks = g_array_new (FALSE, FALSE, sizeof (gint32));
  gboolean all = slices->roles->len <= MOST_RANKS;
  gint32 stages = 0;

  for (guint i = 0; i < slices->roles->len; i++)
    stages = MAX (stages, g_array_index (slices->roles, Role, i).stage + 1);
  for (guint i = 0; i < slices->roles->len; i++) {
    const Role *role = &g_array_index (slices->roles, Role, i);
    gboolean first = i == 0 || g_array_index (slices->roles, Role, i - 1).stage != role->stage;
    if (all || stages == 1 || first)
      g_array_append_val (ranks, role->rank);
  }
  slices->shown = g_hash_table_new (NULL, NULL);
  guint n = MIN (ranks->len, MOST_RANKS);
  for (guint i = 0; i < n; i++) {
    guint at = n > 1 ? i * (ranks->len - 1) / (n - 1) : 0;
    g_hash_table_add (slices->shown, GINT_TO_POINTER (g_array_index (ranks, gint32, at) + 1));
  }
}

static void
note_slice (gint32 rank, gint32 thread, SpTime begin, SpTime duration, const char *category, const char *name,
            gpointer data)
{
  Slices *slices = data;
  const Slice slice = { rank, thread, begin, begin + duration, category };

  if (slices->shown == NULL)
    choose_ranks (slices);
  if (duration > 0 && g_hash_table_contains (slices->shown, GINT_TO_POINTER (rank + 1)))
    g_array_append_val (slices->slices, slice);
}

static gint
compare_slices (gconstpointer a, gconstpointer b)
{
  const Slice *x = a, *y = b;

  if (x->rank != y->rank)
    return x->rank - y->rank;
  if (x->thread != y->thread)
    return x->thread - y->thread;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Slices of one stream and one kind that no gap parts which could be seen. */
static void
merge_slices (GArray *slices, SpTime step)
{
  SpTime gap = MAX (step / RESOLUTION, 1);
  guint n = 0;

  g_array_sort (slices, compare_slices);
  for (guint i = 0; i < slices->len; i++) {
    const Slice *next = &g_array_index (slices, Slice, i);
    Slice *last = n > 0 ? &g_array_index (slices, Slice, n - 1) : NULL;
    if (last != NULL && last->rank == next->rank && last->thread == next->thread && last->what == next->what &&
        next->begin - last->end < gap)
      last->end = MAX (last->end, next->end);
    else
      g_array_index (slices, Slice, n++) = *next;
  }
  g_array_set_size (slices, n);
}

static const char *
thread_name (gint32 thread)
{
  return thread < SP_N_STREAMS ? sp_stream_name ((SpStream) thread) : "sends";
}

static GString *
slices_text (const Step *step, const Slices *slices)
{
  GString *text = g_string_new ("rank,stage,alike,stream,what,begin_s,end_s");
  g_autoptr (GString) line = g_string_new (NULL);
  g_autoptr (GHashTable) roles = g_hash_table_new (NULL, NULL);

  for (guint i = 0; i < slices->roles->len; i++) {
    const Role *role = &g_array_index (slices->roles, Role, i);
    g_hash_table_insert (roles, GINT_TO_POINTER (role->rank + 1), (gpointer) role);
  }
  g_string_append (text, subject_columns);
  for (guint i = 0; i < slices->slices->len; i++) {
    const Slice *slice = &g_array_index (slices->slices, Slice, i);
    const Role *role = g_hash_table_lookup (roles, GINT_TO_POINTER (slice->rank + 1));
    g_string_append_printf (line, "%d,%d,%d", role->rank, role->stage, role->alike);
    sp_csv_append (line, thread_name (slice->thread));
    sp_csv_append (line, slice->what);
    g_string_append_printf (line, ",%.9g,%.9g", sp_time_to_s (slice->begin), sp_time_to_s (slice->end));
    end_row (step, line, text, i == 0);
  }
  return text;
}

GString *
sp_plot_slices (const SpPlotQuestion *q, GError **error)
{
  g_auto (Step) step = { NULL };
  g_autoptr (GArray) roles = g_array_new (FALSE, FALSE, sizeof (Role));
  g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (Slice));
  Slices slices = { roles, kept, NULL };
  const SpTraceSink sink = { .role = note_role, .slice = note_slice, .data = &slices };
  g_autoptr (SpTrace) trace = sp_trace_new (&sink);
  const SpSimulateOptions options = { .samples = 1, .trace = trace };
  GString *text = NULL;

  if (load (q, &step, error) && simulate (&step, &options, error)) {
    merge_slices (kept, step.simulated.run->end);
    text = slices_text (&step, &slices);
  }
  g_clear_pointer (&slices.shown, g_hash_table_unref);
  return text;
}

/* --- memory over time --------------------------------------------------------------------------------------------- */

typedef struct {
  gint32 rank;
  SpTime at;
  gint64 bytes[SP_N_CLASSES];
} Level;

static void
note_memory (gint32 rank, SpTime at, const gint64 *by_class, gpointer data)
{
  Level level = { rank, at, { 0 } };

  memcpy (level.bytes, by_class, sizeof level.bytes);
  g_array_append_val ((GArray *) data, level);
}

static GString *
memory_text (const Step *step, const GArray *levels)
{
  GString *text = g_string_new ("rank,begin_s");
  g_autoptr (GString) line = g_string_new (NULL);
  const SpRoleReport *fullest = &step->simulated.run->roles[step->simulated.fullest];
  const SpEstimate *e = &step->simulated.result;
  SpTime gap = step->simulated.run->end / RESOLUTION;
  const Level *most = NULL; /* of those that stand together */
  gboolean first = TRUE;

  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_string_append_printf (text, ",%s_bytes", sp_class_name ((SpClass) c));
  g_string_append_printf (text, ",capacity_bytes%s", subject_columns);
  for (guint i = 0; i <= levels->len; i++) {
    const Level *level = i < levels->len ? &g_array_index (levels, Level, i) : NULL;
    if (level != NULL && level->rank != fullest->rank)
      continue;
    gint64 sum = 0, highest = 0;
    for (guint c = 0; c < SP_N_CLASSES; c++) {
      sum += level != NULL ? level->bytes[c] : 0;
      highest += most != NULL ? most->bytes[c] : 0;
    }
    if (most != NULL && level != NULL && level->at - most->at < gap) {
      most = sum > highest ? level : most;
      continue;
    }
    if (most != NULL) {
      g_string_append_printf (line, "%d,%.9g", fullest->rank, sp_time_to_s (most->at));
      for (guint c = 0; c < SP_N_CLASSES; c++)
        g_string_append_printf (line, ",%.0f",
                                c == SP_CLASS_RESERVED ? e->memory.by_class[c] : (double) most->bytes[c]);
      g_string_append_printf (line, ",%.0f", e->capacity_bytes);
      end_row (step, line, text, first);
      first = FALSE;
    }
    most = level;
  }
  return text;
}

GString *
sp_plot_memory (const SpPlotQuestion *q, GError **error)
{
  g_auto (Step) step = { NULL };
  g_autoptr (GArray) levels = g_array_new (FALSE, FALSE, sizeof (Level));
  const SpTraceSink sink = { .memory = note_memory, .data = levels };
  g_autoptr (SpTrace) trace = sp_trace_new (&sink);
  const SpSimulateOptions options = { .samples = 1, .trace = trace };

  return load (q, &step, error) && simulate (&step, &options, error) ? memory_text (&step, levels) : NULL;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

static const char *const vertex_names[SP_N_VERTEX_KINDS] = {
  [SP_VERTEX_GPU] = "GPU",         [SP_VERTEX_NIC] = "NIC",
  [SP_VERTEX_SWITCH] = "NVSwitch", [SP_VERTEX_PCIE_SWITCH] = "PCIe switch",
  [SP_VERTEX_SOCKET] = "socket",   [SP_VERTEX_NETWORK] = "network",
  [SP_VERTEX_LEAF] = "leaf",       [SP_VERTEX_SPINE] = "spine",
  [SP_VERTEX_ROUTER] = "router",
};

static void
append_axes (GString *text)
{
  for (guint a = 0; a < SP_N_AXES; a++)
    g_string_append_printf (text, ",%s_bytes", sp_axis_name ((SpAxis) a));
}

/* Of one axis on a link of the network; 0 where it is none of it. */
static double
bytes_on (const SpSimulated *s, guint axis, guint link)
{
  return s->link_bytes[(gsize) axis * s->network->n_links + link];
}

static void
append_vertex (GString *line, const SpTopology *topology, guint32 vertex)
{
  g_autofree char *name = sp_topology_vertex_name (topology, vertex);

  sp_csv_append (line, name);
  sp_csv_append (line, vertex_names[sp_topology_vertex_kind (topology, vertex)]);
}

static GString *
links_text (const Step *step)
{
  const SpSimulated *s = &step->simulated;
  guint n = sp_topology_n_links (s->topology);
  g_autofree gint *number = g_new (gint, n);
  GString *text = g_string_new ("from,from_kind,to,to_kind,bytes_per_s");
  g_autoptr (GString) line = g_string_new (NULL);

  append_axes (text);
  g_string_append (text, subject_columns);
  for (guint l = 0; l < n; l++)
    number[l] = -1;
  for (guint i = 0; i < s->network->n_links; i++)
    number[s->network->topology_link[i]] = (gint) i;
  for (guint32 l = 0; l < n; l++) {
    append_vertex (line, s->topology, sp_topology_from (s->topology, l));
    append_vertex (line, s->topology, sp_topology_to (s->topology, l));
    g_string_append_printf (line, ",%.9g", sp_topology_capacity (s->topology, l));
    for (guint a = 0; a < SP_N_AXES; a++)
      g_string_append_printf (line, ",%.0f", number[l] >= 0 ? bytes_on (s, a, (guint) number[l]) : 0);
    end_row (step, line, text, l == 0);
  }
  return text;
}

GString *
sp_plot_links (const SpPlotQuestion *q, GError **error)
{
  g_auto (Step) step = { NULL };
  const SpSimulateOptions options = { .samples = 1, .unfolded = TRUE, .counts_links = TRUE };

  if (!load (q, &step, error))
    return NULL;
  gint32 gpus = sp_cli_gpus (step.scenario->cluster);
  if (gpus > MOST_DRAWN_GPUS) {
    sp_cli_fail (
        error, SP_CLI_ERROR_INPUT,
        "%s: a topology of %d GPUs has more links than can be seen: expected at most %d GPUs; plot volume says "
        "what each kind of link carries",
        step.scenario->path, gpus, MOST_DRAWN_GPUS);
    return NULL;
  }
  return simulate (&step, &options, error) ? links_text (&step) : NULL;
}

/* --- volume ------------------------------------------------------------------------------------------------------- */

/* The busiest link of a kind. */
typedef struct {
  guint8 from, to;
  gint link; /* of the network; -1: none of this kind is used */
  double bytes, seconds;
} Busiest;

static void
find_busiest (const SpSimulated *s, GArray *kinds)
{
  for (guint i = 0; i < s->network->n_links; i++) {
    guint32 l = s->network->topology_link[i];
    const guint8 from = (guint8) sp_topology_vertex_kind (s->topology, sp_topology_from (s->topology, l));
    const guint8 to = (guint8) sp_topology_vertex_kind (s->topology, sp_topology_to (s->topology, l));
    double bytes = 0;
    guint k = 0;
    for (guint a = 0; a < SP_N_AXES; a++)
      bytes += bytes_on (s, a, i);
    while (k < kinds->len &&
           (g_array_index (kinds, Busiest, k).from != from || g_array_index (kinds, Busiest, k).to != to))
      k++;
    if (k == kinds->len) {
      const Busiest none = { from, to, -1, 0, 0 };
      g_array_append_val (kinds, none);
    }
    Busiest *kind = &g_array_index (kinds, Busiest, k);
    double seconds = bytes / s->network->capacity_bytes_per_s[i];
    if (bytes > 0 && seconds > kind->seconds)
      *kind = (Busiest){ from, to, (gint) i, bytes, seconds };
  }
}

GString *
sp_plot_traffic (const SpPlotQuestion *q, GError **error)
{
  g_auto (Step) step = { NULL };
  const SpSimulateOptions options = { .samples = 1, .counts_links = TRUE };
  g_autoptr (GArray) kinds = g_array_new (FALSE, FALSE, sizeof (Busiest));
  g_autoptr (GString) line = g_string_new (NULL);
  gboolean first = TRUE;

  if (!load (q, &step, error) || !simulate (&step, &options, error))
    return NULL;
  const SpSimulated *s = &step.simulated;
  GString *text = g_string_new ("of,name,payload_bytes_per_gpu,wire_bytes_per_gpu,busy_s");
  append_axes (text);
  g_string_append (text, subject_columns);
  for (guint a = 0; a < SP_N_AXES; a++) {
    const SpAxisCost *axis = &s->result.axes[a];
    if (axis->payload_bytes.max <= 0)
      continue;
    g_string_append_printf (line, "axis,%s,%.0f,%.0f,", sp_axis_name ((SpAxis) a), axis->payload_bytes.max,
                            axis->wire_bytes.max);
    for (guint i = 0; i < SP_N_AXES; i++)
      g_string_append_c (line, ',');
    end_row (&step, line, text, first);
    first = FALSE;
  }
  find_busiest (s, kinds);
  for (guint k = 0; k < kinds->len; k++) {
    const Busiest *kind = &g_array_index (kinds, Busiest, k);
    if (kind->link < 0)
      continue;
    g_string_append_printf (line, "link,%s to %s,,,%.9g", vertex_names[kind->from], vertex_names[kind->to],
                            kind->seconds);
    for (guint a = 0; a < SP_N_AXES; a++)
      g_string_append_printf (line, ",%.0f", bytes_on (s, a, (guint) kind->link));
    end_row (&step, line, text, first);
    first = FALSE;
  }
  return text;
}
