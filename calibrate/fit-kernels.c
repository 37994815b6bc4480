/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of programs: which parameters a form of op has, found by trying. */
#include "calibrate/fit-curves-private.h"

#include <math.h>
#include <string.h>

/* Which parameters a form may have; the rest are 0, but `serial` as said. */
typedef struct {
  gboolean flops, heads; /* for those with FLOP; where head sizes differ */
  double serial;
  guint slots[SP_CURVE_SLOTS + 1];
} KernelForm;

#define END SP_CURVE_SLOTS
static const KernelForm kernel_forms[] = {
  { FALSE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, END } },
  { FALSE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { FALSE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, SP_KERNEL_ROW, END } },
  { FALSE, FALSE, 1, { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, SP_KERNEL_ROW, END } },
  { FALSE,
    FALSE,
    1,
    { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, SP_KERNEL_ROW, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { FALSE,
    FALSE,
    0,
    { SP_KERNEL_LAUNCH, SP_KERNEL_MEMORY_RATE, SP_KERNEL_ROW, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { TRUE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, END } },
  { TRUE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_MEMORY_RATE, END } },
  { TRUE, FALSE, 1, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_MEMORY_RATE, END } },
  { TRUE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_HALF_TOKENS, END } },
  { TRUE, FALSE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_HALF_TOKENS, SP_KERNEL_MEMORY_RATE, END } },
  { TRUE, FALSE, 1, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_HALF_TOKENS, SP_KERNEL_MEMORY_RATE, END } },
  { TRUE, TRUE, 0, { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_HALF_TOKENS, SP_KERNEL_HEAD_POWER, END } },
  { TRUE,
    TRUE,
    1,
    { SP_KERNEL_LAUNCH, SP_KERNEL_RATE, SP_KERNEL_HALF_TOKENS, SP_KERNEL_HEAD_POWER, SP_KERNEL_MEMORY_RATE, END } },
};

/* Bounds and start of a slot by what the points reach. */
static void
bound_slot (const SpFitTask *task, guint slot, guint i, guint start, SpFitProblem *problem)
{
  double least = sp_fit_extreme (task, SP_FIT_LEAST_SECONDS), rate = 0, memory = 0;
  double small = INFINITY, large = 0, row = INFINITY;

  for (guint p = 0; p < task->n; p++) {
    const SpPoint *point = task->points[p];
    rate = MAX (rate, point->flops / point->seconds);
    memory = MAX (memory, (double) point->bytes / point->seconds);
    row = MIN (row, point->seconds /
                        (sp_fit_or_one (point->m) * sp_fit_or_one (point->heads) * sp_fit_or_one (point->batch)));
    small = MIN (small, (double) point->bytes);
    large = MAX (large, (double) point->bytes);
  }
  const double low[SP_CURVE_SLOTS] = { least / 1000, memory / 50, small, memory / 50, rate / 4,
                                       row / 100,    1,           0.01,  0.02,        0 };
  const double high[SP_CURVE_SLOTS] = { least * 1.5, memory * 20, large, memory * 20, rate * 20,
                                        row * 1.5,   65536,       2,     1,           1 };
  const double at[2][SP_CURVE_SLOTS] = { { least / 4, memory, sqrt (small * large), memory * 1.5, rate * 1.1, row / 2,
                                           256, 0.3, 0.9, 0 },
                                         { least * 0.9, memory * 1.2, pow (small, 0.75) * pow (large, 0.25),
                                           memory * 0.7, rate * 1.3, row * 0.9, 2048, 0.3, 0.3, 0 } };

  problem->lower[i] = low[slot];
  problem->upper[i] = MAX (high[slot], low[slot] * 1.01);
  problem->start[i] = CLAMP (at[start][slot], problem->lower[i], problem->upper[i]);
}

/* The form's fit of least loss from each start; FALSE if it has too few points. */
static gboolean
fit_form (const SpFitTask *task, const SpFitGiven *given, const KernelForm *form, gboolean waves, gboolean around,
          SpFitted *ret, double *weights)
{
  g_autofree double *log_seconds = g_new (double, task->n);
  g_autofree double *sigma = g_new (double, task->n);
  g_autofree double *tried = g_new (double, task->n);
  SpFitData data = { .task = task, .given = given, .slots = form->slots };
  SpFitSearch search = {
    { .n_points = task->n, .log_seconds = log_seconds, .sigma = sigma, .seconds = sp_fit_seconds, .data = &data },
    { .loss = INFINITY },
    weights,
    tried
  };
  guint n = 0;

  data.value[SP_KERNEL_SERIAL] = form->serial;
  data.value[SP_KERNEL_TAIL] = waves ? 1 : 0;
  while (form->slots[n] != END)
    n++;
  search.problem.n_parameters = n;
  if (task->n < n + 1)
    return FALSE;
  for (guint i = 0; i < task->n; i++) {
    log_seconds[i] = log (task->points[i]->seconds);
    sigma[i] = task->points[i]->sigma;
  }
  for (guint start = 0; start < 2; start++) {
    double at[SP_FIT_MAX_PARAMETERS];
    for (guint i = 0; i < n; i++)
      bound_slot (task, form->slots[i], i, start, &search.problem);
    memcpy (at, search.problem.start, sizeof at);
    sp_fit_try (&search, at);
  }
  if (search.best.loss == INFINITY)
    return FALSE;
  if (around)
    sp_fit_search_around (&search);
  *ret = search.best;
  return TRUE;
}

static guint
count_slots (const KernelForm *form)
{
  guint n = 0;

  while (form->slots[n] != END)
    n++;
  return n;
}

gboolean
sp_fit_kernel (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  gboolean flops = task->points[0]->flops > 0, heads = sp_fit_head_sizes_differ (task), waves = FALSE;
  gboolean softmax = curve->op == SP_OP_ATTENTION || curve->op == SP_OP_ATTENTION_BWD;
  const KernelForm *best = NULL;
  double least = INFINITY;
  SpFitted fitted;

  for (guint f = 0; f < G_N_ELEMENTS (kernel_forms); f++)
    for (guint w = 0; w < (softmax ? 2 : 1); w++) {
      const KernelForm *form = &kernel_forms[f];
      if (form->flops != flops || (form->heads && !heads) ||
          !fit_form (task, given, form, w > 0, FALSE, &fitted, weights))
        continue;
      double criterion = fitted.loss + count_slots (form) * log (task->n);
      if (criterion < least) {
        least = criterion;
        best = form;
        waves = w > 0;
      }
    }
  if (best == NULL || !fit_form (task, given, best, waves, TRUE, &fitted, weights))
    return FALSE;
  for (guint slot = 0; slot < curve->n_slots; slot++)
    sp_fit_set_value (curve, slot, 0, 0, "not a part of this kernel's curve");
  sp_fit_set_value (curve, SP_KERNEL_SERIAL, best->serial, 0, "of 0 and 1 the better");
  sp_fit_set_value (curve, SP_KERNEL_TAIL, waves ? 1 : 0, 0, "of 0 and 1 the better");
  for (guint i = 0; i < count_slots (best); i++) {
    sp_fit_set_value (curve, best->slots[i], fitted.value[i], fitted.error[i], sp_fit_not_identified);
    for (guint j = 0; j < count_slots (best); j++)
      curve->covariance[best->slots[i]][best->slots[j]] = fitted.covariance[i][j];
  }
  curve->chi_square = fitted.chi_square;
  return TRUE;
}
