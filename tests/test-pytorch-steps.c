/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch 2.11's steps on two H100 (scenarios/measured/h100x2-pytorch-steps.csv) against what is predicted of them with
 * numbers that are fitted without their mode. Time of rows that the GPUs bound: within 10 %; memory: within 5 %; and of
 * every row, whether the host binds it.
 */
#include "calibrate/fit.h"
#include "calibrate/steps.h"
#include "models/simulate/simulate.h"
#include "tests/input-file.h"

#include <math.h>

/* Rows of which the host's part is bound by nothing here. Memory: the root's gradients are reduced together at the end of
 * the backward, where the peak is as long as there are few tokens (fsdp and cp of 1024 and 2048 tokens a GPU); of more
 * tokens the head's gradient is counted from the start of its backward, 1002 MiB early, with 116 MiB of the layer that
 * is gathered ahead. Time: a ring of 4096 tokens a GPU took 1.3 times as long as one of half and 0.7 times as long as one
 * of twice as many; there is no term for that. */
#define HOST_MEMORY_BOUND 0.10
#define HOST_TIME_BOUND 0.30
#define TIME_BOUND 0.10
#define MEMORY_BOUND 0.05

static SpSteps *
load (void)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *csv = g_build_filename (sp_data_dir (), "measured", "h100x2-pytorch-steps.csv", NULL);
  g_autofree char *folder = g_build_filename (sp_data_dir (), "pytorch", NULL);
  SpSteps *steps = sp_steps_read (csv, folder, NULL, &error);
  g_assert_no_error (error);
  return steps;
}

static gboolean
fit (const SpSteps *steps, const char *without, SpStepsFit *ret)
{
  g_autoptr (GError) error = NULL;

  if (sp_steps_fit (steps, without, ret, &error))
    return TRUE;
  if (g_error_matches (error, SP_FIT_ERROR, SP_FIT_ERROR_WITHOUT_GSL))
    g_test_skip (error->message);
  else
    g_assert_no_error (error);
  return FALSE;
}

/* --- held out ------------------------------------------------------------------------------------------------------- */

static void
check_row (const SpStepsRow *row, const double *values)
{
  SpEstimate e;
  const SpRun *run = &row->scenario->run;

  sp_steps_predict (row, values, &e);
  g_assert_cmpfloat (e.low_s, <=, e.step_time_s);
  g_assert_cmpfloat (e.step_time_s, <=, e.serial_s * (1 + 1e-9));
  g_assert_cmpfloat (e.serial_s, <=, e.high_s * (1 + 1e-9));
  if (row->is_oom) {
    g_assert_false (e.fits);
    return;
  }
  gboolean host = sp_steps_is_host_bound (row);
  double time = e.step_time_s / row->step_s - 1, memory = sp_steps_allocated_bytes (&e) / row->allocated_bytes - 1;
  g_test_message ("%s %" G_GINT64_FORMAT " x %d%s: %.1f ms, measured %.1f, %+.1f %%; memory %+.1f %%; %s, predicted %s",
                  row->mode, run->sequence, run->micro_batch,
                  row->scenario->layout.recompute == SP_RECOMPUTE_FULL ? " recompute" : "", 1e3 * e.step_time_s,
                  1e3 * row->step_s, 100 * time, 100 * memory, host ? "host" : "device",
                  e.is_host_bound ? "host" : "device");
  g_assert_cmpint (e.is_host_bound, ==, host);
  g_assert_true (e.fits);
  g_assert_cmpfloat (fabs (time), <=, host ? HOST_TIME_BOUND : TIME_BOUND);
  g_assert_cmpfloat (fabs (memory), <=, host ? HOST_MEMORY_BOUND : MEMORY_BOUND);
}

static void
test_held_out (gconstpointer data)
{
  const char *mode = data;
  g_autoptr (SpSteps) steps = load ();
  SpStepsFit fitted, again;
  guint seen = 0;

  if (!fit (steps, mode, &fitted))
    return;
  for (guint i = 0; i < steps->rows->len; i++) {
    const SpStepsRow *row = steps->rows->pdata[i];
    if (!g_str_equal (row->mode, mode))
      continue;
    check_row (row, fitted.value);
    seen++;
  }
  g_assert_cmpuint (seen + fitted.n_rows, >, 20);
  g_assert_cmpuint (seen, >, 5);
  for (guint i = 0; i < SP_STEPS_N_PARAMETERS; i++)
    g_assert_false (fitted.fixed[i]);
  g_assert_true (fit (steps, mode, &again));
  g_assert_cmpmem (fitted.value, sizeof fitted.value, again.value, sizeof again.value);
}

/* 12 rows that the GPUs bound, 9 that the host does, 3 that did not fit: the bounds above are of something. */
static void
test_rows (void)
{
  g_autoptr (SpSteps) steps = load ();
  guint device = 0, host = 0, oom = 0;

  for (guint i = 0; i < steps->rows->len; i++) {
    const SpStepsRow *row = steps->rows->pdata[i];
    oom += row->is_oom;
    host += !row->is_oom && sp_steps_is_host_bound (row);
    device += !row->is_oom && !sp_steps_is_host_bound (row);
  }
  g_assert_cmpuint (device, ==, 12);
  g_assert_cmpuint (host, ==, 9);
  g_assert_cmpuint (oom, ==, 3);
}

/* What the shipped frameworks say is what is fitted to all rows, to their digits; and what they say holds. */
static void
test_shipped (void)
{
  g_autoptr (SpSteps) steps = load ();
  SpStepsFit fitted;

  for (guint i = 0; i < steps->rows->len; i++)
    check_row (steps->rows->pdata[i], NULL);
  if (!fit (steps, NULL, &fitted))
    return;
  for (guint i = 0; i < steps->rows->len; i++) {
    const SpFramework *f = ((const SpStepsRow *) steps->rows->pdata[i])->scenario->framework;
    const double shipped[] = { f->host_launch_s.value, f->host_gather_s.value, f->elementwise_time.value,
                               f->attention_time.value };
    for (guint p = 0; p < SP_STEPS_N_PARAMETERS; p++)
      g_assert_cmpfloat (fabs (fitted.value[p] / shipped[p] - 1), <, 0.005);
  }
}

/* --- by hand -------------------------------------------------------------------------------------------------------- */

static const SpStepsRow *
find (const SpSteps *steps, const char *mode, gint64 sequence, gint32 batch, gboolean recompute)
{
  for (guint i = 0; i < steps->rows->len; i++) {
    const SpStepsRow *row = steps->rows->pdata[i];
    if (g_str_equal (row->mode, mode) && row->scenario->run.sequence == sequence &&
        row->scenario->run.micro_batch == batch &&
        (row->scenario->layout.recompute == SP_RECOMPUTE_FULL) == (recompute != FALSE))
      return row;
  }
  g_assert_not_reached ();
}

/* Bytes a token, where the loss is the peak. Of a layer, h = 2048: its input, two norms' outputs, q, attention's output
 * and its copy, the sum between the branches, 2 h each; k and v, 2 x 512 each; 32 log-sums of 4; gate and up, 16,384
 * each, silu (gate) and the product, 16,384 each; two norms' statistics of 4: 96,392. Of the head: its input and the
 * norm's output, 2 h each, three fp32 copies of 128,256 logits, at most 16 of statistics. Of autocast: the two sums 4 h,
 * three casts for q, k, v and two for gate and up in place of one each. Measured from 8192 to 4096 tokens. */
static void
test_bytes_a_token (void)
{
  const double head = 2 * 4096 + 12 * 128256.0, layer = 96392, autocast = 2 * 4096 + 3 * 4096;
  const struct {
    const char *mode;
    gboolean recompute;
    double bytes;
  } rows[] = {
    { "fsdp", FALSE, 16 * layer + head },
    { "fsdp", TRUE, 16 * 4096 + head },
    { "ddp", FALSE, 16 * (layer + autocast) + head + 4096 },
  };
  g_autoptr (SpSteps) steps = load ();

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpStepsRow *few = find (steps, rows[i].mode, 4096, 1, rows[i].recompute);
    const SpStepsRow *many = find (steps, rows[i].mode, 8192, 1, rows[i].recompute);
    SpEstimate a, b;
    sp_steps_predict (few, NULL, &a);
    sp_steps_predict (many, NULL, &b);
    double predicted = (sp_steps_allocated_bytes (&b) - sp_steps_allocated_bytes (&a)) / 4096;
    double measured = (many->allocated_bytes - few->allocated_bytes) / 4096;
    g_assert_cmpfloat (fabs (predicted - rows[i].bytes), <=, 16);
    g_assert_cmpfloat (fabs (measured / rows[i].bytes - 1), <, 5e-4);
  }
}

/* Bytes of states, of P parameters of which V = 262,668,288 each are the embedding and the head. FSDP2: the fp32 shard,
 * two moments, 12 P / 2; at the loss V + V + the last norm in bf16, and (early) the head's fp32 gradient and the bf16 of
 * a layer that is gathered ahead. DDP: weights, two moments, gradients twice, 20 P; bf16 casts of all but the embedding;
 * the norms' casts, which there are none of, are 2 bytes of 67,584 elements too many. */
static void
test_state_bytes (void)
{
  const double P = 1498482688, V = 262668288, layer = 60821504, tokens = 4096;
  g_autoptr (SpSteps) steps = load ();
  SpEstimate e;

  sp_steps_predict (find (steps, "fsdp", 4096, 1, TRUE), NULL, &e);
  double activations = tokens * (16 * 4096 + 2 * 4096 + 12 * 128256.0);
  double states = 12 * P / 2 + 2 * (2 * V + 2048) + 4 * (V + 2048) + 2 * layer;
  g_assert_cmpfloat (fabs (sp_steps_allocated_bytes (&e) - activations - states), <, 16 * tokens + 1);
  sp_steps_predict (find (steps, "ddp", 4096, 1, FALSE), NULL, &e);
  activations = tokens * (16 * (96392 + 2 * 4096 + 3 * 4096) + 3 * 4096 + 12 * 128256.0);
  states = 20 * P + 2 * (P - V);
  g_assert_cmpfloat (fabs (sp_steps_allocated_bytes (&e) - activations - states), <, 16 * tokens + 1);
}

/* Kernels and gathers by hand. A layer's forward: norm, qkv, rope, attention, copy of its output, projection, sum, norm,
 * up, glu, down, sum: 12. Its backward: two products for each of four, two norms, glu, rope, attention and its delta: 14.
 * Adam: 1. The embedding: 1, 1, 1. The head: norm, product, copy, maximum, sum; loss, copy, two products, norm; Adam: 11.
 * Gathers and scatters of FSDP2: 18 blocks in the forward, 16 layers again in the backward, 18 scatters. DDP reduces
 * without either. */
static void
test_host (void)
{
  const double launch[] = { 1, 1e-6, 1, 1 }, gather[] = { 1e-9, 1, 1, 1 };
  g_autoptr (SpSteps) steps = load ();
  SpEstimate e, recomputed;

  sp_steps_predict (find (steps, "fsdp", 4096, 1, FALSE), gather, &e);
  g_assert_cmpfloat (fabs (e.host_issue_s - 52), <, 1e-5);
  sp_steps_predict (find (steps, "ddp", 4096, 1, FALSE), gather, &e);
  g_assert_cmpfloat (e.host_issue_s, <, 1e-5);
  sp_steps_predict (find (steps, "fsdp", 4096, 1, FALSE), launch, &e);
  g_assert_cmpfloat (fabs (e.host_issue_s - (16 * (12 + 14 + 1) + 3 + 11)), <, 1e-3);
  sp_steps_predict (find (steps, "fsdp", 4096, 1, TRUE), launch, &recomputed);
  /* A checkpoint stops before the last sum and product: 10 of the forward's 12 are made again. */
  g_assert_cmpfloat (fabs (recomputed.host_issue_s - e.host_issue_s - 16 * 10), <, 1e-3);
  g_assert_true (e.is_host_bound && recomputed.is_host_bound);
  g_assert_cmpfloat (e.step_time_s, >=, e.host_issue_s);
}

/* Each is a factor of what is beyond the launch, of its kernels alone. */
static void
test_factors (void)
{
  g_autoptr (SpSteps) steps = load ();
  const SpScenario *s = find (steps, "fsdp", 4096, 1, FALSE)->scenario;
  const struct {
    SpOpKind kind;
    double factor;
  } rows[] = { { SP_OP_NORM, 3 },          { SP_OP_GLU_BWD, 3 }, { SP_OP_LOSS, 3 }, { SP_OP_ATTENTION, 2 },
               { SP_OP_ATTENTION_BWD, 2 }, { SP_OP_GEMM, 1.5 },  { SP_OP_ADAM, 4 } };
  SpFramework plain = *s->framework, slow = *s->framework;
  SpCost a, b;

  plain.elementwise_time.value = plain.attention_time.value = 0;
  slow.elementwise_time.value = 3;
  slow.attention_time.value = 2;
  slow.gemm_time.value = 1.5;
  slow.optimizer_time.value = 4;
  sp_cost_init (&a, s->cluster, &plain);
  sp_cost_init (&b, s->cluster, &slow);
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const SpOp op = {
      .kind = rows[i].kind, .m = 4096, .n = 4096, .k = 64, .batch = 1, .heads = 32, .bytes = 1 << 28, .flops = 1e12
    };
    double launch = a.kernel_launch_s[op.kind], beyond = sp_cost_op (&a, &op) - launch;
    g_assert_cmpfloat (beyond, >, 1e-5);
    g_assert_cmpfloat (fabs ((sp_cost_op (&b, &op) - launch) / beyond - rows[i].factor), <, 1e-9);
  }
}

/* The simulator counts the host as the estimate does; in series they are the same. */
static void
test_simulated (void)
{
  static const char *const modes[] = { "fsdp", "ddp", "cp" };
  const SpVariations usual = SP_VARIATIONS_DEFAULT;
  g_autoptr (SpSteps) steps = load ();

  for (guint i = 0; i < G_N_ELEMENTS (modes); i++)
    for (guint serial = 0; serial < 2; serial++) {
      g_autoptr (GError) error = NULL;
      const SpStepsRow *row = find (steps, modes[i], 4096, 1, g_str_equal (modes[i], "cp"));
      const SpScenario *s = row->scenario;
      const SpSimulateOptions options = { .samples = 1, .serial = serial != 0 };
      g_auto (SpSimulated) simulated = { 0 };
      SpEstimator estimator;
      SpEstimate e;
      sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
      sp_estimate_program (&estimator, row->program, &s->run, &e);
      sp_estimate_refine (&estimator, row->program, &e);
      g_assert_true (sp_simulate (&estimator, row->program, &s->run, &usual, &options, &simulated, &error));
      g_assert_no_error (error);
      const SpEstimate *r = &simulated.result;
      g_assert_cmpfloat (fabs (r->host_issue_s / e.host_issue_s - 1), <, 1e-6);
      if (serial)
        g_assert_cmpfloat (fabs (r->step_time_s / e.serial_s - 1), <, 1e-3);
      else {
        g_assert_cmpfloat (r->step_time_s, >=, e.low_s);
        g_assert_cmpfloat (r->step_time_s, <=, e.high_s);
        g_assert_cmpfloat (r->step_time_s, >=, r->host_issue_s);
        g_assert_cmpint (r->is_host_bound, ==, e.is_host_bound);
      }
    }
}

/* --- what must be refused ------------------------------------------------------------------------------------------- */

#define HEAD                                                                                                           \
  "mode,sequence,batch_per_dp_rank,full_checkpoint,status,step_min_ms,step_median_ms,step_max_ms,max_allocated_mib"

static void
test_refused (void)
{
  static const struct {
    const char *text, *message;
  } rows[] = {
    { "# nothing\n", ":1: no rows" },
    { "mode,sequence\n", ":1: no column batch_per_dp_rank" },
    { HEAD "\nfsdp,4096\n", ":2: 2 columns, expected 9" },
    { HEAD "\nfsdp,4096,1,2,ok,1,2,3,4\n", ":2: full_checkpoint = \"2\": expected 0 or 1" },
    { HEAD "\nfsdp,4096,1,0,late,1,2,3,4\n", ":2: status = \"late\": expected ok or oom" },
    { HEAD "\nfsdp,4096,0,0,ok,1,2,3,4\n", ":2: batch_per_dp_rank = \"0\": expected a number" },
    { HEAD "\nfsdp,4096,1,0,ok,3,2,4,4\n", ":2: step_median_ms = \"2\": expected a time between" },
    { HEAD "\nfsdp,4096,1,0,ok,nan,2,4,4\n", ":2: step_min_ms = \"nan\": expected a number" },
    { HEAD "\n../fsdp,4096,1,0,ok,1,2,4,4\n", ":2: mode = \"../fsdp\": expected a name without a slash" },
    { HEAD ",model\nfsdp,4096,1,0,ok,1,2,4,4,other\n", ":2: model = \"other\": expected llama-3.2-1b-untied" },
    { HEAD "\nfsdp,many,1,0,ok,1,2,4,4\n", "[run] sequence = \"many\"" },
    { HEAD "\nnone,4096,1,0,ok,1,2,4,4\n", "none.ini" },
  };
  g_autofree char *folder = g_build_filename (sp_data_dir (), "pytorch", NULL);

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    char *path = input_file_new ("steps.csv", rows[i].text, -1);
    g_assert_null (sp_steps_read (path, folder, NULL, &error));
    g_assert_nonnull (error);
    g_test_message ("%s", error->message);
    g_assert_nonnull (strstr (error->message, rows[i].message));
    g_assert_null (strchr (error->message, '\n'));
    input_file_remove (path);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  if (g_getenv ("SEQPAR_DATA") == NULL) {
    g_print ("1..0 # SKIP SEQPAR_DATA is not set; run meson test\n");
    return 0;
  }
  g_test_add_data_func ("/pytorch-steps/without/fsdp", "fsdp", test_held_out);
  g_test_add_data_func ("/pytorch-steps/without/ddp", "ddp", test_held_out);
  g_test_add_data_func ("/pytorch-steps/without/cp", "cp", test_held_out);
  g_test_add_func ("/pytorch-steps/rows", test_rows);
  g_test_add_func ("/pytorch-steps/shipped", test_shipped);
  g_test_add_func ("/pytorch-steps/bytes-a-token", test_bytes_a_token);
  g_test_add_func ("/pytorch-steps/state-bytes", test_state_bytes);
  g_test_add_func ("/pytorch-steps/host", test_host);
  g_test_add_func ("/pytorch-steps/factors", test_factors);
  g_test_add_func ("/pytorch-steps/simulated", test_simulated);
  g_test_add_func ("/pytorch-steps/refused", test_refused);
  return g_test_run ();
}
