#include <unistd.h>

#include <cstdlib>

#include "trainer/verbs.h"

namespace {

// Idle OpenMP threads spin for milliseconds by default. On a shared machine that takes the core away from the very thread they wait
// for: beside two busy processes 60 steps of smoke.yaml took 4.3 to 7.6 s, and 2.8 to 3.2 s with a short spin, which costs a quiet
// machine nothing. libgomp reads its settings when it is loaded, so the program starts itself once more with them. OMP_WAIT_POLICY
// or GOMP_SPINCOUNT in the environment win, and then it does not.
void spin_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "2000", 1);
  execv("/proc/self/exe", argv);          // returns only when it failed: go on as we are
}

}  // namespace

int main(int argc, char** argv) {
  spin_briefly(argv);
  return wyvern::run_command_line(argc, argv);
}
