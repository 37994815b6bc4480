/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What weighs on tokens in device-linear-bwd-kernel.cuh. Two forms with the same members, of which a kernel has one for each
 * item: a slope a head, whose weights are powers by distance, or decays of each token, which come with the chunk's tiles.
 *     shared_bytes               of shared memory that a block has for them
 *     beyond (chunk, pair)       the chain's next chunk in the segment's state: its own weight, after those before
 *     over_segment (), over_chunk (step)
 *                                of a state
 *     tokens (pair)              of the chunk's tokens in the state after it, at (k, i)
 *     weigh_scores (...)         scores of pairs as the next product's operand, 0 where the key comes after
 *     rows (...)                 what a state gives to this thread's two rows
 */

#include "kernels/device-linear-bwd-sm90.cuh"

/* --- of a slope --------------------------------------------------------------------------------------------------- */

/* A head's powers of lambda by distance, 0 where it is negative; in shared memory, for each warpgroup. */
#define NEGATIVE 72
#define POWERS 148

struct SlopeTokens {
  const float *powers;
  bool reverse;
  float first[4];

  __device__ inline float2 at (int k, int half) const
  {
    float step = powers[NEGATIVE + 16 * (reverse ? k : 3 - k)];

    return make_float2 (first[2 * half] * step, first[2 * half + 1] * step);
  }
};

struct SlopeWeights {
  static constexpr bool gated = false;
  static constexpr int shared_bytes = 2 * POWERS * 4, chunk_bytes = 0;
  const Item &x;
  const Lane &l;
  float slope2;
  const float *powers;

  __device__ inline SlopeWeights (const Bwd &a, const Item &item, float *shared, const Lane &lane)
      : x (item), l (lane), slope2 (a.slopes[item.vector % a.heads] * LOG2_E), powers (shared + lane.group * POWERS)
  {
    named_barrier (1 + l.group, 128); /* those of the item before have been read */
    for (int i = threadIdx.x % 128; i < POWERS; i += 128)
      shared[l.group * POWERS + i] = i < NEGATIVE ? 0 : decay2 (slope2, i - NEGATIVE);
    named_barrier (1 + l.group, 128);
  }

  __device__ inline float beyond (int chunk, int)
  {
    return decay2 (slope2, x.reverse ? chunk * CHUNK : x.tokens - (chunk + 1) * CHUNK);
  }

  __device__ inline float over_segment (void) const
  {
    return decay2 (slope2, x.tokens);
  }

  __device__ inline int left (int step) const
  {
    return min (x.tokens - chunk_of (x, step) * CHUNK, CHUNK);
  }

  /* Of the first chain's last chunk nobody asks. */
  __device__ inline float over_chunk (int step) const
  {
    return powers[NEGATIVE + (x.reverse && step == 0 ? left (0) : CHUNK)];
  }

  __device__ inline SlopeTokens tokens (int) const
  {
    SlopeTokens t = { powers, x.reverse, {} };

#pragma unroll
    for (int i = 0; i < 4; i++) {
      int r = l.pair + i % 2 + i / 2 * 8;
      t.first[i] = powers[NEGATIVE + (x.reverse ? r + 1 : 15 - r)];
    }
    return t;
  }

  template <bool REVERSE>
  __device__ inline void weigh_scores (Fragments &p, const float (&s)[8][4], int, const float (&)[2]) const
  {
    int base = NEGATIVE + (REVERSE ? l.pair - l.row : l.row - l.pair), step = REVERSE ? 1 : -1;
    float above[2]; /* of the rows 8 further down, which are as near as this one's to the 8 columns before */

    above[0] = powers[base - 8 * step];
    above[1] = powers[base - 7 * step];
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float low = powers[base + 8 * j * step], high = powers[base + (8 * j + 1) * step];

      p[j / 2][j % 2 * 2] = bf16_pair (s[j][0] * low, s[j][1] * high);
      p[j / 2][j % 2 * 2 + 1] = bf16_pair (s[j][2] * above[0], s[j][3] * above[1]);
      above[0] = low;
      above[1] = high;
    }
  }

  template <bool REVERSE> __device__ inline void rows (float (&ret)[2], int step, int, const float (&)[2]) const
  {
#pragma unroll
    for (int i = 0; i < 2; i++)
      ret[i] = powers[NEGATIVE + (REVERSE ? max (left (step) - 1 - 8 * i - l.row, 0) : l.row + 8 * i + 1)];
  }
};

/* --- of each token ------------------------------------------------------------------------------------------------ */

/* Three parts of a chunk's table: of the first chain END, B, BETA, of the second B, BETA, START. */
#define SLOT (3 * CHUNK)

struct GateTokens {
  const float *weights;

  __device__ inline float2 at (int k, int half) const
  {
    return *(const float2 *) (weights + 16 * k + 8 * half);
  }
};

struct GateWeights {
  static constexpr bool gated = true;
  static constexpr int chunk_bytes = SLOT * 4, shared_bytes = 3 * chunk_bytes;
  const Bwd &a;
  const Item &x;
  const Lane &l;
  const float *slots; /* by pair of tiles */
  float passed;       /* the logarithm of what the chain's next chunk has after it */

  __device__ inline GateWeights (const Bwd &bwd, const Item &item, float *shared, const Lane &lane)
      : a (bwd), x (item), l (lane), slots (shared), passed (0)
  {
  }

  __device__ inline const float *sums (int pair) const /* then beta */
  {
    return slots + pair / 2 * SLOT + (x.reverse ? 0 : CHUNK);
  }

  __device__ inline float beyond (int, int pair)
  {
    float factor = exp2_fast (passed);

    passed += sums (pair)[CHUNK - 1];
    return factor;
  }

  __device__ inline float over_segment (void) const
  {
    return exp2_fast (passed);
  }

  __device__ inline float over_chunk (int step) const
  {
    return exp2_fast (__ldg (table_of (a, x, chunk_of (x, step)) + TABLE_B + CHUNK - 1));
  }

  __device__ inline GateTokens tokens (int pair) const
  {
    return { slots + pair / 2 * SLOT + (x.reverse ? 2 * CHUNK : 0) + l.pair };
  }

  /* Of this thread's two rows, which are keys. */
  __device__ inline void betas (float (&ret)[2], int pair) const
  {
    ret[0] = sums (pair)[CHUNK + l.row];
    ret[1] = sums (pair)[CHUNK + l.row + 8];
  }

  /* In both chains the same number before it is rounded, and so after. */
  template <bool REVERSE>
  __device__ inline void weigh_scores (Fragments &p, const float (&s)[8][4], int pair, const float (&beta)[2]) const
  {
    const float *b = sums (pair), *columns = b + l.pair;
    float own[2] = { b[l.row], b[l.row + 8] };

#pragma unroll
    for (int j = 0; j < 8; j++) {
      float2 other = *(const float2 *) (columns + 8 * j), of_key = make_float2 (1, 1);
      float w[4];
      if (!REVERSE)
        of_key = *(const float2 *) (columns + CHUNK + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int row = l.row + e / 2 * 8, column = 8 * j + l.pair + e % 2;
        float at = e % 2 ? other.y : other.x;
        bool is_seen = REVERSE ? column >= row : row >= column;
        float decayed = s[j][e] * exp2_fast (REVERSE ? at - own[e / 2] : own[e / 2] - at);
        w[e] = is_seen ? decayed * (REVERSE ? beta[e / 2] : e % 2 ? of_key.y : of_key.x) : 0;
      }
      p[j / 2][j % 2 * 2] = bf16_pair (w[0], w[1]);
      p[j / 2][j % 2 * 2 + 1] = bf16_pair (w[2], w[3]);
    }
  }

  template <bool REVERSE> __device__ inline void rows (float (&ret)[2], int, int pair, const float (&beta)[2]) const
  {
    const float *b = sums (pair);

#pragma unroll
    for (int i = 0; i < 2; i++)
      ret[i] = REVERSE ? exp2_fast (b[CHUNK - 1] - b[l.row + 8 * i]) * beta[i] : exp2_fast (b[l.row + 8 * i]);
  }
};

/* --- weighed tokens ----------------------------------------------------------------------------------------------- */

template <typename T>
static __device__ inline void
weigh_tokens (Fragments &x, uint32_t tile, const T &weights, float more, const Lane &l)
{
  int lane = threadIdx.x % 32, matrix = lane / 8, token = matrix / 2 * 8 + lane % 8,
      piece = l.warp % 4 * 2 + matrix % 2;
  uint32_t at = tile + l.group * HALF_BYTES + token * 128 + ((piece ^ token % 8) << 4);

#pragma unroll
  for (int k = 0; k < 4; k++) {
    uint32_t raw[4];

    load_matrices_transposed (raw, at + k * 2048);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 w = weights.at (k, i / 2);
      x[k][i] = bf16_pair (bf16_at (raw[i], 0) * (w.x * more), bf16_at (raw[i], 1) * (w.y * more));
    }
  }
}
