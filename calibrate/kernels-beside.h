/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep of programs' kernels beside transfers: on as many GPUs as each program is for, every rank plays its kernels in
 * their order, without what the program has between GPUs, alone and then beside transfers of all ranks of 8, 24, 64
 * and 128 MiB, one after the other for as long as kernels run. Rows of a measured CSV as kernels.h has them, of rank 0;
 * those beside 64 MiB have the transfer as `beside` and its ranks. Transfers have rows too: alone, and the mean of those
 * that ran beside kernels of one op from their begin to their end, if there are three of them, with the op as variant.
 * Known lie: the other ranks' kernels are taken to be where rank 0's are. Attention by cuDNN where it is, or by the
 * library that is asked for. */
#pragma once

#include "calibrate/execute.h"
#include "calibrate/measured.h"

typedef struct {
  SpExecution *execution; /* files, programs, output */
  int repeats;
  SpMeasuredOp transfers[SP_MEASURED_N_OPS];
  guint n_transfers;
} SpBesideSweep;

/* SpRankFunc of each rank, two at least; data is a SpBesideSweep. */
gboolean sp_kernels_beside_rank (SpRank *rank, gpointer data, GError **error);
