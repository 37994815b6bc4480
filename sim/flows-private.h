/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the flow solver share: flows.c (the interface and the window), flows-links.c (slots, routes, who is
 * on which link), flows-solve.c (rates), flows-dates.c (completion dates), flows-memory.c and flows-check.c (the
 * oracle). Links are numbered from 1 inside, because link 0 is a dummy: a short route is padded with it, so that the
 * inner loop has no branch.
 *
 * A link knows its flows in two ways. Those without a cap are in its LIST, with the other links of their routes: a
 * solve streams through it, and a flow that is gone stays in it for a while. Those with a cap are in its CHAIN, through
 * nodes that lie in the arena behind the flow's own route: a long route is joined and left by writing its own block and
 * one line of each link, and nothing is left behind. */

#include "sim/flows.h"

G_BEGIN_DECLS

#define SP_FLOWS_INLINE_LINKS 4         /* longer routes lie in the arena, and those of flows with a cap */
#define SP_FLOWS_GONE G_MAXUINT32       /* of SpFlow.solved: takes no part in solves any more, or an unused slot */
#define SP_FLOWS_LONG_ROUTE 0x80000000u /* of SpFlowItem.flow */
#define SP_FLOWS_LEVEL_EPSILON 1e-10    /* shares nearer than this are one level: ties stay ties whatever the order */

/* What a solve reads and writes of every flow that it touches: half a cache line. */
typedef struct {
  double remaining_bytes; /* at `updated`, of one member */
  double bytes_per_s;     /* of one member; negative before the first solve */
  SpTime updated;
  guint32 solved; /* generation of the solve that last fixed its rate */
  guint32 place;  /* in the heap of dates; 0: not there, due after the horizon or never */
} SpFlow;

typedef struct {
  double cap_bytes_per_s; /* of one member; G_MAXDOUBLE: none */
  guint32 weight;
  guint16 n_links;
  guint16 holds; /* links that list it, and one until it was reported; at 0 the slot is free */
  union {
    guint32 links[SP_FLOWS_INLINE_LINKS];
    struct {
      guint32 offset;   /* of the route in the arena; with a cap, its nodes follow */
      guint32 gathered; /* generation of the solve that has seen this route */
    };
    guint32 next_free; /* of a free slot */
  };
} SpFlowRoute;

/* A flow with a cap on a link: three words of the arena, named by the offset of the first. Offset 0 is no node. */
typedef struct {
  guint32 flow, previous, next;
} SpFlowNode;

#define SP_FLOWS_NODE_WORDS (sizeof (SpFlowNode) / sizeof (guint32))

/* What flows with a cap could load a link with, in 2^-32 bytes/s: integers, so that sums are exact in every order and
 * nothing drifts. What is beyond 2^63 bytes/s counts as that, more than any link has; 2^31 such flows still fit. */
typedef __int128 SpFlowLoad;

#define SP_FLOWS_LOAD_UNITS 0x1p32                /* a byte/s */
#define SP_FLOWS_MOST_LOAD ((SpFlowLoad) 1 << 95) /* units */
#define SP_FLOWS_LOOSE_EPSILON 1e-9               /* caps may sum to this much more than the capacity */

/* A flow in a link's list, with the other links of its route, so that a solve streams. */
typedef struct {
  guint32 flow; /* with SP_FLOWS_LONG_ROUTE: the others are in the arena */
  guint32 others[SP_FLOWS_INLINE_LINKS - 1];
} SpFlowItem;

/* Tight: a flow without a cap is on it, or the caps could load it beyond its limit. Two cache lines; flows with a cap
 * touch only the first when they come and go. */
typedef struct {
  SpFlowLoad load, limit;
  double chained_weight;
  guint32 chain; /* first node; 0: none */
  guint32 n_chained;
  guint32 visited; /* generation */
  guint8 is_tight, is_dirty, is_charged;
  double debit_bytes; /* window: sent by flows that left early, less what late ones left unused */

  double bytes_per_s;
  double charge_bytes_per_s; /* window: at which the debit is being paid */
  SpFlowItem *items;         /* in the order of arrival; those gone stay until a quarter is */
  guint32 n_items, n_allocated;
  guint32 n_listed;  /* those that are not gone */
  guint32 n_weighty; /* those of them whose weight is not 1 */
  double listed_weight;
} SpFlowLink;

/* During a solve: what a link has to give, and to how much weight. */
typedef struct {
  double left_bytes_per_s, weight;
} SpFlowFill;

typedef struct {
  double share_bytes_per_s; /* when last looked at: only grows */
  guint32 link;
} SpFlowShare;

typedef struct {
  SpTime date;
  guint32 flow;
} SpFlowDate;

typedef struct {
  guint32 *of;
  guint32 n, n_allocated;
} SpFlowList;

/* Where the links' lists come from: flows-memory.c. */
typedef struct {
  void **all;
  guint n;
  char *at; /* in the last one: what is not cut yet */
  gsize left_bytes, next_bytes;
  void *free_blocks[32]; /* by the logarithm of their items */
} SpFlowsSlabs;

struct _SpFlows {
  SpTime now;
  gboolean checks;
  gboolean must_solve;

  guint32 n_links; /* with the dummy */
  SpFlowLink *links;
  SpFlowFill *fill;
  SpFlowsSlabs slabs;
  guint32 n_tight_links;
  SpFlowList dirty;
  guint32 *stamps, stamp; /* by link: of the last flow added that crosses it; finds a link that is twice on a route */

  guint32 n_slots, n_slots_allocated, first_free;
  SpFlow *flows;
  SpFlowRoute *routes;
  guint32 n_flows; /* not yet reported */

  /* Routes of more than four links, routes and nodes of flows with a cap: blocks by length, with a chain of free ones
   * for each length. */
  SpFlowList arena;
  SpFlowList arena_free; /* by length: offset of the first free block, or none */

  /* flows-dates.c. Heap from index 1 of all flows due at or before the horizon. */
  SpFlowDate *dates;
  guint32 n_dates, n_dates_allocated;
  SpTime horizon, least_horizon;
  SpFlowList finished;

  /* flows-solve.c */
  guint32 generation, n_visited;
  SpFlowList component, stack; /* links */
  SpFlowList open;             /* items of a link whose flows are not fixed */
  SpFlowShare *shares;         /* heap from index 1 */
  guint32 n_shares;
  guint32 n_redated;

  /* The window. */
  SpTime window_ps;
  double window_fraction;
  SpTime busy_since;  /* that there are flows */
  guint32 most_flows; /* at once since then */
  SpTime solve_due;   /* SP_TIME_NEVER: none */
  SpTime charged_at;
  SpTime charge_due;  /* by then debits must be settled */
  SpFlowList late;    /* reported, still on their links */
  SpFlowList early;   /* due within half a window: scratch */
  SpFlowList charged; /* links */

  SpFlowsStatistics statistics;
};

/* How long an array that is full becomes. */
static inline gsize
sp_flows_larger_ (gsize n)
{
  return n < 64 ? 64 : n < 100000 ? 4 * n : 2 * n;
}

/* Room for n values, and one more. */
static inline void
sp_flow_list_reserve_ (SpFlowList *list, guint32 n)
{
  if (G_UNLIKELY (n >= list->n_allocated)) {
    list->n_allocated = MAX (MAX (64, n + 1), 2 * list->n_allocated);
    list->of = g_renew (guint32, list->of, list->n_allocated);
  }
}

static inline void
sp_flow_list_append_ (SpFlowList *list, guint32 value)
{
  sp_flow_list_reserve_ (list, list->n);
  list->of[list->n++] = value;
}

static inline guint32
sp_flow_link_n_live_ (const SpFlowLink *link)
{
  return link->n_listed + link->n_chained;
}

static inline gboolean
sp_flow_has_cap_ (const SpFlowRoute *route)
{
  return route->cap_bytes_per_s < G_MAXDOUBLE;
}

static inline gboolean
sp_flow_is_in_arena_ (const SpFlowRoute *route)
{
  return route->n_links > SP_FLOWS_INLINE_LINKS || sp_flow_has_cap_ (route);
}

static inline const guint32 *
sp_flow_links_ (const SpFlows *flows, const SpFlowRoute *route)
{
  return route->n_links > 0 && sp_flow_is_in_arena_ (route) ? &flows->arena.of[route->offset] : route->links;
}

static inline SpFlowNode *
sp_flow_node_ (const SpFlows *flows, guint32 offset)
{
  return (SpFlowNode *) (flows->arena.of + offset);
}

static inline double
sp_flow_link_capacity_ (const SpFlowLink *link)
{
  return MAX (0, link->bytes_per_s - link->charge_bytes_per_s);
}

static inline void
sp_flow_mark_dirty_ (SpFlows *flows, guint32 link)
{
  if (!flows->links[link].is_dirty) {
    flows->links[link].is_dirty = TRUE;
    sp_flow_list_append_ (&flows->dirty, link);
  }
}

/* Bytes that a flow has left now, not below 0. */
static inline double
sp_flow_remaining_ (const SpFlow *flow, SpTime now)
{
  double sent = flow->bytes_per_s > 0 ? flow->bytes_per_s * ((double) (now - flow->updated) * (1 / SP_PS_PER_S)) : 0;

  return flow->remaining_bytes - sent;
}

/* When a flow that has `bytes` left at `from` is through: rounded once, to the nearest picosecond. */
static inline SpTime
sp_flow_date_ (SpTime from, double bytes, double ps_per_byte)
{
  double duration_ps = bytes * ps_per_byte;

  if (G_LIKELY (duration_ps < 0x1p62))
    return from + (SpTime) llrint (duration_ps);
  return bytes > 0 ? SP_TIME_NEVER : from; /* not a number: nothing to send at no rate */
}

/* flows-links.c */
guint32 sp_flow_join_ (SpFlows *flows, const guint32 *links, guint n_links, double cap_bytes_per_s, guint32 weight);
void sp_flow_leave_ (SpFlows *flows, guint32 id);
void sp_flow_release_ (SpFlows *flows, guint32 id);
gboolean sp_flow_crosses_tight_ (const SpFlows *flows, guint32 id);
void sp_flow_link_changed_ (SpFlows *flows, guint32 link);

/* flows-memory.c */
void *sp_flows_grow_array_ (void *old, gsize old_bytes, gsize bytes);
void sp_flows_grow_list_ (SpFlowsSlabs *slabs, SpFlowLink *link);
void sp_flows_free_slabs_ (SpFlowsSlabs *slabs);

/* flows-dates.c */
void sp_flows_schedule_ (SpFlows *flows, guint32 id, SpTime date);
void sp_flows_unschedule_ (SpFlows *flows, guint32 id);
void sp_flows_look_ahead_ (SpFlows *flows, SpTime at_least);
void sp_flows_narrow_horizon_ (SpFlows *flows);
void sp_flows_due_until_ (SpFlows *flows, SpTime until, SpFlowList *ret_due);
void sp_flows_take_due_ (SpFlows *flows);

/* flows-solve.c */
void sp_flows_solve_ (SpFlows *flows);

/* flows-check.c */
void sp_flows_assert_ (SpFlows *flows);

G_END_DECLS
