! The intercepted collectives beside MPI's own, as use mpi_f08 has them.
program conformance
  use mpi_f08
  implicit none
  type(MPI_Request) :: request, requests(2)
  include 'conformance_body.inc'
end program
