/* The collectives of Fortran that call PMPI functions of C.
 *
 * In MPICH and its derivatives, most routines of Fortran call MPI functions, so that the functions
 * of calls.c run. In Open MPI, mpif.h and the module mpi use names such as mpi_bcast_, and the
 * module mpi_f08 uses ompi_bcast_f. Both pass the address of each argument. */
#include "shim.h"

#ifndef COLLPLAN_OPENMPI
int MPI_Barrier(cp_word comm);

/* The module mpi_f08 of MPICH calls the PMPI function, as no argument has to be converted. */
CP_EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error) {
    static void (*next)(MPI_Fint *, MPI_Fint *);
    if (next == NULL) *(void **)&next = cp_needed("mpi_barrier_f08_");
    if (!cp_settings.is_on) {
        next(comm, error);
        return;
    }
    int code = MPI_Barrier(*comm);
    if (error != NULL) *error = code;
}
#else

/* Handles of Fortran are indices in tables of the library, which these functions convert. */
static MPI_Comm (*comm_f2c)(MPI_Fint);
static MPI_Datatype (*type_f2c)(MPI_Fint);
static MPI_Op (*op_f2c)(MPI_Fint);
static const void *in_place[5], *bottom[5];

static void find(const void **found, const char *const *names) {
    for (int i = 0; i < 4; i++) found[i] = cp_symbol(names[i]);
}

static void resolve(void) {
    static const char *const in_places[] = {"mpi_fortran_in_place", "mpi_fortran_in_place_",
                                            "mpi_fortran_in_place__", "MPI_FORTRAN_IN_PLACE"};
    static const char *const bottoms[] = {"mpi_fortran_bottom", "mpi_fortran_bottom_",
                                          "mpi_fortran_bottom__", "MPI_FORTRAN_BOTTOM"};
    if (__atomic_load_n(&op_f2c, __ATOMIC_ACQUIRE) != NULL) return;
    find(in_place, in_places);
    find(bottom, bottoms);
    *(void **)&comm_f2c = cp_symbol("PMPI_Comm_f2c");
    *(void **)&type_f2c = cp_symbol("PMPI_Type_f2c");
    __atomic_store_n((void **)&op_f2c, cp_symbol("PMPI_Op_f2c"), __ATOMIC_RELEASE);
}

/* Return the address of a buffer in C: MPI_IN_PLACE, NULL for MPI_BOTTOM, or the given address. */
static void *buffer_of(cp_word word) {
    void *at = (void *)word;
    for (int i = 0; at != NULL && i < 4; i++) {
        if (at == in_place[i]) return MPI_IN_PLACE;
        if (at == bottom[i]) return NULL;
    }
    return at;
}

#define INTS(at) (const int *)at
#define INT(at) *INTS(at)
#define TYPE(at) type_f2c(INT(at))
#define SENT(at, n, t) .sent = buffer_of(at), .n_sent = n, .sent_type = TYPE(t)
#define RECEIVED(at, n, t) .received = buffer_of(at), .n_received = n, .received_type = TYPE(t)

/* Define a routine, given its names, the number of its arguments, which are addresses, and what it
 * does if there are plans. A tool sees the call first, and then calls the routine pmpi_..._, which
 * calls the PMPI function. Without plans nothing is read, as the routine may be of another MPI. */
#define ROUTINE(lower, upper, n, ...) \
    CP_EXPORT void ompi_##lower##_f(CP_L##n) { \
        static struct cp_links links; \
        CP_FIND_LINKS(&links, "pmpi_" #lower "_"); \
        if (!cp_settings.is_on || links.is_tool) { \
            ((void (*)(CP_L##n))links.next)(CP_A##n); \
            return; \
        } \
        resolve(); \
        __VA_ARGS__ \
    } \
    NAME(mpi_##lower, lower, n) \
    NAME(mpi_##lower##_, lower, n) \
    NAME(mpi_##lower##__, lower, n) \
    NAME(MPI_##upper, lower, n)
/* Define a further name under which programs may call a routine. */
#define NAME(name, lower, n) \
    CP_EXPORT void name(CP_L##n) __attribute__((alias("ompi_" #lower "_f")));

#define GIVE(code, at) \
    MPI_Fint *error = (MPI_Fint *)at; \
    int found = code; \
    if (error != NULL) *error = found;
#define RUN(comm_at, error_at, ...) \
    struct cp_call call = {.comm = comm_f2c(INT(comm_at)), __VA_ARGS__}; \
    GIVE(cp_run(&call), error_at)
#define RUN_VECTOR(comm_at, error_at, ...) \
    struct cp_vector_call call = {.comm = comm_f2c(INT(comm_at)), __VA_ARGS__}; \
    GIVE(cp_run_vector(&call), error_at)
#define REDUCED(KIND) \
    .kind = KIND, SENT(a1, INT(a3), a4), RECEIVED(a2, INT(a3), a4), .op = op_f2c(INT(a5))
#define MOVED(KIND) .kind = KIND, SENT(a1, INT(a2), a3), RECEIVED(a4, INT(a5), a6)

ROUTINE(barrier, BARRIER, 2, RUN(a1, a2, .kind = CP_BARRIER))
ROUTINE(bcast, BCAST, 6,
        RUN(a5, a6, .kind = CP_BCAST, RECEIVED(a1, INT(a2), a3), .root = INT(a4)))
ROUTINE(reduce, REDUCE, 8, RUN(a7, a8, REDUCED(CP_REDUCE), .root = INT(a6)))
ROUTINE(allreduce, ALLREDUCE, 7, RUN(a6, a7, REDUCED(CP_ALLREDUCE)))
ROUTINE(scan, SCAN, 7, RUN(a6, a7, REDUCED(CP_SCAN)))
ROUTINE(exscan, EXSCAN, 7, RUN(a6, a7, REDUCED(CP_EXSCAN)))
ROUTINE(reduce_scatter_block, REDUCE_SCATTER_BLOCK, 7,
        RUN(a6, a7, REDUCED(CP_REDUCE_SCATTER_BLOCK)))
ROUTINE(allgather, ALLGATHER, 8, RUN(a7, a8, MOVED(CP_ALLGATHER)))
ROUTINE(alltoall, ALLTOALL, 8, RUN(a7, a8, MOVED(CP_ALLTOALL)))
ROUTINE(gather, GATHER, 9, RUN(a8, a9, MOVED(CP_GATHER), .root = INT(a7)))
ROUTINE(scatter, SCATTER, 9, RUN(a8, a9, MOVED(CP_SCATTER), .root = INT(a7)))
ROUTINE(gatherv, GATHERV, 10,
        RUN_VECTOR(a9, a10, .kind = CP_GATHERV, SENT(a1, INTS(a2), a3),
                   RECEIVED(a4, INTS(a5), a7), .received_at = INTS(a6), .root = INT(a8)))
ROUTINE(scatterv, SCATTERV, 10,
        RUN_VECTOR(a9, a10, .kind = CP_SCATTERV, SENT(a1, INTS(a2), a4), .sent_at = INTS(a3),
                   RECEIVED(a5, INTS(a6), a7), .root = INT(a8)))
ROUTINE(allgatherv, ALLGATHERV, 9,
        RUN_VECTOR(a8, a9, .kind = CP_ALLGATHERV, SENT(a1, INTS(a2), a3),
                   RECEIVED(a4, INTS(a5), a7), .received_at = INTS(a6)))
ROUTINE(alltoallv, ALLTOALLV, 10,
        RUN_VECTOR(a9, a10, .kind = CP_ALLTOALLV, SENT(a1, INTS(a2), a4), .sent_at = INTS(a3),
                   RECEIVED(a5, INTS(a6), a8), .received_at = INTS(a7)))
ROUTINE(reduce_scatter, REDUCE_SCATTER, 7,
        RUN_VECTOR(a6, a7, .kind = CP_REDUCE_SCATTER, SENT(a1, INTS(a3), a4),
                   RECEIVED(a2, NULL, a4), .op = op_f2c(INT(a5))))

/* Define a routine that calls the routine of MPI and is counted, given its names, the reason why it
 * is native, the argument with the communicator, and the number of arguments. */
#define PASS_ON(lower, upper, shown, why, comm, n) \
    ROUTINE(lower, upper, n, \
            int64_t begin = cp_now_ns(); \
            ((void (*)(CP_L##n))links.next)(CP_A##n); \
            if (cp_settings.is_logged) cp_note(shown, why, comm_f2c(INT(comm)), begin);)

/* Define the non-blocking form of a collective, which has an additional request, and the persistent
 * form, which has an additional info and request, given the names, the argument with the
 * communicator, and the number of arguments of each form. */
#define FORMS(lower, upper, name, comm, n, m) \
    PASS_ON(i##lower, I##upper, "I" #lower, CP_NONBLOCKING, comm, n) \
    PERSISTENT(lower, upper, name, comm, m)
#define PERSISTENT(lower, upper, name, comm, m) \
    PASS_ON(lower##_init, upper##_INIT, #name "_init", CP_PERSISTENT, comm, m)
#define NEIGHBORHOOD(lower, upper, name, comm, n, m) \
    PASS_ON(lower, upper, #name, CP_NEIGHBORHOOD, comm, n) \
    PERSISTENT(lower, upper, name, comm, m)

FORMS(barrier, BARRIER, Barrier, a1, 3, 4)
FORMS(bcast, BCAST, Bcast, a5, 7, 8)
FORMS(reduce, REDUCE, Reduce, a7, 9, 10)
FORMS(allreduce, ALLREDUCE, Allreduce, a6, 8, 9)
FORMS(scan, SCAN, Scan, a6, 8, 9)
FORMS(exscan, EXSCAN, Exscan, a6, 8, 9)
FORMS(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block, a6, 8, 9)
FORMS(reduce_scatter, REDUCE_SCATTER, Reduce_scatter, a6, 8, 9)
FORMS(gather, GATHER, Gather, a8, 10, 11)
FORMS(scatter, SCATTER, Scatter, a8, 10, 11)
FORMS(allgather, ALLGATHER, Allgather, a7, 9, 10)
FORMS(alltoall, ALLTOALL, Alltoall, a7, 9, 10)
FORMS(gatherv, GATHERV, Gatherv, a9, 11, 12)
FORMS(scatterv, SCATTERV, Scatterv, a9, 11, 12)
FORMS(allgatherv, ALLGATHERV, Allgatherv, a8, 10, 11)
FORMS(alltoallv, ALLTOALLV, Alltoallv, a9, 11, 12)
FORMS(alltoallw, ALLTOALLW, Alltoallw, a9, 11, 12)
PASS_ON(alltoallw, ALLTOALLW, "alltoallw", CP_TYPES, a9, 10)
NEIGHBORHOOD(neighbor_allgather, NEIGHBOR_ALLGATHER, Neighbor_allgather, a7, 8, 10)
NEIGHBORHOOD(neighbor_alltoall, NEIGHBOR_ALLTOALL, Neighbor_alltoall, a7, 8, 10)
NEIGHBORHOOD(neighbor_allgatherv, NEIGHBOR_ALLGATHERV, Neighbor_allgatherv, a8, 9, 11)
NEIGHBORHOOD(neighbor_alltoallv, NEIGHBOR_ALLTOALLV, Neighbor_alltoallv, a9, 10, 12)
NEIGHBORHOOD(neighbor_alltoallw, NEIGHBOR_ALLTOALLW, Neighbor_alltoallw, a9, 10, 12)
#endif
