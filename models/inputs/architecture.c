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
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);
  if (text == NULL)
    return NULL;
  const char *first = text;
  while (g_ascii_isspace (*first))
    first++;
  g_autoptr (SpArchitecture) arch = *first == '{' ? sp_architecture_parse_json (path, text, length, error)
                                                  : sp_architecture_parse_ini (path, text, length, error);
  if (arch == NULL) {
    sp_input_say_kind (path, SP_KIND_MODEL, error);
    return NULL;
  }
  if (arch->name == NULL)
    arch->name = stem (path);
  return g_steal_pointer (&arch);
}

gint32
sp_architecture_count (const SpArchitecture *arch, SpLayerKind mixer)
{
  gint32 count = 0;
  for (gint32 i = 0; i < arch->layers; i++)
    count += sp_layer_mixer (arch->layer_kind[i]) == mixer;
  return count;
}

gint32
sp_architecture_count_kind (const SpArchitecture *arch, guint kind)
{
  gint32 count = 0;
  for (gint32 i = 0; i < arch->layers; i++)
    count += arch->layer_kind[i] == kind;
  return count;
}

gboolean
sp_architecture_has_bit (const SpArchitecture *arch, SpLayerKind bit)
{
  for (gint32 i = 0; i < arch->layers; i++)
    if (arch->layer_kind[i] & bit)
      return TRUE;
  return FALSE;
}

/* clang-format off */
const char *const sp_linear_names[SP_N_LINEAR_FAMILIES + 1] = {
  "transnormer", "lightning", "retnet", "gla", "simple-gla", "mamba", "mamba2", "delta", "gated-delta", "kda", "rwkv6", "rwkv7", NULL
};
/* clang-format on */

char *
sp_architecture_kind_text (const SpArchitecture *arch, guint kind)
{
  GString *text = g_string_new (NULL);
  if (sp_layer_mixer (kind) == SP_LAYER_LINEAR)
    g_string_append (text, arch->linear.heads == 0 ? "linear" : sp_linear_names[arch->linear.family]);
  else
    g_string_append (text, arch->latent.kv_rank > 0 ? "latent" : "softmax");
  if (kind & SP_LAYER_WINDOW)
    g_string_append_printf (text, ", window %d", arch->window);
  if (kind & SP_LAYER_EXPERTS)
    g_string_append (text, ", experts");
  if (kind & SP_LAYER_NO_MLP)
    g_string_append (text, ", no MLP");
  return g_string_free (text, FALSE);
}
