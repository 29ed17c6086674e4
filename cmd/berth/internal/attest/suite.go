package attest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/examples/attacks"
)

// attackerName is the program of attacks that a shell cannot make. It is in the
// same folder as berth.
const attackerName = "berth-attacker"

// OnHost is the kind of attack that is shown to succeed on the host itself.
const OnHost = "host"

// Suite is the attack suite in a folder, with what it attacks on the host: a
// file, and a server.
type Suite struct {
	Catalogue   *Catalogue
	Environment string // plugin

	dir      string
	secret   string // in the file of the host, and in no other
	answer   string // what the server says
	listener net.Listener
	asked    atomic.Int64 // connections of the server
}

// New prepares the suite in dir, an empty folder. programs is the folder of
// berth. The caller closes it.
func New(ctx context.Context, c *Catalogue, environment, dir, programs string) (*Suite, error) {
	s := &Suite{Catalogue: c, Environment: environment, dir: dir}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	s.secret, s.answer = "berth-canary-"+hex.EncodeToString(random[:8]), "berth-answer-"+hex.EncodeToString(random[8:])
	// All addresses of the host: a sandbox may reach any of them.
	var l net.ListenConfig
	var err error
	if s.listener, err = l.Listen(ctx, "tcp", ":0"); err != nil {
		return nil, fmt.Errorf("start a server that attacks ask: %w", err)
	}
	go s.serve()
	if err = s.write(programs); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the server of the suite.
func (s *Suite) Close() error { return s.listener.Close() }

func (s *Suite) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.asked.Add(1)
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c, s.answer+"\n") // the client may go away
		_ = c.Close()
	}
}

func (s *Suite) canary() string { return filepath.Join(s.dir, "host", "canary") }

// write writes the tasks of both datasets.
func (s *Suite) write(programs string) error {
	attacker, err := os.ReadFile(filepath.Join(programs, attackerName))
	if err != nil {
		return fmt.Errorf("%s is missing beside berth: run make build, or install both: %w", attackerName, err)
	}
	if err = put(s.canary(), []byte(s.secret+"\n")); err != nil {
		return err
	}
	for i := range s.Catalogue.Attacks {
		a := &s.Catalogue.Attacks[i]
		task, err := files("tasks/" + a.Name)
		if err != nil {
			return err
		}
		s.complete(a, task, attacker)
		for p, text := range task {
			if err = put(filepath.Join(s.dir, "attacks", a.Name, p), text); err != nil {
				return err
			}
		}
		if a.Unguarded == OnHost {
			continue
		}
		twin, err := s.twin(a, task)
		if err != nil {
			return err
		}
		for p, text := range twin {
			if err = put(filepath.Join(s.dir, "unguarded", a.Name, p), text); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete adds to a task what is known only now.
func (s *Suite) complete(a *Attack, task map[string][]byte, attacker []byte) {
	solve := string(task["solution/solve.sh"])
	for name, text := range map[string][]byte{
		"attacker": attacker,
		"canary":   []byte(s.canary() + "\n"),
		"port":     []byte(strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port) + "\n"), //nolint:forcetypeassert // it listens on tcp
	} {
		if strings.Contains(solve, `"$(dirname "$0")/`+name+`"`) {
			task["solution/"+name] = text
		}
	}
	if a.Unguarded == OnHost {
		task["tests/answer"] = []byte(s.answer + "\n")
	}
}

// twin makes the task in which a harness without guards runs the attack and its
// tests. Its own tests only end.
func (s *Suite) twin(a *Attack, task map[string][]byte) (map[string][]byte, error) {
	outer, err := attacks.Files.ReadFile("unguarded.sh")
	if err != nil {
		return nil, err
	}
	harness, err := attacks.Files.ReadFile("harness.sh")
	if err != nil {
		return nil, err
	}
	twin := map[string][]byte{
		"task.toml": fmt.Appendf(nil, "schema_version = \"1.4\"\n\n[task]\nname = \"berth-unguarded/%s\"\n\n[agent]\ntimeout_sec = 60\n\n"+
			"[verifier]\ntimeout_sec = 30\n\n[environment]\nnetwork_mode = \"no-network\"\nworkdir = \"/app\"\n", a.Name),
		"instruction.md":      []byte("Run the attack in a harness without guards.\n"),
		"tests/test.sh":       []byte("#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n"),
		"solution/solve.sh":   outer,
		"solution/harness.sh": harness,
		"solution/needs":      []byte(strings.Join(a.Needs, " ") + "\n"),
		"solution/how":        []byte(a.Unguarded + "\n"),
		"solution/secret":     []byte(s.secret + "\n"),
	}
	var variables strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.Variables)) {
		fmt.Fprintf(&variables, "export %s='%s'\n", name, strings.ReplaceAll(a.Variables[name], "'", `'\''`))
	}
	twin["solution/variables"] = []byte(variables.String())
	for p, text := range task {
		switch {
		case strings.HasPrefix(p, "environment/"):
			twin[p] = text
		case strings.HasPrefix(p, "solution/"):
			twin["solution/attack"+strings.TrimPrefix(p, "solution")] = text
		case strings.HasPrefix(p, "tests/"), strings.HasPrefix(p, "steps/"):
			twin["solution/"+p] = text
		}
	}
	return twin, nil
}

// put writes a file, which is executable if it is a program.
func put(file string, text []byte) error {
	mode := os.FileMode(0o644)
	if bytes.HasPrefix(text, []byte("#!")) || bytes.HasPrefix(text, []byte("\x7fELF")) {
		mode = 0o755
	}
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, text, mode)
	}
	return err
}

// Unguarded writes the experiment that shows that attacks succeed if nothing
// guards, and returns its file.
func (s *Suite) Unguarded() (string, error) {
	return s.experiment("unguarded", "", nil)
}

// Guarded writes the experiment that tries the attacks in each mode, but for
// those in without.
func (s *Suite) Guarded(without []string) (string, error) {
	return s.experiment("attacks", `  # snapshot-image is snapshot with the system files of the image.
  verify = split("-", matrix.mode)[0]
  system = matrix.mode == "snapshot-image" ? "image" : null

  # An agent that gets a second attempt has found a way around the first.
  retry {
    max  = 1
    wait = "0s"
  }

  matrix {
    mode = ["live", "restarted", "snapshot", "snapshot-image", "separate"]
  }
`, without)
}

func (s *Suite) experiment(name, settings string, without []string) (string, error) {
	exclude := ""
	if len(without) > 0 {
		var names []string
		for _, n := range without {
			names = append(names, strconv.Quote("*"+n))
		}
		exclude = "  exclude = [" + strings.Join(names, ", ") + "]\n"
	}
	file := filepath.Join(s.dir, name+".hcl")
	return file, os.WriteFile(file, fmt.Appendf(nil, `experiment "attest-%[1]s" {
  datasets    = [dataset.%[1]s]
  environment = environment.here
  agent       = agent.oracle
%[2]s}

dataset "%[1]s" {
  format = "harbor"
  path   = "./%[1]s"
%[3]s}

environment "here" {
  plugin = %[4]q
}

# An attack is the reference solution of its task.
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
`, name, settings, exclude, s.Environment), 0o600)
}

// TryOnHost runs an attack of the kind OnHost on the host, where it must
// succeed.
func (s *Suite) TryOnHost(ctx context.Context, a *Attack) (d Damage, err error) {
	for _, name := range a.Needs {
		if _, err = exec.LookPath(name); err != nil {
			return Damage{Missing: name}, nil //nolint:nilerr // it is not an error here
		}
	}
	app := filepath.Join(s.dir, "app")
	if err = os.MkdirAll(app, 0o700); err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "attacks", a.Name, "solution", "solve.sh"))
	cmd.Dir, cmd.Env = app, []string{"APP=" + app, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, failed := cmd.CombinedOutput(); failed != nil {
		return d, fmt.Errorf("attack %s on the host: %w: %s", a.Name, failed, out)
	}
	answer, err := os.ReadFile(filepath.Join(app, "answer"))
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	s.asked.Store(0) // only sandboxes must not reach the server
	d.Succeeded = strings.TrimSpace(string(answer)) == s.answer
	return d, err
}
