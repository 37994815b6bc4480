/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/estimate.h"
#include "models/strategies/strategies.h"
#include "models/writer.h"
#include "tests/small-models.h"

#include <string.h>

/* Sequences in slices, by hand: what a slice computes, keeps and sends. That gradients are right, that memory, times and
 * bounds of all readers agree, is with the other layouts in the tests of those. */

/* The small model has 8 heads of 4 and 24 hidden. */
enum { SEQUENCE = 32, HEADS = 8, SIZE = 4, HIDDEN = 24 };

typedef struct {
  SpArchitecture *arch;
  SpFramework framework;
  SpProgram *program;
  SpRun run;
} Case;

static void
case_init (Case *c, gboolean fused, const SpLayout *layout, gint32 global_batch)
{
  g_autoptr (GError) error = NULL;

  c->arch = small_model (SMALL_SOFTMAX);
  c->framework = small_framework (fused);
  c->program = sp_program_new ();
  c->run = (SpRun){ .sequence = SEQUENCE, .micro_batch = 1, .global_batch = global_batch, .causal = TRUE };
  g_assert_true (sp_layout_check (layout, c->arch, &c->framework, &c->run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (c->program, c->arch, &c->framework, layout, &c->run);
}

static void
case_clear (Case *c)
{
  sp_architecture_free (c->arch);
  sp_program_free (c->program);
}

static const SpOp *
find_op (const SpProgram *program, gint32 variant, SpPhase phase, SpOpKind kind)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, &program->variants[variant].blocks[1], phase, &n);

  for (guint i = 0; i < n; i++)
    if (ops[i].kind == kind)
      return &ops[i];
  return NULL;
}

/* Query i of a sequence sees i + 1 keys: slices of 12, 12 and 8 tokens have 78, 222 and 228 of the 528 pairs. */
static void
test_pairs (void)
{
  static const double pairs[] = { 12 * 13 / 2, 12 * 12 + 12 * 13 / 2, 8 * 24 + 8 * 9 / 2 };
  static const gint32 queries[] = { 12, 12, 8 }, keys[] = { 12, 24, 32 };
  Case c;

  case_init (&c, TRUE, &(SpLayout) LAYOUT (.pipeline = 2, .slices = 3, .slice_split = { 12, 12, 8 }), 2);
  g_assert_cmpint (c.program->n_variants, ==, 3);
  for (gint32 v = 0; v < 3; v++) {
    const SpOp *op = find_op (c.program, v, SP_PHASE_FORWARD, SP_OP_ATTENTION);
    g_assert_cmpint (op->m, ==, queries[v]);
    g_assert_cmpint (op->n, ==, keys[v]);
    g_assert_cmpfloat (op->flops, ==, 4 * pairs[v] * SIZE * HEADS); /* 2 GEMMs of 2 FLOP */
    op = find_op (c.program, v, SP_PHASE_BACKWARD, SP_OP_ATTENTION_BWD);
    g_assert_cmpfloat (op->flops, ==, 10 * pairs[v] * SIZE * HEADS);
    g_assert_cmpint (c.program->variants[v].pipe_send.bytes, ==, queries[v] * HIDDEN * 2);
  }
  case_clear (&c);
}

/* Without fusion all columns so far are computed: of n equal slices (n + 1) / 2 n of the whole square. */
static void
test_scores (void)
{
  Case c;
  double sum = 0;

  case_init (&c, FALSE, &(SpLayout) LAYOUT (.pipeline = 2, .slices = 4), 2);
  for (gint32 v = 0; v < 4; v++)
    sum += find_op (c.program, v, SP_PHASE_FORWARD, SP_OP_SCORES)->flops;
  g_assert_cmpfloat (sum, ==, 2.0 * SEQUENCE * SEQUENCE * SIZE * HEADS * 5 / 8);
  case_clear (&c);
}

/* Bytes of a life in a layer's buffers, in bf16. */
static gint64
bytes_of (const SpProgram *program, gint32 variant, SpLife life)
{
  const SpBlock *block = &program->variants[variant].blocks[1];
  gint64 bytes = 0;

  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (block->buffers[slot].life == life && block->buffers[slot].alias == 0)
      bytes += block->buffers[slot].bytes;
  return bytes;
}

/* A slice keeps its part of what a whole sequence does, but for keys and values, 2 x 32 elements a token, which the first
 * has of all; so all slices keep as much as the sequence in one piece. Gradients of keys and values are there once. */
static void
test_kept (void)
{
  const gint64 keys = 2 * 2 * SEQUENCE * HEADS * SIZE;
  Case whole, c;
  gint64 sum = 0;

  case_init (&whole, TRUE, &(SpLayout) LAYOUT (.pipeline = 2), 2);
  case_init (&c, TRUE, &(SpLayout) LAYOUT (.pipeline = 2, .slices = 4), 2);
  for (gint32 v = 0; v < 4; v++) {
    sum += bytes_of (c.program, v, SP_LIFE_STASH);
    g_assert_cmpint (bytes_of (c.program, v, SP_LIFE_STASH), ==,
                     bytes_of (c.program, 3, SP_LIFE_STASH) + (v == 0 ? keys : 0));
    g_assert_cmpint (bytes_of (c.program, v, SP_LIFE_SEQUENCE), ==, 0);
    g_assert_cmpint (bytes_of (c.program, v, SP_LIFE_ACCUMULATED), ==, keys);
  }
  g_assert_cmpint (sum, ==, bytes_of (whole.program, 0, SP_LIFE_STASH));
  g_assert_cmpint (bytes_of (whole.program, 0, SP_LIFE_ACCUMULATED), ==, 0);
  case_clear (&whole);
  case_clear (&c);
}

/* The last slice, whose backward is first, makes the sums; the others add to them. */
static void
test_sums (void)
{
  Case c;

  case_init (&c, TRUE, &(SpLayout) LAYOUT (.pipeline = 2, .slices = 4), 2);
  for (gint32 v = 0; v < 4; v++)
    g_assert_true ((find_op (c.program, v, SP_PHASE_BACKWARD, SP_OP_ACCUMULATE_INTO) != NULL) == (v < 3));
  case_clear (&c);
}

/* One slice is none: the same program, byte for byte. */
static void
test_one (void)
{
  SpLayout one = LAYOUT (.pipeline = 2, .slices = 1),
           split = LAYOUT (.pipeline = 2, .slices = 1, .slice_split = { 32 });
  SpLayout none = LAYOUT (.pipeline = 2);
  const SpLayout *layouts[] = { &none, &one, &split };
  g_autoptr (GString) first = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (layouts); i++) {
    g_autoptr (GString) text = g_string_new (NULL);
    Case c;
    case_init (&c, TRUE, layouts[i], 5);
    sp_program_write_text (c.program, text);
    g_assert_null (strstr (text->str, "slices"));
    if (first == NULL)
      first = g_string_new (text->str);
    g_assert_cmpstr (text->str, ==, first->str);
    case_clear (&c);
  }
}

/* As many bytes go over the pipeline as without slices, in as many times more messages; nothing else of the volumes
 * changes but what is done once a backward. */
static void
test_volumes (void)
{
  static const SpLayout layouts[] = { LAYOUT (.pipeline = 2, .tensor = 2, .zero = 0),
                                      LAYOUT (.pipeline = 2, .tensor = 2, .zero = 0, .slices = 4) };
  SpDevice device = small_device (1e9);
  SpCluster cluster = small_cluster (&device, 1, 4);
  SpEstimate e[2];

  for (guint i = 0; i < 2; i++) {
    SpEstimator estimator;
    Case c;
    case_init (&c, TRUE, &layouts[i], 3);
    sp_estimator_init (&estimator, c.arch, &cluster, &c.framework, SP_MFU_SEQPAR);
    sp_estimate_program (&estimator, c.program, &c.run, &e[i]);
    case_clear (&c);
  }
  for (guint a = 0; a < SP_N_AXES; a++)
    g_assert_cmpfloat (e[1].axes[a].payload_bytes.mean, ==, e[0].axes[a].payload_bytes.mean);
  g_assert_cmpfloat (e[1].axes[SP_AXIS_PIPELINE].messages, ==, 4 * e[0].axes[SP_AXIS_PIPELINE].messages);
  g_assert_cmpfloat (e[0].axes[SP_AXIS_PIPELINE].payload_bytes.mean, ==, 3 * SEQUENCE / 2 * HIDDEN * 2);
}

/* What a program file says of slices is held to: each change by itself is refused. */
static void
test_files (void)
{
  static const struct {
    const char *from, *to, *message;
  } changes[] = {
    { " slices=4", " slices=3", "4 variants for 3 slices" },
    { " slices=4", "", "4 variants for 1 slices" },
    { " first=8 tokens=8", " first=8 tokens=9", "variant 2: 8 tokens from 16 on" },
    { " first=24 tokens=8", " first=24 tokens=7", "31 tokens, of 32" },
  };
  g_autoptr (GString) text = g_string_new (NULL);
  Case c;

  case_init (&c, TRUE, &(SpLayout) LAYOUT (.pipeline = 2, .slices = 4), 2);
  sp_program_write_text (c.program, text);
  case_clear (&c);
  for (guint i = 0; i < G_N_ELEMENTS (changes); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (GString) changed = g_string_new (text->str);
    g_assert_cmpuint (g_string_replace (changed, changes[i].from, changes[i].to, 1), ==, 1);
    g_autoptr (SpProgram) program = sp_program_read_text (changed->str, changed->len, "file", &error);
    g_assert_null (program);
    g_assert_nonnull (error);
    g_test_message ("%s", error->message);
    g_assert_nonnull (strstr (error->message, changes[i].message));
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/slices/pairs", test_pairs);
  g_test_add_func ("/slices/scores", test_scores);
  g_test_add_func ("/slices/kept", test_kept);
  g_test_add_func ("/slices/sums", test_sums);
  g_test_add_func ("/slices/one", test_one);
  g_test_add_func ("/slices/volumes", test_volumes);
  g_test_add_func ("/slices/files", test_files);
  return g_test_run ();
}
