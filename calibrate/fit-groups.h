/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The points that are of one curve, and a curve through them or a part of them: what fit.c does once and fit-hold-out.c
 * again and again. */

#include "calibrate/fit-curves.h"

G_BEGIN_DECLS

typedef struct {
  SpCurveKind kind;
  char *variant;
  gint32 ranks, nodes;
  GPtrArray *points; /* const SpPoint *, by size */
} SpFitGroup;

/* SpFitGroup, in order of the enum, then ranks, nodes and variant. Points are borrowed. */
GPtrArray *sp_fit_groups_new (const SpPoints *points);

/* Fits the points of `group` for which `take` is TRUE (NULL: all), appended to `used`; what ran beside another against
 * the same alone, of `points` or by the curves of `profile`. The rest is as of sp_fit_curve (). */
gboolean sp_fit_group (const SpFitGroup *group, const gboolean *take, const SpPoints *points, const SpFitGiven *given,
                       const SpProfile *profile, SpCurve *curve, GPtrArray *used, double *residuals, double *weights,
                       char **ret_missing);

G_END_DECLS
