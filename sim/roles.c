/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/roles.h"

#include "sim/hash.h"
#include "sim/op-place.h"

#include <string.h>

/* --- colours ------------------------------------------------------------------------------------------------------ */

static guint64
mix_double (double x)
{
  guint64 bits;

  memcpy (&bits, &x, sizeof bits);
  return sp_hash (bits);
}

/* --- instances of all ranks --------------------------------------------------------------------------------------- */

void
sp_roles_places_init (SpRolesPlaces *places, const SpProgram *program)
{
  guint32 next = 0;

  memset (places, 0, sizeof *places);
  places->world = program->world;
  for (guint g = 1; g < SP_N_GROUPS; g++) {
    const SpGroup *group = &program->groups[g];
    if (group->size == 1)
      continue;
    places->instance_of[g] = g_new (guint32, program->world);
    places->first[g] = next;
    for (gint32 rank = 0; rank < program->world; rank++) {
      gint32 lowest = sp_program_member (program, g, rank, 0); /* all its digits are 0 */
      places->instance_of[g][rank] = lowest == rank ? next++ : places->instance_of[g][lowest];
    }
    places->count[g] = next - places->first[g];
  }
  places->n_collectives = next;
  for (guint g = 1; g < SP_N_GROUPS; g++)
    for (guint d = 0; d < 2 && program->groups[g].size > 1; d++) {
      places->first_message[g][d] = next;
      next += (guint32) program->world;
    }
  places->n = next;
}

void
sp_roles_places_clear (SpRolesPlaces *places)
{
  for (guint g = 0; g < SP_N_GROUPS; g++)
    g_clear_pointer (&places->instance_of[g], g_free);
}

/* --- refinement --------------------------------------------------------------------------------------------------- */

typedef struct {
  const SpProgram *program;
  const SpRolesPlaces *places;
  const SpRoleInput *input;
  guint64 *rank, *next; /* [world] */
  guint64 *instance;    /* [places->n]: collectives, then messages */
  guint64 *link;        /* [n_links] */
  gboolean has_messages[SP_N_GROUPS];
} Colours;

/* What guards and operands tell apart: the ends of a group, or every place. */
static void
start_colours (Colours *c)
{
  const SpProgram *program = c->program;
  gboolean ends[SP_N_GROUPS] = { FALSE }, each[SP_N_GROUPS] = { FALSE };

  for (guint i = 0; i < program->n_ops; i++) {
    const SpOp *op = &program->ops[i];
    ends[op->group] |= (op->guard & (SP_GUARD_NOT_FIRST | SP_GUARD_NOT_LAST)) != 0 || sp_op_has_ends (op);
    each[op->group] |= (op->guard & SP_GUARD_VISIBLE) != 0 || (op->flags & SP_OP_BY_PLACE) != 0;
    c->has_messages[op->group] |= op->kind == SP_OP_SEND || op->kind == SP_OP_RECEIVE || op->kind == SP_OP_SEND_RECEIVE;
  }
  c->has_messages[SP_GROUP_PIPELINE] = program->stages > 1;
  for (gint32 rank = 0; rank < program->world; rank++) {
    guint64 colour = sp_hash ((guint64) sp_program_place (program, SP_GROUP_PIPELINE, rank));
    for (guint g = 1; g < SP_N_GROUPS; g++) {
      gint32 place = sp_program_place (program, g, rank), last = program->groups[g].size - 1;
      if (last > 0 && each[g])
        colour = sp_hash2 (colour, (guint64) place << 8 | g);
      else if (last > 0 && ends[g])
        colour = sp_hash2 (colour, (guint64) ((place == 0) + 2 * (place == last)) << 8 | g);
    }
    c->rank[rank] = colour;
  }
  for (guint l = 0; c->input != NULL && l < c->input->n_links; l++)
    c->link[l] = mix_double (c->input->capacity_bytes_per_s[l]);
}

/* Instances by members and links, links by what loads them. */
static void
colour_instances (Colours *c)
{
  const SpProgram *program = c->program;
  const SpRolesPlaces *places = c->places;

  memset (c->instance, 0, places->n * sizeof *c->instance);
  for (guint g = 1; g < SP_N_GROUPS; g++) {
    gint32 size = program->groups[g].size;
    for (gint32 rank = 0; places->instance_of[g] != NULL && rank < program->world; rank++) {
      c->instance[places->instance_of[g][rank]] += sp_hash2 (c->rank[rank], g);
      if (!c->has_messages[g])
        continue;
      gint32 place = sp_program_place (program, g, rank);
      for (guint d = 0; d < 2; d++) {
        gint32 to = sp_program_member (program, g, rank, (place + (d ? size - 1 : 1)) % size);
        c->instance[places->first_message[g][d] + (guint32) rank] = sp_hash2 (sp_hash2 (c->rank[rank], c->rank[to]), g);
      }
    }
  }
  if (c->input == NULL)
    return;
  guint64 *sums = g_new0 (guint64, c->input->n_links + 1), *through = g_new0 (guint64, places->n + 1);
  for (guint i = 0; i < c->input->n_loads; i++) {
    const SpRoleLoad *load = &c->input->loads[i];
    guint64 how_much = sp_hash2 (mix_double (load->bytes_per_byte), load->members);
    sums[load->link] += sp_hash2 (c->instance[load->instance], how_much);
    through[load->instance] += sp_hash2 (c->link[load->link], how_much);
  }
  for (guint l = 0; l < c->input->n_links; l++)
    c->link[l] = sp_hash2 (c->link[l], sums[l]);
  for (guint i = 0; i < places->n; i++)
    c->instance[i] = sp_hash2 (c->instance[i], through[i]);
  g_free (sums);
  g_free (through);
}

static void
colour_ranks (Colours *c)
{
  const SpProgram *program = c->program;
  const SpRolesPlaces *places = c->places;

  for (gint32 rank = 0; rank < program->world; rank++) {
    guint64 colour = c->rank[rank];
    for (guint g = 1; g < SP_N_GROUPS; g++) {
      if (places->instance_of[g] == NULL)
        continue;
      colour = sp_hash2 (colour, c->instance[places->instance_of[g][rank]]);
      if (!c->has_messages[g])
        continue;
      gint32 place = sp_program_place (program, g, rank), size = program->groups[g].size;
      for (guint d = 0; d < 2; d++) {
        gint32 from = sp_program_member (program, g, rank, (place + (d ? 1 : size - 1)) % size);
        colour = sp_hash2 (colour, c->instance[places->first_message[g][d] + (guint32) rank]);
        colour = sp_hash2 (colour, c->instance[places->first_message[g][d] + (guint32) from]);
      }
    }
    c->next[rank] = colour;
  }
  memcpy (c->rank, c->next, (gsize) program->world * sizeof *c->rank);
}

static gint
compare_colours (gconstpointer a, gconstpointer b)
{
  guint64 x = *(const guint64 *) a, y = *(const guint64 *) b;

  return x < y ? -1 : x > y;
}

static guint
count_colours (const guint64 *colours, guint n, guint64 *scratch)
{
  guint count = 1;

  if (n == 0)
    return 0;
  memcpy (scratch, colours, n * sizeof *scratch);
  qsort (scratch, n, sizeof *scratch, compare_colours);
  for (guint i = 1; i < n; i++)
    count += scratch[i] != scratch[i - 1];
  return count;
}

/* Until a round splits nothing: neither ranks nor links. */
static void
refine (Colours *c)
{
  guint n_links = c->input != NULL ? c->input->n_links : 0;
  guint world = (guint) c->program->world, before = 0, now;
  g_autofree guint64 *scratch = g_new (guint64, MAX (world, n_links));

  now = count_colours (c->rank, world, scratch) + count_colours (c->link, n_links, scratch);
  while (now != before && now < world + n_links) {
    before = now;
    colour_instances (c);
    colour_ranks (c);
    now = count_colours (c->rank, world, scratch) + count_colours (c->link, n_links, scratch);
  }
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

/* Numbers the colours in order of appearance. */
static void
number_roles (SpRoles *roles, const guint64 *colours)
{
  g_autoptr (GHashTable) numbers = g_hash_table_new (g_int64_hash, g_int64_equal);

  for (gint32 rank = 0; rank < roles->world; rank++) {
    gpointer number = g_hash_table_lookup (numbers, &colours[rank]);
    if (number == NULL) {
      roles->rank[roles->n++] = rank;
      number = GINT_TO_POINTER (roles->n);
      g_hash_table_insert (numbers, (gpointer) &colours[rank], number);
    }
    roles->of_rank[rank] = GPOINTER_TO_INT (number) - 1;
    roles->count[roles->of_rank[rank]]++;
  }
}

static gint
compare_members (gconstpointer a, gconstpointer b)
{
  guint32 x = *(const guint32 *) a, y = *(const guint32 *) b;

  return x < y ? -1 : x > y;
}

/* Instances of a group whose members have the same roles are one class. */
static void
make_instances (SpRoles *roles, const SpProgram *program, guint g, GArray *instances, GArray *members)
{
  gint32 size = program->groups[g].size;

  roles->instance[g] = g_new (gint32, roles->n);
  for (gint32 r = 0; r < roles->n; r++)
    roles->instance[g][r] = -1;
  for (gint32 r = 0; r < roles->n; r++) {
    /* Middle stages have a place in the tie, but are no members. */
    gint32 rank = roles->rank[r];
    if (roles->instance[g][r] >= 0 || sp_program_member (program, g, rank, sp_program_place (program, g, rank)) != rank)
      continue;
    SpInstance instance = { .group = (guint8) g, .rank = roles->rank[r], .first = members->len };
    gint64 ranks = 0;
    for (gint32 p = 0; p < size; p++) {
      guint32 member = (guint32) roles->of_rank[sp_program_member (program, g, instance.rank, p)];
      if (roles->instance[g][member] == (gint32) instances->len)
        continue;
      roles->instance[g][member] = (gint32) instances->len;
      ranks += roles->count[member];
      g_array_append_val (members, member);
    }
    instance.n_members = members->len - instance.first;
    instance.count = (gint32) (ranks / size);
    qsort (&g_array_index (members, guint32, instance.first), instance.n_members, sizeof (guint32), compare_members);
    g_array_append_val (instances, instance);
  }
}

static SpRoles *
roles_from_colours (const SpProgram *program, const guint64 *colours)
{
  SpRoles *roles = g_new0 (SpRoles, 1);
  GArray *instances = g_array_new (FALSE, TRUE, sizeof (SpInstance)), *members = g_array_new (FALSE, TRUE, 4);

  roles->world = program->world;
  roles->of_rank = g_new0 (gint32, program->world);
  roles->rank = g_new0 (gint32, program->world);
  roles->count = g_new0 (gint32, program->world);
  number_roles (roles, colours);
  /* A rank alone is an instance where copies to its host are: so each role is one. */
  for (guint g = 1; g < SP_N_GROUPS; g++)
    if (program->groups[g].size > 1 || (g == SP_GROUP_SELF && program->offloads))
      make_instances (roles, program, g, instances, members);
  roles->n_instances = instances->len;
  roles->instances = (SpInstance *) (void *) g_array_free (instances, FALSE);
  roles->members = (guint32 *) (void *) g_array_free (members, FALSE);
  return roles;
}

SpRoles *
sp_roles_new_unfolded (const SpProgram *program)
{
  g_autofree guint64 *colours = g_new (guint64, program->world);

  for (gint32 rank = 0; rank < program->world; rank++)
    colours[rank] = (guint64) rank;
  return roles_from_colours (program, colours);
}

SpRoles *
sp_roles_new_folded (const SpProgram *program, const SpRolesPlaces *places, const SpRoleInput *input)
{
  Colours c = { .program = program, .places = places, .input = input };
  guint n_links = input != NULL ? input->n_links : 0;

  c.rank = g_new (guint64, program->world);
  c.next = g_new (guint64, program->world);
  c.instance = g_new (guint64, places->n + 1); /* even where nobody communicates */
  c.link = g_new (guint64, n_links + 1);
  start_colours (&c);
  refine (&c);
  SpRoles *roles = roles_from_colours (program, c.rank);
  roles->link_colour = c.link;
  g_free (c.rank);
  g_free (c.next);
  g_free (c.instance);
  return roles;
}

void
sp_roles_free (SpRoles *roles)
{
  if (roles == NULL)
    return;
  for (guint g = 0; g < SP_N_GROUPS; g++)
    g_free (roles->instance[g]);
  g_free (roles->of_rank);
  g_free (roles->rank);
  g_free (roles->count);
  g_free (roles->instances);
  g_free (roles->members);
  g_free (roles->link_colour);
  g_free (roles);
}
