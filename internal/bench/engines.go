package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
)

// engineImage is the image that scripts/engines-for-tests loads into its
// engines.
const engineImage = "localhost/berth-test/base:1"

// engine measures the cost of sandboxes on Docker or Podman, compared with the
// same requests (create, start, remove) sent directly. Each engine is measured
// by a user who may use it: Podman by an ordinary user.
func (b *bench) engine(ctx context.Context, f *figures, name, path string) error {
	m := &measured{bench: b, name: name, path: path, api: unixClient(path)}
	if err := m.there(ctx); err != nil {
		f.skipped = append(f.skipped, fmt.Sprintf("%s: %v: run scripts/engines-for-tests", name, err))
		return nil //nolint:nilerr // the other figures can be measured
	}
	return m.all(ctx, f)
}

// measured is one engine.
type measured struct {
	*bench

	name, path string
	api        *http.Client
	env        environment.Environment
	binary     string // sandboxd
}

func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}

// call sends one request to the engine and expects success.
func (m *measured) call(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := m.api.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, a.Status, text)
	}
	return err
}

func (m *measured) there(ctx context.Context) error {
	return m.call(ctx, http.MethodGet, "/v1.40/images/"+engineImage+"/json", nil)
}

func (m *measured) all(ctx context.Context, f *figures) error {
	h, err := plugin.New(plugin.Options{Dirs: []string{filepath.Join(m.bin, "plugins")}})
	if err != nil {
		return err
	}
	defer h.Stop()
	if m.env, _, err = h.Environment(ctx, m.name); err != nil {
		return err
	}
	if m.binary, err = m.sandboxd(); err != nil {
		return err
	}
	for _, flight := range []int{1, 4, 16} {
		if err := m.rate(ctx, f, flight); err != nil {
			return err
		}
	}
	return nil
}

func (m *measured) open(ctx context.Context) (*made, error) {
	return m.create(ctx, m.env, m.binary, environment.Spec{Image: environment.Image{Ref: engineImage}, Config: []byte(`{"socket": "unix://` + m.path + `"}`)})
}

// bare creates, starts and removes a container without Berth.
func (m *measured) bare(ctx context.Context) error {
	name := filepath.Base(m.unique("berth-bench-"))
	const at = "/v1.40/containers/"
	body := fmt.Sprintf(`{"Image": %q, "Entrypoint": ["/bin/sleep", "300"], "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "none"}, "Binds": ["%s:/berth:ro"]}}`, engineImage, m.dir)
	if err := m.call(ctx, http.MethodPost, at+"create?name="+name, []byte(body)); err != nil {
		return err
	}
	if err := m.call(ctx, http.MethodPost, at+name+"/start", nil); err != nil {
		return err
	}
	return m.call(ctx, http.MethodDelete, at+name+"?force=true&v=true", nil)
}

// rate measures sandboxes per second, alternating with direct requests to the
// engine.
func (m *measured) rate(ctx context.Context, f *figures, flight int) error {
	const rounds = 5
	n := max(8, 2*flight)
	var ours, bare time.Duration
	var ratios []float64
	for range rounds {
		began := time.Now()
		err := loop(n, flight, func() error {
			x, err := m.open(ctx)
			if err != nil {
				return err
			}
			return x.close()
		})
		if err != nil {
			return err
		}
		took := time.Since(began)
		began = time.Now()
		if err = loop(n, flight, func() error { return m.bare(ctx) }); err != nil {
			return err
		}
		hand := time.Since(began)
		ours, bare, ratios = ours+took, bare+hand, append(ratios, hand.Seconds()/took.Seconds())
	}
	slices.Sort(ratios)
	persec := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(rounds*n)/d.Seconds()) }
	f.add(fmt.Sprintf("%s: sandboxes/s, %d in flight", m.name, flight), persec(ours), "create, start, remove directly: "+persec(bare),
		fmt.Sprintf("%.2f (rounds %.2f–%.2f)", bare.Seconds()/ours.Seconds(), ratios[0], ratios[rounds-1]), "≥ 0.9")
	return nil
}
