/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/run-files/formats.h"
#include "tests/input-file.h"

/* LLaMA-Factory for its Megatron backend, and arguments of ms-swift in a file of their own. */

static SpScenario *
load_text (const char *text, GError **error)
{
  const SpRunGiven given = { .cluster = "a800-1x8" };
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run", text, strlen (text), error);

  return file != NULL ? sp_run_file_load (file, &given, error) : NULL;
}

/* Keys of LLaMA-Factory's Megatron backend: its recomputation and sums, and no word that is unknown. */
static void
test_mcore (void)
{
  static const char text[] = "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 8192\nper_device_train_batch_size: 1\n"
                             "tensor_model_parallel_size: 2\nbf16: true\nfinetuning_type: full\n";
  static const char more[] =
      "recompute_granularity: full\nrecompute_method: block\nrecompute_num_layers: 3\n"
      "overlap_p2p_comm: true\nvariable_seq_lengths: false\nmoe_grouped_gemm: true\n"
      "accumulate_allreduce_grads_in_fp32: true\ndelay_grad_reduce: true\nfp8_recipe: blockwise\n"
      "ddp_bucket_size: 100\noptimizer: adam\nsequence_packing: true\nmtp_num_layers: 1\n"
      "account_for_loss_in_pipeline_split: true\nadditional_configs: more.json\n"
      "transformer_impl: transformer_engine\noptimizer_cpu_offload: true\n";
  g_autofree char *both = g_strconcat (text, more, NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpScenario) none = load_text (text, &error);

  g_assert_no_error (error);
  g_assert_cmpint (none->layout.recompute, ==, SP_RECOMPUTE_NONE);
  g_assert_cmpint (none->layout.gradient_dtype, ==, SP_DTYPE_FP32);
  g_autoptr (SpScenario) first = load_text (both, &error);
  g_assert_no_error (error);
  g_assert_cmpint (first->layout.recompute, ==, SP_RECOMPUTE_FULL);
  g_assert_cmpint (first->layout.recompute_first, ==, 3);
  g_autoptr (SpRunFile) file = sp_run_file_parse ("run", both, strlen (both), &error);
  const GPtrArray *notes = sp_run_file_notes (file);
  for (guint i = 0; i < notes->len; i++)
    g_assert_null (strstr (notes->pdata[i], "unknown"));
}

/* ms-swift's --config file by itself, and behind a command, whose flags it comes after. */
static void
test_swift_config (void)
{
  static const char yaml[] = "model: Qwen/Qwen2.5-7B-Instruct\ntrain_type: full\ntorch_dtype: bfloat16\n"
                             "max_length: 65536\nper_device_train_batch_size: 1\nparallel:\n"
                             "  sequence_parallel_size: 8\ndeepspeed: zero3\ndataset:\n  - a.jsonl\n";
  g_autoptr (GError) error = NULL;
  g_autofree char *config = input_file_new ("sft.yaml", yaml, -1), *folder = g_path_get_dirname (config);
  g_autofree char *run = g_build_filename (folder, "run.sh", NULL);
  static const char command[] = "NPROC_PER_NODE=8 swift sft --config sft.yaml --max_length 32768\n";
  const SpRunGiven given = { .cluster = "a800-1x8" };
  g_autoptr (SpScenario) alone = load_text (yaml, &error);

  g_assert_no_error (error);
  g_assert_cmpint (alone->layout.ulysses, ==, 4);
  g_assert_cmpint (alone->layout.ring, ==, 2);
  g_autoptr (SpRunFile) file = sp_run_file_read (run, command, strlen (command), &error);
  g_assert_no_error (error);
  g_autoptr (SpScenario) behind = sp_run_file_load (file, &given, &error);
  g_assert_no_error (error);
  g_assert_cmpint (behind->run.sequence, ==, 65536);
  g_assert_cmpint (behind->layout.zero, ==, 3);
  input_file_remove (g_steal_pointer (&config));
  g_assert_null (sp_run_file_read (run, command, strlen (command), &error));
  g_assert_nonnull (strstr (error->message, "--config: "));
  g_clear_error (&error);
  g_autoptr (SpScenario) bare = load_text ("swift sft --config\n", &error);
  g_assert_null (bare);
  g_assert_nonnull (strstr (error->message, "--config: expected --config FILE.yaml"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/trainer-backends/mcore", test_mcore);
  g_test_add_func ("/trainer-backends/swift-config", test_swift_config);
  return g_test_run ();
}
