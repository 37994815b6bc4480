/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention whose decay follows the data, and what stands around a recurrence: which function of kernels/device.h
 * plays an op, with which operands. */
#include "calibrate/player-private.h"

#define OP (&command->op)
#define M ((int64_t) OP->m)
#define N ((int64_t) OP->n)
#define HEADS ((int64_t) OP->heads)
#define IN(i) sp_player_tensor (player, &command->in[i])
#define OUT(i) sp_player_tensor (player, &command->out[i])
#define REALS_IN(i) ((const float *) sp_player_data (player, &command->in[i]))
#define REALS_OUT(i) ((float *) sp_player_data (player, &command->out[i]))
#define FLAG(name) ((OP->flags & SP_OP_##name) != 0)
#define POSITIONS ((const int32_t *) sp_player_table (player, command, SP_TABLE_POSITIONS))
#define THETA (player->program->numbers.rope_theta)
#define LAUNCH(call) return sp_check_cuda (call, sp_op_name (OP->kind), error)

#define PLAY(name)                                                                                                     \
  static gboolean name (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)

/* --- the recurrence ----------------------------------------------------------------------------------------------- */

static SpDevRecurrence
recurrence (const SpPlayer *player, const SpCommand *command)
{
  return (SpDevRecurrence){ sp_player_shape (player, command),
                            FLAG (FEATURE_DECAY) ? SP_DEV_DECAY_FEATURE : SP_DEV_DECAY_HEAD };
}

PLAY (own)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_recurrent_own (&r, IN (0), IN (1), REALS_IN (2), IN (3), REALS_OUT (0), REALS_OUT (1), player->scratch,
                                stream));
}

PLAY (own_bwd)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_recurrent_own_bwd (&r, IN (0), REALS_IN (2), IN (4), REALS_OUT (0), REALS_OUT (1), player->scratch,
                                    stream));
}

PLAY (recurrent)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_recurrent (&r, IN (0), IN (1), IN (2), REALS_IN (3), IN (4), REALS_IN (5), OUT (0), NULL,
                            player->scratch, stream));
}

PLAY (recurrent_bwd)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_recurrent_bwd (&r, IN (0), IN (1), IN (2), REALS_IN (3), IN (4), IN (5), REALS_IN (6), REALS_IN (7),
                                OUT (0), OUT (1), OUT (2), REALS_OUT (3), OUT (4), NULL, player->scratch, stream));
}

PLAY (update)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_transfer_update (&r, REALS_IN (2), REALS_IN (0), REALS_IN (1), REALS_OUT (0), stream));
}

PLAY (prefix)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (
      sp_dev_transfer_prefix (&r, command->size, command->place, FLAG (REVERSE), REALS_IN (0), REALS_OUT (0), stream));
}

static gint64
scratch (const SpCommand *command)
{
  SpDevRecurrence r = recurrence (NULL, command);
  return (gint64) sp_dev_recurrent_scratch_bytes (&r);
}

static gint64
bwd_scratch (const SpCommand *command)
{
  SpDevRecurrence r = recurrence (NULL, command);
  return (gint64) sp_dev_recurrent_bwd_scratch_bytes (&r);
}

/* A decay a feature has no kernel with beta, or of keys that heads share; a scan has none. */
static gboolean
is_known (const SpCommand *command)
{
  gboolean has_beta = (OP->kind == SP_OP_RECURRENT || OP->kind == SP_OP_RECURRENT_BWD) && command->in[4].storage >= 0;

  if (OP->kind == SP_OP_STATE_OWN)
    has_beta = command->in[3].storage >= 0;
  return FLAG (HEAD_DECAY) + FLAG (FEATURE_DECAY) == 1 && !FLAG (DELTA) && !FLAG (SCAN) && OP->k <= 256 &&
         OP->n <= 256 && OP->k % 8 == 0 && OP->n % 8 == 0 &&
         (FLAG (HEAD_DECAY) || (OP->kv_heads == OP->heads && !has_beta));
}

/* --- around it ---------------------------------------------------------------------------------------------------- */

PLAY (conv)
{
  LAUNCH (sp_dev_conv (M, OP->batch, N, OP->window, IN (0), IN (1), IN (2), IN (3), OUT (0), stream));
}

PLAY (conv_bwd)
{
  LAUNCH (sp_dev_conv_bwd (M, OP->batch, N, OP->window, IN (0), IN (1), IN (2), IN (3), IN (4), OUT (0), OUT (1),
                           OUT (2), OUT (3), player->scratch, stream));
}

static gint64
conv_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_conv_bwd_scratch_bytes (M, OP->batch, N, OP->window);
}

static unsigned
map_of (const SpCommand *command)
{
  return (FLAG (SILU) ? SP_DEV_MAP_SILU : 0) | (FLAG (SILU_VALUES) ? SP_DEV_MAP_SILU_VALUES : 0) |
         (FLAG (L2) ? SP_DEV_MAP_L2 : 0) | (FLAG (ROTATE) ? SP_DEV_MAP_ROTATE : 0);
}

PLAY (key_map)
{
  LAUNCH (sp_dev_key_map (sp_player_shape (player, command), map_of (command), IN (0), POSITIONS, THETA, OUT (0),
                          OUT (1), OUT (2), stream));
}

PLAY (key_map_bwd)
{
  LAUNCH (sp_dev_key_map_bwd (sp_player_shape (player, command), map_of (command), IN (0), IN (1), IN (2), IN (3),
                              POSITIONS, THETA, OUT (0), stream));
}

PLAY (sigmoid)
{
  LAUNCH (sp_dev_sigmoid_rows (M * N, IN (0), OUT (0), stream));
}

PLAY (sigmoid_bwd)
{
  LAUNCH (sp_dev_sigmoid_rows_bwd (M * N, IN (0), IN (1), OUT (0), stream));
}

PLAY (decay)
{
  LAUNCH (sp_dev_decay (M, N, HEADS, IN (0), IN (1), IN (2), OUT (0), OUT (1), stream));
}

PLAY (decay_bwd)
{
  LAUNCH (sp_dev_decay_bwd (M, N, HEADS, IN (0), IN (1), IN (2), IN (3), IN (4), OUT (0), OUT (1), OUT (2),
                            player->scratch, stream));
}

static gint64
decay_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_decay_bwd_scratch_bytes (M, N);
}

PLAY (skip)
{
  LAUNCH (sp_dev_skip (M, HEADS, N, IN (0), IN (1), IN (2), OUT (0), stream));
}

PLAY (skip_bwd)
{
  LAUNCH (sp_dev_skip_bwd (M, HEADS, N, IN (0), IN (1), IN (2), IN (3), OUT (0), OUT (1), player->scratch, stream));
}

static gint64
skip_scratch (const SpCommand *command)
{
  return (gint64) sp_dev_skip_bwd_scratch_bytes (M, HEADS);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct {
  SpOpKind kind;
  SpPlay play;
  gint64 (*scratch) (const SpCommand *command);
  gboolean recurs;
} kernels[] = {
  { SP_OP_STATE_UPDATE, update, NULL, TRUE },
  { SP_OP_STATE_PREFIX, prefix, NULL, TRUE },
  { SP_OP_STATE_OWN, own, scratch, TRUE },
  { SP_OP_RECURRENT, recurrent, scratch, TRUE },
  { SP_OP_STATE_OWN_BWD, own_bwd, scratch, TRUE },
  { SP_OP_RECURRENT_BWD, recurrent_bwd, bwd_scratch, TRUE },
  { SP_OP_CONV, conv, NULL, FALSE },
  { SP_OP_CONV_BWD, conv_bwd, conv_scratch, FALSE },
  { SP_OP_KEY_MAP, key_map, NULL, FALSE },
  { SP_OP_KEY_MAP_BWD, key_map_bwd, NULL, FALSE },
  { SP_OP_SIGMOID, sigmoid, NULL, FALSE },
  { SP_OP_SIGMOID_BWD, sigmoid_bwd, NULL, FALSE },
  { SP_OP_DECAY, decay, NULL, FALSE },
  { SP_OP_DECAY_BWD, decay_bwd, decay_scratch, FALSE },
  { SP_OP_SKIP, skip, NULL, FALSE },
  { SP_OP_SKIP_BWD, skip_bwd, skip_scratch, FALSE },
};

SpPlay
sp_player_recurrent (const SpCommand *command)
{
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    if (kernels[i].kind == OP->kind)
      return !kernels[i].recurs || is_known (command) ? kernels[i].play : NULL;
  return NULL;
}

gint64
sp_player_recurrent_scratch (const SpCommand *command)
{
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    if (kernels[i].kind == OP->kind && kernels[i].scratch != NULL)
      return kernels[i].scratch (command);
  return 0;
}
