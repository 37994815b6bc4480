/* SPDX-License-Identifier: Apache-2.0 */
/* Causal masks by positions, as one rectangle. */
#include "calibrate/mask.h"

/* How tokens lie on rank r of P, T on each: positions of the rank's tokens. */
typedef enum { CONTIGUOUS, ZIGZAG, STRIPED } Split;

enum { RANKS = 4, TOKENS = 6 };

static void
positions (Split split, gint32 rank, gint32 *ret)
{
  for (gint32 i = 0; i < TOKENS; i++) {
    gint32 half = TOKENS / 2, part = i < half ? rank : 2 * RANKS - 1 - rank;
    ret[i] = split == CONTIGUOUS ? rank * TOKENS + i : split == ZIGZAG ? part * half + i % half : i * RANKS + rank;
  }
}

static gboolean
sees (const SpMaskCut *cut, gint64 m, gint64 i, gint64 j)
{
  if (i < cut->hidden || j >= cut->seen)
    return FALSE;
  return !cut->causal || (cut->last ? j <= i + cut->seen - m : j <= i - cut->hidden);
}

static void
check (gint64 m, const gint32 *qpos, gint64 n, const gint32 *kpos, SpMaskCut *ret)
{
  g_assert_true (sp_mask_cut (m, qpos, n, kpos, ret));
  for (gint64 i = 0; i < m; i++)
    for (gint64 j = 0; j < n; j++)
      g_assert_cmpint (sees (ret, m, i, j), ==, kpos[j] <= qpos[i]);
}

/* Every pair of every split is one rectangle, and is what the positions say. */
static void
test_ring (void)
{
  for (Split split = CONTIGUOUS; split <= STRIPED; split++)
    for (gint32 q = 0; q < RANKS; q++)
      for (gint32 k = 0; k < RANKS; k++) {
        gint32 qpos[TOKENS], kpos[TOKENS];
        SpMaskCut cut;
        positions (split, q, qpos);
        positions (split, k, kpos);
        check (TOKENS, qpos, TOKENS, kpos, &cut);
        g_assert_cmpint (cut.causal, ==, q == k || split == STRIPED);
        if (split == ZIGZAG && k < q) /* of the keys the early half, which all see */
          g_assert_true (cut.hidden == 0 && cut.seen == TOKENS / 2);
        if (split == ZIGZAG && k > q) /* of the queries the late half, which sees all */
          g_assert_true (cut.hidden == TOKENS / 2 && cut.seen == TOKENS);
        if (split == CONTIGUOUS && k > q)
          g_assert_cmpint (cut.hidden, ==, TOKENS);
        if (split == STRIPED && k > q) /* row i sees keys up to i - 1 */
          g_assert_true (cut.hidden == 1 && cut.seen == TOKENS - 1);
      }
}

/* An all-gather: contiguous, a rank's queries end within the keys; in another order the keys do not rise. */
static void
test_gathered (void)
{
  gint32 qpos[TOKENS], kpos[RANKS * TOKENS];
  SpMaskCut cut;

  for (Split split = CONTIGUOUS; split <= ZIGZAG; split++)
    for (gint32 rank = 0; rank < RANKS; rank++) {
      for (gint32 k = 0; k < RANKS; k++)
        positions (split, k, kpos + k * TOKENS);
      positions (split, rank, qpos);
      if (split == ZIGZAG) {
        g_assert_false (sp_mask_cut (TOKENS, qpos, RANKS * TOKENS, kpos, &cut));
        continue;
      }
      check (TOKENS, qpos, RANKS * TOKENS, kpos, &cut);
      g_assert_true (cut.causal && cut.last == (rank > 0));
      g_assert_cmpint (cut.seen, ==, (rank + 1) * TOKENS);
    }
}

static void
test_others (void)
{
  static const gint32 mixed[] = { 3, 1, 2 }, after[] = { 3, 4, 5 }, before[] = { 0, 0, 0 }, wide[] = { 1, 3, 5 };
  SpMaskCut cut;

  check (3, after, 3, mixed, &cut); /* all keys come before, in whatever order */
  g_assert_true (!cut.causal && cut.hidden == 0 && cut.seen == 3);
  check (3, before, 3, mixed, &cut);
  g_assert_cmpint (cut.hidden, ==, 3);
  g_assert_false (sp_mask_cut (3, mixed, 3, mixed, &cut)); /* the own block, but not in order */
  g_assert_false (sp_mask_cut (3, wide, 3, after, &cut));  /* rows see 0, 1 and 3 keys */
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/mask/ring", test_ring);
  g_test_add_func ("/mask/gathered", test_gathered);
  g_test_add_func ("/mask/others", test_others);
  return g_test_run ();
}
