/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/private.h"

#include <string.h>

/* The whole: ranks run in turn, each until it waits. */

/* clang-format off */
G_DEFINE_QUARK (sp-rehearse-error-quark, sp_rehearse_error)
/* clang-format on */

/* More than this is no rehearsal: bytes of doubles that live from the start, and FLOP of all ranks. */
#define MOST_BYTES (G_GINT64_CONSTANT (4) << 30)
#define MOST_FLOPS 1e13

static void
report_deadlock (SpInterpreter *in)
{
  g_autoptr (GString) text = g_string_new ("deadlock:");
  gint32 listed = 0, waiting = 0;

  for (gint32 i = 0; i < in->program->world; i++) {
    g_autofree char *where = NULL;

    if (sp_rank_is_over (&in->ranks[i]) && ++waiting)
      continue;
    if (++listed > 16)
      continue;
    where = sp_rank_where (in, &in->ranks[i]);
    g_string_append_printf (text, "\n  %s waits", where);
  }
  if (listed > 16)
    g_string_append_printf (text, "\n  and %d more", listed - 16);
  if (waiting > 0)
    g_string_append_printf (text, "\n  %d ranks are at the end of the step", waiting);
  g_set_error_literal (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_DEADLOCK, text->str);
}

static void
check_mail (SpInterpreter *in)
{
  GHashTableIter iter;
  gpointer key, queue;

  g_hash_table_iter_init (&iter, in->mail);
  while (g_hash_table_iter_next (&iter, &key, &queue)) {
    gint64 world = in->program->world, pair = *(gint64 *) key;

    if (g_queue_is_empty (queue) || in->error != NULL)
      continue;
    g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_MISMATCH,
                 "%u messages over %s from rank %d to rank %d are never received", g_queue_get_length (queue),
                 sp_group_name ((SpGroupId) (pair / world / world)), (gint) (pair / world % world),
                 (gint) (pair % world));
  }
}

static void
run_all (SpInterpreter *in)
{
  gboolean over = FALSE;

  while (!over && in->error == NULL) {
    gboolean moved = FALSE;

    over = TRUE;
    for (gint32 i = 0; i < in->program->world && in->error == NULL; i++) {
      moved |= sp_interpreter_run_rank (in, &in->ranks[i]);
      over &= sp_rank_is_over (&in->ranks[i]);
    }
    if (!over && !moved && in->error == NULL)
      report_deadlock (in);
  }
  if (in->error == NULL)
    check_mail (in);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static gboolean
check_size (SpInterpreter *in)
{
  const SpProgram *program = in->program;
  double bytes = 0, flops = 0;

  for (gint32 i = 0; i < program->world; i++)
    for (guint j = 0; j < in->ranks[i].agenda->n_positions; j++) {
      const SpBlock *block = sp_agenda_block (program, in->ranks[i].agenda, (gint32) j);

      for (guint slot = 1; slot < block->n_buffers; slot++)
        if (block->buffers[slot].alias == 0)
          bytes += (double) block->buffers[slot].elements * sizeof (double);
      for (SpPhase phase = 0; phase < SP_N_PHASES; phase++)
        for (guint op = 0; op < block->segments[phase].n; op++)
          flops += (double) program->ops[block->segments[phase].first + op].flops * sp_program_runs (program);
    }
  if (bytes <= MOST_BYTES && flops <= MOST_FLOPS)
    return TRUE;
  g_set_error (&in->error, SP_REHEARSE_ERROR, SP_REHEARSE_ERROR_TOO_LARGE,
               "too large to rehearse: %.3g bytes of buffers and %.3g FLOP, of at most %.3g and %.3g; take fewer "
               "layers, smaller ones and a shorter sequence",
               bytes, flops, (double) MOST_BYTES, (double) MOST_FLOPS);
  return FALSE;
}

static SpRehearsal *
rehearse (const SpProgram *program, guint64 seed, const SpNudge *nudge, gboolean rounds, GError **error)
{
  g_autoptr (SpRehearsal) rehearsal = g_new0 (SpRehearsal, 1);
  g_autofree SpInterpreter *in = g_new0 (SpInterpreter, 1);

  rehearsal->world = program->world;
  rehearsal->ranks = g_new0 (SpRehearsedRank, program->world);
  rehearsal->tensors = g_array_new (FALSE, FALSE, sizeof (SpRehearsedTensor));
  if (!sp_interpreter_check (program, error))
    return NULL;
  sp_interpreter_init (in, program, seed, SP_ORDER_PROGRAM, rehearsal->ranks);
  in->nudge = nudge;
  in->rounds = rounds;
  in->mail = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, sp_mail_free);
  if (check_size (in) && sp_memory_plan (in))
    for (gint32 i = 0; i < program->world && in->error == NULL; i++)
      sp_state_start (in, &in->ranks[i]);
  if (in->error == NULL)
    run_all (in);
  if (in->error == NULL)
    sp_state_collect (in, rehearsal);
  for (gint32 i = 0; i < program->world; i++)
    rehearsal->loss += in->ranks[i].loss;
  sp_interpreter_clear (in);
  if (in->error != NULL) {
    g_propagate_error (error, in->error);
    return NULL;
  }
  return g_steal_pointer (&rehearsal);
}

SpRehearsal *
sp_rehearse (const SpProgram *program, guint64 seed, GError **error)
{
  return rehearse (program, seed, NULL, FALSE, error);
}

SpRehearsal *
sp_rehearse_nudged (const SpProgram *program, guint64 seed, const SpNudge *nudge, GError **error)
{
  return rehearse (program, seed, nudge, FALSE, error);
}

SpRehearsal *
sp_rehearse_rounded (const SpProgram *program, guint64 seed, GError **error)
{
  return rehearse (program, seed, NULL, TRUE, error);
}
