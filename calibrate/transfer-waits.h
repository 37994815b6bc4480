/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What of a rank's waits for transfers is the transfers' own and what is lateness, as sim/engine.h has it, of waits that
 * were timed. For the executor; GLib alone.
 *
 * Of a collective the own part is the least that any rank of the group stood for it. Of a ring's step it is the least of
 * the rank's wait and those of its two neighbours, as nothing says which message was over last; in a ring of two that is
 * the same. Of a message one way it is at most what the message takes: the least of what its two ends took on their
 * queues, where the one that comes first waits for the other. A wait for several transfers is one for the last of them.
 * One for a copy to the host, or in a group of one, is its own.
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
  double waited_s; /* negative: it has not waited for it */
  double took_s;   /* on its queue; negative: not known */
  double own_s;    /* of waited_s; 0 of what has not waited */
} SpTransferEnd;

/* Of all that the recording sends and receives, in its order, without times. */
GArray *sp_transfer_ends_new (const SpProgram *program, const SpRecording *recording);
/* Fills own_s of all ranks' ends. Those of a command get the least of both. */
void sp_transfer_ends_split (SpTransferEnd *ends, guint n);

G_END_DECLS
