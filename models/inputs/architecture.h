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
#define SP_MAX_LAYER_KINDS 4

/* Sane ranges of a model file: every product of two of them that a program forms still fits. */
#define SP_MAX_HIDDEN (1 << 18)
#define SP_MAX_HEADS (1 << 12)
#define SP_MAX_HEAD_SIZE (1 << 12)
#define SP_MAX_FFN (1 << 20)
#define SP_MAX_VOCABULARY (1 << 24)
#define SP_MAX_POSITIONS (1 << 30)

typedef enum { SP_LAYER_SOFTMAX, SP_LAYER_LINEAR, SP_N_LAYER_KINDS } SpLayerKind;

typedef enum { SP_NORM_RMS, SP_NORM_LAYER, SP_NORM_RMS_NO_GAIN } SpNormKind;

typedef enum {
  SP_MLP_SWIGLU,     /* down(silu(gate x) * up x) */
  SP_MLP_LINEAR_GLU, /* down(gate x * up x): TransNormer's simple GLU */
  SP_MLP_GELU        /* down(gelu(up x)) */
} SpMlpKind;

typedef struct {
  char *name;   /* for people: file's name field, or the file name without its suffix */
  char *family; /* model_type: llama, gpt2, transnormer, or "own" */
  gint32 layers;
  gint32 hidden;
  gint32 heads;    /* query heads */
  gint32 kv_heads; /* = heads without GQA; linear layers have heads alone */
  gint32 head_size;
  gint32 ffn;               /* width between up and down */
  gint32 vocabulary;        /* as in the file, before padding */
  gint32 positions;         /* learned position rows, 0 with rotary or none */
  gint32 trained_positions; /* max_position_embeddings, 0 unknown */
  SpNormKind norm;
  SpMlpKind mlp;
  gboolean qkv_bias, projection_bias, mlp_bias; /* q k v; attention output; both of the MLP */
  gboolean tied;                                /* input and output embeddings are one matrix */
  gboolean rotary;                              /* softmax layers rotate q and k */
  double rope_theta;
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
/* The two that it chooses from. */
SpArchitecture *sp_architecture_load_ini (const char *path, GError **error);
SpArchitecture *sp_architecture_load_json (const char *path, GError **error);

void sp_architecture_note (SpArchitecture *arch, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Parameters in the whole model, unpadded (a tied matrix once). */
gint64 sp_architecture_parameters (const SpArchitecture *arch);
/* Parameters of one layer of this kind; of those, the ones in matrices (what 6 x parameters x tokens counts). */
gint64 sp_architecture_layer_parameters (const SpArchitecture *arch, SpLayerKind kind);
gint64 sp_architecture_layer_matmul_parameters (const SpArchitecture *arch, SpLayerKind kind);
gint32 sp_architecture_count (const SpArchitecture *arch, SpLayerKind kind);
static inline gboolean
sp_architecture_has (const SpArchitecture *arch, SpLayerKind kind)
{
  return memchr (arch->layer_kind, kind, (gsize) arch->layers) != NULL;
}
/* Bytes of the recurrent state of all linear layers for one sequence, in fp32 (0 without linear layers). */
gint64 sp_architecture_state_bytes (const SpArchitecture *arch);

G_END_DECLS
