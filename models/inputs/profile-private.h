/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What profile.c, which has the kinds of curves and writes them, shares with profile-read.c. */

#include "models/inputs/ini.h"
#include "models/inputs/profile.h"

G_BEGIN_DECLS

typedef struct {
  const char *key;
  SpUnit unit;
  double min, max;
} SpCurveSlot;

/* Of a transfer the same for each piece. */
const SpCurveSlot *sp_curve_slot (SpCurveKind kind, guint slot);
/* Of `from` and `to`. */
SpUnit sp_curve_range_unit (SpCurveKind kind);

G_END_DECLS
