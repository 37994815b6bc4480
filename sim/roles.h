/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Roles: ranks that behave alike, so that one of them stands for all. The engine runs roles; unfolded, every rank is
 * a role of its own.
 *
 * Folding is partition refinement. Ranks start in one class for each pipeline stage and each place that ops tell apart,
 * by guards or by what they take there. Then classes are split until nothing splits them any more:
 *    an INSTANCE of a group (the ranks of one collective) is coloured by its members' colours and its links',
 *    a LINK by its capacity and the instances and messages that load it, each with how much,
 *    a RANK by its own colour, its instances' and those of the ranks that it exchanges messages with.
 * The result is equitable: every rank of a class has as many partners of each class as every other, and every link of a
 * class is loaded alike. All ranks of a class so do everything at the same dates, as long as the ranks themselves are
 * equal. What makes them unequal (noise, slow ranks) gives every rank a colour of its own: nothing folds. A slow or dead
 * link only splits the classes that it touches, through its capacity and its routes.
 *
 * Colours are 64-bit hashes, multisets are sums of mixed hashes. Two different classes with one hash would be folded
 * wrongly; at 1e6 colours the odds of that are 3e-8.
 *
 * Cost: ranks x groups x links of a route, for each round; as many rounds as a difference needs to spread, mostly 3 to
 * 10.
 */

#include "sim/program.h"

G_BEGIN_DECLS

typedef struct {
  guint8 group;  /* SpGroupId */
  gint32 rank;   /* a member of the instance that stands for the class */
  gint32 count;  /* instances of the class */
  guint32 first; /* of its members, into SpRoles.members: roles, each once, ascending */
  guint32 n_members;
} SpInstance;

/* The instances of all ranks, numbered: of collectives, group by group in the order of their lowest ranks; then messages,
 * by group, direction (to place + 1, to place - 1) and sender. */
typedef struct {
  gint32 world;
  guint32 n, n_collectives;
  guint32 first[SP_N_GROUPS], count[SP_N_GROUPS];
  guint32 *instance_of[SP_N_GROUPS]; /* [world]; NULL for groups of one */
  guint32 first_message[SP_N_GROUPS][2];
} SpRolesPlaces;

void sp_roles_places_init (SpRolesPlaces *places, const SpProgram *program);
void sp_roles_places_clear (SpRolesPlaces *places);

typedef struct {
  guint32 link, instance;
  guint32 members;       /* of the instance, that put so much on the link */
  double bytes_per_byte; /* each of them, for each byte of payload */
} SpRoleLoad;

/* What folding looks at besides the program: who loads what. */
typedef struct {
  const SpRoleLoad *loads;
  guint n_loads;
  const double *capacity_bytes_per_s; /* [n_links] */
  guint n_links;
} SpRoleInput;

typedef struct {
  gint32 n; /* roles */
  gint32 world;
  gint32 *of_rank; /* [world] */
  gint32 *rank;    /* [n] the lowest of the class */
  gint32 *count;   /* [n] */
  SpInstance *instances;
  guint n_instances;
  guint32 *members;
  gint32 *instance[SP_N_GROUPS]; /* [n] the role's instance in the group; NULL for groups of one */
  guint64 *link_colour;          /* [n_links] or NULL */
} SpRoles;

/* Every rank on its own. */
SpRoles *sp_roles_new_unfolded (const SpProgram *program);
/* `input` may be NULL: the network then makes no difference. */
SpRoles *sp_roles_new_folded (const SpProgram *program, const SpRolesPlaces *places, const SpRoleInput *input);
void sp_roles_free (SpRoles *roles);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRoles, sp_roles_free)

G_END_DECLS
