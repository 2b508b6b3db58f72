/* Calls that do not block, as the files that start them and advance them see them. */
#ifndef COLLPLAN_FLIGHTS_H
#define COLLPLAN_FLIGHTS_H

#include "vectors.h"

#define CP_N_WORDS 12 /* number of words of an agreement */
#define CP_MOST_SHARING 8 /* largest number of plans through shared memory of a communicator */
#define CP_TURN_NS 2000000 /* longest time for which local tasks of one call delay the others */

/* A plan of this rank, any number of copies of which may be in flight. */
struct cp_program {
    char *bytes; /* the answer of the helper */
    /* What the helper says before the plan: the number of the policy that places the thread; times
     * for tasks in the start, and until tasks that are held for the wait run without it; and whether
     * the time that ranks compute may change the plan. */
    struct {
        int64_t policy, head_ns, hold_ns, is_observed;
    } head;
    const char *why; /* reason of the plan in statistics, if trees were split */
    const char *plan;
    int64_t n_bytes; /* size of the plan */
    struct cp_plan *idle;
    int n_idle, n_flying; /* numbers of copies that are kept, and in flight */
    bool is_retired;      /* whether it is freed when no copy is in flight */
};

/* A plan through shared memory for the calls of a route, or a request for it. */
struct cp_sharing {
    struct cp_sharing *next; /* next request of the communicator */
    struct cp_route *route;
    struct cp_plan *plan; /* NULL before it is made, and if it cannot be made */
    int64_t tag_space;
    bool is_busy; /* whether a start is in flight */
    int code;     /* error of a start, after which the memory is not used again */
    struct cp_flight *queue, *queue_end; /* starts that wait for others to end */
};

/* A call in flight, which has a generalized request of MPI. */
struct cp_flight {
    struct cp_flight *next, *before; /* neighbors in the list of calls that have begun */
    struct cp_flight *next_waiting;  /* next call in the queue of the communicator */
    struct cp_comm *comm;
    struct cp_route *route;
    struct cp_call call;
    struct cp_use use;
    struct cp_vector *vector; /* the call and its buffers, if counts differ per rank */
    MPI_Datatype types[2]; /* copies of the call's own datatypes, which the program may free */
    int n_types;
    int64_t number, index; /* numbers of the call on its communicator and of its signature */
    int64_t begin_ns;      /* time of the call; 0 if it is not counted */
    int64_t spent_ns;      /* time that the call took, if it waits in a queue */
    /* Agreement of the ranks, if they agree in this call. */
    bool opens, makes, has_asked;
    int64_t mine[CP_N_WORDS], found[CP_N_WORDS];
    struct cp_program *program; /* the plan that is agreed on, or the one that runs */
    char *why, *waiting;
    /* The plan that runs, or the native request of the agreement or of a native call. */
    struct cp_plan *plan;
    bool gives_back, is_sharing; /* whether it runs through shared memory */
    bool is_held; /* whether tasks are held for its wait */
    struct cp_timing *timing;
    MPI_Request native, request;
    int code;
    int flags;
    /* Of a persistent call: it keeps its plan, and a message with this tag completes its request. */
    bool repeats, is_active, is_dropped;
    int tag;
};

/* flights.c. Other functions below need the lock, unless they say that they take it. */
void cp_lock_flights(void);
void cp_unlock_flights(void);
/* Return a new flight with a request, which counts as one to complete. It frees `vector`, which has
 * the call and its buffers if counts differ per rank. */
struct cp_flight *cp_new_flight(struct cp_comm *comm, struct cp_route *route,
                                const struct cp_call *call, const struct cp_use *use,
                                struct cp_vector *vector);
/* Return a flight for a persistent call, which keeps a copy of its route's plan, or NULL. It has its
 * own tag space. */
struct cp_flight *cp_new_operation(struct cp_comm *comm, struct cp_route *route,
                                   const struct cp_call *call, const struct cp_use *use,
                                   int64_t tag_space);
/* Start a persistent call, or free it when it is not active. */
void cp_start_operation(struct cp_flight *flight, int64_t begin_ns);
void cp_drop_operation(struct cp_flight *flight);
/* Append a flight to the queue of its communicator. */
void cp_queue_flight(struct cp_flight *flight);
/* Begin a flight; `is_callers` says whether this is the thread that makes the call in the program. */
void cp_begin_flight(struct cp_flight *flight, bool is_callers);
/* Return whether a call of a tag space is still in flight on a communicator. */
bool cp_is_tag_used(const struct cp_comm *comm, int64_t number);
/* Return whether a persistent call in flight on a communicator has a tag space; takes the lock. */
bool cp_is_space_used(const struct cp_comm *comm, int64_t space);

/* programs.c: plans that do not block; needs the lock, except for copies. */
/* Return another copy of a plan; NULL if there is no memory. */
struct cp_plan *cp_copy_plan(const struct cp_program *program, MPI_Comm comm, char **why);
struct cp_plan *cp_take_plan(struct cp_program *program, MPI_Comm comm);
/* Use copies of datatypes of the program, which may free them before a call has ended. */
void cp_keep_types(struct cp_flight *flight);
void cp_give_plan_back(struct cp_program *program, struct cp_plan *plan);

/* sharing.c: plans through shared memory. */
bool cp_has_room_to_share(const struct cp_comm *comm);
/* Request that the next blocking call makes such a plan for the calls of a route. */
void cp_request_sharing(struct cp_comm *comm, struct cp_route *route);

/* Queue a start if its memory is in use; return whether it is. */
bool cp_waits_for_memory(struct cp_flight *flight);
/* Return the start that waits for the memory of one that has ended with this code, or NULL. */
struct cp_flight *cp_next_sharing(const struct cp_flight *flight, int code);

/* observing.c: times that the program computes during calls. */
/* Return an observation whose first call of the signature has this index. */
struct cp_observation *cp_new_observation(int64_t first);
/* Return whether ranks start to agree on their times in the call with this index. */
bool cp_is_agreeing_on_time(const struct cp_route *route, int64_t index);
/* Start this agreement, if this is its call. Like all collectives of the library's communicator, it
 * starts in the order of the queue. */
void cp_agree_on_time(struct cp_flight *flight);
/* Observe the time of a call from now on, if it is one of those observed; otherwise return NULL. */
struct cp_timing *cp_new_timing(const struct cp_route *route, int64_t index, MPI_Request request);
/* Stop to observe the call with a request; takes no lock. */
void cp_forget_timing(struct cp_timing *timing, MPI_Request request);
/* Note that the program waits for requests; takes the lock. */
void cp_note_waits(int n, const MPI_Request *requests);
/* Use a plan whose trees are split for the time on which ranks have agreed, if its result has just
 * come; takes the lock. */
void cp_split_trees(struct cp_comm *comm, struct cp_route *route);

/* agreeing.c: agreements of the ranks, which need the lock, too. */
/* Advance the agreement of the first call in a queue; return whether its route is resolved. */
bool cp_advance_agreement(struct cp_flight *flight);

#endif
