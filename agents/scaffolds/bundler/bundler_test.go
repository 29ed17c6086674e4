package bundler_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// fakeNPM is an npm that installs what it is told without a network, and
// counts how often it is asked.
const fakeNPM = `#!/bin/sh
case $1 in
ping) exit ;;
view) [ -z "$FAKE_NPM_SILENT" ] || exec sleep "$FAKE_NPM_SILENT"; echo "$*" >>"$FAKE_NPM_COUNT.view"; echo "\"$FAKE_NPM_NEWEST\""; exit ;;
esac
echo x >>"$FAKE_NPM_COUNT"
[ -z "$FAKE_NPM_FAIL" ] || { echo "npm error $FAKE_NPM_FAIL" >&2; exit 1; }
mkdir -p node_modules/thing node_modules/.bin
cp "$FAKE_NPM_PROGRAM" node_modules/thing/program
chmod 700 node_modules/thing/program
echo secret >node_modules/thing/drop.md
ln -s /etc/passwd node_modules/thing/outside
ln -s program node_modules/thing/inside
[ "$1" = ci ] || cat >package-lock.json <<END
{"packages": {"": {"name": "x"}, "node_modules/@a/thing": {"version": "1.2.3", $FAKE_NPM_FROM "integrity": "sha512-abc"}}}
END
sh -c "$FAKE_NPM_MORE"
`

// registry puts a fake npm first in PATH.
func registry(t *testing.T, program string) (count string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(fakeNPM), 0o755); err != nil {
		t.Fatal(err)
	}
	count = filepath.Join(dir, "count")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("FAKE_NPM_COUNT", count)
	t.Setenv("FAKE_NPM_PROGRAM", program)
	return count
}

// script is a program that is not an ELF file.
func script(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func order(dir string) bundler.Order {
	return bundler.Order{Dir: dir, Name: "thing", Version: "1.2.3", Recipe: bundle.Recipe{
		NPM: []string{"thing@{version}"}, Links: map[string]string{"thing": "npm/node_modules/thing/program"}, Drop: []string{"npm/**/*.md"},
	}}
}

func TestABundleIsMadeOnceWhoeverAsks(t *testing.T) {
	count := registry(t, script(t))
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := bundler.Make(t.Context(), order(dir)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if b, err := os.ReadFile(count); err != nil || string(b) != "x\n" {
		t.Errorf("npm was asked %q, %v; want once", b, err)
	}
	b, err := bundle.Open(dir, "thing", "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); err != nil {
		t.Error(err)
	}
	if len(b.Packages) != 1 || b.Packages[0] != (bundle.Package{From: "npm", Name: "@a/thing", Version: "1.2.3", Integrity: "sha512-abc"}) || b.Recipe.NPM[0] != "thing@1.2.3" {
		t.Errorf("manifest %+v", b.Manifest)
	}
	root := b.Mount().Source
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "thing")).Output(); err != nil || string(out) != "hello\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	if info, err := os.Stat(filepath.Join(root, "npm/node_modules/thing/program")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; everybody has to be able to run it", info.Mode(), err)
	}
	for _, gone := range []string{"npm/node_modules/thing/drop.md", "npm/node_modules/thing/outside", "npm/node_modules/.bin"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "npm/node_modules/thing/inside")); err != nil || to != "program" {
		t.Errorf("a link inside: %q, %v", to, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".making-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestMakingAgainReplacesOnlyWithAWholeOne(t *testing.T) {
	registry(t, script(t))
	dir := t.TempDir()
	first, err := bundler.Make(t.Context(), order(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_NPM_FAIL", "no such version")
	o := order(dir)
	o.Again = true
	if _, err = bundler.Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such version") {
		t.Errorf("got %v; want what npm said", err)
	}
	if b, err := bundle.Open(dir, "thing", "1.2.3"); err != nil || b.Digest != first.Digest {
		t.Errorf("the one before: %+v, %v", b.Digest, err)
	}
	t.Setenv("FAKE_NPM_FAIL", "")
	if b, err := bundler.Make(t.Context(), o); err != nil || b.Digest != first.Digest {
		t.Errorf("made again: %s, %v; want the same digest %s", b.Digest, err, first.Digest)
	}
}

// npm says where a package came from, unless it was in its cache.
func TestABundleIsTheSameWhereverItsPackagesComeFrom(t *testing.T) {
	registry(t, script(t))
	var digests []string
	for _, from := range []string{"", `"resolved": "https://me:password@mirror/thing.tgz",`} {
		t.Setenv("FAKE_NPM_FROM", from)
		b, err := bundler.Make(t.Context(), order(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, b.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %q", digests)
	}
}

// A bundle whose Python was killed while it compiled is none.
func TestPythonThatIsKilledMakesNoBundle(t *testing.T) {
	registry(t, script(t))
	for how, whole := range map[string]bool{"exit 0": true, "echo some file is not Python; exit 1": true, "kill -9 $$": false, "exit 2": false, "echo Traceback >&2; exit 1": false} {
		t.Setenv("FAKE_NPM_MORE", "mkdir -p ../usr/bin ../python; touch ../usr/bin/python3.13; echo '#!/bin/sh' >../ld.so; echo '"+how+"' >>../ld.so; chmod 755 ../ld.so")
		dir := t.TempDir()
		if _, err := bundler.Make(t.Context(), order(dir)); (err == nil) != whole {
			t.Errorf("%s: %v", how, err)
		}
		if there, err := bundle.List(dir); err != nil || (len(there) == 1) != whole {
			t.Errorf("%s: %d bundles, %v", how, len(there), err)
		}
	}
}

func TestOrdersThatCannotBeMade(t *testing.T) {
	registry(t, script(t))
	for want, spoil := range map[string]func(*bundler.Order){
		"which version":         func(o *bundler.Order) { o.Version = "" },
		"expected NAME@VERSION": func(o *bundler.Order) { o.Recipe.NPM = []string{"thing"} },
		"leads out":             func(o *bundler.Order) { o.Recipe.Links = map[string]string{"x": "../../etc/passwd"} },
		"have no file":          func(o *bundler.Order) { o.Recipe.Links = map[string]string{"x": "npm/none"} },
		"no folder for bundles": func(o *bundler.Order) { o.Dir = "" },
		"letters, digits":       func(o *bundler.Order) { o.Version = "1/2" },
	} {
		o := order(t.TempDir())
		spoil(&o)
		if _, err := bundler.Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := bundler.Make(t.Context(), order(t.TempDir())); err == nil || !strings.Contains(err.Error(), "is not on this machine") {
		t.Errorf("without npm: %v", err)
	}
}

func TestWhoWaitsForABundleCanBeInterrupted(t *testing.T) {
	registry(t, script(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bundler.Make(ctx, order(t.TempDir())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestExportAndImport(t *testing.T) {
	registry(t, script(t))
	made, err := bundler.Make(t.Context(), order(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err = bundler.Export(made, &archive); err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	got, err := bundler.Import(t.Context(), there, bytes.NewReader(archive.Bytes()), false)
	if err != nil || got.Digest != made.Digest {
		t.Fatalf("imported %s, %v; want %s", got.Digest, err, made.Digest)
	}
	if b, missing := bundle.Open(there, "thing", "1.2.3"); missing != nil || b.Verify() != nil {
		t.Errorf("opened: %v", missing)
	}
	if _, err = bundler.Import(t.Context(), there, bytes.NewReader(archive.Bytes()), false); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err = os.WriteFile(filepath.Join(made.Mount().Source, "npm/node_modules/thing/program"), []byte("#!/bin/sh\necho evil\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err = bundler.Export(made, io.Discard); err == nil || !strings.Contains(err.Error(), "has been changed") {
		t.Errorf("changed before: %v", err)
	}
	var changed bytes.Buffer
	if err = pack(made.Folder, &changed); err != nil {
		t.Fatal(err)
	}
	if _, err = bundler.Import(t.Context(), t.TempDir(), &changed, false); err == nil || !strings.Contains(err.Error(), "has been changed") {
		t.Errorf("changed on the way: %v", err)
	}
	if _, err = bundler.Import(t.Context(), t.TempDir(), strings.NewReader("no archive"), false); err == nil {
		t.Error("no archive at all was taken")
	}
	if _, err = bundler.Import(t.Context(), t.TempDir(), bytes.NewReader(archive.Bytes()[:archive.Len()/2]), false); err == nil {
		t.Error("half an archive was taken")
	}
}

// pack makes what Export makes, of any folder.
func pack(folder string, w io.Writer) error {
	z, err := zstd.NewWriter(w)
	if err != nil {
		return err
	}
	_, err = archive.PackFolder(z, folder, archive.Packing{Limits: archive.Limits{Bytes: 1 << 20, Entries: 100}})
	return errors.Join(err, z.Close())
}

// What a maker left that was killed goes when the next one comes; what another
// one is making stays.
func TestWhatAKilledMakerLeftGoes(t *testing.T) {
	registry(t, script(t))
	dir := t.TempDir()
	left, other := filepath.Join(dir, ".making-left"), filepath.Join(dir, ".making-other")
	whole := filepath.Join(left, "whole")
	if err := errors.Join(os.MkdirAll(filepath.Join(whole, "part"), 0o700), os.Chmod(whole, 0o500), os.Chmod(left, 0o500), os.Mkdir(other, 0o700)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var would []string
	if would, err = bundler.Left(dir, true); err != nil || len(would) != 1 || would[0] != left {
		t.Errorf("Left, dry: %q, %v; want %s", would, err, left)
	}
	if _, err = bundler.Make(t.Context(), order(dir)); err != nil {
		t.Fatal(err)
	}
	if is, err := filepath.Glob(filepath.Join(dir, ".making-*")); err != nil || len(is) != 1 || is[0] != other {
		t.Errorf("there are %q, %v; want %s alone", is, err, other)
	}
}

// What an archive says of modes is not believed, and a bundle is for everybody on
// the machine, whatever its maker's umask.
func TestTheModesOfABundle(t *testing.T) {
	registry(t, script(t))
	defer unix.Umask(unix.Umask(0o077))
	made, err := bundler.Make(t.Context(), order(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("root", "npm/node_modules/thing/program")
	modes := func(b bundle.Bundle) {
		t.Helper()
		for name, want := range map[string]os.FileMode{".": 0o755, "root": 0o755, "bundle.json": 0o644, program: 0o755, filepath.Dir(program): 0o755} {
			if info, statErr := os.Stat(filepath.Join(b.Folder, name)); statErr != nil || info.Mode() & ^os.ModeDir != want {
				t.Errorf("%s: %v, %v; want %v", name, info.Mode(), statErr, want)
			}
		}
	}
	modes(made)
	if err = errors.Join(os.Chmod(filepath.Join(made.Folder, program), 0o777|os.ModeSetuid), os.Chmod(filepath.Join(made.Folder, filepath.Dir(program)), 0o777)); err != nil {
		t.Fatal(err)
	}
	var odd bytes.Buffer
	if err = pack(made.Folder, &odd); err != nil {
		t.Fatal(err)
	}
	got, err := bundler.Import(t.Context(), t.TempDir(), &odd, false)
	if err != nil {
		t.Fatal(err)
	}
	modes(got)
}

// A bundle that trials may be using stays when the same one is made again.
func TestTheSameBundleMadeAgainStays(t *testing.T) {
	registry(t, script(t))
	dir := t.TempDir()
	o := order(dir)
	first, err := bundler.Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first.Mount().Source)
	if err != nil {
		t.Fatal(err)
	}
	o.Again = true
	if _, err = bundler.Make(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if now, statErr := os.Stat(first.Mount().Source); statErr != nil || !os.SameFile(before, now) {
		t.Errorf("it was replaced by its like: %v", statErr)
	}
	if err = os.Remove(filepath.Join(first.Mount().Source, "bin", "thing")); err != nil {
		t.Fatal(err)
	}
	if b, err := bundler.Make(t.Context(), o); err != nil || b.Verify() != nil {
		t.Errorf("one that had been changed: %v, %v", err, b.Verify())
	}
}

// A program that is linked against the C library gets the bundle's own loader,
// and is refused when there is none.
func TestProgramsGetTheBundlesLoader(t *testing.T) {
	program, err := filepath.EvalSymlinks(testlevel.Program(t, "true", "coreutils"))
	if err != nil {
		t.Fatal(err)
	}
	if interpreter(t, program) == "" {
		t.Skipf("%s is static or of another C library", program)
	}
	registry(t, program)
	_, err = bundler.Make(t.Context(), order(t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "add libc6") {
		t.Errorf("without a loader: %v", err)
	}
	lib := t.TempDir()
	copied := filepath.Join(lib, "program")
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.WriteFile(copied, b, 0o700), os.WriteFile(filepath.Join(lib, "ld.so"), nil, 0o755), os.Symlink("/etc/passwd", filepath.Join(lib, "out"))); err != nil {
		t.Fatal(err)
	}
	if err = bundler.Fit(t.Context(), lib); err != nil {
		t.Fatal(err)
	}
	if got := interpreter(t, copied); got != bundle.Place+"/ld.so" {
		t.Errorf("loader %q", got)
	}
	if info, err := os.Stat(copied); err != nil || info.Size() != int64(len(b)) || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v; nothing but the name may change", info, err)
	}
}

func interpreter(t *testing.T, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
			if name := strings.TrimRight(string(b), "\x00"); strings.Contains(name, "ld-linux") || strings.HasPrefix(name, bundle.Place) {
				return name
			}
		}
	}
	return ""
}

func TestTheLoaderLooksInTheBundleAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	lib := filepath.Join(root, "usr", "lib", "x86_64-linux-gnu")
	text := "a\x00/lib/x86_64-linux-gnu/\x00/usr/lib/x86_64-linux-gnu/\x00/lib/\x00/usr/lib/\x00b/etc/ld.so.cache\x00/etc/ld.so.preload\x00"
	if err := errors.Join(os.MkdirAll(lib, 0o755), os.WriteFile(filepath.Join(lib, "ld-linux-x86-64.so.2"), []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := bundler.FitLoader(root); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "ld.so"))
	if err != nil || len(b) != len(text) || !bytes.Contains(b, []byte("\x00"+bundle.Place+"/lib")) {
		t.Fatalf("%q, %v", b, err)
	}
	for _, place := range []string{"\x00/lib/", "\x00/usr/lib/", "ld.so.cache", "ld.so.preload"} {
		if bytes.Contains(b, []byte(place)) {
			t.Errorf("it still looks at %q", place)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "lib", "ld-linux-x86-64.so.2")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "ld-linux-x86-64.so.2"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := bundler.FitLoader(root); err == nil || !strings.Contains(err.Error(), "of another kind") {
		t.Errorf("a loader that is not known: %v", err)
	}
}
