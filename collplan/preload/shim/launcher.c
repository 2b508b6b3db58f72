/* Names and values that ranks exchange through their launcher.
 *
 * If the library is missing on some ranks only, these run natively. The others must not wait for them
 * in MPI_Init, and may send them nothing. Each rank that has the library therefore says so to the
 * launcher before MPI_Init, where all ranks meet, and looks afterwards for what other ranks have
 * said. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "shim.h"

static bool is_known; /* whether this launcher keeps what ranks say */
static bool is_published; /* whether it has accepted that this rank has the library */

#ifndef COLLPLAN_OPENMPI
#define LINE_BYTES 2048

static int channel = -1;
static char space[512]; /* name under which the launcher keeps what ranks of this world say */

/* Send a request to Hydra by the first version of its protocol, and receive the answer, one line. MPI
 * uses the channel in the same way, and not at the same time, so no bytes of others are in it. There
 * is no limit of time, as MPI would take an answer that comes later for one of its own. */
static bool request(const char *asked, char *answer) {
    size_t n = 0;
    if (send(channel, asked, strlen(asked), MSG_NOSIGNAL) != (ssize_t)strlen(asked)) return false;
    while (n < LINE_BYTES - 1) {
        ssize_t received = recv(channel, answer + n, 1, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) return false;
        if (answer[n] == '\n') break;
        n++;
    }
    answer[n] = '\0';
    return true;
}

/* Copy the value of a field of an answer. */
static bool field(const char *answer, const char *name, char *value, size_t n_bytes) {
    const char *found = strstr(answer, name);
    size_t n = found != NULL ? strcspn(found + strlen(name), " ") : 0;
    if (n == 0 || n >= n_bytes) return false;
    memcpy(value, found + strlen(name), n);
    value[n] = '\0';
    return true;
}

static bool has_succeeded(const char *answer) { return strstr(answer, " rc=0") != NULL; }

/* Return whether the other end of the channel is Hydra's. Other launchers, such as Slurm's, expect other
 * words. */
static bool is_hydra(void) {
    struct ucred peer;
    socklen_t n_bytes = sizeof peer;
    char path[64], name[16] = "";
    if (getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) != 0) return false;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)peer.pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    bool is_read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return is_read && strncmp(name, "hydra_", 6) == 0;
}

void cp_publish(void) {
    const char *descriptor = getenv("PMI_FD"), *rank = getenv("PMI_RANK");
    char asked[LINE_BYTES], answer[LINE_BYTES];
    if (descriptor == NULL || rank == NULL) return;
    channel = atoi(descriptor);
    is_known = is_hydra();
    if (!is_known) return;
    /* MPI sends this again. Before the first time, Hydra may forget what it is told. */
    if (!request("cmd=init pmi_version=1 pmi_subversion=1\n", answer) ||
        !has_succeeded(answer) || !request("cmd=get_my_kvsname\n", answer) ||
        !field(answer, " kvsname=", space, sizeof space))
        return;
    snprintf(asked, sizeof asked, "cmd=put kvsname=%s key=collplan-%d value=1\n", space,
             atoi(rank));
    is_published = request(asked, answer) && has_succeeded(answer);
}

static bool is_there(int rank) {
    char asked[LINE_BYTES], answer[LINE_BYTES];
    snprintf(asked, sizeof asked, "cmd=get kvsname=%s key=collplan-%d\n", space, rank);
    return request(asked, answer) && has_succeeded(answer);
}
#else
/* Records of PMIx, whose layout is the same in its versions 3 to 6. */
struct process {
    char space[256];
    uint32_t rank;
};
struct value {
    uint16_t type;
    union {
        int32_t number;
        char room[64]; /* at least the size in any version */
    } data;
};
struct info {
    char key[512];
    uint32_t flags;
    uint16_t type;
    union {
        int32_t number;
        void *room[3];
    } data;
};
enum { PMIX_INT = 6, PMIX_GLOBAL = 3, PMIX_ERROR = -1, PATIENCE_S = 10 };
#define KEY "collplan"
#define TIMEOUT "pmix.timeout"

static bool is_publishing;
static void *library; /* PMIx, if the program cannot see it */

static void *pmix(const char *name) {
    void *found = cp_next(name);
    if (found == NULL && library == NULL)
        library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (found == NULL && library != NULL) found = dlsym(library, name);
    return found;
}

/* Only inside of MPI_Init can anything be said. */
void cp_publish(void) { is_publishing = true; }

/* The function of PMIx that MPI_Init calls before all ranks meet. */
CP_EXPORT int PMIx_Commit(void) {
    struct value value = {.type = PMIX_INT, .data.number = 1};
    int (*next)(void) = (int (*)(void))pmix("PMIx_Commit");
    int (*put)(uint8_t, const char *, struct value *) =
        (int (*)(uint8_t, const char *, struct value *))pmix("PMIx_Put");
    if (next == NULL) return PMIX_ERROR;
    if (is_publishing && put != NULL) {
        is_publishing = false;
        is_known = true;
        is_published = put(PMIX_GLOBAL, KEY, &value) == 0;
    }
    return next();
}

static bool is_there(int rank) {
    struct process process = {.rank = (uint32_t)rank};
    struct info limit = {.key = TIMEOUT, .type = PMIX_INT, .data.number = PATIENCE_S};
    struct value *found = NULL;
    const char *space = getenv("PMIX_NAMESPACE");
    int (*get)(const struct process *, const char *, const struct info *, size_t,
               struct value **) =
        (int (*)(const struct process *, const char *, const struct info *, size_t,
                 struct value **))pmix("PMIx_Get");
    if (space == NULL || get == NULL) return false;
    snprintf(process.space, sizeof process.space, "%s", space);
    int code = get(&process, KEY, &limit, 1, &found);
    if (code == 0) free(found); /* a number has no other memory */
    return code == 0;
}
#endif

/* Rank 0 looks for what all ranks have said, and tells those that have the library. */
static int64_t look_for_all(int size) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    int64_t missing = size;
    bool *are_there = calloc((size_t)size, sizeof *are_there);
    if (are_there == NULL) abort(); /* as other ranks would wait for this one */
    for (int rank = 1; rank < size; rank++) {
        are_there[rank] = is_there(rank);
        if (!are_there[rank] && missing == size) missing = rank;
    }
    for (int rank = 1; rank < size; rank++)
        if (are_there[rank]) cp_real.Send(&missing, 1, type, rank, 0, cp_COMM_WORLD);
    free(are_there);
    return missing;
}

int cp_missing_rank(int rank, int size) {
    MPI_Datatype type = CP_HANDLE(MPI_Datatype, 0x4c00083a, ompi_mpi_int64_t);
    int64_t missing = size, status[(CP_STATUS_BYTES + 7) / 8];
    if (is_known && size > 1) {
        if (!is_published) missing = rank; /* others cannot see that this rank has the library */
        else if (rank == 0) missing = look_for_all(size);
        else if (!is_there(0)) missing = 0;
        else cp_real.Recv(&missing, 1, type, 0, 0, cp_COMM_WORLD, (MPI_Status *)status);
    }
    return (int)missing;
}
