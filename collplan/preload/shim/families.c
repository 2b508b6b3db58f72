/* Families of communicators: those of a program under `collplan exec`, and those of each
 * `collplan.Comm` of a Python program. The ranks of a family follow one table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

struct cp_family cp_world;

/* First part of the message in which a rank describes itself. The version text of the MPI library
 * follows. */
struct hello {
    int64_t pid, rank, size, n_nodes, node, handle_bytes, status_bytes, tag_ub;
};
/* Answer to this message. */
struct welcome {
    int64_t native_calls, max_plans, is_logged, table_digest;
    uint64_t kinds, started_kinds;
    struct cp_facts facts;
};
enum { BY_SIZE = 2 }; /* value of is_logged if each size has a row */

struct cp_reply cp_ask(struct cp_family *family, enum cp_request request, const void *bytes,
                       int64_t n_bytes) {
    struct cp_reply reply = {-1, 0, NULL};
    if (family == &cp_world) return cp_ask_helper(request, bytes, n_bytes);
    cp_answer *answer = __atomic_load_n(&family->answer, __ATOMIC_ACQUIRE);
    if (answer != NULL) answer(request, bytes, n_bytes, &reply);
    return reply;
}

static struct cp_reply greet(struct cp_family *family, int n_nodes, int node) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    char text[sizeof(struct hello) + sizeof version];
    int length = 0, is_there = 0;
    int *tag_ub = NULL;
    struct hello hello = {.pid = getpid(), .rank = family->rank, .size = family->size};
    hello.n_nodes = n_nodes;
    hello.node = node;
    hello.handle_bytes = sizeof(MPI_Request);
    hello.status_bytes = CP_STATUS_BYTES;
    cp_real.Comm_get_attr(cp_COMM_WORLD, MPI_TAG_UB, &tag_ub, &is_there);
    hello.tag_ub = cp_settings.tag_ub = is_there ? *tag_ub : 32767;
    cp_real.Get_library_version(version, &length);
    memcpy(text, &hello, sizeof hello);
    memcpy(text + sizeof hello, version, (size_t)length);
    return cp_ask(family, CP_HELLO, text, (int64_t)sizeof hello + length);
}

bool cp_agree(const struct cp_family *family, const char *why, int64_t same, char *text,
              size_t n_bytes) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    MPI_Op least = CP_HANDLE(MPI_Op, 0x58000002, ompi_mpi_op_min);
    int64_t mine[3] = {why != NULL ? family->rank : family->size, same, -same};
    int64_t all[3] = {0, 0, 0};
    if (cp_real.Allreduce(mine, all, 3, type, least, family->comm) != MPI_SUCCESS) return false;
    if (all[0] == family->size) return all[1] == -all[2];
    if (why != NULL) snprintf(text, n_bytes, "%s", why);
    cp_real.Bcast(text, (int)n_bytes, byte, (int)all[0], family->comm);
    return false;
}

/* Count nodes, and number this rank's node by its first rank; start the helper of the world. Return
 * whether somebody answers requests; collective. */
static bool meet_node(struct cp_family *family, int *n_nodes, int *node_number) {
    MPI_Comm node;
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c000405, ompi_mpi_int);
    MPI_Op sum = CP_HANDLE(MPI_Op, 0x58000003, ompi_mpi_op_sum);
    int rank = 0;
    if (cp_real.Comm_split_type(family->comm, MPI_COMM_TYPE_SHARED, 0, cp_INFO_NULL, &node) != 0)
        return false;
    cp_real.Comm_rank(node, &rank);
    bool is_answered = family != &cp_world || cp_helper_start(node);
    *node_number = family->rank;
    cp_real.Bcast(node_number, 1, type, 0, node);
    cp_real.Comm_free(&node);
    int is_first = rank == 0;
    cp_real.Allreduce(&is_first, n_nodes, 1, type, sum, family->comm);
    return is_answered;
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

/* Make what all families of this process need. */
static bool prepare_process(void) {
    static bool is_prepared;
    MPI_Request none = cp_REQUEST_NULL;
    MPI_Group group;
    int level = 0;
    if (is_prepared) return true;
    if (cp_real.Comm_create_keyval(copy_nothing, cp_delete_comm, &cp_settings.comm_keyval, NULL) !=
            MPI_SUCCESS ||
        cp_real.Type_create_keyval(copy_nothing, delete_type, &cp_settings.type_keyval, NULL) !=
            MPI_SUCCESS)
        return false;
    cp_real.Comm_rank(cp_COMM_WORLD, &cp_settings.world_rank);
    cp_know_elements();
    cp_real.Query_thread(&level);
    cp_settings.is_multiple = level == MPI_THREAD_MULTIPLE;
    cp_settings.first_thread = pthread_self();
    cp_real.Wait(&none, (MPI_Status *)cp_settings.empty_status);
    cp_real.Comm_group(cp_COMM_SELF, &group);
    cp_real.Comm_create(cp_COMM_SELF, group, &cp_settings.self);
    cp_real.Group_free(&group);
    return is_prepared = true;
}

bool cp_found(struct cp_family *family, MPI_Comm comm, char *text, size_t n_bytes) {
    struct cp_reply reply = {-1, 0, NULL};
    struct welcome welcome = {0};
    const char *why = NULL;
    int n_nodes = 1, node = 0;
    family->comm = comm;
    cp_real.Comm_rank(comm, &family->rank);
    cp_real.Comm_size(comm, &family->size);
    if (meet_node(family, &n_nodes, &node)) reply = greet(family, n_nodes, node);
    if (reply.status != 0 || reply.n_bytes != sizeof welcome)
        why = reply.status != 0 && reply.bytes != NULL ? reply.bytes : "a node has no helper";
    else if (!prepare_process()) why = "MPI has no keys for attributes";
    else memcpy(&welcome, reply.bytes, sizeof welcome);
    snprintf(text, n_bytes, "nodes have different tables or environment variables");
    bool are_well = cp_agree(family, why, welcome.table_digest, text, n_bytes);
    free(reply.bytes);
    if (!are_well) return false;
    family->native_calls = welcome.native_calls;
    family->max_plans = welcome.max_plans;
    family->is_logged = welcome.is_logged != 0;
    family->is_by_size = welcome.is_logged == BY_SIZE;
    family->kinds = welcome.kinds;
    family->started_kinds = welcome.started_kinds;
    family->facts = welcome.facts;
    family->is_on = true;
    cp_settings.is_logged |= family->is_logged;
    cp_settings.kinds |= family->kinds;
    cp_settings.started_kinds |= family->started_kinds;
    cp_find_places(family);
    if (cp_join(comm, family) && family->started_kinds != 0) cp_set_up(cp_comm_of(comm));
    __atomic_store_n(&cp_settings.is_on, true, __ATOMIC_RELEASE);
    return true;
}
