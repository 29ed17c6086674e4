package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
)

type entry struct {
	head tar.Header
	data string
}

func build(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.head.Typeflag == tar.TypeReg && e.head.Size == 0 {
			e.head.Size = int64(len(e.data))
		}
		if err := w.WriteHeader(&e.head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name, data string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, data}
}

// Each archive would write to a file beside the folder, or take it, if it were
// extracted as it says.
func TestNothingLeavesTheFolder(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]entry{
		"dots":             {file("../victim", "bad")},
		"link and through": {{tar.Header{Name: "up", Linkname: "..", Typeflag: tar.TypeSymlink}, ""}, file("up/victim", "bad")},
		"link and over":    {{tar.Header{Name: "v", Linkname: "../victim", Typeflag: tar.TypeSymlink}, ""}, file("v", "bad")},
		"hard link":        {{tar.Header{Name: "v", Linkname: "../victim", Typeflag: tar.TypeLink}, ""}, file("v", "bad")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			dir, victim := filepath.Join(top, "dir"), filepath.Join(top, "victim")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(victim, []byte("good"), 0o644)); err != nil {
				t.Fatal(err)
			}
			if _, err := ExtractFolder(dir, build(t, entries...), Extraction{Links: true, AnyTarget: true}); err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "good" {
				t.Errorf("the file beside the folder holds %q, %v", data, err)
			}
		})
	}
}

func TestRefusedEntries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("d/", 200) + "x"
	for name, tt := range map[string]struct {
		head tar.Header
		how  Extraction
	}{
		"absolute":       {tar.Header{Name: "/etc/x", Typeflag: tar.TypeReg}, Extraction{}},
		"empty part":     {tar.Header{Name: "..", Typeflag: tar.TypeDir}, Extraction{}},
		"deep":           {tar.Header{Name: long, Typeflag: tar.TypeReg}, Extraction{}},
		"long part":      {tar.Header{Name: strings.Repeat("x", 256), Typeflag: tar.TypeReg}, Extraction{}},
		"long name":      {tar.Header{Name: strings.Repeat("long/", 900), Typeflag: tar.TypeDir}, Extraction{}},
		"long on a host": {tar.Header{Name: strings.Repeat(strings.Repeat("n", 200)+"/", 6), Typeflag: tar.TypeDir}, Extraction{}},
		"deep on a host": {tar.Header{Name: strings.Repeat("d/", 65), Typeflag: tar.TypeDir}, Extraction{}},
		"block device":   {tar.Header{Name: "x", Typeflag: tar.TypeBlock}, Extraction{}},
		"char device":    {tar.Header{Name: "x", Typeflag: tar.TypeChar}, Extraction{}},
		"pipe":           {tar.Header{Name: "x", Typeflag: tar.TypeFifo}, Extraction{}},
		"hard link":      {tar.Header{Name: "x", Linkname: "y", Typeflag: tar.TypeLink}, Extraction{}},
		"link":           {tar.Header{Name: "x", Linkname: "y", Typeflag: tar.TypeSymlink}, Extraction{}},
		"absolute link":  {tar.Header{Name: "x", Linkname: "/y", Typeflag: tar.TypeSymlink}, Extraction{Links: true}},
		"link out":       {tar.Header{Name: "a/x", Linkname: "../../y", Typeflag: tar.TypeSymlink}, Extraction{Links: true}},
		"odd type":       {tar.Header{Name: "x", Typeflag: 'Z'}, Extraction{}},
		"self as file":   {tar.Header{Name: "./", Typeflag: tar.TypeSymlink, Linkname: "y"}, Extraction{Links: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := build(t, entry{tt.head, ""}, file("fine", "x")).Bytes()
			dir := t.TempDir()
			report, err := ExtractFolder(dir, bytes.NewReader(b), tt.how)
			if err != nil || report.SkippedCount != 1 || report.Entries != 1 || report.Bytes != 1 {
				t.Errorf("skipping: %+v, %v; want one skipped and one made", report, err)
			}
			if names, _ := os.ReadDir(dir); len(names) != 1 || names[0].Name() != "fine" {
				t.Errorf("the folder holds %v", names)
			}
			strict := tt.how
			strict.Strict = true
			if _, err = ExtractFolder(t.TempDir(), bytes.NewReader(b), strict); !errors.Is(err, fault.ErrUnsafe) {
				t.Errorf("strict: %v, want ErrUnsafe", err)
			}
		})
	}
}

func TestLinksThatStayInsideAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := build(t, entry{tar.Header{Name: "a/l", Linkname: "../fine", Typeflag: tar.TypeSymlink}, ""}, file("fine", "x"), file("a/l/below", "bad"))
	report, err := ExtractFolder(dir, b, Extraction{Links: true})
	target, _ := os.Readlink(dir + "/a/l")
	if err != nil || target != "../fine" || report.Entries != 2 || report.SkippedCount != 1 {
		t.Errorf("got %+v, %v, link to %q; want the link made and nothing below it", report, err, target)
	}
}

// Each link for itself stays inside; one through another does not.
func TestLinksThroughLinksDoNotLeadOut(t *testing.T) {
	t.Parallel()
	link := func(name, to string) entry {
		return entry{tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}, ""}
	}
	entries := []entry{link("a/b/up", "../.."), link("out", "a/b/up/../secret"), link("again", "a/../out"), link("in", "a/b/up/fine"), link("none", "a/b/up/x"), link("self", "self"), file("fine", "x")}
	above := t.TempDir()
	if err := os.WriteFile(above+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := ExtractFolder(above+"/in", build(t, entries...), Extraction{Links: true})
	if err != nil || report.SkippedCount != 1 && report.SkippedCount != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, name := range []string{"out", "again"} {
		if b, none := os.ReadFile(above + "/in/" + name); none == nil {
			t.Errorf("%s leads to %q", name, b)
		}
	}
	if b, lost := os.ReadFile(above + "/in/in"); lost != nil || string(b) != "x" {
		t.Errorf("a link that stays inside: %q, %v", b, lost)
	}
	if _, err = ExtractFolder(above+"/strict", build(t, entries...), Extraction{Links: true, Strict: true}); !errors.Is(err, fault.ErrUnsafe) {
		t.Errorf("strict: %v", err)
	}
	if _, err = ExtractFolder(above+"/any", build(t, entries...), Extraction{Links: true, AnyTarget: true}); err != nil {
		t.Errorf("any target: %v", err)
	}
}

// Bombs: what an archive holds is counted as it unpacks, not as it is packed.
func TestBombs(t *testing.T) {
	t.Parallel()
	small := Limits{Bytes: 1000, Entries: 20}
	var many, big []entry
	for i := range 21 {
		many = append(many, file(fmt.Sprintf("f%d", i), ""))
		big = append(big, file(fmt.Sprintf("f%d", i), strings.Repeat("x", 100)))
	}
	records := map[string]string{}
	for i := range 100 {
		records[fmt.Sprintf("USER.k%d", i)] = strings.Repeat("v", 9000)
	}
	for name, r := range map[string]io.Reader{
		"count":           build(t, many...),
		"bytes":           build(t, big[:11]...),
		"one size":        build(t, file("x", strings.Repeat("x", 1001))),
		"records":         build(t, entry{tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: records, Format: tar.FormatPAX}, ""}),
		"zeros":           endless{0},
		"headers at will": headers{build(t, file("x", "")).Bytes()[:512]},
	} {
		if _, err := ExtractFolder(t.TempDir(), r, Extraction{Limits: small}); name != "zeros" && !errors.Is(err, fault.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		} else if name == "zeros" && err != nil { // two zero blocks end an archive
			t.Errorf("zeros: %v", err)
		}
	}
}

type endless struct{ b byte }

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.b
	}
	return len(b), nil
}

// headers is an archive of empty files without an end.
type headers struct{ block []byte }

func (h headers) Read(b []byte) (int, error) { return copy(b, h.block), nil }

func TestPackAndExtractAgree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	when := time.Unix(1_600_000_000, 0)
	odd := "odd \xff\n name"
	if err := errors.Join(
		os.MkdirAll(from+"/a/b", 0o700), os.WriteFile(from+"/a/b/f", []byte("data"), 0o400), os.Chtimes(from+"/a/b/f", when, when),
		os.WriteFile(from+"/"+odd, []byte("x"), 0o755), os.Chmod(from+"/"+odd, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if _, err := PackFolder(b, from, Packing{}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("packing twice gave two archives")
	}
	report, err := ExtractFolder(to, &one, Extraction{Strict: true})
	if err != nil || report.Entries != 5 || report.Bytes != 5 {
		t.Fatalf("got %+v, %v", report, err)
	}
	if info, err := os.Stat(to + "/a/b/f"); err != nil || !info.ModTime().Equal(when) || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if info, err := os.Stat(to + "/" + odd); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestAFileWithoutATimeIsNew(t *testing.T) {
	t.Parallel()
	begin, to := time.Now().Add(-time.Minute), t.TempDir()
	zero := file("zero", "x")
	zero.head.ModTime, zero.head.Format = time.Unix(0, 0), tar.FormatPAX
	if _, err := ExtractFolder(to, build(t, file("none", "x"), zero), Extraction{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "zero"} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.ModTime().Before(begin) {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
}

func TestCleanMakesItHarmless(t *testing.T) {
	t.Parallel()
	b := build(t, entry{tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 7, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "y"}, Format: tar.FormatPAX}, ""},
		entry{tar.Header{Name: "l", Linkname: "/anywhere", Typeflag: tar.TypeSymlink}, ""}, entry{tar.Header{Name: "./s/../f", Typeflag: tar.TypeReg}, ""})
	var out bytes.Buffer
	report, err := Clean(&out, bytes.NewReader(b.Bytes()), Limits{})
	if report.Entries != 2 || !errors.Is(err, fault.ErrUnsafe) || !strings.Contains(err.Error(), `"./s/../f"`) {
		t.Fatalf("got %+v, %v; want ErrUnsafe naming the last entry", report, err)
	}
	r := tar.NewReader(&out)
	head, err := r.Next()
	if err != nil || head.Name != "suid" || head.Mode != 0o755 || head.Uid != 0 || len(head.PAXRecords) != 0 {
		t.Errorf("got %+v, %v", head, err)
	}
}

// FuzzExtract: no archive may panic, escape, or leave more than its limits.
func FuzzExtract(f *testing.F) {
	f.Add(build(f, file("a/b", "x"), entry{tar.Header{Name: "l", Linkname: "a", Typeflag: tar.TypeSymlink}, ""}, file("l/c", "y")).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		report, _ := ExtractFolder(top+"/dir", bytes.NewReader(b), Extraction{Limits: Limits{Bytes: 1 << 16, Entries: 50}, Links: true})
		if report.Bytes > 1<<16 || report.Entries > 50 {
			t.Errorf("extracted %+v", report)
		}
		if names, err := os.ReadDir(top); err != nil || len(names) != 1 {
			t.Errorf("beside the folder there is %v, %v", names, err)
		}
	})
}

// The reader of an archive knows of a pipe in it, if it wants to, and the rest is there.
func TestAPipeIsAnEmptyEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "a pipe"), 0o600), os.WriteFile(filepath.Join(dir, "b"), []byte("b"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for special, want := range map[bool]string{true: "6a pipe 0b", false: "0b"} {
		var b bytes.Buffer
		if _, err := PackFolder(&b, dir, Packing{Special: special}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for in := tar.NewReader(&b); ; {
			head, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if head.Typeflag != tar.TypeDir {
				got = append(got, fmt.Sprintf("%c%s", head.Typeflag, head.Name))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("special %t: %q, want %q", special, got, want)
		}
	}
}
