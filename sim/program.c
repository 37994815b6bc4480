/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/program.h"

#include <string.h>

SpProgram *
sp_program_new (void)
{
  SpProgram *program = g_new0 (SpProgram, 1);

  sp_program_set_variants (program, 2);
  program->n_variants = 0;
  return program;
}

/* New ones are zero; a page of the system's zeros that no block is written to costs nothing. */
void
sp_program_set_variants (SpProgram *program, gint32 n)
{
  program->n_variants = n;
  if ((guint) n <= program->variants_capacity)
    return;
  guint capacity = MAX ((guint) n, 2 * program->variants_capacity);
  SpVariant *variants = g_new0 (SpVariant, capacity);
  if (program->variants_capacity > 0)
    memcpy (variants, program->variants, program->variants_capacity * sizeof *variants);
  g_free (program->variants);
  program->variants = variants;
  program->variants_capacity = capacity;
}

void
sp_program_free (SpProgram *program)
{
  if (program == NULL)
    return;
  g_free (program->layer_block);
  g_free (program->stage_first);
  g_free (program->documents);
  g_free (program->variants);
  g_free (program->ops);
  g_free (program);
}

/* --- ranks ---------------------------------------------------------------------------------------------------- */

gint32
sp_program_place (const SpProgram *program, SpGroupId group, gint32 rank)
{
  const SpGroup *g = &program->groups[group];
  gint32 place = 0;

  if (group == SP_GROUP_TIE)
    return g->size > 1 && sp_program_place (program, SP_GROUP_PIPELINE, rank) > 0;
  if (group == SP_GROUP_MIRROR)
    return g->size > 1 && 2 * sp_program_place (program, SP_GROUP_PIPELINE, rank) >= program->stages;
  for (guint i = g->n_digits; i-- > 0;) {
    const SpDigit *digit = &program->digits[g->digits[i]];

    place = place * digit->size + rank / digit->stride % digit->size;
  }
  return place;
}

gint32
sp_program_member (const SpProgram *program, SpGroupId group, gint32 rank, gint32 place)
{
  const SpGroup *g = &program->groups[group];

  if (group == SP_GROUP_TIE)
    return sp_program_member (program, SP_GROUP_PIPELINE, rank,
                              place > 0 ? program->groups[SP_GROUP_PIPELINE].size - 1 : 0);
  if (group == SP_GROUP_MIRROR && g->size > 1) {
    gint32 stage = sp_program_place (program, SP_GROUP_PIPELINE, rank), other = program->stages - 1 - stage;

    return sp_program_member (program, SP_GROUP_PIPELINE, rank, place > 0 ? MAX (stage, other) : MIN (stage, other));
  }
  for (guint i = 0; i < g->n_digits; i++) {
    const SpDigit *digit = &program->digits[g->digits[i]];
    gint32 now = rank / digit->stride % digit->size;

    rank += (place % digit->size - now) * digit->stride;
    place /= digit->size;
  }
  return rank;
}

void
sp_program_near_hops (const SpProgram *program, SpGroupId group, gboolean reverse, gint32 node, guint8 *ret)
{
  gint32 size = program->groups[group].size;

  memset (ret, 1, (gsize) size);
  for (gint32 rank = 0; rank < program->world; rank++) {
    gint32 place = sp_program_place (program, group, rank);
    gint32 next = sp_program_member (program, group, rank, (place + (reverse ? size - 1 : 1)) % size);
    ret[place] &= rank / node == next / node;
  }
}

gint64
sp_program_position (const SpProgram *program, gint32 place, gint64 row)
{
  gint32 rank, ring_place, ring_size;
  gint64 part, at;

  if (program->token_split == SP_TOKENS_CONTIGUOUS)
    return place * program->local_sequence + row;

  rank = sp_program_member (program, SP_GROUP_SEQUENCE, 0, place);
  ring_place = sp_program_place (program, SP_GROUP_RING, rank);
  ring_size = MAX (program->groups[SP_GROUP_RING].size, 1);
  at = sp_program_place (program, SP_GROUP_ULYSSES, rank) * program->local_sequence + row;
  if (program->token_split == SP_TOKENS_STRIPED)
    return at * ring_size + ring_place;
  part = program->sequence / (2 * ring_size);
  if (at < part)
    return ring_place * part + at;
  return (2 * ring_size - 1 - ring_place) * part + at - part;
}

void
sp_program_append_number (const SpProgram *program, gint32 number, GString *out)
{
  g_string_append_printf (out, "micro-batch %d", sp_program_micro_batch_of (program, number));
  if (program->slices > 0)
    g_string_append_printf (out, ", slice %d", sp_program_slice_of (program, number));
}

gint64
sp_program_variant_position (const SpProgram *program, const SpVariant *variant, gint32 place, gint64 row)
{
  if (variant->tokens == 0)
    return sp_program_position (program, place, row);
  return variant->first + place * sp_program_local_tokens (program, variant) + row;
}

void
sp_program_set_documents (SpProgram *program, const SpDocuments *documents, guint n)
{
  program->packed = n > 0;
  program->n_documents = n <= SP_MAX_DOCUMENTS ? n : 0;
  if (program->n_documents > program->documents_capacity) {
    program->documents_capacity = program->n_documents;
    program->documents = g_renew (SpDocuments, program->documents, program->documents_capacity);
  }
  if (program->n_documents > 0)
    memcpy (program->documents, documents, program->n_documents * sizeof *documents);
}

void
sp_program_document (const SpProgram *program, gint64 number, gint64 position, gint64 *ret_begin, gint64 *ret_end)
{
  gint64 tokens = 0, at;
  guint i = 0;

  for (guint d = 0; d < program->n_documents; d++)
    tokens += program->documents[d].length * program->documents[d].count;
  at = (number * program->sequence + position) % tokens;
  while (at >= program->documents[i].length * program->documents[i].count)
    at -= program->documents[i].length * program->documents[i].count, i++;
  at %= program->documents[i].length;
  *ret_begin = MAX (position - at, 0);
  *ret_end = MIN (position - at + program->documents[i].length, program->sequence);
}

gboolean
sp_block_sums (const SpBlock *block)
{
  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (block->buffers[slot].life == SP_LIFE_SUMMED && block->buffers[slot].alias == 0)
      return TRUE;
  return FALSE;
}

gboolean
sp_block_holds_over (const SpProgram *program, const SpBlock *block, guint slot)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_SYNC, &n);

  if (block->buffers[slot].life != SP_LIFE_SUMMED || block->buffers[slot].alias != 0)
    return FALSE;
  for (guint i = 0; i < n; i++)
    for (guint j = 0; ops[i].flags & SP_OP_ASYNC && j < SP_MAX_IN; j++) {
      guint8 root = ops[i].in[j];
      while (block->buffers[root].alias != 0)
        root = block->buffers[root].alias;
      if (root == slot)
        return TRUE;
    }
  return FALSE;
}

static gboolean
is_over_with_list (const SpOp *op)
{
  return op->flags & SP_OP_ASYNC &&
         (op->stream == SP_STREAM_TENSOR || op->stream == SP_STREAM_SEQUENCE || op->stream == SP_STREAM_OUTER);
}

/* Ops of a stream are over in order. */
static gboolean
waits_for (const SpOp *ops, guint op, guint index)
{
  const SpOp *of = &ops[op];
  const guint by_place = SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST | SP_GUARD_VISIBLE;

  for (guint i = 0; !(of->guard & by_place) && i < G_N_ELEMENTS (of->wait) && of->wait[i] != 0; i++)
    if (of->wait[i] - 1u >= index && ops[of->wait[i] - 1].stream == ops[index].stream)
      return TRUE;
  return FALSE;
}

guint
sp_block_last_beside (const SpProgram *program, const SpBlock *block, SpPhase phase, guint index, guint wanted,
                      guint mask)
{
  guint n, last = index;
  const SpOp *ops = sp_program_segment (program, block, phase, &n), *op = &ops[index];

  if (!is_over_with_list (op))
    return index;
  guint end = op->loop != 0 && op->stream != SP_STREAM_OUTER ? block->loops[op->loop - 1].end : n;
  for (guint i = index + 1; i < end; i++) {
    if ((ops[i].flags & mask) != wanted)
      continue;
    if (waits_for (ops, i, index))
      break;
    last = i;
  }
  /* Steps go over the ops of another loop again. */
  return ops[last].loop != op->loop && ops[last].loop != 0 ? block->loops[ops[last].loop - 1].end - 1u : last;
}

/* --- names ---------------------------------------------------------------------------------------------------- */

/* A function from an enum to its names; the table must be complete. */
#define NAMES(function, Type, count, ...)                                                                              \
  const char *function (Type value)                                                                                    \
  {                                                                                                                    \
    static const char *const names[] = { __VA_ARGS__ };                                                                \
                                                                                                                       \
    G_STATIC_ASSERT (G_N_ELEMENTS (names) == (count));                                                                 \
    g_return_val_if_fail ((guint) value < (count), "?");                                                               \
    return names[value];                                                                                               \
  }

NAMES (sp_dtype_name, SpDtype, SP_N_DTYPES, "bf16", "fp16", "fp32", "uint8", "int32")
NAMES (sp_axis_name, SpAxis, SP_N_AXES, "tensor", "ulysses", "ring", "lasp", "data", "pipeline", "expert",
       "host")
NAMES (sp_stream_name, SpStream, SP_N_STREAMS, "compute", "tensor", "sequence", "outer", "data", "pipeline",
       "offload", "host")
NAMES (sp_group_name, SpGroupId, SP_N_GROUPS, "none", "tensor", "ulysses", "ring", "ring-inner", "ring-outer",
       "ulysses-linear", "lasp", "sequence", "data", "zero", "replica", "expert", "expert-data", "pipeline", "self", "tie",
       "mirror")
NAMES (sp_class_name, SpClass, SP_N_CLASSES, "parameters", "gradients", "optimizer", "activations", "logits",
       "communication", "workspace", "reserved")
NAMES (sp_life_name, SpLife, SP_N_LIVES, "segment", "stash", "rebuilt", "handoff", "gathered", "summed", "step-end",
       "always", "checkpoint", "sequence", "accumulated")
NAMES (sp_phase_name, SpPhase, SP_N_PHASES, "gather", "forward", "recompute", "backward", "sync", "optimizer")
NAMES (sp_block_name, SpBlockKind, SP_N_BLOCK_KINDS, "embedding", "softmax", "linear", "head")
NAMES (sp_scope_name, SpScope, SP_N_SCOPES, "step", "forward", "layer", "attention", "attention-forward")
NAMES (sp_token_split_name, SpTokenSplit, SP_N_TOKEN_SPLITS, "contiguous", "zigzag", "striped")

const char *
sp_op_name (SpOpKind kind)
{
  static const char *const names[] = {
    [SP_OP_GEMM] = "gemm",
    [SP_OP_SCORES] = "scores",
    [SP_OP_SCORES_BWD] = "scores-bwd",
    [SP_OP_SOFTMAX] = "softmax",
    [SP_OP_SOFTMAX_BWD] = "softmax-bwd",
    [SP_OP_CONTEXT] = "context",
    [SP_OP_CONTEXT_BWD] = "context-bwd",
    [SP_OP_DROPOUT] = "dropout",
    [SP_OP_DROPOUT_BWD] = "dropout-bwd",
    [SP_OP_NORM] = "norm",
    [SP_OP_NORM_STAT] = "norm-stat",
    [SP_OP_NORM_BWD] = "norm-bwd",
    [SP_OP_NORM_STAT_BWD] = "norm-stat-bwd",
    [SP_OP_ROPE] = "rope",
    [SP_OP_ROPE_BWD] = "rope-bwd",
    [SP_OP_LATENT] = "latent",
    [SP_OP_LATENT_BWD] = "latent-bwd",
    [SP_OP_SPLIT] = "split",
    [SP_OP_JOIN] = "join",
    [SP_OP_FEATURE] = "feature",
    [SP_OP_FEATURE_BWD] = "feature-bwd",
    [SP_OP_PACK] = "pack",
    [SP_OP_UNPACK] = "unpack",
    [SP_OP_PART] = "part",
    [SP_OP_ATTENTION] = "attention",
    [SP_OP_ATTENTION_MERGE] = "attention-merge",
    [SP_OP_ATTENTION_DELTA] = "attention-delta",
    [SP_OP_ATTENTION_SINK] = "attention-sink",
    [SP_OP_ATTENTION_SINK_BWD] = "attention-sink-bwd",
    [SP_OP_ATTENTION_BWD] = "attention-bwd",
    [SP_OP_LINEAR_LOCAL] = "linear-local",
    [SP_OP_LINEAR_INTER] = "linear-inter",
    [SP_OP_LINEAR_LOCAL_BWD] = "linear-local-bwd",
    [SP_OP_LINEAR_INTER_BWD] = "linear-inter-bwd",
    [SP_OP_STATE_UPDATE] = "state-update",
    [SP_OP_STATE_PREFIX] = "state-prefix",
    [SP_OP_STATE_OWN] = "state-own",
    [SP_OP_RECURRENT] = "recurrent",
    [SP_OP_STATE_OWN_BWD] = "state-own-bwd",
    [SP_OP_RECURRENT_BWD] = "recurrent-bwd",
    [SP_OP_CONV] = "conv",
    [SP_OP_CONV_BWD] = "conv-bwd",
    [SP_OP_KEY_MAP] = "key-map",
    [SP_OP_KEY_MAP_BWD] = "key-map-bwd",
    [SP_OP_SIGMOID] = "sigmoid",
    [SP_OP_SIGMOID_BWD] = "sigmoid-bwd",
    [SP_OP_DECAY] = "decay",
    [SP_OP_DECAY_BWD] = "decay-bwd",
    [SP_OP_SKIP] = "skip",
    [SP_OP_SKIP_BWD] = "skip-bwd",
    [SP_OP_GLU] = "glu",
    [SP_OP_GLU_BWD] = "glu-bwd",
    [SP_OP_GELU] = "gelu",
    [SP_OP_GELU_BWD] = "gelu-bwd",
    [SP_OP_GATE] = "gate",
    [SP_OP_GATE_BWD] = "gate-bwd",
    [SP_OP_ROW_GATE] = "row-gate",
    [SP_OP_ROW_GATE_BWD] = "row-gate-bwd",
    [SP_OP_ROUTE] = "route",
    [SP_OP_ROUTE_BWD] = "route-bwd",
    [SP_OP_DISPATCH] = "dispatch",
    [SP_OP_DISPATCH_BWD] = "dispatch-bwd",
    [SP_OP_COMBINE] = "combine",
    [SP_OP_COMBINE_BWD] = "combine-bwd",
    [SP_OP_ADD] = "add",
    [SP_OP_ACCUMULATE_INTO] = "accumulate",
    [SP_OP_COPY] = "copy",
    [SP_OP_COLUMN_SUM] = "column-sum",
    [SP_OP_EMBED] = "embed",
    [SP_OP_EMBED_BWD] = "embed-bwd",
    [SP_OP_POSITION] = "position",
    [SP_OP_POSITION_BWD] = "position-bwd",
    [SP_OP_LOSS_MAX] = "loss-max",
    [SP_OP_LOSS_SUM] = "loss-sum",
    [SP_OP_LOSS] = "loss",
    [SP_OP_ADAM] = "adam",
    [SP_OP_MOMENTUM] = "momentum",
    [SP_OP_ORTHOGONALIZE] = "orthogonalize",
    [SP_OP_DESCEND] = "descend",
    [SP_OP_ZERO] = "zero",
    [SP_OP_ALL_GATHER] = "all-gather",
    [SP_OP_REDUCE_SCATTER] = "reduce-scatter",
    [SP_OP_ALL_REDUCE] = "all-reduce",
    [SP_OP_ALL_TO_ALL] = "all-to-all",
    [SP_OP_SEND] = "send",
    [SP_OP_RECEIVE] = "receive",
    [SP_OP_SEND_RECEIVE] = "send-receive",
    [SP_OP_TO_HOST] = "to-host",
    [SP_OP_FROM_HOST] = "from-host",
  };

  G_STATIC_ASSERT (G_N_ELEMENTS (names) == SP_N_OPS);
  g_return_val_if_fail ((guint) kind < SP_N_OPS && names[kind] != NULL, "?");
  return names[kind];
}
