/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A model on a shipped cluster, and the planner's question about it. */

#include "models/questions/questions.h"
#include "tests/shipped.h"

typedef struct {
  SpArchitecture *arch;
  SpCluster *cluster;
  SpFramework *framework;
  SpEstimator estimator;
  SpPlanQuestion question;
} World;

static inline void
world_init (World *w, const char *model, const char *cluster, gint64 sequence, gint32 global_batch)
{
  w->arch = load_model (model);
  w->cluster = load_cluster (cluster);
  w->framework = load_framework ("flash");
  sp_estimator_init (&w->estimator, w->arch, w->cluster, w->framework, SP_MFU_SEQPAR);
  w->question = (SpPlanQuestion){
    .sequence = sequence,
    .global_batch = global_batch,
    .top = 10,
    .causal = TRUE,
    .base = SP_LAYOUT_DEFAULT,
    .fixed = sp_plan_beyond_usual (),
  };
}

static inline void
world_clear (World *w)
{
  sp_architecture_free (w->arch);
  sp_cluster_free (w->cluster);
  sp_framework_free (w->framework);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (World, world_clear)

static inline SpPlan *
plan_of (World *w, gint64 sequence, gint32 gpus, guint top)
{
  SpPlanQuestion q = w->question;

  q.sequence = sequence;
  q.gpus = gpus;
  q.top = top;
  return sp_plan (&w->estimator, &q, NULL);
}

static inline void
use_profile (World *w, const char *name)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = sp_find_profile (name, &error);

  w->cluster->profile = sp_profile_load (path, &error);
  g_assert_no_error (error);
  sp_estimator_init (&w->estimator, w->arch, w->cluster, w->framework, SP_MFU_SEQPAR);
}

/* FALSE: there are no shipped files, and all is skipped. */
static inline gboolean
question_test_init (int *argc, char ***argv)
{
  g_test_init (argc, argv, NULL);
  if (g_getenv ("SEQPAR_DATA") != NULL)
    return TRUE;
  g_print ("1..0 # SKIP SEQPAR_DATA is not set; run meson test\n");
  return FALSE;
}
