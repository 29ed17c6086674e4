package inside

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// The descriptors of a process that exports, and the argument that makes
// local-init one.
const (
	ExportStaging = Channel + 2 // the staging folder of the sandbox; Channel is where the archive comes from
	ExportWord    = "export"
)

// What an archive of a snapshot says about an entry, as records of a PAX header.
const (
	paxRemoved = "BERTH.removed" // it does not exist, though the host's folder has it
	paxOpaque  = "BERTH.opaque"  // nothing of the host's folder shows in it
)

// What an export that fails writes to its standard error begins with one of
// these.
const (
	ExportError    = "export: "
	ExportTooLarge = "too large: "
)

// ErrTooLarge means that there is more in a sandbox than an archive of Export holds:
// files are larger than its limit, or a path is longer than maxName.
var ErrTooLarge = errors.New("too large")

// maxName is the longest name of an entry, in bytes: a longer one is too long for
// the kernel when it is unpacked below "/". It also bounds the archive, because
// folders may lie in each other as deep as a sandbox likes.
const maxName = unix.PathMax - 2

// Export writes everything that was written in a sandbox to an archive, for the
// Plan.Snapshot of another sandbox. Its processes must be stopped. It reads the
// layers below the mounts, so mounts that were made in the sandbox do not
// matter. It runs with the ids of the sandbox in its own user namespace,
// in the host's mount namespace; nothing that it reads is followed as a link.
// targets are those of Plan.Targets. It fails if the content of files is more
// than limit bytes.
func Export(targets []string, limit int64) error {
	staging, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", ExportStaging))
	if err != nil {
		return err
	}
	defer staging.Close()
	to, err := receive()
	if err != nil {
		return fmt.Errorf("wait for the archive: %w", err)
	}
	out := bufio.NewWriterSize(to, 256<<10)
	x := &exporter{tar: tar.NewWriter(out), left: limit, limit: limit, links: archive.Links{}}
	if err := x.layer(staging, root, "", append(slices.Clone(targets), "dev", "proc", "berth", strings.TrimPrefix(mountHall, "/"))); err != nil {
		return err
	}
	for i, target := range targets {
		if err := x.layer(staging, upper(i), target, nil); err != nil {
			return err
		}
	}
	return errors.Join(x.tar.Close(), out.Flush())
}

// receive waits for the descriptor of the archive, which is sent when the processes
// of the sandbox are stopped.
func receive() (*os.File, error) {
	data, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(Channel, data, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			return nil, errors.Join(errors.New("no descriptor was sent"), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			return nil, errors.Join(errors.New("no descriptor was sent"), err)
		}
		return os.NewFile(uintptr(fds[0]), "archive"), nil
	}
}

// upper returns the name of the upper folder of a layer.
func upper(i int) string { return fmt.Sprintf("u%d", i) }

type exporter struct {
	tar         *tar.Writer
	left, limit int64
	links       archive.Links
}

// layer writes the content of the folder from as that of the folder to, without
// the names in skip, which are relative to from.
func (x *exporter) layer(staging *os.Root, from, to string, skip []string) error {
	r, err := staging.OpenRoot(from)
	if err != nil {
		return err
	}
	defer r.Close()
	return x.folder(r, ".", to, skip)
}

// folder writes the content of the folder name below r.
func (x *exporter) folder(r *os.Root, name, to string, skip []string) error {
	f, err := r.Open(name)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		at := path.Join(name, n)
		if slices.Contains(skip, at) {
			continue
		}
		if err := x.entry(r, at, path.Join(to, n)); err != nil {
			return err
		}
	}
	return nil
}

// entry writes one entry, and the content of a folder.
func (x *exporter) entry(r *os.Root, name, as string) error {
	if len(as) > maxName {
		return fmt.Errorf("%w: the path %.100q… has more than %d bytes, which is the most that a snapshot holds", ErrTooLarge, as, maxName)
	}
	info, err := r.Lstat(name)
	if err != nil {
		return err
	}
	h, st, err := archive.Entry(as, info)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag = tar.TypeDir
		if opaque(r, name) {
			h.PAXRecords[paxOpaque] = "y"
		}
		if err = x.tar.WriteHeader(h); err != nil {
			return err
		}
		return x.folder(r, name, as, nil)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = r.Readlink(name); err != nil {
			return err
		}
	case mode&fs.ModeCharDevice != 0 && st.Rdev == 0: // how an overlay marks what was removed
		h.Typeflag, h.PAXRecords[paxRemoved] = tar.TypeReg, "y"
	case mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
	case mode.IsRegular():
		return x.file(r, name, h, st)
	default:
		return nil // a socket, whose process is gone
	}
	return x.tar.WriteHeader(h)
}

// file writes a regular file, or another name of one that was written.
func (x *exporter) file(r *os.Root, name string, h *tar.Header, st *syscall.Stat_t) error {
	if x.links.Again(h, st) {
		return x.tar.WriteHeader(h)
	}
	if x.left -= st.Size; x.left < 0 {
		return fmt.Errorf("%w: the files that were written in the sandbox are larger than %d MiB, which is the most that a snapshot holds", ErrTooLarge, x.limit>>20)
	}
	f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err = x.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(x.tar, f, st.Size)
	return err
}

// opaque reports whether a folder of an upper layer hides that of the host.
func opaque(r *os.Root, name string) bool {
	f, err := r.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var value [1]byte
	n, err := unix.Fgetxattr(int(f.Fd()), "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
