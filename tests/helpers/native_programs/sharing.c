/* Non-blocking collectives whose plans share memory, many in flight at a time; prints how many results
 * were wrong.
 *
 * sharing [wait]: with this word, rank 0 says that it is running and waits for a line of input before
 * the blocking call that makes the memory. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define COUNT 500
#define LARGE (1 << 17)
#define MANY 40
static int rank, size, n_wrong;
static double sent[LARGE], received[LARGE];

struct sum {
    double sent[COUNT], received[COUNT];
    int n, add;
    MPI_Request request;
};
static struct sum sums[MANY];

static void start(struct sum *sum, int n, int add, MPI_Comm comm) {
    sum->n = n;
    sum->add = add;
    for (int i = 0; i < n; i++) sum->sent[i] = rank + i + add;
    MPI_Iallreduce(sum->sent, sum->received, n, MPI_DOUBLE, MPI_SUM, comm, &sum->request);
}

static void end(struct sum *sum) {
    int which;
    switch (sum->add % 3) {
    case 0: MPI_Wait(&sum->request, MPI_STATUS_IGNORE); break;
    case 1: MPI_Waitany(1, &sum->request, &which, MPI_STATUS_IGNORE); break;
    default:
        for (which = 0; !which;) MPI_Test(&sum->request, &which, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < sum->n; i++)
        n_wrong += sum->received[i] != size * (i + sum->add) + size * (size - 1) / 2.0;
}

/* Starts of several signatures, which each rank completes in another order. */
static void start_many(MPI_Comm comm) {
    for (int i = 0; i < MANY; i++) start(&sums[i], i % 3 ? COUNT : COUNT / 2, i, comm);
    for (int i = 0; i < MANY; i++) end(&sums[rank % 2 ? i : MANY - 1 - i]);
}

/* Calls that run natively before their memory is made. */
static void start_large(int add) {
    MPI_Request request;
    for (int i = 0; i < LARGE; i++) sent[i] = rank + add;
    MPI_Iallreduce(sent, received, LARGE, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < LARGE; i++) n_wrong += received[i] != size * add + size * (size - 1) / 2.0;
}

int main(int argc, char **argv) {
    int all_wrong = 0, provided;
    MPI_Comm comm;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    start_many(MPI_COMM_WORLD);
    for (int turn = 0; turn < 4; turn++) start_large(turn);
    if (argc > 1 && strcmp(argv[1], "wait") == 0 && rank == 0) {
        printf("running\n");
        fflush(stdout);
        if (getchar() == EOF) fprintf(stderr, "no input\n");
    }
    /* Ranks make the memory while calls are in flight. */
    for (int i = 0; i < 6; i++) start(&sums[i], COUNT, i, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 6; i++) end(&sums[5 - i]);
    for (int turn = 0; turn < 4; turn++) start_many(MPI_COMM_WORLD);
    for (int turn = 0; turn < 4; turn++) start_large(turn);
    for (int turn = 0; turn < 3; turn++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        start_many(comm);
        MPI_Barrier(comm);
        start_many(comm);
        MPI_Barrier(comm);
        for (int n = COUNT; n > COUNT - 12; n--) /* of more signatures than may share memory */
            for (int i = 0; i < 4; i++) {
                start(&sums[0], n, i, comm);
                end(&sums[0]);
                MPI_Barrier(comm);
            }
        start(&sums[0], COUNT, 1, comm);
        start(&sums[1], COUNT, 2, comm);
        MPI_Comm_free(&comm);
        end(&sums[1]);
        end(&sums[0]);
    }
    MPI_Allreduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
