/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A profile: curves that were fitted to measurements of one card and its links, and how well they are known. It stands
 * beside device, cluster and framework files: `[cluster] profile = FILE` in a scenario (or `profile = FILE` in a
 * cluster's own file) puts its curves where the cost model's formulas were (models/estimate/cost.h). `seqpar calibrate
 * fit` writes it.
 *
 *    [profile]                        name = and card =, as the measured CSV has them
 *    [gemm]                           one group a curve: its kind; behind it, where they tell two of a kind apart,
 *    ranks [all-gather.2x1]                 and nodes of the group that was measured ...
 *    [all-gather.2x1.ring-ll]         ... and the variant: NCCL's algorithm and protocol forced, another library's
 *    kernel [copy.host-to-device]
 *    [kernel.norm-bwd.1f.3]           ... of an op of a program its form, points for strokes; of softmax attention
 *    [kernel.attention.causal.cudnn.7.3]    by another library than the executor's own with its name
 *
 * Every parameter is three keys:
 *    rate = 826.1 TFLOP/s
 *    rate.source = measured: h200x2.csv, 23 points          (provenance and text, as in other profiles)
 *    rate.error = 3.2 TFLOP/s                               standard error; none where the value was not fitted
 * What a kernel's group leaves out is 0, which is no part of its formula; so is `spread` of [power], where all cards are
 * then alike.
 * A group says of the curve, in fractions of time: median, p90 and worst (residuals), scatter (their robust
 * standard deviation); points, left-out; chi-square (reduced); from and to, the range of validity: bytes of payload,
 * FLOP of a kernel (its bytes where it has none), or watts; correlation: of its fitted parameters in the order of the file,
 * the lower triangle row by row
 * without the diagonal, where any is not 0.
 *
 * What the parameters mean is models/estimate/curves.h. Units: seconds, bytes, FLOP; fractions of 1.
 */

#include "models/inputs/hardware.h"
#include "sim/op-form.h"

G_BEGIN_DECLS

typedef enum {
  SP_CURVE_GEMM,
  SP_CURVE_ATTENTION,
  SP_CURVE_ATTENTION_BACKWARD,
  SP_CURVE_LINEAR,
  SP_CURVE_LINEAR_BACKWARD,
  SP_CURVE_KERNEL, /* any other op; variant: its form (sim/op-form.h) */
  SP_CURVE_COPY,
  SP_CURVE_ONE_WAY,      /* a send while nothing comes back; where a profile has none it is as the next */
  SP_CURVE_SEND_RECEIVE, /* to one and from another, or the same, at once */
  SP_CURVE_ALL_GATHER,
  SP_CURVE_REDUCE_SCATTER,
  SP_CURVE_ALL_REDUCE,
  SP_CURVE_ALL_TO_ALL,
  SP_CURVE_BROADCAST,
  SP_CURVE_BESIDE,   /* a transfer beside a GEMM; variant: the transfer, TRANSFER-copy beside a copy, TRANSFER-OP beside a
                        program's kernels of that op */
  SP_CURVE_SLOWDOWN, /* of a GEMM beside a transfer; variant: the transfer, TRANSFER-copy of a copy; of a program's
                        kernels beside any transfer their op */
  SP_CURVE_LAUNCH,   /* the host's; variant: what is launched; hop: from a stream to another, on the device; hop-TRANSFER:
                        what that takes more between kernels than in a captured batch, one way */
  SP_CURVE_MEMORY,   /* variant: context, communicator */
  SP_CURVE_POWER,    /* what kernels draw, and the most that the card lets them */
  SP_N_CURVES
} SpCurveKind;

/* Slots of a kind's parameters. */
enum {
  SP_GEMM_LAUNCH,
  SP_GEMM_RATE,
  SP_GEMM_MEMORY_RATE,
  SP_GEMM_PROLOGUE,
  SP_GEMM_TILE_128,
  SP_GEMM_TILE_64,
  SP_GEMM_TAIL
};
enum { SP_CORE_LAUNCH, SP_CORE_RATE, SP_CORE_HALF_TOKENS, SP_CORE_HEAD_POWER }; /* softmax and linear attention */
enum {
  SP_KERNEL_LAUNCH,
  SP_KERNEL_MEMORY_RATE,
  SP_KERNEL_CACHE,
  SP_KERNEL_CACHE_RATE,
  SP_KERNEL_RATE,
  SP_KERNEL_ROW,
  SP_KERNEL_HALF_TOKENS,
  SP_KERNEL_HEAD_POWER,
  SP_KERNEL_TAIL,
  SP_KERNEL_SERIAL,
  SP_KERNEL_WAVE,
  SP_KERNEL_TILE_128,
  SP_KERNEL_TILE_64
};
enum { SP_PIECE_LATENCY, SP_PIECE_GROWTH, SP_PIECE_RATE, SP_PIECE_SLOTS };      /* of each piece of a transfer */
enum { SP_BESIDE_WAIT, SP_BESIDE_FACTOR };
enum { SP_SLOWDOWN_BASE, SP_SLOWDOWN_WAVE }; /* the latter of a program's kernels alone */
enum { SP_POWER_IDLE, SP_POWER_FLOP, SP_POWER_BYTE, SP_POWER_LIMIT, SP_POWER_SPREAD };

#define SP_CURVE_MAX_PIECES 3
#define SP_CURVE_SLOTS 13 /* of kernels; pieces have 9 */

typedef struct _SpCurve {
  SpCurveKind kind;
  char *variant;                    /* NULL: none */
  gint32 ranks, nodes;              /* of transfers; 0 else */
  guint n_slots;                    /* of a transfer 3 a piece */
  SpQuantity value[SP_CURVE_SLOTS]; /* in the slots of its kind */
  double error[SP_CURVE_SLOTS];     /* 0: not fitted */
  double covariance[SP_CURVE_SLOTS][SP_CURVE_SLOTS];
  double begin[SP_CURVE_MAX_PIECES], end[SP_CURVE_MAX_PIECES]; /* first and last size measured of a piece, bytes */
  double from, to;
  gint32 points, left_out;
  double chi_square, scatter, median, p90, worst;
  SpOpKind op; /* of a kernel */
  SpOpForm form;
  const struct _SpCurve *next; /* the next of the same op in the profile: sp_profile_link */
} SpCurve;

typedef struct _SpProfile {
  char *name, *card;
  GPtrArray *comments; /* char *, owned: lines for the head of what is written; none of what was read */
  GPtrArray *curves; /* SpCurve *, owned */
} SpProfile;

SpProfile *sp_profile_new (const char *name, const char *card);
SpProfile *sp_profile_load (const char *path, GError **error);
/* Of a text, with a 0 after its `length` bytes, as if it were the file `path`. */
SpProfile *sp_profile_parse (const char *path, const char *text, gsize length, GError **error);
void sp_profile_free (SpProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpProfile, sp_profile_free)

/* What sp_profile_parse reads; numbers with nine digits. */
void sp_profile_write (const SpProfile *profile, GString *out);

/* A new curve of the profile, all 0. */
SpCurve *sp_profile_add (SpProfile *profile, SpCurveKind kind, const char *variant);
/* Fills `next` of kernels, once all are added; those read are linked. */
void sp_profile_link (SpProfile *profile);
/* The first that is of the kind, variant, ranks and nodes; NULL if there is none. 0 ranks: any. */
const SpCurve *sp_profile_find (const SpProfile *profile, SpCurveKind kind, const char *variant, gint32 ranks,
                                gint32 nodes);

/* Of the values that were fitted the worst; measured, if none was. */
SpProvenance sp_profile_provenance (const SpProfile *profile);

const char *sp_curve_kind_name (SpCurveKind kind);
gboolean sp_curve_is_transfer (SpCurveKind kind); /* made of pieces */
/* The group's name; free with g_free. */
char *sp_curve_name (const SpCurve *curve);
/* Of a slot: "rate", "latency-2"; NULL beyond the last of its kind. Free with g_free. */
char *sp_curve_key (const SpCurve *curve, guint slot);
/* "flash-with-forward" is of flash; nothing is of NULL. */
gboolean sp_curve_is_of_library (const SpCurve *curve, const char *library);
/* Whether softmax attention of the library was timed, by itself or as a program's kernel. ret_timed (or NULL): all
 * whose was, as messages list them, or ""; free with g_free. */
gboolean sp_profile_has_library (const SpProfile *profile, const char *library, char **ret_timed);
/* What a curve of something beside something else is of: the transfer, and behind its name "" of a GEMM or the word for
 * another kernel. FALSE: of no transfer that is known. */
gboolean sp_curve_split (const SpCurve *curve, SpCurveKind *ret_transfer, const char **ret_kernel);
/* FALSE: of a kind whose variants are all known (beside, slowdown), one that nothing reads. */
gboolean sp_curve_is_known (const SpCurve *curve);
/* Whether the slot may be left out of a file, where 0 is no part of the formula. */
gboolean sp_curve_is_optional (SpCurveKind kind, guint slot);
/* FALSE: one that is left out so. */
gboolean sp_curve_has (const SpCurve *curve, guint slot);
/* The value as the file has it: "826.1 TFLOP/s". Free with g_free. */
char *sp_curve_text (const SpCurve *curve, guint slot, double value, int digits);

G_END_DECLS
