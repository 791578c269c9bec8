#include "data/utf8.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace wyvern {
namespace {

// Length of the valid sequence that starts at p, 0 when there is none.
size_t sequence_length(const uint8_t* p, size_t left) {
  const auto tail = [&](size_t i) { return i < left && (p[i] & 0xC0) == 0x80; };
  if (p[0] < 0x80) return 1;
  if (p[0] < 0xC2) return 0;                                             // a continuation byte, or an overlong pair
  if (p[0] < 0xE0) return tail(1) ? 2 : 0;
  if (p[0] < 0xF0) {
    if (!tail(1) || !tail(2)) return 0;
    const bool overlong = p[0] == 0xE0 && p[1] < 0xA0, surrogate = p[0] == 0xED && p[1] >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (p[0] > 0xF4 || !tail(1) || !tail(2) || !tail(3)) return 0;
  const bool overlong = p[0] == 0xF0 && p[1] < 0x90, above = p[0] == 0xF4 && p[1] >= 0x90;
  return overlong || above ? 0 : 4;
}

}  // namespace

int64_t invalid_utf8_at(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const size_t n = text.size();
  for (size_t i = 0; i < n;) {
    uint64_t eight;
    if (i + 8 <= n && (std::memcpy(&eight, p + i, 8), (eight & 0x8080808080808080ull) == 0)) {   // ASCII, most of the time
      i += 8;
      continue;
    }
    const size_t length = sequence_length(p + i, n - i);
    if (!length) return int64_t(i);
    i += length;
  }
  return -1;
}

void require_utf8(std::string_view text, const std::string& name) {
  const int64_t at = invalid_utf8_at(text);
  if (at < 0) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + at, '\n');
  fail(kCorrupt, "{}: not valid UTF-8 at byte {} (line {}, byte 0x{:02x}); convert it to UTF-8 first, e.g. with iconv", name, at, line,
       uint8_t(text[size_t(at)]));
}

char32_t next_code_point(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return char32_t(uint8_t(text[*at + i])); };
  const char32_t first = byte(0);
  char32_t c = first;
  size_t length = 1;
  if (first >= 0xF0) {
    c = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  } else if (first >= 0xE0) {
    c = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else if (first >= 0xC0) {
    c = (first & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  }
  *at += length;
  return c;
}

void append_code_point(char32_t c, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(char(uint8_t(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

}  // namespace wyvern
