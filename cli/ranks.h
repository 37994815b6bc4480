/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Commands that split their work over processes: `mpirun -n 3 seqpar plan ...`. mpirun starts them and says which is
 * which; what they tell each other goes the way that ranks of a measurement have (calibrate/ranks.h), so that no MPI is
 * linked and any build has it. Open MPI's variables are read, and no others: a batch script has RANK or SLURM_PROCID
 * for other programs, and a command in it is alone.
 *
 * All ranks run the command with the same arguments and files, exchange what each has found, and have the same result,
 * which rank 0 alone prints. An error of one ends all: rank 0 prints it, with the rank whose it was, and has its status; the
 * others end in silence. Of a rank that died rank 0 learns by the connection; of rank 0 mpirun says it.
 *
 * Processes send structs as they lie in memory: the machines are to be alike.
 */

#include "cli/cli.h"
#include "models/planner.h"

G_BEGIN_DECLS

/* Of the command's help. */
#define SP_RANKS_HELP                                                                                                  \
  "mpirun -n N (Open MPI's) before it splits the work over processes, with -x MASTER_ADDR=NODE over several nodes.\n"  \
  "Nothing else does: variables of torchrun, srun or a batch script change nothing.\n"

/* `ranks` NULL: alone. */
typedef gboolean (*SpRankedFunc) (const SpPlanRanks *ranks, char **args, GString *out, GError **error);

gboolean sp_cli_on_ranks (SpRankedFunc run, char **args, GString *out, GError **error);

/* Whether this process writes files and says what there is to say. */
static inline gboolean
sp_ranks_is_first (const SpPlanRanks *ranks)
{
  return ranks == NULL || ranks->rank == 0;
}

G_END_DECLS
