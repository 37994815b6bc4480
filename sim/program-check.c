/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/program-fields.h"

#include "sim/schedules.h"

/*
 * Whether a program that came from outside is safe to walk: every index inside its table, every count positive, ranks
 * and groups that agree. Whether it is a sensible program is not asked here; the rehearsal finds that out.
 */

#define FAIL(...)                                                                                                      \
  do                                                                                                                   \
    return g_strdup_printf (__VA_ARGS__);                                                                              \
  while (0)

static char *
check_ranks (const SpProgram *program)
{
  gint64 stride = 1;

  for (guint i = 0; i < program->n_digits; i++) {
    const SpDigit *digit = &program->digits[i];

    if (digit->size < 1 || digit->stride != stride)
      FAIL ("digit %u: size %d, stride %d, expected stride %" G_GINT64_FORMAT, i, digit->size, digit->stride, stride);
    stride *= digit->size;
    if (stride > G_MAXINT32)
      FAIL ("digit %u: more ranks than a rank number holds", i);
  }
  if (stride != program->world)
    FAIL ("world %d, but the digits make %" G_GINT64_FORMAT " ranks", program->world, stride);
  return NULL;
}

static char *
check_group (const SpProgram *program, SpGroupId id)
{
  const SpGroup *group = &program->groups[id];
  gint64 size = 1;
  guint seen = 0;

  if (group->n_digits > SP_MAX_DIGITS)
    FAIL ("group %s: %u digits", sp_group_name (id), group->n_digits);
  for (guint i = 0; i < group->n_digits; i++) {
    if (group->digits[i] >= program->n_digits || seen & 1u << group->digits[i])
      FAIL ("group %s: digit %u", sp_group_name (id), group->digits[i]);
    seen |= 1u << group->digits[i];
    size *= program->digits[group->digits[i]].size;
  }
  /* Two places of a longer pipeline: its size is not the product. */
  if ((id == SP_GROUP_TIE || id == SP_GROUP_MIRROR) && group->size >= 0 && group->size <= 2)
    return NULL;
  if (group->size != size && !(id == SP_GROUP_NONE && group->size == 0))
    FAIL ("group %s: size %d, but its digits make %" G_GINT64_FORMAT, sp_group_name (id), group->size, size);
  return NULL;
}

static char *
check_sequence (const SpProgram *program)
{
  const SpGroup *groups = program->groups;

  if (program->local_sequence < 1 || program->sequence > G_MAXINT32 ||
      program->local_sequence * groups[SP_GROUP_SEQUENCE].size != program->sequence)
    FAIL ("sequence %" G_GINT64_FORMAT " is not %d parts of %" G_GINT64_FORMAT, program->sequence,
          groups[SP_GROUP_SEQUENCE].size, program->local_sequence);
  if (program->token_split == SP_TOKENS_CONTIGUOUS)
    return NULL;
  gint32 parts = program->token_split == SP_TOKENS_ZIGZAG ? 2 : 1;
  if ((gint64) groups[SP_GROUP_RING].size * groups[SP_GROUP_ULYSSES].size != groups[SP_GROUP_SEQUENCE].size ||
      program->sequence % (parts * groups[SP_GROUP_RING].size) != 0)
    FAIL ("%s over a ring of %d: sequence %" G_GINT64_FORMAT, sp_token_split_name (program->token_split),
          groups[SP_GROUP_RING].size, program->sequence);
  return NULL;
}

static char *
check_schedule (const SpProgram *program)
{
  const SpSchedule *schedule = sp_schedule_get (program->schedule);
  const SpPipeline pipeline = sp_program_pipeline (program);
  const SpScheduleRule *rule = sp_schedule_broken_rule (schedule, &pipeline);

  if (rule != NULL) {
    g_autoptr (GString) text = g_string_new (NULL);

    rule->explain (&pipeline, text);
    FAIL ("schedule %s: %s", schedule->name, text->str);
  }
  if (schedule->mirrored && program->groups[SP_GROUP_MIRROR].size != 2)
    FAIL ("schedule %s: group mirror has size %d, expected 2", schedule->name, program->groups[SP_GROUP_MIRROR].size);
  return NULL;
}

static char *
check_layers (const SpProgram *program)
{
  gint32 parts = sp_program_virtual_stages (program);

  if (program->stage_first[0] != 0 || program->stage_first[parts] != (gint32) program->n_layers)
    FAIL ("the stages do not cover layers 0 to %u", program->n_layers);
  for (gint32 i = 0; i < parts; i++)
    if (program->stage_first[i] > program->stage_first[i + 1])
      FAIL ("stage %d ends before it begins", i);
  for (guint i = 0; i < program->n_layers; i++)
    if (program->layer_block[i] < 1 || program->layer_block[i] + 1u >= program->n_blocks)
      FAIL ("layer %u: no block %u", i, program->layer_block[i]);
  return NULL;
}

static char *
check_scope (const SpProgram *program)
{
  if (sp_program_is_one_layer (program) && (program->n_layers < 1 || sp_program_virtual_stages (program) != 1))
    FAIL ("scope %s: %u layers on %d virtual stages, expected at least one on one", sp_scope_name (program->scope),
          program->n_layers, sp_program_virtual_stages (program));
  return NULL;
}

/* Slices of a sequence follow each other and make it whole, once for each size of a micro-batch. */
static char *
check_slices (const SpProgram *program)
{
  gint32 slices = sp_program_slices (program), parts = program->groups[SP_GROUP_SEQUENCE].size;
  gint64 next = 0;

  if (program->slices < 0 || program->slices > SP_MAX_SLICES)
    FAIL ("%d slices, expected at most %d", program->slices, SP_MAX_SLICES);
  if (program->n_variants != slices && program->n_variants != 2 * slices)
    FAIL ("%d variants for %d slices", program->n_variants, slices);
  for (gint32 i = 0; i < program->n_variants; i++) {
    const SpVariant *variant = &program->variants[i];
    if (program->slices == 0 && (variant->first != 0 || variant->tokens != 0))
      FAIL ("variant %d: a slice of sequences that are whole", i);
    if (program->slices == 0)
      continue;
    if (variant->first != next || variant->tokens < 1 || variant->tokens % parts != 0 ||
        variant->tokens > program->sequence - next)
      FAIL ("variant %d: %" G_GINT64_FORMAT " tokens from %" G_GINT64_FORMAT " on", i, variant->tokens, variant->first);
    next += variant->tokens;
    if ((i + 1) % slices == 0 && next != program->sequence)
      FAIL ("slices of %" G_GINT64_FORMAT " tokens, of %" G_GINT64_FORMAT, next, program->sequence);
    if ((i + 1) % slices == 0)
      next = 0;
  }
  return NULL;
}

/* What slices share lies with the first one, and what they add up is made by the last. */
static char *
check_shared (const SpProgram *program, guint index, guint at, guint slot)
{
  const SpVariant *variant = &program->variants[index];
  const SpVariant *first =
      &program->variants[index / (guint) sp_program_slices (program) * (guint) sp_program_slices (program)];
  const SpBuffer *buffer = &variant->blocks[at].buffers[slot], *there = &first->blocks[at].buffers[slot];

  if (program->slices == 0 && (buffer->life == SP_LIFE_SEQUENCE || buffer->life == SP_LIFE_ACCUMULATED))
    FAIL ("buffer %u: life %s without slices", slot, sp_life_name (buffer->life));
  if (buffer->life == SP_LIFE_SEQUENCE && buffer->alias == 0 &&
      (buffer->bytes != 0 || variant == first || there->life != SP_LIFE_STASH || there->elements != buffer->elements))
    FAIL ("buffer %u: is not what the first slice has", slot);
  return NULL;
}

static char *
check_buffer (const SpVariant *variant, const SpBlock *block, guint slot)
{
  const SpBuffer *buffer = &block->buffers[slot];
  guint steps = 0;

  if (buffer->alias >= block->n_buffers || (buffer->tied && buffer->tied_slot >= variant->blocks[0].n_buffers))
    FAIL ("buffer %u: no such slot", slot);
  if (buffer->tied && block == &variant->blocks[0])
    FAIL ("buffer %u: tied to its own block", slot);
  if (buffer->alias != 0 && buffer->offset > block->buffers[buffer->alias].elements - buffer->elements)
    FAIL ("buffer %u: longer than buffer %u that it is a view of", slot, buffer->alias);
  for (guint at = slot; block->buffers[at].alias != 0; at = block->buffers[at].alias)
    if (++steps > block->n_buffers)
      FAIL ("buffer %u: a view of itself", slot);
  for (guint i = 0; i < 2; i++) {
    guint n = i == 0 ? block->segments[SP_PHASE_FORWARD].n
                     : block->segments[SP_PHASE_RECOMPUTE].n + block->segments[SP_PHASE_BACKWARD].n;

    if (block->last_use[i][slot] > n || block->first_use[i][slot] > block->last_use[i][slot])
      FAIL ("buffer %u: used from %u to %u of %u", slot, block->first_use[i][slot], block->last_use[i][slot], n);
  }
  return NULL;
}

static char *
check_flat (const SpBlock *block, guint index)
{
  const SpFlat *flat = &block->flats[index];
  const guint8 slots[] = { flat->parameters, flat->gradients, flat->shard_parameters, flat->shard_gradients,
                           flat->master,     flat->moment1,   flat->moment2 };

  if (flat->group != SP_GROUP_ZERO && flat->group != SP_GROUP_EXPERT_DATA)
    FAIL ("flat %u: group %s, expected zero or expert-data", index, sp_group_name (flat->group));
  if (flat->parameters == 0)
    FAIL ("flat %u: no parameters", index);
  for (guint i = 0; i < G_N_ELEMENTS (slots); i++)
    if (slots[i] >= block->n_buffers)
      FAIL ("flat %u: no slot %u", index, slots[i]);
  return NULL;
}

static char *
check_weight (const SpBlock *block, guint index)
{
  const SpWeight *weight = &block->weights[index];
  gint64 rows = 0;

  if (weight->flat >= block->n_flats)
    FAIL ("weight %s: no flat %u", weight->name, weight->flat);
  if (weight->slot == 0 || weight->slot >= block->n_buffers || weight->grad >= block->n_buffers)
    FAIL ("weight %s: no such slot", weight->name);
  if ((gint64) weight->rows * weight->cols != block->buffers[weight->slot].elements)
    FAIL ("weight %s: %d x %d is not its buffer's size", weight->name, weight->rows, weight->cols);
  if (weight->n_sections > SP_MAX_SECTIONS)
    FAIL ("weight %s: %u sections", weight->name, weight->n_sections);
  for (guint i = 0; i < weight->n_sections; i++)
    rows += weight->sections[i];
  if (weight->experts > 0)
    rows *= weight->experts;
  if (weight->n_sections > 0 && rows != weight->rows)
    FAIL ("weight %s: its sections have %" G_GINT64_FORMAT " rows of %d", weight->name, rows, weight->rows);
  return NULL;
}

static char *
check_loop (const SpProgram *program, const SpBlock *block, guint index)
{
  const SpLoop *loop = &block->loops[index];

  if (loop->first >= loop->end || loop->end > block->segments[loop->phase].n)
    FAIL ("loop %u: ops %u to %u of %u", index, loop->first, loop->end, block->segments[loop->phase].n);
  if (loop->steps < 1 || (loop->group != SP_GROUP_NONE && loop->steps != program->groups[loop->group].size))
    FAIL ("loop %u: %d steps in a group of %d", index, loop->steps, program->groups[loop->group].size);
  if (loop->round > 0 &&
      (loop->group != SP_GROUP_RING_INNER || loop->round >= program->groups[SP_GROUP_RING_OUTER].size))
    FAIL ("loop %u: round %u of %d", index, loop->round, program->groups[SP_GROUP_RING_OUTER].size);
  for (guint i = 0; i < loop->n_carries; i++) {
    const SpCarry *carry = &loop->carries[i];

    if (carry->init >= block->n_buffers || carry->current == 0 || carry->current >= block->n_buffers ||
        carry->next == 0 || carry->next >= block->n_buffers)
      FAIL ("loop %u, carry %u: no such slot", index, i);
  }
  for (guint i = 0; i < index; i++)
    if (block->loops[i].phase == loop->phase && block->loops[i].first < loop->end && loop->first < block->loops[i].end)
      FAIL ("loops %u and %u overlap", i, index);
  return NULL;
}

/* All steps of a view that moves lie within its buffer. */
static char *
check_tile (const SpBlock *block, guint8 slot, const SpLoop *loop)
{
  const SpBuffer *buffer = &block->buffers[slot], *whole = &block->buffers[buffer->alias];

  if (!buffer->moves)
    return NULL;
  if (buffer->alias == 0 || loop == NULL)
    FAIL ("buffer %u moves, and is %s", slot, loop == NULL ? "used outside a loop" : "no view");
  if (buffer->elements > 0 && (whole->elements - buffer->offset) / buffer->elements < loop->steps)
    FAIL ("buffer %u: %d steps reach beyond buffer %u", slot, loop->steps, buffer->alias);
  return NULL;
}

static char *
check_tiles (const SpBlock *block, const SpOp *op)
{
  const SpLoop *loop = op->loop != 0 ? &block->loops[op->loop - 1] : NULL;
  char *problem = NULL;

  for (guint i = 0; i < SP_MAX_IN && problem == NULL; i++)
    problem = check_tile (block, op->in[i], loop);
  for (guint i = 0; i < SP_MAX_OUT && problem == NULL; i++)
    problem = check_tile (block, op->out[i], loop);
  return problem;
}

/* A loop's ops name it, and no others do. */
static char *
check_loop_marks (const SpProgram *program, const SpBlock *block)
{
  for (SpPhase phase = 0; phase < SP_N_PHASES; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);

    for (guint i = 0; i < n; i++) {
      guint expected = 0;

      for (guint j = 0; j < block->n_loops; j++)
        if (block->loops[j].phase == phase && i >= block->loops[j].first && i < block->loops[j].end)
          expected = j + 1;
      if (ops[i].loop != expected)
        FAIL ("%s op %u: loop %u, expected %u", sp_phase_name (phase), i, ops[i].loop, expected);
      char *problem = check_tiles (block, &ops[i]);
      if (problem != NULL)
        return problem;
    }
  }
  return NULL;
}

static char *
check_block (const SpProgram *program, const SpVariant *variant, const SpBlock *block)
{
  char *problem = NULL;

  if (block->frozen >= SP_N_FROZENS)
    FAIL ("frozen = %u, at most %u", block->frozen, SP_N_FROZENS - 1);
  if (!sp_block_has_backward (block) && block->segments[SP_PHASE_BACKWARD].n > 0)
    FAIL ("frozen = %u, and it has a backward", block->frozen);
  for (guint i = 1; i < block->n_buffers && problem == NULL; i++)
    problem = check_buffer (variant, block, i);
  for (guint i = 0; i < block->n_flats && problem == NULL; i++)
    problem = check_flat (block, i);
  for (guint i = 0; i < block->n_weights && problem == NULL; i++)
    problem = check_weight (block, i);
  for (guint i = 0; i < block->n_loops && problem == NULL; i++)
    problem = check_loop (program, block, i);
  return problem != NULL ? problem : check_loop_marks (program, block);
}

/* Readers put the slots of the other direction in. */
static char *
check_pipe_gather (const SpProgram *program, const SpVariant *variant)
{
  const SpOp *gather = sp_program_pipe_gather (program, variant);

  if (variant->pipe_gather.n != program->variants[0].pipe_gather.n)
    FAIL ("pipe_gather: the variants do not both have one");
  if (gather == NULL)
    return NULL;
  if (gather->kind != SP_OP_ALL_GATHER || gather->group != SP_GROUP_TENSOR || gather->stream != SP_STREAM_TENSOR ||
      gather->guard != 0)
    FAIL ("pipe_gather: %s over %s on %s, expected all-gather over tensor on tensor, without a guard",
          sp_op_name ((SpOpKind) gather->kind), sp_group_name ((SpGroupId) gather->group),
          sp_stream_name ((SpStream) gather->stream));
  return NULL;
}

static char *
check_variant (const SpProgram *program, guint index)
{
  const SpVariant *variant = &program->variants[index];
  char *wrong = check_pipe_gather (program, variant);

  if (wrong != NULL)
    return wrong;
  if (variant->batch < 1)
    FAIL ("variant %u: batch %d", index, variant->batch);
  for (guint i = 0; i < program->n_blocks; i++) {
    const SpBlock *block = &variant->blocks[i];
    gboolean first = i == 0, last = i == program->n_blocks - 1;
    g_autofree char *problem = check_block (program, variant, block);

    if (first != (block->kind == SP_BLOCK_EMBEDDING) || last != (block->kind == SP_BLOCK_HEAD))
      FAIL ("variant %u, block %u: %s out of place", index, i, sp_block_name (block->kind));
    if (problem != NULL)
      FAIL ("variant %u, block %u (%s): %s", index, i, sp_block_name (block->kind), problem);
    if (block->n_buffers != program->variants[0].blocks[i].n_buffers ||
        block->n_flats != program->variants[0].blocks[i].n_flats ||
        block->frozen != program->variants[0].blocks[i].frozen ||
        block->n_weights != program->variants[0].blocks[i].n_weights)
      FAIL ("block %u: the variants have other buffers", i);
    for (guint slot = 1; slot < block->n_buffers; slot++) {
      char *shared = check_shared (program, index, i, slot);
      if (shared != NULL)
        return shared;
    }
  }
  return NULL;
}

char *
sp_program_check (const SpProgram *program)
{
  char *problem = check_ranks (program);

  for (guint i = 0; i < SP_N_GROUPS && problem == NULL; i++)
    problem = check_group (program, i);
  if (problem == NULL)
    problem = check_sequence (program);
  if (problem == NULL && (program->micro_batches < 1 || program->global_batch < 1 || program->n_blocks < 2))
    problem = g_strdup ("no micro-batches, no batch, or no blocks");
  if (problem == NULL)
    problem = check_layers (program);
  if (problem == NULL)
    problem = check_schedule (program);
  if (problem == NULL)
    problem = check_scope (program);
  if (problem == NULL)
    problem = check_slices (program);
  for (gint32 i = 0; i < program->n_variants && problem == NULL; i++)
    problem = check_variant (program, i);
  return problem;
}

char *
sp_program_check_op (const SpBlock *block, SpPhase phase, guint index, const SpOp *op)
{
  guint n_buffers = block != NULL ? block->n_buffers : SP_SLOT_FIRST_FREE;
  guint place_guards = SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST | SP_GUARD_VISIBLE;
  guint step_guards = SP_GUARD_FIRST_STEP | SP_GUARD_NOT_FIRST_STEP | SP_GUARD_NOT_LAST_STEP | SP_GUARD_VISIBLE |
                      SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS;

  for (guint i = 0; i < SP_MAX_IN; i++)
    if (op->in[i] != 0 && op->in[i] >= n_buffers)
      FAIL ("in %u: no slot %u", i, op->in[i]);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    if (op->out[i] != 0 && op->out[i] >= n_buffers)
      FAIL ("out %u: no slot %u", i, op->out[i]);
  for (guint i = 0; i < G_N_ELEMENTS (op->wait); i++)
    if (op->wait[i] > index && op->loop == 0)
      FAIL ("waits for op %u, which comes later", op->wait[i] - 1);
  if (op->loop > (block != NULL ? block->n_loops : 0))
    FAIL ("no loop %u", op->loop);
  if (op->loop != 0 && block->loops[op->loop - 1].phase != phase)
    FAIL ("loop %u is of another phase", op->loop);
  if (op->guard & step_guards && op->loop == 0)
    FAIL ("a guard on steps outside a loop");
  if ((op->guard & place_guards || sp_op_is_communication (op->kind)) && op->group == SP_GROUP_NONE)
    FAIL ("a place in no group");
  return NULL;
}
