/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"

/* Bytes of transfers on links: one flow a tier, each at most as fast as the algorithm is by itself. */

static const SpLinkTiers *
tiers_of (const SpNetwork *network, const SpTransfer *t)
{
  if (t->kind == SP_TRANSFER_COLLECTIVE)
    return network->collectives[t->price->algorithm] ? &network->collectives[t->price->algorithm][t->subject] : NULL;
  return network->messages[t->op->group][t->direction] ? &network->messages[t->op->group][t->direction][t->subject]
                                                       : NULL;
}

void
sp_engine_own_flow (SpEngine *e, guint32 flow, guint32 owner)
{
  if (flow >= e->flow_owner->len)
    g_array_set_size (e->flow_owner, MAX (flow + 1, 2 * e->flow_owner->len));
  g_array_index (e->flow_owner, guint32, flow) = owner;
}

static void
note_bytes (const SpEngine *e, const SpTransfer *t, const guint32 *links, guint n, double bytes)
{
  double *of_axis = e->options->link_bytes;

  if (of_axis == NULL)
    return;
  of_axis += (gsize) t->op->axis * e->options->network->n_links;
  for (guint i = 0; i < n; i++)
    of_axis[links[i]] += bytes;
}

gboolean
sp_engine_start_flows (SpEngine *e, guint32 number)
{
  const SpNetwork *network = e->options->network;
  SpTransfer *t = &g_array_index (e->transfers, SpTransfer, number);
  const SpLinkTiers *tiers = tiers_of (network, t);
  double seconds = sp_time_to_s (t->total - t->fixed);

  if (tiers == NULL || tiers->n == 0 || t->op->bytes == 0 || t->total <= t->fixed)
    return FALSE;
  sp_engine_advance_flows (e);
  t->flows = tiers->n;
  for (guint i = 0; i < tiers->n; i++) {
    const SpLinkTier *tier = &g_array_index (network->tiers, SpLinkTier, tiers->first + i);
    double bytes = tier->bytes_per_byte * (double) t->op->bytes;
    const guint32 *links = &g_array_index (network->links, guint32, tier->first);
    note_bytes (e, t, links, tier->n_links, bytes * tier->weight);
    sp_engine_own_flow (e, sp_flows_add (e->flows, links, tier->n_links, bytes, bytes / seconds, tier->weight), number);
  }
  return TRUE;
}
