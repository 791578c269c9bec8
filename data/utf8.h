// UTF-8, as strict as Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace wyvern {

int64_t invalid_utf8_at(std::string_view text);                          // byte offset of the first bad sequence, -1 when valid
void require_utf8(std::string_view text, const std::string& name);       // Error(kCorrupt): name, byte offset, line, the byte
char32_t next_code_point(std::string_view text, size_t* at);             // text must be valid; *at moves to the next one
void append_code_point(char32_t, std::string* out);
inline bool is_continuation(char byte) { return (uint8_t(byte) & 0xC0) == 0x80; }

}  // namespace wyvern
