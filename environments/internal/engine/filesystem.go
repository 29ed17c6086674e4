package engine

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// fileSystems are names of file systems by their magic numbers (statfs(2)).
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "XFS", unix.BTRFS_SUPER_MAGIC: "Btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "ZFS",
}

// FileSystem names the file system of a folder, for people.
func FileSystem(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "a file system that cannot be looked at"
	}
	return cmp.Or(fileSystems[int64(fs.Type)], runtimedir.Shared(dir), fmt.Sprintf("a file system of kind %#x", fs.Type)) //nolint:unconvert // int32 on some machines
}

// SharedStore returns the problem of an engine that stores its images on a
// network file system, which does not know user namespaces; setting is the option that
// moves them.
func SharedStore(engine, dir, setting string) []environment.Problem {
	kind := runtimedir.Shared(dir)
	if kind == "" || kind == "FUSE" { // images can be unpacked on some of these
		return nil
	}
	return []environment.Problem{{
		Summary: fmt.Sprintf("%s keeps its images on %s", engine, kind),
		Detail:  fmt.Sprintf("%s does not know user namespaces: most images cannot be unpacked in %s. Set %s to a folder on a disk of this machine.", kind, dir, setting),
	}}
}
