/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/queue.h"
#include "tests/bench.h"

/*
 * The bare event queue: n events pending, each operation takes the first one out and puts its successor in, after a
 * delay uniform over what n events span. Millions of such pairs a second, median (best) of the repeats, and how they
 * grow.
 */

#define REPEATS 9
#define OPERATIONS 1000000
#define MAX_DELAY_PS ((1u << 20) - 1)

typedef enum { POP_THEN_PUSH, REPLACE_TOP } Way;

static guint64 random_state = 88172645463325252u;

/* xorshift: cheap beside what is measured. */
static inline SpTime
random_delay (void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (SpTime) (random_state & MAX_DELAY_PS);
}

static double
pairs_per_s (guint pending, Way way)
{
  g_auto (SpQueue) queue = { 0 };

  sp_queue_init (&queue);
  for (guint i = 0; i < pending; i++)
    sp_queue_push (&queue, random_delay (), SP_EVENT_TASK_FINISH, i);
  double start_s = bench_cpu_s ();
  for (guint i = 0; i < OPERATIONS; i++) {
    if (way == POP_THEN_PUSH) {
      SpEvent event = sp_queue_pop (&queue);
      sp_queue_push (&queue, event.time + random_delay (), event.class, event.payload);
    } else {
      SpEvent event = sp_queue_peek (&queue);
      sp_queue_replace_top (&queue, event.time + random_delay (), event.class, event.payload);
    }
  }
  return OPERATIONS / (bench_cpu_s () - start_s);
}

int
main (void)
{
  static const guint sizes[] = { 64, 1024, 4096, 16384, 65536, 262144 };
  static const char *goals[] = { "goal 60, must 20", "", "goal 25, must 12", "", "", "" };

  g_print ("event queue, M/s: median (best) of %d\n%9s  %14s  %14s\n", REPEATS, "pending", "pop, push", "replace top");
  for (guint s = 0; s < G_N_ELEMENTS (sizes); s++) {
    double rates[2][REPEATS], medians[2];
    for (guint r = 0; r < REPEATS; r++) /* interleaved */
      for (guint way = 0; way < 2; way++)
        rates[way][r] = pairs_per_s (sizes[s], way) / 1e6;
    for (guint way = 0; way < 2; way++)
      medians[way] = bench_median (rates[way], REPEATS);
    g_print ("%9u  %6.1f (%5.1f)  %6.1f (%5.1f)  %s\n", sizes[s], medians[POP_THEN_PUSH],
             rates[POP_THEN_PUSH][REPEATS - 1], medians[REPLACE_TOP], rates[REPLACE_TOP][REPEATS - 1], goals[s]);
  }
  return 0;
}
