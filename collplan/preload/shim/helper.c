/* The helper process of this node. One rank starts it, and all ranks send it requests through a
 * socket.
 *
 * The socket has an abstract name, so no file remains. The helper ends when the last rank has
 * disconnected, also if ranks are killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

#define HELPER_FD 3 /* descriptor of the listening socket in the helper */
#define SLICE_NS 50000000LL
#define PATIENCE_NS 2000000000LL /* longest wait for anything that the helper must do */
#define PATIENCE "2 s"
#define HAS_ENDED "the helper process has ended"
#define IS_SILENT "the helper process has not answered for " PATIENCE
enum { WORKING = 2 }; /* status of a sign of life, see connections.py */

extern char **environ;

static int connection = -1;
static pid_t helper; /* 0 if unknown */
static bool is_first_of_node;
static const char *lost = HAS_ENDED; /* reason why there is no connection */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

/* Add the time since `before` to the time waited, and return whether that is not too long. A time in
 * which this process itself was stopped counts as one slice. */
static bool may_wait(int64_t *waited, int64_t before) {
    int64_t passed = cp_now_ns() - before;
    *waited += passed < 2 * SLICE_NS ? passed : 2 * SLICE_NS;
    /* The rank that speaks for the node gives up first, as the others see then that it has ended. */
    return *waited < PATIENCE_NS + (is_first_of_node ? 0 : 5 * SLICE_NS);
}

/* Name of the helper's socket, which the system chooses: a zero byte and a few characters. */
struct address {
    struct sockaddr_un name;
    socklen_t n_bytes;
    pid_t helper;
};

static int listen_anywhere(struct address *address) {
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(address, 0, sizeof *address);
    address->name.sun_family = AF_UNIX;
    address->n_bytes = sizeof address->name;
    if (listener < 0) return -1;
    if (bind(listener, (struct sockaddr *)&address->name, sizeof(sa_family_t)) != 0 ||
        listen(listener, 4096) != 0 ||
        getsockname(listener, (struct sockaddr *)&address->name, &address->n_bytes) != 0) {
        close(listener);
        return -1;
    }
    return listener;
}

/* Return the environment of the helper, which must not load this library. */
static char **helper_environment(char **before) {
    int n = 0;
    while (environ[n] != NULL) n++;
    char **found = calloc((size_t)n + 2, sizeof *found);
    if (found == NULL) return NULL;
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0) found[kept++] = environ[i];
    /* Restore the libraries that were preloaded before. */
    const char *preloaded = getenv("COLLPLAN_PRELOAD_BEFORE");
    if (preloaded != NULL && preloaded[0] != '\0' &&
        asprintf(before, "LD_PRELOAD=%s", preloaded) >= 0)
        found[kept++] = *before;
    return found;
}

/* Wait for the end of the shell, which only starts another process. */
static bool await_shell(pid_t shell, int *status) {
    int64_t waited = 0, before;
    do {
        before = cp_now_ns();
        pid_t found = waitpid(shell, status, WNOHANG);
        if (found == shell) return true;
        if (found < 0 && errno != EINTR) return false;
        poll(NULL, 0, 1);
    } while (may_wait(&waited, before));
    kill(shell, SIGKILL);
    waitpid(shell, status, 0);
    return false;
}

/* Start the helper, and return its process, or 0. Its output is that of no rank, as launchers wait for
 * the end of all processes that have it. */
static pid_t spawn(int listener, int n_local) {
    const char *python = getenv("COLLPLAN_PRELOAD_PYTHON");
    const char *script = getenv("COLLPLAN_PRELOAD_HELPER");
    if (python == NULL || script == NULL) return 0;
    int told[2];
    char ranks[24], parent[24];
    snprintf(ranks, sizeof ranks, "%d", n_local);
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    /* A shell starts the helper, so that it is no child of the program, which may wait for all of
     * its children. */
    char *arguments[] = {"sh", "-c", "\"$@\" >/dev/null & echo $!", "sh", (char *)python, "-P",
                         (char *)script, ranks, parent, NULL};
    char *preloaded = NULL, **environment = helper_environment(&preloaded);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, child, before;
    sigemptyset(&none);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (environment == NULL || pipe2(told, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(environment);
        return 0;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, told[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, listener, HELPER_FD);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &child);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pthread_sigmask(SIG_BLOCK, &child, &before);
    pid_t shell;
    int status = 0;
    bool is_started =
        posix_spawn(&shell, "/bin/sh", &actions, &attributes, arguments, environment) == 0;
    if (is_started) {
        await_shell(shell, &status);
        /* The signal for the end of the shell must not reach the program. */
        struct timespec now = {0, 0};
        if (!sigismember(&before, SIGCHLD)) sigtimedwait(&child, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(environment);
    free(preloaded);
    char number[24] = "";
    if (is_started && read(told[0], number, sizeof number - 1) < 0) number[0] = '\0';
    close(told[0]);
    close(told[1]);
    return (pid_t)atol(number);
}

static int connect_to(const struct address *address) {
    int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (found < 0) return -1;
    int outcome;
    do outcome = connect(found, (const struct sockaddr *)&address->name, address->n_bytes);
    while (outcome != 0 && errno == EINTR);
    struct ucred peer;
    socklen_t n_bytes = sizeof peer;
    if (outcome != 0 || getsockopt(found, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) != 0 ||
        peer.uid != geteuid()) {
        close(found);
        return -1;
    }
    return found;
}

bool cp_helper_start(MPI_Comm node) {
    int rank, size, listener = -1;
    struct address address = {.n_bytes = 0};
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    cp_real.Comm_rank(node, &rank);
    cp_real.Comm_size(node, &size);
    is_first_of_node = rank == 0;
    if (rank == 0 && (listener = listen_anywhere(&address)) >= 0)
        address.helper = spawn(listener, size);
    cp_real.Bcast(&address, sizeof address, byte, 0, node);
    cp_watch_share(node, rank, size);
    /* Connections wait in the socket until the helper accepts them, or no process listens. */
    helper = address.helper;
    if (helper > 0) connection = connect_to(&address);
    cp_real.Barrier(node);
    if (listener >= 0) close(listener);
    return connection >= 0;
}

void cp_helper_stop(void) {
    if (connection < 0) return;
    /* A process forked by this one may keep the connection open. */
    shutdown(connection, SHUT_RDWR);
    close(connection);
    connection = -1;
    /* It could not end if somebody has stopped it. */
    kill(helper, SIGCONT);
}

/* Wait until the connection is ready; return false if it is not in time. */
static bool await(short events) {
    struct pollfd one = {connection, events, 0};
    int64_t waited = 0, before;
    do {
        before = cp_now_ns();
        int found = poll(&one, 1, (int)(SLICE_NS / 1000000));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    } while (may_wait(&waited, before));
    lost = IS_SILENT;
    return false;
}

static bool is_retried(ssize_t moved) {
    return moved < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK);
}

static bool send_all(const void *bytes, int64_t n_bytes) {
    const char *from = bytes;
    while (n_bytes > 0) {
        if (!await(POLLOUT)) return false;
        ssize_t sent = send(connection, from, (size_t)n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (is_retried(sent)) continue;
        if (sent <= 0) return false;
        from += sent;
        n_bytes -= sent;
    }
    return true;
}

static bool receive_all(void *bytes, int64_t n_bytes) {
    char *to = bytes;
    while (n_bytes > 0) {
        if (!await(POLLIN)) return false;
        ssize_t received = recv(connection, to, (size_t)n_bytes, MSG_DONTWAIT);
        if (is_retried(received)) continue;
        if (received <= 0) return false;
        to += received;
        n_bytes -= received;
    }
    return true;
}

/* Do without the helper from now on. */
static void lose(void) {
    /* The other ranks of the node need not wait for it, too. */
    if (strcmp(lost, IS_SILENT) == 0) kill(helper, SIGKILL);
    cp_helper_stop();
    if (cp_world.is_on && is_first_of_node)
        cp_say("rank %d: %s; calls without a plan are native from now on", cp_settings.world_rank,
               lost);
}

struct cp_reply cp_ask_helper(enum cp_request request, const void *bytes, int64_t n_bytes) {
    struct cp_reply reply = {-1, 0, NULL};
    int64_t head[2] = {request, n_bytes};
    pthread_mutex_lock(&asking);
    bool is_well = connection >= 0 && send_all(head, sizeof head) && send_all(bytes, n_bytes);
    do is_well = is_well && receive_all(head, sizeof head);
    while (is_well && head[0] == WORKING);
    if (is_well) {
        reply.status = head[0];
        reply.n_bytes = head[1];
        reply.bytes = malloc((size_t)reply.n_bytes + 1);
        is_well = reply.bytes != NULL && receive_all(reply.bytes, reply.n_bytes);
        if (is_well) reply.bytes[reply.n_bytes] = '\0';
    }
    if (!is_well) {
        /* An incomplete answer is useless, and so is the connection: make no further requests. */
        if (connection >= 0) lose();
        free(reply.bytes);
        reply = (struct cp_reply){-1, 0, strdup(lost)};
    }
    pthread_mutex_unlock(&asking);
    return reply;
}
