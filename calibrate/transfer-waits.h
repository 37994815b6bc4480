/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What of a rank's waits for transfers is the transfers' own and what is lateness, as sim/engine.h has it, of waits that
 * were timed. For the executor; GLib alone.
 *
 * Of collectives and steps of a ring the own part is the least that any rank of the group stood for them in a phase of the
 * step, all together. Of a message one way it is at most what the message takes: the least of what its two ends took on
 * their queues, where the one that comes first waits for the other. A wait for several transfers is one for the last of
 * them. One for a copy to the host, or in a group of one, is its own.
 */

#include "models/rehearse/recording.h"

G_BEGIN_DECLS

/* What a rank waited for a group in a phase; of messages one way a wait by itself, told apart by its ranks and number:
 * what is sent from one to another is issued by both in one order. */
typedef struct {
  gint32 rank, command; /* the command of a message; of a group's the last one that was waited for */
  gint32 from, to;      /* ranks of a message; of a group its first, and -1 */
  guint32 number;       /* of a message, of those before it between the same */
  gint32 size;          /* ranks that take part */
  guint8 group, back, phase;
  double waited_s; /* negative: it has not waited for it */
  double took_s;   /* of a message, on its queue */
  double own_s;    /* of waited_s; 0 of what has not waited */
} SpTransferWait;

/* All that the recording waits for, and every message, in its order. By command: seconds waited, negative where nobody
 * did, and those that messages one way took. */
GArray *sp_transfer_waits_new (const SpProgram *program, const SpRecording *recording, const double *waited_s,
                               const double *took_s);
/* Fills own_s of all ranks'. */
void sp_transfer_waits_split (SpTransferWait *waits, guint n);

G_END_DECLS
