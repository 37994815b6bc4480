/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include <math.h>
#include <string.h>

/*
 * Parameters at the start of a step, and gradients and parameters at its end, between the flat buffers of the ranks and
 * the model's tensors in their global shapes.
 *
 * A weight of the head that has the name of a weight of the embedding is the tied matrix: it starts with the same
 * values, must end with the same values and is reported as the embedding's.
 *
 * Rows that pad the vocabulary start with numbers like all others, so that it shows if they count for something, must
 * end with no gradient and are not reported.
 */

/* --- weights ------------------------------------------------------------------------------------------------------ */

typedef struct {
  const SpWeight *weight;
  const SpFlat *flat;
  gint32 layer;       /* that it is reported under */
  gint64 offset;      /* in the flat buffer */
  gint64 rows, cols;  /* global */
  gint32 part, parts; /* tensor place and size, 0 of 1 if it is not split */
  gint64 above;       /* global rows of the experts on places before this one's */
} Weight;

static const SpWeight *
find_weight (const SpBlock *block, const char *name)
{
  for (guint i = 0; i < block->n_weights; i++)
    if (g_str_equal (block->weights[i].name, name))
      return &block->weights[i];
  return NULL;
}

/* FALSE: a weight that is no view of its flat buffer. */
static gboolean
describe (const SpInterpreter *in, const SpRank *rank, const SpPosition *position, guint index, Weight *ret)
{
  const SpProgram *program = in->program;
  const SpBlock *embedding = &program->variants[0].blocks[0], *block = embedding + position->block;
  const SpWeight *weight = &block->weights[index];
  gboolean tied = position->layer == SP_LAYER_HEAD && find_weight (embedding, weight->name) != NULL;
  guint8 slot = weight->slot;

  *ret = (Weight){ .weight = weight, .rows = weight->rows, .cols = weight->cols, .parts = 1 };
  if (weight->flat >= block->n_flats)
    return FALSE;
  ret->flat = &block->flats[weight->flat];
  ret->layer = tied ? SP_LAYER_EMBEDDING : position->layer;
  for (; block->buffers[slot].alias != 0; slot = block->buffers[slot].alias)
    ret->offset += block->buffers[slot].offset;
  if (weight->experts > 0) {
    ret->rows *= MAX (program->groups[SP_GROUP_EXPERT].size, 1);
    ret->above = (gint64) weight->rows * sp_program_place (program, SP_GROUP_EXPERT, rank->number);
  }
  if (weight->split == SP_SPLIT_NONE)
    return slot == ret->flat->parameters;
  ret->parts = MAX (program->groups[SP_GROUP_TENSOR].size, 1);
  ret->part = sp_program_place (program, SP_GROUP_TENSOR, rank->number);
  if (weight->split == SP_SPLIT_COLS)
    ret->cols *= ret->parts;
  else {
    ret->rows *= ret->parts;
    ret->above *= ret->parts;
  }
  if (weight->split == SP_SPLIT_VOCABULARY)
    ret->rows = MIN (ret->rows, program->numbers.vocabulary);
  return slot == ret->flat->parameters;
}

/* Index in the global tensor of local element (row, col). A row split cuts each section, of each expert. */
static gint64
global_index (const Weight *w, gint64 row, gint64 col)
{
  gint64 above = w->above, before = 0;

  if (w->parts == 1)
    return (above + row) * w->cols + col;
  if (w->weight->split == SP_SPLIT_COLS)
    return (above + row) * w->cols + w->part * w->weight->cols + col;
  if (w->weight->experts > 0) {
    gint64 rows = w->weight->rows / w->weight->experts;
    above += row / rows * rows * w->parts;
    row %= rows;
  }
  for (guint i = 0; i < w->weight->n_sections; i++) {
    gint64 n = w->weight->sections[i];

    if (row < before + n)
      return (above + before * w->parts + w->part * n + row - before) * w->cols + col;
    before += n;
  }
  return (above + w->part * (gint64) w->weight->rows + row) * w->cols + col;
}

/* Uniform in [-1, 1). */
static double
draw (guint64 key, gint64 index)
{
  return (double) (gint64) (sp_mix (key, (guint64) index) >> 11) * 0x1p-52 - 1;
}

static double
nudge_of (const SpInterpreter *in, const Weight *w, gint64 index)
{
  const SpNudge *nudge = in->nudge;

  if (nudge == NULL || nudge->layer != w->layer || nudge->index != index || !g_str_equal (nudge->name, w->weight->name))
    return 0;
  return nudge->delta;
}

/* What its numbers lie around. A step is about ln 2, for its bias lies around 0, so rates are less than models': a token
 * forgets as much as in the median of theirs (published: Mamba-2's and Gated DeltaNet's code, rates from 1 to 16, steps from
 * 0.001 to 0.1 evenly in their logarithm: 8.5 x 0.01 = exp (-2.1) ln 2). What forgets in a token or two leaves outputs
 * that are next to nothing now and then, and the norm behind them makes roundings large. */
static double
mean_of (const Weight *w)
{
  if (g_str_equal (w->weight->name, "log.rate"))
    return -2.1;
  return w->rows == 1 && !g_str_has_suffix (w->weight->name, "bias") ? 1 : 0;
}

static void
draw_weight (const SpInterpreter *in, const Weight *w, double *flat)
{
  guint64 key = sp_mix (sp_mix (in->seed, (guint64) (w->layer + 3)), g_str_hash (w->weight->name));
  double mean = mean_of (w), spread = mean > 0 ? 0.2 : MIN (0.35, 1.75 / sqrt ((double) MAX (w->cols, 1)));

  for (gint64 row = 0; row < w->weight->rows; row++)
    for (gint64 col = 0; col < w->weight->cols; col++) {
      gint64 index = global_index (w, row, col);
      double value = mean + spread * draw (key, index);

      /* as bf16 has it, so that a GPU starts with the same */
      flat[w->offset + row * w->weight->cols + col] = sp_round_to_digits (value, BF16_DIGITS) + nudge_of (in, w, index);
    }
}

/* --- the start ---------------------------------------------------------------------------------------------------- */

static gint64
parts_of (const SpInterpreter *in, const SpFlat *flat)
{
  return MAX (in->program->groups[flat->group].size, 1);
}

/* Fills a slot that lives ALWAYS with its part of the flat parameters. */
static void
fill (const SpInterpreter *in, SpRank *rank, gint32 index, const SpFlat *of, guint8 slot, const double *flat, gint64 n)
{
  SpFrame *frame = sp_rank_frame (rank, index, -1);
  SpStorage *storage = frame->slots[slot];
  gint64 first = sp_program_place (in->program, of->group, rank->number) * (n / parts_of (in, of));

  if (slot == 0 || storage == NULL || n == 0)
    return;
  if (storage->elements == n)
    first = 0;
  if (rank->recording != NULL)
    sp_record_start (rank, storage, index, (guint) (of - sp_agenda_block (in->program, rank->agenda, index)->flats),
                     first);
  else
    memcpy (storage->data, flat + first, MIN (storage->elements, n) * sizeof *flat);
}

static gboolean
check_shard (SpInterpreter *in, const SpBlock *block, const SpFlat *flat, guint8 slot)
{
  gint64 n = block->buffers[flat->parameters].elements, parts = parts_of (in, flat);
  gint64 elements = block->buffers[slot].elements;

  if (slot == 0 || elements == n || (n % parts == 0 && elements == n / parts))
    return TRUE;
  g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM,
               "%s block: slot %u has %" G_GINT64_FORMAT " elements, neither the %" G_GINT64_FORMAT
               " flat parameters nor one of %" G_GINT64_FORMAT " equal parts",
               sp_block_name (block->kind), slot, elements, n, parts);
  return FALSE;
}

/* NULL, with the error set, where the weights are not what they should be; free it. */
static double *
draw_flat (SpInterpreter *in, const SpRank *rank, gint32 index, guint f)
{
  const SpPosition *position = &rank->agenda->positions[index];
  const SpBlock *block = sp_agenda_block (in->program, rank->agenda, index);
  const SpFlat *flat = &block->flats[f];
  g_autofree double *values = g_new0 (double, MAX (block->buffers[flat->parameters].elements, 1));

  for (guint i = 0; i < block->n_weights; i++) {
    Weight w;

    if (!describe (in, rank, position, i, &w) ||
        w.offset + (gint64) w.weight->rows * w.weight->cols > block->buffers[w.flat->parameters].elements) {
      g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM,
                   "%s block: weight %s is no part of the flat parameters", sp_block_name (block->kind),
                   block->weights[i].name);
      return NULL;
    }
    if (w.flat == flat)
      draw_weight (in, &w, values);
  }
  return g_steal_pointer (&values);
}

static gboolean
start_flat (SpInterpreter *in, SpRank *rank, gint32 index, guint f)
{
  const SpBlock *block = sp_agenda_block (in->program, rank->agenda, index);
  const SpFlat *flat = &block->flats[f];
  gint64 n = block->buffers[flat->parameters].elements;
  g_autofree double *values = rank->recording == NULL ? draw_flat (in, rank, index, f) : NULL;
  const guint8 filled[] = { flat->parameters, flat->shard_parameters, flat->master };

  if (in->error != NULL)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (filled); i++) {
    if (!check_shard (in, block, flat, filled[i]))
      return FALSE;
    if (block->buffers[filled[i]].life == SP_LIFE_ALWAYS)
      fill (in, rank, index, flat, filled[i], values, n);
  }
  return check_shard (in, block, flat, flat->shard_gradients);
}

double *
sp_state_draw (const SpProgram *program, gint32 rank, guint64 seed, gint32 position, gint32 flat, GError **error)
{
  g_autofree SpInterpreter *in = g_new0 (SpInterpreter, 1);
  g_autofree SpRehearsedRank *reports = g_new0 (SpRehearsedRank, program->world);

  sp_interpreter_init (in, program, seed, SP_ORDER_EAGER, reports);
  double *values = draw_flat (in, &in->ranks[rank], position, (guint) flat);
  sp_interpreter_clear (in);
  if (in->error != NULL)
    g_propagate_error (error, in->error);
  return values;
}

static gboolean
start_position (SpInterpreter *in, SpRank *rank, gint32 index)
{
  const SpBlock *block = sp_agenda_block (in->program, rank->agenda, index);
  SpFrame *frame = sp_rank_frame (rank, index, -1);

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];

    if (buffer->life == SP_LIFE_ALWAYS && buffer->alias == 0 && !(buffer->tied && sp_rank_has_both_ends (in, rank)))
      frame->slots[slot] = sp_storage_new (rank, buffer);
  }
  for (guint f = 0; f < block->n_flats; f++)
    if (!start_flat (in, rank, index, f))
      return FALSE;
  return TRUE;
}

gboolean
sp_state_start (SpInterpreter *in, SpRank *rank)
{
  for (guint i = 0; i < rank->agenda->n_positions; i++)
    if (!start_position (in, rank, (gint32) i))
      return FALSE;
  return TRUE;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static guint8
gradient_slot (const SpFlat *flat)
{
  if (flat->host_gradients != 0)
    return flat->host_gradients;
  return flat->shard_gradients != 0 ? flat->shard_gradients : flat->gradients;
}

/* Where the next step would read its parameters. */
static guint8
parameter_slot (const SpBlock *block, const SpFlat *flat)
{
  return block->buffers[flat->parameters].life == SP_LIFE_ALWAYS ? flat->parameters : flat->shard_parameters;
}

void
sp_state_keep_gradients (SpInterpreter *in, SpRank *rank, gint32 position)
{
  const SpBlock *block = sp_agenda_block (in->program, rank->agenda, position);

  for (guint f = 0; f < block->n_flats; f++) {
    const SpStorage *storage = sp_rank_frame (rank, position, -1)->slots[gradient_slot (&block->flats[f])];
    double **kept = &rank->gradients[SP_MAX_FLATS * position + (gint32) f];

    g_clear_pointer (kept, g_free);
    if (storage != NULL && rank->recording != NULL)
      sp_record_gradients (rank, position, f, storage);
    else if (storage != NULL)
      *kept = g_memdup2 (storage->data, storage->elements * sizeof *storage->data);
  }
}

typedef struct {
  SpInterpreter *in;
  GArray *tensors;
  GHashTable *index; /* "layer name" -> 1 + index in tensors */
  double tolerance;  /* of copies on several ranks */
} Collector;

static SpRehearsedTensor *
tensor_of (Collector *c, const Weight *w)
{
  g_autofree char *key = g_strdup_printf ("%d %s", w->layer, w->weight->name);
  guint at = GPOINTER_TO_UINT (g_hash_table_lookup (c->index, key));

  if (at == 0) {
    SpRehearsedTensor tensor = { .layer = w->layer, .rows = w->rows, .cols = w->cols };

    g_strlcpy (tensor.name, w->weight->name, sizeof tensor.name);
    tensor.gradient = g_new (double, w->rows * w->cols);
    tensor.parameter = g_new (double, w->rows * w->cols);
    for (gint64 i = 0; i < w->rows * w->cols; i++)
      tensor.gradient[i] = tensor.parameter[i] = NAN;
    g_array_append_val (c->tensors, tensor);
    at = c->tensors->len;
    g_hash_table_insert (c->index, g_steal_pointer (&key), GUINT_TO_POINTER (at));
  }
  return &g_array_index (c->tensors, SpRehearsedTensor, at - 1);
}

/* Puts an element of a rank's part into the whole; another rank must not have put something else. */
static gboolean
put (Collector *c, const SpRank *rank, const Weight *w, const char *what, double *whole, gint64 at, double value,
     double scale)
{
  if (!isfinite (value))
    g_set_error (&c->in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_UNWRITTEN,
                 "rank %d: the %s of %s of layer %d is not a finite number at element %" G_GINT64_FORMAT, rank->number,
                 what, w->weight->name, w->layer, at);
  else if (!isnan (whole[at]) && !(fabs (whole[at] - value) <= c->tolerance * scale))
    g_set_error (&c->in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_MISMATCH,
                 "rank %d: the %s of %s of layer %d is %.17g at element %" G_GINT64_FORMAT
                 ", but another rank's copy is %.17g",
                 rank->number, what, w->weight->name, w->layer, value, at, whole[at]);
  else
    whole[at] = value;
  return c->in->error == NULL;
}

static gboolean
check_padding (Collector *c, const SpRank *rank, const Weight *w, const char *what, double value)
{
  if (*what != 'g' || value == 0)
    return TRUE;
  g_set_error (&c->in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_MISMATCH,
               "rank %d: a row of %s of layer %d that pads the vocabulary has a gradient, %.17g", rank->number,
               w->weight->name, w->layer, value);
  return FALSE;
}

/* One rank's flat buffer, or its shard of it, into the tensors. */
static gboolean
collect_part (Collector *c, const SpRank *rank, const SpPosition *position, const SpFlat *flat, const char *what,
              const double *part, gint64 first, gint64 n)
{
  const SpBlock *block = &c->in->program->variants[0].blocks[position->block];
  double largest = 0;

  for (gint64 i = 0; i < n; i++)
    largest = MAX (largest, fabs (part[i]));
  for (guint i = 0; i < block->n_weights; i++) {
    Weight w;
    SpRehearsedTensor *tensor;

    describe (c->in, rank, position, i, &w);
    if (w.flat != flat)
      continue;
    tensor = tensor_of (c, &w);
    if (tensor->rows != w.rows || tensor->cols != w.cols) {
      g_set_error (&c->in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_PROGRAM, "weight %s has two shapes",
                   tensor->name);
      return FALSE;
    }
    for (gint64 j = 0; j < (gint64) w.weight->rows * w.weight->cols; j++) {
      gint64 at = w.offset + j - first, index = global_index (&w, j / w.weight->cols, j % w.weight->cols);
      double *whole = *what == 'g' ? tensor->gradient : tensor->parameter;

      if (at < 0 || at >= n)
        continue;
      if (!(index < w.rows * w.cols ? put (c, rank, &w, what, whole, index, part[at], largest)
                                    : check_padding (c, rank, &w, what, part[at])))
        return FALSE;
    }
  }
  return TRUE;
}

static gboolean
collect_flat (Collector *c, SpRank *rank, gint32 index, guint f)
{
  const SpPosition *position = &rank->agenda->positions[index];
  const SpBlock *block = &c->in->program->variants[0].blocks[position->block];
  const SpFlat *flat = &block->flats[f];
  gint64 whole = block->buffers[flat->parameters].elements;
  gint64 place = sp_program_place (c->in->program, flat->group, rank->number);
  guint8 gradient = gradient_slot (flat), parameter = parameter_slot (block, flat);
  gint64 n_gradient = block->buffers[gradient].elements, n_parameter = block->buffers[parameter].elements;
  gint64 first_gradient = n_gradient < whole ? place * n_gradient : 0;
  gint64 first_parameter = n_parameter < whole ? place * n_parameter : 0;
  const double *gradients = rank->gradients[SP_MAX_FLATS * index + (gint32) f];
  const SpStorage *parameters = sp_rank_frame (rank, index, -1)->slots[parameter];
  g_autofree double *none = NULL;

  if (whole == 0)
    return TRUE;
  if (flat->frozen) { /* its gradient is reported as zero */
    gradients = none = g_new0 (double, whole);
    n_gradient = whole;
    first_gradient = 0;
  }
  if (gradients == NULL || parameters == NULL) {
    g_set_error (&c->in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_UNWRITTEN,
                 "rank %d: the step leaves no gradients or no parameters of layer %d", rank->number, position->layer);
    return FALSE;
  }
  return collect_part (c, rank, position, flat, "gradient", gradients, first_gradient, n_gradient) &&
         collect_part (c, rank, position, flat, "parameter", parameters->data, first_parameter, n_parameter);
}

static void
collect_position (Collector *c, SpRank *rank, gint32 index)
{
  const SpBlock *block = sp_agenda_block (c->in->program, rank->agenda, index);

  for (guint f = 0; f < block->n_flats && c->in->error == NULL; f++)
    collect_flat (c, rank, index, f);
}

/* From all ranks of a stage what they hold of a virtual stage. */
static void
collect_stage (Collector *c, gint32 stage, gint32 virtual_stage)
{
  const SpProgram *program = c->in->program;
  const SpAgenda *agenda = &c->in->agendas[stage];

  for (guint i = 0; i < agenda->n_positions; i++)
    for (gint32 r = 0; r < program->world && c->in->error == NULL; r++)
      if (c->in->ranks[r].stage == stage &&
          sp_program_virtual_stage (program, stage, agenda->positions[i].chunk) == virtual_stage)
        collect_position (c, &c->in->ranks[r], (gint32) i);
}

/* No shard may be missing. */
static gboolean
check_whole (SpInterpreter *in, const SpRehearsedTensor *tensor)
{
  for (gint64 i = 0; i < tensor->rows * tensor->cols; i++)
    if (isnan (tensor->gradient[i]) || isnan (tensor->parameter[i])) {
      g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_UNWRITTEN,
                   "no rank has element %" G_GINT64_FORMAT " of %s of layer %d", i, tensor->name, tensor->layer);
      return FALSE;
    }
  return TRUE;
}

static gboolean
collect (SpInterpreter *in, double tolerance, GArray *tensors)
{
  Collector c = { .in = in,
                  .tensors = tensors,
                  .index = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL),
                  .tolerance = tolerance };

  for (gint32 v = 0; v < sp_program_virtual_stages (in->program); v++)
    for (gint32 stage = 0; stage < in->program->stages; stage++)
      collect_stage (&c, stage, v);
  g_hash_table_unref (c.index);
  for (guint i = 0; i < tensors->len && in->error == NULL; i++)
    check_whole (in, &g_array_index (tensors, SpRehearsedTensor, i));
  return in->error == NULL;
}

gboolean
sp_state_collect (SpInterpreter *in, SpRehearsal *rehearsal)
{
  return collect (in, 1e-9, rehearsal->tensors);
}

/* Storage for parameters that nobody asks for. */
static void
make_parameters (SpInterpreter *in, SpRank *rank, gint32 index)
{
  const SpBlock *block = sp_agenda_block (in->program, rank->agenda, index);
  SpFrame *frame = sp_rank_frame (rank, index, -1);

  for (guint f = 0; f < block->n_flats; f++) {
    guint8 slot = parameter_slot (block, &block->flats[f]);
    if (frame->slots[slot] != NULL)
      continue;
    frame->slots[slot] = sp_storage_new (rank, &block->buffers[slot]);
    memset (frame->slots[slot]->data, 0, (gsize) block->buffers[slot].elements * sizeof (double));
  }
}

SpRehearsal *
sp_rehearsal_assemble (const SpProgram *program, double tolerance, SpGradientsFunc get, gpointer data, GError **error)
{
  g_autoptr (SpRehearsal) rehearsal = g_new0 (SpRehearsal, 1);
  g_autofree SpInterpreter *in = g_new0 (SpInterpreter, 1);

  rehearsal->world = program->world;
  rehearsal->ranks = g_new0 (SpRehearsedRank, program->world);
  rehearsal->tensors = g_array_new (FALSE, FALSE, sizeof (SpRehearsedTensor));
  sp_interpreter_init (in, program, 0, SP_ORDER_PROGRAM, rehearsal->ranks);
  for (gint32 r = 0; r < program->world; r++)
    for (guint i = 0; i < in->ranks[r].agenda->n_positions; i++) {
      const SpBlock *block = sp_agenda_block (program, in->ranks[r].agenda, (gint32) i);
      make_parameters (in, &in->ranks[r], (gint32) i);
      for (guint f = 0; f < block->n_flats; f++)
        in->ranks[r].gradients[SP_MAX_FLATS * i + f] = get (r, (gint32) i, (gint32) f, data);
    }
  collect (in, tolerance, rehearsal->tensors);
  sp_interpreter_clear (in);
  if (in->error != NULL) {
    g_propagate_error (error, in->error);
    return NULL;
  }
  return g_steal_pointer (&rehearsal);
}
