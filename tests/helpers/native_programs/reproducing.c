/* Sums whose bits show in which order ranks are combined: all must be those of the rank tree. */
#include <mpi.h>
#include <stdio.h>

#define N 64

static double value(int rank, int i) {
    static const double huge[] = {1e16, -1e16, 1.0, 3.0, 0.5};
    return huge[(i * (rank + 2) + rank) % 5] + 0.1 * rank + 0.01 * i;
}

/* The first 2^k < n ranks in their tree, the others in theirs, then both. */
static double in_rank_tree(int first, int n, int i) {
    if (n == 1) return value(first, i);
    int left = 1;
    while (2 * left < n) left *= 2;
    return in_rank_tree(first, left, i) + in_rank_tree(first + left, n - left, i);
}

static int count_wrong(const double *found, int n_ranks, int n, int first) {
    int wrong = 0;
    for (int i = 0; i < n && n_ranks > 0; i++)
        wrong += found[i] != in_rank_tree(0, n_ranks, first + i);
    return wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double sent[N], found[N];
    int block = N / size, wrong = 0;
    for (int i = 0; i < N; i++) sent[i] = value(rank, i);
    MPI_Allreduce(sent, found, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += count_wrong(found, size, N, 0);
    MPI_Reduce(sent, found, N, MPI_DOUBLE, MPI_SUM, size - 1, MPI_COMM_WORLD);
    wrong += count_wrong(found, rank == size - 1 ? size : 0, N, 0);
    MPI_Reduce_scatter_block(sent, found, block, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += count_wrong(found, size, block, rank * block);
    MPI_Scan(sent, found, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += count_wrong(found, rank + 1, N, 0);
    MPI_Exscan(sent, found, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += count_wrong(found, rank, N, 0);
    int total = 0;
    PMPI_Reduce(&wrong, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", total);
    MPI_Finalize();
    return 0;
}
