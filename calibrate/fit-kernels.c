/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of programs: which parameters a form of op has, found by trying. */
#include "calibrate/fit-curves-private.h"

#include <math.h>
#include <string.h>

/* Which parameters a form may have; the rest are 0, but `serial` as said. */
typedef enum { OF_BYTES, OF_FLOPS, OF_SOFTMAX, OF_GEMM } KernelClass;

typedef struct {
  KernelClass class;
  gboolean heads; /* where head sizes differ */
  double serial;
  guint slots[SP_CURVE_SLOTS + 1];
} KernelForm;

#define END SP_CURVE_SLOTS
#define LAUNCH SP_KERNEL_LAUNCH
#define MEMORY SP_KERNEL_MEMORY_RATE
#define RATE SP_KERNEL_RATE
#define HALF SP_KERNEL_HALF_TOKENS
#define POWER SP_KERNEL_HEAD_POWER
static const KernelForm kernel_forms[] = {
  { OF_BYTES, FALSE, 0, { LAUNCH, MEMORY, END } },
  { OF_BYTES, FALSE, 0, { LAUNCH, MEMORY, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { OF_BYTES, FALSE, 0, { LAUNCH, MEMORY, SP_KERNEL_ROW, END } },
  { OF_BYTES, FALSE, 1, { LAUNCH, MEMORY, SP_KERNEL_ROW, END } },
  { OF_BYTES, FALSE, 1, { LAUNCH, MEMORY, SP_KERNEL_ROW, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { OF_BYTES, FALSE, 0, { LAUNCH, MEMORY, SP_KERNEL_ROW, SP_KERNEL_CACHE, SP_KERNEL_CACHE_RATE, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, MEMORY, END } },
  { OF_FLOPS, FALSE, 1, { LAUNCH, RATE, MEMORY, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, HALF, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, HALF, MEMORY, END } },
  { OF_FLOPS, FALSE, 1, { LAUNCH, RATE, HALF, MEMORY, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, END } },
  { OF_FLOPS, FALSE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, MEMORY, END } },
  { OF_FLOPS, FALSE, 1, { LAUNCH, RATE, SP_KERNEL_TAIL, MEMORY, END } },
  { OF_FLOPS, TRUE, 0, { LAUNCH, RATE, HALF, POWER, END } },
  { OF_FLOPS, TRUE, 1, { LAUNCH, RATE, HALF, POWER, MEMORY, END } },
  { OF_SOFTMAX, FALSE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, END } },
  { OF_SOFTMAX, TRUE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, POWER, END } },
  { OF_SOFTMAX, FALSE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, HALF, END } },
  { OF_SOFTMAX, TRUE, 0, { LAUNCH, RATE, SP_KERNEL_TAIL, HALF, POWER, END } },
  { OF_SOFTMAX, TRUE, 1, { LAUNCH, RATE, SP_KERNEL_TAIL, HALF, POWER, MEMORY, END } },
  { OF_GEMM, FALSE, 0, { LAUNCH, RATE, MEMORY, HALF, SP_KERNEL_TILE_128, SP_KERNEL_TILE_64, SP_KERNEL_TAIL, END } },
};

/* Tokens of a head, for each SM, that may be under way at once. */
static const guint waves[] = { 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096 };

static KernelClass
class_of (const SpCurve *curve, const SpFitTask *task)
{
  if (curve->op == SP_OP_GEMM)
    return OF_GEMM;
  if (curve->op == SP_OP_ATTENTION || curve->op == SP_OP_ATTENTION_BWD)
    return OF_SOFTMAX;
  return task->points[0]->flops > 0 ? OF_FLOPS : OF_BYTES;
}

/* Bounds of a slot and where a fit starts, by what the points reach. */
static void
bound_slot (const SpFitTask *task, gboolean softmax, guint slot, guint i, guint start, SpFitProblem *problem)
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
  const struct {
    double low, high, at[2];
  } bounds[SP_CURVE_SLOTS] = {
    [SP_KERNEL_LAUNCH] = { least / 1000, least * 1.5, { least / 4, least * 0.9 } },
    [SP_KERNEL_MEMORY_RATE] = { memory / 50, memory * 20, { memory, memory * 1.2 } },
    [SP_KERNEL_CACHE] = { small, large, { sqrt (small * large), pow (small, 0.75) * pow (large, 0.25) } },
    [SP_KERNEL_CACHE_RATE] = { memory / 50, memory * 20, { memory * 1.5, memory * 0.7 } },
    [SP_KERNEL_RATE] = { rate / 4, rate * 20, { rate * 1.1, rate * 1.3 } },
    [SP_KERNEL_ROW] = { row / 100, row * 1.5, { row / 2, row * 0.9 } },
    [SP_KERNEL_HALF_TOKENS] = { 1, 65536, { 256, 2048 } },
    [SP_KERNEL_HEAD_POWER] = { 0.01, 2, { 0.3, 0.3 } },
    [SP_KERNEL_TAIL] = { 0.02, softmax ? 4 : 1, { 0.8, 0.3 } },
    [SP_KERNEL_TILE_128] = { 0.4, 1, { 0.9, 0.9 } },
    [SP_KERNEL_TILE_64] = { 0.1, 1, { 0.4, 0.6 } },
  };

  problem->lower[i] = bounds[slot].low;
  problem->upper[i] = MAX (bounds[slot].high, bounds[slot].low * 1.01);
  problem->start[i] = CLAMP (bounds[slot].at[start], problem->lower[i], problem->upper[i]);
}

/* The form's fit of least loss from each start; FALSE if it has too few points. */
static gboolean
fit_form (const SpFitTask *task, const SpFitGiven *given, const KernelForm *form, double wave, gboolean around,
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
  data.value[SP_KERNEL_WAVE] = wave;
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
      bound_slot (task, form->class == OF_SOFTMAX, form->slots[i], i, start, &search.problem);
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

static void
take_form (const KernelForm *form, double wave, const SpFitted *fitted, SpCurve *curve)
{
  for (guint slot = 0; slot < curve->n_slots; slot++)
    sp_fit_set_value (curve, slot, 0, 0, "not a part of this kernel's curve");
  sp_fit_set_value (curve, SP_KERNEL_SERIAL, form->serial, 0, "of 0 and 1 the better");
  if (wave > 0)
    sp_fit_set_value (curve, SP_KERNEL_WAVE, wave, 0, "of some the best");
  for (guint i = 0; i < count_slots (form); i++) {
    sp_fit_set_value (curve, form->slots[i], fitted->value[i], fitted->error[i], sp_fit_not_identified);
    for (guint j = 0; j < count_slots (form); j++)
      curve->covariance[form->slots[i]][form->slots[j]] = fitted->covariance[i][j];
  }
  curve->chi_square = fitted->chi_square;
}

static gboolean
has_waves (const KernelForm *form)
{
  gboolean tail = FALSE;

  for (guint i = 0; form->slots[i] != END; i++)
    tail = tail || form->slots[i] == SP_KERNEL_TAIL;
  return form->class == OF_FLOPS && tail;
}

gboolean
sp_fit_kernel (const SpFitTask *task, const SpFitGiven *given, SpCurve *curve, double *weights)
{
  enum { MOST_AROUND = 100 }; /* so many points leave a fit no choice */
  KernelClass class = class_of (curve, task);
  gboolean heads = sp_fit_head_sizes_differ (task);
  const KernelForm *best = NULL;
  double least = INFINITY, wave = 0;
  SpFitted fitted;

  for (guint f = 0; f < G_N_ELEMENTS (kernel_forms); f++)
    for (guint w = 0; w < (has_waves (&kernel_forms[f]) ? G_N_ELEMENTS (waves) : 1); w++) {
      const KernelForm *form = &kernel_forms[f];
      double at = has_waves (form) ? waves[w] * (double) given->sms : 0;
      if (form->class != class || (form->heads && !heads) || !fit_form (task, given, form, at, FALSE, &fitted, weights))
        continue;
      double criterion = fitted.loss + (count_slots (form) + (at > 0)) * log (task->n);
      if (criterion < least) {
        least = criterion;
        best = form;
        wave = at;
      }
    }
  if (best == NULL || !fit_form (task, given, best, wave, task->n <= MOST_AROUND, &fitted, weights))
    return FALSE;
  take_form (best, wave, &fitted, curve);
  return TRUE;
}
