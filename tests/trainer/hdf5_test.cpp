// The HDF5 layer by itself, and what other programs see in a checkpoint.
#include "trainer/hdf5.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tests/data/temp_folder.h"
#include "tests/trainer/toy_store.h"
#include "trainer/checkpoint.h"

namespace wyvern {
namespace {

// Runs a command; its output, and its exit status.
std::pair<std::string, int> run(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  return {out, ::pclose(pipe)};
}

template <class T> void round_trip(const std::string& path, const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<T> in(static_cast<size_t>(n)), out(in.size());
  for (size_t i = 0; i < in.size(); i++) in[i] = T(float(i % 251) - 100.f * !std::is_same_v<T, uint16_t>);
  {
    h5::Handle file = h5::create_file(path);
    h5::write_tensor(file, "/a/b.c/d", view(in.data(), dtype_of<T>, shape));
    file.close(path);
  }
  const h5::Handle file = h5::open_file(path);
  const auto listed = h5::list_tensors(file, "/a");
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].path, "/a/b.c/d");
  EXPECT_EQ(listed[0].dtype, dtype_of<T>);
  EXPECT_EQ(listed[0].shape, shape);
  h5::read_tensor(file, "/a/b.c/d", view(out.data(), dtype_of<T>, shape));
  EXPECT_EQ(std::memcmp(in.data(), out.data(), in.size() * sizeof(T)), 0) << name_of(dtype_of<T>) << to_string(shape);
}

TEST(Hdf5, TensorsOfEveryTypeAndLayout) {
  TempFolder temp;
  for (const Shape& shape : {Shape{3}, Shape{2, 3, 4}, Shape{1000, 301}, Shape{1, 700001}, Shape{2, 2, 2, 2, 9999}}) {
    round_trip<double>(temp / "x.h5", shape);
    round_trip<float>(temp / "x.h5", shape);
    round_trip<bf16>(temp / "x.h5", shape);
    round_trip<int32_t>(temp / "x.h5", shape);
    round_trip<uint16_t>(temp / "x.h5", shape);
  }
}

TEST(Hdf5, LargeTensorsCostLittleMoreThanTheirBytes) {
  TempFolder temp;
  std::vector<float> x(3072 * 769);
  {
    h5::Handle file = h5::create_file(temp / "x.h5");
    h5::write_tensor(file, "/x", view(x.data(), DType::f32, {3072, 769}));
    file.close("x");
  }
  const double bytes = double(x.size() * sizeof(float));
  EXPECT_LT(double(std::filesystem::file_size(temp / "x.h5")), 1.01 * bytes) << "chunk index and partial last chunk";
}

TEST(Hdf5, ChecksumCatchesAFlipThatTheFileFormatDoesNot) {
  TempFolder temp;
  std::vector<float> x(200000), y(x.size());
  for (size_t i = 0; i < x.size(); i++) x[i] = float(i);
  {
    h5::Handle file = h5::create_file(temp / "x.h5");
    h5::write_tensor(file, "/g/x", view(x.data(), DType::f32, {2000, 100}));
    file.close("x");
  }
  std::string bytes = slurp(temp / "x.h5");
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(x.data() + 1000), 64));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 5] ^= 1;
  temp.write("x.h5", bytes);
  const h5::Handle file = h5::open_file(temp / "x.h5");
  testing::internal::CaptureStderr();
  expect_error(kCorrupt, {temp / "x.h5", "/g/x", "cannot be read", "checksum"},
               [&] { h5::read_tensor(file, "/g/x", view(y.data(), DType::f32, {2000, 100})); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "HDF5's own messages belong into the Error";
}

TEST(Hdf5, ReadingIsStrict) {
  TempFolder temp;
  std::vector<float> x(12);
  std::vector<double> wide(12);
  {
    h5::Handle file = h5::create_file(temp / "x.h5");
    h5::write_tensor(file, "/x", view(x.data(), DType::f32, {3, 4}));
    h5::write_text(file, "/empty", "");
    h5::write_text(file, "/text", std::string(100000, 'a') + "\xe2\x82\xac\n");
    EXPECT_THROW(h5::write_text(file, "/zero", std::string("a\0b", 3)), Error);
    file.close("x");
  }
  const h5::Handle file = h5::open_file(temp / "x.h5");
  const auto refused = [&](const std::string& wanted, Tensor out) {
    expect_error(kCorrupt, {"x.h5: /x", "f32 (3, 4)", wanted}, [&] { h5::read_tensor(file, "/x", out); });
  };
  refused("f64 (3, 4)", view(wide.data(), DType::f64, {3, 4}));
  refused("f32 (4, 3)", view(x.data(), DType::f32, {4, 3}));
  refused("f32 (2, 4)", view(x.data(), DType::f32, {2, 4}));
  expect_error(kCorrupt, {"x.h5: /y"}, [&] { h5::read_tensor(file, "/y", view(x.data(), DType::f32, {3, 4})); });
  expect_error(kCorrupt, {"x.h5: /x", "not a text"}, [&] { h5::read_text(file, "/x"); });
  EXPECT_EQ(h5::read_text(file, "/empty"), "");
  EXPECT_EQ(h5::read_text(file, "/text"), std::string(100000, 'a') + "\xe2\x82\xac\n");
  EXPECT_TRUE(h5::list_tensors(file, "/nothing").empty());
  expect_error(kRuntime, {"missing.h5", "cannot be opened", "No such file"}, [&] { h5::open_file(temp / "missing.h5"); });
  expect_error(kRuntime, {"no/x.h5", "cannot be created", "No such file"}, [&] { h5::create_file(temp / "no/x.h5"); });
}

TEST(Hdf5, VirtualDatasetsShowWhatIsMissingAsNaN) {
  TempFolder temp;
  std::vector<bf16> half(8), whole(16);
  for (size_t i = 0; i < half.size(); i++) half[i] = bf16(float(i) + 0.5f);
  {
    h5::Handle part = h5::create_file(temp / "part.h5");
    h5::write_tensor(part, "/x", view(half.data(), DType::bf16, {2, 4}));
    part.close("part");
    h5::Handle file = h5::create_file(temp / "x.h5");
    h5::write_virtual(file, "/x", DType::bf16, {4, 4}, {{"part.h5", {2, 4}, {{{0, 0}, {0, 0}, {1, 4}}, {{1, 0}, {2, 0}, {1, 4}}}},
                                                        {"gone.h5", {2, 4}, {{{0, 0}, {1, 0}, {1, 4}}, {{1, 0}, {3, 0}, {1, 4}}}}});
    file.close("x");
  }
  const h5::Handle file = h5::open_file(temp / "x.h5");
  const auto sources = h5::sources_of(file, "/x");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[1].file, "gone.h5");
  ASSERT_EQ(sources[1].slabs.size(), 2u);
  EXPECT_EQ(sources[1].slabs[1].local, (Shape{1, 0}));
  EXPECT_EQ(sources[1].slabs[1].global, (Shape{3, 0}));
  EXPECT_EQ(sources[1].slabs[1].count, (Shape{1, 4}));
  h5::read_tensor(file, "/x", view(whole.data(), DType::bf16, {4, 4}));          // as a foreign reader does
  for (size_t i = 0; i < 16; i++) {
    if (i / 4 % 2) EXPECT_TRUE(std::isnan(float(whole[i]))) << i;
    else EXPECT_EQ(float(whole[i]), float(half[i / 8 * 4 + i % 4])) << i;
  }
}

std::string save(const std::string& folder, Toy& toy) {
  const CheckpointMeta meta{.step = 12, .tokens = 77, .compute = "bf16", .config = "name: toy"};
  return save_checkpoint(folder, meta, toy.store, &toy.optimizer, toy.stream);
}

TEST(Hdf5, H5dumpReadsACheckpoint) {
  if (run("h5dump --version").second != 0) GTEST_SKIP() << "h5dump (hdf5-tools) is not installed";
  TempFolder temp;
  Toy toy(DType::bf16);
  toy.fill(1);
  as<bf16>(toy.store.at("embed.weight").value)[0] = bf16(-1.375f);
  const std::string path = save(temp / "a", toy);
  const auto [values, status] = run("h5dump -y -d /params/embed.weight -c 1,2 " + path + "/checkpoint.h5");
  EXPECT_EQ(status, 0) << values;
  EXPECT_NE(values.find("-1.375, "), std::string::npos) << values;
  const auto [texts, text_status] = run("h5dump -d /config -a /meta/tokens " + path + "/checkpoint.h5");
  EXPECT_EQ(text_status, 0) << texts;
  EXPECT_NE(texts.find("name: toy"), std::string::npos) << texts;
  EXPECT_NE(texts.find("77"), std::string::npos) << texts;
}

TEST(Hdf5, H5pyReadsACheckpoint) {
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"})
    if (python.empty() && run(std::string(candidate) + " -c 'import h5py'").second == 0) python = candidate;
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py is installed";
  TempFolder temp;
  Toy toy(DType::bf16);
  toy.fill(1);
  const std::string path = save(temp / "a", toy);
  const std::string script = temp.write("read.py",
      "import h5py, sys\n"
      "f = h5py.File(sys.argv[1], 'r')\n"
      "print(f['/meta'].attrs['step'], f['/config'][()].decode(), f['/params/embed.weight'].attrs['dtype'].decode())\n"
      "for name in ('/params/layers.10.wide.weight', '/optim/layers.10.wide.weight/m'):\n"
      "    d = f[name]\n"
      "    x = d[...].astype('f8')\n"
      "    print(d.shape[0], d.shape[1], repr(x[0, 0]), repr(x[300, 511]), repr(abs(x).sum()))\n");
  const auto [out, status] = run(python + " " + script + " " + path + "/checkpoint.h5");
  ASSERT_EQ(status, 0) << out;
  EXPECT_TRUE(out.starts_with("12 name: toy bf16\n")) << out;
  std::istringstream lines(out.substr(out.find('\n') + 1));
  const auto expect_line = [&](Tensor t) {
    double rows = 0, columns = 0, first = 0, last = 0, sum = 0, want = 0;
    lines >> rows >> columns >> first >> last >> sum;
    with_float(t.dtype, [&]<class T>(T) {
      const T* x = as<T>(t);
      for (int64_t i = 0; i < t.numel(); i++) want += std::fabs(double(x[i]));
      EXPECT_EQ(first, double(x[0])) << out;
      EXPECT_EQ(last, double(x[t.numel() - 1])) << out;
    });
    EXPECT_EQ(rows, 301) << out;
    EXPECT_EQ(columns, 512) << out;
    EXPECT_NEAR(sum, want, 1e-10 * want) << out;                       // numpy adds pairwise: f64 rounding of 154112 terms
  };
  expect_line(toy.store.at("layers.10.wide.weight").value);
  Tensor m;
  toy.optimizer.visit_state([&](const std::string& what, const Param& p, Tensor t) {
    if (what == "m" && p.name == "layers.10.wide.weight") m = t;
  });
  expect_line(m);
}

}  // namespace
}  // namespace wyvern
