#include "trainer/interop/hf_names.h"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/elementwise.h"
#include "trainer/interop/hf_config.h"
#include "trainer/interop/safetensors.h"

namespace wyvern {
namespace {

constexpr const char* kTokens = "embed.tokens.weight";

class MapList {                                          // collects the maps of one model
 public:
  std::vector<TensorMap> maps;
  void add(const std::string& hf, const std::string& own, int64_t rows) { maps.push_back({hf, own, false, 0, rows}); }
  // <hf>.weight and, where there is one, <hf>.bias
  void linear(const std::string& hf, const std::string& own, int64_t rows, bool bias, bool transposed = false, int64_t row_begin = 0) {
    maps.push_back({hf + ".weight", own + ".weight", transposed, row_begin, rows});
    if (bias) maps.push_back({hf + ".bias", own + ".bias", false, row_begin, rows});
  }
};

std::vector<TensorMap> gpt2_maps(const HfConfig& c, const std::string& prefix) {
  MapList m;
  m.add(prefix + "wte.weight", kTokens, c.vocab_size);
  m.add(prefix + "wpe.weight", "embed.positions.weight", c.context);
  for (int64_t l = 0; l < c.layers; l++) {
    const std::string hf = fmt::format("{}h.{}.", prefix, l), own = fmt::format("layers.{}.", l);
    m.linear(hf + "ln_1", own + "attn.norm", c.channels, true);
    m.linear(hf + "attn.c_attn", own + "attn.qkv", 3 * c.channels, true, true);
    m.linear(hf + "attn.c_proj", own + "attn.o", c.channels, true, true);
    m.linear(hf + "ln_2", own + "ffn.norm", c.channels, true);
    m.linear(hf + "mlp.c_fc", own + "ffn.up", c.hidden, true, true);
    m.linear(hf + "mlp.c_proj", own + "ffn.down", c.channels, true, true);
  }
  m.linear(prefix + "ln_f", "final.norm", c.channels, true);
  if (!c.tied) m.add("lm_head.weight", "head.weight", c.vocab_size);
  return m.maps;
}

std::vector<TensorMap> llama_maps(const HfConfig& c) {
  MapList m;
  m.add("model.embed_tokens.weight", kTokens, c.vocab_size);
  for (int64_t l = 0; l < c.layers; l++) {
    const std::string hf = fmt::format("model.layers.{}.", l), own = fmt::format("layers.{}.", l);
    const std::string attn = hf + "self_attn.", qkv = own + "attn.qkv";
    const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    m.add(hf + "input_layernorm.weight", own + "attn.norm.weight", c.channels);
    m.linear(attn + "q_proj", qkv, q, c.qkv_bias);
    m.linear(attn + "k_proj", qkv, kv, c.qkv_bias, false, q);
    m.linear(attn + "v_proj", qkv, kv, c.qkv_bias, false, q + kv);
    if (c.qk_norm) {
      m.add(attn + "q_norm.weight", own + "attn.q_norm.weight", c.head_dim);
      m.add(attn + "k_norm.weight", own + "attn.k_norm.weight", c.head_dim);
    }
    m.linear(attn + "o_proj", own + "attn.o", c.channels, c.output_bias);
    m.add(hf + "post_attention_layernorm.weight", own + "ffn.norm.weight", c.channels);
    m.linear(hf + "mlp.gate_proj", own + "ffn.gate_up", c.hidden, c.mlp_bias);
    m.linear(hf + "mlp.up_proj", own + "ffn.gate_up", c.hidden, c.mlp_bias, false, c.hidden);
    m.linear(hf + "mlp.down_proj", own + "ffn.down", c.channels, c.mlp_bias);
  }
  m.add("model.norm.weight", "final.norm.weight", c.channels);
  if (!c.tied) m.add("lm_head.weight", "head.weight", c.vocab_size);
  return m.maps;
}

std::string prefix_of(const SafetensorsFolder& file) { return file.find("transformer.wte.weight") ? "transformer." : ""; }

std::vector<TensorMap> maps_of(const HfConfig& c, const SafetensorsFolder& file) {
  return c.gpt2 ? gpt2_maps(c, prefix_of(file)) : llama_maps(c);
}

// Constants that older versions of transformers saved with the weights: the causal mask, the frequencies of rope.
std::set<std::string> constants(const HfConfig& c, const SafetensorsFolder& file) {
  std::set<std::string> names;
  for (int64_t l = 0; l < c.layers; l++) {
    if (c.gpt2)
      for (const char* mask : {"bias", "masked_bias"}) names.insert(fmt::format("{}h.{}.attn.{}", prefix_of(file), l, mask));
    else
      names.insert(fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", l));
  }
  return names;
}

Shape hf_shape(const TensorMap& m, const Param& p) {
  Shape s = p.shape;
  s[0] = m.rows;
  if (m.transposed) std::reverse(s.begin(), s.end());
  return s;
}

// What keeps the maps from filling the store exactly: a parameter without map, rows filled twice or not at all.
std::vector<std::string> store_problems(const std::vector<TensorMap>& maps, const ParamStore& store) {
  std::vector<std::string> problems;
  std::map<std::string, int64_t> filled;
  for (const TensorMap& m : maps) {
    filled[m.own] += m.rows;
    if (!store.find(m.own)) problems.push_back(fmt::format("the model has no {}, which {} would fill", m.own, m.hf));
  }
  for (const auto& p : store.all())
    if (filled[p->name] != p->shape[0] - p->padding)
      problems.push_back(fmt::format("{} has {} rows, the folder's config fills {}", p->name, p->shape[0] - p->padding, filled[p->name]));
  return problems;
}

std::vector<std::string> file_problems(const HfConfig& c, const std::vector<TensorMap>& maps, const SafetensorsFolder& file,
                                       const ParamStore& store) {
  std::vector<std::string> problems;
  std::set<std::string> known = constants(c, file);
  for (const TensorMap& m : maps) {
    known.insert(m.hf);
    const SafetensorsTensor* t = file.find(m.hf);
    const Param* p = store.find(m.own);
    if (!t) problems.push_back(fmt::format("{} is missing", m.hf));
    else if (!t->floating()) problems.push_back(fmt::format("{} holds {}; F64, F32, F16 and BF16 are read", m.hf, t->dtype));
    else if (p && t->shape != hf_shape(m, *p))
      problems.push_back(fmt::format("{} is {}, expected {}", m.hf, to_string(t->shape), to_string(hf_shape(m, *p))));
  }
  if (c.tied) {                                          // some files repeat the embedding as head
    known.insert("lm_head.weight");
    const SafetensorsTensor *head = file.find("lm_head.weight"), *tokens = file.find(maps.front().hf);
    if (head && tokens && (head->dtype != tokens->dtype || head->shape != tokens->shape || head->bytes != tokens->bytes))
      problems.push_back(fmt::format("lm_head.weight differs from {}, though the config ties the head to it", tokens->name));
  }
  for (const auto& [name, tensor] : file.tensors())
    if (!known.contains(name)) problems.push_back(fmt::format("{} {} {} is unexpected", name, tensor->dtype, to_string(tensor->shape)));
  return problems;
}

void fail_if(const std::vector<std::string>& problems, const std::string& folder) {
  if (problems.empty()) return;
  std::string list;
  for (const std::string& p : problems) list += "\n  " + p;
  fail(kCorrupt, "{}: the weights, config.json and the model disagree in {} places:{}", folder, problems.size(), list);
}

template <class T> std::vector<T> transpose(const std::vector<T>& x, int64_t rows, int64_t columns) {      // x (rows, columns)
  std::vector<T> y(x.size());
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) y[size_t(c * rows + r)] = x[size_t(r * columns + c)];
  return y;
}

// Copies the part of `rows` (own layout, from row m.row_begin on) that this rank holds.
template <class T> void place(const Param& p, const TensorMap& m, const std::vector<T>& rows) {
  const int64_t inner = int64_t(rows.size()) / m.rows, begin = m.row_begin * inner, end = begin + int64_t(rows.size());
  p.each([&](int64_t local, int64_t global, int64_t n) {
    const int64_t first = std::max(global, begin), last = std::min(global + n, end);
    if (first < last) std::copy(rows.begin() + (first - begin), rows.begin() + (last - begin), as<T>(p.value) + local + (first - global));
  });
}

}  // namespace

std::vector<TensorMap> hf_tensor_maps(const std::string& folder) { return maps_of(read_hf_config(folder), SafetensorsFolder(folder)); }

void load_hf_values(const std::string& folder, ParamStore& store, Stream& stream) {
  const HfConfig config = read_hf_config(folder);
  const SafetensorsFolder file(folder);
  const std::vector<TensorMap> maps = maps_of(config, file);
  std::vector<std::string> problems = store_problems(maps, store);
  const std::vector<std::string> more = file_problems(config, maps, file, store);
  problems.insert(problems.end(), more.begin(), more.end());
  fail_if(problems, folder);
  if (stream.dry()) return;

  for (const auto& p : store.all()) zero(stream, {.y = p->value});
  for (const TensorMap& m : maps) {
    const Param& p = store.at(m.own);
    with_float(p.value.dtype, [&]<class T>(T) {
      const std::vector<T> values = values_of<T>(*file.find(m.hf));
      place(p, m, m.transposed ? transpose(values, int64_t(values.size()) / m.rows, m.rows) : values);
    });
  }
  store.touch();
}

void for_each_hf_view(const std::string& folder, const ParamStore& store,
                      const std::function<void(const TensorMap&, const Shape&, const std::vector<double>&)>& fn, bool gradients) {
  if (store.mesh().tp->size() > 1)
    fail(kUsage, "Hugging Face views need whole tensors: parallel.tp = {}, set it to 1", store.mesh().tp->size());
  const std::vector<TensorMap> maps = hf_tensor_maps(folder);
  fail_if(store_problems(maps, store), folder);
  for (const TensorMap& m : maps) {
    const Param& p = store.at(m.own);
    const Tensor t = gradients ? p.grad : p.value;
    const int64_t inner = t.numel() / t.dim[0];
    std::vector<double> values(size_t(m.rows * inner));
    with_float(t.dtype, [&]<class T>(T) {
      const T* x = as<T>(t) + m.row_begin * inner;
      std::copy(x, x + m.rows * inner, values.begin());
    });
    fn(m, hf_shape(m, p), m.transposed ? transpose(values, m.rows, inner) : values);
  }
}

}  // namespace wyvern
