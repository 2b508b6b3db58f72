/* Buffers of collectives whose counts differ per rank. */
#ifndef COLLPLAN_VECTORS_H
#define COLLPLAN_VECTORS_H

#include "plans.h"

/* A buffer of one or more blocks. */
struct cp_blocks {
    char *at;
    int n;
    const int *counts, *places; /* in elements; blocks are contiguous if places is NULL */
    MPI_Datatype type;
    struct cp_element element;
};

/* Buffers that this rank uses in a call, and the counts that it knows, in bytes. */
struct cp_vector_use {
    struct cp_blocks sent, received;
    bool has_sent, has_received, is_in_place;
    int64_t n_bytes;
    int64_t *counts; /* flags and counts, as the helper reads them */
    const char *why; /* reason why the call is native, or NULL */
};

/* vectors.c */
/* Read the buffers of a call; return false if MPI must report an error. The counts of `use` are
 * memory of CP_COUNT_WORDS words, which are 0 except for the third, which is -1. */
bool cp_read_vector(const struct cp_vector_call *call, const struct cp_comm *comm,
                    struct cp_vector_use *use);
/* Choose the memory that a plan uses, as cp_places_of does; return a code of MPI. MPI packs on `by`. */
int cp_vector_places(struct cp_plan *plan, const struct cp_vector_call *call,
                     const struct cp_comm *comm, const struct cp_vector_use *use, MPI_Comm by,
                     struct cp_places *places);
int cp_vector_give_back(struct cp_plan *plan, const struct cp_vector_use *use, MPI_Comm by);
/* Return a digest of another one and a value. */
uint64_t cp_mix(uint64_t found, uint64_t value);

/* started_vectors.c: calls that do not block, in which each rank knows all counts. */
struct cp_vector {
    struct cp_vector_call call; /* with copies of its counts and displacements */
    struct cp_vector_use use;
};
/* Return a copy of a call, which the caller frees; NULL if MPI must report an error. */
struct cp_vector *cp_keep_vector(const struct cp_vector_call *call, const struct cp_comm *comm);
struct cp_signature cp_vector_signature(const struct cp_vector *vector, const struct cp_comm *comm);
int cp_native_start_vector(const struct cp_vector_call *call, MPI_Comm comm, MPI_Request *request);
/* Return the counts of all blocks in bytes. */
const int64_t *cp_counts_of(const struct cp_vector *vector);

#endif
