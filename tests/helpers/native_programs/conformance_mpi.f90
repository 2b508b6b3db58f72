! The intercepted collectives beside MPI's own, as use mpi has them.
program conformance
  use mpi
  implicit none
  integer :: request, requests(2)
  include 'conformance_body.inc'
end program
