package house

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// The core must treat everyone the same, so it must not contain anyone's name,
// not even in a comment: special cases begin with names. General features of
// the core (an executor, the folder of a dialect) are not in these lists.
var (
	engines = []string{
		"podman", "docker", "containerd", "kubernetes", "apptainer", "singularity", "bubblewrap", "bwrap", "gvisor",
		"firecracker", "playwright", "chromedp", "chromium",
	}
	agents = []string{
		"claude", "codex", "terminus", "openhands", "swe-agent", "sweagent", "aider", "goose", "opencode", "copilot",
		"openclaw", "nanobot", "gemini-cli", "gemini_cli", "qwen", "cline",
	}
	benchmarks = []string{
		"harbor", "terminal-bench", "terminal_bench", "terminalbench", "tua-bench", "tuabench", "swe-bench", "swebench",
		"uniclawbench", "gauntletbench", "magebench", "sokoban", "webarena", "osworld", "browsergym", "gsm8k", "humaneval", "inspect_ai",
	}
	// Only a dialect's own folder, dialects/<name>, knows its provider.
	providers = []string{"anthropic", "openai", "gemini", "mistral", "deepseek"}
)

var forbiddenInCore = words(engines, agents, benchmarks, providers)

// words matches any of the words, in any case.
func words(lists ...[]string) *regexp.Regexp {
	var all []string
	for _, l := range lists {
		for _, w := range l {
			all = append(all, regexp.QuoteMeta(w))
		}
	}
	return regexp.MustCompile(`(?i:` + strings.Join(all, "|") + `)`)
}

// findName returns the first match of re in s that begins a word, also inside
// an identifier: dockerHost, useDocker and use_docker, but not "decline" for
// "cline".
func findName(re *regexp.Regexp, s string) string {
	for _, m := range re.FindAllStringIndex(s, -1) {
		if m[0] == 0 || !isLetter(s[m[0]-1]) || isLower(s[m[0]-1]) && !isLower(s[m[0]]) {
			return s[m[0]:m[1]]
		}
	}
	return ""
}

func isLower(b byte) bool  { return b >= 'a' && b <= 'z' }
func isLetter(b byte) bool { return isLower(b) || b >= 'A' && b <= 'Z' }

// namesIn lists "word in: line" for each line of a core file that contains a
// forbidden word.
func namesIn(f file) []string {
	var found []string
	for line := range strings.SplitSeq(f.text, "\n") {
		if w := findName(forbiddenInCore, line); w != "" {
			found = append(found, w+" in: "+strings.TrimSpace(line))
		}
	}
	return found
}

func TestCoreKnowsNobodysName(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, f := range files(t, "core") {
		if strings.HasSuffix(f.path, "_test.go") {
			continue // the input of a test represents what a user writes
		}
		if f.path == "core/gateway/price/prices.yaml" {
			continue // a table that is looked up by names from the experiment
		}
		seen++
		for _, hit := range namesIn(f) {
			t.Errorf("%s: %s", f.path, hit)
		}
		if w := findName(forbiddenInCore, path.Base(f.path)); w != "" {
			t.Errorf("%s: %s is in the name of a file of core", f.path, w)
		}
	}
	if seen == 0 {
		t.Fatal("no file in core/: the test looks in the wrong place")
	}
}
