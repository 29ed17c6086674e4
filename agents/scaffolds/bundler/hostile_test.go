package bundler_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// A bundle of a stranger cannot bring a link into the host, also not one that
// leads out through another link.
func TestAnImportedBundleHasNoLinksOut(t *testing.T) {
	var archive bytes.Buffer
	z, err := zstd.NewWriter(&archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{
		{Name: "bundle.json", Typeflag: tar.TypeReg, Mode: 0o644, Size: 2},
		{Name: "root/a/b/up", Typeflag: tar.TypeSymlink, Linkname: "../../.."},
		{Name: "root/out", Typeflag: tar.TypeSymlink, Linkname: "a/b/up/../../../etc/passwd"},
	} {
		if err = w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("{}"))
		}
	}
	if err = errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err = bundler.Import(t.Context(), t.TempDir(), &archive, false); err == nil || !strings.Contains(err.Error(), `"root/out"`) || !strings.Contains(err.Error(), "out of the folder") {
		t.Errorf("imported: %v", err)
	}
}

// A lock does not show what a link in a bundle leads to.
func TestALockShowsNoFileOfTheHost(t *testing.T) {
	registry(t, script(t))
	b, err := bundler.Make(t.Context(), order(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err = os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.Mount().Source, "npm", "package.json")
	for _, to := range []string{secret, "/dev/zero"} {
		if err = errors.Join(os.Remove(file), os.Symlink(to, file)); err != nil {
			t.Fatal(err)
		}
		if l, err := bundler.LockOf(b); err == nil {
			t.Errorf("a link to %s: %v", to, l.NPM)
		}
	}
}

// A link in a package does not lead the maker out of the bundle.
func TestWhatIsDroppedIsInTheBundle(t *testing.T) {
	registry(t, script(t))
	host := t.TempDir()
	file := filepath.Join(host, "keep")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_NPM_MORE", "ln -s "+host+" node_modules/thing/host; mkdir -p d/e; ln -s ../../../../../../../../../../../.. d/e/up; ln -s d/e/up/etc through")
	o := order(t.TempDir())
	o.Recipe.Drop = []string{"npm/node_modules/thing/host/*"}
	b, err := bundler.Make(t.Context(), o)
	if _, lost := os.Stat(file); lost != nil {
		t.Errorf("%v (made: %v)", lost, err)
	}
	if err != nil {
		return
	}
	if _, err = os.Readlink(filepath.Join(b.Mount().Source, "npm", "through")); err == nil {
		t.Error("a link that leads out through another one stayed")
	}
}

// What a lock names reaches npm, pip and apt as a name and as nothing else.
func TestWhatALockNamesIsAPackage(t *testing.T) {
	registry(t, script(t))
	b, err := bundler.Make(t.Context(), order(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	good, err := bundler.LockOf(b)
	if err != nil {
		t.Fatal(err)
	}
	good.Recipe.PyPI, good.Recipe.Debian = []string{"a.b[c]==1.0", "d>=1,<2", "e=={version}"}, []string{"libc6", "libstdc++6"}
	good.Packages = append(good.Packages, bundle.Package{From: "pypi", Name: "a.b", Version: "1!2.0.post1+local", Integrity: "sha256:ab"}, bundle.Package{From: "debian", Name: "libc6", Version: "1:2.41-12+deb13u1~x"})
	read := func(l bundler.Lock) error {
		raw, wrong := json.Marshal(l)
		if wrong != nil {
			t.Fatal(wrong)
		}
		_, wrong = bundler.ReadLock(bytes.NewReader(raw))
		return wrong
	}
	if err = read(good); err != nil {
		t.Errorf("a good one: %v", err)
	}
	npm := func(file, text string) func(*bundler.Lock) {
		return func(l *bundler.Lock) {
			l.NPM = map[string]string{"package.json": l.NPM["package.json"], "package-lock.json": l.NPM["package-lock.json"], file: text}
		}
	}
	pypi := func(name, version string) func(*bundler.Lock) {
		return func(l *bundler.Lock) {
			l.Packages = append(l.Packages[:1:1], bundle.Package{From: "pypi", Name: name, Version: version})
		}
	}
	for name, spoil := range map[string]func(*bundler.Lock){
		"an option in a line of its own": pypi("x", "1\n--index-url http://evil.example"),
		"an address":                     pypi("x @ file:///etc/passwd", "1"),
		"an option":                      pypi("--index-url", "1"),
		"a repository":                   func(l *bundler.Lock) { l.Recipe.PyPI = []string{"git+https://evil.example/x"} },
		"a path":                         func(l *bundler.Lock) { l.Recipe.PyPI = []string{"./x"} },
		"a source with an address":       func(l *bundler.Lock) { l.Recipe.Sources = []string{"x==1 @ https://evil.example"} },
		"a file of npm":                  func(l *bundler.Lock) { l.Recipe.NPM = []string{"x@file:/etc"} },
		"a version that brings it":       func(l *bundler.Lock) { l.Recipe.NPM, l.Version = []string{"x@{version}"}, "1/2" },
		"a path for apt":                 func(l *bundler.Lock) { l.Recipe.Debian = []string{"./x.deb"} },
		"an option for apt":              func(l *bundler.Lock) { l.Recipe.Debian = []string{"-oAPT::x=y"} },
		"another registry":               func(l *bundler.Lock) { l.Packages = []bundle.Package{{From: "web", Name: "x", Version: "1"}} },
		"a dependency from elsewhere":    npm("package.json", `{"dependencies":{"x":"git+https://evil.example/x"}}`),
		"a script":                       npm("package.json", `{"scripts":{"postinstall":"true"}}`),
		"a package from elsewhere":       npm("package-lock.json", `{"packages":{"node_modules/x":{"version":"1","resolved":"https://evil.example/x.tgz"}}}`),
		"a link":                         npm("package-lock.json", `{"packages":{"node_modules/x":{"version":"1","link":true}}}`),
		"a place outside":                npm("package-lock.json", `{"packages":{"node_modules/../../x":{"version":"1"}}}`),
		"a file that is not npm's":       npm(".npmrc", "registry=https://evil.example"),
	} {
		l := good
		spoil(&l)
		if err = read(l); err == nil || !strings.Contains(err.Error(), "anything else is refused") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
