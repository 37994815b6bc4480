/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Recurrences by flags, and their inputs. */

#include "tests/reference-gradient.h"

enum {
  HEAD = SP_REF_DECAY_HEAD,
  FEATURE = SP_REF_DECAY_FEATURE,
  SCAN = SP_REF_DECAY_SCAN,
  DECAY = 3, /* mask of the four */
  DELTA = 1 << 2,
  BETA = 1 << 3,
  STATE = 1 << 4,
  BIAS = 1 << 5,
  HALO = 1 << 6,
  RATES = 1 << 7,
  STEPS = 1 << 8,
  SILU = 1 << 9,
  L2 = 1 << 10,
  ROTATE = 1 << 11,
  SILU_VALUES = 1 << 12
};

enum { Q, K, V, GATES, WEIGHT, STATE_IN, LOG_RATES, N_IN };

static inline SpRefRecurrence
recurrence_of (SpRefShape shape, guint flags, double *const in[])
{
  return (SpRefRecurrence){
    .shape = shape, .decay = (SpRefDecay) (flags & DECAY), .delta = (flags & DELTA) != 0, .rates = in[LOG_RATES]
  };
}

static inline void
recurrent_sizes (SpRefShape s, guint flags, gint64 in_n[])
{
  gint64 scalars = s.m * s.batch * s.heads;

  in_n[Q] = in_n[K] = s.m * s.batch * s.kv_heads * s.k;
  in_n[V] = scalars * s.n;
  in_n[GATES] = (flags & DECAY) == 0 ? 0 : scalars * ((flags & DECAY) == FEATURE ? s.k : 1);
  in_n[WEIGHT] = flags & BETA ? scalars : 0;
  in_n[STATE_IN] = flags & STATE ? s.batch * s.heads * s.k * s.n : 0;
  in_n[LOG_RATES] = (flags & DECAY) == SCAN ? s.heads * s.k : 0;
}

/* Inputs as models have them: log decays below 0, weights and steps in (0, 1). */
static inline void
make_plausible (guint flags, const gint64 in_n[], double *const in[])
{
  for (gint64 i = 0; i < in_n[GATES]; i++)
    in[GATES][i] = (in[GATES][i] + 1) * ((flags & DECAY) == SCAN ? 0.5 : -0.5);
  for (gint64 i = 0; i < in_n[WEIGHT]; i++)
    in[WEIGHT][i] = (in[WEIGHT][i] + 1) / 2;
}
