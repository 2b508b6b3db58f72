/* The collectives of MPI in C, with their fields: lists of what all of their forms have in common. */
#ifndef COLLPLAN_COLLECTIVES_H
#define COLLPLAN_COLLECTIVES_H

#include <limits.h>

#include "wrapping.h"

#define IS_INT(count) ((count) >= INT_MIN && (count) <= INT_MAX)
#define SENT(at, n, t) .sent = (const void *)at, .n_sent = (int)n, .sent_type = (MPI_Datatype)t
#define RECEIVED(at, n, t) \
    .received = (void *)at, .n_received = (int)n, .received_type = (MPI_Datatype)t
#define REDUCED() SENT(a1, a3, a4), RECEIVED(a2, a3, a4), .op = (MPI_Op)a5
#define SIZE(n, t) cp_bytes(n, (MPI_Datatype)t)
/* The size of one buffer, or of the other if the first is MPI_IN_PLACE. */
#define SIZE_OF(at, n, t, m, u) ((void *)at != MPI_IN_PLACE ? SIZE(n, t) : SIZE(m, u))
#define MOVED() SENT(a1, a2, a3), RECEIVED(a4, a5, a6)
#define MOVED_SIZE SIZE_OF(a1, a2, a3, a5, a6)

/* Collectives with equal counts, except for the barrier: name, name in lower case, numbers of
 * arguments of the blocking, the non-blocking and the persistent form, whether the counts are small,
 * size in bytes, and fields of the call. The last argument of the blocking form is the communicator. */
#define CP_EQUAL(X) \
    X(Bcast, bcast, 5, 6, 7, IS_INT(a2), SIZE(a2, a3), \
      .kind = CP_BCAST, RECEIVED(a1, a2, a3), .root = (int)a4) \
    X(Reduce, reduce, 7, 8, 9, IS_INT(a3), SIZE(a3, a4), \
      .kind = CP_REDUCE, REDUCED(), .root = (int)a6) \
    X(Allreduce, allreduce, 6, 7, 8, IS_INT(a3), SIZE(a3, a4), .kind = CP_ALLREDUCE, REDUCED()) \
    X(Scan, scan, 6, 7, 8, IS_INT(a3), SIZE(a3, a4), .kind = CP_SCAN, REDUCED()) \
    X(Exscan, exscan, 6, 7, 8, IS_INT(a3), SIZE(a3, a4), .kind = CP_EXSCAN, REDUCED()) \
    X(Reduce_scatter_block, reduce_scatter_block, 6, 7, 8, IS_INT(a3), SIZE(a3, a4), \
      .kind = CP_REDUCE_SCATTER_BLOCK, REDUCED()) \
    X(Gather, gather, 8, 9, 10, IS_INT(a2) && IS_INT(a5), MOVED_SIZE, \
      .kind = CP_GATHER, MOVED(), .root = (int)a7) \
    X(Scatter, scatter, 8, 9, 10, IS_INT(a2) && IS_INT(a5), SIZE_OF(a4, a5, a6, a2, a3), \
      .kind = CP_SCATTER, MOVED(), .root = (int)a7) \
    X(Allgather, allgather, 7, 8, 9, IS_INT(a2) && IS_INT(a5), MOVED_SIZE, \
      .kind = CP_ALLGATHER, MOVED()) \
    X(Alltoall, alltoall, 7, 8, 9, IS_INT(a2) && IS_INT(a5), MOVED_SIZE, \
      .kind = CP_ALLTOALL, MOVED())

#define ONE(count) (const int[]){(int)count}
#define MANY(counts) (const int *)counts
#define SENT_V(at, n, places, t) \
    .sent = (const void *)at, .n_sent = n, .sent_at = places, .sent_type = (MPI_Datatype)t
#define RECEIVED_V(at, n, places, t) \
    .received = (void *)at, .n_received = n, .received_at = places, \
    .received_type = (MPI_Datatype)t

/* Collectives whose counts differ per rank: name, name in lower case, numbers of arguments, the count that is
 * no array or 0, size in bytes of the form with large counts, and fields. Counts and displacements are arrays.
 * A single count becomes an array of length one. */
#define CP_UNKNOWN(X) \
    X(Gatherv, gatherv, 9, 10, 11, a2, \
      (void *)a1 != MPI_IN_PLACE ? SIZE(a2, a3) : wide_own(a5, a7, a9), \
      .kind = CP_GATHERV, SENT_V(a1, ONE(a2), NULL, a3), \
      RECEIVED_V(a4, MANY(a5), MANY(a6), a7), .root = (int)a8) \
    X(Scatterv, scatterv, 9, 10, 11, a6, \
      (void *)a5 != MPI_IN_PLACE ? SIZE(a6, a7) : wide_own(a2, a4, a9), \
      .kind = CP_SCATTERV, SENT_V(a1, MANY(a2), MANY(a3), a4), \
      RECEIVED_V(a5, ONE(a6), NULL, a7), .root = (int)a8) \
    X(Alltoallv, alltoallv, 9, 10, 11, 0, \
      (void *)a1 != MPI_IN_PLACE ? wide_sum(a2, a4, a9) : wide_sum(a6, a8, a9), \
      .kind = CP_ALLTOALLV, SENT_V(a1, MANY(a2), MANY(a3), a4), \
      RECEIVED_V(a5, MANY(a6), MANY(a7), a8))
/* The same for collectives in which each rank passes the counts of all ranks. */
#define CP_KNOWN(X) \
    X(Allgatherv, allgatherv, 8, 9, 10, a2, \
      (void *)a1 != MPI_IN_PLACE ? SIZE(a2, a3) : wide_own(a5, a7, a8), \
      .kind = CP_ALLGATHERV, SENT_V(a1, ONE(a2), NULL, a3), \
      RECEIVED_V(a4, MANY(a5), MANY(a6), a7)) \
    X(Reduce_scatter, reduce_scatter, 6, 7, 8, 0, wide_own(a3, a4, a6), \
      .kind = CP_REDUCE_SCATTER, SENT_V(a1, MANY(a3), NULL, a4), \
      RECEIVED_V(a2, NULL, NULL, a4), .op = (MPI_Op)a5)
#define CP_DIFFERENT(X) CP_UNKNOWN(X) CP_KNOWN(X)

#endif
