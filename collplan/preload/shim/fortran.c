/* The collectives of Fortran that call PMPI functions of C.
 *
 * In MPICH and its derivatives, most routines of Fortran call MPI functions, so that the functions
 * of calls.c run. In Open MPI, mpif.h and the module mpi use names such as mpi_bcast_, and the
 * module mpi_f08 uses ompi_bcast_f. Both pass the address of each argument. */
#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
int MPI_Barrier(MPI_Comm comm);

#ifndef COLLPLAN_OPENMPI
/* The module mpi_f08 of MPICH calls PMPI functions if no argument has to be converted. */
static void give(MPI_Fint *error, int code) {
    if (error != NULL) *error = code;
}

EXPORT void mpi_init_f08_(MPI_Fint *error) { give(error, MPI_Init(NULL, NULL)); }

EXPORT void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error) {
    give(error, MPI_Init_thread(NULL, NULL, *required, provided));
}

EXPORT void mpi_finalize_f08_(MPI_Fint *error) { give(error, MPI_Finalize()); }

EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error) { give(error, MPI_Barrier(*comm)); }
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
    cp_resolve();
    if (__atomic_load_n(&op_f2c, __ATOMIC_ACQUIRE) != NULL) return;
    find(in_place, in_places);
    find(bottom, bottoms);
    *(void **)&comm_f2c = cp_symbol("PMPI_Comm_f2c");
    *(void **)&type_f2c = cp_symbol("PMPI_Type_f2c");
    __atomic_store_n((void **)&op_f2c, cp_symbol("PMPI_Op_f2c"), __ATOMIC_RELEASE);
}

/* Return the address of a buffer in C: MPI_IN_PLACE, NULL for MPI_BOTTOM, or the given address. */
static void *buffer_of(void *at) {
    for (int i = 0; at != NULL && i < 4; i++) {
        if (at == in_place[i]) return MPI_IN_PLACE;
        if (at == bottom[i]) return NULL;
    }
    return at;
}

static void run(const struct cp_call *call, MPI_Fint *error) {
    int code = cp_settings.is_on ? cp_run(call) : cp_native(call);
    if (error != NULL) *error = code;
}

/* Define all further names under which programs may call a routine. */
#define NAMES(lower, upper, ...) \
    EXPORT void mpi_##lower(__VA_ARGS__) __attribute__((alias("ompi_" #lower "_f"))); \
    EXPORT void mpi_##lower##_(__VA_ARGS__) __attribute__((alias("ompi_" #lower "_f"))); \
    EXPORT void mpi_##lower##__(__VA_ARGS__) __attribute__((alias("ompi_" #lower "_f"))); \
    EXPORT void MPI_##upper(__VA_ARGS__) __attribute__((alias("ompi_" #lower "_f")));

EXPORT void ompi_init_f(MPI_Fint *error) {
    int code = MPI_Init(NULL, NULL);
    if (error != NULL) *error = code;
}
NAMES(init, INIT, MPI_Fint *)

EXPORT void ompi_init_thread_f(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error) {
    int code = MPI_Init_thread(NULL, NULL, *required, provided);
    if (error != NULL) *error = code;
}
NAMES(init_thread, INIT_THREAD, MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_finalize_f(MPI_Fint *error) {
    int code = MPI_Finalize();
    if (error != NULL) *error = code;
}
NAMES(finalize, FINALIZE, MPI_Fint *)

EXPORT void ompi_barrier_f(MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_call call = {.kind = CP_BARRIER, .comm = comm_f2c(*comm)};
    run(&call, error);
}
NAMES(barrier, BARRIER, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_bcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root,
                         MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_call call = {.kind = CP_BCAST, .received = buffer_of(buffer), .n_received = *count,
                           .received_type = type_f2c(*type), .root = *root,
                           .comm = comm_f2c(*comm)};
    run(&call, error);
}
NAMES(bcast, BCAST, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_reduce_f(void *sent, void *received, MPI_Fint *count, MPI_Fint *type,
                          MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_call call = {.kind = CP_REDUCE, .sent = buffer_of(sent), .n_sent = *count,
                           .sent_type = type_f2c(*type), .received = buffer_of(received),
                           .n_received = *count, .received_type = type_f2c(*type),
                           .op = op_f2c(*op), .root = *root, .comm = comm_f2c(*comm)};
    run(&call, error);
}
NAMES(reduce, REDUCE, void *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *)

#define REDUCTION(lower, upper, KIND) \
    EXPORT void ompi_##lower##_f(void *sent, void *received, MPI_Fint *count, MPI_Fint *type, \
                                 MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error) { \
        resolve(); \
        struct cp_call call = {.kind = KIND, .sent = buffer_of(sent), .n_sent = *count, \
                               .sent_type = type_f2c(*type), .received = buffer_of(received), \
                               .n_received = *count, .received_type = type_f2c(*type), \
                               .op = op_f2c(*op), .comm = comm_f2c(*comm)}; \
        run(&call, error); \
    } \
    NAMES(lower, upper, void *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *)
REDUCTION(allreduce, ALLREDUCE, CP_ALLREDUCE)
REDUCTION(scan, SCAN, CP_SCAN)
REDUCTION(exscan, EXSCAN, CP_EXSCAN)
REDUCTION(reduce_scatter_block, REDUCE_SCATTER_BLOCK, CP_REDUCE_SCATTER_BLOCK)

#define MOVE(lower, upper, KIND) \
    EXPORT void ompi_##lower##_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_type, \
                                 void *received, MPI_Fint *n_received, MPI_Fint *received_type, \
                                 MPI_Fint *comm, MPI_Fint *error) { \
        resolve(); \
        struct cp_call call = {.kind = KIND, .sent = buffer_of(sent), .n_sent = *n_sent, \
                               .sent_type = type_f2c(*sent_type), \
                               .received = buffer_of(received), .n_received = *n_received, \
                               .received_type = type_f2c(*received_type), \
                               .comm = comm_f2c(*comm)}; \
        run(&call, error); \
    } \
    NAMES(lower, upper, void *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *, \
          MPI_Fint *, MPI_Fint *)
MOVE(allgather, ALLGATHER, CP_ALLGATHER)
MOVE(alltoall, ALLTOALL, CP_ALLTOALL)

#define ROOTED_MOVE(lower, upper, KIND) \
    EXPORT void ompi_##lower##_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_type, \
                                 void *received, MPI_Fint *n_received, MPI_Fint *received_type, \
                                 MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error) { \
        resolve(); \
        struct cp_call call = {.kind = KIND, .sent = buffer_of(sent), .n_sent = *n_sent, \
                               .sent_type = type_f2c(*sent_type), \
                               .received = buffer_of(received), .n_received = *n_received, \
                               .received_type = type_f2c(*received_type), .root = *root, \
                               .comm = comm_f2c(*comm)}; \
        run(&call, error); \
    } \
    NAMES(lower, upper, void *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *, \
          MPI_Fint *, MPI_Fint *, MPI_Fint *)
ROOTED_MOVE(gather, GATHER, CP_GATHER)
ROOTED_MOVE(scatter, SCATTER, CP_SCATTER)

static void run_vector(const struct cp_vector_call *call, MPI_Fint *error) {
    int code = cp_settings.is_on ? cp_run_vector(call) : cp_native_vector(call);
    if (error != NULL) *error = code;
}

EXPORT void ompi_gatherv_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_type, void *received,
                           MPI_Fint *n_received, MPI_Fint *received_at, MPI_Fint *received_type,
                           MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_vector_call call = {
        .kind = CP_GATHERV, .sent = buffer_of(sent), .n_sent = n_sent,
        .sent_type = type_f2c(*sent_type), .received = buffer_of(received),
        .n_received = n_received, .received_at = received_at,
        .received_type = type_f2c(*received_type), .root = *root, .comm = comm_f2c(*comm)};
    run_vector(&call, error);
}
NAMES(gatherv, GATHERV, void *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_scatterv_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_at, MPI_Fint *sent_type,
                            void *received, MPI_Fint *n_received, MPI_Fint *received_type,
                            MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_vector_call call = {
        .kind = CP_SCATTERV, .sent = buffer_of(sent), .n_sent = n_sent, .sent_at = sent_at,
        .sent_type = type_f2c(*sent_type), .received = buffer_of(received),
        .n_received = n_received, .received_type = type_f2c(*received_type), .root = *root,
        .comm = comm_f2c(*comm)};
    run_vector(&call, error);
}
NAMES(scatterv, SCATTERV, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_allgatherv_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_type, void *received,
                              MPI_Fint *n_received, MPI_Fint *received_at,
                              MPI_Fint *received_type, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_vector_call call = {
        .kind = CP_ALLGATHERV, .sent = buffer_of(sent), .n_sent = n_sent,
        .sent_type = type_f2c(*sent_type), .received = buffer_of(received),
        .n_received = n_received, .received_at = received_at,
        .received_type = type_f2c(*received_type), .comm = comm_f2c(*comm)};
    run_vector(&call, error);
}
NAMES(allgatherv, ALLGATHERV, void *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_alltoallv_f(void *sent, MPI_Fint *n_sent, MPI_Fint *sent_at, MPI_Fint *sent_type,
                             void *received, MPI_Fint *n_received, MPI_Fint *received_at,
                             MPI_Fint *received_type, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_vector_call call = {
        .kind = CP_ALLTOALLV, .sent = buffer_of(sent), .n_sent = n_sent, .sent_at = sent_at,
        .sent_type = type_f2c(*sent_type), .received = buffer_of(received),
        .n_received = n_received, .received_at = received_at,
        .received_type = type_f2c(*received_type), .comm = comm_f2c(*comm)};
    run_vector(&call, error);
}
NAMES(alltoallv, ALLTOALLV, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *)

EXPORT void ompi_reduce_scatter_f(void *sent, void *received, MPI_Fint *counts, MPI_Fint *type,
                                  MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error) {
    resolve();
    struct cp_vector_call call = {
        .kind = CP_REDUCE_SCATTER, .sent = buffer_of(sent), .n_sent = counts,
        .sent_type = type_f2c(*type), .received = buffer_of(received),
        .received_type = type_f2c(*type), .op = op_f2c(*op), .comm = comm_f2c(*comm)};
    run_vector(&call, error);
}
NAMES(reduce_scatter, REDUCE_SCATTER, void *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
      MPI_Fint *, MPI_Fint *)

/* Lists of N addresses: parameters (L) and arguments (A). */
#define L3 void *a1, void *a2, void *a3
#define A3 a1, a2, a3
#define L4 L3, void *a4
#define A4 A3, a4
#define L5 L4, void *a5
#define A5 A4, a5
#define L6 L5, void *a6
#define A6 A5, a6
#define L7 L6, void *a7
#define A7 A6, a7
#define L8 L7, void *a8
#define A8 A7, a8
#define L9 L8, void *a9
#define A9 A8, a9
#define L10 L9, void *a10
#define A10 A9, a10
#define L11 L10, void *a11
#define A11 A10, a11
#define L12 L11, void *a12
#define A12 A11, a12

/* Define a routine that calls the routine of MPI and is counted, given its names, the reason why it
 * is native, the argument with the communicator, and the number of arguments. All arguments are
 * addresses. */
#define PASS_ON(lower, upper, shown, why, comm, n) \
    EXPORT void ompi_##lower##_f(L##n) { \
        static void(*own)(L##n); \
        resolve(); \
        if (own == NULL) *(void **)&own = cp_needed("pmpi_" #lower "_"); \
        if (!cp_settings.is_on || !cp_settings.is_logged) { \
            own(A##n); \
            return; \
        } \
        int64_t begin = cp_now_ns(); \
        own(A##n); \
        cp_note(shown, why, comm_f2c(*(MPI_Fint *)comm), begin); \
    } \
    NAMES(lower, upper, L##n)

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
