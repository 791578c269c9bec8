#include <algorithm>
#include <array>
#include <cctype>

#include "configs/node.h"

namespace wyvern {
namespace {

// Case and the choice between - and _ are not what a reader got wrong first: they count for nothing.
std::string folded(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c == '-' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Damerau-Levenshtein distance (optimal string alignment): insert, delete, replace, swap two neighbours.
size_t distance(const std::string& a, const std::string& b) {
  std::array<std::vector<size_t>, 3> row;      // row[i % 3][j] = distance of the first i characters of a to the first j of b
  for (std::vector<size_t>& r : row) r.resize(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[0][j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    std::vector<size_t>&now = row[i % 3], &last = row[(i + 2) % 3], &before = row[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return row[a.size() % 3][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";            // nobody mistypes that much, and the distance is quadratic
  const std::string w = folded(word);
  // Two edits turn any short word into any other: up to three letters only one is forgiven.
  size_t best = w.size() <= 3 ? 2 : std::max<size_t>(2, w.size() / 3) + 1;
  std::string found;
  for (const std::string& c : candidates)
    if (const size_t d = distance(w, folded(c)); d < best && d < std::max(w.size(), c.size())) best = d, found = c;
  return found;
}

}  // namespace wyvern
