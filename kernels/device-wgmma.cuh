/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What sm_90a has beyond device-mma.cuh, one instruction a function: products by a warpgroup (four warps), copies of
 * boxes of a tensor (TMA), barriers in shared memory.
 *
 * Tiles lie in shared memory as TMA writes them with a swizzle of 128 bytes: rows of 64 elements, 128 bytes each, whose
 * 16-byte pieces are at (piece ^ row % 8); tiles begin at multiples of 1024 bytes. Wider tiles are several of these, one
 * for each 64 columns. A product takes from such a tile either x (rows are not summed over: "by rows") or its transpose
 * (rows are summed over: "by columns"). A row of 16 of what is summed over is one product: d[64,N] += a[64,16] b[16,N].
 */

#include <stdint.h>

#include <cuda.h>

static __device__ inline uint32_t
shared_address (const void *p)
{
  return (uint32_t) __cvta_generic_to_shared (p);
}

/* --- barriers ----------------------------------------------------------------------------------------------------- */

static __device__ inline void
barrier_init (uint32_t barrier, uint32_t arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ inline void
barrier_arrive (uint32_t barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/* Arrives, and adds `bytes` to what copies have to bring. */
static __device__ inline void
barrier_expect (uint32_t barrier, uint32_t bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ inline void
barrier_wait (uint32_t barrier, uint32_t parity)
{
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra end;\n"
               "bra again;\n"
               "end:\n"
               "}\n" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

/* Of `threads` threads of the block that come to barrier `id` (not 0). */
static __device__ inline void
named_barrier (int id, int threads)
{
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/* Counts for those who wait there, and goes on. */
static __device__ inline void
named_barrier_arrive (int id, int threads)
{
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/* Writes to shared memory before this are seen by products and TMA after it. */
static __device__ inline void
fence_async (void)
{
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* The box at (column, vector, token) of a tensor [token,vector,column]; zeros where there is none. */
static __device__ inline void
copy_box (uint32_t to, const CUtensorMap *map, int column, int vector, int token, uint32_t barrier)
{
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
               "[%2];\n" ::"r"(to),
               "l"(map), "r"(barrier), "r"(column), "r"(vector), "r"(token)
               : "memory");
}

/* Of so many bytes in a row, a multiple of 16. */
static __device__ inline void
copy_bytes (uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

/* A box from shared memory; parts that the tensor does not have are left out. */
static __device__ inline void
store_box (const CUtensorMap *map, int column, int vector, int token, uint32_t from)
{
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::"l"(map),
               "r"(from), "r"(column), "r"(vector), "r"(token)
               : "memory");
}

static __device__ inline void
store_commit (void)
{
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/* Until what this thread stores has been read from shared memory. */
static __device__ inline void
store_wait_read (void)
{
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Of a tile at `address`: rows of 128 bytes, 8 of them 1024 bytes; `stride` bytes between blocks of 64 columns, which
 * count for operands by columns that are wider. */
struct Operand {
  uint32_t low;
};

static __device__ inline Operand
operand (uint32_t address, uint32_t stride)
{
  return { address >> 4 | stride >> 4 << 16 };
}

/* Of what is `bytes` further on. */
static __device__ inline uint64_t
descriptor (Operand o, uint32_t bytes)
{
  constexpr uint32_t high = 1024 >> 4 | 1u << 30;

  return (uint64_t) high << 32 | (o.low + (bytes >> 4));
}

static __device__ inline void
wgmma_fence (void)
{
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ inline void
wgmma_commit (void)
{
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int N>
static __device__ inline void
wgmma_wait (void)
{
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving what reads or writes d over this. */
template <int N>
static __device__ inline void
wgmma_hold (float (&d)[N][4])
{
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      asm volatile("" : "+f"(d[i][j])::"memory");
}

#define D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define D32 D4 (0), D4 (1), D4 (2), D4 (3), D4 (4), D4 (5), D4 (6), D4 (7)
#define D64 D32, D4 (8), D4 (9), D4 (10), D4 (11), D4 (12), D4 (13), D4 (14), D4 (15)
#define R32                                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "     \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define R64                                                                                                            \
  R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "    \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* d[64,8 N] = a b, plus d if `add`; a by rows. */
template <bool B_BY_COLUMNS>
static __device__ inline void
wgmma (float (&d)[8][4], uint64_t a, uint64_t b, int add)
{
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" R32 "}, %32, %33, add, 1, 1, 0, %35;\n"
               "}\n"
               : D32
               : "l"(a), "l"(b), "r"(add), "n"(B_BY_COLUMNS ? 1 : 0));
}

template <bool B_BY_COLUMNS>
static __device__ inline void
wgmma (float (&d)[16][4], uint64_t a, uint64_t b, int add)
{
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" R64 "}, %64, %65, add, 1, 1, 0, %67;\n"
               "}\n"
               : D64
               : "l"(a), "l"(b), "r"(add), "n"(B_BY_COLUMNS ? 1 : 0));
}

/* The same with a in registers, as in device-mma.cuh: each warp has 16 of the 64 rows. */
template <bool B_BY_COLUMNS>
static __device__ inline void
wgmma (float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" R32 "}, {%32, %33, %34, %35}, %36, add, 1, 1, "
               "%38;\n"
               "}\n"
               : D32
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(B_BY_COLUMNS ? 1 : 0));
}

template <bool B_BY_COLUMNS>
static __device__ inline void
wgmma (float (&d)[16][4], const uint32_t (&a)[4], uint64_t b, int add)
{
  asm volatile("{\n"
               ".reg .pred add;\n"
               "setp.ne.b32 add, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" R64 "}, {%64, %65, %66, %67}, %68, add, 1, 1, "
               "%70;\n"
               "}\n"
               : D64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(B_BY_COLUMNS ? 1 : 0));
}

/* Four matrices of 8 by 8 from registers to rows of 16 bytes, as load_matrices reads them. */
static __device__ inline void
store_matrices (uint32_t row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}
