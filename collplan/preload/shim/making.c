/* Makes plans together with all ranks of a communicator. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plans.h"

/* Pauses of ranks that wait for the plans of others. */
#define SHORTEST_PAUSE_NS 20000
#define LONGEST_PAUSE_NS 500000

/* Ranks sleep between tests, because the helper that still plans for others needs their cores. */
bool cp_all_well(MPI_Comm comm, bool is_well, int64_t same) {
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

int cp_allocate(int descriptor, int64_t n_bytes) {
    int error;
    do error = posix_fallocate(descriptor, 0, n_bytes);
    while (error == EINTR); /* a signal of the program */
    return error;
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
    int error = descriptor < 0 ? errno : cp_allocate(descriptor, n_bytes);
    if (error == 0 && pwrite(descriptor, &offer.nonce, 8, plan->head.shared_bytes) != 8)
        error = errno;
    if (error == 0) offer.descriptor = descriptor;
    else {
        *why = cp_text_of("%" PRId64 " bytes of memory for the ranks of a node cannot be had (%s)",
                       n_bytes, strerror(error));
        if (descriptor >= 0) close(descriptor);
    }
    return offer;
}

static char *map_memory(struct cp_plan *plan, const struct offer *offer) {
    char path[64];
    int64_t nonce = 0, n_bytes = plan->head.shared_bytes + PAGE_BYTES;
    if (offer->descriptor < 0) return cp_text_of("a rank of the node has no memory to share");
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, offer->pid, offer->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return cp_text_of("%s: %s", path, strerror(errno));
    void *mapped = MAP_FAILED;
    if (pread(descriptor, &nonce, 8, plan->head.shared_bytes) == 8 && nonce == offer->nonce)
        mapped = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) return cp_text_of("ranks of a node share no memory");
    plan->shared = mapped;
    return NULL;
}

/* Share memory with the ranks of this node; collective. The memory has no name in any folder. A rank
 * that is alone on its node only takes part in the meetings. */
static char *share(struct cp_plan *plan, struct cp_comm *comm,
                   const int64_t (*relocations)[2]) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    struct offer own = {0, -1, 0};
    struct offer *offers = malloc((size_t)comm->size * sizeof *offers);
    char *why = NULL;
    int first = 0;
    bool shares = plan->head.shares;
    if (offers == NULL) abort();
    while (comm->facts[first].words[0] != comm->family->facts.words[0]) first++;
    if (shares && first == comm->rank) own = make_memory(plan, &why);
    int code = cp_real.Allgather(&own, sizeof own, byte, offers, sizeof own, byte,
                                 comm->private_comm);
    if (code != MPI_SUCCESS) why = cp_text_of("ranks cannot tell each other of their memory");
    else if (shares && why == NULL) why = map_memory(plan, &offers[first]);
    /* The first rank keeps its descriptor until all ranks have mapped the memory. */
    bool is_well = cp_all_well(comm->private_comm, why == NULL, 0);
    if (own.descriptor >= 0) close((int)own.descriptor);
    free(offers);
    if (!is_well) return why != NULL ? why : cp_text_of("another rank cannot share memory");
    if (!shares) return NULL;
    struct cp_state *state = state_of(plan);
    state->counters = (int64_t)(intptr_t)plan->shared;
    state->own_counter = state->counters + plan->head.own_counter;
    state->own_flags = state->counters + plan->head.own_flags;
    bases_of(plan)[SHARED_BASE] = state->counters + plan->head.buffer_at;
    cp_relocate(plan, relocations, true);
    return NULL;
}

/* Request a plan; if counts differ per rank, ranks exchange them before. Collective. */
static struct cp_reply ask_for_plan(struct cp_comm *comm, struct cp_route *route,
                                    const int64_t *counts) {
    char text[256];
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    int n = cp_write_question(comm, &route->signature, text, sizeof text) + 1;
    if (route->choice != NULL) {
        char *question = cp_text_of("%s %s", text, route->choice);
        struct cp_reply reply = cp_ask(comm->family, CP_PLAN, question, (int64_t)strlen(question) + 1);
        free(question);
        return reply;
    }
    if (counts == NULL) return cp_ask(comm->family, CP_PLAN, text, n);
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
        reply = cp_ask(comm->family, CP_PLAN, message, n + (int64_t)n_bytes);
    }
    free(message);
    free(all);
    return reply;
}

struct cp_plan *cp_bind_plan(struct cp_comm *comm, const char *bytes, int64_t n_bytes, char **why) {
    int64_t (*relocations)[2] = NULL;
    struct cp_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) abort();
    if (bytes != NULL) *why = cp_load_plan(plan, bytes, n_bytes, comm->private_comm, &relocations);
    else if (*why == NULL) *why = cp_text_of("the helper process cannot be asked");
    bool is_well = cp_all_well(comm->private_comm, *why == NULL, comm->n_calls);
    int64_t sharing = plan->head.shares ? -1 : 0, all = 0; /* -1 if any rank shares memory */
    is_well = is_well && cp_least(comm, &sharing, &all, 1);
    if (is_well && all != 0) {
        *why = share(plan, comm, relocations);
        is_well = *why == NULL;
    }
    /* Datatypes may depend on the address of shared memory. */
    if (is_well && !cp_make_types(plan, false)) *why = cp_text_of("MPI cannot make its datatypes");
    is_well = is_well && cp_all_well(comm->private_comm, *why == NULL, 0);
    if (is_well) *why = cp_make_native_calls(plan, comm->private_comm);
    is_well = is_well && cp_all_well(comm->private_comm, *why == NULL, 0);
    free(relocations);
    if (is_well) return plan;
    if (*why == NULL) *why = cp_text_of("another rank cannot make it");
    cp_free_plan(plan);
    return NULL;
}

struct cp_plan *cp_make_plan(struct cp_comm *comm, struct cp_route *route, const int64_t *counts,
                             char **why) {
    struct cp_reply reply = ask_for_plan(comm, route, counts);
    bool is_well = reply.status == 0;
    if (!is_well && reply.bytes != NULL) *why = strdup(reply.bytes);
    struct cp_plan *plan = cp_bind_plan(comm, is_well ? reply.bytes : NULL, reply.n_bytes, why);
    free(reply.bytes);
    return plan;
}
