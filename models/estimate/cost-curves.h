/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which curves of a profile stand where the cost model's formulas were: cost.h says when. Private to cost.c. */

#include "models/estimate/cost.h"

G_BEGIN_DECLS

void sp_cost_set_profile (SpCost *cost, const SpProfile *profile);
/* For the groups of cost->paths. */
void sp_cost_set_group_curves (SpCost *cost, const SpCluster *cluster);

G_END_DECLS
