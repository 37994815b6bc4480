/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/fit-curves.h"

#include <math.h>
#include <string.h>

#include "calibrate/fit-curves-private.h"
#include "calibrate/fit-pieces.h"
#include "models/estimate/curves.h"

/* --- sizes -------------------------------------------------------------------------------------------------------- */

double
sp_fit_flops (const SpPoint *p)
{
  double heads = sp_fit_or_one (p->batch) * sp_fit_or_one (p->heads), d = sp_fit_or_one (p->k);
  double pairs = (double) p->m * sp_fit_or_one (p->n) * (g_str_has_suffix (p->variant, "causal") ? 0.5 : 1);
  gboolean both = g_str_has_suffix (p->variant, "with-forward");

  switch (p->op) {
  case SP_MEASURED_GEMM:
    return 2.0 * sp_fit_or_one (p->batch) * p->m * p->n * p->k;
  case SP_MEASURED_ATTENTION:
    return 4 * d * pairs * heads;
  case SP_MEASURED_ATTENTION_BACKWARD:
    return (both ? 14 : 10) * d * pairs * heads;
  case SP_MEASURED_LINEAR_ATTENTION:
    return 8 * d * sp_fit_or_one (p->n) * p->m * heads;
  case SP_MEASURED_LINEAR_ATTENTION_BACKWARD:
    return (both ? 28 : 20) * d * sp_fit_or_one (p->n) * p->m * heads;
  default:
    return 0;
  }
}

double
sp_fit_size (SpCurveKind kind, const SpPoint *point)
{
  if (kind == SP_CURVE_KERNEL)
    return point->flops > 0 ? point->flops : (double) point->bytes;
  return kind <= SP_CURVE_LINEAR_BACKWARD ? sp_fit_flops (point) : (double) point->bytes;
}

/* --- predictions -------------------------------------------------------------------------------------------------- */

static double
core_s (const double *value, SpCurveKind kind, gint32 sms, const SpPoint *p)
{
  gboolean softmax = kind == SP_CURVE_ATTENTION || kind == SP_CURVE_ATTENTION_BACKWARD;
  double use = sp_curve_core_use (value[SP_CORE_HALF_TOKENS], value[SP_CORE_HEAD_POWER],
                                  softmax ? sp_fit_or_one (p->n) : (double) p->m, sp_fit_or_one (p->k));

  if (softmax)
    use *=
        sp_curve_wave_use (sms, (p->m + 127) / 128 * (gint64) (sp_fit_or_one (p->heads) * sp_fit_or_one (p->batch)), 1);
  return value[SP_CORE_LAUNCH] + sp_fit_flops (p) / (value[SP_CORE_RATE] * use);
}

static SpKernelSizes
sizes_of (const SpPoint *p)
{
  SpKernelSizes sizes = { p->kernel, p->m, p->n, p->k, 0, (double) p->bytes, p->flops, p->clock };

  /* A GEMM's heads are strides. */
  sizes.heads = (gint64) ((sizes.op == SP_OP_GEMM ? 1 : sp_fit_or_one (p->heads)) * sp_fit_or_one (p->batch));
  return sizes;
}

static double
kernel_s (const double *value, gint32 sms, const SpPoint *p)
{
  const SpKernelSizes sizes = sizes_of (p);

  return sp_curve_kernel_s (value, sms, &sizes);
}

static double
slowed_s (const double *value, gint32 sms, const SpPoint *p, double alone_s)
{
  const SpKernelSizes sizes = sizes_of (p);

  return alone_s * (1 + sp_curve_slowdown (value, sms, &sizes));
}

static double
predict (SpCurveKind kind, const double *value, const SpFitGiven *given, const SpPoint *p, double alone_s)
{
  switch (kind) {
  case SP_CURVE_GEMM:
    return sp_curve_gemm_s (value, given->sms, (gint32) sp_fit_or_one (p->batch), p->m, p->n, p->k);
  case SP_CURVE_ATTENTION:
  case SP_CURVE_ATTENTION_BACKWARD:
  case SP_CURVE_LINEAR:
  case SP_CURVE_LINEAR_BACKWARD:
    return core_s (value, kind, given->sms, p);
  case SP_CURVE_KERNEL:
    return kernel_s (value, given->sms, p);
  case SP_CURVE_BESIDE:
    return value[SP_BESIDE_WAIT] + value[SP_BESIDE_FACTOR] * alone_s;
  case SP_CURVE_SLOWDOWN:
    return slowed_s (value, given->sms, p, alone_s);
  default:
    return value[0];
  }
}

double
sp_fit_predict (const SpCurve *curve, const SpFitGiven *given, const SpPoint *point, double alone_s)
{
  double value[SP_CURVE_SLOTS];

  if (sp_curve_is_transfer (curve->kind))
    return sp_curve_transfer_s (curve, (double) point->bytes, NULL);
  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    value[i] = curve->value[i].value;
  return predict (curve->kind, value, given, point, alone_s);
}

#define WILD_WEIGHT 0.1

/* --- what came out ------------------------------------------------------------------------------------------------ */

void
sp_fit_set_value (SpCurve *curve, guint slot, double value, double error, const char *why_not)
{
  g_free (curve->value[slot].source);
  curve->value[slot] =
      (SpQuantity){ value, error > 0 ? SP_MEASURED : SP_ASSUMED, error > 0 ? NULL : g_strdup (why_not) };
  curve->error[slot] = error;
}

static void
take_fitted (SpCurve *curve, guint first, guint n, const SpFitted *fitted, const char *why_not)
{
  for (guint i = 0; i < n; i++) {
    sp_fit_set_value (curve, first + i, fitted->value[i], fitted->error[i], why_not);
    for (guint j = 0; j < n; j++)
      curve->covariance[first + i][first + j] = fitted->covariance[i][j];
  }
}

/* Residuals of all points by the curve, their quantiles, and the range. */
static void
set_quality (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *residuals)
{
  g_autofree double *sizes = g_new (double, task->n);
  g_autofree double *errors = g_new (double, task->n);
  double median;

  for (guint i = 0; i < task->n; i++) {
    const SpPoint *p = task->points[i];
    residuals[i] = sp_fit_predict (curve, given, p, task->alone_s != NULL ? task->alone_s[i] : 0) / p->seconds - 1;
    errors[i] = fabs (residuals[i]);
    sizes[i] = sp_fit_size (task->kind, p);
  }
  median = sp_median (errors, task->n);
  curve->points = (gint32) task->n;
  curve->median = median;
  curve->scatter = 1.4826 * median;
  curve->p90 = sp_quantile (errors, task->n, 0.9);
  curve->worst = errors[task->n - 1];
  curve->from = sp_quantile (sizes, task->n, 0);
  curve->to = sizes[task->n - 1];
}

/* --- kinds -------------------------------------------------------------------------------------------------------- */

double
sp_fit_seconds (const double *parameters, guint point, gconstpointer data)
{
  const SpFitData *d = data;
  double value[SP_CURVE_SLOTS] = { 0 };

  memcpy (value, d->slots != NULL ? d->value : parameters,
          (d->slots != NULL ? SP_CURVE_SLOTS : SP_FIT_MAX_PARAMETERS) * sizeof *value);
  for (guint i = 0; d->slots != NULL && d->slots[i] < SP_CURVE_SLOTS; i++)
    value[d->slots[i]] = parameters[i];
  return predict (d->task->kind, value, d->given, d->task->points[point],
                  d->task->alone_s != NULL ? d->task->alone_s[point] : 0);
}

const char sp_fit_not_identified[] = "not identified by these points";

gboolean
sp_fit_try (SpFitSearch *search, const double *start)
{
  SpFitted fitted;

  memcpy (search->problem.start, start, sizeof search->problem.start);
  if (!sp_fit (&search->problem, &fitted, NULL, search->tried) || fitted.loss >= search->best.loss * (1 - 1e-6))
    return FALSE;
  search->best = fitted;
  memcpy (search->weights, search->tried, search->problem.n_points * sizeof *search->weights);
  return TRUE;
}

void
sp_fit_search_around (SpFitSearch *search)
{
  static const double factors[] = { 0.8, 1.25 };
  gboolean better = TRUE;

  for (guint round = 0; round < 4 && better; round++) {
    better = FALSE;
    for (guint i = 0; i < 2 * search->problem.n_parameters; i++) {
      double start[SP_FIT_MAX_PARAMETERS];
      memcpy (start, search->best.value, sizeof start);
      start[i / 2] = CLAMP (start[i / 2] * factors[i % 2], search->problem.lower[i / 2], search->problem.upper[i / 2]);
      better = sp_fit_try (search, start) || better;
    }
  }
}

/* One formula through all points, begun at each of `n` starts, and around the best: where the formula has bends, a
 * fit that begins on the wrong side of one may never cross it. The one of least loss is taken. */
static gboolean
fit_formula (const SpFitTask *task, const SpFitGiven *given, const SpFitProblem *problem,
             const double (*starts)[SP_FIT_MAX_PARAMETERS], guint n, SpCurve *curve, double *weights)
{
  g_autofree double *log_seconds = g_new (double, task->n);
  g_autofree double *sigma = g_new (double, task->n);
  g_autofree double *tried = g_new (double, task->n);
  SpFitData data = { .task = task, .given = given };
  SpFitSearch search = { *problem, { .loss = INFINITY }, weights, tried };

  for (guint i = 0; i < task->n; i++) {
    log_seconds[i] = log (task->points[i]->seconds);
    sigma[i] = task->points[i]->sigma;
  }
  search.problem.n_points = task->n;
  search.problem.log_seconds = log_seconds;
  search.problem.sigma = sigma;
  search.problem.seconds = sp_fit_seconds;
  search.problem.data = &data;
  for (guint i = 0; i < n; i++)
    sp_fit_try (&search, starts[i]);
  if (search.best.loss == INFINITY)
    return FALSE;
  sp_fit_search_around (&search);
  take_fitted (curve, 0, problem->n_parameters, &search.best, sp_fit_not_identified);
  curve->chi_square = search.best.chi_square;
  return TRUE;
}

double
sp_fit_extreme (const SpFitTask *task, SpFitExtreme which)
{
  g_autofree double *values = g_new (double, task->n);

  for (guint i = 0; i < task->n; i++) {
    const SpPoint *p = task->points[i];
    double m = (double) p->m, n = (double) p->n, k = (double) p->k;
    if (which == SP_FIT_MOST_RATE)
      values[i] = sp_fit_size (task->kind, p) / p->seconds;
    else if (which == SP_FIT_MOST_MEMORY_RATE)
      values[i] = 2 * sp_fit_or_one (p->batch) * (m * n + m * k + n * k) / p->seconds;
    else
      values[i] = p->seconds;
  }
  sp_median (values, task->n);
  return values[which == SP_FIT_LEAST_SECONDS ? MIN (1, task->n - 1) : task->n - MIN (2, task->n)];
}

static gboolean
fit_gemm (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  /* A GEMM may be bound by memory. Where the card is not known: at what was reached, or at up to 100 FLOP a byte. */
  double rate = sp_fit_extreme (task, SP_FIT_MOST_RATE), least = sp_fit_extreme (task, SP_FIT_LEAST_SECONDS);
  double reached = sp_fit_extreme (task, SP_FIT_MOST_MEMORY_RATE);
  double slow = given->memory_bytes_per_s > 0 ? 0.4 * given->memory_bytes_per_s : 0.9 * reached;
  double fast =
      given->memory_bytes_per_s > 0 ? MAX (1.6 * given->memory_bytes_per_s, 1.1 * slow) : MAX (rate / 100, 4 * reached);
  double starts[8][SP_FIT_MAX_PARAMETERS];
  SpFitProblem problem = {
    .n_parameters = 7,
    .lower = { least / 1000, rate / 2, slow, 8, 0.4, 0.1, 0.02 },
    .upper = { least * 1.5, rate * 2, fast, 4096, 1, 1, 1 },
    .assumed = { 0, 0, given->memory_bytes_per_s, 256, 0.9, 0.6, 1 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (starts); i++) {
    double memory = slow * pow (fast / slow, i < 4 ? 0.25 : 0.75);
    const double tile = i / 2 % 2 ? 0.6 : 0.4, tail = i % 2 ? 0.8 : 0.3;
    const double start[SP_FIT_MAX_PARAMETERS] = { least / 4, rate * 1.05, memory, 256, 0.9, tile, tail };
    memcpy (starts[i], start, sizeof start);
  }
  return fit_formula (task, given, &problem, starts, G_N_ELEMENTS (starts), curve, weights);
}

gboolean
sp_fit_head_sizes_differ (const SpFitTask *task)
{
  for (guint i = 1; i < task->n; i++)
    if (task->points[i]->k != task->points[0]->k)
      return TRUE;
  return FALSE;
}

static gboolean
fit_core (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights, char **ret_missing)
{
  gboolean power = sp_fit_head_sizes_differ (task) && task->n > 4;
  double rate = sp_fit_extreme (task, SP_FIT_MOST_RATE), least = sp_fit_extreme (task, SP_FIT_LEAST_SECONDS);
  SpFitProblem problem = {
    .n_parameters = power ? 4 : 3,
    .lower = { least / 1000, rate / 4, 1, 0.01 },
    .upper = { least * 1.5, rate * 4, 65536, 2 },
  };
  const double starts[][SP_FIT_MAX_PARAMETERS] = { { least / 5, rate * 1.1, 256, 0.3 },
                                                   { least / 5, rate * 1.1, 2048, 0.3 } };
  if (!fit_formula (task, given, &problem, starts, G_N_ELEMENTS (starts), curve, weights))
    return FALSE;
  /* All that long points say of a launch is that it is less than the least that was tried. */
  if (curve->error[SP_CORE_LAUNCH] == 0 && given->launch_s > 0 && given->launch_s < problem.lower[SP_CORE_LAUNCH])
    sp_fit_set_value (curve, SP_CORE_LAUNCH, given->launch_s, 0, "the device's: less than these points can tell");
  if (!power) {
    sp_fit_set_value (curve, SP_CORE_HEAD_POWER, 0, 0, "one head size was measured");
    g_autofree char *name = sp_curve_name (curve);
    *ret_missing =
        g_strdup_printf ("%s: how the rate goes with the head size is not known: all points have %d, or there "
                         "are too few; time it at other head sizes too (32, 64, 256)",
                         name, (int) task->points[0]->k);
  }
  return TRUE;
}

/* --- transfers, and what runs beside another ---------------------------------------------------------------------- */

static gboolean
fit_beside (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  SpFitProblem problem = {
    .n_parameters = 2,
    .lower = { 1e-8, 0.2 },
    .upper = { sp_fit_extreme (task, SP_FIT_MOST_SECONDS), 50 },
  };
  const double starts[][SP_FIT_MAX_PARAMETERS] = { { sp_fit_extreme (task, SP_FIT_LEAST_SECONDS) / 2, 1.1 } };
  return fit_formula (task, given, &problem, starts, 1, curve, weights);
}

static gboolean
fit_transfer (const SpFitTask *task, SpCurve *curve, double *weights)
{
  double bytes[SP_PIECES_MOST_POINTS], seconds[SP_PIECES_MOST_POINTS], sigma[SP_PIECES_MOST_POINTS];
  guint every = (task->n + SP_PIECES_MOST_POINTS - 1) / SP_PIECES_MOST_POINTS, n = 0;
  SpFittedPieces pieces;

  for (guint i = 0; i < task->n; i++) {
    weights[i] = 1;
    if ((task->n - 1 - i) % every != 0) /* of more sizes than it takes every other, the last one among them */
      continue;
    bytes[n] = (double) task->points[i]->bytes;
    seconds[n] = task->points[i]->seconds;
    sigma[n++] = task->points[i]->sigma;
  }
  if (!sp_fit_pieces (bytes, seconds, sigma, n, &pieces))
    return FALSE;
  double chi = 0, dof = 0;
  curve->n_slots = pieces.n_pieces * SP_PIECE_SLOTS;
  for (guint i = 0; i < pieces.n_pieces; i++) {
    const SpFittedPiece *piece = &pieces.pieces[i];
    take_fitted (curve, i * SP_PIECE_SLOTS, SP_PIECE_SLOTS, &piece->fitted, sp_fit_not_identified);
    double growth = piece->fitted.value[SP_PIECE_GROWTH];
    if (piece->parameters < 3)
      sp_fit_set_value (curve, i * SP_PIECE_SLOTS + SP_PIECE_GROWTH, growth, 0,
                        growth > 0 ? "the root of the size" : "a plain piece");
    /* A wild point at an end does not say that the piece reaches there. */
    guint first = piece->first, last = piece->first + piece->n - 1;
    while (i > 0 && first + 2 < last && piece->weights[first - piece->first] < WILD_WEIGHT)
      first++;
    while (i + 1 < pieces.n_pieces && first + 2 < last && piece->weights[last - piece->first] < WILD_WEIGHT)
      last--;
    curve->begin[i] = bytes[first];
    curve->end[i] = bytes[last];
    double free = piece->n - (double) piece->parameters;
    chi += piece->fitted.chi_square * free;
    dof += free;
    for (guint j = 0; every == 1 && j < piece->n; j++)
      weights[piece->first + j] = piece->weights[j];
  }
  curve->chi_square = dof > 0 ? chi / dof : 0;
  return TRUE;
}

/* Median and its standard error. */
static gboolean
fit_median (const SpFitTask *task, SpCurve *curve, double *weights)
{
  g_autofree double *values = g_new (double, task->n);
  gboolean slowdown = task->kind == SP_CURVE_SLOWDOWN;
  double sigma = 0;

  for (guint i = 0; i < task->n; i++) {
    double seconds = task->points[i]->seconds;
    values[i] = slowdown ? seconds / task->alone_s[i] - 1 : seconds;
    sigma = MAX (sigma, task->points[i]->sigma * (slowdown ? 1 + values[i] : values[i]));
    weights[i] = 1;
  }
  double median = sp_median (values, task->n);
  double spread = task->n > 1 ? (values[task->n - 1] - values[0]) / 2 : 0;
  sp_fit_set_value (curve, 0, median, MAX (sigma, spread / sqrt (task->n)), sp_fit_not_identified);
  curve->covariance[0][0] = curve->error[0] * curve->error[0];
  return TRUE;
}

/* Of kernels whose waves are known: slowdown + wave / waves by least squares, neither below 0. */
static gboolean
fit_waves (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  double n = task->n, sx = 0, sy = 0, sxx = 0, sxy = 0, square = 0;
  g_autofree double *x = g_new (double, task->n), *y = g_new (double, task->n);

  for (guint i = 0; i < task->n; i++) {
    const SpKernelSizes sizes = sizes_of (task->points[i]);
    x[i] = 1 / sp_curve_waves (given->sms, &sizes);
    y[i] = task->points[i]->seconds / task->alone_s[i] - 1;
    sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
    weights[i] = 1;
  }
  double spread = sxx - sx * sx / n, wave = spread > 0 ? (sxy - sx * sy / n) / spread : 0, base = (sy - wave * sx) / n;
  gboolean through_0 = base < 0, level = wave < 0;
  if (through_0)
    base = 0, wave = MAX (sxy / sxx, 0);
  if (level)
    wave = 0, base = MAX (sy / n, 0);
  for (guint i = 0; i < task->n; i++)
    square += (y[i] - base - wave * x[i]) * (y[i] - base - wave * x[i]);
  double variance = square / MAX (n - 2, 1);
  double base_error = through_0 ? 0 : sqrt (variance * (level ? 1 / n : sxx / (n * spread)));
  double wave_error = level ? 0 : sqrt (variance / (through_0 ? sxx : spread));
  sp_fit_set_value (curve, SP_SLOWDOWN_BASE, base, base_error, "would be below 0");
  sp_fit_set_value (curve, SP_SLOWDOWN_WAVE, wave, wave_error, "would be below 0");
  curve->covariance[0][0] = base_error * base_error;
  curve->covariance[1][1] = wave_error * wave_error;
  if (!through_0 && !level)
    curve->covariance[0][1] = curve->covariance[1][0] = -variance * sx / (n * spread);
  return TRUE;
}

static gboolean
fit_slowdown (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  const SpPoint *first = task->points[0];
  const SpKernelSizes sizes = sizes_of (first);
  gboolean waves = first->op == SP_MEASURED_KERNEL && task->n > 2 && isfinite (sp_curve_waves (given->sms, &sizes));

  return waves ? fit_waves (task, given, curve, weights) : fit_median (task, curve, weights);
}

/* --- what is needed ----------------------------------------------------------------------------------------------- */

/* Of what a slowdown is: of a GEMM or a copy beside that transfer, or of a program's kernels. */
static gboolean
names_transfer (const char *variant)
{
  for (guint op = SP_MEASURED_ONE_WAY; op <= SP_MEASURED_BROADCAST; op++)
    if (variant != NULL && g_str_has_prefix (variant, sp_measured_op_names[op]))
      return TRUE;
  return FALSE;
}

/* What a transfer ran beside: a copy, kernels of an op; NULL: a GEMM. */
static const char *
beside_of (const SpFitTask *task)
{
  for (guint op = SP_MEASURED_ONE_WAY; task->variant != NULL && op <= SP_MEASURED_BROADCAST; op++) {
    gsize length = strlen (sp_measured_op_names[op]);
    if (g_str_has_prefix (task->variant, sp_measured_op_names[op]) && task->variant[length] == '-')
      return task->variant + length + 1;
  }
  return NULL;
}

/* NULL, or what is missing. */
static char *
missing_of (const SpFitTask *task, const SpCurve *curve)
{
  g_autofree char *name = sp_curve_name (curve);
  guint n = task->n;

  if (sp_curve_is_transfer (task->kind)) {
    double span =
        n > 0 && task->points[0]->bytes > 0 ? (double) task->points[n - 1]->bytes / task->points[0]->bytes : 1;
    if (n >= SP_PIECES_LEAST_POINTS && span >= 100)
      return NULL;
    return g_strdup_printf ("%s has %u size%s over a factor of %.3g: at least %u over two decades are needed: "
                            "seqpar-measure sweep --what %s",
                            name, n, n == 1 ? "" : "s", span, SP_PIECES_LEAST_POINTS,
                            task->kind == SP_CURVE_COPY ? "copy" : "nccl");
  }
  if (task->kind == SP_CURVE_GEMM && n < 9)
    return g_strdup_printf ("%s has %u shape%s: at least 9 are needed: seqpar-measure sweep --what gemm", name, n,
                            n == 1 ? "" : "s");
  if (task->kind == SP_CURVE_KERNEL && curve->op == SP_N_OPS)
    return g_strdup_printf ("%s is no form of an op (as norm-bwd/1f.3): seqpar-measure kernels, of this version", name);
  if (!sp_curve_is_known (curve))
    return g_strdup_printf ("%s is of no op that there is: seqpar-measure kernels, of this version", name);
  if (task->kind == SP_CURVE_KERNEL && n < 4)
    return g_strdup_printf ("%s has %u size%s: at least 4 are needed: seqpar-measure kernels, with scenarios of more "
                            "sequence lengths",
                            name, n, n == 1 ? "" : "s");
  if (task->kind <= SP_CURVE_LINEAR_BACKWARD && n < 4)
    return g_strdup_printf (
        "%s has %u shape%s: at least 4 token counts are needed, as a CSV of timings: seqpar calibrate "
        "import",
        name, n, n == 1 ? "" : "s");
  if (task->kind == SP_CURVE_BESIDE && n < 3) {
    const char *beside = beside_of (task), *how = "sweep --what gemm,nccl";
    if (beside != NULL)
      how = g_str_equal (beside, "copy") ? "sweep --what copy,nccl" : "kernels --beside, of larger models";
    return g_strdup_printf ("%s has %u size%s: at least 3 that were timed alone too, and last longer than the %s does "
                            "alone, are needed: seqpar-measure %s",
                            name, n, n == 1 ? "" : "s", beside != NULL ? beside : "GEMM", how);
  }
  if (task->kind == SP_CURVE_SLOWDOWN && n == 0)
    return g_strdup_printf ("%s has no size that was timed alone too: seqpar-measure %s", name,
                            names_transfer (task->variant) ? "sweep --what gemm,copy,nccl" : "kernels --beside");
  return NULL;
}

gboolean
sp_fit_curve (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *residuals, double *weights,
              char **ret_missing)
{
  gboolean found;

  *ret_missing = missing_of (task, curve);
  if (*ret_missing != NULL)
    return FALSE;
  switch (task->kind) {
  case SP_CURVE_GEMM:
    found = fit_gemm (task, given, curve, weights);
    break;
  case SP_CURVE_ATTENTION:
  case SP_CURVE_ATTENTION_BACKWARD:
  case SP_CURVE_LINEAR:
  case SP_CURVE_LINEAR_BACKWARD:
    found = fit_core (task, given, curve, weights, ret_missing);
    break;
  case SP_CURVE_KERNEL:
    found = sp_fit_kernel (task, given, curve, weights);
    break;
  case SP_CURVE_BESIDE:
    found = fit_beside (task, given, curve, weights);
    break;
  case SP_CURVE_SLOWDOWN:
    found = fit_slowdown (task, given, curve, weights);
    break;
  case SP_CURVE_LAUNCH:
  case SP_CURVE_MEMORY:
    found = fit_median (task, curve, weights);
    break;
  default:
    found = fit_transfer (task, curve, weights);
    break;
  }
  if (!found) {
    g_autofree char *name = sp_curve_name (curve);
    *ret_missing = g_strdup_printf ("%s: no curve of its kind goes through its %u points", name, task->n);
    return FALSE;
  }
  set_quality (task, given, curve, residuals);
  return TRUE;
}
