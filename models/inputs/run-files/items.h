/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a run file says, flat: each item a key, a value and its line. Keys of nested tables and objects are joined by
 * dots ("parallelism.tensor_parallel_degree"), a flag keeps its dashes. Five syntaxes, each a pure function of a text
 * (`length` bytes and a 0 after them) and of the name that messages begin with; each refuses a key that stands twice,
 * and more keys than any run file has.
 *
 *   args   --flag, --flag value ..., --flag=value; quotes, # comments and \ at a line's end as in a shell. Words before
 *          the first flag that belong to a command (NAME=value python x.py, torchrun ... x.py, swift sft) say which it
 *          is, and, as --nnodes and --nproc-per-node, how many processes are started. No shell runs: arrays and
 *          substitutions are refused, a variable may be one value
 *   overrides   key=value, +key=value of Hydra, behind the command that they are for: all words up to the last without a
 *          value belong to it. Values as in YAML
 *   yaml   block mappings of plain and quoted values, and lists as text; anchors, tags and several lines to a value are
 *          refused. See yaml.c
 *   json   one object; see models/inputs/json-text.h
 *   toml   see toml.c for what is read of it
 */

#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  SP_ITEM_WORD,
  SP_ITEM_INT,
  SP_ITEM_FLOAT,
  SP_ITEM_BOOL, /* "true" or "false" */
  SP_ITEM_LIST, /* as text, for messages; a list of one value is that value, without its brackets */
  SP_ITEM_NULL,
  SP_ITEM_FLAG /* without a value: text "true" */
} SpItemType;

typedef struct {
  char *key, *text;
  guint8 type; /* SpItemType; of args FLAG or WORD */
  guint line;  /* 0 unknown */
} SpRunItem;

typedef struct {
  char *name;    /* of the file, for messages */
  char *command; /* that a command line runs: "swift", "megatron", "llamafactory-cli", a script, a module; NULL: none */
  GPtrArray *list;    /* of SpRunItem*, in the file's order */
  GHashTable *by_key; /* the same, by their key */
} SpRunItems;

SpRunItems *sp_run_items_new (const char *name);
void sp_run_items_free (SpRunItems *items);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpRunItems, sp_run_items_free)

/* What YAML takes a plain value for. */
SpItemType sp_run_items_plain_type (const char *text);
/* FALSE with an error if the key stands there already. */
gboolean sp_run_items_add (SpRunItems *items, const char *key, SpItemType type, const char *text, guint line,
                           GError **error);
const SpRunItem *sp_run_items_get (const SpRunItems *items, const char *key);
/* Whether a command line runs this. */
gboolean sp_run_items_runs (const SpRunItems *items, const char *command);
/* Flags as a YAML file has them: without dashes, their values typed as there. */
void sp_run_items_undash (SpRunItems *items);
/* "name:12: key" or "name: key". Free with g_free. */
char *sp_run_item_place (const SpRunItems *items, const SpRunItem *item);

SpRunItems *sp_run_items_parse_args (const char *name, const char *text, gsize length, GError **error);
SpRunItems *sp_run_items_parse_overrides (const char *name, const char *text, gsize length, GError **error);
SpRunItems *sp_run_items_parse_yaml (const char *name, const char *text, gsize length, GError **error);
SpRunItems *sp_run_items_parse_json (const char *name, const char *text, gsize length, GError **error);
SpRunItems *sp_run_items_parse_toml (const char *name, const char *text, gsize length, GError **error);

/* The items as text of that syntax, in their order; `comments` (of char*) where it has comments. */
void sp_run_items_write_args (const SpRunItems *items, const GPtrArray *comments, GString *out);
void sp_run_items_write_overrides (const SpRunItems *items, const GPtrArray *comments, GString *out);
void sp_run_items_write_yaml (const SpRunItems *items, const GPtrArray *comments, GString *out);
void sp_run_items_write_json (const SpRunItems *items, const GPtrArray *comments, GString *out);
void sp_run_items_write_toml (const SpRunItems *items, const GPtrArray *comments, GString *out);

G_END_DECLS
