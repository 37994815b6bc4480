/* SPDX-License-Identifier: Apache-2.0 */
#include "models/inputs/profile.h"

#include <math.h>
#include <string.h>

#include "models/inputs/profile-private.h"

/* --- kinds -------------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  gboolean transfer;
  SpUnit range;
  SpCurveSlot slots[SP_CURVE_SLOTS + 1];
} Kind;

/* clang-format off */
#define CORE { { "launch", SP_UNIT_SECONDS, 0, 1e-1 }, { "rate", SP_UNIT_FLOPS_PER_S, 1e9, 1e17 },                     \
               { "half-tokens", SP_UNIT_NUMBER, 0, 1e9 }, { "head-power", SP_UNIT_NUMBER, 0, 4 } }
/* of each piece, with its number behind: latency-1 */
#define PIECE { { "latency", SP_UNIT_SECONDS, 0, 10 }, { "growth", SP_UNIT_NUMBER, 0, 1 },                             \
                { "rate", SP_UNIT_BYTES_PER_S, 1, 1e18 } }

static const Kind kinds[SP_N_CURVES] = {
  [SP_CURVE_GEMM] = { "gemm", FALSE, SP_UNIT_NUMBER,
    { { "launch", SP_UNIT_SECONDS, 0, 1e-1 }, { "rate", SP_UNIT_FLOPS_PER_S, 1e9, 1e17 },
      { "memory-rate", SP_UNIT_BYTES_PER_S, 1e6, 1e16 }, { "prologue", SP_UNIT_NUMBER, 0, 1e5 },
      { "tile-128", SP_UNIT_NUMBER, 0.01, 10 }, { "tile-64", SP_UNIT_NUMBER, 0.01, 10 },
      { "tail", SP_UNIT_NUMBER, 0, 1 } } },
  [SP_CURVE_ATTENTION] = { "attention", FALSE, SP_UNIT_NUMBER, CORE },
  [SP_CURVE_ATTENTION_BACKWARD] = { "attention-backward", FALSE, SP_UNIT_NUMBER, CORE },
  [SP_CURVE_LINEAR] = { "linear-attention", FALSE, SP_UNIT_NUMBER, CORE },
  [SP_CURVE_LINEAR_BACKWARD] = { "linear-attention-backward", FALSE, SP_UNIT_NUMBER, CORE },
  /* 0: no cache is seen, no FLOP bound it, all tokens are alike */
  [SP_CURVE_KERNEL] = { "kernel", FALSE, SP_UNIT_NUMBER,
    { { "launch", SP_UNIT_SECONDS, 0, 1e-1 }, { "memory-rate", SP_UNIT_BYTES_PER_S, 0, 1e16 },
      { "cache", SP_UNIT_BYTES, 0, 0x1p40 }, { "cache-rate", SP_UNIT_BYTES_PER_S, 0, 1e16 },
      { "rate", SP_UNIT_FLOPS_PER_S, 0, 1e17 }, { "row", SP_UNIT_SECONDS, 0, 1 },
      { "half-tokens", SP_UNIT_NUMBER, 0, 1e9 }, { "head-power", SP_UNIT_NUMBER, 0, 4 },
      { "tail", SP_UNIT_NUMBER, 0, 10 }, { "serial", SP_UNIT_NUMBER, 0, 1 }, { "wave", SP_UNIT_NUMBER, 0, 1e12 },
      { "tile-128", SP_UNIT_NUMBER, 0, 10 }, { "tile-64", SP_UNIT_NUMBER, 0, 10 } } },
  [SP_CURVE_COPY] = { "copy", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_ONE_WAY] = { "one-way", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_SEND_RECEIVE] = { "send-receive", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_ALL_GATHER] = { "all-gather", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_REDUCE_SCATTER] = { "reduce-scatter", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_ALL_REDUCE] = { "all-reduce", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_ALL_TO_ALL] = { "all-to-all", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_BROADCAST] = { "broadcast", TRUE, SP_UNIT_BYTES, PIECE },
  [SP_CURVE_BESIDE] = { "beside", FALSE, SP_UNIT_BYTES,
    { { "wait", SP_UNIT_SECONDS, 0, 10 }, { "factor", SP_UNIT_NUMBER, 0.01, 1000 } } },
  [SP_CURVE_SLOWDOWN] = { "slowdown", FALSE, SP_UNIT_BYTES,
    { { "slowdown", SP_UNIT_FRACTION, -1, 100 }, { "wave", SP_UNIT_FRACTION, 0, 100 } } },
  [SP_CURVE_LAUNCH] = { "launch", FALSE, SP_UNIT_NUMBER, { { "time", SP_UNIT_SECONDS, 0, 10 } } },
  [SP_CURVE_MEMORY] = { "memory", FALSE, SP_UNIT_NUMBER, { { "bytes", SP_UNIT_BYTES, 0, 0x1p50 } } },
  [SP_CURVE_POWER] = { "power", FALSE, SP_UNIT_WATTS,
    { { "idle", SP_UNIT_WATTS, 0, 1e5 }, { "flop", SP_UNIT_JOULES, 1e-16, 1e-6 }, { "byte", SP_UNIT_JOULES, 0, 1e-6 },
      { "limit", SP_UNIT_WATTS, 1, 1e5 }, { "spread", SP_UNIT_FRACTION, 0, 1 } } },
};
/* clang-format on */

/* How numbers are written. */
static const struct {
  double scale;
  const char *name;
} writing[] = {
  [SP_UNIT_BYTES] = { 1, " B" },       [SP_UNIT_BYTES_PER_S] = { 1e9, " GB/s" },
  [SP_UNIT_SECONDS] = { 1e-6, " us" }, [SP_UNIT_FLOPS_PER_S] = { 1e12, " TFLOP/s" },
  [SP_UNIT_FRACTION] = { 1, "" },      [SP_UNIT_NUMBER] = { 1, "" },
  [SP_UNIT_WATTS] = { 1, " W" },       [SP_UNIT_JOULES] = { 1e-12, " pJ" },
};

const char *
sp_curve_kind_name (SpCurveKind kind)
{
  g_return_val_if_fail (kind < SP_N_CURVES, NULL);
  return kinds[kind].name;
}

gboolean
sp_curve_is_transfer (SpCurveKind kind)
{
  return kinds[kind].transfer;
}

char *
sp_curve_name (const SpCurve *curve)
{
  g_autofree char *shape = curve->ranks > 0 ? g_strdup_printf (".%dx%d", curve->ranks, curve->nodes) : g_strdup ("");

  return g_strconcat (kinds[curve->kind].name, shape, curve->variant != NULL ? "." : "",
                      curve->variant != NULL ? curve->variant : "", NULL);
}

const SpCurveSlot *
sp_curve_slot (SpCurveKind kind, guint slot)
{
  return &kinds[kind].slots[kinds[kind].transfer ? slot % SP_PIECE_SLOTS : slot];
}

SpUnit
sp_curve_range_unit (SpCurveKind kind)
{
  return kinds[kind].range;
}

char *
sp_curve_key (const SpCurve *curve, guint slot)
{
  if (slot >= curve->n_slots)
    return NULL;
  const char *key = sp_curve_slot (curve->kind, slot)->key;
  return kinds[curve->kind].transfer ? g_strdup_printf ("%s-%u", key, slot / SP_PIECE_SLOTS + 1) : g_strdup (key);
}

static char *
text_of (SpUnit unit, double value, int digits)
{
  g_autofree char *format = g_strdup_printf ("%%.%dg", digits);
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];

  return g_strconcat (g_ascii_formatd (buffer, sizeof buffer, format, value / writing[unit].scale), writing[unit].name,
                      NULL);
}

gboolean
sp_curve_is_of_library (const SpCurve *curve, const char *library)
{
  gsize length = library != NULL ? strlen (library) : 0;

  return library != NULL && curve->variant != NULL && strncmp (curve->variant, library, length) == 0 &&
         (curve->variant[length] == '\0' || curve->variant[length] == '-');
}

gboolean
sp_curve_split (const SpCurve *curve, SpCurveKind *ret_transfer, const char **ret_kernel)
{
  for (guint kind = SP_CURVE_ONE_WAY; curve->variant != NULL && kind <= SP_CURVE_BROADCAST; kind++) {
    const char *name = sp_curve_kind_name ((SpCurveKind) kind);
    if (!g_str_has_prefix (curve->variant, name))
      continue;
    *ret_kernel = curve->variant + strlen (name);
    *ret_transfer = (SpCurveKind) kind;
    return **ret_kernel == '\0' || *(*ret_kernel)++ == '-';
  }
  return FALSE;
}

static gboolean
is_kernel (const char *word)
{
  for (guint op = 0; op < SP_N_OPS; op++)
    if (g_strcmp0 (sp_op_name ((SpOpKind) op), word) == 0)
      return !sp_op_is_communication ((SpOpKind) op);
  return FALSE;
}

gboolean
sp_curve_is_known (const SpCurve *curve)
{
  SpCurveKind transfer;
  const char *kernel;

  if (curve->kind != SP_CURVE_BESIDE && curve->kind != SP_CURVE_SLOWDOWN)
    return TRUE;
  if (!sp_curve_split (curve, &transfer, &kernel))
    return curve->kind == SP_CURVE_SLOWDOWN && is_kernel (curve->variant);
  return *kernel == '\0' || g_str_equal (kernel, "copy") || (curve->kind == SP_CURVE_BESIDE && is_kernel (kernel));
}

gboolean
sp_curve_is_optional (SpCurveKind kind, guint slot)
{
  return (kind == SP_CURVE_KERNEL && slot != SP_KERNEL_LAUNCH) ||
         (kind == SP_CURVE_SLOWDOWN && slot == SP_SLOWDOWN_WAVE) ||
         (kind == SP_CURVE_POWER && slot == SP_POWER_SPREAD);
}

gboolean
sp_curve_has (const SpCurve *curve, guint slot)
{
  return !sp_curve_is_optional (curve->kind, slot) || curve->value[slot].value != 0 || curve->error[slot] != 0;
}

char *
sp_curve_text (const SpCurve *curve, guint slot, double value, int digits)
{
  return text_of (sp_curve_slot (curve->kind, slot)->unit, value, digits);
}

/* --- profiles ----------------------------------------------------------------------------------------------------- */

static void
curve_free (gpointer data)
{
  SpCurve *curve = data;

  for (guint i = 0; i < SP_CURVE_SLOTS; i++)
    g_free (curve->value[i].source);
  g_free (curve->variant);
  g_free (curve);
}

SpProfile *
sp_profile_new (const char *name, const char *card)
{
  SpProfile *profile = g_new0 (SpProfile, 1);

  profile->name = g_strdup (name);
  profile->card = g_strdup (card);
  profile->comments = g_ptr_array_new_with_free_func (g_free);
  profile->curves = g_ptr_array_new_with_free_func (curve_free);
  return profile;
}

void
sp_profile_free (SpProfile *profile)
{
  if (profile == NULL)
    return;
  g_ptr_array_unref (profile->comments);
  g_ptr_array_unref (profile->curves);
  g_free (profile->name);
  g_free (profile->card);
  g_free (profile);
}

SpProvenance
sp_profile_provenance (const SpProfile *profile)
{
  SpProvenance worst = SP_MEASURED;

  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *curve = profile->curves->pdata[i];
    for (guint slot = 0; slot < curve->n_slots; slot++)
      if (curve->error[slot] > 0)
        worst = MAX (worst, curve->value[slot].provenance);
  }
  return worst;
}

static guint
slots_of (SpCurveKind kind)
{
  guint n = 0;

  while (kinds[kind].slots[n].key != NULL)
    n++;
  return n;
}

/* A group's name has points where the form has strokes: attention.causal.7.3 */
static void
set_form (SpCurve *curve)
{
  g_autofree char *form = g_strdup (curve->variant);
  char *last = strrchr (form, '.');

  if (last == NULL)
    return;
  *last = '\0';
  g_strdelimit (form, ".", '/');
  *last = '.';
  sp_op_form_parse (form, &curve->op, &curve->form);
}

SpCurve *
sp_profile_add (SpProfile *profile, SpCurveKind kind, const char *variant)
{
  SpCurve *curve = g_new0 (SpCurve, 1);

  g_return_val_if_fail (kind < SP_N_CURVES, NULL);
  curve->kind = kind;
  curve->variant = g_strdup (variant);
  curve->n_slots = slots_of (kind);
  curve->op = SP_N_OPS;
  if (kind == SP_CURVE_KERNEL && variant != NULL)
    set_form (curve);
  g_ptr_array_add (profile->curves, curve);
  return curve;
}

void
sp_profile_link (SpProfile *profile)
{
  const SpCurve *first[SP_N_OPS] = { NULL };

  for (guint i = profile->curves->len; i-- > 0;) {
    SpCurve *curve = profile->curves->pdata[i];
    if (curve->kind != SP_CURVE_KERNEL || curve->op == SP_N_OPS)
      continue;
    curve->next = first[curve->op];
    first[curve->op] = curve;
  }
}

const SpCurve *
sp_profile_find (const SpProfile *profile, SpCurveKind kind, const char *variant, gint32 ranks, gint32 nodes)
{
  for (guint i = 0; profile != NULL && i < profile->curves->len; i++) {
    const SpCurve *curve = profile->curves->pdata[i];
    if (curve->kind == kind && g_strcmp0 (curve->variant, variant) == 0 &&
        (ranks == 0 || (curve->ranks == ranks && curve->nodes == nodes)))
      return curve;
  }
  return NULL;
}

static gboolean
is_of_attention (const SpCurve *curve)
{
  return (curve->kind == SP_CURVE_ATTENTION && curve->variant != NULL) ||
         (curve->kind == SP_CURVE_KERNEL && curve->op == SP_OP_ATTENTION);
}

gboolean
sp_profile_has_library (const SpProfile *profile, const char *library, char **ret_timed)
{
  g_autoptr (GString) timed = g_string_new (NULL);
  gboolean has = FALSE;

  for (guint i = 0; i < profile->curves->len; i++) {
    const SpCurve *curve = profile->curves->pdata[i];
    if (!is_of_attention (curve))
      continue;
    const char *name = curve->kind == SP_CURVE_KERNEL ? sp_op_form_library (curve->form) : curve->variant;
    has = has || g_str_equal (name, library) || sp_curve_is_of_library (curve, library);
    if (strstr (timed->str, name) == NULL)
      g_string_append_printf (timed, "%s%s", timed->len > 0 ? " or " : "", name);
  }
  if (ret_timed != NULL)
    *ret_timed = g_strdup (timed->str);
  return has;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void
write_slot (const SpCurve *curve, guint slot, GString *out)
{
  const SpQuantity *q = &curve->value[slot];

  if (!sp_curve_has (curve, slot))
    return;
  g_autofree char *key = sp_curve_key (curve, slot);
  g_autofree char *value = sp_curve_text (curve, slot, q->value, 9);
  g_autofree char *error = sp_curve_text (curve, slot, curve->error[slot], 3);

  g_string_append_printf (out, "%s = %s\n%s.source = %s: %s\n", key, value, key, sp_provenance_name (q->provenance),
                          q->source != NULL ? q->source : "no word of it");
  if (curve->error[slot] > 0)
    g_string_append_printf (out, "%s.error = %s\n", key, error);
}

static void
write_number (const char *key, SpUnit unit, double value, int digits, GString *out)
{
  g_autofree char *text = text_of (unit, value, digits);

  g_string_append_printf (out, "%s = %s\n", key, text);
}

static void
write_correlation (const SpCurve *curve, GString *out)
{
  g_autoptr (GString) line = g_string_new (NULL);
  gboolean any = FALSE;

  for (guint i = 0; i < curve->n_slots; i++)
    for (guint j = 0; j < i && curve->error[i] > 0; j++) {
      if (curve->error[j] == 0)
        continue;
      double r = curve->covariance[i][j] / (curve->error[i] * curve->error[j]);
      char buffer[G_ASCII_DTOSTR_BUF_SIZE];
      any = any || fabs (r) >= 5e-5;
      g_string_append_printf (line, "%s%s", line->len > 0 ? ", " : "",
                              g_ascii_formatd (buffer, sizeof buffer, "%.4f", CLAMP (r, -1, 1) + 0.0));
    }
  if (any)
    g_string_append_printf (out, "correlation = %s\n", line->str);
}

static void
write_curve (const SpCurve *curve, GString *out)
{
  const Kind *kind = &kinds[curve->kind];
  g_autofree char *name = sp_curve_name (curve);

  g_string_append_printf (out, "\n[%s]\n", name);
  for (guint slot = 0; slot < curve->n_slots; slot++) {
    if (kind->transfer && slot % SP_PIECE_SLOTS == 0) {
      g_autofree char *begin = g_strdup_printf ("begin-%u", slot / SP_PIECE_SLOTS + 1);
      g_autofree char *end = g_strdup_printf ("end-%u", slot / SP_PIECE_SLOTS + 1);
      write_number (begin, SP_UNIT_BYTES, curve->begin[slot / SP_PIECE_SLOTS], 12, out);
      write_number (end, SP_UNIT_BYTES, curve->end[slot / SP_PIECE_SLOTS], 12, out);
    }
    write_slot (curve, slot, out);
  }
  write_correlation (curve, out);
  if (curve->to > 0) {
    write_number ("from", kind->range, curve->from, 6, out);
    write_number ("to", kind->range, curve->to, 6, out);
  }
  g_string_append_printf (out, "points = %d\nleft-out = %d\n", curve->points, curve->left_out);
  write_number ("chi-square", SP_UNIT_NUMBER, curve->chi_square, 4, out);
  write_number ("scatter", SP_UNIT_FRACTION, curve->scatter, 4, out);
  write_number ("median", SP_UNIT_FRACTION, curve->median, 4, out);
  write_number ("p90", SP_UNIT_FRACTION, curve->p90, 4, out);
  write_number ("worst", SP_UNIT_FRACTION, curve->worst, 4, out);
}

/* In lines of at most 120 columns, those behind the first indented. */
static void
write_comment (const char *text, GString *out)
{
  g_auto (GStrv) words = g_strsplit (text, " ", -1);
  gsize column = 1;

  g_string_append_c (out, '#');
  for (guint i = 0; words[i] != NULL; i++) {
    if (column > 4 && column + 1 + strlen (words[i]) > 120) {
      g_string_append (out, "\n#   ");
      column = 4;
    }
    g_string_append_printf (out, " %s", words[i]);
    column += 1 + strlen (words[i]);
  }
  g_string_append_c (out, '\n');
}

void
sp_profile_write (const SpProfile *profile, GString *out)
{
  g_string_append_printf (out, "# SPDX-License-Identifier: Apache-2.0\n"
                               "# Written by seqpar calibrate fit. What the curves mean: models/estimate/curves.h\n");
  for (guint i = 0; i < profile->comments->len; i++)
    write_comment (profile->comments->pdata[i], out);
  g_string_append_printf (out, "[profile]\nname = %s\n", profile->name);
  if (profile->card != NULL)
    g_string_append_printf (out, "card = %s\n", profile->card);
  for (guint i = 0; i < profile->curves->len; i++)
    write_curve (profile->curves->pdata[i], out);
}
