/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/architecture.h"

#include "models/inputs/ini.h"

SpArchitecture *
sp_architecture_new (void)
{
  SpArchitecture *arch = g_new0 (SpArchitecture, 1);
  arch->norm_epsilon = 1e-5;
  arch->rope_theta = 10000;
  arch->notes = g_ptr_array_new_with_free_func (g_free);
  return arch;
}

void
sp_architecture_free (SpArchitecture *arch)
{
  if (arch == NULL)
    return;
  g_free (arch->name);
  g_free (arch->family);
  g_ptr_array_unref (arch->notes);
  g_free (arch);
}

void
sp_architecture_note (SpArchitecture *arch, const char *format, ...)
{
  va_list arguments;
  va_start (arguments, format);
  g_ptr_array_add (arch->notes, g_strdup_vprintf (format, arguments));
  va_end (arguments);
}

static char *
stem (const char *path)
{
  char *name = g_path_get_basename (path);
  char *dot = strrchr (name, '.');
  if (dot != NULL && dot != name)
    *dot = '\0';
  return name;
}

SpArchitecture *
sp_architecture_load (const char *path, GError **error)
{
  g_autofree char *text = sp_read_input (path, NULL, error);
  if (text == NULL)
    return NULL;
  gboolean json = *g_strchug (text) == '{';
  g_autoptr (SpArchitecture) arch =
      json ? sp_architecture_load_json (path, error) : sp_architecture_load_ini (path, error);
  if (arch == NULL)
    return NULL;
  if (arch->name == NULL)
    arch->name = stem (path);
  return g_steal_pointer (&arch);
}

gint32
sp_architecture_count (const SpArchitecture *arch, SpLayerKind kind)
{
  gint32 count = 0;
  for (gint32 i = 0; i < arch->layers; i++)
    count += arch->layer_kind[i] == kind;
  return count;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static gint64
norm_parameters (const SpArchitecture *arch)
{
  switch (arch->norm) {
  case SP_NORM_RMS:
    return arch->hidden;
  case SP_NORM_LAYER:
    return 2 * (gint64) arch->hidden;
  case SP_NORM_RMS_NO_GAIN:
    break;
  }
  return 0;
}

/* Features that come out of the first projection: q, k, v; a linear layer's q, k, v and gate u. */
static gint64
attention_features (const SpArchitecture *arch, SpLayerKind kind)
{
  gint64 heads = kind == SP_LAYER_LINEAR ? 4 * (gint64) arch->heads : arch->heads + 2 * (gint64) arch->kv_heads;
  return heads * arch->head_size;
}

static gint64
mlp_inputs (const SpArchitecture *arch) /* matrices from hidden to ffn */
{
  return arch->mlp == SP_MLP_GELU ? 1 : 2;
}

gint64
sp_architecture_layer_matmul_parameters (const SpArchitecture *arch, SpLayerKind kind)
{
  gint64 attention = attention_features (arch, kind) + (gint64) arch->heads * arch->head_size;
  gint64 mlp = (mlp_inputs (arch) + 1) * arch->ffn;
  return arch->hidden * (attention + mlp);
}

gint64
sp_architecture_layer_parameters (const SpArchitecture *arch, SpLayerKind kind)
{
  gint64 count = sp_architecture_layer_matmul_parameters (arch, kind) + 2 * norm_parameters (arch);
  if (arch->qkv_bias)
    count += attention_features (arch, kind);
  if (arch->projection_bias)
    count += arch->hidden;
  if (arch->mlp_bias)
    count += mlp_inputs (arch) * arch->ffn + arch->hidden;
  return count;
}

gint64
sp_architecture_parameters (const SpArchitecture *arch)
{
  gint64 count = (gint64) arch->vocabulary * arch->hidden * (arch->tied ? 1 : 2) +
                 (gint64) arch->positions * arch->hidden + norm_parameters (arch);
  for (guint kind = 0; kind < SP_N_LAYER_KINDS; kind++)
    count += sp_architecture_count (arch, kind) * sp_architecture_layer_parameters (arch, kind);
  return count;
}

gint64
sp_architecture_state_bytes (const SpArchitecture *arch)
{
  return (gint64) sp_architecture_count (arch, SP_LAYER_LINEAR) * arch->heads * arch->head_size * arch->head_size * 4;
}
