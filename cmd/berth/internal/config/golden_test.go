package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What the plugins of the tests say about themselves.
type (
	boxConfig struct {
		Socket  string               `berth:"socket" doc:"Where the box listens."`
		Pull    string               `berth:"pull" default:"missing" enum:"missing,always,never"`
		Labels  map[string]string    `berth:"labels"`
		Mounts  []boxMount           `berth:"mount"`
		Proxy   *boxProxy            `berth:"proxy"`
		Servers map[string]boxServer `berth:"server"`
	}
	boxMount struct {
		Source string `berth:"source" required:"true" doc:"Absolute path on the host."`
		Target string `berth:"target"`
	}
	boxProxy struct {
		Address string `berth:"address" required:"true"`
	}
	boxServer struct {
		Command string   `berth:"command" required:"true"`
		Args    []string `berth:"args"`
	}
	loopConfig struct {
		Effort  string          `berth:"effort"`
		Turns   int             `berth:"turns" default:"10"`
		Timeout time.Duration   `berth:"timeout" default:"1m"`
		Words   []string        `berth:"words"`
		Token   string          `berth:"token" secret:"true"`
		Headers map[string]any  `berth:"headers"`
		Extra   json.RawMessage `berth:"extra"`
	}
	needyConfig struct {
		Key string `berth:"key" required:"true"`
	}
	harborConfig struct {
		Image    string `berth:"image"`
		Snapshot bool   `berth:"snapshot"`
	}
)

func (c *boxConfig) Validate() (ps []pluginconfig.Problem) {
	for i, m := range c.Mounts {
		if !strings.HasPrefix(m.Source, "/") {
			ps = append(ps, pluginconfig.Problem{
				Path: pluginconfig.Path("mount").Index(i).Attr("source"), Summary: "Mount source is not absolute",
				Detail: fmt.Sprintf("%q is relative. Use an absolute host path.", m.Source),
			})
		}
	}
	for name, s := range c.Servers {
		if len(s.Args) > 1 {
			ps = append(ps, pluginconfig.Problem{Path: pluginconfig.Path("server").Key(name).Attr("args").Index(1), Summary: "Argument is not known"})
		}
	}
	if c.Labels["bad"] != "" {
		ps = append(ps, pluginconfig.Problem{Path: pluginconfig.Path("labels").Key("bad"), Summary: "Label is bad"})
	}
	if c.Pull == "never" {
		ps = append(
			ps, pluginconfig.Problem{Path: "", Summary: "Nothing can be pulled"},
			pluginconfig.Problem{Path: "mount[7].source", Summary: "Not there"},
			pluginconfig.Problem{Path: "proxy.address", Summary: "No proxy"},
			pluginconfig.Problem{Path: "mount[0", Summary: "A path that cannot be read"},
			pluginconfig.Problem{Path: `server["one"].command.deeper`, Summary: "Deeper than the file"},
		)
	}
	return ps
}

var described = map[string]any{"environment box": boxConfig{}, "agent loop": loopConfig{}, "agent needy": needyConfig{}, "verifier strict": needyConfig{}, "dataset harbor": harborConfig{}}

func schemas(kind plugins.Kind, plugin string) (pluginconfig.Schema, error) {
	v, ok := described[string(kind)+" "+plugin]
	if !ok {
		return pluginconfig.Schema{}, fmt.Errorf("no such %s plugin", kind)
	}
	return pluginconfig.SchemaOf(v)
}

const canary = "canary-4711-secret"

// hostEnv are the host variables of the tests.
func hostEnv(name string) (string, bool) {
	v, ok := map[string]string{"KEY": canary, "OTHER": "other-" + canary, "HOME": "/home/somebody", "BERTH_VAR_password": canary, "REGION": "eu"}[name]
	return v, ok
}

func options() config.Options {
	return config.Options{
		LookupEnv: hostEnv, Schemas: schemas, Providers: []string{"script", "openai", "anthropic"}, Formats: []string{"harbor"},
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%s differs (%v); run with -update and read the diff. got:\n%s", path, err, got)
	}
}

// experiments are the files and folders below dir that are experiments.
func experiments(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		_, err := os.Stat(filepath.Join(dir, e.Name()+".txt"))
		if strings.HasSuffix(e.Name(), ".hcl") || e.IsDir() && (err == nil || hasHCL(t, filepath.Join(dir, e.Name()))) {
			out = append(out, e.Name())
		}
	}
	return out
}

func hasHCL(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files) > 0
}

func TestBrokenExperimentsAreExplained(t *testing.T) {
	t.Chdir("testdata/broken")
	names := experiments(t, ".")
	if len(names) < 25 {
		t.Fatalf("%d broken experiments, want 25 or more", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			o := options()
			if name == "variables.hcl" {
				o.Vars = []string{"given=[1", "novalue", "lst=[1]", "list=[\"a\"]"}
				o.VarFiles = []string{"no-such-file.hclvars", "vars/bad.hclvars", "vars/values.hclvars", "vars/values.json"}
			}
			e, ds := config.Load(t.Context(), name, o)
			if e != nil {
				ds = append(ds, pluginProblems(t, e)...)
			}
			if !ds.HasErrors() || ds.Err() == nil {
				t.Fatal("no problem was found")
			}
			var text bytes.Buffer
			if err := ds.WriteText(&text, false); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(name, ".hcl")+".txt", text.Bytes())
			noCanary(t, "text", text.String(), ds.Error())
			raw, err := json.MarshalIndent(ds, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			noCanary(t, "JSON", string(raw))
			if name == "unknown_names.hcl" || name == "secrets.hcl" {
				golden(t, strings.TrimSuffix(name, ".hcl")+".json", append(raw, '\n'))
			}
		})
	}
}

// pluginProblems is what the command line does with the answers of Validate.
func pluginProblems(t *testing.T, e *config.Experiment) config.Diagnostics {
	t.Helper()
	env := e.Cells[0].Environment
	raw, err := env.Config.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	return e.ConfigProblems(plugins.KindEnvironment, env.Label, pluginconfig.Validate(raw, &boxConfig{}))
}

func noCanary(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		for _, secret := range []string{canary, "canary-in-plain-text"} {
			if i := strings.Index(s, secret); i >= 0 {
				t.Errorf("%s holds a secret: …%s…", what, s[max(0, i-100):min(len(s), i+100)])
			}
		}
	}
}

func TestGoodExperimentsAreWhatTheySay(t *testing.T) {
	t.Chdir("testdata/good")
	for _, name := range experiments(t, ".") {
		t.Run(name, func(t *testing.T) {
			o := options()
			if name == "design" {
				o.Schemas = nil // of plugins that this package must not know
			}
			if name == "variables" {
				o.Vars = []string{"effort=high", "sizes=[1, 2]", "later=x=y"}
				o.VarFiles = []string{"variables/values.hclvars", "variables/more.json"}
			}
			e, ds := config.Load(t.Context(), name, o)
			if e == nil {
				t.Fatal(ds)
			}
			var warnings bytes.Buffer
			if err := ds.WriteText(&warnings, false); err != nil {
				t.Fatal(err)
			}
			text := warnings.String() + show(t, e)
			golden(t, strings.TrimSuffix(name, ".hcl")+".golden", []byte(text))
			noCanary(t, "experiment", text, fmt.Sprintf("%v %+v %#v", e.Cells[0], *e.Cells[0], *e.Cells[0]))
		})
	}
}

// show is everything of an experiment that is stored or printed.
func show(t *testing.T, e *config.Experiment) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	marshal := func(v any) string {
		raw, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(raw), wd, "…")
	}
	fmt.Fprintf(&b, "%s: %s\nrepeat %d\nlimits %s\nretry %s\nexecutor %s\nvariables %s\n\n", e.Name, e.Description, e.Repeat,
		marshal(e.Limits), marshal(e.Retry), marshal(e.Executor), marshal(e.Variables))
	for _, f := range e.Files {
		fmt.Fprintf(&b, "file %s, %d bytes, read by a function: %v\n", f.Name, len(f.Bytes), f.Read)
	}
	for i, c := range e.Cells {
		if c.Index != i {
			t.Errorf("cell %d has the index %d", i, c.Index)
		}
		fmt.Fprintf(&b, "\ncell %d %q %q\n", c.Index, c.Key, c.Slug)
		for _, d := range c.Datasets {
			fmt.Fprintf(&b, "%s\n", c.Identity(&d))
		}
		if i == 0 {
			fmt.Fprintf(&b, "%s\n", marshal(c))
		}
	}
	return b.String()
}
