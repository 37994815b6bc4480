/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/refused.h"
#include "tests/shipped.h"

/* Published cases of legality: what other people ran into. G15, G16, G17, G18 and G30 of the reference cases. */

/* heads mod P = 0, and kv mod P = 0 or P mod kv = 0: of 40 / 8 heads 1, 2, 4, 8, 40. The sequence is a multiple of
 * 40, so that tokens divide too: at 64K they would refuse 40. */
static void
test_ulysses_degrees (void)
{
  static const gint32 expected[] = { 1, 2, 4, 8, 40 };
  g_autoptr (SpArchitecture) arch =
      own_model ("layers = 2\nhidden = 5120\nheads = 40\nkv-heads = 8\nffn = 13824\nvocabulary = 152064\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 65600, 1, 1, SP_DTYPE_BF16, TRUE };

  g_autoptr (GArray) degrees = sp_layout_legal_degrees (&layout, arch, framework, &run, SP_AXIS_ULYSSES, 128);
  g_assert_cmpmem (degrees->data, degrees->len * sizeof (gint32), expected, sizeof expected);
  run.sequence = 65536;
  g_autoptr (GArray) fewer = sp_layout_legal_degrees (&layout, arch, framework, &run, SP_AXIS_ULYSSES, 128);
  g_assert_cmpmem (fewer->data, fewer->len * sizeof (gint32), expected, 4 * sizeof (gint32));
}

/* 28 / 4 heads on 8 GPUs: 8 does not divide 28; 4 x ring 2 is the way. */
static void
test_uneven_heads (void)
{
  g_autoptr (SpArchitecture) arch =
      own_model ("layers = 2\nhidden = 3584\nheads = 28\nkv-heads = 4\nffn = 18944\nvocabulary = 152064\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 131072, 1, 1, SP_DTYPE_BF16, TRUE };

  layout.ulysses = 8;
  assert_refused (arch, framework, &layout, &run, 8,
                  WORDS ("rule ulysses-heads", "ulysses = 8", "28", "1, 2, 4 or 28"));
  layout.ulysses = 4;
  layout.ring = 2;
  g_assert_true (sp_layout_check (&layout, arch, framework, &run, 8, NULL));
}

/* Zigzag cuts in 2 x 4 parts: 2999 has none, 3000 = 8 x 375 has. */
static void
test_zigzag_tokens (void)
{
  g_autoptr (SpArchitecture) arch = own_model ("layers = 2\nhidden = 64\nheads = 4\nffn = 64\nvocabulary = 100\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 2999, 1, 1, SP_DTYPE_BF16, TRUE };

  layout.ring = 4;
  assert_refused (arch, framework, &layout, &run, 4, WORDS ("sequence = 2999", "zigzag", "multiple of", "= 8", "3000"));
  run.sequence = 3000;
  g_assert_true (sp_layout_check (&layout, arch, framework, &run, 4, NULL));
}

/* 30 layers in 4 stages: 8, 8, 7, 7, never 28 of them. */
static void
test_stage_split (void)
{
  static const gint32 expected[] = { 0, 8, 16, 23, 30 };
  g_autoptr (SpArchitecture) arch = own_model ("layers = 30\nhidden = 64\nheads = 4\nffn = 64\nvocabulary = 100\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  g_autoptr (SpProgram) program = sp_program_new ();
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 64, 1, 4, SP_DTYPE_BF16, TRUE };

  layout.pipeline = 4;
  write_legal (program, arch, framework, &layout, &run);
  g_assert_cmpint (program->stages, ==, 4);
  g_assert_cmpmem (program->stage_first, 5 * sizeof (gint32), expected, sizeof expected);
  for (guint i = 0; i < 4; i++)
    layout.stage_split[i] = 7;
  assert_refused (arch, framework, &layout, &run, 4, WORDS ("stage-split", "30 layers", "8,8,7,7"));
}

/* Linear layers need their tokens in order. */
static void
test_hybrid_zigzag (void)
{
  g_autoptr (SpArchitecture) arch =
      own_model ("layers = 4\nhidden = 64\nheads = 4\nffn = 64\nvocabulary = 100\nlayer-kinds = linear*3,softmax\n");
  g_autoptr (SpFramework) framework = load_framework ("flash");
  SpLayout layout = SP_LAYOUT_DEFAULT;
  SpRun run = { 1024, 1, 1, SP_DTYPE_BF16, TRUE };

  layout.ring = layout.lasp = 4;
  assert_refused (arch, framework, &layout, &run, 4, WORDS ("zigzag", "linear", "contiguous"));
  layout.token_split = SP_TOKENS_CONTIGUOUS;
  g_assert_true (sp_layout_check (&layout, arch, framework, &run, 4, NULL));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/cases-legality/ulysses-degrees", test_ulysses_degrees);
  g_test_add_func ("/cases-legality/uneven-heads", test_uneven_heads);
  g_test_add_func ("/cases-legality/zigzag-tokens", test_zigzag_tokens);
  g_test_add_func ("/cases-legality/stage-split", test_stage_split);
  g_test_add_func ("/cases-legality/hybrid-zigzag", test_hybrid_zigzag);
  return g_test_run ();
}
