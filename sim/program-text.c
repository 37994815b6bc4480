/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/program-fields.h"

#include "sim/schedules.h"

#include <string.h>

/*
 * The program as text. A line is a keyword and key=value fields, separated by spaces; a field that is left out is zero,
 * or the first name of its enumeration. The order of lines is the order of the structures:
 *
 *    seqpar-program 4                      the version
 *    program world=.. sequence=.. ..       one
 *    numbers norm_epsilon=.. ..            one
 *    digit axis=.. size=.. stride=..       each digit of the rank
 *    group name=.. size=.. digits=..       each group
 *    layers 1*7 2 1*7                      block of each layer, in runs
 *    stages 0 8 15                         first layer of each virtual stage, then the number of layers
 *    documents 512*3 70                    where sequences are packed: lengths in tokens, in runs
 *    variant batch=..                      one or two, each followed by
 *      pipe_send kind=.. ..
 *      pipe_receive kind=.. ..
 *      pipe_gather kind=.. ..              where messages come in parts
 *      block kind=.. ..                    the same number in both variants, each followed by
 *        buffer slot=1 ..                  slots in order; first and last: uses in FORWARD, in BACKWARD
 *        flat group=.. ..                parameters of the same ranks, one to three
 *        weight name=.. ..
 *        loop phase=.. ..
 *          carry init=.. ..
 *        phase name=forward                each phase that has ops, in order, followed by
 *          op kind=.. ..
 *    end
 *
 * Lines that are empty or begin with '#' are skipped. Fields have the names of program.h (program-fields.c lists them).
 * Enumerations and flags are written by name, flags as a|b, arrays as a,b without their trailing zeros, and numbers so
 * that they read back exactly: reading what was written gives the same program, and writing that the same text.
 *
 * The reader is strict: no unknown, repeated or malformed field, nothing out of range or out of order, and no program
 * whose indices lead outside its own tables (program-check.c).
 */

/* --- writing -------------------------------------------------------------------------------------------------- */

static void
write_line (GString *out, const char *keyword, const SpField *fields, const void *record)
{
  g_string_append (out, keyword);
  sp_fields_write (fields, record, out);
  g_string_append_c (out, '\n');
}

static void
write_ranks (const SpProgram *program, GString *out)
{
  for (guint i = 0; i < program->n_digits; i++)
    write_line (out, "digit", sp_fields_digit, &program->digits[i]);
  for (guint i = 0; i < SP_N_GROUPS; i++) {
    SpGroupLine line = { i, program->groups[i] };

    write_line (out, "group", sp_fields_group, &line);
  }
}

static void
write_layers (const SpProgram *program, GString *out)
{
  guint run;

  g_string_append (out, "layers");
  for (guint i = 0; i < program->n_layers; i += run) {
    for (run = 1; i + run < program->n_layers && program->layer_block[i + run] == program->layer_block[i];)
      run++;
    g_string_append_printf (out, " %u", program->layer_block[i]);
    if (run > 1)
      g_string_append_printf (out, "*%u", run);
  }
  g_string_append (out, "\nstages");
  for (gint32 i = 0; i <= sp_program_virtual_stages (program); i++)
    g_string_append_printf (out, " %d", program->stage_first[i]);
  g_string_append (out, program->n_documents > 0 ? "\ndocuments" : "");
  for (guint i = 0; i < program->n_documents; i++) {
    const SpDocuments *run = &program->documents[i];
    g_string_append_printf (out, run->count > 1 ? " %" G_GINT64_FORMAT "*%" G_GINT64_FORMAT : " %" G_GINT64_FORMAT,
                            run->length, run->count);
  }
  g_string_append_c (out, '\n');
}

static void
write_block (const SpProgram *program, const SpBlock *block, GString *out)
{
  write_line (out, "  block", sp_fields_block, block);
  for (guint i = 1; i < block->n_buffers; i++) {
    SpBufferLine line = { .slot = i, .b = block->buffers[i] };

    for (guint j = 0; j < 2; j++) {
      line.first[j] = block->first_use[j][i];
      line.last[j] = block->last_use[j][i];
    }
    write_line (out, "    buffer", sp_fields_buffer, &line);
  }
  for (guint i = 0; i < block->n_flats; i++)
    write_line (out, "    flat", sp_fields_flat, &block->flats[i]);
  for (guint i = 0; i < block->n_weights; i++)
    write_line (out, "    weight", sp_fields_weight, &block->weights[i]);
  for (guint i = 0; i < block->n_loops; i++) {
    write_line (out, "    loop", sp_fields_loop, &block->loops[i]);
    for (guint j = 0; j < block->loops[i].n_carries; j++)
      write_line (out, "      carry", sp_fields_carry, &block->loops[i].carries[j]);
  }
  for (guint phase = 0; phase < SP_N_PHASES; phase++) {
    SpPhaseLine line = { phase };
    guint n;
    const SpOp *ops = sp_program_segment (program, block, phase, &n);

    if (n > 0)
      write_line (out, "    phase", sp_fields_phase, &line);
    for (guint i = 0; i < n; i++)
      write_line (out, "      op", sp_fields_op, &ops[i]);
  }
}

void
sp_program_write_text (const SpProgram *program, GString *out)
{
  g_string_append_printf (out, "seqpar-program %d\n", SP_PROGRAM_VERSION);
  write_line (out, "program", sp_fields_program, program);
  write_line (out, "numbers", sp_fields_numbers, &program->numbers);
  write_ranks (program, out);
  write_layers (program, out);
  for (gint32 i = 0; i < program->n_variants; i++) {
    const SpVariant *variant = &program->variants[i];

    write_line (out, "variant", sp_fields_variant, variant);
    write_line (out, "  pipe_send", sp_fields_op, &variant->pipe_send);
    write_line (out, "  pipe_receive", sp_fields_op, &variant->pipe_receive);
    if (variant->pipe_gather.n > 0)
      write_line (out, "  pipe_gather", sp_fields_op, sp_program_pipe_gather (program, variant));
    for (guint j = 0; j < program->n_blocks; j++)
      write_block (program, &variant->blocks[j], out);
  }
  g_string_append (out, "end\n");
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* More than any machine has, few enough to allocate on a file's word. */
#define MOST_LAYERS 65536

typedef struct {
  SpProgram *program;
  SpVariant *variant;
  guint n_blocks; /* of the variant so far */
  SpBlock *block;
  gint phase; /* of the block, -1 before the first */
  gint state; /* row of the keyword table that was read last */
  guint groups_seen;
} Reader;

/* Handlers return NULL, or what is wrong; `words` are those after the keyword. */
typedef char *(*Handler) (Reader *reader, char **words);

static char *
read_version (Reader *reader, char **words)
{
  (void) reader;
  if (words[0] == NULL || words[1] != NULL || !g_str_equal (words[0], G_STRINGIFY (SP_PROGRAM_VERSION)))
    return g_strdup_printf ("version '%s', expected %d", words[0] != NULL ? words[0] : "", SP_PROGRAM_VERSION);
  return NULL;
}

static char *
read_program (Reader *reader, char **words)
{
  return sp_fields_read (sp_fields_program, words, reader->program);
}

static char *
read_numbers (Reader *reader, char **words)
{
  return sp_fields_read (sp_fields_numbers, words, &reader->program->numbers);
}

static char *
read_digit (Reader *reader, char **words)
{
  SpProgram *program = reader->program;

  if (program->n_digits == SP_MAX_DIGITS)
    return g_strdup_printf ("more than %d digits", SP_MAX_DIGITS);
  return sp_fields_read (sp_fields_digit, words, &program->digits[program->n_digits++]);
}

static char *
read_group (Reader *reader, char **words)
{
  SpGroupLine line = { 0 };
  char *problem = sp_fields_read (sp_fields_group, words, &line);

  if (problem != NULL)
    return problem;
  if (reader->groups_seen & 1u << line.name)
    return g_strdup_printf ("group %s stands twice", sp_group_name (line.name));
  reader->groups_seen |= 1u << line.name;
  reader->program->groups[line.name] = line.g;
  return NULL;
}

static char *
read_layers (Reader *reader, char **words)
{
  SpProgram *program = reader->program;

  for (char **word = words; *word != NULL; word++) {
    g_auto (GStrv) parts = g_strsplit (*word, "*", 2);
    gint64 block, run = 1;

    if (!g_ascii_string_to_signed (parts[0], 10, 0, SP_MAX_BLOCKS - 1, &block, NULL) ||
        (parts[1] != NULL && !g_ascii_string_to_signed (parts[1], 10, 2, MOST_LAYERS, &run, NULL)))
      return g_strdup_printf ("'%s' is no block or block*count", *word);
    if (program->n_layers + run > MOST_LAYERS)
      return g_strdup_printf ("more than %d layers", MOST_LAYERS);
    if (program->n_layers + run > program->layers_capacity) {
      program->layers_capacity = 2 * (program->n_layers + run);
      program->layer_block = g_renew (guint8, program->layer_block, program->layers_capacity);
    }
    memset (program->layer_block + program->n_layers, (int) block, run);
    program->n_layers += run;
  }
  return NULL;
}

static char *
read_stages (Reader *reader, char **words)
{
  SpProgram *program = reader->program;
  guint n = g_strv_length (words);

  program->stages = program->groups[SP_GROUP_PIPELINE].size;
  if (program->stages < 1 || program->stages > MOST_LAYERS || program->chunks < 1 || program->chunks > SP_MAX_CHUNKS)
    return g_strdup_printf ("%d chunks on each of %d stages", program->chunks, program->stages);
  if (n != (guint) sp_program_virtual_stages (program) + 1)
    return g_strdup_printf ("%u numbers, expected %d for %d chunks on each of %d stages", n,
                            sp_program_virtual_stages (program) + 1, program->chunks, program->stages);
  program->stages_capacity = n;
  program->stage_first = g_new0 (gint32, n);
  for (guint i = 0; i < n; i++) {
    gint64 first;

    if (!g_ascii_string_to_signed (words[i], 10, 0, MOST_LAYERS, &first, NULL))
      return g_strdup_printf ("'%s' is no layer", words[i]);
    program->stage_first[i] = (gint32) first;
  }
  return NULL;
}

static char *
read_documents (Reader *reader, char **words)
{
  g_autoptr (GArray) runs = g_array_new (FALSE, FALSE, sizeof (SpDocuments));

  for (char **word = words; *word != NULL; word++) {
    g_auto (GStrv) parts = g_strsplit (*word, "*", 2);
    SpDocuments run = { 0, 1 };

    if (!g_ascii_string_to_signed (parts[0], 10, 1, 1 << 30, &run.length, NULL) ||
        (parts[1] != NULL && !g_ascii_string_to_signed (parts[1], 10, 2, 1 << 20, &run.count, NULL)))
      return g_strdup_printf ("'%s' is no length or length*count", *word);
    g_array_append_val (runs, run);
  }
  if (!reader->program->packed || runs->len == 0 || runs->len > SP_MAX_DOCUMENTS)
    return g_strdup_printf ("%u runs of documents", runs->len);
  sp_program_set_documents (reader->program, (const SpDocuments *) (gconstpointer) runs->data, runs->len);
  return NULL;
}

/* Nothing of the block or the variant that ends here may be missing. */
static char *
end_variant (Reader *reader)
{
  if (reader->program->n_variants == 1)
    reader->program->n_blocks = reader->n_blocks;
  else if (reader->n_blocks != reader->program->n_blocks)
    return g_strdup_printf ("a variant with %u blocks after one with %u", reader->n_blocks, reader->program->n_blocks);
  return NULL;
}

static char *
read_variant (Reader *reader, char **words)
{
  SpProgram *program = reader->program;
  char *problem = program->n_variants > 0 ? end_variant (reader) : NULL;

  if (problem != NULL)
    return problem;
  if (program->n_variants == SP_MAX_VARIANTS)
    return g_strdup_printf ("more than %d variants", SP_MAX_VARIANTS);
  sp_program_set_variants (program, program->n_variants + 1);
  reader->variant = &program->variants[program->n_variants - 1];
  reader->n_blocks = 0;
  return sp_fields_read (sp_fields_variant, words, reader->variant);
}

static char *
read_pipe (SpOp *op, char **words)
{
  char *problem = sp_fields_read (sp_fields_op, words, op);

  return problem != NULL ? problem : sp_program_check_op (NULL, 0, 0, op);
}

static char *
read_pipe_send (Reader *reader, char **words)
{
  return read_pipe (&reader->variant->pipe_send, words);
}

static char *
read_pipe_receive (Reader *reader, char **words)
{
  return read_pipe (&reader->variant->pipe_receive, words);
}

/* One more op of the program. */
static SpOp *
add_op (SpProgram *program)
{
  if (program->n_ops == program->ops_capacity) {
    program->ops_capacity = MAX (256, 2 * program->ops_capacity);
    program->ops = g_renew (SpOp, program->ops, program->ops_capacity);
  }
  return &program->ops[program->n_ops++];
}

static char *
read_pipe_gather (Reader *reader, char **words)
{
  reader->variant->pipe_gather = (SpSegment){ .first = reader->program->n_ops, .n = 1 };
  return read_pipe (add_op (reader->program), words);
}

static char *
read_block (Reader *reader, char **words)
{
  if (reader->n_blocks == SP_MAX_BLOCKS)
    return g_strdup_printf ("more than %d blocks", SP_MAX_BLOCKS);
  reader->block = &reader->variant->blocks[reader->n_blocks++];
  reader->block->n_buffers = 1;
  reader->phase = -1;
  return sp_fields_read (sp_fields_block, words, reader->block);
}

static char *
read_buffer (Reader *reader, char **words)
{
  SpBlock *block = reader->block;
  SpBufferLine line = { 0 };
  char *problem = sp_fields_read (sp_fields_buffer, words, &line);

  if (problem != NULL)
    return problem;
  if (block->n_buffers == SP_MAX_SLOTS || line.slot != block->n_buffers)
    return g_strdup_printf ("slot %u, expected %u of at most %d", line.slot, block->n_buffers, SP_MAX_SLOTS - 1);
  block->buffers[line.slot] = line.b;
  for (guint i = 0; i < 2; i++) {
    block->first_use[i][line.slot] = line.first[i];
    block->last_use[i][line.slot] = line.last[i];
  }
  block->n_buffers++;
  return NULL;
}

static char *
read_flat (Reader *reader, char **words)
{
  SpBlock *block = reader->block;

  if (block->n_flats == SP_MAX_FLATS)
    return g_strdup_printf ("more than %d flats", SP_MAX_FLATS);
  return sp_fields_read (sp_fields_flat, words, &block->flats[block->n_flats++]);
}

static char *
read_weight (Reader *reader, char **words)
{
  SpBlock *block = reader->block;

  if (block->n_weights == SP_MAX_WEIGHTS)
    return g_strdup_printf ("more than %d weights", SP_MAX_WEIGHTS);
  return sp_fields_read (sp_fields_weight, words, &block->weights[block->n_weights++]);
}

static char *
read_loop (Reader *reader, char **words)
{
  SpBlock *block = reader->block;

  if (block->n_loops == SP_MAX_LOOPS)
    return g_strdup_printf ("more than %d loops", SP_MAX_LOOPS);
  return sp_fields_read (sp_fields_loop, words, &block->loops[block->n_loops++]);
}

static char *
read_carry (Reader *reader, char **words)
{
  SpLoop *loop = &reader->block->loops[reader->block->n_loops - 1];

  if (loop->n_carries == SP_MAX_CARRIES)
    return g_strdup_printf ("more than %d carries", SP_MAX_CARRIES);
  return sp_fields_read (sp_fields_carry, words, &loop->carries[loop->n_carries++]);
}

static char *
read_phase (Reader *reader, char **words)
{
  SpPhaseLine line = { 0 };
  char *problem = sp_fields_read (sp_fields_phase, words, &line);

  if (problem != NULL)
    return problem;
  if (line.name <= reader->phase)
    return g_strdup_printf ("%s comes after %s", sp_phase_name (line.name), sp_phase_name (reader->phase));
  reader->phase = line.name;
  reader->block->segments[line.name].first = reader->program->n_ops;
  return NULL;
}

static char *
read_op (Reader *reader, char **words)
{
  SpProgram *program = reader->program;
  SpSegment *segment = &reader->block->segments[reader->phase];
  SpOp *op;
  char *problem;

  if (segment->n == G_MAXUINT16 - 1)
    return g_strdup ("too many ops in one phase");
  op = add_op (program);
  problem = sp_fields_read (sp_fields_op, words, op);
  segment->n++;
  return problem != NULL ? problem : sp_program_check_op (reader->block, reader->phase, segment->n - 1, op);
}

static char *
read_end (Reader *reader, char **words)
{
  char *problem = words[0] != NULL ? g_strdup_printf ("'%s' after end", words[0]) : end_variant (reader);

  return problem != NULL ? problem : sp_program_check (reader->program);
}

/* Which keywords may stand after which: bits of rows. */
enum {
  VERSION,
  PROGRAM,
  NUMBERS,
  DIGIT,
  GROUP,
  LAYERS,
  STAGES,
  DOCUMENTS,
  VARIANT,
  PIPE_SEND,
  PIPE_RECEIVE,
  PIPE_GATHER,
  BLOCK,
  BUFFER,
  FLAT,
  WEIGHT,
  LOOP,
  CARRY,
  PHASE,
  OP,
  END,
  N_KEYWORDS
};
#define B(row) (1u << (row))
#define IN_BLOCK (B (BLOCK) | B (BUFFER) | B (FLAT) | B (WEIGHT) | B (LOOP) | B (CARRY) | B (OP))

static const struct {
  const char *keyword;
  Handler handler;
  guint after;
} keywords[N_KEYWORDS] = {
  [VERSION] = { "seqpar-program", read_version, 0 },
  [PROGRAM] = { "program", read_program, B (VERSION) },
  [NUMBERS] = { "numbers", read_numbers, B (PROGRAM) },
  [DIGIT] = { "digit", read_digit, B (NUMBERS) | B (DIGIT) },
  [GROUP] = { "group", read_group, B (NUMBERS) | B (DIGIT) | B (GROUP) },
  [LAYERS] = { "layers", read_layers, B (GROUP) },
  [STAGES] = { "stages", read_stages, B (LAYERS) },
  [DOCUMENTS] = { "documents", read_documents, B (STAGES) },
  [VARIANT] = { "variant", read_variant, B (STAGES) | B (DOCUMENTS) | IN_BLOCK },
  [PIPE_SEND] = { "pipe_send", read_pipe_send, B (VARIANT) },
  [PIPE_RECEIVE] = { "pipe_receive", read_pipe_receive, B (PIPE_SEND) },
  [PIPE_GATHER] = { "pipe_gather", read_pipe_gather, B (PIPE_RECEIVE) },
  [BLOCK] = { "block", read_block, B (PIPE_RECEIVE) | B (PIPE_GATHER) | IN_BLOCK },
  [BUFFER] = { "buffer", read_buffer, B (BLOCK) | B (BUFFER) },
  [FLAT] = { "flat", read_flat, B (BUFFER) | B (FLAT) },
  [WEIGHT] = { "weight", read_weight, B (FLAT) | B (WEIGHT) },
  [LOOP] = { "loop", read_loop, B (BUFFER) | B (FLAT) | B (WEIGHT) | B (LOOP) | B (CARRY) },
  [CARRY] = { "carry", read_carry, B (LOOP) | B (CARRY) },
  [PHASE] = { "phase", read_phase, IN_BLOCK },
  [OP] = { "op", read_op, B (PHASE) | B (OP) },
  [END] = { "end", read_end, IN_BLOCK },
};

/* NULL-terminated words of a line, without empty ones. */
static char **
split_words (const char *line)
{
  char **words = g_strsplit_set (line, " \t", -1);
  guint n = 0;

  for (guint i = 0; words[i] != NULL; i++)
    if (*words[i] != '\0')
      words[n++] = words[i];
    else
      g_free (words[i]);
  words[n] = NULL;
  return words;
}

/* A line that messages can show, and no NUL cuts short. */
static char *
check_characters (const char *line, gsize length)
{
  for (gsize i = 0; i < length; i++)
    if (g_ascii_iscntrl (line[i]) && line[i] != '\t')
      return g_strdup_printf ("control character 0x%02x", (guchar) line[i]);
  return g_utf8_validate (line, (gssize) length, NULL) ? NULL : g_strdup ("not UTF-8");
}

static char *
read_line (Reader *reader, const char *line, gsize length)
{
  char *problem = check_characters (line, length);
  g_auto (GStrv) words = split_words (line);

  if (problem != NULL)
    return problem;
  if (words[0] == NULL || *words[0] == '#')
    return NULL;
  for (guint i = 0; i < N_KEYWORDS; i++) {
    if (!g_str_equal (keywords[i].keyword, words[0]))
      continue;
    if (reader->state < 0 ? i != VERSION : !(keywords[i].after & B (reader->state)))
      return g_strdup_printf ("'%s' is out of place here", words[0]);
    reader->state = (gint) i;
    return keywords[i].handler (reader, words + 1);
  }
  return g_strdup_printf ("unknown keyword '%s'", words[0]);
}

SpProgram *
sp_program_read_text (const char *text, gsize length, const char *file_name, GError **error)
{
  g_autoptr (SpProgram) program = sp_program_new ();
  Reader reader = { .program = program, .state = -1, .phase = -1 };
  guint number = 0;

  for (const char *at = text, *end = length > 0 ? text + length : text; at < end; number++) {
    const char *newline = memchr (at, '\n', (gsize) (end - at));
    const char *stop = newline != NULL ? newline : end;
    g_autofree char *line = g_strndup (at, (gsize) (stop - at));
    g_autofree char *problem = read_line (&reader, line, (gsize) (stop - at));

    if (problem != NULL) {
      g_set_error (error, G_KEY_FILE_ERROR, G_KEY_FILE_ERROR_PARSE, "%s:%u: %s", file_name, number + 1, problem);
      return NULL;
    }
    at = stop + 1;
  }
  if (reader.state != END) {
    g_set_error (error, G_KEY_FILE_ERROR, G_KEY_FILE_ERROR_PARSE, "%s:%u: the file ends before 'end'", file_name,
                 number + 1);
    return NULL;
  }
  return g_steal_pointer (&program);
}
