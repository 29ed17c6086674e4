package environment

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestAProblemIsOneLineOfSentences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ summary, detail, want string }{
		{"No image", "", "No image"},
		{"No image", "use environment x.", "No image: use environment x."},
		{"No image", "Use environment x.", "No image. Use environment x."},
	} {
		if got := (Problem{Summary: tt.summary, Detail: tt.detail}).String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestPlainRefusesWhatItHasNot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		spec              Spec
		refused, degraded string
	}{
		{name: "nothing", spec: Spec{Network: Network{Mode: NetworkNone}}},
		{name: "listed hosts", spec: Spec{Network: Network{Mode: NetworkAllow}}},
		{"any host", Spec{Network: Network{Mode: NetworkPublic}}, `Network "public"`, ""},
		{"no mode", Spec{}, `Network ""`, ""},
		{"an image", Spec{Network: Network{Mode: NetworkNone}, Image: Image{Ref: "x"}}, `The task's image: "x"`, ""},
		{"a build that is not there", Spec{Network: Network{Mode: NetworkNone}, Image: Image{Build: "x"}}, "The task's image: the Dockerfile: ", ""},
		{"a sidecar", Spec{Network: Network{Mode: NetworkNone}, Sidecars: make([]Sidecar, 1)}, "Several containers", ""},
		{"a volume", Spec{Network: Network{Mode: NetworkNone}, Volumes: make([]Volume, 1)}, "volumes", ""},
		{"a user", Spec{Network: Network{Mode: NetworkNone}, Users: []string{"bob"}}, "A second user", ""},
		{"a GPU", Spec{Network: Network{Mode: NetworkNone}, Limits: Limits{GPUs: 1}}, "A GPU", ""},
		{"a limit", Spec{Network: Network{Mode: NetworkNone}, Limits: Limits{Pids: 1}}, "", "Limits"},
	} {
		r, err := Plain{Name: "box"}.Check(t.Context(), tt.spec)
		if err != nil || (tt.refused == "") != (len(r.Refusals) == 0) || (tt.degraded == "") != (len(r.Degraded) == 0) {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
		if err = r.Err(); (err != nil) != errors.Is(err, ErrRefused) || (err != nil && !strings.Contains(err.Error(), tt.refused)) || (err == nil) != (tt.refused == "") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.refused)
		}
	}
}

func TestPlainReadsADockerfile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, refused string
		want          ImageFacts
	}{
		{text: "# a task\nFROM debian:13-slim\n\nworkdir /app/\nENV A=1 B=x=y\n", want: ImageFacts{Workdir: "/app", Env: map[string]string{"A": "1", "B": "x=y"}}},
		{text: "FROM scratch\nCOPY a /app/\n", refused: `line 2 of the Dockerfile, "COPY a /app/"`},
		{text: "FROM a\nFROM b\n", refused: "line 2"},
		{text: "FROM a AS b\n", refused: "line 1"},
		{text: "FROM $a\n", refused: "line 1"},
		{text: "FROM a\nWORKDIR app\n", refused: "line 2"},
		{text: "FROM a\nENV A 1\n", refused: "line 2"},
		{text: "FROM a\nENV\n", refused: "line 2"},
		{text: "FROM a\nWORKDIR\n", refused: "line 2"},
		{text: "FROM a\nENV A=\"1 2\"\n", refused: "line 2"},
		{text: "WORKDIR /app\nFROM a\n", refused: "line 1"},
		{text: "", refused: "without FROM"},
		{text: strings.Repeat("#", 1<<20+1), refused: "more than"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := Spec{Network: Network{Mode: NetworkNone}, Image: Image{Build: dir, Digest: "sha256:x"}}
		r, err := Plain{Name: "box"}.Check(t.Context(), spec)
		if tt.refused != "" {
			if err != nil || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Summary, tt.refused) {
				t.Errorf("%.40q: %+v, %v; want a refusal with %q", tt.text, r, err, tt.refused)
			}
			if r, err = (Plain{Name: "box", Images: true}).Check(t.Context(), spec); err != nil || len(r.Refusals) != 0 {
				t.Errorf("%.40q: an environment of images refuses it: %+v, %v", tt.text, r, err)
			}
			continue
		}
		tt.want.Base, tt.want.Digest = "host", "sha256:x"
		got, err := Plain{Name: "box"}.Facts(spec.Image)
		if err != nil || len(r.Refusals) != 0 || len(r.Degraded) != 1 || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%.40q: %+v, %v, check %+v; want %+v", tt.text, got, err, r, tt.want)
		}
	}
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "Dockerfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Plain{}).Facts(Image{Build: dir}); err == nil {
		t.Error("a pipe is read")
	}
}
