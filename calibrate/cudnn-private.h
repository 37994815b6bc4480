/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of cuDNN share: its entry points, and a graph under construction. */
#pragma once

#include <cudnn_backend.h>

#include "calibrate/cudnn.h"

/* Looked up by name in the library. */
typedef struct {
  size_t (*version) (void);
  const char *(*error_string) (cudnnStatus_t status);
  void (*last_error) (char *message, size_t size);
  cudnnStatus_t (*create) (cudnnHandle_t *handle);
  cudnnStatus_t (*destroy) (cudnnHandle_t handle);
  cudnnStatus_t (*set_stream) (cudnnHandle_t handle, cudaStream_t stream);
  cudnnStatus_t (*make) (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *ret);
  cudnnStatus_t (*unmake) (cudnnBackendDescriptor_t descriptor);
  cudnnStatus_t (*finalize) (cudnnBackendDescriptor_t descriptor);
  cudnnStatus_t (*set) (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, gint64 count, const void *values);
  cudnnStatus_t (*get) (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, gint64 most, gint64 *ret_count, void *values);
  cudnnStatus_t (*execute) (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);
} SpCudnnCalls;

gboolean sp_cudnn_check (const SpCudnnCalls *calls, cudnnStatus_t status, const char *call, GError **error);

/* Numbers of the tensors that are in memory, or are numbers of the host's. */
typedef enum {
  SP_CUDNN_Q = 1,
  SP_CUDNN_KEYS,
  SP_CUDNN_VALUES,
  SP_CUDNN_O,
  SP_CUDNN_LSE,
  SP_CUDNN_DO,
  SP_CUDNN_DQ,
  SP_CUDNN_DKEYS,
  SP_CUDNN_DVALUES,
  SP_CUDNN_DELTA,
  SP_CUDNN_DQ_SUM, /* fp32 */
  SP_CUDNN_SCALE,
  SP_CUDNN_HIDDEN, /* the score of what is not seen */
  SP_CUDNN_ONE,
  SP_CUDNN_ROWS, /* int32 */
  SP_CUDNN_COLUMNS,
  SP_CUDNN_N_TENSORS
} SpCudnnTensor;

/* The first call that fails sets the error; those behind it do nothing. */
typedef struct {
  const SpCudnnCalls *calls;
  GPtrArray *made; /* all descriptors, which live as long as the plan */
  GPtrArray *ops;
  gint64 next; /* number of a tensor between two ops */
  gboolean failed;
  GError **error;
} SpCudnnGraph;

cudnnBackendDescriptor_t sp_cudnn_make (SpCudnnGraph *graph, cudnnBackendDescriptorType_t type);
void sp_cudnn_set (SpCudnnGraph *graph, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, gint64 count, const void *values);
void sp_cudnn_finalize (SpCudnnGraph *graph, cudnnBackendDescriptor_t descriptor);

/* Fills graph->ops with those of the shape, of its rows and keys that are seen. */
void sp_cudnn_write_graph (SpCudnnGraph *graph, const SpCudnnShape *shape);
