/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

/* Recursive doubling, an all-reduce of short buffers (Thakur, Rabenseifner and Gropp, 2005): in round k both of a pair
 * 2^k apart send all they have and add up. Where P is no power of two, the ranks beyond the last one first give what
 * they have to a rank within, and get the result in the end. */

static void
build (const SpPatternRequest *request, SpPattern *pattern)
{
  guint32 n = request->n_ranks, power = 1u << (g_bit_storage (n) - 1);
  SpPartner within = { .rule = SP_PARTNER_PARENT, .by = (gint32) power },
            beyond = { .rule = SP_PARTNER_CHILD, .by = (gint32) power };
  SpTime compute = sp_pattern_reduce_time (request, request->bytes);

  if (n > power)
    sp_pattern_add (pattern, within, beyond, request->bytes, compute);
  for (guint32 by = 1; by < power; by *= 2) {
    SpPartner other = { .rule = SP_PARTNER_XOR, .by = (gint32) by, .below = power };
    sp_pattern_add (pattern, other, other, request->bytes, compute);
  }
  if (n > power)
    sp_pattern_add (pattern, beyond, within, request->bytes, 0);
}

const SpPatternKind sp_pattern_recursive_doubling = {
  .name = "recursive-doubling",
  .summary = "all-reduce; round k: exchange with the rank 2^k apart",
  .bytes = "of the buffer",
  .build = build,
};
