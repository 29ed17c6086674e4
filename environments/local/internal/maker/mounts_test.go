package maker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/modetest"
)

const (
	spaceFolder  = "/usr/src/with space, comma"
	nestedFolder = spaceFolder + "/nested:1"
)

// A mount below /usr, such as an NFS /usr/local, once made the kernel refuse the
// layers of every ordinary user.
func TestMountsBelowUsr(t *testing.T) {
	modetest.EachIn(t, modetest.MountedUsr, func(t *testing.T, _ ids.Mode) {
		r := newRig(t)
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := r.open(t, Order{})
		for _, tool := range []string{"/usr/src", spaceFolder, spaceFolder + "/beside", nestedFolder} {
			if got := x.sh(t, "'"+tool+"/tool'"); got != tool+"/tool\n" {
				t.Errorf("%s/tool printed %q", tool, got)
			}
		}
		if got := x.sh(t, "cat /usr/src/under"); !strings.Contains(got, "/usr/src/tool") {
			t.Errorf("a file on which another is mounted holds %q", got)
		}
		if got := x.sh(t, `cd /usr && find src bin/../src \( -name secret -o -name npmrc -o -name pip.conf \)`); got != "" {
			t.Errorf("what not everybody may read is there:\n%s", got)
		}
		writesNothingOnTheHost(t, x)
	})
}

// writesNothingOnTheHost checks that everything can be written in x, and that none of it
// arrives on the host.
func writesNothingOnTheHost(t *testing.T, x *live) {
	t.Helper()
	x.sh(t, `for d in /usr /usr/src "`+spaceFolder+`" "`+spaceFolder+`/beside" "`+nestedFolder+`" /usr/bin /usr/share; do
			echo x > "$d/berth-new" && mkdir "$d/berth-folder" && mv "$d/berth-new" "$d/berth-folder/" || exit 1
		done
		for d in /usr/src "`+spaceFolder+`" "`+nestedFolder+`"; do rm "$d/tool" && echo mine > "$d/tool" || exit 1; done`)
	for _, dir := range []string{"/usr", "/usr/src", spaceFolder, spaceFolder + "/beside", nestedFolder, "/usr/bin", "/usr/share"} {
		if _, err := os.Stat(filepath.Join(dir, "berth-folder")); err == nil {
			t.Errorf("a folder was made in %s of the host", dir)
		}
	}
	if text, err := os.ReadFile(nestedFolder + "/tool"); err != nil || string(text) == "mine\n" {
		t.Errorf("the host's file holds %q (%v)", text, err)
	}
}

func TestMountsAreFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	const text = `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:1 / /usr/with\040space\134 rw - tmpfs t rw
31 30 0:2 / /usr/with\040space\134/"n" rw - nfs t rw
32 22 0:3 / /usrx rw - tmpfs t rw
33 22 0:4 / /usr rw - tmpfs t rw
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	points, err := mountPoints(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := within("/usr", points); !slices.Equal(got, []string{`with space\`, `with space\/"n"`}) {
		t.Errorf("below /usr: %q", got)
	}
}

func TestFolderIsDividedAtItsMounts(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"bin", "local/bin", "local/go/src", "local/closed", "lib/a"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(top, "local/closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ points, above, whole []string }{
		{nil, nil, nil},
		{[]string{"local/go"}, []string{".", "local"}, []string{"bin", "lib", "local/bin", "local/go"}},
		{[]string{"lib/libc.so"}, []string{".", "lib"}, []string{"bin", "lib/a", "local"}},
		{[]string{"bin", "bin/nested"}, []string{".", "bin"}, []string{"lib", "local"}},
		{[]string{"local/closed/deep/mount"}, []string{".", "local"}, []string{"bin", "lib", "local/bin", "local/go"}},
		{[]string{"gone/x"}, []string{"."}, []string{"bin", "lib", "local"}},
	} {
		if d := divide(top, tt.points); !slices.Equal(d.above, tt.above) || !slices.Equal(d.whole, tt.whole) {
			t.Errorf("with mounts at %q: above %q, whole %q", tt.points, d.above, d.whole)
		}
	}
}
