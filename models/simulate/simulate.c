/* SPDX-License-Identifier: Apache-2.0 */
#include "models/simulate/simulate.h"

#include "models/estimate/memory.h"
#include "models/inputs/ini.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the network -------------------------------------------------------------------------------------------------- */

static gboolean
refuse_link (const SpTopology *topology, const SpVariations *variations, const SpLinkChange *change, GError **error)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);

  for (guint32 l = 0; l < MIN (sp_topology_n_links (topology), 1u << 16); l++)
    g_ptr_array_add (names, sp_topology_link_name (topology, l));
  g_ptr_array_add (names, NULL);
  const char *near = sp_nearest (change->name, (const char *const *) names->pdata);
  g_autofree char *shown = sp_shown (change->name);
  return sp_variations_refuse (variations, change->factor == 0 ? "failed-links" : "slow-links", error,
                               "the cluster has no link %s%s%s%s", shown,
                               near ? "; did you mean " : "; `show cluster` lists links, such as ",
                               near ? near : (const char *) names->pdata[0], near ? "?" : "");
}

static gboolean
change_links (SpTopology *topology, const SpVariations *variations, GError **error)
{
  for (guint i = 0; variations->links != NULL && i < variations->links->len; i++) {
    const SpLinkChange *change = &g_array_index (variations->links, SpLinkChange, i);
    guint32 link;
    if (!sp_topology_find_link (topology, change->name, &link))
      return refuse_link (topology, variations, change, error);
    if (change->factor == 0)
      sp_topology_fail_link (topology, link);
    else
      sp_topology_slow_link (topology, link, change->factor);
  }
  return TRUE;
}

static SpTopology *
make_topology (const SpCluster *cluster, const SpVariations *variations, GError **error)
{
  SpTopologySpec spec;

  sp_cluster_topology_spec (cluster, &spec);
  g_autoptr (SpTopology) topology = sp_topology_new (&spec, error);
  return topology != NULL && change_links (topology, variations, error) ? g_steal_pointer (&topology) : NULL;
}

/* --- variation ---------------------------------------------------------------------------------------------------- */

static gboolean
check_ranks (const SpVariations *v, gint32 ranks, GError **error)
{
  for (guint i = 0; v->slow_ranks != NULL && i < v->slow_ranks->len; i++) {
    gint32 rank = g_array_index (v->slow_ranks, SpSlowRank, i).rank;
    if (rank >= ranks)
      return sp_variations_refuse (v, "slow-ranks", error, "there is no rank %d: the layout has ranks 0 to %d", rank,
                                   ranks - 1);
  }
  return TRUE;
}

gboolean
sp_simulate_check_variations (const SpCluster *cluster, gint32 ranks, const SpVariations *variations, GError **error)
{
  if (!check_ranks (variations, ranks, error))
    return FALSE;
  if (variations->links == NULL || variations->links->len == 0)
    return TRUE;
  g_autoptr (SpTopology) topology = make_topology (cluster, variations, error);
  return topology != NULL;
}

static gboolean
make_variation (const SpEstimator *estimator, const SpProgram *program, const SpVariations *v, SpVariation *ret,
                GError **error)
{
  const SpCluster *cluster = estimator->cluster;

  *ret = (SpVariation){
    .seed = v->seed,
    .kernel_sd = v->kernel_noise >= 0 ? v->kernel_noise : cluster->device->noise.value,
    .communication_sd = v->network_noise >= 0 ? v->network_noise : cluster->network_noise.value,
    .load_sd = v->load_noise ? sp_variation_sd_of_largest (program->groups[SP_GROUP_EXPERT].size,
                                                           program->numbers.expert_imbalance)
                             : 0,
    .slow_ranks = v->slow_ranks != NULL ? (const SpSlowRank *) (void *) v->slow_ranks->data : NULL,
    .n_slow_ranks = v->slow_ranks != NULL ? v->slow_ranks->len : 0,
  };
  return check_ranks (v, program->world, error);
}

/* --- the result in the estimate's terms --------------------------------------------------------------------------- */

/* The role that has most to do: of equals the first. */
static gint32
busiest_role (const SpSimulation *run)
{
  SpTime most = -1;
  gint32 busiest = 0;

  for (gint32 r = 0; r < run->n_roles; r++) {
    const SpRoleReport *role = &run->roles[r];
    SpTime busy = role->kernels + role->slowed + role->host;
    for (guint a = 0; a < SP_N_AXES; a++)
      busy += role->exposed[a];
    if (busy > most) {
      most = busy;
      busiest = r;
    }
  }
  return busiest;
}

static void
set_times (const SpSimulation *run, const SpRoleReport *role, double beside_s, SpEstimate *e)
{
  double plain_s = sp_time_to_s (run->end) + beside_s;

  e->step_time_s = e->crowding * plain_s;
  e->compute_s = sp_time_to_s (role->kernels + role->slowed);
  e->host_s = sp_time_to_s (role->host) + beside_s + (e->crowding - 1) * plain_s;
  e->host_issue_s = sp_time_to_s (role->issue);
  e->is_host_bound = role->issue > 0 && role->issue >= run->end - role->host;
  e->bubble_s = sp_time_to_s (role->bubble);
  e->exposed_communication_s = 0;
  for (guint a = 0; a < SP_N_AXES; a++) {
    e->axes[a].time_s = sp_time_to_s (role->active[a]);
    e->axes[a].exposed_s = sp_time_to_s (role->exposed[a]);
    e->exposed_communication_s += e->axes[a].exposed_s;
  }
  e->idle_s = e->step_time_s - e->compute_s - e->host_s - e->bubble_s - e->exposed_communication_s;
  e->idle_s = MAX (e->idle_s, 0);
}

static gint32
fullest_role (const SpSimulation *run)
{
  gint32 fullest = 0;

  for (gint32 r = 1; r < run->n_roles; r++)
    if (run->roles[r].peak_bytes > run->roles[fullest].peak_bytes)
      fullest = r;
  return fullest;
}

/* What a role held at its peak: the order of lists, not their dates, decides that. */
static gboolean
list_peak (const SpProgram *program, gboolean serial, gint32 rank, GArray **ret, GError **error)
{
  const SpProgram step = sp_program_of_step (program);
  g_autoptr (SpWalkPlan) walk = sp_walk_plan_new (&step, serial ? SP_ORDER_PROGRAM : SP_ORDER_EAGER);
  g_autoptr (SpMemoryPlan) plan = sp_memory_plan_new (&step, walk, error);

  if (plan == NULL)
    return FALSE;
  g_autoptr (GArray) buffers = sp_memory_list_peak (plan, rank, NULL);
  *ret = sp_memory_merge (program, buffers);
  return TRUE;
}

static void
set_memory (const SpEstimator *estimator, const SpRoleReport *fullest, SpEstimate *e)
{
  const SpMemory estimated = e->memory;

  e->memory =
      (SpMemory){ .stage = fullest->stage, .moment = "simulated; peaks below", .host_bytes = e->memory.host_bytes };
  for (guint c = 0; c < SP_N_CLASSES; c++)
    e->memory.by_class[c] = (double) fullest->peak_by_class[c];
  e->memory.total_bytes = (double) fullest->peak_bytes;
  sp_memory_add_framework (estimator->framework, estimated.gathers_bytes, &e->memory);
  sp_memory_add_run_ahead (estimated.run_ahead_bytes, e->capacity_bytes, &e->memory);
  e->memory.is_crowded = estimated.is_crowded;
  e->fits = sp_estimate_fits (estimator->cluster, e);
}

/* What follows from the step time is inversely proportional to it. */
static void
set_speed (double estimated_s, SpEstimate *e)
{
  double ratio = estimated_s / e->step_time_s;

  e->tokens_per_s *= ratio;
  e->mfu *= ratio;
  e->mfu_causal *= ratio;
  e->hfu *= ratio;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static gint
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

double
sp_simulated_quantile (const SpSimulated *simulated, double q)
{
  double at = q * (simulated->n_samples - 1);
  guint below = (guint) at, above = MIN (below + 1, simulated->n_samples - 1);

  return simulated->sample_s[below] + (at - below) * (simulated->sample_s[above] - simulated->sample_s[below]);
}

static gboolean
run_samples (const SpProgram *program, const SpPrices *prices, SpEngineOptions *options, SpVariation *variation,
             const SpSimulateOptions *asked, SpSimulated *ret, GError **error)
{
  ret->n_samples = MAX (asked->samples, 1);
  ret->sample_s = g_new (double, ret->n_samples);
  for (guint i = 0; i < ret->n_samples; i++) {
    SpSimulation *run = sp_engine_run (program, ret->roles, prices, options, error);
    if (run == NULL)
      return FALSE;
    ret->sample_s[i] = sp_time_to_s (run->end);
    if (i == 0)
      ret->run = run;
    else
      sp_simulation_free (run);
    options->trace = NULL;
    options->link_bytes = NULL;
    variation->seed++;
  }
  qsort (ret->sample_s, ret->n_samples, sizeof *ret->sample_s, compare_doubles);
  return TRUE;
}

static gboolean
run_traced (const SpProgram *program, const SpPrices *prices, SpEngineOptions *options, SpVariation *variation,
            const SpSimulateOptions *asked, SpSimulated *ret, GError **error)
{
  g_autoptr (SpTrace) trace = NULL;

  if (asked->trace_path != NULL) {
    trace = sp_trace_open (asked->trace_path, error);
    if (trace == NULL)
      return FALSE;
  }
  options->trace = trace != NULL ? trace : asked->trace;
  return run_samples (program, prices, options, variation, asked, ret, error) &&
         (trace == NULL || sp_trace_close (trace, error));
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static gboolean
simulate (SpEstimator *estimator, const SpProgram *program, const SpRun *run, const SpVariations *variations,
          const SpSimulateOptions *asked, SpSimulated *ret, GError **error)
{
  g_auto (SpProgramPrices) prices = { 0 };
  SpVariation variation;

  sp_estimate_program (estimator, program, run, &ret->result);
  sp_estimate_refine (estimator, program, &ret->result);
  sp_program_prices_init (&prices, &estimator->cost, program);
  ret->topology = make_topology (estimator->cluster, variations, error);
  if (ret->topology == NULL || !make_variation (estimator, program, variations, &variation, error))
    return FALSE;
  gboolean fold = !asked->unfolded && !asked->steps && !sp_variation_splits (&variation);
  ret->network = sp_network_new (ret->topology, program, prices.algorithms, fold, error);
  if (ret->network == NULL)
    return FALSE;
  ret->roles = ret->network->roles;
  SpEngineOptions options = { .serial = asked->serial,
                              .steps = asked->steps,
                              .gpus_per_node = estimator->cluster->gpus_per_node,
                              .network = ret->network,
                              .variation = &variation };
  if (asked->counts_links)
    options.link_bytes = ret->link_bytes = g_new0 (double, (gsize) SP_N_AXES * ret->network->n_links);
  if (!run_traced (program, &prices.prices, &options, &variation, asked, ret, error))
    return FALSE;
  double estimated_s = ret->result.step_time_s, beside_s = sp_cost_beside_step (&estimator->cost, program);
  for (guint i = 0; i < ret->n_samples; i++)
    ret->sample_s[i] = ret->result.crowding * (ret->sample_s[i] + beside_s);
  ret->role = busiest_role (ret->run);
  set_times (ret->run, &ret->run->roles[ret->role], beside_s, &ret->result);
  ret->fullest = fullest_role (ret->run);
  const SpRoleReport *fullest = &ret->run->roles[ret->fullest];
  set_memory (estimator, fullest, &ret->result);
  set_speed (estimated_s, &ret->result);
  return list_peak (program, asked->serial, fullest->rank, &ret->peak, error);
}

gboolean
sp_simulate (SpEstimator *estimator, const SpProgram *program, const SpRun *run, const SpVariations *variations,
             const SpSimulateOptions *options, SpSimulated *ret, GError **error)
{
  *ret = (SpSimulated){ 0 };
  if (simulate (estimator, program, run, variations, options, ret, error))
    return TRUE;
  sp_simulated_clear (ret);
  return FALSE;
}

void
sp_simulated_clear (SpSimulated *simulated)
{
  g_clear_pointer (&simulated->run, sp_simulation_free);
  g_clear_pointer (&simulated->network, sp_network_free);
  g_clear_pointer (&simulated->topology, sp_topology_free);
  g_clear_pointer (&simulated->sample_s, g_free);
  g_clear_pointer (&simulated->link_bytes, g_free);
  g_clear_pointer (&simulated->peak, g_array_unref);
}
