/* SPDX-License-Identifier: Apache-2.0 */
/* config.json as transformers writes it: parts that leave out what their class has, numbers written as floats. */
#include <string.h>

#include "models/inputs/architecture.h"
#include "tests/input-file.h"

static SpArchitecture *
load (const char *name, const char *text)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("config.json", text, -1);
  SpArchitecture *arch = sp_architecture_load (path, &error);
  g_test_message ("%s", name);
  g_assert_no_error (error);
  input_file_remove (path);
  return arch;
}

static gint32
windows (const SpArchitecture *arch)
{
  gint32 n = 0;
  for (gint32 i = 0; i < arch->layers; i++)
    n += (arch->layer_kind[i] & SP_LAYER_WINDOW) != 0;
  return n;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* A part's layer: q and o of `q` features, k and v of `kv`, a gated MLP, and what else it has of `norms`. */
#define LAYER(h, q, kv, ffn, norms) (2LL * (h) * (q) + 2LL * (h) * (kv) + 3LL * (h) * (ffn) + (norms))

/* Published files: google/gemma-3-4b-it and -27b-it, llava-hf/llava-1.5-7b-hf, llava-v1.6-mistral-7b-hf (its window is
 * null: none, not the class's 4096), shortened of what is not read. What each leaves out is its class's, and the
 * parameters are worked out with it: Gemma 3 has four norms a layer and two of a head, and ties its embeddings. */
static const struct {
  const char *name, *text;
  gint64 parameters;
  gint32 heads, kv_heads, head_size, windows, trained;
} parts[] = {
  { "gemma-3-4b",
    "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240,"
    " \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0},"
    " \"sliding_window\": 1024}, \"vision_config\": {\"hidden_size\": 1152}}",
    34 * LAYER (2560, 8 * 256, 4 * 256, 10240, 4 * 2560 + 2 * 256) + 262208LL * 2560 + 2560, 8, 4, 256, 29, 131072 },
  { "gemma-3-27b",
    "{\"model_type\": \"gemma3\", \"text_config\": {\"head_dim\": 128, \"hidden_size\": 5376,"
    " \"intermediate_size\": 21504, \"model_type\": \"gemma3_text\", \"num_attention_heads\": 32,"
    " \"num_hidden_layers\": 62, \"num_key_value_heads\": 16, \"sliding_window\": 1024}}",
    62 * LAYER (5376, 32 * 128, 16 * 128, 21504, 4 * 5376 + 2 * 128) + 262208LL * 5376 + 5376, 32, 16, 128, 52,
    131072 },
  { "llava-1.5-7b",
    "{\"model_type\": \"llava\", \"tie_word_embeddings\": false, \"text_config\": {\"model_type\": \"llama\","
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"vocab_size\": 32064}}",
    32 * LAYER (4096, 4096, 4096, 11008, 2 * 4096) + 2 * 32064LL * 4096 + 4096, 32, 32, 128, 0, 4096 },
  { "llava-1.6-mistral-7b",
    "{\"model_type\": \"llava_next\", \"text_config\": {\"model_type\": \"mistral\", \"intermediate_size\": 14336,"
    " \"max_position_embeddings\": 32768, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05,"
    " \"sliding_window\": null, \"vocab_size\": 32064}}",
    32 * LAYER (4096, 4096, 8 * 128, 14336, 2 * 4096) + 2 * 32064LL * 4096 + 4096, 32, 8, 128, 0, 32768 },
  /* the class's window of 4096 where the key is not there */
  { "mistral-window", "{\"model_type\": \"llava_next\", \"text_config\": {\"model_type\": \"mistral\"}}",
    32 * LAYER (4096, 4096, 8 * 128, 14336, 2 * 4096) + 2 * 32000LL * 4096 + 4096, 32, 8, 128, 32, 131072 },
  /* a part without model_type is of the whole's text class: three layers, all with windows (every sixth has none) */
  { "type-of-whole",
    "{\"model_type\": \"gemma3\", \"text_config\": {\"num_hidden_layers\": 3, \"hidden_size\": 64,"
    " \"intermediate_size\": 96, \"vocab_size\": 100}}",
    3 * LAYER (64, 8 * 256, 4 * 256, 96, 4 * 64 + 2 * 256) + 100 * 64 + 64, 8, 4, 256, 3, 131072 },
};

static void
test_parts (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++) {
    g_autoptr (SpArchitecture) arch = load (parts[i].name, parts[i].text);
    g_assert_cmpint (sp_architecture_parameters (arch), ==, parts[i].parameters);
    g_assert_cmpint (arch->heads, ==, parts[i].heads);
    g_assert_cmpint (arch->kv_heads, ==, parts[i].kv_heads);
    g_assert_cmpint (arch->head_size, ==, parts[i].head_size);
    g_assert_cmpint (windows (arch), ==, parts[i].windows);
    g_assert_cmpint (arch->trained_positions, ==, parts[i].trained);
  }
}

/* What was taken from the class is said, each with its value. */
static void
test_note (void)
{
  g_autoptr (SpArchitecture) arch = load (parts[2].name, parts[2].text);
  g_assert_cmpuint (arch->notes->len, ==, 2);
  g_assert_cmpstr (arch->notes->pdata[1], ==,
                   "text_config leaves out what its class llama has: hidden_size 4096, intermediate_size 11008, "
                   "num_hidden_layers 32, num_attention_heads 32");
}

/* Rotation as version 5 of transformers writes it: 0.5 of heads of 16 features; Gemma 3 has two kinds of layers. */
static void
test_rope (void)
{
  g_autoptr (SpArchitecture) phi =
      load ("phi", "{\"model_type\": \"phi3\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"vocab_size\": 100,"
                   " \"num_attention_heads\": 4, \"intermediate_size\": 96,"
                   " \"rope_parameters\": {\"rope_theta\": 25000.0, \"partial_rotary_factor\": 0.5}}");
  g_assert_cmpfloat (phi->rope_theta, ==, 25000);
  g_assert_cmpint (phi->rotary_size, ==, 8);
  g_autoptr (SpArchitecture) gemma =
      load ("gemma", "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\","
                     " \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 2000000},"
                     " \"sliding_attention\": {\"rope_theta\": 10000}}}}");
  g_assert_cmpfloat (gemma->rope_theta, ==, 2000000);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Whole floats are whole numbers, in lists and objects too. */
static void
test_floats (void)
{
  g_autoptr (SpArchitecture) moe =
      load ("experts", "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 4.0, \"hidden_size\": 16.0,"
                       " \"num_attention_heads\": 4e0, \"head_dim\": 4.0, \"intermediate_size\": 3.2e1,"
                       " \"moe_intermediate_size\": 8.0, \"num_experts\": 4.0, \"num_experts_per_tok\": 2.0,"
                       " \"decoder_sparse_step\": 2.0, \"mlp_only_layers\": [3.0], \"vocab_size\": 100.0}");
  /* as "qwen-experts" of test-architecture.c, which says the same in integers */
  g_assert_cmpint (sp_architecture_parameters (moe), ==, 4 * (768 + 256 + 8 + 32) + 3 * 1536 + (64 + 1536) + 3216);
  g_autoptr (SpArchitecture) hybrid =
      load ("hybrid", "{\"model_type\": \"gla\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_heads\": 1.0,"
                      " \"intermediate_size\": 32, \"vocab_size\": 100,"
                      " \"attn\": {\"layers\": [1.0], \"num_heads\": 2.0}}");
  g_assert_cmpint (hybrid->layer_kind[0], ==, SP_LAYER_LINEAR);
  g_assert_cmpint (hybrid->layer_kind[1], ==, SP_LAYER_SOFTMAX);
  g_assert_cmpint (hybrid->heads, ==, 2);
}

/* Of flash-linear-attention: gated MLPs have 2/3 of the ratio, up to a multiple of 256: 64 x 4 x 2 / 3 = 170.7 and
 * 768 x 3.5 x 2 / 3 = 1792 = 7 x 256. RWKV has the ratio itself, up to a multiple of 32: 4 in 7, 3.5 in 6:
 * 96 x 3.5 = 336 goes up to 352. */
static void
test_ratios (void)
{
  static const struct {
    const char *type, *ratio;
    gint32 hidden, ffn;
  } rows[] = {
    { "gla", "4.0", 64, 256 },    { "gla", "3.5", 768, 1792 },   { "rwkv7", "4.0", 64, 256 },
    { "rwkv7", "null", 64, 256 }, { "rwkv7", "2.0", 64, 128 },   { "rwkv6", "null", 64, 224 },
    { "rwkv6", "3.5", 96, 352 },  { "delta_net", "4", 64, 256 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *text = g_strdup_printf (
        "{\"model_type\": \"%s\", \"hidden_ratio\": %s, \"hidden_size\": %d, \"num_hidden_layers\": 2, "
        "\"num_heads\": 2, \"head_dim\": %d, \"vocab_size\": 100}",
        rows[i].type, rows[i].ratio, rows[i].hidden, rows[i].hidden / 2);
    g_autoptr (SpArchitecture) arch = load (rows[i].type, text);
    g_assert_cmpint (arch->ffn, ==, rows[i].ffn);
  }
}

/* A window that is off has a size all the same: Qwen1.5-MoE-A2.7B's file. And heads of qwen3_moe have hidden / heads
 * features where the file does not say. */
static void
test_experts (void)
{
  g_autoptr (SpArchitecture) arch =
      load ("window off", "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 16,"
                          " \"num_attention_heads\": 4, \"intermediate_size\": 32, \"moe_intermediate_size\": 8,"
                          " \"num_experts\": 4, \"num_experts_per_tok\": 2, \"shared_expert_intermediate_size\": 8,"
                          " \"sliding_window\": 32768, \"use_sliding_window\": false, \"vocab_size\": 100}");
  g_assert_cmpint (windows (arch), ==, 0);
  g_autoptr (SpArchitecture) qwen3 =
      load ("head size", "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
                         " \"num_attention_heads\": 4, \"intermediate_size\": 32, \"moe_intermediate_size\": 8,"
                         " \"num_experts\": 4, \"num_experts_per_tok\": 2, \"vocab_size\": 100}");
  g_assert_cmpint (qwen3->head_size, ==, 16);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static const struct Bad {
  const char *name, *text;
  const char *words[5];
  const char *not_said;
} bad[] = {
  /* no default is known of this type: the object is named */
  { "part",
    "{\"model_type\": \"kimi_vl\", \"text_config\": {\"model_type\": \"kimi_linear\"}}",
    { ": text_config.num_hidden_layers: missing, expected a whole number" },
    "the class has" },
  { "part-value",
    "{\"model_type\": \"x\", \"llm_config\": {\"model_type\": \"qwen2\", \"vocab_size\": -1}}",
    { ": llm_config.vocab_size: -1, expected" },
    NULL },
  { "part-of-part",
    "{\"model_type\": \"x\", \"text_config\": {\"model_type\": \"gla\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
    " \"attn\": {\"layers\": [7]}}}",
    { ": text_config.attn.layers: [7], expected layers from 0 to 1" },
    NULL },
  { "part-type",
    "{\"model_type\": \"llava\", \"text_config\": {\"hidden_size\": 64}}",
    { ": text_config.model_type: missing, expected one of" },
    NULL },
  /* a whole file is asked, and told what the class has */
  { "whole",
    "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4,"
    " \"intermediate_size\": 96}",
    { ": vocab_size: missing, expected", "no default is assumed (the class has 262208)" },
    NULL },
  { "fraction",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2.5}",
    { ": num_hidden_layers: 2.5, expected a whole number" },
    NULL },
  { "state-spaces",
    "{\"d_model\": 2560, \"n_layer\": 64, \"vocab_size\": 50277, \"ssm_cfg\": {\"layer\": \"Mamba2\"}}",
    { ": ssm_cfg: {\"layer\":\"Mamba2\"}, expected", "mamba2", "-hf" },
    NULL },
  { "moe-far",
    "{\"model_type\": \"phimoe\"}",
    { ": model_type: \"phimoe\"", "; of experts mixtral, " },
    "the nearest is" },
  { "moe-near", "{\"model_type\": \"qwen4_moe\"}", { "the nearest is qwen2_moe" }, NULL },
  { "dense-near", "{\"model_type\": \"qwen4\"}", { "the nearest is qwen2" }, "of experts" },
};

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  char *path = input_file_new ("config.json", row->text, -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, &error);
  g_assert_null (arch);
  input_file_assert_error (error, path, row->words);
  if (row->not_said != NULL)
    g_assert_null (strstr (error->message, row->not_said));
  input_file_remove (path);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/config-parts/parts", test_parts);
  g_test_add_func ("/config-parts/note", test_note);
  g_test_add_func ("/config-parts/rope", test_rope);
  g_test_add_func ("/config-parts/floats", test_floats);
  g_test_add_func ("/config-parts/ratios", test_ratios);
  g_test_add_func ("/config-parts/experts", test_experts);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/config-parts/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  return g_test_run ();
}
