/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shipped models, frameworks and clusters, and models of one's own; a program that must be legal. */

#include "models/inputs/scenario.h"
#include "models/writer.h"
#include "tests/input-file.h"

static inline SpArchitecture *
load_model (const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_model (name, &error);
  g_assert_no_error (error);
  SpArchitecture *arch = sp_architecture_load (path, &error);
  g_assert_no_error (error);
  return arch;
}

static inline SpFramework *
load_framework (const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_framework (name, &error);
  g_assert_no_error (error);
  SpFramework *framework = sp_framework_load (path, &error);
  g_assert_no_error (error);
  return framework;
}

static inline SpCluster *
load_cluster (const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_cluster (name, &error);
  g_assert_no_error (error);
  SpCluster *cluster = sp_cluster_load (path, &error);
  g_assert_no_error (error);
  return cluster;
}

/* A model file of one's own. */
static inline SpArchitecture *
own_model (const char *keys)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = g_strconcat ("[model]\n", keys, NULL);
  char *path = input_file_new ("own.ini", text, -1);
  SpArchitecture *arch = sp_architecture_load (path, &error);
  g_assert_no_error (error);
  input_file_remove (path);
  return arch;
}

static inline void
write_legal (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout,
             const SpRun *run)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (sp_layout_check (layout, arch, framework, run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, framework, layout, run);
}
