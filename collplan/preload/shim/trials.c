/* Trials of plans for the calls of a signature that no sweep covers, on all ranks of a communicator.
 *
 * The helper of rank 0 knows the rules, see trials.py. Calls are native and timed until it says that a
 * trial pays. Then native MPI and the plans that it proposes run the calls of the program in turns.
 * Before each call, ranks agree on the time of the slowest rank in the call before. Before each turn,
 * rank 0 tells the others in which order the contestants run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MOST_PLANS 3
#define MOST_CALLS 40          /* calls of a trial: 10 turns of native MPI and the plans */
#define ENDED_EARLY "a trial of plans has ended early"
#define TOO_MANY "there are more plans or calls than in any trial"
#define FAILED_NS (1LL << 62) /* in place of the time of a call that has failed */

struct contestant {
    struct cp_plan *plan; /* NULL for native MPI */
    struct cp_row *row;
    char *label;
};
struct cp_trial {
    char *why; /* reason of native calls before the trial */
    /* Before the trial: native calls until ranks meet, in all and from now on, and their time. */
    int64_t n_calls, n_left, native_ns;
    /* No trial pays before native calls have taken `pays_ns`, if it costs `cost_ns`. */
    int64_t pays_ns, cost_ns;
    /* In the trial: the contestants, first native MPI, the turn, and the calls so far. */
    int n;
    struct contestant contestants[MOST_PLANS + 1];
    int64_t turn[MOST_PLANS + 1], n_turn, place;
    int64_t times[MOST_CALLS], n_times;
    const struct contestant *current;
    int64_t spent_ns;    /* time of the last call; before the first call, of making the plans */
    bool has_begun;      /* whether a call has been made */
    bool is_made_again;  /* whether the next call replaces one that MPI has rejected */
};

bool cp_has_plans(const struct cp_route *route) {
    return route->plan != NULL || (route->trial != NULL && route->trial->n > 0);
}

static void free_contestant(struct contestant *one) {
    if (one->plan != NULL) cp_free_plan(one->plan);
    free(one->label);
    *one = (struct contestant){NULL, NULL, NULL};
}

static void free_contestants(struct cp_trial *trial) {
    for (int i = 0; i < trial->n; i++) free_contestant(&trial->contestants[i]);
    trial->n = 0;
    trial->current = NULL;
}

void cp_free_trial(struct cp_trial *trial) {
    if (trial == NULL) return;
    free_contestants(trial);
    free(trial->why);
    free(trial);
}

/* Free the plans of a trial that has ended or cannot go on. */
static void end(struct cp_comm *comm, struct cp_trial *trial) {
    for (int i = 1; i < trial->n; i++) comm->n_plans -= trial->contestants[i].plan != NULL;
    free_contestants(trial);
}

static void wait_from_now(struct cp_comm *comm, struct cp_route *route) {
    struct cp_trial *trial = route->trial;
    trial->native_ns = trial->n_times = trial->n_turn = trial->place = 0;
    trial->has_begun = trial->is_made_again = false;
    trial->n_calls = trial->n_left = route->native_calls;
    route->native_s = route->chosen_s = -1;
    route->way = CP_TRYING;
    route->row = cp_native_row(comm, route, trial->why);
}

void cp_wait_for_trial(struct cp_comm *comm, struct cp_route *route, const char *why) {
    route->trial = calloc(1, sizeof *route->trial);
    if (route->trial == NULL || (route->trial->why = strdup(why)) == NULL) abort();
    wait_from_now(comm, route);
    /* This call is one of those calls. */
    route->trial->n_left--;
}

void cp_begin_anew(struct cp_comm *comm, struct cp_route *route) {
    end(comm, route->trial);
    if (route->plan != NULL) {
        cp_free_plan(route->plan);
        comm->n_plans--;
        route->plan = NULL;
    }
    wait_from_now(comm, route);
}

/* Leave all calls to MPI from now on; on all ranks. */
static void give_up(struct cp_comm *comm, struct cp_route *route, const char *what,
                    const char *why) {
    char text[1024];
    end(comm, route->trial);
    snprintf(text, sizeof text, "%s: %s", what, why);
    cp_make_native(comm, route, text);
}

/* Return the greatest time on all ranks; collective. */
static int64_t slowest(const struct cp_comm *comm, int64_t ns) {
    int64_t mine = -ns, found = 0;
    return cp_least(comm, &mine, &found, 1) ? -found : FAILED_NS;
}

/* Give all ranks the answer that rank 0 has got from its helper; collective. */
static struct cp_reply share(const struct cp_comm *comm, struct cp_reply reply) {
    MPI_Datatype byte = CP_HANDLE(MPI_Datatype, 0x4c00010d, ompi_mpi_byte);
    int64_t head[2] = {reply.status, reply.n_bytes};
    if (reply.bytes != NULL && reply.status != 0) head[1] = (int64_t)strlen(reply.bytes);
    bool is_first = comm->rank == 0;
    if (cp_real.Bcast(head, sizeof head, byte, 0, comm->comm) != MPI_SUCCESS) head[1] = 0;
    if (!is_first) reply.bytes = malloc((size_t)head[1] + 1);
    if (reply.bytes == NULL) abort(); /* as other ranks would wait for this one */
    reply.status = head[0];
    reply.n_bytes = head[1];
    if (cp_real.Bcast(reply.bytes, (int)head[1], byte, 0, comm->comm) != MPI_SUCCESS)
        reply.status = -1;
    reply.bytes[head[1]] = '\0';
    return reply;
}

/* Make plans, and begin a trial; collective. `text` has the label and the choice of each plan. */
static void begin_trial(struct cp_comm *comm, struct cp_route *route, const char *text, int64_t n,
                        int64_t begin_ns) {
    struct cp_trial *trial = route->trial;
    char *why = NULL;
    cp_settle(comm); /* ranks meet on that communicator, too */
    bool has_private = cp_make_private(comm);
    if (!comm->may_plan) __atomic_fetch_add(&cp_n_planning, 1, __ATOMIC_RELAXED);
    comm->may_plan = true;
    trial->n = 1;
    for (; n > 0 && has_private; n--) {
        const char *label = text, *choice = label + strlen(label) + 1;
        struct contestant *next = &trial->contestants[trial->n];
        text = choice + strlen(choice) + 1;
        route->last_used = ++comm->clock;
        cp_make_room(comm);
        free(why);
        why = NULL;
        route->choice = choice;
        next->plan = cp_make_plan(comm, route, NULL, &why);
        if (next->plan == NULL) continue;
        comm->n_plans++;
        next->label = strdup(label);
        if (next->label == NULL) abort();
        next->row = cp_row(comm->family, cp_name_of(&route->signature), label, CP_TRIED, comm->size,
                           route->signature.n_bytes, true, -1, -1);
        trial->n++;
    }
    route->choice = NULL;
    if (trial->n == 1)
        give_up(comm, route, "no plan to try",
                why != NULL ? why : CP_NO_PRIVATE);
    else trial->contestants[0].row = cp_native_row(comm, route, CP_TRIED);
    free(why);
    trial->spent_ns = cp_now_ns() - begin_ns;
}

/* Ask the helper whether a trial pays, and what is tried. */
static struct cp_reply ask_for_plans(const struct cp_comm *comm, const struct cp_route *route,
                                     int64_t native_ns) {
    int64_t words[3] = {route->trial->n_calls, native_ns, comm->trial_ns};
    char message[256 + sizeof words];
    int n = cp_write_question(comm, &route->signature, message, 256) + 1;
    memcpy(message + n, words, sizeof words);
    return cp_ask(comm->family, CP_TRY, message, n + (int64_t)sizeof words);
}

/* Answer of the helper. The label and the choice of each plan follow. */
struct offer {
    int64_t n_more, pays_ns, n_plans;
};

/* Decide whether a trial pays, and begin it; collective. */
static void meet(struct cp_comm *comm, struct cp_route *route) {
    struct cp_trial *trial = route->trial;
    struct cp_reply reply = {0, 0, NULL};
    struct offer offer = {.n_more = 0};
    int64_t begin_ns = cp_now_ns(), native_ns = slowest(comm, trial->native_ns);
    if (native_ns < trial->pays_ns && trial->cost_ns == comm->trial_ns) {
        trial->n_left = trial->n_calls;
        trial->n_calls *= 2;
        return;
    }
    if (comm->rank == 0) reply = ask_for_plans(comm, route, native_ns);
    /* The other ranks leave their cores to the helper meanwhile. */
    bool has_room = comm->may_plan || cp_n_planning < CP_MOST_COMMS;
    has_room = cp_all_well(comm->comm, has_room, 0);
    reply = share(comm, reply);
    bool is_well = reply.status == 0 && reply.n_bytes >= (int64_t)sizeof offer;
    if (is_well) memcpy(&offer, reply.bytes, sizeof offer);
    if (!has_room) {
        cp_make_native(comm, route, CP_FULL);
    } else if (!is_well || offer.n_plans > MOST_PLANS) {
        give_up(comm, route, "no plan to try", is_well ? TOO_MANY : reply.bytes);
    } else if (offer.n_more > 0) {
        trial->pays_ns = offer.pays_ns;
        trial->cost_ns = comm->trial_ns;
        trial->n_left = offer.n_more;
        trial->n_calls += offer.n_more;
    } else {
        trial->native_ns = native_ns;
        begin_trial(comm, route, reply.bytes + sizeof offer, offer.n_plans, begin_ns);
        __atomic_fetch_add(&comm->family->making_ns, cp_now_ns() - begin_ns, __ATOMIC_RELAXED);
    }
    free(reply.bytes);
}

/* End a trial whose winner is a plan, or native MPI. */
static void conclude(struct cp_comm *comm, struct cp_route *route, int64_t winner, const char *why) {
    struct cp_trial *trial = route->trial;
    if (winner == 0) {
        end(comm, trial);
        cp_make_native(comm, route, why);
        return;
    }
    struct contestant *best = &trial->contestants[winner];
    free(route->label);
    free(route->why);
    route->plan = best->plan;
    route->label = best->label;
    route->why = strdup(why);
    if (route->why == NULL) abort();
    best->plan = NULL;
    best->label = NULL;
    end(comm, trial);
    route->way = CP_PLANNED;
    route->row = cp_planned_row(comm, route);
}

/* Answer of the helper about the next turn. A text follows. */
struct turn {
    int64_t n, winner, order[MOST_PLANS + 1], excess_ns;
    double native_s, chosen_s;
};

static struct cp_reply ask_for_turn(const struct cp_comm *comm, const struct cp_trial *trial) {
    int64_t words[3] = {trial->n - 1, trial->native_ns, trial->n_times};
    size_t n_bytes = 0;
    char *message = NULL;
    FILE *stream = open_memstream(&message, &n_bytes);
    if (stream == NULL) abort(); /* as other ranks would wait for this one */
    fwrite(words, sizeof words, 1, stream);
    fwrite(trial->times, sizeof *trial->times, (size_t)trial->n_times, stream);
    for (int i = 1; i < trial->n; i++)
        fwrite(trial->contestants[i].label, strlen(trial->contestants[i].label) + 1, 1, stream);
    if (fclose(stream) != 0) abort();
    struct cp_reply reply = cp_ask(comm->family, CP_TURN, message, (int64_t)n_bytes);
    free(message);
    return reply;
}

/* Return the reason why an answer about the next turn is of no use, or NULL. */
static const char *read_turn(const struct cp_reply *reply, const struct cp_trial *trial,
                             struct turn *turn) {
    if (reply->status != 0 || reply->n_bytes <= (int64_t)sizeof *turn) return reply->bytes;
    memcpy(turn, reply->bytes, sizeof *turn);
    bool is_fitting = turn->n >= 0 && turn->n <= trial->n &&
                      trial->n_times + turn->n <= MOST_CALLS && turn->winner >= 0 &&
                      turn->winner < trial->n;
    for (int64_t i = 0; is_fitting && i < turn->n; i++)
        is_fitting = turn->order[i] >= 0 && turn->order[i] < trial->n;
    return is_fitting ? NULL : TOO_MANY;
}

/* Begin the next turn of a trial, or end the trial; collective. */
static void begin_turn(struct cp_comm *comm, struct cp_route *route) {
    struct cp_trial *trial = route->trial;
    struct cp_reply reply = {0, 0, NULL};
    struct turn turn = {.n = 0};
    if (comm->rank == 0) reply = ask_for_turn(comm, trial);
    reply = share(comm, reply);
    const char *why = read_turn(&reply, trial, &turn);
    /* Ranks get the answer at different times, which must not be part of the time of a call. */
    if (slowest(comm, why == NULL ? 0 : FAILED_NS) >= FAILED_NS) {
        give_up(comm, route, ENDED_EARLY, why != NULL ? why : "ranks cannot meet");
    } else if (turn.n == 0) {
        comm->trial_ns += turn.excess_ns;
        route->native_s = turn.native_s;
        route->chosen_s = turn.chosen_s;
        conclude(comm, route, turn.winner, reply.bytes + sizeof turn);
    } else {
        memcpy(trial->turn, turn.order, sizeof turn.order);
        trial->n_turn = turn.n;
        trial->place = 0;
    }
    free(reply.bytes);
}

/* Choose the contestant that runs this call, or end the trial; collective. */
static void take_turn(struct cp_comm *comm, struct cp_route *route) {
    struct cp_trial *trial = route->trial;
    int64_t spent_ns = slowest(comm, trial->spent_ns);
    if (spent_ns >= FAILED_NS) {
        give_up(comm, route, ENDED_EARLY, "a call has failed on a rank");
        return;
    }
    if (trial->has_begun) trial->times[trial->n_times++] = spent_ns;
    else comm->trial_ns = spent_ns;
    trial->has_begun = true;
    if (trial->place == trial->n_turn) begin_turn(comm, route);
    if (route->way != CP_TRYING) return;
    trial->current = &trial->contestants[trial->turn[trial->place++]];
    route->row = trial->current->row;
}

void cp_try(struct cp_comm *comm, struct cp_route *route) {
    struct cp_trial *trial = route->trial;
    if (trial->is_made_again) {
        /* Other ranks wait in this call, on which all have agreed before. */
        trial->is_made_again = false;
        return;
    }
    if (trial->n == 0 && trial->n_left == 0) meet(comm, route);
    if (route->way != CP_TRYING) return;
    if (trial->n > 0) take_turn(comm, route);
    else trial->n_left--;
}

struct cp_plan *cp_tried_plan(const struct cp_route *route) {
    const struct cp_trial *trial = route->trial;
    return trial->n > 0 ? trial->current->plan : NULL;
}

void cp_note_tried(struct cp_route *route, int code, int64_t ns) {
    struct cp_trial *trial = route->trial;
    bool is_rejected = code != MPI_SUCCESS && cp_is_rejected(code);
    if (trial->n == 0) {
        trial->native_ns += ns;
        if (is_rejected) trial->n_left++;
    } else if (is_rejected && trial->current->plan == NULL) {
        trial->is_made_again = true;
    } else {
        trial->spent_ns = code == MPI_SUCCESS ? ns : FAILED_NS;
    }
}
