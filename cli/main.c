/* SPDX-License-Identifier: Apache-2.0 */
/* The table of subcommands, the exit status, and the one place that writes to stdout. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/version.h"
#include "models/inputs/ini.h"

/* clang-format off */
G_DEFINE_QUARK (sp-cli-error-quark, sp_cli_error)
/* clang-format on */

typedef struct {
  const char *name;
  SpCommandFunc run;
  const char *summary;
  gboolean has_parts; /* of which help can be asked */
} Command;

static const Command commands[] = {
  { "run", sp_command_run, "what one scenario costs: memory, bytes on links, step time, tokens/s, MFU" },
  { "plan", sp_command_plan, "the layouts that fit a model on a cluster, best first" },
  { "sweep", sp_command_sweep, "a scenario with some of its keys at many values, as a CSV" },
  { "plot", sp_command_plot, "a figure of a sweep or a scenario, drawn by gnuplot" },
  { "report", sp_command_report, "a scenario in one page of HTML: layouts, time, memory, what it rests on" },
  { "explain", sp_command_explain, "a scenario or run file beside the best layout, term by term; what makes it fit" },
  { "import", sp_command_import,
    "a run file of Megatron-LM, DeepSpeed, torchtitan, ms-swift, LLaMA-Factory, verl ... as a scenario" },
  { "export", sp_command_export,
    "a scenario as a run file of Megatron-LM, DeepSpeed, torchtitan, ms-swift, LLaMA-Factory, verl ..." },
  { "validate", sp_command_validate, "how right it is: runs that others measured, and what is predicted of them" },
  { "calibrate", sp_command_calibrate, "measurements: import them, fit curves to them, check predictions against runs",
    TRUE },
  { "show", sp_command_show, "a model, cluster, device, framework, scenario; strategies and legal degrees" },
};

static const Command *
find_command (const char *name, GError **error)
{
  const char *names[G_N_ELEMENTS (commands) + 2] = { NULL };
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    names[i] = commands[i].name;
    if (g_str_equal (name, names[i]))
      return &commands[i];
  }
  names[G_N_ELEMENTS (commands)] = "help";
  g_autofree char *near = sp_did_you_mean (name, names);
  g_autofree char *shown = sp_shown (name);
  sp_cli_fail (error, SP_CLI_ERROR_USAGE, "\"%s\" is no command%s (see seqpar --help)", shown, near);
  return NULL;
}

static gboolean
run_command (const Command *command, char **args, GString *out, GError **error)
{
  g_autofree char *program = g_strconcat ("seqpar ", command->name, NULL);
  g_set_prgname (program);
  return command->run (args, out, error);
}

/* A part of the command, if it has any, and nothing else. */
static gboolean
check_help (const Command *command, char **names, GError **error)
{
  guint most = command->has_parts ? 2 : 1;

  if (g_strv_length (names) <= most)
    return TRUE;
  g_autofree char *shown = sp_shown (names[most]);
  return sp_cli_fail (error, SP_CLI_ERROR_USAGE, "help: \"%s\" is one argument too many (see seqpar help %s)", shown,
                      command->name);
}

static gboolean
help (char **names, GString *out, GError **error)
{
  if (names[0] != NULL) {
    const Command *command = find_command (names[0], error);
    char *all = (char *) "--help";
    char *args[] = { names[0], names[1] != NULL ? names[1] : all, names[1] != NULL ? all : NULL, NULL };
    return command != NULL && check_help (command, names, error) && run_command (command, args, out, error);
  }
  g_string_append (out, "seqpar predicts, before a run, what a parallel layout of a large sequence model costs.\n\n"
                        "usage: seqpar COMMAND ...\n\n");
  g_autoptr (SpTable) table = sp_table_new ("ll");
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    sp_table_cell (table, commands[i].name);
    sp_table_cell (table, commands[i].summary);
  }
  sp_table_print (table, 2, out);
  g_string_append (out,
                   "\nseqpar help COMMAND: its options. seqpar --version. The result is on stdout, alone. Exit "
                   "status: 0, also for a\nlayout that does not fit; 1 for input that is wrong or impossible; 2 for "
                   "wrong usage; 3 beyond a tolerance or bound that one asked for; 70 for a failure of seqpar itself.\n");
  return TRUE;
}

static gboolean
dispatch (char **args, GString *out, GError **error)
{
  const char *name = args[0];
  if (name == NULL)
    return sp_cli_fail (error, SP_CLI_ERROR_USAGE, "no command given (see seqpar --help)");
  if (g_str_equal (name, "--help") || g_str_equal (name, "-h") || g_str_equal (name, "help"))
    return help (args + 1, out, error);
  if (g_str_equal (name, "--version")) {
    if (args[1] != NULL)
      return sp_cli_fail (error, SP_CLI_ERROR_USAGE, "--version: \"%s\" is one argument too many (see seqpar --help)",
                          args[1]);
    g_string_append (out, "seqpar " SEQPAR_VERSION "\n");
    return TRUE;
  }
  const Command *command = find_command (name, error);
  return command != NULL && run_command (command, args, out, error);
}

/* A descriptor that was closed at the start would be given to the first file that is opened. */
static void
fill_descriptors (void)
{
  for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
    if (fcntl (i, F_GETFD) == -1 && open ("/dev/null", i == STDERR_FILENO ? O_WRONLY : O_RDONLY) == -1)
      _exit (70);
}

static gboolean
write_stdout (const GString *out, GError **error)
{
  errno = 0;
  gboolean written = fwrite (out->str, 1, out->len, stdout) == out->len;
  written = fflush (stdout) == 0 && written;
  return written || sp_cli_fail (error, SP_CLI_ERROR_INPUT, "stdout: cannot be written: %s",
                                 g_strerror (errno != 0 ? errno : EIO));
}

/* One line, whatever stands in a file's name; a simulation that stopped names one rank a line. */
static int
report (const GError *error)
{
  if (error->domain == SP_ENGINE_ERROR) {
    fprintf (stderr, "seqpar: %s\n", error->message);
    return 70;
  }
  g_autofree char *message = g_strdelimit (g_strdup (error->message), "\n\r\t\033", ' ');
  if (message[0] != '\0') /* else another rank says it: cli/ranks.h */
    fprintf (stderr, "seqpar: %s\n", message);
  if (error->domain == G_OPTION_ERROR || g_error_matches (error, SP_CLI_ERROR, SP_CLI_ERROR_USAGE))
    return 2;
  if (g_error_matches (error, SP_CLI_ERROR, SP_CLI_ERROR_BEYOND))
    return 3;
  return g_error_matches (error, SP_CLI_ERROR, SP_CLI_ERROR_INTERNAL) ? 70 : 1;
}

int
main (int argc, char **argv)
{
  fill_descriptors ();
  signal (SIGPIPE, SIG_IGN); /* a reader that is gone is an error like a full disk */
  g_autoptr (GString) out = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GError) write_error = NULL;
  int status = 0;
  if (!dispatch (argc > 0 ? argv + 1 : argv, out, &error))
    status = report (error);
  if (out->len > 0 && !write_stdout (out, &write_error))
    status = report (write_error);
  return status;
}
