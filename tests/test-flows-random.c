/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows.h"

#include <string.h>

/*
 * Properties of the flow solver on random systems: links of 1 to 10 GB/s, routes of 1 to 7 of them, some flows with
 * caps and weights, sizes drawn from few values in one half of the systems (ties) and freely in the other. In a third
 * of the systems nearly all flows have a cap, and up to 24 links, and the caps are such that those on a link sum to
 * about its capacity, to just that, or to a little more or less: links turn tight and loose all the time. A failure
 * prints its seed.
 */

#define SYSTEMS 90
#define MAX_FLOWS 160
#define MAX_ROUTE 24
#define SHORT_ROUTE 7

typedef struct {
  guint32 links[MAX_ROUTE];
  guint n_links;
  double bytes, cap_bytes_per_s;
  guint32 weight;
  SpTime start;
} Wanted;

typedef struct {
  gboolean has_ties, is_near; /* caps sum to about what links have */
  guint n_links, n_flows;
  double bytes_per_s[40];
  Wanted flows[MAX_FLOWS];
} System;

/* A part of what the flow's first link has: k of them fill it, or nearly. */
static double
near_cap (GRand *rand, const System *system, const Wanted *flow)
{
  static const double factors[] = { 0.9, 1 - 1e-6, 1 - 1e-12, 1, 1, 1, 1 + 1e-12, 1 + 1e-6, 1.1 };
  double factor = factors[g_rand_int_range (rand, 0, G_N_ELEMENTS (factors))];
  gint32 parts = g_rand_int_range (rand, 1, 8);

  if (g_rand_int_range (rand, 0, 20) == 0)
    return INFINITY;
  return system->bytes_per_s[flow->links[0]] / parts * factor / flow->weight;
}

static void
draw_flow (GRand *rand, const System *system, gboolean at_once, Wanted *flow)
{
  guint longest = system->is_near && g_rand_int_range (rand, 0, 8) == 0 ? MAX_ROUTE : SHORT_ROUTE;

  flow->n_links = (guint) g_rand_int_range (rand, 1, 1 + (gint32) MIN (longest, system->n_links));
  for (guint i = 0; i < flow->n_links;) {
    guint32 link = (guint32) g_rand_int_range (rand, 0, (gint32) system->n_links);
    gboolean is_new = TRUE;
    for (guint k = 0; k < i; k++)
      is_new &= flow->links[k] != link;
    if (is_new)
      flow->links[i++] = link;
  }
  flow->bytes = system->has_ties ? 1e6 * g_rand_int_range (rand, 1, 4) : g_rand_double_range (rand, 1, 3e6);
  flow->cap_bytes_per_s = g_rand_int_range (rand, 0, 4) == 0 ? g_rand_double_range (rand, 1e7, 2e9) : INFINITY;
  flow->weight = g_rand_int_range (rand, 0, 4) == 0 ? (guint32) g_rand_int_range (rand, 2, 5) : 1;
  if (system->is_near)
    flow->cap_bytes_per_s = near_cap (rand, system, flow);
  flow->start = at_once ? 0 : (SpTime) g_rand_double_range (rand, 0, 5e9);
}

static void
draw_system (guint32 seed, gboolean at_once, System *system)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  gboolean has_ties = seed % 2;

  system->has_ties = has_ties;
  system->is_near = seed % 3 == 2;
  system->n_links = (guint) g_rand_int_range (rand, 1, G_N_ELEMENTS (system->bytes_per_s));
  system->n_flows = (guint) g_rand_int_range (rand, 1, system->is_near ? MAX_FLOWS / 4 : MAX_FLOWS);
  for (guint i = 0; i < system->n_links; i++)
    system->bytes_per_s[i] = has_ties ? 1e9 * g_rand_int_range (rand, 1, 4) : g_rand_double_range (rand, 1e9, 1e10);
  for (guint i = 0; i < system->n_flows; i++)
    draw_flow (rand, system, at_once, &system->flows[i]);
}

/* --- running one -------------------------------------------------------------------------------------------------- */

/* How a system is given to the solver. Neither order nor names should matter. */
typedef struct {
  guint32 order_seed; /* 0: as drawn */
  double window;      /* fraction of the elapsed time */
  gboolean checks;    /* every solve against the oracle */
} Way;

static void
shuffle (GRand *rand, guint32 *of, guint n)
{
  for (guint i = 0; i < n; i++)
    of[i] = i;
  for (guint i = n; rand != NULL && i > 1; i--) {
    guint k = (guint) g_rand_int_range (rand, 0, (gint32) i);
    guint32 kept = of[i - 1];
    of[i - 1] = of[k], of[k] = kept;
  }
}

static SpFlows *
new_flows (const System *system, const guint32 *names)
{
  double bytes_per_s[40];

  for (guint i = 0; i < system->n_links; i++)
    bytes_per_s[names[i]] = system->bytes_per_s[i];
  return sp_flows_new (system->n_links, bytes_per_s);
}

static guint32
add_flow (SpFlows *flows, const Wanted *wanted, const guint32 *names)
{
  guint32 links[MAX_ROUTE];

  for (guint i = 0; i < wanted->n_links; i++)
    links[i] = names[wanted->links[i]];
  return sp_flows_add (flows, links, wanted->n_links, wanted->bytes, wanted->cap_bytes_per_s, wanted->weight);
}

/* Adds what each link carries until `to` at the present rates. */
static void
count_bytes (SpFlows *flows, const System *system, SpTime to, double *bytes)
{
  for (guint i = 0; bytes != NULL && i < system->n_links; i++)
    bytes[i] += sp_flows_link_load (flows, i) * sp_time_to_s (to - sp_flows_now (flows));
}

static SpTime
next_start (const System *system, const SpTime *dates)
{
  SpTime first = SP_TIME_NEVER;

  for (guint i = 0; i < system->n_flows; i++)
    if (dates[i] < 0)
      first = MIN (first, system->flows[i].start);
  return first;
}

/* Runs to the end. ret_dates: when each flow was through; ret_bytes, if wanted: what each link has carried. */
static void
run (const System *system, Way way, SpTime *ret_dates, double *ret_bytes)
{
  g_autoptr (GRand) rand = way.order_seed > 0 ? g_rand_new_with_seed (way.order_seed) : NULL;
  guint32 names[40], order[MAX_FLOWS], flow_of[8 * MAX_FLOWS];

  shuffle (rand, names, system->n_links);
  shuffle (rand, order, system->n_flows);
  g_autoptr (SpFlows) flows = new_flows (system, names);
  sp_flows_set_window (flows, 0, way.window);
  sp_flows_set_checks (flows, way.checks);
  for (guint i = 0; i < system->n_flows; i++)
    ret_dates[i] = -1;
  for (;;) {
    SpTime start = next_start (system, ret_dates), finish = sp_flows_next (flows), date = MIN (start, finish);
    guint n;
    if (date == SP_TIME_NEVER)
      break;
    count_bytes (flows, system, date, ret_bytes);
    const guint32 *finished = sp_flows_advance (flows, date, &n);
    for (guint i = 0; i < n; i++)
      ret_dates[flow_of[finished[i]]] = date;
    for (guint i = 0; i < system->n_flows; i++)
      if (ret_dates[order[i]] < 0 && system->flows[order[i]].start == date) {
        guint32 id = add_flow (flows, &system->flows[order[i]], names);
        g_assert_cmpuint (id, <, G_N_ELEMENTS (flow_of));
        flow_of[id] = order[i];
        ret_dates[order[i]] = SP_TIME_NEVER;
      }
  }
  g_assert_cmpuint (sp_flows_n_active (flows), ==, 0);
}

/* --- properties --------------------------------------------------------------------------------------------------- */

static gboolean
crosses (const Wanted *flow, guint link)
{
  for (guint i = 0; i < flow->n_links; i++)
    if (flow->links[i] == link)
      return TRUE;
  return FALSE;
}

/* The definition of max-min: no link beyond its capacity, and every flow is at its cap or crosses a full link on
 * which no member of any flow is faster. */
static void
assert_fair (SpFlows *flows, const System *system, const guint32 *ids)
{
  gboolean is_full[40];

  for (guint l = 0; l < system->n_links; l++) {
    double load_bytes_per_s = sp_flows_link_load (flows, l);
    g_assert_cmpfloat (load_bytes_per_s, <=, system->bytes_per_s[l] * (1 + 1e-9));
    is_full[l] = load_bytes_per_s >= system->bytes_per_s[l] * (1 - 1e-9);
  }
  for (guint i = 0; i < system->n_flows; i++) {
    const Wanted *flow = &system->flows[i];
    double rate = sp_flows_rate (flows, ids[i]);
    gboolean has_reason = rate >= flow->cap_bytes_per_s * (1 - 1e-12);
    for (guint k = 0; k < flow->n_links && !has_reason; k++) {
      has_reason = is_full[flow->links[k]];
      for (guint o = 0; o < system->n_flows && has_reason; o++)
        has_reason = !crosses (&system->flows[o], flow->links[k]) || sp_flows_rate (flows, ids[o]) <= rate * (1 + 1e-9);
    }
    g_assert_cmpfloat (rate, <=, flow->cap_bytes_per_s);
    g_assert_true (has_reason);
  }
}

static void
test_fair (void)
{
  for (guint32 seed = 0; seed < SYSTEMS; seed++) {
    System system;
    guint32 names[40], ids[MAX_FLOWS];
    draw_system (seed, TRUE, &system);
    shuffle (NULL, names, system.n_links);
    g_test_message ("seed %u", seed);
    g_autoptr (SpFlows) flows = new_flows (&system, names);
    for (guint i = 0; i < system.n_flows; i++)
      ids[i] = add_flow (flows, &system.flows[i], names);
    assert_fair (flows, &system, ids);
    g_assert_cmpfloat (sp_flows_check (flows), <, 1e-9);
  }
}

static void
test_deterministic (void)
{
  for (guint32 seed = 0; seed < SYSTEMS; seed++) {
    System system;
    SpTime a[MAX_FLOWS], b[MAX_FLOWS];
    Way way = { .window = seed % 3 * 0.01 };
    draw_system (seed, seed % 2, &system);
    run (&system, way, a, NULL);
    run (&system, way, b, NULL);
    g_assert_cmpmem (a, system.n_flows * sizeof (SpTime), b, system.n_flows * sizeof (SpTime));
  }
}

/* Links renamed and flows added in another order: the same dates, to rounding. */
static void
test_invariant (void)
{
  for (guint32 seed = 0; seed < SYSTEMS; seed++) {
    System system;
    SpTime a[MAX_FLOWS], b[MAX_FLOWS];
    draw_system (seed, seed % 4 < 2, &system);
    run (&system, (Way){ 0 }, a, NULL);
    g_test_message ("seed %u", seed);
    for (guint32 order = 1; order <= 3; order++) {
      run (&system, (Way){ .order_seed = 100 * seed + order }, b, NULL);
      for (guint i = 0; i < system.n_flows; i++)
        g_assert_cmpint (ABS (a[i] - b[i]), <=, 1 + a[i] / 1000000000);
    }
  }
}

/* What each link has carried is what was asked of it. Exact, so a flow never finishes with bytes left. */
static void
test_conservation (void)
{
  for (guint32 seed = 0; seed < SYSTEMS; seed++) {
    System system;
    SpTime dates[MAX_FLOWS];
    double carried[40] = { 0 }, asked[40] = { 0 };
    draw_system (seed, seed % 4 < 2, &system);
    run (&system, (Way){ 0 }, dates, carried);
    for (guint i = 0; i < system.n_flows; i++)
      for (guint k = 0; k < system.flows[i].n_links; k++)
        asked[system.flows[i].links[k]] += system.flows[i].bytes * system.flows[i].weight;
    g_test_message ("seed %u", seed);
    for (guint l = 0; l < system.n_links; l++) /* half a picosecond a flow */
      g_assert_cmpfloat (fabs (carried[l] - asked[l]), <=,
                         1e-9 * asked[l] + system.n_flows * 0.5e-12 * system.bytes_per_s[l]);
  }
}

/* --- incremental = full ------------------------------------------------------------------------------------------- */

typedef struct {
  SpFlows *flows;
  guint32 active[MAX_FLOWS];
  guint n_active;
} Churn;

static void
drop (Churn *churn, guint which)
{
  churn->active[which] = churn->active[--churn->n_active];
}

/* One random change: a flow more, a flow less, another capacity, or time goes on. */
static void
change (GRand *rand, const System *system, const guint32 *names, Churn *churn)
{
  gint32 draw = g_rand_int_range (rand, 0, 10);
  guint32 link = (guint32) g_rand_int_range (rand, 0, (gint32) system->n_links);

  if (draw < 4 && churn->n_active < MAX_FLOWS) {
    Wanted wanted;
    draw_flow (rand, system, TRUE, &wanted);
    wanted.n_links = MIN (wanted.n_links, draw < 3 ? 2 : MAX_ROUTE); /* mostly short: several components */
    churn->active[churn->n_active++] = add_flow (churn->flows, &wanted, names);
  } else if (draw < 5 && churn->n_active > 0) {
    guint which = (guint) g_rand_int_range (rand, 0, (gint32) churn->n_active);
    sp_flows_remove (churn->flows, churn->active[which]);
    drop (churn, which);
  } else if (draw < 6) {
    gint32 kind = g_rand_int_range (rand, 0, 4);
    sp_flows_set_capacity (churn->flows, link, kind == 0 ? 0 : system->bytes_per_s[link] * kind);
  } else {
    SpTime now = sp_flows_now (churn->flows), next = sp_flows_next (churn->flows);
    SpTime step = g_rand_int (rand) / 4;
    SpTime to = g_rand_boolean (rand) && next < SP_TIME_NEVER ? next : MIN (next, now + step);
    guint n;
    const guint32 *finished = sp_flows_advance (churn->flows, to, &n);
    for (guint i = 0; i < n; i++)
      for (guint k = 0; k < churn->n_active; k++)
        if (churn->active[k] == finished[i])
          drop (churn, k--);
  }
}

/* After every change the oracle solves from scratch. With a window too, where links pay their debits. */
static void
test_incremental (void)
{
  for (guint32 seed = 0; seed < SYSTEMS; seed++) {
    g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
    System system;
    guint32 names[40];
    draw_system (seed, TRUE, &system);
    shuffle (NULL, names, system.n_links);
    g_autoptr (SpFlows) flows = new_flows (&system, names);
    Churn churn = { flows, { 0 }, 0 };
    g_test_message ("seed %u", seed);
    sp_flows_set_window (flows, seed % 3 == 0 ? 100000000 : 0, seed % 3 == 1 ? 0.02 : 0);
    sp_flows_set_checks (flows, TRUE);
    for (guint i = 0; i < 400; i++) {
      change (rand, &system, names, &churn);
      sp_flows_next (flows);
      g_assert_cmpuint (sp_flows_n_active (flows), ==, churn.n_active);
    }
  }
}

/* --- the window --------------------------------------------------------------------------------------------------- */

/* Dates within the tolerance that the header states, of the exact ones, and the last one much nearer. */
static void
test_window (void)
{
  static const double windows[] = { 0.05, 0.01, 0.001 };

  for (guint w = 0; w < G_N_ELEMENTS (windows); w++) {
    double worst = 0, worst_end = 0;
    for (guint32 seed = 0; seed < SYSTEMS; seed++) {
      System system;
      SpTime exact[MAX_FLOWS], dates[MAX_FLOWS], exact_end = 0, end = 0;
      draw_system (seed, seed % 4 < 2, &system);
      run (&system, (Way){ 0 }, exact, NULL);
      run (&system, (Way){ .window = windows[w], .checks = TRUE }, dates, NULL);
      for (guint i = 0; i < system.n_flows; i++) {
        worst = MAX (worst, (double) ABS (dates[i] - exact[i]) / (windows[w] * (double) exact[i]));
        exact_end = MAX (exact_end, exact[i]), end = MAX (end, dates[i]);
      }
      worst_end = MAX (worst_end, (double) ABS (end - exact_end) / (windows[w] * (double) exact_end));
    }
    g_test_message ("window %g: dates off by up to %.3f windows, the last by %.3f", windows[w], worst, worst_end);
    g_assert_cmpfloat (worst, <=, 1.3);
    g_assert_cmpfloat (worst_end, <=, 0.12);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/flows-random/fair", test_fair);
  g_test_add_func ("/flows-random/deterministic", test_deterministic);
  g_test_add_func ("/flows-random/invariant", test_invariant);
  g_test_add_func ("/flows-random/conservation", test_conservation);
  g_test_add_func ("/flows-random/incremental", test_incremental);
  g_test_add_func ("/flows-random/window", test_window);
  return g_test_run ();
}
