# weft: a service mesh control plane for Envoy. `make` alone lists the targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Without the traces of gRPC, whose templates could call every exported method, so that the linker would drop none. It
# holds for tests too, so that they share the compiled packages. (ADR 261)
export GOFLAGS := -tags=grpcnotrace $(GOFLAGS)

# Packages that many goroutines share: these also run under the race detector.
RACED := ./internal/table/... ./internal/state/... ./internal/identity/... ./internal/zoneroute/... ./internal/service/... ./internal/zoneproxy/... \
	./internal/proxy/... ./internal/graph/... ./internal/xds/... \
	./internal/store/... ./internal/admission/... ./internal/mirror/... ./internal/push/... ./internal/barrier/... \
	./internal/reconcile/... ./internal/dpserver/... ./internal/agent/... ./internal/replica/... ./internal/view/... \
	./internal/access/... ./internal/audit/... ./internal/lookup/... ./internal/zonesync/... ./internal/certfile/... \
	./internal/rest/... ./internal/bubble

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: build tools ## run a mesh of two zones with real Envoys: cross-zone requests, failover, killed processes
	@bin/weft demo --once

build: ## bin/weft and bin/weft-dp
	@tools/build $(VERSION)

symbols: ## the programs of `make build` with symbols in bin/symbols, for delve, gdb and perf
	@tools/build $(VERSION) symbols

tools: ## the pinned Envoy in .tools/, unless WEFT_ENVOY or the PATH has one
	@tools/envoy/fetch

spire: ## SPIRE's server and agent, for the tests with them: built once, in about 5 minutes
	@test/spire/build

apiserver: ## kube-apiserver and etcd, for the tests with them: built once, in about 8 minutes
	@test/kubernetes/apiserver/build >/dev/null

images: tools ## the images of weft, weft-dp and weft-cni in bin/images, for docker load, podman load or ctr images import; without Docker
	@tools/images $(VERSION) amd64 arm64

node: apiserver ## kubelet, kube-proxy, the controllers, kubectl and CoreDNS, for the tests with a Kubernetes node: built once, in about 6 minutes
	@test/kubernetes/node/build >/dev/null

argo: ## Argo Rollouts, for the drill with it: built once, in about 5 minutes
	@test/kubernetes/node/build argo >/dev/null

helm: ## helm, for the test that compares the chart with it: built once, in about 4 minutes
	@test/kubernetes/helm/build >/dev/null

kwok: apiserver ## kwok, for the measurement with many nodes: built once, in about 3 minutes
	@test/kubernetes/kwok/build >/dev/null

generate: ## the files that are generated from others
	go generate ./...

prerequisites:
	@tools/prerequisites

prerequisites-real:
	@tools/prerequisites real

prerequisites-node:
	@tools/prerequisites node

# The modules that the programs, their tests and the tools need, so that what follows downloads nothing.
modules:
	@go list -deps -test ./... >/dev/null
	@cd tools && go list -deps -test ./... tool >/dev/null

# The runner of tests: what fails runs again, alone, after all others.
.tools/gotest: $(wildcard tools/gotest/*.go)
	@cd tools && go build -o ../.tools/gotest ./gotest

# A step that is made by itself counts its own flaky tests.
RUNTESTS := $(if $(WEFT_LOGS),,rm -f .tools/logs/flaky;) .tools/gotest -logs "$(or $(WEFT_LOGS),.tools/logs)"

# Without debugging information, and without the part of `go vet ./...` that go test would run another time.
GOTEST := -vet=off -ldflags=-w -timeout 30m

test: ## the tests that a change needs: format, vet, lint, all tests but those of test-real; installs PostgreSQL and pip; 10 to 12 minutes from nothing
	@tools/steps format prerequisites modules build tools vet lint generated units e2e

test-real: ## the long tests: the race detector, SPIRE, a real API server of Kubernetes, every attack; 30 minutes from nothing
	@tools/steps prerequisites-real modules build tools race spire test-spire apiserver test-apiserver helm test-helm mutations attacks

ci: ## what CI runs, in a fresh clone of HEAD: test and test-real, with the minutes of each step; a commit that has passed passes at once
	@tools/ci

# The number of runs of `make flaky`.
RUNS ?= 10

flaky: build tools .tools/gotest ## which tests fail in RUNS runs beside six busy processes, 10 by default: end-to-end tests and the race detector; hours
	@$(RUNTESTS)/e2e -times $(RUNS) -busy 6 ./test/e2e -- $(GOTEST)
	@$(RUNTESTS)/race -times $(RUNS) -busy 6 $(RACED) -- -race $(GOTEST)

# The steps of `make test` and `make test-real`, in the order of tools/steps.

format:
	@test -z "$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go'))" || \
		{ echo "not formatted; run: gofmt -w" $$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); exit 1; }

vet:
	@go vet ./...
	@cd tools && go vet ./...

lint: ## the form of the code: doc comments, parameters, spelling; the linters are pinned in tools/go.mod
	@tools/lint

generated:
	@tools/generated

# No cached result for the tools: a test of theirs reads files of another module.
units: .tools/gotest
	@cd tools && go test -count=1 ./...
	@$(RUNTESTS) $$(go list ./... | grep -v '^weft/test/e2e$$') -- $(GOTEST)

# Without attacks, all of which test-real runs.
e2e: .tools/gotest
	@export WEFT_SKIP_ATTACKS=true; $(RUNTESTS) ./test/e2e -- $(GOTEST)

race: .tools/gotest
	@$(RUNTESTS) $(RACED) -- -race $(GOTEST)

test-spire: .tools/gotest
	@$(RUNTESTS) ./test/e2e -- $(GOTEST) -count=1 -run SPIRE -spire

test-apiserver: .tools/gotest
	@$(RUNTESTS) $(APISERVER) -- $(GOTEST) -count=1 -apiserver

test-helm: .tools/gotest
	@$(RUNTESTS) ./internal/kube/install -- $(GOTEST) -count=1 -helm

mutations:
	@cd tools && go run ./mutate -check

ATTACKS := -count=1 -run 'TestHostile|FallsSilent' -parallel 2

attacks: .tools/gotest
	@$(RUNTESTS) ./test/e2e -- $(GOTEST) $(ATTACKS) -hostile

attacks-few: .tools/gotest
	@$(RUNTESTS) ./test/e2e -- $(GOTEST) $(ATTACKS)

# The packages with tests that need a real API server of Kubernetes.
APISERVER := ./internal/kube/crd ./internal/kube/injector ./internal/kube/kubetest ./internal/kube/reach \
	./internal/kube/review ./internal/kube/webhook ./internal/store/kube ./internal/server

# The policies that `make check` draws.
POLICIES ?= 10000

# The sizes of `make scale-kubernetes`.
NODES ?= 1000
PODS ?= 30
SERVICES ?= 1000
PROXIES ?= 200
UPDATED ?= 100

scale-kubernetes: build kwok ## the cost of NODES Kubernetes nodes with PODS Pods each, simulated by kwok: 1,000 x 30 by default, which takes the whole machine
	@cd test/kubernetes/scale && go test -count=1 -timeout 3h -run 'TestScale$$' -scale -nodes $(NODES) -pods $(PODS) -services $(SERVICES) -proxies $(PROXIES) -updated $(UPDATED)

# The sizes of `make scale-clusters`.
CLUSTERS ?= 8
ZONES ?= 20

scale-clusters: build kwok ## the cost of a global control plane with ZONES zones of 1,000 Pods each, 20 by default, of which CLUSTERS are clusters, 8 by default, simulated by kwok; GLOBAL=kubernetes: global in a cluster too; takes the whole machine
	@cd test/kubernetes/scale && go test -count=1 -timeout 90m -run TestScaleClusters -scale -clusters $(CLUSTERS) -zones $(ZONES) $(if $(filter kubernetes,$(GLOBAL)),-global-on-kubernetes)

# The images of the Pods in these tests, and in the demo.
test-images: tools
	@tools/images test >/dev/null

test-kubernetes: prerequisites-node test-images node argo spire ## the tests with a Kubernetes node, as root: injected Pods, mTLS, restarts and failures under traffic, also of two clusters and a zone of machines; 25 minutes
	go test -count=1 -timeout 60m ./test/kubernetes/node -node

conformance: prerequisites-node test-images node argo ## the conformance suite of the Gateway API on a Kubernetes node, as root: its report is written to docs; 4 minutes, and 5 once to build it
	@test/kubernetes/conformance/build >/dev/null
	@go test -count=1 -timeout 40m ./test/kubernetes/node -node -run TestConformance -conformance $(VERSION) -v

demo-kubernetes: prerequisites-node test-images node argo ## a mesh on a Kubernetes node of its own, as root, without Docker: mTLS, a denied caller, promotions under traffic
	@go run ./test/kubernetes/demo

# The number of promotions of `make drills-kubernetes`.
PROMOTIONS ?= 100

drills-kubernetes: prerequisites-node test-images node argo ## every drill on a Kubernetes node under 1,000 requests a second, among them PROMOTIONS blue/green promotions with and without ignored labels, 100 by default
	@cd test/kubernetes/node && go test -count=1 -timeout 3h -node -run TestDrill -drills -promotions $(PROMOTIONS)

check: tools ## every fuzz target for a minute, and POLICIES random policies with real Envoys and what they cost these, 10,000 by default
	@cd internal/push && go test -count=1 -timeout 1h -run TestAdmittedPoliciesAreAccepted -v -policies $(POLICIES)
	@tools/fuzz 60s

# The number of worlds that `make sim` runs.
SEEDS ?= 100000

sim: ## zone sync in SEEDS seeded worlds, 100,000 by default: crashes, partitions, restored stores, a hostile zone
	@cd internal/sim && go test -count=1 -timeout 0 -run 'TestSeeds$$' -seeds $(SEEDS)

drills: build tools spire ## every drill with real Envoys: sent requests, responses, and failures by cause; BUSY=1: on a busy machine
	@cd test/e2e && go test -count=1 -timeout 2h -run TestDrill -parallel 1 -drills -spire $(if $(BUSY),-busy)

hostile: build tools attacks ## every attack with real Envoys and hostile clients: attempts, and whether the defence held

sweep: prerequisites-real tools ## what programs send, directly and through the mesh, with real Envoys: each exchange, and whether its result is equal or a difference that is decided
	@cd test/e2e && go test -count=1 -timeout 20m -run TestSweep -sweep

# Rows of docs/requirements.md that `make mutate` breaks: a regular expression, by default all; PART=1/4 is the first
# quarter of them.
ROW ?=
PART ?=

mutate: tools spire ## break each decision of docs/requirements.md once: its tests must fail; ROW=regexp, PART=I/N; about 2 hours
	@cd tools && go run ./mutate -row '$(ROW)' -part '$(PART)'

# The load tool, which is of the project and in no release.
.PHONY: .tools/load
.tools/load:
	@go build -ldflags=-w -o .tools/load ./test/load

bench: build .tools/load ## cost and latency at 200 x 100 and 1,000 x 300, of a join, across zones, and of requests of pages, beside their budgets
	@tools/bench

zones: build .tools/load ## the cost of a global control plane with 500 simulated zones
	@.tools/load zones

policies: build .tools/load ## the cost of 500 policies with 10,000 simulated proxies of 300 services, beside its budgets
	@.tools/load policies

.PHONY: $(shell sed -n 's/^\([a-z-][a-z0-9-]*\):.*/\1/p' Makefile)
