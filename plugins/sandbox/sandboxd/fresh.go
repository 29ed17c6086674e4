package sandboxd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/passwd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
)

// Fresh creates each folder new. If it exists, it is moved aside with its
// content, so that a descriptor or a working folder in it does not lead to the
// new folder.
func (c *control) Fresh(_ context.Context, q *pb.FreshRequest) (*pb.FreshReply, error) {
	mode := cmp.Or(q.GetMode(), 0o755)
	defer pid1.BlockControl()()
	u, err := passwd.Resolve(q.GetUser())
	if err != nil {
		return nil, err
	}
	reply := &pb.FreshReply{}
	for _, b := range q.GetPaths() {
		name := string(b)
		if !strings.HasPrefix(name, "/") || path.Clean(name) != name || name == "/" || mode > 0o1777 {
			return nil, fmt.Errorf("%w: fresh folder %q of mode %#o: want an absolute, clean path and permission bits", fault.ErrInvalid, name, mode)
		}
		f := freshener{owner: beneath.Owner{UID: int(u.UID), GID: int(u.GID)}, mode: mode, reply: reply}
		if err := f.make(name); err != nil {
			return nil, fmt.Errorf("fresh folder %q: %w", name, fault.Errno(err))
		}
	}
	return reply, nil
}

type freshener struct {
	owner beneath.Owner
	mode  uint32
	reply *pb.FreshReply
}

// make creates one folder. Real folders above it stay. A link or file in place
// of a parent folder is moved aside.
func (f *freshener) make(name string) error {
	at, err := beneath.Dir("/")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	parts := strings.Split(name[1:], "/")
	for i, part := range parts {
		full := "/" + strings.Join(parts[:i+1], "/")
		last := i == len(parts)-1
		next, err := beneath.Open(at, part, unix.O_DIRECTORY|unix.O_PATH, 0)
		switch {
		case err == nil && !last:
			_ = unix.Close(at)
			at = next
			continue
		case err == nil:
			_ = unix.Close(next)
			err = f.away(at, part, full)
		case errors.Is(err, syscall.ENOENT):
			err = nil
		case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
			err = f.away(at, part, full)
		}
		if err != nil {
			return err
		}
		if next, err = f.folder(at, part, last); err != nil {
			return err
		}
		_ = unix.Close(at)
		at = next
	}
	return nil
}

// folder makes and opens one folder: the last part with the wanted owner and
// mode, parts above it as root's. It may exist already if it could not be
// moved.
func (f *freshener) folder(at int, part string, last bool) (int, error) {
	owner, mode := beneath.Owner{}, uint32(0o755)
	if last {
		owner, mode = f.owner, f.mode
	}
	if err := unix.Mkdirat(at, part, 0o700); err != nil && !errors.Is(err, syscall.EEXIST) {
		return -1, err
	}
	fd, err := beneath.Open(at, part, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return -1, err
	}
	// Set the owner before the mode, because chown clears the set-id bits.
	if err := errors.Join(owner.Chown(fd), unix.Fchmod(fd, mode)); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// asideTries limits the search for a free name.
const asideTries = 8

// away moves part aside to a random name, so that no program can have taken the
// name before. A mount point cannot be moved, so it is emptied.
func (f *freshener) away(at int, part, full string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, part, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	moved := &pb.FreshReply_Moved{Path: []byte(full), Kind: infoOf(&st).GetKind()}
	if moved.GetKind() == "folder" {
		n, err := entriesOf(at, part)
		if err != nil {
			return err
		}
		moved.Entries = n
		if n == 0 && unix.Unlinkat(at, part, unix.AT_REMOVEDIR) == nil {
			return nil // an empty folder need not be reported
		}
	}
	for range asideTries {
		// A part may be as long as the longest name, so it is cut.
		aside := fmt.Sprintf("%.200s.aside-%s", part, rand.Text())
		err := unix.Renameat2(at, part, at, aside, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			moved.Aside = []byte(path.Join(path.Dir(full), aside))
			f.reply.Moved = append(f.reply.Moved, moved)
			return nil
		case errors.Is(err, syscall.EEXIST):
			continue
		case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV):
			if moved.GetKind() != "folder" {
				return err
			}
			if moved.GetEntries() > 0 {
				f.reply.Moved = append(f.reply.Moved, moved)
			}
			return empty(at, part, 0)
		default:
			return err
		}
	}
	return fmt.Errorf("%w: no free name to move %q aside", fault.ErrExists, full)
}

func entriesOf(at int, part string) (int64, error) {
	fd, err := beneath.Open(at, part, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	d := os.NewFile(uintptr(fd), part)
	defer d.Close()
	names, err := d.Readdirnames(100_000) // a larger number makes no difference
	if len(names) == 0 && err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return int64(len(names)), nil
}

// empty removes the contents of a folder.
func empty(at int, part string, depth int) error {
	if depth > 256 {
		return fmt.Errorf("%w: too deep to be emptied", fault.ErrUnsafe)
	}
	fd, err := beneath.Open(at, part, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), part)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil { // what is left of the folder would be taken for what is made from now on
		return err
	}
	for _, n := range names {
		err = unix.Unlinkat(fd, n, 0)
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
			if err = empty(fd, n, depth+1); err == nil {
				err = unix.Unlinkat(fd, n, unix.AT_REMOVEDIR)
			}
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}
