/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/architecture.h"
#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"
#include "tests/input-file.h"

static SpArchitecture *
load_shipped (const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (sp_data_dir (), "models", name, NULL);
  SpArchitecture *arch = sp_architecture_load (path, &error);
  g_assert_no_error (error);
  return arch;
}

/* Published totals; the others worked out by hand:
 *   gpt2-large        36 (12 h^2 + 13 h) + (50257 + 1024) h + 2 h, h = 1280
 *   transnormer-385m  24 (5 h^2 + 3 h 2816) + 2 64000 h, h = 1024; no norm has a gain
 *   tnl-1b            16 (5 h^2 + 3 h 5632) + 2 64000 h, h = 2048
 *   linear-llama3-1b  16 (5 h^2 + 3 h 8192 + 2 h) + 2 128256 h + h, h = 2048
 *   megatron          L (12 h^2 + 13 h) + (51200 + 2048) h + 2 h
 *   falcon-7b         32 ((4544 (71 + 2) 64 + 4544^2 + 8 4544^2) + 2 4544) + 65024 4544 + 2 4544, tied
 *   retnet-1.3b       24 (h (2 h + 3 2 h) + 512 + 3 h 2816 + 2 h) + 2 32000 h + h, h = 2048
 *   rwkv7-1.5b        24 (4 h^2 + 1024 h + 10 h + 2 h 4 h + 4 h) + 2 65536 h + 2 h, h = 2048 (1.53 billion published)
 *   minimax           published 456 billion, 45.9 active without the two embeddings; kimi-k2 1.04 trillion and 32 billion;
 *                     kimi-linear 48 and 3 billion; gpt-oss-20b 20.9 billion, 3.6 active without the input embedding
 * State: layers x heads x key size x value size x 4 bytes. */
static const struct {
  const char *name;
  gint64 parameters, state_bytes;
  gint32 softmax, linear;
  gint64 active; /* 0: all */
} shipped[] = {
  { "mistral-7b.json", 7241732096, 0, 32, 0 },
  { "mixtral-8x7b.json", 46702792704, 0, 32, 0, 12879925248 },
  { "qwen2.5-7b.json", 7615616512, 0, 28, 0 },
  { "qwen2.5-14b.json", 14770033664, 0, 48, 0 },
  { "qwen3-8b.json", 8190735360, 0, 36, 0 },
  { "qwen3-30b-a3b.json", 30532122624, 0, 48, 0, 3353032704 },
  { "gemma-2-9b.json", 9241705984, 0, 42, 0 },
  { "phi-3-mini-4k.json", 3821079552, 0, 32, 0 },
  { "pythia-6.9b.json", 6857302016, 0, 32, 0 },
  { "falcon-7b.json", 6921720704, 0, 32, 0 },
  { "opt-66b.json", 65719701504, 0, 64, 0 },
  { "bert-base.json", 109514298, 0, 12, 0 },
  { "gpt-oss-120b.json", 116829156672, 0, 36, 0, 5711982912 },
  { "gpt-oss-20b.json", 20914757184, 0, 24, 0, 4187440704 },
  { "deepseek-v3.json", 671026404352, 0, 61, 0, 37552282624 },
  { "kimi-k2.json", 1026408209408, 0, 61, 0, 32861477888 },
  { "transformer-7b.json", 7241732096, 0, 32, 0 },
  { "gla-7b.json", 6741635072, 32 * 16 * 128 * 256 * 4, 0, 32 },
  { "mamba2-1b.json", 1371839488, 48 * 64 * 128 * 64 * 4, 0, 48 },
  { "retnet-1.3b.json", 1351727104, 24 * 8 * 256 * 512 * 4, 0, 24 },
  { "rwkv7-1.5b.json", 1527418880, 24 * 32 * 64 * 64 * 4, 0, 24 },
  { "minimax-text-01.json", 456089655296, 70 * 64 * 128 * 128 * 4, 10, 70, 48403306496 },
  { "jamba-v0.1.json", 51570323328, 28 * 8192 * 16 * 4, 4, 28, 12110311296 },
  { "qwen3-next-80b-a3b.json", 79674391296, 36 * 32 * 128 * 128 * 4, 12, 36, 3874929408 },
  { "kimi-linear-48b-a3b.json", 49122675072, 20 * 32 * 128 * 128 * 4, 7, 20, 3484453248 },
  { "llama-3.1-8b.json", 8030261248, 0, 32, 0 },
  { "llama-3.1-70b.json", 70553706496, 0, 80, 0 },
  { "gpt2-large.json", 774030080, 0, 36, 0 },
  { "transnormerllm-385m.json", 464519168, 24 * 8 * 128 * 128 * 4, 0, 24 },
  { "tnl-1b.ini", 1151336448, 16 * 16 * 128 * 128 * 4, 0, 16 },
  { "linear-llama3-1b.ini", 1666254848, 16 * 16 * 128 * 128 * 4, 0, 16 },
  { "megatron-22b.ini", 22074273792, 0, 48, 0 },
  { "megatron-175b.ini", 174615846912, 0, 96, 0 },
};

static void
test_shipped (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (shipped); i++) {
    g_autoptr (SpArchitecture) arch = load_shipped (shipped[i].name);
    g_test_message ("%s", shipped[i].name);
    g_assert_cmpint (sp_architecture_parameters (arch), ==, shipped[i].parameters);
    g_assert_cmpint (sp_architecture_active_parameters (arch), ==,
                     shipped[i].active > 0 ? shipped[i].active : shipped[i].parameters);
    g_assert_cmpint (sp_architecture_state_bytes (arch), ==, shipped[i].state_bytes);
    g_assert_cmpint (sp_architecture_count (arch, SP_LAYER_SOFTMAX), ==, shipped[i].softmax);
    g_assert_cmpint (sp_architecture_count (arch, SP_LAYER_LINEAR), ==, shipped[i].linear);
    g_assert_true (g_str_has_prefix (shipped[i].name, arch->name));
  }
}

static void
test_all_shipped (void)
{
  g_autofree char *folder = g_build_filename (sp_data_dir (), "models", NULL);
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  g_assert_nonnull (dir);
  for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
    g_autoptr (SpArchitecture) arch = load_shipped (name);
    g_assert_cmpint (sp_architecture_parameters (arch), >, 0);
  }
}

/* LLaMA 3.1 8B, a layer: qkv 4096 x 48 x 128, projection 4096^2, MLP 3 x 4096 x 14336; two norms of 4096. */
static void
test_llama (void)
{
  g_autoptr (SpArchitecture) arch = load_shipped ("llama-3.1-8b.json");
  gint64 matmul = 4096 * 48 * 128 + 4096 * 4096 + 3 * 4096 * 14336;
  g_assert_cmpint (sp_architecture_layer_matmul_parameters (arch, SP_LAYER_SOFTMAX), ==, matmul);
  g_assert_cmpint (sp_architecture_layer_parameters (arch, SP_LAYER_SOFTMAX), ==, matmul + 2 * 4096);
  g_assert_cmpint (arch->kv_heads, ==, 8);
  g_assert_cmpint (arch->head_size, ==, 128);
  g_assert_cmpint (arch->trained_positions, ==, 131072);
  g_assert_cmpint (arch->positions, ==, 0);
  g_assert_true (arch->rotary && !arch->tied && !arch->qkv_bias);
  g_assert_cmpfloat (arch->rope_theta, ==, 500000);
  g_assert_cmpuint (arch->notes->len, ==, 0);
}

/* GPT-2's layer: 12 h^2 in matrices, 3h + h + 4h + h of biases, two norms of 2h. */
static void
test_gpt2 (void)
{
  g_autoptr (SpArchitecture) arch = load_shipped ("gpt2-large.json");
  gint64 h = 1280;
  g_assert_cmpint (sp_architecture_layer_matmul_parameters (arch, SP_LAYER_SOFTMAX), ==, 12 * h * h);
  g_assert_cmpint (sp_architecture_layer_parameters (arch, SP_LAYER_SOFTMAX), ==, 12 * h * h + 13 * h);
  g_assert_true (arch->tied && arch->qkv_bias && arch->projection_bias && arch->mlp_bias && !arch->rotary);
  g_assert_cmpint (arch->ffn, ==, 5120);
  g_assert_cmpint (arch->positions, ==, 1024);
  g_assert_cmpfloat (arch->dropout, ==, 0.1);
  g_assert_cmpuint (arch->notes->len, ==, 0);
}

static void
test_transnormer (void)
{
  g_autoptr (SpArchitecture) arch = load_shipped ("transnormerllm-385m.json");
  g_assert_cmpint (arch->norm, ==, SP_NORM_RMS_NO_GAIN);
  g_assert_cmpint (arch->mlp, ==, SP_MLP_LINEAR_GLU);
  g_assert_true (!arch->rotary && !arch->tied);
  g_assert_cmpuint (arch->notes->len, ==, 1);
  g_assert_nonnull (strstr (arch->notes->pdata[0], "untied"));
}

/* --- small files -------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char llama[] = "{\n"
                            "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                            "  \"model_type\": \"llama\",\n"
                            "  \"vocab_size\": 100,\n"
                            "  \"num_hidden_layers\": 2,\n"
                            "  \"hidden_size\": 64,\n"
                            "  \"num_attention_heads\": 8,\n"
                            "  \"num_key_value_heads\": 2,\n"
                            "  \"intermediate_size\": 96,\n"
                            "  \"hidden_act\": \"silu\",\n"
                            "  \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"},\n"
                            "  \"torch_dtype\": \"bfloat16\",\n"
                            "  \"sliding_window\": null,\n"
                            "  \"rms_norm_eps\": 1e-05\n"
                            "}\n";

static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_layer\": 2, \"n_embd\": 64,\n"
                           " \"n_head\": 8, \"n_positions\": 32, \"n_inner\": 128, \"activation_function\": \"gelu_new\",\n"
                           " \"attn_pdrop\": 0.0, \"resid_pdrop\": 0.2, \"tie_word_embeddings\": false}\n";

static const char transnormer[] = "{\"model_type\": \"transnormer\", \"vocab_size\": 100, \"decoder_layers\": 2,\n"
                                  " \"decoder_embed_dim\": 64, \"decoder_attention_heads\": 8, \"hidden_dim\": 64,\n"
                                  " \"glu_dim\": 96, \"norm_type\": \"simplermsnorm\", \"linear_act_fun\": \"silu\",\n"
                                  " \"bias\": false, \"linear_use_lrpe_list\": [0], \"tie_word_embeddings\": true}\n";
/* clang-format on */

static const char own[] = "[model]\n"
                          "name = hybrid\n"
                          "layers = 8\n"
                          "hidden = 64\n"
                          "heads = 8\n"
                          "ffn = 96\n"
                          "vocabulary = 100\n"
                          "trained-positions = 4K\n"
                          "norm = layer\n"
                          "mlp = gelu\n"
                          "mlp-bias = true\n"
                          "layer-kinds = linear*3,softmax\n";

static SpArchitecture *
load_text (const char *text, const char *name)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new (name, text, -1);
  SpArchitecture *arch = sp_architecture_load (path, &error);
  g_assert_no_error (error);
  input_file_remove (path);
  return arch;
}

static void
test_small (void)
{
  g_autoptr (SpArchitecture) a = load_text (llama, "tiny.model.json");
  g_assert_cmpstr (a->name, ==, "tiny.model");
  g_assert_cmpstr (a->family, ==, "llama");
  g_assert_cmpint (sp_architecture_parameters (a), ==,
                   2 * 100 * 64 + 64 + 2 * (64 * 12 * 8 + 64 * 64 + 3 * 64 * 96 + 2 * 64));

  g_autoptr (SpArchitecture) b = load_text (gpt2, "g.json");
  g_assert_false (b->tied);
  g_assert_cmpint (b->ffn, ==, 128);
  g_assert_cmpfloat (b->dropout, ==, 0.2);
  g_assert_cmpuint (b->notes->len, ==, 1);
  g_assert_nonnull (strstr (b->notes->pdata[0], "resid_pdrop = 0.2"));

  g_autoptr (SpArchitecture) c = load_text (transnormer, "t.json");
  g_assert_true (c->tied);
  g_assert_cmpuint (c->notes->len, ==, 1);
  g_assert_nonnull (strstr (c->notes->pdata[0], "linear_use_lrpe_list"));
}

/* Biases of the MLP ffn + hidden, layer norms 2 x 2 hidden a layer; qkv 3 or qkvu 4 squares, projection one. */
static void
test_own (void)
{
  g_autoptr (SpArchitecture) arch = load_text (own, "h.ini");
  g_assert_cmpstr (arch->name, ==, "hybrid");
  g_assert_cmpint (sp_architecture_count (arch, SP_LAYER_LINEAR), ==, 6);
  for (gint32 i = 0; i < 8; i++)
    g_assert_cmpint (arch->layer_kind[i], ==, i % 4 == 3 ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR);
  gint64 both = 2 * 64 * 96 + 96 + 64 + 4 * 64;
  g_assert_cmpint (sp_architecture_layer_parameters (arch, SP_LAYER_SOFTMAX), ==, 4 * 64 * 64 + both);
  g_assert_cmpint (sp_architecture_layer_parameters (arch, SP_LAYER_LINEAR), ==, 5 * 64 * 64 + both);
  g_assert_cmpint (sp_architecture_state_bytes (arch), ==, 6 * 8 * 8 * 8 * 4);
  g_assert_cmpint (arch->trained_positions, ==, 4096);
  g_assert_true (arch->rotary);
}

/* --- names that changed, parts, lists ----------------------------------------------------------------------------- */

/* A small model of each form: what its file says and the parameters, worked out by hand. */
static const struct {
  const char *name, *text;
  gint64 parameters;
  gint32 softmax, linear, experts, windows;
} forms[] = {
  /* RefinedWebModel: 2 (16 (4 + 2) 4 + 16^2 + 8 16^2 + 2 16) + 100 16 + 2 16, one K/V head, tied */
  { "falcon-old",
    "{\"model_type\": \"RefinedWebModel\", \"n_layer\": 2, \"n_head\": 4, \"hidden_size\": 16, \"vocab_size\": 100,"
    " \"multi_query\": true, \"parallel_attn\": true, \"bias\": false, \"alibi\": false}",
    2 * (16 * 6 * 4 + 9 * 256 + 32) + 1632, 2, 0, 0, 0 },
  /* RefinedWeb: two K/V heads, two norms a layer */
  { "falcon-40-old",
    "{\"model_type\": \"RefinedWeb\", \"n_layer\": 2, \"n_head\": 4, \"n_head_kv\": 2, \"hidden_size\": 16,"
    " \"vocab_size\": 100, \"bias\": false, \"alibi\": false}",
    2 * (16 * 8 * 4 + 9 * 256 + 64) + 1632, 2, 0, 0, 0 },
  /* BERT without model_type: 2 (4 (16^2 + 16) + 2 16 32 + 32 + 16 + 4 16) + (100 + 8 + 2) 16 + 32 + 16^2 + 16 + 32 + 100 */
  { "bert-old",
    "{\"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, \"intermediate_size\": 32,"
    " \"vocab_size\": 100, \"max_position_embeddings\": 8, \"type_vocab_size\": 2, \"hidden_act\": \"gelu\"}",
    2 * (4 * 272 + 1024 + 48 + 64) + 1760 + 32 + 256 + 16 + 32 + 100, 2, 0, 0, 0 },
  /* the text part of two, tied from outside: 2 (16 (4 + 2 4) 4 + 16^2 + 3 16 32 + 32) + 100 16 + 16 */
  { "parts",
    "{\"model_type\": \"llava\", \"tie_word_embeddings\": true, \"vision_config\": {}, \"text_config\": {"
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4,"
    " \"intermediate_size\": 32, \"vocab_size\": 100}}",
    2 * (768 + 256 + 1536 + 32) + 1616, 2, 0, 0, 0 },
  /* a window that a flag turns on, from the second layer on */
  { "qwen-window",
    "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 3, \"hidden_size\": 16, \"num_attention_heads\": 4,"
    " \"intermediate_size\": 32, \"vocab_size\": 100, \"use_sliding_window\": true, \"sliding_window\": 8,"
    " \"max_window_layers\": 1}",
    3 * (768 + 48 + 256 + 1536 + 32) + 3216, 3, 0, 0, 2 },
  { "qwen-no-window",
    "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 3, \"hidden_size\": 16, \"num_attention_heads\": 4,"
    " \"intermediate_size\": 32, \"vocab_size\": 100, \"use_sliding_window\": false, \"sliding_window\": 8}",
    3 * (768 + 48 + 256 + 1536 + 32) + 3216, 3, 0, 0, 0 },
  /* experts in every second layer, the fourth dense again: router 4 16, experts 4 3 16 8 */
  { "qwen-experts",
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 4, \"hidden_size\": 16, \"num_attention_heads\": 4,"
    " \"head_dim\": 4, \"intermediate_size\": 32, \"moe_intermediate_size\": 8, \"num_experts\": 4,"
    " \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3], \"vocab_size\": 100}",
    4 * (768 + 256 + 8 + 32) + 3 * 1536 + (64 + 1536) + 3216, 4, 0, 1, 0 },
  /* a hybrid of flash-linear-attention: layer 1 softmax of 2 heads; gla: 16 (2 8 + 3 16) + 16 (16 + 8) + 8 + 16 */
  { "fla-hybrid",
    "{\"model_type\": \"gla\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_heads\": 1, \"intermediate_size\": "
    "32,"
    " \"vocab_size\": 100, \"attn\": {\"layers\": [1], \"num_heads\": 2}}",
    2 * (1536 + 32) + (1024 + 384 + 24) + (768 + 256) + 3216, 1, 1, 0, 0 },
};

static void
test_forms (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (forms); i++) {
    char *path = input_file_new ("form.json", forms[i].text, -1);
    g_autoptr (GError) error = NULL;
    g_autoptr (SpArchitecture) arch = sp_architecture_load (path, &error);
    g_assert_no_error (error);
    g_test_message ("%s", forms[i].name);
    g_assert_cmpint (sp_architecture_parameters (arch), ==, forms[i].parameters);
    g_assert_cmpint (sp_architecture_count (arch, SP_LAYER_SOFTMAX), ==, forms[i].softmax);
    g_assert_cmpint (sp_architecture_count (arch, SP_LAYER_LINEAR), ==, forms[i].linear);
    gint32 experts = 0, windows = 0;
    for (gint32 l = 0; l < arch->layers; l++) {
      experts += (arch->layer_kind[l] & SP_LAYER_EXPERTS) != 0;
      windows += (arch->layer_kind[l] & SP_LAYER_WINDOW) != 0;
    }
    g_assert_cmpint (experts, ==, forms[i].experts);
    g_assert_cmpint (windows, ==, forms[i].windows);
    input_file_remove (path);
  }
}

/* --- what must be refused ----------------------------------------------------------------------------------------- */

/* clang-format off */
static const struct Bad {
  const char *name, *base, *from, *to;
  const char *words[4];
} bad[] = {
  { "vocab-missing", llama, "  \"vocab_size\": 100,\n", "", { ": vocab_size: missing, expected a whole number" } },
  { "string", llama, "\"hidden_size\": 64", "\"hidden_size\": \"64\"", { ": hidden_size: \"64\", expected a whole" } },
  { "float", llama, "\"hidden_size\": 64", "\"hidden_size\": 64.5", { ": hidden_size: 64.5, expected a whole" } },
  { "bool", llama, "\"hidden_size\": 64", "\"hidden_size\": true", { ": hidden_size: true, expected a whole" } },
  { "list", llama, "\"hidden_size\": 64", "\"hidden_size\": [64]", { ": hidden_size: [64], expected a whole" } },
  { "null", llama, "\"hidden_size\": 64", "\"hidden_size\": null", { ": hidden_size: null, expected a whole" } },
  { "negative", llama, "\"hidden_size\": 64", "\"hidden_size\": -64", { ": hidden_size: -64, expected", "from 1 to" } },
  { "zero", llama, "\"hidden_size\": 64", "\"hidden_size\": 0", { ": hidden_size: 0, expected", "from 1 to" } },
  { "huge", llama, "\"hidden_size\": 64", "\"hidden_size\": 99999999999", { ": hidden_size: 9999", "from 1 to" } },
  { "wraps", llama, "\"hidden_size\": 64", "\"hidden_size\": 18446744073709551680",
    { ":6: hidden_size: 1844", "digits" } },
  { "octal", llama, "\"hidden_size\": 64", "\"hidden_size\": 064", { ":6: hidden_size: 064, expected" } },
  { "hexadecimal", llama, "\"hidden_size\": 64", "\"hidden_size\": 0x40", { ":6: hidden_size: 0x40, expected" } },
  { "point", llama, "\"hidden_size\": 64", "\"hidden_size\": 64.", { ":6: hidden_size: 64., expected" } },
  { "exponent", llama, "\"hidden_size\": 64", "\"hidden_size\": 645e-1", { ": hidden_size: 64.5, expected a whole" } },
  { "nan", llama, "\"hidden_size\": 64", "\"hidden_size\": NaN", { ":6:", "NaN" } },
  { "nan-number", llama, "1e-05", "NaN", { ":14:", "NaN" } },
  { "number-huge", llama, "1e-05", "1e999", { ": rms_norm_eps: ", "expected a number from 0 to 1" } },
  { "number-negative", llama, "1e-05", "-1e-05", { ": rms_norm_eps: -", "expected a number" } },
  { "layers", llama, "layers\": 2", "layers\": 4000", { ": num_hidden_layers: 4000, expected", "from 1 to 1024" } },
  { "heads-divide", llama, "heads\": 8", "heads\": 6",
    { ": num_attention_heads: 6, expected a divisor of hidden_size = 64" } },
  { "groups-divide", llama, "value_heads\": 2", "value_heads\": 3",
    { ": num_key_value_heads: 3, expected a divisor of num_attention_heads = 8" } },
  { "odd-head", llama, "\"hidden_act\"", "\"head_dim\": 7, \"hidden_act\"",
    { ": head_dim: 7, expected an even head size" } },
  { "activation", llama, "\"silu\"", "\"relu\"", { ": hidden_act: \"relu\", expected silu" } },
  { "activation-type", llama, "\"silu\"", "3", { ": hidden_act: 3, expected silu" } },
  { "tied-type", llama, "\"hidden_act\"", "\"tie_word_embeddings\": 1, \"hidden_act\"",
    { ": tie_word_embeddings: 1, expected true or false" } },
  { "window", llama, "\"sliding_window\": null", "\"sliding_window\": 4096",
    { ": sliding_window: 4096, expected none", "window attention" } },
  { "experts", llama, "\"hidden_act\"", "\"num_local_experts\": 8, \"hidden_act\"", { ": num_local_experts: 8" } },
  { "layer-types", llama, "\"hidden_act\"",
    "\"layer_types\": [\"full_attention\", \"sliding_attention\"], \"hidden_act\"", { ": layer_types: ", "alone" } },
  { "family", llama, "\"llama\"", "\"lama\"", { ": model_type: \"lama\", expected one of llama, mistral, qwen2",
                                                 "the nearest is llama" } },
  { "family-other", llama, "\"llama\"", "\"qwen4\"", { ": model_type: \"qwen4\"", "the nearest is qwen" } },
  { "diffusion", llama, "\"model_type\": \"llama\"", "\"_class_name\": \"FluxTransformer2DModel\"",
    { ": _class_name: ", "diffusion" } },
  { "family-missing", llama, "  \"model_type\": \"llama\",\n", "", { ": model_type: missing, expected one of llama" } },
  { "family-type", llama, "\"llama\"", "7", { ": model_type: 7, expected one of" } },
  { "parts", llama, "\"model_type\": \"llama\"", "\"model_type\": \"llava\", \"text_config\": {\"a\": 1}",
    { ": text_config.model_type: missing" } },
  { "twice", llama, "\"hidden_act\"", "\"hidden_size\": 128, \"hidden_act\"", { ":10:", "hidden_size", "twice" } },
  { "twice-inside", llama, "\"factor\": 8.0", "\"factor\": 8.0, \"factor\": 8.0", { ":11:", "factor", "twice" } },
  { "escaped", llama, "\"hidden_act\"", "\"hidden\\u005fsize\": 128, \"hidden_act\"", { ":10:", "escapes" } },
  { "comment", llama, "  \"vocab_size\"", "  /* hm */ \"vocab_size\"", { ":4:", "'/'" } },
  { "after", llama, "1e-05\n}", "1e-05\n}\n{}", { ":16:", "no more" } },
  { "no-colon", llama, "\"hidden_size\": 64", "\"hidden_size\" 64", { ":6:" } },
  { "no-comma", llama, "64,", "64", { ":6:" } },
  { "brackets", llama, "{\"factor\": 8.0, \"rope_type\": \"llama3\"}", "{\"factor\": 8.0]", { ":11:" } },
  { "string-open", llama, "\"silu\"", "\"silu", { ":10:", "without an end" } },
  { "gpt2-missing", gpt2, "\"n_positions\": 32, ", "", { ": n_positions: missing" } },
  { "gpt2-heads", gpt2, "\"n_head\": 8", "\"n_head\": 7", { ": n_head: 7, expected a divisor of n_embd = 64" } },
  { "gpt2-activation", gpt2, "gelu_new", "relu", { ": activation_function: \"relu\", expected gelu_new" } },
  { "gpt2-dropout", gpt2, "0.2", "1.5", { ": resid_pdrop: 1.5, expected a number" } },
  { "gpt2-cross", gpt2, "\"n_inner\"", "\"add_cross_attention\": true, \"n_inner\"",
    { ": add_cross_attention: true" } },
  { "tnl-width", transnormer, "\"hidden_dim\": 64", "\"hidden_dim\": 128",
    { ": hidden_dim: 128, expected decoder_embed_dim = 64" } },
  { "tnl-norm", transnormer, "simplermsnorm", "layernorm", { ": norm_type: \"layernorm\", expected simplermsnorm" } },
  { "tnl-bias", transnormer, "false", "true", { ": bias: true, expected false" } },
  { "tnl-list", transnormer, "[0]", "0", { ": linear_use_lrpe_list: 0, expected a list" } },
  { "own-missing", own, "vocabulary = 100\n", "", { ": [model] vocabulary: missing" } },
  { "own-heads", own, "heads = 8", "heads = 7", { ": [model] heads = \"7\": expected a divisor of hidden = 64" } },
  { "own-groups", own, "heads = 8", "heads = 8\nkv-heads = 3", { ": [model] kv-heads = \"3\": expected a divisor" } },
  { "own-kind", own, "linear*3", "liner*3", { ": [model] layer-kinds = ", "softmax or linear" } },
  { "own-pattern", own, "linear*3", "linear*4", { ": [model] layer-kinds = ", "5 layers", "a divisor of layers = 8" } },
  { "own-repeat", own, "linear*3", "linear*0", { ": [model] layer-kinds = ", "from 1 to 8" } },
  { "own-long", own, "layers = 8", "layers = 1025", { ": [model] layers = \"1025\"", "from 1 to 1024" } },
  { "own-norm", own, "norm = layer", "norm = batch", { ": [model] norm = \"batch\"", "rms, layer, rms-no-gain" } },
  { "own-bias", own, "mlp-bias", "qkv-bias", { ": [model] qkv-bias = \"true\": expected false" } },
  { "own-linear-groups", own, "layer-kinds = linear*3,softmax", "kv-heads = 2\nlayer-kinds = linear",
    { ": [model] kv-heads = \"2\": expected heads = 8" } },
  { "own-odd", own, "heads = 8", "heads = 8\nhead-size = 7", { ": [model] head-size = \"7\": expected an even" } },
  { "own-wide", own, "heads = 8", "heads = 4096\nhead-size = 4096", { ": [model] head-size = \"4096\": expected" } },
  { "wide", llama, "heads\": 8", "heads\": 4096, \"head_dim\": 4096",
    { ": num_attention_heads: 4096, expected heads x" } },
  { "own-unknown", own, "hidden = 64", "hidden = 64\nhiden = 64", { ": [model] hiden = ", "did you mean hidden?" } },
  { "own-twice", own, "hidden = 64", "hidden = 64\nhidden = 64", { ":5:", "twice" } },
};
/* clang-format on */

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  g_autofree char *text = input_file_replace (row->base, row->from, row->to);
  char *path = input_file_new (row->base == own ? "bad.ini" : "bad.json", text, -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, &error);
  g_assert_null (arch);
  input_file_assert_error (error, path, row->words);
  input_file_remove (path);
}

/* Whatever stands in a file, it is read or refused in one line. */
static void
try_text (const char *text, gsize length)
{
  char *path = input_file_new ("broken", text, (gssize) length);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, &error);
  if (arch == NULL)
    input_file_assert_error (error, path, (const char *const[]){ NULL });
  input_file_remove (path);
}

static void
test_broken (void)
{
  const char *const texts[] = { llama, gpt2, transnormer, own };
  for (guint t = 0; t < G_N_ELEMENTS (texts); t++) {
    gsize length = strlen (texts[t]);
    for (gsize i = 0; i <= length; i++)
      try_text (texts[t], i);
    for (gsize i = 0; i < length; i++) {
      g_autofree char *text = g_strdup (texts[t]);
      text[i] = "{}[]\",:-0\\\n e"[i % 13];
      try_text (text, length);
    }
  }
}

static void
test_deep (void)
{
  g_autofree char *open = g_strnfill (1 << 19, '[');
  g_autofree char *deep = g_strdup_printf ("{\"a\": %s", open);
  try_text (deep, strlen (deep));
  g_autofree char *long_key = g_strdup_printf ("{\"model_type\": \"%s\"}", open);
  try_text (long_key, strlen (long_key));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/architecture/forms", test_forms);
  g_test_add_func ("/architecture/shipped", test_shipped);
  g_test_add_func ("/architecture/all-shipped", test_all_shipped);
  g_test_add_func ("/architecture/llama", test_llama);
  g_test_add_func ("/architecture/gpt2", test_gpt2);
  g_test_add_func ("/architecture/transnormer", test_transnormer);
  g_test_add_func ("/architecture/small", test_small);
  g_test_add_func ("/architecture/own", test_own);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/architecture/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  g_test_add_func ("/architecture/broken", test_broken);
  g_test_add_func ("/architecture/deep", test_deep);
  return g_test_run ();
}
