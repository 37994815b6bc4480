/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernels' files share: elements of any dtype as floats, launches, sums over a block. */

#include "kernels/device.h"

#include <cuda_bf16.h>

#include <initializer_list>

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static inline bool
is_present (SpDevTensor t)
{
  return t.data != nullptr;
}

/* Floats, or absent. */
static inline bool
are_floats (std::initializer_list<SpDevTensor> tensors)
{
  for (SpDevTensor t : tensors)
    if (is_present (t) && t.dtype != SP_DEV_BF16 && t.dtype != SP_DEV_FP32)
      return false;
  return true;
}

/* Those that are there. */
static inline bool
are_half (std::initializer_list<SpDevTensor> tensors)
{
  for (SpDevTensor t : tensors)
    if (is_present (t) && t.dtype != SP_DEV_BF16)
      return false;
  return true;
}

static inline bool
is_aligned (const void *p, size_t bytes)
{
  return ((uintptr_t) p) % bytes == 0;
}

/* Elements that a thread takes at once, of tensors whose rows are multiples of `run` elements. */
static inline int
width_of (std::initializer_list<int64_t> runs, std::initializer_list<SpDevTensor> tensors)
{
  for (int64_t run : runs)
    if (run % 8 != 0)
      return 1;
  for (SpDevTensor t : tensors)
    if (!is_aligned (t.data, 16))
      return 1;
  return 8;
}

template <int V> struct __align__ (V == 8 ? 16 : 4) Vec
{
  float x[V];
};

static __device__ inline float
bf16_at (uint32_t word, int half)
{
  return __uint_as_float (half == 0 ? word << 16 : word & 0xffff0000u);
}

static __device__ inline uint32_t
bf16_pair (float low, float high)
{
  __nv_bfloat162 pair = __floats2bfloat162_rn (low, high); /* one instruction from sm_80 on */

  return *(uint32_t *) &pair;
}

#define LOG2_E 1.4426950408889634f

/* 2^x to about 2 units in the last place; 0 for -inf, and where it would be denormal. */
static __device__ inline float
exp2_fast (float x)
{
  float y;

  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/* V elements as they lie in memory: fetched, and only later turned to floats, so that a thread can have several loads
 * under way. Nothing of it branches, or a load would be waited for before the next is issued. HALF: it is known to be
 * bf16, which takes half the registers. */
template <int V> struct Raw {
  uint4 a, b; /* b: of fp32 the second half */
};

template <> struct Raw<1> {
  uint32_t a;
};

template <int V, bool HALF = false>
static __device__ inline Raw<V>
fetch (SpDevTensor t, int64_t i)
{
  bool is_wide = !HALF && t.dtype == SP_DEV_FP32;
  const char *p = (const char *) t.data + (i << (is_wide ? 2 : 1));
  Raw<V> raw;

  if constexpr (V == 8) {
    raw.a = *(const uint4 *) p;
    raw.b = is_wide ? *(const uint4 *) (p + 16) : uint4{};
  } else
    raw.a = is_wide ? *(const uint32_t *) p : *(const uint16_t *) p;
  return raw;
}

template <int V, bool HALF = false>
static __device__ inline Vec<V>
floats_of (SpDevTensor t, const Raw<V> &raw)
{
  bool is_wide = !HALF && t.dtype == SP_DEV_FP32;
  Vec<V> v;

  if constexpr (V == 8) {
    const uint32_t words[8] = { raw.a.x, raw.a.y, raw.a.z, raw.a.w, raw.b.x, raw.b.y, raw.b.z, raw.b.w };
#pragma unroll
    for (int j = 0; j < 8; j++)
      v.x[j] = is_wide ? __uint_as_float (words[j]) : bf16_at (words[j / 2], j % 2);
  } else
    v.x[0] = is_wide ? __uint_as_float (raw.a) : bf16_at (raw.a, 0);
  return v;
}

/* Elements i .. i + V - 1. */
template <int V, bool HALF = false>
static __device__ inline Vec<V>
load (SpDevTensor t, int64_t i)
{
  return floats_of<V, HALF> (t, fetch<V, HALF> (t, i));
}

/* Of uint8. */
template <int V>
static __device__ inline Vec<V>
load_bytes (SpDevTensor t, int64_t i)
{
  const uint8_t *p = (const uint8_t *) t.data + i;
  Vec<V> v;

  if constexpr (V == 8) {
    uint2 w = *(const uint2 *) p;
#pragma unroll
    for (int j = 0; j < 8; j++)
      v.x[j] = (float) ((j < 4 ? w.x : w.y) >> 8 * (j % 4) & 0xff);
  } else
    v.x[0] = *p;
  return v;
}

/* Of uint8: 0 or 1. */
template <int V, bool HALF = false>
static __device__ inline void
store (SpDevTensor t, int64_t i, Vec<V> v)
{
  if (HALF || t.dtype == SP_DEV_BF16) {
    uint16_t *p = (uint16_t *) t.data + i;
    if constexpr (V == 8)
      *(uint4 *) p = make_uint4 (bf16_pair (v.x[0], v.x[1]), bf16_pair (v.x[2], v.x[3]), bf16_pair (v.x[4], v.x[5]),
                                 bf16_pair (v.x[6], v.x[7]));
    else
      *p = (uint16_t) bf16_pair (v.x[0], 0);
  } else if (t.dtype == SP_DEV_FP32) {
    float *p = (float *) t.data + i;
    if constexpr (V == 8) {
      ((float4 *) p)[0] = make_float4 (v.x[0], v.x[1], v.x[2], v.x[3]);
      ((float4 *) p)[1] = make_float4 (v.x[4], v.x[5], v.x[6], v.x[7]);
    } else
      *p = v.x[0];
  } else {
    uint8_t *p = (uint8_t *) t.data + i;
    if constexpr (V == 8) {
      uint32_t w[2] = { 0, 0 };
#pragma unroll
      for (int j = 0; j < 8; j++)
        w[j / 4] |= (uint32_t) (v.x[j] != 0) << 8 * (j % 4);
      *(uint2 *) p = make_uint2 (w[0], w[1]);
    } else
      *p = v.x[0] != 0;
  }
}

static __device__ inline float
load1 (SpDevTensor t, int64_t i)
{
  return load<1> (t, i).x[0];
}

static __device__ inline void
store1 (SpDevTensor t, int64_t i, float x)
{
  store<1> (t, i, { { x } });
}

template <int V>
static __device__ inline Vec<V>
all_of (float x)
{
  Vec<V> v;

#pragma unroll
  for (int j = 0; j < V; j++)
    v.x[j] = x;
  return v;
}

/* The value where the operand is absent. */
template <int V, bool HALF = false>
static __device__ inline Vec<V>
load_or (SpDevTensor t, int64_t i, float absent)
{
  return t.data != nullptr ? load<V, HALF> (t, i) : all_of<V> (absent);
}

/* Two neighbours, i even; of data aligned to both. */
static __device__ inline void
store_pair (SpDevTensor t, int64_t i, float low, float high)
{
  if (t.dtype == SP_DEV_BF16)
    *(uint32_t *) ((uint16_t *) t.data + i) = bf16_pair (low, high);
  else
    *(float2 *) ((float *) t.data + i) = make_float2 (low, high);
}

static __device__ inline void
load_pair (SpDevTensor t, int64_t i, float *low, float *high)
{
  if (t.dtype == SP_DEV_BF16) {
    uint32_t w = *(const uint32_t *) ((const uint16_t *) t.data + i);
    *low = bf16_at (w, 0);
    *high = bf16_at (w, 1);
  } else {
    float2 w = *(const float2 *) ((const float *) t.data + i);
    *low = w.x;
    *high = w.y;
  }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* 64-bit division is slow; few tensors need it. */
static __host__ __device__ inline int64_t
divide (int64_t a, int64_t b)
{
  return (uint64_t) (a | b) >> 32 == 0 ? (int64_t) ((uint32_t) a / (uint32_t) b) : a / b;
}

static __host__ __device__ inline int64_t
div_up (int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* Beyond the default of 48 KiB, of which the kernel's own arrays take some, shared memory has to be asked for. */
template <typename Kernel>
static cudaError_t
allow_shared (Kernel kernel, size_t bytes)
{
  return bytes > 32 * 1024
             ? cudaFuncSetAttribute ((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) bytes)
             : cudaSuccess;
}

template <typename... Params, typename... Args>
static cudaError_t
launch (void (*kernel) (Params...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream, Args... args)
{
  cudaError_t error = allow_shared (kernel, shared_bytes);

  if (error != cudaSuccess)
    return error;
  kernel<<<grid, threads, shared_bytes, stream>>> (static_cast<Params> (args)...);
  return cudaGetLastError ();
}

/* A kernel may start while the one before it in its stream runs out, from sm_90 on, so that the card is not empty
 * meanwhile: launch_early starts it so, and it must wait_for_grid before it reads or writes what others do; then all that
 * came before is over. That the one before calls release_next lets it start as soon as that one's last blocks have. */
static __device__ inline void
release_next ()
{
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ inline void
wait_for_grid ()
{
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Of a kernel that does both at once. */
static __device__ inline void
take_turn ()
{
  release_next ();
  wait_for_grid ();
}

template <typename... Params, typename... Args>
static cudaError_t
launch_early (void (*kernel) (Params...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
              Args... args)
{
  cudaLaunchAttribute early = {};
  cudaLaunchConfig_t config = {};
  int device = 0, major = 0;
  cudaError_t error = allow_shared (kernel, shared_bytes);

  if (error == cudaSuccess)
    error = cudaGetDevice (&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess)
    return error;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = grid;
  config.blockDim = dim3 ((unsigned) threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = major >= 9 ? 1 : 0;
  return cudaLaunchKernelEx (&config, kernel, static_cast<Params> (args)...);
}

#define EACH_THREADS 256

template <int V, typename F>
static __global__ void
__launch_bounds__ (EACH_THREADS) each_kernel (F f, int64_t n)
{
  int64_t stride = (int64_t) gridDim.x * EACH_THREADS;

  take_turn ();
  for (int64_t i = (int64_t) blockIdx.x * EACH_THREADS + threadIdx.x; i < n; i += stride)
    f.template at<V> (i * V);
}

/* f.at<V> (i) for each V elements of n; V from width_of. */
template <typename F>
static cudaError_t
each (const F &f, int64_t n, int width, cudaStream_t stream)
{
  int64_t vectors = n / width, blocks = div_up (vectors, EACH_THREADS);

  if (n == 0)
    return cudaSuccess;
  if (blocks > INT32_MAX)
    blocks = INT32_MAX;
  return width == 8 ? launch_early (each_kernel<8, F>, dim3 ((unsigned) blocks), EACH_THREADS, 0, stream, f, vectors)
                    : launch_early (each_kernel<1, F>, dim3 ((unsigned) blocks), EACH_THREADS, 0, stream, f, vectors);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static __device__ inline float
warp_sum (float x)
{
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    x += __shfl_xor_sync (0xffffffffu, x, offset);
  return x;
}

static __device__ inline float
warp_max (float x)
{
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf (x, __shfl_xor_sync (0xffffffffu, x, offset));
  return x;
}

/* Of all threads, given to all; whole warps, at most 32 of them. `parts`: 32 floats in shared memory, free again after
 * the next barrier. */
static __device__ inline float
block_sum (float x, float *parts)
{
  int warps = blockDim.x / 32;

  x = warp_sum (x);
  __syncthreads ();
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = x;
  __syncthreads ();
  return warp_sum ((int) threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : 0);
}

static __device__ inline float
block_max (float x, float *parts)
{
  int warps = blockDim.x / 32;

  x = warp_max (x);
  __syncthreads ();
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = x;
  __syncthreads ();
  return warp_max ((int) threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : -INFINITY);
}

/* Threads of a block that goes through a row of n elements: whole warps, as many as have work, at most `most`. */
static inline int
row_threads (int64_t n, int width, int most)
{
  int64_t threads = div_up (div_up (n, width), 32) * 32;

  return (int) (threads < most ? threads : most);
}

/* Rows are summed by as many blocks whatever the card, so that the order of a sum is the same: about two for each SM of
 * an H100. */
#define MOST_ROW_BLOCKS 264

static inline int64_t
rows_per_block (int64_t m)
{
  return m > 0 ? div_up (m, MOST_ROW_BLOCKS) : 1;
}

static inline int64_t
row_blocks (int64_t m)
{
  return div_up (m, rows_per_block (m));
}
