/* In place of an MPI that rejects each first of two native reductions on rank 0, before any message: a
 * library to preload. If COLLPLAN_TEST_FAILS is n, native reduction n on rank 0 returns another error, after
 * it has run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

#define PARAMETERS \
    const void *sent, void *received, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm

/* The program's calls go to collplan's library, which calls the function below natively. */
int MPI_Reduce(PARAMETERS) { return PMPI_Reduce(sent, received, count, type, op, root, comm); }

int PMPI_Reduce(PARAMETERS) {
    static int n_calls;
    int rank, (*mpis)(PARAMETERS) = (int (*)(PARAMETERS))dlsym(RTLD_NEXT, "PMPI_Reduce");
    const char *fails = getenv("COLLPLAN_TEST_FAILS");
    MPI_Comm_rank(comm, &rank);
    n_calls++;
    if (fails == NULL && rank == 0 && n_calls % 2 == 1) return MPI_ERR_COUNT;
    int code = mpis(sent, received, count, type, op, root, comm);
    return fails != NULL && rank == 0 && n_calls == atoi(fails) ? MPI_ERR_INTERN : code;
}
