/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Transfer times by size as one to three pieces (models/estimate/curves.h): where they break, and which of them grow.
 *
 * Every run of neighbouring sizes is fitted as a piece by itself: plain (latency, rate), with a part that grows with the
 * root of the size (as that of a pipeline does whose chunks are as many as cost least), and with a growth of its own; of
 * all ways to cut the sizes the one is taken for which loss + parameters x ln (points) is least (the Bayesian
 * information criterion with the robust loss), a break counting as a parameter, at most 8 in all. A piece has four
 * sizes at least, so that one wild point is seen for what it is; three, if it does not grow, where there are fewer
 * than twelve in all.
 */

#include "calibrate/fit-core.h"

G_BEGIN_DECLS

#define SP_PIECES_MAX 3
#define SP_PIECES_LEAST_POINTS 4
#define SP_PIECES_MOST_POINTS 48

typedef struct {
  guint first, n; /* points */
  guint parameters;
  SpFitted fitted; /* by the slots of a piece */
  double weights[SP_PIECES_MOST_POINTS];
} SpFittedPiece;

typedef struct {
  SpFittedPiece pieces[SP_PIECES_MAX];
  guint n_pieces, n_parameters;
  double criterion;
} SpFittedPieces;

/* Points by size, ascending (of one size there may be several), at most SP_PIECES_MOST_POINTS. FALSE: nothing fits. */
gboolean sp_fit_pieces (const double *bytes, const double *seconds, const double *sigma, guint n, SpFittedPieces *ret);

G_END_DECLS
