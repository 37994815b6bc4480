/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' benchmark on one GPU: each kernel of the table (calibrate/bench-rows.h) is checked beside its reference
 * first, at awkward sizes, and then timed at sizes that models have, by what plays programs (calibrate/player.h).
 *
 * A line a size: median and the range from 20 to 80 % of the samples, bytes over the memory bus and FLOP as the cost model
 * counts them, and both rates beside those of a copy of 1 GiB and of a product of 8192 cubed in the same run; of what moves
 * bytes alone also beside a copy of as many ("% same"), which a launch costs as much. Operands are cold, unless asked for
 * warm: at least twice the L2 cache's bytes are moved between two uses of the same ones.
 *
 * With a file, samples are rows of a measured CSV, op "kernel", written as they come; what the file has is not timed
 * again. */
#pragma once

#include "calibrate/ranks.h"

G_BEGIN_DECLS

typedef struct {
  GPtrArray *rows; /* const SpBenchRow *, those to be timed: sp_bench_select */
  int repeats;     /* samples of a size, at least */
  gboolean warm;
  const char *output; /* NULL: no file */
} SpBench;

/* SpRankFunc of one rank; data is a SpBench. */
gboolean sp_bench_rank (SpRank *rank, gpointer data, GError **error);

G_END_DECLS
