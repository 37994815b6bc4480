/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The player: one rank's recording (models/rehearse/recording.h) on its GPU. The fourth reader's hands: cuBLASLt for
 * products, kernels/device.h for the rest, NCCL for what goes between GPUs, a stream for each queue, events for waits,
 * one arena in which every storage lies where the recording says.
 *
 * Bytes handed to NCCL are counted beside its calls, by the definition of payload in sim/program.h.
 *
 * Errors name the call or the op. An op that has no kernel yet is refused when the player is made, before anything runs.
 */

#include "calibrate/ranks.h"
#include "calibrate/sensor.h"
#include "models/rehearse/recording.h"
#include "sim/op-form.h"

G_BEGIN_DECLS

typedef struct _SpPlayer SpPlayer;

/* Whose kernels play softmax attention. With OWN those of kernels/device.h do. With CUDNN cuDNN's do where they can, and
 * elsewhere ours: documents, windows, masks that are no rectangle (calibrate/mask.h), shapes that it has no kernel for.
 * With QUICKEST, where cuDNN can, both are timed before anything else runs and the quicker plays; without cuDNN ours. */
typedef enum { SP_ATTENTION_QUICKEST, SP_ATTENTION_OWN, SP_ATTENTION_CUDNN } SpAttention;
extern const char *const sp_attention_names[]; /* as options and files have them; ends with NULL */

/* Borrows program and recording. All ranks make theirs together: communicators are made among them. With `alone` there
 * are none, only kernels can be played, and the recording may be any rank's. */
SpPlayer *sp_player_new (SpRank *rank, const SpProgram *program, const SpRecording *recording, gboolean alone,
                         SpAttention attention, GError **error);
void sp_player_free (SpPlayer *player);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPlayer, sp_player_free)

/* The form of a command by the library that plays it. */
SpOpForm sp_player_form (const SpPlayer *player, guint command);
/* Is there a command that cuDNN plays? */
gboolean sp_player_uses_cudnn (const SpPlayer *player);

/* What lives ALWAYS as at the start of training: parameters drawn as the rehearsal draws them for `seed`; or, quicker,
 * repeated small numbers, with which only time and memory mean anything. */
gboolean sp_player_start (SpPlayer *player, guint64 seed, GError **error);
gboolean sp_player_start_quick (SpPlayer *player, GError **error);

/* What of a step is timed: nothing but the whole; the waits of COMPUTE for other queues, which leaves kernels between
 * them as they are, and messages one way on their queues; or each command by itself, which lengthens the step a little. */
typedef enum { SP_TIMING_NONE, SP_TIMING_WAITS, SP_TIMING_COMMANDS } SpTiming;

/* A step: issued, and waited for. ret_s: from the first command to the last, on the device. */
gboolean sp_player_step (SpPlayer *player, SpTiming timing, double *ret_s, GError **error);
/* The kernels of COMPUTE one after another as a step runs them, without what is between GPUs: seconds of each, what lies
 * between one and the next among it, as they are when no event is recorded between them; 0 of other commands. Caches
 * are as the kernels before leave them.
 *
 * Of a player that is alone something stands in for communication and is not timed: copies of this rank's own numbers, or
 * random ones where a message would come. What kernels read decides how much power they draw, and so how fast they are:
 * on an H200 those of a ZeRO-3 step, on whatever lay where the gathered parameters should have been, drew 530 W at
 * 1.98 GHz, where those of other steps were held to 1.5 to 1.8 GHz by the card's 700 W.
 *
 * They run for warm_s of the host's clock first, and on until the time of a pass has settled, at most four times that: until
 * libraries have loaded their kernels, and the card's clock is what its power allows in the long run. After a quarter
 * second it is not: on an H200 products of 2,048 x 32,000 with 10,240 rows, whose passes are short, then ran at 941
 * TFLOP/s, with 40,960 to 81,920 rows at 680 to 760. That a second is enough for a start is assumed. Where the player's
 * kernels ran so before, a tenth of a second keeps the card as warm.
 *
 * `ret_pass` (or NULL): what they took together, what stands in for communication among it, and what `sensor` (or NULL)
 * heard from the last tenth of a second of the warm-up on. */
#define SP_PLAYER_WARM_S 1.0
typedef struct {
  double time_s;
  SpReading reading;
} SpPlayerPass;
gboolean sp_player_time_kernels (SpPlayer *player, double warm_s, SpSensor *sensor, double *seconds,
                                 SpPlayerPass *ret_pass, GError **error);

/* Of the last step with SP_TIMING_WAITS, by the command that COMPUTE waited for: where it named several, the last of them,
 * as those before it are over by then, or were waited for too. */
typedef struct {
  double waited_s; /* how long COMPUTE stood */
  double took_s;   /* on its own queue; of a SEND or RECEIVE alone, else negative */
  guint times;     /* how often it was waited for, over or not */
} SpPlayerWait;
/* [commands], the player's. */
const SpPlayerWait *sp_player_waits (const SpPlayer *player);

/* Of the last step with SP_TIMING_COMMANDS: seconds from its start. */
void sp_player_command_times (const SpPlayer *player, guint command, double *ret_start_s, double *ret_end_s);
/* Once a step was timed: what an event before and one behind a command, or a wait, add to its time, which is not in those
 * above; and what a wait takes beyond what events around it see, which is in waits: the kernel before has to be through,
 * and the next one is launched only then. */
void sp_player_overheads (const SpPlayer *player, double *ret_events_s, double *ret_drain_s);

/* Of the last step: this rank's part of the loss; the host's time to issue it. */
double sp_player_loss (const SpPlayer *player);
double sp_player_issue_s (const SpPlayer *player);
/* Of the last step, by axis. */
void sp_player_payload (const SpPlayer *player, gint64 ret_bytes[SP_N_AXES]);
/* What is in use on the card: all, of it the arena, what was there before anything of this (the context), and what the
 * communicators have taken by now: NCCL makes much of it at the first call of each kind. */
void sp_player_memory (const SpPlayer *player, gint64 *ret_used_bytes, gint64 *ret_arena_bytes,
                       gint64 *ret_context_bytes, gint64 *ret_communicators_bytes, guint *ret_communicators);
/* That kernels ask for beside the arena: of a library's attention it may be as large as its operands. */
gint64 sp_player_scratch_bytes (const SpPlayer *player);

/* In use on the card beside what the player asked for. */
gint64 sp_player_other_bytes (const SpPlayer *player);

/* The numbers of an operand after a step, as doubles; free them. */
double *sp_player_read (SpPlayer *player, const SpOperand *operand, GError **error);
/* Those of recording->gradients, kept by the last step when the optimizer began, if asked for before it. */
void sp_player_keep_gradients (SpPlayer *player, gboolean keep);
const double *sp_player_gradients (const SpPlayer *player, guint index);

G_END_DECLS
