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
 * ops that memory bounds. `op` has kind, sizes and operands. */
double sp_op_flops (const SpOp *op, double pairs);

G_END_DECLS
