/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layer-volume.h"

/* What the ranks that share weights send each other: ZeRO's parts of them, and tokens for the experts. */

/* --- ZeRO --------------------------------------------------------------------------------------------------------- */

/* Parameters of a tensor rank's layer. Split: q, k, v (of linear layers also u), their bias, projection, MLP, its
 * first bias. Whole: norms, the second biases. */
static double
layer_parameters (const SpArchitecture *a, const Terms *t, gboolean linear)
{
  double in = (linear ? 4 * t->A : t->A + 2 * t->A_kv) * t->D, ffn = a->ffn / t->T, up = a->mlp == SP_MLP_GELU ? 1 : 2;
  double norms = a->norm == SP_NORM_LAYER ? 4 : a->norm == SP_NORM_RMS ? 2 : 0;
  double split = in * t->H + t->H * t->A * t->D + (up + 1) * ffn * t->H;

  if (a->qkv_bias && !linear)
    split += in;
  if (a->mlp_bias)
    split += up * ffn;
  return split + (norms + a->projection_bias + a->mlp_bias) * t->H;
}

/* Payload of ops over a group. */
static double
over_group (const SpProgram *program, const SpBlock *block, SpPhase phase, SpGroupId group)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  double sum = 0;

  for (guint i = 0; i < n; i++)
    if (sp_op_is_communication (ops[i].kind) && ops[i].group == group)
      sum += (double) ops[i].bytes;
  return sum;
}

/* A step's payload for m micro-batches over G = data x sequence ranks, with the layer's Psi padded to a multiple of
 * G: stage 0 an all-reduce of gradients; 1 a scatter of gradients and a gather of parameters; 2 a scatter each
 * micro-batch; 3 a scatter each micro-batch and gathers for forward and backward, for the forward alone without
 * resharding. Of a hybrid shard G are the ranks that share a copy, and each step Psi / G of gradients are all-reduced over
 * the others. */
static double
check_zero (const Subject *s, const SpBlock *block, const Terms *t, gboolean linear)
{
  const SpLayout *l = &s->draw.layout;
  double all = l->data * t->S, G = l->zero_group > 0 ? l->zero_group : all;
  double m = s->program->micro_batches, Psi = layer_parameters (s->draw.arch, t, linear);
  double gathers = l->zero == 0 ? 0 : l->zero < 3 ? 1 : l->reshard ? 2 * m : m, reductions = l->zero < 2 ? 1 : m;
  double part = (G - 1) / G;
  guint n;

  if (G == 1)
    return 0;
  if (l->zero > 0)
    Psi = ceil (Psi / G) * G;
  Count gather = count (s, block, SP_PHASE_GATHER, SP_AXIS_DATA, SP_N_DTYPES),
        sync = count (s, block, SP_PHASE_SYNC, SP_AXIS_DATA, SP_N_DTYPES),
        optimizer = count (s, block, SP_PHASE_OPTIMIZER, SP_AXIS_DATA, SP_N_DTYPES);
  double copies = over_group (s->program, block, SP_PHASE_SYNC, SP_GROUP_REPLICA);
  expect (&s->draw, "gradients' shards over the copies", copies / sp_dtype_bytes (l->gradient_dtype),
          G < all ? Psi / G : 0);
  sync.payload -= copies / sp_dtype_bytes (l->gradient_dtype);
  sync.wire -= 2 * (1 - G / all) * copies / sp_dtype_bytes (l->gradient_dtype);
  sync.bytes -= copies;
  const SpOp *ops = sp_program_segment (s->program, block, SP_PHASE_SYNC, &n);
  gboolean each = FALSE;
  for (guint i = 0; i < n; i++)
    each |= ops[i].axis == SP_AXIS_DATA && ops[i].flags & SP_OP_PER_MICRO_BATCH;
  double gather_times = m * (1 + block->regather), sync_times = each ? m : 1;
  expect (&s->draw, "gathered parameters", gather_times * gather.payload + optimizer.payload, gathers * Psi);
  expect (&s->draw, "gathered parameters, wire", gather_times * gather.wire + optimizer.wire, gathers * Psi * part);
  expect (&s->draw, "reduced gradients", sync_times * sync.payload, reductions * Psi);
  expect (&s->draw, "reduced gradients, wire", sync_times * sync.wire,
          (l->zero == 0 ? 2 : 1) * reductions * Psi * part);
  expect (&s->draw, "all of it", gather_times * gather.payload + optimizer.payload + sync_times * sync.payload,
          Psi * (l->zero == 0   ? 1
                 : l->zero == 1 ? 2
                 : l->zero == 2 ? m + 1
                 : l->reshard   ? 3 * m
                                : 2 * m));
  expect (&s->draw, "gradients' bytes", sync.bytes, sync.payload * sp_dtype_bytes (l->gradient_dtype));
  return 0;
}

static double
check_zero_softmax (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_zero (s, block, t, FALSE);
}

static double
check_zero_linear (const Subject *s, const SpBlock *block, const Terms *t)
{
  return check_zero (s, block, t, TRUE);
}

static void
test_zero (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 1, 6 }, { 1, 3 }, { 1, 2 }, { 1, 3 }, { 1, 3 }, { 1, 4 } };
  static const CheckBlock check[SP_N_BLOCK_KINDS] = {
    [SP_BLOCK_SOFTMAX] = check_zero_softmax, [SP_BLOCK_LINEAR] = check_zero_linear
  };

  for (guint i = 0; i < 4; i++)
    check_row ("zero", &limits, SP_N_AXES, check);
}

/* The same of all of a step and model on one stage: embedding (with positions, as many as tokens at least) and head
 * count as layers. A tied matrix is gathered for the head too, so it is left out. */
static void
test_zero_step (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE, { 2, 6 }, { 1, 3 }, { 1, 1 }, { 1, 3 }, { 1, 3 }, { 1, 4 } };
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &limits);
    const SpArchitecture *a = s.draw.arch;
    const SpLayout *l = &s.draw.layout;
    Terms t = terms_of (&s.draw, 1);
    double all = l->data * t.S, G = l->zero_group > 0 ? l->zero_group : all;
    double m = s.program->micro_batches, V = ceil (a->vocabulary / t.T);
    double positions = a->positions ? MAX (a->positions, t.N) : 0;
    double norm = a->norm == SP_NORM_LAYER ? 2 : a->norm == SP_NORM_RMS ? 1 : 0;
    double sizes[] = { (V + positions) * t.H, (V + norm) * t.H, layer_parameters (a, &t, FALSE),
                       layer_parameters (a, &t, TRUE) };
    double counts[] = { 1, 1, sp_architecture_count (a, SP_LAYER_SOFTMAX), sp_architecture_count (a, SP_LAYER_LINEAR) };
    double Psi = 0;
    for (guint j = 0; j < G_N_ELEMENTS (sizes); j++)
      Psi += counts[j] * (l->zero ? ceil (sizes[j] / G) * G : sizes[j]);
    double gathers = l->zero == 0 ? 0 : l->zero < 3 ? 1 : l->reshard ? 2 * m : m, reductions = l->zero < 2 ? 1 : m;
    if (G < all)
      reductions += 1 / G;
    if (!a->tied)
      expect (&s.draw, "bytes of a step", s.estimate.axes[SP_AXIS_DATA].payload_bytes.mean,
              Psi *
                  (gathers * sp_dtype_bytes (s.draw.run.precision) + reductions * sp_dtype_bytes (l->gradient_dtype)));
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

static const DrawLimits expert_limits = { DRAW_ANY, FALSE, { 1, 6 }, { 1, 3 }, { 1, 2 }, { 1, 4 }, { 1, 4 }, { 1, 4 },
                                          .experts = TRUE };

/* Elements of each token's way there, and back: k H a token, in buffers of whole rows for each of E experts. With a
 * capacity f they have f times the mean, at most a row a token; else what the busiest rank has over it, of which the
 * mean rank sends 1 / imbalance. */
static double
expert_elements (const Draw *d, const Terms *t)
{
  double tokens = t->B * t->N / t->S, f = d->layout.expert_capacity, E = d->arch->moe.experts;
  double over = f > 0 ? f : MIN (MAX (d->run.expert_imbalance, 1), d->layout.expert);
  double rows = MIN (tokens, ceil (tokens * d->arch->moe.experts_per_token * over / E - 1e-9));

  return E * rows * t->H / (f > 0 ? 1 : over);
}

/* Two all-to-alls forward, two backward, over P = expert ranks: wire (P - 1) / P of it. A layer more where it is
 * recomputed in full; then the estimate's bytes of a step. */
static void
test_experts (void)
{
  GRand *rand = draw_rand_new ();
  guint found = 0;

  for (guint i = 0; i < 4 * DRAWS && !g_test_failed (); i++) {
    Subject s;
    double step = 0;
    subject_init (&s, rand, &expert_limits);
    const SpLayout *l = &s.draw.layout;
    double P = l->expert, size = sp_dtype_bytes (s.draw.run.precision);
    for (gint32 v = 0; v < s.program->n_variants; v++)
      for (guint b = 1; b + 1 < s.program->n_blocks; b++) {
        const SpBlock *block = &s.program->variants[v].blocks[b];
        Terms t = terms_of (&s.draw, s.program->variants[v].batch);
        double elements = block->traits & SP_LAYER_EXPERTS && P > 1 ? expert_elements (&s.draw, &t) : 0;
        double over = l->expert_capacity > 0 ? 1 : MIN (MAX (s.draw.run.expert_imbalance, 1), P), again;
        Count f = count (&s, block, SP_PHASE_FORWARD, SP_AXIS_EXPERT, SP_N_DTYPES),
              b2 = count (&s, block, SP_PHASE_BACKWARD, SP_AXIS_EXPERT, SP_N_DTYPES),
              r = count (&s, block, SP_PHASE_RECOMPUTE, SP_AXIS_EXPERT, SP_N_DTYPES);
        expect (&s.draw, "experts, forward", f.payload / over, 2 * elements);
        expect (&s.draw, "experts, forward wire", f.wire / over, 2 * elements * (P - 1) / P);
        expect (&s.draw, "experts, backward", b2.payload / over, 2 * elements);
        again = l->recompute == SP_RECOMPUTE_FULL && block->recomputes ? 2 * elements : 0;
        expect (&s.draw, "experts, recomputed", r.payload / over, again);
        double runs = s.program->n_variants == 1 ? s.program->micro_batches : v == 0 ? s.program->micro_batches - 1 : 1;
        for (guint layer = 0; layer < s.program->n_layers; layer++)
          step += s.program->layer_block[layer] == b ? runs * (4 * elements + again) * size : 0;
        found += elements > 0;
      }
    expect (&s.draw, "experts, bytes of a step", s.estimate.axes[SP_AXIS_EXPERT].payload_bytes.mean,
            step / s.program->stages);
    subject_clear (&s);
  }
  g_test_message ("%u layers", found);
  g_assert_cmpuint (found, >, DRAWS / 10);
  g_rand_free (rand);
}

/* ZeRO's row, experts apart: theirs are sharded over the G / P ranks that hold the same, the rest of the layer over all
 * G. A rank's experts: E / P of up and down, width over T. The rest: the layer without an MLP, router, shared ones. */
static void
test_zero_experts (void)
{
  GRand *rand = draw_rand_new ();

  for (guint i = 0; i < 2 * DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &expert_limits);
    const SpArchitecture *a = s.draw.arch;
    const SpLayout *l = &s.draw.layout;
    Terms t = terms_of (&s.draw, 1);
    double up = sp_mlp_is_gated (a->mlp) ? 2 : 1, m = s.program->micro_batches, G = l->data * t.S, P = l->expert;
    double ffn = a->ffn / t.T, dense = (up + 1) * ffn * t.H + (a->mlp_bias ? up * ffn + t.H : 0);
    for (guint b = 1; b + 1 < s.program->n_blocks; b++) {
      const SpBlock *block = &s.program->variants[0].blocks[b];
      if (!(block->traits & SP_LAYER_EXPERTS))
        continue;
      const double Psi[] = { layer_parameters (a, &t, block->kind == SP_BLOCK_LINEAR) - dense + a->moe.experts * t.H +
                                 (up + 1) * a->moe.shared_ffn / t.T * t.H + (a->moe.shared_gate ? t.H : 0),
                             a->moe.experts / P * (up + 1) * a->moe.ffn / t.T * t.H };
      for (guint f = 0; f < 2; f++) {
        SpGroupId group = f == 0 ? SP_GROUP_ZERO : SP_GROUP_EXPERT_DATA;
        double ranks = f == 0 ? G : G / P, part = l->zero > 0 ? ceil (Psi[f] / ranks) * ranks : Psi[f];
        gint32 zero = ranks > 1 ? l->zero : 0;
        double gathers = zero == 0 ? 0 : zero < 3 ? 1 : l->reshard ? 2 * m : m;
        double reductions = ranks == 1 ? 0 : zero < 2 ? 1 : m;
        double got = over_group (s.program, block, SP_PHASE_GATHER, group) * m * (1 + block->regather) +
                     over_group (s.program, block, SP_PHASE_OPTIMIZER, group);
        g_assert_cmpint (block->flats[f].group, ==, group);
        expect (&s.draw, "gathered, experts apart", got / sp_dtype_bytes (s.draw.run.precision), gathers * part);
        got = over_group (s.program, block, SP_PHASE_SYNC, group) * (zero >= 2 ? m : 1);
        expect (&s.draw, "reduced, experts apart", got / sp_dtype_bytes (l->gradient_dtype), reductions * part);
      }
    }
    subject_clear (&s);
  }
  g_rand_free (rand);
}

/* Data bytes of a step with parameters sharded. */
static double
sharded_bytes (Subject *s, gboolean reshard, gint32 slices)
{
  SpLayout layout = s->draw.layout;
  SpEstimate e;

  layout.reshard = reshard;
  layout.slices = slices;
  memset (layout.slice_split, 0, sizeof layout.slice_split);
  sp_estimate_layout (&s->estimator, s->program, &layout, &s->draw.run, &e);
  return e.axes[SP_AXIS_DATA].payload_bytes.mean;
}

/* Of m micro-batches in s slices what is resharded is gathered 2 m s times, and what is kept m times: a sequence's first
 * slice has it for the others. All else that data ranks send is the same, so it is the difference that is looked at; but
 * for a tied matrix, which is gathered for the head too unless it is kept. */
static void
test_zero_slices (void)
{
  static const DrawLimits limits = { DRAW_ANY, FALSE,    { 2, 6 }, { 1, 3 },          { 1, 3 },
                                     { 1, 3 }, { 1, 1 }, { 1, 4 }, .schedules = TRUE, .slices = TRUE };
  GRand *rand = draw_rand_new ();
  guint sliced = 0;

  for (guint i = 0; i < 10 * DRAWS && !g_test_failed (); i++) {
    Subject s;
    subject_init (&s, rand, &limits);
    gint32 slices = s.draw.layout.slices;
    s.draw.layout.zero = 3;
    if (slices > 1 && s.draw.layout.slice_split[0] == 0 && !s.draw.arch->tied &&
        sp_layout_check (&s.draw.layout, s.draw.arch, &s.draw.framework, &s.draw.run, 0, NULL)) {
      double once = sharded_bytes (&s, TRUE, 1) - sharded_bytes (&s, FALSE, 1);
      expect (&s.draw, "what is kept", sharded_bytes (&s, TRUE, slices) - sharded_bytes (&s, FALSE, slices),
              (2 * slices - 1) * once);
      sliced += once > 0;
    }
    subject_clear (&s);
  }
  g_test_message ("%u layouts in slices gather", sliced);
  g_assert_cmpuint (sliced, >, 0);
  g_rand_free (rand);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/volume/zero", test_zero);
  g_test_add_func ("/volume/zero-step", test_zero_step);
  g_test_add_func ("/volume/experts", test_experts);
  g_test_add_func ("/volume/zero-experts", test_zero_experts);
  g_test_add_func ("/volume/zero-slices", test_zero_slices);
  return g_test_run ();
}
