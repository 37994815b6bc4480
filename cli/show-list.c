/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show KIND: what is shipped of a kind, by name. */
#include <string.h>

#include "cli/cli.h"
#include "models/inputs/profile.h"

/* What its file calls it, or what it amounts to; NULL: no more than its name says. */
typedef char *(*TitleFunc) (const char *path, GError **error);

static char *
title_of_model (const char *path, GError **error)
{
  g_autoptr (SpArchitecture) arch = sp_architecture_load (path, error);
  if (arch == NULL)
    return NULL;
  g_autofree char *all = sp_text_count ((double) sp_architecture_parameters (arch));
  g_autofree char *active = sp_text_count ((double) sp_architecture_active_parameters (arch));
  gboolean sparse = !g_str_equal (all, active);
  return g_strdup_printf ("%d layers, %s parameters%s%s%s", arch->layers, all, sparse ? ", " : "", sparse ? active : "",
                          sparse ? " active" : "");
}

static char *
title_of_cluster (const char *path, GError **error)
{
  g_autoptr (SpCluster) cluster = sp_cluster_load (path, error);

  return cluster != NULL ? g_strdup (cluster->name) : NULL;
}

static char *
title_of_device (const char *path, GError **error)
{
  g_autoptr (SpDevice) device = sp_device_load (path, error);

  return device != NULL ? g_strdup (device->name) : NULL;
}

static char *
title_of_profile (const char *path, GError **error)
{
  g_autoptr (SpProfile) profile = sp_profile_load (path, error);

  return profile != NULL ? g_strdup (profile->name) : NULL;
}

static const struct {
  const char *folder;
  TitleFunc title; /* NULL: names are all that there is */
} folders[] = {
  { "models", title_of_model },
  { "clusters", title_of_cluster },
  { "devices", title_of_device },
  { "profiles", title_of_profile },
};

static TitleFunc
find_title (const char *folder)
{
  for (guint i = 0; i < G_N_ELEMENTS (folders); i++)
    if (g_str_equal (folders[i].folder, folder))
      return folders[i].title;
  return NULL;
}

gboolean
sp_show_list (const char *folder, gboolean json, GString *out, GError **error)
{
  g_auto (GStrv) names = sp_list_shipped (folder);
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  g_autoptr (SpTable) table = sp_table_new ("ll");
  TitleFunc title = find_title (folder);

  json_builder_begin_object (builder);
  json_builder_set_member_name (builder, *folder != '\0' ? folder : "scenarios");
  json_builder_begin_array (builder);
  for (guint i = 0; names[i] != NULL; i++) {
    g_autofree char *path = title != NULL ? sp_find_shipped (folder, names[i], error) : NULL;
    g_autofree char *text = path != NULL ? title (path, error) : NULL;
    if (title != NULL && text == NULL)
      return FALSE;
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", names[i]);
    sp_json_string (builder, "title", text);
    json_builder_end_object (builder);
    sp_table_cell (table, names[i]);
    sp_table_cell (table, text != NULL ? text : "");
  }
  json_builder_end_array (builder);
  json_builder_end_object (builder);
  if (json)
    return sp_json_finish (builder, out, error);
  sp_table_print (table, 0, out);
  return TRUE;
}
