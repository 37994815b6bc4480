/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: programs run for real, one after the other, and what they took, as a CSV.
 *
 *   # seqpar-executed: 2          the version, first; then date, card, driver, cuda, nccl, host, and of the card
 *                               power_limit_w and max_clock_hz,
 *   # attention: quickest         whose softmax attention: seqpar, cudnn, or of both the quicker; older files: seqpar
 *   program,rank,row,name,queue,phase,layer,micro_batch,group,m,n,k,batch,heads,kv_heads,bytes,repeat,start_s,end_s,
 *       clock_hz,power_w,temperature_c,throttle      (one line; older files end with end_s)
 *
 * The last four are of rows step: means over the step and at least 0.1 s of steps before it (as in calibrate/measured.h),
 * of all cards.
 *
 * Rows, by the column of that name:
 *   step      end_s = what a step took on the slowest rank, by repeat; start_s = what the host took to issue it
 *   op        name = the op; of each rank in one step that was timed command by command: m = how often, end_s = all
 *             together
 *   exposed   end_s = how long a rank's kernels waited for communication, in the middle one of seven steps that were timed
 *             at these waits alone, so that no kernel takes longer for it; the waits' own events are not in it, and what
 *             a wait takes beyond what they see is. Of each rank
 *   exposed-transfer   end_s = of that the transfers' own part, without lateness (transfer-waits.h), in the middle one of
 *             those steps by that. Files of version 1 have none
 *   wait      name = the op that was waited for last, m = how often, end_s = of that all together
 *   waited    name = the op, of each of those steps each wait by itself, by what was waited for: end_s = how long,
 *             start_s = what a message one way took on its queue, repeat = the step. Where commands are asked for
 *   overhead  of rank 0's timing: end_s = of name = events, what two events with nothing between take; wait, what a wait
 *             takes beyond its events
 *   command   name = the op, of that step, each by itself; times from the step's start. Where asked for
 *   payload   name = the axis, bytes = handed to NCCL or the host's copies in a step
 *   memory    name = arena, scratch (of kernels), context, communicators (all of them; m = how many), used (all that
 *             the card had in use)
 *   loss      end_s = of all ranks; start_s = of the rehearsal, where verified
 *   gradient  name = a tensor, layer; end_s = |executed - rehearsed| / |rehearsed|, both norms over its elements
 *   rounded, rounded-loss   the same of the rehearsal that rounds what kernels write to their dtypes (rehearse.h): what
 *             the model makes of roundings, whatever the kernels
 */
#pragma once

#include "calibrate/player.h"
#include "calibrate/ranks.h"
#include "sim/program.h"

typedef struct {
  GPtrArray *files;    /* char * */
  GPtrArray *programs; /* SpProgram *, as many: read once, shared by the threads of a process */
  char *output;
  int steps;
  int warm_up; /* so many steps before them, and more until they took SP_PLAYER_WARM_S together; 0: none */
  SpAttention attention;
  gboolean commands; /* their times too */
  gboolean verifies; /* against the rehearsal: small models alone, and one process */
} SpExecution;

/* Those of the files; each must be for as many GPUs as there are ranks, unless that is 0. */
gboolean sp_execution_read (SpExecution *execution, int ranks, GError **error);
/* SpRankFunc; data is an SpExecution. */
gboolean sp_execute_rank (SpRank *rank, gpointer data, GError **error);
