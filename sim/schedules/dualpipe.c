/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schedules.h"

/*
 * DualPipe (DeepSeek-V3, 2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe): micro-batches enter at both ends.
 * Stage s holds virtual stages s and p - 1 - s; the first half of the micro-batches goes down the stages with chunk 0,
 * the second half up with chunk 1. A stage's own direction is the one that it is nearer to the start of ("near"), the
 * other one's micro-batches are near their end ("far"). In eight steps, with h = p / 2 and r the distance from the
 * nearer end: forwards of near; of near and far in turn; backward of far and forward of far; all four in turn; backward
 * of far, forward of far, backward of near; backwards of far and near, from the middle on in two parts; weights and
 * backwards of near; weights.
 *
 * Here a forward and a backward of two micro-batches that the paper overlaps run one after the other, and what each
 * sends goes on at once. So the bubble is not the paper's, (p / 2 - 1) (T_F&B + T_B - 3 T_W) with T_B the whole
 * backward (its Table 2), but where forward and backward-input take as long (p / 2 - 1) (2 T_F - min (T_W, T_F)),
 * exactly.
 */

typedef struct {
  SpSlot *slots;
  guint n, weights, next_weight;
  SpSlot *queue;      /* of postponed weights, first in, first out */
  gint32 half;        /* micro-batches of a direction */
  gint32 forwards[2]; /* run so far, of near and far */
  gint32 backwards[2];
  guint8 near; /* its chunk */
} Order;

static SpSlot
next_of (Order *o, SpSlotKind kind, guint far, gint32 *number)
{
  guint8 chunk = (guint8) (o->near ^ far);

  return (SpSlot){ .kind = (guint8) kind, .chunk = chunk, .micro_batch = chunk * o->half + (*number)++ };
}

static void
forward (Order *o, guint far)
{
  o->slots[o->n++] = next_of (o, SP_SLOT_FORWARD, far, &o->forwards[far]);
}

static void
backward (Order *o, guint far)
{
  o->slots[o->n++] = next_of (o, SP_SLOT_BACKWARD, far, &o->backwards[far]);
}

static void
backward_input (Order *o, guint far)
{
  SpSlot slot = next_of (o, SP_SLOT_BACKWARD_INPUT, far, &o->backwards[far]);

  o->slots[o->n++] = slot;
  o->queue[o->weights++] = slot;
}

static void
weight (Order *o)
{
  SpSlot slot = o->queue[o->next_weight++];

  slot.kind = SP_SLOT_BACKWARD_WEIGHT;
  o->slots[o->n++] = slot;
}

enum { NEAR, FAR };

/* Steps 6 to 8: what is left are backwards. */
static void
drain (Order *o, gint32 h, gint32 r)
{
  gboolean splits = FALSE;

  for (gint32 i = 0; i < r + 1; i++) {
    splits |= i == (r + 1) / 2 && r % 2 == 1;
    (splits ? backward_input : backward) (o, FAR);
    splits |= i == (r + 1) / 2 && r % 2 == 0;
    (splits ? backward_input : backward) (o, NEAR);
  }
  for (gint32 i = 0; i < h - r - 1; i++) {
    weight (o);
    backward_input (o, NEAR);
  }
  for (gint32 i = 0; i < r + 1; i++)
    weight (o);
}

static guint
fill (const SpPipeline *pipeline, gint32 stage, SpSlot *ret)
{
  gint32 p = pipeline->stages, h = p / 2, r = MIN (stage, p - 1 - stage);
  /* No more than three slots a micro-batch are written; the room is for six. */
  Order o = {
    .slots = ret, .queue = ret + 3 * pipeline->micro_batches, .half = pipeline->micro_batches / 2, .near = stage >= h
  };

  for (gint32 i = 0; i < 2 * (h - r - 1); i++)
    forward (&o, NEAR);
  for (gint32 i = 0; i < r + 1; i++) {
    forward (&o, NEAR);
    forward (&o, FAR);
  }
  for (gint32 i = 0; i < h - r - 1; i++) {
    backward_input (&o, FAR);
    weight (&o);
    forward (&o, FAR);
  }
  for (gint32 i = 0; i < o.half - p + r + 1; i++) {
    forward (&o, NEAR);
    backward (&o, FAR);
    forward (&o, FAR);
    backward (&o, NEAR);
  }
  for (gint32 i = 0; i < h - r - 1; i++) {
    backward (&o, FAR);
    forward (&o, FAR);
    backward (&o, NEAR);
  }
  drain (&o, h, r);
  return o.n;
}

static double
bubble (const SpPipeline *pipeline, double forward_s, double input_s, double weight_s)
{
  return (pipeline->stages / 2 - 1) * (forward_s + input_s - MIN (weight_s, forward_s)) /
         (pipeline->micro_batches * (forward_s + input_s + weight_s));
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static gboolean
stages_are_even (const SpPipeline *pipeline)
{
  return pipeline->stages % 2 == 0;
}

static void
explain_stages (const SpPipeline *pipeline, GString *out)
{
  g_string_append_printf (out, "pipeline = %d; the two directions meet in the middle of an even number of stages; use ",
                          pipeline->stages);
  if (pipeline->stages > 1)
    g_string_append_printf (out, "%d or ", pipeline->stages - 1);
  g_string_append_printf (out, "%d", pipeline->stages + 1);
}

static gboolean
has_two_chunks (const SpPipeline *pipeline)
{
  return pipeline->chunks == 2;
}

static void
explain_two_chunks (const SpPipeline *pipeline, GString *out)
{
  (void) pipeline;
  g_string_append (out, "every rank holds two parts of the model already; use virtual-stages = 1");
}

static gboolean
directions_are_full (const SpPipeline *pipeline)
{
  return pipeline->micro_batches % 2 == 0 && pipeline->micro_batches >= 2 * pipeline->stages;
}

static void
explain_directions (const SpPipeline *pipeline, GString *out)
{
  gint32 least = 2 * pipeline->stages, m = pipeline->micro_batches;

  g_string_append_printf (out, "%d micro-batches; needs an even number, at least 2 x pipeline = %d; use ", m, least);
  if (m > least)
    g_string_append_printf (out, "%d or ", m - 1);
  g_string_append_printf (out, "%d (global-batch / (data x micro-batch))", MAX (m + 1, least));
}

static gboolean
is_even (const SpPipeline *pipeline)
{
  return !pipeline->uneven;
}

static void
explain_even (const SpPipeline *pipeline, GString *out)
{
  (void) pipeline;
  g_string_append (out, "the last micro-batch would be smaller, and the two directions would not be alike; use a "
                        "global-batch that data x micro-batch divides");
}

static const SpScheduleRule rules[] = {
  { "dualpipe-stages", stages_are_even, explain_stages },
  { "dualpipe-chunks", has_two_chunks, explain_two_chunks },
  { "dualpipe-micro-batches", directions_are_full, explain_directions },
  { "dualpipe-batch", is_even, explain_even },
};

const SpSchedule sp_schedule_dualpipe = {
  .name = "dualpipe",
  .summary = "micro-batches from both ends, backward in two parts where it fills the bubble",
  .mirrored = TRUE,
  .splits = TRUE,
  .steady = 4,
  .fill = fill,
  .bubble = bubble,
  .rules = rules,
  .n_rules = G_N_ELEMENTS (rules),
};
