/* SPDX-License-Identifier: Apache-2.0 */
/* A set's file. */
#include <math.h>
#include <string.h>

#include "calibrate/validate/private.h"

const SpScoreRow sp_score_rows[SP_N_SCORES] = {
  { "time-mean", FALSE, FALSE },        { "time-median", FALSE, FALSE },      { "time-p90", FALSE, FALSE },
  { "time-worst", FALSE, FALSE },       { "throughput-mean", FALSE, FALSE },  { "throughput-median", FALSE, FALSE },
  { "throughput-p90", FALSE, FALSE },   { "throughput-worst", FALSE, FALSE }, { "memory-mean", FALSE, FALSE },
  { "memory-median", FALSE, FALSE },    { "memory-p90", FALSE, FALSE },       { "memory-worst", FALSE, FALSE },
  { "balanced-accuracy", TRUE, FALSE }, { "false-fit-rate", FALSE, FALSE },   { "kendall", TRUE, TRUE },
  { "regret-median", FALSE, FALSE },    { "regret-worst", FALSE, FALSE },     { "best", TRUE, FALSE },
  { "longest-doublings", FALSE, TRUE }, { "longest-median", FALSE, FALSE },
};

const char *const sp_verdict_names[] = { "", "not measured", "missed", "must", "goal" };

SpVerdict
sp_bound_judge (const SpBound *bound, double value, gboolean more_is_better)
{
  double sign = more_is_better ? -1 : 1;

  if (isnan (bound->must))
    return SP_VERDICT_NONE;
  if (isnan (value))
    return SP_VERDICT_UNMEASURED;
  if (!isnan (bound->goal) && sign * value <= sign * bound->goal + 1e-12)
    return SP_VERDICT_GOAL;
  return sign * value <= sign * bound->must + 1e-12 ? SP_VERDICT_MUST : SP_VERDICT_MISSED;
}

/* --- parts of values ---------------------------------------------------------------------------------------------- */

char *
sp_validation_beside (const SpValidation *v, const char *file)
{
  char *folder = g_path_get_dirname (v->path);

  /* "validation/../papers" is "papers" in messages. */
  while (g_str_has_prefix (file, "../")) {
    g_autofree char *name = g_path_get_basename (folder), *inner = folder;
    if (g_str_equal (name, ".") || g_str_equal (name, "..")) {
      g_steal_pointer (&inner);
      break;
    }
    folder = g_path_get_dirname (inner);
    file += strlen ("../");
  }
  g_autofree char *owned = folder;
  return g_path_is_absolute (file) ? g_strdup (file) : g_build_filename (folder, file, NULL);
}

/* Parts of a list, stripped. */
static char **
split_list (const char *text, const char *separator)
{
  char **parts = g_strsplit (text, separator, -1);

  for (guint i = 0; parts[i] != NULL; i++)
    g_strstrip (parts[i]);
  return parts;
}

char **
sp_validation_read_sets (SpIni *ini, const char *group, const char *key, const char *text, GError **error)
{
  g_auto (GStrv) parts = split_list (text, ";");

  for (guint i = 0; parts[i] != NULL; i++) {
    g_autofree char *name = g_strstrip (g_strndup (parts[i], strcspn (parts[i], "=")));
    if (strchr (parts[i], '=') == NULL || (sp_validation_key (name) == NULL && !g_str_equal (name, "scenario"))) {
      g_autofree char *shown = sp_shown (parts[i]);
      sp_ini_refuse (ini, group, key, error, "\"%s\": expected KEY=VALUE of a scenario's keys, separated by ;", shown);
      return NULL;
    }
  }
  return g_steal_pointer (&parts);
}

/* NULL, or what is wrong with a bound as it stands. Free with g_free. */
static char *
bound_problem (const SpBound *bound, const char *text, SpScoreRow of)
{
  gboolean is_fraction = !of.is_number, is_percent = strchr (text, '%') != NULL;
  double least = of.more_is_better && of.is_number ? -1 : 0, most = of.more_is_better ? 1 : INFINITY;

  for (guint i = 0; i < 2; i++) {
    double value = i == 0 ? bound->must : bound->goal;
    if (value < least || value > most)
      return g_strdup_printf ("expected %s",
                              of.more_is_better ? (is_fraction ? "0 % to 100 %" : "-1 to 1") : "nothing below 0");
    if (is_fraction && value > 1 && !is_percent)
      return g_strdup_printf ("expected percent (%g %%), or a fraction up to 1", value);
  }
  if (of.more_is_better ? bound->goal < bound->must : bound->goal > bound->must)
    return g_strdup ("the goal is looser than what must be: expected MUST / GOAL");
  return NULL;
}

gboolean
sp_validation_read_bound (SpIni *ini, const char *group, const char *key, SpScoreRow of, SpBound *ret, GError **error)
{
  g_autofree char *text = NULL;

  *ret = (SpBound){ NAN, NAN };
  if (!sp_ini_string (ini, group, key, SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_auto (GStrv) parts = split_list (text, "/");
  guint n = g_strv_length (parts);
  ret->must = sp_rule_number (parts[0]);
  ret->goal = n == 2 ? sp_rule_number (parts[1]) : NAN;
  if (n > 2 || isnan (ret->must) || (n == 2 && isnan (ret->goal)))
    return sp_ini_refuse (ini, group, key, error, "expected MUST / GOAL, or MUST alone, such as 8 %% / 4 %%");
  g_autofree char *problem = bound_problem (ret, text, of);
  return problem == NULL || sp_ini_refuse (ini, group, key, error, "%s", problem);
}

/* --- [set] -------------------------------------------------------------------------------------------------------- */

static gboolean
read_scored (SpIni *ini, SpValidation *v, GError **error)
{
  g_autofree char *text = NULL;
  const char *names[SP_N_OBSERVED + 1] = { NULL };

  for (guint i = 0; i < SP_N_OBSERVED; i++) {
    names[i] = sp_observed_rows[i].name;
    v->scored[i] = TRUE;
  }
  if (!sp_ini_string (ini, "set", "score", SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  memset (v->scored, 0, sizeof v->scored);
  g_auto (GStrv) parts = split_list (text, ",");
  for (guint p = 0; parts[p] != NULL; p++) {
    guint i = 0;
    while (i < SP_N_OBSERVED && !g_str_equal (parts[p], names[i]))
      i++;
    if (i == SP_N_OBSERVED) {
      g_autofree char *all = g_strjoinv (", ", (char **) names);
      g_autofree char *near = sp_did_you_mean (parts[p], names);
      return sp_ini_refuse (ini, "set", "score", error, "expected some of %s%s", all, near);
    }
    v->scored[i] = TRUE;
  }
  return TRUE;
}

static gboolean
read_set (SpIni *ini, SpValidation *v, char **ret_split, GError **error)
{
  static const char *const engines[] = { "estimate", "simulate", NULL };
  guint8 engine = 0, convention = SP_MFU_SEQPAR;

  if (!sp_ini_string (ini, "set", "title", SP_INI_REQUIRED, &v->title, error) ||
      !sp_ini_string (ini, "set", "source", SP_INI_REQUIRED, &v->source, error) ||
      !sp_ini_string (ini, "set", "notes", SP_INI_OPTIONAL, &v->notes, error) ||
      !sp_ini_choice (ini, "set", "engine", SP_INI_OPTIONAL, engines, &engine, error) ||
      !sp_ini_choice (ini, "set", "mfu-convention", SP_INI_OPTIONAL, sp_mfu_names, &convention, error) ||
      !sp_ini_string (ini, "set", "split", SP_INI_OPTIONAL, ret_split, error) || !read_scored (ini, v, error))
    return FALSE;
  v->simulates = engine == 1;
  v->convention = convention;
  for (guint i = 0; i < SP_N_SCORES; i++)
    if (!sp_validation_read_bound (ini, "bounds", sp_score_rows[i].name, sp_score_rows[i], &v->bounds[i], error))
      return FALSE;
  return TRUE;
}

/* "time-mean 8.4 %" */
static gboolean
read_others (SpIni *ini, SpValidation *v, GError **error)
{
  g_auto (GStrv) keys = sp_ini_keys (ini, "others");

  for (guint k = 0; keys[k] != NULL; k++) {
    SpOthers others = { .score = SP_N_SCORES };
    g_autofree char *text = NULL;
    if (!sp_ini_string (ini, "others", keys[k], SP_INI_REQUIRED, &text, error))
      return FALSE;
    gsize n = strcspn (text, " ");
    for (guint i = 0; i < SP_N_SCORES; i++)
      if (strlen (sp_score_rows[i].name) == n && g_str_has_prefix (text, sp_score_rows[i].name))
        others.score = (SpScore) i;
    others.value = sp_rule_number (text + n);
    if (others.score == SP_N_SCORES || isnan (others.value) || others.value < 0)
      return sp_ini_refuse (ini, "others", keys[k], error,
                            "expected a statistic and its value, such as time-mean 8 %%");
    others.who = g_strdup (keys[k]);
    g_array_append_val (v->others, others);
  }
  return TRUE;
}

/* --- [rows.NAME] -------------------------------------------------------------------------------------------------- */

/* Keys of the group that begin with `prefix`, in the file's order. */
static gboolean
apply_rules (SpIni *ini, const char *name, const char *prefix, SpValidation *v, guint group, GError **error)
{
  g_auto (GStrv) keys = sp_ini_keys (ini, name);

  for (guint k = 0; keys[k] != NULL; k++) {
    if (!g_str_has_prefix (keys[k], prefix))
      continue;
    gboolean aside = g_str_equal (prefix, "aside.");
    if (!(aside ? sp_rule_aside : sp_rule_why) (ini, name, keys[k], v, group, error))
      return FALSE;
  }
  return TRUE;
}

static void
group_free (gpointer data)
{
  SpRunGroup *group = data;

  g_free (group->name);
  g_free (group->data_path);
  g_free (group->scenario);
  g_strfreev (group->sets);
  g_clear_pointer (&group->data, sp_csv_free);
  g_free (group);
}

/* The data's own name with another suffix. */
static char *
usual_scenario (const char *data_path)
{
  g_autofree char *stem =
      g_str_has_suffix (data_path, ".csv") ? g_strndup (data_path, strlen (data_path) - 4) : g_strdup (data_path);

  return g_strconcat (stem, ".ini", NULL);
}

static gboolean
read_group (SpIni *ini, const char *name, const char *set_split, SpValidation *v, GError **error)
{
  static const char *const refused[] = { "error", "aside", NULL }, *const longest[] = { "doubling", "fine", NULL };
  SpRunGroup *group = g_new0 (SpRunGroup, 1);
  g_autofree char *data = NULL, *scenario = NULL, *sets = NULL, *split = NULL, *cell = NULL, *choice = NULL;
  guint8 takes_refused = 0, is_fine = 0;
  guint index = v->groups->len;

  g_ptr_array_add (v->groups, group);
  group->name = g_strdup (name + strlen ("rows."));
  if (!sp_ini_string (ini, name, "data", SP_INI_REQUIRED, &data, error) ||
      !sp_ini_string (ini, name, "scenario", SP_INI_OPTIONAL, &scenario, error) ||
      !sp_ini_string (ini, name, "set", SP_INI_OPTIONAL, &sets, error) ||
      !sp_ini_string (ini, name, "split", SP_INI_OPTIONAL, &split, error) ||
      !sp_ini_string (ini, name, "cell", SP_INI_OPTIONAL, &cell, error) ||
      !sp_ini_string (ini, name, "choice", SP_INI_OPTIONAL, &choice, error) ||
      !sp_ini_choice (ini, name, "refused", SP_INI_OPTIONAL, refused, &takes_refused, error) ||
      !sp_ini_choice (ini, name, "longest", SP_INI_OPTIONAL, longest, &is_fine, error))
    return FALSE;
  group->takes_refused = takes_refused == 1;
  group->is_fine = is_fine == 1;
  group->data_path = sp_validation_beside (v, data);
  group->scenario = scenario != NULL ? sp_validation_beside (v, scenario) : usual_scenario (group->data_path);
  if (sets != NULL && (group->sets = sp_validation_read_sets (ini, name, "set", sets, error)) == NULL)
    return FALSE;
  g_auto (GStrv) cells = cell != NULL ? split_list (cell, ",") : NULL;
  g_auto (GStrv) choices = choice != NULL ? split_list (choice, ",") : NULL;
  const char *rule = split != NULL ? split : set_split;
  return sp_validation_read_data (v, index, cells, choices, error) &&
         apply_rules (ini, name, "aside.", v, index, error) && apply_rules (ini, name, "why.", v, index, error) &&
         (rule == NULL || sp_rule_split (ini, split != NULL ? name : "set", rule, v, index, error));
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void
run_free (gpointer data)
{
  SpMeasuredRun *run = data;

  g_free (run->scenario);
  g_strfreev (run->sets);
  g_free (run->cell);
  g_free (run->choice);
  for (guint a = 0; a < SP_N_ASPECTS; a++) {
    g_free (run->aside[a]);
    g_free (run->why[a]);
  }
  g_free (run->refused);
  g_free (run);
}

static void
clear_others (gpointer data)
{
  g_free (((SpOthers *) data)->who);
}

static SpValidation *
validation_new (const char *path)
{
  SpValidation *v = g_new0 (SpValidation, 1);

  v->path = g_strdup (path);
  v->name = g_path_get_basename (path);
  if (g_str_has_suffix (v->name, ".ini"))
    v->name[strlen (v->name) - strlen (".ini")] = '\0';
  v->others = g_array_new (FALSE, TRUE, sizeof (SpOthers));
  g_array_set_clear_func (v->others, clear_others);
  v->constants = g_array_new (FALSE, TRUE, sizeof (SpConstant));
  g_array_set_clear_func (v->constants, sp_constant_clear);
  v->groups = g_ptr_array_new_with_free_func (group_free);
  v->runs = g_ptr_array_new_with_free_func (run_free);
  v->claims = g_ptr_array_new_with_free_func (sp_claim_free);
  return v;
}

void
sp_validation_free (SpValidation *v)
{
  if (v == NULL)
    return;
  g_free (v->name);
  g_free (v->path);
  g_free (v->title);
  g_free (v->source);
  g_free (v->notes);
  g_array_unref (v->others);
  g_array_unref (v->constants);
  g_ptr_array_unref (v->groups);
  g_ptr_array_unref (v->runs);
  g_ptr_array_unref (v->claims);
  g_free (v);
}

SpValidation *
sp_validation_load (const char *path, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_load (path, error);
  if (ini == NULL)
    return NULL;
  g_autoptr (SpValidation) v = validation_new (path);
  g_autofree char *split = NULL;
  g_auto (GStrv) groups = sp_ini_groups (ini), constants = sp_ini_keys (ini, "fit");

  if (!read_set (ini, v, &split, error) || !read_others (ini, v, error))
    return NULL;
  for (guint i = 0; groups[i] != NULL; i++) {
    gboolean rows = g_str_has_prefix (groups[i], "rows."), check = g_str_has_prefix (groups[i], "check.");
    if ((rows && !read_group (ini, groups[i], split, v, error)) || (check && !sp_claim_read (ini, groups[i], v, error)))
      return NULL;
  }
  for (guint i = 0; constants[i] != NULL; i++)
    if (!sp_constant_read (ini, constants[i], v, error))
      return NULL;
  if (!sp_ini_finish (ini, error))
    return NULL;
  if (v->groups->len == 0 && v->claims->len == 0) {
    sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: no [rows.NAME] and no [check.NAME]: expected one of them", path);
    return NULL;
  }
  return sp_constants_check (ini, v, error) ? g_steal_pointer (&v) : NULL;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

gboolean
sp_run_is_aside (const SpMeasuredRun *run)
{
  for (guint a = 0; a < SP_N_ASPECTS; a++)
    if (run->aside[a] == NULL)
      return FALSE;
  return TRUE;
}

SpObserved
sp_run_time_column (const SpValidation *v, const SpMeasuredRun *run)
{
  for (guint i = 0; i < SP_N_OBSERVED; i++)
    if (sp_observed_rows[i].aspect == SP_ASPECT_TIME && v->scored[i] && !isnan (run->measured[i]))
      return (SpObserved) i;
  return SP_N_OBSERVED;
}

gboolean
sp_run_counts (const SpValidation *v, const SpMeasuredRun *run, SpObserved observed)
{
  SpAspect aspect = sp_observed_rows[observed].aspect;

  if (!v->scored[observed] || run->aside[aspect] != NULL || isnan (run->measured[observed]) ||
      isnan (run->predicted[observed]))
    return FALSE;
  return aspect != SP_ASPECT_TIME || sp_run_time_column (v, run) == observed;
}

double
sp_run_error (const SpMeasuredRun *run, SpObserved observed)
{
  double ratio = run->predicted[observed] / run->measured[observed];

  return fabs ((sp_observed_rows[observed].is_speed ? 1 / ratio : ratio) - 1);
}

gboolean
sp_run_is_beyond (const SpValidation *v, const SpMeasuredRun *run, SpObserved observed)
{
  static const SpScore scores[SP_N_ASPECTS][4] = {
    [SP_ASPECT_TIME] = { SP_SCORE_TIME_MEDIAN, SP_SCORE_TIME_MEAN, SP_SCORE_SPEED_MEDIAN, SP_SCORE_SPEED_MEAN },
    [SP_ASPECT_MEMORY] = { SP_SCORE_MEMORY_MEDIAN, SP_SCORE_MEMORY_MEAN, SP_N_SCORES },
    [SP_ASPECT_OUTCOME] = { SP_N_SCORES },
    [SP_ASPECT_LONGEST] = { SP_SCORE_LONGEST_MEDIAN, SP_N_SCORES },
  };
  const SpScore *of = scores[sp_observed_rows[observed].aspect];

  for (guint i = 0; i < G_N_ELEMENTS (scores[0]) && of[i] != SP_N_SCORES && sp_run_counts (v, run, observed); i++)
    if (!isnan (v->bounds[of[i]].must))
      return sp_run_error (run, observed) > 2 * v->bounds[of[i]].must;
  return FALSE;
}
