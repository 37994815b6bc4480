/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patterns-private.h"

static const SpPatternKind *const kinds[] = {
  &sp_pattern_ring,
  &sp_pattern_dissemination,
  &sp_pattern_recursive_doubling,
  &sp_pattern_binomial_broadcast,
  &sp_pattern_pairwise_all_to_all,
  &sp_pattern_ring_all_reduce,
};

const SpPatternKind *const *
sp_pattern_kinds (guint *ret_n)
{
  *ret_n = G_N_ELEMENTS (kinds);
  return kinds;
}

const SpPatternKind *
sp_pattern_kind_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    if (g_str_equal (kinds[i]->name, name))
      return kinds[i];
  return NULL;
}

SpPattern *
sp_pattern_new (guint32 n_ranks)
{
  g_return_val_if_fail (n_ranks > 0 && n_ranks <= SP_PATTERN_MAX_RANKS, NULL);

  SpPattern *pattern = g_new0 (SpPattern, 1);
  pattern->n_ranks = n_ranks;
  pattern->steps = g_array_new (FALSE, FALSE, sizeof (SpPatternStep));
  return pattern;
}

SpPattern *
sp_pattern_build (const SpPatternKind *kind, const SpPatternRequest *request)
{
  SpPattern *pattern = sp_pattern_new (request->n_ranks);

  if (pattern != NULL)
    kind->build (request, pattern);
  return pattern;
}

void
sp_pattern_free (SpPattern *pattern)
{
  if (pattern == NULL)
    return;
  g_array_unref (pattern->steps);
  g_free (pattern);
}

static gboolean
is_partner (const SpPartner *partner, guint32 n_ranks)
{
  guint32 by = (guint32) partner->by;

  switch (partner->rule) {
  case SP_PARTNER_NONE:
    return TRUE;
  case SP_PARTNER_SHIFT:
    return partner->by != 0 && (guint32) ABS (partner->by) < n_ranks;
  case SP_PARTNER_XOR:
    return partner->by > 0 && by < partner->below && (partner->below & (partner->below - 1)) == 0;
  default:
    return partner->by > 0 && by <= SP_PATTERN_MAX_RANKS;
  }
}

void
sp_pattern_add (SpPattern *pattern, SpPartner to, SpPartner from, guint64 bytes, SpTime compute)
{
  SpPatternStep step = { .to = to, .from = from, .bytes = bytes, .compute = compute };

  g_return_if_fail (is_partner (&to, pattern->n_ranks) && is_partner (&from, pattern->n_ranks) && compute >= 0);
  g_array_append_val (pattern->steps, step);
}

SpTime
sp_pattern_reduce_time (const SpPatternRequest *request, guint64 bytes)
{
  return (SpTime) llrint ((double) bytes * request->reduce_ps_per_byte);
}
