/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar-measure: where it is, what it says of the machine, and its runs. */
#include <gio/gio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate/measured.h"
#include "calibrate/ranks.h"
#include "cli/calibrate.h"

#define PROGRAM "seqpar-measure"

void
sp_machine_clear (SpMachine *machine)
{
  g_free (machine->card);
}

static gboolean
is_program (const char *path)
{
  return g_file_test (path, G_FILE_TEST_IS_REGULAR) && g_file_test (path, G_FILE_TEST_IS_EXECUTABLE);
}

char *
sp_find_measure (GError **error)
{
  const char *given = g_getenv ("SEQPAR_MEASURE");
  g_autofree char *self = g_file_read_link ("/proc/self/exe", NULL);

  if (given != NULL && *given != '\0') {
    if (is_program (given))
      return g_canonicalize_filename (given, NULL);
    sp_cli_fail (error, SP_CLI_ERROR_INPUT, "SEQPAR_MEASURE=%s: is no program", given);
    return NULL;
  }
  if (self != NULL) {
    g_autofree char *folder = g_path_get_dirname (self);
    g_autofree char *beside = g_build_filename (folder, PROGRAM, NULL);
    if (is_program (beside))
      return g_steal_pointer (&beside);
  }
  char *found = g_find_program_in_path (PROGRAM);
  if (found == NULL)
    sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                 PROGRAM
                 " was found neither beside seqpar nor in the PATH: it is built where CUDA is; SEQPAR_MEASURE=FILE "
                 "names another place");
  return found;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* The last line that is not empty, without the program's name; lines may end with a return. */
static char *
last_line (const char *text)
{
  g_auto (GStrv) lines = g_strsplit_set (text, "\n\r", -1);
  const char *last = "";

  for (guint i = 0; lines[i] != NULL; i++)
    if (*g_strstrip (lines[i]) != '\0')
      last = lines[i];
  return g_strdup (g_str_has_prefix (last, PROGRAM ": ") ? last + strlen (PROGRAM ": ") : last);
}

/* What it says on stderr, to its end: the last part. */
static char *
follow (GInputStream *stream)
{
  enum { MOST = 8192 };
  gboolean shown = isatty (STDERR_FILENO);
  g_autoptr (GString) said = g_string_new (NULL);
  char part[512];
  gssize n;

  while ((n = g_input_stream_read (stream, part, sizeof part, NULL, NULL)) > 0) {
    if (shown)
      fwrite (part, 1, (gsize) n, stderr);
    g_string_append_len (said, part, n);
    if (said->len > 2 * MOST)
      g_string_erase (said, 0, (gssize) said->len - MOST);
  }
  g_autofree char *valid = g_utf8_make_valid (said->str, -1);
  return last_line (valid);
}

static gboolean
wait_for (GSubprocess *process, const char *what, GError **error)
{
  g_autofree char *line = follow (g_subprocess_get_stderr_pipe (process));

  if (!g_subprocess_wait (process, NULL, error))
    return FALSE;
  if (g_subprocess_get_successful (process))
    return TRUE;
  if (g_subprocess_get_if_signaled (process))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, PROGRAM " %s: ended by signal %d%s%s", what,
                        g_subprocess_get_term_sig (process), *line != '\0' ? ", after: " : "", line);
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT, PROGRAM " %s: %s", what, *line != '\0' ? line : "failed");
}

/* One process on this machine, whatever a batch script or a shell says of ranks: it would wait for the others. */
static GSubprocess *
start (const char *const *argv, GSubprocessFlags flags, GError **error)
{
  g_autoptr (GSubprocessLauncher) launcher = g_subprocess_launcher_new (flags | G_SUBPROCESS_FLAGS_STDERR_PIPE);
  g_auto (GStrv) environment = sp_ranks_environment_alone ();

  g_subprocess_launcher_set_environ (launcher, environment);
  return g_subprocess_launcher_spawnv (launcher, argv, error);
}

gboolean
sp_run_step (const char *const *argv, GError **error)
{
  g_autoptr (GSubprocess) process = start (argv, G_SUBPROCESS_FLAGS_STDOUT_SILENCE, error);

  return process != NULL && wait_for (process, argv[1], error);
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static gboolean
read_machine (const char *text, SpMachine *machine)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  gint64 gpus = 0;

  for (guint i = 0; lines[i] != NULL; i++) {
    char *value = strstr (lines[i], ": ");
    if (value == NULL)
      continue;
    *value = '\0';
    value += 2;
    if (g_str_equal (lines[i], "gpus") && !sp_measured_whole (value, 1, 1 << 10, &gpus))
      return FALSE;
    if (g_str_equal (lines[i], "card") && machine->card == NULL)
      machine->card = g_strdup (value);
    if (g_str_equal (lines[i], "nccl"))
      machine->nccl = !g_str_equal (value, "no");
  }
  machine->gpus = (int) gpus;
  return gpus > 0 && machine->card != NULL;
}

gboolean
sp_machine_read (const char *measure, SpMachine *ret, GError **error)
{
  const char *const argv[] = { measure, "gpus", NULL };
  g_autoptr (GSubprocess) process = start (argv, G_SUBPROCESS_FLAGS_STDOUT_PIPE, error);
  g_autofree char *text = NULL;
  g_auto (SpMachine) machine = { 0 };

  if (process == NULL || !wait_for (process, "gpus", error))
    return FALSE;
  g_autoptr (GBytes) bytes = g_input_stream_read_bytes (g_subprocess_get_stdout_pipe (process), 4096, NULL, error);
  if (bytes == NULL)
    return FALSE;
  text = g_strndup (g_bytes_get_data (bytes, NULL), g_bytes_get_size (bytes));
  if (!read_machine (text, &machine))
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s gpus: did not say how many of which card there are", measure);
  *ret = machine;
  machine.card = NULL;
  return TRUE;
}
