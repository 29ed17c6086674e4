# The two commands of the README are `make run` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := build

# Tags that let all plugins build in pure Go, without gRPC's tracing pages, which
# are a quarter of a program's size and of its start time. The same everywhere,
# so that each package is compiled once.
export TAGS := remote containers_image_openpgp exclude_graphdriver_btrfs grpcnotrace

# Tests of each scaffold with everything that may come to it.
TABLES = TestEachFamilyOfModels|TestEveryFaultOfAProvider|TestAProviderThatNeverAnswers|TestARunOfEachIsReplayedTheNextDay

.PHONY: build run picture test test-quick test-whole test-scaffolds test-slurm bench generate lint tools clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

build: ## bin/berth, bin/berth-sandboxd, bin/plugins/*
	@scripts/build

run: build ## the quickstart: no engine, no key, no network
	bin/berth run examples/quickstart

test: tools ## everything; the last line counts, the lines before it say what was skipped and why
	@scripts/test

test-quick: ## each Go test once: no race detector, no engines, no loops of kills; a few minutes
	@scripts/test --quick

test-whole: export BERTH_TEST_WHOLE = 1
test-whole: test ## make test with everything in every environment

test-scaffolds: ## all agents that are programs of their own, the real ones; makes their bundles first
	@BERTH_TEST_SCAFFOLDS=all go test -v -count=1 -timeout 40m -tags "$(TAGS)" -skip 'TestEachOnEngines|$(TABLES)' ./internal/e2e/scaffolds
	@BERTH_TEST_SCAFFOLDS=all go test -v -count=1 -timeout 40m -tags "$(TAGS)" -run TestEachOnEngines -parallel 6 ./internal/e2e/scaffolds
	@BERTH_TEST_SCAFFOLDS=all go test -v -count=1 -timeout 90m -tags "$(TAGS)" -run '$(TABLES)' ./internal/e2e/scaffolds

test-slurm: ## runs on a real Slurm with three nodes on this machine, as root; RUN chooses tests
	@BERTH_TEST_SLURM=1 go test -v -count=1 -timeout 60m -tags "$(TAGS)" -run '$(RUN)' ./internal/e2e/slurm

bench: build ## the figures, each beside what it is compared with
	@go run -tags "$(TAGS)" ./internal/bench

picture: build ## docs/terminal.svg, the picture of the README: the quickstart as a terminal shows it
	@go run -tags "$(TAGS)" ./cmd/berth/internal/picture bin/berth examples/quickstart docs/terminal.svg

generate: tools ## code from .proto files, and references in docs/ from code
	@if [[ -x scripts/generate-proto ]]; then PATH="$(CURDIR)/.cache/bin:$$PATH" scripts/generate-proto; fi
	@PATH="$(CURDIR)/.cache/bin:$$PATH" go generate -tags "$(TAGS)" ./...

lint: tools ## Go, .proto, scripts
	@PATH="$(CURDIR)/.cache/bin:$$PATH" CGO_ENABLED=0 GOFLAGS=-trimpath golangci-lint run ./...
	@scripts/lint-rest

tools: ## what lint and generate need, in pinned versions, into .cache/bin
	@scripts/tools

clean: ## what make built; runs are kept
	rm -rf bin .cache
