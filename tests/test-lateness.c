/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simulated.h"

/* What of a simulated rank's waits is lateness (sim/engine.h). */

#define DRAWS 150

static SpTime
sum_of (const SpTime axes[SP_N_AXES])
{
  SpTime sum = 0;

  for (guint axis = 0; axis < SP_N_AXES; axis++)
    sum += axes[axis];
  return sum;
}

/* --- any layout --------------------------------------------------------------------------------------------------- */

static const DrawLimits any = { DRAW_ANY, FALSE,    { 1, 3 },        { 1, 3 },         { 1, 4 },      { 1, 4 },
                                { 1, 4 }, { 1, 6 }, .experts = TRUE, .families = TRUE, .eager = TRUE, .slices = TRUE };

/* It is a part of the waits; and of a role what each of its ranks has by itself, up to the dates' rounding. */
static void
test_any (void)
{
  g_autoptr (GRand) rand = draw_rand_new ();
  guint some = 0, folded = 0;

  for (guint i = 0; i < DRAWS; i++) {
    g_auto (SpSimulated) one = { 0 };
    g_auto (SpSimulated) each = { 0 };
    Draw d;
    Machine m;
    draw_legal (rand, &any, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), draw_slowdown (rand), &m);
    simulate_on (&d, &m, &(SpSimulateOptions){ .unfolded = FALSE }, NULL, &one);
    simulate_on (&d, &m, &(SpSimulateOptions){ .unfolded = TRUE }, NULL, &each);
    folded += one.run->n_roles < each.run->n_roles;
    for (gint32 r = 0; r < each.run->n_roles; r++) {
      const SpRoleReport *rank = &each.run->roles[r], *role = &one.run->roles[one.roles->of_rank[rank->rank]];
      g_assert_true (rank->late >= 0 && rank->late <= sum_of (rank->exposed));
      g_assert_true (role->late >= 0 && role->late <= sum_of (role->exposed));
      some += role->late > 0;
      if (ABS (role->late - rank->late) > (SpTime) each.run->n_events) {
        draw_simulation_describe (&d, &m);
        g_test_message ("rank %d: late %" G_GINT64_FORMAT " ps, its role %" G_GINT64_FORMAT " ps", rank->rank,
                        rank->late, role->late);
        g_test_fail ();
      }
    }
    draw_clear (&d);
  }
  g_test_message ("%u ranks wait for others; %u of %d folded", some, folded, DRAWS);
  g_assert_cmpuint (some, >, 0);
  g_assert_cmpuint (folded, >, DRAWS / 2);
}

/* --- two GPUs ----------------------------------------------------------------------------------------------------- */

/* The scenario that is executed, each rank on its own; kernels of rank 1 take `slower` times as long. */
static void
simulate_two (const char *name, double slower, SpTime own[2], SpTime late[2])
{
  const SpSlowRank card = { 1, slower };
  g_autoptr (GArray) cards = g_array_new (FALSE, FALSE, sizeof (SpSlowRank));
  SpVariations variations = { .slow_ranks = cards };
  g_autofree char *file = g_strconcat (name, ".ini", NULL);
  g_autofree char *path = g_build_filename (sp_data_dir (), "executed", file, NULL);
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  g_auto (SpSimulated) s = { 0 };
  SpEstimator estimator;

  g_autoptr (SpScenario) scenario = sp_scenario_load (path, NULL, &error);
  g_assert_no_error (error);
  g_array_append_val (cards, card);
  sp_estimator_init (&estimator, scenario->arch, scenario->cluster, scenario->framework, SP_MFU_SEQPAR);
  sp_program_write (program, scenario->arch, scenario->framework, &scenario->layout, &scenario->run);
  sp_simulate (&estimator, program, &scenario->run, &variations, &(SpSimulateOptions){ .unfolded = TRUE }, &s, &error);
  g_assert_no_error (error);
  for (gint32 r = 0; r < 2; r++) {
    const SpRoleReport *role = &s.run->roles[s.roles->of_rank[r]];
    late[r] = role->late;
    own[r] = sum_of (role->exposed) - late[r];
  }
}

/* Where cards and their work are alike nobody is late. With a slower card the other waits for it, and both as long for the
 * transfers as before: none of it is hidden in these. */
static void
test_alike (void)
{
  static const char *const names[] = { "s350m-4k-ulysses2-zero1", "s350m-8k-tensor2", "s350m-8k-tensor2-plain" };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    SpTime own[2], late[2], own_slow[2], late_slow[2];
    simulate_two (names[i], 1, own, late);
    simulate_two (names[i], 1.05, own_slow, late_slow);
    g_test_message ("%s: own %.1f us, with a slower card %.1f and %.1f, late %.1f and %.1f", names[i],
                    1e6 * sp_time_to_s (own[0]), 1e6 * sp_time_to_s (own_slow[0]), 1e6 * sp_time_to_s (own_slow[1]),
                    1e6 * sp_time_to_s (late_slow[0]), 1e6 * sp_time_to_s (late_slow[1]));
    g_assert_true (own[0] > 0 && own[0] == own[1]);
    g_assert_true (late[0] == 0 && late[1] == 0);
    g_assert_true (late_slow[0] > 0 && late_slow[1] == 0);
    g_assert_true (own_slow[0] == own_slow[1]);
    g_assert_cmpfloat (fabs ((double) own_slow[0] / (double) own[0] - 1), <, 0.02);
  }
}

/* In a contiguous ring the first has less to do, and waits for the second, which waits for what the messages take. */
static void
test_unequal (void)
{
  SpTime own[2], late[2], own_alike[2], late_alike[2];

  simulate_two ("s350m-16k-ring2-contiguous-zero1", 1, own, late);
  simulate_two ("s350m-16k-ring2-zero1", 1, own_alike, late_alike);
  g_test_message ("contiguous: own %.2f and %.2f ms, late %.2f and %.2f; zigzag: own %.2f", 1e3 * sp_time_to_s (own[0]),
                  1e3 * sp_time_to_s (own[1]), 1e3 * sp_time_to_s (late[0]), 1e3 * sp_time_to_s (late[1]),
                  1e3 * sp_time_to_s (own_alike[0]));
  g_assert_true (late_alike[0] == 0 && late_alike[1] == 0);
  g_assert_cmpfloat (fabs ((double) own[0] / (double) own_alike[0] - 1), <, 0.02);
  g_assert_cmpfloat (fabs ((double) own[1] / (double) own_alike[0] - 1), <, 0.02);
  g_assert_cmpint (late[0], >, own[0]);
  g_assert_cmpint (late[1], <, late[0] / 10);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/lateness/any", test_any);
  g_test_add_func ("/lateness/alike", test_alike);
  g_test_add_func ("/lateness/unequal", test_unequal);
  return g_test_run ();
}
