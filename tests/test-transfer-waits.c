/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/transfer-waits.h"
#include "tests/rehearse-cases.h"

#include <math.h>
#include <string.h>

/* --- every strategy ----------------------------------------------------------------------------------------------- */

/* What is waited for is drawn; who waits is as the recordings have it. */
typedef struct {
  GRand *random;
  GArray *all; /* SpTransferWait of all ranks, one rank after the other */
  double waited_s;
} Case;

static void
add_rank (const SpProgram *program, gint32 rank, Case *c)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpRecording) recording = sp_record (program, rank, 7, &error);
  g_assert_no_error (error);
  guint n = recording->commands->len;
  g_autofree double *waited_s = g_new (double, n + 1), *took_s = g_new (double, n + 1);

  for (guint i = 0; i < n; i++) {
    const SpCommand *command = &g_array_index (recording->commands, SpCommand, i);
    gboolean moves =
        sp_op_is_communication (command->op.kind) && !sp_op_is_host_copy (command->op.kind) && command->size > 1;
    gboolean waits = !sp_op_is_one_way (command->op.kind) || g_rand_boolean (c->random);
    waited_s[i] = waits ? g_rand_double (c->random) : -1;
    took_s[i] = sp_op_is_one_way (command->op.kind) ? g_rand_double (c->random) : -1;
    c->waited_s += moves ? MAX (waited_s[i], 0) : 0;
  }
  g_autoptr (GArray) waits = sp_transfer_waits_new (program, recording, waited_s, took_s);
  g_array_append_vals (c->all, waits->data, waits->len);
}

static gboolean
is_same (const SpTransferWait *a, const SpTransferWait *b)
{
  return a->group == b->group && a->back == b->back && a->phase == b->phase && a->from == b->from && a->to == b->to &&
         a->number == b->number;
}

/* A message has two ends, of which one is the sender's; a group's waits are on all its ranks; none is twice on one. What
 * is own is as the header says it. */
static void
check_wait (const GArray *all, guint i)
{
  const SpTransferWait *wait = &g_array_index (all, SpTransferWait, i);
  double least_s = INFINITY;
  guint alike = 0;

  for (guint j = 0; j < all->len; j++) {
    const SpTransferWait *other = &g_array_index (all, SpTransferWait, j);
    if (!is_same (wait, other))
      continue;
    g_assert_true (i == j || wait->rank != other->rank);
    least_s = MIN (least_s, wait->to >= 0 ? other->took_s : other->waited_s);
    alike++;
  }
  g_assert_cmpuint (alike, ==, wait->to >= 0 ? 2 : (guint) wait->size);
  if (wait->to >= 0)
    g_assert_true (wait->rank == wait->from || wait->rank == wait->to);
  g_assert_cmpfloat (wait->own_s, ==, MAX (MIN (wait->waited_s, least_s), 0));
}

static void
test_case (gconstpointer data)
{
  guint32 seed = g_test_rand_int ();
  g_autoptr (GRand) random = g_rand_new_with_seed (seed);
  g_autoptr (GArray) all = g_array_new (FALSE, TRUE, sizeof (SpTransferWait));
  g_autoptr (SpProgram) program = sp_program_new ();
  Case c = { random, all, 0 };
  double waited_s = 0;

  rehearse_case_write_with (data, TRUE, program);
  for (gint32 rank = 0; rank < program->world; rank++)
    add_rank (program, rank, &c);
  g_test_message ("%u waits, seed %u", all->len, seed);
  sp_transfer_waits_split (&g_array_index (all, SpTransferWait, 0), all->len);
  for (guint i = 0; i < all->len; i++) {
    check_wait (all, i);
    waited_s += MAX (g_array_index (all, SpTransferWait, i).waited_s, 0);
  }
  g_assert_cmpfloat_with_epsilon (waited_s, c.waited_s, 1e-9 * (1 + c.waited_s));
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* Of two ranks one stood for a gather 5, the other 2; in another phase the second alone. One sends to the other, which
 * stood for 9 until it came, and takes 1. */
static void
test_hand (void)
{
  SpTransferWait waits[] = {
    { .rank = 0, .group = SP_GROUP_ZERO, .size = 2, .phase = SP_PHASE_FORWARD, .to = -1, .waited_s = 5, .took_s = -1 },
    { .rank = 0, .group = SP_GROUP_PIPELINE, .size = 2, .from = 0, .to = 1, .waited_s = -1, .took_s = 1 },
    { .rank = 1, .group = SP_GROUP_ZERO, .size = 2, .phase = SP_PHASE_FORWARD, .to = -1, .waited_s = 2, .took_s = -1 },
    { .rank = 1, .group = SP_GROUP_ZERO, .size = 2, .phase = SP_PHASE_BACKWARD, .to = -1, .waited_s = 3, .took_s = -1 },
    { .rank = 1, .group = SP_GROUP_PIPELINE, .size = 2, .from = 0, .to = 1, .waited_s = 9, .took_s = 9.5 },
  };
  const double expected[] = { 2, 0, 2, 0, 1 };

  sp_transfer_waits_split (waits, G_N_ELEMENTS (waits));
  for (guint i = 0; i < G_N_ELEMENTS (waits); i++)
    g_assert_cmpfloat (waits[i].own_s, ==, expected[i]);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/transfer-waits/hand", test_hand);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strconcat ("/transfer-waits/", rehearse_cases[i].name, NULL);
    g_test_add_data_func (path, &rehearse_cases[i], test_case);
  }
  return g_test_run ();
}
