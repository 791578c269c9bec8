// Evaluation: the summed loss over every target of a token source, in windows, divided once by their number.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/tokenizer.h"
#include "trainer/instance.h"

namespace wyvern {

struct EvalResult {
  double loss = 0;             // nats per token
  double bits_per_byte = 0;    // 0 when the bytes are unknown
  int64_t tokens = 0;          // targets that counted
  int64_t bytes = 0;           // of text behind them
};

// Runs `windows` windows of T tokens, B at a time (the last pass may be smaller). The result does not depend on B beyond rounding
// of the sum (F64). bytes_of_token: empty = unknown.
EvalResult evaluate(Instance&, TokenSource&, int64_t windows, int64_t B, int64_t T, const std::vector<int32_t>& bytes_of_token,
                    const std::function<void(int64_t done)>& progress = {});
std::vector<int32_t> bytes_of_tokens(const Tokenizer&);

}  // namespace wyvern
