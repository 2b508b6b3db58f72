/* The part of MPI that the library needs, for the two families of binary interfaces.
 *
 * No mpi.h is needed. Handles are ints in MPICH and its derivatives (Intel MPI, MVAPICH),
 * and pointers to objects of the library in Open MPI. Names of libraries contain CP_ABI.
 * tests/collplan/test_preload.py compares all numbers with the mpi.h of both. */
#ifndef COLLPLAN_MPI_ABI_H
#define COLLPLAN_MPI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef intptr_t MPI_Aint;
typedef struct MPI_Status MPI_Status;
typedef int32_t MPI_Fint;

#define MPI_SUCCESS 0
#define MPI_UNDEFINED (-32766)
#define MPI_ANY_TAG (-1)
#define MPI_THREAD_MULTIPLE 3

#ifdef COLLPLAN_OPENMPI
typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_info_t *MPI_Info;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_errhandler_t *MPI_Errhandler;
#define CP_HANDLE(type, number, symbol) ((type)cp_symbol(#symbol))
#define CP_STATUS_BYTES 24
#define CP_ABI ".so.40"
#define MPI_IN_PLACE ((void *)1)
#define MPI_ANY_SOURCE (-1)
#define MPI_COMM_TYPE_SHARED 0
#define MPI_TAG_UB 0
#define MPI_COMBINER_NAMED 0
#define MPI_COMBINER_DUP 1
#define MPI_COMBINER_CONTIGUOUS 2
#define MPI_CART 1
#define MPI_GRAPH 2
#define MPI_DIST_GRAPH 3
#define MPI_ERR_TRUNCATE 15
#define MPI_ERR_OTHER 16
#define MPI_MAX_LIBRARY_VERSION_STRING 256
#else
typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef int MPI_Group;
typedef int MPI_Info;
typedef int MPI_Request;
typedef int MPI_Errhandler;
#define CP_HANDLE(type, number, symbol) ((type)(number))
#define CP_STATUS_BYTES 20
#define CP_ABI ".so.12"
#define MPI_IN_PLACE ((void *)-1)
#define MPI_ANY_SOURCE (-2)
#define MPI_COMM_TYPE_SHARED 1
#define MPI_TAG_UB 0x64400001
#define MPI_COMBINER_NAMED 1
#define MPI_COMBINER_DUP 2
#define MPI_COMBINER_CONTIGUOUS 3
#define MPI_GRAPH 1
#define MPI_CART 2
#define MPI_DIST_GRAPH 3
#define MPI_ERR_TRUNCATE 14
#define MPI_ERR_OTHER 15
#define MPI_MAX_LIBRARY_VERSION_STRING 8192
#endif

/* Handles: name, type, MPICH's number, Open MPI's object. */
#define CP_HANDLES(X) \
    X(COMM_WORLD, MPI_Comm, 0x44000000, ompi_mpi_comm_world) \
    X(COMM_SELF, MPI_Comm, 0x44000001, ompi_mpi_comm_self) \
    X(COMM_NULL, MPI_Comm, 0x04000000, ompi_mpi_comm_null) \
    X(REQUEST_NULL, MPI_Request, 0x2c000000, ompi_request_null) \
    X(INFO_NULL, MPI_Info, 0x1c000000, ompi_mpi_info_null) \
    X(ERRORS_RETURN, MPI_Errhandler, 0x54000001, ompi_mpi_errors_return)

/* Operations: name in specs, MPICH's number, Open MPI's object. */
#define CP_OPERATIONS(X) \
    X(max, MAX, 0x58000001, ompi_mpi_op_max) \
    X(min, MIN, 0x58000002, ompi_mpi_op_min) \
    X(sum, SUM, 0x58000003, ompi_mpi_op_sum) \
    X(prod, PROD, 0x58000004, ompi_mpi_op_prod) \
    X(land, LAND, 0x58000005, ompi_mpi_op_land) \
    X(band, BAND, 0x58000006, ompi_mpi_op_band) \
    X(lor, LOR, 0x58000007, ompi_mpi_op_lor) \
    X(bor, BOR, 0x58000008, ompi_mpi_op_bor) \
    X(lxor, LXOR, 0x58000009, ompi_mpi_op_lxor) \
    X(bxor, BXOR, 0x5800000a, ompi_mpi_op_bxor) \
    X(minloc, MINLOC, 0x5800000b, ompi_mpi_op_minloc) \
    X(maxloc, MAXLOC, 0x5800000c, ompi_mpi_op_maxloc)

/* Datatypes: name, kind in reductions, MPICH's number, Open MPI's object. The kind is '-' for
 * datatypes that plans move but do not reduce, and 'p' for pairs. */
#define CP_DATATYPES(X) \
    X(BYTE, '-', 0x4c00010d, ompi_mpi_byte) \
    X(CHAR, '-', 0x4c000101, ompi_mpi_char) \
    X(WCHAR, '-', 0x4c00040e, ompi_mpi_wchar) \
    X(PACKED, '-', 0x4c00010f, ompi_mpi_packed) \
    X(CHARACTER, '-', 0x4c00011a, ompi_mpi_character) \
    X(LOGICAL, '-', 0x4c00041d, ompi_mpi_logical) \
    X(LONG_DOUBLE, '-', 0x4c00100c, ompi_mpi_long_double) \
    X(SIGNED_CHAR, 'i', 0x4c000118, ompi_mpi_signed_char) \
    X(SHORT, 'i', 0x4c000203, ompi_mpi_short) \
    X(INT, 'i', 0x4c000405, ompi_mpi_int) \
    X(LONG, 'i', 0x4c000807, ompi_mpi_long) \
    X(LONG_LONG_INT, 'i', 0x4c000809, ompi_mpi_long_long_int) \
    X(INT8_T, 'i', 0x4c000137, ompi_mpi_int8_t) \
    X(INT16_T, 'i', 0x4c000238, ompi_mpi_int16_t) \
    X(INT32_T, 'i', 0x4c000439, ompi_mpi_int32_t) \
    X(INT64_T, 'i', 0x4c00083a, ompi_mpi_int64_t) \
    X(AINT, 'i', 0x4c000843, ompi_mpi_aint) \
    X(OFFSET, 'i', 0x4c000844, ompi_mpi_offset) \
    X(COUNT, 'i', 0x4c000845, ompi_mpi_count) \
    X(INTEGER, 'i', 0x4c00041b, ompi_mpi_integer) \
    X(INTEGER1, 'i', 0x4c00012d, ompi_mpi_integer1) \
    X(INTEGER2, 'i', 0x4c00022f, ompi_mpi_integer2) \
    X(INTEGER4, 'i', 0x4c000430, ompi_mpi_integer4) \
    X(INTEGER8, 'i', 0x4c000831, ompi_mpi_integer8) \
    X(UNSIGNED_CHAR, 'u', 0x4c000102, ompi_mpi_unsigned_char) \
    X(UNSIGNED_SHORT, 'u', 0x4c000204, ompi_mpi_unsigned_short) \
    X(UNSIGNED, 'u', 0x4c000406, ompi_mpi_unsigned) \
    X(UNSIGNED_LONG, 'u', 0x4c000808, ompi_mpi_unsigned_long) \
    X(UNSIGNED_LONG_LONG, 'u', 0x4c000819, ompi_mpi_unsigned_long_long) \
    X(UINT8_T, 'u', 0x4c00013b, ompi_mpi_uint8_t) \
    X(UINT16_T, 'u', 0x4c00023c, ompi_mpi_uint16_t) \
    X(UINT32_T, 'u', 0x4c00043d, ompi_mpi_uint32_t) \
    X(UINT64_T, 'u', 0x4c00083e, ompi_mpi_uint64_t) \
    X(FLOAT16, 'f', 0x4c000246, ompi_mpi_short_float) \
    X(FLOAT, 'f', 0x4c00040a, ompi_mpi_float) \
    X(DOUBLE, 'f', 0x4c00080b, ompi_mpi_double) \
    X(REAL, 'f', 0x4c00041c, ompi_mpi_real) \
    X(DOUBLE_PRECISION, 'f', 0x4c00081f, ompi_mpi_dblprec) \
    X(REAL4, 'f', 0x4c000427, ompi_mpi_real4) \
    X(REAL8, 'f', 0x4c000829, ompi_mpi_real8) \
    X(C_FLOAT_COMPLEX, 'c', 0x4c000840, ompi_mpi_c_float_complex) \
    X(C_DOUBLE_COMPLEX, 'c', 0x4c001041, ompi_mpi_c_double_complex) \
    X(CXX_FLOAT_COMPLEX, 'c', 0x4c000834, ompi_mpi_cxx_cplex) \
    X(CXX_DOUBLE_COMPLEX, 'c', 0x4c001035, ompi_mpi_cxx_dblcplex) \
    X(COMPLEX, 'c', 0x4c00081e, ompi_mpi_cplex) \
    X(DOUBLE_COMPLEX, 'c', 0x4c001022, ompi_mpi_dblcplex) \
    X(COMPLEX8, 'c', 0x4c000828, ompi_mpi_complex8) \
    X(COMPLEX16, 'c', 0x4c00102a, ompi_mpi_complex16) \
    X(C_BOOL, 'b', 0x4c00013f, ompi_mpi_c_bool) \
    X(CXX_BOOL, 'b', 0x4c000133, ompi_mpi_cxx_bool) \
    X(FLOAT_INT, 'p', 0x8c000000, ompi_mpi_float_int) \
    X(DOUBLE_INT, 'p', 0x8c000001, ompi_mpi_double_int) \
    X(LONG_INT, 'p', 0x8c000002, ompi_mpi_long_int) \
    X(SHORT_INT, 'p', 0x8c000003, ompi_mpi_short_int) \
    X(2INT, 'p', 0x4c000816, ompi_mpi_2int)

#endif
