/* SPDX-License-Identifier: Apache-2.0 */
/* One way of saying which call to NCCL failed. Where this was built without it, nothing. */
#pragma once

#include <glib.h>

#if HAVE_NCCL
#include <nccl.h>

/* `comm` may be NULL. The error has the call, the library's word for it and its last one of the communicator. */
gboolean sp_check_nccl (ncclComm_t comm, ncclResult_t status, const char *call, GError **error);
#define NCCL(call) sp_check_nccl (comm, call, #call, error)
#endif
