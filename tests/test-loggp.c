/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/loggp.h"

#include "tests/loggp-events.h"

/* Costs below: L = 1000, o = 100, g = 150, G = 2 ps a byte, messages of 51 bytes: (k - 1) G = 100. So one message takes
 * L + 2 o + (k - 1) G = 1300, and sends of one rank start every g + (k - 1) G = 250. */

#define BYTES 51
#define ONE_MESSAGE 1300
#define SEND_EVERY 250
#define OVERHEAD 100

static const SpLoggp costs = { .latency = 1000, .overhead = OVERHEAD, .gap = 150, .gap_per_byte_ps = 2 };

static const SpPartner nobody = { .rule = SP_PARTNER_NONE };

static SpPartner
child (gint32 by)
{
  return (SpPartner){ .rule = SP_PARTNER_CHILD, .by = by };
}

static SpPartner
parent (gint32 by)
{
  return (SpPartner){ .rule = SP_PARTNER_PARENT, .by = by };
}

static SpPattern *
build (const char *name, guint32 n_ranks, guint64 bytes, double reduce_ps_per_byte, guint32 n_steps)
{
  const SpPatternKind *kind = sp_pattern_kind_find (name);
  SpPatternRequest request = { n_ranks, bytes, reduce_ps_per_byte, n_steps };

  g_assert_nonnull (kind);
  return sp_pattern_build (kind, &request);
}

/* Runs it, and the same with events, which must agree to the picosecond. */
static SpLoggpResult
run (const SpLoggp *with, const SpPattern *pattern, const SpTime *starts, SpTime *ret_finishes)
{
  g_autoptr (GError) error = NULL;
  g_autofree SpTime *expected = g_new (SpTime, pattern->n_ranks);
  SpLoggpResult result;
  SpTime latest = 0;

  gboolean is_through = sp_loggp_run (with, pattern, starts, ret_finishes, &result, &error);
  g_assert_no_error (error);
  g_assert_true (is_through);
  event_run (with, pattern, pattern->n_ranks * (pattern->steps->len + 1), starts, expected);
  for (guint32 id = 0; id < pattern->n_ranks; id++) {
    g_assert_cmpint (ret_finishes[id], ==, expected[id]);
    latest = MAX (latest, expected[id]);
  }
  g_assert_cmpint (result.makespan, ==, latest);
  return result;
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* The sender is through after o, the receiver after L + 2 o + (k - 1) G. Of one byte, or none: L + 2 o. */
static void
test_one_message (void)
{
  for (guint64 bytes = 0; bytes <= BYTES; bytes += bytes > 0 ? 50 : 1) {
    g_autoptr (SpPattern) pattern = sp_pattern_new (2);
    SpTime finishes[2];
    sp_pattern_add (pattern, child (1), parent (1), bytes, 0);
    SpLoggpResult result = run (&costs, pattern, NULL, finishes);
    g_assert_cmpint (finishes[0], ==, OVERHEAD);
    g_assert_cmpint (finishes[1], ==, bytes > 1 ? ONE_MESSAGE : 1200);
    g_assert_cmpint (result.makespan, ==, finishes[1]);
    g_assert_cmpuint (result.messages, ==, 1);
  }
}

/* Three messages from 0 to 1: sent at 0, 250 and 500, so there after 500 + 1300. With an overhead of 400, beyond the
 * gap: sent at 0, 400 and 800; each is received from 400 + 100 + 1000 = 1500 on, 1900, 2300; through at 2700. */
static void
test_gap (void)
{
  g_autoptr (SpPattern) pattern = sp_pattern_new (2);
  SpLoggp slow = costs;
  SpTime finishes[2];

  slow.overhead = 400;
  for (guint i = 0; i < 3; i++)
    sp_pattern_add (pattern, child (1), parent (1), BYTES, 0);
  run (&costs, pattern, NULL, finishes);
  g_assert_cmpint (finishes[0], ==, 2 * SEND_EVERY + OVERHEAD);
  g_assert_cmpint (finishes[1], ==, 2 * SEND_EVERY + ONE_MESSAGE);
  run (&slow, pattern, NULL, finishes);
  g_assert_cmpint (finishes[0], ==, 1200);
  g_assert_cmpint (finishes[1], ==, 2700);
}

/* 1 and 2 send to 0 at once. Both messages are there at 1200; the first is received at 1200, the second 250 later. */
static void
test_receive_gap (void)
{
  g_autoptr (SpPattern) pattern = sp_pattern_new (3);
  SpTime finishes[3];

  sp_pattern_add (pattern, parent (1), child (1), BYTES, 0);
  sp_pattern_add (pattern, parent (2), child (2), BYTES, 0);
  run (&costs, pattern, NULL, finishes);
  g_assert_cmpint (finishes[0], ==, 1200 + SEND_EVERY + OVERHEAD);
  g_assert_cmpint (finishes[1], ==, OVERHEAD);
  g_assert_cmpint (finishes[2], ==, OVERHEAD);
}

/* Equal ranks: all steps alike, each one message, because 250 < 1300. The reduce-scatter's 7 steps add up 51 bytes at
 * 10 ps each: 14 x 1300 + 7 x 510. */
static void
test_ring_all_reduce (void)
{
  g_autoptr (SpPattern) pattern = build ("ring-all-reduce", 8, 8 * BYTES, 10, 0);
  SpTime finishes[8];

  SpLoggpResult result = run (&costs, pattern, NULL, finishes);
  for (guint i = 0; i < 8; i++)
    g_assert_cmpint (finishes[i], ==, 14 * ONE_MESSAGE + 7 * 510);
  g_assert_cmpuint (result.messages, ==, 8 * 14);
}

/* log2 P rounds, rounded up, of one message: 6 for 64 ranks, 7 for 65 and 100, none for one. */
static void
test_dissemination (void)
{
  static const guint32 n_ranks[] = { 1, 2, 64, 65, 100 };
  static const SpTime rounds[] = { 0, 1, 6, 7, 7 };

  for (guint i = 0; i < G_N_ELEMENTS (n_ranks); i++) {
    g_autoptr (SpPattern) pattern = build ("dissemination", n_ranks[i], BYTES, 0, 0);
    SpTime finishes[100];
    SpLoggpResult result = run (&costs, pattern, NULL, finishes);
    for (guint32 id = 0; id < n_ranks[i]; id++)
      g_assert_cmpint (finishes[id], ==, rounds[i] * ONE_MESSAGE);
    g_assert_cmpuint (result.messages, ==, n_ranks[i] * rounds[i]);
  }
}

/* 6 ranks: 4 and 5 give to 0 and 1, two rounds among four, and back; each reduction takes 510. 0 has what 4 gave at
 * 1300 + 510 and what 1 has after another 1300 + 510. 2 and 3 had no such beginning, so their messages of the second
 * round are there: 0 only sends and receives, 200 + 510. One message back. 8 ranks: 3 rounds. */
static void
test_recursive_doubling (void)
{
  g_autoptr (SpPattern) six = build ("recursive-doubling", 6, BYTES, 10, 0),
                        eight = build ("recursive-doubling", 8, BYTES, 10, 0);
  SpTime finishes[8];

  SpLoggpResult result = run (&costs, six, NULL, finishes);
  g_assert_cmpint (result.makespan, ==, 3 * ONE_MESSAGE + 3 * 510 + 2 * OVERHEAD);
  g_assert_cmpint (finishes[4], ==, result.makespan);
  g_assert_cmpuint (result.messages, ==, 2 + 4 + 4 + 2);
  result = run (&costs, eight, NULL, finishes);
  g_assert_cmpint (result.makespan, ==, 3 * (ONE_MESSAGE + 510));
}

/* 4 ranks: 0 sends to 1 at 0 and to 2 at 250; 1 has it at 1300 and sends to 3. */
static void
test_binomial_broadcast (void)
{
  g_autoptr (SpPattern) pattern = build ("binomial-broadcast", 4, BYTES, 0, 0);
  SpTime finishes[4];

  run (&costs, pattern, NULL, finishes);
  g_assert_cmpint (finishes[0], ==, SEND_EVERY + OVERHEAD);
  g_assert_cmpint (finishes[1], ==, ONE_MESSAGE + OVERHEAD);
  g_assert_cmpint (finishes[2], ==, SEND_EVERY + ONE_MESSAGE);
  g_assert_cmpint (finishes[3], ==, 2 * ONE_MESSAGE);
}

/* 5 ranks: 4 messages in a row. With a gap of 5000 more than a message takes, sends start every 5100. */
static void
test_pairwise_all_to_all (void)
{
  g_autoptr (SpPattern) pattern = build ("pairwise-all-to-all", 5, BYTES, 0, 0);
  SpLoggp sparse = costs;
  SpTime finishes[5];

  g_assert_cmpint (run (&costs, pattern, NULL, finishes).makespan, ==, 4 * ONE_MESSAGE);
  sparse.gap = 5000;
  g_assert_cmpint (run (&sparse, pattern, NULL, finishes).makespan, ==, 3 * 5100 + ONE_MESSAGE);
}

/* A ring of 200 whose rank 0 begins at S, when all its 199 messages are there. It needs 2 o a step (g = 0, one byte).
 * Its first message is at rank 1 at S + T, T = L + 2 o, its others every 2 o; rank k is through when the first chain of
 * k messages has come to it and it has caught up with its 199 - k later ones: S + k T + (199 - k) 2 o. */
static void
test_late_rank (void)
{
  g_autoptr (SpPattern) pattern = build ("ring", 200, 1, 0, 199);
  SpLoggp dense = { .latency = 1000, .overhead = OVERHEAD };
  SpTime starts[200] = { 1000000 }, finishes[200];

  run (&dense, pattern, starts, finishes);
  for (guint k = 0; k < 200; k++)
    g_assert_cmpint (finishes[k], ==, 1000000 + k * 1200 + (199 - k) * 200);
}

/* Steps that only compute, and sends that nobody has to wait for before the end. */
static void
test_compute (void)
{
  g_autoptr (SpPattern) pattern = sp_pattern_new (2);
  SpTime finishes[2];

  sp_pattern_add (pattern, nobody, nobody, 0, 5000);
  sp_pattern_add (pattern, child (1), parent (1), BYTES, 30);
  run (&costs, pattern, NULL, finishes);
  g_assert_cmpint (finishes[0], ==, 5000 + OVERHEAD);
  g_assert_cmpint (finishes[1], ==, 5000 + ONE_MESSAGE + 30);
}

/* --- properties --------------------------------------------------------------------------------------------------- */

/* All patterns, random sizes, costs, starts and jitter: as with events. run() compares. */
static void
test_as_with_events (void)
{
  guint n_kinds;
  const SpPatternKind *const *kinds = sp_pattern_kinds (&n_kinds);

  for (guint32 seed = 0; seed < 60; seed++) {
    g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
    SpPatternRequest request = { (guint32) g_rand_int_range (rand, 1, 140), (guint64) g_rand_int_range (rand, 0, 9000),
                                 g_rand_double (rand), (guint32) g_rand_int_range (rand, 0, 150) };
    SpLoggp with = { .latency = g_rand_int_range (rand, 0, 3000),
                     .overhead = g_rand_int_range (rand, 0, 300),
                     .gap = g_rand_int_range (rand, 0, 900),
                     .gap_per_byte_ps = g_rand_double_range (rand, 0, 2),
                     .jitter = (SpJitter) (seed % 3),
                     .spread = g_rand_double (rand),
                     .seed = seed };
    SpTime starts[140], finishes[140];
    g_test_message ("seed %u", seed);
    for (guint i = 0; i < request.n_ranks; i++)
      starts[i] = g_rand_int_range (rand, 0, seed % 2 ? 1000000 : 100);
    for (guint k = 0; k < n_kinds; k++) {
      g_autoptr (SpPattern) pattern = sp_pattern_build (kinds[k], &request);
      run (&with, pattern, starts, finishes);
    }
  }
}

/* Every partner that a rank names names that rank, in all patterns. */
static void
test_partners_agree (void)
{
  guint n_kinds;
  const SpPatternKind *const *kinds = sp_pattern_kinds (&n_kinds);

  for (guint32 n = 1; n <= 70; n++)
    for (guint k = 0; k < n_kinds; k++) {
      SpPatternRequest request = { n, 100, 0, 3 };
      g_autoptr (SpPattern) pattern = sp_pattern_build (kinds[k], &request);
      for (guint i = 0; i < pattern->steps->len; i++) {
        const SpPatternStep *step = &g_array_index (pattern->steps, SpPatternStep, i);
        for (guint32 id = 0; id < n; id++) {
          guint32 to = sp_partner_of (&step->to, id, n), from = sp_partner_of (&step->from, id, n);
          g_assert_true (to == SP_NO_RANK || (to < n && to != id && sp_partner_of (&step->from, to, n) == id));
          g_assert_true (from == SP_NO_RANK || (from < n && from != id && sp_partner_of (&step->to, from, n) == id));
        }
      }
    }
}

/* --- jitter ------------------------------------------------------------------------------------------------------- */

/* One exchange in pairs that costs nothing but L: each finish is a draw. Mean 1; standard deviation spread / sqrt (3)
 * when uniform, sqrt (exp (spread^2) - 1) when log-normal; to 5 standard errors of 65,536 draws. Twice as many ranks
 * leave those of the first as they were, the same seed gives the same, another one others. */
static void
test_jitter (void)
{
  SpPartner other = { .rule = SP_PARTNER_XOR, .by = 1, .below = 1 << 17 };
  guint32 n = 1 << 16;
  g_autofree SpTime *first = g_new (SpTime, 2 * n), *again = g_new (SpTime, 2 * n);

  for (SpJitter jitter = SP_JITTER_UNIFORM; jitter <= SP_JITTER_LOG_NORMAL; jitter++) {
    SpLoggp with = { .latency = 1000000000, .jitter = jitter, .spread = 0.3, .seed = 7 };
    double expected_sd = jitter == SP_JITTER_UNIFORM ? 0.3 / sqrt (3) : sqrt (exp (0.09) - 1), sum = 0, squares = 0;
    g_autoptr (SpPattern) pairs = sp_pattern_new (n), more = sp_pattern_new (2 * n);
    sp_pattern_add (pairs, other, other, 1, 0);
    sp_pattern_add (more, other, other, 1, 0);
    run (&with, pairs, NULL, first);
    run (&with, more, NULL, again);
    g_assert_cmpmem (first, n * sizeof (SpTime), again, n * sizeof (SpTime));
    for (guint32 i = 0; i < n; i++) {
      double factor = (double) first[i] / 1e9;
      sum += factor, squares += factor * factor;
      g_assert_true (jitter == SP_JITTER_LOG_NORMAL || fabs (factor - 1) <= 0.3);
    }
    double mean = sum / n, sd = sqrt (squares / n - mean * mean);
    g_assert_cmpfloat (fabs (mean - 1), <, 5 * expected_sd / 256);
    g_assert_cmpfloat (fabs (sd - expected_sd), <, 5 * expected_sd / 256);
    with.seed = 8;
    run (&with, pairs, NULL, again);
    guint same = 0;
    for (guint32 i = 0; i < n; i++)
      same += first[i] == again[i];
    g_assert_cmpuint (same, <, 10);
  }
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void
assert_error (const SpLoggp *with, const SpPattern *pattern, SpLoggpError code, const char *expected)
{
  g_autoptr (GError) error = NULL;
  SpLoggpResult result = { .makespan = -1 };

  g_assert_false (sp_loggp_run (with, pattern, NULL, NULL, &result, &error));
  g_assert_error (error, SP_LOGGP_ERROR, (int) code);
  g_assert_cmpstr (error->message, ==, expected);
  g_assert_cmpint (result.makespan, ==, -1);
}

/* 0 sends to 1 in a first step, which nobody does in the second: 1 waits there, so never sends to 2 in the third. */
static void
test_waiting (void)
{
  g_autoptr (SpPattern) pattern = sp_pattern_new (3), many = sp_pattern_new (20);

  sp_pattern_add (pattern, child (1), parent (1), BYTES, 0);
  sp_pattern_add (pattern, nobody, parent (1), BYTES, 0);
  sp_pattern_add (pattern, sp_partner_shift (1), sp_partner_shift (-1), BYTES, 0);
  assert_error (&costs, pattern, SP_LOGGP_ERROR_WAITING,
                "2 of 3 ranks wait for a message that does not come: rank 1 in step 1 for rank 0, "
                "rank 2 in step 2 for rank 1");
  sp_pattern_add (many, nobody, sp_partner_shift (-1), BYTES, 0);
  assert_error (&costs, many, SP_LOGGP_ERROR_WAITING,
                "20 of 20 ranks wait for a message that does not come: rank 0 in step 0 for rank 19, "
                "rank 1 in step 0 for rank 0, rank 2 in step 0 for rank 1, rank 3 in step 0 for rank 2, "
                "rank 4 in step 0 for rank 3, rank 5 in step 0 for rank 4, rank 6 in step 0 for rank 5, "
                "rank 7 in step 0 for rank 6, and 12 more");
}

static void
test_strays (void)
{
  g_autoptr (SpPattern) pattern = sp_pattern_new (3);

  sp_pattern_add (pattern, sp_partner_shift (1), parent (1), BYTES, 0);
  assert_error (&costs, pattern, SP_LOGGP_ERROR_WAITING,
                "nobody waits for 2 messages: rank 1 in step 0 to rank 2, rank 2 in step 0 to rank 0");
}

static void
test_costs (void)
{
  g_autoptr (SpPattern) pattern = build ("dissemination", 4, 1000000000000, 0, 0);
  SpLoggp wrong = costs;

  wrong.gap = -1;
  assert_error (&wrong, pattern, SP_LOGGP_ERROR_COSTS,
                "latency 1000 ps, overhead 100 ps, gap -1 ps, gap per byte 2 ps, spread 0: expected 0 or more, finite");
  wrong = costs, wrong.gap_per_byte_ps = NAN;
  assert_error (
      &wrong, pattern, SP_LOGGP_ERROR_COSTS,
      "latency 1000 ps, overhead 100 ps, gap 150 ps, gap per byte nan ps, spread 0: expected 0 or more, finite");
  wrong = costs, wrong.jitter = SP_JITTER_UNIFORM, wrong.spread = 1.5;
  assert_error (&wrong, pattern, SP_LOGGP_ERROR_COSTS,
                "latency 1000 ps, overhead 100 ps, gap 150 ps, gap per byte 2 ps, spread 1.5: expected 0 or more, "
                "finite, and a uniform spread of 1 at most");
  wrong = costs, wrong.gap_per_byte_ps = 1e7;
  assert_error (&wrong, pattern, SP_LOGGP_ERROR_COSTS, "2 steps may take 4e+07 s: expected less than 4.61169e+06 s");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/loggp/one-message", test_one_message);
  g_test_add_func ("/loggp/gap", test_gap);
  g_test_add_func ("/loggp/receive-gap", test_receive_gap);
  g_test_add_func ("/loggp/ring-all-reduce", test_ring_all_reduce);
  g_test_add_func ("/loggp/dissemination", test_dissemination);
  g_test_add_func ("/loggp/recursive-doubling", test_recursive_doubling);
  g_test_add_func ("/loggp/binomial-broadcast", test_binomial_broadcast);
  g_test_add_func ("/loggp/pairwise-all-to-all", test_pairwise_all_to_all);
  g_test_add_func ("/loggp/late-rank", test_late_rank);
  g_test_add_func ("/loggp/compute", test_compute);
  g_test_add_func ("/loggp/as-with-events", test_as_with_events);
  g_test_add_func ("/loggp/partners-agree", test_partners_agree);
  g_test_add_func ("/loggp/jitter", test_jitter);
  g_test_add_func ("/loggp/waiting", test_waiting);
  g_test_add_func ("/loggp/strays", test_strays);
  g_test_add_func ("/loggp/costs", test_costs);
  return g_test_run ();
}
