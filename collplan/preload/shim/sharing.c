/* Plans through shared memory for calls that do not block.
 *
 * Such a call cannot allocate the memory, as it must not wait for other ranks. Ranks agree on the
 * request for a plan together with the decision of the table, and make it in the next blocking call
 * of the communicator. Before, they wait for all agreements of earlier calls, so that all of them
 * know the same requests.
 *
 * The memory is that of one start. Later starts wait in a queue, and no call waits for them. */
#include <stdlib.h>
#include <string.h>

#include "flights.h"

struct decision {
    double native_s, chosen_s;
};

bool cp_has_room_to_share(const struct cp_comm *comm) { return comm->n_sharing < CP_MOST_SHARING; }

void cp_request_sharing(struct cp_comm *comm, struct cp_route *route) {
    struct cp_sharing *made = calloc(1, sizeof *made), **at = &comm->requested;
    if (made == NULL) abort(); /* as other ranks would wait for this one */
    made->route = route;
    made->tag_space = comm->n_tag_spaces - ++comm->n_sharing;
    while (*at != NULL) at = &(*at)->next;
    *at = route->sharing = made;
}

void cp_free_sharing(struct cp_sharing *sharing) {
    if (sharing->plan != NULL) cp_free_plan(sharing->plan);
    free(sharing);
}

bool cp_waits_for_memory(struct cp_flight *flight) {
    struct cp_sharing *sharing = flight->route->sharing;
    if (!sharing->is_busy) return false;
    if (flight->begin_ns != 0 && flight->spent_ns == 0)
        flight->spent_ns = cp_now_ns() - flight->begin_ns;
    if (sharing->queue == NULL) sharing->queue = flight;
    else sharing->queue_end->next_waiting = flight;
    sharing->queue_end = flight;
    flight->next_waiting = NULL;
    return true;
}

struct cp_flight *cp_next_sharing(const struct cp_flight *flight, int code) {
    struct cp_sharing *sharing = flight->route->sharing;
    struct cp_flight *waiting = sharing->queue;
    sharing->is_busy = false;
    if (code != MPI_SUCCESS) sharing->code = code;
    if (waiting != NULL) sharing->queue = waiting->next_waiting;
    return waiting;
}

/* Use a plan from now on, given what the helper says before it. */
static void use(struct cp_comm *comm, struct cp_route *route, struct cp_plan *plan,
                const struct decision *decision, const char *label, const char *why) {
    struct cp_sharing *sharing = route->sharing;
    state_of(plan)->turn_ns = CP_TURN_NS;
    cp_use_tags(plan, sharing->tag_space);
    struct cp_row *row = cp_row(comm->family, cp_name_of(&route->signature), label, why, comm->size,
                                route->signature.n_bytes, true, decision->native_s,
                                decision->chosen_s);
    cp_lock_flights();
    sharing->plan = plan;
    if (route->early_row == NULL) route->early_row = route->row;
    route->row = row;
    route->way = CP_PLANNED;
    cp_unlock_flights();
}

/* Make a plan that was requested; collective. */
static void make(struct cp_comm *comm, struct cp_route *route) {
    char text[256 + 8], *why = NULL;
    struct decision decision = {-1, -1};
    int n = cp_write_question(comm, &route->signature, text, 256) + 1;
    memcpy(text + n, "shared", 6);
    struct cp_reply reply = cp_ask(comm->family, CP_PLAN, text, n + 6);
    const char *label = NULL, *reason = NULL, *bytes = NULL, *end = NULL;
    if (reply.status == 0 && reply.n_bytes > (int64_t)sizeof decision) {
        memcpy(&decision, reply.bytes, sizeof decision);
        end = reply.bytes + reply.n_bytes;
        label = reply.bytes + sizeof decision;
        const char *after = memchr(label, '\0', (size_t)(end - label));
        if (after != NULL) reason = after + 1;
        if (reason != NULL) after = memchr(reason, '\0', (size_t)(end - reason));
        if (reason != NULL && after != NULL) bytes = after + 1;
    } else if (reply.bytes != NULL) {
        why = strdup(reply.bytes);
    }
    int64_t n_bytes = bytes != NULL ? end - bytes : 0;
    struct cp_plan *plan = cp_bind_plan(comm, bytes, n_bytes, &why);
    if (plan != NULL) {
        use(comm, route, plan, &decision, label, reason);
    } else if (route->way != CP_PLANNED) {
        char *failed = cp_text_of("%s cannot run here: %s", route->label, why);
        cp_make_native(comm, route, failed);
        free(failed);
    }
    free(why);
    free(reply.bytes);
}

void cp_make_requested(struct cp_comm *comm) {
    if (comm->setup == CP_REQUESTED) cp_set_up(comm);
    if (!comm->may_request) return;
    comm->may_request = false;
    __atomic_fetch_sub(&cp_n_requested, 1, __ATOMIC_RELAXED);
    cp_settle(comm);
    int64_t begin_ns = cp_now_ns();
    while (comm->requested != NULL) {
        struct cp_sharing *sharing = comm->requested;
        comm->requested = sharing->next;
        make(comm, sharing->route);
    }
    __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin_ns, __ATOMIC_RELAXED);
}
