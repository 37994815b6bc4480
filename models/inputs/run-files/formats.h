/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Of run-files/ alone: facts, rows, and what the formats share. */

#include "models/inputs/run-files/items.h"
#include "models/inputs/run-files/run-file.h"

G_BEGIN_DECLS

/* --- facts -------------------------------------------------------------------------------------------------------- */

/* The stronger overrides the weaker; two of the file contradict each other. */
typedef enum { SP_FACT_ABSENT, SP_FACT_FILE, SP_FACT_RESOLVED, SP_FACT_GIVEN } SpFactFrom;

typedef struct {
  char *key, *value;
  char *source; /* the item's key, the option; for messages */
  guint8 from;  /* SpFactFrom */
} SpFact;

typedef GHashTable SpFacts; /* key -> SpFact */

SpFacts *sp_facts_new (void);
const char *sp_facts_get (const SpFacts *facts, const char *key);
gboolean sp_facts_is (const SpFacts *facts, const char *key, const char *value);
/* `missing` where there is none. */
gint64 sp_facts_int (const SpFacts *facts, const char *key, gint64 missing);
/* Unconditionally. */
void sp_facts_put (SpFacts *facts, const char *key, const char *value, SpFactFrom from, const char *source);
void sp_facts_put_int (SpFacts *facts, const char *key, gint64 value, SpFactFrom from, const char *source);
/* Keys in order. NULL-terminated; free the array alone. */
const char **sp_facts_keys (const SpFacts *facts);

/* All of a scenario: [layout] and [run] with their defaults, [model] as an INI has it, token counts as plain numbers.
 * `lost` (may be NULL): what a model file of ours has no key for. */
SpFacts *sp_facts_of_scenario (const SpScenario *scenario, GPtrArray *lost);
/* The [model] facts of a model file's text. */
void sp_facts_add_model (SpFacts *facts, const char *ini_text);
/* The facts of [model] as a model file. */
void sp_facts_write_model (const SpFacts *facts, GString *out);

/* --- rows --------------------------------------------------------------------------------------------------------- */

typedef enum {
  SP_ROW_INT,   /* a whole number, at least `least` */
  SP_ROW_FLOAT, /* a number that is not negative */
  SP_ROW_BOOL,  /* true or false; a flag that takes no value */
  SP_ROW_WORD,
  SP_ROW_LIST
} SpRowType;

typedef struct {
  const char *key;    /* foreign; with a * at its end all that begin so */
  const char *ours;   /* "layout.tensor", "file.shard"; NULL: nothing */
  SpRowType type;     /* of what is mapped */
  const char *values; /* "foreign=ours foreign=ours"; NULL: as they are. false without an entry says nothing */
  const char
      *others; /* "word word", * as in a glob: values that the program takes too and that are not mapped. One that
                       * is neither here nor in `values` is refused, but for lists */
  const char *absent; /* the foreign value that absence means; NULL: it says nothing */
  const char *why;    /* not mapped: why; of a mapped row: what is to be noted when it stands there */
  gint64 least;       /* of SP_ROW_INT; 0: 1 */
  guint flags;
} SpRunRow;

enum {
  SP_ROW_READ = 1,   /* an older or another name: not written */
  SP_ROW_ALWAYS = 2, /* written even if it is what absence means */
  SP_ROW_ZERO = 4    /* SP_ROW_INT that may be 0 */
};

typedef struct {
  gint32 gpus, gpus_per_node; /* 0 unknown */
  const SpArchitecture *arch; /* NULL unknown */
} SpRunPlace;

typedef struct {
  const char *name, *title;
  SpRunItems *(*parse) (const char *name, const char *text, gsize length, GError **error);
  gboolean (*recognise) (const SpRunItems *items);
  void (*normalise) (SpRunItems *items); /* types of items that its own reader would see; NULL: as the syntax says */
  const SpRunRow *rows;
  guint n_rows;
  /* The [model] facts, once sets are known; NULL: no file of the format describes a model. */
  gboolean (*resolve_model) (SpRunFile *file, GError **error);
  /* Facts out of several others, once sets, cluster and model are known. */
  gboolean (*resolve) (SpRunFile *file, const SpRunPlace *place, GError **error);
  /* A shipped model that the file names, or NULL. */
  const char *(*model) (const SpRunFile *file);
  /* The "file" facts out of ours; NULL with `write` NULL: read only. */
  void (*prepare) (SpFacts *facts, const SpRunPlace *place, const char *model);
  void (*write) (const SpRunItems *items, const GPtrArray *comments, GString *out);
  /* Our keys that are no matter of the file but of the program that reads it; NULL-terminated, NULL: none. */
  const char *const *elsewhere;
} SpRunFormat;

extern const SpRunFormat sp_run_megatron, sp_run_deepspeed, sp_run_torchtitan, sp_run_flame, sp_run_calculon,
    sp_run_swift, sp_run_megatron_swift, sp_run_llamafactory, sp_run_verl;

/* Of sp_run_megatron (megatron-model.c). */
gboolean sp_run_megatron_resolve_model (SpRunFile *file, GError **error);
void sp_run_megatron_prepare_model (SpFacts *facts);
/* layout.recompute from Megatron's three arguments, which are file.recompute, file.recompute-method and
 * file.recompute-layers, and back: for all that hand them on to it (megatron.c). */
gboolean sp_run_megatron_resolve_recompute (SpRunFile *file, const SpRunPlace *place, GError **error);
void sp_run_megatron_prepare_recompute (SpFacts *facts);

/* Of ms-swift (swift-config.c): whether a YAML file's items are its arguments; these as flags; and into the items of a
 * command those of its --config file, if it has one. */
gboolean sp_run_swift_is_config (const SpRunItems *items);
SpRunItems *sp_run_swift_flags (const SpRunItems *yaml, GError **error);
gboolean sp_run_swift_add_config (SpRunItems *items, const char *run_path, gboolean *ret_overrides, GError **error);

const SpRunFormat *sp_run_format_find (const char *name);

struct _SpRunFile {
  char *name;
  const SpRunFormat *format;
  SpRunItems *items;
  SpFacts *facts;
  GHashTable *automatic; /* our keys that the file leaves to be computed -> item's key */
  GPtrArray *notes;
  GHashTable *noted; /* the notes' own texts: an unknown key a line may be a hundred thousand */
  GPtrArray *asked;  /* of char*: what is missing, and how it is given */
  gboolean quiet;    /* read back: notes and questions are nobody's */
};

void sp_run_note (SpRunFile *file, const char *format, ...) G_GNUC_PRINTF (2, 3);
/* "what: how" */
void sp_run_ask (SpRunFile *file, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* A fact, unless a stronger one stands there. A value that is not available yet is noted, and left out; one that is
 * wrong, or contradicts the file itself, is an error. */
gboolean sp_run_set (SpRunFile *file, const char *key, const char *value, SpFactFrom from, const char *source,
                     GError **error);
gboolean sp_run_set_int (SpRunFile *file, const char *key, gint64 value, GError **error);

/* The foreign value of ours by the row's map, or the other way: NULL if it has none. Free with g_free. */
char *sp_run_map (const SpRunRow *row, const char *value, gboolean to_ours);
const SpRunRow *sp_run_row (const SpRunFormat *format, const char *key);

/* Reads items through the rows into facts and notes: the second half of parsing. */
gboolean sp_run_read_rows (SpRunFile *file, GError **error);
/* The facts as items of the format, through the same rows. */
SpRunItems *sp_run_write_rows (const SpRunFormat *format, const SpFacts *facts);

/* --- names on the hub (hub.c) ------------------------------------------------------------------------------------- */

/* The shipped model that "file.model" names on the hub, or NULL. Static. For SpRunFormat.model: a format that has it is
 * given the name again by an export. */
const char *sp_run_hub_model (const SpRunFile *file);
/* Whether it is a name or path that every format, and an INI, has as it stands. */
gboolean sp_run_is_hub_name (const char *name);
/* Puts "file.model": the name that the scenario keeps of its run file, if that is of this model's file; else the name
 * under which the shipped model is published, if it is known. */
void sp_run_prepare_hub_model (SpFacts *facts, const char *model);

/* --- what formats share (resolve.c) ------------------------------------------------------------------------------- */

/* The format's own `resolve`, and what goes for all. */
gboolean sp_run_resolve (SpRunFile *file, const SpRunPlace *place, GError **error);
/* A product, at most G_MAXINT32: beyond what a scenario takes. */
gint64 sp_run_times (gint64 a, gint64 b);
/* GPUs of one replica: tensor x pipeline x ulysses x ring x lasp. */
gint64 sp_run_replica (const SpFacts *facts);
/* A note where the launcher starts another number of processes ("file.nodes" and "file.gpus-per-node") than there are
 * GPUs. */
void sp_run_note_launch (SpRunFile *file, const SpRunPlace *place);
/* layout.data = GPUs / replica, unless it is known. */
gboolean sp_run_resolve_data (SpRunFile *file, const SpRunPlace *place, GError **error);
/* run.global-batch, run.micro-batch and file.accumulation from one another and layout.data. */
gboolean sp_run_resolve_batches (SpRunFile *file, GError **error);
/* As above, for writing: file.accumulation, if it is whole. */
void sp_run_prepare_accumulation (SpFacts *facts);

G_END_DECLS
