/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What attention uses of sm_90a: products of a warpgroup (wgmma), tiles by the tensor memory accelerator (TMA), barriers
 * in shared memory (mbarrier).
 *
 * A tile of R rows by D features lies in blocks of 64 features, each R rows of 128 bytes, swizzled by 128 bytes as the
 * TMA writes it; a block is aligned to 1024 bytes. Of a product's 64 rows each warp has 16, as with mma.sync.
 */

#include <stdint.h>

#include "kernels/device-attention.cuh"
#include "kernels/device-map.cuh"

/* --- barriers ----------------------------------------------------------------------------------------------------- */

static __device__ inline void
barrier_init (uint64_t *barrier, int arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_at (barrier)), "r"(arrivals) : "memory");
}

/* Makes barriers known to the TMA. */
static __device__ inline void
barrier_init_end (void)
{
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

static __device__ inline void
barrier_arrive (uint64_t *barrier)
{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_at (barrier)) : "memory");
}

/* Of a warp: arrives once, after all its lanes have come here. */
static __device__ inline void
barrier_arrive_warp (uint64_t *barrier)
{
  __syncwarp ();
  if (threadIdx.x % 32 == 0)
    barrier_arrive (barrier);
}

/* Arrives when all that this thread has started to copy by copy_few_at is there. */
static __device__ inline void
barrier_arrive_copied (uint64_t *barrier)
{
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(shared_at (barrier)) : "memory");
}

/* Arrives; so many bytes are still to come. */
static __device__ inline void
barrier_expect (uint64_t *barrier, int bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_at (barrier)), "r"(bytes)
               : "memory");
}

static __device__ inline void
barrier_wait (uint64_t *barrier, int phase)
{
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}\n" ::"r"(shared_at (barrier)),
               "r"(phase)
               : "memory");
}

/* --- fetching ----------------------------------------------------------------------------------------------------- */

/* What a fetching warp says of a tile. */
struct Step {
  int tile; /* -1: there is none */
  bool is_whole;
};

/* Goes round STAGES stages; the phase changes with each round. */
template <int STAGES> struct Turn {
  int stage, phase;

  __device__ inline void next (void)
  {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/* --- registers ---------------------------------------------------------------------------------------------------- */

/* A warpgroup gives up all but N registers a thread, or takes as many as it has up to N. */
template <int N>
static __device__ inline void
registers_give (void)
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}

template <int N>
static __device__ inline void
registers_take (void)
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* D features (blocks of 64) of ROWS tokens from `token` on, of a map [tokens][heads][features]. */
template <int D, int ROWS>
static __device__ inline void
tile_fetch (unsigned char *tile, const CUtensorMap *map, uint64_t *barrier, int head, int token)
{
#pragma unroll
  for (int i = 0; i < D / 64; i++)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];\n" ::"r"(shared_at (tile) + i * ROWS * 128),
        "l"(map), "r"(shared_at (barrier)), "r"(i * 64), "r"(head), "r"(token)
        : "memory");
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static __device__ inline void
products_begin (void)
{
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/* Ends a group of products. */
static __device__ inline void
products_commit (void)
{
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Until at most N groups are under way. */
template <int N>
static __device__ inline void
products_wait (void)
{
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving registers of a product that is under way. */
template <int N>
static __device__ inline void
hold (float (&c)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    asm volatile("" : "+f"(c[i])::"memory");
}

template <int N>
static __device__ inline void
hold (uint32_t (&a)[N])
{
#pragma unroll
  for (int i = 0; i < N; i++)
    asm volatile("" : "+r"(a[i])::"memory");
}

/* Of an operand whose summed features lie along its rows of 128 bytes. A step of 16 features is 2 further. */
static __device__ inline uint64_t
operand_by_features (uint32_t at)
{
  return (uint64_t) ((at & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t) (1024 >> 4) << 32 | 1ull << 62;
}

/* Of one whose rows are summed over, of a tile of ROWS. A step of 16 rows is 128 further. */
template <int ROWS>
static __device__ inline uint64_t
operand_by_rows (uint32_t at)
{
  return (uint64_t) ((at & 0x3ffff) >> 4) | (uint64_t) (ROWS * 128 >> 4) << 16 | (uint64_t) (1024 >> 4) << 32 |
         1ull << 62;
}

/* Rounded, as the first operand of the next product. */
template <int N>
static __device__ inline void
pack (uint32_t (&p)[N / 2], const float (&c)[N])
{
#pragma unroll
  for (int i = 0; i < N / 2; i++)
    p[i] = bf16_pair (c[2 * i], c[2 * i + 1]);
}

#define C_8(i)                                                                                                         \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),          \
      "+f"(c[i + 7])
#define C_32(i) C_8 (i), C_8 (i + 8), C_8 (i + 16), C_8 (i + 24)
#define C_64 C_32 (0), C_32 (32)
#define C_128 C_64, C_32 (64), C_32 (96)
#define NAMES_32                                                                                                       \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"     \
  "%30,%31"
#define NAMES_64                                                                                                       \
  NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
           "%58,%59,%60,%61,%62,%63"
#define NAMES_128                                                                                                      \
  NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
           "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112," \
           "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

/* One step of 16: c[64,N] = a b, or += where `sums`. `shared`: a from shared memory, b by features. `kept`: a from
 * registers, b by rows. */
template <int N> struct Product;

#define PRODUCT(N, NAMES, CS, A, B, P, R0, R1, R2, R3, RB, RP)                                                         \
  template <> struct Product<N> {                                                                                      \
    static __device__ inline void shared (float (&c)[N / 2], uint64_t a, uint64_t b, int sums)                         \
    {                                                                                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, " A ", " B                   \
                   ", p, 1, 1, 0, 0;\n}\n"                                                                             \
                   : CS                                                                                                \
                   : "l"(a), "l"(b), "r"(sums));                                                                       \
    }                                                                                                                  \
    static __device__ inline void kept (float (&c)[N / 2], const uint32_t a[4], uint64_t b, int sums)                  \
    {                                                                                                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " RP ", 0;\n"                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES "}, {" R0 "," R1 "," R2 "," R3   \
                   "}, " RB ", p, 1, 1, 1;\n}\n"                                                                       \
                   : CS                                                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(sums));                                   \
    }                                                                                                                  \
  }

PRODUCT (64, NAMES_32, C_32 (0), "%32", "%33", "%34", "%32", "%33", "%34", "%35", "%36", "%37");
PRODUCT (128, NAMES_64, C_64, "%64", "%65", "%66", "%64", "%65", "%66", "%67", "%68", "%69");
PRODUCT (256, NAMES_128, C_128, "%128", "%129", "%130", "%128", "%129", "%130", "%131", "%132", "%133");

/* c[64,N] = x y^T of 64 rows of x, in a tile of X_ROWS, and all N of y, both of D features. */
template <int D, int X_ROWS, int N>
static __device__ inline void
product_by_features (float (&c)[N / 2], uint32_t x, uint32_t y)
{
#pragma unroll
  for (int k = 0; k < D / 16; k++)
    Product<N>::shared (c, operand_by_features (x + k / 4 * X_ROWS * 128 + k % 4 * 32),
                        operand_by_features (y + k / 4 * N * 128 + k % 4 * 32), k > 0);
}

/* c[64,N] += p y of p[64,ROWS], packed as a product leaves it, and a tile y of ROWS by N. */
template <int ROWS, int N>
static __device__ inline void
product_by_rows (float (&c)[N / 2], const uint32_t (&p)[ROWS / 4], uint32_t y, bool sums)
{
#pragma unroll
  for (int k = 0; k < ROWS / 16; k++)
    Product<N>::kept (c, p + 4 * k, operand_by_rows<ROWS> (y + k * 2048), sums || k > 0);
}
