/* Runs plans of this rank on the buffers of calls. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plans.h"

void cp_free_plan(struct cp_plan *plan) {
    for (int64_t i = 0; plan->types != NULL && i < plan->head.n_messages; i++)
        if (plan->has_type[i]) cp_real.Type_free(&plan->types[i]);
    if (plan->owns_element) cp_real.Type_free(&plan->element);
    if (plan->shared != NULL) munmap(plan->shared, (size_t)plan->head.shared_bytes + PAGE_BYTES);
    cp_free_native_calls(plan);
    free(plan->types);
    free(plan->has_type);
    free(plan->messages);
    free(plan->parts);
    free(plan->image);
    free(plan->scratch);
    free(plan->sent_stage);
    free(plan->received_stage);
    /* The library of the reduction stays loaded, as other plans may use it. */
    free(plan);
}

int cp_move_side(const struct cp_side *side, int64_t first, int64_t n, char *packed,
                 bool is_into_buffer, MPI_Comm comm) {
    const struct cp_element *element = &side->element;
    char *at = side->at + first * element->extent;
    if (element->is_plain) {
        if (n > 0) memcpy(is_into_buffer ? at : packed, is_into_buffer ? packed : at,
                          (size_t)(n * element->extent));
        return MPI_SUCCESS;
    }
    int64_t most = element->size > 0 ? INT_MAX / element->size : INT_MAX;
    int code = MPI_SUCCESS;
    while (n > 0 && code == MPI_SUCCESS) {
        int part = (int)(n < most ? n : most), n_bytes = (int)(part * element->size), place = 0;
        code = is_into_buffer
                   ? cp_real.Unpack(packed, n_bytes, &place, at, part, side->type, comm)
                   : cp_real.Pack(at, part, side->type, packed, n_bytes, &place, comm);
        at += part * element->extent;
        packed += n_bytes;
        n -= part;
    }
    return code;
}

char *cp_stage(struct cp_plan *plan, bool is_received) {
    char **kept = is_received ? &plan->received_stage : &plan->sent_stage;
    int64_t n_bytes = is_received ? plan->head.received_bytes : plan->head.sent_bytes;
    if (*kept == NULL) *kept = cp_aligned_memory(n_bytes);
    if (*kept == NULL) {
        cp_say("error: there is no memory for %" PRId64 " bytes of a collective", n_bytes);
        abort(); /* other ranks would wait for this one */
    }
    return *kept;
}

int cp_give_back(struct cp_plan *plan, const struct cp_use *use, MPI_Comm comm) {
    const struct cp_side *side = &use->received;
    int64_t size = side->element.is_plain ? side->element.extent : side->element.size;
    int64_t block = plan->head.received_bytes / (side->blocks > 0 ? side->blocks : 1);
    int64_t there = size > 0 ? block / size : 0;
    int64_t n = side->count < there ? side->count : there;
    int code = MPI_SUCCESS;
    for (int64_t i = 0; i < side->blocks && code == MPI_SUCCESS; i++)
        code = cp_move_side(side, i * side->count, n, plan->received_stage + i * block, true, comm);
    return code == MPI_SUCCESS && side->count < there ? MPI_ERR_TRUNCATE : code;
}

bool cp_plan_takes(const struct cp_plan *plan, const void *at) {
    return (intptr_t)at % plan->head.item_bytes == 0;
}

static bool is_usable(const struct cp_plan *plan, const struct cp_side *side, int64_t n_bytes) {
    return n_bytes == 0 || (side->element.is_plain && cp_plan_takes(plan, side->at));
}

bool cp_plan_overlaps(const struct cp_plan *plan, const char *sent_at, const char *received_at) {
    intptr_t between = (intptr_t)sent_at - (intptr_t)received_at;
    return -plan->head.sent_bytes < between && between < plan->head.received_bytes;
}

static int run_loop(struct cp_plan *plan, MPI_Comm comm) {
    struct cp_state *state = state_of(plan);
    int64_t at = (int64_t)(intptr_t)state;
    int64_t found = collplan_linked_run_loop(at, DO_RUN);
    while (found == PENDING) found = collplan_linked_run_loop(at, DO_WAIT);
    if (found == DONE) return MPI_SUCCESS;
    int code = found == FAILED ? (int)state->code : MPI_ERR_OTHER;
    cp_real.Comm_call_errhandler(comm, code);
    return code;
}

void cp_aim_plan(struct cp_plan *plan, const char *sent_at, const char *received_at) {
    if (sent_at == plan->sent_at && received_at == plan->received_at) return;
    bases_of(plan)[SEND_BASE] = (int64_t)(intptr_t)sent_at;
    bases_of(plan)[RECV_BASE] = (int64_t)(intptr_t)received_at;
    plan->sent_at = plan->received_at = NULL;
    if (plan->any_spans && !cp_make_types(plan, true)) {
        cp_say("error: MPI cannot make the datatypes of a plan");
        abort(); /* other ranks would wait for this one */
    }
    plan->sent_at = sent_at;
    plan->received_at = received_at;
}

int cp_start_plan(struct cp_plan *plan, const char *sent_at, const char *received_at,
                  MPI_Comm comm) {
    cp_aim_plan(plan, sent_at, received_at);
    return run_loop(plan, comm);
}

struct cp_places cp_places_of(struct cp_plan *plan, enum cp_kind kind, const struct cp_use *use,
                              MPI_Comm comm) {
    const struct cp_head *head = &plan->head;
    struct cp_places found = {use->sent.at, use->received.at, false};
    int64_t block = use->received.count * use->received.element.size;
    bool is_short = use->has_sent && use->has_received &&
                    block != use->sent.count * use->sent.element.size;
    if (use->gives_in_place) {
        /* The input is in the receive buffer, after the blocks of lower ranks. */
        found.sent_at = cp_stage(plan, false);
        int64_t size = use->received.element.is_plain ? use->received.element.extent
                                                      : use->received.element.size;
        cp_move_side(&use->received, size > 0 ? head->skip_bytes / size : 0,
                     size > 0 ? head->sent_bytes / size : 0, found.sent_at, false, comm);
    } else if (use->has_sent && !is_usable(plan, &use->sent, head->sent_bytes)) {
        found.sent_at = cp_stage(plan, false);
        cp_move_side(&use->sent, 0, use->sent.count * use->sent.blocks, found.sent_at, false, comm);
    }
    bool overlaps = use->has_sent && cp_plan_overlaps(plan, found.sent_at, found.received_at);
    if (use->takes_in_place) {
        found.received_at = cp_stage(plan, true);
    } else if (use->has_received && (is_short || overlaps ||
               !is_usable(plan, &use->received, head->received_bytes))) {
        found.received_at = cp_stage(plan, true);
        found.gives_back = head->received_bytes > 0;
        if (kind == CP_BCAST) {
            found.gives_back = !use->is_root;
            cp_move_side(&use->received, 0, use->received.count, found.received_at, false, comm);
        }
    }
    return found;
}

int cp_run_plan(struct cp_plan *plan, const struct cp_call *call, const struct cp_use *use) {
    struct cp_places places = cp_places_of(plan, call->kind, use, call->comm);
    int code = cp_start_plan(plan, places.sent_at, places.received_at, call->comm);
    if (code != MPI_SUCCESS || !places.gives_back) return code;
    code = cp_give_back(plan, use, call->comm);
    if (code == MPI_ERR_TRUNCATE) cp_real.Comm_call_errhandler(call->comm, code);
    return code;
}

void cp_use_tags(struct cp_plan *plan, int64_t space) {
    struct cp_state *state = state_of(plan);
    struct cp_task *tasks = (struct cp_task *)state->tasks;
    int32_t more = (int32_t)((space - plan->tag_space) * CP_MAX_TAGS);
    if (more == 0) return;
    for (int64_t i = 0; i < state->n_tasks; i++) tasks[i].tag += more;
    plan->tag_space = space;
}
