/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "tests/random-layouts.h"
#include "tests/small-models.h"

/* Degrees, groups and places of ranks. What is refused: tests/test-layout-rules.c. */

/* --- degrees ------------------------------------------------------------------------------------------------------ */

/* 8 / 4 heads, MLP of 40, 2 layers, 48 tokens, one sequence of a batch of 4: what divides what. Tensor: 8, 4 and 40;
 * with regions also 48. Ulysses: 8, and 4 or a multiple. Ring, zigzag: 48 mod 2 R. Data: at most 4. */
static void
test_degrees (void)
{
  static const struct {
    SpAxis axis;
    gint32 degrees[16];
  } cases[] = {
    { SP_AXIS_TENSOR, { 1, 2, 4 } },
    { SP_AXIS_ULYSSES, { 1, 2, 4, 8 } },
    { SP_AXIS_RING, { 1, 2, 3, 4, 6, 8, 12, 24 } },
    { SP_AXIS_LASP, { 1 } },
    { SP_AXIS_DATA, { 1, 2, 3, 4 } },
    { SP_AXIS_PIPELINE, { 1, 2 } },
  };
  g_autoptr (SpArchitecture) arch = small_model (SMALL_GQA);
  SpFramework framework = small_framework (TRUE);
  SpRun run = { 48, 1, 4, SP_DTYPE_BF16, TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GArray) got = sp_layout_legal_degrees (&layout, arch, &framework, &run, cases[i].axis, 48);
    guint n = 0;
    while (n < G_N_ELEMENTS (cases[i].degrees) && cases[i].degrees[n])
      n++;
    g_test_message ("%s: %u", sp_axis_name (cases[i].axis), got->len);
    g_assert_cmpmem (got->data, got->len * sizeof (gint32), cases[i].degrees, n * sizeof (gint32));
  }
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Every rank is in one instance of a group: it is the member at its own place, and its fellows' members are the same
 * ranks. */
static void
check_partition (const SpProgram *program, SpGroupId group)
{
  gint32 size = program->groups[group].size;
  g_autofree gint32 *seen = g_new0 (gint32, program->world);

  for (gint32 rank = 0; rank < program->world; rank++) {
    gint32 place = sp_program_place (program, group, rank);
    if (!(place >= 0 && place < size))
      g_error ("place %d of %d in %s", place, size, sp_group_name (group));
    g_assert_cmpint (sp_program_member (program, group, rank, place), ==, rank);
    for (gint32 i = 0; i < size; i++) {
      gint32 fellow = sp_program_member (program, group, rank, i);
      if (!(fellow >= 0 && fellow < program->world))
        g_error ("rank %d of %d in %s", fellow, program->world, sp_group_name (group));
      g_assert_cmpint (sp_program_place (program, group, fellow), ==, i);
      for (gint32 j = 0; j < size; j++)
        g_assert_cmpint (sp_program_member (program, group, fellow, j), ==,
                         sp_program_member (program, group, rank, j));
      seen[fellow]++;
    }
  }
  for (gint32 rank = 0; rank < program->world; rank++)
    g_assert_cmpint (seen[rank], ==, size);
}

/* Ranks that differ in the digits of one group alone: the product of all groups is the world, each rank once. */
static void
check_coordinates (const Draw *d, const SpProgram *program)
{
  const SpLayout *l = &d->layout;
  const gint32 sizes[] = { l->tensor, l->pipeline, l->data, sp_layout_sequence_ranks (l, d->arch) };
  g_autofree guint8 *seen = g_new0 (guint8, program->world);

  g_assert_cmpint (program->world, ==, sp_layout_world (l, d->arch));
  g_assert_cmpint (program->world, ==, sizes[0] * sizes[1] * sizes[2] * sizes[3]);
  for (gint32 rank = 0; rank < program->world; rank++) {
    const gint32 places[] = { sp_program_place (program, SP_GROUP_TENSOR, rank),
                              sp_program_place (program, SP_GROUP_PIPELINE, rank),
                              sp_program_place (program, SP_GROUP_DATA, rank),
                              sp_program_place (program, SP_GROUP_SEQUENCE, rank) };
    gint32 at = 0;
    for (guint i = 0; i < G_N_ELEMENTS (places); i++)
      at = at * sizes[i] + places[i];
    g_assert_false (seen[at]);
    seen[at] = 1;
  }
}

/* The sequence's place is ring x U + the Ulysses place, and in linear layers lasp x (S / lasp) + theirs: whatever
 * the order. */
static void
check_places (const Draw *d, const SpProgram *program)
{
  const SpLayout *l = &d->layout;
  gboolean linear = sp_architecture_count (d->arch, SP_LAYER_LINEAR) > 0;
  gboolean softmax = sp_architecture_count (d->arch, SP_LAYER_SOFTMAX) > 0;
  gint32 S = sp_layout_sequence_ranks (l, d->arch);

  for (gint32 rank = 0; rank < program->world; rank++) {
    gint32 place = sp_program_place (program, SP_GROUP_SEQUENCE, rank);
    if (softmax)
      g_assert_cmpint (place, ==,
                       sp_program_place (program, SP_GROUP_RING, rank) * l->ulysses +
                           sp_program_place (program, SP_GROUP_ULYSSES, rank));
    if (linear)
      g_assert_cmpint (place, ==,
                       sp_program_place (program, SP_GROUP_LASP, rank) * (S / l->lasp) +
                           sp_program_place (program, SP_GROUP_ULYSSES_LINEAR, rank));
  }
}

static void
check_sizes (const Draw *d, const SpProgram *program)
{
  const SpLayout *l = &d->layout;
  gboolean linear = sp_architecture_count (d->arch, SP_LAYER_LINEAR) > 0;
  gint32 S = sp_layout_sequence_ranks (l, d->arch);
  const struct {
    SpGroupId group;
    gint32 size;
  } sizes[] = {
    { SP_GROUP_TENSOR, l->tensor },
    { SP_GROUP_ULYSSES, l->ulysses },
    { SP_GROUP_RING, l->ring },
    { SP_GROUP_DATA, l->data },
    { SP_GROUP_PIPELINE, l->pipeline },
    { SP_GROUP_SEQUENCE, S },
    { SP_GROUP_ZERO, l->zero_group > 0 ? l->zero_group : l->data * S },
    { SP_GROUP_REPLICA, l->zero_group > 0 ? l->data * S / l->zero_group : 1 },
    { SP_GROUP_LASP, linear ? l->lasp : 1 },
    { SP_GROUP_ULYSSES_LINEAR, linear ? S / l->lasp : 1 },
    { SP_GROUP_TIE, l->pipeline > 1 ? 2 : 1 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    g_assert_cmpint (program->groups[sizes[i].group].size, ==, sizes[i].size);
}

/* Who shares weights: the same tensor and pipeline place; and who holds the same part: each pair of places once. */
static void
check_zero_group (const SpProgram *program)
{
  for (gint32 rank = 0; rank < program->world; rank++)
    for (gint32 i = 0; i < program->groups[SP_GROUP_ZERO].size; i++) {
      gint32 fellow = sp_program_member (program, SP_GROUP_ZERO, rank, i);
      g_assert_cmpint (sp_program_place (program, SP_GROUP_TENSOR, fellow), ==,
                       sp_program_place (program, SP_GROUP_TENSOR, rank));
      g_assert_cmpint (sp_program_place (program, SP_GROUP_PIPELINE, fellow), ==,
                       sp_program_place (program, SP_GROUP_PIPELINE, rank));
      if (fellow != rank)
        g_assert_cmpint (sp_program_member (program, SP_GROUP_REPLICA, fellow,
                                            sp_program_place (program, SP_GROUP_REPLICA, rank)),
                         ==, fellow);
    }
}

/* Experts and the ranks that hold the same ones: two factors of those that share the other weights, each pair of
 * places once. */
static void
check_expert_groups (const Draw *d, const SpProgram *program)
{
  const SpGroup *groups = program->groups;
  gint32 experts = groups[SP_GROUP_EXPERT].size, others = groups[SP_GROUP_EXPERT_DATA].size;

  g_assert_cmpint (experts, ==, d->layout.expert);
  if (d->arch->moe.experts == 0) {
    g_assert_cmpint (experts * others, ==, 1);
    return;
  }
  g_assert_cmpint (experts * others, ==, groups[SP_GROUP_ZERO].size);
  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autofree guint8 *seen = g_new0 (guint8, program->world);
    for (gint32 i = 0; i < experts; i++)
      for (gint32 j = 0; j < others; j++) {
        gint32 fellow =
            sp_program_member (program, SP_GROUP_EXPERT_DATA, sp_program_member (program, SP_GROUP_EXPERT, rank, i), j);
        g_assert_false (seen[fellow]);
        seen[fellow] = 1;
        g_assert_cmpint (
            sp_program_member (program, SP_GROUP_ZERO, rank, sp_program_place (program, SP_GROUP_ZERO, fellow)), ==,
            fellow);
      }
  }
}

/* Each token of a sequence lies on one rank of its sequence group, and rows ascend but for zigzag's second part. */
static void
check_tokens (const SpProgram *program)
{
  gint32 S = program->groups[SP_GROUP_SEQUENCE].size;
  g_autofree guint8 *seen = g_new0 (guint8, program->sequence);

  g_assert_cmpint (program->local_sequence * S, ==, program->sequence);
  for (gint32 place = 0; place < S; place++)
    for (gint64 row = 0; row < program->local_sequence; row++) {
      gint64 position = sp_program_position (program, place, row);
      if (!(position >= 0 && position < program->sequence) || seen[position])
        g_error ("token %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT, position, program->sequence);
      seen[position] = 1;
      if (program->token_split == SP_TOKENS_CONTIGUOUS)
        g_assert_cmpint (position, ==, place * program->local_sequence + row);
    }
}

/* By hand. Ranks t + 2 (u + 4 (d + 6 p)), of 2 tensor, 4 ulysses, 6 data ranks. Experts over 8, the nearest: all of
 * ulysses and 2 of data, so strides 2 and 8; the farthest: 2 of data, the high ones, as 3 x 2, at stride 8 x 3, and all
 * of ulysses. Over 3, which ulysses has no part of: of data. */
static void
test_expert_digits (void)
{
  static const struct {
    gint32 expert;
    gboolean far;
    gint32 sizes[3], strides[3], others; /* of the group's digits, and the first stride of the rest */
  } cases[] = {
    { 8, FALSE, { 4, 2 }, { 2, 8 }, 16 }, { 8, TRUE, { 4, 2 }, { 2, 24 }, 8 }, { 3, FALSE, { 3 }, { 8 }, 2 },
    { 3, TRUE, { 3 }, { 16 }, 2 },        { 2, FALSE, { 2 }, { 2 }, 4 },       { 2, TRUE, { 2 }, { 24 }, 2 },
  };
  g_autoptr (SpArchitecture) arch = small_model (SMALL_EXPERTS);
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    SpLayout layout = LAYOUT (.tensor = 2, .ulysses = 4, .data = 6, .expert = cases[i].expert);
    layout.order.experts_far = cases[i].far != FALSE;
    sp_layout_write_ranks (&layout, arch, program);
    const SpGroup *group = &program->groups[SP_GROUP_EXPERT];
    g_assert_cmpint (group->size, ==, cases[i].expert);
    for (guint j = 0; j < 3; j++) {
      g_assert_cmpint (j < group->n_digits, ==, cases[i].sizes[j] > 0);
      if (j >= group->n_digits)
        continue;
      g_assert_cmpint (program->digits[group->digits[j]].size, ==, cases[i].sizes[j]);
      g_assert_cmpint (program->digits[group->digits[j]].stride, ==, cases[i].strides[j]);
    }
    g_assert_cmpint (program->digits[program->groups[SP_GROUP_EXPERT_DATA].digits[0]].stride, ==, cases[i].others);
    g_assert_cmpint (program->world, ==, 48);
  }
}

static void
test_groups (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 3 }, { 1, 3 }, { 1, 3 }, { 1, 8 }, { 1, 6 }, { 1, 8 },
                                     .experts = TRUE, .families = TRUE };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();

  for (guint i = 0; i < 200 && !g_test_failed (); i++) {
    Draw d;
    draw_legal (rand, &limits, &d);
    sp_program_write (program, d.arch, &d.framework, &d.layout, &d.run);
    if (program->world <= 96) {
      static const SpGroupId groups[] = { SP_GROUP_TENSOR,         SP_GROUP_ULYSSES, SP_GROUP_RING,
                                          SP_GROUP_ULYSSES_LINEAR, SP_GROUP_LASP,    SP_GROUP_SEQUENCE,
                                          SP_GROUP_DATA,           SP_GROUP_ZERO,    SP_GROUP_PIPELINE,
                                          SP_GROUP_EXPERT,         SP_GROUP_EXPERT_DATA };
      for (guint g = 0; g < G_N_ELEMENTS (groups); g++)
        check_partition (program, groups[g]);
    }
    check_sizes (&d, program);
    check_coordinates (&d, program);
    check_places (&d, program);
    check_zero_group (program);
    check_expert_groups (&d, program);
    check_tokens (program);
    if (g_test_failed ())
      draw_describe (&d);
    draw_clear (&d);
  }
  g_rand_free (rand);
}

/* Every split of S = 1 .. 16 in both ways that the rules allow writes its groups: lasp x (linear Ulysses) = ulysses
 * x ring. */
static void
test_hybrid_splits (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_HYBRID);
  g_autoptr (SpProgram) program = sp_program_new ();
  SpFramework framework = small_framework (TRUE);
  guint legal = 0, all = 0;

  arch->heads = arch->kv_heads = 48;
  for (gint32 S = 1; S <= 16; S++)
    for (gint32 u = 1; u <= S; u++)
      for (gint32 lasp = 1; lasp <= S; lasp++) {
        SpLayout layout = LAYOUT (.ulysses = u, .ring = S / u, .lasp = lasp, CONTIGUOUS);
        SpRun run = { 48 * S, 1, 1, SP_DTYPE_BF16, TRUE };
        Draw d = { arch, framework, layout, run };
        if (S % u != 0)
          continue;
        all++;
        gboolean divides = S % lasp == 0, factors = divides && (u % (S / lasp) == 0 || S / lasp % u == 0);
        gboolean heads = 48 % u == 0 && divides && 48 % (S / lasp) == 0;
        g_assert_cmpint (sp_layout_check (&layout, arch, &framework, &run, S, NULL), ==, factors && heads);
        if (!factors || !heads)
          continue;
        legal++;
        sp_program_write (program, arch, &framework, &layout, &run);
        check_sizes (&d, program);
        check_places (&d, program);
        check_coordinates (&d, program);
        check_partition (program, SP_GROUP_LASP);
        check_partition (program, SP_GROUP_ULYSSES_LINEAR);
      }
  g_test_message ("%u of %u splits are legal", legal, all);
  g_assert_cmpuint (legal, >, 50);
}

/* Degrees of a file may be anything: the world saturates, it does not wrap into a legal one. */
static void
test_saturated (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_SOFTMAX);
  SpFramework framework = small_framework (TRUE);
  SpRun run = { 32, 1, 1 << 24, SP_DTYPE_BF16, TRUE };
  SpLayout layout = LAYOUT (.data = 1 << 16, .ring = 1 << 16, CONTIGUOUS);

  g_assert_cmpint (sp_layout_world (&layout, arch), ==, G_MAXINT32);
  g_assert_false (sp_layout_check (&layout, arch, &framework, &run, 1, NULL));
}

/* A message stays one that people read, whatever the degrees. */
static void
test_message_length (void)
{
  g_autoptr (SpArchitecture) arch = small_model (SMALL_HYBRID);
  SpFramework framework = small_framework (TRUE);
  const SpLayout layouts[] = {
    LAYOUT (.ring = 1 << 20, CONTIGUOUS),
    LAYOUT (.ring = 1 << 20, .lasp = 3, CONTIGUOUS),
    LAYOUT (.ulysses = 1 << 20, CONTIGUOUS),
    LAYOUT (.tensor = 1 << 20),
    LAYOUT (.pipeline = 1 << 20),
    LAYOUT (.data = 1 << 20),
  };

  for (guint i = 0; i < G_N_ELEMENTS (layouts); i++) {
    g_autoptr (GError) error = NULL;
    SpRun run = { 32, 1, 1, SP_DTYPE_BF16, TRUE };
    g_assert_false (sp_layout_check (&layouts[i], arch, &framework, &run, 8, &error));
    g_test_message ("%.200s", error->message);
    g_assert_cmpuint (strlen (error->message), <, 1000);
  }
}

static void
test_describe (void)
{
  static const struct {
    SpLayout layout;
    const char *text;
    gint model; /* SmallModel: 0 is of softmax layers */
  } cases[] = {
    { LAYOUT (.zero = 0), "one GPU, zero 0, recompute none" },
    { LAYOUT (.ulysses = 8, .ring = 2, .zero = 3, .recompute = SP_RECOMPUTE_SELECTIVE),
      "ulysses 8 x ring 2, zigzag, zero 3, recompute selective" },
    { LAYOUT (.pipeline = 4, .schedule = ZB_H1), "pipeline 4, zb-h1, zero 1, recompute none" },
    { LAYOUT (.pipeline = 4, .schedule = INTERLEAVED, .virtual_stages = 3),
      "pipeline 4, interleaved, virtual-stages 3, zero 1, recompute none" },
    { LAYOUT (.data = 2, .lasp = 4, .lasp_version = 1), "data 2 x lasp 4, lasp-version 1, zero 1, recompute none", SMALL_LINEAR },
    { LAYOUT (.ulysses = 2, .lasp = 4), "ulysses 2 x lasp 4, lasp-version 2, zero 1, recompute none", SMALL_LINEAR },
    /* the same eight ranks, factored twice */
    { LAYOUT (.ulysses = 8, .lasp = 8),
      "ulysses 8 (linear layers: lasp 8), lasp-version 2, zero 1, recompute none", SMALL_HYBRID },
    { LAYOUT (.data = 2, .ulysses = 2, .ring = 4, .lasp = 4, CONTIGUOUS),
      "data 2 x ulysses 2 x ring 4 (linear layers: lasp 4 x ulysses 2), lasp-version 2, contiguous, zero 1, recompute "
      "none", SMALL_HYBRID },
    { LAYOUT (.ring = 2, CONTIGUOUS),
      "ring 2 (linear layers: ulysses 2), contiguous, zero 1, recompute none", SMALL_HYBRID },
    { LAYOUT (.ulysses = 2), "ulysses 2, zero 1, recompute none", SMALL_HYBRID },
    { LAYOUT (.data = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ALL),
      "data 2, zero 3, recompute full, offload optimizer and parameters and activations" },
    { LAYOUT (.data = 2, .offload = SP_OFFLOAD_OPTIMIZER),
      "data 2, zero 1, recompute none, offload optimizer" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpArchitecture) arch = small_model (cases[i].model);
    g_autofree char *text = sp_layout_describe (&cases[i].layout, arch);
    g_assert_cmpstr (text, ==, cases[i].text);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/layout/degrees", test_degrees);
  g_test_add_func ("/layout/expert-digits", test_expert_digits);
  g_test_add_func ("/layout/groups", test_groups);
  g_test_add_func ("/layout/hybrid-splits", test_hybrid_splits);
  g_test_add_func ("/layout/saturated", test_saturated);
  g_test_add_func ("/layout/message-length", test_message_length);
  g_test_add_func ("/layout/describe", test_describe);
  return g_test_run ();
}
