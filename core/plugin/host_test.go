package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/verifier"
)

func TestAPluginServesItsContracts(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	a, used, err := h.Agent(t.Context(), "odd")
	testlevel.Must(t, err)
	if used.Kind != "agent" || used.Name != "odd" || used.Version != "1.2.3" || !strings.HasPrefix(used.Digest, "sha256:") {
		t.Errorf("used %+v", used)
	}
	if needs, bad := a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent}); bad != nil || !slices.Equal(needs.Logs, []string{"/var/log/odd"}) {
		t.Errorf("Check = %+v, %v", needs, bad)
	}
	s, n := open(t, h), &notes{}
	y, err := s.Turn(t.Context(), agent.Message{Text: "step forward"}, n)
	if err != nil || y.End != agent.Done || len(n.steps) != 1 || n.steps[0].Message.Text != "forward" {
		t.Errorf("Turn = %+v, %v with steps %+v", y, err, n.steps)
	}
	if err = s.Close(t.Context(), "", n); err != nil || !slices.Equal(n.logs, []string{"closed"}) {
		t.Errorf("Close = %v with logs %q", err, n.logs)
	}
	v, traits, _, err := h.Verifier(t.Context(), "judge")
	if err != nil || !traits.Rounds || traits.Needs != verifier.NeedsNone {
		t.Fatalf("Verifier = %+v, %v", traits, err)
	}
	if _, err = v.Verify(t.Context(), verifier.Request{}, func(string) {}); !errors.Is(err, verifier.ErrArtifactMissing) {
		t.Errorf("Verify = %v, want ErrArtifactMissing", err)
	}
	rewriter, ok := v.(verifier.Rewriter)
	if !ok {
		t.Fatal("the capability rewrite is lost")
	}
	if got, err := rewriter.Rewrite(t.Context(), verifier.Request{}, verifier.Verdict{Decision: verifier.Continue}, "well"); err != nil || got != "well!" {
		t.Errorf("Rewrite = %q, %v", got, err)
	}
}

// A verifier in a process of its own can die without ending the shared one, and
// the other way round.
func TestAVerifierInAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	shared, _, _, err := h.Verifier(t.Context(), "judge")
	testlevel.Must(t, err)
	apart, stop, err := h.VerifierOwnProcess(t.Context(), "judge")
	testlevel.Must(t, err)
	defer stop()
	for name, v := range map[string]verifier.Verifier{"shared": shared, "apart": apart} {
		if _, err = v.Verify(t.Context(), verifier.Request{}, func(string) {}); !errors.Is(err, verifier.ErrArtifactMissing) {
			t.Errorf("%s: Verify = %v, want ErrArtifactMissing", name, err)
		}
	}
	for range 2 { // it is not started again
		if _, err = apart.Verify(t.Context(), verifier.Request{Stage: "die"}, func(string) {}); !errors.Is(err, ErrPluginGone) {
			t.Errorf("Verify = %v, want ErrPluginGone", err)
		}
	}
	if n := h.plugins[id{plugins.KindVerifier, "judge"}].binary.incarnation(); n != 1 {
		t.Errorf("the shared process is number %d, want 1", n)
	}
	if _, _, err = h.VerifierOwnProcess(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
		t.Errorf("VerifierOwnProcess = %v, want ErrUnknown", err)
	}
}

func TestTheSchemaAndTheProblemsOfAConfigurationTravel(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	schema, err := h.Schema(t.Context(), plugins.KindAgent, "odd")
	if err != nil || schema.Field("size") == nil || string(schema.Field("size").Default) != "3" {
		t.Errorf("Schema = %+v, %v", schema, err)
	}
	ps, err := h.Validate(t.Context(), plugins.KindAgent, "odd", json.RawMessage(`{"size": 12}`))
	if err != nil || len(ps) != 1 || ps[0].Path != "size" || !strings.Contains(ps[0].Detail, "12") {
		t.Errorf("Validate = %+v, %v", ps, err)
	}
	if ps, err = h.Validate(t.Context(), plugins.KindAgent, "odd", nil); err != nil || len(ps) != 0 {
		t.Errorf("Validate of nothing = %+v, %v", ps, err)
	}
	if ps, err = h.Validate(t.Context(), plugins.KindVerifier, "judge", json.RawMessage(`{"a": 1}`)); err != nil || len(ps) != 1 {
		t.Errorf("Validate = %+v, %v; want a problem: this plugin takes no configuration", ps, err)
	}
}

func TestListSaysEverything(t *testing.T) {
	t.Parallel()
	first, second := write(t, "odd", "b-odd"), write(t, "odd", "a-odd")
	for _, name := range []string{"notes.txt", ".hidden"} {
		testlevel.Must(t, os.WriteFile(filepath.Join(first, name), []byte("not a program"), 0o600))
	}
	writeTo(t, filepath.Join(first, "libexec", "helper"), "odd")
	writeTo(t, programOf(first, "zz-broken"), "exit")
	h, j := newHost(t, Options{Dirs: []string{first, filepath.Join(first, "absent"), second, first}})
	list, err := h.List(t.Context())
	if err != nil || len(list) != 5 {
		t.Fatalf("List = %+v, %v; want two plugins of each odd binary and one that is broken", list, err)
	}
	if e := list[0]; e.Kind != plugins.KindAgent || e.Name != "odd" || e.Protocol != plugins.Protocol || e.Path != programOf(first, "b-odd") || e.ShadowedBy != "" {
		t.Errorf("first entry %+v", e)
	}
	if e := list[2]; !strings.Contains(e.Error, "feet") || e.Path != programOf(first, "zz-broken") {
		t.Errorf("broken binary: %+v, want its last words", e)
	}
	if e := list[3]; e.ShadowedBy != programOf(first, "b-odd") {
		t.Errorf("%+v, want that it is shadowed", e)
	}
	const said = "two binaries serve the same plugin"
	if strings.Contains(j.String(), said) {
		t.Errorf("the log says what the list says:\n%s", j)
	}
	other, log := newHost(t, Options{Dirs: []string{first, second}})
	if _, err := other.Schema(t.Context(), plugins.KindAgent, "odd"); err != nil || !strings.Contains(log.String(), said) {
		t.Errorf("%v; without a list the log says that two binaries have one name:\n%s", err, log)
	}
	if _, used, err := h.Agent(t.Context(), "odd"); err != nil || used.Digest != list[0].Digest {
		t.Errorf("used %+v, %v; want the first in the order of search", used, err)
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	dir := write(t, "odd", "odd")
	writeTo(t, programOf(dir, "broken"), "exit")
	writeTo(t, programOf(dir, "misnamed"), "odd")
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	for _, tt := range []struct {
		kind plugins.Kind
		name string
		want []string
	}{
		{plugins.KindAgent, "od", []string{`no agent "od"`, `did you mean "odd"?`, "agents that were found: odd", dir}},
		{plugins.KindAgent, "something", []string{`no agent "something"`, "agents that were found: odd"}},
		{plugins.KindVerifier, "odd", []string{`no verifier "odd"`, "it is of kind agent"}},
		{plugins.KindEnvironment, "local", []string{`no environment "local"`, "search more folders): " + dir}},
		{plugins.KindAgent, "broken", []string{`agent "broken"`, "ended before the handshake", programOf(dir, "broken")}},
		{plugins.KindAgent, "misnamed", []string{`no agent "misnamed"`, `misnamed serves: agent "odd"`}},
	} {
		_, err := h.Schema(t.Context(), tt.kind, tt.name)
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s %s: %v, want ErrUnknown", tt.kind, tt.name, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %q is not in:\n%v", tt.kind, tt.name, want, err)
			}
		}
		if tt.name == "something" && strings.Contains(err.Error(), "did you mean") {
			t.Errorf("a far-off name is suggested: %v", err)
		}
	}
}

func TestDescriptionsAreRememberedByDigest(t *testing.T) {
	t.Parallel()
	dir, cache := write(t, "odd", "odd"), filepath.Join(t.TempDir(), "cache")
	path := programOf(dir, "odd")
	ask := func(started bool) []Entry {
		t.Helper()
		h, j := newHost(t, Options{Dirs: []string{dir}, Cache: cache})
		list, err := h.List(t.Context())
		if err != nil || len(list) != 2 || list[0].Error != "" {
			t.Fatalf("List = %+v, %v", list, err)
		}
		if got := strings.Contains(j.String(), "plugin started"); got != started {
			t.Errorf("started = %v, want %v:\n%s", got, started, j)
		}
		return list
	}
	first := ask(true)
	second := ask(false)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(second)
	if string(a) != string(b) {
		t.Errorf("remembered %s\nwas        %s", b, a)
	}

	files, err := filepath.Glob(filepath.Join(cache, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cache has %v, %v; want one file", files, err)
	}
	for _, damage := range []string{"", "{", `{"version":99}`, `{"version":3,"digest":"` + first[0].Digest + `","plugins":[{"kind":"agent","name":"BAD NAME"}]}`} {
		testlevel.Must(t, os.WriteFile(files[0], []byte(damage), 0o600))
		ask(true)
	}
	ask(false)

	writeTo(t, path, "odd") // the same bytes, so the same digest
	ask(false)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	testlevel.Must(t, err)
	_, err = f.WriteString("# changed\n")
	testlevel.Must(t, errors.Join(err, f.Close()))
	if third := ask(true); third[0].Digest == first[0].Digest {
		t.Error("a changed binary has the same digest")
	}
}

func TestDigestsAreRememberedAsLongAsTheFileIsTheSame(t *testing.T) {
	t.Parallel()
	written := time.Now()
	dir := write(t, "odd", "odd")
	path, c := programOf(dir, "odd"), cache{filepath.Join(t.TempDir(), "cache")}
	digest := func() string {
		t.Helper()
		h, _ := newHost(t, Options{Dirs: []string{dir}, Cache: c.dir})
		list, err := h.List(t.Context())
		if err != nil || len(list) == 0 || list[0].Error != "" {
			t.Fatalf("List = %+v, %v", list, err)
		}
		return list[0].Digest
	}
	one, known := digest(), c.read(path)
	quick := time.Since(written) <= settled // a busy machine may not be
	if known.Digest != one || quick && known.Stamp != (stamp{}) {
		t.Errorf("%+v is remembered of a file that may still be written to; want the digest %s and no stamp", known, one)
	}
	var err error
	if known.Stamp, err = (program{path: path, folder: filepath.Dir(path)}).stamp(); err != nil {
		t.Fatal(err)
	}
	known.Version, known.Digest = cacheVersion, "sha256:remembered"
	data, err := json.Marshal(known)
	testlevel.Must(t, errors.Join(err, os.WriteFile(c.file(path), data, 0o600)))
	if got := digest(); got != "sha256:remembered" {
		t.Errorf("digest = %s; want what was remembered", got)
	}
	writeTo(t, path, "odd")
	if got := digest(); got != one {
		t.Errorf("digest = %s; want that of the new file, %s", got, one)
	}
}

func TestSearchPath(t *testing.T) {
	t.Parallel()
	env := map[string]string{"BERTH_PLUGIN_PATH": "/a::/b", "HOME": "/home/u"}
	got := SearchPath(func(k string) string { return env[k] })
	if len(got) != 4 || filepath.Base(got[0]) != "plugins" || !slices.Equal(got[1:], []string{"/a", "/b", "/home/u/.local/share/berth/plugins"}) {
		t.Errorf("got %v", got)
	}
	env["XDG_DATA_HOME"] = "/data"
	if got = SearchPath(func(k string) string { return env[k] }); got[3] != "/data/berth/plugins" {
		t.Errorf("got %v, want the folder of XDG_DATA_HOME last", got)
	}
}

// After su, HOME may be that of the previous user: nothing in it is started,
// and nothing in it stops a run.
func TestAFolderOfPluginsThatIsNotTheUsersIsLeftOut(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	own := filepath.Join(data, "berth", "plugins")
	found := func() bool {
		dirs := SearchPath(func(k string) string { return map[string]string{"XDG_DATA_HOME": data}[k] })
		return slices.Contains(dirs, own)
	}
	if err := os.MkdirAll(own, 0o755); err != nil || !found() {
		t.Fatalf("the user's own folder: found %t, %v", found(), err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(own, 4321, 4321); err != nil || found() {
			t.Errorf("a folder of somebody else: found %t, %v", found(), err)
		}
	} else if err := os.Chmod(own, 0); err != nil || found() {
		t.Errorf("a folder that cannot be read: found %t, %v", found(), err)
	}
	if err := errors.Join(os.Remove(own), syscall.Mkfifo(own, 0o600)); err != nil || found() {
		t.Errorf("a pipe: found %t, %v", found(), err)
	}
	data = "/etc/passwd"
	own = filepath.Join(data, "berth", "plugins")
	if found() {
		t.Error("a folder below a file was found")
	}
}
