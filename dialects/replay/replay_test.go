package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/plugins/dialect"
)

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
		{
			`{"messages":[{"content":[{"url":"data:image/png;base64,iVBORw0KGgoAAA"}]}]}`, `{"messages":[{"content":[{"url":"data:image/png;base64,iVBORw0KGgoAAAB"}]}]}`,
			`message 0, at messages[0].content[0].url: recorded a picture of 36 characters, now another picture, of 37`,
		},
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
		request, _, err := recording.Store(dir, []byte(x[0]), recording.NewRoom(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		reply, _, err := recording.Store(dir, []byte(x[1]), recording.NewRoom(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(line{
			Entry: recording.Entry{Kind: recording.KindGenerate, Match: recording.Digest([]byte(x[0])), Request: request, Reply: reply, Type: "text/plain"},
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
func request(body string) *dialect.Replay {
	return &dialect.Replay{Kind: recording.KindGenerate, Match: recording.Digest([]byte(body)), Body: []byte(body)}
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
		resp, by, err := p.Answer(request(tt.ask))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != tt.want || by != (dialect.Served{}) || (err != nil) != tt.broken || resp.StatusCode != 200 {
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
	if _, _, err = p.Answer(request(`{"a":1}`)); err == nil || !strings.Contains(err.Error(), "damaged") { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
}

func TestAnotherRequestGetsNone(t *testing.T) {
	t.Parallel()
	p, err := Open(record(t, [3]string{`{"a":[{"b":"x"}],"id":1}`, "one"}), "agent", "default", []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Answer(request(`{"a":[{"b":"y"}],"id":2}`)) //nolint:bodyclose // there is none
	var d *DiffersError
	if !errors.As(err, &d) || !errors.Is(err, dialect.ErrDiffers) || d.Difference.Path != "a[0].b" || d.Exchange != 1 {
		t.Errorf("got %v", err)
	}
	if _, _, err = p.Answer(&dialect.Replay{Kind: recording.KindCount, Match: "sha256:other"}); !errors.Is(err, ErrOver) { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
}
