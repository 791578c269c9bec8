#include "kernels/reduce.h"

namespace wyvern {

void sum_squares(Stream& s, const SumSquares& a) {
  CHECK(a.x && a.out, "x {}", to_string(a.x));
  DISPATCH(s, sum_squares, a);
}
void sum(Stream& s, const Sum& a) {
  CHECK(a.x && a.out, "x {}", to_string(a.x));
  DISPATCH(s, sum, a);
}

}  // namespace wyvern
