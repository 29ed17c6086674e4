package engines

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// asks tries to reach a server of the host from inside a sandbox: through the
// proxy that http_proxy names, and directly. It opens the connections with
// bash, because images have few other programs.
const asks = `bash <<'END'
asked() { # HOST PORT, then what to send
	exec 3<>/dev/tcp/$1/$2 || return 1
	printf "$3" >&3; timeout 5 cat <&3; exec 3>&-
}
proxy=${http_proxy#http://}; proxy=${proxy%/}
[ -n "$proxy" ] && : > /app/proxy
for host in HOSTS; do
	asked $host PORT 'GET / HTTP/1.0\r\n\r\n' 2>/dev/null | grep -q 'the host' && echo "$host: reached" >> /app/reached
	asked ${proxy%:*} ${proxy##*:} "CONNECT $host:PORT HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n" 2>/dev/null | grep -q 'the host' && echo "$host: reached by the proxy" >> /app/reached
done
echo asked; : > /app/asked
cat /app/reached 2>/dev/null
END
:`

// In every environment, the public network that a task asks for is a proxy of
// the core. Addresses of the host are reached neither through the proxy nor
// directly.
func TestAPublicNetworkDoesNotReachTheHost(t *testing.T) {
	t.Parallel()
	everyPlugin(t, func(t *testing.T, p *place, name string) {
		hosts, port := hostServer(t)
		p.task("public", "", strings.NewReplacer("HOSTS", strings.Join(hosts, " "), "PORT", port).Replace(asks),
			"if [ -e /app/proxy ] && [ -e /app/asked ] && [ ! -e /app/reached ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt")
		p.images(name)
		toml := filepath.Join("tasks", "public", "task.toml")
		text, err := os.ReadFile(filepath.Join(p.dir, toml))
		if err != nil {
			t.Fatal(err)
		}
		p.write(toml, strings.Replace(string(text), "no-network", "public", 1))
		p.experiment(name, "", "")
		p.berth(0, "run", ".")
		tr := p.show().Trials[0]
		dir := filepath.Join(p.dir, "runs", "*", "trials", "*", "attempt-1")
		said := globbed(t, filepath.Join(dir, "agent", "oracle.txt"))
		out, err := os.ReadFile(said[0])
		if err != nil || tr.Outcome != record.Passed {
			t.Errorf("%s, %+v, %v; the sandbox says:\n%s", tr.Outcome, tr.Attempts, err, out)
		}
		events, err := os.ReadFile(globbed(t, filepath.Join(dir, "events.jsonl"))[0])
		for _, host := range hosts {
			if err != nil || !strings.Contains(string(events), fmt.Sprintf("%s was asked for and may not be reached", host)) {
				t.Errorf("no finding host_refused for %s: %v", host, err)
			}
		}
	})
}

// hostServer serves on all addresses of this machine, and returns them.
func hostServer(t *testing.T) (hosts []string, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0") //nolint:gosec,noctx // all addresses are what is tried
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the host") }))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	_, port, err = net.SplitHostPort(l.Addr().String())
	addrs, more := net.InterfaceAddrs()
	if err != nil || more != nil {
		t.Fatal(err, more)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !slices.Contains(hosts, n.IP.String()) {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts, port
}
