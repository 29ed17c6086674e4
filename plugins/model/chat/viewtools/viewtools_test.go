package viewtools_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/model/chat"
	"github.com/berth-eval/berth/plugins/model/chat/viewtools"
)

// lay writes a view.
func lay(t *testing.T, files map[string]string) viewtools.View {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return viewtools.View(dir)
}

func do(v viewtools.View, name, arguments string) chat.Result {
	return v.Do(chat.Call{ID: "7", Name: name, Arguments: json.RawMessage(arguments)})
}

func TestToolsReadAView(t *testing.T) {
	t.Parallel()
	v := lay(t, map[string]string{"a/one.txt": "first\nsecond\n", "b/two.txt": "second", "b/big.txt": strings.Repeat("0123456789", 10_000), "b/raw": "a\x00b"})
	for _, c := range []struct{ tool, arguments, want string }{
		{"list", `{"folder":"b"}`, "b/big.txt\nb/raw\nb/two.txt"},
		{"list", `{"folder":""}`, "a/one.txt\nb/big.txt\nb/raw\nb/two.txt"},
		{"read", `{"file":"a/one.txt"}`, "first\nsecond\n"},
		{"read", `{"file":"a/one.txt","offset":6}`, "second\n"},
		{"read", `{"file":"b/big.txt","offset":99990}`, "0123456789"},
		{"search", `{"pattern":"^sec"}`, "a/one.txt:2: second\nb/two.txt:1: second"},
		{"search", `{"pattern":"third"}`, "nothing found"},
	} {
		if got := do(v, c.tool, c.arguments); got.Failed || got.Text != c.want || got.CallID != "7" {
			t.Errorf("%s %s: %+v, want %q", c.tool, c.arguments, got, c.want)
		}
	}
	if got := do(v, "read", `{"file":"b/big.txt"}`).Text; len(got) > 33<<10 || !strings.HasSuffix(got, "read on with offset 32768]") {
		t.Errorf("%d bytes, … %q", len(got), got[len(got)-80:])
	}
}

func TestWhatToolsRefuse(t *testing.T) {
	t.Parallel()
	v := lay(t, map[string]string{"a": "x", "raw": "a\x00b", "fake.png": "\x89PNG\r\n\x1a\nno"})
	if err := os.Symlink("/etc/passwd", filepath.Join(string(v), "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(string(v), "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Dir(filepath.Dir(string(v))) // no folder of this machine is told
	for _, c := range []struct{ tool, arguments string }{
		{"read", `{"file":"link"}`},
		{"read", `{"file":"pipe"}`},
		{"read", `{"file":"../etc/passwd"}`},
		{"read", `{"file":"/etc/passwd"}`},
		{"read", `{"file":"none"}`},
		{"read", `{"file":""}`},
		{"read", `{"file":"."}`},
		{"read", `{"file":"../../../none"}`},
		{"look", `{"file":"raw/.."}`},
		{"read", `{"file":"a","offset":5}`},
		{"read", `{"file":"a","offset":-1}`},
		{"read", `{"file":"raw"}`},
		{"read", `{"file":`},
		{"list", `{"folder":"none"}`},
		{"search", `{"pattern":"("}`},
		{"look", `{"file":"fake.png"}`},
		{"look", `{"file":"link"}`},
		{"run", `{}`},
	} {
		if got := do(v, c.tool, c.arguments); !got.Failed || got.Text == "" || strings.Contains(got.Text, "root:") || strings.Contains(got.Text, outside) {
			t.Errorf("%s %s: %+v", c.tool, c.arguments, got)
		}
	}
	if got := do(v, "search", `{"pattern":"root|x"}`); got.Failed || !strings.HasPrefix(got.Text, "a:1: x\n[some files") {
		t.Errorf("%+v", got)
	}
}

func TestPicturesAreMadeSmall(t *testing.T) {
	t.Parallel()
	p := image.NewRGBA(image.Rect(0, 0, 3000, 1500))
	for i := range p.Pix { // noise, which does not compress
		p.Pix[i] = byte(i * i >> 3)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	got := do(lay(t, map[string]string{"shot.png": b.String()}), "look", `{"file":"shot.png"}`)
	if got.Failed || len(got.Images) != 1 || len(got.Images[0].Data) > viewtools.MaxBytes {
		t.Fatal(got.Text)
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(got.Images[0].Data))
	if err != nil || max(c.Width, c.Height) > viewtools.MaxSide {
		t.Error(c.Width, c.Height, err)
	}
}

func TestAHugePictureIsNotDecoded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	copy(raw[16:24], []byte{0, 1, 0, 0, 0, 1, 0, 0}) // 65536 × 65536
	binary.BigEndian.PutUint32(raw[29:], crc32.ChecksumIEEE(raw[12:29]))
	if _, err := viewtools.Fit(raw); err == nil || !strings.Contains(err.Error(), "65536 × 65536") {
		t.Error(err)
	}
}
