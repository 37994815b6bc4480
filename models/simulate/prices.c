/* SPDX-License-Identifier: Apache-2.0 */
#include "models/simulate/simulate.h"

#include "models/estimate/clock.h"

static gboolean
is_message (const SpOp *op)
{
  return op->kind == SP_OP_SEND || op->kind == SP_OP_RECEIVE || op->kind == SP_OP_SEND_RECEIVE;
}

/* A receive costs what its message does; the price of either end will do. */
static SpOp
as_send (const SpOp *op)
{
  SpOp send = *op;

  if (op->kind == SP_OP_RECEIVE)
    send.kind = SP_OP_SEND;
  return send;
}

static SpOpPrice
price_of (const SpCost *cost, const SpOp *op)
{
  SpOpPrice price = { 0 };
  SpAlgorithm algorithm;
  double fixed_s;

  if (!sp_op_is_communication (op->kind)) {
    price.total = price.serial = sp_time_from_s (sp_cost_op (cost, op));
    price.first = sp_time_from_s (sp_cost_op_at (cost, op, 0));
    price.last = sp_time_from_s (sp_cost_op_at (cost, op, cost->paths[op->group].size - 1));
    price.slowdown = (float) sp_cost_slowdown (cost, op);
    return price;
  }
  SpOp send = as_send (op);
  price.stretch = (float) sp_cost_stretch (cost, op);
  price.serial = sp_time_from_s (sp_cost_op (cost, &send));
  price.total = sp_time_from_s (sp_cost_op_alone (cost, &send, &fixed_s, &algorithm));
  price.fixed = sp_time_from_s (fixed_s);
  price.algorithm = (guint8) algorithm;
  if (is_message (op)) {
    price.near_serial = sp_time_from_s (sp_cost_message (cost, &send, TRUE, FALSE, &fixed_s));
    price.near_total = sp_time_from_s (sp_cost_message (cost, &send, TRUE, TRUE, &fixed_s));
    price.near_fixed = sp_time_from_s (fixed_s);
  }
  return price;
}

void
sp_program_prices_init (SpProgramPrices *prices, const SpCost *cost, const SpProgram *program)
{
  g_autofree double *clocks = sp_clock_of_ops (cost, program);
  SpCost at = *cost;

  *prices = (SpProgramPrices){ .ops = g_new (SpOpPrice, program->n_ops),
                               .pipe = g_new (SpOpPrice, program->n_variants),
                               .algorithms = g_new (guint8, program->n_ops) };
  for (guint i = 0; i < program->n_ops; i++) {
    at.clock = clocks[i];
    prices->ops[i] = price_of (&at, &program->ops[i]);
    prices->algorithms[i] = prices->ops[i].algorithm;
  }
  for (gint32 v = 0; v < program->n_variants; v++)
    prices->pipe[v] = price_of (cost, &program->variants[v].pipe_send);
  prices->prices = (SpPrices){ .ops = prices->ops,
                               .pipe = prices->pipe,
                               .slows = cost->most_slowdown > 0,
                               .host_launch = sp_time_from_s (cost->host_launch_s),
                               .host_gather = sp_time_from_s (cost->host_gather_s),
                               .host_slot = sp_time_from_s (sp_cost_beside_slot (cost, program)) };
}

void
sp_program_prices_clear (SpProgramPrices *prices)
{
  g_clear_pointer (&prices->ops, g_free);
  g_clear_pointer (&prices->pipe, g_free);
  g_clear_pointer (&prices->algorithms, g_free);
}
