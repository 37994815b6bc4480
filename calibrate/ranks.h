/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a measurement, one a GPU: threads of one process, or one process a rank as torchrun, srun or mpirun
 * started it (known by their environment variables; no MPI is linked). Everything between ranks but NCCL's own traffic is
 * one primitive, a gather to all, which is a barrier and a broadcast too: in shared memory among threads, over TCP
 * through rank 0 at MASTER_ADDR:MASTER_PORT among processes.
 *
 * When a rank fails or dies, every gather and sp_ranks_check of the others fails with a message that names it. A rank
 * stuck inside a library that nothing can wake is ended by a watchdog, after `timeout_s` without progress: exit status 1. */
#pragma once

#include <glib.h>

typedef struct _SpRanks SpRanks;

typedef struct {
  SpRanks *ranks;
  int rank;
  int local_rank; /* its GPU */
} SpRank;

typedef gboolean (*SpRankFunc) (SpRank *rank, gpointer data, GError **error);

/* How the launcher's variables read: FALSE without an error where there is none. */
gboolean sp_ranks_launched (int *ret_rank, int *ret_size, int *ret_local_rank, GError **error);
/* Runs `run` on every rank of this process, and returns the first error of any of them. `threads` counts where no
 * launcher started us. */
gboolean sp_ranks_run (int threads, int timeout_s, SpRankFunc run, gpointer data, GError **error);
int sp_ranks_size (const SpRank *rank);
gboolean sp_ranks_launcher (const SpRank *rank);
/* `all` takes size x bytes, in the order of ranks. */
gboolean sp_ranks_gather (SpRank *rank, const void *mine, gsize bytes, void *all, GError **error);
/* Rank 0's bytes to all. */
gboolean sp_ranks_broadcast (SpRank *rank, void *data, gsize bytes, GError **error);
/* Has another rank failed? Does not wait. Counts as progress only if `progress`. */
gboolean sp_ranks_check (SpRank *rank, gboolean progress, GError **error);
