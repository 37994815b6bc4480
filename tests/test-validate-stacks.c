/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/cost.h"
#include "tests/cli-run.h"
#include "tests/shipped.h"

/* Runs of PyTorch's and DeepSpeed's stacks that others published: what their sets must show holds, and FlashAttention-2
 * is priced as what it reaches where another library is quicker. */

static void
test_bounds (void)
{
  static const char *const sets[] = { "llm-foundry", "torchtitan", "xtuner",          "easycontext",
                                      "ms-swift",    "alst",       "megatron-bridge", "ring-flash-attention" };

  for (guint i = 0; i < G_N_ELEMENTS (sets); i++) {
    g_auto (Run) run = run_args ((const char *const[]){ "validate", sets[i], "--strict", NULL });
    g_test_message ("%s%s", run.out, run.err);
    g_assert_cmpint (run.status, ==, 0);
    g_assert_nonnull (strstr (run.out, sets[i]));
  }
}

/* H100: 343 TFLOP/s of FlashAttention-2 beside 631 of cuDNN; A100 has one library, so that the word changes nothing. */
static void
test_library (void)
{
  static const struct {
    const char *cluster;
    double forward, backward; /* of the time without the word */
  } rows[] = { { "h100-1x8", 0.638 / 0.347, 0.557 / 0.322 }, { "a100-1x8", 1, 1 } };
  g_autoptr (SpFramework) framework = load_framework ("flash");

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (SpCluster) cluster = load_cluster (rows[i].cluster);
    SpFramework flash = *framework;
    SpCost quickest, named;
    flash.attention_library = (char *) "flash";
    sp_cost_init (&quickest, cluster, framework);
    sp_cost_init (&named, cluster, &flash);
    g_assert_cmpfloat_with_epsilon (named.s_per_flop[SP_OP_ATTENTION] / quickest.s_per_flop[SP_OP_ATTENTION],
                                    rows[i].forward, 0.02);
    g_assert_cmpfloat_with_epsilon (named.s_per_flop[SP_OP_ATTENTION_BWD] / quickest.s_per_flop[SP_OP_ATTENTION_BWD],
                                    rows[i].backward, 0.02);
  }
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/validate-stacks/bounds", test_bounds);
  g_test_add_func ("/validate-stacks/library", test_library);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
