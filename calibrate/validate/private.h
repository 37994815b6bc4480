/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of this folder share. */

#include "calibrate/validate/validation.h"

G_BEGIN_DECLS

/* --- rules.c ------------------------------------------------------------------------------------------------------ */

/* 0.5, "50 %", "4K", "16.5": a number, with percent or a power of 1024 behind it; NAN: none. */
double sp_rule_number (const char *text);

typedef struct _SpConditions SpConditions;
/* NULL with *ret_problem ("expected ...", free with g_free). */
SpConditions *sp_conditions_parse (const char *text, char **ret_problem);
void sp_conditions_free (SpConditions *conditions);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpConditions, sp_conditions_free)
/* A column that the data have not, or NULL. */
const char *sp_conditions_unknown (const SpConditions *conditions, const SpCsv *data);
gboolean sp_conditions_hold (const SpConditions *conditions, const SpCsv *data, guint row);

/* "[ASPECT] where CONDITIONS: TEXT" of key `key`: applies it to the runs of `group`. */
gboolean sp_rule_aside (SpIni *ini, const char *group_name, const char *key, SpValidation *v, guint group,
                        GError **error);
gboolean sp_rule_why (SpIni *ini, const char *group_name, const char *key, SpValidation *v, guint group,
                      GError **error);
/* Says which runs of the group are fitted; `text` stands in [group_name] split. */
gboolean sp_rule_split (SpIni *ini, const char *group_name, const char *text, SpValidation *v, guint group,
                        GError **error);

/* --- data.c ------------------------------------------------------------------------------------------------------- */

/* Reads the group's data and adds its runs. `cells`, `choices`: columns that make a cell and a choice, or NULL. */
gboolean sp_validation_read_data (SpValidation *v, guint group, char **cells, char **choices, GError **error);
/* The key of `column` as --set takes it, or NULL: it is none. */
const char *sp_validation_key (const char *column);

/* --- set.c -------------------------------------------------------------------------------------------------------- */

/* A file beside the set's own. Free with g_free. */
char *sp_validation_beside (const SpValidation *v, const char *file);
/* "A=1; B=2" as a list. NULL with an error. */
char **sp_validation_read_sets (SpIni *ini, const char *group, const char *key, const char *text, GError **error);
/* "MUST / GOAL", or MUST alone, of a statistic such as `of` (its name is not asked). Refused are a goal that is looser, and
 * what no statistic of the kind can be: below 0, above 100 % where more is better, 8 where 8 % was meant. */
gboolean sp_validation_read_bound (SpIni *ini, const char *group, const char *key, SpScoreRow of, SpBound *ret,
                                   GError **error);

/* --- constants.c -------------------------------------------------------------------------------------------------- */

/* A key of [fit], added to the set's. */
gboolean sp_constant_read (SpIni *ini, const char *key, SpValidation *v, GError **error);
void sp_constant_clear (gpointer constant);
/* Whether it is of a profile that the scenario has. */
gboolean sp_constant_is_of (const SpConstant *constant, const SpScenario *s);
/* With runs and constants read: each constant is of a profile that a fitted run has, and no two are the same number. */
gboolean sp_constants_check (SpIni *ini, const SpValidation *v, GError **error);

/* --- price.c ------------------------------------------------------------------------------------------------------ */

/* What of an estimate, by that estimator of that program, stands in a column; but SP_OBSERVED_LONGEST. */
double sp_observed_value (SpObserved observed, SpEstimator *estimator, const SpScenario *s, const SpProgram *program,
                          const SpEstimate *e);

typedef enum { SP_SEARCH_SEQUENCE, SP_SEARCH_GLOBAL_BATCH, SP_SEARCH_MICRO_BATCH, SP_N_SEARCH_KEYS } SpSearchKey;
extern const char *const sp_search_names[SP_N_SEARCH_KEYS + 1]; /* NULL-terminated */

/* How many times the scenario's own values of the keys fit, at most: doublings and halvings, and between them 1/32 if
 * fine. 0: none that is legal does. The scenario is left as it was. */
double sp_search_longest (SpScenario *s, guint keys, gboolean fine);
/* A run's key, of a scenario; of several the first. */
double sp_search_value (const SpScenario *s, guint keys);

/* A run's scenario. NULL with a refusal, of a layout that is not legal; or with an error that names the data's file and
 * row, of what cannot be read. */
SpScenario *sp_run_load (const SpValidation *v, const SpMeasuredRun *run, GError **ret_refusal, GError **error);

/* --- claims.c ----------------------------------------------------------------------------------------------------- */

gboolean sp_claim_read (SpIni *ini, const char *group, SpValidation *v, GError **error);
gboolean sp_claim_price (const SpValidation *v, SpClaim *claim, GError **error);
void sp_claim_free (gpointer claim);

G_END_DECLS
