/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/rehearse.h"
#include "models/rehearse/recording.h"
#include "sim/memory.h"
#include "sim/walk.h"
#include "tests/rehearse-cases.h"

#include <string.h>

#define MAX_LIST 1024 /* ops of a list */

/* The recording against the rehearsal: every mix's ranks put the same bytes on the same axes, and what they write down
 * may run in any order that its queues and waits allow. */

static void
check_places (const SpRecording *r)
{
  for (guint i = 0; i < r->storages->len; i++) {
    const SpStored *a = &g_array_index (r->storages, SpStored, i);
    g_assert_cmpint (a->offset % 256, ==, 0);
    g_assert_cmpint (a->offset + a->bytes, <=, a->host ? r->host_arena_bytes : r->arena_bytes);
    for (guint j = 0; j < i; j++) {
      const SpStored *b = &g_array_index (r->storages, SpStored, j);
      if (a->host == b->host && a->first <= b->last && b->first <= a->last)
        g_assert_true (a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
    }
  }
}

/* A command's op is as it is at the rank's place: it names the operands that there are. */
static void
check_operands (const SpRecording *r)
{
  for (guint i = 0; i < r->commands->len; i++) {
    const SpCommand *command = &g_array_index (r->commands, SpCommand, i);
    if (command->op.kind == SP_OP_ZERO) /* of what begins: no op of the program */
      continue;
    for (guint j = 0; j < SP_MAX_IN; j++)
      g_assert_cmpint (command->op.in[j] != 0, ==, command->in[j].storage >= 0);
    for (guint j = 0; j < SP_MAX_OUT; j++)
      g_assert_cmpint (command->op.out[j] != 0, ==, command->out[j].storage >= 0);
  }
}

static void
test_case (gconstpointer data)
{
  const RehearseCase *c = data;
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  rehearse_case_write (c, program);
  g_autoptr (SpRehearsal) rehearsal = sp_rehearse (program, 7, &error);
  g_assert_no_error (error);
  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autoptr (SpRecording) r = sp_record (program, rank, 7, &error);
    g_assert_no_error (error);
    g_autofree char *wrong = sp_recording_check (r);
    g_assert_cmpstr (wrong, ==, NULL);
    for (guint axis = 0; axis < SP_N_AXES; axis++)
      g_assert_cmpint (r->payload_bytes[axis], ==, rehearsal->ranks[rank].payload_bytes[axis]);
    g_assert_cmpint (r->peak_bytes, >=, rehearsal->ranks[rank].peak_bytes);
    check_places (r);
    check_operands (r);
    g_test_message ("rank %d: %u commands, %u waits, %u storages, peak %" G_GINT64_FORMAT
                    " (rehearsed %" G_GINT64_FORMAT "), arena %" G_GINT64_FORMAT,
                    rank, r->commands->len, r->waits->len, r->storages->len, r->peak_bytes,
                    rehearsal->ranks[rank].peak_bytes, r->arena_bytes);
  }
}

/* With overlap, of whose lists what is gathered ahead or held over is a part: what lives is what the simulator says of
 * the same order, and any order of the queues will do. */
static void
test_overlap (gconstpointer data)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  rehearse_case_write_with (data, TRUE, program);
  g_autoptr (SpWalkPlan) walks = sp_walk_plan_new (program, SP_ORDER_EAGER);
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (program, walks, &error);
  g_assert_no_error (error);
  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autoptr (SpRecording) r = sp_record (program, rank, 7, &error);
    SpMemoryState state;
    SpWalk walk;
    SpItem item;
    guint op;

    g_assert_no_error (error);
    g_autofree char *wrong = sp_recording_check (r);
    g_assert_cmpstr (wrong, ==, NULL);
    check_places (r);
    sp_memory_start_rank (plan, rank, &state);
    sp_walk_init (&walk, walks, state.stage);
    while (sp_walk_next (&walk, &item))
      sp_memory_item (plan, &state, &item, &op);
    g_assert_cmpint (r->peak_bytes, ==, state.peak_bytes);
    g_assert_cmpmem (r->peak_by_class, sizeof r->peak_by_class, state.peak_by_class, sizeof state.peak_by_class);
    sp_memory_state_clear (&state);
  }
}

/* --- gradients that are held over --------------------------------------------------------------------------------- */

/* For each command the last of each queue that is over when it starts. */
typedef struct {
  gint32 last[SP_N_QUEUES];
} Over;

static Over *
find_over (const SpRecording *r)
{
  Over *over = g_new (Over, r->commands->len), now[SP_N_QUEUES];

  memset (now, 0xff, sizeof now);
  for (guint i = 0; i < r->commands->len; i++) {
    const SpCommand *command = &g_array_index (r->commands, SpCommand, i);
    Over *own = &now[command->queue];

    for (guint j = 0; j < command->n_waits; j++) {
      guint32 other = g_array_index (r->waits, guint32, command->first_wait + j);
      guint queue = g_array_index (r->commands, SpCommand, other).queue;
      for (guint q = 0; q < SP_N_QUEUES; q++)
        own->last[q] = MAX (own->last[q], over[other].last[q]);
      own->last[queue] = MAX (own->last[queue], (gint32) other);
    }
    over[i] = *own;
    own->last[command->queue] = (gint32) i;
  }
  return over;
}

/* Of a micro-batch, the command that scatters a layer's gradients, and the one that makes them zero. */
static void
find_gradients (const SpRecording *r, gint32 layer, gint32 micro_batch, gint32 *ret_zero, gint32 *ret_scatter)
{
  *ret_zero = *ret_scatter = -1;
  for (gint32 i = 0; i < (gint32) r->commands->len && *ret_scatter < 0; i++) {
    const SpCommand *command = &g_array_index (r->commands, SpCommand, i);
    if (command->op.kind == SP_OP_REDUCE_SCATTER && command->layer == layer && command->micro_batch == micro_batch)
      *ret_scatter = i;
  }
  g_assert_cmpint (*ret_scatter, >=, 0);
  gint32 storage = g_array_index (r->commands, SpCommand, *ret_scatter).in[0].storage;
  for (gint32 i = 0; i < *ret_scatter && *ret_zero < 0; i++) {
    const SpCommand *command = &g_array_index (r->commands, SpCommand, i);
    if (command->op.kind == SP_OP_ZERO && command->out[0].storage == storage)
      *ret_zero = i;
  }
  g_assert_cmpint (*ret_zero, >=, 0);
}

/* Five equal layers, whose gradients are scattered beside the backward of the layer before. Two layers' live at a time:
 * one's begin where those of the layer two further on were, when these are scattered, and never wait for those of the
 * layer just after it. */
static void
test_held (gconstpointer data)
{
  gint32 zeros[5], scatters[5];
  RehearseCase of = { "held", SMALL_GQA, FALSE, 12, 4, 1, LAYOUT (.data = 2), .layers = 5 };
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  of.layout.zero = (guint8) GPOINTER_TO_INT (data);
  rehearse_case_write_with (&of, TRUE, program);
  g_autoptr (SpRecording) r = sp_record (program, 0, 7, &error);
  g_assert_no_error (error);
  g_autofree Over *over = find_over (r);
  for (gint32 m = 0; m < 2; m++) {
    for (gint32 l = 0; l < 5; l++)
      find_gradients (r, l, m, &zeros[l], &scatters[l]);
    for (gint32 l = 0; l < 4; l++) {
      gint32 last = over[zeros[l]].last[SP_STREAM_DATA];
      g_test_message ("micro-batch %d: gradients of layer %d begin with command %d, after %d of the data queue", m, l,
                      zeros[l], last);
      g_assert_cmpint (last, <, scatters[l + 1]);
      g_assert_true (l == 3 || last >= scatters[l + 2]);
    }
  }
}

/* --- what overlaps ------------------------------------------------------------------------------------------------ */

/* The simulator's rules (sim/engine.h) of what COMPUTE waits for on the streams that lists wait for at their end, told
 * from a recording's commands alone. Numbers of commands, by stream; -1: none. */
typedef struct {
  const SpProgram *program;
  const SpRecording *r;
  const SpCommand *last;
  guint at;               /* op of the list that comes next */
  gint32 of_op[MAX_LIST]; /* the command that ran each op of the list last */
  gint32 posted[SP_N_STREAMS], due[SP_N_STREAMS];
} Rules;

static const guint8 awaited[] = { SP_STREAM_TENSOR, SP_STREAM_SEQUENCE, SP_STREAM_OUTER };

static const SpOp *
list_of (const Rules *rules, const SpCommand *command, guint *ret_n)
{
  const SpProgram *p = rules->program;
  const SpVariant *variant = sp_walk_variant (p, command->micro_batch);
  guint block = command->layer == SP_LAYER_EMBEDDING ? 0
                : command->layer == SP_LAYER_HEAD    ? p->n_blocks - 1
                                                     : p->layer_block[command->layer];

  return sp_program_segment (p, &variant->blocks[block], command->phase, ret_n);
}

/* The op in its list: the next that is alike in all that no place changes. */
static guint
find_op (Rules *rules, const SpCommand *command)
{
  guint n;
  const SpOp *ops = list_of (rules, command, &n);

  for (guint tried = 0; tried < n; tried++) {
    guint i = (rules->at + tried) % n;
    if (ops[i].kind == command->op.kind && ops[i].stream == command->op.stream && ops[i].loop == command->op.loop &&
        memcmp (ops[i].out, command->op.out, sizeof ops[i].out) == 0 &&
        memcmp (ops[i].wait, command->op.wait, sizeof ops[i].wait) == 0) {
      rules->at = i + 1;
      return i;
    }
  }
  g_assert_not_reached ();
}

static void
end_lists (Rules *rules, const SpCommand *command)
{
  const SpCommand *last = rules->last;
  gboolean list = last == NULL || last->layer != command->layer || last->micro_batch != command->micro_batch ||
                  last->phase != command->phase || last->block != command->block;

  for (guint i = 0; i < G_N_ELEMENTS (awaited); i++)
    if (list || (last->step != command->step && awaited[i] != SP_STREAM_OUTER))
      rules->due[awaited[i]] = rules->posted[awaited[i]];
  if (list) {
    rules->at = 0;
    memset (rules->of_op, 0xff, sizeof rules->of_op);
  }
  rules->last = command;
}

static void
follow (Rules *rules, gint32 number, const Over *over)
{
  const SpCommand *command = &g_array_index (rules->r->commands, SpCommand, number);
  gboolean pipeline = command->queue == SP_STREAM_PIPELINE || command->queue == SP_QUEUE_PIPELINE_BACK;

  if (command->op.kind == SP_OP_ZERO)
    return; /* of what begins: no op of the program */
  end_lists (rules, command);
  if (pipeline)
    return;
  guint op = find_op (rules, command);
  g_assert_cmpuint (op, <, MAX_LIST);
  rules->of_op[op] = number;
  for (guint i = 0; i < G_N_ELEMENTS (command->op.wait) && command->op.wait[i] != 0; i++) {
    gint32 named = rules->of_op[command->op.wait[i] - 1];
    guint stream = named >= 0 ? g_array_index (rules->r->commands, SpCommand, named).op.stream : SP_STREAM_COMPUTE;
    rules->due[stream] = MAX (rules->due[stream], named);
  }
  if (command->queue != SP_STREAM_COMPUTE) {
    rules->posted[command->queue] = number;
    if (!(command->op.flags & SP_OP_ASYNC))
      rules->due[command->queue] = number;
    return;
  }
  for (guint i = 0; i < G_N_ELEMENTS (awaited); i++)
    if (over->last[awaited[i]] != rules->due[awaited[i]])
      g_test_message ("command %d, %s of layer %d, %s", number, sp_op_name (command->op.kind), command->layer,
                      sp_phase_name (command->phase));
  for (guint i = 0; i < G_N_ELEMENTS (awaited); i++)
    g_assert_cmpint (over->last[awaited[i]], ==, rules->due[awaited[i]]);
}

/* Kernels wait for what the simulator has them wait for, and for nothing that their places in the arena ask for. */
static void
test_waits (gconstpointer data)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  rehearse_case_write_with (data, TRUE, program);
  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autoptr (SpRecording) r = sp_record (program, rank, 7, &error);
    g_assert_no_error (error);
    g_autofree Over *over = find_over (r);
    Rules rules = { .program = program, .r = r };
    memset (rules.posted, 0xff, sizeof rules.posted);
    memset (rules.due, 0xff, sizeof rules.due);
    for (guint i = 0; i < r->commands->len; i++)
      follow (&rules, (gint32) i, &over[i]);
  }
}

/* A wait taken away is found. */
static void
test_check (void)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  guint found = 0, tried = 0;

  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    if (!g_str_equal (rehearse_cases[i].name, "zero-3") && !g_str_has_prefix (rehearse_cases[i].name, "ring"))
      continue;
    rehearse_case_write (&rehearse_cases[i], program);
    g_autoptr (SpRecording) r = sp_record (program, 0, 7, &error);
    g_assert_no_error (error);
    for (guint j = 0; j < r->commands->len && tried < 200; j++) {
      SpCommand *command = &g_array_index (r->commands, SpCommand, j);
      if (command->n_waits == 0)
        continue;
      guint32 n = command->n_waits;
      command->n_waits = 0;
      g_autofree char *wrong = sp_recording_check (r);
      found += wrong != NULL;
      tried++;
      command->n_waits = n;
    }
  }
  g_test_message ("%u of %u found", found, tried);
  g_assert_cmpuint (found, >, tried / 2); /* some wait for what a later wait, or the order alone, has too */
}

/* What is there already has the number that it got, and is there once. */
static void
test_tables (void)
{
  static const gint32 values[][2] = { { 1, 2 }, { 1, 3 }, { 1, 2 } };
  static const gint32 numbers[] = { 0, 1, 0 };
  g_autoptr (SpRecording) r = sp_recording_new (3);

  g_assert_cmpint (r->rank, ==, 3);
  for (guint i = 0; i < G_N_ELEMENTS (values); i++) {
    gint32 number = sp_recording_add_table (r, g_memdup2 (values[i], sizeof values[i]), 2);
    g_assert_cmpint (number, ==, numbers[i]);
    const SpRowTable *table = &g_array_index (r->tables, SpRowTable, number);
    g_assert_cmpmem (table->data, 8, values[i], sizeof values[i]);
  }
  g_assert_cmpuint (r->tables->len, ==, 2);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/recording/check", test_check);
  g_test_add_func ("/recording/tables", test_tables);
  g_test_add_data_func ("/recording/held/zero-2", GINT_TO_POINTER (2), test_held);
  g_test_add_data_func ("/recording/held/zero-3", GINT_TO_POINTER (3), test_held);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/recording/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_case);
    g_autofree char *overlap = g_strdup_printf ("/recording/overlap/%s", rehearse_cases[i].name);
    g_test_add_data_func (overlap, &rehearse_cases[i], test_overlap);
    g_autofree char *waits = g_strdup_printf ("/recording/waits/%s", rehearse_cases[i].name);
    g_test_add_data_func (waits, &rehearse_cases[i], test_waits);
  }
  return g_test_run ();
}
