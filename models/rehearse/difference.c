/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/rehearse.h"

#include <math.h>

/* Two rehearsals against each other. */

void
sp_rehearsal_free (SpRehearsal *rehearsal)
{
  if (rehearsal == NULL)
    return;
  for (guint i = 0; i < rehearsal->tensors->len; i++) {
    g_free (g_array_index (rehearsal->tensors, SpRehearsedTensor, i).gradient);
    g_free (g_array_index (rehearsal->tensors, SpRehearsedTensor, i).parameter);
  }
  g_array_unref (rehearsal->tensors);
  g_free (rehearsal->ranks);
  g_free (rehearsal);
}

/* The largest difference so far, and where. */
typedef struct {
  double largest;
  char *where;
} Worst;

static void
note (Worst *worst, double difference, const char *what, const SpRehearsedTensor *tensor, gint64 at)
{
  if (isnan (difference))
    difference = INFINITY;
  if (worst->where != NULL && !(difference > worst->largest))
    return;
  worst->largest = difference;
  g_free (worst->where);
  worst->where =
      tensor == NULL
          ? g_strdup (what)
          : g_strdup_printf ("%s of %s of layer %d at row %" G_GINT64_FORMAT ", column %" G_GINT64_FORMAT, what,
                             tensor->name, tensor->layer, at / MAX (tensor->cols, 1), at % MAX (tensor->cols, 1));
}

static double
largest_of (const double *x, gint64 n)
{
  double largest = 0;

  for (gint64 i = 0; i < n; i++)
    largest = MAX (largest, fabs (x[i]));
  return largest;
}

static const double *
values_of (const SpRehearsedTensor *tensor, gboolean gradients)
{
  return gradients ? tensor->gradient : tensor->parameter;
}

static double
largest_of_all (const SpRehearsal *rehearsal, gboolean gradients)
{
  double largest = 0;

  for (guint i = 0; i < rehearsal->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (rehearsal->tensors, SpRehearsedTensor, i);

    largest = MAX (largest, largest_of (values_of (t, gradients), t->rows * t->cols));
  }
  return largest;
}

static double
relative (double a, double b, double scale)
{
  if (a == b)
    return 0;
  return fabs (a - b) / MAX (MAX (fabs (a), fabs (b)), scale);
}

static void
compare (const SpRehearsedTensor *a, const SpRehearsedTensor *b, gboolean gradients, double least, Worst *worst)
{
  const double *x = values_of (a, gradients), *y = values_of (b, gradients);
  gint64 n = a->rows * a->cols;
  double scale = MAX (1e-3 * MAX (largest_of (x, n), largest_of (y, n)), least);

  for (gint64 i = 0; i < n; i++) {
    double difference = relative (x[i], y[i], scale);

    if (!(difference <= worst->largest))
      note (worst, difference, gradients ? "gradient" : "parameter", a, i);
  }
}

static const SpRehearsedTensor *
counterpart (const SpRehearsal *rehearsal, const SpRehearsedTensor *tensor)
{
  for (guint i = 0; i < rehearsal->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (rehearsal->tensors, SpRehearsedTensor, i);

    if (t->layer == tensor->layer && g_str_equal (t->name, tensor->name) && t->rows == tensor->rows &&
        t->cols == tensor->cols)
      return t;
  }
  return NULL;
}

double
sp_rehearsal_difference (const SpRehearsal *a, const SpRehearsal *b, char **ret_where)
{
  Worst worst = { 0 };

  note (&worst, relative (a->loss, b->loss, 0), "loss", NULL, 0);
  for (guint i = 0; i < b->tensors->len; i++) {
    const SpRehearsedTensor *t = &g_array_index (b->tensors, SpRehearsedTensor, i);

    if (counterpart (a, t) == NULL)
      note (&worst, INFINITY, "shape", t, 0);
  }
  for (guint gradients = 0; gradients < 2; gradients++) {
    double least = 1e-6 * MAX (largest_of_all (a, gradients), largest_of_all (b, gradients));

    for (guint i = 0; i < a->tensors->len; i++) {
      const SpRehearsedTensor *t = &g_array_index (a->tensors, SpRehearsedTensor, i), *other = counterpart (b, t);

      if (other == NULL)
        note (&worst, INFINITY, "shape", t, 0);
      else
        compare (t, other, gradients, least, &worst);
    }
  }
  if (ret_where != NULL)
    *ret_where = g_steal_pointer (&worst.where);
  g_free (worst.where);
  return worst.largest;
}
