/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show layout SCENARIO: is the layout legal, and which degrees would be. */
#include "cli/cli.h"

#define LEAST_LIMIT 64
#define MOST_LIMIT 1024
#define RANGE 8 /* consecutive degrees that are shown as one range */

typedef struct {
  gint32 degree;
  gint64 sequence; /* it must be padded to, 0 none */
} Degree;

typedef struct {
  const SpScenario *scenario;
  gint32 limit;
  GArray *axes[SP_N_DEGREES];  /* of Degree, with all else as it is */
  GArray *alone[SP_N_DEGREES]; /* with all other axes at 1; only where the other is empty */
  GError *illegal;
} Answer;

static gint32 *
degree_of (SpLayout *layout, SpAxis axis)
{
  gint32 *degrees[SP_N_DEGREES] = {
    [SP_AXIS_TENSOR] = &layout->tensor, [SP_AXIS_ULYSSES] = &layout->ulysses, [SP_AXIS_RING] = &layout->ring,
    [SP_AXIS_LASP] = &layout->lasp,     [SP_AXIS_DATA] = &layout->data,       [SP_AXIS_PIPELINE] = &layout->pipeline,
    [SP_AXIS_EXPERT] = &layout->expert,
  };
  return degrees[axis];
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* The shortest longer sequence that makes the layout legal, or 0. What divides it has no more factors than the sequence
 * ranks, twice for zigzag, and the tensor ranks of sequence regions. */
static gint64
padded_sequence (const SpScenario *s, const SpLayout *layout)
{
  SpRun run = s->run;
  gint64 parts = sp_layout_sequence_ranks (layout, s->arch);
  if (parts < 1 || layout->tensor > s->arch->heads) /* no sequence would help */
    return 0;
  run.sequence -= run.sequence % parts;
  for (gint32 i = 0; i < 2 * layout->tensor; i++) {
    run.sequence += parts;
    if (sp_layout_check (layout, s->arch, s->framework, &run, 0, NULL))
      return run.sequence;
  }
  return 0;
}

static GArray *
find_degrees (const SpScenario *s, const SpLayout *layout, SpAxis axis, gint32 limit)
{
  GArray *found = g_array_new (FALSE, FALSE, sizeof (Degree));
  g_autoptr (GArray) legal = sp_layout_legal_degrees (layout, s->arch, s->framework, &s->run, axis, limit);
  SpLayout trial = *layout;
  guint next = 0;
  for (gint32 i = 1; i <= limit; i++) {
    Degree degree = { .degree = i };
    *degree_of (&trial, axis) = i;
    if (next < legal->len && g_array_index (legal, gint32, next) == i)
      next++;
    else if ((degree.sequence = padded_sequence (s, &trial)) == 0)
      continue;
    g_array_append_val (found, degree);
  }
  return found;
}

static void
answer_init (Answer *a, const SpScenario *s)
{
  gint32 gpus = MIN (sp_cli_gpus (s->cluster), MOST_LIMIT);
  *a = (Answer){ .scenario = s, .limit = MAX (LEAST_LIMIT, MAX (s->arch->heads, gpus)) };
  sp_cli_check_layout (s, &a->illegal);
  for (guint i = 0; i < SP_N_DEGREES; i++) {
    a->axes[i] = find_degrees (s, &s->layout, i, a->limit);
    if (a->axes[i]->len > 0)
      continue;
    SpLayout alone = s->layout;
    alone.zero = 0; /* it may need replicas */
    for (guint j = 0; j < SP_N_DEGREES; j++)
      *degree_of (&alone, j) = 1;
    a->alone[i] = find_degrees (s, &alone, i, a->limit);
  }
}

static void
answer_clear (Answer *a)
{
  for (guint i = 0; i < SP_N_DEGREES; i++) {
    g_clear_pointer (&a->axes[i], g_array_unref);
    g_clear_pointer (&a->alone[i], g_array_unref);
  }
  g_clear_error (&a->illegal);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Answer, answer_clear)

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void
add_degrees_json (JsonBuilder *builder, const char *name, const GArray *degrees)
{
  json_builder_set_member_name (builder, name);
  json_builder_begin_array (builder);
  for (guint i = 0; i < degrees->len; i++)
    json_builder_add_int_value (builder, g_array_index (degrees, Degree, i).degree);
  json_builder_end_array (builder);
}

/* Those of the degrees above that need a longer sequence. */
static void
add_padded_json (JsonBuilder *builder, const GArray *degrees)
{
  sp_json_object (builder, "pad_sequence_to");
  for (guint i = 0; i < degrees->len; i++) {
    const Degree *degree = &g_array_index (degrees, Degree, i);
    g_autofree char *name = g_strdup_printf ("%d", degree->degree);
    if (degree->sequence > 0)
      sp_json_whole (builder, name, (double) degree->sequence);
  }
  json_builder_end_object (builder);
}

static gboolean
add_json (const Answer *a, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  SpLayout layout = a->scenario->layout;
  json_builder_begin_object (builder);
  sp_result_layout_json (builder, &layout, &a->scenario->run);
  sp_json_whole (builder, "gpus", sp_cli_gpus (a->scenario->cluster));
  sp_json_bool (builder, "legal", a->illegal == NULL);
  sp_json_string (builder, "message", a->illegal != NULL ? a->illegal->message : NULL);
  sp_json_object (builder, "axes");
  for (guint i = 0; i < SP_N_DEGREES; i++) {
    sp_json_object (builder, sp_axis_name (i));
    sp_json_whole (builder, "degree", *degree_of (&layout, i));
    add_degrees_json (builder, "legal", a->axes[i]);
    add_padded_json (builder, a->axes[i]);
    if (a->alone[i] != NULL)
      add_degrees_json (builder, "legal_alone", a->alone[i]);
    json_builder_end_object (builder);
  }
  json_builder_end_object (builder);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- for people --------------------------------------------------------------------------------------------------- */

/* "1, 2, 4, 8", with long runs as "1-64"; a star where the sequence must be padded, for a run where one must. */
static char *
degrees_text (const GArray *degrees)
{
  g_autoptr (GString) text = g_string_new (NULL);
  const Degree *d = (const Degree *) (gconstpointer) degrees->data;
  for (guint i = 0; i < degrees->len;) {
    guint end = i + 1;
    while (end < degrees->len && d[end].degree == d[end - 1].degree + 1)
      end++;
    if (end - i < RANGE)
      end = i + 1;
    g_string_append_printf (text, "%s%d", i > 0 ? ", " : "", d[i].degree);
    if (end > i + 1)
      g_string_append_printf (text, "-%d", d[end - 1].degree);
    gboolean padded = FALSE;
    for (; i < end; i++)
      padded = padded || d[i].sequence > 0;
    if (padded)
      g_string_append_c (text, '*');
  }
  return g_strdup (text->str);
}

/* The largest of the degrees that need a longer sequence. */
static char *
padding_text (const GArray *degrees)
{
  for (guint i = degrees->len; i > 0; i--) {
    const Degree *degree = &g_array_index (degrees, Degree, i - 1);
    if (degree->sequence > 0)
      return g_strdup_printf ("* pad the sequence: for %d to %" G_GINT64_FORMAT, degree->degree, degree->sequence);
  }
  return g_strdup ("");
}

static void
add_text (const Answer *a, GString *out)
{
  const SpArchitecture *arch = a->scenario->arch;
  SpLayout layout = a->scenario->layout;
  g_autofree char *described = sp_layout_describe (&layout, arch);
  gint32 gpus = sp_cli_gpus (a->scenario->cluster);
  g_autofree char *trained = sp_result_trained (&a->scenario->run, arch);
  g_autoptr (SpTable) table = sp_table_new ("lrll");
  static const char *const head[] = { "axis", "is", "legal, all else as it is", "" };
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < SP_N_DEGREES; i++) {
    g_autofree char *legal = degrees_text (a->axes[i]);
    g_autofree char *alone = a->alone[i] != NULL ? degrees_text (a->alone[i]) : NULL;
    g_autofree char *padding = padding_text (a->axes[i]);
    sp_table_cell (table, sp_axis_name (i));
    sp_table_take (table, g_strdup_printf ("%d", *degree_of (&layout, i)));
    sp_table_take (
        table, alone == NULL ? g_strdup (legal)
                             : g_strdup_printf ("none; with the other axes at 1: %s", *alone != '\0' ? alone : "none"));
    sp_table_cell (table, padding);
  }
  g_string_append_printf (out, "%s on %d GPU%s\n", described, gpus, sp_plural (gpus));
  if (trained != NULL)
    g_string_append_printf (out, "%s\n", trained);
  if (a->scenario->run.optimizer != SP_OPTIMIZER_ADAMW)
    g_string_append_printf (out, "optimizer %s\n", sp_optimizer_names[a->scenario->run.optimizer]);
  if (a->illegal != NULL)
    g_string_append_printf (out, "ILLEGAL: %s\n", a->illegal->message);
  else
    g_string_append (out, "legal\n");
  g_string_append_printf (out, "\ndegrees up to %d\n", a->limit);
  sp_table_print (table, 2, out);
  if (sp_architecture_has (arch, SP_LAYER_SOFTMAX) && sp_architecture_has (arch, SP_LAYER_LINEAR))
    g_string_append (out, "softmax layers share a sequence over ulysses x ring ranks, linear layers over the same ranks "
                          "as lasp x an ulysses of their own\n");
}

gboolean
sp_show_layout (const SpShow *show, GString *out, GError **error)
{
  g_autofree char *path = sp_cli_find_scenario (show->file, error);
  g_autoptr (SpScenario) s =
      path != NULL ? sp_scenario_load_to_vary (path, (const char *const *) show->sets, error) : NULL;
  if (s == NULL)
    return FALSE;
  g_auto (Answer) answer = { NULL };
  answer_init (&answer, s);
  if (show->json)
    return add_json (&answer, out, error);
  add_text (&answer, out);
  return TRUE;
}
