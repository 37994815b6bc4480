/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Words of reports and messages. */

#include <glib.h>

G_BEGIN_DECLS

/* What makes a plural of n things: "%d stage%s". */
static inline const char *
sp_plural (gint64 n)
{
  return n == 1 ? "" : "s";
}

G_END_DECLS
