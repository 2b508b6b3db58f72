/* Calls collectives on all ranks but the last, and compares each result with that of PMPI.
 *
 * tried N: N calls of each collective in turns. tried N wait: rank 0 says that it is running after a third
 * of them, and waits for a line of input. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 50
#define MOST_RANKS 16

static int rank, size, n_wrong;
static int sent[COUNT * MOST_RANKS], received[COUNT * MOST_RANKS], expected[COUNT * MOST_RANKS];

static void fill(int turn) {
    for (int i = 0; i < COUNT * MOST_RANKS; i++) {
        sent[i] = 1000 * rank + 7 * turn + i;
        received[i] = expected[i] = -1 - i;
    }
}

static void compare(const char *what, int turn) {
    if (memcmp(received, expected, sizeof received) == 0) return;
    n_wrong++;
    fprintf(stderr, "rank %d: %s, call %d is wrong\n", rank, what, turn);
}

static void call(MPI_Comm comm, int turn) {
    fill(turn);
    MPI_Allreduce(sent, received, COUNT, MPI_INT, MPI_SUM, comm);
    PMPI_Allreduce(sent, expected, COUNT, MPI_INT, MPI_SUM, comm);
    compare("allreduce", turn);
    fill(turn);
    memcpy(received, sent, sizeof sent);
    memcpy(expected, sent, sizeof sent);
    MPI_Bcast(received, COUNT, MPI_INT, size - 1, comm);
    PMPI_Bcast(expected, COUNT, MPI_INT, size - 1, comm);
    compare("bcast", turn);
    fill(turn);
    MPI_Allgather(sent, COUNT, MPI_INT, received, COUNT, MPI_INT, comm);
    PMPI_Allgather(sent, COUNT, MPI_INT, expected, COUNT, MPI_INT, comm);
    compare("allgather", turn);
    fill(turn);
    memcpy(received, sent, sizeof sent);
    memcpy(expected, sent, sizeof sent);
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : sent, received, COUNT, MPI_INT, MPI_MAX, 0, comm);
    PMPI_Reduce(rank == 0 ? MPI_IN_PLACE : sent, expected, COUNT, MPI_INT, MPI_MAX, 0, comm);
    compare("reduce", turn);
    MPI_Barrier(comm);
}

int main(int argc, char **argv) {
    int n_calls = argc > 1 ? atoi(argv[1]) : 50, all_wrong = 0, n_ranks;
    int waits = argc > 2 && strcmp(argv[2], "wait") == 0;
    MPI_Comm part;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    MPI_Comm_split(MPI_COMM_WORLD, rank < n_ranks - 1 ? 0 : MPI_UNDEFINED, rank, &part);
    if (part != MPI_COMM_NULL) {
        MPI_Comm_size(part, &size);
        for (int turn = 0; turn < n_calls; turn++) {
            if (waits && turn == n_calls / 3) {
                if (rank == 0) {
                    printf("running\n");
                    fflush(stdout);
                    if (getchar() == EOF) fprintf(stderr, "no input\n");
                }
                PMPI_Barrier(part);
            }
            call(part, turn);
        }
        MPI_Comm_free(&part);
    }
    PMPI_Reduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
