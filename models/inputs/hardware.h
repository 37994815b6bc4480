/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices, clusters and frameworks: numbers with a source.
 *
 * Every value of a profile stands in its INI file beside its provenance and source:
 *     peak-bf16 = 312 TFLOP/s
 *     peak-bf16.source = datasheet: NVIDIA A100 80GB data sheet
 * The word before the colon is the provenance. A value without a source line is `assumed`.
 */

#include <glib.h>

#include "sim/program.h"
#include "sim/topology.h"

G_BEGIN_DECLS

/* From best to worst: a prediction rests on the worst of what it used. */
typedef enum { SP_MEASURED, SP_PUBLISHED, SP_DATASHEET, SP_ASSUMED, SP_N_PROVENANCES } SpProvenance;

const char *sp_provenance_name (SpProvenance provenance);

typedef struct {
  double value;
  SpProvenance provenance;
  char *source; /* NULL for assumed without a word */
} SpQuantity;

#define SP_N_FRAMEWORK_FLAGS 27

/* What a key of a profile may be: SpUnit of ini.h, and bounds. */
typedef struct {
  guint unit;
  double min, max;
} SpQuantityRange;

/* A GPU. Efficiencies are fractions of the peak that the best large case reaches; how a shape falls short of it is the
 * cost model's business (models/estimate/cost.h). */
typedef struct {
  char *name;
  SpQuantity peak_bf16_flops_per_s; /* dense */
  SpQuantity peak_fp32_flops_per_s; /* vector, no tensor cores */
  SpQuantity memory_bytes;          /* as the driver reports it */
  SpQuantity memory_bytes_per_s;
  SpQuantity sms;
  SpQuantity launch_s;             /* start to start of dependent kernels of no work, on the device */
  SpQuantity gemm_efficiency;      /* of peak_bf16, large square GEMM */
  SpQuantity attention_efficiency; /* of peak_bf16, fused softmax attention forward, long sequence, head size 128 */
  SpQuantity attention_backward_efficiency;
  SpQuantity linear_efficiency; /* of peak_bf16, chunked linear attention */
  SpQuantity memory_efficiency; /* of memory_bytes_per_s, large copy */
  SpQuantity link_bytes_per_s;  /* NVLink (or PCIe), one direction */
  SpQuantity overlap_slowdown;  /* fraction by which a kernel slows while NCCL runs beside it */
  /* with defaults */
  SpQuantity noise;                /* relative standard deviation of a kernel's time; 0 */
  SpQuantity pcie_bytes_per_s;     /* to an adapter, one direction; 0: as fast as the link, so that it never limits */
  SpQuantity peak_fp8_flops_per_s; /* dense, fp32 accumulation; 0: none */
  /* Of peak_bf16, FlashAttention-2's kernels where the above are those of a quicker library: what a framework whose
   * attention_library is `flash` has without a profile; 0: as the above. */
  SpQuantity flash_efficiency, flash_backward_efficiency;
  SpQuantity unaligned_efficiency; /* of gemm_efficiency, for matrices whose rows are no multiple of 16 bytes; 0: all */
  gboolean nvls;                   /* NCCL reduces in the NVSwitch; FALSE */
  gboolean no_bf16;                /* `bf16 = false`: peak_bf16 and what is a fraction of it are fp16's */
} SpDevice;

SpDevice *sp_device_load (const char *path, GError **error);
/* Of a text, with a 0 after its `length` bytes, as if it were the file `path`. */
SpDevice *sp_device_parse (const char *path, const char *text, gsize length, GError **error);
/* Whether such a file can have the key (`name` and sources apart). */
gboolean sp_device_has_key (const char *key);
/* The number of a key, for who fits it; NULL: the key is no number, or there is none. `range` may be NULL. */
SpQuantity *sp_device_quantity (SpDevice *device, const char *key, SpQuantityRange *range);
void sp_device_free (SpDevice *device);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpDevice, sp_device_free)

/* Equal nodes of equal GPUs, and a network between them: see sim/topology.h for the kinds and what their numbers mean.
 * Rates are of one direction, before efficiencies. A key of another kind than the chosen one is refused. Defaults:
 *
 *    node = switch          switch | mesh | pcie | pairs
 *    of pcie, pairs         gpus-per-switch and switches-per-socket required; socket-rate too where there is more than
 *                           one socket; uplink-rate: the device's link rate, of pairs its pcie-rate
 *    of pairs               link-rate is the bridge's; a device with pcie-rate, which link-efficiency holds for too
 *    fabric = flat          flat | leaf-spine | rails | torus | dragonfly; only with more than one node
 *    of leaf-spine, rails   nodes-per-leaf required; oversubscription 1; spines: so many that an uplink is about as fast
 *                           as an adapter
 *    of torus               dims = 4x4x2 required, their product the nodes; router-rate: a node's adapters together
 *    of dragonfly           groups and routers-per-group required, nodes-per-router what fills them; router-rate: the
 *                           adapters of a router's nodes together; global-rate: those of a group's nodes over the
 *                           other groups
 *    of all but flat        hop-latency 0
 *    profile: none; the file of a profile (profile.h), relative to the cluster's
 *    network-noise = 0
 *    network-protocol = any any | simple
 *    network-algorithm = any any | ring
 *    host-memory = 0; host-rate: 88 % of the device's pcie-rate, else 25 GB/s, assumed: as copies reach it;
 *    host-memory-rate = 136 GB/s, assumed: two sockets of six channels, about half their peak */
typedef struct {
  char *name;
  SpDevice *device; /* owned */
  gint32 nodes, gpus_per_node;
  SpQuantity link_efficiency; /* reached fraction of the device's link rate, large messages */
  SpQuantity link_latency_s;  /* of one hop or collective step inside a node */
  SpQuantity nics;            /* a node */
  SpQuantity nic_bytes_per_s; /* one adapter, one direction */
  SpQuantity network_efficiency;
  SpQuantity network_latency_s; /* of one hop or step between nodes */

  guint8 node;   /* SpNodeKind */
  guint8 fabric; /* SpFabricKind */
  gint32 gpus_per_switch, switches_per_socket;
  SpQuantity uplink_bytes_per_s, socket_bytes_per_s;
  gint32 nodes_per_leaf, spines;
  SpQuantity oversubscription;
  gint32 dims[SP_TOPOLOGY_MAX_DIMS], n_dims;
  gint32 groups, routers_per_group, nodes_per_router;
  SpQuantity router_bytes_per_s, global_bytes_per_s;
  SpQuantity hop_latency_s;           /* of each further link between switches */
  SpQuantity host_memory_bytes;       /* a node's; 0: not known, so that it never limits */
  SpQuantity host_bytes_per_s;        /* a GPU to or from host memory, one direction, reached */
  SpQuantity host_memory_bytes_per_s; /* a node's processors to their memory, reached by an optimizer's kernel */
  gboolean
      simple_network;    /* `network-protocol = simple`: NCCL has its Simple protocol alone between nodes; FALSE: any */
  gboolean ring_network; /* `network-algorithm = ring`: no trees between nodes, nor reduction in switches; FALSE: any */
  SpQuantity network_noise; /* relative standard deviation of a collective's or message's time */

  GPtrArray *notes; /* char*: what was assumed in making it; NULL: none */

  struct _SpProfile *profile; /* fitted curves in place of the cost model's formulas; owned; NULL: none */

  struct _SpClusterMemo *memo; /* what models/estimate/paths.h keeps; NULL: it keeps nothing */
} SpCluster;

/* `device = FILE` inside is relative to the cluster's file. Of a machine's own dump: models/inputs/topology-dump.h. */
SpCluster *sp_cluster_load (const char *path, GError **error);
/* Of a text, as above. */
SpCluster *sp_cluster_parse (const char *path, const char *text, gsize length, GError **error);
/* As many nodes of it; of one node with a switch, a part of its GPUs; of any, one GPU. 0 keeps what it has. NULL, or
 * what speaks against it, to be freed with g_free: ", expected ..." included. Before anything else is asked of the
 * cluster. */
char *sp_cluster_resize (SpCluster *cluster, gint32 nodes, gint32 gpus_per_node);
gboolean sp_cluster_has_key (const char *key);
/* As of a device; only what all kinds of clusters have. */
SpQuantity *sp_cluster_quantity (SpCluster *cluster, const char *key, SpQuantityRange *range);
void sp_cluster_free (SpCluster *cluster);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpCluster, sp_cluster_free)

/* The network in the topology's terms, efficiencies applied: link_efficiency inside nodes, network_efficiency on the way
 * to adapters and between nodes. */
void sp_cluster_topology_spec (const SpCluster *cluster, SpTopologySpec *ret);

/* What is worked out of a cluster once and kept: its network, and the rates of groups by a key. Owned by the cluster,
 * used under its lock. */
#define SP_CLUSTER_MEMO_LISTS 1024

typedef struct _SpClusterMemo {
  GMutex lock;          /* held by who adds something */
  SpTopology *topology; /* NULL until it is asked for */
  /* Of groups, by hash: lists of models/estimate/paths-graph.c, and all that they hold. */
  struct _SpPathEntry *rates[SP_CLUSTER_MEMO_LISTS];
  GSList *entries;
} SpClusterMemo;

/* An empty one, for who changes a cluster's numbers. */
SpClusterMemo *sp_cluster_memo_new (void);
void sp_cluster_memo_free (SpClusterMemo *memo); /* NULL is none */

/* How the user's stack behaves: what the writers and the memory model do differently for it. */
typedef struct {
  char *name;
  /* FALSE: score matrices are written and kept (Megatron of 2022). */
  gboolean fused_attention;
  /* `recompute = selective` means the attention core (scores to context); FALSE: norms and activations. */
  gboolean selective_attention;
  /* Full recompute runs a layer to its end, not only to the last tensor needed. */
  gboolean recompute_whole;
  /* Each op costs the host host_launch_s; FALSE: captured or compiled away. */
  gboolean host_eager;
  /* The loss keeps an fp32 copy of the logits. */
  gboolean fp32_logits;
  /* Its backward holds three such copies at once (PyTorch's cross entropy: the log-softmax, its gradient, the logits'
   * gradient); FALSE: the gradient takes the logits' place. */
  gboolean loss_copies;
  /* LASP (version 1) computes the own tokens' part of linear attention once the state from before is there, and passes
   * the state on after both parts, as its authors' code does; FALSE: before and beside, as the algorithm allows. */
  gboolean lasp_local_after;
  /* What follows is FALSE where a file does not say it. */
  /* A gated MLP is two kernels: f(gate) is a tensor of its own, which the backward of the product reads. */
  gboolean glu_apart;
  /* The forward of fused attention gives out its blocks of query rows two an SM, a causal head's from its first tokens on,
   * whose blocks are the shortest (FlashAttention-2): the longest are left for the end; FALSE: one an SM, none is longer. */
  gboolean attention_ascending;
  /* Fused attention's kernels are of head sizes that are powers of two (FlashAttention's by Triton), to which others are
   * padded; FALSE: of each size. */
  gboolean attention_padded;
  /* The projection reads a copy of the attention core's output, which lies as the queries do (heads first), as
   * PyTorch's scaled_dot_product_attention leaves it; the core's backward keeps its own. */
  gboolean attention_copied;
  /* Of an exchange of heads alone: the core is a ring of one, so that its output, and its gradients, are cast to the ring's
   * fp32 sums and back (USP's code); FALSE: the kernel alone. */
  gboolean sums_alone;
  /* With sequence regions: what a split matrix reads is kept whole from forward to backward; FALSE: each tensor rank
   * keeps its rows and gathers them again for the weight's gradient (Megatron-LM). */
  gboolean keeps_whole;
  /* What tensor ranks gather goes to two buffers that stay, one of the forward's products and one of the backward's, as
   * large as the largest that is gathered (in the fullest list what is gathered there counts besides); FALSE: to tensors
   * of its own. */
  gboolean keeps_gathers;
  /* The gather of a split matrix's input for its weights' gradient runs beside the product that makes the input's, and the
   * sum of that over tensor ranks beside the weights'; FALSE: one after the other. Only with the layout's overlap. */
  gboolean overlaps_tensor;
  /* Of ZeRO-3: the fp32 master's shard is what is gathered, in the parameters' type; no shard of these (FSDP2). */
  gboolean gathers_master;
  /* Of ZeRO-3: the embedding and the head stay gathered from their forward to the end of their backward, as the root
   * of fully_shard does. */
  gboolean keeps_ends;
  /* Shards of gradients end with the step (zero_grad with set_to_none). Only with one micro-batch. */
  gboolean frees_gradients;
  /* Activations between layers are fp32 and each matrix has its input cast for itself; without ZeRO what no matrix
   * multiplies with has no bf16 parameters. */
  gboolean autocast;
  /* The stack has a loss in chunks of the tokens (SP_LOSS_CHUNKED), so that the planner may choose it. A scenario may say
   * it of any stack. */
  gboolean chunks_loss;
  /* Without ZeRO, and of stage 1: as much as a micro-batch's gradients again, for the buckets that they are reduced in. */
  gboolean gradient_copies;
  /* Without ZeRO, and of stage 1: a micro-batch's gradients are tensors of their own, in the parameters' type, which are
   * added to the sums when its backward is over; FALSE: kernels add to the sums. */
  gboolean gradients_apart;
  /* Where rows are the same on all tensor ranks, each sends its part alone to the next stage, where the parts are
   * gathered. */
  gboolean pipeline_scatter;
  /* The host issues the next step while GPUs run this one, so that what holds up a step is all that it issues, not each
   * list's part; FALSE: within a list. */
  gboolean host_runs_ahead;
  /* ZeRO's gathers and scatters have communicators and streams of their own, and nobody limits how far they run ahead
   * (fairscale's FSDP), so that a place of a chain that is late holds up no other's layers; FALSE: each layer waits for
   * its own (PyTorch's FSDP). */
  gboolean shards_run_free;
  /* What data ranks reduce, scatter and gather goes tensor by tensor, a call each; FALSE: a block at once. */
  gboolean tensor_calls;
  /* Outside the step, as checkpoints are loaded or saved, the whole of a stage's parameters lies in fp32 on each GPU,
   * beside the states; FALSE: shards alone. */
  gboolean whole_state_dict;
  /* Of the flags above that say where they are from, by their rows: sp_framework_flag. Values are not used. */
  SpQuantity flag_sources[SP_N_FRAMEWORK_FLAGS];
  SpQuantity host_launch_s;
  SpQuantity reserved_bytes;  /* CUDA context, NCCL, library workspaces of one GPU */
  SpQuantity allocator_slack; /* fraction added to what is allocated */
  /* Of the framework's pool, what libraries take once and for all (cuBLAS's workspace, tables), beside the program; 0. */
  SpQuantity workspace_bytes;
  /* Of an eager host, how many kernels of the program it issues at most before the GPU has run them; what a collective
   * on a stream of its own reads is not used again before (PyTorch's record_stream), so that so many kernels' lies in the
   * pool at once (models/estimate/run-ahead.c); 0. */
  SpQuantity run_ahead;
  /* Where a GPU holds the step, but not that besides: time of the step over one that has the room, as the allocator waits
   * for the GPU, and gives back and asks again; 0: 1. */
  SpQuantity crowded_time;
  SpQuantity host_slack; /* the same of host memory: staging buffers; 0 */
  /* What the host is held up for by a gather or scatter of ZeRO's shards: hooks, views, copies in and out; 0. */
  SpQuantity host_gather_s;
  /* What a step takes beside its program, with idle GPUs: loading data, gradient norms, logging, an optimizer in a loop of
   * its own; 0. Only of whole steps. */
  SpQuantity host_step_s;
  /* Of an eager host, what each slot of a pipeline (a forward or a backward of a micro-batch) takes beside its kernels and
   * messages, with idle GPUs: the host waits until these are over, gets the batch, and only then issues anew; 0. */
  SpQuantity host_slot_s;
  /* Of the host's time to issue a kernel, what it is held up for by each rank of a stage that its collectives wait for
   * (tensor x sequence ranks, itself among them), where a pipeline's messages leave the node: threads that serve its
   * adapters take turns with it, and ranks that wait for each other in every layer add up what they lose so; 0. */
  SpQuantity host_stall;
  /* Time of kernels that move data (all but products, attention's core and the optimizer) over that of fused ones, and
   * of attention's core over its curve's or the device's; 0: 1. */
  SpQuantity elementwise_time, attention_time;
  /* The same, for itself, of what merges a ring's step into the output (several kernels that write fp32 in between; the
   * first step is only cast), of what packs and unpacks the tensors of an exchange of heads (copies on both sides of it,
   * where the program has one), and of the softmax of unfused attention (scores are scaled and masked by kernels of their
   * own); 0: as elementwise_time. */
  SpQuantity merge_time, pack_time, softmax_time;
  /* Of products (another release of the library, clocks) beyond their launch over the curve's or the device's time, and
   * of the optimizer's kernel on the device over one that reads and writes each state once; 0: 1. */
  SpQuantity gemm_time, optimizer_time;
  /* What a collective takes beyond its transfer where the next kernel waits for it (those of shards and gradients
   * apart): its streams' events, ranks that come late; 0. */
  SpQuantity collective_wait_s;
  /* The same for each rank of the group, beside that: the more there are the later the last one comes; and for each of
   * one that leaves the node, where hosts serve adapters. */
  SpQuantity rank_wait_s;
  SpQuantity network_wait_s;
  /* Of ZeRO-2 and 3: bytes of device memory that a parameter's gradient moves in each micro-batch on its way to the
   * reduction: views put together, casts, scaling, copies into buckets. Elementwise kernels of the backward; 0. */
  SpQuantity shard_copies;
  /* Of gathers and scatters of ZeRO's shards, beyond launch and latency, over a transfer at the cluster's rates (lists of
   * tensors that are copied in and out, padding, adapters that stay idle); 0: 1. */
  SpQuantity shard_time;
  /* The same of linear attention's kernels, forward and backward: those of another library, or of its authors; 0: 1. */
  SpQuantity linear_time, linear_backward_time;
  /* Attention's rate goes with (head size / 128)^this where no curve says how it goes; 0: it does not. */
  SpQuantity attention_head_power;
  /* Time of attention's causal kernels, beyond that of the pairs that they compute, over those without a mask; 0: 1. */
  SpQuantity attention_causal_time;
  char *attention_library; /* whose curve of a profile is attention's, or (flash) whose efficiency of the device's;
                           * NULL: the quickest's */
} SpFramework;

SpFramework *sp_framework_load (const char *path, GError **error);
/* Of a text, as above. */
SpFramework *sp_framework_parse (const char *path, const char *text, gsize length, GError **error);
gboolean sp_framework_has_key (const char *key);
/* The key of a row of the flags, NULL behind the last one, and what the framework has there. */
const char *sp_framework_flag (const SpFramework *framework, guint row, const char **ret_word,
                               const SpQuantity **ret_source);
SpQuantity *sp_framework_quantity (SpFramework *framework, const char *key,
                                   SpQuantityRange *range); /* as of a device */
void sp_framework_free (SpFramework *framework);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpFramework, sp_framework_free)

G_END_DECLS
