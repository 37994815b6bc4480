/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A layout that is refused, in these words. */

#include "models/layout.h"

static inline void
assert_refused (const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout, const SpRun *run,
                gint32 ranks, const char *const *words)
{
  g_autoptr (GError) error = NULL;

  g_assert_false (sp_layout_check (layout, arch, framework, run, ranks, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_test_message ("%s", error->message);
  for (guint i = 0; words[i]; i++)
    if (strstr (error->message, words[i]) == NULL) {
      g_test_message ("\"%s\" is not in it", words[i]);
      g_test_fail ();
    }
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
