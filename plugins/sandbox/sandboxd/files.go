package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/passwd"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// in makes a path absolute.
func (h *shell) in(name []byte) string {
	n := string(name)
	if !strings.HasPrefix(n, "/") {
		n = h.defaults.dir + "/" + n
	}
	return path.Clean(n)
}

// Upload extracts a tar that the host made. It checks the names in it once
// more. Each file replaces the one with its name; Upload never writes through a
// link.
func (h *shell) Upload(st grpc.ClientStreamingServer[pb.UploadRequest, pb.UploadReply]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return fmt.Errorf("%w: the first message has no start", fault.ErrInvalid)
	}
	root, u, err := h.target(h.in(start.GetDir()), cmp.Or(start.GetUser(), h.defaults.user))
	if err != nil {
		return err
	}
	defer unix.Close(root) //nolint:errcheck // a folder that was only read
	data := &received{rest: first.GetData(), next: func() ([]byte, error) {
		m, end := st.Recv()
		return m.GetData(), end
	}}
	report, err := archive.Extract(root, data, archive.Extraction{
		Limits: archive.Limits{Bytes: start.GetMaxBytes(), Entries: start.GetMaxEntries()},
		Strict: true, Links: true, AnyTarget: true,
		Owned: true, UID: int(u.UID), GID: int(u.GID), Block: pid1.Block,
	})
	if err != nil {
		return err
	}
	return st.SendAndClose(&pb.UploadReply{Entries: report.Entries, Bytes: report.Bytes})
}

// target opens the folder of an upload and makes missing folders.
func (h *shell) target(dir, user string) (int, passwd.User, error) {
	defer pid1.Block()()
	u, err := passwd.Resolve(user)
	if err != nil {
		h.conn.s.starts(err)
		return -1, u, err
	}
	root, err := makeDir(dir, beneath.Owner{UID: int(u.UID), GID: int(u.GID)})
	return root, u, err
}

// makeDir opens an absolute folder, following links of the sandbox, and makes
// missing folders.
func makeDir(dir string, o beneath.Owner) (int, error) {
	missing := ""
	for at := dir; ; at = path.Dir(at) {
		fd, err := beneath.Dir(at)
		if err == nil {
			if missing == "" {
				return fd, nil
			}
			made, failed := beneath.MkdirAll(fd, missing, o)
			_ = unix.Close(fd)
			if failed != nil {
				return -1, fmt.Errorf("folder %q: %w", dir, failed)
			}
			return made, nil
		}
		if !errors.Is(err, syscall.ENOENT) || at == "/" {
			return -1, fmt.Errorf("folder %q: %w", dir, err)
		}
		missing = strings.TrimSuffix(path.Base(at)+"/"+missing, "/")
	}
}

// Download sends a file or folder. The host must not trust the stream.
func (h *shell) Download(q *pb.DownloadRequest, st grpc.ServerStreamingServer[pb.DownloadReply]) error {
	name := h.in(q.GetPath())
	dir, base, err := locate(name, q.GetFollow())
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	defer unix.Close(dir) //nolint:errcheck // a folder that was only read
	w := stream.Writer(func(b []byte) error { return st.Send(&pb.DownloadReply{Data: b}) })
	how := archive.Packing{Limits: archive.Limits{Bytes: q.GetMaxBytes(), Entries: q.GetMaxEntries()}, Block: pid1.Block, Special: true}
	if _, err = archive.Pack(w, dir, base, how); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return w.Flush()
}

// locate opens the folder that holds name and returns name's last part, or "."
// for a folder. With follow it follows links, up to the kernel's limit.
func locate(name string, follow bool) (dir int, base string, err error) {
	defer pid1.Block()()
	for range 40 { // the kernel's limit
		parent, last := path.Split(name)
		if last == "" {
			last = "."
		}
		if dir, err = beneath.Dir(parent); err != nil {
			return -1, "", err
		}
		var st unix.Stat_t
		if err = unix.Fstatat(dir, last, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			_ = unix.Close(dir)
			return -1, "", fault.Errno(err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK || !follow {
			return dir, last, nil
		}
		target, err := readlink(dir, last)
		_ = unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		if !strings.HasPrefix(target, "/") {
			target = parent + "/" + target
		}
		name = path.Clean(target)
	}
	return -1, "", fmt.Errorf("%w: too many links", fault.ErrUnsafe)
}

func readlink(dir int, name string) (string, error) {
	var b [4096]byte
	n, err := unix.Readlinkat(dir, name, b[:])
	if err != nil {
		return "", fault.Errno(err)
	}
	return string(b[:n]), nil
}

// Stat describes one file or folder.
func (h *shell) Stat(_ context.Context, q *pb.StatRequest) (*pb.StatReply, error) {
	name := h.in(q.GetPath())
	dir, base, err := locate(name, q.GetFollow())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	defer unix.Close(dir) //nolint:errcheck // a folder that was only read
	var st unix.Stat_t
	if err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fmt.Errorf("%q: %w", name, fault.Errno(err))
	}
	info := infoOf(&st)
	if info.GetKind() == "link" {
		target, err := readlink(dir, base)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		info.Target = []byte(target)
	}
	return &pb.StatReply{Info: info}, nil
}

func infoOf(st *unix.Stat_t) *pb.FileInfo {
	kind := "other"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = "file"
	case unix.S_IFDIR:
		kind = "folder"
	case unix.S_IFLNK:
		kind = "link"
	}
	return &pb.FileInfo{Kind: kind, Bytes: st.Size, Mode: st.Mode & 0o7777}
}

// maxRead is the largest number of bytes that Read returns, because its answer
// is one message.
const maxRead = 16 << 20

// Read reads a regular file for a session that grades, following no link in any
// part of its path.
func (h *shell) Read(_ context.Context, q *pb.ReadRequest) (*pb.ReadReply, error) {
	if !h.defaults.grading {
		return nil, fmt.Errorf("%w: read is for a session that grades", fault.ErrDenied)
	}
	return readRegular(q)
}

func readRegular(q *pb.ReadRequest) (*pb.ReadReply, error) {
	name := string(q.GetPath())
	if !strings.HasPrefix(name, "/") || path.Clean(name) != name || name == "/" {
		return nil, fmt.Errorf("%w: path %q is not absolute and clean", fault.ErrInvalid, name)
	}
	limit := q.GetMaxBytes()
	if limit < 1 || limit > maxRead {
		return nil, fmt.Errorf("%w: limit of %d bytes, want 1 to %d", fault.ErrInvalid, limit, maxRead)
	}
	defer pid1.BlockControl()()
	root, err := beneath.Dir("/")
	if err != nil {
		return nil, err
	}
	defer unix.Close(root) //nolint:errcheck // a folder that was only read
	fd, st, err := beneath.File(root, name[1:])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fault.Errno(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %d bytes or more, %d are allowed", fault.ErrTooLarge, max(st.Size, limit+1), limit)
	}
	return &pb.ReadReply{Data: data}, nil
}

// received is an io.Reader over received messages.
type received struct {
	next func() ([]byte, error)
	rest []byte
}

func (r *received) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		data, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = data
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
