/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What of a rank's waits for transfers is the transfers' own, and what is others' being late. For the executor; GLib alone.
 *
 * A rank's kernels stand for a transfer from when they come to the wait until it is over. EXPOSED COMMUNICATION of a wait is
 * the least that any of the ranks which take part in the transfer stood for it: who comes last waits for the transfer
 * alone, and who had kernels to run until it was over for nothing. LATENESS is the rest: waiting for cards that are slower,
 * ranks that have more to do, and stages of a pipeline.
 *   Who takes part. In a collective all its group. In a step of a ring, where each rank sends and receives at once, the rank
 * and those that it exchanges with, its two neighbours. A message one way (between stages, of a chain) holds up one end
 * and not the other: of a wait for it at most what the message takes is exposed, which is the least of what its two
 * ends took on their queues, as the end that comes first waits there for the other.
 *   A wait for several is one for the last of them. A wait for a copy to the host, or in a group of one, is its own.
 * The simulator splits its waits alike (sim/engine.h).
 *
 * Transfers are told apart by group, way, ranks and number: what is issued in a group is issued by all in one order.
 */

#include "models/rehearse/recording.h"

G_BEGIN_DECLS

/* One end of a transfer, a rank's. A step of a ring is two messages, and two ends that follow each other. */
typedef struct {
  gint32 rank, command;
  gint32 from, to; /* ranks of a message; of a collective its group's first, and -1 */
  guint32 number;  /* of those before it between the same */
  guint8 group, back, one_way;
  double waited_s;  /* negative: it has not waited for it */
  double took_s;    /* on its queue; negative: not known */
  double exposed_s; /* of waited_s; 0 of what has not waited */
} SpTransferEnd;

/* Of all that the recording sends and receives, in its order, without times. */
GArray *sp_transfer_ends_new (const SpProgram *program, const SpRecording *recording);
/* Fills exposed_s of all ranks' ends. Those of a command get the least of both. */
void sp_transfer_ends_split (SpTransferEnd *ends, guint n);

G_END_DECLS
