/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar sweep: its rows, its values, and that it goes on where it was cut short. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "models/inputs/csv.h"
#include "tests/cli-run.h"

static SpCsv *
parse_csv (const Run *run)
{
  g_autoptr (GError) error = NULL;
  g_assert_cmpint (run->status, ==, 0);
  g_assert_cmpstr (run->err, ==, "");
  SpCsv *csv = sp_csv_new ("stdout", g_strdup (run->out), strlen (run->out), &error);
  g_assert_no_error (error);
  return csv;
}

static char *
cell (const SpCsv *csv, guint row, const char *column)
{
  gint at = sp_csv_find (csv, column);
  g_assert_cmpint (at, >=, 0);
  return sp_csv_text (csv, row, at);
}

static double
value (const SpCsv *csv, guint row, const char *column)
{
  double number = sp_csv_number (csv, row, sp_csv_find (csv, column));
  g_assert_true (isfinite (number));
  return number;
}

static char *
column_text (const SpCsv *csv, const char *column)
{
  GString *all = g_string_new (NULL);
  for (guint row = 0; row < csv->rows->len; row++) {
    g_autofree char *text = cell (csv, row, column);
    g_string_append_printf (all, "%s%s", row > 0 ? " " : "", text);
  }
  return g_string_free (all, FALSE);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* A row says what `run` says with the same keys, by either engine. */
static void
test_row_is_run (gconstpointer data)
{
  const char *engine = data;
  static const char *const ring[] = { "1", "2", "4" }, *const ulysses[] = { "4", "2", "1" };
  static const char *const figures[] = { "step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s", "mfu",
                                         "hfu" };
  write_good ();
  g_auto (Run) swept = run_cli ("sweep", "scenario.ini", "--sweep", "ulysses:ring=4:1,2:2,1:4", "--sweep",
                                "sequence=32K,64K", "--engine", engine);
  g_autoptr (SpCsv) csv = parse_csv (&swept);
  g_assert_cmpuint (csv->rows->len, ==, 6);
  for (guint i = 0; i < 6; i++) {
    g_autofree char *u = g_strconcat ("ulysses=", ulysses[i / 2], NULL);
    g_autofree char *r = g_strconcat ("ring=", ring[i / 2], NULL);
    g_auto (Run) one = run_cli ("run", "scenario.ini", "--json", "--engine", engine, "--set", u, "--set", r, "--set",
                                i % 2 == 0 ? "sequence=32K" : "sequence=64K");
    g_autoptr (JsonNode) json = parse_json (&one);
    for (guint f = 0; f < G_N_ELEMENTS (figures); f++) {
      double expected = number (json, figures[f]);
      g_assert_cmpfloat (fabs (value (csv, i, figures[f]) - expected), <=, 1e-8 * expected);
    }
    JsonNode *memory = member (json, "memory"), *time = member (json, "time");
    g_assert_cmpfloat (value (csv, i, "peak_bytes"), ==, number (memory, "peak_bytes"));
    g_assert_cmpfloat (value (csv, i, "activations_bytes"), ==, number (member (memory, "by_class"), "activations"));
    g_assert_cmpfloat (fabs (value (csv, i, "compute_s") - number (time, "compute_s")), <=, 1e-9);
    g_assert_cmpfloat (value (csv, i, "sequence_tokens"), ==, i % 2 == 0 ? 32768 : 65536);
  }
}

/* 16 M tokens need more than any GPU has; seven heads' worth of Ulysses is no layout of eight heads. */
static void
test_outcomes (void)
{
  write_good ();
  g_auto (Run) run =
      run_cli ("sweep", "scenario.ini", "--sweep", "sequence=64K,16M", "--sweep", "ulysses:ring=2:2,3:1");
  g_autoptr (SpCsv) csv = parse_csv (&run);
  g_autofree char *outcomes = column_text (csv, "outcome");
  g_assert_cmpstr (outcomes, ==, "fits refused out of memory refused");
  g_autofree char *lack = cell (csv, 2, "reason"), *rule = cell (csv, 1, "reason"), *none = cell (csv, 1, "mfu");
  assert_contains (lack, "lacks ");
  assert_contains (rule, "[layout]");
  g_assert_null (strstr (rule, folder));
  g_assert_cmpstr (none, ==, "");
  g_assert_cmpfloat (value (csv, 2, "peak_bytes"), >, value (csv, 2, "capacity_bytes"));
}

/* A key that the file must have may be in the sweep alone. */
static void
test_required_key (void)
{
  write_good ();
  g_autofree char *without = replace (scenario_text, "sequence = 64K\n", "");
  write_file ("without.ini", without, -1);
  g_auto (Run) swept = run_cli ("sweep", "without.ini", "--sweep", "sequence=32K,64K");
  g_autoptr (SpCsv) csv = parse_csv (&swept);
  g_autofree char *outcomes = column_text (csv, "outcome");
  g_assert_cmpstr (outcomes, ==, "fits fits");
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *text, *column, *values;
} ranges[] = {
  { "sequence=64K..256K*2", "sequence_tokens", "65536 131072 262144" },
  { "sequence=64K..200K*2", "sequence_tokens", "65536 131072" },
  { "sequence=16K..64K+16K", "sequence_tokens", "16384 32768 49152 65536" },
  { "sequence=512..2K*2", "sequence_tokens", "512 1024 2048" },
  { "zero=0..3", "zero", "0 1 2 3" },
  { "run.global-batch=1..9+4", "run.global-batch", "1 5 9" },
  { "recompute=none, full,every-2", "recompute", "none full every-2" },
  { "order=tensor,ring,ulysses,lasp,expert,data,pipeline", "order", NULL },
  { "order=tensor,ulysses,ring,lasp,data,pipeline;tensor,ring,ulysses,lasp,data,pipeline", "order", /* the help's */
    "tensor,ulysses,ring,lasp,data,pipeline tensor,ring,ulysses,lasp,data,pipeline" },
  { "order=tensor,ring,ulysses,lasp,expert,data,pipeline;tensor,ulysses,ring,lasp,expert,data,pipeline", "order",
    "tensor,ring,ulysses,lasp,expert,data,pipeline tensor,ulysses,ring,lasp,expert,data,pipeline" },
  { "micro-batch:global-batch=1..4*2", "global-batch", "1 2 4" },
  { "global-batch=512..2K*2", "global-batch", "512 1024 2048" }, /* no length, so no K in it */
};

static void
test_values (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  write_good ();
  g_auto (Run) run = run_cli ("sweep", "scenario.ini", "--sweep", ranges[i].text);
  if (ranges[i].values == NULL) {
    g_assert_cmpint (run.status, ==, 1); /* seven values, and none is an order */
    return;
  }
  g_autoptr (SpCsv) csv = parse_csv (&run);
  g_autofree char *found = column_text (csv, ranges[i].column);
  g_assert_cmpstr (found, ==, ranges[i].values);
}

static void
test_percent (void)
{
  write_good ();
  g_auto (Run) run = run_cli ("sweep", "scenario.ini", "--sweep", "kernel-noise=1%..2%+0.5%", "--engine", "simulate");
  g_autoptr (SpCsv) csv = parse_csv (&run);
  g_autofree char *found = column_text (csv, "kernel-noise");
  g_assert_cmpstr (found, ==, "1% 1.5% 2%");
}

static const struct {
  const char *sweep, *words[4];
  int status;
} refusals[] = {
  { "sequnce=1K", { "sequnce", "did you mean sequence?" }, 1 },
  { "sequence", { "expected KEY=VALUES" }, 1 },
  { "sequence=", { "expected KEY=VALUES" }, 1 },
  { "sequence=4K,,8K", { "a value is empty" }, 1 },
  { "sequence=64K..", { "expected a range" }, 1 },
  { "sequence=64K..32K", { "goes up" }, 1 },
  { "sequence=64K..128K*1", { "goes up" }, 1 },
  { "sequence=64K..128K*2K", { "expected a range" }, 1 },
  { "kernel-noise=1%..5%+1", { "one unit" }, 1 },
  { "sequence=1..2000000", { "more than 1000000 values" }, 1 },
  { "kernel-noise=1e-9..1*1.00000001", { "more than 1000000 values" }, 1 },
  { "ulysses:=1:2", { "a key is empty" }, 1 },
  { "config=model.ini,no/such.ini", { "[model] config", "there is no", "no/such.ini" }, 1 },
  { "packing=none,no-such", { "[run] packing", "no-such" }, 1 },
  { "zero=1,2,1", { "\"1\" is there twice" }, 1 },
  { "sequence=65536,64K", { "\"64K\" is there twice" }, 1 }, /* one row, which a second run would not take */
  { "recompute=none,ful", { "\"ful\"", "did you mean full?" }, 1 },
  { "ulysses:ring=1:2:3", { "has 3 values, and there are 2 keys" }, 1 },
  { "ulysses:ulysses=1:2", { "swept once" }, 1 },
  { "config=none.json", { "none.json" }, 1 },
  { "kernel-noise=1%,2%", { "every point is refused", "--engine simulate" }, 1 },
  { "ulysses=3,5", { "every point is refused", "[layout]" }, 1 },
};

static void
test_refusals (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  write_good ();
  g_auto (Run) run = run_cli ("sweep", "scenario.ini", "--sweep", refusals[i].sweep, "--csv", "refused.csv");
  assert_refused (&run, refusals[i].status, refusals[i].words);
  g_assert_false (is_there ("refused.csv"));
}

/* A key that is swept has its values from there, whatever its name is. */
static void
test_swept_and_set (void)
{
  static const char *const names[] = { "zero", "layout.zero", " zero " };
  static const char *const words[] = { "--set", "--sweep gives this key its values", NULL };
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (names); i++) {
    g_autofree char *set = g_strconcat (names[i], "=2", NULL);
    g_auto (Run) run = run_cli ("sweep", "scenario.ini", "--sweep", "zero=0,1", "--set", set);
    assert_refused (&run, 2, words);
  }
  g_auto (Run) other = run_cli ("sweep", "scenario.ini", "--sweep", "zero=0,1", "--set", "recompute=full");
  g_assert_cmpint (other.status, ==, 0);
  g_auto (Run) drawn = run_cli ("plot", "scaling", "scenario.ini", "--sweep", "zero=0,1", "--set", "zero=2", "-o", "-");
  assert_refused (&drawn, 2, words);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

#define SWEEP "sweep", "scenario.ini", "--sweep", "sequence=4K..2M*2", "--sweep", "zero=0..3"

static char *
whole (const char *threads)
{
  g_auto (Run) run = run_cli (SWEEP, "--threads", threads);
  g_assert_cmpint (run.status, ==, 0);
  return g_steal_pointer (&run.out);
}

static void
test_threads (void)
{
  write_good ();
  g_autofree char *one = whole ("1"), *five = whole ("5");
  g_assert_cmpstr (one, ==, five);
}

/* Killed anywhere: within the header, at a line's end, within a row. */
static void
test_cut_short (void)
{
  write_good ();
  g_autofree char *all = whole ("2");
  gsize length = strlen (all), header = strcspn (all, "\n") + 1;
  const gsize cuts[] = { 1, header - 1, header, header + 7, length / 2, length - 1, length };
  for (guint i = 0; i < G_N_ELEMENTS (cuts); i++) {
    write_file ("cut.csv", all, (gssize) cuts[i]);
    g_auto (Run) run = run_cli (SWEEP, "--csv", "cut.csv");
    g_assert_cmpint (run.status, ==, 0);
    assert_contains (run.out, "cut.csv: 40 points: ");
    g_autofree char *made = read_back ("cut.csv", NULL);
    g_assert_cmpstr (made, ==, all);
  }
}

/* A row that is there is kept as it is, whatever it says: it is not run again. */
static void
test_not_again (void)
{
  write_good ();
  g_autofree char *all = whole ("1");
  g_autofree char *first = g_strndup (all, (gsize) (strchr (strchr (all, '\n') + 1, '\n') + 1 - all));
  g_autofree char *marked = replace (first, "small", "SMALL");
  g_autofree char *expected = replace (all, "small", "SMALL");
  write_file ("marked.csv", marked, -1);
  g_auto (Run) run = run_cli (SWEEP, "--csv", "marked.csv");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *made = read_back ("marked.csv", NULL);
  g_assert_cmpstr (made, ==, expected);
}

/* A sweep with more values takes the rows that are there, and ends in its own order. */
static void
test_more_values (void)
{
  write_good ();
  g_auto (Run) few =
      run_cli ("sweep", "scenario.ini", "--sweep", "sequence=8K,32K", "--sweep", "zero=1", "--csv", "more.csv");
  g_assert_cmpint (few.status, ==, 0);
  g_auto (Run) more =
      run_cli ("sweep", "scenario.ini", "--sweep", "sequence=4K..32K*2", "--sweep", "zero=0,1", "--csv", "more.csv");
  g_assert_cmpint (more.status, ==, 0);
  g_auto (Run) new = run_cli ("sweep", "scenario.ini", "--sweep", "sequence=4K..32K*2", "--sweep", "zero=0,1");
  g_autofree char *made = read_back ("more.csv", NULL);
  g_assert_cmpstr (made, ==, new.out);
}

/* Files of other sweeps are left as they are. */
static void
test_other_files (void)
{
  write_good ();
  static const char *const sets[] = { "recompute=full", NULL };
  g_autofree char *all = whole ("1");
  write_file ("other.csv", all, -1);
  g_auto (Run) set = run_cli (SWEEP, "--csv", "other.csv", "--set", sets[0]);
  assert_refused (&set, 1, (const char *[]){ "other.csv", "other inputs or options", NULL });
  g_autofree char *model = replace (model_text, "layers = 4", "layers = 8");
  write_file ("model.ini", model, -1);
  g_auto (Run) edited = run_cli (SWEEP, "--csv", "other.csv");
  assert_refused (&edited, 1, (const char *[]){ "other.csv", "other inputs or options", NULL });
  write_good ();
  g_auto (Run) fewer =
      run_cli ("sweep", "scenario.ini", "--sweep", "sequence=4K", "--sweep", "zero=0..3", "--csv", "other.csv");
  assert_refused (&fewer, 1, (const char *[]){ "other.csv", "is none of this sweep's points", NULL });
  g_auto (Run) keys = run_cli ("sweep", "scenario.ini", "--sweep", "sequence=4K", "--csv", "other.csv");
  assert_refused (&keys, 1, (const char *[]){ "other.csv", "its header is another", NULL });
  g_auto (Run) input = run_cli ("sweep", "scenario.ini", "--sweep", "sequence=4K", "--csv", "scenario.ini");
  assert_refused (&input, 1, (const char *[]){ "scenario.ini", "a file that this reads", NULL });
  g_autofree char *left = read_back ("other.csv", NULL);
  g_assert_cmpstr (left, ==, all);
}

static void
test_usage (void)
{
  write_good ();
  g_auto (Run) none = run_cli ("sweep", "scenario.ini");
  assert_refused (&none, 2, (const char *[]){ "--sweep is missing", NULL });
  g_auto (Run) engine = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1", "--engine", "rehearse");
  assert_refused (&engine, 2, (const char *[]){ "expected one of estimate, simulate", NULL });
  g_auto (Run) twice = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1", "--sweep", "layout.zero=2");
  assert_refused (&twice, 1, (const char *[]){ "swept once", NULL });
}

/* A file that another one writes is left alone, from its first row on. */
static void
test_taken (void)
{
  static const char *const words[] = { "taken.csv", "another seqpar writes it", NULL };
  g_autofree char *path = g_build_filename (folder, "taken.csv", NULL);

  write_good ();
  g_auto (Run) first = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1", "--csv", "taken.csv");
  g_assert_cmpint (first.status, ==, 0);
  g_autofree char *before = read_back ("taken.csv", NULL);
  int other = g_open (path, O_RDONLY | O_CLOEXEC, 0);
  g_assert_cmpint (flock (other, LOCK_EX), ==, 0);
  g_auto (Run) second = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1,2", "--csv", "taken.csv");
  assert_refused (&second, 1, words);
  g_autofree char *after = read_back ("taken.csv", NULL);
  g_assert_cmpstr (after, ==, before);
  close (other);
  g_auto (Run) third = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1,2", "--csv", "taken.csv");
  g_assert_cmpint (third.status, ==, 0);
}

/* Intervals are asked for where there may be some: of a profile of the scenario, or of one that is swept. */
static void
test_intervals (void)
{
  static const char *const words[] = { "--intervals", "no profile", "--set profile=NAME", NULL };

  write_good ();
  g_auto (Run) none = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1", "--intervals");
  assert_refused (&none, 1, words);
  g_auto (Run) swept = run_cli ("sweep", "scenario.ini", "--sweep", "profile=a100-80", "--intervals");
  g_autoptr (SpCsv) csv = parse_csv (&swept);
  g_assert_cmpfloat (value (csv, 0, "interval_high_s"), >, value (csv, 0, "interval_low_s"));
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_data_func ("/sweep/row/estimate", "estimate", test_row_is_run);
  g_test_add_data_func ("/sweep/row/simulate", "simulate", test_row_is_run);
  g_test_add_func ("/sweep/outcomes", test_outcomes);
  g_test_add_func ("/sweep/required-key", test_required_key);
  for (guint i = 0; i < G_N_ELEMENTS (ranges); i++) {
    g_autofree char *path = g_strdup_printf ("/sweep/values/%u", i);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_values);
  }
  g_test_add_func ("/sweep/values/percent", test_percent);
  g_test_add_func ("/sweep/swept-and-set", test_swept_and_set);
  for (guint i = 0; i < G_N_ELEMENTS (refusals); i++) {
    g_autofree char *path = g_strdup_printf ("/sweep/refusals/%u", i);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_refusals);
  }
  g_test_add_func ("/sweep/threads", test_threads);
  g_test_add_func ("/sweep/cut-short", test_cut_short);
  g_test_add_func ("/sweep/not-again", test_not_again);
  g_test_add_func ("/sweep/more-values", test_more_values);
  g_test_add_func ("/sweep/other-files", test_other_files);
  g_test_add_func ("/sweep/taken", test_taken);
  g_test_add_func ("/sweep/intervals", test_intervals);
  g_test_add_func ("/sweep/usage", test_usage);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
