/* Trees of non-blocking collectives whose levels ranks run on their own cores; prints how many results
 * were wrong.
 *
 * The last calls are made while ranks compute for a while, wait in other functions of MPI, or free the
 * communicator. */
#include <mpi.h>
#include <stdio.h>

#define COUNT 500
#define TURNS 30
#define N_KINDS 3
static int rank, size, n_wrong;

struct call {
    double sent[COUNT], received[COUNT];
    MPI_Request request;
};

static void start(struct call *call, int kind, int turn, MPI_Comm comm) {
    for (int i = 0; i < COUNT; i++) {
        call->sent[i] = rank + i + turn;
        call->received[i] = kind == 0 && rank == 0 ? i + turn : -1;
    }
    if (kind == 0)
        MPI_Ibcast(call->received, COUNT, MPI_DOUBLE, 0, comm, &call->request);
    else if (kind == 1)
        MPI_Ireduce(call->sent, call->received, COUNT, MPI_DOUBLE, MPI_SUM, 0, comm, &call->request);
    else
        MPI_Iallreduce(call->sent, call->received, COUNT, MPI_DOUBLE, MPI_SUM, comm, &call->request);
}

static void check(const struct call *call, int kind, int turn) {
    for (int i = 0; i < COUNT; i++) {
        double sum = size * (i + turn) + size * (size - 1) / 2.0;
        double expected = kind == 0 ? i + turn : kind == 2 || rank == 0 ? sum : -1;
        n_wrong += call->received[i] != expected;
    }
}

static void compute(double seconds) {
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end) {}
}

/* Complete a request by one of the functions that wait. */
static void wait_for(MPI_Request *request, int how) {
    int which;
    switch (how % 4) {
    case 0: MPI_Wait(request, MPI_STATUS_IGNORE); break;
    case 1: MPI_Waitall(1, request, MPI_STATUSES_IGNORE); break;
    case 2: MPI_Waitany(1, request, &which, MPI_STATUS_IGNORE); break;
    default: MPI_Waitsome(1, request, &which, &(int){0}, MPI_STATUSES_IGNORE);
    }
}

/* The first rank may wait elsewhere, and only then for its request. */
static void wait_elsewhere(int turn, MPI_Comm comm) {
    static struct call calls[N_KINDS];
    int word = 0;
    for (int kind = 0; kind < N_KINDS; kind++) start(&calls[kind], kind, turn, comm);
    if (rank == 0)
        for (int from = 1; from < size; from++)
            MPI_Recv(&word, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int kind = N_KINDS - 1; kind >= 0; kind--) wait_for(&calls[kind].request, turn + kind);
    if (rank != 0) MPI_Send(&rank, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    for (int kind = 0; kind < N_KINDS; kind++) check(&calls[kind], kind, turn);
}

/* A request may be started again and again. */
static void start_again(void) {
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
    static struct call call;
    MPI_Allreduce_init(call.sent, call.received, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &call.request);
    for (int turn = 0; turn < 8; turn++) {
        for (int i = 0; i < COUNT; i++) call.sent[i] = rank + i + turn;
        MPI_Start(&call.request);
        wait_for(&call.request, turn);
        check(&call, 2, turn);
    }
    MPI_Request_free(&call.request);
#endif
}

int main(int argc, char **argv) {
    static struct call call, many[4];
    int all_wrong = 0;
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < TURNS; turn++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            start(&call, kind, turn, MPI_COMM_WORLD);
            if (turn % 8 == 7) compute(1e-3 * (1 + rank % 2));
            wait_for(&call.request, turn);
            check(&call, kind, turn);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    for (int turn = 0; turn < 4; turn++) wait_elsewhere(turn, MPI_COMM_WORLD);
    start_again();
    /* Several of one signature, which each rank completes in another order. */
    for (int turn = 0; turn < 4; turn++) start(&many[turn], 1, turn, MPI_COMM_WORLD);
    for (int turn = 0; turn < 4; turn++) {
        int which = rank % 2 ? turn : 3 - turn;
        wait_for(&many[which].request, turn);
        check(&many[which], 1, which);
    }
    /* Ranks may free a communicator before they have waited for the call that agrees on times. */
    for (int n_calls = 9; n_calls < 13; n_calls++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        start(&call, 2, 0, comm);
        wait_for(&call.request, 0);
        MPI_Barrier(comm);
        for (int turn = 0; turn < n_calls; turn++) {
            start(&call, 2, turn, comm);
            if (turn == n_calls - 1) MPI_Comm_free(&comm);
            wait_for(&call.request, turn);
            check(&call, 2, turn);
        }
    }
    MPI_Allreduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    MPI_Finalize();
    return all_wrong != 0;
}
