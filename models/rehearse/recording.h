/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The recording: all that one rank does in a step, command after command, with where each operand lies in memory. It is
 * what the executor plays on a GPU: nothing of the program's shape (blocks, loops, guards, schedules) is left in it.
 *
 * It is the rehearsal's interpreter that walks, with the same rules of when memory begins and ends, but with nothing in
 * the memory. Lists come in the EAGER order of sim/walk.h, as a framework that prefetches issues them.
 *
 * Memory. A STORAGE is a buffer's memory from the command that first writes it to the last that uses it. Storages have
 * places in one arena (those in host memory in another) such that no two that live at once overlap; `arena_bytes` is at
 * least the peak of what lives, `peak_bytes`, and more by what cannot be fitted together.
 *
 * Queues. Commands of one queue run in order. COMPUTE is the first; communication runs on the queue of its stream, the
 * pipeline's on one for each direction, as a send that waits for its receiver must not hold up the other way.
 *
 * Waits. A command waits for commands of other queues (`waits`, numbers of commands before it) so that each read sees
 * what the program wrote, and nothing is overwritten while it is in use; and as the engine has it (sim/engine.h), who
 * prices the same program: communication begins when the kernels before it are over, as NCCL's of PyTorch does. What is
 * not ASYNC is over before the next kernel; what is, on the tensor, sequence and outer streams, at the end of its list
 * or loop's step. All other order between queues is left open: that is what overlaps. What is sent on these three lives
 * until it is over, so that no kernel waits for a place which it still holds: kernels wait for them as in the simulator,
 * and for nothing else. Places do make gathers wait for what the pipeline sends, and kernels for activations on their way
 * to the host, of which the simulator knows nothing.
 *
 * Zeros. Gradients, and the optimizer's states that do not live ALWAYS, begin as zeros: ZERO commands that the program
 * does not have are put in, for gradients that live ALWAYS at the start of the step.
 *
 * Replays. What lives ALWAYS is at its place before and after; so the commands may be played again and again.
 *
 * Errors are SP_REHEARSE_ERROR: of programs that the rehearsal refuses too, but for their size.
 */

#include "sim/program.h"

G_BEGIN_DECLS

/* What a kernel must be told besides its op and operands, of the rows that it sees. */
typedef enum {
  SP_TABLE_POSITIONS,     /* int32, of queries, [tokens], or of rows in their documents, [rows] */
  SP_TABLE_KEY_POSITIONS, /* int32 [keys] */
  SP_TABLE_FIRST,         /* int32 [tokens, batch]: documents of queries; absent if not packed */
  SP_TABLE_END,
  SP_TABLE_IDS,     /* int32 [rows]: token ids; of the loss, labels; of a table of positions, its rows */
  SP_TABLE_WEIGHTS, /* fp32 [rows]: of a token in the loss */
  SP_TABLE_SLOPES,  /* fp32 [heads]: of a linear attention's decay */
  SP_N_TABLES
} SpRowTableKind;

typedef struct {
  gint64 n;
  gpointer data; /* of n elements of four bytes */
} SpRowTable;

typedef struct {
  gint64 bytes;
  gint64 offset; /* in the arena; multiple of 256 */
  guint8 class, life, dtype, host;
  gint32 first, last; /* commands that use it, and those between; -1 and beyond the last of what lives ALWAYS */
} SpStored;

typedef struct {
  gint32 storage; /* -1: none */
  guint8 dtype;
  gint64 elements;
  gint64 offset; /* bytes, in its storage */
} SpOperand;

#define SP_N_QUEUES (SP_N_STREAMS + 1)
#define SP_QUEUE_PIPELINE_BACK SP_N_STREAMS

typedef struct {
  SpOp op; /* of the pipeline's messages turned round where it has to be */
  gint32 layer, micro_batch;
  guint8 block; /* SpBlockKind */
  guint8 phase; /* SpPhase; of the pipeline's messages FORWARD or BACKWARD */
  guint8 queue;
  guint8 counts_loss; /* LOSS: this rank's counts; another tensor rank has the same rows otherwise */
  gint32 step;        /* of its loop */
  gint32 place, size; /* in op.group */
  gint32 to, from;    /* ranks of messages, -1: none */
  gint64 vocabulary_first;
  gint32 tables[SP_N_TABLES]; /* -1: none */
  SpOperand in[SP_MAX_IN], out[SP_MAX_OUT];
  guint32 first_wait, n_waits; /* of SpRecording.waits */
  guint8 is_awaited;
} SpCommand;

/* A storage that begins the step with parameters: those of a flat (SpFlat of the block at a position of the stage's walk)
 * from element `first` on. What else lives ALWAYS begins as zeros. */
typedef struct {
  gint32 storage, position, flat;
  gint64 first;
} SpStart;

/* Where gradients are when the optimizer begins: before command `before`. */
typedef struct {
  gint32 before, position, flat;
  SpOperand gradients;
} SpGradients;

typedef struct _SpRecording {
  gint32 rank;
  GArray *commands;  /* SpCommand */
  GArray *storages;  /* SpStored */
  GArray *tables;    /* SpRowTable */
  GArray *waits;     /* guint32 */
  GArray *starts;    /* SpStart */
  GArray *gradients; /* SpGradients */
  gint64 arena_bytes, host_arena_bytes;
  gint64 peak_bytes; /* of what lives at once */
  gint64 peak_by_class[SP_N_CLASSES];
  gint64 payload_bytes[SP_N_AXES];
  GHashTable *known; /* tables by content, which it owns */
} SpRecording;

/* Empty, of `rank`. */
SpRecording *sp_recording_new (gint32 rank);
/* A table of n numbers of four bytes, which it takes; its number. One that is there already is not there twice. */
gint32 sp_recording_add_table (SpRecording *recording, gpointer data, gint64 n);
/* Of `rank`; seed: of token ids, as in the rehearsal. */
SpRecording *sp_record (const SpProgram *program, gint32 rank, guint64 seed, GError **error);
void sp_recording_free (SpRecording *recording);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRecording, sp_recording_free)

/* A flat's parameters at the start of the step, as the rehearsal draws them: as many as the flat has on this rank. */
double *sp_state_draw (const SpProgram *program, gint32 rank, guint64 seed, gint32 position, gint32 flat,
                       GError **error);

/* Checks that any order in which queues may run gives what the order of commands gives: every two commands that touch
 * the same bytes, of which one writes, follow each other by queues and waits. NULL, or what does not; free it. */
char *sp_recording_check (const SpRecording *recording);

G_END_DECLS
