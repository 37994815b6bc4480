/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The writer: what strategies and layers use to write a program.
 *
 * sp_program_write (at the end of this file) is what readers call. It writes, for each batch size, each block: weights
 * first, then the forward list, then the backward list; the RECOMPUTE list is derived: the forward ops that rebuild
 * what the backward reads and the layout did not keep. Life times, HBM bytes of kernels and cross-stream waits follow
 * from the operands, so a strategy only says what it does.
 *
 * To add a strategy: one file under strategies/ and one row in strategies.c. To add a kind of layer: one file under
 * layers/ and one row in the table of write.c.
 */

#include "models/layout.h"
#include "models/trained.h"
#include "sim/program.h"

G_BEGIN_DECLS

/* What recompute = selective drops (framework.selective_attention chooses); full drops all. */
typedef enum { SP_TIER_KEEP, SP_TIER_ELEMENTWISE, SP_TIER_SCORES, SP_N_TIERS } SpTier;

typedef struct _SpWriter SpWriter;
typedef struct _SpCore SpCore;

typedef struct {
  guint8 value, grad;
  guint8 lora; /* 1 + index of its adapters in SpWriter.loras, 0: none */
} SpWeightSlots;

/* Adapters of a weight W[out,in]: y += (x A^T) B^T for each section of it that has one, A[rank,in], B[section,rank]. */
#define SP_MAX_LORAS 10
typedef struct {
  const char *name;
  SpWeightSlots a, b;
  gint32 first, out; /* columns of y */
  guint8 z, dz;      /* x A^T, and its gradient */
} SpLoraPart;

typedef struct {
  gint32 in, out;
  guint8 split; /* of the weight: SpSplit */
  guint n_parts;
  SpLoraPart parts[SP_MAX_SECTIONS];
} SpLora;

/* Slots of the attention core, softmax or linear, that the forward leaves for the backward. q, k, v, o are in the shape
 * after the exchange of heads. */
typedef struct {
  guint8 q, k, v, o;
  guint8 lse;          /* softmax: log-sum-exp */
  guint8 scores[3];    /* unfused: softmax output, mask, dropped */
  guint8 all[2];       /* K and V of all places of a ring, where they are gathered and kept; or of a sequence's slices
                          up to this one */
  guint8 state;        /* linear: state from before */
  SpWeightSlots sinks; /* softmax: where the model has them */
  guint8 d_o, dq, dk, dv;
  guint8 gates, beta, d_gates, d_beta; /* of a recurrence */
  SpWeightSlots rates;                 /* of a scan */
  guint rule;                          /* linear: SpOpFlags of a recurrence, 0 with a fixed decay */
  gint32 tokens;                       /* of one sequence, after the exchange */
  gint32 heads, kv_heads;
  gint32 key_size, value_size; /* linear */
} SpCoreSlots;

struct _SpWriter {
  SpProgram *program;
  const SpArchitecture *arch;
  const SpFramework *framework;
  const SpLayout *layout;
  const SpRun *run;

  SpVariant *variant;
  SpBlock *block;
  guint8 offloaded; /* the layer's input in host memory, 0: it is not there */
  guint8 traits;    /* SpLayerKind bits of the block's layers */
  guint8 recompute; /* SpRecompute of the open block */
  SpPhase phase;
  guint segment_start; /* in program->ops */
  guint8 loop;         /* 1 + index of the open loop, 0 none */
  guint flags;         /* of every op: SP_OP_CORE within the attention core */

  gint32 batch;
  gint32 rows;        /* tokens of this rank's sequence part x batch */
  gint32 region_rows; /* the same outside the tensor-split parts */
  gint32 hidden;
  gint32 head_size, value_size;            /* of queries and keys, and of values, in the open block */
  gint32 heads, kv_heads, ffn, vocabulary; /* after the tensor split */
  gint32 expert_ffn, shared_ffn;           /* the same, of an expert and of the shared ones */
  SpGroupId exchange;                      /* the head-exchange group of this block */
  guint8 dtype;                            /* of weights and activations */

  guint most_slots; /* of a block so far */
  guint lacking; /* slots of the open block beyond SP_MAX_SLOTS: what it has is of no use but to count them */
  gboolean state_only; /* weights, GATHER, SYNC and OPTIMIZER, no FORWARD and BACKWARD */
  const SpCore *core;
  SpCoreSlots slots;

  SpLora loras[SP_MAX_LORAS];
  guint n_loras;

  guint8 flat; /* index of the block's flat that weights go to */
  struct {
    gint64 elements; /* of weights, laid out so far */
    gint64 partial;  /* of these, gradients that are partial over the tensor group (first in the flat buffer) */
    guint8 matrices; /* the flat that matrices go to: itself, or with Muon the next one, */
    gboolean is_muon; /* which is this */
  } flats[SP_MAX_FLATS];

  /* Of each slot, what every use of it needs, in one place. */
  struct {
    gint64 traffic; /* bytes of one pass over it */
    guint8 root;    /* the slot, or what it is a view of */
    guint8 stream;  /* on which it was last written, */
    guint16 op;     /* by which op (from 1) */
    guint32 stamp;  /* of which segment */
  } slot[SP_MAX_SLOTS];
  guint32 stamp;                 /* of the open segment; grows over blocks and variants */
  guint16 *first_use, *last_use; /* of the open list, or a place to forget */
  guint16 untracked[SP_MAX_SLOTS];
};

/* An implementation of the attention core. */
struct _SpCore {
  const char *name;
  guint8 block; /* SpBlockKind */
  gboolean (*serves) (const SpWriter *w);
  void (*forward) (SpWriter *w, SpCoreSlots *c);  /* q, k, v -> o and what the backward needs */
  void (*backward) (SpWriter *w, SpCoreSlots *c); /* d_o -> dq, dk, dv */
};

/* --- buffers ---------------------------------------------------------------------------------------------------- */

guint8 sp_write_buffer (SpWriter *w, SpClass class, SpDtype dtype, SpLife life, gint64 elements);
/* In host memory: a stash, or what lives ALWAYS. */
guint8 sp_write_host_buffer (SpWriter *w, SpClass class, SpDtype dtype, SpLife life, gint64 elements);
void sp_write_size (SpWriter *w, guint8 slot, gint64 elements);
guint8 sp_write_view (SpWriter *w, guint8 of, gint64 offset, gint64 elements);
/* A view of one of the open loop's equal parts of a buffer, the next one at each step. */
guint8 sp_write_tile (SpWriter *w, guint8 of);
/* Activations: a temporary of one list, and one that the backward reads. */
guint8 sp_write_temporary (SpWriter *w, gint64 elements);
guint8 sp_write_temporary_of (SpWriter *w, SpDtype dtype, gint64 elements);
guint8 sp_write_stash (SpWriter *w, SpTier tier, gint64 elements);
/* Of what is handed from layer to layer. */
static inline SpDtype
sp_residual_dtype (const SpWriter *w)
{
  return w->framework->autocast ? SP_DTYPE_FP32 : w->dtype;
}
guint8 sp_write_stash_of (SpWriter *w, SpTier tier, SpDtype dtype, gint64 elements);

/* --- weights ---------------------------------------------------------------------------------------------------- */

/* Declares a weight of the open block, in the flat that is open (w->flat; sp_zero_open_flat). Local shape. `sections`: NULL or the local rows of each of n_sections. Weights
 * whose gradient each tensor rank has only a part of (`partial`) must come before the others of their flat. In a frozen
 * flat there is no grad: what would write it writes nothing. */
SpWeightSlots sp_write_weight (SpWriter *w, const char *name, gint32 rows, gint32 cols, SpSplit split,
                               const gint32 *sections, guint n_sections, gboolean partial);

/* The same of `experts` stacked weights of rows x cols each. */
SpWeightSlots sp_write_expert_weight (SpWriter *w, const char *name, gint32 experts, gint32 rows, gint32 cols,
                                      SpSplit split, const gint32 *sections, guint n_sections);

/* --- ops -------------------------------------------------------------------------------------------------------- */

void sp_write_begin (SpWriter *w, SpPhase phase);
void sp_write_end (SpWriter *w);

/* A new op, all zero but its kind and the open loop; fill it, then sp_write_op_done before the next. That adds the
 * writer's flags. */
SpOp *sp_write_op (SpWriter *w, SpOpKind kind);
/* Adds uses, waits and, for kernels whose `bytes` is 0, the HBM traffic: every operand once (accumulated ones
 * twice). */
void sp_write_op_done (SpWriter *w, SpOp *op);

/* c[m,n] (+)= a b; see SP_OP_GEMM. `bias` may be 0. */
void sp_write_gemm (SpWriter *w, gint32 m, gint32 n, gint32 k, guint8 a, guint8 b, guint8 c, guint8 bias, guint flags);
/* The same `batch` times, of operands that follow each other. */
void sp_write_gemms (SpWriter *w, gint32 batch, gint32 m, gint32 n, gint32 k, guint8 a, guint8 b, guint8 c, guint8 bias,
                     guint flags);
/* The three GEMMs of a linear layer y[m,out] = x[m,in] W[out,in]^T. */
void sp_write_linear (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 x, SpWeightSlots weight, guint8 bias,
                      guint8 y);
void sp_write_linear_dgrad (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, SpWeightSlots weight, guint8 dx);
void sp_write_linear_wgrad (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, guint8 x, SpWeightSlots weight);
/* The second, added to dx and not in fp8. */
void sp_write_linear_dgrad_add (SpWriter *w, gint32 m, gint32 out, gint32 in, guint8 dy, SpWeightSlots weight,
                                guint8 dx);
/* Whether the third writes anything, and so reads x. */
gboolean sp_weight_learns (SpWeightSlots weight);
/* Makes a stash of a temporary, for what the backward reads of another part's output. */
void sp_write_keep (SpWriter *w, guint8 slot, SpTier tier);
/* Any kernel of [m, n] with up to three inputs and two outputs. */
SpOp *sp_write_rows (SpWriter *w, SpOpKind kind, gint32 m, gint32 n, guint8 in0, guint8 in1, guint8 in2, guint8 out0,
                     guint8 out1, guint flags);
/* Where the framework casts the input of each of `matrices` that the program has as one: the casts beyond the first,
 * kept as autograd keeps them, although nothing reads them here. */
void sp_write_autocast (SpWriter *w, guint8 x, gint32 m, gint32 n, guint matrices);
/* Bias gradient, where the bias is there; and those of `batch` biases that follow each other, m rows each. */
void sp_write_bias_grad (SpWriter *w, gint32 m, gint32 n, guint8 dy, SpWeightSlots bias);
void sp_write_bias_grads (SpWriter *w, gint32 batch, gint32 m, gint32 n, guint8 dy, SpWeightSlots bias, guint flags);

/* The last op waits for what another stream has written to the slot, as if it read it. */
void sp_write_wait_for (SpWriter *w, guint8 slot);

/* A collective: payload from the buffers, by the definition of `payload` in program.h. */
void sp_write_collective (SpWriter *w, SpOpKind kind, SpGroupId group, SpAxis axis, SpStream stream, guint8 in,
                          guint8 out, guint flags);
/* A message of one or two buffers; 0 for none. */
void sp_write_message (SpWriter *w, SpOpKind kind, SpGroupId group, SpAxis axis, SpStream stream, guint8 in0,
                       guint8 in1, guint8 out0, guint8 out1, guint flags, guint guard);

/* A copy to or from host memory, of as many elements as `of` has. */
void sp_write_host_copy (SpWriter *w, SpOpKind kind, SpStream stream, guint8 in, guint8 out, guint flags);

SpLoop *sp_write_loop_begin (SpWriter *w, SpGroupId ring);
/* A loop over `tiles` equal parts of the rows. Gradients of weights in it are no part of their own of a backward that is
 * split: what they read does not outlive its tile. */
SpLoop *sp_write_tiles_begin (SpWriter *w, gint32 tiles);
void sp_write_loop_end (SpWriter *w, SpLoop *loop);
/* What is used in a loop is used until its end, but for what ends with a tile. For lists that are written without the two above. */
void sp_write_loop_uses (SpBlock *block, const SpLoop *loop);

/* --- what the layers share ---------------------------------------------------------------------------------------- */

typedef struct {
  SpWeightSlots gain, bias;
  guint8 x, y, statistics;
  guint flags; /* SP_OP_LAYERNORM, or 0: RMS */
  gint32 rows, features;
} SpNormSlots;

/* Normalisation of [rows, features]; the backward adds `residual` (0 for none). The result is a stash, or goes to `y`.
 * One without sp_write_norm_weights is RMS, whatever the model's norms are, with the gain that the caller declares. */
void sp_write_norm_weights (SpWriter *w, SpNormSlots *norm, const char *name, gint32 features);
void sp_write_norm (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 rows, gint32 features);
void sp_write_norm_to (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 rows, gint32 features, guint8 y);
void sp_write_norm_backward (SpWriter *w, const SpNormSlots *norm, guint8 dy, guint8 residual, guint8 dx);

/* y = x + dropout (branch + bias), as the architecture has them; the backward gives the branch's gradient. */
typedef struct {
  SpWeightSlots bias;
  guint8 mask;
} SpResidualSlots;

void sp_write_residual (SpWriter *w, SpResidualSlots *r, guint8 x, guint8 branch, guint8 y);
guint8 sp_write_residual_backward (SpWriter *w, const SpResidualSlots *r, guint8 dy);

/* The experts of a layer, and the dense ones beside them: an MLP branch. */
typedef struct {
  SpWeightSlots router, shared_gate, shared_up, shared_down, up, down;
  SpWeightSlots router_bias, up_bias, down_bias; /* where the model has them */
  gint32 local;                         /* experts of this rank */
  gint32 rows;                          /* of an expert's buffer, from one rank */
  guint8 logits, weights, slots, input; /* input: the tokens that came, by expert */
  guint8 gate_up, act, output;          /* output: what came back, by slot */
  guint8 shared_gate_up, shared_act, shared_out, shared_logit;
} SpExpertSlots;

/* --- a layer: layers/layer.c -------------------------------------------------------------------------------------- */

/*
 * A layer is one or two BRANCHES, a mixer of tokens and an MLP, in one of the forms of SpForm: what norms, residuals and
 * biases of the output there are around a branch, the form says (layer.c), and a branch knows nothing of it.
 *
 * Rows. Outside the branches a tensor rank has the rows of its own ("rows"). A branch that is split over tensor ranks
 * asks for all of them (sp_branch_whole, and in the backward sp_branch_again for weight gradients and sp_branch_d_whole)
 * and gives its summand of the result, `is_partial`; one that is not gives rows. So branches that share an input or a
 * gradient, as in the parallel forms, share what gathers it, and their summands are added before the one reduction.
 */
typedef struct {
  guint8 rows, whole, again; /* the input; the last two 0 until they are asked for */
  guint8 d_rows, d_whole;    /* the gradient of the output */
  gboolean is_alone;         /* nothing is added to the gradient of the input before it is summed over tensor ranks */
} SpPort;

typedef struct {
  guint8 slot;
  gboolean is_partial;
} SpRows;

/* Weights are declared in this order, in passes over both branches. */
typedef enum {
  SP_WEIGHTS_PARTIAL, /* each tensor rank has a part of the gradient: shared by heads that are split */
  SP_WEIGHTS_REGIONS, /* the same with sequence regions: of rows */
  SP_WEIGHTS_OWN      /* none of these */
} SpWeightPass;

typedef struct {
  void (*weights) (SpWriter *w, gpointer self, SpWeightPass pass);
  SpRows (*forward) (SpWriter *w, gpointer self, SpPort *port);
  /* To the gradient of the input. */
  SpRows (*backward) (SpWriter *w, gpointer self, SpPort *port);
} SpBranch;

guint8 sp_branch_whole (SpWriter *w, SpPort *port);
guint8 sp_branch_again (SpWriter *w, SpPort *port);
/* The same for the gradient of one weight: 0 where that is not taken. */
guint8 sp_branch_again_for (SpWriter *w, SpPort *port, SpWeightSlots weight);
guint8 sp_branch_d_whole (SpWriter *w, SpPort *port);
/* The backward of a matrix of `width` that takes all of the branch's input: to the gradient of the input, with those of
 * the matrix and its bias, in the order that the framework has them (overlaps_tensor). */
SpRows sp_branch_input_backward (SpWriter *w, SpPort *port, gint32 width, guint8 d_out, SpWeightSlots weight,
                                 SpWeightSlots bias);

void sp_write_layer (SpWriter *w, const SpBranch *mixer, gpointer self);

/* layers/mlp.c: up (and gate), activation, down; self is an SpMlp. */
typedef struct {
  SpWeightSlots up, up_bias, down;
  guint8 gate_up, act, gate; /* gate: f of it, where it is a tensor of its own; else 0 */
} SpMlp;

extern const SpBranch sp_mlp_branch;
/* Of the op that is the activation. */
guint sp_mlp_flags (SpMlpKind kind);
/* layers/experts.c: self is an SpExpertSlots. */
extern const SpBranch sp_experts_branch;

/* layers/lora.c: to a weight that was just declared, adapters; `targets`: SpLoraTarget of each of its sections. Their
 * own weights come after the layer's others. The rest is for the GEMMs of a linear layer; `narrow` is the first half of
 * the forward. */
void sp_lora_attach (SpWriter *w, SpWeightSlots *weight, const guint8 *targets);
void sp_lora_write_weights (SpWriter *w);
void sp_lora_forward (SpWriter *w, guint lora, gint32 m, guint8 x, guint8 y);
void sp_lora_narrow (SpWriter *w, guint lora, gint32 m, guint8 x);
void sp_lora_dgrad (SpWriter *w, guint lora, gint32 m, guint8 dy, guint8 dx);
void sp_lora_wgrad (SpWriter *w, guint lora, gint32 m, guint8 dy, guint8 x);

/* SP_OP_GATE and its backward on all rows, with the gates at the end of rows of gates_width; flags: SP_OP_SILU or 0. */
void sp_write_gate (SpWriter *w, SpOpKind kind, gint32 n, gint32 gates_width, const guint8 in[3], guint8 out0,
                    guint8 out1, guint flags);

/* The attention core with its exchange of heads, flagged SP_OP_CORE: q, k, v -> output, [rows, heads], and back. */
guint8 sp_write_core (SpWriter *w, guint8 q, guint8 k, guint8 v);
void sp_write_core_backward (SpWriter *w, guint8 d_out, guint8 *ret_dq, guint8 *ret_dk, guint8 *ret_dv);
/* The same of a recurrence, of the shape's heads on this tensor rank. What goes in, before the exchange, stands in
 * w->slots: the rule, q, k, v and, 0 where there are none, gates and beta; so do the gradients after the backward. */
guint8 sp_write_recurrent_core (SpWriter *w, const SpLinearShape *shape);
void sp_write_recurrent_core_backward (SpWriter *w, const SpLinearShape *shape, guint8 d_out);
/* Values past it, scaled a head: added to `out` in place; and the values' gradient on both ways, of which `dv` is the
 * core's. */
void sp_write_skip (SpWriter *w, const SpLinearShape *shape, SpWeightSlots scale, guint8 v, guint8 out);
guint8 sp_write_skip_backward (SpWriter *w, const SpLinearShape *shape, SpWeightSlots scale, guint8 v, guint8 d_out,
                               guint8 dv);

/* A norm of whole rows [rows, features], split over the tensor ranks: of linear layers' outputs. */
void sp_write_row_norm (SpWriter *w, SpNormSlots *norm, guint8 x, gint32 features);
void sp_write_row_norm_backward (SpWriter *w, const SpNormSlots *norm, guint8 dy, guint8 dx);

/* The short convolution of linear layers over [rows, features]. */
typedef struct {
  SpWeightSlots weight, bias;
  gint32 features, width;
  guint8 in, halo; /* the halo: last rows of the place before */
} SpConvSlots;

void sp_write_conv_weights (SpWriter *w, SpConvSlots *c, const SpLinearShape *shape, gint32 features,
                            const gint32 *sections, guint n_sections);
/* The output, stashed in `tier` or, with SP_N_TIERS, a temporary; and the gradient of the input. */
guint8 sp_write_conv (SpWriter *w, SpConvSlots *c, guint8 in, SpTier tier);
guint8 sp_write_conv_backward (SpWriter *w, const SpConvSlots *c, guint8 d_out);

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void sp_write_embedding (SpWriter *w);
void sp_write_softmax_layer (SpWriter *w);
void sp_write_latent_layer (SpWriter *w); /* of the softmax layers, those of latent attention */
void sp_write_linear_layer (SpWriter *w); /* of any family */
void sp_write_transnormer_layer (SpWriter *w);
void sp_write_recurrent_layer (SpWriter *w);
void sp_write_mamba_layer (SpWriter *w);
void sp_write_head (SpWriter *w);

/* --- the program -------------------------------------------------------------------------------------------------- */

/* Writes the program of a legal layout (sp_layout_check passed) into `program`, whatever it held. Nothing is allocated
 * once `program` has grown. */
void sp_program_write (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework,
                       const SpLayout *layout, const SpRun *run);
/* Buffers of the block that has the most of them, which may be more than a program has room for: for the check, which
 * refuses that. `program` is written over and then of no use. */
guint sp_program_count_slots (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework,
                              const SpLayout *layout, const SpRun *run);
/* Without the blocks' work: the frame, weights and the GATHER, SYNC and OPTIMIZER lists of variant 0. */
void sp_program_write_state (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework,
                             const SpLayout *layout, const SpRun *run);
/* The part without blocks: ranks, stages, layers, micro-batches and the variants' batch sizes. */
void sp_program_write_frame (SpProgram *program, const SpArchitecture *arch, const SpLayout *layout, const SpRun *run);

G_END_DECLS
