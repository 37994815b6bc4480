/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What one layer sends, counted from the program's lists, against the formulas of the literature, for random legal
 * shapes. The letters, as in the formulas:
 *   B sequences of the micro-batch, N tokens of a sequence, H hidden, A and A_kv heads after the tensor split, D head
 *   size, S sequence ranks, U ulysses, R ring, T tensor, P the degree of the row.
 * Everything is in elements: payload is the buffer as nccl-tests counts it, wire what one GPU puts on links.
 */

#include "models/writer.h"
#include "tests/count-volume.h"
#include "tests/random-layouts.h"

#include <math.h>

#define DRAWS 200

static inline const SpBlock *
find_block (const SpProgram *program, guint variant, SpBlockKind kind)
{
  for (guint b = 0; b < program->n_blocks; b++)
    if (program->variants[variant].blocks[b].kind == kind)
      return &program->variants[variant].blocks[b];
  return NULL;
}

typedef struct {
  double B, N, H, A, A_kv, D, S, U, R, T;
} Terms;

static inline Terms
terms_of (const Draw *d, double batch)
{
  const SpLayout *l = &d->layout;

  return (Terms){ .B = batch,
                  .N = (double) d->run.sequence,
                  .H = d->arch->hidden,
                  .A = (double) d->arch->heads / l->tensor,
                  .A_kv = (double) d->arch->kv_heads / l->tensor,
                  .D = d->arch->head_size,
                  .S = sp_layout_sequence_ranks (l, d->arch),
                  .U = l->ulysses,
                  .R = l->ring,
                  .T = l->tensor };
}

/* Sequences that a replica runs in a step, padding of the last micro-batch counted. */
static inline double
sequences_of (const SpProgram *program)
{
  double sum = 0;

  for (gint32 i = 0; i < program->micro_batches; i++)
    sum += program->variants[program->n_variants == 2 && i == program->micro_batches - 1].batch;
  return sum;
}

static inline void
expect (const Draw *d, const char *what, double got, double wanted)
{
  if (got == wanted || fabs (got - wanted) <= 1e-12 * fabs (wanted))
    return;
  draw_describe (d);
  g_test_message ("%s: %.17g, not %.17g", what, got, wanted);
  g_test_fail ();
}

/* A drawn layout, its program, and a rank of it. */
typedef struct {
  Draw draw;
  SpProgram *program;
  SpEstimator estimator;
  SpEstimate estimate;
  gint32 rank;
} Subject;

static inline void
subject_init (Subject *s, GRand *rand, const DrawLimits *limits)
{
  draw_legal (rand, limits, &s->draw);
  s->program = sp_program_new ();
  sp_estimator_init (&s->estimator, s->draw.arch, &cluster, &s->draw.framework, SP_MFU_SEQPAR);
  sp_estimate_layout (&s->estimator, s->program, &s->draw.layout, &s->draw.run, &s->estimate);
  s->rank = draw_int (rand, 0, s->program->world - 1);
}

static inline void
subject_clear (Subject *s)
{
  draw_clear (&s->draw);
  sp_program_free (s->program);
}

static inline Count
count (const Subject *s, const SpBlock *block, SpPhase phase, SpAxis axis, SpDtype dtype)
{
  return count_on (s->program, &s->estimator.cost, block, phase, axis, dtype, s->rank, FALSE);
}

/* A row: checks one block of one variant, and returns a layer's bytes of forward and backward, mean over GPUs. */
typedef double (*CheckBlock) (const Subject *s, const SpBlock *block, const Terms *t);

/* Checks the block kinds that are there at every batch size; then that the estimate's mean over GPUs and a step is
 * the sum over layers and micro-batches. */
static inline void
check_row (const char *name, const DrawLimits *limits, SpAxis axis, const CheckBlock check[SP_N_BLOCK_KINDS])
{
  GRand *rand = draw_rand_new ();
  guint steps = 0;

  for (guint i = 0; i < DRAWS; i++) {
    Subject s;
    double all = 0;
    subject_init (&s, rand, limits);
    for (gint32 v = 0; v < s.program->n_variants; v++)
      for (guint kind = SP_BLOCK_SOFTMAX; kind <= SP_BLOCK_LINEAR; kind++) {
        const SpBlock *block = find_block (s.program, v, kind);
        if (block == NULL || check[kind] == NULL)
          continue;
        Terms t = terms_of (&s.draw, s.program->variants[v].batch);
        double bytes = check[kind](&s, block, &t);
        SpLayerKind layer = kind == SP_BLOCK_LINEAR ? SP_LAYER_LINEAR : SP_LAYER_SOFTMAX;
        if (v == 0)
          all += sp_architecture_count (s.draw.arch, layer) * bytes / t.B;
      }
    /* A recomputed layer exchanges again; that is not a row of the table. */
    if (axis != SP_N_AXES && s.draw.layout.recompute == SP_RECOMPUTE_NONE) {
      expect (&s.draw, "bytes of a step, mean over GPUs", s.estimate.axes[axis].payload_bytes.mean,
              all * sequences_of (s.program) / s.program->stages);
      steps++;
    }
    subject_clear (&s);
    if (g_test_failed ())
      break;
  }
  g_test_message ("%s: %d layouts, %u whole steps", name, DRAWS, steps);
  g_rand_free (rand);
}
