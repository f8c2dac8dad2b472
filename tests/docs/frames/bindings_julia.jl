# SPDX-License-Identifier: Apache-2.0
# bindings/julia/README.md: a hundred steps towards 1, and two ranks as threads.
# snippet: update
all(x -> abs(x - 1) < 0.2, p) && t == 101 || error("p[1] is $(p[1]) after $(t - 1) steps")
# snippet: ranks
