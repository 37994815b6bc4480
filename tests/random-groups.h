/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Groups of random programs over random nodes: what tests of their rates share. */

#include "tests/random-machines.h"

typedef struct {
  SpArchitecture *arch;
  SpLayout layout;
  Machine machine;
  SpProgram *program;
} Groups;

/* Ranks of random degrees in a random order over nodes of a random size; `even`: that holds whole digits or equal parts
 * of one. Adapters fewer or more than GPUs, not always in proportion. */
static inline void
draw_groups (GRand *rand, gboolean even, Groups *g)
{
  static const gint32 sizes[] = { 1, 1, 2, 2, 3, 4, 4, 6, 8 };
  SpLayout *l = &g->layout;
  gint32 world;

  g->arch = sp_architecture_new ();
  g->arch->layers = 4;
  g->arch->heads = g->arch->kv_heads = 48;
  g->arch->layer_kind[0] = g->arch->layer_kind[2] = draw_int (rand, 0, 1) ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
  g->arch->layer_kind[1] = g->arch->layer_kind[3] = draw_int (rand, 0, 1) ? SP_LAYER_SOFTMAX : SP_LAYER_LINEAR;
  g->program = sp_program_new ();
  for (;;) {
    *l = (SpLayout) SP_LAYOUT_DEFAULT;
    gint32 *degrees[] = { &l->data, &l->tensor, &l->pipeline, &l->ulysses, &l->ring, &l->lasp };
    for (guint i = 0; i < G_N_ELEMENTS (degrees); i++)
      *degrees[i] = sizes[draw_int (rand, 0, G_N_ELEMENTS (sizes) - 1)];
    if (!sp_architecture_has (g->arch, SP_LAYER_SOFTMAX))
      l->ring = 1;
    if (sp_architecture_has (g->arch, SP_LAYER_SOFTMAX) || !sp_architecture_has (g->arch, SP_LAYER_LINEAR))
      l->lasp = 1;
    draw_order (rand, &l->order);
    sp_layout_write_ranks (l, g->arch, g->program);
    world = g->program->world;
    if (world > 1 && world <= 512)
      break;
  }
  draw_machine (rand, 1, 0, &g->machine);
  SpCluster *c = &g->machine.cluster;
  for (;;) {
    c->gpus_per_node = draw_int (rand, 1, 16);
    gboolean lines_up = world <= c->gpus_per_node;
    for (guint i = 0; i < g->program->n_digits; i++) {
      const SpDigit *d = &g->program->digits[i];
      if (d->stride < c->gpus_per_node && c->gpus_per_node <= d->stride * d->size)
        lines_up |= c->gpus_per_node % d->stride == 0 && d->size % (c->gpus_per_node / d->stride) == 0;
    }
    if (lines_up == even || (!even && world == 2))
      break;
  }
  c->nodes = (world + c->gpus_per_node - 1) / c->gpus_per_node;
  c->nics.value = draw_int (rand, 1, 20);
  c->device->pcie_bytes_per_s.value = draw_int (rand, 0, 1) ? draw_between (rand, 1e9, 1e12) : 0;
}

static inline void
clear_groups (Groups *g)
{
  sp_architecture_free (g->arch);
  sp_program_free (g->program);
}

static inline void
describe_groups (const Groups *g, guint group)
{
  const SpCluster *c = &g->machine.cluster;
  g_autofree char *layout = sp_layout_describe (&g->layout, g->arch);

  g_test_message ("%s of %s, order %d%d%d%d%d%d, on %d nodes of %d GPUs and %g NICs", sp_group_name (group), layout,
                  g->layout.order.axis[0], g->layout.order.axis[1], g->layout.order.axis[2], g->layout.order.axis[3],
                  g->layout.order.axis[4], g->layout.order.axis[5], c->nodes, c->gpus_per_node, c->nics.value);
}
