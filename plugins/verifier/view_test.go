package verifier_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/verifier"
)

func TestReadFileOpensNothingButFiles(t *testing.T) {
	t.Parallel()
	view := t.TempDir()
	at := func(name string) string { return filepath.Join(view, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("attempt/artifacts"), 0o755))
	must(os.WriteFile(at("attempt/artifacts/plain"), []byte("42"), 0o644))
	must(os.WriteFile(at("attempt/artifacts/large"), []byte("12345678901"), 0o644))
	must(os.Symlink("plain", at("attempt/artifacts/link")))
	must(os.Symlink("/etc/passwd", at("attempt/artifacts/out")))
	must(os.Symlink("/etc", at("attempt/artifacts/dir")))
	must(syscall.Mkfifo(at("attempt/artifacts/pipe"), 0o644))
	r := verifier.Request{View: view}
	for _, tt := range []struct{ name, want, err string }{
		{name: "plain", want: "42"},
		{name: "large", err: "at most 10 are read"},
		{name: "link", err: "not a regular file"},
		{name: "out", err: "not a regular file"},
		{name: "dir/passwd", err: "a link, which is not followed"},
		{name: "pipe", err: "not a regular file"},
		{name: ".", err: "not a regular file"},
		{name: "../../../../../../etc/passwd", err: "escapes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.ReadFile("attempt/artifacts/"+tt.name, 10)
			if string(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %q, %v; want %q, error with %q", got, err, tt.want, tt.err)
			}
		})
	}
	if _, err := r.ReadFile("attempt/artifacts/none", 10); !errors.Is(err, verifier.ErrArtifactMissing) {
		t.Errorf("missing: %v; want ErrArtifactMissing", err)
	}
}

func TestAMissingArtifactSaysWhetherItIsDeclared(t *testing.T) {
	t.Parallel()
	r := verifier.Request{View: t.TempDir()}
	dir := filepath.Join(r.View, "attempt", "artifacts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(name, want string) {
		t.Helper()
		if _, err := r.ReadFile(name, 10); err == nil || err.Error() != want || !errors.Is(err, verifier.ErrArtifactMissing) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	missing := ": " + verifier.ErrArtifactMissing.Error()
	check("attempt/artifacts/clean.csv", "attempt/artifacts/clean.csv"+missing+": the task declares no artifacts")
	manifest := `[{"destination": "artifacts/answer.txt", "status": "failed"}, {"destination": "artifacts/out", "status": "ok"}]`
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	check("attempt/artifacts/clean.csv", "attempt/artifacts/clean.csv"+missing+`: the task declares no artifact "clean.csv"; there are answer.txt, out`)
	check("attempt/artifacts/answer.txt", "attempt/artifacts/answer.txt"+missing)
	check("attempt/artifacts/out/x", "attempt/artifacts/out/x"+missing)
	check("task/x", "task/x"+missing)
}
