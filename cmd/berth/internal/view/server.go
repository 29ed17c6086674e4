package view

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
)

// Options say what a Server shows and where.
type Options struct {
	// Dirs are the folders of runs. Empty: all runs in Folder, also those that are
	// made later.
	Dirs   []string
	Folder string
	// Listen is the address, as in net.Listen. Port 0 takes a free one.
	Listen string
	Berth  string // version of this program
}

// Server shows runs. Its methods are safe for concurrent use.
type Server struct {
	o        Options
	listener net.Listener
	token    string
	cookie   string // name of the cookie, which differs between servers of a host
	pages    *template.Template
	runs     runs
	answers  answers
	packed   map[string][]byte // libraries of the pages, with gzip
}

//go:embed assets
var assets embed.FS

// player has the player of terminal recordings, as scripts/vendor-charts took it.
//
//go:embed player
var player embed.FS

// New opens the address and prepares a Server. Serve has to follow.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{o: o, packed: map[string][]byte{}, runs: runs{all: map[string]*entry{}}}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, err
	}
	s.token = hex.EncodeToString(secret[:])
	libraries, err := page.Libraries()
	if err != nil {
		return nil, err
	}
	for i := range libraries {
		s.packed[libraries[i].Name+".js"] = libraries[i].Packed
	}
	for _, name := range []string{"asciinema-player.js", "asciinema-player.css"} {
		if s.packed[name], err = player.ReadFile("player/" + name + ".gz"); err != nil {
			return nil, err
		}
	}
	if s.pages, err = template.New("").Funcs(page.Functions()).Funcs(functions()).ParseFS(page.Assets, "page.html"); err == nil {
		s.pages, err = s.pages.ParseFS(assets, "assets/*.html")
	}
	if err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	if s.listener, err = listen.Listen(ctx, "tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("listen on %s: %w. Name an address of this machine and a free port, such as 127.0.0.1:8080", o.Listen, err)
	}
	if at, ok := s.listener.Addr().(*net.TCPAddr); ok {
		s.cookie = fmt.Sprintf("berth_view_%d", at.Port)
	}
	return s, nil
}

// Address is what a person opens in a browser. It contains the token.
func (s *Server) Address() string {
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/?token=" + s.token
}

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(late) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// policy lets a page use the files of this server and nothing else. The player of
// terminal recordings is WebAssembly, which a page may compile but not load from
// elsewhere.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Handler answers requests that have the token.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page(s.listPage))
	mux.HandleFunc("GET /assets/{name}", s.asset)
	mux.HandleFunc("GET /run/{run}/{$}", s.page(s.runPage))
	mux.HandleFunc("GET /run/{run}/report", s.page(s.reportPage))
	mux.HandleFunc("GET /run/{run}/trials", s.page(s.trialsPage))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/{$}", s.page(s.attemptPage))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/steps", s.page(s.stepsPart))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/surface", s.page(s.surfacePart))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/subagent", s.page(s.subagentPart))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/cast", s.raw("text/plain; charset=utf-8", cast))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/exchanges", s.page(s.exchangesPage))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/body", s.page(s.bodyPage))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/file", s.page(s.filePage))
	mux.HandleFunc("GET /run/{run}/trial/{trial}/{attempt}/picture", s.raw("image/png", picture))
	mux.HandleFunc("POST /run/{run}/control", s.form(s.controlRun))
	mux.HandleFunc("POST /run/{run}/trial/{trial}/{attempt}/control", s.form(s.controlAttempt))
	mux.HandleFunc("POST /run/{run}/trial/{trial}/{attempt}/note", s.form(s.note))
	mux.HandleFunc("GET /compare", s.page(s.comparePage))
	return s.guard(mux)
}

// ours reports whether a request names this server. A foreign page can
// make a browser connect here under its own name (DNS rebinding), but not
// under a number.
func (s *Server) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	given, _, _ := net.SplitHostPort(s.o.Listen) // New has listened there
	return net.ParseIP(strings.Trim(name, "[]")) != nil || strings.EqualFold(name, "localhost") || given != "" && strings.EqualFold(name, given)
}

// guard lets only those in who have the token, and sets the headers that keep a
// page from loading or doing anything else.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, a browser does not say where a form comes from
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.ours(r.Host) {
			http.Error(w, "This server does not answer to the name in the address. Open the address that berth view printed.", http.StatusMisdirectedRequest)
			return
		}
		if token := r.URL.Query().Get("token"); token != "" && s.is(token) {
			http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			q := r.URL.Query()
			q.Del("token")
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: q.Encode()}
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(s.cookie); err != nil || !s.is(c.Value) {
			http.Error(w, "Open the address that berth view printed. It contains a token, without which nothing is shown.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// asset serves the style, the scripts, and the libraries.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	b, packed := s.packed[name]
	var err error
	switch {
	case packed:
		w.Header().Set("Content-Encoding", "gzip")
	case name == "view.js":
		b, err = assets.ReadFile("assets/" + name)
	default:
		b, err = page.Assets.ReadFile(name)
	}
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(b)
}
