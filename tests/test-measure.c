/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar-measure where it has nothing to measure: one line on stderr, no file, and an exit status that tells wrong usage (2)
 * from what is not there (1). */
#include <glib/gstdio.h>
#include <string.h>

typedef struct {
  const char *args, *word;
} Wrong;

static const Wrong wrong[] = {
  { "", "usage" },
  { "swep -o OUT", "usage" },
  { "--gpus=1 -o OUT bench norm", "the command comes first: seqpar-measure bench --gpus=1" },
  { "sweep", "-o FILE" },
  { "sweep -o OUT gemm", "gemm: sweep takes options alone" },
  { "sweep -o OUT --what gem", "--what gem" },
  { "sweep -o OUT --force ring/fast", "ring/ or tree/" },
  { "sweep -o OUT --min-bytes 1X", "--min-bytes 1X" },
  { "sweep -o OUT --min-bytes 2G --max-bytes 1G", "above --max-bytes" },
  { "sweep -o OUT --repeats 0", "--repeats" },
  { "execute -o OUT", "a program was expected" },
  { "execute -o OUT --steps 0 step.prog", "--steps" },
  { "kernels step.prog", "-o FILE" },
  { "kernels --card -2 -o OUT step.prog", "--card 0 or more" },
  { "kernels --attention flash -o OUT step.prog", "--attention flash: quickest, seqpar or cudnn" },
  { "execute --attention cuDNN -o OUT step.prog", "--attention cuDNN: quickest, seqpar or cudnn" },
  { "bench -o OUT norn", "the nearest is norm" },
  { "bench -o OUT --repeats 0", "--repeats" },
  { "bench -o OUT --list norn", "--list has all" },
  { "gpus all", "all: gpus takes options alone" },
  { "bench --reps 3 -o OUT", "Unknown option --reps" },
  { "sweep -o OUT --repeats 1x", "1x" },
  { "sweep -o OUT --what h\xc3\xb6pfe", "ASCII" },
  { "sweep -o -", "-o -: the name of a CSV" },
  { "kernels --beside broadcast -o OUT step.prog", "--beside broadcast: one-way, send-receive" },
};

/* Right words, of files that are not there. */
static const Wrong lacking[] = {
  { "sweep -o OUT --shapes OUT.shapes", ".shapes" },
  { "kernels -o OUT OUT.prog", ".prog" },
};

/* Of more GPUs than a machine has. */
static const Wrong many = { "sweep -o OUT --what launch --gpus 9999", "--gpus 9999: this machine has" };

static int
run (const char *args, const char *out, char **ret_stderr)
{
  g_autofree char *with_out = NULL;
  g_auto (GStrv) words = g_strsplit (args, "OUT", -1);
  g_autoptr (GError) error = NULL;
  int status = 0;

  with_out = g_strjoinv (out, words);
  g_autofree char *line = g_strconcat (g_getenv ("SEQPAR_MEASURE"), " ", with_out, NULL);
  g_spawn_command_line_sync (line, NULL, ret_stderr, &status, &error);
  g_assert_no_error (error);
  return status;
}

static void
check (const Wrong *rows, guint n, int status)
{
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *out = g_build_filename (folder, "a.csv", NULL);

  for (guint i = 0; i < n; i++) {
    g_autofree char *said = NULL;
    g_assert_cmpint (run (rows[i].args, out, &said), ==, status << 8);
    g_test_message ("%s", said);
    g_assert_true (g_str_has_prefix (said, "seqpar-measure: "));
    g_assert_nonnull (strstr (said, rows[i].word));
    g_assert_true (strchr (said, '\n') == said + strlen (said) - 1);
    g_assert_false (g_file_test (out, G_FILE_TEST_EXISTS));
  }
  g_rmdir (folder);
}

static void
test_wrong (void)
{
  check (wrong, G_N_ELEMENTS (wrong), 2);
}

static void
test_lacking (void)
{
  check (lacking, G_N_ELEMENTS (lacking), 1);
}

/* There is no GPU, or not as many. */
static void
test_gpus (void)
{
  g_autofree char *folder = g_dir_make_tmp ("seqpar-XXXXXX", NULL), *out = g_build_filename (folder, "a.csv", NULL);
  g_autofree char *said = NULL;
  int status = run ("sweep -o OUT --what launch --repeats 1 --gpus 1", out, &said);

  if (status == 0)
    check (&many, 1, 1);
  else {
    g_assert_cmpint (status, ==, 1 << 8);
    g_assert_nonnull (strstr (said, "no GPU was found"));
    g_assert_nonnull (strstr (said, "planning does not"));
  }
  g_remove (out);
  g_rmdir (folder);
}

/* The benchmark's table needs no GPU. */
static void
test_list (void)
{
  g_autofree char *line = g_strconcat (g_getenv ("SEQPAR_MEASURE"), " bench norm-bwd rope --list", NULL), *out = NULL;
  g_autoptr (GError) error = NULL;
  int status = -1;

  g_spawn_command_line_sync (line, &out, NULL, &status, &error);
  g_assert_no_error (error);
  g_assert_cmpint (status, ==, 0);
  g_assert_nonnull (strstr (out, "norm-bwd/layernorm/1f.7"));
  g_assert_nonnull (strstr (out, "rope/1.7"));
  g_assert_null (strstr (out, "gemm"));
}

static void
test_full_disk (void)
{
  g_autofree char *said = NULL;

  if (!g_file_test ("/dev/full", G_FILE_TEST_EXISTS)) {
    g_test_skip ("there is no /dev/full");
    return;
  }
  g_autofree char *measure = g_shell_quote (g_getenv ("SEQPAR_MEASURE"));
  g_autofree char *command = g_strconcat (measure, " bench --list > /dev/full", NULL);
  const char *argv[] = { "sh", "-c", command, NULL };
  g_autoptr (GError) error = NULL;
  int status = 0;
  g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, &said, &status, &error);
  g_assert_no_error (error);
  g_assert_cmpint (status, ==, 1 << 8);
  g_assert_true (g_str_has_prefix (said, "seqpar-measure: stdout: cannot be written"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/measure/wrong", test_wrong);
  g_test_add_func ("/measure/lacking", test_lacking);
  g_test_add_func ("/measure/gpus", test_gpus);
  g_test_add_func ("/measure/bench-list", test_list);
  g_test_add_func ("/measure/full-disk", test_full_disk);
  return g_test_run ();
}
