/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sim/op-form.h"
#include "sim/program.h"

/* --- a program by hand -------------------------------------------------------------------------------------------- */

static void
set_group (SpProgram *program, SpGroupId id, guint n, const guint8 *digits)
{
  SpGroup *group = &program->groups[id];

  *group = (SpGroup){ .size = 1, .n_digits = n };
  for (guint i = 0; i < n; i++) {
    group->digits[i] = digits[i];
    group->size *= program->digits[digits[i]].size;
  }
}

/* Ranks = tensor x ulysses x ring x data x pipeline, in this order of stride. */
static SpProgram *
program_new (gint32 tensor, gint32 ulysses, gint32 ring, gint32 data, gint32 pipeline)
{
  SpProgram *program = sp_program_new ();
  const SpDigit digits[] = { { SP_AXIS_TENSOR, tensor, 1 },
                             { SP_AXIS_ULYSSES, ulysses, tensor },
                             { SP_AXIS_RING, ring, tensor * ulysses },
                             { SP_AXIS_DATA, data, tensor * ulysses * ring },
                             { SP_AXIS_PIPELINE, pipeline, tensor * ulysses * ring * data } };

  memcpy (program->digits, digits, sizeof digits);
  program->n_digits = G_N_ELEMENTS (digits);
  program->world = tensor * ulysses * ring * data * pipeline;
  set_group (program, SP_GROUP_NONE, 0, NULL);
  set_group (program, SP_GROUP_TENSOR, 1, (const guint8[]){ 0 });
  set_group (program, SP_GROUP_ULYSSES, 1, (const guint8[]){ 1 });
  set_group (program, SP_GROUP_RING, 1, (const guint8[]){ 2 });
  set_group (program, SP_GROUP_RING_INNER, 1, (const guint8[]){ 2 });
  set_group (program, SP_GROUP_RING_OUTER, 0, NULL);
  set_group (program, SP_GROUP_ULYSSES_LINEAR, 0, NULL);
  set_group (program, SP_GROUP_LASP, 2, (const guint8[]){ 1, 2 });
  set_group (program, SP_GROUP_SEQUENCE, 2, (const guint8[]){ 1, 2 });
  set_group (program, SP_GROUP_DATA, 1, (const guint8[]){ 3 });
  set_group (program, SP_GROUP_ZERO, 3, (const guint8[]){ 3, 1, 2 });
  set_group (program, SP_GROUP_REPLICA, 0, NULL);
  set_group (program, SP_GROUP_EXPERT, 1, (const guint8[]){ 1 });
  set_group (program, SP_GROUP_EXPERT_DATA, 2, (const guint8[]){ 3, 2 });
  set_group (program, SP_GROUP_PIPELINE, 1, (const guint8[]){ 4 });
  set_group (program, SP_GROUP_TIE, 1, (const guint8[]){ 4 });
  program->groups[SP_GROUP_TIE].size = MIN (pipeline, 2);
  program->groups[SP_GROUP_SELF].size = 1;
  program->sequence = 16 * ulysses * ring;
  program->local_sequence = 16;
  return program;
}

static SpOp *
add_op_to (SpProgram *program, SpSegment *segment)
{
  if (segment->n == 0)
    segment->first = program->n_ops;
  segment->n++;
  program->ops = g_renew (SpOp, program->ops, program->n_ops + 1);
  program->ops_capacity = program->n_ops + 1;
  memset (&program->ops[program->n_ops], 0, sizeof (SpOp));
  return &program->ops[program->n_ops++];
}

static SpOp *
add_op (SpProgram *program, SpBlock *block, SpPhase phase)
{
  return add_op_to (program, &block->segments[phase]);
}

/* Any op that the block has room for. */
static void
add_random_op (GRand *rand, SpProgram *program, SpBlock *block, SpPhase phase)
{
  SpOp *op = add_op (program, block, phase);

  op->kind = (guint8) g_rand_int_range (rand, 0, SP_N_OPS);
  op->stream = (guint8) g_rand_int_range (rand, 0, SP_N_STREAMS);
  op->group = (guint8) g_rand_int_range (rand, 1, SP_N_GROUPS);
  op->guard = (guint8) g_rand_int_range (rand, 0, 4);
  op->axis = (guint8) g_rand_int_range (rand, 0, SP_N_AXES);
  op->flags = (guint16) g_rand_int_range (rand, 0, SP_OP_AFTER_OPTIMIZER * 2);
  op->m = g_rand_int_range (rand, 0, G_MAXINT32);
  op->n = g_rand_int_range (rand, 0, 5);
  op->k = op->batch = op->heads = g_rand_int_range (rand, 0, 100);
  op->kv_heads = 1;
  op->bytes = G_MAXINT64 - g_rand_int_range (rand, 0, 100);
  op->flops = (gint64) g_rand_int (rand) << 20;
  for (guint i = 0; i < SP_MAX_IN; i++)
    op->in[i] = (guint8) g_rand_int_range (rand, 0, block->n_buffers);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    op->out[i] = (guint8) g_rand_int_range (rand, 0, block->n_buffers);
  op->wait[0] = (guint16) (block->segments[phase].n - 1);
}

static void
add_loop (SpBlock *block, SpProgram *program)
{
  SpSegment *forward = &block->segments[SP_PHASE_FORWARD];
  SpLoop *loop = &block->loops[block->n_loops++];

  *loop = (SpLoop){ .phase = SP_PHASE_FORWARD,
                    .group = SP_GROUP_RING,
                    .steps = program->groups[SP_GROUP_RING].size,
                    .first = 1,
                    .end = 3,
                    .n_carries = 2,
                    .carries = { { 0, 6, 7 }, { 5, 8, 9 } } };
  for (guint i = loop->first; i < loop->end; i++) {
    program->ops[forward->first + i].loop = block->n_loops;
    program->ops[forward->first + i].guard |= SP_GUARD_VISIBLE | SP_GUARD_NOT_LAST_STEP;
  }
}

static void
fill_block (GRand *rand, SpProgram *program, SpBlock *block, SpBlockKind kind)
{
  block->kind = kind;
  block->n_buffers = 12;
  block->regather = 1;
  block->frozen = SP_FROZEN_PARAMETERS;
  block->n_flats = kind == SP_BLOCK_SOFTMAX ? SP_MAX_FLATS : 1;
  for (guint i = 0; i < block->n_flats; i++)
    block->flats[i] = (SpFlat){ .group = i == 1 ? SP_GROUP_EXPERT_DATA : SP_GROUP_ZERO,
                                .frozen = i == 2,
                                .parameters = 10,
                                .moment2 = 4 };
  for (guint i = 1; i < block->n_buffers; i++)
    block->buffers[i] = (SpBuffer){ .bytes = g_rand_int (rand),
                                    .elements = 24 + i,
                                    .class = g_rand_int_range (rand, 0, SP_N_CLASSES),
                                    .dtype = g_rand_int_range (rand, 0, SP_N_DTYPES),
                                    .life = g_rand_int_range (rand, 0, SP_LIFE_SEQUENCE) }; /* those of slices: test-text */
  block->buffers[11] = (SpBuffer){ .elements = 24, .offset = 9, .alias = 10 };
  if (kind == SP_BLOCK_HEAD)
    block->buffers[9].tied = 1, block->buffers[9].tied_slot = 11;
  block->weights[0] = (SpWeight){ .name = "qkv.bias",
                                  .flat = block->n_flats - 1,
                                  .slot = 11,
                                  .grad = 3,
                                  .split = SP_SPLIT_ROWS,
                                  .n_sections = 3,
                                  .rows = 6,
                                  .cols = 4,
                                  .sections = { 3, 1, 2 } };
  block->n_weights = 1;
  for (guint phase = 0; phase < SP_N_PHASES; phase++)
    for (guint i = 0; i < 4 && phase != SP_PHASE_SYNC; i++)
      add_random_op (rand, program, block, phase);
  block->first_use[0][5] = 2;
  block->last_use[0][5] = 4;
  block->last_use[1][6] = 8;
  add_loop (block, program);
}

static SpProgram *
full_program_new (guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  SpProgram *program = program_new (2, 2, 3, 1, 2);
  const guint8 layers[] = { 1, 1, 2, 1, 1, 1 };
  const gint32 stages[] = { 0, 2, 6 };

  program->token_split = SP_TOKENS_ZIGZAG;
  program->sequence_regions = 1;
  program->zero_stage = 3;
  program->global_batch = 7;
  program->micro_batches = 4;
  program->n_layers = G_N_ELEMENTS (layers);
  program->layer_block = g_memdup2 (layers, sizeof layers);
  program->stages = 2;
  program->chunks = 1;
  program->stage_first = g_memdup2 (stages, sizeof stages);
  program->numbers = (SpNumbers){ .norm_epsilon = 1e-5,
                                  .rope_theta = 500000,
                                  .dropout = 0.1,
                                  .learning_rate = 1.0 / 3,
                                  .adam_beta1 = 0.9,
                                  .adam_epsilon = 5e-324,
                                  .heads = 8,
                                  .vocabulary = 50257 };
  program->n_variants = 2;
  program->n_blocks = 4;
  for (guint i = 0; i < 2; i++) {
    SpVariant *variant = &program->variants[i];

    variant->batch = 2 - (gint32) i;
    variant->pipe_send = (SpOp){ .kind = SP_OP_SEND, .group = SP_GROUP_PIPELINE, .in = { SP_SLOT_Y }, .bytes = 12 };
    variant->pipe_receive = (SpOp){ .kind = SP_OP_RECEIVE, .group = SP_GROUP_PIPELINE, .out = { SP_SLOT_X } };
    *add_op_to (program, &variant->pipe_gather) = (SpOp){ .kind = SP_OP_ALL_GATHER,
                                                          .stream = SP_STREAM_TENSOR,
                                                          .group = SP_GROUP_TENSOR,
                                                          .flags = SP_OP_OWN_PART,
                                                          .in = { SP_SLOT_X },
                                                          .out = { SP_SLOT_X } };
    for (guint j = 0; j < 4; j++)
      fill_block (rand, program, &variant->blocks[j], (SpBlockKind) j);
  }
  return program;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void
assert_same_blocks (const SpProgram *a, const SpProgram *b)
{
  for (guint i = 0; i < 2 * 4; i++) {
    const SpBlock *x = &a->variants[i / 4].blocks[i % 4], *y = &b->variants[i / 4].blocks[i % 4];

    g_assert_cmpint (x->n_flats, ==, y->n_flats);
    g_assert_cmpmem (x->flats, sizeof x->flats, y->flats, sizeof y->flats);
    g_assert_cmpmem (x->weights, sizeof x->weights, y->weights, sizeof y->weights);
    g_assert_cmpmem (x->first_use, sizeof x->first_use, y->first_use, sizeof y->first_use);
    g_assert_cmpmem (x->last_use, sizeof x->last_use, y->last_use, sizeof y->last_use);
    g_assert_cmpint (x->n_buffers, ==, y->n_buffers);
    g_assert_cmpint (x->n_loops, ==, y->n_loops);
    g_assert_cmpint (x->loops[0].n_carries, ==, y->loops[0].n_carries);
    g_assert_cmpmem (x->loops[0].carries, sizeof x->loops[0].carries, y->loops[0].carries, sizeof x->loops[0].carries);
    for (guint phase = 0; phase < SP_N_PHASES; phase++) {
      guint n, m;
      const SpOp *p = sp_program_segment (a, x, phase, &n), *q = sp_program_segment (b, y, phase, &m);

      g_assert_cmpmem (p, n * sizeof *p, q, m * sizeof *q);
    }
  }
}

/* Written, read and written again: the same program and the same text, on ops drawn at random. */
static void
test_round_trip (void)
{
  for (guint32 seed = 0; seed < 50; seed++) {
    g_autoptr (SpProgram) program = full_program_new (seed), back = NULL;
    g_autoptr (GString) first = g_string_new (NULL), second = g_string_new (NULL);
    g_autoptr (GError) error = NULL;

    sp_program_write_text (program, first);
    back = sp_program_read_text (first->str, first->len, "p", &error);
    g_assert_no_error (error);
    sp_program_write_text (back, second);
    g_assert_cmpstr (first->str, ==, second->str);
    g_assert_cmpmem (program->layer_block, program->n_layers, back->layer_block, back->n_layers);
    g_assert_cmpint (back->n_ops, ==, program->n_ops);
    g_assert_cmpfloat (back->numbers.learning_rate, ==, program->numbers.learning_rate);
    assert_same_blocks (program, back);
  }
}

static void
test_comments (void)
{
  g_autoptr (SpProgram) program = full_program_new (1), back = NULL;
  g_autoptr (GString) text = g_string_new ("# written by hand\n\n");
  g_autoptr (GError) error = NULL;

  sp_program_write_text (program, text);
  back = sp_program_read_text (text->str, text->len, "p", &error);
  g_assert_no_error (error);
  g_assert_nonnull (back);
}

/* One edit each: the first occurrence of `from` becomes `to`. */
typedef struct {
  const char *name, *from, *to, *expected;
} Edit;

static const Edit edits[] = {
  { "version", "seqpar-program 4", "seqpar-program 3", "p:1: version '3', expected 4" },
  { "version-trailing", "seqpar-program 4", "seqpar-program 4x", "p:1: version '4x', expected 4" },
  { "version-zero", "seqpar-program 4", "seqpar-program 04", "p:1: version '04', expected 4" },
  { "no-version", "seqpar-program 4\n", "", "p:1: 'program' is out of place here" },
  { "keyword", "numbers ", "number ", "p:3: unknown keyword 'number'" },
  { "field", "program world=", "program word=", "p:2: unknown field 'word'" },
  { "twice", "program world=24", "program world=24 world=24", "p:2: 'world' stands twice" },
  { "no-value", "program world=24", "program world", "p:2: 'world' is not key=value" },
  { "empty", "world=24", "world=", "p:2: '' is no value of world" },
  { "trailing", "world=24", "world=24x", "p:2: '24x' is no value of world" },
  { "negative", "world=24", "world=-24", "p:2: '-24' is no value of world" },
  { "range", "world=24", "world=4294967296", "p:2: '4294967296' is no value of world" },
  { "name", "token_split=zigzag", "token_split=zigzig", "p:2: 'zigzig' is no value of token_split" },
  { "not-finite", "rope_theta=500000", "rope_theta=nan", "p:3: 'nan' is no value of rope_theta" },
  { "schedule", "program world=24", "program world=24 schedule=1f2b", "p:2: '1f2b' is no value of schedule" },
  { "chunks", "chunks=1", "chunks=2", "p:28: 3 numbers, expected 5 for 2 chunks on each of 2 stages" },
  { "no-chunks", " chunks=1", "", "p:28: 0 chunks on each of 2 stages" },
  { "mirrored", "chunks=1", "schedule=dualpipe chunks=2", "schedule dualpipe: the last micro-batch would be smaller" },
  { "order", "layers 1*2 2 1*3\n", "", "p:27: 'stages' is out of place here" },
  { "run", "layers 1*2", "layers 1*0", "p:27: '1*0' is no block or block*count" },
  { "many", "layers 1*2", "layers 1*65537", "p:27: '1*65537' is no block or block*count" },
  { "long-array", "group name=zero size=6 n_digits=3 digits=3,1,2", "group name=zero digits=1,2,3,4,5,6,7,8,9,1,2,3,4",
    "is no value of digits" },
  { "group-twice", "group name=ring ", "group name=tensor ", "group tensor stands twice" },
  { "slot", "buffer slot=2 ", "buffer slot=3 ", "slot 3, expected 2" },
  { "long-name", "weight name=qkv.bias", "weight name=qkv.bias.long", "is no value of name" },
  { "operand", "in=", "in=200,", "p:30: in 0: no slot 200" },
  { "gather", "pipe_gather kind=all-gather", "pipe_gather kind=all-reduce", "pipe_gather: all-reduce over tensor" },
  { "gather-group", "pipe_gather kind=all-gather stream=tensor group=tensor",
    "pipe_gather kind=all-gather stream=tensor group=ring", "pipe_gather: all-gather over ring on tensor, expected" },
  { "gather-once", "\n  pipe_gather ", "\n# ", "pipe_gather: the variants do not both have one" },
  { "world", "world=24", "world=25", "world 25, but the digits make 24 ranks" },
  { "stride", "stride=2", "stride=3", "digit 1: size 2, stride 3, expected stride 2" },
  { "size", "group name=ring size=3", "group name=ring size=2", "group ring: size 2, but its digits make 3" },
  { "parts", "local_sequence=16", "local_sequence=15", "sequence 96 is not 6 parts of 15" },
  { "stages", "stages 0 2 6", "stages 0 2 5", "the stages do not cover layers 0 to 6" },
  { "block", "layers 1*2 2 1*3", "layers 1*2 3 1*3", "layer 2: no block 3" },
  { "view", "offset=9 ", "offset=11 ", "buffer 11: longer than buffer 10 that it is a view of" },
  { "cycle", "alias=10", "alias=11", "buffer 11: " },
  { "flat", "weight name=qkv.bias", "weight name=qkv.bias flat=1", "weight qkv.bias: no flat 1" },
  { "flat-group", "flat group=zero", "flat group=ring", "flat 0: group ring, expected zero or expert-data" },
  { "flat-slots", "flat group=zero parameters=10", "flat group=zero", "flat 0: no parameters" },
  { "flats", "flat group=zero parameters=10 moment2=4\n    weight", "weight", "'weight' is out of place here" },
  { "shape", "rows=6 cols=4", "rows=6 cols=5", "weight qkv.bias: 6 x 5 is not its buffer's size" },
  { "sections", "sections=3,1,2", "sections=3,1,1", "weight qkv.bias: its sections have 5 rows of 6" },
  { "steps", "steps=3", "steps=2", "loop 0: 2 steps in a group of 3" },
  { "loop", "first=1 end=3", "first=1 end=2", "forward op 2: loop 1, expected 0" },
  { "carry", "carry current=6", "carry current=12", "loop 0, carry 0: no such slot" },
  { "truncated", "\nend\n", "\n", "the file ends before 'end'" },
  { "after-end", "\nend\n", "\nend\nend\n", "'end' is out of place here" },
};

static void
test_edit (gconstpointer data)
{
  const Edit *edit = data;
  g_autoptr (SpProgram) program = full_program_new (3), back = NULL;
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  const char *at;

  sp_program_write_text (program, text);
  at = strstr (text->str, edit->from);
  g_assert_nonnull (at);
  gssize offset = at - text->str;
  g_string_erase (text, offset, (gssize) strlen (edit->from));
  g_string_insert (text, offset, edit->to);
  back = sp_program_read_text (text->str, text->len, "p", &error);
  g_assert_null (back);
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, edit->expected));
  g_assert_true (g_str_has_prefix (error->message, "p:"));
}

/* Whatever a byte becomes, reading ends in a program or in an error. */
static void
test_noise (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (9);
  g_autoptr (SpProgram) program = full_program_new (4);
  g_autoptr (GString) text = g_string_new (NULL);

  sp_program_write_text (program, text);
  for (guint i = 0; i < 3000; i++) {
    g_autofree char *copy = g_memdup2 (text->str, text->len);
    gsize length = i % 3 == 0 ? (gsize) g_rand_int_range (rand, 0, (gint32) text->len) : text->len;
    g_autoptr (GError) error = NULL;

    copy[g_rand_int_range (rand, 0, (gint32) text->len)] = "0129,=|*\n x\0"[g_rand_int_range (rand, 0, 12)];
    g_autoptr (SpProgram) back = sp_program_read_text (copy, length, "p", &error);
    g_assert_true ((back == NULL) == (error != NULL));
  }
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Every group cuts the world into parts of its size, in which each place stands once. */
static void
test_groups (void)
{
  g_autoptr (SpProgram) program = program_new (2, 3, 2, 2, 3);

  for (SpGroupId id = 0; id < SP_GROUP_TIE; id++)
    for (gint32 rank = 0; rank < program->world; rank++) {
      gint32 place = sp_program_place (program, id, rank), size = program->groups[id].size;

      g_assert_cmpint (place, >=, 0);
      g_assert_cmpint (place, <, size);
      g_assert_cmpint (sp_program_member (program, id, rank, place), ==, rank);
      for (gint32 other = 0; other < size; other++) {
        gint32 member = sp_program_member (program, id, rank, other);

        g_assert_cmpint (sp_program_place (program, id, member), ==, other);
        g_assert_cmpint (sp_program_member (program, id, member, place), ==, rank);
      }
    }
}

/* ZERO lists data, ulysses, ring: rank t + 2 (u + 3 (r + 2 d)) has place d + 2 (u + 3 r). So rank 2 (u = 1) has place
 * 2, rank 12 (d = 1) has place 1, rank 6 (r = 1) has place 6. */
static void
test_places (void)
{
  g_autoptr (SpProgram) program = program_new (2, 3, 2, 2, 3);

  g_assert_cmpint (sp_program_place (program, SP_GROUP_ZERO, 2), ==, 2);
  g_assert_cmpint (sp_program_place (program, SP_GROUP_ZERO, 12), ==, 1);
  g_assert_cmpint (sp_program_place (program, SP_GROUP_ZERO, 6), ==, 6);
  g_assert_cmpint (sp_program_place (program, SP_GROUP_NONE, 17), ==, 0);
  g_assert_cmpint (sp_program_member (program, SP_GROUP_NONE, 17, 0), ==, 17);
  /* Stages have 24 ranks: the tied ones of rank 5 are 5 and 5 + 2 * 24. */
  g_assert_cmpint (sp_program_place (program, SP_GROUP_TIE, 5), ==, 0);
  g_assert_cmpint (sp_program_place (program, SP_GROUP_TIE, 53), ==, 1);
  g_assert_cmpint (sp_program_member (program, SP_GROUP_TIE, 5, 1), ==, 53);
  g_assert_cmpint (sp_program_member (program, SP_GROUP_TIE, 53, 0), ==, 5);
}

/* --- positions ---------------------------------------------------------------------------------------------------- */

/* Each token stands once, and in order within a part. */
static void
test_positions_cover (void)
{
  for (guint split = 0; split < 2; split++) {
    g_autoptr (SpProgram) program = program_new (2, 2, 4, 1, 1);
    g_autofree guint8 *seen = g_new0 (guint8, program->sequence);

    program->token_split = (guint8) split;
    for (gint32 place = 0; place < program->groups[SP_GROUP_SEQUENCE].size; place++)
      for (gint64 row = 0; row < program->local_sequence; row++) {
        gint64 position = sp_program_position (program, place, row);

        g_assert_cmpint (position, >=, 0);
        g_assert_cmpint (position, <, program->sequence);
        g_assert_cmpint (seen[position]++, ==, 0);
      }
  }
}

/* 64 tokens, 2 ulysses x 2 ring: parts of 16. Ring place 0 has parts 0 and 3, place 1 parts 1 and 2; the ulysses places
 * have one part each. */
static void
test_positions_zigzag (void)
{
  static const gint64 first[] = { 0, 48, 16, 32 };
  g_autoptr (SpProgram) program = program_new (1, 2, 2, 1, 1);

  program->token_split = SP_TOKENS_ZIGZAG;
  for (gint32 place = 0; place < 4; place++)
    for (gint64 row = 0; row < 16; row++)
      g_assert_cmpint (sp_program_position (program, place, row), ==, first[place] + row);
}

/* 12 tokens, 2 ulysses x 3 ring: ring place 0 has tokens 0, 3, 6, 9, of which its first ulysses place has 0 and 3. */
static void
test_positions_striped (void)
{
  static const gint64 positions[6][2] = { { 0, 3 }, { 6, 9 }, { 1, 4 }, { 7, 10 }, { 2, 5 }, { 8, 11 } };
  g_autoptr (SpProgram) program = program_new (1, 2, 3, 1, 1);

  program->token_split = SP_TOKENS_STRIPED;
  program->sequence = 12;
  program->local_sequence = 2;
  for (gint32 place = 0; place < 6; place++)
    for (gint64 row = 0; row < 2; row++)
      g_assert_cmpint (sp_program_position (program, place, row), ==, positions[place][row]);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void
test_names (void)
{
  g_autoptr (GHashTable) seen = g_hash_table_new (g_str_hash, g_str_equal);

  for (guint i = 0; i < SP_N_OPS; i++)
    g_assert_true (g_hash_table_add (seen, (gpointer) sp_op_name (i)));
  g_assert_cmpstr (sp_op_name (SP_OP_SEND_RECEIVE), ==, "send-receive");
  g_assert_cmpstr (sp_life_name (SP_LIFE_ALWAYS), ==, "always");
  g_assert_cmpint (sp_dtype_bytes (SP_DTYPE_BF16), ==, 2);
  g_assert_cmpint (sp_dtype_bytes (SP_DTYPE_UINT8), ==, 1);
}

/* Forms tell ops apart by flags and operands, not by sizes, and come back from their names. */
static void
test_form (void)
{
  SpOp op = { .kind = SP_OP_NORM_BWD, .m = 8, .n = 4, .in = { 1, 2, 3, 0, 5 }, .out = { 6, 7 } }, other = op;
  g_autofree char *name = sp_op_form_name (op.kind, sp_op_form (&op));
  SpOpKind kind;
  SpOpForm form;

  g_assert_cmpstr (name, ==, "norm-bwd/17.3");
  g_assert_true (sp_op_form_parse (name, &kind, &form));
  g_assert_cmpuint (kind, ==, op.kind);
  g_assert_cmpuint (form, ==, sp_op_form (&op));
  other.m = 16;
  g_assert_cmpuint (sp_op_form (&other), ==, form);
  other.flags = SP_OP_LAYERNORM;
  g_assert_cmpuint (sp_op_form (&other), !=, form);
  g_autofree char *layernorm = sp_op_form_name (op.kind, sp_op_form (&other));
  g_assert_cmpstr (layernorm, ==, "norm-bwd/layernorm/17.3");
  g_assert_true (sp_op_form_parse (layernorm, &kind, &form));
  g_assert_cmpuint (form, ==, sp_op_form (&other));
  other.in[3] = 9;
  g_assert_cmpuint (sp_op_form (&other), !=, form);
  g_assert_cmpstr (sp_op_form_library (form), ==, "seqpar");
  g_autofree char *other_library = sp_op_form_name (SP_OP_ATTENTION, sp_op_form (&other) | SP_OP_FORM_CUDNN);
  g_assert_cmpstr (other_library, ==, "attention/layernorm/cudnn/1f.3");
  g_assert_true (sp_op_form_parse (other_library, &kind, &form));
  g_assert_cmpstr (sp_op_form_library (form), ==, "cudnn");
  g_assert_cmpuint (form, ==, sp_op_form (&other) | SP_OP_FORM_CUDNN);
  SpOp away = { .kind = SP_OP_ATTENTION, .flags = SP_OP_CAUSAL, .in = { 1, 2, 3 }, .out = { 4, 5 } };
  g_autofree char *own_block = sp_op_form_name (away.kind, sp_op_form (&away));
  g_assert_cmpstr (own_block, ==, "attention/causal/7.3");
  away.guard = SP_GUARD_NOT_FIRST_STEP;
  g_autofree char *away_block = sp_op_form_name (away.kind, sp_op_form (&away) | SP_OP_FORM_CUDNN);
  g_assert_cmpstr (away_block, ==, "attention/causal/cudnn/away/7.3");
  g_assert_true (sp_op_form_parse (away_block, &kind, &form));
  g_assert_cmpuint (form, ==, sp_op_form (&away) | SP_OP_FORM_CUDNN);
  away.kind = SP_OP_ATTENTION_MERGE;
  g_autofree char *merge = sp_op_form_name (away.kind, sp_op_form (&away));
  g_assert_cmpstr (merge, ==, "attention-merge/causal/7.3");
  static const char *const wrong[] = { "", "norm-bwd", "norm-bwd/17", "norm-bwd/17.", "nrom/17.3", "norm-bwd/odd/17.3",
                                       "norm-bwd/100.3", "norm-bwd/17.40", "norm-bwd/17.3/" };
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    g_assert_false (sp_op_form_parse (wrong[i], &kind, &form));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/program/text/round-trip", test_round_trip);
  g_test_add_func ("/program/text/comments", test_comments);
  g_test_add_func ("/program/text/noise", test_noise);
  for (guint i = 0; i < G_N_ELEMENTS (edits); i++) {
    g_autofree char *path = g_strdup_printf ("/program/text/refuses/%s", edits[i].name);

    g_test_add_data_func (path, &edits[i], test_edit);
  }
  g_test_add_func ("/program/places/groups", test_groups);
  g_test_add_func ("/program/places/by-hand", test_places);
  g_test_add_func ("/program/positions/cover", test_positions_cover);
  g_test_add_func ("/program/positions/zigzag", test_positions_zigzag);
  g_test_add_func ("/program/positions/striped", test_positions_striped);
  g_test_add_func ("/program/names", test_names);
  g_test_add_func ("/program/form", test_form);
  return g_test_run ();
}
