/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/program-fields.h"

#include "sim/schedules.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* --- tables --------------------------------------------------------------------------------------------------- */

static const char *const flag_names[] = { "trans-a",
                                          "trans-b",
                                          "accumulate",
                                          "causal",
                                          "reverse",
                                          "layernorm",
                                          "no-rotate",
                                          "linear-gate",
                                          "max",
                                          "async",
                                          "weight",
                                          "per-micro-batch",
                                          "after-optimizer",
                                          "core",
                                          "balanced",
                                          "varies",
                                          "on-host",
                                          "gated",
                                          "gelu-gate",
                                          "relu",
                                          "square",
                                          "segment",
                                          "delta",
                                          "head-decay",
                                          "feature-decay",
                                          "scan",
                                          "silu",
                                          "silu-values",
                                          "l2",
                                          "rotate",
                                          "fp8",
                                          "by-place",
                                          NULL };
static const char *const guard_names[] = { "not-first",     "not-last", "first-step", "not-first-step",
                                           "not-last-step", "visible",  "near",       "near-ends",
                                           NULL };

static const char *
schedule_name (guint row)
{
  return row < sp_schedule_count () ? sp_schedule_get (row)->name : NULL;
}

static const char *
split_name (guint split)
{
  static const char *const names[] = {
    [SP_SPLIT_NONE] = "none", [SP_SPLIT_ROWS] = "rows", [SP_SPLIT_COLS] = "cols", [SP_SPLIT_VOCABULARY] = "vocabulary"
  };

  return names[split];
}

/* clang-format off */
#define COUNT_OF(Type, member) (sizeof (((Type *) 0)->member) / sizeof (((Type *) 0)->member[0]))
#define NAMED(name, Type, member, type) { name, offsetof (Type, member), SP_FIELD_##type, 1, 0, NULL, NULL }
#define PLAIN(Type, member, type) NAMED (#member, Type, member, type)
#define ARRAY(name, Type, member, type) \
  { name, offsetof (Type, member), SP_FIELD_##type, COUNT_OF (Type, member), 0, NULL, NULL }
#define ENUM(name, Type, member, count, namer) { name, offsetof (Type, member), SP_FIELD_U8, 1, count, namer, NULL }
#define BITS(Type, member, type, names) { #member, offsetof (Type, member), SP_FIELD_##type, 1, 0, NULL, names }
#define LAST { NULL, 0, 0, 0, 0, NULL, NULL }

const SpField sp_fields_program[] = {
  PLAIN (SpProgram, world, I32),
  PLAIN (SpProgram, sequence, I64),
  PLAIN (SpProgram, local_sequence, I64),
  ENUM ("token_split", SpProgram, token_split, SP_N_TOKEN_SPLITS, sp_token_split_name),
  PLAIN (SpProgram, sequence_regions, U8),
  PLAIN (SpProgram, zero_stage, U8),
  PLAIN (SpProgram, packed, U8),
  PLAIN (SpProgram, offloads, U8),
  PLAIN (SpProgram, global_batch, I32),
  PLAIN (SpProgram, micro_batches, I32),
  PLAIN (SpProgram, slices, I32),
  ENUM ("schedule", SpProgram, schedule, G_MAXUINT8, schedule_name),
  PLAIN (SpProgram, chunks, I32),
  ENUM ("scope", SpProgram, scope, SP_N_SCOPES, sp_scope_name),
  LAST,
};

const SpField sp_fields_numbers[] = {
  PLAIN (SpNumbers, norm_epsilon, DOUBLE),
  PLAIN (SpNumbers, rope_theta, DOUBLE),
  PLAIN (SpNumbers, dropout, DOUBLE),
  PLAIN (SpNumbers, learning_rate, DOUBLE),
  PLAIN (SpNumbers, adam_beta1, DOUBLE),
  PLAIN (SpNumbers, adam_beta2, DOUBLE),
  PLAIN (SpNumbers, adam_epsilon, DOUBLE),
  PLAIN (SpNumbers, muon_momentum, DOUBLE),
  PLAIN (SpNumbers, heads, I32),
  PLAIN (SpNumbers, kv_heads, I32),
  PLAIN (SpNumbers, head_size, I32),
  PLAIN (SpNumbers, linear_heads, I32),
  PLAIN (SpNumbers, hidden, I32),
  PLAIN (SpNumbers, vocabulary, I32),
  PLAIN (SpNumbers, expert_imbalance, DOUBLE),
  PLAIN (SpNumbers, expert_dropped, DOUBLE),
  PLAIN (SpNumbers, position_offset, I32),
  LAST,
};

const SpField sp_fields_digit[] = {
  ENUM ("axis", SpDigit, axis, SP_N_RANK_AXES, sp_axis_name),
  PLAIN (SpDigit, size, I32),
  PLAIN (SpDigit, stride, I32),
  LAST,
};

const SpField sp_fields_group[] = {
  ENUM ("name", SpGroupLine, name, SP_N_GROUPS, sp_group_name),
  NAMED ("size", SpGroupLine, g.size, I32),
  NAMED ("n_digits", SpGroupLine, g.n_digits, U8),
  ARRAY ("digits", SpGroupLine, g.digits, U8),
  LAST,
};

const SpField sp_fields_variant[] = {
  PLAIN (SpVariant, batch, I32),
  PLAIN (SpVariant, first, I64),
  PLAIN (SpVariant, tokens, I64),
  LAST,
};

const SpField sp_fields_block[] = {
  ENUM ("kind", SpBlock, kind, SP_N_BLOCK_KINDS, sp_block_name),
  PLAIN (SpBlock, traits, U8),
  PLAIN (SpBlock, recomputes, U8),
  PLAIN (SpBlock, frozen, U8),
  PLAIN (SpBlock, attention_pairs, DOUBLE),
  PLAIN (SpBlock, regather, U8),
  LAST,
};

const SpField sp_fields_flat[] = {
  ENUM ("group", SpFlat, group, SP_N_GROUPS, sp_group_name),
  PLAIN (SpFlat, frozen, U8),
  PLAIN (SpFlat, parameters, U8),
  PLAIN (SpFlat, gradients, U8),
  PLAIN (SpFlat, shard_parameters, U8),
  PLAIN (SpFlat, shard_gradients, U8),
  PLAIN (SpFlat, master, U8),
  PLAIN (SpFlat, moment1, U8),
  PLAIN (SpFlat, moment2, U8),
  PLAIN (SpFlat, host_gradients, U8),
  LAST,
};

const SpField sp_fields_weight[] = {
  { "name", offsetof (SpWeight, name), SP_FIELD_STRING, COUNT_OF (SpWeight, name), 0, NULL, NULL },
  PLAIN (SpWeight, flat, U8),
  PLAIN (SpWeight, slot, U8),
  PLAIN (SpWeight, grad, U8),
  ENUM ("split", SpWeight, split, SP_N_SPLITS, split_name),
  PLAIN (SpWeight, experts, I32),
  PLAIN (SpWeight, rows, I32),
  PLAIN (SpWeight, cols, I32),
  PLAIN (SpWeight, n_sections, U8),
  ARRAY ("sections", SpWeight, sections, I32),
  LAST,
};

const SpField sp_fields_buffer[] = {
  PLAIN (SpBufferLine, slot, U8),
  NAMED ("bytes", SpBufferLine, b.bytes, I64),
  NAMED ("elements", SpBufferLine, b.elements, I64),
  NAMED ("offset", SpBufferLine, b.offset, I64),
  ENUM ("class", SpBufferLine, b.class, SP_N_CLASSES, sp_class_name),
  ENUM ("dtype", SpBufferLine, b.dtype, SP_N_DTYPES, sp_dtype_name),
  ENUM ("life", SpBufferLine, b.life, SP_N_LIVES, sp_life_name),
  NAMED ("alias", SpBufferLine, b.alias, U8),
  NAMED ("moves", SpBufferLine, b.moves, U8),
  NAMED ("tied", SpBufferLine, b.tied, U8),
  NAMED ("tied_slot", SpBufferLine, b.tied_slot, U8),
  NAMED ("host", SpBufferLine, b.host, U8),
  ARRAY ("first", SpBufferLine, first, U16),
  ARRAY ("last", SpBufferLine, last, U16),
  LAST,
};

const SpField sp_fields_loop[] = {
  ENUM ("phase", SpLoop, phase, SP_N_PHASES, sp_phase_name),
  ENUM ("group", SpLoop, group, SP_N_GROUPS, sp_group_name),
  PLAIN (SpLoop, round, U8),
  PLAIN (SpLoop, steps, I32),
  PLAIN (SpLoop, first, U16),
  PLAIN (SpLoop, end, U16),
  LAST,
};

const SpField sp_fields_carry[] = {
  PLAIN (SpCarry, init, U8),
  PLAIN (SpCarry, current, U8),
  PLAIN (SpCarry, next, U8),
  LAST,
};

const SpField sp_fields_phase[] = {
  ENUM ("name", SpPhaseLine, name, SP_N_PHASES, sp_phase_name),
  LAST,
};

const SpField sp_fields_op[] = {
  ENUM ("kind", SpOp, kind, SP_N_OPS, sp_op_name),
  ENUM ("stream", SpOp, stream, SP_N_STREAMS, sp_stream_name),
  ENUM ("group", SpOp, group, SP_N_GROUPS, sp_group_name),
  ENUM ("axis", SpOp, axis, SP_N_AXES, sp_axis_name),
  PLAIN (SpOp, loop, U8),
  BITS (SpOp, guard, U8, guard_names),
  BITS (SpOp, flags, U32, flag_names),
  PLAIN (SpOp, m, I32),
  PLAIN (SpOp, n, I32),
  PLAIN (SpOp, k, I32),
  PLAIN (SpOp, batch, I32),
  PLAIN (SpOp, heads, I32),
  PLAIN (SpOp, kv_heads, I32),
  PLAIN (SpOp, value_size, I32),
  PLAIN (SpOp, window, I32),
  PLAIN (SpOp, bytes, I64),
  PLAIN (SpOp, flops, DOUBLE),
  ARRAY ("in", SpOp, in, U8),
  ARRAY ("out", SpOp, out, U8),
  PLAIN (SpOp, reach, U16),
  ARRAY ("wait", SpOp, wait, U16),
  LAST,
};
/* clang-format on */

/* --- elements ------------------------------------------------------------------------------------------------- */

static const struct {
  guint8 size;
  gint64 min, max;
} types[] = {
  [SP_FIELD_U8] = { 1, 0, G_MAXUINT8 },  [SP_FIELD_U16] = { 2, 0, G_MAXUINT16 }, [SP_FIELD_I32] = { 4, 0, G_MAXINT32 },
  [SP_FIELD_U32] = { 4, 0, G_MAXUINT32 },
  [SP_FIELD_I64] = { 8, 0, G_MAXINT64 }, [SP_FIELD_DOUBLE] = { 8, 0, 0 },        [SP_FIELD_STRING] = { 1, 0, 0 },
};

static gint64
get_integer (const SpField *field, const guint8 *at)
{
  switch (field->type) {
  case SP_FIELD_U8:
    return *at;
  case SP_FIELD_U16:
    return *(const guint16 *) at;
  case SP_FIELD_I32:
    return *(const gint32 *) at;
  case SP_FIELD_U32:
    return *(const guint32 *) at;
  default:
    return *(const gint64 *) at;
  }
}

static void
set_integer (const SpField *field, guint8 *at, gint64 value)
{
  switch (field->type) {
  case SP_FIELD_U8:
    *at = (guint8) value;
    break;
  case SP_FIELD_U16:
    *(guint16 *) at = (guint16) value;
    break;
  case SP_FIELD_I32:
    *(gint32 *) at = (gint32) value;
    break;
  case SP_FIELD_U32:
    *(guint32 *) at = (guint32) value;
    break;
  default:
    *(gint64 *) at = value;
    break;
  }
}

/* --- writing -------------------------------------------------------------------------------------------------- */

static gboolean
is_zero (const SpField *field, const guint8 *at)
{
  for (guint i = 0; i < (guint) field->count * types[field->type].size; i++)
    if (at[i] != 0)
      return FALSE;
  return TRUE;
}

static void
write_bits (const SpField *field, gint64 value, GString *out)
{
  const char *separator = "";

  for (guint i = 0; field->bits[i] != NULL; i++)
    if (value & (G_GINT64_CONSTANT (1) << i)) {
      g_string_append_printf (out, "%s%s", separator, field->bits[i]);
      separator = "|";
    }
}

static void
write_array (const SpField *field, const guint8 *at, GString *out)
{
  guint n = field->count, size = types[field->type].size;

  while (n > 1 && get_integer (field, at + (n - 1) * size) == 0)
    n--;
  for (guint i = 0; i < n; i++)
    g_string_append_printf (out, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", get_integer (field, at + i * size));
}

void
sp_fields_write (const SpField *fields, const void *record, GString *out)
{
  char number[G_ASCII_DTOSTR_BUF_SIZE];

  for (const SpField *field = fields; field->name != NULL; field++) {
    const guint8 *at = (const guint8 *) record + field->offset;

    if (is_zero (field, at) && (field != fields || field->namer == NULL))
      continue;
    g_string_append_printf (out, " %s=", field->name);
    if (field->namer != NULL)
      g_string_append (out, field->namer ((guint) get_integer (field, at)));
    else if (field->bits != NULL)
      write_bits (field, get_integer (field, at), out);
    else if (field->type == SP_FIELD_DOUBLE)
      g_string_append (out, g_ascii_dtostr (number, sizeof number, *(const double *) at));
    else if (field->type == SP_FIELD_STRING)
      g_string_append (out, (const char *) at);
    else
      write_array (field, at, out);
  }
}

/* --- reading -------------------------------------------------------------------------------------------------- */

static gboolean
read_integer (const SpField *field, const char *text, guint8 *at)
{
  gint64 value, min = types[field->type].min, max = types[field->type].max;

  if (!g_ascii_isdigit (*text) || !g_ascii_string_to_signed (text, 10, min, max, &value, NULL))
    return FALSE;
  set_integer (field, at, value);
  return TRUE;
}

static gboolean
read_array (const SpField *field, const char *text, guint8 *at)
{
  g_auto (GStrv) parts = g_strsplit (text, ",", -1);
  guint n = g_strv_length (parts);

  if (n == 0 || n > field->count)
    return FALSE;
  for (guint i = 0; i < n; i++)
    if (!read_integer (field, parts[i], at + i * types[field->type].size))
      return FALSE;
  return TRUE;
}

static gboolean
read_name (const SpField *field, const char *text, guint8 *at)
{
  for (guint i = 0; i < field->n_names && field->namer (i) != NULL; i++)
    if (g_str_equal (field->namer (i), text)) {
      set_integer (field, at, i);
      return TRUE;
    }
  return FALSE;
}

static gboolean
read_bits (const SpField *field, const char *text, guint8 *at)
{
  g_auto (GStrv) words = g_strsplit (text, "|", -1);
  gint64 value = 0;

  for (char **word = words; *word != NULL; word++) {
    guint i = 0;

    while (field->bits[i] != NULL && !g_str_equal (field->bits[i], *word))
      i++;
    if (field->bits[i] == NULL || value & (G_GINT64_CONSTANT (1) << i))
      return FALSE;
    value |= G_GINT64_CONSTANT (1) << i;
  }
  set_integer (field, at, value);
  return TRUE;
}

static gboolean
read_double (const char *text, guint8 *at)
{
  char *end;
  double value = g_ascii_strtod (text, &end);

  if (end == text || *end != '\0' || !isfinite (value))
    return FALSE;
  *(double *) at = value;
  return TRUE;
}

static gboolean
read_string (const SpField *field, const char *text, guint8 *at)
{
  if (*text == '\0' || strlen (text) >= field->count)
    return FALSE;
  g_strlcpy ((char *) at, text, field->count);
  return TRUE;
}

static gboolean
read_value (const SpField *field, const char *text, guint8 *at)
{
  if (field->namer != NULL)
    return read_name (field, text, at);
  if (field->bits != NULL)
    return read_bits (field, text, at);
  if (field->type == SP_FIELD_DOUBLE)
    return read_double (text, at);
  if (field->type == SP_FIELD_STRING)
    return read_string (field, text, at);
  return read_array (field, text, at);
}

static char *
read_word (const SpField *fields, const char *word, void *record, guint64 *seen)
{
  const char *equals = strchr (word, '=');
  guint length = equals != NULL ? (guint) (equals - word) : 0;

  if (equals == NULL)
    return g_strdup_printf ("'%s' is not key=value", word);
  for (guint i = 0; fields[i].name != NULL; i++) {
    if (strlen (fields[i].name) != length || strncmp (fields[i].name, word, length) != 0)
      continue;
    if (*seen & G_GUINT64_CONSTANT (1) << i)
      return g_strdup_printf ("'%s' stands twice", fields[i].name);
    *seen |= G_GUINT64_CONSTANT (1) << i;
    if (!read_value (&fields[i], equals + 1, (guint8 *) record + fields[i].offset))
      return g_strdup_printf ("'%s' is no value of %s", equals + 1, fields[i].name);
    return NULL;
  }
  return g_strdup_printf ("unknown field '%.*s'", (int) length, word);
}

char *
sp_fields_read (const SpField *fields, char **words, void *record)
{
  guint64 seen = 0;

  for (const SpField *field = fields; field->name != NULL; field++)
    memset ((guint8 *) record + field->offset, 0, (gsize) field->count * types[field->type].size);
  for (char **word = words; *word != NULL; word++) {
    char *problem = read_word (fields, *word, record, &seen);

    if (problem != NULL)
      return problem;
  }
  return NULL;
}
