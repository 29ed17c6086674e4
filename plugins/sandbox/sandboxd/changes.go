package sandboxd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/passwd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
)

// turn describes the time in which an agent could change things. Guarded by
// daemon.mu.
type turn struct {
	mark int64           // nanoseconds since 1970; 0: no agent was there yet
	uids map[uint32]bool // user ids of commands of agents' sessions since the last Quiesce
}

// born returns when this process began, before it wrote anything to the
// sandbox's file system, in nanoseconds since 1970, or 0 if that is unknown.
func born() int64 {
	self, ok := proc.Stat(os.Getpid())
	var boot, now unix.Timespec
	if !ok || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &now) != nil {
		return 0
	}
	const tick = 10 * time.Millisecond // of Started
	return now.Nano() - boot.Nano() + int64(self.Started)*int64(tick) - int64(2*tick)
}

// Mark records that the agent's turn begins.
func (c *control) Mark(context.Context, *pb.MarkRequest) (*pb.MarkReply, error) {
	now := changes.Moment()
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.turn.mark = now
	return &pb.MarkReply{}, nil
}

// search begins a search for changes. It returns false if no agent was there
// yet.
func (d *daemon) search() (*changes.Search, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &changes.Search{After: d.turn.mark, Born: d.born, Made: d.made}, d.turn.mark > 0
}

// Changes lists the files that changed after Mark among those that commands
// resolve to.
func (c *control) Changes(_ context.Context, q *pb.ChangesRequest) (*pb.ChangesReply, error) {
	reply := &pb.ChangesReply{}
	s, ok := c.d.search()
	if !ok {
		return reply, nil
	}
	defer pid1.BlockControl()()
	if !q.GetServicesOnly() {
		for _, f := range q.GetKnown() {
			s.Known = append(s.Known, known(f))
		}
		if err := c.d.resolve(s, q); err != nil {
			return nil, err
		}
		for _, f := range s.Read {
			reply.Read = append(reply.Read, imageFolder(f))
		}
		for _, name := range s.Files {
			reply.Files = append(reply.Files, []byte(name))
		}
		reply.More = int64(s.More)
	}
	var err error
	reply.Services, err = c.d.suspects()
	return reply, err
}

func known(f *pb.ImageFolder) changes.Folder {
	out := changes.Folder{Path: text(f.GetPath()), Inode: f.GetInode(), Ctime: f.GetCtime(), Links: map[string]string{}}
	words := strings.Split(text(f.GetLinks()), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		out.Links[words[i]] = words[i+1]
	}
	return out
}

func imageFolder(f changes.Folder) *pb.ImageFolder {
	out := &pb.ImageFolder{Path: []byte(f.Path), Inode: f.Inode, Ctime: f.Ctime}
	for name, target := range f.Links {
		out.Links = append(append(append(append(out.Links, name...), 0), target...), 0)
	}
	return out
}

// resolve compares the files that a command of q would resolve to.
func (d *daemon) resolve(s *changes.Search, q *pb.ChangesRequest) error {
	own, err := entries(q.GetEnv())
	if err != nil {
		return err
	}
	u, err := passwd.Resolve(q.GetUser())
	if err != nil {
		return err
	}
	for _, dir := range q.GetPlaced() {
		s.Placed = append(s.Placed, path.Clean(text(dir)))
	}
	dir := text(q.GetDir())
	if dir == "" {
		dir = "/"
	}
	env := environment([]string{"PATH=" + defaultPath, "HOME=" + u.Home}, own)
	s.Resolve(changes.Command{Home: variable(env, "HOME"), Dir: dir, Env: func(name string) string { return variable(env, name) }})
	for _, program := range q.GetPrograms() {
		at, err := lookPath(text(program), dir, env)
		if err != nil {
			continue // the attempt to start it will report this
		}
		if !path.IsAbs(at) {
			at = path.Join(dir, at)
		}
		s.Program(at)
	}
	return nil
}

// variable returns the value of the variable name in env.
func variable(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// altered compares the files that the command of a service names, and returns
// all files of the service that were ever found to have changed. A file that is
// gone has changed.
func (d *daemon) altered(s *service) []string {
	search, ok := d.search()
	if !ok {
		return nil
	}
	d.named(s, search)
	return d.taint(s, search.Files)
}

// named compares the files that the command of a service names. If the command
// can no longer be prepared, because its user or program is gone, it reports
// the command's first word as changed.
func (d *daemon) named(s *service, search *changes.Search) changes.Place {
	p, err := prepare(s.spec, defaults{dir: "/"})
	if err != nil {
		search.Gone(text(s.spec.GetArgv()[0]))
		return changes.Place{Dir: "/", Lookup: func(string) string { return "" }}
	}
	at := p.path
	if !path.IsAbs(at) {
		at = path.Join(p.attr.Dir, at)
	}
	place := changes.Place{Dir: p.attr.Dir, Lookup: func(word string) string {
		found, err := lookPath(word, p.attr.Dir, p.attr.Env)
		if err != nil {
			return ""
		}
		return found
	}}
	if _, there := search.File(at); !there {
		search.Gone(at)
	}
	search.Words(append([]string{at}, p.argv[1:]...), place)
	return place
}

// taint remembers that files of a service changed. They stay on the list even
// if the task itself changes them later.
func (d *daemon) taint(s *service, files []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range files {
		if !slices.Contains(s.altered, f) && len(s.altered) < changes.Most {
			s.altered = append(s.altered, f)
		}
	}
	return slices.Clone(s.altered)
}

// suspects returns the running services that an agent could have changed,
// through their files or by tracing them.
func (d *daemon) suspects() ([]*pb.ServiceChange, error) {
	d.mu.Lock()
	services := slices.Clone(d.services)
	d.mu.Unlock()
	if len(services) == 0 {
		return nil, nil
	}
	t, err := proc.List()
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", fault.Errno(err))
	}
	of := d.attribution(t)
	running := map[string][]proc.Detail{}
	for i := range t {
		if name := of(&t[i]).service; name != "" && !t[i].Zombie() {
			running[name] = append(running[name], proc.Look(t[i], false))
		}
	}
	var list []*pb.ServiceChange
	for _, s := range services {
		processes := running[s.name]
		if len(processes) == 0 {
			continue
		}
		m := &pb.ServiceChange{Name: s.name, Traceable: d.traceable(processes)}
		files := d.altered(s)
		for _, f := range d.runs(s, processes) {
			if !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
		for _, f := range files {
			m.Files = append(m.Files, []byte(f))
		}
		if m.Traceable || len(m.Files) > 0 {
			list = append(list, m)
		}
	}
	return list, nil
}

// runs compares the files that a service names, the files that its processes
// run, and the files that scripts among these name.
func (d *daemon) runs(s *service, processes []proc.Detail) []string {
	search, ok := d.search()
	if !ok {
		return nil
	}
	place := d.named(s, search)
	for _, p := range processes {
		if p.Executable != "" {
			search.Image(p.Executable)
		}
		argv := strings.Split(string(bytes.TrimRight(p.CommandLine, "\x00")), "\x00")
		search.Words(argv, changes.Place{Dir: p.Folder, Lookup: place.Lookup})
	}
	search.Follow(place)
	return search.Files
}

// traceable reports whether an agent's commands could trace one of the
// processes: they ran under its user id or root's, or could become root.
func (d *daemon) traceable(processes []proc.Detail) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.turn.uids) == 0 {
		return false
	}
	return d.turn.uids[0] || rootForAll() ||
		slices.ContainsFunc(processes, func(p proc.Detail) bool { return d.turn.uids[p.UID] })
}

// rootForAll reports whether the image has sudo or doas, with which its users
// may become root. su does not count: every image has it, and it asks for a
// password that no account has.
func rootForAll() bool {
	for dir := range strings.SplitSeq(defaultPath, ":") {
		for _, name := range []string{"sudo", "doas"} {
			var st unix.Stat_t
			if unix.Stat(path.Join(dir, name), &st) == nil && st.Mode&unix.S_ISUID != 0 && st.Uid == 0 {
				return true
			}
		}
	}
	return false
}
