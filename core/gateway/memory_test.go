package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A request with more bytes or parts than allowed is refused before it takes
// many times its size of memory, and the client gets the reason.
func TestARequestHasABoundedSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body, want string
	}{
		{"64 MiB", `{"messages":"` + strings.Repeat("x", 64<<20) + `"}`, "larger than 64 MiB"},
		{"members", `{"messages":[]` + strings.Repeat(`,"k":0`, 2000) + many(2000) + `}`, "more than 1000 members"},
		{"values", `{"messages":[],"tools":[{}` + strings.Repeat(",{}", 600_000) + `]}`, "1000000 values"},
		{"almost so many", `{"messages":"` + strings.Repeat("x", 1<<20-20_000) + `"` + many(900) + `}`, ""},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, " chunked ", chunked), func(t *testing.T) {
				t.Parallel()
				p := provide(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
				b := start(t, p.model("openai-chat"), func(_ *cell.Model, _ *Options, s *models.Spec) { s.Hosted = true })
				got := b.send(t, tt.body, chunked)
				if tt.want == "" {
					if got.status != http.StatusOK || len(p.bodies) != 1 {
						t.Errorf("%d %s", got.status, got.body)
					}
				} else if got.status != http.StatusBadRequest || !strings.Contains(got.body, tt.want) || len(p.bodies) > 0 {
					t.Errorf("%d %s %v", got.status, got.body, got.err)
				}
				if err := b.Revoke(t.Context()); err != nil || !b.memory.TryAcquire(maxRequests) || !b.g.memory.TryAcquire(maxTogether) {
					t.Errorf("bytes are held still, %v", err)
				}
			})
		}
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	return b.String()
}

// send sends a request whose body has a Content-Length or not.
func (b *bench) send(t *testing.T, body string, chunked bool) reply {
	t.Helper()
	var r io.Reader = strings.NewReader(body)
	if chunked {
		r = io.MultiReader(r)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway/v1/chat/completions", r)
	testlevel.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+b.e.Token)
	resp, err := b.c.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(all), err}
}

// While the session, or all sessions together, use the allowed memory, a request
// waits. The wait for other sessions does not count as the agent's time.
func TestRequestsWaitForMemory(t *testing.T) {
	t.Parallel()
	b := start(t, scripted(t, oneReply))
	for _, all := range []bool{false, true} {
		room, n := b.memory, int64(maxRequests)
		if all {
			room, n = b.g.memory, maxTogether
		}
		testlevel.Must(t, room.Acquire(t.Context(), n))
		before := b.Waited()
		done := make(chan reply, 1)
		go func() { done <- b.ask(t.Context(), t, requests[0].path, requests[0].body) }()
		if all {
			testlevel.Eventually(t, "the wait counts", func() bool { return b.Waited() > before })
		} else {
			time.Sleep(50 * time.Millisecond) // time for a wrong answer
		}
		select {
		case got := <-done:
			t.Fatalf("it did not wait: %d %s", got.status, got.body)
		default:
		}
		if waited := b.Waited() - before; !all && waited != 0 {
			t.Errorf("a wait for its own requests counts as %s", waited)
		}
		room.Release(n)
		if got := <-done; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// The record of an attempt takes a bounded part of the disk, whichever session
// writes it, and says where it ends. Costs are recorded all the same.
func TestTheRecordOfAnAttemptIsBounded(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	b := start(t, scripted(t, oneReply), func(_ *cell.Model, o *Options, _ *models.Spec) { o.Record = most })
	other := b.open(t, b.spec)
	t.Cleanup(func() {
		if err := other.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	noise := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
	body := func() string {
		var s strings.Builder
		for range 2000 {
			fmt.Fprintf(&s, "%x", noise.Uint64())
		}
		return `{"model":"m1","messages":[{"role":"user","content":"` + s.String() + `"}]}`
	}
	for range 6 {
		b.ask(t.Context(), t, requests[0].path, body())
		b.last(t)
		b.ask(t.Context(), t, "/v1/messages/count_tokens", body())
	}
	testlevel.Must(t, b.Revoke(t.Context()))
	var size int64
	if err := filepath.WalkDir(filepath.Join(b.dir, record.ModelDir, "blobs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		size += info.Size()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	kept, unkept := 0, 0
	for _, x := range b.lines {
		if x.Request == "" || x.Unkept && x.Usage == nil {
			t.Errorf("a line %+v", x)
		}
		if x.Unkept {
			unkept++
		} else {
			kept++
		}
	}
	if size == 0 || size > most || kept == 0 || unkept == 0 || b.Usage()[0].Requests != 6 {
		t.Errorf("%d bytes on the disk, %d exchanges kept and %d not, usage %+v", size, kept, unkept, b.Usage())
	}
	if f := b.Findings(); len(f) != 1 || f[0].Code != "model_record" || !strings.Contains(f[0].Text, "digests") {
		t.Errorf("findings %v", f)
	}
	if room := b.g.roomOf(other.spec.Dir); room != b.g.roomOf(b.dir) {
		t.Error("another session of the attempt has a room of its own")
	}
	if _, err := os.Stat(filepath.Join(b.dir, record.ExchangesFile)); err != nil {
		t.Error(err)
	}
}

func gzipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	testlevel.Must(t, w.Close())
	return b.Bytes()
}

func zstded(t *testing.T, s string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	testlevel.Must(t, err)
	defer w.Close()
	return w.EncodeAll([]byte(s), nil)
}
