#include "trainer/dump.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/elementwise.h"
#include "trainer/hdf5.h"
#include "trainer/interop/hf_names.h"

namespace wyvern {
namespace {

struct Case { int64_t B = 0, T = 0; std::vector<int32_t> tokens, targets; };

void read_rows(const nlohmann::json& j, const std::string& file, const char* key, const Case& shape, std::vector<int32_t>& out) {
  if (!j.is_array() || j.empty() || !j[0].is_array()) fail(kUsage, "{}: `{}` must be a list of rows of token ids", file, key);
  for (const auto& row : j) {
    if (row.size() != j[0].size() || row.empty())
      fail(kUsage, "{}: the rows of `{}` differ in length ({} and {})", file, key, j[0].size(), row.size());
    for (const auto& id : row) {
      if (!id.is_number_integer() || id.get<double>() < -1e9 || id.get<double>() > 1e9)
        fail(kUsage, "{}: {} in `{}` is no token id", file, id.dump(), key);
      out.push_back(id.get<int32_t>());
    }
  }
  if (shape.B && (int64_t(j.size()) != shape.B || int64_t(j[0].size()) != shape.T))
    fail(kUsage, "{}: `targets` is {} x {} but `tokens` is {} x {}", file, j.size(), j[0].size(), shape.B, shape.T);
}

Case read_case(const std::string& file, int64_t vocab, int64_t context) {
  std::ifstream in(file);
  if (!in) fail(kUsage, "cannot read {}", file);
  const auto j = nlohmann::json::parse(in, nullptr, false);
  if (j.is_discarded() || !j.contains("tokens")) fail(kUsage, "{}: wants a JSON object with `tokens` (and `targets`)", file);
  Case c;
  read_rows(j["tokens"], file, "tokens", {}, c.tokens);
  c.B = int64_t(j["tokens"].size());
  c.T = int64_t(j["tokens"][0].size());
  if (j.contains("targets")) read_rows(j["targets"], file, "targets", c, c.targets);
  else
    for (int64_t i = 0; i < c.B * c.T; i++) c.targets.push_back(i % c.T == c.T - 1 ? -1 : c.tokens[size_t(i) + 1]);
  for (int32_t t : c.tokens) if (t < 0 || t >= vocab) fail(kUsage, "{}: token {} is outside the vocabulary of {} ids", file, t, vocab);
  for (int32_t t : c.targets) if (t >= vocab) fail(kUsage, "{}: target {} is outside the vocabulary of {} ids", file, t, vocab);
  if (c.T > context) fail(kUsage, "{}: rows of {} tokens exceed the model's context of {}", file, c.T, context);
  return c;
}

Tensor with_shape(Tensor t, const Shape& s) { return reshape(t, s); }

// Logits without the padded vocabulary, in acc_t.
void write_logits(hid_t file, Instance& m, const Batch& batch) {
  const int64_t N = batch.N(), V = m.model.config().vocab_size, padded = m.model.config().padded_vocab;
  const DType acc = acc_of(m.params.dtype());
  std::vector<char> full(size_t(N * padded * bytes_of(acc))), cut(size_t(N * V * bytes_of(acc)));
  m.reset();
  Context c = m.context(batch, Mode::eval);
  m.model.logits(c, view(full.data(), acc, {N, padded}));
  const size_t row = size_t(V * bytes_of(acc));
  for (int64_t n = 0; n < N; n++) std::copy_n(full.data() + n * padded * bytes_of(acc), row, cut.data() + size_t(n) * row);
  h5::write_tensor(file, "/logits", view(cut.data(), acc, {batch.B, batch.T, V}));
}

void write_gradients(hid_t file, const ModelSource& source, Instance& m, bool hf_names) {
  if (!hf_names) {
    for (const auto& p : m.params.all())
      h5::write_tensor(file, "/grads/" + p->name, p->padding ? rows(p->grad, 0, p->shape[0] - p->padding) : p->grad);
    return;
  }
  for_each_hf_view(source.path, m.params, [&](const TensorMap& map, const Shape& shape, const std::vector<double>& values) {
    std::vector<double> copy = values;
    h5::write_tensor(file, "/grads/" + map.hf, view(copy.data(), DType::f64, shape));
  }, true);
}

// The file under its name while it grows. Removed when writing fails; after the rename there is nothing to remove.
struct Aside {
  std::string path;
  ~Aside() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

}  // namespace

double dump_model(const ModelSource& source, DType dtype, const std::string& tokens_json, const std::string& out, bool hf_names) {
  if (hf_names && !source.hugging_face) fail(kUsage, "--names hf needs a Hugging Face folder as the model; {} is none", source.path);
  const Case c = read_case(tokens_json, source.config.vocab_size, source.config.context);
  Instance m(source.config, dtype, nullptr, {{c.B, c.T, Mode::train}, {c.B, c.T, Mode::eval}});
  source.load(m);
  HostBatch host(c.B, c.T, c.tokens, c.targets);
  const int64_t valid = host.valid_targets(), C = source.config.channels;
  host.batch().loss_scale = valid ? 1.0 / double(valid) : 0;

  const Aside aside{out + ".partial"};
  double loss = 0;
  {
    h5::Handle file = h5::create_file(aside.path);
    write_logits(file, m, host.batch());
    m.params.zero_grad(m.stream);
    m.reset();
    Context ctx = m.context(host.batch(), Mode::train);
    loss = m.model.forward(ctx);
    h5::write_tensor(file, "/token_loss", with_shape(m.model.token_loss(), {c.B, c.T}));
    h5::write_tensor(file, "/loss", view(&loss, DType::f64, {1}));
    for (int64_t i = 0; i <= int64_t(source.config.layers.size()); i++)
      h5::write_tensor(file, "/hidden/" + std::to_string(i), with_shape(m.model.stream(int(i)), {c.B, c.T, C}));
    m.model.backward(ctx);
    write_gradients(file, source, m, hf_names);
    file.close(out);
  }
  std::filesystem::rename(aside.path, out);
  return loss;
}

}  // namespace wyvern
