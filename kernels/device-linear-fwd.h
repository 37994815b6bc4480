/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kernels/device.h"

/* Bytes of scratch that linear attention's forward wants. */
size_t linear_forward_scratch (SpDevShape shape);
