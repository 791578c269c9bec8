// The verbs around a trained model: eval, generate, dump, import, ckpt; and data and tokenizer, which feed it.
#include <cmath>

#include "data/token_store.h"
#include "tests/trainer/trained_run.h"

namespace fs = std::filesystem;

namespace wyvern {
namespace {

// ---- data and tokenizer --------------------------------------------------------------------------------------------------------

TEST_F(CliModel, PrepareAndInspect) {
  const auto& p = run().prepared;
  EXPECT_EQ(keys_of(p), (Words{"train_tokens", "val_tokens", "vocab_size", "documents", "bytes", "tokenizer", "out"}));
  EXPECT_EQ(p["vocab_size"], 300);
  EXPECT_EQ(p["bytes"], int64_t(small_text().size()));
  const auto j = at->json({"data", "inspect", "d/*.bin"});
  EXPECT_EQ(j["shards"].size(), 2u);
  EXPECT_EQ(j["tokens"].get<int64_t>(), p["train_tokens"].get<int64_t>() + p["val_tokens"].get<int64_t>());
  at->refused(2, {"missing.txt", "no such file"}, {"data", "prepare", "missing.txt", "--out", "d2"});
  at->write("empty.txt", "");
  at->refused(2, {"empty.txt", "empty"}, {"data", "prepare", "empty.txt", "--out", "d2"});
  at->write("bad.txt", "ab\xff\xfe" "cd");
  at->refused(4, {"bad.txt", "not valid UTF-8 at byte 2"}, {"data", "prepare", "bad.txt", "--out", "d2"});
  at->write("tiny.txt", "a");
  at->refused(2, {"too little text", "1 bytes"}, {"data", "prepare", "tiny.txt", "--out", "d2", "--tokenizer", "bytes"});
  at->refused(2, {"tokenizer 'nonsense'"}, {"data", "prepare", "text.txt", "--out", "d2", "--tokenizer", "nonsense"});
  EXPECT_FALSE(fs::exists(*at / "d2/train_000.bin"));
}

TEST_F(CliModel, S74_S75_TokenizersRoundTripThroughPipes) {
  for (const char* text : {"a  b   c", "  a", "a  ", "\n\n", "a\n \nb\t\t\tx",
                           "I'll I'LL we've don't 'tis rock'n'roll 12345 12,345.6 \xc2\xbd\xc2\xb2 x\xc2\xb2", "the quick fox"}) {
    const Finished ids = at->run({"tokenizer", "encode", "d/tokenizer.json"}, {.input = text});
    ASSERT_EQ(ids.code, 0) << ids.err;
    EXPECT_EQ(at->run({"tokenizer", "decode", "d/tokenizer.json"}, {.input = ids.out}).out, std::string(text) + "\n");
    const auto list = at->json({"tokenizer", "encode", "d/tokenizer.json", text})["tokens"];
    std::string joined = list.dump();
    EXPECT_EQ(joined.substr(1, joined.size() - 2) + "\n", ids.out);
    EXPECT_EQ(at->json({"tokenizer", "decode", "d/tokenizer.json", joined.substr(1, joined.size() - 2)})["text"], text);
  }
  for (const char* bad : {"1,2,x", "300", "-1", "99999999999"})
    at->refused(2, {"no token id", "0 to 299"}, {"tokenizer", "decode", "d/tokenizer.json"}, {.input = bad});
  at->refused(2, {"tokenizer 'nothere.json'"}, {"tokenizer", "encode", "nothere.json", "x"});
  at->refused(3, {"cannot write"}, {"tokenizer", "train", "text.txt", "--vocab", "300", "--out", "text.txt/x.json"});
}

TEST_F(CliModel, S76_TextCannotForgeTheEndOfText) {
  const auto ids = at->json({"tokenizer", "encode", "d/tokenizer.json", "<|endoftext|>"})["tokens"];
  EXPECT_GT(ids.size(), 1u);
  for (const auto& id : ids) EXPECT_NE(id, 299);                       // the control id is the last
  at->json({"generate", "runs/small", "--prompt", "<|endoftext|>", "-n", "1"});
}

TEST_F(CliModel, TokenizerTrainingIsReproducible) {
  at->json({"tokenizer", "train", "text.txt", "--vocab", "290", "--out", "t1.json"});
  const auto j = at->json({"tokenizer", "train", "text.txt", "--vocab", "290", "--out", "t2.json"});
  EXPECT_EQ(keys_of(j), (Words{"tokenizer", "vocab_size", "out"}));
  EXPECT_EQ(j["vocab_size"], 290);
  EXPECT_EQ(slurp(*at / "t1.json"), slurp(*at / "t2.json"));
}

// ---- eval ----------------------------------------------------------------------------------------------------------------------

TEST_F(CliModel, EvalAgreesWithTrainingWhateverTheMicroBatch) {
  const auto& v = run().trained["validation"];
  const auto one = at->json({"eval", "runs/small", "--data", "d/val_*.bin", "--micro-batch", "1"});
  EXPECT_EQ(keys_of(one), (Words{"loss", "perplexity", "bits_per_byte", "tokens"}));
  EXPECT_EQ(one["tokens"], run().prepared["val_tokens"].get<int64_t>() - 1);
  for (const char* micro : {"5", "1000000"}) {
    const auto j = at->json({"eval", "runs/small", "--data", "d/val_000.bin", "--micro-batch", micro});
    EXPECT_EQ(j["tokens"], one["tokens"]);
    EXPECT_NEAR(j["loss"].get<double>(), one["loss"].get<double>(), 1e-6 * one["loss"].get<double>());
  }
  EXPECT_NEAR(v["loss"].get<double>(), one["loss"].get<double>(), 1e-6 * one["loss"].get<double>());
  const auto exact = at->json({"eval", "runs/small", "--data", "d/val_000.bin", "--dtype", "f64"});
  EXPECT_NEAR(exact["loss"].get<double>(), one["loss"].get<double>(), 1e-5 * one["loss"].get<double>());
  const Finished text = at->run({"eval", "runs/small", "--data", "d/val_000.bin"});
  EXPECT_TRUE(contains(text.out, "nats per token, perplexity")) << text.out;
}

TEST_F(CliModel, S80_PerplexityAndBitsPerByte) {
  const auto j = at->json({"eval", "runs/small", "--data", "text.txt"});
  const double loss = j["loss"], tokens = j["tokens"], bytes = double(small_text().size());
  EXPECT_NEAR(j["perplexity"].get<double>(), std::exp(loss), 1e-9 * std::exp(loss));
  EXPECT_NEAR(j["bits_per_byte"].get<double>(), loss * tokens / std::log(2.0) / bytes,
              1e-9);  // the text follows an end of text: all of it is predicted
  const auto ids = at->json({"tokenizer", "encode", "d/tokenizer.json", "--file", "text.txt"})["tokens"];
  EXPECT_EQ(j["tokens"], int64_t(ids.size()));
  const auto some = at->json({"eval", "runs/small", "--data", "text.txt", "--windows", "2", "--sequence", "16"});
  EXPECT_EQ(some["tokens"], 32);
}

TEST_F(CliModel, EvalRefusesWhatItCannotRead) {
  const auto refused = [&](int code, const Words& parts, const std::string& data) {
    at->refused(code, parts, {"eval", "runs/small", "--data", data});
  };
  at->write("empty.txt", "");
  at->write("bad.txt", "ab\xff\xfe" "cd");
  refused(2, {"missing.txt"}, "missing.txt");
  refused(2, {"no file matches", "missing_*.bin"}, "missing_*.bin");
  refused(2, {"empty.txt", "empty"}, "empty.txt");
  refused(4, {"bad.txt", "not valid UTF-8 at byte 2"}, "bad.txt");
  const std::string shard = slurp(*at / "d/val_000.bin");
  at->write("cut.bin", shard.substr(0, 1500));
  at->write("magic.bin", "x" + shard.substr(1));
  at->write("text.bin", small_text());
  refused(4, {"cut.bin", "claims", "1500"}, "cut.bin");
  refused(4, {"magic.bin", "magic number"}, "magic.bin");
  refused(4, {"text.bin", "plain text"}, "text.bin");
  std::string large = shard;
  large[1024 + 2 * 100 + 1] = char(0xff);
  at->write("large.bin", large);
  refused(4, {"large.bin", "300"}, "large.bin");
  write_shard(*at / "other.bin", std::vector<int32_t>(100, 1), "other", 400, 1, 100);
  refused(2, {"other.bin", "vocabulary of 400", "bpe-"}, "other.bin");
  write_shard(*at / "bytes.bin", std::vector<int32_t>(100, 1), "bytes", 256, 1, 100);
  refused(2, {"bytes.bin", "tokenizer bytes", "bpe-"}, "bytes.bin");
  at->refused(2, {"--sequence 33", "32"}, {"eval", "runs/small", "--data", "text.txt", "--sequence", "33"});
  at->refused(2, {"--dtype fp8", "bf16"}, {"eval", "runs/small", "--data", "text.txt", "--dtype", "fp8"});
  at->refused(2, {"no such folder", "run folder"}, {"eval", "nowhere", "--data", "text.txt"});
  fs::create_directories(*at / "nothing");
  at->refused(2, {"nothing is no model"}, {"eval", "nothing", "--data", "text.txt"});
}

// ---- generate ------------------------------------------------------------------------------------------------------------------

TEST_F(CliModel, GenerateStreamsWhatJsonSays) {
  const Words words = {"generate", "runs/small", "--prompt", "the quick", "-n", "10", "--seed", "3"};
  const auto j = at->json(words);
  EXPECT_EQ(keys_of(j), (Words{"text", "tokens", "prefill_tokens_per_s", "decode_tokens_per_s"}));
  EXPECT_LE(j["tokens"].size(), 10u);
  EXPECT_GT(j["prefill_tokens_per_s"].get<double>(), 0);
  const Finished plain = at->run(words);
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.out, "the quick" + j["text"].get<std::string>() + "\n");
  EXPECT_TRUE(contains(plain.err, "tokens/s"));
}

TEST_F(CliModel, SamplesDependOnTheSeedAlone) {
  const auto tokens = [&](Words more) {
    Words words = {"generate", "runs/small", "--prompt", "a", "-n", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return at->json(words)["tokens"].get<std::vector<int32_t>>();
  };
  const auto greedy = tokens({"--temperature", "0"}), drawn = tokens({"--temperature", "1", "--seed", "7"});
  EXPECT_EQ(tokens({"--temperature", "0", "--seed", "9"}), greedy);
  EXPECT_EQ(tokens({"--top-k", "1", "--temperature", "1"}), greedy);
  EXPECT_EQ(tokens({"--top-p", "0", "--temperature", "1"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "1", "--seed", "7"}), drawn);
  EXPECT_NE(tokens({"--temperature", "1", "--seed", "8"}), drawn);
  EXPECT_EQ(tokens({"--temperature", "1", "--seed", "7", "--top-k", "300"}), drawn);      // 300 of 300
  EXPECT_EQ(tokens({"--temperature", "1", "--seed", "7", "--top-k", "5", "--top-p", "0.9"}),
            tokens({"--temperature", "1", "--seed", "7", "--top-k", "5", "--top-p", "0.9"}));
}

TEST_F(CliModel, PromptsAsTextIdsOrNothing) {
  const auto ids = at->json({"tokenizer", "encode", "d/tokenizer.json", "the fox"})["tokens"].dump();
  const Words greedy = {"--temperature", "0", "-n", "8"};
  const auto from = [&](const std::string& option, const std::string& prompt) {
    return at->json({"generate", "runs/small", option, prompt, "--temperature", "0", "-n", "8"})["tokens"];
  };
  EXPECT_EQ(from("--tokens", ids.substr(1, ids.size() - 2)), from("--prompt", "the fox"));
  EXPECT_EQ(from("--prompt", ""), from("--tokens", "299"));                              // nothing: from the end of text
  const auto none = at->json({"generate", "runs/small", "--prompt", "the", "-n", "0"});
  EXPECT_TRUE(none["tokens"].empty());
  EXPECT_EQ(none["text"], "");
  for (const char* bad : {"300", "-1", "x", "1,,2", "1.5", "4294967297"})
    at->refused(2, {"--tokens"}, {"generate", "runs/small", "--tokens", bad});
}

TEST_F(CliModel, S77_PromptsAndTheContext) {
  const auto prompt = [](int n) { std::string s = "1"; for (int i = 1; i < n; i++) s += ",1"; return s; };
  at->refused(2, {"33 tokens", "context is 32"}, {"generate", "runs/small", "--tokens", prompt(33)});
  const Finished full = at->run({"generate", "runs/small", "--tokens", prompt(32), "-n", "5", "--temperature", "0", "--json"});
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_LE(full.json()["tokens"].size(), 1u);
  const Finished over = at->run({"generate", "runs/small", "--tokens", "1", "-n", "100", "--top-k", "5", "--json"});
  EXPECT_EQ(over.code, 0) << over.err;
  EXPECT_LE(over.json()["tokens"].size(), 32u);
  at->refused(4, {"not valid UTF-8"}, {"generate", "runs/small", "--prompt", "\xff"});
}

TEST_F(Cli, WithoutTokenizerOnlyIds) {
  work.json({"train", preset("smoke"), "train.steps=5", "-q"});
  const auto j = work.json({"generate", "runs/smoke", "--tokens", "1,2,3", "-n", "4"});
  EXPECT_TRUE(j["text"].is_null());
  EXPECT_EQ(j["tokens"].size(), 4u);
  std::string list = j["tokens"].dump();
  EXPECT_EQ(work.run({"generate", "runs/smoke", "--tokens", "1,2,3", "-n", "4"}).out, "1,2,3," + list.substr(1, list.size() - 2) + "\n");
  work.refused(2, {"no tokenizer", "--tokens 1,2,3"}, {"generate", "runs/smoke", "--prompt", "hello"});
  work.refused(2, {"prompt is empty"}, {"generate", "runs/smoke"});
  work.write("x.txt", "hello");
  work.refused(2, {"no tokenizer", "--tokenizer"}, {"eval", "runs/smoke", "--data", "x.txt"});
  work.refused(2, {"256 ids"}, {"eval", "runs/smoke", "--data", "x.txt", "--tokenizer", "bytes"});      // of a model of 64
}

// ---- checkpoints -----------------------------------------------------------------------------------------------------------------

TEST_F(CliModel, CheckpointsAreListedShownAndVerified) {
  const auto list = at->json({"ckpt", "ls", "runs/small"})["checkpoints"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["step"], 20);
  EXPECT_EQ(list[1]["path"], "runs/small/checkpoints/step-00000040");
  const auto shown = at->json({"ckpt", "show", "runs/small"}), verified = at->json({"ckpt", "verify", "runs/small"});
  EXPECT_EQ(shown["step"], 40);
  EXPECT_EQ(shown["verified"], false);
  EXPECT_EQ(verified["verified"], true);
  EXPECT_EQ(shown["datasets"].size(), verified["datasets"].size());
  const Finished table = at->run({"ckpt", "verify", "runs/small/checkpoints/step-00000020"});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(contains(table.out, "/params/layers.1.ffn.down.weight")) << table.out;
  at->refused(2, {"nowhere"}, {"ckpt", "ls", "nowhere"});
  at->refused(2, {"nowhere"}, {"ckpt", "show", "nowhere"});
  fs::create_directories(*at / "nothing");
  at->refused(2, {"nothing is neither"}, {"ckpt", "verify", "nothing"});
}

TEST_F(CliModel, S64_DamagedCheckpointsAreRefused) {
  const std::string newest = "copy/checkpoints/step-00000040", numbers = newest + "/rank-00000.h5";
  const auto damage = [&](const std::string& how, const std::function<void()>& apply) {
    SCOPED_TRACE(how);
    fs::remove_all(*at / "copy");
    fs::copy(*at / "runs/small", *at / "copy", fs::copy_options::recursive);
    apply();
    at->refused(4, {newest}, {"ckpt", "verify", newest});
    at->refused(4, {newest}, {"ckpt", "verify", "copy"});              // not the good one behind it
    at->refused(4, {newest}, {"generate", newest, "--tokens", "1"});
    at->refused(4, {newest}, {"eval", newest, "--data", "d/val_000.bin"});
    at->refused(4, {newest}, {"train", "run.yaml", "name=elsewhere", "--resume", newest, "-q"});
    EXPECT_EQ(at->run({"ckpt", "verify", "copy/checkpoints/step-00000020"}).code, 0);
  };
  const auto flip = [&](const std::string& file, size_t byte) {
    std::string s = slurp(*at / file);
    s[byte] = char(s[byte] ^ 0x10);
    at->write(file, s);
  };
  const size_t size = fs::file_size(*at / "runs/small/checkpoints/step-00000040/rank-00000.h5");
  damage("a flipped byte", [&] { flip(numbers, size / 2); });
  damage("a flipped byte of the superblock", [&] { flip(numbers, 9); });
  damage("cut", [&] { fs::resize_file(*at / numbers, size - 100); });
  damage("emptied", [&] { fs::resize_file(*at / numbers, 0); });
  damage("missing", [&] { fs::remove(*at / numbers); });
  damage("a flipped byte of the index", [&] { flip(newest + "/checkpoint.h5", 5000); });
  damage("a manifest that is no JSON", [&] { at->write(newest + "/manifest.json", "{"); });
}

// ---- dump and import -------------------------------------------------------------------------------------------------------------

TEST_F(CliModel, DumpReadsItsTokensStrictly) {
  at->write("case.json", R"({"tokens": [[1, 2, 3, 4], [5, 6, 7, 8]]})");
  const auto j = at->json({"dump", "runs/small", "--tokens", "case.json", "--out", "out.h5"});
  EXPECT_EQ(keys_of(j), (Words{"loss", "out"}));
  EXPECT_TRUE(fs::exists(*at / "out.h5"));
  const auto refused = [&](const std::string& json, const Words& parts) {
    at->write("wrong.json", json);
    Words all = parts;
    all.push_back("wrong.json");
    at->refused(2, all, {"dump", "runs/small", "--tokens", "wrong.json", "--out", "wrong.h5"});
  };
  refused("{", {"JSON"});
  refused(R"({"tokens": []})", {"tokens"});
  refused(R"({"tokens": [[1, 2], [3]]})", {"differ in length"});
  refused(R"({"tokens": [["a"]]})", {"\"a\"", "token id"});
  refused(R"({"tokens": [[1.5]]})", {"1.5", "token id"});
  refused(R"({"tokens": [[4294967297, 1]]})", {"4294967297"});          // 1 in 32 bits
  refused(R"({"tokens": [[300]]})", {"300", "vocabulary"});
  refused(R"({"tokens": [[1, 2]], "targets": [[1]]})", {"targets"});
  refused("{\"tokens\": [[" + [] { std::string s = "1"; for (int i = 1; i < 33; i++) s += ",1"; return s; }() + "]]}", {"33 tokens", "32"});
  at->refused(2, {"nothere.json"}, {"dump", "runs/small", "--tokens", "nothere.json", "--out", "wrong.h5"});
  at->refused(2, {"--names foo"}, {"dump", "runs/small", "--tokens", "case.json", "--out", "wrong.h5", "--names", "foo"});
  at->refused(2, {"--names hf", "Hugging Face folder"},
              {"dump", "runs/small", "--tokens", "case.json", "--out", "wrong.h5", "--names", "hf"});
  at->refused(1, {"nowhere/wrong.h5"}, {"dump", "runs/small", "--tokens", "case.json", "--out", "nowhere/wrong.h5"});
  EXPECT_FALSE(fs::exists(*at / "wrong.h5") || fs::exists(*at / "wrong.h5.partial"));
}

TEST_F(Cli, ImportEvalAndGenerateAHuggingFaceFolder) {
  const std::string folder = std::string(WYVERN_SHARED) + "/golden/hf-gpt2";
  if (!fs::exists(folder + "/case.json")) GTEST_SKIP() << "no reference data at " << folder;
  const auto info = nlohmann::ordered_json::parse(slurp(folder + "/case.json"));
  const auto j = work.json({"import", folder, "imported"});
  EXPECT_EQ(keys_of(j), (Words{"checkpoint", "parameters"}));
  EXPECT_EQ(work.run({"ckpt", "verify", "imported"}).code, 0);
  work.refused(2, {"imported exists already"}, {"import", folder, "imported"});
  work.refused(2, {"is a Wyvern model already"}, {"import", "imported", "again"});

  std::string prompt = info["greedy"]["prompt"].dump();
  prompt = prompt.substr(1, prompt.size() - 2);
  std::vector<int32_t> ids;
  for (const auto& row : info["tokens"]) for (const auto& t : row) ids.push_back(t);
  write_shard(work / "tokens.bin", ids, "none", 112, 1, int64_t(ids.size()));
  fs::remove(work / "tokens.bin.json");
  const auto of_folder = work.json({"eval", folder, "--data", "tokens.bin"}),
             of_import = work.json({"eval", "imported", "--data", "tokens.bin"});
  EXPECT_EQ(of_import, of_folder);
  EXPECT_TRUE(of_import["bits_per_byte"].is_null());                   // no tokenizer: the bytes are unknown
  for (const std::string& model : {folder, std::string("imported")}) {
    const auto g = work.json({"generate", model, "--tokens", prompt, "-n", "16", "--temperature", "0"});
    EXPECT_EQ(g["tokens"], info["greedy"]["continuation"]) << model;
    const auto d = work.json({"dump", model, "--tokens", folder + "/case.json", "--out", "dump.h5"});
    EXPECT_NEAR(d["loss"].get<double>(), info["loss_mean"].get<double>(), 1e-5 * info["loss_mean"].get<double>()) << model;
  }
}

}  // namespace
}  // namespace wyvern
