/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

/* Questions of seqpar plan, and which options go with them. */

typedef struct {
  const char *option;
  gsize offset;     /* in SpPlanOptions */
  gboolean is_text; /* of a char *, else a gboolean */
  gboolean finds_sequence, finds_gpus, lists, takes_target;
  SpPlanAskFunc ask;
} Ask;

#define OPTION(name) G_STRUCT_OFFSET (SpPlanOptions, name)
/* --target-tokens-per-s last: it is a question where there is no other. */
static const Ask asks[] = {
  { "--max-sequence", OPTION (max_sequence), FALSE, TRUE, FALSE, TRUE, TRUE, sp_plan_ask_sequence },
  { "--min-gpus", OPTION (min_gpus), FALSE, FALSE, TRUE, TRUE, TRUE, sp_plan_ask_gpus },
  { "--budget", OPTION (budget), TRUE, FALSE, FALSE, TRUE, FALSE, sp_plan_ask_budget },
  { "--pareto", OPTION (pareto), FALSE, FALSE, FALSE, FALSE, FALSE, sp_plan_ask_pareto },
  { "--sensitivity", OPTION (sensitivity), FALSE, FALSE, FALSE, FALSE, FALSE, sp_plan_ask_sensitivity },
  { "--target-tokens-per-s", OPTION (target), TRUE, FALSE, FALSE, TRUE, TRUE, sp_plan_ask_gpus },
};
#undef OPTION

static gboolean
is_asked (const Ask *ask, const SpPlanOptions *o)
{
  return ask->is_text ? G_STRUCT_MEMBER (char *, o, ask->offset) != NULL : G_STRUCT_MEMBER (gboolean, o, ask->offset);
}

static const Ask *
find_ask (const SpPlanOptions *o)
{
  for (guint i = 0; i < G_N_ELEMENTS (asks); i++)
    if (is_asked (&asks[i], o))
      return &asks[i];
  return NULL;
}

SpPlanAskFunc
sp_plan_ask_find (const SpPlanOptions *o)
{
  const Ask *ask = find_ask (o);
  return ask != NULL ? ask->ask : NULL;
}

/* Options that a question finds itself, or has no use for. */
static gboolean
check_useless (const Ask *ask, const SpPlanOptions *o, GError **error)
{
  const struct {
    const char *option, *value;
    gboolean useless;
    const char *why;
  } options[] = {
    { "--sequence", o->sequence, ask->finds_sequence, "that is what it finds" },
    { "--gpus", o->gpus, ask->finds_gpus, "that is what it finds" },
    { "--top", o->top, !ask->lists, "it lists no layouts" },
    { "--export", o->export, TRUE, "ask it of the plan itself" },
    { "--simulate", o->simulate, TRUE, "it compares estimates" },
    { "--slices", o->slices, TRUE, "give it one number of them, with --set slices=N" },
    { "--target-tokens-per-s", o->target, !ask->takes_target, "ask one question at a time" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (options); i++)
    if (options[i].value != NULL && options[i].useless)
      return sp_cli_usage (error, "%s does not go with %s: %s", options[i].option, ask->option, options[i].why);
  return TRUE;
}

gboolean
sp_plan_ask_is (const SpPlanOptions *o)
{
  return find_ask (o) != NULL;
}

gboolean
sp_plan_ask_check (const SpPlanOptions *o, GError **error)
{
  const Ask *ask = find_ask (o);
  for (guint i = 0; ask != NULL && i < G_N_ELEMENTS (asks); i++)
    if (&asks[i] != ask && is_asked (&asks[i], o) && asks[i].offset != G_STRUCT_OFFSET (SpPlanOptions, target))
      return sp_cli_usage (error, "%s does not go with %s: ask one question at a time", asks[i].option, ask->option);
  if (o->tokens != NULL && o->budget == NULL)
    return sp_cli_usage (error, "--tokens goes with --budget, which is missing");
  if (o->budget != NULL && o->tokens == NULL)
    return sp_cli_usage (error, "--budget: --tokens is missing, how many it should train, such as 300B");
  if (o->csv != NULL && !o->pareto)
    return sp_cli_usage (error, "--csv goes with --pareto, which is missing");
  return ask == NULL || check_useless (ask, o, error);
}

JsonBuilder *
sp_plan_ask_json (const char *question)
{
  JsonBuilder *builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_string (builder, "question", question);
  return builder;
}
