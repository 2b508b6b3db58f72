! A program that hangs: rank 0 sleeps, and the other ranks wait for it in MPI_Bcast.
program hanging
  implicit none
  include 'mpif.h'
  integer :: rank, error
  double precision :: value
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  value = 1
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 0) call sleep(1000)
  call MPI_Bcast(value, 1, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
end program hanging
