/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-pieces.h"

#include <math.h>
#include <string.h>

#include "models/estimate/curves.h"

/* Sizes from which on a piece has four of them at least. */
#define DENSE 12

typedef struct {
  const double *bytes;
  gboolean grows;
} Data;

static double
seconds_of (const double *parameters, guint point, gconstpointer data)
{
  const Data *d = data;
  double piece[SP_PIECE_SLOTS] = { parameters[0], d->grows ? parameters[2] : 0, parameters[1] };

  return sp_curve_piece_s (piece, d->bytes[point]);
}

/* Latency, rate and growth in this order; in the slots of a piece afterwards. */
static gboolean
fit_piece (const double *bytes, const double *log_seconds, const double *sigma, guint first, guint n, gboolean grows,
           SpFittedPiece *ret)
{
  Data data = { bytes + first, grows };
  double last = exp (log_seconds[first + n - 1]), least = exp (log_seconds[first]);
  SpFitProblem problem = {
    .n_points = n,
    .n_parameters = grows ? 3 : 2,
    .log_seconds = log_seconds + first,
    .sigma = sigma + first,
    .start = { least * 0.7, bytes[first + n - 1] / last * 1.2, 0.3 },
    .lower = { least * 1e-4, bytes[first + n - 1] / last * 0.02, 0.01 }, /* the last may be wild */
    .upper = { last * 4, bytes[first + n - 1] / last * 1e4, 0.95 },
    .seconds = seconds_of,
    .data = &data,
  };

  *ret = (SpFittedPiece){ .first = first, .n = n, .grows = grows };
  if (!sp_fit (&problem, &ret->fitted, NULL, ret->weights))
    return FALSE;
  const guint from[SP_PIECE_SLOTS] = { 0, 2, 1 };
  SpFitted f = ret->fitted;
  for (guint i = 0; i < SP_PIECE_SLOTS; i++) {
    ret->fitted.value[i] = f.value[from[i]];
    ret->fitted.error[i] = f.error[from[i]];
    ret->fitted.fixed[i] = f.fixed[from[i]];
    for (guint j = 0; j < SP_PIECE_SLOTS; j++)
      ret->fitted.covariance[i][j] = f.covariance[from[i]][from[j]];
  }
  if (!grows) {
    ret->fitted.value[SP_PIECE_GROWTH] = 0;
    ret->fitted.fixed[SP_PIECE_GROWTH] = TRUE;
  }
  return TRUE;
}

typedef struct {
  const double *bytes;
  const SpFittedPiece *pieces; /* [from][to][grows], of which `found` says which are there */
  const gboolean *found;
  guint n;
  double penalty;
} Search;

static guint
index_of (const Search *s, guint from, guint to, gboolean grows)
{
  return (from * (s->n + 1) + to) * 2 + (grows ? 1 : 0);
}

/* The best way to cover points from `from` on with at most `left` parameters, behind what `now` has. No piece ends
 * between points of one size: the next one begins at a larger. */
static void
cut (const Search *s, guint from, guint left, SpFittedPieces *now, SpFittedPieces *best)
{
  if (from == s->n) {
    if (now->criterion < best->criterion)
      *best = *now;
    return;
  }
  if (now->n_pieces == SP_PIECES_MAX || now->criterion >= best->criterion)
    return;
  for (guint to = from + 1; to <= s->n; to++)
    for (guint grows = 0; grows <= 1; grows++) {
      guint at = index_of (s, from, to, grows), cost = (grows ? 3 : 2) + (from > 0);
      if (!s->found[at] || cost > left || (to < s->n && s->bytes[to] <= s->bytes[to - 1]))
        continue;
      double before = now->criterion;
      now->pieces[now->n_pieces++] = s->pieces[at];
      now->n_parameters += cost;
      now->criterion += s->pieces[at].fitted.loss + cost * s->penalty;
      cut (s, to, left - cost, now, best);
      now->criterion = before;
      now->n_parameters -= cost;
      now->n_pieces--;
    }
}

gboolean
sp_fit_pieces (const double *bytes, const double *seconds, const double *sigma, guint n, SpFittedPieces *ret)
{
  g_return_val_if_fail (n <= SP_PIECES_MOST_POINTS, FALSE);
  g_autofree double *log_seconds = g_new (double, n);
  g_autofree SpFittedPiece *pieces = g_new0 (SpFittedPiece, (n + 1) * (n + 1) * 2);
  g_autofree gboolean *found = g_new0 (gboolean, (n + 1) * (n + 1) * 2);
  Search search = { bytes, pieces, found, n, log (n) };
  SpFittedPieces now = { .n_pieces = 0 };
  gboolean dense = n >= DENSE;

  *ret = (SpFittedPieces){ .criterion = INFINITY };
  for (guint i = 0; i < n; i++)
    log_seconds[i] = log (seconds[i]);
  for (guint from = 0; from < n; from++)
    for (guint grows = 0; grows <= 1; grows++)
      for (guint to = from + (dense ? 4 : 3 + grows); to <= n; to++) {
        guint at = index_of (&search, from, to, grows), least = dense ? 4 : 3;
        /* No piece could stand before it, or behind; and one between two others has no parameter left to grow by. */
        if ((from > 0 && from < least) || (to < n && to + least > n) || (grows && from > 0 && to < n))
          continue;
        found[at] = fit_piece (bytes, log_seconds, sigma, from, to - from, grows, &pieces[at]);
      }
  cut (&search, 0, SP_FIT_MAX_PARAMETERS, &now, ret);
  return ret->criterion < INFINITY;
}
