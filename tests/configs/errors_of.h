// A schema pass over a text, and the errors it ends in.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "configs/node.h"

namespace wyvern {

using Strings = std::vector<std::string>;
using Schema = std::function<void(const Node&)>;

// The lines of the error that the pass ends in; empty when it is clean.
inline Strings errors_of(const std::string& yaml, const Schema& schema, const Strings& overrides = {}) {
  Strings lines;
  try {
    const ConfigTree tree = ConfigTree::parse(yaml, "c.yaml", overrides);
    schema(tree.root());
    tree.check();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, kUsage);
    std::string line;
    for (const char c : std::string(e.what()) + '\n')
      if (c != '\n') line += c;
      else lines.push_back(std::exchange(line, ""));
  }
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline testing::AssertionResult one_error(const Strings& errors, const Strings& parts) {
  if (errors.size() != 1) return testing::AssertionFailure() << errors.size() << " errors:\n" << testing::PrintToString(errors);
  for (const std::string& p : parts)
    if (!contains(errors[0], p)) return testing::AssertionFailure() << "no \"" << p << "\" in: " << errors[0];
  return testing::AssertionSuccess();
}

inline ConfigTree parsed(const std::string& yaml, const Strings& overrides = {}) { return ConfigTree::parse(yaml, "c.yaml", overrides); }

}  // namespace wyvern
