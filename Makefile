# The two commands of the README are `make run` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := build

# Tags that let all plugins build in pure Go, without gRPC's tracing pages, which are
# a quarter of a program's size and of its start time. The same flags everywhere, so
# that each package is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false -tags=grpcnotrace

# How much the tests of the targets below `test` include, see internal/testlevel.
test-% : export BERTH_TEST ?= e2e
test-all: export BERTH_TEST := all

# gotestsum prints a line for each package, and what failed; skips counts the reasons.
# What tests leave in their temporary folder goes with it, also after Ctrl-C. Most tests
# wait for something most of the time, so there may be more of them than processors.
go_test = mkdir -p .cache && export BERTH_TEST_TMP=$$(mktemp -d /tmp/bXXX) && export TMPDIR=$$BERTH_TEST_TMP && chmod 1777 $$TMPDIR && \
	trap 'chmod -R u+rwx $$TMPDIR 2>/dev/null; rm -rf $$TMPDIR' EXIT && go tool gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped \
	--jsonfile .cache/$@.json --post-run-command 'go run ./internal/skips .cache/$@.json' -- -timeout 60m

.PHONY: build run test test-e2e test-engines test-kits test-scaffolds test-slurm test-race test-all fuzz \
	setup bench generate lint tools clean help

help: ## what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

build: ## bin/berth, bin/berth-sandboxd, bin/plugins/*
	@scripts/build

run: build ## the quickstart: no engine, no key, no network
	bin/berth run examples/quickstart

test: build ## every package, the quickstart, a kit of each kind: 5 minutes
	@go build ./... && go vet ./... && $(go_test) -p 4 -parallel 4 ./...

test-e2e: build ## whole runs with the built program, faults and kills: 12 minutes
	@$(go_test) -count=1 -p 2 -parallel 4 ./cmd/berth/internal/view ./cmd/berth/internal/report/page ./internal/e2e/command ./internal/e2e/jobs ./internal/e2e/faults

test-engines: build ## what is about Docker, Podman and the kinds of users of local: 10 minutes
	@$(go_test) -count=1 -parallel 4 ./environments/... ./internal/e2e/engines ./internal/e2e/compose

test-kits: build ## the conformance kits of all plugins, and what each kit finds: 5 minutes
	@$(go_test) -count=1 -parallel 4 ./cmd/berth/internal/conform ./internal/e2e/kits

test-scaffolds: build ## tests with the real agent CLIs: 5 minutes
	@$(go_test) -count=1 ./agents/... ./internal/e2e/scaffolds

test-slurm: build ## a real Slurm with three nodes, as root; RUN chooses tests: 30 minutes
	@$(go_test) -count=1 -run '$(RUN)' ./internal/e2e/slurm

test-race: build ## the race detector, which needs gcc: 10 minutes
	@export CGO_ENABLED=1 && $(go_test) -race ./core/... ./cmd/berth/internal/config/... ./plugins/... ./dialects/...

test-all: ## all of them one after the other, with all repetitions: 4 hours
	@if [[ $$(id -u) == 0 ]]; then scripts/setup; fi
	@for t in lint test test-kits test-e2e test-engines test-scaffolds test-race test-slurm fuzz; do $(MAKE) --no-print-directory $$t || exit; done

fuzz: ## each fuzz target for a minute
	@scripts/fuzz

setup: ## installs what the whole suite wants, as root on Debian or Ubuntu
	@scripts/setup

bench: build ## the figures, each beside what it is compared with
	@go run ./internal/bench

generate: tools ## code from .proto files, and references in docs/ from code
	@PATH="$(CURDIR)/.cache/bin:$$PATH" scripts/generate-proto
	@PATH="$(CURDIR)/.cache/bin:$$PATH" go generate ./...

lint: tools ## Go, .proto, scripts, go.mod, generated files: 5 minutes
	@PATH="$(CURDIR)/.cache/bin:$$PATH" golangci-lint run ./...
	@PATH="$(CURDIR)/.cache/bin:$$PATH" buf lint
	@bash -n .ci/run && for f in scripts/*; do bash -n $$f || exit; done
	@go mod tidy -diff
	@scripts/check-generated

tools: ## what lint and generate need, in pinned versions, into .cache/bin
	@scripts/tools

clean: ## what make built; runs are kept
	rm -rf bin .cache
