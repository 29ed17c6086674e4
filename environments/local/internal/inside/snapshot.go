package inside

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/sandbox/archive"
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
	return archive.Unpack(r, b.restore, func(h *tar.Header) error { return archive.SetTime(path.Join("/", h.Name), h.ModTime) })
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
	return archive.SetTime(name, h.ModTime)
}
