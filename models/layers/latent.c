/* SPDX-License-Identifier: Apache-2.0 */
#include "models/strategies/strategies.h"
#include "models/writer.h"

/*
 * Multi-head latent attention (DeepSeek-V2, 2405.04434): queries, where the model says so, and keys with values come out
 * of latents that are far narrower than the heads. What of a key carries the position is made beside the latent, once
 * for all heads. For the core, and so for what Ulysses and a ring exchange, every head has its whole key again.
 *
 * Over tensor ranks the ups are split by heads. The downs are not split: each rank makes the latents of its own rows, and
 * it is the latents that are gathered, with the key's shared part (as Megatron-Core does). A model whose queries have no
 * latent gathers the hidden rows for them besides.
 */

typedef struct {
  SpWeightSlots q_down, q_up, kv_down, kv_up, projection;
  SpNormSlots q_norm, kv_norm;
  guint8 core_out;
} Latent;

static const SpLatentShape *
shape_of (const SpWriter *w)
{
  return &w->arch->latent;
}

static gint32
q_width (const SpWriter *w)
{
  return w->heads * w->head_size;
}

static gint32
out_width (const SpWriter *w)
{
  return w->heads * w->value_size;
}

static gint32
kv_width (const SpWriter *w)
{
  return w->heads * (shape_of (w)->nope_size + w->value_size);
}

static gint32
down_width (const SpWriter *w)
{
  return shape_of (w)->kv_rank + shape_of (w)->rope_size;
}

static void
write_weights (SpWriter *w, gpointer self, SpWeightPass pass)
{
  const SpLatentShape *l = shape_of (w);
  gboolean partial = w->program->sequence_regions;
  Latent *a = self;

  if (pass == SP_WEIGHTS_REGIONS) {
    if (l->q_rank > 0) {
      a->q_down = sp_write_weight (w, "q.down", l->q_rank, w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
      sp_lora_attach (w, &a->q_down, (const guint8[]){ SP_LORA_Q });
      sp_write_norm_weights (w, &a->q_norm, "q.norm", l->q_rank);
    }
    a->kv_down = sp_write_weight (w, "kv.down", down_width (w), w->hidden, SP_SPLIT_NONE, NULL, 0, partial);
    sp_lora_attach (w, &a->kv_down, (const guint8[]){ SP_LORA_K | SP_LORA_V });
    sp_write_norm_weights (w, &a->kv_norm, "kv.norm", l->kv_rank);
  }
  if (pass != SP_WEIGHTS_OWN)
    return;
  a->q_up = sp_write_weight (w, l->q_rank > 0 ? "q.up" : "q", q_width (w), l->q_rank > 0 ? l->q_rank : w->hidden,
                             SP_SPLIT_ROWS, NULL, 0, FALSE);
  sp_lora_attach (w, &a->q_up, (const guint8[]){ SP_LORA_Q });
  a->kv_up = sp_write_weight (w, "kv.up", kv_width (w), l->kv_rank, SP_SPLIT_ROWS, NULL, 0, FALSE);
  sp_lora_attach (w, &a->kv_up, (const guint8[]){ SP_LORA_K | SP_LORA_V });
  a->projection = sp_write_weight (w, "proj", w->hidden, out_width (w), SP_SPLIT_COLS, NULL, 0, FALSE);
  sp_lora_attach (w, &a->projection, (const guint8[]){ SP_LORA_O });
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static guint8
temporary (SpWriter *w, gint32 rows, gint32 width)
{
  return sp_write_temporary (w, (gint64) rows * width);
}

static guint8
write_queries (SpWriter *w, Latent *a, SpPort *port)
{
  gint32 rank = shape_of (w)->q_rank;
  guint8 whole;

  if (rank > 0) {
    guint8 down = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->region_rows * rank);
    sp_write_linear (w, w->region_rows, rank, w->hidden, port->rows, a->q_down, 0, down);
    sp_write_norm (w, &a->q_norm, down, w->region_rows, rank);
    whole = sp_tensor_enter (w, a->q_norm.y);
  } else
    whole = sp_branch_whole (w, port);
  guint8 up = temporary (w, w->rows, q_width (w));
  sp_write_linear (w, w->rows, q_width (w), rank > 0 ? rank : w->hidden, whole, a->q_up, 0, up);
  return up;
}

static guint8
write_keys (SpWriter *w, Latent *a, SpPort *port, guint8 *ret_shared)
{
  const SpLatentShape *l = shape_of (w);
  guint8 down = temporary (w, w->region_rows, down_width (w)), shared = temporary (w, w->region_rows, l->rope_size);
  guint8 latent = sp_write_stash (w, SP_TIER_KEEP, (gint64) w->region_rows * l->kv_rank);

  sp_write_linear (w, w->region_rows, down_width (w), w->hidden, port->rows, a->kv_down, 0, down);
  SpOp *op = sp_write_op (w, SP_OP_SPLIT);
  op->m = w->region_rows;
  op->n = l->kv_rank;
  op->k = l->rope_size;
  op->in[0] = down;
  op->out[0] = latent;
  op->out[1] = shared;
  sp_write_op_done (w, op);
  sp_write_norm (w, &a->kv_norm, latent, w->region_rows, l->kv_rank);
  guint8 whole = sp_tensor_enter (w, a->kv_norm.y), up = temporary (w, w->rows, kv_width (w));
  sp_write_linear (w, w->rows, kv_width (w), l->kv_rank, whole, a->kv_up, 0, up);
  *ret_shared = sp_tensor_enter (w, shared);
  return up;
}

static SpOp *
heads_op (SpWriter *w, SpOpKind kind)
{
  SpOp *op = sp_write_op (w, kind);

  op->m = w->rows;
  op->n = shape_of (w)->rope_size;
  op->k = w->head_size;
  op->heads = op->kv_heads = w->heads;
  op->value_size = w->value_size;
  op->flags = w->arch->rotary ? 0 : SP_OP_NO_ROTATE;
  return op;
}

static SpRows
write_forward (SpWriter *w, gpointer self, SpPort *port)
{
  Latent *a = self;
  gint64 keys = (gint64) w->rows * q_width (w), values = (gint64) w->rows * out_width (w);
  guint8 shared, q_up = write_queries (w, a, port), kv_up = write_keys (w, a, port, &shared);

  guint8 q = sp_ulysses_operand (w, keys), k = sp_ulysses_key_operand (w, 0, keys);
  guint8 v = sp_ulysses_key_operand (w, 1, values);
  SpOp *op = heads_op (w, SP_OP_LATENT);
  op->in[0] = q_up;
  op->in[1] = kv_up;
  op->in[2] = shared;
  op->out[0] = q;
  op->out[1] = k;
  op->out[2] = v;
  sp_write_op_done (w, op);

  a->core_out = sp_write_core (w, q, k, v);
  guint8 partial = temporary (w, w->rows, w->hidden);
  sp_write_linear (w, w->rows, w->hidden, out_width (w), a->core_out, a->projection, 0, partial);
  return (SpRows){ partial, TRUE };
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Of an up and the norm before it: the gradient of the latent, on the rank's own rows. */
static guint8
write_up_backward (SpWriter *w, gint32 width, gint32 rank, guint8 d_up, SpWeightSlots up, const SpNormSlots *norm)
{
  guint8 d_normed = temporary (w, w->rows, rank), d_latent = temporary (w, w->region_rows, rank);

  sp_write_linear_dgrad (w, w->rows, width, rank, d_up, up, d_normed);
  if (sp_weight_learns (up))
    sp_write_linear_wgrad (w, w->rows, width, rank, d_up, sp_tensor_regather (w, norm->y), up);
  sp_write_norm_backward (w, norm, sp_tensor_enter_backward (w, d_normed), 0, d_latent);
  return d_latent;
}

static guint8
write_keys_backward (SpWriter *w, Latent *a, SpPort *port, guint8 dkv_up, guint8 d_shared)
{
  const SpLatentShape *l = shape_of (w);
  guint8 d_latent = write_up_backward (w, kv_width (w), l->kv_rank, dkv_up, a->kv_up, &a->kv_norm);
  guint8 d_down = temporary (w, w->region_rows, down_width (w)), d_rows = temporary (w, w->region_rows, w->hidden);

  d_shared = sp_tensor_enter_backward (w, d_shared);
  SpOp *op = sp_write_op (w, SP_OP_JOIN);
  op->m = w->region_rows;
  op->n = l->kv_rank;
  op->k = l->rope_size;
  op->in[0] = d_latent;
  op->in[1] = d_shared;
  op->out[0] = d_down;
  sp_write_op_done (w, op);
  sp_write_linear_dgrad (w, w->region_rows, down_width (w), w->hidden, d_down, a->kv_down, d_rows);
  sp_write_linear_wgrad (w, w->region_rows, down_width (w), w->hidden, d_down, port->rows, a->kv_down);
  return d_rows;
}

/* Adds to d_rows. */
static guint8
write_queries_backward (SpWriter *w, Latent *a, SpPort *port, guint8 dq_up, guint8 d_rows)
{
  gint32 rank = shape_of (w)->q_rank, width = q_width (w);

  if (rank > 0) {
    guint8 d_down = write_up_backward (w, width, rank, dq_up, a->q_up, &a->q_norm);
    sp_write_linear_dgrad_add (w, w->region_rows, rank, w->hidden, d_down, a->q_down, d_rows);
    sp_write_linear_wgrad (w, w->region_rows, rank, w->hidden, d_down, port->rows, a->q_down);
    return d_rows;
  }
  guint8 d_whole = temporary (w, w->rows, w->hidden), sum = temporary (w, w->region_rows, w->hidden);
  sp_write_linear_dgrad (w, w->rows, width, w->hidden, dq_up, a->q_up, d_whole);
  sp_write_linear_wgrad (w, w->rows, width, w->hidden, dq_up, sp_branch_again_for (w, port, a->q_up), a->q_up);
  sp_write_rows (w, SP_OP_ADD, w->region_rows, w->hidden, d_rows, sp_tensor_enter_backward (w, d_whole), 0, sum, 0, 0);
  return sum;
}

static SpRows
write_backward (SpWriter *w, gpointer self, SpPort *port)
{
  Latent *a = self;
  guint8 dq, dk, dv;

  guint8 whole = sp_branch_d_whole (w, port);
  guint8 d_out = temporary (w, w->rows, out_width (w));
  sp_write_linear_dgrad (w, w->rows, w->hidden, out_width (w), whole, a->projection, d_out);
  sp_write_linear_wgrad (w, w->rows, w->hidden, out_width (w), whole, a->core_out, a->projection);

  sp_write_core_backward (w, d_out, &dq, &dk, &dv);

  guint8 dq_up = temporary (w, w->rows, q_width (w)), dkv_up = temporary (w, w->rows, kv_width (w));
  guint8 d_shared = temporary (w, w->rows, shape_of (w)->rope_size);
  SpOp *op = heads_op (w, SP_OP_LATENT_BWD);
  op->in[0] = dq;
  op->in[1] = dk;
  op->in[2] = dv;
  op->out[0] = dq_up;
  op->out[1] = dkv_up;
  op->out[2] = d_shared;
  sp_write_op_done (w, op);

  guint8 d_rows = write_keys_backward (w, a, port, dkv_up, d_shared);
  return (SpRows){ write_queries_backward (w, a, port, dq_up, d_rows), FALSE };
}

static const SpBranch latent = { write_weights, write_forward, write_backward };

void
sp_write_latent_layer (SpWriter *w)
{
  sp_write_layer (w, &latent, &(Latent){ 0 });
}
