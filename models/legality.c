/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

#include <string.h>

/* The table of rules is the strategies' rows, in the strategies' order (strategies.c). */

GQuark
sp_layout_error_quark (void)
{
  return g_quark_from_static_string ("sp-layout-error");
}

static void
explain (const SpCase *c, const SpRule *rule, GError **error)
{
  g_autoptr (GString) out = g_string_new (NULL);

  rule->explain (c, out);
  g_set_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL, "rule %s: %s", rule->name, out->str);
}

gboolean
sp_layout_check (const SpLayout *layout, const SpArchitecture *arch, const SpFramework *framework, const SpRun *run,
                 gint32 ranks, GError **error)
{
  SpCase c = { .layout = layout, .arch = arch, .framework = framework, .run = run, .ranks = ranks };

  for (guint i = 0; i < sp_strategy_count (); i++) {
    const SpStrategy *strategy = sp_strategy_get (i);
    for (guint j = 0; j < strategy->n_rules; j++)
      if (!strategy->rules[j].holds (&c)) {
        if (error)
          explain (&c, &strategy->rules[j], error);
        return FALSE;
      }
  }
  return TRUE;
}

/* One line for people: long lists are cut in the middle. */
#define MOST_LISTED 24

static void
append_list (GString *out, const GArray *values)
{
  for (guint i = 0; i < values->len; i++) {
    const char *separator = i + 1 == values->len ? " or " : ", ";
    if (i == MOST_LISTED && values->len > MOST_LISTED + 1) {
      g_string_append (out, ", ...");
      i = values->len - 1;
      separator = ", ";
    }
    g_string_append_printf (out, "%s%d", i == 0 ? "" : separator, g_array_index (values, gint32, i));
  }
}

/* No axis of any cluster is longer. */
#define LONGEST_AXIS 65536

void
sp_rule_nearest (const SpCase *c, gsize degree_offset, gint32 limit, gboolean (*holds) (const SpCase *c), GString *out)
{
  SpLayout layout = *c->layout;
  SpCase trial = *c;
  g_autoptr (GArray) values = g_array_new (FALSE, FALSE, sizeof (gint32));

  trial.layout = &layout;
  for (gint32 degree = 1; degree <= MIN (limit, LONGEST_AXIS); degree++) {
    G_STRUCT_MEMBER (gint32, &layout, degree_offset) = degree;
    if (holds (&trial))
      g_array_append_val (values, degree);
  }
  append_list (out, values);
}

static const gsize degree_offsets[SP_N_DEGREES] = {
  [SP_AXIS_TENSOR] = G_STRUCT_OFFSET (SpLayout, tensor), [SP_AXIS_ULYSSES] = G_STRUCT_OFFSET (SpLayout, ulysses),
  [SP_AXIS_RING] = G_STRUCT_OFFSET (SpLayout, ring),     [SP_AXIS_LASP] = G_STRUCT_OFFSET (SpLayout, lasp),
  [SP_AXIS_DATA] = G_STRUCT_OFFSET (SpLayout, data),     [SP_AXIS_PIPELINE] = G_STRUCT_OFFSET (SpLayout, pipeline),
  [SP_AXIS_EXPERT] = G_STRUCT_OFFSET (SpLayout, expert),
};

GArray *
sp_layout_legal_degrees (const SpLayout *layout, const SpArchitecture *arch, const SpFramework *framework,
                         const SpRun *run, SpAxis axis, gint32 limit)
{
  SpLayout trial = *layout;
  GArray *values = g_array_new (FALSE, FALSE, sizeof (gint32));

  for (gint32 degree = 1; degree <= limit; degree++) {
    G_STRUCT_MEMBER (gint32, &trial, degree_offsets[axis]) = degree;
    if (sp_layout_check (&trial, arch, framework, run, 0, NULL))
      g_array_append_val (values, degree);
  }
  return values;
}
