/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who is in a group of the rank order, instance after instance, and what two groups of different programs have in
 * common if they have the same members. Private to paths-graph.c. */

#include "sim/loads.h"
#include "sim/program.h"

G_BEGIN_DECLS

/* Members differ in the digits; of TIE they are the first and the last place, of MIRROR a place and the one as far from
 * the end. */
typedef enum { SP_MEMBERS_WHOLE, SP_MEMBERS_TIE, SP_MEMBERS_MIRROR } SpGroupKeyKind;

/* A group without its program. */
typedef struct {
  guint64 words[2 + SP_MAX_DIGITS]; /* world; digits and kind; size and stride of each */
} SpGroupKey;

/* Digits that follow each other in the group and in the ranks are one: so most orders share what they cost. */
SpGroupKey sp_group_key (const SpProgram *program, SpGroupId group);
guint sp_group_key_hash (const SpGroupKey *key);
/* Of no closed form: those are small numbers with nothing in the top bit. */
guint64 sp_group_key_identity (const SpGroupKey *key);

typedef struct {
  const SpGroupKey *key;
  const SpTopology *topology;
  SpLoads *loads, *one; /* of all instances, and of one */
  gint32 size;
  gint32 *bases; /* the ranks at place 0 */
  guint n, next; /* instances that differ; of them the next one */
  gint32 *ranks; /* [size] of one instance, by place */
} SpInstances;

/* Keeps `key` and `topology`, which are the caller's. */
void sp_instances_init (SpInstances *in, const SpGroupKey *key, const SpTopology *topology);
void sp_instances_clear (SpInstances *in);
/* The next instance, in in->ranks; FALSE: there is none, and the first comes again. */
gboolean sp_instances_next (SpInstances *in);

G_END_DECLS
