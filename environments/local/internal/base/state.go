// Package base keeps what is made once per machine and user and shared by all
// sandboxes: the folder for state, the copy of /etc and the skeleton of /usr.
//
// It only reads the host and writes below its own folder. It must not know
// namespaces or sandboxes.
package base

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// version is that of everything below a state folder. Another version uses
// another folder: two builds never read each other's state.
const version = "local-1"

// State is a folder on node-local disk that belongs to us alone.
type State struct {
	Boxes string // records of sandboxes
	Work  string // for files that nobody else opens by name

	bases []string // where copies of the host may be, best first
	base  string   // one of them, once UseBase was called
}

// Places are where state may be, for a user.
type Places struct {
	UID     int      // as the host knows it
	Runtime string   // $XDG_RUNTIME_DIR, or empty; not for root, whose processes must find each other
	Cache   []string // for copies of the host, best first: $XDG_CACHE_HOME or ~/.cache, which nothing cleans up
	Temp    string   // a node-local folder of everybody; empty: /tmp, or /run for root
}

// Open finds and makes the folders of this user and version.
func Open(p Places) (*State, error) {
	top, err := topFolder(p)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	s := &State{}
	mine := filepath.Join(top, version)
	s.Boxes, s.Work = filepath.Join(mine, "sandboxes"), filepath.Join(mine, "work")
	for _, dir := range []string{mine, s.Boxes, s.Work} {
		if err := own(dir); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	// Cleaners of /tmp remove old empty folders, and the skeleton is nothing
	// else: the state folder is the last choice for it.
	for _, cache := range p.Cache {
		s.bases = append(s.bases, filepath.Join(cache, "berth", version))
	}
	s.bases = append(s.bases, filepath.Join(mine, "base"))
	return s, nil
}

// UseBase chooses the folder for copies of the host: the first that is ours,
// on this machine, and that usable accepts.
func (s *State) UseBase(usable func(dir string) (bool, error)) error {
	if s.base != "" {
		return nil
	}
	var errs []error
	for _, dir := range s.bases {
		err := os.MkdirAll(filepath.Dir(dir), 0o700)
		if err == nil {
			err = local(filepath.Dir(dir))
		}
		if err == nil {
			err = own(dir)
		}
		ok := false
		if err == nil {
			ok, err = usable(dir)
		}
		if ok {
			s.base = dir
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s: its file system cannot shift ids", dir)
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no folder for copies of the host: %w", errors.Join(errs...))
}

// topFolder is the first place that will do.
func topFolder(p Places) (string, error) {
	if p.Runtime != "" && p.UID != 0 {
		// Stale on clusters whose login sessions are adopted; then it is not
		// there, or not ours.
		dir := filepath.Join(p.Runtime, "berth")
		if local(p.Runtime) == nil && owned(p.Runtime) == nil && own(dir) == nil {
			return dir, nil
		}
	}
	temp := p.Temp
	if temp == "" {
		temp = "/tmp"
		if p.UID == 0 {
			temp = "/run"
		}
	}
	if err := local(temp); err != nil {
		return "", err
	}
	dir := filepath.Join(temp, "berth-"+strconv.Itoa(p.UID))
	return dir, own(dir)
}

// own makes dir a folder that only we can enter. Somebody else may have made
// it before us, in a folder of everybody: then it is refused.
func own(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return owned(dir)
}

// owned says whether dir is a folder, no link, of ours, that nobody else can
// enter.
func owned(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a folder: somebody may have put it there: remove it", dir)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: somebody else made it, perhaps to read along: have it removed", dir, st.Uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%s can be entered by others (mode %#o): chmod 700 %s", dir, st.Mode&0o7777, dir)
	}
	return nil
}

// remote are the magic numbers (statfs) of file systems whose locks, sockets
// or owners cannot be relied on.
var remote = map[int64]string{
	0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x00c36400: "Ceph",
	0x65735546: "FUSE", 0x01021997: "9p", 0x19830326: "BeeGFS", 0xaad7aaea: "PanFS", 0x20030528: "OrangeFS", 0x5346414f: "AFS",
}

// local refuses a folder that is not there or not on this machine.
func local(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if name, ok := remote[st.Type&0xffffffff]; ok {
		return fmt.Errorf("%s is on a shared file system (%s): state must be on a disk of this machine", dir, name)
	}
	return nil
}
