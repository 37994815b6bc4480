/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a model is: the shape of its layers, as the program writers need it.
 *
 * Read from a Hugging Face config.json (config-json.c: one row per model_type) or from our own INI
 * (architecture-ini.c). What is unknown and changes a cost is an error; what is unknown and does not is a note.
 */

#include <glib.h>
#include <string.h>

G_BEGIN_DECLS

#define SP_MAX_LAYERS 1024
/* Kinds of layers that one model has. */
#define SP_MAX_LAYER_KINDS 8

/* Sane ranges of a model file: every product of two of them that a program forms still fits. */
#define SP_MAX_HIDDEN (1 << 18)
#define SP_MAX_HEADS (1 << 12)
#define SP_MAX_HEAD_SIZE (1 << 12)
#define SP_MAX_FFN (1 << 20)
#define SP_MAX_EXPERTS (1 << 12)
#define SP_MAX_VOCABULARY (1 << 24)
#define SP_MAX_POSITIONS (1 << 30)

/* A layer's kind: its mixer of tokens, and bits of what else tells it from the model's other layers. */
typedef enum {
  SP_LAYER_SOFTMAX = 0,
  SP_LAYER_LINEAR = 1,
  SP_LAYER_MIXER = 1,        /* the mask of the two */
  SP_LAYER_EXPERTS = 1 << 1, /* its MLP is a mixture of experts */
  SP_LAYER_WINDOW = 1 << 2,  /* its softmax attention sees `window` keys */
  SP_LAYER_NO_MLP = 1 << 3,  /* a mixer alone */
  SP_N_LAYER_KINDS = 1 << 4
} SpLayerKind;

static inline SpLayerKind
sp_layer_mixer (guint kind)
{
  return (SpLayerKind) (kind & SP_LAYER_MIXER);
}

typedef enum { SP_NORM_RMS, SP_NORM_LAYER, SP_NORM_RMS_NO_GAIN, SP_N_NORM_KINDS } SpNormKind;

typedef enum {
  SP_MLP_SWIGLU,     /* down(silu(gate x) * up x) */
  SP_MLP_LINEAR_GLU, /* down(gate x * up x): TransNormer's simple GLU */
  SP_MLP_GEGLU,      /* down(gelu(gate x) * up x) */
  SP_MLP_GELU,       /* down(gelu(up x)) */
  SP_MLP_RELU,       /* down(max(up x, 0)) */
  SP_MLP_RELU2,      /* down(max(up x, 0)^2) */
  SP_N_MLP_KINDS
} SpMlpKind;

static inline gboolean
sp_mlp_is_gated (SpMlpKind mlp)
{
  return mlp <= SP_MLP_GEGLU;
}

/* How norms, mixer, MLP and residuals are put together. */
typedef enum {
  SP_FORM_PRE_NORM,     /* x + f(norm x), then the same of the MLP */
  SP_FORM_PARALLEL,     /* x + mixer(norm x) + MLP(norm x), one norm */
  SP_FORM_PARALLEL_TWO, /* the same, a norm each */
  SP_FORM_SANDWICH,     /* x + norm(f(norm x)): four norms */
  SP_FORM_BRANCH_NORM,  /* x + norm(f(x)) */
  SP_FORM_POST_NORM,    /* norm(x + f(x)) */
  SP_N_FORMS
} SpForm;

/* Recurrent token mixers, by the name of their publication. */
typedef enum {
  SP_LINEAR_TRANSNORMER, /* fixed decay a head, silu features, norm over the row, sigmoid gate */
  SP_LINEAR_LIGHTNING,   /* MiniMax-01: as TransNormer */
  SP_LINEAR_RETNET,      /* fixed decay, rotated, value heads wider */
  SP_LINEAR_GLA,         /* decay a feature, from a low-rank gate */
  SP_LINEAR_SIMPLE_GLA,  /* decay a head, from a matrix */
  SP_LINEAR_MAMBA,       /* selective scan */
  SP_LINEAR_MAMBA2,      /* decay a head, convolution */
  SP_LINEAR_DELTA,       /* delta rule */
  SP_LINEAR_GATED_DELTA, /* delta rule with a decay a head */
  SP_LINEAR_KDA,         /* delta rule with a decay a feature */
  SP_LINEAR_RWKV6,       /* decay a feature, bonus of the own token */
  SP_LINEAR_RWKV7,       /* generalised delta rule with a decay a feature */
  SP_N_LINEAR_FAMILIES
} SpLinearFamily;

/* As our own files write them. */
extern const char *const sp_linear_names[SP_N_LINEAR_FAMILIES + 1];

/* heads = 0: those of the softmax layers, square, with an output gate; see sp_architecture_linear. */
typedef struct {
  guint8 family;               /* SpLinearFamily */
  gint32 heads, key_heads;     /* value heads; query and key heads, fewer where they are shared */
  gint32 key_size, value_size; /* of a head */
  gint32 conv;                 /* width of the short convolution, 0 none */
  gint32 gate_rank;            /* of a low-rank gate or decay, 0 a full matrix; Mamba's rank of dt */
  gboolean conv_bias;
  gboolean output_gate;
} SpLinearShape;

/* Multi-head latent attention (DeepSeek-V2, 2405.04434): keys and values of all heads come out of one latent. */
typedef struct {
  gint32 q_rank;  /* 0: queries straight from the hidden state */
  gint32 kv_rank; /* 0: no latent attention */
  gint32 nope_size, rope_size, value_size;
} SpLatentShape;

typedef struct {
  gint32 experts, experts_per_token; /* routed ones */
  gint32 ffn;                        /* of one expert */
  gint32 shared_ffn;                 /* of all shared experts together, 0 none */
  gboolean shared_gate;              /* a sigmoid of the token on the shared experts' output */
  gboolean bias;                     /* in the experts and the router */
} SpExpertShape;

typedef struct {
  char *name;   /* for people: file's name field, or the file name without its suffix */
  char *family; /* model_type: llama, gpt2, transnormer, or "own" */
  gint32 layers;
  gint32 hidden;
  gint32 heads;    /* query heads */
  gint32 kv_heads; /* = heads without GQA */
  gint32 head_size;
  gint32 ffn;               /* width between up and down */
  gint32 vocabulary;        /* as in the file, before padding */
  gint32 positions;         /* learned position rows, 0 with rotary or none */
  gint32 position_offset;   /* of these, rows before the first position's (OPT: 2) */
  gint32 token_types;       /* rows of BERT's segment table, 0 none */
  gint32 trained_positions; /* max_position_embeddings, 0 unknown */
  SpNormKind norm;
  SpMlpKind mlp;
  SpForm form;
  gboolean qkv_bias, projection_bias, mlp_bias; /* q k v; attention output; both of the MLP */
  gboolean head_bias;                           /* of the output matrix */
  gboolean embedding_norm;                      /* a norm after the embedding */
  gboolean no_final_norm;
  gboolean head_transform; /* BERT: a square matrix, gelu and a norm before the output matrix */
  gboolean tied;           /* input and output embeddings are one matrix */
  gboolean rotary;         /* softmax layers rotate q and k */
  gint32 rotary_size;      /* features of a head that are rotated, 0 all */
  double rope_theta;
  gint32 window;           /* keys that layers of SP_LAYER_WINDOW see */
  gboolean qk_norm;        /* RMS of each query and key head, with a gain */
  gboolean attention_gate; /* a sigmoid on the attention's output, from the query projection */
  gboolean sinks;          /* a learned logit a head in the softmax' sum */
  gboolean bidirectional;  /* not causal */
  SpLatentShape latent;
  SpLinearShape linear;
  SpExpertShape moe;
  double norm_epsilon;
  double dropout;                   /* hidden and attention dropout; 0 none */
  guint8 layer_kind[SP_MAX_LAYERS]; /* SpLayerKind of each */
  GPtrArray *notes;                 /* of char*: what was assumed or ignored */
} SpArchitecture;

SpArchitecture *sp_architecture_new (void);
void sp_architecture_free (SpArchitecture *arch);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpArchitecture, sp_architecture_free)

/* Reads `path`: JSON if its first character other than white space is '{', else INI with a [model] group. Errors name
 * the file, the key, its value and what was expected. */
SpArchitecture *sp_architecture_load (const char *path, GError **error);
/* The two that it chooses from, of a text with a 0 after its `length` bytes; `path` is for messages. Neither makes up a
 * name. */
SpArchitecture *sp_architecture_parse_ini (const char *path, const char *text, gsize length, GError **error);
/* Whether our own INI can have the key (`name` apart). */
gboolean sp_architecture_has_key (const char *key);
SpArchitecture *sp_architecture_parse_json (const char *path, const char *text, gsize length, GError **error);
/* What is beyond the limits that all files share, or NULL: "heads x head-size ..., expected ...". Free with g_free. */
char *sp_architecture_problem (const SpArchitecture *arch);
/* The [model] group as our own INI has it: what it must have, and what is not its default. `lost` (of char*) gets a
 * phrase for each part that an INI has no key for. */
void sp_architecture_write_ini (const SpArchitecture *arch, GString *out, GPtrArray *lost);

void sp_architecture_note (SpArchitecture *arch, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Parameters in the whole model, unpadded (a tied matrix once), and of those the ones that a token meets: of the routed
 * experts as many as it is sent to. */
gint64 sp_architecture_parameters (const SpArchitecture *arch);
gint64 sp_architecture_active_parameters (const SpArchitecture *arch);
/* Parameters of one layer of this kind (all bits); of those, the active ones in matrices (what 6 x parameters x tokens
 * counts). */
gint64 sp_architecture_layer_parameters (const SpArchitecture *arch, guint kind);
gint64 sp_architecture_layer_matmul_parameters (const SpArchitecture *arch, guint kind);
/* Of these, those of the routed experts that a token is sent to. */
gint64 sp_architecture_layer_routed_parameters (const SpArchitecture *arch, guint kind);
/* Of the routed experts that a layer of this kind has. */
gint64 sp_architecture_layer_expert_parameters (const SpArchitecture *arch, guint kind);

/* Layers of a mixer, whatever their other bits; of one kind exactly. */
gint32 sp_architecture_count (const SpArchitecture *arch, SpLayerKind mixer);
gint32 sp_architecture_count_kind (const SpArchitecture *arch, guint kind);
static inline gboolean
sp_architecture_has (const SpArchitecture *arch, SpLayerKind mixer)
{
  guint any = 0, all = SP_LAYER_MIXER;

  /* The search asks this of every layout: mostly of the first layer, else no branch in the loop. */
  if (mixer == SP_LAYER_SOFTMAX && arch->layers > 0 && sp_layer_mixer (arch->layer_kind[0]) == SP_LAYER_SOFTMAX)
    return TRUE;
  for (gint32 i = 0; i < arch->layers; i++) {
    any |= arch->layer_kind[i];
    all &= arch->layer_kind[i];
  }
  return mixer == SP_LAYER_LINEAR ? (any & SP_LAYER_MIXER) != 0 : arch->layers > 0 && (all & SP_LAYER_MIXER) == 0;
}
/* The linear layers' shape with what it leaves out filled in. */
static inline SpLinearShape
sp_architecture_linear (const SpArchitecture *arch)
{
  SpLinearShape shape = arch->linear;

  if (shape.heads == 0) {
    shape.heads = shape.key_heads = arch->heads;
    shape.key_size = shape.value_size = arch->head_size;
    shape.output_gate = TRUE;
  }
  return shape;
}
/* Whether any layer has the bit. */
gboolean sp_architecture_has_bit (const SpArchitecture *arch, SpLayerKind bit);
/* "softmax", "linear, experts", "softmax, window 4096". Free with g_free. */
char *sp_architecture_kind_text (const SpArchitecture *arch, guint kind);
/* Bytes of the recurrent state of all linear layers for one sequence, in fp32 (0 without linear layers). */
gint64 sp_architecture_state_bytes (const SpArchitecture *arch);

G_END_DECLS
