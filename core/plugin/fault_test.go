package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
)

// startFault starts a binary that cannot be started and returns the error.
func startFault(t *testing.T, role string) string {
	t.Helper()
	h, _ := newHost(t, Options{Dirs: []string{write(t, role, role)}})
	if role == "hang" {
		h.startTimeout = 5 * time.Second // it prints something before
	}
	list, err := h.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %+v, %v; want one entry", list, err)
	}
	noSocketsIn(t, h)
	return list[0].Error
}

// noSocketsIn checks that no process left its folder behind.
func noSocketsIn(t *testing.T, h *Host) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(h.sockets.Dir, "plugin*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders of sockets that are left: %v, %v", left, err)
	}
}

func TestAPluginThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for role, want := range map[string][]string{
		"hang":   {"did not finish the handshake within 5s", "I am hang"},
		"exit":   {"ended before the handshake (exit status 3)", "cannot find my own feet"},
		"stray":  {`printed "Hello, I am a plugin!" on stdout before the handshake`},
		"newer":  {`plugin "newer" speaks plugin protocol 4, this berth speaks 2: upgrade berth, or install a version of the plugin that speaks 2`},
		"netrpc": {`speaks "netrpc" instead of grpc`},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			got := startFault(t, role)
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in:\n%s", w, got)
				}
			}
		})
	}
}

func TestAFileThatIsNoProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testlevel.Must(t, os.WriteFile(filepath.Join(dir, "berth-plugin-junk"), []byte("\x00\x01junk"), 0o700))
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	list, err := h.List(t.Context())
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Error, "exec format error") {
		t.Errorf("List = %+v, %v; want exec format error", list, err)
	}
}

func TestAStartThatIsCancelledEndsAtOnce(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "hang", "hang")}})
	h.startTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := h.List(ctx) // who waits for the start waits an hour
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List = %v, want the end of the context", err)
	}
	noSocketsIn(t, h)
}

func TestAPluginThatDiesEndsTheCallsAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s, other := open(t, h), open(t, h)
	heard := &notes{heard: make(chan struct{}, 1)}
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Turn(t.Context(), agent.Message{Text: "wait"}, heard)
		waiting <- err
	}()
	<-heard.heard
	pid, b := turn(t, s, "pid").ExitCode, h.plugins[id{plugins.KindAgent, "odd"}].binary
	if n := b.incarnation(); n != 1 {
		t.Errorf("the first process is number %d", n)
	}
	_, err := s.Turn(t.Context(), agent.Message{Text: "die"}, &notes{})
	if !errors.Is(err, ErrPluginGone) || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "I was asked to die") {
		t.Errorf("Turn = %v, want ErrPluginGone with its last words", err)
	}
	if err = <-waiting; !errors.Is(err, ErrPluginGone) {
		t.Errorf("the other call = %v, want ErrPluginGone", err)
	}
	if n := b.incarnation(); n != 2 {
		t.Errorf("after the first process the next one is number %d", n)
	}
	if _, err = s.Turn(t.Context(), agent.Message{Text: "pid"}, &notes{}); !errors.Is(err, ErrPluginGone) || !errors.Is(err, agent.ErrNoSession) {
		t.Errorf("a session of the dead process = %v, want ErrPluginGone", err)
	}
	if again := turn(t, open(t, h), "pid").ExitCode; again == pid || again == 0 {
		t.Errorf("the new process has number %d, the old one had %d", again, pid)
	}
	if n := b.incarnation(); n != 2 {
		t.Errorf("the second process is number %d", n)
	}
	h.Stop()
	if n := b.incarnation(); n != 3 {
		t.Errorf("after the second process the next one is number %d", n)
	}
}

func TestAPluginThatKeepsDyingIsGivenUp(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	h.maxCrashes = 3
	for range 3 {
		if _, err := open(t, h).Turn(t.Context(), agent.Message{Text: "die"}, &notes{}); !errors.Is(err, ErrPluginGone) {
			t.Fatalf("Turn = %v, want ErrPluginGone", err)
		}
	}
	a, _, err := h.Agent(t.Context(), "odd")
	testlevel.Must(t, err)
	_, err = a.Open(t.Context(), agent.Setup{Role: agent.RoleAgent})
	if !errors.Is(err, ErrPluginGone) || !strings.Contains(err.Error(), "failed 3 times in a row") || !strings.Contains(err.Error(), "I was asked to die") {
		t.Errorf("Open = %v, want that it was given up and why", err)
	}
}

func TestAPanicEndsItsCallOnly(t *testing.T) {
	t.Parallel()
	h, j := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s, other := open(t, h), open(t, h)
	pid := turn(t, other, "pid").ExitCode
	_, err := s.Turn(t.Context(), agent.Message{Text: "panic"}, &notes{})
	if !errors.Is(err, ErrPluginGone) || !errors.Is(err, fault.ErrPanic) || !strings.Contains(err.Error(), "odd indeed") || strings.Contains(err.Error(), "exited") {
		t.Errorf("Turn = %v, want a panic of a plugin that has not exited", err)
	}
	if got := turn(t, other, "pid").ExitCode; got != pid {
		t.Errorf("the neighbor runs in process %d, it ran in %d", got, pid)
	}
	testlevel.Eventually(t, "the stack is in the log", func() bool { return strings.Contains(j.String(), "main_test.go") })
}

func TestCancelIsCancel(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s := open(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	n := &notes{heard: make(chan struct{}, 1)}
	go func() {
		<-n.heard
		cancel()
	}()
	if _, err := s.Turn(ctx, agent.Message{Text: "wait"}, n); !errors.Is(err, context.Canceled) || errors.Is(err, ErrPluginGone) {
		t.Errorf("Turn = %v, want context.Canceled", err)
	}
	turn(t, s, "pid") // the session continues
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := s.Turn(short, agent.Message{Text: "wait"}, &notes{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Turn = %v, want context.DeadlineExceeded", err)
	}
}

// A line {"@message":1} makes go-plugin's own parser panic in the host.
func TestHostileStderrIsOnlyLogged(t *testing.T) {
	t.Parallel()
	h, j := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s := open(t, h)
	for _, line := range []string{
		`{"@message":1}`, `{"@level":"fatal","@message":"end the host"}`, `{"@level":"info","@message":"hello","level":"panic","n":7}`,
		`{"@level":7,"@message":"x"}`, `{`, "\xff\xfe", `{"@level":"info","@message":` + strings.Repeat("[", 9000),
	} {
		turn(t, s, "stderr "+strings.ToValidUTF8(line, "?"))
	}
	testlevel.Eventually(t, "the good record is logged as one", func() bool {
		return strings.Contains(j.String(), `"level":"info"`) && strings.Contains(j.String(), `"n":7`)
	})
	turn(t, s, "pid")
	if strings.Contains(j.String(), `"level":"fatal"`) || strings.Contains(j.String(), `"level":"panic"`) {
		t.Errorf("a plugin chose a level that is ours:\n%s", j)
	}
}

func TestAFloodOfStderrIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	h, j := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	begin := time.Now()
	turn(t, open(t, h), "flood")
	h.Stop() // the rest is read
	text := j.String()
	seconds := int(time.Since(begin)/time.Second) + 2 // the promise: so many lines a second
	if got := strings.Count(text, "yyyy"); got == 0 && strings.Count(text, "\n") > (seconds+1)*maxPerSecond+20 {
		t.Errorf("%d lines were logged", got)
	}
	if got, most := strings.Count(text, "\n"), seconds*maxPerSecond+20; got > most {
		t.Errorf("%d lines were logged in %d s, want at most %d", got, seconds, most)
	}
	if !strings.Contains(text, "some were dropped") {
		t.Error("nobody says that lines were dropped")
	}
}

// A megabyte without a newline on stdout would stop go-plugin's reader, and
// then the plugin.
func TestPrintingOnStdoutAfterTheHandshakeStopsNothing(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s := open(t, h)
	for range 3 {
		turn(t, s, "stdout")
	}
}

func TestThePluginGetsNeitherSecretsNorOurStdin(t *testing.T) {
	t.Setenv("ODD_API_KEY", "sesame")
	t.Setenv("ODD_ASKED", "granted")
	t.Setenv("LC_BERTH", "kept")
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}, Env: []string{"ODD_ADDED=yes"}})
	s := open(t, h)
	got := turn(t, s, "environment").Message
	for _, want := range []string{"ODD_ASKED=granted", "LC_BERTH=kept", "ODD_ADDED=yes", "PATH="} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "sesame") {
		t.Errorf("a secret of the host is in:\n%s", got)
	}
	if mode := turn(t, s, "stdin").Message; !strings.HasPrefix(mode, "p") {
		t.Errorf("stdin has mode %s, want a pipe of ours", mode)
	}
}

func TestStopEndsTheWholeProcessGroup(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s := open(t, h)
	pid, child := turn(t, s, "pid").ExitCode, turn(t, s, "child").ExitCode
	h.Stop()
	testlevel.Eventually(t, "the plugin ends", func() bool { return !alive(pid) })
	testlevel.Eventually(t, "its child ends", func() bool { return !alive(child) })
	if _, err := os.Stat(h.sockets.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder for sockets is still there: %v", err)
	}
	if _, err := s.Turn(t.Context(), agent.Message{Text: "pid"}, &notes{}); !errors.Is(err, ErrStopped) {
		t.Errorf("Turn = %v, want ErrStopped", err)
	}
	h.Stop()
}

func TestStopDoesNotWaitForAPluginThatHangs(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	s := open(t, h)
	pid := turn(t, s, "pid").ExitCode
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _ = s.Turn(ctx, agent.Message{Text: "stop"}, &notes{}) // it stops before or after it answers
	h.Stop()
	if alive(pid) {
		t.Error("the plugin is alive")
	}
}

func TestABinaryThatIsReplacedIsRefused(t *testing.T) {
	t.Parallel()
	dir := write(t, "odd", "odd")
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	a, _, err := h.Agent(t.Context(), "odd")
	testlevel.Must(t, err)
	path := programOf(dir, "odd")
	testlevel.Must(t, os.Remove(path))
	writeTo(t, path, "'odd'")
	if _, err = a.Check(t.Context(), agent.CheckRequest{Role: agent.RoleAgent}); err == nil || !strings.Contains(err.Error(), "was replaced while this program runs") {
		t.Errorf("Check = %v, want that the binary was replaced", err)
	}
}

// Hosts that start at the same time must not mistake each other's folders for
// stale ones.
func TestHostsThatStartAtOnceKeepTheirFolders(t *testing.T) {
	t.Parallel()
	var wait sync.WaitGroup
	for range 40 {
		wait.Go(func() {
			h, err := New(Options{Dirs: []string{}, Log: zerolog.Nop()})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(h.sockets.Dir); err != nil {
				t.Error(err)
			}
			h.Stop()
		})
	}
	wait.Wait()
}
