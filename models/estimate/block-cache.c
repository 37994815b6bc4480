/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cache.h"

#include "models/trained.h"

#include <string.h>

/* Entries are numbered from 0; the index holds numbers + 1, 0 for none, and may point to an entry that was given away
 * since: its key says so. */
typedef struct {
  guint32 *index;
  guint log2_index;
  char *entries;
  gsize stride; /* of an entry */
  guint32 n, next, last_found;
} Table;

/* Of programs with so many blocks, made when the first of them comes. */
typedef struct {
  Table works, states;
} Tables;

struct _SpBlockCache {
  guint log2_entries;
  Tables *of[SP_MAX_BLOCKS + 1];
  char *slices; /* work sets of the variants of one layout */
  gsize slices_bytes;
};

#define WORK_BYTES(blocks) (sizeof (SpWorkSet) + (blocks) * sizeof (SpBlockWork))
#define STATE_BYTES(blocks) (sizeof (SpStateSet) + (blocks) * sizeof (SpBlockState))

/* The entries' memory is only reserved; what is not written costs nothing. */
static void
table_init (Table *table, guint log2_entries, gsize stride)
{
  table->n = 1u << MAX (log2_entries, 2);
  table->log2_index = MAX (log2_entries, 2) + 1;
  table->index = g_new0 (guint32, (gsize) 1 << table->log2_index);
  table->entries = g_malloc0 (table->n * stride); /* zeros of the system, not written ones */
  table->stride = stride;
}

static void
table_forget (Table *table)
{
  memset (table->index, 0, sizeof *table->index << table->log2_index);
  table->next = table->last_found = 0;
}

SpBlockCache *
sp_block_cache_new (guint log2_entries)
{
  SpBlockCache *cache = g_new0 (SpBlockCache, 1);

  cache->log2_entries = log2_entries;
  return cache;
}

void
sp_block_cache_free (SpBlockCache *cache)
{
  if (cache == NULL)
    return;
  for (guint n = 0; n < G_N_ELEMENTS (cache->of); n++) {
    if (cache->of[n] == NULL)
      continue;
    g_free (cache->of[n]->works.index);
    g_free (cache->of[n]->works.entries);
    g_free (cache->of[n]->states.index);
    g_free (cache->of[n]->states.entries);
    g_free (cache->of[n]);
  }
  g_free (cache->slices);
  g_free (cache);
}

void
sp_block_cache_clear (SpBlockCache *cache)
{
  for (guint n = 0; n < G_N_ELEMENTS (cache->of); n++)
    if (cache->of[n] != NULL) {
      table_forget (&cache->of[n]->works);
      table_forget (&cache->of[n]->states);
    }
}

static Tables *
tables_of (SpBlockCache *cache, const SpProgram *program)
{
  guint blocks = program->n_blocks;

  if (cache->of[blocks] == NULL) {
    cache->of[blocks] = g_new0 (Tables, 1);
    table_init (&cache->of[blocks]->works, cache->log2_entries, sizeof (SpWorkSet) + blocks * sizeof (SpBlockWork));
    table_init (&cache->of[blocks]->states, cache->log2_entries, sizeof (SpStateSet) + blocks * sizeof (SpBlockState));
  }
  return cache->of[blocks];
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

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
  bits = bits << 2 | program->scope;
  return bits << 1 | (program->stages > 1);
}

/* Which blocks the sets are of. */
static guint64
blocks_of (const SpProgram *program)
{
  guint64 hash = program->n_blocks;

  for (guint i = 1; i + 1 < program->n_blocks; i++) {
    const SpBlock *block = &program->variants[0].blocks[i];
    hash = (hash << 17 | hash >> 47) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
    hash += (guint64) block->kind << 16 | (guint64) block->traits << 8 | block->frozen << 2 | block->recomputes;
  }
  return hash;
}

/* Two identities in one word: the odds of two pairs with one are 1 in 2^64. */
static guint64
mixed (guint64 a, guint64 b)
{
  a *= G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  return (a ^ a >> 32 ^ b) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
}

/* What is trained, but for layers that are blocks of their own. */
static guint64
trained (const SpRun *run)
{
  return run->lora_rank > 0 ? 1 | (guint64) run->lora_rank << 16 | sp_run_lora (run) << 8 : (guint64) run->frozen << 8;
}

/* What decides how a micro-batch's gradients are added up, or copied to where they are reduced. */
static gint32
sums (const SpProgram *program, const SpLayout *layout)
{
  gint32 shared = program->groups[SP_GROUP_ZERO].size > 1, experts = program->groups[SP_GROUP_EXPERT_DATA].size > 1;

  return (layout->zero >= 2) | shared << 1 | experts << 2 | layout->gradient_dtype << 3;
}

/* What the host needs for a kernel goes with the layout. */
static guint64
host_of (const SpCost *cost)
{
  guint64 bits;

  memcpy (&bits, &cost->host_launch_s, sizeof bits);
  return bits;
}

/* Where cards differ the clock goes with how many there are. */
static guint64
cards_of (const SpCost *cost, const SpProgram *program)
{
  gboolean differ = cost->power != NULL && cost->power->value[SP_POWER_SPREAD].value > 0;

  return differ ? (guint64) program->world : 0;
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
  bits = bits << 2 | layout->ring_kind;
  bits = bits << 1 | (layout->ring_keep != 0);
  bits = bits << 1 | layout->ring_backward;
  bits = bits << 2 | layout->recompute;
  bits = bits << 1 | (run->causal != 0);
  bits = bits << 1 | sp_estimate_schedule (program)->splits;
  bits = bits << 1 | (layout->pipeline_scatter != 0);
  key[0] = bits << 32 | (guint32) layout->tensor;
  key[1] = (guint64) run->sequence;
  key[2] = pair (program->variants[variant].batch, layout->ulysses);
  key[3] = pair (layout->ring, layout->lasp);
  key[4] = mixed (paths[SP_GROUP_TENSOR].identity, paths[SP_GROUP_ULYSSES].identity);
  key[5] = mixed (mixed (mixed (paths[SP_GROUP_RING_INNER].identity, paths[SP_GROUP_RING_OUTER].identity),
                         mixed (paths[SP_GROUP_RING].identity, paths[SP_GROUP_LASP].identity)),
                  mixed (paths[SP_GROUP_ULYSSES_LINEAR].identity, paths[SP_GROUP_EXPERT].identity));
  memcpy (&key[6], &layout->expert_capacity, sizeof key[6]);
  memcpy (&key[7], &run->expert_imbalance, sizeof key[7]);
  key[6] = mixed (key[6], (guint64) layout->expert);
  key[8] = mixed (mixed (blocks_of (program), trained (run)), host_of (cost) ^ cards_of (cost, program));
  key[9] = mixed (pair (layout->loss_chunks,
                        layout->loss | layout->offload << 8 | (run->fp8 != 0) << 16 | sums (program, layout) << 17),
                  (guint64) layout->mlp_tiles ^ (guint64) (gsize) run->packing << 16);
}

static void
state_key (const SpCost *cost, const SpProgram *program, const SpLayout *layout, const SpRun *run, guint64 *key)
{
  const SpPath *paths = cost->paths;
  guint64 bits = recipe (program, layout, run);

  bits = bits << 2 | (guint64) layout->zero;
  bits = bits << 1 | (layout->reshard != 0);
  bits = bits << 1 | (paths[SP_GROUP_TIE].network != 0);
  bits = bits << 1 | (program->groups[SP_GROUP_MIRROR].size > 1);
  bits = bits << 1 | (paths[SP_GROUP_MIRROR].network != 0);
  key[0] = bits << 32 | (guint32) layout->tensor;
  key[1] = (guint64) run->sequence; /* learned positions grow with it */
  key[2] = pair (program->groups[SP_GROUP_ZERO].size, program->groups[SP_GROUP_REPLICA].size);
  key[3] = mixed (paths[SP_GROUP_TENSOR].identity, paths[SP_GROUP_ZERO].identity);
  key[4] = paths[SP_GROUP_TIE].identity;
  key[5] = paths[SP_GROUP_MIRROR].identity;
  key[6] = mixed (paths[SP_GROUP_EXPERT_DATA].identity, paths[SP_GROUP_REPLICA].identity);
  key[7] = pair (layout->expert, program->groups[SP_GROUP_EXPERT_DATA].size);
  key[8] = mixed (mixed (blocks_of (program), trained (run)), host_of (cost));
  key[9] = pair (run->optimizer, layout->offload | (program->micro_batches == 1) << 8);
}

static guint64
hash_of (const guint64 *key)
{
  guint64 hash = 0;

  for (guint i = 0; i < SP_CACHE_WORDS; i++) {
    hash = (hash ^ key[i]) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  }
  return hash;
}

/* --- look-up ------------------------------------------------------------------------------------------------------ */

static gpointer
table_find (Table *table, const guint64 *key, gboolean *ret_hit)
{
  guint32 *at = &table->index[hash_of (key) >> (64 - table->log2_index)];
  const gsize key_bytes = SP_CACHE_WORDS * sizeof *key;

  *ret_hit = *at > 0 && memcmp (table->entries + (*at - 1) * table->stride, key, key_bytes) == 0;
  if (!*ret_hit) {
    /* The entry found last may still be read. */
    if (table->next + 1 == table->last_found)
      table->next = (table->next + 1) % table->n;
    *at = table->next + 1;
    table->next = (table->next + 1) % table->n;
    memcpy (table->entries + (*at - 1) * table->stride, key, key_bytes);
  }
  table->last_found = *at;
  return table->entries + (*at - 1) * table->stride;
}

SpWorkSet *
sp_block_cache_work (SpBlockCache *cache, const SpCost *cost, const SpProgram *program, const SpLayout *layout,
                     const SpRun *run, gint32 variant, gboolean *ret_hit)
{
  guint64 key[SP_CACHE_WORDS];

  work_key (cost, program, layout, run, variant, key);
  return table_find (&tables_of (cache, program)->works, key, ret_hit);
}

SpWorkSet *
sp_block_cache_slice (SpBlockCache *cache, const SpProgram *program, gint32 variant)
{
  gsize stride = WORK_BYTES (program->n_blocks), bytes = (gsize) program->n_variants * stride;

  if (variant == 0 && bytes > cache->slices_bytes) {
    g_free (cache->slices);
    cache->slices = g_malloc (bytes);
    cache->slices_bytes = bytes;
  }
  return (SpWorkSet *) (gpointer) (cache->slices + (gsize) variant * stride);
}

SpStateSet *
sp_block_cache_state (SpBlockCache *cache, const SpCost *cost, const SpProgram *program, const SpLayout *layout,
                      const SpRun *run, gboolean *ret_hit)
{
  guint64 key[SP_CACHE_WORDS];

  state_key (cost, program, layout, run, key);
  return table_find (&tables_of (cache, program)->states, key, ret_hit);
}
