package cli_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%s (-update writes it): %v\ngot:\n%s\nwant:\n%s", file, err, got, want)
	}
}

// subcommands are the commands that a page of help lists.
var subcommands = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

// helpPages are the help of every command: those that the help of berth lists,
// and those that these list in turn.
func helpPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for next := []string{""}; len(next) > 0; next = next[1:] {
		command := next[0]
		r := words(t, command+" --help").must(exit(0), complains())
		pages[command] = r.out
		_, list, _ := strings.Cut(r.out, "\nAvailable Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range subcommands.FindAllStringSubmatch(list, -1) {
			next = append(next, strings.TrimSpace(command+" "+m[1]))
		}
	}
	return pages
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	pages := map[string]bool{}
	for c, text := range helpPages(t) {
		if !strings.Contains(text, "Examples:") {
			t.Errorf("%s: help has no example", c)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: help has a line of %d columns: %s", c, n, line)
			}
		}
		name := strings.TrimSuffix(strings.ReplaceAll("help "+c, " ", "-"), "-") + ".txt"
		pages[name] = true
		golden(t, name, text)
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "help") && !pages[f.Name()] {
			t.Errorf("testdata/%s is of no command that help lists", f.Name())
		}
	}
}

// Each command names the flag that it does not know, and where its help is.
func TestEveryCommandNamesAnUnknownFlag(t *testing.T) {
	t.Parallel()
	for c := range helpPages(t) {
		words(t, c+" --frobnicate").must(usage("unknown flag: --frobnicate", strings.TrimSpace("berth "+c)+" --help"))
	}
}

// A command with a limit says how many arguments it takes, and which.
func TestCommandsSayWhichArgumentsTheyTake(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"agent export a":    "berth agent export: expected 2 arguments (NAME[@VERSION] FILE), got 1",
		"agent list a":      `berth agent list: unexpected argument "a"`,
		"compare":           "berth compare: expected at least 1 argument (RUN [RUN ...]), got none",
		"note":              "berth note: expected 1 to 3 arguments (RUN [TRIAL [ATTEMPT]]), got none",
		"plan a b":          "berth plan: expected at most 1 argument (PATH), got 2",
		"resume":            "berth resume: expected 1 argument (RUN), got none",
		"show a b c d":      "expected RUN, TRIAL and ATTEMPT, or runs only, got 4 arguments",
		"view --port 70000": `--port: "70000" is not PORT or HOST:PORT`,
		"view --json":       "view serves pages and has no answer to print as JSON",
	} {
		words(t, line).must(exit(2), prints(), complains(want))
	}
}
