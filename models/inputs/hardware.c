/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/hardware-private.h"

#include <string.h>

static const char *const provenances[] = { "measured", "published", "datasheet", "assumed", NULL };
G_STATIC_ASSERT (G_N_ELEMENTS (provenances) == SP_N_PROVENANCES + 1);

const char *
sp_provenance_name (SpProvenance provenance)
{
  g_return_val_if_fail (provenance < SP_N_PROVENANCES, NULL);
  return provenances[provenance];
}

/* --- quantities and their sources --------------------------------------------------------------------------------- */

/* `provenance: text`. */
static gboolean
parse_source (SpIni *ini, const char *group, const char *key, const char *line, SpQuantity *quantity, GError **error)
{
  const char *colon = strchr (line, ':');
  gsize length = colon != NULL ? (gsize) (colon - line) : strlen (line);
  g_autofree char *word = g_strstrip (g_strndup (line, length));
  g_autofree char *text = g_strstrip (g_strdup (colon != NULL ? colon + 1 : ""));
  for (guint i = 0; i < SP_N_PROVENANCES && *text != '\0'; i++)
    if (g_str_equal (provenances[i], word)) {
      quantity->provenance = i;
      quantity->source = g_steal_pointer (&text);
      return TRUE;
    }
  g_autofree char *near = sp_did_you_mean (word, provenances);
  return sp_ini_refuse (ini, group, key, error,
                        "expected measured, published, datasheet or assumed, a colon, and where "
                        "the value is from%s",
                        near);
}

/* KEY.source, where there is one. */
static gboolean
read_source (SpIni *ini, const char *group, const char *key, SpQuantity *quantity, GError **error)
{
  g_autofree char *source_key = g_strconcat (key, ".source", NULL);
  g_autofree char *line = NULL;

  quantity->provenance = SP_ASSUMED;
  if (!sp_ini_string (ini, group, source_key, SP_INI_OPTIONAL, &line, error))
    return FALSE;
  if (line == NULL)
    return TRUE;
  if (!sp_ini_has (ini, group, key))
    return sp_ini_refuse (ini, group, source_key, error, "a source of nothing, expected %s beside it", key);
  return parse_source (ini, group, source_key, line, quantity, error);
}

static gboolean
read_quantity (SpIni *ini, const char *group, const SpQuantityKey *row, SpIniNeed need, SpQuantity *quantity,
               GError **error)
{
  return sp_ini_quantity (ini, group, row->key, need, row->unit, row->min, row->max, &quantity->value, error) &&
         read_source (ini, group, row->key, quantity, error);
}

gboolean
sp_read_quantities (SpIni *ini, const char *group, const SpQuantityKey *rows, guint n, SpIniNeed need, gpointer base,
                    GError **error)
{
  for (guint i = 0; i < n; i++)
    if (!read_quantity (ini, group, &rows[i], need, G_STRUCT_MEMBER_P (base, rows[i].offset), error))
      return FALSE;
  return TRUE;
}

SpQuantity *
sp_quantities_find (const SpQuantityKey *rows, guint n, const char *key, gpointer base, SpQuantityRange *range)
{
  for (guint i = 0; i < n; i++)
    if (g_str_equal (rows[i].key, key)) {
      if (range != NULL)
        *range = (SpQuantityRange){ rows[i].unit, rows[i].min, rows[i].max };
      return G_STRUCT_MEMBER_P (base, rows[i].offset);
    }
  return NULL;
}

gboolean
sp_quantities_have (const SpQuantityKey *rows, guint n, const char *key)
{
  for (guint i = 0; i < n; i++)
    if (g_str_equal (rows[i].key, key))
      return TRUE;
  return FALSE;
}

void
sp_clear_sources (const SpQuantityKey *rows, guint n, gpointer base)
{
  for (guint i = 0; i < n; i++)
    g_clear_pointer (&G_STRUCT_MEMBER (SpQuantity, base, rows[i].offset).source, g_free);
}

/* The name key, else the file's name without its suffix. */
gboolean
sp_read_name (SpIni *ini, const char *group, char **ret, GError **error)
{
  *ret = g_path_get_basename (sp_ini_path (ini));
  char *dot = strrchr (*ret, '.');
  if (dot != NULL && dot != *ret)
    *dot = '\0';
  return sp_ini_string (ini, group, "name", SP_INI_OPTIONAL, ret, error);
}

/* --- device ------------------------------------------------------------------------------------------------------- */

#define FIELD(name) G_STRUCT_OFFSET (SpDevice, name)

static const SpQuantityKey device_keys[] = {
  { "peak-bf16", SP_UNIT_FLOPS_PER_S, 1e11, 1e17, FIELD (peak_bf16_flops_per_s) },
  { "peak-fp32", SP_UNIT_FLOPS_PER_S, 1e11, 1e17, FIELD (peak_fp32_flops_per_s) },
  { "memory", SP_UNIT_BYTES, 0x1p30, 0x1p44, FIELD (memory_bytes) },
  { "memory-rate", SP_UNIT_BYTES_PER_S, 1e10, 1e15, FIELD (memory_bytes_per_s) },
  { "sms", SP_UNIT_COUNT, 1, 4096, FIELD (sms) },
  { "launch", SP_UNIT_SECONDS, 0, 1e-3, FIELD (launch_s) },
  { "gemm-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (gemm_efficiency) },
  { "attention-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (attention_efficiency) },
  { "attention-backward-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (attention_backward_efficiency) },
  { "linear-efficiency", SP_UNIT_FRACTION, 0.001, 1, FIELD (linear_efficiency) },
  { "memory-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (memory_efficiency) },
  { "link-rate", SP_UNIT_BYTES_PER_S, 1e8, 1e14, FIELD (link_bytes_per_s) },
  { "overlap-slowdown", SP_UNIT_FRACTION, 0, 10, FIELD (overlap_slowdown) },
};

static const SpQuantityKey device_optional_keys[] = {
  { "noise", SP_UNIT_FRACTION, 0, 1, FIELD (noise) },
  { "peak-fp8", SP_UNIT_FLOPS_PER_S, 1e11, 1e17, FIELD (peak_fp8_flops_per_s) },
  { "pcie-rate", SP_UNIT_BYTES_PER_S, 1e8, 1e14, FIELD (pcie_bytes_per_s) },
  { "flash-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (flash_efficiency) },
  { "flash-backward-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (flash_backward_efficiency) },
  { "unaligned-efficiency", SP_UNIT_FRACTION, 0.01, 1, FIELD (unaligned_efficiency) },
};
#undef FIELD

SpDevice *
sp_device_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);
  SpDevice *device = text != NULL ? sp_device_parse (path, text, length, error) : NULL;

  if (text != NULL && device == NULL)
    sp_input_say_kind (path, SP_KIND_DEVICE, error);
  return device;
}

SpDevice *
sp_device_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  if (ini == NULL)
    return NULL;
  g_autoptr (SpDevice) device = g_new0 (SpDevice, 1);
  gboolean bf16 = TRUE;
  if (!sp_read_name (ini, "device", &device->name, error) ||
      !sp_read_quantities (ini, "device", device_keys, G_N_ELEMENTS (device_keys), SP_INI_REQUIRED, device, error) ||
      !sp_read_quantities (ini, "device", device_optional_keys, G_N_ELEMENTS (device_optional_keys), SP_INI_OPTIONAL,
                           device, error) ||
      !sp_ini_bool (ini, "device", "nvls", SP_INI_OPTIONAL, &device->nvls, error) ||
      !sp_ini_bool (ini, "device", "bf16", SP_INI_OPTIONAL, &bf16, error) || !sp_ini_finish (ini, error))
    return NULL;
  device->no_bf16 = !bf16;
  return g_steal_pointer (&device);
}

gboolean
sp_device_has_key (const char *key)
{
  static const char *const others[] = { "nvls", "bf16", NULL };
  return sp_quantities_have (device_keys, G_N_ELEMENTS (device_keys), key) ||
         sp_quantities_have (device_optional_keys, G_N_ELEMENTS (device_optional_keys), key) ||
         g_strv_contains (others, key);
}

SpQuantity *
sp_device_quantity (SpDevice *device, const char *key, SpQuantityRange *range)
{
  SpQuantity *found = sp_quantities_find (device_keys, G_N_ELEMENTS (device_keys), key, device, range);
  return found != NULL
             ? found
             : sp_quantities_find (device_optional_keys, G_N_ELEMENTS (device_optional_keys), key, device, range);
}

void
sp_device_free (SpDevice *device)
{
  if (device == NULL)
    return;
  sp_clear_sources (device_keys, G_N_ELEMENTS (device_keys), device);
  sp_clear_sources (device_optional_keys, G_N_ELEMENTS (device_optional_keys), device);
  g_free (device->name);
  g_free (device);
}

/* --- framework ---------------------------------------------------------------------------------------------------- */

#define FIELD(name) G_STRUCT_OFFSET (SpFramework, name)

static const SpQuantityKey framework_keys[] = {
  { "host-launch", SP_UNIT_SECONDS, 0, 1e-2, FIELD (host_launch_s) },
  { "reserved", SP_UNIT_BYTES, 0, 0x1p40, FIELD (reserved_bytes) },
  { "allocator-slack", SP_UNIT_FRACTION, 0, 1, FIELD (allocator_slack) },
};

static const SpQuantityKey framework_optional_keys[] = {
  { "host-slack", SP_UNIT_FRACTION, 0, 10, FIELD (host_slack) },
  { "workspace", SP_UNIT_BYTES, 0, 0x1p40, FIELD (workspace_bytes) },
  { "run-ahead", SP_UNIT_NUMBER, 0, 1e6, FIELD (run_ahead) },
  { "crowded-time", SP_UNIT_NUMBER, 1, 100, FIELD (crowded_time) },
  { "host-gather", SP_UNIT_SECONDS, 0, 1e-1, FIELD (host_gather_s) },
  { "host-step", SP_UNIT_SECONDS, 0, 1e3, FIELD (host_step_s) },
  { "host-slot", SP_UNIT_SECONDS, 0, 1, FIELD (host_slot_s) },
  { "host-stall", SP_UNIT_FRACTION, 0, 10, FIELD (host_stall) },
  { "elementwise-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (elementwise_time) },
  { "merge-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (merge_time) },
  { "pack-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (pack_time) },
  { "softmax-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (softmax_time) },
  { "attention-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (attention_time) },
  { "gemm-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (gemm_time) },
  { "optimizer-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (optimizer_time) },
  { "collective-wait", SP_UNIT_SECONDS, 0, 1e-1, FIELD (collective_wait_s) },
  { "rank-wait", SP_UNIT_SECONDS, 0, 1e-2, FIELD (rank_wait_s) },
  { "network-wait", SP_UNIT_SECONDS, 0, 1e-2, FIELD (network_wait_s) },
  { "shard-copies", SP_UNIT_BYTES, 0, 1000, FIELD (shard_copies) },
  { "shard-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (shard_time) },
  { "linear-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (linear_time) },
  { "linear-backward-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (linear_backward_time) },
  { "attention-causal-time", SP_UNIT_NUMBER, 0.1, 100, FIELD (attention_causal_time) },
  { "attention-head-power", SP_UNIT_NUMBER, 0, 2, FIELD (attention_head_power) },
};

/* Two words each, the first of which is FALSE; that is what an optional one is. */
static const struct {
  const char *key;
  const char *words[3];
  gsize offset;
  SpIniNeed need;
} framework_flags[SP_N_FRAMEWORK_FLAGS] = {
  { "fused-attention", { "false", "true" }, FIELD (fused_attention), SP_INI_REQUIRED },
  { "selective", { "elementwise", "attention" }, FIELD (selective_attention), SP_INI_REQUIRED },
  { "recompute-whole", { "false", "true" }, FIELD (recompute_whole), SP_INI_REQUIRED },
  { "host", { "graph", "eager" }, FIELD (host_eager), SP_INI_REQUIRED },
  { "fp32-logits", { "false", "true" }, FIELD (fp32_logits), SP_INI_REQUIRED },
  { "loss-gradient", { "in-place", "copies" }, FIELD (loss_copies), SP_INI_REQUIRED },
  { "chunked-loss", { "false", "true" }, FIELD (chunks_loss), SP_INI_OPTIONAL },
  { "lasp-local", { "before", "after" }, FIELD (lasp_local_after), SP_INI_OPTIONAL },
  { "host-ahead", { "list", "step" }, FIELD (host_runs_ahead), SP_INI_OPTIONAL },
  { "shards", { "ordered", "free" }, FIELD (shards_run_free), SP_INI_OPTIONAL },
  { "data-calls", { "block", "tensor" }, FIELD (tensor_calls), SP_INI_OPTIONAL },
  { "state-dict", { "sharded", "whole" }, FIELD (whole_state_dict), SP_INI_OPTIONAL },
  { "glu", { "fused", "apart" }, FIELD (glu_apart), SP_INI_OPTIONAL },
  { "attention-blocks", { "even", "ascending" }, FIELD (attention_ascending), SP_INI_OPTIONAL },
  { "attention-heads", { "exact", "padded" }, FIELD (attention_padded), SP_INI_OPTIONAL },
  { "attention-output", { "kept", "copied" }, FIELD (attention_copied), SP_INI_OPTIONAL },
  { "ring-of-one", { "none", "summed" }, FIELD (sums_alone), SP_INI_OPTIONAL },
  { "sequence-gather", { "again", "kept" }, FIELD (keeps_whole), SP_INI_OPTIONAL },
  { "gather-buffers", { "own", "kept" }, FIELD (keeps_gathers), SP_INI_OPTIONAL },
  { "tensor-backward", { "in-turn", "overlapped" }, FIELD (overlaps_tensor), SP_INI_OPTIONAL },
  { "gathers", { "parameters", "master" }, FIELD (gathers_master), SP_INI_OPTIONAL },
  { "ends", { "resharded", "kept" }, FIELD (keeps_ends), SP_INI_OPTIONAL },
  { "gradients", { "kept", "freed" }, FIELD (frees_gradients), SP_INI_OPTIONAL },
  { "autocast", { "false", "true" }, FIELD (autocast), SP_INI_OPTIONAL },
  { "gradient-buckets", { "views", "copies" }, FIELD (gradient_copies), SP_INI_OPTIONAL },
  { "gradient-sums", { "in-place", "apart" }, FIELD (gradients_apart), SP_INI_OPTIONAL },
  { "pipeline-scatter", { "false", "true" }, FIELD (pipeline_scatter), SP_INI_OPTIONAL },
};
#undef FIELD

SpFramework *
sp_framework_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);
  SpFramework *framework = text != NULL ? sp_framework_parse (path, text, length, error) : NULL;

  if (text != NULL && framework == NULL)
    sp_input_say_kind (path, SP_KIND_FRAMEWORK, error);
  return framework;
}

SpFramework *
sp_framework_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  if (ini == NULL)
    return NULL;
  g_autoptr (SpFramework) framework = g_new0 (SpFramework, 1);
  if (!sp_read_name (ini, "framework", &framework->name, error))
    return NULL;
  for (guint i = 0; i < G_N_ELEMENTS (framework_flags); i++) {
    guint8 flag = 0;
    if (!sp_ini_choice (ini, "framework", framework_flags[i].key, framework_flags[i].need, framework_flags[i].words,
                        &flag, error) ||
        !read_source (ini, "framework", framework_flags[i].key, &framework->flag_sources[i], error))
      return NULL;
    G_STRUCT_MEMBER (gboolean, framework, framework_flags[i].offset) = flag;
  }
  if (!sp_ini_string (ini, "framework", "attention-library", SP_INI_OPTIONAL, &framework->attention_library, error) ||
      !sp_read_quantities (ini, "framework", framework_optional_keys, G_N_ELEMENTS (framework_optional_keys),
                           SP_INI_OPTIONAL, framework, error) ||
      !sp_read_quantities (ini, "framework", framework_keys, G_N_ELEMENTS (framework_keys), SP_INI_REQUIRED, framework,
                           error) ||
      !sp_ini_finish (ini, error))
    return NULL;
  return g_steal_pointer (&framework);
}

gboolean
sp_framework_has_key (const char *key)
{
  for (guint i = 0; i < G_N_ELEMENTS (framework_flags); i++)
    if (g_str_equal (framework_flags[i].key, key))
      return TRUE;
  return sp_quantities_have (framework_keys, G_N_ELEMENTS (framework_keys), key) ||
         sp_quantities_have (framework_optional_keys, G_N_ELEMENTS (framework_optional_keys), key) ||
         g_str_equal (key, "attention-library");
}

const char *
sp_framework_flag (const SpFramework *framework, guint row, const char **ret_word, const SpQuantity **ret_source)
{
  if (row >= SP_N_FRAMEWORK_FLAGS)
    return NULL;
  gboolean on = G_STRUCT_MEMBER (const gboolean, framework, framework_flags[row].offset);
  *ret_word = framework_flags[row].words[on != FALSE];
  *ret_source = &framework->flag_sources[row];
  return framework_flags[row].key;
}

SpQuantity *
sp_framework_quantity (SpFramework *framework, const char *key, SpQuantityRange *range)
{
  SpQuantity *found = sp_quantities_find (framework_keys, G_N_ELEMENTS (framework_keys), key, framework, range);
  return found != NULL ? found
                       : sp_quantities_find (framework_optional_keys, G_N_ELEMENTS (framework_optional_keys), key,
                                             framework, range);
}

void
sp_framework_free (SpFramework *framework)
{
  if (framework == NULL)
    return;
  for (guint i = 0; i < SP_N_FRAMEWORK_FLAGS; i++)
    g_free (framework->flag_sources[i].source);
  sp_clear_sources (framework_keys, G_N_ELEMENTS (framework_keys), framework);
  sp_clear_sources (framework_optional_keys, G_N_ELEMENTS (framework_optional_keys), framework);
  g_free (framework->attention_library);
  g_free (framework->name);
  g_free (framework);
}
