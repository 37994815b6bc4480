/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

#include <string.h>

/* The table of rules is the strategies' rows, in the strategies' order (strategies.c), and then one on all of them
 * together. */

GQuark
sp_layout_error_quark (void)
{
  return g_quark_from_static_string ("sp-layout-error");
}

/* --- room --------------------------------------------------------------------------------------------------------- */

/* A block has room for SP_MAX_SLOTS - 1 buffers. Each of these seven adds 15 to 60, and with at most four of them none of
 * 10^5 drawn layouts had more than 213 (tests/test-slots.c looks again): only with more is counted, which takes as long
 * as writing the blocks. */
static gboolean
may_lack_room (const SpCase *c)
{
  const SpLayout *l = c->layout;
  guint n = (l->tensor > 1) + (l->ulysses > 1) + (l->ring > 1 || l->lasp > 1) + (c->run->fp8 != 0) +
            (c->run->optimizer == SP_OPTIMIZER_MUON) + (sp_architecture_has_bit (c->arch, SP_LAYER_EXPERTS) != 0) +
            (c->arch->latent.kv_rank > 0);

  return n >= 5;
}

static guint
count_slots (const SpCase *c)
{
  g_autoptr (SpProgram) program = sp_program_new ();

  return sp_program_count_slots (program, c->arch, c->framework, c->layout, c->run);
}

static gboolean
has_room (const SpCase *c)
{
  return !may_lack_room (c) || count_slots (c) < SP_MAX_SLOTS;
}

/* What one change to the scenario would do, on as many GPUs. */
typedef struct {
  void (*change) (SpLayout *layout, SpRun *run);
  const char *key, *value;
  gsize degree; /* where value is NULL: of SpLayout */
} Change;

static void
without_fp8 (SpLayout *layout, SpRun *run)
{
  run->fp8 = FALSE;
}

static void
with_adamw (SpLayout *layout, SpRun *run)
{
  run->optimizer = SP_OPTIMIZER_ADAMW;
}

static void
without_ring (SpLayout *layout, SpRun *run)
{
  layout->ulysses *= layout->ring;
  layout->ring = 1;
  layout->ring_kind = SP_RING_P2P;
  layout->ring_backward = SP_RING_BACKWARD_KV;
  layout->ring_keep = FALSE;
}

static void
without_ulysses (SpLayout *layout, SpRun *run)
{
  layout->ring *= layout->ulysses;
  layout->ulysses = 1;
}

static void
without_tensor (SpLayout *layout, SpRun *run)
{
  layout->data *= layout->tensor;
  layout->tensor = 1;
}

static const Change changes[] = {
  { without_fp8, "precision", "bf16" },
  { with_adamw, "optimizer", "adamw" },
  { without_tensor, "tensor = 1, data", NULL, G_STRUCT_OFFSET (SpLayout, data) },
  { without_ring, "ring = 1, ulysses", NULL, G_STRUCT_OFFSET (SpLayout, ulysses) },
  { without_ulysses, "ulysses = 1, ring", NULL, G_STRUCT_OFFSET (SpLayout, ring) },
};

static void
explain_room (const SpCase *c, GString *out)
{
  const SpLayout *l = c->layout;
  const char *separator = "use ";

  g_string_append_printf (out, "precision = %s, optimizer = %s, tensor = %d, ulysses = %d, ring = %d and lasp = %d%s",
                          c->run->fp8 ? "fp8" : sp_dtype_name ((SpDtype) c->run->precision),
                          sp_optimizer_names[c->run->optimizer], l->tensor, l->ulysses, l->ring, l->lasp,
                          sp_architecture_has_bit (c->arch, SP_LAYER_EXPERTS) ? " on layers with experts" : "");
  g_string_append_printf (out, " together make %u buffers in a block, and a program has room for %d; ", count_slots (c),
                          SP_MAX_SLOTS - 1);
  for (guint i = 0; i < G_N_ELEMENTS (changes); i++) {
    SpLayout layout = *l;
    SpRun run = *c->run;
    changes[i].change (&layout, &run);
    if ((memcmp (&layout, l, sizeof layout) == 0 && memcmp (&run, c->run, sizeof run) == 0) ||
        !sp_layout_check (&layout, c->arch, c->framework, &run, c->ranks, NULL))
      continue;
    g_string_append_printf (out, "%s%s = ", separator, changes[i].key);
    if (changes[i].value != NULL)
      g_string_append (out, changes[i].value);
    else
      g_string_append_printf (out, "%d", G_STRUCT_MEMBER (gint32, &layout, changes[i].degree));
    separator = " or ";
  }
  if (g_str_equal (separator, "use "))
    g_string_append (out, "use fewer of them");
}

static const SpRule room = { "block-buffers", has_room, explain_room };

/* --- the check ---------------------------------------------------------------------------------------------------- */

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
  if (room.holds (&c))
    return TRUE;
  if (error)
    explain (&c, &room, error);
  return FALSE;
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
