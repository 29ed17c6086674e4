// Package egress is the only way out of a sandbox whose network is a list of
// hosts: a proxy in the core, to which sandboxd forwards connections from a
// loopback port inside. The sandbox has no other network, so the proxy cannot
// be bypassed.
//
// It must not know what a phase is: the caller tells it what is allowed from
// now on. Everything that arrives on a connection is untrusted.
package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// Bounds of one proxy.
const (
	connections = 256              // at the same time; more are closed immediately
	headerBytes = 64 << 10         // of one request's head
	headTime    = 30 * time.Second // for the head of a request
	dialTime    = 30 * time.Second // for looking a name up and connecting
)

// Options are the options of a proxy. The zero value uses this machine's
// resolver, network and addresses.
type Options struct {
	// Lookup finds the addresses of a name.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Own returns the machine's own addresses, which count as private.
	Own func() []netip.Addr
	// Refused is called once for each host that was requested and not allowed,
	// with the reason. It may be called at any time from any goroutine.
	Refused func(host, why string)
}

// Proxy serves the connections of one sandbox. At first it allows no host. Safe
// for concurrent use.
type Proxy struct {
	o    Options
	life context.Context //nolint:containedctx // connections have no caller whose context they could take
	end  context.CancelFunc

	mu      sync.Mutex
	rules   task.Hosts
	open    map[net.Conn]string // from inside and to hosts, with the host; empty: not yet known
	refused map[string]bool
	failed  map[string]string // hosts that were not reached under these rules, and why
	work    sync.WaitGroup
}

// New makes a proxy that lives until Close.
func New(o Options) *Proxy {
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	if o.Own == nil {
		o.Own = own
	}
	life, end := context.WithCancel(context.Background())
	return &Proxy{o: o, life: life, end: end, open: map[net.Conn]string{}, refused: map[string]bool{}, failed: map[string]string{}}
}

// own returns the addresses of this machine's interfaces.
func own() []netip.Addr {
	as, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range as {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}

// Allow sets what is allowed from now on. It cuts all open connections, because
// a connection of one phase must not be used in the next.
func (p *Proxy) Allow(h task.Hosts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.failed = h, map[string]string{}
	for c := range p.open {
		_ = c.Close()
	}
}

// Failed returns the hosts to which a connection failed or was refused since the last
// call of Allow, with the first reason.
func (p *Proxy) Failed() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.failed)
}

// Close cuts all connections and waits until their goroutines have ended.
func (p *Proxy) Close() {
	p.end()
	p.Allow(task.Hosts{})
	p.work.Wait()
}

// enter registers a connection; false: there are too many, or the proxy is
// closed.
func (p *Proxy) enter(c net.Conn, host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil || len(p.open) >= 2*connections {
		return false
	}
	p.open[c] = host
	return true
}

func (p *Proxy) leave(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// Serve serves one connection from inside, and returns when it is finished.
func (p *Proxy) Serve(c net.Conn) {
	p.work.Add(1)
	defer p.work.Done()
	if !p.enter(c, "") {
		_ = c.Close()
		return
	}
	defer p.leave(c)
	_ = c.SetReadDeadline(time.Now().Add(headTime))
	head := &io.LimitedReader{R: c, N: headerBytes}
	in := bufio.NewReader(head)
	q, err := http.ReadRequest(in)
	if err != nil {
		answer(c, http.StatusBadRequest, "this is a proxy: it takes CONNECT host:port, and requests with a whole URL")
		return
	}
	head.N = 1 << 62
	_ = c.SetReadDeadline(time.Time{})
	if q.Method == http.MethodConnect {
		p.tunnel(p.life, c, in, q)
		return
	}
	p.forward(p.life, c, q)
}

// answer tells the client why there is no connection.
func answer(c net.Conn, code int, text string) {
	_ = c.SetWriteDeadline(time.Now().Add(headTime))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\nberth: %s\n",
		code, http.StatusText(code), len(text)+len("berth: \n"), text)
}

// tunnel copies bytes of any protocol.
func (p *Proxy) tunnel(ctx context.Context, c net.Conn, in *bufio.Reader, q *http.Request) {
	to := p.connect(ctx, c, q.Host, "")
	if to == nil {
		return
	}
	defer p.leave(to)
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, in)
		half(to)
	}()
	_, _ = io.Copy(c, to)
	half(c)
	// The host has sent everything. If it has closed the other direction too,
	// nothing reads what the sandbox still sends; until then the sandbox may
	// continue.
	<-done
}

// half closes one direction, or both where that is not possible.
func half(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	_ = c.Close()
}

// forward forwards one request without TLS. The host is the one in the URL,
// whatever the header says.
func (p *Proxy) forward(ctx context.Context, c net.Conn, q *http.Request) {
	if q.URL.Scheme != "http" || q.URL.Host == "" {
		answer(c, http.StatusBadRequest, "this is a proxy: it takes CONNECT host:port, and requests with a whole http:// URL")
		return
	}
	to := p.connect(ctx, c, q.URL.Host, "80")
	if to == nil {
		return
	}
	defer p.leave(to)
	if strings.EqualFold(q.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return
		}
	}
	for _, name := range []string{"Expect", "Connection", "Proxy-Connection", "Proxy-Authorization", "Keep-Alive", "Upgrade", "Te"} {
		q.Header.Del(name)
	}
	q.Host, q.Close = q.URL.Host, true
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = q.Write(to) // an error shows in the answer, or in its absence
	}()
	_, _ = io.Copy(c, to) // the server closes the connection after its answer
	_ = to.Close()
	_ = c.Close() // nothing reads the rest of the body
	<-sent
}

// refusal says why a host may not be reached.
type refusal struct{ host, why string }

func (r *refusal) Error() string { return fmt.Sprintf("%s may not be reached: %s", r.host, r.why) }

// connect connects to a host, or tells c why not and returns nil. usual is the
// default port.
func (p *Proxy) connect(ctx context.Context, c net.Conn, authority, usual string) net.Conn {
	host, to, err := p.dial(ctx, authority, usual)
	if err == nil {
		if p.enter(to, host) {
			if p.allowed(host) { // it was allowed until now
				return to
			}
			p.leave(to)
		}
		_ = to.Close()
		err = errors.New("no more connections")
	}
	p.mu.Lock()
	if host != "" && p.failed[host] == "" && len(p.failed) < connections {
		p.failed[host] = err.Error()
	}
	p.mu.Unlock()
	if r, ok := errors.AsType[*refusal](err); ok {
		p.tell(r)
		answer(c, http.StatusForbidden, r.Error())
		return nil
	}
	answer(c, http.StatusBadGateway, err.Error())
	return nil
}

// allowed reports whether a name is still allowed. An address is checked when
// it is dialed, and Allow cuts older connections.
func (p *Proxy) allowed(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, err := netip.ParseAddr(host); err == nil {
		return p.rules.Lists(a.Unmap()) || p.rules.Any
	}
	return p.rules.Name(host)
}

// tell reports a refused host, once.
func (p *Proxy) tell(r *refusal) {
	p.mu.Lock()
	known := p.refused[r.host] || len(p.refused) >= connections
	p.refused[r.host] = true
	p.mu.Unlock()
	if !known && p.o.Refused != nil {
		p.o.Refused(r.host, r.why)
	}
}

// dial looks a name up once, and connects to the addresses that were checked: a
// second lookup could return others.
func (p *Proxy) dial(ctx context.Context, authority, usual string) (host string, c net.Conn, err error) {
	host, port, err := split(authority, usual)
	if err != nil {
		return host, nil, err
	}
	p.mu.Lock()
	rules := p.rules
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addresses, err := p.find(ctx, rules, host)
	if err != nil {
		return host, nil, err
	}
	for _, a := range addresses {
		if c, err = p.o.Dial(ctx, netip.AddrPortFrom(a, port)); err == nil {
			return host, c, nil
		}
	}
	return host, nil, fmt.Errorf("connect to %s: %w", host, err)
}

// find returns the allowed addresses of a host.
func (p *Proxy) find(ctx context.Context, rules task.Hosts, host string) ([]netip.Addr, error) {
	var found []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		if a = a.Unmap(); a.Zone() != "" || !rules.Any && !rules.Lists(a) {
			return nil, &refusal{host, "the task may reach " + rules.String()}
		}
		found = []netip.Addr{a}
	} else {
		if !rules.Name(host) { // it is not looked up either, because that would tell its name server
			return nil, &refusal{host, "the task may reach " + rules.String()}
		}
		if found, err = p.o.Lookup(ctx, host); err != nil {
			return nil, fmt.Errorf("look up %s: %w", host, err)
		}
	}
	mine := p.o.Own()
	var good []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); rules.Lists(a) || !task.IsInner(a) && !slices.Contains(mine, a) {
			good = append(good, a)
		}
	}
	if len(good) == 0 && len(found) > 0 {
		return nil, &refusal{host, fmt.Sprintf("its address %s is of this machine or a private network, which a list must name as an address", found[0])}
	}
	if len(good) == 0 {
		return nil, fmt.Errorf("look up %s: it has no address", host)
	}
	return good, nil
}

// split returns host and port of a request.
func split(authority, usual string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(authority)
	if err != nil && usual != "" {
		host, text, err = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]"), usual, nil
	}
	n, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("%.100q is not a host with a port", authority)
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if len(host) > 253 {
		host = host[:253]
	}
	return strings.ToValidUTF8(host, "?"), uint16(n), nil
}

// Env returns the variables by which programs find a proxy on a loopback port.
// direct are names that are reached without it.
func Env(port int, direct []string) map[string]string {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", port)
	no := strings.Join(append([]string{"localhost", "127.0.0.1", "0.0.0.0", "::1"}, direct...), ",")
	out := map[string]string{}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		out[name], out[strings.ToUpper(name)] = proxy, proxy
	}
	out["no_proxy"], out["NO_PROXY"] = no, no
	return out
}
