/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix of `nvidia-smi topo -m`. A header of GPU0, GPU1, ..., adapters (NIC0, or mlx5_0 of older drivers), then
 * CPU Affinity, NUMA Affinity, GPU NUMA ID; a row of each GPU and adapter; a legend. Columns are apart by tabs, or by
 * blanks where the text went through someone's hands, with the header underlined by escape codes: words are what
 * counts. A paste may have lost the adapters' rows, or the end of the last one: symmetry gives those back.
 */
#include "models/inputs/topology-dump-private.h"

#include <string.h>

#define MAX_COLUMNS (SP_DUMP_MAX_GPUS + SP_DUMP_MAX_NICS)
#define MAX_AFFINITIES 3
#define MAX_WORDS (1 + MAX_COLUMNS + 2 * MAX_AFFINITIES + 2)

/* Of NVLinks of one GPU: Hopper and Blackwell. More than that to all peers together go through a switch. */
#define MOST_LINKS 18

#define NV 0x80 /* a cell: an SpRelation, or this and how many links; 0: absent */

typedef struct {
  const char *name; /* of the file */
  const char *at;   /* the rest of the text */
  guint line;
  char *copy; /* of the current line; words point into it */
  char *words[MAX_WORDS];
  guint n_words;
  gboolean more; /* words than there is room for */

  guint n_gpus, n_columns; /* of the matrix */
  char *columns[MAX_COLUMNS];
  gint cpu_column, numa_column; /* among the affinities; -1: none */
  guint n_affinities;
  guint n_rows;                /* read */
  guint first_line;            /* of the rows */
  guint cut_line, cut_columns; /* of the last row, if it is short */
  guint8 cells[MAX_COLUMNS][MAX_COLUMNS];
  guint lines[MAX_COLUMNS]; /* of rows */
  char *affinity[SP_DUMP_MAX_GPUS];
  gint32 numa[SP_DUMP_MAX_GPUS]; /* -1: none, or several */
  gboolean completed;
} Smi;

static void
smi_clear (Smi *smi)
{
  g_free (smi->copy);
  for (guint i = 0; i < MAX_COLUMNS; i++)
    g_free (smi->columns[i]);
  for (guint i = 0; i < SP_DUMP_MAX_GPUS; i++)
    g_free (smi->affinity[i]);
}

static void
smi_free (Smi *smi)
{
  smi_clear (smi);
  g_free (smi);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Smi, smi_free)

/* --- lines and words ---------------------------------------------------------------------------------------------- */

/* Length of a colour or underline code such as ESC [ 4 m; 0: there is none here. */
static gsize
escape_length (const char *text, gsize length)
{
  gsize n = 2;

  if (length < 3 || text[0] != '\x1b' || text[1] != '[')
    return 0;
  while (n < length && text[n] >= 0x20 && text[n] < 0x40)
    n++;
  return n < length && text[n] >= 0x40 ? n + 1 : 0;
}

gboolean
sp_topology_smi_is_header (const char *line, gsize length)
{
  gsize i = 0, step;

  while (i < length && ((step = escape_length (line + i, length - i)) > 0 || line[i] == ' ' || line[i] == '\t'))
    i += MAX (step, 1);
  if (length - i < 4 || memcmp (line + i, "GPU0", 4) != 0)
    return FALSE;
  return i + 4 == length || g_ascii_isspace (line[i + 4]) || line[i + 4] == '\x1b';
}

static void
split_words (Smi *smi, char *line)
{
  smi->n_words = 0;
  smi->more = FALSE;
  for (char *c = line; *c != '\0';) {
    while (*c == ' ' || *c == '\t')
      *c++ = '\0';
    if (*c == '\0')
      break;
    if (smi->n_words == MAX_WORDS) {
      smi->more = TRUE;
      break;
    }
    smi->words[smi->n_words++] = c;
    while (*c != '\0' && *c != ' ' && *c != '\t')
      c++;
  }
}

/* FALSE: no line is left, or (with an error) it has what is no text. */
static gboolean
next_line (Smi *smi, GError **error)
{
  if (*smi->at == '\0')
    return FALSE;
  gsize length = strcspn (smi->at, "\n"), n = 0;
  const char *line = smi->at;
  smi->line++;
  smi->at += length + (line[length] == '\n');
  g_free (smi->copy);
  smi->copy = g_malloc (length + 1);
  for (gsize i = 0; i < length;) {
    gsize escape = escape_length (line + i, length - i);
    if (escape == 0 && line[i] != '\r') {
      if (g_ascii_iscntrl (line[i]) && line[i] != '\t')
        return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: control character 0x%02x, expected text", smi->name,
                              smi->line, (guchar) line[i]);
      smi->copy[n++] = line[i];
    }
    i += MAX (escape, 1);
  }
  smi->copy[n] = '\0';
  split_words (smi, smi->copy);
  return TRUE;
}

static gboolean
refuse_word (const Smi *smi, const char *word, const char *expected, GError **error)
{
  g_autofree char *shown = sp_shown (word);

  return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: \"%s\", expected %s", smi->name, smi->line, shown,
                        expected);
}

/* --- header ------------------------------------------------------------------------------------------------------- */

/* CPU Affinity, NUMA Affinity, GPU NUMA ID, from the word where the names of columns end. */
static gboolean
read_affinities (Smi *smi, guint word, GError **error)
{
  static const char *const titles[MAX_AFFINITIES] = { "CPU Affinity", "NUMA Affinity", "GPU NUMA ID" };

  smi->cpu_column = smi->numa_column = -1;
  while (word < smi->n_words) {
    guint title = 0, n = 0;
    for (; title < MAX_AFFINITIES; title++) {
      g_auto (GStrv) parts = g_strsplit (titles[title], " ", -1);
      n = g_strv_length (parts);
      guint same = 0;
      while (same < n && word + same < smi->n_words && g_str_equal (parts[same], smi->words[word + same]))
        same++;
      if (same == n)
        break;
    }
    if (title == MAX_AFFINITIES || smi->n_affinities == MAX_AFFINITIES)
      return refuse_word (smi, smi->words[word], "CPU Affinity, NUMA Affinity or GPU NUMA ID, once each", error);
    if (title == 0)
      smi->cpu_column = (gint) smi->n_affinities;
    if (title == 1)
      smi->numa_column = (gint) smi->n_affinities;
    smi->n_affinities++;
    word += n;
  }
  return TRUE;
}

static gboolean
read_header (Smi *smi, GError **error)
{
  guint word = 0;

  if (smi->n_words > 1 && g_str_equal (smi->words[1], "X"))
    return refuse_word (smi, smi->words[0], "a header, GPU0 GPU1 ..., above the rows", error);
  for (; word < smi->n_words; word++) {
    const char *name = smi->words[word];
    if (g_str_equal (name, "CPU") || g_str_equal (name, "NUMA") || g_str_equal (name, "GPU"))
      break;
    g_autofree char *gpu = g_strdup_printf ("GPU%u", smi->n_gpus);
    gboolean is_gpu = g_str_has_prefix (name, "GPU");
    if (is_gpu && (smi->n_columns > smi->n_gpus || !g_str_equal (name, gpu)))
      return refuse_word (smi, name, smi->n_columns > smi->n_gpus ? "GPUs before adapters" : gpu, error);
    if (smi->n_gpus == SP_DUMP_MAX_GPUS && is_gpu)
      return refuse_word (smi, name, "at most " G_STRINGIFY (SP_DUMP_MAX_GPUS) " GPUs", error);
    if (smi->n_columns - smi->n_gpus == SP_DUMP_MAX_NICS)
      return refuse_word (smi, name, "at most " G_STRINGIFY (SP_DUMP_MAX_NICS) " adapters", error);
    for (guint i = 0; i < smi->n_columns; i++)
      if (g_str_equal (smi->columns[i], name))
        return refuse_word (smi, name, "each column once", error);
    smi->n_gpus += is_gpu;
    smi->columns[smi->n_columns++] = g_strdup (name);
  }
  return read_affinities (smi, word, error);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* 0: no such word. */
static guint8
cell_of (const char *word)
{
  static const char *const older[] = { "SOC" }; /* of drivers before NODE: SYS */
  guint64 links;

  if (g_str_has_prefix (word, "NV") && g_ascii_string_to_unsigned (word + 2, 10, 1, NV - 1, &links, NULL))
    return (guint8) (NV | links);
  for (guint8 r = SP_RELATION_SYS; r < SP_N_RELATIONS; r++)
    if (g_str_equal (word, sp_relation_name ((SpRelation) r)))
      return r;
  return g_str_equal (word, older[0]) ? SP_RELATION_SYS : 0;
}

static gboolean
read_cells (Smi *smi, guint row, GError **error)
{
  guint n = MIN (smi->n_words - 1, smi->n_columns);

  for (guint i = 0; i < n; i++) {
    const char *word = smi->words[1 + i];
    guint8 cell = cell_of (word);
    if (cell == 0)
      return refuse_word (smi, word, "X, NV and a count, PIX, PXB, PHB, NODE or SYS", error);
    if ((cell == SP_RELATION_SELF) != (i == row))
      return refuse_word (smi, word, i == row ? "X where a row meets its column" : "X on the diagonal alone", error);
    if ((cell & NV) && (i >= smi->n_gpus || row >= smi->n_gpus))
      return refuse_word (smi, word, "NVLinks between GPUs alone", error);
    smi->cells[row][i] = cell;
  }
  if (n < smi->n_columns) {
    smi->cut_line = smi->line;
    smi->cut_columns = n;
  }
  return TRUE;
}

/* What follows the cells of a GPU's row, if it is as many words as the header has columns. */
static void
read_row_affinities (Smi *smi, guint gpu)
{
  guint first = 1 + smi->n_columns;
  guint64 numa;

  smi->numa[gpu] = -1;
  if (smi->n_words < first + smi->n_affinities)
    return;
  if (smi->cpu_column >= 0)
    smi->affinity[gpu] = g_strdup (smi->words[first + (guint) smi->cpu_column]);
  if (smi->numa_column >= 0 &&
      g_ascii_string_to_unsigned (smi->words[first + (guint) smi->numa_column], 10, 0, 1 << 16, &numa, NULL))
    smi->numa[gpu] = (gint32) numa;
}

static gboolean
read_row (Smi *smi, GError **error)
{
  guint row = smi->n_rows;

  if (smi->cut_line > 0)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %u columns, expected %u as in the header", smi->name,
                          smi->cut_line, smi->cut_columns, smi->n_columns);
  if (!g_str_equal (smi->words[0], smi->columns[row])) {
    g_autofree char *expected = g_strdup_printf ("the row of %s", smi->columns[row]);
    return refuse_word (smi, smi->words[0], expected, error);
  }
  if (smi->more || smi->n_words > 1 + smi->n_columns + smi->n_affinities)
    return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: more columns than the header's %u", smi->name,
                          smi->line, smi->n_columns + smi->n_affinities);
  smi->lines[row] = smi->line;
  smi->n_rows++;
  if (!read_cells (smi, row, error))
    return FALSE;
  if (row < smi->n_gpus)
    read_row_affinities (smi, row);
  return TRUE;
}

/* To the blank line or the legend behind the last row. */
static gboolean
read_rows (Smi *smi, GError **error)
{
  g_autoptr (GError) problem = NULL;

  while (next_line (smi, &problem)) {
    if (smi->n_words == 0 && smi->n_rows == 0)
      continue;
    if (smi->n_words == 0 || g_str_has_prefix (smi->words[0], "Legend"))
      return TRUE;
    if (smi->n_rows == smi->n_columns)
      return refuse_word (smi, smi->words[0], "a blank line or the legend behind the last row", error);
    if (!read_row (smi, error))
      return FALSE;
  }
  if (problem == NULL)
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&problem));
  return FALSE;
}

/* "NIC0: mlx5_0": names take the columns' place. */
static gboolean
read_legend (Smi *smi, GError **error)
{
  g_autoptr (GError) problem = NULL;

  while (next_line (smi, &problem)) {
    gsize length = smi->n_words == 2 ? strlen (smi->words[0]) : 0;
    if (length < 2 || smi->words[0][length - 1] != ':')
      continue;
    smi->words[0][length - 1] = '\0';
    for (guint i = smi->n_gpus; i < smi->n_columns; i++)
      if (g_str_equal (smi->columns[i], smi->words[0])) {
        g_free (smi->columns[i]);
        smi->columns[i] = g_strdup_printf ("%s %s", smi->words[0], smi->words[1]);
        break;
      }
  }
  if (problem == NULL)
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&problem));
  return FALSE;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Both halves must agree; one may stand for the other. */
static gboolean
complete_by_symmetry (Smi *smi, GError **error)
{
  for (guint a = 0; a < smi->n_columns; a++)
    for (guint b = 0; b < a; b++) {
      guint8 *low = &smi->cells[a][b], *high = &smi->cells[b][a];
      if (*low != 0 && *high != 0 && *low != *high)
        return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %s to %s is not what line %u says of the two",
                              smi->name, smi->lines[a], smi->columns[a], smi->columns[b], smi->lines[b]);
      if (*low == 0 && *high == 0 && a < smi->n_gpus)
        return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: the rows end, expected those of %s and %s",
                              smi->name, smi->line, smi->columns[b], smi->columns[a]);
      smi->completed |= a < smi->n_gpus && (*low == 0 || *high == 0);
      *low = *high = *low != 0 ? *low : *high;
    }
  return TRUE;
}

static void
set_links (const Smi *smi, SpTopologyDump *dump)
{
  guint least = G_MAXUINT, most = 0;

  for (guint a = 0; a < smi->n_gpus; a++)
    for (guint b = 0; b < a; b++) {
      guint links = smi->cells[a][b] & NV ? smi->cells[a][b] & ~NV : 0;
      sp_topology_dump_set_nvlinks (dump, a, b, links);
      least = MIN (least, links);
      most = MAX (most, links);
    }
  dump->tells_nvlinks = TRUE;
  dump->has_switch = most > 0 && least == most && (most >= MOST_LINKS || most * (smi->n_gpus - 1) > MOST_LINKS);
  for (guint a = 0; a < smi->n_gpus; a++) {
    guint sum = 0;
    for (guint b = 0; b < smi->n_gpus; b++)
      sum += sp_topology_dump_nvlinks (dump, a, b);
    dump->gpus[a].nvlinks = dump->has_switch ? most : sum;
  }
}

static void
set_places (Smi *smi, SpTopologyDump *dump)
{
  gboolean all = smi->numa_column >= 0;

  for (guint i = 0; i < smi->n_gpus; i++) {
    dump->gpus[i].affinity = g_steal_pointer (&smi->affinity[i]);
    all = all && smi->numa[i] >= 0;
  }
  for (guint i = 0; i < smi->n_gpus && all; i++)
    dump->gpus[i].place = sp_topology_dump_numa_place (dump, smi->numa[i]);
  if (smi->numa_column < 0)
    sp_topology_dump_note (dump, TRUE, "no NUMA affinity is in it: sockets are what SYS sets apart");
  else if (!all)
    sp_topology_dump_note (dump, TRUE, "the NUMA affinity of some GPU is no single node: not used");
}

static SpTopologyDump *
make_dump (Smi *smi)
{
  guint n_nics = smi->n_columns - smi->n_gpus;
  SpTopologyDump *dump = sp_topology_dump_new (smi->name, SP_DUMP_SMI, smi->n_gpus, n_nics);

  for (guint a = 0; a < smi->n_columns; a++)
    for (guint b = 0; b < a; b++)
      if (!(smi->cells[a][b] & NV))
        sp_topology_dump_set_relation (dump, a, b, (SpRelation) smi->cells[a][b]);
  for (guint i = 0; i < n_nics; i++)
    dump->nics[i].name = g_strdup (smi->columns[smi->n_gpus + i]);
  set_links (smi, dump);
  if (smi->completed)
    sp_topology_dump_note (dump, TRUE, "its last row of a GPU is cut short: completed by symmetry");
  if (smi->n_rows < smi->n_columns && n_nics > 0)
    sp_topology_dump_note (dump, TRUE, "the rows of its %u adapters are not all there", n_nics);
  set_places (smi, dump);
  return dump;
}

SpTopologyDump *
sp_topology_smi_parse (const char *text, gsize length, const char *name, GError **error)
{
  g_autoptr (Smi) smi = g_new0 (Smi, 1);
  g_autoptr (GError) problem = NULL;

  smi->name = name;
  smi->at = text;
  while (next_line (smi, &problem))
    if (smi->n_words > 0 && g_str_equal (smi->words[0], "GPU0"))
      break;
  if (problem != NULL) {
    g_propagate_error (error, g_steal_pointer (&problem));
    return NULL;
  }
  if (!read_header (smi, error) || !read_rows (smi, error) || !read_legend (smi, error) ||
      !complete_by_symmetry (smi, error))
    return NULL;
  if (smi->n_rows == 0) {
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: the text ends, expected the row of GPU0", name, smi->line);
    return NULL;
  }
  return make_dump (smi);
}
