package command

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// One flipped byte in any kind of file of a run is found and named.
func TestAnAuditNamesEachFlippedByte(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	berthWith(t, dir, nil, "run", filepath.Join(tree.Root, "examples", "quickstart")).want(t, 0)
	flips(t, dir, 15)
}

// flips flips a byte in one file of each kind of the last run below dir, and audits
// the run. There are at least least kinds. Every file that is not named is one that
// the page says is not checked.
func flips(t *testing.T, dir string, least int) {
	t.Helper()
	r := berthWith(t, dir, nil, "audit", "last")
	if r.code != 0 || !strings.Contains(r.out, "The record is consistent") {
		t.Fatalf("audit: %d\n%s\n%s", r.code, r.out, r.stderr)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	e2etest.Must(t, err)
	kinds := map[string]string{}
	e2etest.Must(t, filepath.WalkDir(runs[0], func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(runs[0], p)
			kind, parts := d.Name(), strings.Split(filepath.ToSlash(rel), "/")
			switch {
			case strings.Contains(r.out, "  files: "+parts[0]+": no checksum covers it, and no number is made of it"):
				return nil
			case parts[0] == "journal" || filepath.Base(filepath.Dir(p)) == "frames":
				kind = filepath.Base(filepath.Dir(p))
			case filepath.Base(filepath.Dir(p)) == "blobs":
				kind = "blob"
			case parts[0] == "trials" && len(parts) > 3:
				kind = strings.Join(parts[3:], "/")
			}
			kinds[kind] = p
		}
		return err
	}))
	if len(kinds) < least {
		t.Errorf("only %d kinds of files: %v", len(kinds), kinds)
	}
	for kind, p := range kinds {
		b, err := os.ReadFile(p)
		e2etest.Must(t, err)
		if len(b) == 0 {
			continue
		}
		was := bytes.Clone(b)
		b[len(b)/2] ^= 1
		e2etest.Must(t, os.WriteFile(p, b, 0o600))
		r := berthWith(t, dir, nil, "audit", "last")
		e2etest.Must(t, os.WriteFile(p, was, 0o600))
		rel, _ := filepath.Rel(runs[0], p)
		if r.code == 0 || !strings.Contains(r.out+r.stderr, rel) && !strings.Contains(r.stderr, filepath.Base(p)) {
			t.Errorf("a flipped byte of %s: exit code %d, and it is not named:\n%s%s", kind, r.code, r.out, r.stderr)
		}
	}
}

// signedForKeygen signs a page of the last run with a key of ssh-keygen, which then
// checks the page, and the one that author signed.
func signedForKeygen(t *testing.T, dir string) {
	t.Helper()
	keygen := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			t.Skip("ssh-keygen is not installed: apt-get install openssh-client")
		case strings.Contains(string(out), "No user exists for uid"):
			t.Skipf("ssh-keygen refuses to work for user %d, who has no account: run the test as a user with an account", os.Getuid())
		case err != nil:
			t.Errorf("ssh-keygen %q: %v: %s", args, err, out)
		}
	}
	keygen("", "-q", "-t", "ed25519", "-N", "", "-f", "own")
	e2etest.Write(t, dir, map[string]string{"own_signers": "own@example.org " + e2etest.Read(t, dir, "own.pub")})
	berthWith(t, dir, nil, "audit", "last", "-o", "own.json", "--sign", "own").want(t, 0)
	keygen(e2etest.Read(t, dir, "own.json"), "-Y", "verify", "-f", "own_signers", "-I", "own@example.org", "-n", "berth-audit", "-s", "own.json.sig")
	keygen(e2etest.Read(t, dir, "page.json"), "-Y", "verify", "-f", "allowed_signers", "-I", "author@example.org", "-n", "berth-audit", "-s", "page.json.sig")
}

// A page that was signed is checked with the author's key, and by ssh-keygen.
func TestAnAuditIsSigned(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	for _, name := range []string{"author", "stranger"} {
		public, private, err := ed25519.GenerateKey(nil)
		e2etest.Must(t, err)
		block, err := ssh.MarshalPrivateKey(private, "")
		e2etest.Must(t, err)
		key, err := ssh.NewPublicKey(public)
		e2etest.Must(t, err)
		e2etest.Write(t, dir, map[string]string{name: string(pem.EncodeToMemory(block)), name + ".pub": string(ssh.MarshalAuthorizedKey(key))})
	}
	e2etest.Write(t, dir, map[string]string{"allowed_signers": "author@example.org " + e2etest.Read(t, dir, "author.pub")})
	if r := berthWith(t, dir, nil, "run", filepath.Join(tree.Root, "examples", "quickstart")); r.code != 0 {
		t.Fatalf("run: %d\n%s", r.code, r.stderr)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"audit", "last", "-o", "page.json", "--sign", "author"}, 0, "page written to page.json"},
		{[]string{"audit", "last", "--verify", "page.json", "--signers", "author.pub"}, 0, "valid signature by SHA256:"},
		{[]string{"audit", "last", "--verify", "page.json", "--signers", "allowed_signers"}, 0, "the run matches"},
		{[]string{"audit", "last", "--verify", "page.json", "--signers", "stranger.pub"}, 1, "is not one of those that you trust: it is SHA256:"},
		{[]string{"audit", "last", "--sign", "author"}, 2, "--sign needs -o"},
		{[]string{"audit", "last", "-o", "x.json", "--sign", "author.pub"}, 2, "is not a private SSH key"},
	} {
		if r := berthWith(t, dir, nil, tt.args...); r.code != tt.code || !strings.Contains(r.out+r.stderr, tt.want) {
			t.Errorf("%q ended with %d, want %d and %q:\n%s%s", tt.args, r.code, tt.code, tt.want, r.out, r.stderr)
		}
	}
	t.Run("for ssh-keygen", func(t *testing.T) { signedForKeygen(t, dir) })
	e2etest.Write(t, dir, map[string]string{"page.json": strings.Replace(e2etest.Read(t, dir, "page.json"), "6", "7", 1)})
	r := berthWith(t, dir, nil, "audit", "last", "--verify", "page.json", "--signers", "author.pub")
	if want := "is not the one that was signed"; r.code != 1 || !strings.Contains(r.out+r.stderr, want) {
		t.Errorf("with a changed page: %d, want 1 and %q:\n%s%s", r.code, want, r.out, r.stderr)
	}
}
