/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/bench-rows.h"

#include <gio/gio.h>

#include "calibrate/measured.h"
#include "models/strategies/attention.h"
#include "sim/op-cost.h"
#include "sim/op-form.h"

/* --- operands ----------------------------------------------------------------------------------------------------- */

#define EXTENT(name, product)                                                                                          \
  static gint64 name (const SpOp *op)                                                                                  \
  {                                                                                                                    \
    gint64 m G_GNUC_UNUSED = op->m, n G_GNUC_UNUSED = op->n, k G_GNUC_UNUSED = op->k;                                  \
    gint64 heads G_GNUC_UNUSED = op->heads, kv_heads G_GNUC_UNUSED = op->kv_heads;                                     \
    gint64 batch G_GNUC_UNUSED = MAX (op->batch, 1);                                                                   \
                                                                                                                       \
    return product;                                                                                                    \
  }

EXTENT (rows, m)
EXTENT (two_rows, 2 * m)
EXTENT (columns, n)
EXTENT (features, k)
EXTENT (row_columns, m *n)
EXTENT (gate_up, m * 2 * n)
EXTENT (row_features, m *k)
EXTENT (column_features, n *k)
EXTENT (split_row, m *(n + k))
EXTENT (qkv, m *(heads + 2 * kv_heads) * k)
EXTENT (qkvu, m * 4 * heads * k)
EXTENT (parts, m *heads *k)
EXTENT (packed, n *m *k)
EXTENT (queries, m *batch *heads *k)
EXTENT (kv_rows, m *kv_heads *k)
EXTENT (keys, n *batch *kv_heads *k)
EXTENT (head_rows, m *batch *heads)
EXTENT (normed_heads, m *(heads + kv_heads))
EXTENT (head_values, m *batch *heads *n)
EXTENT (state, batch *heads *k *n)
EXTENT (shared_keys, m *batch *kv_heads *k)
EXTENT (transfer, batch *heads *k *k)
EXTENT (feature_gates, m *batch *heads *k)
EXTENT (head_transfer, batch *heads)
EXTENT (feature_transfer, batch *heads *k)
EXTENT (mixed, m *(2 * kv_heads * k + heads * n))
EXTENT (conv_rows, m *batch *n)
EXTENT (conv_weights, 4 * n)
EXTENT (each_head, heads)
EXTENT (value_heads, m *heads *n)

/* clang-format off */
#define B(extent) { SP_DTYPE_BF16, extent }
#define F(extent) { SP_DTYPE_FP32, extent }
#define NONE { SP_DTYPE_BF16, NULL }
#define TABLE(kind) (1u << SP_TABLE_##kind)

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Tokens by features, of a layer of LLaMA 3 8B and 70B and of TNL 1B (Qin et al., 2307.14995); heads that are normed as
 * Qwen3 8B has them. */
#define HIDDEN_SIZES { 8192, 4096 }, { 8192, 8192 }, { 32768, 2048 }
#define NORM_SIZES { 8192, 4096, 4096 }, { 8192, 8192, 8192 }, { 32768, 2048, 2048 }
#define FFN_SIZES { 8192, 14336 }, { 8192, 28672 }, { 32768, 5632 }
#define ROPE_SIZES { 8192, 0, 128, 0, 32, 8 }, { 8192, 0, 128, 0, 64, 8 }
#define LINEAR_SIZES                                                                                                   \
  { 8192, 128, 128, 1, 16, 16 }, { 32768, 128, 128, 1, 16, 16 }, { 131072, 128, 128, 1, 16, 16 },                      \
  {                                                                                                                    \
    65536, 64, 64, 1, 32, 32                                                                                           \
  }
/* The last as Qwen3-Next has them. */
#define DELTA_SIZES                                                                                                    \
  { 8192, 128, 128, 1, 16, 16 }, { 32768, 128, 128, 1, 16, 16 }, { 131072, 128, 128, 1, 16, 16 },                      \
  {                                                                                                                    \
    32768, 128, 128, 1, 32, 16                                                                                         \
  }
/* The last as Kimi Linear has them (2510.26692). */
#define KDA_SIZES                                                                                                      \
  { 8192, 128, 128, 1, 16, 16 }, { 32768, 128, 128, 1, 16, 16 }, { 131072, 128, 128, 1, 16, 16 },                      \
  {                                                                                                                    \
    32768, 128, 128, 1, 32, 32                                                                                         \
  }
/* Beside a fixed decay's, as Mamba-2 and as GLA (Yang et al., 2312.06635) have them. */
#define DECAY_SIZES { 8192, 128, 128, 1, 16, 16 }, { 32768, 128, 128, 1, 16, 16 }, { 131072, 128, 128, 1, 16, 16 }
#define HEAD_SIZES DECAY_SIZES, { 32768, 64, 128, 1, 64, 1 }
#define FEATURE_SIZES DECAY_SIZES, { 32768, 256, 128, 1, 16, 16 }
#define CONV_SIZES { 32768, 4352, 0, 1 }
#define MAP_SIZES { 32768, 64, 128, 0, 64, 1 }, { 32768, 256, 128, 0, 16, 16 }
/* Vocabularies of LLaMA 3, one of eight parts of it, and TNL's. */
#define LOSS_SIZES { 2048, 128256 }, { 8192, 16032 }, { 4096, 64000 }

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const SpBenchRow bench_rows[] = {
  { SP_OP_COPY, 0, "accumulate-copy-zero", 0, { B (row_columns) }, { B (row_columns) }, { { 65536, 8192 }, HIDDEN_SIZES } },
  { SP_OP_GEMM, SP_OP_TRANS_B, NULL, 0, { B (row_features), B (column_features) }, { B (row_columns) },
    { { 8192, 8192, 8192, 1 }, { 8192, 28672, 4096, 1 }, { 8192, 4096, 14336, 1 }, { 32768, 8192, 2048, 1 } } },
  { SP_OP_COPY, 0, "accumulate-copy-zero", 0, { B (row_columns) }, { F (row_columns) }, { HIDDEN_SIZES } },
  { SP_OP_ACCUMULATE_INTO, SP_OP_ACCUMULATE, "accumulate-copy-zero", 0, { B (row_columns) }, { F (row_columns) },
    { HIDDEN_SIZES } },
  { SP_OP_ADD, 0, "add", 0, { B (row_columns), B (row_columns) }, { B (row_columns) }, { HIDDEN_SIZES } },
  { SP_OP_COLUMN_SUM, SP_OP_ACCUMULATE, "column-sum", 0, { B (row_columns) }, { F (columns) },
    { HIDDEN_SIZES, { 8192, 28672 } } },
  { SP_OP_NORM, 0, "norm", 0, { B (row_columns), B (columns) }, { B (row_columns), F (rows) }, { NORM_SIZES } },
  { SP_OP_NORM, SP_OP_LAYERNORM, "norm", 0, { B (row_columns), B (columns), B (columns) },
    { B (row_columns), F (two_rows) }, { NORM_SIZES } },
  { SP_OP_NORM_BWD, 0, "norm-bwd", 0, { B (row_columns), B (row_columns), F (rows), B (columns), B (row_columns) },
    { B (row_columns), F (columns) }, { NORM_SIZES } },
  { SP_OP_NORM_BWD, 0, "norm-bwd", 0, { B (row_columns), B (row_columns), F (rows) }, { B (row_columns) },
    { NORM_SIZES } },
  { SP_OP_NORM_BWD, SP_OP_LAYERNORM, "norm-bwd", 0,
    { B (row_columns), B (row_columns), F (two_rows), B (columns), B (row_columns) },
    { B (row_columns), F (columns), F (columns) }, { NORM_SIZES } },
  { SP_OP_NORM_STAT, 0, "norm-stat", 0, { B (row_columns) }, { F (rows) }, { NORM_SIZES } },
  { SP_OP_NORM_STAT_BWD, 0, "norm-stat", 0, { B (row_columns), B (row_columns), B (columns) }, { F (rows) },
    { NORM_SIZES } },
  { SP_OP_ROPE, 0, "rope", TABLE (POSITIONS), { B (qkv) }, { B (queries), B (kv_rows), B (kv_rows) }, { ROPE_SIZES } },
  { SP_OP_ROPE_BWD, 0, "rope-bwd", TABLE (POSITIONS), { B (queries), B (kv_rows), B (kv_rows) }, { B (qkv) },
    { ROPE_SIZES } },
  { SP_OP_ROPE, 0, "rope", TABLE (POSITIONS), { B (qkv), B (features), B (features) },
    { B (queries), B (kv_rows), B (kv_rows), F (normed_heads) }, { { 8192, 0, 128, 0, 32, 8 } } },
  { SP_OP_ROPE_BWD, 0, "rope-bwd", TABLE (POSITIONS),
    { B (queries), B (kv_rows), B (kv_rows), NONE, B (qkv), F (normed_heads), B (features), B (features) },
    { B (qkv), F (features), F (features) }, { { 8192, 0, 128, 0, 32, 8 } } },
  { SP_OP_SPLIT, 0, "split-join", 0, { B (split_row) }, { B (row_columns), B (row_features) },
    { { 8192, 4096, 1024 }, { 8192, 512, 64 } } },
  { SP_OP_JOIN, 0, "split-join", 0, { B (row_columns), B (row_features) }, { B (split_row) },
    { { 8192, 4096, 1024 }, { 8192, 512, 64 } } },
  { SP_OP_FEATURE, 0, "feature", 0, { B (qkvu) }, { B (parts), B (parts), B (parts) },
    { { 32768, 0, 128, 0, 16, 16 }, { 131072, 0, 128, 0, 8, 8 } } },
  { SP_OP_FEATURE_BWD, 0, "feature", 0, { B (qkvu), B (parts), B (parts), B (parts), B (parts) }, { B (qkvu) },
    { { 32768, 0, 128, 0, 16, 16 }, { 131072, 0, 128, 0, 8, 8 } } },
  { SP_OP_PACK, 0, "pack-unpack-part", 0, { B (parts) }, { B (packed) },
    { { 8192, 8, 512, 0, 8 }, { 8192, 8, 128, 0, 4 }, { 32768, 4, 512, 0, 4 } } },
  { SP_OP_UNPACK, 0, "pack-unpack-part", 0, { B (packed) }, { B (parts) },
    { { 8192, 8, 512, 0, 8 }, { 8192, 8, 128, 0, 4 }, { 32768, 4, 512, 0, 4 } } },
  { SP_OP_GLU, 0, "glu", 0, { B (gate_up) }, { B (row_columns) }, { FFN_SIZES } },
  { SP_OP_GLU_BWD, 0, "glu", 0, { B (row_columns), B (gate_up) }, { B (gate_up) }, { FFN_SIZES } },
  { SP_OP_GELU, 0, "maps", 0, { B (row_columns) }, { B (row_columns) }, { FFN_SIZES } },
  { SP_OP_GELU_BWD, 0, "maps", 0, { B (row_columns), B (row_columns) }, { B (row_columns) }, { FFN_SIZES } },
  { SP_OP_GATE, 0, "gate", 0, { B (row_columns), B (row_features) }, { B (row_columns) },
    { { 32768, 2048, 8192 }, { 131072, 1024, 4096 }, { 32768, 2048, 2048 } } },
  { SP_OP_GATE_BWD, 0, "gate", 0, { B (row_columns), B (row_columns), B (row_features) },
    { B (row_columns), B (row_columns) }, { { 32768, 2048, 8192 }, { 131072, 1024, 4096 }, { 32768, 2048, 2048 } } },
  { SP_OP_ROW_GATE, 0, "row-gate", 0, { B (row_columns), B (rows) }, { B (row_columns) }, { HIDDEN_SIZES } },
  { SP_OP_ROW_GATE_BWD, 0, "row-gate", 0, { B (row_columns), B (row_columns), B (rows) }, { B (row_columns), F (rows) },
    { HIDDEN_SIZES } },
  { SP_OP_EMBED, 0, "embed", TABLE (IDS), { B (column_features) }, { B (row_features) },
    { { 8192, 128256, 4096 }, { 32768, 64000, 2048 } } },
  { SP_OP_EMBED_BWD, SP_OP_ACCUMULATE, "embed", TABLE (IDS), { B (row_features) }, { F (column_features) },
    { { 8192, 128256, 4096 }, { 32768, 64000, 2048 } } },
  { SP_OP_POSITION, 0, "position", TABLE (IDS), { B (row_features), B (column_features) }, { B (row_features) },
    { { 8192, 1024, 1280 }, { 32768, 2048, 2048 } } },
  { SP_OP_POSITION_BWD, SP_OP_ACCUMULATE, "position", TABLE (IDS), { B (row_features) }, { F (column_features) },
    { { 8192, 1024, 1280 }, { 32768, 2048, 2048 } } },
  { SP_OP_LOSS_MAX, 0, "loss-max-sum", 0, { B (row_columns) }, { F (rows) }, { LOSS_SIZES } },
  { SP_OP_LOSS_SUM, 0, "loss-max-sum", TABLE (IDS), { B (row_columns), F (rows) }, { F (two_rows) }, { LOSS_SIZES } },
  { SP_OP_LOSS, 0, "loss", TABLE (IDS) | TABLE (WEIGHTS), { B (row_columns), F (rows), F (two_rows) },
    { B (row_columns) }, { LOSS_SIZES } },
  { SP_OP_ADAM, 0, "adam", 0, { F (columns) }, { F (columns), F (columns), F (columns), B (columns) },
    { { 1, 1 << 27 }, { 1, 218112000 } } },
  { SP_OP_ADAM, 0, "adam", 0, { B (columns) }, { F (columns), F (columns), F (columns), B (columns) },
    { { 1, 1 << 27 } } },
  { SP_OP_ATTENTION, SP_OP_CAUSAL, "attention", TABLE (POSITIONS) | TABLE (KEY_POSITIONS),
    { B (queries), B (keys), B (keys) }, { B (queries), F (head_rows) },
    { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 128, 1, 32, 8 }, { 8192, 8192, 64, 1, 32, 32 },
      { 8192, 8192, 256, 1, 16, 16 } } },
  { SP_OP_ATTENTION, 0, "attention", TABLE (POSITIONS) | TABLE (KEY_POSITIONS), { B (queries), B (keys), B (keys) },
    { B (queries), F (head_rows) }, { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 128, 1, 32, 8 } } },
  { SP_OP_ATTENTION_BWD, SP_OP_CAUSAL, "attention-bwd", TABLE (POSITIONS) | TABLE (KEY_POSITIONS),
    { B (queries), B (keys), B (keys), B (queries), F (head_rows), F (head_rows) },
    { B (queries), B (keys), B (keys) },
    { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 128, 1, 32, 8 }, { 8192, 8192, 64, 1, 32, 32 },
      { 8192, 8192, 256, 1, 16, 16 } } },
  { SP_OP_ATTENTION_BWD, 0, "attention-bwd", TABLE (POSITIONS) | TABLE (KEY_POSITIONS),
    { B (queries), B (keys), B (keys), B (queries), F (head_rows), F (head_rows) },
    { B (queries), B (keys), B (keys) }, { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 128, 1, 32, 8 } } },
  { SP_OP_ATTENTION_MERGE, SP_OP_ACCUMULATE, "attention-merge", 0, { B (queries), F (head_rows) },
    { F (queries), F (head_rows) }, { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 64, 1, 32, 32 } } },
  { SP_OP_ATTENTION_DELTA, 0, "attention-delta", 0, { B (queries), B (queries) }, { F (head_rows) },
    { { 8192, 8192, 128, 1, 32, 32 }, { 8192, 8192, 64, 1, 32, 32 } } },
  { SP_OP_LINEAR_LOCAL, 0, "linear-local", TABLE (SLOPES), { B (queries), B (queries), B (head_values) },
    { B (head_values), F (state) }, { LINEAR_SIZES } },
  { SP_OP_LINEAR_INTER, SP_OP_ACCUMULATE, "linear-inter", TABLE (SLOPES), { B (queries), F (state) },
    { B (head_values) }, { LINEAR_SIZES } },
  { SP_OP_LINEAR_LOCAL_BWD, 0, "linear-local-bwd", TABLE (SLOPES),
    { B (queries), B (queries), B (head_values), B (head_values) },
    { B (queries), B (queries), B (head_values), F (state) }, { LINEAR_SIZES } },
  { SP_OP_LINEAR_INTER_BWD, SP_OP_ACCUMULATE, "linear-inter-bwd", TABLE (SLOPES),
    { B (queries), B (head_values), B (head_values), F (state), F (state) },
    { B (queries), B (queries), B (head_values) }, { LINEAR_SIZES } },
  { SP_OP_STATE_UPDATE, 0, "linear-chain", TABLE (SLOPES), { F (state), F (state) }, { F (state) },
    { { 8192, 128, 128, 1, 16, 16 }, { 8192, 128, 128, 8, 16, 16 } } },
  { SP_OP_RECURRENT, SP_OP_DELTA | SP_OP_HEAD_DECAY, "delta", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), B (head_rows) }, { B (head_values) },
    { DELTA_SIZES } },
  { SP_OP_RECURRENT_BWD, SP_OP_DELTA | SP_OP_HEAD_DECAY, "delta-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), B (head_rows), B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), B (head_rows) }, { DELTA_SIZES } },
  { SP_OP_RECURRENT, SP_OP_DELTA, "delta", 0,
    { B (shared_keys), B (shared_keys), B (head_values), NONE, B (head_rows) }, { B (head_values) },
    { { 32768, 128, 128, 1, 16, 16 }, { 65536, 64, 64, 1, 32, 32 } } },
  { SP_OP_RECURRENT_BWD, SP_OP_DELTA, "delta-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), NONE, B (head_rows), B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), NONE, B (head_rows) },
    { { 32768, 128, 128, 1, 16, 16 }, { 65536, 64, 64, 1, 32, 32 } } },
  { SP_OP_STATE_OWN, SP_OP_DELTA | SP_OP_HEAD_DECAY, "delta-own", 0,
    { B (shared_keys), B (head_values), F (head_rows), B (head_rows) }, { F (state), F (transfer) },
    { { 32768, 128, 128, 1, 16, 16 } } },
  { SP_OP_STATE_OWN_BWD, SP_OP_DELTA | SP_OP_HEAD_DECAY, "delta-own-bwd", 0,
    { B (shared_keys), B (shared_keys), F (head_rows), B (head_rows), B (head_values) }, { F (state), F (transfer) },
    { { 32768, 128, 128, 1, 16, 16 } } },
  { SP_OP_RECURRENT, SP_OP_DELTA | SP_OP_FEATURE_DECAY, "delta", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates), B (head_rows) }, { B (head_values) },
    { KDA_SIZES } },
  { SP_OP_RECURRENT_BWD, SP_OP_DELTA | SP_OP_FEATURE_DECAY, "delta-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates), B (head_rows), B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates), B (head_rows) }, { KDA_SIZES } },
  { SP_OP_STATE_OWN, SP_OP_DELTA | SP_OP_FEATURE_DECAY, "delta-own", 0,
    { B (shared_keys), B (head_values), F (feature_gates), B (head_rows) }, { F (state), F (transfer) },
    { { 32768, 128, 128, 1, 16, 16 } } },
  { SP_OP_STATE_OWN_BWD, SP_OP_DELTA | SP_OP_FEATURE_DECAY, "delta-own-bwd", 0,
    { B (shared_keys), B (shared_keys), F (feature_gates), B (head_rows), B (head_values) },
    { F (state), F (transfer) }, { { 32768, 128, 128, 1, 16, 16 } } },
  { SP_OP_STATE_UPDATE, SP_OP_DELTA | SP_OP_HEAD_DECAY, "delta-chain", 0, { F (state), F (state), F (transfer) },
    { F (state) }, { { 8192, 128, 128, 1, 16, 16 }, { 8192, 128, 128, 8, 16, 16 } } },
  { SP_OP_RECURRENT, SP_OP_HEAD_DECAY, "recurrent", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows) }, { B (head_values) }, { HEAD_SIZES } },
  { SP_OP_RECURRENT, SP_OP_HEAD_DECAY, "recurrent", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), F (head_rows) }, { B (head_values) },
    { { 32768, 64, 128, 1, 64, 1 } } },
  { SP_OP_RECURRENT_BWD, SP_OP_HEAD_DECAY, "recurrent-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), NONE, B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows) }, { HEAD_SIZES } },
  { SP_OP_RECURRENT_BWD, SP_OP_HEAD_DECAY, "recurrent-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), F (head_rows), B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), F (head_rows), F (head_rows) },
    { { 32768, 64, 128, 1, 64, 1 } } },
  { SP_OP_RECURRENT, SP_OP_FEATURE_DECAY, "recurrent", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates) }, { B (head_values) }, { FEATURE_SIZES } },
  { SP_OP_RECURRENT_BWD, SP_OP_FEATURE_DECAY, "recurrent-bwd", 0,
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates), NONE, B (head_values) },
    { B (shared_keys), B (shared_keys), B (head_values), F (feature_gates) }, { FEATURE_SIZES } },
  { SP_OP_STATE_OWN, SP_OP_HEAD_DECAY, "recurrent-own", 0, { B (shared_keys), B (head_values), F (head_rows) },
    { F (state), F (head_transfer) }, { HEAD_SIZES } },
  { SP_OP_STATE_OWN, SP_OP_FEATURE_DECAY, "recurrent-own", 0, { B (shared_keys), B (head_values), F (feature_gates) },
    { F (state), F (feature_transfer) }, { FEATURE_SIZES } },
  { SP_OP_STATE_OWN_BWD, SP_OP_HEAD_DECAY, "recurrent-own-bwd", 0,
    { B (shared_keys), NONE, F (head_rows), NONE, B (head_values) }, { F (state), F (head_transfer) }, { HEAD_SIZES } },
  { SP_OP_STATE_OWN_BWD, SP_OP_FEATURE_DECAY, "recurrent-own-bwd", 0,
    { B (shared_keys), NONE, F (feature_gates), NONE, B (head_values) }, { F (state), F (feature_transfer) },
    { FEATURE_SIZES } },
  { SP_OP_STATE_UPDATE, SP_OP_FEATURE_DECAY, "recurrent-chain", 0, { F (state), F (state), F (feature_transfer) },
    { F (state) }, { { 8192, 128, 128, 1, 16, 16 }, { 8192, 128, 128, 8, 16, 16 } } },
  { SP_OP_CONV, 0, "conv", 0, { B (conv_rows), B (conv_weights), B (columns) }, { B (conv_rows) }, { CONV_SIZES } },
  { SP_OP_CONV_BWD, 0, "conv", 0, { B (conv_rows), B (conv_rows), B (conv_weights), B (columns) },
    { B (conv_rows), F (conv_weights), F (columns) }, { CONV_SIZES } },
  { SP_OP_KEY_MAP, 0, "key-map", 0, { B (mixed) }, { B (kv_rows), B (kv_rows), B (value_heads) }, { MAP_SIZES } },
  { SP_OP_KEY_MAP_BWD, 0, "key-map", 0, { NONE, B (kv_rows), B (kv_rows), B (value_heads) }, { B (mixed) },
    { MAP_SIZES } },
  { SP_OP_KEY_MAP, SP_OP_SILU | SP_OP_SILU_VALUES | SP_OP_L2, "key-map", 0, { B (mixed) },
    { B (kv_rows), B (kv_rows), B (value_heads) }, { { 32768, 128, 128, 0, 16, 16 } } },
  { SP_OP_KEY_MAP_BWD, SP_OP_SILU | SP_OP_SILU_VALUES | SP_OP_L2, "key-map", 0,
    { B (mixed), B (kv_rows), B (kv_rows), B (value_heads) }, { B (mixed) }, { { 32768, 128, 128, 0, 16, 16 } } },
  { SP_OP_DECAY, 0, "decay", 0, { B (row_columns), B (columns) }, { F (row_columns) }, { { 32768, 2048, 0, 0, 16 } } },
  { SP_OP_DECAY, 0, "decay", 0, { B (row_columns), B (columns), B (each_head) }, { F (row_columns), F (row_columns) },
    { { 32768, 64, 0, 0, 64 } } },
  { SP_OP_DECAY_BWD, 0, "decay", 0, { B (row_columns), B (columns), NONE, F (row_columns) },
    { B (row_columns), F (columns) }, { { 32768, 2048, 0, 0, 16 } } },
  { SP_OP_DECAY_BWD, 0, "decay", 0,
    { B (row_columns), B (columns), B (each_head), F (row_columns), F (row_columns) },
    { B (row_columns), F (columns), F (each_head) }, { { 32768, 64, 0, 0, 64 } } },
  { SP_OP_SKIP, 0, "skip", 0, { B (value_heads), B (value_heads), B (each_head) }, { B (value_heads) },
    { { 32768, 64, 0, 0, 64 } } },
  { SP_OP_SKIP_BWD, 0, "skip", 0,
    { B (value_heads), B (value_heads), B (each_head), B (value_heads) }, { B (value_heads), F (each_head) },
    { { 32768, 64, 0, 0, 64 } } },
};

/* clang-format on */

const SpBenchRow *
sp_bench_rows (guint *ret_n)
{
  *ret_n = G_N_ELEMENTS (bench_rows);
  return bench_rows;
}

guint
sp_bench_n_sizes (const SpBenchRow *row)
{
  guint n = 0;

  while (n < SP_BENCH_MAX_SIZES && row->sizes[n].m > 0)
    n++;
  return n;
}

static gint64
operand_bytes (const SpBenchOperand *operand, const SpOp *op)
{
  return operand->extent != NULL ? operand->extent (op) * (gint64) sp_dtype_bytes (operand->dtype) : 0;
}

SpOp
sp_bench_op (const SpBenchRow *row, guint size)
{
  const SpBenchSize *s = &row->sizes[size];
  SpOp op = { .kind = row->kind, .flags = row->flags, .m = s->m, .n = s->n, .k = s->k };
  gint64 in[SP_MAX_IN] = { 0 }, out[SP_MAX_OUT] = { 0 };

  op.batch = s->batch;
  op.window = row->kind == SP_OP_CONV || row->kind == SP_OP_CONV_BWD ? 4 : 0;
  op.heads = s->heads;
  op.kv_heads = s->kv_heads;
  for (guint i = 0; i < SP_MAX_IN; i++) {
    in[i] = operand_bytes (&row->in[i], &op);
    op.in[i] = row->in[i].extent != NULL;
  }
  for (guint i = 0; i < SP_MAX_OUT; i++) {
    out[i] = operand_bytes (&row->out[i], &op);
    op.out[i] = row->out[i].extent != NULL;
  }
  op.bytes = sp_op_bytes (&op, in, out);
  op.flops = sp_op_flops (
      &op, sp_attention_pairs (SP_TOKENS_CONTIGUOUS, 1, 0, 0, op.m, (op.flags & SP_OP_CAUSAL) != 0, op.window));
  return op;
}

char *
sp_bench_name (const SpBenchRow *row)
{
  SpOp op = sp_bench_op (row, 0);

  return sp_op_form_name (row->kind, sp_op_form (&op));
}

char *
sp_bench_shape (const SpOp *op)
{
  const gint32 sizes[] = { op->m, op->n, op->k, op->batch, op->heads, op->kv_heads };
  GString *text = g_string_new (NULL);

  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    if (sizes[i] > 0)
      g_string_append_printf (text, "%s%d", text->len > 0 ? " x " : "", sizes[i]);
  return g_string_free (text, FALSE);
}

static const char *
first_dtype (const SpBenchOperand *operands)
{
  return operands[0].extent != NULL ? sp_dtype_name (operands[0].dtype) : "";
}

char *
sp_bench_dtypes (const SpBenchRow *row)
{
  const char *in = first_dtype (row->in), *out = first_dtype (row->out);

  return g_str_equal (in, out) ? g_strdup (in) : g_strconcat (in, " ", out, NULL);
}

/* --- which of them ------------------------------------------------------------------------------------------------ */

static gboolean
fail_name (const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS (bench_rows) + 1] = { NULL };

  for (guint i = 0; i < G_N_ELEMENTS (bench_rows); i++)
    names[i] = sp_op_name (bench_rows[i].kind);
  const char *nearest = sp_measured_nearest (name, names);
  g_set_error (error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE, "bench %s: no kernel is called so%s%s; --list has all",
               name, nearest != NULL ? ", the nearest is " : "", nearest != NULL ? nearest : "");
  return FALSE;
}

static gboolean
select_named (GPtrArray *selected, const char *name, GError **error)
{
  gboolean any = FALSE;

  for (guint i = 0; i < G_N_ELEMENTS (bench_rows); i++) {
    SpBenchRow *row = (SpBenchRow *) &bench_rows[i];
    g_autofree char *form = sp_bench_name (row);
    if (!g_str_equal (sp_op_name (row->kind), name) && !g_str_equal (form, name))
      continue;
    any = TRUE;
    if (!g_ptr_array_find (selected, row, NULL))
      g_ptr_array_add (selected, row);
  }
  return any || fail_name (name, error);
}

GPtrArray *
sp_bench_select (char **names, GError **error)
{
  g_autoptr (GPtrArray) selected = g_ptr_array_new ();

  for (guint i = 0; names[0] == NULL && i < G_N_ELEMENTS (bench_rows); i++)
    g_ptr_array_add (selected, (SpBenchRow *) &bench_rows[i]);
  for (guint i = 0; names[i] != NULL; i++)
    if (!select_named (selected, names[i], error))
      return NULL;
  return g_steal_pointer (&selected);
}

char *
sp_bench_list (const GPtrArray *rows)
{
  GString *text = g_string_new (NULL);

  g_string_append_printf (text, "%-24s %-10s %-28s %12s %12s  %s\n", "kernel", "types", "size", "MB", "GFLOP", "check");
  for (guint i = 0; i < rows->len; i++) {
    const SpBenchRow *row = rows->pdata[i];
    g_autofree char *name = sp_bench_name (row), *dtypes = sp_bench_dtypes (row);
    for (guint size = 0; size < sp_bench_n_sizes (row); size++) {
      SpOp op = sp_bench_op (row, size);
      g_autofree char *shape = sp_bench_shape (&op);
      g_string_append_printf (text, "%-24s %-10s %-28s %12.1f %12.1f  %s\n", name, dtypes, shape,
                              (double) op.bytes * 1e-6, op.flops * 1e-9, row->check != NULL ? row->check : "-");
    }
  }
  return g_string_free (text, FALSE);
}

/* --- the recording ------------------------------------------------------------------------------------------------ */

static SpOperand
add_storage (SpRecording *r, const SpBenchOperand *operand, const SpOp *op)
{
  SpStored stored = { .bytes = operand_bytes (operand, op),
                      .offset = r->arena_bytes,
                      .class = SP_CLASS_ACTIVATIONS,
                      .life = SP_LIFE_SEGMENT,
                      .dtype = operand->dtype };
  SpOperand added = { .storage = -1, .dtype = operand->dtype };

  if (operand->extent == NULL)
    return added;
  r->arena_bytes += (stored.bytes + 255) / 256 * 256;
  r->peak_bytes = r->arena_bytes;
  added.storage = (gint32) r->storages->len;
  added.elements = operand->extent (op);
  g_array_append_val (r->storages, stored);
  return added;
}

/* Positions in order, ids by chance, weights of a mean, slopes as ALiBi's. */
static gint32
add_table (SpRecording *r, SpRowTableKind kind, const SpOp *op)
{
  gint64 n = kind == SP_TABLE_SLOPES ? op->heads : kind == SP_TABLE_KEY_POSITIONS ? op->n : op->m;
  gint32 *data = g_new (gint32, n);
  float *reals = (float *) (gpointer) data;
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);

  for (gint64 i = 0; i < n; i++)
    if (kind == SP_TABLE_WEIGHTS)
      reals[i] = 1 / (float) n;
    else if (kind == SP_TABLE_SLOPES)
      reals[i] = 1 / (float) (2 << (8 * i / n));
    else
      data[i] = kind == SP_TABLE_IDS ? g_rand_int_range (rand, 0, op->n) : (gint32) i;
  return sp_recording_add_table (r, data, n);
}

SpRecording *
sp_bench_record (const SpBenchRow *row, guint size, guint sets, guint count)
{
  SpRecording *r = sp_recording_new (0);
  SpCommand command = { .op = sp_bench_op (row, size), .queue = SP_STREAM_COMPUTE, .size = 1, .to = -1, .from = -1 };

  for (guint i = 0; i < SP_N_TABLES; i++)
    command.tables[i] = row->tables >> i & 1 ? add_table (r, (SpRowTableKind) i, &command.op) : -1;
  for (guint i = 0; i < count; i++) {
    if (i >= sets) {
      command = g_array_index (r->commands, SpCommand, i - sets);
    } else {
      for (guint j = 0; j < SP_MAX_IN; j++)
        command.in[j] = add_storage (r, &row->in[j], &command.op);
      for (guint j = 0; j < SP_MAX_OUT; j++)
        command.out[j] = add_storage (r, &row->out[j], &command.op);
    }
    g_array_append_val (r->commands, command);
  }
  return r;
}

void
sp_bench_numbers (const SpOp *op, SpNumbers *ret)
{
  *ret = (SpNumbers){ .norm_epsilon = 1e-5,
                      .rope_theta = 500000,
                      .learning_rate = 1e-4,
                      .adam_beta1 = 0.9,
                      .adam_beta2 = 0.95,
                      .adam_epsilon = 1e-8,
                      .vocabulary = op->n };
}
