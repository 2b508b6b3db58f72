/* Times loops of collectives, as the Intel MPI Benchmarks do.
 *
 * loops SECONDS: for each collective and size, rank 0 prints the name, the bytes, and the time per call of
 * the slowest rank in microseconds. A loop takes about SECONDS. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST (1 << 20)

static char *sent, *received;
static int size;

static void allreduce(int n) {
    MPI_Allreduce(sent, received, n / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce(int n) {
    MPI_Reduce(sent, received, n / 4, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void bcast(int n) { MPI_Bcast(sent, n, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void allgather(int n) {
    MPI_Allgather(sent, n, MPI_BYTE, received, n, MPI_BYTE, MPI_COMM_WORLD);
}
static void alltoall(int n) {
    MPI_Alltoall(sent, n, MPI_BYTE, received, n, MPI_BYTE, MPI_COMM_WORLD);
}
static const struct {
    const char *name;
    void (*call)(int);
    int least;
} kinds[] = {{"allreduce", allreduce, 4},
             {"reduce", reduce, 4},
             {"bcast", bcast, 1},
             {"allgather", allgather, 1},
             {"alltoall", alltoall, 1}};

static double run(void (*call)(int), int n_bytes, int n_calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), own, slowest;
    for (int i = 0; i < n_calls; i++) call(n_bytes);
    own = MPI_Wtime() - begin;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / n_calls;
}

int main(int argc, char **argv) {
    int rank;
    double seconds = argc > 1 ? atof(argv[1]) : 0.02;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sent = calloc((size_t)size, MOST);
    received = calloc((size_t)size, MOST);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int n = kinds[k].least; n <= MOST; n *= 4) {
            /* Plans are made meanwhile. */
            double guess = run(kinds[k].call, n, 10);
            int n_calls = (int)(seconds / (guess > 1e-7 ? guess : 1e-7)) + 1;
            run(kinds[k].call, n, n_calls);
            double found = run(kinds[k].call, n, n_calls);
            if (rank == 0) printf("%s %d %.3f\n", kinds[k].name, n, 1e6 * found);
        }
    MPI_Finalize();
    free(sent);
    free(received);
    return 0;
}
