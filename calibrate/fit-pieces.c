/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-pieces.h"

#include <math.h>
#include <string.h>

#include "models/estimate/curves.h"

/* Sizes from which on a piece has four of them at least. */
#define DENSE 12

/* Beside what each byte takes: nothing, a part by the root of the size, a part by a power of it that is fitted. */
typedef enum { PLAIN, ROOT, FREE, N_SHAPES } Shape;

typedef struct {
  const double *bytes;
  Shape shape;
} Data;

static guint
parameters_of (Shape shape)
{
  return shape == FREE ? 3 : 2;
}

static double
seconds_of (const double *parameters, guint point, gconstpointer data)
{
  const Data *d = data;
  double growth = d->shape == FREE ? parameters[2] : d->shape == ROOT ? 0.5 : 0;
  double piece[SP_PIECE_SLOTS] = { parameters[0], growth, parameters[1] };

  return sp_curve_piece_s (piece, d->bytes[point]);
}

/* Latency, rate and growth in this order; in the slots of a piece afterwards. */
static gboolean
fit_piece (const double *bytes, const double *log_seconds, const double *sigma, guint first, guint n, Shape shape,
           SpFittedPiece *ret)
{
  Data data = { bytes + first, shape };
  double last = exp (log_seconds[first + n - 1]), least = exp (log_seconds[first]);
  SpFitProblem problem = {
    .n_points = n,
    .n_parameters = parameters_of (shape),
    .log_seconds = log_seconds + first,
    .sigma = sigma + first,
    .start = { least * 0.7, bytes[first + n - 1] / last * 1.2, 0.3 },
    .lower = { least * 1e-4, bytes[first + n - 1] / last * 0.02, 0.01 }, /* the last may be wild */
    .upper = { last * 4, bytes[first + n - 1] / last * 1e4, 0.95 },
    .seconds = seconds_of,
    .data = &data,
  };

  *ret = (SpFittedPiece){ .first = first, .n = n, .parameters = parameters_of (shape) };
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
  if (shape != FREE) {
    ret->fitted.value[SP_PIECE_GROWTH] = shape == ROOT ? 0.5 : 0;
    ret->fitted.fixed[SP_PIECE_GROWTH] = TRUE;
  }
  return TRUE;
}

typedef struct {
  const double *bytes;
  const SpFittedPiece *pieces; /* [from][to][shape], of which `found` says which are there */
  const gboolean *found;
  guint n;
  double penalty;
} Search;

static guint
index_of (const Search *s, guint from, guint to, Shape shape)
{
  return (from * (s->n + 1) + to) * N_SHAPES + shape;
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
    for (Shape shape = PLAIN; shape < N_SHAPES; shape++) {
      guint at = index_of (s, from, to, shape), cost = parameters_of (shape) + (from > 0);
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
  g_autofree SpFittedPiece *pieces = g_new0 (SpFittedPiece, (n + 1) * (n + 1) * N_SHAPES);
  g_autofree gboolean *found = g_new0 (gboolean, (n + 1) * (n + 1) * N_SHAPES);
  Search search = { bytes, pieces, found, n, log (n) };
  SpFittedPieces now = { .n_pieces = 0 };
  gboolean dense = n >= DENSE;

  *ret = (SpFittedPieces){ .criterion = INFINITY };
  for (guint i = 0; i < n; i++)
    log_seconds[i] = log (seconds[i]);
  for (guint from = 0; from < n; from++)
    for (Shape shape = PLAIN; shape < N_SHAPES; shape++)
      for (guint to = from + (dense || shape != PLAIN ? 4 : 3); to <= n; to++) {
        guint at = index_of (&search, from, to, shape), least = dense ? 4 : 3;
        /* No piece could stand before it, or behind; and one between two others has no parameter left to grow by. */
        if ((from > 0 && from < least) || (to < n && to + least > n) || (shape == FREE && from > 0 && to < n))
          continue;
        found[at] = fit_piece (bytes, log_seconds, sigma, from, to - from, shape, &pieces[at]);
      }
  cut (&search, 0, SP_FIT_MAX_PARAMETERS, &now, ret);
  return ret->criterion < INFINITY;
}
