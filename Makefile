# make build    both programs, in bin/
# make demo     a daemon with an embedded broker, and consumers to play with
# make test     all tests, under the race detector, on brokers of their own
# make brokers-up     a RabbitMQ and a Kafka on this machine, to play with
# make brokers-down   ends them; their data stays in bin/brokers
# make check    all that CI runs
# make proto    the Go code of the API
# make image    the API that later changes must not break; a release renews it
# make bench    the measurements of bench/, or those that BENCH names
# make mutants  known mistakes, one at a time, that the tests must find
# make fuzz     each fuzz target for FUZZTIME
#
# Needed: Go, make and a C compiler (for the race detector). The other tools are
# pinned in tools/ and built on demand. The brokers are installed when missing,
# from the packages of Debian and, Kafka, from Maven Central: as root or by sudo.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

TOOLS := bin/tools
PROTO := $(shell find proto -name '*.proto')
GOTEST := go run ./tools/gotest
TIMEOUT ?= 40m
FUZZTIME ?= 30s
BENCH ?= core rabbitmq kafka jetstream idle backlog pause

# Go stamps the version of the commit where there is one to ask for.
VCS := $(shell git describe --always --dirty >/dev/null 2>&1 && echo true || echo false)

.PHONY: build
build:
	mkdir -p bin
	go build -trimpath -buildvcs=$(VCS) -o bin/ ./cmd/...

.PHONY: demo
demo: build
	bin/supervisord demo

.PHONY: brokers-up
brokers-up:
	go run ./test/brokers up

.PHONY: brokers-down
brokers-down:
	go run ./test/brokers down

.PHONY: test
test:
	go run ./test/brokers install
	$(GOTEST) -race -timeout $(TIMEOUT) ./...

.PHONY: check
check: drift lint vet test

# The import rules, and what docs/lifecycle.md shows of the transition table,
# are tests among the others.
.PHONY: vet
vet:
	go vet ./...

.PHONY: lint
lint: $(TOOLS)/.lint $(TOOLS)/.proto
	$(TOOLS)/golangci-lint run --allow-parallel-runners ./...
	$(TOOLS)/buf lint
	$(TOOLS)/buf breaking --against proto/image.binpb

.PHONY: proto
proto: $(TOOLS)/.proto
	$(TOOLS)/buf generate

# drift fails when the generated code is not what the proto files say.
.PHONY: drift
drift: $(TOOLS)/.proto
	rm -rf bin/.drift
	$(TOOLS)/buf generate -o bin/.drift
	@cd bin/.drift/proto && for f in $$(find . -name '*.pb.go') $$(cd ../../../proto && find . -name '*.pb.go'); do \
		diff -u "../../../proto/$$f" "$$f" || { echo "proto/$$f is not generated from the proto files as they are: run make proto"; exit 1; }; \
	done
	rm -rf bin/.drift

# The image is the API as of the last release: lint fails on a change that would
# break a client of it. Before the first release it follows the proto files;
# from then on it is renewed with a release, in the commit that is tagged.
.PHONY: image
image: $(TOOLS)/.proto
	$(TOOLS)/buf build --exclude-source-info -o proto/image.binpb

.PHONY: bench
bench:
	mkdir -p bin
	go build -o bin/bench ./bench
	@for name in $(BENCH); do echo "== $$name"; bin/bench $$name; done

.PHONY: fuzz
fuzz:
	@for pkg in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

.PHONY: mutants
mutants:
	go run ./tools/mutants

.PHONY: clean
clean:
	rm -rf bin

# All tools of a module under tools/, built again when its pins change.
$(TOOLS)/.%: tools/%/go.mod tools/%/go.sum
	mkdir -p $(TOOLS)
	go -C tools/$* build -o ../../$(TOOLS)/ tool
	touch $@
