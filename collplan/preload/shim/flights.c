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

#define TURN_NS 2000000      /* longest time for which local tasks of one call delay the others */
#define FIRST_SLEEP_NS 20000 /* sleeps of the progress thread between two rounds */
#define LONGEST_SLEEP_NS 200000
#define MOST_DOZES 50       /* number of sleeps without a call before the thread needs to be woken */
#define TIMER_SLACK_NS 1000 /* by default, it is longer than the thread's sleeps */
#define MOST_IDLE 4         /* number of idle copies of a plan that are kept for later calls */
#define PATIENCE_NS 2000000000LL /* time without progress after which MPI_Finalize goes on */
enum { IS_DONE = 1, IS_FREED = 2 };

/* What the helper says about a plan that does not block, before the plan. */
struct head {
    int64_t policy; /* number of the policy that places the thread */
};

/* A plan of this rank, any number of copies of which may be in flight. */
struct cp_program {
    char *bytes; /* the head and the plan, as the helper has written them */
    int64_t n_bytes;
    struct head head;
    struct cp_plan *idle;
    int n_idle;
};

int cp_n_flights;
static pthread_mutex_t flying = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct cp_flight *begun;   /* calls that have begun */
static struct cp_comm *queueing;  /* communicators with calls that have not begun */
static pthread_t thread;
static bool has_thread, is_asleep, is_stopping;
static int64_t thread_on = -1; /* the only processor of the thread, or -1 */
static int n_waiting;
static struct cp_idling idling = {.spins = 20, .yields = 20, .sleep_step_ns = 1000,
                                  .longest_sleep_ns = 100000};

void cp_lock_flights(void) { pthread_mutex_lock(&flying); }
void cp_unlock_flights(void) { pthread_mutex_unlock(&flying); }

/* Return another copy of a plan; NULL if there is no memory. */
static struct cp_plan *copy_plan(const struct cp_program *program, MPI_Comm comm, char **why) {
    int64_t (*relocations)[2] = NULL;
    struct cp_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    *why = cp_load_plan(plan, program->bytes + sizeof program->head,
                        program->n_bytes - (int64_t)sizeof program->head, comm, &relocations);
    free(relocations);
    if (*why == NULL && plan->head.shares) *why = cp_text_of("ranks would have to share memory");
    if (*why == NULL && !cp_make_types(plan, false)) *why = cp_text_of("MPI cannot make datatypes");
    if (*why != NULL) {
        cp_free_plan(plan);
        return NULL;
    }
    state_of(plan)->turn_ns = TURN_NS;
    return plan;
}

struct cp_program *cp_load_program(struct cp_comm *comm, struct cp_route *route, char **why) {
    char text[256];
    struct cp_program *program = calloc(1, sizeof *program);
    if (program == NULL) return NULL;
    int n = cp_write_question(comm, &route->signature, text, sizeof text) + 1;
    struct cp_reply reply = cp_ask(CP_PLAN, text, n);
    if (reply.status != 0 || reply.n_bytes < (int64_t)sizeof program->head) {
        *why = reply.bytes;
        free(program);
        return NULL;
    }
    program->bytes = reply.bytes;
    program->n_bytes = reply.n_bytes;
    memcpy(&program->head, reply.bytes, sizeof program->head);
    program->idle = copy_plan(program, comm->private_comm, why);
    program->n_idle = 1;
    if (program->idle != NULL) return program;
    program->n_idle = 0;
    cp_free_program(program);
    return NULL;
}

void cp_free_program(struct cp_program *program) {
    while (program->idle != NULL) {
        struct cp_plan *plan = program->idle;
        program->idle = plan->next;
        cp_free_plan(plan);
    }
    free(program->bytes);
    free(program);
}

static struct cp_plan *take_plan(struct cp_program *program, MPI_Comm comm) {
    char *why = NULL;
    struct cp_plan *plan = program->idle;
    if (plan != NULL) {
        program->idle = plan->next;
        program->n_idle--;
    } else if ((plan = copy_plan(program, comm, &why)) == NULL) {
        cp_say("error: a plan cannot be started again: %s", why != NULL ? why : "no memory");
        abort(); /* other ranks would wait for this one */
    }
    return plan;
}

static void give_plan_back(struct cp_program *program, struct cp_plan *plan) {
    if (program->n_idle >= MOST_IDLE) {
        cp_free_plan(plan);
        return;
    }
    plan->next = program->idle;
    program->idle = plan;
    program->n_idle++;
}

/* Note that MPI, or this library, no longer uses a flight, and free it if neither does. */
static void release(struct cp_flight *flight, int by) {
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

/* Use a copy of a datatype of the program, if it is not predefined. */
static void keep_type(struct cp_flight *flight, struct cp_side *side, MPI_Datatype *of_call) {
    if (side->element.is_predefined) return;
    MPI_Datatype *own = &flight->types[flight->n_types];
    if (cp_real.Type_contiguous(1, side->type, own) != MPI_SUCCESS ||
        cp_real.Type_commit(own) != MPI_SUCCESS) {
        cp_say("error: MPI cannot copy a datatype");
        abort(); /* other ranks would wait for this one */
    }
    flight->n_types++;
    side->type = *of_call = *own;
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
                                    const struct cp_call *call, const struct cp_use *use) {
    struct cp_flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL) abort(); /* as other ranks would wait for this one */
    flight->comm = comm;
    flight->route = route;
    flight->call = *call;
    flight->use = *use;
    if (use->has_sent) keep_type(flight, &flight->use.sent, &flight->call.sent_type);
    if (use->has_received)
        keep_type(flight, &flight->use.received, &flight->call.received_type);
    return flight;
}

struct cp_flight *cp_new_flight(struct cp_comm *comm, struct cp_route *route,
                                const struct cp_call *call, const struct cp_use *use) {
    struct cp_flight *flight = new_flight(comm, route, call, use);
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
    struct cp_plan *plan = copy_plan(route->program, comm->private_comm, &why);
    free(why);
    if (plan == NULL) return NULL;
    cp_use_tags(plan, tag_space);
    struct cp_flight *flight = new_flight(comm, route, call, use);
    flight->plan = plan;
    flight->repeats = true;
    flight->number = tag_space;
    comm->n_operations++;
    return flight;
}

void cp_start_operation(struct cp_flight *flight, int64_t begin_ns) {
    flight->is_active = true;
    flight->begin_ns = begin_ns;
    take_off(flight);
    cp_begin_flight(flight);
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

/* Complete the request of a call, which has begun. */
static void complete(struct cp_flight *flight, int code) {
    /* MPI may still use the memory of a plan that has failed: it is neither used again nor freed. */
    if (flight->plan != NULL && code == MPI_SUCCESS) {
        if (flight->gives_back)
            code = cp_give_back(flight->plan, &flight->use, flight->comm->private_comm);
        if (!flight->repeats) give_plan_back(flight->route->program, flight->plan);
    }
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
        flight->code = code;
        cp_real.Grequest_complete(flight->request);
    }
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

/* Start the plan of a call; return the outcome of the loop. */
static int64_t start_plan(struct cp_flight *flight) {
    struct cp_comm *comm = flight->comm;
    place_thread(flight->route->program);
    if (!flight->repeats) flight->plan = take_plan(flight->route->program, comm->private_comm);
    struct cp_plan *plan = flight->plan;
    struct cp_places places =
        cp_places_of(plan, flight->call.kind, &flight->use, comm->private_comm);
    flight->gives_back = places.gives_back;
    cp_aim_plan(plan, places.sent_at, places.received_at);
    /* Blocking calls use space 0, and persistent ones the upper spaces. */
    if (!flight->repeats) cp_use_tags(plan, 1 + flight->number % (comm->n_start_spaces - 1));
    idling = *(struct cp_idling *)state_of(plan)->idling;
    return collplan_linked_run_loop((int64_t)(intptr_t)state_of(plan), DO_START);
}

static int code_of(const struct cp_flight *flight, int64_t found) {
    if (found == DONE) return MPI_SUCCESS;
    int code = found == FAILED ? (int)state_of(flight->plan)->code : MPI_ERR_OTHER;
    return code != MPI_SUCCESS ? code : MPI_ERR_OTHER;
}

void cp_begin_flight(struct cp_flight *flight) {
    struct cp_route *route = flight->route;
    struct cp_row *row = route->row;
    flight->next = begun;
    flight->before = NULL;
    if (begun != NULL) begun->before = flight;
    begun = flight;
    int code = MPI_SUCCESS;
    if (is_planned(flight)) {
        int64_t found = start_plan(flight);
        if (found > PENDING) code = code_of(flight, found);
    } else {
        if (route->way == CP_PLANNED) row = route->early_row;
        code = cp_native_start(&flight->call, flight->comm->private_comm, &flight->native);
    }
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
        cp_begin_flight(flight);
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
    cp_note_waiting(1);
    while (__atomic_load_n(&comm->n_in_flight, __ATOMIC_ACQUIRE) > 0) cp_pass_time(&polls);
    cp_note_waiting(-1);
}

void cp_settle(struct cp_comm *comm) {
    int polls = 0;
    cp_note_waiting(1);
    while (__atomic_load_n(&comm->queue, __ATOMIC_ACQUIRE) != NULL) cp_pass_time(&polls);
    cp_note_waiting(-1);
}

bool cp_land(void) {
    int polls = 0;
    int64_t moved_ns = cp_now_ns();
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
