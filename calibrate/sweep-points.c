/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep times. */
#include "calibrate/sweep.h"

#include <string.h>

const char *const sp_sweep_kind_names[] = { "gemm", "copy", "nccl", "launch", "memory", NULL };

/* What runs beside the other: a product or a copy of some hundred microseconds, and messages of layers' sizes. */
enum { BESIDE_SIDE = 4096, BESIDE_COPY = 256 << 20 };
static const gint64 beside_bytes[] = { 1 << 20, 8 << 20, 64 << 20, 256 << 20 };

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static gboolean
read_shape (SpSweep *sweep, const char *path, guint line, char **fields, GError **error)
{
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_GEMM);
  gint64 *sizes[] = { &row.m, &row.n, &row.k };
  guint n = g_strv_length (fields);
  gboolean good = n == 3 || n == 4;

  for (guint i = 0; good && i < 3; i++)
    good = sp_measured_whole (g_strstrip (fields[i]), 8, 1 << 20, sizes[i]) && *sizes[i] % 8 == 0;
  row.variant = "cublaslt";
  if (good && n == 4) {
    const char *form = g_strstrip (fields[3]);
    good = g_str_equal (form, "nn") || g_str_equal (form, "nt") || g_str_equal (form, "tn");
    row.variant = g_str_equal (form, "nn") ? "cublaslt/nn" : g_str_equal (form, "tn") ? "cublaslt/tn" : "cublaslt";
  }
  if (!good)
    return sp_measured_fail (error, SP_MEASURED_ERROR_VALUE, path, line,
                             "m,n,k was expected, multiples of 8 from 8 to 1048576, and nn, nt or tn behind them if "
                             "the product is not A B^T");
  row.dtype = "bf16";
  row.ranks = row.nodes = 1;
  sp_measured_add (sweep->shapes, &row);
  return TRUE;
}

gboolean
sp_sweep_read_shapes (SpSweep *sweep, const char *path, const char *text, GError **error)
{
  /* Layers of models of width 1024 to 8192 on few and many tokens, in the three forms that a step has of each, and
   * shapes off the tiles. */
  static const char common[] =
      "128,4096,4096\n512,4096,4096\n2048,1024,1024\n2048,2048,2048\n2048,4096,4096\n2048,11008,4096\n"
      "2048,4096,11008\n8192,4096,4096\n8192,12288,4096\n8192,11008,4096\n8192,4096,11008\n8192,8192,8192\n"
      "16384,1024,1024\n3000,3000,3000\n8192,32000,4096\n8192,4096,4096,nn\n8192,4096,11008,nn\n8192,11008,4096,nn\n"
      "4096,4096,8192,tn\n11008,4096,8192,tn\n4096,11008,8192,tn\n1024,1024,16384,tn\n2048,1024,1024,nn\n";
  g_auto (GStrv) lines = g_strsplit (text != NULL ? text : common, "\n", -1);

  for (guint i = 0; lines[i] != NULL; i++) {
    g_strstrip (lines[i]);
    if (lines[i][0] == '\0' || lines[i][0] == '#')
      continue;
    g_auto (GStrv) fields = g_strsplit (lines[i], ",", -1);
    if (!read_shape (sweep, path, i + 1, fields, error))
      return FALSE;
  }
  return sweep->shapes->rows->len > 0 || sp_measured_fail (error, SP_MEASURED_ERROR_SYNTAX, path, 0, "has no shape");
}

/* --- points ------------------------------------------------------------------------------------------------------- */

static void
add_sizes (const SpSweep *sweep, SpMeasuredRow row, GArray *points)
{
  /* A rank's part of a buffer is at least one element. */
  for (row.bytes = sweep->min_bytes; row.bytes <= sweep->max_bytes; row.bytes *= 2)
    if (row.op == SP_MEASURED_COPY || row.bytes >= 2 * row.ranks)
      g_array_append_val (points, row);
}

/* All groups of a size at once, each on links of its own: what they take from each other. */
static void
add_groups (const SpSweep *sweep, SpMeasuredRow row, int groups, GArray *points)
{
  g_autofree char *variant = g_strdup_printf ("groups-%d", groups);

  row.variant = g_string_chunk_insert_const (sweep->shapes->words, variant);
  for (row.bytes = MAX (sweep->min_bytes, 64 << 10); row.bytes <= sweep->max_bytes; row.bytes *= 4)
    g_array_append_val (points, row);
}

/* The transfer beside kernels that compute and kernels that move data, and these beside it. */
static void
add_beside (const SpSweep *sweep, SpMeasuredRow row, GArray *points)
{
  SpMeasuredRow gemm = sp_measured_row (SP_MEASURED_GEMM), copy = sp_measured_row (SP_MEASURED_COPY);

  gemm.variant = "cublaslt", gemm.dtype = "bf16", gemm.m = gemm.n = gemm.k = BESIDE_SIDE;
  copy.variant = "device-to-device", copy.m = BESIDE_COPY;
  SpMeasuredRow *const kernels[] = { &gemm, &copy };
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++) {
    SpMeasuredRow *kernel = kernels[i];
    row.beside = kernel->op, row.m = kernel->m, row.n = kernel->n, row.k = kernel->k;
    add_sizes (sweep, row, points);
    kernel->beside = row.op, kernel->ranks = row.ranks, kernel->nodes = row.nodes;
    for (guint j = 0; j < G_N_ELEMENTS (beside_bytes); j++) {
      kernel->bytes = beside_bytes[j];
      if (kernel->bytes >= sweep->min_bytes && kernel->bytes <= sweep->max_bytes)
        g_array_append_vals (points, kernel, 1);
    }
  }
}

static void
add_nccl (const SpSweep *sweep, int ranks, int nodes, int groups, GArray *points)
{
  static const SpMeasuredOp ops[] = { SP_MEASURED_ONE_WAY,        SP_MEASURED_SEND_RECEIVE, SP_MEASURED_ALL_GATHER,
                                      SP_MEASURED_REDUCE_SCATTER, SP_MEASURED_ALL_REDUCE,   SP_MEASURED_ALL_TO_ALL };

  for (guint i = 0; i < G_N_ELEMENTS (ops); i++) {
    SpMeasuredRow row = sp_measured_row (ops[i]);
    gboolean reduces = ops[i] == SP_MEASURED_REDUCE_SCATTER || ops[i] == SP_MEASURED_ALL_REDUCE;
    row.variant = "out-of-place";
    row.dtype = reduces || ops[i] == SP_MEASURED_ALL_GATHER ? "bf16" : "";
    row.ranks = ranks;
    row.nodes = nodes;
    add_sizes (sweep, row, points);
    if (groups > 1)
      add_groups (sweep, row, groups, points);
    for (guint j = 0; sweep->forced != NULL && sweep->forced[j] != NULL; j++) {
      SpMeasuredRow forced = row;
      forced.variant = sweep->forced[j];
      if (ops[i] == SP_MEASURED_ALL_REDUCE || (row.dtype[0] != '\0' && g_str_has_prefix (forced.variant, "ring/")))
        add_sizes (sweep, forced, points);
    }
    add_beside (sweep, row, points);
    row.variant = "in-place"; /* as programs reduce partial sums */
    if (ops[i] == SP_MEASURED_ALL_REDUCE)
      add_sizes (sweep, row, points);
  }
  SpMeasuredRow alone = sp_measured_row (SP_MEASURED_GEMM);
  alone.variant = "cublaslt", alone.dtype = "bf16", alone.ranks = ranks, alone.nodes = nodes;
  alone.m = alone.n = alone.k = BESIDE_SIDE;
  g_array_append_val (points, alone);
  alone = sp_measured_row (SP_MEASURED_COPY);
  alone.variant = "device-to-device", alone.ranks = ranks, alone.nodes = nodes;
  alone.bytes = BESIDE_COPY;
  g_array_append_val (points, alone);
}

/* What each transfer takes more where kernels wait for it, at some sizes. */
static void
add_hops (const SpSweep *sweep, int ranks, int nodes, GArray *points)
{
  static const char *const hops[] = { "hop-one-way",        "hop-send-receive", "hop-all-gather",
                                      "hop-reduce-scatter", "hop-all-reduce",   "hop-all-to-all" };
  static const gint64 bytes[] = { 16 << 10, 256 << 10, 4 << 20 };
  SpMeasuredRow row = sp_measured_row (SP_MEASURED_LAUNCH);

  row.ranks = ranks, row.nodes = nodes;
  for (guint i = 0; i < G_N_ELEMENTS (hops); i++)
    for (guint j = 0; j < G_N_ELEMENTS (bytes); j++) {
      row.variant = hops[i], row.bytes = bytes[j];
      if (row.bytes >= sweep->min_bytes && row.bytes <= sweep->max_bytes)
        g_array_append_val (points, row);
    }
}

GArray *
sp_sweep_points (const SpSweep *sweep, int ranks, int nodes)
{
  static const char *const copies[] = { "device-to-device", "host-to-device", "device-to-host" };
  static const char *const launches[] = { "gemm", "copy", "hop", "all-reduce" };
  GArray *points = g_array_new (FALSE, FALSE, sizeof (SpMeasuredRow));
  SpMeasuredRow one = sp_measured_row (SP_MEASURED_COPY);

  one.ranks = one.nodes = 1;
  if (sweep->kinds & SP_SWEEP_GEMM)
    g_array_append_vals (points, sweep->shapes->rows->data, sweep->shapes->rows->len);
  for (guint i = 0; sweep->kinds & SP_SWEEP_COPY && i < G_N_ELEMENTS (copies); i++) {
    one.variant = copies[i];
    add_sizes (sweep, one, points);
  }
  one.op = SP_MEASURED_LAUNCH;
  for (guint i = 0; sweep->kinds & SP_SWEEP_LAUNCH && i < (sweep->nccl ? 4u : 3u); i++) {
    one.variant = launches[i];
    one.ranks = i == 3 ? ranks : 1;
    one.nodes = i == 3 ? nodes : 1;
    g_array_append_val (points, one);
  }
  if (sweep->kinds & SP_SWEEP_LAUNCH && sweep->nccl)
    add_hops (sweep, ranks, nodes, points);
  /* Groups of two, four .. of one node, and all ranks. */
  for (int size = 2; sweep->kinds & SP_SWEEP_NCCL && size < ranks && nodes == 1; size *= 2)
    add_nccl (sweep, size, 1, ranks / size, points);
  if (sweep->kinds & SP_SWEEP_NCCL)
    add_nccl (sweep, ranks, nodes, 1, points);
  return points;
}

gsize
sp_sweep_buffer_bytes (const SpSweep *sweep)
{
  gsize bytes = MAX ((gsize) sweep->max_bytes, (gsize) 2 * 2 * BESIDE_SIDE * BESIDE_SIDE + 256);

  bytes = MAX (bytes, sweep->nccl ? (gsize) BESIDE_COPY : 0);
  for (guint i = 0; i < sweep->shapes->rows->len; i++) {
    const SpMeasuredRow *s = &g_array_index (sweep->shapes->rows, SpMeasuredRow, i);
    bytes = MAX (bytes, (gsize) (2 * MAX (s->m * s->n, (s->m + s->n) * s->k) + 256));
  }
  return bytes;
}
