/* SPDX-License-Identifier: Apache-2.0 */
/* How far a search is: one line on a terminal, written over itself at most once a second. */
#include <stdio.h>
#include <unistd.h>

#include "cli/progress.h"

static void
show (gint64 done, gint64 all, gpointer data)
{
  SpCliProgress *progress = data;
  gint64 now = g_get_monotonic_time ();

  if (now < progress->last + G_USEC_PER_SEC)
    return;
  progress->last = now;
  g_autofree char *looked_at = sp_text_count ((double) done);
  g_autofree char *of = sp_text_count ((double) all);
  fprintf (stderr, "\rsearching: %s of %s layouts\033[K", looked_at, of);
}

void
sp_cli_progress_begin (SpCliProgress *progress, SpPlanQuestion *question)
{
  *progress = (SpCliProgress){ .terminal = isatty (STDERR_FILENO) };
  if (!progress->terminal)
    return;
  question->progress = show;
  question->progress_data = progress;
}

void
sp_cli_progress_end (const SpCliProgress *progress)
{
  if (progress->terminal)
    fputs ("\r\033[K", stderr);
}
