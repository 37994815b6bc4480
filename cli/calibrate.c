/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar calibrate import FILE... -o measured.csv, and the table of what else calibrate does; without a name of that
 * table, all of it (calibrate-all.c). */
#include "calibrate/import.h"
#include "cli/calibrate.h"
#include "models/inputs/ini.h"

/* --- import ------------------------------------------------------------------------------------------------------- */

#define NOT_GIVEN G_MININT64
#define MOST_RANKS (1 << 24)

typedef struct {
  char **rest;
  char *output, *op, *dtype, *card, *date, *published;
  gint64 ranks, nodes;
} Options;

static void
options_clear (Options *o)
{
  g_strfreev (o->rest);
  g_free (o->output);
  g_free (o->op);
  g_free (o->dtype);
  g_free (o->card);
  g_free (o->date);
  g_free (o->published);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

static SpParsed
parse (char **args, Options *o, GString *out, GError **error)
{
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &o->output, "The measured CSV to write", "CSV" },
    { "op", 0, 0, G_OPTION_ARG_STRING, &o->op, "What was timed: all-reduce, linear-attention ...", "NAME" },
    { "ranks", 0, 0, G_OPTION_ARG_INT64, &o->ranks, "How many GPUs took part", "N" },
    { "nodes", 0, 0, G_OPTION_ARG_INT64, &o->nodes, "Of how many nodes", "N" },
    { "dtype", 0, 0, G_OPTION_ARG_STRING, &o->dtype, "bf16, fp16, fp32 ..., of a CSV of timings", "NAME" },
    { "card", 0, 0, G_OPTION_ARG_STRING, &o->card, "What was measured: NVIDIA H100 80GB HBM3", "NAME" },
    { "date", 0, 0, G_OPTION_ARG_STRING, &o->date, "When, as far as it is known", "DATE" },
    { "published", 0, 0, G_OPTION_ARG_STRING, &o->published, "Where the figures stand, if others measured them",
      "SOURCE" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &o->rest, NULL, "FILE..." },
    { NULL },
  };
  return sp_cli_parse (
      args, entries,
      "FILE has the text of nccl-tests or of p2pBandwidthLatencyTest, or is a CSV of timings with\n"
      "units in the names of its columns (m,k,n,median_us); which of them is seen from its text. What\n"
      "it leaves out is asked for, and then said by an option.\n",
      out, error);
}

static gboolean
is_number (gint64 n)
{
  return n == NOT_GIVEN || (n >= 1 && n <= MOST_RANKS);
}

static gboolean
read_given (const Options *o, SpImportGiven *given, GError **error)
{
  guint op = 0;
  if (!sp_cli_choice ("--op", o->op, sp_measured_op_names + 1, &op, error))
    return FALSE;
  if (!is_number (o->ranks) || !is_number (o->nodes))
    return sp_cli_usage (error, "--ranks and --nodes take whole numbers from 1 to %d", MOST_RANKS);
  g_autofree char *word = o->dtype != NULL ? sp_measured_word (o->dtype) : NULL;
  if (word != NULL && !g_str_equal (word, o->dtype))
    return sp_cli_usage (error, "--dtype takes a word of a-z and 0-9, such as bf16");
  *given = (SpImportGiven){
    .op = o->op != NULL ? (SpMeasuredOp) (op + 1) : SP_MEASURED_NONE,
    .ranks = MAX (o->ranks, 0),
    .nodes = MAX (o->nodes, 0),
    .dtype = o->dtype,
  };
  return TRUE;
}

/* What the command line says of all files. */
static void
say_given (const Options *o, SpMeasured *measured)
{
  const struct {
    const char *key, *value;
  } said[] = { { "card", o->card }, { "date", o->date }, { "published", o->published } };

  for (guint i = 0; i < G_N_ELEMENTS (said); i++)
    if (said[i].value != NULL)
      sp_measured_say (measured, said[i].key, said[i].value);
}

static gboolean
import (char **args, GString *out, GError **error)
{
  g_auto (Options) options = { .ranks = NOT_GIVEN, .nodes = NOT_GIVEN };
  SpImportGiven given;
  SpParsed parsed = parse (args, &options, out, error);
  if (parsed != SP_PARSED)
    return parsed == SP_PARSED_HELP;
  if (options.rest == NULL)
    return sp_cli_usage (error, "FILE is missing");
  if (options.output == NULL)
    return sp_cli_usage (error, "-o CSV is missing");
  if (!read_given (&options, &given, error) || !sp_cli_check_once (options.rest, error))
    return FALSE;
  g_autoptr (SpMeasured) measured = sp_measured_new ();
  say_given (&options, measured);
  for (guint i = 0; options.rest[i] != NULL; i++) {
    gsize length;
    g_autofree char *text = sp_read_measurements (options.rest[i], &length, error);
    if (text == NULL || !sp_import_text (options.rest[i], text, length, &given, measured, error))
      return FALSE;
  }
  g_autoptr (GString) csv = g_string_new (NULL);
  sp_measured_write (measured, csv);
  return sp_cli_write_file (options.output, csv, error);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  SpCommandFunc run;
  const char *summary;
} parts[] = {
  { "check", sp_calibrate_check, "predictions against runs of seqpar-measure execute" },
  { "fit", sp_calibrate_fit, "a profile of curves with standard errors from measured CSVs" },
  { "import", import, "nccl-tests, p2pBandwidthLatencyTest or a CSV of timings as one measured CSV" },
  { "steps", sp_calibrate_steps, "a framework's timed steps against predictions, and the fit of its numbers" },
};

static gboolean
help (GString *out)
{
  g_string_append (out, "usage: seqpar calibrate SCENARIO|CLUSTER ...   measure, fit, execute and check on this machine's GPUs\n"
                        "       seqpar calibrate PART ...               one of these alone\n\n");
  g_autoptr (SpTable) table = sp_table_new ("ll");
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++) {
    sp_table_cell (table, parts[i].name);
    sp_table_cell (table, parts[i].summary);
  }
  sp_table_print (table, 2, out);
  g_string_append (out, "\nseqpar calibrate PART --help, seqpar calibrate CLUSTER --help: its options.\n");
  return TRUE;
}

gboolean
sp_command_calibrate (char **args, GString *out, GError **error)
{
  const char *names[G_N_ELEMENTS (parts) + 1] = { NULL };
  guint part = 0;
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    names[i] = parts[i].name;
  if (args[1] == NULL) {
    g_autofree char *list = g_strjoinv (", ", (char **) names);
    return sp_cli_usage (error, "expected a scenario or a cluster, or one of %s", list);
  }
  if (g_str_equal (args[1], "--help") || g_str_equal (args[1], "-h"))
    return help (out);
  if (!g_strv_contains (names, args[1]) && (*args[1] == '-' || sp_is_calibrated (args[1])))
    return sp_calibrate_all (args, out, error);
  if (!g_strv_contains (names, args[1]) && sp_nearest (args[1], names) == NULL) {
    g_autoptr (GError) cause = NULL;
    g_autofree char *cluster = sp_find_cluster (args[1], &cause), *list = g_strjoinv (", ", (char **) names);
    return sp_cli_usage (error, "%s: neither a part (%s) nor a scenario or a cluster: %s", args[1], list,
                         cause != NULL ? cause->message : cluster);
  }
  if (!sp_cli_choice ("SCENARIO, CLUSTER or PART", args[1], names, &part, error))
    return FALSE;
  g_autofree char *program = g_strdup_printf ("seqpar calibrate %s", parts[part].name);
  g_set_prgname (program);
  return parts[part].run (args + 1, out, error);
}
