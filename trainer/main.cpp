#include "trainer/verbs.h"

int main(int argc, char** argv) { return wyvern::run_command_line(argc, argv); }
