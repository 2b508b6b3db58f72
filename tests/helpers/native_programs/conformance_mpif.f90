! The intercepted collectives beside MPI's own, as include 'mpif.h' has them.
program conformance
  implicit none
  include 'mpif.h'
  integer :: request, requests(2)
  include 'conformance_body.inc'
end program
