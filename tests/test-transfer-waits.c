/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/transfer-waits.h"
#include "tests/rehearse-cases.h"

#include <math.h>
#include <string.h>

/* --- both ends of every transfer ---------------------------------------------------------------------------------- */

/* Ends of all ranks of a program, one rank after the other. */
static GArray *
ends_of_all (const SpProgram *program)
{
  GArray *all = g_array_new (FALSE, TRUE, sizeof (SpTransferEnd));

  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autoptr (GError) error = NULL;
    g_autoptr (SpRecording) recording = sp_record (program, rank, 7, &error);
    g_assert_no_error (error);
    g_autoptr (GArray) ends = sp_transfer_ends_new (program, recording);
    g_array_append_vals (all, ends->data, ends->len);
  }
  return all;
}

static gboolean
is_same_transfer (const SpTransferEnd *a, const SpTransferEnd *b)
{
  return a->group == b->group && a->back == b->back && a->from == b->from && a->to == b->to && a->number == b->number;
}

static gboolean
is_another_of_command (const SpTransferEnd *ends, guint i, guint j)
{
  return i != j && ends[i].rank == ends[j].rank && ends[i].command == ends[j].command;
}

/* A message has two ends and a collective one on each rank of its group, and none has two on one. */
static void
check_ends (const SpProgram *program, const GArray *ends)
{
  for (guint i = 0; i < ends->len; i++) {
    const SpTransferEnd *end = &g_array_index (ends, SpTransferEnd, i);
    guint alike = 0;
    for (guint j = 0; j < ends->len; j++) {
      const SpTransferEnd *other = &g_array_index (ends, SpTransferEnd, j);
      if (!is_same_transfer (end, other))
        continue;
      g_assert_true (i == j || end->rank != other->rank);
      g_assert_cmpint (end->one_way, ==, other->one_way);
      alike++;
    }
    g_assert_cmpuint (alike, ==, end->to >= 0 ? 2 : (guint) program->groups[end->group].size);
    if (end->to >= 0)
      g_assert_true (end->rank == end->from || end->rank == end->to);
  }
}

/* --- the split ---------------------------------------------------------------------------------------------------- */

static void
draw_times (GRand *random, GArray *ends)
{
  for (guint i = 0; i < ends->len; i++) {
    SpTransferEnd *end = &g_array_index (ends, SpTransferEnd, i), *before = end - 1;
    if (i > 0 && is_another_of_command (&g_array_index (ends, SpTransferEnd, 0), i, i - 1)) {
      end->waited_s = before->waited_s; /* of both messages of a ring's step one wait */
      continue;
    }
    gboolean waits = !end->one_way || g_rand_boolean (random);
    end->waited_s = waits ? g_rand_double_range (random, 0, 1) : -1;
    end->took_s = end->one_way ? g_rand_double_range (random, 0, 1) : -1;
  }
}

/* As the header says it, end by end: of all ends of what the command is, and of what it is not. */
static double
own_of (const GArray *ends, guint i)
{
  const SpTransferEnd *all = &g_array_index (ends, SpTransferEnd, 0);
  double own_s = all[i].waited_s;

  for (guint own = 0; own < ends->len; own++) {
    if (own != i && !is_another_of_command (all, i, own))
      continue;
    for (guint j = 0; j < ends->len; j++) {
      if (!is_same_transfer (&all[own], &all[j]))
        continue;
      if (all[i].one_way)
        own_s = MIN (own_s, all[j].took_s);
      else if (all[j].waited_s >= 0)
        own_s = MIN (own_s, all[j].waited_s);
    }
  }
  return MAX (own_s, 0);
}

static void
test_case (gconstpointer data)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  guint32 seed = g_test_rand_int ();
  g_autoptr (GRand) random = g_rand_new_with_seed (seed);

  rehearse_case_write_with (data, TRUE, program);
  g_autoptr (GArray) ends = ends_of_all (program);
  check_ends (program, ends);
  g_test_message ("%u ends, seed %u", ends->len, seed);
  draw_times (random, ends);
  sp_transfer_ends_split (&g_array_index (ends, SpTransferEnd, 0), ends->len);
  for (guint i = 0; i < ends->len; i++)
    g_assert_cmpfloat (g_array_index (ends, SpTransferEnd, i).own_s, ==, own_of (ends, i));
}

/* By hand: two ranks gather twice, the second once later by 3; then one sends to the other, which stood there for 9. */
static void
test_hand (void)
{
  SpTransferEnd ends[] = {
    { .rank = 0, .command = 4, .group = SP_GROUP_DATA, .from = 0, .to = -1, .number = 0, .waited_s = 5, .took_s = -1 },
    { .rank = 0, .command = 7, .group = SP_GROUP_DATA, .from = 0, .to = -1, .number = 1, .waited_s = 2, .took_s = -1 },
    { .rank = 0,
      .command = 9,
      .group = SP_GROUP_PIPELINE,
      .one_way = TRUE,
      .from = 0,
      .to = 1,
      .waited_s = -1,
      .took_s = 1 },
    { .rank = 1, .command = 4, .group = SP_GROUP_DATA, .from = 0, .to = -1, .number = 0, .waited_s = 2, .took_s = -1 },
    { .rank = 1, .command = 7, .group = SP_GROUP_DATA, .from = 0, .to = -1, .number = 1, .waited_s = 0, .took_s = -1 },
    { .rank = 1,
      .command = 9,
      .group = SP_GROUP_PIPELINE,
      .one_way = TRUE,
      .from = 0,
      .to = 1,
      .waited_s = 9,
      .took_s = 9.5 },
  };
  const double expected[] = { 2, 0, 0, 2, 0, 1 };

  sp_transfer_ends_split (ends, G_N_ELEMENTS (ends));
  for (guint i = 0; i < G_N_ELEMENTS (ends); i++)
    g_assert_cmpfloat (ends[i].own_s, ==, expected[i]);
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
