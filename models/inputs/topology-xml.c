/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's topology XML: <system> of <cpu> (a NUMA node each) of <pci> in <pci>: bridges, GPUs, adapters. The elements
 * are kept as a tree, the relations read off it.
 */
#include "models/inputs/topology-dump-private.h"

#include <string.h>

#define MAX_DEPTH 32
#define MAX_PARTS 4096 /* <cpu> and <pci> */
#define MAX_LINKS 1024 /* <nvlink> */

typedef enum { PART_CPU, PART_BRIDGE, PART_GPU, PART_NIC } PartKind;

typedef struct {
  PartKind kind;
  gint32 parent; /* part; -1: the system */
  char *name;    /* bus address */
  gint32 numa;   /* of a CPU */
  gint32 dev;    /* of a GPU, CUDA's number; -1: not told */
  double bytes_per_s;
  gint32 number; /* among the GPUs; -1 */
} Part;

typedef struct {
  gint32 part;
  char *name;
  double bytes_per_s;
} Net;

typedef struct {
  gint32 gpu; /* part */
  char *target;
  guint links;
  gboolean to_switch;
} Link;

typedef struct {
  const char *name; /* of the file */
  GArray *parts, *nets, *links;
  gint32 open[MAX_DEPTH]; /* part of each open element: its own, or the one around it */
  guint depth;
  gboolean has_system, tells_nvlinks;
  guint unknown; /* elements */
  char *first_unknown;
} Xml;

static void
clear_part (gpointer data)
{
  g_free (((Part *) data)->name);
}

static void
clear_net (gpointer data)
{
  g_free (((Net *) data)->name);
}

static void
clear_link (gpointer data)
{
  g_free (((Link *) data)->target);
}

static void
xml_clear (Xml *xml)
{
  g_array_unref (xml->parts);
  g_array_unref (xml->nets);
  g_array_unref (xml->links);
  g_free (xml->first_unknown);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Xml, xml_clear)

static Part *
part_at (const Xml *xml, gint32 i)
{
  return &g_array_index (xml->parts, Part, i);
}

/* --- attributes --------------------------------------------------------------------------------------------------- */

/* A place in the text and its element, for messages. */
typedef struct {
  const Xml *xml;
  GMarkupParseContext *context;
  const char *element;
  const gchar **names, **values;
} Element;

/* GMarkup counts a line from its newline on, which follows most elements: that is character 1. */
static gint
line_of (GMarkupParseContext *context)
{
  gint line, character;

  g_markup_parse_context_get_position (context, &line, &character);
  return character == 1 && line > 1 ? line - 1 : line;
}

static gboolean refuse (const Element *e, GError **error, const char *format, ...) G_GNUC_PRINTF (3, 4);

static gboolean
refuse (const Element *e, GError **error, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_autofree char *element = sp_shown (e->element);
  return sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%d: <%s>: %s", e->xml->name, line_of (e->context), element,
                        text);
}

static const char *
attribute (const Element *e, const char *name)
{
  for (guint i = 0; e->names[i] != NULL; i++)
    if (g_str_equal (e->names[i], name))
      return e->values[i];
  return NULL;
}

/* A whole number, decimal or with 0x. Absent: *ret stays. */
static gboolean
read_number (const Element *e, const char *name, gint64 min, gint64 max, gint64 *ret, GError **error)
{
  const char *value = attribute (e, name);
  char *end;

  if (value == NULL)
    return TRUE;
  gint64 number = g_ascii_strtoll (value, &end, g_str_has_prefix (value, "0x") ? 16 : 10);
  if (end == value || *end != '\0' || number < min || number > max) {
    g_autofree char *shown = sp_shown (value);
    return refuse (e, error, "%s = \"%s\", expected a whole number from %d to %d", name, shown, (gint) min, (gint) max);
  }
  *ret = number;
  return TRUE;
}

static gboolean
need_text (const Element *e, const char *name, char **ret, GError **error)
{
  const char *value = attribute (e, name);

  if (value == NULL || *value == '\0' || strlen (value) > 64)
    return refuse (e, error, "%s = \"...\" is missing, empty or longer than 64, expected such as %s", name,
                   g_str_equal (name, "busid") ? "0000:07:00.0" : "0x030200");
  *ret = g_strdup (value);
  return TRUE;
}

/* "16 GT/s", "32.0 GT/s PCIe", and how many lanes: what is left of it after the line code. 0: not told. */
static double
port_rate (const Element *e)
{
  const char *speed = attribute (e, "link_speed"), *width = attribute (e, "link_width");
  char *end;

  if (speed == NULL || width == NULL)
    return 0;
  double gt = g_ascii_strtod (speed, &end), lanes = g_ascii_strtod (width, NULL);
  gboolean known = end != speed && gt > 0 && gt <= 128 && lanes >= 1 && lanes <= 32;
  /* 128b/130b from PCIe 3.0 on, 8b/10b before */
  return known ? gt * 1e9 * lanes / 8 * (gt < 8 ? 0.8 : 128.0 / 130) : 0;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static gboolean
add_part (Xml *xml, const Element *e, Part part, GError **error)
{
  if (xml->parts->len == MAX_PARTS) {
    clear_part (&part);
    return refuse (e, error, "more than %d of them, expected one machine", MAX_PARTS);
  }
  xml->open[xml->depth] = (gint32) xml->parts->len;
  g_array_append_val (xml->parts, part);
  return TRUE;
}

static gboolean
open_cpu (Xml *xml, const Element *e, gint32 around, GError **error)
{
  gint64 numa = -1;

  if (around >= 0)
    return refuse (e, error, "inside another part, expected right in <system>");
  if (!read_number (e, "numaid", -1, 1 << 16, &numa, error))
    return FALSE;
  return add_part (xml, e, (Part){ .kind = PART_CPU, .parent = -1, .numa = (gint32) numa, .dev = -1, .number = -1 },
                   error);
}

static gboolean
open_pci (Xml *xml, const Element *e, gint32 around, GError **error)
{
  Part part = { .kind = PART_BRIDGE, .parent = around, .dev = -1, .number = -1, .bytes_per_s = port_rate (e) };
  gint64 class = 0;

  if (around < 0)
    return refuse (e, error, "outside of a <cpu>");
  if (part_at (xml, around)->kind == PART_GPU || part_at (xml, around)->kind == PART_NIC)
    return refuse (e, error, "behind a GPU or an adapter, expected behind a bridge or a <cpu>");
  if (attribute (e, "class") == NULL)
    return refuse (e, error, "class is missing, expected such as 0x030200");
  if (!read_number (e, "class", 0, 0xffffff, &class, error) || !need_text (e, "busid", &part.name, error))
    return FALSE;
  if (class >> 16 == 0x03 || class >> 8 == 0x1200) /* display controllers, processing accelerators */
    part.kind = PART_GPU;
  if (class >> 16 == 0x02)
    part.kind = PART_NIC;
  return add_part (xml, e, part, error);
}

static gboolean
open_gpu (Xml *xml, const Element *e, gint32 around, GError **error)
{
  gint64 dev = -1;

  if (around < 0 || part_at (xml, around)->kind == PART_CPU)
    return refuse (e, error, "outside of a <pci>");
  if (!read_number (e, "dev", 0, 1 << 16, &dev, error))
    return FALSE;
  part_at (xml, around)->kind = PART_GPU;
  part_at (xml, around)->dev = (gint32) dev;
  xml->tells_nvlinks = TRUE;
  return TRUE;
}

static gboolean
open_nic (Xml *xml, const Element *e, gint32 around, GError **error)
{
  if (around < 0)
    return refuse (e, error, "outside of a <cpu>");
  if (part_at (xml, around)->kind == PART_GPU)
    return refuse (e, error, "in a GPU");
  if (part_at (xml, around)->kind == PART_BRIDGE)
    part_at (xml, around)->kind = PART_NIC;
  return TRUE;
}

static gboolean
open_net (Xml *xml, const Element *e, gint32 around, GError **error)
{
  gint64 megabits = 0;

  if (around < 0 || part_at (xml, around)->kind == PART_GPU || part_at (xml, around)->kind == PART_BRIDGE)
    return refuse (e, error, "outside of a <nic>");
  if (!read_number (e, "speed", 0, 100000000, &megabits, error))
    return FALSE;
  if (xml->nets->len == SP_DUMP_MAX_NICS)
    return refuse (e, error, "more than %d adapters", SP_DUMP_MAX_NICS);
  const char *name = attribute (e, "name");
  Net net = { .part = around,
              .name = name != NULL ? sp_shown (name) : g_strdup_printf ("net%u", xml->nets->len),
              .bytes_per_s = (double) megabits * 1e6 / 8 };
  g_array_append_val (xml->nets, net);
  return TRUE;
}

static gboolean
open_nvlink (Xml *xml, const Element *e, gint32 around, GError **error)
{
  gint64 links = 0, class = 0;

  if (around < 0 || part_at (xml, around)->kind != PART_GPU)
    return refuse (e, error, "outside of a <gpu>");
  if (attribute (e, "count") == NULL || attribute (e, "target") == NULL)
    return refuse (e, error, "count or target is missing, expected target = \"0000:07:00.0\" count = \"4\"");
  if (!read_number (e, "count", 1, 127, &links, error) || !read_number (e, "tclass", 0, 0xffffff, &class, error))
    return FALSE;
  if (xml->links->len == MAX_LINKS)
    return refuse (e, error, "more than %d of them", MAX_LINKS);
  Link link = { .gpu = around,
                .target = g_strdup (attribute (e, "target")),
                .links = (guint) links,
                .to_switch = class >> 8 == 0x0680 };
  g_array_append_val (xml->links, link);
  return TRUE;
}

static const struct {
  const char *name;
  gboolean (*open) (Xml *xml, const Element *e, gint32 around, GError **error);
} elements[] = {
  { "cpu", open_cpu }, { "pci", open_pci }, { "gpu", open_gpu },       { "nic", open_nic },
  { "net", open_net }, { "c2c", NULL },     { "nvlink", open_nvlink }, { "pcilink", NULL },
};

static void
start_element (GMarkupParseContext *context, const gchar *name, const gchar **names, const gchar **values,
               gpointer user_data, GError **error)
{
  Xml *xml = user_data;
  const Element e = { .xml = xml, .context = context, .element = name, .names = names, .values = values };
  gint32 around = xml->depth > 0 ? xml->open[xml->depth - 1] : -1;

  if (xml->depth == MAX_DEPTH) {
    refuse (&e, error, "nested deeper than %d", MAX_DEPTH);
    return;
  }
  xml->open[xml->depth] = around;
  if (xml->depth == 0) {
    if (!g_str_equal (name, "system"))
      refuse (&e, error, "expected <system>, the root of NCCL's topology%s",
              g_str_equal (name, "graphs") ? "; this is a dump of its graphs" : "");
    else if (xml->has_system)
      refuse (&e, error, "a second one, expected one machine");
    xml->has_system = TRUE;
    xml->depth++;
    return;
  }
  guint row = 0;
  while (row < G_N_ELEMENTS (elements) && !g_str_equal (elements[row].name, name))
    row++;
  if (row == G_N_ELEMENTS (elements) && xml->unknown++ == 0)
    xml->first_unknown = sp_shown (name);
  if (row == G_N_ELEMENTS (elements) || elements[row].open == NULL || elements[row].open (xml, &e, around, error))
    xml->depth++;
}

static void
end_element (GMarkupParseContext *context, const gchar *name, gpointer user_data, GError **error)
{
  ((Xml *) user_data)->depth--;
}

/* --- the dump ----------------------------------------------------------------------------------------------------- */

/* Domain, bus, device and function as one number: nvidia-smi counts GPUs in this order. */
static guint64
bus_order (const char *name)
{
  guint64 order = 0;

  for (const char *c = name; *c != '\0'; c++)
    if (g_ascii_isxdigit (*c))
      order = order << 4 | (guint64) g_ascii_xdigit_value (*c);
  return order;
}

static gint
compare_parts (gconstpointer a, gconstpointer b, gpointer user_data)
{
  const Part *x = part_at (user_data, *(const gint32 *) a), *y = part_at (user_data, *(const gint32 *) b);
  guint64 p = bus_order (x->name), q = bus_order (y->name);

  if (x->dev != y->dev)
    return x->dev < y->dev ? -1 : 1;
  return p != q ? (p < q ? -1 : 1) : *(const gint32 *) a - *(const gint32 *) b;
}

/* GPUs by CUDA's number, else by bus address. */
static GArray *
list_gpus (Xml *xml)
{
  GArray *gpus = g_array_new (FALSE, FALSE, sizeof (gint32));

  for (gint32 i = 0; i < (gint32) xml->parts->len; i++)
    if (part_at (xml, i)->kind == PART_GPU)
      g_array_append_val (gpus, i);
  g_array_sort_with_data (gpus, compare_parts, xml);
  for (guint i = 0; i < gpus->len; i++)
    part_at (xml, g_array_index (gpus, gint32, i))->number = (gint32) i;
  return gpus;
}

/* Adapters in the text's order: <net>, and PCI adapters that have none. */
static GArray *
list_nics (Xml *xml)
{
  GArray *nics = g_array_new (FALSE, FALSE, sizeof (Net));

  for (gint32 i = 0; i < (gint32) xml->parts->len; i++) {
    guint before = nics->len;
    for (guint n = 0; n < xml->nets->len; n++)
      if (g_array_index (xml->nets, Net, n).part == i)
        g_array_append_val (nics, g_array_index (xml->nets, Net, n));
    if (nics->len == before && part_at (xml, i)->kind == PART_NIC) {
      Net net = { .part = i, .name = part_at (xml, i)->name };
      g_array_append_val (nics, net);
    }
  }
  return nics;
}

static guint
depth_of (const Xml *xml, gint32 part)
{
  guint depth = 0;

  while ((part = part_at (xml, part)->parent) >= 0)
    depth++;
  return depth;
}

static SpRelation
relation_of (const Xml *xml, gint32 a, gint32 b)
{
  guint deep = depth_of (xml, a), other = depth_of (xml, b), bridges = 0;

  if (a == b) /* two ports of one adapter */
    return SP_RELATION_PIX;
  for (; deep > other; deep--, bridges++)
    a = part_at (xml, a)->parent;
  for (; other > deep; other--, bridges++)
    b = part_at (xml, b)->parent;
  while (a != b && a >= 0) {
    a = part_at (xml, a)->parent;
    b = part_at (xml, b)->parent;
    bridges += 2;
  }
  if (a < 0)
    return SP_RELATION_SYS;
  if (part_at (xml, a)->kind == PART_CPU)
    return SP_RELATION_PHB;
  return bridges <= 2 ? SP_RELATION_PIX : SP_RELATION_PXB;
}

static gint32
cpu_of (const Xml *xml, gint32 part)
{
  while (part_at (xml, part)->parent >= 0)
    part = part_at (xml, part)->parent;
  return part;
}

static void
set_relations (const Xml *xml, const GArray *gpus, const GArray *nics, SpTopologyDump *dump)
{
  gint32 parts[SP_DUMP_MAX_GPUS + SP_DUMP_MAX_NICS];
  guint n = gpus->len + nics->len;

  for (guint i = 0; i < n; i++)
    parts[i] = i < gpus->len ? g_array_index (gpus, gint32, i) : g_array_index (nics, Net, i - gpus->len).part;
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < i; j++)
      sp_topology_dump_set_relation (dump, i, j, relation_of (xml, parts[i], parts[j]));
  gboolean named = TRUE;
  for (guint i = 0; i < n; i++)
    named = named && part_at (xml, cpu_of (xml, parts[i]))->numa >= 0;
  for (guint i = 0; i < n && named; i++) {
    gint32 place = sp_topology_dump_numa_place (dump, part_at (xml, cpu_of (xml, parts[i]))->numa);
    if (i < gpus->len)
      dump->gpus[i].place = place;
    else
      dump->nics[i - gpus->len].place = place;
  }
  if (!named)
    sp_topology_dump_note (dump, FALSE, "its NUMA nodes have no numbers: a virtual machine hides them");
}

/* Links to each other; two that have links to a switch have those. */
static void
set_links (const Xml *xml, SpTopologyDump *dump)
{
  guint to_switch[SP_DUMP_MAX_GPUS] = { 0 }, lost = 0;

  for (guint i = 0; i < xml->links->len; i++) {
    const Link *link = &g_array_index (xml->links, Link, i);
    guint gpu = (guint) part_at (xml, link->gpu)->number, peer = dump->n_gpus;
    for (guint g = 0; g < dump->n_gpus && !link->to_switch; g++)
      if (g != gpu && g_ascii_strcasecmp (dump->gpus[g].name, link->target) == 0)
        peer = g;
    dump->gpus[gpu].nvlinks += link->links;
    if (link->to_switch)
      to_switch[gpu] += link->links;
    else if (peer < dump->n_gpus)
      sp_topology_dump_set_nvlinks (dump, gpu, peer, link->links);
    else
      lost++;
  }
  for (guint a = 0; a < dump->n_gpus; a++)
    for (guint b = 0; b < a; b++)
      if (to_switch[a] > 0 && to_switch[b] > 0) {
        sp_topology_dump_set_nvlinks (dump, a, b, MIN (to_switch[a], to_switch[b]));
        dump->has_switch = TRUE;
      }
  dump->tells_nvlinks = xml->tells_nvlinks;
  if (!xml->tells_nvlinks)
    sp_topology_dump_note (dump, TRUE,
                           "a file given to NCCL, not written by it: it has no NVLinks, GPU numbers or "
                           "speeds of adapters");
  if (lost > 0)
    sp_topology_dump_note (dump, FALSE, "%u NVLink entries lead to no GPU or switch of it: left out", lost);
}

static SpTopologyDump *
make_dump (Xml *xml, GError **error)
{
  g_autoptr (GArray) gpus = list_gpus (xml);
  g_autoptr (GArray) nics = list_nics (xml);

  if (gpus->len == 0 || gpus->len > SP_DUMP_MAX_GPUS || nics->len > SP_DUMP_MAX_NICS) {
    sp_input_fail (error, SP_INPUT_ERROR_SYNTAX,
                   "%s:1: %u GPUs and %u adapters, expected from 1 to %d <pci class=\"0x0302..\"> and at most %d",
                   xml->name, gpus->len, nics->len, SP_DUMP_MAX_GPUS, SP_DUMP_MAX_NICS);
    return NULL;
  }
  SpTopologyDump *dump = sp_topology_dump_new (xml->name, SP_DUMP_XML, gpus->len, nics->len);
  for (guint i = 0; i < gpus->len; i++) {
    const Part *part = part_at (xml, g_array_index (gpus, gint32, i));
    dump->gpus[i].name = g_strdup (part->name);
    dump->pcie_bytes_per_s = i == 0 ? part->bytes_per_s : MIN (dump->pcie_bytes_per_s, part->bytes_per_s);
  }
  for (guint i = 0; i < nics->len; i++) {
    const Net *net = &g_array_index (nics, Net, i);
    dump->nics[i].name = g_strdup (net->name);
    dump->nics[i].bytes_per_s = net->bytes_per_s;
  }
  set_relations (xml, gpus, nics, dump);
  set_links (xml, dump);
  if (xml->unknown > 0)
    sp_topology_dump_note (dump, FALSE, "%u elements are not known, such as <%s>: left out", xml->unknown,
                           xml->first_unknown);
  return dump;
}

/* GMarkup's message without its own "Error on line 3 char 5: ", in one line. */
static void
set_markup_error (const char *name, GMarkupParseContext *context, const GError *cause, GError **error)
{
  const char *text = strstr (cause->message, ": ");

  if (cause->domain != G_MARKUP_ERROR) {
    g_propagate_error (error, g_error_copy (cause));
    return;
  }
  g_autofree char *shown =
      sp_shown (g_str_has_prefix (cause->message, "Error on line") && text ? text + 2 : cause->message);
  sp_input_fail (error, SP_INPUT_ERROR_SYNTAX, "%s:%d: %s (expected XML)", name, line_of (context), shown);
}

SpTopologyDump *
sp_topology_xml_parse (const char *text, gsize length, const char *name, GError **error)
{
  const GMarkupParser parser = { .start_element = start_element, .end_element = end_element };
  g_auto (Xml) xml = { .name = name,
                       .parts = g_array_new (FALSE, FALSE, sizeof (Part)),
                       .nets = g_array_new (FALSE, FALSE, sizeof (Net)),
                       .links = g_array_new (FALSE, FALSE, sizeof (Link)) };
  g_autoptr (GError) cause = NULL;

  g_array_set_clear_func (xml.parts, clear_part);
  g_array_set_clear_func (xml.nets, clear_net);
  g_array_set_clear_func (xml.links, clear_link);
  g_autoptr (GMarkupParseContext) context = g_markup_parse_context_new (&parser, 0, &xml, NULL);
  if (!g_markup_parse_context_parse (context, text, (gssize) length, &cause) ||
      !g_markup_parse_context_end_parse (context, &cause)) {
    set_markup_error (name, context, cause, error);
    return NULL;
  }
  return make_dump (&xml, error);
}
