/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the subcommands share: options, text, JSON, and how one estimate is shown. No formulas here.
 *
 * A command appends its result to `out`, and main.c writes that to stdout once, when all has gone well: a command that
 * fails leaves nothing there. Whatever else is said goes to stderr. The exit status follows from the error:
 *   0   no error; also for a layout that does not fit
 *   1   any other domain than the next two lines: input that is wrong or impossible, a file that cannot be written
 *   2   SP_CLI_ERROR_USAGE, G_OPTION_ERROR
 *   3   SP_CLI_ERROR_BEYOND: a check that found more than was tolerated; its result stands on stdout
 *   70  SP_CLI_ERROR_INTERNAL
 *
 * The locale is never set, so printf's numbers are the same everywhere. JSON numbers are finite.
 */

#include <json-glib/json-glib.h>

#include "models/estimate/estimate.h"
#include "models/inputs/scenario.h"
#include "models/inputs/topology-dump.h"
#include "models/simulate/simulate.h"
#include "sim/words.h"

G_BEGIN_DECLS

#define SP_CLI_ERROR (sp_cli_error_quark ())
GQuark sp_cli_error_quark (void);
typedef enum { SP_CLI_ERROR_USAGE, SP_CLI_ERROR_INPUT, SP_CLI_ERROR_BEYOND, SP_CLI_ERROR_INTERNAL } SpCliError;

/* `args` begins with the name of the command. */
typedef gboolean (*SpCommandFunc) (char **args, GString *out, GError **error);

gboolean sp_command_run (char **args, GString *out, GError **error);
gboolean sp_command_calibrate (char **args, GString *out, GError **error);
gboolean sp_command_explain (char **args, GString *out, GError **error);
gboolean sp_command_export (char **args, GString *out, GError **error);
gboolean sp_command_import (char **args, GString *out, GError **error);
gboolean sp_command_plan (char **args, GString *out, GError **error);
gboolean sp_command_plot (char **args, GString *out, GError **error);
gboolean sp_command_report (char **args, GString *out, GError **error);
gboolean sp_command_show (char **args, GString *out, GError **error);
gboolean sp_command_sweep (char **args, GString *out, GError **error);
gboolean sp_command_validate (char **args, GString *out, GError **error);

/* --- options.c ---------------------------------------------------------------------------------------------------- */

typedef enum { SP_PARSED_ERROR, SP_PARSED_HELP, SP_PARSED } SpParsed;

/* Parses `args` by `entries` (NULL-terminated); --help puts the help in `out`. `text` says what the command does. */
SpParsed sp_cli_parse (char **args, const GOptionEntry *entries, const char *text, GString *out, GError **error);

/* All return FALSE with an error of the code. */
gboolean sp_cli_usage (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3);
gboolean sp_cli_fail (GError **error, SpCliError code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* Index of `value` in `names`; a usage error of `option` otherwise. NULL leaves *ret as it is. */
gboolean sp_cli_choice (const char *option, const char *value, const char *const *names, guint *ret, GError **error);

/* `names` of the positional arguments, NULL-terminated, all required. */
gboolean sp_cli_positional (char **given, const char *const *names, GError **error);

/* A path, or the bare name of a shipped scenario. Free with g_free. */
char *sp_cli_find_scenario (const char *name, GError **error);
SpScenario *sp_cli_load_scenario (const char *name, char **sets, GError **error);
/* Is the layout legal, and for as many GPUs as the cluster has? */
gboolean sp_cli_check_layout (const SpScenario *scenario, GError **error);
gint32 sp_cli_gpus (const SpCluster *cluster);

/* Refuses to write over a file that was read, over a link that leads nowhere, and "-", which is never a file's name. A
 * NULL path is none. Before the work, for a command that writes more than one file. */
gboolean sp_cli_check_output (const char *path, GError **error);
/* The same, and whether a file can be written there at all: for what is written after work, or after another file. */
gboolean sp_cli_check_writable (const char *path, GError **error);
/* sp_cli_check_output of two, either of which may be none, and that they are not one file. */
gboolean sp_cli_check_outputs (const char *first, const char *second, GError **error);
/* A usage error where a file or name of the NULL-terminated `files` (NULL: none) is given twice: it would count double. */
gboolean sp_cli_check_once (char **files, GError **error);
/* Of a command that writes its one result to stdout where it is given no path: NULL or "-". */
gboolean sp_cli_is_stdout (const char *path);
/* Checks the first, writes under a temporary name and renames; refuses what is there and no regular file. */
gboolean sp_cli_write_file (const char *path, const GString *text, GError **error);

/* --- calibrate-all.c, calibrate-check.c, calibrate-fit.c ------------------------------------------------------------ */

gboolean sp_calibrate_all (char **args, GString *out, GError **error);
gboolean sp_calibrate_check (char **args, GString *out, GError **error);
/* "5%", which NULL stands for too, as 0.05. */
gboolean sp_calibrate_tolerance (const char *text, double *ret, GError **error);
gboolean sp_calibrate_fit (char **args, GString *out, GError **error);
gboolean sp_calibrate_steps (char **args, GString *out, GError **error); /* calibrate-steps.c */
/* The shipped device that a card's name says: "NVIDIA A100-SXM4-80GB" is a100-80, "NVIDIA H200" h200; NULL: none. Free
 * with g_free. */
char *sp_find_device (const char *card);

/* --- export.c ----------------------------------------------------------------------------------------------------- */

/* A line on stderr each. */
void sp_cli_notes (const GPtrArray *notes);
/* A usage error of `option`, unless `name` is a format that is written. */
gboolean sp_cli_export_format (const char *option, const char *name, GError **error);

/* --- output.c ----------------------------------------------------------------------------------------------------- */

/* Text for people, to be freed with g_free: four significant digits and a unit. */
char *sp_text_bytes (double bytes);     /* 12.34 GiB */
char *sp_text_seconds (double seconds); /* 1.234 s, 56.78 ms */
char *sp_text_count (double count);     /* 8,030,261,248 */
char *sp_text_percent (double fraction);
char *sp_text_gib (double bytes); /* without a unit */
/* What is trained, and how much of all; NULL where all is. */
char *sp_result_trained (const SpRun *run, const SpArchitecture *arch);

/* A table: cells are given row by row. `columns` has 'l' or 'r' for each, of the same length as there are columns. */
typedef struct _SpTable SpTable;
SpTable *sp_table_new (const char *columns);
void sp_table_cell (SpTable *table, const char *text);
void sp_table_take (SpTable *table, char *text); /* frees it */
void sp_table_print (const SpTable *table, guint indent, GString *out);
void sp_table_free (SpTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpTable, sp_table_free)

void sp_json_string (JsonBuilder *builder, const char *name, const char *value); /* NULL gives null */
void sp_json_number (JsonBuilder *builder, const char *name, double value);
void sp_json_whole (JsonBuilder *builder, const char *name, double value); /* rounded: bytes, counts */
void sp_json_bool (JsonBuilder *builder, const char *name, gboolean value);
void sp_json_strings (JsonBuilder *builder, const char *name, const GPtrArray *values);
void sp_json_object (JsonBuilder *builder, const char *name);
/* Appends what was built and a newline. A number that is not finite is an internal failure. */
gboolean sp_json_finish (JsonBuilder *builder, GString *out, GError **error);

/* --- result.c ----------------------------------------------------------------------------------------------------- */

void sp_result_notes_text (const GPtrArray *notes, GString *out);

/* The fields of `run --json` into the open object. */
void sp_result_json (JsonBuilder *builder, const SpEstimate *estimate, const GPtrArray *notes);
void sp_result_text (const SpEstimate *estimate, SpMfuConvention convention, GString *out);

/* The keys of [layout] (and more groups, for `show scenario`) as the scenario's writer has them, into the open object.
 * The paths of `scenario` must be set. */
void sp_result_group_json (JsonBuilder *builder, const SpScenario *scenario, const char *group);
void sp_result_layout_json (JsonBuilder *builder, const SpLayout *layout, const SpRun *run);

/* --- plan-report.c ------------------------------------------------------------------------------------------------ */

/* A layout in a line, with the order of its axes where that is not the usual one. Free with g_free. */
char *sp_plan_layout_text (const SpLayout *layout, const SpArchitecture *arch);

/* --- rehearse.c --------------------------------------------------------------------------------------------------- */

/* The layout's program on real numbers against the one-rank program of the same model. */
gboolean sp_run_rehearsal (const SpScenario *scenario, SpProgram *program, const SpEstimate *estimate, gboolean json,
                           GString *out, GError **error);

/* --- simulate.c --------------------------------------------------------------------------------------------------- */

/* What a simulation says besides its SpEstimate: roles, memory over time, samples. */
void sp_simulated_text (const SpSimulated *simulated, const SpProgram *program, GString *out);
void sp_simulated_json (JsonBuilder *builder, const SpSimulated *simulated, const SpProgram *program);

/* --- show-*.c ----------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *file; /* NULL if it takes none */
  char **sets;
  gboolean json;
} SpShow;

gboolean sp_show_device (const SpShow *show, GString *out, GError **error);
gboolean sp_show_cluster (const SpShow *show, GString *out, GError **error);
/* The shipped files of a folder of sp_data_dir(), "": scenarios. */
gboolean sp_show_list (const char *folder, gboolean json, GString *out, GError **error);
/* Of a cluster: kinds, how many links, and the names of one node's. */
gboolean sp_show_network_text (const SpCluster *cluster, GString *out, GError **error);
gboolean sp_show_network_json (JsonBuilder *builder, const SpCluster *cluster, GError **error);
/* Of a machine's dump, in a cluster's place. */
gboolean sp_show_dump (const SpTopologyDump *dump, gboolean json, GString *out, GError **error);
gboolean sp_show_framework (const SpShow *show, GString *out, GError **error);
gboolean sp_show_profile (const SpShow *show, GString *out, GError **error);
/* Curves and their parameters; `sources`: where each is from, else what was not fitted and why. */
void sp_show_curves (const SpProfile *profile, gboolean sources, GString *out);
char *sp_text_error (double fraction); /* "3.2 %", "14 %" */
gboolean sp_show_layout (const SpShow *show, GString *out, GError **error);
gboolean sp_show_model (const SpShow *show, GString *out, GError **error);

G_END_DECLS
