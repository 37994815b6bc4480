/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs' measurements: public files of $SEQPAR_SHARED to the digit, small texts for each form of a format. */
#include "calibrate/import.h"

#include <string.h>

static SpMeasured *
import_text (const char *text, const SpImportGiven *given, GError **error)
{
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  return sp_import_text ("a.txt", text, strlen (text), given, measured, error) ? g_steal_pointer (&measured) : NULL;
}

/* NULL, and the test skipped, without the folder. */
static SpMeasured *
import_file (const char *name, const SpImportGiven *given)
{
  const char *shared = g_getenv ("SEQPAR_SHARED");
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  gsize length;
  if (shared == NULL) {
    g_test_skip ("SEQPAR_SHARED is not set: no public measurements");
    return NULL;
  }
  g_autofree char *path = g_build_filename (shared, "reference", name, NULL), *text = NULL;
  g_file_get_contents (path, &text, &length, &error);
  g_assert_no_error (error);
  sp_import_text (path, text, length, given, measured, &error);
  g_assert_no_error (error);
  return g_steal_pointer (&measured);
}

static const SpMeasuredRow *
row_of (const SpMeasured *measured, guint i)
{
  g_assert_cmpuint (i, <, measured->rows->len);
  return &g_array_index (measured->rows, SpMeasuredRow, i);
}

/* GB/s as nccl-tests prints it for an all-reduce. */
static double
bus_rate (const SpMeasuredRow *row)
{
  return (double) row->bytes / row->time_s * 2 * (double) (row->ranks - 1) / (double) row->ranks / 1e9;
}

static void
assert_group (const SpMeasured *measured, gint64 ranks, gint64 nodes, const char *dtype)
{
  for (guint i = 0; i < measured->rows->len; i++) {
    const SpMeasuredRow *row = row_of (measured, i);
    g_assert_cmpint (row->op, ==, SP_MEASURED_ALL_REDUCE);
    g_assert_cmpint (row->ranks, ==, ranks);
    g_assert_cmpint (row->nodes, ==, nodes);
    g_assert_cmpstr (row->dtype, ==, dtype);
    g_assert_cmpint (row->statistic, ==, SP_STATISTIC_MEAN);
    g_assert_cmpint (row->mark, ==, SP_MARK_NONE);
    g_assert_cmpstr (row->variant, ==, i % 2 == 0 ? "out-of-place" : "in-place");
  }
}

/* --- public files ------------------------------------------------------------------------------------------------- */

static void
test_a100_roce (void)
{
  g_autoptr (SpMeasured) measured = import_file ("cases/nccl/all_reduce_2x8_a100-40_roce.txt", &(SpImportGiven){ 0 });
  if (measured == NULL)
    return;
  g_assert_cmpuint (measured->rows->len, ==, 62);
  assert_group (measured, 16, 2, "fp32");
  g_assert_cmpstr (sp_measured_field (measured, "card"), ==, "NVIDIA A100-SXM4-40GB");
  for (guint i = 0; i < 62; i++) /* 8 B to 8 GiB, doubled, out of place and in place */
    g_assert_cmpint (row_of (measured, i)->bytes, ==, G_GINT64_CONSTANT (8) << (i / 2));
  g_assert_true (row_of (measured, 0)->time_s == 36.47e-6 && row_of (measured, 1)->time_s == 34.74e-6);
  g_assert_true (row_of (measured, 61)->time_s == 67811e-6);
  g_assert_cmpfloat_with_epsilon (bus_rate (row_of (measured, 60)), 237.94, 0.01);
}

static void
test_h100_tcpx (void)
{
  g_autoptr (SpMeasured) measured = import_file ("cases/nccl/all_reduce_2x8_h100_tcpx.txt", &(SpImportGiven){ 0 });
  if (measured == NULL)
    return;
  g_assert_cmpuint (measured->rows->len, ==, 62);
  assert_group (measured, 16, 2, "fp32");
  g_assert_true (row_of (measured, 1)->time_s == 123.5e-6);
  g_assert_cmpfloat_with_epsilon (bus_rate (row_of (measured, 60)), 338.82, 0.01);
}

/* Above the links' 450 GB/s: the switch adds. */
static void
test_h100_nvswitch (void)
{
  g_autoptr (SpMeasured) measured = import_file ("cases/nccl/all_reduce_8_h100_nvswitch.txt", &(SpImportGiven){ 0 });
  if (measured == NULL)
    return;
  g_assert_cmpuint (measured->rows->len, ==, 8);
  assert_group (measured, 8, 1, "fp32");
  g_assert_cmpfloat_with_epsilon (bus_rate (row_of (measured, 6)), 470.73, 0.01);
}

static void
test_a40_box (void)
{
  static const gint64 ranks[] = { 2, 4, 2, 4 };
  static const double best[] = { 47.49, 1.44, 4.02, 234.74 };
  const SpImportGiven given = { .op = SP_MEASURED_ALL_REDUCE, .nodes = 1 };
  g_autoptr (SpMeasured) measured = import_file ("cases/nccl/all_reduce_a40_box_4cases.txt", &given);
  if (measured == NULL)
    return;
  g_assert_cmpuint (measured->rows->len, ==, 32);
  for (guint t = 0; t < 4; t++) {
    double most = 0;
    for (guint i = 8 * t; i < 8 * t + 8; i++) {
      g_assert_cmpint (row_of (measured, i)->ranks, ==, ranks[t]);
      most = MAX (most, bus_rate (row_of (measured, i)));
    }
    g_assert_cmpfloat_with_epsilon (most, best[t], 0.01);
  }
  g_assert_cmpstr (row_of (measured, 0)->variant, ==, "out-of-place/2x-a40-nv4-bridge-pair-gpu-0-1");
  g_assert_cmpstr (row_of (measured, 17)->variant, ==, "in-place/2x-a40-gpu-1-2-same-socket-node-p2p-disabled");
  /* The outlier stays as it is, and unmarked. */
  g_assert_cmpfloat_with_epsilon (bus_rate (row_of (measured, 29)), 164.13, 0.01);
  g_assert_cmpint (row_of (measured, 29)->mark, ==, SP_MARK_NONE);
}

static void
test_titan_p2p (void)
{
  const char *name = "cases/nccl/p2pBandwidthLatencyTest_8_titanrtx_pcie.txt";
  g_autoptr (SpMeasured) measured = import_file (name, &(SpImportGiven){ 0 });
  if (measured == NULL)
    return;
  g_assert_cmpuint (measured->rows->len, ==, 3 * 64); /* the matrix of connections has no unit, and is no time */
  g_assert_cmpstr (sp_measured_field (measured, "card"), ==, "TITAN RTX");
  g_assert_cmpint (row_of (measured, 0)->op, ==, SP_MEASURED_MEMORY);
  g_assert_true (row_of (measured, 0)->bytes_per_s == 549.72e9);
  const SpMeasuredRow *way = row_of (measured, 8 * 3 + 2), *both = row_of (measured, 64 + 8 * 7 + 6),
                      *late = row_of (measured, 128 + 8 * 4 + 7);
  g_assert_cmpint (way->op, ==, SP_MEASURED_P2P);
  g_assert_cmpint (way->from, ==, 3);
  g_assert_cmpint (way->to, ==, 2);
  g_assert_true (way->bytes_per_s == 9.96e9 && way->time_s == 0);
  g_assert_cmpint (both->op, ==, SP_MEASURED_P2P_BOTH);
  g_assert_true (both->bytes_per_s == 9.97e9);
  g_assert_cmpint (late->op, ==, SP_MEASURED_P2P);
  g_assert_cmpstr (late->variant, ==, "p2p-enabled/latency");
  g_assert_true (late->time_s == 14.37e-6 && late->bytes_per_s == 0);
}

static void
test_kernels (void)
{
  const SpImportGiven linear = { .op = SP_MEASURED_LINEAR_ATTENTION }, two = { .ranks = 2, .nodes = 1 };
  g_autoptr (SpMeasured) gemm = import_file ("measured/h100-gemm-bf16.csv", &(SpImportGiven){ 0 });
  if (gemm == NULL)
    return;
  g_assert_cmpint (row_of (gemm, 5)->op, ==, SP_MEASURED_GEMM); /* 128,2048,5632: m, k, n */
  g_assert_cmpint (row_of (gemm, 5)->n, ==, 5632);
  g_assert_cmpint (row_of (gemm, 5)->k, ==, 2048);
  g_assert_cmpint (row_of (gemm, 5)->statistic, ==, SP_STATISTIC_MAX);
  g_assert_true (row_of (gemm, 5)->time_s == 51.71e-6);
  g_assert_cmpstr (row_of (gemm, 5)->dtype, ==, "bf16");

  g_autoptr (SpMeasured) softmax = import_file ("measured/h100-softmax-attention-bf16.csv", &(SpImportGiven){ 0 });
  g_assert_cmpuint (softmax->rows->len, ==, 40 * 3);
  g_assert_cmpint (row_of (softmax, 4)->op, ==, SP_MEASURED_ATTENTION_BACKWARD);
  g_assert_cmpstr (row_of (softmax, 4)->variant, ==, "flash/causal");
  g_assert_true (row_of (softmax, 4)->time_s == 360.9e-6);
  g_assert_true (row_of (softmax, 4)->m == 2048 && row_of (softmax, 4)->n == 2048 && row_of (softmax, 4)->k == 128);

  g_autoptr (SpMeasured) fla = import_file ("measured/h100-fla-simple-gla.csv", &linear);
  g_assert_cmpuint (fla->rows->len, ==, 20 * 3);
  g_assert_cmpint (row_of (fla, 3)->op, ==, SP_MEASURED_LINEAR_ATTENTION_BACKWARD);
  g_assert_cmpstr (row_of (fla, 3)->variant, ==, "fla-chunk/with-forward");
  g_assert_true (row_of (fla, 0)->m == 8192 && row_of (fla, 0)->n == 128 && row_of (fla, 0)->heads == 16);

  g_autoptr (SpMeasured) nccl = import_file ("measured/h100x2-nccl.csv", &two);
  g_assert_cmpuint (nccl->rows->len, ==, 66 * 3);
  g_assert_cmpint (row_of (nccl, 0)->op, ==, SP_MEASURED_SEND_RECEIVE);
  g_assert_cmpstr (row_of (nccl, 0)->variant, ==, "ring");
  g_assert_true (row_of (nccl, 0)->bytes == 1024 && row_of (nccl, 0)->time_s == 20.19e-6);
  g_assert_cmpint (row_of (nccl, 0)->ranks, ==, 2);
}

/* --- forms of nccl-tests ------------------------------------------------------------------------------------------ */

#define NAMES "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
#define SUM "# command: all_reduce_perf -g 4\n" NAMES

static const struct {
  const char *name, *text;
  SpImportGiven given;
  const char *rows; /* as they are written, up to beside, without what is empty */
} forms[] = {
  { "2017",
    "# NCCL Tests compiled with NCCL 2.0\n# Using devices\n#   Rank  0 on  node0 device  0 [0x06] Tesla P100\n"
    "#   Rank  1 on  node0 device  1 [0x07] Tesla P100\n"
    "#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res\n"
    " 1024 256 float max 20.5 0.05 0.05 0e+00 21 0.05 0.05 2e-04\n",
    { .op = SP_MEASURED_ALL_REDUCE },
    "all-reduce,out-of-place/max,fp32,2,1,,,1024,mean,2.05e-05,;all-reduce,in-place/"
    "max,fp32,2,1,,,1024,mean,2.1e-05,wrong;" },
  { "no-redop-no-root",
    "# command: mpirun -np 8 ./build/all_gather_perf -g 1\n# Using devices\n"
    "#   Rank  0 Pid 7 on a device  0 [0x06] Tesla V100\n#   Rank  1 Pid 7 on b device  0 [0x06] Tesla V100\n"
    "# size count type time algbw busbw error time algbw busbw error\n"
    "   4096  512  half  1.2e+05 0.00 0.00 0e+00  30.5 0.13 0.07 N/A\n",
    { 0 },
    "all-gather,out-of-place,fp16,2,2,,,4096,mean,0.12,;all-gather,in-place,fp16,2,2,,,4096,mean,3.05e-05,;" },
  { "root",
    "# command: broadcast_perf -t 2 -g 2\n# size count type root time algbw busbw error time algbw busbw error\n"
    "4096 512 double 0 10 0.41 0.41 0 10 0.41 0.41 0\n",
    { 0 },
    "broadcast,out-of-place,fp64,4,1,,,4096,mean,1e-05,;broadcast,in-place,fp64,4,1,,,4096,mean,1e-05,;" },
  { "not-in-place",
    "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
    "# Collective test starting: alltoall_perf\n" NAMES "4096 512 bfloat16 none -1 10 0.41 0.31 0 10.5 0.39 0.29 N/A\n",
    { .ranks = 4, .nodes = 1 },
    "all-to-all,out-of-place,bf16,4,1,,,4096,mean,1e-05,;all-to-all,in-place,bf16,4,1,,,4096,mean,1.05e-05,;" },
  { "wrong",
    SUM "64 16 float sum -1 10 0.01 0.01 3 10 0.01 0.01 1.2e+05\n",
    { 0 },
    "all-reduce,out-of-place,fp32,4,1,,,64,mean,1e-05,wrong;all-reduce,in-place,fp32,4,1,,,64,mean,1e-05,wrong;" },
  { "not-checked",
    SUM "64 16 f8e4m3 avg -1 10 0.01 0.01 N/A N/A N/A N/A N/A\n",
    { 0 },
    "all-reduce,out-of-place/avg,fp8,4,1,,,64,mean,1e-05,;" },
  { "no-bytes",
    SUM "0 0 float sum -1 0.2 0.00 0.00 0 0.2 0.00 0.00 0\n64 16 float sum -1 10 0.01 0.01 0 11 0.01 0.01 0\n",
    { 0 },
    "all-reduce,out-of-place,fp32,4,1,,,64,mean,1e-05,;all-reduce,in-place,fp32,4,1,,,64,mean,1.1e-05,;" },
  { "cpu-time",
    "# command: sendrecv_perf -g 2 -C 1\n# size count type redop root cputime algbw busbw #wrong\n"
    "64 16 float none -1 4.5 0.01 0.01 0\n",
    { 0 },
    "launch,send-receive/out-of-place,fp32,2,1,,,64,mean,4.5e-06,;" },
  { "tagged-and-cut",
    "[1,0]<stdout>:# command: reduce_scatter_perf -g 4\n[1,0]<stdout>:" NAMES
    "node0:12:34 [0] NCCL INFO Channel 00\n[1,0]<stdout>:  64 16 float sum -1 10 0.01 0.01 0 11 0.01 0.01 0\n"
    "[1,0]<stdout>:  128 32 float sum -1 10\n",
    { 0 },
    "reduce-scatter,out-of-place,fp32,4,1,,,64,mean,1e-05,;reduce-scatter,in-place,fp32,4,1,,,64,mean,1.1e-05,;" },
  { "groups",
    "# Collective test starting: all_reduce_perf\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 1 on a device  0 [0000:04:00] NVIDIA H100\n#  Rank  0 Group  1 Pid 2 on a device  1 "
    "[0000:05:00] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid 3 on b device  0 [0000:04:00] NVIDIA H100\n#  Rank  1 Group  1 Pid 4 on b device  1 "
    "[0000:05:00] NVIDIA H100\n" NAMES "64 16 float sum -1 10 0.01 0.01 0 N/A N/A N/A N/A\n",
    { 0 },
    "all-reduce,out-of-place,fp32,2,2,,,64,mean,1e-05,;" },
  { "left-out",
    "# command: reduce_perf -g 2\n" NAMES "64 16 float sum 0 10 0.01 0.01 0 10 0.01 0.01 0\n"
    "# command: all_reduce_perf -g 2\n" NAMES "64 16 float sum -1 10 0.01 0.01 0 N/A N/A N/A N/A\n",
    { 0 },
    "all-reduce,out-of-place,fp32,2,1,,,64,mean,1e-05,;" },
  { "average",
    "# command: all_reduce_perf -g 4 -a 3\n" NAMES "64 16 float sum -1 10 0.01 0.01 0 N/A N/A N/A N/A\n",
    { 0 },
    "all-reduce,out-of-place,fp32,4,1,,,64,mean,1e-05,;" },
  { "p2p-reads",
    "Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)\n   D\\D     0      1\n     0 700.0 20.5\n     1 "
    "21.5 701.0\n"
    "P2P=Disabled Latency Matrix (us)\n   GPU     0\n     0   1.5\n\n   CPU     0\n     0   2.5\n",
    { 0 },
    "memory,p2p-enabled/reads,,1,1,0,0,,mean,,7e+11;p2p,p2p-enabled/reads,,2,1,1,0,,mean,,2.05e+10;"
    "p2p,p2p-enabled/reads,,2,1,0,1,,mean,,2.15e+10;memory,p2p-enabled/reads,,1,1,1,1,,mean,,7.01e+11;"
    "memory,p2p-disabled/latency,,1,1,0,0,4,mean,1.5e-06,;launch,p2p-disabled/latency,,1,1,0,0,4,mean,2.5e-06,;" },
};

static char *
rows_text (const SpMeasured *measured)
{
  GString *text = g_string_new (NULL);
  g_autoptr (GString) csv = g_string_new (NULL);
  sp_measured_write (measured, csv);
  const char *columns = strstr (csv->str, "\nop,") + 1;
  g_auto (GStrv) lines = g_strsplit (strchr (columns, '\n') + 1, "\n", -1);
  for (guint i = 0; lines[i] != NULL && *lines[i] != '\0'; i++) {
    g_auto (GStrv) c = g_strsplit (lines[i], ",", -1);
    g_string_append_printf (text, "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s%s;", c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7],
                            c[15], c[17], c[18], c[19]);
  }
  return g_string_free (text, FALSE);
}

static void
test_form (gconstpointer data)
{
  const guint i = GPOINTER_TO_UINT (data);
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) measured = import_text (forms[i].text, &forms[i].given, &error);
  g_assert_no_error (error);
  g_autofree char *rows = rows_text (measured);
  g_assert_cmpstr (rows, ==, forms[i].rows);
  if (g_str_equal (forms[i].name, "average")) {
    g_assert_cmpuint (measured->notes->len, ==, 1);
    g_assert_nonnull (strstr (measured->notes->pdata[0], "the largest of the ranks' means"));
  }
  if (g_str_equal (forms[i].name, "not-in-place"))
    g_assert_cmpstr (sp_measured_field (measured, "nccl"), ==, "2.28.7");
}

/* Two files make one set, but of one card. */
static void
test_two_files (void)
{
#define FILE_OF(card)                                                                                                  \
  "# command: all_reduce_perf\n# Using devices\n#  Rank  0 Pid 1 on a device  0 [0x1] " card                           \
  "\n#  Rank  1 Pid 1 on a device  1 [0x2] " card "\n" NAMES "64 16 float sum -1 10 0.01 0.01 0 11 0.01 0.01 0\n"
  const SpImportGiven given = { 0 };
  g_autoptr (GError) error = NULL;
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  for (guint i = 0; i < 2; i++) {
    const char *name = i == 0 ? "some/a.txt" : "b.txt";
    sp_import_text (name, FILE_OF ("H100"), strlen (FILE_OF ("H100")), &given, measured, &error);
    g_assert_no_error (error);
  }
  g_assert_cmpuint (measured->rows->len, ==, 4);
  g_assert_cmpstr (sp_measured_field (measured, "card"), ==, "H100");
  g_assert_cmpstr (sp_measured_field (measured, "source"), ==, "a.txt (nccl-tests); b.txt (nccl-tests)");
  g_assert_false (sp_import_text ("c.txt", FILE_OF ("A100"), strlen (FILE_OF ("A100")), &given, measured, &error));
  g_assert_true (g_str_has_prefix (error->message, "c.txt: is of another card than the files before (H100)"));
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static const struct {
  const char *name, *text;
  SpImportGiven given;
  const char *error;
} wrong[] = {
  { "unknown", "hello\n", { 0 }, "a.txt: expected a table" },
  { "measured", "# seqpar-measured: 1\n", { 0 }, "a.txt:1: is a measured CSV already" },
  { "no-op", NAMES, { 0 }, "a.txt:1: a table, and no line before says of which operation: give --op" },
  { "other-op", SUM, { .op = SP_MEASURED_ALL_GATHER }, "a.txt:2: all-reduce by the text, but --op says all-gather" },
  { "no-ranks",
    NAMES,
    { .op = SP_MEASURED_ALL_REDUCE },
    "a.txt:1: no line before says how many ranks there are: give --ranks" },
  { "no-nodes",
    "# command: mpirun -np 4 all_reduce_perf\n" NAMES,
    { 0 },
    "a.txt:2: no line before says how many nodes there are: give --nodes" },
  { "other-ranks", SUM, { .ranks = 2 }, "a.txt:2: 4 ranks by the text, but --ranks says 2" },
  { "no-rows", SUM, { 0 }, "a.txt: nccl-tests without a row" },
  { "short", SUM "64 16 float\n64 16 float\n", { 0 }, "a.txt:3: 3 columns: expected 13" },
  { "time",
    SUM "64 16 float sum -1 abc 0.01 0.01 0 10 0.01 0.01 0\n",
    { 0 },
    "a.txt:3: time = \"abc\": expected a time in us" },
  { "ratio",
    SUM "1048576 262144 float sum -1 10 104.86 104.86 0 10 104.86 104.86 0\n",
    { 0 },
    "a.txt:3: busbw / algbw is 1.000, but all-reduce of 4 ranks has 1.500" },
  { "twice",
    "# command: all_reduce_perf\n# Using devices\n#  Rank  0 Pid 1 on a device  0 [0x1] A\n#  Rank  0 Pid 2 on a "
    "device  0 [0x1] A\n" NAMES,
    { 0 },
    "a.txt:4: rank 0 a second time" },
  { "matrix", "P2P=Enabled Latency Matrix (us)\nGPU 0 1\n0 1.5\n", { 0 }, "a.txt:3: 1 columns: expected 2" },
  { "matrix-unit", "P2P=Enabled Latency Matrix (ms)\n", { 0 }, "a.txt:1: expected a matrix in (us)" },
  { "matrix-value",
    "P2P=Enabled Latency Matrix (us)\nGPU 0 1\n0 1.5 x\n",
    { 0 },
    "a.txt:3: \"x\": expected a time in us" },
  { "column", "m,k,heds,time_us\n", { 0 }, "a.txt:1: \"heds\" is no column that can be imported; did you mean heads?" },
  { "what", "tokens,time_us\n", { 0 }, "a.txt:1: the columns do not say which operation was timed: give --op" },
  { "cells", "m,k,n,time_us\n1,2,3\n", { 0 }, "a.txt:2: 3 columns: expected 4" },
  { "shape", "m,k,n,time_us\n1,-2,3,4\n", { 0 }, "a.txt:2: k = \"-2\": expected a whole number" },
  { "no-time", "m,k,n,time_us\n1,2,3,0\n", { 0 }, "a.txt:2: time_us = \"0\": expected a time above 0" },
  { "backward", "m,k,n,pass,time_us\n1,2,3,bwd,4\n", { 0 }, "a.txt:2: gemm has no backward" },
  { "operation",
    "operation,bytes,time_us\nallreduse,1,4\n",
    { 0 },
    "a.txt:2: operation = \"allreduse\": expected an operation, such as all-reduce" },
};

static void
test_wrong (gconstpointer data)
{
  const guint i = GPOINTER_TO_UINT (data);
  g_autoptr (GError) error = NULL;
  g_assert_null (import_text (wrong[i].text, &wrong[i].given, &error));
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_true (error->domain == SP_MEASURED_ERROR);
  g_assert_true (g_str_has_prefix (error->message, wrong[i].error));
  g_assert_null (strchr (error->message, '\n'));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/import-measured/a100-roce", test_a100_roce);
  g_test_add_func ("/import-measured/h100-tcpx", test_h100_tcpx);
  g_test_add_func ("/import-measured/h100-nvswitch", test_h100_nvswitch);
  g_test_add_func ("/import-measured/a40-box", test_a40_box);
  g_test_add_func ("/import-measured/titan-p2p", test_titan_p2p);
  g_test_add_func ("/import-measured/kernels", test_kernels);
  g_test_add_func ("/import-measured/two-files", test_two_files);
  for (guint i = 0; i < G_N_ELEMENTS (forms); i++) {
    g_autofree char *path = g_strconcat ("/import-measured/form/", forms[i].name, NULL);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_form);
  }
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++) {
    g_autofree char *path = g_strconcat ("/import-measured/wrong/", wrong[i].name, NULL);
    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_wrong);
  }
  return g_test_run ();
}
