/* SPDX-License-Identifier: Apache-2.0 */
/* Models by their names on the Hugging Face hub. */
#include "models/inputs/run-files/formats.h"

#include <string.h>

/* Shipped models that are published there, as the base model where there is one. */
static const struct {
  const char *shipped, *name;
} names[] = {
  { "deepseek-v3", "deepseek-ai/DeepSeek-V3" },
  { "falcon-7b", "tiiuae/falcon-7b" },
  { "gemma-2-9b", "google/gemma-2-9b" },
  { "gpt-oss-120b", "openai/gpt-oss-120b" },
  { "gpt-oss-20b", "openai/gpt-oss-20b" },
  { "gpt2-large", "openai-community/gpt2-large" },
  { "jamba-v0.1", "ai21labs/Jamba-v0.1" },
  { "kimi-k2", "moonshotai/Kimi-K2-Base" },
  { "kimi-linear-48b-a3b", "moonshotai/Kimi-Linear-48B-A3B-Base" },
  { "llama-2-7b", "meta-llama/Llama-2-7b-hf" },
  { "llama-3.1-405b", "meta-llama/Llama-3.1-405B" },
  { "llama-3.1-70b", "meta-llama/Llama-3.1-70B" },
  { "llama-3.1-8b", "meta-llama/Llama-3.1-8B" },
  { "minimax-text-01", "MiniMaxAI/MiniMax-Text-01" },
  { "mistral-7b", "mistralai/Mistral-7B-v0.1" },
  { "mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1" },
  { "mpt-7b", "mosaicml/mpt-7b" },
  { "mpt-30b", "mosaicml/mpt-30b" },
  { "opt-66b", "facebook/opt-66b" },
  { "phi-3-mini-4k", "microsoft/Phi-3-mini-4k-instruct" },
  { "pythia-6.9b", "EleutherAI/pythia-6.9b" },
  { "qwen2.5-14b", "Qwen/Qwen2.5-14B" },
  { "qwen2.5-7b", "Qwen/Qwen2.5-7B" },
  { "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B" },
  { "qwen3-8b", "Qwen/Qwen3-8B" },
  { "qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct" },
  { "yi-34b", "01-ai/Yi-34B" },
};

/* What a hub's name has before and behind that of the base model. */
static const char *const before[] = { "meta-", "" };
static const char *const behind[] = { "-instruct-2507", "-instruct", "-chat", "-base", "-it", "" };

static const char *
shipped_of_table (const char *last)
{
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (g_ascii_strcasecmp (strchr (names[i].name, '/') + 1, last) == 0)
      return names[i].shipped;
  return NULL;
}

/* "meta-llama/Llama-3.1-8B-Instruct" is llama-3.1-8b. */
static const char *
shipped_of (const char *hub)
{
  g_autofree char *last = g_path_get_basename (hub);
  g_autofree char *name = g_ascii_strdown (last, -1);
  const char *listed = shipped_of_table (last);

  if (listed != NULL)
    return listed;
  for (guint i = 0; i < G_N_ELEMENTS (before); i++)
    for (guint j = 0; j < G_N_ELEMENTS (behind); j++) {
      gsize head = strlen (before[i]), whole = strlen (name), tail = strlen (behind[j]);
      if (!g_str_has_prefix (name, before[i]) || !g_str_has_suffix (name, behind[j]) || head + tail >= whole)
        continue;
      g_autofree char *base = g_strndup (name + head, whole - head - tail);
      g_autofree char *path = sp_find_shipped ("models", base, NULL);
      if (path != NULL)
        return g_intern_string (base);
    }
  return NULL;
}

const char *
sp_run_hub_model (const SpRunFile *file)
{
  const char *named = sp_facts_get (file->facts, "file.model");

  return named != NULL ? shipped_of (named) : NULL;
}

gboolean
sp_run_is_hub_name (const char *name)
{
  static const char plain[] = G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "/._-+@~";

  return *name != '\0' && name[strspn (name, plain)] == '\0' && *name != '-' && *name != '@' && *name != '~';
}

/* "qwen3-8b" of "qwen3-8b.json" and "llama-2-7b.ini". */
static char *
stem_of (const char *model)
{
  const char *dot = strrchr (model, '.');
  gboolean suffix = dot != NULL && (g_str_equal (dot, ".json") || g_str_equal (dot, ".ini"));

  return suffix ? g_strndup (model, (gsize) (dot - model)) : g_strdup (model);
}

void
sp_run_prepare_hub_model (SpFacts *facts, const char *model)
{
  const char *own = sp_facts_get (facts, "run-file.hub-name");
  const char *its = own != NULL ? shipped_of (own) : NULL;
  g_autofree char *stem = stem_of (model);

  if (own != NULL && sp_run_is_hub_name (own) && (its == NULL || g_str_equal (its, stem)))
    sp_facts_put (facts, "file.model", own, SP_FACT_FILE, "");
  for (guint i = 0; i < G_N_ELEMENTS (names) && sp_facts_get (facts, "file.model") == NULL; i++)
    if (g_str_equal (names[i].shipped, stem))
      sp_facts_put (facts, "file.model", names[i].name, SP_FACT_FILE, "");
}
