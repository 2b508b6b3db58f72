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

static struct cp_comm *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t generation = 1;
int cp_n_planning;
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
           one->digest[0] == other->digest[0] && one->digest[1] == other->digest[1] &&
           one->form == other->form;
}

static struct cp_route **place_of(const struct cp_routes *routes,
                                  const struct cp_signature *signature) {
    uint64_t last_place = (uint64_t)routes->n_places - 1, place = hash_of(signature) & last_place;
    while (routes->places[place] != NULL &&
           !are_equal(&routes->places[place]->signature, signature))
        place = (place + 1) & last_place;
    return &routes->places[place];
}

/* Move all routes to a new table with `n_places` places. */
static bool rehash(struct cp_routes *routes, int64_t n_places) {
    struct cp_routes more = {calloc((size_t)n_places, sizeof *more.places), n_places, 0};
    if (more.places == NULL) return false;
    for (int64_t i = 0; i < routes->n_places; i++)
        if (routes->places[i] != NULL) {
            *place_of(&more, &routes->places[i]->signature) = routes->places[i];
            more.n++;
        }
    free(routes->places);
    *routes = more;
    return true;
}

static struct cp_comm *attach(MPI_Comm handle, struct cp_family *family) {
    struct cp_comm *comm = calloc(1, sizeof *comm);
    int is_inter = 0;
    if (comm == NULL) return NULL;
    comm->comm = handle;
    comm->family = family;
    comm->private_comm = cp_COMM_NULL;
    comm->id = -1;
    cp_real.Comm_test_inter(handle, &is_inter);
    comm->is_inter = is_inter;
    comm->is_foreign = has_strangers(handle);
    cp_real.Comm_rank(handle, &comm->rank);
    cp_real.Comm_size(handle, &comm->size);
    if (!rehash(&comm->routes, FIRST_PLACES) || !rehash(&comm->started, FIRST_PLACES) ||
        cp_real.Comm_set_attr(handle, cp_settings.comm_keyval, comm) != MPI_SUCCESS) {
        free(comm->routes.places);
        free(comm->started.places);
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
    if (!is_there && cp_world.is_on) found = attach(handle, &cp_world);
    last.comm = handle;
    last.found = found;
    last.generation = now;
    return found;
}

bool cp_join(MPI_Comm handle, struct cp_family *family) {
    struct cp_comm *comm = cp_comm_of(handle);
    if (comm != NULL) {
        cp_drain(comm);
        cp_real.Comm_delete_attr(handle, cp_settings.comm_keyval);
    }
    __atomic_fetch_add(&generation, 1, __ATOMIC_ACQ_REL);
    return attach(handle, family) != NULL;
}

static void free_route(struct cp_route *route) {
    if (route->plan != NULL) cp_free_plan(route->plan);
    if (route->program != NULL) cp_free_program(route->program);
    cp_free_trial(route->trial);
    if (route->observation != NULL) cp_free_observation(route->observation);
    if (route->sharing != NULL) cp_free_sharing(route->sharing);
    free(route->label);
    free(route->why);
    free(route);
}

static void free_routes(struct cp_routes *routes) {
    for (int64_t i = 0; i < routes->n_places; i++)
        if (routes->places[i] != NULL) free_route(routes->places[i]);
    free(routes->places);
}

static void free_plans(struct cp_comm *comm) {
    free_routes(&comm->routes);
    free_routes(&comm->started);
    free(comm->facts);
    free(comm->why_grounded);
}

int cp_delete_comm(MPI_Comm handle, int keyval, void *attribute, void *extra) {
    struct cp_comm *comm = attribute;
    (void)handle, (void)keyval, (void)extra;
    if (!cp_settings.is_on) return MPI_SUCCESS; /* MPI_Finalize has freed everything */
    __atomic_fetch_add(&generation, 1, __ATOMIC_ACQ_REL);
    cp_watch_free(comm);
    int n_requests = (comm->setup == CP_REQUESTED) + comm->may_request;
    __atomic_fetch_sub(&cp_n_requested, n_requests, __ATOMIC_RELAXED);
    /* MPI_Comm_free has waited for plans in flight, unless it was not seen. Requests of persistent
     * calls may be freed later. */
    if (__atomic_load_n(&comm->n_in_flight, __ATOMIC_ACQUIRE) > 0 || comm->n_operations > 0)
        return MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    if (comm->before != NULL) comm->before->next = comm->next;
    else all = comm->next;
    if (comm->next != NULL) comm->next->before = comm->before;
    pthread_mutex_unlock(&lock);
    free_plans(comm);
    if (comm->may_plan) __atomic_fetch_sub(&cp_n_planning, 1, __ATOMIC_RELAXED);
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

void cp_write_signature(const struct cp_signature *signature, char *text, size_t n_bytes) {
    snprintf(text, n_bytes, "%s %" PRId64 " %" PRId64 " %s %s %016" PRIx64 "%016" PRIx64,
             (signature->form == CP_BLOCKS ? cp_kind_names : cp_started_names)[signature->kind],
             signature->n_bytes, signature->root,
             signature->op != NULL ? signature->op : "-",
             signature->element != NULL ? signature->element : "-", signature->digest[0],
             signature->digest[1]);
}

const char *cp_name_of(const struct cp_signature *signature) {
    const char *const *names[] = {cp_kind_names, cp_started_names, cp_repeated_names};
    return names[signature->form][signature->kind];
}

int cp_write_question(const struct cp_comm *comm, const struct cp_signature *signature,
                      char *text, size_t n_bytes) {
    int n = snprintf(text, n_bytes, "%" PRId64 " ", comm->id);
    cp_write_signature(signature, text + n, n_bytes - (size_t)n);
    return (int)strlen(text);
}

/* Drop the routes of blocking calls that have no plan. */
static void forget_natives(struct cp_comm *comm) {
    struct cp_routes old = comm->routes;
    comm->routes = (struct cp_routes){NULL, 0, 0};
    if (!rehash(&comm->routes, FIRST_PLACES)) abort();
    for (int kind = 0; kind < CP_GATHERV; kind++) comm->latest[kind].is_kept = false;
    for (int64_t i = 0; i < old.n_places; i++) {
        if (old.places[i] == NULL) continue;
        if (!cp_has_plans(old.places[i])) {
            free_route(old.places[i]);
            continue;
        }
        if (2 * comm->routes.n >= comm->routes.n_places &&
            !rehash(&comm->routes, 2 * comm->routes.n_places))
            abort();
        *place_of(&comm->routes, &old.places[i]->signature) = old.places[i];
        comm->routes.n++;
    }
    free(old.places);
}

bool cp_is_defined(const char *op, const char *element) {
    if (cp_is_registered(op)) return true;
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
    const struct cp_family *family = comm->family;
    uint64_t kinds = signature->form == CP_BLOCKS ? family->kinds : family->started_kinds;
    if (!(kinds >> signature->kind & 1)) {
        snprintf(text, n_bytes, CP_NO_PLAN, cp_kind_names[signature->kind]);
        return text;
    }
    if (signature->n_bytes == 0 && signature->kind != CP_BARRIER) return "nothing to move";
    if (reduces && signature->op == NULL) return "the operation is not one that plans know";
    if (reduces && signature->element == NULL) return "the datatype is not one that plans reduce";
    if (reduces && !cp_is_defined(signature->op, signature->element)) {
        snprintf(text, n_bytes, "%s is not defined on %s", signature->op, signature->element);
        return text;
    }
    return NULL;
}

struct cp_row *cp_native_row(const struct cp_comm *comm, const struct cp_route *route,
                             const char *why) {
    return cp_row(comm->family, cp_name_of(&route->signature), "native", why, comm->size,
                  route->signature.n_bytes, false, route->native_s, route->native_s);
}

struct cp_row *cp_planned_row(const struct cp_comm *comm, const struct cp_route *route) {
    return cp_row(comm->family, cp_name_of(&route->signature), route->label, route->why, comm->size,
                  route->signature.n_bytes, true, route->native_s, route->chosen_s);
}

void cp_make_native(struct cp_comm *comm, struct cp_route *route, const char *why) {
    route->way = CP_NATIVE;
    route->row = cp_native_row(comm, route, why);
}

void cp_do_without(struct cp_comm *comm, struct cp_route *route, const char *why) {
    cp_make_native(comm, route, why);
    if (route->is_needed && comm->rank == 0)
        cp_say("%s: no plan can run here: %s; calls are native, and results are not reproducible "
               "as the table asks", cp_name_of(&route->signature), why);
}

static struct cp_route *add(struct cp_comm *comm, const struct cp_signature *signature) {
    char text[128];
    struct cp_routes *routes = signature->form == CP_BLOCKS ? &comm->routes : &comm->started;
    if (routes->n >= MOST_ROUTES) {
        if (signature->form != CP_BLOCKS) return NULL;
        forget_natives(comm);
    }
    if (2 * routes->n >= routes->n_places && !rehash(routes, 2 * routes->n_places)) abort();
    struct cp_route *route = calloc(1, sizeof *route);
    if (route == NULL) abort(); /* as other ranks would wait for this one */
    route->signature = *signature;
    route->native_s = route->chosen_s = route->met_at = -1;
    const char *why = why_never(comm, signature, text, sizeof text);
    if (why != NULL) cp_make_native(comm, route, why);
    else route->row = cp_native_row(comm, route, FIRST_CALLS);
    *place_of(routes, signature) = route;
    routes->n++;
    return route;
}

/* The signature of a freed plan needs more calls before it gets a plan again, as making plans in turn
 * would take longer than native calls. If its plan had won a trial, it needs another trial. */
void cp_make_room(struct cp_comm *comm) {
    struct cp_route *oldest = NULL;
    char why[192];
    if (comm->n_plans < comm->family->max_plans) return;
    for (int64_t i = 0; i < comm->routes.n_places; i++) {
        struct cp_route *route = comm->routes.places[i];
        if (route != NULL && cp_has_plans(route) &&
            (oldest == NULL || route->last_used < oldest->last_used))
            oldest = route;
    }
    if (oldest == NULL) return;
    if (oldest->trial != NULL) {
        cp_begin_anew(comm, oldest);
        return;
    }
    cp_free_plan(oldest->plan);
    comm->n_plans--;
    oldest->plan = NULL;
    oldest->n_calls = 0;
    oldest->native_calls = REPLACED_CALLS * (oldest->native_calls > 0 ? oldest->native_calls : 1);
    snprintf(why, sizeof why, "other plans replaced its plan: %s again after %" PRId64 " calls",
             oldest->label, oldest->native_calls);
    cp_make_native(comm, oldest, why);
    oldest->way = CP_COUNTING;
}

/* Whether threads that have not initialized MPI make communicators. */
static bool others_make;

void cp_note_maker(void) {
    if (!pthread_equal(pthread_self(), cp_settings.first_thread))
        __atomic_store_n(&others_make, true, __ATOMIC_RELAXED);
}

/* Return whether other threads make no communicators, on all ranks; collective. If one does while this
 * library makes a communicator, both may wait forever in Open MPI 5.0.11. */
static bool is_only_maker(const struct cp_comm *comm) {
#ifdef COLLPLAN_OPENMPI
    int64_t mine = !__atomic_load_n(&others_make, __ATOMIC_RELAXED), all = 0;
    return cp_least(comm, &mine, &all, 1) && all;
#else
    (void)comm;
    return true;
#endif
}

/* Create a communicator that only plans use. It is not a duplicate, because duplication would call
 * attribute callbacks of the program. It is not created for the group either: in MPICH 5.0.2, the
 * group of a Cartesian communicator contains ranks that the communicator does not contain. */
bool cp_make_private(struct cp_comm *comm) {
    if (comm->private_comm != cp_COMM_NULL) return true;
    if (!is_only_maker(comm)) return false;
    /* The number of communicators is limited in MPI. If none is left, calls are native. */
    MPI_Errhandler handler = cp_silence(comm->comm);
    int code = cp_real.Comm_split(comm->comm, 0, 0, &comm->private_comm);
    cp_restore(comm->comm, handler);
    if (code != MPI_SUCCESS) comm->private_comm = cp_COMM_NULL;
    else cp_real.Comm_set_errhandler(comm->private_comm, cp_ERRORS_RETURN);
    return code == MPI_SUCCESS;
}

static void make(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    char *why = NULL, text[1024];
    cp_make_room(comm);
    cp_settle(comm); /* ranks meet on that communicator, too */
    if (cp_make_private(comm)) route->plan = cp_make_plan(comm, route, counts, &why);
    if (route->plan == NULL) {
        snprintf(text, sizeof text, "%s cannot run here: %s", route->label,
                 why != NULL ? why : CP_NO_PRIVATE);
        cp_do_without(comm, route, text);
    } else {
        comm->n_plans++;
        route->way = CP_PLANNED;
        route->row = cp_planned_row(comm, route);
    }
    free(why);
}

bool cp_is_rejected(int code) {
    int error = MPI_ERR_OTHER;
    cp_real.Error_class(code, &error);
    /* Classes of smaller numbers are those of arguments. */
    return error < MPI_ERR_TRUNCATE;
}

void cp_take_back(struct cp_comm *comm, struct cp_route *route, int code) {
    bool is_native = route->way != CP_PLANNED;
    if (route->way == CP_TRYING) is_native = cp_tried_plan(route) == NULL;
    if (!is_native || !cp_is_rejected(code)) return;
    comm->n_calls--;
    if (route->way == CP_COUNTING) route->n_calls--;
}

bool cp_is_known(const struct cp_comm *comm, const struct cp_signature *signature) {
    return *place_of(&comm->routes, signature) != NULL;
}

struct cp_route *cp_route_of(struct cp_comm *comm, const struct cp_signature *signature) {
    const struct cp_routes *routes = signature->form == CP_BLOCKS ? &comm->routes : &comm->started;
    struct cp_route *route = *place_of(routes, signature);
    return route != NULL ? route : add(comm, signature);
}

/* Decide on a route, or make its plan, if this is the call for it. */
static void count(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    bool is_asked = !route->is_decided && route->n_calls + 1 >= comm->family->native_calls;
    if (is_asked || (route->is_decided && route->n_calls >= route->native_calls)) {
        /* Few calls read the clock, as that takes as long as a small call. */
        int64_t begin = cp_now_ns();
        if (is_asked) cp_decide(comm, route);
        if (route->way == CP_COUNTING && route->n_calls >= route->native_calls)
            make(comm, route, counts);
        __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin, __ATOMIC_RELAXED);
    }
    route->n_calls++;
}

void cp_advance(struct cp_comm *comm, struct cp_route *route, const int64_t *counts) {
    comm->n_calls++;
    if (route->way == CP_COUNTING) count(comm, route, counts);
    else if (route->way == CP_TRYING) cp_try(comm, route);
    if (route->way == CP_PLANNED || route->way == CP_TRYING) route->last_used = ++comm->clock;
}
