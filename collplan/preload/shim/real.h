/* Functions of the MPI library. They are looked up when they are first needed, so that a process
 * without MPI can load this library. */
#ifndef COLLPLAN_REAL_H
#define COLLPLAN_REAL_H

#include "mpi_abi.h"

typedef int cp_copy_function(void *, int, void *, void *, void *, int *);
typedef int cp_comm_delete(MPI_Comm, int, void *, void *);
typedef int cp_type_delete(MPI_Datatype, int, void *, void *);
typedef int cp_query_function(void *, MPI_Status *);
typedef int cp_free_function(void *);
typedef int cp_cancel_function(void *, int);

#define CP_REAL(X) \
    X(int, Init, (int *, char ***)) \
    X(int, Init_thread, (int *, char ***, int, int *)) \
    X(int, Finalize, (void)) \
    X(int, Abort, (MPI_Comm, int)) \
    X(int, Get_library_version, (char *, int *)) \
    X(int, Comm_rank, (MPI_Comm, int *)) \
    X(int, Comm_size, (MPI_Comm, int *)) \
    X(int, Comm_test_inter, (MPI_Comm, int *)) \
    X(int, Error_class, (int, int *)) \
    X(int, Comm_group, (MPI_Comm, MPI_Group *)) \
    X(int, Group_difference, (MPI_Group, MPI_Group, MPI_Group *)) \
    X(int, Group_size, (MPI_Group, int *)) \
    X(int, Group_translate_ranks, (MPI_Group, int, const int *, MPI_Group, int *)) \
    X(int, Group_incl, (MPI_Group, int, const int *, MPI_Group *)) \
    X(int, Comm_create_group, (MPI_Comm, MPI_Group, int, MPI_Comm *)) \
    X(int, Group_free, (MPI_Group *)) \
    X(int, Comm_create, (MPI_Comm, MPI_Group, MPI_Comm *)) \
    X(int, Comm_split, (MPI_Comm, int, int, MPI_Comm *)) \
    X(int, Comm_split_type, (MPI_Comm, int, int, MPI_Info, MPI_Comm *)) \
    X(int, Comm_free, (MPI_Comm *)) \
    X(int, Comm_set_errhandler, (MPI_Comm, MPI_Errhandler)) \
    X(int, Comm_get_errhandler, (MPI_Comm, MPI_Errhandler *)) \
    X(int, Errhandler_free, (MPI_Errhandler *)) \
    X(int, Comm_call_errhandler, (MPI_Comm, int)) \
    X(int, Comm_create_keyval, (cp_copy_function *, cp_comm_delete *, int *, void *)) \
    X(int, Comm_set_attr, (MPI_Comm, int, void *)) \
    X(int, Comm_get_attr, (MPI_Comm, int, void *, int *)) \
    X(int, Comm_delete_attr, (MPI_Comm, int)) \
    X(int, Type_create_keyval, (cp_copy_function *, cp_type_delete *, int *, void *)) \
    X(int, Type_set_attr, (MPI_Datatype, int, void *)) \
    X(int, Type_get_attr, (MPI_Datatype, int, void *, int *)) \
    X(int, Type_size, (MPI_Datatype, int *)) \
    X(int, Type_get_extent, (MPI_Datatype, MPI_Aint *, MPI_Aint *)) \
    X(int, Type_get_true_extent, (MPI_Datatype, MPI_Aint *, MPI_Aint *)) \
    X(int, Type_get_envelope, (MPI_Datatype, int *, int *, int *, int *)) \
    X(int, Type_get_contents, (MPI_Datatype, int, int, int, int *, MPI_Aint *, MPI_Datatype *)) \
    X(int, Type_contiguous, (int, MPI_Datatype, MPI_Datatype *)) \
    X(int, Type_create_hvector, (int, int, MPI_Aint, MPI_Datatype, MPI_Datatype *)) \
    X(int, Type_create_struct, \
      (int, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Datatype *)) \
    X(int, Type_commit, (MPI_Datatype *)) \
    X(int, Type_free, (MPI_Datatype *)) \
    X(int, Op_free, (MPI_Op *)) \
    X(int, Pack, (const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm)) \
    X(int, Unpack, (const void *, int, int *, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Send, (const void *, int, MPI_Datatype, int, int, MPI_Comm)) \
    X(int, Recv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)) \
    X(int, Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
    X(int, Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
    X(int, Testsome, (int, MPI_Request *, int *, int *, MPI_Status *)) \
    X(int, Iprobe, (int, int, MPI_Comm, int *, MPI_Status *)) \
    X(int, Query_thread, (int *)) \
    X(int, Grequest_start, \
      (cp_query_function *, cp_free_function *, cp_cancel_function *, void *, MPI_Request *)) \
    X(int, Grequest_complete, (MPI_Request)) \
    X(int, Request_get_status, (MPI_Request, int *, MPI_Status *)) \
    X(int, Request_free, (MPI_Request *)) \
    X(int, Recv_init, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
    X(int, Start, (MPI_Request *)) \
    X(int, Startall, (int, MPI_Request *)) \
    X(int, Wait, (MPI_Request *, MPI_Status *)) \
    X(int, Waitall, (int, MPI_Request *, MPI_Status *)) \
    X(int, Waitany, (int, MPI_Request *, int *, MPI_Status *)) \
    X(int, Waitsome, (int, MPI_Request *, int *, int *, MPI_Status *)) \
    X(int, Test, (MPI_Request *, int *, MPI_Status *)) \
    X(int, Testall, (int, MPI_Request *, int *, MPI_Status *)) \
    X(int, Testany, (int, MPI_Request *, int *, int *, MPI_Status *)) \
    X(int, Comm_disconnect, (MPI_Comm *)) \
    X(int, Topo_test, (MPI_Comm, int *)) \
    X(int, Cartdim_get, (MPI_Comm, int *)) \
    X(int, Graph_neighbors_count, (MPI_Comm, int, int *)) \
    X(int, Dist_graph_neighbors_count, (MPI_Comm, int *, int *, int *)) \
    X(int, Ibarrier, (MPI_Comm, MPI_Request *)) \
    X(int, Ibcast, (void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
    X(int, Ireduce, \
      (const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *)) \
    X(int, Iscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
    X(int, Iexscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
    X(int, Ireduce_scatter_block, \
      (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
    X(int, Igather, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
    X(int, Iscatter, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
    X(int, Iallgather, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)) \
    X(int, Ialltoall, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)) \
    X(int, Barrier, (MPI_Comm)) \
    X(int, Bcast, (void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Reduce, (const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm)) \
    X(int, Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Iallreduce, \
      (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
    X(int, Scan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Exscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Reduce_scatter_block, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Gather, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Scatter, \
      (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
    X(int, Allgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Alltoall, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
    X(int, Gatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, \
       MPI_Comm)) \
    X(int, Scatterv, \
      (const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, \
       MPI_Comm)) \
    X(int, Allgatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, \
       MPI_Comm)) \
    X(int, Alltoallv, \
      (const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, \
       MPI_Datatype, MPI_Comm)) \
    X(int, Reduce_scatter, \
      (const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(int, Igatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, \
       MPI_Comm, MPI_Request *)) \
    X(int, Iscatterv, \
      (const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, \
       MPI_Comm, MPI_Request *)) \
    X(int, Iallgatherv, \
      (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, \
       MPI_Request *)) \
    X(int, Ireduce_scatter, \
      (const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))

#define X(result, name, parameters) result(*name) parameters;
struct cp_real {
    CP_REAL(X)
};
#undef X

#endif
