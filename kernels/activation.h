// Activations of the feed-forward layers.
//   gelu_tanh: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      gelu_erf: y = x/2 (1 + erf(x / sqrt 2))
//   swiglu:    y = u * a * sigmoid(a),  [a | u] = the two halves of one row (gate | up)   (arXiv 2002.05202)
#pragma once
#include "kernels/base/stream.h"

namespace wyvern {

enum class Gelu : uint8_t { tanh, erf };
struct GeluForward  { Tensor y; Tensor x; Gelu form; };                // (N, F)
struct GeluBackward { Tensor dx; Tensor dy; Tensor x; Gelu form; };    // dx written; dx may be dy
struct SwigluForward  { Tensor y; Tensor x; };                         // y (N, F), x (N, 2F)
struct SwigluBackward { Tensor dx; Tensor dy; Tensor x; };             // dx (N, 2F) written, dy (N, F)

void gelu_forward(Stream&, const GeluForward&);
void gelu_backward(Stream&, const GeluBackward&);
void swiglu_forward(Stream&, const SwigluForward&);
void swiglu_backward(Stream&, const SwigluBackward&);
namespace cpu {
void gelu_forward(Stream&, const GeluForward&);
void gelu_backward(Stream&, const GeluBackward&);
void swiglu_forward(Stream&, const SwigluForward&);
void swiglu_backward(Stream&, const SwigluBackward&);
}
}  // namespace wyvern
