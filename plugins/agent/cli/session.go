package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// session is one CLI in one sandbox.
type session struct {
	scaffold Scaffold
	settings Settings
	setup    agent.Setup
	model    model.Endpoint
	shell    sandbox.Shell
	close    func() error
	book     *Transcript
	events   Events        // of this turn
	dialog   Dialog        // instead of events
	program  *program      // the running CLI of the dialog; nil: it does not run
	patience time.Duration // instead of stopTime, unless it is 0

	// unheard are messages that the CLI may not have stored, because it was cut off
	// before it named its session or before its model said anything. They are said
	// again with the next one, in a new session.
	unheard string
	cut     bool // the turn was cut off

	mu     sync.Mutex // held by a call
	image  image
	looked bool
	turns  int
}

// image is what the sandbox provides.
type image struct {
	home   bool   // $HOME is there and can be written to
	tmp    bool   // $TMPDIR, or /tmp, can be written to
	shell  string // a bash
	direct string // hosts reached without a proxy
	// skills are the folders with a SKILL.md: those that the task names, and
	// their subfolders.
	skills []string
}

// look is a shell script that prints what the image has, one word per line. The
// shell comes from the bundle or the image.
const look = `[ -n "$HOME" ] && [ -d "$HOME" ] && [ -w "$HOME" ] && echo home
[ -d "${TMPDIR:-/tmp}" ] && [ -w "${TMPDIR:-/tmp}" ] && echo tmp
echo "direct ${NO_PROXY:-$no_proxy}"
for d in /bin /usr/bin /usr/local/bin; do [ -x "$d/bash" ] && echo "bash $d/bash" && break; done
for d; do for f in "$d"/SKILL.md "$d"/*/SKILL.md; do [ -f "$f" ] && echo "skill ${f%/SKILL.md}"; done; done
exit 0`

// see finds out what the image has. Without any shell it assumes nothing.
func (s *session) see(ctx context.Context) error {
	if s.looked {
		return nil
	}
	shells := []string{"/bin/sh"}
	if _, ok := s.scaffold.Recipe.Links["bash"]; ok {
		shells = []string{Bash, "/bin/sh"}
		s.image.shell = Bash
	}
	for _, sh := range shells {
		var out bytes.Buffer
		_, err := s.shell.Exec(ctx, sandbox.Command{Argv: append([]string{sh, "-c", look, "sh"}, s.setup.Skills...), Stdout: &out})
		if errors.Is(err, sandbox.ErrNoProgram) || errors.Is(err, sandbox.ErrDenied) {
			continue
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(out.String()) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "home":
				s.image.home = true
			case "tmp":
				s.image.tmp = true
			case "direct":
				s.image.direct = rest
			case "bash":
				s.image.shell = rest
			case "skill":
				s.image.skills = append(s.image.skills, rest)
			}
		}
		break
	}
	s.looked = true
	return nil
}

// Turn implements agent.Session.
func (s *session) Turn(ctx context.Context, m agent.Message, rec agent.Recorder) (agent.Yield, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turns := s.turns
	m.Text, s.cut = s.unheard+m.Text, false
	y, err := s.turn(ctx, m, rec)
	s.unheard = ""
	if cut := s.cut || ctx.Err() != nil; cut && s.dialog == nil && (s.book.Session == "" || s.book.silent()) {
		s.turns, s.unheard, s.book.Session = turns, m.Text+"\n\n", ""
	}
	return y, err
}

// turn is Turn for a CLI that knows all earlier messages.
func (s *session) turn(ctx context.Context, m agent.Message, rec agent.Recorder) (agent.Yield, error) {
	if err := s.see(ctx); err != nil {
		return agent.Yield{}, s.over(ctx, err)
	}
	s.turns++
	r := &Run{
		Settings: &s.settings, Model: s.model, URL: strings.TrimSuffix(s.model.Inside, "/"), Message: m.Text, Turn: s.turns, Time: m.Time,
		Session: s.book.Session, Workdir: s.setup.Workdir, Shell: s.image.shell, Direct: s.direct(), Servers: s.settings.servers(s.supported(s.setup.Servers)),
	}
	var own []string
	for _, name := range slices.Sorted(maps.Keys(s.settings.Skills)) {
		own = append(own, Home+"/"+skillsDir+"/"+name)
	}
	r.Skills = slices.Concat(s.image.skills, own)
	if s.turns == 1 {
		r.Message = m.Text
		if !slices.Contains(s.scaffold.Knobs, Skills) { // the core has added the skills of the task
			r.Message += agent.Told(nil, own)
		}
		if err := s.prior(r); err != nil {
			return agent.Yield{}, err
		}
	}
	r.Message = plain(r.Message)
	start, err := s.scaffold.Start(r)
	if err = cmp.Or(err, start.err); err != nil {
		return agent.Yield{}, err
	}
	if err = s.upload(ctx, append(s.settings.skillFiles(), start.Files...)); err != nil {
		return agent.Yield{}, s.over(ctx, err)
	}
	s.book.begin(rec)
	if s.dialog == nil {
		s.events = s.scaffold.Events(s.book)
	}
	y, exit, err := s.work(ctx, start, r, rec)
	switch {
	case ctx.Err() != nil:
		// The caller is gone. Close records the open step.
		return agent.Yield{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrRevoked), errors.Is(err, sandbox.ErrGone):
		// Access may be cut a moment before ctx ends.
		s.cut = true
		return exit.cutOff(s.book.words()), nil
	case err != nil && !errors.Is(err, agent.ErrModel):
		return agent.Yield{}, err
	case s.book.err != nil:
		return agent.Yield{}, s.book.err
	}
	return y, err
}

// prior reads the trajectory that the session continues from.
func (s *session) prior(r *Run) error {
	if s.setup.Prior == "" || !s.scaffold.Prior {
		return nil
	}
	b, err := os.ReadFile(s.setup.Prior) // of the core, or of the user, where it may be a link
	if err != nil {
		return fmt.Errorf("trajectory to continue from: %w", err)
	}
	t, problems := trajectory.Parse(b)
	if len(problems) > 0 {
		return fmt.Errorf("%w: the trajectory to continue from is not valid: %s: %s", agent.ErrBadConfig, problems[0].Path, problems[0].Message)
	}
	r.Prior = t
	return nil
}

// work runs one turn of the CLI and returns how it ended. It records the open
// step unless the turn was cut off.
func (s *session) work(ctx context.Context, start Start, r *Run, rec agent.Recorder) (y agent.Yield, exit Exit, err error) {
	if s.dialog != nil {
		y, exit, err = s.converse(ctx, start, r, rec)
	} else {
		exit, err = s.run(ctx, start, rec)
	}
	switch {
	case ctx.Err() != nil:
		return y, exit, err
	case errors.Is(err, errSteps):
		y, err = agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("the limit of %d steps is reached", s.setup.Limits.MaxSteps)}, nil
	case errors.Is(err, sandbox.ErrNoProgram), errors.Is(err, sandbox.ErrDenied):
		y, err = agent.Yield{End: agent.Crashed, Reason: "the CLI cannot be started: " + err.Error()}, nil
	case err != nil && !errors.Is(err, agent.ErrModel):
		return y, exit, err
	case s.dialog == nil:
		s.book.end()
		y, err = s.events.End(exit)
		return y, exit, err
	}
	s.book.end()
	return y, exit, err
}

// over returns the cause of the end of a turn, or else err.
func (s *session) over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// supported returns the servers that the CLI can be configured with. The core has told
// the model about the others.
func (s *session) supported(servers []agent.Server) []agent.Server {
	return slices.DeleteFunc(slices.Clone(servers), func(m agent.Server) bool { return !slices.Contains(s.scaffold.transports(), m.Transport) })
}

// plain returns the message in a form that no CLI takes for one of its own
// commands. Most look for a slash at the start of the text, and some skip white
// space before it.
func plain(message string) string {
	if strings.HasPrefix(strings.TrimSpace(message), "/") {
		return "Message:\n" + message
	}
	return message
}

// upload writes files below Home, which belongs to the session's user.
func (s *session) upload(ctx context.Context, files []File) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	made := map[string]bool{}
	folder := func(name string) error {
		if made[name] {
			return nil
		}
		made[name] = true
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755})
	}
	base := path.Base(Home)
	if err := errors.Join(folder(base), folder(base+"/tmp")); err != nil {
		return err
	}
	for _, f := range files {
		name := path.Join(base, f.Path)
		if name != base+"/"+f.Path {
			return fmt.Errorf("file %q is not below the agent's folder", f.Path)
		}
		parts := strings.Split(f.Path, "/")
		for i := range parts[1:] {
			if err := folder(base + "/" + path.Join(parts[:i+1]...)); err != nil {
				return err
			}
		}
		head := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(f.Data))}
		if f.Link != "" {
			head = tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.Link, Mode: 0o777}
		}
		if err := t.WriteHeader(&head); err != nil {
			return err
		}
		if f.Link == "" {
			if _, err := t.Write([]byte(f.Data)); err != nil {
				return err
			}
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return s.shell.Upload(ctx, path.Dir(Home), &b, sandbox.UploadOptions{User: s.setup.User})
}

// environ returns the variables that the CLI gets in addition to those of the
// session: for what the image lacks, from the declaration, and from the
// settings.
func (s *session) environ(start Start) []string {
	env := map[string]string{}
	if !s.image.home {
		env["HOME"] = Home
	}
	if !s.image.tmp {
		env["TMPDIR"] = Home + "/tmp"
	}
	env["NO_PROXY"] = s.direct()
	env["no_proxy"] = env["NO_PROXY"]
	maps.Copy(env, start.Env)
	maps.Copy(env, s.settings.Env)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// direct returns the hosts that the CLI reaches without the image's proxy: the
// image's own list, and the model.
func (s *session) direct() string {
	return strings.TrimSuffix("127.0.0.1,localhost,"+s.image.direct, ",")
}

// run starts the CLI and reads its output until it exits.
func (s *session) run(ctx context.Context, start Start, rec agent.Recorder) (exit Exit, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.book.most = s.setup.Limits.MaxSteps
	s.book.whole = func() {
		if s.book.spent() {
			cancel(errSteps)
		}
	}
	if s.book.spent() {
		return exit, errSteps
	}
	out, err := s.keep(rec, "stdout.jsonl")
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	errs, err := s.keep(rec, "stderr.txt")
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, errs.close()) }()
	split := &lines{each: s.events.Line}
	command := sandbox.Command{
		Argv: append(slices.Clone(start.Argv), s.settings.Args...), Env: s.environ(start), Dir: s.setup.Workdir, User: s.setup.User,
		Stdin: strings.NewReader(start.Stdin), Stdout: io.MultiWriter(split, out), Stderr: errs,
	}
	exit.Result, err = s.shell.Exec(ctx, command)
	split.end()
	if errors.Is(context.Cause(ctx), errSteps) {
		err = errSteps
	}
	exit.Output, exit.Errors = string(split.tail), errs.last()
	return exit, err
}

// Close implements agent.Session. It records the open step of a CLI that was
// killed.
func (s *session) Close(_ context.Context, _ string, rec agent.Recorder) error {
	s.mu.Lock() // a cancelled turn may still be returning
	defer s.mu.Unlock()
	s.book.resume(rec)
	s.book.end()
	return s.close()
}
