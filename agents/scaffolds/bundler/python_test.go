package bundler_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// fakePython stands for the machine's Python: its pip installs, downloads and
// builds without a network, and its packages say that they are for $FAKE_PYTHON.
const fakePython = `#!/bin/sh
said="$*"
[ "$1" != -c ] || { printf "$FAKE_PYTHON"; exit; }
[ -z "$FAKE_PIP_FAIL" ] || { echo "$FAKE_PIP_FAIL" >&2; exit 1; }
verb=$3
while [ $# -gt 0 ]; do
	case $1 in --target) target=$2 ;; --report) report=$2 ;; --dest) dest=$2 ;; --wheel-dir) wheels=$2 ;; --find-links) links=$2 ;; esac
	shift
done
case $verb in
download) mkdir -p "$dest"; echo source >"$dest/slow_thing-2.tar.gz" ;;
wheel) mkdir -p "$wheels"; echo wheel >"$wheels/${PIP_FAKE_WHEEL:-slow_thing-2-py3-none-any.whl}" ;;
install)
	mkdir -p "$target/thing-1.dist-info" "$target/bin" "$target/thing/big"
	case $target in
	*/tools) echo '{"install": [{"metadata": {"name": "setuptools", "version": "80"}, "download_info": {"archive_info": {"hashes": {"sha256": "aa"}}}}]}' >"$report"; exit ;;
	esac
	echo "$said" >>"$FAKE_SAID"
	[ -z "$FAKE_NEEDS" ] || [ -e "$links/$FAKE_NEEDS" ] || { echo "ERROR: no matching distribution" >&2; exit 1; }
	echo x >"$target/thing/big/x"
	printf '#!%s/python3\n' "$FAKE_SAID" >"$target/bin/thing"
	printf '#!/bin/sh\necho hello\n' >"$target/bin/other"
	printf 'thing/big/x,sha256=1,2\n../../bin/thing,sha256=2,3\n../../bin/other,sha256=3,4\nthing-1.dist-info/RECORD,,\n' >"$target/thing-1.dist-info/RECORD"
	cat >"$report" <<-END
	{"install": [{"metadata": {"name": "thing", "version": "1"}, "download_info": {"archive_info": {"hashes": {"sha256": "bb"}}}},
	 {"metadata": {"name": "Slow.Thing", "version": "2"}, "download_info": {"archive_info": {"hashes": {"sha256": "of the wheel"}}}}]}
	END
	;;
esac
`

// pypi puts a fake Python first in PATH, and returns where it notes what pip was
// told.
func pypi(t *testing.T) (said string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(fakePython), 0o755); err != nil {
		t.Fatal(err)
	}
	said = filepath.Join(dir, "said")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("FAKE_SAID", said)
	return said
}

func ofPyPI(dir string) bundler.Order {
	return bundler.Order{Dir: dir, Name: "thing", Version: "1", Recipe: bundle.Recipe{
		PyPI: []string{"thing=={version}"}, Sources: []string{"Slow_Thing==2"}, BuildWith: []string{"setuptools==80"}, AnyPython: []string{"Thing"},
		Drop: []string{"python/thing/big"},
	}}
}

func TestAPackageWithoutAWheelIsBuilt(t *testing.T) {
	said := pypi(t)
	t.Setenv("FAKE_NEEDS", "slow_thing-2-py3-none-any.whl")
	t.Setenv("FAKE_PYTHON", "thing\t1\t==3.12.*\n")
	b, err := bundler.Make(t.Context(), ofPyPI(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	want := []bundle.Package{
		{From: "pypi", Name: "thing", Version: "1", Integrity: "sha256:bb"},
		{From: "build", Name: "setuptools", Version: "80", Integrity: "sha256:aa"},
		{From: "source", Name: "Slow_Thing", Version: "2", Integrity: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("source\n")))}, // of the archive
	}
	if !slices.Equal(b.Packages, want) {
		t.Errorf("packages %+v; want %+v", b.Packages, want)
	}
	told, err := os.ReadFile(said)
	if err != nil || !strings.Contains(string(told), "--ignore-requires-python") || !strings.Contains(string(told), "--only-binary=:all:") {
		t.Errorf("pip was told %s, %v", told, err)
	}
	root := b.Mount().Source
	record, err := os.ReadFile(filepath.Join(root, "python/thing-1.dist-info/RECORD"))
	if want := "bin/other,sha256=3,4\nthing-1.dist-info/RECORD,,\n"; err != nil || string(record) != want {
		t.Errorf("the list of files is\n%s%v; want\n%s", record, err, want)
	}
	if _, err = os.Stat(filepath.Join(root, "python/bin/thing")); err == nil {
		t.Error("a script for the machine's own Python is in the bundle")
	}
}

func TestPackagesOfPyPIThatAreRefused(t *testing.T) {
	pypi(t)
	for _, tt := range []struct {
		want, variable, value string
		change                func(*bundle.Recipe)
	}{
		{want: "package other 3 of Python <3.13 is not for Python 3.13", variable: "FAKE_PYTHON", value: "other\t3\t<3.13\n"},
		{want: "which is for one kind of machine", variable: "PIP_FAKE_WHEEL", value: "slow_thing-2-cp313-cp313-linux_x86_64.whl"},
		{want: "no matching distribution", variable: "FAKE_NEEDS", value: "slow_thing-2-py3-none-any.whl", change: func(r *bundle.Recipe) { r.Sources = nil }},
		{want: "write NAME==VERSION", change: func(r *bundle.Recipe) { r.Sources = []string{"thing"} }},
		{want: "write NAME==VERSION", change: func(r *bundle.Recipe) { r.BuildWith = []string{"-r=="} }},
		{want: "https://mirror.invalid/simple does not answer: set PIP_INDEX_URL", variable: "FAKE_PIP_FAIL", value: "Failed to establish a new connection: [Errno -2]"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Setenv("PIP_INDEX_URL", "https://mirror.invalid/simple")
			if tt.variable != "" {
				t.Setenv(tt.variable, tt.value)
			}
			o := ofPyPI(t.TempDir())
			if tt.change != nil {
				tt.change(&o.Recipe)
			}
			if _, err := bundler.Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
		})
	}
}

// The code of a package sees no secrets while it is built, and finds no compiler.
func TestABuildSeesLittle(t *testing.T) {
	got := bundler.BuildEnv([]string{"PATH=/bin", "HOME=/h", "OPENAI_API_KEY=secret", "PIP_INDEX_URL=u", "https_proxy=p", "AWS_SECRET_ACCESS_KEY=s", "CC=gcc"})
	for _, want := range []string{"PATH=/bin", "HOME=/h", "PIP_INDEX_URL=u", "https_proxy=p", "CC=false", "SOURCE_DATE_EPOCH=315532800"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	for _, v := range got {
		if strings.Contains(v, "secret") || strings.HasPrefix(v, "AWS") || v == "CC=gcc" {
			t.Errorf("it sees %q", v)
		}
	}
}

// Registries that do not answer are named, with the variable for another.
func TestARegistryThatDoesNotAnswerIsNamed(t *testing.T) {
	registry(t, script(t))
	t.Setenv("FAKE_NPM_FAIL", "code ENOTFOUND")
	if _, err := bundler.Make(t.Context(), order(t.TempDir())); err == nil || !strings.Contains(err.Error(), "npm's registry does not answer: set npm_config_registry") {
		t.Errorf("got %v", err)
	}
	t.Setenv("FAKE_NPM_FAIL", "code E404")
	if _, err := bundler.Make(t.Context(), order(t.TempDir())); err == nil || strings.Contains(err.Error(), "does not answer") {
		t.Errorf("it answered: %v", err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("BERTH_DEBIAN_MIRROR", "http://mirror.invalid/debian")
	for says, want := range map[string]string{
		"E: Could not connect to mirror":                      "http://mirror.invalid/debian does not answer: set BERTH_DEBIAN_MIRROR",
		"E: The repository 'x' does not have a Release file.": "http://mirror.invalid/debian has no Debian trixie: set BERTH_DEBIAN_MIRROR",
	} {
		if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\necho \""+says+"\" >&2\nexit 100\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := bundler.Make(t.Context(), bundler.Order{Dir: t.TempDir(), Name: "x", Version: "1", Recipe: bundle.Recipe{Debian: []string{"libc6"}}})
		if err == nil || strings.Contains(err.Error(), "debian-archive-keyring") {
			testlevel.Cannot(t, testlevel.Missing("the keyring of Debian's archive", "debian-archive-keyring"), err)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}
