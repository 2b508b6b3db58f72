/* Non-blocking collectives, which start natively or by a plan.
 *
 * Ranks agree on a signature in one of its calls, see agreeing.c. Some ranks know the outcome
 * earlier than others. The next WINDOW calls of the signature are therefore made on a communicator
 * of this library's own, if they are native, and in the order of the calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flights.h"
#include "collectives.h"

#define WINDOW 16
#define SOON 2 /* number of calls before its use in which a plan is made in the first agreement */
#define NOT_SET_UP "non-blocking: the next blocking call makes what plans need"

int cp_n_requested;

int cp_native_start(const struct cp_call *c, MPI_Comm comm, MPI_Request *request) {
    switch (c->kind) {
    case CP_BARRIER: return cp_real.Ibarrier(comm, request);
    case CP_BCAST:
        return cp_real.Ibcast(c->received, c->n_received, c->received_type, c->root, comm, request);
    case CP_REDUCE:
        return cp_real.Ireduce(c->sent, c->received, c->n_sent, c->sent_type, c->op, c->root, comm,
                               request);
    case CP_ALLREDUCE:
        return cp_real.Iallreduce(c->sent, c->received, c->n_sent, c->sent_type, c->op, comm,
                                  request);
    case CP_SCAN:
        return cp_real.Iscan(c->sent, c->received, c->n_sent, c->sent_type, c->op, comm, request);
    case CP_EXSCAN:
        return cp_real.Iexscan(c->sent, c->received, c->n_sent, c->sent_type, c->op, comm, request);
    case CP_REDUCE_SCATTER_BLOCK:
        return cp_real.Ireduce_scatter_block(c->sent, c->received, c->n_sent, c->sent_type, c->op,
                                             comm, request);
    case CP_GATHER:
        return cp_real.Igather(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                               c->received_type, c->root, comm, request);
    case CP_SCATTER:
        return cp_real.Iscatter(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                                c->received_type, c->root, comm, request);
    case CP_ALLGATHER:
        return cp_real.Iallgather(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                                  c->received_type, comm, request);
    default:
        return cp_real.Ialltoall(c->sent, c->n_sent, c->sent_type, c->received, c->n_received,
                                 c->received_type, comm, request);
    }
}

/* Return the reason why no non-blocking call of a kind has a plan on a communicator, or NULL. */
static const char *why_grounded(struct cp_comm *comm, enum cp_kind kind, char *text, size_t n) {
    if (comm->is_foreign) return CP_FOREIGN;
    if (!(comm->family->started_kinds >> kind & 1)) {
        snprintf(text, n, CP_NO_PLAN, cp_started_names[kind]);
        return text;
    }
    if (comm->setup == CP_NOT_SET_UP) {
        comm->setup = CP_REQUESTED;
        __atomic_fetch_add(&cp_n_requested, 1, __ATOMIC_RELAXED);
    }
    if (comm->setup == CP_REQUESTED) return NOT_SET_UP;
    return comm->setup == CP_GROUNDED ? comm->why_grounded : NULL;
}

/* A call as the program makes it. If its counts differ per rank, `call` only has the kind and the
 * communicator. */
struct wish {
    struct cp_call call;
    const struct cp_use *use;
    const struct cp_vector_call *given; /* NULL if counts are equal */
    struct cp_vector *vector;           /* its copy */
    int64_t begin_ns;
};

static int start_natively(const struct wish *wish, MPI_Request *request, struct cp_row *row,
                          int64_t n_bytes) {
    const struct cp_call *call = &wish->call;
    int64_t begin_ns = wish->begin_ns;
    int code = wish->given != NULL ? cp_native_start_vector(wish->given, call->comm, request)
                                   : cp_native_start(call, call->comm, request);
    free(wish->vector);
    if (code == MPI_SUCCESS && begin_ns != 0) cp_count(row, n_bytes, cp_now_ns() - begin_ns);
    return code;
}

/* Ask the helper, and have it make the plan if calls will soon use it. */
static void prepare_agreement(struct cp_flight *flight) {
    struct cp_comm *comm = flight->comm;
    struct cp_route *route = flight->route;
    int64_t begin_ns = cp_now_ns();
    bool is_well = cp_ask_table(comm, route, &flight->waiting, &flight->why);
    flight->makes = is_well && (route->is_wanted || route->may_share) &&
                    route->native_calls <= flight->index + SOON;
    bool makes_program = flight->makes && route->is_wanted;
    if (makes_program && comm->n_programs >= comm->family->max_plans)
        flight->why = cp_text_of(CP_NO_ROOM);
    else if (makes_program) {
        comm->n_programs++;
        const void *counts = flight->vector != NULL ? cp_counts_of(flight->vector) : NULL;
        size_t n_bytes = counts != NULL ? sizeof(int64_t) * (size_t)comm->size : 0;
        flight->program = cp_load_program(comm, route, counts, n_bytes, &flight->why);
    }
    __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin_ns, __ATOMIC_RELAXED);
    int64_t signature = cp_signature_digest(&route->signature);
    bool is_observed = flight->program != NULL && flight->program->head.is_observed;
    int64_t words[CP_N_WORDS] = {is_well, signature, -signature, flight->number, -flight->number,
                                 route->digest, -route->digest, route->native_calls,
                                 -route->native_calls, flight->program != NULL, is_observed,
                                 flight->makes && route->may_share};
    memcpy(flight->mine, words, sizeof words);
}

/* Wait until the outcome of an agreement is known. */
static void await_agreement(const struct cp_route *route) {
    int polls = 0;
    cp_note_waiting(1);
    while (!__atomic_load_n(&route->is_resolved, __ATOMIC_ACQUIRE)) cp_pass_time(&polls);
    cp_note_waiting(-1);
}

/* Wait until no call in flight uses the tags of another one. */
static void await_tags(const struct cp_comm *comm, int64_t number) {
    int polls = 0;
    cp_lock_flights();
    while (cp_is_tag_used(comm, number)) {
        cp_unlock_flights();
        cp_release_all(comm);
        cp_pass_time(&polls);
        cp_lock_flights();
    }
    cp_unlock_flights();
}

/* Start a call on whose signature ranks agree, or have agreed. */
static int start_agreed(const struct wish *wish, struct cp_comm *comm, struct cp_route *route,
                        MPI_Request *request) {
    int64_t begin_ns = wish->begin_ns;
    int64_t index = route->n_calls++, number = comm->n_started++, n_bytes = route->signature.n_bytes;
    bool has_met = route->met_at >= 0, is_late = has_met && index - route->met_at >= WINDOW;
    if (is_late) await_agreement(route);
    bool opens = has_met ? is_late && route->way == CP_COUNTING && index >= route->native_calls
                         : index + 1 >= comm->family->native_calls;
    bool is_known = __atomic_load_n(&route->is_resolved, __ATOMIC_ACQUIRE) && !opens;
    bool is_planned = is_known && route->way == CP_PLANNED && index >= route->native_calls;
    if (!opens && !is_planned && (!has_met || is_late)) {
        struct cp_row *row = route->way == CP_PLANNED ? route->early_row : route->row;
        int code = start_natively(wish, request, row, n_bytes);
        if (code != MPI_SUCCESS) route->n_calls--, comm->n_started--;
        return code;
    }
    if (is_planned) cp_split_trees(comm, route);
    await_tags(comm, number);
    cp_lock_flights();
    struct cp_flight *flight = cp_new_flight(comm, route, &wish->call, wish->use, wish->vector);
    flight->begin_ns = begin_ns;
    flight->index = index;
    flight->number = number;
    if (opens) {
        cp_unlock_flights();
        prepare_agreement(flight);
        if (begin_ns != 0) flight->begin_ns = cp_now_ns(); /* rows have no time of making plans */
        cp_lock_flights();
        flight->opens = true;
        if (!comm->may_request) __atomic_fetch_add(&cp_n_requested, 1, __ATOMIC_RELAXED);
        comm->may_request = true;
        route->met_at = index;
        __atomic_store_n(&route->is_resolved, false, __ATOMIC_RELEASE);
    }
    *request = flight->request;
    /* Plans need no order, as they have tags. */
    if (is_planned && !cp_is_agreeing_on_time(route, index)) cp_begin_flight(flight, true);
    else cp_queue_flight(flight);
    if (is_planned) flight->timing = cp_new_timing(route, index, flight->request);
    cp_unlock_flights();
    return MPI_SUCCESS;
}

/* Start a call that has no route natively. */
static int start_uncovered(const struct wish *wish, const struct cp_comm *comm, const char *why,
                           MPI_Request *request) {
    const struct cp_call *call = &wish->call;
    if (wish->begin_ns == 0) return start_natively(wish, request, NULL, 0);
    int64_t n_bytes =
        wish->given != NULL ? cp_vector_bytes(wish->given) : cp_call_bytes(call);
    struct cp_row *row = cp_row(comm->family, cp_started_names[call->kind], "native", why,
                                comm->size, n_bytes, false, -1, -1);
    return start_natively(wish, request, row, n_bytes);
}

/* Start a call of a route, which is NULL if the communicator has too many. */
static int start_routed(const struct wish *wish, struct cp_comm *comm, struct cp_route *route,
                        MPI_Request *request) {
    if (route == NULL) return start_uncovered(wish, comm, CP_TOO_MANY, request);
    if (route->way == CP_NATIVE && route->met_at < 0)
        return start_natively(wish, request, route->row, route->signature.n_bytes);
    return start_agreed(wish, comm, route, request);
}

int cp_start(const struct cp_call *call, MPI_Request *request) {
    char text[96];
    if (cp_is_watched) cp_enter_call(call, true);
    bool is_logged = cp_settings.is_logged;
    if (!is_logged && !(cp_settings.started_kinds >> call->kind & 1))
        return cp_native_start(call, call->comm, request);
    struct wish wish = {.call = *call, .begin_ns = is_logged ? cp_now_ns() : 0};
    struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return cp_native_start(call, call->comm, request);
    const char *why = why_grounded(comm, call->kind, text, sizeof text);
    if (why != NULL) return start_uncovered(&wish, comm, why, request);
    struct cp_latest *latest = &comm->latest_started[call->kind];
    if (!cp_look_up(latest, call, comm, CP_STARTS)) return cp_native_start(call, call->comm, request);
    wish.use = &latest->use;
    return start_routed(&wish, comm, latest->route, request);
}

static int start_vector(const struct cp_vector_call *call, MPI_Request *request) {
    static const struct cp_use no_use;
    char text[96];
    bool is_logged = cp_settings.is_logged;
    struct cp_comm *comm = NULL;
    if (is_logged || cp_settings.started_kinds >> call->kind & 1) comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return cp_native_start_vector(call, call->comm, request);
    struct wish wish = {.call = {.kind = call->kind, .comm = call->comm}, .use = &no_use,
                        .given = call, .begin_ns = is_logged ? cp_now_ns() : 0};
    const char *why = why_grounded(comm, call->kind, text, sizeof text);
    if (why != NULL) return start_uncovered(&wish, comm, why, request);
    wish.vector = cp_keep_vector(call, comm);
    if (wish.vector == NULL) return cp_native_start_vector(call, call->comm, request);
    struct cp_signature signature = cp_vector_signature(wish.vector, comm);
    return start_routed(&wish, comm, cp_route_of(comm, &signature), request);
}

int cp_start_vector(const struct cp_vector_call *call, MPI_Request *request) {
    static const char names[2][CP_NAME_BYTES] = {"Iallgatherv", "Ireduce_scatter"};
    struct cp_mark mark = {NULL, 0, NULL};
    if (cp_is_watched) mark = cp_enter(names[call->kind == CP_REDUCE_SCATTER], call->comm, 0, true);
    int code = start_vector(call, request);
    cp_leave(mark);
    return code;
}

/* Define a non-blocking collective and its form with large counts, given its name in lower case, the
 * numbers of arguments of the blocking and of this form, whether the counts are small, the size in
 * bytes, and the fields of the call. The additional argument is the request. */
#define STARTED(name, lower, n, n1, n2, is_small, n_bytes, ...) \
    static int run_I##lower(CP_L##n1) { \
        struct cp_call call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        return cp_start(&call, (MPI_Request *)a##n1); \
    } \
    CP_WRAP(I##lower, n1, cp_settings.is_on, run_I##lower(CP_A##n1)) \
    LARGE(lower, n, n1, is_small, n_bytes)
#ifdef COLLPLAN_LARGE
#define LARGE(lower, n, n1, is_small, n_bytes) \
    CP_WRAP_LARGE(I##lower##_c, n1, is_small, run_I##lower(CP_A##n1), "I" #lower "_c", a##n, n_bytes)
#else
#define LARGE(lower, n, n1, is_small, n_bytes)
#endif

CP_EQUAL(STARTED)

/* Define the same of a collective whose counts differ per rank. */
#define STARTED_VECTOR(name, lower, n, n1, n2, single, n_bytes, ...) \
    static int run_I##lower(CP_L##n1) { \
        struct cp_vector_call call = {.comm = (MPI_Comm)a##n, __VA_ARGS__}; \
        return cp_start_vector(&call, (MPI_Request *)a##n1); \
    } \
    CP_WRAP(I##lower, n1, cp_settings.is_on, run_I##lower(CP_A##n1))

CP_KNOWN(STARTED_VECTOR)

static int run_Ibarrier(cp_word comm, cp_word request) {
    struct cp_call call = {.kind = CP_BARRIER, .comm = (MPI_Comm)comm};
    return cp_start(&call, (MPI_Request *)request);
}
CP_WRAP(Ibarrier, 2, cp_settings.is_on, run_Ibarrier(CP_A2))
