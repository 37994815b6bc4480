/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a user says differs between ranks and between steps: a scenario's [variation] group, for --engine simulate.
 *
 *    seed = 1
 *    kernel-noise = 3%             relative standard deviation of a kernel's time; default: the device's `noise`
 *    network-noise = 5%            of a collective's or message's; default: the cluster's
 *    expert-imbalance-noise = true ranks draw their load of experts, the busiest on average run.expert-imbalance times
 *                                  the mean; else all have the busiest's
 *    slow-ranks = 3 x 1.2, 17 x 2  kernels of rank 3 take 1.2 times as long
 *    slow-links = NAME x 0.5       the link has half of its rate; `show cluster` names links
 *    failed-links = NAME, NAME     routes go around them
 *
 * Times are a factor on time, links a factor on rate.
 */

#include "models/inputs/ini.h"
#include "sim/variation.h"

G_BEGIN_DECLS

typedef struct {
  char *name;
  double factor; /* of its rate; 0: failed */
} SpLinkChange;

#define SP_N_VARIATION_KEYS 7

typedef struct {
  guint64 seed;
  double kernel_noise, network_noise; /* negative: the profile's */
  gboolean load_noise;                /* of experts */
  GArray *slow_ranks;                 /* SpSlowRank */
  GArray *links;                      /* SpLinkChange */
  char *path;                         /* of the file that they were read from; NULL: of none */
  /* As written, of each of sp_variation_keys; NULL: not there. And whether a command line said so. */
  char *given[SP_N_VARIATION_KEYS];
  gboolean is_set[SP_N_VARIATION_KEYS];
} SpVariations;

#define SP_VARIATIONS_DEFAULT                                                                                          \
  {                                                                                                                    \
    .seed = 1, .kernel_noise = -1, .network_noise = -1                                                                 \
  }

#define SP_VARIATION_GROUP "variation"
extern const char *const sp_variation_keys[SP_N_VARIATION_KEYS + 1]; /* NULL-terminated */

/* Reads the group, if it is there. */
gboolean sp_variations_read (SpIni *ini, SpVariations *ret, GError **error);
void sp_variations_clear (SpVariations *variations);
/* Refuses what is said under a key, as sp_ini_refuse does, once the cluster and layout are known; FALSE. */
gboolean sp_variations_refuse (const SpVariations *variations, const char *key, GError **error, const char *format, ...)
    G_GNUC_PRINTF (4, 5);
/* The group as a scenario has it; nothing where all is default. */
void sp_variations_write (const SpVariations *variations, GString *out);

G_END_DECLS
