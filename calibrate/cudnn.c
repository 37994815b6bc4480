/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/cudnn-private.h"

#include <gio/gio.h>
#include <gmodule.h>
#include <math.h>
#include <string.h>

#include "calibrate/gemm.h"
#include "kernels/device.h"

#define LIBRARY "libcudnn.so.9"
#define LEAST_VERSION 91002

struct _SpCudnnPlan {
  SpCudnnShape shape;
  GPtrArray *made;
  cudnnBackendDescriptor_t plan; /* of `made`; NULL: nothing is seen */
  gint64 workspace_bytes;
  float scale, hidden, one;
  gint32 rows, columns;
};

struct _SpCudnn {
  SpCudnnCalls calls;
  cudnnHandle_t handle;
  guint version;
  GHashTable *plans; /* SpCudnnShape -> SpCudnnPlan */
};

#define CUDNN(call) sp_cudnn_check (&cudnn->calls, call, #call, error)

/* --- the library -------------------------------------------------------------------------------------------------- */

gboolean
sp_cudnn_check (const SpCudnnCalls *calls, cudnnStatus_t status, const char *call, GError **error)
{
  char more[256] = "";

  if (status == CUDNN_STATUS_SUCCESS)
    return TRUE;
  calls->last_error (more, sizeof more);
  more[strcspn (more, "\n")] = '\0';
  g_autofree char *valid = g_utf8_make_valid (more, -1);
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_FAILED, "cuDNN: %s: %s%s%s", call, calls->error_string (status),
               *valid != '\0' ? ": " : "", valid);
  return FALSE;
}

/* The library stays: its threads and the runtime's list of its kernels do not end with a handle. */
static gboolean
look_up (SpCudnnCalls *c, guint *ret_version, GError **error)
{
  const struct {
    const char *name;
    gpointer *at;
  } calls[] = {
    { "cudnnGetVersion", (gpointer *) &c->version },
    { "cudnnGetErrorString", (gpointer *) &c->error_string },
    { "cudnnGetLastErrorString", (gpointer *) &c->last_error },
    { "cudnnCreate", (gpointer *) &c->create },
    { "cudnnDestroy", (gpointer *) &c->destroy },
    { "cudnnSetStream", (gpointer *) &c->set_stream },
    { "cudnnBackendCreateDescriptor", (gpointer *) &c->make },
    { "cudnnBackendDestroyDescriptor", (gpointer *) &c->unmake },
    { "cudnnBackendFinalize", (gpointer *) &c->finalize },
    { "cudnnBackendSetAttribute", (gpointer *) &c->set },
    { "cudnnBackendGetAttribute", (gpointer *) &c->get },
    { "cudnnBackendExecute", (gpointer *) &c->execute },
  };

  GModule *module = g_module_open (LIBRARY, G_MODULE_BIND_LAZY | G_MODULE_BIND_LOCAL);
  if (module == NULL) {
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "cuDNN is not here: %s", g_module_error ());
    return FALSE;
  }
  for (guint i = 0; i < G_N_ELEMENTS (calls); i++)
    if (!g_module_symbol (module, calls[i].name, calls[i].at)) {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, LIBRARY " has no %s", calls[i].name);
      return FALSE;
    }
  *ret_version = (guint) c->version ();
  if (*ret_version < LEAST_VERSION)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "cuDNN here is version %u.%u.%u, and 9.10.2 is needed",
                 *ret_version / 10000, *ret_version / 100 % 100, *ret_version % 100);
  return *ret_version >= LEAST_VERSION;
}

guint
sp_cudnn_version (GError **error)
{
  SpCudnnCalls calls;
  guint version = 0;

  return look_up (&calls, &version, error) ? version : 0;
}

static guint
shape_hash (gconstpointer key)
{
  const SpCudnnShape *s = key;

  return (guint) (s->m * 73856093 ^ s->n * 19349663 ^ s->seen * 83492791 ^ s->hidden * 12582917 ^ s->k * 4256249) ^
         (guint) s->flags;
}

static gboolean
shape_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (SpCudnnShape)) == 0;
}

static void
unmake_all (const SpCudnnCalls *calls, GPtrArray *made)
{
  for (guint i = made->len; i-- > 0;)
    calls->unmake (made->pdata[i]);
  g_ptr_array_unref (made);
}

SpCudnn *
sp_cudnn_open (GError **error)
{
  g_autoptr (SpCudnn) cudnn = g_new0 (SpCudnn, 1);

  cudnn->plans = g_hash_table_new_full (shape_hash, shape_equal, NULL, NULL);
  if (!look_up (&cudnn->calls, &cudnn->version, error))
    return NULL;
  return CUDNN (cudnn->calls.create (&cudnn->handle)) ? g_steal_pointer (&cudnn) : NULL;
}

void
sp_cudnn_free (SpCudnn *cudnn)
{
  GHashTableIter iter;
  gpointer plan;

  if (cudnn == NULL)
    return;
  g_hash_table_iter_init (&iter, cudnn->plans);
  while (g_hash_table_iter_next (&iter, NULL, &plan)) {
    unmake_all (&cudnn->calls, ((SpCudnnPlan *) plan)->made);
    g_free (plan);
  }
  g_hash_table_unref (cudnn->plans);
  if (cudnn->handle != NULL)
    cudnn->calls.destroy (cudnn->handle);
  g_free (cudnn);
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

static gboolean
graph_check (SpCudnnGraph *graph, cudnnStatus_t status, const char *call)
{
  graph->failed = !sp_cudnn_check (graph->calls, status, call, graph->error);
  return !graph->failed;
}

cudnnBackendDescriptor_t
sp_cudnn_make (SpCudnnGraph *graph, cudnnBackendDescriptorType_t type)
{
  cudnnBackendDescriptor_t made = NULL;

  if (!graph->failed && graph_check (graph, graph->calls->make (type, &made), "cudnnBackendCreateDescriptor"))
    g_ptr_array_add (graph->made, made);
  return made;
}

void
sp_cudnn_set (SpCudnnGraph *graph, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, gint64 count, const void *values)
{
  if (!graph->failed)
    graph_check (graph, graph->calls->set (descriptor, name, type, count, values), "cudnnBackendSetAttribute");
}

void
sp_cudnn_finalize (SpCudnnGraph *graph, cudnnBackendDescriptor_t descriptor)
{
  if (!graph->failed)
    graph_check (graph, graph->calls->finalize (descriptor), "cudnnBackendFinalize");
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

/* The first of the heuristic's engines, which come best first, that can be planned; the last one's failure if none. */
static gboolean
plan_best (SpCudnn *cudnn, SpCudnnGraph *g, cudnnBackendDescriptor_t heuristic, SpCudnnPlan *plan, GError **error)
{
  enum { MOST = 32 };
  cudnnBackendDescriptor_t engines[MOST] = { NULL };
  gint64 count = 0, sizes = 0;

  for (guint i = 0; i < MOST; i++)
    engines[i] = sp_cudnn_make (g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (g->failed || !CUDNN (cudnn->calls.get (heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             MOST, &count, engines)))
    return FALSE;
  if (count == 0)
    g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "cuDNN: its heuristic names no engine");
  for (gint64 i = 0; i < MIN (count, MOST) && plan->plan == NULL; i++) {
    g_clear_error (error);
    cudnnBackendDescriptor_t made = sp_cudnn_make (g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    sp_cudnn_set (g, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
    sp_cudnn_set (g, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines[i]);
    if (g->failed)
      return FALSE;
    if (CUDNN (cudnn->calls.finalize (made)) &&
        CUDNN (cudnn->calls.get (made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &sizes,
                                 &plan->workspace_bytes)))
      plan->plan = made;
  }
  return plan->plan != NULL;
}

static gboolean
make_plan (SpCudnn *cudnn, SpCudnnPlan *plan, GError **error)
{
  g_autoptr (GPtrArray) ops = g_ptr_array_new ();
  SpCudnnGraph g = {
    .calls = &cudnn->calls, .made = plan->made, .ops = ops, .next = SP_CUDNN_N_TENSORS, .error = error
  };
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;

  sp_cudnn_write_graph (&g, &plan->shape);
  cudnnBackendDescriptor_t graph = sp_cudnn_make (&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  cudnnBackendDescriptor_t heuristic = sp_cudnn_make (&g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  sp_cudnn_set (&g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops->len, ops->pdata);
  sp_cudnn_set (&g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
  sp_cudnn_finalize (&g, graph);
  sp_cudnn_set (&g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  sp_cudnn_set (&g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  sp_cudnn_finalize (&g, heuristic);
  return !g.failed && plan_best (cudnn, &g, heuristic, plan, error);
}

static gboolean
sees_nothing (const SpCudnnShape *s)
{
  return s->hidden == s->m || s->seen == 0;
}

const SpCudnnPlan *
sp_cudnn_plan (SpCudnn *cudnn, const SpCudnnShape *shape, GError **error)
{
  SpCudnnPlan *plan = g_hash_table_lookup (cudnn->plans, shape);
  GError *wrong = NULL;

  if (plan != NULL)
    return plan;
  plan = g_new0 (SpCudnnPlan, 1);
  *plan = (SpCudnnPlan){ .shape = *shape,
                         .made = g_ptr_array_new (),
                         .scale = (float) (1 / sqrt ((double) shape->k)),
                         .hidden = -INFINITY,
                         .one = 1,
                         .rows = (gint32) (shape->m - shape->hidden),
                         .columns = (gint32) shape->seen };
  if (sees_nothing (shape) || make_plan (cudnn, plan, &wrong)) {
    g_clear_error (&wrong);
    g_hash_table_insert (cudnn->plans, &plan->shape, plan);
    return plan;
  }
  g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
               "cuDNN %u has no attention%s for m,n,batch,heads,kv_heads,k,v = %" G_GINT64_FORMAT ",%" G_GINT64_FORMAT
               ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT
               " here (%s)",
               cudnn->version, shape->flags & SP_CUDNN_BACKWARD ? " backward" : "", shape->m, shape->n, shape->batch,
               shape->heads, shape->kv_heads, shape->k, shape->v, wrong != NULL ? wrong->message : "");
  g_clear_error (&wrong);
  unmake_all (&cudnn->calls, plan->made);
  g_free (plan);
  return NULL;
}

/* --- scratch ------------------------------------------------------------------------------------------------------ */

/* Where in the scratch each part is; `end`: how much there is. */
typedef struct {
  gint64 lse, o, delta, dq_sum, workspace, end;
} Places;

static gint64
place (gint64 *end, gint64 bytes)
{
  gint64 at = *end;

  *end += (bytes + 255) / 256 * 256;
  return at;
}

static Places
places_of (const SpCudnnPlan *plan)
{
  const SpCudnnShape *s = &plan->shape;
  gint64 rows = (s->m - s->hidden) * s->batch * s->heads;
  Places p = { 0 };

  if (plan->plan == NULL)
    return p;
  p.lse = place (&p.end, rows * (gint64) sizeof (float));
  if (s->flags & SP_CUDNN_BACKWARD) {
    p.o = place (&p.end, rows * s->v * 2);
    p.delta = place (&p.end, rows * (gint64) sizeof (float));
    p.dq_sum = place (&p.end, rows * s->k * (gint64) sizeof (float));
  }
  p.workspace = place (&p.end, plan->workspace_bytes);
  return p;
}

gint64
sp_cudnn_scratch_bytes (const SpCudnnPlan *plan)
{
  return places_of (plan).end;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Tensors by number; the host's numbers are the plan's. NULL: the graph has no such. */
static gboolean
run (SpCudnn *cudnn, const SpCudnnPlan *plan, void *const *tensors, void *workspace, cudaStream_t stream,
     GError **error)
{
  gboolean causal = (plan->shape.flags & SP_CUDNN_CAUSAL) != 0, last = (plan->shape.flags & SP_CUDNN_LAST) != 0;
  const void *values[SP_CUDNN_N_TENSORS] = { NULL };
  gint64 numbers[SP_CUDNN_N_TENSORS];
  const void *at[SP_CUDNN_N_TENSORS];
  cudnnBackendDescriptor_t pack = NULL;
  gint64 n = 0;

  values[SP_CUDNN_SCALE] = &plan->scale;
  values[SP_CUDNN_HIDDEN] = causal ? &plan->hidden : NULL;
  values[SP_CUDNN_ONE] = plan->shape.flags & SP_CUDNN_BACKWARD ? &plan->one : NULL;
  values[SP_CUDNN_ROWS] = causal && last ? &plan->rows : NULL;
  values[SP_CUDNN_COLUMNS] = causal && last ? &plan->columns : NULL;
  for (guint i = 1; i < SP_CUDNN_N_TENSORS; i++) {
    const void *one = tensors[i] != NULL ? tensors[i] : values[i];
    if (one == NULL)
      continue;
    numbers[n] = i;
    at[n++] = one;
  }
  gboolean good =
      CUDNN (cudnn->calls.set_stream (cudnn->handle, stream)) &&
      CUDNN (cudnn->calls.make (CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)) &&
      CUDNN (cudnn->calls.set (pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, numbers)) &&
      CUDNN (cudnn->calls.set (pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at)) &&
      CUDNN (cudnn->calls.set (pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)) &&
      CUDNN (cudnn->calls.finalize (pack)) && CUDNN (cudnn->calls.execute (cudnn->handle, plan->plan, pack));
  if (pack != NULL)
    cudnn->calls.unmake (pack);
  return good;
}

/* A tensor [rows,elements] of bf16 from a row on; without its rows from there on it is zero. */
static void *
from_row (const void *data, gint64 row, gint64 elements)
{
  return (char *) data + row * elements * 2;
}

static gboolean
clear (void *data, gint64 row, gint64 rows, gint64 elements, cudaStream_t stream, GError **error)
{
  return rows == row ||
         CUDA (cudaMemsetAsync (from_row (data, row, elements), 0, (gsize) ((rows - row) * elements * 2), stream));
}

gboolean
sp_cudnn_attention (SpCudnn *cudnn, const SpCudnnPlan *plan, const void *q, const void *keys, const void *values,
                    void *o, float *lse, void *scratch, cudaStream_t stream, GError **error)
{
  const SpCudnnShape *s = &plan->shape;
  Places at = places_of (plan);
  gint64 parts = s->batch * s->heads, hidden = plan->plan == NULL ? s->m : s->hidden;
  float *by_head = (float *) ((char *) scratch + at.lse);
  void *tensors[SP_CUDNN_N_TENSORS] = {
    [SP_CUDNN_Q] = from_row (q, hidden, parts * s->k),
    [SP_CUDNN_KEYS] = (void *) keys,
    [SP_CUDNN_VALUES] = (void *) values,
    [SP_CUDNN_O] = from_row (o, hidden, parts * s->v),
    [SP_CUDNN_LSE] = by_head,
  };

  return clear (o, 0, hidden, parts * s->v, stream, error) &&
         (plan->plan == NULL || run (cudnn, plan, tensors, (char *) scratch + at.workspace, stream, error)) &&
         CUDA (sp_dev_attention_by_row (s->m, parts, hidden, by_head, lse, stream));
}

gboolean
sp_cudnn_attention_bwd (SpCudnn *cudnn, const SpCudnnPlan *plan, const void *q, const void *keys, const void *values,
                        const void *d_o, const float *lse, const float *delta, void *dq, void *dkeys, void *dvalues,
                        void *scratch, cudaStream_t stream, GError **error)
{
  const SpCudnnShape *s = &plan->shape;
  Places at = places_of (plan);
  gboolean none = plan->plan == NULL;
  gint64 parts = s->batch * s->heads, key_parts = s->batch * s->kv_heads;
  gint64 hidden = none ? s->m : s->hidden, seen = none ? 0 : s->seen, rows = (s->m - hidden) * parts;
  void *tensors[SP_CUDNN_N_TENSORS] = {
    [SP_CUDNN_Q] = from_row (q, hidden, parts * s->k),
    [SP_CUDNN_KEYS] = (void *) keys,
    [SP_CUDNN_VALUES] = (void *) values,
    [SP_CUDNN_O] = (char *) scratch + at.o,
    [SP_CUDNN_LSE] = (char *) scratch + at.lse,
    [SP_CUDNN_DO] = from_row (d_o, hidden, parts * s->v),
    [SP_CUDNN_DQ] = from_row (dq, hidden, parts * s->k),
    [SP_CUDNN_DKEYS] = dkeys,
    [SP_CUDNN_DVALUES] = dvalues,
    [SP_CUDNN_DELTA] = (char *) scratch + at.delta,
    [SP_CUDNN_DQ_SUM] = (char *) scratch + at.dq_sum,
  };
  SpDevTensor gradient = { tensors[SP_CUDNN_DO], SP_DEV_BF16 }, stand_in = { tensors[SP_CUDNN_O], SP_DEV_BF16 };

  if (!clear (dq, 0, hidden, parts * s->k, stream, error) ||
      !clear (dkeys, seen, s->n, key_parts * s->k, stream, error) ||
      !clear (dvalues, seen, s->n, key_parts * s->v, stream, error))
    return FALSE;
  return none ||
         (CUDA (sp_dev_attention_by_head (s->m - hidden, parts, lse + hidden * parts, tensors[SP_CUDNN_LSE], stream)) &&
          CUDA (sp_dev_attention_stand_in (rows, s->v, gradient, delta + hidden * parts, stand_in, stream)) &&
          run (cudnn, plan, tensors, (char *) scratch + at.workspace, stream, error));
}
