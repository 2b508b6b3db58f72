/* Plans of this rank: the memory of the loop, completed with the addresses and handles of this
 * process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define LINE_BYTES 64
#define PAGE_BYTES 4096
/* Pauses of ranks that wait for the plans of others. */
#define SHORTEST_PAUSE_NS 20000
#define LONGEST_PAUSE_NS 500000
/* Codes of collplan.executors.mpi.loop.codes. */
enum { DO_WAIT = 3, DO_RUN = 4 };
enum { DONE = 0, PENDING = 1, FAILED = 3 };
enum { SEND_BASE, RECV_BASE, SCRATCH_BASE, SHARED_BASE };
enum { ABSOLUTE = 4 };
enum { KIND_SEND = 0, KIND_RECV = 1 };

int64_t collplan_linked_run_loop(int64_t state, int64_t what);

struct cp_plan {
    struct cp_head head;
    char *image; /* begins with the state of the loop */
    struct cp_message *messages;
    struct cp_part *parts;
    MPI_Datatype element, *types; /* datatypes of an element and of non-contiguous messages */
    bool owns_element, any_spans;
    bool *has_type;
    char *scratch, *shared, *sent_stage, *received_stage;
    void *library;
    const char *sent_at, *received_at;
};

static struct cp_state *state_of(const struct cp_plan *plan) {
    return (struct cp_state *)plan->image;
}

static int64_t *bases_of(const struct cp_plan *plan) {
    return (int64_t *)state_of(plan)->bases;
}

static int64_t handle_word(MPI_Datatype type) { return (int64_t)(intptr_t)type; }

void cp_free_plan(struct cp_plan *plan) {
    for (int64_t i = 0; plan->types != NULL && i < plan->head.n_messages; i++)
        if (plan->has_type[i]) cp_real.Type_free(&plan->types[i]);
    if (plan->owns_element) cp_real.Type_free(&plan->element);
    if (plan->shared != NULL) munmap(plan->shared, (size_t)plan->head.shared_bytes + PAGE_BYTES);
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

static char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return strdup(text);
}

static void *aligned_memory(int64_t n_bytes) {
    size_t rounded = ((size_t)n_bytes + LINE_BYTES) / LINE_BYTES * LINE_BYTES;
    return aligned_alloc(LINE_BYTES, rounded);
}

/* Take the next n_bytes bytes of the helper's answer. */
static bool take(const char **at, const char *end, void *into, int64_t n_bytes) {
    if (n_bytes < 0 || end - *at < n_bytes || (into == NULL && n_bytes > 0)) return false;
    if (n_bytes > 0) memcpy(into, *at, (size_t)n_bytes);
    *at += n_bytes;
    return true;
}

static void *take_new(const char **at, const char *end, int64_t n, size_t size) {
    void *found = malloc((size_t)n * size + 1);
    if (found != NULL && take(at, end, found, n * (int64_t)size)) return found;
    free(found);
    return NULL;
}

/* Load the reduction from a library by its path and name; both are empty if there is none. */
static char *load_reduction(struct cp_plan *plan, const char *path, const char *name,
                            int64_t *address) {
    *address = 0;
    if (path[0] == '\0') return NULL;
    plan->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plan->library == NULL) return text_of("%s", dlerror());
    *address = (int64_t)(intptr_t)dlsym(plan->library, name);
    return *address != 0 ? NULL : text_of("%s has no %s", path, name);
}

static void fill_functions(struct cp_state *state, MPI_Comm comm) {
    state->comm = (int64_t)(intptr_t)comm;
    state->any_source = MPI_ANY_SOURCE;
    state->any_tag = MPI_ANY_TAG;
    state->MPI_Isend = (int64_t)(intptr_t)cp_real.Isend;
    state->MPI_Irecv = (int64_t)(intptr_t)cp_real.Irecv;
    state->MPI_Testsome = (int64_t)(intptr_t)cp_real.Testsome;
    state->MPI_Iprobe = (int64_t)(intptr_t)cp_real.Iprobe;
    state->clock_gettime = (int64_t)(intptr_t)clock_gettime;
    state->nanosleep = (int64_t)(intptr_t)nanosleep;
    state->sched_yield = (int64_t)(intptr_t)sched_yield;
    state->sem_timedwait = (int64_t)(intptr_t)sem_timedwait;
}

/* Apply the relocations into the image or, if `is_shared`, those into shared memory. */
static bool relocate(struct cp_plan *plan, const int64_t (*relocations)[2], bool is_shared) {
    char *base = is_shared ? plan->shared : plan->image;
    for (int64_t i = 0; i < plan->head.n_relocations; i++) {
        int64_t place = relocations[i][0], target = relocations[i][1];
        if ((target < 0) != is_shared) continue;
        if (is_shared) target = -1 - target;
        if (place < 0 || place > plan->head.image_bytes - 8) return false;
        *(int64_t *)(plan->image + place) = (int64_t)(intptr_t)(base + target);
    }
    return true;
}

static bool make_element(struct cp_plan *plan) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    switch (plan->head.item_bytes) {
    case 1: plan->element = byte; return true;
    case 2: plan->element = CP_HANDLE(MPI_Datatype, 0x4c000238, ompi_mpi_int16_t); return true;
    case 4: plan->element = CP_HANDLE(MPI_Datatype, 0x4c000439, ompi_mpi_int32_t); return true;
    case 8: plan->element = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t); return true;
    default: break;
    }
    if (cp_real.Type_contiguous((int)plan->head.item_bytes, byte, &plan->element) != MPI_SUCCESS)
        return false;
    plan->owns_element = true;
    return cp_real.Type_commit(&plan->element) == MPI_SUCCESS;
}

/* Make the datatype of one extent, with two levels of repeats. */
static bool make_part(const struct cp_plan *plan, const struct cp_part *part, MPI_Datatype *made) {
    MPI_Datatype inner;
    if (cp_real.Type_create_hvector((int)part->inner_repeat, (int)part->count, part->inner_stride,
                                    plan->element, &inner) != MPI_SUCCESS)
        return false;
    int code = cp_real.Type_create_hvector((int)part->outer_repeat, 1, part->outer_stride, inner,
                                           made);
    cp_real.Type_free(&inner);
    return code == MPI_SUCCESS;
}

/* Make the datatype of a message; its displacements are relative to the first extent. */
static bool make_type(struct cp_plan *plan, int64_t number) {
    const struct cp_message *message = &plan->messages[number];
    const struct cp_part *parts = plan->parts + message->first_extent;
    int64_t *bases = bases_of(plan), n = message->n_extents, first = 0;
    struct cp_task *task = (struct cp_task *)state_of(plan)->tasks + message->task;
    int *ones = malloc((size_t)n * sizeof *ones);
    MPI_Aint *places = malloc((size_t)n * sizeof *places);
    MPI_Datatype *types = malloc((size_t)n * sizeof *types);
    bool is_well = ones != NULL && places != NULL && types != NULL;
    int64_t made = 0;
    for (; is_well && made < n; made++) {
        int64_t place = parts[made].offset + (message->spans ? bases[parts[made].buffer] : 0);
        if (made == 0) first = place;
        ones[made] = 1;
        places[made] = place - first;
        is_well = make_part(plan, &parts[made], &types[made]);
        if (!is_well) break;
    }
    is_well = is_well &&
              cp_real.Type_create_struct((int)n, ones, places, types, &plan->types[number]) == 0;
    if (is_well) {
        plan->has_type[number] = true;
        is_well = cp_real.Type_commit(&plan->types[number]) == MPI_SUCCESS;
        task->datatype = handle_word(plan->types[number]);
    }
    if (is_well && message->spans) {
        task->buffer = ABSOLUTE;
        task->offset = first;
    }
    while (made-- > 0) cp_real.Type_free(&types[made]);
    free(ones);
    free(places);
    free(types);
    return is_well;
}

/* Make the datatypes of all messages, or only of those that span buffers, if buffers have moved. */
static bool make_types(struct cp_plan *plan, bool only_spanning) {
    for (int64_t i = 0; i < plan->head.n_messages; i++) {
        if (only_spanning && !plan->messages[i].spans) continue;
        if (plan->has_type[i]) cp_real.Type_free(&plan->types[i]);
        plan->has_type[i] = false;
        if (!make_type(plan, i)) return false;
    }
    return true;
}

static bool fill_messages(struct cp_plan *plan) {
    struct cp_state *state = state_of(plan);
    struct cp_task *tasks = (struct cp_task *)state->tasks;
    if (!make_element(plan)) return false;
    for (int64_t i = 0; i < state->n_tasks; i++)
        if (tasks[i].kind == KIND_SEND || tasks[i].kind == KIND_RECV)
            tasks[i].datatype = handle_word(plan->element);
    plan->types = calloc((size_t)plan->head.n_messages + 1, sizeof *plan->types);
    plan->has_type = calloc((size_t)plan->head.n_messages + 1, sizeof *plan->has_type);
    if (plan->types == NULL || plan->has_type == NULL) return false;
    for (int64_t i = 0; i < plan->head.n_messages; i++)
        plan->any_spans |= plan->messages[i].spans != 0;
    return true;
}

/* Unpack the helper's answer; return an error message, or NULL. */
static char *unpack(struct cp_plan *plan, const char *at, int64_t n_bytes, MPI_Comm comm,
                    int64_t (**relocations)[2]) {
    const char *end = at + n_bytes, *path = at;
    if (memchr(path, '\0', (size_t)n_bytes) == NULL) return text_of("the helper's answer is cut");
    const char *name = path + strlen(path) + 1;
    if (memchr(name, '\0', (size_t)(end - name)) == NULL)
        return text_of("the helper's answer is cut");
    at = name + strlen(name) + 1;
    struct cp_head *head = &plan->head;
    bool is_well = take(&at, end, head, sizeof *head);
    if (is_well) {
        *relocations = take_new(&at, end, head->n_relocations, sizeof **relocations);
        plan->messages = take_new(&at, end, head->n_messages, sizeof *plan->messages);
        plan->parts = take_new(&at, end, head->n_parts, sizeof *plan->parts);
        plan->image = aligned_memory(head->image_bytes);
        plan->scratch = aligned_memory(head->scratch_bytes);
        is_well = *relocations != NULL && plan->messages != NULL && plan->parts != NULL &&
                  plan->image != NULL && plan->scratch != NULL &&
                  take(&at, end, plan->image, head->image_bytes) && at == end &&
                  relocate(plan, *relocations, false);
    }
    if (!is_well) return text_of("there is no memory for the plan, or the answer is cut");
    fill_functions(state_of(plan), comm);
    bases_of(plan)[SCRATCH_BASE] = (int64_t)(intptr_t)plan->scratch;
    if (head->largest_tag > cp_settings.tag_ub)
        return text_of("the plan uses tag %" PRId64 ", this MPI allows it up to %d",
                       head->largest_tag, cp_settings.tag_ub);
    if (!fill_messages(plan)) return text_of("MPI cannot make its datatypes");
    return load_reduction(plan, path, name, &state_of(plan)->reduce);
}

/* Return whether all ranks have succeeded and have equal values of `same`; collective.
 * Ranks sleep between tests, because the helper that still plans for others needs their cores. */
static bool all_well(MPI_Comm comm, bool is_well, int64_t same) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    int64_t mine[3] = {is_well, same, -same}, found[3] = {0, 0, 0};
    int64_t status[(CP_STATUS_BYTES + 7) / 8];
    struct timespec pause = {0, SHORTEST_PAUSE_NS};
    MPI_Request request;
    int n_done = 0, place = 0;
    int code = cp_real.Iallreduce(mine, found, 3, type, least, comm, &request);
    while (code == MPI_SUCCESS && n_done == 0) {
        code = cp_real.Testsome(1, &request, &n_done, &place, (MPI_Status *)status);
        if (n_done != 0) break;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_PAUSE_NS) pause.tv_nsec *= 2;
    }
    return code == MPI_SUCCESS && found[0] && found[1] == -found[2];
}

/* Shared memory of a node: process, file descriptor, and a number stored in the file. */
struct offer {
    int64_t pid, descriptor, nonce;
};

static struct offer make_memory(struct cp_plan *plan, char **why) {
    struct offer offer = {getpid(), -1, cp_now_ns() ^ (int64_t)(intptr_t)plan};
    int64_t n_bytes = plan->head.shared_bytes + PAGE_BYTES;
    int descriptor = memfd_create("collplan", MFD_CLOEXEC);
    /* Allocate all memory now, so that a lack of memory is detected here and not at its use. */
    int error = descriptor < 0 ? errno : posix_fallocate(descriptor, 0, n_bytes);
    if (error == 0 && pwrite(descriptor, &offer.nonce, 8, plan->head.shared_bytes) != 8)
        error = errno;
    if (error == 0) offer.descriptor = descriptor;
    else {
        *why = text_of("%" PRId64 " bytes of memory for the ranks of a node cannot be had (%s)",
                       n_bytes, strerror(error));
        if (descriptor >= 0) close(descriptor);
    }
    return offer;
}

static char *map_memory(struct cp_plan *plan, const struct offer *offer) {
    char path[64];
    int64_t nonce = 0, n_bytes = plan->head.shared_bytes + PAGE_BYTES;
    if (offer->descriptor < 0) return text_of("a rank of the node has no memory to share");
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, offer->pid, offer->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return text_of("%s: %s", path, strerror(errno));
    void *mapped = MAP_FAILED;
    if (pread(descriptor, &nonce, 8, plan->head.shared_bytes) == 8 && nonce == offer->nonce)
        mapped = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) return text_of("ranks of a node share no memory");
    plan->shared = mapped;
    return NULL;
}

/* Share memory with the ranks of this node; collective. The memory has no name in any folder. */
static char *share(struct cp_plan *plan, struct cp_comm *comm,
                   const int64_t (*relocations)[2]) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    struct offer own = {0, -1, 0};
    struct offer *offers = malloc((size_t)comm->size * sizeof *offers);
    char *why = NULL;
    int first = 0;
    if (offers == NULL) abort();
    while (comm->facts[first].words[0] != cp_settings.facts.words[0]) first++;
    if (first == comm->rank) own = make_memory(plan, &why);
    int code = cp_real.Allgather(&own, sizeof own, byte, offers, sizeof own, byte,
                                 comm->private_comm);
    if (code != MPI_SUCCESS) why = text_of("ranks cannot tell each other of their memory");
    else if (why == NULL) why = map_memory(plan, &offers[first]);
    /* The first rank keeps its descriptor until all ranks have mapped the memory. */
    bool is_well = all_well(comm->private_comm, why == NULL, 0);
    if (own.descriptor >= 0) close((int)own.descriptor);
    free(offers);
    if (!is_well) return why != NULL ? why : text_of("another rank cannot share memory");
    struct cp_state *state = state_of(plan);
    state->counters = (int64_t)(intptr_t)plan->shared;
    state->own_counter = state->counters + plan->head.own_counter;
    state->own_flags = state->counters + plan->head.own_flags;
    bases_of(plan)[SHARED_BASE] = state->counters + plan->head.buffer_at;
    relocate(plan, relocations, true);
    return NULL;
}

/* Request a plan; if counts differ per rank, ranks exchange them before. Collective. */
static struct cp_reply ask_for_plan(struct cp_comm *comm, struct cp_route *route,
                                    const int64_t *counts) {
    char text[256];
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    int n = cp_write_question(comm, &route->signature, text, sizeof text) + 1;
    if (counts == NULL) return cp_ask(CP_PLAN, text, n);
    int n_words = (int)CP_COUNT_WORDS(comm->size);
    size_t n_bytes = sizeof(int64_t) * (size_t)n_words * (size_t)comm->size;
    char *message = malloc((size_t)n + n_bytes);
    int64_t *all = malloc(n_bytes);
    if (message == NULL || all == NULL) abort(); /* as other ranks would wait for this one */
    struct cp_reply reply = {-1, 0, NULL};
    if (cp_real.Allgather(counts, n_words, type, all, n_words, type, comm->private_comm) ==
        MPI_SUCCESS) {
        memcpy(message, text, (size_t)n);
        memcpy(message + n, all, n_bytes);
        reply = cp_ask(CP_PLAN, message, n + (int64_t)n_bytes);
    }
    free(message);
    free(all);
    return reply;
}

struct cp_plan *cp_make_plan(struct cp_comm *comm, struct cp_route *route, const int64_t *counts,
                             char **why) {
    int64_t (*relocations)[2] = NULL;
    struct cp_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) abort();
    struct cp_reply reply = ask_for_plan(comm, route, counts);
    if (reply.status == 0)
        *why = unpack(plan, reply.bytes, reply.n_bytes, comm->private_comm, &relocations);
    else *why = strdup(reply.bytes != NULL ? reply.bytes : "the helper process cannot be asked");
    free(reply.bytes);
    bool is_well = all_well(comm->private_comm, *why == NULL, plan->head.shares + 2 * comm->n_calls);
    if (is_well && plan->head.shares) {
        *why = share(plan, comm, relocations);
        is_well = *why == NULL;
    }
    /* Datatypes may depend on the address of shared memory. */
    if (is_well && !make_types(plan, false)) *why = text_of("MPI cannot make its datatypes");
    is_well = is_well && all_well(comm->private_comm, *why == NULL, 0);
    free(relocations);
    if (is_well) return plan;
    if (*why == NULL) *why = text_of("another rank cannot make it");
    cp_free_plan(plan);
    return NULL;
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
    if (*kept == NULL) *kept = aligned_memory(n_bytes);
    if (*kept == NULL) {
        cp_say("error: there is no memory for %" PRId64 " bytes of a collective", n_bytes);
        abort(); /* other ranks would wait for this one */
    }
    return *kept;
}

/* Copy results to the receive buffer; return MPI_ERR_TRUNCATE if it is too small. */
static int give_back(struct cp_plan *plan, const struct cp_use *use, const struct cp_call *call) {
    const struct cp_side *side = &use->received;
    int64_t size = side->element.is_plain ? side->element.extent : side->element.size;
    int64_t block = plan->head.received_bytes / (side->blocks > 0 ? side->blocks : 1);
    int64_t there = size > 0 ? block / size : 0;
    int64_t n = side->count < there ? side->count : there;
    int code = MPI_SUCCESS;
    for (int64_t i = 0; i < side->blocks && code == MPI_SUCCESS; i++)
        code = cp_move_side(side, i * side->count, n, plan->received_stage + i * block, true,
                         call->comm);
    if (code == MPI_SUCCESS && side->count < there) {
        code = MPI_ERR_TRUNCATE;
        cp_real.Comm_call_errhandler(call->comm, code);
    }
    return code;
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

int cp_start_plan(struct cp_plan *plan, const char *sent_at, const char *received_at,
                  MPI_Comm comm) {
    if (sent_at != plan->sent_at || received_at != plan->received_at) {
        bases_of(plan)[SEND_BASE] = (int64_t)(intptr_t)sent_at;
        bases_of(plan)[RECV_BASE] = (int64_t)(intptr_t)received_at;
        plan->sent_at = plan->received_at = NULL;
        if (plan->any_spans && !make_types(plan, true)) {
            cp_say("error: MPI cannot make the datatypes of a plan");
            abort(); /* other ranks would wait for this one */
        }
        plan->sent_at = sent_at;
        plan->received_at = received_at;
    }
    return run_loop(plan, comm);
}

int cp_run_plan(struct cp_plan *plan, const struct cp_call *call, const struct cp_use *use) {
    const struct cp_head *head = &plan->head;
    char *sent_at = use->sent.at, *received_at = use->received.at;
    bool gives_back = false;
    int64_t block = use->received.count * use->received.element.size;
    bool is_short = use->has_sent && use->has_received &&
                    block != use->sent.count * use->sent.element.size;
    if (use->gives_in_place) {
        /* The input is in the receive buffer, after the blocks of lower ranks. */
        sent_at = cp_stage(plan, false);
        int64_t size = use->received.element.is_plain ? use->received.element.extent
                                                      : use->received.element.size;
        cp_move_side(&use->received, size > 0 ? head->skip_bytes / size : 0,
                  size > 0 ? head->sent_bytes / size : 0, sent_at, false, call->comm);
    } else if (use->has_sent && !is_usable(plan, &use->sent, head->sent_bytes)) {
        sent_at = cp_stage(plan, false);
        cp_move_side(&use->sent, 0, use->sent.count * use->sent.blocks, sent_at, false, call->comm);
    }
    bool overlaps = use->has_sent && cp_plan_overlaps(plan, sent_at, received_at);
    if (use->takes_in_place) {
        received_at = cp_stage(plan, true);
    } else if (use->has_received && (is_short || overlaps ||
               !is_usable(plan, &use->received, head->received_bytes))) {
        received_at = cp_stage(plan, true);
        gives_back = head->received_bytes > 0;
        if (call->kind == CP_BCAST) {
            gives_back = !use->is_root;
            cp_move_side(&use->received, 0, use->received.count, received_at, false, call->comm);
        }
    }
    int code = cp_start_plan(plan, sent_at, received_at, call->comm);
    if (code == MPI_SUCCESS && gives_back) code = give_back(plan, use, call);
    return code;
}
