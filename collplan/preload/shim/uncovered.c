/* Collectives that no plan runs: MPI's own, counted where statistics are wanted. */
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
    /* Of an intercommunicator, this is the size of the rank's own group. */
    cp_real.Comm_size(comm, &size);
    cp_count(cp_row(name, "native", why, size, 0, false, -1, -1), 0, cp_now_ns() - begin);
}

/* Define a function that calls MPI's own: its name in MPI and in statistics, parameters, and
 * arguments. */
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

PASS_ON(Ibarrier, "Ibarrier", CP_NONBLOCKING,
        (MPI_Comm comm, MPI_Request *request),
        (comm, request))
PASS_ON(Ibcast, "Ibcast", CP_NONBLOCKING,
        (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request
         *request),
        (buffer, count, type, root, comm, request))
PASS_ON(Ireduce, "Ireduce", CP_NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm, MPI_Request *request),
        (sent, received, count, type, op, root, comm, request))
PASS_ON(Iallreduce, "Iallreduce", CP_NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Iscan, "Iscan", CP_NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Iexscan, "Iexscan", CP_NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Ireduce_scatter_block, "Ireduce_scatter_block", CP_NONBLOCKING,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm
         comm, MPI_Request *request),
        (sent, received, count, type, op, comm, request))
PASS_ON(Ireduce_scatter, "Ireduce_scatter", CP_NONBLOCKING,
        (const void *sent, void *received, const int *counts, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Request *request),
        (sent, received, counts, type, op, comm, request))
PASS_ON(Igather, "Igather", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, request))
PASS_ON(Iscatter, "Iscatter", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, request))
PASS_ON(Iallgather, "Iallgather", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, request))
PASS_ON(Ialltoall, "Ialltoall", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, request))
PASS_ON(Igatherv, "Igatherv", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, int root, MPI_Comm
         comm, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, root,
         comm, request))
PASS_ON(Iscatterv, "Iscatterv", CP_NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, int n_received, MPI_Datatype received_type, int root, MPI_Comm comm,
         MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_type, root, comm,
         request))
PASS_ON(Iallgatherv, "Iallgatherv", CP_NONBLOCKING,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm,
         MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm,
         request))
PASS_ON(Ialltoallv, "Ialltoallv", CP_NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, const int *n_received, const int *received_at, MPI_Datatype received_type,
         MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
         comm, request))
PASS_ON(Ialltoallw, "Ialltoallw", CP_NONBLOCKING,
        (const void *sent, const int *n_sent, const int *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const int *received_at, const
         MPI_Datatype *received_types, MPI_Comm comm, MPI_Request *request),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm, request))
PASS_ON(Alltoallw, "alltoallw", CP_TYPES,
        (const void *sent, const int *n_sent, const int *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const int *received_at, const
         MPI_Datatype *received_types, MPI_Comm comm),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm))
PASS_ON(Neighbor_allgather, "Neighbor_allgather", CP_NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_type, comm))
PASS_ON(Neighbor_alltoall, "Neighbor_alltoall", CP_NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int n_received,
         MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_type, comm))
PASS_ON(Neighbor_allgatherv, "Neighbor_allgatherv", CP_NEIGHBORHOOD,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm))
PASS_ON(Neighbor_alltoallv, "Neighbor_alltoallv", CP_NEIGHBORHOOD,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type, void
         *received, const int *n_received, const int *received_at, MPI_Datatype received_type,
         MPI_Comm comm),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at, received_type,
         comm))
PASS_ON(Neighbor_alltoallw, "Neighbor_alltoallw", CP_NEIGHBORHOOD,
        (const void *sent, const int *n_sent, const MPI_Aint *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const MPI_Aint *received_at,
         const MPI_Datatype *received_types, MPI_Comm comm),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at, received_types,
         comm))
PASS_ON(Barrier_init, "Barrier_init", CP_PERSISTENT,
        (MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (comm, info, request))
PASS_ON(Bcast_init, "Bcast_init", CP_PERSISTENT,
        (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info
         info, MPI_Request *request),
        (buffer, count, type, root, comm, info, request))
PASS_ON(Reduce_init, "Reduce_init", CP_PERSISTENT,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int
         root, MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, count, type, op, root, comm, info, request))
PASS_ON(Allreduce_init, "Allreduce_init", CP_PERSISTENT,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, count, type, op, comm, info, request))
PASS_ON(Scan_init, "Scan_init", CP_PERSISTENT,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, count, type, op, comm, info, request))
PASS_ON(Exscan_init, "Exscan_init", CP_PERSISTENT,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, count, type, op, comm, info, request))
PASS_ON(Reduce_scatter_block_init, "Reduce_scatter_block_init", CP_PERSISTENT,
        (const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, count, type, op, comm, info, request))
PASS_ON(Reduce_scatter_init, "Reduce_scatter_init", CP_PERSISTENT,
        (const void *sent, void *received, const int *counts, MPI_Datatype type, MPI_Op
         op, MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, received, counts, type, op, comm, info, request))
PASS_ON(Gather_init, "Gather_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Info info,
         MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, info,
         request))
PASS_ON(Scatter_init, "Scatter_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Info info,
         MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_type, root, comm, info,
         request))
PASS_ON(Allgather_init, "Allgather_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, info,
         request))
PASS_ON(Alltoall_init, "Alltoall_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, info,
         request))
PASS_ON(Gatherv_init, "Gatherv_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, int root,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, root,
         comm, info, request))
PASS_ON(Scatterv_init, "Scatterv_init", CP_PERSISTENT,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type,
         void *received, int n_received, MPI_Datatype received_type, int root, MPI_Comm
         comm, MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_type, root,
         comm, info, request))
PASS_ON(Allgatherv_init, "Allgatherv_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm,
         MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm,
         info, request))
PASS_ON(Alltoallv_init, "Alltoallv_init", CP_PERSISTENT,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type,
         void *received, const int *n_received, const int *received_at, MPI_Datatype
         received_type, MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at,
         received_type, comm, info, request))
PASS_ON(Alltoallw_init, "Alltoallw_init", CP_PERSISTENT,
        (const void *sent, const int *n_sent, const int *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const int *received_at, const
         MPI_Datatype *received_types, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at,
         received_types, comm, info, request))
PASS_ON(Neighbor_allgather_init, "Neighbor_allgather_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, info,
         request))
PASS_ON(Neighbor_alltoall_init, "Neighbor_alltoall_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, int
         n_received, MPI_Datatype received_type, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_type, received, n_received, received_type, comm, info,
         request))
PASS_ON(Neighbor_allgatherv_init, "Neighbor_allgatherv_init", CP_PERSISTENT,
        (const void *sent, int n_sent, MPI_Datatype sent_type, void *received, const int
         *n_received, const int *received_at, MPI_Datatype received_type, MPI_Comm comm,
         MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_type, received, n_received, received_at, received_type, comm,
         info, request))
PASS_ON(Neighbor_alltoallv_init, "Neighbor_alltoallv_init", CP_PERSISTENT,
        (const void *sent, const int *n_sent, const int *sent_at, MPI_Datatype sent_type,
         void *received, const int *n_received, const int *received_at, MPI_Datatype
         received_type, MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (sent, n_sent, sent_at, sent_type, received, n_received, received_at,
         received_type, comm, info, request))
PASS_ON(Neighbor_alltoallw_init, "Neighbor_alltoallw_init", CP_PERSISTENT,
        (const void *sent, const int *n_sent, const MPI_Aint *sent_at, const MPI_Datatype
         *sent_types, void *received, const int *n_received, const MPI_Aint *received_at,
         const MPI_Datatype *received_types, MPI_Comm comm, MPI_Info info, MPI_Request
         *request),
        (sent, n_sent, sent_at, sent_types, received, n_received, received_at,
         received_types, comm, info, request))
