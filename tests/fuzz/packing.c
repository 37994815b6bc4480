/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of documents, and their pairs in a few sequences. */
#include "models/inputs/packing.h"
#include "tests/fuzz/fuzz.h"

static void
try_pairs (const SpPacking *packing, gint64 sequence, SpTokenSplit split, gint32 ring, gint64 window)
{
  double s = (double) sequence;
  SpPackedPairs pairs;

  sp_packing_pairs (packing, sequence, split, ring, TRUE, window, &pairs);
  g_assert_true (pairs.all >= s * (1 - 1e-9) && pairs.all <= s * (s + 1) / 2 * (1 + 1e-9));
  g_assert_true (pairs.home + pairs.away >= pairs.slowest * (1 - 1e-9) && pairs.slowest <= pairs.all * (1 + 1e-9));
  g_assert_true (pairs.slowest * ring >= pairs.all * (1 - 1e-9) && pairs.fullest >= 1 - 1e-9);
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = fuzz_text (data, size);

  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpPacking) packing = sp_packing_parse ("lengths.csv", text, size, &error);
  fuzz_check (packing != NULL, error);
  if (packing == NULL)
    return 0;
  g_assert_true (packing->n_runs > 0 && packing->longest <= packing->tokens && packing->documents <= packing->tokens);
  /* A long list takes long: what it is made of is looked at, not how it is gone through. */
  if (packing->tokens > 1000000)
    return 0;
  for (guint split = 0; split < SP_N_TOKEN_SPLITS; split++) {
    try_pairs (packing, 48, (SpTokenSplit) split, 4, 0);
    try_pairs (packing, 48, (SpTokenSplit) split, 3, 5);
    try_pairs (packing, 1 << 12, (SpTokenSplit) split, 1, 0);
  }
  double keys = sp_packing_keys (packing, 48);
  g_assert_true (keys >= 1 && keys <= 48);
  return 0;
}
