/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine-private.h"
#include "sim/op-place.h"

/* Runs of kernels, at the host's pace and at that which communication beside them leaves. */

/* Of a kernel at a place of its group. */
static inline SpTime
time_at (const SpOpPrice *price, const SpOp *op, gint32 place, gint32 size)
{
  if (op->flags & SP_OP_BY_PLACE)
    return price->first + (price->total - price->first) * place / MAX (size - 1, 1);
  if (!sp_op_has_ends (op) || (place > 0 && place < size - 1))
    return price->total;
  return place == 0 ? price->first : price->last;
}

/* Of a kernel, the n-th that the role runs. */
static SpTime
kernel_time (const SpEngine *e, const SpRole *role, guint32 op, guint64 n)
{
  const SpOp *of = &role->ops[op];
  SpTime time = time_at (&role->prices[op], of, role->place[of->group], e->program->groups[of->group].size);

  if (e->kernel_factor == NULL)
    return time;
  double factor = e->kernel_factor[role - e->role], sd = e->options->variation->kernel_sd;
  if (sd > 0)
    factor *= sp_variation_factor (e->options->variation->seed, (guint64) role->report->rank, n, sd);
  if (role->ops[op].flags & SP_OP_VARIES)
    factor *= sp_role_load (e, role);
  return sp_time_from_s (sp_time_to_s (time) * factor);
}

/* A point of a run. */
typedef struct {
  guint32 op;
  SpTime at, left, began, host_free, host_waits, slowed, kernels;
  guint64 n;
} Point;

static Point
point_of (const SpRole *role)
{
  return (Point){ .op = role->op,
                  .at = role->since,
                  .left = role->left,
                  .began = role->began,
                  .host_free = role->host_free,
                  .n = role->report->n_kernels };
}

/* Goes on with the kernel at the point, at the present pace; FALSE: it is not over at `until`. */
static gboolean
follow_kernel (const SpEngine *e, const SpRole *role, SpTime until, gboolean slowed, Point *p)
{
  double slowdown = role->prices[p->op].slowdown;

  if (p->left < 0) {
    SpTime issued = e->host_launch > 0 ? p->host_free + e->host_launch : 0;
    if (MAX (issued, p->at) > until)
      return FALSE;
    p->host_waits += MAX (0, issued - p->at);
    p->at = p->began = MAX (issued, p->at);
    p->host_free = issued;
    p->left = kernel_time (e, role, p->op, p->n);
  }
  SpTime takes = slowed ? p->left + llrint ((double) p->left * slowdown) : p->left;
  if (p->at + takes > until) {
    SpTime passed = until - p->at, done = slowed ? llrint ((double) passed / (1 + slowdown)) : passed;
    done = MIN (done, p->left);
    p->slowed += passed - done;
    p->kernels += done;
    p->left -= done;
    p->at = until;
    return FALSE;
  }
  p->slowed += takes - p->left;
  p->kernels += p->left;
  p->at += takes;
  p->left = -1;
  p->n++;
  return TRUE;
}

/* Follows the run at the present pace until a date. */
static void
follow (SpEngine *e, SpRole *role, SpTime until, gboolean looks, Point *p)
{
  gboolean slowed = role->active > 0 && e->prices->slows && !e->options->serial;

  for (; p->op < role->run_end; p->op++) {
    if (!sp_role_holds (e, role, &role->ops[p->op]))
      continue;
    if (looks && p->op == role->peak_op && p->left < 0) {
      sp_memory_peak_at (&role->memory, MAX (p->at, e->host_launch > 0 ? p->host_free + e->host_launch : 0));
      role->peak_op = G_MAXUINT32;
    }
    if (!follow_kernel (e, role, until, slowed, p))
      return;
    if (looks && e->options->trace != NULL)
      sp_engine_trace_kernel (e, role, &role->ops[p->op], p->began, p->at);
  }
}

static void
schedule (SpEngine *e, SpRole *role)
{
  if (role->pending <= role->due && role->pending >= e->now)
    return; /* looks again then */
  role->pending = role->due;
  sp_queue_push (&e->queue, role->due, SP_EVENT_TASK_FINISH, (guint32) sp_role_number (e, role));
}

static void
plan (SpEngine *e, SpRole *role)
{
  Point p = point_of (role);

  follow (e, role, SP_TIME_NEVER / 2, FALSE, &p);
  role->due = p.at;
  schedule (e, role);
}

static void
commit (SpEngine *e, SpRole *role)
{
  Point p = point_of (role);

  follow (e, role, e->now, TRUE, &p);
  role->op = p.op;
  role->since = MAX (p.at, e->now);
  role->left = p.left;
  role->began = p.began;
  role->host_free = p.host_free;
  role->list_kernels += (guint32) (p.n - role->report->n_kernels);
  role->report->issue += (SpTime) (p.n - role->report->n_kernels) * e->prices->host_launch;
  role->report->n_kernels = p.n;
  role->report->host += p.host_waits;
  role->report->slowed += p.slowed;
  role->report->kernels += p.kernels;
}

void
sp_role_begin_run (SpEngine *e, SpRole *role)
{
  const SpOp *ops = role->ops;
  guint32 end = role->op + 1;

  while (end < role->n_ops && !sp_op_is_communication (ops[end].kind) && ops[end].loop == ops[role->op].loop &&
         ops[end].wait[0] == 0 && end != role->data_op)
    end++;
  role->run_begin = role->op;
  role->run_end = end;
  role->since = e->now;
  role->left = -1;
  role->state = SP_ROLE_RUNS;
  plan (e, role);
}

void
sp_role_kernels_over (SpEngine *e, SpRole *role)
{
  if (role->pending == e->now)
    role->pending = -1;
  if (role->state != SP_ROLE_RUNS)
    return;
  if (role->due > e->now) {
    schedule (e, role);
    return;
  }
  if (role->due < e->now)
    return; /* an event of a run that has ended sooner */
  commit (e, role);
  if (role->run_end > role->run_begin) {
    const SpLoop *loop = sp_role_loop_of (role, &role->ops[role->op - 1]);
    role->at_step_end = loop != NULL && role->op == loop->end;
  }
  role->state = SP_ROLE_READY;
  sp_role_go (e, role);
}

void
sp_role_activity (SpEngine *e, SpRole *role, gint change)
{
  gboolean was = role->active > 0, is;

  is = role->active + (guint) change > 0;
  if (was == is || role->state != SP_ROLE_RUNS || !e->prices->slows || e->options->serial) {
    role->active += (guint) change;
    return;
  }
  commit (e, role);
  role->active += (guint) change;
  plan (e, role);
}

/* No kernels until a date. */
static void
wait_for_host (SpEngine *e, SpRole *role, SpTime until)
{
  role->report->host += until - e->now;
  role->run_begin = role->run_end = role->op;
  role->since = e->now;
  role->left = -1;
  role->due = until;
  role->state = SP_ROLE_RUNS;
  schedule (e, role);
}

gboolean
sp_role_host_holds_up (SpEngine *e, SpRole *role)
{
  SpTime issued = role->list_begin + role->list_kernels * e->prices->host_launch + role->list_held_up;

  if (!e->options->serial || issued <= e->now)
    return FALSE;
  wait_for_host (e, role, issued);
  return TRUE;
}

gboolean
sp_role_host_begins_slot (SpEngine *e, SpRole *role)
{
  SpTime issues = e->now + e->prices->host_slot;

  if (!sp_walk_begins_slot (e->walks, role->report->stage, &role->item, &role->begun) || issues == e->now)
    return FALSE;
  if (e->options->serial)
    wait_for_host (e, role, issues);
  else
    role->host_free = MAX (role->host_free, issues);
  return e->options->serial;
}
