/* Calls in flight: plans that do not block, and what they need to begin.
 *
 * The program has a generalized request for each of them, so that MPI's own functions wait for it.
 * A thread advances all calls. Threads of the program that wait advance them in its place. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "flights.h"

#define FIRST_SLEEP_NS 20000 /* sleeps of the progress thread between two rounds */
#define LONGEST_SLEEP_NS 200000
#define MOST_DOZES 50       /* number of sleeps without a call before the thread needs to be woken */
#define TIMER_SLACK_NS 1000 /* by default, it is longer than the thread's sleeps */
#define PATIENCE_NS 2000000000LL /* time without progress after which MPI_Finalize goes on */
enum { IS_DONE = 1, IS_FREED = 2 };

int cp_n_flights;
static pthread_mutex_t flying = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct cp_flight *begun;   /* calls that have begun */
static struct cp_comm *queueing;  /* communicators with calls that have not begun */
static pthread_t thread;
static bool has_thread, is_asleep, is_stopping;
static int64_t thread_on = -1; /* the only processor of the thread, or -1 */
static int n_waiting;
static int n_held; /* number of calls with tasks that are held for a wait */
static struct cp_idling idling = {.spins = 20, .yields = 20, .sleep_step_ns = 1000,
                                  .longest_sleep_ns = 100000};

void cp_lock_flights(void) { pthread_mutex_lock(&flying); }
void cp_unlock_flights(void) { pthread_mutex_unlock(&flying); }

/* Note that MPI, or this library, no longer uses a flight, and free it if neither does. */
static void release(struct cp_flight *flight, int by) {
    if (by == IS_FREED) cp_forget_timing(flight->timing, flight->request);
    int before = __atomic_fetch_or(&flight->flags, by, __ATOMIC_ACQ_REL);
    if ((before | by) == (IS_DONE | IS_FREED)) free(flight);
}

/* Functions that MPI calls, possibly with locks of its own: they take none. */
static int fill_status(void *extra, MPI_Status *status) {
    memcpy(status, cp_settings.empty_status, CP_STATUS_BYTES);
    return ((struct cp_flight *)extra)->code;
}

static int note_freed(void *extra) {
    release(extra, IS_FREED);
    return MPI_SUCCESS;
}

static int cancel_nothing(void *extra, int is_complete) {
    (void)extra, (void)is_complete;
    return MPI_SUCCESS;
}

static void *serve(void *unused);

/* Start the thread, or wake it. */
static void wake_thread(void) {
    sigset_t every, before;
    if (has_thread) {
        if (is_asleep) pthread_cond_signal(&work);
        return;
    }
    /* Signals are for the program's threads. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    has_thread = pthread_create(&thread, NULL, serve, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (has_thread) pthread_setname_np(thread, "collplan");
}

/* Note that a call is in flight. */
static void take_off(struct cp_flight *flight) {
    flight->comm->n_in_flight++;
    __atomic_fetch_add(&cp_n_flights, 1, __ATOMIC_ACQ_REL);
    wake_thread();
}

static struct cp_flight *new_flight(struct cp_comm *comm, struct cp_route *route,
                                    const struct cp_call *call, const struct cp_use *use,
                                    struct cp_vector *vector) {
    struct cp_flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL) abort(); /* as other ranks would wait for this one */
    flight->comm = comm;
    flight->route = route;
    flight->call = *call;
    flight->use = *use;
    flight->vector = vector;
    cp_keep_types(flight);
    return flight;
}

struct cp_flight *cp_new_flight(struct cp_comm *comm, struct cp_route *route,
                                const struct cp_call *call, const struct cp_use *use,
                                struct cp_vector *vector) {
    struct cp_flight *flight = new_flight(comm, route, call, use, vector);
    if (cp_real.Grequest_start(fill_status, note_freed, cancel_nothing, flight,
                               &flight->request) != MPI_SUCCESS) {
        cp_say("error: MPI has no request for a collective");
        abort(); /* other ranks would wait for this one */
    }
    take_off(flight);
    return flight;
}

static void free_types(struct cp_flight *flight) {
    for (int i = 0; i < flight->n_types; i++) cp_real.Type_free(&flight->types[i]);
}

struct cp_flight *cp_new_operation(struct cp_comm *comm, struct cp_route *route,
                                   const struct cp_call *call, const struct cp_use *use,
                                   int64_t tag_space) {
    char *why = NULL;
    struct cp_plan *plan = cp_copy_plan(route->program, comm->private_comm, &why);
    free(why);
    if (plan == NULL) return NULL;
    cp_use_tags(plan, tag_space);
    struct cp_flight *flight = new_flight(comm, route, call, use, NULL);
    flight->plan = plan;
    flight->program = route->program;
    flight->repeats = true;
    flight->number = tag_space;
    comm->n_operations++;
    return flight;
}

void cp_start_operation(struct cp_flight *flight, int64_t begin_ns) {
    flight->is_active = true;
    flight->begin_ns = begin_ns;
    take_off(flight);
    cp_begin_flight(flight, true);
}

void cp_drop_operation(struct cp_flight *flight) {
    flight->is_dropped = true;
    if (flight->is_active) return; /* its end drops it */
    cp_free_plan(flight->plan);
    free_types(flight);
    flight->comm->n_operations--;
    free(flight);
}

/* End a start of a persistent call. The message is longer than the request takes if the plan has
 * failed. */
static void end_start(struct cp_flight *flight, int code) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    char none = 0;
    flight->is_active = false;
    cp_real.Send(&none, code != MPI_SUCCESS, byte, 0, flight->tag, cp_settings.self);
    if (flight->is_dropped) cp_drop_operation(flight);
}

/* Let other threads run what the rank's own core would do in a wait. */
static void release_hold(struct cp_flight *flight) {
    if (!flight->is_held) return;
    flight->is_held = false;
    state_of(flight->plan)->hold_until_ns = 0;
    __atomic_fetch_sub(&n_held, 1, __ATOMIC_ACQ_REL);
}

/* Complete the request of a call, which has begun. */
static void complete(struct cp_flight *flight, int code) {
    release_hold(flight);
    /* MPI may still use the memory of a plan that has failed: it is neither used again nor freed. */
    if (flight->plan != NULL && code == MPI_SUCCESS) {
        MPI_Comm by = flight->comm->private_comm;
        if (flight->gives_back && flight->vector != NULL)
            code = cp_vector_give_back(flight->plan, &flight->vector->use, by);
        else if (flight->gives_back) code = cp_give_back(flight->plan, &flight->use, by);
        if (!flight->repeats && !flight->is_sharing)
            cp_give_plan_back(flight->program, flight->plan);
    }
    struct cp_flight *waiting = flight->is_sharing ? cp_next_sharing(flight, code) : NULL;
    if (flight->next != NULL) flight->next->before = flight->before;
    if (flight->before != NULL) flight->before->next = flight->next;
    else begun = flight->next;
    struct cp_comm *comm = flight->comm;
    bool repeats = flight->repeats;
    if (repeats) {
        end_start(flight, code);
    } else {
        free_types(flight);
        free(flight->why);
        free(flight->waiting);
        free(flight->vector);
        flight->code = code;
        cp_real.Grequest_complete(flight->request);
    }
    if (waiting != NULL) cp_begin_flight(waiting, false);
    __atomic_fetch_sub(&comm->n_in_flight, 1, __ATOMIC_ACQ_REL);
    __atomic_fetch_sub(&cp_n_flights, 1, __ATOMIC_ACQ_REL);
    if (!repeats) release(flight, IS_DONE);
}

/* Bind the thread to the processor that a plan asks for, if it has one. */
static void place_thread(const struct cp_program *program) {
    int64_t policy = program->head.policy;
    int64_t processor = policy >= 0 && policy < CP_N_POLICIES ? cp_settings.thread_at[policy] : -1;
    if (processor < 0 || processor == thread_on || !has_thread) return;
    cp_bind(thread, processor);
    thread_on = processor;
}

static bool is_planned(const struct cp_flight *flight) {
    return flight->repeats || (flight->route->way == CP_PLANNED &&
                               flight->index >= flight->route->native_calls);
}

/* Let a plan use the buffers of a call. */
static void aim(struct cp_flight *flight, struct cp_plan *plan) {
    MPI_Comm comm = flight->comm->private_comm;
    struct cp_places places;
    struct cp_vector *vector = flight->vector;
    if (vector != NULL)
        cp_vector_places(plan, &vector->call, flight->comm, &vector->use, comm, &places);
    else places = cp_places_of(plan, flight->call.kind, &flight->use, comm);
    flight->plan = plan;
    flight->gives_back = places.gives_back;
    cp_aim_plan(plan, places.sent_at, places.received_at);
    idling = *(struct cp_idling *)state_of(plan)->idling;
}

/* Start the plan of a call; return the outcome of the loop. If the thread that calls is that of the
 * program, it works on the first levels of split trees, and does not keep the lock meanwhile. */
static int64_t start_plan(struct cp_flight *flight, bool is_callers) {
    struct cp_comm *comm = flight->comm;
    struct cp_plan *plan = flight->plan;
    if (!flight->repeats) {
        flight->program = flight->route->program;
        plan = cp_take_plan(flight->program, comm->private_comm);
    }
    struct cp_state *state = state_of(plan);
    int64_t head_ns = flight->program->head.head_ns, hold_ns = flight->program->head.hold_ns;
    place_thread(flight->program);
    aim(flight, plan);
    /* Blocking calls use space 0, and persistent ones the upper spaces. */
    if (!flight->repeats) cp_use_tags(plan, 1 + flight->number % (comm->n_start_spaces - 1));
    flight->is_held = hold_ns > 0;
    if (flight->is_held) __atomic_fetch_add(&n_held, 1, __ATOMIC_ACQ_REL);
    state->hold_until_ns = hold_ns > 0 ? cp_now_ns() + hold_ns : 0;
    if (head_ns > 0) state->turn_ns = is_callers ? head_ns : 0;
    if (head_ns > 0 && is_callers) cp_unlock_flights();
    int64_t found = collplan_linked_run_loop((int64_t)(intptr_t)state, DO_START);
    if (head_ns > 0 && is_callers) cp_lock_flights();
    state->turn_ns = CP_TURN_NS;
    return found;
}

static int code_of(const struct cp_flight *flight, int64_t found) {
    if (found == DONE) return MPI_SUCCESS;
    int code = found == FAILED ? (int)state_of(flight->plan)->code : MPI_ERR_OTHER;
    return code != MPI_SUCCESS ? code : MPI_ERR_OTHER;
}

/* Start a plan through shared memory, or return its error. */
static int start_sharing(struct cp_flight *flight) {
    struct cp_sharing *sharing = flight->route->sharing;
    flight->is_sharing = sharing->is_busy = true;
    if (sharing->code != MPI_SUCCESS) return sharing->code;
    aim(flight, sharing->plan);
    int64_t found = collplan_linked_run_loop((int64_t)(intptr_t)state_of(flight->plan), DO_START);
    return found > PENDING ? code_of(flight, found) : MPI_SUCCESS;
}

void cp_begin_flight(struct cp_flight *flight, bool is_callers) {
    struct cp_route *route = flight->route;
    struct cp_row *row = route->row;
    int code = MPI_SUCCESS;
    bool shares = !flight->repeats && is_planned(flight) && route->sharing != NULL &&
                  route->sharing->plan != NULL;
    if (shares && cp_waits_for_memory(flight)) return;
    if (shares) {
        code = start_sharing(flight);
    } else if (is_planned(flight)) {
        int64_t found = start_plan(flight, is_callers);
        if (found > PENDING) code = code_of(flight, found);
    } else {
        if (route->way == CP_PLANNED) row = route->early_row;
        MPI_Comm comm = flight->comm->private_comm;
        code = flight->vector != NULL
                   ? cp_native_start_vector(&flight->vector->call, comm, &flight->native)
                   : cp_native_start(&flight->call, comm, &flight->native);
    }
    flight->next = begun;
    flight->before = NULL;
    if (begun != NULL) begun->before = flight;
    begun = flight;
    if (flight->begin_ns != 0) {
        int64_t ns = flight->spent_ns > 0 ? flight->spent_ns : cp_now_ns() - flight->begin_ns;
        cp_count(row, route->signature.n_bytes, ns);
    }
    if (code != MPI_SUCCESS) complete(flight, code);
}

/* Begin the calls of a queue whose routes are known. All ranks do so in the order of the calls, as
 * agreements and native calls are collectives of one communicator. */
static bool advance_queue(struct cp_comm *comm) {
    bool has_moved = false;
    while (comm->queue != NULL && cp_advance_agreement(comm->queue)) {
        struct cp_flight *flight = comm->queue;
        comm->queue = flight->next_waiting;
        cp_agree_on_time(flight);
        cp_begin_flight(flight, false);
        has_moved = true;
    }
    return has_moved;
}

void cp_queue_flight(struct cp_flight *flight) {
    struct cp_comm *comm = flight->comm;
    if (flight->begin_ns != 0) flight->spent_ns = cp_now_ns() - flight->begin_ns;
    if (comm->queue == NULL) comm->queue = flight;
    else comm->queue_end->next_waiting = flight;
    comm->queue_end = flight;
    advance_queue(comm); /* other ranks may wait for it */
    if (comm->queue == NULL || comm->is_queueing) return;
    comm->is_queueing = true;
    comm->next_queueing = queueing;
    queueing = comm;
}

/* Advance all calls once; return whether any got on. */
static bool advance_all(void) {
    bool has_moved = false;
    for (struct cp_comm **at = &queueing; *at != NULL;) {
        struct cp_comm *comm = *at;
        has_moved |= advance_queue(comm);
        comm->is_queueing = comm->queue != NULL;
        if (comm->is_queueing) at = &comm->next_queueing;
        else *at = comm->next_queueing;
    }
    for (struct cp_flight *flight = begun, *next; flight != NULL; flight = next) {
        next = flight->next;
        int64_t status[(CP_STATUS_BYTES + 7) / 8];
        if (flight->plan != NULL) {
            struct cp_state *state = state_of(flight->plan);
            int64_t before = state->progress;
            int64_t found = collplan_linked_run_loop((int64_t)(intptr_t)state, DO_TEST);
            has_moved |= state->progress != before;
            if (found == PENDING) continue;
            complete(flight, code_of(flight, found));
        } else {
            int is_done = 0;
            int code = cp_real.Test(&flight->native, &is_done, (MPI_Status *)status);
            if (code == MPI_SUCCESS && !is_done) continue;
            complete(flight, code);
        }
        has_moved = true;
    }
    return has_moved;
}

bool cp_is_tag_used(const struct cp_comm *comm, int64_t number) {
    int64_t n_spaces = comm->n_start_spaces - 1;
    if (comm->queue != NULL && comm->queue->number <= number - n_spaces) return true;
    for (const struct cp_flight *flight = begun; flight != NULL; flight = flight->next)
        if (flight->comm == comm && !flight->repeats && flight->number <= number - n_spaces)
            return true;
    return false;
}

bool cp_is_space_used(const struct cp_comm *comm, int64_t space) {
    bool is_used = false;
    cp_lock_flights();
    for (const struct cp_flight *flight = begun; flight != NULL; flight = flight->next)
        is_used |= flight->comm == comm && flight->repeats && flight->number == space;
    cp_unlock_flights();
    return is_used;
}

void cp_release_waits(int n, const MPI_Request *requests) {
    cp_note_waits(n, requests);
    if (__atomic_load_n(&n_held, __ATOMIC_ACQUIRE) == 0) return;
    cp_lock_flights();
    for (struct cp_flight *flight = begun; flight != NULL; flight = flight->next)
        for (int i = 0; i < n && flight->is_held; i++)
            if (requests[i] == flight->request) release_hold(flight);
    cp_unlock_flights();
}

void cp_release_all(const struct cp_comm *comm) {
    if (__atomic_load_n(&n_held, __ATOMIC_ACQUIRE) == 0) return;
    cp_lock_flights();
    for (struct cp_flight *flight = begun; flight != NULL; flight = flight->next)
        if (comm == NULL || flight->comm == comm) release_hold(flight);
    cp_unlock_flights();
}

static void sleep_for(int64_t ns) {
    struct timespec pause = {0, ns};
    nanosleep(&pause, NULL);
}

static void *serve(void *unused) {
    (void)unused;
    int n_vain = 0, n_dozes = 0;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    pthread_mutex_lock(&flying);
    while (!is_stopping) {
        bool has_flights = __atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) > 0;
        if (!has_flights && ++n_dozes > MOST_DOZES) {
            is_asleep = true;
            pthread_cond_wait(&work, &flying);
            is_asleep = false;
            n_dozes = 0;
            continue;
        }
        if (has_flights) n_dozes = 0;
        /* Threads that wait advance all calls. */
        bool may_help = has_flights && __atomic_load_n(&n_waiting, __ATOMIC_ACQUIRE) == 0;
        n_vain = may_help && advance_all() ? 0 : n_vain + 1;
        pthread_mutex_unlock(&flying);
        int64_t ns = FIRST_SLEEP_NS * (int64_t)(n_vain + 1);
        sleep_for(has_flights && ns < LONGEST_SLEEP_NS ? ns : LONGEST_SLEEP_NS);
        pthread_mutex_lock(&flying);
    }
    pthread_mutex_unlock(&flying);
    return NULL;
}

void cp_note_waiting(int n) { __atomic_fetch_add(&n_waiting, n, __ATOMIC_ACQ_REL); }

void cp_pass_time(int *polls) {
    if (pthread_mutex_trylock(&flying) != 0) { /* another thread advances all calls */
        sched_yield();
        return;
    }
    bool has_moved = advance_all();
    struct cp_idling policy = idling;
    pthread_mutex_unlock(&flying);
    *polls = has_moved ? 0 : *polls + 1;
    int64_t n_yields = *polls - policy.spins, n_sleeps = n_yields - policy.yields;
    if (n_sleeps > 0 && policy.longest_sleep_ns > 0) {
        int64_t ns = n_sleeps * policy.sleep_step_ns;
        sleep_for(ns < policy.longest_sleep_ns ? ns : policy.longest_sleep_ns);
    } else if (n_yields > 0) {
        sched_yield();
    }
}

void cp_drain(struct cp_comm *comm) {
    int polls = 0;
    cp_release_all(comm);
    cp_note_waiting(1);
    while (__atomic_load_n(&comm->n_in_flight, __ATOMIC_ACQUIRE) > 0) cp_pass_time(&polls);
    cp_note_waiting(-1);
}

void cp_settle(struct cp_comm *comm) {
    int polls = 0;
    cp_note_waiting(1);
    while (__atomic_load_n(&comm->queue, __ATOMIC_ACQUIRE) != NULL) cp_pass_time(&polls);
    cp_note_waiting(-1);
    /* Another thread may still begin the last of them. */
    cp_lock_flights();
    cp_unlock_flights();
}

bool cp_land(void) {
    int polls = 0;
    int64_t moved_ns = cp_now_ns();
    cp_release_all(NULL);
    cp_note_waiting(1);
    while (__atomic_load_n(&cp_n_flights, __ATOMIC_ACQUIRE) > 0 &&
           cp_now_ns() - moved_ns < PATIENCE_NS) {
        cp_pass_time(&polls);
        if (polls == 0) moved_ns = cp_now_ns();
    }
    cp_note_waiting(-1);
    pthread_mutex_lock(&flying);
    is_stopping = true;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&flying);
    if (has_thread) pthread_join(thread, NULL);
    has_thread = false;
    return cp_n_flights == 0;
}
