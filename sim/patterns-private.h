/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rows of the table in patterns.c: one file under patterns/ each. */

#include "sim/patterns.h"

G_BEGIN_DECLS

extern const SpPatternKind sp_pattern_binomial_broadcast;
extern const SpPatternKind sp_pattern_dissemination;
extern const SpPatternKind sp_pattern_pairwise_all_to_all;
extern const SpPatternKind sp_pattern_recursive_doubling;
extern const SpPatternKind sp_pattern_ring;
extern const SpPatternKind sp_pattern_ring_all_reduce;

G_END_DECLS
