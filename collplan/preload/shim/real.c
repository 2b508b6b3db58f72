/* Functions and handles of the MPI library, looked up in the libraries of this process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

struct cp_real cp_real;

#define X(name, type, number, symbol) type cp_##name;
CP_HANDLES(X)
#undef X

static void *library;

void *cp_symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL && library != NULL) found = dlsym(library, name);
    return found;
}

static void *function(const char *name) {
    void *found = cp_symbol(name);
    if (found == NULL) {
        fprintf(stderr, "collplan: error: no library of this program has %s; is it MPI?\n", name);
        abort();
    }
    return found;
}

static void resolve(void) {
    /* A program may load MPI by itself, so that its symbols are not visible to other libraries. */
    const char *path = getenv("COLLPLAN_PRELOAD_MPI");
    if (dlsym(RTLD_DEFAULT, "PMPI_Init") == NULL && path != NULL && path[0] != '\0')
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
#define X(result, name, parameters) *(void **)&cp_real.name = function("PMPI_" #name);
    CP_REAL(X)
#undef X
#define X(name, type, number, symbol) cp_##name = CP_HANDLE(type, number, symbol);
    CP_HANDLES(X)
#undef X
}

void cp_resolve(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, resolve);
}
