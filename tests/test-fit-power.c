/* SPDX-License-Identifier: Apache-2.0 */
/* The fit of power and clocks: what is known comes back, and what data do not say is refused. */
#include "models/estimate/cost-curves.h"
#include "models/inputs/ini.h"
#include "tests/fitted.h"

static const double power_truth
    [] = { [SP_POWER_IDLE] = 150, [SP_POWER_FLOP] = 1.2e-12, [SP_POWER_BYTE] = 60e-12, [SP_POWER_LIMIT] = 690 };

/* Programs' kernels of so many FLOP and bytes a second at the highest clock; three quarters of the time goes with it. */
static void
add_work (SpMeasured *measured, guint n, GRand *rand, double noise)
{
  for (guint i = 0; i < n; i++) {
    double flops = g_rand_double_range (rand, 150e12, 750e12), bytes = g_rand_double_range (rand, 0.3e12, 2.2e12);
    double clock = 1, seconds = 0.01;
    for (guint turn = 0; turn < 60; turn++) {
      double slow = 0.25 + 0.75 / clock;
      seconds = 0.01 * slow;
      double allowed = sp_curve_power_clock (power_truth, flops / slow, bytes / slow, power_truth[SP_POWER_LIMIT]);
      clock = (clock + MIN (allowed, 1)) / 2;
    }
    SpMeasuredRow row = sp_measured_row (SP_MEASURED_WORK);
    g_autofree char *variant = g_strdup_printf ("program-%u", i);
    row.variant = variant;
    row.time_s = seconds;
    row.flops = flops * 0.01;
    row.bytes = (gint64) (bytes * 0.01);
    row.clock_hz = 1.98e9 * clock;
    row.power_w = (power_truth[SP_POWER_IDLE] + power_truth[SP_POWER_FLOP] * clock * clock * row.flops / seconds +
                   power_truth[SP_POWER_BYTE] * (double) row.bytes / seconds) *
                  exp (noise * normal (rand));
    row.throttle = clock < 1 ? "sw-power-cap" : "";
    sp_measured_add (measured, &row);
  }
}

/* The numbers behind what a card drew come back, through a written profile, within four errors or 5 %; the limit is that
 * of what was held. */
static void
test_power (void)
{
  g_autoptr (GRand) rand = seeded ();
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GError) error = NULL;

  sp_measured_say (measured, "max_clock_hz", "1980000000");
  add_work (measured, 120, rand, 0.03);
  g_autoptr (SpFit) fit = fit_of (measured);
  sp_profile_write (fit->profile, text);
  g_autoptr (SpProfile) profile = sp_profile_parse ("p.ini", text->str, text->len, &error);
  g_assert_no_error (error);
  const SpCurve *power = sp_profile_find (profile, SP_CURVE_POWER, NULL, 0, 0);
  g_assert_nonnull (power);
  for (guint slot = 0; slot <= SP_POWER_LIMIT; slot++) {
    g_test_message ("slot %u: %g +- %g, truth %g", slot, power->value[slot].value, power->error[slot],
                    power_truth[slot]);
    g_assert_cmpfloat (fabs (power->value[slot].value - power_truth[slot]), <,
                       MAX (4 * power->error[slot], 0.05 * power_truth[slot]));
  }
  g_assert_cmpfloat (power->median, <, 0.05);
}

/* Cards that draw more and less for the same, and programs of which some draw more than the law says, not all of them on
 * every card: what cards differ by comes back, and the law with it. Two cards are too few to say, and those that nobody
 * names say nothing. */
static void
test_cards (void)
{
  static const double of_card[] = { 0.06, -0.02, -0.05, 0.03, -0.02 }; /* sd 0.0442 */
  static const struct {
    guint cards;
    gboolean named;
    double spread;
  } cases[] = { { 5, TRUE, 0.0442 }, { 2, TRUE, 0 }, { 5, FALSE, 0 } };

  for (guint c = 0; c < G_N_ELEMENTS (cases); c++) {
    g_autoptr (GRand) rand = seeded ();
    g_autoptr (SpMeasured) measured = sp_measured_new ();
    sp_measured_say (measured, "max_clock_hz", "1980000000");
    add_work (measured, 400, rand, 0.02);
    for (guint i = 0; i < measured->rows->len; i++) {
      SpMeasuredRow *row = &g_array_index (measured->rows, SpMeasuredRow, i);
      guint program = i % 8, card = program < 6 ? i / 8 % cases[c].cards : i / 8 % cases[c].cards / 3;
      g_autofree char *name = g_strdup_printf ("kernels-p%u-%u.prog/0", program, 1024 * (1 + i / 80));
      row->variant = g_string_chunk_insert (measured->words, name);
      row->from = cases[c].named ? (gint64) card : SP_MEASURED_EMPTY;
      double idle_w = power_truth[SP_POWER_IDLE], program_draws = program % 2 ? 0.08 : -0.08;
      row->power_w = idle_w + (row->power_w - idle_w) * exp (of_card[card] + program_draws);
    }
    g_autoptr (SpFit) fit = fit_of (measured);
    const SpCurve *power = sp_profile_find (fit->profile, SP_CURVE_POWER, NULL, 0, 0);
    g_assert_nonnull (power);
    double spread = power->value[SP_POWER_SPREAD].value;
    g_test_message ("%u cards: spread %.4f +- %.4f", cases[c].cards, spread, power->error[SP_POWER_SPREAD]);
    g_assert_cmpfloat (fabs (spread - cases[c].spread), <=, 0.15 * cases[c].spread);
    g_assert_cmpfloat (fabs (power->error[SP_POWER_SPREAD] * sqrt (8) - spread), <, 1e-9);
  }
}

/* Each size at a clock of its own: with what kernels drew the curve is the one at the highest clock, without it the one of
 * the times as they were. */
static void
test_clocks (void)
{
  for (guint with = 0; with < 2; with++) {
    g_autoptr (GRand) rand = seeded ();
    g_autoptr (SpMeasured) measured = sp_measured_new ();
    sp_measured_say (measured, "max_clock_hz", "1980000000");
    if (with)
      add_work (measured, 60, rand, 0.01);
    for (guint i = 0; i < 24; i++) {
      SpKernelSizes sizes = kernel_sizes (SP_OP_ATTENTION, 1024 + 512 * (gint64) i, 1024);
      SpMeasuredRow row = sp_measured_row (SP_MEASURED_KERNEL);
      sizes.clock = g_rand_double_range (rand, 0.7, 0.8);
      row.variant = "attention/causal/7.3", row.dtype = "bf16";
      row.m = sizes.m, row.n = sizes.n, row.k = sizes.k, row.heads = sizes.heads;
      row.bytes = (gint64) sizes.bytes, row.flops = sizes.flops;
      row.clock_hz = 1.98e9 * sizes.clock;
      const double truth[SP_CURVE_SLOTS] = { [SP_KERNEL_LAUNCH] = 5e-6, [SP_KERNEL_RATE] = 500e12 };
      row.time_s = sp_curve_kernel_s (truth, SMS, &sizes) * exp (0.002 * normal (rand));
      sp_measured_add (measured, &row);
    }
    g_autoptr (SpFit) fit = fit_of (measured);
    const SpCurve *curve = sp_profile_find (fit->profile, SP_CURVE_KERNEL, "attention.causal.7.3", 0, 0);
    g_assert_nonnull (curve);
    const SpKernelSizes long_one = kernel_sizes (SP_OP_ATTENTION, 12800, 1024);
    double value[SP_CURVE_SLOTS];
    for (guint i = 0; i < SP_CURVE_SLOTS; i++)
      value[i] = curve->value[i].value;
    double rate = long_one.flops / sp_curve_kernel_s (value, SMS, &long_one);
    g_test_message ("%s power: %.4g TFLOP/s, median residual %.2f %%", with ? "with" : "without", rate / 1e12,
                    100 * curve->median);
    g_assert_cmpfloat (fabs (rate / (with ? 500e12 : 375e12) - 1), <, 0.03);
    g_assert_true (with == (sp_profile_find (fit->profile, SP_CURVE_POWER, NULL, 0, 0) != NULL));
  }
}

/* Few programs, or none that was held down, identify nothing: it is said, and no clock counts. */
static void
test_power_refusals (void)
{
  for (guint few = 0; few < 2; few++) {
    g_autoptr (GRand) rand = seeded ();
    g_autoptr (SpMeasured) measured = sp_measured_new ();
    sp_measured_say (measured, "max_clock_hz", "1980000000");
    add_work (measured, few ? 5 : 40, rand, 0.01);
    for (guint i = 0; i < measured->rows->len && !few; i++)
      g_array_index (measured->rows, SpMeasuredRow, i).throttle = "";
    g_autoptr (SpPoints) points = sp_points_new (&measured, 1);
    g_assert_false (sp_points_have_power (points));
    g_autoptr (SpFit) fit = fit_of (measured);
    g_assert_cmpuint (fit->profile->curves->len, ==, 0);
    g_assert_cmpuint (fit->refused->len, ==, 1);
    g_assert_nonnull (strstr (fit->refused->pdata[0], "power has "));
    g_assert_nonnull (strstr (fit->refused->pdata[0], "seqpar-measure kernels"));
  }
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) without = NULL;

  g_test_init (&argc, &argv, NULL);
  if (!sp_fit_is_built (&without)) {
    g_print ("1..0 # SKIP %s\n", without->message);
    return 0;
  }
  g_test_add_func ("/fit-power/law", test_power);
  g_test_add_func ("/fit-power/cards", test_cards);
  g_test_add_func ("/fit-power/clocks", test_clocks);
  g_test_add_func ("/fit-power/refusals", test_power_refusals);
  return g_test_run ();
}
