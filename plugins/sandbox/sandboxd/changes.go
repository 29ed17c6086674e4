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
	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/listing"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// turn describes the time in which an agent could change things. Guarded by
// daemon.mu.
type turn struct {
	mark  int64           // nanoseconds since 1970; 0: no agent was there yet
	files *listing.List   // of the system, as it was last; nil: it has not been listed
	uids  map[uint32]bool // user ids of commands of agents' sessions since the last Quiesce
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

// Mark lists the files of the system before an agent comes.
func (c *control) Mark(_ context.Context, q *pb.MarkRequest) (*pb.MarkReply, error) {
	defer pid1.BlockControl()()
	of, err := commands(q)
	if err != nil {
		return nil, err
	}
	now := changes.Moment()
	files, err := listing.Make(system.Find(of), min(q.GetMade(), c.d.born))
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.turn.mark, c.d.turn.files = now, files
	return &pb.MarkReply{}, err
}

// commands reads which files the commands of a verification use.
func commands(q *pb.MarkRequest) (of system.Commands, err error) {
	if of.Env, err = entries(q.GetEnv()); err != nil {
		return of, err
	}
	of.Dir, of.Programs, of.Work = path.Join("/", string(q.GetDir())), wire.Strings(q.GetPrograms()), wire.Strings(q.GetWork())
	return of, nil
}

// search begins a search for changes. It returns false if no agent was there
// yet.
func (d *daemon) search() (*changes.Search, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &changes.Search{After: d.turn.mark, Made: d.made}, d.turn.mark > 0
}

// Changes lists the files of the system again, and reports the differences.
func (c *control) Changes(_ context.Context, q *pb.ChangesRequest) (*pb.ChangesReply, error) {
	reply := &pb.ChangesReply{}
	c.d.mu.Lock()
	before, marked := c.d.turn.files, c.d.turn.mark > 0
	c.d.mu.Unlock()
	if !marked {
		return reply, nil
	}
	defer pid1.BlockControl()()
	if argv := q.GetArgv(); len(argv) > 0 {
		search, _ := c.d.search()
		c.d.named(&pb.ExecStart{Argv: argv}, search)
		reply.Files = wire.Bytes(search.Files)
		return reply, nil
	}
	if before != nil && !q.GetServicesOnly() {
		names, err := c.d.compare(before)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if slices.ContainsFunc(q.GetWithout(), func(dir []byte) bool { return strings.HasPrefix(name+"/", path.Clean(string(dir))+"/") }) {
				continue
			}
			if len(reply.Files) < changes.Most {
				reply.Files = append(reply.Files, []byte(name))
			} else {
				reply.More++
			}
		}
	}
	var err error
	reply.Services, err = c.d.suspects()
	return reply, err
}

// compare lists the files of the system again, and returns the differences. What the
// machine changed below an overlay is left out, and so are Python's caches of its own
// modules: those are removed, so that Python makes them anew from its modules.
func (d *daemon) compare(before *listing.List) (names []string, err error) {
	now, err := before.Again()
	if err != nil {
		return nil, err
	}
	removed := false
	for _, name := range before.Compare(now) {
		switch {
		case changes.OfMachine(name, d.made):
		case before.Cache(name):
			if err = os.RemoveAll(name); err != nil {
				return nil, err
			}
			removed = true
		default:
			names = append(names, name)
		}
	}
	if removed {
		if now, err = before.Again(); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	d.turn.files = now
	d.mu.Unlock()
	return names, nil
}

// altered compares the files that the command of a service names, and returns
// all files of the service that were ever found to have changed. A file that is
// gone has changed.
func (d *daemon) altered(s *service) []string {
	search, ok := d.search()
	if !ok {
		return nil
	}
	d.named(s.spec, search)
	return d.taint(s, search.Files)
}

// named compares the files that a command names, such as that of a service. If it can no
// longer be prepared, because its user or program is gone, it reports the command's
// first word as changed.
func (d *daemon) named(spec *pb.ExecStart, search *changes.Search) changes.Place {
	p, err := prepare(spec, defaults{dir: "/"})
	if err != nil {
		search.Gone(string(spec.GetArgv()[0]))
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
		m.Files = wire.Bytes(files)
		if m.Traceable || len(files) > 0 {
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
	place := d.named(s.spec, search)
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
