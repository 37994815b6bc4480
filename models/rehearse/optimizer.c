/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the OPTIMIZER list. */
#include "models/rehearse/operands.h"

#include <string.h>

#include <math.h>

void
sp_run_adam (SpCall *c)
{
  const SpNumbers *numbers = &c->in->program->numbers;
  const double *gradient = IN (0, N);
  double *master = OUT (0, N), *moment1 = OUT (1, N), *moment2 = OUT (2, N), *parameter = OUT (3, N);

  if (!c->failed) /* without a parameter, on the host */
    sp_ref_adam (N, gradient, 1, numbers->learning_rate, numbers->adam_beta1, numbers->adam_beta2,
                 numbers->adam_epsilon, master, moment1, moment2, parameter);
}

void
sp_run_momentum (SpCall *c)
{
  const double *gradient = IN (0, N);
  double *moment = OUT (0, N), *update = OUT (1, N);

  if (!c->failed)
    sp_ref_momentum (N, gradient, c->in->program->numbers.muon_momentum, moment, update);
}

/* Whether this place's part of the flat has some of the matrix of expert `b`. */
static gboolean
has_part (const SpCall *c, gint64 b)
{
  const SpBuffer *lies = sp_call_buffer (c, c->op->in[1]);
  gint64 begin = lies->offset + (b * K + HEADS) * N, end = begin + M * N;

  if (c->op->group == SP_GROUP_NONE)
    return TRUE;
  gint64 part = sp_call_buffer (c, lies->alias)->elements / MAX (c->in->program->groups[c->op->group].size, 1);
  gint64 first = part * sp_program_place (c->in->program, c->op->group, c->rank->number);
  return begin < first + part && end > first;
}

/* Element (i, j) of part p of the matrix of expert b: in the operand, and in the matrix. */
static void
move_matrix (const SpCall *c, gboolean in, gint64 b, double *parts, double *matrix)
{
  gint64 n_parts = c->op->kv_heads, batch = c->op->batch, width = FLAG (TRANS_B) ? n_parts * N : N;

  for (gint64 p = 0; p < n_parts; p++)
    for (gint64 i = 0; i < M; i++)
      for (gint64 j = 0; j < N; j++) {
        double *part = &parts[(((p * batch + b) * K) + HEADS + i) * N + j];
        double *whole = FLAG (TRANS_B) ? &matrix[i * width + p * N + j] : &matrix[(p * M + i) * width + j];
        *(in ? whole : part) = in ? *part : *whole;
      }
}

void
sp_run_orthogonalize (SpCall *c)
{
  if (c->op->batch < 1 || c->op->kv_heads < 1 || M < 1 || N < 1 || HEADS < 0 || HEADS + M > K) {
    sp_call_fail (c, SP_REHEARSE_ERROR_PROGRAM, "has no rows %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT " of %d parts",
                  HEADS, HEADS + M, c->op->kv_heads);
    return;
  }
  gint64 n_parts = c->op->kv_heads, n = n_parts * c->op->batch * K * N;
  gint64 rows = FLAG (TRANS_B) ? M : n_parts * M, cols = FLAG (TRANS_B) ? n_parts * N : N;
  const double *in = IN (0, n), *lies = IN (1, n / n_parts);
  double *out = OUT (0, n), *scratch = OUT (1, 2 * MIN (rows, cols) * (rows + cols));

  if (c->failed)
    return;
  (void) lies;
  memmove (out, in, n * sizeof *out);
  memset (scratch, 0, 2 * MIN (rows, cols) * (rows + cols) * sizeof *scratch);
  for (gint64 b = 0; b < c->op->batch; b++) {
    if (!has_part (c, b))
      continue;
    double *matrix = scratch;
    move_matrix (c, TRUE, b, out, matrix);
    sp_ref_orthogonalize (rows, cols, matrix);
    for (gint64 i = 0; i < rows * cols; i++)
      matrix[i] *= 0.2 * sqrt ((double) MAX (rows, cols));
    move_matrix (c, FALSE, b, out, matrix);
  }
}

void
sp_run_descend (SpCall *c)
{
  gint32 parts = MAX (c->in->program->groups[c->op->group].size, 1);
  gint32 place = parts > 1 ? sp_program_place (c->in->program, c->op->group, c->rank->number) : 0;
  const double *update = IN (0, parts * N);
  double *master = OUT (0, N), *parameter = OUT (1, N);

  if (!c->failed)
    sp_ref_descend (N, update + place * N, c->in->program->numbers.learning_rate, master, parameter);
}
