/* SPDX-License-Identifier: Apache-2.0 */
#include "models/writer.h"

/* A dense MLP, its width split over tensor ranks: up, with a gate beside it where the kind has one, activation, down. */

static gint32
up_width (const SpWriter *w)
{
  return sp_mlp_is_gated (w->arch->mlp) ? 2 * w->ffn : w->ffn;
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  const gint32 sections[] = { w->ffn, w->ffn };
  guint n_sections = sp_mlp_is_gated (w->arch->mlp) ? 2 : 1;
  SpMlp *mlp = self;

  if (pass != SP_WEIGHTS_OWN)
    return;
  if (w->arch->mlp_bias)
    mlp->up_bias = sp_write_weight (w, "up.bias", up_width (w), 1, SP_SPLIT_ROWS, sections, n_sections, FALSE);
  mlp->up = sp_write_weight (w, "up", up_width (w), w->hidden, SP_SPLIT_ROWS, sections, n_sections, FALSE);
  mlp->down = sp_write_weight (w, "down", w->hidden, w->ffn, SP_SPLIT_COLS, NULL, 0, FALSE);
}

guint
sp_mlp_flags (SpMlpKind kind)
{
  static const guint flags[SP_N_MLP_KINDS] = {
    [SP_MLP_LINEAR_GLU] = SP_OP_LINEAR_GATE,
    [SP_MLP_GEGLU] = SP_OP_GELU_GATE,
    [SP_MLP_RELU] = SP_OP_RELU,
    [SP_MLP_RELU2] = SP_OP_RELU | SP_OP_SQUARE,
  };

  return flags[kind];
}

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  SpMlp *mlp = self;
  gint32 up = up_width (w);

  guint8 whole = sp_branch_whole (w, port);
  mlp->gate_up = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->rows * up);
  sp_write_linear (w, w->rows, up, w->hidden, whole, mlp->up, mlp->up_bias.value, mlp->gate_up);
  mlp->act = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * w->ffn);
  sp_write_rows (w, sp_mlp_is_gated (w->arch->mlp) ? SP_OP_GLU : SP_OP_GELU, w->rows, w->ffn, mlp->gate_up, 0, 0,
                 mlp->act, 0, sp_mlp_flags (w->arch->mlp));
  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, w->ffn, mlp->act, mlp->down, 0, partial);
  return (SpRows){ partial, TRUE };
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  SpMlp *mlp = self;
  gint32 up = up_width (w);

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_act = sp_write_temporary (w, (gint64) w->rows * w->ffn);
  sp_write_linear_dgrad (w, w->rows, w->hidden, w->ffn, whole, mlp->down, d_act);
  sp_write_linear_wgrad (w, w->rows, w->hidden, w->ffn, whole, mlp->act, mlp->down);
  guint8 d_up = sp_write_temporary (w, (gint64) w->rows * up);
  sp_write_rows (w, sp_mlp_is_gated (w->arch->mlp) ? SP_OP_GLU_BWD : SP_OP_GELU_BWD, w->rows, w->ffn, d_act,
                 mlp->gate_up, 0, d_up, 0, sp_mlp_flags (w->arch->mlp));
  guint8 d_input = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear_dgrad (w, w->rows, up, w->hidden, d_up, mlp->up, d_input);
  sp_write_linear_wgrad (w, w->rows, up, w->hidden, d_up, sp_branch_again (w, port), mlp->up);
  sp_write_bias_grad (w, w->rows, up, d_up, mlp->up_bias);
  return (SpRows){ d_input, TRUE };
}

const SpBranch sp_mlp_branch = { write_weights, write_forward, write_backward };
