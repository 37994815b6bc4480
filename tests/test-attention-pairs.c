/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/attention.h"
#include "tests/rehearse-cases.h"

/* Query-key pairs in closed form against counting them one by one, and what a ring's ops are priced with. */

#define SEQUENCE 48

/* The token of row `i` of a place. */
static gint64
position_of (SpTokenSplit split, gint32 ring, gint32 place, gint32 tokens, gint32 i)
{
  gint32 half = tokens / 2;

  if (split == SP_TOKENS_CONTIGUOUS)
    return (gint64) place * tokens + i;
  return i < half ? (gint64) place * half + i : (gint64) (2 * ring - 1 - place) * half + i - half;
}

static double
count (SpTokenSplit split, gint32 ring, gint32 place, gint32 step, gint32 tokens, gint32 window)
{
  double pairs = 0;

  for (gint32 i = 0; i < tokens; i++)
    for (gint32 j = 0; j < tokens; j++) {
      gint64 distance = position_of (split, ring, place, tokens, i) -
                        position_of (split, ring, (place - step + ring) % ring, tokens, j);
      pairs += distance >= 0 && (window == 0 || distance < window);
    }
  return pairs;
}

static void
test_count (void)
{
  for (SpTokenSplit split = SP_TOKENS_CONTIGUOUS; split <= SP_TOKENS_ZIGZAG; split++)
    for (gint32 ring = 1; ring <= 5; ring++)
      for (gint32 tokens = 2; tokens <= 6; tokens += 2)
        for (gint32 window = 0; window <= ring * tokens + 1; window++)
          for (gint32 place = 0; place < ring; place++)
            for (gint32 step = 0; step < ring; step++) {
              double expected = count (split, ring, place, step, tokens, window);
              g_assert_true (sp_attention_pairs (split, ring, place, step, tokens, TRUE, window) == expected);
              g_assert_true (sp_attention_pairs (split, ring, place, step, tokens, FALSE, 0) == tokens * tokens);
            }
}

/* 4 tokens a place, a window of 6: a query sees itself and 5 before. At home 1 + 2 + 3 + 4 = 10. One place back distances
 * are 1 .. 7, of which 6 has two pairs and 7 one: 16 - 3. Two back they are 5 .. 11: the one pair of 5. */
static void
test_by_hand (void)
{
  const double expected[] = { 10, 13, 1, 0 };

  for (gint32 step = 0; step < 4; step++)
    g_assert_true (sp_attention_pairs (SP_TOKENS_CONTIGUOUS, 4, 3, step, 4, TRUE, 6) == expected[step]);
}

static SpProgram *
write_ring (SpTokenSplit split, gint32 ring, gint32 window)
{
  RehearseCase c = { "ring", SMALL_WINDOW, 0, SEQUENCE, 1, 1, LAYOUT (.zero = 0, .ring = ring, .token_split = split) };
  g_autoptr (SpArchitecture) arch = small_model (SMALL_WINDOW);
  SpFramework framework = small_framework (TRUE);
  SpProgram *program = sp_program_new ();
  SpRun run = rehearse_case_run (&c);

  arch->window = window;
  sp_program_write (program, arch, &framework, &c.layout, &run);
  return program;
}

/* FLOP of the forward's attention ops, times the steps in which they run, are those of the pairs of the place that has
 * most; steps that are left out have none on any place. */
static void
check_ring (SpTokenSplit split, gint32 ring, gint32 window)
{
  g_autoptr (SpProgram) program = write_ring (split, ring, window);
  gint32 tokens = SEQUENCE / ring;
  double flops = 0, most = 0;
  guint n;

  for (gint32 place = 0; place < ring; place++) {
    double pairs = 0;
    for (gint32 step = 0; step < ring; step++)
      pairs += count (split, ring, place, step, tokens, window);
    most = MAX (most, pairs);
  }
  const SpOp *ops = sp_program_segment (program, &program->variants[0].blocks[1], SP_PHASE_FORWARD, &n);
  for (gint32 step = 0; step < ring; step++) {
    gboolean runs = FALSE, needed = FALSE;
    for (guint i = 0; i < n; i++)
      if (ops[i].kind == SP_OP_ATTENTION && sp_op_holds (&ops[i], ring - 1, ring, step, ring)) {
        flops += ops[i].flops;
        runs = TRUE;
      }
    for (gint32 place = 0; place < ring; place++)
      needed |= count (split, ring, place, step, tokens, window) > 0;
    g_assert_true (runs == needed);
  }
  double expected = 4 * most * 8 * 4; /* the small model's 8 heads of 4 */
  g_assert_cmpfloat_with_epsilon (flops, expected, 1e-9 * expected);
}

/* Keys that a row of a place sees at a step. */
static gint32
count_row (SpTokenSplit split, gint32 ring, gint32 place, gint32 step, gint32 tokens, gint32 row)
{
  gint32 seen = 0;

  for (gint32 j = 0; j < tokens; j++)
    seen += position_of (split, ring, place, tokens, row) >=
            position_of (split, ring, (place - step + ring) % ring, tokens, j);
  return seen;
}

/* Rows of a step that is marked as unmasked see all as many keys, or none. The first step is not marked, nor is a ring
 * whose mask cuts through its parts. */
static void
check_unmasked (SpTokenSplit split, gint32 ring, gint32 window)
{
  g_autoptr (SpProgram) program = write_ring (split, ring, window);
  gint32 tokens = SEQUENCE / ring;
  guint n, marked = 0;

  const SpOp *ops = sp_program_segment (program, &program->variants[0].blocks[1], SP_PHASE_FORWARD, &n);
  for (guint i = 0; i < n; i++) {
    if (ops[i].kind != SP_OP_ATTENTION || !(ops[i].flags & SP_OP_UNMASKED))
      continue;
    marked++;
    for (gint32 place = 0; place < ring; place++)
      for (gint32 step = 0; step < ring; step++) {
        gint32 most = 0;
        for (gint32 row = 0; row < tokens; row++)
          most = MAX (most, count_row (split, ring, place, step, tokens, row));
        for (gint32 row = 0; row < tokens && sp_op_holds (&ops[i], place, ring, step, ring); row++) {
          gint32 seen = count_row (split, ring, place, step, tokens, row);
          g_assert_true (seen == 0 || seen == most);
        }
        g_assert_true (step > 0 || !sp_op_holds (&ops[i], place, ring, step, ring));
      }
  }
  g_assert_cmpuint (marked, ==, split != SP_TOKENS_STRIPED && window == 0);
}

static void
test_unmasked (void)
{
  for (SpTokenSplit split = SP_TOKENS_CONTIGUOUS; split < SP_N_TOKEN_SPLITS; split++)
    for (gint32 ring = 2; ring <= 8; ring++)
      if (SEQUENCE % (2 * ring) == 0) {
        check_unmasked (split, ring, 0);
        check_unmasked (split, ring, 7);
      }
}

static void
test_ring (void)
{
  for (SpTokenSplit split = SP_TOKENS_CONTIGUOUS; split <= SP_TOKENS_ZIGZAG; split++)
    for (gint32 ring = 2; ring <= 8; ring++)
      for (gint32 window = 1; window <= 50; window++)
        if (SEQUENCE % (2 * ring) == 0)
          check_ring (split, ring, window);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/attention-pairs/count", test_count);
  g_test_add_func ("/attention-pairs/by-hand", test_by_hand);
  g_test_add_func ("/attention-pairs/ring", test_ring);
  g_test_add_func ("/attention-pairs/unmasked", test_unmasked);
  return g_test_run ();
}
