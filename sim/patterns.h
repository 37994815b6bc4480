/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Message patterns: who sends what to whom, step by step, in the algorithms that collectives are made of. A pattern is
 * ONE list of steps that every rank walks; a rank finds its partners by a rule, so that a list for 65,536 ranks is as
 * short as one for two, and nothing is written out for each rank. One file under patterns/, one row in the table
 * (patterns.c) and one line for meson each.
 *
 * A step, for a rank r of P: send to one partner (or none), then wait for the message of the SAME step of another (or
 * none), then compute. The message that r waits for in a step is that of the rank whose `to` is r. Which step of whose
 * belongs to which is thus plain, whatever overtakes what.
 *
 * What runs a pattern, at what cost: sim/loggp.h.
 */

#include "sim/clock.h"

G_BEGIN_DECLS

typedef enum {
  SP_PARTNER_NONE,
  SP_PARTNER_SHIFT,  /* (r + by) mod P; by is negative, too, down to -(P - 1) */
  SP_PARTNER_XOR,    /* r ^ by, for ranks below `below`, if the partner is below it too */
  SP_PARTNER_CHILD,  /* r + by, for ranks below `by`, if there is one: a binomial tree of root 0 */
  SP_PARTNER_PARENT, /* r - by, for ranks from `by` to 2 by - 1 */
} SpPartnerRule;

typedef struct {
  SpPartnerRule rule;
  gint32 by;
  guint32 below; /* of XOR: a power of two above `by` */
} SpPartner;

typedef struct {
  SpPartner to, from;
  guint64 bytes;  /* of the message */
  SpTime compute; /* ps, after the message is there; of ranks that have a `from`, or of all if none is named */
} SpPatternStep;

typedef struct {
  guint32 n_ranks;
  GArray *steps; /* SpPatternStep */
} SpPattern;

/* What a pattern is built from. */
typedef struct {
  guint32 n_ranks;           /* 1 to SP_PATTERN_MAX_RANKS */
  guint64 bytes;             /* see the pattern */
  double reduce_ps_per_byte; /* of those that add up what arrives */
  guint32 n_steps;           /* of the pattern "ring"; others know their own */
} SpPatternRequest;

typedef struct {
  const char *name, *summary;
  const char *bytes; /* what SpPatternRequest.bytes is */
  void (*build) (const SpPatternRequest *request, SpPattern *pattern);
} SpPatternKind;

#define SP_PATTERN_MAX_RANKS (1u << 27)

/* The table: ring, dissemination, recursive-doubling, binomial-broadcast, pairwise-all-to-all, ring-all-reduce. */
const SpPatternKind *const *sp_pattern_kinds (guint *ret_n);
const SpPatternKind *sp_pattern_kind_find (const char *name); /* NULL: there is none */

SpPattern *sp_pattern_new (guint32 n_ranks); /* without steps: for one's own */
SpPattern *sp_pattern_build (const SpPatternKind *kind, const SpPatternRequest *request);
void sp_pattern_free (SpPattern *pattern);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPattern, sp_pattern_free)

/* For what builds a pattern. */
void sp_pattern_add (SpPattern *pattern, SpPartner to, SpPartner from, guint64 bytes, SpTime compute);
SpTime sp_pattern_reduce_time (const SpPatternRequest *request, guint64 bytes);

static inline SpPartner
sp_partner_shift (gint32 by)
{
  return (SpPartner){ .rule = SP_PARTNER_SHIFT, .by = by };
}

#define SP_NO_RANK G_MAXUINT32

/* The partner of a rank, or SP_NO_RANK. */
static inline guint32
sp_partner_of (const SpPartner *partner, guint32 rank, guint32 n_ranks)
{
  guint32 by = (guint32) partner->by, other;

  switch (partner->rule) {
  case SP_PARTNER_SHIFT:
    other = rank + by; /* by < 0 wraps around, and back */
    if (partner->by < 0)
      return rank < (guint32) -partner->by ? other + n_ranks : other;
    return other >= n_ranks ? other - n_ranks : other;
  case SP_PARTNER_XOR:
    other = rank ^ by;
    return MAX (rank, other) < partner->below && other < n_ranks ? other : SP_NO_RANK;
  case SP_PARTNER_CHILD:
    return rank < by && rank + by < n_ranks ? rank + by : SP_NO_RANK;
  case SP_PARTNER_PARENT:
    return rank >= by && rank < 2 * by ? rank - by : SP_NO_RANK;
  default:
    return SP_NO_RANK;
  }
}

G_END_DECLS
