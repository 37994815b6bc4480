/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

#include <string.h>

/* Kinds of blocks: one file under layers/ and one row. */
static void (*const block_writers[SP_N_BLOCK_KINDS]) (SpWriter *w) = {
  [SP_BLOCK_EMBEDDING] = sp_write_embedding,
  [SP_BLOCK_SOFTMAX] = sp_write_softmax_layer,
  [SP_BLOCK_LINEAR] = sp_write_linear_layer,
  [SP_BLOCK_HEAD] = sp_write_head,
};

static const guint8 block_of_mixer[] = {
  [SP_LAYER_SOFTMAX] = SP_BLOCK_SOFTMAX,
  [SP_LAYER_LINEAR] = SP_BLOCK_LINEAR,
};

/* --- recompute ---------------------------------------------------------------------------------------------------- */

typedef struct {
  guint8 needed[SP_MAX_SLOTS];  /* root slots whose contents have to be rebuilt */
  guint8 dropped[SP_MAX_SLOTS]; /* what is not there any more when the backward begins */
  guint8 root[SP_MAX_SLOTS];
  guint8 keep[512]; /* ops of the forward list */
} Rebuild;

static void
begin_rebuild (const SpBlock *block, Rebuild *r, guint n_ops)
{
  g_assert (n_ops <= G_N_ELEMENTS (r->keep));
  memset (r->keep, 0, n_ops);
  r->root[0] = r->needed[0] = r->dropped[0] = 0;
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    const SpBuffer *buffer = &block->buffers[slot];
    gboolean rebuilt = buffer->life == SP_LIFE_REBUILT;
    r->root[slot] = buffer->alias ? buffer->alias : slot;
    r->dropped[slot] = rebuilt | (buffer->life == SP_LIFE_SEGMENT);
    r->needed[slot] = rebuilt & (block->first_use[1][slot] != 0);
  }
}

/* Of a kept op everything is needed; what is accumulated into was started by an earlier op. */
static void
keep_op (Rebuild *r, const SpOp *op, guint index)
{
  r->keep[index] = 1;
  for (guint i = 0; i < SP_MAX_IN; i++)
    r->needed[r->root[op->in[i]]] |= r->dropped[r->root[op->in[i]]];
  for (guint i = 0; i < SP_MAX_OUT; i++)
    r->needed[r->root[op->out[i]]] |= r->dropped[r->root[op->out[i]]];
}

/* A loop is run whole or not at all, from what its carries start from. */
static void
keep_loop (const SpBlock *block, Rebuild *r, const SpOp *ops, guint loop_number)
{
  const SpLoop *loop = &block->loops[loop_number - 1];

  for (guint i = loop->first; i < loop->end; i++)
    keep_op (r, &ops[i], i);
  for (guint i = 0; i < loop->n_carries; i++)
    r->needed[r->root[loop->carries[i].init]] |= r->dropped[r->root[loop->carries[i].init]];
}

/* A framework that runs what it recomputes to its end runs all of a layer, or of an unfused attention core where that is
 * what selective means. Not of one that ranks of a sequence share: messages would go again for nothing. */
static gboolean
runs_core (const SpWriter *w, const SpOp *ops, guint n)
{
  gboolean is_shared = FALSE;

  for (guint i = 0; i < n; i++)
    is_shared |= ops[i].flags & SP_OP_CORE && (ops[i].loop != 0 || sp_op_is_communication (ops[i].kind));
  return w->framework->recompute_whole && w->framework->selective_attention && !w->framework->fused_attention &&
         w->recompute == SP_RECOMPUTE_SELECTIVE && !is_shared;
}

static gboolean
runs_whole (const SpOp *op, gboolean layer, gboolean core)
{
  return (core && op->flags & SP_OP_CORE) || (layer && op->out[0] != SP_SLOT_Y && op->kind != SP_OP_TO_HOST);
}

/* Marks the forward ops that rebuild what the backward reads and was dropped: walks back from what is needed. */
static guint
mark (const SpWriter *w, Rebuild *r)
{
  const SpBlock *block = w->block;
  const SpSegment *forward = &block->segments[SP_PHASE_FORWARD];
  const SpOp *ops = w->program->ops + forward->first;
  gboolean whole = w->framework->recompute_whole && w->recompute == SP_RECOMPUTE_FULL;
  gboolean core = runs_core (w, ops, forward->n);
  guint kept = 0;

  begin_rebuild (block, r, forward->n);
  for (guint i = forward->n; i-- > 0;) {
    guint wanted = r->keep[i];
    for (guint j = 0; j < SP_MAX_OUT; j++)
      wanted |= r->needed[r->root[ops[i].out[j]]];
    /* What a neighbour would have to send again has to be kept: see the linear layers' state. */
    g_assert (whole || !wanted || ops[i].kind != SP_OP_RECEIVE);
    wanted |= runs_whole (&ops[i], whole, core);
    if (!wanted)
      continue;
    if (ops[i].loop)
      keep_loop (block, r, ops, ops[i].loop);
    else
      keep_op (r, &ops[i], i);
  }
  for (guint i = 0; i < forward->n; i++)
    kept += r->keep[i];
  return kept;
}

/* Uses in RECOMPUTE count before those in BACKWARD. */
static void
note_recompute_uses (SpBlock *block, const Rebuild *r, const SpOp *op, guint16 index)
{
  for (guint i = 0; i < SP_MAX_IN + SP_MAX_OUT; i++) {
    guint8 root = r->root[i < SP_MAX_IN ? op->in[i] : op->out[i - SP_MAX_IN]];
    guint16 first = block->first_use[1][root];
    block->first_use[1][root] = first == 0 || first > index ? index : first;
    block->last_use[1][root] = MAX (block->last_use[1][root], index);
  }
}

static void
copy_loops (SpBlock *block, const guint8 *keep, guint fetches, guint8 *ret_loop_map)
{
  guint n = block->n_loops;

  for (guint l = 0; l < n; l++) {
    SpLoop loop = block->loops[l];
    if (loop.phase != SP_PHASE_FORWARD || !keep[loop.first])
      continue;
    guint16 before = (guint16) fetches;
    for (guint i = 0; i < loop.first; i++)
      before += keep[i];
    loop.end = before + (loop.end - loop.first);
    loop.first = before;
    loop.phase = SP_PHASE_RECOMPUTE;
    g_assert (block->n_loops < SP_MAX_LOOPS);
    block->loops[block->n_loops++] = loop;
    ret_loop_map[l + 1] = block->n_loops;
  }
}

/* Waits of FORWARD, of what is there again: those that no slot says, of what a loop starts from, are its own. */
static void
map_waits (const Rebuild *r, guint fetches, SpOp *op)
{
  guint16 waits[G_N_ELEMENTS (op->wait)] = { 0 };
  guint n = 0;

  for (guint i = 0; i < G_N_ELEMENTS (op->wait) && op->wait[i] != 0; i++) {
    if (!r->keep[op->wait[i] - 1])
      continue;
    waits[n] = (guint16) fetches;
    for (guint j = 0; j < op->wait[i]; j++)
      waits[n] += r->keep[j];
    n++;
  }
  memcpy (op->wait, waits, sizeof op->wait);
}

static void
write_recompute (SpWriter *w)
{
  SpBlock *block = w->block;
  SpSegment forward = block->segments[SP_PHASE_FORWARD];
  guint8 loop_map[SP_MAX_LOOPS + 1] = { 0 };
  Rebuild r;

  sp_write_begin (w, SP_PHASE_RECOMPUTE);
  guint kept = w->recompute == SP_RECOMPUTE_NONE ? 0 : mark (w, &r);
  guint fetches = w->offloaded != 0;
  kept += fetches;
  if (kept > 0) {
    for (guint slot = 1; slot < block->n_buffers; slot++)
      if (block->last_use[1][slot]) { /* what only starts a carry has a last use alone */
        block->first_use[1][slot] += block->first_use[1][slot] ? kept : 0;
        block->last_use[1][slot] += kept;
      }
    if (sp_offload_fetch_input (w) > 0)
      note_recompute_uses (block, &r, &w->program->ops[w->program->n_ops - 1], 1);
    copy_loops (block, r.keep, fetches, loop_map);
    for (guint i = 0; i < forward.n; i++)
      if (r.keep[i]) {
        SpOp copy = w->program->ops[forward.first + i];
        SpOp *op = sp_write_op (w, copy.kind);
        *op = copy;
        op->loop = loop_map[copy.loop];
        map_waits (&r, fetches, op);
        sp_write_op_done (w, op);
        note_recompute_uses (block, &r, op, (guint16) (w->program->n_ops - w->segment_start));
      }
    for (guint i = 0; i < block->n_loops; i++)
      if (block->loops[i].phase == SP_PHASE_RECOMPUTE)
        sp_write_loop_uses (block, &block->loops[i]);
  }
  sp_write_end (w);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Of latent attention every head has keys and values of its own. */
static void
set_heads (SpWriter *w)
{
  const SpLatentShape *latent = &w->arch->latent;
  gboolean is_latent = w->block->kind == SP_BLOCK_SOFTMAX && latent->kv_rank > 0;

  w->kv_heads = (is_latent ? w->arch->heads : w->arch->kv_heads) / w->layout->tensor;
  w->head_size = is_latent ? latent->nope_size + latent->rope_size : w->arch->head_size;
  w->value_size = is_latent ? latent->value_size : w->arch->head_size;
}

static void
begin_block (SpWriter *w, guint index, SpBlockKind kind, guint traits, gboolean recomputes, SpFrozen frozen)
{
  SpBlock *block = w->block = &w->variant->blocks[index];

  memset (block, 0, G_STRUCT_OFFSET (SpBlock, loops));
  block->kind = kind;
  block->traits = w->traits = (guint8) traits;
  block->recomputes = recomputes != FALSE;
  block->frozen = (guint8) frozen;
  w->n_loras = 0;
  w->lacking = 0;
  w->recompute = recomputes ? w->layout->recompute : SP_RECOMPUTE_NONE;
  memset (block->first_use, 0, sizeof block->first_use);
  memset (block->last_use, 0, sizeof block->last_use);
  block->n_buffers = SP_SLOT_FIRST_FREE;
  for (guint8 slot = SP_SLOT_X; slot < SP_SLOT_FIRST_FREE; slot++) {
    gboolean there = slot == SP_SLOT_X || slot == SP_SLOT_DX ? kind != SP_BLOCK_EMBEDDING : kind != SP_BLOCK_HEAD;
    block->buffers[slot] = (SpBuffer){ .class = SP_CLASS_ACTIVATIONS,
                                       .dtype = sp_residual_dtype (w),
                                       .life = slot == SP_SLOT_X ? SP_LIFE_STASH : SP_LIFE_HANDOFF };
    w->slot[slot].root = slot;
    sp_write_size (w, slot, there ? (gint64) w->region_rows * w->hidden : 0);
  }

  set_heads (w);
  w->exchange = kind == SP_BLOCK_LINEAR ? SP_GROUP_ULYSSES_LINEAR : SP_GROUP_ULYSSES;
  w->slots = (SpCoreSlots){ 0 };
  w->core = kind == SP_BLOCK_SOFTMAX || kind == SP_BLOCK_LINEAR ? sp_strategy_core (w) : NULL;
  sp_offload_begin_block (w);
  sp_zero_begin_block (w);
}

/* What a backward would have read for gradients of weights that there are not. A layer's input goes as one whose copy
 * is in host memory does. */
static void
drop_unread (SpBlock *block)
{
  for (guint slot = 1; slot < block->n_buffers; slot++) {
    SpBuffer *buffer = &block->buffers[slot];
    gboolean is_kept = buffer->life == SP_LIFE_STASH || buffer->life == SP_LIFE_REBUILT;
    if (is_kept && !buffer->host && block->last_use[1][slot] == 0)
      buffer->life = slot == SP_SLOT_X ? SP_LIFE_REBUILT : SP_LIFE_SEGMENT;
  }
  for (guint slot = 1; slot < block->n_buffers; slot++)
    if (block->buffers[slot].alias)
      block->buffers[slot].life = block->buffers[block->buffers[slot].alias].life;
}

/* What an async op uses it uses until it is over. */
static void
note_uses_beside (SpWriter *w)
{
  static const SpPhase phases[] = { SP_PHASE_FORWARD, SP_PHASE_RECOMPUTE, SP_PHASE_BACKWARD };
  SpBlock *block = w->block;

  for (guint p = 0; p < G_N_ELEMENTS (phases); p++) {
    guint n, list = phases[p] != SP_PHASE_FORWARD;
    const SpOp *ops = sp_program_segment (w->program, block, phases[p], &n);
    guint offset = phases[p] == SP_PHASE_BACKWARD ? block->segments[SP_PHASE_RECOMPUTE].n : 0;
    for (guint i = 0; i < n; i++) {
      guint last = sp_block_last_beside (w->program, block, phases[p], i, 0, 0);
      for (guint j = 0; last > i && j < SP_MAX_IN + SP_MAX_OUT; j++) {
        guint8 slot = j < SP_MAX_IN ? ops[i].in[j] : ops[i].out[j - SP_MAX_IN], root = w->slot[slot].root;
        if (slot != 0)
          block->last_use[list][root] = MAX (block->last_use[list][root], (guint16) (offset + last + 1));
      }
    }
  }
}

static void
write_block (SpWriter *w, guint index, SpBlockKind kind, guint traits, gboolean recomputes, SpFrozen frozen)
{
  begin_block (w, index, kind, traits, recomputes, frozen);
  block_writers[kind](w);
  w->most_slots = MAX (w->most_slots, w->block->n_buffers + w->lacking - 1);
  if (w->state_only || w->lacking > 0)
    return;
  write_recompute (w);
  note_uses_beside (w);
  if (frozen)
    drop_unread (w->block);
}

static void
write_variant (SpWriter *w, SpVariant *variant)
{
  const SpProgram *program = w->program;
  gint32 regions = program->sequence_regions ? w->layout->tensor : 1;
  guint blocks = program->n_blocks;

  w->variant = variant;
  w->batch = variant->batch;
  w->rows = (gint32) (sp_program_local_tokens (program, variant) * w->batch);
  w->region_rows = w->rows / regions;
  sp_pipeline_write (w);
  write_block (w, 0, SP_BLOCK_EMBEDDING, 0, FALSE, sp_run_frozen_embedding (w->run));
  for (guint i = 1; i + 1 < blocks; i++) {
    const SpBlock *frame = &program->variants[0].blocks[i];
    write_block (w, i, frame->kind, frame->traits, frame->recomputes, frame->frozen);
  }
  write_block (w, blocks - 1, SP_BLOCK_HEAD, 0, FALSE, sp_run_frozen_head (w->run));
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void
write_numbers (SpProgram *program, const SpArchitecture *arch, const SpRun *run)
{
  program->numbers = (SpNumbers){
    .norm_epsilon = arch->norm_epsilon,
    .rope_theta = arch->rope_theta,
    .dropout = arch->dropout,
    .learning_rate = 1e-3,
    .adam_beta1 = 0.9,
    .adam_beta2 = 0.95,
    .adam_epsilon = 1e-8,
    .muon_momentum = run->optimizer == SP_OPTIMIZER_MUON ? 0.95 : 0,
    .heads = arch->heads,
    .kv_heads = arch->kv_heads,
    .head_size = arch->head_size,
    .linear_heads = sp_architecture_linear (arch).heads,
    .hidden = arch->hidden,
    .vocabulary = arch->vocabulary,
    .position_offset = arch->position_offset,
  };
}

static void
write_stages (SpProgram *program, const SpArchitecture *arch, const SpLayout *layout)
{
  gint32 n = sp_layout_virtual_stages (layout);

  if ((guint) n + 1 > program->stages_capacity) {
    program->stages_capacity = n + 1;
    program->stage_first = g_renew (gint32, program->stage_first, program->stages_capacity);
  }
  program->stages = layout->pipeline;
  program->chunks = sp_layout_chunks (layout);
  sp_layout_write_stages (layout, arch, program->stage_first);
}

/* A block for each kind of layer that the model has, and of those, recomputed or not and frozen or not, that there are,
 * in the order of first appearance. */
static void
write_layers (SpProgram *program, const SpArchitecture *arch, const SpLayout *layout, const SpRun *run)
{
  guint8 block_of[SP_N_LAYER_KINDS][2][SP_N_FROZENS] = { { { 0 } } };
  const guint8 *kinds = arch->layer_kind;
  gboolean by_kind = sp_run_freezes_alike (run) && sp_layout_recomputes_alike (layout);
  gint32 stage = 0;

  if ((guint) arch->layers > program->layers_capacity) {
    program->layers_capacity = arch->layers;
    program->layer_block = g_renew (guint8, program->layer_block, program->layers_capacity);
  }
  program->n_layers = arch->layers;
  program->n_blocks = 1;
  for (gint32 l = 0; l < arch->layers; l++) {
    if (by_kind && l > 0 && kinds[l] == kinds[l - 1]) { /* as a search asks of every layout */
      program->layer_block[l] = program->layer_block[l - 1];
      continue;
    }
    stage += !by_kind && l == program->stage_first[stage + 1];
    SpFrozen frozen = sp_run_frozen_layer (run, l);
    gboolean recomputes =
        frozen != SP_FROZEN_FORWARD_ONLY && sp_layout_recomputes (layout, l - program->stage_first[stage]);
    guint8 kind = kinds[l], *block = &block_of[kind][recomputes][frozen];
    if (*block == 0) {
      g_assert (program->n_blocks + 1 < SP_MAX_BLOCKS);
      SpBlock *frame = &program->variants[0].blocks[program->n_blocks];
      frame->kind = block_of_mixer[sp_layer_mixer (kind)];
      frame->traits = kind & ~SP_LAYER_MIXER;
      frame->recomputes = recomputes != FALSE;
      frame->frozen = (guint8) frozen;
      *block = program->n_blocks++;
    }
    program->layer_block[l] = *block;
  }
  program->n_blocks++;
}

/* The last micro-batch takes what is left, spread over the replicas; where that does not come out even, some replicas
 * pad. */
static gint32
last_batch (const SpLayout *layout, const SpRun *run, gint32 micro_batches)
{
  gint32 left = run->global_batch - (micro_batches - 1) * layout->data * run->micro_batch;

  return (left + layout->data - 1) / layout->data;
}

/* The full micro-batch, or its slices, and the smaller last one or its. */
static void
write_variants (SpProgram *program, const SpLayout *layout, const SpRun *run)
{
  gint32 last = last_batch (layout, run, program->micro_batches), slices = layout->slices;

  program->slices = slices > 1 ? slices : 0;
  sp_program_set_variants (program, last == run->micro_batch ? slices : 2 * slices);
  for (gint32 i = 0; i < program->n_variants; i++) {
    SpVariant *variant = &program->variants[i];
    gint32 slice = i % slices;
    variant->batch = i < slices ? run->micro_batch : last;
    variant->tokens = slices > 1 ? sp_layout_slice_tokens (layout, run, slice) : 0;
    variant->first = slice > 0 ? variant[-1].first + variant[-1].tokens : 0;
  }
}

void
sp_program_write_frame (SpProgram *program, const SpArchitecture *arch, const SpLayout *layout, const SpRun *run)
{
  sp_layout_write_ranks (layout, arch, program);
  program->sequence = run->sequence;
  program->local_sequence = run->sequence / sp_layout_sequence_ranks (layout, arch);
  program->token_split = layout->ring > 1 ? layout->token_split : SP_TOKENS_CONTIGUOUS;
  program->sequence_regions = layout->sequence_regions && layout->tensor > 1;
  program->offloads = 0;
  program->zero_stage = program->groups[SP_GROUP_ZERO].size > 1 ? (guint8) layout->zero : 0;
  program->global_batch = run->global_batch;
  program->micro_batches = sp_layout_micro_batches (layout, run);
  program->schedule = layout->schedule;
  program->scope = run->scope;
  sp_program_set_documents (program, run->packing ? run->packing->runs : NULL, run->packing ? run->packing->n_runs : 0);
  write_numbers (program, arch, run);
  if (arch->moe.experts > 0) {
    program->numbers.expert_imbalance = layout->expert_capacity > 0 ? 1 : sp_layout_expert_load (layout, run);
    program->numbers.expert_dropped = sp_layout_expert_dropped (layout, arch, run);
  }
  write_stages (program, arch, layout);
  write_layers (program, arch, layout, run);

  write_variants (program, layout, run);
}

static SpWriter
make_writer (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout,
             const SpRun *run)
{
  return (SpWriter){ .program = program,
                     .arch = arch,
                     .framework = framework,
                     .layout = layout,
                     .run = run,
                     .hidden = arch->hidden,
                     .heads = arch->heads / layout->tensor,
                     .ffn = arch->ffn / layout->tensor,
                     .expert_ffn = arch->moe.ffn / layout->tensor,
                     .shared_ffn = arch->moe.shared_ffn / layout->tensor,
                     .vocabulary = (arch->vocabulary + layout->tensor - 1) / layout->tensor,
                     .dtype = run->precision };
}

void
sp_program_write (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework, const SpLayout *layout,
                  const SpRun *run)
{
  SpWriter w = make_writer (program, arch, framework, layout, run);

  program->n_ops = 0;
  sp_program_write_frame (program, arch, layout, run);
  for (gint32 v = 0; v < program->n_variants; v++)
    write_variant (&w, &program->variants[v]);
  g_assert (w.most_slots < SP_MAX_SLOTS);
}

guint
sp_program_count_slots (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework,
                        const SpLayout *layout, const SpRun *run)
{
  SpWriter w = make_writer (program, arch, framework, layout, run);

  program->n_ops = 0;
  sp_program_write_frame (program, arch, layout, run);
  write_variant (&w, &program->variants[0]);
  return w.most_slots;
}

void
sp_program_write_state (SpProgram *program, const SpArchitecture *arch, const SpFramework *framework,
                        const SpLayout *layout, const SpRun *run)
{
  SpWriter w = make_writer (program, arch, framework, layout, run);

  program->n_ops = 0;
  w.state_only = TRUE;
  sp_program_write_frame (program, arch, layout, run);
  write_variant (&w, &program->variants[0]);
  g_assert (w.most_slots < SP_MAX_SLOTS);
}
