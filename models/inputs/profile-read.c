/* SPDX-License-Identifier: Apache-2.0 */
/* A profile read from its file: curves by the names of groups, and what speaks against them. */
#include "models/inputs/profile-private.h"

#include <string.h>

#include "models/inputs/hardware-private.h"

/* "2x1" */
static gboolean
parse_shape (const char *text, gint32 *ret_ranks, gint32 *ret_nodes)
{
  guint64 ranks, nodes;
  g_auto (GStrv) parts = g_strsplit (text, "x", -1);

  if (g_strv_length (parts) != 2 || !g_ascii_string_to_unsigned (parts[0], 10, 2, 1 << 24, &ranks, NULL) ||
      !g_ascii_string_to_unsigned (parts[1], 10, 1, 1 << 24, &nodes, NULL) || nodes > ranks || ranks % nodes != 0)
    return FALSE;
  *ret_ranks = (gint32) ranks;
  *ret_nodes = (gint32) nodes;
  return TRUE;
}

static gboolean
refuse_group (const SpIni *ini, const char *group, GError **error, const char *problem, const char *near)
{
  return sp_input_fail (error, SP_INPUT_ERROR_KEY, "%s: [%s]: %s%s%s%s", sp_ini_path (ini), group, problem,
                        near != NULL ? "; did you mean [" : "", near != NULL ? near : "", near != NULL ? "]?" : "");
}

/* Of something beside something else, which no reader would look for. */
static gboolean
refuse_variant (const SpIni *ini, const char *group, const SpCurve *curve, GError **error)
{
  gboolean beside = curve->kind == SP_CURVE_BESIDE;
  const char *kind = sp_curve_kind_name (curve->kind);
  gint32 ranks = curve->ranks > 0 ? curve->ranks : 2, nodes = MAX (curve->nodes, 1);
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);

  for (guint t = SP_CURVE_ONE_WAY; t <= SP_CURVE_BROADCAST; t++) {
    const char *transfer = sp_curve_kind_name ((SpCurveKind) t);
    g_ptr_array_add (names, g_strdup_printf ("%s.%dx%d.%s", kind, ranks, nodes, transfer));
    g_ptr_array_add (names, g_strdup_printf ("%s.%dx%d.%s-copy", kind, ranks, nodes, transfer));
    for (guint op = 0; beside && op < SP_N_OPS; op++)
      g_ptr_array_add (names,
                       g_strdup_printf ("%s.%dx%d.%s-%s", kind, ranks, nodes, transfer, sp_op_name ((SpOpKind) op)));
  }
  for (guint op = 0; !beside && op < SP_N_OPS; op++)
    g_ptr_array_add (names, g_strdup_printf ("%s.%dx%d.%s", kind, ranks, nodes, sp_op_name ((SpOpKind) op)));
  g_ptr_array_add (names, NULL);
  return refuse_group (ini, group, error,
                       beside ? "expected ranks and nodes, a transfer and what it ran beside, as in "
                                "[beside.2x1.all-gather] or [beside.2x1.all-gather-adam]"
                              : "expected ranks and nodes, and an op or what it ran beside, as in "
                                "[slowdown.2x1.norm] or [slowdown.2x1.all-gather-copy]",
                       sp_nearest (group, (const char *const *) names->pdata));
}

/* kind[.RANKSxNODES][.variant] */
static SpCurve *
curve_of_group (const SpIni *ini, SpProfile *profile, const char *group, GError **error)
{
  g_auto (GStrv) parts = g_strsplit (group, ".", 3);
  const char *names[SP_N_CURVES + 1] = { NULL };
  guint kind = 0, rest = 1;
  gint32 ranks = 0, nodes = 0;

  for (guint i = 0; i < SP_N_CURVES; i++)
    names[i] = sp_curve_kind_name ((SpCurveKind) i);
  while (kind < SP_N_CURVES && g_strcmp0 (sp_curve_kind_name ((SpCurveKind) kind), parts[0]) != 0)
    kind++;
  if (kind == SP_N_CURVES) {
    refuse_group (ini, group, error, "unknown group, expected [profile] or a curve such as [gemm] or [all-gather.8x1]",
                  sp_nearest (parts[0], names));
    return NULL;
  }
  if (parts[1] != NULL && parse_shape (parts[1], &ranks, &nodes))
    rest = 2;
  gboolean needs = sp_curve_is_transfer ((SpCurveKind) kind) && kind != SP_CURVE_COPY;
  if (needs && ranks == 0) {
    refuse_group (ini, group, error, "expected the group's ranks and nodes behind the kind, as in [all-gather.8x1]",
                  NULL);
    return NULL;
  }
  g_autofree char *variant = parts[rest - 1] != NULL && parts[rest] != NULL ? g_strjoinv (".", parts + rest) : NULL;
  SpCurve *curve = sp_profile_add (profile, (SpCurveKind) kind, variant);
  curve->ranks = ranks;
  curve->nodes = nodes;
  if (kind == SP_CURVE_KERNEL && curve->op == SP_N_OPS) {
    refuse_group (ini, group, error, "expected an op's form behind kernel, as in [kernel.norm-bwd.1f.3]", NULL);
    return NULL;
  }
  gboolean beside = kind == SP_CURVE_BESIDE || kind == SP_CURVE_SLOWDOWN;
  if (!sp_curve_is_known (curve) || (beside && ranks == 0)) {
    refuse_variant (ini, group, curve, error);
    return NULL;
  }
  return curve;
}

static gboolean
read_slot (SpIni *ini, const char *group, SpCurve *curve, guint slot, GError **error)
{
  const SpCurveSlot *row = sp_curve_slot (curve->kind, slot);
  g_autofree char *key = sp_curve_key (curve, slot);
  g_autofree char *error_key = g_strconcat (key, ".error", NULL);
  SpQuantityKey quantity = { key, row->unit, row->min, row->max, 0 };
  SpIniNeed need = sp_curve_is_optional (curve->kind, slot) ? SP_INI_OPTIONAL : SP_INI_REQUIRED;

  return sp_read_quantities (ini, group, &quantity, 1, need, &curve->value[slot], error) &&
         sp_ini_quantity (ini, group, error_key, SP_INI_OPTIONAL, row->unit, 0, row->max, &curve->error[slot], error);
}

/* Sizes of piece `i`, behind those of the piece before. */
static gboolean
read_piece (SpIni *ini, const char *group, SpCurve *curve, guint i, GError **error)
{
  g_autofree char *begin = g_strdup_printf ("begin-%u", i + 1);
  g_autofree char *end = g_strdup_printf ("end-%u", i + 1);
  double least = i > 0 ? curve->end[i - 1] : 0;

  if (!sp_ini_quantity (ini, group, begin, SP_INI_REQUIRED, SP_UNIT_BYTES, MAX (1, least), 0x1p50, &curve->begin[i],
                        error))
    return FALSE;
  if (i > 0 && curve->begin[i] <= least)
    return sp_ini_refuse (ini, group, begin, error, "expected more than end-%u", i);
  return sp_ini_quantity (ini, group, end, SP_INI_REQUIRED, SP_UNIT_BYTES, curve->begin[i], 0x1p50, &curve->end[i],
                          error);
}

static gboolean
read_slots (SpIni *ini, const char *group, SpCurve *curve, GError **error)
{
  if (sp_curve_is_transfer (curve->kind)) {
    guint pieces = 1;
    while (pieces < SP_CURVE_MAX_PIECES) {
      g_autofree char *begin = g_strdup_printf ("begin-%u", pieces + 1);
      if (!sp_ini_has (ini, group, begin))
        break;
      pieces++;
    }
    for (guint i = 0; i < pieces; i++)
      if (!read_piece (ini, group, curve, i, error))
        return FALSE;
    curve->n_slots = pieces * SP_PIECE_SLOTS;
  }
  for (guint slot = 0; slot < curve->n_slots; slot++)
    if (!read_slot (ini, group, curve, slot, error))
      return FALSE;
  return TRUE;
}

/* Of how many values a triangle of so many numbers is; 0: of none. */
static guint
values_of (guint numbers)
{
  for (guint values = 2; values <= SP_CURVE_SLOTS; values++)
    if (values * (values - 1) / 2 == numbers)
      return values;
  return 0;
}

/* Where it is of more values than have an error, a key that was taken out is to blame: one of those that were measured. */
static gboolean
refuse_correlation (const SpIni *ini, const char *group, const SpCurve *curve, guint fitted, guint numbers,
                    GError **error)
{
  g_autoptr (GString) missing = g_string_new (NULL);

  for (guint i = 0; i < curve->n_slots && values_of (numbers) > fitted; i++)
    if (curve->error[i] == 0 && curve->value[i].value != 0 && curve->value[i].provenance < SP_ASSUMED) {
      g_autofree char *key = sp_curve_key (curve, i);
      g_string_append_printf (missing, "%s%s.error", missing->len > 0 ? " or " : "", key);
    }
  if (missing->len > 0)
    return sp_ini_refuse (
        ini, group, "correlation", error,
        "it is of %u values with an error, and %u have one: %s is missing, or take correlation out too",
        values_of (numbers), fitted, missing->str);
  return sp_ini_refuse (ini, group, "correlation", error,
                        "expected %u numbers from -1 to 1, of each two of the %u values with an error",
                        fitted * (fitted - MIN (fitted, 1)) / 2, fitted);
}

static gboolean
read_correlation (SpIni *ini, const char *group, SpCurve *curve, GError **error)
{
  g_autofree char *text = NULL;
  guint fitted = 0, at = 0;

  for (guint i = 0; i < curve->n_slots; i++) {
    curve->covariance[i][i] = curve->error[i] * curve->error[i];
    fitted += curve->error[i] > 0;
  }
  if (!sp_ini_string (ini, group, "correlation", SP_INI_OPTIONAL, &text, error))
    return FALSE;
  if (text == NULL)
    return TRUE;
  g_auto (GStrv) parts = g_strsplit (text, ",", -1);
  guint expected = fitted * (fitted - MIN (fitted, 1)) / 2;
  gboolean good = g_strv_length (parts) == expected;
  for (guint i = 0; good && i < curve->n_slots; i++)
    for (guint j = 0; good && j < i && curve->error[i] > 0; j++) {
      double r;
      if (curve->error[j] == 0)
        continue;
      g_autofree char *problem = sp_quantity_problem (g_strstrip (parts[at++]), SP_UNIT_NUMBER, -1, 1, &r);
      good = problem == NULL;
      if (good)
        curve->covariance[i][j] = curve->covariance[j][i] = r * curve->error[i] * curve->error[j];
    }
  return good || refuse_correlation (ini, group, curve, fitted, g_strv_length (parts), error);
}

static gboolean
read_quality (SpIni *ini, const char *group, SpCurve *curve, GError **error)
{
  SpUnit range = sp_curve_range_unit (curve->kind);
  const struct {
    const char *key;
    SpUnit unit;
    double max;
    double *ret;
  } keys[] = {
    { "from", range, 1e30, &curve->from },
    { "to", range, 1e30, &curve->to },
    { "chi-square", SP_UNIT_NUMBER, 1e12, &curve->chi_square },
    { "scatter", SP_UNIT_FRACTION, 1e3, &curve->scatter },
    { "median", SP_UNIT_FRACTION, 1e3, &curve->median },
    { "p90", SP_UNIT_FRACTION, 1e3, &curve->p90 },
    { "worst", SP_UNIT_FRACTION, 1e3, &curve->worst },
  };
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    if (!sp_ini_quantity (ini, group, keys[i].key, SP_INI_OPTIONAL, keys[i].unit, 0, keys[i].max, keys[i].ret, error))
      return FALSE;
  if (curve->to < curve->from)
    return sp_ini_refuse (ini, group, "to", error, "expected at least what from says");
  return sp_ini_int (ini, group, "points", SP_INI_OPTIONAL, 0, G_MAXINT32, &curve->points, error) &&
         sp_ini_int (ini, group, "left-out", SP_INI_OPTIONAL, 0, G_MAXINT32, &curve->left_out, error);
}

SpProfile *
sp_profile_parse (const char *path, const char *text, gsize length, GError **error)
{
  g_autoptr (SpIni) ini = sp_ini_parse (path, text, length, error);
  if (ini == NULL)
    return NULL;
  g_autoptr (SpProfile) profile = sp_profile_new (NULL, NULL);
  g_auto (GStrv) groups = sp_ini_groups (ini);
  if (!sp_read_name (ini, "profile", &profile->name, error) ||
      !sp_ini_string (ini, "profile", "card", SP_INI_OPTIONAL, &profile->card, error))
    return NULL;
  for (guint i = 0; groups[i] != NULL; i++) {
    if (g_str_equal (groups[i], "profile"))
      continue;
    SpCurve *curve = curve_of_group (ini, profile, groups[i], error);
    if (curve == NULL || !read_slots (ini, groups[i], curve, error) ||
        !read_correlation (ini, groups[i], curve, error) || !read_quality (ini, groups[i], curve, error))
      return NULL;
  }
  if (profile->curves->len == 0) {
    sp_input_fail (error, SP_INPUT_ERROR_KEY,
                   "%s: no curve in it, expected a profile as seqpar calibrate fit writes it", path);
    return NULL;
  }
  sp_profile_link (profile);
  return sp_ini_finish (ini, error) ? g_steal_pointer (&profile) : NULL;
}

SpProfile *
sp_profile_load (const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = sp_read_input (path, &length, error);

  return text != NULL ? sp_profile_parse (path, text, length, error) : NULL;
}
