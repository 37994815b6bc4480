/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/queue.h"

/* --- order -------------------------------------------------------------------------------------------------------- */

static void
test_empty (void)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  g_assert_cmpuint (sp_queue_length (&queue), ==, 0);
  g_assert_cmpint (sp_queue_next_time (&queue), ==, SP_TIME_NEVER);
  sp_queue_push (&queue, 7, SP_EVENT_SAMPLE, SP_QUEUE_MAX_PAYLOAD);
  g_assert_cmpuint (sp_queue_length (&queue), ==, 1);
  SpEvent event = sp_queue_pop (&queue);
  g_assert_cmpint (event.time, ==, 7);
  g_assert_cmpint (event.class, ==, SP_EVENT_SAMPLE);
  g_assert_cmpuint (event.payload, ==, SP_QUEUE_MAX_PAYLOAD);
  g_assert_cmpuint (sp_queue_length (&queue), ==, 0);
  g_assert_cmpint (sp_queue_next_time (&queue), ==, SP_TIME_NEVER);
}

/* By date; at one date by class; in one class in the order of the pushes, whatever the payload. */
static void
test_ties (void)
{
  static const struct {
    SpTime time;
    SpEventClass class;
    guint32 payload;
  } pushed[] = {
    { 5, SP_EVENT_TASK_START, 9 },  { 5, SP_EVENT_FLOWS, 8 },  { 5, SP_EVENT_TASK_START, 1 },
    { 4, SP_EVENT_SAMPLE, 7 },      { 5, SP_EVENT_FLOWS, 2 },  { SP_TIME_NEVER, SP_EVENT_FAULT, 3 },
    { 5, SP_EVENT_TASK_FINISH, 4 }, { 0, SP_EVENT_SAMPLE, 5 },
  };
  static const guint32 expected[] = { 5, 7, 8, 2, 4, 9, 1, 3 };
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  for (guint i = 0; i < G_N_ELEMENTS (pushed); i++)
    sp_queue_push (&queue, pushed[i].time, pushed[i].class, pushed[i].payload);
  for (guint i = 0; i < G_N_ELEMENTS (expected); i++)
    g_assert_cmpuint (sp_queue_pop (&queue).payload, ==, expected[i]);
}

/* The far end of time and a class that comes first do not disturb each other's bits. */
static void
test_fields (void)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  for (guint class = 0; class < SP_N_EVENT_CLASSES; class ++)
    sp_queue_push (&queue, G_MAXINT64 - class, class, SP_QUEUE_MAX_PAYLOAD - class);
  for (guint class = SP_N_EVENT_CLASSES; class -- > 0;) {
    SpEvent event = sp_queue_pop (&queue);
    g_assert_cmpint (event.time, ==, G_MAXINT64 - class);
    g_assert_cmpuint (event.class, ==, class);
    g_assert_cmpuint (event.payload, ==, SP_QUEUE_MAX_PAYLOAD - class);
  }
}

/* --- against a list that is searched ------------------------------------------------------------------------------ */

/* The reference: events in the order of their pushes; the first one is found by looking at all. */
typedef struct {
  GArray *events; /* of SpEvent */
} List;

static SpEvent
list_take_first (List *list)
{
  guint first = 0;

  for (guint i = 1; i < list->events->len; i++) {
    const SpEvent *a = &g_array_index (list->events, SpEvent, i), *b = &g_array_index (list->events, SpEvent, first);
    if (a->time < b->time || (a->time == b->time && a->class < b->class))
      first = i;
  }
  SpEvent event = g_array_index (list->events, SpEvent, first);
  g_array_remove_index (list->events, first);
  return event;
}

static void
assert_same_event (SpEvent a, SpEvent b)
{
  g_assert_cmpint (a.time, ==, b.time);
  g_assert_cmpint (a.class, ==, b.class);
  g_assert_cmpuint (a.payload, ==, b.payload);
}

/* Random pushes, pops and replacements on few dates, so that ties abound. The sequence numbers run out on the way. */
static void
run_against_list (guint32 seed, guint operations)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_auto (SpQueue) queue = { 0 };
  List list = { g_array_new (FALSE, FALSE, sizeof (SpEvent)) };
  SpTime now = 0;

  sp_queue_init (&queue);
  queue.next_sequence = (1u << SP_QUEUE_SEQUENCE_BITS) - (guint32) g_rand_int_range (rand, 0, 400);
  for (guint32 i = 0; i < operations; i++) {
    SpEvent new = { .time = now + g_rand_int_range (rand, 0, 5),
                    .payload = i,
                    .class = (SpEventClass) g_rand_int_range (rand, 0, SP_N_EVENT_CLASSES) };
    gboolean is_growing = (i / 100) % 2 == 0;
    gint32 draw = g_rand_int_range (rand, 0, 10);
    if (list.events->len == 0 || draw < (is_growing ? 6 : 2)) {
      sp_queue_push (&queue, new.time, new.class, new.payload);
      g_array_append_val (list.events, new);
    } else {
      SpEvent expected = list_take_first (&list);
      now = expected.time;
      new.time = MAX (new.time, now);
      g_assert_cmpint (sp_queue_next_time (&queue), ==, now);
      assert_same_event (sp_queue_peek (&queue), expected);
      if (draw < 8) {
        assert_same_event (sp_queue_pop (&queue), expected);
      } else {
        sp_queue_replace_top (&queue, new.time, new.class, new.payload);
        g_array_append_val (list.events, new);
      }
    }
    g_assert_cmpuint (sp_queue_length (&queue), ==, list.events->len);
  }
  while (list.events->len > 0)
    assert_same_event (sp_queue_pop (&queue), list_take_first (&list));
  g_array_unref (list.events);
}

static void
test_random (void)
{
  for (guint32 seed = 0; seed < 40; seed++) {
    g_test_message ("seed %u", seed);
    run_against_list (seed, 2000);
  }
}

/* --- what a queue promises ---------------------------------------------------------------------------------------- */

/* Numbered anew with the root empty and with events of one date pending: their order stays. */
static void
test_sequence_runs_out (void)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  queue.next_sequence = (1u << SP_QUEUE_SEQUENCE_BITS) - 3;
  for (guint i = 0; i < 3; i++)
    sp_queue_push (&queue, 1, SP_EVENT_TASK_FINISH, i);
  g_assert_cmpuint (sp_queue_pop (&queue).payload, ==, 0);
  sp_queue_push (&queue, 1, SP_EVENT_TASK_FINISH, 3);
  g_assert_cmpuint (queue.next_sequence, ==, 3); /* two were pending, and this one */
  for (guint i = 1; i <= 3; i++)
    g_assert_cmpuint (sp_queue_pop (&queue).payload, ==, i);
}

static void
test_steady_state_allocates_nothing (void)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  for (guint i = 0; i < 1000; i++)
    sp_queue_push (&queue, i, SP_EVENT_TASK_FINISH, i);
  const SpEventKey *heap = queue.heap;
  for (guint i = 0; i < 10000; i++) {
    SpEvent event = sp_queue_pop (&queue);
    sp_queue_push (&queue, event.time + 1000, event.class, event.payload);
  }
  g_assert_true (queue.heap == heap);
}

static void
test_two_queues (void)
{
  g_auto (SpQueue) a = { 0 }, b = { 0 };

  sp_queue_init (&a);
  sp_queue_init (&b);
  sp_queue_push (&a, 10, SP_EVENT_ARRIVAL, 1);
  sp_queue_push (&b, 5, SP_EVENT_ARRIVAL, 2);
  g_assert_cmpuint (sp_queue_pop (&a).payload, ==, 1);
  sp_queue_push (&b, 1, SP_EVENT_ARRIVAL, 3); /* past for a, not for b */
  g_assert_cmpuint (sp_queue_pop (&b).payload, ==, 3);
  g_assert_cmpuint (sp_queue_pop (&b).payload, ==, 2);
}

static void
test_refusals (void)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  sp_queue_push (&queue, 10, SP_EVENT_ARRIVAL, 0);
  sp_queue_pop (&queue);
  sp_queue_push (&queue, 10, SP_EVENT_ARRIVAL, 1); /* now is not the past */
  for (guint i = 0; i < 3; i++)
    g_test_expect_message (NULL, G_LOG_LEVEL_CRITICAL, "*assertion*failed*");
  sp_queue_push (&queue, 9, SP_EVENT_ARRIVAL, 0);
  sp_queue_push (&queue, 11, SP_EVENT_ARRIVAL, SP_QUEUE_MAX_PAYLOAD + 1);
  sp_queue_push (&queue, 11, SP_N_EVENT_CLASSES, 0);
  g_test_assert_expected_messages ();
  g_assert_cmpuint (sp_queue_length (&queue), ==, 1);
  sp_queue_pop (&queue);
  g_test_expect_message (NULL, G_LOG_LEVEL_CRITICAL, "*assertion*failed*");
  sp_queue_pop (&queue);
  g_test_assert_expected_messages ();
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void
test_time (void)
{
  g_assert_cmpint (sp_time_from_s (1e-12), ==, 1);
  g_assert_cmpint (sp_time_from_s (0.6e-12), ==, 1); /* to the nearest, not down */
  g_assert_cmpint (sp_time_from_s (0.4e-12), ==, 0);
  g_assert_cmpint (sp_time_from_s (1), ==, G_GINT64_CONSTANT (1000000000000));
  g_assert_cmpint (sp_time_from_s (1e8), ==, SP_TIME_NEVER);
  g_assert_cmpint (sp_time_from_s (INFINITY), ==, SP_TIME_NEVER);
  g_assert_cmpint (sp_time_add (3, 4), ==, 7);
  g_assert_cmpint (sp_time_add (3, SP_TIME_NEVER), ==, SP_TIME_NEVER);
  g_assert_cmpfloat (sp_time_to_s (G_GINT64_CONSTANT (1500000000000)), ==, 1.5);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/queue/empty", test_empty);
  g_test_add_func ("/queue/ties", test_ties);
  g_test_add_func ("/queue/fields", test_fields);
  g_test_add_func ("/queue/random", test_random);
  g_test_add_func ("/queue/sequence-runs-out", test_sequence_runs_out);
  g_test_add_func ("/queue/steady-state-allocates-nothing", test_steady_state_allocates_nothing);
  g_test_add_func ("/queue/two-queues", test_two_queues);
  g_test_add_func ("/queue/refusals", test_refusals);
  g_test_add_func ("/time/rounding", test_time);
  return g_test_run ();
}
