package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/environments/local/internal/image"
	"github.com/berth-eval/berth/environments/local/internal/maker"
	"github.com/berth-eval/berth/plugins/environment"
)

// files packs what an image copies into a file that has no name, so that it is gone
// with this process; nil: it copies nothing. The caller closes it.
func (e *Environment) files(im *image.Image) (*os.File, error) {
	if im.Empty() {
		return nil, nil
	}
	dir, err := e.maker.WorkFolder()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "image-")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		err = im.Pack(&limited{f, maker.Memory()}, isBaseFolder)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// limited is a file that holds so many bytes more: an archive of a task may
// unpack to any size, and no sandbox could hold more than the memory.
type limited struct {
	f    *os.File
	left int64
}

// Write writes all of p, or fails.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("%w: the files of the image are more than this machine's memory", environment.ErrBuildFailed)
	}
	return l.f.Write(p)
}

// isBaseFolder says whether a path inside is a folder before anything is
// copied.
func isBaseFolder(p string) bool {
	switch top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/"); top {
	case "":
		return true
	case "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc":
		info, err := os.Stat(filepath.Clean(p))
		return err == nil && info.IsDir()
	default:
		return maker.IsFresh(p)
	}
}
