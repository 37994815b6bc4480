/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A load with what it belongs to: the algorithm of a collective, or a message (SP_N_ALGORITHMS + direction). */
typedef struct {
  SpRoleLoad load;
  guint8 way, group;
} Load;

typedef struct {
  const SpTopology *topology;
  const SpProgram *program;
  SpRolesPlaces places;
  SpLoads *scratch;
  GArray *loads;                                   /* Load, of all ranks */
  gboolean uses[SP_N_GROUPS][SP_N_ALGORITHMS + 2]; /* ways of each group */
} Builder;

/* --- what loads what ---------------------------------------------------------------------------------------------- */

static void
find_uses (Builder *b, const guint8 *algorithms)
{
  const SpProgram *program = b->program;

  for (guint i = 0; i < program->n_ops; i++) {
    const SpOp *op = &program->ops[i];
    gboolean reverse = (op->flags & SP_OP_REVERSE) != 0;
    if (!sp_op_is_communication (op->kind) || program->groups[op->group].size == 1)
      continue;
    if (op->kind == SP_OP_SEND || op->kind == SP_OP_RECEIVE || op->kind == SP_OP_SEND_RECEIVE)
      b->uses[op->group][SP_N_ALGORITHMS + reverse] = TRUE;
    else
      b->uses[op->group][algorithms[i]] = TRUE;
  }
  if (program->stages > 1)
    b->uses[SP_GROUP_PIPELINE][SP_N_ALGORITHMS] = b->uses[SP_GROUP_PIPELINE][SP_N_ALGORITHMS + 1] = TRUE;
}

/* Loads that differ in their last bits are one: rounded to 30 bits. */
static double
rounded (double load)
{
  int exponent;
  double fraction = frexp (load, &exponent);

  return ldexp (rint (fraction * 0x1p30), exponent - 30);
}

/* Whether a link belongs to adapters or the network between nodes. */
static gboolean
is_outside (const SpTopology *topology, guint32 link)
{
  SpVertexKind from = sp_topology_vertex_kind (topology, sp_topology_from (topology, link));
  SpVertexKind to = sp_topology_vertex_kind (topology, sp_topology_to (topology, link));

  return from >= SP_VERTEX_NETWORK || to >= SP_VERTEX_NETWORK;
}

/* A link is shared by GPUs, not by collectives: what several members of an instance put on it counts as several flows.
 * What one of them puts on links: of those outside what leaves the nodes for each member, inside the least loaded. */
static void
units_of (const SpTopology *topology, const SpLoad *loads, guint n_loads, guint n_ranks, double ret[2])
{
  double leaves = 0, least = INFINITY;

  for (guint i = 0; i < n_loads; i++) {
    SpVertexKind from = sp_topology_vertex_kind (topology, sp_topology_from (topology, loads[i].link));
    if (!is_outside (topology, loads[i].link))
      least = MIN (least, loads[i].bytes_per_byte);
    else if (from == SP_VERTEX_NIC)
      leaves += loads[i].bytes_per_byte;
  }
  ret[0] = least;
  ret[1] = leaves / n_ranks;
}

static gboolean
add_loads (Builder *b, guint group, guint way, guint32 instance, const gint32 *ranks, guint n, GError **error)
{
  SpAlgorithm algorithm = way < SP_N_ALGORITHMS ? (SpAlgorithm) way : SP_ALGORITHM_DIRECT;
  double units[2];
  guint n_loads;

  sp_loads_reset (b->scratch);
  if (!sp_loads_add (b->scratch, algorithm, ranks, n, error))
    return FALSE;
  const SpLoad *loads = sp_loads_get (b->scratch, &n_loads);
  units_of (b->topology, loads, n_loads, algorithm == SP_ALGORITHM_DIRECT ? 1 : n, units);
  for (guint i = 0; i < n_loads; i++) {
    double members = rint (loads[i].bytes_per_byte / units[is_outside (b->topology, loads[i].link)]);
    Load added = { .load = { .link = loads[i].link, .instance = instance, .members = (guint32) CLAMP (members, 1, n) },
                   .way = (guint8) way,
                   .group = (guint8) group };
    added.load.bytes_per_byte = rounded (loads[i].bytes_per_byte / added.load.members);
    g_array_append_val (b->loads, added);
  }
  return TRUE;
}

static gboolean
add_collectives (Builder *b, guint group, guint way, GError **error)
{
  gint32 size = b->program->groups[group].size;
  g_autofree gint32 *ranks = g_new (gint32, size);
  gboolean ok = TRUE;

  for (gint32 rank = 0; rank < b->program->world && ok; rank++) {
    if (sp_program_member (b->program, group, rank, 0) != rank)
      continue;
    for (gint32 p = 0; p < size; p++)
      ranks[p] = sp_program_member (b->program, group, rank, p);
    ok = add_loads (b, group, way, b->places.instance_of[group][rank], ranks, (guint) size, error);
  }
  return ok;
}

static gboolean
add_messages (Builder *b, guint group, guint direction, GError **error)
{
  gint32 size = b->program->groups[group].size;
  gboolean ok = TRUE;

  for (gint32 rank = 0; rank < b->program->world && ok; rank++) {
    gint32 place = sp_program_place (b->program, group, rank), next = (place + (direction ? size - 1 : 1)) % size;
    gint32 ranks[2] = { rank, sp_program_member (b->program, group, rank, next) };
    ok = add_loads (b, group, SP_N_ALGORITHMS + direction, b->places.first_message[group][direction] + (guint32) rank,
                    ranks, 2, error);
  }
  return ok;
}

static gboolean
collect_loads (Builder *b, GError **error)
{
  for (guint g = 1; g < SP_N_GROUPS; g++)
    for (guint way = 0; way < SP_N_ALGORITHMS + 2; way++) {
      if (!b->uses[g][way])
        continue;
      gboolean ok = way < SP_N_ALGORITHMS ? add_collectives (b, g, way, error)
                                          : add_messages (b, g, way - SP_N_ALGORITHMS, error);
      if (!ok)
        return FALSE;
    }
  return TRUE;
}

static SpRoles *
make_roles (const Builder *b, gboolean fold)
{
  SpRoleInput input = { .n_loads = b->loads->len,
                        .capacity_bytes_per_s = sp_topology_capacities (b->topology),
                        .n_links = sp_topology_n_links (b->topology) };

  if (!fold)
    return sp_roles_new_unfolded (b->program);
  g_autofree SpRoleLoad *loads = g_new (SpRoleLoad, b->loads->len);
  for (guint i = 0; i < b->loads->len; i++)
    loads[i] = g_array_index (b->loads, Load, i).load;
  input.loads = loads;
  return sp_roles_new_folded (b->program, &b->places, &input);
}

/* --- classes of links --------------------------------------------------------------------------------------------- */

/* Numbers the links that stand for their classes, of those that are loaded: [links of the topology], or G_MAXUINT32. */
static guint32 *
number_links (const Builder *b, SpNetwork *network)
{
  guint n = sp_topology_n_links (b->topology);
  guint32 *number = g_new (guint32, n);
  const guint64 *colours = network->roles->link_colour;
  g_autoptr (GHashTable) seen = g_hash_table_new (g_int64_hash, g_int64_equal);

  if (n > 0)
    memset (number, 0xff, n * sizeof *number);
  for (guint i = 0; i < b->loads->len; i++)
    number[g_array_index (b->loads, Load, i).load.link] = 0;
  network->capacity_bytes_per_s = g_new (double, n);
  network->topology_link = g_new (guint32, n);
  for (guint32 l = 0; l < n; l++) {
    if (number[l] != 0)
      continue;
    number[l] = G_MAXUINT32;
    if (colours != NULL && !g_hash_table_add (seen, (gpointer) &colours[l]))
      continue;
    network->capacity_bytes_per_s[network->n_links] = sp_topology_capacity (b->topology, l);
    network->topology_link[network->n_links] = l;
    number[l] = network->n_links++;
  }
  return number;
}

/* --- tiers -------------------------------------------------------------------------------------------------------- */

/* One link's load by one class: `weight` flows, those of `members` ranks of each of its instances, each with as many
 * bytes. `total`: the same of all classes together. */
typedef struct {
  guint32 way, group, subject, link, members, total, weight;
  double bytes_per_byte;
} Share;

#define COMPARE(field)                                                                                                 \
  if (x->field != y->field)                                                                                            \
  return x->field < y->field ? -1 : 1

static gint
compare_by_link (gconstpointer a, gconstpointer b)
{
  const Share *x = a, *y = b;

  COMPARE (link);
  COMPARE (way);
  COMPARE (group);
  COMPARE (bytes_per_byte);
  COMPARE (members);
  COMPARE (subject);
  return 0;
}

static gint
compare_by_tier (gconstpointer a, gconstpointer b)
{
  const Share *x = a, *y = b;

  COMPARE (way);
  COMPARE (group);
  COMPARE (subject);
  COMPARE (bytes_per_byte);
  COMPARE (members);
  COMPARE (total);
  COMPARE (link);
  return 0;
}

static gboolean
same_class (const Share *a, const Share *b)
{
  return a->way == b->way && a->group == b->group && a->subject == b->subject;
}

static gboolean
same_tier (const Share *a, const Share *b)
{
  return same_class (a, b) && a->bytes_per_byte == b->bytes_per_byte && a->members == b->members &&
         a->total == b->total;
}

/* Of each instance the class: [places->n]. */
static gint32 *
map_instances (const Builder *b, const SpRoles *roles)
{
  gint32 *class_of = g_new (gint32, b->places.n + 1);

  for (guint g = 1; g < SP_N_GROUPS; g++)
    for (gint32 rank = 0; b->places.instance_of[g] != NULL && rank < b->program->world; rank++) {
      gint32 role = roles->of_rank[rank];
      if (sp_program_member (b->program, g, rank, 0) == rank)
        class_of[b->places.instance_of[g][rank]] = roles->instance[g][role];
      for (guint d = 0; d < 2; d++)
        class_of[b->places.first_message[g][d] + (guint32) rank] = role;
    }
  return class_of;
}

/* Equal ones become one of more weight; those that differ by their class alone get to know their sum. */
static void
merge_shares (GArray *shares)
{
  guint n = 0, first = 0;

  if (shares->len == 0)
    return;
  qsort (shares->data, shares->len, sizeof (Share), compare_by_link);
  for (guint i = 0; i < shares->len; i++) {
    const Share share = g_array_index (shares, Share, i);
    Share *last = n > 0 ? &g_array_index (shares, Share, n - 1) : NULL;
    gboolean is_alike = last != NULL && last->link == share.link && last->way == share.way &&
                        last->group == share.group && last->bytes_per_byte == share.bytes_per_byte &&
                        last->members == share.members;
    if (is_alike && last->subject == share.subject)
      last->weight += share.weight;
    else {
      g_array_index (shares, Share, n) = share;
      first = is_alike ? first : n;
      n++;
    }
    guint32 total = is_alike ? g_array_index (shares, Share, first).total + share.weight : share.weight;
    for (guint j = first; j < n; j++)
      g_array_index (shares, Share, j).total = total;
  }
  g_array_set_size (shares, n);
}

/* The classes' loads on the links that stand for theirs, tier by tier. */
static GArray *
collect_shares (const Builder *b, const SpRoles *roles, const guint32 *number)
{
  GArray *shares = g_array_new (FALSE, FALSE, sizeof (Share));
  g_autofree gint32 *class_of = map_instances (b, roles);

  for (guint i = 0; i < b->loads->len; i++) {
    const Load *load = &g_array_index (b->loads, Load, i);
    Share share = { .way = load->way,
                    .group = load->group,
                    .subject = (guint32) class_of[load->load.instance],
                    .link = number[load->load.link],
                    .members = load->load.members,
                    .weight = load->load.members,
                    .bytes_per_byte = load->load.bytes_per_byte };
    if (share.link != G_MAXUINT32)
      g_array_append_val (shares, share);
  }
  merge_shares (shares);
  if (shares->len > 0)
    qsort (shares->data, shares->len, sizeof (Share), compare_by_tier);
  return shares;
}

static SpLinkTiers *
tiers_at (SpNetwork *network, const Share *share)
{
  SpLinkTiers **at;
  guint n;

  if (share->way < SP_N_ALGORITHMS) {
    at = &network->collectives[share->way];
    n = network->roles->n_instances;
  } else {
    at = &network->messages[share->group][share->way - SP_N_ALGORITHMS];
    n = (guint) network->roles->n;
  }
  if (*at == NULL)
    *at = g_new0 (SpLinkTiers, n);
  return &(*at)[share->subject];
}

/* FALSE: links of one tier have unlike weights, so one flow cannot stand for the class; it has to be unfolded. */
static gboolean
make_tiers (SpNetwork *network, const GArray *shares)
{
  SpLinkTiers *tiers = NULL;
  SpLinkTier *tier = NULL;

  for (guint i = 0; i < shares->len; i++) {
    const Share *share = &g_array_index (shares, Share, i), *before = i > 0 ? share - 1 : NULL;
    if (before == NULL || !same_class (before, share)) {
      tiers = tiers_at (network, share);
      tiers->first = network->tiers->len;
    }
    if (before == NULL || !same_tier (before, share)) {
      const SpLinkTier next = { .bytes_per_byte = share->bytes_per_byte,
                                .weight = share->weight,
                                .first = network->links->len };
      g_array_append_val (network->tiers, next);
      tier = &g_array_index (network->tiers, SpLinkTier, network->tiers->len - 1);
      tiers->n++;
    } else if (tier->weight != share->weight)
      return FALSE;
    tier->n_links++;
    g_array_append_val (network->links, share->link);
  }
  return TRUE;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static SpNetwork *
build (const Builder *b, gboolean fold)
{
  g_autoptr (SpNetwork) network = g_new0 (SpNetwork, 1);

  network->topology = b->topology;
  network->links = g_array_new (FALSE, FALSE, sizeof (guint32));
  network->tiers = g_array_new (FALSE, FALSE, sizeof (SpLinkTier));
  network->roles = make_roles (b, fold);
  g_autofree guint32 *number = number_links (b, network);
  g_autoptr (GArray) shares = collect_shares (b, network->roles, number);
  return make_tiers (network, shares) ? g_steal_pointer (&network) : NULL;
}

SpNetwork *
sp_network_new (const SpTopology *topology, const SpProgram *program, const guint8 *algorithms, gboolean fold,
                GError **error)
{
  Builder b = { .topology = topology, .program = program };
  SpNetwork *network = NULL;

  b.loads = g_array_new (FALSE, FALSE, sizeof (Load));
  b.scratch = sp_loads_new (topology);
  sp_roles_places_init (&b.places, program);
  find_uses (&b, algorithms);
  if (collect_loads (&b, error)) {
    network = fold ? build (&b, TRUE) : NULL;
    if (network == NULL)
      network = build (&b, FALSE);
  }
  g_array_unref (b.loads);
  sp_loads_free (b.scratch);
  sp_roles_places_clear (&b.places);
  return network;
}

void
sp_network_free (SpNetwork *network)
{
  if (network == NULL)
    return;
  for (guint a = 0; a < SP_N_ALGORITHMS; a++)
    g_free (network->collectives[a]);
  for (guint g = 0; g < SP_N_GROUPS; g++)
    for (guint d = 0; d < 2; d++)
      g_free (network->messages[g][d]);
  g_free (network->capacity_bytes_per_s);
  g_free (network->topology_link);
  g_array_unref (network->links);
  g_array_unref (network->tiers);
  sp_roles_free (network->roles);
  g_free (network);
}
