/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What frameworks on Hugging Face's Trainer share (ms-swift, LLaMA-Factory): a stage of ZeRO by the name of a DeepSpeed
 * configuration, full training or adapters, recomputation of all layers or none, Liger's fused loss, batches a data rank.
 * Their formats map options to these facts:
 *   file.deepspeed    zero0 .. zero3, zero2_offload, zero3_offload; none: data parallelism without ZeRO
 *   file.fsdp         fsdp2: ZeRO-3
 *   file.tuner        full, lora
 *   file.lora-rank    of lora; 8 if it is not said
 *   file.liger        true: its loss takes the output matrix along
 * Defaults are in the headers of the formats.
 */

#include "models/inputs/run-files/formats.h"

G_BEGIN_DECLS

/* Facts of [layout] and [run] out of those above; `data` and batches last. */
gboolean sp_run_trainer_resolve (SpRunFile *file, const SpRunPlace *place, GError **error);
/* The other way. */
void sp_run_trainer_prepare (SpFacts *facts);

/* Ranks of one sequence as Ulysses takes them first, as many as heads allow, and a ring the rest. */
gint64 sp_run_ulysses_first (const SpArchitecture *arch, gint64 ranks);

/* true and false of a command line are what they are elsewhere, and a bare flag is true. */
void sp_run_trainer_booleans (SpRunItems *items);

#define SP_TRAINER_PROFILE "which kernels run is the framework profile's: --set run.framework=NAME"
#define SP_TRAINER_PACKING "documents are packed only by run.packing, a file of their lengths"
/* More that transformers' OptimizerNames has. */
#define SP_TRAINER_OTHER_OPTIMIZERS                                                                                    \
  "sgd adafactor adagrad adalomo lomo rmsprop* ademamix* paged_* lion_* galore_* schedule_free_* apollo_* stable_* "   \
  "grokadamw adamw_*"
#define SP_TRAINER_OPTIMIZERS                                                                                          \
  "adamw_torch=adamw adamw_torch_fused=adamw adamw_hf=adamw adamw_8bit=adamw-8bit paged_adamw_8bit=adamw-8bit "        \
  "muon=muon"

G_END_DECLS
