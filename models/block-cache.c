/* SPDX-License-Identifier: Apache-2.0 */
#include "models/block-cache.h"

#include <string.h>

struct _SpBlockCache {
  guint log2_entries;
  SpWorkSet *works;
  SpStateSet *states;
};

SpBlockCache *
sp_block_cache_new (guint log2_entries)
{
  SpBlockCache *cache = g_new0 (SpBlockCache, 1);

  cache->log2_entries = log2_entries;
  cache->works = g_new0 (SpWorkSet, (gsize) 1 << log2_entries);
  cache->states = g_new0 (SpStateSet, (gsize) 1 << log2_entries);
  return cache;
}

void
sp_block_cache_free (SpBlockCache *cache)
{
  if (cache == NULL)
    return;
  g_free (cache->works);
  g_free (cache->states);
  g_free (cache);
}

void
sp_block_cache_clear (SpBlockCache *cache)
{
  for (gsize i = 0; i < (gsize) 1 << cache->log2_entries; i++)
    cache->works[i].key[0] = cache->states[i].key[0] = 0;
}

/* --- keys ------------------------------------------------------------------------------------------------------------- */

static guint64
pair (gint64 high, gint64 low)
{
  return (guint64) high << 32 | (guint32) low;
}

/* Recipe that enters both parts. The leading 1 makes the word of no key zero. */
static guint64
recipe (const SpProgram *program, const SpLayout *layout, const SpRun *run)
{
  guint64 bits = 1;

  bits = bits << 1 | program->sequence_regions;
  bits = bits << 1 | (layout->overlap != 0);
  bits = bits << 3 | layout->gradient_dtype;
  bits = bits << 3 | run->precision;
  return bits << 1 | (program->stages > 1);
}

static void
work_key (const SpCost *cost, const SpProgram *program, const SpLayout *layout, const SpRun *run, gint32 variant,
          guint64 *key)
{
  const SpPath *paths = cost->paths;
  guint64 bits = recipe (program, layout, run);

  bits = bits << 2 | (guint64) layout->lasp_version;
  bits = bits << 2 | program->token_split;
  bits = bits << 3 | layout->ring_gradient_dtype;
  bits = bits << 2 | layout->recompute;
  bits = bits << 1 | (run->causal != 0);
  key[0] = bits << 32 | (guint32) layout->tensor;
  key[1] = (guint64) run->sequence;
  key[2] = pair (program->variants[variant].batch, layout->ulysses);
  key[3] = pair (layout->ring, layout->lasp);
  key[4] = pair (paths[SP_GROUP_TENSOR].per_node, paths[SP_GROUP_ULYSSES].per_node);
  key[5] = pair (paths[SP_GROUP_RING].per_node, paths[SP_GROUP_LASP].per_node) ^
           (guint64) paths[SP_GROUP_ULYSSES_LINEAR].per_node << 16;
}

static void
state_key (const SpCost *cost, const SpProgram *program, const SpLayout *layout, const SpRun *run, guint64 *key)
{
  const SpPath *paths = cost->paths;
  guint64 bits = recipe (program, layout, run);

  bits = bits << 2 | (guint64) layout->zero;
  bits = bits << 1 | (layout->reshard != 0);
  bits = bits << 1 | (paths[SP_GROUP_TIE].network != 0);
  key[0] = bits << 32 | (guint32) layout->tensor;
  key[1] = (guint64) run->sequence; /* learned positions grow with it */
  key[2] = (guint64) program->groups[SP_GROUP_ZERO].size;
  key[3] = pair (paths[SP_GROUP_TENSOR].per_node, paths[SP_GROUP_ZERO].per_node);
  key[4] = key[5] = 0;
}

static gsize
place_of (const SpBlockCache *cache, const guint64 *key)
{
  guint64 hash = 0;

  for (guint i = 0; i < SP_CACHE_WORDS; i++) {
    hash = (hash ^ key[i]) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  }
  return (gsize) (hash >> (64 - cache->log2_entries));
}

/* --- look-up ----------------------------------------------------------------------------------------------------------- */

SpWorkSet *
sp_block_cache_work (SpBlockCache *cache, const SpCost *cost, const SpProgram *program, const SpLayout *layout,
                     const SpRun *run, gint32 variant, gboolean *ret_hit)
{
  guint64 key[SP_CACHE_WORDS];

  work_key (cost, program, layout, run, variant, key);
  /* The two batch sizes of one layout must not push each other out: odd entries are the smaller one's. */
  SpWorkSet *set = &cache->works[(place_of (cache, key) & ~(gsize) 1) | (gsize) variant];
  *ret_hit = memcmp (set->key, key, sizeof key) == 0;
  memcpy (set->key, key, sizeof key);
  return set;
}

SpStateSet *
sp_block_cache_state (SpBlockCache *cache, const SpCost *cost, const SpProgram *program, const SpLayout *layout,
                      const SpRun *run, gboolean *ret_hit)
{
  guint64 key[SP_CACHE_WORDS];

  state_key (cost, program, layout, run, key);
  SpStateSet *set = &cache->states[place_of (cache, key)];
  *ret_hit = memcmp (set->key, key, sizeof key) == 0;
  memcpy (set->key, key, sizeof key);
  return set;
}
