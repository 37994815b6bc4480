/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tensor cores and asynchronous copies of sm_80, one instruction a function.
 *
 * A product is of 16 by 16 by 8: c[16,8] += a[16,16] b[16,8], bf16 in, fp32 out, spread over a warp. With g = lane / 4
 * and t = lane % 4 a lane has c[g][2t], c[g][2t + 1], c[g + 8][2t], c[g + 8][2t + 1]; of a the pairs (g, 2t), (g + 8,
 * 2t), (g, 2t + 8), (g + 8, 2t + 8); of b the pairs (rows 2t, 2t + 1; column g) and (rows 2t + 8, 2t + 9; column g).
 *
 * Places in shared memory are its 32-bit addresses. Operands come from tiles there, laid out so that the 8 rows of a
 * matrix that are read at once lie in different banks: rows 8 elements longer than their features, or pieces turned by
 * the row.
 */

#include <stdint.h>

static __device__ inline void
mma (float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices of 8 by 8, whose rows of 16 bytes lanes 0-7, 8-15, 16-23 and 24-31 name: lane l gets of each the
 * pair at row l / 4, columns 2 (l % 4) and the next. */
static __device__ inline void
load_matrices (uint32_t r[4], uint32_t at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/* The same of their transposes. */
static __device__ inline void
load_matrices_transposed (uint32_t r[4], uint32_t at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/* 16 bytes from global to shared memory, zeros if not valid. */
static __device__ inline void
copy_16 (uint32_t to, const void *from, bool is_valid)
{
  int bytes = is_valid ? 16 : 0;

  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Ends a group of copies. */
static __device__ inline void
copy_commit (void)
{
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Until at most N groups of this thread's are under way. */
template <int N>
static __device__ inline void
copy_wait (void)
{
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}
