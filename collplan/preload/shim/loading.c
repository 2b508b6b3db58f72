/* Reads plans that the helper has written: the memory of the loop, completed with the addresses and
 * handles of this process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plans.h"

#define LINE_BYTES 64
enum { ABSOLUTE = 4 };
enum { KIND_SEND = 0, KIND_RECV = 1 };

static int64_t handle_word(MPI_Datatype type) { return (int64_t)(intptr_t)type; }

char *cp_text_of(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return strdup(text);
}

void *cp_aligned_memory(int64_t n_bytes) {
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

/* Return what follows a text in the helper's answer, or NULL if the text does not end. */
static const char *next_text(const char *text, const char *end) {
    const char *found = text != NULL ? memchr(text, '\0', (size_t)(end - text)) : NULL;
    return found != NULL ? found + 1 : NULL;
}

/* Load the reduction from a library by its path and name; both are empty if there is none. A function
 * of this process has an address in place of a name. */
static char *load_reduction(struct cp_plan *plan, const char *path, const char *name,
                            int64_t *address) {
    *address = strtoll(name, NULL, 10);
    if (path[0] == '\0') return NULL;
    plan->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plan->library == NULL) return cp_text_of("%s", dlerror());
    *address = (int64_t)(intptr_t)dlsym(plan->library, name);
    return *address != 0 ? NULL : cp_text_of("%s has no %s", path, name);
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
bool cp_relocate(struct cp_plan *plan, const int64_t (*relocations)[2], bool is_shared) {
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
bool cp_make_types(struct cp_plan *plan, bool only_spanning) {
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
char *cp_load_plan(struct cp_plan *plan, const char *at, int64_t n_bytes, MPI_Comm comm,
                    int64_t (**relocations)[2]) {
    const char *end = at + n_bytes, *path = at;
    const char *name = next_text(path, end), *op = next_text(name, end);
    const char *element = next_text(op, end);
    at = next_text(element, end);
    if (at == NULL) return cp_text_of("the helper's answer is cut");
    snprintf(plan->combined_op, sizeof plan->combined_op, "%s", op);
    snprintf(plan->combined_element, sizeof plan->combined_element, "%s", element);
    struct cp_head *head = &plan->head;
    bool is_well = take(&at, end, head, sizeof *head);
    if (is_well) {
        *relocations = take_new(&at, end, head->n_relocations, sizeof **relocations);
        plan->messages = take_new(&at, end, head->n_messages, sizeof *plan->messages);
        plan->parts = take_new(&at, end, head->n_parts, sizeof *plan->parts);
        plan->calls = take_new(&at, end, head->n_calls, sizeof *plan->calls);
        plan->members = take_new(&at, end, head->n_members, sizeof *plan->members);
        plan->image = cp_aligned_memory(head->image_bytes);
        plan->scratch = cp_aligned_memory(head->scratch_bytes);
        is_well = *relocations != NULL && plan->messages != NULL && plan->parts != NULL &&
                  plan->calls != NULL && plan->members != NULL && plan->image != NULL && plan->scratch != NULL &&
                  take(&at, end, plan->image, head->image_bytes) && at == end &&
                  cp_relocate(plan, *relocations, false);
    }
    if (!is_well) return cp_text_of("there is no memory for the plan, or the answer is cut");
    fill_functions(state_of(plan), comm);
    bases_of(plan)[SCRATCH_BASE] = (int64_t)(intptr_t)plan->scratch;
    if (head->largest_tag > cp_settings.tag_ub)
        return cp_text_of("the plan uses tag %" PRId64 ", this MPI allows it up to %d",
                       head->largest_tag, cp_settings.tag_ub);
    if (!fill_messages(plan)) return cp_text_of("MPI cannot make its datatypes");
    return load_reduction(plan, path, name, &state_of(plan)->reduce);
}
