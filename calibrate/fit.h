/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measured rows fitted to a profile (models/inputs/profile.h): which curves the data have, each fitted robustly with
 * its covariance (fit-core.h, fit-pieces.h, fit-curves.h), what they do not identify, and how well the curves
 * foretell points that they have not seen. Needs GSL, as sp_fit_is_built says.
 *
 * Curves of transfers are told apart by operation, ranks, nodes and variant. nccl-tests' out-of-place, seqpar-measure's
 * and an import without a variant are the plain curve, which the cost model takes; in-place and forced algorithms and
 * protocols are curves of their own. All layouts of a GEMM (nn, nt, tn) are one curve: they differ by 1 to 2 %.
 * Attention's causal and full runs are one curve of their library. Values of a curve that rests on a set which says
 * `published` are published, by that; else measured.
 */

#include "calibrate/fit-curves.h"

G_BEGIN_DECLS

#define SP_FIT_ERROR (sp_fit_error_quark ())
GQuark sp_fit_error_quark (void);
typedef enum { SP_FIT_ERROR_WITHOUT_GSL, SP_FIT_ERROR_INPUT } SpFitError;

typedef struct {
  SpProfile *profile;
  GPtrArray *refused; /* char *: a curve that was not fitted or is partly assumed, and the missing measurement */
  GPtrArray *wild;    /* char *: points far from their curve; they are kept, at the weight said */
  GPtrArray *notes;   /* char *: rows left out */
} SpFit;

/* FALSE: this program was built without GSL; the error says so. */
gboolean sp_fit_is_built (GError **error);

/* `name` of the profile; `source` is what sources of values say: files, card, date. */
SpFit *sp_fit_points (const SpPoints *points, const SpFitGiven *given, const char *name, const char *card,
                      const char *source);
void sp_fit_free (SpFit *fit);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpFit, sp_fit_free)

/* Refits without a part of the points and compares with it:
 *   interleaved   every other size of a curve, but the last
 *   top-decade    sizes above a tenth of the largest
 *   families      GEMMs of one (n, k) after the other */
typedef enum { SP_HOLD_OUT_INTERLEAVED, SP_HOLD_OUT_TOP_DECADE, SP_HOLD_OUT_FAMILIES, SP_N_HOLD_OUTS } SpHoldOut;
extern const char *const sp_hold_out_names[]; /* NULL-terminated */

/* What a curve was wrong by on what it had not seen. */
typedef struct {
  char *curve;        /* NULL: all of `kind` together */
  const char *kind;   /* "kernels", "copies", "transfers" */
  guint held, fitted; /* points */
  double median, p90, worst;
} SpHeldOut;

/* SpHeldOut, curve by curve, and each kind together behind its curves. Curves that cannot be fitted without the part
 * are not in it. Plain curves of transfers, kernels and copies; not what runs beside another. */
GArray *sp_fit_hold_out (const SpPoints *points, const SpFitGiven *given, SpHoldOut which);

/* A measured point, and what the curves say of it. */
typedef struct {
  char *curve; /* its name */
  SpCurveKind kind;
  double size; /* sp_fit_size */
  double measured_s, fitted_s;
  double held_out_s; /* of every other size: by the curve that has not seen them; else 0 */
} SpFittedPoint;

/* SpFittedPoint, curve by curve by size, of what has a curve of its own and did not run beside another. */
GArray *sp_fit_each (const SpPoints *points, const SpFitGiven *given);

/* Does any point need the card's SMs? */
gboolean sp_fit_needs_device (const SpPoints *points);

G_END_DECLS
