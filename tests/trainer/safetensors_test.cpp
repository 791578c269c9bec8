#include "trainer/interop/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/data/temp_folder.h"

namespace wyvern {
namespace {

std::string le64(uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); }
std::string file_of(const std::string& header, const std::string& buffer) { return le64(header.size()) + header + buffer; }
template <class T>
std::string_view bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

const SafetensorsTensor& at(const SafetensorsFile& file, const std::string& name) {
  for (const SafetensorsTensor& t : file.tensors())
    if (t.name == name) return t;
  throw Error(kRuntime, "no tensor " + name);
}

// Written by hand from the format's description, header padding and an odd start of the buffer included.
TEST(Safetensors, ReadsTheFormatAsDescribed) {
  TempFolder folder;
  const float f[] = {1.5f, -2.f, 3.25f};
  const std::string buffer = std::string(reinterpret_cast<const char*>(f), sizeof f) + std::string("\x80\x3f\x00\xc0", 4);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]},)"
      R"("a":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},"none":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]}} )";
  const SafetensorsFile file(folder.write("x.safetensors", file_of(header, buffer)));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(at(file, "a").shape, (Shape{3, 1}));
  EXPECT_EQ(values_of<float>(at(file, "a")), (std::vector<float>{1.5f, -2.f, 3.25f}));
  EXPECT_EQ(values_of<double>(at(file, "b")), (std::vector<double>{1, -2}));
  EXPECT_EQ(at(file, "none").numel(), 0);
}

TEST(Safetensors, WrittenFilesReadBack) {
  TempFolder folder;
  const std::vector<double> d = {1.0 / 3, -0.0, 1e300};
  const std::vector<float> f = {1.0f / 3};
  const std::vector<uint16_t> b = {0x3f80, 0xc000, 0x0001};
  const std::vector<int8_t> i = {-1, 2, 3};
  write_safetensors(folder / "x.safetensors", {{"z", "I8", {3}, bytes_of(i)},
                                               {"b", "BF16", {3, 1}, bytes_of(b)},
                                               {"scalar", "F32", {}, bytes_of(f)},
                                               {"d \"quoted\"", "F64", {3}, bytes_of(d)},
                                               {"empty", "F32", {0, 4}, {}}});
  const SafetensorsFile file(folder / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(values_of<double>(at(file, "d \"quoted\"")), d);
  EXPECT_TRUE(std::signbit(values_of<double>(at(file, "d \"quoted\""))[1]));
  EXPECT_EQ(values_of<float>(at(file, "scalar")), f);
  EXPECT_EQ(at(file, "scalar").shape, Shape{});
  EXPECT_EQ(at(file, "b").bytes, bytes_of(b));
  EXPECT_EQ(at(file, "z").bytes, bytes_of(i));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(at(file, "d \"quoted\"").bytes.data()) % 8, 0u);
  const std::string text = slurp(folder / "x.safetensors");
  EXPECT_NE(text.find(R"("__metadata__":{"format":"pt"})"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.safetensors.partial"));
  expect_error(kRuntime, {"two tensors", "a"}, [&] {
    write_safetensors(folder / "y", {{"a", "F32", {1}, bytes_of(f)}, {"a", "F32", {1}, bytes_of(f)}});
  });
  expect_error(kRuntime, {"a", "(2)", "4 bytes"}, [&] { write_safetensors(folder / "y", {{"a", "F32", {2}, bytes_of(f)}}); });
}

TEST(Safetensors, EveryHalfConvertsExactly) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); i++) bits[i] = uint16_t(i);
  const std::vector<float> x = values_of<float>({"h", "F16", {65536}, bytes_of(bits)});
  for (int i = 0; i < 65536; i++) {
    const int exponent = i >> 10 & 31, fraction = i & 1023, sign = i >> 15 ? -1 : 1;
    if (exponent == 31 && fraction) { EXPECT_TRUE(std::isnan(x[size_t(i)])) << i; continue; }
    const double expected = exponent == 31 ? INFINITY : exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    ASSERT_EQ(double(x[size_t(i)]), sign * expected) << i;
    ASSERT_EQ(std::signbit(x[size_t(i)]), sign < 0) << i;
  }
}

TEST(Safetensors, NarrowingRoundsToNearestEven) {
  const std::vector<float> f = {1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f, -3.0e38f};      // two ties, and a value between
  const std::vector<bf16> b = values_of<bf16>({"f", "F32", {3}, bytes_of(f)});
  EXPECT_EQ(float(b[0]), 1.0f);
  EXPECT_EQ(float(b[1]), 1.0f + 0x1p-6f);
  EXPECT_NEAR(float(b[2]), -3.0e38f, 3.0e38f * 0x1p-8f);
  const std::vector<double> d = {1.0 / 3};
  EXPECT_EQ(values_of<float>({"d", "F64", {1}, bytes_of(d)})[0], 1.0f / 3);
  const std::vector<int32_t> i = {1};
  expect_error(kCorrupt, {"\"i\"", "I32", "BF16"}, [&] { values_of<float>({"i", "I32", {1}, bytes_of(i)}); });
}

struct Broken {
  const char* title;
  std::string bytes;
  std::vector<std::string> message;
};

TEST(Safetensors, BrokenFilesAreRefused) {
  const auto two = [](const std::string& a, const std::string& b,
                      size_t bytes = 8) {  // tensors a and b with these offsets, F32 of one element
    return file_of(
        fmt::format(R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":{}}},"b":{{"dtype":"F32","shape":[1],"data_offsets":{}}}}})", a, b),
        std::string(bytes, '\0'));
  };
  const auto one = [](const std::string& info) { return file_of("{\"a\":" + info + "}", std::string(4, '\0')); };
  const std::string good = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::vector<Broken> files = {
      {"empty", "", {"0 bytes"}},
      {"header past the end", le64(100) + "{}", {"header of 100 bytes", "file 10 bytes"}},
      {"header of 2^63", le64(uint64_t(1) << 63) + "{}", {"header of 9223372036854775808 bytes"}},
      {"not an object", file_of("[1]", ""), {"does not start with '{'"}},
      {"empty header", file_of("", ""), {"does not start with '{'"}},
      {"cut JSON", file_of("{\"a\":", ""), {"not valid JSON"}},
      {"bytes after the JSON", file_of("{}}", ""), {"not valid JSON"}},
      {"overlap", two("[0,4]", "[2,6]", 6), {"\"b\"", "byte 2", "overlaps", "ends at 4"}},
      {"same range", two("[0,4]", "[0,4]", 4), {"byte 0", "overlaps"}},
      {"hole", two("[0,4]", "[8,12]", 12), {"\"b\"", "byte 8", "hole after 4"}},
      {"hole at the start", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), {"hole after 0"}},
      {"truncated values", two("[0,4]", "[4,8]", 7), {"truncated", "describes 8 bytes", "holds 7"}},
      {"trailing bytes", two("[0,4]", "[4,8]", 9), {"1 bytes follow the last tensor"}},
      {"duplicate name", file_of("{\"a\":" + good + ",\"a\":" + good + "}", std::string(4, '\0')), {"\"a\" appears twice"}},
      {"duplicate field", one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})"), {"\"shape\" appears twice"}},
      {"wrong size for dtype",
       one(R"({"dtype":"F64","shape":[1],"data_offsets":[0,4]})"),
       {"\"a\"", "F64 (1) takes 8 bytes", "[0, 4) hold 4"}},
      {"4 bytes modulo 2^64", one(R"({"dtype":"F32","shape":[3,3074457345618258603],"data_offsets":[0,4]})"), {"\"a\"", "63 bits"}},
      {"unknown dtype", one(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"), {"unknown dtype F31"}},
      {"dtype no string", one(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})"), {"dtype is 32"}},
      {"negative dim", one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), {"shape", "-1"}},
      {"fractional dim", one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), {"shape", "1.0"}},
      {"offsets backwards", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), {"[4,0]", "[begin, end)"}},
      {"three offsets", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})"), {"[begin, end)"}},
      {"missing field", one(R"({"dtype":"F32","shape":[1]})"), {"exactly dtype, shape and data_offsets"}},
      {"metadata no strings", file_of(R"({"__metadata__":{"n":1}})", ""), {"__metadata__", "strings"}},
  };
  TempFolder folder;
  for (const Broken& b : files) {
    SCOPED_TRACE(b.title);
    const std::string path = folder.write("broken.safetensors", b.bytes);
    for (const std::string& part : b.message) expect_error(kCorrupt, {path, part}, [&] { SafetensorsFile file(path); });
  }
  const std::string large = folder.write("large.safetensors", le64(100'000'001) + "{}");      // sparse
  std::filesystem::resize_file(large, 8 + 100'000'001);
  expect_error(kCorrupt, {"header of 100000001 bytes", "limit 100000000"}, [&] { SafetensorsFile file(large); });
  EXPECT_NO_THROW(SafetensorsFile(folder.write("good.safetensors", two("[0,4]", "[4,8]"))));      // the frame of these cases is sound
  EXPECT_NO_THROW(SafetensorsFile(folder.write("good.safetensors", two("[4,8]", "[0,4]"))));
  expect_error(kUsage, {"absent.safetensors", "No such file"}, [&] { SafetensorsFile file(folder / "absent.safetensors"); });
}

class Shards : public testing::Test {
 protected:
  void shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<SafetensorsTensor> tensors;
    for (const std::string& n : names) tensors.push_back({n, "F32", {1}, bytes_of(value)});
    write_safetensors(folder / file, tensors);
  }
  void index(const std::string& weight_map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{"total_size":12},"weight_map":)" + weight_map + "}");
  }
  void refused(int code, std::initializer_list<std::string> parts) {
    expect_error(code, parts, [&] { SafetensorsFolder f(folder / "."); });
  }
  TempFolder folder;
  const std::vector<float> value = {7};
};

TEST_F(Shards, AreReadAsOne) {
  shard("model-00001-of-00002.safetensors", {"a", "c"});
  shard("model-00002-of-00002.safetensors", {"b"});
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"})");
  const SafetensorsFolder f(folder / ".");
  ASSERT_EQ(f.tensors().size(), 3u);
  EXPECT_EQ(values_of<float>(*f.find("b")), value);
  EXPECT_EQ(values_of<float>(*f.find("c")), value);
  EXPECT_EQ(f.find("d"), nullptr);
}

TEST_F(Shards, ThatDisagreeWithTheIndexAreRefused) {
  refused(kUsage, {"neither model.safetensors nor model.safetensors.index.json"});
  shard("one.safetensors", {"a"});
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  refused(kCorrupt, {"index.json", "two.safetensors", "missing"});
  index(R"({"a":"one.safetensors","b":"one.safetensors"})");
  refused(kCorrupt, {"index.json", "\"b\"", "one.safetensors", "does not hold it"});
  shard("one.safetensors", {"a", "stray"});
  index(R"({"a":"one.safetensors"})");
  refused(kCorrupt, {"one.safetensors", "\"stray\"", "does not place there"});
  index(R"({"a":"../one.safetensors"})");
  refused(kCorrupt, {"\"a\"", "../one.safetensors", "beside the index"});
  index(R"({"a":"one.safetensors","a":"one.safetensors"})");
  refused(kCorrupt, {"\"a\" appears twice"});
  index("[]");
  refused(kCorrupt, {"weight_map"});
}

TEST(SafetensorsGolden, FilesOfTheReferenceLibraryOpen) {
  const std::string golden = std::string(WYVERN_SHARED) + "/golden";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "no " << golden;
  const SafetensorsFolder sharded(golden + "/hf-llama-bf16-sharded");
  EXPECT_EQ(sharded.tensors().size(), 21u);
  EXPECT_EQ(sharded.find("lm_head.weight")->dtype, "BF16");
  EXPECT_EQ(sharded.find("lm_head.weight")->shape, (Shape{101, 32}));
  const SafetensorsFile expected(golden + "/hf-gpt2/expected.safetensors");
  EXPECT_EQ(at(expected, "loss_mean").shape, Shape{});
  double sum = 0, tokens = 0;                    // masked tokens are stored as 0 and do not count
  for (double x : values_of<double>(at(expected, "loss"))) {
    sum += x;
    tokens += x != 0;
  }
  const double mean = values_of<double>(at(expected, "loss_mean"))[0];
  EXPECT_NEAR(sum / tokens, mean, 2e-7 * mean);  // F32 rounding of what is stored
}

}  // namespace
}  // namespace wyvern
