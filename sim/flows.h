/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Flows that share links max-min fairly: how long a transfer takes when others cross the same links.
 *
 * The model is a fluid. A LINK (one direction of a wire) carries at most `capacity` bytes a second. A FLOW sends
 * `bytes` over a ROUTE, a set of links, at one rate on all of them at once. Its rate is at most its CAP. A flow of
 * WEIGHT n is n twins in one variable: its bytes, its cap and its rate are those of ONE member, its load on a link is n
 * times that.
 *
 *    for every link l:  sum over flows f that cross l of weight_f rate_f  <=  capacity_l
 *    max-min:  no rate can grow unless that of a flow which is no faster shrinks; that is, every flow is at its cap or
 *              crosses a full link on which none is faster.   There is exactly one such set of rates.
 *
 * It is found by progressive filling. A worked case: links of 10 each; flow A over all three, B on the first, C and D
 * on the second, E, F and G on the third. The third is the narrowest, 10/4 = 2.5 for A, E, F and G; the second has 7.5
 * left for C and D, 3.75 each; the first has 7.5 for B.
 *
 * A link is LOOSE while the caps of its flows, times their weights, sum to no more than its capacity (to within 1e-9 of
 * it, which a link may so be over): then it holds back nobody. A flow over loose links alone runs at its cap; it starts
 * and ends without a solve. Flows are connected only through links that are not loose. The sums are exact integers, so
 * that a link which a thousand flows have crossed is judged as a new one. This is for collectives: a route of up to
 * thousands of ports, and a cap that the ports can mostly carry.
 *
 * What is not in it: latency (the caller's events), queues, slow start, losses. Store and forward, where each hop pays
 * the serialisation, is another model: this one pays it once.
 *
 * Time is SpTime, rates are doubles. The date of a completion is rounded once, to the nearest picosecond, from what is
 * left at the last change of rate, which is never rounded: no drift and no bias to the early side. A flow is through at
 * its date, with nothing left. Rates that differ by less than 1e-10 of themselves are one rate, so that flows which
 * should end together do.
 *
 * How it stays fast:
 *  - lazy: starts, ends and changed capacities only mark links. One solve an instant, when sp_flows_next() is asked.
 *  - incremental: only the connected components of marked links are solved, only flows whose rate changed get a new
 *    date. Loose links mark nothing and connect nothing.
 *  - it streams: a link's list holds, for every flow without a cap, the other links of its route, so the inner loop
 *    follows no pointers. Flows with a cap are chained instead: cheap to join and leave, slower to solve.
 *  - links wait in a heap with the share they had when last looked at; near dates wait in a heap, far ones in none.
 *  - no allocation a flow in a steady state: slots, lists and routes are reused.
 * The component saves nothing where everything is connected: in an all-to-all with unequal sizes, every end changes
 * nearly every rate. For that there is the WINDOW.
 *
 * The window (off by default: exact). Ends are then not solved one by one. The first one due opens a window; in its
 * middle one solve serves all that are due in it. Each flow is still reported at its own date, as predicted by the last
 * solve. What a flow had yet to send when it left its links early is charged to them over the next window, and what a
 * late one left unused is credited, so that over two windows no link carries more or less than it could; within one, a
 * link's load can be up to half its capacity beyond it, or short of it. Starts, removals and changed capacities are
 * solved at once, window or not. The window is the larger of an absolute time and a fraction of the time since the
 * network was last idle, and shrinks with the share of flows that are left, because the last ones set the makespan.
 * TOLERANCE, measured on 1,500 random systems of up to 160 flows, fractions 0.001 to 0.05: a date is off by at most
 * 0.6 windows in most systems and 1.3 in the worst, the last date by at most 0.12 windows. So for a makespan
 * within 0.01 %, declare 0.001. With many flows it is far better: all-to-all of 256 hosts, sizes +-10 %, fraction 0.01:
 * the makespan is off by 4e-7.
 *
 * Cost (tests/bench-flows.c; one core of a 2-core AMD EPYC virtual machine, gcc 12 -O3, CPU time, medians; adding the
 * flows included):
 *
 *    all-to-all, 65,280 flows, fat tree, equal sizes        9 ms   7 M flows/s
 *    the same, 1,047,552 flows                            170 ms   6 M flows/s, 210 MB: 200 bytes a flow
 *                                                         (0.6 s when its memory is touched for the first time)
 *    65,280 flows, sizes +-10 %, window 0.01              80 ms
 *      window 0.001                                      310 ms
 *      exact                                         20 to 30 s     65,278 solves of 0.3 to 0.5 ms
 *    ring of 1,024 hosts, 64 steps, equal sizes             5 ms  13 M flows/s
 *      sizes +-10 %, no two ends at one date               14 ms   5 M flows/s
 *    collectives of 8 ports, 16 links, none contends    0.14 us each, 58 M ends of members/s
 *      out of step                                      0.16 us each, 51 M/s
 *      beside 8 collectives of 128 ports, 256 links,
 *      that contend with all of them                      0.4 us each, 21 M/s
 *
 * A solve is O(flows on the component's links + links x log links); an end on loose links O(route + log near flows).
 * KNOWN WEAKNESS: what contends is one component, and is solved at every date at which anything in it ends: 16 us for
 * 128 + 8 collectives on 2,048 links, so 0.06 M flows/s when they are out of step.
 *
 * Deterministic: the same calls give the same dates. Names of links and the order of adding flows change rates by
 * rounding only. A value you pass: nothing is global, and two can live in one process.
 *
 * Programmer errors (checked always, the call is then ignored): a link that does not exist or is twice on a route, a
 * negative or infinite size or capacity, a cap of 0, going back in time or beyond sp_flows_next(), a flow that is not
 * active.
 */

#include "sim/clock.h"

G_BEGIN_DECLS

#define SP_FLOWS_NONE G_MAXUINT32

typedef struct _SpFlows SpFlows;

/* Links are numbered from 0. */
SpFlows *sp_flows_new (guint n_links, const double *capacities_bytes_per_s);
void sp_flows_free (SpFlows *flows);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpFlows, sp_flows_free)

/* Declares a window: see above. While no flow is active. 0 and 0: exact. */
void sp_flows_set_window (SpFlows *flows, SpTime window_ps, double fraction);

/* After every solve, compare with sp_flows_check() and abort beyond 1e-8. For tests: it is slow. */
void sp_flows_set_checks (SpFlows *flows, gboolean checks);

/* Starts a flow now. cap_bytes_per_s may be INFINITY; a route may be empty (a copy in place: it runs at its cap, or
 * is through at once). Returns its handle, a small number that is used again once the flow is reported (by the next
 * sp_flows_advance()) or removed: so the caller may keep an array of what it knows of each. */
guint32 sp_flows_add (SpFlows *flows, const guint32 *links, guint n_links, double bytes, double cap_bytes_per_s,
                      guint32 weight);

/* Stops a flow before it is through; it is not reported. */
void sp_flows_remove (SpFlows *flows, guint32 flow);

/* From now on. 0: the link has failed, and its flows stall until it is back or they are removed. */
void sp_flows_set_capacity (SpFlows *flows, guint32 link, double bytes_per_s);

/* When the network is to be called next: when flows are through, or (with a window) when rates are to be solved
 * again. SP_TIME_NEVER: no flow will ever be through, because there are none or all are stalled. Solves, if anything
 * changed. */
SpTime sp_flows_next (SpFlows *flows);

/* Goes on to a date no later than sp_flows_next(). Returns the flows that are through at it, by number, and how
 * many: none before that date, and perhaps none at it (with a window). The array is valid until the next call. */
const guint32 *sp_flows_advance (SpFlows *flows, SpTime to, guint *ret_n);

SpTime sp_flows_now (const SpFlows *flows);

/* Flows that are not yet through. */
guint sp_flows_n_active (const SpFlows *flows);

/* Of one member, now. */
double sp_flows_rate (SpFlows *flows, guint32 flow);
double sp_flows_remaining_bytes (const SpFlows *flows, guint32 flow);

/* What a link carries now, bytes/s. Looks at all its flows. */
double sp_flows_link_load (SpFlows *flows, guint32 link);

/* The oracle: solves all rates from scratch by the definition. Returns the largest difference, relative to the rate. */
double sp_flows_check (SpFlows *flows);

typedef struct {
  guint64 solves;      /* instants at which rates were computed */
  guint64 rates;       /* that changed, over all solves */
  guint64 look_aheads; /* times that all flows were searched for near dates */
} SpFlowsStatistics;

SpFlowsStatistics sp_flows_statistics (const SpFlows *flows);

G_END_DECLS
