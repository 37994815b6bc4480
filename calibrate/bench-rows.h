/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The benchmark's table of kernels, one row each: the op, its operands, sizes that models have, and the check of
 * kernels/cases that comes before it is timed. Bytes and FLOP of an op are the cost model's (sim/op-cost.h). Nothing here
 * needs a GPU.
 */

#include "models/rehearse/recording.h"

G_BEGIN_DECLS

/* Sizes of an op, as sim/op.h has them for its kind; 0: it has none. */
typedef struct {
  gint32 m, n, k, batch, heads, kv_heads;
} SpBenchSize;

/* Elements of an operand. */
typedef gint64 (*SpBenchExtent) (const SpOp *op);

typedef struct {
  SpDtype dtype;
  SpBenchExtent extent; /* NULL: there is no such operand */
} SpBenchOperand;

#define SP_BENCH_MAX_SIZES 4

typedef struct {
  SpOpKind kind;
  guint32 flags; /* SpOpFlags */
  const char *check;
  guint tables; /* bits, of SpRowTableKind */
  SpBenchOperand in[SP_MAX_IN], out[SP_MAX_OUT];
  SpBenchSize sizes[SP_BENCH_MAX_SIZES];
} SpBenchRow;

/* The first is a copy and the second a product: at their first sizes they are what the others are held against. */
const SpBenchRow *sp_bench_rows (guint *ret_n);
enum { SP_BENCH_COPY, SP_BENCH_GEMM };

/* Rows whose op, or whose whole form, is named; without names all. NULL of a name that is no kernel's, as a
 * wrong option's value (G_OPTION_ERROR_BAD_VALUE): the nearest is said. */
GPtrArray *sp_bench_select (char **names, GError **error);
/* Kernel, size, bytes, FLOP and check of each of them, a line a size; free it. */
char *sp_bench_list (const GPtrArray *rows);

guint sp_bench_n_sizes (const SpBenchRow *row);
/* With bytes, FLOP, and slot 1 for each operand that there is. */
SpOp sp_bench_op (const SpBenchRow *row, guint size);
/* "norm-bwd/1f.3", its form; free it. A kernel's name, as one asks for it, is that of its op. */
char *sp_bench_name (const SpBenchRow *row);
/* Of its first operands, "bf16 fp32" or once if they are alike; free it. */
char *sp_bench_dtypes (const SpBenchRow *row);
/* "8192 x 4096": its sizes in their order, without those that it has not; free it. */
char *sp_bench_shape (const SpOp *op);

/* The op `count` times, with `sets` sets of operands in turn, each in memory of its own. */
SpRecording *sp_bench_record (const SpBenchRow *row, guint size, guint sets, guint count);
/* What kernels must be told besides: as of LLaMA 3. */
void sp_bench_numbers (const SpOp *op, SpNumbers *ret);

G_END_DECLS
