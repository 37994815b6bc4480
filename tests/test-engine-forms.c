/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"
#include "sim/engine.h"
#include "tests/small-models.h"

#include <glib/gstdio.h>
#include <string.h>

/* The engine on programs whose ops take what a test gives them: steps that can be worked out by hand, and programs that
 * cannot end. */

#define US G_GINT64_CONSTANT (1000000)

typedef struct {
  SpArchitecture *arch;
  SpFramework framework;
  SpProgram *program;
  SpOpPrice *ops, pipe[2];
  SpPrices prices;
} Case;

static void
case_init (Case *c, SmallModel model, gint32 layers, const SpLayout *layout, const SpRun *run)
{
  g_autoptr (GError) error = NULL;

  c->arch = small_model (model);
  for (gint32 l = 2; l < layers; l++)
    c->arch->layer_kind[l] = c->arch->layer_kind[l % 2];
  c->arch->layers = layers;
  c->framework = small_framework (TRUE);
  c->program = sp_program_new ();
  gboolean legal = sp_layout_check (layout, c->arch, &c->framework, run, 0, &error);
  g_assert_no_error (error);
  g_assert_true (legal);
  sp_program_write (c->program, c->arch, &c->framework, layout, run);
  c->ops = g_new0 (SpOpPrice, c->program->n_ops);
  memset (c->pipe, 0, sizeof c->pipe);
  c->prices = (SpPrices){ .ops = c->ops, .pipe = c->pipe };
}

static void
case_clear (Case *c)
{
  sp_architecture_free (c->arch);
  sp_program_free (c->program);
  g_free (c->ops);
}

static void
set_price (Case *c, const SpOp *op, SpTime time)
{
  c->ops[op - c->program->ops] = (SpOpPrice){
    .total = time, .near_total = time, .serial = time, .near_serial = time, .first = time, .last = time,
  };
}

/* Of all kernels. */
static void
set_slowdown (Case *c, float slowdown)
{
  for (guint i = 0; i < c->program->n_ops; i++)
    c->ops[i].slowdown = slowdown;
  c->prices.slows = slowdown > 0;
}

/* The first op of a kind, or (kind = SP_N_OPS) kernel that has or lacks a flag, in a list of the layers' block. */
static const SpOp *
find_op (const Case *c, SpPhase phase, SpOpKind kind, guint flags, guint mask)
{
  guint n;
  const SpOp *ops = sp_program_segment (c->program, &c->program->variants[0].blocks[1], phase, &n);

  for (guint i = 0; i < n; i++)
    if ((kind == SP_N_OPS ? !sp_op_is_communication (ops[i].kind) : ops[i].kind == kind) &&
        (ops[i].flags & mask) == flags)
      return &ops[i];
  g_assert_not_reached ();
}

static SpSimulation *
simulate (const Case *c, gboolean fold, gboolean serial, GError **error)
{
  SpRolesPlaces places;

  sp_roles_places_init (&places, c->program);
  g_autoptr (SpRoles) roles =
      fold ? sp_roles_new_folded (c->program, &places, NULL) : sp_roles_new_unfolded (c->program);
  sp_roles_places_clear (&places);
  return sp_engine_run (c->program, roles, &c->prices, &(SpEngineOptions){ .serial = serial }, error);
}

static SpTime
end_of (const Case *c, gboolean fold, gboolean serial)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpSimulation) run = simulate (c, fold, serial, &error);

  g_assert_no_error (error);
  g_assert_nonnull (run);
  return run->end;
}

/* --- pipelines ---------------------------------------------------------------------------------------------------- */

/* Stages of equal layers whose forward takes 3, backward-input 4 and backward-weight 2, all else nothing: the step is a
 * stage's busy time and the schedule's bubble. For GPipe and 1F1B, (m + p - 1) (F + B). */
static void
check_bubble (const char *name, gint32 p, gint32 v, gint32 m)
{
  const SpSchedule *schedule = sp_schedule_get ((guint) sp_schedule_find (name));
  SpLayout layout =
      LAYOUT (.pipeline = p, .zero = 0, .virtual_stages = v, .schedule = (guint8) sp_schedule_find (name));
  SpRun run = { .sequence = 16, .micro_batch = 1, .global_batch = m, .causal = TRUE };
  SpPipeline pipeline = { p, sp_schedule_chunks (schedule, v), m, FALSE };
  gint32 layers = 2 * p * v;
  Case c;

  case_init (&c, SMALL_GQA, layers, &layout, &run);
  set_price (&c, find_op (&c, SP_PHASE_FORWARD, SP_N_OPS, 0, 0), 3 * US);
  set_price (&c, find_op (&c, SP_PHASE_BACKWARD, SP_N_OPS, 0, SP_OP_WEIGHT), 4 * US);
  set_price (&c, find_op (&c, SP_PHASE_BACKWARD, SP_N_OPS, SP_OP_WEIGHT, SP_OP_WEIGHT), 2 * US);
  double per_stage = 2.0 * v, busy = m * per_stage * 9;
  double expected = busy * (1 + schedule->bubble (&pipeline, 2 * 3, 2 * 4, 2 * 2));
  for (guint i = 0; i < 4; i++) {
    SpTime end = end_of (&c, i % 2, i / 2);
    g_test_message ("%s, p = %d, v = %d, m = %d: %.3f us, expected %.3f", name, p, v, m, (double) end / US, expected);
    g_assert_cmpint (end, ==, llrint (expected * US));
  }
  case_clear (&c);
}

static void
test_bubbles (void)
{
  static const gint32 cases[][2] = { { 2, 2 }, { 2, 6 }, { 3, 3 }, { 4, 4 }, { 4, 8 }, { 4, 16 } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    check_bubble ("gpipe", cases[i][0], 1, cases[i][1]);
    check_bubble ("1f1b", cases[i][0], 1, cases[i][1]);
    check_bubble ("interleaved", cases[i][0], 2, cases[i][1]);
    check_bubble ("interleaved", cases[i][0], 3, cases[i][1]);
  }
}

/* --- the LASP chain ----------------------------------------------------------------------------------------------- */

/* P places, L layers; an update takes u, the first place's, which has no state before, f, and a message s, all else
 * nothing. Place 0 has its first state at f and sends it; each place then takes s to receive and u to update: the last
 * one receives after f + s + (P - 2) (u + s). In the next layer every middle place is busy for s + u + s a layer, and the
 * wave follows it: (L - 1) (u + 2 s) more. */
static void
test_chain (void)
{
  const SpTime u = 5 * US, f = 2 * US, s = 7 * US;

  for (gint32 p = 3; p <= 8; p++)
    for (gint32 layers = 2; layers <= 6; layers += 2) {
      SpLayout layout = LAYOUT (.lasp = p, .lasp_version = 1, .zero = 0, .token_split = SP_TOKENS_CONTIGUOUS);
      SpRun run = { .sequence = 8 * p, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
      Case c;
      case_init (&c, SMALL_LINEAR, layers, &layout, &run);
      const SpOp *update = find_op (&c, SP_PHASE_FORWARD, SP_OP_STATE_UPDATE, 0, 0);
      set_price (&c, update, u);
      c.ops[update - c.program->ops].first = f;
      set_price (&c, find_op (&c, SP_PHASE_FORWARD, SP_OP_SEND, 0, 0), s);
      SpTime expected = f + s + (p - 2) * (u + s) + (layers - 1) * (u + 2 * s);
      g_assert_cmpint (end_of (&c, FALSE, FALSE), ==, expected);
      g_assert_cmpint (end_of (&c, TRUE, TRUE), ==, expected);
      case_clear (&c);
    }
}

/* --- overlap ------------------------------------------------------------------------------------------------------ */

/* A ring of 4, zigzag: each of 4 steps attends for 10 and passes K and V on for 6 beside it (3 times). With a slowdown
 * of a half, 6 of each of the first three steps' time do 4 of work, so they take 12: 3 x 12 + 10. Passing on for 20
 * hides the attention: by then 20 / 1.5 of work would be done, more than 10: 3 x 20 + 10. */
static void
test_overlap (void)
{
  SpLayout layout = LAYOUT (.ring = 4, .zero = 0);
  SpRun run = { .sequence = 64, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
  Case c;

  case_init (&c, SMALL_GQA, 1, &layout, &run);
  guint n;
  const SpOp *ops = sp_program_segment (c.program, &c.program->variants[0].blocks[1], SP_PHASE_FORWARD, &n);
  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ATTENTION)
      set_price (&c, &ops[i], 10 * US);
  const SpOp *pass_on = find_op (&c, SP_PHASE_FORWARD, SP_OP_SEND_RECEIVE, 0, 0);
  set_slowdown (&c, 0.5f);
  set_price (&c, pass_on, 6 * US);
  g_assert_cmpint (end_of (&c, TRUE, FALSE), ==, (3 * 12 + 10) * US);
  g_assert_cmpint (end_of (&c, FALSE, FALSE), ==, (3 * 12 + 10) * US);
  g_assert_cmpint (end_of (&c, TRUE, TRUE), ==, (3 * 16 + 10) * US);
  set_price (&c, pass_on, 20 * US);
  g_assert_cmpint (end_of (&c, TRUE, FALSE), ==, (3 * 20 + 10) * US);
  g_assert_cmpint (end_of (&c, FALSE, TRUE), ==, (3 * 30 + 10) * US);
  case_clear (&c);
}

/* ZeRO-2 over three equal layers whose backward takes 10 and whose gradients are scattered in 5, and a head whose are
 * in 100, from the start on. The last layer's backward ends at 10 and waits, as the head's gradients are held over,
 * until 100; its own are scattered beside the middle layer's, until 105, and so on: 100 + 2 x 10 + 5. One after the
 * other: 100 + 3 x 15. Once a step (ZeRO-1) nobody waits: backwards are over at 30, the scatters follow each other. */
static void
test_held (void)
{
  SpRun run = { .sequence = 16, .micro_batch = 1, .global_batch = 2, .causal = TRUE };

  for (gint32 zero = 1; zero <= 2; zero++) {
    SpLayout layout = LAYOUT (.data = 2, .zero = (guint8) zero);
    Case c;
    guint n;

    case_init (&c, SMALL_GQA, 3, &layout, &run);
    const SpOp *head = sp_program_segment (c.program, &c.program->variants[0].blocks[2], SP_PHASE_SYNC, &n);
    g_assert_cmpuint (n, ==, 1);
    set_price (&c, head, 100 * US);
    set_price (&c, find_op (&c, SP_PHASE_SYNC, SP_OP_REDUCE_SCATTER, 0, 0), 5 * US);
    set_price (&c, find_op (&c, SP_PHASE_BACKWARD, SP_N_OPS, 0, 0), 10 * US);
    for (guint fold = 0; fold < 2; fold++) {
      g_assert_cmpint (end_of (&c, fold, FALSE), ==, (zero == 2 ? 100 + 2 * 10 + 5 : 100 + 3 * 5) * US);
      g_assert_cmpint (end_of (&c, fold, TRUE), ==, (100 + 3 * 15) * US);
    }
    case_clear (&c);
  }
}

/* A ring of 4, 16 tokens of 8 heads of 4 a rank: 512 elements in bf16 (1024 bytes) or fp32 (2048), 128 lse (512).
 *   first step  reads 1024 + 512, writes 2048 + 512       4096, and dQ 1024 + 2048 = 3072
 *   later       reads as much, sums in and out: 2 x 2560  6656, and dQ 1024 + 2 x 2048 = 5120
 *   at the end  reads 2048, writes 1024                   3072
 * They are no part of the attention's kernels: steps of 10 + 1, and 2 for the end. */
static void
test_ring_sums (void)
{
  SpLayout layout = LAYOUT (.ring = 4, .zero = 0);
  SpRun run = { .sequence = 64, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
  const guint flag = SP_OP_ACCUMULATE;
  Case c;

  case_init (&c, SMALL_GQA, 1, &layout, &run);
  const SpOp *merges[] = { find_op (&c, SP_PHASE_FORWARD, SP_OP_ATTENTION_MERGE, 0, flag),
                           find_op (&c, SP_PHASE_FORWARD, SP_OP_ATTENTION_MERGE, flag, flag) };
  const SpOp *end = find_op (&c, SP_PHASE_FORWARD, SP_OP_COPY, 0, 0);
  g_assert_cmpint (merges[0]->bytes, ==, 4096);
  g_assert_cmpint (merges[1]->bytes, ==, 6656);
  g_assert_cmpint (end->bytes, ==, 3072);
  g_assert_cmpint (find_op (&c, SP_PHASE_BACKWARD, SP_OP_COPY, 0, 0)->bytes, ==, 3072);
  g_assert_cmpint (find_op (&c, SP_PHASE_BACKWARD, SP_OP_ACCUMULATE_INTO, 0, 0)->bytes, ==, 5120);

  guint n;
  const SpOp *ops = sp_program_segment (c.program, &c.program->variants[0].blocks[1], SP_PHASE_FORWARD, &n);
  for (guint i = 0; i < n; i++)
    if (ops[i].kind == SP_OP_ATTENTION)
      set_price (&c, &ops[i], 10 * US);
  for (guint i = 0; i < G_N_ELEMENTS (merges); i++)
    set_price (&c, merges[i], 1 * US);
  set_price (&c, end, 2 * US);
  g_assert_cmpint (end_of (&c, TRUE, FALSE), ==, (4 * 11 + 2) * US);
  g_assert_cmpint (end_of (&c, FALSE, TRUE), ==, (4 * 11 + 2) * US);
  case_clear (&c);
}

/* The host issues a kernel every 10; one kernel takes 35, all others nothing. What is issued while it runs is not waited
 * for, so the step is the host's time alone or, where the long one is the last to be issued, 35 after that. */
static void
test_host (void)
{
  SpLayout layout = LAYOUT (.zero = 0);
  SpRun run = { .sequence = 16, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
  g_autoptr (GError) error = NULL;
  Case c;

  case_init (&c, SMALL_GQA, 1, &layout, &run);
  c.prices.host_launch = 10 * US;
  set_price (&c, find_op (&c, SP_PHASE_FORWARD, SP_N_OPS, 0, 0), 35 * US);
  g_autoptr (SpSimulation) run_ = simulate (&c, FALSE, FALSE, &error);
  g_assert_no_error (error);
  g_assert_cmpint (run_->end, ==, (SpTime) run_->roles[0].n_kernels * 10 * US);
  case_clear (&c);
}

/* --- programs that stop ------------------------------------------------------------------------------------------- */

/* The chain's first place sends nothing: the second waits for ever, and those behind it. */
static void
test_deadlock (void)
{
  SpLayout layout = LAYOUT (.lasp = 3, .lasp_version = 1, .zero = 0, .token_split = SP_TOKENS_CONTIGUOUS);
  SpRun run = { .sequence = 24, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
  g_autoptr (GError) error = NULL;
  Case c;

  case_init (&c, SMALL_LINEAR, 2, &layout, &run);
  SpOp *send = (SpOp *) find_op (&c, SP_PHASE_FORWARD, SP_OP_SEND, 0, 0);
  send->guard |= SP_GUARD_NOT_FIRST;
  g_autoptr (SpSimulation) run_ = simulate (&c, FALSE, FALSE, &error);
  g_assert_null (run_);
  g_assert_error (error, SP_ENGINE_ERROR, SP_ENGINE_ERROR_DEADLOCK);
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, "rank 1 (stage 0), layer 0, micro-batch 0, forward op"));
  g_assert_nonnull (strstr (error->message, "waits for receive over lasp with rank 0"));
  case_clear (&c);
}

/* Stage 1 reduces over tensor ranks where stage 0 gathers: no; within one instance members differ by their guards. */
static void
test_mismatch (void)
{
  SpLayout layout = LAYOUT (.ulysses = 2, .zero = 0);
  SpRun run = { .sequence = 32, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
  g_autoptr (GError) error = NULL;
  Case c;

  case_init (&c, SMALL_GQA, 1, &layout, &run);
  SpOp *op = (SpOp *) find_op (&c, SP_PHASE_FORWARD, SP_OP_ALL_TO_ALL, 0, 0);
  op->guard |= SP_GUARD_NOT_FIRST;
  g_autoptr (SpSimulation) run_ = simulate (&c, FALSE, FALSE, &error);
  g_assert_null (run_);
  /* Rank 1 comes to the first exchange, rank 0 to the second: of other sizes, or rank 0 ends early. */
  g_assert_true (g_error_matches (error, SP_ENGINE_ERROR, SP_ENGINE_ERROR_MISMATCH) ||
                 g_error_matches (error, SP_ENGINE_ERROR, SP_ENGINE_ERROR_DEADLOCK));
  g_test_message ("%s", error->message);
  case_clear (&c);
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

static char *
trace_of (const Case *c)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", &error), *path = g_build_filename (folder, "t.json", NULL);
  g_autoptr (SpRoles) roles = sp_roles_new_unfolded (c->program);
  g_autoptr (SpTrace) trace = sp_trace_open (path, &error);
  char *text;

  g_autoptr (SpSimulation) run =
      sp_engine_run (c->program, roles, &c->prices, &(SpEngineOptions){ .trace = trace }, &error);
  g_assert_no_error (error);
  g_assert_true (sp_trace_close (trace, &error));
  g_assert_true (g_file_get_contents (path, &text, NULL, &error));
  g_unlink (path);
  g_rmdir (folder);
  return text;
}

/* The same program twice gives the same trace, byte for byte; slices of a thread do not overlap (the trace's own rule)
 * is what test-trace looks at. */
static void
test_trace (void)
{
  SpLayout layout = LAYOUT (.ring = 2, .pipeline = 2, .data = 2, .zero = 2);
  SpRun run = { .sequence = 64, .micro_batch = 1, .global_batch = 6, .causal = TRUE };
  Case c;

  case_init (&c, SMALL_GQA, 4, &layout, &run);
  for (guint i = 0; i < c.program->n_ops; i++)
    set_price (&c, &c.program->ops[i], (1 + i % 13) * US);
  set_slowdown (&c, 0.25f);
  c.pipe[0] = (SpOpPrice){ 2 * US, US, 2 * US, US, 2 * US, 2 * US, 0 };
  g_autofree char *one = trace_of (&c), *two = trace_of (&c);
  g_assert_cmpstr (one, ==, two);
  g_assert_nonnull (strstr (one, "\"attention\""));
  g_assert_nonnull (strstr (one, "send-receive"));
  case_clear (&c);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/engine/forms/bubbles", test_bubbles);
  g_test_add_func ("/engine/forms/chain", test_chain);
  g_test_add_func ("/engine/forms/overlap", test_overlap);
  g_test_add_func ("/engine/forms/held", test_held);
  g_test_add_func ("/engine/forms/ring-sums", test_ring_sums);
  g_test_add_func ("/engine/forms/host", test_host);
  g_test_add_func ("/engine/forms/deadlock", test_deadlock);
  g_test_add_func ("/engine/forms/mismatch", test_mismatch);
  g_test_add_func ("/engine/forms/trace", test_trace);
  return g_test_run ();
}
