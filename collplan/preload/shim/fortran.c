/* The collectives of Fortran, where they call PMPI functions of C.
 *
 * MPICH and its relatives call MPI functions, but for a few; those of calls.c run there. Of Open MPI,
 * mpif.h and the module mpi use names such as mpi_bcast_, and the module mpi_f08 uses
 * ompi_bcast_f; both pass every argument by its address. */
#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
int MPI_Barrier(MPI_Comm comm);

#ifndef COLLPLAN_OPENMPI
/* Where nothing has to be translated, MPICH's module mpi_f08 calls PMPI functions, too. */
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

/* Handles of Fortran are numbers in tables of the library. */
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

/* Return a buffer as C has it: in place, at the bottom of memory, or where it is. */
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

/* All names under which a routine is called. */
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
#endif
