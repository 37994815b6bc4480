/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Softmax attention by cuDNN's fused kernels (flash attention, sm_80 and later), through its graph API: one block of
 * queries and one of keys, with the log-sum-exp, forward and backward. The same op as sp_dev_attention and
 * sp_dev_attention_bwd of kernels/device.h, with the same operands and layouts.
 *
 * The library is looked for when it is opened (libcudnn.so.9, in the loader's path), not when the program starts:
 * seqpar-measure runs on a node that has none. Versions before 9.10.2 are refused: their attention has known faults, or
 * wants memory cleared for it. A program built without cuDNN's header says so when asked for it.
 *
 * Masks. None; or by index: the block's rows and keys as if both were positions. What a block's positions come to is
 * calibrate/mask.h's to say. No windows, no documents.
 *
 * What it costs beside the kernels. lse is turned from a row to a head at a time and back: strides of lse are taken,
 * but the engine of sm_80 reads it as if it had none (9.14, wrong gradients without a word). The backward makes its own
 * delta from d_o and o, while a program has freed o and kept delta: it gets an o whose product with d_o is that delta
 * (sp_dev_attention_stand_in). With lse and delta of all blocks it gives the block's part of the gradients.
 *
 * Determinism. The forward, dkeys and dvalues have the same bytes each time. dq is added up in fp32 by atomics: from
 * run to run it may differ in the last bits (seen of both engines that 9.14 has on an H100).
 *
 * Plans. A shape is planned once, which takes the host up to seconds, and until then nothing runs. Running a plan
 * allocates nothing, waits for nothing, and can be captured into a graph.
 */

#include <cuda_runtime_api.h>
#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  SP_CUDNN_CAUSAL = 1 << 0, /* row i (from `hidden` on) sees keys up to i - hidden */
  SP_CUDNN_LAST = 1 << 1,   /* with CAUSAL: the last row sees all keys that are seen, one before it one less, ... */
  SP_CUDNN_BACKWARD = 1 << 2
} SpCudnnFlags;

/* q[m,batch,heads,k], keys[n,batch,kv_heads,k], values[n,batch,kv_heads,v]. The first `hidden` rows see no key; of the
 * keys the first `seen` alone are seen. */
typedef struct {
  gint64 m, n, batch, heads, kv_heads, k, v;
  gint64 hidden, seen;
  guint64 flags; /* SpCudnnFlags */
} SpCudnnShape;

typedef struct _SpCudnn SpCudnn;
typedef struct _SpCudnnPlan SpCudnnPlan;

/* Its version, as 91400; loads it, but makes nothing on a device. 0: it is not here, or not as it has to be; the error
 * says what is missing. */
guint sp_cudnn_version (GError **error);
/* On the current device. NULL: as the version's 0, or cuDNN's own error. */
SpCudnn *sp_cudnn_open (GError **error);
void sp_cudnn_free (SpCudnn *cudnn);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpCudnn, sp_cudnn_free)

/* The library's. NULL: it has no kernel for the shape on this card; the error names both. */
const SpCudnnPlan *sp_cudnn_plan (SpCudnn *cudnn, const SpCudnnShape *shape, GError **error);
/* Of device memory, aligned to 256 bytes, that a run needs. */
gint64 sp_cudnn_scratch_bytes (const SpCudnnPlan *plan);

gboolean sp_cudnn_attention (SpCudnn *cudnn, const SpCudnnPlan *plan, const void *q, const void *keys,
                             const void *values, void *o, float *lse, void *scratch, cudaStream_t stream,
                             GError **error);
/* Rows that see no key of all blocks must be within `hidden`. */
gboolean sp_cudnn_attention_bwd (SpCudnn *cudnn, const SpCudnnPlan *plan, const void *q, const void *keys,
                                 const void *values, const void *d_o, const float *lse, const float *delta, void *dq,
                                 void *dkeys, void *dvalues, void *scratch, cudaStream_t stream, GError **error);

G_END_DECLS
