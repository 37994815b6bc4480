/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the embedding and the head: tables, positions, the loss. */
#include "models/rehearse/operands.h"

#include <string.h>

#include <math.h>

void
sp_run_embed (SpCall *c)
{
  const double *table = IN (0, N * K);
  double *out = OUT (0, M * K);
  const gint64 *ids = sp_call_ids (c, M, 0);

  if (!c->failed)
    sp_ref_embed (M, N, K, ids, sp_call_vocabulary_first (c, N), table, out);
}

void
sp_run_embed_bwd (SpCall *c)
{
  const double *dx = IN (0, M * K);
  double *dtable = OUT (0, N * K);
  const gint64 *ids = sp_call_ids (c, M, 0);

  if (!c->failed)
    sp_ref_embed_bwd (M, N, K, ids, sp_call_vocabulary_first (c, N), dx, dtable);
}

const gint64 *
sp_call_table_rows (SpCall *c)
{
  const SpProgram *program = c->in->program;
  const gint64 *positions = sp_call_document_positions (c, M);
  gint64 *rows = sp_call_temporary (c, M * sizeof *rows);

  for (gint64 i = 0; i < M && !c->failed; i++) {
    rows[i] = FLAG (SEGMENT) ? positions[i] * N / program->sequence : positions[i] + program->numbers.position_offset;
    if (rows[i] >= N)
      sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has %" G_GINT64_FORMAT " rows for position %" G_GINT64_FORMAT, N,
                    positions[i]);
  }
  return rows;
}

void
sp_run_position (SpCall *c)
{
  const double *x = IN (0, M * K), *table = IN (1, N * K);
  double *out = OUT (0, M * K);
  const gint64 *rows = sp_call_table_rows (c);

  if (!c->failed)
    sp_ref_position (M, N, K, rows, x, table, out);
}

void
sp_run_position_bwd (SpCall *c)
{
  const double *dx = IN (0, M * K);
  double *dtable = OUT (0, N * K);
  const gint64 *rows = sp_call_table_rows (c);

  if (!c->failed)
    sp_ref_position_bwd (M, N, K, rows, dx, dtable);
}

/* in0 = logits[m,n], the padding's columns -inf. */
static const double *
real_logits (SpCall *c)
{
  const double *logits = IN (0, M * N);
  gint64 columns = c->in->program->numbers.vocabulary - sp_call_vocabulary_first (c, N);
  double *masked;

  if (c->failed || columns >= N)
    return logits;
  masked = sp_call_temporary (c, M * N * sizeof *masked);
  for (gint64 i = 0; i < M * N; i++)
    masked[i] = i % N < columns ? logits[i] : -INFINITY;
  return masked;
}

void
sp_run_loss_max (SpCall *c)
{
  const double *logits = real_logits (c);
  double *max = OUT (0, M);

  if (!c->failed)
    sp_ref_loss_max (M, N, logits, max);
}

void
sp_run_loss_sum (SpCall *c)
{
  const double *logits = real_logits (c), *max = IN (1, M);
  double *sums = OUT (0, 2 * M);
  const gint64 *labels = sp_call_ids (c, M, 1);

  if (!c->failed)
    sp_ref_loss_sum (M, N, logits, max, labels, sp_call_vocabulary_first (c, N), sums);
}

/* Tensor ranks that have the same rows have the same loss: it counts on the first. */
void
sp_run_loss (SpCall *c)
{
  const double *logits = real_logits (c), *max = IN (1, M), *sums = IN (2, 2 * M);
  double *dlogits = OUT (0, M * N), *scratch = OUT (1, M * N), value = 0;
  const gint64 *labels = sp_call_ids (c, M, 1);
  const double *weights = sp_call_weights (c, M);

  if (c->failed)
    return;
  if (scratch != NULL)
    memset (scratch, 0, (gsize) (M * N) * sizeof *scratch);
  sp_ref_loss (M, N, logits, max, sums, labels, sp_call_vocabulary_first (c, N), weights, &value, dlogits);
  if (!sp_call_rows_are_shared (c, M) || sp_call_tensor_place (c) == 0)
    c->rank->loss += value;
}
