/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/mask.h"

static gboolean
is_rising (gint64 n, const gint32 *positions)
{
  for (gint64 i = 1; i < n; i++)
    if (positions[i] <= positions[i - 1])
      return FALSE;
  return TRUE;
}

/* Keys up to a position, of positions that rise. */
static gint64
count_up_to (gint64 n, const gint32 *kpos, gint32 position)
{
  gint64 low = 0, high = n;

  while (low < high) {
    gint64 middle = low + (high - low) / 2;
    if (kpos[middle] <= position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Where keys do not rise: all of them are seen, or none. */
static gboolean
cut_whole (gint64 m, const gint32 *qpos, gint64 n, const gint32 *kpos, SpMaskCut *ret)
{
  gint32 first = G_MAXINT32, last = G_MININT32, least = G_MAXINT32, most = G_MININT32;

  for (gint64 i = 0; i < m; i++) {
    least = MIN (least, qpos[i]);
    most = MAX (most, qpos[i]);
  }
  for (gint64 j = 0; j < n; j++) {
    first = MIN (first, kpos[j]);
    last = MAX (last, kpos[j]);
  }
  *ret = first > most ? (SpMaskCut){ .hidden = m } : (SpMaskCut){ .seen = n };
  return first > most || last <= least;
}

gboolean
sp_mask_cut (gint64 m, const gint32 *qpos, gint64 n, const gint32 *kpos, SpMaskCut *ret)
{
  gint64 hidden = 0, seen = 0;
  gboolean whole = TRUE, first = TRUE, last = TRUE;

  g_return_val_if_fail (m > 0 && n > 0, FALSE);
  if (!is_rising (n, kpos))
    return cut_whole (m, qpos, n, kpos, ret);
  while (hidden < m && count_up_to (n, kpos, qpos[hidden]) == 0)
    hidden++;
  if (hidden < m)
    seen = count_up_to (n, kpos, qpos[m - 1]);
  for (gint64 i = hidden; i < m; i++) {
    gint64 sees = count_up_to (n, kpos, qpos[i]), row = i - hidden;
    whole &= sees == seen;
    first &= sees == MIN (row + 1, seen);
    last &= sees == seen - (m - 1 - i);
  }
  *ret = (SpMaskCut){ hidden, seen, !whole, !whole && !first };
  return whole || first || last;
}
