/* SPDX-License-Identifier: Apache-2.0 */
#include "models/questions/what-if.h"

static void
copy_profile (SpWhatIf *machine, const SpProfile *profile)
{
  machine->profile = *profile;
  machine->profile.curves = g_ptr_array_new ();
  machine->curves = g_new (SpCurve, MAX (profile->curves->len, 1));
  for (guint i = 0; i < profile->curves->len; i++) {
    machine->curves[i] = *(const SpCurve *) profile->curves->pdata[i];
    g_ptr_array_add (machine->profile.curves, &machine->curves[i]);
  }
  sp_profile_link (&machine->profile);
  machine->cluster.profile = &machine->profile;
}

void
sp_what_if_init (SpWhatIf *machine, const SpEstimator *estimator)
{
  const SpCluster *cluster = estimator->cluster;

  *machine = (SpWhatIf){
    .device = *cluster->device, .cluster = *cluster, .framework = *estimator->framework, .estimator = *estimator
  };
  machine->cluster.device = &machine->device;
  machine->cluster.memo = cluster->memo != NULL ? sp_cluster_memo_new () : NULL;
  if (cluster->profile != NULL)
    copy_profile (machine, cluster->profile);
  sp_what_if_changed (machine);
}

void
sp_what_if_changed (SpWhatIf *machine)
{
  if (machine->cluster.memo != NULL) {
    sp_cluster_memo_free (machine->cluster.memo);
    machine->cluster.memo = sp_cluster_memo_new ();
  }
  sp_estimator_init (&machine->estimator, machine->estimator.arch, &machine->cluster, &machine->framework,
                     machine->estimator.convention);
}

void
sp_what_if_clear (SpWhatIf *machine)
{
  sp_cluster_memo_free (machine->cluster.memo);
  g_clear_pointer (&machine->profile.curves, g_ptr_array_unref);
  g_clear_pointer (&machine->curves, g_free);
}
