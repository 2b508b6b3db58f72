/* Calls that do not block, as the files that start them and advance them see them. */
#ifndef COLLPLAN_FLIGHTS_H
#define COLLPLAN_FLIGHTS_H

#include "plans.h"

#define CP_N_WORDS 10 /* number of words of an agreement */

/* A call in flight, which has a generalized request of MPI. */
struct cp_flight {
    struct cp_flight *next, *before; /* neighbors in the list of calls that have begun */
    struct cp_flight *next_waiting;  /* next call in the queue of the communicator */
    struct cp_comm *comm;
    struct cp_route *route;
    struct cp_call call;
    struct cp_use use;
    MPI_Datatype types[2]; /* copies of the call's own datatypes, which the program may free */
    int n_types;
    int64_t number, index; /* numbers of the call on its communicator and of its signature */
    int64_t begin_ns;      /* time of the call; 0 if it is not counted */
    int64_t spent_ns;      /* time that the call took, if it waits in a queue */
    /* Agreement of the ranks, if they agree in this call. */
    bool opens, makes, has_asked;
    int64_t mine[CP_N_WORDS], found[CP_N_WORDS];
    struct cp_program *program;
    char *why, *waiting;
    /* The plan that runs, or the native request of the agreement or of a native call. */
    struct cp_plan *plan;
    bool gives_back;
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
/* Return a new flight with a request, which counts as one to complete. */
struct cp_flight *cp_new_flight(struct cp_comm *comm, struct cp_route *route,
                                const struct cp_call *call, const struct cp_use *use);
/* Return a flight for a persistent call, which keeps a copy of its route's plan, or NULL. It has its
 * own tag space. */
struct cp_flight *cp_new_operation(struct cp_comm *comm, struct cp_route *route,
                                   const struct cp_call *call, const struct cp_use *use,
                                   int64_t tag_space);
/* Start a persistent call, or free it when it is not active. */
void cp_start_operation(struct cp_flight *flight, int64_t begin_ns);
void cp_drop_operation(struct cp_flight *flight);
/* Append a flight to the queue of its communicator, or begin it. */
void cp_queue_flight(struct cp_flight *flight);
void cp_begin_flight(struct cp_flight *flight);
/* Return whether a call of a tag space is still in flight on a communicator. */
bool cp_is_tag_used(const struct cp_comm *comm, int64_t number);
/* Return whether a persistent call in flight on a communicator has a tag space; takes the lock. */
bool cp_is_space_used(const struct cp_comm *comm, int64_t space);

/* agreeing.c: agreements of the ranks, which need the lock, too. */
/* Advance the agreement of the first call in a queue; return whether its route is resolved. */
bool cp_advance_agreement(struct cp_flight *flight);

#endif
