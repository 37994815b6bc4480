/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of programs' kernels on one GPU: all ops that compute, in the program's order, without what goes between
 * GPUs, as rows of a measured CSV: op "kernel", its form (sim/op-form.h) as the variant; of those alike in a program,
 * FLOP too, the mean. Of a program for several GPUs what one rank of each role runs (sim/roles.h), with the operands that
 * it has; one more row, of op "work", says what they did together and on which card, where that says at what power. Softmax attention
 * by each library that is here, cuDNN's marked in its form, or by the one that is asked for. */
#pragma once

#include "calibrate/execute.h"
#include "calibrate/rows.h"
#include "models/rehearse/recording.h"
#include "sim/op-form.h"

typedef struct {
  SpExecution *execution; /* files, programs, output */
  int repeats;
  int card; /* its number among those that are fitted together; negative: not said */
} SpKernelSweep;

/* The row of a command of that form: op, variant, sizes; no time. `words` keeps its variant. */
SpMeasuredRow sp_kernel_row (const SpRecording *recording, SpOpForm form, guint command, GStringChunk *words);
/* Whether both are of one form and the same sizes. */
gboolean sp_kernel_same_row (const SpMeasuredRow *a, const SpMeasuredRow *b);
/* SpRankFunc of one rank; data is a SpKernelSweep. */
gboolean sp_kernels_rank (SpRank *rank, gpointer data, GError **error);
