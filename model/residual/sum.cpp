// x_{i+1} = x_i + y_i. Training keeps every x_i, so that recompute needs nothing else; y is one transient buffer, and one
// gradient buffer serves the whole depth. Evaluation and decoding keep two x and forget.
#include <algorithm>
#include <vector>

#include "kernels/elementwise.h"
#include "model/residual/residual.h"

namespace wyvern {
namespace {

class SumResidual final : public Residual {
 public:
  explicit SumResidual(int sublayers) : last_(sublayers), x_(size_t(sublayers) + 1) {}

  void begin(Context& c, Tensor x0) override {
    const Shape shape = shape_of(x0);
    x_[0] = x0;
    pending_ = {};
    const int kept = c.mode == Mode::train ? last_ : std::min(last_, 2);
    for (int i = 1; i <= kept; i++) x_[size_t(i)] = c.saved.alloc(x0.dtype, shape, "residual.x");
    for (int i = kept + 1; i <= last_; i++) x_[size_t(i)] = x_[size_t(i) - 2];       // alternate between two
    y_ = c.saved.alloc(x0.dtype, shape, "residual.y");
  }
  Tensor output(Context&, int) override { return y_; }

  void read(Context& c, int i, NormSlot* norm, Tensor out) override {
    const size_t k = size_t(i);
    if (norm) norm->forward(c, out, x_[k], pending_ ? x_[k - 1] : Tensor{}, pending_);
    else {
      if (pending_) add(c.stream, {.y = x_[k], .a = x_[k - 1], .b = pending_});
      cast(c.stream, {.y = out, .x = x_[k]});
    }
    pending_ = {};
  }
  void write(Context&, int, Tensor y) override {
    CHECK(!pending_, "two writes without a read between them");
    pending_ = y;
  }

  void read_backward(Context& c, int i, NormSlot* norm, Tensor dout) override {
    const bool first = i == last_;                 // the head speaks first: its gradient starts the buffer
    if (first) dx_ = c.scratch.alloc(dout.dtype, shape_of(dout), "residual.dx");
    if (norm) norm->backward(c, dx_, dout, x_[size_t(i)], !first);
    else if (first) cast(c.stream, {.y = dx_, .x = dout});
    else add(c.stream, {.y = dx_, .a = dx_, .b = dout});
  }
  Tensor write_backward(Context&, int) override { return dx_; }
  Tensor begin_backward(Context&) override { return dx_; }
  Tensor stream(int i) const override { return x_[size_t(i)]; }

 private:
  int last_;
  std::vector<Tensor> x_;        // x_[i] is what sublayer i reads; x_[last_] the head
  Tensor y_, pending_, dx_;
};

}  // namespace

std::unique_ptr<Residual> make_sum_residual(int sublayers) { return std::make_unique<SumResidual>(sublayers); }

}  // namespace wyvern
