/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

/*
 * The oracle: the max-min rates of all flows from scratch, by the definition, without heaps, components or levels.
 * Round by round, the smallest share of any link and the smallest cap of any flow decide; it shares no code with
 * flows-solve.c. Slow: rounds x (links + flows).
 */

#define TOLERANCE 1e-8 /* relative: what rounding and levels may do to a rate, over a chain of bottlenecks */

typedef struct {
  const SpFlows *flows;
  double *left_bytes_per_s, *weight; /* by link */
  double *rate_bytes_per_s;          /* by slot; negative: not fixed */
  guint32 *open, n_open;             /* flows not fixed */
} Scratch;

static void
open_all (Scratch *scratch)
{
  const SpFlows *flows = scratch->flows;

  for (guint32 l = 1; l < flows->n_links; l++)
    scratch->left_bytes_per_s[l] = sp_flow_link_capacity_ (&flows->links[l]);
  for (guint32 id = 0; id < flows->n_slots; id++) {
    const SpFlowRoute *route = &flows->routes[id];
    if (flows->flows[id].solved == SP_FLOWS_GONE || route->n_links == 0)
      continue;
    const guint32 *links = sp_flow_links_ (flows, route);
    for (guint32 i = 0; i < route->n_links; i++)
      scratch->weight[links[i]] += route->weight;
    scratch->rate_bytes_per_s[id] = -1;
    scratch->open[scratch->n_open++] = id;
  }
}

static double
share_of (const Scratch *scratch, guint32 link)
{
  return MAX (0, scratch->left_bytes_per_s[link]) / scratch->weight[link];
}

/* The largest rate that every open flow can have at once. */
static double
common_rate (const Scratch *scratch)
{
  double rate_bytes_per_s = G_MAXDOUBLE;

  for (guint32 l = 1; l < scratch->flows->n_links; l++)
    if (scratch->weight[l] > 0)
      rate_bytes_per_s = MIN (rate_bytes_per_s, share_of (scratch, l));
  for (guint32 i = 0; i < scratch->n_open; i++)
    rate_bytes_per_s = MIN (rate_bytes_per_s, scratch->flows->routes[scratch->open[i]].cap_bytes_per_s);
  return rate_bytes_per_s;
}

/* Fixes the open flows that cannot go beyond the common rate. Links that it saturates are judged before any of them
 * gives something away. */
static void
fix_round (Scratch *scratch, double rate_bytes_per_s)
{
  const SpFlows *flows = scratch->flows;
  double limit_bytes_per_s = rate_bytes_per_s * (1 + 1e-12);
  guint32 kept = 0;
  g_autofree gboolean *is_full = g_new0 (gboolean, flows->n_links);

  for (guint32 l = 1; l < flows->n_links; l++)
    is_full[l] = scratch->weight[l] > 0 && share_of (scratch, l) <= limit_bytes_per_s;
  for (guint32 k = 0; k < scratch->n_open; k++) {
    guint32 id = scratch->open[k];
    const SpFlowRoute *route = &flows->routes[id];
    const guint32 *links = sp_flow_links_ (flows, route);
    gboolean is_fixed = route->cap_bytes_per_s <= limit_bytes_per_s;
    for (guint32 i = 0; i < route->n_links; i++)
      is_fixed |= is_full[links[i]];
    if (!is_fixed) {
      scratch->open[kept++] = id;
      continue;
    }
    scratch->rate_bytes_per_s[id] = rate_bytes_per_s;
    for (guint32 i = 0; i < route->n_links; i++) {
      scratch->left_bytes_per_s[links[i]] -= rate_bytes_per_s * route->weight;
      scratch->weight[links[i]] -= route->weight;
    }
  }
  g_assert (kept < scratch->n_open);
  scratch->n_open = kept;
}

double
sp_flows_check (SpFlows *flows)
{
  g_autofree double *left_bytes_per_s = g_new0 (double, flows->n_links), *weight = g_new0 (double, flows->n_links);
  g_autofree double *rate_bytes_per_s = g_new0 (double, flows->n_slots + 1);
  g_autofree guint32 *open = g_new (guint32, flows->n_slots + 1);
  Scratch scratch = { flows, left_bytes_per_s, weight, rate_bytes_per_s, open, 0 };
  double worst = 0;

  sp_flows_next (flows);
  open_all (&scratch);
  while (scratch.n_open > 0)
    fix_round (&scratch, common_rate (&scratch));
  for (guint32 id = 0; id < flows->n_slots; id++) {
    if (flows->flows[id].solved == SP_FLOWS_GONE || flows->routes[id].n_links == 0)
      continue;
    double rate = flows->flows[id].bytes_per_s, expected = rate_bytes_per_s[id];
    double error = fabs (rate - expected);
    /* Near zero it is the rounding of what is nearly used up: relative to what the route could carry. */
    double scale = MAX (fabs (rate), fabs (expected));
    worst = error > 0 ? MAX (worst, error / scale) : worst;
    if (isnan (error))
      return INFINITY;
  }
  return worst;
}

void
sp_flows_assert_ (SpFlows *flows)
{
  double worst = sp_flows_check (flows);

  if (!(worst <= TOLERANCE))
    g_error ("at %" G_GINT64_FORMAT " ps a rate is %g of itself away from a full solve", flows->now, worst);
}
