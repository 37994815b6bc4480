/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * Activations in host memory: what full recompute keeps of a layer, its input, is copied to the host while the layer's
 * forward runs, and comes back before its recompute. Frameworks fetch it while the layer after it runs its backward; here
 * the recompute waits for it. The optimizer and parameters on the host: zero.c.
 */

static gboolean
is_used (const SpWriter *w)
{
  return w->recompute == SP_RECOMPUTE_FULL && (w->layout->offload & SP_OFFLOAD_ACTIVATIONS) != 0;
}

void
sp_offload_begin_block (SpWriter *w)
{
  w->offloaded = 0;
  if (is_used (w))
    w->block->buffers[SP_SLOT_X].life = SP_LIFE_REBUILT;
}

void
sp_offload_input (SpWriter *w)
{
  if (!is_used (w))
    return;
  const SpBuffer *x = &w->block->buffers[SP_SLOT_X];
  w->offloaded = sp_write_host_buffer (w, SP_CLASS_ACTIVATIONS, x->dtype, SP_LIFE_STASH, x->elements);
  sp_write_host_copy (w, SP_OP_TO_HOST, SP_STREAM_OFFLOAD, SP_SLOT_X, w->offloaded, w->layout->overlap ? SP_OP_ASYNC : 0);
}

guint
sp_offload_fetch_input (SpWriter *w)
{
  if (w->offloaded == 0)
    return 0;
  sp_write_host_copy (w, SP_OP_FROM_HOST, SP_STREAM_OFFLOAD, w->offloaded, SP_SLOT_X, 0);
  return 1;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
has_inputs (const SpCase *c)
{
  return !(c->layout->offload & SP_OFFLOAD_ACTIVATIONS) || c->layout->recompute == SP_RECOMPUTE_FULL;
}

static void
explain_inputs (const SpCase *c, GString *out)
{
  (void) c;
  g_string_append (out, "offload = activations copies what full recompute keeps of each layer; use recompute = full");
}

static gboolean
has_shards (const SpCase *c)
{
  return !(c->layout->offload & SP_OFFLOAD_PARAMETERS) || c->layout->zero == 3;
}

static void
explain_shards (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "offload = parameters keeps the shards of zero = 3 on the host, and zero is %d; use zero = 3",
                          c->layout->zero);
}

static gboolean
sums_once (const SpCase *c)
{
  return !(c->layout->offload & SP_OFFLOAD_OPTIMIZER) || c->layout->pipeline == 1 ||
         !sp_schedule_get (c->layout->schedule)->mirrored;
}

static void
explain_sums (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "offload = optimizer adds gradients up on the host, and under schedule = %s two stages would "
                          "have to sum theirs there; use another schedule",
                          sp_schedule_get (c->layout->schedule)->name);
}

static const SpRule rules[] = {
  { "offload-activations", has_inputs, explain_inputs },
  { "offload-parameters", has_shards, explain_shards },
  { "offload-mirror", sums_once, explain_sums },
};

const SpStrategy sp_strategy_offload = {
  "offload", SP_AXIS_HOST,         "optimizer, parameters or layer inputs in host memory, copied over PCIe",
  rules,     G_N_ELEMENTS (rules), NULL,
};
