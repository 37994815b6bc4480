/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files of the rehearsal share. An SpInterpreter runs the ranks; an SpCall is one op at one rank's cursor,
 * with its operands as arrays of double.
 */

#include "kernels/reference.h"
#include "models/rehearse/recording.h"
#include "models/rehearse/rehearse.h"
#include "sim/walk.h"

G_BEGIN_DECLS

/* A buffer's memory. `refs`: slots that hold it. */
typedef struct {
  gint32 refs;
  gint32 claims; /* of SP_LIFE_GATHERED: uses that are not over */
  guint8 class;
  gint64 bytes, host_bytes;
  gint64 elements;
  double *data;  /* NULL: what is done is only written down, */
  gint32 number; /* and this is its number there */
} SpStorage;

/* Where an operand lies. */
typedef struct {
  SpStorage *storage;
  gint64 offset; /* in elements */
} SpPlace;

/* Storage of a layer's slots: of one micro-batch, or of the step. */
typedef struct {
  SpStorage *slots[SP_MAX_SLOTS];
} SpFrame;

/* All that a rank of one stage does, in order: its walk, written out. */
typedef struct {
  const SpPosition *positions;
  guint n_positions;
  GArray *items; /* SpItem */
} SpAgenda;

typedef struct {
  gint32 number;
  gint32 stage;
  const SpAgenda *agenda;

  guint item, op;                   /* the cursor */
  gint32 step;                      /* of the loop that it stands in */
  gboolean begun;                   /* the op's surroundings (item, loop step) are set up */
  gboolean waits;                   /* for others */
  gboolean passed;                  /* others have done the collective that it stood at */
  gboolean sent;                    /* of a send-receive, the first half is over */
  gboolean arrived[SP_MAX_CARRIES]; /* carry's `next` was written in this step */

  SpFrame **frames;   /* [1 + micro-batch][position] */
  gint32 held;        /* position whose gradients are held over; -1 none */
  double **gradients; /* [position][flat]: whole or shard, when the optimizer began */
  double loss;
  gint64 live_bytes, live_by_class[SP_N_CLASSES], live_host_bytes;
  SpRehearsedRank *report;
  SpRecording *recording; /* what it does is written down instead of done; or NULL */
} SpRank;

/* Last use of each slot in FORWARD, in RECOMPUTE and BACKWARD (one list), and in the two parts of that: what is not
 * flagged SP_OP_WEIGHT, and what is. Uses of views and of loops counted in. */
enum { SP_USES_FORWARD, SP_USES_BACKWARD, SP_USES_INPUT, SP_USES_WEIGHT, SP_N_USES };

typedef struct {
  guint16 last[SP_N_USES][SP_MAX_SLOTS];
} SpUses;

typedef struct {
  const SpProgram *program;
  guint64 seed;
  const SpNudge *nudge; /* or NULL */
  gboolean rounds;      /* what a kernel writes is rounded to the buffer's dtype */
  SpWalkPlan *walks;
  SpAgenda *agendas; /* [stages] */
  SpRank *ranks;     /* [world] */
  GHashTable *mail;  /* gint64 key -> GQueue of messages */
  SpUses *uses;      /* [variant][block] */
  GError *error;
} SpInterpreter;

typedef struct {
  SpInterpreter *in;
  SpRank *rank;
  const SpItem *item;
  const SpVariant *variant;
  const SpBlock *block;
  const SpPosition *position;
  const SpOp *op;
  const SpLoop *loop; /* that the op stands in, or NULL */
  SpOp own;           /* *op: as it is at the rank's place */
  gboolean failed;
  GPtrArray *temporaries;
} SpCall;

/* --- interpreter.c ------------------------------------------------------------------------------------------------ */

/* Whether it is a whole step, and one whose numbers can be had. */
gboolean sp_interpreter_check (const SpProgram *program, GError **error);
/* All ranks with their cursors at the start, and nothing in memory. Clear it, checked or not. */
void sp_interpreter_init (SpInterpreter *in, const SpProgram *program, guint64 seed, SpWalkOrder order,
                          SpRehearsedRank *reports);
void sp_interpreter_clear (SpInterpreter *in);
/* Runs a rank until it waits; TRUE if it came any further. */
gboolean sp_interpreter_run_rank (SpInterpreter *in, SpRank *rank);
gboolean sp_rank_is_over (const SpRank *rank);

/* --- record.c ----------------------------------------------------------------------------------------------------- */

gint32 sp_recording_begin (SpRecording *recording, const SpBuffer *buffer);
void sp_recording_end (SpRecording *recording, gint32 storage);
void sp_record_call (SpCall *call);
/* A storage begins the step with a flat's parameters, from element `first` of it on. */
void sp_record_start (SpRank *rank, const SpStorage *storage, gint32 position, guint flat, gint64 first);
/* Of a flat's gradients, when the optimizer begins. */
void sp_record_gradients (SpRank *rank, gint32 position, guint flat, const SpStorage *gradients);

/* --- agenda.c -------------------------------------------------------------------------------------------- */

void sp_agenda_init (const SpWalkPlan *walks, gint32 stage, SpAgenda *agenda);
void sp_agenda_clear (SpAgenda *agenda);
/* The block of a position, in its first variant. */
const SpBlock *sp_agenda_block (const SpProgram *program, const SpAgenda *agenda, gint32 position);

/* --- run.c -------------------------------------------------------------------------------------------------------- */

/* The call at a rank's cursor, which stands at an op. */
void sp_call_open (SpInterpreter *in, SpRank *rank, SpCall *ret);
void sp_call_close (SpCall *call);
/* Ops of an item in a variant, selected or not; NULL for the pipeline's messages, which have one. */
const SpOp *sp_item_ops (const SpInterpreter *in, const SpRank *rank, const SpItem *item, guint *ret_n);
const SpVariant *sp_item_variant (const SpInterpreter *in, const SpItem *item);
/* Where a rank stands, in words. */
char *sp_rank_where (const SpInterpreter *in, const SpRank *rank);
/* Sets the error, unless one is set already. */
void sp_call_fail (SpCall *call, SpRehearseError code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* --- memory.c, lives.c -------------------------------------------------------------------------- */

gboolean sp_memory_plan (SpInterpreter *in);
void sp_memory_free_rank (SpInterpreter *in, SpRank *rank);
/* The step's frame of a position, or that of a micro-batch. */
SpFrame *sp_rank_frame (SpRank *rank, gint32 position, gint32 micro_batch);
gboolean sp_rank_has_both_ends (const SpInterpreter *in, const SpRank *rank);
gboolean sp_life_is_of_micro_batch (guint8 life);
SpStorage *sp_storage_new (SpRank *rank, const SpBuffer *buffer);
/* A slot lets go of its storage. */
void sp_storage_release (SpRank *rank, SpStorage **at);

/* Operands. `elements` is what the op's dimensions say; the slot must have as many. Slot 0: NULL. An input that is
 * also written comes as a copy. On failure NULL, and call->failed. */
const double *sp_call_read (SpCall *call, guint8 slot, gint64 elements);
/* Of an operand of communication what counts: all of it, or with SP_OP_OWN_PART this rank's part of what is sent,
 * received or gathered. FALSE: it does not divide, and the call has failed. */
typedef struct {
  gint64 first, n; /* elements */
} SpPart;
gboolean sp_call_part (SpCall *call, guint8 slot, gboolean is_output, SpPart *ret);
const double *sp_call_read_part (SpCall *call, guint8 slot, const SpPart *part);
double *sp_call_write (SpCall *call, guint8 slot, gint64 elements);
const SpBuffer *sp_call_buffer (const SpCall *call, guint8 slot);
/* Without looking at what is there. An output's storage begins. FALSE: it is not there, and the call has failed. */
gboolean sp_call_place (SpCall *call, guint8 slot, gboolean is_output, SpPlace *ret);
/* Memory that lives as long as the call. */
gpointer sp_call_temporary (SpCall *call, gsize bytes);
/* After the op: nothing that it wrote is NaN. */
void sp_call_check_written (SpCall *call);
#define BF16_DIGITS 8 /* binary */
/* To nearest, ties to even. */
double sp_round_to_digits (double value, int digits);
/* After the op: what it wrote is what its buffers' dtypes have of it. */
void sp_call_round (SpCall *call);

void sp_loop_step_begin (SpCall *call);
void sp_loop_step_end (SpCall *call);
/* After the op at the cursor: slots whose last use it was. In a loop over tiles that goes on: those of a tile alone. Not
 * within other loops. */
void sp_memory_release_used (SpInterpreter *in, SpRank *rank, const SpItem *item, guint op, const SpLoop *tiles);
void sp_memory_backward_begin (SpInterpreter *in, SpRank *rank, const SpItem *item);
void sp_memory_item_end (SpInterpreter *in, SpRank *rank, const SpItem *item);

/* --- tokens.c -------------------------------------------------------------------------------------------- */

guint64 sp_mix (guint64 a, guint64 b);
/* All of these: NULL if the call has failed. Positions of `tokens` rows of one sequence here. */
const gint64 *sp_call_positions (SpCall *call, gint64 tokens);
/* Of `tokens` keys, of which `own` would be this rank's: in a ring's loop those that are here at this step. */
const gint64 *sp_call_key_positions (SpCall *call, gint64 tokens, gint64 own);
/* Place in the loop's ring of the tokens that have come here at this step. */
gint32 sp_call_ring_place (const SpCall *call);
gint32 sp_call_tensor_place (const SpCall *call);
/* The same for the `m` rows of a [tokens x batch, features] operand. */
const gint64 *sp_call_row_positions (SpCall *call, gint64 m);
/* Their positions in their documents: the same where sequences are not packed. */
const gint64 *sp_call_document_positions (SpCall *call, gint64 m);
/* Of `tokens` queries at `positions`, [tokens, batch]: the first position of each one's document and the one behind its
 * last; NULL where sequences are not packed. */
void sp_call_documents (SpCall *call, gint64 tokens, const gint64 *positions, const gint64 **ret_begin,
                        const gint64 **ret_end);
/* Row of a table of positions for each of the op's rows. */
const gint64 *sp_call_table_rows (SpCall *call);
const gint64 *sp_call_ids (SpCall *call, gint64 m, gint64 shift);
const double *sp_call_weights (SpCall *call, gint64 m);
const gint64 *sp_call_row_ids (SpCall *call, gint64 m);
const gint64 *sp_call_score_ids (SpCall *call);
guint64 sp_call_dropout_seed (const SpCall *call);
/* Rows that every tensor rank has, rather than a part of them. */
gboolean sp_call_rows_are_shared (const SpCall *call, gint64 m);
gint64 sp_call_vocabulary_first (const SpCall *call, gint64 n);
const double *sp_call_slopes (SpCall *call);
/* Of the block's exchange of heads. */
gint32 sp_call_exchange_size (const SpCall *call);
gint32 sp_call_exchange_place (const SpCall *call);
/* Checks that the `tokens` of a sequence here follow each other and those of the places before, as a chain needs. */
void sp_call_check_chain (SpCall *call, gint64 tokens);

/* --- ops.c, attention.c, recurrent.c, experts.c, ends.c, optimizer.c, comm.c ---------------------------------- */

typedef void (*SpHandler) (SpCall *call);

void sp_call_run (SpCall *call);

void sp_run_scores (SpCall *call);
void sp_run_scores_bwd (SpCall *call);
void sp_run_softmax (SpCall *call);
void sp_run_softmax_bwd (SpCall *call);
void sp_run_context (SpCall *call);
void sp_run_context_bwd (SpCall *call);
void sp_run_attention (SpCall *call);
void sp_run_attention_merge (SpCall *call);
void sp_run_attention_delta (SpCall *call);
void sp_run_attention_sink (SpCall *call);
void sp_run_attention_sink_bwd (SpCall *call);
void sp_run_attention_bwd (SpCall *call);
void sp_run_linear_local (SpCall *call);
void sp_run_linear_inter (SpCall *call);
void sp_run_linear_local_bwd (SpCall *call);
void sp_run_linear_inter_bwd (SpCall *call);
void sp_run_state_update (SpCall *call);
void sp_run_state_prefix (SpCall *call);
void sp_run_transfer_update (SpCall *call);
void sp_run_transfer_prefix (SpCall *call);
void sp_run_state_own (SpCall *call);
void sp_run_recurrent (SpCall *call);
void sp_run_state_own_bwd (SpCall *call);
void sp_run_recurrent_bwd (SpCall *call);
void sp_run_conv (SpCall *call);
void sp_run_conv_bwd (SpCall *call);
void sp_run_key_map (SpCall *call);
void sp_run_key_map_bwd (SpCall *call);
void sp_run_sigmoid (SpCall *call);
void sp_run_sigmoid_bwd (SpCall *call);
void sp_run_decay (SpCall *call);
void sp_run_decay_bwd (SpCall *call);
void sp_run_skip (SpCall *call);
void sp_run_skip_bwd (SpCall *call);
/* Whether the op's flags name a recurrence, and which. */
gboolean sp_call_is_recurrence (const SpCall *call);
SpRefRecurrence sp_call_recurrence (SpCall *call);

void sp_run_route (SpCall *call);
void sp_run_route_bwd (SpCall *call);
void sp_run_dispatch (SpCall *call);
void sp_run_dispatch_bwd (SpCall *call);
void sp_run_combine (SpCall *call);
void sp_run_combine_bwd (SpCall *call);
void sp_run_row_gate (SpCall *call);
void sp_run_row_gate_bwd (SpCall *call);

void sp_run_embed (SpCall *call);
void sp_run_embed_bwd (SpCall *call);
void sp_run_position (SpCall *call);
void sp_run_position_bwd (SpCall *call);
void sp_run_loss_max (SpCall *call);
void sp_run_loss_sum (SpCall *call);
void sp_run_loss (SpCall *call);

void sp_run_adam (SpCall *call);
void sp_run_momentum (SpCall *call);
void sp_run_orthogonalize (SpCall *call);
void sp_run_descend (SpCall *call);

/* TRUE when the communication at the cursor is over for this rank; else it waits (or failed). */
gboolean sp_call_communicate (SpCall *call);
/* The member `by` places on, or -1 beyond the end of a chain. The pipeline's is where the walk says. */
gint32 sp_call_neighbour (const SpCall *call, gint32 by);
void sp_mail_free (gpointer queue);

/* --- state.c --------------------------------------------------------------------------------------------- */

/* Everything that lives ALWAYS, with its values at the start of a step. */
gboolean sp_state_start (SpInterpreter *in, SpRank *rank);
void sp_state_keep_gradients (SpInterpreter *in, SpRank *rank, gint32 position);
/* Global tensors from all ranks; FALSE if replicas differ. */
gboolean sp_state_collect (SpInterpreter *in, SpRehearsal *rehearsal);

G_END_DECLS
