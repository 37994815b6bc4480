/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"

/*
 * Expert parallelism (GShard, 2006.16668): experts are spread over `expert` of the data x sequence ranks, a second
 * factorisation of ranks that are there anyway; tokens go to them and come back in all-to-alls over SP_GROUP_EXPERT. The
 * ranks that hold the same experts, SP_GROUP_EXPERT_DATA, reduce their gradients and shard their state. Tensor ranks
 * split the width of each expert as that of an MLP (expert-tensor = tensor), and each of them exchanges whole rows.
 * What a layer does with it: layers/experts.c.
 */

static gboolean
has_experts (const SpCase *c)
{
  return c->arch->moe.experts > 0 && sp_architecture_has_bit (c->arch, SP_LAYER_EXPERTS);
}

static gboolean
model_has_experts (const SpCase *c)
{
  return c->layout->expert == 1 || has_experts (c);
}

static void
explain_model (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "expert = %d and %s has no experts; use expert = 1", c->layout->expert, c->arch->name);
}

static gboolean
count_divides (const SpCase *c)
{
  return c->layout->expert == 1 || c->arch->moe.experts % c->layout->expert == 0;
}

static void
explain_count (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "expert = %d must divide the %d experts; legal: ", c->layout->expert,
                          c->arch->moe.experts);
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, expert), c->arch->moe.experts, count_divides, out);
}

static gboolean
ranks_divide (const SpCase *c)
{
  return sp_layout_replicas (c->layout, c->arch) % c->layout->expert == 0;
}

static gboolean
both_divide (const SpCase *c)
{
  return count_divides (c) && ranks_divide (c);
}

static void
explain_ranks (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "expert = %d must divide the data x sequence ranks = %d that experts are spread over; legal: ", c->layout->expert,
      sp_layout_replicas (c->layout, c->arch));
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, expert), c->arch->moe.experts, both_divide, out);
}

static gboolean
width_divides (const SpCase *c)
{
  const SpExpertShape *moe = &c->arch->moe;

  return !has_experts (c) || (moe->ffn % c->layout->tensor == 0 && moe->shared_ffn % c->layout->tensor == 0);
}

static void
explain_width (const SpCase *c, GString *out)
{
  const SpExpertShape *moe = &c->arch->moe;

  g_string_append_printf (out, "tensor = %d must divide the width %d of an expert", c->layout->tensor, moe->ffn);
  if (moe->shared_ffn > 0)
    g_string_append_printf (out, " and %d of the shared ones", moe->shared_ffn);
  g_string_append (out, "; legal: ");
  sp_rule_nearest (c, G_STRUCT_OFFSET (SpLayout, tensor), c->arch->heads, width_divides, out);
}

/* The optimizer's kernel counts a rank's part in 32 bits. */
static gboolean
part_fits (const SpCase *c)
{
  const SpExpertShape *moe = &c->arch->moe;

  if (!has_experts (c))
    return TRUE;
  gint64 parts = (gint64) c->layout->expert * c->layout->tensor;
  gint64 part = 3 * (gint64) c->arch->hidden * moe->ffn * moe->experts / parts;
  return part / (c->layout->zero > 0 ? sp_layout_replicas (c->layout, c->arch) / c->layout->expert : 1) < G_MAXINT32;
}

static void
explain_part (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "a GPU would hold 2^31 expert parameters of a layer or more (expert %d x tensor %d%s); use a "
                          "larger expert degree, or zero = 1 or more",
                          c->layout->expert, c->layout->tensor, c->layout->zero > 0 ? ", sharded" : "");
}

/* Shapes of a rank are 32-bit: rows of all experts' buffers. */
static gboolean
rows_fit (const SpCase *c)
{
  gint64 tokens = c->run->sequence / sp_layout_sequence_ranks (c->layout, c->arch) * c->run->micro_batch;

  return !has_experts (c) ||
         c->arch->moe.experts * sp_layout_expert_rows (c->layout, c->arch, c->run, tokens) < G_MAXINT32;
}

static void
explain_rows (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "the buffers of %d experts would have 2^31 rows or more; use more sequence ranks, a smaller "
                          "micro-batch or a smaller expert-capacity than %g",
                          c->arch->moe.experts, c->layout->expert_capacity);
}

/* All tokens to the same experts is `experts / k` times what each of them has in the mean. */
static double
most_imbalance (const SpArchitecture *arch)
{
  return (double) arch->moe.experts / arch->moe.experts_per_token;
}

static gboolean
load_is_possible (const SpCase *c)
{
  return !has_experts (c) || c->run->expert_imbalance <= most_imbalance (c->arch) * (1 + 1e-12);
}

static void
explain_load (const SpCase *c, GString *out)
{
  const SpExpertShape *moe = &c->arch->moe;

  g_string_append_printf (out,
                          "expert-imbalance = %g is more than every token to the same experts, which is %d experts / %d "
                          "a token = %g; use 1 to %g",
                          c->run->expert_imbalance, moe->experts, moe->experts_per_token, most_imbalance (c->arch),
                          most_imbalance (c->arch));
}

static const SpRule rules[] = {
  { "expert-model", model_has_experts, explain_model }, { "expert-count", count_divides, explain_count },
  { "expert-ranks", ranks_divide, explain_ranks },      { "expert-width", width_divides, explain_width },
  { "expert-size", part_fits, explain_part },           { "expert-rows", rows_fit, explain_rows },
  { "expert-imbalance", load_is_possible, explain_load },
};

const SpStrategy sp_strategy_expert = {
  "expert", SP_AXIS_EXPERT,       "experts spread over data x sequence ranks, tokens exchanged by all-to-all",
  rules,    G_N_ELEMENTS (rules), NULL,
};
