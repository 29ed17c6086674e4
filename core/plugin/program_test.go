package plugin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/fault"
)

// Any executable file may lie in a folder that is searched for plugins: a script
// that removes files, a helper of a plugin, an old version.
func TestOnlyWhatHasTheNameOfAPluginIsStarted(t *testing.T) {
	t.Parallel()
	dir := write(t, "odd", "odd")
	trap := func(path string, mode os.FileMode) {
		t.Helper()
		text := fmt.Sprintf("#!/bin/sh\ntouch '%s'\nexit 1\n", filepath.Join(dir, "STARTED"))
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode)))
	}
	for _, name := range []string{
		"cleanup", "odd", "berth-plugin-odd.bak", "berth-plugin-", "berth-plugin-Odd", "my-berth-plugin-odd", ".berth-plugin-hidden", "libexec/berth-plugin-deep",
		"berth-plugin-odd/berth-plugin-other", "berth-plugin-script", "berth-plugin-empty/main",
	} {
		trap(filepath.Join(dir, name), 0o700)
	}
	trap(filepath.Join(dir, "berth-plugin-still"), 0o600)
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	list, err := h.List(t.Context())
	testlevel.Must(t, err)
	faults, served := map[string]string{}, 0
	for _, e := range list {
		if e.Error == "" {
			served++
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Path, dir+"/"), "/")
		faults[name] = e.Error
	}
	if _, err = os.Stat(filepath.Join(dir, "STARTED")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was started that is not a plugin: %v", err)
	}
	for name, want := range map[string]string{
		"berth-plugin-script": "move it and its files to its own folder", "berth-plugin-empty": "must contain the program, an executable file berth-plugin-empty",
		"berth-plugin-still": "chmod +x",
	} {
		if !strings.Contains(faults[name], want) {
			t.Errorf("%s: %q, want %q", name, faults[name], want)
		}
	}
	if len(faults) != 3 || served != 2 {
		t.Errorf("%d plugins are served, faults %v", served, faults)
	}
	var ignored []string
	not, err := h.NotStarted(t.Context())
	for _, path := range not {
		ignored = append(ignored, filepath.Base(path))
	}
	if want := []string{"berth-plugin-", "berth-plugin-Odd", "berth-plugin-odd.bak", "cleanup", "my-berth-plugin-odd", "odd"}; err != nil || !slices.Equal(ignored, want) {
		t.Errorf("not started are %q, %v; want %q", ignored, err, want)
	}
	if _, err = h.Schema(t.Context(), plugins.KindAgent, "cleanup"); err == nil || !strings.Contains(err.Error(), "not started: "+dir+"/berth-plugin-, ") {
		t.Errorf("%v: want a hint at the file of that name", err)
	}
}

// A path that the user gave needs no name, and a plugin of one file needs no folder.
func TestProgramsThatAreNamedByPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTo(t, filepath.Join(dir, "anything.sh"), "odd")
	h, _ := newHost(t, Options{Programs: []string{filepath.Join(dir, "anything.sh")}, Dirs: []string{}})
	if _, used, err := h.Agent(t.Context(), "odd"); err != nil || used.Digest == "" {
		t.Errorf("used %+v, %v", used, err)
	}
	self, err := os.Executable()
	testlevel.Must(t, err)
	if err = os.Link(self, filepath.Join(dir, "berth-plugin-one")); errors.Is(err, syscall.EXDEV) {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(self)))
	}
	testlevel.Must(t, err)
	found, _, err := candidates([]string{dir})
	if err != nil || len(found) != 1 || found[0].fault != nil || found[0].folder != "" {
		t.Errorf("found %+v, %v; want the program, which is one file", found, err)
	}
	own := filepath.Dir(programOf(write(t, "odd", "odd"), "odd"))
	if found, _, err = candidates([]string{own}); err != nil || len(found) != 1 || found[0].fault != nil || found[0].folder != own {
		t.Errorf("found %+v, %v; want the program and its folder, which is in the search path itself", found, err)
	}
}

// A module that a script loads decides what the plugin does as much as the script:
// its change must be seen by resume, and by the cache of descriptions.
func TestTheDigestCoversAllFilesOfAFolder(t *testing.T) {
	t.Parallel()
	dir, cache, shared := write(t, "odd", "odd"), filepath.Join(t.TempDir(), "cache"), t.TempDir()
	folder := filepath.Dir(programOf(dir, "odd"))
	digest := func() string {
		t.Helper()
		h, _ := newHost(t, Options{Dirs: []string{dir}, Cache: cache})
		list, err := h.List(t.Context())
		if err != nil || len(list) != 2 || list[0].Error != "" {
			t.Fatalf("List = %+v, %v", list, err)
		}
		return list[0].Digest
	}
	seen := map[string]string{digest(): "as it was"}
	change := func(what string, err error) {
		t.Helper()
		testlevel.Must(t, err)
		d := digest()
		if before := seen[d]; before != "" {
			t.Errorf("%s: the digest is that of %q", what, before)
		}
		seen[d] = what
	}
	module := filepath.Join(folder, "lib", "judge.py")
	change("a module", errors.Join(os.Mkdir(filepath.Dir(module), 0o700), os.WriteFile(module, []byte("limit = 1\n"), 0o600)))
	change("a changed module", os.WriteFile(module, []byte("limit = 2\n"), 0o600))
	change("an executable bit", os.Chmod(module, 0o700))
	change("a link to a folder", errors.Join(os.WriteFile(filepath.Join(shared, "a.py"), nil, 0o600), os.Symlink(shared, filepath.Join(folder, "shared"))))
	change("a file behind the link", os.WriteFile(filepath.Join(shared, "a.py"), []byte("#"), 0o600))
	change("a removed module", os.Remove(module))
	change("a file moved", os.Rename(filepath.Join(shared, "a.py"), filepath.Join(shared, "b.py")))
	before := digest()
	err := errors.Join(os.Mkdir(filepath.Join(folder, "__pycache__"), 0o700), os.WriteFile(filepath.Join(folder, "__pycache__", "x.pyc"), nil, 0o600),
		os.Symlink("..", filepath.Join(folder, "round")), os.Symlink(".", filepath.Join(folder, "self")), os.Symlink("nowhere", filepath.Join(folder, "broken")))
	testlevel.Must(t, errors.Join(err, os.Remove(filepath.Join(folder, "round"))))
	if got := digest(); got != before {
		t.Errorf("caches and links that load nothing change the digest: %s, was %s", got, before)
	}
	testlevel.Must(t, syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
	done := time.AfterFunc(time.Minute, func() { panic("the pipe is read") })
	defer done.Stop()
	if _, err = (program{path: programOf(dir, "odd"), folder: folder}).digest(); err == nil || !strings.Contains(err.Error(), "holds files, folders and links") {
		t.Errorf("digest with a pipe: %v", err)
	}
}

// Who can write to a plugin decides what runs with the user's rights.
func TestPluginsThatOthersCanChangeAreNotStarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, open, want string }{
		{"the folder of plugins", ".", "who could change what is started: chmod go-w"},
		{"the folder above it", "..", "who could replace"},
		{"the folder of the plugin", "berth-plugin-odd", "chmod go-w"},
		{"the program", "berth-plugin-odd/berth-plugin-odd", "chmod go-w"},
		{"a module", "berth-plugin-odd/lib/judge.py", "chmod go-w"},
		{"a folder of compiled modules", "berth-plugin-odd/lib/__pycache__", "chmod go-w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "plugins")
			writeTo(t, programOf(dir, "odd"), "odd")
			lib := filepath.Join(dir, "berth-plugin-odd", "lib")
			testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Join(lib, "__pycache__"), 0o700), os.WriteFile(filepath.Join(lib, "judge.py"), nil, 0o600)))
			refused(t, dir, "")
			testlevel.Must(t, os.Chmod(filepath.Join(dir, tt.open), 0o777))
			refused(t, dir, tt.want)
			if tt.open == ".." { // others may own it
				return
			}
			testlevel.Must(t, os.Chmod(filepath.Join(dir, tt.open), 0o770))
			refused(t, dir, tt.want)
			if os.Geteuid() != 0 {
				return
			}
			testlevel.Must(t, errors.Join(os.Chmod(filepath.Join(dir, tt.open), 0o700), os.Chown(filepath.Join(dir, tt.open), 4321, 4321)))
			refused(t, dir, "belongs to user 4321")
		})
	}
}

// refused fails the test unless the plugins in dir are refused with the error want,
// or served if it is empty.
func refused(t *testing.T, dir, want string) {
	t.Helper()
	h, _ := newHost(t, Options{Dirs: []string{dir}})
	list, err := h.List(t.Context())
	if err != nil || len(list) == 0 || (want == "") != (list[0].Error == "") || want != "" && len(list) != 1 || !strings.Contains(list[0].Error, want) {
		t.Errorf("List = %+v, %v; want the error %q", list, err, want)
	}
}

// kept collects lines.
type kept struct {
	mu    sync.Mutex
	lines []Line
}

func (k *kept) keep(l Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, l)
}

// find waits for a line whose text contains part.
func (k *kept) find(t *testing.T, part string) (found Line) {
	t.Helper()
	testlevel.Eventually(t, part, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		i := slices.IndexFunc(k.lines, func(l Line) bool { return strings.Contains(l.Text, part) })
		if i >= 0 {
			found = k.lines[i]
		}
		return i >= 0
	})
	return found
}

// say lets a plugin write a line in a call of an attempt.
func say(t *testing.T, s agent.Session, attempt, line string) {
	t.Helper()
	if _, err := s.Turn(ForAttempt(t.Context(), attempt), agent.Message{Turn: 1, Text: "stderr " + line}, &notes{}); err != nil {
		t.Fatal(err)
	}
}

func TestOutputIsKeptWithoutSecretsAndByAttempt(t *testing.T) {
	t.Parallel()
	h, j := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	k := &kept{}
	h.Keep(redact.New("sesame-sesame", `quoted"sesame`, "sésame-😀-sesame"), k.keep)
	s := open(t, h)
	say(t, s, "one/1", "plain sesame-sesame")
	if l := k.find(t, "plain"); l.Text != "plain [secret]" || l.Attempt != "one/1" || l.Plugin != "odd" || l.Stream != "stderr" || l.PID == 0 || l.Time.IsZero() {
		t.Errorf("a line of text is %+v", l)
	}
	say(t, s, "two/1", "from whom")
	if l := k.find(t, "from whom"); l.Attempt != "" {
		t.Errorf("the process has served two attempts, and the line is said to be of %q", l.Attempt)
	}
	say(t, s, "two/1", `{"@level":"error","@message":"record","@attempt":"one/1","key":"quoted\"sesame"}`)
	if l := k.find(t, "record"); l.Level != "error" || l.Attempt != "one/1" || l.Fields["key"] != "[secret]" {
		t.Errorf("a record is %+v", l)
	}
	say(t, s, "two/1", `{"@level":"error","@message":"escaped s\u00E9same-\ud83d\ude00-sesame","deep":[{"k":"\u0073esame-sesame"}]}`)
	if l := k.find(t, "escaped"); l.Text != "escaped [secret]" || fmt.Sprint(l.Fields) != "map[deep:[map[k:[secret]]]]" {
		t.Errorf("a record with escapes is %+v", l)
	}
	say(t, s, "two/1", `{"config": "s\u00e9same-\ud83d\ude00-sesame"} printed`)
	if l := k.find(t, "printed"); l.Text != `{"config": "[secret]"} printed` {
		t.Errorf("JSON of Python is %+v", l)
	}
	say(t, s, "two/1", `{"@level":"info","@message":"invented","@attempt":"three/1"}`)
	if l := k.find(t, "invented"); l.Attempt != "" {
		t.Errorf("an attempt that the process has not served is believed: %+v", l)
	}
	_, err := s.Turn(t.Context(), agent.Message{Turn: 1, Text: "stderr last sesame-sesame"}, &notes{})
	if err == nil {
		_, err = s.Turn(t.Context(), agent.Message{Turn: 2, Text: "die"}, &notes{})
	}
	if err == nil || !strings.Contains(err.Error(), "last [secret]") {
		t.Errorf("%v; want the last words, without the secret", err)
	}
	if strings.Contains(j.String(), "sesame") {
		t.Errorf("a secret is in the log:\n%s", j)
	}
}

// A plugin in another language may answer with the code by which gRPC means that
// the process is gone.
func TestAPluginThatAnswersUnavailableLivesOn(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	other := open(t, h)
	pid := turn(t, other, "pid").ExitCode
	p, err := h.plugins[id{plugins.KindAgent, "odd"}].binary.acquire(t.Context())
	testlevel.Must(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, "the judge's model is down")
	}))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testlevel.Must(t, err)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	its, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testlevel.Must(t, err)
	defer func() { _ = its.Close() }()
	c := conn{who: "agent \"odd\"", only: p}
	own := p.conn
	p.conn = its
	err = c.Invoke(t.Context(), "/berth.v1.Agent/Check", &emptypb.Empty{}, &emptypb.Empty{})
	p.conn = own
	if err == nil || errors.Is(err, ErrPluginGone) || errors.Is(err, fault.ErrUnavailable) || !strings.Contains(err.Error(), "UNAVAILABLE") || !strings.Contains(err.Error(), "the judge's model is down") {
		t.Errorf("Invoke = %v; want what the plugin said and what its code means", err)
	}
	if got := turn(t, other, "pid").ExitCode; got != pid {
		t.Errorf("the neighbor runs in process %d, it ran in %d", got, pid)
	}
}
