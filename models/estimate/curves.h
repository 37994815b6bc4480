/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The formulas of curves, in one place: the fit (calibrate/) finds their parameters, the cost model (cost.h) uses them.
 * Seconds, bytes, FLOP; parameters in the slots of models/inputs/profile.h.
 *
 * GEMM. launch + max (flops / (rate use), bytes / memory-rate), bytes of A, B and C once.
 *   use: C is covered by tiles of 128 x 256, 128 x 128 or 64 x 64, of which the best is taken; the smaller ones reach
 *   tile-128 and tile-64 of the large one's rate. Tiles run in waves of one an SM. The last wave's idle SMs cost `tail`
 *   of what they would if time went by whole waves: less than 1 where the library splits tiles along K over SMs
 *   (stream-K) or clocks rise when SMs are idle. K is split where there are fewer tiles than SMs, down to 512 a part. A
 *   tile's start and end cost as much as `prologue` of K.
 *
 * Softmax attention (forward, backward). launch + flops / (rate w n / (n + half-tokens) (d / 128)^head-power): n keys,
 *   d the head size, w the share of SMs that blocks of 128 query rows a head keep busy in waves. FLOP as the kernel
 *   computes them: 4 d a pair of query and key forward, 10 d backward; the causal half where it is causal.
 * Kernels of programs, one curve a form of op: launch + max (c, m) + serial min (c, m), 0 of which is all hidden.
 *   m = min (b, cache) / cache-rate + max (b - cache, 0) / memory-rate: of b bytes those beyond what the L2 holds go to
 *   memory. cache = 0: one rate. rate = 0: c = row m heads, of a kernel that works a warp or a block a row, however wide
 *   that is. Else c = flops / (rate use), and use
 *     of a GEMM as above, half-tokens as its prologue;
 *     of softmax attention n / (n + half-tokens) (d / 128)^head-power / (1 + tail l), n keys. Blocks of 128 query rows
 *       a head go to SMs as these become free, so that after an even share of the work there may be up to one more,
 *       the longest (Graham's bound); l is its time in that share's: SMs / blocks, twice that where causal;
 *     of any other n / (n + half-tokens) (d / 128)^head-power x / (x + tail (ceil (x) - x)), n tokens: x waves of
 *       `wave` tokens of a head at once, of each of which `tail` is the same however full it is. wave = 0: none are seen.
 *   Bytes and FLOP as the program has them (sim/op.h). All of this at the highest clock of the SMs: at `clock` of it c is
 *   longer by 1 / clock, and m the same.
 * Power. Kernels together draw idle + flop clock^2 FLOP / s + byte bytes / s, flop being at the highest clock: energy goes
 *   with the square of the voltage, and that with the clock, more or less. On two H200, whose steps ran at 0.75 to 1 of
 *   their highest clock, the clock that goes with a measured power comes out so to 4 % (standard deviation); exponents of 1
 *   and 3 do worse, and a second energy for FLOP of linear attention no better. limit is what is drawn, on the mean, where
 *   the card holds the clock down. spread is the standard deviation, from card to card, of the logarithm of both energies:
 *   cards that are not held down take the same time, to half a percent on the H200 seen, and those that are differ.
 * Slowdown of a program's kernel beside a transfer: slowdown + wave / waves, of the time that it takes alone. A transfer
 *   holds some SMs, so that blocks which were to start together do not: they take so much of another wave. Of waves as
 *   below; kernels that memory bounds, and those whose blocks are not known, have the first term alone.
 * Linear attention. launch + flops / (rate n / (n + half-tokens) (d / 128)^head-power): n tokens. FLOP 8 d^2 a token
 *   and head forward, 20 d^2 backward, as models/strategies/lasp.c counts them.
 *
 * Transfers and copies, by payload b: up to three pieces of sizes, each
 *        latency (b / 1 MiB)^growth + b / rate.
 *   growth = 0 is the plain alpha-beta. Above 0 the latency rises with size: more channels are started, and a
 *   pipeline of chunks fills; then latency is its value at 1 MiB. The pieces are NCCL's protocols and algorithms;
 *   where it goes from one to the next, between end-i and begin-(i+1), is not known: there the quicker of both holds,
 *   but no time beyond those at the two ends. Below the first size measured the first piece holds, above the last one
 *   the last.
 *
 * From a group of P0 ranks to another one of P, of as many nodes' links (one node, or as many ranks a node): latency
 *   beyond the launch by the steps, bytes by what goes on the wire (sp_curve_reshape): all-gather and reduce-scatter
 *   P - 1 steps and (P - 1) / P of the payload; all-reduce both twice; all-to-all (P - 1) / P of the payload, at
 *   once; a send the same. Known lies: it holds for rings, as 2 ranks measure them, not for reduction in the switch,
 *   which 8 ranks may get; and pieces end at the same bytes a rank on the wire, where NCCL decides by more than that.
 */

#include "models/inputs/profile.h"

G_BEGIN_DECLS

typedef struct {
  double prologue_k, tile_128, tile_64, tail;
} SpGemmShape;

/* Without a profile. Prologue: with it the largest error over the GEMMs above 100 us that were measured on an H100
 * (cuBLAS, bf16) falls from 23 % to 14 %. Tiles: assumed: a smaller tile reads more per FLOP. Tail: whole waves. */
#define SP_GEMM_SHAPE_DEFAULT                                                                                          \
  {                                                                                                                    \
    256, 0.9, 0.6, 1                                                                                                   \
  }

/* Share of `sms` that `count` equal pieces keep busy, run in waves of one an SM. */
double sp_curve_wave_use (gint32 sms, gint64 count, double tail);
double sp_curve_gemm_use (const SpGemmShape *shape, gint32 sms, gint32 batch, gint64 m, gint64 n, gint64 k);
/* `value` in the slots of SP_CURVE_GEMM. */
double sp_curve_gemm_s (const double *value, gint32 sms, gint32 batch, gint64 m, gint64 n, gint64 k);

/* Fraction of the rate of softmax or linear attention that n tokens and heads of d reach. */
double sp_curve_core_use (double half_tokens, double head_power, double tokens, double head_size);

typedef struct {
  SpOpKind op;
  gint64 m, n, k, heads; /* heads of all batches */
  double bytes, flops;
  double clock; /* over the highest; 0 is 1 too */
} SpKernelSizes;

/* `value` in the slots of SP_CURVE_KERNEL. */
double sp_curve_kernel_s (const double *value, gint32 sms, const SpKernelSizes *sizes);

/* Waves of a kernel's blocks over the SMs, 1 at least: of products tiles of 128 x 256 (of fewer than SMs K is split), of
 * softmax attention 128 query rows of a head. INFINITY of others, whose blocks are not known. */
double sp_curve_waves (gint32 sms, const SpKernelSizes *sizes);
/* `value` in the slots of SP_CURVE_SLOWDOWN: the fraction by which the kernel takes longer. */
double sp_curve_slowdown (const double *value, gint32 sms, const SpKernelSizes *sizes);
/* `value` in the slots of SP_CURVE_POWER: the clock over the highest at which kernels of such rates draw that power; may be
 * above 1, or 0 where they would draw more at any. */
double sp_curve_power_clock (const double *value, double flops_per_s, double bytes_per_s, double power_w);

/* One piece, and all of them; `growth` 0 costs no pow(). */
double sp_curve_piece_s (const double *piece, double bytes);
/* The latency's part of it alone in *ret_latency_s; may be NULL. */
double sp_curve_transfer_s (const SpCurve *curve, double bytes, double *ret_latency_s);

/* What a payload over P ranks is to the curve: *ret_steps times its latency at *ret_scale times the payload. FALSE
 * where the curve says nothing of such a group. Of a group in one node, nodes = 1. */
gboolean sp_curve_reshape (const SpCurve *curve, gint32 ranks, gint32 nodes, double *ret_steps, double *ret_scale);

/* All seconds that the curve says times `factor`; of a slowdown those of what is slowed; of power those of kernels that FLOP
 * bound, at the rates that they had: their clock is that much lower. What is no time stays. */
void sp_curve_scale_s (SpCurve *curve, double factor);

G_END_DECLS
