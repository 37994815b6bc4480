/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"
#include "sim/walk.h"
#include "tests/rehearse-cases.h"

#include <string.h>

/* Schedules by their slots alone: which there are, whether they can be run, how long they take and what they hold; and
 * the walk through a program's lists. */

#define DRAWS 300

static gint32
draw_int (GRand *rand, gint32 least, gint32 most)
{
  return g_rand_int_range (rand, least, most + 1);
}

/* A legal pipeline of a schedule. */
static SpPipeline
draw_pipeline (GRand *rand, const SpSchedule *schedule)
{
  SpPipeline pipeline;

  do {
    pipeline = (SpPipeline){ .stages = draw_int (rand, 1, 12), .micro_batches = draw_int (rand, 1, 40) };
    pipeline.chunks = schedule->mirrored ? 2 : schedule->chunked ? draw_int (rand, 2, 5) : 1;
    if (schedule->chunked)
      pipeline.micro_batches = pipeline.stages * draw_int (rand, 1, 5);
    if (schedule->slices && draw_int (rand, 0, 1))
      pipeline.slices = draw_int (rand, 2, 9);
  } while (sp_schedule_broken_rule (schedule, &pipeline) != NULL);
  return pipeline;
}

static SpSlot *
slots_of (const SpSchedule *schedule, const SpPipeline *pipeline, gint32 stage, guint *ret_n)
{
  guint most = sp_schedule_most_slots (pipeline);
  SpSlot *slots = g_new (SpSlot, most);

  *ret_n = schedule->fill (pipeline, stage, slots);
  g_assert_cmpuint (*ret_n, <=, most);
  return slots;
}

/* --- which slots there are ---------------------------------------------------------------------------------------- */

static gboolean
is_run_by (const SpSchedule *schedule, const SpPipeline *pipeline, gint32 chunk, gint32 micro_batch)
{
  return !schedule->mirrored || chunk == (micro_batch >= sp_pipeline_runs (pipeline) / 2);
}

/* Of a sequence's slices forwards go up and backwards down, and the backwards of the sequence before are over. */
static void
check_slice_order (const SpPipeline *pipeline, const SpSlot *slots, guint n)
{
  gint32 slices = pipeline->slices, forward = 0, backwards = 0;

  for (guint i = 0; i < n; i++)
    if (slots[i].kind == SP_SLOT_FORWARD)
      g_assert_cmpint (slots[i].micro_batch, ==, forward++);
    else {
      g_assert_cmpint (slots[i].micro_batch / slices, ==, backwards / slices);
      g_assert_cmpint (slots[i].micro_batch % slices, ==, slices - 1 - backwards++ % slices);
    }
}

/* Forward before backward, and the weights' part after the input's; each once. */
static void
check_slots (const SpSchedule *schedule, const SpPipeline *pipeline, gint32 stage)
{
  gint32 m = sp_pipeline_runs (pipeline), chunks = pipeline->chunks;
  g_autofree guint8 *seen = g_new0 (guint8, chunks * m);
  guint n;
  g_autofree SpSlot *slots = slots_of (schedule, pipeline, stage, &n);

  for (guint i = 0; i < n; i++) {
    static const guint8 before[SP_N_SLOT_KINDS] = { 0, 1, 1, 1 | 2 | 4 };
    static const guint8 bits[SP_N_SLOT_KINDS] = { 1, 2 | 4 | 8, 2 | 4, 8 };
    g_assert_cmpint (slots[i].chunk, <, chunks);
    g_assert_true (slots[i].micro_batch >= 0 && slots[i].micro_batch < m);
    g_assert_true (schedule->splits || slots[i].kind <= SP_SLOT_BACKWARD);
    guint8 *at = &seen[slots[i].chunk * m + slots[i].micro_batch];
    g_assert_cmpuint (*at, ==, before[slots[i].kind]);
    *at |= bits[slots[i].kind];
  }
  if (pipeline->slices > 1)
    check_slice_order (pipeline, slots, n);
  for (gint32 c = 0; c < chunks; c++)
    for (gint32 i = 0; i < m; i++)
      g_assert_cmpuint (seen[c * m + i], ==, is_run_by (schedule, pipeline, c, i) ? 15 : 0);
}

static void
test_slots (gconstpointer data)
{
  const SpSchedule *schedule = data;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) g_test_rand_int ());

  for (guint i = 0; i < DRAWS; i++) {
    SpPipeline pipeline = draw_pipeline (rand, schedule);
    for (gint32 s = 0; s < pipeline.stages; s++)
      check_slots (schedule, &pipeline, s);
  }
}

/* --- how long they take ------------------------------------------------------------------------------------------- */

/* Whole numbers, so that sums are exact; a whole backward takes input + weight. */
typedef struct {
  gint64 forward, input, weight;
} Times;

static gint64
time_of (const Times *times, SpSlotKind kind)
{
  const gint64 all[SP_N_SLOT_KINDS] = { times->forward, times->input + times->weight, times->input, times->weight };

  return all[kind];
}

typedef struct {
  const SpSchedule *schedule;
  const SpPipeline *pipeline;
  gint32 parts;
  gint64 *done[2]; /* [virtual stage][micro-batch], -1: not yet */
} Run;

/* When what a slot waits for is there; -1: not yet. */
static gint64
ready (const Run *run, gint32 stage, const SpSlot *slot)
{
  gint32 m = sp_pipeline_runs (run->pipeline), i = slot->micro_batch;
  gint32 at = sp_schedule_virtual_stage (run->schedule, run->pipeline->stages, stage, slot->chunk);

  if (slot->kind == SP_SLOT_FORWARD)
    return at == 0 ? 0 : run->done[0][(at - 1) * m + i];
  if (slot->kind == SP_SLOT_BACKWARD_WEIGHT)
    return run->done[1][at * m + i];
  return at == run->parts - 1 ? run->done[0][at * m + i] : run->done[1][(at + 1) * m + i];
}

/* Slots as soon as their stage is free and their neighbour's are over; -1 if they wait for each other. */
static gint64
makespan (const SpSchedule *schedule, const SpPipeline *pipeline, const Times *times)
{
  gint32 p = pipeline->stages, m = sp_pipeline_runs (pipeline);
  Run run = { schedule, pipeline, sp_schedule_virtual_stages (schedule, p, pipeline->chunks), { NULL } };
  SpSlot *slots[64];
  guint n[64], at[64] = { 0 };
  gint64 free_at[64] = { 0 }, end = 0;
  gboolean moved = TRUE;

  for (guint i = 0; i < 2; i++) {
    run.done[i] = g_new (gint64, run.parts * m);
    memset (run.done[i], 0xff, (gsize) (run.parts * m) * sizeof (gint64));
  }
  for (gint32 s = 0; s < p; s++)
    slots[s] = slots_of (schedule, pipeline, s, &n[s]);
  while (moved) {
    moved = FALSE;
    for (gint32 s = 0; s < p; s++)
      for (; at[s] < n[s] && ready (&run, s, &slots[s][at[s]]) >= 0; at[s]++, moved = TRUE) {
        const SpSlot *slot = &slots[s][at[s]];
        gint32 part = sp_schedule_virtual_stage (schedule, p, s, slot->chunk);
        free_at[s] = MAX (free_at[s], ready (&run, s, slot)) + time_of (times, slot->kind);
        if (slot->kind != SP_SLOT_BACKWARD_WEIGHT)
          run.done[slot->kind != SP_SLOT_FORWARD][part * m + slot->micro_batch] = free_at[s];
        end = MAX (end, free_at[s]);
      }
  }
  for (gint32 s = 0; s < p; s++) {
    if (at[s] < n[s])
      end = -1;
    g_free (slots[s]);
  }
  g_free (run.done[0]);
  g_free (run.done[1]);
  return end;
}

/* Idle / busy is the closed form, whatever the parts take; but DualPipe's holds where the input's takes as long as the
 * forward. */
static void
test_bubble (gconstpointer data)
{
  const SpSchedule *schedule = data;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) g_test_rand_int ());

  for (guint i = 0; i < DRAWS; i++) {
    SpPipeline pipeline = draw_pipeline (rand, schedule);
    Times times = { draw_int (rand, 1, 9), draw_int (rand, 1, 9), draw_int (rand, 0, 9) };
    if (schedule->mirrored)
      times.input = times.forward;
    gint64 runs = (gint64) sp_pipeline_runs (&pipeline) * (schedule->chunked ? pipeline.chunks : 1);
    gint64 busy = runs * (times.forward + times.input + times.weight), end = makespan (schedule, &pipeline, &times);
    g_assert_cmpint (end, >=, busy);
    double bubble = schedule->bubble (&pipeline, (double) times.forward, (double) times.input, (double) times.weight);
    double idle = (double) (end - busy);
    if (!(ABS (idle - bubble * (double) busy) <= 1e-9 * (double) busy)) {
      g_test_message (
          "%d stages, %d chunks, %d micro-batches and slices: idle %.0f of %" G_GINT64_FORMAT ", closed form %.6g",
          pipeline.stages, pipeline.chunks, sp_pipeline_runs (&pipeline), idle, busy, bubble * (double) busy);
      g_test_fail ();
    }
  }
}

/* --- what they hold ----------------------------------------------------------------------------------------------- */

typedef struct {
  gint32 full, held; /* most forwards without a backward, and those with what a second part waits for, over chunks */
} Most;

static Most
most_of (const SpSchedule *schedule, const SpPipeline *pipeline, gint32 stage)
{
  guint n;
  g_autofree SpSlot *slots = slots_of (schedule, pipeline, stage, &n);
  gint32 full = 0, kept = 0;
  Most most = { 0 };

  for (guint i = 0; i < n; i++) {
    full += slots[i].kind == SP_SLOT_FORWARD;
    full -= slots[i].kind == SP_SLOT_BACKWARD || slots[i].kind == SP_SLOT_BACKWARD_INPUT;
    kept += slots[i].kind == SP_SLOT_BACKWARD_INPUT;
    kept -= slots[i].kind == SP_SLOT_BACKWARD_WEIGHT;
    most.full = MAX (most.full, full);
    most.held = MAX (most.held, full + kept);
  }
  g_assert_cmpint (full, ==, 0);
  g_assert_cmpint (kept, ==, 0);
  if (schedule->in_flight != NULL)
    g_assert_cmpint (schedule->in_flight (pipeline, stage), ==, most.full);
  return most;
}

/* By the papers: 1F1B p - s, and with n slices (Seq1F1B) p - s + n - 1 of them; GPipe all; interleaved on the first stage p v + p - 1 chunks; ZB-H1 as many as 1F1B's
 * first stage everywhere, which counts what the weights wait for; DualPipe p + 1. */
static void
test_held (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) g_test_rand_int ());

  for (guint i = 0; i < DRAWS; i++) {
    SpPipeline a = draw_pipeline (rand, &sp_schedule_1f1b), b = draw_pipeline (rand, &sp_schedule_interleaved);
    SpPipeline c = draw_pipeline (rand, &sp_schedule_dualpipe);
    gint32 s = draw_int (rand, 0, a.stages - 1), m = sp_pipeline_runs (&a), slices = MAX (a.slices, 1);
    g_assert_cmpint (most_of (&sp_schedule_1f1b, &a, s).full, ==, MIN (a.stages - s + slices - 1, m));
    g_assert_cmpint (most_of (&sp_schedule_gpipe, &a, s).full, ==, m);
    a.slices = 0;
    m = a.micro_batches;
    g_assert_cmpint (most_of (&sp_schedule_zb_h1, &a, s).full, ==, MIN (a.stages - s, m));
    g_assert_cmpint (most_of (&sp_schedule_zb_h1, &a, s).held, ==, MIN (a.stages, m));
    gint32 all = b.stages * b.chunks + b.stages - 1;
    g_assert_cmpint (most_of (&sp_schedule_interleaved, &b, 0).full, ==, MIN (all, b.chunks * b.micro_batches));
    for (gint32 t = 0; t < c.stages; t++)
      g_assert_cmpint (most_of (&sp_schedule_dualpipe, &c, t).held, <=, c.stages + 1);
  }
}

/* What a stage holds of each chunk, or of each slice, when a slot begins, as text. */
static GHashTable *
states_of (const SpSchedule *schedule, const SpPipeline *pipeline, gint32 stage)
{
  GHashTable *states = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  gint32 held[SP_MAX_CHUNKS][3] = { { 0 } }, slices = MAX (pipeline->slices, 1), of_slice[16] = { 0 };
  guint n;
  g_autofree SpSlot *slots = slots_of (schedule, pipeline, stage, &n);

  for (guint i = 0; i < n; i++) {
    g_autoptr (GString) text = g_string_new (NULL);
    gint32 *own = held[slots[i].chunk];
    g_string_append_printf (text, "%u of %u:", slots[i].kind, slots[i].chunk);
    for (gint32 c = 0; c < pipeline->chunks; c++)
      g_string_append_printf (text, " %d %d %d", held[c][0], held[c][1], held[c][2]);
    for (gint32 i = 0; i < pipeline->slices; i++)
      g_string_append_printf (text, " %d", of_slice[i]);
    g_hash_table_add (states, g_strdup (text->str));
    own[0] += slots[i].kind == SP_SLOT_FORWARD;
    own[0] -= slots[i].kind == SP_SLOT_BACKWARD || slots[i].kind == SP_SLOT_BACKWARD_INPUT;
    of_slice[slots[i].micro_batch % slices % 16] += slots[i].kind == SP_SLOT_FORWARD ? 1 : -1;
    own[1] += (slots[i].kind == SP_SLOT_BACKWARD_INPUT) - (slots[i].kind == SP_SLOT_BACKWARD_WEIGHT);
    if (slots[i].kind != SP_SLOT_FORWARD)
      own[2] = slots[i].kind == SP_SLOT_BACKWARD_INPUT;
  }
  return states;
}

/* More micro-batches than steady x p lead to no state that those do not: so the estimate looks at no more. */
static void
test_steady (gconstpointer data)
{
  const SpSchedule *schedule = data;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) g_test_rand_int ());

  for (guint i = 0; i < DRAWS / 4; i++) {
    SpPipeline some = draw_pipeline (rand, schedule), more;
    gint32 period = sp_schedule_period (schedule, some.stages);
    some.micro_batches = sp_schedule_steady (schedule, &some);
    more = some;
    more.micro_batches += period * draw_int (rand, 1, 20);
    g_assert_null (sp_schedule_broken_rule (schedule, &some));
    for (gint32 s = 0; s < some.stages; s++) {
      g_autoptr (GHashTable) a = states_of (schedule, &some, s), b = states_of (schedule, &more, s);
      GHashTableIter iter;
      gpointer state;
      g_hash_table_iter_init (&iter, b);
      while (g_hash_table_iter_next (&iter, &state, NULL))
        if (!g_hash_table_contains (a, state)) {
          g_test_message ("stage %d of %d, %d chunks, %d micro-batches: %s", s, some.stages, some.chunks,
                          more.micro_batches, (const char *) state);
          g_test_fail ();
          return;
        }
    }
  }
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static void
test_rules (void)
{
  static const struct {
    const SpSchedule *schedule;
    SpPipeline pipeline;
    const char *rule, *text;
  } cases[] = {
    { &sp_schedule_1f1b, { 4, 1, 3, TRUE }, NULL, NULL },
    { &sp_schedule_1f1b, { 4, 2, 3, FALSE }, "chunks", "virtual-stages = 2" },
    { &sp_schedule_gpipe, { 1, 1, 1, TRUE }, NULL, NULL },
    { &sp_schedule_zb_h1, { 2, 3, 1, FALSE }, "chunks", "use virtual-stages = 1" },
    { &sp_schedule_interleaved, { 4, 2, 8, TRUE }, NULL, NULL },
    { &sp_schedule_interleaved, { 4, 1, 8, FALSE }, "interleaved-chunks", "needs 2 to 64" },
    { &sp_schedule_interleaved, { 1, 2, 8, FALSE }, "interleaved-stages", "fewer than 2 stages" },
    { &sp_schedule_interleaved, { 4, 2, 10, FALSE }, "interleaved-micro-batches", "use 8 or 12 " },
    { &sp_schedule_interleaved, { 4, 2, 3, FALSE }, "interleaved-micro-batches", "use 4 " },
    { &sp_schedule_gpipe, { 4, 1, 3, TRUE, 5 }, NULL, NULL },
    { &sp_schedule_interleaved, { 4, 2, 8, FALSE, 2 }, "slices", "schedule = 1f1b or gpipe" },
    { &sp_schedule_dualpipe, { 4, 2, 8, FALSE }, NULL, NULL },
    { &sp_schedule_dualpipe, { 3, 2, 8, FALSE }, "dualpipe-stages", "use 2 or 4" },
    { &sp_schedule_dualpipe, { 1, 2, 8, FALSE }, "dualpipe-stages", "use 2" },
    { &sp_schedule_dualpipe, { 4, 1, 8, FALSE }, "dualpipe-chunks", "use virtual-stages = 1" },
    { &sp_schedule_dualpipe, { 4, 2, 9, FALSE }, "dualpipe-micro-batches", "use 8 or 10 " },
    { &sp_schedule_dualpipe, { 4, 2, 6, FALSE }, "dualpipe-micro-batches", "use 8 " },
    { &sp_schedule_dualpipe, { 4, 2, 8, TRUE }, "dualpipe-batch", "smaller" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    const SpScheduleRule *rule = sp_schedule_broken_rule (cases[i].schedule, &cases[i].pipeline);
    g_autoptr (GString) text = g_string_new (NULL);
    g_assert_cmpstr (rule != NULL ? rule->name : NULL, ==, cases[i].rule);
    if (rule == NULL)
      continue;
    rule->explain (&cases[i].pipeline, text);
    g_test_message ("%s", text->str);
    g_assert_nonnull (strstr (text->str, cases[i].text));
  }
}

static void
test_names (void)
{
  static const char *const names[] = { "1f1b", "gpipe", "interleaved", "zb-h1", "dualpipe" };

  g_assert_cmpuint (sp_schedule_count (), ==, G_N_ELEMENTS (names));
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_assert_cmpint (sp_schedule_find (names[i]), ==, (gint) i);
    g_assert_cmpstr (sp_schedule_get (i)->name, ==, names[i]);
  }
  g_assert_cmpint (sp_schedule_find ("1f2b"), ==, -1);
}

/* Each virtual stage is where it says. */
static void
test_places (gconstpointer data)
{
  const SpSchedule *schedule = data;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) g_test_rand_int ());

  for (guint i = 0; i < DRAWS; i++) {
    SpPipeline pipeline = draw_pipeline (rand, schedule);
    gint32 p = pipeline.stages, parts = sp_schedule_virtual_stages (schedule, p, pipeline.chunks);
    g_autofree gint32 *count = g_new0 (gint32, parts);
    for (gint32 s = 0; s < p; s++)
      for (gint32 c = 0; c < pipeline.chunks; c++) {
        gint32 at = sp_schedule_virtual_stage (schedule, p, s, c);
        g_assert_true (at >= 0 && at < parts);
        g_assert_cmpint (sp_schedule_stage (schedule, p, at, c), ==, s);
        count[at]++;
      }
    for (gint32 at = 0; at < parts; at++)
      g_assert_cmpint (count[at], ==, schedule->mirrored ? 2 : 1);
  }
}

/* --- the walk ----------------------------------------------------------------------------------------------------- */

/* An item, and the slot that it stands in unless it is the step's. */
static char *
item_text (const SpItem *item, gint32 slot)
{
  if (item->kind == SP_ITEM_LIST)
    return g_strdup_printf ("%s of %d, micro-batch %d, slot %d, %u of %u", sp_phase_name (item->phase), item->position,
                            item->micro_batch, item->micro_batch >= 0 ? slot : -1, item->flags, item->mask);
  return g_strdup_printf ("%s%s over %d, micro-batch %d", item->kind == SP_ITEM_SEND ? "send" : "receive",
                          item->backward ? " back" : "", item->boundary, item->micro_batch);
}

/* A block's gather comes before its list in the slot, or, kept, in that of the sequence's first slice; and what is summed once a step after all its backwards. */
static void
check_order (const SpWalkPlan *plan, const SpProgram *program, gint32 stage)
{
  guint n, n_slots;
  const SpPosition *positions = sp_walk_positions (plan, stage, &n);
  const SpSlot *slots = sp_walk_slots (plan, stage, &n_slots);
  g_autofree gint32 *gathered = g_new (gint32, n), *left = g_new0 (gint32, n);
  SpWalk walk;
  SpItem item;

  for (guint i = 0; i < n; i++) {
    gathered[i] = -1;
    for (guint s = 0; s < n_slots; s++)
      left[i] += slots[s].kind != SP_SLOT_FORWARD && slots[s].chunk == positions[i].chunk;
  }
  sp_walk_init (&walk, plan, stage);
  while (sp_walk_next (&walk, &item)) {
    const SpBlock *block = &program->variants[0].blocks[positions[item.position].block];
    if (item.kind != SP_ITEM_LIST)
      continue;
    g_assert_cmpint (item.chunk, ==, positions[item.position].chunk);
    if (item.phase == SP_PHASE_GATHER)
      gathered[item.position] = walk.slot;
    if (item.phase == SP_PHASE_FORWARD && block->segments[SP_PHASE_GATHER].n > 0) {
      gint32 slice = sp_program_slice_of (program, item.micro_batch);
      g_assert_cmpint (gathered[item.position] == walk.slot, ==, slice == 0 || block->regather);
      g_assert_cmpint (slots[gathered[item.position]].micro_batch, ==,
                       item.micro_batch - (block->regather ? 0 : slice));
    }
    if (item.phase == SP_PHASE_BACKWARD && block->regather && item.flags == 0)
      g_assert_cmpint (gathered[item.position], ==, walk.slot);
    left[item.position] -= item.phase == SP_PHASE_BACKWARD;
    if ((item.phase == SP_PHASE_SYNC && item.micro_batch < 0) || item.phase == SP_PHASE_OPTIMIZER)
      g_assert_cmpint (left[item.position], ==, 0);
  }
}

static GPtrArray *
walk (const SpWalkPlan *plan, gint32 stage)
{
  GPtrArray *texts = g_ptr_array_new_with_free_func (g_free);
  guint n;
  const SpSlot *slots = sp_walk_slots (plan, stage, &n);
  SpWalk walk;
  SpItem item;

  sp_walk_init (&walk, plan, stage);
  while (sp_walk_next (&walk, &item)) {
    if (walk.slot < (gint32) n && item.micro_batch >= 0) {
      g_assert_cmpint (slots[walk.slot].micro_batch, ==, item.micro_batch);
      g_assert_cmpint (slots[walk.slot].chunk, ==, item.chunk);
    }
    g_ptr_array_add (texts, item_text (&item, walk.slot));
  }
  g_assert_false (sp_walk_next (&walk, &item));
  return texts;
}

static gint
compare_texts (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* Either order runs the same lists, each once; the eager one moves some where the program has async lists. */
static void
test_orders (gconstpointer data)
{
  const RehearseCase *c = data;
  g_autoptr (SpArchitecture) arch = rehearse_case_model (c);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = small_framework (!c->unfused);
  SpRun run = rehearse_case_run (c);
  gboolean moves = FALSE;

  sp_program_write (program, arch, &framework, &c->layout, &run);
  g_autoptr (SpWalkPlan) plain = sp_walk_plan_new (program, SP_ORDER_PROGRAM),
                         eager = sp_walk_plan_new (program, SP_ORDER_EAGER);
  for (gint32 s = 0; s < program->stages; s++) {
    g_autoptr (GPtrArray) a = walk (plain, s), b = walk (eager, s);
    check_order (plain, program, s);
    check_order (eager, program, s);
    g_assert_cmpuint (a->len, ==, b->len);
    for (guint i = 0; i < a->len; i++)
      moves |= !g_str_equal (a->pdata[i], b->pdata[i]);
    g_ptr_array_sort (a, compare_texts);
    g_ptr_array_sort (b, compare_texts);
    for (guint i = 0; i < a->len; i++)
      g_assert_cmpstr (a->pdata[i], ==, b->pdata[i]);
    for (guint i = 1; i < a->len; i++)
      g_assert_cmpstr (a->pdata[i - 1], !=, a->pdata[i]);
  }
  /* ZeRO-2 has its reductions after every micro-batch already. */
  gboolean has_data = program->groups[SP_GROUP_ZERO].size > 1 || c->layout.offload & SP_OFFLOAD_OPTIMIZER,
           is_mirrored = program->groups[SP_GROUP_MIRROR].size > 1;
  if (program->groups[SP_GROUP_REPLICA].size > 1)
    return; /* the sum over copies may move or not, by stage and schedule */
  if (!has_data || program->zero_stage == 2 || (program->zero_stage < 2 && is_mirrored))
    g_assert_false (moves);
  else
    g_assert_true (moves);
}

/* What was received in parts is gathered next, and nothing else is. */
static void
check_gather (const SpProgram *program, const SpItem *before, const SpItem *item)
{
  gboolean in_parts = sp_program_pipe_gather (program, &program->variants[0]) != NULL;

  g_assert_true ((item->kind == SP_ITEM_GATHER) == (in_parts && before->kind == SP_ITEM_RECEIVE));
  if (item->kind != SP_ITEM_GATHER)
    return;
  g_assert_cmpint (item->boundary, ==, before->boundary);
  g_assert_cmpint (item->backward, ==, before->backward);
  g_assert_cmpint (item->micro_batch, ==, before->micro_batch);
  g_assert_cmpint (item->position, ==, before->position);
}

/* Every message is sent once and received once, by the stages that name each other. */
static void
test_messages (gconstpointer data)
{
  const RehearseCase *c = data;
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GHashTable) open = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  guint sent = 0;

  rehearse_case_write (c, program);
  g_autoptr (SpWalkPlan) plan = sp_walk_plan_new (program, SP_ORDER_PROGRAM);
  for (gint32 s = 0; s < program->stages; s++) {
    SpWalk walk;
    SpItem item, before = { .kind = SP_ITEM_LIST };
    sp_walk_init (&walk, plan, s);
    for (; sp_walk_next (&walk, &item); before = item) {
      check_gather (program, &before, &item);
      if (item.kind == SP_ITEM_LIST || item.kind == SP_ITEM_GATHER)
        continue;
      gboolean sends = item.kind == SP_ITEM_SEND;
      char *text = g_strdup_printf ("%d %d %d from %d to %d", item.boundary, item.backward, item.micro_batch,
                                    sends ? s : item.peer, sends ? item.peer : s);
      sent += sends;
      g_assert_cmpint (item.peer, !=, s);
      /* The one end puts it there, the other takes it away. */
      if (!g_hash_table_remove (open, text))
        g_hash_table_add (open, text);
      else
        g_free (text);
    }
  }
  g_assert_cmpuint (g_hash_table_size (open), ==, 0);
  g_assert_cmpuint (sent, ==,
                    2 * (guint) (sp_program_virtual_stages (program) - 1) * (guint) sp_program_runs (program));
}

int
main (int argc, char **argv)
{
  static const struct {
    const char *name;
    GTestDataFunc run;
  } tests[] = { { "slots", test_slots }, { "bubble", test_bubble }, { "places", test_places } };

  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < sp_schedule_count (); i++) {
    const SpSchedule *schedule = sp_schedule_get (i);
    for (guint t = 0; t < G_N_ELEMENTS (tests); t++) {
      g_autofree char *path = g_strdup_printf ("/schedules/%s/%s", tests[t].name, schedule->name);
      g_test_add_data_func (path, schedule, tests[t].run);
    }
    g_autofree char *path = g_strdup_printf ("/schedules/steady/%s", schedule->name);
    if (schedule->steady > 0)
      g_test_add_data_func (path, schedule, test_steady);
  }
  g_test_add_func ("/schedules/held", test_held);
  g_test_add_func ("/schedules/rules", test_rules);
  g_test_add_func ("/schedules/names", test_names);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *orders = g_strdup_printf ("/walk/orders/%s", rehearse_cases[i].name);
    g_autofree char *messages = g_strdup_printf ("/walk/messages/%s", rehearse_cases[i].name);
    g_test_add_data_func (orders, &rehearse_cases[i], test_orders);
    g_test_add_data_func (messages, &rehearse_cases[i], test_messages);
  }
  return g_test_run ();
}
