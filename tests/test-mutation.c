/* SPDX-License-Identifier: Apache-2.0 */
#include "models/rehearse/rehearse.h"
#include "tests/rehearse-cases.h"

#include <string.h>

/*
 * Is the rehearsal a test? An op of a program is spoilt, and the rehearsal has to notice: by an error, or by a
 * difference from the one-rank run that is more than rounding. Every op is removed in turn, from every case; in a few
 * varied programs operands change places, sums are not carried on, and communication and guards speak of other ranks or
 * steps. What survives is listed by name: it is dead code in the program, or a gap in the rehearsal.
 */

#define SEED 7
#define ROUNDING 1e-10

/* At least two micro-batches each, so that it shows whether gradients are summed. */
/* clang-format off */
static const RehearseCase programs[] = {
  { "usp-zigzag-full", SMALL_GQA, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 4, .recompute = SP_RECOMPUTE_FULL) },
  { "gather-ulysses", SMALL_MQA, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .ring_kind = SP_RING_ALL_GATHER) },
  { "rsa", SMALL_GQA, 0, 16, 2, 1, LAYOUT (.ring = 2, .ring_kind = SP_RING_RSA, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "double-queries", SMALL_GQA, 0, 16, 2, 1, LAYOUT (.ring = 4, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .ring_backward = SP_RING_BACKWARD_Q) },
  { "double", SMALL_MQA, 0, 16, 2, 1, LAYOUT (.ring = 8, .ring_kind = SP_RING_DOUBLE, .ring_inner = 2, .zero = 0) },
  { "ring-contiguous", SMALL_MQA, 0, 16, 2, 1, LAYOUT (.ring = 4, .zero = 0, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "gpt-unfused-selective", SMALL_GPT, 1, 16, 2, 1, LAYOUT (.tensor = 4, .recompute = SP_RECOMPUTE_SELECTIVE), 50 },
  { "window-ring", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4, .token_split = SP_TOKENS_CONTIGUOUS) },
  { "window-zigzag", SMALL_WINDOW, 0, 32, 2, 1, LAYOUT (.ring = 4) },
  { "sinks-unfused", SMALL_SINKS, 1, 16, 2, 1, LAYOUT (.ulysses = 2, .tensor = 2) },
  { "gated-usp-full", SMALL_GATED, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "latent-usp", SMALL_LATENT, 0, 16, 2, 1, LAYOUT (.ulysses = 2, .ring = 2, .tensor = 2) },
  { "latent-plain", SMALL_LATENT_PLAIN, 0, 16, 2, 1, LAYOUT (.tensor = 2, .sequence_regions = FALSE) },
  { "parallel", SMALL_PARALLEL, 0, 16, 2, 1, LAYOUT (.tensor = 2) },
  { "sandwich", SMALL_SANDWICH, 0, 16, 2, 1, LAYOUT (.tensor = 2) },
  { "bert", SMALL_BERT, 0, 16, 2, 1, LAYOUT (.tensor = 2, .ring = 2) },
  { "lasp", SMALL_LINEAR, 0, 16, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "lasp-2-ulysses-tensor", SMALL_LINEAR, 0, 16, 2, 1, LAYOUT (.lasp = 2, .lasp_version = 2, .ulysses = 2, .tensor = 2) },
  { "mamba2-ulysses", SMALL_MAMBA2, 0, 16, 2, 1, LAYOUT (.lasp = 2, .ulysses = 2, .lasp_version = 1, .recompute = SP_RECOMPUTE_FULL) },
  { "jamba-ulysses-tensor", SMALL_JAMBA, 0, 16, 2, 1, LAYOUT (.lasp = 2, .lasp_version = 2, .ulysses = 2, .tensor = 2) },
  { "gla-lasp-2-tensor", SMALL_GLA, 0, 16, 2, 1, LAYOUT (.lasp = 2, .lasp_version = 2, .tensor = 2) },
  { "gated-delta-lasp", SMALL_GATED_DELTA, 0, 16, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 1) },
  { "kda-lasp-2", SMALL_KDA, 0, 16, 2, 1, LAYOUT (.lasp = 4, .lasp_version = 2) },
  { "hybrid-pipeline-zero-3", SMALL_HYBRID, 0, 16, 4, 1, LAYOUT (.ulysses = 4, .lasp = 2, .pipeline = 2, .zero = 3) },
  { "tied-pipeline", SMALL_TIED, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1) },
  { "hybrid-shard", SMALL_SOFTMAX, 0, 16, 8, 1, LAYOUT (.data = 2, .ulysses = 2, .zero = 3, .zero_group = 2) },
  { "zero-2-uneven", SMALL_SOFTMAX, 0, 16, 9, 2, LAYOUT (.data = 2, .zero = 2) },
  { "loss-chunked-tensor", SMALL_GQA, 0, 16, 2, 1, LAYOUT (.tensor = 4, .sequence_regions = FALSE, .loss = SP_LOSS_CHUNKED, .loss_chunks = 2) },
  { "tiles-full-whole", SMALL_GPT, 1, 16, 2, 1, LAYOUT (.tensor = 2, .mlp_tiles = 2, .recompute = SP_RECOMPUTE_FULL) },
  { "loss-full-tensor", SMALL_GPT, 1, 16, 2, 1, LAYOUT (.tensor = 4, .loss = SP_LOSS_FULL), 50 },
  { "interleaved", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .schedule = INTERLEAVED, .virtual_stages = 2), .layers = 4 },
  { "scattered", SMALL_GQA, 0, 16, 2, 1, LAYOUT (.tensor = 2, .pipeline = 2, .sequence_regions = FALSE) },
  { "zb-h1-zero-2", SMALL_GQA, 0, 16, 4, 1, LAYOUT (.pipeline = 2, .ring = 2, .tensor = 2, .zero = 2, .schedule = ZB_H1) },
  { "dualpipe-zero-1", SMALL_SOFTMAX, 0, 16, 8, 1, LAYOUT (.pipeline = 2, .data = 2, .zero = 1, .schedule = DUALPIPE) },
};
/* clang-format on */

/* --- where an op stands ------------------------------------------------------------------------------------------- */

typedef struct {
  gint32 variant;
  const SpBlock *block; /* NULL: the pipeline's op */
  SpPhase phase;
  guint index;
  SpOp *op;
} Site;

static char *
site_name (const Site *site)
{
  if (site->block == NULL)
    return g_strdup_printf ("variant %d, pipeline: %s", site->variant, sp_op_name (site->op->kind));
  return g_strdup_printf ("variant %d, %s, %s op %u: %s", site->variant, sp_block_name (site->block->kind),
                          sp_phase_name (site->phase), site->index, sp_op_name (site->op->kind));
}

/* Lists of the step, rather than of a micro-batch, are those of variant 0. */
static gboolean
is_run (const Site *site)
{
  gboolean of_step =
      site->phase == SP_PHASE_OPTIMIZER || (site->phase == SP_PHASE_SYNC && !(site->op->flags & SP_OP_PER_MICRO_BATCH));

  return site->variant == 0 || !of_step;
}

static void
add_site (GArray *sites, Site site)
{
  if (is_run (&site))
    g_array_append_val (sites, site);
}

static GArray *
sites_of (SpProgram *program)
{
  GArray *sites = g_array_new (FALSE, TRUE, sizeof (Site));

  for (gint32 v = 0; v < program->n_variants; v++) {
    SpVariant *variant = &program->variants[v];

    for (guint b = 0; b < program->n_blocks; b++)
      for (SpPhase phase = 0; phase < SP_N_PHASES; phase++) {
        const SpBlock *block = &variant->blocks[b];
        const SpSegment *segment = &block->segments[phase];

        for (guint i = 0; i < segment->n; i++)
          add_site (sites, (Site){ v, block, phase, i, &program->ops[segment->first + i] });
      }
    if (program->stages > 1) {
      add_site (sites, (Site){ .variant = v, .op = &variant->pipe_send });
      add_site (sites, (Site){ .variant = v, .op = &variant->pipe_receive });
      if (variant->pipe_gather.n > 0)
        add_site (sites, (Site){ .variant = v, .op = &program->ops[variant->pipe_gather.first] });
    }
  }
  return sites;
}

/* --- mutants ------------------------------------------------------------------------------------------------------ */

typedef struct {
  SpProgram *program;
  const SpRehearsal *expected;
  guint mutants, errors, survivors;
} Trial;

static void
try_mutant (Trial *trial, const Site *site, SpOp mutant, const char *mutation)
{
  SpOp original = *site->op;
  g_autoptr (GError) error = NULL;

  *site->op = mutant;
  g_autoptr (SpRehearsal) got = sp_rehearse (trial->program, SEED, &error);
  *site->op = original;
  trial->mutants++;
  trial->errors += got == NULL;
  if (got == NULL || sp_rehearsal_difference (trial->expected, got, NULL) > ROUNDING)
    return;

  g_autofree char *name = site_name (site);
  trial->survivors++;
  g_test_message ("survives: %s, %s", name, mutation);
}

/* Autocast casts the input of each of several products; of ours, which are one, the first alone is read, and the others
 * are there for their time and memory. */
static gboolean
is_cast_of_other (const Trial *trial, const Site *site)
{
  if (site->op->kind != SP_OP_COPY || site->block == NULL)
    return FALSE;
  for (guint phase = 0; phase < SP_N_PHASES; phase++) {
    guint n;
    const SpOp *ops = sp_program_segment (trial->program, site->block, (SpPhase) phase, &n);
    for (guint i = 0; i < n; i++)
      for (guint j = 0; j < SP_MAX_IN; j++)
        if (ops[i].in[j] == site->op->out[0])
          return FALSE;
  }
  return TRUE;
}

/* What a stack does to gradients beside our kernels: bytes that are moved, and the same numbers. */
static gboolean
is_copy_in_place (const Site *site)
{
  return site->op->kind == SP_OP_COPY && site->block != NULL && site->op->in[0] == site->op->out[0];
}

/* What a checkpoint computes again although it was kept, as it runs to its end. */
static gboolean
is_there_already (const Site *site)
{
  return site->block != NULL && site->phase == SP_PHASE_RECOMPUTE && site->op->kind == SP_OP_CONTEXT &&
         site->block->buffers[site->op->out[0]].life == SP_LIFE_STASH;
}

/* What is kept gathered is there from a sequence's first slice on: the others' lists do not run. */
static gboolean
is_never_gathered (const Trial *trial, const Site *site)
{
  return trial->program->slices > 0 && site->phase == SP_PHASE_GATHER && site->block != NULL &&
         site->variant % sp_program_slices (trial->program) > 0 && !sp_block_gathers_again (site->block);
}

/* Whether `op` reads `slot`. */
static gboolean
reads (const SpOp *op, guint8 slot)
{
  for (guint i = 0; i < SP_MAX_IN; i++)
    if (op->in[i] == slot)
      return TRUE;
  return FALSE;
}

/* A sum that is computed again for the mask of a dropout alone, which does not depend on what it masks. */
static gboolean
is_for_mask (const Trial *trial, const Site *site)
{
  guint n, readers = 0, masks = 0;

  if (site->block == NULL || site->phase != SP_PHASE_RECOMPUTE)
    return FALSE;
  const SpOp *ops = sp_program_segment (trial->program, site->block, SP_PHASE_RECOMPUTE, &n);
  for (guint i = site->index + 1; i < n; i++)
    if (reads (&ops[i], site->op->out[0])) {
      readers++;
      masks += ops[i].kind == SP_OP_DROPOUT && i + 1 == n;
    }
  return readers > 0 && masks == readers;
}

/* A guard that never holds; outside a loop the step is 0. */
static void
try_removal (Trial *trial, const Site *site)
{
  SpOp mutant = *site->op;

  if (is_cast_of_other (trial, site) || is_copy_in_place (site) || is_there_already (site) ||
      is_never_gathered (trial, site) || is_for_mask (trial, site))
    return;
  mutant.guard = SP_GUARD_FIRST_STEP | SP_GUARD_NOT_FIRST_STEP;
  try_mutant (trial, site, mutant, "removed");
}

/* Pairs of operands whose exchange is no mistake. Adam: both moments start at zero and one step is run; in double the
 * parameter is the master. Muon's first momentum and update are multiples of each other. */
static const struct {
  guint8 kind;
  gboolean out;
  guint8 i, j;
} commuting[] = {
  { SP_OP_ADD, FALSE, 0, 1 },           { SP_OP_DROPOUT_BWD, FALSE, 0, 1 }, { SP_OP_ATTENTION_DELTA, FALSE, 0, 1 },
  { SP_OP_NORM_STAT_BWD, FALSE, 0, 1 }, { SP_OP_ADAM, TRUE, 1, 2 },         { SP_OP_ADAM, TRUE, 0, 3 },
  { SP_OP_MOMENTUM, TRUE, 0, 1 },       { SP_OP_DESCEND, TRUE, 0, 1 },
};

static gboolean
commutes (const SpOp *op, gboolean out, guint i, guint j)
{
  /* Of the gradient of the state alone, which reads neither K nor V. */
  if (op->kind == SP_OP_LINEAR_LOCAL_BWD && op->out[0] == 0 && !out && i == 1 && j == 2)
    return TRUE;
  for (guint c = 0; c < G_N_ELEMENTS (commuting); c++)
    if (commuting[c].kind == op->kind && commuting[c].out == out && commuting[c].i == i && commuting[c].j == j)
      return TRUE;
  return FALSE;
}

/* Any two operands of the same size. */
static void
try_swaps (Trial *trial, const Site *site)
{
  for (guint out = 0; out < 2 && site->block != NULL; out++) {
    guint n = out ? SP_MAX_OUT : SP_MAX_IN;

    for (guint i = 0; i < n; i++)
      for (guint j = i + 1; j < n; j++) {
        SpOp mutant = *site->op;
        guint8 *slots = out ? mutant.out : mutant.in, slot = slots[i];
        g_autofree char *mutation = g_strdup_printf ("%s %u and %u swapped", out ? "out" : "in", i, j);

        if (slot == 0 || slots[j] == 0 || slot == slots[j] || commutes (&mutant, out, i, j) ||
            site->block->buffers[slot].elements != site->block->buffers[slots[j]].elements)
          continue;
        slots[i] = slots[j];
        slots[j] = slot;
        try_mutant (trial, site, mutant, mutation);
      }
  }
}

/* Of ops that could also write: the kinds that always add say it for the price. What lives for one micro-batch starts
 * at zero and is written once. */
static void
try_accumulate (Trial *trial, const Site *site)
{
  SpOp mutant = *site->op;

  if ((mutant.kind != SP_OP_GEMM && mutant.kind != SP_OP_REDUCE_SCATTER) || !(mutant.flags & SP_OP_ACCUMULATE) ||
      site->block->buffers[mutant.out[0]].life != SP_LIFE_ALWAYS)
    return;
  mutant.flags &= ~(guint32) SP_OP_ACCUMULATE;
  try_mutant (trial, site, mutant, "accumulate dropped");
}

static void
try_groups (Trial *trial, const Site *site)
{
  const SpGroup *groups = trial->program->groups, *own = &groups[site->op->group];

  for (SpGroupId group = 0; group < SP_N_GROUPS && sp_op_is_communication (site->op->kind); group++) {
    SpOp mutant = *site->op;
    g_autofree char *mutation = g_strdup_printf ("over %s for %s", sp_group_name (group), sp_group_name (mutant.group));

    if (groups[group].size == own->size && groups[group].n_digits == own->n_digits &&
        memcmp (groups[group].digits, own->digits, own->n_digits) == 0)
      continue;
    mutant.group = (guint8) group;
    try_mutant (trial, site, mutant, mutation);
  }
}

/* A guard that is only dropped often does no harm: the op does nothing new, or what nobody reads. */
static void
try_guards (Trial *trial, const Site *site)
{
  static const struct {
    guint8 from, to;
    const char *mutation;
  } flips[] = {
    { SP_GUARD_NOT_FIRST, SP_GUARD_NOT_LAST, "not-last for not-first" },
    { SP_GUARD_NOT_LAST, SP_GUARD_NOT_FIRST, "not-first for not-last" },
    { SP_GUARD_FIRST_STEP, SP_GUARD_NOT_FIRST_STEP, "not-first-step for first-step" },
    { SP_GUARD_NOT_FIRST_STEP, SP_GUARD_FIRST_STEP, "first-step for not-first-step" },
    { SP_GUARD_NOT_LAST_STEP, SP_GUARD_NOT_FIRST_STEP, "not-first-step for not-last-step" },
    { SP_GUARD_VISIBLE, SP_GUARD_NOT_LAST, "not-last for visible" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (flips); i++) {
    SpOp mutant = *site->op;

    if (!(mutant.guard & flips[i].from))
      continue;
    mutant.guard = (guint8) ((mutant.guard & ~flips[i].from) | flips[i].to);
    try_mutant (trial, site, mutant, flips[i].mutation);
  }
}

/* A window that is one key shorter or not there, and a ring's step less. */
static void
try_windows (Trial *trial, const Site *site)
{
  SpOp mutant = *site->op;

  if (mutant.guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS)) {
    mutant.reach--;
    try_mutant (trial, site, mutant, "reach one less");
  }
  mutant = *site->op;
  if (mutant.window == 0 || (mutant.kind != SP_OP_ATTENTION && mutant.kind != SP_OP_ATTENTION_BWD &&
                             mutant.kind != SP_OP_SOFTMAX))
    return;
  mutant.window--;
  try_mutant (trial, site, mutant, "window one less");
  mutant.window = 0;
  try_mutant (trial, site, mutant, "window dropped");
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

typedef void (*Try) (Trial *trial, const Site *site);

static void
try_all (const RehearseCase *c, const Try *tries, guint n_tries)
{
  const RehearseCase alone = rehearse_case_alone (c);
  g_autoptr (SpProgram) program = sp_program_new (), reference = sp_program_new ();
  g_autoptr (GError) error = NULL;

  rehearse_case_write (&alone, reference);
  rehearse_case_write (c, program);
  g_autoptr (SpRehearsal) expected = sp_rehearse (reference, SEED, &error);
  g_assert_no_error (error);
  g_autoptr (SpRehearsal) unspoilt = sp_rehearse (program, SEED, &error);
  g_assert_no_error (error);
  g_assert_cmpfloat (sp_rehearsal_difference (expected, unspoilt, NULL), <=, ROUNDING);

  g_autoptr (GArray) sites = sites_of (program);
  Trial trial = { .program = program, .expected = expected };
  for (guint t = 0; t < n_tries; t++)
    for (guint i = 0; i < sites->len; i++)
      tries[t](&trial, &g_array_index (sites, Site, i));
  g_test_message ("%u ops, %u mutants: %u errors, %u differences, %u survivors", sites->len, trial.mutants,
                  trial.errors, trial.mutants - trial.errors - trial.survivors, trial.survivors);
  g_assert_cmpuint (trial.mutants, >, 0);
  g_assert_cmpuint (trial.survivors, ==, 0);
}

static void
test_remove (gconstpointer data)
{
  const Try tries[] = { try_removal };

  try_all (data, tries, G_N_ELEMENTS (tries));
}

static void
test_spoil (gconstpointer data)
{
  const Try tries[] = { try_removal, try_swaps, try_accumulate, try_groups, try_guards, try_windows };

  try_all (data, tries, G_N_ELEMENTS (tries));
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < G_N_ELEMENTS (programs); i++) {
    g_autofree char *path = g_strdup_printf ("/mutation/spoil/%s", programs[i].name);
    g_test_add_data_func (path, &programs[i], test_spoil);
  }
  for (guint i = 0; i < G_N_ELEMENTS (rehearse_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/mutation/remove/%s", rehearse_cases[i].name);
    g_test_add_data_func (path, &rehearse_cases[i], test_remove);
  }
  return g_test_run ();
}
