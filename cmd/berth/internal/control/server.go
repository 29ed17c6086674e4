package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
)

// Bounds of a request. Only the user of the run can connect.
const (
	maxRequest  = 64 << 10 // bytes
	requestTime = 10 * time.Second
)

// Options are the options of Serve.
type Options struct {
	Store   *store.Run   // open for writing
	Control *run.Control // of this run
	// Limits are those that the run begins with.
	Limits experiment.RunLimits
	// Say tells the user of this process what was done; it must not block for
	// long.
	Say func(text string)
}

// Server serves the socket of a run. It is safe for concurrent use.
type Server struct {
	o       Options
	dir     string
	index   *store.Index // as it was at the beginning: only the plan is used
	state   state
	socket  string
	http    *http.Server
	serving sync.WaitGroup

	doing sync.Mutex // changes take effect, and are recorded, one after another
}

// Serve opens the socket of a run. The caller passes the events of the run to Event,
// and closes the server.
func Serve(ctx context.Context, o Options) (*Server, error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	s := &Server{o: o, dir: o.Store.Dir, index: o.Store.Index()}
	s.state.begin(s)
	path, err := newSocket(s.dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s.socket = path
	if err = os.Chmod(path, 0o600); err == nil { // its folder is 0700 anyway
		err = s.point()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.Status(), nil) })
	mux.HandleFunc("POST /do", s.do)
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // clients that go away are not worth logging
	}
	s.serving.Go(func() {
		_ = s.http.Serve(l) //nolint:errcheck // it ends with Close, with an error that says so
	})
	return s, nil
}

// point writes the file that says where the socket is.
func (s *Server) point() error {
	b, err := json.Marshal(output.CtlPointer{Version: 1, Socket: s.socket, Process: node.Self()})
	if err != nil {
		return err
	}
	return s.o.Store.WriteFile(PointerFile, append(b, '\n'))
}

// Close ends the server, removes its files, and waits for answers that are being
// written.
func (s *Server) Close() error {
	err := os.Remove(filepath.Join(s.dir, PointerFile))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if late := s.http.Shutdown(ctx); late != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}

// refusal is the answer to a request that changed nothing.
type refusal struct {
	Error string `json:"error"`
}

// answer writes v, or the error.
func (s *Server) answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusConflict)
		v = refusal{err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone away
}

// do serves one change.
func (s *Server) do(w http.ResponseWriter, r *http.Request) {
	var q Request
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	dec.DisallowUnknownFields()
	err := dec.Decode(&q)
	if err == nil && !errors.Is(dec.Decode(&struct{}{}), io.EOF) {
		err = errors.New("there is more after it")
	}
	if err != nil {
		s.answer(w, nil, fmt.Errorf("the request cannot be read: %w", err))
		return
	}
	did, err := s.change(&q, os.Geteuid()) // other users get no connection
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	status := s.Status()
	status.Attempts = []output.CtlAttempt{}
	s.answer(w, Answer{Did: did, Status: status}, nil)
}
