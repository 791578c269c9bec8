// dump: logits, losses, hidden states and gradients of one batch, for comparison with other frameworks.
#pragma once
#include <string>

#include "trainer/model_source.h"

namespace wyvern {

// tokens_json: {"tokens": [[...]], "targets": [[...]]}; a negative target is ignored; absent targets = the next token. Writes HDF5:
//   /logits (B, T, V)  /token_loss (B, T)  /loss ()  /hidden/<i> (B, T, C)  /grads/<name>
// hidden/0 is the input of the first layer, hidden/i the output of layer i, before the final norm. hf_names: gradients under the
// source folder's names and shapes. Returns the mean loss.
double dump_model(const ModelSource&, DType, const std::string& tokens_json, const std::string& out, bool hf_names);

}  // namespace wyvern
