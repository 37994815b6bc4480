/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "sim/words.h"

/* What is not trained: rules. How it is written: models/writer.h (frozen flats), layers/lora.c. */

/* --- adapters ----------------------------------------------------------------------------------------------------- */

static gboolean
has_both (guint targets, guint bits)
{
  return (targets & bits) == 0 || (targets & bits) == bits;
}

/* What adapters cannot have, and what to ask for instead. */
static const char *
unwritten (const SpCase *c, const char **ret_instead)
{
  const SpArchitecture *arch = c->arch;
  guint targets = sp_run_lora (c->run);

  *ret_instead = "lora-rank = 0";
  if (targets == 0)
    return NULL;
  if (sp_architecture_has (arch, SP_LAYER_LINEAR))
    return "linear layers, which have no adapters yet";
  *ret_instead = arch->attention_gate ? "lora-targets of k, v, o, gate, up, down" : "lora-targets = attention";
  if (sp_architecture_has_bit (arch, SP_LAYER_EXPERTS) && targets & SP_LORA_MLP)
    return "experts, whose matrices have no adapters yet";
  if (arch->attention_gate && targets & SP_LORA_Q)
    return "a gate in the queries' matrix, which has no adapters yet";
  if (arch->latent.kv_rank > 0 && !has_both (targets, SP_LORA_K | SP_LORA_V))
    return "latent attention, where keys and values come out of the same matrices (k and v together)";
  *ret_instead = "up or down";
  if (targets == SP_LORA_GATE && !sp_mlp_is_gated (arch->mlp))
    return "no gate in its MLP";
  return NULL;
}

static gboolean
lora_is_written (const SpCase *c)
{
  const char *instead;

  return unwritten (c, &instead) == NULL;
}

static void
explain_lora (const SpCase *c, GString *out)
{
  const char *instead, *what = unwritten (c, &instead);

  g_string_append_printf (out, "lora-rank = %d with these lora-targets: %s has %s; use %s", c->run->lora_rank,
                          c->arch->name, what, instead);
}

static gboolean
lora_is_alone (const SpCase *c)
{
  return c->run->lora_rank == 0 || (c->run->frozen == 0 && c->run->frozen_layers == 0);
}

static void
explain_alone (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "lora-rank = %d freezes all of the model's own parameters, and all layers have adapters; use "
                          "frozen = none",
                          c->run->lora_rank);
}

/* --- frozen parts ------------------------------------------------------------------------------------------------- */

static gboolean
layers_are_there (const SpCase *c)
{
  return c->run->frozen_layers <= c->arch->layers;
}

static void
explain_layers (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "frozen = first-%d, and %s has %d layer%s; at most first-%d", c->run->frozen_layers,
                          c->arch->name, c->arch->layers, sp_plural (c->arch->layers), c->arch->layers);
}

static gboolean
anything_is_trained (const SpCase *c)
{
  const guint ends = SP_FREEZE_EMBEDDING | SP_FREEZE_HEAD;

  return c->run->lora_rank > 0 || c->run->frozen_layers < c->arch->layers || (c->run->frozen & ends) != ends;
}

static void
explain_trained (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "frozen = embedding, head and first-%d leaves nothing to train; use lora-rank, or at most "
                          "first-%d",
                          c->run->frozen_layers, c->arch->layers - 1);
}

static gboolean
tied_is_frozen_once (const SpCase *c)
{
  return !c->arch->tied || !(c->run->frozen & SP_FREEZE_HEAD) || c->run->frozen & SP_FREEZE_EMBEDDING;
}

static void
explain_tied (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "frozen = head, and the output matrix of %s is the embedding's; use frozen = embedding, or "
                          "embedding,head to freeze the norm before it too",
                          c->arch->name);
}

/* A recurrence's own parameters get their gradients from the kernels that make the inputs'. */
static gboolean
layers_can_freeze (const SpCase *c)
{
  return c->run->frozen_layers == 0 || !sp_architecture_has (c->arch, SP_LAYER_LINEAR) ||
         c->arch->linear.family == SP_LINEAR_TRANSNORMER;
}

static void
explain_recurrent (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "frozen = first-%d, and %s has recurrent layers, which cannot be frozen yet; use embedding or "
      "head",
      c->run->frozen_layers, c->arch->name);
}

/* Gradients go from stage to stage, down to the first. */
static gboolean
first_stage_learns (const SpCase *c)
{
  return c->layout->pipeline == 1 || sp_run_frozen_embedding (c->run) == SP_FROZEN_NOT ||
         c->run->frozen_layers < sp_layout_stage_layers (c->layout, c->arch, 0);
}

static void
explain_first_stage (const SpCase *c, GString *out)
{
  gint32 layers = sp_layout_stage_layers (c->layout, c->arch, 0);

  g_string_append_printf (
      out,
      "the embedding and the first %d layer%s are frozen, and the first of %d stages has %d: nothing "
      "on it would learn; use ",
      c->run->frozen_layers, sp_plural (c->run->frozen_layers), sp_layout_virtual_stages (c->layout), layers);
  if (layers > 1)
    g_string_append_printf (out, "at most first-%d, or ", layers - 1);
  g_string_append (out, "a stage-split with more layers on it");
}

/* Kinds of blocks that a program has room for. */
static gboolean
kinds_fit (const SpCase *c)
{
  guint8 seen[SP_N_LAYER_KINDS][2][SP_N_FROZENS] = { { { 0 } } };
  gint32 stages = sp_layout_virtual_stages (c->layout), l = 0;
  guint n = 2;

  if (c->run->frozen_layers == 0)
    return TRUE;
  for (gint32 stage = 0; stage < stages; stage++)
    for (gint32 i = 0, layers = sp_layout_stage_layers (c->layout, c->arch, stage); i < layers; i++, l++) {
      SpFrozen frozen = sp_run_frozen_layer (c->run, l);
      gboolean recomputes = frozen != SP_FROZEN_FORWARD_ONLY && sp_layout_recomputes (c->layout, i);
      n += !seen[c->arch->layer_kind[l]][recomputes][frozen];
      seen[c->arch->layer_kind[l]][recomputes][frozen] = 1;
    }
  return n <= SP_MAX_BLOCKS;
}

static void
explain_kinds (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "frozen = first-%d makes more than %d kinds of layers of those that %s has; use embedding or "
                          "head alone",
                          c->run->frozen_layers, SP_MAX_BLOCKS - 2, c->arch->name);
}

static const SpRule rules[] = {
  { "lora", lora_is_written, explain_lora },
  { "lora-frozen", lora_is_alone, explain_alone },
  { "frozen-layers", layers_are_there, explain_layers },
  { "frozen-all", anything_is_trained, explain_trained },
  { "frozen-tied", tied_is_frozen_once, explain_tied },
  { "frozen-recurrent", layers_can_freeze, explain_recurrent },
  { "frozen-stage", first_stage_learns, explain_first_stage },
  { "frozen-kinds", kinds_fit, explain_kinds },
};

const SpStrategy sp_strategy_frozen = {
  "frozen", SP_AXIS_DATA,         "parts of the model that are not trained, or adapters (LoRA) alone that are",
  rules,    G_N_ELEMENTS (rules), NULL,
};
