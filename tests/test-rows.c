/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a measurement and the ranks that take it, where no GPU is. */
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "calibrate/ranks.h"
#include "calibrate/rows.h"
#include "calibrate/sweep.h"

static SpMeasuredRow
row_of (gint64 repeat, double time_s)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_ALL_GATHER);
  row.variant = "out-of-place", row.dtype = "bf16", row.beside = SP_MEASURED_GEMM;
  row.ranks = 2, row.nodes = 1, row.bytes = 4096, row.m = row.n = row.k = 64;
  row.repeat = repeat, row.time_s = time_s;
  return row;
}

static SpMeasured *
head_of (const char *card)
{
  SpMeasured *head = sp_measured_new ();
  sp_measured_say (head, "card", card);
  return head;
}

static void
test_resume (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) a = head_of ("A"), b = head_of ("B");
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *path = g_build_filename (folder, "a.csv", NULL);
  g_autoptr (SpRows) rows = sp_rows_open (path, a, &error);
  g_assert_no_error (error);
  SpMeasuredRow first = row_of (0, 1.25e-6), second = row_of (1, 1.5e-6);
  SpMeasuredRow memory = sp_measured_row (SP_MEASURED_MEMORY), other = memory;
  memory.bytes = 512 << 20, other.bytes = 513 << 20;
  g_assert_false (sp_rows_has (rows, &first));
  g_assert_true (sp_rows_add (rows, &first, &error));
  g_assert_true (sp_rows_add (rows, &memory, &error));
  g_autofree char *text = NULL;
  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  g_assert_nonnull (
      strstr (text, "\nall-gather,out-of-place,bf16,2,1,,,4096,64,64,64,,,,gemm,sample,0,1.25e-06,,,,,,,\n"));

  /* Cut short in the next row: the whole rows are done, the half one is not, and is gone. */
  g_autofree char *cut =
      g_strconcat (text, "all-gather,out-of-place,bf16,2,1,,,4096,64,64,64,,,,gemm,sample,1,1.", NULL);
  g_assert_true (g_file_set_contents (path, cut, -1, NULL));
  g_autoptr (SpRows) again = sp_rows_open (path, a, &error);
  g_assert_no_error (error);
  g_assert_true (sp_rows_has (again, &first));
  g_assert_true (sp_rows_has (again, &other));
  g_assert_false (sp_rows_has (again, &second));
  g_assert_cmpuint (sp_rows_count (again), ==, 2);
  g_autofree char *left = NULL;
  g_assert_true (g_file_get_contents (path, &left, NULL, NULL));
  g_assert_cmpstr (left, ==, text);

  /* What the card said of itself is no part of what was done. */
  SpMeasuredRow warm = first;
  warm.clock_hz = 1.5e9, warm.power_w = 700, warm.temperature_c = 60, warm.throttle = "sw-power-cap";
  g_assert_true (sp_rows_has (again, &warm));

  g_assert_null (sp_rows_open (path, b, &error));
  g_assert_nonnull (strstr (error->message, "a.csv: was measured on \"A\", this is \"B\""));
  g_remove (path);
  g_rmdir (folder);
}

static void
test_refused (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) a = head_of ("A");
  g_assert_null (sp_rows_open ("/nowhere/a.csv", a, &error));
  g_assert_nonnull (strstr (error->message, "/nowhere/a.csv: cannot write"));
  g_clear_error (&error);
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *path = g_build_filename (folder, "a.csv", NULL);
  g_autoptr (GFile) file = g_file_new_for_path (path);
  g_assert_true (g_file_make_symbolic_link (file, "/nowhere/b.csv", NULL, NULL));
  g_assert_null (sp_rows_open (path, a, &error));
  g_assert_nonnull (strstr (error->message, "cannot write"));
  g_clear_error (&error);
  g_remove (path);

  /* What is no measured CSV is refused and left as it was. */
  g_assert_true (g_file_set_contents (path, "a letter\nto nobody\n", -1, NULL));
  g_assert_null (sp_rows_open (path, a, &error));
  g_assert_error (error, SP_MEASURED_ERROR, SP_MEASURED_ERROR_SYNTAX);
  g_autofree char *left = NULL;
  g_assert_true (g_file_get_contents (path, &left, NULL, NULL));
  g_assert_cmpstr (left, ==, "a letter\nto nobody\n");
  g_clear_error (&error);

  /* So is one with fewer columns, in which rows of today would be none. */
  static const char old[] =
      "# seqpar-measured: 1\n# card: A\nop,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,"
      "statistic,repeat,time_s,bytes_per_s,mark,flops\n";
  g_assert_true (g_file_set_contents (path, old, -1, NULL));
  g_assert_null (sp_rows_open (path, a, &error));
  g_assert_nonnull (strstr (error->message, "a.csv: has the columns of an older seqpar-measure"));
  g_remove (path);
  g_rmdir (folder);
}

/* No room for more than 4 KiB of it: what is in it is kept, and goes on when there is. */
static void
test_full (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) a = head_of ("A");
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *path = g_build_filename (folder, "a.csv", NULL);
  SpRows *rows = sp_rows_open (path, a, &error);
  struct rlimit before, small;
  guint written = 0;

  g_assert_no_error (error);
  g_assert_cmpint (getrlimit (RLIMIT_FSIZE, &before), ==, 0);
  small = before;
  small.rlim_cur = 4096;
  signal (SIGXFSZ, SIG_IGN);
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &small), ==, 0);
  for (gboolean good = TRUE; good; written += good) {
    SpMeasuredRow row = row_of (written, 1e-6);
    good = sp_rows_add (rows, &row, &error);
    g_assert_cmpuint (written, <, 1000);
  }
  sp_rows_free (rows);
  g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &before), ==, 0);
  g_test_message ("%u rows, then: %s", written, error->message);
  g_assert_nonnull (strstr (error->message, "a.csv: cannot write: File too large; what is in it is kept"));
  g_clear_error (&error);

  g_assert_cmpuint (written, >, 10);
  g_autoptr (SpRows) again = sp_rows_open (path, a, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (sp_rows_count (again), ==, written);
  SpMeasuredRow next = row_of (written, 1e-6);
  g_assert_true (sp_rows_add (again, &next, &error));
  g_assert_null (sp_rows_open ("/dev/full", a, &error));
  g_assert_nonnull (strstr (error->message, "/dev/full: cannot be written: not a regular file"));
  g_remove (path);
  g_rmdir (folder);
}

static gboolean
gather (SpRank *rank, gpointer data, GError **error)
{
  for (int turn = 0; turn < 1000; turn++) {
    double mine = rank->rank * 1000 + turn, all[4] = { 0 };
    if (!sp_ranks_gather (rank, &mine, sizeof mine, all, error))
      return FALSE;
    for (int i = 0; i < 4; i++)
      g_assert_cmpfloat (all[i], ==, i * 1000 + turn);
    if (turn == 900 && data != NULL && rank->rank == 2) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED, "the test ended it");
      return FALSE;
    }
  }
  return TRUE;
}

static const SpRanksOptions four = { "test", "kept", SP_LAUNCHERS, 4, 60 }, hasty = { "test", "kept", 0, 1, 1 },
                            launched = { "test", "kept", SP_LAUNCHERS, 1, 1 };

static void
test_threads (void)
{
  g_autoptr (GError) error = NULL;
  g_assert_true (sp_ranks_run (&four, gather, NULL, &error));
  g_assert_false (sp_ranks_run (&four, gather, (gpointer) "dies", &error));
  g_assert_cmpstr (error->message, ==, "rank 2: the test ended it");
}

/* One of two processes, which is killed in the middle of it. */
static gboolean
gather_until_killed (SpRank *rank, gpointer data, GError **error)
{
  for (int turn = 0; turn < 1000; turn++) {
    double mine = turn, all[2];
    if (turn == 500 && rank->rank == 1)
      raise (SIGKILL);
    if (!sp_ranks_gather (rank, &mine, sizeof mine, all, error))
      return FALSE;
  }
  return TRUE;
}

static int
be_rank (void)
{
  g_autoptr (GError) error = NULL;

  if (sp_ranks_run (&four, gather_until_killed, NULL, &error))
    return 0;
  g_printerr ("%s\n", error->message);
  return 1;
}

static GSubprocess *
start_rank (const char *number, const char *port)
{
  g_autoptr (GSubprocessLauncher) launcher = g_subprocess_launcher_new (G_SUBPROCESS_FLAGS_STDERR_PIPE);
  g_autoptr (GError) error = NULL;

  g_subprocess_launcher_setenv (launcher, "RANK", number, TRUE);
  g_subprocess_launcher_setenv (launcher, "LOCAL_RANK", number, TRUE);
  g_subprocess_launcher_setenv (launcher, "WORLD_SIZE", "2", TRUE);
  g_subprocess_launcher_setenv (launcher, "MASTER_ADDR", "127.0.0.1", TRUE);
  g_subprocess_launcher_setenv (launcher, "MASTER_PORT", port, TRUE);
  GSubprocess *process = g_subprocess_launcher_spawn (launcher, &error, "/proc/self/exe", "rank", NULL);
  g_assert_no_error (error);
  return process;
}

static void
test_killed (void)
{
  g_autofree char *port = g_strdup_printf ("%d", g_test_rand_int_range (20000, 30000)), *said = NULL;
  g_autoptr (GSubprocess) first = start_rank ("0", port), second = start_rank ("1", port);

  g_assert_true (g_subprocess_communicate_utf8 (first, NULL, NULL, NULL, &said, NULL));
  g_assert_true (g_subprocess_wait (second, NULL, NULL));
  g_test_message ("%s", said);
  g_assert_cmpint (g_subprocess_get_exit_status (first), ==, 1);
  g_assert_true (g_subprocess_get_if_signaled (second));
  g_assert_nonnull (strstr (said, "rank 1 ended or is out of reach"));
  g_assert_true (strchr (said, '\n') == said + strlen (said) - 1);
}

static gboolean
sleep_on (SpRank *rank, gpointer data, GError **error)
{
  g_usleep (60 * G_USEC_PER_SEC);
  return TRUE;
}

/* One that makes no progress is ended, in the name of its program. */
static void
test_stuck (void)
{
  if (g_test_subprocess ()) {
    sp_ranks_run (&hasty, sleep_on, NULL, NULL);
    return;
  }
  g_test_trap_subprocess (NULL, 0, 0);
  g_test_trap_assert_failed ();
  g_test_trap_assert_stderr ("test: no progress for 1 s; kept\n");
}

/* A rank whose others do not call says for whom it waits, and why it takes there to be any. */
static void
test_uncalled (void)
{
  if (g_test_subprocess ()) {
    g_autofree char *port = g_strdup_printf ("%d", g_random_int_range (20000, 30000));
    g_setenv ("RANK", "0", TRUE);
    g_setenv ("LOCAL_RANK", "0", TRUE);
    g_setenv ("WORLD_SIZE", "3", TRUE);
    g_setenv ("MASTER_PORT", port, TRUE);
    sp_ranks_run (&launched, sleep_on, NULL, NULL);
    return;
  }
  g_test_trap_subprocess (NULL, 0, 0);
  g_test_trap_assert_failed ();
  g_test_trap_assert_stderr ("test: no progress for 1 s, waiting for 2 of 3 ranks to call at port *, which WORLD_SIZE "
                             "says there are; *; kept\n");
}

static void
set_variables (const char *const (*variables)[2], gboolean sets)
{
  for (guint i = 0; variables[i][0] != NULL; i++)
    if (sets)
      g_setenv (variables[i][0], variables[i][1], TRUE);
    else
      g_unsetenv (variables[i][0]);
}

/* What is left of a launcher's variables makes nobody a rank. */
static void
test_alone (void)
{
  static const char *const variables[][2] = {
    { "RANK", "1" }, { "WORLD_SIZE", "2" }, { "LOCAL_RANK", "1" }, { "SLURM_PROCID", "3" }, { NULL }
  };

  set_variables (variables, TRUE);
  g_auto (GStrv) alone = sp_ranks_environment_alone ();
  set_variables (variables, FALSE);
  g_assert_null (g_environ_getenv (alone, "RANK"));
  g_assert_null (g_environ_getenv (alone, "SLURM_PROCID"));
  g_assert_cmpstr (g_environ_getenv (alone, "PATH"), ==, g_getenv ("PATH"));
}

/* Which variables make a process a rank, of the launchers that are asked for. */
static void
test_launchers (void)
{
  static const struct {
    const char *variables[7][2];
    guint launchers;
    int rank, size; /* size 0: of no launcher; -1: refused */
  } rows[] = {
    { { { "RANK", "1" }, { "WORLD_SIZE", "2" }, { "LOCAL_RANK", "1" } }, SP_LAUNCHERS, 1, 2 },
    { { { "RANK", "1" }, { "WORLD_SIZE", "2" }, { "LOCAL_RANK", "1" } }, SP_LAUNCHER_MPIRUN, 0, 0 },
    { { { "RANK", "1" } }, SP_LAUNCHERS, 0, 0 },
    { { { "RANK", "2" }, { "WORLD_SIZE", "2" }, { "LOCAL_RANK", "0" } }, SP_LAUNCHERS, 0, -1 },
    { { { "SLURM_PROCID", "0" }, { "SLURM_NTASKS", "8" }, { "SLURM_LOCALID", "0" } }, SP_LAUNCHERS, 0, 0 },
    { { { "SLURM_PROCID", "3" }, { "SLURM_STEP_NUM_TASKS", "8" }, { "SLURM_LOCALID", "1" } }, SP_LAUNCHERS, 3, 8 },
    { { { "SLURM_PROCID", "3" }, { "SLURM_STEP_NUM_TASKS", "8" } }, SP_LAUNCHER_MPIRUN, 0, 0 },
    { { { "RANK", "0" },
        { "WORLD_SIZE", "9" },
        { "LOCAL_RANK", "0" },
        { "OMPI_COMM_WORLD_RANK", "2" },
        { "OMPI_COMM_WORLD_SIZE", "3" },
        { "OMPI_COMM_WORLD_LOCAL_RANK", "2" } },
      SP_LAUNCHER_MPIRUN,
      2,
      3 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autoptr (GError) error = NULL;
    int rank = 0, size = 0, local_rank = 0;
    set_variables (rows[i].variables, TRUE);
    gboolean launched = sp_ranks_launched (rows[i].launchers, &rank, &size, &local_rank, &error);
    set_variables (rows[i].variables, FALSE);
    g_assert_true (launched == (rows[i].size > 0));
    g_assert_true ((error != NULL) == (rows[i].size < 0));
    g_assert_cmpint (size, ==, MAX (rows[i].size, 0));
    if (launched)
      g_assert_cmpint (rank, ==, rows[i].rank);
  }
}

/* --- the points of a sweep ---------------------------------------------------------------------------------------- */

typedef struct {
  guint alone, in_place, groups, beside_gemm, beside_copy, gemms, copies; /* the last two beside transfers */
} Counts;

static Counts
count_of (const GArray *points, gint64 ranks)
{
  Counts c = { 0 };

  for (guint i = 0; i < points->len; i++) {
    const SpMeasuredRow *row = &g_array_index (points, SpMeasuredRow, i);
    gboolean transfer = row->op >= SP_MEASURED_ONE_WAY && row->op <= SP_MEASURED_BROADCAST;
    if (row->ranks != ranks)
      continue;
    c.alone += transfer && row->beside == SP_MEASURED_NONE && g_str_equal (row->variant, "out-of-place");
    c.in_place += row->op == SP_MEASURED_ALL_REDUCE && g_str_equal (row->variant, "in-place");
    c.groups += transfer && g_str_has_prefix (row->variant, "groups-");
    c.beside_gemm += transfer && row->beside == SP_MEASURED_GEMM;
    c.beside_copy += transfer && row->beside == SP_MEASURED_COPY;
    c.gemms += row->op == SP_MEASURED_GEMM && row->beside != SP_MEASURED_NONE;
    c.copies += row->op == SP_MEASURED_COPY && row->beside != SP_MEASURED_NONE;
  }
  return c;
}

/* Four GPUs, 1 KiB to 1 GiB: 21 sizes of six operations for groups of two and of four, and of one that
 * ends where it begins; both pairs at once in 8 sizes; no two points are the same to a file that is resumed. */
static void
test_points (void)
{
  g_autoptr (SpMeasured) shapes = sp_measured_new (), head = head_of ("A");
  const SpSweep sweep = { .kinds = SP_SWEEP_GEMM | SP_SWEEP_COPY | SP_SWEEP_NCCL | SP_SWEEP_LAUNCH,
                          .repeats = 1,
                          .min_bytes = 1 << 10,
                          .max_bytes = 1 << 30,
                          .nccl = TRUE,
                          .shapes = shapes };
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *path = g_build_filename (folder, "a.csv", NULL);
  g_autoptr (GError) error = NULL;
  g_assert_true (sp_sweep_read_shapes ((SpSweep *) &sweep, "shapes", NULL, &error));
  g_autoptr (GArray) points = sp_sweep_points (&sweep, 4, 1);
  for (gint64 ranks = 2; ranks <= 4; ranks += 2) {
    Counts c = count_of (points, ranks);
    g_assert_cmpuint (c.alone, ==, 6 * 21);
    g_assert_cmpuint (c.in_place, ==, 21);
    g_assert_cmpuint (c.groups, ==, ranks == 2 ? 6 * 8 : 0);
    g_assert_cmpuint (c.beside_gemm, ==, 6 * 21);
    g_assert_cmpuint (c.beside_copy, ==, 6 * 21);
    g_assert_cmpuint (c.gemms, ==, 6 * 4);
    g_assert_cmpuint (c.copies, ==, 6 * 4);
  }
  g_autoptr (SpRows) rows = sp_rows_open (path, head, &error);
  g_assert_no_error (error);
  for (guint i = 0; i < points->len; i++) {
    SpMeasuredRow row = g_array_index (points, SpMeasuredRow, i);
    row.repeat = 0, row.time_s = 1;
    g_assert_false (sp_rows_has (rows, &row));
    g_assert_true (sp_rows_add (rows, &row, &error));
    g_assert_cmpint (row.op == SP_MEASURED_GEMM ? 0 : row.bytes, <=, (gint64) sp_sweep_buffer_bytes (&sweep));
  }
  g_autoptr (GArray) several = sp_sweep_points (&sweep, 16, 2); /* nodes: all ranks alone */
  g_assert_cmpuint (count_of (several, 16).alone, ==, 6 * 21);
  g_assert_cmpuint (count_of (several, 8).alone, ==, 0);
  g_unlink (path);
  g_rmdir (folder);
}

int
main (int argc, char **argv)
{
  if (argc == 2 && g_str_equal (argv[1], "rank"))
    return be_rank ();
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/rows/resume", test_resume);
  g_test_add_func ("/rows/refused", test_refused);
  g_test_add_func ("/rows/full", test_full);
  g_test_add_func ("/ranks/launchers", test_launchers); /* before there are threads: it sets variables */
  g_test_add_func ("/ranks/killed", test_killed);
  g_test_add_func ("/ranks/threads", test_threads);
  g_test_add_func ("/ranks/stuck", test_stuck);
  g_test_add_func ("/ranks/uncalled", test_uncalled);
  g_test_add_func ("/ranks/alone", test_alone);
  g_test_add_func ("/rows/points", test_points);
  return g_test_run ();
}
