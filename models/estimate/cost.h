/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What one op costs.
 *
 * Unit. Seconds (double), bytes and FLOP (as the program has them).
 *
 * Primitives, each a profile value with provenance and source (models/inputs/hardware.h):
 *   peak_bf16, gemm/attention/attention_backward/linear efficiency, memory rate and efficiency, launch     a device
 *   link rate and efficiency, link latency, NICs, NIC rate, network efficiency and latency                 a cluster
 *   host launch                                                                                            a framework
 *
 * Kernel: launch + max (flops / (peak e_c), bytes / (memory rate e_m)).
 *   GEMM      e_c = gemm efficiency x tile use x wave use: C is covered by tiles of 128 x 256, 128 x 128 or 64 x 64
 *             (the best is taken; the smaller reach 0.9 and 0.6 of the large one's rate, assumed), and tiles run in
 *             waves of one an SM, the last one partly filled. K is split where there are fewer tiles than SMs (down to
 *             512 a part); a tile's start and end cost as much as 256 of K.
 *   attention e_c = attention efficiency x wave use of blocks of 128 query rows a head.
 *   linear attention: linear efficiency. The rest: memory rate alone.
 *
 * Communication over a group of P ranks, g of them in one node of G GPUs, k = P / g nodes, at message size as NCCL
 * splits it:
 *   all-gather, reduce-scatter   wire = payload (P - 1) / P,  steps = P - 1
 *   all-reduce                   wire = 2 payload (P - 1) / P, steps = 2 (P - 1); or as a tree, 2 (log2 k + g - 1)
 *                                steps with wire = 2 payload; the quicker
 *   all-to-all                   to each other rank payload / P: (g - 1) / P of it by NVLink beside (P - g) / P by
 *                                network
 *   send                         the message, at the slowest hop of the group: a ring turns at that pace
 *   chain                        one message after the other, each at its own hop: k - 1 between nodes, P - k inside
 *   rate of a ring               min (link, g x the GPU's share of its node's NICs): all members' NICs serve the ring,
 *                                and the sibling groups of a node run at the same time
 *   rate of a send               link; across nodes min (one NIC, the node's NICs / flows that cross at once)
 *   latency                      k steps between nodes, the others inside; times the protocol's factor
 * The best of NCCL's protocols is taken: Simple (full rate), LL128 (120 of 128 bytes are data), LL (4 of 8), with their
 * step latencies relative to Simple as in NCCL's tuning table (nccl src/graph/tuning.cc: NVLink ring 0.6, 1.9, 3.4 us;
 * network 2.7, 4.0, 14 us). Sends use Simple.
 *
 * Known lies. Head sizes below 128 run attention slower than said (USP's tables: 140 TFLOP/s at 32 where 128 reaches
 * 185 on an A100). GEMM efficiency is that of the best library; no clock throttling. A collective starts when its last
 * rank arrives. No contention between different collectives of one GPU. No in-switch reduction (NVLS).
 */

#include "models/inputs/hardware.h"
#include "sim/program.h"

G_BEGIN_DECLS

typedef struct {
  gint32 size, per_node, nodes;
  double ring_bytes_per_s, send_bytes_per_s;
  double link_bytes_per_s, network_bytes_per_s;       /* a GPU's shares */
  double ring_latency_link_s, ring_latency_network_s; /* summed over P - 1 steps */
  double link_hop_latency_s;
  double hop_latency_s; /* one send at the slowest hop */
  double tree_latency_link_s, tree_latency_network_s;
  gboolean network; /* some hop leaves the node */
} SpPath;

/* Everything derived from profiles, so that an op costs no more than a few multiplications. */
typedef struct {
  double launch_s, host_launch_s;
  double s_per_flop[SP_N_OPS]; /* of the class of kernel; 0 where memory alone bounds it */
  double s_per_byte;
  double peak_flops_per_s;
  double slowdown;
  gint32 sms;
  SpPath paths[SP_N_GROUPS];
} SpCost;

/* Once per (cluster, framework); the paths once per layout. */
void sp_cost_init (SpCost *cost, const SpCluster *cluster, const SpFramework *framework);
void sp_cost_set_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program);

/* Seconds of one run of the op on the device, beside nothing else. A RECEIVE costs nothing: its SEND does. */
double sp_cost_op (const SpCost *cost, const SpOp *op);
/* Seconds of a SEND going along its whole group, place after place. */
double sp_cost_chain (const SpCost *cost, const SpOp *op);
/* Bytes that one GPU puts on links for the op. */
double sp_cost_wire_bytes (const SpCost *cost, const SpOp *op);

/* Fraction of the GEMM rate that the shape reaches (tile use x wave use). */
double sp_cost_gemm_use (const SpCost *cost, gint32 m, gint32 n, gint32 k);

/* The worst provenance among the values that the model rests on. */
SpProvenance sp_cost_provenance (const SpCluster *cluster, const SpFramework *framework, gboolean communicates);

G_END_DECLS
