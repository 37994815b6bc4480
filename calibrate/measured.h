/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The measured CSV: what was timed, one statistic of one operation a row. seqpar-measure writes it, imports write it,
 * the fit reads it; so this file needs GLib alone.
 *
 *   # seqpar-measured: 1          the version, first; then any of date, card, driver, cuda, nccl, host, source,
 *   # published: README of X      (the publication that the figures are of, where nobody here measured them),
 *   # power_limit_w: 700          the card's, max_clock_hz the highest of its SMs, and note
 *   op,variant,dtype,ranks,nodes,from,to,bytes,m,n,k,batch,heads,kv_heads,beside,statistic,repeat,time_s,
 *       bytes_per_s,mark,flops,clock_hz,power_w,temperature_c,throttle (one line; older files end with mark or flops)
 *
 * Bytes are payload: the full buffer of an all-gather and a reduce-scatter, the buffer of an all-reduce, a rank's
 * buffer of an all-to-all, the message of a send. GEMM is C[m,n] = A[m,k] B[k,n]; attention has m queries, n keys and
 * heads of k; linear attention m tokens and heads of k (keys) and n (values). A kernel has its op's sizes, bytes over
 * the memory bus and FLOP, as the program has them (sim/op.h). `from` and `to` are GPUs; of work `from` is the card that
 * did it, counted over all files that are fitted together: who puts files of several cards together numbers them. `beside` is what ran at the
 * same time: a transfer beside a GEMM has that GEMM's m, n and k, a GEMM beside a transfer the transfer's bytes; a copy
 * beside a transfer has the transfer's bytes and its own as m, and so has a transfer beside a copy the copy's; a transfer
 * beside a program's kernels of one op has that op as its variant.
 * clock_hz (of the SMs), power_w and temperature_c are the card's means while that was timed over and over, throttle
 * what held its clock down meanwhile (calibrate/sensor.h): of several cards the lowest clock, the most power and the
 * highest temperature. Empty where they did not say.
 * A transfer of variant groups-N ran in N groups of so many ranks at once, one of variant in-place ended where it began. A
 * launch of variant hop is the device's, from one stream to another. A row has a time, or a rate where its source gives no
 * time, or both; one of memory may have bytes alone.
 *
 * Numbers come back exactly: nine digits are written, and seventeen where those do not suffice. Errors are of
 * SP_MEASURED_ERROR, one line, FILE:LINE first.
 */

#include <glib.h>

G_BEGIN_DECLS

#define SP_MEASURED_ERROR (sp_measured_error_quark ())
GQuark sp_measured_error_quark (void);
typedef enum { SP_MEASURED_ERROR_SYNTAX, SP_MEASURED_ERROR_VALUE } SpMeasuredError;

typedef enum {
  SP_MEASURED_NONE, /* of `beside`: alone. No row's op */
  SP_MEASURED_GEMM,
  SP_MEASURED_ATTENTION,
  SP_MEASURED_ATTENTION_BACKWARD,
  SP_MEASURED_LINEAR_ATTENTION,
  SP_MEASURED_LINEAR_ATTENTION_BACKWARD,
  SP_MEASURED_COPY,
  SP_MEASURED_ONE_WAY, /* a send: of every two neighbours in a group the first sends to the second */
  SP_MEASURED_SEND_RECEIVE,
  SP_MEASURED_ALL_GATHER,
  SP_MEASURED_REDUCE_SCATTER,
  SP_MEASURED_ALL_REDUCE,
  SP_MEASURED_ALL_TO_ALL,
  SP_MEASURED_BROADCAST,
  SP_MEASURED_P2P,
  SP_MEASURED_P2P_BOTH, /* both ways at once; the rate is their sum */
  SP_MEASURED_KERNEL,   /* any other op of a program: `variant` begins with its name */
  SP_MEASURED_WORK,     /* kernels one after another, together: their bytes, FLOP and time */
  SP_MEASURED_LAUNCH,
  SP_MEASURED_MEMORY,
  SP_MEASURED_N_OPS
} SpMeasuredOp;

typedef enum {
  SP_STATISTIC_SAMPLE,
  SP_STATISTIC_MEAN,
  SP_STATISTIC_MIN,
  SP_STATISTIC_MEDIAN,
  SP_STATISTIC_MAX,
  SP_STATISTIC_N
} SpStatistic;

typedef enum { SP_MARK_NONE, SP_MARK_OUTLIER, SP_MARK_WRONG, SP_MARK_PARTIAL, SP_MARK_N } SpMark;

#define SP_MEASURED_EMPTY (-1) /* of the whole numbers below */

typedef struct {
  SpMeasuredOp op, beside;
  SpStatistic statistic;
  SpMark mark;
  const char *variant, *dtype; /* of [a-z0-9/+.-], "" where empty; the set's own once added */
  gint64 ranks, nodes, from, to, bytes, m, n, k, batch, heads, kv_heads, repeat;
  double time_s, bytes_per_s; /* 0 where empty */
  double flops;               /* of a kernel, as its program counts them */
  double clock_hz, power_w, temperature_c;
  const char *throttle; /* as variant */
} SpMeasuredRow;

/* All empty, one sample of `op`. */
SpMeasuredRow sp_measured_row (SpMeasuredOp op);

typedef struct {
  GArray *rows;     /* SpMeasuredRow */
  GPtrArray *notes; /* char * */
  char **fields;    /* by sp_measured_key_names; NULL where not said */
  GStringChunk *words;
  gboolean is_old; /* read from a file that lacks the last columns */
} SpMeasured;

/* NULL-terminated, in the order of the enums and of `fields`. */
extern const char *const sp_measured_op_names[];
extern const char *const sp_measured_statistic_names[];
extern const char *const sp_measured_mark_names[];
extern const char *const sp_measured_key_names[];

SpMeasured *sp_measured_new (void);
void sp_measured_free (SpMeasured *measured);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpMeasured, sp_measured_free)

/* `text` with a 0 after its `length` bytes; `path` is for messages. */
SpMeasured *sp_measured_parse (const char *path, const char *text, gsize length, GError **error);
void sp_measured_write (const SpMeasured *measured, GString *out);
/* Its two parts: all that stands before the rows, and one row. */
void sp_measured_write_head (const SpMeasured *measured, GString *out);
void sp_measured_write_row (const SpMeasuredRow *row, GString *out);

void sp_measured_add (SpMeasured *measured, const SpMeasuredRow *row); /* copies it */
/* A field that is there keeps its value, and gets another one behind it. Control characters become spaces. */
void sp_measured_say (SpMeasured *measured, const char *key, const char *value);
const char *sp_measured_field (const SpMeasured *measured, const char *key);
void sp_measured_note (SpMeasured *measured, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* --- for other readers of the kind -------------------------------------------------------------------------------- */

/* "path:line: " and the message; returns FALSE. */
gboolean sp_measured_fail (GError **error, SpMeasuredError code, const char *path, guint line, const char *format, ...)
    G_GNUC_PRINTF (5, 6);
/* As messages show it: at most 60 characters, no control characters. `text` is UTF-8. */
char *sp_measured_shown (const char *text);
/* The nearest of `names`, or NULL if none is near. */
const char *sp_measured_nearest (const char *word, const char *const *names);
/* Index in `names`, or -1. */
int sp_measured_index (const char *word, const char *const *names);
/* `text` in the letters of a variant: "NV4 pair (0,1)" becomes "nv4-pair-0-1". */
char *sp_measured_word (const char *text);
/* The whole of `text`; FALSE if it is no number of that kind within the bounds. */
gboolean sp_measured_whole (const char *text, gint64 min, gint64 max, gint64 *ret);
gboolean sp_measured_number (const char *text, double min, double max, double *ret);

G_END_DECLS
