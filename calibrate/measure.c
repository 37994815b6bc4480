/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar-measure: its commands and their options. Exit status: 2 for wrong usage (errors in GLib's domain of options), 1 for
 * what the machine lacks, files and all else that fails while it runs. */
#include <errno.h>
#include <gio/gio.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/bench-rows.h"
#include "calibrate/bench.h"
#include "calibrate/cudnn.h"
#include "calibrate/gpu.h"
#include "calibrate/kernels-beside.h"
#include "calibrate/kernels.h"
#include "calibrate/sweep.h"

typedef struct {
  SpSweep sweep;
  SpExecution execution;
  SpBench bench;
  gboolean lists;
  char *what, *shapes, *least, *most, *forced, *attention, *beside;
  int timeout_s, threads, card;
} Options;

static gboolean fail (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3);
static gboolean fail_usage (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3);

static gboolean
fail (GError **error, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_propagate_error (error, g_error_new_valist (G_IO_ERROR, G_IO_ERROR_FAILED, format, args));
  va_end (args);
  return FALSE;
}

static gboolean
fail_usage (GError **error, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_propagate_error (error, g_error_new_valist (G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE, format, args));
  va_end (args);
  return FALSE;
}

static gboolean
read_bytes (const char *option, const char *text, gint64 *ret_bytes, GError **error)
{
  static const char units[] = "KMG";
  char *end = NULL;
  guint64 value = g_ascii_strtoull (text, &end, 10);
  const char *unit = *end != '\0' ? strchr (units, *end) : NULL;
  int shift = unit ? 10 * (int) (unit - units + 1) : 0;

  if (unit != NULL)
    end += g_str_has_prefix (end + 1, "iB") ? 3 : 1;
  if (!g_ascii_isdigit (*text) || *end != '\0' || value == 0 || value > (G_GUINT64_CONSTANT (1) << 36 >> shift))
    return fail_usage (error, "%s %s: a size from 1 to 64G was expected, as 1K, 64M, 1GiB", option, text);
  *ret_bytes = (gint64) (value << shift);
  return TRUE;
}

static gboolean
read_kinds (Options *options, GError **error)
{
  if (options->what == NULL) {
    options->sweep.kinds = SP_SWEEP_GEMM | SP_SWEEP_COPY | SP_SWEEP_LAUNCH | SP_SWEEP_MEMORY;
    return TRUE; /* NCCL where there are two GPUs */
  }
  g_auto (GStrv) words = g_strsplit (options->what, ",", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    int kind = sp_measured_index (words[i], sp_sweep_kind_names);
    if (kind < 0)
      return fail_usage (error, "--what %s: gemm, copy, nccl, launch and memory were expected", words[i]);
    options->sweep.kinds |= 1u << kind;
  }
  return TRUE;
}

static gboolean
read_forced (Options *options, GError **error)
{
  static const char *const known[] = { "ring/simple", "ring/ll",    "ring/ll128", "tree/simple",
                                       "tree/ll",     "tree/ll128", NULL };
  if (options->forced == NULL)
    return TRUE;
  options->sweep.forced = g_strsplit (options->forced, ",", -1);
  for (guint i = 0; options->sweep.forced[i] != NULL; i++)
    if (sp_measured_index (options->sweep.forced[i], known) < 0)
      return fail_usage (error, "--force %s: ring/ or tree/ and simple, ll or ll128 were expected",
                         options->sweep.forced[i]);
  return TRUE;
}

static gboolean
check_options (Options *options, GError **error)
{
  SpSweep *sweep = &options->sweep;
  const char *least = options->least != NULL ? options->least : "1K";
  const char *most = options->most != NULL ? options->most : "1G";
  g_autofree char *text = NULL;

  if (sweep->output == NULL)
    return fail_usage (error, "-o FILE was expected");
  if (sweep->repeats < 1 || options->timeout_s < 1 || options->threads < 0 || !(sweep->time_limit_s >= 0))
    return fail_usage (error, "--repeats and --timeout take 1 or more, --gpus and --time-limit 0 or more");
  if (!read_kinds (options, error) || !read_forced (options, error) ||
      !read_bytes ("--min-bytes", least, &sweep->min_bytes, error) ||
      !read_bytes ("--max-bytes", most, &sweep->max_bytes, error))
    return FALSE;
  if (sweep->min_bytes > sweep->max_bytes)
    return fail_usage (error, "--min-bytes %s is above --max-bytes %s", least, most);
  if (options->shapes != NULL && !g_file_get_contents (options->shapes, &text, NULL, error))
    return FALSE;
  return sp_sweep_read_shapes (sweep, options->shapes != NULL ? options->shapes : "shapes", text, error);
}

static gboolean
run_ranks (const Options *options, int threads, SpRankFunc run, gpointer data, GError **error)
{
  const SpRanksOptions ranks = {
    .program = "seqpar-measure",
    .remark = "what was measured is kept, and --timeout gives it longer",
    .launchers = SP_LAUNCHERS,
    .threads = threads,
    .timeout_s = options->timeout_s,
  };

  return sp_ranks_run (&ranks, run, data, error);
}

/* Ranks of this machine, or those that a launcher started; checked against its GPUs. */
static gboolean
count_ranks (int threads, int *ret_threads, int *ret_size, GError **error)
{
  int rank = 0, local = 0;
  GError *wrong = NULL;

  gboolean launched = sp_ranks_launched (SP_LAUNCHERS, &rank, ret_size, &local, &wrong);
  if (wrong != NULL) {
    g_propagate_error (error, wrong);
    return FALSE;
  }
  int gpus = sp_gpu_count (error);
  if (gpus == 0)
    return FALSE;
  if (launched && local >= gpus)
    return fail (error, "rank %d is number %d of its node, which has %d GPUs: start one process a GPU", rank, local,
                 gpus);
  if (threads > gpus)
    return fail (error, "--gpus %d: this machine has %d", threads, gpus);
  *ret_threads = threads > 0 ? threads : gpus;
  if (!launched)
    *ret_size = *ret_threads;
  return TRUE;
}

static gboolean
run_sweep (Options *options, G_GNUC_UNUSED char **operands, GError **error)
{
  SpSweep *sweep = &options->sweep;
  int threads = 0, size = 0;

  if (!check_options (options, error))
    return FALSE;
  if (!HAVE_NCCL && sweep->kinds & SP_SWEEP_NCCL)
    return fail (error,
                 "--what nccl: this program was built without NCCL (meson setup -Dnccl=enabled says what lacks)");
  if (!count_ranks (options->threads, &threads, &size, error))
    return FALSE;
  if (sweep->kinds & SP_SWEEP_NCCL && size < 2)
    return fail (error, "--what nccl needs two GPUs, and here is one: leave nccl out of --what");
  sweep->nccl = HAVE_NCCL && size > 1;
  if (options->what == NULL && sweep->nccl)
    sweep->kinds |= SP_SWEEP_NCCL;
  return run_ranks (options, threads, sp_sweep_rank, sweep, error);
}

/* For who starts it. */
static gboolean
run_gpus (G_GNUC_UNUSED Options *options, G_GNUC_UNUSED char **operands, GError **error)
{
  int gpus = sp_gpu_count (error);
  g_autoptr (SpMeasured) head = sp_measured_new ();

  if (gpus == 0 || !sp_gpu_describe (0, head, error))
    return FALSE;
  const char *nccl = sp_measured_field (head, "nccl");
  printf ("gpus: %d\ncard: %s\nnccl: %s\n", gpus, sp_measured_field (head, "card"), nccl != NULL ? nccl : "no");
  return TRUE;
}

static gboolean
read_attention (Options *options, GError **error)
{
  int which = options->attention != NULL ? sp_measured_index (options->attention, sp_attention_names) : 0;
  GError *wrong = NULL;

  if (which < 0)
    return fail_usage (error, "--attention %s: quickest, seqpar or cudnn was expected", options->attention);
  options->execution.attention = (SpAttention) which;
  if (which != SP_ATTENTION_CUDNN || sp_cudnn_version (&wrong) > 0)
    return TRUE;
  g_propagate_prefixed_error (error, wrong, "--attention cudnn: ");
  return FALSE;
}

static gboolean
take_programs (Options *options, char **programs, GError **error)
{
  SpExecution *execution = &options->execution;

  execution->files = g_ptr_array_new ();
  execution->programs = g_ptr_array_new ();
  for (guint i = 0; programs[i] != NULL; i++)
    g_ptr_array_add (execution->files, programs[i]);
  execution->output = options->sweep.output;
  if (execution->output == NULL)
    return fail_usage (error, "-o FILE was expected");
  if (programs[0] == NULL)
    return fail_usage (error, "a program was expected: seqpar run SCENARIO --emit-program FILE writes one");
  return read_attention (options, error);
}

static gboolean
run_beside (Options *options, GError **error)
{
  SpBesideSweep sweep = { .execution = &options->execution, .repeats = options->sweep.repeats };
  g_auto (GStrv) words = g_strsplit (options->beside, ",", -1);
  int threads = 0, size = 0;

  for (guint i = 0; words[i] != NULL && i < G_N_ELEMENTS (sweep.transfers); i++) {
    int op = sp_measured_index (words[i], sp_measured_op_names);
    if (op < SP_MEASURED_ONE_WAY || op > SP_MEASURED_ALL_TO_ALL)
      return fail_usage (
          error,
          "--beside %s: one-way, send-receive, all-gather, reduce-scatter, all-reduce and all-to-all were expected",
          words[i]);
    sweep.transfers[sweep.n_transfers++] = (SpMeasuredOp) op;
  }
  if (!HAVE_NCCL)
    return fail (error, "--beside: this program was built without NCCL (meson setup -Dnccl=enabled says what lacks)");
  if (!count_ranks (options->threads, &threads, &size, error) || !sp_execution_read (&options->execution, size, error))
    return FALSE;
  if (size < 2)
    return fail (error, "--beside needs two GPUs, and here is one");
  return run_ranks (options, threads, sp_kernels_beside_rank, &sweep, error);
}

static gboolean
run_kernels (Options *options, char **programs, GError **error)
{
  SpKernelSweep sweep = { &options->execution, options->sweep.repeats, options->card };

  if (options->sweep.repeats < 1 || options->timeout_s < 1 || options->card < -1)
    return fail_usage (error, "--repeats and --timeout take 1 or more, --card 0 or more");
  if (!take_programs (options, programs, error))
    return FALSE;
  if (options->beside != NULL)
    return run_beside (options, error);
  if (!sp_execution_read (&options->execution, 0, error) || sp_gpu_count (error) == 0)
    return FALSE;
  return run_ranks (options, 1, sp_kernels_rank, &sweep, error);
}

static gboolean
run_bench (Options *options, char **kernels, GError **error)
{
  SpBench *bench = &options->bench;

  if (bench->repeats < 1 || options->timeout_s < 1)
    return fail_usage (error, "--repeats and --timeout take 1 or more");
  g_autoptr (GPtrArray) rows = sp_bench_select (kernels, error);
  if (rows == NULL)
    return FALSE;
  if (options->lists) {
    g_autofree char *list = sp_bench_list (rows);
    fputs (list, stdout);
    return TRUE;
  }
  bench->rows = rows;
  bench->output = options->sweep.output;
  return sp_gpu_count (error) > 0 && run_ranks (options, 1, sp_bench_rank, bench, error);
}

static gboolean
run_execute (Options *options, char **programs, GError **error)
{
  int threads = 0, size = 0;
  SpExecution *execution = &options->execution;

  if (execution->steps < 1 || execution->warm_up < 0 || options->timeout_s < 1 || options->threads < 0)
    return fail_usage (error, "--steps and --timeout take 1 or more, --warm-up and --gpus 0 or more");
  if (!take_programs (options, programs, error))
    return FALSE;
  if (!count_ranks (options->threads, &threads, &size, error) || !sp_execution_read (execution, size, error))
    return FALSE;
  if (execution->verifies && sp_ranks_launched (SP_LAUNCHERS, &threads, &size, &threads, NULL))
    return fail (error, "--verify compares ranks within one process: start it without a launcher");
  return run_ranks (options, threads, sp_execute_rank, execution, error);
}

enum { GPUS, SWEEP, KERNELS, EXECUTE, BENCH, N_COMMANDS };

static const struct {
  const char *name, *operands;
  gboolean (*run) (Options *o, char **operands, GError **error);
} commands[N_COMMANDS] = {
  [GPUS] = { "gpus", NULL, run_gpus },
  [SWEEP] = { "sweep", NULL, run_sweep },
  [KERNELS] = { "kernels", "PROGRAM...", run_kernels },
  [EXECUTE] = { "execute", "PROGRAM...", run_execute },
  [BENCH] = { "bench", "[KERNEL...]", run_bench },
};

static int
find_command (const char *word)
{
  for (int i = 0; i < N_COMMANDS; i++)
    if (g_strcmp0 (word, commands[i].name) == 0)
      return i;
  return -1;
}

/* Of argv the operands are left. */
static gboolean
parse (Options *o, int which, int *argc, char ***argv, GError **error)
{
  const GOptionEntry shared[] = {
    { "gpus", 0, 0, G_OPTION_ARG_INT, &o->threads, "without a launcher: how many; default all", "N" },
    { "timeout", 0, 0, G_OPTION_ARG_INT, &o->timeout_s, "give up after so long without progress, default 120",
      "SECONDS" },
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->sweep.output, "the CSV; of a sweep one that is there is resumed",
      "FILE" },
    { NULL },
  };
  const GOptionEntry sweep[] = {
    { "what", 0, 0, G_OPTION_ARG_STRING, &o->what, "of gemm, copy, nccl, launch, memory; default: all that can be",
      "LIST" },
    { "shapes", 0, 0, G_OPTION_ARG_FILENAME, &o->shapes, "GEMM shapes, m,n,k a line, and nn or tn if not A B^T",
      "FILE" },
    { "force", 0, 0, G_OPTION_ARG_STRING, &o->forced, "NCCL's ALGORITHM/PROTOCOL too, as ring/ll,tree/simple", "LIST" },
    { "min-bytes", 0, 0, G_OPTION_ARG_STRING, &o->least, "smallest size, default 1K", "SIZE" },
    { "max-bytes", 0, 0, G_OPTION_ARG_STRING, &o->most, "largest size, default 1G", "SIZE" },
    { "repeats", 0, 0, G_OPTION_ARG_INT, &o->sweep.repeats, "samples of a point, default 5", "N" },
    { "time-limit", 0, 0, G_OPTION_ARG_DOUBLE, &o->sweep.time_limit_s, "stop before a new point after so long",
      "SECONDS" },
    { "seed", 0, 0, G_OPTION_ARG_INT, &o->sweep.seed, "of the order of points, default 1", "N" },
    { NULL },
  };
  const GOptionEntry execute[] = {
    { "steps", 0, 0, G_OPTION_ARG_INT, &o->execution.steps, "how many are timed, default 10", "N" },
    { "warm-up", 0, 0, G_OPTION_ARG_INT, &o->execution.warm_up,
      "how many before them, and a second of them at least; default 3, 0: none", "N" },
    { "commands", 0, 0, G_OPTION_ARG_NONE, &o->execution.commands, "time each op of one more step", NULL },
    { "verify", 0, 0, G_OPTION_ARG_NONE, &o->execution.verifies,
      "loss and gradients of one step against the rehearsal's", NULL },
    { "attention", 0, 0, G_OPTION_ARG_STRING, &o->attention,
      "whose softmax attention, seqpar or cudnn; default: the quickest, where cuDNN is and can", "LIBRARY" },
    { NULL },
  };
  const GOptionEntry kernels[] = {
    { "repeats", 0, 0, G_OPTION_ARG_INT, &o->sweep.repeats, "samples of a kernel, default 5", "N" },
    { "attention", 0, 0, G_OPTION_ARG_STRING, &o->attention,
      "whose softmax attention, seqpar or cudnn; default: each that is here", "LIBRARY" },
    { "card", 0, 0, G_OPTION_ARG_INT, &o->card,
      "this card's number among those whose files are fitted together: of three or more the fit says how they differ",
      "N" },
    { "beside", 0, 0, G_OPTION_ARG_STRING, &o->beside,
      "on the program's GPUs: alone and beside transfers of them all, as reduce-scatter,all-gather", "LIST" },
    { NULL },
  };
  const GOptionEntry bench[] = {
    { "repeats", 0, 0, G_OPTION_ARG_INT, &o->bench.repeats, "samples of a size, default 21", "N" },
    { "warm", 0, 0, G_OPTION_ARG_NONE, &o->bench.warm, "operands stay in the L2 cache where they fit", NULL },
    { "list", 0, 0, G_OPTION_ARG_NONE, &o->lists, "say what would be timed, and end", NULL },
    { NULL },
  };
  const GOptionEntry none[] = { { NULL } };
  const GOptionEntry *own[N_COMMANDS] = { none, sweep, kernels, execute, bench };
  g_autofree char *name = g_strconcat ("seqpar-measure ", commands[which].name, NULL);
  g_autoptr (GOptionContext) context = g_option_context_new (commands[which].operands);
  g_autoptr (GError) wrong = NULL;

  g_set_prgname (name);
  g_option_context_add_main_entries (context, shared, NULL);
  g_option_context_add_main_entries (context, own[which], NULL);
  if (!g_option_context_parse (context, argc, argv, &wrong))
    return fail_usage (error, "%s",
                       wrong->domain == G_CONVERT_ERROR ? "the value of an option: ASCII characters were expected"
                                                        : wrong->message);
  if (g_strcmp0 (o->sweep.output, "-") == 0)
    return fail_usage (error, "-o -: the name of a CSV was expected");
  return commands[which].operands != NULL || *argc == 1 ||
         fail_usage (error, "%s: %s takes options alone", (*argv)[1], commands[which].name);
}

static const char usage[] = "usage: seqpar-measure sweep|kernels|execute ... -o FILE, bench, or gpus (each has --help)";

/* Where the command that is meant stands behind options, it is named. */
static gboolean
fail_command (char **argv, GError **error)
{
  for (char **word = argv; *word != NULL; word++)
    if (find_command (*word) >= 0)
      return fail_usage (error, "the command comes first: seqpar-measure %s %s ...", *word, argv[0]);
  return fail_usage (error, "%s", usage);
}

int
main (int argc, char **argv)
{
  Options o = { .sweep = { .repeats = 5, .seed = 1, .shapes = sp_measured_new () },
                .execution = { .steps = 10, .warm_up = 3 },
                .bench = { .repeats = 21 },
                .timeout_s = 120,
                .card = -1 };
  g_autoptr (GError) error = NULL;
  int which = argc > 1 ? find_command (argv[1]) : -1;
  gboolean good = FALSE;

  argv++, argc--;
  if (argc > 0 && (g_str_equal (argv[0], "--help") || g_str_equal (argv[0], "-h")))
    good = puts (usage) >= 0;
  else if (which < 0)
    fail_command (argv, &error);
  else
    good = parse (&o, which, &argc, &argv, &error) && commands[which].run (&o, argv + 1, &error);
  if (good && (fflush (stdout) != 0 || ferror (stdout)))
    good = fail (&error, "stdout: cannot be written: %s", g_strerror (errno));
  if (good)
    return 0;
  fprintf (stderr, "seqpar-measure: %s\n", error->message);
  return error->domain == G_OPTION_ERROR ? 2 : 1;
}
