/* Functions that this library only watches: they make communicators, or wait for messages. */
#include "wrapping.h"

/* Define a function that makes a communicator, given its name, its name in reports, the number of its
 * arguments, and those with the communicator it is made from and with the result. The function is a
 * collective of the former, unless only the group of the result calls it. */
#define MAKING(name, shown, n, from, to, is_of_all) \
    static int make_##name(CP_L##n, void *next) { \
        cp_note_maker(); \
        if (!cp_is_watched) return ((int (*)(CP_L##n))next)(CP_A##n); \
        static const char padded[CP_NAME_BYTES] = shown; \
        struct cp_mark mark = {NULL, 0, NULL}; \
        if (is_of_all) mark = cp_enter(padded, (MPI_Comm)from, 0, false); \
        const void *site = cp_site; \
        int code = ((int (*)(CP_L##n))next)(CP_A##n); \
        cp_leave(mark); \
        cp_site = site; \
        if (code == MPI_SUCCESS) cp_note_made((MPI_Comm)from, *(MPI_Comm *)to, shown); \
        return code; \
    } \
    CP_WRAP(name, n, cp_settings.is_on, \
            make_##name(CP_A##n, name##_links.is_tool ? name##_links.own : name##_links.next))
MAKING(Comm_dup, "comm_dup", 2, a1, a2, true)
MAKING(Comm_dup_with_info, "comm_dup_with_info", 3, a1, a3, true)
MAKING(Comm_split, "comm_split", 4, a1, a4, true)
MAKING(Comm_split_type, "comm_split_type", 5, a1, a5, true)
MAKING(Comm_create, "comm_create", 3, a1, a3, true)
MAKING(Comm_create_group, "comm_create_group", 4, a1, a4, false)
MAKING(Cart_create, "cart_create", 6, a1, a6, true)
MAKING(Cart_sub, "cart_sub", 3, a1, a3, true)
MAKING(Graph_create, "graph_create", 6, a1, a6, true)
MAKING(Dist_graph_create, "dist_graph_create", 9, a1, a9, true)
MAKING(Dist_graph_create_adjacent, "dist_graph_create_adj", 10, a1, a10, true)

#define NATIVE 0
CP_WRAP_AWAIT(Send, 6, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Ssend, 6, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Recv, 7, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Probe, 4, false, NATIVE, (int)a1, (int)a2)
CP_WRAP_AWAIT(Sendrecv, 12, false, NATIVE, (int)a9, (int)a10)
CP_WRAP_AWAIT(Sendrecv_replace, 9, false, NATIVE, (int)a6, (int)a7)
#ifdef COLLPLAN_LARGE
CP_WRAP_AWAIT(Send_c, 6, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Ssend_c, 6, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Recv_c, 7, false, NATIVE, (int)a4, (int)a5)
CP_WRAP_AWAIT(Sendrecv_c, 12, false, NATIVE, (int)a9, (int)a10)
CP_WRAP_AWAIT(Sendrecv_replace_c, 9, false, NATIVE, (int)a6, (int)a7)
#endif
