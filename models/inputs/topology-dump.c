/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/topology-dump-private.h"
#include "sim/words.h"

#include <string.h>

static const char *const relation_names[] = { "?", "SYS", "NODE", "PHB", "PXB", "PIX", "X" };
G_STATIC_ASSERT (G_N_ELEMENTS (relation_names) == SP_N_RELATIONS);

const char *
sp_relation_name (SpRelation relation)
{
  g_return_val_if_fail (relation < SP_N_RELATIONS, NULL);
  return relation_names[relation];
}

/* --- a dump as readers fill it ------------------------------------------------------------------------------------ */

SpTopologyDump *
sp_topology_dump_new (const char *name, SpDumpFormat format, guint n_gpus, guint n_nics)
{
  SpTopologyDump *dump = g_new0 (SpTopologyDump, 1);
  guint n = n_gpus + n_nics;

  g_assert (n_gpus <= SP_DUMP_MAX_GPUS && n_nics <= SP_DUMP_MAX_NICS);
  dump->path = g_strdup (name);
  dump->name = g_path_get_basename (name);
  dump->format = format;
  dump->n_gpus = n_gpus;
  dump->n_nics = n_nics;
  dump->gpus = g_new0 (SpDumpGpu, n_gpus);
  dump->nics = g_new0 (SpDumpNic, n_nics);
  dump->places = g_new0 (SpDumpPlace, n);
  dump->nvlinks = g_new0 (guint8, n_gpus * n_gpus);
  dump->relations = g_new0 (guint8, n * n);
  dump->notes = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < n; i++)
    dump->relations[i * n + i] = SP_RELATION_SELF;
  for (guint i = 0; i < n_gpus; i++)
    dump->gpus[i].place = -1;
  for (guint i = 0; i < n_nics; i++)
    dump->nics[i].place = -1;
  return dump;
}

void
sp_topology_dump_free (SpTopologyDump *dump)
{
  if (dump == NULL)
    return;
  for (guint i = 0; i < dump->n_gpus; i++) {
    g_free (dump->gpus[i].name);
    g_free (dump->gpus[i].affinity);
  }
  for (guint i = 0; i < dump->n_nics; i++)
    g_free (dump->nics[i].name);
  g_free (dump->path);
  g_free (dump->name);
  g_free (dump->gpus);
  g_free (dump->nics);
  g_free (dump->places);
  g_free (dump->nvlinks);
  g_free (dump->relations);
  g_ptr_array_unref (dump->notes);
  g_free (dump);
}

void
sp_topology_dump_set_relation (SpTopologyDump *dump, guint a, guint b, SpRelation relation)
{
  guint n = dump->n_gpus + dump->n_nics;

  dump->relations[a * n + b] = dump->relations[b * n + a] = (guint8) relation;
}

void
sp_topology_dump_set_nvlinks (SpTopologyDump *dump, guint a, guint b, guint links)
{
  guint8 n = (guint8) MIN (links, G_MAXUINT8);

  dump->nvlinks[a * dump->n_gpus + b] = dump->nvlinks[b * dump->n_gpus + a] = n;
}

gint32
sp_topology_dump_numa_place (SpTopologyDump *dump, gint32 numa)
{
  for (guint i = 0; i < dump->n_places; i++)
    if (dump->places[i].numa == numa)
      return (gint32) i;
  g_assert (dump->n_places < dump->n_gpus + dump->n_nics);
  dump->places[dump->n_places] = (SpDumpPlace){ .numa = numa };
  return (gint32) dump->n_places++;
}

void
sp_topology_dump_note (SpTopologyDump *dump, gboolean partial, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_ptr_array_add (dump->notes, g_strdup_vprintf (format, arguments));
  va_end (arguments);
  dump->partial |= partial;
}

SpRelation
sp_topology_dump_relation (const SpTopologyDump *dump, guint a, guint b)
{
  guint n = dump->n_gpus + dump->n_nics;

  g_return_val_if_fail (a < n && b < n, SP_RELATION_UNKNOWN);
  return (SpRelation) dump->relations[a * n + b];
}

guint
sp_topology_dump_nvlinks (const SpTopologyDump *dump, guint a, guint b)
{
  g_return_val_if_fail (a < dump->n_gpus && b < dump->n_gpus, 0);
  return dump->nvlinks[a * dump->n_gpus + b];
}

/* --- what follows from it ----------------------------------------------------------------------------------------- */

/* 3: behind one PCIe bridge or several; 2: at one host bridge; 1: in one NUMA node. */
static guint
nearness (SpRelation relation)
{
  if (relation >= SP_RELATION_PXB)
    return 3;
  return relation == SP_RELATION_PHB ? 2 : relation == SP_RELATION_NODE;
}

static guint
nic_nearness (const SpTopologyDump *dump, guint nic)
{
  guint best = 0;

  for (guint g = 0; g < dump->n_gpus; g++)
    best = MAX (best, nearness (sp_topology_dump_relation (dump, g, dump->n_gpus + nic)));
  return best;
}

static void
find_compute_nics (SpTopologyDump *dump)
{
  guint best = 0;

  for (guint i = 0; i < dump->n_nics; i++)
    best = MAX (best, nic_nearness (dump, i));
  for (guint i = 0; i < dump->n_nics; i++)
    dump->nics[i].compute = nic_nearness (dump, i) == best;
}

guint
sp_topology_dump_compute_nics (const SpTopologyDump *dump)
{
  guint n = 0;

  for (guint i = 0; i < dump->n_nics; i++)
    n += dump->nics[i].compute;
  return n;
}

/* Two GPUs whose own relation NVLinks hide: of one socket if they are as far from every other one. */
static gboolean
alike (const SpTopologyDump *dump, guint a, guint b)
{
  for (guint i = 0; i < dump->n_gpus; i++)
    if (i != a && i != b && sp_topology_dump_relation (dump, a, i) != sp_topology_dump_relation (dump, b, i))
      return FALSE;
  return TRUE;
}

static gboolean
same_socket (const SpTopologyDump *dump, guint a, guint b)
{
  SpRelation relation = sp_topology_dump_relation (dump, a, b);

  if (relation != SP_RELATION_UNKNOWN)
    return relation > SP_RELATION_SYS;
  return sp_topology_dump_nvlinks (dump, a, b) > 0 && alike (dump, a, b);
}

/* Whether anything is told of how a GPU hangs off the machine. */
static gboolean
is_located (const SpTopologyDump *dump, guint gpu)
{
  for (guint i = 0; i < dump->n_gpus; i++)
    if (i != gpu && sp_topology_dump_relation (dump, gpu, i) != SP_RELATION_UNKNOWN)
      return TRUE;
  return FALSE;
}

/* Sockets from relations, where no NUMA node is named. */
static void
find_sockets (SpTopologyDump *dump)
{
  for (guint i = 0; i < dump->n_gpus; i++)
    if (dump->gpus[i].place >= 0 || !is_located (dump, i))
      return;
  for (guint i = 0; i < dump->n_gpus; i++) {
    for (guint j = 0; j < i && dump->gpus[i].place < 0; j++)
      if (same_socket (dump, i, j))
        dump->gpus[i].place = dump->gpus[j].place;
    if (dump->gpus[i].place >= 0)
      continue;
    dump->places[dump->n_places] = (SpDumpPlace){ .numa = -1, .socket = TRUE };
    dump->gpus[i].place = (gint32) dump->n_places++;
  }
}

/* An adapter is where the GPUs are that it shares a NUMA node with. */
static void
place_nics (SpTopologyDump *dump)
{
  for (guint i = 0; i < dump->n_nics; i++)
    for (guint g = 0; g < dump->n_gpus && dump->nics[i].place < 0; g++)
      if (sp_topology_dump_relation (dump, g, dump->n_gpus + i) > SP_RELATION_SYS)
        dump->nics[i].place = dump->gpus[g].place;
}

/* NUMA nodes by their numbers, whatever order the GPUs name them in. */
static void
sort_places (SpTopologyDump *dump)
{
  for (guint i = 0; i < dump->n_places; i++) {
    guint least = i;
    for (guint j = i + 1; j < dump->n_places; j++)
      if (dump->places[j].numa < dump->places[least].numa)
        least = j;
    SpDumpPlace place = dump->places[least];
    dump->places[least] = dump->places[i];
    dump->places[i] = place;
    for (guint g = 0; g < dump->n_gpus + dump->n_nics; g++) {
      gint32 *at = g < dump->n_gpus ? &dump->gpus[g].place : &dump->nics[g - dump->n_gpus].place;
      *at = *at == (gint32) least ? (gint32) i : *at == (gint32) i ? (gint32) least : *at;
    }
  }
}

static void
note_nics (SpTopologyDump *dump)
{
  guint compute = sp_topology_dump_compute_nics (dump);

  if (dump->n_nics == 0)
    sp_topology_dump_note (dump, FALSE, "no network adapters are listed");
  else if (compute < dump->n_gpus && compute > 0)
    sp_topology_dump_note (dump, FALSE, "%u GPUs have %u near network adapter%s: up to %u share one", dump->n_gpus,
                           compute, sp_plural (compute), (dump->n_gpus + compute - 1) / compute);
}

static void
complete (SpTopologyDump *dump)
{
  find_compute_nics (dump);
  find_sockets (dump);
  place_nics (dump);
  sort_places (dump);
  note_nics (dump);
}

gint32
sp_topology_dump_pair (const SpTopologyDump *dump, guint gpu)
{
  gint32 mine = -1;

  g_return_val_if_fail (gpu < dump->n_gpus, -1);
  if (dump->has_switch)
    return -1;
  for (guint i = 0; i < dump->n_gpus; i++) {
    guint peers = 0;
    for (guint j = 0; j < dump->n_gpus; j++)
      if (sp_topology_dump_nvlinks (dump, i, j) > 0) {
        peers++;
        mine = i == gpu ? (gint32) j : mine;
      }
    if (peers != 1)
      return -1;
  }
  return mine;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Any NVLink is nearer than any PCIe. */
static guint
distance_rank (const SpTopologyDump *dump, guint a, guint b)
{
  guint links = sp_topology_dump_nvlinks (dump, a, b);

  return links > 0 ? SP_N_RELATIONS + links : sp_topology_dump_relation (dump, a, b);
}

/* The nearness of the farthest two, then the sum. */
static guint
score_group (const SpTopologyDump *dump, const guint *gpus, guint size)
{
  guint least = G_MAXUINT16, sum = 0;

  for (guint i = 0; i < size; i++)
    for (guint j = 0; j < i; j++) {
      guint rank = distance_rank (dump, gpus[i], gpus[j]);
      least = MIN (least, rank);
      sum += rank;
    }
  return least << 16 | sum;
}

/* The next combination of `size` out of n, in order; FALSE: that was the last. */
static gboolean
next_combination (guint *gpus, guint size, guint n)
{
  for (guint i = size; i-- > 0;)
    if (gpus[i] < n - size + i) {
      gpus[i]++;
      for (guint j = i + 1; j < size; j++)
        gpus[j] = gpus[j - 1] + 1;
      return TRUE;
    }
  return FALSE;
}

gboolean
sp_topology_dump_best_group (const SpTopologyDump *dump, guint size, guint *ret_gpus, gboolean *ret_any)
{
  guint gpus[4] = { 0, 1, 2, 3 }, best = 0;

  g_return_val_if_fail (size >= 2 && size <= G_N_ELEMENTS (gpus), FALSE);
  if (size > dump->n_gpus)
    return FALSE;
  *ret_any = TRUE;
  do {
    guint score = score_group (dump, gpus, size);
    if (best != 0 && score != best)
      *ret_any = FALSE;
    if (score > best) {
      best = score;
      memcpy (ret_gpus, gpus, size * sizeof *gpus);
    }
  } while (next_combination (gpus, size, dump->n_gpus));
  return TRUE;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void
cut_mark (const char **text, gsize *length)
{
  if (*length >= 3 && memcmp (*text, "\xef\xbb\xbf", 3) == 0) {
    *text += 3;
    *length -= 3;
  }
}

SpDumpFormat
sp_topology_dump_recognise (const char *text, gsize length)
{
  cut_mark (&text, &length);
  const char *end = text + length, *line = text;

  while (line < end && g_ascii_isspace (*line))
    line++;
  if (line < end && *line == '<')
    return SP_DUMP_XML;
  for (; line < end; line++) {
    const char *stop = memchr (line, '\n', (gsize) (end - line));
    if (stop == NULL)
      stop = end;
    if (sp_topology_smi_is_header (line, (gsize) (stop - line)))
      return SP_DUMP_SMI;
    line = stop;
  }
  return SP_DUMP_NONE;
}

static guint
line_at (const char *text, const char *at)
{
  guint line = 1;

  for (const char *c = text; c < at; c++)
    line += *c == '\n';
  return line;
}

SpTopologyDump *
sp_topology_dump_parse (const char *text, gsize length, const char *name, GError **error)
{
  const char *end;

  g_return_val_if_fail (text != NULL && name != NULL, NULL);
  cut_mark (&text, &length);
  if (!g_utf8_validate (text, (gssize) length, &end)) { /* stops at a NUL */
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%u: %s, expected text", name, line_at (text, end),
                   *end == '\0' ? "a NUL" : "not UTF-8");
    return NULL;
  }
  SpDumpFormat format = sp_topology_dump_recognise (text, length);
  if (format == SP_DUMP_NONE) {
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX,
                   "%s:1: expected NCCL's topology, <system ...>, or the output of nvidia-smi topo -m", name);
    return NULL;
  }
  g_autofree char *copy = g_strndup (text, length);
  SpTopologyDump *dump = format == SP_DUMP_XML ? sp_topology_xml_parse (copy, length, name, error)
                                               : sp_topology_smi_parse (copy, length, name, error);
  if (dump != NULL)
    complete (dump);
  return dump;
}

SpTopologyDump *
sp_topology_dump_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input_bytes (path, &length, NULL);

  if (text == NULL || sp_topology_dump_recognise (text, length) == SP_DUMP_NONE)
    return NULL;
  return sp_topology_dump_parse (text, length, path, error);
}
