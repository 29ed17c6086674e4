package engine

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
)

// Names of file systems by their magic numbers (statfs(2); Lustre's and GPFS's
// from their own sources). Network file systems do not support user namespaces.
var (
	fileSystems = map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "XFS", unix.BTRFS_SUPER_MAGIC: "Btrfs", unix.TMPFS_MAGIC: "tmpfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "ZFS",
	}
	sharedFileSystems = map[int64]string{
		unix.NFS_SUPER_MAGIC: "NFS", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
	}
)

// FileSystem names the file system of a folder, for people.
func FileSystem(dir string) string {
	kind := kindOf(dir)
	return cmp.Or(fileSystems[kind], sharedFileSystems[kind], fmt.Sprintf("a file system of kind %#x", kind))
}

// kindOf returns the magic number of the file system of a folder; 0: it cannot be
// looked at.
func kindOf(dir string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0
	}
	return int64(fs.Type) //nolint:unconvert // int32 on some machines
}

// SharedStore returns the problem of an engine that stores its images on a
// network file system; setting is the option that moves them.
func SharedStore(engine, dir, setting string) []environment.Problem {
	kind, ok := sharedFileSystems[kindOf(dir)]
	if !ok {
		return nil
	}
	return []environment.Problem{{
		Summary: fmt.Sprintf("%s keeps its images on %s", engine, kind),
		Detail:  fmt.Sprintf("%s does not know user namespaces: most images cannot be unpacked in %s. Set %s to a folder on a disk of this machine.", kind, dir, setting),
	}}
}
