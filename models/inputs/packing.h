/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Packed documents: what a sequence is made of, and how much of attention that leaves.
 *
 * A file lists lengths in tokens, in the order in which documents come: one a line, or "length,count" for so many of
 * the same length; or, under the heading "cu_seqlens", where each ends, from 0 on. A first line "length" or
 * "length,count" is a heading too; what follows # is a comment. At most 1 MiB, 2^30 tokens a document.
 *
 * Documents are put one behind the other and cut at every `sequence` tokens, as pretraining does; what is cut off begins
 * the next sequence as a document of its own. So a query sees keys of its own document in its own sequence alone, and
 * positions start at 0 with each. Sequences follow each other through the list; a tail shorter than a sequence is left
 * out, and a list shorter than one is gone through again.
 *
 * Pairs of queries and keys are counted over the sequences of the file (over the first of them where a ring's matrices
 * would be too many), and their mean is what a step does. Known lie: a step is as long as its fullest sequences make it,
 * where replicas or micro-batches wait for each other; `fullest` says how far these are from the mean.
 */

#include "sim/program.h"

G_BEGIN_DECLS

typedef struct _SpPackingMemo SpPackingMemo;

typedef struct {
  char *path;
  SpDocuments *runs;
  guint n_runs;
  gint64 documents, tokens, longest; /* in all; tokens of the longest */
  SpPackingMemo *memo;               /* pairs that were counted, by what they were counted for */
} SpPacking;

SpPacking *sp_packing_load (const char *path, GError **error);
/* Of a text; `path` is for messages. */
SpPacking *sp_packing_parse (const char *path, const char *text, gsize length, GError **error);
void sp_packing_free (SpPacking *packing);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpPacking, sp_packing_free)

/* Query-key pairs of one head and sequence, mean over sequences. In a ring the places work at the same step at once, so
 * each step takes as long as its slowest place. */
typedef struct {
  double all;     /* over steps and places: without a ring, what one rank does */
  double home;    /* of the slowest place at the first step, with the keys that it has itself; */
  double away;    /* of the slowest at each of the others, summed over these */
  double slowest; /* of the slowest over all steps */
  double fullest; /* of the fullest sequence, over the mean's `all` */
} SpPackedPairs;

/* Pairs where tokens lie on `ring` places by `split`; key j counts for query i of the same document if, causal, j <= i,
 * and i - j < window unless that is 0. For any thread. */
void sp_packing_pairs (const SpPacking *packing, gint64 sequence, SpTokenSplit split, gint32 ring, gboolean causal,
                       gint64 window, SpPackedPairs *ret);
/* Mean over tokens of the length of their document, cut as above: a sequence without documents of this length has as
 * much attention a token. */
double sp_packing_keys (const SpPacking *packing, gint64 sequence);

G_END_DECLS
