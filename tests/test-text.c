/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory.h"
#include "models/rehearse/rehearse.h"
#include "tests/rehearse-cases.h"

/* The text form on programs as they are written: what is read back rehearses to the very same numbers, and written
 * again it is the very same text. */

static SpRehearsal *
rehearse (const SpProgram *program)
{
  g_autoptr (GError) error = NULL;
  SpRehearsal *rehearsal = sp_rehearse (program, 7, &error);

  g_assert_no_error (error);
  return rehearsal;
}

/* What no rehearsal reads too: streams, waits, bytes. */
static void
assert_same_ops (const SpProgram *a, const SpProgram *b)
{
  g_assert_cmpint (a->n_variants, ==, b->n_variants);
  g_assert_cmpint (a->n_blocks, ==, b->n_blocks);
  for (gint32 i = 0; i < a->n_variants; i++)
    for (guint j = 0; j < a->n_blocks; j++)
      for (SpPhase phase = 0; phase < SP_N_PHASES; phase++) {
        guint n, m;
        const SpOp *p = sp_program_segment (a, &a->variants[i].blocks[j], phase, &n);
        const SpOp *q = sp_program_segment (b, &b->variants[i].blocks[j], phase, &m);

        g_assert_cmpmem (p, n * sizeof *p, q, m * sizeof *q);
      }
}

static void
assert_same_memory (const SpProgram *a, const SpProgram *b, const SpFramework *framework)
{
  SpMemory x, y;

  sp_memory_estimate (a, framework, &x);
  sp_memory_estimate (b, framework, &y);
  for (guint i = 0; i < SP_N_CLASSES; i++)
    g_assert_cmpfloat (x.by_class[i], ==, y.by_class[i]);
  g_assert_cmpstr (x.moment, ==, y.moment);
}

static void
assert_same_ranks (const SpRehearsal *a, const SpRehearsal *b)
{
  g_assert_cmpint (a->world, ==, b->world);
  for (gint32 i = 0; i < a->world; i++)
    g_assert_cmpmem (&a->ranks[i], sizeof a->ranks[i], &b->ranks[i], sizeof b->ranks[i]);
}

static void
test_same (gconstpointer data)
{
  const RehearseCase *c = data;
  g_autoptr (SpProgram) program = sp_program_new (), back = NULL;
  g_autoptr (GString) text = g_string_new (NULL), again = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autofree char *where = NULL;
  SpFramework framework = small_framework (!c->unfused);

  rehearse_case_write (c, program);
  sp_program_write_text (program, text);
  back = sp_program_read_text (text->str, text->len, c->name, &error);
  g_assert_no_error (error);
  sp_program_write_text (back, again);
  g_test_message ("%" G_GSIZE_FORMAT " bytes", text->len);
  g_assert_true (g_string_equal (text, again));
  assert_same_ops (program, back);
  assert_same_memory (program, back, &framework);

  g_autoptr (SpRehearsal) expected = rehearse (program), got = rehearse (back);
  double difference = sp_rehearsal_difference (expected, got, &where);
  g_test_message ("loss %.17g and %.17g, largest difference %.3g at %s", expected->loss, got->loss, difference, where);
  g_assert_true (got->loss == expected->loss);
  g_assert_true (difference == 0);
  assert_same_ranks (expected, got);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/text/same/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_same);
  }
  return g_test_run ();
}
