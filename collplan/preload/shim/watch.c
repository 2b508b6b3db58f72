/* Records of what this rank does now, in memory that the ranks of a node and their watcher share. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define WORLD_KEY 1
#define UNSEEN "" /* communicators whose creation was not seen have no name */
#define ANSWER_NS 2000000000LL /* longest wait for the report of a call that differs */

bool cp_is_watched;
__thread const void *cp_site;

/* Memory of a node: process, file descriptor, and a number stored at its end. */
struct offer {
    int64_t pid, descriptor, nonce, n_ranks;
};

static struct offer offer = {0, -1, 0, 0};
static struct cp_watched *all, *own; /* memory of all ranks of the node, and of this rank */
static bool is_first, is_checked, is_hang_reported;
static bool is_placed; /* whether each call of a Python program has its site */
static char kind_names[2][CP_N_KINDS][CP_NAME_BYTES]; /* of blocking and of non-blocking calls */

/* Texts of the latest predefined datatype and operation of a thread. */
struct text {
    char bytes[16];
};
static __thread struct {
    MPI_Datatype type;
    bool is_known;
    int64_t size;
    struct text text;
} last_type;
static __thread struct {
    MPI_Op op;
    bool is_known;
    struct text text;
} last_op;

static __thread const char *last_place;

static struct text text_of(const char *name) {
    struct text found = {""};
    if (name != NULL) snprintf(found.bytes, sizeof found.bytes, "%s", name);
    return found;
}

static void make_memory(int size) {
    int64_t n_bytes = size * (int64_t)sizeof(struct cp_watched);
    offer = (struct offer){getpid(), -1, cp_now_ns() ^ getpid(), size};
    int descriptor = memfd_create("collplan-watch", MFD_CLOEXEC);
    if (descriptor < 0) return;
    if (cp_allocate(descriptor, n_bytes + 8) == 0 &&
        pwrite(descriptor, &offer.nonce, 8, n_bytes) == 8)
        offer.descriptor = descriptor;
    else close(descriptor);
}

static void map_memory(void) {
    char path[64];
    int64_t nonce = 0, n_bytes = offer.n_ranks * (int64_t)sizeof(struct cp_watched);
    if (offer.descriptor < 0) return;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)offer.pid,
             (long long)offer.descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *mapped = MAP_FAILED;
    if (pread(descriptor, &nonce, 8, n_bytes) == 8 && nonce == offer.nonce)
        mapped = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped != MAP_FAILED) all = mapped;
}

void cp_watch_share(MPI_Comm node, int rank, int size) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    const char *after = getenv("COLLPLAN_HANG_AFTER"), *check = getenv("COLLPLAN_CHECK");
    is_first = rank == 0;
    is_checked = check != NULL && strcmp(check, "1") == 0;
    bool is_traced = cp_trace_begin();
    is_hang_reported = after != NULL && strtod(after, NULL) > 0;
    if (is_first && (is_traced || is_checked || is_hang_reported))
        make_memory(size);
    cp_real.Bcast(&offer, sizeof offer, byte, 0, node);
    map_memory();
    if (all == NULL) return;
    own = all + rank;
    cp_real.Comm_rank(cp_COMM_WORLD, &rank);
    own->world_rank = rank;
    own->pid = getpid();
}

void cp_watch_begin(void) {
    if (is_first && offer.descriptor >= 0) {
        struct cp_reply reply = cp_ask(&cp_world, CP_WATCH, &offer, sizeof offer);
        if (reply.status != 0)
            cp_say("ranks that hang are not reported: %s",
                   reply.bytes != NULL ? reply.bytes : "there is no memory");
        free(reply.bytes);
        close((int)offer.descriptor);
        offer.descriptor = -1;
    }
    if (own == NULL) return;
    for (int kind = 0; kind < CP_N_KINDS; kind++) {
        snprintf(kind_names[0][kind], CP_NAME_BYTES, "%s", cp_kind_names[kind]);
        snprintf(kind_names[1][kind], CP_NAME_BYTES, "%s", cp_started_names[kind]);
    }
    bool is_python = cp_find_python();
    is_placed = is_python && (is_checked || cp_is_traced);
    if (is_python && is_hang_reported) cp_tell_places(own);
    cp_is_watched = true;
}

void cp_watch_end(void) {
    if (own != NULL) {
        own->is_finalized = 1;
        __atomic_store_n(&own->can_tell, 0, __ATOMIC_RELEASE);
    }
    if (cp_is_watched) cp_trace_end(cp_settings.world_rank);
    cp_is_watched = false;
}

/* Return the number of a communicator that is the same on all of its ranks. */
static int64_t mixed(int64_t one, int64_t other) {
    uint64_t found = ((uint64_t)one ^ (uint64_t)other * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (int64_t)((found ^ found >> 29) >> 2) + WORLD_KEY + 1;
}

/* Return the rank in MPI_COMM_WORLD of the first rank of a communicator. */
static int first_of(MPI_Comm comm) {
    MPI_Group group, world;
    int zero = 0, found = 0;
    if (cp_real.Comm_group(comm, &group) != MPI_SUCCESS) return 0;
    if (cp_real.Comm_group(cp_COMM_WORLD, &world) == MPI_SUCCESS) {
        cp_real.Group_translate_ranks(group, 1, &zero, world, &found);
        cp_real.Group_free(&world);
    }
    cp_real.Group_free(&group);
    return found;
}

/* Give a communicator a place in the memory of this rank, if one is free. */
static void watch_comm(struct cp_comm *comm, int64_t key, const char *made_by, const void *site) {
    struct cp_seen_comm *place = NULL;
    comm->watched_at = -1;
    if (comm->is_inter || comm->size < 2) return;
    for (int i = CP_N_SEEN_COMMS - 1; i >= 0; i--) {
        if (own->comms[i].key == key) key++, i = CP_N_SEEN_COMMS;
        else if (own->comms[i].key == 0) place = &own->comms[i];
    }
    if (place == NULL) return;
    *place = (struct cp_seen_comm){.size = comm->size, .rank = comm->rank,
                                   .site = (int64_t)(intptr_t)site};
    snprintf(place->made_by, sizeof place->made_by, "%s", made_by);
    __atomic_store_n(&place->key, key, __ATOMIC_RELEASE);
    comm->watched_at = (int)(place - own->comms);
}

/* Find the place of a communicator; one whose creation was not seen is numbered by its first use. */
static struct cp_comm *find_comm(MPI_Comm handle) {
    struct cp_comm *comm = cp_comm_of(handle);
    if (comm != NULL && !comm->is_watched) {
        comm->is_watched = true;
        if (handle == cp_COMM_WORLD) watch_comm(comm, WORLD_KEY, "MPI_COMM_WORLD", NULL);
        else watch_comm(comm, mixed(first_of(handle), comm->size), UNSEEN, NULL);
    }
    return comm;
}

void cp_note_made(MPI_Comm parent, MPI_Comm made, const char *name) {
    struct cp_comm *from = find_comm(parent);
    if (from == NULL) return;
    int64_t number = strcmp(name, "comm_create_group") == 0 ? 0 : ++from->n_made_comms;
    struct cp_comm *comm = made != cp_COMM_NULL ? cp_comm_of(made) : NULL;
    if (comm == NULL) return;
    int64_t key = from->watched_at >= 0 ? own->comms[from->watched_at].key : 0;
    key = mixed(mixed(mixed(key, number), first_of(made)), comm->size);
    comm->is_watched = true;
    watch_comm(comm, key, name, cp_site);
}

void cp_watch_free(const struct cp_comm *comm) {
    if (own != NULL && comm->is_watched && comm->watched_at >= 0)
        own->comms[comm->watched_at].key = 0;
}

/* Return whether two calls at the same place in the order of a communicator may be one collective. */
static bool are_one(const struct cp_seen *one, const struct cp_seen *other) {
    bool is_type_known = one->element[0] != '\0' && other->element[0] != '\0';
    bool is_op_known = one->op[0] != '\0' && other->op[0] != '\0';
    return memcmp(one->name, other->name, sizeof one->name) == 0 && one->root == other->root &&
           one->n_bytes == other->n_bytes &&
           !(is_type_known && memcmp(one->element, other->element, sizeof one->element) != 0) &&
           !(is_op_known && memcmp(one->op, other->op, sizeof one->op) != 0);
}

/* Return the call of another rank with a number on a communicator, or NULL. */
static const struct cp_seen *call_of(const struct cp_watched *rank, int64_t key, int64_t order) {
    for (int i = 0; i < CP_N_SEEN_COMMS; i++) {
        if (rank->comms[i].key != key) continue;
        for (int j = 0; j < CP_N_SEEN; j++) {
            const struct cp_seen *seen = &rank->seen[j];
            if (seen->comm == i && seen->order == order &&
                __atomic_load_n(&seen->state, __ATOMIC_ACQUIRE) != CP_SEEN_WRITING)
                return seen;
        }
    }
    return NULL;
}

/* If another rank of the node has made another call in place of this one, wait until the watcher has
 * reported it: MPI may end the program. */
static void check(const struct cp_seen *seen) {
    int64_t key = own->comms[seen->comm].key, end_ns = 0;
    struct timespec pause = {0, 1000000};
    for (struct cp_watched *rank = all; rank < all + offer.n_ranks; rank++) {
        const struct cp_seen *other = rank != own ? call_of(rank, key, seen->order) : NULL;
        if (other == NULL || are_one(seen, other)) continue;
        end_ns = cp_now_ns() + ANSWER_NS;
        __atomic_store_n(&own->mismatch, seen->number, __ATOMIC_RELEASE);
        break;
    }
    while (end_ns != 0 && __atomic_load_n(&own->answered, __ATOMIC_ACQUIRE) < seen->number &&
           cp_now_ns() < end_ns)
        nanosleep(&pause, NULL);
}

/* Begin a record; the caller completes it by `publish`. */
static inline struct cp_mark begin(const char *name, MPI_Comm handle, int64_t root) {
    struct cp_mark mark = {NULL, 0, NULL};
    struct cp_comm *comm = find_comm(handle);
    if (comm == NULL || comm->watched_at < 0) return mark;
    mark.number = __atomic_add_fetch(&own->n_calls, 1, __ATOMIC_RELAXED);
    struct cp_seen *seen = mark.seen = &own->seen[mark.number % CP_N_SEEN];
    seen->state = CP_SEEN_WRITING;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    seen->number = mark.number;
    seen->comm = comm->watched_at;
    seen->order = ++own->comms[comm->watched_at].n_calls;
    seen->root = root;
    seen->n_bytes = -1;
    seen->site = (int64_t)(intptr_t)cp_site;
    memcpy(seen->name, name, CP_NAME_BYTES);
    memset(seen->element, 0, sizeof seen->element);
    memset(seen->op, 0, sizeof seen->op);
    own->thread = (int64_t)pthread_self();
    if (is_placed) {
        last_place = cp_python_place();
        snprintf(seen->place, sizeof seen->place, "%s", last_place != NULL ? last_place : "");
    }
    return mark;
}

/* Copy a blocking call to the records with times. */
static struct cp_traced *trace(const struct cp_seen *seen) {
    struct cp_traced *traced = cp_trace();
    const struct cp_seen_comm *comm = &own->comms[seen->comm];
    if (traced == NULL) return NULL;
    *traced = (struct cp_traced){comm->key, comm->size, comm->rank, seen->order, seen->root,
                                 seen->n_bytes, seen->site, 0, 0, last_place, ""};
    memcpy(traced->name, seen->name, sizeof traced->name);
    traced->enter_ns = cp_now_ns();
    return traced;
}

static inline void publish(struct cp_mark *mark, bool is_started) {
    if (mark->seen == NULL) return;
    __atomic_store_n(&mark->seen->state, is_started ? CP_SEEN_STARTED : CP_SEEN_INSIDE,
                     __ATOMIC_RELEASE);
    if (is_checked) check(mark->seen);
    if (cp_is_traced && !is_started) mark->traced = trace(mark->seen);
}

struct cp_mark cp_enter(const char *name, MPI_Comm comm, int64_t root, bool is_started) {
    struct cp_mark mark = begin(name, comm, root);
    publish(&mark, is_started);
    return mark;
}

/* Return the size of `n` elements of a datatype in bytes, and copy its name. */
static inline int64_t note_type(struct cp_seen *seen, int64_t n, MPI_Datatype type) {
    if (!last_type.is_known || last_type.type != type) {
        struct cp_element room;
        const struct cp_element *element = cp_element_of(type, &room);
        last_type.is_known = element != NULL && element->is_predefined;
        if (element == NULL) return -1;
        last_type.type = type;
        last_type.size = element->size;
        last_type.text = text_of(element->name);
    }
    memcpy(seen->element, &last_type.text, sizeof seen->element);
    return n * last_type.size;
}

static inline void note_op(struct cp_seen *seen, MPI_Op op) {
    if (!last_op.is_known || last_op.op != op) {
        last_op.op = op;
        last_op.text = text_of(cp_operation_name(op));
        last_op.is_known = true;
    }
    memcpy(seen->op, &last_op.text, sizeof seen->op);
}

struct cp_mark cp_enter_call(const struct cp_call *call, bool is_started) {
    struct cp_mark mark = begin(kind_names[is_started][call->kind], call->comm, call->root);
    if (mark.seen == NULL) return mark;
    bool receives = false, reduces = false;
    switch (call->kind) {
    case CP_BARRIER: break;
    case CP_BCAST: receives = true; break;
    case CP_SCATTER: receives = call->received != MPI_IN_PLACE; break;
    case CP_GATHER: case CP_ALLGATHER: case CP_ALLTOALL:
        receives = call->sent == MPI_IN_PLACE;
        break;
    default: reduces = true; break;
    }
    if (call->kind != CP_BARRIER)
        mark.seen->n_bytes = receives
                                 ? note_type(mark.seen, call->n_received, call->received_type)
                                 : note_type(mark.seen, call->n_sent, call->sent_type);
    if (reduces) note_op(mark.seen, call->op);
    publish(&mark, is_started);
    return mark;
}

struct cp_mark cp_enter_vector(const struct cp_vector_call *call) {
    struct cp_mark mark = begin(kind_names[0][call->kind], call->comm, call->root);
    if (mark.seen != NULL && call->kind == CP_REDUCE_SCATTER) note_op(mark.seen, call->op);
    publish(&mark, false);
    return mark;
}

void cp_leave(struct cp_mark mark) {
    if (mark.traced != NULL) mark.traced->leave_ns = cp_now_ns();
    /* Other threads may have made so long a row of calls that the record has another one. */
    if (mark.seen != NULL && mark.seen->number == mark.number &&
        mark.seen->state == CP_SEEN_INSIDE)
        __atomic_store_n(&mark.seen->state, CP_SEEN_LEFT, __ATOMIC_RELEASE);
}

void cp_leave_with(struct cp_mark mark, int code) {
    cp_leave(mark);
    if (code != MPI_SUCCESS && mark.seen != NULL && cp_is_rejected(code))
        own->comms[mark.seen->comm].n_calls--;
}

void cp_await_begin(const char *name, int64_t peer, int64_t tag) {
    struct cp_waiting *waiting = &own->waiting;
    waiting->number++;
    waiting->site = (int64_t)(intptr_t)cp_site;
    waiting->peer = peer;
    waiting->tag = tag;
    memcpy(waiting->name, name, CP_NAME_BYTES);
    __atomic_store_n(&waiting->is_inside, 1, __ATOMIC_RELEASE);
}

int64_t cp_n_watched(void) { return own != NULL ? own->n_calls : 0; }

void cp_await_end(void) { __atomic_store_n(&own->waiting.is_inside, 0, __ATOMIC_RELEASE); }
