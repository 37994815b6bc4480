/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layout.h"

#include "sim/schedules.h"

/*
 * Ranks: the layout's order gives each axis its digits, the nearest first: one, or more where an axis is cut. A hybrid's
 * linear layers cut the sequence otherwise, and a double ring has an inner and an outer part; experts are spread over the nearest (or farthest) data and sequence ranks,
 * which may end within an axis; so are the parts of a hybrid shard. Groups list digits in logical order: the place in the sequence is ring * ulysses +
 * ulysses' place, wherever the order puts the two.
 */

static void
add_digit (SpProgram *program, SpAxis axis, gint32 size)
{
  g_assert (program->n_digits < SP_MAX_DIGITS);
  program->digits[program->n_digits++] = (SpDigit){ .axis = axis, .size = size };
}

static void
add_axis (SpProgram *program, SpAxis axis, gint32 size, gint32 split)
{
  if (split > 1 && split < size) {
    add_digit (program, axis, split);
    add_digit (program, axis, size / split);
  } else if (size > 1)
    add_digit (program, axis, size);
}

static gint32
common_divisor (gint32 a, gint32 b)
{
  while (b > 0) {
    gint32 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Of each data or sequence digit, the nearest or the farthest first, what it has in common with the ranks still wanted;
 * where that is a part of it, it is cut. Returns bits of the digits that have been chosen. */
static guint
choose_ranks (SpProgram *program, gint32 wanted, gboolean far)
{
  guint n = program->n_digits, chosen = 0;
  SpDigit digits[SP_MAX_DIGITS];
  gint32 part[SP_MAX_DIGITS];

  for (guint i = 0; i < n; i++) {
    guint at = far ? n - 1 - i : i;
    digits[at] = program->digits[at];
    gboolean holds_same = digits[at].axis != SP_AXIS_TENSOR && digits[at].axis != SP_AXIS_PIPELINE;
    part[at] = holds_same ? common_divisor (digits[at].size, wanted) : 1;
    wanted /= part[at];
  }
  program->n_digits = 0;
  for (guint i = 0; i < n; i++) {
    gint32 rest = digits[i].size / part[i];
    if (far && rest > 1)
      add_digit (program, digits[i].axis, rest);
    if (part[i] > 1) {
      chosen |= 1u << program->n_digits;
      add_digit (program, digits[i].axis, part[i]);
    }
    if (!far && rest > 1)
      add_digit (program, digits[i].axis, rest);
  }
  return chosen;
}

static gint32
set_strides (SpProgram *program)
{
  gint32 stride = 1;

  for (guint i = 0; i < program->n_digits; i++) {
    program->digits[i].stride = stride;
    stride *= program->digits[i].size;
  }
  return stride;
}

static void
group_add (SpProgram *program, SpGroupId id, guint8 digit)
{
  SpGroup *group = &program->groups[id];

  group->digits[group->n_digits++] = digit;
  group->size *= program->digits[digit].size;
}

static void
group_add_axis (SpProgram *program, SpGroupId id, SpAxis axis)
{
  for (guint i = 0; i < program->n_digits; i++)
    if (program->digits[i].axis == axis)
      group_add (program, id, (guint8) i);
}

/* The linear layers' Ulysses takes the low part of the place in the sequence, LASP the rest. */
static void
add_linear_groups (SpProgram *program, gint32 linear_ulysses)
{
  const SpGroup *sequence = &program->groups[SP_GROUP_SEQUENCE];
  gint32 covered = 1;

  for (guint i = 0; i < sequence->n_digits; i++) {
    guint8 digit = sequence->digits[i];
    group_add (program, covered < linear_ulysses ? SP_GROUP_ULYSSES_LINEAR : SP_GROUP_LASP, digit);
    covered *= program->digits[digit].size;
  }
}

/* The near part of the ring, and the rest. */
static void
add_double_ring (SpProgram *program, gint32 inner)
{
  const SpGroup *ring = &program->groups[SP_GROUP_RING];
  gint32 covered = 1;

  for (guint i = 0; i < ring->n_digits; i++) {
    guint8 digit = ring->digits[i];
    group_add (program, covered < inner ? SP_GROUP_RING_INNER : SP_GROUP_RING_OUTER, digit);
    covered *= program->digits[digit].size;
  }
}

/* The digits of sequence and data, those chosen and the others. */
static void
add_zero_groups (SpProgram *program, guint chosen)
{
  const SpGroup *parts[] = { &program->groups[SP_GROUP_SEQUENCE], &program->groups[SP_GROUP_DATA] };

  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    for (guint j = 0; j < parts[i]->n_digits; j++) {
      guint8 digit = parts[i]->digits[j];
      group_add (program, chosen & 1u << digit ? SP_GROUP_ZERO : SP_GROUP_REPLICA, digit);
    }
}

/* ZERO's digits, those that experts are spread over and the others. */
static void
add_expert_groups (SpProgram *program, guint chosen)
{
  const SpGroup *zero = &program->groups[SP_GROUP_ZERO];

  for (guint i = 0; i < program->n_digits; i++)
    if (chosen & 1u << i)
      group_add (program, SP_GROUP_EXPERT, (guint8) i);
  for (guint i = 0; i < zero->n_digits; i++)
    if (!(chosen & 1u << zero->digits[i]))
      group_add (program, SP_GROUP_EXPERT_DATA, zero->digits[i]);
}

void
sp_layout_write_ranks (const SpLayout *layout, const SpArchitecture *arch, SpProgram *program)
{
  gboolean softmax = sp_architecture_has (arch, SP_LAYER_SOFTMAX);
  gboolean linear = sp_architecture_has (arch, SP_LAYER_LINEAR);
  gint32 linear_ulysses = linear ? sp_layout_linear_ulysses (layout, arch) : 1;
  const gint32 size[SP_N_RANK_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor, [SP_AXIS_ULYSSES] = layout->ulysses,
    [SP_AXIS_RING] = layout->ring,     [SP_AXIS_LASP] = softmax ? 1 : layout->lasp,
    [SP_AXIS_DATA] = layout->data,     [SP_AXIS_PIPELINE] = layout->pipeline,
  };
  gint32 split[SP_N_RANK_AXES] = { 0 };
  gboolean is_double = layout->ring > 1 && layout->ring_kind == SP_RING_DOUBLE;

  if (softmax && linear) {
    split[SP_AXIS_ULYSSES] = linear_ulysses;
    split[SP_AXIS_RING] = linear_ulysses / layout->ulysses;
  }
  if (is_double)
    split[SP_AXIS_RING] = layout->ring_inner;
  program->n_digits = 0;
  for (guint i = 0; i < SP_N_RANK_AXES; i++) {
    SpAxis axis = layout->order.axis[i];
    add_axis (program, axis, size[axis], split[axis]);
  }
  /* A rule allows one of the two. */
  gboolean is_hybrid = layout->zero > 0 && layout->zero_group > 0;
  guint chosen =
      choose_ranks (program, is_hybrid ? layout->zero_group : layout->expert, !is_hybrid && layout->order.experts_far);
  program->world = set_strides (program);

  for (guint i = 0; i < SP_N_GROUPS; i++) { /* SP_GROUP_SELF stays so */
    program->groups[i].size = 1;
    program->groups[i].n_digits = 0;
  }
  group_add_axis (program, SP_GROUP_TENSOR, SP_AXIS_TENSOR);
  group_add_axis (program, SP_GROUP_ULYSSES, SP_AXIS_ULYSSES);
  group_add_axis (program, SP_GROUP_RING, SP_AXIS_RING);
  if (is_double)
    add_double_ring (program, layout->ring_inner);
  group_add_axis (program, SP_GROUP_DATA, SP_AXIS_DATA);
  group_add_axis (program, SP_GROUP_PIPELINE, SP_AXIS_PIPELINE);
  group_add_axis (program, SP_GROUP_SEQUENCE, SP_AXIS_ULYSSES);
  group_add_axis (program, SP_GROUP_SEQUENCE, SP_AXIS_RING);
  group_add_axis (program, SP_GROUP_SEQUENCE, SP_AXIS_LASP);
  if (linear)
    add_linear_groups (program, linear_ulysses);
  add_zero_groups (program, is_hybrid ? chosen : ~0u);
  if (arch->moe.experts > 0) /* else nobody asks */
    add_expert_groups (program, is_hybrid ? 0 : chosen);
  if (layout->pipeline > 1) {
    group_add_axis (program, SP_GROUP_TIE, SP_AXIS_PIPELINE);
    program->groups[SP_GROUP_TIE].size = 2;
  }
  if (layout->pipeline > 1 && sp_schedule_get (layout->schedule)->mirrored) {
    group_add_axis (program, SP_GROUP_MIRROR, SP_AXIS_PIPELINE);
    program->groups[SP_GROUP_MIRROR].size = 2;
  }
}
