/* Common declarations of the parts of the preloaded library. */
#ifndef COLLPLAN_SHIM_H
#define COLLPLAN_SHIM_H

#include <pthread.h>
#include <stdbool.h>

#include "real.h"
#include "records.h"
#include "watch.h"

#define CP_EXPORT __attribute__((visibility("default")))

/* real.c: what is looked up in the MPI library. */
extern struct cp_real cp_real;
/* Look up all functions and handles. Return the reason why plans cannot run, or NULL. */
const char *cp_resolve(void);
/* Return a handle of the program; NULL if there is none. */
void *cp_symbol(const char *name);
/* Return the next definition of a function behind this library's. If there is none, return NULL or
 * abort. */
void *cp_next(const char *name);
void *cp_needed(const char *name);

/* Let MPI return the errors of a communicator; return its error handler for cp_restore. */
MPI_Errhandler cp_silence(MPI_Comm comm);
void cp_restore(MPI_Comm comm, MPI_Errhandler handler);

#define X(name, type, number, symbol) extern type cp_##name;
CP_HANDLES(X)
#undef X

/* elements.c: properties of datatypes and operations that plans need. */
struct cp_element {
    int64_t size;      /* size of the type signature in bytes */
    int64_t extent;    /* distance of consecutive elements in memory in bytes */
    bool is_plain;     /* whether elements have the order of their signature and no gaps */
    bool is_pair;      /* whether gaps are part of the element in reductions */
    bool is_committed, is_predefined;
    int64_t first;     /* offset of the first byte of an element in memory */
    int64_t end;       /* offset after the last byte */
    const char *name;  /* name of the type in reductions of plans, or NULL */
};
void cp_know_elements(void);
/* Return the properties of the elements of a datatype, or NULL if MPI reports an error. The result
 * is stored in `room` if it cannot be cached. */
const struct cp_element *cp_element_of(MPI_Datatype type, struct cp_element *room);
/* Return whether `n` elements at an address may be in a message: the datatype is committed, and the
 * address is not null. */
bool cp_is_message(const struct cp_element *element, const char *at, int64_t n);
/* Return the name of an operation in plans, or NULL. */
const char *cp_operation_name(MPI_Op op);
/* Find an operation and a datatype by their names in plans. */
bool cp_find_operands(const char *op_name, const char *element_name, MPI_Op *op,
                      MPI_Datatype *element);
/* Give an operation of the program the name of a registered one. */
void cp_name_operation(MPI_Op op, const char *name);
/* Forget the name of an operation that is freed, as MPI may use its handle again. */
bool cp_forget_operation(MPI_Op op);
/* Return whether a name is that of such an operation. */
bool cp_is_registered(const char *name);
/* Return whether MPI defines an operation on elements, as in specs/collectives/predefined.py. */
bool cp_is_defined(const char *op, const char *element);

/* calls.c: collectives that programs call. */
enum cp_kind {
    CP_BARRIER, CP_BCAST, CP_REDUCE, CP_ALLREDUCE, CP_GATHER, CP_SCATTER, CP_ALLGATHER,
    CP_ALLTOALL, CP_REDUCE_SCATTER_BLOCK, CP_SCAN, CP_EXSCAN,
    /* Kinds whose counts differ per rank. */
    CP_GATHERV, CP_SCATTERV, CP_ALLGATHERV, CP_ALLTOALLV, CP_REDUCE_SCATTER, CP_N_KINDS
};
#define CP_N_VECTORS (CP_N_KINDS - CP_GATHERV)
extern const char *const cp_kind_names[CP_N_KINDS];
/* Names of their non-blocking and persistent forms. */
extern const char *const cp_started_names[CP_N_KINDS];
extern const char *const cp_repeated_names[CP_GATHERV];
/* Kinds with equal counts whose sweeps decide for the kinds whose counts differ per rank. */
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
/* Return the size of a call in bytes, as statistics have it. */
int64_t cp_call_bytes(const struct cp_call *call);

#define CP_NO_PLAN "the table has no plan of %s that pays"
#define CP_FOREIGN "processes of another MPI_COMM_WORLD take part"
#define CP_FULL "a rank has as many communicators with plans as it may have"

/* vectors.c: collectives whose counts differ per rank. A single count is an array of length one.
 * For reduce_scatter, `n_sent` has the counts, and `sent_type` is the datatype. */
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
    const intptr_t *wide; /* arguments of a form with large counts that does not block, or NULL */
};
int cp_native_vector(const struct cp_vector_call *call);
int cp_run_vector(const struct cp_vector_call *call);
int64_t cp_vector_bytes(const struct cp_vector_call *call);
/* Convert the arrays of a call from large counts to counts of type int, in memory that the caller frees.
 * Return false if they do not fit. */
bool cp_narrow(struct cp_vector_call *call, int **room);
/* Let all ranks know that a call is native, for a reason that only some of them have; collective. */
void cp_refuse_vector(const struct cp_vector_call *call, const char *why);
/* Number of words for the counts that a rank knows: a flag for the counts of all blocks, a flag for
 * the counts that alltoallv receives, the size of its own block (-1 if unknown), and both lists of
 * counts. All counts are in bytes. */
#define CP_COUNT_WORDS(size) (3 + 2 * (int64_t)(size))

/* nonblocking.c: non-blocking collectives. */
/* Start a call natively on a communicator, or by a plan. */
int cp_native_start(const struct cp_call *call, MPI_Comm comm, MPI_Request *request);
int cp_start(const struct cp_call *call, MPI_Request *request);
/* The same for MPI_Iallgatherv and MPI_Ireduce_scatter. */
int cp_start_vector(const struct cp_vector_call *call, MPI_Request *request);

/* uncovered.c: calls that no plan runs, with the reasons. */
#define CP_NONBLOCKING "non-blocking: ranks would have to meet to know each other's counts"
#define CP_NEIGHBORHOOD "neighborhood collectives are native"
#define CP_TYPES "calls with a datatype per rank are native"
#define CP_PERSISTENT "persistent calls with counts that differ per rank are native"
#define CP_REJECTED "MPI has to check its arguments"
#define CP_NO_ROOM "the communicator has as many plans of non-blocking calls as it may have"
#define CP_TOO_MANY "the communicator has too many different non-blocking calls"
#define CP_LARGE "calls with large counts are native"
/* Return the row of native calls on a communicator; NULL if no family has it. */
struct cp_row *cp_row_of(MPI_Comm comm, const char *name, const char *why, int64_t n_bytes);
/* Count a native call that took `ns`. */
void cp_note(const char *name, const char *why, MPI_Comm comm, int64_t n_bytes, int64_t ns);
/* Return the size of elements in bytes. */
int64_t cp_bytes(int64_t n, MPI_Datatype type);
/* Return the number of ranks of a communicator, 0 if it is between two groups; and the number of
 * neighbors to which this rank sends. */
int cp_n_ranks(MPI_Comm comm);
int cp_n_neighbors(MPI_Comm comm);

/* persistent.c: persistent collectives, which run by plans, or natively and are counted. */
/* Make an operation whose plan runs when its request is started. Return NULL, or the reason why the
 * call is native; collective. */
const char *cp_make_operation(const struct cp_call *call, MPI_Request *request);
/* Count the starts of a native request. */
void cp_expect_starts(MPI_Request request, const char *name, const char *why, MPI_Comm comm,
                      int64_t n_bytes);
/* Run the plans of requests that MPI has started since `begin_ns`, and count native ones. */
void cp_note_starts(const MPI_Request *requests, int n, int64_t begin_ns);
/* Forget a request that is freed. */
void cp_forget_starts(MPI_Request request);
extern int cp_n_persistent; /* number of requests whose starts are of interest */

struct cp_family;
/* statistics.c: rows of calls, which remain when communicators are freed. */
struct cp_row {
    struct cp_row *next;
    char *collective, *ran, *why;
    int64_t ranks, first_bytes, least_bytes, most_bytes, calls, ns;
    double native_s, chosen_s; /* times per call in seconds; negative if unknown */
    bool planned;
};
struct cp_row *cp_row(struct cp_family *family, const char *collective, const char *ran,
                      const char *why, int64_t ranks, int64_t n_bytes, bool planned,
                      double native_s, double chosen_s);
void cp_count(struct cp_row *row, int64_t n_bytes, int64_t ns);
/* Return whether calls were counted. */
bool cp_has_rows(const struct cp_family *family);
int64_t cp_now_ns(void);
/* Print all rows as the helper formats them; without it, print only numbers of calls. */
void cp_report(struct cp_family *family);
/* Return all rows as lines of text, which the caller frees; NULL if there is no memory. */
char *cp_write_rows(const struct cp_family *family, size_t *n_bytes);

/* helper.c: the helper process of this node, which reads the table and makes plans. */
struct cp_reply {
    int64_t status; /* 0 for success */
    int64_t n_bytes;
    char *bytes; /* content; an error message if the status is not 0; the caller frees it */
};
enum cp_request { CP_HELLO = 1, CP_COMM, CP_DECIDE, CP_PLAN, CP_STATISTICS, CP_WATCH, CP_TRY,
                  CP_TURN, CP_PLACE };
struct cp_facts {
    uint64_t words[24]; /* node, host, scheduling group and affinity mask of a rank */
};
/* Start the helper on one rank of a node, and connect all ranks of the node; collective. */
bool cp_helper_start(MPI_Comm node);
void cp_helper_stop(void);
struct cp_reply cp_ask_helper(enum cp_request request, const void *bytes, int64_t n_bytes);

/* families.c: communicators that follow one table, and have common statistics. */
#define CP_N_CHAINS 256
/* Function of a Python program that answers requests in place of the helper. */
typedef void cp_answer(int64_t request, const void *bytes, int64_t n_bytes, struct cp_reply *reply);
struct cp_family {
    cp_answer *answer; /* NULL for the helper */
    bool is_on;        /* whether its communicators may have plans */
    bool is_logged, is_by_size;
    MPI_Comm comm; /* the communicator of the ranks that have founded it */
    int rank, size;
    int64_t native_calls; /* number of native calls before the table is asked for a plan */
    int64_t max_plans;
    /* Bit masks of the kinds of which the table may choose a plan, for blocking and for non-blocking
     * calls. */
    uint64_t kinds, started_kinds;
    struct cp_facts facts;
    int64_t making_ns; /* time for decisions and for making plans, which no row includes */
    struct cp_row *chains[CP_N_CHAINS];
};
/* Communicators of a program under `collplan exec`: all that no other family has. */
extern struct cp_family cp_world;
/* Let the ranks of a communicator follow the table of those who answer for them. Return whether they
 * can, or have the reason in `text` on all ranks why not; collective. */
bool cp_found(struct cp_family *family, MPI_Comm comm, char *text, size_t n_bytes);
struct cp_reply cp_ask(struct cp_family *family, enum cp_request request, const void *bytes,
                       int64_t n_bytes);

/* placing.c: processors of this rank and of the thread that advances its plans. */
#define CP_N_POLICIES 2
/* Bind this rank if the user says so, and find out where the thread runs; collective. */
void cp_find_places(struct cp_family *family);
/* Let a thread of this process run on one processor only. */
bool cp_bind(pthread_t thread, int64_t processor);

/* launcher.c: what ranks say through their launcher, as the library may be missing on some of them. */
/* Say that this rank has the library; called before MPI is initialized. */
void cp_publish(void);
/* Return the first rank known to be without the library, or the number of ranks if there is none. */
int cp_missing_rank(int rank, int size);

/* state.c: settings of this process. */
struct cp_settings {
    /* Whether a family is on, and whether the statistics of one are requested. */
    bool is_on, is_logged;
    bool is_multiple; /* whether several threads may call MPI at a time */
    pthread_t first_thread; /* the thread that has initialized MPI */
    int world_rank, world_size;
    uint64_t kinds, started_kinds; /* the kinds of any family */
    int comm_keyval, type_keyval;
    int64_t thread_at[CP_N_POLICIES]; /* processor of the thread under each policy, or -1 */
    int tag_ub;
    MPI_Comm self; /* communicator of this rank alone, for messages that complete requests */
    int64_t empty_status[(CP_STATUS_BYTES + 7) / 8]; /* status of a request without a message */
};
extern struct cp_settings cp_settings;
/* Do what is necessary before MPI is initialized, afterwards, and before it ends. */
void cp_prepare(void);
void cp_begin(void);
/* Return whether MPI must let several threads call it at a time, because plans may be in flight. */
bool cp_needs_threads(void);
void cp_end(void);
/* Return whether all ranks have a reason of NULL and equal values of `same`. Otherwise, store the reason
 * in `text`, which has another one; collective. */
bool cp_agree(const struct cp_family *family, const char *why, int64_t same, char *text, size_t n_bytes);
void cp_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* communicators.c: signatures of calls, and their routes. */
struct cp_signature {
    int64_t kind, root, n_bytes;
    const char *op, *element; /* NULL if there is none; equal texts have equal pointers */
    uint64_t digest[2];       /* digests of all ranks' counts, if counts differ per rank */
    enum cp_form { CP_BLOCKS, CP_STARTS, CP_REPEATS } form; /* CP_REPEATS is the persistent form */
};
struct cp_plan;
struct cp_program;
struct cp_flight;
struct cp_observation;
struct cp_sharing;
struct cp_trial;
/* CP_TRYING: before a trial and in it, see trials.c. */
enum cp_way { CP_COUNTING, CP_NATIVE, CP_PLANNED, CP_TRYING };
struct cp_route {
    struct cp_signature signature;
    enum cp_way way;
    bool is_decided;
    int64_t n_calls, last_used;
    int64_t native_calls; /* number of native calls before a plan is made */
    struct cp_row *row;
    struct cp_plan *plan;
    char *label, *why;
    double native_s, chosen_s;
    int64_t digest;
    /* Whether the table has a plan, and one through shared memory; whether plans may be tried. */
    bool is_wanted, may_share, is_tried;
    bool is_needed; /* whether results would otherwise not be reproducible, as the table asks */
    struct cp_trial *trial;
    const char *choice; /* the plan that is requested for a trial; NULL for that of the table */
    /* Of calls that do not block: the number of the call at which ranks last agreed, or -1; whether
     * the outcome is known here; the plan; and the row of native calls before it is used. */
    int64_t met_at;
    bool is_resolved;
    struct cp_program *program;
    struct cp_row *early_row;
    struct cp_observation *observation; /* of the time that the program computes, or NULL */
    struct cp_sharing *sharing;         /* a plan through shared memory, or a request for it */
};
/* Routes by signature, in a hash table. */
struct cp_routes {
    struct cp_route **places;
    int64_t n_places, n;
};
/* Backoff of the meetings for calls whose counts differ per rank; see vector_agreement.py. */
struct cp_backoff {
    bool has_met;
    int64_t n_in_vain, n_left;
    const char *why;
};
/* A buffer of one rank in one call. */
struct cp_side {
    char *at;
    int64_t count; /* number of elements per block */
    int64_t blocks;
    MPI_Datatype type;
    struct cp_element element;
};
struct cp_use {
    struct cp_side sent, received;
    bool has_sent, has_received, is_root;
    /* Whether the input is in the receive buffer; whether the root of a scatter keeps its own block
     * in the send buffer. */
    bool gives_in_place, takes_in_place;
};
/* The latest call of a kind. If its datatypes are predefined, it is kept: equal calls use the buffers in
 * the same way, at other addresses. */
struct cp_latest {
    struct cp_call call;
    struct cp_use use;
    struct cp_route *route;
    bool is_kept;
};
struct cp_comm {
    struct cp_comm *next, *before;
    MPI_Comm comm, private_comm;
    struct cp_family *family;
    int rank, size;
    bool is_inter, is_foreign; /* between two groups; with processes of another MPI_COMM_WORLD */
    bool has_facts, may_plan;  /* whether the communicator is one of those that may have plans */
    struct cp_facts *facts; /* facts of all ranks */
    int64_t id;             /* number in the helper; -1 before the communicator is introduced */
    int64_t clock, n_calls; /* uses of plans; calls of this rank that MPI has not rejected */
    struct cp_routes routes, started; /* of blocking and of non-blocking calls */
    int64_t n_plans;
    int64_t trial_ns; /* cost of the last trial on the slowest rank; 0 if there was none */
    /* What plans for non-blocking calls need; see nonblocking.c. */
    enum { CP_NOT_SET_UP, CP_REQUESTED, CP_READY, CP_GROUNDED } setup;
    char *why_grounded;
    int64_t n_tag_spaces, n_start_spaces; /* all, and those of non-blocking calls */
    int64_t n_started, n_made, n_programs; /* non-blocking calls, persistent ones, plans of both */
    int n_in_flight, n_operations;         /* operations that can be started */
    bool may_request;              /* whether calls since the last blocking one may have requests */
    struct cp_sharing *requested;  /* plans through shared memory to make, in their order */
    int64_t n_sharing;             /* number of such plans, with those to make */
    bool is_queueing; /* whether it is in the list of communicators with a queue */
    struct cp_flight *queue, *queue_end; /* calls that wait for an agreement, in their order */
    struct cp_comm *next_queueing;
    struct cp_latest latest[CP_GATHERV], latest_started[CP_GATHERV];
    struct cp_backoff backoffs[CP_N_VECTORS];
    bool is_watched; /* whether it was offered a place in the memory of the watcher */
    int watched_at;  /* its place, or -1 */
    int64_t n_made_comms; /* calls that make communicators from it */
};
/* Return what is known of a communicator; NULL if no family has it. */
struct cp_comm *cp_comm_of(MPI_Comm comm);
/* Move a communicator to a family, and free the plans that it has. */
bool cp_join(MPI_Comm comm, struct cp_family *family);
struct cp_route *cp_route_of(struct cp_comm *comm, const struct cp_signature *signature);
/* Count a call of a route, and choose its way; collective if ranks decide or make a plan. `counts`
 * has the counts that this rank knows if counts differ per rank, and is NULL otherwise. */
void cp_advance(struct cp_comm *comm, struct cp_route *route, const int64_t *counts);
/* Forget the last call of a route, if its result is an error that MPI finds in the arguments of this
 * rank alone. Other ranks still wait for the call. */
void cp_take_back(struct cp_comm *comm, struct cp_route *route, int code);
/* Return whether an error of MPI is about the arguments of one rank. */
bool cp_is_rejected(int code);
bool cp_is_known(const struct cp_comm *comm, const struct cp_signature *signature);
void cp_make_native(struct cp_comm *comm, struct cp_route *route, const char *why);
/* Do the same for a route whose plan cannot run, and say so if the table needs one. */
void cp_do_without(struct cp_comm *comm, struct cp_route *route, const char *why);
/* Return the row of native calls of a route, for a reason, and of its planned calls. */
struct cp_row *cp_native_row(const struct cp_comm *comm, const struct cp_route *route,
                             const char *why);
struct cp_row *cp_planned_row(const struct cp_comm *comm, const struct cp_route *route);
/* Free the least recently used plan, or those of a trial, if there are as many as there may be. */
void cp_make_room(struct cp_comm *comm);
/* Create a communicator that only plans use, if there is none; collective. */
bool cp_make_private(struct cp_comm *comm);
#define CP_NO_PRIVATE \
    "plans cannot have a communicator: MPI has none left, or threads make their own in Open MPI"
/* Note that this thread calls a function that makes a communicator. */
void cp_note_maker(void);
const char *cp_name_of(const struct cp_signature *signature);
void cp_write_signature(const struct cp_signature *signature, char *text, size_t n_bytes);
/* Write the question about a signature for the helper; return its length in bytes. */
int cp_write_question(const struct cp_comm *comm, const struct cp_signature *signature,
                      char *text, size_t n_bytes);
void cp_free_all(void);
int cp_delete_comm(MPI_Comm comm, int keyval, void *attribute, void *extra);

/* trials.c: trials of plans for calls that no sweep covers. */
#define CP_TRIED "tried here beside others"
/* Let the calls of a route be native until a trial pays. `why` is the reason of these calls. */
void cp_wait_for_trial(struct cp_comm *comm, struct cp_route *route, const char *why);
/* Choose the plan of the next call, or native MPI; collective in a trial. */
void cp_try(struct cp_comm *comm, struct cp_route *route);
/* Return the plan of a trial that runs the next call, or NULL if it is native. */
struct cp_plan *cp_tried_plan(const struct cp_route *route);
/* Note the result and the time of a call before a trial or in it. */
void cp_note_tried(struct cp_route *route, int code, int64_t ns);
/* Return whether a route has plans: its own, or those of a trial. */
bool cp_has_plans(const struct cp_route *route);
/* Free the plans of a route after a trial or in it, and wait for another trial. */
void cp_begin_anew(struct cp_comm *comm, struct cp_route *route);
void cp_free_trial(struct cp_trial *trial);

/* deciding.c: decisions of the table. */
extern int cp_n_planning; /* number of communicators of this rank that may have plans */
#define CP_MOST_COMMS 64  /* largest number of them at a time */
/* Return the least value of each of `n` words on all ranks, or false if MPI fails; collective. */
bool cp_least(const struct cp_comm *comm, const int64_t *mine, int64_t *found, int n);
/* Ask the helper for the decision of the table. `waiting` is the reason of native calls before the
 * plan is made. The caller frees both texts. */
bool cp_ask_table(struct cp_comm *comm, struct cp_route *route, char **waiting, char **why);
int64_t cp_signature_digest(const struct cp_signature *signature);
/* Decide on the route of a signature; collective. */
void cp_decide(struct cp_comm *comm, struct cp_route *route);
/* Make what plans for non-blocking calls need; collective. */
void cp_set_up(struct cp_comm *comm);
extern int cp_n_requested; /* number of communicators that may request this, or plans */
/* sharing.c: make what non-blocking calls have requested, in a blocking call; collective. */
void cp_make_requested(struct cp_comm *comm);
void cp_free_sharing(struct cp_sharing *sharing);

/* making.c: allocate the memory of a file; return an error number. */
int cp_allocate(int descriptor, int64_t n_bytes);

/* plans.c: bound plans. */
struct cp_plan *cp_make_plan(struct cp_comm *comm, struct cp_route *route, const int64_t *counts,
                             char **why);
/* Bind a plan that the helper has written; `bytes` is NULL if this rank has none, with the reason.
 * Collective. */
struct cp_plan *cp_bind_plan(struct cp_comm *comm, const char *bytes, int64_t n_bytes, char **why);
void cp_free_plan(struct cp_plan *plan);
/* Return whether all ranks have succeeded and have equal values of `same`; collective. */
bool cp_all_well(MPI_Comm comm, bool is_well, int64_t same);
int cp_run_plan(struct cp_plan *plan, const struct cp_call *call, const struct cp_use *use);
/* Find the route of a call, and how it uses its buffers; most calls are like the latest call of their
 * kind. Return false if MPI must report an error. */
bool cp_look_up(struct cp_latest *latest, const struct cp_call *call, struct cp_comm *comm,
                enum cp_form form);
/* Find out how a call uses its buffers; return false if MPI must report an error. */
bool cp_read_call(const struct cp_call *call, const struct cp_comm *comm, struct cp_use *use);
struct cp_signature cp_signature_of(const struct cp_call *call, const struct cp_use *use);
/* Copy between elements of a buffer and contiguous memory in the order of the signature. */
int cp_move_side(const struct cp_side *side, int64_t first, int64_t n, char *packed,
                 bool is_into_buffer, MPI_Comm comm);
/* Return whether a plan can use memory at an address, and whether its buffers would overlap. */
bool cp_plan_takes(const struct cp_plan *plan, const void *at);
bool cp_plan_overlaps(const struct cp_plan *plan, const char *sent_at, const char *received_at);
/* Return memory of the plan for its input or its result. */
char *cp_stage(struct cp_plan *plan, bool is_received);
/* Run a plan on memory that it can use. */
int cp_start_plan(struct cp_plan *plan, const char *sent_at, const char *received_at,
                  MPI_Comm comm);

/* flights.c: plans in flight. */
/* Request a plan; `more` is empty, or the time in seconds that ranks compute during a call, for which
 * trees are split, or the counts of all ranks. Return NULL if there is none, perhaps with the reason. */
struct cp_program *cp_load_program(struct cp_comm *comm, struct cp_route *route, const void *more,
                                   size_t n_more, char **why);
void cp_free_program(struct cp_program *program);
void cp_free_observation(struct cp_observation *observation);
/* Note that a thread of the program waits for requests. Its core now works on tasks that are held for
 * these waits. */
void cp_release_waits(int n, const MPI_Request *requests);
/* Do so for all calls on a communicator, or on all if it is NULL. */
void cp_release_all(const struct cp_comm *comm);
/* Wait until all calls in flight on a communicator have ended, or have at least begun. */
void cp_drain(struct cp_comm *comm);
void cp_settle(struct cp_comm *comm);
/* End all calls in flight, and the thread that advances them. Return whether all have ended. */
bool cp_land(void);
extern int cp_n_timings; /* number of calls whose waits are of interest */
extern int cp_n_flights; /* number of requests that this library has to complete */
/* Advance all calls in flight, and be idle if they do not get on. `polls` counts such calls in vain,
 * and begins with 0. */
void cp_pass_time(int *polls);
/* Note that a thread waits, so that it advances calls in place of the progress thread. */
void cp_note_waiting(int n);

#endif
