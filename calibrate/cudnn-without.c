/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN of a program that was built without its header: it says so. */
#include "calibrate/cudnn.h"

#include <gio/gio.h>

guint
sp_cudnn_version (GError **error)
{
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
               "this seqpar-measure was built without cuDNN (meson setup -Dcudnn=enabled says what lacks)");
  return 0;
}

SpCudnn *
sp_cudnn_open (GError **error)
{
  sp_cudnn_version (error);
  return NULL;
}

void
sp_cudnn_free (SpCudnn *cudnn)
{
  g_assert (cudnn == NULL);
}

const SpCudnnPlan *
sp_cudnn_plan (SpCudnn *cudnn G_GNUC_UNUSED, const SpCudnnShape *shape G_GNUC_UNUSED, GError **error G_GNUC_UNUSED)
{
  g_return_val_if_reached (NULL);
}

gint64
sp_cudnn_scratch_bytes (const SpCudnnPlan *plan G_GNUC_UNUSED)
{
  g_return_val_if_reached (0);
}

gboolean
sp_cudnn_attention (SpCudnn *cudnn G_GNUC_UNUSED, const SpCudnnPlan *plan G_GNUC_UNUSED, const void *q G_GNUC_UNUSED,
                    const void *keys G_GNUC_UNUSED, const void *values G_GNUC_UNUSED, void *o G_GNUC_UNUSED,
                    float *lse G_GNUC_UNUSED, void *scratch G_GNUC_UNUSED, cudaStream_t stream G_GNUC_UNUSED,
                    GError **error G_GNUC_UNUSED)
{
  g_return_val_if_reached (FALSE);
}

gboolean
sp_cudnn_attention_bwd (SpCudnn *cudnn G_GNUC_UNUSED, const SpCudnnPlan *plan G_GNUC_UNUSED,
                        const void *q G_GNUC_UNUSED, const void *keys G_GNUC_UNUSED, const void *values G_GNUC_UNUSED,
                        const void *d_o G_GNUC_UNUSED, const float *lse G_GNUC_UNUSED, const float *delta G_GNUC_UNUSED,
                        void *dq G_GNUC_UNUSED, void *dkeys G_GNUC_UNUSED, void *dvalues G_GNUC_UNUSED,
                        void *scratch G_GNUC_UNUSED, cudaStream_t stream G_GNUC_UNUSED, GError **error G_GNUC_UNUSED)
{
  g_return_val_if_reached (FALSE);
}
