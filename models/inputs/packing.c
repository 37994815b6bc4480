/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/packing.h"

#include <math.h>
#include <string.h>

#include "models/inputs/ini.h"

#define MOST_TOKENS (G_GINT64_CONSTANT (1) << 50)
/* Parts of documents that are gone through, and numbers in all matrices of a ring: so that it takes a tenth of a second,
 * once. */
#define MOST_SEGMENTS 1e6
#define MOST_CELLS 1e7

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef enum { COLUMN_LENGTHS, COLUMN_ENDS } Column;

typedef struct {
  const char *path;
  guint line;
  Column column;
  gint64 end; /* of the document before, under cu_seqlens */
  gboolean has_begun;
  GArray *runs; /* SpDocuments */
  SpPacking *packing;
} Reader;

static gboolean
refuse (const Reader *r, const char *text, GError **error)
{
  g_autofree char *shown = sp_shown (text);

  return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s:%u: \"%s\": expected %s", r->path, r->line, shown,
                        r->column == COLUMN_ENDS
                            ? "where a document ends, after the end of the one before and at most 2^30 tokens later"
                            : "a document's tokens, from 1 to 2^30, or these and how many there are, such as 512,3");
}

static gboolean
read_whole (const char *text, gint64 most, gint64 *ret)
{
  return g_ascii_isdigit (*text) && g_ascii_string_to_signed (text, 10, 0, most, ret, NULL);
}

static gboolean
add_run (Reader *r, const char *text, SpDocuments run, GError **error)
{
  SpPacking *p = r->packing;

  if (run.length < 1 || run.length > 1 << 30 || run.count < 1)
    return refuse (r, text, error);
  if (run.count > (MOST_TOKENS - p->tokens) / run.length)
    return sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s:%u: more than 2^50 tokens in all", r->path, r->line);
  p->documents += run.count;
  p->tokens += run.count * run.length;
  p->longest = MAX (p->longest, run.length);
  g_array_append_val (r->runs, run);
  return TRUE;
}

static gboolean
read_line (Reader *r, const char *text, GError **error)
{
  g_auto (GStrv) parts = g_strsplit (text, ",", 3);
  SpDocuments run = { 0, 1 };
  gboolean is_first = !r->has_begun;
  guint n = g_strv_length (parts);

  r->has_begun = TRUE;
  for (guint i = 0; i < n; i++)
    g_strstrip (parts[i]);
  if (is_first && g_str_equal (text, "cu_seqlens")) {
    r->column = COLUMN_ENDS;
    r->end = -1;
    return TRUE;
  }
  if (is_first && g_str_equal (parts[0], "length") && (n == 1 || (n == 2 && g_str_equal (parts[1], "count"))))
    return TRUE;
  if (n > (r->column == COLUMN_ENDS ? 1 : 2) || !read_whole (parts[0], MOST_TOKENS, &run.length) ||
      (n == 2 && !read_whole (parts[1], MOST_TOKENS, &run.count)))
    return refuse (r, text, error);
  if (r->column == COLUMN_LENGTHS)
    return add_run (r, text, run, error);

  gint64 begin = r->end;
  r->end = run.length;
  run.length -= begin;
  return begin < 0 ? r->end == 0 || refuse (r, text, error) : add_run (r, text, run, error);
}

SpPacking *
sp_packing_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpPacking) packing = g_new0 (SpPacking, 1);
  g_autoptr (GArray) runs = g_array_new (FALSE, FALSE, sizeof (SpDocuments));
  Reader reader = { .path = path, .runs = runs, .packing = packing };

  if (!sp_check_input (path, text, length, error))
    return NULL;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    char *comment = strchr (lines[i], '#');
    if (comment != NULL)
      *comment = '\0';
    g_strstrip (lines[i]);
    reader.line = i + 1;
    if (*lines[i] != '\0' && !read_line (&reader, lines[i], error))
      return NULL;
  }
  if (runs->len == 0) {
    sp_input_fail (error, SP_INPUT_ERROR_VALUE, "%s: no documents; expected their lengths in tokens, one a line", path);
    return NULL;
  }
  packing->path = g_strdup (path);
  packing->n_runs = runs->len;
  packing->runs = g_memdup2 (runs->data, runs->len * sizeof (SpDocuments));
  return g_steal_pointer (&packing);
}

SpPacking *
sp_packing_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);

  return text != NULL ? sp_packing_parse (path, text, length, error) : NULL;
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Where the documents are as sequences are cut off them. */
typedef struct {
  const SpPacking *packing;
  guint run;
  gint64 nth, used; /* document of the run, and its tokens that are gone */
} Cursor;

/* At most `most` tokens of a document. */
static gint64
take (Cursor *c, gint64 most)
{
  const SpDocuments *run = &c->packing->runs[c->run];
  gint64 taken = MIN (run->length - c->used, most);

  c->used += taken;
  if (c->used < run->length)
    return taken;
  c->used = 0;
  if (++c->nth == run->count) {
    c->nth = 0;
    c->run = (c->run + 1) % c->packing->n_runs;
  }
  return taken;
}

/* How many sequences are looked at; `cells`: numbers that each takes. */
static gint64
sequences_of (const SpPacking *packing, gint64 sequence, double cells)
{
  gint64 all = MAX (packing->tokens / sequence, 1);
  double each = (double) packing->documents / (double) packing->tokens * (double) sequence + 1;

  all = MIN (all, MAX ((gint64) (MOST_SEGMENTS / each), 1));
  return MIN (all, MAX ((gint64) (MOST_CELLS / cells), 1));
}

double
sp_packing_keys (const SpPacking *packing, gint64 sequence)
{
  Cursor cursor = { .packing = packing };
  gint64 n = sequences_of (packing, sequence, 1);
  double squares = 0;

  for (gint64 i = 0; i < n; i++)
    for (gint64 at = 0, taken; at < sequence; at += taken) {
      taken = take (&cursor, sequence - at);
      squares += (double) taken * (double) taken;
    }
  return squares / ((double) n * (double) sequence);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

/* Sum of min (u, most) over u from 1 to x. */
static double
ramp (double x, double most)
{
  if (x <= 0)
    return 0;
  return x <= most ? x * (x + 1) / 2 : most * (most + 1) / 2 + (x - most) * most;
}

/* Of queries [q, q + n) and keys [k, k + m), those with i - j >= least. */
static double
pairs_from (double q, double n, double k, double m, double least)
{
  double first = q - least - k + 1; /* keys that the first query has, were there enough */

  return ramp (first + n - 1, m) - ramp (first - 1, m);
}

static double
count_pairs (double q, double n, double k, double m, gboolean causal, double window)
{
  if (!causal)
    return n * m;
  return pairs_from (q, n, k, m, 0) - (window > 0 ? pairs_from (q, n, k, m, window) : 0);
}

/* Pairs of a sequence by the place that has the queries and the step at which the keys are there. */
typedef struct {
  gint32 ring, parts;
  SpTokenSplit split;
  double part; /* tokens of one */
  gboolean causal;
  double window;
  double *pairs; /* [place][step] */
} Counter;

static gint32
place_of (const Counter *c, gint32 part)
{
  return part < c->ring ? part : c->parts - 1 - part;
}

/* Every ring-th token is a place's: of a document, those of two places by turns. */
static void
add_striped (Counter *c, gint64 begin, gint64 end)
{
  gint64 n = end - begin;
  gint32 ring = c->ring, most = (gint32) MIN (n, ring);

  for (gint32 i = 0; i < most; i++)
    for (gint32 j = 0; j < most; j++) {
      double queries = (double) ((n - 1 - i) / ring + 1), keys = (double) ((n - 1 - j) / ring + 1);
      double pairs = queries * keys;
      gint32 place = (gint32) ((begin + i) % ring), from = (gint32) ((begin + j) % ring);
      if (c->causal)
        pairs = pairs_from (0, queries, 0, keys, i >= j ? 0 : 1) -
                (c->window > 0 ? pairs_from (0, queries, 0, keys, floor ((c->window - 1 - (i - j)) / ring) + 1) : 0);
      c->pairs[place * ring + (place - from + ring) % ring] += MAX (pairs, 0.0);
    }
}

/* A document from `begin` to `end` of the sequence, part by part. */
static void
add_document (Counter *c, double begin, double end)
{
  gint32 first = (gint32) (begin / c->part), last = (gint32) ((end - 1) / c->part);

  for (gint32 i = first; i <= last; i++) {
    double q = MAX (begin, i * c->part), n = MIN (end, (i + 1) * c->part) - q;
    for (gint32 j = first; j <= (c->causal ? i : last); j++) {
      double k = MAX (begin, j * c->part), m = MIN (end, (j + 1) * c->part) - k;
      gint32 place = place_of (c, i), step = (place - place_of (c, j) + c->ring) % c->ring;
      c->pairs[place * c->ring + step] += count_pairs (q, n, k, m, c->causal, c->window);
    }
  }
}

static void
add_sequence (const Counter *c, double weight, SpPackedPairs *ret)
{
  double all = 0, most = 0;

  for (gint32 step = 0; step < c->ring; step++) {
    double slowest = 0;
    for (gint32 place = 0; place < c->ring; place++)
      slowest = MAX (slowest, c->pairs[place * c->ring + step]);
    *(step == 0 ? &ret->home : &ret->away) += weight * slowest;
  }
  for (gint32 place = 0; place < c->ring; place++) {
    double own = 0;
    for (gint32 step = 0; step < c->ring; step++)
      own += c->pairs[place * c->ring + step];
    all += own;
    most = MAX (most, own);
  }
  ret->all += weight * all;
  ret->slowest += weight * most;
  ret->fullest = MAX (ret->fullest, all);
}

static void
count_sequences (const SpPacking *packing, gint64 sequence, Counter *c, SpPackedPairs *ret)
{
  Cursor cursor = { .packing = packing };
  gsize bytes = (gsize) c->ring * (gsize) c->ring * sizeof (double);
  double cells = (double) c->ring * c->ring;
  gint64 n;

  if (c->split == SP_TOKENS_STRIPED)
    cells *= (double) packing->documents / (double) packing->tokens * (double) sequence + 1;
  n = sequences_of (packing, sequence, cells);

  memset (ret, 0, sizeof *ret);
  c->pairs = g_malloc (bytes);
  for (gint64 i = 0; i < n; i++) {
    memset (c->pairs, 0, bytes);
    for (gint64 at = 0, taken; at < sequence; at += taken) {
      taken = take (&cursor, sequence - at);
      if (c->split == SP_TOKENS_STRIPED)
        add_striped (c, at, at + taken);
      else
        add_document (c, (double) at, (double) (at + taken));
    }
    add_sequence (c, 1.0 / (double) n, ret);
  }
  ret->fullest /= ret->all;
  g_free (c->pairs);
}

/* --- memo --------------------------------------------------------------------------------------------------------- */

typedef struct {
  gint64 sequence, window;
  gint32 ring, split, causal;
  SpPackedPairs pairs;
} Counted;

struct _SpPackingMemo {
  GMutex lock;
  GArray *counted; /* Counted: a handful of rings, two windows at most */
};

static SpPackingMemo *
memo_of (const SpPacking *packing)
{
  static GMutex lock;
  SpPacking *owner = (SpPacking *) packing;

  g_mutex_lock (&lock);
  if (owner->memo == NULL) {
    owner->memo = g_new0 (SpPackingMemo, 1);
    g_mutex_init (&owner->memo->lock);
    owner->memo->counted = g_array_new (FALSE, FALSE, sizeof (Counted));
  }
  g_mutex_unlock (&lock);
  return owner->memo;
}

void
sp_packing_pairs (const SpPacking *packing, gint64 sequence, SpTokenSplit split, gint32 ring, gboolean causal,
                  gint64 window, SpPackedPairs *ret)
{
  SpPackingMemo *memo = memo_of (packing);
  Counted key = { .sequence = sequence,
                  .window = causal ? window : 0,
                  .ring = ring,
                  .split = ring > 1 ? split : SP_TOKENS_CONTIGUOUS,
                  .causal = causal != FALSE };

  g_mutex_lock (&memo->lock);
  for (guint i = 0; i < memo->counted->len; i++) {
    const Counted *at = &g_array_index (memo->counted, Counted, i);
    if (memcmp (at, &key, G_STRUCT_OFFSET (Counted, pairs)) == 0) {
      *ret = at->pairs;
      g_mutex_unlock (&memo->lock);
      return;
    }
  }
  gint32 parts = key.split == SP_TOKENS_ZIGZAG ? 2 * ring : ring;
  Counter counter = { .ring = ring,
                      .parts = parts,
                      .split = key.split,
                      .part = (double) sequence / parts,
                      .causal = causal,
                      .window = (double) key.window };
  count_sequences (packing, sequence, &counter, &key.pairs);
  g_array_append_val (memo->counted, key);
  *ret = key.pairs;
  g_mutex_unlock (&memo->lock);
}

void
sp_packing_free (SpPacking *packing)
{
  if (packing == NULL)
    return;
  if (packing->memo != NULL) {
    g_array_unref (packing->memo->counted);
    g_mutex_clear (&packing->memo->lock);
    g_free (packing->memo);
  }
  g_free (packing->path);
  g_free (packing->runs);
  g_free (packing);
}
