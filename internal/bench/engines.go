package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// engineImage is the image that scripts/engines-for-tests loads into its
// engines.
const engineImage = "localhost/berth-test/base:1"

// engine measures the cost of sandboxes on Docker or Podman, compared with the
// same requests (create, start, remove) sent by hand. Each engine is measured
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
	serial     int
	mu         sync.Mutex
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
	if m.binary, _, err = host.Install(filepath.Join(m.dir, "d"), filepath.Join(m.bin, "berth-sandboxd")); err != nil {
		return err
	}
	for _, flight := range []int{1, 4, 16} {
		if err := m.rate(ctx, f, flight); err != nil {
			return err
		}
	}
	return m.crowd(ctx, f)
}

// spec returns the specification of a sandbox, as a plain trial makes it.
func (m *measured) spec(control string) environment.Spec {
	return environment.Spec{
		Labels: environment.Labels{Owner: "bench", Trial: "bench", Attempt: 1}, Image: environment.Image{Ref: engineImage},
		Network: environment.Network{Mode: environment.NetworkNone}, Control: control, Lease: time.Minute, Scratch: m.dir,
		Config: []byte(`{"socket": "unix://` + m.path + `"}`),
	}
}

func (m *measured) next() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	return fmt.Sprintf("%s%d", m.name[:1], m.serial)
}

// box is a sandbox with its core.
type box struct {
	id     string
	core   *host.Sandbox
	folder *host.Folder
}

func (m *measured) open(ctx context.Context) (*box, error) {
	folder, err := host.NewFolder(filepath.Join(m.dir, m.next()), m.binary)
	if err != nil {
		return nil, err
	}
	got, err := m.env.Create(ctx, m.spec(folder.Path))
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	core, err := host.Connect(ctx, folder, got.PID, time.Minute)
	return &box{got.ID, core, folder}, err
}

func (m *measured) close(ctx context.Context, x *box) error {
	_, err := m.env.Destroy(ctx, x.id)
	if x.core != nil {
		_ = x.core.Close()
	}
	return errors.Join(err, x.folder.Close())
}

// bare creates, starts and removes a container by hand.
func (m *measured) bare(ctx context.Context) error {
	name := "berth-bench-" + m.next()
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

// times runs do n times, with the given concurrency.
func times(ctx context.Context, n, flight int, do func(context.Context) error) (time.Duration, error) {
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	var all sync.WaitGroup
	errs := make([]error, flight)
	began := time.Now()
	for i := range flight {
		all.Go(func() {
			for range work {
				if errs[i] = do(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began), errors.Join(errs...)
}

// rate measures sandboxes per second, alternating with direct requests to the
// engine.
func (m *measured) rate(ctx context.Context, f *figures, flight int) error {
	const rounds = 5
	n := max(8, 2*flight)
	var ours, bare time.Duration
	var ratios []float64
	for range rounds {
		took, err := times(ctx, n, flight, func(ctx context.Context) error {
			x, err := m.open(ctx)
			if x != nil {
				err = errors.Join(err, m.close(ctx, x))
			}
			return err
		})
		if err != nil {
			return err
		}
		hand, err := times(ctx, n, flight, m.bare)
		if err != nil {
			return err
		}
		ours, bare, ratios = ours+took, bare+hand, append(ratios, hand.Seconds()/took.Seconds())
	}
	slices.Sort(ratios)
	persec := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(rounds*n)/d.Seconds()) }
	f.add(fmt.Sprintf("%s: sandboxes/s, %d in flight", m.name, flight), persec(ours), "create, start, remove by hand: "+persec(bare),
		fmt.Sprintf("%.2f (rounds %.2f–%.2f)", bare.Seconds()/ours.Seconds(), ratios[0], ratios[rounds-1]), "≥ 0.9")
	return nil
}

// crowd measures the plugin's memory with 32 sandboxes, and the time of a
// command in one of them.
func (m *measured) crowd(ctx context.Context, f *figures) error {
	var mu sync.Mutex
	var all []*box
	defer func() {
		for _, x := range all {
			_ = m.close(context.WithoutCancel(ctx), x)
		}
	}()
	if _, err := times(ctx, 32, 16, func(ctx context.Context) error {
		x, err := m.open(ctx)
		mu.Lock()
		defer mu.Unlock()
		if x != nil {
			all = append(all, x)
		}
		return err
	}); err != nil {
		return err
	}
	f.add(m.name+": plugin's memory with 32 sandboxes", fmt.Sprintf("%.1f MB", rss(filepath.Join(m.bin, "plugins", "berth-plugin-"+m.name))), "", "", "≤ 60 MB")
	shell, err := all[0].core.Shell(ctx, host.Session{ID: "bench", Dir: "/"})
	if err != nil {
		return err
	}
	defer shell.Close()
	var ours, fork []time.Duration
	for range 60 {
		began := time.Now()
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err == nil {
			_, err = p.Wait()
		}
		if err != nil {
			return err
		}
		bare := time.Since(began)
		began = time.Now()
		if r, err := shell.Exec(ctx, sandbox.Command{Argv: []string{"/bin/true"}}); err != nil || !r.OK() {
			return fmt.Errorf("command: %+v, %w", r, err)
		}
		ours, fork = append(ours, time.Since(began)), append(fork, bare)
	}
	p, r := quantile(ours, 0.5), quantile(fork, 0.5)
	f.add(m.name+": command in a sandbox, p50", ms(p), "fork+exec+wait on the host: "+ms(r), "+"+ms(p-r), "≤ 0.4 ms more")
	return nil
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

// rss returns the memory of the newest process of a program, in MB.
func rss(program string) float64 {
	best, kib := 0, 0
	files, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return 0
	}
	for _, f := range files {
		pid := 0
		if at, err := os.Readlink(f); err != nil || at != program {
			continue
		}
		if _, err := fmt.Sscanf(f, "/proc/%d/exe", &pid); err != nil || pid < best {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(f), "status"))
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(between(string(status), "VmRSS:", "kB"), &kib); err == nil {
			best = pid
		}
	}
	return float64(kib) / 1000
}
