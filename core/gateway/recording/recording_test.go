package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABodyIsKeptOnceAndChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	body := bytes.Repeat([]byte("the same words again "), 5000)
	digest, _, err := Store(dir, body, NewRoom(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if again, _, twice := Store(dir, body, NewRoom(1<<30)); twice != nil || again != digest {
		t.Errorf("%s, %v", again, twice)
	}
	files, err := os.ReadDir(filepath.Join(dir, blobs))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if fi, gone := files[0].Info(); gone != nil || fi.Size() > int64(len(body)/20) {
		t.Errorf("%d bytes are kept of %d, %v", fi.Size(), len(body), gone)
	}
	if got, lost := Fetch(dir, digest); lost != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), lost)
	}
	other, _, err := Store(t.TempDir(), []byte("x"), NewRoom(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Rename(place(dir, digest), place(dir, other)); err != nil {
		t.Fatal(err)
	}
	if _, err = Fetch(dir, other); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed file: %v", err)
	}
	if _, err = Fetch(dir, "../../etc/passwd"); err == nil {
		t.Error("a path is taken for a digest")
	}
}

func TestDiffNamesTheFirstPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ a, b, want string }{
		{`{"a":1,"messages":[]}`, `{"a":1.0,"messages":[]}`, "a: recorded 1, now 1.0"},
		{
			`{"messages":[{"content":"x"},{"content":[{"text":"Grüße an alle in der Welt, heute"}]}]}`,
			`{"messages":[{"content":"x"},{"content":[{"text":"Grüße an alle in der Welt, morgen"}]}]}`,
			`message 1, at messages[1].content[0].text: recorded "…n alle in der Welt, heute", now "…n alle in der Welt, morgen"`,
		},
		{`{"input":[1,2]}`, `{"input":[1]}`, "message 1, at input[1]: recorded 2, now nothing"},
		{`{"x":{"y":1}}`, `{"x":{"y":1,"z":[2]}}`, "x.z: recorded nothing, now [2]"},
		{`{"x":"1"}`, `{"x":1}`, `x: recorded "1", now 1`},
		{`{"x":1}`, `no json`, `$: recorded "{\"x\":1}", now "no json"`},
	} {
		d, differ := Diff([]byte(tt.a), []byte(tt.b))
		if !differ || d.String() != tt.want {
			t.Errorf("Diff(%s, %s)\n got %s\nwant %s", tt.a, tt.b, d, tt.want)
		}
	}
	if d, differ := Diff([]byte(`{"a":[1,{"b":null}]}`), []byte(` {"a":[1, {"b":null}]}`)); differ {
		t.Errorf("the same differs: %s", d)
	}
}

// record keeps exchanges as a gateway does.
func record(t *testing.T, exchanges ...[3]string) string {
	t.Helper()
	dir := t.TempDir()
	var lines []byte
	for _, x := range exchanges {
		request, _, err := Store(dir, []byte(x[0]), NewRoom(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		reply, _, err := Store(dir, []byte(x[1]), NewRoom(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(line{
			Entry: Entry{Kind: KindGenerate, Match: Digest([]byte(x[0])), Request: request, Reply: reply, Type: "text/plain"},
			Role:  "agent", Name: "default", Status: 200, Broken: x[2],
		})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, b...), '\n')
	}
	file := filepath.Join(dir, "exchanges.jsonl")
	if err := os.WriteFile(file, append(lines, `{"kind":"gene`...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// request is one as a gateway makes it.
func request(body string) *Request {
	return &Request{Kind: KindGenerate, Match: Digest([]byte(body)), Body: []byte(body)}
}

func TestTheSameRequestGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	p, err := Open(record(t, [3]string{`{"a":1}`, "one"}, [3]string{`{"a":2}`, "two"}, [3]string{`{"a":1}`, "one again", "provider"}), "agent", "default", []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		ask, want string
		broken    bool
	}{{`{"a":2}`, "two", false}, {`{"a":1}`, "one", false}, {`{"a":1}`, "one again", true}, {`{"a":2}`, "two", false}} {
		resp, by, err := p.Play(request(tt.ask))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != tt.want || by != (Served{}) || (err != nil) != tt.broken || resp.StatusCode != 200 {
			t.Errorf("%s: %q, %v", tt.ask, got, err)
		}
		_ = resp.Body.Close()
	}
}

func TestADamagedRecordIsSaid(t *testing.T) {
	t.Parallel()
	file := record(t, [3]string{`{"a":1}`, "one"})
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(file, bytes.Replace(b, []byte(`"status":200`), []byte(`"status":0`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Open(file, "agent", "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = p.Play(request(`{"a":1}`)); err == nil || !strings.Contains(err.Error(), "damaged") { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
}

func TestAnotherRequestGetsNone(t *testing.T) {
	t.Parallel()
	p, err := Open(record(t, [3]string{`{"a":[{"b":"x"}],"id":1}`, "one"}), "agent", "default", []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Play(request(`{"a":[{"b":"y"}],"id":2}`)) //nolint:bodyclose // there is none
	var d *DiffersError
	if !errors.As(err, &d) || d.Difference.Path != "a[0].b" || d.Exchange != 1 {
		t.Errorf("got %v", err)
	}
	if _, _, err = p.Play(&Request{Kind: KindCount, Match: "sha256:other"}); !errors.Is(err, ErrOver) { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
}

// Bodies beyond the room are named, and not kept; one that is there already is.
func TestStoreHasItsRoom(t *testing.T) {
	t.Parallel()
	dir, room := t.TempDir(), NewRoom(2000)
	noise := func(seed int) []byte {
		b := make([]byte, 900)
		for i := range b {
			seed = (seed*1103515245 + 12345) & 0x7fffffff
			b[i] = byte(seed >> 16)
		}
		return b
	}
	for i, want := range []bool{true, true, false, false} {
		digest, kept, err := Store(dir, noise(i), room)
		if err != nil || kept != want || digest != Digest(noise(i)) {
			t.Errorf("body %d: %s, kept %v, %v; want %v", i, digest, kept, err, want)
		}
	}
	if _, kept, err := Store(dir, noise(0), room); err != nil || !kept {
		t.Errorf("a body that is there: kept %v, %v", kept, err)
	}
	if _, err := Fetch(dir, Digest(noise(3))); err == nil || !strings.Contains(err.Error(), "the record of the attempt was full") {
		t.Errorf("fetched: %v", err)
	}
}
