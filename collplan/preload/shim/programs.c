/* Plans of this rank for calls that do not block, any number of copies of which may be in flight, and
 * datatypes of these calls. */
#include <stdlib.h>
#include <string.h>

#include "flights.h"

#define MOST_IDLE 4 /* number of idle copies of a plan that are kept for later calls */

struct cp_plan *cp_copy_plan(const struct cp_program *program, MPI_Comm comm, char **why) {
    int64_t (*relocations)[2] = NULL;
    struct cp_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    *why = cp_load_plan(plan, program->plan, program->n_bytes, comm, &relocations);
    free(relocations);
    if (*why == NULL && plan->head.shares) *why = cp_text_of("ranks would have to share memory");
    if (*why == NULL && plan->head.n_calls > 0)
        *why = cp_text_of("ranks would have to make communicators together");
    if (*why == NULL && !cp_make_types(plan, false)) *why = cp_text_of("MPI cannot make datatypes");
    if (*why != NULL) {
        cp_free_plan(plan);
        return NULL;
    }
    state_of(plan)->turn_ns = CP_TURN_NS;
    return plan;
}

/* Ask the helper for a plan; `more` is the end of the question. */
static struct cp_reply ask(struct cp_comm *comm, const struct cp_route *route, const void *more,
                           size_t n_more) {
    char *text = malloc(256 + n_more);
    if (text == NULL) return (struct cp_reply){-1, 0, NULL};
    int n = cp_write_question(comm, &route->signature, text, 256) + 1;
    if (n_more > 0) memcpy(text + n, more, n_more);
    struct cp_reply reply = cp_ask(comm->family, CP_PLAN, text, n + (int64_t)n_more);
    free(text);
    return reply;
}

/* Read the answer of the helper, which the program owns. */
static bool read_head(struct cp_program *program, const struct cp_reply *reply) {
    int64_t n_head = (int64_t)sizeof program->head;
    program->bytes = reply->bytes;
    if (reply->status != 0 || reply->n_bytes < n_head) return false;
    memcpy(&program->head, reply->bytes, sizeof program->head);
    program->why = reply->bytes + n_head;
    const char *end = memchr(program->why, '\0', (size_t)(reply->n_bytes - n_head));
    if (end == NULL) return false;
    program->plan = end + 1;
    program->n_bytes = reply->n_bytes - (program->plan - reply->bytes);
    return true;
}

struct cp_program *cp_load_program(struct cp_comm *comm, struct cp_route *route,
                                   const void *more, size_t n_more, char **why) {
    struct cp_program *program = calloc(1, sizeof *program);
    if (program == NULL) return NULL;
    struct cp_reply reply = ask(comm, route, more, n_more);
    if (read_head(program, &reply)) {
        program->idle = cp_copy_plan(program, comm->private_comm, why);
        program->n_idle = program->idle != NULL;
    } else if (reply.status != 0 && reply.bytes != NULL) {
        *why = strdup(reply.bytes);
    }
    if (program->idle != NULL) return program;
    cp_free_program(program);
    return NULL;
}

void cp_free_program(struct cp_program *program) {
    while (program->idle != NULL) {
        struct cp_plan *plan = program->idle;
        program->idle = plan->next;
        cp_free_plan(plan);
    }
    program->n_idle = 0;
    program->is_retired = true;
    if (program->n_flying > 0) return; /* its last copy frees it */
    free(program->bytes);
    free(program);
}

struct cp_plan *cp_take_plan(struct cp_program *program, MPI_Comm comm) {
    char *why = NULL;
    struct cp_plan *plan = program->idle;
    if (plan != NULL) {
        program->idle = plan->next;
        program->n_idle--;
    } else if ((plan = cp_copy_plan(program, comm, &why)) == NULL) {
        cp_say("error: a plan cannot be started again: %s", why != NULL ? why : "no memory");
        abort(); /* other ranks would wait for this one */
    }
    program->n_flying++;
    return plan;
}

void cp_give_plan_back(struct cp_program *program, struct cp_plan *plan) {
    program->n_flying--;
    if (program->is_retired || program->n_idle >= MOST_IDLE) {
        cp_free_plan(plan);
        if (program->is_retired) cp_free_program(program);
        return;
    }
    plan->next = program->idle;
    program->idle = plan;
    program->n_idle++;
}

/* Use a copy of a datatype of the program in two places, if it is not predefined. */
static void keep_type(struct cp_flight *flight, const struct cp_element *element,
                      MPI_Datatype *one, MPI_Datatype *other) {
    if (element->is_predefined) return;
    MPI_Datatype *own = &flight->types[flight->n_types];
    if (cp_real.Type_contiguous(1, *one, own) != MPI_SUCCESS ||
        cp_real.Type_commit(own) != MPI_SUCCESS) {
        cp_say("error: MPI cannot copy a datatype");
        abort(); /* other ranks would wait for this one */
    }
    flight->n_types++;
    *one = *other = *own;
}

void cp_keep_types(struct cp_flight *flight) {
    struct cp_use *use = &flight->use;
    struct cp_call *call = &flight->call;
    struct cp_vector *vector = flight->vector;
    if (use->has_sent)
        keep_type(flight, &use->sent.element, &use->sent.type, &call->sent_type);
    if (use->has_received)
        keep_type(flight, &use->received.element, &use->received.type, &call->received_type);
    if (vector == NULL) return;
    struct cp_blocks *sent = &vector->use.sent, *received = &vector->use.received;
    if (vector->use.has_sent)
        keep_type(flight, &sent->element, &sent->type, &vector->call.sent_type);
    /* Reductions have one datatype. */
    bool reduces = vector->call.kind == CP_REDUCE_SCATTER;
    if (vector->use.has_received)
        keep_type(flight, &received->element, &received->type,
                  reduces ? &vector->call.sent_type : &vector->call.received_type);
}
