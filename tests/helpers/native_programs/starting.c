/* Non-blocking collectives in flight beside all else that a program may do; prints how many results
 * were wrong.
 *
 * starting [unended|wait]: with the first word, rank 0 does not complete its last request. With the
 * other, rank 0 says that it is running, waits for a line of input, and all go on with sums of another
 * size. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define COUNT 500
#define MANY 100
static int rank, size, n_wrong, count = COUNT;

struct sum {
    double sent[COUNT], received[COUNT];
    int add;
    MPI_Request request;
};

static void start(struct sum *sum, int add, MPI_Comm comm) {
    sum->add = add;
    for (int i = 0; i < count; i++) sum->sent[i] = rank + i + add;
    MPI_Iallreduce(sum->sent, sum->received, count, MPI_DOUBLE, MPI_SUM, comm, &sum->request);
}

static int check(const struct sum *sum) {
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += sum->received[i] != size * (i + sum->add) + size * (size - 1) / 2.0;
    return wrong;
}

static void end(struct sum *sum) {
    MPI_Wait(&sum->request, MPI_STATUS_IGNORE);
    n_wrong += check(sum);
}

/* A rank that waits in another function of MPI must not keep the others waiting. */
static void receive_in_between(void) {
    static struct sum sum;
    int word = 0;
    for (int turn = 0; turn < 10; turn++) {
        start(&sum, turn, MPI_COMM_WORLD);
        if (rank == 0) {
            for (int from = 1; from < size; from++)
                MPI_Recv(&word, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            end(&sum);
        } else {
            end(&sum);
            MPI_Send(&rank, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        }
    }
}

/* Calls of one signature, which each rank completes in another order. */
static void start_many(void) {
    static struct sum sums[MANY];
    for (int i = 0; i < MANY; i++) start(&sums[i], i, MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) end(&sums[rank % 2 ? i : MANY - 1 - i]);
}

/* A communicator may be freed before a call that uses it has ended. In this case, native calls of Open
 * MPI 5.0.11 crash, and those by a plan do not. */
static void free_communicators(void) {
    static struct sum sum;
    for (int turn = 0; turn < 5; turn++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < 5; i++) { /* the barrier makes what plans need */
            start(&sum, i, comm);
            if (i == 0) MPI_Barrier(comm);
            if (i < 4) end(&sum);
        }
        MPI_Comm_free(&comm);
        end(&sum);
    }
}

/* A datatype may be freed before a call that uses it has ended. */
static void free_datatypes(void) {
    int sent[3 * COUNT], all[3 * COUNT * 8];
    for (int turn = 0; turn < 5; turn++) {
        MPI_Datatype column;
        MPI_Request request;
        MPI_Type_vector(COUNT, 1, 3, MPI_INT, &column);
        MPI_Type_create_resized(column, 0, 3 * COUNT * sizeof(int), &column);
        MPI_Type_commit(&column);
        for (int i = 0; i < 3 * COUNT; i++) sent[i] = rank + i + turn;
        memset(all, 0, sizeof all);
        MPI_Iallgather(sent, 1, column, all, 1, column, MPI_COMM_WORLD, &request);
        MPI_Type_free(&column);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 3 * COUNT * size; i++)
            n_wrong += all[i] != (i % 3 ? 0 : i / (3 * COUNT) + i % (3 * COUNT) + turn);
    }
}

static MPI_Comm comms[2];
static int thread_wrong[2];

static void *start_in_thread(void *argument) {
    static struct sum sums[2];
    int which = *(int *)argument;
    for (int turn = 0; turn < 200; turn++) {
        start(&sums[which], turn + which, comms[which]);
        MPI_Wait(&sums[which].request, MPI_STATUS_IGNORE);
        thread_wrong[which] += check(&sums[which]);
    }
    return NULL;
}

static void start_in_threads(void) {
    int numbers[2] = {0, 1};
    pthread_t threads[2];
    static struct sum sum;
    for (int i = 0; i < 2; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        start(&sum, 1, comms[i]);
        end(&sum);
        MPI_Barrier(comms[i]);
    }
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, start_in_thread, &numbers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        n_wrong += thread_wrong[i];
        MPI_Comm_free(&comms[i]);
    }
}

/* Requests of plans beside those of messages and of native collectives. */
static void mix(void) {
    static struct sum sum;
    MPI_Request requests[4];
    int word = rank, other = -1, rooted = rank == size - 1 ? 7 : 0, is_done = 0, which, n_done;
    for (int turn = 0; turn < 20; turn++) {
        start(&sum, turn, MPI_COMM_WORLD);
        requests[0] = sum.request;
        MPI_Irecv(&other, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&word, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &requests[2]);
        MPI_Ibcast(&rooted, 1, MPI_INT, size - 1, MPI_COMM_WORLD, &requests[3]);
        if (turn % 4 == 0) MPI_Testany(4, requests, &which, &is_done, MPI_STATUS_IGNORE);
        if (turn % 4 == 1) MPI_Testsome(4, requests, &n_done, (int[4]){0}, MPI_STATUSES_IGNORE);
        if (turn % 4 == 2) MPI_Test(&requests[0], &is_done, MPI_STATUS_IGNORE);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        n_wrong += check(&sum) + (other != (rank + 1) % size) + (rooted != 7);
        for (int i = 0; i < 4; i++) n_wrong += requests[i] != MPI_REQUEST_NULL;
    }
}

static void wait_for_input(void) {
    if (rank == 0) {
        printf("running\n");
        fflush(stdout);
        if (getchar() == EOF) fprintf(stderr, "no input\n");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    count = COUNT / 2;
}

int main(int argc, char **argv) {
    int all_wrong, level;
    const char *word = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Query_thread(&level);
    receive_in_between();
    start_many();
    if (strcmp(word, "wait") == 0) wait_for_input();
    start_many();
    if (strcmp(word, "wait") != 0) free_communicators();
    free_datatypes();
    if (level == MPI_THREAD_MULTIPLE) start_in_threads();
    mix();
    MPI_Allreduce(&n_wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all_wrong);
    if (strcmp(word, "unended") == 0) {
        static struct sum sum;
        start(&sum, 1, MPI_COMM_WORLD);
        if (rank != 0) end(&sum);
    }
    MPI_Finalize();
    return all_wrong != 0;
}
