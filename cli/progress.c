/* SPDX-License-Identifier: Apache-2.0 */
/* How far a search or a fit is: one line on a terminal, written over itself at most once a second. */
#include <stdio.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/ranks.h"

static gboolean
is_due (SpCliProgress *progress)
{
  gint64 now = g_get_monotonic_time ();
  gboolean due = now >= progress->last + G_USEC_PER_SEC;

  progress->last = due ? now : progress->last;
  return due;
}

static void
show (gint64 done, gint64 all, gpointer data)
{
  if (!is_due (data))
    return;
  g_autofree char *looked_at = sp_text_count ((double) done);
  g_autofree char *of = sp_text_count ((double) all);
  fprintf (stderr, "\rsearching: %s of %s layouts\033[K", looked_at, of);
}

void
sp_cli_progress_begin (SpCliProgress *progress, SpPlanQuestion *question)
{
  *progress = (SpCliProgress){ .terminal = isatty (STDERR_FILENO) && sp_ranks_is_first (question->ranks) };
  if (!progress->terminal)
    return;
  question->progress = show;
  question->progress_data = progress;
}

static void
show_fit (guint done, guint all, gpointer data)
{
  SpCliProgress *progress = data;

  if (is_due (progress))
    fprintf (stderr, "\r%s: %u of %u\033[K", progress->what, done, all);
}

void
sp_cli_progress_begin_fit (SpCliProgress *progress, const char *what, SpFitGiven *given)
{
  *progress = (SpCliProgress){ .terminal = isatty (STDERR_FILENO), .what = what };
  given->progress = progress->terminal ? show_fit : NULL;
  given->progress_data = progress;
}

void
sp_cli_progress_end (const SpCliProgress *progress)
{
  if (progress->terminal)
    fputs ("\r\033[K", stderr);
}
