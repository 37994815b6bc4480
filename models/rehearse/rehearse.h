/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The rehearsal: a whole program run on the CPU, P ranks in one process, in double, on real numbers. Two layouts of one
 * model must come to the same loss, gradients and updated parameters; so a strategy is correct, not only priced.
 *
 * It is an interpreter of program.h and knows no strategy: groups, guards, loops and carries are all that it sees.
 * Every rank is a cursor (run.c) into the walk of its stage (sim/walk.h, agenda.c); ranks run in turn until each
 * waits for a message or for the others of a collective, which is then done by copying (comm.c). Kernels are
 * the references of kernels/ (ops.c, attention.c). Positions of rows, token ids and heads follow from
 * the program's token map (tokens.c); initial values and the results are in global shapes
 * (state.c).
 *
 * Numbers. Parameters, token ids and dropout are pure functions of (seed, what they belong to, global row, global
 * column), whatever the layout: norm gains around 1, logarithms of decays' rates around -2.1, all else around 0 with a
 * standard deviation of 0.2, of wide matrices 1 / sqrt (columns); all as bf16 has it. The label of a
 * token is the next id. Sequences beyond the global batch are padding and weigh nothing. One optimizer step is run.
 *
 * Memory. Storage is made when it is first written and full of NaN (gradients and the optimizer's: zero), so that what
 * is read before it is written is an error that names the op. It ends by its life:
 *    SEGMENT   after its last use in FORWARD, or in RECOMPUTE and BACKWARD (one list); in other lists at their end
 *    STASH     after its last use in BACKWARD; at its end if it has none
 *    REBUILT   as SEGMENT, in both lists
 *    HANDOFF   Y is one storage with X of the next block, DX with DY of the block before; it ends when both are over.
 *              X and DY: after their last use (X of life STASH: in BACKWARD). Y and DX: with their list, or when the
 *              pipeline has sent them. A Y that RECOMPUTE writes again is storage of its own
 *    GATHERED  at the end of FORWARD where the block gathers again, else at the end of that micro-batch's BACKWARD
 *    SUMMED    at the end of SYNC, or what is held over as sim/walk.h says; it starts with BACKWARD, of two parts with
 *              the first
 *    STEP_END  never; nor does ALWAYS, which is there from the start
 * An async op uses what it reads and writes until it is over (sp_block_last_beside of sim/program.h), so that no kernel
 * beside it has to wait for its place. A use in a loop counts until the loop's end, but for what ends with a tile
 * (SpLoop); both memories of a carry live from the loop's start until the last use of either, and what it starts from
 * (init) is used until the loop's end. Where the schedule runs the backward in two
 * parts, what ops of both use ends with its last use in the second, what only one uses ends in that one, and what ends
 * with BACKWARD ends with the part that uses it last: GATHERED with the first. `peak_bytes` is the sum of the declared
 * bytes of what is live, at its largest, and `peak_by_class` that moment.
 *
 * Bytes. `payload_bytes` counts what the copier moved, by the definition of payload in program.h: elements x bytes of
 * the declared dtype, on the sender's side alone for messages, nothing in groups of one. It does not read SpOp.bytes.
 *
 * Failure. Everything that a wrong program can do is a GError that names rank, layer, phase, op and kind.
 */

#include "sim/walk.h"

G_BEGIN_DECLS

#define SP_REHEARSE_ERROR (sp_rehearse_error_quark ())
GQuark sp_rehearse_error_quark (void);

typedef enum {
  SP_REHEARSE_ERROR_PROGRAM,   /* a program that cannot be run: sizes, groups, slots */
  SP_REHEARSE_ERROR_UNWRITTEN, /* read of what is not there, or not written */
  SP_REHEARSE_ERROR_MISMATCH,  /* members of a group that do not do the same; replicas that differ */
  SP_REHEARSE_ERROR_DEADLOCK,
  SP_REHEARSE_ERROR_TOO_LARGE
} SpRehearseError;

/* A weight in its global shape: the tensor ranks' parts put together, without the rows that pad the vocabulary. A tied
 * matrix is the embedding's, once. */
typedef struct {
  gint32 layer; /* or SP_LAYER_EMBEDDING, SP_LAYER_HEAD */
  char name[12];
  gint64 rows, cols;
  double *gradient;  /* of the mean loss over the global batch, before the optimizer */
  double *parameter; /* after it */
} SpRehearsedTensor;

typedef struct {
  gint64 payload_bytes[SP_N_AXES];
  gint64 messages[SP_N_AXES]; /* collectives, sends */
  gint64 peak_bytes;
  gint64 peak_by_class[SP_N_CLASSES]; /* at that moment */
  gint64 host_peak_bytes;             /* of what lies in host memory, at its own moment */
} SpRehearsedRank;

typedef struct {
  double loss;
  GArray *tensors; /* of SpRehearsedTensor, in order of the model */
  gint32 world;
  SpRehearsedRank *ranks; /* [world] */
} SpRehearsal;

/* Adds `delta` to one element of a weight before the step: so that gradients can be held against differences of the
 * loss. */
typedef struct {
  gint32 layer;
  const char *name;
  gint64 index; /* in the global tensor */
  double delta;
} SpNudge;

SpRehearsal *sp_rehearse (const SpProgram *program, guint64 seed, GError **error);
SpRehearsal *sp_rehearse_nudged (const SpProgram *program, guint64 seed, const SpNudge *nudge, GError **error);
/* With what every kernel writes rounded to the dtype of its buffer, to nearest, before another reads it: what a machine of
 * these dtypes is off by even if it loses nothing within a kernel. Ranges, and sums of collectives, stay those of double. */
SpRehearsal *sp_rehearse_rounded (const SpProgram *program, guint64 seed, GError **error);
/* Gradients of a flat of a rank, as many as the rank keeps for the optimizer; NULL of what is frozen. Its to free. */
typedef double *(*SpGradientsFunc) (gint32 rank, gint32 position, gint32 flat, gpointer data);
/* Of a step that was run elsewhere: the tensors' gradients alone (parameters are zeros, and the loss 0). Ranks that hold
 * the same may differ by `tolerance` of the largest. */
SpRehearsal *sp_rehearsal_assemble (const SpProgram *program, double tolerance, SpGradientsFunc get, gpointer data,
                                    GError **error);
void sp_rehearsal_free (SpRehearsal *rehearsal);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRehearsal, sp_rehearsal_free)

/* The largest relative difference of the loss and of all gradients and parameters, |a - b| / max (|a|, |b|, s), where
 * s is 1e-3 of the largest element of that tensor, at least 1e-6 of the largest of all gradients or parameters: an
 * element that is small beside its neighbours is held to their rounding. Infinity where there is a NaN or a tensor has
 * no counterpart of its shape. *ret_where (unless NULL) names the place; free it. */
double sp_rehearsal_difference (const SpRehearsal *a, const SpRehearsal *b, char **ret_where);

G_END_DECLS
