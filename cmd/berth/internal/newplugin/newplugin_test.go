package newplugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/newplugin"
)

// The examples are what a new plugin of their names would be: what CI tries on
// them holds for new plugins.
func TestTheExamplesAreWhatIsWritten(t *testing.T) {
	t.Parallel()
	examples := filepath.Join("..", "..", "..", "..", "examples")
	for kind, name := range map[string]string{"verifier": "exact", "agent": "greeter", "environment": "plainbox"} {
		for language, want := range map[string]string{
			"go": filepath.Join(examples, "plugins", name, "main.go"), "python": filepath.Join(examples, "plugins-python", "berth-plugin-"+name, "berth-plugin-"+name),
		} {
			dir := filepath.Join(t.TempDir(), name)
			files, _, err := newplugin.Write(newplugin.Options{Language: language, Kind: kind, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			if g := strings.ReplaceAll(string(got), `name = "`+name+`"`, `name = "`+name+`-python"`); g != string(wanted) {
				t.Errorf("%s differs from %s:\n%s", files[0], want, got)
			}
		}
	}
}

func TestWhatCannotBeWrittenIsRefusedAndNothingIsMade(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    newplugin.Options
		want string
	}{
		{"language", newplugin.Options{Language: "rust", Kind: "agent", Dir: filepath.Join(t.TempDir(), "a")}, "go, python"},
		{"kind", newplugin.Options{Language: "go", Kind: "judge", Dir: filepath.Join(t.TempDir(), "a")}, "agent, environment, verifier"},
		{"name", newplugin.Options{Language: "go", Kind: "agent", Dir: filepath.Join(t.TempDir(), "My Agent")}, "lower case"},
		{"folder", newplugin.Options{Language: "go", Kind: "agent", Dir: full}, "not empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files, _, err := newplugin.Write(tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(files) > 0 {
				t.Errorf("got %v, %v; want an error with %q and no files", files, err, tt.want)
			}
			if made, _ := os.ReadDir(tt.o.Dir); len(made) > 0 && tt.name != "folder" {
				t.Errorf("it made %v", made)
			}
		})
	}
}

func TestANameWithDashesIsAProgramThatCompiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my-own_judge")
	files, program, err := newplugin.Write(newplugin.Options{Language: "go", Kind: "verifier", Dir: dir, Checkout: "/src/berth"})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || program != filepath.Join(dir, "berth-plugin-my-own_judge") {
		t.Errorf("got %v and %s", files, program)
	}
	main, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"type myOwnJudgeVerifier struct{}", `Name: "my-own_judge"`, "Command my-own_judge is"} {
		if !strings.Contains(string(main), want) {
			t.Errorf("no %q in\n%s", want, main)
		}
	}
	mod, err := os.ReadFile(files[1])
	if err != nil || !strings.Contains(string(mod), "replace github.com/berth-eval/berth => /src/berth\n") {
		t.Errorf("%v: %s", err, mod)
	}
}
