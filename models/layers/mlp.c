/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * A dense MLP, its width split over tensor ranks: up, with a gate beside it where the kind has one, activation, down.
 * In tiles (layout.mlp_tiles) a part of the tokens at a time: what is between the two products is a tile's, nothing of it
 * is kept, and the backward of a tile computes it again; the weights' gradients are summed tile by tile.
 */

static gint32
up_width (const SpWriter *w)
{
  return sp_mlp_is_gated (w->arch->mlp) ? 2 * w->ffn : w->ffn;
}

static gboolean
has_gate (const SpWriter *w)
{
  return w->framework->glu_apart && sp_mlp_is_gated (w->arch->mlp);
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
  const guint8 gated[] = { SP_LORA_GATE, SP_LORA_UP };
  sp_lora_attach (w, &mlp->up, n_sections > 1 ? gated : gated + 1);
  mlp->down = sp_write_weight (w, "down", w->hidden, w->ffn, SP_SPLIT_COLS, NULL, 0, FALSE);
  sp_lora_attach (w, &mlp->down, (const guint8[]){ SP_LORA_DOWN });
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

/* --- all tokens, or a tile of them ---------------------------------------------------------------------------------- */

/* From x to gate_up and act, which the caller has made. */
static void
write_up (SpWriter *w, const SpMlp *mlp, gint32 rows, guint8 x)
{
  gint32 up = up_width (w);

  sp_write_linear (w, rows, up, w->hidden, x, mlp->up, mlp->up_bias.value, mlp->gate_up);
  sp_write_rows (w, sp_mlp_is_gated (w->arch->mlp) ? SP_OP_GLU : SP_OP_GELU, rows, w->ffn, mlp->gate_up, 0, 0, mlp->act,
                 mlp->gate, sp_mlp_flags (w->arch->mlp));
}

/* To the gradient before the activation. */
static guint8
write_down_backward (SpWriter *w, const SpMlp *mlp, gint32 rows, guint8 d_out)
{
  guint8 d_act = sp_write_temporary (w, (gint64) rows * w->ffn);

  sp_write_linear_dgrad (w, rows, w->hidden, w->ffn, d_out, mlp->down, d_act);
  sp_write_linear_wgrad (w, rows, w->hidden, w->ffn, d_out, mlp->act, mlp->down);
  guint8 d_up = sp_write_temporary (w, (gint64) rows * up_width (w));
  sp_write_rows (w, sp_mlp_is_gated (w->arch->mlp) ? SP_OP_GLU_BWD : SP_OP_GELU_BWD, rows, w->ffn, d_act, mlp->gate_up,
                 mlp->gate, d_up, 0, sp_mlp_flags (w->arch->mlp));
  return d_up;
}

/* --- in tiles ------------------------------------------------------------------------------------------------------- */

static void
make_tile (SpWriter *w, SpMlp *mlp, gint32 rows)
{
  mlp->gate_up = sp_write_temporary (w, (gint64) rows * up_width (w));
  mlp->act = sp_write_temporary (w, (gint64) rows * w->ffn);
  mlp->gate = has_gate (w) ? sp_write_temporary (w, (gint64) rows * w->ffn) : 0;
}

static void
write_tiles (SpWriter *w, SpMlp *mlp, gint32 tiles, guint8 whole, guint8 out)
{
  gint32 rows = w->rows / tiles;
  SpLoop *loop = sp_write_tiles_begin (w, tiles);

  make_tile (w, mlp, rows);
  write_up (w, mlp, rows, sp_write_tile (w, whole));
  sp_write_linear (w, rows, w->hidden, w->ffn, mlp->act, mlp->down, 0, sp_write_tile (w, out));
  sp_write_loop_end (w, loop);
}

static void
write_tiles_backward (SpWriter *w, SpMlp *mlp, gint32 tiles, SpPort *port, guint8 d_input)
{
  gint32 rows = w->rows / tiles;

  /* Not for the weights' gradients alone, as sp_branch_again is. */
  if (!port->again)
    port->again = sp_tensor_enter (w, port->rows);
  guint8 d_whole = sp_branch_d_whole (w, port);
  SpLoop *loop = sp_write_tiles_begin (w, tiles);
  guint8 x = sp_write_tile (w, port->again);
  make_tile (w, mlp, rows);
  write_up (w, mlp, rows, x);
  if (mlp->down.lora)
    sp_lora_narrow (w, mlp->down.lora, rows, mlp->act);
  guint8 d_up = write_down_backward (w, mlp, rows, sp_write_tile (w, d_whole));
  sp_write_linear_dgrad (w, rows, up_width (w), w->hidden, d_up, mlp->up, sp_write_tile (w, d_input));
  sp_write_linear_wgrad (w, rows, up_width (w), w->hidden, d_up, x, mlp->up);
  sp_write_bias_grad (w, rows, up_width (w), d_up, mlp->up_bias);
  sp_write_loop_end (w, loop);
}

/* --- the branch ----------------------------------------------------------------------------------------------------- */

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  SpMlp *mlp = self;
  gint32 tiles = sp_layout_mlp_tiles (w->layout, w->arch, w->run);

  guint8 whole = sp_branch_whole (w, port);
  if (tiles > 1) {
    guint8 out = sp_write_temporary (w, (gint64) w->rows * w->hidden);
    write_tiles (w, mlp, tiles, whole, out);
    return (SpRows){ out, TRUE };
  }
  mlp->gate_up = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->rows * up_width (w));
  mlp->act = sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * w->ffn);
  mlp->gate = has_gate (w) ? sp_write_stash (w, SP_TIER_ELEMENTWISE, (gint64) w->rows * w->ffn) : 0;
  sp_write_autocast (w, whole, w->rows, w->hidden, sp_mlp_is_gated (w->arch->mlp) ? 2 : 1);
  write_up (w, mlp, w->rows, whole);
  guint8 partial = sp_write_temporary (w, (gint64) w->rows * w->hidden);
  sp_write_linear (w, w->rows, w->hidden, w->ffn, mlp->act, mlp->down, 0, partial);
  return (SpRows){ partial, TRUE };
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  SpMlp *mlp = self;
  gint32 tiles = sp_layout_mlp_tiles (w->layout, w->arch, w->run);

  if (tiles > 1) {
    guint8 d_input = sp_write_temporary (w, (gint64) w->rows * w->hidden);
    write_tiles_backward (w, mlp, tiles, port, d_input);
    return (SpRows){ d_input, TRUE };
  }
  guint8 d_up = write_down_backward (w, mlp, w->rows, sp_branch_d_whole (w, port));
  return sp_branch_input_backward (w, port, up_width (w), d_up, mlp->up, mlp->up_bias);
}

const SpBranch sp_mlp_branch = { write_weights, write_forward, write_backward };
