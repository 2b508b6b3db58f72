/* Properties of datatypes and operations that plans need. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define N_PLACES 512 /* size of the table of predefined datatypes; a power of two */
#define N_OPERATIONS 256

struct known {
    MPI_Datatype type;
    bool is_used;
    struct cp_element element;
};
static struct known known[N_PLACES];
static struct {
    MPI_Op op;
    const char *name;
} operations[N_OPERATIONS];
static int n_operations, n_predefined;
/* Names of registered operations, which signatures refer to. */
static const char *registered[N_OPERATIONS];
static int n_registered;

static const char *const names[][2] = {
    {"i1", "int8"},    {"i2", "int16"},    {"i4", "int32"},     {"i8", "int64"},
    {"u1", "uint8"},   {"u2", "uint16"},   {"u4", "uint32"},    {"u8", "uint64"},
    {"f2", "float16"}, {"f4", "float32"},  {"f8", "float64"},   {"c8", "complex64"},
    {"b1", "bool"},    {"c16", "complex128"},
};

static const char *name_of(char kind, int size) {
    char text[16];
    snprintf(text, sizeof text, "%c%d", kind, size);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i][0]) == 0) return names[i][1];
    return NULL;
}

static const char *pair_name(const char *name) {
    if (strcmp(name, "FLOAT_INT") == 0) return "float_int";
    if (strcmp(name, "DOUBLE_INT") == 0) return "double_int";
    if (strcmp(name, "LONG_INT") == 0) return "long_int";
    if (strcmp(name, "SHORT_INT") == 0) return "short_int";
    return "int_int";
}

static unsigned place_of(MPI_Datatype type) {
    uint64_t word = (uint64_t)(uintptr_t)type;
    return (unsigned)((word * 0x9e3779b97f4a7c15u) >> 55) % N_PLACES;
}

static void know(MPI_Datatype type, const char *name, char kind) {
    int size;
    MPI_Aint lower, extent;
#ifdef COLLPLAN_OPENMPI
    if (type == NULL) return; /* this library does not have the datatype */
#endif
    if (cp_real.Type_size(type, &size) != MPI_SUCCESS || size <= 0) return;
    if (cp_real.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) return;
    unsigned place = place_of(type);
    while (known[place].is_used) {
        if (known[place].type == type) return;
        place = (place + 1) % N_PLACES;
    }
    struct cp_element element = {.size = size, .extent = extent, .is_plain = size == extent,
                                 .is_pair = kind == 'p', .is_committed = true,
                                 .is_predefined = true, .end = extent};
    if (kind == 'p') element.name = pair_name(name);
    else if (kind != '-' && element.is_plain) element.name = name_of(kind, size);
    known[place] = (struct known){type, true, element};
}

void cp_know_elements(void) {
#define X(name, kind, number, symbol) know(CP_HANDLE(MPI_Datatype, number, symbol), #name, kind);
    CP_DATATYPES(X)
#undef X
#define X(spelled, upper, number, symbol) \
    operations[n_operations].op = CP_HANDLE(MPI_Op, number, symbol); \
    operations[n_operations++].name = #spelled;
    CP_OPERATIONS(X)
#undef X
    n_predefined = n_operations;
}

const char *cp_operation_name(MPI_Op op) {
    for (int i = 0; i < n_operations; i++)
        if (operations[i].op == op) return operations[i].name;
    return NULL;
}

bool cp_find_operands(const char *op_name, const char *element_name, MPI_Op *op,
                      MPI_Datatype *element) {
    bool has_op = false, has_element = false;
    for (int i = 0; i < n_operations; i++)
        if (strcmp(operations[i].name, op_name) == 0) {
            *op = operations[i].op;
            has_op = true;
        }
    for (int i = 0; i < N_PLACES && !has_element; i++)
        if (known[i].is_used && known[i].element.name != NULL &&
            strcmp(known[i].element.name, element_name) == 0) {
            *element = known[i].type;
            has_element = true;
        }
    return has_op && has_element;
}

static const char *registered_name(const char *name) {
    for (int i = 0; i < n_registered; i++)
        if (strcmp(registered[i], name) == 0) return registered[i];
    return n_registered < N_OPERATIONS ? registered[n_registered++] = strdup(name) : NULL;
}

void cp_name_operation(MPI_Op op, const char *name) {
    const char *kept = registered_name(name);
    cp_forget_operation(op);
    if (kept == NULL || n_operations == N_OPERATIONS) return;
    operations[n_operations].op = op;
    operations[n_operations++].name = kept;
}

bool cp_forget_operation(MPI_Op op) {
    for (int i = n_predefined; i < n_operations; i++)
        if (operations[i].op == op) {
            operations[i] = operations[--n_operations];
            return true;
        }
    return false;
}

bool cp_is_registered(const char *name) {
    for (int i = 0; i < n_registered; i++)
        if (registered[i] == name) return true;
    return false;
}

static const struct cp_element *find_known(MPI_Datatype type) {
    for (unsigned place = place_of(type); known[place].is_used; place = (place + 1) % N_PLACES)
        if (known[place].type == type) return &known[place].element;
    return NULL;
}

/* Return whether a datatype consists of contiguous repetitions of a plain datatype. */
static bool repeats_plain(MPI_Datatype type) {
    const struct cp_element *found = find_known(type);
    if (found != NULL) return found->is_plain;
    int n_ints, n_addresses, n_types, combiner;
    if (cp_real.Type_get_envelope(type, &n_ints, &n_addresses, &n_types, &combiner) != MPI_SUCCESS)
        return false;
    if (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) return false;
    if (n_types != 1 || n_ints > 1 || n_addresses > 0) return false;
    int count;
    MPI_Aint address;
    MPI_Datatype inner;
    if (cp_real.Type_get_contents(type, n_ints, 0, 1, &count, &address, &inner) != MPI_SUCCESS)
        return false;
    bool is_plain = repeats_plain(inner);
    if (find_known(inner) == NULL) {
        int inner_combiner;
        if (cp_real.Type_get_envelope(inner, &n_ints, &n_addresses, &n_types, &inner_combiner) ==
                MPI_SUCCESS &&
            inner_combiner != MPI_COMBINER_NAMED)
            cp_real.Type_free(&inner);
    }
    return is_plain;
}

/* Return whether MPI takes a datatype for messages. */
static bool is_committed(MPI_Datatype type) {
    char none[1];
    int place = 0;
    MPI_Errhandler handler = cp_silence(cp_COMM_SELF);
    int code = cp_real.Pack(none, 0, type, none, 0, &place, cp_COMM_SELF);
    cp_restore(cp_COMM_SELF, handler);
    return code == MPI_SUCCESS;
}

/* Find the properties of a datatype, and cache them until the datatype is freed. */
static const struct cp_element *look(MPI_Datatype type, struct cp_element *room) {
    int is_there = 0;
    void *kept = NULL;
    if (cp_real.Type_get_attr(type, cp_settings.type_keyval, &kept, &is_there) != MPI_SUCCESS)
        return NULL;
    if (is_there) return kept; /* another thread has cached it */
    int size;
    MPI_Aint lower, extent, first, true_extent;
    if (cp_real.Type_size(type, &size) != MPI_SUCCESS || size < 0) return NULL;
    if (cp_real.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) return NULL;
    if (cp_real.Type_get_true_extent(type, &first, &true_extent) != MPI_SUCCESS) return NULL;
    bool is_plain = lower == 0 && repeats_plain(type);
    *room = (struct cp_element){.size = size, .extent = extent, .is_plain = is_plain,
                                .is_committed = is_committed(type), .first = first,
                                .end = first + true_extent};
    if (!room->is_committed) return room; /* not cached, as the program may commit it later */
    struct cp_element *own = malloc(sizeof *own);
    if (own == NULL) return room;
    *own = *room;
    if (cp_real.Type_set_attr(type, cp_settings.type_keyval, own) == MPI_SUCCESS) return own;
    free(own);
    return room;
}

const struct cp_element *cp_element_of(MPI_Datatype type, struct cp_element *room) {
    static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
    const struct cp_element *found = find_known(type);
    if (found != NULL) return found;
    int is_there = 0;
    void *kept = NULL;
    if (cp_real.Type_get_attr(type, cp_settings.type_keyval, &kept, &is_there) != MPI_SUCCESS)
        return NULL;
    if (is_there) return kept;
    pthread_mutex_lock(&looking);
    found = look(type, room);
    pthread_mutex_unlock(&looking);
    return found;
}

bool cp_is_message(const struct cp_element *element, const char *at, int64_t n) {
    return element->is_committed && (n * element->size == 0 || (intptr_t)at + element->first != 0);
}
