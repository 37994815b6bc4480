/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a measurement, one a GPU: threads of one process, or one process a rank as a launcher started it (known by
 * its environment variables; no MPI is linked). Everything between ranks but NCCL's own traffic is
 * one primitive, a gather to all, which is a barrier and a broadcast too: in shared memory among threads, over TCP
 * through rank 0 at MASTER_ADDR:MASTER_PORT among processes.
 *
 * When a rank fails or dies, every gather and sp_ranks_check of the others fails with a message that names it. A rank
 * stuck inside a library that nothing can wake is ended by a watchdog, after `timeout_s` without progress: exit status 1
 * and a line on stderr; so is one whose other ranks do not call, and the line says how many it waits for and why. */
#pragma once

#include <glib.h>

typedef struct _SpRanks SpRanks;

typedef struct {
  SpRanks *ranks;
  int rank;
  int local_rank; /* its GPU */
} SpRank;

typedef gboolean (*SpRankFunc) (SpRank *rank, gpointer data, GError **error);

/* Bits; the first of them whose variables are there is taken. */
typedef enum {
  SP_LAUNCHER_TORCHRUN = 1, /* RANK, WORLD_SIZE, LOCAL_RANK */
  SP_LAUNCHER_MPIRUN = 2,   /* Open MPI's: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK */
  SP_LAUNCHER_SRUN = 4,     /* SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID. A batch script has SLURM_PROCID and
                             * SLURM_NTASKS too, but is alone: the step's number of tasks is srun's */
  SP_LAUNCHERS = 7
} SpLauncher;

typedef struct {
  const char *program; /* whose line the watchdog writes, */
  const char *remark;  /* and what it adds */
  guint launchers;
  int threads; /* where no launcher started us */
  int timeout_s;
} SpRanksOptions;

/* How the launcher's variables read: FALSE without an error where there is none. */
gboolean sp_ranks_launched (guint launchers, int *ret_rank, int *ret_size, int *ret_local_rank, GError **error);
/* The environment without what makes a process one of a launcher's. Free with g_strfreev. */
char **sp_ranks_environment_alone (void);
/* Runs `run` on every rank of this process, and returns the first error of any of them. */
gboolean sp_ranks_run (const SpRanksOptions *options, SpRankFunc run, gpointer data, GError **error);
int sp_ranks_size (const SpRank *rank);
gboolean sp_ranks_launcher (const SpRank *rank);
/* `all` takes size x bytes, in the order of ranks. */
gboolean sp_ranks_gather (SpRank *rank, const void *mine, gsize bytes, void *all, GError **error);
/* Rank 0's bytes to all. */
gboolean sp_ranks_broadcast (SpRank *rank, void *data, gsize bytes, GError **error);
/* Has another rank failed? Does not wait. Counts as progress only if `progress`. */
gboolean sp_ranks_check (SpRank *rank, gboolean progress, GError **error);
