# Everything that is needed is installed and started where that is possible; see
# internal/testbed/run.sh.

GOLANGCI_VERSION = v2.15.0
CACHE = $(CURDIR)/.cache
LINT = $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
TESTSUM_VERSION = v1.13.0
TESTSUM = $(CACHE)/gotestsum-$(TESTSUM_VERSION)
PLATFORMS = linux/arm64 darwin/arm64 windows/amd64

# Each module of the workspace with all its packages.
MODULES = $(shell go list -m -f '{{.Dir}}')
ALL = $(addsuffix /...,$(MODULES))

.PHONY: all test race conformance chaos vmcrash bench queuetest fuzz lint vet build images manifests cross clean

all: build vet lint test

## test: all tests under the race detector, with real parts
test:
	@internal/testbed/run.sh $(MAKE) --no-print-directory race

# DLITE_TEST_RERUN=1 gives tests that fail, if they are few, a second run by themselves,
# and lists them: such a test has an error of its own, mostly with time, and is to be mended.
# The packages that take longest begin first: the others fill the time beside them.
race: PACKAGES = ./internal/endtoend ./driver/kubernetes $(ALL)
race: FLAGS = $(if $(DLITE_NO_RACE),,-race) -timeout 45m $(TESTFLAGS)
race: $(if $(DLITE_TEST_RERUN),$(TESTSUM))
# A new machine builds the cluster first, which takes minutes of both cores: tests that
# look at the clock should not run beside it. What goes wrong is told again by the tests.
	@go test -timeout 40m -run '^TestAClusterRunsAPodAndKnowsHowItEnded$$' ./internal/testbed >/dev/null || true
ifdef DLITE_TEST_RERUN
	$(TESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=12 \
	  --rerun-fails-report=$(CACHE)/rerun.txt --packages="$(PACKAGES)" -- $(FLAGS)
	@[ ! -s $(CACHE)/rerun.txt ] || { echo "FAILED AT FIRST, passed alone:"; cat $(CACHE)/rerun.txt; }
else
	go test $(FLAGS) $(PACKAGES)
endif

## conformance: the suite of all drivers on all infrastructures, and docs/conformance.md from it
CONFORMANCE = $(CACHE)/conformance
conformance:
	@rm -rf $(CONFORMANCE) && mkdir -p $(CONFORMANCE)
	@internal/testbed/run.sh env DLITE_TEST_REQUIRE=all DLITE_CONFORMANCE_DIR=$(CONFORMANCE) \
	  go test -count=1 -timeout 25m -run '^TestConformance' ./driver/... ./driver/kubernetes/... ./driver/vm/libvirt/... ./driver/vm/ec2/...
	go run ./internal/conformance $(CONFORMANCE) docs/conformance.md

## chaos: thousands of stages while all that takes part is killed, paused and cut off;
## DLITE_CHAOS_SEED=... draws the same again
CHAOS_STAGES ?= 20000
chaos:
	@DLITE_CHAOS_STAGES=$(CHAOS_STAGES) internal/testbed/run.sh go test -v -count=1 -timeout 3h ./manager/internal/chaos

## vmcrash: a delegate with QEMU's machines killed at DLITE_VM_CRASHES random instants (default 100 here, 10 in a test run)
vmcrash:
	@internal/testbed/run.sh env DLITE_VM_CRASHES=$${DLITE_VM_CRASHES:-100} \
	  go test -v -count=1 -timeout 60m -run 'TestKillsAtRandomInstantsLeaveNoVirtual' ./driver/vm

## bench: the figures in docs/benchmarks.md
bench:
	@internal/testbed/run.sh go test -run '^$$' -bench . -benchmem -timeout 20m $(ALL)

## queuetest: 100,000 random operations on managers in memory, on SQLite and on Redis, against a model
queuetest:
	@internal/testbed/run.sh env DLITE_QUEUETEST_OPS=100000 go test -run '^TestTheQueue' -v -timeout 60m ./manager

## fuzz: every fuzz target of FUZZPKGS (default all) for FUZZTIME (default 1m)
FUZZTIME ?= 1m
FUZZPKGS ?= $(ALL)
fuzz:
	@for pkg in $$(go list $(FUZZPKGS)); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

vet:
	go vet $(ALL)

lint: $(LINT)
	@for m in $(MODULES); do (cd $$m && $(LINT) run ./...) || exit 1; done

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

## images: the images of the delegate and of the agent, for this architecture or TARGETARCH
TARGETARCH ?= $(shell go env GOARCH)
IMAGE_TAG ?= 0.1.0
images:
	@mkdir -p bin/images
	CGO_ENABLED=0 GOOS=linux GOARCH=$(TARGETARCH) go build -trimpath -ldflags='-s -w' -o bin/images/ ./examples/delegate ./examples/agent
	cp /etc/ssl/certs/ca-certificates.crt bin/images/
	@for i in delegate agent; do \
	  docker build --platform linux/$(TARGETARCH) -t dlite-$$i:$(IMAGE_TAG) -f deploy/images/$$i.Dockerfile bin/images || exit 1; \
	done

## manifests: deploy/kubernetes from the chart, for those who have no Helm
manifests:
	helm template dlite deploy/chart --namespace dlite --values deploy/kubernetes/values.yaml > deploy/kubernetes/dlite.yaml

## cross: everything, tests included, for the platforms that this one is not: compiled and vetted, and what is shipped linked
cross:
	@for p in $(PLATFORMS); do \
	  echo "vet and build $$p"; \
	  export GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0; \
	  go vet $(ALL) && go build -o /dev/null ./examples/delegate && go build -o /dev/null ./examples/agent || exit 1; \
	done

clean:
	rm -rf bin $(CACHE)
