/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tests of the CUDA kernels that are no case beside a reference: tensors of more than 2^31 elements, and what is
 * refused. */
void sp_add_limit_tests (void);
