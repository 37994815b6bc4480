/* SPDX-License-Identifier: Apache-2.0 */
#include "models/layout.h"

#include "sim/schedules.h"

/*
 * Ranks: the layout's order gives each axis its digit (two where a hybrid's linear layers cut the sequence otherwise),
 * the nearest first. Groups list digits in logical order: the place in the sequence is ring * ulysses + ulysses' place,
 * wherever the order puts the two.
 */

typedef struct {
  guint8 low, high; /* digit indices of an axis; high = 0xff where the axis is one digit or none */
  gboolean present;
} AxisDigits;

static guint8
add_digit (SpProgram *program, SpAxis axis, gint32 size, gint32 *stride)
{
  program->digits[program->n_digits] = (SpDigit){ .axis = axis, .size = size, .stride = *stride };
  *stride *= size;
  return program->n_digits++;
}

static AxisDigits
add_axis (SpProgram *program, SpAxis axis, gint32 size, gint32 split, gint32 *stride)
{
  AxisDigits digits = { .low = 0xff, .high = 0xff };

  if (size == 1)
    return digits;
  digits.present = TRUE;
  if (split > 1 && split < size) {
    digits.low = add_digit (program, axis, split, stride);
    digits.high = add_digit (program, axis, size / split, stride);
  } else
    digits.low = add_digit (program, axis, size, stride);
  return digits;
}

static void
group_add (SpProgram *program, SpGroupId id, guint8 digit)
{
  SpGroup *group = &program->groups[id];

  if (digit == 0xff)
    return;
  group->digits[group->n_digits++] = digit;
  group->size *= program->digits[digit].size;
}

static void
group_add_axis (SpProgram *program, SpGroupId id, const AxisDigits *axis)
{
  group_add (program, id, axis->low);
  group_add (program, id, axis->high);
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

void
sp_layout_write_ranks (const SpLayout *layout, const SpArchitecture *arch, SpProgram *program)
{
  gboolean softmax = sp_architecture_has (arch, SP_LAYER_SOFTMAX);
  gboolean linear = sp_architecture_has (arch, SP_LAYER_LINEAR);
  gint32 linear_ulysses = linear ? sp_layout_linear_ulysses (layout, arch) : 1;
  const gint32 size[SP_N_AXES] = {
    [SP_AXIS_TENSOR] = layout->tensor, [SP_AXIS_ULYSSES] = layout->ulysses,
    [SP_AXIS_RING] = layout->ring,     [SP_AXIS_LASP] = softmax ? 1 : layout->lasp,
    [SP_AXIS_DATA] = layout->data,     [SP_AXIS_PIPELINE] = layout->pipeline,
  };
  gint32 split[SP_N_AXES] = { 0 };
  AxisDigits axes[SP_N_AXES];
  gint32 stride = 1;

  if (softmax && linear) {
    split[SP_AXIS_ULYSSES] = linear_ulysses;
    split[SP_AXIS_RING] = linear_ulysses / layout->ulysses;
  }
  program->n_digits = 0;
  for (guint i = 0; i < SP_N_AXES; i++) {
    SpAxis axis = layout->order.axis[i];
    axes[axis] = add_axis (program, axis, size[axis], split[axis], &stride);
  }
  program->world = stride;

  for (guint i = 0; i < SP_N_GROUPS; i++) {
    program->groups[i].size = 1;
    program->groups[i].n_digits = 0;
  }
  group_add_axis (program, SP_GROUP_TENSOR, &axes[SP_AXIS_TENSOR]);
  group_add_axis (program, SP_GROUP_ULYSSES, &axes[SP_AXIS_ULYSSES]);
  group_add_axis (program, SP_GROUP_RING, &axes[SP_AXIS_RING]);
  group_add_axis (program, SP_GROUP_DATA, &axes[SP_AXIS_DATA]);
  group_add_axis (program, SP_GROUP_PIPELINE, &axes[SP_AXIS_PIPELINE]);
  group_add_axis (program, SP_GROUP_SEQUENCE, &axes[SP_AXIS_ULYSSES]);
  group_add_axis (program, SP_GROUP_SEQUENCE, &axes[SP_AXIS_RING]);
  group_add_axis (program, SP_GROUP_SEQUENCE, &axes[SP_AXIS_LASP]);
  if (linear)
    add_linear_groups (program, linear_ulysses);
  for (guint i = 0; i < program->groups[SP_GROUP_SEQUENCE].n_digits; i++)
    group_add (program, SP_GROUP_ZERO, program->groups[SP_GROUP_SEQUENCE].digits[i]);
  group_add_axis (program, SP_GROUP_ZERO, &axes[SP_AXIS_DATA]);
  program->groups[SP_GROUP_EXPERT_DATA] = program->groups[SP_GROUP_ZERO];
  if (layout->pipeline > 1) {
    group_add_axis (program, SP_GROUP_TIE, &axes[SP_AXIS_PIPELINE]);
    program->groups[SP_GROUP_TIE].size = 2;
  }
  if (layout->pipeline > 1 && sp_schedule_get (layout->schedule)->mirrored) {
    group_add_axis (program, SP_GROUP_MIRROR, &axes[SP_AXIS_PIPELINE]);
    program->groups[SP_GROUP_MIRROR].size = 2;
  }
}
