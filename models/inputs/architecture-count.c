/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters, counted from the shape alone: what `show model` says and MFU rests on. A test holds them against the
 * weights that the writers lay out.
 */
#include "models/inputs/architecture.h"
#include "models/layers/families.h"

/* Matrices of a part of a layer, and the rest of it: biases, norms, per-head numbers. */
typedef struct {
  gint64 matrices, others;
} Count;

static gint64
norm_parameters (const SpArchitecture *arch, gint64 features)
{
  switch (arch->norm) {
  case SP_NORM_RMS:
    return features;
  case SP_NORM_LAYER:
    return 2 * features;
  default:
    return 0;
  }
}

/* --- mixers ------------------------------------------------------------------------------------------------------- */

static Count
softmax (const SpArchitecture *arch)
{
  gint64 d = arch->head_size, q = arch->heads * d, kv = 2 * (gint64) arch->kv_heads * d,
         gate = arch->attention_gate ? q : 0;
  Count count = { arch->hidden * (q + gate + kv + q), 0 };

  count.others += arch->qkv_bias ? q + gate + kv : 0;
  count.others += arch->projection_bias ? arch->hidden : 0;
  count.others += arch->qk_norm ? 2 * d : 0;
  count.others += arch->sinks ? arch->heads : 0;
  return count;
}

static Count
latent (const SpArchitecture *arch)
{
  const SpLatentShape *l = &arch->latent;
  gint64 heads = arch->heads, q_in = l->q_rank > 0 ? l->q_rank : arch->hidden;
  Count count = { 0, 0 };

  count.matrices += l->q_rank > 0 ? (gint64) arch->hidden * l->q_rank : 0;
  count.matrices += q_in * heads * (l->nope_size + l->rope_size);
  count.matrices += (gint64) arch->hidden * (l->kv_rank + l->rope_size);
  count.matrices += l->kv_rank * heads * (l->nope_size + l->value_size);
  count.matrices += heads * l->value_size * arch->hidden;
  count.others = norm_parameters (arch, l->q_rank) + norm_parameters (arch, l->kv_rank);
  return count;
}

/* Mamba: x and z; convolution of x; dt, B, C; dt up; A and D a channel. */
static Count
scan (const SpArchitecture *arch, const SpLinearShape *l)
{
  gint64 hidden = arch->hidden, channels = l->heads * (gint64) l->value_size, rank = l->gate_rank;
  Count count = { 0, 0 };

  count.matrices =
      hidden * 2 * channels + channels * (rank + 2 * (gint64) l->key_size) + rank * channels + channels * hidden;
  count.others = channels * (l->conv + 1) + channels + channels * l->key_size + channels;
  if (l->output_gate) /* Jamba: norms of dt, B and C */
    count.others += rank + 2 * (gint64) l->key_size;
  return count;
}

/* The token shift's and decay's low-rank parts; a bonus a key; a norm of each output head; of RWKV-6 the receptance of
 * its channel mix. The program has the nearest form without some of these (layers/families.h). */
static Count
rwkv (const SpArchitecture *arch, const SpLinearShape *l)
{
  gint64 hidden = arch->hidden, value = l->heads * (gint64) l->value_size, key = l->key_heads * (gint64) l->key_size;
  Count count = { 0, 0 };

  count.matrices =
      hidden * (2 * key + value + (l->output_gate ? value : 0) + value) + 2 * (gint64) l->gate_rank * hidden;
  count.others = 6 * hidden + 2 * key + 2 * value;
  if (l->family == SP_LINEAR_RWKV6)
    count.matrices += hidden * hidden;
  return count;
}

/* As layers/recurrent.c lays them out, by the family's row. */
static Count
linear (const SpArchitecture *arch)
{
  const SpLinearShape shape = sp_architecture_linear (arch), *l = &shape;
  const SpFamily *family = sp_family_get ((SpLinearFamily) l->family);
  gint64 hidden = arch->hidden, heads = l->heads, value = heads * l->value_size,
         key = (gint64) l->key_heads * l->key_size, rank = l->gate_rank, decay = sp_family_decays (family, l);
  Count count = { 0, 0 };

  if (l->family == SP_LINEAR_MAMBA)
    return scan (arch, l);
  if (l->family == SP_LINEAR_RWKV6 || l->family == SP_LINEAR_RWKV7)
    return rwkv (arch, l);
  count.matrices = hidden * (2 * key + value + value);
  if (l->output_gate)
    count.matrices += family->low_rank_gate && rank > 0 ? rank * (hidden + value) : hidden * value;
  if (family->beta == SP_BETA_SIGMOID)
    count.matrices += hidden * heads;
  count.matrices += family->low_rank && rank > 0 ? rank * (hidden + decay) : hidden * decay;

  count.others = l->conv > 0 ? (2 * key + value) * (l->conv + (l->conv_bias ? 1 : 0)) : 0;
  count.others += family->decay_bias ? decay : 0;
  count.others += (family->rates ? heads : 0) + (family->skip ? heads : 0);
  if (family->norm == SP_OUTPUT_HEAD)
    count.others += l->value_size;
  else if (!family->no_gain)
    count.others += value;
  return count;
}

/* --- MLPs --------------------------------------------------------------------------------------------------------- */

static Count
mlp_of (const SpArchitecture *arch, gint64 ffn, gboolean bias)
{
  gint64 inputs = sp_mlp_is_gated (arch->mlp) ? 2 : 1;

  return (Count){ arch->hidden * (inputs + 1) * ffn, bias ? inputs * ffn + arch->hidden : 0 };
}

static gint64
one_expert (const SpArchitecture *arch)
{
  Count count = mlp_of (arch, arch->moe.ffn, arch->moe.bias);

  return count.matrices + count.others;
}

gint64
sp_architecture_layer_expert_parameters (const SpArchitecture *arch, guint kind)
{
  return kind & SP_LAYER_EXPERTS ? arch->moe.experts * one_expert (arch) : 0;
}

/* `experts`: how many of the routed ones are counted. */
static Count
mlp (const SpArchitecture *arch, guint kind, gint64 experts)
{
  const SpExpertShape *moe = &arch->moe;

  if (kind & SP_LAYER_NO_MLP)
    return (Count){ 0, 0 };
  if (!(kind & SP_LAYER_EXPERTS))
    return mlp_of (arch, arch->ffn, arch->mlp_bias);
  Count one = mlp_of (arch, moe->ffn, moe->bias), shared = mlp_of (arch, moe->shared_ffn, FALSE);
  Count count = { (gint64) arch->hidden * moe->experts + experts * one.matrices + shared.matrices,
                  experts * one.others };
  count.matrices += moe->shared_gate ? arch->hidden : 0;
  count.others += moe->bias ? moe->experts : 0;
  return count;
}

/* --- a layer, a model --------------------------------------------------------------------------------------------- */

static Count
layer (const SpArchitecture *arch, guint kind, gint64 experts)
{
  static const guint8 norms[SP_N_FORMS] = {
    [SP_FORM_PRE_NORM] = 2, [SP_FORM_PARALLEL] = 1,    [SP_FORM_PARALLEL_TWO] = 2,
    [SP_FORM_SANDWICH] = 4, [SP_FORM_BRANCH_NORM] = 2, [SP_FORM_POST_NORM] = 2,
  };
  Count mixer = sp_layer_mixer (kind) == SP_LAYER_LINEAR ? linear (arch)
                : arch->latent.kv_rank > 0               ? latent (arch)
                                                         : softmax (arch);
  Count after = mlp (arch, kind, experts);
  gint64 n = kind & SP_LAYER_NO_MLP ? (norms[arch->form] + 1) / 2 : norms[arch->form];

  return (Count){ mixer.matrices + after.matrices,
                  mixer.others + after.others + n * norm_parameters (arch, arch->hidden) };
}

gint64
sp_architecture_layer_matmul_parameters (const SpArchitecture *arch, guint kind)
{
  return layer (arch, kind, arch->moe.experts_per_token).matrices;
}

gint64
sp_architecture_layer_routed_parameters (const SpArchitecture *arch, guint kind)
{
  return kind & SP_LAYER_EXPERTS ? arch->moe.experts_per_token * mlp_of (arch, arch->moe.ffn, FALSE).matrices : 0;
}

gint64
sp_architecture_layer_parameters (const SpArchitecture *arch, guint kind)
{
  Count count = layer (arch, kind, arch->moe.experts);

  return count.matrices + count.others;
}

static gint64
parameters (const SpArchitecture *arch, gint64 experts)
{
  gint64 hidden = arch->hidden, norm = norm_parameters (arch, hidden);
  gint64 count = (gint64) arch->vocabulary * hidden * (arch->tied ? 1 : 2);

  count += (gint64) (arch->positions + arch->token_types) * hidden;
  count += arch->embedding_norm ? norm : 0;
  count += arch->no_final_norm ? 0 : norm;
  count += arch->head_transform ? hidden * hidden + hidden + norm : 0;
  count += arch->head_bias ? arch->vocabulary : 0;
  for (gint32 i = 0; i < arch->layers; i++) {
    Count one = layer (arch, arch->layer_kind[i], experts);
    count += one.matrices + one.others;
  }
  return count;
}

gint64
sp_architecture_parameters (const SpArchitecture *arch)
{
  return parameters (arch, arch->moe.experts);
}

gint64
sp_architecture_active_parameters (const SpArchitecture *arch)
{
  return parameters (arch, arch->moe.experts_per_token);
}

gint64
sp_architecture_state_bytes (const SpArchitecture *arch)
{
  SpLinearShape l = sp_architecture_linear (arch);

  return 4 * (gint64) sp_architecture_count (arch, SP_LAYER_LINEAR) * l.heads * l.key_size * l.value_size;
}
