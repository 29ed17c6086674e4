package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Words of a program that reads a format: a package that has one of them needs a fuzz
// target, or an entry in readElsewhere.
var reads = regexp.MustCompile(`\b(json\.(Unmarshal|NewDecoder)|yaml(text)?\.Unmarshal|toml\.(Unmarshal|NewDecoder)|(tar|csv|gzip|zstd)\.NewReader|hclparse\.|hclsyntax\.Parse|hcljson\.Parse|image\.Decode|expr\.Compile|parser\.ParseBytes)\b`)

// Why a package that reads a format has no fuzz target of its own.
const (
	ours    = "Berth, or a program that it trusts, wrote what is read"
	members = "the bytes are taken as one JSON object, and nothing else is made of them"
	tests   = "it is a part of tests or measurements"
)

// readElsewhere has the packages without a target: a target FOLDER:NAME that reads
// through them, or a reason.
var readElsewhere = map[string]string{
	"agents/human": members, "agents/persona": "plugins/model/chat:FuzzReply", "agents/random": ours, "agents/scaffolds/internal/streamjson": "agents/scaffolds:FuzzEvents",
	"agents/terminus": "plugins/yamltext:FuzzUnmarshal", "cmd/berth/internal/agreement": "cmd/berth/internal/report:FuzzRunFolder",
	"cmd/berth/internal/control": members, "cmd/berth/internal/telemetry": members,
	"cmd/berth/internal/cli": members, "cmd/berth/internal/config/internal/eval": "cmd/berth/internal/config:FuzzLoadNeverPanics",
	"cmd/berth/internal/config/internal/variable": "cmd/berth/internal/config:FuzzLoadNeverPanics",
	"cmd/berth/internal/conform":                  tests, "cmd/berth/internal/nodecheck": ours, "cmd/berth/internal/report/charts": ours,
	"cmd/berth/internal/report/page": "core/store:FuzzReadJournal", "cmd/berth/internal/taskprobe": "tasks/harbor:FuzzConfig",
	"core/cell": ours, "core/experiment": ours, "core/gateway": "dialects:FuzzExchange", "core/gateway/recording": "dialects/replay:FuzzAnswer",
	"core/plugin": ours, "core/store/node": ours, "core/trial": ours, "core/trial/recorder": ours, "core/trial/sandbox": "core/trial/collect:FuzzCollect",
	"core/trial/views": ours, "dialects/anthropic": "dialects:FuzzExchange", "dialects/gemini": "dialects:FuzzExchange",
	"dialects/internal/wire": "dialects:FuzzExchange", "dialects/openai": "dialects:FuzzExchange", "dialects/openaichat": "dialects:FuzzExchange",
	"environments/docker/internal/docker": ours, "environments/internal/engine": ours, "environments/local/internal/base": ours,
	"environments/local/internal/ids": ours, "environments/local/internal/inside": ours, "environments/local/internal/local": ours,
	"environments/local/internal/maker": ours, "environments/podman/internal/podman": ours, "environments/sokoban": members, "examples/plugins/reviewer": "plugins/model/chat:FuzzReply",
	"internal/bench": tests, "internal/e2e/e2etest": tests, "internal/skips": tests, "plugins": ours, "plugins/agent": ours, "plugins/agent/bundle": "agents/scaffolds/bundler:FuzzImport",
	"plugins/agent/loop": "plugins/config:FuzzDecodeAgreesWithItself", "plugins/model/chat/chattest": tests, "plugins/sandbox": "plugins/sandbox/archive:FuzzExtract",
	"plugins/sandbox/host": "plugins/sandbox/archive:FuzzExtract", "plugins/sandbox/sandboxtest": tests, "plugins/sandbox/system": "plugins/sandbox/archive:FuzzExtract",
	"plugins/surface/counter": members, "plugins/surface/host": members, "plugins/surface/surfacetest": tests, "plugins/task/tasktest": tests,
	"plugins/verifier": ours, "plugins/verifier/verifiertest": tests, "tasks/internal/document": "tasks/uniclaw:FuzzLoad",
	"verifiers/aes":                       "verifiers/aes/internal/similarity:FuzzCompare",
	"verifiers/compare/internal/document": "verifiers/compare:FuzzCompare", "verifiers/supervisor": "verifiers/supervisor/internal/rules:FuzzJudgement",
}

// Every package that reads a format is fuzzed, each target has a corpus in the tree,
// and docs/security.md lists all targets.
func TestEveryParserIsFuzzed(t *testing.T) {
	t.Parallel()
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	targets, fuzzed, reading := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range files(t, ".") {
		folder := path.Dir(f.path)
		switch {
		case strings.HasSuffix(f.path, "_test.go"):
			for _, m := range target.FindAllStringSubmatch(f.text, -1) {
				targets[folder+":"+m[1]], fuzzed[folder] = true, true
			}
		case strings.HasSuffix(f.path, ".go") && !f.generated() && reads.MatchString(f.text):
			reading[folder] = true
		}
	}
	for folder := range reading {
		why := readElsewhere[folder]
		switch {
		case fuzzed[folder] && why != "":
			t.Errorf("%s has a fuzz target: take it out of readElsewhere", folder)
		case fuzzed[folder]:
		case why == "":
			t.Errorf("%s reads a format and has no fuzz target: write one, or say in readElsewhere why it needs none", folder)
		case strings.Contains(why, ":Fuzz") && !targets[why]:
			t.Errorf("%s: there is no fuzz target %s", folder, why)
		}
	}
	for folder := range readElsewhere {
		if !reading[folder] {
			t.Errorf("%s reads no format: take it out of readElsewhere", folder)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9/]+:Fuzz\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if listed[m[1]] = true; !targets[m[1]] {
			t.Errorf("docs/security.md names %s, which does not exist", m[1])
		}
	}
	for name := range targets {
		if !listed[name] {
			t.Errorf("docs/security.md does not list %s", name)
		}
		folder, function, _ := strings.Cut(name, ":")
		if seeds, err := filepath.Glob(filepath.Join(root, folder, "testdata", "fuzz", function, "*")); err != nil || len(seeds) == 0 {
			t.Errorf("%s has no corpus in %s/testdata/fuzz/%s: %v", name, folder, function, err)
		}
	}
}
