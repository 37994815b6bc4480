/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layers/families.h"

#include "sim/program.h"

#define SILU_KEYS_AND_VALUES (SP_OP_SILU | SP_OP_SILU_VALUES)

static const SpFamily families[SP_N_LINEAR_FAMILIES] = {
  /* linear.c writes it with one GEMM, where its shape is that of the softmax layers */
  [SP_LINEAR_TRANSNORMER] = { .map = SP_OP_SILU, .norm = SP_OUTPUT_ROW, .no_gain = TRUE },
  [SP_LINEAR_LIGHTNING] = { .map = SILU_KEYS_AND_VALUES, .map_without = SILU_KEYS_AND_VALUES, .norm = SP_OUTPUT_ROW },
  [SP_LINEAR_RETNET] = { .map = SP_OP_ROTATE, .norm = SP_OUTPUT_HEAD, .silu_gate = TRUE },
  [SP_LINEAR_GLA] = { .rule = SP_OP_FEATURE_DECAY,
                      .decay_bias = TRUE,
                      .low_rank = TRUE,
                      .norm = SP_OUTPUT_HEAD,
                      .silu_gate = TRUE },
  [SP_LINEAR_SIMPLE_GLA] = { .rule = SP_OP_HEAD_DECAY, .decay_bias = TRUE, .norm = SP_OUTPUT_HEAD, .silu_gate = TRUE },
  [SP_LINEAR_MAMBA] = { .rule = SP_OP_SCAN, .silu_gate = TRUE, .skip = TRUE },
  [SP_LINEAR_MAMBA2] = { .rule = SP_OP_HEAD_DECAY,
                         .map = SILU_KEYS_AND_VALUES,
                         .map_without = SILU_KEYS_AND_VALUES,
                         .beta = SP_BETA_STEP,
                         .rates = TRUE,
                         .decay_bias = TRUE,
                         .norm = SP_OUTPUT_GATED_ROW,
                         .silu_gate = TRUE,
                         .skip = TRUE },
  [SP_LINEAR_DELTA] = { .rule = SP_OP_DELTA,
                        .map = SILU_KEYS_AND_VALUES | SP_OP_L2,
                        .map_without = SILU_KEYS_AND_VALUES,
                        .beta = SP_BETA_SIGMOID,
                        .norm = SP_OUTPUT_HEAD,
                        .silu_gate = TRUE },
  [SP_LINEAR_GATED_DELTA] = { .rule = SP_OP_DELTA | SP_OP_HEAD_DECAY,
                              .map = SILU_KEYS_AND_VALUES | SP_OP_L2,
                              .map_without = SILU_KEYS_AND_VALUES,
                              .beta = SP_BETA_SIGMOID,
                              .rates = TRUE,
                              .decay_bias = TRUE,
                              .norm = SP_OUTPUT_HEAD,
                              .silu_gate = TRUE },
  [SP_LINEAR_KDA] = { .rule = SP_OP_DELTA | SP_OP_FEATURE_DECAY,
                      .map = SILU_KEYS_AND_VALUES | SP_OP_L2,
                      .map_without = SILU_KEYS_AND_VALUES,
                      .beta = SP_BETA_SIGMOID,
                      .rates = TRUE,
                      .decay_bias = TRUE,
                      .low_rank = TRUE,
                      .low_rank_gate = TRUE,
                      .norm = SP_OUTPUT_HEAD },
  [SP_LINEAR_RWKV6] = { .rule = SP_OP_FEATURE_DECAY,
                        .decay_bias = TRUE,
                        .low_rank = TRUE,
                        .norm = SP_OUTPUT_HEAD,
                        .silu_gate = TRUE },
  [SP_LINEAR_RWKV7] = { .rule = SP_OP_DELTA | SP_OP_FEATURE_DECAY,
                        .map = SP_OP_L2,
                        .beta = SP_BETA_SIGMOID,
                        .decay_bias = TRUE,
                        .low_rank = TRUE,
                        .low_rank_gate = TRUE,
                        .norm = SP_OUTPUT_HEAD },
};

const SpFamily *
sp_family_get (SpLinearFamily family)
{
  g_return_val_if_fail (family < SP_N_LINEAR_FAMILIES, NULL);
  return &families[family];
}

gint64
sp_family_decays (const SpFamily *family, const SpLinearShape *shape)
{
  if (family->rule & SP_OP_FEATURE_DECAY)
    return (gint64) shape->heads * shape->key_size;
  return family->rule & SP_OP_HEAD_DECAY ? shape->heads : 0;
}
