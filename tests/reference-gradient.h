/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A backward held against central differences of its forward. Outputs are NaN before every call; gradients that an op
 * adds to start from a number. */

#include "tests/reference-data.h"

#define MAX_ARRAYS 8

typedef enum { SIZES, FORWARD, BACKWARD } Stage;
typedef struct Case Case;

/* Inputs and outputs of one op, with gradients. SIZES sets the lengths and the flags; auxiliary outputs carry no
 * gradient; a `sum` gradient is one that the op adds to what is there. */
typedef struct {
  double *in[MAX_ARRAYS], *d_in[MAX_ARRAYS], *out[MAX_ARRAYS], *d_out[MAX_ARRAYS];
  gint64 in_n[MAX_ARRAYS], out_n[MAX_ARRAYS];
  gboolean in_sum[MAX_ARRAYS], out_auxiliary[MAX_ARRAYS];
} Arrays;

struct Case {
  const char *name;
  void (*op) (Stage stage, const Case *c, Arrays *a);
  SpRefShape shape;
  guint flags;
};

/* sum over outputs of d_out * out: the scalar whose gradient d_in must be. */
static inline double
scalar_of (const Case *c, Arrays *a)
{
  double sum = 0;

  for (int i = 0; i < MAX_ARRAYS; i++)
    for (gint64 j = 0; j < a->out_n[i]; j++)
      a->out[i][j] = NAN;
  c->op (FORWARD, c, a);
  for (int i = 0; i < MAX_ARRAYS; i++)
    for (gint64 j = 0; j < a->out_n[i] && !a->out_auxiliary[i]; j++)
      sum += a->d_out[i][j] * a->out[i][j];
  return sum;
}

/* Central differences with step h err by h^2 f'''/6 + rounding 1e-16 f/h: with h = 1e-5 about 1e-10 of each, times a
 * few for sums, so 1e-8 holds and a wrong term does not. */
static inline void
test_gradient (gconstpointer data)
{
  const Case *c = data;
  const double h = 1e-5, at_start = 0.5;
  g_autoptr (GRand) rand = g_rand_new_with_seed (20260801);
  Arrays a = { 0 };

  c->op (SIZES, c, &a);
  for (int i = 0; i < MAX_ARRAYS; i++) {
    a.in[i] = random_array (rand, a.in_n[i]);
    a.d_in[i] = constant_array (a.in_n[i], a.in_sum[i] ? at_start : NAN);
    a.out[i] = poison (a.out_n[i]);
    a.d_out[i] = random_array (rand, a.out_n[i]);
  }
  scalar_of (c, &a);
  c->op (BACKWARD, c, &a);

  for (int i = 0; i < MAX_ARRAYS; i++)
    for (gint64 j = 0; j < a.in_n[i]; j++) {
      double x = a.in[i][j];
      a.in[i][j] = x + h;
      double above = scalar_of (c, &a);
      a.in[i][j] = x - h;
      double below = scalar_of (c, &a);
      a.in[i][j] = x;

      double expected = (above - below) / (2 * h), got = a.d_in[i][j] - (a.in_sum[i] ? at_start : 0);
      if (!is_close (got, expected, 1e-8))
        g_error ("gradient of input %d at %" G_GINT64_FORMAT " is %.12g, not %.12g", i, j, got, expected);
    }

  for (int i = 0; i < MAX_ARRAYS; i++) {
    g_free (a.in[i]);
    g_free (a.d_in[i]);
    g_free (a.out[i]);
    g_free (a.d_out[i]);
  }
}
