/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A layout: how one training step is spread over ranks; with the run (sequence, batch) it is all that a program needs
 * besides the architecture and the framework. What is legal is one table of rows (legality.c and the strategies' own
 * rows): each a check, a message and the nearest legal values.
 */

#include <glib.h>

#include "models/inputs/architecture.h"
#include "models/inputs/hardware.h"
#include "models/inputs/packing.h"
#include "sim/program.h"

G_BEGIN_DECLS

/* The loss on logits that are whole on each rank; split over the tensor ranks by vocabulary, as they come out of the
 * split output matrix; the same with the output matrix, the loss and their backwards in one pass over chunks of the
 * tokens (torchtune's CEWithChunkedOutputLoss, ALST's tiled loss); or that in kernels that need no copies (Liger's
 * FusedLinearCrossEntropy). */
typedef enum { SP_LOSS_FULL, SP_LOSS_VOCABULARY, SP_LOSS_CHUNKED, SP_LOSS_FUSED, SP_N_LOSSES } SpLoss;

typedef enum { SP_RECOMPUTE_NONE, SP_RECOMPUTE_SELECTIVE, SP_RECOMPUTE_FULL, SP_N_RECOMPUTES } SpRecompute;

/* What goes around, or is gathered, where a ring has the keys. */
typedef enum { SP_RING_P2P, SP_RING_ALL_GATHER, SP_RING_RSA, SP_RING_DOUBLE, SP_N_RING_KINDS } SpRingKind;

/* What goes around in a ring's backward: keys and values with their gradients, or queries with theirs. */
typedef enum { SP_RING_BACKWARD_KV, SP_RING_BACKWARD_Q, SP_N_RING_BACKWARDS } SpRingBackward;

/* Axes that a rank order lists, fastest (nearest ranks) first. Experts are spread over data and sequence ranks: the
 * nearest of them, or the farthest. */
typedef struct {
  guint8 axis[SP_N_RANK_AXES]; /* SpAxis, each once */
  guint8 experts_far;
} SpOrder;

/* What lies in host memory: bits of SpLayout.offload. */
typedef enum {
  SP_OFFLOAD_OPTIMIZER = 1 << 0,   /* its states, and its kernel runs on the host (ZeRO-Offload, 2101.06840) */
  SP_OFFLOAD_PARAMETERS = 1 << 1,  /* the shards of ZeRO-3 (ZeRO-Infinity, 2104.07857) */
  SP_OFFLOAD_ACTIVATIONS = 1 << 2, /* the layers' inputs that full recompute keeps */
  SP_OFFLOAD_ALL = (1 << 3) - 1
} SpOffload;

/* Axes that have a degree in a layout. */
#define SP_N_DEGREES SP_AXIS_HOST

#define SP_TILES_AUTO (-1)

#define SP_MAX_STAGES 128
#define SP_MAX_VIRTUAL_STAGES 128

typedef struct {
  gint32 data, tensor, pipeline, ulysses, ring, lasp;
  gint32 expert;              /* ranks that experts are spread over, of the data x sequence ranks; no factor of the world */
  double expert_capacity;     /* rows of an expert's buffer over the mean, more are dropped; 0: none is, no padding */
  gint32 lasp_version;        /* 1 or 2 */
  guint8 ring_kind;           /* SpRingKind */
  gboolean ring_keep;         /* gathered keys and values: kept for the backward, not gathered again */
  guint8 ring_backward;       /* SpRingBackward */
  gint32 ring_inner;          /* of a double ring, ranks of the inner one; 0: not said, see sp_layout_ring_in_node */
  guint8 token_split;         /* SpTokenSplit */
  guint8 ring_gradient_dtype; /* SP_DTYPE_FP32 or SP_DTYPE_BF16 */
  gboolean sequence_regions;
  gboolean pipeline_scatter; /* where the framework can, and see sp_layout_scatters */
  gint32 zero;           /* 0 .. 3 */
  gint32 zero_group;     /* of data x sequence ranks, how many share a part, the nearest; 0: all. See ..._in_node */
  gboolean reshard;      /* ZeRO-3: gather again for the backward */
  guint8 gradient_dtype; /* SP_DTYPE_BF16 or SP_DTYPE_FP32: of stored and reduced gradients */
  gboolean overlap;
  guint8 offload;         /* SpOffload bits */
  guint8 recompute;       /* SpRecompute, of the layers that are recomputed */
  gint32 recompute_every; /* of FULL: the K-th, 2 K-th ... layer of each virtual stage (torchtitan), 1: all; */
  gint32 recompute_first; /* the first so many of each (Megatron-LM's method `block`), 0: as the above says */
  guint8 loss;            /* SpLoss; the first two are the same without tensor ranks */
  gint32 loss_chunks;     /* of SP_LOSS_CHUNKED and FUSED; 0: see sp_layout_loss_chunks */
  gint32 mlp_tiles;       /* of a dense MLP, parts of the tokens that it works on one after the other and its backward
                          * computes again, keeping none (ALST, 2506.13996); 1: all at once, SP_TILES_AUTO: see below */
  guint8 schedule;       /* row of the schedule table */
  gint32 virtual_stages; /* chunks of a stage, of a schedule that interleaves */
  gint32 slices;         /* of tokens that the pipeline works on one after the other (strategies/slices.c); 1: none */
  SpOrder order;
  /* Layers of each virtual stage, in the order of the model; [0] = 0: as even as can be, the first ones take the
   * rest. */
  gint32 stage_split[SP_MAX_VIRTUAL_STAGES];
  gint32 slice_split[SP_MAX_SLICES]; /* tokens of each slice, in order; [0] = 0: all alike */
} SpLayout;

typedef enum {
  SP_OPTIMIZER_ADAMW,     /* fp32 master weights and two fp32 moments */
  SP_OPTIMIZER_ADAMW_8BIT, /* moments of one byte, with a scale a block of them (Dettmers et al., 2110.02861) */
  SP_OPTIMIZER_MUON,       /* of the layers' matrices; the rest has AdamW. See strategies/muon.c */
  SP_N_OPTIMIZERS
} SpOptimizer;

extern const char *const sp_optimizer_names[SP_N_OPTIMIZERS + 1]; /* as a scenario has them */

/* Linear layers that have adapters, by their names in PEFT's target_modules: q_proj, k_proj ... down_proj. */
typedef enum {
  SP_LORA_Q = 1 << 0,
  SP_LORA_K = 1 << 1,
  SP_LORA_V = 1 << 2,
  SP_LORA_O = 1 << 3,
  SP_LORA_GATE = 1 << 4,
  SP_LORA_UP = 1 << 5,
  SP_LORA_DOWN = 1 << 6,
  SP_LORA_ATTENTION = SP_LORA_Q | SP_LORA_K | SP_LORA_V | SP_LORA_O,
  SP_LORA_MLP = SP_LORA_GATE | SP_LORA_UP | SP_LORA_DOWN,
  SP_LORA_ALL = SP_LORA_ATTENTION | SP_LORA_MLP
} SpLoraTarget;

/* What is not trained besides the first layers: bits of SpRun.frozen. The head: its norm and the output matrix. */
typedef enum { SP_FREEZE_EMBEDDING = 1 << 0, SP_FREEZE_HEAD = 1 << 1 } SpFreeze;

typedef struct {
  gint64 sequence;     /* tokens */
  gint32 micro_batch;  /* sequences, per replica */
  gint32 global_batch; /* sequences */
  guint8 precision;    /* SP_DTYPE_BF16, FP16 or FP32 of weights and activations */
  gboolean causal;
  guint8 scope; /* SpScope */
  double expert_imbalance; /* tokens that the busiest rank's experts get over the mean; below 1: 1. With a capacity all
                            * buffers are full, so it changes only what is dropped */
  gboolean fp8;            /* linear layers multiply in fp8, both operands cast when they are used; the output matrix not */
  guint8 optimizer;        /* SpOptimizer */
  gint32 lora_rank;         /* of adapters, which alone are trained (Hu et al., 2106.09685); 0: none */
  guint8 lora_targets;      /* SpLoraTarget bits; 0: all */
  guint8 frozen;            /* SpFreeze bits */
  gint32 frozen_layers;     /* the first so many */
  const SpPacking *packing; /* documents that sequences are made of; NULL: each is one */
} SpRun;

/* clang-format off */
#define SP_LAYOUT_DEFAULT_FIELDS                                                                                       \
    .data = 1, .tensor = 1, .pipeline = 1, .ulysses = 1, .ring = 1, .lasp = 1, .expert = 1, .lasp_version = 2,         \
    .token_split = SP_TOKENS_ZIGZAG, .ring_gradient_dtype = SP_DTYPE_FP32, .sequence_regions = TRUE, .zero = 1,        \
    .pipeline_scatter = TRUE, .reshard = TRUE, .gradient_dtype = SP_DTYPE_FP32, .overlap = TRUE, .recompute = SP_RECOMPUTE_NONE, .schedule = 0,  \
    .recompute_every = 1,                                                                                              \
    .loss = SP_LOSS_VOCABULARY, .mlp_tiles = 1,                                                                                        \
    .virtual_stages = 1, .slices = 1,                                                                                  \
    .order = { { SP_AXIS_TENSOR, SP_AXIS_ULYSSES, SP_AXIS_RING, SP_AXIS_LASP, SP_AXIS_DATA, SP_AXIS_PIPELINE }, 0 }
#define SP_LAYOUT_DEFAULT { SP_LAYOUT_DEFAULT_FIELDS }
/* clang-format on */

/* Tokens that a token's attention is about: the sequence's, or of packed documents their mean; and positions that there
 * are. */
double sp_run_keys (const SpRun *run);
gint64 sp_run_positions (const SpRun *run);

/* Sequence ranks S: ulysses x ring where the model has softmax layers, else ulysses x lasp. In a hybrid the linear
 * layers factor the same S as lasp x (S / lasp of their own Ulysses). */
gint32 sp_layout_sequence_ranks (const SpLayout *layout, const SpArchitecture *arch);
gint32 sp_layout_world (const SpLayout *layout, const SpArchitecture *arch);
/* Ranks that hold the same weights, experts apart. */
gint32 sp_layout_replicas (const SpLayout *layout, const SpArchitecture *arch);
gint32 sp_layout_linear_ulysses (const SpLayout *layout, const SpArchitecture *arch);
/* Data x sequence ranks of one node, where the order puts equal parts of them in nodes; else 1. */
gint32 sp_layout_zero_in_node (const SpLayout *layout, const SpArchitecture *arch, gint32 gpus_per_node);
/* Ring ranks that follow each other in a node, where the order puts equal parts of the ring in nodes; else 1. */
gint32 sp_layout_ring_in_node (const SpLayout *layout, const SpArchitecture *arch, gint32 gpus_per_node);
/* Tokens that the busiest rank's experts get over the mean: run.expert_imbalance, and no more than all of them, which is
 * as many times the mean as there are expert ranks. */
double sp_layout_expert_load (const SpLayout *layout, const SpRun *run);
/* Of the tokens' choices of experts, the share that buffers of expert_capacity have no room for, at the least: experts
 * of a rank alike, and the ranks beside the busiest too. */
double sp_layout_expert_dropped (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run);
/* Rows of the buffer of each expert for the tokens that one rank has. */
gint64 sp_layout_expert_rows (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run, gint64 tokens);
gint32 sp_layout_micro_batches (const SpLayout *layout, const SpRun *run);
/* Whether each tensor rank sends its part of the rows alone to the next stage, and those that receive gather them:
 * where the framework does that, and rows are the same on all tensor ranks. */
gboolean sp_layout_scatters (const SpLayout *layout, const SpFramework *framework);
/* Chunks of a stage, and virtual stages of the model. */
gint32 sp_layout_chunks (const SpLayout *layout);
gint32 sp_layout_virtual_stages (const SpLayout *layout);

/* Tokens of a slice, over all sequence ranks. */
gint64 sp_layout_slice_tokens (const SpLayout *layout, const SpRun *run, gint32 slice);

/* Layers of a virtual stage; of all of them the first, and behind the last one's the number of layers. */
gint32 sp_layout_stage_layers (const SpLayout *layout, const SpArchitecture *arch, gint32 virtual_stage);
void sp_layout_write_stages (const SpLayout *layout, const SpArchitecture *arch, gint32 *ret_first);

/* Whether the layer at `index` in its virtual stage is recomputed. */
static inline gboolean
sp_layout_recomputes (const SpLayout *layout, gint32 index)
{
  if (layout->recompute != SP_RECOMPUTE_FULL)
    return layout->recompute != SP_RECOMPUTE_NONE;
  return layout->recompute_first > 0 ? index < layout->recompute_first
                                     : (index + 1) % MAX (layout->recompute_every, 1) == 0;
}
/* Whether it is all of them or none. */
static inline gboolean
sp_layout_recomputes_alike (const SpLayout *layout)
{
  return layout->recompute != SP_RECOMPUTE_FULL || (layout->recompute_first == 0 && layout->recompute_every <= 1);
}

/* Chunks of tokens that the loss is computed in; 1 where it is not. Without a number of its own: of CHUNKED 8, as
 * torchtune's; of FUSED so many that a chunk's logits are no larger than the hidden state, vocabulary / hidden, as
 * Liger's. If the tokens of a rank do not divide by that, the next number that they do divide by, up to 8 times as many,
 * or the one before. */
gint32 sp_layout_loss_chunks (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run);

/* Tiles of the MLPs. AUTO: tokens of a rank / hidden, as DeepSpeed's TiledMLP; taken to what divides as above. */
gint32 sp_layout_mlp_tiles (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run);

/* TRUE, or an error that names the rule, the value and the nearest legal choice. `ranks` = GPUs of the cluster, 0 not
 * to ask. The same table with error == NULL is the search's filter (no allocation, but where so much comes together that
 * the buffers of a block have to be counted). */
gboolean sp_layout_check (const SpLayout *layout, const SpArchitecture *arch, const SpFramework *framework,
                          const SpRun *run, gint32 ranks, GError **error);

/* Digits and groups of the layout, into the program. */
void sp_layout_write_ranks (const SpLayout *layout, const SpArchitecture *arch, SpProgram *program);

/* The legal degrees of an axis with all else as it is, ascending, up to `limit`: for `show layout` and messages. */
GArray *sp_layout_legal_degrees (const SpLayout *layout, const SpArchitecture *arch, const SpFramework *framework,
                                 const SpRun *run, SpAxis axis, gint32 limit);

/* One line, e.g. "ulysses 8 x ring 2, zero 3, recompute selective": degrees of 1 left out. In a hybrid the linear
 * layers' factors of the same ranks stand in parentheses: "ulysses 8 (linear layers: lasp 4 x ulysses 2), zero 1, ...".
 * Free with g_free. */
char *sp_layout_describe (const SpLayout *layout, const SpArchitecture *arch);
const char *sp_ring_kind_name (SpRingKind kind);

#define SP_LAYOUT_ERROR (sp_layout_error_quark ())
GQuark sp_layout_error_quark (void);
typedef enum { SP_LAYOUT_ERROR_ILLEGAL } SpLayoutError;

G_END_DECLS
