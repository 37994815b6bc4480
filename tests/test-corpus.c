/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzers' targets without a fuzzer: every seed of tests/fuzz/corpus, and some changes of each that are the same in
 * every run. A target ends the program where it finds anything. */
#include <string.h>

#include <glib.h>

#define SEED 20
#define CHANGES 12 /* of each seed */

typedef int Target (const guint8 *data, size_t size);

/* FUZZ_TARGETS is X(name)X(name)..., of the build. */
#define X(name) Target fuzz_##name;
FUZZ_TARGETS
#undef X

static const struct {
  const char *name;
  Target *run;
} targets[] = {
#define X(name) { #name, fuzz_##name },
  FUZZ_TARGETS
#undef X
};

static gint
compare_paths (gconstpointer a, gconstpointer b)
{
  return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* Paths, sorted: a folder lists its files in any order. */
static GPtrArray *
list_seeds (const char *target)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *name = g_strdelimit (g_strdup (target), "_", '-');
  g_autofree char *folder = g_build_filename (CORPUS_DIR, name, NULL);
  g_autoptr (GDir) dir = g_dir_open (folder, 0, &error);
  GPtrArray *paths = g_ptr_array_new_with_free_func (g_free);
  g_assert_no_error (error);
  for (const char *entry; (entry = g_dir_read_name (dir)) != NULL;)
    g_ptr_array_add (paths, g_build_filename (folder, entry, NULL));
  g_ptr_array_sort (paths, compare_paths);
  return paths;
}

/* In an allocation of just that size, where a sanitizer sees what is read beyond it. */
static void
run (Target *target, const GString *text)
{
  g_autofree guint8 *data = g_memdup2 (text->str, text->len);
  target (data, text->len);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static void
change_byte (GRand *rand, GString *text, gsize at)
{
  static const char bytes[] = "\0\n\t =[]{}<>\"'#,.-+*/\\0123456789eKG\x80\xff";
  text->str[at] = bytes[g_rand_int_range (rand, 0, sizeof bytes - 1)];
}

/* A part of it, twice. */
static void
repeat_part (GRand *rand, GString *text, gsize at)
{
  gsize length = (gsize) g_rand_int_range (rand, 1, 80);
  length = MIN (length, text->len - at);
  g_autofree char *part = g_memdup2 (text->str + at, length);
  g_string_insert_len (text, (gssize) at, part, (gssize) length);
}

static void
cut_part (GRand *rand, GString *text, gsize at)
{
  gsize length = (gsize) g_rand_int_range (rand, 1, 40);
  g_string_erase (text, (gssize) at, (gssize) MIN (length, text->len - at));
}

static void
change_number (GRand *rand, GString *text, gsize at)
{
  static const char *const numbers[] = { "0", "-1", "1", "2147483648", "9223372036854775807", "1e308", "nan", "0.5" };
  while (at < text->len && !g_ascii_isdigit (text->str[at]))
    at++;
  gsize end = at;
  while (end < text->len && g_ascii_isdigit (text->str[end]))
    end++;
  g_string_erase (text, (gssize) at, (gssize) (end - at));
  g_string_insert (text, (gssize) at, numbers[g_rand_int_range (rand, 0, G_N_ELEMENTS (numbers))]);
}

static void
change (GRand *rand, GString *text)
{
  static void (*const ways[]) (GRand *, GString *, gsize) = { change_byte, repeat_part, cut_part, change_number };
  for (gint32 n = g_rand_int_range (rand, 1, 4); n > 0 && text->len > 0; n--) {
    gsize at = (gsize) g_rand_int_range (rand, 0, (gint32) text->len);
    ways[g_rand_int_range (rand, 0, G_N_ELEMENTS (ways))](rand, text, at);
  }
}

/* --- replay ------------------------------------------------------------------------------------------------------- */

static void
test_target (gconstpointer data)
{
  guint index = GPOINTER_TO_UINT (data);
  Target *target = targets[index].run;
  g_autoptr (GPtrArray) paths = list_seeds (targets[index].name);
  g_autoptr (GRand) rand = g_rand_new_with_seed (SEED);
  g_assert_cmpuint (paths->len, >, 0);
  g_test_message ("%u seeds, %d changes of each from seed %d", paths->len, CHANGES, SEED);
  for (guint i = 0; i < paths->len; i++) {
    g_autoptr (GError) error = NULL;
    g_autofree char *bytes = NULL;
    gsize length;
    g_file_get_contents (paths->pdata[i], &bytes, &length, &error);
    g_assert_no_error (error);
    for (guint j = 0; j <= CHANGES; j++) {
      g_autoptr (GString) text = g_string_new_len (bytes, (gssize) length);
      if (j > 0)
        change (rand, text);
      run (target, text);
    }
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (targets); i++) {
    g_autofree char *name = g_strconcat ("/corpus/", targets[i].name, NULL);
    g_test_add_data_func (name, GUINT_TO_POINTER (i), test_target);
  }
  return g_test_run ();
}
