/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax attention's core: by our kernels, or by cuDNN's where its mask is one that cuDNN knows. */
#include "calibrate/mask.h"
#include "calibrate/player-private.h"

#define IN(i) sp_player_tensor (player, &command->in[i])
#define OUT(i) sp_player_tensor (player, &command->out[i])
#define REALS(operand) ((float *) sp_player_data (player, &command->operand))
#define CAUSAL ((command->op.flags & SP_OP_CAUSAL) != 0)
#define LAUNCH(call) return sp_check_cuda (call, sp_op_name (command->op.kind), error)
#define POSITIONS(kind) ((const int32_t *) sp_player_table (player, command, SP_TABLE_##kind))

const char *const sp_attention_names[] = { "quickest", SP_OWN_LIBRARY, "cudnn", NULL };

static gboolean
is_attention (const SpCommand *command)
{
  return command->op.kind == SP_OP_ATTENTION || command->op.kind == SP_OP_ATTENTION_BWD;
}

static const SpCudnnPlan *
plan_of (const SpPlayer *player, const SpCommand *command)
{
  return player->plans != NULL ? player->plans[command - COMMAND (player, 0)] : NULL;
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

static const gint32 *
positions_of (const SpPlayer *player, const SpCommand *command, SpRowTableKind kind)
{
  return g_array_index (player->recording->tables, SpRowTable, command->tables[kind]).data;
}

/* FALSE: a mask or a tensor that cuDNN does not know. */
static gboolean
cudnn_shape (const SpPlayer *player, const SpCommand *command, SpCudnnShape *ret)
{
  const SpOp *op = &command->op;
  SpMaskCut cut = { .seen = op->n };

  if (op->window > 0 || command->tables[SP_TABLE_FIRST] >= 0 || command->in[0].dtype != SP_DTYPE_BF16 ||
      command->out[0].dtype != SP_DTYPE_BF16)
    return FALSE;
  if (CAUSAL && !sp_mask_cut (op->m, positions_of (player, command, SP_TABLE_POSITIONS), op->n,
                              positions_of (player, command, SP_TABLE_KEY_POSITIONS), &cut))
    return FALSE;
  *ret = (SpCudnnShape){ op->m,
                         op->n,
                         op->batch,
                         op->heads,
                         op->kv_heads,
                         op->k,
                         .v = op->value_size > 0 ? op->value_size : op->k,
                         .hidden = cut.hidden,
                         .seen = cut.seen,
                         .flags = (cut.causal ? SP_CUDNN_CAUSAL : 0) | (cut.last ? SP_CUDNN_LAST : 0) |
                                  (op->kind == SP_OP_ATTENTION_BWD ? SP_CUDNN_BACKWARD : 0) };
  return TRUE;
}

gboolean
sp_player_plan_attention (SpPlayer *player, SpAttention attention, GError **error)
{
  guint n = player->recording->commands->len;
  gboolean any = FALSE;

  for (guint i = 0; i < n; i++)
    any = any || is_attention (COMMAND (player, i));
  if (!any || attention == SP_ATTENTION_OWN)
    return TRUE;
  player->cudnn = sp_cudnn_open (attention == SP_ATTENTION_CUDNN ? error : NULL);
  if (player->cudnn == NULL)
    return attention == SP_ATTENTION_QUICKEST;
  player->plans = g_new0 (const SpCudnnPlan *, n);
  player->chooses = attention == SP_ATTENTION_QUICKEST;
  for (guint i = 0; i < n; i++) {
    SpCudnnShape shape;
    if (!is_attention (COMMAND (player, i)) || !cudnn_shape (player, COMMAND (player, i), &shape))
      continue;
    player->plans[i] = sp_cudnn_plan (player->cudnn, &shape, NULL);
    if (player->plans[i] != NULL)
      player->scratch_bytes = MAX (player->scratch_bytes, sp_cudnn_scratch_bytes (player->plans[i]));
  }
  return TRUE;
}

gboolean
sp_player_choose_attention (SpPlayer *player, GError **error)
{
  guint n = player->recording->commands->len;
  g_autoptr (GHashTable) ours = g_hash_table_new (NULL, NULL); /* plans that our kernels are quicker than */

  if (!player->chooses)
    return TRUE;
  g_autofree const SpCudnnPlan **plans = g_memdup2 (player->plans, n * sizeof *plans);
  g_autoptr (GHashTable) timed = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < n; i++) {
    const SpCommand *command = COMMAND (player, i);
    double cudnn_s = 0, own_s = 0;
    if (plans[i] == NULL || !g_hash_table_add (timed, (gpointer) plans[i]))
      continue;
    if (!sp_player_fill_inputs (player, command, error) || !sp_player_time_again (player, command, &cudnn_s, error))
      return FALSE;
    player->plans[i] = NULL;
    if (!sp_player_time_again (player, command, &own_s, error))
      return FALSE;
    if (own_s < cudnn_s)
      g_hash_table_add (ours, (gpointer) plans[i]);
  }
  for (guint i = 0; i < n; i++)
    player->plans[i] = plans[i] != NULL && !g_hash_table_contains (ours, plans[i]) ? plans[i] : NULL;
  return TRUE;
}

SpOpForm
sp_player_form (const SpPlayer *player, guint command)
{
  return sp_op_form (&COMMAND (player, command)->op) |
         (plan_of (player, COMMAND (player, command)) != NULL ? SP_OP_FORM_CUDNN : 0);
}

gboolean
sp_player_uses_cudnn (const SpPlayer *player)
{
  for (guint i = 0; i < player->recording->commands->len; i++)
    if (plan_of (player, COMMAND (player, i)) != NULL)
      return TRUE;
  return FALSE;
}

/* --- playing ------------------------------------------------------------------------------------------------------ */

gint64
sp_player_attention_scratch (const SpCommand *command)
{
  const SpDevShape shape = sp_player_shape (NULL, command);

  return (gint64) (command->op.kind == SP_OP_ATTENTION_BWD ? sp_dev_attention_bwd_scratch_bytes (shape)
                                                           : sp_dev_attention_scratch_bytes (shape));
}

gboolean
sp_player_attention (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  const SpCudnnPlan *plan = plan_of (player, command);

  if (plan != NULL)
    return sp_cudnn_attention (player->cudnn, plan, IN (0).data, IN (1).data, IN (2).data, OUT (0).data, REALS (out[1]),
                               player->scratch, stream, error);
  LAUNCH (sp_dev_attention (sp_player_shape (player, command), IN (0), IN (1), IN (2), CAUSAL, POSITIONS (POSITIONS),
                            POSITIONS (KEY_POSITIONS), OUT (0), REALS (out[1]), player->scratch, stream));
}

gboolean
sp_player_attention_bwd (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error)
{
  const SpCudnnPlan *plan = plan_of (player, command);

  if (plan != NULL)
    return sp_cudnn_attention_bwd (player->cudnn, plan, IN (0).data, IN (1).data, IN (2).data, IN (3).data,
                                   REALS (in[4]), REALS (in[5]), OUT (0).data, OUT (1).data, OUT (2).data,
                                   player->scratch, stream, error);
  LAUNCH (sp_dev_attention_bwd (sp_player_shape (player, command), IN (0), IN (1), IN (2), IN (3), REALS (in[4]),
                                REALS (in[5]), CAUSAL, POSITIONS (POSITIONS), POSITIONS (KEY_POSITIONS), OUT (0),
                                OUT (1), OUT (2), player->scratch, stream));
}
