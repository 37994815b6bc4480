/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of a program's kernels: each op that computes, of each size that the programs have of it, once alone on one
 * GPU, as rows of a measured CSV. A GEMM is op "gemm", any other "kernel" with its form (sim/op-form.h) as the variant. */
#pragma once

#include "calibrate/execute.h"
#include "calibrate/rows.h"

typedef struct {
  SpExecution *execution; /* files, programs, output */
  int repeats;
} SpKernelSweep;

/* The row of a command: op, variant, sizes; no time. `words` keeps its variant. */
struct _SpRecording;
SpMeasuredRow sp_kernel_row (const struct _SpRecording *recording, guint command, GStringChunk *words);
/* SpRankFunc of one rank; data is a SpKernelSweep. */
gboolean sp_kernels_rank (SpRank *rank, gpointer data, GError **error);
