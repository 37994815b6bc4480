/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar report SCENARIO: one page, with its figures in it, that needs nothing else. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/plan.h"
#include "cli/plot.h"
#include "models/estimate/interval.h"
#include "models/inputs/ini.h"
#include "models/writer.h"

typedef struct {
  char **rest, **sets;
  char *output, *layouts;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_strfreev (o->sets);
  g_free (o->output);
  g_free (o->layouts);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

typedef struct {
  SpPlotQuestion question; /* for its figures */
  SpScenario *scenario;
  SpProgram *program;
  SpEstimator estimator;
  SpPlanEntry entry; /* the scenario's own layout */
  guint n_figures;
} Report;

static void
report_clear (Report *report)
{
  g_clear_pointer (&report->scenario, sp_scenario_free);
  g_clear_pointer (&report->program, sp_program_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Report, report_clear)

/* --- HTML --------------------------------------------------------------------------------------------------------- */

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>\n"
    "body { font: 15px/1.5 'DejaVu Sans', Helvetica, Arial, sans-serif; color: #222; max-width: 960px; margin: 2em "
    "auto; "
    "padding: 0 1em }\n"
    "h1 { font-size: 1.5em; margin-bottom: 0.2em } h2 { font-size: 1.15em; margin: 2em 0 0.4em }\n"
    "table { border-collapse: collapse; font-size: 0.93em } td, th { padding: 0.15em 0.8em 0.15em 0; text-align: left; "
    "vertical-align: top; font-weight: normal } td.n, th.n { text-align: right; white-space: nowrap }\n"
    "th { color: #666 } div.wide th { border-bottom: 1px solid #ccc } tr.own td { font-weight: bold }\n"
    "div.wide td:last-child { min-width: 22em }\n"
    "p.verdict { font-size: 1.15em; border-left: 5px solid #009e73; padding-left: 0.7em } p.out { border-color: "
    "#d55e00 }\n"
    "div.wide, figure { overflow-x: auto } svg { max-width: 100%; min-width: 640px; height: auto } pre { font-size: "
    "0.75em; overflow-x: auto }\n"
    "footer, .small { color: #666; font-size: 0.85em }\n"
    "@media print { body { margin: 0; font-size: 11px } figure, tr, h2 { break-inside: avoid } h2 { break-after: avoid "
    "} "
    "pre { white-space: pre-wrap } div.wide, figure { overflow: visible } svg { min-width: 0 } }\n"
    "figure { margin: 0.6em 0 }\n"
    "</style>\n";

/* Every argument is text of its own: what is markup in it is escaped. */
static void add (GString *page, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void
add (GString *page, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_autofree char *text = g_markup_vprintf_escaped (format, arguments);
  va_end (arguments);
  g_autofree char *valid = g_utf8_make_valid (text, -1);
  g_string_append (page, valid);
}

static void
add_fact (GString *page, const char *name, const char *value)
{
  add (page, "<tr><th>%s</th><td>%s</td></tr>\n", name, value);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Names within a figure are its own: several stand in one page. */
static char *
inline_svg (const char *svg, guint number)
{
  static const char *const patterns[] = { "\\bid=(['\"])", "xlink:href=(['\"])#", "url\\((['\"]?)#" };
  static const char *const formats[] = { "id=\\1f%u-", "xlink:href=\\1#f%u-", "url(\\1#f%u-" };
  const char *begin = strstr (svg, "<svg");
  char *text = g_strdup (begin != NULL ? begin : svg);

  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++) {
    g_autoptr (GRegex) regex = g_regex_new (patterns[i], G_REGEX_OPTIMIZE, 0, NULL);
    g_autofree char *with = g_strdup_printf (formats[i], number);
    g_autofree char *before = text;
    text = g_regex_replace (regex, before, -1, 0, with, 0, NULL);
  }
  return text;
}

/* One that has nothing to show says so. */
static gboolean
add_figure (Report *report, const char *kind, const char *caption, GString *page, GError **error)
{
  g_autoptr (GString) svg = g_string_new (NULL);
  g_autoptr (GError) cause = NULL;

  if (!sp_plot_svg (kind, &report->question, svg, &cause)) {
    if (!g_error_matches (cause, SP_FIGURE_ERROR, SP_FIGURE_ERROR_DATA)) {
      g_propagate_error (error, g_steal_pointer (&cause));
      return FALSE;
    }
    const char *reason = strstr (cause->message, ": ");
    add (page, "<p class=\"small\">No figure: %s.</p>\n", reason != NULL ? reason + 2 : cause->message);
    return TRUE;
  }
  g_autofree char *text = inline_svg (svg->str, ++report->n_figures);
  g_string_append_printf (page, "<figure>\n%s", text);
  add (page, "<figcaption class=\"small\">%s</figcaption>\n</figure>\n", caption);
  return TRUE;
}

/* --- the question and the answer ---------------------------------------------------------------------------------- */

static void
add_question (const Report *report, GString *page)
{
  const SpScenario *s = report->scenario;
  g_autofree char *parameters = sp_text_count ((double) sp_architecture_parameters (s->arch));
  g_autofree char *tokens = sp_text_count ((double) s->run.sequence);
  g_autofree char *trained = sp_result_trained (&s->run, s->arch);
  g_autofree char *layout = sp_plan_layout_text (&s->layout, s->arch);
  g_autofree char *model = g_strdup_printf ("%s, %s parameters", s->arch->name, parameters);
  g_autofree char *run = g_strdup_printf ("sequence %s tokens, global batch %d, micro-batch %d", tokens,
                                          s->run.global_batch, s->run.micro_batch);

  add (page, "<title>%s on %d x %s</title>\n</head>\n<body>\n", s->arch->name, sp_cli_gpus (s->cluster),
       s->cluster->device->name);
  add (page, "<h1>%s on %d x %s</h1>\n<table>\n", s->arch->name, sp_cli_gpus (s->cluster), s->cluster->device->name);
  add_fact (page, "model", model);
  if (trained != NULL)
    add_fact (page, "trained", trained);
  add_fact (page, "cluster", s->cluster->name);
  add_fact (page, "framework", s->framework->name);
  add_fact (page, "run", run);
  add_fact (page, "layout", layout);
  g_string_append (page, "</table>\n");
}

static void
add_answer (const Report *report, GString *page)
{
  const SpEstimate *e = &report->entry.estimate;
  g_autofree char *used = sp_text_bytes (e->memory.total_bytes), *has = sp_text_bytes (e->capacity_bytes);
  g_autofree char *step = sp_text_seconds (e->step_time_s), *tokens = sp_text_count (e->tokens_per_s);
  g_autofree char *low = sp_text_seconds (e->low_s), *high = sp_text_seconds (e->high_s);
  g_autofree char *mfu = sp_text_percent (e->mfu_causal), *all = sp_text_percent (e->mfu);
  g_autofree char *bound = sp_plan_bound (&report->entry);

  add (page, "<p class=\"verdict%s\">%s: %s of %s on the fullest GPU. A step takes %s, %s tokens/s, MFU %s.</p>\n",
       e->fits ? "" : " out", e->fits ? "It fits" : "It does not fit", used, has, step, tokens, mfu);
  add (page, "<p>The layout is %s.</p>\n", bound);
  add (
      page,
      "<p class=\"small\">MFU counts the causal half of attention (%s over all pairs of tokens). The step lies between "
      "%s, which no schedule can beat, and %s, with nothing overlapped and every slowdown.",
      all, low, high);
  if (e->interval_s[1] > 0) {
    g_autofree char *from = sp_text_seconds (e->interval_s[0]), *to = sp_text_seconds (e->interval_s[1]);
    add (page, " Of the profile alone, its curves and its cards, an interval of 95 %% is %s to %s.", from, to);
  }
  add (page, " The figures rest on values that are at worst <b>%s</b>.</p>\n", sp_provenance_name (e->provenance));
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

static void
show_progress (gint64 done, gint64 all, gpointer data)
{
  gint64 now = g_get_monotonic_time (), *last = data;

  if (now < *last + G_USEC_PER_SEC / 5)
    return;
  *last = now;
  fprintf (stderr, "\rsearching: %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " layouts\033[K", done, all);
}

static void
add_layout (const SpArchitecture *arch, const char *rank, const SpPlanEntry *entry, gboolean own, GString *page)
{
  const SpEstimate *e = &entry->estimate;
  g_autofree char *step = sp_text_seconds (e->step_time_s), *tokens = sp_text_count (e->tokens_per_s);
  g_autofree char *mfu = sp_text_percent (e->mfu_causal), *memory = sp_text_gib (e->memory.total_bytes);
  g_autofree char *layout = sp_plan_layout_text (&entry->layout, arch);

  add (page,
       "<tr%s><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>"
       "<td class=\"n\">%s%s</td><td class=\"n\">%d</td><td>%s</td></tr>\n",
       own ? " class=own" : "", rank, step, tokens, mfu, memory, e->fits ? "" : " (out of memory)",
       entry->run.micro_batch, layout);
}

static gboolean
add_layouts (Report *report, guint top, GString *page, GError **error)
{
  const SpScenario *s = report->scenario;
  SpPlanQuestion question = sp_plan_question_of (s, top);
  gboolean terminal = isatty (STDERR_FILENO);
  gint64 last = 0;

  if (top == 0 || s->run.scope != SP_SCOPE_STEP)
    return TRUE;
  if (terminal) {
    question.progress = show_progress;
    question.progress_data = &last;
  }
  g_autoptr (SpPlan) plan = sp_plan (&report->estimator, &question, error);
  if (terminal)
    fputs ("\r\033[K", stderr);
  if (plan == NULL)
    return FALSE;
  g_autofree char *looked = sp_text_count ((double) plan->candidates), *fit = sp_text_count ((double) plan->fitting);
  add (page,
       "<h2>Layouts</h2>\n<p>The best of %s layouts for this model, cluster, sequence and batch, of which %s fit; "
       "and the scenario's own.</p>\n",
       looked, fit);
  g_string_append (page, "<div class=\"wide\"><table>\n<tr><th class=\"n\"></th><th class=\"n\">step</th>"
                         "<th class=\"n\">tokens/s</th><th class=\"n\">MFU causal</th><th class=\"n\">memory GiB</th>"
                         "<th class=\"n\">micro-batch</th><th>layout</th></tr>\n");
  for (guint i = 0; i < plan->entries->len; i++) {
    g_autofree char *rank = g_strdup_printf ("%u", i + 1);
    add_layout (s->arch, rank, &g_array_index (plan->entries, SpPlanEntry, i), FALSE, page);
  }
  add_layout (s->arch, "own", &report->entry, TRUE, page);
  g_string_append (page, "</table></div>\n");
  return TRUE;
}

/* --- assumptions -------------------------------------------------------------------------------------------------- */

/* What `run --why` says of device, cluster and framework, and the notes. */
static void
add_assumptions (Report *report, GString *page)
{
  g_autoptr (GString) why = g_string_new (NULL);
  g_autoptr (GPtrArray) notes =
      sp_estimate_notes (&report->estimator, &report->scenario->layout, &report->scenario->run);

  sp_estimate_why (&report->estimator, report->program, &report->scenario->run, why);
  const char *blocks = strstr (why->str, "\nBlock ");
  if (blocks != NULL)
    g_string_truncate (why, (gsize) (blocks - why->str));
  add (page, "<h2>What it rests on</h2>\n<pre>%s</pre>\n", why->str);
  for (guint i = 0; i < report->scenario->notes->len; i++)
    g_ptr_array_add (notes, g_strdup (report->scenario->notes->pdata[i]));
  if (notes->len > 0)
    g_string_append (page, "<h2>Notes</h2>\n<ul>\n");
  for (guint i = 0; i < notes->len; i++)
    add (page, "<li>%s</li>\n", (const char *) notes->pdata[i]);
  g_string_append (page, notes->len > 0 ? "</ul>\n" : "");
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

static gboolean
load (Report *report, GError **error)
{
  SpInterval interval;
  report->scenario = sp_cli_load_scenario (report->question.input, report->question.sets, error);
  SpScenario *s = report->scenario;

  if (s == NULL || !sp_scenario_check_run (s, TRUE, error))
    return FALSE;
  report->program = sp_program_new ();
  report->entry = (SpPlanEntry){ .layout = s->layout, .run = s->run };
  sp_estimator_init (&report->estimator, s->arch, s->cluster, s->framework, SP_MFU_SEQPAR);
  if (!sp_scenario_price (s, &report->estimator, report->program, FALSE, &report->entry.estimate, error))
    return FALSE;
  if (sp_estimate_interval (&report->estimator, report->program, &s->run, &interval))
    sp_interval_apply (&interval, &report->entry.estimate);
  return TRUE;
}

static gboolean
add_figures (Report *report, GString *page, GError **error)
{
  static const struct {
    const char *title, *kind, *caption;
  } figures[] = {
    { "Time", "breakdown", "Where a step's time goes, for each way to cut the sequence. By the estimate." },
    { NULL, "timeline", "What streams of some ranks do over a simulated step." },
    { "Memory", "memory", "By class, over the sequence's length. By the estimate." },
    { NULL, "memory-time", "Of the fullest GPU over a simulated step, each list of operations at its fullest moment." },
    { "Communication", "volume",
      "What a GPU hands over and puts on links, and the busiest link of each kind, in a simulated step." },
    { "Other lengths", "scaling", "Each way to cut the sequence, over its length. By the estimate." },
  };

  for (guint i = 0; i < G_N_ELEMENTS (figures); i++) {
    if (figures[i].title != NULL)
      add (page, "<h2>%s</h2>\n", figures[i].title);
    if (!add_figure (report, figures[i].kind, figures[i].caption, page, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
run (const Options *o, guint top, GError **error)
{
  g_auto (Report) report = { .question = { .input = o->rest[0], .sets = o->sets } };
  g_autoptr (GString) page = g_string_new (head);

  if (!load (&report, error) || !sp_cli_check_output (o->output, error))
    return FALSE;
  add_question (&report, page);
  add_answer (&report, page);
  if (!add_layouts (&report, top, page, error) || !add_figures (&report, page, error))
    return FALSE;
  add_assumptions (&report, page);
  add (page, "<footer>Scenario %s, by seqpar report. `seqpar run --why` has every term with its formula.</footer>\n",
       o->rest[0]);
  g_string_append (page, "</body>\n</html>\n");
  return sp_cli_write_file (o->output, page, error);
}

gboolean
sp_command_report (char **args, GString *out, GError **error)
{
  static const char *const positional[] = { "SCENARIO", NULL };
  g_auto (Options) o = { NULL };
  double top = 5;
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o.output, "The page to write", "FILE.html" },
    { "set", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o.sets, "Over the file; as often as wanted", "KEY=VALUE" },
    { "layouts", 0, 0, G_OPTION_ARG_STRING, &o.layouts, "How many of the best are listed; 0 searches none (default: 5)",
      "K" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o.rest, NULL, "SCENARIO" },
    { NULL },
  };
  SpParsed parsed =
      sp_cli_parse (args, entries,
                    "One page of HTML with its figures in it, which loads nothing: the question, whether\n"
                    "it fits and what bounds it, the best layouts, time, memory and communication, and\n"
                    "what all that rests on. On thousands of GPUs the search takes minutes: --layouts 0.\n",
                    out, error);

  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (!sp_cli_positional (o.rest, positional, error))
    return FALSE;
  if (o.output == NULL)
    return sp_cli_usage (error, "-o is missing");
  g_autofree char *problem = o.layouts != NULL ? sp_quantity_problem (o.layouts, SP_UNIT_COUNT, 0, 100, &top) : NULL;
  g_autofree char *shown = o.layouts != NULL ? sp_shown (o.layouts) : NULL;
  if (problem != NULL)
    return sp_cli_usage (error, "--layouts \"%s\": %s", shown, problem);
  return run (&o, (guint) top, error);
}
