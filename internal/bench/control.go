package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// answers are the times of answers on the socket of a run.
type answers struct{ status, changes []time.Duration }

// asks is how often each kind of request is sent.
const asks = 400

// measure asks the run in dir for its state, and changes it. Every second change is
// a pause, and the next one ends it; others set the attempts in flight. Each change is
// on the disk when it is answered.
func (a *answers) measure(ctx context.Context, dir string) error {
	*a = answers{} // the last run counts
	text, err := os.ReadFile(filepath.Join(dir, "control.json"))
	if err != nil {
		return err
	}
	var at struct{ Socket string }
	if err = json.Unmarshal(text, &at); err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", at.Socket)
	}}
	defer transport.CloseIdleConnections()
	ask := func(method, path, body string) (time.Duration, error) {
		begin := time.Now()
		q, err := http.NewRequestWithContext(ctx, method, "http://run"+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		res, err := transport.RoundTrip(q)
		if err != nil {
			return 0, err
		}
		said, err := io.ReadAll(res.Body)
		took := time.Since(begin)
		if res.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("%s: %s", res.Status, said))
		}
		return took, errors.Join(err, res.Body.Close())
	}
	changes := []string{`{"action":"pause"}`, `{"action":"set","set":{"in_flight":1001}}`, `{"action":"continue"}`, `{"action":"set","set":{"in_flight":1000}}`}
	for i := range asks {
		took, err := ask(http.MethodGet, "/status", "")
		if err != nil {
			return err
		}
		a.status = append(a.status, took)
		if took, err = ask(http.MethodPost, "/do", changes[i%len(changes)]); err != nil {
			return err
		}
		a.changes = append(a.changes, took)
	}
	return nil
}

// add adds the rows.
func (a *answers) add(f *figures) {
	for _, r := range []struct {
		what string
		took []time.Duration
	}{{"berth ctl meanwhile, a status", a.status}, {"berth ctl meanwhile, a change that is recorded", a.changes}} {
		f.add(r.what+", p99", ms(quantile(r.took, 0.99)), "p50 "+ms(quantile(r.took, 0.5)), fmt.Sprintf("slowest of %d: %s", len(r.took), ms(slices.Max(r.took))), "≤ 50 ms")
	}
}
