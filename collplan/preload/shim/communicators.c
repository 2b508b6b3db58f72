/* Signatures of the calls on each communicator, and their routes.
 *
 * All ranks of a communicator make the same calls in the same order. Therefore decisions and their
 * times, and the plans that are freed, are the same on all ranks. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MOST_ROUTES 4096 /* number of routes at which routes without plans are dropped */
#define FIRST_PLACES 64
#define FIRST_CALLS "its first call; the table is asked when it comes again"
#define REPLACED_CALLS 8 /* factor of the calls before a plan is made again */
#define MOST_COMMS 64 /* largest number of communicators of a rank that have plans at a time */

static struct cp_comm *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t generation = 1;
static int n_planning; /* number of communicators of this rank that may have plans */
static __thread struct {
    MPI_Comm comm;
    struct cp_comm *found;
    uint64_t generation;
} last;

/* Return whether processes of another MPI_COMM_WORLD are in a communicator, such as one that
 * MPI_Intercomm_merge has made. They may run without this library. */
static bool has_strangers(MPI_Comm handle) {
    MPI_Group group, world, strangers;
    int n = 0;
    if (cp_real.Comm_group(handle, &group) != MPI_SUCCESS) return true;
    if (cp_real.Comm_group(cp_COMM_WORLD, &world) == MPI_SUCCESS) {
        if (cp_real.Group_difference(group, world, &strangers) == MPI_SUCCESS) {
            cp_real.Group_size(strangers, &n);
            if (n > 0) cp_real.Group_free(&strangers);
        }
        cp_real.Group_free(&world);
    }
    cp_real.Group_free(&group);
    return n > 0;
}

static struct cp_comm *attach(MPI_Comm handle) {
    struct cp_comm *comm = calloc(1, sizeof *comm);
    int is_inter = 0;
    if (comm == NULL) return NULL;
    comm->comm = handle;
    comm->private_comm = cp_COMM_NULL;
    comm->id = -1;
    cp_real.Comm_test_inter(handle, &is_inter);
    comm->is_inter = is_inter;
    comm->is_foreign = has_strangers(handle);
    cp_real.Comm_rank(handle, &comm->rank);
    cp_real.Comm_size(handle, &comm->size);
    comm->n_places = FIRST_PLACES;
    comm->routes = calloc(FIRST_PLACES, sizeof *comm->routes);
    if (comm->routes == NULL ||
        cp_real.Comm_set_attr(handle, cp_settings.comm_keyval, comm) != MPI_SUCCESS) {
        free(comm->routes);
        free(comm);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    comm->next = all;
    if (all != NULL) all->before = comm;
    all = comm;
    pthread_mutex_unlock(&lock);
    return comm;
}

struct cp_comm *cp_comm_of(MPI_Comm handle) {
    uint64_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (last.comm == handle && last.generation == now) return last.found;
    if (handle == cp_COMM_NULL) return NULL;
    struct cp_comm *found = NULL;
    int is_there = 0;
    if (cp_real.Comm_get_attr(handle, cp_settings.comm_keyval, &found, &is_there) != MPI_SUCCESS)
        return NULL;
    if (!is_there) found = attach(handle);
    if (found != NULL) {
        last.comm = handle;
        last.found = found;
        last.generation = now;
    }
    return found;
}

static void free_route(struct cp_route *route) {
    if (route->plan != NULL) cp_free_plan(route->plan);
    free(route->label);
    free(route->why);
    free(route);
}

static void free_plans(struct cp_comm *comm) {
    for (int64_t i = 0; i < comm->n_places; i++)
        if (comm->routes[i] != NULL) free_route(comm->routes[i]);
    free(comm->routes);
    free(comm->facts);
}

int cp_delete_comm(MPI_Comm handle, int keyval, void *attribute, void *extra) {
    struct cp_comm *comm = attribute;
    (void)handle, (void)keyval, (void)extra;
    if (!cp_settings.is_on) return MPI_SUCCESS; /* MPI_Finalize has freed everything */
    __atomic_fetch_add(&generation, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&lock);
    if (comm->before != NULL) comm->before->next = comm->next;
    else all = comm->next;
    if (comm->next != NULL) comm->next->before = comm->before;
    pthread_mutex_unlock(&lock);
    free_plans(comm);
    if (comm->may_plan) __atomic_fetch_sub(&n_planning, 1, __ATOMIC_RELAXED);
    if (comm->private_comm != cp_COMM_NULL) cp_real.Comm_free(&comm->private_comm);
    free(comm);
    return MPI_SUCCESS;
}

/* Free all plans. MPI_Finalize frees the communicators that only plans use. */
void cp_free_all(void) {
    while (all != NULL) {
        struct cp_comm *comm = all;
        all = comm->next;
        free_plans(comm);
        free(comm);
    }
}

static uint64_t hash_of(const struct cp_signature *signature) {
    uint64_t found = (uint64_t)signature->kind + 31 * (uint64_t)signature->root;
    found = found * 0x9e3779b97f4a7c15u + (uint64_t)signature->n_bytes;
    found = found * 0x9e3779b97f4a7c15u + (uintptr_t)signature->op;
    found = found * 0x9e3779b97f4a7c15u + (uintptr_t)signature->element;
    found += signature->digest[0];
    return found ^ found >> 29;
}

static bool are_equal(const struct cp_signature *one, const struct cp_signature *other) {
    return one->kind == other->kind && one->n_bytes == other->n_bytes &&
           one->root == other->root && one->op == other->op && one->element == other->element &&
           one->digest[0] == other->digest[0] && one->digest[1] == other->digest[1];
}

static void write_signature(const struct cp_signature *signature, char *text, size_t n_bytes) {
    snprintf(text, n_bytes, "%s %" PRId64 " %" PRId64 " %s %s %016" PRIx64 "%016" PRIx64,
             cp_kind_names[signature->kind], signature->n_bytes, signature->root,
             signature->op != NULL ? signature->op : "-",
             signature->element != NULL ? signature->element : "-", signature->digest[0],
             signature->digest[1]);
}

int cp_write_question(const struct cp_comm *comm, const struct cp_signature *signature,
                      char *text, size_t n_bytes) {
    int n = snprintf(text, n_bytes, "%" PRId64 " ", comm->id);
    write_signature(signature, text + n, n_bytes - (size_t)n);
    return (int)strlen(text);
}

static struct cp_route **place_of(struct cp_route **routes, int64_t n_places,
                                  const struct cp_signature *signature) {
    uint64_t place = hash_of(signature) & (uint64_t)(n_places - 1);
    while (routes[place] != NULL && !are_equal(&routes[place]->signature, signature))
        place = (place + 1) & (uint64_t)(n_places - 1);
    return &routes[place];
}

/* Move all routes to a new table with `n_places` places. */
static bool rehash(struct cp_comm *comm, int64_t n_places) {
    struct cp_route **routes = calloc((size_t)n_places, sizeof *routes);
    if (routes == NULL) return false;
    comm->n_routes = 0;
    for (int64_t i = 0; i < comm->n_places; i++)
        if (comm->routes[i] != NULL) {
            *place_of(routes, n_places, &comm->routes[i]->signature) = comm->routes[i];
            comm->n_routes++;
        }
    free(comm->routes);
    comm->routes = routes;
    comm->n_places = n_places;
    return true;
}

static void forget_natives(struct cp_comm *comm) {
    struct cp_route **routes = comm->routes;
    int64_t n_places = comm->n_places;
    comm->routes = calloc(FIRST_PLACES, sizeof *routes);
    if (comm->routes == NULL) abort();
    comm->n_places = FIRST_PLACES;
    comm->n_routes = 0;
    for (int kind = 0; kind < CP_GATHERV; kind++) comm->latest[kind].route = NULL;
    for (int64_t i = 0; i < n_places; i++) {
        if (routes[i] == NULL) continue;
        if (routes[i]->plan == NULL) {
            free_route(routes[i]);
            continue;
        }
        if (2 * comm->n_routes >= comm->n_places && !rehash(comm, 2 * comm->n_places))
            abort();
        *place_of(comm->routes, comm->n_places, &routes[i]->signature) = routes[i];
        comm->n_routes++;
    }
    free(routes);
}

/* Return whether MPI defines an operation on elements, as in specs/collectives/predefined.py. */
static bool is_defined(const char *op, const char *element) {
    bool is_bool = strcmp(element, "bool") == 0;
    if (strstr(element, "_int") != NULL) return strstr(op, "loc") != NULL;
    if (strcmp(op, "sum") == 0 || strcmp(op, "prod") == 0) return !is_bool;
    if (strcmp(op, "max") == 0 || strcmp(op, "min") == 0)
        return !is_bool && strncmp(element, "complex", 7) != 0;
    return strstr(op, "loc") == NULL && (is_bool || strstr(element, "int") != NULL);
}

/* Return the reason why a call is native independent of the table, or NULL. */
static const char *why_never(const struct cp_comm *comm, const struct cp_signature *signature,
                             char *text, size_t n_bytes) {
    if (comm->is_foreign) return CP_FOREIGN;
    bool reduces = signature->kind == CP_REDUCE || signature->kind == CP_ALLREDUCE ||
                   signature->kind == CP_REDUCE_SCATTER_BLOCK || signature->kind == CP_SCAN ||
                   signature->kind == CP_EXSCAN || signature->kind == CP_REDUCE_SCATTER;
    if (!(cp_settings.kinds >> signature->kind & 1)) {
        snprintf(text, n_bytes, CP_NO_PLAN, cp_kind_names[signature->kind]);
        return text;
    }
    if (signature->n_bytes == 0 && signature->kind != CP_BARRIER) return "nothing to move";
    if (reduces && signature->op == NULL) return "the operation is not one that plans know";
    if (reduces && signature->element == NULL) return "the datatype is not one that plans reduce";
    if (reduces && !is_defined(signature->op, signature->element)) {
        snprintf(text, n_bytes, "%s is not defined on %s", signature->op, signature->element);
        return text;
    }
    return NULL;
}

static void make_native(struct cp_comm *comm, struct cp_route *route, const char *why) {
    route->way = CP_NATIVE;
    route->row = cp_row(cp_kind_names[route->signature.kind], "native", why, comm->size,
                        route->signature.n_bytes, false, route->native_s, route->native_s);
}

static struct cp_route *add(struct cp_comm *comm, const struct cp_signature *signature) {
    char text[128];
    if (comm->n_routes >= MOST_ROUTES) forget_natives(comm);
    if (2 * comm->n_routes >= comm->n_places && !rehash(comm, 2 * comm->n_places)) abort();
    struct cp_route *route = calloc(1, sizeof *route);
    if (route == NULL) abort(); /* as other ranks would wait for this one */
    route->signature = *signature;
    route->native_s = route->chosen_s = -1;
    const char *why = why_never(comm, signature, text, sizeof text);
    if (why != NULL) make_native(comm, route, why);
    else
        route->row = cp_row(cp_kind_names[signature->kind], "native", FIRST_CALLS, comm->size,
                            signature->n_bytes, false, -1, -1);
    *place_of(comm->routes, comm->n_places, signature) = route;
    comm->n_routes++;
    return route;
}

/* Send the helper the placement of a communicator's ranks; collective in the first call. */
static bool introduce(struct cp_comm *comm, char **why) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    size_t n_bytes = sizeof(int64_t[2]) + sizeof(struct cp_facts) * (size_t)comm->size;
    if (!comm->has_facts) {
        comm->facts = calloc((size_t)comm->size, sizeof *comm->facts);
        if (comm->facts == NULL) abort();
        if (cp_real.Allgather(&cp_settings.facts, sizeof(struct cp_facts), byte, comm->facts,
                              sizeof(struct cp_facts), byte, comm->comm) != MPI_SUCCESS)
            return false;
        comm->has_facts = true;
    }
    if (comm->id >= 0) return true;
    int64_t *message = malloc(n_bytes);
    if (message == NULL) return false;
    message[0] = comm->rank;
    message[1] = comm->size;
    memcpy(message + 2, comm->facts, n_bytes - sizeof(int64_t[2]));
    struct cp_reply reply = cp_ask(CP_COMM, message, (int64_t)n_bytes);
    if (reply.status == 0 && reply.n_bytes == sizeof comm->id)
        memcpy(&comm->id, reply.bytes, sizeof comm->id);
    else if (reply.status != 0) *why = reply.bytes != NULL ? strdup(reply.bytes) : NULL;
    free(reply.bytes);
    free(message);
    return comm->id >= 0;
}

struct verdict {
    int64_t is_plan, digest, native_calls;
    double native_s, chosen_s;
};

/* Ask the helper for the decision of the table. */
static bool ask(struct cp_comm *comm, struct cp_route *route, char **waiting, char **why) {
    char text[256];
    struct verdict verdict;
    int n = cp_write_question(comm, &route->signature, text, sizeof text);
    struct cp_reply reply = cp_ask(CP_DECIDE, text, n);
    if (reply.status != 0 || reply.n_bytes < (int64_t)sizeof verdict + 3) {
        *why = reply.bytes;
        return false;
    }
    memcpy(&verdict, reply.bytes, sizeof verdict);
    const char *label = reply.bytes + sizeof verdict;
    const char *reason = label + strlen(label) + 1;
    route->label = strdup(label);
    route->why = strdup(reason);
    *waiting = strdup(reason + strlen(reason) + 1);
    route->is_wanted = verdict.is_plan;
    route->digest = verdict.digest;
    route->native_calls = verdict.native_calls;
    route->native_s = verdict.native_s;
    route->chosen_s = verdict.chosen_s;
    free(reply.bytes);
    return route->label != NULL && route->why != NULL && *waiting != NULL;
}

static int64_t digest_of(const struct cp_signature *signature) {
    char text[192];
    uint64_t found = 0xcbf29ce484222325u;
    write_signature(signature, text, sizeof text);
    for (const char *at = text; *at; at++) found = (found ^ (unsigned char)*at) * 0x100000001b3u;
    return (int64_t)(found >> 1);
}

/* Decide on the route of a signature; collective. */
static void decide(struct cp_comm *comm, struct cp_route *route) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    char *waiting = NULL, *why = NULL;
    bool is_well = introduce(comm, &why) && ask(comm, route, &waiting, &why);
    int64_t signature = digest_of(&route->signature);
    bool has_room = comm->may_plan || n_planning < MOST_COMMS;
    int64_t mine[8] = {is_well,    route->digest,  -route->digest, signature,
                       -signature, comm->n_calls, -comm->n_calls, has_room};
    int64_t found[8] = {0};
    route->is_decided = true;
    int code = cp_real.Allreduce(mine, found, 8, type, least, comm->comm);
    if (code != MPI_SUCCESS || !found[0]) {
        make_native(comm, route, why != NULL ? why : "another rank cannot ask the table");
    } else if (found[3] != -found[4]) {
        make_native(comm, route, "ranks bring different calls");
    } else if (found[5] != -found[6]) {
        make_native(comm, route, "ranks have made different numbers of calls");
    } else if (found[1] != -found[2]) {
        make_native(comm, route, "ranks' tables say different things");
    } else if (!route->is_wanted) {
        make_native(comm, route, route->why);
    } else if (!found[7]) {
        make_native(comm, route, "a rank has as many communicators with plans as it may have");
    } else {
        if (!comm->may_plan) __atomic_fetch_add(&n_planning, 1, __ATOMIC_RELAXED);
        comm->may_plan = true;
        route->row = cp_row(cp_kind_names[route->signature.kind], "native", waiting, comm->size,
                            route->signature.n_bytes, false, route->native_s, route->native_s);
    }
    free(waiting);
    free(why);
}

/* Free the least recently used plan. Its signature needs more calls before it gets a plan again, as
 * making plans in turn would take longer than native calls. */
static void make_room(struct cp_comm *comm) {
    struct cp_route *oldest = NULL;
    char why[192];
    for (int64_t i = 0; i < comm->n_places; i++) {
        struct cp_route *route = comm->routes[i];
        if (route != NULL && route->plan != NULL &&
            (oldest == NULL || route->last_used < oldest->last_used))
            oldest = route;
    }
    if (oldest == NULL) return;
    cp_free_plan(oldest->plan);
    comm->n_plans--;
    oldest->plan = NULL;
    oldest->n_calls = 0;
    oldest->native_calls = REPLACED_CALLS * (oldest->native_calls > 0 ? oldest->native_calls : 1);
    snprintf(why, sizeof why, "other plans replaced its plan: %s again after %" PRId64 " calls",
             oldest->label, oldest->native_calls);
    make_native(comm, oldest, why);
    oldest->way = CP_COUNTING;
}

/* Create a communicator that only plans use. It is not a duplicate, because duplication would call
 * attribute callbacks of the program. */
static bool make_private(struct cp_comm *comm) {
    MPI_Group group;
    if (comm->private_comm != cp_COMM_NULL) return true;
    /* The number of communicators is limited in MPI. If none is left, calls are native. */
    MPI_Errhandler handler = cp_silence(comm->comm);
    int code = cp_real.Comm_group(comm->comm, &group);
    if (code == MPI_SUCCESS) {
        code = cp_real.Comm_create(comm->comm, group, &comm->private_comm);
        cp_real.Group_free(&group);
    }
    cp_restore(comm->comm, handler);
    if (code != MPI_SUCCESS) comm->private_comm = cp_COMM_NULL;
    else cp_real.Comm_set_errhandler(comm->private_comm, cp_ERRORS_RETURN);
    return code == MPI_SUCCESS;
}

static void make(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    char *why = NULL, text[1024];
    if (comm->n_plans >= cp_settings.max_plans) make_room(comm);
    if (make_private(comm)) route->plan = cp_make_plan(comm, route, counts, &why);
    if (route->plan == NULL) {
        snprintf(text, sizeof text, "%s cannot run here: %s", route->label,
                 why != NULL ? why : "plans cannot have a communicator");
        make_native(comm, route, text);
    } else {
        comm->n_plans++;
        route->way = CP_PLANNED;
        route->row = cp_row(cp_kind_names[route->signature.kind], route->label, route->why,
                            comm->size, route->signature.n_bytes, true, route->native_s,
                            route->chosen_s);
    }
    free(why);
}

void cp_take_back(struct cp_comm *comm, struct cp_route *route, int code) {
    int error = MPI_ERR_OTHER;
    cp_real.Error_class(code, &error);
    /* Classes of smaller numbers are those of arguments. */
    if (route->way == CP_PLANNED || error >= MPI_ERR_TRUNCATE) return;
    comm->n_calls--;
    if (route->way == CP_COUNTING) route->n_calls--;
}

bool cp_is_known(const struct cp_comm *comm, const struct cp_signature *signature) {
    return *place_of(comm->routes, comm->n_places, signature) != NULL;
}

struct cp_route *cp_route_of(struct cp_comm *comm, const struct cp_signature *signature) {
    struct cp_route *route = *place_of(comm->routes, comm->n_places, signature);
    return route != NULL ? route : add(comm, signature);
}

/* Decide on a route, or make its plan, if this is the call for it. */
static void count(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    bool is_asked = !route->is_decided && route->n_calls + 1 >= cp_settings.native_calls;
    if (is_asked || (route->is_decided && route->n_calls >= route->native_calls)) {
        /* Few calls read the clock, as that takes as long as a small call. */
        int64_t begin = cp_now_ns();
        if (is_asked) decide(comm, route);
        if (route->way == CP_COUNTING && route->n_calls >= route->native_calls)
            make(comm, route, counts);
        __atomic_fetch_add(&cp_making_ns, cp_now_ns() - begin, __ATOMIC_RELAXED);
    }
    route->n_calls++;
}

void cp_advance(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    comm->n_calls++;
    if (route->way == CP_COUNTING) count(comm, route, counts);
    if (route->way == CP_PLANNED) route->last_used = ++comm->clock;
}
