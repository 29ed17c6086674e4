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

// Each command with a limit says how many arguments it takes, and which.
func TestEveryCommandSaysWhichArgumentsItTakes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"agent bundle a b":  "berth agent bundle: expected at most 1 argument (NAME[@VERSION]), got 2",
		"agent export a":    "berth agent export: expected 2 arguments (NAME[@VERSION] FILE), got 1",
		"agent import":      "berth agent import: expected 1 argument (FILE), got none",
		"agent list a":      `berth agent list: unexpected argument "a"`,
		"audit":             "berth audit: expected 1 argument (RUN), got none",
		"compare":           "berth compare: expected at least 1 argument (RUN [RUN ...]), got none",
		"ctl":               "berth ctl: expected at least 1 argument (RUN",
		"doctor a":          `berth doctor: unexpected argument "a"`,
		"export":            "berth export: expected 1 argument (RUN), got none",
		"gateway":           "berth gateway: expected 1 argument (PATH), got none",
		"gc a":              `berth gc: unexpected argument "a"`,
		"import harbor":     "berth import harbor: expected 1 argument (JOBDIR), got none",
		"init a b":          "berth init: expected at most 1 argument (DIR), got 2",
		"note":              "berth note: expected 1 to 3 arguments (RUN [TRIAL [ATTEMPT]]), got none",
		"pilot":             "berth pilot: expected 1 argument (RUN), got none",
		"plan a b":          "berth plan: expected at most 1 argument (PATH), got 2",
		"plugin info":       "berth plugin info: expected 1 argument (NAME), got none",
		"plugin install":    "berth plugin install: expected 1 argument (PATH), got none",
		"plugin list a":     `berth plugin list: unexpected argument "a"`,
		"plugin lock a b":   "berth plugin lock: expected at most 1 argument (PATH), got 2",
		"plugin new":        "berth plugin new: expected 1 argument (DIR), got none",
		"plugin test":       "berth plugin test: expected 1 argument (PATH), got none",
		"regrade":           "berth regrade: expected 1 argument (RUN), got none",
		"replay":            "berth replay: expected 1 to 2 arguments (RUN [TRIAL]), got none",
		"report":            "berth report: expected at least 1 argument (RUN [RUN ...]), got none",
		"resume":            "berth resume: expected 1 argument (RUN), got none",
		"run a b":           "berth run: expected at most 1 argument (PATH), got 2",
		"shell":             "berth shell: expected 1 to 3 arguments (DIR",
		"show a b c d":      "expected RUN, TRIAL and ATTEMPT, or runs only, got 4 arguments",
		"task check":        "berth task check: expected 1 argument (DIR), got none",
		"try":               "berth try: expected 1 argument (DIR), got none",
		"validate a b":      "berth validate: expected at most 1 argument (PATH), got 2",
		"view --port 70000": `--port: "70000" is not PORT or HOST:PORT`,
		"view --json":       "view serves pages and has no answer to print as JSON",
		"view --listen x":   "unknown flag: --listen",
	} {
		words(t, line).must(exit(2), prints(), complains(want))
	}
}
