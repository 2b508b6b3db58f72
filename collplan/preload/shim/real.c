/* Functions and handles of the MPI library, looked up in the libraries of this process.
 *
 * Definitions of a function form a chain: the program's own, those of libraries that are preloaded
 * or that the program is linked with, and that of MPI. This library is a link of the chain. Tools
 * that count or measure calls are others: they define MPI_ functions, and call PMPI_ functions. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrapping.h"

struct cp_real cp_real;

#define X(name, type, number, symbol) type cp_##name;
CP_HANDLES(X)
#undef X

static void *library; /* MPI library that the program has loaded by itself, so that it is local */
static char problem[1024];

/* Return the library or program that contains an address, or NULL. */
static const struct link_map *object_of(const void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    if (address == NULL || !dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP)) return NULL;
    return map;
}

/* Return the name that a library has for the system, such as libmpi.so.12; empty if it has none. */
static const char *name_of(const struct link_map *object) {
    const char *texts = NULL;
    size_t place = 0;
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) texts = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SONAME) place = entry->d_un.d_val;
    }
    if (texts != NULL && (uintptr_t)texts < object->l_addr) texts += object->l_addr;
    return texts != NULL && place != 0 ? texts + place : "";
}

/* Open the library that defines PMPI_Init, if the program has loaded it by itself. */
static void find_library(void) {
    const struct link_map *object = dlopen(NULL, RTLD_LAZY);
    for (; object != NULL && library == NULL; object = object->l_next) {
        void *opened = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (opened == NULL) continue;
        if (object_of(dlsym(opened, "PMPI_Init")) == object &&
            object != object_of((void *)find_library))
            library = opened;
        else dlclose(opened);
    }
}

void *cp_symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL && library != NULL) found = dlsym(library, name);
    return found;
}

void *cp_next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL && library == NULL && dlsym(RTLD_NEXT, "PMPI_Init") == NULL) find_library();
    if (found == NULL && library != NULL) found = dlsym(library, name);
    return found;
}

void *cp_needed(const char *name) {
    void *found = cp_next(name);
    if (found != NULL) return found;
    fprintf(stderr, "collplan: error: no library of this program has %s; is it MPI?\n", name);
    abort();
}

/* Return whether another library or the program defines a function, given the name of MPI's own. */
static bool has_tool(const char *own) {
    /* RTLD_DEFAULT would begin with this library, because its symbols are bound to itself. */
    void *all = dlopen(NULL, RTLD_LAZY);
    const struct link_map *first = object_of(dlsym(all, own + 1));
    const struct link_map *next = object_of(cp_next(own + 1));
    return first != object_of((void *)has_tool) ||
           (next != NULL && next != object_of(cp_next(own)));
}

void cp_find_links(struct cp_links *links, const char *own) {
    void *next = cp_needed(own + 1);
    links->own = cp_needed(own);
    links->is_tool = object_of(next) != object_of(links->own);
    links->is_wrapped = has_tool(own);
#ifdef COLLPLAN_OPENMPI
    /* Routines of Fortran call PMPI functions, so a tool for Fortran leads there, too. */
    char routine[64];
    size_t n = 0;
    for (; own[n] != '\0' && n < sizeof routine - 2; n++) routine[n] = (char)tolower(own[n]);
    memcpy(routine + n, "_", 2);
    links->is_wrapped = links->is_wrapped || has_tool(routine);
#endif
    __atomic_store_n(&links->next, next, __ATOMIC_RELEASE);
}

/* Look up everything, and write into `problem` why plans cannot run, if they cannot. */
static void resolve(void) {
    const struct link_map *object = object_of(cp_next("PMPI_Init"));
    const char *expected = getenv("COLLPLAN_PRELOAD_MPI");
    if (object == NULL) {
        snprintf(problem, sizeof problem, "no library of the program is known to be MPI");
        return;
    }
    /* Without this interface, handles and constants have other values: none may be used. */
    if (strstr(name_of(object), CP_ABI) == NULL) {
        snprintf(problem, sizeof problem,
                 "the program's MPI is %s, plans here are for that of mpi4py, %s", object->l_name,
                 expected != NULL && expected[0] != '\0' ? expected : "*" CP_ABI);
        return;
    }
#define X(result, name, parameters) \
    if ((*(void **)&cp_real.name = cp_next("PMPI_" #name)) == NULL) \
        snprintf(problem, sizeof problem, "%s has no PMPI_" #name, object->l_name);
    CP_REAL(X)
#undef X
#define X(name, type, number, symbol) cp_##name = CP_HANDLE(type, number, symbol);
    CP_HANDLES(X)
#undef X
}

MPI_Errhandler cp_silence(MPI_Comm comm) {
    MPI_Errhandler handler = cp_ERRORS_RETURN;
    cp_real.Comm_get_errhandler(comm, &handler);
    cp_real.Comm_set_errhandler(comm, cp_ERRORS_RETURN);
    return handler;
}

void cp_restore(MPI_Comm comm, MPI_Errhandler handler) {
    cp_real.Comm_set_errhandler(comm, handler);
    cp_real.Errhandler_free(&handler);
}

const char *cp_resolve(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, resolve);
    return problem[0] != '\0' ? problem : NULL;
}
