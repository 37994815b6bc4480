/* SPDX-License-Identifier: Apache-2.0 */
/* The measured CSV: what is written is read again the same, and what is wrong is refused with its line. */
#include "calibrate/measured.h"

#include <string.h>

#define HEADER                                                                                                         \
  "op,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,statistic,repeat,time_s,bytes_per_s,"  \
  "mark,flops,clock_hz,power_w,temperature_c,throttle\n"
/* Without the columns that came last, and without the one before them. */
#define OLDER_HEADER                                                                                                   \
  "op,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,statistic,repeat,time_s,bytes_per_s,"  \
  "mark,flops\n"
#define OLD_HEADER                                                                                                     \
  "op,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,statistic,repeat,time_s,bytes_per_s,"  \
  "mark\n"
#define BETWEEN_HEADER                                                                                                 \
  "op,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,statistic,repeat,time_s,bytes_per_s,"  \
  "mark,flops,clock_hz\n"
#define FIRST "# seqpar-measured: 1\n"
#define ROW                                                                                                            \
  "gemm,cublaslt,bf16,1,1,,,,128,2048,5632,,,,all-reduce,sample,3,3.99e-05,,outlier,,1.755e+09,698.4,61.5,"            \
  "sw-power-cap+sw-thermal\n"

static void
test_row (void)
{
  const char *text = FIRST "# card: NVIDIA H100\n# power_limit_w: 700\n# max_clock_hz: 1980000000\n# note: one\n"
                           "# note: two\n" HEADER ROW;
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) measured = sp_measured_parse ("a.csv", text, strlen (text), &error);
  g_assert_no_error (error);
  g_assert_cmpuint (measured->rows->len, ==, 1);
  const SpMeasuredRow *row = &g_array_index (measured->rows, SpMeasuredRow, 0);
  g_assert_cmpint (row->op, ==, SP_MEASURED_GEMM);
  g_assert_cmpint (row->beside, ==, SP_MEASURED_ALL_REDUCE);
  g_assert_cmpint (row->statistic, ==, SP_STATISTIC_SAMPLE);
  g_assert_cmpint (row->mark, ==, SP_MARK_OUTLIER);
  g_assert_cmpstr (row->variant, ==, "cublaslt");
  g_assert_cmpint (row->k, ==, 5632);
  g_assert_cmpint (row->bytes, ==, SP_MEASURED_EMPTY);
  g_assert_cmpint (row->repeat, ==, 3);
  g_assert_true (row->time_s == 39.9 / 1e6 && row->bytes_per_s == 0);
  g_assert_true (row->clock_hz == 1.755e9 && row->power_w == 698.4 && row->temperature_c == 61.5);
  g_assert_cmpstr (row->throttle, ==, "sw-power-cap+sw-thermal");
  g_assert_false (measured->is_old);
  g_assert_cmpstr (sp_measured_field (measured, "card"), ==, "NVIDIA H100");
  g_assert_cmpstr (sp_measured_field (measured, "power_limit_w"), ==, "700");
  g_autoptr (GString) out = g_string_new (NULL);
  sp_measured_write (measured, out);
  g_assert_cmpstr (out->str, ==, text);
}

/* Files of both older versions: what they lack is empty. */
static void
test_older (void)
{
  static const struct {
    const char *text;
    double flops;
  } files[] = {
    { FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,1,,\n", 0 },
    { FIRST OLDER_HEADER "kernel,norm,,,,,,,,,,,,,,mean,,1,,,5\n", 5 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (files); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpMeasured) measured = sp_measured_parse ("a.csv", files[i].text, strlen (files[i].text), &error);
    g_assert_no_error (error);
    g_assert_true (measured->is_old);
    const SpMeasuredRow *row = &g_array_index (measured->rows, SpMeasuredRow, 0);
    g_assert_true (row->time_s == 1 && row->flops == files[i].flops);
    g_assert_true (row->clock_hz == 0 && row->power_w == 0 && row->temperature_c == 0);
    g_assert_cmpstr (row->throttle, ==, "");
  }
}

/* Any row, any double: the same bits come back. */
static void
test_round_trip (void)
{
  guint32 seed = g_test_rand_int ();
  g_test_message ("seed %u", seed);
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  for (guint i = 0; i < 200; i++) {
    SpMeasuredRow row = sp_measured_row (g_rand_int_range (rand, 1, SP_MEASURED_N_OPS));
    row.beside = g_rand_int_range (rand, 0, SP_MEASURED_N_OPS);
    row.statistic = g_rand_int_range (rand, 0, SP_STATISTIC_N);
    row.mark = g_rand_int_range (rand, 0, SP_MARK_N);
    row.variant = i % 2 ? "ring/simple" : "";
    row.dtype = i % 3 ? "bf16" : "";
    row.from = g_rand_int_range (rand, -1, 8);
    row.bytes = g_rand_int_range (rand, -1, G_MAXINT);
    row.clock_hz = i % 4 ? g_rand_double_range (rand, 1e8, 3e9) : 0;
    row.throttle = i % 4 == 1 ? "sw-power-cap" : "";
    row.time_s = i % 5 ? g_rand_double_range (rand, 1e-9, 10) : 0;
    row.bytes_per_s = i % 5 ? 0 : g_rand_double_range (rand, 1, 1e12);
    sp_measured_add (measured, &row);
  }
  sp_measured_say (measured, "nccl", "2.28.3");
  sp_measured_say (measured, "card", "A");
  sp_measured_say (measured, "card", "B\nC");
  g_assert_cmpstr (sp_measured_field (measured, "card"), ==, "A; B C");
  g_autoptr (GString) once = g_string_new (NULL), twice = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  sp_measured_write (measured, once);
  g_autoptr (SpMeasured) read = sp_measured_parse ("a.csv", once->str, once->len, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (read->rows->len, ==, measured->rows->len);
  for (guint i = 0; i < read->rows->len; i++) {
    const SpMeasuredRow *a = &g_array_index (read->rows, SpMeasuredRow, i);
    const SpMeasuredRow *b = &g_array_index (measured->rows, SpMeasuredRow, i);
    g_assert_true (a->time_s == b->time_s && a->bytes_per_s == b->bytes_per_s);
    g_assert_true (a->clock_hz == b->clock_hz && g_str_equal (a->throttle, b->throttle));
    g_assert_true (a->op == b->op && a->beside == b->beside && a->bytes == b->bytes && a->from == b->from);
  }
  sp_measured_write (read, twice);
  g_assert_cmpstr (once->str, ==, twice->str);
}

static const struct {
  const char *name, *text, *error; /* how it begins, and one word more */
  const char *word;
} wrong[] = {
  { "empty", "", "a.csv: ", "column names" },
  { "version", "# seqpar-measured: 2\n" HEADER, "a.csv:1: ", "seqpar-measured: 1" },
  { "header", FIRST, "a.csv: ", "column names" },
  { "key", FIRST "# drivr: 1\n" HEADER, "a.csv:2: \"drivr\"", "driver" },
  { "key-twice", FIRST "# card: a\n# card: b\n" HEADER, "a.csv:3: ", "twice" },
  { "column", FIRST "op,varient\n", "a.csv:2: \"varient\"", "variant?" },
  { "order", FIRST "op,dtype\n", "a.csv:2: column 2", "variant" },
  { "missing", FIRST "op,variant\n", "a.csv:2: ", "dtype is missing" },
  { "between", FIRST BETWEEN_HEADER, "a.csv:2: ", "power_w is missing" },
  { "short", FIRST OLD_HEADER "gemm,,\n", "a.csv:3: 3 columns", "20" },
  { "op", FIRST OLD_HEADER "all-reduse,,,,,,,,,,,,,,,mean,,1,,\n", "a.csv:3: op = \"all-reduse\"", "mean all-reduce?" },
  { "no-op", FIRST OLD_HEADER ",,,,,,,,,,,,,,,mean,,1,,\n", "a.csv:3: op = \"\"", "gemm" },
  { "statistic", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mode,,1,,\n", "a.csv:3: statistic", "median" },
  { "mark", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,1,,bad\n", "a.csv:3: mark", "outlier" },
  { "word", FIRST OLD_HEADER "gemm,A b,,,,,,,,,,,,,,mean,,1,,\n", "a.csv:3: variant", "a-z" },
  { "ranks", FIRST OLD_HEADER "gemm,,,0,,,,,,,,,,,,mean,,1,,\n", "a.csv:3: ranks = \"0\"", "from 1" },
  { "groups", FIRST OLD_HEADER "gemm,,,16777217,,,,,,,,,,,,mean,,1,,\n", "a.csv:3: ranks = \"16777217\"", "to 2^24" },
  { "whole", FIRST OLD_HEADER "gemm,,,,,,,1.5,,,,,,,,mean,,1,,\n", "a.csv:3: bytes = \"1.5\"", "whole" },
  { "space", FIRST OLD_HEADER "gemm,,,,,,, 15,,,,,,,,mean,,1,,\n", "a.csv:3: bytes", "whole" },
  { "huge", FIRST OLD_HEADER "gemm,,,,,,,99999999999999999999,,,,,,,,mean,,1,,\n", "a.csv:3: bytes", "whole" },
  { "nan", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,nan,,\n", "a.csv:3: time_s = \"nan\"", "finite" },
  { "infinite", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,1e999,,\n", "a.csv:3: time_s", "finite" },
  { "negative", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,-1,,\n", "a.csv:3: time_s", "above 0" },
  { "hexadecimal", FIRST OLD_HEADER "gemm,,,,,,,,,,,,,,,mean,,0x1,,\n", "a.csv:3: time_s", "finite" },
  { "no-time", FIRST OLD_HEADER "\ngemm,,,,,,,,,,,,,,,mean,,,,\n", "a.csv:4: ", "both empty" },
  { "not-utf8", FIRST "# card: \xff\n" HEADER, "a.csv: ", "UTF-8" },
};

static void
test_wrong (gconstpointer data)
{
  const guint i = GPOINTER_TO_UINT (data);
  g_autoptr (GError) error = NULL;
  g_assert_null (sp_measured_parse ("a.csv", wrong[i].text, strlen (wrong[i].text), &error));
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_true (error->domain == SP_MEASURED_ERROR);
  g_assert_true (g_str_has_prefix (error->message, wrong[i].error));
  g_assert_nonnull (strstr (error->message, wrong[i].word));
  g_assert_null (strchr (error->message, '\n'));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/measured/row", test_row);
  g_test_add_func ("/measured/older", test_older);
  g_test_add_func ("/measured/round-trip", test_round_trip);
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++) {
    g_autofree char *path = g_strconcat ("/measured/wrong/", wrong[i].name, NULL);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_wrong);
  }
  return g_test_run ();
}
