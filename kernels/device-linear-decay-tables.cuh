/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A decay a head that follows the data, as the kernels by warpgroups take it: of each vector (batch and head) and chunk a
 * table, which is copied to shared memory with the chunk's tiles. See device-linear-decay.cuh for b. What the backward's
 * two chains leave for the gradient of the decays is put together here too:
 *     x_i = q_i dq_i and y_i = k_i dk_i, over all features,
 *     dgates_t = F + sum of y_i - x_i over the tokens of a segment before t
 * where F is what passes the segment's start, M E with M the state there and E its gradient. A pair of tokens counts in x of
 * the one and in y of the other by the same rounded number; what passes through states does not, as M and E are rounded
 * apart. So both ends of a segment are products of their own, and what the sum over it misses the other end by is spread
 * over its tokens.
 */

#include "kernels/device-private.cuh"

/* In floats. END: a key's weight in the state after the chunk, beta 2^(b_end - b); START: a query's in the gradient of the
 * state before it, 2^b; HALVES: either as two bf16, all high parts first. Where there is no token b goes on and beta is 0. */
enum {
  TABLE_END = 0,
  TABLE_B = 64,
  TABLE_BETA = 128,
  TABLE_START = 192,
  TABLE_HALVES = 256,
  TABLE_START_HALVES = 320,
  TABLE_FLOATS = 384
};

size_t decay_tables_bytes (const SpDevRecurrence &r); /* a multiple of 256 */
/* tables [batch,heads,chunks,TABLE_FLOATS] */
cudaError_t decay_tables (const SpDevRecurrence &r, const float *gates, SpDevTensor beta, float *tables,
                          cudaStream_t stream);

/* Of all vectors and `segments` segments of `segment` tokens. A state is dk dv numbers as a thread block has them in
 * registers, those of M and E in the same places. */
struct DecaySums {
  int64_t m, vectors;
  int segment, segments, size; /* size: floats of the ends' states */
  const float *x[2], *y;       /* [vectors,m]; x is the sum of both */
  const uint4 *states;         /* [2,segments - 1,vectors,KNOT]: M and E between segments, in bf16 */
  const float *first[2];       /* [vectors,size]: M and E before all, either of which may be NULL: 0 */
  const float *last[2];        /* after all, likewise */
  float *dgates;
};
#define KNOT (128 * 128 / 8) /* vectors of eight */

cudaError_t decay_gradients (const DecaySums &s, cudaStream_t stream);

/* out[m,batch,kv_heads,k] = the sum over the heads that share keys of parts [m,batch,heads,k], in bf16. */
cudaError_t sum_heads (const SpDevShape &s, const void *parts, SpDevTensor out, cudaStream_t stream);
