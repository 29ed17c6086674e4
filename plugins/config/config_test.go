package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type mount struct {
	Source   string `berth:"source" required:"true" doc:"Absolute host path."`
	ReadOnly bool   `berth:"read_only" default:"true"`
}

type common struct {
	Labels map[string]string `berth:"labels" doc:"Given to every object."`
}

type example struct {
	common

	Socket   string            `berth:"socket" default:"unix:///run/engine.sock" doc:"API socket."`
	Pull     string            `berth:"pull" default:"missing" enum:"missing,always,never"`
	Timeout  time.Duration     `berth:"timeout" default:"2m" doc:"Longest wait."`
	Retries  int8              `berth:"retries" default:"3"`
	Memory   uint64            `berth:"memory"`
	Share    float64           `berth:"share" default:"0.5"`
	Strict   *bool             `berth:"strict"`
	Token    string            `berth:"token" secret:"true"`
	Hosts    []string          `berth:"hosts" default:"[\"a\", \"b\"]"`
	Waits    []time.Duration   `berth:"waits"`
	Extra    json.RawMessage   `berth:"extra"`
	Free     any               `berth:"free"`
	Mounts   []mount           `berth:"mount" doc:"May be repeated."`
	Servers  map[string]server `berth:"server"`
	Screen   screen            `berth:"screen"`
	Recorder *screen           `berth:"recorder"`
	Skipped  chan int          `berth:"-"`
}

type server struct {
	Command string   `berth:"command" required:"true"`
	Args    []string `berth:"args"`
}

type screen struct {
	Width int `berth:"width" default:"1024"`
}

func (e *example) Validate() (ps []config.Problem) {
	for i, m := range e.Mounts {
		if !strings.HasPrefix(m.Source, "/") {
			ps = append(ps, config.Problem{
				Path: config.Path("mount").Index(i).Attr("source"), Summary: "Mount source is not absolute", Detail: m.Source,
			})
		}
	}
	return ps
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != string(got) {
		t.Errorf("%s differs (%v); run with -update and read the diff. got:\n%s", path, err, got)
	}
}

func TestSchemaIsWhatTheTagsSay(t *testing.T) {
	s, err := config.SchemaOf(&example{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "schema.json", append(text, '\n'))
	js, err := s.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "jsonschema.json", append(js, '\n'))

	var back config.Schema
	if err = json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.MarshalIndent(back, "", "  ")
	if err != nil || string(again) != string(text) {
		t.Errorf("schema changed on its way through JSON (%v):\n%s", err, again)
	}
	if err := back.Check(); err != nil {
		t.Errorf("Check after the trip: %v", err)
	}
}

func TestDecodeSetsValuesAndDefaults(t *testing.T) {
	yes := true
	withDefaults := func(change func(*example)) example {
		e := example{
			Socket: "unix:///run/engine.sock", Pull: "missing", Timeout: 2 * time.Minute, Retries: 3,
			Share: 0.5, Hosts: []string{"a", "b"}, Screen: screen{Width: 1024},
		}
		change(&e)
		return e
	}
	for _, tt := range []struct {
		name, in string
		want     example
	}{
		{"nothing", "", withDefaults(func(*example) {})},
		{"null", " null ", withDefaults(func(*example) {})},
		{"null is absent", `{"timeout": null, "recorder": null}`, withDefaults(func(*example) {})},
		{
			"all", `{"labels": {"a": "b"}, "socket": "s", "pull": "never", "timeout": "90s", "retries": 5.0, "memory": 18446744073709551615,
			"share": 1, "strict": true, "token": "t", "hosts": [], "waits": ["1s"], "extra": {"x": [1]}, "free": [true],
			"mount": [{"source": "/a"}, {"source": "/b", "read_only": false}], "server": {"one": {"command": "c", "args": ["-v"]}},
			"screen": {"width": 1e1}, "recorder": {}}`,
			withDefaults(func(e *example) {
				*e = example{
					common: common{Labels: map[string]string{"a": "b"}},
					Socket: "s", Pull: "never", Timeout: 90 * time.Second, Retries: 5, Memory: 18446744073709551615, Share: 1,
					Strict: &yes, Token: "t", Hosts: []string{}, Waits: []time.Duration{time.Second},
					Extra: json.RawMessage(`{"x": [1]}`), Free: []any{true},
					Mounts:  []mount{{"/a", true}, {"/b", false}},
					Servers: map[string]server{"one": {"c", []string{"-v"}}},
					Screen:  screen{10}, Recorder: &screen{1024},
				}
			}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := example{Token: "left from before"}
			if err := config.Decode(json.RawMessage(tt.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, tt.want)
			}
		})
	}
}

func TestDecodeReportsEveryProblem(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string // substrings, in order
	}{
		{"many", `{"sokcet": 1, "timeout": "5 minutes", "retries": 2.5, "hosts": ["a", 1], "mount": [{}, {"source": 1}], "server": {"x y": {}}}`, []string{
			`sokcet: Unknown name`, `timeout: Wrong value: Got "5 minutes". Write a duration`, `retries: Wrong value: Got 2.5. Write a whole number`,
			`hosts[1]: Wrong value`, `mount[0].source: "source" is required: Absolute host path.`, `mount[1].source: Wrong value`,
			`server["x y"].command: "command" is required`,
		}},
		{"enum", `{"pull": "sometimes"}`, []string{"missing, always, never"}},
		{"overflow", `{"retries": 300}`, []string{"retries: Number out of range: Got 300. It must fit int8."}},
		{"negative unsigned", `{"memory": -1}`, []string{"memory: Number out of range"}},
		{"huge exponent", `{"retries": 1e999999999}`, []string{"retries: Wrong value"}},
		{"letter case", `{"Timeout": "1s"}`, []string{"Timeout: Unknown name"}},
		{"twice", `{"timeout": "1s", "timeout": "2s"}`, []string{`"timeout" is there twice`}},
		{"a list", `[]`, []string{"configuration: Not a block"}},
		{"string for number", `{"share": "0.5"}`, []string{"share: Wrong value"}},
		{"null in a list", `{"hosts": [null]}`, []string{"hosts[0]: Wrong value"}},
		{"torn", `{"timeout": `, []string{"Not a block"}},
		{"two values", `{} {}`, []string{"something follows"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := config.Decode(json.RawMessage(tt.in), &example{})
			if err == nil {
				t.Fatalf("Decode(%s) gave no error", tt.in)
			}
			rest := err.Error()
			for _, w := range tt.want {
				i := strings.Index(rest, w)
				if i < 0 {
					t.Fatalf("Decode(%s) = %s; want %q in it, in this order", tt.in, err, w)
				}
				rest = rest[i:]
			}
			if n := strings.Count(err.Error(), "\n") + 1; n != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%s", n, len(tt.want), err)
			}
		})
	}
}

func TestSecretsAreNotQuotedInProblems(t *testing.T) {
	type creds struct {
		Pin int `berth:"pin" secret:"true"`
	}
	err := config.Decode(json.RawMessage(`{"pin": "canary-4711"}`), &creds{})
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v; want an error without the value", err)
	}
}

func TestValidateAsksTheConfigurationOnlyWhenItDecodes(t *testing.T) {
	if ps := config.Validate(json.RawMessage(`{"mount": [{"source": "/a"}, {"source": "b"}]}`), &example{}); len(ps) != 1 || ps[0].Path != "mount[1].source" {
		t.Errorf("got %v; want one problem at mount[1].source", ps)
	}
	if ps := config.Validate(json.RawMessage(`{"mount": [{"source": "b"}], "x": 1}`), &example{}); len(ps) != 1 || ps[0].Path != "x" {
		t.Errorf("got %v; want the unknown name alone", ps)
	}
	if ps := config.Validate(nil, &example{}); len(ps) != 0 {
		t.Errorf("got %v; want none", ps)
	}
}

type loop struct {
	Next []loop `berth:"next"`
}

func TestSchemaOfRefusesWhatCannotBeConfigured(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   any
		err  string
	}{
		{"not a struct", 3, "struct or a pointer"},
		{"no tag", struct{ A string }{}, "A has no name"},
		{"channel", struct {
			A chan int `berth:"a"`
		}{}, "cannot be configured"},
		{"itself", loop{}, "contains itself"},
		{"bad name", struct {
			A string `berth:"A-b"`
		}{}, "lower case"},
		{"twice", struct {
			A string `berth:"a"`
			B string `berth:"a"`
		}{}, "declared twice"},
		{"default of the wrong type", struct {
			A int `berth:"a" default:"many"`
		}{}, "not JSON"},
		{"default that does not fit", struct {
			A time.Duration `berth:"a" default:"5 minutes"`
		}{}, "default does not fit"},
		{"default outside the enum", struct {
			A string `berth:"a" default:"x" enum:"y,z"`
		}{}, "one of y, z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.SchemaOf(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v; want an error with %q", err, tt.err)
			}
			if d := config.Decode(nil, tt.in); d == nil {
				t.Error("Decode took it")
			}
		})
	}
}

func TestCheckRefusesForeignSchemas(t *testing.T) {
	deep := config.Field{Name: "x", Type: config.Block}
	for range 20 {
		deep = config.Field{Name: "x", Type: config.Block, Fields: []config.Field{deep}}
	}
	for _, tt := range []struct{ name, in, err string }{
		{"type", `{"fields": [{"name": "a", "type": "strnig"}]}`, `unknown type "strnig"`},
		{"no type", `{"fields": [{"name": "a"}]}`, "unknown type"},
		{"open list", `{"fields": [{"name": "a", "type": "list(string"}]}`, "unknown type"},
		{"list of lists of blocks", `{"fields": [{"name": "a", "type": "list(list(block))"}]}`, "unknown type"},
		{"deep type", `{"fields": [{"name": "a", "type": "` + strings.Repeat("list(", 40) + "int" + strings.Repeat(")", 40) + `"}]}`, "unknown type"},
		{"fields of a string", `{"fields": [{"name": "a", "type": "string", "fields": [{"name": "b", "type": "int"}]}]}`, "only a block"},
		{"name in a block", `{"fields": [{"name": "a", "type": "block", "fields": [{"name": "", "type": "int"}]}]}`, "name"},
		{"enum of numbers", `{"fields": [{"name": "a", "type": "int", "enum": ["1"]}]}`, "enum is for strings"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s config.Schema
			if err := json.Unmarshal([]byte(tt.in), &s); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v; want an error with %q", err, tt.err)
			}
		})
	}
	if err := (config.Schema{Fields: []config.Field{deep}}).Check(); err == nil {
		t.Error("21 blocks in blocks were taken")
	}
}

func TestPathsComeApart(t *testing.T) {
	type steps = []config.Step
	attr := func(n string) config.Step { return config.Step{Kind: config.StepName, Name: n} }
	idx := func(i int) config.Step { return config.Step{Kind: config.StepIndex, Index: i} }
	key := func(n string) config.Step { return config.Step{Kind: config.StepKey, Name: n} }
	for _, tt := range []struct {
		in   config.Path
		want steps
		err  string
	}{
		{"", nil, ""},
		{"timeout", steps{attr("timeout")}, ""},
		{"mount[1].source", steps{attr("mount"), idx(1), attr("source")}, ""},
		{config.Path("env").Key(`a]"b.\`).Index(0), steps{attr("env"), key(`a]"b.\`), idx(0)}, ""},
		{`env["\ud83d\ude00\u00e9"]`, steps{attr("env"), key("😀é")}, ""},
		{"a..b", steps{attr("a")}, "name is missing"},
		{".a", nil, "name is missing"},
		{"a[x]", steps{attr("a")}, "not an index"},
		{"a[-1]", steps{attr("a")}, "not an index"},
		{"a[1", steps{attr("a")}, "closing bracket"},
		{`a["b]`, steps{attr("a")}, "closing bracket"},
		{"a[]", steps{attr("a")}, "closing bracket"},
		{"a[0]b", steps{attr("a"), idx(0)}, "dot or a bracket"},
	} {
		got, err := tt.in.Steps()
		if !reflect.DeepEqual(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Steps(%q) = %v, %v; want %v, error with %q", string(tt.in), got, err, tt.want, tt.err)
		}
	}
}

func FuzzDecodeAgreesWithItself(f *testing.F) {
	f.Add(`{"retries": 300, "mount": [{"source": "/a"}]}`)
	f.Add(`{"waits": ["1s"], "extra": null, "server": {"a": {"command": "x"}}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var e example
		err := config.Decode(json.RawMessage(in), &e)
		s, sErr := config.SchemaOf(e)
		if sErr != nil {
			t.Fatal(sErr)
		}
		if ps := s.Problems(json.RawMessage(in)); len(ps) > 0 && err == nil {
			t.Errorf("Decode took %q, the schema says %v", in, ps)
		}
	})
}

func TestUnknownPlaceholders(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		form config.Placeholders
		text string
		open bool
		want []string // what a problem says, each
	}{
		"known":               {form: config.InBraces, text: "{{task}} and {{tags}}{{task}}"},
		"misspelt":            {form: config.InBraces, text: "a\r\n\r\n{{taks}} {{taks}}", want: []string{"Line 3 of the text has {{taks}}, which nothing replaces. Did you mean {{task}}? Known: {{task}}, {{tags}}."}},
		"in capitals":         {form: config.InBraces, text: "{{Task}}", want: []string{"Did you mean {{task}}?"}},
		"with spaces":         {form: config.InBraces, text: "{{ task }}\n{{ tagz }}", want: []string{"Line 1 of the text has {{ task }}, which nothing replaces. Did you mean {{task}}?", "Line 2 of the text has {{ tagz }}, which nothing replaces. Did you mean {{tags}}?"}},
		"unlike any":          {form: config.InBraces, text: "{{observations}}", want: []string{"{{observations}}, which nothing replaces. Known: {{task}}, {{tags}}."}},
		"other braces":        {form: config.InBraces, text: "{task} {{\"verdict\": 1}} {{}} {{a b}} {{ product }} {{1}} }}{{"},
		"open":                {form: config.InBraces, open: true, text: "{{grid}} {{taks}}", want: []string{"{{taks}}"}},
		"single, in capitals": {form: config.InCapitals, text: "{task} {\"A\": 1} {tagz} {TASKS} {A}", want: []string{"{TASKS}", "{A}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.form.Problems("prompt", tt.text, tt.open, "task", "tags")
			if len(got) != len(tt.want) || slices.ContainsFunc(got, func(p config.Problem) bool { return p.Path != "prompt" }) {
				t.Fatalf("%v, want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i].Detail, want) {
					t.Errorf("%q is not in %q", want, got[i].Detail)
				}
			}
		})
	}
}
