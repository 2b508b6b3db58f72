/* State of this process between MPI_Init and MPI_Finalize. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

struct cp_settings cp_settings;

/* First part of the message in which a rank describes itself to the helper. The version text of the
 * MPI library follows. */
struct hello {
    int64_t pid, rank, size, n_nodes, handle_bytes, status_bytes, tag_ub;
};
/* Answer of the helper to this message. */
struct welcome {
    int64_t native_calls, max_plans, is_logged, table_digest;
    uint64_t kinds, started_kinds;
    struct cp_facts facts;
};
enum { BY_SIZE = 2 }; /* value of is_logged if each size has a row */

/* Return whether this process is rank 0, also if MPI is not, or is another library than ours. */
static bool is_first(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL && rank[0] >= '0' && rank[0] <= '9') return atoi(rank) == 0;
    }
    return cp_settings.world_rank == 0;
}

void cp_say(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "collplan: %s\n", text);
}

/* Say on rank 0 why this library does nothing. It fails as a whole in no other way. */
static void stay_native(const char *why) {
    if (is_first()) cp_say("%s; all collectives are native", why);
}

static int copy_nothing(void *object, int keyval, void *extra, void *in, void *out, int *flag) {
    (void)object, (void)keyval, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

static int delete_type(MPI_Datatype type, int keyval, void *attribute, void *extra) {
    (void)type, (void)keyval, (void)extra;
    free(attribute);
    return MPI_SUCCESS;
}

static struct cp_reply greet(int n_nodes) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    char text[sizeof(struct hello) + sizeof version];
    int length = 0, is_there = 0;
    int *tag_ub = NULL;
    struct hello hello = {.pid = getpid(), .rank = cp_settings.world_rank,
                          .size = cp_settings.world_size};
    hello.n_nodes = n_nodes;
    hello.handle_bytes = sizeof(MPI_Request);
    hello.status_bytes = CP_STATUS_BYTES;
    cp_real.Comm_get_attr(cp_COMM_WORLD, MPI_TAG_UB, &tag_ub, &is_there);
    hello.tag_ub = cp_settings.tag_ub = is_there ? *tag_ub : 32767;
    cp_real.Get_library_version(version, &length);
    memcpy(text, &hello, sizeof hello);
    memcpy(text + sizeof hello, version, (size_t)length);
    return cp_ask(CP_HELLO, text, (int64_t)sizeof hello + length);
}

bool cp_agree(const char *why, int64_t same, char *text, size_t n_bytes) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    int size = cp_settings.world_size;
    int64_t mine[3] = {why != NULL ? cp_settings.world_rank : size, same, -same};
    int64_t all[3] = {0, 0, 0};
    if (cp_real.Allreduce(mine, all, 3, type, least, cp_COMM_WORLD) != MPI_SUCCESS) return false;
    if (all[0] == size) return all[1] == -all[2];
    if (why != NULL) snprintf(text, n_bytes, "%s", why);
    cp_real.Bcast(text, (int)n_bytes, byte, (int)all[0], cp_COMM_WORLD);
    return false;
}

/* Return whether all ranks have a helper, and all helpers have the same table. Otherwise rank 0
 * says why; collective. */
static bool agree(const char *why, int64_t digest) {
    char text[512] = "nodes have different tables or environment variables";
    if (cp_agree(why, digest, text, sizeof text)) return true;
    stay_native(text);
    return false;
}

/* Make what plans for non-blocking calls on MPI_COMM_WORLD need, if the table has any; collective. */
static void prepare_flights(void) {
    MPI_Request none = cp_REQUEST_NULL;
    int level = 0;
    cp_real.Query_thread(&level);
    cp_settings.is_multiple = level == MPI_THREAD_MULTIPLE;
    cp_real.Wait(&none, (MPI_Status *)cp_settings.empty_status);
    if (cp_settings.started_kinds == 0) return;
    MPI_Group group;
    cp_real.Comm_group(cp_COMM_SELF, &group);
    cp_real.Comm_create(cp_COMM_SELF, group, &cp_settings.self);
    cp_real.Group_free(&group);
    struct cp_comm *world = cp_comm_of(cp_COMM_WORLD);
    if (world != NULL) cp_set_up(world);
}

bool cp_needs_threads(void) {
    const char *given = getenv("COLLPLAN_PRELOAD_THREADS");
    return given != NULL && strcmp(given, "1") == 0 && cp_resolve() == NULL;
}

static bool is_prepared, has_begun;

void cp_prepare(void) {
    if (getenv("COLLPLAN_PRELOAD_HELPER") == NULL || is_prepared) return;
    is_prepared = true;
    const char *why = cp_resolve();
    if (why == NULL) cp_publish();
    else stay_native(why); /* MPI_Init may end the job, if the launcher is of another MPI */
}

void cp_begin(void) {
    if (getenv("COLLPLAN_PRELOAD_HELPER") == NULL || has_begun) return;
    has_begun = true;
    cp_settings.first_thread = pthread_self();
    struct cp_reply reply = {-1, 0, NULL};
    struct welcome welcome = {0};
    const char *expected = getenv("COLLPLAN_EXPECTED_RANKS"), *why = NULL;
    if (cp_resolve() != NULL) return;
    cp_real.Comm_rank(cp_COMM_WORLD, &cp_settings.world_rank);
    cp_real.Comm_size(cp_COMM_WORLD, &cp_settings.world_size);
    if (expected != NULL && atoi(expected) != cp_settings.world_size) {
        char text[256];
        snprintf(text, sizeof text,
                 "the MPI world has %d ranks where %s were started: the program's MPI is not that "
                 "of the mpiexec", cp_settings.world_size, expected);
        stay_native(text);
        return;
    }
    int missing = cp_missing_rank(cp_settings.world_rank, cp_settings.world_size);
    if (missing < cp_settings.world_size) {
        char text[64];
        snprintf(text, sizeof text, "rank %d runs without the preloaded library", missing);
        stay_native(text);
        return;
    }
    int n_nodes = 1;
    if (cp_helper_start(&n_nodes)) reply = greet(n_nodes);
    if (reply.status != 0 || reply.n_bytes != sizeof welcome)
        why = reply.status != 0 && reply.bytes != NULL ? reply.bytes : "a node has no helper";
    else if (cp_real.Comm_create_keyval(copy_nothing, cp_delete_comm, &cp_settings.comm_keyval,
                                        NULL) != MPI_SUCCESS ||
             cp_real.Type_create_keyval(copy_nothing, delete_type, &cp_settings.type_keyval,
                                        NULL) != MPI_SUCCESS)
        why = "MPI has no keys for attributes";
    else memcpy(&welcome, reply.bytes, sizeof welcome);
    bool all_well = agree(why, welcome.table_digest);
    if (all_well) {
        cp_settings.native_calls = welcome.native_calls;
        cp_settings.max_plans = welcome.max_plans;
        cp_settings.is_logged = welcome.is_logged != 0;
        cp_settings.is_by_size = welcome.is_logged == BY_SIZE;
        cp_settings.kinds = welcome.kinds;
        cp_settings.started_kinds = welcome.started_kinds;
        cp_settings.facts = welcome.facts;
        cp_know_elements();
        cp_find_places();
        prepare_flights();
        cp_watch_begin();
        __atomic_store_n(&cp_settings.is_on, true, __ATOMIC_RELEASE);
    } else {
        cp_helper_stop();
    }
    free(reply.bytes);
}

/* Say that the program has looked up collectives by itself, if no call was seen. */
static void say_unseen(void) {
    const char *name = getenv("COLLPLAN_LOOKED_UP");
    if (name != NULL && cp_settings.world_rank == 0 && (cp_is_watched || cp_settings.is_logged) &&
        cp_n_watched() == 0 && !cp_has_rows())
        cp_say("no collective was seen, but the program looks up %s by itself: calls of compiled code are "
               "native and not counted", name);
}

void cp_end(void) {
    if (!cp_settings.is_on) return;
    say_unseen();
    cp_watch_end();
    bool has_landed = cp_land();
    if (!has_landed)
        cp_say("rank %d: non-blocking collectives have not ended before MPI_Finalize",
               cp_settings.world_rank);
    cp_settings.is_on = false;
    if (cp_settings.is_logged && cp_settings.world_rank == 0) cp_report();
    if (has_landed) cp_free_all();
    cp_helper_stop();
}

/* Say once that no call was seen: the program looks up the functions of MPI by itself. */
__attribute__((destructor)) static void leave(void) {
    int is_initialized = 0;
    if (has_begun || getenv("COLLPLAN_PRELOAD_HELPER") == NULL) return;
    int (*initialized)(int *) = (int (*)(int *))cp_next("PMPI_Initialized");
    if (initialized != NULL && initialized(&is_initialized) == MPI_SUCCESS && is_initialized)
        stay_native("the program has initialized MPI, but not through a MPI_Init that was seen");
}
