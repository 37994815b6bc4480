/* SPDX-License-Identifier: Apache-2.0 */
/* The fit of a program that was built without GSL: it says so. */
#include "calibrate/fit.h"
#include "calibrate/steps.h"
#include "calibrate/validate/validation.h"

/* clang-format off */
G_DEFINE_QUARK (sp-fit-error-quark, sp_fit_error)
/* clang-format on */

const char *const sp_hold_out_names[] = { "interleaved", "top-decade", "families", NULL };

gboolean
sp_fit_is_built (GError **error)
{
  g_set_error (error, SP_FIT_ERROR, SP_FIT_ERROR_WITHOUT_GSL,
               "this seqpar was built without GSL, which fitting needs: install it (libgsl-dev) and build again");
  return FALSE;
}

SpFit *
sp_fit_points (const SpPoints *points G_GNUC_UNUSED, const SpFitGiven *given G_GNUC_UNUSED,
               const char *name G_GNUC_UNUSED, const char *card G_GNUC_UNUSED, const char *source G_GNUC_UNUSED)
{
  g_return_val_if_reached (NULL);
}

gboolean
sp_steps_fit (const SpSteps *steps G_GNUC_UNUSED, const char *without G_GNUC_UNUSED, SpStepsFit *ret G_GNUC_UNUSED,
              GError **error)
{
  return sp_fit_is_built (error);
}

void
sp_fit_free (SpFit *fit)
{
  g_assert (fit == NULL);
}

GArray *
sp_fit_hold_out (const SpPoints *points G_GNUC_UNUSED, const SpFitGiven *given G_GNUC_UNUSED,
                 SpHoldOut which G_GNUC_UNUSED)
{
  g_return_val_if_reached (NULL);
}

GArray *
sp_fit_each (const SpPoints *points G_GNUC_UNUSED, const SpFitGiven *given G_GNUC_UNUSED)
{
  g_return_val_if_reached (NULL);
}

gboolean
sp_fit_needs_device (const SpPoints *points G_GNUC_UNUSED)
{
  return FALSE;
}

gboolean
sp_validation_score (const SpValidation *validation G_GNUC_UNUSED, gboolean fitted G_GNUC_UNUSED,
                     SpScores *ret G_GNUC_UNUSED, GError **error)
{
  return sp_fit_is_built (error);
}

SpValidationFit *
sp_validation_fit (SpValidation *const *sets G_GNUC_UNUSED, guint n_sets G_GNUC_UNUSED, GError **error)
{
  sp_fit_is_built (error);
  return NULL;
}

void
sp_validation_fit_free (SpValidationFit *fit)
{
  g_assert (fit == NULL);
}
