/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/question-world.h"

/* The longest sequence, against scans. */

static gboolean
passes (World *w, gint64 sequence, double least_tokens_per_s)
{
  g_autoptr (SpPlan) plan = plan_of (w, sequence, w->question.gpus, 1);
  const SpPlanEntry *best = sp_plan_best (plan);

  return best != NULL && best->estimate.tokens_per_s >= least_tokens_per_s;
}

typedef struct {
  const char *name, *model, *cluster;
  gint32 gpus, global_batch;
  double least_tokens_per_s;
  gint64 step;
  SpSequenceLimit limit;
} Length;

static const Length lengths[] = {
  { "llama-4", "llama-3.1-8b", "h100-1x4", 0, 2, 0, 1024, SP_LIMIT_MEMORY },
  { "llama-4-rate", "llama-3.1-8b", "h100-1x4", 0, 2, 15000, 1024, SP_LIMIT_RATE },
  { "tnl-3", "tnl-1b", "a100-1x8", 3, 3, 0, 3072, SP_LIMIT_MEMORY },
  { "tnl-2", "tnl-1b", "a100-1x8", 2, 1, 0, 1024, SP_LIMIT_MEMORY },
  { "gla-4", "gla-7b", "h100-1x4", 0, 1, 0, 1024, SP_LIMIT_MEMORY },
};

static void
test_longest (gconstpointer data)
{
  const Length *l = data;
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, l->model, l->cluster, 0, l->global_batch);
  w.question.gpus = l->gpus;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, l->least_tokens_per_s, &error);
  g_assert_no_error (error);
  g_test_message ("%" G_GINT64_FORMAT " tokens, %u searches", max->sequence, max->searches);
  g_assert_cmpint (max->step_tokens, ==, l->step);
  g_assert_cmpint (max->sequence % l->step, ==, 0);
  g_assert_cmpint (max->sequence, >, 0);
  g_assert_cmpint (max->next, ==, max->sequence + l->step);
  g_assert_cmpint (max->limit, ==, l->limit);
  g_assert_true (max->is_monotonic);
  g_assert_true (passes (&w, max->sequence, l->least_tokens_per_s));
  g_assert_false (passes (&w, max->next, l->least_tokens_per_s));
  g_assert_cmpint (sp_plan_best (max->plan)->run.sequence, ==, max->sequence);
  g_assert_cmpfloat (max->best_tokens_per_s, >=, sp_plan_best (max->plan)->estimate.tokens_per_s);
  if (l->limit == SP_LIMIT_RATE)
    g_assert_cmpfloat (sp_plan_best (max->next_plan)->estimate.tokens_per_s, <, l->least_tokens_per_s);
}

/* A scan of every step, on GPUs so small that there are few. */
static void
test_longest_scan (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };
  gint64 longest = 0;

  world_init (&w, "tiny", "h100-1x4", 0, 2);
  w.cluster->device->memory_bytes.value = 4.3e9; /* of which the framework reserves most */
  sp_estimator_init (&w.estimator, w.arch, w.cluster, w.framework, SP_MFU_SEQPAR);
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  for (gint64 tokens = max->step_tokens; tokens <= 2 * max->sequence;
       tokens += MAX (1, max->sequence / 1024 / 300) * 1024)
    if (passes (&w, tokens, 0))
      longest = MAX (longest, tokens);
  g_test_message ("%" G_GINT64_FORMAT " tokens; by a scan at least %" G_GINT64_FORMAT, max->sequence, longest);
  g_assert_cmpint (max->sequence, >, 0);
  g_assert_cmpint (longest, <=, max->sequence);
}

static void
test_longest_none (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "llama-3.1-8b", "h100-1x8", 0, 8);
  w.question.gpus = 1;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  g_assert_cmpint (max->sequence, ==, 0);
  g_assert_null (max->plan);
  g_assert_cmpint (max->next, ==, 1024);
  g_assert_cmpint (max->limit, ==, SP_LIMIT_MEMORY);
  g_assert_true (max->next_plan->has_nearest);

  w.question.gpus = 8;
  g_autoptr (SpMaxSequence) quick = sp_plan_max_sequence (&w.estimator, &w.question, 1e9, &error);
  g_assert_no_error (error);
  g_assert_cmpint (quick->sequence, ==, 0);
  g_assert_cmpint (quick->limit, ==, SP_LIMIT_RATE);
  g_assert_cmpfloat (quick->best_tokens_per_s, >, 0);
  g_assert_true (passes (&w, quick->best_sequence, quick->best_tokens_per_s));

  w.question.gpus = 16;
  g_assert_null (sp_plan_max_sequence (&w.estimator, &w.question, 0, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
}

/* Case G16: 28 query and 4 KV heads on 8 GPUs. Ulysses 8 is refused, and the longest sequence is Ulysses 4 x ring 2's,
 * once the logits of all tokens do not count. */
static void
test_heads (void)
{
  g_autoptr (GError) error = NULL;
  g_auto (World) w = { 0 };

  world_init (&w, "qwen2.5-7b", "a100-1x8", 0, 1);
  w.question.base.loss = SP_LOSS_CHUNKED;
  g_autoptr (SpMaxSequence) max = sp_plan_max_sequence (&w.estimator, &w.question, 0, &error);
  g_assert_no_error (error);
  const SpPlanEntry *best = sp_plan_best (max->plan);
  g_assert_cmpint (best->layout.ulysses, ==, 4);
  g_assert_cmpint (best->layout.ring, ==, 2);
  for (guint i = 0; i < max->plan->entries->len; i++)
    g_assert_cmpint (g_array_index (max->plan->entries, SpPlanEntry, i).layout.ulysses, !=, 8);
}

/* Case G15: 40 and 8 heads at 64K on 16 GPUs. Ulysses 8, with a ring of 2 for one sequence, and two data ranks for more. */
static void
test_heads_of_batches (void)
{
  static const struct {
    gint32 global_batch, data, ulysses, ring;
  } rows[] = { { 1, 1, 8, 2 }, { 16, 2, 8, 1 } };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    g_auto (World) w = { 0 };
    world_init (&w, "qwen2.5-14b", "a100-16x8", 65536, rows[i].global_batch);
    w.question.gpus = 16;
    g_autoptr (SpPlanGpus) gpus = sp_plan_gpus (&w.estimator, &w.question, 16000, FALSE, &error);
    g_assert_no_error (error);
    g_assert_cmpint (gpus->fewest, ==, 0);
    const SpPlanEntry *best = sp_plan_best (((SpPlanTrial *) gpus->trials->pdata[0])->plan);
    g_assert_cmpint (best->layout.data, ==, rows[i].data);
    g_assert_cmpint (best->layout.ulysses, ==, rows[i].ulysses);
    g_assert_cmpint (best->layout.ring, ==, rows[i].ring);
  }
}

int
main (int argc, char **argv)
{
  if (!question_test_init (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_autofree char *path = g_strdup_printf ("/question-sequence/longest/%s", lengths[i].name);
    g_test_add_data_func (path, &lengths[i], test_longest);
  }
  g_test_add_func ("/question-sequence/scan", test_longest_scan);
  g_test_add_func ("/question-sequence/none", test_longest_none);
  g_test_add_func ("/question-sequence/heads", test_heads);
  g_test_add_func ("/question-sequence/heads-of-batches", test_heads_of_batches);
  return g_test_run ();
}
