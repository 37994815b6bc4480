/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is said of a best layout that becomes a run file (export.c): of `plan --export` and `explain --export`. */

#include "cli/cli.h"
#include "models/questions/questions.h"

G_BEGIN_DECLS

/* On stderr: what the file cannot carry, what that costs against `best_s`, the step of the best layout of all (0: none
 * fits), and how it is beside the user's own (NULL: none). */
void sp_cli_note_export (const SpPlanExport *exported, double best_s, const SpEstimate *own);

G_END_DECLS
