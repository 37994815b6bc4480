/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/* In the order in which their rules are checked: the tensor split comes before what divides the heads that it
 * leaves. */
static const SpStrategy *const strategies[] = {
  &sp_strategy_tensor, &sp_strategy_ulysses, &sp_strategy_ring,   &sp_strategy_ring_gather,
  &sp_strategy_rsa,    &sp_strategy_lasp,    &sp_strategy_expert, &sp_strategy_pipeline,
  &sp_strategy_zero,   &sp_strategy_muon,    &sp_strategy_offload, &sp_strategy_data,
  &sp_strategy_frozen, &sp_strategy_slices,
  &sp_strategy_local,
};

guint
sp_strategy_count (void)
{
  return G_N_ELEMENTS (strategies);
}

const SpStrategy *
sp_strategy_get (guint row)
{
  g_return_val_if_fail (row < G_N_ELEMENTS (strategies), NULL);
  return strategies[row];
}

const SpCore *
sp_strategy_core (const SpWriter *w)
{
  for (guint i = 0; i < G_N_ELEMENTS (strategies); i++)
    for (guint j = 0; strategies[i]->cores && strategies[i]->cores[j]; j++) {
      const SpCore *core = strategies[i]->cores[j];
      if (core->block == w->block->kind && core->serves (w))
        return core;
    }
  g_assert_not_reached ();
}
