/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How far the planner is, on stderr where that is a terminal (progress.c). */

#include "cli/cli.h"
#include "models/planner.h"

G_BEGIN_DECLS

typedef struct {
  gboolean terminal;
  gint64 last; /* when it was shown, in microseconds */
} SpCliProgress;

/* `question` tells `progress`, which must stay where it is until the end. To end it twice does no harm. */
void sp_cli_progress_begin (SpCliProgress *progress, SpPlanQuestion *question);
void sp_cli_progress_end (const SpCliProgress *progress);

G_END_DECLS
