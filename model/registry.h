// The tables of kinds: what `attention: {kind: ...}` and `ffn: {kind: ...}` may say.
#pragma once
#include "model/layer.h"

namespace wyvern {

std::unique_ptr<Branch> make_attention(LayerSpec&);
std::unique_ptr<Branch> make_ffn(LayerSpec&);

}  // namespace wyvern
