/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

/* Pairwise all-to-all: in step k to the rank k further on, from the rank k before. Each step waits for its message. */

static void
build (const SpPatternRequest *request, SpPattern *pattern)
{
  for (gint32 by = 1; (guint32) by < request->n_ranks; by++)
    sp_pattern_add (pattern, sp_partner_shift (by), sp_partner_shift (-by), request->bytes, 0);
}

const SpPatternKind sp_pattern_pairwise_all_to_all = {
  .name = "pairwise-all-to-all",
  .summary = "step k: to the rank k further on, from the rank k before",
  .bytes = "of a message",
  .build = build,
};
