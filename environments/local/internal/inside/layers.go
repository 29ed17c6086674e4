package inside

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sources opens every folder that is given as a path, because the mount on
// Staging may cover it.
func (b *builder) sources() error {
	b.opened = map[string]int{}
	all := []Source{}
	for _, l := range b.plan.Layers {
		all = append(all, l.Lower...)
	}
	for _, m := range b.plan.Mounts {
		all = append(all, m.Source)
	}
	if b.plan.Control != nil {
		all = append(all, *b.plan.Control)
	}
	for _, s := range all {
		if _, ok := b.opened[s.Path]; ok || s.FD != 0 {
			continue
		}
		fd, err := unix.Open(s.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", s.Path, err)
		}
		b.opened[s.Path] = fd
	}
	return nil
}

// staging makes the one file system for everything that the sandbox can write:
// root and, where the sandbox cannot see them, the upper layers. It ends with
// the namespace, so nothing has to be deleted.
func (b *builder) staging() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	options := "mode=0755"
	if b.plan.SizeMiB > 0 {
		// One inode per page, because empty files also use memory that the size
		// does not include.
		options += ",size=" + strconv.FormatInt(b.plan.SizeMiB, 10) + "m,nr_inodes=" + strconv.FormatInt(max(16<<10, b.plan.SizeMiB<<8), 10)
	}
	if err := unix.Mount("berth", b.plan.Staging, "tmpfs", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	if err := os.Chdir(b.plan.Staging); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	// root is a separate mount because pivot_root needs a mount point. The
	// upper layers stay outside of it.
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	return nil
}

func (b *builder) layers() error {
	for _, l := range b.plan.Layers {
		lower := make([]string, len(l.Lower))
		for i, s := range l.Lower {
			var err error
			if lower[i], err = b.attach(s); err != nil {
				return fmt.Errorf("%s: %w", l.Target, err)
			}
		}
		for _, part := range l.Parts {
			if err := b.part(path.Join(l.Target, part), lower, part); err != nil {
				return fmt.Errorf("%s: %w", path.Join(l.Target, part), err)
			}
		}
	}
	for _, l := range b.plan.Links {
		if err := os.Symlink(l.Target, path.Join(root, l.Name)); err != nil {
			return err
		}
	}
	return nil
}

// part mounts an overlay at target of one folder of the attached trees.
func (b *builder) part(target string, trees []string, part string) error {
	up, work := upper(b.overlays), "w"+strconv.Itoa(b.overlays)
	b.overlays++
	for _, dir := range []string{path.Join(root, target), up, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var lower []string
	for _, tree := range trees {
		if info, err := os.Lstat(path.Join(tree, part)); err != nil || !info.IsDir() {
			continue // a skeleton may be older than the folder, and the host may have removed it
		}
		at, err := b.take(tree, part)
		if err != nil {
			return err
		}
		lower = append(lower, at)
	}
	if len(lower) == 0 {
		return nil // an empty folder
	}
	// userxattr: in a user namespace overlayfs may not write trusted.*. It
	// turns off index and redirect, so renaming a folder of the host fails with
	// EXDEV, and programs copy it instead.
	options := "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + up + ",workdir=" + work + ",userxattr"
	if err := unix.Mount("berth", path.Join(root, target), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return nil
}

// attach mounts s outside the root and returns the mount point.
func (b *builder) attach(s Source) (string, error) {
	at, err := b.place()
	if err != nil {
		return "", err
	}
	return at, b.bind(s, at)
}

// take mounts a folder of an attached tree by itself and returns the mount
// point, whose name means nothing special in the options of an overlay.
func (b *builder) take(tree, part string) (string, error) {
	if part == "." {
		return tree, nil
	}
	at, err := b.place()
	if err != nil {
		return "", err
	}
	if err := unix.Mount(path.Join(tree, part), at, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind it: %w", err)
	}
	return at, nil
}

// place makes a mount point outside the root.
func (b *builder) place() (string, error) {
	b.serial++
	at := "l" + strconv.Itoa(b.serial)
	return at, os.Mkdir(at, 0o700)
}

// bind mounts s at an existing folder.
func (b *builder) bind(s Source, at string) error {
	if s.FD != 0 {
		if s.FD < 0 || s.FD > len(b.fds) {
			return fmt.Errorf("descriptor %d was not sent", s.FD)
		}
		if err := unix.MoveMount(b.fds[s.FD-1], "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("attach descriptor %d: %w", s.FD, err)
		}
		return nil
	}
	fd, ok := b.opened[s.Path]
	if !ok {
		return fmt.Errorf("%s was not opened", s.Path)
	}
	// Include all mounts below: the kernel refuses to show a folder that
	// another mount of the host covers.
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", s.Path, err)
	}
	return nil
}

func (b *builder) folders() error {
	for _, f := range b.plan.Fresh {
		if err := folder(root+"/"+f.Path, f.Mode); err != nil {
			return err
		}
	}
	for i, m := range b.plan.Mounts {
		// Mount it now, while the host can be reached, and move it to its place
		// later, when no path can lead out of the sandbox.
		at := root + mountPlace(i)
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		if err := b.bind(m.Source, at); err != nil {
			return err
		}
		if err := readOnly(at); err != nil {
			return err
		}
	}
	return nil
}

// folder makes a folder whose parent exists.
func folder(at string, mode uint32) error {
	err := unix.Mkdir(at, mode)
	if err == nil && mode&0o022 == 0 { // otherwise the umask, which limits has set, gives the right mode
		return nil
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", at, err)
	}
	if err = unix.Chmod(at, mode); err != nil {
		return fmt.Errorf("chmod %s: %w", at, err)
	}
	return nil
}

// mountHall holds the mounts until the root was changed.
const mountHall = "/.berth-mounts"

func mountPlace(i int) string { return mountHall + "/" + strconv.Itoa(i) }

// mounts moves the further folders to their places. It removes mount points one
// by one and never recursively, because their contents could be the host's.
func (b *builder) mounts() error {
	if len(b.plan.Mounts) == 0 {
		return nil
	}
	for i, m := range b.plan.Mounts {
		if err := os.MkdirAll(m.Target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(mountPlace(i), m.Target, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move to %s: %w", m.Target, err)
		}
		if err := os.Remove(mountPlace(i)); err != nil {
			return err
		}
	}
	return os.Remove(mountHall)
}

func (b *builder) control() error {
	if b.plan.Control == nil {
		if b.plan.Probe {
			return nil
		}
		return errors.New("the plan names none")
	}
	target := root + "/berth"
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	if err := b.bind(*b.plan.Control, target); err != nil {
		return err
	}
	return readOnly(target)
}

// readOnly adds flags to a mount and all mounts below it. It does not use a
// remount of mount(2), which replaces all flags: in a user namespace, leaving
// out one that the host's mount has (nodev, noexec, relatime …) is refused with
// EPERM.
func readOnly(at string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
	})
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", at, err)
	}
	return nil
}

// upper returns the name of the upper folder of a layer.
func upper(i int) string { return fmt.Sprintf("u%d", i) }
