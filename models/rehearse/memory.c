/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include <math.h>
#include <string.h>

/* Storage of buffers: where a slot's memory is and when it begins. When it ends: lives.c. */

/* --- storage ------------------------------------------------------------------------------------------------------ */

static void
poison (SpStorage *storage)
{
  for (gint64 i = 0; storage->data != NULL && i < storage->elements; i++)
    storage->data[i] = NAN;
}

SpStorage *
sp_storage_new (SpRank *rank, const SpBuffer *buffer)
{
  SpStorage *storage = g_new0 (SpStorage, 1);

  *storage = (SpStorage){ .refs = 1,
                          .class = buffer->class,
                          .bytes = buffer->bytes,
                          .host_bytes = buffer->host ? buffer->elements * (gint64) sp_dtype_bytes (buffer->dtype) : 0,
                          .elements = buffer->elements };
  if (rank->recording != NULL)
    storage->number = sp_recording_begin (rank->recording, buffer);
  else
    storage->data = g_new0 (double, MAX (buffer->elements, 1));
  if (buffer->class != SP_CLASS_GRADIENTS && buffer->class != SP_CLASS_OPTIMIZER)
    poison (storage);
  rank->live_bytes += storage->bytes;
  rank->live_by_class[storage->class] += storage->bytes;
  rank->live_host_bytes += storage->host_bytes;
  rank->report->host_peak_bytes = MAX (rank->report->host_peak_bytes, rank->live_host_bytes);
  if (rank->live_bytes > rank->report->peak_bytes) {
    rank->report->peak_bytes = rank->live_bytes;
    memcpy (rank->report->peak_by_class, rank->live_by_class, sizeof rank->live_by_class);
  }
  return storage;
}

/* A slot lets go of its storage. */
void
sp_storage_release (SpRank *rank, SpStorage **at)
{
  SpStorage *storage = *at;

  *at = NULL;
  if (storage == NULL || --storage->refs > 0)
    return;
  rank->live_bytes -= storage->bytes;
  rank->live_by_class[storage->class] -= storage->bytes;
  rank->live_host_bytes -= storage->host_bytes;
  if (rank->recording != NULL)
    sp_recording_end (rank->recording, storage->number);
  g_free (storage->data);
  g_free (storage);
}

SpFrame *
sp_rank_frame (SpRank *rank, gint32 position, gint32 micro_batch)
{
  SpFrame **frame = &rank->frames[(1 + micro_batch) * (gint32) rank->agenda->n_positions + position];

  if (*frame == NULL)
    *frame = g_new0 (SpFrame, 1);
  return *frame;
}

void
sp_memory_free_rank (SpInterpreter *in, SpRank *rank)
{
  guint n = (1 + sp_program_runs (in->program)) * rank->agenda->n_positions;

  for (guint i = 0; i < n; i++) {
    for (guint slot = 0; rank->frames[i] != NULL && slot < SP_MAX_SLOTS; slot++)
      sp_storage_release (rank, &rank->frames[i]->slots[slot]);
    g_free (rank->frames[i]);
  }
  g_clear_pointer (&rank->frames, g_free);
}

gboolean
sp_rank_has_both_ends (const SpInterpreter *in, const SpRank *rank)
{
  (void) rank;
  return in->program->stages == 1;
}

/* --- where a slot is ---------------------------------------------------------------------------------------------- */

typedef struct {
  SpStorage **at;
  const SpBlock *block;
  guint8 root; /* slot of the block that has the storage */
  gint32 position;
  gint64 offset;
} Place;

/* What a ring's `current` is at the first step. */
static guint8
carried (const SpCall *call, guint8 slot)
{
  if (call->loop != NULL && call->rank->step == 0)
    for (guint i = 0; i < call->loop->n_carries; i++)
      if (call->loop->carries[i].current == slot && call->loop->carries[i].init != 0)
        return call->loop->carries[i].init;
  return slot;
}

gboolean
sp_life_is_of_micro_batch (guint8 life)
{
  return life == SP_LIFE_SEGMENT || life == SP_LIFE_STASH || life == SP_LIFE_REBUILT || life == SP_LIFE_HANDOFF;
}

/* Whose frame a buffer of that life lies in: a micro-batch's, or a slice's; its sequence's first slice's; the step's. */
static gint32
frame_of (const SpCall *call, guint8 life)
{
  gint32 number = call->item->micro_batch;

  if (life == SP_LIFE_SEQUENCE)
    return number - sp_program_slice_of (call->in->program, number);
  return sp_life_is_of_micro_batch (life) ? number : -1;
}

static Place
locate (const SpCall *call, guint8 slot)
{
  Place place = { .block = call->block, .root = slot, .position = call->item->position };
  const SpBuffer *buffer;

  for (;;) {
    if (place.block == call->block)
      place.root = carried (call, place.root);
    buffer = &place.block->buffers[place.root];
    if (buffer->tied && sp_rank_has_both_ends (call->in, call->rank)) {
      place.root = buffer->tied_slot;
      place.block = &call->variant->blocks[0];
      place.position = 0;
    } else if (buffer->alias != 0) {
      place.offset += buffer->offset + (buffer->moves ? call->rank->step * buffer->elements : 0);
      place.root = buffer->alias;
    } else
      break;
  }

  SpFrame *frame = sp_rank_frame (call->rank, place.position, frame_of (call, buffer->life));
  place.at = &frame->slots[place.root];
  return place;
}

/* Y is X of the next block, DX is DY of the block before. */
static void
hand_over (SpCall *call, const Place *place)
{
  gint32 next = place->position + (place->root == SP_SLOT_Y ? 1 : -1);
  guint8 slot = place->root == SP_SLOT_Y ? SP_SLOT_X : SP_SLOT_DY;
  const SpAgenda *agenda = call->rank->agenda;

  if (place->root == SP_SLOT_Y ? call->item->phase != SP_PHASE_FORWARD : place->root != SP_SLOT_DX)
    return;
  if (next < 0 || next >= (gint32) agenda->n_positions || agenda->positions[next].chunk != call->position->chunk)
    return;

  guint8 block = agenda->positions[next].block;
  if (place->root == SP_SLOT_DX && !sp_block_has_backward (&call->variant->blocks[block]))
    return;
  const SpBuffer *there = &call->variant->blocks[block].buffers[slot];
  if (there->elements != (*place->at)->elements || there->alias != 0) {
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "hands over %" G_GINT64_FORMAT " elements for %" G_GINT64_FORMAT,
                  (*place->at)->elements, there->elements);
    return;
  }
  SpFrame *frame = sp_rank_frame (call->rank, next, call->item->micro_batch);
  sp_storage_release (call->rank, &frame->slots[slot]);
  frame->slots[slot] = *place->at;
  (*place->at)->refs++;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

gpointer
sp_call_temporary (SpCall *call, gsize bytes)
{
  gpointer memory = g_malloc0 (MAX (bytes, 8));

  g_ptr_array_add (call->temporaries, memory);
  return memory;
}

const SpBuffer *
sp_call_buffer (const SpCall *call, guint8 slot)
{
  return &call->block->buffers[slot];
}

static gboolean
check_elements (SpCall *call, const char *verb, guint8 slot, gint64 elements)
{
  if (slot >= call->block->n_buffers)
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "%s slot %u, which the block does not have", verb, slot);
  else if (call->block->buffers[slot].elements != elements)
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM,
                  "%s %" G_GINT64_FORMAT " elements of slot %u, which has %" G_GINT64_FORMAT, verb, elements, slot,
                  call->block->buffers[slot].elements);
  return !call->failed;
}

/* The array of a slot that has storage, or NULL. */
static double *
data_of (SpCall *call, const Place *place, guint8 slot)
{
  gint64 elements = call->block->buffers[slot].elements;

  if (place->offset + elements <= (*place->at)->elements)
    return (*place->at)->data + place->offset;
  sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "slot %u reaches beyond slot %u, where it lies", slot, place->root);
  return NULL;
}

static gboolean
is_written_too (SpCall *call, const SpStorage *storage)
{
  for (guint i = 0; i < SP_MAX_OUT; i++)
    if (call->op->out[i] != 0 && call->op->out[i] < call->block->n_buffers &&
        *locate (call, call->op->out[i]).at == storage)
      return TRUE;
  return FALSE;
}

static gint64
find_nan (const double *data, gint64 n)
{
  for (gint64 i = 0; i < n; i++)
    if (isnan (data[i]))
      return i;
  return -1;
}

static gboolean
counts_in_part (const SpOp *op, gboolean is_output)
{
  gboolean sends = op->kind == SP_OP_SEND || op->kind == SP_OP_ALL_GATHER;

  return op->flags & SP_OP_OWN_PART && (is_output ? op->kind == SP_OP_RECEIVE : sends);
}

gboolean
sp_call_part (SpCall *call, guint8 slot, gboolean is_output, SpPart *ret)
{
  gint64 elements = slot != 0 ? call->block->buffers[slot].elements : 0;
  gint32 parts = MAX (call->in->program->groups[SP_GROUP_TENSOR].size, 1);

  *ret = (SpPart){ 0, elements };
  if (!counts_in_part (call->op, is_output))
    return TRUE;
  if (elements % parts != 0) {
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "takes one of %d parts of %" G_GINT64_FORMAT " elements", parts,
                  elements);
    return FALSE;
  }
  ret->n = elements / parts;
  ret->first = ret->n * sp_call_tensor_place (call);
  return TRUE;
}

const double *
sp_call_read_part (SpCall *call, guint8 slot, const SpPart *part)
{
  if (slot == 0 || call->failed || !check_elements (call, "reads", slot, call->block->buffers[slot].elements))
    return NULL;

  Place place = locate (call, slot);
  if (part->n == 0)
    return sp_call_temporary (call, 0);
  if (*place.at == NULL) {
    sp_call_fail (call, SP_REHEARSE_ERROR_UNWRITTEN, "reads slot %u (%s), which is not there", slot,
                  sp_life_name (place.block->buffers[place.root].life));
    return NULL;
  }
  double *data = data_of (call, &place, slot);
  if (data == NULL)
    return NULL;
  gint64 bad = find_nan (data + part->first, part->n);
  if (bad >= 0) {
    sp_call_fail (call, SP_REHEARSE_ERROR_UNWRITTEN,
                  "reads element %" G_GINT64_FORMAT " of slot %u before it is written", part->first + bad, slot);
    return NULL;
  }
  if (!is_written_too (call, *place.at))
    return data + part->first;
  double *copy = sp_call_temporary (call, part->n * sizeof *copy);
  memcpy (copy, data + part->first, part->n * sizeof *copy);
  return copy;
}

const double *
sp_call_read (SpCall *call, guint8 slot, gint64 elements)
{
  const SpPart whole = { 0, elements };

  if (slot == 0 || call->failed || !check_elements (call, "reads", slot, elements))
    return NULL;
  return sp_call_read_part (call, slot, &whole);
}

static void
begin_output (SpCall *call, const Place *place)
{
  if (*place->at == NULL) {
    *place->at = sp_storage_new (call->rank, &place->block->buffers[place->root]);
    hand_over (call, place);
  }
  for (guint i = 0; call->loop != NULL && i < call->loop->n_carries; i++)
    if (call->loop->carries[i].next == place->root && place->block == call->block)
      call->rank->arrived[i] = TRUE;
}

double *
sp_call_write (SpCall *call, guint8 slot, gint64 elements)
{
  if (slot == 0 || call->failed || !check_elements (call, "writes", slot, elements))
    return NULL;

  Place place = locate (call, slot);
  begin_output (call, &place);
  return call->failed ? NULL : data_of (call, &place, slot);
}

gboolean
sp_call_place (SpCall *call, guint8 slot, gboolean is_output, SpPlace *ret)
{
  if (!check_elements (call, is_output ? "writes" : "reads", slot, call->block->buffers[slot].elements))
    return FALSE;

  Place place = locate (call, slot);
  if (is_output)
    begin_output (call, &place);
  if (*place.at == NULL)
    sp_call_fail (call, SP_REHEARSE_ERROR_UNWRITTEN, "reads slot %u (%s), which is not there", slot,
                  sp_life_name (place.block->buffers[place.root].life));
  *ret = (SpPlace){ *place.at, place.offset };
  return !call->failed;
}

void
sp_call_check_written (SpCall *call)
{
  for (guint i = 0; i < SP_MAX_OUT && !call->failed; i++) {
    guint8 slot = call->op->out[i];
    Place place = slot != 0 ? locate (call, slot) : (Place){ 0 };

    if (slot == 0 || *place.at == NULL)
      continue;
    gint64 bad = find_nan ((*place.at)->data + place.offset, call->block->buffers[slot].elements);
    if (bad >= 0)
      sp_call_fail (call, SP_REHEARSE_ERROR_UNWRITTEN, "leaves no number in element %" G_GINT64_FORMAT " of slot %u",
                    bad, slot);
  }
}

/* Binary digits of a number of a dtype; 0: all that there are. */
static int
digits_of (guint8 dtype)
{
  switch (dtype) {
  case SP_DTYPE_BF16:
    return BF16_DIGITS;
  case SP_DTYPE_FP16:
    return 11;
  case SP_DTYPE_FP32:
    return 24;
  default:
    return 0;
  }
}

double
sp_round_to_digits (double value, int digits)
{
  int exponent;
  double mantissa = frexp (value, &exponent);

  return ldexp (rint (ldexp (mantissa, digits)), exponent - digits);
}

void
sp_call_round (SpCall *call)
{
  for (guint i = 0; i < SP_MAX_OUT; i++) {
    guint8 slot = call->op->out[i];
    int digits = slot != 0 ? digits_of (call->block->buffers[slot].dtype) : 0;
    Place place = digits > 0 ? locate (call, slot) : (Place){ 0 };

    if (digits == 0 || *place.at == NULL)
      continue;
    double *data = (*place.at)->data + place.offset;
    for (gint64 j = 0; j < call->block->buffers[slot].elements; j++)
      data[j] = sp_round_to_digits (data[j], digits);
  }
}

/* --- loops -------------------------------------------------------------------------------------------------------- */

static void
ensure_carry (SpCall *call, guint8 slot)
{
  SpFrame *frame = sp_rank_frame (call->rank, call->item->position, call->item->micro_batch);
  const SpBuffer *buffer = &call->block->buffers[slot];

  if (buffer->alias != 0 || buffer->tied || !sp_life_is_of_micro_batch (buffer->life))
    sp_call_fail (call, SP_REHEARSE_ERROR_PROGRAM, "carries slot %u, which has no memory of its own", slot);
  else if (frame->slots[slot] == NULL)
    frame->slots[slot] = sp_storage_new (call->rank, buffer);
}

/* Nothing that this step should receive is there before it arrives. */
void
sp_loop_step_begin (SpCall *call)
{
  SpFrame *frame = sp_rank_frame (call->rank, call->item->position, call->item->micro_batch);

  for (guint i = 0; i < call->loop->n_carries && !call->failed; i++) {
    const SpCarry *carry = &call->loop->carries[i];

    ensure_carry (call, carry->current);
    ensure_carry (call, carry->next);
    call->rank->arrived[i] = FALSE;
    if (call->failed)
      return;
    poison (frame->slots[carry->next]);
    if (call->rank->step == 0)
      poison (frame->slots[carry->current]);
  }
}

/* What was `next` is `current`: at the next step, and after the loop if something came in its last step. */
void
sp_loop_step_end (SpCall *call)
{
  SpFrame *frame = sp_rank_frame (call->rank, call->item->position, call->item->micro_batch);
  gboolean is_last = call->rank->step == call->loop->steps - 1;

  for (guint i = 0; i < call->loop->n_carries; i++) {
    const SpCarry *carry = &call->loop->carries[i];
    SpStorage *current = frame->slots[carry->current];

    if (!is_last || call->rank->arrived[i]) {
      frame->slots[carry->current] = frame->slots[carry->next];
      frame->slots[carry->next] = current;
    } else if (call->rank->step == 0 && carry->init != 0) {
      SpStorage **init = locate (call, carry->init).at;

      if (*init == NULL || (*init)->elements != current->elements)
        continue;
      sp_storage_release (call->rank, &frame->slots[carry->current]);
      frame->slots[carry->current] = *init;
      (*init)->refs++;
    }
  }
}
