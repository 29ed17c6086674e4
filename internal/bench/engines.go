package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	made       request
	serial     int
	mu         sync.Mutex
}

// request is a request that the plugin sent.
type request struct {
	prefix, query string // of its path: everything before /containers/create
	body          []byte
	name          string // of the container
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
func (m *measured) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := m.api.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, a.Status, text)
	}
	return text, err
}

func (m *measured) there(ctx context.Context) error {
	_, err := m.call(ctx, http.MethodGet, "/v1.40/images/"+engineImage+"/json", nil)
	return err
}

func (m *measured) all(ctx context.Context, f *figures) error {
	counts, err := m.count(ctx)
	if err != nil {
		return err
	}
	f.add(m.name+": changes of the engine a trial, beyond create, start and remove", fmt.Sprintf("%.2f", counts.others), counts.text, "", "≤ 2")
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
	body := bytes.ReplaceAll(m.made.body, []byte(m.made.name), []byte(name))
	at := m.made.prefix + "/containers/"
	if _, err := m.call(ctx, http.MethodPost, at+"create?"+strings.ReplaceAll(m.made.query, m.made.name, name), body); err != nil {
		return err
	}
	if _, err := m.call(ctx, http.MethodPost, at+name+"/start", nil); err != nil {
		return err
	}
	_, err := m.call(ctx, http.MethodDelete, at+name+"?force=true&v=true", nil)
	return err
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
	var ours, theirs, fork []time.Duration
	for i := range 60 {
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
		in := time.Since(began)
		began = time.Now()
		if i < 20 {
			if err := m.exec(ctx, all[0].id); err != nil {
				return err
			}
			theirs = append(theirs, time.Since(began))
		}
		ours, fork = append(ours, in), append(fork, bare)
	}
	p, q, r := quantile(ours, 0.5), quantile(theirs, 0.5), quantile(fork, 0.5)
	f.add(m.name+": command in a sandbox, p50", ms(p), "the engine's own exec: "+ms(q)+"; fork+exec+wait on the host: "+ms(r),
		fmt.Sprintf("%.0f × faster; +%s", float64(q)/float64(p), ms(p-r)), "≥ 50 ×; ≤ 0.4 ms more")
	return nil
}

// exec runs a command by the engine's own API: create, start until the end,
// inspect.
func (m *measured) exec(ctx context.Context, id string) error {
	name, _, _ := strings.Cut(id, "@")
	text, err := m.call(ctx, http.MethodPost, "/v1.40/containers/"+name+"/exec", []byte(`{"AttachStdout": true, "AttachStderr": true, "Cmd": ["/bin/true"]}`))
	if err != nil {
		return err
	}
	exec := between(string(text), `"Id":"`, `"`)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	const body = `{"Detach": false, "Tty": false}`
	if _, err = fmt.Fprintf(conn, "POST /v1.40/exec/%s/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		exec, len(body), body); err != nil {
		return err
	}
	if _, err = io.Copy(io.Discard, conn); err != nil {
		return err
	}
	_, err = m.call(ctx, http.MethodGet, "/v1.40/exec/"+exec+"/json", nil)
	return err
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

// changes counts the changes that a run made to an engine.
type changes struct {
	others float64 // per trial
	text   string
}

// count runs trials through a proxy on the engine's socket. The proxy counts
// the requests that change the engine, and keeps the request that creates a
// container.
func (m *measured) count(ctx context.Context) (changes, error) {
	const trials = 8
	socket := filepath.Join(m.dir, m.name+".sock")
	p := &counting{api: m.api, kinds: map[string]int{}}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return changes{}, err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	dir, err := m.experiment("engine-"+m.name, "oracle", 1, trials, 4)
	if err != nil {
		return changes{}, err
	}
	if err := m.on(dir, socket); err != nil {
		return changes{}, err
	}
	if _, err := m.berth(ctx, "run", dir, "--no-live", "--runs", filepath.Join(dir, "runs")); err != nil {
		return changes{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.made = p.made
	m.made.body = bytes.ReplaceAll(m.made.body, []byte(`["/berth/sandboxd"]`), []byte(`["/bin/sleep","300"]`))
	control := between(string(m.made.body), `"Source":"`, `"`)
	if control == "" {
		control = between(string(m.made.body), `"source":"`, `"`)
	}
	m.made.body = bytes.ReplaceAll(m.made.body, []byte(control), []byte(m.dir)) // the folder of that trial no longer exists
	others := 0
	var text []string
	for _, k := range slices.Sorted(maps.Keys(p.kinds)) {
		text = append(text, fmt.Sprintf("%s %d", k, p.kinds[k]))
		if k != "create" && k != "start" && k != "remove" {
			others += p.kinds[k]
		}
	}
	return changes{float64(others) / trials, fmt.Sprintf("in %d trials: %s", trials, strings.Join(text, ", "))}, nil
}

// on changes an experiment to use this engine.
func (m *measured) on(dir, socket string) error {
	file := filepath.Join(dir, "berth.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s := strings.Replace(string(text), "plugin = \"local\"", fmt.Sprintf("plugin = %q\n  config {\n    socket = \"unix://%s\"\n  }", m.name, socket), 1)
	if err = os.WriteFile(file, []byte(s), 0o600); err != nil {
		return err
	}
	toml := filepath.Join(dir, "tasks", "t0", "task.toml")
	if text, err = os.ReadFile(toml); err != nil {
		return err
	}
	s = strings.Replace(string(text), "[environment]\n", fmt.Sprintf("[environment]\ndocker_image = %q\nworkdir = \"/app\"\n", engineImage), 1)
	return errors.Join(os.WriteFile(toml, []byte(s), 0o600), os.RemoveAll(filepath.Join(dir, "tasks", "t0", "environment")))
}

// counting forwards requests and counts those that change something.
type counting struct {
	api *http.Client

	mu    sync.Mutex
	kinds map[string]int
	made  request
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	c.look(r, body)
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://engine"+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = r.Header.Clone()
	a, err := c.api.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer a.Body.Close()
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.StatusCode)
	_, _ = io.Copy(w, a.Body) // fails only if the plugin is gone
}

// look counts a request if it changes something.
func (c *counting) look(r *http.Request, body []byte) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	kind := parts[len(parts)-1]
	switch {
	case r.Method == http.MethodDelete && slices.Contains(parts, "containers"):
		kind = "remove"
	case kind == "create" && slices.Contains(parts, "containers"):
		name := r.URL.Query().Get("name")
		if name == "" {
			name = between(string(body), `"name":"`, `"`)
		}
		c.made = request{strings.TrimSuffix(r.URL.Path, "/containers/create"), r.URL.RawQuery, body, name}
	}
	c.kinds[kind]++
}
