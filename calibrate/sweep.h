/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep: its points, in an order by chance that is the same on every rank, and the loop that times them. Rank 0
 * alone has the file, and tells the others which points are in it. */
#pragma once

#include "calibrate/gpu.h"

typedef enum {
  SP_SWEEP_GEMM = 1 << 0,
  SP_SWEEP_COPY = 1 << 1,
  SP_SWEEP_NCCL = 1 << 2,
  SP_SWEEP_LAUNCH = 1 << 3,
  SP_SWEEP_MEMORY = 1 << 4,
} SpSweepKind;

extern const char *const sp_sweep_kind_names[]; /* in order of bits, NULL-terminated */

typedef struct {
  guint kinds; /* of SpSweepKind */
  int repeats, seed;
  double time_limit_s; /* 0: none */
  gint64 min_bytes, max_bytes;
  gboolean nccl;
  char **forced;      /* ALGORITHM/PROTOCOL, or NULL */
  SpMeasured *shapes; /* GEMMs; has their words */
  char *output;
} SpSweep;

/* m,n,k a line, and nn, nt or tn behind them if it is not nt. text NULL: shapes of common layers. */
gboolean sp_sweep_read_shapes (SpSweep *sweep, const char *path, const char *text, GError **error);
/* Rows without times. */
GArray *sp_sweep_points (const SpSweep *sweep, int ranks, int nodes);
/* Of each of the two buffers that they need. */
gsize sp_sweep_buffer_bytes (const SpSweep *sweep);
/* SpRankFunc; data is a SpSweep. */
gboolean sp_sweep_rank (SpRank *rank, gpointer data, GError **error);
