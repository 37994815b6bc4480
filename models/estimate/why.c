/* SPDX-License-Identifier: Apache-2.0 */
#include "models/estimate/block-cost.h"
#include "models/estimate/clock.h"
#include "models/estimate/memory.h"
#include "models/inputs/profile.h"
#include "models/trained.h"
#include "sim/op-place.h"
#include "sim/schedules.h"
#include "sim/words.h"

/* `--why`: every term of the estimate with its formula, its source and its value. Lines of at most 140 columns. */

static void
quantity (GString *out, const char *name, const SpQuantity *q, double scale, const char *unit)
{
  g_string_append_printf (out, "  %-28s %12.6g %-9s %s: %s\n", name, q->value / scale, unit,
                          sp_provenance_name (q->provenance), q->source ? q->source : "no source");
}

static void
profiles (const SpEstimator *e, GString *out)
{
  const SpCluster *c = e->cluster;
  const SpDevice *d = c->device;
  const SpFramework *f = e->framework;

  g_string_append_printf (out, "Device %s\n", d->name);
  quantity (out, "peak bf16", &d->peak_bf16_flops_per_s, 1e12, "TFLOP/s");
  quantity (out, "gemm efficiency", &d->gemm_efficiency, 1, "");
  if (d->unaligned_efficiency.value > 0)
    quantity (out, "unaligned efficiency", &d->unaligned_efficiency, 1, "of that");
  quantity (out, "attention efficiency", &d->attention_efficiency, 1, "");
  quantity (out, "attention backward eff.", &d->attention_backward_efficiency, 1, "");
  quantity (out, "linear attention efficiency", &d->linear_efficiency, 1, "");
  quantity (out, "memory rate", &d->memory_bytes_per_s, 1e9, "GB/s");
  quantity (out, "memory efficiency", &d->memory_efficiency, 1, "");
  quantity (out, "memory", &d->memory_bytes, 1073741824.0, "GiB");
  quantity (out, "SMs", &d->sms, 1, "");
  quantity (out, "launch", &d->launch_s, 1e-6, "us");
  quantity (out, "overlap slowdown", &d->overlap_slowdown, 1, "");
  quantity (out, "link rate", &d->link_bytes_per_s, 1e9, "GB/s");
  g_string_append_printf (out, "Cluster %s: %d node%s of %d\n", c->name, c->nodes, sp_plural (c->nodes),
                          c->gpus_per_node);
  quantity (out, "link efficiency", &c->link_efficiency, 1, "");
  quantity (out, "link latency", &c->link_latency_s, 1e-6, "us");
  if (c->nodes > 1) {
    quantity (out, "NICs a node", &c->nics, 1, "");
    quantity (out, "NIC rate", &c->nic_bytes_per_s, 1e9, "GB/s");
    quantity (out, "network efficiency", &c->network_efficiency, 1, "");
    quantity (out, "network latency", &c->network_latency_s, 1e-6, "us");
  }
  g_string_append_printf (out, "Framework %s: %s attention, host %s\n", f->name,
                          f->fused_attention ? "fused" : "unfused", f->host_eager ? "eager" : "out of the way");
  quantity (out, "host launch", &f->host_launch_s, 1e-6, "us");
  if (f->host_gather_s.value > 0)
    quantity (out, "host gather", &f->host_gather_s, 1e-6, "us");
  if (f->host_step_s.value > 0)
    quantity (out, "host step", &f->host_step_s, 1, "s");
  if (f->elementwise_time.value > 0)
    quantity (out, "elementwise time", &f->elementwise_time, 1, "of fused kernels'");
  if (f->merge_time.value > 0)
    quantity (out, "merge time", &f->merge_time, 1, "of a fused kernel's");
  if (f->pack_time.value > 0)
    quantity (out, "pack time", &f->pack_time, 1, "of one copy's");
  if (f->softmax_time.value > 0)
    quantity (out, "softmax time", &f->softmax_time, 1, "of a fused kernel's");
  if (f->attention_time.value > 0)
    quantity (out, "attention time", &f->attention_time, 1, "of the curve's or the device's");
  if (f->gemm_time.value > 0)
    quantity (out, "GEMM time", &f->gemm_time, 1, "of the curve's or the device's");
  if (f->optimizer_time.value > 0)
    quantity (out, "optimizer time", &f->optimizer_time, 1, "of a fused kernel's");
  if (f->collective_wait_s.value > 0)
    quantity (out, "collective wait", &f->collective_wait_s, 1e-6, "us");
  if (f->host_slot_s.value > 0)
    quantity (out, "host slot", &f->host_slot_s, 1e-3, "ms a slot of a pipeline");
  if (f->host_stall.value > 0)
    quantity (out, "host stall", &f->host_stall, 0.01, "% a rank");
  if (f->rank_wait_s.value > 0)
    quantity (out, "rank wait", &f->rank_wait_s, 1e-6, "us a rank");
  if (f->network_wait_s.value > 0)
    quantity (out, "network wait", &f->network_wait_s, 1e-6, "us a rank");
  if (f->shard_time.value > 0)
    quantity (out, "shard time", &f->shard_time, 1, "of a transfer's");
  if (f->shard_copies.value > 0)
    quantity (out, "shard copies", &f->shard_copies, 1, "bytes a parameter");
  if (f->linear_time.value > 0)
    quantity (out, "linear time", &f->linear_time, 1, "of the curve's or the device's");
  if (f->linear_backward_time.value > 0)
    quantity (out, "linear backward time", &f->linear_backward_time, 1, "of the curve's or the device's");
  if (f->attention_causal_time.value > 0)
    quantity (out, "attention causal time", &f->attention_causal_time, 1, "of kernels without a mask");
  if (f->attention_head_power.value > 0)
    quantity (out, "attention head power", &f->attention_head_power, 1, "of head size / 128");
  if (f->run_ahead.value > 0)
    quantity (out, "run ahead", &f->run_ahead, 1, "kernels");
  if (f->crowded_time.value > 0)
    quantity (out, "crowded time", &f->crowded_time, 1, "of a step with room for that");
  if (f->workspace_bytes.value > 0)
    quantity (out, "workspace", &f->workspace_bytes, 1073741824.0, "GiB");
  quantity (out, "reserved", &f->reserved_bytes, 1073741824.0, "GiB");
  quantity (out, "allocator slack", &f->allocator_slack, 1, "");
}

static void
paths (const SpCost *cost, GString *out)
{
  g_string_append (
      out,
      "Groups (ring rate = min (link, members in a node x the GPU's share of the NICs); send = the slowest hop)\n");
  for (guint g = 1; g < SP_N_GROUPS; g++) {
    const SpPath *p = &cost->paths[g];
    if (p->size == 1)
      continue;
    g_string_append_printf (out,
                            "  %-16s %5d ranks, %d a node over %d node%s: "
                            "ring %.4g GB/s, send %.4g GB/s, ring steps %.4g us, hop %.4g us\n",
                            sp_group_name (g), p->size, p->per_node, p->nodes, sp_plural (p->nodes),
                            p->ring_bytes_per_s / 1e9, p->send_bytes_per_s / 1e9,
                            (p->ring_latency_link_s + p->ring_latency_network_s) * 1e6, p->hop_latency_s * 1e6);
  }
}

/* Which of the kernel's two terms it is, and the formula with its numbers. */
static void
op_formula (const SpCost *cost, const SpOp *op, GString *out)
{
  if (sp_op_is_communication (op->kind)) {
    g_string_append_printf (out, "payload %.6g MB over %s, wire %.6g MB", op->bytes / 1e6, sp_group_name (op->group),
                            sp_cost_wire_bytes (cost, op) / 1e6);
    return;
  }
  double memory = op->bytes * (op->kind == SP_OP_GEMM ? cost->gemm_s_per_byte : cost->s_per_byte);
  double all = sp_cost_op (cost, op) - cost->kernel_launch_s[op->kind];
  if (op->flops > 0 && all > memory)
    g_string_append_printf (out, "launch + %.6g GFLOP / (peak e)", op->flops / 1e9);
  else
    g_string_append_printf (out, "launch + %.6g MB / (rate e)", op->bytes / 1e6);
  if (op->kind == SP_OP_GEMM)
    g_string_append_printf (out, ", shape reaches %.1f %%",
                            100 * sp_cost_gemm_use (cost, op->batch, op->m, op->n, op->k));
}

/* Where it takes another time at an end of its group. */
static void
op_ends (const SpCost *cost, const SpOp *op, GString *out)
{
  static const char *const names[] = { "first", "last" };
  gint32 size = cost->paths[op->group].size;

  for (guint i = 0; i < G_N_ELEMENTS (names) && !sp_op_is_communication (op->kind); i++) {
    gint32 place = i == 0 ? 0 : size - 1;
    double seconds = sp_cost_op_at (cost, op, place);
    if (sp_guard_holds (op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST), place, size, 0, 1) &&
        seconds != sp_cost_op (cost, op))
      g_string_append_printf (out, "; on the %s %.3f us", names[i], seconds * 1e6);
  }
}

static void
op_line (const SpCost *cost, const SpBlock *block, const SpOp *op, GString *out)
{
  g_autofree char *dims = op->m ? g_strdup_printf ("%dx%dx%d", op->m, op->n, op->k) : g_strdup ("");

  g_string_append_printf (out, "    %-20s %-22s %11.3f us  ", sp_op_name (op->kind), dims, sp_cost_op (cost, op) * 1e6);
  op_formula (cost, op, out);
  if (op->loop)
    g_string_append_printf (out, "; in a loop of %d steps%s%s%s", block->loops[op->loop - 1].steps,
                            op->guard & SP_GUARD_FIRST_STEP ? ", the first" : "",
                            op->guard & SP_GUARD_NOT_FIRST_STEP ? ", all but the first" : "",
                            op->guard & SP_GUARD_NOT_LAST_STEP ? ", all but the last" : "");
  if (op->guard & (SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS))
    g_string_append_printf (out, ", within %d%s", op->reach, op->guard & SP_GUARD_NEAR_ENDS ? " of either end" : "");
  if (op->flags & SP_OP_ASYNC)
    g_string_append (out, "; beside compute");
  op_ends (cost, op, out);
  if (op->guard & SP_GUARD_NOT_FIRST)
    g_string_append (out, "; not on the first place");
  if (op->guard & SP_GUARD_NOT_LAST)
    g_string_append (out, "; not on the last place");
  g_string_append_c (out, '\n');
}

static void
list (const SpCost *cost, const SpProgram *program, const SpBlock *block, SpPhase phase, GString *out)
{
  guint n;
  const SpOp *ops = sp_program_segment (program, block, phase, &n);
  SpListTime time;
  SpCost at = *cost;

  if (n == 0)
    return;
  at.clock = sp_clock_of (cost, phase, 0);
  sp_block_list_time (&at, program, block, phase, 0, 0, &time);
  g_string_append_printf (out, "  %s: step %.6g ms, serial %.6g ms, kernels %.6g ms", sp_phase_name (phase),
                          time.step * 1e3, time.serial * 1e3, time.compute * 1e3);
  if (time.data_async > 0)
    g_string_append_printf (out, ", beside the neighbours %.6g ms", time.data_async * 1e3);
  if (time.host > 0)
    g_string_append_printf (out, ", waiting for the host %.6g ms", time.host * 1e3);
  if (time.chain > 0)
    g_string_append_printf (out, ", the chain's last place starts %.6g ms late", time.chain * 1e3);
  g_string_append_c (out, '\n');
  for (guint i = 0; i < n; i++)
    op_line (&at, block, &ops[i], out);
}

static void
blocks (const SpCost *cost, const SpProgram *program, GString *out)
{
  if (program->slices > 0)
    g_string_append_printf (out, "Of %d slices the first, which keeps the keys and values of all:\n", program->slices);
  for (guint b = 0; b < program->n_blocks; b++) {
    const SpBlock *block = &program->variants[0].blocks[b];
    guint times = b == 0 || b == program->n_blocks - 1;
    for (guint l = 0; l < program->n_layers; l++)
      times += program->layer_block[l] == b;
    g_string_append_printf (out, "Block %s%s%s, %u in the model: always %.6g MiB, stash a micro-batch %.6g MiB\n",
                            sp_block_name (block->kind), block->recomputes ? ", recomputed" : "",
                            block->frozen ? ", frozen" : "", times, sp_memory_block_always (program, block) / 1048576.0,
                            sp_memory_block_stash (block) / 1048576.0);
    for (guint phase = 0; phase < SP_N_PHASES; phase++)
      list (cost, program, block, phase, out);
  }
}

static void
clock_line (const SpCost *cost, gint32 gpus, GString *out)
{
  if (cost->power == NULL)
    return;
  const SpQuantity *value = cost->power->value;
  g_string_append_printf (out,
                          "  kernels of the work at %.3f of the highest clock: %.4g W + %.4g pJ a FLOP x clock^2 + ",
                          cost->clocks[0], value[SP_POWER_IDLE].value, value[SP_POWER_FLOP].value * 1e12);
  g_string_append_printf (out, "%.4g pJ a byte stay within %.4g W\n", value[SP_POWER_BYTE].value * 1e12,
                          value[SP_POWER_LIMIT].value);
  double most = sp_clock_energy (cost->power, gpus);
  if (most > 1)
    g_string_append_printf (
        out,
        "    of %d cards the one that all wait for draws %.1f %% more than the mean: they differ by "
        "%.1f %% (standard deviation)\n",
        gpus, 100 * (most - 1), 100 * value[SP_POWER_SPREAD].value);
}

static void
schedule (const SpProgram *program, GString *out)
{
  const SpSchedule *schedule = sp_schedule_get (program->schedule);
  const SpPipeline pipeline = sp_program_pipeline (program);

  g_string_append_printf (out, "Step: %d stage%s", program->stages, sp_plural (program->stages));
  if (program->chunks > 1)
    g_string_append_printf (out, " of %d chunks", program->chunks);
  g_string_append_printf (out, ", %d micro-batch%s", program->micro_batches, program->micro_batches == 1 ? "" : "es");
  if (program->slices > 0)
    g_string_append_printf (out, " of %d slices", program->slices);
  g_string_append_printf (out, ", schedule %s", schedule->name);
  if (schedule->bubble != NULL)
    g_string_append_printf (out, " (bubble %.4g with equal stages%s)", schedule->bubble (&pipeline, 1, 1, 1),
                            program->slices > 0 ? " and slices"
                            : schedule->splits  ? " and parts"
                                                : "");
  g_string_append_c (out, '\n');
}

static void
step (const SpEstimator *e, const SpProgram *program, const SpEstimate *r, const SpRun *run, GString *out)
{
  double full, causal;

  sp_scope_flops (e->arch, program, run, e->convention, &full, &causal);
  schedule (program, out);
  clock_line (&e->cost, program->world, out);
  g_string_append_printf (
      out, "  step %.6g s = compute %.6g + exposed communication %.6g + bubble %.6g + host %.6g + idle %.6g\n",
      r->step_time_s, r->compute_s, r->exposed_communication_s, r->bubble_s, r->host_s, r->idle_s);
  g_string_append_printf (out, "  the host issues for %.6g s: bound by %s\n", r->host_issue_s,
                          r->is_host_bound ? "it" : "the GPUs");
  g_string_append_printf (out, "  low %.6g s, serial %.6g s, high %.6g s\n", r->low_s, r->serial_s, r->high_s);
  g_string_append_printf (
      out,
      "  MFU (%s) = %.6g FLOP a token x %" G_GINT64_FORMAT " tokens x %d sequence%s / (%d GPU%s x peak x step) = %.4f; "
      "causal half %.6g: %.4f\n",
      sp_mfu_names[e->convention], full, program->sequence, run->global_batch, sp_plural (run->global_batch),
      program->world, sp_plural (program->world), r->mfu, causal, r->mfu_causal);
  g_string_append_printf (out, "Memory: stage %d, %s\n", r->memory.stage, r->memory.moment);
  for (guint c = 0; c < SP_N_CLASSES; c++)
    g_string_append_printf (out, "  %-16s %12.6g MiB\n", sp_class_name (c), r->memory.by_class[c] / 1048576.0);
  g_string_append_printf (out, "  %-16s %12.6g MiB of %.6g\n", "total", r->memory.total_bytes / 1048576.0,
                          r->capacity_bytes / 1048576.0);
}

void
sp_estimate_why (SpEstimator *estimator, const SpProgram *program, const SpRun *run, GString *out)
{
  SpEstimate estimate;

  sp_estimate_program (estimator, program, run, &estimate);
  profiles (estimator, out);
  paths (&estimator->cost, out);
  blocks (&estimator->cost, program, out);
  step (estimator, program, &estimate, run, out);
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

/* From here on of the device's memory, one set of logits is worth a note. */
#define MUCH_LOGITS 0.05

static void
note_logits (const SpEstimator *e, const SpLayout *layout, const SpRun *run, GPtrArray *notes)
{
  gint32 split = layout->loss == SP_LOSS_FULL ? 1 : layout->tensor;
  gint64 tokens = 0;
  for (gint32 i = 0; i < layout->slices; i++)
    tokens = MAX (tokens, sp_layout_slice_tokens (layout, run, i));
  gint64 rows = tokens / sp_layout_sequence_ranks (layout, e->arch) * run->micro_batch;
  gint64 columns = (e->arch->vocabulary + split - 1) / split;
  guint size = e->framework->fp32_logits ? 4 : sp_dtype_bytes (run->precision);
  double bytes = (double) rows * (double) columns * size;

  if (layout->loss >= SP_LOSS_CHUNKED || bytes < MUCH_LOGITS * e->cluster->device->memory_bytes.value)
    return;
  g_ptr_array_add (notes,
                   g_strdup_printf ("logits: %" G_GINT64_FORMAT " token%s x %" G_GINT64_FORMAT
                                    " x %u bytes = %.2f GiB%s%s; loss = chunked or fused keeps those of a part of "
                                    "the tokens at a time",
                                    rows, sp_plural (rows), columns, size, bytes / 1073741824.0,
                                    e->framework->loss_copies ? ", three times in the loss" : "",
                                    split < layout->tensor ? ", vocab-parallel would split them over tensor" : ""));
}

static void
note_packing (const SpArchitecture *arch, const SpLayout *layout, const SpRun *run, GPtrArray *notes)
{
  const SpPacking *p = run->packing;
  gboolean causal = run->causal && !arch->bidirectional;
  gboolean softmax = sp_architecture_has (arch, SP_LAYER_SOFTMAX);
  double s = (double) run->sequence, whole = causal ? s * (s + 1) / 2 : s * s;
  SpPackedPairs pairs;

  sp_packing_pairs (p, run->sequence, layout->token_split, layout->ring, causal, 0, &pairs);
  g_ptr_array_add (notes, g_strdup_printf ("packing: %" G_GINT64_FORMAT
                                           " document%s of %.0f tokens on the average, %" G_GINT64_FORMAT
                                           " at most; a token's is %.0f long, so attention has %.2f %% of "
                                           "the pairs of whole sequences, the fullest sequence %.2f times the mean's",
                                           p->documents, sp_plural (p->documents),
                                           (double) p->tokens / (double) p->documents, p->longest,
                                           sp_packing_keys (p, run->sequence), 100 * pairs.all / whole, pairs.fullest));
  if (softmax && layout->ring > 1)
    g_ptr_array_add (notes,
                     g_strdup_printf ("packing: over the ring's steps the slowest place does %.2f times the mean's "
                                      "pairs; a zigzag of each document, which would even them out, is not "
                                      "available yet",
                                      (pairs.home + pairs.away) * layout->ring / pairs.all));
  if (sp_architecture_has (arch, SP_LAYER_LINEAR))
    g_ptr_array_add (notes, g_strdup ("packing: that the state of a linear layer starts anew with each document costs "
                                      "nothing"));
}

static void
note_trained (const SpArchitecture *arch, const SpRun *run, SpMfuConvention convention, GPtrArray *notes)
{
  gint64 trained = sp_run_trained_parameters (run, arch), all = sp_architecture_parameters (arch);

  all += run->lora_rank > 0 ? trained : 0;
  double percent = 100.0 * (double) trained / (double) all;
  g_ptr_array_add (notes,
                   g_strdup_printf ("%s%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                                    " parameters are trained (%.2f %%); MFU counts %s",
                                    run->lora_rank > 0 ? "LoRA: " : "", trained, all, percent,
                                    convention == SP_MFU_SEQPAR
                                        ? "4 FLOP a token for each frozen one that gradients go through, 2 for those "
                                          "below all that is trained"
                                        : "6 FLOP a token for each, frozen or not, as its convention knows no other"));
}

static void
note_stages (gint32 layers, gint32 stages, GPtrArray *notes)
{
  gint32 more = layers % stages;

  g_ptr_array_add (notes, more == 1 ? g_strdup_printf ("%d layer%s over %d stages: the first stage has one more",
                                                       layers, sp_plural (layers), stages)
                                    : g_strdup_printf ("%d layers over %d stages: the first %d stages have one more",
                                                       layers, stages, more));
}

/* What the keys of experts ask for and the layout cannot have, or drops. */
static void
note_experts (const SpEstimator *estimator, const SpLayout *layout, const SpRun *run, GPtrArray *notes)
{
  double load = sp_layout_expert_load (layout, run), dropped = sp_layout_expert_dropped (layout, estimator->arch, run);

  if (estimator->arch->moe.experts == 0)
    return;
  if (run->expert_imbalance > load && layout->expert > 1)
    g_ptr_array_add (notes,
                     g_strdup_printf ("expert-imbalance %g is more than one of expert = %d ranks can have, which "
                                      "is all tokens: %g is taken",
                                      run->expert_imbalance, layout->expert, load));
  if (dropped > 0) {
    const char *counts =
        estimator->convention == SP_MFU_SEQPAR ? "the others alone" : "them all, as its convention knows no other";
    g_ptr_array_add (notes,
                     g_strdup_printf ("expert-capacity %g: of the tokens' choices of experts %.1f %% are dropped, "
                                      "or more if loads are less even; MFU counts %s",
                                      layout->expert_capacity, 100 * dropped, counts));
  }
}

/* Whether it is of the same card only a person can tell from the names. */
static void
note_profile (const SpCluster *cluster, GPtrArray *notes)
{
  const SpProfile *profile = cluster->profile;

  if (profile != NULL)
    g_ptr_array_add (notes,
                     g_strdup_printf ("times of what the profile has a curve for are those of %s (%s); the "
                                      "cluster's GPUs are %s",
                                      profile->card != NULL ? profile->card : profile->name,
                                      sp_provenance_name (sp_profile_provenance (profile)), cluster->device->name));
}

GPtrArray *
sp_estimate_notes (const SpEstimator *estimator, const SpLayout *layout, const SpRun *run)
{
  const SpArchitecture *arch = estimator->arch;
  GPtrArray *notes = g_ptr_array_new_with_free_func (g_free);
  gint32 padded = (arch->vocabulary + layout->tensor - 1) / layout->tensor * layout->tensor;
  gint32 each = layout->data * run->micro_batch;

  for (guint i = 0; arch->notes && i < arch->notes->len; i++)
    g_ptr_array_add (notes, g_strdup (g_ptr_array_index (arch->notes, i)));
  const GPtrArray *cluster_notes = estimator->cluster->notes;
  for (guint i = 0; cluster_notes && i < cluster_notes->len; i++)
    g_ptr_array_add (notes, g_strdup (g_ptr_array_index (cluster_notes, i)));
  note_profile (estimator->cluster, notes);
  gint32 trained = MAX (arch->trained_positions, arch->positions);
  if (trained && sp_run_positions (run) > trained)
    g_ptr_array_add (notes,
                     g_strdup_printf ("%s %" G_GINT64_FORMAT
                                      " is longer than the %d positions that the model has; costs hold "
                                      "for a model made for it",
                                      run->packing ? "a document of" : "sequence", sp_run_positions (run), trained));
  if (sp_run_freezes (run))
    note_trained (arch, run, estimator->convention, notes);
  note_experts (estimator, layout, run, notes);
  if (run->packing != NULL)
    note_packing (arch, layout, run, notes);
  if (padded != arch->vocabulary)
    g_ptr_array_add (notes, g_strdup_printf ("vocabulary %d is padded to %d, a multiple of tensor = %d",
                                             arch->vocabulary, padded, layout->tensor));
  if (run->global_batch % each != 0)
    g_ptr_array_add (
        notes,
        g_strdup_printf ("global batch %d is no multiple of data x micro-batch = %d: the last micro-batch is smaller%s",
                         run->global_batch, each, run->global_batch % layout->data ? ", padded on some replicas" : ""));
  if (arch->layers % layout->pipeline != 0 && layout->stage_split[0] == 0)
    note_stages (arch->layers, layout->pipeline, notes);
  note_logits (estimator, layout, run, notes);
  if (run->scope != SP_SCOPE_STEP) {
    static const char *const runs[SP_N_SCOPES] = {
      [SP_SCOPE_FORWARD] = "the forward of all micro-batches",
      [SP_SCOPE_LAYER] = "forward and backward of the first layer for one micro-batch, parameters at hand",
      [SP_SCOPE_ATTENTION] = "forward and backward of the first layer's attention core for one micro-batch",
      [SP_SCOPE_ATTENTION_FORWARD] = "the forward of the first layer's attention core for one micro-batch",
    };
    g_ptr_array_add (notes, g_strdup_printf ("scope = %s: times and speeds are of %s; memory is that of a step",
                                             sp_scope_name ((SpScope) run->scope), runs[run->scope]));
  }
  return notes;
}
