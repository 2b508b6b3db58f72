/* Definitions of MPI's functions: their arguments, and the chain of definitions. */
#ifndef COLLPLAN_WRAPPING_H
#define COLLPLAN_WRAPPING_H

#include "shim.h"

/* Definitions behind this library's of a function with the names MPI_... and PMPI_..., or mpi_..._
 * and pmpi_..._. A tool is another library, or the program, that defines the former. */
struct cp_links {
    void *next, *own; /* MPI_... of a tool or of MPI, and PMPI_... of MPI */
    bool is_tool;     /* whether `next` is of a tool */
    bool is_wrapped;  /* whether there is a tool, behind this library or before it */
};
void cp_find_links(struct cp_links *links, const char *own);
#define CP_FIND_LINKS(links, own) \
    if (__atomic_load_n(&(links)->next, __ATOMIC_ACQUIRE) == NULL) cp_find_links(links, own)

/* Argument of a function that may have to be passed on to any MPI: a handle, an int or an address.
 * All of them are passed in the same way, and handles of other MPIs may be longer than ours. */
typedef intptr_t cp_word;
/* Lists of N arguments: parameters (L) and arguments (A). */
#define CP_L1 cp_word a1
#define CP_A1 a1
#define CP_L2 CP_L1, cp_word a2
#define CP_A2 CP_A1, a2
#define CP_L3 CP_L2, cp_word a3
#define CP_A3 CP_A2, a3
#define CP_L4 CP_L3, cp_word a4
#define CP_A4 CP_A3, a4
#define CP_L5 CP_L4, cp_word a5
#define CP_A5 CP_A4, a5
#define CP_L6 CP_L5, cp_word a6
#define CP_A6 CP_A5, a6
#define CP_L7 CP_L6, cp_word a7
#define CP_A7 CP_A6, a7
#define CP_L8 CP_L7, cp_word a8
#define CP_A8 CP_A7, a8
#define CP_L9 CP_L8, cp_word a9
#define CP_A9 CP_A8, a9
#define CP_L10 CP_L9, cp_word a10
#define CP_A10 CP_A9, a10
#define CP_L11 CP_L10, cp_word a11
#define CP_A11 CP_A10, a11
#define CP_L12 CP_L11, cp_word a12
#define CP_A12 CP_A11, a12

/* Note from where the program calls MPI. */
#define CP_NOTE_SITE cp_site = __builtin_return_address(0)

/* Define a function, given its name, the number of its arguments, whether this library does it now,
 * and how.
 *
 * If there is a tool, it sees the call first, and then calls the PMPI function. Without plans no
 * argument is read, because handles may be those of another MPI. */
#define CP_WRAP(name, n, is_ours, run) \
    static struct cp_links name##_links; \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if ((is_ours) && !name##_links.is_tool) { \
            CP_NOTE_SITE; \
            return run; \
        } \
        return ((int (*)(CP_L##n))name##_links.next)(CP_A##n); \
    } \
    CP_EXPORT int PMPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if ((is_ours) && name##_links.is_wrapped) { \
            CP_NOTE_SITE; \
            return run; \
        } \
        return ((int (*)(CP_L##n))name##_links.own)(CP_A##n); \
    }
/* Define a function in the same way that waits for a message or a request, given also the rank and the
 * tag of the message, or -1. */
#define CP_WRAP_AWAIT(name, n, is_ours, run, peer, tag) \
    static const char name##_name[CP_NAME_BYTES] = #name; \
    static int await_##name(CP_L##n, bool runs, void *next) { \
        if (cp_is_watched) cp_await_begin(name##_name, peer, tag); \
        int code = runs ? run : ((int (*)(CP_L##n))next)(CP_A##n); \
        if (cp_is_watched) cp_await_end(); \
        return code; \
    } \
    static struct cp_links name##_links; \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if (name##_links.is_tool || !(cp_is_watched || (is_ours))) \
            return ((int (*)(CP_L##n))name##_links.next)(CP_A##n); \
        CP_NOTE_SITE; \
        return await_##name(CP_A##n, is_ours, name##_links.next); \
    } \
    CP_EXPORT int PMPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if (!name##_links.is_wrapped || !(cp_is_watched || (is_ours))) \
            return ((int (*)(CP_L##n))name##_links.own)(CP_A##n); \
        CP_NOTE_SITE; \
        return await_##name(CP_A##n, is_ours, name##_links.own); \
    }
/* Define a form with large counts, given also whether the counts are small, the name and the reason
 * in statistics, the communicator, and the size in bytes. */
#define CP_WRAP_LARGE(name, n, is_small, run, shown, comm, n_bytes) \
    static struct cp_links name##_links; \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        bool is_ours = cp_settings.is_on && !name##_links.is_tool; \
        CP_NOTE_SITE; \
        if (is_ours && (is_small)) return run; \
        static const char padded[CP_NAME_BYTES] = shown; \
        int64_t begin = is_ours && cp_settings.is_logged ? cp_now_ns() : 0; \
        struct cp_mark mark = {NULL, 0, NULL}; \
        if (is_ours && cp_is_watched) mark = cp_enter(padded, (MPI_Comm)comm, 0, shown[0] == 'I'); \
        int code = ((int (*)(CP_L##n))name##_links.next)(CP_A##n); \
        cp_leave(mark); \
        if (begin != 0 && code == MPI_SUCCESS) \
            cp_note(shown, CP_LARGE, (MPI_Comm)comm, n_bytes, cp_now_ns() - begin); \
        return code; \
    } \
    CP_EXPORT int PMPI_##name(CP_L##n) { \
        CP_FIND_LINKS(&name##_links, "PMPI_" #name); \
        if (cp_settings.is_on && name##_links.is_wrapped && (is_small)) return run; \
        return ((int (*)(CP_L##n))name##_links.own)(CP_A##n); \
    }

#endif
