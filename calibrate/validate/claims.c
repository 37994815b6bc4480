/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a paper states in a sentence: [check.NAME].
 *
 *    kind = ratio       first side / the largest of the others (of times and bytes, / the smallest)
 *           value       of one side
 *           order       each side's figure is larger than the next one's, at every point
 *           best        the first side's figure is the largest (of times and bytes, the smallest), at every point
 *    what = longest     how much of `search` fits, or a measured column
 *    search = sequence  of longest: keys that grow together, from the scenario's own values: global-batch:micro-batch
 *    resolution = doubling|fine
 *    scenario = FILE    of sides that name none
 *    side.NAME = KEY=VALUE; ...     scenario=FILE may be among them
 *    at = KEY=VALUE; ... | ...      points: keys of all sides
 *    published = 13.7               of ratio and value
 *    tolerance = MUST / GOAL        of |ours / published - 1|; or doublings = MUST / GOAL, of |log2 (ours / published)|
 *    source, assumes                texts
 *
 * A side that does not fit (of whole steps), or is refused at a point, has a speed or length of 0 there; of two such
 * neither is larger, and no order asks it. Of ratios and values the point farthest off decides.
 */
#include <math.h>
#include <string.h>

#include "calibrate/validate/private.h"
#include "sim/words.h"

static const char *const kinds[] = { "ratio", "value", "order", "best", NULL };

static void
side_free (gpointer data)
{
  SpClaimSide *side = data;

  g_free (side->name);
  g_free (side->scenario);
  g_strfreev (side->sets);
  g_free (side);
}

static void
free_list (gpointer list)
{
  g_strfreev (list);
}

void
sp_claim_free (gpointer data)
{
  SpClaim *claim = data;

  g_free (claim->name);
  g_free (claim->source);
  g_free (claim->assumes);
  g_free (claim->detail);
  g_ptr_array_unref (claim->sides);
  g_ptr_array_unref (claim->points);
  g_free (claim);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static gboolean
read_what (SpIni *ini, const char *group, SpClaim *claim, GError **error)
{
  const char *names[SP_N_OBSERVED + 2] = { NULL };
  guint8 what = SP_OBSERVED_LONGEST;

  for (guint i = 0; i < SP_N_OBSERVED; i++)
    names[i] = sp_observed_rows[i].name;
  names[SP_OBSERVED_LONGEST] = "longest";
  if (!sp_ini_choice (ini, group, "what", SP_INI_REQUIRED, names, &what, error))
    return FALSE;
  claim->what = (SpObserved) what;
  return TRUE;
}

static gboolean
read_search (SpIni *ini, const char *group, SpClaim *claim, GError **error)
{
  static const char *const resolutions[] = { "doubling", "fine", NULL };
  g_autofree char *text = NULL;
  guint8 resolution = 0;

  claim->search = 1u << SP_SEARCH_SEQUENCE;
  if (!sp_ini_string (ini, group, "search", SP_INI_OPTIONAL, &text, error) ||
      !sp_ini_choice (ini, group, "resolution", SP_INI_OPTIONAL, resolutions, &resolution, error))
    return FALSE;
  claim->is_fine = resolution == 1;
  if (text == NULL)
    return TRUE;
  g_auto (GStrv) parts = g_strsplit (text, ":", -1);
  claim->search = 0;
  for (guint p = 0; parts[p] != NULL; p++) {
    guint i = 0;
    while (i < SP_N_SEARCH_KEYS && !g_str_equal (g_strstrip (parts[p]), sp_search_names[i]))
      i++;
    if (i == SP_N_SEARCH_KEYS)
      return sp_ini_refuse (ini, group, "search", error,
                            "expected sequence, global-batch, micro-batch, or several of "
                            "them with : between");
    claim->search |= 1u << i;
  }
  return TRUE;
}

/* A side's own scenario is taken out of its keys. */
static gboolean
read_side (SpIni *ini, const char *group, const char *key, const char *usual, const SpValidation *v, SpClaim *claim,
           GError **error)
{
  SpClaimSide *side = g_new0 (SpClaimSide, 1);
  g_autofree char *text = NULL;
  g_autoptr (GPtrArray) kept = g_ptr_array_new ();

  g_ptr_array_add (claim->sides, side);
  side->name = g_strdup (key + strlen ("side."));
  if (!sp_ini_string (ini, group, key, SP_INI_REQUIRED, &text, error))
    return FALSE;
  g_auto (GStrv) sets = sp_validation_read_sets (ini, group, key, text, error);
  if (sets == NULL)
    return FALSE;
  for (guint i = 0; sets[i] != NULL; i++) {
    const char *equals = strchr (sets[i], '=');
    if (!g_str_has_prefix (sets[i], "scenario"))
      g_ptr_array_add (kept, sets[i]);
    else
      side->scenario = sp_validation_beside (v, equals + 1 + strspn (equals + 1, " "));
  }
  g_ptr_array_add (kept, NULL);
  side->sets = g_strdupv ((char **) kept->pdata);
  if (side->scenario == NULL && usual != NULL)
    side->scenario = sp_validation_beside (v, usual);
  return side->scenario != NULL || sp_ini_refuse (ini, group, key, error,
                                                  "expected scenario=FILE in it, or scenario = "
                                                  "FILE in the group");
}

static gboolean
read_points (SpIni *ini, const char *group, SpClaim *claim, GError **error)
{
  g_autofree char *text = NULL;

  if (!sp_ini_string (ini, group, "at", SP_INI_OPTIONAL, &text, error))
    return FALSE;
  g_auto (GStrv) parts = g_strsplit (text != NULL ? text : "", "|", -1);
  for (guint i = 0; text != NULL && parts[i] != NULL; i++) {
    char **sets = sp_validation_read_sets (ini, group, "at", g_strstrip (parts[i]), error);
    if (sets == NULL)
      return FALSE;
    g_ptr_array_add (claim->points, sets);
  }
  if (text == NULL)
    g_ptr_array_add (claim->points, g_new0 (char *, 1));
  return TRUE;
}

/* Ratios and values have what was published and one kind of bound; orders have to hold. */
static gboolean
read_bound (SpIni *ini, const char *group, SpClaim *claim, GError **error)
{
  const SpScoreRow fraction = { "", FALSE, FALSE }, number = { "", FALSE, TRUE };
  SpBound tolerance, doublings;
  gboolean is_figure = claim->kind == SP_CLAIM_RATIO || claim->kind == SP_CLAIM_VALUE;
  g_autofree char *published = NULL;

  claim->published = NAN;
  claim->bound = (SpBound){ 1, 1 };
  if (!is_figure)
    return TRUE;
  if (!sp_validation_read_bound (ini, group, "tolerance", fraction, &tolerance, error) ||
      !sp_validation_read_bound (ini, group, "doublings", number, &doublings, error) ||
      !sp_ini_string (ini, group, "published", SP_INI_REQUIRED, &published, error))
    return FALSE;
  claim->published = sp_rule_number (published);
  if (!(claim->published > 0))
    return sp_ini_refuse (ini, group, "published", error, "expected a number above 0, such as 13.7, 47 %% or 512K");
  if (isnan (tolerance.must) == isnan (doublings.must))
    return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [%s]: expected either tolerance or doublings",
                          sp_ini_path (ini), group);
  claim->in_doublings = isnan (tolerance.must);
  claim->bound = claim->in_doublings ? doublings : tolerance;
  return TRUE;
}

static gboolean
read_sides (SpIni *ini, const char *group, const SpValidation *v, SpClaim *claim, GError **error)
{
  g_autofree char *usual = NULL;
  g_auto (GStrv) keys = sp_ini_keys (ini, group);
  guint least = claim->kind == SP_CLAIM_VALUE ? 1 : 2, most = claim->kind == SP_CLAIM_VALUE ? 1 : 64;

  if (!sp_ini_string (ini, group, "scenario", SP_INI_OPTIONAL, &usual, error))
    return FALSE;
  for (guint k = 0; keys[k] != NULL; k++)
    if (g_str_has_prefix (keys[k], "side.") && !read_side (ini, group, keys[k], usual, v, claim, error))
      return FALSE;
  if (claim->sides->len >= least && claim->sides->len <= most)
    return TRUE;
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [%s]: %u side%s, expected side.NAME = KEY=VALUE; ... %s",
                        sp_ini_path (ini), group, claim->sides->len, sp_plural (claim->sides->len),
                        least == 1 ? "once" : "twice or more");
}

gboolean
sp_claim_read (SpIni *ini, const char *group, SpValidation *v, GError **error)
{
  SpClaim *claim = g_new0 (SpClaim, 1);
  guint8 kind = 0;

  g_ptr_array_add (v->claims, claim);
  claim->name = g_strdup (group + strlen ("check."));
  claim->sides = g_ptr_array_new_with_free_func (side_free);
  claim->points = g_ptr_array_new_with_free_func (free_list);
  if (!sp_ini_choice (ini, group, "kind", SP_INI_REQUIRED, kinds, &kind, error))
    return FALSE;
  claim->kind = (SpClaimKind) kind;
  return read_what (ini, group, claim, error) && read_search (ini, group, claim, error) &&
         sp_ini_string (ini, group, "source", SP_INI_OPTIONAL, &claim->source, error) &&
         sp_ini_string (ini, group, "assumes", SP_INI_OPTIONAL, &claim->assumes, error) &&
         read_bound (ini, group, claim, error) && read_sides (ini, group, v, claim, error) &&
         read_points (ini, group, claim, error);
}

/* --- pricing ------------------------------------------------------------------------------------------------------ */

static gboolean
less_is_better (SpObserved what)
{
  return what != SP_OBSERVED_LONGEST && !sp_observed_rows[what].is_speed;
}

/* Of a side at a point. What does not fit, or cannot be run, has no speed and no length; a side of a ratio or value, and
 * one of which memory is asked, must be legal. */
static gboolean
price_side (const SpValidation *v, const SpClaim *claim, const SpClaimSide *side, char **point, double *ret,
            GError **error)
{
  g_autoptr (GPtrArray) sets = g_ptr_array_new ();
  g_autoptr (SpProgram) program = sp_program_new ();
  g_autoptr (GError) problem = NULL;
  SpEstimator estimator;
  SpEstimate estimate;

  for (guint i = 0; side->sets[i] != NULL; i++)
    g_ptr_array_add (sets, side->sets[i]);
  for (guint i = 0; point[i] != NULL; i++)
    g_ptr_array_add (sets, point[i]);
  g_ptr_array_add (sets, NULL);
  g_autoptr (SpScenario) s = sp_scenario_load_as_written (side->scenario, (const char *const *) sets->pdata, error);
  if (s == NULL)
    return FALSE;
  if (claim->what == SP_OBSERVED_LONGEST) {
    *ret = sp_search_value (s, claim->search) * sp_search_longest (s, claim->search, claim->is_fine);
    return TRUE;
  }
  gboolean must_run = claim->kind == SP_CLAIM_RATIO || claim->kind == SP_CLAIM_VALUE;
  *ret = 0;
  if (!sp_scenario_check_run (s, v->simulates, &problem)) {
    if (must_run)
      g_propagate_error (error, g_steal_pointer (&problem));
    return !must_run;
  }
  sp_estimator_init (&estimator, s->arch, s->cluster, s->framework, v->convention);
  if (!sp_scenario_price (s, &estimator, program, v->simulates, &estimate, error))
    return FALSE;
  /* What is less than a step is of a model that somebody runs, and the memory that of its training. */
  if (estimate.fits || s->run.scope != SP_SCOPE_STEP || sp_observed_rows[claim->what].aspect == SP_ASPECT_MEMORY ||
      must_run)
    *ret = sp_observed_value (claim->what, &estimator, s, program, &estimate);
  return TRUE;
}

/* First side over the best of the others. */
static double
ratio_of (const SpClaim *claim, const double *values)
{
  double best = values[1];

  for (guint i = 2; i < claim->sides->len; i++)
    best = less_is_better (claim->what) ? MIN (best, values[i]) : MAX (best, values[i]);
  return values[0] / best;
}

/* Pairs that the claim asks about, and how many of them are so. */
static void
count_pairs (const SpClaim *claim, const double *values, guint *asked, guint *held)
{
  gboolean is_best = claim->kind == SP_CLAIM_BEST, least_first = is_best && less_is_better (claim->what);

  for (guint i = 0; i + 1 < claim->sides->len; i++) {
    double first = values[is_best ? 0 : i], second = values[i + 1];
    if (first == 0 && second == 0)
      continue;
    (*asked)++;
    *held += least_first ? first > 0 && (first < second || second == 0) : first > second;
  }
}

static char *
detail_of (const SpClaim *claim, guint point, const double *values)
{
  GString *text = g_string_new (NULL);
  g_autofree char *where = g_strjoinv ("; ", claim->points->pdata[point]);

  for (guint i = 0; i < claim->sides->len; i++)
    g_string_append_printf (text, "%s%s %.6g", i > 0 ? ", " : "", ((SpClaimSide *) claim->sides->pdata[i])->name,
                            values[i]);
  if (*where != '\0')
    g_string_append_printf (text, " (%s)", where);
  return g_string_free (text, FALSE);
}

static double
error_of (const SpClaim *claim, double ours)
{
  return claim->in_doublings ? fabs (log2 (ours / claim->published)) : fabs (ours / claim->published - 1);
}

gboolean
sp_claim_price (const SpValidation *v, SpClaim *claim, GError **error)
{
  g_autofree double *values = g_new (double, claim->sides->len);
  gboolean is_order = claim->kind == SP_CLAIM_ORDER || claim->kind == SP_CLAIM_BEST;
  guint asked = 0, held = 0;

  claim->error = NAN;
  for (guint p = 0; p < claim->points->len; p++) {
    for (guint i = 0; i < claim->sides->len; i++)
      if (!price_side (v, claim, claim->sides->pdata[i], claim->points->pdata[p], &values[i], error)) {
        g_prefix_error (error, "%s: [check.%s] ", v->path, claim->name);
        return FALSE;
      }
    guint before = asked - held;
    double ours = is_order ? NAN : claim->kind == SP_CLAIM_VALUE ? values[0] : ratio_of (claim, values);
    if (is_order)
      count_pairs (claim, values, &asked, &held);
    /* The first point at which an order fails, or the one farthest off. */
    gboolean decides =
        claim->detail == NULL || (is_order ? before == 0 && asked > held : !(error_of (claim, ours) <= claim->error));
    if (!decides)
      continue;
    g_free (claim->detail);
    claim->detail = detail_of (claim, p, values);
    if (!is_order) {
      claim->ours = ours;
      claim->error = error_of (claim, ours);
    }
  }
  if (is_order)
    claim->ours = asked > 0 ? held / (double) asked : NAN;
  return TRUE;
}
