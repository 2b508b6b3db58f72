/* Collectives that no plan runs, persistent forms, and forms with large counts whose counts differ per
 * rank. What runs natively is counted if statistics are requested. */
#include <stdlib.h>

#include "collectives.h"

struct cp_row *cp_row_of(MPI_Comm handle, const char *name, const char *why, int64_t n_bytes) {
    const struct cp_comm *comm = cp_comm_of(handle);
    if (comm == NULL) return NULL;
    /* For an intercommunicator, this is the size of the local group. */
    return cp_row(comm->family, name, "native", why, comm->size, n_bytes, false, -1, -1);
}

void cp_note(const char *name, const char *why, MPI_Comm comm, int64_t n_bytes, int64_t ns) {
    struct cp_row *row = cp_row_of(comm, name, why, n_bytes);
    if (row != NULL) cp_count(row, n_bytes, ns);
}

int64_t cp_bytes(int64_t n, MPI_Datatype type) {
    int size = 0;
    return cp_real.Type_size(type, &size) == MPI_SUCCESS && size > 0 ? n * size : 0;
}

static int64_t count_at(cp_word counts, int i, bool is_wide) {
    return is_wide ? ((const int64_t *)counts)[i] : ((const int *)counts)[i];
}

int cp_n_ranks(MPI_Comm comm) {
    int size = 0, is_inter = 0;
    cp_real.Comm_test_inter(comm, &is_inter);
    if (is_inter) return 0;
    cp_real.Comm_size(comm, &size);
    return size;
}

/* Return the size of all blocks, or of this rank's, given counts as MPI_Count. */
static int64_t wide_sum(cp_word counts, cp_word type, cp_word comm) {
    int64_t total = 0;
    for (int i = 0, n = cp_n_ranks((MPI_Comm)comm); i < n; i++) total += count_at(counts, i, true);
    return SIZE(total, type);
}

static int64_t wide_own(cp_word counts, cp_word type, cp_word comm) {
    int rank = 0;
    if (cp_n_ranks((MPI_Comm)comm) == 0) return 0;
    cp_real.Comm_rank((MPI_Comm)comm, &rank);
    return SIZE(count_at(counts, rank, true), type);
}

/* Return the size of the blocks that this rank sends to neighbors, or to all ranks; blocks have one
 * datatype, or one each. */
static int64_t size_of_all(cp_word counts, cp_word types, int n, bool has_types, bool is_wide) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        MPI_Datatype type = has_types ? ((const MPI_Datatype *)types)[i] : (MPI_Datatype)types;
        int64_t count = count_at(counts, i, is_wide);
        if (count > 0) total += cp_bytes(count, type);
    }
    return total;
}

int cp_n_neighbors(MPI_Comm comm) {
    int kind = MPI_UNDEFINED, n = 0, rank, n_sources, is_weighted;
    cp_real.Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        cp_real.Cartdim_get(comm, &n);
        n *= 2;
    } else if (kind == MPI_GRAPH) {
        cp_real.Comm_rank(comm, &rank);
        cp_real.Graph_neighbors_count(comm, rank, &n);
    } else if (kind == MPI_DIST_GRAPH) {
        cp_real.Dist_graph_neighbors_count(comm, &n_sources, &n, &is_weighted);
    }
    return n;
}

/* Define a function that calls the next one in the chain, given its name in MPI, its name in
 * statistics, the reason why it is native, the argument with the communicator, the number of
 * arguments, and the size in bytes. */
#define PASS_ON(name, shown, why, comm, n, n_bytes) \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        static int (*next)(CP_L##n); \
        if (next == NULL) *(void **)&next = cp_needed("MPI_" #name); \
        static const char padded[CP_NAME_BYTES] = shown; \
        bool is_logged = cp_settings.is_on && cp_settings.is_logged; \
        struct cp_mark mark = {NULL, 0, NULL}; \
        if (!is_logged && !cp_is_watched) return next(CP_A##n); \
        CP_NOTE_SITE; \
        if (cp_is_watched) mark = cp_enter(padded, (MPI_Comm)comm, 0, shown[0] == 'I'); \
        int64_t begin = is_logged ? cp_now_ns() : 0; \
        int code = next(CP_A##n); \
        cp_leave(mark); \
        int64_t ns = is_logged ? cp_now_ns() - begin : 0; \
        if (is_logged && code == MPI_SUCCESS) cp_note(shown, why, (MPI_Comm)comm, n_bytes, ns); \
        return code; \
    }

/* A program may use a function only if it exists, so only functions of the library are defined. */
#ifdef COLLPLAN_PERSISTENT
/* Define the persistent form, whose last argument is the request. */
#define PERSISTENT(name, shown, why, comm, n, n_bytes) \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        static int (*next)(CP_L##n); \
        if (next == NULL) *(void **)&next = cp_needed("MPI_" #name); \
        int code = next(CP_A##n); \
        if (cp_settings.is_on && cp_settings.is_logged && code == MPI_SUCCESS) \
            cp_expect_starts(*(MPI_Request *)a##n, shown, why, (MPI_Comm)comm, n_bytes); \
        return code; \
    }
/* Define the persistent form of a collective that plans run. */
#define OPERATION(name, n, n2, ...) \
    static int run_##name##_init(CP_L##n2) { \
        static int (*own)(CP_L##n2); \
        if (own == NULL) *(void **)&own = cp_needed("PMPI_" #name "_init"); \
        struct cp_call call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        const char *why = cp_make_operation(&call, (MPI_Request *)a##n2); \
        if (why == NULL) return MPI_SUCCESS; \
        int code = own(CP_A##n2); \
        if (cp_settings.is_logged && code == MPI_SUCCESS) \
            cp_expect_starts(*(MPI_Request *)a##n2, #name "_init", why, call.comm, \
                             cp_call_bytes(&call)); \
        return code; \
    } \
    CP_WRAP(name##_init, n2, cp_settings.is_on, run_##name##_init(CP_A##n2))
#else
#define PERSISTENT(...)
#define OPERATION(...)
#endif
#ifdef COLLPLAN_LARGE
#define LARGE(name, shown, comm, n, n_bytes) \
    PASS_ON(name##_c, shown "_c", CP_LARGE, comm, n, n_bytes)
#define LARGE_PERSISTENT(name, shown, comm, n, n_bytes) \
    PERSISTENT(name##_c, shown "_c", CP_LARGE, comm, n, n_bytes)
/* Define the blocking form of a collective whose counts differ per rank. If a count is large, the other
 * ranks, whose counts may be small, must know that the call is native. */
#define LARGE_DIFFERENT(name, lower, n, single, n_bytes, ...) \
    static int run_##lower##_c(CP_L##n) { \
        static int (*own)(CP_L##n); \
        if (own == NULL) *(void **)&own = cp_needed("PMPI_" #name "_c"); \
        struct cp_vector_call call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        int *room = NULL, code; \
        if (IS_INT(single) && cp_narrow(&call, &room)) { \
            code = cp_run_vector(&call); \
        } else { \
            cp_refuse_vector(&call, CP_LARGE); \
            int64_t begin = cp_settings.is_logged ? cp_now_ns() : 0; \
            struct cp_mark mark = {NULL, 0, NULL}; \
            if (cp_is_watched) mark = cp_enter_vector(&call); \
            code = own(CP_A##n); \
            cp_leave_with(mark, code); \
            if (begin != 0 && code == MPI_SUCCESS) \
                cp_note(#lower "_c", CP_LARGE, call.comm, n_bytes, cp_now_ns() - begin); \
        } \
        free(room); \
        return code; \
    } \
    CP_WRAP(name##_c, n, cp_settings.is_on, run_##lower##_c(CP_A##n))
/* Define the non-blocking form of a collective in which each rank passes the counts of all ranks. */
#define LARGE_STARTED(lower, n, n1, single, n_bytes, ...) \
    static int run_I##lower##_c(CP_L##n1) { \
        static int (*own)(CP_L##n1); \
        if (own == NULL) *(void **)&own = cp_needed("PMPI_I" #lower "_c"); \
        struct cp_vector_call call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        const intptr_t wide[] = {CP_A##n1}; \
        int *room = NULL, code; \
        call.wide = wide; \
        if (IS_INT(single) && cp_narrow(&call, &room)) { \
            code = cp_start_vector(&call, (MPI_Request *)a##n1); \
        } else { \
            int64_t begin = cp_settings.is_logged ? cp_now_ns() : 0; \
            code = own(CP_A##n1); \
            if (begin != 0 && code == MPI_SUCCESS) \
                cp_note("I" #lower "_c", CP_LARGE, call.comm, n_bytes, cp_now_ns() - begin); \
        } \
        free(room); \
        return code; \
    } \
    CP_WRAP(I##lower##_c, n1, cp_settings.is_on, run_I##lower##_c(CP_A##n1))
#else
#define LARGE(...)
#define LARGE_PERSISTENT(...)
#define LARGE_DIFFERENT(...)
#define LARGE_STARTED(...)
#endif
#if defined(COLLPLAN_PERSISTENT) && defined(COLLPLAN_LARGE)
/* Define the persistent form with large counts of a collective that plans run. */
#define LARGE_OPERATION(name, n, n2, is_small, n_bytes) \
    static int run_##name##_init_c(CP_L##n2) { \
        static int (*own)(CP_L##n2); \
        if (is_small) return run_##name##_init(CP_A##n2); \
        if (own == NULL) *(void **)&own = cp_needed("PMPI_" #name "_init_c"); \
        int code = own(CP_A##n2); \
        if (cp_settings.is_logged && code == MPI_SUCCESS) \
            cp_expect_starts(*(MPI_Request *)a##n2, #name "_init_c", CP_LARGE, (MPI_Comm)a##n, n_bytes); \
        return code; \
    } \
    CP_WRAP(name##_init_c, n2, cp_settings.is_on, run_##name##_init_c(CP_A##n2))
#else
#define LARGE_OPERATION(...)
#endif

#define VECTOR_BYTES(comm_at, ...) \
    cp_vector_bytes(&(struct cp_vector_call){.comm = (MPI_Comm)comm_at, __VA_ARGS__})
#define EQUAL(name, lower, n, n1, n2, is_small, n_bytes, ...) \
    OPERATION(name, n, n2, __VA_ARGS__) \
    LARGE_OPERATION(name, n, n2, is_small, n_bytes)
#define DIFFERENT(name, lower, n, n1, n2, single, n_bytes, ...) \
    LARGE_DIFFERENT(name, lower, n, single, n_bytes, __VA_ARGS__) \
    PERSISTENT(name##_init, #name "_init", CP_PERSISTENT, a##n, n2, \
               VECTOR_BYTES(a##n, __VA_ARGS__)) \
    LARGE_PERSISTENT(name##_init, #name "_init", a##n, n2, n_bytes)

#define STARTED(name, lower, n, n1, n2, single, n_bytes, ...) \
    PASS_ON(I##lower, "I" #lower, CP_NONBLOCKING, a##n, n1, VECTOR_BYTES(a##n, __VA_ARGS__)) \
    LARGE(I##lower, "I" #lower, a##n, n1, n_bytes)
#define STARTED_KNOWN(name, lower, n, n1, n2, single, n_bytes, ...) \
    LARGE_STARTED(lower, n, n1, single, n_bytes, __VA_ARGS__)

OPERATION(Barrier, 1, 3, .kind = CP_BARRIER)
CP_EQUAL(EQUAL)
CP_DIFFERENT(DIFFERENT)
CP_UNKNOWN(STARTED)
CP_KNOWN(STARTED_KNOWN)

/* Define all forms of a collective, given its names in the statistics and in MPI, the reason, the
 * numbers of arguments, and its size with counts of type int and of type MPI_Count. */
#define ALL_FORMS(shown, name, lower, why, comm, n, n1, n2, n_bytes, n_wide) \
    PASS_ON(name, shown, why, comm, n, n_bytes) \
    LARGE(name, shown, comm, n, n_wide) \
    PASS_ON(I##lower, "I" #lower, why, comm, n1, n_bytes) \
    LARGE(I##lower, "I" #lower, comm, n1, n_wide) \
    PERSISTENT(name##_init, #name "_init", CP_PERSISTENT, comm, n2, n_bytes) \
    LARGE_PERSISTENT(name##_init, #name "_init", comm, n2, n_wide)
#define TO_ALL(is_wide) \
    ((void *)a1 != MPI_IN_PLACE ? size_of_all(a2, a4, cp_n_ranks((MPI_Comm)a9), true, is_wide) \
                                : size_of_all(a6, a8, cp_n_ranks((MPI_Comm)a9), true, is_wide))
#define TO_NEIGHBORS(comm, has_types, is_wide) \
    size_of_all(a2, a4, cp_n_neighbors((MPI_Comm)comm), has_types, is_wide)

ALL_FORMS("alltoallw", Alltoallw, alltoallw, CP_TYPES, a9, 9, 10, 11, TO_ALL(false), TO_ALL(true))
#define NEIGHBORHOOD(name, lower, comm, n, n1, n2, n_bytes, n_wide) \
    ALL_FORMS(#name, name, lower, CP_NEIGHBORHOOD, comm, n, n1, n2, n_bytes, n_wide)
NEIGHBORHOOD(Neighbor_allgather, neighbor_allgather, a7, 7, 8, 9, SIZE(a2, a3), SIZE(a2, a3))
NEIGHBORHOOD(Neighbor_alltoall, neighbor_alltoall, a7, 7, 8, 9, SIZE(a2, a3), SIZE(a2, a3))
NEIGHBORHOOD(Neighbor_allgatherv, neighbor_allgatherv, a8, 8, 9, 10, SIZE(a2, a3), SIZE(a2, a3))
NEIGHBORHOOD(Neighbor_alltoallv, neighbor_alltoallv, a9, 9, 10, 11,
             TO_NEIGHBORS(a9, false, false), TO_NEIGHBORS(a9, false, true))
NEIGHBORHOOD(Neighbor_alltoallw, neighbor_alltoallw, a9, 9, 10, 11,
             TO_NEIGHBORS(a9, true, false), TO_NEIGHBORS(a9, true, true))
