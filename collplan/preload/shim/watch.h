/* What a rank does now, in memory that the watcher of its node reads.
 *
 * Python reads the same records: collplan/watch/area.py has the same fields. All numbers have 64 bits.
 * The rank writes by plain stores, so the memory says what the rank did last, also if the rank has
 * been killed. */
#ifndef COLLPLAN_WATCH_H
#define COLLPLAN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "mpi_abi.h"

#define CP_N_SEEN 16         /* number of latest calls that a rank's memory has */
#define CP_N_SEEN_COMMS 64   /* number of communicators that it has */
#define CP_NAME_BYTES 24
#define CP_PLACE_BYTES 128

enum cp_seen_state { CP_SEEN_WRITING, CP_SEEN_INSIDE, CP_SEEN_LEFT, CP_SEEN_STARTED };

/* A call of a collective. */
struct cp_seen {
    int64_t number;            /* number of the call on this rank, from 1 on */
    int64_t state;             /* a cp_seen_state */
    int64_t comm, order;       /* place of the communicator, and number of the call on it, from 1 on */
    int64_t root, n_bytes;     /* -1 if they need not be the same on all ranks */
    int64_t site;              /* return address; 0 if `place` has the site */
    char name[CP_NAME_BYTES];  /* such as "allreduce", or "Iallreduce" for the non-blocking form */
    char element[16], op[16];  /* empty if they are not predefined */
    char place[CP_PLACE_BYTES]; /* site in a Python program as text, if sites were asked for */
};

/* A communicator of more than one rank. */
struct cp_seen_comm {
    int64_t key;               /* the same on all ranks of the communicator; 0 if the place is free */
    int64_t size, rank, n_calls;
    int64_t site;              /* return address of the call that has made it; 0 if it is unknown */
    char made_by[CP_NAME_BYTES];
};

/* A call that waits for a message or a request. */
struct cp_waiting {
    int64_t number, is_inside; /* number of such calls, and whether the rank is inside */
    int64_t site, peer, tag;   /* rank in the communicator, and tag; -1 if there is none */
    char name[CP_NAME_BYTES];
};

/* Memory of one rank. */
struct cp_watched {
    int64_t pid, world_rank, n_calls, is_finalized;
    int64_t mismatch, answered; /* number of a call that differs on another rank, and the watcher's answer */
    /* Of a Python program: whether it tells where it is, the watcher's last question, and the last one that
     * was answered; the thread that made the latest call; and the answer. */
    int64_t can_tell, asked, told, thread;
    char now[CP_PLACE_BYTES];
    struct cp_waiting waiting;
    struct cp_seen seen[CP_N_SEEN];
    struct cp_seen_comm comms[CP_N_SEEN_COMMS];
} __attribute__((aligned(64)));

/* A blocking call with its times, if these are written to a file. */
struct cp_traced {
    int64_t key, size, member, order, root, n_bytes, site, enter_ns, leave_ns;
    const char *place; /* site in a Python program as text, or NULL */
    char name[CP_NAME_BYTES];
};

/* A call that has begun, for cp_leave. */
struct cp_mark {
    struct cp_seen *seen; /* NULL if it is not watched */
    int64_t number;
    struct cp_traced *traced; /* NULL if its times are not written */
};

struct cp_call;
struct cp_vector_call;
struct cp_comm;

extern bool cp_is_watched, cp_is_traced;
extern __thread const void *cp_site; /* return address of the call of this thread */

/* Share memory with the ranks of a node, of which this is `rank`, if the environment asks for it;
 * collective. */
void cp_watch_share(MPI_Comm node, int rank, int size);
/* Have the helper watch the ranks of this node. */
void cp_watch_begin(void);
/* Note that this rank calls MPI_Finalize. */
void cp_watch_end(void);

/* Note that a blocking call begins, or that a non-blocking one is started. */
struct cp_mark cp_enter(const char *name, MPI_Comm comm, int64_t root, bool is_started);
struct cp_mark cp_enter_call(const struct cp_call *call, bool is_started);
struct cp_mark cp_enter_vector(const struct cp_vector_call *call);
/* Note that it has returned. */
void cp_leave(struct cp_mark mark);
/* Note that it has returned with a code. A call whose arguments MPI has rejected on this rank alone is
 * not counted, as other ranks still wait for it. */
void cp_leave_with(struct cp_mark mark, int code);
/* Note that this rank waits for a message or a request, or no longer does. */
void cp_await_begin(const char *name, int64_t peer, int64_t tag);
void cp_await_end(void);
/* Return the number of watched calls of this rank. */
int64_t cp_n_watched(void);
/* python.c: call sites of Python programs. Return whether this is one. */
bool cp_find_python(void);
/* Return the call site of this thread as text, or NULL. */
const char *cp_python_place(void);
/* Have a thread tell the watcher where this rank is, when it asks. */
void cp_tell_places(struct cp_watched *rank);
/* trace.c: times of calls. Return whether the environment asks for them. */
bool cp_trace_begin(void);
/* Return the record of another call, or NULL if there is no room. */
struct cp_traced *cp_trace(void);
/* Write the records of this rank. */
void cp_trace_end(int rank);
/* Note a communicator that a function, which is collective over `parent`, has made. */
void cp_note_made(MPI_Comm parent, MPI_Comm made, const char *name);
/* Note that a communicator is freed. */
void cp_watch_free(const struct cp_comm *comm);

#endif
