/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Run files of other programs: Megatron-LM arguments, DeepSpeed JSON, torchtitan TOML, flame TOML (its older names),
 * arguments of ms-swift and Megatron-SWIFT, LLaMA-Factory YAML, verl's overrides, and Calculon's run JSON, which is read
 * only. One becomes a scenario, and a scenario becomes one.
 *
 * A format is one file and one row (run-file.c): how its text is cut into items (items.h), how it is recognised (by its
 * keys, or the command that a shell's words run), and a
 * table of rows, each a foreign key and what it means here:
 *   mapped      a key of ours, and a map of values; the same row reads and writes
 *   not mapped  and why: it may change a cost, and a scenario has no word for it
 *   ignored     no cost depends on it
 * A key without a row is unknown, and said to be. What one row cannot say (a degree that follows from others) is in two
 * functions of the format, `resolve` for reading and `prepare` for writing.
 *
 * In between stand facts: "group.key" = value, of [layout] and [run] as a scenario has them, of [model] as our own
 * model files have them; those of "file" are a format's own (a shard degree, accumulation steps) and never leave it. A
 * value that the scenario's reader does not take yet is listed, and its key keeps its default.
 *
 * "auto", and -1 for "all the rest", are computed where the cluster and the other facts say what they are, else asked
 * for: the error names the key, what it follows from, and the option that gives it. So is what a file leaves out and a
 * scenario needs. Nothing is guessed; what the foreign program takes when a key is absent is taken here too. A word that
 * the program does not take, and a layout that no rule allows, are errors.
 *
 * An export is read back before it is given: every key whose value would not come back is lost, and listed. A lost
 * degree of parallelism is an error. Which layout is best so is models/questions/'s to find: sp_plan_export. Some facts of
 * "file" stay with the scenario, in [run-file], for the next export: a model's name on the hub, prompts and answers.
 *
 * Known lies: a framework profile is no part of a run file: an import takes the default, an export says nothing of it.
 * layout.overlap is one switch; the formats have one for each kind of communication. Selective recomputation saves what
 * seqpar's does, not what the other program's does. Precision is that of the matrices.
 *
 * Parsing is a pure function of a text, but where that names a second file. Errors are SP_INPUT_ERROR and name file, line where known, key and value.
 */

#include "models/inputs/scenario.h"

G_BEGIN_DECLS

typedef struct _SpRunFile SpRunFile;

/* NULL-terminated names of the formats that are written. */
extern const char *const sp_run_format_names[];

/* Recognised by content, read through the rows; nothing resolved. `text` need not end with a 0. */
SpRunFile *sp_run_file_parse (const char *name, const char *text, gsize length, GError **error);
/* The same of the text of a file at `path`, with a second file that it names: ms-swift's --config FILE.yaml. */
SpRunFile *sp_run_file_read (const char *path, const char *text, gsize length, GError **error);
void sp_run_file_free (SpRunFile *file);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRunFile, sp_run_file_free)

/* One of the above, or "calculon". */
const char *sp_run_file_format (const SpRunFile *file);
/* A fact, or NULL. */
const char *sp_run_file_fact (const SpRunFile *file, const char *key);
/* Of char*, in the file's order: "not mapped: ...", "unknown: ...", "note: ...", "ignored, ...". */
const GPtrArray *sp_run_file_notes (const SpRunFile *file);

/* What an import is given besides the file; all may be NULL. Paths as the user wrote them. */
typedef struct {
  const char *model, *cluster;
  const char *const *sets; /* "key=value" or "group.key=value", of [layout], [run], [cluster], [model] */
} SpRunGiven;

/* The scenario as it would stand in the file `path`, and into *ret_model, if the run file describes its model, a model
 * file; its name is sp_run_model_path (path). Both are checked by reading them. FALSE with an error that lists all that
 * must be asked for. */
gboolean sp_run_file_import (SpRunFile *file, const SpRunGiven *given, const char *path, GString *ret_scenario,
                             GString *ret_model, GError **error);
/* The same scenario, loaded; it is nowhere written, and its model's path is that of no file where the run file describes
 * the model. */
SpScenario *sp_run_file_load (SpRunFile *file, const SpRunGiven *given, GError **error);
/* Whether a text is a scenario of ours, and no run file. */
gboolean sp_run_file_is_scenario (const char *text);
/* "run-model.ini" beside "run.ini". */
char *sp_run_model_path (const char *path);

/* The scenario as a run file of that format; *ret_lost (of char*) gets what it cannot carry. */
gboolean sp_run_file_export (const SpScenario *scenario, const char *format, GString *ret_text, GPtrArray *ret_lost,
                             GError **error);

/* How much of a layout a run file brings back: not its degrees; these, in another order; all but some other key of
 * [layout], or a batch; all. */
typedef enum { SP_RUN_CARRIES_NOT, SP_RUN_CARRIES_DEGREES, SP_RUN_CARRIES_PLACES, SP_RUN_CARRIES_ALL } SpRunCarries;

/* What becomes of a scenario's layout when it is written as a run file of that format and read again. Of [run] it is what
 * the file says, or the scenario where the file says nothing; so is of [layout] what a format leaves to the program that
 * reads it. Both may be NULL, and are untouched where the degrees do not come back. Thread-safe. */
SpRunCarries sp_run_file_carries (const SpScenario *scenario, const char *format, SpLayout *ret_layout, SpRun *ret_run);

G_END_DECLS
