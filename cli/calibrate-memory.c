/* SPDX-License-Identifier: Apache-2.0 */
/* What a card has in use while a program runs: its buffers, and around them contexts and communicators as measured. */
#include "cli/calibrate.h"
#include "models/inputs/profile.h"
#include "models/rehearse/recording.h"

/* Of a communicator of so many ranks; of another if none of these was measured. */
static const SpCurve *
find_memory (const SpProfile *profile, const char *variant, gint32 ranks)
{
  const SpCurve *curve = sp_profile_find (profile, SP_CURVE_MEMORY, variant, ranks, 1);

  return curve != NULL ? curve : sp_profile_find (profile, SP_CURVE_MEMORY, variant, 0, 0);
}

static double
memory_of (const SpProfile *profile, const char *variant, gint32 ranks)
{
  const SpCurve *curve = find_memory (profile, variant, ranks);

  return curve != NULL ? curve->value[0].value : 0;
}

/* Buffers of messages one way to one other rank; they are measured with all others, both ways. */
static double
way_bytes (const SpProfile *profile, gint32 ranks)
{
  const SpCurve *curve = find_memory (profile, "communicator-sends", ranks);

  return curve != NULL ? curve->value[0].value / (2 * MAX (curve->ranks - 1, 1)) : 0;
}

typedef struct {
  gint32 ranks;     /* of it */
  gboolean gathers; /* it is used by collectives */
  GHashTable *ways; /* other ranks that messages go to, and, as -1 - rank, come from */
} Communicator;

static void
add_way (Communicator *c, gint32 rank, gboolean comes)
{
  if (rank >= 0)
    g_hash_table_add (c->ways, GINT_TO_POINTER (comes ? -1 - rank : rank));
}

static void
use (Communicator *c, const SpProgram *program, gint32 rank, const SpCommand *command)
{
  SpOpKind kind = command->op.kind;

  c->ranks = command->size;
  if (kind == SP_OP_ALL_GATHER || kind == SP_OP_REDUCE_SCATTER || kind == SP_OP_ALL_REDUCE) {
    c->gathers = TRUE;
    return;
  }
  add_way (c, command->to, FALSE);
  add_way (c, command->from, TRUE);
  for (gint32 place = 0; kind == SP_OP_ALL_TO_ALL && place < command->size; place++)
    if (place != command->place) {
      gint32 other = sp_program_member (program, command->op.group, rank, place);
      add_way (c, other, FALSE);
      add_way (c, other, TRUE);
    }
}

/* By the profile, of the communicators that a rank makes. */
static double
communicators_bytes (const SpProfile *profile, const SpProgram *program, const SpRecording *recording)
{
  Communicator all[2 * SP_N_GROUPS] = { 0 };
  double bytes = 0;

  for (guint i = 0; i < G_N_ELEMENTS (all); i++)
    all[i].ways = g_hash_table_new (NULL, NULL);
  for (guint i = 0; i < recording->commands->len; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    gboolean back = command->queue == SP_QUEUE_PIPELINE_BACK;
    SpOpKind kind = command->op.kind;
    if (sp_op_is_communication (kind) && !sp_op_is_host_copy (kind) && command->size > 1)
      use (&all[2 * command->op.group + (back ? 1 : 0)], program, recording->rank, command);
  }
  for (guint i = 0; i < G_N_ELEMENTS (all); i++) {
    const Communicator *c = &all[i];
    if (c->ranks > 1)
      bytes += memory_of (profile, "communicator", c->ranks) +
               (c->gathers ? memory_of (profile, "communicator-collectives", c->ranks) : 0) +
               g_hash_table_size (c->ways) * way_bytes (profile, c->ranks);
    g_hash_table_unref (c->ways);
  }
  return bytes;
}

gboolean
sp_predict_memory (const SpProfile *profile, const SpProgram *program, const SpSimulated *simulated, guint64 seed,
                   double *ret_bytes, GError **error)
{
  double context = memory_of (profile, "context", 0), alone = memory_of (profile, "context-alone", 0);

  *ret_bytes = 0;
  if (context == 0)
    context = simulated->result.memory.by_class[SP_CLASS_RESERVED];
  for (gint32 i = 0; i < simulated->roles->n; i++) {
    g_autoptr (SpRecording) recording = sp_record (program, simulated->roles->rank[i], seed, error);
    if (recording == NULL)
      return FALSE;
    double communicators = communicators_bytes (profile, program, recording);
    double around = communicators == 0 && alone > 0 ? alone : context + communicators;
    *ret_bytes = MAX (*ret_bytes, (double) simulated->run->roles[i].peak_bytes + around);
  }
  return TRUE;
}
