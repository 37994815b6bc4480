/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/op-form.h"
#include "sim/op-place.h"
#include "tests/random-machines.h"
#include "tests/shipped.h"
#include "tests/small-models.h"

#include <string.h>

/* What an op reads, moves and takes at each place of a chain, against the buffers of random programs. */

#define DRAWS 100

/* --- which inputs ------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  SpOpKind kind;
  guint flags;
  gint first, last; /* inputs that are not read there, -1 none */
} Ends;

static const Ends ends_of[] = {
  { "update", SP_OP_STATE_UPDATE, 0, 0, -1 }, { "update-back", SP_OP_STATE_UPDATE, SP_OP_REVERSE, -1, 0 },
  { "recurrent", SP_OP_RECURRENT, 0, 5, -1 }, { "recurrent-bwd", SP_OP_RECURRENT_BWD, 0, 6, 7 },
  { "conv", SP_OP_CONV, 0, 3, -1 },           { "conv-bwd", SP_OP_CONV_BWD, 0, 4, -1 },
  { "inter", SP_OP_LINEAR_INTER, 0, -1, -1 }, { "inter-bwd", SP_OP_LINEAR_INTER_BWD, 0, -1, -1 },
};

static void
test_reads (gconstpointer data)
{
  const Ends *ends = data;

  for (gint32 size = 1; size <= 4; size++)
    for (gint32 place = 0; place < size; place++) {
      SpOp op = { .kind = (guint8) ends->kind, .flags = ends->flags, .bytes = 1 << 20, .window = 1 };
      for (guint i = 0; i < SP_MAX_IN; i++)
        op.in[i] = (guint8) (i + 1);
      SpOp at = sp_op_at (&op, place, size);
      for (gint i = 0; i < SP_MAX_IN; i++) {
        gboolean absent = (i == ends->first && place == 0) || (i == ends->last && place == size - 1);
        g_assert_cmpuint (at.in[i], ==, absent ? 0 : op.in[i]);
      }
      g_assert_cmpint (sp_op_has_ends (&op), ==, ends->first >= 0 || ends->last >= 0);
    }
  SpOp without = { .kind = (guint8) ends->kind, .flags = ends->flags };
  g_assert_false (sp_op_has_ends (&without));
}

/* Causal attention of 8 queries a place over the keys so far: of place p 8 x 8 p pairs and 8 x 9 / 2. */
static void
test_work (void)
{
  const double each = 512, pairs[] = { 36, 100, 164, 228 };

  for (gint32 place = 0; place < 4; place++) {
    const SpOp op = {
      .kind = SP_OP_ATTENTION, .flags = SP_OP_CAUSAL | SP_OP_BY_PLACE, .m = 8, .n = 32, .flops = 228 * each
    };
    SpOp at = sp_op_at (&op, place, 4);
    g_assert_true (is_equal (at.flops, pairs[place] * each, 1e-12));
    g_assert_cmpuint (at.flags, ==, SP_OP_CAUSAL);
  }
}

/* --- bytes and seconds -------------------------------------------------------------------------------------------- */

/* Of each operand, once more of what is added to. */
static gint64
operand_bytes (const SpBlock *block, const SpOp *op)
{
  gint64 bytes = 0;

  for (guint i = 0; i < SP_MAX_IN; i++)
    if (op->in[i] != 0)
      bytes += block->buffers[op->in[i]].elements * (gint64) sp_dtype_bytes (block->buffers[op->in[i]].dtype);
  for (guint i = 0; i < SP_MAX_OUT; i++)
    if (op->out[i] != 0)
      bytes += (op->flags & SP_OP_ACCUMULATE ? 2 : 1) * block->buffers[op->out[i]].elements *
               (gint64) sp_dtype_bytes (block->buffers[op->out[i]].dtype);
  return bytes;
}

/* By what bounds them, when there is no curve. */
static double
seconds_of (const SpCost *cost, gint64 bytes, double compute_s)
{
  return cost->launch_s + MAX (compute_s, (double) bytes * cost->s_per_byte);
}

static guint
check_op (const SpCost *cost, const SpProgram *program, const SpBlock *block, const SpOp *op)
{
  gint32 size = program->groups[op->group].size;
  const gint32 places[] = { 0, size / 2, size - 1 };
  double whole = sp_cost_op (cost, op);

  if (!sp_op_has_ends (op))
    return 0;
  g_assert_cmpint (op->bytes, ==, operand_bytes (block, op));
  for (guint i = 0; i < G_N_ELEMENTS (places); i++) {
    SpOp at = sp_op_at (op, places[i], size);
    gboolean between = places[i] > 0 && places[i] < size - 1;
    double compute_s = op->flops * cost->s_per_flop[op->kind];
    g_assert_cmpint (at.bytes, ==, operand_bytes (block, &at));
    g_assert_true (at.flops == op->flops);
    g_assert_true (is_equal (sp_cost_op_at (cost, op, places[i]), seconds_of (cost, at.bytes, compute_s), 1e-12));
    g_assert_true (sp_cost_op_at (cost, op, places[i]) <= whole);
    if (between)
      g_assert_cmpmem (&at, sizeof at, op, sizeof *op);
  }
  return 1;
}

/* Bytes at a place are those of the operands that are there, and the time follows. */
static void
test_bytes (void)
{
  static const DrawLimits limits = { DRAW_LINEAR, TRUE,     { 1, 2 }, { 1, 1 },        { 1, 2 },
                                     { 1, 1 },    { 1, 1 }, { 2, 5 }, .families = TRUE };
  GRand *rand = draw_rand_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  guint seen = 0;

  for (guint i = 0; i < DRAWS; i++) {
    Draw d;
    Machine m;
    SpCost cost;
    SpEstimate e;
    draw_legal (rand, &limits, &d);
    draw_machine (rand, sp_layout_world (&d.layout, d.arch), 0, &m);
    estimate_on (&d, &m, program, &e);
    sp_cost_init (&cost, &m.cluster, &d.framework);
    sp_cost_set_paths (&cost, &m.cluster, program);
    for (gint32 v = 0; v < program->n_variants; v++)
      for (guint b = 0; b < program->n_blocks; b++)
        for (guint phase = 0; phase < SP_N_PHASES; phase++) {
          guint n;
          const SpBlock *block = &program->variants[v].blocks[b];
          const SpOp *ops = sp_program_segment (program, block, (SpPhase) phase, &n);
          for (guint o = 0; o < n; o++)
            seen += check_op (&cost, program, block, &ops[o]);
        }
    draw_clear (&d);
  }
  g_assert_cmpuint (seen, >, DRAWS);
  g_rand_free (rand);
}

/* --- the chain's backward ----------------------------------------------------------------------------------------- */

/* What a state from elsewhere is in: at the first place dK and dV, at the last dQ, between them all three. Each takes
 * one product of a token's vector with a state. */
static void
test_chain (void)
{
  for (gint32 p = 2; p <= 4; p++)
    for (guint8 version = 1; version <= 2; version++) {
      SpLayout layout = LAYOUT (.lasp = p, .lasp_version = version, .token_split = SP_TOKENS_CONTIGUOUS);
      SpRun run = { .sequence = 64 * p, .micro_batch = 1, .global_batch = 1, .causal = TRUE };
      g_autoptr (SpArchitecture) arch = small_model (SMALL_LINEAR);
      g_autoptr (SpProgram) program = sp_program_new ();
      SpFramework framework = small_framework (TRUE);
      write_legal (program, arch, &framework, &layout, &run);
      guint n;
      const SpOp *ops = sp_program_segment (program, &program->variants[0].blocks[1], SP_PHASE_BACKWARD, &n);
      for (gint32 place = 0; place < p; place++) {
        double products = 0;
        g_autoptr (GString) forms = g_string_new (NULL);
        for (guint i = 0; i < n; i++) {
          const SpOp *op = &ops[i];
          if (op->kind != SP_OP_LINEAR_INTER_BWD || !sp_guard_holds (op->guard, place, p, 0, 1))
            continue;
          g_autofree char *form = sp_op_form_name ((SpOpKind) op->kind, sp_op_form (op));
          products += op->flops / (2.0 * op->m * op->batch * op->heads * op->k * op->n);
          g_string_append_printf (forms, "%s ", form);
        }
        g_assert_cmpfloat (products, ==, place == 0 ? 2 : place == p - 1 ? 1 : 3);
        g_assert_cmpstr (forms->str, ==,
                         place == 0       ? "linear-inter-bwd/add/13.6 "
                         : place == p - 1 ? "linear-inter-bwd/add/c.1 "
                                          : "linear-inter-bwd/add/c.1 linear-inter-bwd/add/13.6 ");
      }
    }
}

static double
flops_of_step (gint32 places, guint8 version, SpArchitecture *arch, const SpRun *run)
{
  SpLayout layout = LAYOUT (.lasp = places, .lasp_version = version, .token_split = SP_TOKENS_CONTIGUOUS);
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autoptr (SpProgram) program = sp_program_new ();
  Draw d = { arch, small_framework (TRUE), layout, *run };
  SpEstimate e;
  Machine m;

  draw_machine (rand, places, 0, &m);
  estimate_on (&d, &m, program, &e);
  return e.hfu * e.step_time_s * m.device.peak_bf16_flops_per_s.value * places;
}

/* What ranks compute together beyond what one would: for each token that is not at the first place the product with the
 * state before, forward, and one in dQ; for each that is not at the last two, in dK and dV; of LASP-2 each token's part
 * of its own state apart, both ways. */
static void
test_flops (void)
{
  const SpRun run = { .sequence = 96, .micro_batch = 1, .global_batch = 2, .causal = TRUE };
  g_autoptr (SpArchitecture) arch = small_model (SMALL_LINEAR);
  double product = 2.0 * arch->heads * arch->head_size * arch->head_size * 96 * 2 * arch->layers;
  double alone = flops_of_step (1, 1, arch, &run);

  for (gint32 p = 2; p <= 4; p++)
    for (guint8 version = 1; version <= 2; version++) {
      double more = 4.0 * (p - 1) / p + (version == 2 ? 2 : 0);
      g_assert_true (is_equal (flops_of_step (p, version, arch, &run), alone + more * product, 1e-12));
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (ends_of); i++) {
    g_autofree char *path = g_strdup_printf ("/op-place/reads/%s", ends_of[i].name);
    g_test_add_data_func (path, &ends_of[i], test_reads);
  }
  g_test_add_func ("/op-place/work", test_work);
  g_test_add_func ("/op-place/bytes", test_bytes);
  g_test_add_func ("/op-place/chain", test_chain);
  g_test_add_func ("/op-place/flops", test_flops);
  return g_test_run ();
}
