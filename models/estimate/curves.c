/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/curves.h"

#include <math.h>

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* K of one part when the library splits K to fill the SMs. */
#define SPLIT_K 512

static gint64
tiles_of (gint64 n, gint32 log2_tile)
{
  return (n + (G_GINT64_CONSTANT (1) << log2_tile) - 1) >> log2_tile;
}

double
sp_curve_wave_use (gint32 sms, gint64 count, double tail)
{
  gint64 waves = (count + sms - 1) / sms;

  return (double) count / (count + tail * (double) (waves * sms - count));
}

double
sp_curve_gemm_use (const SpGemmShape *shape, gint32 sms, gint32 batch, gint64 m, gint64 n, gint64 k)
{
  static const struct {
    gint32 log2_m, log2_n;
  } tiles[] = { { 7, 8 }, { 7, 7 }, { 6, 6 } };
  const double efficiency[] = { 1, shape->tile_128, shape->tile_64 };
  double best = 0;

  for (guint i = 0; i < G_N_ELEMENTS (tiles); i++) {
    /* A smaller tile cannot make up for its rate from here on. */
    if (i > 0 && best >= efficiency[i] && best >= efficiency[G_N_ELEMENTS (tiles) - 1])
      break;
    gint64 count = batch * tiles_of (m, tiles[i].log2_m) * tiles_of (n, tiles[i].log2_n), parts = 1;
    double covered = (double) (count << (tiles[i].log2_m + tiles[i].log2_n));
    if (count < sms)
      parts = MIN (sms / count, MAX (1, k / SPLIT_K));
    double depth = (double) k / parts;
    double use = (double) batch * m * n / covered * sp_curve_wave_use (sms, count * parts, shape->tail) *
                 efficiency[i] * depth / (depth + shape->prologue_k);
    best = MAX (best, use);
  }
  return best;
}

double
sp_curve_gemm_s (const double *value, gint32 sms, gint32 batch, gint64 m, gint64 n, gint64 k)
{
  SpGemmShape shape = { value[SP_GEMM_PROLOGUE], value[SP_GEMM_TILE_128], value[SP_GEMM_TILE_64], value[SP_GEMM_TAIL] };
  double flops = 2.0 * batch * m * n * k, bytes = 2.0 * batch * ((double) m * n + (double) m * k + (double) n * k);
  double compute = flops / (value[SP_GEMM_RATE] * sp_curve_gemm_use (&shape, sms, batch, m, n, k));

  return value[SP_GEMM_LAUNCH] + MAX (compute, bytes / value[SP_GEMM_MEMORY_RATE]);
}

double
sp_curve_core_use (double half_tokens, double head_power, double tokens, double head_size)
{
  double use = tokens / (tokens + half_tokens);

  return head_power != 0 ? use * pow (head_size / 128, head_power) : use;
}

/* Time of the longest block of 128 query rows, all of them on as many SMs, in that of all of the kernel. */
static double
longest_block (gint32 sms, const SpKernelSizes *sizes)
{
  double pair = sizes->op == SP_OP_ATTENTION ? 4 : 10, heads = (double) sizes->heads;
  double full = pair * (double) sizes->m * (double) sizes->n * (double) sizes->k * heads / sizes->flops;

  return CLAMP (full, 1, 2) * sms / ((double) ((sizes->m + 127) / 128) * heads);
}

/* The rate's part that the shape reaches. */
static double
kernel_use (const double *value, gint32 sms, const SpKernelSizes *sizes)
{
  gboolean softmax = sizes->op == SP_OP_ATTENTION || sizes->op == SP_OP_ATTENTION_BWD;

  if (sizes->op == SP_OP_GEMM) {
    const SpGemmShape shape = { value[SP_KERNEL_HALF_TOKENS], value[SP_KERNEL_TILE_128], value[SP_KERNEL_TILE_64],
                                value[SP_KERNEL_TAIL] };
    return sp_curve_gemm_use (&shape, sms, (gint32) sizes->heads, sizes->m, sizes->n, sizes->k);
  }
  double use = sp_curve_core_use (value[SP_KERNEL_HALF_TOKENS], value[SP_KERNEL_HEAD_POWER],
                                  (double) MAX (softmax ? sizes->n : sizes->m, 1), (double) MAX (sizes->k, 1));
  if (softmax && value[SP_KERNEL_TAIL] > 0)
    use /= 1 + value[SP_KERNEL_TAIL] * longest_block (sms, sizes);
  if (value[SP_KERNEL_WAVE] > 0) {
    double waves = (double) sizes->m * (double) sizes->heads / value[SP_KERNEL_WAVE];
    use *= waves / (waves + value[SP_KERNEL_TAIL] * (ceil (waves * (1 - 1e-9)) - waves));
  }
  return use;
}

double
sp_curve_waves (gint32 sms, const SpKernelSizes *sizes)
{
  double rows = (double) tiles_of (sizes->m, 7), heads = (double) sizes->heads;

  if (sizes->op == SP_OP_GEMM)
    return MAX (rows * (double) tiles_of (sizes->n, 8) * heads / sms, 1);
  if (sizes->op == SP_OP_ATTENTION || sizes->op == SP_OP_ATTENTION_BWD)
    return MAX (rows * heads / sms, 1);
  return INFINITY;
}

double
sp_curve_slowdown (const double *value, gint32 sms, const SpKernelSizes *sizes)
{
  return value[SP_SLOWDOWN_BASE] + value[SP_SLOWDOWN_WAVE] / sp_curve_waves (sms, sizes);
}

double
sp_curve_kernel_s (const double *value, gint32 sms, const SpKernelSizes *sizes)
{
  double cached = value[SP_KERNEL_CACHE_RATE] > 0 ? MIN (sizes->bytes, value[SP_KERNEL_CACHE]) : 0;
  double memory = cached > 0 ? cached / value[SP_KERNEL_CACHE_RATE] : 0;
  double compute = value[SP_KERNEL_ROW] * (double) sizes->m * (double) sizes->heads;

  if (value[SP_KERNEL_MEMORY_RATE] > 0)
    memory += (sizes->bytes - cached) / value[SP_KERNEL_MEMORY_RATE];
  if (value[SP_KERNEL_RATE] > 0 && sizes->flops > 0)
    compute += sizes->flops / (value[SP_KERNEL_RATE] * kernel_use (value, sms, sizes));
  if (sizes->clock > 0)
    compute /= sizes->clock;
  return value[SP_KERNEL_LAUNCH] + MAX (compute, memory) + value[SP_KERNEL_SERIAL] * MIN (compute, memory);
}

double
sp_curve_power_clock (const double *value, double flops_per_s, double bytes_per_s, double power_w)
{
  double left_w = power_w - value[SP_POWER_IDLE] - value[SP_POWER_BYTE] * bytes_per_s;

  return left_w > 0 ? sqrt (left_w / (value[SP_POWER_FLOP] * flops_per_s)) : 0;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static double
latency_of (const double *piece, double bytes)
{
  double growth = piece[SP_PIECE_GROWTH];

  return growth > 0 ? piece[SP_PIECE_LATENCY] * pow (bytes / 0x1p20, growth) : piece[SP_PIECE_LATENCY];
}

double
sp_curve_piece_s (const double *piece, double bytes)
{
  return latency_of (piece, bytes) + bytes / piece[SP_PIECE_RATE];
}

static double
piece_of_curve (const SpCurve *curve, guint i, double bytes, double *ret_latency_s)
{
  const SpQuantity *value = &curve->value[i * SP_PIECE_SLOTS];
  const double piece[SP_PIECE_SLOTS] = { value[0].value, value[1].value, value[2].value };

  *ret_latency_s = latency_of (piece, bytes);
  return *ret_latency_s + bytes / piece[SP_PIECE_RATE];
}

/* Between piece `i` and the next. */
static double
between_pieces (const SpCurve *curve, guint i, double bytes, double *ret_latency_s)
{
  double latency_s, left = piece_of_curve (curve, i, bytes, ret_latency_s);
  double right = piece_of_curve (curve, i + 1, bytes, &latency_s);
  double from = piece_of_curve (curve, i, curve->end[i], &(double){ 0 });
  double to = piece_of_curve (curve, i + 1, curve->begin[i + 1], &(double){ 0 });

  if (right < left)
    *ret_latency_s = latency_s;
  return CLAMP (MIN (left, right), MIN (from, to), MAX (from, to));
}

double
sp_curve_transfer_s (const SpCurve *curve, double bytes, double *ret_latency_s)
{
  guint pieces = curve->n_slots / SP_PIECE_SLOTS, i = 0;
  double latency_s, seconds;

  bytes = MAX (bytes, 1);
  while (i + 1 < pieces && bytes >= curve->begin[i + 1])
    i++;
  if (i + 1 < pieces && bytes > curve->end[i])
    seconds = between_pieces (curve, i, bytes, &latency_s);
  else
    seconds = piece_of_curve (curve, i, bytes, &latency_s);
  if (ret_latency_s != NULL)
    *ret_latency_s = MIN (latency_s, seconds);
  return seconds;
}

gboolean
sp_curve_reshape (const SpCurve *curve, gint32 ranks, gint32 nodes, double *ret_steps, double *ret_scale)
{
  gboolean one = nodes == 1, alike = curve->nodes > 1 && nodes > 1 && curve->ranks / curve->nodes == ranks / nodes;
  double steps = 1, scale = 1;

  if (curve->ranks < 2 || ranks < 2 || !(one ? curve->nodes == 1 : alike))
    return FALSE;
  switch (curve->kind) {
  case SP_CURVE_ALL_GATHER:
  case SP_CURVE_REDUCE_SCATTER:
  case SP_CURVE_ALL_REDUCE:
    steps = (double) (ranks - 1) / (curve->ranks - 1);
    G_GNUC_FALLTHROUGH;
  case SP_CURVE_ALL_TO_ALL:
    scale = (1 - 1.0 / ranks) / (1 - 1.0 / curve->ranks);
    break;
  case SP_CURVE_ONE_WAY:
  case SP_CURVE_SEND_RECEIVE:
    break;
  default:
    return FALSE;
  }
  *ret_steps = steps;
  *ret_scale = scale;
  return TRUE;
}

/* --- another time ------------------------------------------------------------------------------------------------- */

static void
scale (SpCurve *curve, double factor, const guint *seconds, guint n_seconds, const guint *rates, guint n_rates)
{
  for (guint i = 0; i < n_seconds; i++)
    curve->value[seconds[i]].value *= factor;
  for (guint i = 0; i < n_rates; i++)
    curve->value[rates[i]].value /= factor;
}

void
sp_curve_scale_s (SpCurve *curve, double factor)
{
  static const guint gemm_s[] = { SP_GEMM_LAUNCH }, gemm_rates[] = { SP_GEMM_RATE, SP_GEMM_MEMORY_RATE };
  static const guint core_s[] = { SP_CORE_LAUNCH }, core_rates[] = { SP_CORE_RATE };
  static const guint kernel_s[] = { SP_KERNEL_LAUNCH, SP_KERNEL_ROW };
  static const guint beside_s[] = { SP_BESIDE_WAIT, SP_BESIDE_FACTOR };
  static const guint kernel_rates[] = { SP_KERNEL_MEMORY_RATE, SP_KERNEL_CACHE_RATE, SP_KERNEL_RATE };

  switch (curve->kind) {
  case SP_CURVE_GEMM:
    scale (curve, factor, gemm_s, G_N_ELEMENTS (gemm_s), gemm_rates, G_N_ELEMENTS (gemm_rates));
    break;
  case SP_CURVE_ATTENTION:
  case SP_CURVE_ATTENTION_BACKWARD:
  case SP_CURVE_LINEAR:
  case SP_CURVE_LINEAR_BACKWARD:
    scale (curve, factor, core_s, G_N_ELEMENTS (core_s), core_rates, G_N_ELEMENTS (core_rates));
    break;
  case SP_CURVE_KERNEL:
    scale (curve, factor, kernel_s, G_N_ELEMENTS (kernel_s), kernel_rates, G_N_ELEMENTS (kernel_rates));
    break;
  case SP_CURVE_SLOWDOWN:
    curve->value[SP_SLOWDOWN_BASE].value = (1 + curve->value[SP_SLOWDOWN_BASE].value) * factor - 1;
    curve->value[SP_SLOWDOWN_WAVE].value *= factor;
    break;
  case SP_CURVE_BESIDE:
    scale (curve, factor, beside_s, G_N_ELEMENTS (beside_s), NULL, 0);
    break;
  case SP_CURVE_LAUNCH:
    scale (curve, factor, &(guint){ 0 }, 1, NULL, 0);
    break;
  case SP_CURVE_POWER: /* the clock goes with the root of the energy */
    scale (curve, factor * factor, &(guint){ SP_POWER_FLOP }, 1, NULL, 0);
    break;
  case SP_CURVE_MEMORY: /* which has no time */
    break;
  default:
    for (guint i = 0; i < curve->n_slots; i += SP_PIECE_SLOTS)
      scale (curve, factor, &(guint){ i + SP_PIECE_LATENCY }, 1, &(guint){ i + SP_PIECE_RATE }, 1);
  }
}
