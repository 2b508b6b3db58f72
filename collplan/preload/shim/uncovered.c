/* Collectives that no plan runs. They run natively, and are counted if statistics are requested. */
#include "shim.h"

void cp_note(const char *name, const char *why, MPI_Comm comm, int64_t begin) {
    int size = 0;
    /* For an intercommunicator, this is the size of the local group. */
    cp_real.Comm_size(comm, &size);
    cp_count(cp_row(name, "native", why, size, 0, false, -1, -1), 0, cp_now_ns() - begin);
}

/* Define a function that calls the next one in the chain, given its name in MPI, its name in
 * statistics, the reason why it is native, the argument with the communicator, and the number of
 * arguments. */
#define PASS_ON(name, shown, why, comm, n) \
    CP_EXPORT int MPI_##name(CP_L##n) { \
        static int (*next)(CP_L##n); \
        if (next == NULL) *(void **)&next = cp_needed("MPI_" #name); \
        if (!cp_settings.is_on || !cp_settings.is_logged) return next(CP_A##n); \
        int64_t begin = cp_now_ns(); \
        int code = next(CP_A##n); \
        cp_note(shown, why, (MPI_Comm)comm, begin); \
        return code; \
    }

/* A program may use a function only if it exists, so only functions of the library are defined. */
#ifdef COLLPLAN_PERSISTENT
#define PERSISTENT PASS_ON
#else
#define PERSISTENT(...)
#endif
#ifdef COLLPLAN_LARGE
#define LARGE(name, shown, comm, n) PASS_ON(name##_c, shown "_c", CP_LARGE, comm, n)
#define LARGE_PERSISTENT(name, comm, n) \
    PERSISTENT(name##_init_c, #name "_init_c", CP_LARGE, comm, n)
#else
#define LARGE(...)
#define LARGE_PERSISTENT(...)
#endif

/* Define the non-blocking and the persistent form of a collective, and their forms with large
 * counts, given its name after MPI_I, its name, the argument with the communicator, and the number of
 * arguments of each form. The non-blocking form has an additional request, the persistent form also
 * an info. */
#define FORMS(lower, name, comm, n, m) \
    PASS_ON(I##lower, "I" #lower, CP_NONBLOCKING, comm, n) \
    LARGE(I##lower, "I" #lower, comm, n) \
    PERSISTENT(name##_init, #name "_init", CP_PERSISTENT, comm, m) \
    LARGE_PERSISTENT(name, comm, m)
/* Define the blocking form, too. */
#define NEIGHBORHOOD(lower, name, comm, n, n_nonblocking, n_persistent) \
    PASS_ON(name, #name, CP_NEIGHBORHOOD, comm, n) \
    LARGE(name, #name, comm, n) \
    FORMS(lower, name, comm, n_nonblocking, n_persistent)

PASS_ON(Ibarrier, "Ibarrier", CP_NONBLOCKING, a1, 2)
PERSISTENT(Barrier_init, "Barrier_init", CP_PERSISTENT, a1, 3)
FORMS(bcast, Bcast, a5, 6, 7)
FORMS(reduce, Reduce, a7, 8, 9)
FORMS(allreduce, Allreduce, a6, 7, 8)
FORMS(scan, Scan, a6, 7, 8)
FORMS(exscan, Exscan, a6, 7, 8)
FORMS(reduce_scatter_block, Reduce_scatter_block, a6, 7, 8)
FORMS(reduce_scatter, Reduce_scatter, a6, 7, 8)
FORMS(gather, Gather, a8, 9, 10)
FORMS(scatter, Scatter, a8, 9, 10)
FORMS(allgather, Allgather, a7, 8, 9)
FORMS(alltoall, Alltoall, a7, 8, 9)
FORMS(gatherv, Gatherv, a9, 10, 11)
FORMS(scatterv, Scatterv, a9, 10, 11)
FORMS(allgatherv, Allgatherv, a8, 9, 10)
FORMS(alltoallv, Alltoallv, a9, 10, 11)
LARGE(Reduce_scatter, "reduce_scatter", a6, 6)
LARGE(Gatherv, "gatherv", a9, 9)
LARGE(Scatterv, "scatterv", a9, 9)
LARGE(Allgatherv, "allgatherv", a8, 8)
LARGE(Alltoallv, "alltoallv", a9, 9)
FORMS(alltoallw, Alltoallw, a9, 10, 11)
PASS_ON(Alltoallw, "alltoallw", CP_TYPES, a9, 9)
LARGE(Alltoallw, "alltoallw", a9, 9)
NEIGHBORHOOD(neighbor_allgather, Neighbor_allgather, a7, 7, 8, 9)
NEIGHBORHOOD(neighbor_alltoall, Neighbor_alltoall, a7, 7, 8, 9)
NEIGHBORHOOD(neighbor_allgatherv, Neighbor_allgatherv, a8, 8, 9, 10)
NEIGHBORHOOD(neighbor_alltoallv, Neighbor_alltoallv, a9, 9, 10, 11)
NEIGHBORHOOD(neighbor_alltoallw, Neighbor_alltoallw, a9, 9, 10, 11)
