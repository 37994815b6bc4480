/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of sets refuses, each in one line that says where, what, and what was expected. */
#include "tests/set-files.h"

#include <string.h>

#define SET "[set]\ntitle = by hand\nsource = by hand\n"
#define ROWS "[rows.all]\ndata = data.csv\n"
#define CHECK "[check.a]\nscenario = x.ini\n"

static void
assert_refused (const char *set, const char *data, const char *const *words, guint n_words)
{
  g_autoptr (GError) error = NULL;

  g_assert_null (load (set, data, &error));
  g_assert_nonnull (error);
  g_test_message ("%s", error->message);
  g_assert_null (strchr (error->message, '\n'));
  for (guint w = 0; w < n_words && words[w] != NULL; w++)
    if (strstr (error->message, words[w]) == NULL)
      g_error ("\"%s\" is not in \"%s\"", words[w], error->message);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void
test_refused (void)
{
  static const char good[] = "tensor,step_time_s\n1,1\n";
  static const struct {
    const char *set, *data, *words[4];
  } cases[] = {
    { "[set]\nsource = x\n" ROWS, good, { "[set] title", "missing" } },
    { SET, good, { "no [rows.NAME] and no [check.NAME]" } },
    { SET "engin = estimate\n" ROWS, good, { "[set] engin", "did you mean engine?" } },
    { SET "score = peak_byte\n" ROWS, good, { "[set] score", "peak_byte", "did you mean peak_bytes?" } },
    { SET "[bounds]\nthroughput-medin = 1\n" ROWS, good, { "throughput-medin", "did you mean throughput-median?" } },
    { SET "[bounds]\ntime-median = ten\n" ROWS, good, { "[bounds] time-median = \"ten\"", "MUST / GOAL" } },
    { SET "[bounds]\nkendall = 1 / 2 / 3\n" ROWS, good, { "[bounds] kendall", "MUST / GOAL" } },
    { SET "[others]\nvTrain = time 8\n" ROWS, good, { "[others] vTrain", "time-mean 8 %" } },
    { SET "[others]\nvTrain = time-mean -8 %\n" ROWS, good, { "[others] vTrain", "time-mean 8 %" } },
    { SET "[rows.all]\ndata = dat.csv\n", good, { "set.ini: [rows.all] data", "dat.csv", "No such file" } },
    { SET ROWS "split = every 1\n", good, { "[rows.all] split = \"every 1\"", "2 to 1000" } },
    { SET ROWS "split = every 2 by tensr\n", good, { "no column tensr", "did you mean tensor?" } },
    { SET ROWS "split = some\n", good, { "[rows.all] split = \"some\"", "held-out" } },
    { SET "split = some\n" ROWS, good, { "[set] split = \"some\"" } },
    { SET ROWS "split = column\n", good, { "data.csv", "no column split" } },
    { SET ROWS "split = where tensor < few\n", good, { "tensor < few", "COLUMN = VALUE" } },
    { SET ROWS "aside.1 = where tensor = 1\n", good, { "aside.1", "CONDITIONS: a reason" } },
    { SET ROWS "aside.1 = speed where tensor = 1: x\n", good, { "aside.1", "[time|memory|outcome|longest]" } },
    { SET ROWS "why.1 = outcome where tensor = 1: x\n", good, { "why.1", "what is missing" } },
    { SET ROWS "aside.1 = where tensor = 2: x\n", good, { "[rows.all] aside.1", "holds for no row", "data.csv" } },
    { SET ROWS "why.1 = time where tensor > 1: x\n", good, { "[rows.all] why.1", "holds for no row" } },
    { SET ROWS "split = where tensor = one\n", good, { "[rows.all] split", "holds for no row" } },
    { SET ROWS "cell = tensors\n", good, { "cell", "no column tensors", "did you mean tensor?" } },
    { SET ROWS "choice = tensor, tensors\n", good, { "choice", "no column tensors", "did you mean tensor?" } },
    { SET ROWS "set = tensr=2\n", good, { "[rows.all] set", "tensr=2", "KEY=VALUE" } },
    { SET ROWS "refused = yes\n", good, { "[rows.all] refused = \"yes\"", "error, aside" } },
    { SET ROWS "side.1 = 1\n", good, { "side.1", "unknown key" } },
    { SET ROWS, "tensor,steptime_s\n1,1\n", { "data.csv: column \"steptime_s\"", "did you mean step_time_s?" } },
    { SET ROWS, "tensor,tensor\n1,1\n", { "column tensor stands twice" } },
    { SET ROWS, "tensor,step_time_s\n", { "data.csv", "no rows" } },
    { SET ROWS, "tensor,step_time_s\n1,1\n1,fast\n", { "row 2: step_time_s = \"fast\"", "19.6 ms" } },
    { SET ROWS, "tensor,step_time_s\n1,0\n", { "row 1: step_time_s = \"0\"" } },
    { SET ROWS, "tensor,peak_bytes\n1,5 GHz\n", { "row 1: peak_bytes = \"5 GHz\"", "59.25 GiB" } },
    { SET ROWS, "tensor,outcome\n1,crash\n", { "row 1: outcome = \"crash\"", "fits or oom" } },
    { SET ROWS, "tensor,gpus,mfu\n1,half,0.5\n", { "row 1: gpus = \"half\"", "a number of GPUs" } },
    { SET "[fit]\nframework.host-lunch = 1 us .. 1 ms\n" ROWS, good, { "[fit] framework.host-lunch" } },
    { SET "[fit]\nmodel.layers = 1 .. 2\n" ROWS, good, { "[fit] model.layers", "framework.KEY" } },
    { SET "[fit]\nframework.host-launch = 1 us\n" ROWS, good, { "[fit] framework.host-launch", "LOW .. HIGH" } },
    { SET "[fit]\nframework.host-launch = 1 .. 2\n" ROWS, good, { "[fit] framework.host-launch", "LOW .. HIGH" } },
    { SET "[fit]\ndevice.gemm-efficiency = 90 % .. 50 %\n" ROWS, good, { "HIGH above it" } },
    { SET "[check.a]\nkind = ratios\n", good, { "[check.a] kind", "did you mean ratio?" } },
    { SET "[check.a]\nkind = order\nwhat = mfu\nside.a = tensor=1\n", good, { "[check.a] side.a", "scenario=FILE" } },
    { SET "[check.a]\nkind = order\nwhat = mfu\nscenario = x.ini\nside.a = tensor=1\n",
      good,
      { "[check.a]", "1 side,", "twice or more" } },
    { SET "[check.a]\nkind = value\nwhat = longest\nsearch = layers\n", good, { "[check.a] search", "micro-batch" } },
    { SET "[check.a]\nkind = value\nwhat = longest\nscenario = x.ini\nside.a = tensor=1\npublished = 4\n",
      good,
      { "[check.a]", "either tolerance or doublings" } },
    { SET
      "[check.a]\nkind = value\nwhat = longest\nscenario = x.ini\nside.a = tensor=1\npublished = no\ntolerance = 1\n",
      good,
      { "[check.a] published", "512K" } },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    assert_refused (cases[i].set, cases[i].data, cases[i].words, G_N_ELEMENTS (cases[i].words));
}

/* --- bounds ------------------------------------------------------------------------------------------------------- */

/* What no statistic can be, or what cannot have been meant. */
static void
test_bounds (void)
{
  static const struct {
    const char *bound, *expected; /* NULL: it is good */
  } cases[] = {
    { "time-median = 8 % / 4 %", NULL },
    { "time-median = 0.08 / 0.04", NULL },
    { "time-median = 8 % / 8 %", NULL },
    { "time-worst = 150 %", NULL },
    { "kendall = 0.8 / 0.95", NULL },
    { "kendall = -0.5", NULL },
    { "balanced-accuracy = 90 % / 96 %", NULL },
    { "longest-doublings = 1 / 0", NULL },
    { "time-median = 4 % / 8 %", "looser" },
    { "balanced-accuracy = 96 % / 90 %", "looser" },
    { "kendall = 0.8 / 0.7", "looser" },
    { "time-median = -8 %", "nothing below 0" },
    { "memory-worst = 5 % / -1 %", "nothing below 0" },
    { "longest-doublings = -1", "nothing below 0" },
    { "balanced-accuracy = 110 %", "0 % to 100 %" },
    { "best = -1 %", "0 % to 100 %" },
    { "kendall = 80", "-1 to 1" },
    { "time-median = 8 / 4", "percent (8 %)" },
    { "time-median = nan", "MUST / GOAL" },
    { "time-median = 8 % /", "MUST / GOAL" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *key = g_strndup (cases[i].bound, strcspn (cases[i].bound, " "));
    g_autofree char *set = g_strdup_printf (SET "[bounds]\n%s\n" ROWS, cases[i].bound);
    g_autofree char *where = g_strdup_printf ("set.ini: [bounds] %s = ", key);
    g_autoptr (GError) error = NULL;
    if (cases[i].expected != NULL) {
      assert_refused (set, "tensor,step_time_s\n1,1\n", (const char *const[]){ where, cases[i].expected }, 2);
      continue;
    }
    g_autoptr (SpValidation) v = load (set, "tensor,step_time_s\n1,1\n", &error);
    g_assert_no_error (error);
  }
}

static void
test_tolerances (void)
{
  static const char *const cases[][2] = {
    { "tolerance = 10 % / 25 %", "looser" }, { "tolerance = -1 %", "nothing below 0" },
    { "tolerance = 25", "percent (25 %)" },  { "doublings = 0 / 1", "looser" },
    { "doublings = -1", "nothing below 0" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *set =
        g_strdup_printf (SET CHECK "kind = value\nwhat = longest\nside.a = tensor=1\npublished = 4\n%s\n", cases[i][0]);
    assert_refused (set, "", (const char *const[]){ "[check.a]", cases[i][1] }, 2);
  }
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static char *
fit_set (const char *constants, const char *split)
{
  g_autofree char *scenario = g_strdup_printf ("[model]\nconfig = %s/models/tiny.ini\n[cluster]\nfile = "
                                               "%s/clusters/a100-1x8.ini\n[layout]\ndata = 8\n[run]\nsequence = "
                                               "2K\nglobal-batch = 8\nframework = flash\n",
                                               sp_data_dir (), sp_data_dir ());
  g_autofree char *path = write_file ("data.ini", scenario);

  return g_strdup_printf (SET ROWS "split = %s\n[fit]\n%s", split, constants);
}

/* A constant of a profile that no fitted run has, or that is there twice, would only be found out by a fit. */
static void
test_constants (void)
{
  static const char data[] = "framework,step_time_s\nflash,1\ndeepspeed,1\n";
  static const struct {
    const char *constants, *split, *words[3];
  } cases[] = {
    { "framework.flash.host-launch = 1 us .. 1 ms\n", "fit", { NULL } },
    { "framework.deepspeed.host-launch = 1 us .. 1 ms\nframework.flash.host-launch = 1 us .. 1 ms\n", "fit", { NULL } },
    { "cluster.a100-1x8.link-latency = 1 us .. 1 ms\n", "fit", { NULL } },
    { "framework.flsh.host-launch = 1 us .. 1 ms\n",
      "fit",
      { "[fit] framework.flsh.host-launch", "no fitted run has such a profile", "flash" } },
    { "framework.deepspeed.host-launch = 1 us .. 1 ms\n",
      "where framework = flash",
      { "[fit] framework.deepspeed.host-launch", "no fitted run", "expected flash" } },
    { "cluster.a100-8x8.link-latency = 1 us .. 1 ms\n", "fit", { "cluster.a100-8x8", "expected a100-1x8" } },
    { "framework.flash.host-launch = 1 us .. 1 ms\ncluster.a.link-latency = 1 us .. 1 ms\n",
      "fit",
      { "cluster.a.link-latency", "expected a100-1x8" } },
    { "device.h100.gemm-efficiency = 10 % .. 90 %\n", "fit", { "device.h100", "no fitted run" } },
    { "framework.host-launch = 1 us .. 1 ms\n", "held-out", { "[fit] framework.host-launch", "no run is fitted to" } },
    { "framework.host-launch = 1 us .. 1 ms\nframework.flash.host-launch = 1 us .. 1 ms\n",
      "fit",
      { "[fit] framework.flash.host-launch", "the same number as framework.host-launch" } },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *set = fit_set (cases[i].constants, cases[i].split);
    g_autoptr (GError) error = NULL;
    if (cases[i].words[0] != NULL) {
      assert_refused (set, data, cases[i].words, G_N_ELEMENTS (cases[i].words));
      continue;
    }
    g_autoptr (SpValidation) v = load (set, data, &error);
    g_assert_no_error (error);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  make_folder ();
  g_test_add_func ("/validation-read/refused", test_refused);
  g_test_add_func ("/validation-read/bounds", test_bounds);
  g_test_add_func ("/validation-read/tolerances", test_tolerances);
  g_test_add_func ("/validation-read/constants", test_constants);
  int status = g_test_run ();
  remove_folder ();
  return status;
}
