/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The form of an op: what, besides its sizes, decides which kernel it is. The flags that change what is computed, and
 * which of its operands there are (at a place of a chain: sim/op-place.h). Two ops of one kind and form take times that differ by size alone, so that one curve
 * holds for them; measurements and profiles name it.
 *
 *    norm-bwd/1f.3                inputs 0 to 4, outputs 0 and 1
 *    attention/causal/7.3
 */

#include "sim/op.h"

G_BEGIN_DECLS

typedef guint32 SpOpForm;

SpOpForm sp_op_form (const SpOp *op);
/* Free with g_free. */
char *sp_op_form_name (SpOpKind kind, SpOpForm form);
/* FALSE: no name of a form. */
gboolean sp_op_form_parse (const char *name, SpOpKind *ret_kind, SpOpForm *ret_form);

G_END_DECLS
