/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/executed.h"

#include <string.h>

#define COLUMNS                                                                                                        \
  "program,rank,row,name,queue,phase,layer,micro_batch,group,m,n,k,batch,heads,kv_heads,bytes,repeat,start_s,end_s"
#define SAID_COLUMNS COLUMNS ",clock_hz,power_w,temperature_c,throttle\n"
#define HEAD "# seqpar-executed: 1\n# card: A card\n" COLUMNS "\n"
#define SAID_HEAD "# seqpar-executed: 1\n# power_limit_w: 700\n" SAID_COLUMNS

/* Two runs; of the first the middle of three steps, the fullest rank and what most hands over; of the second no rank says
 * anything. */
static const char text[] = HEAD "a.prog,-1,step,,,,0,,,0,,,,,,0,0,0.001,0.3\n"
                                "a.prog,-1,step,,,,0,,,0,,,,,,0,1,0.001,0.1\n"
                                "a.prog,-1,step,,,,0,,,0,,,,,,0,2,0.001,0.2\n"
                                "a.prog,0,payload,ring,,,0,,,0,,,,,,4096,0,0,0\n"
                                "a.prog,1,payload,ring,,,0,,,0,,,,,,8192,0,0,0\n"
                                "a.prog,0,memory,used,,,0,,,0,,,,,,1000,0,0,0\n"
                                "a.prog,1,memory,used,,,0,,,0,,,,,,900,0,0,0\n"
                                "a.prog,0,memory,scratch,,,0,,,0,,,,,,300,0,0,0\n"
                                "a.prog,0,memory,communicators,,,0,,,2,,,,,,500,0,0,0\n"
                                "a.prog,0,op,norm-bwd,,,0,,,3,,,,,,0,0,0,0.004\n"
                                "a.prog,1,op,norm-bwd,,,0,,,3,,,,,,0,0,0,0.006\n"
                                "a.prog,0,exposed,,,,0,,,0,,,,,,0,0,0,0.005\n"
                                "a.prog,1,exposed,,,,0,,,0,,,,,,0,0,0,0\n"
                                "a.prog,0,wait,all-gather,,,0,,,7,,,,,,0,0,0,0.005\n"
                                "a.prog,0,overhead,events,,,0,,,0,,,,,,0,0,0,1e-06\n"
                                "a.prog,0,command,gemm,compute,forward,0,0,none,8,8,8,1,0,0,384,,0.01,0.02\n"
                                "b.prog,-1,loss,,,,0,,,0,,,,,,0,0,7.5,7.6\n"
                                "b.prog,-1,step,,,,0,,,0,,,,,,0,0,0.001,0.25\n";

static void
test_read (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SpExecuted) executed = sp_executed_parse ("a.csv", text, strlen (text), &error);

  g_assert_no_error (error);
  g_assert_cmpstr (executed->card, ==, "A card");
  g_assert_cmpuint (executed->runs->len, ==, 2);
  const SpExecutedRun *a = executed->runs->pdata[0], *b = executed->runs->pdata[1];
  g_assert_cmpstr (a->program, ==, "a.prog");
  g_assert_cmpfloat (sp_executed_step_s (a), ==, 0.2);
  g_assert_cmpfloat (sp_executed_step_s (b), ==, 0.25);
  g_assert_cmpint (a->payload_bytes[SP_AXIS_RING], ==, 8192);
  g_assert_cmpint (a->used_bytes, ==, 1000);
  g_assert_cmpint (a->scratch_bytes, ==, 300);
  g_assert_cmpint (a->communicators, ==, 2);
  g_assert_cmpuint (a->ranks->len, ==, 2);
  g_assert_cmpint (sp_executed_rank (a, 0)->op_times[SP_OP_NORM_BWD], ==, 3);
  g_assert_cmpfloat (sp_executed_rank (a, 0)->op_s[SP_OP_NORM_BWD], ==, 0.004);
  g_assert_cmpfloat (sp_executed_rank (a, 1)->op_s[SP_OP_NORM_BWD], ==, 0.006);
  g_assert_cmpfloat (sp_executed_rank (a, 0)->exposed_s, ==, 0.005);
  g_assert_cmpfloat (sp_executed_rank (a, 0)->own_s, <, 0); /* version 1 does not say it */
  g_assert_cmpfloat (sp_executed_rank (a, 1)->exposed_s, ==, 0);
  g_assert_cmpfloat (sp_executed_rank (a, 2)->exposed_s, <, 0);
  g_assert_cmpuint (b->ranks->len, ==, 0);
  g_assert_cmpfloat (sp_executed_rank (b, 0)->exposed_s, <, 0);
}

/* Version 2: of what a rank's kernels waited the transfers' own part, each wait by itself, and nothing of the other rank. */
static void
test_own (void)
{
  static const char said[] = "# seqpar-executed: 2\n" SAID_COLUMNS "a.prog,0,exposed,,,,0,,,0,,,,,,0,0,0,0.005,,,,\n"
                             "a.prog,0,exposed-transfer,,,,0,,,0,,,,,,0,0,0,0.003,,,,\n"
                             "a.prog,0,wait,all-gather,,,0,,,7,,,,,,0,0,0.003,0.005,,,,\n"
                             "a.prog,0,waited,all-gather,data,gather,1,-1,data,0,0,0,0,0,0,64,2,0,0.001,,,,\n"
                             "a.prog,1,exposed,,,,0,,,0,,,,,,0,0,0,0.004,,,,\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (SpExecuted) executed = sp_executed_parse ("a.csv", said, strlen (said), &error);

  g_assert_no_error (error);
  const SpExecutedRun *run = executed->runs->pdata[0];
  g_assert_cmpfloat (sp_executed_rank (run, 0)->exposed_s, ==, 0.005);
  g_assert_cmpfloat (sp_executed_rank (run, 0)->own_s, ==, 0.003);
  g_assert_cmpfloat (sp_executed_rank (run, 1)->own_s, <, 0);
  g_assert_cmpfloat (sp_executed_rank (run, 2)->own_s, <, 0);
}

/* The same file with what the card said of two steps out of three. */
static void
test_card (void)
{
  static const char said[] = SAID_HEAD "# max_clock_hz: 1980000000\n"
                                       "a.prog,-1,step,,,,0,,,0,,,,,,0,0,0.001,0.3,1.5e9,690,60,sw-power-cap\n"
                                       "a.prog,-1,step,,,,0,,,0,,,,,,0,1,0.001,0.1,,,,\n"
                                       "a.prog,-1,step,,,,0,,,0,,,,,,0,2,0.001,0.2,1.4e9,650,61,\n"
                                       "a.prog,0,payload,ring,,,0,,,0,,,,,,4096,0,0,0,,,,\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (SpExecuted) executed = sp_executed_parse ("a.csv", said, strlen (said), &error);

  g_assert_no_error (error);
  g_assert_true (executed->power_limit_w == 700 && executed->max_clock_hz == 1.98e9);
  const SpExecutedRun *run = executed->runs->pdata[0];
  g_assert_cmpfloat (sp_executed_step_s (run), ==, 0.2);
  g_assert_cmpfloat (sp_executed_clock_hz (run), ==, 1.4e9);
  g_assert_cmpfloat (sp_executed_power_w (run), ==, 650);
  g_assert_cmpint (run->payload_bytes[SP_AXIS_RING], ==, 4096);

  g_autoptr (SpExecuted) older = sp_executed_parse ("a.csv", text, strlen (text), &error);
  g_assert_no_error (error);
  g_assert_true (older->power_limit_w == 0 && sp_executed_power_w (older->runs->pdata[0]) == 0);
}

/* Whose attention it was: of older files ours. */
static void
test_attention (void)
{
  static const char *const rows[][2] = {
    { "", "seqpar" },
    { "# attention: seqpar\n", "seqpar" },
    { "# attention: cudnn\n", "cudnn" },
    { "# attention: quickest\n", NULL },
  };

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    const char *behind = strstr (text, "program,rank");
    g_autofree char *with = g_strconcat ("# seqpar-executed: 1\n", rows[i][0], behind, NULL);
    g_autoptr (SpExecuted) executed = sp_executed_parse ("a.csv", with, strlen (with), NULL);
    g_assert_nonnull (executed);
    g_assert_cmpstr (executed->attention, ==, rows[i][1]);
  }
}

static const struct {
  const char *text, *where, *word;
} wrong[] = {
  { "op,variant\n", "a.csv:1: ", "seqpar-measure execute" },
  { "# seqpar-executed: 1\n", "a.csv: ", "column names" },
  { "# seqpar-executed: 1\nprogram,rank\n", "a.csv:2: column 3", "row" },
  { HEAD "a,0,step\n", "a.csv:4: 3 columns", "19" },
  { HEAD "a,0,stop,,,,0,,,0,,,,,,0,0,0,1\n", "a.csv:4: row = \"stop\"", "step" },
  { HEAD "a,0,step,,,,0,,,0,,,,,,0,0,0,nan\n", "a.csv:4: end_s = \"nan\"", "seconds" },
  { HEAD "a,0,step,,,,0,,,0,,,,,,0,0,0,0\n", "a.csv:4: end_s = \"0\"", "above 0" },
  { SAID_HEAD "a,0,step,,,,0,,,0,,,,,,0,0,0,1\n", "a.csv:4: 19 columns", "23" },
  { SAID_HEAD "a,0,step,,,,0,,,0,,,,,,0,0,0,1,fast,,,\n", "a.csv:4: clock_hz = \"fast\"", "number" },
  { HEAD "a,0,op,nrom,,,0,,,1,,,,,,0,0,0,1\n", "a.csv:4: name = \"nrom\"", "op" },
  { HEAD "a,0,op,norm,,,0,,,0,,,,,,0,0,0,1\n", "a.csv:4: m = \"0\"", "from 1" },
  { HEAD "a,0,payload,wing,,,0,,,0,,,,,,1,0,0,0\n", "a.csv:4: name = \"wing\"", "axis" },
  { HEAD "a,0,payload,ring,,,0,,,0,,,,,,-1,0,0,0\n", "a.csv:4: bytes = \"-1\"", "whole" },
  { HEAD "a,0,memory,heap,,,0,,,0,,,,,,1,0,0,0\n", "a.csv:4: name = \"heap\"", "arena" },
  { HEAD "a,-1,exposed,,,,0,,,0,,,,,,0,0,0,1\n", "a.csv:4: rank = \"-1\"", "0 or more" },
};

static void
test_wrong (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++) {
    g_autoptr (GError) error = NULL;
    g_assert_null (sp_executed_parse ("a.csv", wrong[i].text, strlen (wrong[i].text), &error));
    g_test_message ("%s", error->message);
    g_assert_true (error->domain == SP_MEASURED_ERROR);
    g_assert_true (g_str_has_prefix (error->message, wrong[i].where));
    g_assert_nonnull (strstr (error->message, wrong[i].word));
    g_assert_null (strchr (error->message, '\n'));
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/executed/attention", test_attention);
  g_test_add_func ("/executed/card", test_card);
  g_test_add_func ("/executed/own", test_own);
  g_test_add_func ("/executed/read", test_read);
  g_test_add_func ("/executed/wrong", test_wrong);
  return g_test_run ();
}
