/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Strict reading of INI files over GKeyFile: units, ranges, duplicates, unknown keys. One function per type of value;
 * each reports file, group, key, value and what was expected.
 *
 * Units. Sizes: B KiB MiB GiB TiB kB MB GB TB. Rates: the same with /s, or b Kb Mb Gb Tb with /s (bits). Times: ns us
 * ms s. Token counts: a plain integer, or with K M G (powers of 1024). FLOP rates: GFLOP/s TFLOP/s PFLOP/s. Fractions:
 * 0.5 or 50%. A bare number where a unit is needed is an error (but 0 is not).
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_INPUT_ERROR (sp_input_error_quark ())
GQuark sp_input_error_quark (void);
typedef enum { SP_INPUT_ERROR_FILE, SP_INPUT_ERROR_SYNTAX, SP_INPUT_ERROR_KEY, SP_INPUT_ERROR_VALUE } SpInputError;

typedef struct _SpIni SpIni;

#define SP_KIND_SCENARIO "a scenario"
#define SP_KIND_MODEL "a model"
#define SP_KIND_CLUSTER "a cluster"
#define SP_KIND_DEVICE "a device"
#define SP_KIND_FRAMEWORK "a framework"
#define SP_KIND_PROFILE "a profile of curves"
#define SP_KIND_RUN_FILE "a run file of another program"

/* After an error of reading a file as one of these (file-kind.c): where it is seen to be another, that in its place. */
void sp_input_say_kind (const char *path, const char *expected, GError **error);

/* Loads and checks syntax: a regular file, at most 1 MiB, UTF-8, no group or key twice. */
SpIni *sp_ini_load (const char *path, GError **error);
/* The same of a text, with a 0 after its `length` bytes; `path` is for messages. */
SpIni *sp_ini_parse (const char *path, const char *text, gsize length, GError **error);
void sp_ini_free (SpIni *ini);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpIni, sp_ini_free)

const char *sp_ini_path (const SpIni *ini);
void sp_ini_set (SpIni *ini, const char *group, const char *key, const char *value);
/* Whether the value is of sp_ini_set. */
gboolean sp_ini_is_set (const SpIni *ini, const char *group, const char *key);
gboolean sp_ini_has (const SpIni *ini, const char *group, const char *key);
/* Names of the groups in the file's order, for one whose groups are not known before. Free with g_strfreev. */
char **sp_ini_groups (const SpIni *ini);
/* The same of a group's keys, for one whose keys are not known before. */
char **sp_ini_keys (const SpIni *ini, const char *group);
/* What was given by sp_ini_set counts from now on as the file's own. */
void sp_ini_own (SpIni *ini);

/* The readers: TRUE and *ret set; or, when the key is absent, *ret left as it is and TRUE unless `required`. Every key
 * asked for is remembered; sp_ini_finish refuses what was never asked for and names the nearest known key. */
typedef enum { SP_INI_OPTIONAL, SP_INI_REQUIRED } SpIniNeed;

typedef enum {
  SP_UNIT_BYTES,
  SP_UNIT_BYTES_PER_S,
  SP_UNIT_SECONDS,
  SP_UNIT_TOKENS,
  SP_UNIT_FLOPS_PER_S,
  SP_UNIT_FRACTION,
  SP_UNIT_COUNT,
  SP_UNIT_NUMBER,
  SP_UNIT_GPU_HOURS,
  SP_UNIT_WATTS,
  SP_UNIT_JOULES,
  SP_UNIT_TRAINED_TOKENS /* of a whole training, in powers of 1,000 */
} SpUnit;

gboolean sp_ini_quantity (SpIni *ini, const char *group, const char *key, SpIniNeed need, SpUnit unit, double min,
                          double max, double *ret, GError **error);
gboolean sp_ini_int (SpIni *ini, const char *group, const char *key, SpIniNeed need, gint64 min, gint64 max,
                     gint32 *ret, GError **error);
gboolean sp_ini_tokens (SpIni *ini, const char *group, const char *key, SpIniNeed need, gint64 min, gint64 max,
                        gint64 *ret, GError **error);
gboolean sp_ini_bool (SpIni *ini, const char *group, const char *key, SpIniNeed need, gboolean *ret, GError **error);
/* `names` NULL-terminated; *ret its index. */
gboolean sp_ini_choice (SpIni *ini, const char *group, const char *key, SpIniNeed need, const char *const *names,
                        guint8 *ret, GError **error);
gboolean sp_ini_string (SpIni *ini, const char *group, const char *key, SpIniNeed need, char **ret, GError **error);
gboolean sp_ini_finish (SpIni *ini, GError **error);
/* Says of an unknown key what other file has it, as "; it is ...", or NULL. */
void sp_ini_set_elsewhere (SpIni *ini, char *(*elsewhere) (const char *key));

/* The error of a value that a caller reads by itself: "file: [group] key = "value": " and what `format` says was
 * expected. Returns FALSE. */
gboolean sp_ini_refuse (const SpIni *ini, const char *group, const char *key, GError **error, const char *format, ...)
    G_GNUC_PRINTF (5, 6);

/* Sets the error and returns FALSE. */
gboolean sp_input_fail (GError **error, SpInputError code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* The whole of an input file, with the checks of sp_ini_load. */
char *sp_read_input (const char *path, gsize *ret_length, GError **error);
/* The same of what programs write and not people: up to 256 MiB. */
char *sp_read_measurements (const char *path, gsize *ret_length, GError **error);
/* As the first, without a look at what is in it: any bytes, or none. */
char *sp_read_input_bytes (const char *path, gsize *ret_length, GError **error);
/* Whether `path` is a file that this process has read by one of them, under whatever name: links are seen through. */
gboolean sp_was_read (const char *path);
/* A checksum of what is in all files that this process has read by them, in the order of the first reads. Free with
 * g_free. */
char *sp_inputs_digest (void);
/* These checks alone, of a text. */
gboolean sp_check_input (const char *path, const char *text, gsize length, GError **error);
/* A value as messages show it: at most 60 characters, no control characters, valid UTF-8. */
char *sp_shown (const char *value);

/* The nearest of `names` to `word` by edit distance, or NULL if none is near. */
const char *sp_nearest (const char *word, const char *const *names);

/* "; did you mean X?", or "" if none is near. Of names that begin with `word` all, up to six: "X, Y or Z". */
char *sp_did_you_mean (const char *word, const char *const *names);

/* Parses one value with a unit, as above: for command lines. */
gboolean sp_parse_quantity (const char *text, SpUnit unit, double *ret, GError **error);
/* The same within [min, max]: NULL and *ret set, or "expected ..." for a message of the caller's. */
char *sp_quantity_problem (const char *text, SpUnit unit, double min, double max, double *ret);
/* In the largest unit that shows it with at most three decimals; a token count comes back exactly. */
char *sp_format_quantity (double value, SpUnit unit);

G_END_DECLS
