/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * json-glib keeps the last of two equal keys in silence, wraps integers beyond 64 bits, takes octal and hexadecimal
 * ones and comments, and recurses as deep as a file nests. So the text is scanned before it is parsed.
 */

#include <json-glib/json-glib.h>

G_BEGIN_DECLS

/* The object that is the whole of a text, with a 0 after its `length` bytes; `path` is for messages. */
JsonObject *sp_json_parse (const char *path, const char *text, gsize length, GError **error);

G_END_DECLS
