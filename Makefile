# SPDX-License-Identifier: BSD-3-Clause
# The commands of this project. Each one installs what it needs (tools/setup), builds, and runs.
PREFIX ?= /usr/local
RANKS ?= 4
FAULT ?= leave
YARDSTICKS ?=
BENCH ?=
FULL ?=
SUITE ?=
SEED ?=
SCHEDULES ?=
SOAK_S ?= 180
ONLY ?=
REPLAY ?=
PYTHON ?= build/venv/bin/python
BUILD := build/release
TESTED := build/gcc
TORCH_ENV = LD_LIBRARY_PATH=$(abspath $(BUILD)) PYTHONPATH=$(abspath python)

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: release ## train on handwritten digits with 4 ranks
	@$(BUILD)/lockstep run -n $(RANKS) $(BUILD)/examples/train_digits

demo-hang: release ## the same with a fault: FAULT=leave, killed, stopped, slow, …
	@$(BUILD)/examples/train_digits --fault='$(FAULT)' --help >/dev/null
	@LOCKSTEP_PATIENCE_MS=700 LOCKSTEP_TIMEOUT_MS=5000 $(BUILD)/lockstep run -n $(RANKS) \
		$(BUILD)/examples/train_digits --fault='$(FAULT)' || true

demo-hosts: FAULT := $(if $(filter file,$(origin FAULT)),none,$(FAULT))
demo-hosts: NETWORK := $(filter unplugged one-way,$(FAULT))
demo-hosts: release ## the same as demo on 2 hosts of 2 ranks, which are network namespaces of this machine; FAULT=killed, …, or unplugged, one-way: the second host
	@$(if $(NETWORK),,$(BUILD)/examples/train_digits --fault='$(FAULT)' --help >/dev/null)
	@$(if $(filter none,$(FAULT)),,LOCKSTEP_PATIENCE_MS=700 LOCKSTEP_TIMEOUT_MS=$(if $(NETWORK),60,5)000 LOCKSTEP_UNREACHABLE_MS=3000) \
		NETWORK=$(NETWORK) tools/demo-hosts $(BUILD)/examples/train_digits $(if $(NETWORK),--epochs 1000,--fault='$(FAULT)') || \
		[ '$(FAULT)' != none -a $$? = 1 ]

demo-device: release ## average gradients on streams of a simulated device, with 4 ranks: examples/device.c
	@$(BUILD)/lockstep run -n $(RANKS) $(BUILD)/examples/device

demo-torch: ## train a small transformer with PyTorch on 2 ranks, over Lockstep and over Gloo; about a minute
	@tools/setup-torch
	@build/venv/bin/python examples/torch/train_gpt.py

demo-torch-hang: ## the same with a fault: FAULT=leave, killed, stopped, operation, shape, slow
	@tools/setup-torch
	@build/venv/bin/python examples/torch/train_gpt.py --fault '$(FAULT)' || [ $$? != 2 ]

check: ## all tests with gcc, clang and the sanitizers; ends with "N passed, N failed"
	@tools/setup check
	@tools/verify

check-torch-suite: ## the tests of torch.distributed that ship with PyTorch, with Lockstep beside gloo; SUITE='--only …'
	@[ "$(PYTHON)" != build/venv/bin/python ] || tools/setup-torch || \
		{ echo 'check-torch-suite: NOT RUN, as PyTorch cannot be had' >&2; exit 1; }
	@$(PYTHON) python/torch_suite/run.py $(SUITE)

asan: ## unit and rank tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup check
	@tools/verify asan

tsan: ## unit tests and ranks as threads under ThreadSanitizer
	@tools/setup check
	@tools/verify tsan

nightly: release-tests ## what takes too long for check: every plan up to 1024 ranks, all mutants of the models, ranks as threads without a sanitizer, the other half of the tests of ranks under AddressSanitizer, 25,000 programs that use devices, minutes of these under each sanitizer, 100,000 random programs, 10,000 random schedules, an idle minute, all tests of ranks with LOCKSTEP_CHECK=1 and on several hosts, every system call of an opening that fails or at which the rank ends, 50 faults of each kind in a job of 64 ranks on 8 hosts, an hour on a network that loses packets, 4 GiB in one message, 5,000 kills, 300 pauses, 1,000,000 looks, 1,000,000 networks of hosts, a minute of each fuzzer, 1,000,000 drawn schedules, as many of each exhibit of the museum, what schedules find when the library is broken
	@meson compile -C $(BUILD) plan-nightly
	@meson compile -C $(BUILD) plan-hosts-nightly
	@for model in test/model/*.pml; do test/model/spin.sh "$$model" || exit 1; done
	@meson test -C $(BUILD) --no-rebuild --suite threads
	@meson test -C $(BUILD) --no-rebuild exports_test # in a release build the library has more to hide
	@$(BUILD)/test/sim/sim-programs_test 20000
	@$(BUILD)/test/sim/sim-stream_programs_test 5000
	@test/reliability.py soak $(MAKE) --no-print-directory soak-devices
	@meson compile -C build/asan ranks_runner && build/asan/test/ranks/ranks_runner --part 2/2
	@$(BUILD)/test/ranks/ranks_runner --filter random_program --cases 100000
	@$(BUILD)/test/ranks/ranks_runner --filter random_schedules --cases 10000
	@$(BUILD)/test/ranks/ranks_runner --filter async_idle --repeat 40
	@$(BUILD)/test/ranks/ranks_runner --nightly --filter huge_messages
	@$(BUILD)/src/detector-simulation_test 1000000 "$$(date +%s)"
	@$(BUILD)/test/ranks/ranks_runner --checked
	@$(BUILD)/test/ranks/ranks_runner --checked --threads
	@$(BUILD)/test/ranks/ranks_runner --hosts 2 --cases 10000 || [ $$? = 77 ]
	@$(BUILD)/test/ranks/ranks_runner --hosts 3 --cases 10000 || [ $$? = 77 ]
	@$(BUILD)/test/ranks/ranks_runner --hosts 2 --checked || [ $$? = 77 ]
	@python3 test/net/refused_test.py $(BUILD)/test/net/refused_rank --all || [ $$? = 77 ]
	@test/reliability.py verdicts python3 test/net/verdicts_test.py $(BUILD)/test/net/verdicts_rank --times 50
	@test/reliability.py loss python3 test/net/loss_test.py $(BUILD)/test/net/loss_rank 3600 --busy
	@test/reliability.py kills python3 test/faults/kill_test.py $(BUILD)/lockstep $(BUILD)/test/faults/loop $(BUILD)/test/faults/reopen \
		--kills 5000 --at-once 1 --only 'ranks killed' --promised
	@python3 test/faults/faults_test.py $(BUILD)/lockstep $(BUILD)/test/faults/raw $(BUILD)/examples/train_digits --only paused --paused 300
	@python3 test/faults/faults_test.py $(BUILD)/lockstep $(BUILD)/test/faults/raw $(BUILD)/examples/train_digits --only fault --promised
	@test/reliability.py reports python3 test/museum/reports.py $(BUILD)/lockstep $(BUILD)/test/museum/old_ways --times 100 --quiet --promised
	@test/reliability.py looks $(BUILD)/test/faults/looks $(BUILD)/lockstep --looks 1000000 --seed "$$(date +%s)"
	@tools/setup fuzz || echo 'nightly: without libFuzzer' >&2
	@test/reliability.py fuzzers test/fuzz/run.py $(BUILD)
	@test/reliability.py schedules $(MAKE) --no-print-directory explore SCHEDULES=1000000 SEED="$$(date +%s)"
	@test/reliability.py museum python3 test/museum/museum.py $(TESTED)/test/explore/explore --safe 1000000
	@$(MAKE) --no-print-directory tidy
	@python3 python/tests/run.py $(BUILD) --nightly python/tests || [ $$? = 77 ]
	@$(MAKE) --no-print-directory explore-mutants

soak-devices: ## random programs that use devices (alloc, free, record, trim, collectives, messages, abort, close), each sort for SOAK_S seconds (180) under ThreadSanitizer and under AddressSanitizer
	@tools/setup check
	@test/sim/soak.sh $(SOAK_S)

explore: explorer ## drawn programs under drawn schedules: SEED=, SCHEDULES=, ONLY=; REPLAY=FILE shows a finding step by step
	@$(TESTED)/test/explore/explore --folder $(TESTED)/test/explore \
		$(if $(REPLAY),--replay '$(REPLAY)') $(if $(SEED),--seed '$(SEED)') \
		$(if $(SCHEDULES),--schedules '$(SCHEDULES)') $(if $(ONLY),--only '$(ONLY)')

museum: PROGRAMS = lockstep:executable old_ways
museum: explorer ## how programs deadlock on devices, on a simulated one, and what Lockstep says of it: EXHIBIT=NAME for one of them
	@python3 test/museum/museum.py $(TESTED)/test/explore/explore --programs $(TESTED)/lockstep $(TESTED)/test/museum/old_ways $(EXHIBIT)
	@python3 test/museum/timelines.py $(TESTED)/test/explore/explore doc/museum.md

explorer:
	@tools/setup check
	@[ -f $(TESTED)/build.ninja ] || CC=gcc meson setup $(TESTED) -Dwerror=true >/dev/null
	@meson compile -C $(TESTED) explore $(PROGRAMS) >$(TESTED)/build.log 2>&1 || { cat $(TESTED)/build.log; exit 1; }

explore-mutants: ## breaks the library in one place after the other, and tells after how many schedules that is found; hours. ONLY=, SCHEDULES=
	@tools/setup check
	@test/explore/mutants.py $(if $(SCHEDULES),--schedules '$(SCHEDULES)') \
		$(if $(ONLY),--only '$(ONLY)',--write-doc)

bench: release ## beside Open MPI, MPICH, UCX, Gloo and the limits of this machine; FULL=1: everything; BENCH='--only …'
	@tools/setup bench || echo 'bench: going on without what could not be installed' >&2
	@bench/run.py $(BUILD) $(if $(YARDSTICKS),--yardsticks $(YARDSTICKS)) $(if $(FULL),--full) $(BENCH)

bench-hosts: release ## the same between 2 hosts, which are network namespaces of this machine; BENCH='--write-doc', '--sizes 8,64K', …
	@tools/setup bench || echo 'bench-hosts: going on without what could not be installed' >&2
	@bench/hosts.py $(BUILD) $(BENCH)

bench-torch: release ## torch.distributed over Lockstep beside gloo; BENCH='--write-doc', PYTHON=…: with PyTorch
	@[ "$(PYTHON)" != build/venv/bin/python ] || tools/setup-torch --without-package
	@$(TORCH_ENV) $(PYTHON) bench/torch_bench.py $(BENCH)

campaign-torch: release ## 50 ranks killed and 50 stopped while they train with PyTorch; BENCH='--write-doc', PYTHON=…
	@[ "$(PYTHON)" != build/venv/bin/python ] || tools/setup-torch --without-package
	@$(TORCH_ENV) $(PYTHON) python/tests/campaign.py $(BENCH)

install: release ## into PREFIX (/usr/local), below DESTDIR
	@meson configure $(BUILD) --prefix=$(abspath $(PREFIX))
	@meson compile -C $(BUILD) >/dev/null
	@meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

wheel: ## the Python package for others, dist/lockstep-…-py3-none-manylinux_….whl
	@tools/wheel

format: ## clang-format on all C files
	@tools/setup check
	@find include src test examples -name '*.[ch]' | xargs clang-format -i

tidy: ## clang-tidy with the static analyser on the sources, which make check leaves out; a few minutes
	@tools/setup check
	@[ -f $(TESTED)/build.ninja ] || CC=gcc meson setup $(TESTED) -Dwerror=true >/dev/null
	@tools/tidy --analyse $(TESTED)

clean: ## removes build/
	@rm -rf build

# With the test programs, also where it was set up before their framework was installed.
release-tests:
	@tools/setup check
	@[ ! -f $(BUILD)/build.ninja ] || [ -d $(BUILD)/test/ranks ] || meson setup --reconfigure $(BUILD) >/dev/null
	@$(MAKE) --no-print-directory release

release:
	@tools/setup
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) -Doptimization=3 -Ddebug=true >/dev/null
	@[ -x $(BUILD)/lockstep ] || echo 'building Lockstep: some minutes, and what the compiler says is in $(BUILD)/build.log' >&2
	@meson compile -C $(BUILD) >$(BUILD)/build.log 2>&1 || { cat $(BUILD)/build.log; exit 1; }

.PHONY: help demo demo-hang demo-hosts demo-device demo-torch demo-torch-hang check check-torch-suite explore explorer explore-mutants museum asan tsan soak-devices nightly bench bench-hosts bench-torch \
	campaign-torch install wheel format tidy clean release \
	release-tests
