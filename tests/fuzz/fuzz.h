/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A target reads one text as one reader would, and checks what is true of any text: no more than an error of one line,
 * and what is read is written and read again the same. libFuzzer calls it (-Dfuzz=true, clang), and so does
 * test-corpus, with the seeds in corpus/ and without a fuzzer. A new target is a file here, its name in
 * tests/meson.build, and seeds.
 *
 *   CC=clang meson setup BUILD -Dfuzz=true -Db_lundef=false && ninja -C BUILD fuzz
 *   export G_DEBUG=fatal-criticals G_SLICE=always-malloc
 *   BUILD/tests/fuzz-set -dict=tests/fuzz/set.dict -timeout=10 NEW tests/fuzz/corpus/set
 *   BUILD/tests/fuzz-set -merge=1 -use_counters=0 tests/fuzz/corpus/set NEW     keeps of NEW what reaches more code
 *
 * A seed that once failed is named after what was wrong.
 */

#include <glib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const guint8 *data, size_t size);

/* Longer ones find nothing that shorter ones do not. */
#define FUZZ_MOST 65536

/* With a 0 behind, as texts are passed on. */
static inline char *
fuzz_text (const guint8 *data, size_t size)
{
  char *text = g_malloc (size + 1);
  if (size > 0)
    memcpy (text, data, size);
  text[size] = '\0';
  return text;
}

/* One line of UTF-8 if it failed, and nothing else. */
static inline void
fuzz_check (gboolean good, const GError *error)
{
  g_assert_true (good == (error == NULL));
  if (error == NULL)
    return;
  g_assert_true (g_utf8_validate (error->message, -1, NULL));
  g_assert_true (*error->message != '\0' && strchr (error->message, '\n') == NULL);
}
