/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a kernel costs, by its op alone: the bytes that it moves over the memory bus and its FLOP. Who writes a program
 * counts with these, and so does who times a kernel alone.
 */

#include "sim/op.h"

G_BEGIN_DECLS

/* Of a kernel that reads each operand once and writes each once; what accumulates reads it too, and so does an optimizer
 * its states. Of a table only the rows that are looked up move, and of rows only the columns that are read: a gate's, of
 * linear attention's QKVU those that it maps. Bytes of each operand, 0 where there is none; `op` has
 * kind, flags and sizes. */
gint64 sp_op_bytes (const SpOp *op, const gint64 in[SP_MAX_IN], const gint64 out[SP_MAX_OUT]);

/* 2 m n k of a product. Softmax attention: 2 a pair and feature, in 2 products forward, in 5 backward (3 of a key's
 * features, 2 of a value's); `pairs` are the query-key pairs of one head and sequence. Linear attention with a fixed
 * decay, chunked, a token and head, for key size k, value size n and chunk C: 2 C (k + n) within the chunk, 2 k n to build
 * the state and 2 k n to apply it; C = key size, as TransNormerLLM and flash-linear-attention choose for 64 to 128. 0 of
 * ops that memory bounds. `op` has kind, flags, sizes and operands.
 *
 * Recurrences, of the chunked kernels, likewise:
 *   plain   as linear attention, whose chunk is the one in which a device's linear efficiency is stated: q k within the
 *           chunk 2 C k (once for all heads that share q and k, where the decay is one a head), times v 2 C n; the
 *           state's build and use, 2 k n each. Backward: 2.5 times the first two, and 5 products of 2 k n.
 *   delta   C = 64 (flash-linear-attention). As plain, and for the chunk's product of (I - beta k k^T) as I - W^T K
 *           (the WY form of 2406.06484, with the UT transform): K K^T 2 C k, the inverse of I + its lower half C^2 / 3,
 *           W 2 C k, U 2 C n; and U - W S before the build, 2 k n. Backward, kernel by kernel: W, U and the states
 *           again, the parts within the chunk, the states' gradients, dQ dK dW, the transform's own backward: 8
 *           products of 2 k n, 10 of 2 C k, 5 of 2 C n, 2 of 2 C^2.
 *   scan    3 x 2 k n, 2.5 times that backward
 * What the own tokens leave: plain 2 k n, each way. Delta 2 x 2 k n forward, 3 x 2 k n backward, and 2 x 2 k k for T each
 * way; W and U are counted once, in the main kernel: flash-linear-attention shares them. */
double sp_op_flops (const SpOp *op, double pairs);

G_END_DECLS
