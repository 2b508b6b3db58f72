/* Non-blocking collectives whose counts differ per rank, if each rank passes the counts of all ranks. */
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

/* Call the form with large counts, whose arrays MPI may read until the end of the call. */
static int start_wide(const intptr_t *a, enum cp_kind kind, MPI_Comm comm, MPI_Request *request) {
    typedef intptr_t word;
    static int (*gather)(word, word, word, word, word, word, word, MPI_Comm, MPI_Request *);
    static int (*scatter)(word, word, word, word, word, MPI_Comm, MPI_Request *);
    if (kind == CP_ALLGATHERV) {
        if (gather == NULL) *(void **)&gather = cp_needed("PMPI_Iallgatherv_c");
        return gather(a[0], a[1], a[2], a[3], a[4], a[5], a[6], comm, request);
    }
    if (scatter == NULL) *(void **)&scatter = cp_needed("PMPI_Ireduce_scatter_c");
    return scatter(a[0], a[1], a[2], a[3], a[4], comm, request);
}

int cp_native_start_vector(const struct cp_vector_call *c, MPI_Comm comm, MPI_Request *request) {
    if (c->wide != NULL) return start_wide(c->wide, c->kind, comm, request);
    if (c->kind == CP_ALLGATHERV)
        return cp_real.Iallgatherv(c->sent, *c->n_sent, c->sent_type, c->received, c->n_received,
                                   c->received_at, c->received_type, comm, request);
    return cp_real.Ireduce_scatter(c->sent, c->received, c->n_sent, c->sent_type, c->op, comm,
                                   request);
}

/* Copy a list to memory, and return the copy; the memory that follows is that of the next list. */
static const int *keep(int **memory, const int *list, size_t n) {
    int *kept = *memory;
    memcpy(kept, list, n * sizeof *list);
    *memory += n;
    return kept;
}

struct cp_vector *cp_keep_vector(const struct cp_vector_call *call, const struct cp_comm *comm) {
    size_t n = (size_t)comm->size, n_words = (size_t)CP_COUNT_WORDS(comm->size);
    bool gathers = call->kind == CP_ALLGATHERV;
    if (call->n_sent == NULL) return NULL;
    if (gathers && (call->n_received == NULL || call->received_at == NULL)) return NULL;
    struct cp_vector *vector =
        calloc(1, sizeof *vector + n_words * sizeof(int64_t) + (2 * n + 1) * sizeof(int));
    if (vector == NULL) abort(); /* as other ranks would wait for this one */
    vector->call = *call;
    vector->call.wide = NULL; /* the copies are of type int */
    vector->use.counts = (int64_t *)(vector + 1);
    vector->use.counts[2] = -1;
    int *memory = (int *)(vector->use.counts + n_words);
    vector->call.n_sent = keep(&memory, call->n_sent, gathers ? 1 : n);
    if (gathers) {
        vector->call.n_received = keep(&memory, call->n_received, n);
        vector->call.received_at = keep(&memory, call->received_at, n);
    }
    if (cp_read_vector(&vector->call, comm, &vector->use)) return vector;
    free(vector);
    return NULL;
}

const int64_t *cp_counts_of(const struct cp_vector *vector) { return vector->use.counts + 3; }

struct cp_signature cp_vector_signature(const struct cp_vector *vector, const struct cp_comm *comm) {
    struct cp_signature found = {.kind = vector->call.kind, .form = CP_STARTS};
    const int64_t *counts = cp_counts_of(vector);
    for (int i = 0; i < comm->size; i++) found.n_bytes += counts[i];
    found.n_bytes = (found.n_bytes + comm->size - 1) / comm->size;
    if (found.kind == CP_REDUCE_SCATTER) {
        found.op = cp_operation_name(vector->call.op);
        found.element = vector->use.received.element.name;
    }
    for (int half = 0; half < 2; half++) {
        uint64_t digest = cp_mix((uint64_t)half + 1, (uint64_t)found.kind);
        for (int i = 0; i < comm->size; i++) digest = cp_mix(digest, (uint64_t)counts[i]);
        found.digest[half] = digest;
    }
    return found;
}
