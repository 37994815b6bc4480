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

static gboolean
add_loads (Builder *b, guint group, guint way, guint32 instance, const gint32 *ranks, guint n, GError **error)
{
  SpAlgorithm algorithm = way < SP_N_ALGORITHMS ? (SpAlgorithm) way : SP_ALGORITHM_DIRECT;
  guint n_loads;

  sp_loads_reset (b->scratch);
  if (!sp_loads_add (b->scratch, algorithm, ranks, n, error))
    return FALSE;
  const SpLoad *loads = sp_loads_get (b->scratch, &n_loads);
  for (guint i = 0; i < n_loads; i++) {
    Load added = {
      .load = { .link = loads[i].link, .instance = instance, .bytes_per_byte = rounded (loads[i].bytes_per_byte) },
      .way = (guint8) way,
      .group = (guint8) group
    };
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

/* One link's load by one class: `weight` instances of it, each with as many bytes. */
typedef struct {
  guint32 way, group, subject, link, weight;
  double bytes_per_byte;
} Share;

static gint
compare_shares (gconstpointer a, gconstpointer b)
{
  const Share *x = a, *y = b;

  if (x->way != y->way)
    return x->way < y->way ? -1 : 1;
  if (x->group != y->group)
    return x->group < y->group ? -1 : 1;
  if (x->subject != y->subject)
    return x->subject < y->subject ? -1 : 1;
  if (x->bytes_per_byte != y->bytes_per_byte)
    return x->bytes_per_byte > y->bytes_per_byte ? -1 : 1;
  if (x->link != y->link)
    return x->link < y->link ? -1 : 1;
  return 0;
}

static gint
compare_by_weight (gconstpointer a, gconstpointer b)
{
  const Share *x = a, *y = b;

  if (x->weight != y->weight)
    return x->weight < y->weight ? -1 : 1;
  return x->link < y->link ? -1 : x->link > y->link;
}

static gboolean
same_class (const Share *a, const Share *b)
{
  return a->way == b->way && a->group == b->group && a->subject == b->subject;
}

/* The classes' loads on the links that stand for theirs. */
static GArray *
collect_shares (const Builder *b, const SpNetwork *network, const guint32 *number)
{
  const SpRoles *roles = network->roles;
  GArray *shares = g_array_new (FALSE, FALSE, sizeof (Share));
  g_autofree gint32 *role_of = g_new (gint32, b->places.n); /* of an instance: the class */
  guint n = 0;

  for (guint g = 1; g < SP_N_GROUPS; g++)
    for (gint32 rank = 0; b->places.instance_of[g] != NULL && rank < b->program->world; rank++) {
      gint32 role = roles->of_rank[rank];
      if (sp_program_member (b->program, g, rank, 0) == rank)
        role_of[b->places.instance_of[g][rank]] = roles->instance[g][role];
      for (guint d = 0; d < 2; d++)
        role_of[b->places.first_message[g][d] + (guint32) rank] = role;
    }
  for (guint i = 0; i < b->loads->len; i++) {
    const Load *load = &g_array_index (b->loads, Load, i);
    guint32 link = number[load->load.link];
    Share share = { .way = load->way,
                    .group = load->group,
                    .subject = (guint32) role_of[load->load.instance],
                    .link = link,
                    .weight = 1,
                    .bytes_per_byte = load->load.bytes_per_byte };
    if (link != G_MAXUINT32)
      g_array_append_val (shares, share);
  }
  qsort (shares->data, shares->len, sizeof (Share), compare_shares);
  /* Equal ones are one with more weight. */
  for (guint i = 0; i < shares->len; i++) {
    Share *share = &g_array_index (shares, Share, i);
    if (n > 0 && compare_shares (&g_array_index (shares, Share, n - 1), share) == 0)
      g_array_index (shares, Share, n - 1).weight++;
    else
      g_array_index (shares, Share, n++) = *share;
  }
  g_array_set_size (shares, n);
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

/* The shares [first, end) are a class's of equal bytes: a tier for each weight. */
static void
add_tiers (SpNetwork *network, GArray *shares, guint first, guint end, SpLinkTiers *tiers)
{
  qsort (&g_array_index (shares, Share, first), end - first, sizeof (Share), compare_by_weight);
  for (guint i = first; i < end; i++) {
    const Share *share = &g_array_index (shares, Share, i);
    if (i == first || share->weight != g_array_index (shares, Share, i - 1).weight) {
      SpLinkTier tier = { .bytes_per_byte = share->bytes_per_byte,
                          .weight = share->weight,
                          .first = network->links->len };
      g_array_append_val (network->tiers, tier);
      tiers->n++;
    }
    g_array_index (network->tiers, SpLinkTier, network->tiers->len - 1).n_links++;
    g_array_append_val (network->links, share->link);
  }
}

static void
make_tiers (SpNetwork *network, GArray *shares)
{
  SpLinkTiers *tiers = NULL;
  guint end;

  for (guint i = 0; i < shares->len; i = end) {
    const Share *share = &g_array_index (shares, Share, i);
    if (i == 0 || !same_class (share, &g_array_index (shares, Share, i - 1))) {
      tiers = tiers_at (network, share);
      tiers->first = network->tiers->len;
    }
    end = i + 1;
    while (end < shares->len && same_class (share, &g_array_index (shares, Share, end)) &&
           share->bytes_per_byte == g_array_index (shares, Share, end).bytes_per_byte)
      end++;
    add_tiers (network, shares, i, end, tiers);
  }
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

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
    network = g_new0 (SpNetwork, 1);
    network->topology = topology;
    network->links = g_array_new (FALSE, FALSE, sizeof (guint32));
    network->tiers = g_array_new (FALSE, FALSE, sizeof (SpLinkTier));
    network->roles = make_roles (&b, fold);
    g_autofree guint32 *number = number_links (&b, network);
    g_autoptr (GArray) shares = collect_shares (&b, network, number);
    make_tiers (network, shares);
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
