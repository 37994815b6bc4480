/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar report: one page that needs nothing else, whatever files say. */
#include "tests/cli-run.h"

static char *
write_report (const char *name, const char *set)
{
  g_auto (Run) run = run_cli ("report", "scenario.ini", "-o", name, "--layouts", "3", "--set", set);
  g_assert_cmpstr (run.err, ==, "");
  g_assert_cmpstr (run.out, ==, "");
  g_assert_cmpint (run.status, ==, 0);
  return read_back (name, NULL);
}

static guint
count (const char *text, const char *pattern)
{
  g_autoptr (GRegex) regex = g_regex_new (pattern, 0, 0, NULL);
  g_autoptr (GMatchInfo) match = NULL;
  guint n = 0;
  for (g_regex_match (regex, text, 0, &match); g_match_info_matches (match); g_match_info_next (match, NULL))
    n++;
  return n;
}

/* Every figure as XML by itself. */
static void
assert_well_formed (const char *text)
{
  static const GMarkupParser none = { NULL };
  g_autoptr (GError) error = NULL;
  const char *end;
  for (const char *svg = text; (svg = strstr (svg, "<svg")) != NULL; svg = end) {
    g_autoptr (GMarkupParseContext) context = g_markup_parse_context_new (&none, 0, NULL, NULL);
    end = strstr (svg, "</svg>") + strlen ("</svg>");
    gboolean parsed = g_markup_parse_context_parse (context, svg, end - svg, &error) &&
                      g_markup_parse_context_end_parse (context, &error);
    g_assert_no_error (error);
    g_assert_true (parsed);
  }
}

static void
test_page (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *text = write_report ("report.html", "zero=1"), *again = write_report ("again.html", "zero=1");
  g_assert_cmpstr (text, ==, again);
  assert_contains (text, "It fits");
  assert_contains (text, "bound by");
  assert_contains (text, "datasheet: ");
  g_assert_cmpuint (count (text, "<svg"), ==, 6);
  g_assert_cmpuint (count (text, "<tr><td class=\"n\">[123]</td>"), ==, 3);
  g_assert_cmpuint (count (text, "class=own"), ==, 1);
  assert_well_formed (text);
}

/* Nothing is loaded: no address but those of XML's names, no script; and no two figures share an id. */
static void
test_self_contained (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *text = write_report ("report.html", "zero=1");
  g_assert_cmpuint (count (text, "<script|<link|<img|<iframe|@import|javascript:"), ==, 0);
  g_assert_cmpuint (count (text, "(src|href)=['\"](?!#)"), ==, 0);
  g_assert_cmpuint (count (text, "url\\((?!['\"]?#)"), ==, 0);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GRegex) ids = g_regex_new ("\\bid=['\"]([^'\"]*)", 0, 0, NULL);
  g_autoptr (GMatchInfo) match = NULL;
  for (g_regex_match (ids, text, 0, &match); g_match_info_matches (match); g_match_info_next (match, NULL))
    g_assert_true (g_hash_table_add (seen, g_match_info_fetch (match, 1)));
  g_assert_cmpuint (g_hash_table_size (seen), >, 20);
}

static void
test_names (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *model = replace (model_text, "name = small", "name = <script>alert(1)</script> & \"it's\" {a}_b");
  write_file ("model.ini", model, -1);
  g_autofree char *text = write_report ("named.html", "zero=1");
  g_assert_cmpuint (count (text, "<script"), ==, 0);
  assert_contains (text, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;it&apos;s&quot; {a}_b");
  assert_well_formed (text);
}

static void
test_does_not_fit (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *text = write_report ("out.html", "sequence=16M");
  assert_contains (text, "It does not fit");
  assert_contains (text, "(out of memory)");
}

/* One GPU sends nothing, and the page says so in a figure's place. */
static void
test_one_gpu (void)
{
  if (!has_gnuplot ())
    return;
  write_good ();
  write_gpus (1);
  g_autofree char *scenario = replace (scenario_text, "ulysses = 2\nring = 2\n", "");
  write_file ("scenario.ini", scenario, -1);
  g_autofree char *text = write_report ("one.html", "sequence=8K");
  assert_contains (text, "no GPU sends anything");
  g_assert_cmpuint (count (text, "<svg"), ==, 5);
}

/* In a browser, at two widths; where there is one. */
static void
test_browser (void)
{
  static const char *const names[] = { "chromium", "chromium-browser", "google-chrome" };
  static const char *const sizes[] = { "--window-size=1200,1600", "--window-size=480,1600" };
  g_autofree char *browser = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (names) && browser == NULL; i++)
    browser = g_find_program_in_path (names[i]);
  if (browser == NULL) {
    g_test_skip ("no Chromium is installed");
    return;
  }
  if (!has_gnuplot ())
    return;
  write_good ();
  g_autofree char *text = write_report ("report.html", "zero=1");
  g_autofree char *address = g_strconcat ("file://", folder, "/report.html", NULL);
  g_autofree char *profile = g_strconcat ("--user-data-dir=", folder, "/browser", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++) {
    g_autofree char *image = g_strdup_printf ("%s/page-%u.png", folder, i), *png = NULL;
    g_autofree char *option = g_strconcat ("--screenshot=", image, NULL);
    const char *argv[] = { browser, "--headless", "--no-sandbox", "--disable-gpu", profile, sizes[i], option,
                           address, NULL };
    gsize length = 0;
    g_assert_true (g_spawn_sync (folder, (char **) argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                                 NULL, NULL, NULL, NULL, NULL, NULL));
    g_assert_true (g_file_get_contents (image, &png, &length, NULL));
    g_assert_cmpuint (length, >, 20000); /* an empty page has a tenth of that */
    const char *rm[] = { "rm", "-rf", profile + strlen ("--user-data-dir="), NULL };
    g_spawn_sync (NULL, (char **) rm, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
  }
}

static void
test_refusals (void)
{
  write_good ();
  g_auto (Run) none = run_cli ("report", "scenario.ini");
  assert_refused (&none, 2, (const char *[]){ "-o is missing", NULL });
  g_auto (Run) layouts = run_cli ("report", "scenario.ini", "-o", "no.html", "--layouts", "many");
  assert_refused (&layouts, 2, (const char *[]){ "--layouts \"many\"", NULL });
  g_auto (Run) illegal = run_cli ("report", "scenario.ini", "-o", "no.html", "--set", "ulysses=3");
  assert_refused (&illegal, 1, (const char *[]){ "[layout]", NULL });
  g_auto (Run) over = run_cli ("report", "scenario.ini", "-o", "scenario.ini");
  assert_refused (&over, 1, (const char *[]){ "a file that this reads", NULL });
  g_autofree char *path = g_strdup (g_getenv ("PATH"));
  g_setenv ("PATH", folder, TRUE);
  g_auto (Run) gnuplot = run_cli ("report", "scenario.ini", "-o", "no.html", "--layouts", "0");
  g_setenv ("PATH", path, TRUE);
  assert_refused (&gnuplot, 1, (const char *[]){ "gnuplot is not in the PATH", NULL });
  g_assert_false (is_there ("no.html"));
}

int
main (int argc, char **argv)
{
  if (!begin_cli (&argc, &argv))
    return 0;
  g_test_add_func ("/report/page", test_page);
  g_test_add_func ("/report/self-contained", test_self_contained);
  g_test_add_func ("/report/names", test_names);
  g_test_add_func ("/report/does-not-fit", test_does_not_fit);
  g_test_add_func ("/report/one-gpu", test_one_gpu);
  g_test_add_func ("/report/browser", test_browser);
  g_test_add_func ("/report/refusals", test_refusals);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
