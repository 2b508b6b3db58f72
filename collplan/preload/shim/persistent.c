/* Persistent collectives, which run by plans that are made with their requests, or natively.
 *
 * The program's request is that of a receive from this rank itself, so that MPI's own functions start
 * it and wait for it. Its start also starts the plan, and the end of the plan sends the message. */
#include <pthread.h>
#include <stdlib.h>

#include "flights.h"
#include "wrapping.h"

#define NO_PLAN_PAYS "the table has no plan that pays"
#define N_CHAINS 64

/* A request that the program can start. */
struct expected {
    struct expected *next;
    MPI_Request request;
    struct cp_row *row;
    int64_t n_bytes;
    struct cp_flight *flight; /* NULL if the request is native */
};

int cp_n_persistent;
static struct expected *chains[N_CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct expected **place_of(MPI_Request request) {
    uint64_t word = (uint64_t)(intptr_t)request;
    struct expected **at = &chains[(word ^ word >> 6 ^ word >> 12) % N_CHAINS];
    while (*at != NULL && (*at)->request != request) at = &(*at)->next;
    return at;
}

static void expect(struct expected one) {
    struct expected *kept = malloc(sizeof *kept);
    if (kept == NULL) abort(); /* as other ranks would wait for this one */
    *kept = one;
    pthread_mutex_lock(&lock);
    *place_of(one.request) = kept;
    pthread_mutex_unlock(&lock);
    __atomic_fetch_add(&cp_n_persistent, 1, __ATOMIC_RELAXED);
}

void cp_expect_starts(MPI_Request request, const char *name, const char *why, MPI_Comm comm,
                      int64_t n_bytes) {
    struct cp_row *row = cp_row_of(comm, name, why, n_bytes);
    if (row != NULL) expect((struct expected){.request = request, .row = row, .n_bytes = n_bytes});
}

void cp_note_starts(const MPI_Request *requests, int n, int64_t begin_ns) {
    int64_t ns = cp_settings.is_logged ? cp_now_ns() - begin_ns : 0;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        const struct expected *found = *place_of(requests[i]);
        struct expected one = found != NULL ? *found : (struct expected){.flight = NULL};
        pthread_mutex_unlock(&lock);
        if (found != NULL && one.flight != NULL) {
            cp_lock_flights();
            cp_start_operation(one.flight, cp_settings.is_logged ? cp_now_ns() : 0);
            cp_unlock_flights();
        } else if (found != NULL) {
            cp_count(one.row, one.n_bytes, ns / n);
        }
    }
}

void cp_forget_starts(MPI_Request request) {
    pthread_mutex_lock(&lock);
    struct expected **at = place_of(request), *one = *at;
    if (one != NULL) *at = one->next;
    pthread_mutex_unlock(&lock);
    if (one == NULL) return;
    if (one->flight != NULL) {
        cp_lock_flights();
        cp_drop_operation(one->flight);
        cp_unlock_flights();
    }
    free(one);
    __atomic_fetch_sub(&cp_n_persistent, 1, __ATOMIC_RELAXED);
}

/* Decide on a route, and load its plan; collective. */
static void decide(struct cp_comm *comm, struct cp_route *route) {
    char *why = NULL, *text;
    int64_t begin_ns = cp_now_ns();
    cp_decide(comm, route);
    if (route->way == CP_NATIVE && route->may_share) {
        text = cp_text_of("%s needs shared memory, and no plan without it gains enough", route->label);
        cp_make_native(comm, route, text);
        free(text);
    }
    if (route->way == CP_COUNTING) {
        struct cp_program *program = NULL;
        if (comm->n_programs >= comm->family->max_plans) why = cp_text_of(CP_NO_ROOM);
        else program = cp_load_program(comm, route, NULL, 0, &why);
        if (cp_all_well(comm->private_comm, program != NULL, route->digest)) {
            comm->n_programs++;
            route->program = program;
            route->way = CP_PLANNED;
            route->row = cp_planned_row(comm, route);
        } else {
            if (program != NULL) cp_free_program(program);
            text = cp_text_of("%s cannot run here: %s", route->label,
                              why != NULL ? why : "another rank cannot make it");
            cp_make_native(comm, route, text);
            free(text);
        }
    }
    free(why);
    __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin_ns, __ATOMIC_RELAXED);
}

/* Return a tag space for a persistent call, or -1. Spaces are used again when all were used, if no
 * operation of this rank has them. */
static int64_t next_space(struct cp_comm *comm) {
    int64_t n_spaces = comm->n_tag_spaces - comm->n_start_spaces - CP_MOST_SHARING;
    int64_t number = comm->n_made++;
    int64_t space = comm->n_start_spaces + number % n_spaces;
    bool is_used = number >= n_spaces && cp_is_space_used(comm, space);
    pthread_mutex_lock(&lock);
    for (int chain = 0; number >= n_spaces && chain < N_CHAINS; chain++)
        for (const struct expected *one = chains[chain]; one != NULL; one = one->next)
            is_used |= one->flight != NULL && one->flight->comm == comm &&
                       one->flight->number == space;
    pthread_mutex_unlock(&lock);
    return is_used ? -1 : space;
}

/* Make the operation and its request; collective. */
static bool make(const struct cp_call *call, struct cp_comm *comm, struct cp_route *route,
                 const struct cp_use *use, MPI_Request *request) {
    static int n_tags;
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    int64_t space = next_space(comm);
    struct cp_flight *flight =
        space >= 0 ? cp_new_operation(comm, route, call, use, space) : NULL;
    bool is_well = flight != NULL;
    if (is_well) {
        flight->tag = __atomic_fetch_add(&n_tags, 1, __ATOMIC_RELAXED) % cp_settings.tag_ub;
        is_well = cp_real.Recv_init(NULL, 0, byte, 0, flight->tag, cp_settings.self, request) ==
                  MPI_SUCCESS;
    }
    bool are_well = cp_all_well(comm->private_comm, is_well, comm->n_made);
    if (are_well) {
        flight->request = *request;
        expect((struct expected){.request = *request, .row = route->row, .flight = flight});
    } else {
        if (is_well) cp_real.Request_free(request);
        cp_lock_flights();
        if (flight != NULL) cp_drop_operation(flight);
        cp_unlock_flights();
    }
    return are_well;
}

const char *cp_make_operation(const struct cp_call *call, MPI_Request *request) {
    struct cp_use use;
    if (!(cp_settings.started_kinds >> call->kind & 1)) return NO_PLAN_PAYS;
    struct cp_comm *comm = cp_comm_of(call->comm);
    if (comm == NULL || comm->is_inter) return "it is between two groups";
    if (!(comm->family->started_kinds >> call->kind & 1)) return NO_PLAN_PAYS;
    if (comm->is_foreign) return CP_FOREIGN;
    if (!cp_read_call(call, comm, &use)) return CP_REJECTED;
    if (comm->setup != CP_READY && comm->setup != CP_GROUNDED) cp_set_up(comm);
    if (comm->setup == CP_GROUNDED) return comm->why_grounded;
    struct cp_signature signature = cp_signature_of(call, &use);
    signature.form = CP_REPEATS;
    struct cp_route *route = cp_route_of(comm, &signature);
    if (route == NULL) return CP_TOO_MANY;
    cp_settle(comm); /* ranks meet on the same communicator as calls in its queue */
    if (route->way == CP_COUNTING) decide(comm, route);
    if (route->way != CP_PLANNED) return route->row->why;
    return make(call, comm, route, &use, request)
               ? NULL
               : "a rank has too little memory, or too many persistent calls";
}

static int start(MPI_Request *request) {
    int64_t begin = cp_now_ns();
    int code = cp_real.Start(request);
    if (code == MPI_SUCCESS) cp_note_starts(request, 1, begin);
    return code;
}

static int start_all(int n, MPI_Request *requests) {
    int64_t begin = cp_now_ns();
    int code = cp_real.Startall(n, requests);
    if (code == MPI_SUCCESS) cp_note_starts(requests, n, begin);
    return code;
}

static int free_request(MPI_Request *request) {
    cp_forget_starts(*request);
    return cp_real.Request_free(request);
}

#define ARE_ANY (__atomic_load_n(&cp_n_persistent, __ATOMIC_RELAXED) > 0)
CP_WRAP(Start, 1, ARE_ANY, start((MPI_Request *)a1))
CP_WRAP(Startall, 2, ARE_ANY, start_all((int)a1, (MPI_Request *)a2))
CP_WRAP(Request_free, 1, ARE_ANY, free_request((MPI_Request *)a1))
