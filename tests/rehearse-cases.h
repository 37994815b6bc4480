/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Every strategy and mix on a small model, and how a test writes the programs of them. */

#include "models/writer.h"
#include "tests/small-models.h"

typedef struct {
  const char *name;
  SmallModel model;
  gboolean unfused;
  gint32 sequence, global_batch, micro_batch;
  SpLayout layout;
  gint32 vocabulary; /* 0: the model's own, which all tensor degrees divide */
  gint32 layers;     /* 0: the model's own; more of them repeat its kinds */
  gboolean lasp_local_after;
  gboolean eager; /* what an eager framework does otherwise: FSDP2 with ZeRO-3, DDP under autocast without ZeRO */
  gboolean overlapped; /* tensor ranks' collectives of the backward beside its products */
  gboolean fp8;
  guint8 optimizer;
  gint32 lora_rank; /* and what else is not trained */
  guint8 lora_targets, frozen;
  gint32 frozen_layers;
  const char *packing; /* lengths of documents, a line each */
} RehearseCase;

/* clang-format off */
static const RehearseCase rehearse_cases[] = {
  { "one", SMALL_SOFTMAX, 0, 32, 2, 1, LAYOUT (.zero = 0) },
  { "recompute-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "recompute-selective", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_SELECTIVE) },
  { "recompute-every", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL, .recompute_every = 3), .layers = 7 },
  { "recompute-every-whole", SMALL_GPT, 1, 32, 2, 2, LAYOUT (.recompute = SP_RECOMPUTE_FULL, .recompute_every = 2), .layers = 3 },
  { "recompute-every-hybrid", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .lasp = 2, .token_split = SP_TOKENS_CONTIGUOUS, .pipeline = 2, .zero = 3, .stage_split = { 2, 3 }, .recompute = SP_RECOMPUTE_FULL, .recompute_every = 2), .layers = 5 },
  { "recompute-first", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL, .recompute_first = 1), .layers = 3 },
  { "recompute-first-interleaved", SMALL_GQA, 0, 16, 6, 1, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 2, .recompute = SP_RECOMPUTE_FULL, .recompute_first = 1), .layers = 7 },
  { "recompute-every-zb-h1", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .ring = 2, .zero = 3, .schedule = ZB_H1, .recompute = SP_RECOMPUTE_FULL, .recompute_every = 2), .layers = 5 },
  { "recompute-every-dualpipe", SMALL_LINEAR, 0, 16, 8, 1, LAYOUT (.lasp = 2, .lasp_version = 1, .pipeline = 2, .schedule = DUALPIPE, .recompute = SP_RECOMPUTE_FULL, .recompute_every = 2), .layers = 6 },
  { "micro-batch", SMALL_GQA, 0, 32, 6, 3, LAYOUT (.zero = 0) },
  { "data", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 0) },
  { "data-uneven", SMALL_SOFTMAX, 0, 32, 10, 2, LAYOUT (.data = 2, .zero = 0) },
  { "data-padded", SMALL_SOFTMAX, 0, 32, 7, 2, LAYOUT (.data = 2, .zero = 1) },
  { "zero-1", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 1) },
  { "zero-2", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 2) },
  { "zero-3", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
  { "zero-3-kept", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE) },
  { "zero-3-uneven-shards", SMALL_GPT, 0, 30, 6, 1, LAYOUT (.data = 3, .zero = 3) },
  { "eager-fsdp2", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 3), .eager = TRUE },
  { "eager-fsdp2-micro-batches", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3), .eager = TRUE },
  { "eager-fsdp2-full", SMALL_GQA, 0, 32, 4, 2, LAYOUT (.data = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL), .layers = 3, .eager = TRUE },
  { "eager-fsdp2-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 3), .eager = TRUE },
  { "eager-fsdp2-ring", SMALL_GQA, 0, 32, 1, 1, LAYOUT (.ring = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL), .eager = TRUE },
  { "eager-ulysses", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .zero = 3, .recompute = SP_RECOMPUTE_FULL), .eager = TRUE },
  { "eager-zero-2", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 2), .eager = TRUE },
  { "eager-ddp", SMALL_GQA, 0, 32, 4, 2, LAYOUT (.data = 2, .zero = 0), .eager = TRUE },
  { "eager-ddp-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 0), .eager = TRUE },
  { "eager-ddp-tensor", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 0), .eager = TRUE },
  { "overlapped-regions", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 2), .overlapped = TRUE },
  { "overlapped-bias", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE, .zero = 0), .overlapped = TRUE },
  { "overlapped-parallel", SMALL_PARALLEL, 0, 32, 2, 1, LAYOUT (.tensor = 2), .overlapped = TRUE },
  { "overlapped-sandwich", SMALL_SANDWICH, 0, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL), .overlapped = TRUE },
  { "overlapped-linear", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.tensor = 2, .lasp = 2, .ulysses = 2, .token_split = SP_TOKENS_CONTIGUOUS), .overlapped = TRUE },
  { "overlapped-latent", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.tensor = 2), .overlapped = TRUE },
  { "overlapped-zb-h1", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.tensor = 2, .pipeline = 2, .schedule = ZB_H1), .overlapped = TRUE },
  { "zero-3-tied-kept", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE) },
  { "zero-3-tied", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
  { "offload-optimizer", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.zero = 0, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "offload-zero-0", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 0, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "offload-zero-1", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 1, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "offload-zero-2", SMALL_GPT, 0, 30, 6, 1, LAYOUT (.data = 3, .zero = 2, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "offload-zero-3", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "offload-parameters", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .offload = SP_OFFLOAD_OPTIMIZER | SP_OFFLOAD_PARAMETERS) },
  { "offload-parameters-alone", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE, .offload = SP_OFFLOAD_PARAMETERS) },
  { "offload-activations", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS) },
  { "offload-activations-lasp", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS) },
  { "offload-activations-whole", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS) },
  { "offload-all", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.ring = 2, .ulysses = 2, .pipeline = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ALL) },
  { "offload-interleaved", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = INTERLEAVED, .virtual_stages = 2, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_OPTIMIZER | SP_OFFLOAD_ACTIVATIONS), .layers = 4 },
  { "offload-zb-h1", SMALL_GPT, 0, 16, 7, 2, LAYOUT (.pipeline = 2, .schedule = ZB_H1, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS), .layers = 3 },
  { "fp8", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.zero = 0), .fp8 = TRUE },
  { "fp8-tensor-full", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.tensor = 2, .data = 2, .zero = 2, .recompute = SP_RECOMPUTE_FULL), .fp8 = TRUE },
  { "fp8-zb-h1-linear", SMALL_LINEAR, 0, 16, 4, 1, LAYOUT (.lasp = 2, .pipeline = 2, .schedule = ZB_H1), .layers = 3, .fp8 = TRUE },
  { "adamw-8bit", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3), .optimizer = SP_OPTIMIZER_ADAMW_8BIT },
  { "adamw-8bit-offload", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 1, .offload = SP_OFFLOAD_OPTIMIZER), .optimizer = SP_OPTIMIZER_ADAMW_8BIT },
  { "muon", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.zero = 0), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-zero-0", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.data = 2, .zero = 0), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-zero-1", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-zero-1-16", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 8, .ulysses = 2, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-zero-2", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 2), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-zero-3", SMALL_GPT, 0, 30, 6, 1, LAYOUT (.data = 3, .zero = 3), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-tensor-zero-1", SMALL_GPT, 0, 32, 6, 1, LAYOUT (.tensor = 2, .data = 3, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-hybrid-shard", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .ulysses = 4, .zero = 3, .zero_group = 4), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-experts", SMALL_SHARED, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-experts-tensor", SMALL_EXPERT_BIAS, 0, 32, 8, 1, LAYOUT (.data = 4, .tensor = 2, .expert = 2, .zero = 3), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-pipeline", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4, .optimizer = SP_OPTIMIZER_MUON },
  { "muon-dualpipe", SMALL_GPT, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 2, .schedule = DUALPIPE), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-latent", SMALL_LATENT_EXPERTS, 0, 16, 4, 1, LAYOUT (.data = 2, .ulysses = 2, .tensor = 2, .expert = 4, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-latent-fp8-ring", SMALL_LATENT_EXPERTS, 0, 16, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS, .tensor = 2, .expert = 2, .zero = 1), .fp8 = TRUE, .optimizer = SP_OPTIMIZER_MUON },
  { "muon-mamba", SMALL_MAMBA, 0, 16, 4, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-delta", SMALL_DELTA_HYBRID, 0, 16, 4, 1, LAYOUT (.data = 4, .zero = 3), .optimizer = SP_OPTIMIZER_MUON },
  { "muon-lora", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 1), .optimizer = SP_OPTIMIZER_MUON, .lora_rank = 3 },
  { "muon-frozen-first", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 2, .zero = 3), .layers = 4, .optimizer = SP_OPTIMIZER_MUON, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 2 },
  /* Where a rebuilt dropout gives its mask alone, `down` has none: nothing would read its product with B. Of each kind of
   * layers some have others below them: nothing reads the input's gradient of the lowest. */
  { "lora", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.zero = 0), .lora_rank = 3 },
  { "lora-targets-gpt", SMALL_GPT, 0, 32, 4, 2, LAYOUT (.data = 2), .lora_rank = 2, .lora_targets = SP_LORA_Q | SP_LORA_V | SP_LORA_UP },
  { "lora-tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE), .lora_rank = 3 },
  { "lora-regions", SMALL_GPT, 0, 32, 4, 2, LAYOUT (.tensor = 4, .data = 2, .zero = 1), .lora_rank = 2 },
  { "lora-zero-2", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 2), .lora_rank = 3 },
  { "lora-zero-3", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3), .lora_rank = 3 },
  { "lora-zero-3-kept", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 3, .reshard = FALSE), .lora_rank = 2, .lora_targets = SP_LORA_MLP },
  { "lora-zero-3-tied-kept", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE), .lora_rank = 2 },
  { "lora-zb-h1-kept", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .ring = 2, .zero = 3, .reshard = FALSE, .schedule = ZB_H1), .lora_rank = 2 },
  { "lora-ulysses-full", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ulysses = 4, .zero = 3, .recompute = SP_RECOMPUTE_FULL), .lora_rank = 3 },
  { "lora-ring-selective", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .zero = 1, .recompute = SP_RECOMPUTE_SELECTIVE), .lora_rank = 3, .lora_targets = SP_LORA_ATTENTION },
  { "lora-usp-regions", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .recompute = SP_RECOMPUTE_FULL), .lora_rank = 2 },
  { "lora-unfused-whole", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL), .lora_rank = 2, .lora_targets = SP_LORA_ATTENTION | SP_LORA_UP },
  { "lora-offload", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.ring = 2, .ulysses = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ALL), .lora_rank = 3 },
  { "lora-tiles", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 2, .mlp_tiles = 4, .loss = SP_LOSS_CHUNKED), .lora_rank = 2 },
  { "lora-latent", SMALL_LATENT, 0, 16, 2, 2, LAYOUT (.tensor = 4), .lora_rank = 2 },
  { "lora-latent-plain", SMALL_LATENT_PLAIN, 0, 16, 2, 1, LAYOUT (.tensor = 2, .ring = 2, .sequence_regions = FALSE, .recompute = SP_RECOMPUTE_FULL), .lora_rank = 2 },
  { "lora-experts", SMALL_LATENT_EXPERTS, 0, 16, 4, 1, LAYOUT (.data = 2, .ulysses = 2, .tensor = 2, .expert = 4, .zero = 1), .layers = 4, .lora_rank = 2, .lora_targets = SP_LORA_ATTENTION },
  { "lora-parallel", SMALL_PARALLEL, 0, 16, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_SELECTIVE), .lora_rank = 2 },
  { "lora-sandwich", SMALL_SANDWICH, 0, 16, 2, 1, LAYOUT (.tensor = 4), .layers = 4, .lora_rank = 2 },
  { "lora-bert", SMALL_BERT, 0, 16, 4, 1, LAYOUT (.tensor = 2, .data = 2, .zero = 2), .lora_rank = 2 },
  { "lora-fp8-adamw-8bit", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 2, .zero = 2), .fp8 = TRUE, .optimizer = SP_OPTIMIZER_ADAMW_8BIT, .lora_rank = 3 },
  { "lora-pipeline-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.pipeline = 2), .lora_rank = 3 },
  { "lora-zb-h1", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .tensor = 2, .ring = 2, .zero = 3, .schedule = ZB_H1), .lora_rank = 2 },
  { "lora-interleaved", SMALL_GPT, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = INTERLEAVED, .virtual_stages = 2, .recompute = SP_RECOMPUTE_FULL), .layers = 4, .lora_rank = 2, .lora_targets = SP_LORA_ATTENTION | SP_LORA_UP },
  { "lora-dualpipe", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 2, .schedule = DUALPIPE), .lora_rank = 2 },
  { "frozen-embedding", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 3), .frozen = SP_FREEZE_EMBEDDING },
  { "frozen-embedding-tied", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3), .frozen = SP_FREEZE_EMBEDDING },
  { "frozen-embedding-tied-pipeline", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 2, .pipeline = 2, .zero = 1), .frozen = SP_FREEZE_EMBEDDING },
  { "frozen-embedding-tied-gpipe", SMALL_TIED, 0, 16, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 0, .schedule = GPIPE), .frozen = SP_FREEZE_EMBEDDING | SP_FREEZE_HEAD },
  { "frozen-head-regions", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.data = 2, .tensor = 2, .zero = 2), .frozen = SP_FREEZE_HEAD },
  { "frozen-first", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 2, .zero = 3), .layers = 5, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 2 },
  { "frozen-first-full", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.tensor = 2, .ulysses = 2, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS), .layers = 4, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 2 },
  { "frozen-first-kept", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .ring = 2, .zero = 3, .reshard = FALSE, .offload = SP_OFFLOAD_OPTIMIZER), .layers = 3, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 1 },
  { "frozen-first-all", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .zero = 3, .reshard = FALSE, .recompute = SP_RECOMPUTE_SELECTIVE), .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 2 },
  { "frozen-first-below-trained", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.tensor = 2, .zero = 2, .ulysses = 2, .recompute = SP_RECOMPUTE_SELECTIVE), .layers = 3, .frozen_layers = 2 },
  { "frozen-first-pipeline", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .ring = 2, .zero = 3, .schedule = ZB_H1), .layers = 5, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 2 },
  { "frozen-first-experts", SMALL_LATENT_EXPERTS, 0, 16, 4, 1, LAYOUT (.data = 2, .ulysses = 2, .tensor = 2, .expert = 4, .zero = 1), .layers = 3, .frozen_layers = 2 },
  { "frozen-first-linear", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .tensor = 2, .lasp_version = 1), .layers = 3, .frozen = SP_FREEZE_EMBEDDING, .frozen_layers = 1 },
  { "hybrid-shard-1", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 1, .zero_group = 2) },
  { "hybrid-shard-2", SMALL_GPT, 0, 30, 12, 1, LAYOUT (.data = 6, .zero = 2, .zero_group = 3) },
  { "hybrid-shard-3", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .ulysses = 4, .zero = 3, .zero_group = 4) },
  { "hybrid-shard-3-cut", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.data = 2, .ring = 4, .tensor = 2, .zero = 3, .zero_group = 2, .reshard = FALSE) },
  { "hybrid-shard-pipeline", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .pipeline = 2, .zero = 3, .zero_group = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "hybrid-shard-dualpipe", SMALL_GPT, 0, 16, 16, 1, LAYOUT (.pipeline = 2, .data = 4, .zero = 2, .zero_group = 2, .schedule = DUALPIPE) },
  { "hybrid-shard-offload", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .zero_group = 2, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.tensor = 4) },
  { "tensor-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "tensor-regions-gpt-full", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "unfused", SMALL_GPT, 1, 32, 2, 2, LAYOUT (.zero = 0) },
  { "unfused-selective", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "unfused-ulysses", SMALL_TIED, 1, 32, 2, 1, LAYOUT (.ulysses = 4) },
  { "tensor-linear", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "tensor-regions-linear", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "pipeline", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.pipeline = 2) },
  { "pipeline-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.pipeline = 2) },
  { "pipeline-tied-data", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1) },
  { "pipeline-full", SMALL_GPT, 0, 32, 5, 1, LAYOUT (.pipeline = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "scattered", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.tensor = 4, .pipeline = 2, .sequence_regions = FALSE) },
  { "scattered-not", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.tensor = 2, .pipeline = 2, .sequence_regions = FALSE, .pipeline_scatter = FALSE) },
  { "scattered-smaller-last", SMALL_GPT, 0, 16, 7, 2, LAYOUT (.tensor = 2, .pipeline = 2, .sequence_regions = FALSE, .recompute = SP_RECOMPUTE_FULL, .zero = 0) },
  { "scattered-interleaved", SMALL_GQA, 0, 16, 6, 1, LAYOUT (.tensor = 2, .pipeline = 2, .sequence_regions = FALSE, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "scattered-zero-3", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.tensor = 2, .pipeline = 2, .data = 2, .sequence_regions = FALSE, .zero = 3) },
  { "scattered-zb-h1-ring", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.tensor = 2, .ring = 2, .pipeline = 2, .sequence_regions = FALSE, .schedule = ZB_H1) },
  { "scattered-dualpipe", SMALL_LINEAR, 0, 16, 8, 1, LAYOUT (.tensor = 2, .lasp = 2, .pipeline = 2, .sequence_regions = FALSE, .schedule = DUALPIPE), .layers = 4 },
  { "pipeline-zero-3", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3) },
  { "ulysses", SMALL_SOFTMAX, 0, 32, 2, 2, LAYOUT (.ulysses = 4) },
  { "ulysses-gqa", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4) },
  { "ulysses-replicated", SMALL_MQA, 0, 32, 2, 2, LAYOUT (.ulysses = 8, .zero = 3) },
  { "ulysses-linear", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.ulysses = 4) },
  { "ring-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4) },
  { "ring-full-zero-3", SMALL_SOFTMAX, 0, 32, 2, 2, LAYOUT (.ring = 4, .recompute = SP_RECOMPUTE_FULL, .zero = 3) },
  { "ring-zigzag-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "ring-contiguous", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "ring-contiguous-full", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS, .recompute = SP_RECOMPUTE_FULL) },
  { "ring-bf16-gradients", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 2, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "ring-3", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 3) },
  { "ring-gpt", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.ring = 4, .zero = 2) },
  { "gather-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER) },
  { "gather-kept", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .ring_keep = TRUE) },
  { "gather-kept-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 2, .ring_kind = SP_RING_ALL_GATHER, .ring_keep = TRUE, .recompute = SP_RECOMPUTE_FULL) },
  { "gather-contiguous", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 3, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "gather-striped-full", SMALL_GPT, 0, 32, 2, 2, LAYOUT (.ring = 4, .tensor = 2, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_STRIPED, .recompute = SP_RECOMPUTE_FULL) },
  { "gather-ulysses", SMALL_MQA, 0, 32, 3, 1, LAYOUT (.ulysses = 4, .ring = 2, .ring_kind = SP_RING_ALL_GATHER, .pipeline = 2, .zero = 3) },
  { "gather-hybrid", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ring = 4, .lasp = 4, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "gather-zb-h1", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.ring = 2, .ring_kind = SP_RING_ALL_GATHER, .pipeline = 2, .zero = 2, .schedule = ZB_H1) },
  { "ring-queries", SMALL_SOFTMAX, 0, 32, 2, 2, LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q) },
  { "ring-queries-gqa-full", SMALL_GQA, 0, 36, 2, 1, LAYOUT (.ring = 3, .ring_backward = SP_RING_BACKWARD_Q, .token_split = SP_TOKENS_STRIPED, .recompute = SP_RECOMPUTE_FULL, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "ring-queries-ulysses", SMALL_MQA, 0, 32, 3, 1, LAYOUT (.ulysses = 4, .ring = 2, .ring_backward = SP_RING_BACKWARD_Q, .pipeline = 2, .zero = 3) },
  { "double", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2) },
  { "double-2x3", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 6, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .token_split = SP_TOKENS_STRIPED, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "double-3x2-full", SMALL_GPT, 0, 36, 2, 1, LAYOUT (.ring = 6, .ring_kind = SP_RING_DOUBLE, .ring_inner = 3, .recompute = SP_RECOMPUTE_FULL) },
  { "double-2x4", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 8, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .order = { { SP_AXIS_DATA, SP_AXIS_PIPELINE, SP_AXIS_RING, SP_AXIS_TENSOR, SP_AXIS_ULYSSES, SP_AXIS_LASP } }) },
  { "double-queries", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 6, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .ring_backward = SP_RING_BACKWARD_Q, .recompute = SP_RECOMPUTE_FULL) },
  { "double-ulysses", SMALL_MQA, 0, 32, 3, 1, LAYOUT (.ulysses = 2, .ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .pipeline = 2, .zero = 3, .schedule = ZB_H1) },
  { "rsa", SMALL_SOFTMAX, 0, 32, 2, 2, LAYOUT (.ring = 4, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "rsa-dropout-zigzag", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_RSA) },
  { "rsa-selective", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.ring = 4, .tensor = 2, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_CONTIGUOUS, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "rsa-full", SMALL_GPT, 1, 36, 2, 1, LAYOUT (.ring = 3, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_STRIPED, .recompute = SP_RECOMPUTE_FULL) },
  { "rsa-ulysses-gqa", SMALL_MQA, 0, 32, 3, 1, LAYOUT (.ulysses = 4, .ring = 2, .ring_kind = SP_RING_RSA, .pipeline = 2, .zero = 3, .ring_gradient_dtype = SP_DTYPE_BF16) },
  { "rsa-hybrid", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ring = 4, .lasp = 4, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "ring-striped", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_STRIPED) },
  { "ring-striped-regions", SMALL_SOFTMAX, 0, 36, 2, 1, LAYOUT (.ring = 3, .tensor = 2, .token_split = SP_TOKENS_STRIPED, .recompute = SP_RECOMPUTE_FULL) },
  { "usp-striped", SMALL_MQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .token_split = SP_TOKENS_STRIPED) },
  { "usp-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .ring = 4) },
  { "usp-contiguous", SMALL_MQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "usp-ring-first", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .order = { { SP_AXIS_RING, SP_AXIS_DATA, SP_AXIS_ULYSSES, SP_AXIS_TENSOR, SP_AXIS_PIPELINE, SP_AXIS_LASP } }) },
  { "lasp", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "lasp-full", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "lasp-selective", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "lasp-after", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_SELECTIVE), .lasp_local_after = TRUE },
  { "lasp-2", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 2) },
  { "lasp-2-full", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "lasp-3", SMALL_LINEAR, 0, 36, 2, 1, LAYOUT (.lasp = 3, .lasp_version = 1) },
  { "lasp-ulysses", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .ulysses = 2, .lasp_version = 1) },
  { "lasp-zero-3", SMALL_LINEAR, 0, 32, 4, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .data = 2, .zero = 3) },
  { "lasp-2-tensor", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 2, .lasp_version = 2, .tensor = 4) },
  { "lasp-pipeline", SMALL_LINEAR, 0, 32, 4, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .pipeline = 2) },
  { "hybrid", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.zero = 0) },
  { "hybrid-same", SMALL_HYBRID, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .ring = 4, .lasp = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-lasp-longer", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .lasp = 8, .lasp_version = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-lasp-shorter", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .lasp = 2, .lasp_version = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "hybrid-all-ulysses", SMALL_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 8, .lasp = 4) },
  { "hybrid-pipeline", SMALL_HYBRID, 0, 32, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .zero = 3) },
  { "experts", SMALL_EXPERTS, 0, 32, 3, 2, LAYOUT (.zero = 0) },
  { "experts-recompute", SMALL_SHARED, 0, 32, 2, 1, LAYOUT (.zero = 0, .recompute = SP_RECOMPUTE_FULL) },
  { "experts-2-data", SMALL_EXPERTS, 0, 32, 4, 1, LAYOUT (.data = 2, .expert = 2, .zero = 0) },
  { "experts-4-data-zero-1", SMALL_SHARED, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 4, .zero = 1) },
  { "experts-2-of-4-zero-0", SMALL_EXPERTS, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 0) },
  { "experts-2-of-4-zero-1", SMALL_EXPERTS, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 1) },
  { "experts-2-of-4-zero-2", SMALL_SHARED, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 2) },
  { "experts-2-of-4-zero-3", SMALL_SHARED, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 3) },
  { "experts-4-zero-3-kept", SMALL_EXPERTS, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 4, .zero = 3, .reshard = FALSE) },
  { "experts-1-zero-3", SMALL_SHARED, 0, 32, 4, 1, LAYOUT (.data = 2, .zero = 3) },
  { "experts-far", SMALL_EXPERTS, 0, 32, 4, 1, LAYOUT (.data = 2, .ulysses = 4, .expert = 2, .zero = 3, .order = { { SP_AXIS_TENSOR, SP_AXIS_ULYSSES, SP_AXIS_RING, SP_AXIS_LASP, SP_AXIS_DATA, SP_AXIS_PIPELINE }, 1 }) },
  { "experts-8-cut", SMALL_EXPERTS, 0, 32, 8, 1, LAYOUT (.data = 4, .ulysses = 4, .expert = 8, .zero = 2) },
  { "experts-ulysses", SMALL_SHARED, 0, 32, 2, 2, LAYOUT (.ulysses = 4, .expert = 4) },
  { "experts-ring", SMALL_EXPERTS, 0, 32, 2, 1, LAYOUT (.ring = 2, .expert = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "experts-usp", SMALL_EXPERTS, 0, 32, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .data = 2, .expert = 8, .zero = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "experts-tensor", SMALL_EXPERTS, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "experts-tensor-shared", SMALL_SHARED, 0, 32, 2, 1, LAYOUT (.tensor = 2, .data = 2, .expert = 2, .sequence_regions = FALSE) },
  { "experts-tensor-regions", SMALL_SHARED, 0, 32, 4, 1, LAYOUT (.tensor = 2, .data = 2, .expert = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "experts-pipeline", SMALL_EXPERTS, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .expert = 2, .zero = 1) },
  { "experts-dualpipe", SMALL_SHARED, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .ulysses = 2, .expert = 2, .zero = 2, .schedule = DUALPIPE) },
  { "experts-zb-h1", SMALL_SHARED, 0, 32, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .expert = 2, .zero = 3, .schedule = ZB_H1, .recompute = SP_RECOMPUTE_FULL) },
  { "experts-uneven", SMALL_EXPERTS, 0, 32, 7, 2, LAYOUT (.data = 2, .expert = 2, .zero = 3) },
  { "experts-capacity", SMALL_EXPERTS, 0, 32, 2, 1, LAYOUT (.expert_capacity = 4) },
  { "experts-capacity-4", SMALL_SHARED, 0, 24, 4, 1, LAYOUT (.data = 2, .ulysses = 2, .expert = 4, .expert_capacity = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "experts-capacity-tensor", SMALL_EXPERTS, 0, 20, 4, 1, LAYOUT (.data = 2, .tensor = 2, .expert = 2, .expert_capacity = 5, .zero = 2) },
  { "experts-bias", SMALL_EXPERT_BIAS, 0, 32, 3, 2, LAYOUT (.zero = 0) },
  { "experts-bias-4-zero-3", SMALL_EXPERT_BIAS, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 4, .zero = 3) },
  { "experts-bias-2-of-4", SMALL_EXPERT_BIAS, 0, 32, 8, 1, LAYOUT (.data = 4, .expert = 2, .zero = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "experts-bias-tensor", SMALL_EXPERT_BIAS, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "experts-bias-capacity", SMALL_EXPERT_BIAS, 0, 20, 4, 1, LAYOUT (.data = 2, .tensor = 2, .expert = 2, .expert_capacity = 5, .zero = 2, .sequence_regions = FALSE) },
  { "experts-bias-zb-h1", SMALL_EXPERT_BIAS, 0, 32, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .expert = 2, .zero = 1, .schedule = ZB_H1) },
  { "experts-mix-16", SMALL_SHARED, 0, 32, 6, 1, LAYOUT (.data = 2, .ulysses = 2, .tensor = 2, .pipeline = 2, .expert = 4, .zero = 3) },
  { "window-ulysses", SMALL_WINDOW, 0, 16, 2, 2, LAYOUT (.ulysses = 4) },
  { "window-tensor", SMALL_WINDOW, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "window-regions", SMALL_WINDOW, 0, 16, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "window-ring", SMALL_WINDOW, 0, 32, 2, 2, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "window-ring-8", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 8, .token_split = SP_TOKENS_CONTIGUOUS, .recompute = SP_RECOMPUTE_FULL) },
  { "window-zigzag", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4) },
  { "window-zigzag-8", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 8, .zero = 2) },
  { "window-striped", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_STRIPED) },
  { "window-gather", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 8, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "window-queries", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 8, .ring_backward = SP_RING_BACKWARD_Q) },
  { "window-queries-striped", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q, .token_split = SP_TOKENS_STRIPED) },
  { "window-double", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 8, .ring_kind = SP_RING_DOUBLE, .ring_inner = 4, .ring_backward = SP_RING_BACKWARD_Q) },
  { "window-rsa", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_RSA) },
  { "sinks-gather", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .ring_kind = SP_RING_ALL_GATHER, .zero = 2) },
  { "sinks-double", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.ring = 8, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "sinks-rsa", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .ring_kind = SP_RING_RSA, .tensor = 2) },
  { "latent-gather", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .ring_keep = TRUE) },
  { "latent-queries", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q) },
  { "latent-double", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2) },
  { "latent-rsa", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_RSA) },
  { "bert-gather", SMALL_BERT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "bert-rsa", SMALL_BERT, 1, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "bert-double", SMALL_BERT, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .token_split = SP_TOKENS_CONTIGUOUS, .ring_backward = SP_RING_BACKWARD_Q) },
  { "window-usp", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .tensor = 2, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "window-unfused", SMALL_WINDOW, 1, 16, 2, 1, LAYOUT (.ulysses = 2, .tensor = 2) },
  { "window-pipeline-zero-3", SMALL_WINDOW, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3, .schedule = ZB_H1) },
  { "sinks-ulysses", SMALL_SINKS, 0, 16, 2, 2, LAYOUT (.ulysses = 4, .zero = 3) },
  { "sinks-ring", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.ring = 8, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "sinks-usp-tensor", SMALL_SINKS, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "sinks-unfused", SMALL_SINKS, 1, 16, 2, 1, LAYOUT (.ulysses = 2, .tensor = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "sinks-zb-h1", SMALL_SINKS, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .ring = 2, .schedule = ZB_H1) },
  { "gated-tensor", SMALL_GATED, 0, 16, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE, .recompute = SP_RECOMPUTE_FULL) },
  { "gated-regions", SMALL_GATED, 0, 16, 2, 2, LAYOUT (.tensor = 2, .ulysses = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "gated-usp", SMALL_GATED, 0, 16, 2, 1, LAYOUT (.ulysses = 4, .ring = 2) },
  { "gated-zb-h1", SMALL_GATED, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .tensor = 2, .schedule = ZB_H1) },
  { "latent-tensor", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "latent-regions", SMALL_LATENT, 0, 16, 2, 2, LAYOUT (.tensor = 4) },
  { "latent-ulysses", SMALL_LATENT, 0, 16, 2, 2, LAYOUT (.ulysses = 8, .zero = 3) },
  { "latent-ring", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "latent-usp-tensor", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2) },
  { "latent-full", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.tensor = 2, .ring = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "latent-selective", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "latent-unfused", SMALL_LATENT, 1, 16, 2, 1, LAYOUT (.ulysses = 2, .tensor = 2) },
  { "latent-zb-h1", SMALL_LATENT, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .tensor = 2, .zero = 1, .schedule = ZB_H1) },
  { "latent-plain-tensor", SMALL_LATENT_PLAIN, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "latent-plain-regions", SMALL_LATENT_PLAIN, 0, 16, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "latent-plain-usp", SMALL_LATENT_PLAIN, 0, 16, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .pipeline = 2) },
  { "latent-experts", SMALL_LATENT_EXPERTS, 0, 16, 4, 1, LAYOUT (.data = 2, .ulysses = 2, .tensor = 2, .expert = 4, .zero = 1) },
  { "parallel-tensor", SMALL_PARALLEL, 0, 16, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE) },
  { "parallel-regions", SMALL_PARALLEL, 0, 16, 2, 2, LAYOUT (.tensor = 2, .ulysses = 2) },
  { "parallel-full", SMALL_PARALLEL, 0, 16, 2, 1, LAYOUT (.tensor = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "parallel-zb-h1", SMALL_PARALLEL, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .tensor = 2, .schedule = ZB_H1) },
  { "parallel-two-tensor", SMALL_PARALLEL_TWO, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "parallel-two-regions", SMALL_PARALLEL_TWO, 0, 16, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "sandwich-regions", SMALL_SANDWICH, 0, 16, 2, 1, LAYOUT (.tensor = 4) },
  { "sandwich-ring", SMALL_SANDWICH, 0, 32, 2, 1, LAYOUT (.ring = 8, .token_split = SP_TOKENS_CONTIGUOUS, .recompute = SP_RECOMPUTE_FULL) },
  { "sandwich-pipeline", SMALL_SANDWICH, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "branch-norm-regions", SMALL_BRANCH_NORM, 0, 16, 2, 1, LAYOUT (.tensor = 4) },
  { "branch-norm-full", SMALL_BRANCH_NORM, 0, 16, 4, 1, LAYOUT (.tensor = 2, .pipeline = 2, .zero = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "bert-tensor", SMALL_BERT, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "bert-regions", SMALL_BERT, 1, 16, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_FULL), 50 },
  { "bert-ring", SMALL_BERT, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .zero = 2) },
  { "bert-pipeline", SMALL_BERT, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "opt-regions", SMALL_OPT, 0, 16, 2, 1, LAYOUT (.tensor = 4, .ring = 2) },
  { "bare-regions", SMALL_BARE, 0, 16, 2, 1, LAYOUT (.tensor = 4), 50 },
  { "bare-chunked", SMALL_BARE, 0, 16, 4, 1, LAYOUT (.tensor = 2, .data = 2, .zero = 3, .loss = SP_LOSS_CHUNKED) },
  { "bert-fused", SMALL_BERT, 0, 16, 4, 1, LAYOUT (.tensor = 2, .pipeline = 2, .loss = SP_LOSS_FUSED), 50 },
  { "bare-zb-h1", SMALL_BARE, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .tensor = 2, .sequence_regions = FALSE, .schedule = ZB_H1) },
  { "lightning-lasp", SMALL_LIGHTNING, 0, 32, 2, 1, LAYOUT (.lasp = 4, .ulysses = 2, .lasp_version = 1) },
  { "lightning-tensor", SMALL_LIGHTNING, 0, 32, 2, 1, LAYOUT (.tensor = 4, .lasp = 2, .lasp_version = 2) },
  { "retnet-lasp", SMALL_RETNET, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "retnet-ulysses-tensor", SMALL_RETNET, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .tensor = 2, .sequence_regions = FALSE) },
  { "gla", SMALL_GLA, 0, 32, 2, 2, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "gla-tensor", SMALL_GLA, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "gla-tensor-plain", SMALL_GLA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "gla-lasp", SMALL_GLA, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "gla-lasp-2", SMALL_GLA, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "gla-ulysses", SMALL_GLA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .zero = 3) },
  { "simple-gla", SMALL_SIMPLE_GLA, 0, 32, 2, 1, LAYOUT (.lasp = 2, .ulysses = 2, .tensor = 2, .lasp_version = 2) },
  { "mamba", SMALL_MAMBA, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "mamba-ulysses", SMALL_MAMBA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .lasp = 2, .lasp_version = 2) },
  { "mamba-tensor", SMALL_MAMBA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .lasp = 2, .lasp_version = 1, .sequence_regions = FALSE) },
  { "jamba", SMALL_JAMBA, 0, 32, 4, 2, LAYOUT (.recompute = SP_RECOMPUTE_SELECTIVE, .data = 2, .zero = 3) },
  { "jamba-tensor", SMALL_JAMBA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .ulysses = 2) },
  { "jamba-mix", SMALL_JAMBA, 0, 32, 4, 1, LAYOUT (.lasp = 2, .ulysses = 2, .tensor = 2, .pipeline = 2, .lasp_version = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "mamba2", SMALL_MAMBA2, 0, 32, 2, 2, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "mamba2-tensor", SMALL_MAMBA2, 0, 32, 2, 1, LAYOUT (.tensor = 4) },
  { "mamba2-lasp", SMALL_MAMBA2, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "mamba2-lasp-2-tensor", SMALL_MAMBA2, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2, .tensor = 2, .sequence_regions = FALSE) },
  { "mamba2-ulysses", SMALL_MAMBA2, 0, 32, 2, 1, LAYOUT (.ulysses = 8, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "mamba2-zb-h1", SMALL_MAMBA2, 0, 16, 4, 1, LAYOUT (.lasp = 2, .lasp_version = 1, .pipeline = 2, .zero = 2, .schedule = ZB_H1), .layers = 3 },
  { "delta", SMALL_DELTA, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "delta-lasp-2", SMALL_DELTA, 0, 32, 2, 1, LAYOUT (.lasp = 2, .ulysses = 4, .lasp_version = 2, .zero = 3) },
  { "gated-delta", SMALL_GATED_DELTA, 0, 32, 2, 2, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "gated-delta-lasp", SMALL_GATED_DELTA, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "gated-delta-lasp-2", SMALL_GATED_DELTA, 0, 36, 2, 1, LAYOUT (.lasp = 3, .lasp_version = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "gated-delta-ulysses", SMALL_GATED_DELTA, 0, 32, 2, 2, LAYOUT (.ulysses = 4) },
  { "gated-delta-ulysses-replicated", SMALL_GATED_DELTA, 0, 32, 2, 1, LAYOUT (.ulysses = 8, .zero = 2) },
  { "gated-delta-tensor", SMALL_GATED_DELTA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE) },
  { "gated-delta-mix", SMALL_GATED_DELTA, 0, 32, 6, 2, LAYOUT (.data = 2, .lasp = 2, .tensor = 2, .pipeline = 2, .lasp_version = 1, .zero = 3) },
  { "kda-lasp", SMALL_KDA, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .tensor = 2) },
  { "kda-lasp-2", SMALL_KDA, 0, 32, 2, 2, LAYOUT (.lasp = 2, .ulysses = 2, .lasp_version = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "rwkv7", SMALL_RWKV7, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2) },
  { "delta-hybrid", SMALL_DELTA_HYBRID, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .lasp = 2, .lasp_version = 1, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "delta-hybrid-pipeline", SMALL_DELTA_HYBRID, 0, 32, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .tensor = 2, .zero = 3) },
  { "mix-16", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .pipeline = 2) },
  { "mix-16-full", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .pipeline = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "mix-16-gpt", SMALL_GPT, 0, 32, 5, 2, LAYOUT (.data = 2, .ring = 2, .tensor = 2, .pipeline = 2, .zero = 2) },
  { "mix-16-linear", SMALL_LINEAR, 0, 32, 6, 2, LAYOUT (.data = 2, .lasp = 2, .tensor = 2, .pipeline = 2, .lasp_version = 1, .zero = 3) },
  { "mix-order", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .ulysses = 2, .ring = 2, .tensor = 2, .zero = 3, .order = { { SP_AXIS_DATA, SP_AXIS_RING, SP_AXIS_PIPELINE, SP_AXIS_TENSOR, SP_AXIS_LASP, SP_AXIS_ULYSSES } }) },
  { "vocabulary", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE), 50 },
  { "vocabulary-regions", SMALL_GPT, 0, 32, 2, 1, LAYOUT (.tensor = 4), 50 },
  { "vocabulary-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.tensor = 4, .pipeline = 2), 50 },
  { "vocabulary-tied-zero-3", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.tensor = 4, .data = 2, .zero = 3), 50 },
  { "vocabulary-less-than-ranks", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4), 3 },
  { "loss-full-tensor", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.tensor = 4, .loss = SP_LOSS_FULL) },
  { "loss-full-unfused", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE, .loss = SP_LOSS_FULL), 50 },
  { "loss-full-vocabulary", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .loss = SP_LOSS_FULL), 3 },
  { "loss-full-tied-zero-3", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.tensor = 4, .data = 2, .zero = 3, .loss = SP_LOSS_FULL), 50 },
  { "loss-chunked", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.loss = SP_LOSS_CHUNKED) },
  { "loss-chunked-unfused", SMALL_GPT, 1, 32, 2, 1, LAYOUT (.loss = SP_LOSS_CHUNKED, .loss_chunks = 4) },
  { "loss-chunked-one", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.loss = SP_LOSS_CHUNKED, .loss_chunks = 1) },
  { "loss-chunked-tensor", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.tensor = 4, .sequence_regions = FALSE, .loss = SP_LOSS_CHUNKED, .loss_chunks = 16), 50 },
  { "loss-chunked-regions", SMALL_GPT, 0, 32, 4, 2, LAYOUT (.tensor = 4, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2), 50 },
  { "loss-chunked-tied", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .loss = SP_LOSS_CHUNKED) },
  { "loss-chunked-usp", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .zero = 2, .loss = SP_LOSS_CHUNKED, .loss_chunks = 4) },
  { "loss-chunked-gpipe", SMALL_TIED, 0, 16, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = GPIPE, .loss = SP_LOSS_CHUNKED) },
  { "loss-chunked-zb-h1", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .tensor = 2, .ulysses = 2, .zero = 2, .schedule = ZB_H1, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2) },
  { "loss-chunked-dualpipe", SMALL_SOFTMAX, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3, .schedule = DUALPIPE, .loss = SP_LOSS_CHUNKED, .loss_chunks = 4) },
  { "loss-fused", SMALL_GQA, 0, 32, 3, 2, LAYOUT (.loss = SP_LOSS_FUSED) },
  { "loss-fused-lasp", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2, .tensor = 2, .zero = 3, .loss = SP_LOSS_FUSED, .loss_chunks = 8) },
  { "loss-chunked-bert", SMALL_BERT, 0, 32, 2, 1, LAYOUT (.tensor = 2, .loss = SP_LOSS_CHUNKED) },
  { "loss-full-bert", SMALL_BERT, 0, 32, 2, 1, LAYOUT (.tensor = 2, .loss = SP_LOSS_FULL) },
  { "loss-fused-bare", SMALL_BARE, 0, 32, 4, 2, LAYOUT (.data = 2, .zero = 2, .loss = SP_LOSS_FUSED) },
  { "packed", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.zero = 0), .packing = "7\n20\n3,4\n" },
  { "packed-positions", SMALL_GPT, 0, 32, 4, 2, LAYOUT (.ulysses = 4), .packing = "7\n20\n3,4\n" },
  { "packed-bert", SMALL_BERT, 0, 32, 4, 2, LAYOUT (.tensor = 2, .ring = 2), .packing = "9\n14\n" },
  { "packed-ring-zigzag", SMALL_GQA, 0, 32, 4, 2, LAYOUT (.ring = 4, .recompute = SP_RECOMPUTE_FULL), .packing = "7\n20\n3,4\n" },
  { "packed-ring-contiguous", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS), .packing = "5,9\n" },
  { "packed-ring-striped", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_STRIPED), .packing = "70\n13\n" },
  { "packed-ring-gather", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .token_split = SP_TOKENS_CONTIGUOUS), .packing = "7\n20\n3,4\n" },
  { "packed-ring-queries", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q), .packing = "7\n20\n3,4\n" },
  { "packed-ring-double", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2), .packing = "7\n20\n3,4\n" },
  { "packed-window", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4), .packing = "2,3\n11\n" },
  { "packed-latent", SMALL_LATENT, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 2), .packing = "7\n20\n3,4\n" },
  { "packed-data-pipeline", SMALL_GQA, 0, 16, 7, 2, LAYOUT (.data = 2, .pipeline = 2, .zero = 1, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2), .packing = "7\n20\n3,4\n" },
  { "tiles", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.mlp_tiles = 4) },
  { "tiles-auto-fused", SMALL_GPT, 0, 64, 2, 1, LAYOUT (.mlp_tiles = SP_TILES_AUTO, .loss = SP_LOSS_FUSED) },
  { "tiles-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ring = 4, .mlp_tiles = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL) },
  { "tiles-full-whole", SMALL_GPT, 1, 32, 2, 2, LAYOUT (.tensor = 2, .mlp_tiles = 8, .recompute = SP_RECOMPUTE_FULL) },
  { "tiles-selective", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .mlp_tiles = 2, .zero = 2, .recompute = SP_RECOMPUTE_SELECTIVE, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2) },
  { "tiles-tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE, .mlp_tiles = 4) },
  { "tiles-parallel", SMALL_PARALLEL, 0, 32, 2, 1, LAYOUT (.tensor = 2, .mlp_tiles = 4, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "tiles-sandwich", SMALL_SANDWICH, 0, 32, 2, 2, LAYOUT (.mlp_tiles = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "tiles-zb-h1", SMALL_GPT, 0, 16, 5, 1, LAYOUT (.pipeline = 2, .tensor = 2, .zero = 0, .schedule = ZB_H1, .mlp_tiles = 2, .loss = SP_LOSS_FUSED, .loss_chunks = 4) },
  { "tiles-hybrid", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .lasp = 2, .token_split = SP_TOKENS_CONTIGUOUS, .pipeline = 2, .zero = 3, .mlp_tiles = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "tiles-offload", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.ulysses = 4, .zero = 3, .mlp_tiles = 4, .loss = SP_LOSS_CHUNKED, .loss_chunks = 4, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS | SP_OFFLOAD_OPTIMIZER) },
  { "offload-activations-every", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL, .recompute_every = 2, .offload = SP_OFFLOAD_ACTIVATIONS), .layers = 3 },
  { "gpipe", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.pipeline = 3, .schedule = GPIPE, .stage_split = { 1, 2, 1 }), .layers = 4 },
  { "gpipe-alone", SMALL_GQA, 0, 16, 3, 1, LAYOUT (.schedule = GPIPE) },
  { "gpipe-uneven", SMALL_GPT, 0, 16, 5, 2, LAYOUT (.pipeline = 2, .schedule = GPIPE, .recompute = SP_RECOMPUTE_FULL) },
  { "gpipe-tied", SMALL_TIED, 0, 16, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = GPIPE) },
  { "slices", SMALL_GQA, 0, 32, 3, 1, LAYOUT (.pipeline = 2, .slices = 4) },
  { "slices-alone", SMALL_GQA, 0, 32, 3, 2, LAYOUT (.slices = 2, .zero = 0) },
  { "slices-gpipe", SMALL_GPT, 0, 32, 3, 1, LAYOUT (.pipeline = 3, .schedule = GPIPE, .slices = 4, .stage_split = { 1, 2, 1 }), .layers = 4 },
  { "slices-unequal", SMALL_GPT, 0, 32, 3, 1, LAYOUT (.pipeline = 2, .schedule = GPIPE, .slices = 3, .slice_split = { 14, 12, 6 }) },
  { "slices-uneven", SMALL_GPT, 0, 32, 7, 2, LAYOUT (.pipeline = 2, .data = 2, .slices = 4, .zero = 1) },
  { "slices-unfused", SMALL_GPT, 1, 32, 4, 1, LAYOUT (.pipeline = 2, .tensor = 2, .slices = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "slices-unfused-full", SMALL_GPT, 1, 32, 2, 2, LAYOUT (.pipeline = 2, .schedule = GPIPE, .slices = 3, .slice_split = { 8, 8, 16 }, .recompute = SP_RECOMPUTE_FULL) },
  { "slices-full", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.pipeline = 2, .slices = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "slices-tied", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .slices = 2, .zero = 1) },
  { "slices-zero-2", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 4, .slices = 2, .zero = 2) },
  { "slices-zero-3", SMALL_TIED, 0, 32, 4, 1, LAYOUT (.data = 2, .slices = 4, .zero = 3) },
  { "slices-zero-3-kept", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .slices = 2, .zero = 3, .reshard = FALSE) },
  { "slices-eager", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.data = 4, .slices = 2, .zero = 3), .eager = TRUE },
  { "slices-eager-ulysses", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .slices = 2, .zero = 0, .ring_gradient_dtype = SP_DTYPE_BF16), .eager = TRUE },
  { "slices-ulysses", SMALL_MQA, 0, 32, 3, 1, LAYOUT (.ulysses = 4, .pipeline = 2, .slices = 2, .zero = 3) },
  { "slices-ulysses-regions", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .tensor = 2, .pipeline = 2, .slices = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "slices-tensor", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.tensor = 4, .pipeline = 2, .slices = 4, .sequence_regions = FALSE), .vocabulary = 50 },
  { "slices-window", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.pipeline = 2, .slices = 4) },
  { "slices-sinks", SMALL_SINKS, 0, 32, 2, 1, LAYOUT (.pipeline = 2, .ulysses = 2, .slices = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "slices-latent", SMALL_LATENT, 0, 32, 3, 1, LAYOUT (.pipeline = 2, .tensor = 2, .slices = 4) },
  { "slices-parallel", SMALL_PARALLEL, 0, 32, 2, 1, LAYOUT (.tensor = 2, .slices = 2, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "slices-experts", SMALL_SHARED, 0, 32, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .expert = 2, .slices = 2, .zero = 1) },
  { "slices-chunked", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.pipeline = 2, .slices = 2, .mlp_tiles = 4, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2) },
  { "slices-offload", SMALL_GQA, 0, 32, 8, 1, LAYOUT (.data = 2, .pipeline = 2, .slices = 2, .zero = 2, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "slices-lora", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.pipeline = 2, .slices = 2), .lora_rank = 3 },
  { "slices-frozen-embedding", SMALL_GPT, 0, 32, 4, 1, LAYOUT (.data = 2, .tensor = 2, .slices = 2, .zero = 3), .frozen = SP_FREEZE_EMBEDDING },
  { "slices-muon", SMALL_GQA, 0, 32, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .slices = 2, .zero = 1), .optimizer = SP_OPTIMIZER_MUON },
  { "interleaved", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "interleaved-split", SMALL_GQA, 0, 16, 6, 1, LAYOUT (.pipeline = 3, .schedule = INTERLEAVED, .virtual_stages = 2, .stage_split = { 1, 3, 1, 2, 1, 1 }), .layers = 9 },
  { "interleaved-uneven", SMALL_GPT, 0, 16, 7, 2, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 3, .recompute = SP_RECOMPUTE_SELECTIVE), .layers = 6 },
  { "interleaved-tied", SMALL_TIED, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 5 },
  { "interleaved-zero-2", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 2, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "interleaved-zero-3-kept", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 3, .reshard = FALSE, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "interleaved-hybrid", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 2, .ring = 2, .lasp = 2, .token_split = SP_TOKENS_CONTIGUOUS, .pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 5 },
  { "interleaved-lasp", SMALL_LINEAR, 0, 16, 4, 1, LAYOUT (.lasp = 2, .lasp_version = 1, .pipeline = 2, .zero = 3, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "zb-h1", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.pipeline = 3, .schedule = ZB_H1, .stage_split = { 1, 2, 1 }), .layers = 4 },
  { "zb-h1-alone", SMALL_TIED, 0, 16, 4, 1, LAYOUT (.data = 2, .zero = 2, .schedule = ZB_H1) },
  { "zb-h1-uneven", SMALL_GPT, 0, 16, 7, 2, LAYOUT (.pipeline = 2, .schedule = ZB_H1, .recompute = SP_RECOMPUTE_FULL), .layers = 3 },
  { "zb-h1-unfused", SMALL_GPT, 1, 16, 5, 1, LAYOUT (.tensor = 2, .pipeline = 2, .schedule = ZB_H1, .recompute = SP_RECOMPUTE_SELECTIVE) },
  { "zb-h1-tied", SMALL_TIED, 0, 16, 6, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = ZB_H1) },
  { "zb-h1-tensor", SMALL_GPT, 0, 16, 4, 1, LAYOUT (.tensor = 4, .pipeline = 2, .schedule = ZB_H1) },
  { "zb-h1-ring-zero-3", SMALL_GQA, 0, 16, 5, 1, LAYOUT (.ring = 2, .pipeline = 3, .zero = 3, .schedule = ZB_H1), .layers = 4 },
  { "zb-h1-ring-full", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.ring = 2, .pipeline = 2, .zero = 3, .reshard = FALSE, .recompute = SP_RECOMPUTE_FULL, .schedule = ZB_H1) },
  { "zb-h1-ulysses-zero-2", SMALL_SOFTMAX, 0, 16, 6, 1, LAYOUT (.ulysses = 2, .pipeline = 3, .zero = 2, .schedule = ZB_H1, .stage_split = { 2, 1, 1 }), .layers = 4 },
  { "zb-h1-lasp", SMALL_LINEAR, 0, 16, 4, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .pipeline = 2, .zero = 2, .schedule = ZB_H1), .layers = 3 },
  { "zb-h1-hybrid", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .zero = 3, .recompute = SP_RECOMPUTE_FULL, .schedule = ZB_H1), .layers = 5 },
  { "dualpipe", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .schedule = DUALPIPE), .layers = 3 },
  { "dualpipe-4", SMALL_GQA, 0, 16, 10, 1, LAYOUT (.pipeline = 4, .schedule = DUALPIPE, .stage_split = { 1, 2, 1, 1 }), .layers = 5 },
  { "dualpipe-zero-0", SMALL_GPT, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 0, .schedule = DUALPIPE) },
  { "dualpipe-zero-1", SMALL_GPT, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = DUALPIPE) },
  { "dualpipe-zero-2", SMALL_GPT, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .ulysses = 2, .zero = 2, .schedule = DUALPIPE, .recompute = SP_RECOMPUTE_FULL) },
  { "dualpipe-zero-3", SMALL_GQA, 0, 16, 8, 1, LAYOUT (.pipeline = 4, .ring = 2, .zero = 3, .schedule = DUALPIPE), .layers = 4 },
  { "dualpipe-lasp", SMALL_LINEAR, 0, 16, 8, 1, LAYOUT (.lasp = 2, .lasp_version = 1, .pipeline = 2, .zero = 3, .reshard = FALSE, .schedule = DUALPIPE), .layers = 3 },
  { "dualpipe-hybrid", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .tensor = 2, .schedule = DUALPIPE, .recompute = SP_RECOMPUTE_SELECTIVE), .layers = 3 },
};
/* clang-format on */

static inline SpArchitecture *
rehearse_case_model (const RehearseCase *c)
{
  SpArchitecture *arch = small_model (c->model);

  if (c->vocabulary > 0)
    arch->vocabulary = c->vocabulary;
  for (gint32 l = arch->layers; l < c->layers; l++)
    arch->layer_kind[l] = arch->layer_kind[l % arch->layers];
  arch->layers = MAX (arch->layers, c->layers);
  return arch;
}

/* Kept until the end: a run only points to it. */
static inline const SpPacking *
rehearse_packing (const char *text)
{
  static GHashTable *known = NULL;

  if (text == NULL)
    return NULL;
  if (known == NULL)
    known = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, (GDestroyNotify) sp_packing_free);
  SpPacking *packing = g_hash_table_lookup (known, text);
  if (packing == NULL) {
    packing = sp_packing_parse ("test", text, strlen (text), NULL);
    g_assert_nonnull (packing);
    g_hash_table_insert (known, (gpointer) text, packing);
  }
  return packing;
}

static inline SpRun
rehearse_case_run (const RehearseCase *c)
{
  return (SpRun){ .sequence = c->sequence,
                  .micro_batch = c->micro_batch,
                  .global_batch = c->global_batch,
                  .precision = SP_DTYPE_BF16,
                  .causal = TRUE,
                  .packing = rehearse_packing (c->packing),
                  .fp8 = c->fp8,
                  .optimizer = c->optimizer,
                  .lora_rank = c->lora_rank,
                  .lora_targets = c->lora_targets,
                  .frozen = c->frozen,
                  .frozen_layers = c->frozen_layers };
}

/* The same sequences one by one on one rank. */
static inline RehearseCase
rehearse_case_alone (const RehearseCase *c)
{
  RehearseCase alone = *c;

  /* With a capacity tokens choose their experts; without, they are dealt out. */
  alone.layout = (SpLayout) LAYOUT (.zero = 0, .expert_capacity = c->layout.expert_capacity);
  alone.micro_batch = 1;
  alone.fp8 = FALSE;
  alone.optimizer = c->optimizer == SP_OPTIMIZER_MUON ? SP_OPTIMIZER_MUON : SP_OPTIMIZER_ADAMW;
  return alone;
}

static inline void
rehearse_case_write_with (const RehearseCase *c, gboolean overlap, SpProgram *program)
{
  g_autoptr (SpArchitecture) arch = rehearse_case_model (c);
  g_autoptr (GError) error = NULL;
  SpFramework framework = small_framework (!c->unfused);
  SpLayout layout = c->layout;
  SpRun run = rehearse_case_run (c);

  framework.lasp_local_after = c->lasp_local_after;
  framework.overlaps_tensor = c->overlapped;
  framework.pipeline_scatter = TRUE;
  if (c->eager) {
    framework.glu_apart = framework.attention_copied = framework.gathers_master = framework.keeps_ends = TRUE;
    framework.frees_gradients = framework.keeps_whole = framework.sums_alone = TRUE;
    framework.shard_copies.value = 18;
    framework.autocast = framework.gradient_copies = framework.gradients_apart = c->layout.zero == 0;
  }
  layout.overlap = overlap;
  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, &framework, &layout, &run);
  /* Softmax does not feel a shift of all keys, so the gradient of the keys' bias is rounding alone; Adam divides it by
   * itself unless its epsilon is well above. */
  program->numbers.adam_epsilon = 1e-5;
}

static inline void
rehearse_case_write (const RehearseCase *c, SpProgram *program)
{
  rehearse_case_write_with (c, FALSE, program);
}
