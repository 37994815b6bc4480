/* SPDX-License-Identifier: Apache-2.0 */
/* plan and sweep on several processes: the bytes of one, said once; and what goes wrong. With Open MPI's variables set
 * here, and once more by mpirun where there is one. */
#include <gio/gio.h>

#include "tests/cli-run.h"

#define RANKS 3

/* A port that nobody listens at. */
static guint16
free_port (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GSocketListener) listener = g_socket_listener_new ();
  guint16 port = g_socket_listener_add_any_inet_port (listener, NULL, &error);

  g_assert_no_error (error);
  g_socket_listener_close (listener);
  return port;
}

static GSubprocess *
start_rank (guint rank, guint16 port, const char *const *args)
{
  g_autoptr (GSubprocessLauncher) launcher =
      g_subprocess_launcher_new (G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE);
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *number = g_strdup_printf ("%u", rank), *at = g_strdup_printf ("%u", port);

  g_subprocess_launcher_set_cwd (launcher, folder);
  g_subprocess_launcher_setenv (launcher, "OMPI_COMM_WORLD_RANK", number, TRUE);
  g_subprocess_launcher_setenv (launcher, "OMPI_COMM_WORLD_LOCAL_RANK", number, TRUE);
  g_subprocess_launcher_setenv (launcher, "OMPI_COMM_WORLD_SIZE", G_STRINGIFY (RANKS), TRUE);
  g_subprocess_launcher_setenv (launcher, "OMPI_COMM_WORLD_LOCAL_SIZE", G_STRINGIFY (RANKS), TRUE);
  g_subprocess_launcher_setenv (launcher, "MASTER_PORT", at, TRUE);
  g_ptr_array_add (argv, (gpointer) g_getenv ("SEQPAR_BIN"));
  for (guint i = 0; args[i] != NULL; i++)
    g_ptr_array_add (argv, (gpointer) args[i]);
  g_ptr_array_add (argv, NULL);
  GSubprocess *process = g_subprocess_launcher_spawnv (launcher, (const char *const *) argv->pdata, &error);
  g_assert_no_error (error);
  return process;
}

static Run
end_rank (GSubprocess *process)
{
  g_autoptr (GError) error = NULL;
  Run run = { 0 };

  g_subprocess_communicate_utf8 (process, NULL, NULL, &run.out, &run.err, &error);
  g_assert_no_error (error);
  run.status = g_subprocess_get_if_exited (process) ? g_subprocess_get_exit_status (process) : -1;
  g_object_unref (process);
  return run;
}

/* What rank 0 says; the others have to be silent and content. */
static Run
run_ranks (const char *const *args)
{
  GSubprocess *processes[RANKS];
  guint16 port = free_port ();

  for (guint i = 0; i < RANKS; i++)
    processes[i] = start_rank (i, port, args);
  for (guint i = 1; i < RANKS; i++) {
    g_auto (Run) other = end_rank (processes[i]);
    g_assert_cmpstr (other.out, ==, "");
    g_assert_cmpstr (other.err, ==, "");
    g_assert_cmpint (other.status, ==, 0);
  }
  return end_rank (processes[0]);
}

/* --- the same bytes ----------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  const char *args[16];
} commands[] = {
  { "plan",
    { "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--global-batch", "4", "--sequence", "16K" } },
  { "whole",
    { "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--global-batch", "4", "--sequence", "16K", "--space",
      "whole", "--json" } },
  { "question",
    { "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--global-batch", "4", "--sequence", "16K",
      "--min-gpus" } },
  { "export",
    { "plan", "--model", "model.ini", "--cluster", "cluster.ini", "--global-batch", "4", "--sequence", "16K",
      "--export", "megatron" } },
  { "8b",
    { "plan", "--model", "llama-3.1-8b", "--cluster", "a800-2x8", "--global-batch", "1", "--sequence", "208K",
      "--space", "whole" } },
  { "sweep", { "sweep", "scenario.ini", "--sweep", "sequence=1K..96K+1K" } },
};

static void
test_same (gconstpointer data)
{
  const char *const *args = data;

  write_good ();
  g_auto (Run) alone = run_args (args);
  g_auto (Run) ranks = run_ranks (args);
  g_assert_cmpint (alone.status, ==, 0);
  g_assert_cmpint (ranks.status, ==, 0);
  g_assert_cmpstr (alone.out, ==, ranks.out);
  g_assert_cmpstr (alone.err, ==, ranks.err);
}

static char *
contents (const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  g_autoptr (GError) error = NULL;
  char *text;

  g_file_get_contents (path, &text, NULL, &error);
  g_assert_no_error (error);
  return text;
}

/* A file that was cut short in a row goes on there, on any number of ranks. */
static void
test_resumed (void)
{
  static const char *const alone[] = { "sweep", "scenario.ini", "--sweep", "sequence=1K..96K+1K",
                                       "--csv", "alone.csv",    NULL };
  static const char *const ranks[] = { "sweep", "scenario.ini", "--sweep", "sequence=1K..96K+1K",
                                       "--csv", "ranks.csv",    NULL };
  g_autofree char *path = g_build_filename (folder, "ranks.csv", NULL);
  g_autoptr (GError) error = NULL;

  write_good ();
  g_auto (Run) one = run_args (alone);
  g_assert_cmpint (one.status, ==, 0);
  g_autofree char *whole = contents ("alone.csv");
  for (guint part = 0; part < 3; part++) {
    g_file_set_contents (path, whole, (gssize) (strlen (whole) * part / 3), &error);
    g_assert_no_error (error);
    g_auto (Run) run = run_ranks (ranks);
    g_assert_cmpint (run.status, ==, 0);
    g_autofree char *made = contents ("ranks.csv");
    g_assert_cmpstr (made, ==, whole);
  }
}

/* A lone command in a script that has variables of other launchers, or a part of mpirun's, waits for nobody; and mpirun's
 * ranks go by mpirun's. */
static void
test_others (void)
{
  static const char *const args[] = { "sweep", "scenario.ini", "--sweep", "sequence=1K,2K,3K", NULL };
  static const char *const variables[][2] = {
    { "RANK", "0" },         { "WORLD_SIZE", "2" },    { "LOCAL_RANK", "0" },           { "SLURM_PROCID", "0" },
    { "SLURM_NTASKS", "2" }, { "SLURM_LOCALID", "0" }, { "SLURM_STEP_NUM_TASKS", "2" }, { "OMPI_COMM_WORLD_SIZE", "2" },
  };

  write_good ();
  g_auto (Run) plain = run_args (args);
  for (guint i = 0; i < G_N_ELEMENTS (variables); i++)
    g_setenv (variables[i][0], variables[i][1], TRUE);
  g_auto (Run) alone = run_args (args);
  g_auto (Run) ranks = run_ranks (args);
  for (guint i = 0; i < G_N_ELEMENTS (variables); i++)
    g_unsetenv (variables[i][0]);
  g_assert_cmpint (plain.status, ==, 0);
  g_assert_cmpint (alone.status, ==, 0);
  g_assert_cmpint (ranks.status, ==, 0);
  g_assert_cmpstr (alone.out, ==, plain.out);
  g_assert_cmpstr (ranks.out, ==, plain.out);
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

static void
test_usage (void)
{
  static const char *const args[] = { "plan", "--modl", "x", NULL }, *const words[] = { "--modl", NULL };
  g_auto (Run) run = run_ranks (args);

  assert_refused (&run, 2, words);
}

static void
test_input (void)
{
  static const char *const args[] = { "sweep", "no-such.ini", "--sweep", "sequence=1K,2K", NULL };
  static const char *const words[] = { "no-such", NULL };
  g_auto (Run) run = run_ranks (args);

  assert_refused (&run, 1, words);
}

/* One rank has another file than the others: its error ends them, and rank 0 says whose it was. */
static void
test_one_fails (void)
{
  static const char *const good[] = { "plan",           "--model", "model.ini",  "--cluster", "cluster.ini",
                                      "--global-batch", "4",       "--sequence", "16K",       NULL };
  static const char *const bad[] = { "plan",           "--model", "no-such.ini", "--cluster", "cluster.ini",
                                     "--global-batch", "4",       "--sequence",  "16K",       NULL };
  static const char *const words[] = { "rank 2: ", "no-such.ini", NULL };
  GSubprocess *processes[RANKS];
  guint16 port = free_port ();

  write_good ();
  for (guint i = 0; i < RANKS; i++)
    processes[i] = start_rank (i, port, i == 2 ? bad : good);
  for (guint i = 1; i < RANKS; i++) {
    g_auto (Run) other = end_rank (processes[i]);
    g_assert_cmpstr (other.out, ==, "");
    g_assert_cmpstr (other.err, ==, "");
  }
  g_auto (Run) first = end_rank (processes[0]);
  assert_refused (&first, 1, words);
}

/* --- mpirun ------------------------------------------------------------------------------------------------------- */

/* One line and the result; root, and fewer cores than ranks, are allowed by its variables. */
static void
test_mpirun (void)
{
  static const char *const args[] = { "plan",           "--model", "model.ini",  "--cluster", "cluster.ini",
                                      "--global-batch", "4",       "--sequence", "16K",       NULL };
  g_autofree char *mpirun = g_find_program_in_path ("mpirun"), *port = g_strdup_printf ("%u", free_port ());
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();
  g_autoptr (GError) error = NULL;
  int status;

  if (mpirun == NULL) {
    g_test_skip ("no mpirun");
    return;
  }
  write_good ();
  g_setenv ("OMPI_ALLOW_RUN_AS_ROOT", "1", TRUE);
  g_setenv ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", TRUE);
  g_setenv ("OMPI_MCA_rmaps_base_oversubscribe", "1", TRUE);
  g_setenv ("MASTER_PORT", port, TRUE);
  const char *const start[] = { mpirun, "-n", G_STRINGIFY (RANKS), g_getenv ("SEQPAR_BIN") };
  for (guint i = 0; i < G_N_ELEMENTS (start); i++)
    g_ptr_array_add (argv, (gpointer) start[i]);
  for (guint i = 0; i < G_N_ELEMENTS (args); i++)
    g_ptr_array_add (argv, (gpointer) args[i]);
  g_auto (Run) alone = run_args (args);
  g_auto (Run) ranks = { 0 };
  g_spawn_sync (folder, (char **) argv->pdata, NULL, G_SPAWN_DEFAULT, NULL, NULL, &ranks.out, &ranks.err, &status,
                &error);
  g_unsetenv ("MASTER_PORT");
  g_assert_no_error (error);
  if (strstr (ranks.out, "layout") == NULL && strstr (ranks.err, "seqpar") == NULL) {
    g_test_skip ("mpirun starts nothing here, or is not Open MPI's");
    return;
  }
  g_test_message ("%s", ranks.err);
  g_assert_true (WIFEXITED (status) && WEXITSTATUS (status) == 0);
  g_assert_cmpstr (ranks.out, ==, alone.out);
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++) {
    g_autofree char *path = g_strdup_printf ("/ranks/same/%s", commands[i].name);
    g_test_add_data_func (path, commands[i].args, test_same);
  }
  g_test_add_func ("/ranks/resumed", test_resumed);
  g_test_add_func ("/ranks/others", test_others);
  g_test_add_func ("/ranks/usage", test_usage);
  g_test_add_func ("/ranks/input", test_input);
  g_test_add_func ("/ranks/one-fails", test_one_fails);
  g_test_add_func ("/ranks/mpirun", test_mpirun);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
