/* Collectives that no plan runs: MPI's own, counted where statistics are wanted. */
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))
#define NONBLOCKING "calls that do not block are native in programs without Python"
#define VECTOR "calls whose counts differ per rank are native in programs without Python"
#define NEIGHBORHOOD "neighborhood collectives are native"

static void *find(const char *name) {
    cp_resolve();
    void *found = cp_symbol(name);
    if (found != NULL) return found;
    fprintf(stderr, "collplan: error: no library of this program has %s\n", name);
    abort();
}

static void note(const char *name, const char *why, MPI_Comm comm, int64_t begin) {
    int size = 0;
    /* Of an intercommunicator, this is the size of the rank's own group. */
    cp_real.Comm_size(comm, &size);
    cp_count(cp_row(name, "native", why, size, 0, false, -1, -1), 0, cp_now_ns() - begin);
}

/* Define a function that calls MPI's own: its name in MPI and in statistics, parameters, and
 * arguments. */
#define PASS_ON(name, shown, why, parameters, arguments) \
    EXPORT int MPI_##name parameters { \
        static int(*own) parameters; \
        if (own == NULL) *(void **)&own = find("PMPI_" #name); \
        if (!cp_settings.is_on || !cp_settings.is_logged) return own arguments; \
        int64_t begin = cp_now_ns(); \
        int code = own arguments; \
        note(shown, why, comm, begin); \
        return code; \
    }

PASS_ON(Ibarrier, "Ibarrier", NONBLOCKING,
        (MPI_Comm comm, MPI_Request *request),
        (comm, request))
PASS_ON(Ibcast, "Ibcast", NONBLOCKING,
        (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request
         *request),
        (buffer, count, type, root, comm, request))
PASS_ON(Ireduce, "Ireduce", NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm, MPI_Request *request),
        (sent, received, count, type, op, root, comm, request))
PASS_ON(Iallreduce, "Iallreduce", NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Iscan, "Iscan", NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Iexscan, "Iexscan", NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Ireduce_scatter_block, "Ireduce_scatter_block", NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Ireduce_scatter, "Ireduce_scatter", NONBLOCKING,
        (const void *sent, void *received, const int *counts, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Request *request),
        (sent, received, counts, type, op, comm, request))
PASS_ON(Igather, "Igather", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, request))
PASS_ON(Iscatter, "Iscatter", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, request))
PASS_ON(Iallgather, "Iallgather", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, request))
PASS_ON(Ialltoall, "Ialltoall", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, request))
PASS_ON(Igatherv, "Igatherv", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, int root, MPI_Comm
         comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, root,
         comm, request))
PASS_ON(Iscatterv, "Iscatterv", NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, int n_received, MPI_Datatype received_type, int root, MPI_Comm comm,
         MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_type, root, comm,
         request))
PASS_ON(Iallgatherv, "Iallgatherv", NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm,
         MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm,
         request))
PASS_ON(Ialltoallv, "Ialltoallv", NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, const int *n_received, const int *received_at, MPI_Datatype received_type,
         MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
         comm, request))
PASS_ON(Ialltoallw, "Ialltoallw", NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const int *received_at, const
         MPI_Datatype *received_types, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm, request))
PASS_ON(Reduce_scatter, "reduce_scatter", VECTOR,
        (const void *sent, void *received, const int *counts, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm),
        (sent, received, counts, type, op, comm))
PASS_ON(Gatherv, "gatherv", VECTOR,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, int root, MPI_Comm
         comm),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, root,
         comm))
PASS_ON(Scatterv, "scatterv", VECTOR,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, int n_received, MPI_Datatype received_type, int root, MPI_Comm comm),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_type, root, comm))
PASS_ON(Allgatherv, "allgatherv", VECTOR,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm))
PASS_ON(Alltoallv, "alltoallv", VECTOR,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, const int *n_received, const int *received_at, MPI_Datatype received_type,
         MPI_Comm comm),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
         comm))
PASS_ON(Alltoallw, "alltoallw", VECTOR,
        (const void *sent, const int *n_sent, const int *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const int *received_at, const
         MPI_Datatype *received_types, MPI_Comm comm),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm))
PASS_ON(Neighbor_allgather, "Neighbor_allgather", NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_type, comm))
PASS_ON(Neighbor_alltoall, "Neighbor_alltoall", NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_type, comm))
PASS_ON(Neighbor_allgatherv, "Neighbor_allgatherv", NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm))
PASS_ON(Neighbor_alltoallv, "Neighbor_alltoallv", NEIGHBORHOOD,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, const int *n_received, const int *received_at, MPI_Datatype received_type,
         MPI_Comm comm),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
         comm))
PASS_ON(Neighbor_alltoallw, "Neighbor_alltoallw", NEIGHBORHOOD,
        (const void *sent, const int *n_sent, const MPI_Aint *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const MPI_Aint *received_at,
         const MPI_Datatype *received_types, MPI_Comm comm),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm))
