// Splitting of text into the pieces within which BPE merges: a regular expression, run by PCRE2's JIT.
// `\s` means Unicode's White_Space and `\p{..}` general categories, as in the reference tokenizers; PCRE2's own `\s`
// would also take U+180E. What no match covers becomes a piece of its own, so the pieces always add up to the text.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace wyvern {

// GPT-2's pattern, character for character; contractions are lower case only.
inline constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Splitter {
 public:
  explicit Splitter(const std::string& pattern);      // Error(kCorrupt) when the pattern does not compile
  Splitter(Splitter&&) noexcept;
  ~Splitter();
  const std::string& pattern() const { return pattern_; }

  class Pieces {                                      // one pass over one text; the text must outlive it
   public:
    Pieces(const Splitter&, std::string_view text);   // Error(kCorrupt) with the offset when the text is not UTF-8
    ~Pieces();
    bool next(std::string_view* piece);
   private:
    bool find();                                      // the next match, from match_end_
    struct Match;
    const Splitter& splitter_;
    std::string_view text_;
    std::unique_ptr<Match> match_;
    size_t at_ = 0, match_begin_ = 0, match_end_ = 0;
  };

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace wyvern
