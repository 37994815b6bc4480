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

G_BEGIN_DECLS

/* From best to worst: a prediction rests on the worst of what it used. */
typedef enum { SP_MEASURED, SP_PUBLISHED, SP_DATASHEET, SP_ASSUMED, SP_N_PROVENANCES } SpProvenance;

const char *sp_provenance_name (SpProvenance provenance);

typedef struct {
  double value;
  SpProvenance provenance;
  char *source; /* NULL for assumed without a word */
} SpQuantity;

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
} SpDevice;

SpDevice *sp_device_load (const char *path, GError **error);
void sp_device_free (SpDevice *device);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpDevice, sp_device_free)

/* Nodes of equal GPUs behind NVSwitch (every GPU reaches every other of its node at the device's link rate), nodes
 * joined by a full-bisection network of `nics` adapters a node, shared evenly by the node's GPUs. */
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
} SpCluster;

/* `device = FILE` inside is relative to the cluster's file. */
SpCluster *sp_cluster_load (const char *path, GError **error);
void sp_cluster_free (SpCluster *cluster);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpCluster, sp_cluster_free)

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
  SpQuantity host_launch_s;
  SpQuantity reserved_bytes;  /* CUDA context, NCCL, library workspaces of one GPU */
  SpQuantity allocator_slack; /* fraction added to what is allocated */
} SpFramework;

SpFramework *sp_framework_load (const char *path, GError **error);
void sp_framework_free (SpFramework *framework);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpFramework, sp_framework_free)

G_END_DECLS
