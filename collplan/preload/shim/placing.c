/* Processors of this rank and of the thread that advances its plans.
 *
 * The helper finds them by the same rules as the drop-in, given the facts of all ranks. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "plans.h"

#define MASK_AT 3 /* first word of the affinity mask in the facts of a rank */
#define N_WORDS (int64_t)(sizeof(struct cp_facts) / sizeof(uint64_t))
#define MOST_PROCESSORS 8192

struct places {
    int64_t own, thread_at[CP_N_POLICIES];
};
/* Set of processors, as large as the system may need. */
union set {
    cpu_set_t first;
    unsigned char bytes[MOST_PROCESSORS / 8];
};

bool cp_bind(pthread_t thread, int64_t processor) {
    union set set = {.bytes = {0}};
    if (processor < 0 || processor >= MOST_PROCESSORS) return false;
    CPU_SET_S((size_t)processor, sizeof set, &set.first);
    return pthread_setaffinity_np(thread, sizeof set, &set.first) == 0;
}

/* Bind this rank, or return the reason why it may not use its processors. */
static char *take(const struct places *places) {
    pthread_t self = pthread_self();
    for (int i = 0; i <= CP_N_POLICIES; i++) {
        int64_t processor = i < CP_N_POLICIES ? places->thread_at[i] : places->own;
        if (processor >= 0 && !cp_bind(self, processor))
            return cp_text_of("processor %" PRId64 ": rank %d cannot be kept there", processor,
                              cp_settings.world_rank);
    }
    return NULL;
}

/* Store that this rank only uses one processor. */
static void note_place(struct cp_family *family, int64_t processor) {
    uint64_t *words = family->facts.words;
    int64_t word = MASK_AT + processor / 64;
    if (word >= N_WORDS) return;
    memset(words + MASK_AT, 0, (size_t)(N_WORDS - MASK_AT) * sizeof *words);
    words[word] = (uint64_t)1 << processor % 64;
}

/* Ask the helper for the places of this rank; collective. */
static char *ask(struct cp_family *family, struct places *places) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    size_t n_bytes = sizeof(int64_t[2]) + sizeof(struct cp_facts) * (size_t)family->size;
    int64_t *message = malloc(n_bytes);
    char *why = NULL;
    if (message == NULL) abort(); /* as other ranks would wait for this one */
    message[0] = family->rank;
    message[1] = family->size;
    int code = cp_real.Allgather(&family->facts, sizeof(struct cp_facts), byte, message + 2,
                                 sizeof(struct cp_facts), byte, family->comm);
    struct cp_reply reply = {-1, 0, NULL};
    if (code == MPI_SUCCESS) reply = cp_ask(family, CP_PLACE, message, (int64_t)n_bytes);
    if (reply.status == 0 && reply.n_bytes == sizeof *places)
        memcpy(places, reply.bytes, sizeof *places);
    else
        why = reply.status > 0 && reply.bytes != NULL ? strdup(reply.bytes)
                                                      : cp_text_of("a node has no helper");
    free(reply.bytes);
    free(message);
    return why;
}

void cp_find_places(struct cp_family *family) {
    struct places places = {.own = -1, .thread_at = {-1, -1}};
    union set before;
    char text[512] = "nodes have different processors";
    bool is_bound = family == &cp_world && getenv("COLLPLAN_PRELOAD_CORES") != NULL;
    memcpy(cp_settings.thread_at, places.thread_at, sizeof places.thread_at);
    if (family->started_kinds == 0 && !is_bound) return;
    char *why = ask(family, &places);
    bool is_known = pthread_getaffinity_np(pthread_self(), sizeof before, &before.first) == 0;
    if (why == NULL && is_bound)
        why = is_known ? take(&places) : cp_text_of("the system does not name processors");
    bool are_well = cp_agree(family, why, is_bound, text, sizeof text);
    if (are_well) memcpy(cp_settings.thread_at, places.thread_at, sizeof places.thread_at);
    if (are_well && is_bound) note_place(family, places.own);
    if (!are_well && is_known) pthread_setaffinity_np(pthread_self(), sizeof before, &before.first);
    if (!are_well && is_bound && family->rank == 0)
        cp_say("%s; ranks are not bound to processors", text);
    free(why);
}
