/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A scenario: the INI file that `seqpar run` reads. Groups [model], [cluster], [layout], [run] and, optional,
 * [variation] and [run-file]; files in it are relative to it. [cluster] file is a cluster's INI, or what NCCL or nvidia-smi says of a
 * machine (topology-dump.h) with device = FILE and, for more than one such node, nodes = N beside it. Of an INI,
 * nodes = N takes as many of its nodes, gpus-per-node = N a part of its one. profile = FILE (profile.h) stands where the
 * cluster's own would; a bare name may be that of a shipped one.
 * Unknown groups and keys, duplicate keys, wrong units, values that are not finite or out of range are
 * errors that name file, group, key, value, what was expected and the nearest valid choice. So is a key of `sets` that
 * this layout or model has no use for; one of the file, which the sets may have made useless, is a note.
 */

#include "models/inputs/variations.h"
#include "models/layout.h"

G_BEGIN_DECLS

/* [run-file], optional: what a run file that became the scenario says besides, and an export of it says again. No cost
 * depends on it. */
typedef struct {
  char *hub_name;       /* of the model; NULL: not said */
  gint64 prompt_tokens; /* of `sequence`; 0: not said */
  gint32 answers;       /* to a prompt; 0: not said */
} SpOrigin;

typedef struct {
  char *path;
  char *model_path, *cluster_path, *framework_path; /* the files that were read */
  char *device_path;                                /* of a cluster that is a dump; NULL else */
  char *profile_path;                               /* given beside the cluster's file; NULL else */
  gint32 nodes, gpus_per_node;                      /* of the cluster, as given beside its file; 0: not */
  SpArchitecture *arch;
  SpCluster *cluster;
  SpFramework *framework;
  SpPacking *packing; /* that run.packing points to; NULL: none */
  SpLayout layout;
  SpRun run;
  SpOrigin origin;
  GPtrArray *notes;        /* char*: keys of the file that make no difference */
  SpVariations variations; /* the optional [variation] group, for simulations */
} SpScenario;

/* A file named in a scenario is absolute, or relative to the scenario, or (a bare name that is no file there) a shipped
 * one; given by a set, it may also be relative to the current folder. `sets` is a NULL-terminated list of "key=value" or
 * "group.key=value", applied over the file (may be NULL). The layout is parsed, not checked for legality: that is
 * sp_layout_check. */
SpScenario *sp_scenario_load (const char *path, const char *const *sets, GError **error);
/* The same for who tries other degrees than the file's: keys that have no use in its layout are as they are given. */
SpScenario *sp_scenario_load_to_vary (const char *path, const char *const *sets, GError **error);
/* As the first, but the sets count as if they stood in the file: one that makes no difference is a note, and a file that
 * one names is relative to the scenario. */
SpScenario *sp_scenario_load_as_written (const char *path, const char *const *sets, GError **error);
/* As the first, of a text, with a 0 after its `length` bytes, as if it were the file `path`. */
SpScenario *sp_scenario_parse (const char *path, const char *text, gsize length, const char *const *sets,
                               GError **error);
void sp_scenario_free (SpScenario *scenario);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpScenario, sp_scenario_free)

/* Of a key that no scenario has: which other file does, as "; it is a key of ...", or NULL. Free with g_free. */
char *sp_scenario_key_elsewhere (const char *name);

/* Why a key, whatever its value, makes no difference in a scenario and what would make it count, or NULL: it does. Of
 * the scenario only arch, layout and run are looked at. Free with g_free. */
char *sp_scenario_no_effect (const SpScenario *scenario, const char *group, const char *key);

/* The same of the keys of [variation], which nothing but a simulation looks at: one of a command line that makes no
 * difference is refused, one of the file becomes a note. */
gboolean sp_scenario_check_variations (SpScenario *scenario, gboolean simulated, GError **error);

/* The scenario with every default written out, as `show` prints it. */
void sp_scenario_write (const SpScenario *scenario, GString *out);

/* The keys, for who writes scenarios of other files: FALSE beyond the last. *ret_default is what the writer above says
 * of a key that a file leaves out, empty of [model] and [cluster]; free with g_free. */
gboolean sp_scenario_key (guint i, const char **ret_group, const char **ret_name, char **ret_default);
/* Would a scenario take this value? LATER: the key or the value is not available yet; REFUSED: *ret_expected says what
 * was expected (free with g_free). Whether it suits the rest of the scenario is not asked. */
typedef enum { SP_VALUE_TAKEN, SP_VALUE_LATER, SP_VALUE_REFUSED } SpValueVerdict;
SpValueVerdict sp_scenario_takes (const char *group, const char *key, const char *value, char **ret_expected);

/* Sets what the value of a key of [layout] or [run] says in `layout` or `run`: for a command line that takes some of
 * them. The error names no file. The key is none of a file. */
gboolean sp_scenario_set (const char *group, const char *key, const char *value, SpLayout *layout, SpRun *run,
                          GError **error);

/* Directory of the shipped scenarios: $SEQPAR_DATA, else where the build or the installation put them. */
const char *sp_data_dir (void);

/* For a command line: `name` if it is a file, else the shipped file of that name (its suffix may be left out). Free
 * with g_free. The error names the nearest shipped one. */
char *sp_find_model (const char *name, GError **error);
char *sp_find_cluster (const char *name, GError **error);
char *sp_find_framework (const char *name, GError **error);
char *sp_find_profile (const char *name, GError **error);
char *sp_find_validation (const char *name, GError **error);
/* The shipped one alone; `folder` is "models", "clusters", "frameworks", "devices", "profiles" or "validation". */
char *sp_find_shipped (const char *folder, const char *name, GError **error);
/* All that are shipped, sorted, without their suffixes. Free with g_strfreev. */
char **sp_list_shipped (const char *folder);

G_END_DECLS
