/* What the parts of the preloaded library know of each other. */
#ifndef COLLPLAN_SHIM_H
#define COLLPLAN_SHIM_H

#include <stdbool.h>

#include "mpi_abi.h"
#include "records.h"

/* real.c: MPI's own functions, found when they are needed, so that a process without MPI can
 * load this library. */
typedef int cp_copy_function(void *, int, void *, void *, void *, int *);
typedef int cp_comm_delete(MPI_Comm, int, void *, void *);
typedef int cp_type_delete(MPI_Datatype, int, void *, void *);

#define CP_REAL(X) \
    X(int, Init, (int *, char ***)) \
    X(int, Init_thread, (int *, char ***, int, int *)) \
    X(int, Finalize, (void)) \
    X(int, Abort, (MPI_Comm, int)) \
    X(int, Get_library_version, (char *, int *)) \
    X(int, Comm_rank, (MPI_Comm, int *)) \
    X(int, Comm_size, (MPI_Comm, int *)) \
    X(int, Comm_test_inter, (MPI_Comm, int *)) \
    X(int, Comm_group, (MPI_Comm, MPI_Group *)) \
    X(int, Group_free, (MPI_Group *)) \
    X(int, Comm_create, (MPI_Comm, MPI_Group, MPI_Comm *)) \
    X(int, Comm_split_type, (MPI_Comm, int, int, MPI_Info, MPI_Comm *)) \
    X(int, Comm_free, (MPI_Comm *)) \
    X(int, Comm_set_errhandler, (MPI_Comm, MPI_Errhandler)) \
    X(int, Comm_get_errhandler, (MPI_Comm, MPI_Errhandler *)) \
    X(int, Errhandler_free, (MPI_Errhandler *)) \
    X(int, Comm_call_errhandler, (MPI_Comm, int)) \
    X(int, Comm_create_keyval, (cp_copy_function *, cp_comm_delete *, int *, void *)) \
    X(int, Comm_set_attr, (MPI_Comm, int, void *)) \
    X(int, Comm_get_attr, (MPI_Comm, int, void *, int *)) \
    X(int, Type_create_keyval, (cp_copy_function *, cp_type_delete *, int *, void *)) \
    X(int, Type_set_attr, (MPI_Datatype, int, void *)) \
    X(int, Type_get_attr, (MPI_Datatype, int, void *, int *)) \
    X(int, Type_size, (MPI_Datatype, int *)) \
    X(int, Type_get_extent, (MPI_Datatype, MPI_Aint *, MPI_Aint *)) \
    X(int, Type_get_envelope, (MPI_Datatype, int *, int *, int *, int *)) \
    X(int, Type_get_contents, (MPI_Datatype, int, int, int, int *, MPI_Aint *, MPI_Datatype *)) \
    X(int, Type_contiguous, (int, MPI_Datatype, MPI_Datatype *)) \
    X(int, Type_create_hvector, (int, int, MPI_Aint, MPI_Datatype, MPI_Datatype *)) \
    X(int, Type_create_struct, \
      (int, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Datatype *)) \
    X(int, Type_commit, (MPI_Datatype *)) \
    X(int, Type_free, (MPI_Datatype *)) \
    X(int, Pack, (const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm)) \
    X(int, Unpack, (const void *, int, int *, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
    X(int, Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
    X(int, Testsome, (int, MPI_Request *, int *, int *, MPI_Status *)) \
    X(int, Iprobe, (int, int, MPI_Comm, int *, MPI_Status *)) \
    X(int, Barrier, (MPI_Comm)) \
    X(int, Bcast, (void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Reduce, (const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm)) \
    X(int, Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Scan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Exscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Reduce_scatter_block, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Gather, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Scatter, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Allgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Alltoall, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Gatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, \
       MPI_Comm)) \
    X(int, Scatterv, \
      (const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, \
       MPI_Comm)) \
    X(int, Allgatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, \
       MPI_Comm)) \
    X(int, Alltoallv, \
      (const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, \
       MPI_Datatype, MPI_Comm)) \
    X(int, Reduce_scatter, \
      (const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm))

#define X(result, name, parameters) result(*name) parameters;
struct cp_real {
    CP_REAL(X)
};
#undef X

extern struct cp_real cp_real;
/* The functions; those of MPI's library once cp_resolve has run. */
void cp_resolve(void);
void *cp_symbol(const char *name);

#define X(name, type, number, symbol) extern type cp_##name;
CP_HANDLES(X)
#undef X

/* elements.c: datatypes and operations as plans see them. */
struct cp_element {
    int64_t size;      /* bytes of the signature */
    int64_t extent;    /* bytes from one to the next in memory */
    bool is_plain;     /* whether memory is the signature */
    bool is_pair;      /* whether reductions take the gaps, too */
    const char *name;  /* what a plan that reduces calls it, or NULL */
};
void cp_know_elements(void);
/* Return what an element of a datatype is, or NULL where MPI does not say. `room` is used for
 * what cannot be kept. */
const struct cp_element *cp_element_of(MPI_Datatype type, struct cp_element *room);
/* Return the name of an operation, or NULL. */
const char *cp_operation_name(MPI_Op op);

/* calls.c: collectives as they are called. */
enum cp_kind {
    CP_BARRIER, CP_BCAST, CP_REDUCE, CP_ALLREDUCE, CP_GATHER, CP_SCATTER, CP_ALLGATHER,
    CP_ALLTOALL, CP_REDUCE_SCATTER_BLOCK, CP_SCAN, CP_EXSCAN,
    /* Those whose counts differ per rank. */
    CP_GATHERV, CP_SCATTERV, CP_ALLGATHERV, CP_ALLTOALLV, CP_REDUCE_SCATTER, CP_N_KINDS
};
#define CP_N_VECTORS (CP_N_KINDS - CP_GATHERV)
extern const char *const cp_kind_names[CP_N_KINDS];
/* The kinds of equal counts whose sweeps decide for the last ones. */
extern const char *const cp_regular_names[CP_N_VECTORS];

struct cp_call {
    enum cp_kind kind;
    const void *sent;
    int n_sent;
    MPI_Datatype sent_type;
    void *received;
    int n_received;
    MPI_Datatype received_type;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};
/* Run a call natively, or by a plan. */
int cp_native(const struct cp_call *call);
int cp_run(const struct cp_call *call);

/* vectors.c: collectives whose counts differ per rank; a single count is an array of one.
 * Of reduce_scatter, `n_sent` has the counts, and `sent_type` the type. */
struct cp_vector_call {
    enum cp_kind kind;
    const void *sent;
    const int *n_sent, *sent_at;
    MPI_Datatype sent_type;
    void *received;
    const int *n_received, *received_at;
    MPI_Datatype received_type;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};
int cp_native_vector(const struct cp_vector_call *call);
int cp_run_vector(const struct cp_vector_call *call);
/* What a rank knows of counts: whether it has those of all blocks, and of what alltoallv receives;
 * the bytes of its own block or -1; both lists. */
#define CP_COUNT_WORDS(size) (3 + 2 * (int64_t)(size))

/* uncovered.c: calls that no plan runs, and why. */
#define CP_NONBLOCKING "calls that do not block are native in programs without Python"
#define CP_NEIGHBORHOOD "neighborhood collectives are native"
#define CP_TYPES "calls with a datatype per rank are native"
#define CP_PERSISTENT "MPI starts persistent collectives by their handles"
void *cp_needed(const char *name);
void cp_note(const char *name, const char *why, MPI_Comm comm, int64_t begin);

/* statistics.c: rows of calls, which outlive communicators. */
struct cp_row {
    struct cp_row *next;
    char *collective, *ran, *why;
    int64_t ranks, first_bytes, least_bytes, most_bytes, calls, ns;
    double native_s, chosen_s; /* negative where unknown */
    bool planned;
};
struct cp_row *cp_row(const char *collective, const char *ran, const char *why, int64_t ranks,
                      int64_t n_bytes, bool planned, double native_s, double chosen_s);
void cp_count(struct cp_row *row, int64_t n_bytes, int64_t ns);
int64_t cp_now_ns(void);
/* Hand all rows to the helper, which prints them. */
void cp_report(void);

/* helper.c: the helper process of this node, which knows the table and makes plans. */
struct cp_reply {
    int64_t status; /* 0 if all is well, otherwise the text says what is not */
    int64_t n_bytes;
    char *bytes; /* to be freed; a text where the status is not 0 */
};
enum cp_request { CP_HELLO = 1, CP_COMM, CP_DECIDE, CP_PLAN, CP_STATISTICS };
struct cp_facts {
    uint64_t words[24]; /* of a rank: its node, host, scheduling group and processors */
};
bool cp_helper_start(int *n_nodes);
void cp_helper_stop(void);
struct cp_reply cp_ask(enum cp_request request, const void *bytes, int64_t n_bytes);

/* state.c: what is known of the process. */
struct cp_settings {
    bool is_on;       /* whether plans may run at all, the same on all ranks */
    bool is_logged;   /* whether statistics are wanted */
    int world_rank, world_size;
    int64_t native_calls, max_plans;
    uint64_t kinds;   /* those with a sweep, as bits */
    int comm_keyval, type_keyval;
    struct cp_facts facts;
    int tag_ub;
};
extern struct cp_settings cp_settings;
void cp_begin(void);
void cp_end(void);
void cp_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* communicators.c: signatures of calls, and what they run. */
struct cp_signature {
    int64_t kind, root, n_bytes;
    const char *op, *element; /* NULL where there are none; equal texts are the same pointer */
    uint64_t digest[2];       /* of the counts of all ranks, where these differ */
};
struct cp_plan;
enum cp_way { CP_COUNTING, CP_NATIVE, CP_PLANNED };
struct cp_route {
    struct cp_signature signature;
    enum cp_way way;
    bool is_decided;
    int64_t n_calls, last_used;
    struct cp_row *row;
    struct cp_plan *plan;
    char *label, *why;
    double native_s, chosen_s;
    int64_t digest;
    bool is_wanted;
};
/* Meetings about calls whose counts differ per rank, and whether they were worth it. */
struct cp_backoff {
    bool has_met;
    int64_t n_in_vain, n_left;
    const char *why;
};
struct cp_comm {
    struct cp_comm *next, *before;
    MPI_Comm comm, private_comm;
    int rank, size;
    bool is_inter, has_facts;
    struct cp_facts *facts; /* of all ranks */
    int64_t id;             /* the helper's number, -1 before it knows the communicator */
    int64_t clock;
    struct cp_route **routes; /* hash table */
    int64_t n_places, n_routes, n_plans;
    struct cp_route *latest;
    struct cp_backoff backoffs[CP_N_VECTORS];
};
struct cp_comm *cp_comm_of(MPI_Comm comm);
/* Return what a signature runs now; collective where ranks decide or make a plan. `counts` is what
 * this rank knows of counts that differ, or NULL. */
struct cp_route *cp_route_of(struct cp_comm *comm, const struct cp_signature *signature,
                             const int64_t *counts);
bool cp_is_known(const struct cp_comm *comm, const struct cp_signature *signature);
/* Write what the helper is asked about a signature; return how long that is. */
int cp_write_question(const struct cp_comm *comm, const struct cp_signature *signature,
                      char *text, size_t n_bytes);
void cp_free_all(void);
int cp_delete_comm(MPI_Comm comm, int keyval, void *attribute, void *extra);

/* plans.c: bound plans. */
struct cp_plan *cp_make_plan(struct cp_comm *comm, struct cp_route *route, const int64_t *counts,
                             char **why);
void cp_free_plan(struct cp_plan *plan);
/* A buffer of one rank in one call. */
struct cp_side {
    char *at;
    int64_t count; /* elements of a block */
    int64_t blocks;
    MPI_Datatype type;
    struct cp_element element;
};
struct cp_use {
    struct cp_side sent, received;
    bool has_sent, has_received, is_root;
    bool gives_in_place, takes_in_place; /* input in the receive buffer; the root's own block */
};
int cp_run_plan(struct cp_plan *plan, const struct cp_call *call, const struct cp_use *use);
/* Copy between elements of a buffer and memory without gaps, in the order of the signature. */
int cp_move_side(const struct cp_side *side, int64_t first, int64_t n, char *packed,
                 bool is_into_buffer, MPI_Comm comm);
/* Whether a plan can use memory that begins there, and whether its buffers would overlap. */
bool cp_plan_takes(const struct cp_plan *plan, const void *at);
bool cp_plan_overlaps(const struct cp_plan *plan, const char *sent_at, const char *received_at);
/* Return memory of the plan for its input or its result. */
char *cp_stage(struct cp_plan *plan, bool is_received);
/* Run a plan on memory that it can use. */
int cp_start_plan(struct cp_plan *plan, const char *sent_at, const char *received_at,
                  MPI_Comm comm);

#endif
