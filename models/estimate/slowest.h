/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The most extreme of some cards. Cards of a kind draw more or less for the same work; a step that they do together waits
 * for the one that draws most, as that one's clock is the lowest. If what they draw is normal around the kind's mean, the
 * most of n lies E standard deviations above it, give or take S of them:
 *   E = int x dF^n, S^2 = int (x - E)^2 dF^n, F the normal distribution's function
 *   n            1      2      4      8      64     1,024  16,384
 *   E            0      0.564  1.029  1.424  2.344  3.248  3.971
 *   S            1      0.826  0.701  0.611  0.451  0.351  0.296
 *
 * Known lies. The tail of many cards is the normal one's, where a maker tests cards and a site returns the worst; and
 * every card has the same to do, which stages of a pipeline and places of a chain have not.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
  double mean, deviation; /* in standard deviations of one card */
} SpSlowest;

/* Of n cards, 1 at least; to 1e-6. */
SpSlowest sp_slowest_of (gint32 n);

G_END_DECLS
