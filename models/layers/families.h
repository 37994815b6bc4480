/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The recurrent token mixers, a row each: what tells one family's layer from another's. recurrent.c writes the layer by
 * its row; strategies/lasp.c and lasp-recurrent.c write the core by its rule. Shapes (heads, sizes, convolution, ranks,
 * whether there is an output gate) are the model's: SpLinearShape.
 *
 * Facts are those of the families' public implementations: flash-linear-attention's layers (GLA, simple GLA, RetNet,
 * DeltaNet, gated DeltaNet, KDA), Hugging Face transformers (Mamba2, Qwen3-Next), MiniMax-Text-01's attention.
 *
 * RWKV-6 and RWKV-7 have the nearest form that a row can say. Left out or changed: the mix of each token with the one
 * before (six inputs, by low-rank weights, and a halo of one row); the bonus that RWKV-6 gives the own token; the
 * decay's map (exp of -exp; of RWKV-7 of a sigmoid), here GLA's; RWKV-7's removal key apart from its key, and its
 * weight a feature, here the delta rule's one key and one weight a head; the low-rank weights of a and v; the channel
 * mix' own gate. The state, what ranks exchange and the products of the chunked kernel are the same.
 */

#include "models/inputs/architecture.h"

G_BEGIN_DECLS

/* What multiplies keys and values: nothing, a sigmoid of its own projection, or the decay's step. */
typedef enum { SP_BETA_NONE, SP_BETA_SIGMOID, SP_BETA_STEP } SpBeta;

/* The output's norm: a head, with one gain for all heads; or a row, before the output gate or after it. */
typedef enum { SP_OUTPUT_HEAD, SP_OUTPUT_ROW, SP_OUTPUT_GATED_ROW } SpOutputNorm;

typedef struct {
  guint rule;          /* SpOpFlags of a recurrence; 0: a fixed decay a head */
  guint map;           /* SpOpFlags of KEY_MAP */
  guint map_without;   /* of it, what the convolution does where there is one */
  guint8 beta;         /* SpBeta */
  guint8 norm;         /* SpOutputNorm */
  gboolean rates;      /* a decay from a step and a learned rate a head, else from a sigmoid alone */
  gboolean decay_bias; /* a feature of the decay's projection */
  gboolean low_rank;   /* that projection is of rank gate_rank */
  gboolean low_rank_gate;
  gboolean silu_gate; /* else a sigmoid */
  gboolean no_gain;   /* of the output's norm */
  gboolean skip;      /* values, scaled a head, past the recurrence */
} SpFamily;

const SpFamily *sp_family_get (SpLinearFamily family);
/* Decays of a token: of all heads, and of all their features where each has its own. */
gint64 sp_family_decays (const SpFamily *family, const SpLinearShape *shape);
/* The rule of the model's linear layers. */
static inline guint
sp_family_rule (const SpArchitecture *arch)
{
  return sp_family_get ((SpLinearFamily) arch->linear.family)->rule;
}

G_END_DECLS
