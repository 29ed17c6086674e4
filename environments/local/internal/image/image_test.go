package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/plugins/environment"
)

// build is a build folder with these files; a name that ends in -> has a link's
// target as its text.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		link, isLink := strings.CutSuffix(name, "->")
		path := filepath.Join(dir, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if isLink {
			err = os.Symlink(text, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A folder that the build must not see is not copied, also not by way of a link.
func TestExcludedFolders(t *testing.T) {
	t.Parallel()
	files := map[string]string{"tests/test.sh": "secret", "a": "1", "data/link->": "../tests", "Dockerfile": "FROM scratch\nCOPY . /app/\n"}
	dir := build(t, files)
	got, err := packOf(t, environment.Image{Build: dir, Exclude: []string{"tests"}})
	if text := strings.Join(got, "\n"); err != nil || strings.Contains(text, "test.sh") || !strings.Contains(text, "/app/a ") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, source := range []string{"tests", "tests/test.sh", "data/link", "data/link/test.sh"} {
		im := environment.Image{Build: dir, Exclude: []string{"tests"}, File: "inline", Files: map[string][]byte{"inline": []byte("FROM scratch\nCOPY " + source + " /app/x\n")}}
		if got, err := packOf(t, im); err == nil {
			t.Errorf("COPY %s: got %q", source, got)
		}
	}
}

// pack is what the image of a folder comes to, one line an entry.
func pack(t *testing.T, dir string) ([]string, error) {
	t.Helper()
	return packOf(t, environment.Image{Build: dir})
}

func packOf(t *testing.T, of environment.Image) ([]string, error) {
	t.Helper()
	im, err := Read(of)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := im.Pack(&b, func(p string) bool { return p == "/" || p == "/usr" || p == "/etc" || p == "/app" }); err != nil {
		return nil, err
	}
	var lines []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %o", h.Name, h.Mode)
		switch h.Typeflag {
		case tar.TypeDir:
			line += " folder"
		case tar.TypeSymlink:
			line += " -> " + h.Linkname
		case tar.TypeLink:
			line += " = " + h.Linkname
		default:
			line += " " + string(text)
		}
		if owner := fmt.Sprintf("%d%s:%d%s", h.Uid, h.Uname, h.Gid, h.Gname); owner != "0:0" {
			line += " " + owner
		}
		lines = append(lines, line)
	}
}

func TestCopiedFilesAreWhereDockerPutsThem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dockerfile string
		files            map[string]string
		want             []string
	}{
		{"a file", "COPY a /b", nil, []string{"/b 644 A"}},
		{"into a folder that is there", "COPY a /app", nil, []string{"/app/a 644 A"}},
		{"into a folder by its slash", "COPY a /new/", nil, []string{"/new/a 644 A"}},
		{"several", "COPY a b /new/", nil, []string{"/new/a 644 A", "/new/b 644 B"}},
		{"relative to WORKDIR", "WORKDIR /w\nCOPY a .", nil, []string{"/w 755 folder", "/w/a 644 A"}},
		{"relative, renamed", "WORKDIR /w/v\nCOPY a sub/c", nil, []string{"/w/v 755 folder", "/w/v/sub/c 644 A"}},
		{"what is in a folder", "COPY d /app/", nil, []string{"/app/e 755 folder", "/app/e/f 644 F"}},
		{"what is in a folder, new", "COPY d /new", nil, []string{"/new 755 folder", "/new/e 755 folder", "/new/e/f 644 F"}},
		{"a pattern", "COPY [ab] /new/", nil, []string{"/new/a 644 A", "/new/b 644 B"}},
		{"everything, with .dockerignore", "COPY . /app", map[string]string{".dockerignore": "Dockerfile\n.dockerignore\n# no\n*\n!d\n"}, []string{"/app/d 755 folder", "/app/d/e 755 folder", "/app/d/e/f 644 F"}},
		{"an exception within what is left out", "COPY . /app", map[string]string{".dockerignore": "*\n!d/e/f\n"}, []string{"/app/d 755 folder", "/app/d/e 755 folder", "/app/d/e/f 644 F"}},
		{"a leading slash and ..", "COPY ../../a /x/\nCOPY /b /x/", nil, []string{"/x/a 644 A", "/x/b 644 B"}},
		{"mode and owner", "COPY --chmod=4750 --chown=7 a /x\nCOPY --chown=bob:staff b /y\nCOPY --chown=1:0 b /z", nil, []string{"/x 4750 A 7:7", "/y 644 B 0bob:0staff", "/z 644 B 1:0root"}},
		{"owner by name alone", "COPY --chown=bob a /x", nil, []string{"/x 644 A 0bob:0"}},
		{"a here-document", "COPY <<EOF /etc/motd\nhello\nEOF", nil, []string{"/etc/motd 644 hello\n"}},
		{"links in a folder stay links", "COPY l /x/", map[string]string{"l/out->": "/etc/passwd", "l/in->": "../a"}, []string{"/x 755 folder", "/x/in 777 -> ../a", "/x/out 777 -> /etc/passwd"}},
		{"a source that is a link is followed within", "COPY k /x", map[string]string{"k->": "d/e/f"}, []string{"/x 644 F"}},
		{"ADD copies files", "ADD a b /opt/x/", nil, []string{"/opt/x/a 644 A", "/opt/x/b 644 B"}},
		{"a later stage stands on an earlier", "COPY a /a\nFROM s\nCOPY b /b", nil, []string{"/a 644 A", "/b 644 B"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"a": "A", "b": "B", "d/e/f": "F", "Dockerfile": "FROM scratch AS s\n" + tt.dockerfile + "\n"}
			maps.Copy(files, tt.files)
			got, err := pack(t, build(t, files))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got  %q, %v\nwant %q", got, err, tt.want)
			}
		})
	}
}

func TestHostileBuildFolderIsRefused(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dockerfile string
		files            map[string]string
		want             string
	}{
		{"a source that leads out", "COPY l /x", map[string]string{"l->": secret}, "escapes"},
		{"a source through a folder that leads out", "COPY l/secret /x", map[string]string{"l->": filepath.Dir(secret)}, "escapes"},
		{"a relative one", "COPY l /x", map[string]string{"l->": "../../../../../../../../etc/passwd"}, "escapes"},
		{"no such file", "COPY nope /x", nil, "there is no such file"},
		{"left out", "COPY a /x", map[string]string{".dockerignore": "a"}, ".dockerignore leaves it out"},
		{"nothing matches", "COPY z* /x/", nil, "there is no such file"},
		{"a mode that is none", "COPY --chmod=77777 a /x", nil, "--chmod=77777"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"a": "A", "Dockerfile": "FROM scratch\n" + tt.dockerfile + "\n"}
			maps.Copy(files, tt.files)
			got, err := pack(t, build(t, files))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, environment.ErrBuildFailed) {
				t.Errorf("got %q, %v; want ErrBuildFailed with %q", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "line 2") {
				t.Errorf("the line is not named: %v", err)
			}
		})
	}
}

func TestAPipeInTheBuildFolderDoesNotBlock(t *testing.T) {
	t.Parallel()
	dir := build(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY d /x/\n", "d/f": "F"})
	if err := unix.Mkfifo(filepath.Join(dir, "d", "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := pack(t, dir); err == nil || !strings.Contains(err.Error(), "neither a file nor a folder") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWhatCannotBeAppliedIsRefusedByLine(t *testing.T) {
	t.Parallel()
	dir := build(t, map[string]string{"Dockerfile": strings.Join([]string{
		"FROM debian", "RUN apt-get update && \\", "    apt-get install -y gcc", "COPY --from=builder /a /b", "ADD https://example.org/x /x", "ADD a.tar.gz /x",
		"VOLUME /data", "COPY Dockerfile /proc/x", "COPY Dockerfile /fine",
	}, "\n")})
	im, err := Read(environment.Image{Build: dir})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range im.Refusals {
		got = append(got, r.Summary)
		if !strings.Contains(r.Detail, "podman") || !strings.HasSuffix(r.Detail, ".") {
			t.Errorf("refusal does not say what to do: %+v", r)
		}
	}
	for i, line := range []string{"line 2: RUN", "line 4: COPY", "line 5: ADD", "line 6: ADD", "line 7: VOLUME", "line 8: copies to /proc/x"} {
		if i >= len(got) || !strings.Contains(got[i], line) {
			t.Errorf("refusals are %q; %q is not the one at %d", got, line, i)
		}
	}
}

// A task may have anything under the names that are read.
func TestOnlyTextsOfSomeSizeAreRead(t *testing.T) {
	big := strings.Repeat("#", dockerfile.MaxBytes+1)
	for name, dir := range map[string]string{
		"a large Dockerfile":    build(t, map[string]string{"Dockerfile": "FROM a\n" + big}),
		"a large .dockerignore": build(t, map[string]string{"Dockerfile": "FROM a\nCOPY . /app\n", ".dockerignore": big}),
		"a pipe":                pipe(t),
		"a folder":              build(t, map[string]string{"Dockerfile/x": ""}),
	} {
		if _, err := pack(t, dir); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func pipe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "Dockerfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
