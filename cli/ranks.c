/* SPDX-License-Identifier: Apache-2.0 */
/* One command on several processes, which mpirun started: their bytes for each other, and what goes wrong on one of them. */
#include "cli/ranks.h"

#include <gio/gio.h>
#include <string.h>

#include "calibrate/ranks.h"

/* Without any word from the others; a wave of a search takes seconds, a simulated point minutes. */
#define TIMEOUT_S 3600

typedef struct {
  SpRankedFunc run;
  char **args;
  GString *out;
  SpPlanRanks ranks;
  SpRank *rank;
  gboolean is_over; /* some rank has ended: nobody exchanges any more */
  gboolean is_cut;  /* or died */
  GError *error;    /* what this process ends with */
} Ranked;

/* What a rank sends each time: bytes, or that it has ended, and with which error. */
typedef struct {
  guint64 bytes;
  gint32 is_end, has_error, code;
  char domain[64];
} Head;

static gboolean
gather (Ranked *r, const Head *head, gconstpointer data, Head *heads, GByteArray *ret, GError **error)
{
  int n = sp_ranks_size (r->rank);
  gsize most = 0;

  r->is_cut = TRUE; /* until all have answered */
  if (!sp_ranks_gather (r->rank, head, sizeof *head, heads, error))
    return FALSE;
  for (int i = 0; i < n; i++)
    most = MAX (most, heads[i].bytes);
  if (most == 0) {
    r->is_cut = FALSE;
    return TRUE;
  }
  g_autofree char *own = g_malloc0 (most), *all = g_malloc (most * (gsize) n);
  if (head->bytes > 0)
    memcpy (own, data, head->bytes);
  if (!sp_ranks_gather (r->rank, own, most, all, error))
    return FALSE;
  r->is_cut = FALSE;
  for (int i = 0; i < n; i++)
    g_byte_array_append (ret, (const guint8 *) all + most * (gsize) i, (guint) heads[i].bytes);
  return TRUE;
}

/* The error of the first rank that has one: `bytes` are all that was sent. */
static void
take_error (Ranked *r, const Head *heads, const GByteArray *bytes, GError **error)
{
  gsize at = 0;

  for (int i = 0; i < sp_ranks_size (r->rank); i++) {
    if (heads[i].has_error) {
      g_autofree char *message = g_strndup ((const char *) bytes->data + at, heads[i].bytes);
      if (i > 0)
        g_set_error (error, g_quark_from_string (heads[i].domain), heads[i].code, "rank %d: %s", i, message);
      else
        g_set_error_literal (error, g_quark_from_string (heads[i].domain), heads[i].code, message);
      return;
    }
    at += heads[i].bytes;
  }
  sp_cli_fail (error, SP_CLI_ERROR_INTERNAL, "ranks do not do the same: one has ended before the others");
}

static GByteArray *
share (const GByteArray *own, gpointer data, GError **error)
{
  Ranked *r = data;
  g_autofree Head *heads = g_new0 (Head, sp_ranks_size (r->rank));
  g_autoptr (GByteArray) all = g_byte_array_new ();
  Head head = { .bytes = own->len };

  r->is_over = !gather (r, &head, own->data, heads, all, error);
  for (int i = 0; i < sp_ranks_size (r->rank) && !r->is_over; i++)
    if (heads[i].is_end) {
      r->is_over = TRUE;
      take_error (r, heads, all, error);
    }
  return r->is_over ? NULL : g_steal_pointer (&all);
}

/* The last exchange: with what each has ended. */
static void
end (Ranked *r)
{
  g_autofree Head *heads = g_new0 (Head, sp_ranks_size (r->rank));
  g_autoptr (GByteArray) all = g_byte_array_new ();
  g_autoptr (GError) cause = NULL;
  Head head = { .is_end = TRUE };

  if (r->error != NULL) {
    head.has_error = TRUE;
    head.code = r->error->code;
    head.bytes = strlen (r->error->message);
    g_strlcpy (head.domain, g_quark_to_string (r->error->domain), sizeof head.domain);
  }
  if (!gather (r, &head, r->error != NULL ? r->error->message : NULL, heads, all, &cause)) {
    if (r->error == NULL)
      r->error = g_steal_pointer (&cause);
    return;
  }
  for (int i = 0; i < sp_ranks_size (r->rank); i++)
    if (heads[i].has_error || !heads[i].is_end) {
      g_clear_error (&r->error);
      take_error (r, heads, all, &r->error);
      return;
    }
}

static gboolean
run_rank (SpRank *rank, gpointer data, GError **error)
{
  Ranked *r = data;

  r->rank = rank;
  r->ranks = (SpPlanRanks){ (guint) rank->rank, (guint) sp_ranks_size (rank), share, r };
  r->run (&r->ranks, r->args, r->out, &r->error);
  if (!r->is_over)
    end (r);
  return TRUE;
}

/* Of several nodes where rank 0 is has to be said. */
static gboolean
check_nodes (GError **error)
{
  const char *all = g_getenv ("OMPI_COMM_WORLD_SIZE"), *here = g_getenv ("OMPI_COMM_WORLD_LOCAL_SIZE");

  if (here == NULL || g_str_equal (all, here) || g_getenv ("MASTER_ADDR") != NULL)
    return TRUE;
  return sp_cli_fail (error, SP_CLI_ERROR_INPUT,
                      "MASTER_ADDR is missing and ranks are on several nodes: expected the first one's name, as in "
                      "mpirun -x MASTER_ADDR=node1 ...");
}

gboolean
sp_cli_on_ranks (SpRankedFunc run, char **args, GString *out, GError **error)
{
  Ranked r = { .run = run, .args = args, .out = out };
  const SpRanksOptions options = {
    .program = "seqpar",
    .remark = "every process that mpirun started has to run this command, or env -u OMPI_COMM_WORLD_SIZE before it has "
              "one do it alone",
    .launchers = SP_LAUNCHER_MPIRUN,
    .timeout_s = TIMEOUT_S,
  };
  int rank = 0, size = 1, local_rank;
  GError *wrong = NULL;

  gboolean launched = sp_ranks_launched (options.launchers, &rank, &size, &local_rank, &wrong);
  if (wrong != NULL) {
    g_propagate_error (error, wrong);
    return FALSE;
  }
  if (!launched || size == 1)
    return run (NULL, args, out, error);
  if (!check_nodes (error) || !sp_ranks_run (&options, run_rank, &r, error)) {
    g_clear_error (&r.error);
    return FALSE;
  }
  if (rank > 0) { /* what there is to say is rank 0's to say, and mpirun ends it where another one fails first */
    g_string_truncate (out, 0);
    g_clear_error (&r.error);
    return !r.is_cut || sp_cli_fail (error, SP_CLI_ERROR_INPUT, "%s", "");
  }
  if (r.error == NULL)
    return TRUE;
  g_propagate_error (error, r.error);
  return FALSE;
}
