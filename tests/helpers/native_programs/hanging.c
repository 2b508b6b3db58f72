/* Programs that hang in one way each, whose name is the argument. They end after some seconds. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size, last;
static double values[4096], sums[4096];
static MPI_Comm world, other;

static void sum(int count) {
    MPI_Allreduce(values, sums, count, MPI_DOUBLE, MPI_SUM, world);
}

static void broadcast(int root, MPI_Comm comm) { MPI_Bcast(values, 4096, MPI_DOUBLE, root, comm); }

/* Compute for ever. */
static void compute(void) {
    for (volatile double one = 1;; one += 1e-9) continue;
}

/* A rank does not call what the others call. */
static void missing_rank(void) {
    if (rank != last) MPI_Barrier(world);
    else MPI_Recv(values, 1, MPI_DOUBLE, 0, 7, world, MPI_STATUS_IGNORE);
}
static void endless_computation(void) {
    if (rank == last) compute();
    sum(1);
}
static void input_wait(void) {
    int ends[2];
    char byte;
    if (rank == last && pipe(ends) == 0 && read(ends[0], &byte, 1) < 0) abort();
    sum(1);
}
static void sleeping_rank(void) {
    if (rank == last) sleep(1000);
    MPI_Alltoall(values, 1, MPI_DOUBLE, sums, 1, MPI_DOUBLE, world);
}
static void stopped_rank(void) {
    if (rank == last) raise(SIGSTOP);
    MPI_Barrier(world);
}
static void child_wait(void) {
    if (rank == last) {
        pid_t child = fork();
        if (child == 0) pause();
        waitpid(child, NULL, 0);
    }
    MPI_Barrier(world);
}
static void killed_rank(void) {
    if (rank == last) raise(SIGKILL);
    MPI_Barrier(world);
}
static void early_end(void) {
    if (rank == last) MPI_Finalize();
    else MPI_Allgather(values, 1, MPI_DOUBLE, sums, 1, MPI_DOUBLE, world);
}
static void fewer_turns(void) {
    for (int turn = 0; turn < (rank == last ? 3 : 4); turn++) sum(2);
    if (rank == last) compute();
}
static void half_of_a_group(void) {
    if (rank == 0) compute();
    if (rank < 2) MPI_Barrier(other);
    MPI_Barrier(world);
}

/* Ranks make different calls. */
static void wrong_root(void) {
    broadcast(rank == last ? 0 : last, world);
    MPI_Barrier(world);
}
static void wrong_kind(void) {
    if (rank == 0) MPI_Barrier(world);
    else MPI_Allreduce(values, sums, 4096, MPI_DOUBLE, MPI_SUM, world);
    MPI_Barrier(world);
}
static void wrong_count(void) {
    MPI_Allgather(values, rank == 0 ? 100 : 1, MPI_DOUBLE, sums, rank == 0 ? 100 : 1, MPI_DOUBLE,
                  world);
    compute();
}
static void wrong_type(void) {
    MPI_Allreduce(values, sums, 2, rank == 0 ? MPI_DOUBLE : MPI_INT64_T, MPI_SUM, world);
    if (rank == 0) compute();
    MPI_Barrier(world);
}
static void wrong_operation(void) {
    MPI_Allreduce(values, sums, 2, MPI_DOUBLE, rank == 0 ? MPI_MAX : MPI_SUM, world);
    if (rank == 0) compute();
    MPI_Barrier(world);
}
static void order_of_two(void) {
    MPI_Barrier(rank == 0 ? other : world);
    MPI_Barrier(rank == 0 ? world : other);
}
static void reduce_in_place_of_bcast(void) {
    if (rank == last) MPI_Reduce(values, sums, 4096, MPI_DOUBLE, MPI_SUM, last, world);
    else broadcast(last, world);
    MPI_Barrier(world);
}

/* Waits of other kinds. */
static void request_wait(void) {
    MPI_Request request;
    if (rank == last) compute();
    MPI_Iallreduce(values, sums, 1, MPI_DOUBLE, MPI_SUM, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void making_of_a_communicator(void) {
    MPI_Comm made;
    if (rank == last) compute();
    MPI_Comm_split(world, 0, rank, &made);
}
static void point_to_point_first(void) {
    if (rank == 0) MPI_Ssend(values, 1, MPI_DOUBLE, 1, 3, world);
    MPI_Barrier(world);
}
static void late_rank(void) {
    if (rank == last) sleep(6);
    sum(1);
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
#define WAY(name) {#name, name}
    WAY(missing_rank), WAY(endless_computation), WAY(input_wait), WAY(sleeping_rank),
    WAY(stopped_rank), WAY(child_wait), WAY(killed_rank), WAY(early_end), WAY(fewer_turns),
    WAY(half_of_a_group), WAY(wrong_root), WAY(wrong_kind), WAY(wrong_count), WAY(wrong_type),
    WAY(wrong_operation), WAY(order_of_two), WAY(reduce_in_place_of_bcast), WAY(request_wait),
    WAY(making_of_a_communicator), WAY(point_to_point_first), WAY(late_rank),
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    last = size - 1;
    MPI_Comm_dup(world, &other);
    if (argc > 1 && strcmp(argv[1], "half_of_a_group") == 0)
        MPI_Comm_split(world, rank < 2, rank, &other);
    sum(1);
    broadcast(0, other);
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(argv[1], ways[i].name) == 0) ways[i].run();
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (!is_finalized) MPI_Finalize();
    printf("ended\n");
    return 0;
}
