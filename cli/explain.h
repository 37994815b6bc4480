/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `seqpar explain`: what explain.c has worked out, as text and as JSON (explain-text.c). */

#include "cli/cli.h"
#include "models/explain.h"

G_BEGIN_DECLS

/* One side: a scenario and what it costs. */
typedef struct {
  SpScenario scenario; /* borrows */
  SpEstimate estimate;
} SpExplainSide;

typedef struct {
  SpMfuConvention convention;
  SpExplainSide mine, other;
  gboolean has_other;     /* FALSE: no layout of the search fits */
  const char *other_name; /* "best", "other" */
  SpExplained explained;  /* if has_other */
  GPtrArray *changes;     /* SpChange that make mine fit; NULL: it fits */
} SpExplanation;

void sp_explanation_text (const SpExplanation *e, GString *out);
gboolean sp_explanation_json (const SpExplanation *e, GString *out, GError **error);

G_END_DECLS
