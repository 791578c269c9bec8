#include "model/registry.h"

namespace wyvern {

std::unique_ptr<Branch> make_gqa(LayerSpec&);
std::unique_ptr<Branch> make_mlp(LayerSpec&);
std::unique_ptr<Branch> make_swiglu(LayerSpec&);

std::unique_ptr<Branch> make_attention(LayerSpec& spec) {
  spec.config.choice("kind", {"gqa"}, {}, "mixer across tokens");
  return make_gqa(spec);
}

std::unique_ptr<Branch> make_ffn(LayerSpec& spec) {
  const std::string kind = spec.config.choice("kind", {"mlp", "swiglu"}, {}, "mixer within a token");
  return kind == "swiglu" ? make_swiglu(spec) : make_mlp(spec);
}

}  // namespace wyvern
