/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrences by the definition with matrices, and a sequence cut in parts, whose states and last rows go from part to
 * part, against the whole.
 */
#include "tests/reference-recurrent.h"

#include <string.h>

/* --- the definition by matrices ----------------------------------------------------------------------------------- */

#define SEQUENCE 12

typedef struct {
  const char *name;
  gint64 places;
  guint flags;
} SplitCase;

/* clang-format off */
static const SplitCase split_cases[] = {
  { "none", 3, 0 },
  { "head", 4, HEAD },
  { "head-beta", 12, HEAD | BETA },
  { "feature", 3, FEATURE },
  { "scan", 2, SCAN },
  { "delta", 4, DELTA | BETA },
  { "delta-head", 3, DELTA | BETA | HEAD },
  { "delta-feature", 6, DELTA | BETA | FEATURE },
};
/* clang-format on */

static SpRefShape
split_shape (guint flags)
{
  return (
      SpRefShape){ .m = SEQUENCE, .n = 3, .k = 4, .batch = 2, .heads = 4, .kv_heads = (flags & DECAY) == SCAN ? 1 : 2 };
}

/* S = A S + w k v^T with A written out, entry by entry. */
static void
matrix_step (SpRefShape s, guint flags, double *const in[], gint64 row, gint64 h, double *state)
{
  gint64 scalar = row * s.heads + h;
  const double *key = in[K] + (row * s.kv_heads + h * s.kv_heads / s.heads) * s.k, *value = in[V] + scalar * s.n;
  double weight = (flags & DECAY) == SCAN ? in[GATES][scalar] : flags & BETA ? in[WEIGHT][scalar] : 1;
  double next[4 * 3] = { 0 };

  for (gint64 i = 0; i < s.k; i++)
    for (gint64 j = 0; j < s.n; j++) {
      next[i * s.n + j] = weight * key[i] * value[j];
      for (gint64 l = 0; l < s.k; l++) {
        double a = (i == l) - (flags & DELTA ? weight * key[i] * key[l] : 0);
        if ((flags & DECAY) == HEAD)
          a *= exp (in[GATES][scalar]);
        else if ((flags & DECAY) == FEATURE)
          a *= exp (in[GATES][scalar * s.k + l]);
        else if ((flags & DECAY) == SCAN)
          a *= exp (-exp (in[LOG_RATES][h * s.k + l]) * in[GATES][scalar]);
        next[i * s.n + j] += a * state[l * s.n + j];
      }
    }
  memcpy (state, next, sizeof next);
}

static void
matrix_recurrence (SpRefShape s, guint flags, double *const in[], double *o)
{
  for (gint64 b = 0; b < s.batch; b++)
    for (gint64 h = 0; h < s.heads; h++) {
      double state[4 * 3] = { 0 };
      for (gint64 t = 0; t < s.m; t++) {
        gint64 row = t * s.batch + b;
        const double *q = in[Q] + (row * s.kv_heads + h * s.kv_heads / s.heads) * s.k;
        matrix_step (s, flags, in, row, h, state);
        for (gint64 j = 0; j < s.n; j++) {
          o[(row * s.heads + h) * s.n + j] = 0;
          for (gint64 i = 0; i < s.k; i++)
            o[(row * s.heads + h) * s.n + j] += state[i * s.n + j] * q[i];
        }
      }
    }
}

/* --- cut in parts ------------------------------------------------------------------------------------------------- */

enum { OUT, DQ, DK, DV, DGATES, DWEIGHT, DRATES, N_OUT };

static const double *
part_or_null (const double *x, gint64 p, gint64 n)
{
  return n > 0 ? x + p * n : NULL;
}

/* Each place's own M and T, and dM and T. */
static void
own_parts (const SplitCase *c, SpRefShape s, double *const in[], const gint64 width[], const double *d_o,
           double *forward, double *backward)
{
  SpRefRecurrence r = recurrence_of (s, c->flags, in);
  gint64 state_n = s.batch * s.heads * s.k * s.n, each = state_n + sp_ref_transfer_elements (&r);

  for (gint64 p = 0; p < c->places; p++) {
    const double *q = in[Q] + p * width[Q], *keys = in[K] + p * width[K], *values = in[V] + p * width[V];
    const double *gates = part_or_null (in[GATES], p, width[GATES]),
                 *beta = part_or_null (in[WEIGHT], p, width[WEIGHT]);
    sp_ref_recurrent_own (&r, keys, values, gates, beta, forward + p * each, forward + p * each + state_n);
    sp_ref_recurrent_own_bwd (&r, q, keys, gates, beta, d_o + p * width[V], backward + p * each);
    sp_ref_copy (each - state_n, forward + p * each + state_n, backward + p * each + state_n);
  }
}

static void
test_split (gconstpointer data)
{
  const SplitCase *c = data;
  const char *names[] = { "o", "dq", "dkeys", "dvalues", "dgates", "dbeta", "drates" };
  SpRefShape s = split_shape (c->flags);
  g_autoptr (GRand) rand = g_rand_new_with_seed (23);
  gint64 in_n[N_IN], width[N_IN], out_n[N_OUT];
  double *in[N_IN], *expected[N_OUT], *out[N_OUT];

  recurrent_sizes (s, c->flags, in_n);
  const gint64 of_in[N_OUT] = { V, Q, K, V, GATES, WEIGHT, LOG_RATES };
  for (int i = 0; i < N_IN; i++) {
    in[i] = random_array (rand, in_n[i]);
    width[i] = in_n[i] / c->places;
  }
  for (int i = 0; i < N_OUT; i++) {
    out_n[i] = in_n[of_in[i]];
    expected[i] = constant_array (out_n[i], i == DRATES ? 0 : NAN);
    out[i] = constant_array (out_n[i], i == DRATES ? 0 : NAN);
  }
  make_plausible (c->flags, in_n, in);
  g_autofree double *d_o = random_array (rand, in_n[V]);

  SpRefRecurrence r = recurrence_of (s, c->flags, in);
  const double *beta = part_or_null (in[WEIGHT], 0, in_n[WEIGHT]);
  g_autofree double *by_matrix = poison (in_n[V]);
  matrix_recurrence (s, c->flags, in, by_matrix);
  sp_ref_recurrent (&r, in[Q], in[K], in[V], in[GATES], beta, NULL, expected[OUT]);
  assert_close ("o", in_n[V], expected[OUT], by_matrix, TOLERANCE);
  sp_ref_recurrent_bwd (&r, in[Q], in[K], in[V], in[GATES], beta, d_o, NULL, NULL, expected[DQ], expected[DK],
                        expected[DV], expected[DGATES], beta ? expected[DWEIGHT] : NULL, expected[DRATES]);

  s.m = SEQUENCE / c->places;
  r.shape = s;
  gint64 state_n = s.batch * s.heads * s.k * s.n, each = state_n + sp_ref_transfer_elements (&r);
  g_autofree double *forward = poison (c->places * each);
  g_autofree double *backward = poison (c->places * each);
  g_autofree double *before = poison (c->places * state_n);
  g_autofree double *after = poison (c->places * state_n);
  own_parts (c, s, in, width, d_o, forward, backward);

  /* The chain, then the gather, must give the same states. */
  for (gint64 p = 0; p < c->places; p++) {
    gint64 last = c->places - 1, back = last - p;
    sp_ref_zero (p == 0 ? state_n : 0, before);
    sp_ref_zero (p == 0 ? state_n : 0, after + last * state_n);
    if (p > 0) {
      const double *own = forward + (p - 1) * each, *down = backward + (back + 1) * each;
      sp_ref_transfer_update (&r, FALSE, own + state_n, p > 1 ? before + (p - 1) * state_n : NULL, own,
                              before + p * state_n);
      sp_ref_transfer_update (&r, TRUE, down + state_n, p > 1 ? after + (back + 1) * state_n : NULL, down,
                              after + back * state_n);
    }
  }
  for (gint64 p = 0; p < c->places; p++) {
    g_autofree double *gathered = poison (state_n);
    sp_ref_transfer_prefix (&r, c->places, p, FALSE, forward, gathered);
    assert_close ("state before", state_n, gathered, before + p * state_n, TOLERANCE);
    sp_ref_transfer_prefix (&r, c->places, p, TRUE, backward, gathered);
    assert_close ("gradient after", state_n, gathered, after + p * state_n, TOLERANCE);
  }

  for (gint64 p = 0; p < c->places; p++) {
    const double *q = in[Q] + p * width[Q], *keys = in[K] + p * width[K], *values = in[V] + p * width[V];
    const double *gates = part_or_null (in[GATES], p, width[GATES]);
    const double *weights = part_or_null (in[WEIGHT], p, width[WEIGHT]);
    const double *state = p > 0 ? before + p * state_n : NULL;
    sp_ref_recurrent (&r, q, keys, values, gates, weights, state, out[OUT] + p * width[V]);
    sp_ref_recurrent_bwd (&r, q, keys, values, gates, weights, d_o + p * width[V], state,
                          p < c->places - 1 ? after + p * state_n : NULL, out[DQ] + p * width[Q],
                          out[DK] + p * width[K], out[DV] + p * width[V], gates ? out[DGATES] + p * width[GATES] : NULL,
                          weights ? out[DWEIGHT] + p * width[WEIGHT] : NULL, out[DRATES]);
  }
  for (int i = 0; i < N_OUT; i++) {
    assert_close (names[i], out_n[i], out[i], expected[i], TOLERANCE);
    g_free (expected[i]);
    g_free (out[i]);
  }
  for (int i = 0; i < N_IN; i++)
    g_free (in[i]);
}

static void
test_in_place (void)
{
  enum { N = 2 * 3 * 4 * 3 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (31);
  g_autofree double *in = random_array (rand, N);
  g_autofree double *own = random_array (rand, N);
  g_autofree double *transfer = random_array (rand, 2 * 3 * 4 * 4);
  double apart[N], same[N];

  for (guint flags = 0; flags < 8; flags++) {
    const SpRefRecurrence r = { .shape = { .m = 1, .n = 3, .k = 4, .batch = 2, .heads = 3, .kv_heads = 3 },
                                .decay = (SpRefDecay) (flags & DECAY),
                                .delta = (flags & DELTA) != 0 };
    sp_ref_transfer_update (&r, TRUE, transfer, in, own, apart);
    sp_ref_copy (N, in, same);
    sp_ref_transfer_update (&r, TRUE, transfer, same, own, same);
    assert_close ("in", N, same, apart, 0);
    sp_ref_copy (N, own, same);
    sp_ref_transfer_update (&r, TRUE, transfer, in, same, same);
    assert_close ("own", N, same, apart, 0);
  }
}

/* Three places of four tokens: each has the last rows of the one before, and sends back their gradient. */
static void
test_split_conv (void)
{
  enum { PLACES = 3, BATCH = 2, N = 5, WIDTH = 4, M = SEQUENCE / PLACES, ROW = BATCH * N, TAIL = (WIDTH - 1) * ROW };
  const SpRefConv whole = { SEQUENCE, BATCH, N, WIDTH }, part = { M, BATCH, N, WIDTH };
  g_autoptr (GRand) rand = g_rand_new_with_seed (29);
  g_autofree double *x = random_array (rand, SEQUENCE * ROW);
  g_autofree double *d = random_array (rand, SEQUENCE * ROW);
  g_autofree double *weight = random_array (rand, N * WIDTH);
  g_autofree double *bias = random_array (rand, N);
  double y[SEQUENCE * ROW], dx[SEQUENCE * ROW], dweight[N * WIDTH] = { 0 }, dbias[N] = { 0 };
  double part_y[SEQUENCE * ROW], part_dx[SEQUENCE * ROW], part_dweight[N * WIDTH] = { 0 }, part_dbias[N] = { 0 };

  sp_ref_conv (&whole, x, weight, bias, NULL, y);
  sp_ref_conv_bwd (&whole, d, x, weight, bias, NULL, dx, dweight, dbias, NULL);
  double dhalo[PLACES][TAIL];
  for (int p = 0; p < PLACES; p++) {
    gint64 at = p * M * ROW;
    const double *halo = p > 0 ? x + at - TAIL : NULL;
    sp_ref_conv (&part, x + at, weight, bias, halo, part_y + at);
    sp_ref_conv_bwd (&part, d + at, x + at, weight, bias, halo, part_dx + at, part_dweight, part_dbias, dhalo[p]);
    if (p > 0)
      sp_ref_accumulate (TAIL, dhalo[p], part_dx + at - TAIL);
  }
  assert_close ("out", SEQUENCE * ROW, part_y, y, TOLERANCE);
  assert_close ("dx", SEQUENCE * ROW, part_dx, dx, TOLERANCE);
  assert_close ("dweight", N * WIDTH, part_dweight, dweight, TOLERANCE);
  assert_close ("dbias", N, part_dbias, dbias, TOLERANCE);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  ADD_TABLE ("recurrent/split", split_cases, test_split);
  g_test_add_func ("/reference/recurrent/split-conv", test_split_conv);
  g_test_add_func ("/reference/recurrent/in-place", test_in_place);

  return g_test_run ();
}
