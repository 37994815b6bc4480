/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the CUDA kernels at sizes that models have: `meson benchmark kernels-cuda`, or run by hand with part of a
 * kernel's name. Each is launched alone, after three that are not timed: median of 20, and the range from 20 to 80 %,
 * by events on the device. Bytes are every operand once, those that are added to twice; caches are as the launch before
 * left them, and all but the smallest operands are larger than they are. FLOP of attention are those of visible pairs.
 */
#include "kernels/device.h"

#include <glib.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 20
#define WARM_UPS 3
#define SLOT (640ll << 20) /* bytes; operands lie in slots of their own */
#define SLOTS 9
#define POSITIONS (1 << 20)

typedef struct {
  guint8 *memory;
  int32_t *positions; /* 0, 1, 2 .. */
  int32_t *ids;       /* below 32768, in any order */
  float *slopes;      /* of 16 heads */
  float *no_slopes;   /* zeros */
  double *total;
} Arena;

typedef struct {
  const char *name, *shape;
  double bytes, flops;
  cudaError_t (*launch) (const Arena *a);
} Bench;

static SpDevTensor
at (const Arena *a, int slot, SpDevDtype dtype)
{
  return (SpDevTensor){ a->memory + slot * SLOT, dtype };
}

static SpDevTensor
half (const Arena *a, int slot)
{
  return at (a, slot, SP_DEV_BF16);
}

static float *
floats (const Arena *a, int slot)
{
  return (float *) (a->memory + slot * SLOT);
}

static const SpDevTensor none = { NULL, SP_DEV_BF16 };

/* --- elementwise and rows: 8192 tokens of 4096 features, as an 8B model has --------------------------------------- */

#define M 8192
#define N 4096
#define FFN 14336
#define ROWS ((double) M * N) /* elements */
#define FFN_ROWS ((double) M * FFN)
#define VOCABULARY 128256
#define LOSS_ROWS 2048
#define LOGITS ((double) LOSS_ROWS * VOCABULARY)

static cudaError_t
copy (const Arena *a)
{
  return sp_dev_copy ((int64_t) M * N, half (a, 0), half (a, 1), NULL);
}

static cudaError_t
widen (const Arena *a)
{
  return sp_dev_copy ((int64_t) M * N, half (a, 0), at (a, 1, SP_DEV_FP32), NULL);
}

static cudaError_t
add (const Arena *a)
{
  return sp_dev_add (M, N, half (a, 0), half (a, 1), none, none, half (a, 2), NULL);
}

static cudaError_t
glu (const Arena *a)
{
  return sp_dev_glu (SP_DEV_SILU, M, FFN, half (a, 0), half (a, 1), NULL);
}

static cudaError_t
glu_bwd (const Arena *a)
{
  return sp_dev_glu_bwd (SP_DEV_SILU, M, FFN, half (a, 0), half (a, 1), half (a, 2), NULL);
}

static cudaError_t
norm (const Arena *a)
{
  return sp_dev_norm (false, M, N, N, half (a, 0), half (a, 1), none, NULL, 1e-5, half (a, 2), floats (a, 3), NULL);
}

static cudaError_t
norm_bwd (const Arena *a)
{
  return sp_dev_norm_bwd (false, M, N, N, half (a, 0), half (a, 1), floats (a, 2), half (a, 3), half (a, 4), NULL,
                          half (a, 5), at (a, 6, SP_DEV_FP32), none, floats (a, 7), NULL);
}

static cudaError_t
layernorm_bwd (const Arena *a)
{
  return sp_dev_norm_bwd (true, M, N, N, half (a, 0), half (a, 1), floats (a, 2), half (a, 3), half (a, 4), NULL,
                          half (a, 5), at (a, 6, SP_DEV_FP32), at (a, 8, SP_DEV_FP32), floats (a, 7), NULL);
}

static cudaError_t
column_sum (const Arena *a)
{
  return sp_dev_column_sum (1, M, N, half (a, 0), at (a, 1, SP_DEV_FP32), floats (a, 2), NULL);
}

static const SpDevShape heads = { .m = M, .n = M, .k = 128, .batch = 1, .heads = 32, .kv_heads = 8 };
static const SpDevHeads turn = { .rotated = 128, .theta = 500000, .epsilon = 1e-5 };

static cudaError_t
rope (const Arena *a)
{
  return sp_dev_rope (heads, &turn, half (a, 0), a->positions, half (a, 1), half (a, 2), half (a, 3), NULL, NULL);
}

static cudaError_t
rope_bwd (const Arena *a)
{
  return sp_dev_rope_bwd (heads, &turn, half (a, 1), half (a, 2), half (a, 3), none, NULL, none, a->positions,
                          half (a, 0), none, none, NULL, NULL);
}

static cudaError_t
embed (const Arena *a)
{
  return sp_dev_embed (M, 32768, N, a->ids, 0, half (a, 0), half (a, 1), NULL);
}

static cudaError_t
embed_bwd (const Arena *a)
{
  return sp_dev_embed_bwd (M, 32768, N, a->ids, 0, half (a, 1), at (a, 2, SP_DEV_FP32), floats (a, 3), NULL);
}

static cudaError_t
loss_max (const Arena *a)
{
  return sp_dev_loss_max (LOSS_ROWS, VOCABULARY, VOCABULARY, half (a, 0), floats (a, 1), NULL);
}

static cudaError_t
loss_sum (const Arena *a)
{
  return sp_dev_loss_sum (LOSS_ROWS, VOCABULARY, VOCABULARY, half (a, 0), floats (a, 1), a->ids, 0, floats (a, 2),
                          NULL);
}

static cudaError_t
loss (const Arena *a)
{
  return sp_dev_loss (LOSS_ROWS, VOCABULARY, VOCABULARY, half (a, 0), floats (a, 1), floats (a, 2), a->ids, 0,
                      floats (a, 3), a->total, half (a, 4), NULL);
}

static cudaError_t
adam (const Arena *a)
{
  return sp_dev_adam (1 << 27, half (a, 0), 10, 1e-4, 0.9, 0.95, 1e-8, at (a, 1, SP_DEV_FP32), at (a, 2, SP_DEV_FP32),
                      at (a, 3, SP_DEV_FP32), half (a, 4), NULL);
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static const SpDevShape full = { .m = M, .n = M, .k = 128, .batch = 1, .heads = 32, .kv_heads = 32 };
static const SpDevShape narrow = { .m = M, .n = M, .k = 64, .batch = 1, .heads = 32, .kv_heads = 32 };
static const SpDevShape wide = { .m = M, .n = M, .k = 256, .batch = 1, .heads = 16, .kv_heads = 16 };
static const SpDevShape latent = { .m = M, .n = M, .k = 192, .v = 128, .batch = 1, .heads = 16, .kv_heads = 16 };
/* Blocks of a ring. */
static const SpDevShape short_ring = { .m = 2048, .n = 2048, .k = 128, .batch = 1, .heads = 16, .kv_heads = 4 };
static const SpDevShape long_ring = { .m = 16384, .n = 16384, .k = 128, .batch = 1, .heads = 16, .kv_heads = 4 };

static cudaError_t
forward (const Arena *a, SpDevShape shape, bool causal)
{
  return sp_dev_attention (shape, half (a, 0), half (a, 1), half (a, 2), causal, a->positions, a->positions,
                           half (a, 3), floats (a, 4), a->memory + 8 * SLOT, NULL);
}

static cudaError_t
backward (const Arena *a, SpDevShape shape, bool causal)
{
  return sp_dev_attention_bwd (shape, half (a, 0), half (a, 1), half (a, 2), half (a, 3), floats (a, 4), floats (a, 4),
                               causal, a->positions, a->positions, half (a, 5), half (a, 6), half (a, 7),
                               a->memory + 8 * SLOT, NULL);
}

#define ATTENTION(name, shape, causal)                                                                                 \
  static cudaError_t name##_forward (const Arena *a)                                                                   \
  {                                                                                                                    \
    return forward (a, shape, causal);                                                                                 \
  }                                                                                                                    \
  static cudaError_t name##_backward (const Arena *a)                                                                  \
  {                                                                                                                    \
    return backward (a, shape, causal);                                                                                \
  }
ATTENTION (full, full, true)
ATTENTION (whole, full, false)
ATTENTION (grouped, heads, true)
ATTENTION (narrow, narrow, true)
ATTENTION (wide, wide, true)
ATTENTION (latent, latent, true)
ATTENTION (short_ring, short_ring, false)
ATTENTION (long_ring, long_ring, false)

/* Those of every card, where this one has its own. */
static cudaError_t
baseline_forward (const Arena *a)
{
  sp_dev_attention_baseline (true);
  cudaError_t error = forward (a, full, true);
  sp_dev_attention_baseline (false);
  return error;
}

static cudaError_t
baseline_backward (const Arena *a)
{
  sp_dev_attention_baseline (true);
  cudaError_t error = backward (a, full, true);
  sp_dev_attention_baseline (false);
  return error;
}

static cudaError_t
merge (const Arena *a)
{
  return sp_dev_attention_merge ((int64_t) M * 32, 128, true, half (a, 0), floats (a, 4), at (a, 1, SP_DEV_FP32),
                                 floats (a, 5), NULL);
}

static cudaError_t
delta (const Arena *a)
{
  return sp_dev_attention_delta ((int64_t) M * 32, 128, half (a, 0), half (a, 1), floats (a, 5), NULL);
}

/* --- linear attention: 16 heads of 128 ---------------------------------------------------------------------------- */

static SpDevShape
linear_shape (int64_t m)
{
  return (SpDevShape){ .m = m, .n = 128, .k = 128, .batch = 1, .heads = 16, .kv_heads = 16 };
}

static cudaError_t
linear_forward (const Arena *a, int64_t m)
{
  return sp_dev_linear_local (linear_shape (m), a->slopes, half (a, 0), half (a, 1), half (a, 2), half (a, 3), NULL,
                              a->memory + 8 * SLOT, NULL);
}

/* From a state and to one, without decay: nothing is forgotten, and all is read that can be. */
static cudaError_t
linear_whole (const Arena *a, int64_t m)
{
  return sp_dev_linear_forward (linear_shape (m), a->no_slopes, half (a, 0), half (a, 1), half (a, 2), floats (a, 4),
                                half (a, 3), floats (a, 5), a->memory + 8 * SLOT, NULL);
}

static cudaError_t
linear_backward (const Arena *a, int64_t m)
{
  return sp_dev_linear_local_bwd (linear_shape (m), a->slopes, half (a, 0), half (a, 1), half (a, 2), half (a, 3),
                                  half (a, 4), half (a, 5), half (a, 6), NULL, a->memory + 8 * SLOT, NULL);
}

/* With the states of neighbours, and to them. */
static cudaError_t
linear_whole_backward (const Arena *a, int64_t m)
{
  return sp_dev_linear_bwd (linear_shape (m), a->slopes, half (a, 0), half (a, 1), half (a, 2), half (a, 3),
                            floats (a, 0), floats (a, 1), half (a, 4), half (a, 5), half (a, 6), floats (a, 7),
                            a->memory + 8 * SLOT, NULL);
}

static cudaError_t
linear_inter_backward (const Arena *a, int64_t m)
{
  return sp_dev_linear_inter_bwd (linear_shape (m), a->slopes, half (a, 1), half (a, 2), half (a, 3), floats (a, 0),
                                  floats (a, 1), half (a, 4), half (a, 5), half (a, 6), NULL);
}

static cudaError_t
linear_inter (const Arena *a, int64_t m)
{
  return sp_dev_linear_inter (linear_shape (m), a->no_slopes, half (a, 0), floats (a, 1), half (a, 2), NULL);
}

#define LINEAR(m)                                                                                                      \
  static cudaError_t linear_forward_##m (const Arena *a)                                                               \
  {                                                                                                                    \
    return linear_forward (a, m);                                                                                      \
  }                                                                                                                    \
  static cudaError_t linear_whole_##m (const Arena *a)                                                                 \
  {                                                                                                                    \
    return linear_whole (a, m);                                                                                        \
  }                                                                                                                    \
  static cudaError_t linear_backward_##m (const Arena *a)                                                              \
  {                                                                                                                    \
    return linear_backward (a, m);                                                                                     \
  }                                                                                                                    \
  static cudaError_t linear_whole_backward_##m (const Arena *a)                                                        \
  {                                                                                                                    \
    return linear_whole_backward (a, m);                                                                               \
  }                                                                                                                    \
  static cudaError_t linear_inter_##m (const Arena *a)                                                                 \
  {                                                                                                                    \
    return linear_inter (a, m);                                                                                        \
  }                                                                                                                    \
  static cudaError_t linear_inter_backward_##m (const Arena *a)                                                        \
  {                                                                                                                    \
    return linear_inter_backward (a, m);                                                                               \
  }
LINEAR (8192)
LINEAR (32768)
LINEAR (131072)

/* --- table -------------------------------------------------------------------------------------------------------- */

#define PAIRS ((double) M * M)
#define TOKENS(m) (16 * 128 * (double) m) /* elements of a tensor of linear attention */
/* Of a chunk of 64 tokens: within it, and with its state. */
#define CHUNK(m) (TOKENS (m) * 2 * 64 * 2)
#define STATE(m) (TOKENS (m) * 2 * 128)

#define LINEAR_ROWS(m)                                                                                                 \
  { "linear-local", #m " tokens, 16 x 128", 8 * TOKENS (m), CHUNK (m) + 2 * STATE (m), linear_forward_##m },           \
      { "linear-forward", #m " tokens, 16 x 128, no decay", 8 * TOKENS (m), CHUNK (m) + 2 * STATE (m),                 \
        linear_whole_##m },                                                                                            \
      { "linear-local-bwd", #m " tokens, 16 x 128", 14 * TOKENS (m), 2.5 * CHUNK (m) + 5 * STATE (m),                  \
        linear_backward_##m },                                                                                         \
      { "linear-bwd", #m " tokens, 16 x 128", 14 * TOKENS (m), 2.5 * CHUNK (m) + 5 * STATE (m),                        \
        linear_whole_backward_##m },                                                                                   \
      { "linear-inter", #m " tokens, 16 x 128, no decay", 6 * TOKENS (m), STATE (m), linear_inter_##m },               \
  {                                                                                                                    \
    "linear-inter-bwd", #m " tokens, 16 x 128", 18 * TOKENS (m), 3 * STATE (m), linear_inter_backward_##m              \
  }

static const Bench benches[] = {
  { "copy", "8192 x 4096 bf16", 4 * ROWS, 0, copy },
  { "copy", "8192 x 4096 bf16 to fp32", 6 * ROWS, 0, widen },
  { "add", "8192 x 4096", 6 * ROWS, 0, add },
  { "glu", "8192 x 14336", 6 * FFN_ROWS, 0, glu },
  { "glu-bwd", "8192 x 14336", 10 * FFN_ROWS, 0, glu_bwd },
  { "norm", "8192 x 4096", 4 * ROWS, 0, norm },
  { "norm-bwd", "8192 x 4096, residual, dgain", 8 * ROWS, 0, norm_bwd },
  { "norm-bwd", "8192 x 4096, layernorm", 8 * ROWS, 0, layernorm_bwd },
  { "column-sum", "8192 x 4096", 2 * ROWS, 0, column_sum },
  { "rope", "8192 x (32 + 16) x 128", 4.0 * M * 48 * 128, 0, rope },
  { "rope-bwd", "8192 x (32 + 16) x 128", 4.0 * M * 48 * 128, 0, rope_bwd },
  { "embed", "8192 x 4096 of 32768", 4 * ROWS, 0, embed },
  { "embed-bwd", "8192 x 4096 of 32768", 10 * ROWS, 0, embed_bwd },
  { "loss-max", "2048 x 128256", 2 * LOGITS, 0, loss_max },
  { "loss-sum", "2048 x 128256", 2 * LOGITS, 0, loss_sum },
  { "loss", "2048 x 128256", 4 * LOGITS, 0, loss },
  { "adam", "128 Mi, bf16 gradient", 28.0 * (1 << 27), 0, adam },
  { "attention", "1 x 32 x 8192 x 128 causal", 8 * ROWS, 2 * PAIRS * 128 * 32, full_forward },
  { "attention", "1 x 32 x 8192 x 128", 8 * ROWS, 4 * PAIRS * 128 * 32, whole_forward },
  { "attention", "1 x 32 / 8 x 8192 x 128 causal", 5 * ROWS, 2 * PAIRS * 128 * 32, grouped_forward },
  { "attention", "1 x 32 x 8192 x 64 causal", 4 * ROWS, 2 * PAIRS * 64 * 32, narrow_forward },
  { "attention", "1 x 16 x 8192 x 256 causal", 8 * ROWS, 2 * PAIRS * 256 * 16, wide_forward },
  { "attention", "1 x 16 x 8192 x 192, 128 causal", 5 * ROWS, (192 + 128) * PAIRS * 16, latent_forward },
  { "attention", "1 x 16 / 4 x 2048 x 128", ROWS * 5 / 8, PAIRS / 16 * 4 * 128 * 16, short_ring_forward },
  { "attention", "1 x 16 / 4 x 16384 x 128", ROWS * 5, PAIRS * 4 * 4 * 128 * 16, long_ring_forward },
  { "attention-sm80", "1 x 32 x 8192 x 128 causal", 8 * ROWS, 2 * PAIRS * 128 * 32, baseline_forward },
  { "attention-bwd", "1 x 32 x 8192 x 128 causal", 14 * ROWS, 5 * PAIRS * 128 * 32, full_backward },
  { "attention-bwd", "1 x 32 x 8192 x 128", 14 * ROWS, 10 * PAIRS * 128 * 32, whole_backward },
  { "attention-bwd", "1 x 32 / 8 x 8192 x 128 causal", 8 * ROWS, 5 * PAIRS * 128 * 32, grouped_backward },
  { "attention-bwd", "1 x 32 x 8192 x 64 causal", 7 * ROWS, 5 * PAIRS * 64 * 32, narrow_backward },
  { "attention-bwd", "1 x 16 x 8192 x 256 causal", 14 * ROWS, 5 * PAIRS * 256 * 16, wide_backward },
  { "attention-bwd", "1 x 16 x 8192 x 192, 128 causal", 9 * ROWS, (3 * 192 + 2 * 128) * PAIRS * 16, latent_backward },
  { "attention-bwd", "1 x 16 / 4 x 2048 x 128", ROWS, PAIRS / 16 * 10 * 128 * 16, short_ring_backward },
  { "attention-bwd", "1 x 16 / 4 x 16384 x 128", ROWS * 8, PAIRS * 4 * 10 * 128 * 16, long_ring_backward },
  { "attention-bwd-sm80", "1 x 32 x 8192 x 128 causal", 14 * ROWS, 5 * PAIRS * 128 * 32, baseline_backward },
  { "attention-merge", "8192 x 32 x 128", 10 * ROWS, 0, merge },
  { "attention-delta", "8192 x 32 x 128", 4 * ROWS, 0, delta },
  LINEAR_ROWS (8192),
  LINEAR_ROWS (32768),
  LINEAR_ROWS (131072),
};

/* --- timing ------------------------------------------------------------------------------------------------------- */

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t error = (call);                                                                                        \
    if (error != cudaSuccess) {                                                                                        \
      fprintf (stderr, "bench-kernels-cuda: %s: %s\n", #call, cudaGetErrorString (error));                             \
      exit (1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* Numbers from -1 to 1, as bf16 and as pairs of them read as fp32: data of one value would draw less power, and run
 * faster, than what a model has. */
static void
fill (Arena *a)
{
  gsize piece = 1 << 24;
  g_autofree guint16 *numbers = g_malloc (piece);
  g_autofree int32_t *ints = g_new (int32_t, POSITIONS);
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  float slopes[16];

  for (gsize i = 0; i < piece / 2; i++) {
    float x = (float) g_rand_double_range (rand, -1, 1);
    guint32 bits;
    memcpy (&bits, &x, sizeof bits);
    numbers[i] = bits >> 16;
  }
  for (gint64 to = 0; to + (gint64) piece <= SLOTS * SLOT; to += piece)
    CHECK (cudaMemcpy (a->memory + to, numbers, piece, cudaMemcpyHostToDevice));
  for (int i = 0; i < POSITIONS; i++)
    ints[i] = i;
  CHECK (cudaMemcpy (a->positions, ints, POSITIONS * sizeof *ints, cudaMemcpyHostToDevice));
  for (int i = 0; i < POSITIONS; i++)
    ints[i] = g_rand_int_range (rand, 0, 32768);
  CHECK (cudaMemcpy (a->ids, ints, POSITIONS * sizeof *ints, cudaMemcpyHostToDevice));
  for (int i = 0; i < 16; i++)
    slopes[i] = 1.0f / (float) (2 << i / 2);
  CHECK (cudaMemcpy (a->slopes, slopes, sizeof slopes, cudaMemcpyHostToDevice));
  CHECK (cudaMemset (a->no_slopes, 0, sizeof slopes));
  CHECK (cudaMemset (a->total, 0, sizeof *a->total));
}

static int
compare (gconstpointer x, gconstpointer y)
{
  const float *a = x, *b = y;

  return (*a > *b) - (*a < *b);
}

static void
time_one (const Arena *a, const Bench *bench)
{
  float ms[REPEATS];
  cudaEvent_t begin, end;

  CHECK (cudaEventCreate (&begin));
  CHECK (cudaEventCreate (&end));
  for (int i = -WARM_UPS; i < REPEATS; i++) {
    CHECK (cudaEventRecord (begin, NULL));
    CHECK (bench->launch (a));
    CHECK (cudaEventRecord (end, NULL));
    CHECK (cudaEventSynchronize (end));
    if (i >= 0)
      CHECK (cudaEventElapsedTime (&ms[i], begin, end));
  }
  CHECK (cudaEventDestroy (begin));
  CHECK (cudaEventDestroy (end));

  qsort (ms, REPEATS, sizeof *ms, compare);
  double median = (ms[REPEATS / 2 - 1] + ms[REPEATS / 2]) / 2.0;
  printf ("%-18s %-32s %9.3f %9.3f %9.3f %9.0f", bench->name, bench->shape, median, ms[REPEATS / 5],
          ms[REPEATS - 1 - REPEATS / 5], bench->bytes / median * 1e-6);
  if (bench->flops > 0)
    printf (" %9.1f", bench->flops / median * 1e-9);
  printf ("\n");
  fflush (stdout);
}

int
main (int argc, char **argv)
{
  struct cudaDeviceProp card;
  Arena a;
  int n = 0, driver = 0, runtime = 0;

  if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0) {
    printf ("no GPU here: nothing is timed\n");
    return 77;
  }
  CHECK (cudaGetDeviceProperties (&card, 0));
  CHECK (cudaDriverGetVersion (&driver));
  CHECK (cudaRuntimeGetVersion (&runtime));
  CHECK (cudaMalloc ((void **) &a.memory, SLOTS * SLOT));
  CHECK (cudaMalloc ((void **) &a.positions, POSITIONS * sizeof (int32_t)));
  CHECK (cudaMalloc ((void **) &a.ids, POSITIONS * sizeof (int32_t)));
  CHECK (cudaMalloc ((void **) &a.slopes, 16 * sizeof (float)));
  CHECK (cudaMalloc ((void **) &a.no_slopes, 16 * sizeof (float)));
  CHECK (cudaMalloc ((void **) &a.total, sizeof *a.total));
  fill (&a);

  printf ("# %s, sm_%d%d, driver CUDA %d.%d, runtime %d.%d\n", card.name, card.major, card.minor, driver / 1000,
          driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  printf ("%-18s %-32s %9s %9s %9s %9s %9s\n", "kernel", "shape", "ms", "20 %", "80 %", "GB/s", "TFLOP/s");
  for (guint i = 0; i < G_N_ELEMENTS (benches); i++)
    if (argc < 2 || strstr (benches[i].name, argv[1]) != NULL)
      time_one (&a, &benches[i]);
  cudaFree (a.memory);
  cudaFree (a.positions);
  cudaFree (a.ids);
  cudaFree (a.slopes);
  cudaFree (a.no_slopes);
  cudaFree (a.total);
  return 0;
}
