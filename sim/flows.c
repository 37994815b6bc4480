/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

#include <stdlib.h>
#include <string.h>

/* --- the window --------------------------------------------------------------------------------------------------- */

/* Narrows with the flows that are left: the last ones set the makespan. */
static SpTime
window_now (const SpFlows *flows)
{
  double busy_ps = (double) (flows->now - flows->busy_since);
  double widest_ps = MAX ((double) flows->window_ps, flows->window_fraction * busy_ps);

  return (SpTime) (widest_ps * flows->n_flows / flows->most_flows);
}

/* A flow leaves at a moment that is not its date: what it has yet to send then is owed by its links, and what it left
 * unused (below 0) is owed to them. */
static void
leave_with_debit (SpFlows *flows, guint32 id)
{
  const SpFlowRoute *route = &flows->routes[id];
  const guint32 *links = sp_flow_links_ (flows, route);
  double debit_bytes = sp_flow_remaining_ (&flows->flows[id], flows->now) * route->weight;

  for (guint32 i = 0; i < route->n_links; i++) {
    SpFlowLink *link = &flows->links[links[i]];
    link->debit_bytes += debit_bytes;
    if (!link->is_charged) {
      link->is_charged = TRUE;
      sp_flow_list_append_ (&flows->charged, links[i]);
    }
  }
  sp_flow_leave_ (flows, id);
}

/* Flows that were reported since the last solve leave their links. */
static void
let_late_leave (SpFlows *flows)
{
  for (guint32 i = 0; i < flows->late.n; i++) {
    leave_with_debit (flows, flows->late.of[i]);
    sp_flow_release_ (flows, flows->late.of[i]);
  }
  flows->late.n = 0;
  flows->solve_due = SP_TIME_NEVER;
}

/* Flows that are due within half a window leave now, and stay to be reported at their dates. */
static void
let_early_leave (SpFlows *flows)
{
  SpTime until = flows->now + window_now (flows) / 2;

  sp_flows_look_ahead_ (flows, until);
  sp_flows_due_until_ (flows, until, &flows->early);
  for (guint32 i = 0; i < flows->early.n; i++) {
    guint32 id = flows->early.of[i];
    if (flows->flows[id].solved != SP_FLOWS_GONE && sp_flow_crosses_tight_ (flows, id))
      leave_with_debit (flows, id);
  }
}

/* What links have paid of their debits since the last solve is struck off. */
static void
strike_off (SpFlows *flows)
{
  double elapsed_s = (double) (flows->now - flows->charged_at) / SP_PS_PER_S;

  for (guint32 i = 0; i < flows->charged.n; i++) {
    SpFlowLink *link = &flows->links[flows->charged.of[i]];
    link->debit_bytes -= link->charge_bytes_per_s * elapsed_s;
    link->charge_bytes_per_s = 0;
    sp_flow_link_changed_ (flows, flows->charged.of[i]);
  }
  flows->charged_at = flows->now;
}

/* Spreads what is still owed over the coming window. Every link that is charged is solved again. */
static void
charge (SpFlows *flows)
{
  double window_s = (double) MAX (1, window_now (flows)) / SP_PS_PER_S;
  guint32 kept = 0;

  for (guint32 i = 0; i < flows->charged.n; i++) {
    guint32 id = flows->charged.of[i];
    SpFlowLink *link = &flows->links[id];
    sp_flow_mark_dirty_ (flows, id);
    if (sp_flow_link_n_live_ (link) == 0 || fabs (link->debit_bytes) <= 1e-6 * link->bytes_per_s * window_s) {
      link->debit_bytes = 0;
      link->is_charged = FALSE;
      continue;
    }
    link->charge_bytes_per_s = link->debit_bytes / window_s;
    sp_flow_link_changed_ (flows, id);
    flows->charged.of[kept++] = id;
  }
  flows->charged.n = kept;
  flows->charge_due = kept > 0 ? flows->now + 1 + window_now (flows) * 5 / 4 : SP_TIME_NEVER;
}

/* The flows due now stay on their links until the window's solve, or leave at once if none other is due within it. */
static void
wait_for_window (SpFlows *flows)
{
  SpTime window_ps = window_now (flows);

  if (flows->late.n == 0 || flows->solve_due < SP_TIME_NEVER)
    return;
  sp_flows_look_ahead_ (flows, 0);
  if (flows->n_dates > 0 && flows->dates[1].date <= flows->now + window_ps)
    flows->solve_due = flows->now + window_ps / 2;
  else
    flows->must_solve = TRUE;
}

/* --- rates and dates ---------------------------------------------------------------------------------------------- */

static void
solve (SpFlows *flows)
{
  gboolean is_windowed = flows->window_ps > 0 || flows->window_fraction > 0;

  if (is_windowed) {
    gboolean is_window_over = flows->now >= flows->solve_due;
    strike_off (flows);
    let_late_leave (flows);
    if (is_window_over)
      let_early_leave (flows);
    charge (flows);
  }
  flows->must_solve = FALSE;
  sp_flows_solve_ (flows);
  if (flows->checks)
    sp_flows_assert_ (flows);
}

SpTime
sp_flows_next (SpFlows *flows)
{
  SpTime inner = MIN (flows->solve_due, flows->charge_due);

  if (flows->must_solve || flows->now >= inner) {
    solve (flows);
    inner = MIN (flows->solve_due, flows->charge_due);
  }
  sp_flows_look_ahead_ (flows, 0);
  SpTime date = flows->n_dates > 0 ? flows->dates[1].date : SP_TIME_NEVER;
  return MIN (date, inner);
}

/* The flows that the last call reported are forgotten. */
static void
forget_finished (SpFlows *flows)
{
  for (guint32 i = 0; i < flows->finished.n; i++)
    sp_flow_release_ (flows, flows->finished.of[i]);
  flows->finished.n = 0;
}

const guint32 *
sp_flows_advance (SpFlows *flows, SpTime to, guint *ret_n)
{
  gboolean is_windowed = flows->window_ps > 0 || flows->window_fraction > 0;

  *ret_n = 0;
  forget_finished (flows);
  g_return_val_if_fail (to >= flows->now && to <= sp_flows_next (flows), NULL);
  flows->now = to;
  if (flows->n_dates == 0 || flows->dates[1].date > to)
    return NULL;
  sp_flows_take_due_ (flows);
  for (guint32 i = 0; i < flows->finished.n; i++) {
    guint32 id = flows->finished.of[i];
    SpFlow *flow = &flows->flows[id];
    if (flow->solved == SP_FLOWS_GONE)
      continue;
    if (!is_windowed || !sp_flow_crosses_tight_ (flows, id)) {
      sp_flow_leave_ (flows, id);
    } else {
      flow->solved = SP_FLOWS_GONE;
      flows->routes[id].holds++;
      sp_flow_list_append_ (&flows->late, id);
    }
  }
  flows->n_flows -= flows->finished.n;
  wait_for_window (flows);
  *ret_n = flows->finished.n;
  return flows->finished.of;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

SpFlows *
sp_flows_new (guint n_links, const double *capacities_bytes_per_s)
{
  SpFlows *flows = g_new0 (SpFlows, 1);

  flows->n_links = n_links + 1;
  flows->links = sp_flows_grow_array_ (NULL, 0, flows->n_links * sizeof (SpFlowLink));
  memset (flows->links, 0, flows->n_links * sizeof (SpFlowLink));
  flows->stamps = g_new0 (guint32, flows->n_links);
  flows->fill = g_new0 (SpFlowFill, flows->n_links);
  flows->shares = g_new (SpFlowShare, flows->n_links + 1);
  for (guint i = 0; i < n_links; i++) {
    flows->links[i + 1].bytes_per_s = capacities_bytes_per_s[i];
    sp_flow_link_changed_ (flows, i + 1);
  }
  flows->first_free = SP_FLOWS_NONE;
  flows->most_flows = 1;
  flows->horizon = flows->solve_due = flows->charge_due = SP_TIME_NEVER;
  return flows;
}

void
sp_flows_free (SpFlows *flows)
{
  if (flows == NULL)
    return;
  sp_flows_free_slabs_ (&flows->slabs);
  free (flows->links);
  g_free (flows->stamps);
  g_free (flows->fill);
  g_free (flows->shares);
  free (flows->flows);
  free (flows->routes);
  free (flows->dates);
  SpFlowList *lists[] = { &flows->dirty,     &flows->arena, &flows->arena_free, &flows->finished, &flows->early,
                          &flows->component, &flows->stack, &flows->open,       &flows->late,     &flows->charged };
  for (guint i = 0; i < G_N_ELEMENTS (lists); i++)
    g_free (lists[i]->of);
  g_free (flows);
}

void
sp_flows_set_window (SpFlows *flows, SpTime window_ps, double fraction)
{
  g_return_if_fail (window_ps >= 0 && fraction >= 0 && fraction < 1 && flows->n_flows == 0);
  flows->window_ps = window_ps;
  flows->window_fraction = fraction;
}

void
sp_flows_set_checks (SpFlows *flows, gboolean checks)
{
  flows->checks = checks;
}

static gboolean
is_route (SpFlows *flows, const guint32 *links, guint n_links)
{
  if (n_links >= G_MAXUINT16 - 1)
    return FALSE;
  if (G_UNLIKELY (++flows->stamp == 0)) {
    memset (flows->stamps, 0, flows->n_links * sizeof (guint32));
    flows->stamp = 1;
  }
  for (guint i = 0; i < n_links; i++) {
    if (links[i] >= flows->n_links - 1 || flows->stamps[links[i]] == flows->stamp)
      return FALSE;
    flows->stamps[links[i]] = flows->stamp;
  }
  return TRUE;
}

guint32
sp_flows_add (SpFlows *flows, const guint32 *links, guint n_links, double bytes, double cap_bytes_per_s, guint32 weight)
{
  g_return_val_if_fail (is_route (flows, links, n_links), SP_FLOWS_NONE);
  g_return_val_if_fail (bytes >= 0 && isfinite (bytes) && cap_bytes_per_s > 0 && weight > 0, SP_FLOWS_NONE);

  guint32 id = sp_flow_join_ (flows, links, n_links, cap_bytes_per_s, weight);
  if (flows->n_flows++ == 0) {
    flows->busy_since = flows->now;
    flows->most_flows = 0;
  }
  flows->most_flows = MAX (flows->most_flows, flows->n_flows);
  flows->flows[id] = (SpFlow){ .remaining_bytes = bytes, .bytes_per_s = -1, .updated = flows->now };
  if (!sp_flow_crosses_tight_ (flows, id)) {
    double bytes_per_s = flows->routes[id].cap_bytes_per_s;
    flows->flows[id].bytes_per_s = bytes_per_s;
    sp_flows_schedule_ (flows, id, sp_flow_date_ (flows->now, bytes, SP_PS_PER_S / bytes_per_s));
  }
  return id;
}

static gboolean
is_active (const SpFlows *flows, guint32 flow)
{
  return flow < flows->n_slots && (flows->flows[flow].solved != SP_FLOWS_GONE || flows->flows[flow].place > 0);
}

void
sp_flows_remove (SpFlows *flows, guint32 flow)
{
  g_return_if_fail (is_active (flows, flow));
  if (flows->flows[flow].solved != SP_FLOWS_GONE)
    sp_flow_leave_ (flows, flow);
  sp_flows_unschedule_ (flows, flow);
  flows->n_flows--;
  sp_flow_release_ (flows, flow);
}

void
sp_flows_set_capacity (SpFlows *flows, guint32 link, double bytes_per_s)
{
  g_return_if_fail (link < flows->n_links - 1 && bytes_per_s >= 0 && isfinite (bytes_per_s));
  flows->links[link + 1].bytes_per_s = bytes_per_s;
  sp_flow_link_changed_ (flows, link + 1);
}

SpTime
sp_flows_now (const SpFlows *flows)
{
  return flows->now;
}

guint
sp_flows_n_active (const SpFlows *flows)
{
  return flows->n_flows;
}

double
sp_flows_rate (SpFlows *flows, guint32 flow)
{
  g_return_val_if_fail (is_active (flows, flow), 0);
  sp_flows_next (flows);
  return flows->flows[flow].bytes_per_s;
}

double
sp_flows_remaining_bytes (const SpFlows *flows, guint32 flow)
{
  g_return_val_if_fail (is_active (flows, flow), 0);
  return MAX (0, sp_flow_remaining_ (&flows->flows[flow], flows->now));
}

double
sp_flows_link_load (SpFlows *flows, guint32 link)
{
  double load_bytes_per_s = 0;

  g_return_val_if_fail (link < flows->n_links - 1, 0);
  sp_flows_next (flows);
  const SpFlowLink *of = &flows->links[link + 1];
  for (guint32 i = 0; i < of->n_items; i++) {
    guint32 id = of->items[i].flow & ~SP_FLOWS_LONG_ROUTE;
    if (flows->flows[id].solved != SP_FLOWS_GONE)
      load_bytes_per_s += flows->flows[id].bytes_per_s * flows->routes[id].weight;
  }
  for (guint32 at = of->chain; at > 0; at = sp_flow_node_ (flows, at)->next) {
    guint32 id = sp_flow_node_ (flows, at)->flow;
    load_bytes_per_s += flows->flows[id].bytes_per_s * flows->routes[id].weight;
  }
  return load_bytes_per_s;
}

SpFlowsStatistics
sp_flows_statistics (const SpFlows *flows)
{
  return flows->statistics;
}
