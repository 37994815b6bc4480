/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"

/*
 * Keys and values gathered: every rank of the ring gets K and V of all places and runs one kernel over them (context
 * parallelism of Llama 3, 2407.21783, section 3.3.2; the softmax layers of LASP-2H, 2502.07563). Nothing is merged, and
 * nothing is hidden: the kernel needs all of it. In the backward K and V are gathered again unless ring-keep, and the
 * gradients of all keys are scattered to their ranks, summed in ring-gradient-dtype.
 *
 * Contiguous, a causal kernel of place p reads the keys of p + 1 places (SP_OP_BY_PLACE); zigzag and striped, each
 * place's work is the same. Llama 3 cuts zigzag.
 *
 * With a window, each place is priced as the last, which has most work.
 *
 * Known lies. K and V are two gathers, where a framework may join them. Zigzag's kernel is one, where Megatron-LM runs
 * one a half. Its HBM traffic is that of all keys, at every place.
 */

static gboolean
serves (const SpWriter *w)
{
  return w->layout->ring > 1 && w->layout->ring_kind == SP_RING_ALL_GATHER;
}

static void
collective (SpWriter *w, SpOpKind kind, guint8 in, guint8 out)
{
  sp_write_collective (w, kind, SP_GROUP_RING, SP_AXIS_RING, SP_STREAM_SEQUENCE, in, out,
                       w->layout->overlap ? SP_OP_ASYNC : 0);
}

static guint8
gather (SpWriter *w, guint8 own, gboolean keep)
{
  gint64 n = w->block->buffers[own].elements * w->layout->ring;
  guint8 all = keep ? sp_write_stash (w, SP_TIER_KEEP, n)
                    : sp_write_buffer (w, SP_CLASS_COMMUNICATION, w->dtype, SP_LIFE_SEGMENT, n);

  collective (w, SP_OP_ALL_GATHER, own, all);
  return all;
}

static void
forward (SpWriter *w, SpCoreSlots *c)
{
  c->all[0] = gather (w, c->k, w->layout->ring_keep);
  c->all[1] = gather (w, c->v, w->layout->ring_keep);
  sp_write_attention_outputs (w, c);
  sp_write_attention (w, c, c->all[0], c->all[1], sp_core_ring_pairs (w, c), 0);
  sp_write_attention_sink (w, c);
}

static guint8
scatter (SpWriter *w, const SpCoreSlots *c, guint8 d_all)
{
  SpDtype dtype = w->layout->ring_gradient_dtype;
  gint64 n = w->block->buffers[d_all].elements;
  guint8 whole = d_all;

  if (dtype != w->dtype) {
    whole = sp_write_buffer (w, SP_CLASS_COMMUNICATION, dtype, SP_LIFE_SEGMENT, n);
    sp_write_copy (w, c, d_all, whole);
  }
  guint8 own = sp_write_buffer (w, SP_CLASS_COMMUNICATION, dtype, SP_LIFE_SEGMENT, n / w->layout->ring);
  collective (w, SP_OP_REDUCE_SCATTER, whole, own);
  return own;
}

static void
backward (SpWriter *w, SpCoreSlots *c)
{
  guint8 k = w->layout->ring_keep ? c->all[0] : gather (w, c->k, FALSE);
  guint8 v = w->layout->ring_keep ? c->all[1] : gather (w, c->v, FALSE);
  guint8 delta = sp_write_attention_delta (w, c);
  guint8 dk = sp_write_temporary (w, w->block->buffers[k].elements);
  guint8 dv = sp_write_temporary (w, w->block->buffers[v].elements);

  sp_write_attention_sink_backward (w, c, delta);
  c->dq = sp_write_temporary (w, sp_core_elements (w, c, c->heads));
  sp_write_attention_backward (w, c, k, v, delta, dk, dv, sp_core_ring_pairs (w, c), 0);
  guint8 dk_own = scatter (w, c, dk), dv_own = scatter (w, c, dv);
  c->dk = sp_write_to_dtype (w, c, dk_own);
  c->dv = sp_write_to_dtype (w, c, dv_own);
}

static const SpCore core = { "ring-gather", SP_BLOCK_SOFTMAX, serves, forward, backward };
static const SpCore *const cores[] = { &core, NULL };

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* What it shares with the ring is asked there. */
static gboolean
keep_is_gathered (const SpCase *c)
{
  return !c->layout->ring_keep || (c->layout->ring > 1 && c->layout->ring_kind == SP_RING_ALL_GATHER);
}

static void
explain_keep (const SpCase *c, GString *out)
{
  if (c->layout->ring == 1)
    g_string_append (out, "ring-keep = true keeps what a ring has gathered, and ring = 1; use ring-keep = false");
  else
    g_string_append_printf (out,
                            "ring-keep = true keeps gathered keys and values, and ring-kind = %s gathers none; use "
                            "ring-kind = all-gather, or ring-keep = false",
                            sp_ring_kind_name (c->layout->ring_kind));
}

static const SpRule rules[] = { { "ring-keep", keep_is_gathered, explain_keep } };

const SpStrategy sp_strategy_ring_gather = {
  "ring-gather", SP_AXIS_RING,         "K and V gathered over the ring (ring-kind = all-gather), as Llama 3 does",
  rules,         G_N_ELEMENTS (rules), cores,
};
