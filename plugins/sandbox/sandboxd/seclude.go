package sandboxd

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
)

// secluded is where the commands of sessions that grade work, if Seclude was
// called.
type secluded struct {
	chamber *pid1.Chamber // nil: there can be none here

	mu     sync.Mutex
	active bool
	since  int64 // the moment from which ChangesRequest.since_seclude counts
}

// in returns the chamber in which a command that grades is to be started, or nil.
func (s *secluded) in() *pid1.Chamber {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return nil
	}
	return s.chamber
}

// Seclude makes folders private to commands that grade.
func (c *control) Seclude(_ context.Context, q *pb.SecludeRequest) (*pb.SecludeReply, error) {
	var paths []string
	for _, b := range q.GetPaths() {
		name := text(b)
		if !strings.HasPrefix(name, "/") || path.Clean(name) != name || name == "/" {
			return nil, fmt.Errorf("%w: secluded folder %q: want an absolute, clean path", fault.ErrInvalid, name)
		}
		paths = append(paths, name)
	}
	defer pid1.BlockControl()()
	s := &c.d.secluded
	s.mu.Lock()
	defer s.mu.Unlock()
	beneath.View(nil)
	s.active = false
	if s.chamber == nil {
		return nil, fmt.Errorf("seclude: %w: sandboxd may not mount here", fault.ErrUnsupported)
	}
	if err := s.chamber.Leave(); err != nil || len(paths) == 0 {
		return &pb.SecludeReply{}, err
	}
	t := tree{secret: map[string]bool{}, above: map[string]bool{}}
	for _, name := range paths {
		t.secret[name] = true
		for up := path.Dir(name); up != "/"; up = path.Dir(up) {
			t.above[up] = true
		}
	}
	if err := s.chamber.Renew(t.build); err != nil {
		return nil, fmt.Errorf("seclude: %w", fault.Errno(err))
	}
	beneath.View(s.chamber.Do)
	s.active, s.since = true, changes.Moment()
	return &pb.SecludeReply{}, nil
}

// disturbed lists what changed since Seclude, as the sandbox's own namespace shows
// it: the secluded folders are not there.
func (c *control) disturbed() (*pb.ChangesReply, error) {
	s := &c.d.secluded
	s.mu.Lock()
	active, since := s.active, s.since
	s.mu.Unlock()
	if !active {
		return nil, fmt.Errorf("%w: nothing is secluded", fault.ErrInvalid)
	}
	defer pid1.BlockControl()()
	search := &changes.Search{After: since, Born: c.d.born}
	if err := search.Everything(); err != nil {
		return nil, fmt.Errorf("look for changes: %w", fault.Errno(err))
	}
	reply := &pb.ChangesReply{More: int64(search.More)}
	for _, name := range search.Files {
		reply.Files = append(reply.Files, []byte(name))
	}
	return reply, nil
}

// tree builds the file system of a chamber: a tmpfs with the secluded folders and
// all folders above them, in which everything else is mounted from the sandbox.
//
// A mount on a folder of the sandbox would not do. Who may rename or remove that
// folder in the sandbox's namespace moves, or ends, the mount in all others.
type tree struct {
	secret, above map[string]bool
	entries       int
}

// maxMounts is the largest number of entries of the folders above the secluded
// ones, each of which is mounted.
const maxMounts = 1000

func (t *tree) build() error {
	top, err := private()
	if err != nil {
		return err
	}
	defer unix.Close(top) //nolint:errcheck // a folder that was only entered
	// Mounted over the root, it is reached through its descriptor alone.
	if err = unix.MoveMount(top, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	if err = unix.Fchdir(top); err != nil {
		return err
	}
	if err = t.folder("/", "."); err != nil {
		return err
	}
	for name := range t.secret {
		var st unix.Stat_t
		if err = unix.Lstat("."+name, &st); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err = unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err = unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the sandbox's root: %w", err)
	}
	return unix.Chdir("/")
}

// private makes a tmpfs that holds as much as half of the sandbox's root, or of the
// machine's memory if that is less, and is mounted nowhere yet.
func private() (int, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		return -1, err
	}
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return -1, err
	}
	size := min(fs.Blocks*uint64(fs.Bsize), machine.Totalram*uint64(machine.Unit)) / 2
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a tmpfs: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	for key, value := range map[string]string{"mode": "0755", "size": fmt.Sprint(size), "source": "berth"} {
		if err = unix.FsconfigSetString(fd, key, value); err != nil {
			return -1, fmt.Errorf("make a tmpfs with %s=%s: %w", key, value, err)
		}
	}
	if err = unix.FsconfigCreate(fd); err != nil {
		return -1, fmt.Errorf("make a tmpfs: %w", err)
	}
	return unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
}

// folder fills to, a path below the working folder, with the entries of from. What
// the sandbox renames meanwhile is left out, or is there under its new name: it
// decides about these entries in any case.
func (t *tree) folder(from, to string) error {
	if err := like(from, to); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if t.entries += len(entries); t.entries > maxMounts {
		return fmt.Errorf("%w: %s and the other folders above those that are secluded have more than %d entries", fault.ErrNoRoom, from, maxMounts)
	}
	for _, e := range entries {
		source, target := path.Join(from, e.Name()), to+"/"+e.Name()
		switch {
		case t.secret[source]:
			if err = os.Mkdir(target, 0o700); err == nil {
				err = like(source, target)
			}
		case t.above[source]:
			if err = os.Mkdir(target, 0o700); err == nil {
				err = t.folder(source, target)
			}
		case e.Type()&os.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(source); err == nil {
				err = os.Symlink(link, target)
			}
		default:
			err = bind(source, target, e.IsDir())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// like gives a folder the owner and the permissions of another.
func like(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("%w: %q is not a folder", fault.ErrUnsafe, from)
	}
	owner := beneath.Owner{UID: int(st.Uid), GID: int(st.Gid)}
	if err := owner.Restore(unix.AT_FDCWD, to); err != nil {
		return err
	}
	return unix.Chmod(to, st.Mode&0o7777)
}

// bind mounts a file or folder, with all that is mounted below it.
func bind(from, to string, folder bool) error {
	var err error
	if folder {
		err = os.Mkdir(to, 0o700)
	} else {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err = unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", from, err)
	}
	return nil
}
