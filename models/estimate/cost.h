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
 *   host launch, gather and step, elementwise, attention and linear time, attention head power             a framework
 *
 * Kernel: launch + max (flops / (peak e_c), bytes / (memory rate e_m)).
 *   GEMM      e_c = gemm efficiency x tile use x wave use: C is covered by tiles of 128 x 256, 128 x 128 or 64 x 64
 *             (the best is taken; the smaller reach 0.9 and 0.6 of the large one's rate, assumed), and tiles run in
 *             waves of one an SM, the last one partly filled. K is split where there are fewer tiles than SMs (down to
 *             512 a part); a tile's start and end cost as much as 256 of K.
 *             Muon's ORTHOGONALIZE is its GEMMs, three an iteration, each of the above and a launch.
 *             A matrix whose rows are no multiple of 16 bytes (a vocabulary of 50257) is read by other kernels, at
 *             unaligned-efficiency of that rate.
 *   attention e_c = attention efficiency x wave use of blocks of 128 query rows a head. Where the framework's go out in
 *             ascending order (FlashAttention-2), two an SM, those of a causal forward differ: w waves of them take as
 *             long as w + 1 + s / 3 (s + 1) full ones, where a head's blocks are 1 / s of a wave, and at most 2 w. The
 *             longest block, of twice the mean, starts last, when the others have 1 of their time left on the mean, or
 *             2 / 3 if heads are so short that they lie in any order. Below one wave nothing is shorter than the longest
 *             block. Blocks given out one by one take 3 % less to 2 % more from two waves on
 *             (tests/test-stack-kernels.c). A ring's blocks that no mask goes through (SP_OP_UNMASKED: zigzag and
 *             contiguous, all steps but the first) are equal, in whole waves. In zigzag some places have all rows with
 *             half of the keys and others half of the rows with all keys: whichever need more waves, the step is theirs.
 *             Where its kernels are of powers of two, a head size of 96 takes as long as one of 128.
 *   linear attention: linear efficiency. Unfused attention: its products, a batch of a head and sequence each, as GEMM.
 *             The rest: memory rate alone.
 *
 * A framework may be slower than that by a factor, elementwise-time of kernels that move data (it has several where
 * the program has one), attention-time of attention's core (another library, another head size), linear-time and
 * linear-backward-time of linear attention's, attention-causal-time of causal attention's, gemm-time of products and
 * optimizer-time of AdamW (an unfused one goes through its states several times). merge-time, of what merges a ring's
 * steps but the first into the output, pack-time, of what is beside an exchange of heads, and softmax-time, of what makes
 * probabilities of scores where attention is unfused, are numbers of kernels: with as many launches (in the softmax's
 * backward all but one read and write the gradient alone). A framework's attention has a rate that goes with
 * (head size / 128)^attention-head-power. Where its attention-library is `flash` and the device says what
 * FlashAttention-2 reaches (flash-efficiency), that is attention's efficiency.
 *
 * A collective that the next kernel waits for (those of shards and gradients apart) takes the framework's
 * collective-wait more than its transfer, and rank-wait for each rank besides, where its group leaves the node
 * network-wait too. One
 * in several calls (framework: data-calls = tensor) takes as often the time of an equal part.
 *
 * Without a profile. With one ([cluster] profile, models/inputs/profile.h) its curves (curves.h) stand where these
 * formulas do: GEMM, softmax attention and linear attention by their curve (of several libraries' the one that the
 * framework names, else the one of the highest rate), copies to and from the host, and transfers over groups of the
 * shape that was measured or that a curve extends to: those in one node of a switch, or of the same number of ranks in
 * each of several nodes where siblings do not get in each other's way. Other groups and kernels keep the formulas. A
 * transfer takes two hops between streams more than its curve, which was timed without kernels around it: its own, or
 * those of any kernel ([launch.2x1.hop-all-gather], [launch.hop]). A send has the curve of one way where there is
 * one, an all-reduce that ends where it begins that of in place. Known lie: two sends that meet are each one way. Messages of several tensors are as many equal parts at
 * once. A kernel beside communication slows by what its kind was measured to beside transfers, products and attention by
 * their waves; where it was not, by the mean of a GEMM's if it computes, of a copy's if memory alone bounds it. Async
 * communication takes longer, beyond its latency, by its factor beside a GEMM; gathers of updated parameters, which run
 * beside the optimizer, by that beside its kernels, or else a copy, and what they wait there; a transfer that was not
 * timed beside anything by the mean of those that were. The simulator still moves what is not latency over the cluster's
 * links, at most as fast as the curve says.
 * Known lies: what was timed launch by launch (imports) has the host's part in its launch; a curve beyond its range
 * goes on as its end does; how long a transfer waits for SMs that a GEMM holds is in the profile (beside), but not used:
 * most kernels are shorter than that GEMM, whose blocks it waits for. So a small transfer beside one long kernel is taken
 * to be hidden, which in fact begins when that gives way.
 *
 * The host issues a kernel in the framework's host-launch. In a pipeline an eager one takes host-slot, with idle GPUs, in
 * each forward and backward of a micro-batch, beside its kernels and messages (Megatron-LM, which synchronises the device
 * with each message, missed 2.5 ms a forward and backward on 64, 280 and 512 A100 alike, whatever was recomputed). In one
 * whose messages leave the node it issues a kernel in
 *   host-launch (1 + host-stall x tensor ranks x sequence ranks)
 * (nanotron's grid: 10, 15, 24 and 54 ms a layer of 2, 4, 8 and 16 tensor ranks there, whatever the model, micro-batch and
 * number of stages, where without a pipeline, or with one in a node, it is 5; threads of the adapters that take the
 * hosts' processors are our reading of it).
 *
 * Where the profile says what kernels draw ([power]), its kernels' curves hold at the highest clock, and those of a step's
 * work are priced at the one that the card's limit leaves them: see clock.h. Nothing else knows of power.
 *
 * The host: a copy to or from its memory is the launch and bytes / host rate; an optimizer that runs there moves its
 * bytes at an equal share of the node's host memory rate.
 *
 * Communication over a group of P ranks, g of them in one node of G GPUs, k = P / g nodes, at message size as NCCL
 * splits it (what each algorithm puts on links: sim/loads.h):
 *   all-gather, reduce-scatter   wire = payload (P - 1) / P,  steps = P - 1
 *   all-reduce                   wire = 2 payload (P - 1) / P, steps = 2 (P - 1); or as a tree, 2 (log2 k + g - 1)
 *                                steps with wire = 2 payload; or in the switch, see NVLS; the quickest
 *   all-to-all                   to each other rank payload / P: (g - 1) / P of it by NVLink beside (P - g) / P by
 *                                network
 *   send                         the message, at the slowest hop of the group: a ring turns at that pace
 *   chain                        one message after the other, each at its own hop
 *
 * FAIR rates, by which ops are priced: all sibling groups of the op run at once, and nothing else does.
 *   rate of a ring               min (link, g x the GPU's share of its node's NICs): all members' NICs serve the ring
 *   rate of a send               link; across nodes min (one NIC / GPUs that send or receive through it at once)
 *   a GPU's share                its adapter's rate / the GPUs that it serves (the most, where they are not alike)
 *   latency                      k steps between nodes, the others inside; times the protocol's factor
 * These hold where every GPU is behind an NVSwitch, the network is flat and the layout's digits line up with nodes. Else
 * rates come from the graph (sim/topology.h): the largest load / capacity of a link with all siblings running, latencies
 * from routes; the two agree where both hold (tests/test-cost.c). Worked out once for each (cluster, world, digits of
 * the group) and kept with the cluster.
 *
 * ALONE rates: the group by itself, or one message; of groups or hops that are not alike the quickest. No run of the op
 * takes less, whatever runs beside it. sp_cost_alone_ratio() is the least fair rate / alone rate of a group: so
 *     time that the ops of a group take   >=   ratio x the sum of their prices
 * and a lower bound that adds up prices of communication has to multiply each group's by its ratio.
 *
 * The best of NCCL's protocols is taken: Simple (full rate), LL128 (120 of 128 bytes are data), LL (4 of 8), with their
 * step latencies relative to Simple as in NCCL's tuning table (nccl src/graph/tuning.cc: NVLink ring 0.6, 1.9, 3.4 us;
 * network 2.7, 4.0, 14 us). Sends use Simple, and so does all that leaves a node where the cluster says so (AWS's EFA);
 * it may say too that nothing but rings leaves a node.
 *
 * NVLS, where the device has it (nvls = true) and the node is a switch: ports carry 1 + 1 / g of the payload each way, at
 * 0.85 of the link's reached rate (NCCL's nvlsEfficiency for Hopper; 8 H100 so give 269 GB/s of payload where 269 was
 * measured with a link efficiency of 0.79), for a fixed 25 us of NVLink latency where a ring step is 3.4 us; between
 * nodes the tree's bytes and steps of 20.9 us where a ring's is 14 us (the same table). Simple protocol. In one node also
 * for all-gather and reduce-scatter, where it saves nothing but steps.
 *
 * Known lies. Head sizes below 128 run attention slower than said where neither a curve nor the framework says how much
 * (USP's tables: 140 TFLOP/s at 32 where 128 reaches 185 on an A100). GEMM efficiency is that of the best
 * library. A collective starts when its last
 * rank arrives. No contention between different collectives of one GPU.
 */

#include "models/estimate/curves.h"
#include "models/inputs/hardware.h"
#include "sim/loads.h"
#include "sim/program.h"

G_BEGIN_DECLS

/* A group's rates and latencies. */
typedef struct {
  gint32 size, per_node, nodes;                 /* the least that a node has, the most nodes */
  gint32 crossings;                             /* hops from place to place that leave a node */
  guint64 identity;                             /* of two paths of a cluster: equal if and only if they are */
  double ring_bytes_per_s, tree_bytes_per_s;    /* of wire */
  double send_bytes_per_s, near_bytes_per_s;    /* of a message at the slowest hop, and inside a node */
  double link_bytes_per_s, network_bytes_per_s; /* a GPU's shares */
  double pairwise_s_per_byte;                   /* of payload; 0: from the shares; negative: not yet known */
  double nvls_s_per_byte[3];                    /* of payload: all-reduce, reduce-scatter, all-gather; 0: it has not */
  double ring_latency_link_s, ring_latency_network_s; /* summed over P - 1 steps */
  double link_hop_latency_s;
  double hop_latency_s; /* one send at the slowest hop */
  double tree_latency_link_s, tree_latency_network_s;
  double nvls_latency_s;
  double alone_ratio; /* least fair rate / alone rate, all-to-all apart: use sp_cost_alone_ratio() */
  gboolean network;   /* some hop leaves the node */
  gboolean is_alone;
  struct _SpPathEntry *entry; /* of the graph's: see paths.h */
} SpPath;

/* A fitted curve for an op of a group: steps times its latency beyond the launch at scale times the payload. */
typedef struct {
  const SpCurve *curve; /* NULL: the formula */
  double steps, scale;
  double hop_s; /* from a stream to another: before and behind what the curve says, which was timed alone */
} SpGroupCurve;

typedef enum {
  SP_CURVE_OF_ONE_WAY, /* a send; of a profile that has none one way, or not for the group, that of both ways */
  SP_CURVE_OF_ONE_WAY_NEAR, /* one that stays in a node */
  SP_CURVE_OF_SEND_RECEIVE,
  SP_CURVE_OF_SEND_RECEIVE_NEAR,
  SP_CURVE_OF_ALL_GATHER,
  SP_CURVE_OF_REDUCE_SCATTER,
  SP_CURVE_OF_ALL_REDUCE,
  SP_CURVE_OF_ALL_REDUCE_IN_PLACE, /* or, where that was not timed, as the one before */
  SP_CURVE_OF_ALL_TO_ALL,
  SP_N_GROUP_CURVES
} SpGroupCurveId;

/* Everything derived from profiles, so that an op costs no more than a few multiplications. */
typedef struct {
  double launch_s, host_launch_s, host_gather_s, host_step_s, host_slot_s;
  double collective_wait_s, rank_wait_s, network_wait_s;
  double shard_time; /* of gathers and scatters of shards, beyond what is fixed; 1 as a rule */
  double host_issue_s, host_stall; /* what host_launch_s of a layout is made of */
  gboolean host_runs_ahead; /* from step to step */
  gboolean simple_network;  /* nothing but Simple between nodes */
  gboolean ring_network;    /* and rings alone */
  double s_per_flop[SP_N_OPS]; /* of the class of kernel; 0 where memory alone bounds it */
  double s_per_byte;
  double host_s_per_byte;        /* over PCIe */
  double host_kernel_s_per_byte; /* of the host's memory, a GPU's share of its processors */
  double peak_flops_per_s;
  double unaligned_time; /* of a product one of whose matrices has rows that are no multiple of 16 bytes; at least 1 */
  double time_of_bf16; /* of what FLOP bound, over that in bf16: 1, or in fp32 the ratio of the peaks */
  double fp8_of_bf16; /* time of a product in fp8 over that in bf16, where FLOP bound it: the same fraction of its peak */
  double slowdown;                 /* of kernels beside communication, as a rule, */
  double slowdown_of[SP_N_OPS][2]; /* by kind of kernel, as sp_curve_slowdown() has it, */
  double most_slowdown;            /* and the largest of them */
  double hop_s[SP_N_GROUP_CURVES]; /* as in curves */
  double stretch[SP_N_GROUP_CURVES]; /* of async communication, beyond its latency: beside kernels, as a rule, */
  double memory_stretch[SP_N_GROUP_CURVES]; /* and beside the optimizer's, which memory bounds */
  double memory_wait_s[SP_N_GROUP_CURVES];  /* until these give way to it */
  const SpCurve *power; /* NULL: nothing is held down */
  double clock;         /* at which kernels are priced, over the highest: 1, but while a variant's work is */
  double clocks[SP_MAX_VARIANTS]; /* of a variant's work: models/estimate/clock.h */
  gint32 gpus;          /* 0: not yet; of so many */
  double energy;        /* the one that draws most draws so much more than the mean: clock.h */
  gint32 sms;
  SpGemmShape gemm_shape;
  double gemm_s_per_byte;
  double kernel_launch_s[SP_N_OPS]; /* launch_s, but for kernels that have a curve */
  double stack_time[SP_N_OPS]; /* of the framework's kernel over what is said here */
  double kernels_of[SP_N_OPS]; /* how many the framework has for one; 1 as a rule */
  double causal_time; /* the same of causal attention, beside that */
  gboolean ascending, padded; /* attention's blocks and head sizes: see above */
  double half_tokens[SP_N_OPS], head_power[SP_N_OPS];
  const SpCurve *kernels[SP_N_OPS]; /* first of a profile's curves of the op; NULL: the above */
  const char *attention_library;    /* whose of them are attention's; NULL: the quickest's. The framework's */
  const SpCurve *to_host, *from_host; /* NULL: host_s_per_byte */
  gboolean fitted;                    /* transfers have curves */
  SpGroupCurve curves[SP_N_GROUPS][SP_N_GROUP_CURVES];
  SpPath paths[SP_N_GROUPS]; /* fair */
  SpPath alone[SP_N_GROUPS];
} SpCost;

/* Once per (cluster, framework); the paths once per layout. */
void sp_cost_init (SpCost *cost, const SpCluster *cluster, const SpFramework *framework);
void sp_cost_set_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program);
/* Those that a block's work needs alone, for bounds: other prices are those of a layout before. */
void sp_cost_set_work_paths (SpCost *cost, const SpCluster *cluster, const SpProgram *program);
/* And beside them that of messages between stages. */
void sp_cost_set_pipeline_path (SpCost *cost, const SpCluster *cluster, const SpProgram *program);

/* fp32 has the fraction of its own peak that bf16 reaches of its; without tensor cores, which is what peak-fp32 is of.
 * Curves of a profile are left as they are: known lie, they were timed in bf16. */
void sp_cost_set_precision (SpCost *cost, const SpCluster *cluster, SpDtype precision);

/* Seconds of one run of the op on the device, beside nothing else. A RECEIVE costs nothing: its SEND does. */
double sp_cost_op (const SpCost *cost, const SpOp *op);
/* At a place of its group: of the op as it is there (sim/op-place.h), of which the above is a place's between the ends;
 * of an op flagged SP_OP_BY_PLACE the above is the last one's, and those between it and the first are in proportion. */
double sp_cost_op_at (const SpCost *cost, const SpOp *op, gint32 place);
/* The same in parts: of it launch and latency, and the algorithm that is priced (NONE for kernels, and where there is
 * nobody to talk to). Both may be NULL. */
double sp_cost_op_parts (const SpCost *cost, const SpOp *op, double *ret_fixed_s, SpAlgorithm *ret_algorithm);
/* Beside nothing at all, not even its sibling groups. */
double sp_cost_op_alone (const SpCost *cost, const SpOp *op, double *ret_fixed_s, SpAlgorithm *ret_algorithm);
/* One message of the op's group, inside a node or at the slowest hop; `alone`: beside no other message. */
double sp_cost_message (const SpCost *cost, const SpOp *op, gboolean same_node, gboolean alone, double *ret_fixed_s);
/* At most 1: see above. Of all-to-alls it knows those over SP_GROUP_ULYSSES, SP_GROUP_ULYSSES_LINEAR and
 * SP_GROUP_EXPERT alone. */
double sp_cost_alone_ratio (const SpCost *cost, SpGroupId group);
/* Seconds of a SEND going along its whole group, place after place. */
double sp_cost_chain (const SpCost *cost, const SpOp *op);
/* Bytes that one GPU puts on links for the op. */
double sp_cost_wire_bytes (const SpCost *cost, const SpOp *op);

/* Fraction of the GEMM rate that the shape reaches (tile use x wave use), `batch` of them at once. */
double sp_cost_gemm_use (const SpCost *cost, gint32 batch, gint32 m, gint32 n, gint32 k);

/* What a run of the program takes beside it, the framework's host-step: none where it is no whole step. */
static inline double
sp_cost_beside_step (const SpCost *cost, const SpProgram *program)
{
  return program->scope == SP_SCOPE_STEP ? cost->host_step_s : 0;
}

/* What the host has GPUs idle for in each slot of a schedule, but those that do the weights' part of a backward. */
static inline double
sp_cost_beside_slot (const SpCost *cost, const SpProgram *program)
{
  return program->stages > 1 ? cost->host_slot_s : 0;
}

/* Fraction by which the kernel is slower beside communication. */
double sp_cost_slowdown (const SpCost *cost, const SpOp *op);
/* Fraction by which communication takes longer beyond what is fixed of it. */
double sp_cost_stretch (const SpCost *cost, const SpOp *op);

/* The worst provenance among the values that the model rests on. */
SpProvenance sp_cost_provenance (const SpCluster *cluster, const SpFramework *framework, gboolean communicates);

G_END_DECLS
