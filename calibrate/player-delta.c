/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrences with the delta rule: which function of kernels/device.h plays an op, with which operands. */
#include "calibrate/player-private.h"

#define OP (&command->op)
#define IN(i) sp_player_tensor (player, &command->in[i])
#define OUT(i) sp_player_tensor (player, &command->out[i])
#define REALS_IN(i) ((const float *) sp_player_data (player, &command->in[i]))
#define REALS_OUT(i) ((float *) sp_player_data (player, &command->out[i]))
#define FEATURE ((OP->flags & SP_OP_FEATURE_DECAY) != 0)
#define REVERSE ((OP->flags & SP_OP_REVERSE) != 0)
#define LAUNCH(call) return sp_check_cuda (call, sp_op_name (OP->kind), error)

#define PLAY(name)                                                                                                     \
  static gboolean name (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)

static SpDevRecurrence
recurrence (const SpPlayer *player, const SpCommand *command)
{
  return (SpDevRecurrence){ sp_player_shape (player, command), FEATURE ? SP_DEV_DECAY_FEATURE : SP_DEV_DECAY_HEAD };
}

PLAY (recurrent)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_delta (&r, IN (0), IN (1), IN (2), REALS_IN (3), IN (4), REALS_IN (5), OUT (0), NULL, player->scratch,
                        stream));
}

PLAY (recurrent_bwd)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_delta_bwd (&r, IN (0), IN (1), IN (2), REALS_IN (3), IN (4), IN (5), REALS_IN (6), REALS_IN (7),
                            OUT (0), OUT (1), OUT (2), REALS_OUT (3), OUT (4), NULL, player->scratch, stream));
}

PLAY (own)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_delta_own (&r, IN (0), IN (1), REALS_IN (2), IN (3), REALS_OUT (0), REALS_OUT (1), player->scratch,
                            stream));
}

PLAY (own_bwd)
{
  SpDevRecurrence r = recurrence (player, command);
  LAUNCH (sp_dev_delta_own_bwd (&r, IN (0), IN (1), REALS_IN (2), IN (3), IN (4), REALS_OUT (0), REALS_OUT (1),
                                player->scratch, stream));
}

PLAY (update)
{
  LAUNCH (sp_dev_delta_update (sp_player_shape (player, command), REVERSE, REALS_IN (2), REALS_IN (0), REALS_IN (1),
                               REALS_OUT (0), stream));
}

PLAY (prefix)
{
  LAUNCH (sp_dev_delta_prefix (sp_player_shape (player, command), command->size, command->place, REVERSE, REALS_IN (0),
                               REALS_OUT (0), stream));
}

static const struct {
  SpOpKind kind;
  SpPlay play;
  size_t (*scratch_bytes) (const SpDevRecurrence *r);
} kernels[] = {
  { SP_OP_RECURRENT, recurrent, sp_dev_delta_scratch_bytes },
  { SP_OP_RECURRENT_BWD, recurrent_bwd, sp_dev_delta_bwd_scratch_bytes },
  { SP_OP_STATE_OWN, own, sp_dev_delta_scratch_bytes },
  { SP_OP_STATE_OWN_BWD, own_bwd, sp_dev_delta_scratch_bytes },
  { SP_OP_STATE_UPDATE, update, NULL },
  { SP_OP_STATE_PREFIX, prefix, NULL },
};

/* A scan has no kernel, nor have large heads. */
static gboolean
is_known (const SpOp *op)
{
  return !(op->flags & SP_OP_SCAN) && op->k <= SP_DEV_DELTA_MOST_K && op->n <= SP_DEV_DELTA_MOST_N && op->k % 8 == 0 &&
         op->n % 8 == 0;
}

SpPlay
sp_player_delta (const SpCommand *command)
{
  for (guint i = 0; i < G_N_ELEMENTS (kernels) && is_known (OP); i++)
    if (kernels[i].kind == OP->kind)
      return kernels[i].play;
  return NULL;
}

gint64
sp_player_delta_scratch (const SpCommand *command)
{
  SpDevRecurrence r = recurrence (NULL, command);

  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    if (kernels[i].kind == OP->kind && kernels[i].scratch_bytes != NULL)
      return (gint64) kernels[i].scratch_bytes (&r);
  return 0;
}
