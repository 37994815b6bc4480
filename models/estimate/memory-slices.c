/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/memory-private.h"

#include <string.h>

/* The peak of a stage that works on sequences in slices: the schedule's slots in turn, as slices are not alike. The first
 * one of a sequence has the keys and values of all of it. */

/* The fullest lists that are known: of a slice, by kind of slot, with others in flight or not, and with sums of other
 * slices there or not (of a forward; a backward's slice says itself). */
typedef struct {
  gboolean is_known;
  SpMemoryFullest fullest;
} Known;

typedef struct {
  const SpEstimateContext *e;
  SpMemoryChunk *chunk;
  gint64 stash[SP_MAX_VARIANTS];     /* of a slice, of all the chunk's blocks */
  gint32 in_flight[SP_MAX_VARIANTS]; /* of each variant, besides the slot's own */
  gint64 in_flight_bytes;
  Known (*known)[2][2][2]; /* [n_variants] */
} Slices;

static SpMemorySums
sums_of (const SpSlot *slot, gint32 slice, gint32 slices, gboolean under_way)
{
  if (slot->kind == SP_SLOT_FORWARD)
    return under_way ? SP_MEMORY_SUMS_ALL : SP_MEMORY_SUMS_NONE;
  return slice == slices - 1 ? SP_MEMORY_SUMS_BEGIN : slice == 0 ? SP_MEMORY_SUMS_END : SP_MEMORY_SUMS_ALL;
}

static const SpMemoryFullest *
fullest_of (Slices *s, const SpSlot *slot, const SpMemoryHeld *held, SpMemoryFullest *scratch)
{
  gboolean forward = slot->kind == SP_SLOT_FORWARD;
  Known *known = &s->known[held->variant][!forward][held->full > 0][held->sums == SP_MEMORY_SUMS_ALL];

  if (known->is_known && !held->is_last)
    return &known->fullest;
  SpMemoryFullest *fullest = held->is_last ? scratch : &known->fullest;
  sp_memory_find_fullest (s->e, s->chunk, forward ? SP_LIST_FORWARD : SP_LIST_BACKWARD, held, fullest);
  known->is_known |= !held->is_last;
  return fullest;
}

static void
consider (Slices *s, const SpSlot *slot, const SpMemoryHeld *held, gint64 fixed, gint32 stage, SpMemoryPeak *best)
{
  SpMemoryFullest scratch;
  const SpMemoryFullest *fullest = fullest_of (s, slot, held, &scratch);
  gint64 bytes = fixed + s->in_flight_bytes + fullest->bytes;

  if (bytes <= best->bytes)
    return;
  best->bytes = bytes;
  best->stage = stage;
  best->chunk = 0;
  best->at = *fullest;
  best->held[0] = *held;
  memcpy (best->variants, s->in_flight, (gsize) s->e->program->n_variants * sizeof *best->variants);
}

/* `small`: the first number of a smaller last micro-batch. */
static void
walk_slots (Slices *s, const SpSlot *slots, guint n, gint32 small, gint64 fixed, gint32 stage, SpMemoryPeak *best)
{
  gint32 slices = sp_program_slices (s->e->program), others = 0;
  gboolean under_way = FALSE;

  for (guint i = 0; i < n; i++) {
    gint32 slice = slots[i].micro_batch % slices, variant = slice + (slots[i].micro_batch >= small ? slices : 0);
    gboolean forward = slots[i].kind == SP_SLOT_FORWARD;
    if (!forward) {
      s->in_flight[variant]--;
      s->in_flight_bytes -= s->stash[variant];
      others--;
    }
    const SpMemoryHeld held = { .full = others,
                                .variant = variant,
                                .sums = (guint8) sums_of (&slots[i], slice, slices, under_way),
                                .is_last = i + 1 == n && s->chunk->reduced > 0 };
    consider (s, &slots[i], &held, fixed, stage, best);
    if (forward) {
      s->in_flight[variant]++;
      s->in_flight_bytes += s->stash[variant];
      others++;
    } else
      under_way = slice > 0;
  }
}

void
sp_memory_consider_slices (const SpEstimateContext *e, gint32 stage, SpMemoryChunk *chunk, gint64 fixed,
                           SpMemoryPeak *best)
{
  const SpSchedule *schedule = sp_estimate_schedule (e->program);
  SpPipeline pipeline = sp_program_pipeline (e->program);
  Slices s = { .e = e, .chunk = chunk };
  g_autofree gpointer memory = NULL;

  gint32 steady = sp_schedule_steady (schedule, &pipeline);
  if (steady > 0)
    pipeline.micro_batches = MIN (pipeline.micro_batches, steady);
  gboolean has_small = pipeline.uneven && pipeline.micro_batches == e->program->micro_batches;
  gint32 runs = sp_pipeline_runs (&pipeline);
  for (gint32 v = 0; v < e->program->n_variants; v++)
    for (guint b = 0; b < e->program->n_blocks; b++)
      s.stash[v] += chunk->counts[b] * e->work[v][b].stash_bytes;
  gsize known = (gsize) e->program->n_variants * sizeof *s.known;
  gsize bytes = known + sp_schedule_most_slots (&pipeline) * sizeof (SpSlot);
  s.known = bytes <= SP_ESTIMATE_MOST_STACK ? g_alloca (bytes) : (memory = g_malloc (bytes));
  memset (s.known, 0, known);
  SpSlot *slots = (SpSlot *) (s.known + e->program->n_variants);
  guint n = schedule->fill (&pipeline, stage, slots);
  walk_slots (&s, slots, n, has_small ? runs - pipeline.slices : runs, fixed, stage, best);
}
