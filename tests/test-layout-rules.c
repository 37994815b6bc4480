/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "tests/small-models.h"

/* What layouts are refused, and in what words. */

/* Each rule by a layout that it alone refuses, what its message must say, and the nearest legal layout, which
 * differs in what the message names. The small models have 2 layers, 8 heads of 4 (GQA 4 key/value heads), an MLP of
 * 40, 48 words. */
typedef struct {
  const char *rule;
  SmallModel model;
  gboolean unfused;
  gint64 sequence;
  gint32 global_batch, micro_batch, ranks;
  SpLayout illegal;
  const char *words[4];
  gint64 legal_sequence; /* 0: the same */
  gint32 legal_global_batch, legal_micro_batch;
  SpLayout legal;
  SpScope scope;
  const char *packing; /* documents' lengths, of the illegal one */
  SpOptimizer optimizer;
  double imbalance; /* of the illegal one */
} RuleCase;

/* clang-format off */
static const RuleCase rule_cases[] = {
  { "tensor-heads", SMALL_GQA, 0, 32, 2, 1, 8, LAYOUT (.tensor = 8), { "tensor = 8", "8 query heads", "4 key/value heads", "1, 2 or 4" },
    .legal = LAYOUT (.tensor = 4, .data = 2) },
  { "tensor-heads", SMALL_SOFTMAX, 0, 36, 2, 1, 3, LAYOUT (.tensor = 3), { "tensor = 3", "1, 2, 4 or 8" },
    .legal = LAYOUT (.data = 3), .legal_global_batch = 3 },
  { "tensor-width", SMALL_MQA, 0, 32, 2, 1, 0, LAYOUT (.tensor = 2), { "tensor = 2", "MLP width 41", "legal: 1" },
    .legal = LAYOUT (.tensor = 1) }, /* the test sets 41 */
  { "ulysses-heads", SMALL_GQA, 0, 48, 2, 1, 3, LAYOUT (.ulysses = 3), { "ulysses = 3", "8 query heads", "4 key/value", "1, 2, 4 or 8" },
    .legal = LAYOUT (.ring = 3) },
  { "ulysses-heads", SMALL_GQA, 0, 32, 2, 1, 16, LAYOUT (.ulysses = 8, .tensor = 2), { "ulysses = 8", "4 query heads of a tensor rank", "2 key/value", "1, 2 or 4;" },
    .legal = LAYOUT (.ulysses = 4, .tensor = 2, .ring = 2) },
  { "linear-ulysses-heads", SMALL_LINEAR, 0, 48, 2, 1, 3, LAYOUT (.ulysses = 3), { "ulysses = 3", "1, 2, 4, 8" },
    .legal = LAYOUT (.lasp = 3) },
  { "linear-ulysses-heads", SMALL_GATED_DELTA, 0, 48, 2, 1, 6, LAYOUT (.ulysses = 6), { "ulysses = 6", "8 heads", "the 4 key heads", "1, 2, 4, 8" },
    .legal = LAYOUT (.lasp = 6) },
  { "tensor-linear-heads", SMALL_MAMBA2, 0, 32, 2, 1, 8, LAYOUT (.tensor = 8), { "tensor = 8", "8 heads", "4 key heads", "1, 2 or 4" },
    .legal = LAYOUT (.tensor = 4, .lasp = 2) },
  { "linear-ulysses-heads", SMALL_HYBRID, 0, 48, 2, 1, 3, LAYOUT (.ring = 3, CONTIGUOUS), { "= 3 ranks", "8 heads", "legal lasp: 3" },
    .legal = LAYOUT (.ring = 3, .lasp = 3, CONTIGUOUS) },
  { "ring-softmax", SMALL_LINEAR, 0, 32, 2, 1, 0, LAYOUT (.ring = 4), { "ring = 4", "lasp = 4, ring = 1" },
    .legal = LAYOUT (.lasp = 4) },
  { "ring-split-linear", SMALL_HYBRID, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .lasp = 4), { "zigzag", "linear-attention", "contiguous" },
    .legal = LAYOUT (.ring = 4, .lasp = 4, CONTIGUOUS) },
  { "ring-split-linear", SMALL_HYBRID, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .lasp = 4, .token_split = SP_TOKENS_STRIPED), { "striped", "linear-attention", "contiguous" },
    .legal = LAYOUT (.ring = 4, .lasp = 4, CONTIGUOUS) },
  { "ring-zigzag-parts", SMALL_SOFTMAX, 0, 36, 2, 1, 4, LAYOUT (.ring = 4), { "sequence = 36", "2 x ring = 8", "pad it to 40" },
    .legal = LAYOUT (.ring = 4), .legal_sequence = 40 },
  { "ring-keep", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .ring_keep = TRUE), { "ring-kind = p2p", "ring-kind = all-gather" },
    .legal = LAYOUT (.ring = 4, .ring_keep = TRUE, .ring_kind = SP_RING_ALL_GATHER) },
  { "ring-keep", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ulysses = 4, .ring_keep = TRUE), { "ring = 1", "ring-keep = false" },
    .legal = LAYOUT (.ulysses = 4) },
  { "ring-double", SMALL_SOFTMAX, 0, 48, 2, 1, 6, LAYOUT (.ring = 6, .ring_kind = SP_RING_DOUBLE, .ring_inner = 4), { "ring = 6", "ring-inner = 4", "legal ring-inner: 2, 3" },
    .legal = LAYOUT (.ring = 6, .ring_kind = SP_RING_DOUBLE, .ring_inner = 3) },
  { "ring-double", SMALL_SOFTMAX, 0, 32, 2, 1, 2, LAYOUT (.ring = 2, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2), { "ring = 2", "legal ring-inner: none", "ring-kind = p2p" },
    .legal = LAYOUT (.ring = 2) },
  { "ring-double", SMALL_HYBRID, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .lasp = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, CONTIGUOUS), { "linear-attention", "p2p or all-gather" },
    .legal = LAYOUT (.ring = 4, .lasp = 4, CONTIGUOUS) },
  { "ring-balanced", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, CONTIGUOUS), { "ring-kind = double", "zigzag or striped" },
    .legal = LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2) },
  { "ring-balanced", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q, CONTIGUOUS), { "ring-backward = q", "zigzag or striped" },
    .legal = LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q, .token_split = SP_TOKENS_STRIPED) },
  { "ring-backward", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ring = 4, .ring_kind = SP_RING_ALL_GATHER, .ring_backward = SP_RING_BACKWARD_Q), { "ring-kind = all-gather", "p2p or double" },
    .legal = LAYOUT (.ring = 4, .ring_backward = SP_RING_BACKWARD_Q) },
  { "ring-backward", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.ulysses = 4, .ring_backward = SP_RING_BACKWARD_Q), { "ring = 1", "ring-backward = kv" },
    .legal = LAYOUT (.ulysses = 4) },
  { "ring-fused", SMALL_GPT, 1, 32, 2, 1, 4, LAYOUT (.ring = 4), { "ring = 4", "framework test", "ring = 1" },
    .legal = LAYOUT (.ulysses = 4) },
  { "lasp-linear", SMALL_SOFTMAX, 0, 32, 2, 1, 1, LAYOUT (.lasp = 4), { "lasp = 4", "ring = 4", "lasp = 1" },
    .legal = LAYOUT (.lasp = 1) },
  { "lasp-factors", SMALL_HYBRID, 0, 48, 2, 1, 4, LAYOUT (.ulysses = 2, .ring = 2, .lasp = 3, CONTIGUOUS), { "lasp = 3", "ulysses x ring = 4", "legal lasp: 1, 2 or 4" },
    .legal = LAYOUT (.ulysses = 2, .ring = 2, .lasp = 2, CONTIGUOUS) },
  { "pipeline-layers", SMALL_SOFTMAX, 0, 32, 2, 1, 3, LAYOUT (.pipeline = 3), { "pipeline = 3", "2 layers", "at most 2" },
    .legal = LAYOUT (.pipeline = 2) },
  { "pipeline-split", SMALL_SOFTMAX, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .stage_split = { 1, 2 }), { "2 stages", "2 layers", "1,1" },
    .legal = LAYOUT (.pipeline = 2, .stage_split = { 1, 1 }) },
  { "pipeline-split", SMALL_SOFTMAX, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .stage_split = { 2 }), { "2 stages", "2 layers", "1,1" },
    .legal = LAYOUT (.pipeline = 2) },
  { "expert-model", SMALL_GQA, 0, 32, 2, 1, 2, LAYOUT (.data = 2, .expert = 2), { "expert = 2", "small has no experts", "expert = 1" },
    .legal = LAYOUT (.data = 2) },
  { "expert-count", SMALL_EXPERTS, 0, 48, 2, 1, 3, LAYOUT (.ring = 3, .expert = 3), { "expert = 3", "8 experts", "legal: 1, 2, 4 or 8" },
    .legal = LAYOUT (.ring = 3, .expert = 1) },
  { "expert-ranks", SMALL_EXPERTS, 0, 32, 2, 1, 4, LAYOUT (.data = 2, .ulysses = 2, .expert = 8), { "expert = 8", "ranks = 4", "legal: 1, 2 or 4" },
    .legal = LAYOUT (.data = 2, .ulysses = 2, .expert = 4) },
  { "expert-width", SMALL_EXPERTS, 0, 32, 2, 1, 4, LAYOUT (.tensor = 4), { "tensor = 4", "width 18 of an expert", "legal: 1, 2, 3 or 6" },
    .legal = LAYOUT (.tensor = 2) },
  { "expert-size", SMALL_EXPERTS, 0, 32, 2, 1, 2, LAYOUT (.ring = 2, .zero = 0), { "2^31 expert parameters", "zero = 1" },
    .legal = LAYOUT (.ring = 2, .expert = 2, .zero = 0) },
  { "expert-rows", SMALL_EXPERTS, 0, 1 << 30, 2, 1, 2, LAYOUT (.ring = 2, .expert_capacity = 4), { "8 experts", "2^31 rows", "expert-capacity than 4" },
    .legal = LAYOUT (.ring = 2, .expert_capacity = 1) },
  { "expert-imbalance", SMALL_EXPERTS, 0, 32, 2, 1, 4, LAYOUT (.data = 2, .ulysses = 2, .expert = 4), { "expert-imbalance = 4.1", "8 experts / 2 a token = 4;", "1 to 4" },
    .legal = LAYOUT (.data = 2, .ulysses = 2, .expert = 4), .imbalance = 4.1 },
  { "pipeline-split", SMALL_SOFTMAX, 0, 32, 2, 1, 1, LAYOUT (.stage_split = { 1, 1 }), { "1 stages", "2 layers", "e.g. 2" },
    .legal = LAYOUT (.stage_split = { 2 }) },
  { "pipeline-layers", SMALL_SOFTMAX, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 2), { "2 stages of virtual-stages = 2", "2 layers", "at most 1" },
    .legal = LAYOUT (.pipeline = 2) },
  { "pipeline-split", SMALL_SOFTMAX, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE, .stage_split = { 1, 2 }), { "2 stages", "2 layers", "1,1" },
    .legal = LAYOUT (.pipeline = 2, .schedule = DUALPIPE, .stage_split = { 1, 1 }) },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 2, 1, 1, LAYOUT (.virtual_stages = 2), { "schedule = 1f1b", "virtual-stages = 2", "use virtual-stages = 1" },
    .legal = LAYOUT (.virtual_stages = 1) },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 2, 1, 1, LAYOUT (.schedule = INTERLEAVED, .virtual_stages = 2), { "schedule = interleaved", "pipeline = 1" },
    .legal = LAYOUT (.data = 1) },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED), { "schedule = interleaved", "e.g. virtual-stages = 2" },
    .legal = LAYOUT (.pipeline = 2) },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 3, 1, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE), { "3 micro-batches", "even", "2 x pipeline = 4" },
    .legal = LAYOUT (.pipeline = 2, .schedule = DUALPIPE), .legal_global_batch = 4 },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 7, 2, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE), { "schedule = dualpipe", "last micro-batch would be smaller" },
    .legal = LAYOUT (.pipeline = 2, .schedule = DUALPIPE), .legal_global_batch = 8 },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 8, 2, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE, .virtual_stages = 3), { "two parts" , "use virtual-stages = 1" },
    .legal = LAYOUT (.pipeline = 2, .schedule = DUALPIPE) },
  { "pipeline-scope", SMALL_SOFTMAX, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2), { "scope = attention", "pipeline = 2", "use pipeline = 1" },
    .legal = LAYOUT (.ring = 2), .scope = SP_SCOPE_ATTENTION },
  { "pipeline-scope", SMALL_LINEAR, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2), { "scope = layer", "pipeline = 2", "use pipeline = 1" },
    .legal = LAYOUT (.lasp = 2), .scope = SP_SCOPE_LAYER },
  { "pipeline-tied", SMALL_TIED, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE), { "schedule = dualpipe", "tied", "schedule = 1f1b" },
    .legal = LAYOUT (.pipeline = 2) },
  { "offload-activations", SMALL_GQA, 0, 32, 4, 1, 1, LAYOUT (.offload = SP_OFFLOAD_ACTIVATIONS), { "offload = activations", "recompute = full" },
    .legal = LAYOUT (.offload = SP_OFFLOAD_ACTIVATIONS, .recompute = SP_RECOMPUTE_FULL) },
  { "offload-parameters", SMALL_GQA, 0, 32, 4, 1, 2, LAYOUT (.data = 2, .offload = SP_OFFLOAD_PARAMETERS), { "offload = parameters", "zero is 1", "use zero = 3" },
    .legal = LAYOUT (.data = 2, .zero = 3, .offload = SP_OFFLOAD_PARAMETERS) },
  { "muon-offload", SMALL_GQA, 0, 32, 4, 1, 2, LAYOUT (.data = 2, .offload = SP_OFFLOAD_OPTIMIZER), { "optimizer = muon", "offload = optimizer", "offload = none", "optimizer = adamw" },
    .legal = LAYOUT (.data = 2), .optimizer = SP_OPTIMIZER_MUON },
  { "offload-mirror", SMALL_GQA, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = DUALPIPE, .offload = SP_OFFLOAD_OPTIMIZER), { "schedule = dualpipe", "use another" },
    .legal = LAYOUT (.pipeline = 2, .offload = SP_OFFLOAD_OPTIMIZER) },
  { "zero-tied", SMALL_TIED, 0, 32, 4, 1, 4, LAYOUT (.pipeline = 2, .data = 2, .zero = 3), { "zero = 3", "tied", "zero = 0 or 1", "pipeline = 1" },
    .legal = LAYOUT (.pipeline = 2, .data = 2, .zero = 1) },
  { "zero-group", SMALL_SOFTMAX, 0, 32, 12, 1, 6, LAYOUT (.data = 6, .zero = 3, .zero_group = 4), { "zero-group = 4", "the 6 data x sequence ranks", "legal: 2, 3, 6; or all" },
    .legal = LAYOUT (.data = 6, .zero = 3, .zero_group = 3) },
  { "zero-group", SMALL_SOFTMAX, 0, 32, 4, 1, 4, LAYOUT (.data = 4, .zero = 0, .zero_group = 2), { "zero = 0", "zero-group = all" },
    .legal = LAYOUT (.data = 4, .zero = 1, .zero_group = 2) },
  { "zero-group", SMALL_EXPERTS, 0, 32, 4, 1, 4, LAYOUT (.data = 4, .expert = 2, .zero_group = 2), { "expert = 2", "expert = 1" },
    .legal = LAYOUT (.data = 4, .zero_group = 2) },
  { "zero-replicas", SMALL_SOFTMAX, 0, 32, 2, 1, 2, LAYOUT (.tensor = 2, .zero = 2), { "zero = 2", "more than one", "zero = 0 or 1" },
    .legal = LAYOUT (.tensor = 2, .zero = 1) },
  { "world", SMALL_SOFTMAX, 0, 32, 4, 1, 8, LAYOUT (.ulysses = 2, .data = 2), { "= 4 GPUs", "cluster has 8", "data = 4" },
    .legal = LAYOUT (.ulysses = 2, .data = 4) },
  { "world", SMALL_SOFTMAX, 0, 48, 4, 1, 8, LAYOUT (.ring = 3), { "= 3 GPUs", "cluster has 8", "3 must divide 8" },
    .legal = LAYOUT (.ring = 4, .data = 2) },
  { "data-batch", SMALL_SOFTMAX, 0, 32, 2, 1, 4, LAYOUT (.data = 4), { "data = 4", "global-batch = 2", "data = 2 or less" },
    .legal = LAYOUT (.data = 2, .ulysses = 2) },
  { "micro-batch", SMALL_SOFTMAX, 0, 32, 5, 4, 2, LAYOUT (.data = 2), { "micro-batch = 4", "3 sequences of a replica", "at most 3" },
    .legal = LAYOUT (.data = 2), .legal_micro_batch = 3 },
  { "tokens", SMALL_SOFTMAX, 0, 34, 2, 1, 4, LAYOUT (.ulysses = 4), { "sequence = 34", "the 4 parts", "pad it to 36" },
    .legal = LAYOUT (.ulysses = 4), .legal_sequence = 36 },
  { "tokens", SMALL_SOFTMAX, 0, 36, 2, 1, 8, LAYOUT (.ulysses = 2, .tensor = 4), { "sequence = 36", "the 8 parts", "x tensor, for sequence regions", "pad it to 40" },
    .legal = LAYOUT (.ulysses = 2, .tensor = 4, .sequence_regions = FALSE) },
  { "rows", SMALL_SOFTMAX, 0, 1 << 30, 2, 2, 1, LAYOUT (.data = 1), { "2^31 tokens", "sequence 1073741824", "micro-batch 2", "more sequence ranks" },
    .legal = LAYOUT (.data = 1), .legal_micro_batch = 1 },
  { "loss-chunks", SMALL_GPT, 0, 40, 2, 1, 2, LAYOUT (.ulysses = 2, .loss = SP_LOSS_CHUNKED, .loss_chunks = 6), { "loss-chunks = 6", "20 tokens", "nearest: 5 or 10" },
    .legal = LAYOUT (.ulysses = 2, .loss = SP_LOSS_FUSED, .loss_chunks = 10) },
  { "mlp-tiles", SMALL_GQA, 0, 40, 2, 1, 2, LAYOUT (.ulysses = 2, .mlp_tiles = 32), { "mlp-tiles = 32", "20 tokens", "nearest: 20" },
    .legal = LAYOUT (.ulysses = 2, .mlp_tiles = SP_TILES_AUTO) },
  { "packing-fused", SMALL_GPT, 1, 32, 2, 1, 1, LAYOUT (.data = 1), { "packing = lengths", "framework test", "packing = none" },
    .legal = LAYOUT (.data = 1), .packing = "8" },
  { "packing-fused", SMALL_SOFTMAX, 0, 32, 2, 1, 2, LAYOUT (.ring = 2, .ring_kind = SP_RING_RSA, CONTIGUOUS), { "ring-kind = rsa", "ring-kind = p2p" },
    .legal = LAYOUT (.ring = 2), .packing = "8" },
  { "packing-ring", SMALL_GQA, 0, 4096, 2, 1, 2048, LAYOUT (.ring = 2048), { "ring of 2048", "at most 1024" },
    .legal = LAYOUT (.ring = 1024), .packing = "8" },
  { "slices-tokens", SMALL_GQA, 0, 32, 2, 1, 4, LAYOUT (.tensor = 2, .pipeline = 2, .slices = 5), { "slices = 5", "32 tokens", "a multiple of 2", "use 4 or 8" },
    .legal = LAYOUT (.tensor = 2, .pipeline = 2, .slices = 8) },
  { "slices-tokens", SMALL_GQA, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .slices = 2, .slice_split = { 20, 11 }), { "32 tokens", "slices = 16,16" },
    .legal = LAYOUT (.pipeline = 2, .slices = 2, .slice_split = { 20, 12 }) },
  { "slices-tokens", SMALL_GQA, 0, 32, 2, 1, 4, LAYOUT (.ulysses = 2, .pipeline = 2, .slices = 2, .slice_split = { 19, 13 }), { "a multiple of the 2 parts", "slices = 16,16" },
    .legal = LAYOUT (.ulysses = 2, .pipeline = 2, .slices = 2, .slice_split = { 18, 14 }) },
  { "slices-ring", SMALL_GQA, 0, 32, 2, 1, 4, LAYOUT (.ring = 2, .pipeline = 2, .slices = 2), { "slices = 2", "ring = 2", "ulysses = 2" },
    .legal = LAYOUT (.ulysses = 2, .pipeline = 2, .slices = 2) },
  { "slices-ring", SMALL_GQA, 0, 32, 2, 1, 32, LAYOUT (.ring = 16, .pipeline = 2, .slices = 2), { "use ring = 1 with ulysses = 8 and data = 2, or" },
    .legal = LAYOUT (.ulysses = 8, .pipeline = 2, .data = 2, .slices = 2) },
  { "slices-ring", SMALL_GQA, 0, 32, 1, 1, 32, LAYOUT (.ring = 16, .pipeline = 2, .slices = 2), { "not available yet; use slices = 1" },
    .legal = LAYOUT (.ring = 16, .pipeline = 2) },
  { "slices-linear", SMALL_HYBRID, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .slices = 2), { "slices = 2", "state", "use slices = 1" },
    .legal = LAYOUT (.pipeline = 2) },
  { "slices-causal", SMALL_BERT, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .slices = 2), { "slices = 2", "looks both ways", "use slices = 1" },
    .legal = LAYOUT (.pipeline = 2) },
  { "slices-causal", SMALL_BERT, 0, 32, 2, 1, 4, LAYOUT (.ring = 2, .pipeline = 2, .slices = 3), { "looks both ways", "use slices = 1" },
    .legal = LAYOUT (.ring = 2, .pipeline = 2) },
  { "slices-packing", SMALL_GQA, 0, 32, 2, 1, 2, LAYOUT (.pipeline = 2, .slices = 2), { "slices = 2", "packing = none" },
    .legal = LAYOUT (.pipeline = 2), .packing = "8" },
  { "slices-scope", SMALL_GQA, 0, 32, 2, 1, 1, LAYOUT (.slices = 2), { "scope = attention", "slices = 2", "use slices = 1" },
    .legal = LAYOUT (.zero = 1), .scope = SP_SCOPE_ATTENTION },
  { "slices-offload", SMALL_GQA, 0, 32, 2, 1, 1, LAYOUT (.slices = 2, .recompute = SP_RECOMPUTE_FULL, .offload = SP_OFFLOAD_ACTIVATIONS), { "slices = 2", "offload = activations" },
    .legal = LAYOUT (.slices = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "slices-tiles", SMALL_GQA, 0, 32, 2, 1, 1, LAYOUT (.slices = 4, .mlp_tiles = 16), { "slices = 4", "mlp-tiles", "16 do not" },
    .legal = LAYOUT (.slices = 4, .mlp_tiles = 8) },
  { "pipeline-schedule", SMALL_SOFTMAX, 0, 32, 4, 1, 2, LAYOUT (.pipeline = 2, .schedule = ZB_H1, .slices = 2), { "schedule = zb-h1", "slices = 2", "use slices = 1", "1f1b or gpipe" },
    .legal = LAYOUT (.pipeline = 2, .schedule = GPIPE, .slices = 2) },
  { "loss-scope", SMALL_GPT, 0, 32, 2, 1, 1, LAYOUT (.loss = SP_LOSS_FUSED), { "scope = forward", "loss = fused", "full or vocab-parallel" },
    .legal = LAYOUT (.loss = SP_LOSS_FULL), .scope = SP_SCOPE_FORWARD },
  { "scores", SMALL_GPT, 1, 1 << 29, 2, 1, 1, LAYOUT (.data = 1), { "score matrices", "sequence 536870912", "fused attention" },
    .legal = LAYOUT (.data = 1), .legal_sequence = 1024 },
};
/* clang-format on */

static SpArchitecture *
rule_model (const RuleCase *c)
{
  SpArchitecture *arch = small_model (c->model);

  if (g_str_equal (c->rule, "tensor-width"))
    arch->ffn = 41;
  if (g_str_equal (c->rule, "expert-width"))
    arch->moe.ffn = 18;
  if (g_str_equal (c->rule, "expert-size")) { /* 3 x 8192 x 16384 x 8 = 1.5 x 2^31 */
    arch->hidden = 8192;
    arch->moe.ffn = 16384;
  }
  return arch;
}

static void
test_rule (gconstpointer data)
{
  const RuleCase *c = data;
  g_autoptr (GError) error = NULL;
  g_autoptr (SpArchitecture) arch = rule_model (c);
  SpFramework framework = small_framework (!c->unfused);
  SpRun run = { c->sequence, c->micro_batch, c->global_batch, SP_DTYPE_BF16, TRUE, (guint8) c->scope };
  g_autoptr (SpPacking) packing =
      c->packing != NULL ? sp_packing_parse ("lengths", c->packing, strlen (c->packing), NULL) : NULL;
  g_autofree char *start = g_strdup_printf ("rule %s: ", c->rule);

  run.packing = packing;
  run.optimizer = (guint8) c->optimizer;
  run.expert_imbalance = c->imbalance;
  g_assert_false (sp_layout_check (&c->illegal, arch, &framework, &run, c->ranks, NULL));
  g_assert_false (sp_layout_check (&c->illegal, arch, &framework, &run, c->ranks, &error));
  g_assert_error (error, SP_LAYOUT_ERROR, SP_LAYOUT_ERROR_ILLEGAL);
  g_test_message ("%s", error->message);
  g_assert_true (g_str_has_prefix (error->message, start));
  g_assert_null (strchr (error->message, '\n'));
  for (guint i = 0; i < G_N_ELEMENTS (c->words) && c->words[i]; i++)
    if (strstr (error->message, c->words[i]) == NULL) {
      g_test_message ("\"%s\" is not in it", c->words[i]);
      g_test_fail ();
    }

  if (c->legal_sequence)
    run.sequence = c->legal_sequence;
  if (c->legal_global_batch)
    run.global_batch = c->legal_global_batch;
  if (c->legal_micro_batch)
    run.micro_batch = c->legal_micro_batch;
  g_clear_error (&error);
  run.packing = g_str_equal (c->rule, "packing-ring") ? packing : NULL;
  run.expert_imbalance = c->imbalance > 0 ? 4 : 0;
  g_assert_true (sp_layout_check (&c->legal, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
}

/* Models that are counted, and that no writer writes. */
static void
assert_unwritten (SpArchitecture *arch, const char *word)
{
  SpFramework framework = small_framework (TRUE);
  SpRun run = { 48, 1, 4, SP_DTYPE_BF16, TRUE };
  SpLayout layout = SP_LAYOUT_DEFAULT;
  g_autoptr (GError) error = NULL;

  g_assert_false (sp_layout_check (&layout, arch, &framework, &run, 0, &error));
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, "rule model: small has "));
  g_assert_nonnull (strstr (error->message, word));
}

static void
test_model_rule (void)
{
  g_autoptr (SpArchitecture) window = small_model (SMALL_WINDOW), latent = small_model (SMALL_LATENT);
  g_autoptr (SpArchitecture) sandwich = small_model (SMALL_SANDWICH), branch_norm = small_model (SMALL_BRANCH_NORM);

  window->bidirectional = TRUE;
  assert_unwritten (window, "looks both ways");
  latent->sinks = TRUE;
  assert_unwritten (latent, "latent attention with");
  sandwich->projection_bias = TRUE;
  assert_unwritten (sandwich, "between a branch and its norm");
  branch_norm->dropout = 0.1;
  assert_unwritten (branch_norm, "between a branch and its norm");
}

/* No rule without a case. */
static void
test_all_rules (void)
{
  for (guint i = 0; i < sp_strategy_count (); i++)
    for (guint j = 0; j < sp_strategy_get (i)->n_rules; j++) {
      const char *name = sp_strategy_get (i)->rules[j].name;
      gboolean found = g_str_equal (name, "model"); /* above */
      found |= g_str_has_prefix (name, "lora") || g_str_has_prefix (name, "frozen"); /* test-trained */
      found |= g_str_equal (name, "slices-frozen");
      for (guint k = 0; k < G_N_ELEMENTS (rule_cases); k++)
        found |= g_str_equal (rule_cases[k].rule, name);
      if (!found) {
        g_test_message ("rule %s has no case", name);
        g_test_fail ();
      }
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < G_N_ELEMENTS (rule_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/layout-rules/%s/%u", rule_cases[i].rule, i);
    g_test_add_data_func (path, &rule_cases[i], test_rule);
  }
  g_test_add_func ("/layout-rules/model-rule", test_model_rule);
  g_test_add_func ("/layout-rules/all-rules", test_all_rules);
  return g_test_run ();
}
