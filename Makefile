# Required parts are installed and started where possible; see internal/testbed/run.sh.

GOLANGCI_VERSION = v2.15.0
CACHE = $(CURDIR)/.cache
LINT = $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
TESTSUM_VERSION = v1.13.0
TESTSUM = $(CACHE)/gotestsum-$(TESTSUM_VERSION)

# Each module of the workspace with all its packages.
MODULES = $(shell go list -m -f '{{.Dir}}')
ALL = $(addsuffix /...,$(MODULES))

# All programs and tests are built without cgo, except for the race detector, which needs it. Each
# package is then compiled twice at most: once like this, once for the race detector. The programs
# of a release have -trimpath, and their packages stay in the build cache for all clones.
export CGO_ENABLED = 0

# Packages whose tests run without the race detector: they start programs and watch them from
# outside, or compare with a remote service, or contain no concurrency. Long packages come
# first, so that the others run beside them.
PLAIN_TREES = internal/endtoend manager/internal/chaos examples driver/vm/libvirt driver/vm/ec2 \
  secrets/vault secrets/aws secrets/azure secrets/google secrets/kubernetes logger/otlp \
  internal/testbed internal/docs internal/conformance internal/release
RACE_FIRST = ./driver/kubernetes ./driver/vm ./manager ./internal/endtoend/peers

# $(call packages,TREES) lists the packages of the workspace in or below these folders, in this order.
packages = $(foreach d,$(1),./$(d)/...)
PLAIN = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(call packages,$(PLAIN_TREES)) | grep -v '/internal/endtoend/peers$$')
RACE = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(RACE_FIRST) $(ALL) | awk '!seen[$$0]++' | grep -vxF "$$(printf '%s\n' $(PLAIN))")

.PHONY: all test suite plain race soak conformance chaos attack vmcrash bench plots screens queuetest fuzz lint vet build sizes release images manifests cross clean requirements

all: build vet lint test

## test: all tests, with real parts; the race detector runs for packages with goroutines
test:
	@internal/testbed/run.sh $(MAKE) --no-print-directory suite

suite:
# A new machine first builds the cluster, which uses both cores for minutes. Tests that
# measure time must not run at the same time. The tests report its errors again.
	@go test -vet=off -timeout 40m -run '^TestAClusterRunsAPodAndKnowsHowItEnded$$' ./internal/testbed >/dev/null || true
	@rm -f $(CACHE)/rerun-*.txt $(CACHE)/test-*.json
	@status=0; \
	$(MAKE) --no-print-directory plain || status=1; \
	$(MAKE) --no-print-directory race || status=1; \
	.ci/summary $(CACHE)/test-*.json 2>/dev/null || true; \
	exit $$status

# DLITE_TEST_RERUN=1 repeats failed tests, at most 3 in total, and lists them. Such a test
# has a defect, mostly with time, and must be corrected.
# "make vet" and "make lint" analyse the tests already, so the tests run with -vet=off. Without
# -count=1 the go command would hash every file that a test has read, which takes minutes of a
# processor for internal/endtoend.
FLAGS = -vet=off -count=1 -timeout 45m $(TESTFLAGS)
plain: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
	@.ci/gotest $(CACHE) plain "$(FLAGS)" $(PLAIN)

race: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
	@.ci/gotest $(CACHE) race "$(if $(DLITE_NO_RACE),,-race) $(FLAGS)" $(RACE)

## soak: the long random histories of which "make test" runs small samples; takes hours
soak: queuetest chaos vmcrash
	DLITE_TEST_SOURCES=2000 go test -v -count=1 -timeout 30m -run '^TestManySources' ./task/connector/source
	DLITE_TEST_DRONE_STAGES=1000 go test -count=1 -timeout 30m -run '^(TestStagesEndOnce.*|TestTwoServers.*)$$' ./client/drone
	DLITE_PIPELINETEST_RUNS=10000 go test -count=1 -timeout 30m -run '^TestTheEngineActsAsTheModel$$' ./manager/pipeline/internal/engine
	@internal/testbed/run.sh env DLITE_HISTORYTEST_RUNS=5000 go test -count=1 -timeout 60m -run '^TestTheHistoryActsAsTheModel$$' ./manager/pipeline/internal/store
	@internal/testbed/run.sh env DLITE_TEST_LOGSTORM=1 DLITE_TEST_LONG_RUN=100000 DLITE_TEST_ENGINE_ROUNDS=10 DLITE_TEST_KILL_INSTANTS=300 DLITE_TEST_RUN_KILLS=300 \
	  go test -v -count=1 -timeout 2h -run '^(TestLogsOutlastAStorm|TestKillsOfTheEngineLeaveNothing|TestKillsAtRandomInstants.*|TestRunsSurviveKills.*|TestALongRun.*|TestADroneStage.*Survives.*)$$' ./internal/endtoend

## conformance: the suite of all drivers on all infrastructures, and docs/conformance.md from it
CONFORMANCE = $(CACHE)/conformance
conformance:
	@rm -rf $(CONFORMANCE) && mkdir -p $(CONFORMANCE)
	@internal/testbed/run.sh env DLITE_TEST_REQUIRE=all DLITE_CONFORMANCE_DIR=$(CONFORMANCE) \
	  go test -count=1 -timeout 25m -run '^TestConformance' ./driver/... ./driver/kubernetes/... ./driver/vm/libvirt/... ./driver/vm/ec2/...
	go run ./internal/conformance $(CONFORMANCE) docs/conformance.md

## chaos: thousands of stages, of perpetual tasks and of runs of pipelines, while all processes are killed, paused and cut off;
## DLITE_CHAOS_SEED=... repeats a run
CHAOS_STAGES ?= 20000
CHAOS_RUNS ?= 2000
CHAOS_PERPETUAL ?= 10000
chaos:
	@DLITE_CHAOS_RUNS=$(CHAOS_RUNS) internal/testbed/run.sh go test -v -count=1 -timeout 6h -run '^TestRunsSurvive' ./manager/pipeline
	go test -count=1 -timeout 30m ./manager/internal/perpetual -rapid.checks=100000 -rapid.steps=80
	@DLITE_CHAOS_STAGES=$(CHAOS_STAGES) DLITE_CHAOS_PERPETUAL=$(CHAOS_PERPETUAL) DLITE_CHAOS_RUNS=$(CHAOS_RUNS) internal/testbed/run.sh go test -v -count=1 -timeout 3h ./manager/internal/chaos

## attack: a hostile account, step and network against the bundled programs, DLITE_ATTACK_TRIES (default 40 here, 10 in a test run)
## tries of each kind
attack:
	@internal/testbed/run.sh env DLITE_ATTACK_TRIES=$${DLITE_ATTACK_TRIES:-40} \
	  go test -v -count=1 -timeout 60m -run '^TestHostileCallersReachNothingOfOthers$$' ./internal/endtoend

## vmcrash: a delegate with QEMU machines is killed at DLITE_VM_CRASHES random instants (default 100 here, 4 in a test run)
vmcrash:
	@internal/testbed/run.sh env DLITE_VM_CRASHES=$${DLITE_VM_CRASHES:-100} \
	  go test -v -count=1 -timeout 60m -run 'TestKillsAtRandomInstantsLeaveNoVirtual' ./driver/vm

## bench: the figures in docs/benchmarks.md
bench:
	@internal/testbed/run.sh go test -run '^$$' -bench . -benchmem -timeout 20m $(ALL)

## screens: the pictures of docs/page.md, from the page in Chromium
screens:
	@internal/testbed/run.sh env DLITE_PAGE_SCREENS=$(CURDIR)/docs/img go test -vet=off -count=1 -run '^TestAFailedCellOfAMatrixIsFound$$' ./examples/internal/pagetest

## plots: the plots of docs/benchmarks.md, from benchmarks that it runs; takes some minutes
plots:
	@mkdir -p $(CACHE)
	@internal/testbed/run.sh go test -vet=off -run '^$$' -bench '^Benchmark(Decisions|Masker|Replacer|Pickup)$$' -benchtime 0.5s -p 1 -timeout 20m \
	  ./manager/internal/queue ./secrets ./manager > $(CACHE)/plots.txt
	go run ./internal/plot $(CACHE)/plots.txt docs/img

## queuetest: 100,000 random operations on managers in memory, on SQLite and on Redis, against a model
queuetest:
	@internal/testbed/run.sh env DLITE_QUEUETEST_OPS=100000 go test -run '^TestThe(Queue|PerpetualTasks)' -v -timeout 60m ./manager

## fuzz: every fuzz target of FUZZPKGS (default all) for FUZZTIME (default 1m)
FUZZTIME ?= 1m
FUZZPKGS ?= $(ALL)
fuzz:
	@for pkg in $$(go list $(FUZZPKGS)); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg || exit 1; \
	  done; \
	done

vet:
	go vet $(ALL)

lint: $(LINT)
	$(LINT) run $(ALL)

$(LINT):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(CACHE)/golangci-lint $(LINT)

$(TESTSUM):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) go install gotest.tools/gotestsum@$(TESTSUM_VERSION)
	@mv $(CACHE)/gotestsum $(TESTSUM)

# Programs, platforms and flags of the bundled programs: internal/release/programs.go and build.go.
# Without the workspace the Go command leaves go.work.sum alone: a release needs a working tree without changes.
RELEASE = GOWORK=off go build -C internal/release -o $(CURDIR)/bin/make-release . && bin/make-release

## build: every program for this machine, into bin/, for debugging and tests: with symbols, and compiled like the tests
build:
	@mkdir -p bin
	@$(RELEASE) overlay -out bin
	go build -tags grpcnotrace -overlay bin/overlay.json -o bin/ ./examples/...

## sizes: the programs of a release for linux/amd64 in bin/release, with their sizes in MB; fails if one has grown
sizes:
	@$(RELEASE) sizes -out bin/release

## release: the files of VERSION, such as v0.3.0, in OUT (default dist), signed with the minisign key in the file KEY
OUT ?= dist
release:
	@[ -n "$(VERSION)" ] || { echo "usage: make release VERSION=vX.Y.Z [KEY=FILE] [OUT=DIR] [ADDRESS=URL]"; exit 2; }
	@$(RELEASE) all -version "$(VERSION)" -out "$(OUT)" $(if $(KEY),-key "$(KEY)") $(if $(ADDRESS),-address "$(ADDRESS)")

## requirements: writes VERSION, such as v0.3.0, into the requirements of our modules on each other
requirements:
	@[ -n "$(VERSION)" ] || { echo "usage: make requirements VERSION=vX.Y.Z"; exit 2; }
	@for d in $(MODULES); do \
	  grep -qE '^\s+github.com/delegate-io/dlite(/\S+)? v' $$d/go.mod || continue; \
	  sed -i -E 's#^(\s+github.com/delegate-io/dlite(/\S+)?) v[^ ]+#\1 $(VERSION)#' $$d/go.mod && echo "$$d/go.mod"; \
	done

## images: the images of a release with the tag IMAGE_TAG, for this architecture or TARGETARCH; a Docker engine loads them
TARGETARCH ?= $(shell go env GOARCH)
IMAGE_TAG ?= 0.1.0
images:
	@rm -rf bin/images
	@$(RELEASE) images -tag "$(IMAGE_TAG)" -platforms linux/$(TARGETARCH) -out bin/images
	@for file in bin/images/*.tar; do docker load --input $$file || exit 1; done

## manifests: deploy/kubernetes from the chart, for users without Helm
manifests:
	helm template dlite deploy/chart --namespace dlite --values deploy/kubernetes/values.yaml > deploy/kubernetes/dlite.yaml

## cross: the programs for other platforms, compiled and linked as for a release; the SDK and its
## tests are type-checked for the other operating systems, with the packages that were compiled for the programs
CROSS = linux/arm64 darwin/arm64 windows/amd64
cross:
	@for p in $(CROSS); do \
	  $(RELEASE) build -platforms $$p -programs delegate,agent || exit 1; \
	  [ $${p%/*} = linux ] || GOOS=$${p%/*} GOARCH=$${p#*/} go vet -trimpath -tags grpcnotrace -unusedresult ./... ./examples/delegate ./examples/agent || exit 1; \
	done

clean:
	rm -rf bin dist $(CACHE)
