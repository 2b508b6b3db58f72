/* Call sites of Python programs, which functions of the interpreter find.
 *
 * These functions need the lock of the interpreter, which Python modules release before they call MPI. A call
 * that takes the lock may wait for other threads of the program. Therefore calls take it only with --check and
 * for traces. Otherwise a thread of this library takes it, when the watcher asks where the program is. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

#define N_CHAINS 256
#define PAUSE_NS 250000000 /* pause of the thread between two looks at the questions of the watcher */

/* Functions of the interpreter: result, name and parameters. Objects of PyEval_GetFrame, PySys_GetObject and
 * PyDict_GetItem are borrowed; others must be released. */
#define FUNCTIONS(X) \
    X(int, PyGILState_Ensure, (void)) X(void, PyGILState_Release, (int)) \
    X(int, Py_IsInitialized, (void)) X(void, Py_DecRef, (void *)) X(void, PyErr_Clear, (void)) \
    X(void *, PyEval_GetFrame, (void)) X(int, PyFrame_GetLineNumber, (void *)) \
    X(void *, PyFrame_GetCode, (void *)) X(void *, PyObject_GetAttrString, (void *, const char *)) \
    X(const char *, PyUnicode_AsUTF8, (void *)) X(void *, PySys_GetObject, (const char *)) \
    X(void *, PyObject_CallObject, (void *, void *)) X(void *, PyLong_FromUnsignedLong, (unsigned long)) \
    X(void *, PyDict_GetItem, (void *, void *))
#define X(result, name, parameters) result (*name) parameters;
static struct { FUNCTIONS(X) } python;
#undef X

/* Texts of call sites, which are kept until the program ends. */
struct text {
    struct text *next;
    char bytes[];
};
static struct text *chains[N_CHAINS];
static struct cp_watched *own; /* memory of this rank */
static unsigned long main_thread;

bool cp_find_python(void) {
#define X(result, name, parameters) \
    if ((*(void **)&python.name = cp_symbol(#name)) == NULL) return false;
    FUNCTIONS(X)
#undef X
    return python.Py_IsInitialized();
}

static const char *attribute(void *object, const char *name, void **owner) {
    *owner = python.PyObject_GetAttrString(object, name);
    const char *found = *owner != NULL ? python.PyUnicode_AsUTF8(*owner) : NULL;
    return found != NULL ? found : "?";
}

/* Write a call site: the function, the file and the line of a frame. The caller has the lock. */
static void describe(void *frame, char *text) {
    void *code = python.PyFrame_GetCode(frame), *owners[2] = {NULL, NULL};
    const char *function = attribute(code, "co_name", &owners[0]);
    const char *file = attribute(code, "co_filename", &owners[1]), *folder = strrchr(file, '/');
    if (strcmp(function, "<module>") == 0) function = "the program";
    snprintf(text, CP_PLACE_BYTES, "%s (%s:%d)", function, folder != NULL ? folder + 1 : file,
             python.PyFrame_GetLineNumber(frame));
    for (int i = 0; i < 2; i++)
        if (owners[i] != NULL) python.Py_DecRef(owners[i]);
    python.Py_DecRef(code);
    python.PyErr_Clear();
}

/* Return the kept copy of a text. The caller has the lock. */
static const char *keep(const char *bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = bytes; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    struct text **chain = &chains[(hash >> 32) % N_CHAINS], *found = *chain;
    while (found != NULL && strcmp(found->bytes, bytes) != 0) found = found->next;
    if (found == NULL) {
        size_t n_bytes = strlen(bytes) + 1;
        found = malloc(sizeof *found + n_bytes);
        if (found == NULL) return NULL;
        memcpy(found->bytes, bytes, n_bytes);
        found->next = *chain;
        *chain = found;
    }
    return found->bytes;
}

const char *cp_python_place(void) {
    char text[CP_PLACE_BYTES];
    int state = python.PyGILState_Ensure();
    void *frame = python.PyEval_GetFrame();
    const char *found = NULL;
    if (frame != NULL) {
        describe(frame, text);
        found = keep(text);
    }
    python.PyGILState_Release(state);
    return found;
}

/* Write where the thread is that made the latest call, or else the main thread. */
static void tell(void) {
    unsigned long thread = own->thread != 0 ? (unsigned long)own->thread : main_thread;
    int state = python.PyGILState_Ensure();
    void *current = python.PySys_GetObject("_current_frames");
    void *frames = current != NULL ? python.PyObject_CallObject(current, NULL) : NULL;
    void *key = python.PyLong_FromUnsignedLong(thread);
    void *frame = frames != NULL && key != NULL ? python.PyDict_GetItem(frames, key) : NULL;
    own->now[0] = '\0';
    if (frame != NULL) describe(frame, own->now);
    if (key != NULL) python.Py_DecRef(key);
    if (frames != NULL) python.Py_DecRef(frames);
    python.PyErr_Clear();
    python.PyGILState_Release(state);
}

static void *answer(void *unused) {
    struct timespec pause = {0, PAUSE_NS};
    (void)unused;
    while (__atomic_load_n(&own->can_tell, __ATOMIC_ACQUIRE)) {
        int64_t asked = __atomic_load_n(&own->asked, __ATOMIC_ACQUIRE);
        if (asked != own->told) {
            tell();
            __atomic_store_n(&own->told, asked, __ATOMIC_RELEASE);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

void cp_tell_places(struct cp_watched *rank) {
    pthread_t thread;
    sigset_t all, before;
    own = rank;
    main_thread = (unsigned long)pthread_self();
    own->can_tell = 1;
    /* Signals of the program are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, answer, NULL) == 0) pthread_detach(thread);
    else own->can_tell = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
