/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/paths-members.h"

SpGroupKey
sp_group_key (const SpProgram *program, SpGroupId group)
{
  const SpGroup *g = &program->groups[group];
  SpGroupKeyKind kind = group == SP_GROUP_TIE      ? SP_MEMBERS_TIE
                        : group == SP_GROUP_MIRROR ? SP_MEMBERS_MIRROR
                                                   : SP_MEMBERS_WHOLE;
  SpGroupKey key = { { (guint64) program->world } };
  guint n = 0;

  for (guint i = 0; i < g->n_digits; i++) {
    const SpDigit *digit = &program->digits[g->digits[i]];
    guint64 *before = n > 0 ? &key.words[1 + n] : NULL, size = (guint64) digit->size;
    if (size == 1)
      continue;
    if (before != NULL && (*before >> 32) * (*before & G_MAXUINT32) == (guint64) digit->stride)
      *before += (*before >> 32) * (size - 1) << 32;
    else
      key.words[2 + n++] = size << 32 | (guint32) digit->stride;
  }
  key.words[1] = n | (guint64) kind << 8;
  return key;
}

guint
sp_group_key_hash (const SpGroupKey *key)
{
  guint64 hash = 0;

  for (guint i = 0; i < G_N_ELEMENTS (key->words); i++)
    hash = (hash ^ key->words[i]) * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15) ^ (hash >> 29);
  return (guint) (hash >> 32);
}

guint64
sp_group_key_identity (const SpGroupKey *key)
{
  guint64 hash = 0;

  for (guint i = 0; i < G_N_ELEMENTS (key->words); i++) {
    hash = (hash ^ key->words[i]) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
    hash ^= hash >> 31;
  }
  return hash | G_GUINT64_CONSTANT (1) << 63;
}

static gint32
digit_size (const SpGroupKey *key, guint i)
{
  return (gint32) (key->words[2 + i] >> 32);
}

static gint32
digit_stride (const SpGroupKey *key, guint i)
{
  return (gint32) (key->words[2 + i] & G_MAXUINT32);
}

static guint
n_digits (const SpGroupKey *key)
{
  return key->words[1] & 0xff;
}

static SpGroupKeyKind
kind_of (const SpGroupKey *key)
{
  return (SpGroupKeyKind) (key->words[1] >> 8);
}

void
sp_instances_clear (SpInstances *in)
{
  g_free (in->bases);
  g_free (in->ranks);
  sp_loads_free (in->loads);
  sp_loads_free (in->one);
}

static gint32
value_at (const SpGroupKey *key, guint digit, gint32 rank)
{
  return rank / digit_stride (key, digit) % digit_size (key, digit);
}

/* The member at a place of the instance whose place 0 is `base`. */
static gint32
rank_at (const SpGroupKey *key, gint32 base, gint32 place)
{
  gint32 rank = base;

  for (guint i = 0; i < n_digits (key); i++) {
    gint32 size = digit_size (key, i), stride = digit_stride (key, i);
    if (kind_of (key) == SP_MEMBERS_WHOLE) {
      rank += place % size * stride;
      place /= size;
    } else if (place > 0)
      rank += (size - 1 - 2 * value_at (key, i, base)) * stride;
  }
  return rank;
}

/* Place 0: the lowest of all places, or of MIRROR any in the lower half. */
static gboolean
is_base (const SpGroupKey *key, gint32 rank)
{
  gint64 place = 0, all = 1;

  for (guint i = n_digits (key); i-- > 0;) {
    place = place * digit_size (key, i) + value_at (key, i, rank);
    all *= digit_size (key, i);
  }
  return kind_of (key) == SP_MEMBERS_MIRROR ? 2 * place < all - 1 : place == 0;
}

/* Ranks that stand for all: the first so many, where those after them are the same again. A group whose digits end below
 * some rank comes again in each further such part of the world. Parts that are whole nodes, or whole leaves of nodes, share no
 * link with each other, and to move one by a leaf turns the spines around, which are alike. */
static gint32
ranks_that_differ (const SpGroupKey *key, const SpTopology *topology)
{
  const SpTopologySpec *spec = sp_topology_spec (topology);
  gint64 world = (gint64) key->words[0], end = 1, part = spec->gpus_per_node;
  gboolean has_leaves = spec->fabric == SP_FABRIC_LEAF_SPINE || spec->fabric == SP_FABRIC_RAILS;

  if (has_leaves)
    part *= spec->nodes_per_leaf;
  for (guint i = 0; i < n_digits (key); i++)
    end = MAX (end, (gint64) digit_size (key, i) * digit_stride (key, i));
  gint64 both = MAX (end, part);
  if (both % end != 0 || both % part != 0 || world % both != 0 || (!has_leaves && spec->fabric != SP_FABRIC_FLAT))
    return (gint32) world;
  return (gint32) both;
}

void
sp_instances_init (SpInstances *in, const SpGroupKey *key, const SpTopology *topology)
{
  *in = (SpInstances){ .key = key, .topology = topology, .size = 1 };
  gint32 ranks = ranks_that_differ (key, topology);

  for (guint i = 0; i < n_digits (key); i++)
    in->size *= digit_size (key, i);
  if (kind_of (key) != SP_MEMBERS_WHOLE)
    in->size = 2;
  in->bases = g_new (gint32, ranks);
  for (gint32 rank = 0; rank < ranks; rank++)
    if (is_base (key, rank))
      in->bases[in->n++] = rank;
  in->ranks = g_new (gint32, in->size);
  in->loads = sp_loads_new (topology);
  in->one = sp_loads_new (topology);
}

gboolean
sp_instances_next (SpInstances *in)
{
  if (in->next == in->n) {
    in->next = 0;
    return FALSE;
  }
  for (gint32 place = 0; place < in->size; place++)
    in->ranks[place] = rank_at (in->key, in->bases[in->next], place);
  in->next++;
  return TRUE;
}
