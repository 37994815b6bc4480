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
} RehearseCase;

/* clang-format off */
static const RehearseCase rehearse_cases[] = {
  { "one", SMALL_SOFTMAX, 0, 32, 2, 1, LAYOUT (.zero = 0) },
  { "recompute-full", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_FULL) },
  { "recompute-selective", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.recompute = SP_RECOMPUTE_SELECTIVE) },
  { "micro-batch", SMALL_GQA, 0, 32, 6, 3, LAYOUT (.zero = 0) },
  { "data", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 0) },
  { "data-uneven", SMALL_SOFTMAX, 0, 32, 10, 2, LAYOUT (.data = 2, .zero = 0) },
  { "data-padded", SMALL_SOFTMAX, 0, 32, 7, 2, LAYOUT (.data = 2, .zero = 1) },
  { "zero-1", SMALL_SOFTMAX, 0, 32, 4, 1, LAYOUT (.data = 4, .zero = 1) },
  { "zero-2", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 2) },
  { "zero-3", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
  { "zero-3-kept", SMALL_SOFTMAX, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE) },
  { "zero-3-uneven-shards", SMALL_GPT, 0, 30, 6, 1, LAYOUT (.data = 3, .zero = 3) },
  { "zero-3-tied-kept", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3, .reshard = FALSE) },
  { "zero-3-tied", SMALL_TIED, 0, 32, 8, 1, LAYOUT (.data = 4, .zero = 3) },
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
  { "usp-zigzag", SMALL_GQA, 0, 32, 2, 2, LAYOUT (.ulysses = 2, .ring = 4) },
  { "usp-contiguous", SMALL_MQA, 0, 32, 2, 1, LAYOUT (.ulysses = 4, .ring = 2, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "usp-ring-first", SMALL_GQA, 0, 32, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .order = { { SP_AXIS_RING, SP_AXIS_DATA, SP_AXIS_ULYSSES, SP_AXIS_TENSOR, SP_AXIS_PIPELINE, SP_AXIS_LASP } }) },
  { "lasp", SMALL_LINEAR, 0, 32, 2, 2, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "lasp-full", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "lasp-selective", SMALL_LINEAR, 0, 32, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1, .recompute = SP_RECOMPUTE_SELECTIVE) },
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
};
/* clang-format on */

static inline SpArchitecture *
rehearse_case_model (const RehearseCase *c)
{
  SpArchitecture *arch = small_model (c->model);

  if (c->vocabulary > 0)
    arch->vocabulary = c->vocabulary;
  return arch;
}

static inline SpRun
rehearse_case_run (const RehearseCase *c)
{
  return (SpRun){ c->sequence, c->micro_batch, c->global_batch, SP_DTYPE_BF16, TRUE };
}

/* The same sequences one by one on one rank. */
static inline RehearseCase
rehearse_case_alone (const RehearseCase *c)
{
  RehearseCase alone = *c;

  alone.layout = (SpLayout) LAYOUT (.zero = 0);
  alone.micro_batch = 1;
  return alone;
}

static inline void
rehearse_case_write (const RehearseCase *c, SpProgram *program)
{
  g_autoptr (SpArchitecture) arch = rehearse_case_model (c);
  g_autoptr (GError) error = NULL;
  SpFramework framework = small_framework (!c->unfused);
  SpLayout layout = c->layout;
  SpRun run = rehearse_case_run (c);

  layout.overlap = FALSE;
  g_assert_true (sp_layout_check (&layout, arch, &framework, &run, 0, &error));
  g_assert_no_error (error);
  sp_program_write (program, arch, &framework, &layout, &run);
  /* Softmax does not feel a shift of all keys, so the gradient of the keys' bias is rounding alone; Adam divides it by
   * itself unless its epsilon is well above. */
  program->numbers.adam_epsilon = 1e-5;
}
