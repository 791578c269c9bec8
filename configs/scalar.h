// The grammar of scalars, independent of YAML: what counts as a number, a boolean, a null; and how values are written back.
//   number   [+-] digits [. digits] [e[+-]digits], also .5 and 5.; single underscores between digits of the integer part (1_000)
//   integer  any number whose value is a whole 64-bit integer: 1e3 and 2.50e1 are exact, never by way of a double
//   refused  010 (octal?), 0x10, 1,000, nan, inf, anything beyond the range of the type: 1e999, and 1e-999, which would become 0
// A refused word leaves a hint ("" when there is nothing more to say than what was expected).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wyvern {

std::optional<int64_t> parse_integer(std::string_view word, std::string& hint);
std::optional<double> parse_number(std::string_view word, std::string& hint);
std::optional<bool> parse_boolean(std::string_view word, std::string& hint);      // true false yes no on off, in lower case

std::string yaml_number(double v);           // shortest text that reads back to v, always with a point: 6.0e-08, 0.0006, 1.0
std::string yaml_text(std::string_view s);   // quoted only when a YAML reader could take it for something else

}  // namespace wyvern
