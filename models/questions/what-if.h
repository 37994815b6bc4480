/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A machine like another one, of which something is changed: device, cluster, framework and profile are copies, words
 * in them the original's, which must outlive it. What is changed counts after sp_what_if_changed(). Bytes, seconds.
 */

#include "models/estimate/estimate.h"
#include "models/inputs/profile.h"

G_BEGIN_DECLS

typedef struct {
  SpDevice device;
  SpCluster cluster; /* of `device`, with a memo of its own where the original has one */
  SpFramework framework;
  SpProfile profile; /* where the original has one: cluster.profile */
  SpCurve *curves;   /* its */
  SpEstimator estimator;
} SpWhatIf;

void sp_what_if_init (SpWhatIf *machine, const SpEstimator *estimator);
void sp_what_if_changed (SpWhatIf *machine);
void sp_what_if_clear (SpWhatIf *machine);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpWhatIf, sp_what_if_clear)

G_END_DECLS
