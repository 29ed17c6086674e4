package engines

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// lateness is how long after the death of its client an engine begins to create what
// was asked for. A gc of an engine that lists nothing is over by then.
const lateness = 2 * time.Second

// lateEngine serves an engine at another socket: what a client asked it to create
// is created after the client has ended, as on a busy machine. asked is closed at
// the first such request.
func lateEngine(t *testing.T, m *machine) (late *machine, asked chan struct{}) {
	t.Helper()
	path := filepath.Join(short(t), "late.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.path)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport = &http.Transport{DialContext: dial, DisableKeepAlives: true}
	asked = make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			gone := r.Context() // ends with the client, when the request has been read
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			calm, cancel := context.WithTimeout(context.WithoutCancel(gone), patience)
			defer cancel()
			r = r.WithContext(calm)
			r.Body = io.NopCloser(bytes.NewReader(body))
			first()
			<-gone.Done()
			time.Sleep(lateness) // the engine of this test is that late
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return machineAt(m.plugin, path), asked
}

// An engine that is still creating a container when its client is killed creates it
// afterwards. gc waits for it.
func TestGCRemovesWhatAnEngineWasStillCreating(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		late, asked := lateEngine(t, m)
		p := newPlace(t, late.env())
		p.task("late", "", solveTiny, testTiny)
		p.experiment(m.plugin, "", "")
		b := p.start("run", ".", "--no-live")
		select {
		case <-asked:
		case <-time.After(patience):
			t.Fatalf("nothing was asked for\n%s", b.err.String())
		}
		owner := p.run()
		_ = b.Process.Kill()
		p.end(b)
		out := p.berth(0, "gc")
		if !strings.Contains(out, "sandbox") {
			t.Errorf("gc removed no sandbox:\n%s", out)
		}
		if left := m.containers(t, owner); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
