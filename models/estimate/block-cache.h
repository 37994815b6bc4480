/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Priced blocks, kept over a search: the work and the state of a layout's blocks (models/estimate/block-cost.h), each
 * under what enters it, and for each group of ranks how many of it share a node. Layouts that differ in the rest
 * recombine them.
 *
 * Two tables for programs of each number of blocks, each a ring of a fixed number of entries, packed so that what is used
 * lies close together, with an index by the key's hash; a new entry takes the oldest one's place. So memory is bounded,
 * nothing is allocated once there are tables, and results do not depend on what is held. A cache belongs to one estimator
 * (one architecture, cluster and framework) and one thread.
 */

#include "models/estimate/block-cost.h"

G_BEGIN_DECLS

#define SP_CACHE_WORDS 10

typedef struct {
  guint64 key[SP_CACHE_WORDS];
  SpOp pipe, pipe_gather;
  double clock;         /* that they are priced at */
  SpBlockWork blocks[]; /* of the program's blocks */
} SpWorkSet;

typedef struct {
  guint64 key[SP_CACHE_WORDS];
  SpBlockState blocks[];
} SpStateSet;

typedef struct _SpBlockCache SpBlockCache;

/* 2^log2_entries entries a table (4 at least), each of about 1.5 KB a block of work and of state. */
SpBlockCache *sp_block_cache_new (guint log2_entries);
void sp_block_cache_free (SpBlockCache *cache);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpBlockCache, sp_block_cache_free)
void sp_block_cache_clear (SpBlockCache *cache);

/* The entry of a layout's work (of a variant) or state, and whether it is priced; if not, the caller prices it in
 * place. The program's frame is written and the cost's paths are set. An entry holds until
 * the second next call for its table. */
SpWorkSet *sp_block_cache_work (SpBlockCache *cache, const SpCost *cost, const SpProgram *program,
                                const SpLayout *layout, const SpRun *run, gint32 variant, gboolean *ret_hit);
/* Room for the work of a variant of a layout whose sequences go in slices: kept for one layout, so never priced yet. */
SpWorkSet *sp_block_cache_slice (SpBlockCache *cache, const SpProgram *program, gint32 variant);
SpStateSet *sp_block_cache_state (SpBlockCache *cache, const SpCost *cost, const SpProgram *program,
                                  const SpLayout *layout, const SpRun *run, gboolean *ret_hit);

G_END_DECLS
