# Everything that is needed is installed and started where that is possible; see
# internal/testbed/run.sh.

GOLANGCI_VERSION = v2.15.0
CACHE = $(CURDIR)/.cache
LINT = $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
TESTSUM_VERSION = v1.13.0
TESTSUM = $(CACHE)/gotestsum-$(TESTSUM_VERSION)
PLATFORMS = linux/amd64 linux/arm64 darwin/arm64 windows/amd64

.PHONY: all test race chaos bench queuetest fuzz lint vet build cross clean

all: build vet lint test

## test: all tests under the race detector, with real parts
test:
	@internal/testbed/run.sh $(MAKE) --no-print-directory race

# DLITE_TEST_RERUN=1 gives tests that fail, if they are few, a second run by themselves,
# and lists them: such a test has an error of its own, mostly with time, and is to be mended.
race: FLAGS = $(if $(DLITE_NO_RACE),,-race) -timeout 25m $(TESTFLAGS)
race: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
ifdef DLITE_TEST_RERUN
	$(TESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=12 \
	  --rerun-fails-report=$(CACHE)/rerun.txt --packages=./... -- $(FLAGS)
	@[ ! -s $(CACHE)/rerun.txt ] || { echo "FAILED AT FIRST, passed alone:"; cat $(CACHE)/rerun.txt; }
else
	go test $(FLAGS) ./...
endif

## chaos: thousands of stages while all that takes part is killed, paused and cut off;
## DLITE_CHAOS_SEED=... draws the same again
CHAOS_STAGES ?= 20000
chaos:
	@DLITE_CHAOS_STAGES=$(CHAOS_STAGES) internal/testbed/run.sh go test -v -count=1 -timeout 3h ./internal/chaos

## bench: the figures in docs/benchmarks.md
bench:
	@internal/testbed/run.sh go test -run '^$$' -bench . -benchmem -timeout 20m ./...

## queuetest: 100,000 random operations on managers in memory, on SQLite and on Redis, against a model
queuetest:
	@internal/testbed/run.sh env DLITE_QUEUETEST_OPS=100000 go test -run '^TestTheQueue' -v -timeout 60m ./manager

## fuzz: every fuzz target of FUZZPKGS (default all) for FUZZTIME (default 1m)
FUZZTIME ?= 1m
FUZZPKGS ?= ./...
fuzz:
	@for pkg in $$(go list $(FUZZPKGS)); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

vet:
	go vet ./...

lint: $(LINT)
	$(LINT) run ./...

$(LINT):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(CACHE)/golangci-lint $(LINT)

$(TESTSUM):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) go install gotest.tools/gotestsum@$(TESTSUM_VERSION)
	@mv $(CACHE)/gotestsum $(TESTSUM)

## build: every program, into bin/
build:
	go build -o bin/ ./examples/...

## cross: everything, tests included, for every platform
cross:
	@for p in $(PLATFORMS); do \
	  echo "build and vet $$p"; \
	  export GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0; \
	  go build ./... && go vet ./... || exit 1; \
	done

clean:
	rm -rf bin $(CACHE)
