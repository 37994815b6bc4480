/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: which function of kernels/device.h plays an op, with which operands. One row of the table for each kind. */
#include <gio/gio.h>

#include "calibrate/player-private.h"

#define OP (&command->op)
#define M ((int64_t) OP->m)
#define N ((int64_t) OP->n)
#define K ((int64_t) OP->k)
#define HEADS ((int64_t) OP->heads)
#define KV_HEADS ((int64_t) OP->kv_heads)
#define FLAG(name) ((OP->flags & SP_OP_##name) != 0)
#define IN(i) sp_player_tensor (player, &command->in[i])
#define OUT(i) sp_player_tensor (player, &command->out[i])
#define REALS_IN(i) ((const float *) sp_player_data (player, &command->in[i]))
#define REALS_OUT(i) ((float *) sp_player_data (player, &command->out[i]))
#define WHOLE(kind) ((const int32_t *) sp_player_table (player, command, SP_TABLE_##kind))
#define NUMBERS (&player->program->numbers)

#define PLAY(name)                                                                                                     \
  static gboolean name (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
#define LAUNCH(call) return sp_check_cuda (call, sp_op_name (OP->kind), error)

void *
sp_player_data (const SpPlayer *player, const SpOperand *operand)
{
  if (operand->storage < 0)
    return NULL;
  const SpStored *stored = &g_array_index (player->recording->storages, SpStored, operand->storage);
  return (stored->host ? player->host_arena : player->arena) + stored->offset + operand->offset;
}

SpDevTensor
sp_player_tensor (const SpPlayer *player, const SpOperand *operand)
{
  return (SpDevTensor){ sp_player_data (player, operand), (SpDevDtype) operand->dtype };
}

const void *
sp_player_table (const SpPlayer *player, const SpCommand *command, SpRowTableKind kind)
{
  return command->tables[kind] < 0 ? NULL : player->tables + player->table_at[command->tables[kind]];
}

SpDevShape
sp_player_shape (const SpPlayer *player, const SpCommand *command)
{
  SpDevShape shape = { .m = M, .n = N, .k = K, .batch = OP->batch, .heads = HEADS, .kv_heads = KV_HEADS };

  shape.v = OP->value_size > 0 ? OP->value_size : OP->k;
  shape.window = OP->window;
  if (player != NULL) {
    shape.first = WHOLE (FIRST);
    shape.end = WHOLE (END);
  }
  return shape;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

PLAY (gemm)
{
  SpGemmShape shape = { .m = M, .n = N, .k = K, .batch = MAX (OP->batch, 1), .a_stride = HEADS, .c_stride = KV_HEADS };

  if (command->in[0].dtype != SP_DTYPE_BF16 || command->in[1].dtype != SP_DTYPE_BF16 || FLAG (FP8)) {
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "a product of %s and %s cannot be executed yet",
                 sp_dtype_name (command->in[0].dtype), FLAG (FP8) ? "fp8" : sp_dtype_name (command->in[1].dtype));
    return FALSE;
  }
  shape.flags = (FLAG (TRANS_A) ? SP_GEMM_TRANS_A : 0) | (FLAG (TRANS_B) ? SP_GEMM_TRANS_B : 0) |
                (FLAG (ACCUMULATE) ? SP_GEMM_ADD : 0) | (command->out[0].dtype == SP_DTYPE_FP32 ? SP_GEMM_FP32 : 0) |
                (command->in[2].storage >= 0 ? SP_GEMM_BIAS : 0);
  return sp_gemms_run (player->gemms, &shape, sp_player_data (player, &command->in[0]),
                       sp_player_data (player, &command->in[1]), sp_player_data (player, &command->in[2]),
                       sp_player_data (player, &command->out[0]), player->workspace, stream, error);
}

/* --- norms, projections' other side ------------------------------------------------------------------------------- */

PLAY (norm)
{
  LAUNCH (sp_dev_norm (FLAG (LAYERNORM), M, N, K, IN (0), IN (1), IN (2), REALS_IN (3), NUMBERS->norm_epsilon, OUT (0),
                       REALS_OUT (1), stream));
}

PLAY (norm_stat)
{
  LAUNCH (sp_dev_norm_stat (M, N, IN (0), REALS_OUT (0), stream));
}

PLAY (norm_bwd)
{
  LAUNCH (sp_dev_norm_bwd (FLAG (LAYERNORM), M, N, K, IN (0), IN (1), REALS_IN (2), IN (3), IN (4), REALS_IN (5),
                           OUT (0), OUT (1), OUT (2), player->scratch, stream));
}

PLAY (norm_stat_bwd)
{
  LAUNCH (sp_dev_norm_stat_bwd (M, N, IN (0), IN (1), IN (2), REALS_OUT (0), stream));
}

static SpDevHeads
heads_of (const SpPlayer *player, const SpCommand *command, SpDevTensor q_gain, SpDevTensor key_gain)
{
  return (SpDevHeads){ .rotated = FLAG (NO_ROTATE) ? 0 : (N > 0 ? N : K),
                       .gate = FLAG (GATED) ? HEADS * K : 0,
                       .theta = player != NULL ? NUMBERS->rope_theta : 1,
                       .epsilon = player != NULL ? NUMBERS->norm_epsilon : 0,
                       .q_gain = q_gain,
                       .key_gain = key_gain };
}

PLAY (rope)
{
  SpDevHeads how = heads_of (player, command, IN (1), IN (2));
  LAUNCH (sp_dev_rope (sp_player_shape (player, command), &how, IN (0), WHOLE (POSITIONS), OUT (0), OUT (1), OUT (2),
                       REALS_OUT (3), stream));
}

PLAY (rope_bwd)
{
  SpDevHeads how = heads_of (player, command, IN (6), IN (7));
  LAUNCH (sp_dev_rope_bwd (sp_player_shape (player, command), &how, IN (0), IN (1), IN (2), IN (4), REALS_IN (5),
                           IN (3), WHOLE (POSITIONS), OUT (0), OUT (1), OUT (2), player->scratch, stream));
}

PLAY (split)
{
  LAUNCH (sp_dev_split (M, N, K, IN (0), OUT (0), OUT (1), stream));
}

PLAY (join)
{
  LAUNCH (sp_dev_join (M, N, K, IN (0), IN (1), OUT (0), stream));
}

PLAY (feature)
{
  LAUNCH (sp_dev_feature (M, HEADS * K, IN (0), OUT (0), OUT (1), OUT (2), stream));
}

PLAY (feature_bwd)
{
  LAUNCH (sp_dev_feature_bwd (M, HEADS * K, IN (0), IN (1), IN (2), IN (3), IN (4), OUT (0), stream));
}

PLAY (pack)
{
  LAUNCH (sp_dev_pack (M, N, K, HEADS, IN (0), OUT (0), stream));
}

PLAY (unpack)
{
  LAUNCH (sp_dev_unpack (M, N, K, HEADS, IN (0), OUT (0), stream));
}

PLAY (part)
{
  LAUNCH (sp_dev_part (M, N, command->size, command->place, IN (0), OUT (0), stream));
}

/* --- attention beside its core, which is player-attention.c's ----------------------------------------------------- */

static int64_t
rows_of (const SpCommand *command)
{
  return M * OP->batch * HEADS;
}

PLAY (attention_merge)
{
  LAUNCH (sp_dev_attention_merge (rows_of (command), K, FLAG (ACCUMULATE), IN (0), REALS_IN (1), OUT (0), REALS_OUT (1),
                                  stream));
}

PLAY (attention_delta)
{
  LAUNCH (sp_dev_attention_delta (rows_of (command), K, IN (0), IN (1), REALS_OUT (0), stream));
}

#define SLOPES ((const float *) sp_player_table (player, command, SP_TABLE_SLOPES))

PLAY (linear_local)
{
  LAUNCH (sp_dev_linear_local (sp_player_shape (player, command), SLOPES, IN (0), IN (1), IN (2), OUT (0),
                               REALS_OUT (1), player->scratch, stream));
}

PLAY (linear_inter)
{
  LAUNCH (sp_dev_linear_inter (sp_player_shape (player, command), SLOPES, IN (0), REALS_IN (1), OUT (0), stream));
}

PLAY (linear_local_bwd)
{
  LAUNCH (sp_dev_linear_local_bwd (sp_player_shape (player, command), SLOPES, IN (0), IN (1), IN (2), IN (3), OUT (0),
                                   OUT (1), OUT (2), REALS_OUT (3), player->scratch, stream));
}

PLAY (linear_inter_bwd)
{
  LAUNCH (sp_dev_linear_inter_bwd (sp_player_shape (player, command), SLOPES, IN (0), IN (1), IN (2), REALS_IN (3),
                                   REALS_IN (4), OUT (0), OUT (1), OUT (2), stream));
}

PLAY (state_update)
{
  LAUNCH (sp_dev_state_update (sp_player_shape (player, command), SLOPES, REALS_IN (0), REALS_IN (1), REALS_OUT (0),
                               stream));
}

PLAY (state_prefix)
{
  LAUNCH (sp_dev_state_prefix (sp_player_shape (player, command), SLOPES, command->size, command->place, FLAG (REVERSE),
                               REALS_IN (0), REALS_OUT (0), stream));
}

/* --- elementwise -------------------------------------------------------------------------------------------------- */

static SpDevGate
gate_of (const SpCommand *command)
{
  return FLAG (LINEAR_GATE) ? SP_DEV_IDENTITY : FLAG (GELU_GATE) ? SP_DEV_GELU : SP_DEV_SILU;
}

PLAY (glu)
{
  LAUNCH (sp_dev_glu (gate_of (command), M, N, IN (0), OUT (0), stream));
}

PLAY (glu_bwd)
{
  LAUNCH (sp_dev_glu_bwd (gate_of (command), M, N, IN (0), IN (1), OUT (0), stream));
}

PLAY (gelu)
{
  if (FLAG (RELU))
    LAUNCH (sp_dev_relu (FLAG (SQUARE), M * N, IN (0), OUT (0), stream));
  LAUNCH (sp_dev_gelu (M * N, IN (0), OUT (0), stream));
}

PLAY (gelu_bwd)
{
  if (FLAG (RELU))
    LAUNCH (sp_dev_relu_bwd (FLAG (SQUARE), M * N, IN (0), IN (1), OUT (0), stream));
  LAUNCH (sp_dev_gelu_bwd (M * N, IN (0), IN (1), OUT (0), stream));
}

PLAY (gate)
{
  LAUNCH (sp_dev_gate (FLAG (SILU), M, N, K, IN (0), IN (1), OUT (0), stream));
}

PLAY (gate_bwd)
{
  LAUNCH (sp_dev_gate_bwd (FLAG (SILU), M, N, K, IN (0), IN (1), IN (2), OUT (0), OUT (1), stream));
}

PLAY (row_gate)
{
  LAUNCH (sp_dev_row_gate (M, N, IN (0), IN (1), OUT (0), stream));
}

PLAY (row_gate_bwd)
{
  LAUNCH (sp_dev_row_gate_bwd (M, N, IN (0), IN (1), IN (2), OUT (0), OUT (1), stream));
}

PLAY (add)
{
  LAUNCH (sp_dev_add (M, N, IN (0), IN (1), IN (2), IN (3), OUT (0), stream));
}

PLAY (accumulate)
{
  LAUNCH (sp_dev_accumulate (M * N, IN (0), OUT (0), stream));
}

PLAY (copy)
{
  SpDevTensor from = IN (0);

  if (command->in[0].elements == command->size * M * N)
    from.data = (char *) from.data + command->place * M * N * (gint64) sp_dtype_bytes (command->in[0].dtype);
  LAUNCH (sp_dev_copy (M * N, from, OUT (0), stream));
}

PLAY (column_sum)
{
  LAUNCH (sp_dev_column_sum (MAX (OP->batch, 1), M, N, IN (0), OUT (0), player->scratch, stream));
}

PLAY (zero)
{
  LAUNCH (cudaMemsetAsync (sp_player_data (player, &command->out[0]), 0,
                           (gsize) command->out[0].elements * sp_dtype_bytes (command->out[0].dtype), stream));
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

PLAY (embed)
{
  LAUNCH (sp_dev_embed (M, N, K, WHOLE (IDS), command->vocabulary_first, IN (0), OUT (0), stream));
}

PLAY (embed_bwd)
{
  LAUNCH (sp_dev_embed_bwd (M, N, K, WHOLE (IDS), command->vocabulary_first, IN (0), OUT (0), player->scratch, stream));
}

PLAY (position)
{
  LAUNCH (sp_dev_position (M, N, K, WHOLE (IDS), IN (0), IN (1), OUT (0), stream));
}

PLAY (position_bwd)
{
  LAUNCH (sp_dev_position_bwd (M, N, K, WHOLE (IDS), IN (0), OUT (0), player->scratch, stream));
}

/* Of the vocabulary's part here those that are no padding. */
static int64_t
columns_of (const SpPlayer *player, const SpCommand *command)
{
  return CLAMP (NUMBERS->vocabulary - command->vocabulary_first, 0, N);
}

PLAY (loss_max)
{
  LAUNCH (sp_dev_loss_max (M, N, columns_of (player, command), IN (0), REALS_OUT (0), stream));
}

PLAY (loss_sum)
{
  LAUNCH (sp_dev_loss_sum (M, N, columns_of (player, command), IN (0), REALS_IN (1), WHOLE (IDS),
                           command->vocabulary_first, REALS_OUT (0), stream));
}

PLAY (loss)
{
  LAUNCH (sp_dev_loss (M, N, columns_of (player, command), IN (0), REALS_IN (1), REALS_IN (2), WHOLE (IDS),
                       command->vocabulary_first, (const float *) sp_player_table (player, command, SP_TABLE_WEIGHTS),
                       command->counts_loss ? player->loss : NULL, OUT (0), stream));
}

/* --- optimizer ---------------------------------------------------------------------------------------------------- */

/* Every step is the first: a step's time does not depend on its number, and two layouts can be held against each
 * other. */
PLAY (adam)
{
  LAUNCH (sp_dev_adam (N, IN (0), 1, NUMBERS->learning_rate, NUMBERS->adam_beta1, NUMBERS->adam_beta2,
                       NUMBERS->adam_epsilon, OUT (0), OUT (1), OUT (2), OUT (3), stream));
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static gint64
linear_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_linear_scratch_bytes (sp_player_shape (NULL, command));
}

static gint64
linear_bwd_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_linear_bwd_scratch_bytes (sp_player_shape (NULL, command));
}

static gint64
norm_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_norm_bwd_scratch_bytes (M, N);
}

static gint64
rope_scratch (const SpCommand *command)
{
  SpDevTensor there = { (void *) command, SP_DEV_BF16 }, absent = { NULL, SP_DEV_BF16 };
  SpDevHeads how = heads_of (NULL, command, command->in[6].storage >= 0 ? there : absent,
                             command->in[7].storage >= 0 ? there : absent);
  return (gint64) sp_dev_rope_bwd_scratch_bytes (sp_player_shape (NULL, command), &how);
}

static gint64
column_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_column_sum_scratch_bytes (MAX (OP->batch, 1), M, N);
}

static gint64
embed_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_embed_bwd_scratch_bytes (M, N);
}

static const struct {
  SpPlay play;
  gint64 (*scratch) (const SpCommand *command);
} kernels[SP_N_OPS] = {
  [SP_OP_GEMM] = { gemm },
  [SP_OP_NORM] = { norm },
  [SP_OP_NORM_STAT] = { norm_stat },
  [SP_OP_NORM_BWD] = { norm_bwd, norm_scratch },
  [SP_OP_NORM_STAT_BWD] = { norm_stat_bwd },
  [SP_OP_ROPE] = { rope },
  [SP_OP_ROPE_BWD] = { rope_bwd, rope_scratch },
  [SP_OP_SPLIT] = { split },
  [SP_OP_JOIN] = { join },
  [SP_OP_FEATURE] = { feature },
  [SP_OP_FEATURE_BWD] = { feature_bwd },
  [SP_OP_PACK] = { pack },
  [SP_OP_UNPACK] = { unpack },
  [SP_OP_PART] = { part },
  [SP_OP_ATTENTION] = { sp_player_attention, sp_player_attention_scratch },
  [SP_OP_ATTENTION_MERGE] = { attention_merge },
  [SP_OP_ATTENTION_DELTA] = { attention_delta },
  [SP_OP_ATTENTION_BWD] = { sp_player_attention_bwd, sp_player_attention_scratch },
  [SP_OP_LINEAR_LOCAL] = { linear_local, linear_scratch },
  [SP_OP_LINEAR_INTER] = { linear_inter },
  [SP_OP_LINEAR_LOCAL_BWD] = { linear_local_bwd, linear_bwd_scratch },
  [SP_OP_LINEAR_INTER_BWD] = { linear_inter_bwd },
  [SP_OP_STATE_UPDATE] = { state_update },
  [SP_OP_STATE_PREFIX] = { state_prefix },
  [SP_OP_GLU] = { glu },
  [SP_OP_GLU_BWD] = { glu_bwd },
  [SP_OP_GELU] = { gelu },
  [SP_OP_GELU_BWD] = { gelu_bwd },
  [SP_OP_GATE] = { gate },
  [SP_OP_GATE_BWD] = { gate_bwd },
  [SP_OP_ROW_GATE] = { row_gate },
  [SP_OP_ROW_GATE_BWD] = { row_gate_bwd },
  [SP_OP_ADD] = { add },
  [SP_OP_ACCUMULATE_INTO] = { accumulate },
  [SP_OP_COPY] = { copy },
  [SP_OP_COLUMN_SUM] = { column_sum, column_scratch },
  [SP_OP_EMBED] = { embed },
  [SP_OP_EMBED_BWD] = { embed_bwd, embed_scratch },
  [SP_OP_POSITION] = { position },
  [SP_OP_POSITION_BWD] = { position_bwd, embed_scratch },
  [SP_OP_LOSS_MAX] = { loss_max },
  [SP_OP_LOSS_SUM] = { loss_sum },
  [SP_OP_LOSS] = { loss },
  [SP_OP_ADAM] = { adam },
  [SP_OP_ZERO] = { zero },
};

SpPlay
sp_player_kernel (const SpCommand *command)
{
  gboolean recurs = (OP->flags & (SP_OP_DELTA | SP_OP_HEAD_DECAY | SP_OP_FEATURE_DECAY | SP_OP_SCAN)) != 0;
  gboolean state = OP->kind == SP_OP_STATE_UPDATE || OP->kind == SP_OP_STATE_PREFIX;

  if (FLAG (DELTA))
    return sp_player_delta (command);
  return (state && recurs) || (OP->flags & SP_OP_ON_HOST) ? NULL : kernels[OP->kind].play;
}

gint64
sp_player_kernel_scratch (const SpCommand *command)
{
  if (FLAG (DELTA))
    return sp_player_delta_scratch (command);
  return kernels[OP->kind].scratch != NULL ? kernels[OP->kind].scratch (command) : 0;
}
