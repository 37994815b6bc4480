/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The program: what every GPU does in one training step.
 *
 * models/ writes it from (architecture, layout, batch); the estimate prices it, the simulator runs it in simulated
 * time, the rehearsal runs it on real numbers, the executor runs it on GPUs. No reader knows a strategy: all that a
 * strategy means stands in the ops (sim/op.h).
 *
 * Shape. Nothing is written out per layer, micro-batch or rank:
 *  - a BLOCK is a kind of layer (or the embedding, or the head with the loss); layers of which some are recomputed and
 *    some are not are two. It has one table of buffers and one op
 *    list per PHASE. A model is a sequence of block instances ("layers"), cut into pipeline stages.
 *  - ranks differ by their place in a GROUP (a set of mixed-radix digits of the rank number) and ops carry GUARDS on
 *    the place; there are no op lists per rank.
 *  - a ring is a LOOP written once; buffers that travel around it are CARRIED. So is work that is done tile by tile:
 *    views of whole buffers MOVE on with each step.
 *  - the order in which a stage runs its slots (forward or backward of a micro-batch) is the SCHEDULE.
 *
 * Where a step's time goes, in order, on a rank of stage s:
 *    for each slot (phase, chunk, micro-batch) of the schedule:
 *      forward slot:  pipe-receive, pipe-gather; for each layer of the chunk: GATHER, FORWARD; pipe-send
 *      backward slot: pipe-receive, pipe-gather; for each layer, last to first: GATHER (if it was resharded), RECOMPUTE,
 *                     BACKWARD, SYNC (ops flagged SP_OP_PER_MICRO_BATCH); pipe-send
 *    for each layer, last to first: SYNC (ops not flagged so);  for each layer: OPTIMIZER
 * sim/walk.h goes through it. A chunk is one of the virtual stages that a stage holds (sim/schedules.h), plainly the
 * only one; first and last in the lines above are the model's order.
 * Once-a-step lists (OPTIMIZER, and the ops of SYNC not flagged) are variant 0's. Parameters that ZeRO-3 keeps gathered
 * are gathered for each micro-batch all the same, as FSDP does; and for each slice of one, though they are there.
 * The backward list mixes backward-input and backward-weight ops in the order an eager framework issues them; each op
 * is flagged, so that a schedule that splits them runs the list twice, filtered: the first time with GATHER, RECOMPUTE
 * and the pipeline's ops, the second time with SYNC.
 * The SCOPE may be less than a step (SpScope): then only part of the above is walked. Blocks, groups and stages are the
 * same, and so is what each op costs.
 *
 * Units. Bytes are int64 counts, FLOP are counted in double. Shapes are in elements. `bytes` of a kernel is its HBM
 * traffic, of a communication its PAYLOAD as nccl-tests counts sizes: the full (unsharded) buffer of an all-gather or
 * reduce-scatter, the buffer of an all-reduce, the whole send buffer of an all-to-all, the message of a send.
 *
 * Tokens are stored sequence-major: row (s * batch + b) of a [tokens, features] matrix, so that gathering the sequence
 * over ranks is concatenation.
 *
 * Ownership. SpProgram owns all its arrays; they are grown, never shrunk, so a search that writes programs into the
 * same SpProgram allocates nothing. Programs are plain data: no pointers into models/.
 */

#include <glib.h>

#include "sim/buffer.h"
#include "sim/op.h"
#include "sim/schedules.h"

G_BEGIN_DECLS

#define SP_PROGRAM_VERSION 4

/* What communication is accounted under. */
typedef enum {
  SP_AXIS_TENSOR,
  SP_AXIS_ULYSSES,
  SP_AXIS_RING,
  SP_AXIS_LASP,
  SP_AXIS_DATA, /* gradient reduction and ZeRO, over data x sequence ranks */
  SP_AXIS_PIPELINE,
  SP_AXIS_EXPERT, /* a second use of data and sequence ranks: it has no digits of its own */
  SP_AXIS_HOST,   /* between a GPU and its host memory: no ranks */
  SP_N_AXES
} SpAxis;

#define SP_N_RANK_AXES SP_AXIS_EXPERT /* those that have digits */

typedef enum {
  SP_STREAM_COMPUTE,
  SP_STREAM_TENSOR,
  SP_STREAM_SEQUENCE, /* ulysses, ring, lasp, expert */
  SP_STREAM_OUTER,    /* the outer ring of a double one: runs beside whole loops */
  SP_STREAM_DATA,
  SP_STREAM_PIPELINE,
  SP_STREAM_OFFLOAD, /* copies to and from host memory */
  SP_STREAM_HOST,
  SP_N_STREAMS
} SpStream;

/* --- ranks ---------------------------------------------------------------------------------------------------- */

/* rank = sum over digits of value * stride. Digits are stored in order of stride; an axis may own several digits. */
typedef struct {
  guint8 axis; /* SpAxis */
  gint32 size;
  gint32 stride; /* in ranks */
} SpDigit;

#define SP_MAX_DIGITS 12

typedef enum {
  SP_GROUP_NONE,
  SP_GROUP_TENSOR,
  SP_GROUP_ULYSSES,        /* the ranks that exchange heads for tokens in softmax layers */
  SP_GROUP_RING,           /* the ranks of one ring */
  SP_GROUP_RING_INNER,     /* where a ring is cut in two: of its ranks the near ones ... */
  SP_GROUP_RING_OUTER,     /* ... and those that differ in the rest; place = inner + outer x inner's size */
  SP_GROUP_ULYSSES_LINEAR, /* as ULYSSES, for linear layers */
  SP_GROUP_LASP,           /* the chain (LASP) or the gather (LASP-2) of states */
  SP_GROUP_SEQUENCE,       /* all ranks that share one sequence: place = index of the sequence part (contiguous) */
  SP_GROUP_DATA,           /* replicas that see other sequences */
  SP_GROUP_ZERO,           /* data x sequence: ranks that hold the same weights, but for experts'; of a hybrid shard
                              those that share them among each other, and ... */
  SP_GROUP_REPLICA,        /* ... the rest of data x sequence: ranks that hold the same part */
  SP_GROUP_EXPERT,         /* of these, the ones that experts are spread over; place = index of the experts' part */
  SP_GROUP_EXPERT_DATA,    /* the rest of ZERO: ranks that hold the same experts; of one where there are none */
  SP_GROUP_PIPELINE,
  SP_GROUP_SELF,   /* the rank alone: what it exchanges with its host */
  SP_GROUP_TIE,    /* first and last pipeline stage, for tied embeddings; place 0 and 1 */
  SP_GROUP_MIRROR, /* stages s and p - 1 - s, which hold the same layers under a mirrored schedule; place 0 the lower */
  SP_N_GROUPS
} SpGroupId;

/* Members differ in the listed digits. A rank's PLACE in the group is the mixed-radix number of those digits,
 * digits[0] least significant: the logical order, whatever the strides. */
typedef struct {
  gint32 size;
  guint8 n_digits;
  guint8 digits[SP_MAX_DIGITS]; /* indices into SpProgram.digits */
} SpGroup;

/* --- loops ---------------------------------------------------------------------------------------------------- */

/* Buffers that move around a ring. At step s (from 0) slot `current` is `init` if s = 0 (if init is 0: fresh), else
 * what `next` was at step s - 1; the two memories alternate. After the loop `current` is what arrived last. */
typedef struct {
  guint8 init, current, next;
} SpCarry;

/* Of a loop over tiles (group NONE, no carries) what is written and read within one step, life SEGMENT and none of the
 * views that move lie in it, ends with the step; what else is used in a loop is used until its end. */

#define SP_MAX_CARRIES 6
#define SP_MAX_LOOPS 52 /* of a double ring of 16 rounds 3 a round, and 3 of tiles */

typedef struct {
  guint8 phase; /* SpPhase whose list it stands in */
  guint8 group; /* the ring: steps = its size; NONE: tiles, as many as it says */
  guint8 round; /* of RING_INNER: hops around RING_OUTER that what its carries start from has behind it */
  gint32 steps;
  guint16 first, end; /* ops [first, end) of the segment */
  guint8 n_carries;
  SpCarry carries[SP_MAX_CARRIES];
} SpLoop;

/* --- blocks, segments ----------------------------------------------------------------------------------------- */

typedef enum {
  SP_PHASE_GATHER,
  SP_PHASE_FORWARD,
  SP_PHASE_RECOMPUTE,
  SP_PHASE_BACKWARD,
  SP_PHASE_SYNC,
  SP_PHASE_OPTIMIZER,
  SP_N_PHASES
} SpPhase;

typedef struct {
  guint32 first; /* index into SpProgram.ops */
  guint32 n;
} SpSegment;

/* Parameters that are not trained; of the last, those before them are not either, so that BACKWARD is empty: the
 * block's turn in the backward does not come, and nothing is handed to it. */
typedef enum { SP_FROZEN_NOT, SP_FROZEN_PARAMETERS, SP_FROZEN_FORWARD_ONLY, SP_N_FROZENS } SpFrozen;

typedef enum { SP_BLOCK_EMBEDDING, SP_BLOCK_SOFTMAX, SP_BLOCK_LINEAR, SP_BLOCK_HEAD, SP_N_BLOCK_KINDS } SpBlockKind;

typedef struct {
  guint8 kind;      /* SpBlockKind */
  guint8 traits;    /* of a layer, what else tells its kind from the model's others; 0 is plain. Names alone use it */
  guint8 recomputes; /* 1: the layout has its layers recomputed, in part or whole */
  guint8 frozen;     /* SpFrozen: what tells layers of one kind apart, some of which are not trained */
  guint8 n_buffers; /* slots 1 .. n_buffers - 1 */
  guint8 n_loops;
  guint8 n_weights;
  guint8 regather; /* what was gathered ends with FORWARD; GATHER again before BACKWARD, if there is one */
  guint8 n_flats;
  double attention_pairs; /* of packed documents on a ring: those of one head and sequence that the mean place has. Its
                           * attention is priced with the slowest place's at each step. 0: as priced */
  SpFlat flats[SP_MAX_FLATS];
  SpSegment segments[SP_N_PHASES];
  SpLoop loops[SP_MAX_LOOPS];
  SpWeight weights[SP_MAX_WEIGHTS];
  SpBuffer buffers[SP_MAX_SLOTS];
  /* first and last use of each slot: [0] in FORWARD, [1] in RECOMPUTE then BACKWARD counted as one list; op index + 1,
   * 0 = not used; an async op uses what it reads and writes up to the last op that may run beside it */
  guint16 first_use[2][SP_MAX_SLOTS];
  guint16 last_use[2][SP_MAX_SLOTS];
} SpBlock;

#define SP_MAX_BLOCKS 18 /* 8 kinds of layers, recomputed or not, and the ends */
#define SP_MAX_SLICES 128
#define SP_MAX_VARIANTS (2 * SP_MAX_SLICES)

/* The blocks at one size of what a slot is of. Variant 0 is the full micro-batch; variant 1, where it exists, the smaller
 * last one. Of sequences in slices each slice has a variant, and those of the smaller last micro-batch come after all of the
 * full one's. Slots and parameters are the same in all. blocks[0] is the embedding, blocks[n_blocks - 1] the head. */
typedef struct {
  gint32 batch;         /* sequences */
  gint64 first, tokens; /* of a slice: its part of a sequence, of which each sequence rank has an equal one, in order */
  SpBlock blocks[SP_MAX_BLOCKS];
  /* Forward; the backward runs them with SP_OP_REVERSE on DX and DY. To and from the stage of the neighbouring virtual
   * stage, which may be at the pipeline's other end. */
  SpOp pipe_send, pipe_receive;
  /* What follows a receive where each tensor rank got its own part of X (or DY): they put them together. No op, or one. */
  SpSegment pipe_gather;
} SpVariant;

/* A gather or scatter of ZeRO's shards, which eager frameworks do in hooks. */
static inline gboolean
sp_op_moves_shards (const SpOp *op)
{
  return op->stream == SP_STREAM_DATA && (op->kind == SP_OP_ALL_GATHER || op->kind == SP_OP_REDUCE_SCATTER);
}

/* What of the step is run. Those of one layer need one stage of one chunk. */
typedef enum {
  SP_SCOPE_STEP,
  SP_SCOPE_FORWARD,           /* the forward slots alone */
  SP_SCOPE_LAYER,             /* FORWARD, RECOMPUTE and BACKWARD of the first layer for the first micro-batch */
  SP_SCOPE_ATTENTION,         /* as LAYER, of which only ops flagged SP_OP_CORE */
  SP_SCOPE_ATTENTION_FORWARD, /* of that only FORWARD */
  SP_N_SCOPES
} SpScope;

/* How the tokens of a sequence lie on the ranks. */
typedef enum { SP_TOKENS_CONTIGUOUS, SP_TOKENS_ZIGZAG, SP_TOKENS_STRIPED, SP_N_TOKEN_SPLITS } SpTokenSplit;

typedef struct {
  /* What a kernel needs to know besides its op. */
  double norm_epsilon, rope_theta, dropout, learning_rate, adam_beta1, adam_beta2, adam_epsilon;
  double muon_momentum;              /* 0: there is no MOMENTUM */
  gint32 heads, kv_heads, head_size; /* of the whole model */
  gint32 linear_heads;               /* of its linear layers */
  gint32 hidden, vocabulary;
  double expert_imbalance; /* of ops flagged SP_OP_VARIES: what the busiest rank does over the mean; 0 where none is */
  double expert_dropped;   /* share of what tokens ask of experts that these have no room for, at the least */
  gint32 position_offset; /* rows of a table of positions before the first position's */
} SpNumbers;

/* Packed documents: runs of the same length, in their order. They are put one behind the other, and gone through again
 * after the last; sequence s of the global batch has tokens from s * sequence on, and what a sequence cuts off a document
 * begins the next one as another. A query sees keys of its own document alone, and positions start at 0 with each. */
typedef struct {
  gint64 length; /* tokens of each */
  gint64 count;
} SpDocuments;

#define SP_MAX_DOCUMENTS 4096 /* runs that a program keeps */

typedef struct {
  SpDigit digits[SP_MAX_DIGITS];
  guint n_digits;
  SpGroup groups[SP_N_GROUPS];
  gint32 world;

  gint64 sequence;         /* tokens of one sequence */
  gint64 local_sequence;   /* of one sequence on one rank of the sequence group */
  guint8 token_split;      /* SpTokenSplit */
  guint8 sequence_regions; /* 1: outside the tensor-split parts, rows are split again over the tensor group */
  guint8 zero_stage;
  guint8 offloads; /* 1: some buffers lie in host memory */
  guint8 packed;   /* 1: sequences are packed documents, */
  guint n_documents; /* of these runs; 0: of more than a program keeps */
  SpDocuments *documents;
  gint32 global_batch;  /* sequences */
  gint32 micro_batches; /* a rank runs */
  gint32 slices;        /* of each (sim/schedules.h); 0: they are whole */
  gint32 n_variants;

  guint n_blocks;
  guint8 *layer_block; /* [n_layers] block index of each layer, embedding and head not among them */
  guint n_layers;
  gint32 *stage_first; /* [virtual stages + 1] first layer of each; the first has the embedding, the last the head */
  gint32 stages;       /* of the pipeline: ranks */
  gint32 chunks;       /* virtual stages that each holds */
  guint8 schedule;     /* row of the schedule table; says which */
  guint8 scope;        /* SpScope */

  SpNumbers numbers;
  SpVariant *variants; /* [n_variants]; two there always are */
  SpOp *ops;
  guint n_ops;
  guint ops_capacity;
  guint layers_capacity, stages_capacity, documents_capacity; /* stages_capacity: of stage_first's numbers */
  guint variants_capacity;
} SpProgram;

SpProgram *sp_program_new (void);
void sp_program_free (SpProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpProgram, sp_program_free)

/* Makes room for `n` variants and has as many. */
void sp_program_set_variants (SpProgram *program, gint32 n);

/* Micro-batches to the schedule: with slices all of theirs, numbered as sim/schedules.h says; and of such a number the
 * micro-batch and the slice. */
static inline gint32
sp_program_slices (const SpProgram *program)
{
  return MAX (program->slices, 1);
}

static inline gint32
sp_program_runs (const SpProgram *program)
{
  return program->micro_batches * sp_program_slices (program);
}

static inline gint32
sp_program_micro_batch_of (const SpProgram *program, gint32 number)
{
  return number / sp_program_slices (program);
}

static inline gint32
sp_program_slice_of (const SpProgram *program, gint32 number)
{
  return number % sp_program_slices (program);
}

/* "micro-batch 3", or "micro-batch 3, slice 1". */
void sp_program_append_number (const SpProgram *program, gint32 number, GString *out);

/* Which variant such a number runs; -1, of the step: the first. */
static inline gint32
sp_program_variant_of (const SpProgram *program, gint32 number)
{
  gint32 slices = sp_program_slices (program);
  gboolean is_small = program->n_variants > slices && number >= (program->micro_batches - 1) * slices;

  return number < 0 ? 0 : number % slices + (is_small ? slices : 0);
}

/* The variant of the step's last backward. */
static inline gint32
sp_program_last_variant (const SpProgram *program)
{
  return program->n_variants - sp_program_slices (program);
}

/* Tokens of a sequence that a rank has in a variant. */
static inline gint64
sp_program_local_tokens (const SpProgram *program, const SpVariant *variant)
{
  return variant->tokens > 0 ? variant->tokens / program->groups[SP_GROUP_SEQUENCE].size : program->local_sequence;
}

static inline SpPipeline
sp_program_pipeline (const SpProgram *program)
{
  return (SpPipeline){ .stages = program->stages,
                       .chunks = program->chunks,
                       .micro_batches = program->micro_batches,
                       .uneven = program->n_variants > sp_program_slices (program),
                       .slices = program->slices };
}

/* Ops of one phase of a block of a variant. */
static inline const SpOp *
sp_program_segment (const SpProgram *program, const SpBlock *block, SpPhase phase, guint *ret_n)
{
  *ret_n = block->segments[phase].n;
  return program->ops + block->segments[phase].first;
}

static inline gboolean
sp_block_has_backward (const SpBlock *block)
{
  return block->frozen != SP_FROZEN_FORWARD_ONLY;
}

/* Whether its BACKWARD sums gradients that SYNC scatters; and whether `slot` is such, no view, that an async op of SYNC
 * reads: then it is held over in the eager order (sim/walk.h). */
gboolean sp_block_sums (const SpBlock *block);
gboolean sp_block_holds_over (const SpProgram *program, const SpBlock *block, guint slot);

/* The last op of its list that may run beside async op `index` of it, counted among those for which
 * (flags & mask) == wanted: what the op reads and writes lives until then. It is over where an op that runs at all
 * places waits for it, at the end of its loop's step (on the outer stream, of its list) or of the list: sim/engine.h; if
 * that is in a loop that it is not in itself, the last op of that loop. Of an op that is not async, or is on a stream that
 * lists do not wait for at their end, `index`. */
guint sp_block_last_beside (const SpProgram *program, const SpBlock *block, SpPhase phase, guint index, guint wanted,
                            guint mask);

/* Whether GATHER comes before FORWARD, and again before BACKWARD. What is kept between the two is kept from a sequence's
 * first FORWARD to its last BACKWARD, which are its first slice's: the others gather nothing. */
static inline gboolean
sp_block_gathers (const SpBlock *block, const SpVariant *variant)
{
  return block->regather || variant->first == 0;
}

static inline gboolean
sp_block_gathers_again (const SpBlock *block)
{
  return block->regather && sp_block_has_backward (block);
}

/* Virtual stages of the model, and which one chunk `chunk` of a stage is. */
static inline gint32
sp_program_virtual_stages (const SpProgram *program)
{
  return sp_schedule_virtual_stages (sp_schedule_get (program->schedule), program->stages, program->chunks);
}

static inline gint32
sp_program_virtual_stage (const SpProgram *program, gint32 stage, gint32 chunk)
{
  return sp_schedule_virtual_stage (sp_schedule_get (program->schedule), program->stages, stage, chunk);
}

/* Whether one layer is run, for one micro-batch, and nothing around it. */
static inline gboolean
sp_program_is_one_layer (const SpProgram *program)
{
  return program->scope >= SP_SCOPE_LAYER;
}

/* Whether no backward is run. */
static inline gboolean
sp_program_is_forward (const SpProgram *program)
{
  return program->scope == SP_SCOPE_FORWARD || program->scope == SP_SCOPE_ATTENTION_FORWARD;
}

/* What gathers a variant's messages, or NULL. */
static inline const SpOp *
sp_program_pipe_gather (const SpProgram *program, const SpVariant *variant)
{
  return variant->pipe_gather.n > 0 ? program->ops + variant->pipe_gather.first : NULL;
}

/* The program with a whole step in scope. It borrows all that `program` owns. */
static inline SpProgram
sp_program_of_step (const SpProgram *program)
{
  SpProgram step = *program;

  step.scope = SP_SCOPE_STEP;
  return step;
}

/* Whether a buffer lives within a step of a loop over tiles: the writer left its uses as they are. */
static inline gboolean
sp_block_is_of_tile (const SpBlock *block, const SpLoop *loop, guint slot)
{
  guint list = loop->phase == SP_PHASE_FORWARD ? 0 : 1;
  guint offset = loop->phase == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0;

  return loop->group == SP_GROUP_NONE && block->buffers[slot].life == SP_LIFE_SEGMENT &&
         block->first_use[list][slot] > offset + loop->first && block->last_use[list][slot] <= offset + loop->end;
}

/* What ops of FORWARD, RECOMPUTE and BACKWARD must be flagged with to be run: flags, and mask. */
static inline guint
sp_program_scope_flags (const SpProgram *program)
{
  return program->scope >= SP_SCOPE_ATTENTION ? SP_OP_CORE : 0;
}

/* Place of `rank` in a group, and the rank of a member. */
gint32 sp_program_place (const SpProgram *program, SpGroupId group, gint32 rank);
gint32 sp_program_member (const SpProgram *program, SpGroupId group, gint32 rank, gint32 place);

/* For each place of a group, whether what it sends to the next one (reverse: the one before; around the ends) stays in
 * its node, in every instance of the group: ranks fill nodes of `node` GPUs in order. ret: [size of the group]. */
void sp_program_near_hops (const SpProgram *program, SpGroupId group, gboolean reverse, gint32 node, guint8 *ret);

/* The document of token `position` of sequence `number` of the global batch, as far as it lies in that sequence: its
 * first position and the one behind its last. Goes through the runs. The program has documents. */
void sp_program_document (const SpProgram *program, gint64 number, gint64 position, gint64 *ret_begin, gint64 *ret_end);
/* Sets them: at most SP_MAX_DOCUMENTS are kept. n = 0: not packed. */
void sp_program_set_documents (SpProgram *program, const SpDocuments *documents, guint n);

/* Position in the sequence of row `row` (0 .. local_sequence - 1) on sequence place `place` (of SP_GROUP_SEQUENCE).
 * With ZIGZAG the sequence is cut in 2 R parts (R = ring size) and ring place r holds parts r and 2R - 1 - r; with
 * STRIPED it holds tokens r, r + R, r + 2R and so on. The Ulysses ranks of r share these rows in order. */
gint64 sp_program_position (const SpProgram *program, gint32 place, gint64 row);
/* The same of a row of a variant, which may be a slice. */
gint64 sp_program_variant_position (const SpProgram *program, const SpVariant *variant, gint32 place, gint64 row);

const char *sp_dtype_name (SpDtype dtype);
const char *sp_axis_name (SpAxis axis);
const char *sp_stream_name (SpStream stream);
const char *sp_group_name (SpGroupId group);
const char *sp_op_name (SpOpKind kind);
const char *sp_class_name (SpClass class);
const char *sp_life_name (SpLife life);
const char *sp_phase_name (SpPhase phase);
const char *sp_block_name (SpBlockKind kind);
const char *sp_scope_name (SpScope scope);
const char *sp_token_split_name (SpTokenSplit split);

/* The program as text: versioned, one op a line, readable and diffable; see program-text.c for the grammar. */
void sp_program_write_text (const SpProgram *program, GString *out);
SpProgram *sp_program_read_text (const char *text, gsize length, const char *file_name, GError **error);

G_END_DECLS
