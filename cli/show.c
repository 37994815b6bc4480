/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show WHAT [FILE]: inputs as they are understood. */
#include "cli/cli.h"
#include "models/inputs/ini.h"
#include "models/strategies/strategies.h"

static gboolean show_scenario (const SpShow *show, GString *out, GError **error);
static gboolean show_strategies (const SpShow *show, GString *out, GError **error);

static const struct {
  const char *name;
  gboolean file, sets; /* what it takes */
  const char *folder;  /* of what is listed without a file; NULL: nothing */
  gboolean (*show) (const SpShow *show, GString *out, GError **error);
} kinds[] = {
  { "model", TRUE, FALSE, "models", sp_show_model },
  { "cluster", TRUE, FALSE, "clusters", sp_show_cluster },
  { "device", TRUE, FALSE, "devices", sp_show_device },
  { "framework", TRUE, FALSE, "frameworks", sp_show_framework },
  { "profile", TRUE, FALSE, "profiles", sp_show_profile },
  { "scenario", TRUE, TRUE, "", show_scenario },
  { "layout", TRUE, TRUE, NULL, sp_show_layout },
  { "strategies", FALSE, FALSE, NULL, show_strategies },
};

/* --- scenario ----------------------------------------------------------------------------------------------------- */

static gboolean
show_scenario (const SpShow *show, GString *out, GError **error)
{
  static const char *const groups[] = { "model", "cluster", "layout", "run" };
  g_autoptr (SpScenario) s = sp_cli_load_scenario (show->file, show->sets, error);
  if (s == NULL)
    return FALSE;
  if (!show->json) {
    sp_scenario_write (s, out);
    return TRUE;
  }
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++) {
    sp_json_object (builder, groups[i]);
    sp_result_group_json (builder, s, groups[i]);
    json_builder_end_object (builder);
  }
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

/* --- strategies --------------------------------------------------------------------------------------------------- */

static GPtrArray *
rule_names (const SpStrategy *strategy)
{
  GPtrArray *names = g_ptr_array_new ();
  for (guint i = 0; i < strategy->n_rules; i++)
    g_ptr_array_add (names, (gpointer) strategy->rules[i].name);
  return names;
}

static gboolean
show_strategies (const SpShow *show, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  g_autoptr (SpTable) table = sp_table_new ("lll");
  static const char *const head[] = { "strategy", "what", "rules" };
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  json_builder_begin_object (builder);
  json_builder_set_member_name (builder, "strategies");
  json_builder_begin_array (builder);
  for (guint i = 0; i < sp_strategy_count (); i++) {
    const SpStrategy *strategy = sp_strategy_get (i);
    g_autoptr (GPtrArray) rules = rule_names (strategy);
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", strategy->name);
    sp_json_string (builder, "summary", strategy->summary);
    sp_json_strings (builder, "rules", rules);
    json_builder_end_object (builder);
    g_ptr_array_add (rules, NULL);
    sp_table_cell (table, strategy->name);
    sp_table_cell (table, strategy->summary);
    sp_table_take (table, g_strjoinv (", ", (char **) rules->pdata));
  }
  json_builder_end_array (builder);
  json_builder_end_object (builder);
  if (show->json)
    return sp_json_finish (builder, out, error);
  sp_table_print (table, 0, out);
  return TRUE;
}

/* --- command ------------------------------------------------------------------------------------------------------ */

typedef struct {
  char **rest, **sets;
  gboolean json;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->sets, "Over a scenario's file; as often as wanted", "KEY=VALUE" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &o->json, "JSON instead of text", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "WHAT [FILE]" },
    { NULL },
  };
  return sp_cli_parse (args, entries,
                       "WHAT is one of\n"
                       "  model [FILE]     its shape and parameters\n"
                       "  cluster, device, framework [FILE]\n"
                       "                   every value with its unit, provenance and source\n"
                       "  profile [FILE]   the fitted curves and how well they are known\n"
                       "  scenario [FILE]  every key, defaults too\n"
                       "  layout SCENARIO  whether the layout is legal, and which degrees would be\n"
                       "  strategies       what there is, and its rules\n"
                       "FILE may be the name of a shipped file; without it those of the kind are listed.\n",
                       out, error);
}

gboolean
sp_command_show (char **args, GString *out, GError **error)
{
  g_auto (Options) options = { NULL };
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;

  const char *names[G_N_ELEMENTS (kinds) + 1] = { NULL };
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    names[i] = kinds[i].name;
  guint kind = G_N_ELEMENTS (kinds);
  const char *what = options.rest != NULL ? options.rest[0] : NULL;
  if (what == NULL)
    return sp_cli_usage (error, "WHAT is missing");
  if (!sp_cli_choice ("WHAT", what, names, &kind, error))
    return FALSE;
  if (options.rest[1] == NULL && kinds[kind].folder != NULL && options.sets == NULL)
    return sp_show_list (kinds[kind].folder, options.json, out, error);
  const char *const positional[] = { "WHAT", kinds[kind].file ? "FILE" : NULL, NULL };
  if (!sp_cli_positional (options.rest, positional, error))
    return FALSE;
  if (options.sets != NULL && !kinds[kind].sets)
    return sp_cli_usage (error, "--set goes with scenario and layout, not with %s", what);
  const SpShow show = { .file = options.rest[1], .sets = options.sets, .json = options.json };
  return kinds[kind].show (&show, out, error);
}
