/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One launch of a CUDA kernel beside its reference: what the tests run, and what a benchmark runs before it times.
 *
 * A case owns arrays in device memory and what they ought to hold after the launch, in double: inputs are random
 * numbers rounded to their dtype, so that both start from the same; outputs are what the reference makes of them. The
 * kernel runs twice. Checked are: each output against the reference, inputs byte for byte, a zone before and behind
 * each array, and that both runs gave the same bytes. Outputs and scratch are full of NaN before the first run, and of
 * other bytes before the second.
 *
 *     SpCase *c = sp_case_new ("glu", "m = %d", m);
 *     const double *x = sp_case_in (c, "gu", SP_DEV_BF16, n, 1, &gu);
 *     sp_ref_glu (..., x, sp_case_out (c, "out", SP_DEV_BF16, n, &out));
 *     SP_CASE_RUN (c, sp_dev_glu (..., gu, out, NULL));
 *
 * Tolerance. u is the largest relative error of a rounding: 2^-8 to bf16, 2^-24 to fp32. An element may be off by u of
 * its own dtype (by 64 u of fp32), relative to itself, and by what was lost before it was rounded, relative to the
 * array's largest:
 *  - plain kernels compute in fp32 from exact inputs: 2^-18, 64 roundings in one direction;
 *  - those that use tensor cores round what they compute between two products to bf16. A sum of p_j v_j with each p_j
 *    off by up to u p_j is off by at most u max |v|, and by far less in the mean, as the roundings are independent: 2 u
 *    for any element, and u for the root of the mean square over the array, which no lost key or wrong mask would pass.
 *    An array of less than 256 may have one rounding in all its elements: 2 u there.
 *  - chains of those, the delta rule: a token's error is what the state before it leaves, and what is lost of it goes
 *    into the next state; it is rounded five times on its way to an output (the state, the weighed error, the matrix that
 *    solves for it, the error, the score), each as TENSOR allows once. Twice that. So
 *    are both states in the gradient of a decay a head that follows the data, which is one number for all products of
 *    theirs (linear-decay.md says how far plain roundings bring it).
 *  - exact ones move numbers: 0.
 */

#include "kernels/device.h"
#include "kernels/reference.h"

typedef struct _SpCase SpCase;

typedef enum { SP_CASE_PLAIN, SP_CASE_TENSOR, SP_CASE_CHAIN, SP_CASE_EXACT } SpCaseSums;

SpCase *sp_case_new (SpCaseSums sums, const char *kernel, const char *shape_format, ...) G_GNUC_PRINTF (3, 4);

/* Outputs from here on are sums of that kind. */
void sp_case_sums (SpCase *c, SpCaseSums sums);

/* Arrays of the case from here on start one element after a 16-byte boundary. */
void sp_case_misalign (SpCase *c);

/* n random numbers about as large as `scale`. The case owns what it returns. */
const double *sp_case_in (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, double scale, SpDevTensor *ret);
/* Given numbers, which are rounded. */
const double *sp_case_in_values (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, const double *values,
                                 SpDevTensor *ret);
/* An operand that is not there. */
const double *sp_case_in_absent (SpDevTensor *ret);
/* Where the reference writes what is expected. */
double *sp_case_out (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, SpDevTensor *ret);
/* What is read and written: holds the numbers before. */
double *sp_case_in_out (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, double scale, SpDevTensor *ret);
double *sp_case_in_out_values (SpCase *c, const char *name, SpDevDtype dtype, gint64 n, const double *values,
                               SpDevTensor *ret);

/* Ids and positions: as int32 there, and as the references take them here. */
const gint64 *sp_case_ids (SpCase *c, const char *name, gint64 n, const gint64 *values, const int32_t **ret);
const gint64 *sp_case_wide_ids (SpCase *c, const char *name, gint64 n, const gint64 *values, const int64_t **ret);

/* Sums whose order is not fixed: two runs need not give the same bytes, and both are held to the reference. */
void sp_case_allow_other_bytes (SpCase *c);

/* Ours alone: doubles that the case frees, for what a reference wants and no kernel. */
double *sp_case_numbers (SpCase *c, gint64 n);
void *sp_case_scratch (SpCase *c, gsize bytes);

/* Whether the kernel is to be launched again. */
gboolean sp_case_again (SpCase *c);
void sp_case_launched (SpCase *c, cudaError_t error);
void sp_case_free (SpCase *c);

#define SP_CASE_RUN(c, call)                                                                                           \
  do {                                                                                                                 \
    while (sp_case_again (c))                                                                                          \
      sp_case_launched (c, call);                                                                                      \
    sp_case_free (c);                                                                                                  \
  } while (0)

/* Beside what the case compares itself: a number that was read from the device. */
void sp_case_expect (SpCase *c, const char *name, double got, double expected, double allowed);

/* --- all cases ---------------------------------------------------------------------------------------------------- */

/* Of an operand that may be bf16 or fp32. A check that asks is run twice: with bf16 alone, for which kernels have ways of
 * their own, and with a mix. */
SpDevDtype sp_case_dtype (void);
/* From 0 to n - 1, and from low to high: of the seed. */
gint64 sp_case_below (gint64 n);
double sp_case_between (double low, double high);

/* What a check says of each array that is wrong, one line. */
typedef void (*SpCaseReport) (const char *message, gpointer data);

/* Runs the cases of one check, on the current device: how many arrays were wrong. */
typedef struct {
  const char *name;
  void (*run) (void);
} SpCheck;
guint sp_check_run (const SpCheck *check, guint32 seed, SpCaseReport report, gpointer data);

/* All checks; NULL if there is none of the name. */
const SpCheck *sp_checks (guint *ret_n);
const SpCheck *sp_check_find (const char *name);

/* By file, for sp_checks. */
void sp_case_add (const char *name, void (*run) (void));
void sp_add_elementwise_cases (void);
void sp_add_row_cases (void);
void sp_add_layout_cases (void);
void sp_add_end_cases (void);
void sp_add_attention_cases (void);
void sp_add_library_cases (void);
void sp_add_linear_cases (void);
void sp_add_delta_cases (void);
void sp_add_recurrent_cases (void);
void sp_add_feature_cases (void);
