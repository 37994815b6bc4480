/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar plot: formats, what files can say to gnuplot, and sweeps of no, one, many or no fitting rows. */
#include <sys/stat.h>

#include "tests/cli-run.h"

static const char *const sweep_kinds[] = { "scaling", "compare", "memory", "breakdown", "heatmap" };

/* --- formats ------------------------------------------------------------------------------------------------------ */

static void
draw (const char *kind, const char *input, const char *output)
{
  g_auto (Run) run = run_cli ("plot", kind, input, "-o", output);
  g_assert_cmpstr (run.err, ==, "");
  g_assert_cmpint (run.status, ==, 0);
  g_assert_true (g_str_equal (output, "-") == (*run.out != '\0'));
}

static void
test_formats (gconstpointer data)
{
  static const struct {
    const char *name, *begin;
  } formats[] = { { "figure.png", "\211PNG\r\n" }, { "figure.svg", "<?xml" }, { "figure.pdf", "%PDF-" } };
  if (!has_gnuplot ())
    return;
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++) {
    draw (data, "scenario.ini", formats[i].name);
    gsize length;
    g_autofree char *file = read_back (formats[i].name, &length);
    g_assert_cmpuint (length, >, 1000);
    g_assert_true (strncmp (file, formats[i].begin, strlen (formats[i].begin)) == 0);
  }
  g_auto (Run) text = run_cli ("plot", data, "scenario.ini", "-o", "-", "--size", "90x30");
  g_assert_cmpint (text.status, ==, 0);
  assert_contains (text.out, "small on 4 x H100"); /* the model's name and the card's */
  assert_contains (text.out, "rests on values that are at worst assumed");
}

/* The same input, the same bytes; and the script that is kept draws them again. */
static void
test_keep (gconstpointer data)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_auto (Run) run = run_cli ("plot", data, "scenario.ini", "-o", "kept.svg", "--keep");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *first = read_back ("kept.svg", NULL);
  draw (data, "kept.csv", "again.svg");
  g_autofree char *again = read_back ("again.svg", NULL);
  g_assert_cmpstr (first, ==, again);
  g_autoptr (GError) error = NULL;
  int status = 1;
  g_autofree char *out = NULL, *err = NULL;
  g_spawn_sync (folder, (char *[]){ (char *) "gnuplot", (char *) "-d", (char *) "kept.gp", NULL }, NULL,
                G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err, &status, &error);
  g_assert_no_error (error);
  g_assert_cmpint (status, ==, 0);
  g_autofree char *redrawn = read_back ("kept.svg", NULL);
  g_assert_cmpstr (first, ==, redrawn);
}

/* A cell is one row's: a second one would be drawn over it. */
static void
test_cell_twice (void)
{
  static const char *const words[] = { "two rows are of the same cell", NULL };
  write_good ();
  g_auto (Run) swept = run_cli ("sweep", "scenario.ini", "--sweep", "zero=0,1", "--sweep", "sequence=16K,32K");
  g_assert_cmpint (swept.status, ==, 0);
  const char *last = g_strrstr (g_strchomp (swept.out), "\n");
  g_autofree char *twice = g_strconcat (swept.out, last, "\n", NULL);
  write_file ("twice.csv", twice, -1);
  g_auto (Run) run = run_cli ("plot", "heatmap", "twice.csv", "-o", "-");
  assert_refused (&run, 1, words);
}

/* What was measured is drawn over the lines that it is held to. */
static void
test_points_in_front (void)
{
  if (!has_gnuplot ())
    return;
  g_auto (Run) run = run_cli ("plot", "validation", "megatron-sp-step", "-o", "points.svg", "--keep");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *script = read_back ("points.gp", NULL);
  g_auto (GStrv) parts = g_strsplit (script, " with points ", 2);
  g_assert_cmpuint (g_strv_length (parts), ==, 2);
  assert_contains (parts[0], " with lines ");
  g_assert_null (strstr (parts[1], " with lines "));
}

/* --- what files say ----------------------------------------------------------------------------------------------- */

static const char *const nasty[] = {
  "'; system('touch PWNED'); #",
  "\"; system(\"touch PWNED\"); #",
  "`touch PWNED`",
  "$(touch PWNED)",
  "@macro {/Symbol a}_{b}^{c} & ~d",
  "<script>alert(1)</script>",
  "a\\\nb\\n\\",
  "%s%n%100000d",
  "'' data index 0, '<touch PWNED' with lines",
  "a]]>b",
};

static void
test_injection (gconstpointer data)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (nasty); i++) {
    g_auto (Run) swept = run_cli ("sweep", "scenario.ini", "--sweep", "zero=1,2", "--sweep", "sequence=32K,64K");
    g_assert_cmpint (swept.status, ==, 0);
    g_autoptr (GString) csv = g_string_new (swept.out), cell = g_string_new ("\"");
    for (const char *c = nasty[i]; *c != '\0'; c++)
      g_string_append_printf (cell, *c == '"' ? "\"\"" : "%c", *c == '\n' ? ' ' : *c);
    g_string_append_c (cell, '"');
    g_string_replace (csv, ",small,", ",NAME,", 0);
    g_string_replace (csv, "NAME", cell->str, 0);
    g_string_replace (csv, "\n2,", "\nVALUE,", 0); /* of a key, which names a curve or a bar */
    g_string_replace (csv, "\nVALUE", "\n", 0);
    g_autofree char *head = g_strndup (csv->str, strcspn (csv->str, "\n"));
    g_autoptr (GString) rows = g_string_new (head);
    g_auto (GStrv) lines = g_strsplit (csv->str, "\n", -1);
    for (guint l = 1; lines[l] != NULL && *lines[l] != '\0'; l++)
      g_string_append_printf (rows, "\n%s%s", *lines[l] == ',' ? cell->str : "", lines[l]);
    g_string_append_c (rows, '\n');
    write_file ("nasty.csv", rows->str, (gssize) rows->len);
    draw (data, "nasty.csv", "nasty.svg");
    draw (data, "nasty.csv", "-");
    g_autofree char *svg = read_back ("nasty.svg", NULL);
    g_assert_null (strstr (svg, "<script"));
    g_assert_null (strstr (svg, "]]>")); /* no XML in a text */
    g_assert_false (is_there ("PWNED"));
  }
}

/* A model's own name, from its file to the figure. */
static void
test_name_of_file (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *model = replace (model_text, "name = small", "name = it's {a}_b `c` \"d\" <e> +10%70");
  write_file ("model.ini", model, -1);
  g_auto (Run) run = run_cli ("plot", "memory", "scenario.ini", "-o", "-");
  g_assert_cmpint (run.status, ==, 0);
  assert_contains (run.out, "it's {a}_b `c` \"d\" <e> +10%70");
  draw ("memory", "scenario.ini", "named.svg");
  g_autofree char *svg = read_back ("named.svg", NULL);
  assert_contains (svg, "it's {a}_b `c` \"d\" ");
  assert_contains (svg, " +10%70 on 4 x H100");
  assert_contains (svg, "&lt;e>"); /* gnuplot's way: > alone opens nothing */
}

/* --- few and many rows -------------------------------------------------------------------------------------------- */

static void
write_sweep (const char *name, const char *const *axes)
{
  const char *args[16] = { "sweep", "scenario.ini", "--csv", name };
  guint n = 4;
  for (guint i = 0; axes[i] != NULL; i++) {
    args[n++] = "--sweep";
    args[n++] = axes[i];
  }
  g_auto (Run) run = run_args (args);
  g_assert_cmpint (run.status, ==, 0);
}

static void
test_few_rows (gconstpointer data)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  write_sweep ("one.csv", (const char *[]){ "sequence=64K", NULL });
  draw (data, "one.csv", "one.png");
  draw (data, "one.csv", "-");
  write_sweep ("out.csv", (const char *[]){ "sequence=16M,32M", "zero=1,2", NULL });
  draw (data, "out.csv", "out.png");
  g_auto (Run) out = run_cli ("plot", data, "out.csv", "-o", "-");
  g_assert_cmpint (out.status, ==, 0);
  write_sweep ("names.csv", (const char *[]){ "recompute=none,full", "ring-split=zigzag,contiguous,striped", NULL });
  draw (data, "names.csv", "names.png");
}

static void
test_no_rows (gconstpointer data)
{
  write_good ();
  write_file ("empty.csv", "", 0);
  g_auto (Run) empty = run_cli ("plot", data, "empty.csv", "-o", "no.svg");
  assert_refused (&empty, 1, (const char *[]){ "empty.csv", "is empty", NULL });
  write_sweep ("head.csv", (const char *[]){ "sequence=64K", NULL });
  g_autofree char *all = read_back ("head.csv", NULL);
  write_file ("head.csv", all, (gssize) strcspn (all, "\n") + 1);
  g_auto (Run) head = run_cli ("plot", data, "head.csv", "-o", "no.svg");
  assert_refused (&head, 1, (const char *[]){ "head.csv", "nothing to draw", NULL });
  g_auto (Run) swept = run_cli ("sweep", "scenario.ini", "--sweep", "ulysses:ring=2:2,3:1");
  const char *first = strchr (swept.out, '\n') + 1;
  g_autofree char *refused = g_strndup (swept.out, (gsize) (first - swept.out));
  g_autofree char *rows = g_strconcat (refused, strchr (first, '\n') + 1, NULL);
  write_file ("refused.csv", rows, -1);
  g_auto (Run) none = run_cli ("plot", data, "refused.csv", "-o", "no.svg");
  assert_refused (&none, 1, (const char *[]){ "refused.csv", "no row has figures", "[layout]", NULL });
  write_file ("other.csv", "a,b\n1,2\n", -1);
  g_auto (Run) other = run_cli ("plot", data, "other.csv", "-o", "no.svg");
  assert_refused (&other, 1, (const char *[]){ "other.csv", "has no column outcome", NULL });
  write_file ("short.csv", "a,b\n1,2\n1\n", -1);
  g_auto (Run) ragged = run_cli ("plot", data, "short.csv", "-o", "no.svg");
  assert_refused (&ragged, 1, (const char *[]){ "short.csv:3", "expected 2 fields", NULL });
  g_assert_false (is_there ("no.svg"));
}

/* A million rows: a curve of some of them; as bars and as curves each they are too many, and that is said. */
static void
test_million_rows (void)
{
  static const char *const refused[] = { "compare", "memory", "breakdown" };
  if (!has_gnuplot ())
    return;
  write_good ();
  GString *rows = g_string_new ("sequence_tokens,outcome,tokens_per_s,peak_bytes,capacity_bytes,mfu_causal,compute_s,"
                                "parameters_bytes\n");
  for (guint i = 1; i <= 1000000; i++)
    g_string_append_printf (rows, "%u,fits,%u,%u,80000000000,0.4,1,1\n", i, 1000 + i % 1000, i);
  write_file ("million.csv", rows->str, (gssize) rows->len);
  g_string_free (rows, TRUE);
  draw ("scaling", "million.csv", "million.svg");
  draw ("heatmap", "million.csv", "million-cells.svg");
  gsize length;
  g_free (read_back ("million.svg", &length));
  g_assert_cmpuint (length, <, 1 << 20);
  for (guint i = 0; i < G_N_ELEMENTS (refused); i++) {
    g_auto (Run) run = run_cli ("plot", refused[i], "million.csv", "-o", "no.svg");
    assert_refused (&run, 1, (const char *[]){ "million.csv", "bars are more than", NULL });
  }
}

/* No layout fits: there is no scale. A figure that a row lacks is no cell, in any scale. */
static void
test_cells_without_values (void)
{
  static const char *const tables[] = {
    "sequence_tokens,ulysses,outcome,mfu_causal\n65536,1,out of memory,0.1\n131072,1,out of memory,0.2\n",
    "sequence_tokens,ulysses,outcome,mfu_causal\n65536,1,fits,\n131072,1,fits,0.3\n65536,2,fits,0.1\n",
  };
  if (!has_gnuplot ())
    return;
  for (guint i = 0; i < G_N_ELEMENTS (tables); i++) {
    write_file ("cells.csv", tables[i], -1);
    draw ("heatmap", "cells.csv", "cells.svg");
    g_autofree char *svg = read_back ("cells.svg", NULL);
    g_assert_null (strstr (svg, "inf<"));
    g_assert_null (strstr (svg, "nan<"));
    g_auto (Run) text = run_cli ("plot", "heatmap", "cells.csv", "-o", "-");
    g_assert_null (strstr (text.out, "nan"));
  }
}

static void
test_many_curves (void)
{
  write_good ();
  write_sweep ("curves.csv", (const char *[]){ "sequence=32K,64K", "global-batch=1..20", NULL });
  g_auto (Run) run = run_cli ("plot", "scaling", "curves.csv", "-o", "no.svg");
  assert_refused (&run, 1, (const char *[]){ "curves.csv", "20 curves are more than the 8", "heatmap", NULL });
}

/* Figures of others are rows beside the sweep's; without the sweep's keys they are refused. */
static void
test_published (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  write_file ("published.csv",
              "zero,sequence_tokens,outcome,tokens_per_s,peak_bytes,published\n"
              "1,32768,fits,123456,1e9,\"Somebody, 2020\"\n2,32768,fits,234567,1e9,\"Somebody, 2020\"\n",
              -1);
  g_auto (Run) run = run_cli ("plot", "scaling", "scenario.ini", "--sweep", "zero=1,2", "--sweep", "sequence=32K,64K",
                              "--published", "published.csv", "-o", "beside.svg", "--keep");
  g_assert_cmpstr (run.err, ==, "");
  g_assert_cmpint (run.status, ==, 0);
  g_autofree char *svg = read_back ("beside.svg", NULL), *rows = read_back ("beside.csv", NULL);
  assert_contains (svg, "open markers: Somebody, 2020");
  g_auto (GStrv) lines = g_strsplit (rows, "\n", -1);
  g_assert_cmpuint (g_strv_length (lines), ==, 1 + 4 + 2 + 1);
  assert_contains (lines[5], "123456");
  g_assert_true (g_str_has_suffix (lines[5], ",\"Somebody, 2020\""));
  draw ("scaling", "beside.csv", "again.svg");
  g_autofree char *again = read_back ("again.svg", NULL);
  g_assert_cmpstr (svg, ==, again);

  write_file ("keyless.csv", "sequence_tokens,outcome,tokens_per_s,published\n32768,fits,1,X\n", -1);
  g_auto (Run) keyless =
      run_cli ("plot", "scaling", "scenario.ini", "--sweep", "zero=1,2", "--published", "keyless.csv", "-o", "no.svg");
  assert_refused (&keyless, 1, (const char *[]){ "keyless.csv", "has no column zero", NULL });
  g_auto (Run) kind = run_cli ("plot", "volume", "scenario.ini", "--published", "published.csv", "-o", "no.svg");
  assert_refused (&kind, 2,
                  (const char *[]){ "--published goes with scaling, compare, memory, breakdown, heatmap",
                                    "not with volume", NULL });
}

/* Where bars or cells stand, in a figure as text: a row of others is below its own, or in brackets in its cell. */
static void
test_published_beside (void)
{
  static const char *const bars[][3] = { { "compare", "tokens_per_s", "4321000000" },
                                         { "memory", "states_bytes", "4639577636864" }, /* 4,321 GiB */
                                         { "breakdown", "undivided_s", "4321" } };
  if (!has_gnuplot ())
    return;
  write_good ();
  for (guint i = 0; i < G_N_ELEMENTS (bars); i++) {
    g_autofree char *rows = g_strdup_printf (
        "zero,outcome,%s,published\n2,fits,%s,Somebody\n3,out of memory,,Somebody\n", bars[i][1], bars[i][2]);
    write_file ("published.csv", rows, -1);
    g_auto (Run) run =
        run_cli ("plot", bars[i][0], "scenario.ini", "--sweep", "zero=1,2", "--published", "published.csv", "-o", "-");
    g_assert_cmpstr (run.err, ==, "");
    assert_contains (run.out, "bars named published: Somebody");
    const char *first = strstr (run.out, "  zero 1 "), *second = strstr (run.out, "  zero 2 ");
    const char *beside = strstr (run.out, "  published "), *other = strstr (run.out, "  zero 3, published ");
    g_assert_true (first != NULL && first < second && second < beside && beside < other);
    const char *number = strstr (beside, "4,321");
    g_assert_true (number != NULL && number < other);
    const char *lack = strstr (other, "x out of memory");
    g_assert_nonnull (lack);
    if (i == 0)
      assert_contains (run.out, "not said"); /* of the memory */
  }
  write_file ("published.csv",
              "zero,sequence_tokens,outcome,mfu_causal,published\n2,65536,fits,0.4321,Somebody\n"
              "2,32768,out of memory,,Somebody\n",
              -1);
  g_auto (Run) run = run_cli ("plot", "heatmap", "scenario.ini", "--sweep", "zero=1,2", "--sweep", "sequence=32K,64K",
                              "--published", "published.csv", "-o", "-");
  g_assert_cmpstr (run.err, ==, "");
  assert_contains (run.out, "in brackets: Somebody");
  const char *second = strstr (run.out, "  zero 2 "), *first = strstr (run.out, "  zero 1 ");
  const char *number = strstr (run.out, "(43.2)"), *lack = strstr (run.out, "(x)");
  g_assert_true (second != NULL && second < lack && lack < number && number < first);
}

/* A degree that grows with the GPUs is one curve, named without its number. */
static void
test_degrees (void)
{
  if (!has_gnuplot ())
    return;
  write_file ("degrees.csv",
              "nodes,tensor,ring,outcome,tokens_per_s,peak_bytes,capacity_bytes,gpus\n"
              "1,2,1,fits,10,1e9,4e9,2\n2,4,1,fits,20,1e9,4e9,4\n1,1,2,fits,12,1e9,4e9,2\n2,1,4,fits,24,1e9,4e9,4\n",
              -1);
  draw ("scaling", "degrees.csv", "degrees.svg");
  g_autofree char *svg = read_back ("degrees.svg", NULL);
  assert_contains (svg, ">tensor<");
  assert_contains (svg, ">ring<");
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void
test_without_gnuplot (void)
{
  g_autofree char *path = g_strdup (g_getenv ("PATH"));
  write_good ();
  g_setenv ("PATH", folder, TRUE);
  g_auto (Run) run = run_cli ("plot", "scaling", "scenario.ini", "-o", "no.svg");
  g_setenv ("PATH", path, TRUE);
  assert_refused (&run, 1, (const char *[]){ "gnuplot is not in the PATH", "seqpar sweep", NULL });
  g_assert_false (is_there ("no.svg"));
}

/* One that does not start says why, however early it ends. */
static void
test_broken_gnuplot (void)
{
  static const char broken[] =
      "#!/bin/sh\nexec 0<&-\necho 'libgd.so.3: cannot open shared object file' >&2\nexit 127\n";
  g_autofree char *path = g_strdup (g_getenv ("PATH")), *bin = g_build_filename (folder, "bin", NULL);
  g_autofree char *program = g_build_filename (bin, "gnuplot", NULL);
  write_good ();
  g_assert_cmpint (g_mkdir (bin, 0700), ==, 0);
  write_file ("bin/gnuplot", broken, -1);
  g_assert_cmpint (g_chmod (program, 0700), ==, 0);
  g_setenv ("PATH", bin, TRUE);
  g_auto (Run) run = run_cli ("plot", "scaling", "scenario.ini", "-o", "no.svg");
  g_setenv ("PATH", path, TRUE);
  g_unlink (program);
  g_rmdir (bin);
  assert_refused (&run, 1, (const char *[]){ "gnuplot failed: libgd.so.3: cannot open shared object file", NULL });
  g_assert_false (is_there ("no.svg"));
}

/* What is kept beside a figure cannot be written: neither is the figure. */
static void
test_none_written (void)
{
  g_autofree char *script = g_build_filename (folder, "kept.gp", NULL);
  write_good ();
  g_assert_cmpint (g_mkdir (script, 0755), ==, 0);
  g_auto (Run) run =
      run_cli ("plot", "scaling", "scenario.ini", "--sweep", "sequence=4K,8K", "-o", "kept.svg", "--keep");
  assert_refused (&run, 1, (const char *const[]){ "kept.gp: cannot be written", NULL });
  g_assert_false (is_there ("kept.svg"));
  g_assert_false (is_there ("kept.dat"));
  g_assert_cmpint (g_rmdir (script), ==, 0);
}

static void
test_usage (void)
{
  write_good ();
  g_auto (Run) kind = run_cli ("plot", "scalign", "scenario.ini", "-o", "no.svg");
  assert_refused (&kind, 2, (const char *[]){ "did you mean scaling?", NULL });
  g_auto (Run) none = run_cli ("plot", "scaling", "scenario.ini");
  assert_refused (&none, 2, (const char *[]){ "-o is missing", NULL });
  g_auto (Run) suffix = run_cli ("plot", "scaling", "scenario.ini", "-o", "figure.jpeg");
  assert_refused (&suffix, 1, (const char *[]){ "figure.jpeg", ".png, .svg or .pdf", NULL });
  g_auto (Run) size = run_cli ("plot", "scaling", "scenario.ini", "-o", "no.svg", "--size", "900");
  assert_refused (&size, 2, (const char *[]){ "WIDTHxHEIGHT", NULL });
  g_auto (Run) small = run_cli ("plot", "scaling", "scenario.ini", "-o", "no.svg", "--size", "100x100");
  assert_refused (&small, 2, (const char *[]){ "at least 300x150", NULL });
  g_auto (Run) gone = run_cli ("plot", "scaling", "gone.csv", "-o", "no.svg");
  assert_refused (&gone, 1, (const char *[]){ "gone.csv", NULL });
  write_file ("some.csv", "a,b\n1,2\n", -1);
  g_auto (Run) set = run_cli ("plot", "scaling", "some.csv", "-o", "no.svg", "--set", "zero=1");
  assert_refused (&set, 2, (const char *[]){ "--set goes with a scenario", NULL });
  g_auto (Run) foreign = run_cli ("plot", "calibration", "some.csv", "-o", "no.svg");
  assert_refused (&foreign, 1, (const char *[]){ "some.csv", "seqpar calibrate import", NULL });
  g_autofree char *pipe_path = g_build_filename (folder, "pipe.csv", NULL);
  g_assert_cmpint (mkfifo (pipe_path, 0600), ==, 0);
  g_auto (Run) piped = run_cli ("plot", "calibration", "pipe.csv", "-o", "no.svg");
  assert_refused (&piped, 1, (const char *[]){ "pipe.csv: not a regular file", NULL });
  g_unlink (pipe_path);
  g_auto (Run) folder_there = run_cli ("plot", "scaling", "scenario.ini", "-o", "gone/figure.svg");
  g_assert_cmpint (folder_there.status, ==, 1);
  g_assert_false (is_there ("no.svg"));
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  for (guint i = 0; i < G_N_ELEMENTS (sweep_kinds); i++) {
    static const struct {
      const char *name;
      GTestDataFunc test;
    } tests[] = { { "formats", test_formats },
                  { "keep", test_keep },
                  { "injection", test_injection },
                  { "few-rows", test_few_rows },
                  { "no-rows", test_no_rows } };
    for (guint t = 0; t < G_N_ELEMENTS (tests); t++) {
      g_autofree char *path = g_strdup_printf ("/plot/%s/%s", tests[t].name, sweep_kinds[i]);
      g_test_add_data_func (path, sweep_kinds[i], tests[t].test);
    }
  }
  g_test_add_func ("/plot/name-of-file", test_name_of_file);
  g_test_add_func ("/plot/cell-twice", test_cell_twice);
  g_test_add_func ("/plot/points-in-front", test_points_in_front);
  g_test_add_func ("/plot/million-rows", test_million_rows);
  g_test_add_func ("/plot/cells-without-values", test_cells_without_values);
  g_test_add_func ("/plot/many-curves", test_many_curves);
  g_test_add_func ("/plot/published", test_published);
  g_test_add_func ("/plot/published-beside", test_published_beside);
  g_test_add_func ("/plot/degrees", test_degrees);
  g_test_add_func ("/plot/without-gnuplot", test_without_gnuplot);
  g_test_add_func ("/plot/broken-gnuplot", test_broken_gnuplot);
  g_test_add_func ("/plot/none-written", test_none_written);
  g_test_add_func ("/plot/usage", test_usage);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
