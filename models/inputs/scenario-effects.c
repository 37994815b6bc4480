/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that some layouts and models have no use for. One table: a row's function says whether its key makes a
 * difference in a scenario, and if not what it is about and what would make it count. A value that is the default is
 * never asked about, so what `show` writes is read back without a word.
 */
#include "models/inputs/scenario-keys.h"


typedef gboolean (*Counts) (const SpScenario *s, GString *why);

static gboolean
has_experts (const SpScenario *s)
{
  return s->arch->moe.experts > 0 && sp_architecture_has_bit (s->arch, SP_LAYER_EXPERTS);
}

static gboolean explain (gboolean counts, GString *why, const char *format, ...) G_GNUC_PRINTF (3, 4);

static gboolean
explain (gboolean counts, GString *why, const char *format, ...)
{
  va_list arguments;

  if (counts)
    return TRUE;
  g_string_append (why, "has no effect: ");
  va_start (arguments, format);
  g_string_append_vprintf (why, format, arguments);
  va_end (arguments);
  return FALSE;
}

/* --- axes --------------------------------------------------------------------------------------------------------- */

static gboolean
has_ring (const SpScenario *s, GString *why)
{
  if (!sp_architecture_has (s->arch, SP_LAYER_SOFTMAX))
    return explain (FALSE, why, "it is about a ring of softmax layers, and %s has none", s->arch->name);
  return explain (s->layout.ring > 1, why, "it is about a ring, and ring = 1; with ring = 2 or more it counts");
}

static gboolean
has_rings (const SpScenario *s, GString *why)
{
  if (!has_ring (s, why))
    return FALSE;
  return explain (s->layout.ring_kind == SP_RING_DOUBLE, why,
                  "it is about the inner of two rings, and ring-kind = %s is one; with ring-kind = double it counts",
                  sp_ring_kind_name ((SpRingKind) s->layout.ring_kind));
}

static gboolean
has_lasp (const SpScenario *s, GString *why)
{
  if (!sp_architecture_has (s->arch, SP_LAYER_LINEAR))
    return explain (FALSE, why, "it is about states of linear attention, and %s has none", s->arch->name);
  return explain (s->layout.lasp > 1, why,
                  "it is about states that go from rank to rank, and lasp = 1; with lasp = 2 or more it counts");
}

static gboolean
has_stages (const SpScenario *s, GString *why)
{
  return explain (s->layout.pipeline > 1, why,
                  "it is about pipeline stages, and pipeline = 1; with pipeline = 2 or more it counts");
}

/* Slices are put in order on one stage too. */
static gboolean
has_slots (const SpScenario *s, GString *why)
{
  return s->layout.slices > 1 || has_stages (s, why);
}

static gboolean
has_tensor (const SpScenario *s, GString *why)
{
  return explain (s->layout.tensor > 1, why,
                  "it is about rows between tensor ranks, and tensor = 1; with tensor = 2 or more it counts");
}

static gboolean
scatters (const SpScenario *s, GString *why)
{
  if (!has_stages (s, why))
    return FALSE;
  if (s->layout.tensor == 1)
    return explain (FALSE, why,
                    "it is about rows that all tensor ranks have, and tensor = 1; with tensor = 2 or more it counts");
  if (s->layout.sequence_regions)
    return explain (FALSE, why,
                    "with sequence-regions each tensor rank has rows of its own to send; with sequence-regions = false "
                    "it counts");
  return explain (s->framework->pipeline_scatter, why,
                  "framework = %s sends whole rows; with one that scatters them (megatron-2022, say) it counts",
                  s->framework->name);
}

static gboolean
shards (const SpScenario *s, GString *why)
{
  if (sp_layout_replicas (&s->layout, s->arch) == 1)
    return explain (FALSE, why, "it is about ranks that hold the same weights, and there is one");
  return explain (s->layout.zero > 0, why,
                  "it is about what ZeRO shards, and zero = 0; with zero = 1 or more it counts");
}

static gboolean
shards_parameters (const SpScenario *s, GString *why)
{
  return explain (s->layout.zero == 3, why,
                  "it is about parameters that are gathered, and zero = %d keeps them whole; with zero = 3 it counts",
                  s->layout.zero);
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

static gboolean
routes (const SpScenario *s, GString *why)
{
  return explain (has_experts (s), why, "it is about routed experts, and %s has none", s->arch->name);
}

static gboolean
spreads_experts (const SpScenario *s, GString *why)
{
  if (!routes (s, why))
    return FALSE;
  return explain (s->layout.expert > 1, why,
                  "it is about ranks that have other experts than the others, and expert = 1 has all of them on each; "
                  "with expert = 2 or more it counts");
}

static gboolean
draws_loads (const SpScenario *s, GString *why)
{
  if (!spreads_experts (s, why))
    return FALSE;
  if (s->layout.expert_capacity > 0)
    return explain (FALSE, why, "with expert-capacity all buffers are full; with expert-capacity = none it counts");
  return explain (s->run.expert_imbalance > 1, why,
                  "it spreads loads about expert-imbalance, which is 1; with expert-imbalance above 1 it counts");
}

/* --- what is kept, and how ---------------------------------------------------------------------------------------- */

static gboolean
has_chunks (const SpScenario *s, GString *why)
{
  return explain (s->layout.loss == SP_LOSS_CHUNKED || s->layout.loss == SP_LOSS_FUSED, why,
                  "only loss = chunked or fused is computed in parts; with one of them it counts");
}

static gboolean
has_dense_mlp (const SpScenario *s, GString *why)
{
  gboolean any = FALSE;

  for (gint32 i = 0; i < s->arch->layers; i++)
    any |= !(s->arch->layer_kind[i] & (SP_LAYER_NO_MLP | SP_LAYER_EXPERTS));
  return explain (any, why, "it is about MLPs that are no experts, and %s has none", s->arch->name);
}

/* every-K and first-K of more layers than a stage has. */
static gboolean
recomputes_some (const SpScenario *s, GString *why)
{
  const SpLayout *l = &s->layout;
  gint32 n = CLAMP (sp_layout_virtual_stages (l), 1, SP_MAX_VIRTUAL_STAGES), most = 0;

  for (gint32 i = 0; i < n; i++)
    most = MAX (most, sp_layout_stage_layers (l, s->arch, i));
  const char *layers = most == 1 ? "layer" : "layers", *or_less = most == 1 ? "" : " or less";
  if (l->recompute_first > most) {
    g_string_append_printf (why, "no stage has more than %d %s, so it is full; expected first-%d%s, or full", most,
                            layers, most, or_less);
    return FALSE;
  }
  if (l->recompute != SP_RECOMPUTE_FULL || l->recompute_every <= MAX (most, 1))
    return TRUE;
  if (most == 1)
    return explain (FALSE, why, "no stage has more than 1 layer, so none is recomputed; expected full or none");
  return explain (FALSE, why,
                  "no stage has more than %d layers, so none is recomputed; expected every-%d or less, or none", most,
                  most);
}

static gboolean
has_adapters (const SpScenario *s, GString *why)
{
  return explain (s->run.lora_rank > 0, why,
                  "it is about LoRA's adapters, and lora-rank = 0 has none; with lora-rank = 16, say, it counts");
}

static gboolean
has_mask (const SpScenario *s, GString *why)
{
  if (!sp_architecture_has (s->arch, SP_LAYER_SOFTMAX))
    return explain (FALSE, why, "it is about softmax attention, and %s has none", s->arch->name);
  return explain (!s->arch->bidirectional, why, "%s attends both ways as it is", s->arch->name);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* `resets`: what has no use here takes its default, for it would be illegal, or order work that nobody orders. */
static const struct {
  const char *group, *key;
  Counts counts;
  gboolean resets;
} rows[] = {
  { "layout", "expert-capacity", routes, FALSE },
  { "layout", "lasp-version", has_lasp, FALSE },
  { "layout", "loss-chunks", has_chunks, FALSE },
  { "layout", "mlp-tiles", has_dense_mlp, FALSE },
  { "layout", "pipeline-scatter", scatters, FALSE },
  { "layout", "recompute", recomputes_some, FALSE },
  { "layout", "reshard", shards_parameters, FALSE },
  { "layout", "ring-backward", has_ring, TRUE },
  { "layout", "ring-gradient-dtype", has_ring, FALSE },
  { "layout", "ring-inner", has_rings, FALSE },
  { "layout", "ring-keep", has_ring, TRUE },
  { "layout", "ring-kind", has_ring, TRUE },
  { "layout", "ring-split", has_ring, FALSE },
  { "layout", "schedule", has_slots, TRUE },
  { "layout", "sequence-regions", has_tensor, FALSE },
  { "layout", "stage-split", has_stages, TRUE },
  { "layout", "virtual-stages", has_stages, TRUE },
  { "layout", "zero-group", shards, TRUE },
  { "run", "causal", has_mask, FALSE },
  { "run", "expert-imbalance", spreads_experts, FALSE },
  { "run", "lora-targets", has_adapters, FALSE },
  { SP_VARIATION_GROUP, "expert-imbalance-noise", draws_loads, FALSE },
};

char *
sp_scenario_no_effect (const SpScenario *scenario, const char *group, const char *key)
{
  g_autoptr (GString) why = g_string_new (NULL);

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    if (g_str_equal (rows[i].group, group) && g_str_equal (rows[i].key, key) && !rows[i].counts (scenario, why))
      return g_strdup (why->str);
  return NULL;
}

/* --- [variation] -------------------------------------------------------------------------------------------------- */

static gboolean
is_random (const SpScenario *s)
{
  const SpVariations *v = &s->variations;
  g_autofree char *constant = sp_scenario_no_effect (s, SP_VARIATION_GROUP, "expert-imbalance-noise");
  double kernels = v->kernel_noise >= 0 ? v->kernel_noise : s->cluster->device->noise.value;
  double network = v->network_noise >= 0 ? v->network_noise : s->cluster->network_noise.value;

  return kernels > 0 || network > 0 || (v->load_noise && constant == NULL);
}

static const char *
variation_problem (const SpScenario *s, const char *key, gboolean simulated)
{
  gboolean seed = g_str_equal (key, "seed"), loads = g_str_equal (key, "expert-imbalance-noise");
  const SpVariations usual = SP_VARIATIONS_DEFAULT;

  if ((seed && s->variations.seed == usual.seed) || (loads && !s->variations.load_noise))
    return NULL;
  if (!simulated)
    return "has no effect: only a simulation varies from rank to rank and step to step; it counts with --engine "
           "simulate";
  if (seed && !is_random (s))
    return "has no effect: nothing is random here; with kernel-noise, network-noise or expert-imbalance-noise it "
           "counts";
  return NULL;
}

gboolean
sp_scenario_check_variations (SpScenario *scenario, gboolean simulated, GError **error)
{
  const SpVariations *v = &scenario->variations;

  for (guint i = 0; i < SP_N_VARIATION_KEYS; i++) {
    const char *key = sp_variation_keys[i];
    g_autofree char *known = v->given[i] != NULL ? sp_scenario_no_effect (scenario, SP_VARIATION_GROUP, key) : NULL;
    const char *problem = variation_problem (scenario, key, simulated);
    if (v->given[i] == NULL || known != NULL || problem == NULL)
      continue;
    g_autofree char *shown = sp_shown (v->given[i]);
    if (v->is_set[i])
      return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s (--set): [" SP_VARIATION_GROUP "] %s = \"%s\": %s",
                            scenario->path, key, shown, problem);
    g_ptr_array_add (scenario->notes, g_strdup_printf ("[" SP_VARIATION_GROUP "] %s = %s: %s", key, shown, problem));
  }
  return TRUE;
}

/* --- the table at work -------------------------------------------------------------------------------------------- */

static gboolean
is_usual (const SpScenario *scenario, const SpValues *values, const char *group, const char *key)
{
  return g_str_equal (group, SP_VARIATION_GROUP) ? !scenario->variations.load_noise
                                                 : sp_values_is_usual (values, group, key);
}

static gboolean
check_row (guint row, SpScenario *scenario, SpIni *ini, SpValues *values, GError **error)
{
  const char *group = rows[row].group, *key = rows[row].key;
  g_autofree char *value = NULL;

  if (!sp_ini_has (ini, group, key) || is_usual (scenario, values, group, key))
    return TRUE;
  g_autofree char *problem = sp_scenario_no_effect (scenario, group, key);
  if (problem == NULL)
    return TRUE;
  if (sp_ini_is_set (ini, group, key))
    return sp_ini_refuse (ini, group, key, error, "%s", problem);
  if (!sp_ini_string (ini, group, key, SP_INI_REQUIRED, &value, error))
    return FALSE;
  g_ptr_array_add (scenario->notes, g_strdup_printf ("[%s] %s = %s: %s", group, key, value, problem));
  return !rows[row].resets || sp_values_reset (ini, values, group, key, error);
}

/* The resets first: what the others count for depends on what is left, as layers of a stage on virtual-stages. */
gboolean
sp_scenario_check_effects (SpScenario *scenario, SpIni *ini, SpValues *values, GError **error)
{
  for (guint resets = 2; resets-- > 0;) {
    for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
      if (rows[i].resets == (gboolean) resets && !check_row (i, scenario, ini, values, error))
        return FALSE;
    scenario->layout = values->layout;
  }
  return TRUE;
}
