/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/op-form.h"

#include <string.h>

#include "sim/program.h"

/* Bits of a form: inputs, outputs, then these. */
#define OUT_SHIFT SP_MAX_IN
#define MARK_SHIFT (SP_MAX_IN + SP_MAX_OUT)

static const struct {
  guint flag;
  const char *word;
} marks[] = {
  { SP_OP_CAUSAL, "causal" },
  { SP_OP_LAYERNORM, "layernorm" },
  { SP_OP_ACCUMULATE, "add" },
  { SP_OP_GELU_GATE, "gelu" },
  { SP_OP_RELU, "relu" },
  { SP_OP_SILU, "silu" },
  { SP_OP_NO_ROTATE, "still" },
  { SP_OP_GATED, "gated" },
  { SP_OP_DELTA, "delta" },
  { SP_OP_HEAD_DECAY, "decay" },
  { SP_OP_FEATURE_DECAY, "feature-decay" },
  { SP_OP_SCAN, "scan" },
  { SP_OP_L2, "l2" },
  { SP_OP_TRANS_A, "ta" },
  { SP_OP_TRANS_B, "tb" },
  { 0, "cudnn" }, /* of no op */
  { 0, "away" },
};

enum { N_MARKS = G_N_ELEMENTS (marks), CUDNN = N_MARKS - 2, AWAY };

G_STATIC_ASSERT (SP_OP_FORM_CUDNN == 1u << (MARK_SHIFT + CUDNN) && MARK_SHIFT + N_MARKS <= 8 * sizeof (SpOpForm));

/* Attention to another place's keys, of a ring that has a causal mask. */
static gboolean
is_away (const SpOp *op)
{
  guint guards = SP_GUARD_NOT_FIRST_STEP | SP_GUARD_VISIBLE | SP_GUARD_NEAR | SP_GUARD_NEAR_ENDS;

  return (op->kind == SP_OP_ATTENTION || op->kind == SP_OP_ATTENTION_BWD) && (op->flags & SP_OP_CAUSAL) != 0 &&
         (op->guard & guards) != 0;
}

/* What transposes a GEMM means something else for others, which changes no kernel. */
static gboolean
is_marked (const SpOp *op, guint i)
{
  gboolean transposes = (marks[i].flag & (SP_OP_TRANS_A | SP_OP_TRANS_B)) != 0;

  if (i == AWAY)
    return is_away (op);
  return (op->flags & marks[i].flag) != 0 && (!transposes || op->kind == SP_OP_GEMM);
}

SpOpForm
sp_op_form (const SpOp *op)
{
  SpOpForm form = 0;

  for (guint i = 0; i < SP_MAX_IN; i++)
    form |= (op->in[i] != 0 ? 1u : 0) << i;
  for (guint i = 0; i < SP_MAX_OUT; i++)
    form |= (op->out[i] != 0 ? 1u : 0) << (OUT_SHIFT + i);
  for (guint i = 0; i < G_N_ELEMENTS (marks); i++)
    form |= (is_marked (op, i) ? 1u : 0) << (MARK_SHIFT + i);
  return form;
}

const char *
sp_op_form_library (SpOpForm form)
{
  return form & SP_OP_FORM_CUDNN ? marks[CUDNN].word : SP_OWN_LIBRARY;
}

char *
sp_op_form_name (SpOpKind kind, SpOpForm form)
{
  GString *name = g_string_new (sp_op_name (kind));

  for (guint i = 0; i < G_N_ELEMENTS (marks); i++)
    if (form >> (MARK_SHIFT + i) & 1)
      g_string_append_printf (name, "/%s", marks[i].word);
  g_string_append_printf (name, "/%x.%x", form & ((1u << OUT_SHIFT) - 1), form >> OUT_SHIFT & ((1u << SP_MAX_OUT) - 1));
  return g_string_free (name, FALSE);
}

static gboolean
parse_operands (const char *word, SpOpForm *form)
{
  char *end = NULL;
  guint64 in = g_ascii_strtoull (word, &end, 16);

  if (end == word || *end != '.' || in >> SP_MAX_IN != 0 || !g_ascii_isxdigit (end[1]))
    return FALSE;
  guint64 out = g_ascii_strtoull (end + 1, &end, 16);
  if (*end != '\0' || out >> SP_MAX_OUT != 0)
    return FALSE;
  *form |= (SpOpForm) in | (SpOpForm) out << OUT_SHIFT;
  return TRUE;
}

gboolean
sp_op_form_parse (const char *name, SpOpKind *ret_kind, SpOpForm *ret_form)
{
  g_auto (GStrv) words = g_strsplit (name, "/", -1);
  guint n = g_strv_length (words), kind = 0;
  SpOpForm form = 0;

  while (kind < SP_N_OPS && n > 0 && !g_str_equal (sp_op_name (kind), words[0]))
    kind++;
  if (n < 2 || kind == SP_N_OPS || !parse_operands (words[n - 1], &form))
    return FALSE;
  for (guint i = 1; i + 1 < n; i++) {
    guint j = 0;
    while (j < G_N_ELEMENTS (marks) && !g_str_equal (marks[j].word, words[i]))
      j++;
    if (j == G_N_ELEMENTS (marks))
      return FALSE;
    form |= 1u << (MARK_SHIFT + j);
  }
  *ret_kind = (SpOpKind) kind;
  *ret_form = form;
  return TRUE;
}
