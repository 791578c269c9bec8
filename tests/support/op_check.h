// The verbs of the op tests: what an op promises in its header, checked in one line each.
//   expect_gradients            backward against four-point central differences of forward, in F64
//   expect_accumulates          parameter gradients add onto what was there, activation gradients overwrite garbage
//   expect_twins                F32 and BF16 against F64 on the same numbers, on the plain tier and on the machine's own
//   expect_thread_independent   the same bits for 1, 2 and 3 threads
//   expect_refused              a door throws Error and its message has the words that help
#pragma once
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace wyvern {

// A tensor that owns its memory, full of NaN (integers: -1) until written. Random values are rounded to bf16 first, so
// that one seed gives the same numbers in every type.
class OwnedTensor {
 public:
  OwnedTensor() = default;                                                      // absent
  OwnedTensor(DType, const Shape&);
  static OwnedTensor normal(DType, const Shape&, unsigned seed, double spread = 1);
  static OwnedTensor filled(DType, const Shape&, double value);
  static OwnedTensor ints(const std::vector<int32_t>&);                         // (n) i32
  OwnedTensor(OwnedTensor&&) = default;
  OwnedTensor& operator=(OwnedTensor&&) = default;

  operator Tensor() const { return view_; }                                     // NOLINT: passes for the tensor it owns
  double get(int64_t i) const;
  void set(int64_t i, double value);
  std::vector<double> values() const;
  void fill(double value);
  void copy_from(const OwnedTensor&);                                           // same type and shape
  const Tensor& view() const { return view_; }

 private:
  Tensor view_;
  std::vector<std::byte> storage_;
};

// One result of an op under test, as doubles.
struct Named {
  std::string name;
  Shape shape;
  std::vector<double> values;
};
using Results = std::vector<Named>;
Named record(const std::string& name, const OwnedTensor&);

// ||got - want|| <= tolerance * ||want||; the message has the relative L2 error and the first bad coordinate.
void expect_close(const Named& got, const Named& want, double tolerance);
void expect_close(const Results& got, const Results& want, double tolerance);

// ---- gradients ---------------------------------------------------------------------------------------------------------
enum class Gives : uint8_t { written, accumulated };
struct Range { int64_t begin, end; };

struct Variable {                        // an input of forward and the gradient that backward leaves for it
  std::string name;
  OwnedTensor& x;
  OwnedTensor& dx;
  Gives gives;
  std::vector<Range> columns = {};       // the addressed columns of a (N, W) matrix, empty = all; dx keeps its other columns
};
struct Output {                          // an output of forward and its cotangent, which the test fills
  OwnedTensor& y;
  OwnedTensor& dy;
};
struct DifferentiableOp {
  std::function<void()> forward;         // variables -> outputs, any number of times
  std::function<void()> backward;        // after forward: cotangents -> gradients
  std::vector<Variable> variables;       // all F64
  std::vector<Output> outputs;
};
// ||delta|| <= 1e-6 ||g|| + 1e-9 ||all g|| for each variable: every entry of a small tensor, else a sample with both ends.
void expect_gradients(const DifferentiableOp&);
void expect_accumulates(const DifferentiableOp&);

// ---- precision, threads, doors -------------------------------------------------------------------------------------------
// run(dtype) computes everything the op produces from fixed seeds.
void expect_twins(const std::function<Results(DType)>& run, double f32_tolerance = 1e-5, double bf16_tolerance = 1e-2);
void expect_thread_independent(const std::function<Results(DType)>& run);
void expect_refused(std::initializer_list<std::string> words, const std::function<void()>& call);

}  // namespace wyvern
