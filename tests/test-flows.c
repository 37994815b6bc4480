/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows.h"

/* Capacities below are in bytes per second and small, so that the rates can be worked out by hand. */

#define assert_near(a, b) assert_near_ (a, b, __LINE__)

static void
assert_near_ (double a, double b, int line)
{
  if (!(fabs (a - b) <= 1e-9 * MAX (fabs (a), fabs (b))))
    g_error ("line %d: %.17g is not %.17g", line, a, b);
}

/* Adds a flow whose links are given, ended by -1. */
static guint32
add (SpFlows *flows, const int *route, double bytes, double cap_bytes_per_s, guint32 weight)
{
  guint32 links[16];
  guint n = 0;

  for (; route[n] >= 0; n++)
    links[n] = (guint32) route[n];
  return sp_flows_add (flows, links, n, bytes, cap_bytes_per_s, weight);
}

#define ROUTE(...) ((const int[]){ __VA_ARGS__, -1 })

/* Goes on to the next completions, which must be those flows at that date. */
#define assert_next(flows, time_s, ...)                                                                                \
  assert_next_ (flows, time_s, (const guint32[]){ __VA_ARGS__ }, sizeof ((const guint32[]){ __VA_ARGS__ }) / 4,        \
                __LINE__)

static void
assert_next_ (SpFlows *flows, double time_s, const guint32 *expected, guint n_expected, int line)
{
  SpTime date = sp_flows_next (flows);
  guint n;
  const guint32 *finished = sp_flows_advance (flows, date, &n);

  if (date != sp_time_from_s (time_s) || n != n_expected)
    g_error ("line %d: %u flows at %" G_GINT64_FORMAT " ps", line, n, date);
  for (guint i = 0; i < n; i++)
    g_assert_cmpuint (finished[i], ==, expected[i]);
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* One flow of 50 on a link of 10: rate 10, through after 5 s. */
static void
test_one_flow (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 10 });

  g_assert_cmpint (sp_flows_next (flows), ==, SP_TIME_NEVER);
  guint32 a = add (flows, ROUTE (0), 50, INFINITY, 1);
  assert_near (sp_flows_rate (flows, a), 10);
  assert_near (sp_flows_link_load (flows, 0), 10);
  assert_next (flows, 5, a);
  g_assert_cmpuint (sp_flows_n_active (flows), ==, 0);
  g_assert_cmpint (sp_flows_next (flows), ==, SP_TIME_NEVER);
  assert_near (sp_flows_link_load (flows, 0), 0);
}

/* Three flows of 10, 20 and 30 on a link of 6. All get 2 until the first is through at 5 s; the others have 10 and
 * 20 left and get 3 until 5 + 10/3 s; the last has 10 left, gets 6 and is through at 10 s. */
static void
test_one_link (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 6 });
  guint32 a = add (flows, ROUTE (0), 10, INFINITY, 1), b = add (flows, ROUTE (0), 20, INFINITY, 1),
          c = add (flows, ROUTE (0), 30, INFINITY, 1);

  for (guint32 f = a; f <= c; f++)
    assert_near (sp_flows_rate (flows, f), 2);
  assert_next (flows, 5, a);
  assert_near (sp_flows_rate (flows, b), 3);
  assert_near (sp_flows_remaining_bytes (flows, c), 20);
  assert_next (flows, 5 + 10. / 3, b);
  assert_near (sp_flows_rate (flows, c), 6);
  assert_next (flows, 10, c);
}

/* Links of 10 and 4 in a chain, a flow over both and one on the first: 4 and 6. When the long one has left, the
 * other gets 10: 8 bytes at 4 take 2 s, in which the other sends 12 of its 32; the 20 that are left take 2 s more. */
static void
test_chain (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (2, (double[]){ 10, 4 });
  guint32 a = add (flows, ROUTE (0, 1), 8, INFINITY, 1), b = add (flows, ROUTE (0), 32, INFINITY, 1);

  assert_near (sp_flows_rate (flows, a), 4);
  assert_near (sp_flows_rate (flows, b), 6);
  assert_near (sp_flows_link_load (flows, 0), 10);
  assert_near (sp_flows_link_load (flows, 1), 4);
  assert_next (flows, 2, a);
  assert_near (sp_flows_rate (flows, b), 10);
  assert_next (flows, 4, b);
}

/* Link of 12, caps 1 and 5, one without: the equal share 4 is beyond the first cap only, so 1; then (12 - 1)/2 = 5.5
 * is beyond the second, so 5; the third gets what is left, 6. A cap of 100 never binds. */
static void
test_caps (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (2, (double[]){ 12, 7 });
  guint32 a = add (flows, ROUTE (0), 1, 1, 1), b = add (flows, ROUTE (0), 1, 5, 1),
          c = add (flows, ROUTE (0), 1, INFINITY, 1), d = add (flows, ROUTE (1), 1, 100, 1);

  assert_near (sp_flows_rate (flows, a), 1);
  assert_near (sp_flows_rate (flows, b), 5);
  assert_near (sp_flows_rate (flows, c), 6);
  assert_near (sp_flows_rate (flows, d), 7);
}

/* The classic: links of 10, 10 and 10; a long flow over all three, one more on the first, two more on the second,
 * three more on the third. The third is the narrowest: 10/4 = 2.5 for its four. The second has 7.5 left for two:
 * 3.75. The first 7.5 for one. */
static void
test_three_links (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (3, (double[]){ 10, 10, 10 });
  guint32 f[7] = { add (flows, ROUTE (0, 1, 2), 1, INFINITY, 1) };
  static const double expected[] = { 2.5, 7.5, 3.75, 3.75, 2.5, 2.5, 2.5 };

  for (guint i = 1; i < 7; i++)
    f[i] = add (flows, ROUTE (i < 2 ? 0 : i < 4 ? 1 : 2), 1, INFINITY, 1);
  for (guint i = 0; i < 7; i++)
    assert_near (sp_flows_rate (flows, f[i]), expected[i]);
}

/* Four twins as one flow of weight 4, and one single flow, on a link of 10: 2 a member. The cap is a member's: with 1.5
 * the single one gets 10 - 4 x 1.5 = 4. */
static void
test_weights (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 10 });
  guint32 twins = add (flows, ROUTE (0), 20, INFINITY, 4), single = add (flows, ROUTE (0), 20, INFINITY, 1);

  assert_near (sp_flows_rate (flows, twins), 2);
  assert_near (sp_flows_rate (flows, single), 2);
  assert_near (sp_flows_link_load (flows, 0), 10);
  sp_flows_remove (flows, twins);
  twins = add (flows, ROUTE (0), 20, 1.5, 4);
  assert_near (sp_flows_rate (flows, twins), 1.5);
  assert_near (sp_flows_rate (flows, single), 4);
}

/* A route of six links, beside a short one on the last of them; then gone, and its place in the arena taken again. */
static void
test_long_route (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (6, (double[]){ 10, 9, 8, 7, 6, 5 });

  for (guint i = 0; i < 3; i++) {
    guint32 a = add (flows, ROUTE (0, 1, 2, 3, 4, 5), 5, INFINITY, 1), b = add (flows, ROUTE (5), 100, INFINITY, 1);
    assert_near (sp_flows_rate (flows, a), 2.5);
    assert_near (sp_flows_rate (flows, b), 2.5);
    assert_near (sp_flows_link_load (flows, 0), 2.5);
    assert_next (flows, 2 * i + 2, a);
    assert_near (sp_flows_rate (flows, b), 5);
    sp_flows_remove (flows, b);
  }
}

/* --- loose links -------------------------------------------------------------------------------------------------- */

/* A link of 10 with caps 6 and 4 is loose: both run at them, and nothing is solved. 1 more makes it tight: it gets its
 * 1, the others an equal share of 9, which is beyond the second's cap: 4, so 5 for the first. Without it: 6 again. At
 * 0 s to 1 s: 6, 4; until 2 s: 5, 4, 1; so of 60 bytes 49 are left, 49/6 s more. */
static void
test_loose (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 10 });
  guint32 a = add (flows, ROUTE (0), 60, 6, 1), b = add (flows, ROUTE (0), 1000, 4, 1);
  guint n;

  sp_flows_advance (flows, sp_time_from_s (1), &n);
  assert_near (sp_flows_rate (flows, a), 6);
  assert_near (sp_flows_rate (flows, b), 4);
  assert_near (sp_flows_link_load (flows, 0), 10);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, 0);
  guint32 c = add (flows, ROUTE (0), 1, 1, 1);
  assert_near (sp_flows_rate (flows, a), 5);
  assert_near (sp_flows_rate (flows, b), 4);
  assert_near (sp_flows_rate (flows, c), 1);
  assert_next (flows, 2, c);
  assert_near (sp_flows_rate (flows, a), 6);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, 2);
  assert_next (flows, 2 + 49. / 6, a);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, 2);
}

/* Links of 10, 10 and 10. A over the first two (cap 8), B over the last two (cap 8): the middle one is tight, 5 each.
 * C on the third with cap 5: 8 + 5 > 10, tight, but B is at 5 there: all at 5. The middle one widens to 16: loose, A
 * at 8 though its other link was never tight; B and C share the third, 5 each. C goes: B at 8. The first one fails:
 * A stalls, and nobody else. */
static void
test_loose_neighbours (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (3, (double[]){ 10, 10, 10 });
  guint32 a = add (flows, ROUTE (0, 1), 1000, 8, 1), b = add (flows, ROUTE (1, 2), 1000, 8, 1),
          c = add (flows, ROUTE (2), 1000, 5, 1);

  assert_near (sp_flows_rate (flows, a), 5);
  assert_near (sp_flows_rate (flows, b), 5);
  assert_near (sp_flows_rate (flows, c), 5);
  sp_flows_set_capacity (flows, 1, 16);
  assert_near (sp_flows_rate (flows, a), 8);
  assert_near (sp_flows_rate (flows, b), 5);
  sp_flows_remove (flows, c);
  assert_near (sp_flows_rate (flows, b), 8);
  sp_flows_set_capacity (flows, 0, 0);
  assert_near (sp_flows_rate (flows, a), 0);
  assert_near (sp_flows_rate (flows, b), 8);
  g_assert_cmpfloat (sp_flows_check (flows), <, 1e-9);
}

/* A thousand flows come and go with caps of all magnitudes; then ten of a tenth fill the link to the last bit. A sum of
 * doubles would have drifted. One with the smallest of caps on a link that has failed stalls. */
static void
test_loose_exact (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  g_autoptr (SpFlows) flows = sp_flows_new (2, (double[]){ 1e11, 0 });
  guint32 ids[50];

  for (guint i = 0; i < 1000; i++) {
    if (i >= 50)
      sp_flows_remove (flows, ids[i % 50]);
    ids[i % 50] = add (flows, ROUTE (0), 1e15, exp (g_rand_double_range (rand, -20, 40)), 1 + i % 3);
  }
  for (guint i = 0; i < 50; i++)
    sp_flows_remove (flows, ids[i]);
  sp_flows_next (flows);
  guint64 solves = sp_flows_statistics (flows).solves;
  for (guint i = 0; i < 10; i++)
    ids[i] = add (flows, ROUTE (0), 1e12, 1e10 * (1 + 1e-10), 1); /* within the tolerance */
  sp_flows_next (flows);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, solves);
  add (flows, ROUTE (0), 1e12, 1e3, 1);
  g_assert_cmpfloat (sp_flows_rate (flows, ids[0]), <, 1e10);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, solves + 1);
  guint32 stalled = add (flows, ROUTE (1), 1, 1e-12, 1);
  g_assert_cmpfloat (sp_flows_rate (flows, stalled), ==, 0);
}

/* With a window, a flow that nothing holds back ends at its own date, leaves at once, and nothing is solved for it. */
static void
test_loose_window (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (2, (double[]){ 10, 10 });

  sp_flows_set_window (flows, sp_time_from_s (4), 0);
  guint32 a = add (flows, ROUTE (0), 10, 10, 1), b = add (flows, ROUTE (1), 20, INFINITY, 1);
  sp_flows_next (flows);
  guint64 solves = sp_flows_statistics (flows).solves;
  assert_next (flows, 1, a);
  sp_flows_next (flows);
  a = add (flows, ROUTE (0), 10, 10, 1);
  assert_near (sp_flows_rate (flows, a), 10);
  g_assert_cmpuint (sp_flows_statistics (flows).solves, ==, solves);
  assert_next (flows, 2, b, a); /* by number: the slot of the first is free only now */
}

/* A flow on no link runs at its cap, and is through at once without one. No bytes: through at once, on a link too. */
static void
test_degenerate (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 10 });
  guint32 a = sp_flows_add (flows, NULL, 0, 10, INFINITY, 1), b = sp_flows_add (flows, NULL, 0, 10, 5, 1),
          c = add (flows, ROUTE (0), 0, INFINITY, 1);

  assert_next (flows, 0, a, c);
  assert_next (flows, 2, b);
}

/* A link fails at 1 s and comes back at 3 s: 20 bytes at 10 take 4 s instead of 2. Slowed to 5 instead: 3 s. */
static void
test_capacity (void)
{
  for (guint slowed = 0; slowed < 2; slowed++) {
    g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 10 });
    guint32 a = add (flows, ROUTE (0), 20, INFINITY, 1);
    guint n;
    sp_flows_advance (flows, sp_time_from_s (1), &n);
    g_assert_cmpuint (n, ==, 0);
    sp_flows_set_capacity (flows, 0, slowed ? 5 : 0);
    assert_near (sp_flows_rate (flows, a), slowed ? 5 : 0);
    if (!slowed) {
      g_assert_cmpint (sp_flows_next (flows), ==, SP_TIME_NEVER); /* stalled */
      sp_flows_advance (flows, sp_time_from_s (3), &n);
      assert_near (sp_flows_remaining_bytes (flows, a), 10);
      sp_flows_set_capacity (flows, 0, 10);
    }
    assert_next (flows, slowed ? 3 : 4, a);
  }
}

/* Rounded to the nearest picosecond, and once: 1 byte at 3e12 B/s, a thousand times in a row, each starts when the one
 * before is through. 1/3 ps is 0 ps each; 2 bytes are 2/3 ps, 1 ps each. */
static void
test_rounding (void)
{
  for (guint bytes = 1; bytes <= 2; bytes++) {
    g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 3e12 });
    for (guint i = 0; i < 1000; i++) {
      guint32 a = add (flows, ROUTE (0), bytes, INFINITY, 1);
      assert_next (flows, (bytes - 1) * (i + 1) * 1e-12, a);
    }
  }
}

/* A rate that changes a thousand times rounds nothing: only the last date is. Another flow comes and goes on a link
 * of 3: the first sends at 3 and 1.5 in turn, 1 ps each. */
static void
test_no_drift (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (1, (double[]){ 3e12 });
  guint32 a = add (flows, ROUTE (0), 2250 + 3000, INFINITY, 1);
  guint n;

  for (SpTime t = 0; t < 1000; t += 2) {
    sp_flows_advance (flows, t + 1, &n);
    guint32 b = add (flows, ROUTE (0), 1000, INFINITY, 1);
    sp_flows_advance (flows, t + 2, &n);
    sp_flows_remove (flows, b);
  }
  assert_near (sp_flows_remaining_bytes (flows, a), 3000);
  assert_next (flows, 2000e-12, a);
}

/* --- the link that serves one message after another --------------------------------------------------------------- */

/* First come, first served: what a link is without sharing. Returns when the message is through. */
typedef struct {
  double bytes_per_s;
  SpTime free_at;
} FifoLink;

static SpTime
fifo_send (FifoLink *link, SpTime now, double bytes)
{
  return link->free_at = MAX (now, link->free_at) + sp_time_from_s (bytes / link->bytes_per_s);
}

/* One flow at a time: the same dates. All at once: the same end, because a shared link is never idle (to the rounding
 * of the servers' dates, 1/2 ps a message). */
static void
test_fifo (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  g_autoptr (SpFlows) in_turn = sp_flows_new (1, (double[]){ 50e9 }), at_once = sp_flows_new (1, (double[]){ 50e9 });
  FifoLink link = { 50e9, 0 };
  SpTime end = 0;

  for (guint i = 0; i < 100; i++) {
    double bytes = g_rand_double_range (rand, 1, 1e6);
    guint n;
    SpTime date = fifo_send (&link, link.free_at, bytes);
    add (in_turn, ROUTE (0), bytes, INFINITY, 1);
    g_assert_cmpint (sp_flows_next (in_turn), ==, date);
    sp_flows_advance (in_turn, date, &n);
    add (at_once, ROUTE (0), bytes, INFINITY, 1);
  }
  for (SpTime date; (date = sp_flows_next (at_once)) < SP_TIME_NEVER; end = date) {
    guint n;
    sp_flows_advance (at_once, date, &n);
  }
  g_assert_cmpint (ABS (end - link.free_at), <=, 50);
}

/* --- what a solver promises --------------------------------------------------------------------------------------- */

/* Two in one process, one ahead of the other. */
static void
test_two_instances (void)
{
  g_autoptr (SpFlows) a = sp_flows_new (1, (double[]){ 10 }), b = sp_flows_new (1, (double[]){ 5 });
  guint32 in_a = add (a, ROUTE (0), 10, INFINITY, 1), in_b = add (b, ROUTE (0), 10, INFINITY, 1);

  assert_next (a, 1, in_a);
  g_assert_cmpint (sp_flows_now (b), ==, 0);
  assert_next (b, 2, in_b);
}

/* Slots, lists, routes and dates are reused: after the first rounds, the arrays stay. */
static void
test_reuse (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (6, (double[]){ 6, 5, 4, 3, 2, 1 });
  guint32 most = 0;

  for (guint round = 0; round < 1000; round++) {
    guint32 a = add (flows, ROUTE (0, 1, 2, 3, 4, 5), 1, INFINITY, 1),
            b = add (flows, ROUTE (round % 6), 1, INFINITY, 1);
    most = MAX (most, MAX (a, b));
    guint n;
    do
      sp_flows_advance (flows, sp_flows_next (flows), &n);
    while (sp_flows_n_active (flows) > 0);
  }
  g_assert_cmpuint (most, <, 32);
}

static void
test_refusals (void)
{
  g_autoptr (SpFlows) flows = sp_flows_new (2, (double[]){ 6, 5 });
  guint n;

  add (flows, ROUTE (0), 6, INFINITY, 1);
  for (guint i = 0; i < 8; i++)
    g_test_expect_message (NULL, G_LOG_LEVEL_CRITICAL, "*assertion*failed*");
  add (flows, ROUTE (2), 1, INFINITY, 1);    /* no such link */
  add (flows, ROUTE (0, 0), 1, INFINITY, 1); /* twice over a link */
  add (flows, ROUTE (0), -1, INFINITY, 1);   /* less than nothing */
  add (flows, ROUTE (0), NAN, INFINITY, 1);
  add (flows, ROUTE (0), 1, 0, 1);                  /* never through */
  add (flows, ROUTE (0), 1, INFINITY, 0);           /* nobody */
  sp_flows_advance (flows, sp_time_from_s (2), &n); /* beyond a completion */
  sp_flows_remove (flows, 7);                       /* no such flow */
  g_test_assert_expected_messages ();
  g_assert_cmpuint (sp_flows_n_active (flows), ==, 1);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/flows/one-flow", test_one_flow);
  g_test_add_func ("/flows/one-link", test_one_link);
  g_test_add_func ("/flows/chain", test_chain);
  g_test_add_func ("/flows/caps", test_caps);
  g_test_add_func ("/flows/three-links", test_three_links);
  g_test_add_func ("/flows/weights", test_weights);
  g_test_add_func ("/flows/long-route", test_long_route);
  g_test_add_func ("/flows/loose", test_loose);
  g_test_add_func ("/flows/loose-neighbours", test_loose_neighbours);
  g_test_add_func ("/flows/loose-exact", test_loose_exact);
  g_test_add_func ("/flows/loose-window", test_loose_window);
  g_test_add_func ("/flows/degenerate", test_degenerate);
  g_test_add_func ("/flows/capacity", test_capacity);
  g_test_add_func ("/flows/rounding", test_rounding);
  g_test_add_func ("/flows/no-drift", test_no_drift);
  g_test_add_func ("/flows/fifo", test_fifo);
  g_test_add_func ("/flows/two-instances", test_two_instances);
  g_test_add_func ("/flows/reuse", test_reuse);
  g_test_add_func ("/flows/refusals", test_refusals);
  return g_test_run ();
}
