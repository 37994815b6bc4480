/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/count-allocations.h"

#include "models/estimate/memory.h"
#include "tests/memory-walk.h"

/* Memory over the walk of one program, whose bytes are worked out by hand. */

/*
 * Two layers between an embedding and a head, one micro-batch. Bytes: X, Y, DX, DY 10; embedding's table 100, always.
 * A layer: shard 20, always; gathered G 40, twice; stash A 7; T 30 between the forward's first two ops; H 5 from the
 * backward's first op to its weights' part; summed D 50. The head: logits 25 kept.
 *    always 100 + 2 x 20                                                                140
 *    forward of layer 1, at its op 1: X0 A0 X1, G, T, A1        140 + 27 + 40 + 30 + 7  244
 *    before the backward of layer 1: X0 A0 X1 A1 and DY         140 + 34 + 10           184
 *    in it, at its op 1: G, D, H, DX                            184 + 40 + 50 + 5 + 10  289, the peak
 *    after it: X0 A0, DX and D                                  140 + 17 + 10 + 50      217
 *    the same of layer 0: 217 - 50 (synced) + 40 + 50 + 5 + 10                          272
 *  eager: G of layer 0 beside the backward of layer 1           289 + 40                329, the peak
 *  in two parts: after the first of layer 1: X1 A1 DY H, DX, D of it stay
 *                                                               184 + 50 + 5 + 10       249
 *    in the first of layer 0, at its op 1: G, D, H, DX          249 + 40 + 50 + 5 + 10  354, the peak
 *    after the embedding's, which takes DX                      354 - 40 - 10           304
 *    after the second of layer 1 and its SYNC: X1 A1 DY H D go  304 - 32 - 50           222
 *    and after that of layer 0                                                          140
 *  ZeRO-1, eager: D always, SYNC once a step leaves a shard R 60 until its end
 *    always                                                     140 + 2 x 50            240
 *    in the backward of layer 1, at its op 1: X0 A0 X1 A1 DY, G twice, H, DX
 *                                                               240 + 44 + 80 + 15      379
 *    after it and its SYNC: X0 A0 DX, R                         240 + 27 + 60           327
 *    in that of layer 0: G, H, DX                               327 + 40 + 15           382, the peak
 *    at the end                                                 240 + 2 x 60            360
 *  ZeRO-3 over three layers, eager, SYNC async: D of a layer stays until the end of the backward of the one before it
 *    always                                                     100 + 3 x 20            160
 *    before the backward of layer 2: X0 A0 X1 A1 X2 A2 and DY, G2 and G1
 *                                                               160 + 51 + 10 + 80      301
 *    in it, at its op 1: D2, H, DX                              301 + 50 + 5 + 10       366
 *    after it: X2 A2 DY, G2, H go, D2 is held over              366 - 27 - 40 - 5       294
 *    in that of layer 1, at its op 1: G0, D1, H, DX             294 + 40 + 50 + 5 + 10  399, the peak
 *    after it: X1 A1 DY, G1, H and D2 go, D1 is held over       399 - 27 - 40 - 5 - 50  277
 *    in that of layer 0: D0, H, DX                              277 + 50 + 5 + 10       342
 *    after it: X0 A0 DY, G0, H and D1 go                        342 - 27 - 40 - 5 - 50  220
 *    after the embedding's: D0, until the slot's end            160 + 50                210
 *  in the order of the program nothing is ahead or held: the peak is that of layer 2, 366 - 40 (G1)
 *                                                                                       326
 */
enum { TABLE = SP_SLOT_FIRST_FREE, SHARD = TABLE, GATHERED, STASH, SCRATCH, H, SUMMED, REDUCED, N_LAYER_SLOTS };

static SpBuffer
hand_buffer (gint64 bytes, SpClass class, SpLife life)
{
  return (SpBuffer){ .bytes = bytes, .elements = bytes, .class = class, .dtype = SP_DTYPE_UINT8, .life = life };
}

static void
hand_block (SpBlock *block, SpBlockKind kind, guint n_buffers)
{
  block->kind = kind;
  block->n_buffers = (guint8) n_buffers;
  block->buffers[SP_SLOT_X] = hand_buffer (kind != SP_BLOCK_EMBEDDING ? 10 : 0, SP_CLASS_ACTIVATIONS, SP_LIFE_STASH);
  for (guint slot = SP_SLOT_Y; slot <= SP_SLOT_DX; slot++)
    block->buffers[slot] = hand_buffer (10, SP_CLASS_ACTIVATIONS, SP_LIFE_HANDOFF);
}

static void
hand_ops (SpProgram *program, SpBlock *block, SpPhase phase, const SpOp *ops, guint n)
{
  program->ops = g_renew (SpOp, program->ops, program->n_ops + n);
  memcpy (program->ops + program->n_ops, ops, n * sizeof *ops);
  block->segments[phase] = (SpSegment){ program->n_ops, n };
  program->n_ops += n;
  program->ops_capacity = program->n_ops;
}

#define HAND_OPS(block, phase, ...)                                                                                    \
  hand_ops (program, block, phase, (const SpOp[]){ __VA_ARGS__ }, sizeof ((SpOp[]){ __VA_ARGS__ }) / sizeof (SpOp))

static SpProgram *
hand_program (void)
{
  SpProgram *program = sp_program_new ();
  SpBlock *embedding = &program->variants[0].blocks[0], *layer = embedding + 1, *head = embedding + 2;

  program->world = program->stages = program->chunks = program->micro_batches = program->n_variants = 1;
  program->schedule = (guint8) sp_schedule_find ("1f1b");
  program->n_blocks = 3;
  program->n_layers = 2;
  program->layer_block = g_new (guint8, 2);
  program->layer_block[0] = program->layer_block[1] = 1;
  program->stage_first = g_new0 (gint32, 2);
  program->stage_first[1] = 2;

  hand_block (embedding, SP_BLOCK_EMBEDDING, TABLE + 1);
  embedding->buffers[TABLE] = hand_buffer (100, SP_CLASS_PARAMETERS, SP_LIFE_ALWAYS);
  HAND_OPS (embedding, SP_PHASE_FORWARD, { .in = { TABLE }, .out = { SP_SLOT_Y } });
  HAND_OPS (embedding, SP_PHASE_BACKWARD, { .in = { SP_SLOT_DY }, .out = { TABLE } });

  hand_block (layer, SP_BLOCK_SOFTMAX, N_LAYER_SLOTS);
  layer->regather = TRUE;
  layer->buffers[SHARD] = hand_buffer (20, SP_CLASS_PARAMETERS, SP_LIFE_ALWAYS);
  layer->buffers[GATHERED] = hand_buffer (40, SP_CLASS_PARAMETERS, SP_LIFE_GATHERED);
  layer->buffers[STASH] = hand_buffer (7, SP_CLASS_ACTIVATIONS, SP_LIFE_STASH);
  layer->buffers[SCRATCH] = hand_buffer (30, SP_CLASS_WORKSPACE, SP_LIFE_SEGMENT);
  layer->buffers[H] = hand_buffer (5, SP_CLASS_ACTIVATIONS, SP_LIFE_SEGMENT);
  layer->buffers[SUMMED] = hand_buffer (50, SP_CLASS_GRADIENTS, SP_LIFE_SUMMED);
  HAND_OPS (layer, SP_PHASE_GATHER,
            { .kind = SP_OP_ALL_GATHER, .flags = SP_OP_ASYNC, .in = { SHARD }, .out = { GATHERED } });
  HAND_OPS (layer, SP_PHASE_FORWARD, { .in = { SP_SLOT_X, GATHERED }, .out = { SCRATCH } },
            { .in = { SCRATCH }, .out = { STASH } }, { .in = { STASH }, .out = { SP_SLOT_Y } });
  HAND_OPS (layer, SP_PHASE_BACKWARD, { .in = { SP_SLOT_DY, GATHERED }, .out = { H } },
            { .in = { H, GATHERED }, .out = { SP_SLOT_DX } },
            { .flags = SP_OP_WEIGHT, .in = { H, STASH }, .out = { SUMMED } },
            { .flags = SP_OP_WEIGHT, .in = { SP_SLOT_DY, SP_SLOT_X }, .out = { SUMMED } });
  HAND_OPS (layer, SP_PHASE_SYNC, { .flags = SP_OP_PER_MICRO_BATCH, .in = { SUMMED }, .out = { SHARD } });

  hand_block (head, SP_BLOCK_HEAD, SP_SLOT_FIRST_FREE + 1);
  head->buffers[SP_SLOT_FIRST_FREE] = hand_buffer (25, SP_CLASS_LOGITS, SP_LIFE_STASH);
  HAND_OPS (head, SP_PHASE_FORWARD, { .in = { SP_SLOT_X }, .out = { SP_SLOT_FIRST_FREE } });
  HAND_OPS (head, SP_PHASE_BACKWARD, { .in = { SP_SLOT_FIRST_FREE }, .out = { SP_SLOT_DX } });
  return program;
}

/* The plan of a program, and the state of its only stage. */
typedef struct {
  SpProgram *program;
  SpWalkPlan *walks;
  SpMemoryPlan *plan;
  SpMemoryState state;
} Hand;

static void
hand_init (Hand *hand, SpWalkOrder order)
{
  g_autoptr (GError) error = NULL;

  hand->program = hand_program ();
  hand->walks = sp_walk_plan_new (hand->program, order);
  hand->plan = sp_memory_plan_new (hand->program, hand->walks, &error);
  g_assert_no_error (error);
  sp_memory_start (hand->plan, 0, &hand->state);
  g_assert_cmpint (hand->state.live_bytes, ==, 140);
}

static void
hand_clear (Hand *hand)
{
  sp_memory_state_clear (&hand->state);
  sp_memory_plan_free (hand->plan);
  sp_walk_plan_free (hand->walks);
  sp_program_free (hand->program);
}

static void
check_peak (const Hand *hand, gint64 parameters, gint64 gradients, gint64 activations, gint32 position)
{
  const SpMemoryState *state = &hand->state;

  g_assert_cmpint (state->peak_bytes, ==, parameters + gradients + activations);
  g_assert_cmpint (state->peak_by_class[SP_CLASS_PARAMETERS], ==, parameters);
  g_assert_cmpint (state->peak_by_class[SP_CLASS_GRADIENTS], ==, gradients);
  g_assert_cmpint (state->peak_by_class[SP_CLASS_ACTIVATIONS], ==, activations);
  g_assert_cmpint (state->peak_item.phase, ==, SP_PHASE_BACKWARD);
  g_assert_cmpint (state->peak_item.position, ==, position);
  g_assert_cmpuint (state->peak_op, ==, 1);
}

/* One step, whose peak is in the backward of position 2. */
static void
check_step (SpWalkOrder order, gint64 parameters)
{
  Hand hand;

  hand_init (&hand, order);
  walk_step (hand.plan, hand.walks, &hand.state);
  check_peak (&hand, parameters, 50, 59, 2);
  g_assert_cmpint (hand.state.live_bytes, ==, 140);
  check_list (hand.program, hand.plan, 0, &hand.state);
  hand_clear (&hand);
}

static void
test_hand_plain (void)
{
  check_step (SP_ORDER_PROGRAM, 180);
}

static void
test_hand_eager (void)
{
  check_step (SP_ORDER_EAGER, 220);
}

/* As the writer counts uses: of RECOMPUTE, which there is none of, and BACKWARD in the second row. */
static void
count_uses (const SpProgram *program, SpBlock *block)
{
  static const SpPhase phases[] = { SP_PHASE_FORWARD, SP_PHASE_BACKWARD };

  for (guint list = 0; list < 2; list++) {
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phases[list], &n);
    for (guint i = 0; i < n; i++)
      for (guint j = 0; j < SP_MAX_IN + SP_MAX_OUT; j++) {
        guint8 slot = j < SP_MAX_IN ? ops[i].in[j] : ops[i].out[j - SP_MAX_IN];
        if (block->first_use[list][slot] == 0)
          block->first_use[list][slot] = (guint16) (i + 1);
        block->last_use[list][slot] = (guint16) (i + 1);
      }
  }
}

/* The estimate says the same. */
static void
test_hand_reduced (void)
{
  g_autoptr (SpProgram) program = hand_program ();
  g_autoptr (GError) error = NULL;
  SpBlock *blocks = program->variants[0].blocks, *layer = &blocks[1];
  SpFramework framework = { .name = (char *) "none" };
  SpMemory memory;
  Hand hand = { .program = program };

  layer->buffers[SUMMED].life = SP_LIFE_ALWAYS;
  layer->buffers[REDUCED] = hand_buffer (60, SP_CLASS_GRADIENTS, SP_LIFE_STEP_END);
  HAND_OPS (layer, SP_PHASE_SYNC,
            { .kind = SP_OP_REDUCE_SCATTER, .flags = SP_OP_ASYNC, .in = { SUMMED }, .out = { REDUCED } });
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, SP_ORDER_EAGER);
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (program, walks, &error);
  g_assert_no_error (error);
  sp_memory_start (plan, 0, &hand.state);
  walk_step (plan, walks, &hand.state);
  g_assert_cmpint (hand.state.live_bytes, ==, 360);
  check_peak (&hand, 180, 160, 42, 1);
  sp_memory_state_clear (&hand.state);

  for (guint b = 0; b < 3; b++)
    count_uses (program, &blocks[b]);
  sp_memory_estimate (program, &framework, &memory);
  g_assert_cmpfloat (memory.total_bytes, ==, 382);
  g_assert_cmpfloat (memory.by_class[SP_CLASS_GRADIENTS], ==, 160);
  g_assert_cmpstr (memory.moment, ==, "last backward of a softmax layer");
}

static SpProgram *
hand_program_held (void)
{
  SpProgram *program = hand_program ();
  SpBlock *blocks = program->variants[0].blocks;

  program->n_layers = 3;
  program->layer_block = g_renew (guint8, program->layer_block, 3);
  program->layer_block[2] = 1;
  program->stage_first[1] = 3;
  program->micro_batches = 2;
  program->ops[blocks[1].segments[SP_PHASE_SYNC].first].flags |= SP_OP_ASYNC;
  for (guint b = 0; b < 3; b++)
    count_uses (program, &blocks[b]);
  return program;
}

/* The fullest in each layer's backward, and what lives after it. The second micro-batch's forward finds what the first
 * one's found: nothing is held over from slot to slot. The estimate says the same. */
static void
test_hand_held (void)
{
  static const gint64 expected[][2] = { { 342, 220 }, { 399, 277 }, { 366, 294 } };
  g_autoptr (SpProgram) program = hand_program_held ();
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, SP_ORDER_EAGER);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (program, walks, &error);
  SpFramework framework = { .name = (char *) "none" };
  SpMemory memory;
  SpMemoryState state;
  SpWalk walk;
  SpItem item;
  guint op, n = 0;

  g_assert_no_error (error);
  sp_memory_start (plan, 0, &state);
  sp_walk_init (&walk, walks, 0);
  while (sp_walk_next (&walk, &item)) {
    sp_memory_item (plan, &state, &item, &op);
    if (item.phase == SP_PHASE_FORWARD && item.position == 0)
      g_assert_cmpint (state.live_bytes, ==, 160 + 40 + 10); /* with G0 */
    if (item.phase != SP_PHASE_BACKWARD || item.position == 0 || item.position == 4)
      continue;
    g_assert_cmpint (state.item_bytes, ==, expected[item.position - 1][0]);
    g_assert_cmpint (state.live_bytes, ==, expected[item.position - 1][1]);
    n++;
  }
  g_assert_cmpuint (n, ==, 6);
  g_assert_cmpint (state.live_bytes, ==, 210);
  g_assert_cmpint (state.peak_bytes, ==, 399);
  g_assert_cmpint (state.peak_by_class[SP_CLASS_GRADIENTS], ==, 2 * 50);
  check_list (program, plan, 0, &state);
  check_items (plan, walks, 0, 1);
  sp_memory_state_clear (&state);
  sp_memory_estimate (program, &framework, &memory);
  g_assert_cmpfloat (memory.total_bytes, ==, 399);
  g_assert_cmpfloat (memory.by_class[SP_CLASS_GRADIENTS], ==, 2 * 50);

  g_autoptr (SpWalkPlan) plain = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  g_autoptr (SpMemoryPlan) of_plain = sp_memory_plan_new (program, plain, &error);
  g_assert_no_error (error);
  g_assert_cmpint (largest_of_stages (program, of_plain, plain), ==, 326);
}

static SpItem
hand_item (gint32 position, SpPhase phase, guint flags, guint mask)
{
  return (SpItem){ .phase = (guint8) phase, .position = position, .flags = (guint16) flags, .mask = (guint16) mask };
}

/* Live and largest bytes after and in each list, from the first backward on. */
static void
test_hand_parts (void)
{
  static const gint32 order[] = { 3, 2, 1, 0 };
  static const gint64 first[][2] = { { 184, 219 }, { 249, 289 }, { 314, 354 }, { 304, 314 } };
  static const gint64 second[][2] = { { 272, 304 }, { 190, 222 } };
  SpWalk walk;
  SpItem item;
  guint op;
  Hand hand;

  hand_init (&hand, SP_ORDER_PROGRAM);
  sp_walk_init (&walk, hand.walks, 0);
  while (sp_walk_next (&walk, &item) && item.phase != SP_PHASE_BACKWARD)
    sp_memory_item (hand.plan, &hand.state, &item, &op);
  g_assert_cmpint (hand.state.peak_bytes, ==, 244);
  for (guint i = 0; i < 4; i++) {
    item = hand_item (order[i], SP_PHASE_GATHER, 0, 0);
    if (i == 1 || i == 2)
      sp_memory_item (hand.plan, &hand.state, &item, &op);
    item = hand_item (order[i], SP_PHASE_BACKWARD, 0, SP_OP_WEIGHT);
    sp_memory_item (hand.plan, &hand.state, &item, &op);
    g_assert_cmpint (hand.state.live_bytes, ==, first[i][0]);
    g_assert_cmpint (hand.state.item_bytes, ==, first[i][1]);
  }
  for (guint i = 0; i < 2; i++) {
    item = hand_item (order[1 + i], SP_PHASE_BACKWARD, SP_OP_WEIGHT, SP_OP_WEIGHT);
    sp_memory_item (hand.plan, &hand.state, &item, &op);
    g_assert_cmpint (hand.state.live_bytes, ==, second[i][0]);
    g_assert_cmpint (hand.state.item_bytes, ==, second[i][1]);
    item = hand_item (order[1 + i], SP_PHASE_SYNC, SP_OP_PER_MICRO_BATCH, SP_OP_PER_MICRO_BATCH);
    sp_memory_item (hand.plan, &hand.state, &item, &op);
  }
  check_peak (&hand, 180, 100, 74, 1);
  g_assert_cmpint (hand.state.live_bytes, ==, 140);
  hand_clear (&hand);
}

/* The rows of the eager peak: of the layers' the gathered are largest, after the table and D. */
static void
test_hand_list (void)
{
  static const struct {
    gint64 bytes;
    gint32 layer, count;
    SpLife life;
  } rows[] = { { 100, SP_LAYER_EMBEDDING, 1, SP_LIFE_ALWAYS },
               { 50, 1, 1, SP_LIFE_SUMMED },
               { 40, 0, 1, SP_LIFE_GATHERED },
               { 40, 1, 1, SP_LIFE_GATHERED },
               { 20, 0, 1, SP_LIFE_ALWAYS } };
  Hand hand;

  hand_init (&hand, SP_ORDER_EAGER);
  g_autoptr (GArray) buffers = sp_memory_list_peak (hand.plan, 0, NULL);
  g_autoptr (GArray) merged = sp_memory_merge (hand.program, buffers);
  g_assert_cmpuint (buffers->len, ==, 13); /* and X0 A0 X1 A1 DY DX H, and the other shard */
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpLiveBuffer *b = &g_array_index (buffers, SpLiveBuffer, i);
    g_assert_cmpint (b->bytes, ==, rows[i].bytes);
    g_assert_cmpint (b->layer, ==, rows[i].layer);
    g_assert_cmpint (b->count, ==, rows[i].count);
    g_assert_cmpint (b->life, ==, rows[i].life);
  }
  const SpLiveBuffer *second = &g_array_index (merged, SpLiveBuffer, 1);
  g_assert_cmpint (second->bytes, ==, 80);
  g_assert_cmpint (second->count, ==, 2);
  g_assert_cmpint (second->life, ==, SP_LIFE_GATHERED);
  hand_clear (&hand);
}

/* Once its profiles are made, a step allocates nothing. */
static void
test_no_allocation (void)
{
  Hand hand;

  if (!COUNTS_ALLOCATIONS) {
    g_test_skip ("allocations cannot be counted here");
    return;
  }
  hand_init (&hand, SP_ORDER_EAGER);
  walk_step (hand.plan, hand.walks, &hand.state);
  sp_memory_state_clear (&hand.state);
  sp_memory_start (hand.plan, 0, &hand.state);
  allocations = 0;
  counting_allocations = TRUE;
  walk_step (hand.plan, hand.walks, &hand.state);
  counting_allocations = FALSE;
  g_assert_cmpuint (allocations, ==, 0);
  check_peak (&hand, 220, 50, 59, 2);
  hand_clear (&hand);
}

static void
test_error (void)
{
  g_autoptr (SpProgram) program = hand_program ();
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  g_autoptr (GError) error = NULL;

  program->variants[0].blocks[1].buffers[SP_SLOT_Y].alias = SP_SLOT_X;
  g_assert_null (sp_memory_plan_new (program, walks, &error));
  g_assert_error (error, SP_MEMORY_ERROR, SP_MEMORY_ERROR_PROGRAM);
  g_assert_cmpstr (error->message, ==, "block 1: Y is a view, expected memory of life handoff");
}

int
main (int argc, char **argv)
{
  count_allocations_init ();
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/memory-hand/plain", test_hand_plain);
  g_test_add_func ("/memory-hand/eager", test_hand_eager);
  g_test_add_func ("/memory-hand/parts", test_hand_parts);
  g_test_add_func ("/memory-hand/held", test_hand_held);
  g_test_add_func ("/memory-hand/reduced", test_hand_reduced);
  g_test_add_func ("/memory-hand/list", test_hand_list);
  g_test_add_func ("/memory-hand/no-allocation", test_no_allocation);
  g_test_add_func ("/memory-hand/error", test_error);
  return g_test_run ();
}
