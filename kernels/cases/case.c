/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cases/case.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define GUARD 4096 /* bytes before and behind an array; a multiple of all alignments */
/* Of numbers about 1: gelu in double is x (1 + tanh (..)) / 2, which is off by 1e-16 where it is near 0. */
#define REFERENCE_ERROR 1e-12
#define GUARD_BYTE 0xff /* NaN, so that what is read there shows */

typedef enum { ROLE_IN, ROLE_OUT, ROLE_IN_OUT, ROLE_SCRATCH } Role;

typedef struct {
  const char *name;
  Role role;
  SpCaseSums sums;
  SpDevDtype dtype;
  gsize element_bytes;
  gint64 n;
  gsize bytes;     /* of the whole with its zones */
  gsize at;        /* of the first element */
  double *numbers; /* before, then expected; NULL of ids and scratch */
  guint8 *image;   /* what is uploaded */
  guint8 *first;   /* what the first run left, of all but inputs */
  guint8 *device;
} Array;

struct _SpCase {
  SpCaseSums sums;
  char *title;
  GPtrArray *arrays;
  GPtrArray *owned;
  gsize shift; /* elements */
  gboolean other_bytes;
  int runs;
  cudaError_t error;
};

/* Of the check that runs. */
static struct {
  GRand *rand;
  SpCaseReport report;
  gpointer data;
  guint n_wrong;
  gboolean is_mixed, has_asked; /* for a dtype */
} run;

static void
array_free (gpointer data)
{
  Array *a = data;

  if (a->device != NULL)
    cudaFree (a->device);
  g_free (a->numbers);
  g_free (a->image);
  g_free (a->first);
  g_free (a);
}

SpCase *
sp_case_new (SpCaseSums sums, const char *kernel, const char *shape_format, ...)
{
  SpCase *c = g_new0 (SpCase, 1);
  g_autofree char *shape = NULL;
  va_list args;

  va_start (args, shape_format);
  shape = g_strdup_vprintf (shape_format, args);
  va_end (args);
  c->sums = sums;
  c->title = g_strdup_printf ("%s (%s)", kernel, shape);
  c->arrays = g_ptr_array_new_with_free_func (array_free);
  c->owned = g_ptr_array_new_with_free_func (g_free);
  return c;
}

void
sp_case_free (SpCase *c)
{
  g_ptr_array_unref (c->arrays);
  g_ptr_array_unref (c->owned);
  g_free (c->title);
  g_free (c);
}

void
sp_case_misalign (SpCase *c)
{
  c->shift = 1;
}

void
sp_case_sums (SpCase *c, SpCaseSums sums)
{
  c->sums = sums;
}

void
sp_case_allow_other_bytes (SpCase *c)
{
  c->other_bytes = TRUE;
}

gint64
sp_case_below (gint64 n)
{
  return (gint64) (g_rand_double (run.rand) * (double) n);
}

SpDevDtype
sp_case_dtype (void)
{
  run.has_asked = TRUE;
  return run.is_mixed && sp_case_below (2) == 0 ? SP_DEV_FP32 : SP_DEV_BF16;
}

double
sp_case_between (double low, double high)
{
  return g_rand_double_range (run.rand, low, high);
}

/* --- numbers as they are on the device ---------------------------------------------------------------------------- */

static guint32
bits_of (float x)
{
  guint32 bits;

  memcpy (&bits, &x, sizeof bits);
  return bits;
}

static float
float_of (guint32 bits)
{
  float x;

  memcpy (&x, &bits, sizeof x);
  return x;
}

/* To nearest, ties to even. */
static guint16
bf16_of (float x)
{
  guint32 bits = bits_of (x);

  return isnan (x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static void
write_number (SpDevDtype dtype, guint8 *to, double x)
{
  guint16 half = bf16_of ((float) x);
  float single = (float) x;
  guint8 byte = (guint8) x;

  if (dtype == SP_DEV_BF16)
    memcpy (to, &half, sizeof half);
  else if (dtype == SP_DEV_FP32)
    memcpy (to, &single, sizeof single);
  else
    *to = byte;
}

static double
read_number (SpDevDtype dtype, const guint8 *from)
{
  guint16 half;
  float single;

  if (dtype == SP_DEV_BF16) {
    memcpy (&half, from, sizeof half);
    return float_of ((guint32) half << 16);
  }
  if (dtype == SP_DEV_FP32) {
    memcpy (&single, from, sizeof single);
    return single;
  }
  return *from;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static Array *
array_new (SpCase *c, const char *name, Role role, SpDevDtype dtype, gsize element_bytes, gint64 n)
{
  Array *a = g_new0 (Array, 1);

  a->name = name;
  a->role = role;
  a->sums = c->sums;
  a->dtype = dtype;
  a->element_bytes = element_bytes;
  a->n = n;
  a->at = GUARD + (role == ROLE_SCRATCH ? 0 : c->shift * element_bytes);
  a->bytes = a->at + n * element_bytes + GUARD;
  a->image = g_malloc (a->bytes);
  memset (a->image, GUARD_BYTE, a->bytes);
  memset (a->image + a->at, 0xff, n * element_bytes); /* NaN, as bf16 and as fp32 */
  if (c->error == cudaSuccess)
    c->error = cudaMalloc ((void **) &a->device, a->bytes);
  g_ptr_array_add (c->arrays, a);
  return a;
}

static gsize
dtype_bytes (SpDevDtype dtype)
{
  return dtype == SP_DEV_BF16 ? 2 : dtype == SP_DEV_UINT8 ? 1 : 4;
}

static Array *
tensor_new (SpCase *c, const char *name, Role role, SpDevDtype dtype, gint64 n, SpDevTensor *ret)
{
  Array *a = array_new (c, name, role, dtype, dtype_bytes (dtype), n);

  a->numbers = g_new (double, MAX (n, 1));
  for (gint64 i = 0; i < n; i++)
    a->numbers[i] = NAN;
  *ret = (SpDevTensor){ a->device + a->at, dtype };
  return a;
}

static double *
fill (Array *a, const double *values, double scale)
{
  for (gint64 i = 0; i < a->n; i++) {
    double x = values != NULL ? values[i] : 0;
    if (values == NULL) /* of variance scale^2 */
      for (guint j = 0; j < 3; j++)
        x += scale * sp_case_between (-1, 1);
    write_number (a->dtype, a->image + a->at + i * a->element_bytes, x);
    a->numbers[i] = read_number (a->dtype, a->image + a->at + i * a->element_bytes);
  }
  return a->numbers;
}

const double *
sp_case_in (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, double scale, SpDevTensor *ret)
{
  return fill (tensor_new (c, name, ROLE_IN, dtype, n, ret), NULL, scale);
}

const double *
sp_case_in_values (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, const double *values, SpDevTensor *ret)
{
  return fill (tensor_new (c, name, ROLE_IN, dtype, n, ret), values, 0);
}

const double *
sp_case_in_absent (SpDevTensor *ret)
{
  *ret = (SpDevTensor){ NULL, SP_DEV_BF16 };
  return NULL;
}

double *
sp_case_out (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, SpDevTensor *ret)
{
  return tensor_new (c, name, ROLE_OUT, dtype, n, ret)->numbers;
}

double *
sp_case_in_out (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, double scale, SpDevTensor *ret)
{
  return fill (tensor_new (c, name, ROLE_IN_OUT, dtype, n, ret), NULL, scale);
}

double *
sp_case_in_out_values (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, const double *values, SpDevTensor *ret)
{
  return fill (tensor_new (c, name, ROLE_IN_OUT, dtype, n, ret), values, 0);
}

static const gint64 *
ids_new (SpCase *c, const char *name, gsize element_bytes, gint64 n, const gint64 *values, void *ret)
{
  Array *a = array_new (c, name, ROLE_IN, SP_DEV_INT32, element_bytes, n);
  gint64 *copy = g_new (gint64, MAX (n, 1));
  guint8 *at = a->device + a->at;

  for (gint64 i = 0; i < n; i++) {
    gint32 narrow = (gint32) values[i];
    copy[i] = values[i];
    memcpy (a->image + a->at + i * element_bytes, element_bytes == 4 ? (void *) &narrow : (void *) &copy[i],
            element_bytes);
  }
  memcpy (ret, &at, sizeof at);
  g_ptr_array_add (c->owned, copy);
  return copy;
}

const gint64 *
sp_case_ids (SpCase *c, const char *name, gint64 n, const gint64 *values, const int32_t **ret)
{
  return ids_new (c, name, 4, n, values, ret);
}

const gint64 *
sp_case_wide_ids (SpCase *c, const char *name, gint64 n, const gint64 *values, const int64_t **ret)
{
  return ids_new (c, name, 8, n, values, ret);
}

double *
sp_case_numbers (SpCase *c, gint64 n)
{
  double *numbers = g_new0 (double, MAX (n, 1));

  g_ptr_array_add (c->owned, numbers);
  return numbers;
}

void *
sp_case_scratch (SpCase *c, gsize bytes)
{
  Array *a = array_new (c, "scratch", ROLE_SCRATCH, SP_DEV_UINT8, 1, (gint64) bytes);

  return a->device + a->at;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static void G_GNUC_PRINTF (2, 3) fail (SpCase *c, const char *format, ...)
{
  g_autofree char *what = NULL, *line = NULL;
  va_list args;

  va_start (args, format);
  what = g_strdup_vprintf (format, args);
  va_end (args);
  line = g_strdup_printf ("%s: %s", c->title, what);
  run.n_wrong++;
  run.report (line, run.data);
}

/* `now` is the whole array as the run left it. */
static void
check_zones (SpCase *c, const Array *a, const guint8 *now)
{
  for (gsize i = 0; i < a->bytes; i++) {
    gboolean is_zone = i < a->at || i >= a->at + a->n * a->element_bytes;
    gssize from_start = (gssize) i - (gssize) a->at;

    if (is_zone && now[i] != GUARD_BYTE) {
      fail (c, "%s was written outside, at byte %" G_GSSIZE_FORMAT " of %" G_GSIZE_FORMAT, a->name, from_start,
            (gsize) a->n * a->element_bytes);
      return;
    }
    if (!is_zone && a->role == ROLE_IN && now[i] != a->image[i]) {
      fail (c, "input %s was written, at byte %" G_GSSIZE_FORMAT, a->name, from_start);
      return;
    }
  }
}

typedef struct {
  double own, largest, mean; /* of the element itself, of the array's largest, of its root mean square */
} Tolerance;

static Tolerance
tolerance_of (const Array *a)
{
  double own = a->dtype == SP_DEV_BF16 ? 0x1p-8 : 0x1p-18, mean = a->n < 256 ? 0x1p-7 : 0x1p-8;

  switch (a->sums) {
  case SP_CASE_EXACT:
    return (Tolerance){ 0 };
  case SP_CASE_TENSOR:
    return (Tolerance){ own, 0x1p-7, mean };
  case SP_CASE_CHAIN:
    return (Tolerance){ own, 0x1p-6, 2 * mean };
  default:
    return (Tolerance){ own, 0x1p-18, own };
  }
}

static void
check_numbers (SpCase *c, const Array *a, const guint8 *now)
{
  Tolerance t = tolerance_of (a);
  double largest = 0, squares = 0, errors = 0, worst = 0;
  gint64 first = -1, n_wrong = 0, worst_at = -1;

  for (gint64 i = 0; i < a->n; i++)
    if (isfinite (a->numbers[i])) {
      largest = MAX (largest, fabs (a->numbers[i]));
      squares += a->numbers[i] * a->numbers[i];
    }
  for (gint64 i = 0; i < a->n; i++) {
    double got = read_number (a->dtype, now + a->at + i * a->element_bytes), expected = a->numbers[i];
    double error = got == expected ? 0 : fabs (got - expected);
    double own = isinf (expected) ? 0 : t.own * fabs (expected);
    double allowed = own + t.largest * largest + (t.own > 0 ? REFERENCE_ERROR : 0);

    if (isfinite (error))
      errors += error * error;
    if (!(error <= allowed)) { /* NaN is no small error */
      n_wrong++;
      first = first < 0 ? i : first;
    }
    if (!(error / MAX (allowed, 1e-300) <= worst)) {
      worst = error / MAX (allowed, 1e-300);
      worst_at = i;
    }
  }
  if (first >= 0)
    fail (c,
          "%s: %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " wrong; [%" G_GINT64_FORMAT
          "] is %.9g, expected %.9g; worst [%" G_GINT64_FORMAT
          "] is %.9g, expected %.9g, %.3g times what is allowed; largest expected %.3g",
          a->name, n_wrong, a->n, first, read_number (a->dtype, now + a->at + first * a->element_bytes),
          a->numbers[first], worst_at, read_number (a->dtype, now + a->at + worst_at * a->element_bytes),
          a->numbers[worst_at], worst, largest);
  else if (!(errors <= t.mean * t.mean * squares + (double) a->n * REFERENCE_ERROR * REFERENCE_ERROR))
    fail (c, "%s: root of the mean square error over that of the numbers is %.3g, allowed %.3g", a->name,
          sqrt (errors / squares), t.mean);
}

/* Of what the run left, and keeps it if it is the first. */
static void
check_run (SpCase *c)
{
  for (guint i = 0; i < c->arrays->len && c->error == cudaSuccess; i++) {
    Array *a = g_ptr_array_index (c->arrays, i);
    g_autofree guint8 *now = g_malloc (a->bytes);

    c->error = cudaMemcpy (now, a->device, a->bytes, cudaMemcpyDeviceToHost);
    if (c->error != cudaSuccess)
      break;
    check_zones (c, a, now);
    if (a->role == ROLE_IN || a->role == ROLE_SCRATCH)
      continue;
    if (c->runs == 1 || c->other_bytes)
      check_numbers (c, a, now);
    else if (memcmp (now, a->first, a->bytes) != 0)
      fail (c, "%s: a second run gave other bytes", a->name);
    if (c->runs == 1 && !c->other_bytes)
      a->first = g_steal_pointer (&now);
  }
}

static void
upload (SpCase *c)
{
  for (guint i = 0; i < c->arrays->len && c->error == cudaSuccess; i++) {
    Array *a = g_ptr_array_index (c->arrays, i);

    if (c->runs == 1 && (a->role == ROLE_OUT || a->role == ROLE_SCRATCH))
      memset (a->image + a->at, 0x3c, a->n * a->element_bytes); /* another number */
    c->error = cudaMemcpy (a->device, a->image, a->bytes, cudaMemcpyHostToDevice);
  }
}

gboolean
sp_case_again (SpCase *c)
{
  if (c->runs > 0 && c->error == cudaSuccess)
    c->error = cudaDeviceSynchronize ();
  if (c->runs > 0)
    check_run (c);
  if (c->runs < 2 && c->error == cudaSuccess)
    upload (c);
  if (c->error != cudaSuccess) {
    fail (c, "CUDA error %s: %s", cudaGetErrorName (c->error), cudaGetErrorString (c->error));
    for (guint i = 0; i < c->arrays->len; i++)
      ((Array *) g_ptr_array_index (c->arrays, i))->device = NULL;
    cudaDeviceReset (); /* most errors stay with the context, and would fail every test after this one */
    return FALSE;
  }
  return c->runs++ < 2;
}

void
sp_case_launched (SpCase *c, cudaError_t error)
{
  c->error = error;
}

void
sp_case_expect (SpCase *c, const char *name, double got, double expected, double allowed)
{
  if (!(fabs (got - expected) <= allowed))
    fail (c, "%s is %.12g, expected %.12g, allowed %.3g", name, got, expected, allowed);
}

/* --- checks of kernels -------------------------------------------------------------------------------------------- */

static GArray *checks; /* SpCheck */

void
sp_case_add (const char *name, void (*test) (void))
{
  SpCheck check = { name, test };

  g_array_append_val (checks, check);
}

const SpCheck *
sp_checks (guint *ret_n)
{
  if (checks == NULL) {
    checks = g_array_new (FALSE, FALSE, sizeof (SpCheck));
    sp_add_elementwise_cases ();
    sp_add_row_cases ();
    sp_add_layout_cases ();
    sp_add_end_cases ();
    sp_add_attention_cases ();
    sp_add_library_cases ();
    sp_add_linear_cases ();
    sp_add_delta_cases ();
    sp_add_recurrent_cases ();
    sp_add_feature_cases ();
  }
  *ret_n = checks->len;
  return (const SpCheck *) (gpointer) checks->data;
}

const SpCheck *
sp_check_find (const char *name)
{
  guint n = 0;
  const SpCheck *all = sp_checks (&n);

  for (guint i = 0; i < n; i++)
    if (g_str_equal (all[i].name, name))
      return &all[i];
  return NULL;
}

guint
sp_check_run (const SpCheck *check, guint32 seed, SpCaseReport report, gpointer data)
{
  run.rand = g_rand_new_with_seed (seed);
  run.report = report;
  run.data = data;
  run.n_wrong = 0;
  run.is_mixed = run.has_asked = FALSE;
  check->run ();
  run.is_mixed = TRUE;
  if (run.has_asked)
    check->run ();
  g_clear_pointer (&run.rand, g_rand_free);
  return run.n_wrong;
}
