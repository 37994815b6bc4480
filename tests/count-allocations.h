/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts calls of malloc, calloc and realloc while `counting_allocations` is set, by standing in for the C library's
 * own. For one file of a program. With the address sanitizer, which stands in for them itself, by its hook. */

#include <glib.h>
#include <stdlib.h>

static gboolean counting_allocations;
static guint64 allocations;

#if defined(__SANITIZE_ADDRESS__)

#define COUNTS_ALLOCATIONS 1

int __sanitizer_install_malloc_and_free_hooks (void (*malloc_hook) (const volatile void *, size_t),
                                               void (*free_hook) (const volatile void *));

static void
note_malloc (const volatile void *memory, size_t size)
{
  (void) memory;
  (void) size;
  allocations += counting_allocations;
}

static void
note_free (const volatile void *memory)
{
  (void) memory;
}

static inline void
count_allocations_init (void)
{
  __sanitizer_install_malloc_and_free_hooks (note_malloc, note_free);
}

#elif defined(__GLIBC__)

#define COUNTS_ALLOCATIONS 1

void *__libc_malloc (size_t size);
void *__libc_calloc (size_t n, size_t size);
void *__libc_realloc (void *memory, size_t size);

void *
malloc (size_t size)
{
  allocations += counting_allocations;
  return __libc_malloc (size);
}

void *
calloc (size_t n, size_t size)
{
  allocations += counting_allocations;
  return __libc_calloc (n, size);
}

void *
realloc (void *memory, size_t size)
{
  allocations += counting_allocations;
  return __libc_realloc (memory, size);
}

static inline void
count_allocations_init (void)
{
}

#else

#define COUNTS_ALLOCATIONS 0

static inline void
count_allocations_init (void)
{
}

#endif
