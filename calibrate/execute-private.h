/* SPDX-License-Identifier: Apache-2.0 */
/* What the executor's files share. */
#pragma once

#include <stdio.h>

#include "calibrate/execute.h"
#include "calibrate/player.h"
#include "calibrate/sensor.h"

/* A command as it goes to rank 0. */
typedef struct {
  SpOp op;
  gint32 layer, micro_batch;
  guint8 queue, phase;
  double start_s, end_s;
} SpExecuteTimed;

typedef struct {
  const SpExecution *execution;
  SpRank *rank;
  const char *file;
  const SpProgram *program;
  const SpRecording *recording;
  SpPlayer *player;
  SpSensor *sensor;
  FILE *out; /* of rank 0 */
} SpExecuteRun;

void sp_execute_write_row (const SpExecuteRun *run, int rank, const char *row, const char *name, gint64 layer, gint64 m,
                           gint64 bytes, gint64 repeat, double start_s, double end_s);
SpExecuteTimed sp_execute_timed (const SpExecuteRun *run, guint command, double start_s, double end_s);
/* Rows of all ranks' commands of `mine` (SpExecuteTimed), each rank's in its order. All ranks together. */
gboolean sp_execute_gather_timed (SpExecuteRun *run, GArray *mine, const char *row, guint repeat, GError **error);

/* --- execute-waits.c ---------------------------------------------------------------------------------------------- */

/* Rows exposed, exposed-transfer and wait of all ranks, and waited where commands are asked for. All ranks together. */
gboolean sp_execute_gather_waits (SpExecuteRun *run, GError **error);
