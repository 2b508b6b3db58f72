/* Collectives that no plan runs. They run natively, and are counted if statistics are requested. */
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))
void *cp_needed(const char *name) {
    cp_resolve();
    void *found = cp_symbol(name);
    if (found != NULL) return found;
    fprintf(stderr, "collplan: error: no library of this program has %s\n", name);
    abort();
}

void cp_note(const char *name, const char *why, MPI_Comm comm, int64_t begin) {
    int size = 0;
    /* For an intercommunicator, this is the size of the local group. */
    cp_real.Comm_size(comm, &size);
    cp_count(cp_row(name, "native", why, size, 0, false, -1, -1), 0, cp_now_ns() - begin);
}

/* Define a function that calls the function of MPI, given its name in MPI, its name in statistics,
 * the reason why it is native, its parameters, and its arguments. */
#define PASS_ON(name, shown, why, parameters, arguments) \
    EXPORT int MPI_##name parameters { \
        static int(*own) parameters; \
        if (own == NULL) *(void **)&own = cp_needed("PMPI_" #name); \
        if (!cp_settings.is_on || !cp_settings.is_logged) return own arguments; \
        int64_t begin = cp_now_ns(); \
        int code = own arguments; \
        cp_note(shown, why, comm, begin); \
        return code; \
    }

/* Expand to the content of parentheses, so that further items can follow. */
#define OPEN(...) __VA_ARGS__
#define PERSISTENT(name, parameters, arguments) \
    PASS_ON(name##_init, #name "_init", CP_PERSISTENT, \
            (OPEN parameters, MPI_Info info, MPI_Request *request), \
            (OPEN arguments, info, request))
/* Define the non-blocking and the persistent form of a collective, given its name after MPI_I, its
 * name, and its parameters and arguments, to which both forms add further ones. */
#define FORMS(lower, name, parameters, arguments) \
    PASS_ON(I##lower, "I" #lower, CP_NONBLOCKING, (OPEN parameters, MPI_Request *request), \
            (OPEN arguments, request)) \
    PERSISTENT(name, parameters, arguments)
#define NEIGHBORHOOD(name, parameters, arguments) \
    PASS_ON(name, #name, CP_NEIGHBORHOOD, parameters, arguments) \
    PERSISTENT(name, parameters, arguments)

/* Parameters that collectives have in common. */
#define REDUCED const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op
#define SENT const void *sent, int n_sent, MPI_Datatype sent_type
#define SENT_V const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type
#define RECEIVED void *received, int n_received, MPI_Datatype received_type
#define RECEIVED_V \
    void *received, const int *n_received, const int *received_at, MPI_Datatype received_type
/* Displacements of calls with a datatype per rank are int; in neighborhood collectives MPI_Aint. */
#define TYPED(at) \
    const void *sent, const int *n_sent, const at *sent_at, const MPI_Datatype *sent_types, \
        void *received, const int *n_received, const at *received_at, \
        const MPI_Datatype *received_types
#define PASSED_TYPED \
    sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types

FORMS(barrier, Barrier, (MPI_Comm comm), (comm))
FORMS(bcast, Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
      (buffer, count, type, root, comm))
FORMS(reduce, Reduce, (REDUCED, int root, MPI_Comm comm),
      (sent, received, count, type, op, root, comm))
FORMS(allreduce, Allreduce, (REDUCED, MPI_Comm comm), (sent, received, count, type, op, comm))
FORMS(scan, Scan, (REDUCED, MPI_Comm comm), (sent, received, count, type, op, comm))
FORMS(exscan, Exscan, (REDUCED, MPI_Comm comm), (sent, received, count, type, op, comm))
FORMS(reduce_scatter_block, Reduce_scatter_block, (REDUCED, MPI_Comm comm),
      (sent, received, count, type, op, comm))
FORMS(reduce_scatter, Reduce_scatter,
      (const void *sent, void *received, const int *counts, MPI_Datatype type, MPI_Op op,
       MPI_Comm comm),
      (sent, received, counts, type, op, comm))
FORMS(gather, Gather, (SENT, RECEIVED, int root, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_type, root, comm))
FORMS(scatter, Scatter, (SENT, RECEIVED, int root, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_type, root, comm))
FORMS(allgather, Allgather, (SENT, RECEIVED, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_type, comm))
FORMS(alltoall, Alltoall, (SENT, RECEIVED, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_type, comm))
FORMS(gatherv, Gatherv, (SENT, RECEIVED_V, int root, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_at, received_type, root, comm))
FORMS(scatterv, Scatterv, (SENT_V, RECEIVED, int root, MPI_Comm comm),
      (sent, n_sent, sent_at, sent_type, received, n_received, received_type, root, comm))
FORMS(allgatherv, Allgatherv, (SENT, RECEIVED_V, MPI_Comm comm),
      (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm))
FORMS(alltoallv, Alltoallv, (SENT_V, RECEIVED_V, MPI_Comm comm),
      (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type, comm))
FORMS(alltoallw, Alltoallw, (TYPED(int), MPI_Comm comm), (PASSED_TYPED, comm))
PASS_ON(Alltoallw, "alltoallw", CP_TYPES, (TYPED(int), MPI_Comm comm), (PASSED_TYPED, comm))
NEIGHBORHOOD(Neighbor_allgather, (SENT, RECEIVED, MPI_Comm comm),
             (sent, n_sent, sent_type, received, n_received, received_type, comm))
NEIGHBORHOOD(Neighbor_alltoall, (SENT, RECEIVED, MPI_Comm comm),
             (sent, n_sent, sent_type, received, n_received, received_type, comm))
NEIGHBORHOOD(Neighbor_allgatherv, (SENT, RECEIVED_V, MPI_Comm comm),
             (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm))
NEIGHBORHOOD(Neighbor_alltoallv, (SENT_V, RECEIVED_V, MPI_Comm comm),
             (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
              comm))
NEIGHBORHOOD(Neighbor_alltoallw, (TYPED(MPI_Aint), MPI_Comm comm), (PASSED_TYPED, comm))
