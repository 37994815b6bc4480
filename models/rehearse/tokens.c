/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

/*
 * Which tokens, heads and columns an op's operands stand for.
 *
 * A rank of the sequence group has local_sequence rows of each sequence, or an equal part of each slice. An op sees, by its number of rows: these; or,
 * with sequence regions, the part of them that is this tensor rank's; or, after an exchange of heads, those of all
 * members of its exchange group in order of place. In a loop over tiles it sees, at each step, one of as many equal
 * parts of these.
 */

guint64
sp_mix (guint64 a, guint64 b)
{
  guint64 x = a * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15) + b + G_GUINT64_CONSTANT (0x632be59bd9b4e019);

  x = (x ^ x >> 30) * G_GUINT64_CONSTANT (0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * G_GUINT64_CONSTANT (0x94d049bb133111eb);
  return x ^ x >> 31;
}

static SpGroupId
exchange_group (const SpCall *call)
{
  return call->block->kind == SP_BLOCK_LINEAR ? SP_GROUP_ULYSSES_LINEAR : SP_GROUP_ULYSSES;
}

static gint32
group_size (const SpCall *call, SpGroupId group)
{
  return MAX (call->in->program->groups[group].size, 1);
}

static gint32
place_of (const SpCall *call, SpGroupId group)
{
  return sp_program_place (call->in->program, group, call->rank->number);
}

/* --- positions ---------------------------------------------------------------------------------------------------- */

static void
put_positions (const SpCall *call, gint32 rank, gint64 first, gint64 n, gint64 *out)
{
  const SpProgram *program = call->in->program;
  gint32 place = sp_program_place (program, SP_GROUP_SEQUENCE, rank);

  for (gint64 i = 0; i < n; i++)
    out[i] = sp_program_variant_position (program, call->variant, place, first + i);
}

static gboolean
is_region (const SpCall *call, gint64 tokens)
{
  const SpProgram *program = call->in->program;
  gint32 tensor = MAX (program->groups[SP_GROUP_TENSOR].size, 1);

  return program->sequence_regions && tensor > 1 && tokens * tensor == sp_program_local_tokens (program, call->variant);
}

/* Of a loop over tiles, its steps; else 1. */
static gint64
tiles_of (const SpCall *call)
{
  return call->loop != NULL && call->loop->group == SP_GROUP_NONE ? call->loop->steps : 1;
}

/* The tokens that `rank` has where an op sees `tokens` of a sequence. */
static void
positions_of (SpCall *call, gint32 rank, gint64 tokens, gint64 *out)
{
  const SpProgram *program = call->in->program;
  SpGroupId exchange = exchange_group (call);
  gint32 members = group_size (call, exchange);
  gint64 local = sp_program_local_tokens (program, call->variant);

  if (tokens == local)
    put_positions (call, rank, 0, local, out);
  else if (is_region (call, tokens))
    put_positions (call, rank, sp_program_place (program, SP_GROUP_TENSOR, rank) * tokens, tokens, out);
  else if (tokens == local * members)
    for (gint32 i = 0; i < members; i++)
      put_positions (call, sp_program_member (program, exchange, rank, i), 0, local, out + i * local);
  else
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "sees %" G_GINT64_FORMAT " tokens of a sequence", tokens);
}

const gint64 *
sp_call_positions (SpCall *call, gint64 tokens)
{
  gint64 *positions, tiles = tiles_of (call);

  if (call->failed)
    return NULL;
  positions = sp_call_temporary (call, tiles * tokens * sizeof *positions);
  positions_of (call, call->rank->number, tiles * tokens, positions);
  return positions + (tiles > 1 ? call->rank->step * tokens : 0);
}

gint32
sp_call_tensor_place (const SpCall *call)
{
  return place_of (call, SP_GROUP_TENSOR);
}

gint32
sp_call_ring_place (const SpCall *call)
{
  gint32 size = group_size (call, call->loop->group), place = place_of (call, call->loop->group);

  return (place - call->rank->step % size + size) % size;
}

/* The rank whose tokens have come here. */
static gint32
visitor (const SpCall *call)
{
  const SpProgram *program = call->in->program;
  gint32 rank = sp_program_member (program, call->loop->group, call->rank->number, sp_call_ring_place (call));

  if (call->loop->round == 0)
    return rank;
  gint32 size = group_size (call, SP_GROUP_RING_OUTER), place = place_of (call, SP_GROUP_RING_OUTER);
  return sp_program_member (program, SP_GROUP_RING_OUTER, rank, (place - call->loop->round + size) % size);
}

const gint64 *
sp_call_key_positions (SpCall *call, gint64 tokens, gint64 own)
{
  const SpProgram *program = call->in->program;
  gint32 ring = group_size (call, call->op->group), number = call->rank->number;
  gint64 *positions;

  if (call->failed)
    return NULL;
  positions = sp_call_temporary (call, tokens * sizeof *positions);
  if (call->loop != NULL && tokens == own)
    positions_of (call, visitor (call), own, positions);
  else if (call->variant->tokens > 0 && tokens == call->variant->first + own)
    for (gint64 i = 0; i < tokens; i++)
      positions[i] = i; /* the slices so far */
  else if (tokens == own)
    positions_of (call, number, own, positions);
  else if (tokens == own * ring)
    for (gint32 i = 0; i < ring; i++)
      positions_of (call, sp_program_member (program, call->op->group, number, i), own, positions + i * own);
  else
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "has %" G_GINT64_FORMAT " keys for %" G_GINT64_FORMAT " queries",
                  tokens, own);
  return positions;
}

static gint64
tokens_of_rows (SpCall *call, gint64 m)
{
  if (m % call->variant->batch != 0)
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "has %" G_GINT64_FORMAT " rows for %d sequences", m,
                  call->variant->batch);
  return m / call->variant->batch;
}

const gint64 *
sp_call_row_positions (SpCall *call, gint64 m)
{
  const gint64 *positions = sp_call_positions (call, tokens_of_rows (call, m));
  gint64 *rows;

  if (positions == NULL)
    return NULL;
  rows = sp_call_temporary (call, m * sizeof *rows);
  for (gint64 i = 0; i < m; i++)
    rows[i] = positions[i / call->variant->batch];
  return rows;
}

/* Number in the global batch of sequence `b` of the micro-batch. */
static gint64
sequence_of (const SpCall *call, gint64 b)
{
  const SpProgram *program = call->in->program;
  gint64 micro_batch = sp_program_micro_batch_of (program, call->item->micro_batch);
  gint64 before = micro_batch * group_size (call, SP_GROUP_DATA) * program->variants[0].batch;

  return before + (gint64) place_of (call, SP_GROUP_DATA) * call->variant->batch + b;
}

const gint64 *
sp_call_document_positions (SpCall *call, gint64 m)
{
  const SpProgram *program = call->in->program;
  const gint64 *positions = sp_call_row_positions (call, m);
  gint64 *rows, end;

  if (positions == NULL || program->n_documents == 0)
    return positions;
  rows = sp_call_temporary (call, m * sizeof *rows);
  for (gint64 i = 0; i < m; i++) {
    sp_program_document (program, sequence_of (call, i % call->variant->batch), positions[i], &rows[i], &end);
    rows[i] = positions[i] - rows[i];
  }
  return rows;
}

void
sp_call_documents (SpCall *call, gint64 tokens, const gint64 *positions, const gint64 **ret_begin,
                   const gint64 **ret_end)
{
  gint64 batch = call->variant->batch, *begin, *end;

  *ret_begin = *ret_end = NULL;
  if (positions == NULL || call->in->program->n_documents == 0)
    return;
  begin = sp_call_temporary (call, tokens * batch * sizeof *begin);
  end = sp_call_temporary (call, tokens * batch * sizeof *end);
  for (gint64 i = 0; i < tokens * batch; i++)
    sp_program_document (call->in->program, sequence_of (call, i % batch), positions[i / batch], &begin[i], &end[i]);
  *ret_begin = begin;
  *ret_end = end;
}

gboolean
sp_call_rows_are_shared (const SpCall *call, gint64 m)
{
  return !is_region (call, tiles_of (call) * m / call->variant->batch);
}

void
sp_call_check_chain (SpCall *call, gint64 tokens)
{
  const gint64 *positions = sp_call_positions (call, tokens);
  gint64 first = place_of (call, call->op->group) * tokens;

  if (positions == NULL)
    return;
  for (gint64 i = 0; i < tokens && !call->failed; i++)
    if (positions[i] != first + i)
      sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM,
                    "needs token %" G_GINT64_FORMAT " of the sequence in row %" G_GINT64_FORMAT
                    ", which has token %" G_GINT64_FORMAT,
                    first + i, i, positions[i]);
}

/* --- data --------------------------------------------------------------------------------------------------------- */

const gint64 *
sp_call_ids (SpCall *call, gint64 m, gint64 shift)
{
  const gint64 *positions = sp_call_row_positions (call, m);
  guint64 vocabulary = (guint64) call->in->program->numbers.vocabulary;
  gint64 *ids;

  if (positions == NULL)
    return NULL;
  ids = sp_call_temporary (call, m * sizeof *ids);
  for (gint64 i = 0; i < m; i++) {
    guint64 stream = sp_mix (call->in->seed, (guint64) sequence_of (call, i % call->variant->batch));

    ids[i] = (gint64) (sp_mix (stream, (guint64) (positions[i] + shift)) % vocabulary);
  }
  return ids;
}

const double *
sp_call_weights (SpCall *call, gint64 m)
{
  const SpProgram *program = call->in->program;
  double *weights;

  if (call->failed)
    return NULL;
  weights = sp_call_temporary (call, m * sizeof *weights);
  for (gint64 i = 0; i < m; i++)
    if (sequence_of (call, i % call->variant->batch) < program->global_batch)
      weights[i] = 1.0 / ((double) program->global_batch * (double) program->sequence);
  return weights;
}

gint64
sp_call_vocabulary_first (const SpCall *call, gint64 n)
{
  /* Or what all ranks have of it, put together. */
  if (n >= call->in->program->numbers.vocabulary && call->in->program->numbers.vocabulary > 1)
    return 0;
  return place_of (call, SP_GROUP_TENSOR) * n;
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Slots differ from layout to layout, but not how many dropouts a layer has before this one; a recomputed one writes
 * the same mask. */
guint64
sp_call_dropout_seed (const SpCall *call)
{
  guint n, before = 0;
  const SpOp *ops = sp_program_segment (call->in->program, call->block, SP_PHASE_FORWARD, &n);

  for (guint i = 0; i < n && !(ops[i].kind == SP_OP_DROPOUT && ops[i].out[1] == call->op->out[1]); i++)
    before += ops[i].kind == SP_OP_DROPOUT;
  return sp_mix (sp_mix (call->in->seed, 77), (guint64) (call->position->layer + 3) << 8 | before);
}

const gint64 *
sp_call_row_ids (SpCall *call, gint64 m)
{
  const gint64 *positions = sp_call_row_positions (call, m);
  gint64 *ids;

  if (positions == NULL)
    return NULL;
  ids = sp_call_temporary (call, m * sizeof *ids);
  for (gint64 i = 0; i < m; i++)
    ids[i] = sequence_of (call, i % call->variant->batch) * call->in->program->sequence + positions[i];
  return ids;
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

/* Number in the model of the first of `heads` heads that are here. */
static gint64
first_head (const SpCall *call, gint64 heads)
{
  SpGroupId exchange = exchange_group (call);

  return ((gint64) place_of (call, SP_GROUP_TENSOR) * group_size (call, exchange) + place_of (call, exchange)) * heads;
}

gint32
sp_call_exchange_size (const SpCall *call)
{
  return group_size (call, exchange_group (call));
}

gint32
sp_call_exchange_place (const SpCall *call)
{
  return place_of (call, exchange_group (call));
}

const gint64 *
sp_call_score_ids (SpCall *call)
{
  const SpOp *op = call->op;
  const SpProgram *program = call->in->program;
  const gint64 *positions = sp_call_positions (call, op->m);
  gint64 first = first_head (call, op->heads), *ids, *id;

  if (positions == NULL)
    return NULL;
  ids = id = sp_call_temporary (call, (gsize) op->batch * op->heads * op->m * sizeof *ids);
  for (gint64 b = 0; b < op->batch; b++)
    for (gint64 h = 0; h < op->heads; h++)
      for (gint64 i = 0; i < op->m; i++)
        *id++ = (sequence_of (call, b) * program->numbers.heads + first + h) * program->sequence + positions[i];
  return ids;
}

const double *
sp_call_slopes (SpCall *call)
{
  const SpProgram *program = call->in->program;
  double *slopes = sp_call_temporary (call, call->op->heads * sizeof *slopes);

  sp_ref_decay_slopes (first_head (call, call->op->heads), call->op->heads, program->numbers.linear_heads,
                       call->position->layer, program->n_layers, slopes);
  return slopes;
}
