/* SPDX-License-Identifier: Apache-2.0 */
/* A program as text; what is accepted is walked and its memory added up, and written again the same. */
#include "models/estimate/memory.h"
#include "models/inputs/scenario.h"
#include "sim/memory.h"
#include "tests/fuzz/fuzz.h"

/* Larger ones are no other, and slow. */
#define MOST_ITEMS 4096

static void
walk (const SpProgram *program, SpWalkOrder order)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpWalkPlan) plan = sp_walk_plan_new (program, order);
  g_autoptr (SpMemoryPlan) memory = sp_memory_plan_new (program, plan, &error);
  fuzz_check (memory != NULL, error);
  for (gint32 stage = 0; stage < program->stages; stage++) {
    SpMemoryState state = { 0 };
    SpWalk cursor;
    SpItem item;
    guint op;

    sp_walk_init (&cursor, plan, stage);
    if (memory != NULL)
      sp_memory_start (memory, stage, &state);
    while (sp_walk_next (&cursor, &item))
      if (memory != NULL)
        sp_memory_item (memory, &state, &item, &op);
    sp_memory_state_clear (&state);
  }
}

int
LLVMFuzzerTestOneInput (const guint8 *data, size_t size)
{
  static SpFramework *framework;
  g_autoptr (GError) error = NULL;
  if (size > FUZZ_MOST)
    return -1;
  g_autoptr (SpProgram) program = sp_program_read_text ((const char *) data, size, "program", &error);
  fuzz_check (program != NULL, error);
  if (program == NULL)
    return 0;
  g_autoptr (GString) first = g_string_new (NULL), second = g_string_new (NULL);
  sp_program_write_text (program, first);
  g_autoptr (SpProgram) back = sp_program_read_text (first->str, first->len, "program", &error);
  g_assert_no_error (error);
  sp_program_write_text (back, second);
  g_assert_cmpstr (first->str, ==, second->str);
  gint64 slots = (gint64) sp_program_virtual_stages (program) * program->micro_batches;
  if (slots * (1 + program->n_layers) > MOST_ITEMS)
    return 0;
  if (framework == NULL) {
    g_autofree char *path = sp_find_shipped ("frameworks", "flash", &error);
    framework = sp_framework_load (path, &error);
    g_assert_no_error (error);
  }
  SpMemory ret;
  sp_memory_estimate (program, framework, &ret);
  walk (program, SP_ORDER_PROGRAM);
  walk (program, SP_ORDER_EAGER);
  return 0;
}
