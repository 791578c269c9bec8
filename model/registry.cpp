#include "model/registry.h"

#include <vector>

namespace wyvern {

std::unique_ptr<Branch> make_gqa(LayerSpec&);
std::unique_ptr<Branch> make_mlp(LayerSpec&);
std::unique_ptr<Branch> make_swiglu(LayerSpec&);

namespace {

struct Kind { const char* name; BranchFactory make; };
constexpr Kind kAttention[] = {
    {"gqa", make_gqa},
};
constexpr Kind kFfn[] = {
    {"mlp", make_mlp},
    {"swiglu", make_swiglu},
};

template <size_t n> std::unique_ptr<Branch> make(const Kind (&kinds)[n], LayerSpec& spec, const char* doc) {
  std::vector<const char*> names;
  for (const Kind& k : kinds) names.push_back(k.name);
  // A wrong word is an error in the tree, and reads as one of the names.
  const std::string kind = spec.config.choice("kind", names, {}, doc);
  for (const Kind& k : kinds)
    if (kind == k.name) return k.make(spec);
  return kinds[0].make(spec);
}

}  // namespace

std::unique_ptr<Branch> make_attention(LayerSpec& spec) { return make(kAttention, spec, "mixer across tokens"); }
std::unique_ptr<Branch> make_ffn(LayerSpec& spec) { return make(kFfn, spec, "mixer within a token"); }

}  // namespace wyvern
