/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What of a model a run trains: all of it, all but the embedding, the head or the first layers, or LoRA's adapters
 * alone. The writers ask which parts are frozen (SpFrozen); the counts here are from shapes alone, and a test holds
 * them against the weights that a program lays out.
 */

#include "models/layout.h"

G_BEGIN_DECLS

/* SpLoraTarget bits of linear layers that have adapters; 0: there are none. */
guint sp_run_lora (const SpRun *run);

SpFrozen sp_run_frozen_embedding (const SpRun *run);
SpFrozen sp_run_frozen_layer (const SpRun *run, gint32 layer);
SpFrozen sp_run_frozen_head (const SpRun *run);
gboolean sp_run_freezes (const SpRun *run);
/* Whether the layers are frozen all alike. */
static inline gboolean
sp_run_freezes_alike (const SpRun *run)
{
  return run->lora_rank > 0 || run->frozen_layers == 0;
}

/* Of the adapters of a layer of a kind; and of everything that is trained. */
gint64 sp_run_lora_parameters (const SpRun *run, const SpArchitecture *arch, guint kind);
gint64 sp_run_trained_parameters (const SpRun *run, const SpArchitecture *arch);

/* "LoRA of rank 16 on q, v", "embedding and first 4 layers frozen"; NULL where all is trained. Free with g_free. */
char *sp_run_describe_trained (const SpRun *run, const SpArchitecture *arch);

/* The target's name in a scenario; NULL behind the last. */
const char *sp_lora_target_name (guint bit);

G_END_DECLS
