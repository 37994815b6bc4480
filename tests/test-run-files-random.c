/* SPDX-License-Identifier: Apache-2.0 */
/* Random layouts as run files of other programs, and back. */
#include "tests/imported.h"
#include "tests/random-layouts.h"
#include "tests/shipped.h"

typedef struct {
  char *folder, *model_path, *cluster_path;
  SpCluster *cluster;
} Machine;

/* Some of what is drawn is no model that a file may describe. */
static void
draw_of_file (GRand *rand, const DrawLimits *limits, Draw *ret)
{
  for (;;) {
    g_autoptr (GString) text = g_string_new (NULL);
    g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
    draw_legal (rand, limits, ret);
    sp_architecture_write_ini (ret->arch, text, lost);
    g_autoptr (SpArchitecture) again = sp_architecture_parse_ini ("drawn", text->str, text->len, NULL);
    if (again != NULL)
      return;
    draw_clear (ret);
  }
}

/* What the other draws leave alone; legal or not, an export does not ask. */
static void
draw_recipe (GRand *rand, Draw *ret)
{
  SpLayout *l = &ret->layout;
  l->offload = (guint8) (draw_int (rand, 0, 2) > 0 ? 0 : draw_int (rand, 0, SP_OFFLOAD_ALL));
  if (l->recompute == SP_RECOMPUTE_FULL) {
    l->recompute_every = draw_int (rand, 1, 3);
    l->recompute_first = l->recompute_every > 1 ? 0 : draw_int (rand, 0, 2);
  }
  ret->run.fp8 = ret->run.precision == SP_DTYPE_BF16 && draw_int (rand, 0, 1);
  ret->run.optimizer = (guint8) draw_int (rand, 0, SP_N_OPTIMIZERS - 1);
}

/* A cluster of as many GPUs as the layout has ranks. */
static void
write_machine (const Draw *d, Machine *m)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GString) model = g_string_new (NULL), cluster = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
  m->folder = g_dir_make_tmp ("seqpar-XXXXXX", &error);
  g_assert_no_error (error);
  sp_architecture_write_ini (d->arch, model, lost);
  g_assert_cmpuint (lost->len, ==, 0);
  g_string_append_printf (cluster,
                          "[cluster]\nname = drawn\nnodes = 1\ngpus-per-node = %d\ndevice = %s/devices/h100.ini\n"
                          "link-efficiency = 0.8\nlink-latency = 3 us\n",
                          sp_layout_world (&d->layout, d->arch), sp_data_dir ());
  m->model_path = write_input (m->folder, "model.ini", model);
  m->cluster_path = write_input (m->folder, "cluster.ini", cluster);
  m->cluster = sp_cluster_load (m->cluster_path, &error);
  g_assert_no_error (error);
}

static void
machine_clear (Machine *m)
{
  g_remove (m->model_path);
  g_remove (m->cluster_path);
  g_rmdir (m->folder);
  g_free (m->folder);
  g_free (m->model_path);
  g_free (m->cluster_path);
  sp_cluster_free (m->cluster);
}

/* The largest degree that divides both. */
static gint32
most_ulysses (gint32 heads, gint32 ranks)
{
  gint32 most = 1;
  for (gint32 i = 1; i <= ranks; i++)
    most = heads % i == 0 && ranks % i == 0 ? i : most;
  return most;
}

/* Worked out from what the formats document, not from their tables. */
static gboolean
has_words (const char *format, const Draw *d)
{
  const SpLayout *l = &d->layout;
  gboolean linear = sp_architecture_count (d->arch, SP_LAYER_SOFTMAX) == 0;
  if (g_str_equal (format, "megatron")) /* all but a chain of states */
    return l->lasp == 1;
  if (g_str_equal (format, "deepspeed"))
    return l->pipeline == 1 && l->ring == 1 && l->lasp == 1 && l->expert == 1;
  if (g_str_equal (format, "torchtitan"))
    return l->ulysses == 1 && l->lasp == 1;
  gboolean plain = l->tensor == 1 && l->pipeline == 1 && l->expert == 1;
  if (g_str_equal (format, "swift")) /* Ulysses' part follows from the heads */
    return plain && l->lasp == 1 && l->ulysses == most_ulysses (d->arch->heads, l->ulysses * l->ring);
  if (g_str_equal (format, "megatron-swift"))
    return l->ulysses == 1 && l->lasp == 1;
  if (g_str_equal (format, "llamafactory")) /* one of the two */
    return l->lasp == 1 && (l->ulysses == 1 || l->ring == 1);
  if (g_str_equal (format, "verl")) /* Ulysses goes with FSDP, all else with Megatron */
    return l->lasp == 1 && (l->ulysses == 1 || (plain && l->ring == 1));
  return l->ulysses == 1 && l->expert == 1 && (linear || l->lasp == 1);
}

static gboolean
is_lost (const GPtrArray *lost, const char *key)
{
  g_autofree char *layout = g_strdup_printf ("not carried: layout.%s ", key);
  g_autofree char *run = g_strdup_printf ("not carried: run.%s ", key);
  for (guint i = 0; i < lost->len; i++)
    if (g_str_has_prefix (lost->pdata[i], layout) || g_str_has_prefix (lost->pdata[i], run))
      return TRUE;
  return FALSE;
}

/* What the file gives when it is imported by somebody else: equal, or said to be lost. FALSE: no legal layout. */
static gboolean
check_export (const char *format, const Draw *d, const Machine *m, const GString *text, const GPtrArray *lost)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRunFile) file = sp_run_file_parse (format, text->str, text->len, &error);
  g_assert_no_error (error);
  g_autofree char *sequence = g_strdup_printf ("run.sequence=%" G_GINT64_FORMAT, d->run.sequence);
  const char *const sets[] = { sequence, NULL };
  const SpRunGiven given = { m->model_path, m->cluster_path, sets };
  g_autoptr (GString) scenario = g_string_new (NULL), model = g_string_new (NULL);
  sp_run_file_import (file, &given, "again.ini", scenario, model, &error);
  /* What is left without what is lost need not be legal. */
  if (error != NULL && lost->len > 0 && strstr (error->message, "the layout is not legal") != NULL)
    return FALSE;
  g_assert_no_error (error);
  g_autoptr (SpScenario) again = sp_scenario_parse ("again.ini", scenario->str, scenario->len, NULL, &error);
  g_assert_no_error (error);
  const SpLayout *a = &d->layout, *b = &again->layout;
  g_assert_cmpint (a->data, ==, b->data);
  g_assert_cmpint (a->tensor, ==, b->tensor);
  g_assert_cmpint (a->pipeline, ==, b->pipeline);
  g_assert_cmpint (a->ulysses, ==, b->ulysses);
  g_assert_cmpint (a->ring, ==, b->ring);
  g_assert_cmpint (a->lasp, ==, b->lasp);
  g_assert_cmpint (a->expert, ==, b->expert);
  gint32 replicas = sp_layout_replicas (a, d->arch);
  g_assert_true (replicas == 1 || a->zero == b->zero || is_lost (lost, "zero"));
  g_assert_true (a->zero == 0 || a->zero_group == b->zero_group || is_lost (lost, "zero-group"));
  gboolean which = a->recompute != SP_RECOMPUTE_FULL ||
                   (a->recompute_every == b->recompute_every && a->recompute_first == b->recompute_first);
  g_assert_true ((a->recompute == b->recompute && which) || is_lost (lost, "recompute"));
  g_assert_true (a->loss == b->loss || is_lost (lost, "loss") || (a->tensor == 1 && MAX (a->loss, b->loss) < 2));
  g_assert_true (a->offload == b->offload || is_lost (lost, "offload"));
  g_assert_true ((!d->run.fp8 == !again->run.fp8) || is_lost (lost, "precision"));
  g_assert_true (d->run.optimizer == again->run.optimizer || is_lost (lost, "optimizer"));
  g_assert_true (a->gradient_dtype == b->gradient_dtype || is_lost (lost, "gradient-dtype"));
  g_assert_true (a->overlap == b->overlap || is_lost (lost, "overlap") || a->tensor * replicas == 1);
  g_assert_true (a->pipeline == 1 || a->schedule == b->schedule || is_lost (lost, "schedule"));
  g_assert_true (a->pipeline == 1 || a->virtual_stages == b->virtual_stages || is_lost (lost, "virtual-stages"));
  g_assert_true (a->tensor == 1 || a->sequence_regions == b->sequence_regions || is_lost (lost, "sequence-regions"));
  g_assert_true (a->ring == 1 || a->token_split == b->token_split || is_lost (lost, "ring-split"));
  g_assert_true (a->ring == 1 || a->ring_kind == b->ring_kind || is_lost (lost, "ring-kind"));
  g_assert_true (a->ring == 1 || a->ring_keep == b->ring_keep || is_lost (lost, "ring-keep"));
  g_assert_true (d->run.micro_batch == again->run.micro_batch || is_lost (lost, "micro-batch"));
  g_assert_true (d->run.global_batch == again->run.global_batch || is_lost (lost, "global-batch"));
  g_assert_true (d->run.precision == again->run.precision || is_lost (lost, "precision"));
  g_assert_true (d->run.causal == again->run.causal || is_lost (lost, "causal"));
  return TRUE;
}

/* What comes back comes back again: written and read once more it is the same, whole. */
static void
check_image (const SpScenario *scenario, const char *format, gboolean good, const GPtrArray *lost)
{
  SpScenario image = *scenario;
  SpLayout again;
  SpRun run;
  SpRunCarries carries = sp_run_file_carries (scenario, format, &image.layout, &image.run);
  gboolean whole = TRUE;

  g_assert_cmpint (carries != SP_RUN_CARRIES_NOT, ==, good);
  if (!good)
    return;
  for (guint i = 0; i < lost->len; i++)
    whole = whole && !g_str_has_prefix (lost->pdata[i], "not carried: layout.");
  g_assert_true (carries != SP_RUN_CARRIES_ALL || whole || g_str_equal (format, "deepspeed"));
  g_assert_cmpint (sp_run_file_carries (&image, format, &again, &run), ==, SP_RUN_CARRIES_ALL);
  g_assert_cmpmem (&again, sizeof again, &image.layout, sizeof again);
  g_assert_cmpint (run.micro_batch, ==, image.run.micro_batch);
  g_assert_cmpint (run.global_batch, ==, image.run.global_batch);
}

#define N_FORMATS 8

static void
test_random (void)
{
  const DrawLimits limits = {
    .kinds = DRAW_ANY,
    .data = { 1, 4 }, /* at most 768 ranks: a node of the drawn cluster */
    .tensor = { 1, 4 },
    .pipeline = { 1, 4 },
    .ulysses = { 1, 3 },
    .ring = { 1, 4 },
    .lasp = { 1, 4 },
    .schedules = TRUE,
    .experts = TRUE,
  };
  guint carried[N_FORMATS] = { 0 }, refused[N_FORMATS] = { 0 }, legal[N_FORMATS] = { 0 };
  g_autoptr (GRand) rand = draw_rand_new ();
  for (guint i = 0; i < 300; i++) {
    Draw d;
    Machine m = { NULL };
    draw_of_file (rand, &limits, &d);
    draw_recipe (rand, &d);
    draw_describe (&d);
    write_machine (&d, &m);
    char none[] = "none";
    const SpScenario scenario = { .path = none,
                                  .model_path = m.model_path,
                                  .cluster_path = m.cluster_path,
                                  .framework_path = none,
                                  .arch = d.arch,
                                  .cluster = m.cluster,
                                  .framework = &d.framework,
                                  .layout = d.layout,
                                  .run = d.run };
    for (guint f = 0; sp_run_format_names[f] != NULL; f++) {
      g_autoptr (GError) error = NULL;
      g_autoptr (GString) text = g_string_new (NULL);
      g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);
      gboolean words = has_words (sp_run_format_names[f], &d);
      gboolean good = sp_run_file_export (&scenario, sp_run_format_names[f], text, lost, &error);
      g_test_message ("%s: %s", sp_run_format_names[f], good ? text->str : error->message);
      g_assert_cmpint (good, ==, words);
      g_assert_true (good || strstr (error->message, "no words for the layout's degrees") != NULL);
      check_image (&scenario, sp_run_format_names[f], good, lost);
      (good ? carried : refused)[f]++;
      legal[f] += good && check_export (sp_run_format_names[f], &d, &m, text, lost);
    }
    machine_clear (&m);
    draw_clear (&d);
  }
  for (guint f = 0; f < N_FORMATS; f++) {
    g_test_message ("%s: %u carried, %u of them legal, %u refused", sp_run_format_names[f], carried[f], legal[f],
                    refused[f]);
    g_assert_cmpuint (legal[f], >, 0);
    g_assert_cmpuint (carried[f], >, 1); /* of swift a dozen or so, as its degrees follow from the heads */
    g_assert_cmpuint (refused[f], >, 5);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/run-files-random/layouts", test_random);
  return g_test_run ();
}
