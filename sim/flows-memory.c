/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/flows-private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * Memory of the flow solver. A million flows touch 200 MB for the first time, and in a virtual machine each fault of a
 * small page costs microseconds, more than adding the flows that it holds: so large arrays ask for huge pages, and the
 * links' lists are cut from large slabs. A list is 2^k items; the block that it outgrows is kept for the next list that
 * needs one of that size.
 */

#define HUGE_PAGE_BYTES (1u << 21)
#define LARGE_BYTES (1u << 19) /* worth a huge page of its own */
#define FIRST_SLAB_BYTES (1u << 14)
#define LAST_SLAB_BYTES (1u << 23)
#define FIRST_ITEMS 4

static void *
allocate (gsize bytes)
{
  gsize alignment = bytes >= LARGE_BYTES ? HUGE_PAGE_BYTES : 64;
  gsize rounded = (bytes + alignment - 1) / alignment * alignment;
  void *memory = aligned_alloc (alignment, rounded);

  if (memory == NULL)
    g_error ("no memory: %" G_GSIZE_FORMAT " bytes for flows", rounded);
#ifdef MADV_HUGEPAGE
  if (alignment == HUGE_PAGE_BYTES)
    madvise (memory, rounded, MADV_HUGEPAGE); /* only a wish */
#endif
  return memory;
}

/* An array of `bytes` with the first old_bytes of `old`, which is freed. For free(). */
void *
sp_flows_grow_array_ (void *old, gsize old_bytes, gsize bytes)
{
  void *array = allocate (bytes);

  if (old_bytes > 0)
    memcpy (array, old, old_bytes);
  free (old);
  return array;
}

/* Cuts a block from the last slab, or from a new one: they grow fourfold, so that a small network stays small. */
static void *
cut (SpFlowsSlabs *slabs, gsize bytes)
{
  if (slabs->left_bytes < bytes) {
    slabs->next_bytes = CLAMP (4 * slabs->next_bytes, FIRST_SLAB_BYTES, LAST_SLAB_BYTES);
    slabs->left_bytes = MAX (slabs->next_bytes, bytes);
    slabs->at = allocate (slabs->left_bytes);
    slabs->all = g_renew (void *, slabs->all, slabs->n + 1);
    slabs->all[slabs->n++] = slabs->at;
  }
  void *block = slabs->at;
  slabs->at += bytes;
  slabs->left_bytes -= bytes;
  return block;
}

/* Doubles the list of a link. Free blocks of 2^k items are chained through their first bytes. */
void
sp_flows_grow_list_ (SpFlowsSlabs *slabs, SpFlowLink *link)
{
  guint32 n_allocated = link->n_allocated > 0 ? 2 * link->n_allocated : FIRST_ITEMS;
  void **chain = &slabs->free_blocks[g_bit_storage (n_allocated) - 1], *block = *chain;

  if (block != NULL)
    memcpy (chain, block, sizeof (void *));
  else
    block = cut (slabs, (gsize) n_allocated * sizeof (SpFlowItem));
  if (link->n_allocated > 0) {
    chain = &slabs->free_blocks[g_bit_storage (link->n_allocated) - 1];
    memcpy (block, link->items, link->n_items * sizeof (SpFlowItem));
    memcpy (link->items, chain, sizeof (void *));
    *chain = link->items;
  }
  link->items = block;
  link->n_allocated = n_allocated;
}

void
sp_flows_free_slabs_ (SpFlowsSlabs *slabs)
{
  for (guint i = 0; i < slabs->n; i++)
    free (slabs->all[i]);
  g_free (slabs->all);
}
