/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' benchmark without a GPU: its table, and what is selected of it. */
#include "calibrate/bench-rows.h"

#include <string.h>

#include "sim/op-form.h"

#define MIB (1 << 20)

/* Bytes and FLOP by hand, of 8192 tokens. */
static const struct {
  const char *name, *shape;
  double mib, gflop;
} known[] = {
  { "copy/1.1", "65536 x 8192", 2048, 0 },
  { "gemm/tb/3.1", "8192 x 8192 x 8192 x 1", 384, 2 * 549.755813888 },
  { "add/3.1", "8192 x 4096", 3 * 64, 0 },
  { "accumulate/add/1.1", "8192 x 4096", 64 + 2 * 128, 0 },
  { "glu-bwd/3.1", "8192 x 14336", 5 * 224, 0 },
  { "norm/3.3", "8192 x 8192 x 8192", 2 * 128 + (2 * 8192 + 4 * 8192) / 1048576.0, 0 },
  { "rope/1.7", "8192 x 128 x 32 x 8", 2 * 96, 0 },
  { "embed/1.1", "8192 x 128256 x 4096", 2 * 64, 0 },
  { "embed-bwd/add/1.1", "8192 x 128256 x 4096", 64 + 2 * 128, 0 },
  /* of rows of 8192 the last 2048; of QKVU all but U, and of it Q and K alone */
  { "gate/3.1", "32768 x 2048 x 8192", 3 * 128, 0 },
  { "gate-bwd/7.3", "32768 x 2048 x 8192", 5 * 128, 0 },
  { "feature/1.7", "32768 x 128 x 16 x 16", 6 * 128, 0 },
  { "feature-bwd/1f.1", "32768 x 128 x 16 x 16", 10 * 128, 0 },
  { "adam/1.f", "1 x 134217728", 30 * 128, 0 },
  /* 8192 x 8193 / 2 pairs, 4 x 128 FLOP each, 32 heads */
  { "attention/causal/7.3", "8192 x 8192 x 128 x 1 x 32 x 32", 4 * 64 + 1, 549.8229227520 },
  /* 8192 tokens, 16 heads: 2 x 128 x 256 in the chunk, 4 x 128 x 128 with the state, of fp32 */
  { "linear-local/7.3", "8192 x 128 x 128 x 1 x 16 x 16", 4 * 32 + 1, 17.179869184 },
  /* as Qwen3-Next: q and keys of 16 heads, values, o and two gates of 32; of a token and head 2 x 64 x 256 in the chunk,
   * 2 x 64 x 384 + 64 x 64 / 3 for its inverse, W and U, 6 x 128 x 128 with the state */
  { "recurrent/delta/decay/1f.1", "32768 x 128 x 128 x 1 x 32 x 16", 6 * 128 + 6,
    32768 * 32e-9 * (32768 + 49152 + 4096 / 3.0 + 98304) },
  /* as Mamba-2: q and keys of one head, values and o of 64 heads of 64, decays and steps in fp32; of a token 2 x 128 x 128 of
   * the shared scores, and of a head 2 x 128 x 64 by values and 4 x 128 x 64 with the state */
  { "recurrent/decay/1f.1", "32768 x 64 x 128 x 1 x 64 x 1", 2 * 8 + 2 * 256 + 2 * 8,
    32768e-9 * (32768 + 64 * (16384 + 32768)) },
  /* as GLA: decays and their gradients of 16 x 128 features in fp32 */
  { "recurrent-bwd/feature-decay/2f.f", "32768 x 256 x 128 x 1 x 16 x 16", 4 * 128 + 3 * 256 + 2 * 256,
    32768 * 16e-9 * (2.5 * (32768 + 65536) + 5 * 65536) },
  { "conv-bwd/f.7", "32768 x 4352 x 1", 3 * 272 + (8 + 2 + 4 * 5) * 4352 / 1048576.0, 0 },
};

static void
test_known (void)
{
  guint n = 0, found = 0;
  const SpBenchRow *rows = sp_bench_rows (&n);

  for (guint i = 0; i < n; i++) {
    g_autofree char *name = sp_bench_name (&rows[i]);
    for (guint size = 0; size < sp_bench_n_sizes (&rows[i]); size++) {
      SpOp op = sp_bench_op (&rows[i], size);
      g_autofree char *shape = sp_bench_shape (&op);
      for (guint j = 0; j < G_N_ELEMENTS (known); j++)
        if (g_str_equal (known[j].name, name) && g_str_equal (known[j].shape, shape) &&
            (rows[i].kind != SP_OP_COPY || rows[i].out[0].dtype == SP_DTYPE_BF16) &&
            (rows[i].kind != SP_OP_ADAM || rows[i].in[0].dtype == SP_DTYPE_FP32)) {
          g_test_message ("%s, %s", name, shape);
          g_assert_cmpfloat ((double) op.bytes, ==, known[j].mib * MIB);
          g_assert_cmpfloat_with_epsilon (op.flops * 1e-9, known[j].gflop, 1e-9);
          found++;
        }
    }
  }
  g_assert_cmpuint (found, ==, G_N_ELEMENTS (known));
}

/* Each row has a kind, a size, an operand that is written, and no like before it. */
static void
test_table (void)
{
  guint n = 0;
  const SpBenchRow *rows = sp_bench_rows (&n);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  g_assert_cmpint (rows[SP_BENCH_COPY].kind, ==, SP_OP_COPY);
  g_assert_cmpint (rows[SP_BENCH_GEMM].kind, ==, SP_OP_GEMM);
  for (guint i = 0; i < n; i++) {
    g_autofree char *name = sp_bench_name (&rows[i]), *dtypes = sp_bench_dtypes (&rows[i]);
    SpOpKind kind;
    SpOpForm form;

    g_assert_true (sp_op_form_parse (name, &kind, &form) && kind == rows[i].kind);
    g_assert_true (g_hash_table_add (seen, g_strconcat (name, " ", dtypes, NULL)));
    g_assert_cmpuint (sp_bench_n_sizes (&rows[i]), >, 0);
    g_assert_nonnull (rows[i].out[0].extent);
    g_assert_true (rows[i].check != NULL || rows[i].kind == SP_OP_GEMM);
    for (guint size = 0; size < sp_bench_n_sizes (&rows[i]); size++)
      g_assert_cmpint (sp_bench_op (&rows[i], size).bytes, >, 0);
  }
}

/* Three sets of operands in turn, each in memory of its own; tables are the same. */
static void
test_record (void)
{
  guint n = 0;
  const SpBenchRow *rows = sp_bench_rows (&n);

  for (guint i = 0; i < n; i++) {
    g_autoptr (SpRecording) r = sp_bench_record (&rows[i], 0, 3, 7);
    const SpCommand *commands = (const SpCommand *) (gpointer) r->commands->data;
    gint64 end = 0;

    g_assert_cmpuint (r->commands->len, ==, 7);
    for (guint j = 0; j < r->storages->len; j++) {
      const SpStored *s = &g_array_index (r->storages, SpStored, j);
      g_assert_true (s->offset >= end && s->offset % 256 == 0);
      end = s->offset + s->bytes;
    }
    g_assert_cmpint (end, <=, r->arena_bytes);
    for (guint j = 0; j < 7; j++) {
      g_assert_cmpmem (&commands[j].op, sizeof (SpOp), &commands[j % 3].op, sizeof (SpOp));
      g_assert_cmpint (commands[j].out[0].storage, ==, commands[j % 3].out[0].storage);
      g_assert_cmpmem (commands[j].tables, sizeof commands[j].tables, commands[0].tables, sizeof commands[0].tables);
    }
    g_assert_cmpint (commands[0].out[0].storage, !=, commands[1].out[0].storage);
    g_assert_cmpint (commands[1].out[0].storage, !=, commands[2].out[0].storage);
  }
}

static void
test_select (void)
{
  const struct {
    const char *names[3];
    guint n; /* rows; 0: as many as there are */
  } cases[] = { { { NULL }, 0 },
                { { "norm-bwd" }, 3 },
                { { "norm-bwd/7.1" }, 1 },
                { { "norm-bwd/7.1", "norm-bwd" }, 3 },
                { { "copy", "copy" }, 2 } };
  guint n = 0;

  sp_bench_rows (&n);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = sp_bench_select ((char **) cases[i].names, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, ==, cases[i].n > 0 ? cases[i].n : n);
    g_autofree char *list = sp_bench_list (rows);
    g_assert_nonnull (strstr (list, cases[i].names[0] != NULL ? cases[i].names[0] : "gemm/tb/3.1"));
  }
}

static void
test_wrong (void)
{
  const struct {
    const char *name, *word;
  } wrong[] = { { "norn", "the nearest is norm" }, { "xxxxxxxxxxxxxx", "no kernel is called so" }, { "", "--list" } };

  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++) {
    g_autoptr (GError) error = NULL;
    g_assert_null (sp_bench_select ((char **) (const char *[]){ "copy", wrong[i].name, NULL }, &error));
    g_assert_error (error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE);
    g_assert_nonnull (strstr (error->message, wrong[i].word));
    g_assert_null (strchr (error->message, '\n'));
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/bench/known", test_known);
  g_test_add_func ("/bench/table", test_table);
  g_test_add_func ("/bench/record", test_record);
  g_test_add_func ("/bench/select", test_select);
  g_test_add_func ("/bench/wrong", test_wrong);
  return g_test_run ();
}
