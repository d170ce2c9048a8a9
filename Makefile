# Required parts are installed and started where possible; see internal/testbed/run.sh.

GOLANGCI_VERSION = v2.15.0
CACHE = $(CURDIR)/.cache
LINT = $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
TESTSUM_VERSION = v1.13.0
TESTSUM = $(CACHE)/gotestsum-$(TESTSUM_VERSION)
PLATFORMS = linux/arm64 darwin/arm64 windows/amd64

# Each module of the workspace with all its packages.
MODULES = $(shell go list -m -f '{{.Dir}}')
ALL = $(addsuffix /...,$(MODULES))

# All programs and tests are built without cgo, except for the race detector, which needs it. Each
# package is then compiled twice at most: once like this, once for the race detector.
export CGO_ENABLED = 0

# Packages whose tests run without the race detector: they start programs and watch them from
# outside, or compare with a remote service, or contain no concurrency. Long packages come
# first, so that the others run beside them.
PLAIN_TREES = internal/endtoend manager/internal/chaos examples driver/vm/libvirt driver/vm/ec2 \
  secrets/vault secrets/aws secrets/azure secrets/google secrets/kubernetes logger/otlp \
  internal/testbed internal/docs internal/conformance
RACE_FIRST = ./driver/kubernetes ./driver/vm ./manager ./internal/endtoend/peers

# $(call packages,TREES) lists the packages of the workspace in or below these folders, in this order.
packages = $(foreach d,$(1),./$(d)/...)
PLAIN = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(call packages,$(PLAIN_TREES)) | grep -v '/internal/endtoend/peers$$')
RACE = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(RACE_FIRST) $(ALL) | awk '!seen[$$0]++' | grep -vxF "$$(printf '%s\n' $(PLAIN))")

.PHONY: all test suite plain race soak conformance chaos attack vmcrash bench plots screens queuetest fuzz lint vet overlay build sizes images manifests cross clean requirements

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
FLAGS = -vet=off -count=1 -timeout 30m $(TESTFLAGS)
plain: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
	@.ci/gotest $(CACHE) plain "$(FLAGS)" $(PLAIN)

race: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
	@.ci/gotest $(CACHE) race "$(if $(DLITE_NO_RACE),,-race) $(FLAGS)" $(RACE)

## soak: the long random histories of which "make test" runs small samples; takes hours
soak: queuetest chaos vmcrash
	DLITE_TEST_DRONE_STAGES=1000 go test -count=1 -timeout 30m -run '^(TestStagesEndOnce.*|TestTwoServers.*)$$' ./client/drone
	DLITE_PIPELINETEST_RUNS=10000 go test -count=1 -timeout 30m -run '^TestTheEngineActsAsTheModel$$' ./manager/pipeline/internal/engine
	@internal/testbed/run.sh env DLITE_HISTORYTEST_RUNS=5000 go test -count=1 -timeout 60m -run '^TestTheHistoryActsAsTheModel$$' ./manager/pipeline/internal/store
	@internal/testbed/run.sh env DLITE_TEST_LOGSTORM=1 DLITE_TEST_ENGINE_ROUNDS=10 DLITE_TEST_KILL_INSTANTS=300 DLITE_TEST_RUN_KILLS=300 \
	  go test -v -count=1 -timeout 2h -run '^(TestLogsOutlastAStorm|TestKillsOfTheEngineLeaveNothing|TestKillsAtRandomInstants.*|TestRunsSurviveKills.*|TestADroneStage.*Survives.*)$$' ./internal/endtoend

## conformance: the suite of all drivers on all infrastructures, and docs/conformance.md from it
CONFORMANCE = $(CACHE)/conformance
conformance:
	@rm -rf $(CONFORMANCE) && mkdir -p $(CONFORMANCE)
	@internal/testbed/run.sh env DLITE_TEST_REQUIRE=all DLITE_CONFORMANCE_DIR=$(CONFORMANCE) \
	  go test -count=1 -timeout 25m -run '^TestConformance' ./driver/... ./driver/kubernetes/... ./driver/vm/libvirt/... ./driver/vm/ec2/...
	go run ./internal/conformance $(CONFORMANCE) docs/conformance.md

## chaos: thousands of stages, and of runs of pipelines, while all processes are killed, paused and cut off;
## DLITE_CHAOS_SEED=... repeats a run
CHAOS_STAGES ?= 20000
CHAOS_RUNS ?= 2000
chaos:
	@DLITE_CHAOS_RUNS=$(CHAOS_RUNS) internal/testbed/run.sh go test -v -count=1 -timeout 6h -run '^TestRunsSurvive' ./manager/pipeline
	@DLITE_CHAOS_STAGES=$(CHAOS_STAGES) DLITE_CHAOS_RUNS=$(CHAOS_RUNS) internal/testbed/run.sh go test -v -count=1 -timeout 3h ./manager/internal/chaos

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
	@internal/testbed/run.sh env DLITE_QUEUETEST_OPS=100000 go test -run '^TestTheQueue' -v -timeout 60m ./manager

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

# Package grpc links the templates of golang.org/x/net/trace unless this tag is set. Templates call methods by
# name, so that the linker keeps every method: 25 MB of the manager, which links gRPC with its buckets.
TAGS = -tags grpcnotrace
TRIM = -trimpath
RELEASE = $(TRIM) $(TAGS) -ldflags='-s -w'

# The delegate starts a small program for the host steps of a transaction, which it has inside. In the repository the file
# is empty.
OVERLAY = -overlay $(CURDIR)/bin/overlay.json
overlay:
	@mkdir -p bin
	GOOS=linux GOARCH=$(TARGETARCH) go build $(RELEASE) -o $(CURDIR)/bin/supervisor-$(TARGETARCH) ./driver/local/host/supervisor
	@echo '{"Replace":{"$(CURDIR)/examples/delegate/supervisor.bin":"$(CURDIR)/bin/supervisor-$(TARGETARCH)"}}' > $(CURDIR)/bin/overlay.json

## build: every program, into bin/
build: overlay
	go build $(TAGS) $(OVERLAY) -o bin/ ./examples/...

## sizes: the stripped programs in bin/release, with their sizes in MB; fails if one has grown
sizes: overlay
	@mkdir -p bin/release
	go build $(RELEASE) $(OVERLAY) -o bin/release/ ./examples/manager ./examples/delegate ./examples/agent ./examples/dlite
	@status=0; for goal in manager:48 delegate:38 agent:14 dlite:40; do \
	  bytes=$$(wc -c < bin/release/$${goal%:*}); \
	  awk "BEGIN { printf \"%-9s %4.1f MB, at most %d MB\\n\", \"$${goal%:*}\", $$bytes / 1000000, $${goal#*:} }"; \
	  [ $$bytes -le $$(($${goal#*:} * 1000000)) ] || status=1; \
	done; exit $$status

## requirements: writes VERSION, such as v0.3.0, into the requirements of our modules on each other
requirements:
	@[ -n "$(VERSION)" ] || { echo "usage: make requirements VERSION=vX.Y.Z"; exit 2; }
	@for d in $(MODULES); do \
	  grep -qE '^\s+github.com/delegate-io/dlite(/\S+)? v' $$d/go.mod || continue; \
	  sed -i -E 's#^(\s+github.com/delegate-io/dlite(/\S+)?) v[^ ]+#\1 $(VERSION)#' $$d/go.mod && echo "$$d/go.mod"; \
	done

## images: the images of the delegate and of the agent, for this architecture or TARGETARCH
TARGETARCH ?= $(shell go env GOARCH)
IMAGE_TAG ?= 0.1.0
images: overlay
	@mkdir -p bin/images
	CGO_ENABLED=0 GOOS=linux GOARCH=$(TARGETARCH) go build $(RELEASE) $(OVERLAY) -o bin/images/ ./examples/delegate ./examples/agent
	cp /etc/ssl/certs/ca-certificates.crt bin/images/
	@for i in delegate agent; do \
	  docker build --platform linux/$(TARGETARCH) -t dlite-$$i:$(IMAGE_TAG) -f deploy/images/$$i.Dockerfile bin/images || exit 1; \
	done

## manifests: deploy/kubernetes from the chart, for users without Helm
manifests:
	helm template dlite deploy/chart --namespace dlite --values deploy/kubernetes/values.yaml > deploy/kubernetes/dlite.yaml

## cross: the programs for all other platforms, compiled and linked; the SDK and its
## tests are type-checked for the other operating systems
cross:
	@for p in $(PLATFORMS); do \
	  echo "build for $$p"; \
	  export GOOS=$${p%/*} GOARCH=$${p#*/}; \
	  go build -o /dev/null ./examples/delegate && go build -o /dev/null ./examples/agent || exit 1; \
	  [ $$GOOS = linux ] || go vet -unusedresult ./... ./examples/delegate ./examples/agent || exit 1; \
	done

clean:
	rm -rf bin $(CACHE)
