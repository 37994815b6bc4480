/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Runs $SEQPAR_BIN on files of a folder of its own; only the device and a few scenarios are shipped ones.
 */
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>

static char *folder; /* of all files that are written here */

/* FALSE, with the skip said, where there is no program to run. */
static inline gboolean
begin_cli (int *argc, char ***argv)
{
  g_autoptr (GError) error = NULL;
  g_test_init (argc, argv, NULL);
  if (g_getenv ("SEQPAR_BIN") == NULL || g_getenv ("SEQPAR_DATA") == NULL) {
    g_print ("1..0 # SKIP SEQPAR_BIN and SEQPAR_DATA are not set; run meson test\n");
    return FALSE;
  }
  folder = g_dir_make_tmp ("seqpar-cli-XXXXXX", &error);
  g_assert_no_error (error);
  return TRUE;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct {
  int status; /* exit status, -1 if it was killed */
  char *out, *err;
} Run;

static inline void
run_clear (Run *run)
{
  g_free (run->out);
  g_free (run->err);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Run, run_clear)

/* `args` NULL-terminated, without the program. */
static inline Run
run_args (const char *const *args)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();
  Run run = { 0 };
  int status = 0;
  g_ptr_array_add (argv, (gpointer) g_getenv ("SEQPAR_BIN"));
  for (guint i = 0; args[i] != NULL; i++)
    g_ptr_array_add (argv, (gpointer) args[i]);
  g_ptr_array_add (argv, NULL);
  g_spawn_sync (folder, (char **) argv->pdata, NULL, G_SPAWN_DEFAULT, NULL, NULL, &run.out, &run.err, &status, &error);
  g_assert_no_error (error);
  run.status = WIFEXITED (status) ? WEXITSTATUS (status) : -1;
  g_autofree char *line = g_strjoinv (" ", (char **) args);
  g_test_message ("seqpar %s: %d %s", line, run.status, run.err);
  return run;
}
#define run_cli(...) run_args ((const char *const[]){ __VA_ARGS__, NULL })

static inline void
assert_contains (const char *text, const char *word)
{
  if (strstr (text, word) == NULL)
    g_error ("\"%s\" is not in \"%s\"", word, text);
}

/* Nothing on stdout, one line on stderr. */
static inline void
assert_refused (const Run *run, int status, const char *const *words)
{
  g_assert_cmpint (run->status, ==, status);
  g_assert_cmpstr (run->out, ==, "");
  g_assert_true (g_str_has_prefix (run->err, "seqpar: "));
  const char *end = strchr (run->err, '\n');
  g_assert_true (end != NULL && end[1] == '\0');
  for (guint i = 0; words[i] != NULL; i++)
    assert_contains (run->err, words[i]);
}

/* The result of a run that went well: valid JSON and nothing else said. */
static inline JsonNode *
parse_json (const Run *run)
{
  g_autoptr (GError) error = NULL;
  g_assert_cmpint (run->status, ==, 0);
  g_assert_cmpstr (run->err, ==, "");
  JsonNode *node = json_from_string (run->out, &error);
  g_assert_no_error (error);
  g_assert_nonnull (node);
  return node;
}

static inline JsonNode *
member (JsonNode *node, const char *name)
{
  g_assert_true (JSON_NODE_HOLDS_OBJECT (node));
  JsonNode *found = json_object_get_member (json_node_get_object (node), name);
  if (found == NULL)
    g_error ("no member %s", name);
  return found;
}

static inline double
number (JsonNode *node, const char *name)
{
  JsonNode *found = member (node, name);
  GType type = json_node_get_value_type (found);
  if (type != G_TYPE_DOUBLE && type != G_TYPE_INT64)
    g_error ("%s is no number", name);
  double value = json_node_get_double (found);
  g_assert_true (isfinite (value));
  return value;
}

static inline JsonArray *
array (JsonNode *node, const char *name)
{
  JsonNode *found = member (node, name);
  g_assert_true (JSON_NODE_HOLDS_ARRAY (found));
  return json_node_get_array (found);
}

/* Two profiles as text. Fits are the same bytes wherever libm is; else values may differ where a fit ends. */
static inline void
assert_same_profile (const char *made, const char *shipped)
{
  g_auto (GStrv) a = g_strsplit (made, "\n", -1), b = g_strsplit (shipped, "\n", -1);
  if (g_str_equal (made, shipped))
    return;
  g_assert_cmpuint (g_strv_length (a), ==, g_strv_length (b));
  for (guint i = 0; a[i] != NULL; i++) {
    const char *x = strstr (a[i], " = "), *y = strstr (b[i], " = ");
    if (g_str_equal (a[i], b[i]))
      continue;
    g_test_message ("\"%s\" differs from \"%s\"", a[i], b[i]);
    g_assert_true (x != NULL && y != NULL && x - a[i] == y - b[i]);
    double first = g_ascii_strtod (x + 3, NULL), second = g_ascii_strtod (y + 3, NULL);
    g_assert_cmpfloat (fabs (first - second), <=, 1e-6 * fabs (second));
  }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char model_text[] = "[model]\n"
                                 "name = small\n"
                                 "layers = 4\n"
                                 "hidden = 256\n"
                                 "heads = 8\n"
                                 "kv-heads = 4\n"
                                 "ffn = 512\n"
                                 "vocabulary = 1000\n";

static const char cluster_text[] = "[cluster]\n"
                                   "name = one node\n"
                                   "nodes = 1\n"
                                   "gpus-per-node = 4\n"
                                   "device = DEVICE\n"
                                   "link-efficiency = 0.8\n"
                                   "link-latency = 3.4 us\n";

static const char scenario_text[] = "[model]\n"
                                    "config = model.ini\n"
                                    "\n"
                                    "[cluster]\n"
                                    "file = cluster.ini\n"
                                    "\n"
                                    "[layout]\n"
                                    "ulysses = 2\n"
                                    "ring = 2\n"
                                    "\n"
                                    "[run]\n"
                                    "sequence = 64K\n"
                                    "global-batch = 2\n";

static inline char *
replace (const char *text, const char *from, const char *to)
{
  const char *at = strstr (text, from);
  g_assert_nonnull (at);
  g_autofree char *head = g_strndup (text, (gsize) (at - text));
  return g_strconcat (head, to, at + strlen (from), NULL);
}

static inline void
write_file (const char *name, const char *text, gssize length)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (folder, name, NULL);
  g_file_set_contents (path, text, length, &error);
  g_assert_no_error (error);
}

static inline char *
read_back (const char *name, gsize *ret_length)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (folder, name, NULL);
  char *text = NULL;
  g_file_get_contents (path, &text, ret_length, &error);
  g_assert_no_error (error);
  return text;
}

static inline gboolean
is_there (const char *name)
{
  g_autofree char *path = g_build_filename (folder, name, NULL);
  return g_file_test (path, G_FILE_TEST_EXISTS);
}

/* FALSE: the test is skipped. */
static inline gboolean
has_gnuplot (void)
{
  g_autofree char *program = g_find_program_in_path ("gnuplot");
  if (program == NULL)
    g_test_skip ("gnuplot is not installed");
  return program != NULL;
}

/* The four files, as they are above. */
static inline void
write_good (void)
{
  g_autofree char *device = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", "h100.ini", NULL);
  g_autofree char *cluster = replace (cluster_text, "DEVICE", device);
  write_file ("model.ini", model_text, -1);
  write_file ("cluster.ini", cluster, -1);
  write_file ("scenario.ini", scenario_text, -1);
}

static inline void
write_gpus (guint gpus)
{
  g_autofree char *device = g_build_filename (g_getenv ("SEQPAR_DATA"), "devices", "h100.ini", NULL);
  g_autofree char *here = replace (cluster_text, "DEVICE", device);
  g_autofree char *count = g_strdup_printf ("gpus-per-node = %u", gpus);
  g_autofree char *cluster = replace (here, "gpus-per-node = 4", count);
  write_file ("cluster.ini", cluster, -1);
}

/* A model of another depth and other heads, of 32 features each. */
static inline void
write_model (guint layers, guint heads, guint kv_heads)
{
  g_autofree char *text = g_strdup_printf ("[model]\nlayers = %u\nhidden = %u\nheads = %u\nkv-heads = %u\nffn = 512\n"
                                           "vocabulary = 1000\n",
                                           layers, heads * 32, heads, kv_heads);
  write_file ("model.ini", text, -1);
}

static inline void
remove_folder (void)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  for (const char *name; (name = g_dir_read_name (dir)) != NULL;) {
    g_autofree char *path = g_build_filename (folder, name, NULL);
    g_remove (path);
  }
  g_rmdir (folder);
  g_free (folder);
}
