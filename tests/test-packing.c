/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "kernels/reference.h"
#include "tests/rehearse-cases.h"

#include <math.h>
#include <string.h>

#define DRAWS 300

static SpPacking *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  SpPacking *packing = sp_packing_parse ("lengths.csv", text, strlen (text), &error);

  g_assert_no_error (error);
  return packing;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void
test_forms (void)
{
  static const char *const same[] = { "5\n2\n2\n2\n9\n", "length,count\n5,1\n2,3\n9,1\n",
                                      "length\n5 # a comment\n\n 2 , 3 \n9", "cu_seqlens\n0\n5\n7\n9\n11\n20\n" };

  for (guint i = 0; i < G_N_ELEMENTS (same); i++) {
    g_autoptr (SpPacking) packing = parse (same[i]);
    g_assert_cmpint (packing->documents, ==, 5);
    g_assert_cmpint (packing->tokens, ==, 20);
    g_assert_cmpint (packing->longest, ==, 9);
    g_assert_cmpstr (packing->path, ==, "lengths.csv");
    /* Sequences of 10 are 5 2 2 1 and 1 9: squares 25 + 4 + 4 + 1 + 1 + 81 = 116 of 20 tokens. */
    g_assert_cmpfloat (sp_packing_keys (packing, 10), ==, 5.8);
  }
}

static const struct {
  const char *name, *text;
  const char *words[4];
} bad[] = {
  { "empty", "# nothing\n", { "lengths.csv: no documents", "one a line" } },
  { "no-number", "5\nfive\n", { "lengths.csv:2: \"five\"", "512,3" } },
  { "zero", "0\n", { "lengths.csv:1: \"0\"", "from 1 to 2^30" } },
  { "long", "1073741825\n", { "lengths.csv:1: ", "2^30" } },
  { "negative", "5\n-3\n", { "lengths.csv:2: \"-3\"" } },
  { "no-count", "5,0\n", { "lengths.csv:1: \"5,0\"" } },
  { "three", "5,1,1\n", { "lengths.csv:1: \"5,1,1\"" } },
  { "late-heading", "5\nlength\n", { "lengths.csv:2: \"length\"" } },
  { "ends-back", "cu_seqlens\n0\n5\n5\n", { "lengths.csv:4: \"5\"", "after the end of the one before" } },
  { "ends-begin", "cu_seqlens\n3\n5\n", { "lengths.csv:2: \"3\"" } },
  { "much", "1073741824,1048577\n", { "lengths.csv:1: more than 2^50 tokens" } },
  { "odd", "\xff\n", { "lengths.csv" } },
};

static void
test_bad (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autoptr (GError) error = NULL;
    g_assert_null (sp_packing_parse ("lengths.csv", bad[i].text, strlen (bad[i].text), &error));
    g_assert_nonnull (error);
    g_test_message ("%s: %s", bad[i].name, error->message);
    for (guint j = 0; j < G_N_ELEMENTS (bad[i].words) && bad[i].words[j]; j++)
      g_assert_nonnull (strstr (error->message, bad[i].words[j]));
  }
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* By hand. 4 + 4 tokens on two places, contiguous: each has a document, 10 pairs at home, none away. 8 tokens: the last
 * place has 10 at home and 16 away, the first 10: all 36, the slowest 26. 6 + 2, contiguous: place 0 has the pairs of 4
 * tokens, 10; place 1 of tokens 4, 5 of the first, 3, and with place 0's keys 2 x 4 = 8; and the second's, 3. */
static void
test_by_hand (void)
{
  static const struct {
    const char *text;
    double all, home, away, slowest;
  } cases[] = { { "4,2", 20, 10, 0, 10 }, { "8", 36, 10, 16, 26 }, { "6\n2\n", 24, 10, 8, 14 } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (SpPacking) packing = parse (cases[i].text);
    SpPackedPairs pairs;
    sp_packing_pairs (packing, 8, SP_TOKENS_CONTIGUOUS, 2, TRUE, 0, &pairs);
    g_assert_cmpfloat (pairs.all, ==, cases[i].all);
    g_assert_cmpfloat (pairs.home, ==, cases[i].home);
    g_assert_cmpfloat (pairs.away, ==, cases[i].away);
    g_assert_cmpfloat (pairs.slowest, ==, cases[i].slowest);
    g_assert_cmpfloat (pairs.fullest, ==, 1);
  }
}

/* Place of a token in a ring. */
static gint32
place_of (SpTokenSplit split, gint32 ring, gint64 sequence, gint64 position)
{
  if (split == SP_TOKENS_STRIPED)
    return (gint32) (position % ring);
  if (split == SP_TOKENS_CONTIGUOUS || ring == 1)
    return (gint32) (position / (sequence / ring));
  gint32 part = (gint32) (position / (sequence / (2 * ring)));
  return part < ring ? part : 2 * ring - 1 - part;
}

typedef struct {
  gint64 sequence;
  SpTokenSplit split;
  gint32 ring;
  gboolean causal;
  gint64 window;
} Shape;

/* Token by token, by the program's own map of documents. */
static void
count_all (const SpPacking *packing, const Shape *s, SpPackedPairs *ret)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  gint64 n = MAX (packing->tokens / s->sequence, 1);
  double fullest = 0;

  *ret = (SpPackedPairs){ 0 };
  program->sequence = s->sequence;
  sp_program_set_documents (program, packing->runs, packing->n_runs);
  for (gint64 number = 0; number < n; number++) {
    double pairs[8][8] = { { 0 } }, all = 0, slowest = 0;
    for (gint64 q = 0; q < s->sequence; q++) {
      gint64 begin, end;
      sp_program_document (program, number, q, &begin, &end);
      for (gint64 k = begin; k < end; k++) {
        gint32 place = place_of (s->split, s->ring, s->sequence, q);
        gint32 step = (place - place_of (s->split, s->ring, s->sequence, k) + s->ring) % s->ring;
        pairs[place][step] += !s->causal || (k <= q && (s->window == 0 || q - k < s->window));
      }
    }
    for (gint32 i = 0; i < s->ring; i++) {
      double own = 0, most = 0;
      for (gint32 j = 0; j < s->ring; j++) {
        own += pairs[i][j];
        most = MAX (most, pairs[j][i]);
      }
      all += own;
      slowest = MAX (slowest, own);
      *(i == 0 ? &ret->home : &ret->away) += most / (double) n;
    }
    ret->all += all / (double) n;
    ret->slowest += slowest / (double) n;
    fullest = MAX (fullest, all);
  }
  ret->fullest = fullest / ret->all;
}

static char *
draw_lengths (GRand *rand, gint32 most)
{
  g_autoptr (GString) text = g_string_new (NULL);
  gint32 n = g_rand_int_range (rand, 1, 8);

  for (gint32 i = 0; i < n; i++)
    g_string_append_printf (text, "%d,%d\n", g_rand_int_range (rand, 1, most), g_rand_int_range (rand, 1, 4));
  return g_strdup (text->str);
}

static Shape
draw_shape (GRand *rand)
{
  Shape s = { .split = (SpTokenSplit) g_rand_int_range (rand, 0, SP_N_TOKEN_SPLITS),
              .ring = g_rand_int_range (rand, 1, 6),
              .causal = g_rand_int_range (rand, 0, 4) > 0 };

  s.sequence = 2 * s.ring * g_rand_int_range (rand, 1, 8);
  s.window = s.causal && g_rand_int_range (rand, 0, 2) ? g_rand_int_range (rand, 1, (gint32) s.sequence + 1) : 0;
  return s;
}

static gboolean
is_near (double a, double b)
{
  return fabs (a - b) <= 1e-12 * MAX (fabs (b), 1);
}

static void
test_counted (void)
{
  guint32 seed = (guint32) g_test_rand_int ();
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);

  g_test_message ("seed %u", seed);
  for (guint i = 0; i < DRAWS; i++) {
    Shape s = draw_shape (rand);
    g_autofree char *text = draw_lengths (rand, 40);
    g_autoptr (SpPacking) packing = parse (text);
    SpPackedPairs got, expected;
    count_all (packing, &s, &expected);
    for (guint again = 0; again < 2; again++) {
      sp_packing_pairs (packing, s.sequence, s.split, s.ring, s.causal, s.window, &got);
      if (is_near (got.all, expected.all) && is_near (got.home, expected.home) && is_near (got.away, expected.away) &&
          is_near (got.slowest, expected.slowest) && is_near (got.fullest, expected.fullest))
        continue;
      g_test_message ("%ssequence %" G_GINT64_FORMAT ", split %d, ring %d, causal %d, window %" G_GINT64_FORMAT
                      ": all %g %g, home %g %g, away %g %g, slowest %g %g, fullest %g %g",
                      text, s.sequence, s.split, s.ring, s.causal, s.window, got.all, expected.all, got.home,
                      expected.home, got.away, expected.away, got.slowest, expected.slowest, got.fullest,
                      expected.fullest);
      g_test_fail ();
    }
  }
}

/* --- in kernels --------------------------------------------------------------------------------------------------- */

static void
fill (GRand *rand, gint64 n, double *x)
{
  for (gint64 i = 0; i < n; i++)
    x[i] = g_rand_double_range (rand, -1, 1);
}

/* Two documents of 3 and 5 tokens in one call give what two calls give: outputs and gradients. */
static void
test_kernel (void)
{
  enum { TOKENS = 8, FIRST = 3, WIDTH = 2 * 4, ALL = TOKENS * WIDTH };
  static const gint64 positions[TOKENS] = { 0, 1, 2, 3, 4, 5, 6, 7 }, first[TOKENS] = { 0, 0, 0, 3, 3, 3, 3, 3 },
                      end[TOKENS] = { 3, 3, 3, 8, 8, 8, 8, 8 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  double q[ALL], k[ALL], v[ALL], d_o[ALL], o[2][ALL], lse[2][TOKENS * 2], delta[TOKENS * 2], d[2][3][ALL];

  fill (rand, ALL, q);
  fill (rand, ALL, k);
  fill (rand, ALL, v);
  fill (rand, ALL, d_o);
  for (guint causal = 0; causal < 2; causal++) {
    for (guint part = 0; part < 3; part++) { /* all, then each */
      gint64 from = part == 2 ? FIRST : 0, n = part == 0 ? TOKENS : part == 1 ? FIRST : TOKENS - FIRST;
      guint to = part > 0;
      gint64 at = from * WIDTH;
      SpRefShape shape = { .m = n, .n = n, .k = 4, .batch = 1, .heads = 2, .kv_heads = 2 };
      if (part == 0) {
        shape.first = first;
        shape.end = end;
      }
      sp_ref_attention (shape, q + at, k + at, v + at, (gboolean) causal, positions, positions, o[to] + at,
                        lse[to] + from * 2);
      sp_ref_attention_delta (n * 2, 4, d_o + at, o[to] + at, delta + from * 2);
      sp_ref_attention_bwd (shape, q + at, k + at, v + at, d_o + at, lse[to] + from * 2, delta + from * 2,
                            (gboolean) causal, positions, positions, d[to][0] + at, d[to][1] + at, d[to][2] + at);
    }
    for (guint i = 0; i < ALL; i++) {
      g_assert_true (is_near (o[0][i], o[1][i]));
      for (guint j = 0; j < 3; j++)
        g_assert_true (is_near (d[0][j][i], d[1][j][i]));
    }
  }
}

/* --- in programs -------------------------------------------------------------------------------------------------- */

static double
layer_flops (const RehearseCase *c)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  SpDevice device = { .peak_bf16_flops_per_s = { 1e12 },
                      .gemm_efficiency = { 1 },
                      .attention_efficiency = { 1 },
                      .attention_backward_efficiency = { 1 },
                      .memory_bytes_per_s = { 1e12 },
                      .memory_efficiency = { 1 },
                      .link_bytes_per_s = { 1e11 },
                      .sms = { 100 } };
  SpCluster cluster = { .device = &device, .nodes = 1, .gpus_per_node = 1024, .link_efficiency = { 1 } };
  SpFramework framework = small_framework (TRUE);
  SpCost cost;
  SpBlockWork work;

  rehearse_case_write (c, program);
  sp_cost_init (&cost, &cluster, &framework);
  sp_cost_set_paths (&cost, &cluster, program);
  sp_block_work (&cost, program, &program->variants[0].blocks[1], &work);
  return work.flops;
}

/* A rank's FLOP of a layer, against those without packing: 4 forward and 10 backward a pair, head and feature, of all
 * places' pairs an equal part. And documents as long as the sequence are what no packing is. */
static void
test_flops (void)
{
  static const RehearseCase cases[] = {
    { "local", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.zero = 0) },
    { "ulysses", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ulysses = 4) },
    { "zigzag", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ring = 4) },
    { "contiguous", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
    { "striped", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_STRIPED) },
    { "gather", SMALL_GQA, 0, 48, 2, 2,
      LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS) },
    { "double", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2) },
    { "usp", SMALL_GQA, 0, 48, 2, 2, LAYOUT (.ulysses = 2, .ring = 2) },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    RehearseCase whole = cases[i], packed = cases[i], one = cases[i];
    g_autoptr (SpPacking) packing = parse ("17\n5,4\n30\n");
    SpPackedPairs pairs;
    packed.packing = "17\n5,4\n30\n";
    one.packing = "48";
    sp_packing_pairs (packing, 48, SP_TOKENS_CONTIGUOUS, 1, TRUE, 0, &pairs);
    double ranks = whole.layout.ulysses * whole.layout.ring;
    double less = 14.0 * 2 * 8 * 4 * (48 * 49 / 2 - pairs.all) / ranks;
    g_test_message ("%s: %.12g, packed %.12g, expected %.12g", whole.name, layer_flops (&whole), layer_flops (&packed),
                    layer_flops (&whole) - less);
    g_assert_true (fabs (layer_flops (&whole) - layer_flops (&packed) - less) <= 1e-9 * layer_flops (&whole));
    g_assert_true (fabs (layer_flops (&whole) - layer_flops (&one)) <= 1e-9 * layer_flops (&whole));
  }
}

/* Attention of packed documents takes less time, and on a ring the slowest place's. */
static void
test_ring_price (void)
{
  const RehearseCase c = {
    "ring", SMALL_GQA, 0, 48, 1, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS), .packing = "24\n2,12\n"
  };
  g_autoptr (SpProgram) program = sp_program_new ();
  guint n;
  double flops = 0;

  /* Tokens 0 to 23 on two places, 12 of 12 keys at home: 78 pairs; the second with the first's 144. The rest 18. */
  rehearse_case_write (&c, program);
  const SpBlock *block = &program->variants[0].blocks[1];
  const SpOp *ops = sp_program_segment (program, block, SP_PHASE_FORWARD, &n);
  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ATTENTION)
      flops += ops[i].flops * (ops[i].guard & SP_GUARD_FIRST_STEP ? 1 : 3);
  g_assert_cmpfloat_with_epsilon (flops, 4.0 * 8 * 4 * (78 + 144), 1e-6);
  g_assert_cmpfloat_with_epsilon (block->attention_pairs, (2 * 78 + 144 + 12 * 3) / 4.0, 1e-9);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/packing/forms", test_forms);
  g_test_add_func ("/packing/bad", test_bad);
  g_test_add_func ("/packing/by-hand", test_by_hand);
  g_test_add_func ("/packing/counted", test_counted);
  g_test_add_func ("/packing/kernel", test_kernel);
  g_test_add_func ("/packing/flops", test_flops);
  g_test_add_func ("/packing/ring-price", test_ring_price);
  return g_test_run ();
}
