/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maps for the tensor memory accelerator, made on the host: by the driver, whose function the runtime finds, so that
 * nothing is linked with it. */

#include <atomic>

#include <cuda.h>

#include "kernels/device-private.cuh"

typedef CUresult (*MapEncode) (CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Looked up once; ranks are threads of one process. */
static cudaError_t
find_encode (MapEncode *ret)
{
  static std::atomic<MapEncode> known;
  cudaDriverEntryPointQueryResult found;
  void *entry = nullptr;

  *ret = known.load ();
  if (*ret != nullptr)
    return cudaSuccess;
  cudaError_t error =
      cudaGetDriverEntryPointByVersion ("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess)
    return error;
  if (found != cudaDriverEntryPointSuccess)
    return cudaErrorNotSupported;
  *ret = (MapEncode) entry;
  known.store (*ret);
  return cudaSuccess;
}

/* Of a tensor [tokens,vectors,features] of bf16, in boxes of `rows` tokens by 64 features of a vector, swizzled by 128
 * bytes; what is beyond is zeros. `fetch`: how much the L2 gets of what it misses. */
static cudaError_t
map_of (CUtensorMap *map, const void *data, int64_t tokens, int64_t vectors, int64_t features, int rows,
        CUtensorMapL2promotion fetch = CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
{
  cuuint64_t sizes[3] = { (cuuint64_t) features, (cuuint64_t) vectors, (cuuint64_t) tokens };
  cuuint64_t strides[2] = { 2 * sizes[0], 2 * sizes[0] * sizes[1] };
  cuuint32_t box[3] = { 64, 1, (cuuint32_t) rows }, steps[3] = { 1, 1, 1 };
  MapEncode encode;
  cudaError_t error = find_encode (&encode);

  if (error != cudaSuccess)
    return error;
  return encode (map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *) data, sizes, strides, box, steps,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, fetch,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
             ? cudaSuccess
             : cudaErrorInvalidValue;
}
