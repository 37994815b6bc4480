/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layout.h"

#include "sim/schedules.h"

#include <math.h>

/* Degrees come from files, so their product may be anything: more ranks than any cluster has, rather than a wrapped
 * sum. */
static gint32
product (gint64 a, gint64 b)
{
  return (gint32) MIN (a * b, G_MAXINT32);
}

gint32
sp_layout_sequence_ranks (const SpLayout *layout, const SpArchitecture *arch)
{
  if (sp_architecture_has (arch, SP_LAYER_SOFTMAX))
    return product (layout->ulysses, layout->ring);
  return product (layout->ulysses, layout->lasp);
}

gint32
sp_layout_world (const SpLayout *layout, const SpArchitecture *arch)
{
  return product (product (layout->data, layout->tensor),
                  product (layout->pipeline, sp_layout_sequence_ranks (layout, arch)));
}

gint32
sp_layout_replicas (const SpLayout *layout, const SpArchitecture *arch)
{
  return product (layout->data, sp_layout_sequence_ranks (layout, arch));
}

gint32
sp_layout_linear_ulysses (const SpLayout *layout, const SpArchitecture *arch)
{
  return sp_layout_sequence_ranks (layout, arch) / layout->lasp;
}

double
sp_layout_expert_load (const SpLayout *layout, const SpRun *run)
{
  return MIN (MAX (run->expert_imbalance, 1), layout->expert);
}

gint64
sp_layout_expert_rows (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run, gint64 tokens)
{
  double over = layout->expert_capacity > 0 ? layout->expert_capacity : sp_layout_expert_load (layout, run);
  double rows = ceil ((double) tokens * arch->moe.experts_per_token * over / arch->moe.experts * (1 - 1e-12));

  return (gint64) CLAMP (rows, 1, (double) tokens);
}

/* Of the ranks that experts are spread over one has `load` times the mean, and the others as much as each other; who is
 * less even drops more. */
double
sp_layout_expert_dropped (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run)
{
  double ranks = layout->expert, load = sp_layout_expert_load (layout, run);

  if (layout->expert_capacity <= 0 || arch->moe.experts == 0)
    return 0;
  gint64 tokens = run->sequence / sp_layout_sequence_ranks (layout, arch) * run->micro_batch;
  double rows = (double) sp_layout_expert_rows (layout, arch, run, tokens);
  double room = rows * arch->moe.experts / ((double) tokens * arch->moe.experts_per_token);
  double others = ranks > 1 ? (ranks - load) / (ranks - 1) : 0;
  return (MAX (load - room, 0) + (ranks - 1) * MAX (others - room, 0)) / ranks;
}

static gint32
degree_of (const SpLayout *layout, const SpArchitecture *arch, guint8 axis)
{
  const gint32 degrees[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor,
    [SP_AXIS_ULYSSES] = layout->ulysses,
    [SP_AXIS_RING] = layout->ring,
    [SP_AXIS_LASP] = sp_architecture_has (arch, SP_LAYER_SOFTMAX) ? 1 : layout->lasp,
    [SP_AXIS_DATA] = layout->data,
    [SP_AXIS_PIPELINE] = layout->pipeline,
  };

  return degrees[axis];
}

/* Ranks of an axis with `nearer` ones before each, that follow each other in a node. */
static gint32
in_node (gint32 degree, gint32 nearer, gint32 gpus_per_node)
{
  gint32 inside = gpus_per_node % nearer == 0 ? MIN (gpus_per_node / nearer, degree) : 1;

  return degree % inside == 0 ? inside : 1;
}

gint32
sp_layout_ring_in_node (const SpLayout *layout, const SpArchitecture *arch, gint32 gpus_per_node)
{
  gint32 nearer = 1;

  for (guint i = 0; i < SP_N_RANK_AXES && layout->order.axis[i] != SP_AXIS_RING; i++)
    nearer = product (nearer, degree_of (layout, arch, layout->order.axis[i]));
  return in_node (layout->ring, nearer, gpus_per_node);
}

gint32
sp_layout_zero_in_node (const SpLayout *layout, const SpArchitecture *arch, gint32 gpus_per_node)
{
  gint32 nearer = 1, inside = 1;

  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    guint8 axis = layout->order.axis[i];
    gint32 degree = degree_of (layout, arch, axis);
    if (axis != SP_AXIS_TENSOR && axis != SP_AXIS_PIPELINE)
      inside *= in_node (degree, nearer, gpus_per_node);
    nearer = product (nearer, degree);
  }
  return inside;
}

gint32
sp_layout_micro_batches (const SpLayout *layout, const SpRun *run)
{
  gint64 each = (gint64) layout->data * run->micro_batch;

  return (gint32) ((run->global_batch + each - 1) / each);
}

gboolean
sp_layout_scatters (const SpLayout *layout, const SpFramework *framework)
{
  return framework->pipeline_scatter && layout->pipeline_scatter && layout->pipeline > 1 && layout->tensor > 1 &&
         !layout->sequence_regions;
}

gint64
sp_layout_slice_tokens (const SpLayout *layout, const SpRun *run, gint32 slice)
{
  if (layout->slice_split[0] > 0)
    return slice < SP_MAX_SLICES ? layout->slice_split[slice] : 0;
  return run->sequence / layout->slices;
}

gint32
sp_layout_chunks (const SpLayout *layout)
{
  return sp_schedule_chunks (sp_schedule_get (layout->schedule), layout->virtual_stages);
}

gint32
sp_layout_virtual_stages (const SpLayout *layout)
{
  return sp_schedule_get (layout->schedule)->mirrored ? layout->pipeline
                                                      : product (layout->pipeline, layout->virtual_stages);
}

static inline gint32
layers_of (const SpLayout *layout, gint32 layers, gint32 n, gint32 virtual_stage)
{
  return layout->stage_split[0] ? layout->stage_split[virtual_stage] : layers / n + (virtual_stage < layers % n);
}

gint32
sp_layout_stage_layers (const SpLayout *layout, const SpArchitecture *arch, gint32 virtual_stage)
{
  return layers_of (layout, arch->layers, sp_layout_virtual_stages (layout), virtual_stage);
}

void
sp_layout_write_stages (const SpLayout *layout, const SpArchitecture *arch, gint32 *ret_first)
{
  gint32 n = sp_layout_virtual_stages (layout);

  ret_first[0] = 0;
  for (gint32 s = 0; s < n; s++)
    ret_first[s + 1] = ret_first[s] + layers_of (layout, arch->layers, n, s);
}

double
sp_run_keys (const SpRun *run)
{
  return run->packing != NULL ? sp_packing_keys (run->packing, run->sequence) : (double) run->sequence;
}

gint64
sp_run_positions (const SpRun *run)
{
  return run->packing != NULL ? MIN (run->packing->longest, run->sequence) : run->sequence;
}

static gint32
near_divisor (gint64 tokens, gint32 wanted)
{
  gint32 n = wanted;

  while (n <= MIN (tokens, 8 * (gint64) wanted) && tokens % n != 0)
    n++;
  if (n <= tokens && tokens % n == 0)
    return n;
  for (n = (gint32) MIN (tokens, wanted); n > 1 && tokens % n != 0;)
    n--;
  return MAX (n, 1);
}

gint32
sp_layout_loss_chunks (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run)
{
  gint32 vocabulary = (arch->vocabulary + layout->tensor - 1) / layout->tensor;

  if (layout->loss != SP_LOSS_CHUNKED && layout->loss != SP_LOSS_FUSED)
    return 1;
  if (layout->loss_chunks > 0)
    return layout->loss_chunks;
  return near_divisor (run->sequence / sp_layout_sequence_ranks (layout, arch),
                       layout->loss == SP_LOSS_CHUNKED ? 8 : (vocabulary + arch->hidden - 1) / arch->hidden);
}

gint32
sp_layout_mlp_tiles (const SpLayout *layout, const SpArchitecture *arch, const SpRun *run)
{
  gint64 tokens = run->sequence / sp_layout_sequence_ranks (layout, arch);

  if (layout->mlp_tiles != SP_TILES_AUTO)
    return MAX (layout->mlp_tiles, 1);
  return near_divisor (tokens, (gint32) ((tokens + arch->hidden - 1) / arch->hidden));
}

static void
append (GString *out, const char *separator, const char *format, ...)
{
  va_list args;

  if (out->len > 0)
    g_string_append (out, separator);
  va_start (args, format);
  g_string_append_vprintf (out, format, args);
  va_end (args);
}

static const char *const loss_names[] = { "full", "vocab-parallel", "chunked", "fused" };
const char *const sp_optimizer_names[SP_N_OPTIMIZERS + 1] = { "adamw", "adamw-8bit", "muon", NULL };

static const char *const recompute_names[] = { "none", "selective", "full" };

static const char *const ring_kind_names[] = { "p2p", "all-gather", "rsa", "double" };
G_STATIC_ASSERT (G_N_ELEMENTS (ring_kind_names) == SP_N_RING_KINDS);

const char *
sp_ring_kind_name (SpRingKind kind)
{
  g_return_val_if_fail ((guint) kind < SP_N_RING_KINDS, "?");
  return ring_kind_names[kind];
}

static void
describe_offload (const SpLayout *layout, GString *out)
{
  static const char *const names[] = { "optimizer", "parameters", "activations" };
  G_STATIC_ASSERT (SP_OFFLOAD_ALL == (1 << G_N_ELEMENTS (names)) - 1);

  for (guint bit = 0; bit < G_N_ELEMENTS (names); bit++)
    if (layout->offload & 1u << bit)
      g_string_append_printf (out, "%s%s", layout->offload & ((1u << bit) - 1) ? " and " : ", offload ", names[bit]);
}

static gboolean
is_hybrid (const SpArchitecture *arch)
{
  return sp_architecture_has (arch, SP_LAYER_SOFTMAX) && sp_architecture_has (arch, SP_LAYER_LINEAR);
}

/* Where softmax and linear layers factor the same ranks otherwise, the linear ones'. */
static void
describe_linear (const SpLayout *layout, const SpArchitecture *arch, GString *out)
{
  gint32 ulysses = sp_layout_linear_ulysses (layout, arch);

  if (!is_hybrid (arch) || (layout->ring == 1 && layout->lasp == 1))
    return;
  g_string_append (out, " (linear layers: ");
  if (layout->lasp > 1)
    g_string_append_printf (out, "lasp %d%s", layout->lasp, ulysses > 1 ? " x " : "");
  if (ulysses > 1)
    g_string_append_printf (out, "ulysses %d", ulysses);
  g_string_append_c (out, ')');
}

char *
sp_layout_describe (const SpLayout *layout, const SpArchitecture *arch)
{
  gboolean shared = is_hybrid (arch); /* lasp's ranks are ulysses x ring's */
  const struct {
    const char *name;
    gint32 degree;
  } axes[] = {
    { "data", layout->data },       { "tensor", layout->tensor }, { "pipeline", layout->pipeline },
    { "ulysses", layout->ulysses }, { "ring", layout->ring },     { "lasp", shared ? 1 : layout->lasp },
  };
  g_autoptr (GString) out = g_string_new (NULL);

  for (guint i = 0; i < G_N_ELEMENTS (axes); i++)
    if (axes[i].degree > 1)
      append (out, " x ", "%s %d", axes[i].name, axes[i].degree);
  if (out->len == 0)
    g_string_append (out, "one GPU");
  describe_linear (layout, arch, out);
  if (layout->expert > 1)
    append (out, ", ", "expert %d%s", layout->expert, layout->order.experts_far ? " far" : "");
  if (layout->expert_capacity > 0)
    append (out, ", ", "expert-capacity %g", layout->expert_capacity);
  if (layout->lasp > 1)
    append (out, ", ", "lasp-version %d", layout->lasp_version);
  if (layout->ring > 1 && layout->ring_kind != SP_RING_P2P)
    append (out, ", ", "ring-kind %s", ring_kind_names[layout->ring_kind]);
  if (layout->ring > 1 && layout->ring_kind == SP_RING_DOUBLE)
    append (out, " ", "%d x %d", layout->ring_inner, layout->ring / MAX (layout->ring_inner, 1));
  if (layout->ring > 1 && layout->ring_backward == SP_RING_BACKWARD_Q)
    append (out, ", ", "ring-backward q");
  if (layout->ring > 1)
    append (out, ", ", "%s", sp_token_split_name (layout->token_split));
  if (layout->schedule > 0)
    append (out, ", ", "%s", sp_schedule_get (layout->schedule)->name);
  if (layout->virtual_stages > 1)
    append (out, ", ", "virtual-stages %d", layout->virtual_stages);
  if (layout->slices > 1)
    append (out, ", ", "%d slices%s", layout->slices, layout->slice_split[0] > 0 ? " of their own lengths" : "");
  append (out, ", ", "zero %d", layout->zero);
  if (layout->zero_group > 0)
    append (out, " ", "over %d", layout->zero_group);
  if (layout->recompute == SP_RECOMPUTE_FULL && layout->recompute_first > 0)
    append (out, ", ", "recompute first-%d", layout->recompute_first);
  else if (layout->recompute == SP_RECOMPUTE_FULL && layout->recompute_every > 1)
    append (out, ", ", "recompute every-%d", layout->recompute_every);
  else
    append (out, ", ", "recompute %s", recompute_names[layout->recompute]);
  describe_offload (layout, out);
  if (layout->mlp_tiles > 1)
    append (out, ", ", "mlp-tiles %d", layout->mlp_tiles);
  else if (layout->mlp_tiles == SP_TILES_AUTO)
    append (out, ", ", "mlp-tiles auto");
  if (layout->loss >= SP_LOSS_CHUNKED || (layout->loss == SP_LOSS_FULL && layout->tensor > 1))
    append (out, ", ", "loss %s", loss_names[layout->loss]);
  if (layout->loss >= SP_LOSS_CHUNKED && layout->loss_chunks > 0)
    append (out, " ", "in %d", layout->loss_chunks);
  return g_string_free (g_steal_pointer (&out), FALSE);
}
