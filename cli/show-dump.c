/* SPDX-License-Identifier: Apache-2.0 */
/* seqpar show cluster DUMP: what NCCL's topology or nvidia-smi topo -m tells of a machine. */
#include "cli/cli.h"

/* --- lists -------------------------------------------------------------------------------------------------------- */

typedef gboolean (*Holds) (const SpTopologyDump *dump, guint i, gint32 value);

static gboolean
gpu_at (const SpTopologyDump *dump, guint i, gint32 place)
{
  return dump->gpus[i].place == place;
}

static gboolean
nic_at (const SpTopologyDump *dump, guint i, gint32 place)
{
  return dump->nics[i].place == place;
}

static gboolean
nic_is (const SpTopologyDump *dump, guint i, gint32 compute)
{
  return dump->nics[i].compute == compute;
}

/* Numbers of those for which it holds. */
static GArray *
list (const SpTopologyDump *dump, guint n, Holds holds, gint32 value)
{
  GArray *numbers = g_array_new (FALSE, FALSE, sizeof (guint));

  for (guint i = 0; i < n; i++)
    if (holds (dump, i, value))
      g_array_append_val (numbers, i);
  return numbers;
}

static GArray *
list_gpus (const SpTopologyDump *dump, gint32 place)
{
  return list (dump, dump->n_gpus, gpu_at, place);
}

static GArray *
list_nics (const SpTopologyDump *dump, gint32 place)
{
  return list (dump, dump->n_nics, nic_at, place);
}

static GArray *
list_compute (const SpTopologyDump *dump, gboolean compute)
{
  return list (dump, dump->n_nics, nic_is, compute);
}

/* "GPU 0, 1, 2"; "no GPU". */
static char *
numbers_text (const char *what, const GArray *numbers)
{
  g_autoptr (GString) text = g_string_new (numbers->len > 0 ? what : "no ");

  if (numbers->len == 0)
    g_string_append (text, what);
  for (guint i = 0; i < numbers->len; i++)
    g_string_append_printf (text, "%s%u", i > 0 ? ", " : " ", g_array_index (numbers, guint, i));
  return g_strdup (text->str);
}

static void
numbers_json (JsonBuilder *builder, const char *name, const GArray *numbers)
{
  json_builder_set_member_name (builder, name);
  json_builder_begin_array (builder);
  for (guint i = 0; i < numbers->len; i++)
    json_builder_add_int_value (builder, g_array_index (numbers, guint, i));
  json_builder_end_array (builder);
}

/* Of the pairs that NVLinks make: the lower GPU and the higher one. */
static GArray *
list_pairs (const SpTopologyDump *dump)
{
  GArray *pairs = g_array_new (FALSE, FALSE, sizeof (guint[2]));

  for (guint i = 0; i < dump->n_gpus; i++) {
    gint32 peer = sp_topology_dump_pair (dump, i);
    guint pair[2] = { i, (guint) peer };
    if (peer > (gint32) i)
      g_array_append_val (pairs, pair);
  }
  return pairs;
}

static const guint *
pair_at (const GArray *pairs, guint i)
{
  return (const guint *) (gconstpointer) (pairs->data + i * sizeof (guint[2]));
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static char *
place_name (const SpDumpPlace *place, guint i)
{
  return place->socket ? g_strdup_printf ("socket %u", i) : g_strdup_printf ("NUMA node %d", place->numa);
}

static void
add_row (SpTable *table, const char *name, char *value)
{
  sp_table_cell (table, name);
  sp_table_take (table, value);
}

static char *
links_text (const SpTopologyDump *dump)
{
  guint least = G_MAXUINT, most = 0;

  for (guint i = 0; i < dump->n_gpus; i++) {
    least = MIN (least, dump->gpus[i].nvlinks);
    most = MAX (most, dump->gpus[i].nvlinks);
  }
  if (most == 0)
    return g_strdup (dump->tells_nvlinks ? "none" : "not told");
  const char *where = dump->has_switch ? ", to a switch" : "";
  return least == most ? g_strdup_printf ("%u a GPU%s", most, where)
                       : g_strdup_printf ("%u to %u a GPU%s", least, most, where);
}

static char *
pairs_text (const GArray *pairs)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < pairs->len; i++)
    g_string_append_printf (text, "%s%u-%u", i > 0 ? ", " : "", pair_at (pairs, i)[0], pair_at (pairs, i)[1]);
  return g_strdup (text->str);
}

static void
add_group_text (const SpTopologyDump *dump, guint size, SpTable *table)
{
  g_autofree char *name = g_strdup_printf ("best group of %u", size);
  g_autoptr (GArray) numbers = g_array_new (FALSE, FALSE, sizeof (guint));
  gboolean any;

  g_array_set_size (numbers, size);
  if (!sp_topology_dump_best_group (dump, size, (guint *) (gpointer) numbers->data, &any))
    return;
  add_row (table, name, any ? g_strdup ("any, all are as near") : numbers_text ("GPU", numbers));
}

static void
add_nics_text (const SpTopologyDump *dump, SpTable *table)
{
  g_autoptr (GArray) compute = list_compute (dump, TRUE);
  g_autoptr (GArray) others = list_compute (dump, FALSE);
  g_autofree char *near = numbers_text ("NIC", compute);

  add_row (table, "network adapters",
           dump->n_nics == 0 ? g_strdup ("none listed")
                             : g_strdup_printf ("%u, of these %u near a GPU: %s", dump->n_nics, compute->len, near));
  if (others->len > 0)
    add_row (table, "not for compute", numbers_text ("NIC", others));
}

static void
add_text (const SpTopologyDump *dump, GString *out)
{
  g_autoptr (SpTable) table = sp_table_new ("ll");
  g_autoptr (GArray) pairs = list_pairs (dump);

  add_row (table, "GPUs", g_strdup_printf ("%u", dump->n_gpus));
  add_row (table, "NVLinks", links_text (dump));
  if (pairs->len > 0)
    add_row (table, "pairs", pairs_text (pairs));
  add_nics_text (dump, table);
  for (guint i = 0; i < dump->n_places; i++) {
    g_autofree char *name = place_name (&dump->places[i], i);
    g_autoptr (GArray) gpus = list_gpus (dump, (gint32) i);
    g_autoptr (GArray) nics = list_nics (dump, (gint32) i);
    g_autofree char *gpus_text = numbers_text ("GPU", gpus);
    g_autofree char *nics_text = numbers_text ("NIC", nics);
    add_row (table, name, g_strdup_printf ("%s; %s", gpus_text, nics_text));
  }
  add_group_text (dump, 2, table);
  add_group_text (dump, 4, table);
  add_row (table, "complete", g_strdup (dump->partial ? "no, a partial dump" : "yes"));
  g_string_append_printf (out, "%s (%s)\n", dump->name,
                          dump->format == SP_DUMP_XML ? "NCCL topology" : "nvidia-smi topo -m");
  sp_table_print (table, 2, out);
  sp_result_notes_text (dump->notes, out);
}

/* --- json --------------------------------------------------------------------------------------------------------- */

static void
add_gpus_json (JsonBuilder *builder, const SpTopologyDump *dump)
{
  json_builder_set_member_name (builder, "gpus");
  json_builder_begin_array (builder);
  for (guint i = 0; i < dump->n_gpus; i++) {
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", dump->gpus[i].name);
    sp_json_string (builder, "affinity", dump->gpus[i].affinity);
    sp_json_whole (builder, "place", dump->gpus[i].place);
    sp_json_whole (builder, "nvlinks", dump->gpus[i].nvlinks);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

static void
add_nics_json (JsonBuilder *builder, const SpTopologyDump *dump)
{
  json_builder_set_member_name (builder, "nics");
  json_builder_begin_array (builder);
  for (guint i = 0; i < dump->n_nics; i++) {
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", dump->nics[i].name);
    sp_json_whole (builder, "place", dump->nics[i].place);
    sp_json_number (builder, "bytes_per_s", dump->nics[i].bytes_per_s);
    sp_json_bool (builder, "compute", dump->nics[i].compute);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

static void
add_places_json (JsonBuilder *builder, const SpTopologyDump *dump)
{
  json_builder_set_member_name (builder, "places");
  json_builder_begin_array (builder);
  for (guint i = 0; i < dump->n_places; i++) {
    g_autofree char *name = place_name (&dump->places[i], i);
    g_autoptr (GArray) gpus = list_gpus (dump, (gint32) i);
    g_autoptr (GArray) nics = list_nics (dump, (gint32) i);
    json_builder_begin_object (builder);
    sp_json_string (builder, "name", name);
    numbers_json (builder, "gpus", gpus);
    numbers_json (builder, "nics", nics);
    json_builder_end_object (builder);
  }
  json_builder_end_array (builder);
}

static void
add_pairs_json (JsonBuilder *builder, const SpTopologyDump *dump)
{
  g_autoptr (GArray) pairs = list_pairs (dump);

  json_builder_set_member_name (builder, "pairs");
  json_builder_begin_array (builder);
  for (guint i = 0; i < pairs->len; i++) {
    json_builder_begin_array (builder);
    json_builder_add_int_value (builder, pair_at (pairs, i)[0]);
    json_builder_add_int_value (builder, pair_at (pairs, i)[1]);
    json_builder_end_array (builder);
  }
  json_builder_end_array (builder);
}

/* null where there are not as many GPUs. */
static void
add_group_json (JsonBuilder *builder, const SpTopologyDump *dump, guint size)
{
  g_autofree char *name = g_strdup_printf ("best_group_of_%u", size);
  g_autoptr (GArray) numbers = g_array_new (FALSE, FALSE, sizeof (guint));
  gboolean any;

  g_array_set_size (numbers, size);
  if (!sp_topology_dump_best_group (dump, size, (guint *) (gpointer) numbers->data, &any)) {
    sp_json_string (builder, name, NULL);
    return;
  }
  sp_json_object (builder, name);
  numbers_json (builder, "gpus", numbers);
  sp_json_bool (builder, "any", any);
  json_builder_end_object (builder);
}

static gboolean
add_json (const SpTopologyDump *dump, GString *out, GError **error)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();

  json_builder_begin_object (builder);
  sp_json_string (builder, "name", dump->name);
  sp_json_string (builder, "format", dump->format == SP_DUMP_XML ? "nccl-xml" : "nvidia-smi");
  add_gpus_json (builder, dump);
  add_nics_json (builder, dump);
  sp_json_bool (builder, "switch", dump->has_switch);
  add_pairs_json (builder, dump);
  add_places_json (builder, dump);
  add_group_json (builder, dump, 2);
  add_group_json (builder, dump, 4);
  sp_json_bool (builder, "partial", dump->partial);
  sp_json_strings (builder, "notes", dump->notes);
  json_builder_end_object (builder);
  return sp_json_finish (builder, out, error);
}

gboolean
sp_show_dump (const SpTopologyDump *dump, gboolean json, GString *out, GError **error)
{
  if (json)
    return add_json (dump, out, error);
  add_text (dump, out);
  return TRUE;
}
