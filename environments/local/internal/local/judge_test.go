package local

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
)

// none is a spec that is accepted.
func none() environment.Spec {
	return environment.Spec{Network: environment.Network{Mode: environment.NetworkNone}}
}

// dockerfile is a build folder with one file.
func dockerfile(t *testing.T, text string) environment.Image {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return environment.Image{Build: dir}
}

// What is refused says what, and what to do; and Create refuses it, too.
func TestRefusals(t *testing.T) {
	modetest.Each(t, func(t *testing.T, mode ids.Mode) {
		e := made(t)
		public := "public network"
		if e.maker.Uplink() != "" {
			public = ""
		}
		for _, tt := range []struct {
			name   string
			change func(*environment.Spec)
			want   string // in the refusal; empty: none
			many   string // instead, where there is more than one user
		}{
			{name: "nothing", change: func(*environment.Spec) {}},
			{name: "a list of hosts", change: func(s *environment.Spec) { s.Network.Mode = environment.NetworkAllow }},
			{name: "the public network", change: func(s *environment.Spec) { s.Network.Mode = environment.NetworkPublic }, want: public},
			{name: "no mode", change: func(s *environment.Spec) { s.Network.Mode = "" }, want: "network mode"},
			{name: "an image", change: func(s *environment.Spec) { s.Image.Ref = "debian:12" }, want: `"debian:12"`},
			{name: "RUN", change: func(s *environment.Spec) { s.Image = dockerfile(t, "FROM a\n\nRUN make\n") }, want: "line 3: RUN make"},
			{name: "no Dockerfile", change: func(s *environment.Spec) { s.Image.Build = t.TempDir() }, want: "Dockerfile cannot be read"},
			{name: "a sidecar", change: func(s *environment.Spec) { s.Sidecars = []environment.Sidecar{{Name: "db"}} }, want: `"db"`},
			{name: "a GPU", change: func(s *environment.Spec) { s.Limits.GPUs = 1 }, want: "GPU"},
			{name: "a negative limit", change: func(s *environment.Spec) { s.Limits.Pids = -1 }, want: "negative"},
			{name: "root by name and number", change: func(s *environment.Spec) { s.Users = []string{"root", "0", "0:0", ""} }},
			{name: "a second user", change: func(s *environment.Spec) { s.Users = []string{"1234"} }, want: `"1234"`, many: "-"},
			{name: "one of the host", change: func(s *environment.Spec) { s.Users = []string{"nobody"} }, want: `"nobody"`, many: "-"},
			{name: "one that nobody knows", change: func(s *environment.Spec) { s.Users = []string{"berth-nobody-knows"} }, want: "second user", many: "no user"},
			{name: "sandboxd's own", change: func(s *environment.Spec) { s.Users = []string{"65533"} }, want: "second user", many: "does not exist"},
			{name: "of USER", change: func(s *environment.Spec) { s.Image = dockerfile(t, "FROM a\nUSER 7\n") }, want: `"7"`, many: "-"},
			{name: "of COPY", change: func(s *environment.Spec) { s.Image = dockerfile(t, "FROM a\nCOPY --chown=7 Dockerfile /x\n") }, want: `"7"`, many: "-"},
			{name: "a relative workdir", change: func(s *environment.Spec) { s.Workdir = "app" }, want: "not absolute"},
			{name: "a workdir in /proc", change: func(s *environment.Spec) { s.Workdir = "/app/../proc/x" }, want: "is reserved"},
			{name: "a mount on /berth", change: func(s *environment.Spec) { s.Mounts = []environment.Mount{{Source: "/usr", Target: "/berth/x"}} }, want: "own folders"},
			{name: "a mount on /", change: func(s *environment.Spec) { s.Mounts = []environment.Mount{{Source: "/usr", Target: "/"}} }, want: "own folders"},
			{name: "a relative mount", change: func(s *environment.Spec) { s.Mounts = []environment.Mount{{Source: "usr", Target: "/x"}} }, want: "not absolute"},
		} {
			want := tt.want
			if mode.Many() && tt.many != "" {
				want = strings.Trim(tt.many, "-")
			}
			spec := none()
			tt.change(&spec)
			refuses(t, e, tt.name, spec, want)
		}
		if left, err := e.List(t.Context(), "x"); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// refuses fails unless Check and Create refuse spec with want in the text, or,
// with want empty, do not.
func refuses(t *testing.T, e *Environment, name string, spec environment.Spec, want string) {
	t.Helper()
	report, err := e.Check(t.Context(), spec)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	text := ""
	for _, r := range report.Refusals {
		text += r.Summary + ": " + r.Detail
		if r.Summary == "" || r.Detail == "" || strings.Contains(r.Summary+r.Detail, "\n") {
			t.Errorf("%s: refusal is not one line of what and what to do: %+v", name, r)
		}
	}
	if (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("%s: refused %q, want %q", name, text, want)
	}
	spec.Control = "/nonexistent"
	if _, err := e.Create(t.Context(), spec); errors.Is(err, environment.ErrRefused) != (want != "") {
		t.Errorf("%s: create: %v; refused by check is %v", name, err, want != "")
	}
}

func TestDegradedLimitsAreSaid(t *testing.T) {
	modetest.Each(t, func(t *testing.T, _ ids.Mode) {
		e := made(t)
		spec := none()
		spec.Limits = environment.Limits{MemoryMiB: 512, CPUMilli: 1000, StorageMiB: 64, Pids: 100}
		spec.Image = dockerfile(t, "FROM debian\n")
		report, err := e.Check(t.Context(), spec)
		if err != nil || len(report.Refusals) > 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		text := ""
		for _, d := range report.Degraded {
			text += d.Summary + "\n"
		}
		if want := "instead of the task's image"; !strings.Contains(text, want) {
			t.Errorf("%q is not said: %s", want, text)
		}
		j, err := e.judge(spec)
		if err != nil {
			t.Fatal(err)
		}
		if (j.Granted.Memory == environment.GrantNo) != strings.Contains(text, "memory limit is not enforced") {
			t.Errorf("granted %+v and degraded %q disagree", j.Granted, text)
		}
		if j.Granted.Disk != environment.GrantEnforced || j.Granted.Network != environment.GrantEnforced || j.Granted.Pids == "" {
			t.Errorf("granted %+v", j.Granted)
		}
	})
}

func TestConfiguration(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`: "", `{"pids": 100, "storage_mib": 512}`: "", `{"pids": 3}`: "Too few", `{"storage_mib": -1}`: "negative", `{"pid": 100}`: "pid",
		`{"pids": "x"}`: "pids",
	} {
		var c Config
		text := ""
		for _, p := range config.Validate(json.RawMessage(raw), &c) {
			text += p.String()
		}
		if (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", raw, text, want)
		}
	}
}

// A machine on which nothing can be made is a refusal, not a crash.
func TestFaultOfTheMachineIsARefusal(t *testing.T) {
	e := New(Options{Fault: errors.New("no ids here: do something")})
	report, err := e.Check(t.Context(), none())
	if err != nil || len(report.Refusals) != 1 || !strings.Contains(report.Refusals[0].Detail, "do something") {
		t.Errorf("check: %+v, %v", report, err)
	}
	if _, err := e.Create(t.Context(), none()); !errors.Is(err, environment.ErrRefused) {
		t.Errorf("create: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
