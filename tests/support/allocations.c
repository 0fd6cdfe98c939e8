/* Counts what one thread allocates through Python's allocators: a hook around those that are in use.
 *
 * `tests/support/request_cost.py` compiles and loads it. Python's headers are not needed: the structure has been the same
 * since 3.5. Objects that come from a free list (floats, small tuples, frames) are not allocated, and are not counted.
 */
#include <stddef.h>

typedef struct {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *pointer, size_t size);
    void (*free)(void *context, void *pointer);
} Allocator;

extern void PyMem_GetAllocator(int domain, Allocator *allocator);
extern void PyMem_SetAllocator(int domain, Allocator *allocator);

#define DOMAINS 3 /* raw, mem, object */

static Allocator hooked[DOMAINS];
static __thread int is_counting;
static __thread long count;

static void *counted_malloc(void *context, size_t size) {
    Allocator *inner = context;
    count += is_counting;
    return inner->malloc(inner->context, size);
}

static void *counted_calloc(void *context, size_t elements, size_t size) {
    Allocator *inner = context;
    count += is_counting;
    return inner->calloc(inner->context, elements, size);
}

static void *counted_realloc(void *context, void *pointer, size_t size) {
    Allocator *inner = context;
    count += is_counting;
    return inner->realloc(inner->context, pointer, size);
}

static void inner_free(void *context, void *pointer) {
    Allocator *inner = context;
    inner->free(inner->context, pointer);
}

/* The calling thread's allocations from now on, or no longer. A hook adds nothing to what it allocates, so that it may be
 * taken away at any time. */
void allocations_count(int on) {
    for (int domain = 0; domain < DOMAINS; domain++) {
        if (on) {
            PyMem_GetAllocator(domain, &hooked[domain]);
            Allocator hook = {&hooked[domain], counted_malloc, counted_calloc, counted_realloc, inner_free};
            PyMem_SetAllocator(domain, &hook);
        } else {
            PyMem_SetAllocator(domain, &hooked[domain]);
        }
    }
    is_counting = on;
}

/* Of the calling thread. */
long allocations_counted(void) { return count; }
