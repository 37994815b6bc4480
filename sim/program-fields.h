/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The fields of the program's structures as tables, and lines of key=value made of them: private to the text form
 * (program-text.c). A table is the one list of a structure's fields, for the writer and the reader alike.
 */

#include "sim/program.h"

G_BEGIN_DECLS

typedef enum { SP_FIELD_U8, SP_FIELD_U16, SP_FIELD_I32, SP_FIELD_U32, SP_FIELD_I64, SP_FIELD_DOUBLE, SP_FIELD_STRING } SpFieldType;

typedef struct {
  const char *name;
  guint16 offset;
  guint8 type;                        /* SpFieldType of an element */
  guint8 count;                       /* elements; of a string its characters and the final 0 */
  guint8 n_names;                     /* of an enumeration, at most */
  const char *(*namer) (guint value); /* of an enumeration; NULL beyond the last */
  const char *const *bits;            /* names of bits, NULL-terminated */
} SpField;

/* What has no structure of its own in program.h but a line in the text. */
typedef struct {
  guint8 name; /* SpGroupId */
  SpGroup g;
} SpGroupLine;

typedef struct {
  guint8 slot;
  SpBuffer b;
  guint16 first[2], last[2];
} SpBufferLine;

typedef struct {
  guint8 name; /* SpPhase */
} SpPhaseLine;

extern const SpField sp_fields_program[], sp_fields_numbers[], sp_fields_digit[], sp_fields_group[],
    sp_fields_variant[], sp_fields_block[], sp_fields_flat[], sp_fields_weight[], sp_fields_buffer[], sp_fields_loop[],
    sp_fields_carry[], sp_fields_phase[], sp_fields_op[];

/* Appends " key=value" for every field that is not zero, and for the first if it is an enumeration. */
void sp_fields_write (const SpField *fields, const void *record, GString *out);

/* Reads `words` (NULL-terminated) into *record, whose fields of the table are first set to zero. Returns NULL, or what
 * is wrong; free it. */
char *sp_fields_read (const SpField *fields, char **words, void *record);

/* Checks of what was read, so that it is safe to walk (program-check.c): NULL, or what is wrong; free it. The second
 * one is for an op at `index` of `phase` of a block whose buffers and loops are known; block NULL: of the pipeline. */
char *sp_program_check (const SpProgram *program);
char *sp_program_check_op (const SpBlock *block, SpPhase phase, guint index, const SpOp *op);

G_END_DECLS
