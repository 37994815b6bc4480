/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <sys/stat.h>

#include "models/inputs/ini.h"
#include "tests/input-file.h"

static const char good[] = "# a comment\n"
                           "[run]\n"
                           "sequence = 208K\n"
                           "\n"
                           "[link]\n"
                           "  rate=300 GB/s  \n"
                           "nodes = 16\n"
                           "latency = 3.4 us\n"
                           "share = 50%\n"
                           "on = true\n"
                           "kind = ring\n"
                           "name = Zürich, 2 halls\n";

typedef struct {
  gint64 sequence;
  double rate, latency, share;
  gint32 nodes;
  gboolean on;
  guint8 kind;
  char *name;
} Read;

static gboolean
read_all (const char *path, Read *ret, GError **error)
{
  static const char *const kinds[] = { "tree", "ring", "switched", NULL };
  g_autoptr (SpIni) ini = sp_ini_load (path, error);
  return ini != NULL && sp_ini_tokens (ini, "run", "sequence", SP_INI_REQUIRED, 1, 1 << 30, &ret->sequence, error) &&
         sp_ini_quantity (ini, "link", "rate", SP_INI_REQUIRED, SP_UNIT_BYTES_PER_S, 1e6, 1e14, &ret->rate, error) &&
         sp_ini_quantity (ini, "link", "latency", SP_INI_OPTIONAL, SP_UNIT_SECONDS, 0, 1, &ret->latency, error) &&
         sp_ini_quantity (ini, "link", "share", SP_INI_OPTIONAL, SP_UNIT_FRACTION, 0, 1, &ret->share, error) &&
         sp_ini_int (ini, "link", "nodes", SP_INI_OPTIONAL, 1, 64, &ret->nodes, error) &&
         sp_ini_bool (ini, "link", "on", SP_INI_OPTIONAL, &ret->on, error) &&
         sp_ini_choice (ini, "link", "kind", SP_INI_OPTIONAL, kinds, &ret->kind, error) &&
         sp_ini_string (ini, "link", "name", SP_INI_OPTIONAL, &ret->name, error) && sp_ini_finish (ini, error);
}

static void
test_good (void)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("good.ini", good, -1);
  Read got = { 0 };
  g_assert_true (read_all (path, &got, &error));
  g_assert_no_error (error);
  g_assert_cmpint (got.sequence, ==, 208 * 1024);
  g_assert_cmpfloat (got.rate, ==, 300e9);
  g_assert_cmpfloat (got.latency, ==, 3.4e-6);
  g_assert_cmpfloat (got.share, ==, 0.5);
  g_assert_cmpint (got.nodes, ==, 16);
  g_assert_true (got.on);
  g_assert_cmpint (got.kind, ==, 1);
  g_assert_cmpstr (got.name, ==, "Zürich, 2 halls");
  g_free (got.name);
  input_file_remove (path);
}

/* An absent optional key leaves what was there. */
static void
test_defaults (void)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("few.ini", "\xef\xbb\xbf[run]\r\nsequence = 1\r\n[link]\r\nrate = 1 Gb/s\r\n", -1);
  Read got = { .nodes = 7, .share = 0.25, .on = TRUE, .kind = 2 };
  g_assert_true (read_all (path, &got, &error));
  g_assert_no_error (error);
  g_assert_cmpfloat (got.rate, ==, 125e6);
  g_assert_cmpint (got.nodes, ==, 7);
  g_assert_cmpfloat (got.share, ==, 0.25);
  g_assert_true (got.on);
  g_assert_cmpint (got.kind, ==, 2);
  g_assert_null (got.name);
  input_file_remove (path);
}

/* `good` with one change, and what the error must say. */
/* clang-format off */
static const struct Bad {
  const char *name, *from, *to;
  const char *words[5];
} bad[] = {
  { "twice-key", "nodes = 16", "nodes = 16\nnodes = 8", { ":8:", "nodes", "twice", "line 7" } },
  { "twice-group", "[link]", "[link]\n[run]", { ":6:", "run", "twice", "line 2" } },
  { "no-equals", "nodes = 16", "nodes 16", { ":7:", "nodes 16", "key = value" } },
  { "no-key", "nodes = 16", "= 16", { ":7:", "expected a key" } },
  { "odd-key", "nodes = 16", "no[de]s = 16", { ":7:", "expected a key" } },
  { "key-with-space", "nodes = 16", "the nodes = 16", { ":7:", "expected a key" } },
  { "group-open", "[link]", "[link", { ":5:", "[link" } },
  { "group-empty", "[link]", "[]", { ":5:", "[group]" } },
  { "before-group", "# a comment", "lost = 1", { ":1:", "lost", "before the first [group]" } },
  { "semicolon", "# a comment", "; old style", { ":1:", "begins with #" } },
  { "control", "16", "1\x01 6", { ":7:", "control character 0x01" } },
  { "latin-1", "Zürich", "Z\xfcrich", { ":12:", "UTF-8" } },
  { "unknown-key", "nodes = 16", "noodes = 16", { "[link] noodes = \"16\"", "unknown key", "did you mean nodes?" } },
  { "unknown-group", "[link]", "[extra]\na = 1\n[link]", { "[extra]", "unknown group", "[run], [link]" } },
  { "group-near", "[link]", "[links]\na = 1\n[link]", { "[links]", "did you mean [link]?" } },
  { "other-group", "on = true", "on = true\nsequence = 1", { "[link] sequence = \"1\"", "belongs in [run]" } },
  { "missing", "sequence = 208K", "sequense = 208K", { "[run] sequence: missing", "a token count", "\"sequense\"" } },
  { "missing-rate", "  rate=300 GB/s  ", "", { "[link] rate: missing", "300 GB/s or 200 Gb/s" } },
  { "tokens-negative", "208K", "-3K",
    { "[run] sequence = \"-3K\": expected a token count from 1 to 1G (for example 208K)" } },
  { "tokens-zero", "208K", "0", { "[run] sequence = \"0\"", "from 1 to 1G" } },
  { "tokens-huge", "208K", "2G", { "[run] sequence = \"2G\"", "from 1 to 1G" } },
  { "tokens-overflow", "208K", "1e999", { "[run] sequence = \"1e999\"", "token count" } },
  { "tokens-digits", "208K", "99999999999999999999999999", { "[run] sequence = ", "from 1 to 1G" } },
  { "tokens-point", "208K", "1.5K", { "[run] sequence = \"1.5K\"", "(for example 208K)" } },
  { "tokens-case", "208K", "208k", { "[run] sequence = \"208k\"", "did you mean K?" } },
  { "tokens-unit", "208K", "208 KiB", { "[run] sequence = \"208 KiB\"", "(for example 208K)" } },
  { "tokens-empty", "208K", "", { "[run] sequence = \"\"", "token count" } },
  { "tokens-nan", "208K", "nan", { "[run] sequence = \"nan\"", "token count" } },
  { "tokens-hex", "208K", "0x10", { "[run] sequence = \"0x10\"", "token count" } },
  { "rate-bare", "300 GB/s", "300", { "[link] rate = \"300\": expected a rate such as 300 GB/s or 200 Gb/s" } },
  { "rate-case", "300 GB/s", "300 gb/s", { "[link] rate", "did you mean GB/s or Gb/s?" } },
  { "rate-size", "300 GB/s", "300 GB", { "[link] rate = \"300 GB\"", "did you mean GB/s?" } },
  { "rate-nan", "300 GB/s", "nan GB/s", { "[link] rate = \"nan GB/s\"", "expected a rate" } },
  { "rate-infinite", "300 GB/s", "inf GB/s", { "[link] rate", "expected a rate" } },
  { "rate-overflow", "300 GB/s", "1e300 TB/s", { "[link] rate", "from 1 MB/s to 100 TB/s" } },
  { "rate-hex", "300 GB/s", "0x3p4 GB/s", { "[link] rate", "expected a rate" } },
  { "rate-negative", "300 GB/s", "-300 GB/s", { "[link] rate", "from 1 MB/s" } },
  { "rate-comma", "300 GB/s", "300,5 GB/s", { "[link] rate", "expected a rate" } },
  { "rate-comment", "300 GB/s", "300 GB/s # measured", { "[link] rate", "comment needs a line of its own" } },
  { "time-unit", "3.4 us", "3.4 \xc2\xb5s", { "[link] latency", "such as 5 us" } },
  { "time-case", "3.4 us", "3.4 US", { "[link] latency", "did you mean us?" } },
  { "time-exponent", "3.4 us", "3.4e us", { "[link] latency", "expected a time" } },
  { "fraction-big", "50%", "150%", { "[link] share = \"150%\"", "from 0 to 1" } },
  { "int-fraction", "nodes = 16", "nodes = 1.5", { "[link] nodes = \"1.5\"", "whole number from 1 to 64" } },
  { "int-negative", "nodes = 16", "nodes = -1", { "[link] nodes = \"-1\"", "from 1 to 64" } },
  { "int-big", "nodes = 16", "nodes = 65", { "[link] nodes = \"65\"", "from 1 to 64" } },
  { "int-wraps", "nodes = 16", "nodes = 4294967297", { "[link] nodes", "from 1 to 64" } },
  { "bool", "true", "True", { "[link] on = \"True\"", "false, true", "did you mean true?" } },
  { "choice", "= ring", "= rnig", { "[link] kind = \"rnig\"", "tree, ring, switched", "did you mean ring?" } },
  { "string-empty", "Zürich, 2 halls", "", { "[link] name = \"\"", "expected a value" } },
};
/* clang-format on */

static void
test_bad (gconstpointer data)
{
  const struct Bad *row = data;
  g_autofree char *text = input_file_replace (good, row->from, row->to);
  char *path = input_file_new ("bad.ini", text, -1);
  g_autoptr (GError) error = NULL;
  Read got = { 0 };
  g_assert_false (read_all (path, &got, &error));
  g_free (got.name);
  input_file_assert_error (error, path, row->words);
  input_file_remove (path);
}

static void
assert_no_file (const char *path, const char *word)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpIni) ini = sp_ini_load (path, &error);
  g_assert_null (ini);
  g_assert_error (error, SP_INPUT_ERROR, SP_INPUT_ERROR_FILE);
  input_file_assert_error (error, path, (const char *const[]){ word, NULL });
}

static void
test_files (void)
{
  char *path = input_file_new ("empty.ini", "", 0);
  assert_no_file (path, "empty");
  g_autofree char *folder = g_path_get_dirname (path);
  assert_no_file (folder, "directory");
  g_autofree char *absent = g_build_filename (folder, "absent.ini", NULL);
  assert_no_file (absent, "No such file");
  g_autofree char *fifo = g_build_filename (folder, "fifo.ini", NULL);
  g_assert_cmpint (mkfifo (fifo, 0600), ==, 0);
  assert_no_file (fifo, "not a regular file");
  g_remove (fifo);
  input_file_remove (path);

  path = input_file_new ("nul.ini", "[a]\nb = 1\0 2\n", 13);
  assert_no_file (path, "control character 0x00");
  input_file_remove (path);

  g_autofree char *large = g_malloc ((1 << 20) + 1);
  memset (large, '#', (1 << 20) + 1);
  path = input_file_new ("large.ini", large, (1 << 20) + 1);
  assert_no_file (path, "1 MiB");
  input_file_remove (path);
  path = input_file_new ("comment.ini", large, 1 << 20);
  g_autoptr (GError) error = NULL;
  g_assert_null (sp_ini_load (path, &error));
  g_assert_error (error, SP_INPUT_ERROR, SP_INPUT_ERROR_SYNTAX);
  input_file_remove (path);
}

/* Any beginning of a file, and any byte of it changed, is read or refused. */
static void
test_broken (void)
{
  gsize length = strlen (good);
  for (gsize i = 0; i < 2 * length; i++) {
    g_autofree char *text = g_strdup (good);
    gsize at = i % length;
    text[at] = i < length ? '\0' : "\xff\n=[]%\x7f-"[i % 8];
    char *path = input_file_new ("broken.ini", text, i < length ? (gssize) at : (gssize) length);
    g_autoptr (GError) error = NULL;
    Read got = { 0 };
    if (!read_all (path, &got, &error))
      input_file_assert_error (error, path, (const char *const[]){ NULL });
    g_free (got.name);
    input_file_remove (path);
  }
}

static void
test_set (void)
{
  g_autoptr (GError) error = NULL;
  char *path = input_file_new ("set.ini", good, -1);
  g_autoptr (SpIni) ini = sp_ini_load (path, &error);
  g_assert_no_error (error);
  sp_ini_set (ini, "run", "sequence", " 4M ");
  sp_ini_set (ini, "link", "nodes", "four");
  gint64 sequence = 0;
  gint32 nodes = 0;
  g_assert_true (sp_ini_tokens (ini, "run", "sequence", SP_INI_REQUIRED, 1, 1 << 30, &sequence, &error));
  g_assert_cmpint (sequence, ==, 4 << 20);
  g_assert_false (sp_ini_int (ini, "link", "nodes", SP_INI_OPTIONAL, 1, 64, &nodes, &error));
  input_file_assert_error (error, path, (const char *const[]){ "(--set)", "[link] nodes = \"four\"", NULL });
  input_file_remove (path);
}

/* clang-format off */
static const struct Unit {
  const char *text;
  SpUnit unit;
  double value; /* NAN: must be refused */
} quantities[] = {
  { "80 GiB", SP_UNIT_BYTES, 80 * 0x1p30 },
  { "81920 MiB", SP_UNIT_BYTES, 80 * 0x1p30 },
  { "1 kB", SP_UNIT_BYTES, 1000 },
  { "1 KiB", SP_UNIT_BYTES, 1024 },
  { "0", SP_UNIT_BYTES, 0 },
  { "-0", SP_UNIT_BYTES, 0 },
  { "0 B", SP_UNIT_BYTES, 0 },
  { "1", SP_UNIT_BYTES, NAN },
  { "1 KB", SP_UNIT_BYTES, NAN },
  { "200 Gb/s", SP_UNIT_BYTES_PER_S, 25e9 },
  { "200Gb/s", SP_UNIT_BYTES_PER_S, 25e9 },
  { "2.5e2 GB/s", SP_UNIT_BYTES_PER_S, 250e9 },
  { "1 GB / s", SP_UNIT_BYTES_PER_S, NAN },
  { "5 us", SP_UNIT_SECONDS, 5e-6 },
  { ".5 ms", SP_UNIT_SECONDS, 0.5e-3 },
  { "5. s", SP_UNIT_SECONDS, 5 },
  { ". s", SP_UNIT_SECONDS, NAN },
  { "5 min", SP_UNIT_SECONDS, NAN },
  { "1G", SP_UNIT_TOKENS, 0x1p30 },
  { "4096", SP_UNIT_TOKENS, 4096 },
  { "4096 K", SP_UNIT_TOKENS, 0x1p22 },
  { "99999999G", SP_UNIT_TOKENS, NAN },
  { "312 TFLOP/s", SP_UNIT_FLOPS_PER_S, 312e12 },
  { "312 TFLOPS", SP_UNIT_FLOPS_PER_S, NAN },
  { "7%", SP_UNIT_FRACTION, 0.07 },
  { "0.07", SP_UNIT_FRACTION, 0.07 },
  { "--1", SP_UNIT_NUMBER, NAN },
  { "1e5", SP_UNIT_NUMBER, 1e5 },
  { "1e5", SP_UNIT_COUNT, NAN },
  { "", SP_UNIT_NUMBER, NAN },
  { " 1", SP_UNIT_NUMBER, NAN },
  { "infinity", SP_UNIT_NUMBER, NAN },
  { "1e400", SP_UNIT_NUMBER, NAN },
};
/* clang-format on */

static void
test_quantities (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (quantities); i++) {
    const struct Unit *row = &quantities[i];
    g_autoptr (GError) error = NULL;
    double value = 42;
    gboolean ok = sp_parse_quantity (row->text, row->unit, &value, &error);
    g_test_message ("\"%s\": %s", row->text, ok ? "read" : error->message);
    g_assert_true (ok == !isnan (row->value));
    g_assert_cmpfloat (value, ==, ok ? row->value : 42); /* untouched on failure */
    g_assert_false (ok && signbit (value));
  }
}

static void
test_format (void)
{
  /* clang-format off */
  static const struct {
    double value;
    SpUnit unit;
    const char *text;
  } rows[] = {
    { 208 * 1024, SP_UNIT_TOKENS, "208K" },      { 2999, SP_UNIT_TOKENS, "2999" },
    { 0x1p30, SP_UNIT_TOKENS, "1G" },            { 25e9, SP_UNIT_BYTES_PER_S, "25 GB/s" },
    { 81559 * 0x1p20, SP_UNIT_BYTES, "81559 MiB" }, { 3.4e-6, SP_UNIT_SECONDS, "3.4 us" },
    { 312e12, SP_UNIT_FLOPS_PER_S, "312 TFLOP/s" }, { 0.07, SP_UNIT_FRACTION, "0.07" },
    { 0, SP_UNIT_SECONDS, "0" },                 { 1e-5, SP_UNIT_NUMBER, "1e-05" },
  };
  /* clang-format on */
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *text = sp_format_quantity (rows[i].value, rows[i].unit);
    g_assert_cmpstr (text, ==, rows[i].text);
    double back;
    g_assert_true (sp_parse_quantity (text, rows[i].unit, &back, NULL));
    g_assert_cmpfloat (back, ==, rows[i].value);
  }
  for (gint64 tokens = 1; tokens < 1 << 30; tokens = tokens * 3 + 1) {
    g_autofree char *text = sp_format_quantity ((double) tokens, SP_UNIT_TOKENS);
    double back;
    g_assert_true (sp_parse_quantity (text, SP_UNIT_TOKENS, &back, NULL));
    g_assert_cmpint ((gint64) back, ==, tokens);
  }
}

static void
test_nearest (void)
{
  static const char *const names[] = { "tensor", "ulysses", "ring", "lasp", "sequence-regions", NULL };
  g_assert_cmpstr (sp_nearest ("ulises", names), ==, "ulysses");
  g_assert_cmpstr (sp_nearest ("Ring", names), ==, "ring");
  g_assert_cmpstr (sp_nearest ("sequence", names), ==, "sequence-regions");
  g_assert_cmpstr (sp_nearest ("rnig", names), ==, "ring");
  g_assert_null (sp_nearest ("gpipe", names));
  g_assert_null (sp_nearest ("rate", names));
  g_assert_null (sp_nearest ("", names));
  g_assert_null (sp_nearest ("x", names));
  g_autofree char *word = g_strnfill (1000, 'r');
  g_assert_null (sp_nearest (word, names));

  /* All that begin with the word, before those that are near it. */
  static const char *const devices[] = { "a100-40", "a100-80", "a40", "a800", "h100-pcie", "H100", NULL };
  static const struct {
    const char *word, *text;
  } rows[] = {
    { "a100", "; did you mean a100-40 or a100-80?" }, { "a8", "; did you mean a800?" },
    { "h100", "; did you mean h100-pcie or H100?" },  { "a", "" },
    { "a10-80", "; did you mean a100-80?" },          { "", "" },
    { "v100-32", "" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    g_autofree char *text = sp_did_you_mean (rows[i].word, devices);
    g_assert_cmpstr (text, ==, rows[i].text);
  }
  static const char *const many[] = { "aa1", "aa2", "aa3", "aa4", "aa5", "aa6", "aa7", NULL };
  g_autofree char *text = sp_did_you_mean ("aa", many);
  g_assert_cmpstr (text, ==, "; did you mean aa1, aa2, aa3, aa4, aa5 or aa6?");
}

static void
test_shown (void)
{
  g_autofree char *text = g_strnfill (100, 'a');
  g_autofree char *shown = sp_shown (text);
  g_assert_cmpuint (strlen (shown), ==, 63);
  g_autofree char *plain = sp_shown ("a\x1b[31m\nb\xff");
  g_assert_null (strpbrk (plain, "\x1b\n\xff"));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/ini/good", test_good);
  g_test_add_func ("/ini/defaults", test_defaults);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autofree char *name = g_strconcat ("/ini/bad/", bad[i].name, NULL);
    g_test_add_data_func (name, &bad[i], test_bad);
  }
  g_test_add_func ("/ini/files", test_files);
  g_test_add_func ("/ini/broken", test_broken);
  g_test_add_func ("/ini/set", test_set);
  g_test_add_func ("/ini/quantities", test_quantities);
  g_test_add_func ("/ini/format", test_format);
  g_test_add_func ("/ini/nearest", test_nearest);
  g_test_add_func ("/ini/shown", test_shown);
  return g_test_run ();
}
