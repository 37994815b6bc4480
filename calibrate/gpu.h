/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's GPU: streams, buffers, cuBLASLt and NCCL, and the time of an op.
 *
 * Device time is that of a captured batch of the op between two events, divided by the batch, so that the host's
 * launches are not in it. Buffers hold random bf16 values: zeros would let the card clock higher than it does at work. A
 * batch reuses its buffers, so what fits in the L2 cache is timed warm. */
#pragma once

#include "calibrate/measured.h"
#include "calibrate/ranks.h"

typedef struct _SpGpu SpGpu;

int sp_gpu_count (GError **error);
/* In use on the thread's card, whoever uses it. */
gint64 sp_gpu_used_bytes (void);
/* Errors name the call. NCCL's communicator is made where `nccl`; `bytes` is that of each of the two buffers. */
SpGpu *sp_gpu_new (SpRank *rank, gboolean nccl, gsize bytes, GError **error);
void sp_gpu_free (SpGpu *gpu);
/* Fills in date, card, driver, cuda, nccl, host, and the limits that the card has. */
gboolean sp_gpu_describe (int device, SpMeasured *measured, GError **error);
/* In use on the card beside this program's buffers: contexts, libraries and their kernels, communicators. */
gint64 sp_gpu_overhead_bytes (const SpGpu *gpu);
/* What one more communicator of so many ranks takes: made, and beyond that once it was used for collectives, and for sends
 * and all-to-alls. */
typedef struct {
  gint64 made, collectives, sends;
} SpCommunicatorBytes;
gboolean sp_gpu_measure_communicator (SpGpu *gpu, int ranks, SpCommunicatorBytes *ret, GError **error);
/* Seconds on this rank of one op as a row says it: op, variant, ranks, sizes, beside. A variant of a collective that has
 * a "/" is ALGORITHM/PROTOCOL, and gets a communicator for which NCCL is told so. Of more ranks than the row has the
 * first take part and the others are idle; "groups-N": N such groups at once. `ret_partial`: what ran beside did not
 * cover all of it. */
gboolean sp_gpu_time (SpGpu *gpu, const SpMeasuredRow *row, double *ret_time_s, gboolean *ret_partial, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpGpu, sp_gpu_free)
