package maker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/inside"
	"github.com/berth-eval/berth/environments/local/internal/uplink"
)

// fresh are the folders of a sandbox that contain nothing of the host, parents
// first.
var fresh = []inside.Folder{
	{Path: "tmp", Mode: 0o1777},
	{Path: "app", Mode: 0o755},
	{Path: "home", Mode: 0o755},
	{Path: "root", Mode: 0o700},
	{Path: "var", Mode: 0o755},
	{Path: "var/tmp", Mode: 0o1777},
	{Path: "var/log", Mode: 0o755},
	{Path: "var/lib", Mode: 0o755},
	{Path: "var/lib/dpkg", Mode: 0o755},
	{Path: "var/lib/dpkg/info", Mode: 0o755},
	{Path: "var/lib/dpkg/updates", Mode: 0o755},
	{Path: "var/cache", Mode: 0o755},
	{Path: "var/spool", Mode: 0o755},
	{Path: "var/mail", Mode: 0o755},
	{Path: "run", Mode: 0o755},
	{Path: "run/lock", Mode: 0o1777},
	{Path: "logs", Mode: 0o755},
	{Path: "logs/agent", Mode: 0o755},
	{Path: "logs/verifier", Mode: 0o755},
	{Path: "logs/artifacts", Mode: 0o755},
	{Path: "tests", Mode: 0o755},
	{Path: "solution", Mode: 0o755},
	{Path: "opt", Mode: 0o755},
	{Path: "srv", Mode: 0o755},
	{Path: "mnt", Mode: 0o755},
	{Path: "media", Mode: 0o755},
}

// IsFresh reports whether an absolute path inside is one of those folders.
func IsFresh(path string) bool {
	for _, f := range fresh {
		if "/"+f.Path == path {
			return true
		}
	}
	return false
}

// host is the part of this machine that all sandboxes see.
type host struct {
	staging  string // an existing folder
	etc      *base.Copy
	folders  []string // visible, relative to the root, parents first: usr, and for root usr/local if that is a mount
	links    []inside.Link
	divided  map[string]division   // by folder; none if it is one layer
	cover    map[string]*base.Copy // by folder; none if there is nothing to hide
	skeleton map[string]*base.Copy // by folder; none if the folder's ids can be shifted
	beside   map[string]*base.Copy // by folder: the files beside its mounts; none if it is one layer
}

func (h *host) close() error {
	errs := []error{h.etc.Close()}
	for _, copies := range []map[string]*base.Copy{h.cover, h.skeleton, h.beside} {
		for _, c := range copies {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// openHost inspects this machine and makes the copies. It is slow the first
// time on a machine: the skeleton takes seconds.
func (m *Maker) openHost() (*host, error) {
	h, err := m.lookAround()
	if err != nil {
		return nil, err
	}
	state, err := m.state()
	if err != nil {
		return nil, err
	}
	shift, end, err := m.shifter()
	if err != nil {
		return nil, err
	}
	defer end()
	m.sweep(state)
	err = state.UseBase(func(dir string) error {
		if noShift := shift.needs(dir); noShift != nil {
			return noShift
		}
		return h.copy(state, shift)
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// copy makes the copies of the host in the folder that state uses.
func (h *host) copy(state *base.State, shift *shifter) (err error) {
	h.cover, h.skeleton, h.beside = map[string]*base.Copy{}, map[string]*base.Copy{}, map[string]*base.Copy{}
	if h.etc, err = state.Etc("/etc"); err != nil {
		return err
	}
	for _, f := range h.folders {
		if err = h.copyFolder(f, state, shift); err != nil {
			return errors.Join(err, h.close())
		}
	}
	return nil
}

func (h *host) copyFolder(f string, state *base.State, shift *shifter) error {
	keep := func(copies map[string]*base.Copy, c *base.Copy, err error) error {
		if c != nil {
			copies[f] = c
		}
		return err
	}
	hidden, err := state.Hidden("/" + f)
	if err != nil {
		return err
	}
	c, err := state.Cover("/"+f, hidden)
	if err = keep(h.cover, c, err); err != nil {
		return err
	}
	if d, ok := h.divided[f]; ok {
		c, err = state.Beside("/"+f, d.above, hidden)
		if err = keep(h.beside, c, err); err != nil {
			return err
		}
	}
	ok, err := shift.can("/" + f)
	if err != nil || ok {
		return err
	}
	c, err = state.Skeleton("/" + f)
	return keep(h.skeleton, c, err)
}

// shifter reports which folders' ids can be shifted into a sandbox.
type shifter struct{ ns *os.File } // a user namespace; nil: no ids are shifted

// shifter makes a shifter. For users other than the host's root it shifts
// nothing.
func (m *Maker) shifter() (s *shifter, end func(), err error) {
	if m.process.Mode != ids.RealRoot {
		return &shifter{}, func() {}, nil
	}
	first, err := m.start(nil)
	if err != nil {
		return nil, nil, err
	}
	ns, err := first.userNamespace()
	if err != nil {
		first.end()
		return nil, nil, err
	}
	return &shifter{ns}, func() {
		_ = ns.Close()
		first.end()
	}, nil
}

// can reports whether ids of dir can be shifted. An error means that nothing can be
// mounted.
func (s *shifter) can(dir string) (bool, error) {
	if s.ns == nil {
		return false, nil
	}
	fd, err := shifted(dir, s.ns, true)
	switch {
	case errors.Is(err, errNoShift):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, unix.Close(fd)
}

// needs refuses a folder for copies if ids must be shifted and its ids cannot
// be.
func (s *shifter) needs(dir string) error {
	ok, err := s.can(dir)
	if err == nil && !ok && s.ns != nil {
		err = fmt.Errorf("%s: %w", dir, errNoShift)
	}
	return err
}

// lookAround finds the visible folders. It makes nothing.
func (m *Maker) lookAround() (h *host, err error) {
	h = &host{divided: map[string]division{}}
	for _, dir := range []string{"/tmp", "/mnt", "/var/tmp", "/run"} {
		if info, lookErr := os.Lstat(dir); lookErr == nil && info.IsDir() {
			h.staging = dir
			break
		}
	}
	if h.staging == "" {
		return nil, errors.New("this machine has no /tmp")
	}
	if h.folders, h.links, err = visible("/"); err != nil {
		return nil, err
	}
	points, err := mountsBelow(h.folders)
	if err != nil {
		return nil, err
	}
	if m.process.Mode == ids.RealRoot {
		// It can clone a folder without the mounts below. A folder that is a mount
		// is then one layer more, and only files need a division.
		points = slices.DeleteFunc(points, func(p string) bool {
			folder, shown := look(p)
			if folder && shown {
				h.folders = append(h.folders, p)
			}
			return folder
		})
	}
	for _, f := range h.folders {
		if d := divide("/"+f, within(f, points)); len(d.above) > 0 {
			h.divided[f] = d
		}
	}
	return h, nil
}

// visible finds /usr, /bin, /lib and so on below top. On a merged system they
// are links into /usr; on an old one they are folders, and so separate layers.
func visible(top string) (folders []string, links []inside.Link, err error) {
	folders = []string{"usr"}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		at := filepath.Join(top, name)
		info, lookErr := os.Lstat(at)
		switch {
		case os.IsNotExist(lookErr):
		case lookErr != nil:
			return nil, nil, lookErr
		case info.Mode()&os.ModeSymlink != 0:
			target, linkErr := os.Readlink(at)
			if linkErr != nil {
				return nil, nil, linkErr
			}
			links = append(links, inside.Link{Name: name, Target: strings.TrimPrefix(target, "/")})
		default:
			folders = append(folders, name)
		}
	}
	return folders, links, nil
}

// plan describes the parts of the sandbox. The caller owns the descriptors.
func (m *Maker) plan(s *started, h *host, o Order) (p *inside.Plan, fds []int, err error) {
	p = &inside.Plan{
		Outside: m.outside, Nested: m.process.Nested, Staging: h.staging, Links: h.links, Fresh: fresh, Host: cmp.Or(o.Host, "berth"),
		SizeMiB: o.SizeMiB, ShmMiB: o.ShmMiB, Nproc: uint64(max(0, o.Nproc)), PtsGroup: m.process.Mode.Many(),
		Workdir: o.Workdir, Probe: o.probe, Break: o.breakAt,
	}
	if o.Public {
		p.Nameserver = uplink.Nameserver
	}
	src := sourcer{}
	defer func() {
		if err != nil {
			closeAll(src.fds)
		}
	}()
	if m.process.Mode == ids.RealRoot {
		// Ids are shifted into the sandbox's range by separate mounts of the
		// host's folders for each sandbox. There root owns /usr, so /usr is
		// writable (in the overlay) without a skeleton, and setuid programs
		// work. The sandbox's ids could also not reach our folders by path.
		if src.ns, err = s.userNamespace(); err != nil {
			return nil, nil, err
		}
		defer src.ns.Close()
	}
	for _, f := range h.folders {
		l := inside.Layer{Target: f, Parts: []string{"."}}
		if d, ok := h.divided[f]; ok {
			l.Parts = d.whole
		}
		if c := h.beside[f]; c != nil {
			p.Layers = append(p.Layers, inside.Layer{Target: f, Lower: []inside.Source{src.folder(c.Path, true)}, Parts: h.divided[f].above})
		}
		if c := h.cover[f]; c != nil {
			l.Lower = append(l.Lower, src.folder(c.Path, true))
		}
		c := h.skeleton[f]
		if c != nil {
			l.Lower = append(l.Lower, src.folder(c.Path, true))
		}
		l.Lower = append(l.Lower, src.folder("/"+f, c == nil))
		p.Layers = append(p.Layers, l)
	}
	if h.etc != nil {
		p.Layers = append(p.Layers, inside.Layer{Target: "etc", Lower: []inside.Source{src.folder(h.etc.Path, true)}, Parts: []string{"."}})
	}
	if !o.probe {
		// Inside, the control folder belongs to no user, and it is read-only.
		control := src.folder(o.Control, false)
		p.Control = &control
	}
	for _, mount := range o.Mounts {
		// If ids cannot be shifted, its files belong to no user inside and are
		// readable with the permissions of other users.
		shift, shiftErr := src.can(mount.Source)
		src.note(shiftErr)
		p.Mounts = append(p.Mounts, inside.Mount{Source: src.folder(mount.Source, shift), Target: mount.Target})
	}
	if o.Files != nil {
		// Duplicate the descriptor, because the caller's stays open.
		fd, err := unix.FcntlInt(o.Files.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		src.note(err)
		if err == nil {
			src.fds = append(src.fds, fd)
			p.Files = len(src.fds)
		}
	}
	return p, src.fds, src.err
}

// sourcer turns folders of the host into mountable sources: paths if the
// sandbox's root is our user, else detached mounts.
type sourcer struct {
	shifter

	fds []int
	err error
}

func (s *sourcer) note(err error) { s.err = errors.Join(s.err, err) }

func (s *sourcer) folder(path string, ids bool) inside.Source {
	if s.ns == nil {
		return inside.Source{Path: path}
	}
	fd, err := shifted(path, s.ns, ids)
	if err != nil {
		s.note(err)
		return inside.Source{}
	}
	s.fds = append(s.fds, fd)
	return inside.Source{FD: len(s.fds)}
}

// shifted makes a detached mount of dir in which the host's ids 0… appear as 0…
// of the user namespace ns. Not every file system supports that: most disks do
// since Linux 5.12 to 5.19, a tmpfs since 6.3, an overlay never.
func shifted(dir string, ns *os.File, ids bool) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, explainMount(dir, err)
	}
	if !ids {
		return fd, nil
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return -1, fmt.Errorf("%s: %w", dir, errNoShift)
		}
		return -1, explainMount(dir, err)
	}
	return fd, nil
}

var errNoShift = errors.New("its file system cannot shift ids")
