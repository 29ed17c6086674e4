package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/record"
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

// maxListed is how many attempts a Status lists.
const maxListed = 1000

// state is what a Server knows of its run from events.
type state struct {
	mu       sync.Mutex
	base     Status // what does not change
	state    string
	why      string
	stopping string
	counts   run.Event
	limits   map[string]*float64
	used     store.Spend
	attempts map[string]*output.CtlAttempt // by trial
	cells    []store.Cell
}

func (st *state) begin(s *Server) {
	self := node.Self()
	st.base = Status{Run: s.o.Store.Manifest.Header.Run, Dir: s.dir, Host: self.Host, PID: self.PID}
	st.state, st.attempts, st.cells, st.limits = Running, map[string]*output.CtlAttempt{}, s.o.Store.Manifest.Cells, map[string]*float64{}
	for _, name := range Limits {
		st.limits[name] = limitOf(&s.o.Limits, name)
	}
	for _, sum := range s.index.Spent() {
		st.used.Add(sum)
	}
}

// held sets whether attempts begin.
func (st *state) held(state, why string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state, st.why = state, why
}

// limit sets limits.
func (st *state) limit(set map[string]*float64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	maps.Copy(st.limits, set)
}

// Event takes in an event of the run. It does not block.
func (s *Server) Event(e run.Event) {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts = run.Event{To: e.To, Running: e.Running, Left: e.Left}
	switch e.Kind {
	case run.Began:
		st.attempts[e.Trial.ID] = &output.CtlAttempt{
			Trial: e.Trial.ID, Task: e.Trial.Task, Cell: st.cells[e.Trial.Cell].Slug, Attempt: e.Attempt, Began: time.Now().UTC(),
		}
	case run.Live:
		a := st.attempts[e.Trial.ID]
		switch {
		case a == nil:
		case e.Live.Type == record.EventPhaseStart:
			a.Phase, a.Turn = e.Live.Phase, e.Live.Turn
		case e.Live.Type == record.EventStep:
			a.Steps++
		default:
		}
	case run.Ended:
		delete(st.attempts, e.Trial.ID)
		if e.Result != nil {
			st.used.Add(store.BriefOf(e.Result).Spend)
		}
	case run.Lost:
		delete(st.attempts, e.Trial.ID)
	case run.Stopping:
		if e.Trial == nil {
			st.stopping = e.Text
		}
	default:
	}
}

// Status returns the state of the run.
func (s *Server) Status() Status {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	out := st.base
	out.State, out.Why = st.state, st.why
	if st.stopping != "" {
		out.State, out.Why = Stopping, st.stopping
	}
	out.Planned, out.InProgress, out.Left = st.counts.To, len(st.attempts), st.counts.Left
	used := map[string]float64{InFlight: float64(len(st.attempts)), Tokens: float64(st.used.Tokens), Requests: float64(st.used.Requests)}
	if st.used.CostUSD != nil {
		used[CostUSD] = *st.used.CostUSD
	}
	for _, name := range Limits {
		out.Limits = append(out.Limits, output.CtlLimit{Name: name, Most: st.limits[name], Used: used[name]})
	}
	out.Attempts = []output.CtlAttempt{}
	for _, a := range st.attempts {
		out.Attempts = append(out.Attempts, *a)
	}
	slices.SortFunc(out.Attempts, func(a, b output.CtlAttempt) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Trial, b.Trial))
	})
	out.Attempts = out.Attempts[:min(len(out.Attempts), maxListed)]
	return out
}
