/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Schedules: in which order a pipeline stage runs the forward and backward slots of its micro-batches. One file under
 * schedules/ and one row in the table each.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
  guint8 backward;
  gint32 micro_batch;
} SpSlot;

typedef struct {
  const char *name;
  /* Slot number `index` of `stage`; FALSE when the stage is done. */
  gboolean (*slot) (gint32 stages, gint32 stage, gint32 micro_batches, gint32 index, SpSlot *ret);
  /* Most micro-batches whose stash a stage holds at once. */
  gint32 (*in_flight) (gint32 stages, gint32 stage, gint32 micro_batches);
  /* Idle share: bubble time / busy time with uniform stages and free sends. */
  double (*bubble) (gint32 stages, gint32 micro_batches);
} SpSchedule;

extern const SpSchedule sp_schedule_1f1b;

guint sp_schedule_count (void);
const SpSchedule *sp_schedule_get (guint row);
/* Row of a name, or -1. */
gint sp_schedule_find (const char *name);

static inline gboolean
sp_schedule_next (guint row, gint32 stages, gint32 stage, gint32 micro_batches, gint32 index, SpSlot *ret)
{
  return sp_schedule_get (row)->slot (stages, stage, micro_batches, index, ret);
}

G_END_DECLS
