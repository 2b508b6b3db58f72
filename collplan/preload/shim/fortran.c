/* The collectives of Fortran that call PMPI functions of C.
 *
 * In MPICH and its derivatives, most routines of Fortran call MPI functions, so that the functions
 * of calls.c run. In Open MPI, mpif.h and the module mpi use names such as mpi_bcast_, and the
 * module mpi_f08 uses ompi_bcast_f. Both pass the address of each argument. */
#include "wrapping.h"

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
static MPI_Request (*request_f2c)(MPI_Fint);
static MPI_Fint (*request_c2f)(MPI_Request);
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
    *(void **)&request_f2c = cp_symbol("PMPI_Request_f2c");
    *(void **)&request_c2f = cp_symbol("PMPI_Request_c2f");
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
        CP_NOTE_SITE; \
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
#define EQUAL(comm_at, ...) struct cp_call call = {.comm = comm_f2c(INT(comm_at)), __VA_ARGS__};
#define DIFFERENT(comm_at, ...) \
    struct cp_vector_call call = {.comm = comm_f2c(INT(comm_at)), __VA_ARGS__};
#define REDUCED(KIND) \
    .kind = KIND, SENT(a1, INT(a3), a4), RECEIVED(a2, INT(a3), a4), .op = op_f2c(INT(a5))
#define MOVED(KIND) .kind = KIND, SENT(a1, INT(a2), a3), RECEIVED(a4, INT(a5), a6)

/* Do what the routine of MPI does, and count the call, given its name, the reason why it is native,
 * and its size in bytes. */
#define PASS_ON(shown, why, comm, n, n_bytes) \
    static const char padded[CP_NAME_BYTES] = shown; \
    struct cp_mark mark = {NULL, 0, NULL}; \
    if (cp_is_watched) mark = cp_enter(padded, comm_f2c(INT(comm)), 0, shown[0] == 'I'); \
    int64_t begin = cp_now_ns(); \
    ((void (*)(CP_L##n))links.next)(CP_A##n); \
    int64_t ns = cp_now_ns() - begin; \
    cp_leave(mark); \
    if (cp_settings.is_logged) cp_note(shown, why, comm_f2c(INT(comm)), n_bytes, ns);
/* Do what the routine of MPI does, and expect that the request is started. */
#define EXPECT(shown, why, comm, request, n, n_bytes) \
    ((void (*)(CP_L##n))links.next)(CP_A##n); \
    if (cp_settings.is_logged) \
        cp_expect_starts(request_f2c(INT(request)), shown, why, comm_f2c(INT(comm)), n_bytes);

/* Define all forms of a collective, given its names, the argument with the communicator, the numbers
 * of arguments of the blocking, non-blocking and persistent form, and the fields of the call. The last
 * argument is the error, before it comes the request, and before that the info. */
#define FORMS(lower, upper, name, comm, n, n1, n2, ...) \
    ROUTINE(lower, upper, n, EQUAL(comm, __VA_ARGS__) GIVE(cp_run(&call), a##n)) \
    ROUTINE(i##lower, I##upper, n1, EQUAL(comm, __VA_ARGS__) MPI_Request request; \
            GIVE(cp_start(&call, &request), a##n1) \
            if (found == MPI_SUCCESS) *(MPI_Fint *)a##n = request_c2f(request);) \
    ROUTINE(lower##_init, upper##_INIT, n2, EQUAL(comm, __VA_ARGS__) MPI_Request request; \
            const char *why = cp_make_operation(&call, &request); \
            if (why != NULL) { \
                EXPECT(#name "_init", why, comm, a##n1, n2, cp_call_bytes(&call)) \
            } else { \
                *(MPI_Fint *)a##n1 = request_c2f(request); \
                GIVE(MPI_SUCCESS, a##n2) \
            })
#define VECTOR_FORMS(lower, upper, name, comm, n, n1, n2, ...) \
    ROUTINE(lower, upper, n, DIFFERENT(comm, __VA_ARGS__) GIVE(cp_run_vector(&call), a##n)) \
    ROUTINE(lower##_init, upper##_INIT, n2, DIFFERENT(comm, __VA_ARGS__) \
            EXPECT(#name "_init", CP_PERSISTENT, comm, a##n1, n2, cp_vector_bytes(&call)))

/* Define the non-blocking form, which is native, or may have plans. */
#define UNKNOWN_FORMS(lower, upper, name, comm, n, n1, n2, ...) \
    VECTOR_FORMS(lower, upper, name, comm, n, n1, n2, __VA_ARGS__) \
    ROUTINE(i##lower, I##upper, n1, DIFFERENT(comm, __VA_ARGS__) \
            PASS_ON("I" #lower, CP_NONBLOCKING, comm, n1, cp_vector_bytes(&call)))
#define KNOWN_FORMS(lower, upper, name, comm, n, n1, n2, ...) \
    VECTOR_FORMS(lower, upper, name, comm, n, n1, n2, __VA_ARGS__) \
    ROUTINE(i##lower, I##upper, n1, DIFFERENT(comm, __VA_ARGS__) MPI_Request request; \
            GIVE(cp_start_vector(&call, &request), a##n1) \
            if (found == MPI_SUCCESS) *(MPI_Fint *)a##n = request_c2f(request);)

FORMS(barrier, BARRIER, Barrier, a1, 2, 3, 4, .kind = CP_BARRIER)
FORMS(bcast, BCAST, Bcast, a5, 6, 7, 8, .kind = CP_BCAST, RECEIVED(a1, INT(a2), a3),
      .root = INT(a4))
FORMS(reduce, REDUCE, Reduce, a7, 8, 9, 10, REDUCED(CP_REDUCE), .root = INT(a6))
FORMS(allreduce, ALLREDUCE, Allreduce, a6, 7, 8, 9, REDUCED(CP_ALLREDUCE))
FORMS(scan, SCAN, Scan, a6, 7, 8, 9, REDUCED(CP_SCAN))
FORMS(exscan, EXSCAN, Exscan, a6, 7, 8, 9, REDUCED(CP_EXSCAN))
FORMS(reduce_scatter_block, REDUCE_SCATTER_BLOCK, Reduce_scatter_block, a6, 7, 8, 9,
      REDUCED(CP_REDUCE_SCATTER_BLOCK))
FORMS(allgather, ALLGATHER, Allgather, a7, 8, 9, 10, MOVED(CP_ALLGATHER))
FORMS(alltoall, ALLTOALL, Alltoall, a7, 8, 9, 10, MOVED(CP_ALLTOALL))
FORMS(gather, GATHER, Gather, a8, 9, 10, 11, MOVED(CP_GATHER), .root = INT(a7))
FORMS(scatter, SCATTER, Scatter, a8, 9, 10, 11, MOVED(CP_SCATTER), .root = INT(a7))
UNKNOWN_FORMS(gatherv, GATHERV, Gatherv, a9, 10, 11, 12, .kind = CP_GATHERV,
             SENT(a1, INTS(a2), a3), RECEIVED(a4, INTS(a5), a7), .received_at = INTS(a6),
             .root = INT(a8))
UNKNOWN_FORMS(scatterv, SCATTERV, Scatterv, a9, 10, 11, 12, .kind = CP_SCATTERV,
             SENT(a1, INTS(a2), a4), .sent_at = INTS(a3), RECEIVED(a5, INTS(a6), a7),
             .root = INT(a8))
KNOWN_FORMS(allgatherv, ALLGATHERV, Allgatherv, a8, 9, 10, 11, .kind = CP_ALLGATHERV,
             SENT(a1, INTS(a2), a3), RECEIVED(a4, INTS(a5), a7), .received_at = INTS(a6))
UNKNOWN_FORMS(alltoallv, ALLTOALLV, Alltoallv, a9, 10, 11, 12, .kind = CP_ALLTOALLV,
             SENT(a1, INTS(a2), a4), .sent_at = INTS(a3), RECEIVED(a5, INTS(a6), a8),
             .received_at = INTS(a7))
KNOWN_FORMS(reduce_scatter, REDUCE_SCATTER, Reduce_scatter, a6, 7, 8, 9,
             .kind = CP_REDUCE_SCATTER, SENT(a1, INTS(a3), a4), RECEIVED(a2, NULL, a4),
             .op = op_f2c(INT(a5)))

/* Return the size of blocks that this rank sends, which have one datatype or one each. */
static int64_t size_of_all(const int *counts, const MPI_Fint *types, int n, bool has_types) {
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        if (counts[i] > 0) total += cp_bytes(counts[i], type_f2c(types[has_types ? i : 0]));
    return total;
}

/* Define collectives that are native in all forms. */
#define NATIVE(lower, upper, name, shown, why, comm, n, n1, n2, n_bytes) \
    ROUTINE(lower, upper, n, PASS_ON(shown, why, comm, n, n_bytes)) \
    ROUTINE(i##lower, I##upper, n1, PASS_ON("I" #lower, why, comm, n1, n_bytes)) \
    ROUTINE(lower##_init, upper##_INIT, n2, \
            EXPECT(#name "_init", CP_PERSISTENT, comm, a##n1, n2, n_bytes))
#define NEIGHBORHOOD(lower, upper, name, comm, n, n1, n2, n_bytes) \
    NATIVE(lower, upper, name, #name, CP_NEIGHBORHOOD, comm, n, n1, n2, n_bytes)
#define BLOCK cp_bytes(INT(a2), TYPE(a3))
#define TO_ALL \
    (buffer_of(a1) != MPI_IN_PLACE \
         ? size_of_all(INTS(a2), INTS(a4), cp_n_ranks(comm_f2c(INT(a9))), true) \
         : size_of_all(INTS(a6), INTS(a8), cp_n_ranks(comm_f2c(INT(a9))), true))
#define TO_NEIGHBORS(has_types) \
    size_of_all(INTS(a2), INTS(a4), cp_n_neighbors(comm_f2c(INT(a9))), has_types)

NATIVE(alltoallw, ALLTOALLW, Alltoallw, "alltoallw", CP_TYPES, a9, 10, 11, 12,
       TO_ALL)
NEIGHBORHOOD(neighbor_allgather, NEIGHBOR_ALLGATHER, Neighbor_allgather, a7, 8, 9, 10, BLOCK)
NEIGHBORHOOD(neighbor_alltoall, NEIGHBOR_ALLTOALL, Neighbor_alltoall, a7, 8, 9, 10, BLOCK)
NEIGHBORHOOD(neighbor_allgatherv, NEIGHBOR_ALLGATHERV, Neighbor_allgatherv, a8, 9, 10, 11, BLOCK)
NEIGHBORHOOD(neighbor_alltoallv, NEIGHBOR_ALLTOALLV, Neighbor_alltoallv, a9, 10, 11, 12,
             TO_NEIGHBORS(false))
NEIGHBORHOOD(neighbor_alltoallw, NEIGHBOR_ALLTOALLW, Neighbor_alltoallw, a9, 10, 11, 12,
             TO_NEIGHBORS(true))

/* Advance calls in flight until a request is complete, or none are in flight. */
static void await_request(MPI_Fint word) {
    MPI_Request request = request_f2c(word);
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    int is_done = 0, polls = 0;
    cp_note_waiting(1);
    while (__atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) > 0 && !is_done &&
           cp_real.Request_get_status(request, &is_done, (MPI_Status *)status) == MPI_SUCCESS)
        if (!is_done) cp_pass_time(&polls);
    cp_note_waiting(-1);
}

static void release_waits(const int *n, const MPI_Fint *requests) {
    if (__atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) == 0 &&
        __atomic_load_n(&cp_n_timings, __ATOMIC_ACQUIRE) == 0)
        return;
    for (int i = 0; i < *n; i++) {
        MPI_Request request = request_f2c(requests[i]);
        cp_release_waits(1, &request);
    }
}

static void await_requests(const int *n, const MPI_Fint *requests) {
    release_waits(n, requests);
    for (int i = 0; i < *n && __atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) > 0; i++)
        await_request(requests[i]);
}

/* The routines of MPI complete requests. The progress thread advances calls in those routines for
 * which nothing is defined here. */
#define NEXT(n) ((void (*)(CP_L##n))links.next)(CP_A##n);
/* Do what waits, and note it; given the name in reports, and the rank and the tag of the message. */
#define AWAIT(name, peer, tag, ...) \
    static const char padded[CP_NAME_BYTES] = name; \
    if (cp_is_watched) cp_await_begin(padded, peer, tag); \
    __VA_ARGS__; \
    if (cp_is_watched) cp_await_end();
ROUTINE(wait, WAIT, 3, AWAIT("Wait", -1, -1, await_requests(&(int){1}, INTS(a1)); NEXT(3)))
ROUTINE(waitall, WAITALL, 4, AWAIT("Waitall", -1, -1, await_requests(INTS(a1), INTS(a2)); NEXT(4)))
ROUTINE(waitany, WAITANY, 5, AWAIT("Waitany", -1, -1, release_waits(INTS(a1), INTS(a2)); NEXT(5)))
ROUTINE(waitsome, WAITSOME, 6, AWAIT("Waitsome", -1, -1, release_waits(INTS(a1), INTS(a2)); NEXT(6)))
ROUTINE(send, SEND, 7, AWAIT("Send", INT(a4), INT(a5), NEXT(7)))
ROUTINE(ssend, SSEND, 7, AWAIT("Ssend", INT(a4), INT(a5), NEXT(7)))
ROUTINE(recv, RECV, 8, AWAIT("Recv", INT(a4), INT(a5), NEXT(8)))
ROUTINE(probe, PROBE, 5, AWAIT("Probe", INT(a1), INT(a2), NEXT(5)))

/* Define a routine that makes a communicator; see watching.c. */
#define MAKING(lower, upper, shown, n, from, to, is_of_all) \
    ROUTINE(lower, upper, n, MPI_Comm parent = comm_f2c(INT(from)); \
            static const char padded[CP_NAME_BYTES] = shown; \
            struct cp_mark mark = {NULL, 0, NULL}; \
            if (cp_is_watched && is_of_all) mark = cp_enter(padded, parent, 0, false); \
            NEXT(n) \
            cp_leave(mark); \
            if (cp_is_watched && (a##n == 0 || INT(a##n) == MPI_SUCCESS)) \
                cp_note_made(parent, comm_f2c(INT(to)), shown);)
MAKING(comm_dup, COMM_DUP, "comm_dup", 3, a1, a2, true)
MAKING(comm_split, COMM_SPLIT, "comm_split", 5, a1, a4, true)
MAKING(comm_split_type, COMM_SPLIT_TYPE, "comm_split_type", 6, a1, a5, true)
MAKING(comm_create, COMM_CREATE, "comm_create", 4, a1, a3, true)
MAKING(comm_create_group, COMM_CREATE_GROUP, "comm_create_group", 5, a1, a4, false)
MAKING(cart_create, CART_CREATE, "cart_create", 7, a1, a6, true)
MAKING(cart_sub, CART_SUB, "cart_sub", 4, a1, a3, true)

static void drain(MPI_Fint word) {
    struct cp_comm *comm = cp_comm_of(comm_f2c(word));
    if (comm != NULL) cp_drain(comm);
}
ROUTINE(comm_free, COMM_FREE, 2, drain(INT(a1)); NEXT(2))
ROUTINE(comm_disconnect, COMM_DISCONNECT, 2, drain(INT(a1)); NEXT(2))

/* Run the plans of persistent requests that MPI has started, and count native ones. */
static void note_starts(int n, const MPI_Fint *words, int64_t begin_ns) {
    for (int i = 0; i < n && cp_n_persistent > 0; i++) {
        MPI_Request request = request_f2c(words[i]);
        cp_note_starts(&request, 1, begin_ns);
    }
}
ROUTINE(start, START, 2, int64_t begin = cp_now_ns(); NEXT(2) note_starts(1, INTS(a1), begin);)
ROUTINE(startall, STARTALL, 3, int64_t begin = cp_now_ns(); NEXT(3)
        note_starts(INT(a1), INTS(a2), begin);)
ROUTINE(request_free, REQUEST_FREE, 2,
        if (cp_n_persistent > 0) cp_forget_starts(request_f2c(INT(a1))); NEXT(2))
#endif
