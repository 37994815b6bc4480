/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks do with parts equals what one rank does with the whole: rings of keys in any order, chains and gathers of
 * linear states, vocabulary and rows cut over tensor ranks, dropout, packing for an all-to-all.
 */
#include "tests/reference-data.h"

#include <string.h>

/* Rows `ids` of x[.,width]. */
static double *
take_rows (const double *x, gint64 width, gint64 m, const gint64 *ids)
{
  double *out = g_new (double, width *m);
  for (gint64 i = 0; i < m; i++)
    sp_ref_copy (width, x + ids[i] * width, out + i * width);
  return out;
}

/* Rows `ids` of out[.,width] += x. */
static void
add_rows (const double *x, gint64 width, gint64 m, const gint64 *ids, double *out)
{
  for (gint64 i = 0; i < m; i++)
    sp_ref_accumulate (width, x + i * width, out + ids[i] * width);
}

/* Columns [first, first + width) of x[m,n]. */
static double *
take_columns (const double *x, gint64 m, gint64 n, gint64 first, gint64 width)
{
  double *out = g_new (double, width *m);
  for (gint64 i = 0; i < m; i++)
    sp_ref_copy (width, x + i * n + first, out + i * width);
  return out;
}

#define SEQUENCE 12

typedef struct {
  const char *name;
  gint64 places;
  gboolean zigzag, causal;
  gint64 window;
} RingCase;

/* clang-format off */
static const RingCase ring_cases[] = {
  { "one", 1, FALSE, TRUE },
  { "two-full", 2, FALSE, FALSE },
  { "two-causal", 2, FALSE, TRUE },
  { "three-causal", 3, FALSE, TRUE },
  { "two-zigzag", 2, TRUE, TRUE },
  { "three-zigzag", 3, TRUE, TRUE },
  { "six-zigzag", 6, TRUE, TRUE },
  { "three-window", 3, FALSE, TRUE, 6 },
  { "four-window-1", 4, FALSE, TRUE, 1 },
  { "six-window", 6, FALSE, TRUE, 4 },
  { "two-zigzag-window", 2, TRUE, TRUE, 2 },
  { "three-zigzag-window", 3, TRUE, TRUE, 5 },
};
/* clang-format on */

/* Positions of the tokens of one place; zigzag: half-parts `place` and 2 P - 1 - place of 2 P. */
static void
ring_positions (const RingCase *c, gint64 place, gint64 *pos)
{
  gint64 m = SEQUENCE / c->places, half = m / 2;

  for (gint64 i = 0; i < m; i++)
    if (!c->zigzag)
      pos[i] = place * m + i;
    else
      pos[i] = i < half ? place * half + i : (2 * c->places - 1 - place) * half + i - half;
}

/* The whole, by scores, softmax and context: q, keys, values, d_o -> o, dq, dkeys, dvalues. */
static void
whole_attention (SpRefShape s, gboolean causal, double *const in[4], double *out[4])
{
  gint64 scores_n = s.batch * s.heads * s.m * s.n;
  g_autofree double *p = poison (scores_n);
  g_autofree double *dp = poison (scores_n);
  gint64 pos[SEQUENCE];

  for (gint64 i = 0; i < SEQUENCE; i++)
    pos[i] = i;
  sp_ref_scores (s, in[0], in[1], p);
  sp_ref_softmax (s.batch * s.heads, s.m, s.n, p, causal, s.window, pos, pos, s.heads, NULL, p);
  sp_ref_context (s, p, in[2], out[0]);
  sp_ref_context_bwd (s, p, in[2], in[3], dp, out[3]);
  sp_ref_softmax_bwd (s.batch * s.heads, s.m, s.n, p, dp, s.heads, NULL, dp);
  sp_ref_scores_bwd (s, in[0], in[1], dp, out[1], out[2]);
}

/* One place of a ring that meets the blocks of keys from `start` on in direction `step`; adds its rows to out. */
static void
ring_place (const RingCase *c, SpRefShape s, gint64 place, gint64 start, gint64 step, double *const in[4],
            double *out[4])
{
  gint64 qw = s.batch * s.heads * s.k, kvw = s.batch * s.kv_heads * s.k, rows = s.m * s.batch * s.heads;
  gint64 qpos[SEQUENCE], kpos[SEQUENCE];

  ring_positions (c, place, qpos);
  g_autofree double *q = take_rows (in[0], qw, s.m, qpos);
  g_autofree double *d_o = take_rows (in[3], qw, s.m, qpos);
  g_autofree double *o = poison (s.m * qw);
  g_autofree double *lse = poison (rows);
  g_autofree double *delta = poison (rows);
  g_autofree double *block_o = poison (s.m * qw);
  g_autofree double *block_lse = poison (rows);

  for (gint64 backward = 0; backward < 2; backward++) {
    for (gint64 i = 0; i < c->places; i++) {
      ring_positions (c, (start + step * i + c->places * c->places) % c->places, kpos);
      g_autofree double *keys = take_rows (in[1], kvw, s.n, kpos);
      g_autofree double *values = take_rows (in[2], kvw, s.n, kpos);
      g_autofree double *dkeys = poison (s.n * kvw);
      g_autofree double *dvalues = poison (s.n * kvw);

      if (!backward) {
        sp_ref_attention (s, q, keys, values, c->causal, qpos, kpos, i == 0 ? o : block_o, i == 0 ? lse : block_lse);
        if (i > 0)
          sp_ref_attention_merge (rows, s.k, block_o, block_lse, o, lse);
        continue;
      }
      g_autofree double *dq = poison (s.m * qw);
      sp_ref_attention_bwd (s, q, keys, values, d_o, lse, delta, c->causal, qpos, kpos, dq, dkeys, dvalues);
      add_rows (dq, qw, s.m, qpos, out[1]);
      add_rows (dkeys, kvw, s.n, kpos, out[2]);
      add_rows (dvalues, kvw, s.n, kpos, out[3]);
    }
    if (!backward)
      sp_ref_attention_delta (rows, s.k, d_o, o, delta);
  }
  add_rows (o, qw, s.m, qpos, out[0]);
}

static void
test_ring (gconstpointer data)
{
  const RingCase *c = data;
  const SpRefShape whole = {
    .m = SEQUENCE, .n = SEQUENCE, .k = 4, .batch = 2, .heads = 6, .kv_heads = 2, .window = c->window
  };
  const gint64 q_n = SEQUENCE * 2 * 6 * 4, kv_n = SEQUENCE * 2 * 2 * 4;
  const gint64 in_n[] = { q_n, kv_n, kv_n, q_n }, out_n[] = { q_n, q_n, kv_n, kv_n };
  const char *names[] = { "o", "dq", "dkeys", "dvalues" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);
  double *in[4], *expected[4], *out[4];

  for (int i = 0; i < 4; i++) {
    in[i] = random_array (rand, in_n[i]);
    expected[i] = poison (out_n[i]);
    out[i] = poison (out_n[i]);
  }
  whole_attention (whole, c->causal, in, expected);

  SpRefShape part = whole;
  part.m = part.n = SEQUENCE / c->places;
  for (gint64 start = 0; start < c->places; start++)
    for (gint64 step = -1; step <= 1; step += 2) {
      for (int i = 0; i < 4; i++)
        sp_ref_zero (out_n[i], out[i]);
      for (gint64 place = 0; place < c->places; place++)
        ring_place (c, part, place, start, step, in, out);
      for (int i = 0; i < 4; i++)
        assert_close (names[i], out_n[i], out[i], expected[i], TOLERANCE);
    }

  for (int i = 0; i < 4; i++) {
    g_free (in[i]);
    g_free (expected[i]);
    g_free (out[i]);
  }
}

typedef struct {
  const char *name;
  gint64 places, tokens[SEQUENCE];
} ChainCase;

/* clang-format off */
static const ChainCase chain_cases[] = {
  { "one", 1, { 12 } },
  { "two", 2, { 6, 6 } },
  { "three", 3, { 4, 4, 4 } },
  { "twelve", 12, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 } },
  { "uneven", 3, { 5, 1, 6 } },
};
/* clang-format on */

/* The definition: sums over pairs i >= j. All arrays are [SEQUENCE,batch,heads,width]; in: q, keys, values, d_o; out:
 * o, dq, dkeys, dvalues. */
static void
whole_linear (SpRefShape s, const double *slopes, double *const in[4], double *out[4])
{
  gint64 places = s.batch * s.heads;

  sp_ref_zero (SEQUENCE * places * s.n, out[0]);
  sp_ref_zero (SEQUENCE * places * s.k, out[1]);
  sp_ref_zero (SEQUENCE * places * s.k, out[2]);
  sp_ref_zero (SEQUENCE * places * s.n, out[3]);
  for (gint64 i = 0; i < SEQUENCE; i++)
    for (gint64 j = 0; j <= i; j++)
      for (gint64 bh = 0; bh < places; bh++) {
        gint64 ik = (i * places + bh) * s.k, jk = (j * places + bh) * s.k;
        gint64 in_ = (i * places + bh) * s.n, jn = (j * places + bh) * s.n;
        double factor = pow (exp (-slopes[bh % s.heads]), i - j), qk = 0, dov = 0;

        for (gint64 l = 0; l < s.k; l++)
          qk += factor * in[0][ik + l] * in[1][jk + l];
        for (gint64 l = 0; l < s.n; l++)
          dov += factor * in[3][in_ + l] * in[2][jn + l];
        for (gint64 l = 0; l < s.n; l++) {
          out[0][in_ + l] += qk * in[2][jn + l];
          out[3][jn + l] += qk * in[3][in_ + l];
        }
        for (gint64 l = 0; l < s.k; l++) {
          out[1][ik + l] += dov * in[1][jk + l];
          out[2][jk + l] += dov * in[0][ik + l];
        }
      }
}

/* LASP: the states go from place to place, back again in the backward; with `gather` (LASP-2) each place has the sum
 * from all states at once, which needs equal parts. */
static void
chain (const ChainCase *c, SpRefShape s, const double *slopes, gboolean gather, double *const in[4], double *out[4])
{
  gint64 kw = s.batch * s.heads * s.k, nw = s.batch * s.heads * s.n, state_n = s.batch * s.heads * s.k * s.n;
  g_autofree double *own = poison (c->places * state_n);
  g_autofree double *down = poison (c->places * state_n);
  g_autofree double *before = poison (c->places * state_n);
  g_autofree double *after = poison (state_n);
  gint64 first = 0;

  for (gint64 p = 0; p < c->places; first += c->tokens[p++]) {
    const double *q = in[0] + first * kw, *keys = in[1] + first * kw;
    const double *values = in[2] + first * nw, *d_o = in[3] + first * nw;
    s.m = c->tokens[p];
    sp_ref_linear_local (s, slopes, q, keys, values, out[0] + first * nw, own + p * state_n);
    sp_ref_linear_local_bwd (s, slopes, q, keys, values, d_o, out[1] + first * kw, out[2] + first * kw,
                             out[3] + first * nw, down + p * state_n);
  }

  first = 0;
  for (gint64 p = 0; p < c->places; first += c->tokens[p++]) {
    double *state = before + p * state_n;
    s.m = c->tokens[p];
    if (gather) {
      sp_ref_state_prefix (s, slopes, c->places, p, FALSE, own, state);
    } else if (p == 0) {
      sp_ref_zero (state_n, state);
    } else {
      s.m = c->tokens[p - 1]; /* the sender's tokens */
      sp_ref_state_update (s, slopes, p > 1 ? state - state_n : NULL, own + (p - 1) * state_n, state);
      s.m = c->tokens[p];
    }
    if (p > 0)
      sp_ref_linear_inter (s, slopes, in[0] + first * kw, state, out[0] + first * nw);
  }

  for (gint64 p = c->places - 1; p >= 0; p--) {
    gboolean last = p == c->places - 1;
    s.m = c->tokens[p];
    first -= s.m;
    if (gather)
      sp_ref_state_prefix (s, slopes, c->places, p, TRUE, down, after);
    sp_ref_linear_inter_bwd (s, slopes, in[1] + first * kw, in[2] + first * nw, in[3] + first * nw,
                             p > 0 ? before + p * state_n : NULL, last ? NULL : after, out[1] + first * kw,
                             out[2] + first * kw, out[3] + first * nw);
    if (!gather)
      sp_ref_state_update (s, slopes, last ? NULL : after, down + p * state_n, after);
  }
}

static void
test_chain (gconstpointer data)
{
  const ChainCase *c = data;
  const SpRefShape s = { .n = 3, .k = 4, .batch = 2, .heads = 3 };
  const gint64 kn = SEQUENCE * 2 * 3 * 4, nn = SEQUENCE * 2 * 3 * 3;
  const gint64 in_n[] = { kn, kn, nn, nn }, out_n[] = { nn, kn, kn, nn };
  const char *names[] = { "o", "dq", "dkeys", "dvalues" };
  gboolean equal_parts = c->tokens[0] * c->places == SEQUENCE;
  g_autoptr (GRand) rand = g_rand_new_with_seed (11);
  double *in[4], *expected[4], *out[4];

  for (int i = 0; i < 4; i++) {
    in[i] = random_array (rand, in_n[i]);
    expected[i] = poison (out_n[i]);
    out[i] = poison (out_n[i]);
  }
  whole_linear (s, test_slopes_of_heads, in, expected);
  for (gboolean gather = FALSE; gather <= equal_parts; gather++) {
    chain (c, s, test_slopes_of_heads, gather, in, out);
    for (int i = 0; i < 4; i++)
      assert_close (names[i], out_n[i], out[i], expected[i], TOLERANCE);
  }
  for (int i = 0; i < 4; i++) {
    g_free (in[i]);
    g_free (expected[i]);
    g_free (out[i]);
  }
}

/* Columns 0 1 | 2 | 3 4 5 6 of the vocabulary or of a row. */
#define PARTS 3
static const gint64 part_first[] = { 0, 2, 3 }, part_width[] = { 2, 1, 4 };

static void
test_split_loss (void)
{
  enum { M = 5, N = 7 };
  const double weights[M] = { 0.25, 0.25, 0.5, 0, 0.125 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  g_autofree double *logits = random_array (rand, M * N);
  double max[M], sums[2 * M], d[M * N], loss, max_part[M], sums_part[2 * M], d_part[M * N], loss_part;
  double merged_max[M], merged_sums[2 * M] = { 0 };

  sp_ref_loss_max (M, N, logits, max);
  sp_ref_loss_sum (M, N, logits, max, token_ids, FIRST_ID, sums);
  sp_ref_loss (M, N, logits, max, sums, token_ids, FIRST_ID, weights, &loss, d);

  for (int i = 0; i < M; i++)
    merged_max[i] = -INFINITY;
  for (int stage = 0; stage < 3; stage++)
    for (int p = 0; p < PARTS; p++) {
      gint64 w = part_width[p], first = FIRST_ID + part_first[p];
      g_autofree double *part = take_columns (logits, M, N, part_first[p], w);
      if (stage == 0) {
        sp_ref_loss_max (M, w, part, max_part);
        for (int i = 0; i < M; i++)
          merged_max[i] = fmax (merged_max[i], max_part[i]);
      } else if (stage == 1) {
        sp_ref_loss_sum (M, w, part, merged_max, token_ids, first, sums_part);
        sp_ref_accumulate (2 * M, sums_part, merged_sums);
      } else {
        g_autofree double *expected = take_columns (d, M, N, part_first[p], w);
        sp_ref_loss (M, w, part, merged_max, merged_sums, token_ids, first, weights, &loss_part, d_part);
        assert_close ("loss", 1, &loss_part, &loss, TOLERANCE);
        assert_close ("dlogits", M * w, d_part, expected, TOLERANCE);
      }
    }
}

static void
test_split_embed (void)
{
  enum { M = 5, N = 7, K = 3 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  g_autofree double *table = random_array (rand, N * K);
  double whole[M * K], part[M * K], sum[M * K] = { 0 };

  sp_ref_embed (M, N, K, token_ids, FIRST_ID, table, whole);
  for (int p = 0; p < PARTS; p++) {
    sp_ref_embed (M, part_width[p], K, token_ids, FIRST_ID + part_first[p], table + part_first[p] * K, part);
    sp_ref_accumulate (M * K, part, sum);
  }
  assert_close ("x", M * K, sum, whole, TOLERANCE);
}

/* An RMS row over three tensor ranks: the sums of squares and the dots are all that they exchange. */
static void
test_split_norm (void)
{
  enum { M = 5, N = 7 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (9);
  g_autofree double *x = random_array (rand, M * N);
  g_autofree double *dy = random_array (rand, M * N);
  g_autofree double *gain = random_array (rand, N);
  double y[M * N], stat[M], dx[M * N], dgain[N] = { 0 };
  double squares[M] = { 0 }, dots[M] = { 0 }, row[M], part[M * N], part_stat[M];

  sp_ref_norm (FALSE, M, N, N, x, gain, NULL, NULL, 1e-3, y, stat);
  sp_ref_norm_bwd (FALSE, M, N, N, dy, x, stat, gain, NULL, NULL, dx, dgain, NULL);

  for (int stage = 0; stage < 2; stage++)
    for (int p = 0; p < PARTS; p++) {
      gint64 w = part_width[p], first = part_first[p];
      g_autofree double *x_part = take_columns (x, M, N, first, w);
      g_autofree double *dy_part = take_columns (dy, M, N, first, w);
      if (stage == 0) {
        sp_ref_norm_stat (M, w, x_part, row);
        sp_ref_accumulate (M, row, squares);
        sp_ref_norm_stat_bwd (M, w, dy_part, x_part, gain + first, row);
        sp_ref_accumulate (M, row, dots);
        continue;
      }
      g_autofree double *y_part = take_columns (y, M, N, first, w);
      g_autofree double *dx_part = take_columns (dx, M, N, first, w);
      double dgain_part[N] = { 0 };
      sp_ref_norm (FALSE, M, w, N, x_part, gain + first, NULL, squares, 1e-3, part, part_stat);
      assert_close ("y", M * w, part, y_part, TOLERANCE);
      assert_close ("statistics", M, part_stat, stat, TOLERANCE);
      sp_ref_norm_bwd (FALSE, M, w, N, dy_part, x_part, part_stat, gain + first, NULL, dots, part, dgain_part, NULL);
      assert_close ("dx", M * w, part, dx_part, TOLERANCE);
      assert_close ("dgain", w, dgain_part, dgain + first, TOLERANCE);
    }
}

static void
test_split_dropout (void)
{
  enum { M = 5, N = 7 };
  g_autofree double *x = constant_array (M * N, 1);
  double y[M * N], mask[M * N], y_part[M * N], mask_part[M * N];

  sp_ref_dropout (M, N, x, 99, row_ids, col_ids, 0.5, y, mask);
  for (gint64 first = 0; first < M; first += 2)
    for (int p = 0; p < PARTS; p++) {
      gint64 m = MIN (2, M - first), w = part_width[p];
      g_autofree double *expected = take_columns (mask + first * N, m, N, part_first[p], w);
      sp_ref_dropout (m, w, x, 99, row_ids + first, col_ids + part_first[p], 0.5, y_part, mask_part);
      assert_close ("mask", m * w, mask_part, expected, 0);
      for (gint64 i = 0; i < m * w; i++)
        g_assert_true (y_part[i] == 2 * expected[i]);
    }

  sp_ref_dropout (M, N, x, 99, row_ids, col_ids, 0, y, mask);
  assert_close ("y", M * N, y, x, 0);
}

/* An all-to-all over n ranks: rank j ends with part floor (j parts / n) of all ranks' rows in order of rank, and unpack
 * of the way back gives each row n / parts times. Element (rank, row, part, feature) is that number. */
static void
test_split_pack (gconstpointer data)
{
  enum { RANKS = 4, M = 3, K = 2 };
  gint64 parts = GPOINTER_TO_INT (data), width = parts * K;
  double x[RANKS][M * RANKS * K], sent[RANKS][RANKS][M * K], received[RANKS][RANKS][M * K], back[M * RANKS * K];

  for (int r = 0; r < RANKS; r++) {
    for (gint64 i = 0; i < M * width; i++)
      x[r][i] = 1000 * r + i;
    sp_ref_pack (M, RANKS, K, parts, x[r], &sent[r][0][0]);
  }
  for (int r = 0; r < RANKS; r++)
    for (int j = 0; j < RANKS; j++)
      memcpy (received[j][r], sent[r][j], sizeof received[j][r]);
  for (int j = 0; j < RANKS; j++)
    for (int token = 0; token < RANKS * M; token++)
      for (int l = 0; l < K; l++)
        g_assert_true ((&received[j][0][0])[token * K + l] ==
                       1000 * (token / M) + token % M * width + j * parts / RANKS * K + l);

  for (int r = 0; r < RANKS; r++) {
    sp_ref_unpack (M, RANKS, K, parts, &sent[r][0][0], back);
    for (gint64 i = 0; i < M * width; i++)
      g_assert_true (back[i] == x[r][i] * RANKS / parts);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);

  ADD_TABLE ("split/ring", ring_cases, test_ring);
  ADD_TABLE ("split/chain", chain_cases, test_chain);
  g_test_add_func ("/reference/split/loss", test_split_loss);
  g_test_add_func ("/reference/split/embed", test_split_embed);
  g_test_add_func ("/reference/split/norm", test_split_norm);
  g_test_add_func ("/reference/split/dropout", test_split_dropout);
  g_test_add_data_func ("/reference/split/pack", GINT_TO_POINTER (4), test_split_pack);
  g_test_add_data_func ("/reference/split/pack-repeated", GINT_TO_POINTER (2), test_split_pack);

  return g_test_run ();
}
