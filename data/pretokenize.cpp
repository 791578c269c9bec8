#include "data/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace wyvern {
namespace {

constexpr size_t kJitStackStart = 32 << 10, kJitStackMax = 8 << 20;      // bytes

// Replaces \s and \S by Unicode's White_Space (PropList.txt): tab to carriage return, U+0085, and all separators (Z*).
std::string spell_white_space(const std::string& pattern) {
  const std::string white = R"(\t-\r\x{85}\p{Z})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); i++) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') out += in_class ? white : "[" + white + "]";
      else if (next == 'S' && !in_class) out += "[^" + white + "]";
      else (out += c) += next;
      continue;
    }
    if (c == '[' && !in_class) in_class = true;
    else if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Splitter::Code {
  pcre2_code* compiled = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(compiled); }
};

Splitter::Splitter(const std::string& pattern) : pattern_(pattern), code_(std::make_unique<Code>()) {
  int error = 0;
  size_t offset = 0;
  const std::string spelled = spell_white_space(pattern);
  const auto* code_units = reinterpret_cast<PCRE2_SPTR>(spelled.data());
  code_->compiled = pcre2_compile(code_units, spelled.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (!code_->compiled) fail(kCorrupt, "the splitting pattern {} does not compile: {}", pattern, message_of(error));
  code_->jit = pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE) == 0;
  if (!code_->jit) log_warning("PCRE2 cannot compile to machine code here: tokenizing will be about five times slower");
}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

struct Splitter::Pieces::Match {
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
  explicit Match(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Match() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Match(const Match&) = delete;
};

Splitter::Pieces::Pieces(const Splitter& splitter, std::string_view text)
    : splitter_(splitter), text_(text), match_(std::make_unique<Match>(splitter.code_->compiled)) {
  require_utf8(text, "text");
}
Splitter::Pieces::~Pieces() = default;

bool Splitter::Pieces::find() {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  const Code& code = *splitter_.code_;
  const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;          // the constructor has checked; empty pieces make no progress
  const int found = code.jit ? pcre2_jit_match(code.compiled, subject, text_.size(), match_end_, options, match_->data, match_->context)
                             : pcre2_match(code.compiled, subject, text_.size(), match_end_, options, match_->data, match_->context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) fail(kRuntime, "splitting the text failed at byte {}: {}", match_end_, message_of(found));
  const size_t* bounds = pcre2_get_ovector_pointer(match_->data);
  match_begin_ = bounds[0];
  match_end_ = bounds[1];
  if (match_begin_ < at_ || match_end_ <= match_begin_)                  // a pattern with \K can do that
    fail(kCorrupt, "the splitting pattern {} does not move on at byte {}", splitter_.pattern_, at_);
  return true;
}

bool Splitter::Pieces::next(std::string_view* piece) {
  if (at_ == text_.size()) return false;
  if (match_end_ <= at_ && !find()) match_begin_ = match_end_ = text_.size();
  const size_t end = match_begin_ > at_ ? match_begin_ : match_end_;     // a gap first, then the match
  *piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

}  // namespace wyvern
