/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/memory-private.h"

#include <string.h>

/* Plans, and the states of ranks that walk, item by item. */

/* clang-format off */
G_DEFINE_QUARK (sp-memory-error-quark, sp_memory_error)
/* clang-format on */

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static guint16
context_of (SpMemoryPlan *plan, const SpMemoryStage *stage, guint at)
{
  const SpPosition *p = stage->positions;
  gboolean is_first = at == 0 || p[at - 1].chunk != p[at].chunk;
  gboolean is_last = at + 1 == stage->n_positions || p[at + 1].chunk != p[at].chunk;
  SpMemoryContext context = { .block = p[at].block,
                              .before = is_first ? -1 : p[at - 1].block,
                              .after = is_last ? -1 : p[at + 1].block,
                              .both_ends = stage->both_ends };

  for (guint i = 0; i < plan->contexts->len; i++) {
    const SpMemoryContext *other = &g_array_index (plan->contexts, SpMemoryContext, i);
    if (other->block == context.block && other->before == context.before && other->after == context.after &&
        other->both_ends == context.both_ends)
      return (guint16) i;
  }
  g_array_append_val (plan->contexts, context);
  return (guint16) (plan->contexts->len - 1);
}

static void
add_always (const SpMemoryPlan *plan, SpMemoryStage *stage, guint at)
{
  const SpBlock *block = &plan->program->variants[0].blocks[stage->positions[at].block];

  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];

    if (buffer->life != SP_LIFE_ALWAYS || buffer->alias != 0 || (buffer->tied && stage->both_ends))
      continue;
    stage->always_bytes += buffer->bytes;
    stage->always_by_class[buffer->class] += buffer->bytes;
  }
}

static void
plan_stage (SpMemoryPlan *plan, const SpWalkPlan *walk, gint32 s)
{
  SpMemoryStage *stage = &plan->stages[s];
  gint32 head = -1;

  stage->positions = sp_walk_positions (walk, s, &stage->n_positions);
  stage->context = g_new (guint16, stage->n_positions);
  stage->embedding = -1;
  for (guint at = 0; at < stage->n_positions; at++) {
    if (stage->positions[at].layer == SP_LAYER_EMBEDDING)
      stage->embedding = (gint32) at;
    if (stage->positions[at].layer == SP_LAYER_HEAD)
      head = (gint32) at;
  }
  stage->both_ends = stage->embedding >= 0 && head >= 0;
  for (guint at = 0; at < stage->n_positions; at++) {
    stage->context[at] = context_of (plan, stage, at);
    add_always (plan, stage, at);
  }
}

/* Groups that guards of a list's ops name: ranks at different places of them may hold different buffers. */
static guint64
guarded_groups (const SpProgram *program)
{
  guint64 groups = 0;

  for (guint i = 0; i < program->n_ops; i++)
    if (program->ops[i].guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST | SP_GUARD_VISIBLE))
      groups |= G_GUINT64_CONSTANT (3) << (2 * program->ops[i].group);
  return groups;
}

SpMemoryPlan *
sp_memory_plan_new (const SpProgram *program, const SpWalkPlan *walk, GError **error)
{
  g_autoptr (SpMemoryPlan) plan = g_new0 (SpMemoryPlan, 1);

  G_STATIC_ASSERT (2 * SP_N_GROUPS <= 64);
  plan->program = program;
  plan->walk = walk;
  plan->contexts = g_array_new (FALSE, FALSE, sizeof (SpMemoryContext));
  plan->places = g_array_new (FALSE, FALSE, sizeof (guint64));
  plan->profiles = g_ptr_array_new ();
  plan->guarded = guarded_groups (program);
  plan->lives = g_new (SpBlockLives, (guint) program->n_variants * program->n_blocks);
  plan->stages = g_new0 (SpMemoryStage, program->stages);
  for (gint32 v = 0; v < program->n_variants; v++)
    for (guint b = 0; b < program->n_blocks; b++) {
      SpBlockLives *lives = &plan->lives[(guint) v * program->n_blocks + b];
      if (!sp_memory_lives_init (program, sp_walk_order (walk), (guint) v, b, lives, error))
        return NULL;
      plan->most_of_step = MAX (plan->most_of_step, lives->n_of_step);
    }
  for (gint32 s = 0; s < program->stages; s++)
    plan_stage (plan, walk, s);
  return g_steal_pointer (&plan);
}

void
sp_memory_plan_free (SpMemoryPlan *plan)
{
  if (plan == NULL)
    return;
  for (guint i = 0; i < plan->profiles->len; i++)
    if (plan->profiles->pdata[i] != NULL)
      g_array_unref (plan->profiles->pdata[i]);
  for (gint32 s = 0; s < plan->program->stages; s++)
    g_free (plan->stages[s].context);
  g_free (plan->stages);
  g_free (plan->lives);
  g_array_unref (plan->contexts);
  g_array_unref (plan->places);
  g_ptr_array_unref (plan->profiles);
  g_free (plan);
}

/* --- states ------------------------------------------------------------------------------------------------------- */

static guint
place_class (SpMemoryPlan *plan, guint64 place)
{
  guint i = 0;

  while (i < plan->places->len && g_array_index (plan->places, guint64, i) != place)
    i++;
  if (i == plan->places->len) {
    g_array_append_val (plan->places, place);
    g_ptr_array_set_size (plan->profiles, (gint) (plan->places->len * plan->contexts->len *
                                                  (guint) plan->program->n_variants * SP_N_LISTS));
  }
  return i;
}

static void
start (SpMemoryPlan *plan, gint32 stage, guint64 place, SpMemoryState *state)
{
  const SpMemoryStage *of = &plan->stages[stage];

  *state = (SpMemoryState){ .stage = stage,
                            .place_class = place_class (plan, place),
                            .live_bytes = of->always_bytes,
                            .item_bytes = of->always_bytes,
                            .peak_bytes = of->always_bytes,
                            .peak_item = { .micro_batch = -1 },
                            .peak_index = G_MAXUINT32,
                            .held = -1 };
  memcpy (state->live_by_class, of->always_by_class, sizeof of->always_by_class);
  memcpy (state->item_by_class, of->always_by_class, sizeof of->always_by_class);
  memcpy (state->peak_by_class, of->always_by_class, sizeof of->always_by_class);
  state->live = g_new0 (guint32, of->n_positions);
  state->claims = g_new0 (gint32, of->n_positions * plan->most_of_step);
}

void
sp_memory_start (SpMemoryPlan *plan, gint32 stage, SpMemoryState *state)
{
  start (plan, stage, 0, state);
}

void
sp_memory_start_rank (SpMemoryPlan *plan, gint32 rank, SpMemoryState *state)
{
  const SpProgram *program = plan->program;
  guint64 bits = 0;

  for (guint g = 1; g < SP_N_GROUPS; g++) {
    if (!(plan->guarded >> (2 * g) & 1))
      continue;
    gint32 place = sp_program_place (program, (SpGroupId) g, rank);
    guint64 is_first = place == 0, is_last = place >= program->groups[g].size - 1;
    bits |= is_first << (2 * g) | is_last << (2 * g + 1);
  }
  start (plan, sp_program_place (program, SP_GROUP_PIPELINE, rank), bits, state);
}

void
sp_memory_state_clear (SpMemoryState *state)
{
  g_clear_pointer (&state->live, g_free);
  g_clear_pointer (&state->claims, g_free);
}

/* --- items -------------------------------------------------------------------------------------------------------- */

SpListKind
sp_memory_list_of (const SpItem *item)
{
  switch ((SpPhase) item->phase) {
  case SP_PHASE_GATHER:
    return SP_LIST_GATHER;
  case SP_PHASE_FORWARD:
    return SP_LIST_FORWARD;
  case SP_PHASE_RECOMPUTE:
    return SP_LIST_RECOMPUTE;
  case SP_PHASE_BACKWARD:
    return !(item->mask & SP_OP_WEIGHT)    ? SP_LIST_BACKWARD
           : !(item->flags & SP_OP_WEIGHT) ? SP_LIST_BACKWARD_INPUT
                                           : SP_LIST_BACKWARD_WEIGHT;
  case SP_PHASE_SYNC:
    return item->flags & SP_OP_PER_MICRO_BATCH ? SP_LIST_SYNC_EACH : SP_LIST_SYNC_ONCE;
  case SP_PHASE_OPTIMIZER:
    return SP_LIST_OPTIMIZER;
  default:
    g_return_val_if_reached (SP_LIST_OPTIMIZER);
  }
}

guint8
sp_memory_pipe_slot (const SpItem *item)
{
  gboolean is_send = item->kind == SP_ITEM_SEND;

  return item->backward ? (is_send ? SP_SLOT_DX : SP_SLOT_DY) : (is_send ? SP_SLOT_Y : SP_SLOT_X);
}

const SpBlock *
sp_memory_block (const SpMemoryPlan *plan, const SpMemoryState *state, const SpItem *item,
                 const SpVariant **ret_variant)
{
  *ret_variant = sp_walk_variant (plan->program, item->micro_batch);
  return &(*ret_variant)->blocks[plan->stages[state->stage].positions[item->position].block];
}

static const SpListProfile *
profile_of (SpMemoryPlan *plan, const SpMemoryState *state, const SpItem *item, const SpVariant *variant, guint32 live)
{
  guint16 context = plan->stages[state->stage].context[item->position];
  guint v = (guint) (variant - plan->program->variants), list = sp_memory_list_of (item);
  guint variants = (guint) plan->program->n_variants;
  guint index = ((state->place_class * plan->contexts->len + context) * variants + v) * SP_N_LISTS + list;
  GArray *profiles = plan->profiles->pdata[index];

  for (guint i = 0; profiles != NULL && i < profiles->len; i++)
    if (g_array_index (profiles, SpListProfile, i).live == live)
      return &g_array_index (profiles, SpListProfile, i);
  if (profiles == NULL)
    plan->profiles->pdata[index] = profiles = g_array_new (FALSE, FALSE, sizeof (SpListProfile));
  SpListWalk walk;
  sp_memory_walk_list (plan, g_array_index (plan->places, guint64, state->place_class),
                       &g_array_index (plan->contexts, SpMemoryContext, context), v, (SpListKind) list, live, G_MAXUINT,
                       0, &walk);
  g_array_append_val (profiles, walk.profile);
  return &g_array_index (profiles, SpListProfile, profiles->len - 1);
}

static void
end_of_step (SpMemoryState *state, gint32 position, guint bit, const SpBuffer *buffer)
{
  if (!(state->live[position] >> bit & 1))
    return;
  state->live[position] &= ~(1u << bit);
  state->live_bytes -= buffer->bytes;
  state->live_by_class[buffer->class] -= buffer->bytes;
}

/* Lets go of what is held over. */
static void
end_held (const SpMemoryPlan *plan, SpMemoryState *state)
{
  guint index = plan->stages[state->stage].positions[state->held].block;
  const SpBlockLives *lives = sp_memory_lives_of (plan, 0, index);
  const SpBlock *block = &plan->program->variants[0].blocks[index];

  for (guint i = 0; i < lives->n_of_step; i++)
    if (lives->held >> i & 1)
      end_of_step (state, state->held, i, &block->buffers[lives->of_step[i]]);
  state->held = -1;
}

void
sp_memory_begin_item (const SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item)
{
  if (state->held >= 0 && item->slot != state->held_slot)
    end_held (plan, state);
}

/* SYNC is over, or as an async one still reads what it holds over. Beside what ends the step no BACKWARD runs. */
static void
end_summed (const SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item, const SpBlock *block,
            const SpBlockLives *lives)
{
  guint n_slots;

  sp_walk_slots (plan->walk, state->stage, &n_slots);
  guint32 held = item->slot < (gint32) n_slots ? state->live[item->position] & lives->held : 0;
  for (guint i = 0; i < lives->n_of_step; i++)
    if (block->buffers[lives->of_step[i]].life == SP_LIFE_SUMMED && !(held >> i & 1))
      end_of_step (state, item->position, i, &block->buffers[lives->of_step[i]]);
  if (held == 0)
    return;
  if (state->held >= 0 && state->held != item->position)
    end_held (plan, state);
  state->held = item->position;
  state->held_slot = item->slot;
}

/* The sequence's first slice has been back. */
static void
end_accumulated (SpMemoryState *state, const SpItem *item, const SpBlock *block, const SpBlockLives *lives)
{
  for (guint i = 0; i < lives->n_of_step; i++)
    if (block->buffers[lives->of_step[i]].life == SP_LIFE_ACCUMULATED)
      end_of_step (state, item->position, i, &block->buffers[lives->of_step[i]]);
}

/* Parameters that were gathered, the tied matrix's of another block too, have one more or one less use. */
static void
claim_gathered (const SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item, const SpVariant *variant,
                const SpBlockLives *lives, gint32 claim)
{
  const SpMemoryStage *stage = &plan->stages[state->stage];
  const SpBlockLives *all = sp_memory_lives_of (plan, (guint) (variant - plan->program->variants), 0);
  const SpBlock *own = &variant->blocks[lives - all];

  for (guint i = 0; i < lives->n_gathered; i++) {
    guint8 slot = lives->gathered[i];
    gboolean is_other = own->buffers[slot].tied && stage->both_ends;
    guint index = is_other ? 0 : (guint) (lives - all);
    gint32 position = is_other ? stage->embedding : item->position;
    guint8 root = is_other ? own->buffers[slot].tied_slot : slot, number = all[index].bit[root];

    if (number == 0 || !(state->live[position] >> (number - 1) & 1))
      continue;
    gint32 *claims = &state->claims[(guint) position * plan->most_of_step + number - 1];
    *claims += claim;
    if (*claims <= 0)
      end_of_step (state, position, number - 1u, &variant->blocks[index].buffers[root]);
  }
}

/* Which way a list's end changes the uses of gathered parameters: kept, they have a sequence's. */
static gint32
claim_of (const SpVariant *variant, const SpBlock *block, const SpBlockLives *lives, SpListKind list)
{
  if (!lives->gathers || !sp_block_gathers (block, variant))
    return 0;
  switch (list) {
  case SP_LIST_GATHER:
    return 1;
  case SP_LIST_FORWARD:
    return block->regather ? -1 : 0;
  case SP_LIST_BACKWARD:
    return -1;
  case SP_LIST_BACKWARD_INPUT:
    return lives->weight_reads ? 0 : -1;
  case SP_LIST_BACKWARD_WEIGHT:
    return lives->weight_reads ? -1 : 0;
  default:
    return 0;
  }
}

static void
end_item (const SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item, const SpVariant *variant,
          const SpBlock *block, const SpBlockLives *lives)
{
  gint32 claim = claim_of (variant, block, lives, sp_memory_list_of (item));

  if (claim != 0)
    claim_gathered (plan, state, item, variant, lives, claim);
  if (item->phase == SP_PHASE_BACKWARD && plan->program->slices > 0 && variant->first == 0)
    end_accumulated (state, item, block, lives);
  if (item->phase == SP_PHASE_SYNC)
    end_summed (plan, state, item, block, lives);
  else if (item->phase == SP_PHASE_BACKWARD && state->held >= 0 && lives->sums)
    end_held (plan, state);
}

static gboolean
note_peak (SpMemoryState *state, const SpItem *item, guint op, gint32 step, guint *ret_op)
{
  if (state->item_bytes <= state->peak_bytes)
    return FALSE;
  state->peak_bytes = state->item_bytes;
  memcpy (state->peak_by_class, state->item_by_class, sizeof state->item_by_class);
  state->peak_item = *item;
  state->peak_op = op;
  state->peak_step = step;
  state->peak_index = state->n_items - 1;
  *ret_op = op;
  return TRUE;
}

static gboolean
pipe_item (SpMemoryState *state, const SpItem *item, const SpBlock *block, guint *ret_op)
{
  const SpBuffer *buffer = &block->buffers[sp_memory_pipe_slot (item)];
  gint64 change = item->kind == SP_ITEM_RECEIVE ? buffer->bytes : item->kind == SP_ITEM_SEND ? -buffer->bytes : 0;

  state->item_bytes = state->live_bytes + MAX (0, change);
  memcpy (state->item_by_class, state->live_by_class, sizeof state->live_by_class);
  state->item_by_class[buffer->class] += MAX (0, change);
  state->live_bytes += change;
  state->live_by_class[buffer->class] += change;
  return note_peak (state, item, 0, 0, ret_op);
}

gboolean
sp_memory_item (SpMemoryPlan *plan, SpMemoryState *state, const SpItem *item, guint *ret_op)
{
  const SpVariant *variant;
  const SpBlock *block = sp_memory_block (plan, state, item, &variant);
  const SpBlockLives *lives =
      sp_memory_lives_of (plan, (guint) (variant - plan->program->variants), (guint) (block - variant->blocks));
  const SpMemoryStage *stage = &plan->stages[state->stage];

  state->n_items++;
  sp_memory_begin_item (plan, state, item);
  if (item->kind != SP_ITEM_LIST)
    return pipe_item (state, item, block, ret_op);
  gboolean has_other = lives->is_tied && stage->both_ends;
  guint32 live = state->live[item->position] | (has_other ? state->live[stage->embedding] << SP_OTHER_SHIFT : 0);
  const SpListProfile *profile = profile_of (plan, state, item, variant, live);

  state->item_bytes = state->live_bytes + profile->excess_bytes;
  state->live_bytes += profile->net_bytes;
  for (guint c = 0; c < SP_CLASS_RESERVED; c++) {
    state->item_by_class[c] = state->live_by_class[c] + profile->excess_by_class[c];
    state->live_by_class[c] += profile->net_by_class[c];
  }
  state->live[item->position] = profile->leaves & ((1u << SP_OTHER_SHIFT) - 1);
  if (has_other)
    state->live[stage->embedding] = profile->leaves >> SP_OTHER_SHIFT;
  gboolean is_peak = note_peak (state, item, profile->op, profile->step, ret_op);
  if (lives->n_of_step > 0)
    end_item (plan, state, item, variant, block, lives);
  return is_peak;
}
