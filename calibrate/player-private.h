/* SPDX-License-Identifier: Apache-2.0 */
/* What the player's files share. */
#pragma once

#include "calibrate/cudnn.h"
#include "calibrate/gemm.h"
#include "calibrate/nccl.h"
#include "calibrate/player.h"
#include "kernels/device.h"

#define COMMAND(player, i) (&g_array_index ((player)->recording->commands, SpCommand, i))

#define SP_QUICK_NUMBERS (1 << 20)

struct _SpPlayer {
  SpRank *rank;
  const SpProgram *program;
  const SpRecording *recording;

  char *arena, *host_arena;
  char *tables;     /* on the device, */
  gint64 *table_at; /* each at this byte */
  char *scratch;    /* of kernels on COMPUTE */
  gint64 scratch_bytes;
  char *added[SP_N_QUEUES]; /* where a reduce-scatter that adds puts its part first */
  void *workspace;          /* of GEMMs */
  double *loss;             /* on the device */
  char *numbers[2];         /* random ones, SP_QUICK_NUMBERS in bf16 and in fp32; of a player that is alone */
  SpGemms *gemms;
  SpCudnn *cudnn;            /* NULL: not asked for, or not there */
  const SpCudnnPlan **plans; /* of commands that cuDNN plays; else NULL */

  cudaStream_t streams[SP_N_QUEUES];
  cudaEvent_t begin, ends[SP_N_QUEUES];
  cudaEvent_t last;            /* before COMPUTE waits for the other queues' ends */
  cudaEvent_t *over;           /* of commands that others wait for; else NULL */
  cudaEvent_t *starts, *stops; /* of all, once a step was timed */
  float *start_ms, *stop_ms;
  gint64 payload_bytes[SP_N_AXES];
  gint64 context_bytes, allocated_bytes;
  SpPlayerWait *waits; /* by what was waited for; made with the events */
  double loss_value, issue_s;
  double events_s; /* that two events take with nothing between */
  double drain_s;  /* that a wait takes beyond what two events around it see */
  gboolean is_warm; /* kernels alone have run long enough */
  gboolean keeps, is_alone, chooses;
  double **gradients;
#if HAVE_NCCL
  ncclComm_t comms[SP_N_GROUPS][2]; /* [1]: the pipeline's way back */
#endif
};

/* --- player-ops.c ------------------------------------------------------------------------------------------------- */

typedef gboolean (*SpPlay) (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error);

/* NULL: no kernel of the op yet. */
SpPlay sp_player_kernel (const SpCommand *command);
gint64 sp_player_kernel_scratch (const SpCommand *command);

/* NULL of an operand that is not there. */
void *sp_player_data (const SpPlayer *player, const SpOperand *operand);
SpDevTensor sp_player_tensor (const SpPlayer *player, const SpOperand *operand);
/* A table on the device; NULL: the command has none. */
const void *sp_player_table (const SpPlayer *player, const SpCommand *command, SpRowTableKind kind);
SpDevShape sp_player_shape (const SpPlayer *player, const SpCommand *command);

/* --- player-attention.c ------------------------------------------------------------------------------------------- */

/* Fills player->plans; they may ask for scratch. */
gboolean sp_player_plan_attention (SpPlayer *player, SpAttention attention, GError **error);
/* Once there is memory: what is quicker by ours is taken from cuDNN. */
gboolean sp_player_choose_attention (SpPlayer *player, GError **error);
gint64 sp_player_attention_scratch (const SpCommand *command);
gboolean sp_player_attention (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error);
gboolean sp_player_attention_bwd (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error);

/* --- player-delta.c ----------------------------------------------------------------------------------------------- */

/* Of a command flagged SP_OP_DELTA; NULL: no kernel of the op yet. */
SpPlay sp_player_delta (const SpCommand *command);
gint64 sp_player_delta_scratch (const SpCommand *command);

/* --- player-recurrent.c ------------------------------------------------------------------------------------------- */

/* Of recurrences without the delta rule, and of what stands around any; NULL: no kernel of the op yet. */
SpPlay sp_player_recurrent (const SpCommand *command);
gint64 sp_player_recurrent_scratch (const SpCommand *command);

/* --- player.c, player-step.c -------------------------------------------------------------------------------------- */

/* Small numbers in all that the command reads. */
gboolean sp_player_fill_inputs (SpPlayer *player, const SpCommand *command, GError **error);
/* Seconds of one kernel by itself, again and again: the least of some. */
gboolean sp_player_time_again (SpPlayer *player, const SpCommand *command, double *ret_s, GError **error);

/* Events of all commands, made once. */
gboolean sp_player_prepare_times (SpPlayer *player, GError **error);

/* --- player-comm.c ------------------------------------------------------------------------------------------------ */

gboolean sp_player_connect (SpPlayer *player, GError **error);
void sp_player_disconnect (SpPlayer *player);
/* Of a player that is alone: its own numbers, or random ones, where communication would leave what others sent. */
gboolean sp_player_stand_in (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error);
gboolean sp_player_communicate (SpPlayer *player, const SpCommand *command, cudaStream_t stream, GError **error);
/* Has NCCL or another rank failed? */
gboolean sp_player_fine (gpointer player, GError **error);
guint sp_player_communicators (const SpPlayer *player);
/* Bytes on `queue` beside the arena: of a reduce-scatter that adds. */
gint64 sp_player_added_bytes (const SpCommand *command);
