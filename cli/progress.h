/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How far what takes long is, on stderr where that is a terminal (progress.c). */

#include "calibrate/fit.h"
#include "cli/cli.h"
#include "models/planner.h"

G_BEGIN_DECLS

typedef struct {
  gboolean terminal;
  gint64 last;      /* when it was shown, in microseconds */
  const char *what; /* of a fit: what is fitted */
} SpCliProgress;

/* `question` tells `progress`, which must stay where it is until the end. To end it twice does no harm. */
void sp_cli_progress_begin (SpCliProgress *progress, SpPlanQuestion *question);
/* `given` tells it, as an SpFitProgress. */
void sp_cli_progress_begin_fit (SpCliProgress *progress, const char *what, SpFitGiven *given);
void sp_cli_progress_end (const SpCliProgress *progress);

G_END_DECLS
