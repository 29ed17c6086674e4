package inside

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// snapshot unpacks an archive of Export, which has all files outside of the
// layers, and the differences of the layers.
func (b *builder) snapshot(r *tar.Reader) error {
	keep := []string{"dev", "proc", "berth"}
	for _, l := range b.plan.Layers {
		keep = append(keep, l.Target)
	}
	for _, f := range b.plan.Fresh {
		if top, _, _ := strings.Cut(f.Path, "/"); !slices.Contains(keep, top) {
			if err := os.RemoveAll("/" + top); err != nil {
				return err
			}
		}
	}
	var folders []*tar.Header
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.restore(h, r)
		}
		if err != nil {
			if h != nil {
				err = fmt.Errorf("%s: %w", h.Name, err)
			}
			return err
		}
		if h.Typeflag == tar.TypeDir {
			folders = append(folders, h)
		}
	}
	for _, h := range slices.Backward(folders) { // what was put into a folder changed its time
		if err := setTime(path.Join("/", h.Name), h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

// restore makes one entry of a snapshot.
func (b *builder) restore(h *tar.Header, r io.Reader) error {
	name := path.Join("/", h.Name)
	info, err := os.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removed, opaque := h.PAXRecords[paxRemoved] != "", h.PAXRecords[paxOpaque] != ""
	isFolder := h.Typeflag == tar.TypeDir && !removed
	if err == nil && (removed || opaque || !isFolder || !info.IsDir()) {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	if removed {
		return nil
	}
	if err := unpack(h, r); err != nil {
		return err
	}
	if isFolder || h.Typeflag == tar.TypeLink {
		return nil // the time of a folder is set at the end
	}
	return setTime(name, h.ModTime)
}

func setTime(name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
