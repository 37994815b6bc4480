/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "models/inputs/run-files/run-file.h"

/* Run files that are commands of a shell: whose they are, what their launchers start, and words of programs that a
 * scenario has none for. */

/* A command as it stands in a shell, whatever is before the script. */
static void
test_command (void)
{
  static const char *const before[] = {
    "",
    "pretrain_gpt.py ",
    "# mine\nA=1 torchrun --nproc-per-node=8 --nnodes 2 \\\n  pretrain_gpt.py \\\n",
    "A='x y' B=2 python -u pretrain_gpt.py\\\n  ",
    "+ torchrun --nproc_per_node 8 pretrain_gpt.py ",
  };
  for (guint i = 0; i < G_N_ELEMENTS (before); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strconcat (before[i], "--num-layers 8 \\\r\n --hidden-size=\"64\"\n", NULL);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", text, strlen (text), &error);
    g_assert_no_error (error);
    g_assert_cmpstr (sp_run_file_format (file), ==, "megatron");
    g_assert_cmpstr (sp_run_file_fact (file, "model.layers"), ==, "8");
    g_assert_cmpstr (sp_run_file_fact (file, "model.hidden"), ==, "64");
    g_assert_cmpuint (sp_run_file_notes (file)->len, ==, 0);
  }
  static const char titan[] = "title = \"a --flag in quotes\"\n[training]\nseq_len = 8 # --num-layers 4\n";
  g_autoptr (SpRunFile) file = sp_run_file_parse ("t", titan, strlen (titan), NULL);
  g_assert_cmpstr (sp_run_file_format (file), ==, "torchtitan");
}

/* The command says whose flags they are, however few there are; what is no launcher's stays a value. */
static void
test_commands (void)
{
  static const struct {
    const char *text, *format, *fact, *value;
  } commands[] = {
    { "swift sft --model Qwen/Qwen2.5-7B\n", "swift", "file.model", "Qwen/Qwen2.5-7B" },
    { "NPROC_PER_NODE=4 \\\nswift sft --model Qwen/Qwen2.5-7B\n", "swift", "file.gpus-per-node", "4" },
    { "export NNODES=2\nexport NPROC_PER_NODE=8\n/opt/bin/swift rlhf --rlhf_type dpo --model a/b\n", "swift",
      "file.nodes", "2" },
    { "#!/bin/bash\nNPROC_PER_NODE=8\nswift sft --model a/b --external_plugins plugin.py --max_length 64\n", "swift",
      "run.sequence", "64" },
    { "megatron sft --model a/b\n", "megatron-swift", "run.global-batch", "16" },
    { "CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 megatron pt --model a/b --max_length 64\n", "megatron-swift",
      "file.gpus-per-node", "2" },
    { "llamafactory-cli train --stage sft --model_name_or_path a/b --bf16 True --cutoff_len 64\n", "llamafactory",
      "run.precision", "bf16" },
    { "lmf train --model_name_or_path a/b --per_device_train_batch_size 2\n", "llamafactory", "run.micro-batch", "2" },
    { "torchrun --nproc_per_node 8 src/train.py --finetuning_type full --bf16\n", "llamafactory", "file.gpus-per-node",
      "8" },
    { "python3 -m verl.trainer.main_ppo data.max_response_length=64\n", "verl", "file.response", "64" },
    { "python -m torch.distributed.launch --nproc_per_node 2 pretrain_gpt.py --num-layers 4\n", "megatron",
      "file.gpus-per-node", "2" },
    { "torchrun --nproc-per-node=gpu --nnodes=1:4 pretrain_gpt.py --num-layers 4\n", "megatron", "model.layers", "4" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_autoptr (GError) error = NULL;
    g_test_message ("%s", commands[i].text);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", commands[i].text, strlen (commands[i].text), &error);
    g_assert_no_error (error);
    g_assert_cmpstr (sp_run_file_format (file), ==, commands[i].format);
    g_assert_cmpstr (sp_run_file_fact (file, commands[i].fact), ==, commands[i].value);
  }
}

/* Words that a program takes and a scenario has none for are notes. */
static void
test_other_words (void)
{
  static const char *const texts[] = {
    "swift sft --model a/b --deepspeed ./ds.json\n",
    "swift sft --model a/b --train_type adalora\n",
    "swift sft --model a/b --target_modules q_proj v_proj\n",
    "swift sft --model a/b --optim galore_adamw\n",
    "model_name_or_path: a/b\nlora_target: q_proj,v_proj\n",
    "model_name_or_path: a/b\nstage: dpo\n",
    "actor_rollout_ref.actor.strategy=veomni\n",
    "--num-layers 4 --cp-comm-type p2p a2a\n",
    "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Lamb\"}}",
    "[training]\nseq_len = 1024\n[parallelism]\npipeline_parallel_schedule = \"ZBVZeroBubble\"\n",
  };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", texts[i], strlen (texts[i]), &error);
    g_assert_no_error (error);
    gboolean noted = FALSE;
    for (guint n = 0; n < sp_run_file_notes (file)->len; n++)
      noted |= strstr (sp_run_file_notes (file)->pdata[n], "seqpar maps ") != NULL;
    g_test_message ("%s", texts[i]);
    g_assert_true (noted);
  }
}

/* Without its steps ms-swift makes batches of 16: of 8 GPUs with one sequence each 2 steps, of 32 one. */
static void
test_accumulation (void)
{
  static const struct {
    const char *flags, *cluster;
    gint32 batch;
  } cases[] = {
    { "", "a100-1x8", 16 },
    { "--per_device_train_batch_size 3", "a100-1x8", 24 },
    { "--sequence_parallel_size 4", "a100-1x8", 4 }, /* two steps of two groups */
    { "", "a100-8x8", 64 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strconcat ("swift sft --model Qwen/Qwen2.5-7B --max_length 4096 ", cases[i].flags, NULL);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", text, strlen (text), &error);
    g_assert_no_error (error);
    const SpRunGiven given = { NULL, cases[i].cluster, NULL };
    g_autoptr (SpScenario) s = sp_run_file_load (file, &given, &error);
    g_assert_no_error (error);
    g_assert_cmpint (s->run.global_batch, ==, cases[i].batch);
  }
}

/* Processes of the launcher beside the cluster's GPUs: a note where they differ, and only there. */
static void
test_launch (void)
{
  static const struct {
    const char *text;
    gboolean noted;
  } cases[] = {
    { "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --max_length 4096", FALSE },
    { "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --max_length 4096", TRUE },
    { "NNODES=2 NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --max_length 4096", TRUE },
    { "torchrun --nproc_per_node 2 train.py --finetuning_type full --cutoff_len 4096 --bf16 --model_name_or_path "
      "Qwen/Qwen2.5-7B",
      TRUE },
    { "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.nnodes=2 "
      "trainer.n_gpus_per_node=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
      TRUE },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_test_message ("%s", cases[i].text);
    g_autoptr (SpRunFile) file = sp_run_file_parse ("f", cases[i].text, strlen (cases[i].text), &error);
    g_assert_no_error (error);
    const SpRunGiven given = { NULL, "a100-1x8", NULL };
    g_autoptr (SpScenario) s = sp_run_file_load (file, &given, &error);
    g_assert_no_error (error);
    gboolean noted = FALSE;
    for (guint n = 0; n < sp_run_file_notes (file)->len; n++)
      noted |= g_str_has_prefix (sp_run_file_notes (file)->pdata[n], "note: the launcher starts ");
    g_assert_cmpint (noted, ==, cases[i].noted);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/run-commands/script", test_command);
  g_test_add_func ("/run-commands/programs", test_commands);
  g_test_add_func ("/run-commands/other-words", test_other_words);
  g_test_add_func ("/run-commands/accumulation", test_accumulation);
  g_test_add_func ("/run-commands/launch", test_launch);
  return g_test_run ();
}
