/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Strategies: one file and one row each. What a strategy adds to a program stands in its file; the rows (strategies.c)
 * hold its axis, its legality rules and a line for people.
 *
 * Where they act:
 *   tensor    around the parts of a layer that are split over heads or features (enter, leave and their backwards)
 *   ulysses   around an attention core (heads for tokens, and back)
 *   ring, lasp, and the local cores: as rows of the core table
 *   expert    in layers with experts: all-to-alls around them (layers/experts.c)
 *   zero      on a block's flat parameters: GATHER, SYNC, OPTIMIZER
 *   muon      in OPTIMIZER, on the flats of the layers' matrices
 *   frozen    nowhere by itself: rules on what is not trained (frozen flats, layers/lora.c)
 *   pipeline  between stages
 *   slices    on keys and values of softmax cores that have all of them (local.c), where they and their gradients lie
 */

#include "models/writer.h"

G_BEGIN_DECLS

/* --- legality ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpLayout *layout;
  const SpArchitecture *arch;
  const SpFramework *framework;
  const SpRun *run;
  gint32 ranks;
} SpCase;

/* One rule. `holds` is the check; `explain` (only called when it does not hold) appends what was asked, what is needed
 * and the nearest legal values, in one line. */
typedef struct {
  const char *name;
  gboolean (*holds) (const SpCase *c);
  void (*explain) (const SpCase *c, GString *out);
} SpRule;

typedef struct {
  const char *name;
  SpAxis axis;
  const char *summary;
  const SpRule *rules;
  guint n_rules;
  const SpCore *const *cores; /* NULL-terminated, or NULL */
} SpStrategy;

guint sp_strategy_count (void);
const SpStrategy *sp_strategy_get (guint row);
/* The core that serves the open block; one always does in a legal layout. */
const SpCore *sp_strategy_core (const SpWriter *w);

extern const SpStrategy sp_strategy_local, sp_strategy_data, sp_strategy_tensor, sp_strategy_expert, sp_strategy_pipeline,
    sp_strategy_ulysses, sp_strategy_ring, sp_strategy_lasp, sp_strategy_zero, sp_strategy_offload,
    sp_strategy_frozen, sp_strategy_slices;
extern const SpStrategy sp_strategy_ring_gather, sp_strategy_rsa, sp_strategy_muon;

/* The least sequence from the one asked for on that all rules about its parts accept. */
gint64 sp_rule_padded_sequence (const SpCase *c);

/* Appends the values in [1, limit] that make `holds` true for the degree that `degree` points into (a field of a copy
 * of the layout), as "1, 2, 4 or 8". */
void sp_rule_nearest (const SpCase *c, gsize degree_offset, gint32 limit, gboolean (*holds) (const SpCase *c),
                      GString *out);

/* --- tensor ------------------------------------------------------------------------------------------------------- */

/* Forward: normed rows of this rank -> rows that the split GEMMs read; their partial result -> rows of this rank,
 * summed. Backward: the conjugates. regather: the enter again, for the weight gradient. */
guint8 sp_tensor_enter (SpWriter *w, guint8 rows);
guint8 sp_tensor_leave (SpWriter *w, guint8 partial);
guint8 sp_tensor_leave_backward (SpWriter *w, guint8 d_rows);
guint8 sp_tensor_enter_backward (SpWriter *w, guint8 d_partial);
guint8 sp_tensor_regather (SpWriter *w, guint8 rows);
/* Whether enter_backward and regather run beside the products of the backward, which then are written so. */
gboolean sp_tensor_overlaps (const SpWriter *w);
/* Whether the framework keeps what `rows` were gathered to, `whole`, so that nothing is gathered again; if so, it is
 * kept from here on. */
gboolean sp_tensor_keeps (SpWriter *w, guint8 rows, guint8 whole);
/* Columns of a matrix that is split by them, put together, and the other way: those of this rank. */
void sp_tensor_gather_columns (SpWriter *w, gint32 rows, gint32 columns, guint8 part, guint8 whole);
void sp_tensor_own_columns (SpWriter *w, gint32 rows, gint32 columns, guint8 whole, guint8 part);
/* Sums a small fp32 vector over the tensor group, in place (loss, norm of a split row). */
void sp_tensor_sum (SpWriter *w, guint8 vector, guint flags);

/* --- ulysses ------------------------------------------------------------------------------------------------------ */

/* q, k, v [rows, heads of this tensor rank] -> slots of the core (stashed), and the core's o -> [rows, heads]. */
void sp_ulysses_enter (SpWriter *w, guint8 q, guint8 k, guint8 v);
guint8 sp_ulysses_leave (SpWriter *w, guint8 o);
void sp_ulysses_leave_backward (SpWriter *w, guint8 d_o);
void sp_ulysses_enter_backward (SpWriter *w, guint8 *ret_dq, guint8 *ret_dk, guint8 *ret_dv);
/* One operand of a core, of `heads` heads of `size` features in [rows, heads, size]: to all tokens of its heads, and
 * back; itself where nothing is exchanged. Stashed with `keep`, else a temporary. */
guint8 sp_ulysses_heads_out (SpWriter *w, gint32 heads, gint32 size, guint8 in, gboolean keep);
guint8 sp_ulysses_heads_back (SpWriter *w, gint32 heads, gint32 size, guint8 in, gboolean keep);
/* Tokens and heads of the core after the exchange, from those of this tensor rank. */
void sp_ulysses_shape (SpWriter *w, gint32 heads, gint32 kv_heads);
/* A core's q, k, v, or its output where the core's own backward does not read it: stashed where no exchange follows,
 * else a temporary that the exchange reads. */
guint8 sp_ulysses_operand (SpWriter *w, gint64 elements);
/* The same of keys (0) or values (1) of softmax layers. */
guint8 sp_ulysses_key_operand (SpWriter *w, guint which, gint64 elements);

/* --- zero and gradients ------------------------------------------------------------------------------------------- */

/* Opens a flat of the block for the weights that follow; the first, of all that is not said to be in another, is
 * opened with the block. */
void sp_zero_begin_block (SpWriter *w);
void sp_zero_open_flat (SpWriter *w, SpGroupId group, gboolean frozen);
/* muon.c: whether the block's matrices have a flat of their own; what a matrix is; the optimizer's list of that flat. */
gboolean sp_muon_serves (const SpWriter *w);
gboolean sp_muon_is_matrix (const char *name, gint32 rows, gint32 cols);
void sp_muon_write (SpWriter *w, guint flat, guint8 gradients, guint8 updated);
/* FLOP of one matrix. */
double sp_muon_flops (gint64 rows, gint64 cols);

/* What a block has of the tied matrix besides its own weights; 0 for none. */
typedef struct {
  guint8 copy_gradient; /* of a stage's copy of it: summed over the two ends of the pipeline */
  guint8 shard, values; /* the embedding's parameters on this stage, gathered for this block too */
} SpTied;

/* After the weights: sizes the flat buffers and writes GATHER, SYNC and OPTIMIZER. */
void sp_zero_end_weights (SpWriter *w, const SpTied *tied);
/* At the end of a block's BACKWARD. */
void sp_zero_write_copies (SpWriter *w);

/* --- offload ------------------------------------------------------------------------------------------------------ */

/* Before a block's weights; at the start of its FORWARD; at the start of its RECOMPUTE: returns the ops written. */
void sp_offload_begin_block (SpWriter *w);
void sp_offload_input (SpWriter *w);
guint sp_offload_fetch_input (SpWriter *w);

/* --- slices ------------------------------------------------------------------------------------------------------- */

/* Whether what is written is a slice of a sequence. */
gboolean sp_slices_are (const SpWriter *w);
/* Keys (0) or values (1) of the slice, `own` elements, as a part of the sequence's; w->slots.all[which] is then the part
 * up to the slice's end. */
guint8 sp_slices_operand (SpWriter *w, guint which, gint64 own);

/* Gradients of the keys, or values, so far: what the core's backward writes, and, once that is added to what later slices
 * have left, the slice's own, of `features` a token and sequence. */
typedef struct {
  guint8 sum, sum_so_far, own; /* of the sequence, and parts of that */
  guint8 part;                 /* this slice's summand; of the last slice, none */
} SpSliceGradient;

guint8 sp_slices_gradient (SpWriter *w, SpSliceGradient *gradient, gint64 own);
guint8 sp_slices_add (SpWriter *w, const SpSliceGradient *gradient, gint32 features);

/* --- pipeline ----------------------------------------------------------------------------------------------------- */

void sp_pipeline_write (SpWriter *w);

G_END_DECLS
