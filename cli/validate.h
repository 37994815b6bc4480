/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `seqpar validate`: sets of runs, priced and scored, as text, JSON, CSV and Markdown.
 */

#include "calibrate/validate/validation.h"
#include "cli/cli.h"

G_BEGIN_DECLS

typedef struct {
  SpValidation *set;
  SpScores held_out, fitted;
} SpScoredSet;

/* Reads, prices and scores sets, by name or file; none: all that are shipped. NULL-terminated `names`, or NULL. Free with
 * g_ptr_array_unref. */
GPtrArray *sp_validate_sets (char **names, gboolean prices, GError **error);
/* The same as the CSV of their rows, for figures. */
GString *sp_validate_rows (char **names, GError **error);

/* --- validate-text.c ---------------------------------------------------------------------------------------------- */

void sp_validate_text (const GPtrArray *sets, GString *out);
/* The table of the README. */
void sp_validate_markdown (const GPtrArray *sets, GString *out);
SpVerdict sp_claim_judge (const SpClaim *claim);
/* How many bounds are missed, and of how many nothing was measured. */
void sp_validate_count (const GPtrArray *sets, guint *ret_missed, guint *ret_unmeasured);

/* --- validate-json.c ---------------------------------------------------------------------------------------------- */

gboolean sp_validate_json (const GPtrArray *sets, GString *out, GError **error);
/* A row for each measured figure of each run. */
void sp_validate_csv (const GPtrArray *sets, GString *out);

/* --- validate-fit.c ----------------------------------------------------------------------------------------------- */

/* Fits what the sets say to their fitted runs, and prints it as a profile has it. */
gboolean sp_validate_fit (const GPtrArray *sets, GString *out, GError **error);

G_END_DECLS
