package config_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

// base is an experiment to which tests add; %s goes into the config of its agent.
const base = `
experiment "x" {
  datasets    = [dataset.t]
  environment = environment.box
  agent       = agent.a
}
dataset "t" {
  format = "harbor"
  path   = "."
}
environment "box" {
  plugin = "box"
}
agent "a" {
  plugin = "loop"
  config {
    %s
  }
}
`

// write makes a folder with files, by name, and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t testing.TB, o config.Options, text string) (*config.Experiment, config.Diagnostics) {
	t.Helper()
	return config.Load(t.Context(), filepath.Join(write(t, map[string]string{"x.hcl": text}), "x.hcl"), o)
}

func TestDefaultsComeFromTheCaller(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(base, ""), "environment = environment.box", "", 1)
	none := regexp.MustCompile(`(?s)environment "box" \{.*?\n\}`).ReplaceAllString(text, "")
	o := options()
	o.DefaultEnvironment = "box"
	e, ds := load(t, o, none)
	if e == nil || e.Cells[0].Environment.Plugin != "box" {
		t.Errorf("got %v, %v; want the default environment", e, ds)
	}
	if e, ds = load(t, o, text); e != nil || !strings.Contains(fmt.Sprint(ds), "No environment is chosen") {
		t.Errorf("the only environment block was ignored: %v", ds)
	}
	if e, _ := load(t, options(), none); e != nil {
		t.Error("without a default, an experiment without an environment was taken")
	}
}

// A script is checked before a run, and only a scripted model has one.
func TestScriptsAreChecked(t *testing.T) {
	experiment := fmt.Sprintf(base, "")
	for provider, want := range map[string]string{"script": "Script is malformed: x.hcl: not replies", "openai": "Only a scripted model has a script"} {
		o := options()
		o.CheckScript = func(path string, content []byte) error {
			if path != "x.hcl" || !strings.Contains(string(content), "not a script") {
				t.Errorf("asked about %s with %d bytes", path, len(content))
			}
			return errors.New("not replies")
		}
		text := experiment + fmt.Sprintf(`
model "scripted" { # not a script
  provider = %q
  name     = "m"
  script   = "x.hcl"
}
`, provider)
		if e, ds := load(t, o, text); e != nil || !strings.Contains(fmt.Sprint(ds), want) {
			t.Errorf("%s: %v, want %q", provider, ds, want)
		}
	}
}

// The file of a private authority is checked before a run.
func TestAuthoritiesAreChecked(t *testing.T) {
	experiment := fmt.Sprintf(base, "")
	for file, want := range map[string]string{"none.pem": `no such file: "none.pem"`, "x.hcl": `"x.hcl" has no certificate`} {
		text := experiment + fmt.Sprintf(`
model "own" {
  provider = "openai"
  name     = "m"
  base_url = "https://localhost/v1"
  ca_file  = %q
}
`, file)
		if e, ds := load(t, options(), text); e != nil || !strings.Contains(fmt.Sprint(ds), want) {
			t.Errorf("%s: %v, want %q", file, ds, want)
		}
	}
}

// A value of the command line is text without a type, and an expression with one.
func TestValuesFromOutsideAreReadByTheirType(t *testing.T) {
	text := fmt.Sprintf(base, "extra = [var.typed, var.untyped]") + `
variable "typed" {
  type = any
}
variable "untyped" {}
`
	o := options()
	o.Vars = []string{`typed={ a = [1, true] }`, "untyped=[1]"}
	e, ds := load(t, o, text)
	if e == nil {
		t.Fatal(ds)
	}
	if got, want := string(e.Cells[0].Agent.Config.JSON()), `{"extra":[{"a":[1,true]},"[1]"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	o.Vars = []string{"typed=some words", "untyped=x"}
	if _, ds = load(t, o, text); !strings.Contains(ds.Error(), `Write it as in a file`) {
		t.Errorf("got %v; want how to write a value", ds)
	}
}

// Each verifier has a budget, which is part of the identity of trials.
func TestBudgetsOfVerifiers(t *testing.T) {
	with := func(cost string) string {
		return fmt.Sprintf(base, "") + "\nverifier \"judge\" {\n  cost_usd = " + cost + "\n}\n"
	}
	e, ds := load(t, config.Options{LookupEnv: hostEnv}, with("0.5"))
	if e == nil {
		t.Fatal(ds)
	}
	v := e.Cells[0].Verifiers["judge"]
	if v.CostUSD == nil || *v.CostUSD != 0.5 || v.Tokens != nil {
		t.Errorf("got %+v", v)
	}
	if id := string(e.Cells[0].Identity(&e.Cells[0].Datasets[0])); !strings.Contains(id, `"cost_usd":0.5`) {
		t.Errorf("the identity %s lacks the budget", id)
	}
	if _, ds = load(t, config.Options{LookupEnv: hostEnv}, with("-1")); !strings.Contains(ds.Error(), "Got -1. Write a number above 0") {
		t.Errorf("a negative budget: %v", ds)
	}
}

// A schema that is nonsense is the plugin's fault and is said so.
func TestSchemasOfPluginsAreChecked(t *testing.T) {
	o := options()
	o.Schemas = func(plugins.Kind, string) (pluginconfig.Schema, error) {
		return pluginconfig.Schema{Fields: []pluginconfig.Field{{Name: "A B", Type: "strnig"}}}, nil
	}
	_, ds := load(t, o, fmt.Sprintf(base, ""))
	if !strings.Contains(ds.Error(), `unknown type "strnig"`) || !strings.Contains(ds.Error(), `Plugin "loop" cannot be used`) {
		t.Errorf("got %v", ds)
	}
}

func TestPathsStartFromTheFolderOfTheExperiment(t *testing.T) {
	dir := write(t, map[string]string{"sub/x.hcl": fmt.Sprintf(base, `effort = file("a.txt")`), "sub/a.txt": "one", "other/a.txt": "two"})
	t.Chdir(dir)
	e, ds := config.Load(t.Context(), "sub/x.hcl", options())
	if e == nil {
		t.Fatal(ds)
	}
	if c := e.Cells[0]; c.Datasets[0].Path != filepath.Join(dir, "sub") || e.Dir != filepath.Join(dir, "sub") || string(c.Agent.Config.JSON()) != `{"effort":"one"}` {
		t.Errorf("path %s, dir %s, config %s", c.Datasets[0].Path, e.Dir, c.Agent.Config.JSON())
	}
	o := options()
	o.BaseDir = "other"
	e, ds = config.Load(t.Context(), "sub", o)
	if e == nil {
		t.Fatal(ds)
	}
	if c := e.Cells[0]; c.Datasets[0].Path != filepath.Join(dir, "other") || string(c.Agent.Config.JSON()) != `{"effort":"two"}` {
		t.Errorf("with another base: path %s, config %s", c.Datasets[0].Path, c.Agent.Config.JSON())
	}
}

// A run is resumed with the copies that it keeps, whatever has become of the
// files since.
func TestCopiesAreReadInsteadOfFiles(t *testing.T) {
	text := fmt.Sprintf(base, `effort = fileexists("gone.txt") ? "${file("gone.txt")} ${file("../shared/a.txt")}" : "none"`) + `
agent "b" {
  plugin = "loop"
  model  = model.m
}
model "m" {
  provider = "script"
  script   = "replies.yaml"
}
`
	dir := write(t, map[string]string{
		"exp/x.hcl": strings.Replace(text, "= agent.a", "= agent.b", 1), "shared/a.txt": "new", "exp/replies.yaml": "new",
		"kept/gone.txt": "kept", "kept/up/shared/a.txt": "kept", "kept/replies.yaml": "kept",
	})
	o := options()
	o.Kept = func(name string) string { return filepath.Join(dir, "kept", strings.Replace(name, "..", "up", 1)) }
	e, ds := config.Load(t.Context(), filepath.Join(dir, "exp"), o)
	if e == nil {
		t.Fatal(ds)
	}
	want := filepath.Join(dir, "kept", "replies.yaml")
	sum := sha256.Sum256([]byte("kept"))
	if m := e.Cells[0].Agent.Models["default"]; m.Script != want || m.ScriptDigest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("script %s, %s; want %s", m.Script, m.ScriptDigest, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "exp/x.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, ds = config.Load(t.Context(), filepath.Join(dir, "exp"), o); e == nil {
		t.Fatal(ds)
	}
	if got := string(e.Cells[0].Agent.Config.JSON()); got != `{"effort":"kept kept"}` {
		t.Errorf("config %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "kept/up/shared/a.txt")); err != nil {
		t.Fatal(err)
	}
	if _, ds = config.Load(t.Context(), filepath.Join(dir, "exp"), o); !strings.Contains(ds.Error(), "the run has no copy of it") {
		t.Errorf("got %v; want that there is no copy", ds)
	}
}

func TestReadingElsewhereMustBeAllowed(t *testing.T) {
	dir := write(t, map[string]string{"exp/x.hcl": fmt.Sprintf(base, `effort = file("../shared/a.txt")`), "shared/a.txt": "shared"})
	path := filepath.Join(dir, "exp/x.hcl")
	if e, ds := config.Load(t.Context(), path, options()); e != nil || !strings.Contains(ds.Error(), "give --allow-read "+filepath.Join(dir, "shared")) {
		t.Errorf("got %v; want a refusal that says what to give", ds)
	}
	o := options()
	o.AllowRead = []string{filepath.Join(dir, "shared")}
	e, ds := config.Load(t.Context(), path, o)
	if e == nil || string(e.Cells[0].Agent.Config.JSON()) != `{"effort":"shared"}` {
		t.Errorf("got %v", ds)
	}
}

func TestFilesThatCannotBeLoaded(t *testing.T) {
	dir := write(t, map[string]string{"empty/readme.md": "", "large/x.hcl": strings.Repeat("#", 1<<20+1)})
	for path, want := range map[string]string{
		"none.hcl": "no such file", "empty": "No *.hcl file", "large": "larger than 1 MiB", "large/x.hcl": "larger than 1 MiB",
	} {
		if e, ds := config.Load(t.Context(), filepath.Join(dir, path), options()); e != nil || !strings.Contains(ds.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, ds, want)
		}
	}
}

// Nothing makes the parser or the evaluation call itself without an end: a full
// stack cannot be caught.
func TestDeepExpressionsAreRefused(t *testing.T) {
	const n = 5_000
	rep := strings.Repeat
	for name, expr := range map[string]string{
		"brackets":            rep("(", n) + "1" + rep(")", n),
		"lists":               rep("[", n) + rep("]", n),
		"objects":             rep("{ a = ", n) + "1" + rep(" }", n),
		"calls":               rep("upper(", n) + `"a"` + rep(")", n),
		"templates":           rep(`"${`, n) + "1" + rep(`}"`, n),
		"not":                 rep("!", n) + "true",
		"minus":               rep("- ", n) + "1",
		"sums":                "1" + rep(" + 1", n),
		"sums of objects":     "1" + rep(" + {a=1, b=1}.a", n),
		"conditions":          rep("true ? 1 : ", n) + "1",
		"and":                 "true" + rep(" && true", n),
		"comparisons":         "1" + rep(" == 1", n),
		"indexes":             "local.l" + rep("[local.l]", n),
		"splats":              "local.l" + rep("[*]", n),
		"attribute splats":    "local.l" + rep(".*", n),
		"template conditions": `"` + rep("%{if true}", n) + rep("%{endif}", n) + `"`,
		"open brackets":       rep("(", n),
		"closed brackets":     rep(")", n),
	} {
		t.Run(name, func(t *testing.T) {
			_, ds := load(t, options(), fmt.Sprintf(base, "")+"locals {\n  l = "+expr+"\n}\n")
			if !ds.HasErrors() {
				t.Error("it was taken")
			}
			if len(ds.Error()) > 100_000 {
				t.Errorf("%d bytes of problems", len(ds.Error()))
			}
		})
	}
	if _, ds := load(t, options(), rep("a {\n", n)+rep("}\n", n)); !ds.HasErrors() {
		t.Error("blocks in blocks were taken")
	}
	e, ds := load(t, options(), fmt.Sprintf(base, "")+"locals {\n  l = 1"+rep(" + 1", 900)+"\n}\n")
	if e == nil {
		t.Errorf("a long sum: %v", ds)
	}
}

func TestLoadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, ds := config.Load(ctx, "testdata/good/matrix.hcl", options())
	if e != nil || !strings.Contains(ds.Error(), "context canceled") {
		t.Errorf("got %v, %v; want an error", e, ds)
	}
}

func TestDiagnosticsForPeopleAndPrograms(t *testing.T) {
	dir := write(t, map[string]string{"x.hcl": strings.Replace(fmt.Sprintf(base, ""), "path", "paht", 1)})
	t.Chdir(dir)
	_, ds := config.Load(t.Context(), "x.hcl", options())
	if len(ds) != 2 {
		t.Fatalf("got %v", ds)
	}
	var text bytes.Buffer
	if err := ds[1:].WriteText(&text, true); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[31mError\x1b[0m: Unknown name\n\n  on x.hcl line 9, in dataset \"t\":\n   9:   \x1b[1;4mpaht\x1b[0m   = \".\"\n\nThere is no \"paht\" here. Did you mean \"path\"?\n\n"
	if text.String() != want {
		t.Errorf("text %q, want %q", text.String(), want)
	}
	if got, want := ds[1].String(), `x.hcl:9:3: Unknown name: There is no "paht" here. Did you mean "path"?`; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	raw, err := json.Marshal(ds[1])
	wantJSON := `{"severity":"error","summary":"Unknown name","detail":"There is no \"paht\" here. Did you mean \"path\"?","file":"x.hcl","start":{"line":9,"column":3},"end":{"line":9,"column":7}}`
	if err != nil || string(raw) != wantJSON {
		t.Errorf("JSON %s, %v; want %s", raw, err, wantJSON)
	}
	if raw, err := json.Marshal(config.Diagnostics(nil)); err != nil || string(raw) != "[]" {
		t.Errorf("no diagnostics are %s, %v", raw, err)
	}
	if config.Diagnostics(nil).Err() != nil || ds.Err() == nil {
		t.Error("Err is wrong")
	}
}

func TestProblemsWithBlocksAreMappedToTheFile(t *testing.T) {
	e, ds := config.Load(t.Context(), "testdata/good/roles.hcl", options())
	if e == nil {
		t.Fatal(ds)
	}
	text, err := os.ReadFile("testdata/good/roles.hcl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, tt := range []struct {
		block, label string
		path         pluginconfig.Path
		want         string
	}{
		{"agent", "own", "", `agent "own" {`},
		{"agent", "own", "plugin", `  plugin = "loop"`},
		{"agent", "own", `env["A"]`, `  env    = { A = "b" }`},
		{"model", "one", "price.input", `    input        = 1`},
		{"model", "one", "parameters.nested", `    nested      = { a = [1, null] }`},
		{"user", "", "persona", `  persona  = "In a hurry."`},
		{"experiment", "", "limits.cost_usd", `    cost_usd  = 10`},
		{"environment", "box", "network", `environment "box" {`},
	} {
		ds := e.Problems(tt.block, tt.label, []pluginconfig.Problem{{Path: tt.path, Summary: "S"}})
		if len(ds) != 1 || lines[ds[0].Start.Line-1] != tt.want {
			t.Errorf("%s %s %s is at %+v, want %q", tt.block, tt.label, tt.path, ds, tt.want)
		}
	}
	// An environment that no block made has no place.
	if ds := e.Problems("environment", "local", []pluginconfig.Problem{{Summary: "S"}}); ds[0].String() != `environment "local": S` {
		t.Errorf("got %q", ds[0].String())
	}
}

// Slugs are names of files, whatever an axis holds.
func TestSlugsAreFileNames(t *testing.T) {
	e, ds := load(t, options(), strings.Replace(fmt.Sprintf(base, "extra = matrix.v"), "agent       = agent.a", `agent = agent.a
  matrix {
    v = ["..", "../../etc", "A", "a", "é", "", "x y", "x/y", join("", range(100)), "CON", "-rf", ".hidden", "\n", "x\u0000y"]
  }`, 1))
	if e == nil {
		t.Fatal(ds)
	}
	var slugs []string
	for _, c := range e.Cells {
		s := c.Slug
		if s == "" || len(s) > 60 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "-") {
			t.Errorf("slug %q of %q", s, c.Key)
		}
		if slices.Contains(slugs, s) {
			t.Errorf("slug %q is there twice", s)
		}
		slugs = append(slugs, s)
	}
	if len(e.Cells) != 14 {
		t.Errorf("%d cells", len(e.Cells))
	}
}

// No file, however made, ends the program or takes for ever.
func FuzzLoadNeverPanics(f *testing.F) {
	for _, dir := range []string{"testdata/broken", "testdata/good"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.hcl"))
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			src, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, src []byte) {
		path := filepath.Join(dir, "x.hcl")
		if err := os.WriteFile(path, src, 0o600); err != nil {
			t.Fatal(err)
		}
		hang := time.AfterFunc(2*time.Minute, func() { panic("it hangs") })
		defer hang.Stop()
		e, ds := config.Load(t.Context(), path, options())
		if (e == nil) != ds.HasErrors() {
			t.Errorf("experiment %v with %v", e, ds)
		}
		if err := ds.WriteText(&bytes.Buffer{}, true); err != nil {
			t.Error(err)
		}
		if e == nil {
			return
		}
		for _, c := range e.Cells {
			if len(c.Datasets) == 0 || c.Agent.Plugin == "" || c.Environment.Plugin == "" || c.Slug == "" {
				t.Errorf("a cell is not whole: %+v", c)
			}
			if _, err := json.Marshal(c); err != nil {
				t.Error(err)
			}
			noCanary(t, "secrets", e.CheckSecrets(c).Error())
		}
	})
}
