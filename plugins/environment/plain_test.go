package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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

// folderOf makes a folder: a text makes a file, one that begins with "-> " a
// link, and "|" a pipe.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case text == "|":
			err = syscall.Mkfifo(at, 0o600)
		case strings.HasPrefix(text, "-> "):
			err = os.Symlink(strings.TrimPrefix(text, "-> "), at)
		default:
			err = os.WriteFile(at, []byte(text), 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// content lists a folder: the type, the mode and the content of everything.
func content(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(at, dir)
		switch {
		case d.IsDir():
			all = append(all, fmt.Sprintf("%s/ %o", name, info.Mode().Perm()))
		case info.Mode().IsRegular():
			text, wrong := os.ReadFile(at)
			all, err = append(all, fmt.Sprintf("%s %o %s", name, info.Mode().Perm(), text)), wrong
		default:
			text, wrong := os.Readlink(at)
			all, err = append(all, name+" -> "+text), wrong
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPlainPlacesWhatCOPYCopies(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "A", "b": "B", "d/x": "X", "d/e/y": "Y", "d/l": "-> /etc/passwd", "link": "-> d/x"}
	for text, want := range map[string][]string{
		"COPY a /app/":                         {"/app/ 755", "/app/a 640 A"},
		"COPY a /app":                          {"/app 640 A"},
		"WORKDIR /app\nCOPY a /app":            {"/app/ 755", "/app/a 640 A"},
		"WORKDIR /w\nCOPY a b ./in/":           {"/w/ 755", "/w/in/ 755", "/w/in/a 640 A", "/w/in/b 640 B"},
		"WORKDIR /w\ncopy /a .":                {"/w/ 755", "/w/a 640 A"},
		"COPY --chown=root:root d /data":       {"/data/ 755", "/data/e/ 755", "/data/e/y 640 Y", "/data/l -> /etc/passwd", "/data/x 640 X"},
		"COPY --chmod=755 d/x a /bin/":         {"/bin/ 755", "/bin/a 755 A", "/bin/x 755 X"},
		"COPY link /x":                         {"/x 640 X"},
		"COPY a /x/y/\nCOPY b /x/y/a":          {"/x/ 755", "/x/y/ 755", "/x/y/a 640 B"},
		"COPY d /\nCOPY a /e/":                 {"/e/ 755", "/e/a 640 A", "/e/y 640 Y", "/l -> /etc/passwd", "/x 640 X"},
		"COPY a /up/../x":                      {"/x 640 A"},
		"WORKDIR /app\nENV A=1":                nil,
		"COPY d/e .\nCOPY --chmod=0600 a ././": {"/a 600 A", "/y 640 Y"},
	} {
		build, root := folderOf(t, files), t.TempDir()
		if err := os.WriteFile(filepath.Join(build, "Dockerfile"), []byte("FROM x\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		e := Plain{Name: "box", Copies: true, Hidden: []string{"/usr", "/tmp"}}
		_, refused := e.Facts(Image{Build: build})
		if err := errors.Join(refused, e.Files(Image{Build: build}, root)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := content(t, root); !slices.Equal(got, want) {
			t.Errorf("%q: got\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if _, err := (Plain{Name: "box"}).Facts(Image{Build: build}); (err == nil) != (want == nil) {
			t.Errorf("%q, without Copies: %v", text, err)
		}
	}
}

// Whatever a Dockerfile and its folder say, nothing outside of the two folders is
// read or written, and Check refuses it before a sandbox is made.
func TestPlainRefusesHostileCopies(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"COPY ../a /x":                          "line 2",
		"COPY d/../../a /x":                     "line 2",
		"COPY out /x":                           "escapes",
		"COPY abs /x":                           "escapes",
		"COPY abs/secret /x":                    "escapes",
		"COPY pipe /x":                          "neither a file nor a folder",
		"COPY pipes /x":                         "neither a file nor a folder",
		"COPY gone /x":                          "no such file",
		"COPY a /usr/bin/a":                     "nothing can be placed in /usr of the sandbox",
		"COPY a /usr":                           "nothing can be placed in /usr of the sandbox",
		"COPY tree /":                           "nothing can be placed in /usr of the sandbox",
		"COPY a /x/../tmp/a":                    "nothing can be placed in /tmp of the sandbox",
		"COPY a":                                "line 2",
		"COPY a b /x":                           "line 2",
		"COPY a* /x/":                           "line 2",
		"COPY [\"a\", \"/x\"]":                  "line 2",
		"COPY --from=x a /x":                    "line 2",
		"COPY --chown=bob a /x":                 "line 2",
		"COPY --chmod=u+x a /x":                 "line 2",
		"COPY --chmod=4755 a /x":                "line 2",
		"COPY $a /x":                            "line 2",
		"COPY <<EOF /x":                         "line 2",
		"ADD a /x":                              "line 2",
		"COPY links /x\nCOPY a /x/away/planted": "",
	} {
		build, root := folderOf(t, map[string]string{
			"a": "A", "b": "B", "out": "-> ../secret", "abs": "-> " + outside, "pipe": "|", "pipes/p": "|", "tree/usr/x": "X", "links/away": "-> " + outside,
			"Dockerfile": "FROM x\n" + text + "\n",
		}), t.TempDir()
		e := Plain{Name: "box", Copies: true, Hidden: []string{"/usr", "/tmp"}}
		_, err := e.Facts(Image{Build: build})
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
		if err = e.Files(Image{Build: build}, root); err == nil {
			t.Errorf("%q was placed: %q", text, content(t, root))
		}
		if got := content(t, outside); !slices.Equal(got, []string{"/secret 600 secret"}) {
			t.Errorf("%q: the folder of somebody else has %q", text, got)
		}
	}
	build := folderOf(t, map[string]string{"a": "A", ".dockerignore": "a\n", "Dockerfile": "FROM x\nCOPY a /x\n"})
	if _, err := (Plain{Copies: true}).Facts(Image{Build: build}); err == nil || !strings.Contains(err.Error(), ".dockerignore") {
		t.Errorf("with a .dockerignore: %v", err)
	}
}
