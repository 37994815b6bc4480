/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench.h"
#include "tests/fat-tree.h"

#include <string.h>

/*
 * The flow solver on a two-level fat tree, 16 hosts a leaf, links of 50 GB/s. Times are CPU time from the first flow
 * added to the last one through. The first repeat stands apart: it touches its memory for the first time.
 *
 *    bench-flows          windowed runs against exact makespans that stand below
 *    bench-flows exact    solves those exactly, some 20 s each, and compares every date
 */

#define HOST_BYTES_PER_S 50e9
#define HOSTS_PER_LEAF 16
#define MESSAGE_BYTES 1e6
#define REPEATS 5

typedef struct {
  guint n_flows;
  double *bytes, *date_s; /* date_s: when each was through */
  SpTime makespan;
  double cpu_s;
  SpFlowsStatistics statistics;
} Run;

static FatTree
tree_of (guint n_hosts, double oversubscription)
{
  return (FatTree){ n_hosts, HOSTS_PER_LEAF, HOST_BYTES_PER_S, HOSTS_PER_LEAF * HOST_BYTES_PER_S / oversubscription };
}

/* --- all-to-all --------------------------------------------------------------------------------------------------- */

/* Handles of a common start count from 0, so they name the flows. */
static void
add_all_to_all (SpFlows *flows, const FatTree *tree, const double *bytes)
{
  for (guint from = 0, f = 0; from < tree->n_hosts; from++)
    for (guint to = 0; to < tree->n_hosts; to++) {
      guint32 links[4];
      if (from != to)
        sp_flows_add (flows, links, fat_tree_route (tree, from, to, links), bytes[f++], INFINITY, 1);
    }
}

static void
all_to_all (const FatTree *tree, double window, Run *run)
{
  double start_s = bench_cpu_s ();
  g_autoptr (SpFlows) flows = fat_tree_flows_new (tree);
  guint n;

  sp_flows_set_window (flows, 0, window);
  add_all_to_all (flows, tree, run->bytes);
  for (SpTime date; (date = sp_flows_next (flows)) < SP_TIME_NEVER;) {
    const guint32 *finished = sp_flows_advance (flows, date, &n);
    for (guint i = 0; i < n; i++)
      run->date_s[finished[i]] = sp_time_to_s (date);
    run->makespan = n > 0 ? date : run->makespan;
  }
  run->cpu_s = bench_cpu_s () - start_s;
  run->statistics = sp_flows_statistics (flows);
  g_assert_cmpuint (sp_flows_n_active (flows), ==, 0);
}

static void
run_init (Run *run, guint n_hosts, double spread)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);

  *run = (Run){ .n_flows = n_hosts * (n_hosts - 1) };
  run->bytes = g_new (double, run->n_flows);
  run->date_s = g_new0 (double, run->n_flows);
  for (guint i = 0; i < run->n_flows; i++)
    run->bytes[i] = spread > 0 ? MESSAGE_BYTES * g_rand_double_range (rand, 1 - spread, 1 + spread) : MESSAGE_BYTES;
}

static void
run_clear (Run *run)
{
  g_free (run->bytes);
  g_free (run->date_s);
}

static void
bench_equal_sizes (guint n_hosts, double oversubscription, const char *goal)
{
  FatTree tree = tree_of (n_hosts, oversubscription);
  double cpu_s[REPEATS + 1];
  Run run;

  run_init (&run, n_hosts, 0);
  for (guint r = 0; r <= REPEATS; r++) {
    all_to_all (&tree, 0, &run);
    cpu_s[r] = run.cpu_s;
  }
  double first_s = cpu_s[0], median_s = bench_median (cpu_s + 1, REPEATS);
  g_print (
      "all-to-all %4u hosts, equal, %g:1    %8.1f ms (first %.1f)  %5.1f M flows/s  makespan %.9f s  %.0f MB  %s\n",
      n_hosts, oversubscription, 1e3 * median_s, 1e3 * first_s, run.n_flows / median_s / 1e6,
      sp_time_to_s (run.makespan), bench_peak_mb (), goal);
  run_clear (&run);
}

/* Sizes +-10 %, for windows from wide to narrow. The exact dates, if known, give the error of the worst. */
static void
bench_unequal_sizes (double oversubscription, double exact_makespan_s, gboolean solve_exactly)
{
  static const double windows[] = { 0.01, 0.002, 0.001, 0.0001 };
  FatTree tree = tree_of (256, oversubscription);
  Run run, exact;

  run_init (&run, 256, 0.1);
  run_init (&exact, 256, 0.1);
  if (solve_exactly) {
    all_to_all (&tree, 0, &exact);
    exact_makespan_s = sp_time_to_s (exact.makespan);
  }
  g_print ("all-to-all  256 hosts, +-10 %%, %g:1    %s: makespan %.12f s\n", oversubscription,
           solve_exactly ? "exact" : "exact (known)", exact_makespan_s);
  if (solve_exactly)
    g_print ("  exact          %9.0f ms  %6.2f M flows/s  %" G_GUINT64_FORMAT " solves\n", 1e3 * exact.cpu_s,
             exact.n_flows / exact.cpu_s / 1e6, exact.statistics.solves);
  for (guint w = 0; w < G_N_ELEMENTS (windows); w++) {
    double cpu_s[REPEATS], worst = 0;
    for (guint r = 0; r < REPEATS; r++) {
      all_to_all (&tree, windows[w], &run);
      cpu_s[r] = run.cpu_s;
    }
    double median_s = bench_median (cpu_s, REPEATS), error = sp_time_to_s (run.makespan) / exact_makespan_s - 1;
    for (guint f = 0; f < run.n_flows && solve_exactly; f++)
      worst = MAX (worst, fabs (run.date_s[f] / exact.date_s[f] - 1));
    g_print ("  window %-6g  %9.1f ms  %6.2f M flows/s  %" G_GUINT64_FORMAT " solves  makespan %+.1e of itself",
             windows[w], 1e3 * median_s, run.n_flows / median_s / 1e6, run.statistics.solves, error);
    g_print (solve_exactly ? ", worst date %.1e\n" : "\n", worst);
  }
  run_clear (&run);
  run_clear (&exact);
}

/* --- ring --------------------------------------------------------------------------------------------------------- */

/* Every host sends to the next one, and again when what the one before it sent has arrived, `steps` times. */
static double
ring (guint n_hosts, guint steps, double spread, SpTime *ret_makespan)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree guint32 *sender = g_new (guint32, 64 * n_hosts), *sent = g_new0 (guint32, n_hosts);
  g_autofree guint32 *ready = g_new (guint32, n_hosts);
  FatTree tree = tree_of (n_hosts, 1);
  double start_s = bench_cpu_s ();
  g_autoptr (SpFlows) flows = fat_tree_flows_new (&tree);
  guint n_ready = n_hosts, n;

  for (guint h = 0; h < n_hosts; h++)
    ready[h] = h;
  for (SpTime date = 0; date < SP_TIME_NEVER; date = sp_flows_next (flows)) {
    const guint32 *finished = sp_flows_advance (flows, date, &n);
    for (guint i = 0; i < n; i++) {
      guint32 to = (sender[finished[i]] + 1) % n_hosts;
      if (sent[to] < steps)
        ready[n_ready++] = to;
    }
    for (guint i = 0; i < n_ready; i++) {
      guint32 links[4], n_links = fat_tree_route (&tree, ready[i], (ready[i] + 1) % n_hosts, links);
      double bytes = spread > 0 ? MESSAGE_BYTES * g_rand_double_range (rand, 1 - spread, 1 + spread) : MESSAGE_BYTES;
      sender[sp_flows_add (flows, links, n_links, bytes, INFINITY, 1)] = ready[i];
      sent[ready[i]]++;
    }
    n_ready = 0;
    *ret_makespan = date;
  }
  return bench_cpu_s () - start_s;
}

static void
bench_ring (guint n_hosts, guint steps, double spread, const char *goal)
{
  double cpu_s[REPEATS + 1];
  SpTime makespan = 0;

  for (guint r = 0; r <= REPEATS; r++)
    cpu_s[r] = ring (n_hosts, steps, spread, &makespan);
  double first_s = cpu_s[0], median_s = bench_median (cpu_s + 1, REPEATS);
  g_print ("ring %5u hosts, %u steps, %-9s  %8.1f ms (first %.1f)  %5.1f M flows/s  makespan %.9f s  %.0f MB  %s\n",
           n_hosts, steps, spread > 0 ? "+-10 %" : "equal", 1e3 * median_s, 1e3 * first_s,
           n_hosts * steps / median_s / 1e6, sp_time_to_s (makespan), bench_peak_mb (), goal);
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

#define PORTS 1024
#define TENSOR 8 /* ports of a tensor group; a data group has one port of each of them */
#define PORT_BYTES_PER_S 450e9
#define COLLECTIVE_BYTES 1e6

/* One flow over all ports of a group, up and down, capped at what a port has. */
static guint32
add_group (SpFlows *flows, guint first_port, guint stride, guint n_ports, double bytes)
{
  guint32 links[2 * PORTS];

  for (guint i = 0; i < n_ports; i++) {
    links[2 * i] = 2 * (first_port + i * stride);
    links[2 * i + 1] = links[2 * i] + 1;
  }
  return sp_flows_add (flows, links, 2 * n_ports, bytes, PORT_BYTES_PER_S, 1);
}

/* With a spread, groups are out of step. */
static guint32
add_tensor (SpFlows *flows, GRand *rand, guint group, double spread)
{
  double factor = spread > 0 ? g_rand_double_range (rand, 1 - spread, 1 + spread) : 1;

  return add_group (flows, TENSOR * group, 1, TENSOR, COLLECTIVE_BYTES * factor);
}

static guint32
add_data (SpFlows *flows, GRand *rand, guint group)
{
  return add_group (flows, group, TENSOR, PORTS / TENSOR, COLLECTIVE_BYTES * g_rand_double_range (rand, 2, 20));
}

/* All tensor groups run `rounds` collectives, one after another. With a background, so do the data groups, of all
 * sizes, until then. Returns the CPU time. */
static double
collectives (guint rounds, double spread, gboolean has_background, guint64 *ret_ended,
             SpFlowsStatistics *ret_statistics)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree double *capacities = g_new (double, 2 * PORTS);
  g_autofree guint *group_of = g_new (guint, PORTS), *left = g_new (guint, PORTS / TENSOR);
  double start_s = bench_cpu_s ();
  guint n_running = PORTS / TENSOR;

  for (guint i = 0; i < 2 * PORTS; i++)
    capacities[i] = PORT_BYTES_PER_S;
  g_autoptr (SpFlows) flows = sp_flows_new (2 * PORTS, capacities);
  for (guint g = 0; g < PORTS / TENSOR; g++) {
    group_of[add_tensor (flows, rand, g, spread)] = g;
    left[g] = rounds;
  }
  for (guint g = 0; has_background && g < TENSOR; g++)
    group_of[add_data (flows, rand, g)] = PORTS + g;
  *ret_ended = 0;
  while (n_running > 0) {
    guint n;
    const guint32 *finished = sp_flows_advance (flows, sp_flows_next (flows), &n);
    *ret_ended += n;
    for (guint i = 0; i < n; i++) {
      guint group = group_of[finished[i]];
      if (group >= PORTS)
        group_of[add_data (flows, rand, group - PORTS)] = group;
      else if (--left[group] > 0)
        group_of[add_tensor (flows, rand, group, spread)] = group;
      else
        n_running--;
    }
  }
  *ret_statistics = sp_flows_statistics (flows);
  return bench_cpu_s () - start_s;
}

static void
bench_collectives (guint rounds, double spread, gboolean has_background)
{
  SpFlowsStatistics statistics;
  double cpu_s[REPEATS];
  guint64 ended;

  for (guint r = 0; r < REPEATS; r++)
    cpu_s[r] = collectives (rounds, spread, has_background, &ended, &statistics);
  double median_s = bench_median (cpu_s, REPEATS);
  guint64 members = ended * TENSOR;
  if (has_background) /* data groups count by their ports too */
    members = (guint64) rounds * PORTS + (ended - (guint64) rounds * PORTS / TENSOR) * (PORTS / TENSOR);
  g_print ("collectives, 128 groups of 8, %-6s %5u rounds, %-22s %8.1f ms  %5.2f M flows/s  %6.1f M member events/s"
           "  %" G_GUINT64_FORMAT " solves",
           spread > 0 ? "+-10 %" : "equal", rounds, has_background ? "beside 8 groups of 128" : "alone", 1e3 * median_s,
           (double) ended / median_s / 1e6, (double) members / median_s / 1e6, statistics.solves);
  if (statistics.solves > 0)
    g_print (" of %.1f us", 1e6 * median_s / (double) statistics.solves);
  g_print ("\n");
}

int
main (int argc, char **argv)
{
  gboolean solve_exactly = argc > 1 && strcmp (argv[1], "exact") == 0;

  bench_ring (64, 64, 0, "");
  bench_ring (1024, 64, 0, "goal 8 M/s, must 2");
  bench_ring (1024, 64, 0.1, "");
  bench_ring (4096, 64, 0, "");
  bench_collectives (10000, 0, FALSE);
  bench_collectives (10000, 0.1, FALSE);
  bench_collectives (10000, 0, TRUE);
  bench_collectives (100, 0.1, TRUE);
  bench_equal_sizes (64, 1, "");
  bench_equal_sizes (256, 1, "goal 20 ms, must 100");
  bench_equal_sizes (256, 2, "goal 20 ms, must 100");
  g_print ("below: goal 0.5 s, must 1, for a makespan within 0.01 %%: window 0.001 declares it\n");
  bench_unequal_sizes (1, 0.005141251314, solve_exactly);
  bench_unequal_sizes (2, 0.009617321687, solve_exactly);
  bench_equal_sizes (1024, 1, "goal 0.3 s, must 2, under 500 MB");
  bench_equal_sizes (1024, 2, "goal 0.3 s, must 2, under 500 MB");
  return 0;
}
