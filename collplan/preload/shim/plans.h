/* Plans of this rank, as the files that make them and run them see them. */
#ifndef COLLPLAN_PLANS_H
#define COLLPLAN_PLANS_H

#include "shim.h"

#define PAGE_BYTES 4096
/* Codes of collplan.executors.mpi.loop.codes. */
enum { DO_START = 0, DO_TEST = 2, DO_WAIT = 3, DO_RUN = 4 };
enum { DONE = 0, PENDING = 1, FAILED = 3 };
enum { SEND_BASE, RECV_BASE, SCRATCH_BASE, SHARED_BASE };

int64_t collplan_linked_run_loop(int64_t state, int64_t what);

struct cp_plan {
    struct cp_plan *next; /* next plan of a list */
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
    int64_t tag_space; /* see cp_use_tags */
    /* Calls of MPI's own collectives: their groups, communicators and memory, and the names of the
     * operation and the elements that they combine, or empty texts. */
    struct cp_native_call *calls;
    int64_t *members;
    MPI_Comm *comms;
    void **kept;
    int64_t n_comms, n_kept;
    char combined_op[64], combined_element[32];
};

static inline struct cp_state *state_of(const struct cp_plan *plan) {
    return (struct cp_state *)plan->image;
}

static inline int64_t *bases_of(const struct cp_plan *plan) {
    return (int64_t *)state_of(plan)->bases;
}

/* loading.c: plans that the helper has written. */
/* Read a plan from the helper's answer into `plan`, which is empty; return an error message, or
 * NULL. The relocations are in memory that the caller frees. */
char *cp_load_plan(struct cp_plan *plan, const char *bytes, int64_t n_bytes, MPI_Comm comm,
                   int64_t (**relocations)[2]);
/* Apply the relocations into the plan's own or, if `is_shared`, into shared memory. */
bool cp_relocate(struct cp_plan *plan, const int64_t (*relocations)[2], bool is_shared);
/* Make the datatypes of all messages, or only of those that span buffers, if buffers have moved. */
bool cp_make_types(struct cp_plan *plan, bool only_spanning);
/* native_calls.c: make the communicators of a plan's calls of MPI's own collectives, and fill in their
 * arguments; collective. Return an error message, or NULL. */
char *cp_make_native_calls(struct cp_plan *plan, MPI_Comm all);
void cp_free_native_calls(struct cp_plan *plan);
void *cp_aligned_memory(int64_t n_bytes);
char *cp_text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* plans.c: parts of cp_run_plan, for plans that do not block. */
struct cp_places {
    char *sent_at, *received_at; /* the buffers of a call, or memory of the plan in place of them */
    bool gives_back;             /* whether the result must be copied to the receive buffer */
};
/* Choose the memory that a plan uses in a call, and copy the input if necessary. MPI packs and
 * unpacks on `comm`. */
struct cp_places cp_places_of(struct cp_plan *plan, enum cp_kind kind, const struct cp_use *use,
                              MPI_Comm comm);
/* Let a plan use memory at these addresses from its next start on. */
void cp_aim_plan(struct cp_plan *plan, const char *sent_at, const char *received_at);
/* Copy results to the receive buffer; return MPI_ERR_TRUNCATE if it is too small. */
int cp_give_back(struct cp_plan *plan, const struct cp_use *use, MPI_Comm comm);
/* Use other tags than plans in flight on the same communicator: those of a tag space. Space 0 is that
 * of blocking calls. */
void cp_use_tags(struct cp_plan *plan, int64_t space);

#endif
