/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The keys of a scenario: one table reads them, resolves a bare key of --set, and writes a scenario out.
 *
 * A new key that is a plain field is one row in scenario-keys.c; one that is not has its read and write in
 * scenario-layout-keys.c or scenario-run-keys.c besides. What only counts beside others has a row in
 * scenario-effects.c. Private to them and scenario.c.
 */

#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"

G_BEGIN_DECLS

typedef enum {
  KEY_INT,    /* gint32 */
  KEY_TOKENS, /* gint64 */
  KEY_BOOL,   /* gboolean */
  KEY_CHOICE, /* guint8: index in `names`, of which the first `available` can be chosen */
  KEY_ONLY,   /* names[0] and nothing else yet */
  KEY_WORD,   /* char*, a file */
  KEY_SPECIAL /* `read` and `write` */
} KeyType;

typedef struct {
  char *model, *cluster, *framework; /* as written in the file */
  char *packing;                     /* NULL: none */
  char *device;                      /* of a cluster that is a dump; NULL else */
  char *profile;                     /* NULL: the cluster's own, or none */
  gint32 nodes, gpus_per_node;       /* 0: the file's own */
  SpLayout layout;
  SpRun run;
  SpOrigin origin;
} SpValues;

/* Until the cluster is known. */
#define ZERO_GROUP_NODE -1

typedef struct SpKey SpKey;
struct SpKey {
  const char *group, *name;
  KeyType type;
  SpIniNeed need;
  gint64 min, max;
  gsize offset; /* in SpValues */
  const char *names[8];
  guint8 available;
  const guint8 *codes; /* what the field holds for each name, if it is not the index */
  gboolean (*read) (SpIni *ini, const SpKey *key, SpValues *values, GError **error);
  void (*write) (const SpValues *values, GString *out);
};

void sp_values_clear (SpValues *values);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SpValues, sp_values_clear)
SpValues sp_values_default (void);
/* All keys of the file, and that it has no others. */
gboolean sp_values_read (SpIni *ini, SpValues *values, SpVariations *variations, GError **error);
/* All groups but [variation]'s. */
void sp_values_write (const SpValues *values, GString *out);
/* Whether a key's value is the one that it has without. */
gboolean sp_values_is_usual (const SpValues *values, const char *group, const char *name);
/* Its default in place of a key's value. */
gboolean sp_values_reset (SpIni *ini, SpValues *values, const char *group, const char *name, GError **error);
/* Of a scenario that has its files, layout and run: a key of --set that makes no difference is refused, one of the file
 * becomes a note and, where it would be illegal, its default. */
gboolean sp_scenario_check_effects (SpScenario *scenario, SpIni *ini, SpValues *values, GError **error);
gboolean sp_values_apply_set (SpIni *ini, const char *set, GError **error);

/* The words of a list that are among `names`, as the bits of each; the first that is not, or that stands there already,
 * is refused, with `expected`. The parts of that: the row of a word or -1, its bits, and the error of a word that has
 * no row. */
gboolean sp_key_read_words (SpIni *ini, const SpKey *key, const char *text, const char *const *names,
                            const guint8 *bits, const char *expected, guint8 *field, GError **error);
gint sp_key_find_word (const char *word, const char *const *names);
gboolean sp_key_add_bits (SpIni *ini, const SpKey *key, const char *word, guint8 bits, guint8 *field, GError **error);
gboolean sp_key_refuse_word (SpIni *ini, const SpKey *key, const char *word, const char *const *names,
                             const char *expected, GError **error);

/* --- keys that are no plain field: what `read` and `write` of their rows are --- */
/* clang-format off */
#define SPECIAL(name)                                                                                                  \
  gboolean sp_key_read_##name (SpIni *ini, const SpKey *key, SpValues *values, GError **error);                        \
  void sp_key_write_##name (const SpValues *values, GString *out)
SPECIAL (capacity);
SPECIAL (chunks);
SPECIAL (frozen);
SPECIAL (imbalance);
SPECIAL (inner);
SPECIAL (offload);
SPECIAL (order);
SPECIAL (packing);
SPECIAL (precision);
SPECIAL (recompute);
SPECIAL (schedule);
SPECIAL (split);
SPECIAL (slices);
SPECIAL (targets);
SPECIAL (tiles);
SPECIAL (zero_group);
#undef SPECIAL
/* clang-format on */

G_END_DECLS
