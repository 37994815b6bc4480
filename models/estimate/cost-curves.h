/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which curves of a profile stand where the cost model's formulas were: cost.h says when. Private to cost.c, which prices
 * by them, and cost-setup.c, which puts them in. */

#include "models/estimate/cost.h"

G_BEGIN_DECLS

void sp_cost_set_profile (SpCost *cost, const SpProfile *profile, const char *library);
/* For the groups of cost->paths, if a profile was set. */
void sp_cost_set_group_curves (SpCost *cost, const SpCluster *cluster);

/* Seconds by the curve of the op's form, else of the nearest form of its kind; cost->kernels of it is not NULL. Of
 * softmax attention by that of cost->attention_library, else of the library that is quickest at its size. Known lie:
 * where cuDNN has no kernel for what no op says (documents, masks that are no rectangle), its curve may count. */
double sp_cost_kernel_by_curve (const SpCost *cost, const SpOp *op);

/* As curves know a kernel. */
SpKernelSizes sp_cost_kernel_sizes (const SpCost *cost, const SpOp *op);

G_END_DECLS
