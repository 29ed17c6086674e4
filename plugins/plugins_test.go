package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/inprocess"
	"github.com/berth-eval/berth/plugins/proto/v1/pluginpb"
	"github.com/berth-eval/berth/plugins/verifier"
)

type settings struct {
	Size int `berth:"size" default:"3" doc:"How many."`
}

func (s *settings) Validate() []config.Problem {
	if s.Size < 0 {
		return []config.Problem{{Path: "size", Summary: "Size is negative", Detail: "Write 0 or more."}}
	}
	return nil
}

type quietAgent struct{}

func (quietAgent) Check(context.Context, agent.CheckRequest) (agent.Needs, error) {
	return agent.Needs{Shell: true}, nil
}

func (quietAgent) Open(context.Context, agent.Setup) (agent.Session, error) {
	return nil, agent.ErrModel
}

type judge struct{}

func (judge) Verify(context.Context, verifier.Request, func(string)) (verifier.Verdict, error) {
	return verifier.Verdict{Decision: verifier.Pass}, nil
}

func (judge) Rewrite(context.Context, verifier.Request, verifier.Verdict, string) (string, error) {
	return "", nil
}

func two() []Plugin {
	return []Plugin{
		Agent(Info{Name: "quiet", Version: "1.0.0", Doc: "Says nothing.", Env: []string{"ENGINE_HOST"}}, settings{}, quietAgent{}),
		Verifier(Info{Name: "judge"}, nil, verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default"}}, judge{}),
	}
}

// dial serves list as a binary does.
func dial(t *testing.T, list []Plugin) (grpc.ClientConnInterface, *bytes.Buffer) {
	t.Helper()
	var stderr bytes.Buffer
	server := newServer(&stderr, list)
	register(server, list)
	conn, stop, err := inprocess.Serve(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return conn, &stderr
}

// A field that is added to Description and forgotten in a converter fails here.
func TestDescriptionRoundTrip(t *testing.T) {
	t.Parallel()
	in := Description{
		Kind: KindVerifier, Name: "n", Version: "v", Capabilities: []string{"c"}, Doc: "d", Env: []string{"E"},
		Schema:   config.Schema{Fields: []config.Field{{Name: "f", Type: config.Int, Default: json.RawMessage("3")}}},
		Verifier: &verifier.Traits{Needs: verifier.NeedsOwn, Models: []string{"m"}, Rounds: true, OwnWith: map[string]string{"f": "v"}},
		Bundle:   &bundle.Recipe{Version: "1", NPM: []string{"n@1"}, Links: map[string]string{"a": "b"}},
	}
	for i, v := 0, reflect.ValueOf(in); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("give %s a value here", v.Type().Field(i).Name)
		}
	}
	p, err := DescriptionToProto(in)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := DescriptionFromProto(p); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("lost on the wire, %v:\n in  %+v\n out %+v", err, in, out)
	}
}

func TestForeignDescriptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := func() *pluginpb.PluginDescription {
		return &pluginpb.PluginDescription{Kind: pluginpb.PluginKind_PLUGIN_KIND_AGENT, Name: "a"}
	}
	if _, err := DescriptionFromProto(good()); err != nil {
		t.Fatalf("the smallest description: %v", err)
	}
	for want, spoil := range map[string]func(*pluginpb.PluginDescription){
		"kind is not given": func(p *pluginpb.PluginDescription) { p.Kind = 0 },
		"lower case":        func(p *pluginpb.PluginDescription) { p.Name = "../a" },
		"schema": func(p *pluginpb.PluginDescription) {
			p.ConfigSchemaJson = []byte(`{"fields":[{"name":"A","type":"int"}]}`)
		},
		"unexpected EOF":       func(p *pluginpb.PluginDescription) { p.ConfigSchemaJson = []byte(`{`) },
		"no secrets":           func(p *pluginpb.PluginDescription) { p.Env = []string{"OPENAI_API_KEY"} },
		"names are upper case": func(p *pluginpb.PluginDescription) { p.Env = []string{"my_token"} },
		"has traits": func(p *pluginpb.PluginDescription) {
			p.Verifier = &pluginpb.VerifierTraits{Needs: pluginpb.VerifierNeeds_VERIFIER_NEEDS_NONE}
		},
		"not an attribute of its configuration": func(p *pluginpb.PluginDescription) {
			p.Kind = pluginpb.PluginKind_PLUGIN_KIND_VERIFIER
			p.Verifier = &pluginpb.VerifierTraits{Needs: pluginpb.VerifierNeeds_VERIFIER_NEEDS_NONE, OwnWith: map[string]string{"tools": "sandbox"}}
		},
		"needs is not given": func(p *pluginpb.PluginDescription) {
			p.Kind, p.Verifier = pluginpb.PluginKind_PLUGIN_KIND_VERIFIER, &pluginpb.VerifierTraits{}
		},
	} {
		p := good()
		spoil(p)
		if _, err := DescriptionFromProto(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestADeclarationWithAMistakeIsNotServed(t *testing.T) {
	t.Parallel()
	type untagged struct{ Size int }
	for want, list := range map[string][]Plugin{
		"serves no plugin":      nil,
		"serves agent it twice": {Agent(Info{Name: "it"}, nil, quietAgent{}), Agent(Info{Name: "it"}, nil, quietAgent{})},
		"plugin name \"It\"":    {Agent(Info{Name: "It"}, nil, quietAgent{})},
		"Size":                  {Agent(Info{Name: "it"}, untagged{}, quietAgent{})},
		"no implementation":     {Agent(Info{Name: "it"}, nil, nil)},
	} {
		var stderr bytes.Buffer
		if code := serve(list, &stderr); code != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("serve = %d, said %q; want 1 and %q", code, stderr.String(), want)
		}
	}
}

func TestABinaryThatIsStartedByHandSaysWhatItIs(t *testing.T) {
	t.Setenv(CookieKey, "")
	var stderr bytes.Buffer
	if code := serve(two(), &stderr); code != 1 || !strings.Contains(stderr.String(), "is a plugin of Berth") {
		t.Errorf("serve = %d, said %q", code, stderr.String())
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	conn, _ := dial(t, two())
	for _, tt := range []struct {
		kind       Kind
		name, conf string
		want       string // of the first problem; empty: none
	}{
		{KindAgent, "quiet", "", ""},
		{KindAgent, "quiet", `{"size": 1}`, ""},
		{KindAgent, "quiet", `{"size": -1}`, "Size is negative"},
		{KindAgent, "quiet", `{"sise": 1}`, "sise"},
		{KindVerifier, "judge", `{}`, ""},
		{KindVerifier, "judge", `{"a": 1}`, "a"},
	} {
		ps, err := Validate(t.Context(), conn, tt.kind, tt.name, json.RawMessage(tt.conf))
		if err != nil || (len(ps) == 0) != (tt.want == "") || len(ps) > 0 && !strings.Contains(ps[0].String(), tt.want) {
			t.Errorf("%s: got %v, %v; want %q", tt.conf, ps, err, tt.want)
		}
	}
	if _, err := Validate(t.Context(), conn, KindEnvironment, "quiet", nil); !errors.Is(err, fault.ErrUnknownPlugin) {
		t.Errorf("Validate of another kind = %v, want ErrUnknownPlugin", err)
	}
}

func TestACallWithABadConfigurationDoesNotReachThePlugin(t *testing.T) {
	t.Parallel()
	conn, _ := dial(t, two())
	a := agent.NewClient(conn, "quiet")
	if needs, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent, Config: json.RawMessage(`{"size":2}`)}); err != nil || !needs.Shell {
		t.Errorf("Check = %+v, %v", needs, err)
	}
	_, err := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent, Config: json.RawMessage(`{"size":-2}`)})
	if !errors.Is(err, agent.ErrBadConfig) || !strings.Contains(err.Error(), "Size is negative") {
		t.Errorf("Check = %v, want ErrBadConfig", err)
	}
	_, err = a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent, Config: json.RawMessage(`{"length":2}`)})
	if !errors.Is(err, agent.ErrBadConfig) {
		t.Errorf("Open = %v, want ErrBadConfig", err)
	}
	if _, err = a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent}); !errors.Is(err, agent.ErrModel) {
		t.Errorf("Open = %v, want the plugin's own answer", err)
	}
	v := verifier.NewClient(conn, "judge", nil)
	if _, err = v.Verify(t.Context(), verifier.Request{Config: json.RawMessage(`{"a":1}`)}, func(string) {}); !errors.Is(err, agent.ErrBadConfig) {
		t.Errorf("Verify = %v, want ErrBadConfig", err)
	}
	if verdict, err := v.Verify(t.Context(), verifier.Request{}, func(string) {}); err != nil || verdict.Decision != verifier.Pass {
		t.Errorf("Verify = %+v, %v", verdict, err)
	}
}

func TestAKindThatIsNotServedIsUnsupported(t *testing.T) {
	t.Parallel()
	conn, _ := dial(t, two())
	if _, err := environment.NewClient(conn, "quiet").List(t.Context(), ""); !errors.Is(err, environment.ErrUnsupported) {
		t.Errorf("List = %v, want ErrUnsupported", err)
	}
}

func TestLogRecordsHaveTheKeysOfTheSpecification(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	h := logHandler(&b)
	for level, want := range map[string]int{"debug": -4, "info": 0, "warn": 4, "error": 8} {
		b.Reset()
		r := newRecord(want, "hello")
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["@level"] != level || got["@message"] != "hello" || got["n"] != 1.0 {
			t.Errorf("logged %s, %v; want level %s", b.String(), err, level)
		}
	}
}

func newRecord(level int, msg string) slog.Record {
	r := slog.NewRecord(time.Now(), slog.Level(level), msg, 0)
	r.AddAttrs(slog.Int("n", 1))
	return r
}

// What a task sets is judged when a host asks for it, and again before a verifier
// judges anything. A plugin without Info.Settings takes everything.
func TestSettingsOfTasksAreChecked(t *testing.T) {
	t.Parallel()
	p := Verifier(Info{Name: "sized", Settings: SettingsAreConfig[settings]}, settings{}, verifier.Traits{Needs: verifier.NeedsNone}, judge{})
	if !slices.Contains(p.Capabilities, CapabilitySettings) || slices.Contains(two()[1].Capabilities, CapabilitySettings) {
		t.Errorf("capabilities %q", p.Capabilities)
	}
	conn, _ := dial(t, append(two(), p))
	v := verifier.NewClient(conn, "sized", nil)
	for _, tt := range []struct{ settings, config, want string }{
		{"", "", ""},
		{`{"size": 2}`, "", ""},
		{`{"sise": 2}`, "", `sise: Unknown name: "sise" is not known here. Did you mean "size"?`},
		{`{"size": "two"}`, "", "size: Wrong value"},
		{`{"size": -1}`, "", "size: Size is negative"},
		{`{"size": -1}`, `{"size": 1}`, ""}, // the experiment replaces it
		{`[]`, "", "Not an object"},
	} {
		of := Settings{JSON: json.RawMessage(tt.settings), Config: json.RawMessage(tt.config)}
		ps, err := ValidateSettings(t.Context(), conn, KindVerifier, "sized", of)
		if err != nil || (len(ps) == 0) != (tt.want == "") || len(ps) > 0 && !strings.Contains(ps[0].String(), tt.want) {
			t.Errorf("%s with %s: got %v, %v; want %q", tt.settings, tt.config, ps, err, tt.want)
		}
		_, err = v.Verify(t.Context(), verifier.Request{Settings: of.JSON, Config: of.Config}, func(string) {})
		if (err == nil) != (tt.want == "") || err != nil && !errors.Is(err, fault.ErrBadConfig) {
			t.Errorf("%s with %s: Verify = %v", tt.settings, tt.config, err)
		}
	}
	if ps, err := ValidateSettings(t.Context(), conn, KindVerifier, "judge", Settings{JSON: json.RawMessage(`{"a": 1}`)}); err != nil || len(ps) > 0 {
		t.Errorf("a plugin that checks nothing says %v, %v", ps, err)
	}
}
