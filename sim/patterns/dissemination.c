/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

/* Dissemination (Hensgen, Finkel and Manber, 1988): in round k to the rank 2^k further on. After log2 P rounds, rounded
 * up, every rank has heard of every other: a barrier, and with a message that grows an all-gather (not here). */

static void
build (const SpPatternRequest *request, SpPattern *pattern)
{
  for (gint32 by = 1; (guint32) by < request->n_ranks; by *= 2)
    sp_pattern_add (pattern, sp_partner_shift (by), sp_partner_shift (-by), request->bytes, 0);
}

const SpPatternKind sp_pattern_dissemination = {
  .name = "dissemination",
  .summary = "round k: to the rank 2^k further on",
  .bytes = "of a message",
  .build = build,
};
