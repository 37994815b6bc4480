/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of other programs, and measured CSVs: what is read is written and read again the same. */
#include "tests/fuzz/fuzz.h"

#include "calibrate/import.h"

static void
check_round_trip (const SpMeasured *measured)
{
  g_autoptr (GString) once = g_string_new (NULL), twice = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  sp_measured_write (measured, once);
  g_autoptr (SpMeasured) again = sp_measured_parse ("again", once->str, once->len, &error);
  g_assert_no_error (error);
  sp_measured_write (again, twice);
  g_assert_cmpstr (once->str, ==, twice->str);
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  static const SpImportGiven givens[] = { { 0 }, { .op = SP_MEASURED_ALL_REDUCE, .ranks = 4, .nodes = 1 } };
  if (size > FUZZ_MOST)
    return 0;
  g_autofree char *text = fuzz_text (data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) measured = sp_measured_parse ("text", text, size, &error);
  fuzz_check (measured != NULL, error);
  if (measured != NULL)
    check_round_trip (measured);
  for (guint i = 0; i < G_N_ELEMENTS (givens); i++) {
    g_autoptr (SpMeasured) into = sp_measured_new ();
    g_autoptr (GError) cause = NULL;
    gboolean good = sp_import_text ("text", text, size, &givens[i], into, &cause);
    fuzz_check (good, cause);
    if (good)
      check_round_trip (into);
  }
  return 0;
}
