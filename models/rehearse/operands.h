/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a kernel's handler, of an SpCall *c, says of its op: operands, each of as many elements as its slot, and sizes. */

#include "models/rehearse/private.h"

#define IN(i, elements) sp_call_read (c, c->op->in[i], elements)
#define OUT(i, elements) sp_call_write (c, c->op->out[i], elements)
#define M ((gint64) c->op->m)
#define N ((gint64) c->op->n)
#define K ((gint64) c->op->k)
#define HEADS ((gint64) c->op->heads)
#define FLAG(name) ((c->op->flags & SP_OP_##name) != 0)
