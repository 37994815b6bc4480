/* SPDX-License-Identifier: Apache-2.0 */
#include "models/schedules.h"

static const SpSchedule *const schedules[] = {
  &sp_schedule_1f1b,
};

guint
sp_schedule_count (void)
{
  return G_N_ELEMENTS (schedules);
}

const SpSchedule *
sp_schedule_get (guint row)
{
  g_return_val_if_fail (row < G_N_ELEMENTS (schedules), NULL);
  return schedules[row];
}

gint
sp_schedule_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (schedules); i++)
    if (g_str_equal (schedules[i]->name, name))
      return (gint) i;
  return -1;
}
