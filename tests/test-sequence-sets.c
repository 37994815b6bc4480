/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shipped sets of sequence parallelism (scenarios/validation): what must hold of runs that nothing was fitted to. What
 * is known to miss is said here, and fails as soon as it no longer does.
 */
#include "tests/cli-run.h"

static const struct {
  const char *set, *statistic;
} misses[] = {
  { "ring-self-attention", " ratio length " },    /* 4.0 where 3.0 was published */
  { "ring-self-attention", " ratio length-16 " }, /* 1.8 where 1.4 was; its own table says 2.1 */
};

/* Lines of the table: the set's name first, the verdict last. */
static void
test_set (gconstpointer data)
{
  const char *name = data;
  g_auto (Run) run = run_cli ("validate", name);
  g_auto (GStrv) lines = g_strsplit (run.out, "\n", -1);
  guint verdicts = 0;

  g_assert_cmpint (run.status, ==, 0);
  for (guint i = 0; lines[i] != NULL && *lines[i] != '\0'; i++) {
    gboolean missed = g_str_has_suffix (lines[i], " missed"), known = FALSE;
    g_test_message ("%s", lines[i]);
    verdicts += missed || g_str_has_suffix (lines[i], " must") || g_str_has_suffix (lines[i], " goal");
    for (guint m = 0; m < G_N_ELEMENTS (misses); m++)
      known |= g_str_equal (misses[m].set, name) && strstr (lines[i], misses[m].statistic) != NULL;
    g_assert_cmpint (missed, ==, known);
  }
  g_assert_cmpuint (verdicts, >=, 1);
}

int
main (int argc, char **argv)
{
  static const char *const names[] = { "lasp-scalability", "lasp-comparison", "lasp-2",
                                       "ring-self-attention",      "usp-attention",   "ulysses", "ring-attention" };

  if (!begin_cli (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *path = g_strconcat ("/sequence-sets/", names[i], NULL);
    g_test_add_data_func (path, names[i], test_set);
  }
  int status = g_test_run ();
  g_rmdir (folder);
  return status;
}
