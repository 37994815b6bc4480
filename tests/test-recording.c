/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/rehearse.h"
#include "models/rehearse/recording.h"
#include "tests/rehearse-cases.h"

/* The recording against the rehearsal: every mix's ranks put the same bytes on the same axes, and what they write down
 * may run in any order that its queues and waits allow. */

static void
check_places (const SpRecording *r)
{
  for (guint i = 0; i < r->storages->len; i++) {
    const SpStored *a = &g_array_index (r->storages, SpStored, i);
    g_assert_cmpint (a->offset % 256, ==, 0);
    g_assert_cmpint (a->offset + a->bytes, <=, a->host ? r->host_arena_bytes : r->arena_bytes);
    for (guint j = 0; j < i; j++) {
      const SpStored *b = &g_array_index (r->storages, SpStored, j);
      if (a->host == b->host && a->first <= b->last && b->first <= a->last)
        g_assert_true (a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
    }
  }
}

static void
test_case (gconstpointer data)
{
  const RehearseCase *c = data;
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;

  rehearse_case_write (c, program);
  g_autoptr (SpRehearsal) rehearsal = sp_rehearse (program, 7, &error);
  g_assert_no_error (error);
  for (gint32 rank = 0; rank < program->world; rank++) {
    g_autoptr (SpRecording) r = sp_record (program, rank, 7, &error);
    g_assert_no_error (error);
    g_autofree char *wrong = sp_recording_check (r);
    g_assert_cmpstr (wrong, ==, NULL);
    for (guint axis = 0; axis < SP_N_AXES; axis++)
      g_assert_cmpint (r->payload_bytes[axis], ==, rehearsal->ranks[rank].payload_bytes[axis]);
    g_assert_cmpint (r->peak_bytes, >=, rehearsal->ranks[rank].peak_bytes);
    check_places (r);
    g_test_message ("rank %d: %u commands, %u waits, %u storages, peak %" G_GINT64_FORMAT
                    " (rehearsed %" G_GINT64_FORMAT "), arena %" G_GINT64_FORMAT,
                    rank, r->commands->len, r->waits->len, r->storages->len, r->peak_bytes,
                    rehearsal->ranks[rank].peak_bytes, r->arena_bytes);
  }
}

/* A wait taken away is found. */
static void
test_check (void)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) error = NULL;
  guint found = 0, tried = 0;

  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    if (!g_str_equal (rehearse_cases[i].name, "zero-3") && !g_str_has_prefix (rehearse_cases[i].name, "ring"))
      continue;
    rehearse_case_write (&rehearse_cases[i], program);
    g_autoptr (SpRecording) r = sp_record (program, 0, 7, &error);
    g_assert_no_error (error);
    for (guint j = 0; j < r->commands->len && tried < 200; j++) {
      SpCommand *command = &g_array_index (r->commands, SpCommand, j);
      if (command->n_waits == 0)
        continue;
      guint32 n = command->n_waits;
      command->n_waits = 0;
      g_autofree char *wrong = sp_recording_check (r);
      found += wrong != NULL;
      tried++;
      command->n_waits = n;
    }
  }
  g_test_message ("%u of %u found", found, tried);
  g_assert_cmpuint (found, >, tried / 2); /* some wait for what a later wait, or the order alone, has too */
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/recording/check", test_check);
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/recording/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_case);
  }
  return g_test_run ();
}
