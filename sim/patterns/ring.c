/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

/* Rings. The plain one passes a message to the next rank n_steps times, as ring attention does its keys and values. The
 * all-reduce is a reduce-scatter and an all-gather of P - 1 steps each, with a P-th of the buffer, rounded up, in each
 * (Patarasuk and Yuan, 2009). */

static void
add_steps (SpPattern *pattern, guint32 n_steps, guint64 bytes, SpTime compute)
{
  for (guint32 i = 0; i < n_steps && pattern->n_ranks > 1; i++)
    sp_pattern_add (pattern, sp_partner_shift (1), sp_partner_shift (-1), bytes, compute);
}

static void
build_ring (const SpPatternRequest *request, SpPattern *pattern)
{
  add_steps (pattern, request->n_steps, request->bytes, 0);
}

static void
build_all_reduce (const SpPatternRequest *request, SpPattern *pattern)
{
  guint32 n = request->n_ranks;
  guint64 bytes = request->bytes / n + (request->bytes % n > 0);

  add_steps (pattern, n - 1, bytes, sp_pattern_reduce_time (request, bytes));
  add_steps (pattern, n - 1, bytes, 0);
}

const SpPatternKind sp_pattern_ring = {
  .name = "ring",
  .summary = "every rank sends to the next, n times",
  .bytes = "of a message",
  .build = build_ring,
};

const SpPatternKind sp_pattern_ring_all_reduce = {
  .name = "ring-all-reduce",
  .summary = "reduce-scatter and all-gather around the ring, P - 1 steps each",
  .bytes = "of the buffer",
  .build = build_all_reduce,
};
