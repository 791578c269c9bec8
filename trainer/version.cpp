#include "trainer/version.h"

#include <H5public.h>
#include <fmt/format.h>
#include <omp.h>

#include <nlohmann/json.hpp>

#include "kernels/cpu/isa/tier.h"

namespace wyvern {

std::string version() { return WYVERN_VERSION; }
std::string git_revision() { return WYVERN_GIT; }

std::string version_report(bool json) {
  const std::string hdf5 = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
  if (json)
    return nlohmann::ordered_json{{"version", version()},
                                  {"git", git_revision()},
                                  {"compiler", __VERSION__},
                                  {"cpu_tier", isa::name_of(isa::tier())},
                                  {"threads", omp_get_max_threads()},
                                  {"hdf5", hdf5}}
        .dump();
  return fmt::format("wyvern {} ({})\ncompiler {}\ncpu tier {}, {} threads\nhdf5 {}", version(), git_revision(), __VERSION__,
                     isa::name_of(isa::tier()), omp_get_max_threads(), hdf5);
}

}  // namespace wyvern
