/* Functions with which `collplan.Comm` makes the communicators of a Python program follow tables.
 *
 * Either the library is preloaded, or mpi4py's module is made to call this library's functions in place
 * of MPI's. Python answers the questions of these families. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim.h"

#ifdef __aarch64__
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOBAL = R_AARCH64_GLOB_DAT };
#else
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOBAL = R_X86_64_GLOB_DAT };
#endif

/* Dynamic section of a module: what is needed to find the places of functions of other libraries. */
struct tables {
    const ElfW(Sym) *symbols;
    const char *names;
    const ElfW(Rela) *relocations[2];
    size_t n_bytes[2];
};

static struct tables read_tables(const struct link_map *module) {
    struct tables found = {NULL, NULL, {NULL, NULL}, {0, 0}};
    for (const ElfW(Dyn) *entry = module->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = entry->d_un.d_ptr;
        /* Some C libraries leave offsets here, others addresses. */
        if (at < module->l_addr) at += module->l_addr;
        switch (entry->d_tag) {
        case DT_SYMTAB: found.symbols = (const ElfW(Sym) *)at; break;
        case DT_STRTAB: found.names = (const char *)at; break;
        case DT_RELA: found.relocations[0] = (const ElfW(Rela) *)at; break;
        case DT_RELASZ: found.n_bytes[0] = entry->d_un.d_val; break;
        case DT_JMPREL: found.relocations[1] = (const ElfW(Rela) *)at; break;
        case DT_PLTRELSZ: found.n_bytes[1] = entry->d_un.d_val; break;
        }
    }
    return found;
}

/* Write an address into memory that may be read-only after the start of a program. */
static bool write_at(void **place, void *address) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *begin = (char *)((uintptr_t)place & ~(page - 1));
    if (*place == address) return true;
    /* It stays writable, as other places of the page may be. */
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    *place = address;
    return true;
}

/* Let a loaded module call this library's functions in place of MPI's. Return whether it calls any. */
static bool redirect(void *module) {
    Dl_info own;
    struct link_map *map = NULL;
    bool is_any = false;
    if (dlinfo(module, RTLD_DI_LINKMAP, &map) != 0 || !dladdr((void *)redirect, &own)) return false;
    void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return false;
    struct tables tables = read_tables(map);
    for (int i = 0; i < 2; i++)
        for (size_t n = 0; n < tables.n_bytes[i] / sizeof *tables.relocations[i]; n++) {
            const ElfW(Rela) *one = &tables.relocations[i][n];
            const char *name = tables.names + tables.symbols[ELF64_R_SYM(one->r_info)].st_name;
            void **place = (void **)(map->l_addr + one->r_offset);
            bool is_function = ELF64_R_TYPE(one->r_info) == JUMP_SLOT ||
                               ELF64_R_TYPE(one->r_info) == GLOBAL;
            /* A function that MPI lacks has no address. */
            if (!is_function || *place == NULL || strncmp(name, "MPI_", 4) != 0) continue;
            void *found = dlsym(library, name);
            Dl_info info;
            /* The library's own dependencies may define the name, too. */
            if (found == NULL || !dladdr(found, &info) || info.dli_fbase != own.dli_fbase) continue;
            if (!write_at(place, found)) return false;
            is_any = true;
        }
    return is_any;
}

/* Return the reason why the library cannot serve a module, given its file, or NULL. */
CP_EXPORT const char *collplan_serve(const char *module) {
    const char *why = cp_resolve();
    if (why != NULL) return why;
    /* Preloaded, it is found before MPI, and needs no redirection. */
    Dl_info first, own;
    void *all = dlopen(NULL, RTLD_LAZY);
    void *found = dlsym(all, "MPI_Finalize");
    if (found != NULL && dladdr(found, &first) && dladdr((void *)redirect, &own) &&
        first.dli_fbase == own.dli_fbase)
        return NULL;
    void *opened = dlopen(module, RTLD_LAZY | RTLD_NOLOAD);
    return opened != NULL && redirect(opened) ? NULL : "mpi4py's calls of MPI cannot be redirected";
}

/* Answer a request of this library. */
CP_EXPORT void collplan_reply(struct cp_reply *reply, int64_t status, const void *bytes, int64_t n) {
    reply->bytes = malloc((size_t)n + 1);
    if (reply->bytes == NULL) return; /* the request stays without an answer */
    memcpy(reply->bytes, bytes, (size_t)n);
    reply->bytes[n] = '\0';
    reply->status = status;
    reply->n_bytes = n;
}

/* Found a family; return NULL if it cannot have plans, with the reason; collective. */
CP_EXPORT struct cp_family *collplan_found(const MPI_Comm *comm, cp_answer *answer, char *text,
                                           int64_t n_bytes) {
    struct cp_family *family = calloc(1, sizeof *family);
    if (family == NULL) abort(); /* as other ranks would wait for this one */
    family->answer = answer;
    if (cp_found(family, *comm, text, (size_t)n_bytes)) return family;
    free(family);
    return NULL;
}

/* Let Python answer no more requests, as it ends. */
CP_EXPORT void collplan_close(struct cp_family *family) {
    __atomic_store_n(&family->answer, NULL, __ATOMIC_RELEASE);
}

/* Add a communicator to a family, or free the plans of one that belongs to it. */
CP_EXPORT void collplan_join(const MPI_Comm *comm, struct cp_family *family) {
    if (!cp_join(*comm, family)) abort(); /* as other ranks would wait for this one */
}

/* Make what non-blocking calls have requested; collective. */
CP_EXPORT void collplan_prepare(const MPI_Comm *handle) {
    struct cp_comm *comm = cp_comm_of(*handle);
    if (comm != NULL) cp_make_requested(comm);
}

/* Store the statistics of a family as a reply. */
CP_EXPORT void collplan_rows(const struct cp_family *family, struct cp_reply *reply) {
    size_t n_bytes = 0;
    reply->bytes = cp_write_rows(family, &n_bytes);
    reply->n_bytes = (int64_t)n_bytes;
    reply->status = reply->bytes == NULL;
}

CP_EXPORT void collplan_name_operation(const MPI_Op *op, const char *name) {
    cp_name_operation(*op, name);
}
