/* SPDX-License-Identifier: Apache-2.0 */
/* A set and its data, with a line of DATA between them; the data's scenario is a good one. What is read is priced, if it is
 * little. */
#include "calibrate/validate/validation.h"
#include "tests/fuzz/fuzz.h"

#include <glib/gstdio.h>

#define BETWEEN "\n=== data\n"
#define MOST_RUNS 4
#define MOST_CLAIMS 1

static const char scenario_text[] = "[model]\nconfig = tiny\n[cluster]\nfile = a100-1x8\n[layout]\ndata = 8\n"
                                    "[run]\nsequence = 4K\nglobal-batch = 8\nframework = flash\n";
static const char *const names[] = { "set.ini", "data.csv", "data.ini" };

static void
write_files (const char *folder, const char *text, gsize size)
{
  const char *between = g_strstr_len (text, (gssize) size, BETWEEN);
  gsize n = between != NULL ? (gsize) (between - text) : size;
  gsize skip = between != NULL ? n + strlen (BETWEEN) : size;
  const char *const parts[] = { text, text + skip, scenario_text };
  const gsize lengths[] = { n, size - skip, strlen (scenario_text) };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *path = g_build_filename (folder, names[i], NULL);
    g_assert_true (
        g_file_set_contents_full (path, parts[i], (gssize) lengths[i], G_FILE_SET_CONTENTS_NONE, 0600, NULL));
  }
}

static void
try_set (const char *folder)
{
  g_autofree char *path = g_build_filename (folder, names[0], NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpValidation) v = sp_validation_load (path, &error);

  fuzz_check (v != NULL, error);
  if (v == NULL || v->runs->len > MOST_RUNS || v->claims->len > MOST_CLAIMS)
    return;
  gboolean good = sp_validation_price (v, NULL, NULL, &error);
  fuzz_check (good, error);
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  if (size > FUZZ_MOST)
    return -1;
  g_autofree char *text = fuzz_text (data, size), *folder = g_dir_make_tmp ("seqpar-fuzz-XXXXXX", NULL);
  g_assert_nonnull (folder);
  write_files (folder, text, size);
  try_set (folder);
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *path = g_build_filename (folder, names[i], NULL);
    g_remove (path);
  }
  g_rmdir (folder);
  return 0;
}
