# weft: a service mesh control plane for Envoy. `make` alone lists what there is.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# What many goroutines share: these also run under the race detector.
RACED := ./internal/table/... ./internal/graph/... ./internal/xds/... ./internal/store/... \
	./internal/admit/... ./internal/mirror/... ./internal/publish/... ./internal/reconcile/... \
	./internal/dpserver/... ./internal/agent/... ./internal/instances/... ./internal/view/... \
	./internal/access/... ./internal/audit/... ./internal/zonesync/... ./internal/certfile/... ./internal/rest/...

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: build tools ## see a mesh of two zones work: real Envoys, requests that cross, whatever is killed
	@bin/weft demo --once

build: ## bin/weft and bin/weft-dp
	@tools/build $(VERSION)

tools: ## the pinned Envoy in .tools/, unless WEFT_ENVOY or the PATH has one
	@tools/envoy/fetch

spire: ## SPIRE's server and agent, for the tests with them: built once, in about 5 minutes
	@test/spire/build

generate: ## files that are made from others
	go generate ./...

test: build tools spire ## everything that CI runs
	@test -z "$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go'))" || \
		{ echo "not formatted; run: gofmt -w" $$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); exit 1; }
	go vet ./...
	tools/generated
	go test ./...
	go test -race $(RACED)

check: ## every fuzz target for a minute
	@tools/fuzz 60s

# Worlds that `make sim` lives through.
SEEDS ?= 100000

sim: ## zone sync in SEEDS seeded worlds, 100,000 by default: crashes, cuts, restored stores, a zone that lies
	@cd internal/sim && go test -count=1 -timeout 0 -run 'TestSeeds$$' -seeds $(SEEDS)

drills: build tools ## every drill with real Envoys: what was sent, answered, and failed by cause
	@cd test/e2e && go test -count=1 -timeout 1h -run TestDrill -parallel 1 -drills

hostile: build tools ## every attack with real Envoys and hostile clients: what was tried, what held and what fell
	@cd test/e2e && go test -count=1 -timeout 1h -run 'TestHostile|FallsSilent' -parallel 2 -hostile

bench: build ## cost and latency at 200 x 100 and 1,000 x 300, and from zone to zone, beside their budgets
	@tools/bench

zones: build ## what a global control plane costs with 500 simulated zones
	@bin/weft load zones

.PHONY: help demo build tools spire generate test check sim drills hostile bench zones
