/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The form of an op: what, besides its sizes, decides which kernel it is. The flags that change what is computed, and
 * which of its operands there are (at a place of a chain: sim/op-place.h). Two ops of one kind and form take times that
 * differ by size alone, so that one curve holds for them; measurements and profiles name it.
 *
 *    norm-bwd/1f.3                inputs 0 to 4, outputs 0 and 1
 *    attention/causal/7.3
 *    attention/causal/away/7.3    of a ring's step with another place's keys, whose mask has no diagonal as a rule
 *    attention/causal/cudnn/7.3   the same by cuDNN's kernel
 *
 * Whose kernel it is, where it is not seqpar's own, is part of a measured form and of no op's.
 */

#include "sim/op.h"

G_BEGIN_DECLS

typedef guint32 SpOpForm;

/* The library of own kernels, as frameworks and messages name it. */
#define SP_OWN_LIBRARY "seqpar"

/* The bit of a form by cuDNN's kernel. */
#define SP_OP_FORM_CUDNN ((SpOpForm) 1 << 29)
/* Whose kernel it is: "cudnn" or SP_OWN_LIBRARY. */
const char *sp_op_form_library (SpOpForm form);

SpOpForm sp_op_form (const SpOp *op);
/* Free with g_free. */
char *sp_op_form_name (SpOpKind kind, SpOpForm form);
/* FALSE: no name of a form. */
gboolean sp_op_form_parse (const char *name, SpOpKind *ret_kind, SpOpForm *ret_form);

G_END_DECLS
