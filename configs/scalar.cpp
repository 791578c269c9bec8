#include "configs/scalar.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace wyvern {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// A number taken apart: value = (-) digits * 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

class Scanner {
 public:
  explicit Scanner(std::string_view word) : rest_(word) {}
  bool take(char a, char b) {
    if (rest_.empty() || (rest_[0] != a && rest_[0] != b)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string digits(bool underscores) {
    std::string out;
    while (!rest_.empty()) {
      if (is_digit(rest_[0])) out += rest_[0];
      else if (!(underscores && rest_[0] == '_' && !out.empty() && rest_.size() > 1 && is_digit(rest_[1]))) break;
      rest_.remove_prefix(1);
    }
    return out;
  }
  bool done() const { return rest_.empty(); }
  char next() const { return rest_.empty() ? '\0' : rest_[0]; }

 private:
  std::string_view rest_;
};

std::string hint_for(std::string_view word) {
  const std::string w = lower(word);
  const std::string_view bare = w.empty() || (w[0] != '-' && w[0] != '+') ? std::string_view(w) : std::string_view(w).substr(1);
  if (bare.starts_with("0x") || bare.starts_with("0o") || bare.starts_with("0b")) return "write it in decimal";
  if (bare == "nan" || bare == ".nan" || bare == "inf" || bare == ".inf" || bare == "infinity") return "only finite numbers are allowed";
  if (!bare.empty() && is_digit(bare[0]) && bare.find(',') != std::string_view::npos)
    return "write thousands without commas: 1000 or 1_000";
  return "";
}

std::optional<Decimal> scan(std::string_view word, std::string& hint) {
  hint = hint_for(word);
  Scanner in(word);
  Decimal d;
  d.negative = in.next() == '-';
  in.take('+', '-');
  const std::string whole = in.digits(true), fraction = in.take('.', '.') ? in.digits(false) : "";
  if (whole.empty() && fraction.empty()) return {};
  int64_t exponent = 0;
  if (in.take('e', 'E')) {
    const bool negative = in.next() == '-';
    in.take('+', '-');
    const std::string digits = in.digits(false);
    if (digits.empty()) return {};
    for (const char c : digits)
      exponent = std::min<int64_t>(exponent * 10 + (c - '0'), 1'000'000);  // beyond any double: the cap loses nothing
    if (negative) exponent = -exponent;
  }
  if (!in.done()) return {};
  if (whole.size() > 1 && whole[0] == '0') {
    hint = "remove the leading zero";
    return {};
  }
  d.digits = whole + fraction;
  d.exponent = exponent - int64_t(fraction.size());
  return d;
}

bool plain_start(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '.'; }
bool plain_inside(char c) { return plain_start(c) || c == '-' || c == '+' || c == '*' || c == '@' || c == '=' || c == '%'; }

bool looks_like_another_type(std::string_view s) {
  static constexpr std::string_view kWords[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "~", ".nan", ".inf"};
  std::string unused;
  return std::ranges::find(kWords, lower(s)) != std::end(kWords) || parse_number(s, unused);
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view word, std::string& hint) {
  std::optional<Decimal> d = scan(word, hint);
  if (!d) return {};
  std::string& digits = d->digits;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  while (digits.back() == '0') digits.pop_back(), d->exponent++;
  if (d->exponent < 0) {
    hint = "it must be a whole number";
    return {};
  }
  hint = "it does not fit in 64 bits";
  if (int64_t(digits.size()) + d->exponent > 19) return {};
  const std::string whole = fmt::format("{}{}{}", d->negative ? "-" : "", digits, std::string(size_t(d->exponent), '0'));
  int64_t v = 0;
  if (std::from_chars(whole.data(), whole.data() + whole.size(), v).ec != std::errc()) return {};
  return v;
}

std::optional<double> parse_number(std::string_view word, std::string& hint) {
  const std::optional<Decimal> d = scan(word, hint);
  if (!d) return {};
  const std::string text = fmt::format("{}{}e{}", d->negative ? "-" : "", d->digits, d->exponent);
  double v = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), v).ec != std::errc()) {
    hint = "it is beyond the range of a double";
    return {};
  }
  return v;
}

std::optional<bool> parse_boolean(std::string_view word, std::string& hint) {
  hint.clear();
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  const std::string w = lower(word);
  if (w == "true" || w == "yes" || w == "on" || w == "y" || w == "1") hint = "write true";
  if (w == "false" || w == "no" || w == "off" || w == "n" || w == "0") hint = "write false";
  return {};
}

std::string yaml_number(double v) {
  std::string s = fmt::format("{}", v);
  if (s.find('.') == std::string::npos) s.insert(std::min(s.find('e'), s.size()), ".0");
  return s;
}

std::string yaml_text(std::string_view s) {
  if (!s.empty() && plain_start(s[0]) && std::ranges::all_of(s, plain_inside) && !looks_like_another_type(s)) return std::string(s);
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) out += fmt::format("\\x{:02x}", int(c));
    else out += c;
  }
  return out + '"';
}

}  // namespace wyvern
