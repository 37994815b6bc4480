/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate CLUSTER, with a script for seqpar-measure that gives what two H200 gave: the chain of steps, going on
 * after one that died, and what is refused before or between them. */
#include "tests/cli-run.h"

/* What it was started with is in `calls`. For one GPU it leaves out what takes long to fit. DIE is the command, or the
 * program of an execution, that fails, with STATUS. */
static const char script[] = "#!/bin/sh\n"
                             "echo \"$@\" >> calls\n"
                             "command=$1; shift; program=; output=\n"
                             "while [ $# -gt 0 ]; do\n"
                             "  case $1 in\n"
                             "    -o) output=$2; shift 2 ;;\n"
                             "    --gpus) shift 2 ;;\n"
                             "    *) program=$(basename \"$1\"); shift ;;\n"
                             "  esac\n"
                             "done\n"
                             "if [ \"$DIE\" = \"$command\" ] || [ \"$DIE\" = \"$program\" ]; then\n"
                             "  printf 'repeat 1 of 5\\rseqpar-measure: rank 1: %s broke\\n' \"$command\" >&2\n"
                             "  exit ${STATUS:-1}\n"
                             "fi\n"
                             "[ \"$DIE\" = \"$command-killed\" ] && kill -9 $$\n"
                             "take () {\n"
                             "  if [ \"$GPUS\" = 2 ]; then cp \"$SEQPAR_DATA/$2\" \"$output\"; return; fi\n"
                             "  awk -F, \"/^#/ || /^op,/ || $1\" \"$SEQPAR_DATA/$2\" > \"$output\"\n"
                             "}\n"
                             "case $command in\n"
                             "  gpus) printf 'gpus: %s\\ncard: %s\\nnccl: %s\\n' \"$GPUS\" \"$CARD\" \"$NCCL\" ;;\n"
                             "  sweep) take '$4 == 1 && $1 != \"gemm\"' measured/h200x2.csv ;;\n"
                             "  kernels) take '$2 ~ /^norm/' measured/h200-kernels.csv ;;\n"
                             "  execute) { grep '^#\\|^program,' \"$SEQPAR_DATA/executed/h200x2.csv\"\n"
                             "    grep \"^$program,\" \"$SEQPAR_DATA/executed/h200x2.csv\"; } > \"$output\" ;;\n"
                             "esac\n";

#define OUTPUT "two.ini"
#define FOLDER "two.ini.measured"

static void
remove_measured (void)
{
  g_autofree char *path = g_build_filename (folder, FOLDER, NULL);
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);

  for (const char *name; dir != NULL && (name = g_dir_read_name (dir)) != NULL;) {
    g_autofree char *file = g_build_filename (path, name, NULL);
    g_remove (file);
  }
  g_rmdir (path);
}

static void
begin (void)
{
  g_autofree char *measure = g_build_filename (folder, "measure", NULL);
  g_autofree char *output = g_build_filename (folder, OUTPUT, NULL), *calls = g_build_filename (folder, "calls", NULL);

  write_file ("measure", script, -1);
  g_chmod (measure, 0755);
  g_setenv ("SEQPAR_MEASURE", measure, TRUE);
  g_setenv ("GPUS", "2", TRUE);
  g_setenv ("CARD", "NVIDIA H200", TRUE);
  g_setenv ("NCCL", "2.28.9", TRUE);
  g_setenv ("DIE", "nothing", TRUE);
  g_remove (output);
  g_remove (calls);
  remove_measured ();
}

/* How often it was started with what begins so; and forgets. */
static guint
count_calls (const char *start)
{
  g_autofree char *path = g_build_filename (folder, "calls", NULL), *text = NULL;
  guint n = 0;

  if (!g_file_get_contents (path, &text, NULL, NULL))
    return 0;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    n += g_str_has_prefix (lines[i], start);
  return n;
}

static void
forget_calls (void)
{
  write_file ("calls", "", 0);
}

static gboolean
is_without_gsl (const Run *run)
{
  if (run->status != 1 || strstr (run->err, "GSL") == NULL)
    return FALSE;
  g_test_skip ("built without GSL");
  return TRUE;
}

/* The 34 shipped runs on two GPUs: as seqpar calibrate fit and check by hand (test-cli-check.c). */
static void
test_chain (void)
{
  begin ();
  g_auto (Run) all = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT, "--tolerance", "20%");
  if (is_without_gsl (&all))
    return;
  g_assert_cmpint (all.status, ==, 0);
  g_assert_cmpstr (all.err, ==, "");
  g_assert_true (is_there (OUTPUT));
  assert_contains (all.out, "step time: median error");
  assert_contains (all.out, OUTPUT ": the profile of NVIDIA H200");
  g_assert_cmpuint (count_calls ("gpus"), ==, 1);
  g_assert_cmpuint (count_calls ("sweep --gpus 2 -o " FOLDER "/sweep.csv"), ==, 1);
  g_assert_cmpuint (count_calls ("kernels " FOLDER "/kernels-l1b"), ==, 1);
  g_assert_cmpuint (count_calls ("execute --gpus 1 "), ==, 4);
  g_assert_cmpuint (count_calls ("execute --gpus 2 "), ==, 30);

  g_auto (Run) by_hand =
      run_cli ("calibrate", "check", FOLDER "/profile.ini", FOLDER "/executed.csv", "--tolerance", "20%");
  g_assert_cmpint (by_hand.status, ==, 0);
  g_assert_true (g_str_has_prefix (all.out, by_hand.out));
}

/* One GPU of two: what one can give, and what lacks is said. Again: what is there is not executed again; a program that
 * changed is. */
static void
test_one (void)
{
  begin ();
  g_setenv ("GPUS", "1", TRUE);
  g_auto (Run) one = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT, "--tolerance", "100%");
  if (is_without_gsl (&one))
    return;
  g_assert_cmpint (one.status, ==, 0);
  assert_contains (one.out, "one GPU: transfers between GPUs were not measured");
  g_assert_cmpuint (count_calls ("execute --gpus 1 "), ==, 4);
  g_assert_cmpuint (count_calls ("execute "), ==, 4);

  /* Beyond the tolerance: status 3, and the profile is there all the same. */
  g_autofree char *output = g_build_filename (folder, OUTPUT, NULL);
  forget_calls ();
  g_remove (output);
  write_file (FOLDER "/s350m-2k-zero0.prog", "other", -1);
  g_auto (Run) again = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT, "--tolerance", "0.1%");
  g_assert_cmpint (again.status, ==, 3);
  g_assert_cmpstr (again.out, ==, one.out);
  assert_contains (again.err, "beyond the tolerance");
  g_assert_true (is_there (OUTPUT));
  g_assert_cmpuint (count_calls ("execute "), ==, 1);
}

/* Each step may die: no profile, its line, and what was measured stays. */
static void
test_dies (void)
{
  static const char *const steps[] = { "sweep", "kernels", "s350m-16k-recompute.prog" };

  begin ();
  g_setenv ("GPUS", "1", TRUE);
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++) {
    const char *command = i == 2 ? "execute" : steps[i];
    g_autofree char *line =
        g_strdup_printf ("seqpar-measure %s: rank 1: %s broke; what was measured is kept in", command, command);
    const char *const words[] = { line, FOLDER, "goes on", NULL };
    g_setenv ("DIE", steps[i], TRUE);
    g_setenv ("STATUS", i == 0 ? "2" : "1", TRUE); /* wrong usage fails as all else does */
    g_auto (Run) dead = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT);
    if (is_without_gsl (&dead))
      return;
    assert_refused (&dead, 1, words);
    g_assert_false (is_there (OUTPUT));
  }
  g_assert_true (is_there (FOLDER "/s1b-8k-recompute.csv"));
  g_assert_false (is_there (FOLDER "/s350m-16k-recompute.csv"));

  forget_calls ();
  g_setenv ("DIE", "nothing", TRUE);
  g_auto (Run) on = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT, "--tolerance", "100%");
  g_assert_cmpint (on.status, ==, 0);
  g_assert_cmpuint (count_calls ("execute "), ==, 2); /* that one, and the one after it */
  g_assert_true (is_there (OUTPUT));

  static const char *const killed_words[] = { "seqpar-measure sweep: ended by signal 9", NULL };
  begin ();
  g_setenv ("DIE", "sweep-killed", TRUE);
  g_auto (Run) killed = run_cli ("calibrate", "h200-1x2", "-o", OUTPUT);
  assert_refused (&killed, 1, killed_words);
}

static void
test_refused (void)
{
  static const char *const none[] = { "SEQPAR_MEASURE=nowhere", "no program", NULL };
  static const char *const no_gpu[] = { "seqpar-measure gpus: rank 1: gpus broke", NULL };
  static const char *const many[] = { "--gpus 3: this machine has 2", NULL };
  static const char *const nccl[] = { "--gpus 2", "without NCCL", "--gpus 1", NULL };
  static const char *const card[] = { "h200-1x2", "H200 SXM 141GB", "NVIDIA H100 80GB HBM3", NULL };
  static const char *const strange[] = { "no shipped device is of the card Voodoo 2", "--device", NULL };
  static const char *const place[] = { "/nowhere/p.ini: cannot be written: No such file or directory", NULL };
  static const char *const target[] = { "nowhere.ini", NULL };
  static const char *const node[] = { "h200-1x2.ini: a node of it has 2 GPUs, and 8", "--gpus 2", NULL };
  static const char *const part[] = { "l40s-1x8.ini: 4 GPUs of a node: only of one node with a switch", NULL };
  static const char *const range[] = { "--gpus takes a whole number from 1 to 1024", NULL };
  static const char *const percent[] = { "--tolerance takes a percentage", NULL };
  static const char *const device[] = { "nodevice", "shipped devices", NULL };
  static const char *const input[] = { "own.ini: cannot be written: it is a file that this reads", NULL };

  begin ();
  g_auto (Run) help = run_cli ("calibrate", "h200-1x2", "--help");
  g_assert_cmpint (help.status, ==, 0);
  assert_contains (help.out, "--dry-run");
  g_auto (Run) first = run_cli ("calibrate", "h200-1x2", "--gpus", "3");
  if (is_without_gsl (&first))
    return;
  assert_refused (&first, 1, many);
  g_auto (Run) lost = run_cli ("calibrate", "h200-1x2", "-o", "/nowhere/p.ini");
  assert_refused (&lost, 1, place);
  g_auto (Run) few = run_cli ("calibrate", "h200-1x2", "--dry-run", "--gpus", "8");
  assert_refused (&few, 1, node);
  g_auto (Run) pcie = run_cli ("calibrate", "l40s-1x8", "--dry-run", "--gpus", "4");
  assert_refused (&pcie, 1, part);
  g_auto (Run) zero = run_cli ("calibrate", "h200-1x2", "--gpus", "0");
  assert_refused (&zero, 2, range);
  /* Before anything is measured, whatever is wrong only with a later step. */
  g_auto (Run) tolerance = run_cli ("calibrate", "h200-1x2", "--tolerance", "five");
  assert_refused (&tolerance, 2, percent);
  g_auto (Run) card_file = run_cli ("calibrate", "h200-1x2", "--device", "nodevice");
  assert_refused (&card_file, 1, device);
  g_autofree char *shipped = g_build_filename (g_getenv ("SEQPAR_DATA"), "clusters", "h200-1x2.ini", NULL);
  g_autofree char *cluster = NULL;
  g_assert_true (g_file_get_contents (shipped, &cluster, NULL, NULL));
  g_auto (GStrv) halves = g_strsplit (cluster, "../devices", -1);
  g_autofree char *devices = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", NULL);
  g_autofree char *own = g_strjoinv (devices, halves);
  write_file ("own.ini", own, -1);
  g_auto (Run) over = run_cli ("calibrate", "./own.ini", "-o", "own.ini");
  assert_refused (&over, 1, input);
  g_assert_cmpuint (count_calls ("sweep"), ==, 0);
  g_setenv ("CARD", "NVIDIA H100 80GB HBM3", TRUE);
  g_auto (Run) other = run_cli ("calibrate", "h200-1x2");
  assert_refused (&other, 1, card);
  g_setenv ("CARD", "Voodoo 2", TRUE);
  g_auto (Run) unknown = run_cli ("calibrate", "h200-1x2");
  assert_refused (&unknown, 1, strange);
  g_setenv ("NCCL", "no", TRUE);
  g_auto (Run) without = run_cli ("calibrate", "h200-1x2", "--gpus", "2");
  assert_refused (&without, 1, nccl);
  g_setenv ("DIE", "gpus", TRUE);
  g_auto (Run) gpu = run_cli ("calibrate", "h200-1x2");
  assert_refused (&gpu, 1, no_gpu);
  g_auto (Run) nowhere = run_cli ("calibrate", "./nowhere.ini", "--dry-run", "--gpus", "2");
  assert_refused (&nowhere, 1, target);
  g_setenv ("SEQPAR_MEASURE", "nowhere", TRUE);
  g_auto (Run) program = run_cli ("calibrate", "h200-1x2");
  assert_refused (&program, 1, none);
  g_assert_false (is_there ("profile.ini"));
  g_assert_false (is_there ("profile.ini.measured"));
}

/* Of a scenario its own model, in each axis alone. A dry run writes and starts nothing. */
static void
test_dry (void)
{
  begin ();
  write_good ();
  g_auto (Run) dry = run_cli ("calibrate", "scenario.ini", "-o", OUTPUT, "--dry-run", "--gpus", "4");
  g_assert_cmpint (dry.status, ==, 0);
  assert_contains (dry.out, "/measure sweep --gpus 4 -o " FOLDER "/sweep.csv\n");
  assert_contains (dry.out,
                   "seqpar run " FOLDER "/ring-zero1-65536.ini --emit-program " FOLDER "/ring-zero1-65536.prog\n");
  assert_contains (dry.out, "/measure execute --gpus 4 " FOLDER "/pipeline-recompute-16384.prog -o ");
  assert_contains (dry.out, "/measure execute --gpus 1 " FOLDER "/plain-1-65536.prog -o ");
  assert_contains (dry.out, "\nseqpar calibrate check " FOLDER "/profile.ini " FOLDER "/executed.csv --tolerance 5%\n");
  g_assert_null (strstr (dry.out, "lasp"));
  g_assert_false (is_there (FOLDER));
  g_assert_cmpuint (count_calls (""), ==, 0);
  g_auto (Run) shipped = run_cli ("calibrate", "h200-1x8", "-o", OUTPUT, "--dry-run", "--gpus", "8");
  g_assert_cmpint (shipped.status, ==, 0);
  assert_contains (shipped.out, "execute --gpus 8 " FOLDER "/s350m-8k-data2-zero3-on-8.prog");
  /* A node that no part can be taken of, but one GPU. */
  g_auto (Run) pcie = run_cli ("calibrate", "l40s-1x8", "-o", OUTPUT, "--dry-run", "--gpus", "8");
  g_assert_cmpint (pcie.status, ==, 0);
  assert_contains (pcie.out, "execute --gpus 8 " FOLDER "/s350m-8k-data2-zero3-on-8.prog");
  assert_contains (pcie.out, "execute --gpus 1 " FOLDER "/s350m-2k-zero0.prog");
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/cli-calibrate/chain", test_chain);
  g_test_add_func ("/cli-calibrate/dies", test_dies);
  g_test_add_func ("/cli-calibrate/refused", test_refused);
  g_test_add_func ("/cli-calibrate/one", test_one);
  g_test_add_func ("/cli-calibrate/dry", test_dry);
  int status = g_test_run ();
  remove_measured ();
  remove_folder ();
  return status;
}
