/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Validation: runs that others measured, in sets, beside what is predicted of them.
 *
 * A SET is a file, scenarios/validation/NAME.ini. It names where its figures stand, its groups of runs (a CSV beside a
 * scenario), which of them constants may be fitted to, what is set aside and why, the bounds that its statistics are held
 * to, and CLAIMS: ratios, orders and lengths that a paper states in a sentence.
 *
 *    [set]         title, source; optional notes, engine = estimate|simulate, mfu-convention, score (columns that count),
 *                  split (of groups that have none)
 *    [bounds]      STATISTIC = MUST / GOAL: sp_score_rows names them
 *    [others]      NAME = STATISTIC VALUE: what another model claims on these runs
 *    [rows.NAME]   data = FILE.csv, scenario = FILE, set = KEY=VALUE; ..., split, cell = COLUMN, ..., choice =
 *                  COLUMN, ..., aside.N, why.N, refused = aside, longest = doubling|fine
 *    [fit]         framework.KEY, framework.NAME.KEY, device..., cluster... = LOW .. HIGH
 *    [check.NAME]  a claim: kind, what, side.NAME, at, published, tolerance or doublings (claims.c)
 *
 * Files are relative to the set's. A row's cells of scenario keys count as if they stood in its scenario; empty ones set
 * nothing. Columns that are measured: sp_observed_rows. Others: scenario (a file beside the CSV, without .ini), outcome
 * (fits, oom), split (fit, held-out), aside (a reason), cell, gpus (checked), published, note, and any note-... and by-...
 *
 *    CELL        runs of one are compared with each other. Those with the same keys are repeats of a layout, which counts
 *                by their median. Layouts that agree in the columns of CHOICE are one choice (a degree, however the
 *                sequence is cut), as good as the best of them; without it each layout is one
 *    SPLIT       held-out | fit | column | every N [by COLUMN, ...] | where CONDITIONS. Rules see the data's columns and
 *                never a prediction; runs that are set aside as a whole are left out before they count. A fitted run is in
 *                no statistic but those of fitted runs.
 *    ASIDE       [time|memory|outcome|longest] where CONDITIONS: REASON; without the word, all of the run
 *    WHY         [time|memory|longest] where CONDITIONS: TEXT, of runs that miss by more than twice their bound. The text
 *                report counts, of the runs that a WHY holds for, those that do
 *    CONDITIONS  COLUMN OP VALUE and ..., OP one of = != < <= > >=. Such that hold for no row are an error
 *
 * Errors at reading are SP_INPUT_ERROR: file, group or row, key, value, and what was expected.
 */

#include "models/inputs/csv.h"
#include "models/inputs/ini.h"
#include "models/inputs/scenario.h"
#include "models/simulate/simulate.h"

G_BEGIN_DECLS

/* --- what is compared --------------------------------------------------------------------------------------------- */

typedef enum { SP_ASPECT_TIME, SP_ASPECT_MEMORY, SP_ASPECT_OUTCOME, SP_ASPECT_LONGEST, SP_N_ASPECTS } SpAspect;
extern const char *const sp_aspect_names[SP_N_ASPECTS + 1]; /* NULL-terminated */

/* Measured columns. Of those of time the first that a run has counts, of the others each. */
typedef enum {
  SP_OBSERVED_STEP_TIME,
  SP_OBSERVED_UNDIVIDED,
  SP_OBSERVED_TOKENS,
  SP_OBSERVED_TOKENS_GPU,
  SP_OBSERVED_MFU,
  SP_OBSERVED_MFU_CAUSAL,
  SP_OBSERVED_HFU,
  SP_OBSERVED_PEAK,       /* all that a GPU holds */
  SP_OBSERVED_POOL,       /* of the framework's allocator: the same without the framework's `reserved` */
  SP_OBSERVED_POOL_FIRST, /* the same of a GPU of the first stage, where a stack reports rank 0's */
  SP_OBSERVED_ALLOCATED,  /* live tensors */
  SP_OBSERVED_STATES,     /* parameters, gradients and optimizer */
  SP_OBSERVED_ACTIVATIONS,
  SP_OBSERVED_LAYER_STATES,      /* of the layers alone: sp_memory_layers */
  SP_OBSERVED_LAYER_ACTIVATIONS, /* likewise */
  SP_OBSERVED_LONGEST,           /* sequence that fits */
  SP_N_OBSERVED
} SpObserved;

typedef struct {
  const char *name;
  SpAspect aspect;
  SpUnit unit; /* of a value that is written with one */
  gboolean is_speed;
} SpObservedRow;
extern const SpObservedRow sp_observed_rows[SP_N_OBSERVED];

typedef struct {
  guint group, row; /* of the set; of the group's data, from 0 */
  char *scenario;   /* its path */
  char **sets;
  char *cell;                     /* runs of the same are compared with each other; NULL: none */
  char *choice;                   /* layouts of a cell with the same are one choice; NULL: each is */
  double measured[SP_N_OBSERVED]; /* NAN: not */
  gint8 outcome;                  /* 1: it ran, 0: out of memory, -1: not said */
  gint32 gpus;                    /* 0: not said */
  gboolean is_fitted;
  char *aside[SP_N_ASPECTS]; /* why it is not scored; NULL: it is */
  char *why[SP_N_ASPECTS];   /* what is missing in the model, where that is known */
  /* predicted; once it is priced */
  char *refused; /* why it has no prediction; NULL: it has */
  double predicted[SP_N_OBSERVED];
  gboolean fits;
  double tokens; /* of a step */
  double step_time_s;
} SpMeasuredRun;

/* --- scores ------------------------------------------------------------------------------------------------------- */

/* Errors are |predicted / measured - 1|. A speed counts among times as the step that it comes to. */
typedef enum {
  SP_SCORE_TIME_MEAN,
  SP_SCORE_TIME_MEDIAN,
  SP_SCORE_TIME_P90,
  SP_SCORE_TIME_WORST,
  SP_SCORE_SPEED_MEAN,
  SP_SCORE_SPEED_MEDIAN,
  SP_SCORE_SPEED_P90,
  SP_SCORE_SPEED_WORST,
  SP_SCORE_MEMORY_MEAN,
  SP_SCORE_MEMORY_MEDIAN,
  SP_SCORE_MEMORY_P90,
  SP_SCORE_MEMORY_WORST,
  SP_SCORE_ACCURACY,      /* of fits: the mean of the shares recognised of what ran and of what ran out of memory */
  SP_SCORE_FALSE_FIT,     /* of what ran out of memory, how much is said to fit */
  SP_SCORE_KENDALL,       /* (pairs in order - others) / pairs, of layouts of a cell whose speeds are 3 % apart */
  SP_SCORE_REGRET_MEDIAN, /* of a cell: the best speed over that of the choice whose layout the model ranks first, - 1 */
  SP_SCORE_REGRET_WORST,
  SP_SCORE_BEST,              /* cells of which that is the best choice */
  SP_SCORE_LONGEST_DOUBLINGS, /* worst |log2 (ours / measured)| */
  SP_SCORE_LONGEST_MEDIAN,
  SP_N_SCORES
} SpScore;

typedef struct {
  const char *name;
  gboolean more_is_better, is_number; /* else a fraction that is shown in percent */
} SpScoreRow;
extern const SpScoreRow sp_score_rows[SP_N_SCORES];

typedef struct {
  double must, goal; /* NAN: none */
} SpBound;

/* NONE: no bound. UNMEASURED: a bound, and no run that says anything of it. */
typedef enum { SP_VERDICT_NONE, SP_VERDICT_UNMEASURED, SP_VERDICT_MISSED, SP_VERDICT_MUST, SP_VERDICT_GOAL } SpVerdict;
extern const char *const sp_verdict_names[];
SpVerdict sp_bound_judge (const SpBound *bound, double value, gboolean more_is_better);

typedef struct {
  double value[SP_N_SCORES]; /* NAN: the runs do not say; INFINITY: the run that was chosen did not run */
  guint n_runs, n_times, n_memories, n_outcomes, n_pairs, n_cells;
} SpScores;

/* --- sets --------------------------------------------------------------------------------------------------------- */

typedef struct {
  char *name, *data_path, *scenario;
  char **sets;
  SpCsv *data;
  gboolean takes_refused; /* runs that the model refuses are set aside, and no error */
  gboolean is_fine;       /* longest lengths to 1/32, and not by doublings */
} SpRunGroup;

typedef struct {
  char *who;
  SpScore score;
  double value;
} SpOthers;

typedef enum { SP_CONSTANT_FRAMEWORK, SP_CONSTANT_DEVICE, SP_CONSTANT_CLUSTER } SpConstantOf;

/* A number that may be fitted, of one profile or (NULL) of all that the set's runs have. */
typedef struct {
  SpConstantOf of;
  char *profile, *key;
  double low, high;
  SpUnit unit;
} SpConstant;

typedef enum { SP_CLAIM_RATIO, SP_CLAIM_VALUE, SP_CLAIM_ORDER, SP_CLAIM_BEST } SpClaimKind;

typedef struct {
  char *name, *scenario;
  char **sets;
} SpClaimSide;

typedef struct {
  char *name, *source, *assumes;
  SpClaimKind kind;
  SpObserved what;
  guint search; /* bits of SpSearchKey */
  gboolean is_fine, in_doublings;
  GPtrArray *sides;  /* SpClaimSide */
  GPtrArray *points; /* char **: keys of all sides */
  double published;  /* NAN of orders */
  SpBound bound;     /* of `error`; of orders of `ours` */
  /* once it is priced */
  double ours;  /* the ratio or value farthest off; of orders the share of points at which they hold */
  double error; /* of that beside `published`, or doublings; NAN of orders */
  char *detail; /* what each side comes to, at the point that decides */
} SpClaim;

typedef struct {
  char *name, *path, *title, *source, *notes;
  gboolean simulates;
  SpMfuConvention convention;
  gboolean scored[SP_N_OBSERVED];
  SpBound bounds[SP_N_SCORES];
  GArray *others;    /* SpOthers */
  GPtrArray *groups; /* SpRunGroup */
  GPtrArray *runs;   /* SpMeasuredRun */
  GArray *constants; /* SpConstant */
  GPtrArray *claims; /* SpClaim */
} SpValidation;

SpValidation *sp_validation_load (const char *path, GError **error);
void sp_validation_free (SpValidation *validation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpValidation, sp_validation_free)

/* Predicts all runs and claims; one after the other, on the caller's thread. `progress` may be NULL. */
gboolean sp_validation_price (SpValidation *validation, void (*progress) (guint done, guint all, gpointer data),
                              gpointer data, GError **error);

/* Whether a run is in no statistic at all. */
gboolean sp_run_is_aside (const SpMeasuredRun *run);
/* The column of time that counts of a run, SP_N_OBSERVED if it has none. */
SpObserved sp_run_time_column (const SpValidation *validation, const SpMeasuredRun *run);
/* Whether a column of a run is in the statistics of its kind. */
gboolean sp_run_counts (const SpValidation *validation, const SpMeasuredRun *run, SpObserved observed);
/* |predicted / measured - 1| as it is scored: of times, of the step. */
double sp_run_error (const SpMeasuredRun *run, SpObserved observed);
/* Whether a run is beyond twice the bound of its kind (median, else mean; of lengths, their median alone). */
gboolean sp_run_is_beyond (const SpValidation *validation, const SpMeasuredRun *run, SpObserved observed);

/* --- statistics.c: with GSL --------------------------------------------------------------------------------------- */

/* Of the runs that were fitted to, or of the others. FALSE with SP_FIT_ERROR: built without GSL. */
gboolean sp_validation_score (const SpValidation *validation, gboolean fitted, SpScores *ret, GError **error);

/* --- fit.c: with GSL ---------------------------------------------------------------------------------------------- */

typedef struct {
  const SpConstant *constant; /* borrowed of a set */
  double start, value, error;
  gboolean is_fixed; /* the runs do not say it */
} SpFittedConstant;

typedef struct {
  GArray *constants; /* SpFittedConstant */
  guint n_runs, n_points;
  double before, after; /* median error of the points */
} SpValidationFit;

/* The constants of all the sets, to their fitted runs together. NULL: no fit was found, or SP_FIT_ERROR. */
SpValidationFit *sp_validation_fit (SpValidation *const *sets, guint n_sets, GError **error);
void sp_validation_fit_free (SpValidationFit *fit);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpValidationFit, sp_validation_fit_free)

G_END_DECLS
