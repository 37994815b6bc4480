/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar run SCENARIO --engine rehearse: is the program right? Only for tiny models. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "models/rehearse/rehearse.h"
#include "models/writer.h"

#define MOST_RANKS 64
#define MOST_ELEMENTS 2e6 /* of one rank of the layout */
#define SEED 1

/* What double rounding in another order of summation comes to, with room. */
#define TOLERANCE 1e-9

typedef struct {
  double rehearsed[3], program[3]; /* min, mean, max over ranks: payload bytes */
} Payload;

/* Elements of the buffers that a rank has, each layer's counted. */
static double
local_elements (const SpProgram *program)
{
  double elements = 0;
  for (guint i = 0; i < program->n_layers + 2; i++) {
    guint index = i < program->n_layers ? program->layer_block[i] : i == program->n_layers ? 0 : program->n_blocks - 1;
    const SpBlock *block = &program->variants[0].blocks[index];
    for (guint slot = 1; slot < block->n_buffers; slot++)
      if (block->buffers[slot].alias == 0)
        elements += (double) block->buffers[slot].elements;
  }
  return elements / program->stages;
}

static gboolean
check_size (const SpScenario *s, const SpProgram *program, GError **error)
{
  double elements = local_elements (program);
  g_autofree char *count = sp_text_count (elements);
  g_autofree char *most = sp_text_count (MOST_ELEMENTS);
  if (program->world > MOST_RANKS)
    return sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s: %d ranks are too many to rehearse, at most %d; take fewer GPUs",
                        s->path, program->world, MOST_RANKS);
  return elements <= MOST_ELEMENTS ||
         sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                      "%s: %s elements on a rank are too many to rehearse, at most %s; take a model with fewer layers "
                      "and a smaller size, and a shorter sequence",
                      s->path, count, most);
}

/* The same model and sequences on one rank. */
static SpRehearsal *
rehearse_alone (const SpScenario *s, GError **error)
{
  SpLayout alone = SP_LAYOUT_DEFAULT;
  alone.zero = 0;
  g_autoptr (SpProgram) program = sp_program_new ();
  if (!sp_layout_check (&alone, s->arch, s->framework, &s->run, 1, error))
    return NULL;
  sp_program_write (program, s->arch, s->framework, &alone, &s->run);
  return sp_rehearse (program, SEED, error);
}

static void
count_payload (const SpRehearsal *r, const SpAxisCost *cost, SpAxis axis, Payload *ret)
{
  double min = INFINITY, max = 0, sum = 0;
  for (gint32 i = 0; i < r->world; i++) {
    double bytes = (double) r->ranks[i].payload_bytes[axis];
    min = MIN (min, bytes);
    max = MAX (max, bytes);
    sum += bytes;
  }
  *ret = (Payload){ { min, sum / r->world, max },
                    { cost->payload_bytes.min, cost->payload_bytes.mean, cost->payload_bytes.max } };
}

static gboolean
is_used (const Payload *p)
{
  return p->rehearsed[2] > 0 || p->program[2] > 0;
}

/* Whole bytes, so the mean alone is rounded. */
static gboolean
is_equal (const Payload *p)
{
  return fabs (p->rehearsed[0] - p->program[0]) < 0.5 && fabs (p->rehearsed[2] - p->program[2]) < 0.5 &&
         fabs (p->rehearsed[1] - p->program[1]) <= 1e-9 * p->program[1] + 0.5;
}

/* --- report ------------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpRehearsal *layout, *alone;
  double difference;
  const char *where;
  Payload payload[SP_N_AXES];
} Comparison;

static void
add_bytes (JsonBuilder *builder, const char *name, const double bytes[3])
{
  sp_json_object (builder, name);
  sp_json_whole (builder, "min", bytes[0]);
  sp_json_whole (builder, "mean", bytes[1]);
  sp_json_whole (builder, "max", bytes[2]);
  json_builder_end_object (builder);
}

static gboolean
add_json (const Comparison *c, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  json_builder_begin_object (builder);
  sp_json_whole (builder, "ranks", c->layout->world);
  sp_json_number (builder, "loss", c->layout->loss);
  sp_json_number (builder, "loss_one_rank", c->alone->loss);
  sp_json_number (builder, "max_relative_difference", c->difference);
  sp_json_string (builder, "where", c->where);
  sp_json_object (builder, "communication");
  sp_json_object (builder, "by_axis");
  for (guint i = 0; i < SP_N_AXES; i++) {
    if (!is_used (&c->payload[i]))
      continue;
    sp_json_object (builder, sp_axis_name (i));
    add_bytes (builder, "rehearsed_payload_bytes_per_gpu", c->payload[i].rehearsed);
    add_bytes (builder, "payload_bytes_per_gpu", c->payload[i].program);
    json_builder_end_object (builder);
  }
  json_builder_end_object (builder);
  json_builder_end_object (builder);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

static void
add_text (const SpScenario *s, const Comparison *c, GString *out)
{
  g_autofree char *layout = sp_layout_describe (&s->layout, s->arch);
  g_string_append_printf (out, "rehearsal of %s on %d rank%s (%s), in double\n\n", s->arch->name, c->layout->world,
                          sp_plural (c->layout->world), layout);
  g_string_append_printf (out, "loss of the layout       %.15g\nloss of one rank         %.15g\n", c->layout->loss,
                          c->alone->loss);
  g_string_append_printf (out, "largest difference       %.3g, relative, of loss, gradients and updated parameters\n",
                          c->difference);
  if (c->where != NULL)
    g_string_append_printf (out, "  at                     %s\n", c->where);

  static const char *const head[] = { "axis", "copied: min", "mean", "max", "program: min", "mean", "max" };
  g_autoptr (SpTable) table = sp_table_new ("lrrrrrr");
  gboolean used = FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (head); i++)
    sp_table_cell (table, head[i]);
  for (guint i = 0; i < SP_N_AXES; i++) {
    if (!is_used (&c->payload[i]))
      continue;
    used = TRUE;
    sp_table_cell (table, sp_axis_name (i));
    for (guint j = 0; j < 6; j++)
      sp_table_take (table, sp_text_count (j < 3 ? c->payload[i].rehearsed[j] : c->payload[i].program[j - 3]));
  }
  g_string_append (out, used ? "\npayload bytes of one GPU in a step\n" : "\nno communication\n");
  if (used)
    sp_table_print (table, 2, out);
}

/* A difference is ours, not the user's. */
static gboolean
check_result (const Comparison *c, GError **error)
{
  if (!(c->difference <= TOLERANCE))
    return sp_cli_fail (error, SP_CLI_ERROR_INTERNAL,
                        "internal failure: the layout's program differs from the one-rank program by %.3g at %s",
                        c->difference, c->where != NULL ? c->where : "an unknown place");
  for (guint i = 0; i < SP_N_AXES; i++)
    if (!is_equal (&c->payload[i]))
      return sp_cli_fail (
          error, SP_CLI_ERROR_INTERNAL,
          "internal failure: %s payload is %.0f to %.0f bytes by the copier and %.0f to %.0f by the program",
          sp_axis_name (i), c->payload[i].rehearsed[0], c->payload[i].rehearsed[2], c->payload[i].program[0],
          c->payload[i].program[2]);
  return TRUE;
}

static gboolean
rehearsal_failed (const SpScenario *s, const GError *cause, GError **error)
{
  gboolean input = cause->domain != SP_REHEARSE_ERROR || cause->code == SP_REHEARSE_ERROR_TOO_LARGE;
  return sp_cli_fail (error, input ? SP_CLI_ERROR_INPUT : SP_CLI_ERROR_INTERNAL, "%s%s: %s",
                      input ? "" : "internal failure: ", s->path, cause->message);
}

gboolean
sp_run_rehearsal (const SpScenario *s, SpProgram *program, const SpEstimate *estimate, gboolean json, GString *out,
                  GError **error)
{
  if (!check_size (s, program, error))
    return FALSE;
  g_autoptr (GError) cause = NULL;
  g_autoptr (SpRehearsal) layout = sp_rehearse (program, SEED, &cause);
  if (layout == NULL)
    return rehearsal_failed (s, cause, error);
  g_autoptr (SpRehearsal) alone = rehearse_alone (s, &cause);
  if (alone == NULL)
    return rehearsal_failed (s, cause, error);

  g_autofree char *where = NULL;
  Comparison c = { .layout = layout, .alone = alone };
  c.difference = sp_rehearsal_difference (layout, alone, &where);
  c.where = where;
  for (guint i = 0; i < SP_N_AXES; i++)
    count_payload (layout, &estimate->axes[i], i, &c.payload[i]);
  if (!json)
    add_text (s, &c, out);
  else if (isfinite (c.difference) && !add_json (&c, out, error))
    return FALSE;
  return check_result (&c, error);
}
