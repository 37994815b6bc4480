/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

/* Binomial broadcast from rank 0: in round k the 2^k ranks that have the buffer send it 2^k further on. */

static void
build (const SpPatternRequest *request, SpPattern *pattern)
{
  for (gint32 by = 1; (guint32) by < request->n_ranks; by *= 2)
    sp_pattern_add (pattern, (SpPartner){ .rule = SP_PARTNER_CHILD, .by = by },
                    (SpPartner){ .rule = SP_PARTNER_PARENT, .by = by }, request->bytes, 0);
}

const SpPatternKind sp_pattern_binomial_broadcast = {
  .name = "binomial-broadcast",
  .summary = "from rank 0; round k: the 2^k that have it send it 2^k further on",
  .bytes = "of the buffer",
  .build = build,
};
