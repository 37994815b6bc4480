/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "sim/words.h"

/* Data parallelism, and the rules of the run itself: how sequences and tokens divide over ranks. The gradients'
 * reduction is zero.c's, over data and sequence ranks at once. */

static gboolean
world_matches (const SpCase *c)
{
  return c->ranks == 0 || sp_layout_world (c->layout, c->arch) == c->ranks;
}

static void
explain_world (const SpCase *c, GString *out)
{
  gint32 world = sp_layout_world (c->layout, c->arch), others = world / c->layout->data;

  g_string_append_printf (out,
                          "the layout needs data x tensor x pipeline x sequence ranks = %d GPU%s and the cluster has %d",
                          world, sp_plural (world), c->ranks);
  if (others > 0 && c->ranks % others == 0)
    g_string_append_printf (out, "; use data = %d", c->ranks / others);
  else
    g_string_append_printf (out, "; tensor x pipeline x sequence ranks = %d must divide %d", others, c->ranks);
}

static gboolean
batch_suffices (const SpCase *c)
{
  return c->layout->data <= c->run->global_batch;
}

static void
explain_batch (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "data = %d replicas and only global-batch = %d sequence%s; use data = %d or less, and split the "
      "sequence (ulysses, ring, lasp) instead",
      c->layout->data, c->run->global_batch, sp_plural (c->run->global_batch), c->run->global_batch);
}

static gboolean
micro_batch_fits (const SpCase *c)
{
  gint64 share = (c->run->global_batch + c->layout->data - 1) / c->layout->data;

  return c->run->micro_batch <= share;
}

static void
explain_micro_batch (const SpCase *c, GString *out)
{
  gint32 share = (c->run->global_batch + c->layout->data - 1) / c->layout->data;

  g_string_append_printf (
      out, "micro-batch = %d is more than the %d sequence%s of a replica (global-batch %d / data %d); at most %d",
      c->run->micro_batch, share, sp_plural (share), c->run->global_batch, c->layout->data, share);
}

static gint64
token_parts (const SpCase *c)
{
  gint64 parts = sp_layout_sequence_ranks (c->layout, c->arch);

  return c->layout->sequence_regions ? parts * c->layout->tensor : parts;
}

gint64
sp_rule_padded_sequence (const SpCase *c)
{
  gint64 parts = token_parts (c), zigzag = 2 * (gint64) c->layout->ring, multiple = parts;

  if (c->layout->ring > 1 && c->layout->token_split == SP_TOKENS_ZIGZAG)
    while (multiple % zigzag != 0)
      multiple += parts;
  return (c->run->sequence + multiple - 1) / multiple * multiple;
}

static gboolean
tokens_divide (const SpCase *c)
{
  return c->run->sequence % token_parts (c) == 0;
}

static void
explain_tokens (const SpCase *c, GString *out)
{
  gint64 parts = token_parts (c);

  g_string_append_printf (out,
                          "sequence = %" G_GINT64_FORMAT " must be a multiple of the %" G_GINT64_FORMAT
                          " parts it is cut in (sequence ranks%s); pad it to %" G_GINT64_FORMAT,
                          c->run->sequence, parts,
                          c->layout->sequence_regions && c->layout->tensor > 1 ? " x tensor, for sequence regions" : "",
                          sp_rule_padded_sequence (c));
}

/* Shapes of a rank are 32-bit. */
static gboolean
rows_fit (const SpCase *c)
{
  gint64 rows = c->run->sequence / sp_layout_sequence_ranks (c->layout, c->arch) * c->layout->ulysses;
  gint64 widest = MAX ((gint64) c->arch->hidden, 1);

  return rows * c->run->micro_batch < G_MAXINT32 && rows * c->run->micro_batch < G_MAXINT64 / 64 / widest;
}

static void
explain_rows (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "a rank would hold 2^31 tokens or more (sequence %" G_GINT64_FORMAT
                          " x micro-batch %d); use more sequence ranks or a smaller micro-batch",
                          c->run->sequence, c->run->micro_batch);
}

static gboolean
keeps_scores (const SpCase *c)
{
  return c->layout->ring > 1 ? c->layout->ring_kind == SP_RING_RSA : !c->framework->fused_attention;
}

/* So are score matrices 64-bit; no machine holds the largest of them. */
static gboolean
scores_fit (const SpCase *c)
{
  double tokens = (double) c->run->sequence / sp_layout_sequence_ranks (c->layout, c->arch) * c->layout->ulysses;

  double keys = c->layout->ring > 1 ? (double) c->run->sequence : tokens;

  return !keeps_scores (c) || tokens * keys * c->arch->heads * c->run->micro_batch < 0x1p56;
}

static void
explain_scores (const SpCase *c, GString *out)
{
  g_string_append_printf (
      out,
      "%s%s keeps score matrices of sequence^2 x heads, too large to count at sequence %" G_GINT64_FORMAT
      "; use %s with fused attention",
      c->layout->ring > 1 ? "ring-kind = " : "framework ",
      c->layout->ring > 1 ? sp_ring_kind_name (c->layout->ring_kind) : c->framework->name, c->run->sequence,
      c->layout->ring > 1 ? "a ring" : "a framework");
}

static gboolean
packing_is_fused (const SpCase *c)
{
  gboolean fused = c->framework->fused_attention && c->layout->ring_kind != SP_RING_RSA;

  return c->run->packing == NULL || fused || !sp_architecture_has (c->arch, SP_LAYER_SOFTMAX);
}

static void
explain_packing (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "packing = %s needs an attention kernel that takes the documents' ends, and %s%s keeps score "
                          "matrices; use packing = none%s",
                          c->run->packing->path, c->framework->fused_attention ? "" : "framework ",
                          c->framework->fused_attention ? "ring-kind = rsa" : c->framework->name,
                          c->framework->fused_attention ? ", or ring-kind = p2p" : " or another framework");
}

/* Its pairs are counted for each place and step. */
#define MOST_PACKED_RING 1024

static gboolean
packed_ring_is_counted (const SpCase *c)
{
  return c->run->packing == NULL || c->layout->ring <= MOST_PACKED_RING;
}

static void
explain_packed_ring (const SpCase *c, GString *out)
{
  g_string_append_printf (out, "packing = %s on a ring of %d; at most %d", c->run->packing->path, c->layout->ring,
                          MOST_PACKED_RING);
}

/* The loss's chunks are equal. */
static gint64
rank_tokens (const SpCase *c)
{
  return c->run->sequence / sp_layout_sequence_ranks (c->layout, c->arch);
}

static gboolean
chunks_divide (const SpCase *c)
{
  return rank_tokens (c) % sp_layout_loss_chunks (c->layout, c->arch, c->run) == 0;
}

/* Appends the divisors of the tokens of a rank on either side of a number of parts. */
static void
append_divisors (const SpCase *c, gint32 parts, GString *out)
{
  gint64 tokens = rank_tokens (c), below = MIN ((gint64) parts, tokens), above = (gint64) parts + 1;

  while (below > 1 && tokens % below != 0)
    below--;
  while (above < tokens && tokens % above != 0)
    above++;
  g_string_append_printf (out, "%" G_GINT64_FORMAT, MAX (below, 1));
  if (above <= tokens)
    g_string_append_printf (out, " or %" G_GINT64_FORMAT, above);
}

static void
explain_chunks (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "loss-chunks = %d must divide the %" G_GINT64_FORMAT " tokens that a rank has of a sequence; "
                          "nearest: ",
                          c->layout->loss_chunks, rank_tokens (c));
  append_divisors (c, c->layout->loss_chunks, out);
}

static gboolean
tiles_divide (const SpCase *c)
{
  return rank_tokens (c) % sp_layout_mlp_tiles (c->layout, c->arch, c->run) == 0;
}

static void
explain_tiles (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "mlp-tiles = %d must divide the %" G_GINT64_FORMAT " tokens that a rank has of a sequence; "
                          "nearest: ",
                          c->layout->mlp_tiles, rank_tokens (c));
  append_divisors (c, c->layout->mlp_tiles, out);
}

/* What it would leave out is most of the head's work. */
static gboolean
loss_is_in_scope (const SpCase *c)
{
  return c->run->scope != SP_SCOPE_FORWARD || c->layout->loss < SP_LOSS_CHUNKED;
}

static void
explain_loss_scope (const SpCase *c, GString *out)
{
  g_string_append_printf (out,
                          "scope = forward, and loss = %s computes the loss and its gradient in one pass, which is "
                          "counted with the backward; use loss = full or vocab-parallel",
                          c->layout->loss == SP_LOSS_CHUNKED ? "chunked" : "fused");
}

static const SpRule rules[] = {
  { "world", world_matches, explain_world },
  { "data-batch", batch_suffices, explain_batch },
  { "micro-batch", micro_batch_fits, explain_micro_batch },
  { "tokens", tokens_divide, explain_tokens },
  { "rows", rows_fit, explain_rows },
  { "scores", scores_fit, explain_scores },
  { "packing-fused", packing_is_fused, explain_packing },
  { "packing-ring", packed_ring_is_counted, explain_packed_ring },
  { "loss-chunks", chunks_divide, explain_chunks },
  { "mlp-tiles", tiles_divide, explain_tiles },
  { "loss-scope", loss_is_in_scope, explain_loss_scope },
};

const SpStrategy sp_strategy_data = {
  "data", SP_AXIS_DATA, "replicas that see other sequences; gradients are averaged", rules, G_N_ELEMENTS (rules), NULL,
};
