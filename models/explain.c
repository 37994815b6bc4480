/* SPDX-License-Identifier: Apache-2.0 */
#include "models/explain.h"

#include <string.h>

/* --- terms -------------------------------------------------------------------------------------------------------- */

#define RANKS "data tensor pipeline ulysses ring lasp expert "
#define WORK RANKS "ring-split ring-kind lasp-version micro-batch mlp-tiles loss precision sequence packing framework "

/* What a term is, and the keys that can change it. */
typedef struct {
  const char *name, *meaning, *keys;
} Meaning;

static const Meaning terms[SP_TERM_AXIS] = {
  [SP_TERM_FORWARD] = { "forward", "kernels of the forward", WORK },
  [SP_TERM_RECOMPUTE] = { "recompute", "computing layers again for their backward, to keep less of them", "recompute" },
  [SP_TERM_BACKWARD] = { "backward", "kernels of the backward", WORK },
  [SP_TERM_OPTIMIZER] = { "optimizer", "the optimizer's step on a GPU's share of the states",
                          RANKS "zero zero-group offload optimizer global-batch sequence lora-rank frozen" },
  [SP_TERM_SLOWED] = { "slowdown", "kernels made slower by communication beside them", "overlap zero ring tensor" },
  [SP_TERM_BUBBLE] = { "bubble", "stages of the pipeline that wait for each other",
                       "pipeline schedule virtual-stages stage-split slices micro-batch global-batch data" },
  [SP_TERM_HOST] = { "host", "GPUs that wait for the host to issue kernels", "framework micro-batch zero recompute" },
};

static const Meaning axes[SP_N_AXES] = {
  [SP_AXIS_TENSOR] = { "tensor, exposed", "tensor parallelism's collectives that no kernel hides",
                       "tensor sequence-regions recompute pipeline-scatter" },
  [SP_AXIS_ULYSSES] = { "ulysses, exposed", "Ulysses' all-to-alls that no kernel hides",
                        "ulysses tensor recompute order" },
  [SP_AXIS_RING] = { "ring, exposed", "the ring's messages that no kernel hides",
                     "ring ulysses tensor ring-kind ring-split ring-keep ring-inner ring-backward ring-gradient-dtype "
                     "overlap recompute sequence order" },
  [SP_AXIS_LASP] = { "lasp, exposed", "waits for states of linear attention",
                     "lasp lasp-version tensor overlap recompute order" },
  [SP_AXIS_DATA] = { "data, exposed", "gathers of parameters and sums of gradients that no kernel hides",
                     "data zero zero-group reshard gradient-dtype overlap micro-batch global-batch sequence pipeline "
                     "tensor" },
  [SP_AXIS_PIPELINE] = { "pipeline, exposed", "messages between stages that no kernel hides",
                         "pipeline virtual-stages schedule slices micro-batch sequence-regions pipeline-scatter" },
  [SP_AXIS_EXPERT] = { "expert, exposed", "exchanges of experts' tokens that no kernel hides",
                       "expert expert-capacity expert-imbalance tensor recompute order" },
  [SP_AXIS_HOST] = { "copies, exposed", "copies to and from the host that no kernel hides",
                     "offload recompute zero micro-batch" },
};

static const Meaning classes[SP_N_CLASSES] = {
  [SP_CLASS_PARAMETERS] = { "parameters", "weights, and those that are gathered for a while",
                            RANKS "zero zero-group reshard offload" },
  [SP_CLASS_GRADIENTS] = { "gradients", "gradients, and those that are whole for a while",
                           RANKS "zero zero-group gradient-dtype offload" },
  [SP_CLASS_OPTIMIZER] = { "optimizer", "the optimizer's states", RANKS "zero zero-group offload optimizer" },
  [SP_CLASS_ACTIVATIONS] = { "activations", "what layers keep for their backward",
                             "tensor pipeline ulysses ring lasp recompute micro-batch sequence-regions mlp-tiles "
                             "offload schedule virtual-stages sequence ring-keep" },
  [SP_CLASS_LOGITS] = { "logits", "logits and their gradients",
                        "tensor ulysses ring lasp loss loss-chunks micro-batch sequence" },
  [SP_CLASS_COMMUNICATION] = { "communication", "buffers of messages and collectives",
                               RANKS "ring-kind micro-batch sequence zero" },
  [SP_CLASS_WORKSPACE] = { "workspace", "scratch of kernels", RANKS "micro-batch sequence loss" },
  [SP_CLASS_RESERVED] = { "reserved", "context, libraries and the allocator's rounding", "framework" },
};

static const Meaning *
meaning_of (guint term)
{
  g_assert (term < SP_N_TERMS);
  return term < SP_TERM_AXIS ? &terms[term] : &axes[term - SP_TERM_AXIS];
}

const char *
sp_term_name (guint term)
{
  return meaning_of (term)->name;
}

const char *
sp_term_meaning (guint term)
{
  return meaning_of (term)->meaning;
}

const char *
sp_class_meaning (guint class)
{
  g_return_val_if_fail (class < SP_N_CLASSES, "?");
  return classes[class].meaning;
}

double
sp_term_s (const SpEstimate *e, guint term)
{
  const double seconds[SP_TERM_AXIS] = {
    [SP_TERM_FORWARD] = e->forward_s,
    [SP_TERM_RECOMPUTE] = e->recompute_s,
    [SP_TERM_BACKWARD] = e->backward_s,
    [SP_TERM_OPTIMIZER] = e->optimizer_s,
    [SP_TERM_SLOWED] = e->slowed_s + e->idle_s,
    [SP_TERM_BUBBLE] = e->bubble_s,
    [SP_TERM_HOST] = e->host_s,
  };

  g_return_val_if_fail (term < SP_N_TERMS, 0);
  return term < SP_TERM_AXIS ? seconds[term] : e->axes[term - SP_TERM_AXIS].exposed_s;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

static void
difference_free (gpointer data)
{
  SpKeyDifference *d = data;

  g_free (d->group);
  g_free (d->key);
  g_free (d->mine);
  g_free (d->other);
  g_free (d);
}

static GKeyFile *
keys_of (const SpScenario *scenario)
{
  g_autoptr (GString) text = g_string_new (NULL);
  GKeyFile *file = g_key_file_new ();

  sp_scenario_write (scenario, text);
  g_key_file_load_from_data (file, text->str, text->len, G_KEY_FILE_NONE, NULL);
  return file;
}

/* Axes of degree 1 stand anywhere. */
static gboolean
same_order (const SpScenario *mine, const SpScenario *other)
{
  const SpLayout *layouts[2] = { &mine->layout, &other->layout };
  guint8 seen[2][SP_N_RANK_AXES];
  guint n[2] = { 0 };

  for (guint side = 0; side < 2; side++)
    for (guint i = 0; i < SP_N_RANK_AXES; i++) {
      const SpLayout *own = layouts[side];
      const gint32 degrees[SP_N_RANK_AXES] = {
        [SP_AXIS_TENSOR] = own->tensor, [SP_AXIS_ULYSSES] = own->ulysses, [SP_AXIS_RING] = own->ring,
        [SP_AXIS_LASP] = own->lasp,     [SP_AXIS_DATA] = own->data,       [SP_AXIS_PIPELINE] = own->pipeline,
      };
      guint8 axis = own->order.axis[i];
      if (degrees[axis] > 1)
        seen[side][n[side]++] = axis;
    }
  return layouts[0]->order.experts_far == layouts[1]->order.experts_far && n[0] == n[1] &&
         memcmp (seen[0], seen[1], n[0]) == 0;
}

static gboolean
has_no_effect (const SpScenario *scenario, const char *group, const char *key)
{
  g_autofree char *why = sp_scenario_no_effect (scenario, group, key);

  return why != NULL;
}

/* A model by the name of its file, or, of one that a run file describes and that is none, by its own. */
static void
name_model (const SpScenario *scenario, char **value)
{
  if (g_file_test (scenario->model_path, G_FILE_TEST_EXISTS))
    return;
  g_free (*value);
  *value = g_strdup (scenario->arch->name);
}

static gboolean
same_model (const SpScenario *mine, const SpScenario *other)
{
  g_autoptr (GString) one = g_string_new (NULL), two = g_string_new (NULL);
  g_autoptr (GPtrArray) lost = g_ptr_array_new_with_free_func (g_free);

  if (mine->arch == other->arch)
    return TRUE;
  sp_architecture_write_ini (mine->arch, one, lost);
  sp_architecture_write_ini (other->arch, two, lost);
  return lost->len == 0 && g_string_equal (one, two);
}

static gboolean
differs (const SpScenario *mine, const SpScenario *other, const char *group, const char *key, const char *a,
         const char *b)
{
  if (g_str_equal (group, "model"))
    return !same_model (mine, other);
  if (g_strcmp0 (a, b) == 0 || (has_no_effect (mine, group, key) && has_no_effect (other, group, key)))
    return FALSE;
  return !g_str_equal (key, "order") || !same_order (mine, other);
}

GPtrArray *
sp_scenario_differences (const SpScenario *mine, const SpScenario *other)
{
  GPtrArray *all = g_ptr_array_new_with_free_func (difference_free);
  g_autoptr (GKeyFile) a = keys_of (mine), b = keys_of (other);
  const char *group, *key;

  for (guint i = 0; sp_scenario_key (i, &group, &key, NULL); i++) {
    if (g_str_equal (group, "run-file")) /* no cost depends on it */
      continue;
    g_autofree char *one = g_key_file_get_value (a, group, key, NULL),
                    *two = g_key_file_get_value (b, group, key, NULL);
    if (!differs (mine, other, group, key, one, two))
      continue;
    SpKeyDifference *d = g_new0 (SpKeyDifference, 1);
    d->group = g_strdup (group);
    d->key = g_strdup (key);
    d->mine = g_steal_pointer (&one);
    d->other = g_steal_pointer (&two);
    if (g_str_equal (group, "model")) {
      name_model (mine, &d->mine);
      name_model (other, &d->other);
    }
    g_ptr_array_add (all, d);
  }
  return all;
}

const char *
sp_key_difference_name (const SpKeyDifference *d)
{
  gboolean is_file = (g_str_equal (d->group, "model") && g_str_equal (d->key, "config")) ||
                     (g_str_equal (d->group, "cluster") && g_str_equal (d->key, "file"));

  return is_file ? d->group : d->key;
}

SpScenario
sp_scenario_with (const SpScenario *scenario, const SpLayout *layout, const SpRun *run, gint32 nodes)
{
  SpScenario with = *scenario;

  with.layout = *layout;
  with.run = *run;
  if (nodes > 0)
    with.nodes = nodes;
  return with;
}

/* Those of the differences that stand in a term's list; on the model all depends, and on the machine all times. */
static char *
keys_that_count (const GPtrArray *differences, const char *keys, gboolean is_time)
{
  g_auto (GStrv) list = g_strsplit (keys, " ", -1);
  g_autoptr (GString) out = g_string_new (NULL);

  for (guint i = 0; i < differences->len; i++) {
    const SpKeyDifference *d = differences->pdata[i];
    gboolean all = g_str_equal (d->group, "model") || (is_time && g_str_equal (d->group, "cluster"));
    if (!all && !g_strv_contains ((const char *const *) list, d->key))
      continue;
    g_string_append_printf (out, "%s%s = %s, not %s", out->len > 0 ? "; " : "", sp_key_difference_name (d),
                            d->mine != NULL ? d->mine : "left out", d->other != NULL ? d->other : "left out");
  }
  return out->len > 0 ? g_strdup (out->str) : NULL;
}

/* --- the difference ----------------------------------------------------------------------------------------------- */

static double
gpus_a_token (const SpScenario *s)
{
  double tokens = (double) s->run.sequence * s->run.global_batch;

  return sp_layout_world (&s->layout, s->arch) / tokens;
}

void
sp_explain (const SpScenario *mine, const SpEstimate *mine_e, const SpScenario *other, const SpEstimate *other_e,
            SpExplained *ret)
{
  ret->differences = sp_scenario_differences (mine, other);
  ret->per_token = gpus_a_token (mine) != gpus_a_token (other) || mine->run.sequence != other->run.sequence;
  ret->mine_scale = ret->per_token ? gpus_a_token (mine) : 1;
  ret->other_scale = ret->per_token ? gpus_a_token (other) : 1;
  for (guint t = 0; t < SP_N_TERMS; t++)
    ret->time[t] = (SpExplainedRow){ ret->mine_scale * sp_term_s (mine_e, t), ret->other_scale * sp_term_s (other_e, t),
                                     keys_that_count (ret->differences, meaning_of (t)->keys, TRUE) };
  for (guint c = 0; c < SP_N_CLASSES; c++)
    ret->memory[c] = (SpExplainedRow){ mine_e->memory.by_class[c], other_e->memory.by_class[c],
                                       keys_that_count (ret->differences, classes[c].keys, FALSE) };
}

void
sp_explained_clear (SpExplained *explained)
{
  for (guint t = 0; t < SP_N_TERMS; t++)
    g_clear_pointer (&explained->time[t].keys, g_free);
  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_clear_pointer (&explained->memory[c].keys, g_free);
  g_clear_pointer (&explained->differences, g_ptr_array_unref);
}

/* --- the best ----------------------------------------------------------------------------------------------------- */

/* What the search has no values of its own for, from the scenario. */
static SpLayout
base_of (const SpScenario *scenario, gboolean lean)
{
  const SpLayout *own = &scenario->layout;
  SpLayout base = SP_LAYOUT_DEFAULT;

  base.gradient_dtype = own->gradient_dtype;
  base.ring_gradient_dtype = own->ring_gradient_dtype;
  base.ring_kind = own->ring_kind == SP_RING_DOUBLE ? SP_RING_P2P : own->ring_kind;
  base.expert_capacity = own->expert_capacity;
  base.schedule = own->schedule;
  if (own->loss >= SP_LOSS_CHUNKED) {
    base.loss = own->loss;
    base.loss_chunks = own->loss_chunks;
  }
  if (lean)
    return base;
  base.mlp_tiles = own->mlp_tiles;
  base.offload = own->offload;
  return base;
}

SpPlanQuestion
sp_explain_question (const SpScenario *scenario)
{
  return (SpPlanQuestion){
    .sequence = scenario->run.sequence,
    .global_batch = scenario->run.global_batch,
    .top = 1,
    .causal = scenario->run.causal,
    .base = base_of (scenario, TRUE),
    .run = scenario->run,
    .fixed = sp_plan_beyond_usual (),
  };
}

SpPlan *
sp_explain_plan (SpEstimator *estimator, const SpScenario *scenario, SpPlanQuestion *question, GError **error)
{
  g_autoptr (SpPlan) plan = sp_plan (estimator, question, error);

  if (plan == NULL || plan->fitting > 0 || (scenario->layout.offload == 0 && scenario->layout.mlp_tiles == 1))
    return g_steal_pointer (&plan);
  question->base = base_of (scenario, FALSE);
  return sp_plan (estimator, question, error);
}
